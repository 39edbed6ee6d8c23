/*
 * Draining cache nodes: loaded elsewhere first, evicted here only then; no room; undone half-way; and
 * what is said of it.
 */
#include "tests/unit/controllers/harness.h"

#define SAID "nodepolicies/cache/a/cache-assigner"

static void put_snapshots(World *world, guint n, gint64 bytes)
{
    for (guint i = 0; i < n; i++) {
        g_autofree char *name = g_strdup_printf("s%03u", i);
        put_snapshot(world, name, "api", T0 - (gint64)i * SECOND, bytes);
    }
}

static void drain(World *world, const char *host, gboolean on)
{
    g_autofree char *key = g_strconcat("desired/nodepolicies/cache/", host, NULL);

    putf(world, key, "{\"spec\":{\"cordon\":%s,\"drain\":%s}}", on ? "true" : "false",
         on ? "true" : "false");
    step(world, "admission");
}

static guint held(const World *world, const char *id)
{
    g_autofree char *prefix = g_strconcat("decided/assignments/cache/", id, "/", NULL);

    return count_below(world, prefix);
}

static const LhAssignment *order_of(const World *world, const char *id, const char *item)
{
    return lookf(world, "decided/assignments/cache/%s/%s", id, item);
}

/* How many live copies that are not ordered away the replica has. */
static guint live_copies(const World *world, const char *item)
{
    g_autoptr(GPtrArray) keys = keys_below(world, "actual/items/cache/");
    g_autofree char *tail = g_strconcat("/", item, NULL);
    guint n = 0;

    for (guint i = 0; i < keys->len; i++) {
        const LhItem *said = look(world, keys->pdata[i]);
        const LhAssignment *order = lookf(world, "decided/assignments/%s", said->o.name);
        n += g_str_has_suffix(keys->pdata[i], tail) && said->state == LH_ITEM_LIVE &&
             order != NULL && order->action == LH_ACTION_LOAD &&
             said->assignment == order->o.mod_rev;
    }
    return n;
}

static void assert_drained(const World *world, int status, const char *reason, const char *part)
{
    const LhCondition *condition = condition_of(world, SAID, "Drained");

    assert_non_null(condition);
    assert_string_equal(condition->reason, reason);
    assert_int_equal(condition->status, status);
    if (strstr(condition->message, part) == NULL)
        fail_msg("\"%s\" does not say %s", condition->message, part);
}

/* One node with @n live replicas, and then an empty one beside it. */
static World *with_a_and_b(guint n, gint64 bytes, const char *more)
{
    World *world = world_new();

    put_service(world, "api", "%s", more);
    put_settings(world, "cache-assigner", "\"restoreReservePercent\":0");
    put_snapshots(world, n, bytes);
    put_node(world, "a-00000001", 1000, 0, "");
    settle(world);
    put_node(world, "b-00000001", 1000, 0, "");
    settle(world);
    assert_int_equal(held(world, "a-00000001"), n);
    return world;
}

static void loaded_elsewhere_first_and_evicted_when_that_is_live(void **state)
{
    g_autoptr(World) world = with_a_and_b(5, 10, "");

    (void)state;
    drain(world, "a", TRUE);
    run_all(world);
    assert_int_equal(held(world, "a-00000001"), 5);
    assert_int_equal(held(world, "b-00000001"), 2); /* maxConcurrentLoads */
    assert_drained(world, LH_CONDITION_FALSE, "Moving", "5 left, 5 on their way");
    assert_string_equal(order_of(world, "b-00000001", "s000.default.0")->rule, "drained");
    for (int round = 0; round < 50; round++) {
        for (guint i = 0; i < 5; i++) {
            g_autofree char *item = g_strdup_printf("s%03u.default.0", i);
            assert_true(live_copies(world, item) >= 1);
        }
        if (!nodes_answer(world))
            break;
        run_all(world);
    }
    assert_int_equal(held(world, "a-00000001"), 0);
    assert_int_equal(held(world, "b-00000001"), 5);
    assert_int_equal(items_in(world, LH_ITEM_LIVE), 5);
    assert_drained(world, LH_CONDITION_TRUE, "Empty", "nothing is assigned to it");
    drain(world, "a", FALSE);
    settle(world);
    assert_null(lookf(world, "decided/status/" SAID));
    assert_int_equal(held(world, "b-00000001"), 5); /* nothing moves back by itself */
}

static void what_is_loading_there_is_not_given_up_either(void **state)
{
    g_autoptr(World) world = world_new();

    (void)state;
    put_service(world, "api", "%s", "");
    put_snapshots(world, 1, 10);
    put_node(world, "a-00000001", 1000, 0, "");
    run_all(world);
    put_node(world, "b-00000001", 1000, 0, "");
    drain(world, "a", TRUE);
    run_all(world);
    assert_int_equal(order_of(world, "a-00000001", "s000.default.0")->action, LH_ACTION_LOAD);
    assert_non_null(order_of(world, "b-00000001", "s000.default.0"));
    answer(world, "b-00000001/s000.default.0", "live");
    run_all(world);
    assert_int_equal(order_of(world, "a-00000001", "s000.default.0")->action, LH_ACTION_EVICT);
}

static void without_room_it_stays_and_says_so(void **state)
{
    g_autoptr(World) world = with_a_and_b(5, 200, "");

    (void)state;
    put_node(world, "b-00000001", 450, 0, "");
    drain(world, "a", TRUE);
    settle(world);
    assert_int_equal(held(world, "a-00000001"), 3);
    assert_int_equal(held(world, "b-00000001"), 2);
    assert_int_equal(items_in(world, LH_ITEM_LIVE), 5);
    assert_drained(world, LH_CONDITION_FALSE, "NoRoom",
                   "3 left, 3 have no room elsewhere (no node has so many bytes free)");
    g_autoptr(LhPlan) plan = plan_of(world, "cache-assigner");
    assert_string_equal(note_rule(plan, "replicas/s004.default.0"), "wait-bytes");
    put_node(world, "c-00000001", 1000, 0, "");
    settle(world);
    assert_int_equal(held(world, "a-00000001"), 0);
    assert_drained(world, LH_CONDITION_TRUE, "Empty", "nothing");
}

static void undone_half_way_the_older_copy_stays(void **state)
{
    g_autoptr(World) world = with_a_and_b(3, 10, "");

    (void)state;
    drain(world, "a", TRUE);
    run_all(world);
    assert_int_equal(held(world, "b-00000001"), 2);
    answer(world, "b-00000001/s000.default.0", "live"); /* and s001 is not yet */
    drain(world, "a", FALSE);
    run_all(world);
    assert_string_equal(order_of(world, "b-00000001", "s000.default.0")->rule, "doubled");
    assert_int_equal(order_of(world, "b-00000001", "s000.default.0")->action, LH_ACTION_EVICT);
    assert_int_equal(order_of(world, "b-00000001", "s001.default.0")->action, LH_ACTION_EVICT);
    settle(world);
    assert_int_equal(held(world, "a-00000001"), 3);
    assert_int_equal(held(world, "b-00000001"), 0);
}

/* What was ordered away already is not ordered back. */
static void undone_late_the_new_copy_stays(void **state)
{
    g_autoptr(World) world = with_a_and_b(1, 10, "");

    (void)state;
    drain(world, "a", TRUE);
    run_all(world);
    nodes_answer(world);
    run(world, "cache-evictor");
    drain(world, "a", FALSE);
    settle(world);
    assert_int_equal(held(world, "a-00000001"), 0);
    assert_int_equal(held(world, "b-00000001"), 1);
}

/* An order is void when what it saw of the other copy has changed. */
static void the_other_copy_is_compared(void **state)
{
    static const char *const changes[][2] = {
        {"actual/items/cache/b-00000001/s000.default.0", NULL},
        {"actual/nodes/cache/b-00000001", NULL},
        {"decided/assignments/cache/b-00000001/s000.default.0", NULL},
        {"decided/health/cache/b-00000001", "{\"state\":\"failure\",\"since\":1}"},
        {"decided/accepted/nodepolicies/cache/a", NULL},
        {"decided/accepted/nodepolicies/cache/b",
         "{\"revision\":1,\"acceptedAt\":1,\"spec\":{\"drain\":true}}"},
    };

    (void)state;
    for (guint i = 0; i < G_N_ELEMENTS(changes); i++) {
        g_autoptr(World) world = with_a_and_b(1, 10, "");
        drain(world, "a", TRUE);
        run(world, "cache-assigner");
        nodes_answer(world);
        g_autoptr(LhPlan) plan = plan_of(world, "cache-evictor");
        assert_int_equal(lh_plan_groups(plan), 1);
        if (changes[i][1] == NULL)
            del(world, changes[i][0]);
        else
            put(world, changes[i][0], changes[i][1]);
        if (apply_group(world, plan, 0))
            fail_msg("evicted, though %s changed", changes[i][0]);
    }
}

static void a_copy_on_a_failing_node_is_not_what_stays(void **state)
{
    g_autoptr(World) world = with_a_and_b(1, 10, "");

    (void)state;
    drain(world, "a", TRUE);
    run(world, "cache-assigner");
    nodes_answer(world);
    put(world, "decided/health/cache/b-00000001", "{\"state\":\"failure\",\"since\":1}");
    run(world, "cache-evictor");
    assert_int_equal(order_of(world, "a-00000001", "s000.default.0")->action, LH_ACTION_LOAD);
    assert_int_equal(order_of(world, "b-00000001", "s000.default.0")->action, LH_ACTION_EVICT);
}

static void two_drained_nodes_move_to_the_third(void **state)
{
    g_autoptr(World) world = with_a_and_b(1, 10, "");

    (void)state;
    drain(world, "a", TRUE);
    run_all(world);
    drain(world, "b", TRUE); /* while it is loading there */
    put_node(world, "c-00000001", 1000, 0, "");
    settle(world);
    assert_int_equal(held(world, "a-00000001") + held(world, "b-00000001"), 0);
    assert_int_equal(held(world, "c-00000001"), 1);
}

static void twins_and_zones_are_respected(void **state)
{
    g_autoptr(World) world = world_new();

    (void)state;
    put_service(world, "api", "%s", "\"cache\":{\"replicas\":2}");
    put_snapshots(world, 4, 10);
    put_node(world, "a-00000001", 1000, 0, ",\"zone\":\"z1\"");
    put_node(world, "b-00000001", 1000, 0, ",\"zone\":\"z2\"");
    settle(world);
    drain(world, "a", TRUE);
    settle(world);
    assert_int_equal(held(world, "a-00000001"), 4);
    assert_drained(world, LH_CONDITION_FALSE, "NoRoom", "only nodes that hold this snapshot");
    put_node(world, "c-00000001", 1000, 0, ",\"zone\":\"z2\"");
    put_node(world, "d-00000001", 1000, 0, ",\"zone\":\"z1\""); /* the one that a leaves */
    settle(world);
    assert_int_equal(held(world, "a-00000001"), 0);
    assert_int_equal(held(world, "c-00000001"), 0);
    assert_int_equal(held(world, "d-00000001"), 4);
}

static void restored_ones_move_within_the_reserve(void **state)
{
    g_autoptr(World) world = world_new();

    (void)state;
    put_service(world, "api", "%s", "\"cache\":{\"replicas\":0}");
    put_snapshots(world, 2, 10);
    put_node(world, "a-00000001", 200, 0, "");
    for (int i = 0; i < 2; i++) {
        g_autofree char *key = g_strdup_printf("decided/replicas/s%03d.default.r0", i);
        putf(world, key,
             "{\"snapshot\":\"s%03d\",\"service\":\"api\",\"set\":\"default\",\"restored\":true,"
             "\"expiresAt\":%" PRId64 "}",
             i, T0 + DAY);
    }
    settle(world);
    put_node(world, "b-00000001", 100, 0, "");
    drain(world, "a", TRUE);
    settle(world);
    assert_int_equal(held(world, "a-00000001"), 1); /* 10 % of 100 bytes has room for one */
    assert_int_equal(held(world, "b-00000001"), 1);
}

static void a_paused_service_and_what_does_not_parse_are_left_alone(void **state)
{
    g_autoptr(World) world = with_a_and_b(2, 10, "");

    (void)state;
    put_service(world, "api", "%s", "\"paused\":true");
    drain(world, "a", TRUE);
    settle(world);
    assert_int_equal(held(world, "a-00000001"), 2);
    assert_int_equal(held(world, "b-00000001"), 0);
    assert_drained(world, LH_CONDITION_FALSE, "LeftAlone",
                   "2 left, 2 are left alone (its service is paused)");
    put_service(world, "api", "%s", "");
    put(world, "decided/assignments/cache/a-00000001/s000.default.0", "spoilt");
    settle(world);
    assert_int_equal(held(world, "a-00000001"), 1);
    assert_int_equal(held(world, "b-00000001"), 1);
    assert_drained(world, LH_CONDITION_FALSE, "LeftAlone",
                   "1 left, 1 are left alone (an assignment does not parse");
}

/* A load that failed elsewhere is tried again after its wait, not at once because it is live here. */
static void a_load_that_fails_elsewhere_waits(void **state)
{
    g_autoptr(World) world = with_a_and_b(1, 10, "");

    (void)state;
    drain(world, "a", TRUE);
    run_all(world);
    answer(world, "b-00000001/s000.default.0", "failed");
    run_all(world);
    assert_non_null(look(world, "decided/retries/cache/s000.default.0"));
    assert_null(order_of(world, "b-00000001", "s000.default.0"));
    assert_int_equal(live_copies(world, "s000.default.0"), 1);
    assert_drained(world, LH_CONDITION_FALSE, "LoadFailed", "1 left, 1 could not be loaded");
    world->now_ms += MINUTE;
    settle(world);
    assert_int_equal(held(world, "a-00000001"), 0);
    assert_null(look(world, "decided/retries/cache/s000.default.0"));
}

/* A drain moves; the brake is for what is lost. */
static void the_brake_does_not_count_what_moves(void **state)
{
    g_autoptr(World) world = with_a_and_b(40, 10, "");

    (void)state;
    drain(world, "a", TRUE);
    settle(world);
    assert_int_equal(held(world, "a-00000001"), 0);
    assert_null(look(world, "decided/brakes/cache-evictor"));
    put_service(world, "api", "%s", "\"cache\":{\"sets\":[\"blue\"]}");
    settle(world);
    assert_non_null(look(world, "decided/brakes/cache-evictor"));
    /* and one that holds does not hold it up */
    drain(world, "b", TRUE);
    drain(world, "a", FALSE);
    put_service(world, "api", "%s", "");
    settle(world);
    assert_int_equal(held(world, "b-00000001"), 0);
}

static void a_restored_etcd_stops_it(void **state)
{
    g_autoptr(World) world = with_a_and_b(1, 10, "");

    (void)state;
    drain(world, "a", TRUE);
    run(world, "cache-assigner");
    nodes_answer(world);
    world->regressed = TRUE;
    world->regressed_rev = world->revision + 1;
    settle(world);
    assert_int_equal(order_of(world, "a-00000001", "s000.default.0")->action, LH_ACTION_LOAD);
}

/* Items of the move ended first are no reason to take a returned node's copy back. */
static void a_lost_source_is_gone_and_its_name_is_drained(void **state)
{
    g_autoptr(World) world = with_a_and_b(3, 10, "");

    (void)state;
    drain(world, "a", TRUE);
    run_all(world);
    lose_node(world, "a-00000001");
    settle(world);
    assert_drained(world, LH_CONDITION_FALSE, "Moving", "left");
    world->now_ms += 3 * MINUTE;
    settle(world);
    world->now_ms += 3 * MINUTE;
    settle(world);
    assert_int_equal(held(world, "a-00000001"), 0);
    assert_int_equal(held(world, "b-00000001"), 3);
    assert_drained(world, LH_CONDITION_TRUE, "Empty", "nothing");
}

static void a_drained_name_without_nodes_is_drained(void **state)
{
    g_autoptr(World) world = world_new();

    (void)state;
    drain(world, "a", TRUE);
    run_all(world);
    assert_drained(world, LH_CONDITION_TRUE, "Empty", "nothing");
    del(world, "desired/nodepolicies/cache/a");
    run_all(world);
    assert_null(lookf(world, "decided/status/" SAID));
}

static void a_budget_does_not_make_it_drained(void **state)
{
    g_autoptr(World) world = with_a_and_b(4, 10, "");

    (void)state;
    put_settings(world, "cache-assigner", "\"maxConcurrentLoads\":9");
    drain(world, "a", TRUE);
    world->max_groups = 2;
    g_autoptr(LhPlan) plan = plan_of(world, "cache-assigner");
    assert_int_equal(lh_plan_groups(plan), 2);
    assert_true(plan->more);
    settle(world);
    assert_int_equal(held(world, "b-00000001"), 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(loaded_elsewhere_first_and_evicted_when_that_is_live),
        cmocka_unit_test(what_is_loading_there_is_not_given_up_either),
        cmocka_unit_test(without_room_it_stays_and_says_so),
        cmocka_unit_test(undone_half_way_the_older_copy_stays),
        cmocka_unit_test(undone_late_the_new_copy_stays),
        cmocka_unit_test(the_other_copy_is_compared),
        cmocka_unit_test(a_copy_on_a_failing_node_is_not_what_stays),
        cmocka_unit_test(two_drained_nodes_move_to_the_third),
        cmocka_unit_test(twins_and_zones_are_respected),
        cmocka_unit_test(restored_ones_move_within_the_reserve),
        cmocka_unit_test(a_paused_service_and_what_does_not_parse_are_left_alone),
        cmocka_unit_test(a_load_that_fails_elsewhere_waits),
        cmocka_unit_test(the_brake_does_not_count_what_moves),
        cmocka_unit_test(a_restored_etcd_stops_it),
        cmocka_unit_test(a_lost_source_is_gone_and_its_name_is_drained),
        cmocka_unit_test(a_drained_name_without_nodes_is_drained),
        cmocka_unit_test(a_budget_does_not_make_it_drained),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
