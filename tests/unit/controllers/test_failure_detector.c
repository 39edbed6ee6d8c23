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

/* As the runtime tells of it: the own waits begin anew. */
static void a_clock_that_jumps_shortens_no_wait(void **state)
{
    static const gint64 jumps[] = {HOUR, -HOUR, 4 * SECOND, -4 * SECOND};

    (void)state;
    for (guint i = 0; i < G_N_ELEMENTS(jumps); i++) {
        g_autoptr(World) world = missing_at_t0();
        world->now_ms = T0 + 3 * SECOND;
        assert_nothing_to_do(world, "failure-detector");
        world->now_ms += jumps[i];
        world->led_ms = world->now_ms;
        run(world, "failure-detector");
        world->now_ms += 4999;
        assert_nothing_to_do(world, "failure-detector");
        assert_int_equal(health(world)->state, LH_HEALTH_FAILURE);
        world->now_ms += 1;
        run(world, "failure-detector");
        assert_int_equal(health(world)->state, LH_HEALTH_FAILED);
    }
}

static void a_clock_that_gains_shortens_no_wait(void **state)
{
    g_autoptr(World) world = missing_at_t0();

    (void)state;
    world->now_ms = T0 + 5399;
    world->ahead_ms = 400;
    g_autoptr(LhPlan) waiting = plan_of(world, "failure-detector");
    assert_int_equal(lh_plan_groups(waiting), 0);
    assert_int_equal(waiting->wake_ms, T0 + 5400);
    world->now_ms = T0 + 5400;
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

/* ---- probes and a node's own word ---- */

static void put_probed(World *world, const char *key, const char *state)
{
    g_autofree char *path = g_strconcat("actual/nodes/", key, NULL);
    g_autofree char *name = lh_node_name_of(strchr(key, '/') + 1);

    putf(world, path,
         "{\"name\":\"%s\",\"url\":\"http://127.0.0.1:1\",\"state\":\"%s\","
         "\"lease\":\"00000000000000ab\",\"leaseTtl\":\"5s\"}",
         name, state);
}

static void saw(World *world, const char *key, gint64 misses)
{
    g_autofree char *node = g_strconcat("actual/nodes/", key, NULL);
    g_autofree char *path = g_strconcat("observed/failure-detector/probe.", key, NULL);
    const LhObject *object = look(world, node);
    g_autofree char *value = NULL;

    path[strlen(path) - strlen(strchr(key, '/'))] = '.';
    value = g_strdup_printf("{\"at\":%" PRId64 ",\"token\":%" PRId64 ",\"missing\":%" PRId64 "%s}",
                            world->now_ms, object->create_rev, misses,
                            misses > 0 ? ",\"error\":\"timed out\"" : "");
    put(world, path, value);
}

static void by_the_table(void **state)
{
    static const struct {
        const char *word;
        gint64 misses, wait_ms;
        LhHealthState then;
    } steps[] = {
        {"online", 0, 0, LH_HEALTH_HEALTHY},      {"online", 2, 0, LH_HEALTH_HEALTHY},
        {"online", 0, 0, LH_HEALTH_HEALTHY},      {"online", 3, 0, LH_HEALTH_FAILURE},
        {"online", 0, 0, LH_HEALTH_PROBATION},    {"online", 0, 59999, LH_HEALTH_PROBATION},
        {"online", 1, 0, LH_HEALTH_FAILURE},      {"online", 0, 0, LH_HEALTH_PROBATION},
        {"online", 0, MINUTE, LH_HEALTH_HEALTHY}, {"error", 0, 0, LH_HEALTH_FAILURE},
        {"error", 0, MINUTE, LH_HEALTH_FAILURE},  {"online", 0, 0, LH_HEALTH_PROBATION},
        {"error", 0, 0, LH_HEALTH_FAILURE},       {"online", 1, 0, LH_HEALTH_FAILURE},
        {"online", 0, 0, LH_HEALTH_PROBATION},    {"online", 0, MINUTE, LH_HEALTH_HEALTHY},
    };
    g_autoptr(World) world = world_new();

    (void)state;
    put_probed(world, NODE, "online");
    run(world, "failure-detector");
    for (guint i = 0; i < G_N_ELEMENTS(steps); i++) {
        put_probed(world, NODE, steps[i].word);
        saw(world, NODE, steps[i].misses);
        world->now_ms += steps[i].wait_ms;
        run(world, "failure-detector");
        if (health(world)->state != (int)steps[i].then)
            fail_msg("step %u: %s", i, lh_health_state_name(health(world)->state));
    }
}

static void the_reason_says_which_signal(void **state)
{
    g_autoptr(World) world = world_new();

    (void)state;
    put_probed(world, NODE, "online");
    run(world, "failure-detector");
    saw(world, NODE, 3);
    run(world, "failure-detector");
    assert_string_equal(health(world)->reason, "probe: timed out 3 times");
    saw(world, NODE, 0);
    put_probed(world, NODE, "error");
    run(world, "failure-detector");
    assert_int_equal(health(world)->state, LH_HEALTH_FAILURE);
}

static void misses_of_another_registration_do_not_count(void **state)
{
    g_autoptr(World) world = world_new();

    (void)state;
    put_probed(world, NODE, "online");
    run(world, "failure-detector");
    put(world, "observed/failure-detector/probe.cache.a-00000001",
        "{\"at\":1,\"token\":999999,\"missing\":9}");
    assert_nothing_to_do(world, "failure-detector");
}

static void what_a_new_leader_has_not_seen_condemns_and_absolves_nobody(void **state)
{
    g_autoptr(World) world = world_new();

    (void)state;
    put_probed(world, NODE, "online");
    run(world, "failure-detector");
    saw(world, NODE, 3);
    run(world, "failure-detector");
    del(world, "observed/failure-detector/probe.cache.a-00000001");
    fail_over(world);
    run(world, "failure-detector");
    assert_int_equal(health(world)->state, LH_HEALTH_FAILURE);
    saw(world, NODE, 0);
    run(world, "failure-detector");
    assert_int_equal(health(world)->state, LH_HEALTH_PROBATION);
}

static void an_exclusive_node_is_marked_then_revoked(void **state)
{
    g_autoptr(World) world = world_new();
    const char *key = "recovery/r-00000001";

    (void)state;
    put_probed(world, key, "online");
    run(world, "failure-detector");
    saw(world, key, 3);
    run(world, "failure-detector");
    const LhHealth *at = look(world, "decided/health/recovery/r-00000001");
    assert_int_equal(at->state, LH_HEALTH_FAILURE);
    assert_true(at->revoking);
    LhPlanContext context = {.now_ms = world->now_ms};
    g_autoptr(LhErrands) errands = lh_errands_new();
    lh_failure_detector.errands(fleet(world), &context, errands);
    assert_int_equal(errands->errands->len, 2);
    const LhErrand *revoke = &g_array_index(errands->errands, LhErrand, 1);
    assert_string_equal(revoke->what, "revoke");
    assert_int_equal(revoke->number, world->lease); /* whatever the node says that it is */
    saw(world, key, 0);                             /* too late */
    assert_nothing_to_do(world, "failure-detector");
    del(world, "actual/nodes/recovery/r-00000001");
    run(world, "failure-detector");
    world->now_ms += 5 * SECOND;
    run(world, "failure-detector");
    at = look(world, "decided/health/recovery/r-00000001");
    assert_int_equal(at->state, LH_HEALTH_FAILED);
}

static void keep_revokes_nothing(void **state)
{
    g_autoptr(World) world = world_new();

    (void)state;
    put_settings(world, "failure-detector", "\"onFailure\":\"keep\"");
    put_probed(world, "recovery/r-00000001", "error");
    run(world, "failure-detector");
    const LhHealth *at = look(world, "decided/health/recovery/r-00000001");
    assert_int_equal(at->state, LH_HEALTH_FAILURE);
    assert_false(at->revoking);
}

/* The reason is optional: a mark without one is a mark. */
static void a_mark_needs_no_reason(void **state)
{
    g_autoptr(World) world = world_new();
    const char *key = "recovery/r-00000001";
    GLogLevelFlags before = g_log_set_always_fatal(G_LOG_LEVEL_CRITICAL | G_LOG_FATAL_MASK);

    (void)state;
    put_probed(world, NODE, "error");
    put(world, "decided/health/" NODE, "{\"state\":\"failure\",\"since\":1}");
    assert_nothing_to_do(world, "failure-detector");
    put_probed(world, key, "error");
    put(world, "decided/health/recovery/r-00000001", "{\"state\":\"failure\",\"since\":1}");
    run(world, "failure-detector");
    const LhHealth *at = look(world, "decided/health/recovery/r-00000001");
    assert_true(at->revoking);
    assert_string_equal(at->reason, "in failure; nothing says why");
    g_log_set_always_fatal(before);
}

static guint in_failure(World *world, guint n)
{
    guint count = 0;

    for (guint i = 0; i < n; i++) {
        const LhHealth *at = lookf(world, "decided/health/cache/n%u-00000001", i);
        count += at->state == LH_HEALTH_FAILURE;
    }
    return count;
}

static void a_fleet_is_not_condemned_at_once(void **state)
{
    g_autoptr(World) world = world_new();

    (void)state;
    for (guint i = 0; i < 30; i++) {
        g_autofree char *key = g_strdup_printf("cache/n%u-00000001", i);
        put_probed(world, key, "online");
    }
    run(world, "failure-detector");
    for (guint i = 0; i < 30; i++) {
        g_autofree char *key = g_strdup_printf("cache/n%u-00000001", i);
        saw(world, key, 3);
        if (i == 5) { /* a fifth of them */
            run(world, "failure-detector");
            assert_int_equal(in_failure(world, 30), 6);
        }
    }
    run(world, "failure-detector");
    assert_int_equal(in_failure(world, 30), 6);
    const LhBrake *brake = look(world, "decided/brakes/failure-detector");
    assert_non_null(brake);
    assert_int_equal(brake->eligible, 30);
    const LhCondition *said = condition_of(world, "settings/failure-detector/failure-detector",
                                           "Braked");
    assert_non_null(said);
    assert_int_equal(said->status, LH_CONDITION_TRUE);
    assert_non_null(strstr(said->message, brake->plan_hash));
    for (guint i = 0; i < 30; i++) {
        g_autofree char *key = g_strdup_printf("cache/n%u-00000001", i);
        saw(world, key, 0);
    }
    run(world, "failure-detector");
    assert_null(look(world, "decided/brakes/failure-detector"));
    assert_null(look(world, "decided/status/settings/failure-detector/failure-detector"));
    assert_int_equal(in_failure(world, 30), 0);
}

/* As other programs may write it. */
static void a_failure_without_a_reason_is_no_probes(void **state)
{
    g_autoptr(World) world = world_new();

    (void)state;
    put_probed(world, "cache/n0-00000001", "online");
    put(world, "decided/health/cache/n0-00000001", "{\"state\":\"failure\",\"leaseTtl\":\"5s\"}");
    run(world, "failure-detector");
    assert_int_equal(in_failure(world, 1), 1); /* until something is known of it */
    saw(world, "cache/n0-00000001", 0);
    run(world, "failure-detector");
    assert_int_equal(in_failure(world, 1), 0);
}

/* Of n nodes that all miss their probes one by one, how many are condemned. */
static void a_small_fleet_is_a_fleet(void **state)
{
    static const struct {
        guint nodes, condemned;
    } rows[] = {{1, 1}, {2, 1}, {3, 2}, {4, 1}, {6, 1}, {9, 1}, {10, 2}};

    (void)state;
    for (guint r = 0; r < G_N_ELEMENTS(rows); r++) {
        g_autoptr(World) world = world_new();
        for (guint i = 0; i < rows[r].nodes; i++) {
            g_autofree char *key = g_strdup_printf("cache/n%u-00000001", i);
            put_probed(world, key, "online");
        }
        run(world, "failure-detector");
        for (guint i = 0; i < rows[r].nodes; i++) {
            g_autofree char *key = g_strdup_printf("cache/n%u-00000001", i);
            saw(world, key, 3);
            run(world, "failure-detector");
        }
        assert_int_equal(in_failure(world, rows[r].nodes), rows[r].condemned);
    }
}

/* Marked and revoked they are gone at once, and new ones are there: it is the same fleet. */
static void a_fleet_is_not_revoked_one_by_one(void **state)
{
    g_autoptr(World) world = world_new();
    guint revoked = 0;

    (void)state;
    for (guint i = 0; i < 6; i++) {
        g_autofree char *key = g_strdup_printf("recovery/n%u-00000001", i);
        put_probed(world, key, "online");
    }
    run(world, "failure-detector");
    for (guint i = 0; i < 6; i++) {
        g_autofree char *key = g_strdup_printf("recovery/n%u-00000001", i);
        g_autofree char *health_key = g_strconcat("decided/health/", key, NULL);
        saw(world, key, 3);
        run(world, "failure-detector");
        const LhHealth *at = look(world, health_key);
        if (at->revoking) {
            g_autofree char *gone = g_strconcat("actual/nodes/", key, NULL);
            g_autofree char *back = g_strdup_printf("recovery/n%u-00000002", i);
            revoked++;
            del(world, gone);
            put_probed(world, back, "online");
        }
        world->now_ms += SECOND;
        run(world, "failure-detector");
        world->now_ms += SECOND; /* the first has failed by the end */
    }
    assert_int_equal(revoked, 1);
    const LhHealth *first = look(world, "decided/health/recovery/n0-00000001");
    assert_int_equal(first->state, LH_HEALTH_FAILED);
    assert_true(first->revoking);
    assert_string_equal(first->reason,
                        "probe: timed out 3 times; its registration has been gone for longer than "
                        "its lease lives");
    world->now_ms = first->missing_since + 15 * SECOND;
    run(world, "failure-detector");
    assert_non_null(look(world, "decided/brakes/failure-detector")); /* five are still due */
}

/* A mark that was taken back within the fifteen seconds was one. */
static void who_came_back_counts(void **state)
{
    g_autoptr(World) world = world_new();

    (void)state;
    for (guint i = 0; i < 6; i++) {
        g_autofree char *key = g_strdup_printf("cache/n%u-00000001", i);
        put_probed(world, key, "online");
    }
    run(world, "failure-detector");
    saw(world, "cache/n0-00000001", 3);
    run(world, "failure-detector");
    saw(world, "cache/n0-00000001", 0);
    run(world, "failure-detector");
    saw(world, "cache/n1-00000001", 3);
    run(world, "failure-detector");
    assert_int_equal(in_failure(world, 6), 0);
    del(world, "actual/nodes/cache/n0-00000001"); /* and then it went */
    run(world, "failure-detector");
    const LhHealth *gone = look(world, "decided/health/cache/n0-00000001");
    assert_string_equal(gone->reason, "probe: succeeds again; its registration is gone");
    assert_int_equal(in_failure(world, 6), 1);
    world->now_ms += 15 * SECOND;
    run(world, "failure-detector");
    assert_int_equal(in_failure(world, 6), 1);
    const LhHealth *second = look(world, "decided/health/cache/n1-00000001");
    assert_int_equal(second->state, LH_HEALTH_FAILURE);
}

static void the_end_of_a_lease_is_told_when_it_has_ended(void **state)
{
    g_autoptr(World) world = world_new();
    const char *key = "recovery/r-00000001";

    (void)state;
    put_probed(world, key, "online");
    run(world, "failure-detector");
    saw(world, key, 3);
    g_autoptr(LhPlan) marks = plan_of(world, "failure-detector");
    assert_true(has_event(marks, "NodeFailure"));
    run(world, "failure-detector");
    del(world, "actual/nodes/recovery/r-00000001");
    g_autoptr(LhPlan) gone = plan_of(world, "failure-detector");
    assert_true(has_event(gone, "LeaseRevoked"));
    assert_false(has_event(gone, "NodeLost"));
}

static void count_nodes(const char *name, const char *labels, double value, gpointer data)
{
    GString *text = data;

    if (strcmp(name, "nodes") == 0)
        g_string_append_printf(text, "%s %.0f\n", labels, value);
}

static void nodes_are_counted_by_what_the_cluster_holds_them_for(void **state)
{
    static const char *const states[] = {"healthy", "probation", "failure", "failed"};
    g_autoptr(World) world = world_new();

    (void)state;
    for (guint i = 0; i < G_N_ELEMENTS(states); i++) {
        g_autoptr(GString) text = g_string_new(NULL);
        g_autofree char *wanted = g_strdup_printf("pool=\"cache\",state=\"%s\" 1\n", states[i]);
        put_probed(world, NODE, "online");
        putf(world, "decided/health/" NODE, "{\"state\":\"%s\",\"since\":1}", states[i]);
        lh_failure_detector.gauges(fleet(world), world->now_ms, count_nodes, text);
        assert_string_equal(text->str, wanted);
    }
}

static guint64 digest(const World *world)
{
    gpointer rebuilt = rebuilt_index(world, NULL);
    guint64 kept = lh_failure_detector.errands_digest(fleet(world));

    assert_int_equal(kept, lh_failure_detector.errands_digest(rebuilt));
    lh_fleet_index.free(rebuilt);
    return kept;
}

static char *errands_text(const World *world)
{
    LhPlanContext context = {.now_ms = world->now_ms};
    g_autoptr(LhErrands) errands = lh_errands_new();
    GString *text = g_string_new(NULL);

    lh_failure_detector.errands(fleet(world), &context, errands);
    for (guint i = 0; i < errands->errands->len; i++) {
        const LhErrand *errand = &g_array_index(errands->errands, LhErrand, i);
        g_string_append_printf(
            text, "%s %s %" PRId64 "/%" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 "\n",
            errand->id, errand->uri == NULL ? "" : errand->uri, errand->token, errand->attempt,
            errand->number, errand->period_ms, errand->timeout_ms, errand->most);
    }
    return g_string_free(text, FALSE);
}

static void see_revoked(World *world, const char *error)
{
    const LhObject *at = look(world, "decided/health/recovery/r-00000001");

    g_autofree char *value = g_strdup_printf("{\"at\":%" PRId64 ",\"token\":%" PRId64 "%s}",
                                             world->now_ms, at->mod_rev, error);
    put(world, "observed/failure-detector/revoke.recovery.r-00000001", value);
}

/* Each step changes the errands, or it does not; the digest tells. */
static void the_digest_tells_when_the_errands_change(void **state)
{
    g_autoptr(World) world = world_new();
    const char *key = "recovery/r-00000001", *node = "actual/nodes/recovery/r-00000001";

    (void)state;
    g_autofree char *text = errands_text(world);
    guint64 before = digest(world);
    for (guint step = 0; step < 13; step++) {
        switch (step) {
        case 0:
            put_probed(world, NODE, "online");
            break;
        case 1:
            put_probed(world, key, "online");
            break;
        case 2:
            run(world, "failure-detector");
            break;
        case 3:
            put_probed(world, key, "waiting");
            break;
        case 4:
            saw(world, NODE, 2);
            break;
        case 5:
            put_settings(world, "failure-detector", "\"probePath\":\"/well\"");
            break;
        case 6:
            put_settings(world, "failure-detector", "\"probeMisses\":2");
            break;
        case 7:
            put_settings(world, "failure-detector", "\"probePeriod\":\"1s\",\"brakePercent\":90");
            break;
        case 8:
            saw(world, key, 3);
            run(world, "failure-detector");
            break;
        case 9:
            see_revoked(world, ",\"error\":\"no\"");
            break;
        case 10:
            see_revoked(world, "");
            break;
        case 11:
            put(world, "decided/assignments/worker/w-00000001/task", "{\"action\":\"load\"}");
            break;
        case 12:
            del(world, node);
            break;
        }
        g_autofree char *now = errands_text(world);
        guint64 after = digest(world);
        if (strcmp(now, text) != 0 && before == after)
            fail_msg("step %u: other errands, same digest", step);
        if (strcmp(now, text) == 0 && before != after && step != 10) /* that it is revoked */
            fail_msg("step %u: the same errands, another digest", step);
        g_free(text);
        text = g_steal_pointer(&now);
        before = after;
    }
}

/* A manager that is cut off hears of one node after the other that it has missed its probe thrice. */
static void others_that_miss_too_are_waited_for(void **state)
{
    g_autoptr(World) world = world_new();

    (void)state;
    for (guint i = 0; i < 5; i++) {
        g_autofree char *key = g_strdup_printf("cache/n%u-00000001", i);
        put_probed(world, key, "online");
    }
    run(world, "failure-detector");
    for (gint64 misses = 1; misses <= 3; misses++)
        for (guint i = 0; i < 5; i++) {
            g_autofree char *key = g_strdup_printf("cache/n%u-00000001", i);
            saw(world, key, misses);
            run(world, "failure-detector");
            assert_int_equal(in_failure(world, 5), 0);
            assert_int_equal(look(world, "decided/brakes/failure-detector") != NULL,
                             misses == 3 && i > 0);
        }
    /* One after the other is well again. The last one is condemned when it has been probed since, too. */
    for (guint i = 1; i < 5; i++) {
        g_autofree char *key = g_strdup_printf("cache/n%u-00000001", i);
        saw(world, key, 0);
        run(world, "failure-detector");
    }
    const LhBrake *brake = look(world, "decided/brakes/failure-detector");
    assert_non_null(brake);
    assert_int_equal(in_failure(world, 5), 0);
    world->now_ms = brake->since + 5000 + 2 * 2000;
    run(world, "failure-detector");
    assert_null(look(world, "decided/brakes/failure-detector"));
    assert_int_equal(in_failure(world, 5), 1);
    /* Nor does one that misses once in a while keep it from that. */
    saw(world, "cache/n1-00000001", 1);
    saw(world, "cache/n2-00000001", 3);
    run(world, "failure-detector");
    assert_int_equal(in_failure(world, 5), 1);
    saw(world, "cache/n1-00000001", 0);
    world->now_ms += 15000; /* the first does not count any more */
    run(world, "failure-detector");
    assert_int_equal(in_failure(world, 5), 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_registered_node_is_healthy),
        cmocka_unit_test(failed_a_full_ttl_after_it_went),
        cmocka_unit_test(a_new_leader_waits_anew),
        cmocka_unit_test(a_clock_that_jumps_shortens_no_wait),
        cmocka_unit_test(a_clock_that_gains_shortens_no_wait),
        cmocka_unit_test(back_again_before_it_failed),
        cmocka_unit_test(failed_is_final),
        cmocka_unit_test(forgotten_after_a_day),
        cmocka_unit_test(not_forgotten_while_something_is_assigned),
        cmocka_unit_test(an_assignment_to_a_node_nobody_saw_is_watched_for_a_minute),
        cmocka_unit_test(an_unknown_registration_is_not_gone),
        cmocka_unit_test(by_the_table),
        cmocka_unit_test(the_reason_says_which_signal),
        cmocka_unit_test(misses_of_another_registration_do_not_count),
        cmocka_unit_test(what_a_new_leader_has_not_seen_condemns_and_absolves_nobody),
        cmocka_unit_test(an_exclusive_node_is_marked_then_revoked),
        cmocka_unit_test(keep_revokes_nothing),
        cmocka_unit_test(a_mark_needs_no_reason),
        cmocka_unit_test(a_fleet_is_not_condemned_at_once),
        cmocka_unit_test(a_small_fleet_is_a_fleet),
        cmocka_unit_test(the_digest_tells_when_the_errands_change),
        cmocka_unit_test(a_fleet_is_not_revoked_one_by_one),
        cmocka_unit_test(who_came_back_counts),
        cmocka_unit_test(the_end_of_a_lease_is_told_when_it_has_ended),
        cmocka_unit_test(nodes_are_counted_by_what_the_cluster_holds_them_for),
        cmocka_unit_test(others_that_miss_too_are_waited_for),
        cmocka_unit_test(a_failure_without_a_reason_is_no_probes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
