/*
 * cluster-monitor: what is stuck is said once and taken back when it is over; only a load that lasts is
 * ended, and counts as failed; services' counts; an uneven fleet.
 */
#include "tests/unit/controllers/harness.h"

#define STUCK "replicas/s0.default.0/cluster-monitor"

/* Nodes a and b, service api with snapshot s0, whose replica is assigned and not answered. */
static World *assigned_one(void)
{
    World *world = world_new();

    put_service(world, "api", "%s", "");
    put_node(world, "a-00000001", 1000, 0, "");
    put_node(world, "b-00000001", 1000, 0, "");
    put_snapshot(world, "s0", "api", T0, 10);
    run_all(world);
    return world;
}

static char *place_of(const World *world)
{
    g_autofree char *node = node_of(world, "s0.default.0");

    assert_non_null(node);
    return g_strconcat(node, "/s0.default.0", NULL);
}

static const LhAssignment *order_of(const World *world, const char *place)
{
    return lookf(world, "decided/assignments/cache/%s", place);
}

static void assert_stuck(const World *world, const char *reason)
{
    const LhCondition *condition = condition_of(world, STUCK, "Stuck");

    if (reason == NULL) {
        assert_null(lookf(world, "decided/status/" STUCK));
        return;
    }
    assert_non_null(condition);
    assert_int_equal(condition->status, LH_CONDITION_TRUE);
    assert_string_equal(condition->reason, reason);
}

/* Nothing is due before @ms, and at @ms @reason is said, with its event. */
static void assert_said_at(World *world, gint64 ms, const char *reason)
{
    g_autoptr(LhPlan) before = NULL, then = NULL;

    world->now_ms = ms - 1;
    before = plan_of(world, "cluster-monitor");
    assert_int_equal(lh_plan_groups(before), 0);
    assert_int_equal(before->wake_ms, ms);
    world->now_ms = ms;
    then = plan_of(world, "cluster-monitor");
    assert_true(has_event(then, reason));
    run(world, "cluster-monitor");
    assert_stuck(world, reason);
}

static void no_answer_is_said(void **state)
{
    g_autoptr(World) world = assigned_one();
    g_autofree char *place = place_of(world);

    (void)state;
    assert_said_at(world, T0 + MINUTE, "StuckAssigned");
    assert_int_equal(order_of(world, place)->action, LH_ACTION_LOAD); /* nobody takes it away */
    assert_nothing_to_do(world, "cluster-monitor");
    answer(world, place, "loading");
    run(world, "cluster-monitor");
    assert_stuck(world, NULL);
}

/* LOADING has no timeout: it has. */
static void loading_has_a_limit(void **state)
{
    g_autoptr(World) world = assigned_one();
    g_autofree char *place = place_of(world), *first = g_strndup(place, 1), *second = NULL;

    (void)state;
    answer(world, place, "loading");
    assert_said_at(world, T0 + 30 * MINUTE, "StuckLoading");
    assert_int_equal(order_of(world, place)->action, LH_ACTION_EVICT);
    assert_string_equal(order_of(world, place)->controller, "cluster-monitor");
    assert_string_equal(order_of(world, place)->snapshot, "s0");
    run_all(world);
    assert_non_null(order_of(world, place)); /* not before it is acknowledged */
    answer(world, place, "evicted");
    run_all(world);
    assert_null(order_of(world, place));
    assert_stuck(world, NULL);
    const LhRetry *retry = look(world, "decided/retries/cache/s0.default.0");
    assert_int_equal(retry->attempt, 1);
    assert_string_equal(retry->node, first);
    assert_int_equal(retry->not_before, world->now_ms + 10 * SECOND);
    world->now_ms = retry->not_before;
    run_all(world);
    second = place_of(world);
    assert_int_not_equal(second[0], first[0]); /* elsewhere */
}

static void nothing_is_taken_after_a_restoration(void **state)
{
    g_autoptr(World) world = assigned_one();
    g_autofree char *place = place_of(world);

    (void)state;
    answer(world, place, "loading");
    world->regressed = TRUE;
    assert_said_at(world, T0 + 30 * MINUTE, "StuckLoading");
    assert_int_equal(order_of(world, place)->action, LH_ACTION_LOAD);
}

static void what_is_live_meanwhile_is_not_taken(void **state)
{
    g_autoptr(World) world = assigned_one();
    g_autofree char *place = place_of(world);
    g_autoptr(LhPlan) plan = NULL;

    (void)state;
    answer(world, place, "loading");
    world->now_ms += 31 * MINUTE;
    plan = plan_of(world, "cluster-monitor");
    answer(world, place, "live"); /* before the plan is carried out */
    for (guint i = 0; i < lh_plan_groups(plan); i++)
        apply_group(world, plan, i);
    assert_int_equal(order_of(world, place)->action, LH_ACTION_LOAD);
    assert_int_equal(world->conflicts, 1);
}

static void an_eviction_that_lasts_is_said(void **state)
{
    g_autoptr(World) world = assigned_one();
    g_autofree char *place = place_of(world);

    (void)state;
    answer(world, place, "live");
    put_settings(world, "cache-evictor", "\"brakePercent\":100");
    world->now_ms = T0 + 25 * HOUR;
    run(world, "cache-evictor");
    assert_int_equal(order_of(world, place)->action, LH_ACTION_EVICT);
    run_all(world);
    answer(world, place, "evicting");
    run_all(world);
    assert_said_at(world, T0 + 25 * HOUR + 10 * MINUTE, "StuckEvicting");
    answer(world, place, "evicted");
    run_all(world);
    assert_null(order_of(world, place));
    assert_stuck(world, NULL);
}

static void a_zombie_is_said(void **state)
{
    g_autoptr(World) world = assigned_one();
    g_autofree char *place = place_of(world);

    (void)state;
    answer(world, place, "live");
    run_all(world);
    g_autofree char *key = g_strconcat("decided/assignments/cache/", place, NULL);
    del(world, key); /* by hand; and its node does not notice */
    put(world, "desired/nodepolicies/cache/a", "{\"spec\":{\"cordon\":true}}");
    put(world, "desired/nodepolicies/cache/b", "{\"spec\":{\"cordon\":true}}");
    run_all(world);
    assert_said_at(world, T0 + 10 * MINUTE, "Zombie");
    g_autofree char *item = g_strconcat("actual/items/cache/", place, NULL);
    del(world, item);
    run(world, "cluster-monitor");
    assert_stuck(world, NULL);
}

static void limits_are_settings(void **state)
{
    g_autoptr(World) world = assigned_one();
    g_autofree char *place = place_of(world);

    (void)state;
    put_settings(world, "cluster-monitor", "\"stuckAssigned\":\"7s\",\"stuckLoading\":\"9s\"");
    run_all(world);
    assert_said_at(world, T0 + 7 * SECOND, "StuckAssigned");
    put_settings(world, "cluster-monitor", "\"stuckAssigned\":\"1h\",\"stuckLoading\":\"9s\"");
    run_all(world);
    assert_stuck(world, NULL);
    answer(world, place, "loading");
    assert_said_at(world, T0 + 9 * SECOND, "StuckLoading");
}

static void lost_nodes_are_not_stuck(void **state)
{
    g_autoptr(World) world = assigned_one();
    g_autofree char *place = place_of(world), *id = g_strndup(place, strcspn(place, "/"));

    (void)state;
    answer(world, place, "loading");
    lose_node(world, id);
    world->now_ms += HOUR;
    run(world, "cluster-monitor");
    assert_stuck(world, NULL);
}

static void what_does_not_parse_is_left_alone(void **state)
{
    g_autoptr(World) world = assigned_one();

    (void)state;
    put(world, "decided/status/" STUCK, "garbage");
    put(world, "decided/status/services/api/cluster-monitor", "garbage");
    world->now_ms += HOUR;
    run(world, "cluster-monitor");
    const LhObject *stuck = look(world, "decided/status/" STUCK);
    const LhObject *counts = look(world, "decided/status/services/api/cluster-monitor");
    assert_false(lh_object_known(stuck));
    assert_false(lh_object_known(counts));
}

/* ---- counts ---- */

static void assert_counts(const World *world, const char *service, gint64 snapshots, gint64 desired,
                          gint64 live)
{
    const LhStatus *status = lookf(world, "decided/status/services/%s/cluster-monitor", service);
    g_autofree char *key = g_strconcat("desired/services/", service, NULL);

    assert_non_null(status);
    assert_int_equal(status->observed_revision, mod_rev(world, key));
    assert_int_equal(status->snapshots, snapshots);
    assert_int_equal(status->replicas_desired, desired);
    assert_int_equal(status->replicas_live, live);
}

static void services_have_counts(void **state)
{
    g_autoptr(World) world = assigned_one();
    g_autofree char *place = place_of(world);

    (void)state;
    assert_counts(world, "api", 1, 1, 0);
    answer(world, place, "loading");
    run_all(world);
    assert_counts(world, "api", 1, 1, 0);
    answer(world, place, "live");
    run_all(world);
    assert_counts(world, "api", 1, 1, 1);
    put_service(world, "api", "\"cache\":{\"replicas\":2}");
    put_snapshot(world, "s1", "api", T0, 10);
    settle(world);
    assert_counts(world, "api", 2, 4, 4);
    put_snapshot(world, "s1", "web", T0, 10); /* of another service now */
    put_service(world, "web", "%s", "");
    settle(world);
    const LhReplica *moved = look(world, "decided/replicas/s1.default.0");
    assert_non_null(moved);
    assert_counts(world, "api", 1, 2, 2);
    assert_counts(world, "web", 1, 1, 1);
    put_snapshot(world, "old", "api", T0 - 2 * DAY, 10);
    settle(world);
    assert_counts(world, "api", 2, 2, 2);
    del(world, "published/snapshots/old"); /* one that has no replicas */
    settle(world);
    assert_counts(world, "api", 1, 2, 2);
    put_settings(world, "cache-evictor", "\"brakePercent\":100");
    del(world, "published/snapshots/s0");
    settle(world);
    assert_counts(world, "api", 0, 0, 0);
    del(world, "desired/services/web");
    settle(world);
    assert_null(look(world, "decided/status/services/web/cluster-monitor"));
}

static void counts_are_written_once_a_second(void **state)
{
    g_autoptr(World) world = assigned_one();
    g_autoptr(LhPlan) plan = NULL;

    (void)state;
    put_snapshot(world, "s1", "api", T0, 10);
    plan = plan_of(world, "cluster-monitor");
    assert_int_equal(lh_plan_groups(plan), 1);
    assert_string_equal(lh_plan_group(plan, 0)->throttle,
                        "decided/status/services/api/cluster-monitor");
}

/* ---- balance ---- */

#define SETTINGS "settings/cache-assigner/cluster-monitor"

static void an_uneven_fleet_is_said(void **state)
{
    g_autoptr(World) world = world_new();

    (void)state;
    put_service(world, "api", "%s", "");
    put_node(world, "a-00000001", 1000, 0, "");
    for (int i = 0; i < 12; i++) {
        g_autofree char *name = g_strdup_printf("s%02d", i);
        put_snapshot(world, name, "api", T0 - i, 30);
        if (i == 8) {
            settle(world);
            put_node(world, "b-00000001", 1000, 0, "");
            run(world, "cluster-monitor");
            assert_null(condition_of(world, SETTINGS, "Balanced")); /* 9 items: too few to say */
            put(world, "desired/nodepolicies/cache/b", "{\"spec\":{\"cordon\":true}}");
            run_all(world);
        }
    }
    settle(world);
    assert_null(condition_of(world, SETTINGS, "Balanced")); /* cordoned: nothing may go there */
    del(world, "desired/nodepolicies/cache/b");
    g_autoptr(LhPlan) plan = NULL;
    run(world, "admission");
    plan = plan_of(world, "cluster-monitor");
    assert_true(has_event(plan, "Unbalanced"));
    run_all(world);
    const LhCondition *condition = condition_of(world, SETTINGS, "Balanced");
    assert_non_null(condition);
    assert_int_equal(condition->status, LH_CONDITION_FALSE);
    assert_string_equal(condition->message,
                        "set default: a-00000001 is much fuller than b-00000001");
    put_settings(world, "cache-assigner", "\"strategy\":\"pack\"");
    run_all(world);
    assert_null(condition_of(world, SETTINGS, "Balanced"));
}

/* ---- the exclusive pools ---- */

static void exclusive_pools_too(void **state)
{
    g_autoptr(World) world = world_new();
    const char *name = "recoverytasks/t1/cluster-monitor";

    (void)state;
    put(world, "published/recoverytasks/t1",
        "{\"partition\":\"p\",\"startOffset\":1,\"endOffset\":2,\"createdAt\":1}");
    put(world, "actual/nodes/recovery/r-00000001", "{\"name\":\"r\",\"state\":\"online\"}");
    putf(world, "decided/assignments/recovery/r-00000001/t1",
         "{\"action\":\"load\",\"since\":%" PRId64
         ",\"controller\":\"recovery-assigner\",\"epoch\":1,\"rule\":\"x\",\"reason\":\"x\","
         "\"partition\":\"p\",\"startOffset\":1,\"endOffset\":2}",
         T0);
    run(world, "cluster-monitor");
    world->now_ms = T0 + MINUTE;
    run(world, "cluster-monitor");
    const LhCondition *condition = condition_of(world, name, "Stuck");
    assert_non_null(condition);
    assert_string_equal(condition->reason, "StuckAssigned");
    putf(world, "actual/items/recovery/r-00000001/t1",
         "{\"state\":\"loading\",\"since\":%" PRId64 ",\"assignment\":%" PRId64 "}", T0,
         mod_rev(world, "decided/assignments/recovery/r-00000001/t1"));
    world->now_ms += HOUR;
    run(world, "cluster-monitor");
    assert_null(
        lookf(world, "decided/status/%s", name)); /* it works: recoveryTimeout is another's */
}

/* ---- tombstones ---- */

static void tombstones_go_after_30_days(void **state)
{
    g_autoptr(World) world = world_new();
    g_autofree char *orphan = g_strnfill(64, 'a'), *fresh = g_strnfill(64, 'b');

    (void)state;
    putf(world, "decided/deletions/s1",
         "{\"uri\":\"s3://bucket/s1/\",\"snapshotRevision\":3,\"decidedAt\":%" PRId64
         ",\"dataDeletedAt\":%" PRId64 "}",
         T0, T0 + HOUR);
    putf(world, "decided/deletions/s2",
         "{\"uri\":\"s3://bucket/s2/\",\"snapshotRevision\":3,\"decidedAt\":%" PRId64 "}", T0);
    put(world, "decided/deletions/s3", "garbage");
    g_autofree char *gone = g_strconcat("decided/orphans/", orphan, NULL);
    g_autofree char *there = g_strconcat("decided/orphans/", fresh, NULL);
    putf(world, gone,
         "{\"uri\":\"s3://bucket/o/\",\"objects\":0,\"bytes\":0,\"firstSeen\":1,\"secondSeen\":2,"
         "\"decidedAt\":%" PRId64 "}",
         T0);
    putf(world, there,
         "{\"uri\":\"s3://bucket/p/\",\"objects\":4,\"bytes\":9,\"firstSeen\":1,\"secondSeen\":2,"
         "\"decidedAt\":%" PRId64 "}",
         T0);
    assert_true(lh_object_known(look(world, gone)));
    world->now_ms = T0 + 30 * DAY - 1;
    g_autoptr(LhPlan) plan = plan_of(world, "cluster-monitor");
    assert_int_equal(lh_plan_groups(plan), 0);
    assert_int_equal(plan->wake_ms, T0 + 30 * DAY);
    world->now_ms = T0 + 30 * DAY;
    run(world, "cluster-monitor");
    assert_null(look(world, gone));
    assert_non_null(look(world, "decided/deletions/s1")); /* its data went an hour later */
    world->now_ms += HOUR;
    run(world, "cluster-monitor");
    assert_null(look(world, "decided/deletions/s1"));
    assert_non_null(look(world, "decided/deletions/s2")); /* its data is still there */
    assert_non_null(look(world, "decided/deletions/s3"));
    assert_non_null(look(world, there));
}

#define TEST(name_) cmocka_unit_test(name_)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(no_answer_is_said),
        TEST(loading_has_a_limit),
        TEST(nothing_is_taken_after_a_restoration),
        TEST(what_is_live_meanwhile_is_not_taken),
        TEST(an_eviction_that_lasts_is_said),
        TEST(a_zombie_is_said),
        TEST(limits_are_settings),
        TEST(lost_nodes_are_not_stuck),
        TEST(what_does_not_parse_is_left_alone),
        TEST(services_have_counts),
        TEST(counts_are_written_once_a_second),
        TEST(an_uneven_fleet_is_said),
        TEST(exclusive_pools_too),
        TEST(tombstones_go_after_30_days),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
