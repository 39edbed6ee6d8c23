/*
 * replica-creator: one replica for each wanted copy in each set, freshest first, never for what is live,
 * expired, invalid or being deleted; expiresAt follows the service; ServiceMissing comes and goes.
 */
#include "tests/unit/controllers/harness.h"

static const LhReplica *replica(const World *world, const char *name)
{
    return lookf(world, "decided/replicas/%s", name);
}

static guint replicas(const World *world)
{
    return count_below(world, "decided/replicas/");
}

static void sets_times_ordinals(void **state)
{
    g_autoptr(World) world = world_new();

    (void)state;
    put_service(world, "api",
                "\"cache\":{\"window\":\"2h\",\"replicas\":3,\"sets\":[\"blue\",\"green\"]}");
    put_snapshot(world, "s", "api", T0 - HOUR, 5);
    run(world, "replica-creator");
    assert_int_equal(replicas(world), 6);
    const LhReplica *one = replica(world, "s.green.2");
    assert_string_equal(one->snapshot, "s");
    assert_string_equal(one->service, "api");
    assert_string_equal(one->set, "green");
    assert_int_equal(one->ordinal, 2);
    assert_false(one->restored);
    assert_int_equal(one->created_at, T0);
    assert_int_equal(one->expires_at, T0 + HOUR);
    fail_over(world);
    assert_nothing_to_do(world, "replica-creator");
}

static void the_freshest_come_first(void **state)
{
    g_autoptr(World) world = world_new();
    const LhOp *last = NULL;

    (void)state;
    put_service(world, "api", "%s", "");
    put_service(world, "long", "\"cache\":{\"window\":\"30h\"}");
    for (int i = 0; i < 20; i++) {
        g_autofree char *name = g_strdup_printf("s%d", i);
        put_snapshot(world, name, i % 4 == 0 ? "long" : "api", T0 - i * 7 % 20 * HOUR, 5);
    }
    g_autoptr(LhPlan) plan = plan_of(world, "replica-creator");
    assert_int_equal(lh_plan_groups(plan), 20);
    for (guint i = 0; i < 20; i++) {
        const LhOp *op = lh_plan_op(plan, lh_plan_group(plan, i), 0);
        g_autoptr(LhObject) a = last == NULL ? NULL
                                             : lh_object_parse(last->kind, last->name, last->value,
                                                               strlen(last->value), 1, 1, 0);
        g_autoptr(LhObject) b = lh_object_parse(op->kind, op->name, op->value, strlen(op->value), 1,
                                                1, 0);
        if (a != NULL)
            assert_true(((LhReplica *)a)->expires_at >= ((LhReplica *)b)->expires_at);
        last = op;
    }
}

static void the_budget_is_kept(void **state)
{
    g_autoptr(World) world = world_new();

    (void)state;
    put_service(world, "api", "%s", "");
    for (int i = 0; i < 5; i++) {
        g_autofree char *name = g_strdup_printf("s%d", i);
        put_snapshot(world, name, "api", T0, 5);
    }
    world->max_groups = 2;
    g_autoptr(LhPlan) plan = plan_of(world, "replica-creator");
    assert_int_equal(lh_plan_groups(plan), 2);
    assert_true(plan->more);
    run(world, "replica-creator");
    assert_int_equal(replicas(world), 5);
}

static void live_ones_never(void **state)
{
    g_autoptr(World) world = world_new();

    (void)state;
    put_service(world, "api", "%s", "");
    putf(world, "published/snapshots/s",
         "{\"service\":\"api\",\"startTime\":1,\"uri\":\"s3://b/s/\",\"live\":true}");
    run(world, "replica-creator");
    assert_int_equal(replicas(world), 0);
    put_snapshot(world, "s", "api", T0, 5);
    run(world, "replica-creator");
    assert_int_equal(replicas(world), 1);
}

static void expired_ones_are_never_created(void **state)
{
    g_autoptr(World) world = world_new();

    (void)state;
    put_service(world, "api", "\"cache\":{\"window\":\"1h\"}");
    put_snapshot(world, "old", "api", T0 - HOUR, 5);
    put_snapshot(world, "nearly", "api", T0 - HOUR + 10 * SECOND, 5);
    put_snapshot(world, "fresh", "api", T0 - HOUR + 11 * SECOND, 5);
    run(world, "replica-creator");
    assert_int_equal(replicas(world), 1);
    assert_non_null(replica(world, "fresh.default.0"));
    world->now_ms += DAY;
    assert_nothing_to_do(world, "replica-creator");
}

static void expiry_follows_the_service(void **state)
{
    g_autoptr(World) world = world_new();

    (void)state;
    put_service(world, "api", "\"cache\":{\"window\":\"2h\",\"replicas\":2}");
    put_snapshot(world, "s", "api", T0, 5);
    put_snapshot(world, "t", "api", T0 - HOUR, 5);
    run(world, "replica-creator");
    putf(
        world, "decided/replicas/s.default.r0",
        "{\"snapshot\":\"s\",\"service\":\"api\",\"set\":\"default\",\"restored\":true,\"expiresAt\":%" PRId64
        "}",
        T0 + DAY);
    world->now_ms += MINUTE;
    put_service(world, "api", "\"cache\":{\"window\":\"5h\",\"replicas\":1}");
    run(world, "replica-creator");
    assert_int_equal(replica(world, "s.default.0")->expires_at, T0 + 5 * HOUR);
    assert_int_equal(replica(world, "s.default.0")->created_at, T0);
    assert_int_equal(replica(world, "t.default.0")->expires_at, T0 + 4 * HOUR);
    assert_int_equal(replica(world, "s.default.1")->expires_at,
                     T0 + 2 * HOUR); /* surplus: left alone */
    assert_int_equal(replica(world, "s.default.r0")->expires_at, T0 + DAY);
    assert_int_equal(replicas(world), 5); /* never reduced */
    put_service(world, "api", "\"cache\":{\"window\":\"1m\",\"replicas\":1}");
    run(world, "replica-creator");
    assert_int_equal(replica(world, "t.default.0")->expires_at,
                     T0 - HOUR + MINUTE); /* past, all the same */
}

static void paused_services_get_nothing(void **state)
{
    g_autoptr(World) world = world_new();

    (void)state;
    put_service(world, "api", "\"paused\":true");
    put_snapshot(world, "s", "api", T0, 5);
    run(world, "replica-creator");
    assert_int_equal(replicas(world), 0);
    put_service(world, "api", "%s", "");
    run(world, "replica-creator");
    assert_int_equal(replicas(world), 1);
}

static void service_missing_comes_and_goes(void **state)
{
    g_autoptr(World) world = world_new();
    const LhCondition *condition;

    (void)state;
    put_snapshot(world, "s", "api", T0, 5);
    run(world, "replica-creator");
    condition = condition_of(world, "snapshots/s/replica-creator", "ServiceMissing");
    assert_int_equal(condition->status, LH_CONDITION_TRUE);
    assert_non_null(strstr(condition->message, "api"));
    /* Of another service now, which is missing too. */
    put_snapshot(world, "s", "web", T0, 5);
    run(world, "replica-creator");
    condition = condition_of(world, "snapshots/s/replica-creator", "ServiceMissing");
    assert_non_null(strstr(condition->message, "web"));
    put(world, "desired/services/web", "nonsense"); /* somebody asks for it */
    run(world, "replica-creator");
    assert_null(look(world, "decided/status/snapshots/s/replica-creator"));
    put_service(world, "web", "%s", "");
    run_all(world);
    assert_int_equal(replicas(world), 1);
    del(world, "desired/services/web");
    run(world, "replica-creator");
    assert_null(look(world, "decided/status/snapshots/s/replica-creator")); /* still in force */
    run(world, "admission");
    run(world, "replica-creator");
    assert_non_null(condition_of(world, "snapshots/s/replica-creator", "ServiceMissing"));
    del(world, "published/snapshots/s");
    run(world, "replica-creator");
    assert_null(look(world, "decided/status/snapshots/s/replica-creator"));
}

static void none_while_a_deletion_exists(void **state)
{
    g_autoptr(World) world = world_new();

    (void)state;
    put_service(world, "api", "%s", "");
    put_snapshot(world, "s", "api", T0, 5);
    g_autoptr(LhPlan) before = plan_of(world, "replica-creator");
    putf(world, "decided/deletions/s",
         "{\"uri\":\"s3://bucket/s/\",\"snapshotRevision\":%" PRId64 ",\"decidedAt\":1}",
         mod_rev(world, "published/snapshots/s"));
    assert_false(apply_group(world, before, 0)); /* nor by a plan that did not see it */
    run(world, "replica-creator");
    assert_int_equal(replicas(world), 0);
    put(world, "decided/deletions/s", "spoilt");
    run(world, "replica-creator");
    assert_int_equal(replicas(world), 0);
    del(world, "decided/deletions/s");
    run(world, "replica-creator");
    assert_int_equal(replicas(world), 1);
}

static void what_does_not_parse_is_not_absent(void **state)
{
    g_autoptr(World) world = world_new();

    (void)state;
    put_service(world, "api", "\"cache\":{\"replicas\":2}");
    put_snapshot(world, "s", "api", T0, 5);
    put(world, "decided/replicas/s.default.0", "spoilt");
    gint64 spoilt = world->revision;
    g_autoptr(LhPlan) plan = plan_of(world, "replica-creator");
    assert_string_equal(note_rule(plan, "replicas/s.default.0"), "replica-unknown");
    run(world, "replica-creator");
    assert_int_equal(replicas(world), 2);
    assert_int_equal(mod_rev(world, "decided/replicas/s.default.0"), spoilt);
    /* Neither a service in force that is spoilt, nor a snapshot, loses or gains anything. */
    put(world, "decided/accepted/services/api", "spoilt");
    put_snapshot(world, "t", "api", T0, 5);
    put(world, "published/snapshots/s", "spoilt");
    run(world, "replica-creator");
    assert_int_equal(replicas(world), 2);
    assert_null(look(world, "decided/status/snapshots/t/replica-creator"));
}

static void overlapping_uris_get_one(void **state)
{
    g_autoptr(World) world = world_new();

    (void)state;
    put_service(world, "api", "%s", "");
    put_snapshot(world, "first", "api", T0, 5);
    putf(world, "published/snapshots/second",
         "{\"service\":\"api\",\"startTime\":1,\"endTime\":%" PRId64
         ",\"sizeBytes\":5,\"uri\":\"s3://bucket/first/inside/\"}",
         T0);
    run(world, "replica-creator");
    assert_int_equal(replicas(world), 1);
    assert_non_null(replica(world, "first.default.0"));
    del(world, "published/snapshots/first");
    run(world, "replica-creator");
    assert_non_null(replica(world, "second.default.0"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sets_times_ordinals),
        cmocka_unit_test(the_freshest_come_first),
        cmocka_unit_test(the_budget_is_kept),
        cmocka_unit_test(live_ones_never),
        cmocka_unit_test(expired_ones_are_never_created),
        cmocka_unit_test(expiry_follows_the_service),
        cmocka_unit_test(paused_services_get_nothing),
        cmocka_unit_test(service_missing_comes_and_goes),
        cmocka_unit_test(none_while_a_deletion_exists),
        cmocka_unit_test(what_does_not_parse_is_not_absent),
        cmocka_unit_test(overlapping_uris_get_one),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
