/*
 * cache-assigner: placing what waits, and what capacity says of it.
 */
#include "tests/unit/controllers/harness.h"

static void put_snapshots(World *world, guint n, gint64 bytes)
{
    for (guint i = 0; i < n; i++) {
        g_autofree char *name = g_strdup_printf("s%03u", i);
        put_snapshot(world, name, "api", T0 - (gint64)i * SECOND, bytes); /* s000 is the freshest */
    }
}

static guint live(const World *world)
{
    return items_in(world, LH_ITEM_LIVE);
}

static char *assignments_of(const World *world)
{
    g_autoptr(GPtrArray) keys = keys_below(world, "decided/assignments/");
    GString *text = g_string_new(NULL);

    for (guint i = 0; i < keys->len; i++)
        g_string_append_printf(text, "%s@%" PRId64 "\n", (const char *)keys->pdata[i],
                               mod_rev(world, keys->pdata[i]));
    return g_string_free(text, FALSE);
}

static void the_freshest_fill_the_room_and_nothing_moves_for_the_rest(void **state)
{
    g_autoptr(World) world = world_new();

    (void)state;
    put_service(world, "api", "%s", "");
    put_settings(world, "cache-assigner", "\"restoreReservePercent\":0");
    put_snapshots(world, 200, 100);
    for (int i = 0; i < 6; i++) {
        g_autofree char *id = g_strdup_printf("n%d-00000001", i);
        put_node(world, id, 1000000, 25, "");
    }
    settle(world);
    assert_int_equal(live(world), 150);
    for (guint i = 0; i < 200; i++) {
        g_autofree char *replica = g_strdup_printf("s%03u.default.0", i);
        g_autofree char *node = node_of(world, replica);
        assert_int_equal(node != NULL, i < 150);
    }
    assert_capacity(world, LH_CONDITION_FALSE, "room for 5000 bytes is missing, 50 replicas");
    g_autoptr(LhPlan) plan = plan_of(world, "cache-assigner");
    assert_string_equal(note_rule(plan, "replicas/s150.default.0"), "wait-items");
    g_autofree char *before = assignments_of(world);
    put_node(world, "n6-00000001", 1000000, 50, "");
    settle(world);
    assert_int_equal(live(world), 200);
    g_auto(GStrv) lines = g_strsplit(before, "\n", -1);
    g_autofree char *after = assignments_of(world);
    for (guint i = 0; lines[i] != NULL; i++)
        assert_non_null(strstr(after, lines[i]));
    assert_capacity(world, LH_CONDITION_TRUE, NULL);
}

/* What is missing is known at once, and said once: not with every load that ends. */
static void what_is_missing_is_said_once(void **state)
{
    g_autoptr(World) world = world_new();

    (void)state;
    put_service(world, "api", "%s", "");
    put_settings(world, "cache-assigner", "\"restoreReservePercent\":0");
    put_snapshots(world, 20, 100);
    put_node(world, "n-00000001", 1000, 0, "");
    run(world, "replica-creator");
    g_autoptr(LhPlan) first = plan_of(world, "cache-assigner");
    assert_true(has_event(first, "InsufficientCapacity"));
    run_all(world);
    assert_capacity(world, LH_CONDITION_FALSE, "1000 bytes is missing, 10 replicas");
    gint64 said = mod_rev(world, "decided/status/settings/cache-assigner/cache-assigner");
    settle(world);
    assert_int_equal(live(world), 10);
    assert_int_equal(mod_rev(world, "decided/status/settings/cache-assigner/cache-assigner"), said);
}

/* A plan that its budget ended does not say that there is room. */
static void a_budget_does_not_make_room(void **state)
{
    g_autoptr(World) world = world_new();

    (void)state;
    put_service(world, "api", "\"cache\":{\"replicas\":2}");
    put_snapshots(world, 3, 100);
    put_node(world, "n-00000001", 100000, 0, "");
    settle(world);
    assert_int_equal(live(world), 3);
    assert_capacity(world, LH_CONDITION_FALSE, "300 bytes is missing, 3 replicas");
    put_snapshot(world, "new", "api", T0 + HOUR, 1);
    run(world, "replica-creator");
    world->max_groups = 1;
    step(world, "cache-assigner");
    assert_capacity(world, LH_CONDITION_FALSE, NULL);
}

static void sums_of_absurd_sizes_stop(void **state)
{
    g_autoptr(World) world = world_new();

    (void)state;
    put_service(world, "api", "%s", "");
    put_snapshots(world, 1100, (G_GINT64_CONSTANT(1) << 53) - 1);
    put_node(world, "n-00000001", 1000, 0, "");
    run_all(world);
    assert_capacity(world, LH_CONDITION_FALSE, "9223372036854775807");
}

static void loads_are_limited_for_each_node(void **state)
{
    g_autoptr(World) world = world_new();

    (void)state;
    put_service(world, "api", "%s", "");
    put_snapshots(world, 20, 1);
    put_node(world, "a-00000001", 1000, 0, "");
    put_node(world, "b-00000001", 1000, 0, "");
    run_all(world);
    assert_int_equal(count_below(world, "decided/assignments/cache/a-"), 2);
    assert_int_equal(count_below(world, "decided/assignments/cache/b-"), 2);
    g_autoptr(LhPlan) plan = plan_of(world, "cache-assigner");
    assert_string_equal(note_rule(plan, "replicas/s010.default.0"), "wait-slot");
    put_settings(world, "cache-assigner", "\"maxConcurrentLoads\":5");
    run_all(world);
    assert_int_equal(count_below(world, "decided/assignments/cache/"), 10);
    nodes_answer(world);
    run_all(world);
    assert_int_equal(count_below(world, "decided/assignments/cache/"), 20);
}

static void the_reserve_is_for_restored_replicas(void **state)
{
    g_autoptr(World) world = world_new();

    (void)state;
    put_service(world, "api", "\"cache\":{\"replicas\":0}");
    put_snapshots(world, 12, 10);
    put_node(world, "a-00000001", 100, 0, "");
    for (int i = 0; i < 4; i++) {
        g_autofree char *key = g_strdup_printf("decided/replicas/s%03d.default.r0", i);
        putf(world, key,
             "{\"snapshot\":\"s%03d\",\"service\":\"api\",\"set\":\"default\",\"restored\":true,"
             "\"expiresAt\":%" PRId64 "}",
             i, T0 + DAY);
    }
    settle(world);
    assert_int_equal(live(world), 1); /* 10 % of 100 bytes */
    put_service(world, "api", "\"cache\":{\"replicas\":1}");
    settle(world);
    assert_int_equal(live(world), 10);
    g_autoptr(LhPlan) plan = plan_of(world, "cache-assigner");
    assert_string_equal(note_rule(plan, "replicas/s001.default.r0"), "wait-bytes");
    assert_string_equal(note_rule(plan, "replicas/s011.default.0"), "wait-bytes");
}

static void copies_are_on_distinct_hosts_and_zones(void **state)
{
    g_autoptr(World) world = world_new();

    (void)state;
    put_service(world, "api", "\"cache\":{\"replicas\":2}");
    put_snapshots(world, 10, 1);
    put_node(world, "a-00000001", 1000, 0, ",\"zone\":\"z1\"");
    put_node(world, "b-00000001", 1000, 0, ",\"zone\":\"z1\"");
    put_node(world, "c-00000001", 1000, 0, ",\"zone\":\"z2\"");
    settle(world);
    assert_int_equal(live(world), 20);
    for (guint i = 0; i < 10; i++) {
        g_autofree char *first = g_strdup_printf("s%03u.default.0", i);
        g_autofree char *second = g_strdup_printf("s%03u.default.1", i);
        g_autofree char *one = node_of(world, first), *other = node_of(world, second);
        assert_true((*one == 'c') != (*other == 'c'));
    }
    put_service(world, "api", "\"cache\":{\"replicas\":4}");
    settle(world);
    assert_int_equal(live(world), 30); /* three hosts: the fourth copy waits */
    g_autoptr(LhPlan) plan = plan_of(world, "cache-assigner");
    assert_string_equal(note_rule(plan, "replicas/s000.default.3"), "wait-distinct");
}

static void sets_are_groups_of_nodes(void **state)
{
    g_autoptr(World) world = world_new();

    (void)state;
    put_service(world, "api", "\"cache\":{\"sets\":[\"default\",\"blue\"]}");
    put_snapshots(world, 3, 1);
    put_node(world, "a-00000001", 1000, 0, "");
    settle(world);
    assert_int_equal(live(world), 3);
    g_autoptr(LhPlan) plan = plan_of(world, "cache-assigner");
    assert_string_equal(note_rule(plan, "replicas/s000.blue.0"), "wait-nodes");
    assert_capacity(world, LH_CONDITION_FALSE, "set blue: room for 3 bytes");
    put_node(world, "b-00000001", 1000, 0, ",\"set\":\"blue\"");
    settle(world);
    assert_int_equal(count_below(world, "actual/items/cache/b-00000001/"), 3);
}

static void warm_nodes_come_first(void **state)
{
    g_autoptr(World) world = world_new();

    (void)state;
    put_service(world, "api", "%s", "");
    put_node(world, "a-00000001", 1000, 0, "");
    put_node(world, "b-00000001", 1000, 0, ",\"warm\":[\"s000\",\"s001\"]");
    put_snapshots(world, 2, 1);
    settle(world);
    assert_int_equal(count_below(world, "actual/items/cache/b-00000001/"), 2);
    const LhAssignment *one = look(world, "decided/assignments/cache/b-00000001/s000.default.0");
    assert_string_equal(one->rule, "placed-warm");
}

static void an_assignment_says_what_the_node_needs(void **state)
{
    g_autoptr(World) world = world_new();

    (void)state;
    put_service(world, "api", "%s", "");
    put_settings(world, "cache-evictor", "\"evictGrace\":\"7s\"");
    put_node(world, "a-00000001", 1000, 0, "");
    put_snapshot(world, "s", "api", T0, 12);
    run_all(world);
    const LhAssignment *one = look(world, "decided/assignments/cache/a-00000001/s.default.0");
    assert_int_equal(one->action, LH_ACTION_LOAD);
    assert_string_equal(one->snapshot, "s");
    assert_string_equal(one->uri, "s3://bucket/s/");
    assert_int_equal(one->size_bytes, 12);
    assert_string_equal(one->set, "default");
    assert_int_equal(one->evict_grace_ms, 7000);
    assert_int_equal(one->epoch, 7);
    assert_string_equal(one->controller, "cache-assigner");
    assert_int_equal(one->since, T0);
}

static void cordoned_failing_and_odd_nodes_get_nothing_new(void **state)
{
    g_autoptr(World) world = world_new();

    (void)state;
    put_service(world, "api", "%s", "");
    put_snapshots(world, 4, 1);
    put(world, "desired/nodepolicies/cache/a", "{\"spec\":{\"cordon\":true}}");
    put_node(world, "a-00000001", 1000, 0, "");
    put_node(world, "b-00000001", 1000, 0, ",\"labels\":7");
    put_node(world, "c-00000001", 1000, 0, ",\"url\":\"http://c\""); /* never probed */
    put(world, "decided/health/cache/c-00000001", "{\"state\":\"failure\"}");
    put_node(world, "d-00000001", 1000, 0, "");
    put(world, "decided/health/cache/d-00000001", "spoilt");
    settle(world);
    assert_int_equal(count_below(world, "decided/assignments/"), 0);
    put(world, "desired/nodepolicies/cache/a", "{\"spec\":{\"cordon\":false}}");
    settle(world);
    assert_int_equal(live(world), 4);
    put(world, "desired/nodepolicies/cache/a", "{\"spec\":{\"cordon\":true}}");
    put_snapshot(world, "new", "api", T0, 1);
    settle(world);
    assert_int_equal(live(world), 4); /* what is there stays, nothing comes */
}

static void a_paused_service_is_still_placed(void **state)
{
    g_autoptr(World) world = world_new();

    (void)state;
    put_service(world, "api", "%s", "");
    put_snapshots(world, 2, 1);
    run(world, "replica-creator");
    put_service(world, "api", "\"paused\":true");
    put_node(world, "a-00000001", 1000, 0, "");
    settle(world);
    assert_int_equal(live(world), 2);
}

static void a_live_snapshot_is_never_placed(void **state)
{
    g_autoptr(World) world = world_new();

    (void)state;
    put_service(world, "api", "%s", "");
    put_snapshot(world, "s", "api", T0, 1);
    run(world, "replica-creator");
    putf(world, "published/snapshots/s",
         "{\"service\":\"api\",\"startTime\":1,\"uri\":\"s3://bucket/s/\",\"live\":true}");
    put_service(world, "api", "\"paused\":true");
    put_node(world, "a-00000001", 1000, 0, "");
    settle(world);
    assert_int_equal(count_below(world, "decided/assignments/"), 0);
}

static void what_is_being_deleted_is_not_placed(void **state)
{
    g_autoptr(World) world = world_new();

    (void)state;
    put_service(world, "api", "%s", "");
    put_snapshot(world, "s", "api", T0, 1);
    run(world, "replica-creator");
    putf(world, "decided/deletions/s",
         "{\"uri\":\"s3://bucket/s/\",\"snapshotRevision\":%" PRId64 ",\"decidedAt\":1}",
         mod_rev(world, "published/snapshots/s"));
    put_node(world, "a-00000001", 1000, 0, "");
    settle(world);
    assert_int_equal(count_below(world, "decided/assignments/"), 0);
}

static void what_does_not_parse_is_not_placed_again(void **state)
{
    g_autoptr(World) world = world_new();

    (void)state;
    put_service(world, "api", "%s", "");
    put_snapshots(world, 4, 1);
    put_node(world, "a-00000001", 1000, 0, "");
    settle(world);
    put_node(world, "b-00000001", 1000, 0, "");
    put(world, "decided/assignments/cache/a-00000001/s000.default.0", "spoilt");
    put(world, "actual/items/cache/a-00000001/s001.default.0", "spoilt");
    put(world, "decided/replicas/s002.default.0", "spoilt");
    put(world, "decided/retries/cache/s003.default.0", "spoilt");
    put(world, "actual/nodes/cache/a-00000001", "spoilt");
    g_autofree char *before = assignments_of(world);
    run_all(world);
    g_autofree char *after = assignments_of(world);
    assert_string_equal(before, after);
    put_snapshot(world, "new", "api", T0 + 1, 1);
    run(world, "replica-creator");
    put(world, "decided/retries/cache/new.default.0", "spoilt");
    run_all(world);
    assert_int_equal(count_below(world, "decided/assignments/cache/b-"), 0);
}

static void unassigned_replicas_that_expire_are_deleted(void **state)
{
    g_autoptr(World) world = world_new();

    (void)state;
    put_service(world, "api", "\"cache\":{\"window\":\"1h\"}");
    put_snapshots(world, 2, 1);
    run_all(world);
    g_autoptr(LhPlan) plan = plan_of(world, "cache-assigner");
    assert_int_equal(plan->wake_ms, T0 + HOUR - SECOND);
    world->now_ms = T0 + HOUR - SECOND;
    run_all(world);
    assert_int_equal(count_below(world, "decided/replicas/"), 1);
    del(world, "published/snapshots/s000"); /* its snapshot is gone: it goes at once */
    run_all(world);
    assert_int_equal(count_below(world, "decided/replicas/"), 0);
}

/* Its snapshot is gone, but its service is paused: nothing is deleted, until it is paused no more. */
static void pause_keeps_replicas_whose_snapshot_is_gone(void **state)
{
    g_autoptr(World) world = world_new();

    (void)state;
    put_service(world, "api", "%s", "");
    put_snapshots(world, 1, 1);
    run_all(world);
    put_service(world, "api", "\"paused\":true");
    del(world, "published/snapshots/s000");
    run_all(world);
    assert_int_equal(count_below(world, "decided/replicas/"), 1);
    put_service(world, "api", "%s", "");
    run_all(world);
    assert_int_equal(count_below(world, "decided/replicas/"), 0);
}

static void an_edit_beats_the_deletion_that_did_not_see_it(void **state)
{
    g_autoptr(World) world = world_new();

    (void)state;
    put_service(world, "api", "\"cache\":{\"replicas\":2}");
    put_snapshots(world, 1, 1);
    run_all(world);
    put_service(world, "api", "\"cache\":{\"replicas\":1}");
    g_autoptr(LhPlan) plan = plan_of(world, "cache-assigner");
    assert_int_equal(find_op(plan, "decided/replicas/s000.default.1")->type, LH_OP_DELETE);
    put_service(world, "api", "\"cache\":{\"replicas\":2}");
    for (guint i = 0; i < lh_plan_groups(plan); i++)
        apply_group(world, plan, i);
    assert_int_equal(count_below(world, "decided/replicas/"), 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_freshest_fill_the_room_and_nothing_moves_for_the_rest),
        cmocka_unit_test(what_is_missing_is_said_once),
        cmocka_unit_test(a_budget_does_not_make_room),
        cmocka_unit_test(sums_of_absurd_sizes_stop),
        cmocka_unit_test(loads_are_limited_for_each_node),
        cmocka_unit_test(the_reserve_is_for_restored_replicas),
        cmocka_unit_test(copies_are_on_distinct_hosts_and_zones),
        cmocka_unit_test(sets_are_groups_of_nodes),
        cmocka_unit_test(warm_nodes_come_first),
        cmocka_unit_test(an_assignment_says_what_the_node_needs),
        cmocka_unit_test(cordoned_failing_and_odd_nodes_get_nothing_new),
        cmocka_unit_test(a_paused_service_is_still_placed),
        cmocka_unit_test(a_live_snapshot_is_never_placed),
        cmocka_unit_test(what_is_being_deleted_is_not_placed),
        cmocka_unit_test(what_does_not_parse_is_not_placed_again),
        cmocka_unit_test(unassigned_replicas_that_expire_are_deleted),
        cmocka_unit_test(pause_keeps_replicas_whose_snapshot_is_gone),
        cmocka_unit_test(an_edit_beats_the_deletion_that_did_not_see_it),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
