/*
 * failure-detector: the lease signal, from a registration that is gone to a node that is forgotten.
 */
#include "tests/unit/controllers/harness.h"

#define NODE "cache/a-00000001"

static const LhHealth *health(const World *world)
{
    return look(world, "decided/health/" NODE);
}

static void a_registered_node_is_healthy(void **state)
{
    g_autoptr(World) world = world_new();

    (void)state;
    put_node(world, "a-00000001", 10, 0, "");
    run(world, "failure-detector");
    assert_int_equal(health(world)->state, LH_HEALTH_HEALTHY);
    assert_int_equal(health(world)->missing_since, -1);
    assert_int_equal(health(world)->lease_ttl_ms, 5000);
    world->now_ms += DAY;
    g_autoptr(LhPlan) plan = plan_of(world, "failure-detector");
    assert_int_equal(lh_plan_groups(plan), 0);
    assert_int_equal(plan->wake_ms, 0);
}

static World *missing_at_t0(void)
{
    World *world = world_new();

    put_node(world, "a-00000001", 10, 0, "");
    run(world, "failure-detector");
    lose_node(world, "a-00000001");
    g_autoptr(LhPlan) plan = plan_of(world, "failure-detector");
    assert_true(has_event(plan, "NodeLost"));
    run(world, "failure-detector");
    assert_int_equal(health(world)->state, LH_HEALTH_FAILURE);
    assert_int_equal(health(world)->missing_since, T0);
    return world;
}

static void failed_a_full_ttl_after_it_went(void **state)
{
    g_autoptr(World) world = missing_at_t0();

    (void)state;
    world->now_ms = T0 + 4999;
    g_autoptr(LhPlan) waiting = plan_of(world, "failure-detector");
    assert_int_equal(lh_plan_groups(waiting), 0);
    assert_int_equal(waiting->wake_ms, T0 + 5000);
    world->now_ms = T0 + 5000;
    run(world, "failure-detector");
    assert_int_equal(health(world)->state, LH_HEALTH_FAILED);
    assert_int_equal(health(world)->missing_since, T0);
}

static void a_new_leader_waits_anew(void **state)
{
    g_autoptr(World) world = missing_at_t0();

    (void)state;
    world->now_ms = T0 + 4 * SECOND;
    fail_over(world);
    world->now_ms = T0 + 8999;
    assert_nothing_to_do(world, "failure-detector");
    world->now_ms = T0 + 9000;
    run(world, "failure-detector");
    assert_int_equal(health(world)->state, LH_HEALTH_FAILED);
}

static void back_again_before_it_failed(void **state)
{
    g_autoptr(World) world = missing_at_t0();

    (void)state;
    world->now_ms = T0 + SECOND;
    put_node(world, "a-00000001", 10, 0, "");
    run(world, "failure-detector");
    assert_int_equal(health(world)->state, LH_HEALTH_HEALTHY);
    assert_int_equal(health(world)->missing_since, -1);
}

static void failed_is_final(void **state)
{
    g_autoptr(World) world = missing_at_t0();

    (void)state;
    world->now_ms = T0 + MINUTE;
    run(world, "failure-detector");
    put_node(world, "a-00000001", 10, 0, "");
    run(world, "failure-detector");
    assert_int_equal(health(world)->state, LH_HEALTH_FAILED);
}

static void forgotten_after_a_day(void **state)
{
    g_autoptr(World) world = missing_at_t0();

    (void)state;
    world->now_ms = T0 + MINUTE;
    run(world, "failure-detector");
    g_autoptr(LhPlan) plan = plan_of(world, "failure-detector");
    assert_int_equal(plan->wake_ms, T0 + MINUTE + DAY);
    world->now_ms = T0 + MINUTE + DAY;
    run(world, "failure-detector");
    assert_null(health(world));
    assert_int_equal(g_hash_table_size(fleet(world)->health), 0);
}

/* As long as something is assigned to it, what says that it failed stays. */
static void not_forgotten_while_something_is_assigned(void **state)
{
    g_autoptr(World) world = missing_at_t0();

    (void)state;
    put(world, "decided/assignments/" NODE "/x.default.0", "{\"action\":\"load\"}");
    world->now_ms = T0 + MINUTE;
    run(world, "failure-detector");
    world->now_ms += 2 * DAY;
    g_autoptr(LhPlan) plan = plan_of(world, "failure-detector");
    assert_int_equal(lh_plan_groups(plan), 0);
    assert_int_equal(plan->wake_ms, 0);
    del(world, "decided/assignments/" NODE "/x.default.0");
    run(world, "failure-detector");
    assert_null(health(world));
}

static void an_assignment_to_a_node_nobody_saw_is_watched_for_a_minute(void **state)
{
    g_autoptr(World) world = world_new();

    (void)state;
    put(world, "decided/assignments/worker/w-00000001/task", "{\"action\":\"load\"}");
    run(world, "failure-detector");
    const LhHealth *worker = look(world, "decided/health/worker/w-00000001");
    assert_int_equal(worker->missing_since, T0);
    world->now_ms += MINUTE - 1;
    assert_nothing_to_do(world, "failure-detector");
    world->now_ms += 1;
    run(world, "failure-detector");
    worker = look(world, "decided/health/worker/w-00000001");
    assert_int_equal(worker->state, LH_HEALTH_FAILED);
}

static void an_unknown_registration_is_not_gone(void **state)
{
    g_autoptr(World) world = world_new();

    (void)state;
    put_node(world, "a-00000001", 10, 0, "");
    run(world, "failure-detector");
    put(world, "actual/nodes/" NODE, "spoilt");
    run(world, "failure-detector");
    assert_int_equal(health(world)->state, LH_HEALTH_HEALTHY);
    put(world, "decided/health/" NODE, "spoilt");
    lose_node(world, "a-00000001");
    assert_nothing_to_do(world, "failure-detector");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_registered_node_is_healthy),
        cmocka_unit_test(failed_a_full_ttl_after_it_went),
        cmocka_unit_test(a_new_leader_waits_anew),
        cmocka_unit_test(back_again_before_it_failed),
        cmocka_unit_test(failed_is_final),
        cmocka_unit_test(forgotten_after_a_day),
        cmocka_unit_test(not_forgotten_while_something_is_assigned),
        cmocka_unit_test(an_assignment_to_a_node_nobody_saw_is_watched_for_a_minute),
        cmocka_unit_test(an_unknown_registration_is_not_gone),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
