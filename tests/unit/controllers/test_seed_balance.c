/*
 * seed-allocator: how even it makes crawl managers, and with how few moves. First one fleet after the other, then
 * properties of random ones: whole policies and seeds without one, on managers with and without limits.
 */
#include "tests/unit/controllers/seed_world.h"

#define MANUAL     "{\"autoRebalance\":false}"
#define ASKED(day) "{\"autoRebalance\":false,\"rebalanceAt\":\"2026-01-0" #day "T00:00:00Z\"}"

static void cordon(World *world, const char *host, gboolean on)
{
    g_autofree char *key = g_strconcat("decided/accepted/nodepolicies/manager/", host, NULL);

    putf(world, key, "{\"revision\":1,\"acceptedAt\":1,\"spec\":{\"cordon\":%s}}",
         on ? "true" : "false");
}

/* A policy of that name with @size seeds, "<policy>-00" and so on. */
static void accept_group(World *world, const char *policy, guint size)
{
    accept_throttle(world, policy, "{\"requests\":5,\"period\":\"1s\"}");
    for (guint i = 0; i < size; i++) {
        g_autofree char *name = g_strdup_printf("%s-%02u", policy, i);
        accept_seed(world, name, policy, "started");
    }
}

static void accept_free(World *world, const char *prefix, guint n)
{
    for (guint i = 0; i < n; i++) {
        g_autofree char *name = g_strdup_printf("%s-%03u", prefix, i);
        accept_seed(world, name, NULL, "started");
    }
}

static guint on(const World *world, const char *id)
{
    g_autofree char *below = g_strdup_printf("decided/assignments/manager/%s/", id);

    return count_below(world, below);
}

/* A group of two and one without a policy; a group of one; nothing. */
static void a_seed_moves_for_the_sake_of_the_total(void **state)
{
    g_autoptr(World) world = fleet_of(1);
    guint loads;

    (void)state;
    settings(world, MANUAL);
    accept_group(world, "two", 2);
    accept_free(world, "f", 1);
    settle_seeds(world);
    join_pool(world, LH_POOL_MANAGER, "m1-00000001", "");
    accept_group(world, "one", 1);
    settle_seeds(world);
    join_pool(world, LH_POOL_MANAGER, "m2-00000001", "");
    settle_seeds(world);
    assert_int_equal(on(world, "m0-00000001"), 3);
    assert_int_equal(on(world, "m1-00000001"), 1);
    loads = world->loads;
    settings(world, ASKED(1));
    settle_seeds(world);
    assert_on(world, "f-000", "m2-00000001");
    assert_int_equal(world->loads, loads + 1);
    settings(world, ASKED(2));
    settle_seeds(world);
    assert_int_equal(world->loads, loads + 1);
}

/* What cannot be moved for its size does not keep the others from being made even. */
static void the_largest_policy_does_not_hide_the_others(void **state)
{
    g_autoptr(World) world = fleet_of(1);
    guint loads;

    (void)state;
    settings(world, MANUAL);
    accept_group(world, "huge", 20);
    settle_seeds(world);
    join_pool(world, LH_POOL_MANAGER, "m1-00000001", "");
    for (guint i = 0; i < 5; i++) {
        g_autofree char *policy = g_strdup_printf("p%u", i);
        accept_group(world, policy, 2);
    }
    settle_seeds(world);
    assert_int_equal(on(world, "m1-00000001"), 10);
    join_pool(world, LH_POOL_MANAGER, "m2-00000001", "");
    loads = world->loads;
    settings(world, ASKED(1));
    settle_seeds(world);
    assert_int_equal(on(world, "m0-00000001"), 20);
    assert_int_equal(on(world, "m2-00000001"), 4);
    assert_int_equal(world->loads, loads + 4);
}

/* Nobody evens seeds without a policy: then the fewest seeds are the fewest of all. */
static void without_rebalancing_a_policy_goes_to_the_fewest_of_all(void **state)
{
    g_autoptr(World) world = fleet_of(1);

    (void)state;
    settings(world, MANUAL);
    accept_free(world, "f", 10);
    settle_seeds(world);
    join_pool(world, LH_POOL_MANAGER, "m1-00000001", "");
    accept_group(world, "one", 2);
    settle_seeds(world);
    accept_group(world, "two", 2);
    settle_seeds(world);
    assert_int_equal(on(world, "m1-00000001"), 4);
}

/* With rebalancing, the seeds that are to be moved away do not count. */
static void with_rebalancing_a_policy_goes_where_it_can_stay(void **state)
{
    g_autoptr(World) world = fleet_of(1);

    (void)state;
    accept_free(world, "f", 10);
    settle_seeds(world);
    join_pool(world, LH_POOL_MANAGER, "m1-00000001", "");
    accept_group(world, "one", 2);
    accept_group(world, "two", 2);
    run(world, NAME);
    settle_seeds(world);
    assert_int_equal(on(world, "m0-00000001"), 7);
    assert_int_equal(on(world, "m1-00000001"), 7);
}

static void assert_live(const World *world, const char *id, guint n)
{
    g_autofree char *below = g_strdup_printf("actual/items/manager/%s/", id);
    g_autoptr(GPtrArray) items = keys_below(world, below);

    assert_int_equal(on(world, id), n);
    assert_int_equal(items->len, n);
    for (guint i = 0; i < items->len; i++)
        assert_int_equal(((const LhItem *)look(world, items->pdata[i]))->state, LH_ITEM_LIVE);
}

/* Their own orders take the room at home until they are placed. */
static void what_was_to_move_can_stay_where_it_was(void **state)
{
    (void)state;
    for (gint of = 0; of < 2; of++) {
        g_autoptr(World) world = world_new();
        join_pool(world, LH_POOL_MANAGER, "m0-00000001", ",\"capacityItems\":4");
        if (of == 0)
            accept_group(world, "one", 4);
        else
            accept_free(world, "f", 4);
        settle_seeds(world);
        join_pool(world, LH_POOL_MANAGER, "m1-00000001", "");
        put(world, "decided/accepted/nodepolicies/manager/m0",
            "{\"revision\":1,\"acceptedAt\":1,\"spec\":{\"drain\":true}}");
        run(world, NAME);
        cordon(world, "m1", TRUE);
        cordon(world, "m0", FALSE);
        settle_seeds(world);
        assert_live(world, "m0-00000001", 4);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_seed_moves_for_the_sake_of_the_total),
        cmocka_unit_test(the_largest_policy_does_not_hide_the_others),
        cmocka_unit_test(without_rebalancing_a_policy_goes_to_the_fewest_of_all),
        cmocka_unit_test(with_rebalancing_a_policy_goes_where_it_can_stay),
        cmocka_unit_test(what_was_to_move_can_stay_where_it_was),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
