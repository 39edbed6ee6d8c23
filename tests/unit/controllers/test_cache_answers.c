/*
 * cache-assigner: what nodes answer, nodes that are lost and come back, and retries.
 */
#include "tests/unit/controllers/harness.h"

#define ITEM "s.default.0"

static World *one_item_on_a(const char *settings)
{
    World *world = world_new();

    put_settings(world, "cache-assigner", settings);
    put_service(world, "api", "%s", "");
    put_snapshot(world, "s", "api", T0, 10);
    put_node(world, "a-00000001", 1000, 0, "");
    run_all(world);
    return world;
}

static const LhRetry *retry(const World *world)
{
    return look(world, "decided/retries/cache/" ITEM);
}

static void assert_on(const World *world, const char *node)
{
    g_autofree char *is = node_of(world, ITEM);

    if (g_strcmp0(is, node) != 0)
        fail_msg("it is on %s, not on %s", is, node);
}

/* ---- lost nodes ---- */

static void a_lost_node_keeps_its_items_for_the_grace(void **state)
{
    g_autoptr(World) world = one_item_on_a("");

    (void)state;
    put_node(world, "b-00000001", 1000, 0, "");
    settle(world);
    lose_node(world, "a-00000001");
    run_all(world);
    assert_on(world, "a-00000001");
    g_autoptr(LhPlan) plan = plan_of(world, "cache-assigner");
    assert_int_equal(plan->wake_ms, T0 + MINUTE);
    assert_string_equal(note_rule(plan, "replicas/" ITEM), "wait-grace");
    world->now_ms = T0 + MINUTE - 1;
    fail_over(world);
    run_all(world);
    assert_on(world, "a-00000001");
    world->now_ms = T0 + MINUTE;
    run_all(world);
    assert_on(world, "b-00000001");
}

static void six_restarts_within_the_grace_move_nothing(void **state)
{
    g_autoptr(World) world = world_new();

    (void)state;
    put_service(world, "api", "%s", "");
    for (int i = 0; i < 60; i++) {
        g_autofree char *name = g_strdup_printf("s%d", i);
        put_snapshot(world, name, "api", T0 - i, 10);
    }
    for (int i = 0; i < 6; i++) {
        g_autofree char *id = g_strdup_printf("n%d-00000001", i);
        put_node(world, id, 1000, 0, "");
    }
    settle(world);
    for (int i = 0; i < 6; i++) {
        g_autofree char *old = g_strdup_printf("n%d-00000001", i),
                        *new = g_strdup_printf("n%d-00000002", i);
        g_autofree char *below = g_strdup_printf("decided/assignments/cache/%s/", old);
        g_autofree char *after = g_strdup_printf("decided/assignments/cache/%s/", new);
        guint held = count_below(world, below), loads = world->loads;
        lose_node(world, old);
        run_all(world);
        world->now_ms += 5 * SECOND;
        run_all(world);
        put_node(world, new, 1000, 0, "");
        settle(world);
        assert_int_equal(count_below(world, after), held);
        assert_int_equal(world->loads - loads, held); /* its own, back on it, and no other */
        assert_int_equal(items_in(world, LH_ITEM_LIVE), 60);
    }
}

static void without_grace_it_goes_elsewhere_at_once(void **state)
{
    g_autoptr(World) world = one_item_on_a("\"failureGrace\":\"0s\"");

    (void)state;
    put_node(world, "b-00000001", 1000, 0, "");
    lose_node(world, "a-00000001");
    run(world, "cache-assigner"); /* nobody says since when */
    assert_on(world, "b-00000001");
}

static void what_was_being_evicted_on_a_dead_node_is_gone(void **state)
{
    g_autoptr(World) world = one_item_on_a("");

    (void)state;
    settle(world);
    put_node(world, "b-00000001", 1000, 0, "");
    del(world, "desired/services/api");
    run_all(world);
    const LhAssignment *order = look(world, "decided/assignments/cache/a-00000001/" ITEM);
    assert_int_equal(order->action, LH_ACTION_EVICT);
    lose_node(world, "a-00000001");
    run_all(world);
    assert_int_equal(count_below(world, "decided/assignments/"), 0);
    assert_int_equal(count_below(world, "decided/replicas/"), 0);
}

static void a_replica_that_expires_on_a_dead_node_goes_with_it(void **state)
{
    g_autoptr(World) world = one_item_on_a("\"failureGrace\":\"30d\"");

    (void)state;
    settle(world);
    lose_node(world, "a-00000001");
    world->now_ms = T0 + DAY;
    run_all(world);
    assert_int_equal(count_below(world, "decided/assignments/"), 0);
    assert_int_equal(count_below(world, "decided/replicas/"), 0);
}

static void a_smaller_node_gets_back_what_fits(void **state)
{
    g_autoptr(World) world = world_new();

    (void)state;
    put_service(world, "api", "%s", "");
    for (int i = 0; i < 5; i++) {
        g_autofree char *name = g_strdup_printf("s%d", i);
        put_snapshot(world, name, "api", T0 - i, 10);
    }
    put_node(world, "a-00000001", 1000, 0, "");
    settle(world);
    lose_node(world, "a-00000001");
    put_node(world, "a-00000002", 25, 0, "");
    settle(world);
    assert_int_equal(count_below(world, "decided/assignments/cache/a-00000002/"), 2);
    assert_int_equal(count_below(world, "decided/assignments/"), 2);
}

/* What is given up makes room for what waits, but it will wait itself: there is not enough for a moment. */
static void what_a_smaller_node_gives_up_is_still_missing(void **state)
{
    g_autoptr(World) world = world_new();

    (void)state;
    put_settings(world, "cache-assigner", "\"restoreReservePercent\":0");
    put_service(world, "api", "%s", "");
    put_snapshot(world, "s", "api", T0, 10);
    put_snapshot(world, "t", "api", T0 - SECOND, 10);
    put_snapshot(world, "u", "api", T0 - 2 * SECOND, 5);
    put_node(world, "a-00000001", 20, 0, "");
    settle(world);
    assert_capacity(world, LH_CONDITION_FALSE, "room for 5 bytes is missing, 1 replicas");
    lose_node(world, "a-00000001");
    put_node(world, "a-00000002", 15, 0, "");
    step(world, "cache-assigner");
    assert_int_equal(count_below(world, "decided/assignments/cache/a-00000001/"), 0);
    assert_int_equal(count_below(world, "decided/assignments/cache/a-00000002/u."), 1);
    assert_capacity(world, LH_CONDITION_FALSE, NULL);
    settle(world);
    assert_capacity(world, LH_CONDITION_FALSE, "room for 10 bytes is missing, 1 replicas");
}

static void what_was_published_anew_does_not_return(void **state)
{
    g_autoptr(World) world = one_item_on_a("");

    (void)state;
    settle(world);
    lose_node(world, "a-00000001");
    put_snapshot(world, "s", "api", T0, 2000);
    put_node(world, "a-00000002", 1000, 0, "");
    run_all(world);
    world->now_ms += MINUTE;
    settle(world);
    assert_int_equal(count_below(world, "decided/assignments/"), 0); /* it has no room for that */
}

static void a_node_that_returns_in_another_set_gets_nothing_back(void **state)
{
    g_autoptr(World) world = one_item_on_a("");

    (void)state;
    settle(world);
    lose_node(world, "a-00000001");
    put_node(world, "a-00000002", 1000, 0, ",\"set\":\"blue\"");
    run_all(world);
    assert_on(world, "a-00000001");
    world->now_ms += MINUTE;
    settle(world);
    assert_on(world, NULL);
}

static void a_node_that_returns_loads_no_more_than_it_may(void **state)
{
    g_autoptr(World) world = world_new();

    (void)state;
    put_service(world, "api", "%s", "");
    for (int i = 0; i < 5; i++) {
        g_autofree char *name = g_strdup_printf("s%d", i);
        put_snapshot(world, name, "api", T0 - i, 10);
    }
    put_node(world, "a-00000001", 1000, 0, "");
    settle(world);
    lose_node(world, "a-00000001");
    put_node(world, "a-00000002", 1000, 0, "");
    run_all(world);
    assert_int_equal(count_below(world, "decided/assignments/cache/a-00000002/"), 2);
    assert_int_equal(count_below(world, "decided/assignments/cache/a-00000001/"), 3);
    settle(world);
    assert_int_equal(count_below(world, "decided/assignments/cache/a-00000002/"), 5);
}

static void an_unknown_registration_loses_nothing(void **state)
{
    g_autoptr(World) world = one_item_on_a("\"failureGrace\":\"0s\"");

    (void)state;
    put_node(world, "b-00000001", 1000, 0, "");
    put(world, "actual/nodes/cache/a-00000001", "spoilt");
    run_all(world);
    assert_on(world, "a-00000001");
}

/* ---- answers ---- */

static void who_gives_no_reason_is_said_to_give_none(void **state)
{
    g_autoptr(World) world = one_item_on_a("");

    (void)state;
    putf(world, "actual/items/cache/a-00000001/" ITEM,
         "{\"state\":\"failed\",\"since\":1,\"assignment\":%" PRId64 ",\"message\":\"\"}",
         mod_rev(world, "decided/assignments/cache/a-00000001/" ITEM));
    run_all(world);
    assert_string_equal(retry(world)->message, "the node gave no reason");
}

static void failures_are_retried_elsewhere_and_later(void **state)
{
    static const gint64 delays[] = {10, 20, 40, 80};
    g_autoptr(World) world = one_item_on_a("");
    const char *last = "a-00000001";

    (void)state;
    put_node(world, "b-00000001", 1000, 0, "");
    for (int attempt = 1; attempt <= 4; attempt++) {
        g_autofree char *name = g_strconcat(last, "/" ITEM, NULL);
        answer(world, name, "failed");
        run_all(world);
        assert_int_equal(retry(world)->attempt, attempt);
        assert_int_equal(retry(world)->not_before, world->now_ms + delays[attempt - 1] * SECOND);
        assert_false(retry(world)->parked);
        assert_int_equal(count_below(world, "decided/assignments/"), 0);
        world->now_ms += delays[attempt - 1] * SECOND - 1;
        fail_over(world);
        run_all(world);
        assert_int_equal(count_below(world, "decided/assignments/"), 0);
        g_autoptr(LhPlan) plan = plan_of(world, "cache-assigner");
        assert_int_equal(plan->wake_ms, world->now_ms + 1);
        assert_string_equal(note_rule(plan, "replicas/" ITEM), "wait-backoff");
        nodes_answer(world);
        world->now_ms += 1;
        run_all(world);
        last = *last == 'a' ? "b-00000001" : "a-00000001";
        assert_on(world, last);
    }
    settle(world);
    assert_null(retry(world)); /* live: over */
}

static void park(World *world)
{
    for (int attempt = 1; attempt <= 5; attempt++) {
        g_autofree char *node = node_of(world, ITEM);
        g_autofree char *name = g_strconcat(node, "/" ITEM, NULL);
        answer(world, name, "failed");
        run_all(world);
        nodes_answer(world);
        world->now_ms += 11 * MINUTE;
        run_all(world);
    }
    assert_true(retry(world)->parked);
    assert_int_equal(count_below(world, "decided/assignments/"), 0);
}

/* What waits in backoff needs room as much as what may be placed. */
static void what_is_in_backoff_still_misses_room(void **state)
{
    g_autoptr(World) world = world_new();

    (void)state;
    put_settings(world, "cache-assigner", "\"restoreReservePercent\":0");
    put_service(world, "api", "%s", "");
    put_snapshot(world, "s", "api", T0, 10);
    put_snapshot(world, "t", "api", T0 - SECOND, 10);
    put_node(world, "a-00000001", 15, 0, "");
    settle(world);
    assert_on(world, "a-00000001");
    assert_capacity(world, LH_CONDITION_FALSE, "room for 10 bytes is missing, 1 replicas");
    answer(world, "a-00000001/" ITEM, "failed");
    settle(world);
    assert_on(world, NULL);
    g_autoptr(LhPlan) plan = plan_of(world, "cache-assigner");
    assert_string_equal(note_rule(plan, "replicas/" ITEM), "wait-backoff");
    assert_int_equal(count_below(world, "decided/assignments/cache/a-00000001/t."), 1);
    assert_capacity(world, LH_CONDITION_FALSE, "room for 10 bytes is missing, 1 replicas");
}

static void after_five_attempts_it_is_parked(void **state)
{
    g_autoptr(World) world = one_item_on_a("");

    (void)state;
    park(world);
    const LhCondition *condition = condition_of(world, "replicas/" ITEM "/cache-assigner",
                                                "Parked");
    assert_int_equal(condition->status, LH_CONDITION_TRUE);
    world->now_ms += 10 * HOUR;
    fail_over(world);
    run_all(world);
    g_autoptr(LhPlan) plan = plan_of(world, "cache-assigner");
    assert_string_equal(note_rule(plan, "replicas/" ITEM), "parked");
    assert_int_equal(lh_plan_groups(plan), 0);
}

static void a_deleted_retry_unparks(void **state)
{
    g_autoptr(World) world = one_item_on_a("");

    (void)state;
    park(world);
    del(world, "decided/retries/cache/" ITEM);
    settle(world);
    assert_on(world, "a-00000001");
    assert_null(look(world, "decided/status/replicas/" ITEM "/cache-assigner"));
}

static void a_changed_snapshot_unparks_and_counts_anew(void **state)
{
    g_autoptr(World) world = one_item_on_a("");

    (void)state;
    park(world);
    put_snapshot(world, "s", "api", T0, 11);
    run_all(world);
    assert_on(world, "a-00000001");
    assert_null(look(world, "decided/status/replicas/" ITEM "/cache-assigner"));
    answer(world, "a-00000001/" ITEM, "failed");
    run_all(world);
    assert_int_equal(retry(world)->attempt, 1);
}

/* Replica, retry and parked Status go in whatever order; none keeps the others. */
static void a_parked_replica_that_expires_leaves_nothing(void **state)
{
    g_autoptr(World) world = one_item_on_a("");

    (void)state;
    park(world);
    world->now_ms = T0 + DAY;
    run_all(world);
    assert_int_equal(count_below(world, "decided/replicas/"), 0);
    assert_int_equal(count_below(world, "decided/retries/"), 0);
    assert_int_equal(count_below(world, "decided/status/replicas/"), 0);
    assert_int_equal(g_hash_table_size(fleet(world)->replicas), 0);
}

static void a_status_that_outlived_its_replica_is_removed(void **state)
{
    g_autoptr(World) world = one_item_on_a("");

    (void)state;
    park(world);
    del(world, "decided/replicas/" ITEM);
    del(world, "decided/retries/cache/" ITEM);
    del(world, "published/snapshots/s");
    assert_non_null(look(world, "decided/status/replicas/" ITEM "/cache-assigner"));
    fail_over(world);
    run_all(world);
    assert_int_equal(count_below(world, "decided/status/replicas/"), 0);
}

static void an_answer_to_an_older_order_does_not_count(void **state)
{
    g_autoptr(World) world = one_item_on_a("");

    (void)state;
    putf(world, "actual/items/cache/a-00000001/" ITEM,
         "{\"state\":\"evicted\",\"since\":1,\"assignment\":%" PRId64 "}",
         mod_rev(world, "decided/assignments/cache/a-00000001/" ITEM) - 1);
    run_all(world);
    assert_on(world, "a-00000001");
    assert_null(retry(world));
    answer(world, "a-00000001/" ITEM, "evicted");
    run_all(world);
    assert_int_equal(count_below(world, "decided/assignments/"), 0);
    assert_int_equal(retry(world)->attempt, 1);
}

static void an_evicted_answer_that_changed_meanwhile_does_not_count(void **state)
{
    g_autoptr(World) world = one_item_on_a("");

    (void)state;
    answer(world, "a-00000001/" ITEM, "failed");
    g_autoptr(LhPlan) plan = plan_of(world, "cache-assigner");
    answer(world, "a-00000001/" ITEM, "live");
    assert_false(apply_group(world, plan, 0));
    assert_on(world, "a-00000001");
}

static void a_replica_that_expires_while_loading_is_cancelled(void **state)
{
    g_autoptr(World) world = one_item_on_a("");

    (void)state;
    answer(world, "a-00000001/" ITEM, "loading");
    world->now_ms = T0 + DAY;
    run_all(world);
    const LhAssignment *order = look(world, "decided/assignments/cache/a-00000001/" ITEM);
    assert_int_equal(order->action, LH_ACTION_EVICT);
    assert_int_equal(count_below(world, "decided/replicas/"), 1);
    nodes_answer(world);
    run_all(world);
    assert_int_equal(count_below(world, "decided/replicas/"), 0);
    assert_int_equal(count_below(world, "decided/assignments/"), 0);
}

static void an_edit_taken_back_loads_again_what_was_evicted(void **state)
{
    g_autoptr(World) world = one_item_on_a("");

    (void)state;
    settle(world);
    put_service(world, "api", "\"cache\":{\"replicas\":0}");
    run_all(world);
    put_service(world, "api", "\"cache\":{\"replicas\":1}");
    settle(world);
    assert_int_equal(items_in(world, LH_ITEM_LIVE), 1);
}

static void progress_of_an_item_concerns_nobody(void **state)
{
    g_autoptr(World) world = one_item_on_a("");
    gint64 order = mod_rev(world, "decided/assignments/cache/a-00000001/" ITEM);
    LhObject *items[3];

    (void)state;
    for (int i = 0; i < 3; i++) {
        g_autofree char *value = g_strdup_printf("{\"state\":\"%s\",\"assignment\":%" PRId64
                                                 ",\"bytesDone\":%d}",
                                                 i < 2 ? "loading" : "live", order, i);
        items[i] = lh_object_parse(LH_KIND_ITEM, "cache/a-00000001/" ITEM, value, strlen(value), 1,
                                   900 + i, 0);
    }
    assert_true(lh_fleet_index.fold(world->index, NULL, items[0]));
    assert_false(lh_fleet_index.fold(world->index, items[0], items[1]));
    assert_true(lh_fleet_index.fold(world->index, items[1], items[2]));
    assert_true(lh_fleet_index.fold(world->index, items[2], NULL));
    for (int i = 0; i < 3; i++)
        lh_object_unref(items[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_gives_no_reason_is_said_to_give_none),
        cmocka_unit_test(a_lost_node_keeps_its_items_for_the_grace),
        cmocka_unit_test(six_restarts_within_the_grace_move_nothing),
        cmocka_unit_test(without_grace_it_goes_elsewhere_at_once),
        cmocka_unit_test(what_was_being_evicted_on_a_dead_node_is_gone),
        cmocka_unit_test(a_replica_that_expires_on_a_dead_node_goes_with_it),
        cmocka_unit_test(a_smaller_node_gets_back_what_fits),
        cmocka_unit_test(what_a_smaller_node_gives_up_is_still_missing),
        cmocka_unit_test(what_was_published_anew_does_not_return),
        cmocka_unit_test(a_node_that_returns_in_another_set_gets_nothing_back),
        cmocka_unit_test(a_node_that_returns_loads_no_more_than_it_may),
        cmocka_unit_test(an_unknown_registration_loses_nothing),
        cmocka_unit_test(failures_are_retried_elsewhere_and_later),
        cmocka_unit_test(what_is_in_backoff_still_misses_room),
        cmocka_unit_test(after_five_attempts_it_is_parked),
        cmocka_unit_test(a_deleted_retry_unparks),
        cmocka_unit_test(a_changed_snapshot_unparks_and_counts_anew),
        cmocka_unit_test(a_parked_replica_that_expires_leaves_nothing),
        cmocka_unit_test(a_status_that_outlived_its_replica_is_removed),
        cmocka_unit_test(an_answer_to_an_older_order_does_not_count),
        cmocka_unit_test(an_evicted_answer_that_changed_meanwhile_does_not_count),
        cmocka_unit_test(a_replica_that_expires_while_loading_is_cancelled),
        cmocka_unit_test(an_edit_taken_back_loads_again_what_was_evicted),
        cmocka_unit_test(progress_of_an_item_concerns_nobody),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
