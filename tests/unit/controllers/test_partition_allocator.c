/*
 * partition-allocator, service by service: what a plan looks like after each kind of edit, when it is
 * enough and when it is not, and what does not parse. Indexers are in test_indexers.c.
 */
#include "tests/unit/controllers/pool_world.h"

#define NAME "partition-allocator"

static void put_partition(World *world, const char *name, gint64 capacity)
{
    g_autofree char *key = g_strconcat("desired/partitions/", name, NULL);

    putf(world, key,
         "{\"spec\":{\"capacityBytesPerSecond\":%" PRId64 ",\"topic\":\"t\",\"kafkaPartition\":1}}",
         capacity);
    step(world, "admission");
}

static void put_partitions(World *world, guint n, gint64 capacity)
{
    for (guint i = 1; i <= n; i++) {
        g_autofree char *name = g_strdup_printf("p%u", i);
        put_partition(world, name, capacity);
    }
}

static void remove_desired(World *world, const char *key)
{
    del(world, key);
    step(world, "admission");
}

/* "0-15:p1,p2 15-:p3" in minutes after T0. */
static char *plan_text_of(const World *world, const char *service)
{
    const LhPartitionPlan *plan = lookf(world, "decided/partitionplans/%s", service);
    GString *text = g_string_new(NULL);

    for (guint i = 0; plan != NULL && lh_object_known(&plan->o) && i < plan->history->n; i++) {
        const LhPartitionInterval *at = lh_array_at(plan->history, i);
        g_autofree char *names = g_strjoinv(",", (GStrv)at->partitions);
        g_string_append_printf(text, "%s%d-", i == 0 ? "" : " ", (int)((at->start - T0) / MINUTE));
        if (at->end >= 0)
            g_string_append_printf(text, "%d", (int)((at->end - T0) / MINUTE));
        g_string_append_printf(text, ":%s", names);
    }
    return g_string_free(text, FALSE);
}

static void assert_plan(const World *world, const char *service, const char *expected)
{
    g_autofree char *text = plan_text_of(world, service);

    assert_string_equal(text, expected);
}

static void assert_allocated(const World *world, const char *service, int status, const char *part)
{
    g_autofree char *name = g_strdup_printf("services/%s/" NAME, service);
    const LhCondition *condition = condition_of(world, name, "Allocated");

    if (condition == NULL)
        fail_msg("%s has no condition Allocated", service);
    assert_int_equal(condition->status, status);
    if (part != NULL && strstr(condition->message, part) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", condition->message, part);
}

static void wait_minutes(World *world, gint64 minutes)
{
    world->now_ms += minutes * MINUTE;
}

static void test_first_plan_begins_at_once(void **state)
{
    g_autoptr(World) world = world_new();

    (void)state;
    put_partitions(world, 4, 5000);
    put_service(world, "logs", "\"throughputBytesPerSecond\":6000");
    run(world, NAME);
    assert_plan(world, "logs", "0-:p1,p2");
    assert_allocated(world, "logs", LH_CONDITION_TRUE, "2 partitions from 2023-11-14T22:13:20");
    assert_nothing_to_do(world, NAME);
}

/* The hazard: an active-partition switch that overlaps or leaves a gap. */
static void test_a_change_begins_after_the_cutover(void **state)
{
    g_autoptr(World) world = world_new();

    (void)state;
    put_partitions(world, 4, 5000);
    put_service(world, "logs", "\"throughputBytesPerSecond\":6000");
    run(world, NAME);
    wait_minutes(world, 60);
    put_service(world, "logs", "\"throughputBytesPerSecond\":15000");
    run(world, NAME);
    assert_plan(world, "logs", "0-75:p1,p2 75-:p1,p2,p3");
    wait_minutes(world, 5); /* 75 has not begun: replaced, not stacked */
    put_service(world, "logs", "\"throughputBytesPerSecond\":16000");
    run(world, NAME);
    assert_plan(world, "logs", "0-80:p1,p2 80-:p1,p2,p3,p4");
    put_service(world, "logs", "\"throughputBytesPerSecond\":7000");
    run(world, NAME);
    assert_plan(world, "logs", "0-:p1,p2");
    put_service(world, "logs", "\"throughputBytesPerSecond\":15000");
    run(world, NAME);
    wait_minutes(world, 15);
    put_service(world, "logs", "\"throughputBytesPerSecond\":1");
    run(world, NAME);
    assert_plan(world, "logs", "0-80:p1,p2 80-95:p1,p2,p3 95-:p1,p2");
    put_settings(world, NAME, "\"cutover\":\"1m\"");
    put_service(world, "logs", "\"throughputBytesPerSecond\":20000");
    run(world, NAME);
    assert_plan(world, "logs", "0-80:p1,p2 80-81:p1,p2,p3 81-:p1,p2,p3,p4");
}

static void test_not_enough(void **state)
{
    g_autoptr(World) world = world_new();

    (void)state;
    put_partitions(world, 3, 5000);
    put_service(world, "logs", "\"throughputBytesPerSecond\":16000");
    run(world, NAME);
    assert_plan(world, "logs", "");
    assert_allocated(world, "logs", LH_CONDITION_FALSE,
                     "needed 4 partitions with enough capacity, found 3");
    assert_nothing_to_do(world, NAME);
    put_partition(world, "p4", 5000);
    run(world, NAME);
    assert_plan(world, "logs", "0-:p1,p2,p3,p4");
    assert_allocated(world, "logs", LH_CONDITION_TRUE, NULL);
    put_service(world, "more", "\"throughputBytesPerSecond\":5000");
    run(world, NAME);
    assert_allocated(world, "more", LH_CONDITION_FALSE,
                     "needed 2 partitions with enough capacity, found 0");
    /* One that has some keeps them. */
    put_service(world, "logs", "\"throughputBytesPerSecond\":26000");
    run(world, NAME);
    assert_plan(world, "logs", "0-:p1,p2,p3,p4");
    assert_allocated(world, "logs", LH_CONDITION_FALSE,
                     "found 4 (4334 bytes/s free in each); keeps the 4");
}

static void test_nobody_asks_for_nothing(void **state)
{
    g_autoptr(World) world = world_new();

    (void)state;
    put_partitions(world, 3, 5000);
    put_service(world, "logs", "%s", "");
    assert_nothing_to_do(world, NAME);
    put_service(world, "logs", "\"throughputBytesPerSecond\":15000");
    run(world, NAME);
    assert_plan(world, "logs", "0-:p1,p2,p3");
    /* A throughput that was forgotten takes no partitions away but those beyond the minimum. */
    put_service(world, "logs", "\"partitions\":{\"min\":1}");
    run(world, NAME);
    assert_plan(world, "logs", "0-15:p1,p2,p3 15-:p1");
}

/* The others are not moved for the sake of one. */
static void test_others_stay(void **state)
{
    g_autoptr(World) world = world_new();

    (void)state;
    put_partitions(world, 6, 5000);
    put_service(world, "a", "\"throughputBytesPerSecond\":4000");
    put_service(world, "b", "\"throughputBytesPerSecond\":4000");
    run(world, NAME);
    assert_plan(world, "a", "0-:p1,p2");
    assert_plan(world, "b", "0-:p1,p2");
    put_service(world, "a", "\"throughputBytesPerSecond\":9000");
    run(world, NAME);
    /* p1 and p2 cannot carry 4500 of it beside b: it goes, b stays. */
    assert_plan(world, "b", "0-:p1,p2");
    assert_plan(world, "a", "0-15:p1,p2 15-:p3,p4");
    wait_minutes(world, 60);
    remove_desired(world, "desired/services/b");
    run(world, NAME);
    wait_minutes(world, 60);
    run(world, NAME);
    assert_plan(world, "a", "0-15:p1,p2 15-:p3,p4");
}

/* What it has is enough, though it would not be chosen now: no reason to move. */
static void test_enough_is_enough(void **state)
{
    g_autoptr(World) world = world_new();

    (void)state;
    put_partitions(world, 3, 5000);
    put_service(world, "b", "\"throughputBytesPerSecond\":6000,\"partitions\":{\"min\":3}");
    run(world, NAME);
    put_service(world, "a", "\"throughputBytesPerSecond\":9000");
    run(world, NAME);
    assert_plan(world, "a", "0-:p1,p2,p3");
    remove_desired(world, "desired/services/b");
    run(world, NAME);
    wait_minutes(world, 60);
    run(world, NAME);
    assert_plan(world, "a", "0-:p1,p2,p3");
    put_service(world, "a", "\"throughputBytesPerSecond\":9000,\"paused\":true");
    run(world, NAME);
    assert_plan(world, "a", "0-75:p1,p2,p3 75-:p1,p2"); /* it was edited: decided anew */
}

/* What a service leaves is used until it has left. */
static void test_what_leaves_is_not_free(void **state)
{
    g_autoptr(World) world = world_new();
    g_autoptr(LhPlan) plan = NULL;

    (void)state;
    put_partitions(world, 2, 5000);
    put_service(world, "a", "\"throughputBytesPerSecond\":10000");
    run(world, NAME);
    remove_desired(world, "desired/services/a");
    put_service(world, "b", "\"throughputBytesPerSecond\":5000");
    run(world, NAME);
    assert_plan(world, "a", "0-15:p1,p2 15-:");
    assert_plan(world, "b", "");
    assert_allocated(world, "b", LH_CONDITION_FALSE, "found 0");
    plan = plan_of(world, NAME);
    assert_int_equal(plan->wake_ms, T0 + 15 * MINUTE);
    wait_minutes(world, 15);
    run(world, NAME);
    assert_plan(world, "b", "15-:p1,p2");
}

/* Not in one plan either: its groups may be committed in any subset. */
static void test_what_is_given_up_is_not_given_away_at_once(void **state)
{
    g_autoptr(World) world = world_new();
    g_autoptr(LhPlan) plan = NULL;
    gboolean given = FALSE;

    (void)state;
    put_partitions(world, 2, 5000);
    put_service(world, "a", "\"throughputBytesPerSecond\":3000,\"partitions\":{\"min\":1}");
    run(world, NAME);
    wait_minutes(world, 60);
    put_service(world, "a", "\"throughputBytesPerSecond\":10000,\"partitions\":{\"min\":1}");
    run(world, NAME);
    assert_plan(world, "a", "0-75:p1 75-:p1,p2");
    /* In one plan a gives p2 up, and b looks for room. */
    put_service(world, "a", "\"throughputBytesPerSecond\":3000,\"partitions\":{\"min\":1}");
    put_service(world, "b", "\"throughputBytesPerSecond\":5000,\"partitions\":{\"min\":1}");
    plan = plan_of(world, NAME);
    assert_non_null(find_op(plan, "decided/partitionplans/a"));
    assert_null(find_op(plan, "decided/partitionplans/b"));
    run(world, NAME);
    given = lookf(world, "decided/partitionplans/b") != NULL;
    assert_true(given);
    assert_plan(world, "b", "60-:p2");
}

static void test_partition_that_is_removed(void **state)
{
    g_autoptr(World) world = world_new();

    (void)state;
    put_partitions(world, 3, 5000);
    put_service(world, "logs", "\"throughputBytesPerSecond\":6000");
    run(world, NAME);
    wait_minutes(world, 60);
    remove_desired(world, "desired/partitions/p1");
    run(world, NAME);
    assert_plan(world, "logs", "0-75:p1,p2 75-:p2,p3");
    assert_non_null(condition_of(world, "partitions/p1/" NAME, "InUse"));
    wait_minutes(world, 31); /* gone, and drained */
    run(world, NAME);
    assert_null(lookf(world, "decided/status/partitions/p1/" NAME));
    remove_desired(world, "desired/partitions/p2");
    run(world, NAME);
    assert_plan(world, "logs", "0-75:p1,p2 75-:p2,p3"); /* nowhere to go */
    assert_allocated(world, "logs", LH_CONDITION_FALSE, "needed 2 partitions");
}

static void test_partition_that_shrinks(void **state)
{
    g_autoptr(World) world = world_new();

    (void)state;
    put_partitions(world, 4, 5000);
    put_service(world, "a", "\"throughputBytesPerSecond\":4000");
    put_service(world, "b", "\"throughputBytesPerSecond\":4000");
    run(world, NAME);
    wait_minutes(world, 60);
    put_partition(world, "p1", 3000);
    run(world, NAME);
    /* One of the two is enough. */
    assert_plan(world, "a", "0-75:p1,p2 75-:p2,p3");
    assert_plan(world, "b", "0-:p1,p2");
}

static void test_dedicated_and_back(void **state)
{
    g_autoptr(World) world = world_new();

    (void)state;
    put_partitions(world, 4, 5000);
    put_service(world, "a", "\"throughputBytesPerSecond\":4000");
    put_service(world, "b", "\"throughputBytesPerSecond\":4000");
    run(world, NAME);
    put_service(world, "a",
                "\"throughputBytesPerSecond\":6000,\"partitions\":{\"dedicated\":true}");
    run(world, NAME);
    assert_plan(world, "a", "0-15:p1,p2 15-:p3,p4");
    assert_plan(world, "b", "0-:p1,p2");
    wait_minutes(world, 30);
    put_service(world, "b", "\"throughputBytesPerSecond\":15000");
    run(world, NAME);
    assert_allocated(world, "b", LH_CONDITION_FALSE,
                     "needed 3 partitions with enough capacity, found 2");
    put_service(world, "a",
                "\"throughputBytesPerSecond\":11000,\"partitions\":{\"dedicated\":true}");
    run(world, NAME);
    assert_allocated(world, "a", LH_CONDITION_FALSE,
                     "needed 3 partitions with enough capacity, found 2 (for itself, 11000 bytes/s "
                     "together); keeps the 2");
    put_service(world, "a", "\"throughputBytesPerSecond\":4000");
    run(world, NAME);
    assert_plan(world, "a", "0-15:p1,p2 15-:p3,p4");
    assert_plan(world, "b", "0-:p1,p2");
    assert_allocated(world, "a", LH_CONDITION_TRUE, NULL);
    put_service(world, "b", "\"throughputBytesPerSecond\":16000");
    put_partition(world, "p3", 8000);
    put_partition(world, "p4", 8000);
    run(world, NAME);
    assert_plan(world, "b", "0-45:p1,p2 45-:p1,p2,p3,p4");
}

static void test_deleted_service(void **state)
{
    g_autoptr(World) world = world_new();

    (void)state;
    put_partitions(world, 2, 5000);
    put_service(world, "logs", "\"throughputBytesPerSecond\":6000");
    run(world, NAME);
    put_snapshot(world, "s1", "logs", T0, 10);
    put(world, "published/snapshots/s2", "garbage");
    remove_desired(world, "desired/services/logs");
    run(world, NAME);
    assert_plan(world, "logs", "0-15:p1,p2 15-:");
    assert_null(lookf(world, "decided/status/services/logs/" NAME));
    wait_minutes(world, 30 * 24 * 60);
    run(world, NAME);
    assert_plan(world, "logs", "0-15:p1,p2 15-:");
    del(world, "published/snapshots/s1");
    assert_nothing_to_do(world, NAME); /* s2 may be one of its */
    del(world, "published/snapshots/s2");
    run(world, NAME);
    assert_null(lookf(world, "decided/partitionplans/logs"));
}

static void test_deleted_and_back(void **state)
{
    g_autoptr(World) world = world_new();

    (void)state;
    put_partitions(world, 4, 5000);
    put_service(world, "logs", "\"throughputBytesPerSecond\":6000");
    run(world, NAME);
    remove_desired(world, "desired/services/logs");
    run(world, NAME);
    wait_minutes(world, 5);
    put_service(world, "logs", "\"throughputBytesPerSecond\":6000");
    run(world, NAME);
    assert_plan(world, "logs", "0-:p1,p2");
    remove_desired(world, "desired/services/logs");
    run(world, NAME);
    wait_minutes(world, 20);
    put_service(world, "logs", "\"throughputBytesPerSecond\":6000");
    run(world, NAME);
    assert_plan(world, "logs", "0-20:p1,p2 20-40: 40-:p1,p2");
}

/* What is too old goes with the next change. */
static void test_history_is_bounded(void **state)
{
    g_autoptr(World) world = world_new();

    (void)state;
    put_partitions(world, 4, 5000);
    for (int i = 0; i < 7; i++) {
        put_service(world, "logs",
                    "\"retention\":\"2d\",\"throughputBytesPerSecond\":%d,\"cache\":{\"window\":"
                    "\"1h\"}",
                    i % 2 == 0 ? 6000 : 16000);
        run(world, NAME);
        wait_minutes(world, 24 * 60);
    }
    /* 2 days, the cleaner's 6 hours, and a day for what was open at the end. */
    assert_plan(world, "logs",
                "2895-4335:p1,p2 4335-5775:p1,p2,p3,p4 5775-7215:p1,p2 7215-8655:p1,p2,p3,p4 "
                "8655-:p1,p2");
}

static void test_unknown_is_not_absent(void **state)
{
    g_autoptr(World) world = world_new();
    g_autofree char *plan = NULL;
    g_autofree char *partition = NULL;

    (void)state;
    put_partitions(world, 4, 5000);
    put_service(world, "a",
                "\"throughputBytesPerSecond\":6000,\"partitions\":{\"dedicated\":true}");
    run(world, NAME);
    put_service(world, "b", "\"throughputBytesPerSecond\":2000");
    run(world, NAME);
    assert_plan(world, "b", "0-:p3,p4");
    plan = g_strdup(g_hash_table_lookup(world->values, "decided/partitionplans/a"));
    put(world, "decided/partitionplans/a", "garbage");
    put_service(world, "b", "\"throughputBytesPerSecond\":16000");
    run(world, NAME);
    assert_allocated(world, "a", LH_CONDITION_UNKNOWN, "mend or remove it");
    assert_allocated(world, "b", LH_CONDITION_UNKNOWN, "a PartitionPlan does not parse");
    assert_plan(world, "b", "0-:p3,p4");
    put(world, "decided/partitionplans/a", plan);
    run(world, NAME);
    assert_allocated(world, "a", LH_CONDITION_TRUE, NULL);
    assert_allocated(world, "b", LH_CONDITION_FALSE, "found 2");

    partition = g_strdup(g_hash_table_lookup(world->values, "decided/accepted/partitions/p3"));
    put(world, "decided/accepted/partitions/p3", "garbage");
    put_service(world, "b", "\"throughputBytesPerSecond\":3000");
    run(world, NAME);
    assert_allocated(world, "b", LH_CONDITION_UNKNOWN, "partitions/p3 does not parse");
    assert_plan(world, "b", "0-:p3,p4");
    put(world, "decided/accepted/partitions/p3", partition);
    put(world, "decided/accepted/services/b", "garbage");
    put_service(world, "c", "\"throughputBytesPerSecond\":100,\"partitions\":{\"min\":1}");
    run(world, NAME);
    assert_allocated(world, "b", LH_CONDITION_UNKNOWN, "services/b does not parse");
    assert_plan(world, "b", "0-:p3,p4");
    /* Nobody knows how much b uses of what it has. */
    assert_allocated(world, "c", LH_CONDITION_FALSE, "found 0");
}

/* Of two on a partition that is used too much, the one whose needs grew goes, whatever its name. */
static void test_who_grew_goes(void **state)
{
    g_autoptr(World) world = world_new();

    (void)state;
    put_partitions(world, 4, 5000);
    put_service(world, "a", "\"throughputBytesPerSecond\":4000");
    put_service(world, "b", "\"throughputBytesPerSecond\":4000");
    run(world, NAME);
    put_service(world, "b", "\"throughputBytesPerSecond\":9000");
    run(world, NAME);
    assert_plan(world, "a", "0-:p1,p2");
    assert_plan(world, "b", "0-15:p1,p2 15-:p3,p4");
    wait_minutes(world, 60);
    /* If it has nowhere to go, the other makes room for what it can. */
    put_service(world, "b", "\"throughputBytesPerSecond\":30000");
    run(world, NAME);
    assert_allocated(world, "b", LH_CONDITION_FALSE, "needed 6 partitions");
    assert_plan(world, "a", "0-:p1,p2");
}

/* What was read when it was decided is compared. */
static void test_edits_meanwhile_are_compared(void **state)
{
    static const char *const edits[] = {"desired/partitions/p2", "desired/services/logs"};
    static const char *const values[] = {
        "{\"spec\":{\"capacityBytesPerSecond\":1}}",
        "{\"spec\":{\"owner\":\"me\",\"throughputBytesPerSecond\":1}}",
    };

    (void)state;
    for (guint i = 0; i < 2; i++) {
        g_autoptr(World) world = world_new();
        g_autoptr(LhPlan) plan = NULL;
        put_partitions(world, 2, 5000);
        put_service(world, "logs", "\"throughputBytesPerSecond\":6000");
        plan = plan_of(world, NAME);
        put(world, edits[i], values[i]);
        step(world, "admission");
        assert_false(apply_group(world, plan, 0));
    }
}

static void test_too_many_to_name(void **state)
{
    g_autoptr(World) world = world_new();
    g_autofree char *tail = g_strnfill(240, 'x');

    (void)state;
    for (int i = 0; i < 130; i++) {
        g_autofree char *name = g_strdup_printf("p%03d%s", i, tail);
        put_partition(world, name, 10);
    }
    put_service(world, "logs", "\"throughputBytesPerSecond\":1200");
    run(world, NAME);
    assert_allocated(world, "logs", LH_CONDITION_FALSE, "needs 120 partitions: more than");
    put_service(world, "logs", "\"throughputBytesPerSecond\":1050");
    run(world, NAME);
    assert_allocated(world, "logs", LH_CONDITION_TRUE, "105 partitions");
}

static void test_a_budget_leaves_the_rest(void **state)
{
    g_autoptr(World) world = world_new();

    (void)state;
    put_partitions(world, 4, 5000);
    for (int i = 0; i < 6; i++) {
        g_autofree char *name = g_strdup_printf("s%d", i);
        put_service(world, name, "\"throughputBytesPerSecond\":1000");
    }
    world->max_groups = 2;
    run(world, NAME);
    for (int i = 0; i < 6; i++) {
        g_autofree char *name = g_strdup_printf("s%d", i);
        assert_plan(world, name, "0-:p1,p2");
        assert_allocated(world, name, LH_CONDITION_TRUE, NULL);
    }
    assert_int_equal(world->conflicts, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_first_plan_begins_at_once),
        cmocka_unit_test(test_a_change_begins_after_the_cutover),
        cmocka_unit_test(test_not_enough),
        cmocka_unit_test(test_nobody_asks_for_nothing),
        cmocka_unit_test(test_others_stay),
        cmocka_unit_test(test_enough_is_enough),
        cmocka_unit_test(test_what_leaves_is_not_free),
        cmocka_unit_test(test_what_is_given_up_is_not_given_away_at_once),
        cmocka_unit_test(test_partition_that_is_removed),
        cmocka_unit_test(test_partition_that_shrinks),
        cmocka_unit_test(test_dedicated_and_back),
        cmocka_unit_test(test_deleted_service),
        cmocka_unit_test(test_deleted_and_back),
        cmocka_unit_test(test_history_is_bounded),
        cmocka_unit_test(test_unknown_is_not_absent),
        cmocka_unit_test(test_who_grew_goes),
        cmocka_unit_test(test_edits_meanwhile_are_compared),
        cmocka_unit_test(test_too_many_to_name),
        cmocka_unit_test(test_a_budget_leaves_the_rest),
    };

    return cmocka_run_group_tests_name("partition_allocator", tests, NULL, NULL);
}
