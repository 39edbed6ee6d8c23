/* `leasehold plan` and `leasehold explain`: what is about to be written, and why something waits. */
#include "harness.h"

#include <string.h>

static gboolean says(const char *text, const char *word)
{
    g_autofree char *lower = g_ascii_strdown(text, -1);
    if (strstr(lower, word) == NULL) {
        print_error("\"%s\" is not in:\n%s\n", word, text);
        return FALSE;
    }
    return TRUE;
}

typedef struct {
    Proc *manager;
    const char *key;
    const char *controller;
} PlanCheck;

/* The controller's plan has an op for @key. */
static gboolean plans_it(World *world, gpointer data)
{
    const PlanCheck *check = data;
    g_autofree char *path = g_strconcat("/v1/plan/", check->controller, NULL);
    g_autoptr(Reply) plan = http(check->manager, "GET", path, NULL);
    return plan->status == 200 && strstr(plan->body->str, check->key) != NULL;
}

static void check_op(const Reply *plan)
{
    const cJSON *ops = json_at(plan->json, "controllers.0.ops"), *op;
    assert_true(cJSON_GetArraySize(ops) > 0);
    cJSON_ArrayForEach(op, ops) {
        assert_true(json_text(op, "rule")[0] != '\0');
        assert_true(json_text(op, "reason")[0] != '\0');
    }
    assert_true(json_text(plan->json, "hash")[0] != '\0');
}

static gboolean has_nothing_to_do(World *world, gpointer data)
{
    g_autoptr(Run) plan = cli(data, "plan", NULL);
    g_autofree char *lower = g_ascii_strdown(plan->out, -1);
    return plan->code == 0 && strstr(lower, "nothing to do") != NULL;
}

static void plan_shows_what_is_coming_and_then_nothing(void **state)
{
    World *world = *state;
    Proc *manager = manager_ready(world, "manager");
    PlanCheck check = {manager, "s-0.default.0", "cache-assigner"};
    agents_start(world, 1);
    world_put(world, "desired/settings/cache-assigner", "{\"spec\":{\"paused\":true}}");
    world_put(world, "desired/services/x", "{\"spec\":{\"owner\":\"a\"}}");
    snapshot_publish(world, "s-0", "x", world->now_ms - 60000, 1, 1000);
    world_poll(world, plans_it, &check, "the plan has the load of s-0");
    gint64 revision = world_revision(world);
    g_autoptr(Reply) plan = http(manager, "GET", "/v1/plan/cache-assigner", NULL);
    check_op(plan);
    g_autoptr(Run) shown = cli(manager, "plan", NULL);
    assert_int_equal(shown->code, 0);
    assert_true(says(shown->out, "cache-assigner"));
    assert_true(says(shown->out, "s-0.default.0"));
    assert_true(says(shown->out, "paused"));
    assert_true(says(shown->out, json_text(plan->json, "controllers.0.ops.0.rule")));
    assert_int_equal(world_revision(world), revision);
    world_put(world, "desired/settings/cache-assigner", "{\"spec\":{\"paused\":false}}");
    world_wait_live(world, NULL, 1);
    world_poll(world, has_nothing_to_do, manager, "`leasehold plan` says: nothing to do");
}

/* Settings that are called "all" pause everything, and can be taken back. */
static void all_can_be_paused(void **state)
{
    World *world = *state;
    Proc *manager = manager_ready(world, "manager");
    PlanCheck check = {manager, "s-0.default.0", "replica-creator"};
    agents_start(world, 1);
    world_put(world, "desired/services/x", "{\"spec\":{\"owner\":\"a\"}}");
    world_put(world, "desired/settings/all", "{\"spec\":{\"paused\":true}}");
    g_autoptr(Run) accepted = cli(manager, "wait", "settings", "all", "--for", "condition=Valid",
                                  NULL);
    assert_int_equal(accepted->code, 0);
    snapshot_publish(world, "s-0", "x", world->now_ms - 60000, 1, 1000);
    world_poll(world, plans_it, &check, "the plan has the replica of s-0");
    g_autoptr(Run) shown = cli(manager, "plan", "replica-creator", NULL);
    assert_true(says(shown->out, "paused"));
    assert_null(world_get(world, LH_KIND_REPLICA, "s-0.default.0"));
    world_delete(world, "desired/settings/all");
    world_wait_live(world, NULL, 1);
}

static void explain_names_a_paused_controller(void **state)
{
    World *world = *state;
    Proc *manager = manager_ready(world, "manager");
    PlanCheck check = {manager, "s-0.default.0", "cache-assigner"};
    agents_start(world, 1);
    world_put(world, "desired/settings/cache-assigner", "{\"spec\":{\"paused\":true}}");
    world_put(world, "desired/services/x", "{\"spec\":{\"owner\":\"a\"}}");
    snapshot_publish(world, "s-0", "x", world->now_ms - 60000, 1, 1000);
    world_poll(world, plans_it, &check, "the plan has the load of s-0");
    g_autoptr(Run) why = cli(manager, "explain", "cache/s-0.default.0", NULL);
    assert_int_equal(why->code, 0);
    assert_true(says(why->out, "paused"));
}

/* In whatever words: that it waits, and that its 1000 bytes fit nowhere. */
static gboolean waits_for_room(World *world, gpointer data)
{
    g_autoptr(Run) why = cli(data, "explain", "cache/s-1.default.0", NULL);
    g_autoptr(Run) json = cli(data, "explain", "cache/s-1.default.0", "-o", "json", NULL);
    return why->code == 0 && strstr(why->out, "1000 bytes") != NULL && json->code == 0 &&
           strstr(json->out, "\"Waiting\"") != NULL;
}

static void explain_says_why_something_waits(void **state)
{
    World *world = *state;
    Proc *manager = manager_ready(world, "manager");
    /* 10 % is kept for restored data */
    agent_start(world, &(AgentOptions){.name = "agent-1", .capacity = "1500"});
    world_put(world, "desired/services/x", "{\"spec\":{\"owner\":\"a\"}}");
    snapshot_publish(world, "s-0", "x", world->now_ms - 60000, 1, 1000);
    world_wait_live(world, NULL, 1);
    snapshot_publish(world, "s-1", "x", world->now_ms - 120000, 1, 1000);
    world_poll(world, waits_for_room, manager, "explain says that room is missing");
    g_autoptr(Run) live = cli(manager, "explain", "cache/s-0.default.0", NULL);
    assert_int_equal(live->code, 0);
    assert_true(says(live->out, "live"));
    assert_true(says(live->out, "agent-1-"));
    g_autoptr(Run) nothing = cli(manager, "explain", "cache/s-7.default.0", NULL);
    assert_int_equal(nothing->code, 4);
    g_autoptr(Run) usage = cli(manager, "explain", "s-1", NULL);
    assert_int_equal(usage->code, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(plan_shows_what_is_coming_and_then_nothing, world_setup,
                                        world_teardown),
        cmocka_unit_test_setup_teardown(all_can_be_paused, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(explain_names_a_paused_controller, world_setup,
                                        world_teardown),
        cmocka_unit_test_setup_teardown(explain_says_why_something_waits, world_setup,
                                        world_teardown),
    };
    return cmocka_run_group_tests_name("integration-plan", tests, NULL, NULL);
}
