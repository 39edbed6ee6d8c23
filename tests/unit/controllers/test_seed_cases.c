/*
 * seed-allocator: what settings, priorities and health change about where seeds go; and what becomes of a seed that
 * is paused, stopped or done while its policy is moved.
 */
#include "tests/unit/controllers/seed_world.h"

#define DRAINED(on) "{\"revision\":1,\"acceptedAt\":1,\"spec\":{\"drain\":" on "}}"

/* ---- failureGrace ---- */

static void loses(World *world, const char *id)
{
    g_autofree char *health = g_strconcat("decided/health/manager/", id, NULL);

    leave_pool(world, LH_POOL_MANAGER, id);
    putf(world, health, "{\"state\":\"failed\",\"since\":%" PRId64 ",\"missingSince\":%" PRId64 "}",
         world->now_ms, world->now_ms);
}

/* Two of a policy and one without on m0, which is lost; m1 is there. */
static World *fleet_that_lost_one(void)
{
    World *world = fleet_of(1);

    settings(world, "{\"failureGrace\":\"60s\"}");
    accept_seed(world, "a", "slow", "started");
    accept_seed(world, "b", "slow", "started");
    accept_seed(world, "f", NULL, "started");
    settle_seeds(world);
    join_pool(world, LH_POOL_MANAGER, "m1-00000001", "");
    settings(world, "{\"failureGrace\":\"60s\",\"autoRebalance\":false}");
    loses(world, "m0-00000001");
    return world;
}

static void a_manager_that_comes_back_gets_its_seeds(void **state)
{
    g_autoptr(World) world = fleet_that_lost_one();
    g_autoptr(LhPlan) plan = NULL;

    (void)state;
    settle_seeds(world);
    assert_int_equal(count_below(world, "decided/assignments/manager/m1-"), 0);
    plan = plan_of(world, NAME);
    assert_string_equal(note_rule(plan, "seeds/a"), "wait-grace");
    assert_string_equal(note_rule(plan, "seeds/f"), "wait-grace");
    assert_int_equal(plan->wake_ms, world->now_ms + 60 * SECOND);
    world->now_ms += 60 * SECOND - 1;
    join_pool(world, LH_POOL_MANAGER, "m0-00000002", "");
    settle_seeds(world);
    assert_on(world, "a", "m0-00000002");
    assert_on(world, "b", "m0-00000002");
    assert_on(world, "f", "m0-00000002");
}

static void after_its_grace_its_seeds_go_elsewhere(void **state)
{
    g_autoptr(World) world = fleet_that_lost_one();

    (void)state;
    settle_seeds(world);
    world->now_ms += 60 * SECOND;
    settle_seeds(world);
    assert_on(world, "a", "m1-00000001");
    assert_on(world, "b", "m1-00000001");
    assert_on(world, "f", "m1-00000001");
}

/* ---- priority ---- */

static void accept_urgent(World *world, const char *name, const char *throttle, int priority)
{
    g_autofree char *key = g_strconcat("decided/accepted/seeds/", name, NULL);
    g_autofree char *by = throttle == NULL ? g_strdup("")
                                           : g_strdup_printf(",\"throttle\":\"%s\"", throttle);

    putf(world, key,
         "{\"revision\":%" PRId64
         ",\"acceptedAt\":1,\"spec\":{\"url\":\"http://x/\",\"priority\":%d%s}}",
         world->revision, priority, by);
}

/* Where there is not room for all, the most urgent are placed; a policy is as urgent as its most urgent seed. */
static void the_most_urgent_are_placed_first(void **state)
{
    g_autoptr(World) world = fleet_of(0);

    (void)state;
    accept_urgent(world, "a", NULL, 1);
    accept_urgent(world, "b", NULL, 5);
    accept_urgent(world, "c", NULL, 3);
    accept_urgent(world, "g-1", "slow", 0);
    accept_urgent(world, "g-2", "slow", 4);
    settle_seeds(world);
    join_pool(world, LH_POOL_MANAGER, "m0-00000001", ",\"capacityItems\":3");
    settle_seeds(world);
    assert_on(world, "b", "m0-00000001");
    assert_on(world, "g-1", "m0-00000001");
    assert_on(world, "g-2", "m0-00000001");
    assert_on(world, "a", NULL);
    assert_on(world, "c", NULL);
    join_pool(world, LH_POOL_MANAGER, "m1-00000001", ",\"capacityItems\":1");
    settle_seeds(world);
    assert_on(world, "c", "m1-00000001");
    assert_on(world, "a", NULL);
}

/* ---- probation ---- */

static void on_probation_a_manager_gets_half_a_share(void **state)
{
    g_autoptr(World) world = fleet_of(2);

    (void)state;
    say_health(world, LH_POOL_MANAGER, "m1-00000001", "probation");
    for (guint i = 0; i < 12; i++) {
        g_autofree char *name = g_strdup_printf("f%02u", i);
        accept_seed(world, name, NULL, "started");
    }
    settle_seeds(world);
    assert_int_equal(count_below(world, "decided/assignments/manager/m0-"), 9);
    assert_int_equal(count_below(world, "decided/assignments/manager/m1-"), 3);
    say_health(world, LH_POOL_MANAGER, "m1-00000001", "healthy");
    settle_seeds(world);
    assert_int_equal(count_below(world, "decided/assignments/manager/m0-"), 6);
    assert_int_equal(count_below(world, "decided/assignments/manager/m1-"), 6);
    say_health(world, LH_POOL_MANAGER, "m1-00000001", "probation");
    settle_seeds(world); /* what it has it keeps */
    assert_int_equal(count_below(world, "decided/assignments/manager/m1-"), 6);
}

/* ---- rebalanceThreshold ---- */

static void threshold_of(World *world, guint n, const char *asked)
{
    g_autofree char *spec = g_strdup_printf("{\"rebalanceThreshold\":%u%s%s%s}", n,
                                            asked == NULL ? "" : ",\"rebalanceAt\":\"",
                                            asked == NULL ? "" : asked, asked == NULL ? "" : "\"");

    settings(world, spec);
}

/* Up to the threshold they may differ; a person who asks gets them even. */
static void within_the_threshold_nothing_moves(void **state)
{
    g_autoptr(World) world = fleet_of(1);
    guint loads;

    (void)state;
    threshold_of(world, 3, NULL);
    for (guint i = 0; i < 3; i++) {
        g_autofree char *name = g_strdup_printf("f%u", i);
        accept_seed(world, name, NULL, "started");
    }
    settle_seeds(world);
    join_pool(world, LH_POOL_MANAGER, "m1-00000001", "");
    loads = world->loads;
    settle_seeds(world);
    assert_int_equal(world->loads, loads);
    accept_seed(world, "f3", NULL, "started"); /* to m1 */
    settle_seeds(world);
    assert_int_equal(count_below(world, "decided/assignments/manager/m1-"), 1);
    threshold_of(world, 3, "2026-01-01T00:00:00Z");
    loads = world->loads;
    settle_seeds(world);
    assert_int_equal(world->loads, loads + 1);
    join_pool(world, LH_POOL_MANAGER, "m2-00000001", "");
    settle_seeds(world);
    assert_int_equal(count_below(world, "decided/assignments/manager/m2-"), 0);
    threshold_of(world, 1, "2026-01-01T00:00:00Z");
    settle_seeds(world);
    assert_int_equal(count_below(world, "decided/assignments/manager/m2-"), 1);
}

static void beyond_the_threshold_policies_move(void **state)
{
    g_autoptr(World) world = fleet_of(1);
    static const char *const of[] = {"one", "one", "two", "two", NULL};

    (void)state;
    threshold_of(world, 4, NULL);
    accept_throttle(world, "one", "{\"requests\":5,\"period\":\"1s\"}");
    accept_throttle(world, "two", "{\"requests\":5,\"period\":\"1s\"}");
    for (guint i = 0; i < 4; i++) {
        g_autofree char *name = g_strdup_printf("s%u", i);
        accept_seed(world, name, of[i], "started");
    }
    settle_seeds(world);
    join_pool(world, LH_POOL_MANAGER, "m1-00000001", "");
    settle_seeds(world);
    assert_int_equal(count_below(world, "decided/assignments/manager/m1-"), 0);
    accept_seed(world, "s4", "one", "started");
    settle_seeds(world);
    assert_int_equal(count_below(world, "decided/assignments/manager/m1-"), 3);
    assert_on(world, "s2", "m0-00000001");
    assert_on(world, "s4", "m1-00000001");
}

/* A policy is not moved by itself for a difference of less than a tenth; a person who asks gets them even. */
static void a_small_difference_interrupts_no_crawl(void **state)
{
    g_autoptr(World) world = fleet_of(2);
    static const struct {
        const char *policy;
        guint n;
    } all[] = {{"a", 30}, {"b", 28}, {"c", 2}, {"e", 1}};
    guint loads;

    (void)state;
    for (guint i = 0; i < G_N_ELEMENTS(all); i++) {
        accept_throttle(world, all[i].policy, "{\"requests\":5,\"period\":\"1s\"}");
        for (guint j = 0; j < all[i].n; j++) {
            g_autofree char *name = g_strdup_printf("%s%02u", all[i].policy, j);
            accept_seed(world, name, all[i].policy, "started");
        }
        settle_seeds(world);
    }
    accept_seed(world, "b00", "b", "stopped");
    loads = world->loads;
    settle_seeds(world);
    assert_int_equal(world->loads, loads);
    assert_int_equal(count_below(world, "decided/assignments/manager/m0-"), 31);
    assert_int_equal(count_below(world, "decided/assignments/manager/m1-"), 29);
    threshold_of(world, 1, "2026-01-01T00:00:00Z");
    settle_seeds(world);
    assert_int_equal(world->loads, loads + 1);
    assert_on(world, "e00", "m1-00000001");
}

/* ---- edited while they move ---- */

/* a, b and c of one policy are ordered off m0. */
static World *fleet_that_moves(void)
{
    World *world = fleet_of(1);

    accept_seed(world, "a", "slow", "started");
    accept_seed(world, "b", "slow", "started");
    accept_seed(world, "c", "slow", "started");
    settle_seeds(world);
    join_pool(world, LH_POOL_MANAGER, "n-00000001", "");
    put(world, "decided/accepted/nodepolicies/manager/m0", DRAINED("true"));
    run(world, NAME);
    assert_int_equal(load_of(world, "c")->action, LH_ACTION_EVICT);
    return world;
}

static const char *state_of(const World *world, const char *seed)
{
    const LhStatus *status = lookf(world, "decided/status/seeds/%s/" NAME, seed);

    return status == NULL ? NULL : status->state;
}

static void who_is_paused_in_a_move_moves(void **state)
{
    g_autoptr(World) world = fleet_that_moves();

    (void)state;
    accept_seed(world, "b", "slow", "paused");
    settle_seeds(world);
    assert_on(world, "a", "n-00000001");
    assert_on(world, "b", "n-00000001");
    assert_on(world, "c", "n-00000001");
    assert_non_null(strstr(load_of(world, "b")->seed, "paused"));
    assert_string_equal(state_of(world, "b"), "Paused");
}

static void who_is_stopped_in_a_move_stays_behind(void **state)
{
    g_autoptr(World) world = fleet_that_moves();

    (void)state;
    answer_with(world, "manager/m0-00000001/a", "evicted", ",\"window\":{\"granted\":[[9,1]]}");
    accept_seed(world, "a", "slow", "stopped");
    settle_seeds(world);
    assert_on(world, "a", NULL);
    assert_on(world, "b", "n-00000001");
    assert_on(world, "c", "n-00000001");
    assert_string_equal(state_of(world, "a"), "Stopped");
    accept_seed(world, "a", "slow", "started");
    settle_seeds(world);
    assert_on(world, "a", "n-00000001");
}

/* A node that has done it answers so, whatever it is told. It is not begun again elsewhere; and since it may have
 * granted what the others' last words do not say, nothing is handed on. */
static void who_is_done_in_a_move_is_done(void **state)
{
    g_autoptr(World) world = fleet_that_moves();

    (void)state;
    answer_with(world, "manager/m0-00000001/a", "evicted", ",\"window\":{\"granted\":[[9,1]]}");
    answer_with(world, "manager/m0-00000001/b", "evicted", ",\"window\":{\"granted\":[[9,1]]}");
    answer_in_pool(world, "manager/m0-00000001/c", "done", "");
    assert_true(step(world, NAME) > 0);
    assert_null(order_of(world, "manager/n-00000001/a")->window);
    settle_seeds(world);
    assert_on(world, "a", "n-00000001");
    assert_on(world, "b", "n-00000001");
    assert_on(world, "c", NULL);
    assert_string_equal(state_of(world, "c"), "Done");
    assert_int_equal(count_below(world, "actual/items/manager/m0-"), 0);
}

/* The first of them, and the others were acknowledged after it: the last word has all that was granted. */
static void who_is_done_first_in_a_move_is_done(void **state)
{
    g_autoptr(World) world = fleet_that_moves();

    (void)state;
    answer_in_pool(world, "manager/m0-00000001/a", "done", "");
    answer_with(world, "manager/m0-00000001/b", "evicted", ",\"window\":{\"granted\":[[9,1]]}");
    answer_with(world, "manager/m0-00000001/c", "evicted", ",\"window\":{\"granted\":[[7,2]]}");
    assert_true(step(world, NAME) > 0);
    assert_null(order_of(world, "manager/n-00000001/a"));
    assert_string_equal(order_of(world, "manager/n-00000001/b")->window, "{\"granted\":[[7,2]]}");
    settle_seeds(world);
    assert_on(world, "a", NULL);
    assert_on(world, "b", "n-00000001");
    assert_on(world, "c", "n-00000001");
    assert_string_equal(state_of(world, "a"), "Done");
}

/* The others stay where they were after all, and begin there anew. */
static void who_is_done_where_the_others_stay_is_done(void **state)
{
    g_autoptr(World) world = fleet_that_moves();

    (void)state;
    put(world, "decided/accepted/nodepolicies/manager/m0", DRAINED("false"));
    leave_pool(world, LH_POOL_MANAGER, "n-00000001");
    answer_in_pool(world, "manager/m0-00000001/b", "done", "");
    settle_seeds(world);
    assert_on(world, "a", "m0-00000001");
    assert_on(world, "c", "m0-00000001");
    assert_on(world, "b", NULL);
    assert_string_equal(state_of(world, "b"), "Done");
}

static void all_are_done_in_a_move(void **state)
{
    g_autoptr(World) world = fleet_that_moves();
    static const char *const names[] = {"a", "b", "c"};

    (void)state;
    for (guint i = 0; i < G_N_ELEMENTS(names); i++) {
        g_autofree char *name = g_strconcat("manager/m0-00000001/", names[i], NULL);
        answer_in_pool(world, name, "done", "");
    }
    settle_seeds(world);
    for (guint i = 0; i < G_N_ELEMENTS(names); i++) {
        assert_on(world, names[i], NULL);
        assert_string_equal(state_of(world, names[i]), "Done");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_manager_that_comes_back_gets_its_seeds),
        cmocka_unit_test(after_its_grace_its_seeds_go_elsewhere),
        cmocka_unit_test(the_most_urgent_are_placed_first),
        cmocka_unit_test(on_probation_a_manager_gets_half_a_share),
        cmocka_unit_test(within_the_threshold_nothing_moves),
        cmocka_unit_test(beyond_the_threshold_policies_move),
        cmocka_unit_test(a_small_difference_interrupts_no_crawl),
        cmocka_unit_test(who_is_paused_in_a_move_moves),
        cmocka_unit_test(who_is_stopped_in_a_move_stays_behind),
        cmocka_unit_test(who_is_done_in_a_move_is_done),
        cmocka_unit_test(who_is_done_first_in_a_move_is_done),
        cmocka_unit_test(who_is_done_where_the_others_stay_is_done),
        cmocka_unit_test(all_are_done_in_a_move),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
