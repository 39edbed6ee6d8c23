/*
 * Partitions to indexers: which of them are items and until when, evenly by throughput, moved one at a time
 * and only after an acknowledgement; lost indexers, failures, drains.
 */
#include "controllers/explain.h"
#include "tests/unit/controllers/pool_world.h"

#define NAME "partition-allocator"

/* @n partitions of one service each, so that each has a throughput of its own. */
static void put_loads(World *world, guint n, const int *loads)
{
    put_settings(world, NAME, "\"cutover\":\"10m\"");
    for (guint i = 0; i < n; i++) {
        g_autofree char *key = g_strdup_printf("desired/partitions/p%u", i);
        g_autofree char *plan = g_strdup_printf("decided/partitionplans/s%u", i);
        g_autofree char *service = g_strdup_printf("s%u", i);
        put(world, key, "{\"spec\":{\"capacityBytesPerSecond\":1000}}");
        step(world, "admission");
        putf(world, plan,
             "{\"history\":[{\"start\":%" PRId64 ",\"end\":null,\"partitions\":[\"p%u\"]}]}", T0,
             i);
        put_service(world, service, "\"throughputBytesPerSecond\":%d,\"partitions\":{\"min\":1}",
                    loads[i]);
    }
}

/* "p0 p2" of what is to be loaded, or was, on the indexer. */
static char *orders_on(const World *world, const char *node, const char *action)
{
    g_autofree char *below = g_strdup_printf("decided/assignments/indexer/%s/", node);
    g_autoptr(GPtrArray) keys = keys_below(world, below);
    GString *text = g_string_new(NULL);

    for (guint i = 0; i < keys->len; i++) {
        const LhAssignment *order = look(world, keys->pdata[i]);
        if (strcmp(lh_action_name(order->action), action) == 0)
            g_string_append_printf(text, "%s%s", text->len == 0 ? "" : " ",
                                   strrchr(keys->pdata[i], '/') + 1);
    }
    return g_string_free(text, FALSE);
}

static void assert_on(const World *world, const char *node, const char *expected)
{
    g_autofree char *text = orders_on(world, node, "load");

    assert_string_equal(text, expected);
}

static void assert_evicting(const World *world, const char *node, const char *expected)
{
    g_autofree char *text = orders_on(world, node, "evict");

    assert_string_equal(text, expected);
}

static void assert_capacity_of(const World *world, const char *controller, int status,
                               const char *part)
{
    g_autofree char *name = g_strdup_printf("settings/%s/%s", controller, controller);
    const LhCondition *condition = condition_of(world, name, "Capacity");

    assert_non_null(condition);
    assert_int_equal(condition->status, status);
    if (part != NULL && strstr(condition->message, part) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", condition->message, part);
}

/* Every indexer does what it was told. */
static void indexers_answer(World *world)
{
    static const char assignments[] = "decided/assignments/", items[] = "actual/items/indexer/";
    g_autoptr(GPtrArray) orders = keys_below(world, "decided/assignments/indexer/");
    g_autoptr(GPtrArray) said = keys_below(world, items);

    for (guint i = 0; i < said->len; i++) {
        const char *name = (const char *)said->pdata[i] + strlen(items);
        if (lookf(world, "decided/assignments/indexer/%s", name) == NULL) {
            g_autofree char *key = g_strdup(said->pdata[i]);
            del(world, key);
        }
    }
    for (guint i = 0; i < orders->len; i++) {
        const char *name = (const char *)orders->pdata[i] + strlen(assignments);
        const LhAssignment *order = look(world, orders->pdata[i]);
        g_autofree char *id = lh_name_part(name, 1);
        if (lookf(world, "actual/nodes/indexer/%s", id) != NULL)
            answer_in_pool(world, name, order->action == LH_ACTION_LOAD ? "live" : "evicted", "");
    }
}

/* Until nothing moves; the number of moves. */
static guint settle_indexers(World *world)
{
    guint moves = 0;

    for (int i = 0; i < 300; i++) {
        guint written = step(world, NAME), evicting = 0;
        g_autoptr(GPtrArray) orders = keys_below(world, "decided/assignments/indexer/");
        for (guint o = 0; o < orders->len; o++)
            evicting += ((const LhAssignment *)look(world, orders->pdata[o]))->action ==
                        LH_ACTION_EVICT;
        assert_true(evicting <= 1); /* one at a time */
        if (written == 0) {
            indexers_answer(world);
            if (step(world, NAME) == 0)
                return moves;
        }
        indexers_answer(world);
        moves += evicting;
    }
    fail_msg("the indexers do not settle");
    return 0;
}

static void test_busiest_first_evenly(void **state)
{
    static const int loads[] = {500, 400, 300, 200, 100, 100};
    g_autoptr(World) world = world_new();

    (void)state;
    put_loads(world, 6, loads);
    run(world, NAME);
    assert_int_equal(count_below(world, "decided/assignments/indexer/"), 0);
    assert_capacity_of(world, NAME, LH_CONDITION_FALSE, "6 partitions have no indexer");
    join_pool(world, "indexer", "a-00000001", "");
    join_pool(world, "indexer", "b-00000001", "");
    run(world, NAME);
    assert_on(world, "a-00000001", "p0 p3 p4");
    assert_on(world, "b-00000001", "p1 p2 p5");
    assert_capacity_of(world, NAME, LH_CONDITION_TRUE, NULL);
    assert_int_equal(settle_indexers(world), 0);
}

static void test_limits_of_indexers(void **state)
{
    static const int loads[] = {500, 400, 300};
    g_autoptr(World) world = world_new();

    (void)state;
    put_loads(world, 3, loads);
    join_pool(world, "indexer", "a-00000001", ",\"capacityItems\":2");
    run(world, NAME);
    assert_on(world, "a-00000001", "p0 p1");
    assert_capacity_of(world, NAME, LH_CONDITION_FALSE, "1 partitions have no indexer");
}

static void test_a_new_indexer_takes_over_one_by_one(void **state)
{
    static const int loads[] = {500, 400, 300, 200, 100, 100};
    g_autoptr(World) world = world_new();

    (void)state;
    put_loads(world, 6, loads);
    join_pool(world, "indexer", "a-00000001", "");
    run(world, NAME);
    join_pool(world, "indexer", "b-00000001", "");
    run(world, NAME);
    assert_evicting(world, "a-00000001", ""); /* nothing of it is live yet */
    indexers_answer(world);
    run(world, NAME);
    assert_evicting(world, "a-00000001", "p0");
    assert_on(world, "b-00000001", ""); /* not before it is acknowledged */
    assert_int_equal(settle_indexers(world), 2);
    assert_on(world, "b-00000001", "p0 p2");
    assert_nothing_to_do(world, NAME);
    /* A little uneven is left alone. */
    put_service(world, "s0", "\"throughputBytesPerSecond\":600,\"partitions\":{\"min\":1}");
    assert_int_equal(settle_indexers(world), 0);
}

static void test_lost_indexer(void **state)
{
    static const int loads[] = {500, 400};
    g_autoptr(World) world = world_new();

    (void)state;
    put_loads(world, 2, loads);
    join_pool(world, "indexer", "a-00000001", "");
    settle_indexers(world);
    join_pool(world, "indexer", "b-00000001", ",\"capacityItems\":1");
    leave_pool(world, "indexer", "a-00000001");
    run(world, NAME);
    assert_on(world, "a-00000001", "p0 p1"); /* gone is not yet stopped */
    assert_on(world, "b-00000001", "");
    say_health(world, "indexer", "a-00000001", "failure");
    assert_nothing_to_do(world, NAME);
    say_health(world, "indexer", "a-00000001", "failed");
    run(world, NAME);
    assert_on(world, "a-00000001", "");
    assert_on(world, "b-00000001", "p0");
}

#define DRAINED "nodepolicies/indexer/a/partition-allocator"

static void test_drained_indexer(void **state)
{
    static const int loads[] = {500, 400, 300};
    g_autoptr(World) world = world_new();

    (void)state;
    put_loads(world, 3, loads);
    join_pool(world, "indexer", "a-00000001", "");
    settle_indexers(world);
    put(world, "desired/nodepolicies/indexer/a", "{\"spec\":{\"drain\":true}}");
    step(world, "admission");
    run(world, NAME);
    assert_on(world, "a-00000001", "p0 p1 p2"); /* nowhere to go */
    assert_string_equal(condition_of(world, DRAINED, "Drained")->message,
                        "3 left: no other indexer takes a partition");
    join_pool(world, "indexer", "b-00000001", "");
    run(world, NAME);
    assert_string_equal(condition_of(world, DRAINED, "Drained")->reason, "Moving");
    assert_int_equal(settle_indexers(world), 3);
    assert_on(world, "b-00000001", "p0 p1 p2");
    assert_int_equal(condition_of(world, DRAINED, "Drained")->status, LH_CONDITION_TRUE);
    put(world, "desired/nodepolicies/indexer/a", "{\"spec\":{}}");
    step(world, "admission");
    run(world, NAME);
    assert_null(lookf(world, "decided/status/" DRAINED));
}

static void test_failures_and_parking(void **state)
{
    static const int loads[] = {500};
    g_autoptr(World) world = world_new();
    const LhRetry *retry;

    (void)state;
    put_loads(world, 1, loads);
    join_pool(world, "indexer", "a-00000001", "");
    join_pool(world, "indexer", "b-00000001", "");
    for (int attempt = 1; attempt <= 5; attempt++) {
        const char *node = attempt % 2 != 0 ? "a-00000001" : "b-00000001";
        g_autofree char *name = g_strdup_printf("indexer/%s/p0", node);
        run(world, NAME);
        assert_on(world, node, "p0"); /* elsewhere than where it failed last */
        answer_in_pool(world, name, "failed", "no broker");
        run(world, NAME);
        retry = lookf(world, "decided/retries/indexer/p0");
        assert_int_equal(retry->attempt, attempt);
        assert_on(world, node, "");
        world->now_ms = retry->not_before;
    }
    run(world, NAME);
    assert_int_equal(count_below(world, "decided/assignments/indexer/"), 0);
    assert_string_equal(condition_of(world, "partitions/p0/" NAME, "Parked")->message,
                        "5 attempts failed, the last on a: no broker");
    del(world, "decided/retries/indexer/p0"); /* leasehold retry indexer/p0 */
    settle_indexers(world);
    assert_on(world, "a-00000001", "p0");
    assert_null(lookf(world, "decided/status/partitions/p0/" NAME));
}

/* Until a cutover after the last interval that has it: what was written to it is still to be read. */
static void test_what_is_an_item(void **state)
{
    static const int loads[] = {500, 400, 300};
    g_autoptr(World) world = world_new();
    g_autoptr(LhPlan) plan = NULL;

    (void)state;
    put_loads(world, 3, loads);
    run(world, NAME);
    join_pool(world, "indexer", "a-00000001", "");
    del(world, "desired/services/s2");
    step(world, "admission");
    putf(world, "decided/partitionplans/s1",
         "{\"history\":[{\"start\":1,\"end\":%" PRId64
         ",\"partitions\":[\"p1\"]},{\"start\":%" PRId64 ",\"end\":null,\"partitions\":[\"p3\"]}]}",
         T0 + 5 * MINUTE, T0 + 5 * MINUTE);
    put(world, "desired/partitions/p3", "{\"spec\":{\"capacityBytesPerSecond\":1000}}");
    step(world, "admission");
    settle_indexers(world);
    assert_on(world, "a-00000001", "p0 p1 p2 p3"); /* p3 from the beginning: it will be used */
    world->now_ms = T0 + 14 * MINUTE;
    settle_indexers(world);
    assert_on(world, "a-00000001", "p0 p1 p2 p3");
    plan = plan_of(world, NAME);
    assert_int_equal(plan->wake_ms, T0 + 15 * MINUTE);
    world->now_ms = plan->wake_ms;
    run(world, NAME);
    assert_on(world, "a-00000001", "p0 p2 p3");
    assert_evicting(world, "a-00000001", "p1");
    settle_indexers(world);
    world->now_ms = T0 + 20 * MINUTE; /* s2's plan ended after 10 */
    settle_indexers(world);
    assert_on(world, "a-00000001", "p0 p3");
}

/* While a plan does not parse, what it uses stays where it is. */
static void test_unknown_plan_keeps_items(void **state)
{
    static const int loads[] = {500, 400};
    g_autoptr(World) world = world_new();

    (void)state;
    put_loads(world, 2, loads);
    join_pool(world, "indexer", "a-00000001", "");
    settle_indexers(world);
    put(world, "decided/partitionplans/s0", "garbage");
    run(world, NAME);
    assert_on(world, "a-00000001", "p0 p1");
    put(world, "decided/assignments/indexer/a-00000001/p1", "garbage");
    join_pool(world, "indexer", "b-00000001", "");
    run(world, NAME);
    assert_on(world, "b-00000001", "");
}

/* The hazard: a watch prefix without its slash: what is about p1 is not about p10. */
static void test_p1_is_not_p10(void **state)
{
    g_autoptr(World) world = world_new();

    (void)state;
    put_settings(world, NAME, "\"cutover\":\"10m\"");
    put(world, "desired/partitions/p_10", "{\"spec\":{\"capacityBytesPerSecond\":1000}}");
    step(world, "admission");
    put_service(world, "s", "\"throughputBytesPerSecond\":10,\"partitions\":{\"min\":1}");
    join_pool(world, "indexer", "a-00000001", "");
    run(world, NAME);
    assert_on(world, "a-00000001", "p_10");
    answer_in_pool(world, "indexer/a-00000001/p_10", "live", "");
    /* An answer, an order, a retry and a removal of p_1. */
    answer_in_pool(world, "indexer/a-00000001/p_1", "failed", "");
    put(world, "decided/retries/indexer/p_1", "{\"attempt\":9,\"parked\":true}");
    put(world, "desired/partitions/p_1", "{\"spec\":{\"capacityBytesPerSecond\":1}}");
    step(world, "admission");
    del(world, "desired/partitions/p_1");
    step(world, "admission");
    run(world, NAME);
    assert_on(world, "a-00000001", "p_10");
    assert_null(lookf(world, "decided/status/partitions/p_10/" NAME));
    assert_non_null(lookf(world, "decided/partitionplans/s"));
    assert_null(lookf(world, "decided/retries/indexer/p_1")); /* of nothing that is used */
}

static void assert_explained(const World *world, const char *item, const char *state,
                             const char *part)
{
    LhPlanContext context = {.now_ms = world->now_ms, .max_groups = G_MAXUINT};
    const char *said = NULL;
    g_autoptr(GPtrArray) lines = NULL;
    g_autofree char *text = NULL;

    lines = lh_explain_pool(world->pools, &context, "indexer", item, &said);
    assert_non_null(lines);
    assert_string_equal(said, state);
    g_ptr_array_add(lines, NULL);
    text = g_strjoinv("\n", (GStrv)lines->pdata);
    if (strstr(text, part) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", text, part);
}

static void test_explained(void **state)
{
    static const int loads[] = {500, 400};
    g_autoptr(World) world = world_new();
    LhPlanContext context = {.now_ms = T0, .max_groups = G_MAXUINT};
    const char *said = NULL;

    (void)state;
    put_loads(world, 2, loads);
    put(world, "desired/partitions/idle", "{\"spec\":{\"capacityBytesPerSecond\":70}}");
    step(world, "admission");
    assert_null(lh_explain_pool(world->pools, &context, "indexer", "p", &said));
    assert_explained(world, "p0", "Waiting", "wait-node: no indexer takes another partition");
    assert_explained(world, "idle", "Waiting", "0 of its 70 bytes/s are used");
    join_pool(world, "indexer", "a-00000001", "");
    run(world, NAME);
    assert_explained(world, "p0", "Assigned", "assigned on node a-00000001");
    assert_explained(world, "p0", "Assigned", "the node has not answered this order yet");
    answer_in_pool(world, "indexer/a-00000001/p0", "live", "");
    assert_explained(world, "p0", "Live", "service s0 has it, with 500 bytes/s");
    leave_pool(world, "indexer", "a-00000001");
    assert_explained(world, "p0", "Assigned", "registration is gone");
    put(world, "decided/retries/indexer/p1", "{\"attempt\":5,\"parked\":true}");
    del(world, "decided/assignments/indexer/a-00000001/p1");
    assert_explained(world, "p1", "Parked", "leasehold retry indexer/p1");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_busiest_first_evenly),
        cmocka_unit_test(test_limits_of_indexers),
        cmocka_unit_test(test_a_new_indexer_takes_over_one_by_one),
        cmocka_unit_test(test_lost_indexer),
        cmocka_unit_test(test_drained_indexer),
        cmocka_unit_test(test_failures_and_parking),
        cmocka_unit_test(test_what_is_an_item),
        cmocka_unit_test(test_unknown_plan_keeps_items),
        cmocka_unit_test(test_p1_is_not_p10),
        cmocka_unit_test(test_explained),
    };

    return cmocka_run_group_tests_name("indexers", tests, NULL, NULL);
}
