/*
 * The monitor over real agents: a load that hangs is said, taken back and done elsewhere; services show
 * how much of them is live.
 */
#include "harness.h"

#include <string.h>

static gboolean is_stuck(World *world, gpointer data)
{
    const LhCondition *condition = world_condition(world, "replicas/s-1.default.0/cluster-monitor",
                                                   "Stuck");
    const char *reason = data;

    return reason == NULL ? condition == NULL
                          : condition != NULL && strcmp(condition->reason, reason) == 0;
}

static gboolean has_retry(World *world, gpointer data)
{
    const LhRetry *retry = world_get(world, LH_KIND_RETRY, "cache/s-1.default.0");

    (void)data;
    return retry != NULL && lh_object_known(&retry->o) && g_strcmp0(retry->node, "agent-1") == 0;
}

static gboolean counts_are(World *world, gpointer data)
{
    const LhStatus *status = world_get(world, LH_KIND_STATUS, "services/x/cluster-monitor");
    const gint64 *want = data;

    return status != NULL && lh_object_known(&status->o) && status->snapshots == want[0] &&
           status->replicas_desired == want[1] && status->replicas_live == want[2];
}

static void wait_counts(World *world, gint64 snapshots, gint64 desired, gint64 live)
{
    gint64 want[] = {snapshots, desired, live};

    world_wait(world, counts_are, want,
               "service x has %" G_GINT64_FORMAT " snapshots and %" G_GINT64_FORMAT
               " replicas, %" G_GINT64_FORMAT " of them live",
               snapshots, desired, live);
}

/* The manager's own mirror may be a moment behind ours. */
static gboolean shows_all_live(World *world, gpointer data)
{
    g_autoptr(Reply) shown = http(data, "GET", "/v1/services/x", NULL);

    (void)world;
    reply_must(shown, 200);
    return json_at(shown->json, "status.snapshots")->valueint == 2 &&
           json_at(shown->json, "status.replicasLive")->valueint == 4;
}

static void a_load_that_hangs_is_done_elsewhere(void **state)
{
    static const char *const hangs[] = {"--on-load", "sleep 600", "--hook-timeout", "10m", NULL};
    World *world = *state;
    Proc *manager = manager_ready(world, "manager");

    world_put(world, "desired/settings/cluster-monitor", "{\"spec\":{\"stuckLoading\":\"2s\"}}");
    world_put(world, "desired/services/x", "{\"spec\":{\"owner\":\"a\"}}");
    agent_start(world, &(AgentOptions){.name = "agent-1", .extra = hangs});
    snapshot_publish(world, "s-1", "x", world->now_ms - 60000, 2, 1000);
    wait_counts(world, 1, 1, 0);
    world_wait(world, is_stuck, (gpointer) "StuckLoading", "the load is said to be stuck");
    world_wait_event(world, "StuckLoading", "replicas/s-1.default.0");
    world_wait(world, has_retry, NULL, "it counts as an attempt that failed on agent-1");
    world_wait(world, is_stuck, NULL, "it is not stuck any more");
    agent_start(world, &(AgentOptions){.name = "agent-2"});
    world_wait_live(world, NULL, 1);
    g_autoptr(GPtrArray) live = world_range(world, "actual/search/cache/");
    assert_int_equal(live->len, 1);
    assert_true(
        g_str_has_prefix(((Kv *)g_ptr_array_index(live, 0))->key, "actual/search/cache/agent-2-"));
    wait_counts(world, 1, 1, 1);
    assert_true(metric(manager, "stuck_items{pool=\"cache\",state=\"loading\"}") == 0);
    assert_true(metric(manager, "pool_imbalance_ratio{pool=\"cache\",set=\"default\"}") < 0.01);
}

static void services_show_what_is_live(void **state)
{
    World *world = *state;
    Proc *manager = manager_ready(world, "manager");

    world_put(world, "desired/services/x",
              "{\"spec\":{\"owner\":\"a\",\"cache\":{\"replicas\":2}}}");
    snapshot_publish(world, "s-1", "x", world->now_ms - 60000, 1, 100);
    snapshot_publish(world, "s-2", "x", world->now_ms - 60000, 1, 100);
    agents_start(world, 1);
    wait_counts(world, 2, 4, 2);
    agent_start(world, &(AgentOptions){.name = "agent-2"});
    wait_counts(world, 2, 4, 4);
    world_poll(world, shows_all_live, manager, "the manager shows 2 snapshots, 4 of 4 live");
    g_autoptr(Run) table = cli(manager, "get", "services", NULL);
    assert_int_equal(table->code, 0);
    if (strstr(table->out, "4/4") == NULL)
        fail_msg("no 4/4 in:\n%s", table->out);
    world_delete(world, "published/snapshots/s-2");
    wait_counts(world, 1, 2, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_load_that_hangs_is_done_elsewhere, world_setup,
                                        world_teardown),
        cmocka_unit_test_setup_teardown(services_show_what_is_live, world_setup, world_teardown),
    };
    return cmocka_run_group_tests_name("integration-monitor", tests, NULL, NULL);
}
