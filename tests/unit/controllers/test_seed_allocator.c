/*
 * seed-allocator: where seeds go, when they move, what their assignments say; and, on random fleets with plans
 * carried out in part and in any order, that a policy is never on two managers and that all ends even.
 */
#include "controllers/explain.h"
#include "tests/unit/controllers/seed_world.h"
#include "tests/unit/every.h"

/* ---- one after the other ---- */

static void seeds_of_a_policy_are_together(void **state)
{
    g_autoptr(World) world = fleet_of(2);
    g_autofree char *at = NULL, *one = NULL, *two = NULL;
    const LhAssignment *first, *second;

    (void)state;
    accept_seed(world, "a", "slow", "started");
    accept_seed(world, "b", "slow", "started");
    accept_seed(world, "f1", NULL, "started");
    accept_seed(world, "f2", NULL, "started");
    settle_seeds(world);
    at = manager_of(world, "a");
    assert_non_null(at);
    assert_on(world, "b", at);
    first = load_of(world, "a");
    second = load_of(world, "b");
    assert_string_equal(first->seed,
                        "{\"url\":\"http://a/\",\"state\":\"started\",\"throttle\":{\"name\":"
                        "\"slow\",\"requests\":100,\"period\":\"1m\"}}");
    assert_string_equal(first->window, "{}"); /* nobody ever held it */
    assert_null(second->window);
    one = manager_of(world, "f1");
    two = manager_of(world, "f2");
    assert_string_not_equal(one, two);
    assert_int_equal(step(world, NAME), 0);
    assert_string_equal(((const LhStatus *)lookf(world, "decided/status/seeds/a/" NAME))->state,
                        "Live");
}

static void a_move_waits_for_all_and_hands_the_window_on(void **state)
{
    g_autoptr(World) world = fleet_of(1);
    const LhAssignment *order;
    static const char drained[] = "nodepolicies/manager/m0/" NAME;

    (void)state;
    accept_seed(world, "a", "slow", "started");
    accept_seed(world, "b", "slow", "started");
    settle_seeds(world);
    join_pool(world, LH_POOL_MANAGER, "n-00000001", "");
    put(world, "decided/accepted/nodepolicies/manager/m0",
        "{\"revision\":1,\"acceptedAt\":1,\"spec\":{\"drain\":true}}");
    run(world, NAME);
    assert_int_equal(order_of(world, "manager/m0-00000001/a")->action, LH_ACTION_EVICT);
    assert_int_equal(order_of(world, "manager/m0-00000001/b")->action, LH_ACTION_EVICT);
    assert_int_equal(condition_of(world, drained, "Drained")->status, LH_CONDITION_FALSE);
    answer_with(world, "manager/m0-00000001/a", "evicted", ",\"window\":{\"granted\":[[9,1]]}");
    accept_seed(world, "c", "slow", "started"); /* joins while the others move */
    run(world, NAME);
    assert_on(world, "a", "m0-00000001");
    assert_on(world, "c", NULL);
    answer_with(world, "manager/m0-00000001/b", "evicted", ",\"window\":{\"granted\":[[7,2]]}");
    assert_true(step(world, NAME) > 0);
    order = order_of(world, "manager/n-00000001/a");
    assert_non_null(order);
    assert_string_equal(order->window, "{\"granted\":[[7,2]]}");
    settle_seeds(world);
    assert_on(world, "a", "n-00000001");
    assert_on(world, "b", "n-00000001");
    assert_on(world, "c", "n-00000001");
    assert_null(load_of(world, "b")->window);
    assert_int_equal(condition_of(world, drained, "Drained")->status, LH_CONDITION_TRUE);
}

/* etcd was restored, and this instance leads since: what came with the backup says nothing of who held the
 * policies in the history that is lost, until the longest time for which that counts is over. */
static void etcd_was_restored(World *world)
{
    world->regressed = TRUE;
    world->regressed_rev = world->revision;
    world->led_ms = world->now_ms;
}

static void never_held_is_not_known_after_a_restoration(void **state)
{
    g_autoptr(World) world = fleet_of(1);

    (void)state;
    etcd_was_restored(world);
    accept_seed(world, "a", "slow", "started");
    settle_seeds(world);
    assert_null(load_of(world, "a")->window);
    accept_throttle(world, "other", "{\"requests\":100,\"period\":\"1m\"}");
    world->now_ms = world->led_ms + 60000;
    accept_seed(world, "b", "other", "started");
    settle_seeds(world);
    assert_string_equal(load_of(world, "b")->window, "{}");
}

static void what_a_move_of_the_backup_hands_on_is_old(void **state)
{
    g_autoptr(World) world = fleet_of(1);

    (void)state;
    accept_seed(world, "a", "slow", "started");
    settle_seeds(world);
    join_pool(world, LH_POOL_MANAGER, "n-00000001", "");
    put(world, "decided/accepted/nodepolicies/manager/m0",
        "{\"revision\":1,\"acceptedAt\":1,\"spec\":{\"drain\":true}}");
    run(world, NAME);
    answer_with(world, "manager/m0-00000001/a", "evicted", ",\"window\":{\"granted\":[[9,1]]}");
    etcd_was_restored(world);
    settle_seeds(world);
    assert_on(world, "a", "n-00000001");
    assert_null(load_of(world, "a")->window);
}

/* One joins the policy in place in the very plan in which its manager is first seen drained. */
static void nobody_joins_a_policy_that_begins_to_move(void **state)
{
    g_autoptr(World) world = fleet_of(1);

    (void)state;
    accept_seed(world, "a", "slow", "started");
    accept_seed(world, "c", NULL, "started");
    settle_seeds(world);
    join_pool(world, LH_POOL_MANAGER, "n-00000001", "");
    settings(world, "{\"autoRebalance\":false}");
    accept_seed(world, "c", "slow", "started");
    put(world, "decided/accepted/nodepolicies/manager/m0",
        "{\"revision\":1,\"acceptedAt\":1,\"spec\":{\"drain\":true}}");
    step(world, NAME);
    assert_non_null(strstr(load_of(world, "c")->seed, "slow"));
    assert_int_equal(order_of(world, "manager/m0-00000001/a")->action, LH_ACTION_LOAD);
    settle_seeds(world);
    assert_on(world, "a", "n-00000001");
    assert_on(world, "c", "n-00000001");
}

/* It is given another policy in the middle of a move: its old order is kept for the window of the others. */
static void who_leaves_a_moving_policy_waits_for_the_move(void **state)
{
    g_autoptr(World) world = fleet_of(1);

    (void)state;
    accept_throttle(world, "fast", "{\"requests\":100,\"period\":\"1m\"}");
    accept_seed(world, "a", "slow", "started");
    accept_seed(world, "b", "slow", "started");
    settle_seeds(world);
    join_pool(world, LH_POOL_MANAGER, "n-00000001", "");
    accept_seed(world, "c", "fast", "started");
    settle_seeds(world);
    assert_on(world, "c", "n-00000001");
    put(world, "decided/accepted/nodepolicies/manager/m0",
        "{\"revision\":1,\"acceptedAt\":1,\"spec\":{\"drain\":true}}");
    run(world, NAME);
    answer_with(world, "manager/m0-00000001/a", "evicted", ",\"window\":{\"granted\":[[9,1]]}");
    accept_seed(world, "a", "fast", "started");
    run(world, NAME);
    assert_null(order_of(world, "manager/n-00000001/a"));
    answer_with(world, "manager/m0-00000001/b", "evicted", ",\"window\":{\"granted\":[[7,2]]}");
    settle_seeds(world);
    assert_on(world, "a", "n-00000001");
    assert_on(world, "b", "n-00000001");
    assert_null(order_of(world, "manager/m0-00000001/a"));
}

/* The one that was acknowledged last is stopped, and there is no manager for the others yet. */
static void the_last_window_is_kept_until_it_is_handed_on(void **state)
{
    g_autoptr(World) world = fleet_of(1);

    (void)state;
    accept_seed(world, "a", "slow", "started");
    accept_seed(world, "b", "slow", "started");
    settle_seeds(world);
    join_pool(world, LH_POOL_MANAGER, "n-00000001", "");
    put(world, "decided/accepted/nodepolicies/manager/m0",
        "{\"revision\":1,\"acceptedAt\":1,\"spec\":{\"drain\":true}}");
    run(world, NAME);
    put(world, "decided/accepted/nodepolicies/manager/n",
        "{\"revision\":1,\"acceptedAt\":1,\"spec\":{\"cordon\":true}}");
    accept_seed(world, "b", "slow", "stopped");
    answer_with(world, "manager/m0-00000001/a", "evicted", ",\"window\":{\"granted\":[[9,1]]}");
    run(world, NAME);
    answer_with(world, "manager/m0-00000001/b", "evicted", ",\"window\":{\"granted\":[[7,2]]}");
    run(world, NAME);
    put(world, "decided/accepted/nodepolicies/manager/n",
        "{\"revision\":1,\"acceptedAt\":1,\"spec\":{}}");
    assert_true(step(world, NAME) > 0);
    assert_string_equal(order_of(world, "manager/n-00000001/a")->window, "{\"granted\":[[7,2]]}");
    settle_seeds(world);
    assert_on(world, "b", NULL);
}

static void paused_stopped_done(void **state)
{
    g_autoptr(World) world = fleet_of(1);

    (void)state;
    accept_seed(world, "a", NULL, "started");
    settle_seeds(world);
    accept_seed(world, "a", NULL, "paused");
    settle_seeds(world);
    assert_on(world, "a", "m0-00000001");
    assert_non_null(strstr(load_of(world, "a")->seed, "paused"));
    accept_seed(world, "a", NULL, "stopped");
    run(world, NAME);
    assert_int_equal(load_of(world, "a")->action, LH_ACTION_EVICT);
    settle_seeds(world);
    assert_on(world, "a", NULL);
    accept_seed(world, "a", NULL, "started");
    settle_seeds(world);
    answer_in_pool(world, "manager/m0-00000001/a", "done", "");
    settle_seeds(world);
    assert_on(world, "a", NULL);
    assert_null(lookf(world, "actual/items/manager/m0-00000001/a"));
    fail_over(world);
    settle_seeds(world);
    assert_on(world, "a", NULL);
    accept_seed(world, "a", NULL, "started");
    settle_seeds(world);
    assert_on(world, "a", "m0-00000001");
    del(world, "decided/accepted/seeds/a");
    settle_seeds(world);
    assert_on(world, "a", NULL);
    assert_int_equal(count_below(world, "decided/status/seeds/"), 0);
}

static void what_does_not_parse_is_left(void **state)
{
    g_autoptr(World) world = fleet_of(1);

    (void)state;
    accept_seed(world, "a", "slow", "started");
    accept_seed(world, "b", NULL, "started");
    settle_seeds(world);
    put(world, "decided/accepted/seeds/b", "{");
    put(world, "decided/accepted/throttles/slow", "{");
    accept_seed(world, "a", "slow", "stopped");
    accept_seed(world, "c", "slow", "started");
    run(world, NAME);
    assert_int_equal(load_of(world, "a")->action, LH_ACTION_LOAD);
    assert_int_equal(load_of(world, "b")->action, LH_ACTION_LOAD);
    assert_on(world, "c", NULL);
}

static void a_lost_manager_is_left_when_it_has_failed(void **state)
{
    g_autoptr(World) world = fleet_of(1);

    (void)state;
    accept_seed(world, "a", "slow", "started");
    accept_seed(world, "b", "slow", "started");
    settle_seeds(world);
    join_pool(world, LH_POOL_MANAGER, "n-00000001", "");
    leave_pool(world, LH_POOL_MANAGER, "m0-00000001");
    run(world, NAME);
    assert_on(world, "a", "m0-00000001");
    say_health(world, LH_POOL_MANAGER, "m0-00000001", "failed");
    settle_seeds(world);
    assert_on(world, "a", "n-00000001");
    assert_on(world, "b", "n-00000001");
    assert_null(load_of(world, "a")->window); /* nobody knows */
}

static void a_changed_throttle(void **state)
{
    g_autoptr(World) world = fleet_of(2);
    g_autofree char *at = NULL;

    (void)state;
    accept_throttle(world, "other", "{\"requests\":5,\"period\":\"1s\"}");
    accept_seed(world, "a", "slow", "started");
    accept_seed(world, "b", "other", "started");
    settle_seeds(world);
    at = manager_of(world, "b");
    accept_seed(world, "a", "other", "started");
    settle_seeds(world);
    assert_on(world, "a", at);
    accept_throttle(world, "third", "{\"requests\":5,\"period\":\"1s\"}");
    accept_seed(world, "a", "third", "started"); /* held by nobody */
    run(world, NAME);
    assert_on(world, "a", at);
    assert_int_equal(load_of(world, "a")->action, LH_ACTION_EVICT);
    assert_non_null(strstr(load_of(world, "a")->seed, "other"));
    settle_seeds(world);
    assert_non_null(strstr(load_of(world, "a")->seed, "third"));
    accept_throttle(world, "third", "{\"requests\":6,\"period\":\"1s\"}");
    settle_seeds(world);
    assert_non_null(strstr(load_of(world, "a")->seed, "\"requests\":6"));
}

/* To another policy on the only manager there is: what ended there under the old one is taken first. */
static void a_changed_throttle_on_the_same_manager(void **state)
{
    g_autoptr(World) world = fleet_of(1);

    (void)state;
    accept_throttle(world, "other", "{\"requests\":5,\"period\":\"1s\"}");
    accept_seed(world, "a", "slow", "started");
    accept_seed(world, "b", "slow", "started");
    settle_seeds(world);
    accept_seed(world, "a", "other", "started");
    settle_seeds(world);
    assert_on(world, "a", "m0-00000001");
    assert_non_null(strstr(load_of(world, "a")->seed, "other"));
    assert_int_equal(load_of(world, "a")->action, LH_ACTION_LOAD);
}

/* The last seed of a policy leaves it: nobody else gets that policy while the node may still crawl under it. */
static void a_policy_that_is_left_is_held_until_that_is_acknowledged(void **state)
{
    static const char *const next[] = {"other", NULL};

    (void)state;
    for (guint i = 0; i < G_N_ELEMENTS(next); i++) {
        g_autoptr(World) world = fleet_of(2);
        g_autofree char *at = NULL;
        accept_throttle(world, "other", "{\"requests\":5,\"period\":\"1s\"}");
        accept_seed(world, "a", "slow", "started");
        settle_seeds(world);
        at = manager_of(world, "a");
        accept_seed(world, "a", next[i], "started");
        run(world, NAME);
        run(world, NAME);
        accept_seed(world, "b", "slow", "started");
        run(world, NAME);
        g_autofree char *b = manager_of(world, "b");
        assert_true(b == NULL || strcmp(b, at) == 0);
        settle_seeds(world);
        assert_non_null(load_of(world, "a"));
        assert_non_null(load_of(world, "b"));
        if (next[i] == NULL)
            assert_null(strstr(load_of(world, "a")->seed, "throttle"));
    }
}

static void a_manual_rebalance_is_carried_out_once(void **state)
{
    g_autoptr(World) world = fleet_of(1);
    const LhCondition *condition;
    guint loads;

    (void)state;
    settings(world, "{\"autoRebalance\":false}");
    for (guint i = 0; i < 10; i++) {
        g_autofree char *name = g_strdup_printf("f%u", i);
        accept_seed(world, name, NULL, "started");
    }
    settle_seeds(world);
    join_pool(world, LH_POOL_MANAGER, "n-00000001", "");
    settle_seeds(world);
    assert_int_equal(count_below(world, "decided/assignments/manager/n-"), 0);
    settings(world, "{\"autoRebalance\":false,\"rebalanceAt\":\"2026-01-01T00:00:00Z\"}");
    loads = world->loads;
    settle_seeds(world);
    assert_int_equal(world->loads, loads + 5);
    condition = condition_of(world, "settings/" NAME "/" NAME, "Rebalanced");
    assert_int_equal(condition->status, LH_CONDITION_TRUE);
    settings(world, "{\"autoRebalance\":false,\"rebalanceAt\":\"2026-01-02T00:00:00Z\"}");
    settle_seeds(world);
    assert_int_equal(world->loads, loads + 5);
    assert_non_null(strstr(condition_of(world, "settings/" NAME "/" NAME, "Rebalanced")->message,
                           "2026-01-02"));
}

static void a_group_that_fits_nowhere_waits(void **state)
{
    g_autoptr(World) world = world_new();

    (void)state;
    join_pool(world, LH_POOL_MANAGER, "m-00000001", ",\"capacityItems\":1");
    accept_throttle(world, "slow", "{\"requests\":100,\"period\":\"1m\"}");
    accept_seed(world, "a", "slow", "started");
    accept_seed(world, "b", "slow", "started");
    settle_seeds(world);
    assert_int_equal(count_below(world, "decided/assignments/manager/"), 0);
    assert_int_equal(condition_of(world, "settings/" NAME "/" NAME, "Capacity")->status,
                     LH_CONDITION_FALSE);
}

static void assert_missing(World *world, const char *message)
{
    const LhCondition *condition;

    settle_seeds(world);
    condition = condition_of(world, "settings/" NAME "/" NAME, "Capacity");
    assert_int_equal(condition->status, LH_CONDITION_FALSE);
    assert_string_equal(condition->message, message);
}

static void why_nothing_takes_it_is_said(void **state)
{
    g_autoptr(World) world = world_new();
    const LhCondition *waits;

    (void)state;
    accept_seed(world, "a", NULL, "started");
    assert_missing(world, "1 seed has no manager: no manager is there");
    join_pool(world, LH_POOL_MANAGER, "m-00000001", ",\"capacityItems\":1");
    put(world, "decided/accepted/nodepolicies/manager/m",
        "{\"revision\":1,\"acceptedAt\":1,\"spec\":{\"cordon\":true}}");
    assert_missing(world, "1 seed has no manager: no manager takes new seeds");
    put(world, "decided/accepted/nodepolicies/manager/m",
        "{\"revision\":1,\"acceptedAt\":1,\"spec\":{}}");
    accept_seed(world, "b", NULL, "started");
    accept_seed(world, "c", NULL, "started");
    settings(world, "{\"rebalanceAt\":\"2026-01-01T00:00:00Z\"}");
    assert_missing(world, "2 seeds have no manager: none has room");
    waits = condition_of(world, "settings/" NAME "/" NAME, "Rebalanced");
    assert_int_equal(waits->status, LH_CONDITION_FALSE);
    assert_string_equal(waits->message, "2 seeds have no manager: none has room");
    leave_pool(world, LH_POOL_MANAGER, "m-00000001");
    say_health(world, LH_POOL_MANAGER, "m-00000001", "failed");
    assert_missing(world, "3 seeds have no manager: no manager is there");
}

static void a_failed_load_waits_and_is_parked(void **state)
{
    g_autoptr(World) world = fleet_of(1);

    (void)state;
    accept_seed(world, "a", NULL, "started");
    for (guint i = 0; i < 5; i++) {
        run(world, NAME);
        answer_in_pool(world, "manager/m0-00000001/a", "failed", "no route");
        run(world, NAME);
        assert_on(world, "a", NULL);
        world->now_ms += HOUR;
    }
    run(world, NAME);
    assert_on(world, "a", NULL);
    assert_string_equal(((const LhStatus *)lookf(world, "decided/status/seeds/a/" NAME))->state,
                        "Parked");
}

static void it_is_explained(void **state)
{
    g_autoptr(World) world = fleet_of(0);
    const LhPlanContext context = {.now_ms = T0, .max_groups = G_MAXUINT};
    const char *is;
    g_autoptr(GPtrArray) lines = NULL;
    gboolean why = FALSE, holder = FALSE;

    (void)state;
    accept_seed(world, "a", "slow", "started");
    lines = lh_explain_pool(world->pools, &context, LH_POOL_MANAGER, "a", &is);
    assert_non_null(lines);
    assert_string_equal(is, "Waiting");
    g_ptr_array_set_free_func(lines, g_free);
    for (guint i = 0; i < lines->len; i++) {
        why = why || strstr(lines->pdata[i], "rule wait-capacity: no manager is there") != NULL;
        holder = holder || strstr(lines->pdata[i], "policy slow is held by nobody") != NULL;
    }
    assert_true(why && holder);
}

/* ---- random fleets ---- */

/* Some of its groups, in any order. */
static void carry_out(World *world, const LhPlan *plan, GRand *rand)
{
    guint n = lh_plan_groups(plan), kept = n == 0 ? 0 : (guint)g_rand_int_range(rand, 0, (gint32)n);

    for (guint i = 0; i < kept; i++) {
        apply_group(world, plan, (guint)g_rand_int_range(rand, 0, (gint32)n));
        assert_not_split(world);
    }
}

/* One plan after the other; sometimes what is left of an old one, that should have been fenced, comes too. */
static void step_partly(World *world, LhPlan **old, GRand *rand)
{
    g_autoptr(LhPlan) plan = NULL;

    if (*old != NULL && g_rand_boolean(rand))
        carry_out(world, *old, rand);
    plan = plan_of(world, NAME);
    carry_out(world, plan, rand);
    if (g_rand_int_range(rand, 0, 4) == 0) {
        lh_plan_free(*old);
        *old = g_steal_pointer(&plan);
    }
}

/* Some node has ended a crawl, whatever it was told last. */
static void one_is_done(World *world, GRand *rand)
{
    g_autoptr(GPtrArray) orders = keys_below(world, "decided/assignments/manager/");
    const LhAssignment *order;
    g_autofree char *name = NULL, *id = NULL;

    if (orders->len == 0)
        return;
    order = look(world, orders->pdata[g_rand_int_range(rand, 0, (gint32)orders->len)]);
    name = g_strdup(order->o.name);
    id = lh_name_part(name, 1);
    if (lookf(world, "actual/nodes/manager/%s", id) == NULL)
        return;
    g_hash_table_add(released, order_id(name, order->o.mod_rev));
    answer_in_pool(world, name, "done", "");
}

static void disturb(World *world, GRand *rand)
{
    static const char *const states[] = {"started", "started", "started", "paused", "stopped"};
    g_autofree char *seed = g_strdup_printf("s%d", g_rand_int_range(rand, 0, 40));
    g_autofree char *policy = g_strdup_printf("p%d", g_rand_int_range(rand, 0, 4));
    g_autofree char *id = g_strdup_printf("m%d-0000000%d", g_rand_int_range(rand, 0, 4),
                                          g_rand_int_range(rand, 1, 4));
    g_autofree char *health = g_strconcat("decided/health/manager/", id, NULL);
    g_autofree char *node = g_strconcat("actual/nodes/manager/", id, NULL);

    switch (g_rand_int_range(rand, 0, 10)) {
    case 0:
        if (look(world, health) == NULL && look(world, node) == NULL)
            join_pool(world, LH_POOL_MANAGER, id, "");
        return;
    case 1:
        if (look(world, node) != NULL && g_rand_boolean(rand))
            leave_pool(world, LH_POOL_MANAGER, id);
        return;
    case 2:
        if (look(world, node) == NULL)
            say_health(world, LH_POOL_MANAGER, id, "failed");
        return;
    case 3:
        putf(world, "decided/accepted/nodepolicies/manager/m1",
             "{\"revision\":1,\"acceptedAt\":1,\"spec\":{\"drain\":%s}}",
             g_rand_boolean(rand) ? "true" : "false");
        return;
    case 4:
        one_is_done(world, rand);
        return;
    default:
        accept_seed(world, seed, g_rand_boolean(rand) ? policy : NULL,
                    states[g_rand_int_range(rand, 0, 5)]);
        world->now_ms += SECOND;
    }
}

static void assert_same_index(const World *world, GRand *rand)
{
    gpointer again = rebuilt_of(world, &lh_pools_index, rand);
    g_autoptr(LhPlan) one = plan_of(world, NAME);
    g_autoptr(LhPlan) two = plan_on(world, again, NAME);
    g_autofree char *first = plan_text(one), *second = plan_text(two);

    assert_string_equal(first, second);
    lh_pools_index.free(again);
}

static void mend(World *world)
{
    g_autoptr(GPtrArray) orders = keys_below(world, "decided/assignments/manager/");

    put(world, "decided/accepted/nodepolicies/manager/m1",
        "{\"revision\":1,\"acceptedAt\":1,\"spec\":{}}");
    for (guint i = 0; i < orders->len; i++) {
        g_autofree char *id = lh_name_part(
            (const char *)orders->pdata[i] + strlen("decided/assignments/"), 1);
        if (lookf(world, "actual/nodes/manager/%s", id) == NULL)
            say_health(world, LH_POOL_MANAGER, id, "failed");
    }
    join_pool(world, LH_POOL_MANAGER, "m8-00000001", "");
    join_pool(world, LH_POOL_MANAGER, "m9-00000001", "");
}

static void assert_even(const World *world)
{
    const LhPoolView *view = view_in(world, LH_POOL_MANAGER);
    g_autoptr(GArray) takers = lh_pool_takers(view);
    gint64 least = G_MAXINT64, most = 0;

    for (guint i = 0; i < takers->len; i++) {
        const LhPoolNode *node = g_array_index(takers, LhPoolTaker, i).node;
        least = MIN(least, node->free_seeds);
        most = MAX(most, node->free_seeds);
    }
    assert_true(most - least <= 1);
}

static void random_fleets(void **state)
{
    (void)state;
    released = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
    for (guint32 seed = 1; seed <= 60; seed += every()) {
        g_hash_table_remove_all(released);
        g_autoptr(GRand) rand = g_rand_new_with_seed(seed);
        g_autoptr(World) world = fleet_of(2);
        g_autoptr(LhPlan) old = NULL;
        for (guint i = 0; i < 4; i++) {
            g_autofree char *name = g_strdup_printf("p%u", i);
            accept_throttle(world, name, "{\"requests\":5,\"period\":\"1s\"}");
        }
        for (guint i = 0; i < 150; i++) {
            disturb(world, rand);
            if (g_rand_boolean(rand))
                managers_answer(world, rand);
            world->max_groups = (guint)g_rand_int_range(rand, 1, 40);
            step_partly(world, &old, rand);
            assert_not_split(world);
            if (i % 10 == 0)
                assert_same_index(world, rand);
        }
        world->max_groups = G_MAXUINT;
        mend(world);
        settle_seeds(world);
        assert_not_split(world);
        assert_even(world);
        assert_int_equal(step(world, NAME), 0);
    }
    g_clear_pointer(&released, g_hash_table_unref);
}

static void a_large_fleet_moves_only_what_it_must(void **state)
{
    g_autoptr(World) world = fleet_of(4);
    guint loads;

    (void)state;
    for (guint i = 0; i < 500; i++) {
        g_autofree char *name = g_strdup_printf("f%03u", i);
        accept_seed(world, name, NULL, "started");
    }
    for (guint i = 0; i < 500; i++) {
        g_autofree char *name = g_strdup_printf("t%03u", i);
        g_autofree char *policy = g_strdup_printf("q%02u", i % 20);
        if (i < 20)
            accept_throttle(world, policy, "{\"requests\":5,\"period\":\"1s\"}");
        accept_seed(world, name, policy, "started");
    }
    settle_seeds(world);
    assert_not_split(world);
    assert_even(world);
    assert_int_equal(world->loads, 1000);
    join_pool(world, LH_POOL_MANAGER, "m4-00000001", "");
    loads = world->loads;
    settle_seeds(world);
    assert_not_split(world);
    assert_even(world);
    assert_int_equal(world->loads - loads, 100 + 4 * 25);
    assert_int_equal(count_below(world, "decided/assignments/manager/m4-"), 200);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(seeds_of_a_policy_are_together),
        cmocka_unit_test(a_move_waits_for_all_and_hands_the_window_on),
        cmocka_unit_test(never_held_is_not_known_after_a_restoration),
        cmocka_unit_test(what_a_move_of_the_backup_hands_on_is_old),
        cmocka_unit_test(nobody_joins_a_policy_that_begins_to_move),
        cmocka_unit_test(who_leaves_a_moving_policy_waits_for_the_move),
        cmocka_unit_test(the_last_window_is_kept_until_it_is_handed_on),
        cmocka_unit_test(paused_stopped_done),
        cmocka_unit_test(what_does_not_parse_is_left),
        cmocka_unit_test(a_lost_manager_is_left_when_it_has_failed),
        cmocka_unit_test(a_changed_throttle),
        cmocka_unit_test(a_changed_throttle_on_the_same_manager),
        cmocka_unit_test(a_policy_that_is_left_is_held_until_that_is_acknowledged),
        cmocka_unit_test(a_manual_rebalance_is_carried_out_once),
        cmocka_unit_test(a_group_that_fits_nowhere_waits),
        cmocka_unit_test(why_nothing_takes_it_is_said),
        cmocka_unit_test(a_failed_load_waits_and_is_parked),
        cmocka_unit_test(it_is_explained),
        cmocka_unit_test(random_fleets),
        cmocka_unit_test(a_large_fleet_moves_only_what_it_must),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
