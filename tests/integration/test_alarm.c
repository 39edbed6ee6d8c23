/*
 * An etcd that has no space left: said, shown, survived; and work goes on when it has some again.
 */
#include "harness.h"

#include <string.h>

static gboolean alarm_is(World *world, Proc *manager, gboolean on)
{
    g_autoptr(Reply) cluster = http(manager, "GET", "/v1/cluster", NULL);
    const char *alarm = cluster->json != NULL ? json_text(cluster->json, "etcd.alarms.0") : "?";
    double gauge = metric(manager, "etcd_alarm{alarm=\"NOSPACE\"}");
    (void)world;
    return strcmp(alarm, on ? "NOSPACE" : "") == 0 && gauge == (on ? 1 : 0);
}

static gboolean is_raised(World *world, gpointer manager)
{
    return alarm_is(world, manager, TRUE);
}

static gboolean is_lowered(World *world, gpointer manager)
{
    return alarm_is(world, manager, FALSE);
}

/* Keys below @prefix with what no second lease could have. */
static char *holders(World *world, const char *prefix)
{
    g_autoptr(GPtrArray) keys = world_range(world, prefix);
    GString *text = g_string_new(NULL);
    for (guint i = 0; i < keys->len; i++) {
        const Kv *kv = keys->pdata[i];
        g_string_append_printf(text, "%s %" G_GINT64_FORMAT " %" G_GINT64_MODIFIER "x\n", kv->key,
                               kv->create_rev, kv->lease);
    }
    return g_string_free(text, FALSE);
}

static void an_alarm_proc_has_said_and_survived(void **state)
{
    World *world = *state;
    Proc *manager = manager_start(world, "manager", NULL);
    Proc *agent = agent_start(world, &(AgentOptions){.name = "agent"});
    world_put(world, "desired/settings/replica-creator", "{\"spec\":{\"debounce\":\"0s\"}}");
    world_put(world, "desired/services/x", "{\"spec\":{\"owner\":\"a\"}}");
    snapshot_publish(world, "s-1", "x", world->now_ms, 1, 1000);
    snapshot_publish(world, "s-2", "x", world->now_ms, 1, 1000);
    world_wait_live(world, NULL, 2);
    world_poll(world, is_lowered, manager, "there is no alarm");
    g_autofree char *nodes = holders(world, "actual/nodes/");
    g_autofree char *leaders = holders(world, "leaders/");
    assert_true(*nodes != '\0' && *leaders != '\0');

    assert_true(etcd_process_set_nospace(world->etcd, TRUE, NULL));
    /* etcd still takes deletions, so there is something to decide that it does not take. */
    world_delete(world, "actual/search/cache/nobody-00000001/s");
    world_delete(world, "published/snapshots/s-2");
    world_poll(world, is_raised, manager, "the alarm is shown");
    world_poll(world, proc_has_said, &(Said){manager, "alarm=NOSPACE"}, "the manager says it");
    world_poll(world, proc_has_said, &(Said){agent, "alarm=NOSPACE"}, "the agent says it");
    assert_false(manager->ended || agent->ended);
    g_autofree char *nodes_then = holders(world, "actual/nodes/");
    g_autofree char *leaders_then = holders(world, "leaders/");
    assert_string_equal(nodes_then, nodes);
    assert_string_equal(leaders_then, leaders);

    assert_true(etcd_process_set_nospace(world->etcd, FALSE, NULL));
    snapshot_publish(world, "s-3", "x", world->now_ms, 1, 1000);
    world_wait_live(world, "s-3", 1);
    world_wait_live(world, NULL, 2); /* what is gone was evicted */
    world_poll(world, is_lowered, manager, "the alarm is gone");
    assert_false(manager->ended || agent->ended);
    g_autofree char *nodes_after = holders(world, "actual/nodes/");
    g_autofree char *leaders_after = holders(world, "leaders/");
    assert_string_equal(nodes_after, nodes);
    assert_string_equal(leaders_after, leaders);
    assert_int_equal(proc_logged(manager, "alarm=NOSPACE meaning"), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(an_alarm_proc_has_said_and_survived, world_setup,
                                        world_teardown),
    };
    return cmocka_run_group_tests_name("integration-alarm", tests, NULL, NULL);
}
