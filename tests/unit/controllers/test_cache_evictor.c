/*
 * cache-evictor: what is ordered away and why, and what is left alone.
 */
#include "tests/unit/controllers/harness.h"

/* @n snapshots of service api, all live on one node. */
static World *live_ones(int n, const char *spec)
{
    World *world = world_new();

    put_service(world, "api", "%s", spec);
    put_settings(world, "cache-evictor", "\"brakePercent\":100");
    for (int i = 0; i < n; i++) {
        g_autofree char *name = g_strdup_printf("s%03d", i);
        put_snapshot(world, name, "api", T0 - i * MINUTE, 10);
    }
    for (int i = 0; i < 3; i++) {
        g_autofree char *id = g_strdup_printf("%c-00000001", 'a' + i);
        put_node(world, id, 100000, 0, i == 2 ? ",\"set\":\"blue\"" : "");
    }
    settle(world);
    return world;
}

/* Rules of the evictions ordered, by how often; "rule n rule n". */
static char *orders(const World *world)
{
    g_autoptr(GPtrArray) keys = keys_below(world, "decided/assignments/");
    g_autoptr(GTree) rules = g_tree_new((GCompareFunc)strcmp);
    GString *text = g_string_new(NULL);

    for (guint i = 0; i < keys->len; i++) {
        const LhAssignment *one = look(world, keys->pdata[i]);
        if (lh_object_known(&one->o) && one->action == LH_ACTION_EVICT)
            g_tree_insert(rules, (gpointer)one->rule,
                          GINT_TO_POINTER(GPOINTER_TO_INT(g_tree_lookup(rules, one->rule)) + 1));
    }
    for (GTreeNode *n = g_tree_node_first(rules); n != NULL; n = g_tree_node_next(n))
        g_string_append_printf(text, "%s%s %d", text->len == 0 ? "" : " ",
                               (char *)g_tree_node_key(n), GPOINTER_TO_INT(g_tree_node_value(n)));
    return g_string_free(text, FALSE);
}

static void assert_orders(const World *world, const char *expected)
{
    g_autofree char *is = orders(world);

    assert_string_equal(is, expected);
}

static void expired_ones_go_when_they_expire(void **state)
{
    g_autoptr(World) world = live_ones(3, "\"cache\":{\"window\":\"1h\"}");

    (void)state;
    g_autoptr(LhPlan) plan = plan_of(world, "cache-evictor");
    assert_int_equal(lh_plan_groups(plan), 0);
    assert_int_equal(plan->wake_ms, T0 + HOUR - 2 * MINUTE);
    world->now_ms = plan->wake_ms;
    run(world, "cache-evictor");
    assert_orders(world, "expired 1");
    g_autofree char *node = node_of(world, "s002.default.0");
    const LhAssignment *order = lookf(world, "decided/assignments/cache/%s/s002.default.0", node);
    assert_int_equal(order->action, LH_ACTION_EVICT);
    assert_string_equal(order->controller, "cache-evictor");
    assert_string_equal(order->snapshot, "s002"); /* all that the node needs is still there */
    assert_int_equal(order->size_bytes, 10);
    assert_int_equal(order->evict_grace_ms, 5000);
    assert_int_equal(order->since, world->now_ms);
    g_autoptr(LhPlan) next = plan_of(world, "cache-evictor");
    assert_int_equal(next->wake_ms, T0 + HOUR - MINUTE);
    settle(world);
    assert_int_equal(count_below(world, "decided/replicas/"), 2);
}

static void the_grace_in_force_is_ordered(void **state)
{
    g_autoptr(World) world = live_ones(1, "");

    (void)state;
    put_settings(world, "cache-evictor", "\"evictGrace\":\"9s\"");
    world->now_ms += DAY;
    run(world, "cache-evictor");
    g_autofree char *node = node_of(world, "s000.default.0");
    const LhAssignment *order = lookf(world, "decided/assignments/cache/%s/s000.default.0", node);
    assert_int_equal(order->evict_grace_ms, 9000);
}

static void edits_of_the_service_converge(void **state)
{
    g_autoptr(World) world = live_ones(
        3, "\"cache\":{\"replicas\":2,\"sets\":[\"default\",\"blue\"]}");

    (void)state;
    assert_int_equal(items_in(world, LH_ITEM_LIVE), 9); /* blue has one node: one copy */
    put_service(world, "api", "\"cache\":{\"replicas\":1,\"sets\":[\"default\",\"blue\"]}");
    run(world, "cache-evictor");
    assert_orders(world, "surplus 3");
    settle(world);
    put_service(world, "api", "\"cache\":{\"replicas\":1,\"sets\":[\"default\"]}");
    run(world, "cache-evictor");
    assert_orders(world, "set-removed 3");
    settle(world);
    assert_int_equal(items_in(world, LH_ITEM_LIVE), 3);
    del(world, "desired/services/api");
    run(world, "cache-evictor");
    assert_orders(world, ""); /* it is still in force */
    run(world, "admission");
    run(world, "cache-evictor");
    assert_orders(world, "service-deleted 3");
    settle(world);
    assert_int_equal(count_below(world, "decided/replicas/"), 0);
    assert_int_equal(count_below(world, "published/snapshots/"), 3);
}

static void orphans_go(void **state)
{
    g_autoptr(World) world = live_ones(3, "");

    (void)state;
    del(world, "decided/replicas/s000.default.0");
    del(world, "published/snapshots/s001");
    run(world, "cache-evictor");
    assert_orders(world, "no-replica 1 snapshot-gone 1");
    settle(world);
    assert_int_equal(items_in(world, LH_ITEM_LIVE), 2); /* s000 was created again */
}

static void a_paused_service_keeps_everything(void **state)
{
    g_autoptr(World) world = live_ones(3, "");

    (void)state;
    put_service(world, "api", "\"paused\":true,\"cache\":{\"replicas\":0}");
    del(world, "decided/replicas/s000.default.0");
    del(world, "published/snapshots/s001");
    world->now_ms += 30 * DAY;
    run(world, "cache-evictor");
    assert_orders(world, "");
    put_service(world, "api", "\"cache\":{\"replicas\":0}");
    run(world, "cache-evictor");
    assert_orders(world, "no-replica 1 snapshot-gone 1 surplus 1");
}

static void what_does_not_parse_keeps_what_depends_on_it(void **state)
{
    g_autoptr(World) world = live_ones(4, "");

    (void)state;
    put(world, "published/snapshots/s000", "spoilt");
    put(world, "decided/replicas/s001.default.0", "spoilt");
    world->now_ms += 30 * DAY;
    run(world, "cache-evictor");
    assert_orders(world, "expired 2");
    settle(world);
    put(world, "decided/accepted/services/api", "spoilt");
    put_snapshot(world, "s000", "api", T0, 10);
    del(world, "decided/replicas/s001.default.0");
    run(world, "cache-evictor");
    assert_orders(world, "");
}

static void an_edit_into_nonsense_evicts_nothing(void **state)
{
    g_autoptr(World) world = live_ones(3, "");

    (void)state;
    put(world, "desired/services/api", "nonsense");
    run_all(world);
    fail_over(world);
    settle(world);
    assert_int_equal(items_in(world, LH_ITEM_LIVE), 3);
}

static void an_order_that_did_not_see_the_edit_does_not_commit(void **state)
{
    g_autoptr(World) world = live_ones(3, "");

    (void)state;
    put_service(world, "api", "\"cache\":{\"replicas\":0}");
    step(world, "cache-evictor"); /* reserves */
    g_autoptr(LhPlan) plan = plan_of(world, "cache-evictor");
    assert_int_equal(lh_plan_groups(plan), 3);
    put_service(world, "api", "\"cache\":{\"replicas\":1}");
    for (guint i = 0; i < 3; i++)
        apply_group(world, plan, i);
    assert_orders(world, "");
    assert_int_equal(world->conflicts, 3);
}

static void a_restored_replica_goes_by_its_own_time(void **state)
{
    g_autoptr(World) world = live_ones(1, "\"cache\":{\"replicas\":0}");

    (void)state;
    putf(
        world, "decided/replicas/s000.default.r0",
        "{\"snapshot\":\"s000\",\"service\":\"api\",\"set\":\"default\",\"restored\":true,\"expiresAt\":%" PRId64
        "}",
        T0 + HOUR);
    settle(world);
    assert_int_equal(items_in(world, LH_ITEM_LIVE), 1);
    world->now_ms = T0 + HOUR - 1;
    run(world, "cache-evictor");
    assert_orders(world, "");
    world->now_ms += 1;
    run(world, "cache-evictor");
    assert_orders(world, "expired 1");
}

static void items_of_lost_nodes_are_not_ordered_away(void **state)
{
    g_autoptr(World) world = live_ones(4, "");

    (void)state;
    lose_node(world, "a-00000001");
    world->now_ms += DAY;
    run(world, "cache-evictor");
    assert_orders(world, "expired 2");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(expired_ones_go_when_they_expire),
        cmocka_unit_test(the_grace_in_force_is_ordered),
        cmocka_unit_test(edits_of_the_service_converge),
        cmocka_unit_test(orphans_go),
        cmocka_unit_test(a_paused_service_keeps_everything),
        cmocka_unit_test(what_does_not_parse_keeps_what_depends_on_it),
        cmocka_unit_test(an_edit_into_nonsense_evicts_nothing),
        cmocka_unit_test(an_order_that_did_not_see_the_edit_does_not_commit),
        cmocka_unit_test(a_restored_replica_goes_by_its_own_time),
        cmocka_unit_test(items_of_lost_nodes_are_not_ordered_away),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
