/*
 * restore-manager: what a Restore brings back and what it does not, in which phases, for how long, over
 * failovers; how much at most; and the reserve of the nodes, which regular replicas never use.
 */
#include "tests/unit/controllers/harness.h"

#define OLD (T0 - 100 * DAY)

static const LhRestoreProgress *progress(const World *world, const char *name)
{
    return lookf(world, "decided/restoreprogress/%s", name);
}

static const LhReplica *replica(const World *world, const char *name)
{
    return lookf(world, "decided/replicas/%s", name);
}

static guint replicas(const World *world)
{
    return count_below(world, "decided/replicas/");
}

static G_GNUC_PRINTF(3, 4) void put_restore(World *world, const char *name, const char *format, ...)
{
    g_autofree char *key = g_strconcat("desired/restores/", name, NULL), *spec = NULL;
    va_list args;

    va_start(args, format);
    spec = g_strdup_vprintf(format, args);
    va_end(args);
    putf(world, key, "{\"spec\":{%s}}", spec);
    step(world, "admission");
}

/* Hours @from to @to after OLD. */
static void put_range(World *world, const char *name, const char *service, int from, int to,
                      const char *more)
{
    put_restore(world, name,
                "\"service\":\"%s\",\"startTime\":%" PRId64 ",\"endTime\":%" PRId64 "%s", service,
                OLD + from * HOUR, OLD + to * HOUR, more);
}

/* Snapshots of an hour each, with a second between them: <service>-0 … */
static void put_old(World *world, const char *service, int n)
{
    for (int i = 0; i < n; i++) {
        g_autofree char *name = g_strdup_printf("%s-%d", service, i);
        g_autofree char *key = g_strconcat("published/snapshots/", name, NULL);
        putf(world, key,
             "{\"service\":\"%s\",\"startTime\":%" PRId64 ",\"endTime\":%" PRId64
             ",\"sizeBytes\":5,\"uri\":\"s3://bucket/%s/\"}",
             service, OLD + i * HOUR + SECOND, OLD + (i + 1) * HOUR, name);
    }
}

static World *world_with(const char *sets, int n)
{
    World *world = world_new();

    put_service(world, "api", "\"cache\":{\"window\":\"2h\",\"sets\":%s}", sets);
    put_old(world, "api", n);
    return world;
}

static void put_big_node(World *world, const char *id, const char *more)
{
    put_node(world, id, 10000, 0, more);
}

/* One controller's turn at a time until a replica exists: the first thing that is written is the phase. */
static void every_set_gets_its_replicas(void **state)
{
    g_autoptr(World) world = world_with("[\"blue\",\"green\"]", 4);

    (void)state;
    put_range(world, "r", "api", 1, 2, "");
    assert_int_equal(step(world, "restore-manager"), 1);
    assert_int_equal(progress(world, "r")->phase, LH_RESTORE_PENDING);
    assert_int_equal(progress(world, "r")->replicas, 4);
    assert_int_equal(replicas(world), 0);
    run(world, "restore-manager");
    /* Both ends count: api-0 ends when the range begins, api-2 begins a second after its end. */
    assert_int_equal(replicas(world), 4);
    const LhReplica *one = replica(world, "api-1.green.r0");
    assert_non_null(one);
    assert_non_null(replica(world, "api-0.blue.r0"));
    assert_true(one->restored);
    assert_string_equal(one->service, "api");
    assert_string_equal(one->restore, "r");
    assert_int_equal(one->created_at, T0);
    assert_int_equal(one->expires_at, -1);
    assert_int_equal(progress(world, "r")->phase, LH_RESTORE_ACTIVE);
    assert_int_equal(progress(world, "r")->replicas, 4);
    assert_int_equal(progress(world, "r")->live, 0);
    fail_over(world);
    assert_nothing_to_do(world, "restore-manager");
}

static void the_queue_is_not_drained_by_the_first_set(void **state)
{
    g_autoptr(World) world = world_with("[\"blue\",\"green\",\"red\"]", 30);

    (void)state;
    put_range(world, "r", "api", 0, 30, "");
    world->max_groups = 7; /* many turns */
    run(world, "restore-manager");
    assert_int_equal(replicas(world), 90);
    for (int i = 0; i < 30; i++) {
        assert_non_null(lookf(world, "decided/replicas/api-%d.blue.r0", i));
        assert_non_null(lookf(world, "decided/replicas/api-%d.green.r0", i));
        assert_non_null(lookf(world, "decided/replicas/api-%d.red.r0", i));
    }
}

static void a_request_is_not_lost_with_its_process(void **state)
{
    g_autoptr(World) world = world_with("[\"default\"]", 9);

    (void)state;
    put_range(world, "r", "api", 0, 9, "");
    step(world, "restore-manager");
    for (int i = 0; i < 9; i++) { /* a leader for each replica */
        g_autoptr(LhPlan) plan = plan_of(world, "restore-manager");
        assert_true(apply_group(world, plan, lh_plan_groups(plan) - 1));
        assert_int_equal(replicas(world), (guint)i + 1);
        assert_int_equal(progress(world, "r")->phase, LH_RESTORE_PENDING);
        fail_over(world);
    }
    run(world, "restore-manager");
    assert_int_equal(replicas(world), 9);
    assert_int_equal(progress(world, "r")->phase, LH_RESTORE_ACTIVE);
}

static void one_refused_creation_neither_aborts_the_pass_nor_counts(void **state)
{
    g_autoptr(World) world = world_with("[\"default\"]", 6);

    (void)state;
    put_range(world, "r", "api", 0, 6, "");
    step(world, "restore-manager");
    g_autoptr(LhPlan) plan = plan_of(world, "restore-manager");
    put(world, "decided/deletions/api-3", "{\"uri\":\"s3://bucket/api-3/\",\"decidedAt\":1}");
    for (guint i = 0; i < lh_plan_groups(plan); i++)
        apply_group(world, plan, i);
    assert_int_equal(world->conflicts, 1); /* its snapshot is being deleted */
    assert_int_equal(replicas(world), 5);
    run(world, "restore-manager");
    assert_int_equal(progress(world, "r")->replicas, 5);
    assert_int_equal(progress(world, "r")->phase, LH_RESTORE_ACTIVE);
    assert_null(replica(world, "api-3.default.r0"));
}

static void what_is_live_or_coming_is_not_restored(void **state)
{
    g_autoptr(World) world = world_new();

    (void)state;
    put_service(world, "api",
                "\"cache\":{\"window\":\"2400h\",\"sets\":[\"blue\"]}, \"retention\":\"200d\"");
    put_old(world, "api", 2);
    put_range(world, "r", "api", 0, 2, "");
    /* Regular ones are about to be created: within the window. */
    run(world, "restore-manager");
    assert_int_equal(replicas(world), 0);
    assert_int_equal(progress(world, "r")->phase, LH_RESTORE_COMPLETED);
    assert_string_equal(progress(world, "r")->message, "2 are there without it");
    run(world, "replica-creator");
    put_range(world, "s", "api", 0, 2, "");
    run(world, "restore-manager");
    assert_int_equal(replicas(world), 2);
    assert_int_equal(progress(world, "s")->phase, LH_RESTORE_COMPLETED);
    /* In a set that has none they are missing. */
    put_service(world, "api", "\"cache\":{\"window\":\"1h\",\"sets\":[\"blue\",\"green\"]}");
    put(world, "decided/replicas/api-0.green.r0",
        "{\"snapshot\":\"api-0\",\"service\":\"api\",\"set\":\"green\",\"restored\":true,"
        "\"expiresAt\":\"2999-01-01T00:00:00Z\"}");
    put_range(world, "t", "api", 0, 2, "");
    run(world, "restore-manager");
    assert_null(replica(world, "api-0.green.r1"));
    assert_non_null(replica(world, "api-1.green.r0"));
}

static void an_expired_replica_that_is_not_deleted_yet_does_not_block(void **state)
{
    g_autoptr(World) world = world_new();

    (void)state;
    put_service(world, "api", "%s", "");
    put_old(world, "api", 1);
    putf(world, "decided/replicas/api-0.default.0",
         "{\"snapshot\":\"api-0\",\"service\":\"api\",\"set\":\"default\",\"expiresAt\":%" PRId64
         "}",
         OLD + 25 * HOUR);
    putf(world, "decided/replicas/api-0.default.r0",
         "{\"snapshot\":\"api-0\",\"service\":\"api\",\"set\":\"default\",\"restored\":true,"
         "\"ttl\":\"1h\",\"expiresAt\":%" PRId64 "}",
         T0 - 1);
    put_range(world, "r", "api", 0, 1, "");
    run(world, "restore-manager");
    assert_int_equal(replicas(world), 3);
    assert_non_null(replica(world, "api-0.default.r1"));
    assert_int_equal(progress(world, "r")->replicas, 1);
    assert_int_equal(progress(world, "r")->phase, LH_RESTORE_ACTIVE);
}

static void live_snapshots_are_not_restored(void **state)
{
    g_autoptr(World) world = world_with("[\"default\"]", 1);

    (void)state;
    putf(world, "published/snapshots/writing",
         "{\"service\":\"api\",\"startTime\":%" PRId64 ",\"endTime\":%" PRId64
         ",\"sizeBytes\":5,\"uri\":\"s3://bucket/w/\",\"live\":true}",
         OLD, OLD + HOUR);
    put_range(world, "r", "api", 0, 1, "");
    put_restore(world, "named", "\"snapshots\":[\"writing\"]");
    run(world, "restore-manager");
    assert_int_equal(replicas(world), 1);
    assert_non_null(replica(world, "api-0.default.r0"));
    assert_int_equal(progress(world, "named")->phase, LH_RESTORE_COMPLETED);
    assert_non_null(strstr(progress(world, "named")->message, "1 snapshots are live"));
}

static void only_the_service_and_the_range_that_are_asked_for(void **state)
{
    g_autoptr(World) world = world_with("[\"default\"]", 6);

    (void)state;
    put_service(world, "web", "%s", "");
    put_old(world, "web", 6);
    put_old(world, "gone", 2); /* nobody asks for that service: one set */
    putf(world, "published/snapshots/long",
         "{\"service\":\"api\",\"startTime\":%" PRId64 ",\"endTime\":%" PRId64
         ",\"sizeBytes\":5,\"uri\":\"s3://bucket/long/\"}",
         OLD - 50 * DAY, OLD + 50 * DAY);
    put_restore(world, "r", "\"service\":\"api\",\"startTime\":%" PRId64 ",\"endTime\":%" PRId64,
                OLD + 2 * HOUR + MINUTE, OLD + 3 * HOUR - MINUTE);
    run(world, "restore-manager");
    assert_int_equal(replicas(world), 2);
    assert_non_null(replica(world, "api-2.default.r0"));
    assert_non_null(replica(world, "long.default.r0"));
    put_range(world, "all", "*", 5, 20, "");
    run(world, "restore-manager");
    assert_int_equal(replicas(world), 2 + 4);
    assert_non_null(replica(world, "web-4.default.r0"));
    put_restore(world, "named", "\"snapshots\":[\"web-0\",\"gone-1\",\"no-such\"]");
    run(world, "restore-manager");
    assert_int_equal(replicas(world), 6 + 2);
    assert_non_null(replica(world, "gone-1.default.r0"));
    assert_non_null(strstr(progress(world, "named")->message, "1 snapshots"));
    put_range(world, "none", "no-such", 0, 99, "");
    run(world, "restore-manager");
    assert_int_equal(progress(world, "none")->phase, LH_RESTORE_COMPLETED);
    assert_string_equal(progress(world, "none")->message, "there is no such snapshot");
}

static void exactly_the_limit_is_not_refused_one_more_is(void **state)
{
    g_autoptr(World) world = world_with("[\"blue\",\"green\"]", 6);

    (void)state;
    put_settings(world, "restore-manager", "\"maxReplicasPerRestore\":10");
    put_range(world, "over", "api", 0, 6, "");
    put_range(world, "at", "api", 0, 4, ""); /* api-4 begins a second later */
    put_range(world, "most", "api", 1, 5, "");
    run(world, "restore-manager");
    assert_int_equal(progress(world, "over")->phase, LH_RESTORE_REFUSED);
    assert_int_equal(progress(world, "over")->replicas, 12);
    assert_string_equal(progress(world, "over")->message,
                        "it needs 12 replicas, maxReplicasPerRestore is 10");
    assert_int_equal(progress(world, "at")->phase, LH_RESTORE_ACTIVE);
    assert_int_equal(progress(world, "most")->phase, LH_RESTORE_ACTIVE);
    assert_int_equal(replicas(world), 10); /* api-0 to api-4, none twice */
    const LhCondition *condition = condition_of(world, "restores/over/restore-manager", "Restored");
    assert_int_equal(condition->status, LH_CONDITION_FALSE);
    assert_string_equal(condition->reason, "Refused");
    fail_over(world);
    assert_nothing_to_do(world, "restore-manager");
    /* Changed, it is looked at again. */
    put_range(world, "over", "api", 4, 6, "");
    run(world, "restore-manager");
    assert_int_equal(progress(world, "over")->phase, LH_RESTORE_ACTIVE);
    assert_int_equal(replicas(world), 12);
}

static void exactly_the_limit_in_one_request(void **state)
{
    g_autoptr(World) world = world_with("[\"default\"]", 201);

    (void)state;
    put_restore(world, "r", "\"service\":\"api\",\"startTime\":%" PRId64 ",\"endTime\":%" PRId64,
                OLD + HOUR / 2, OLD + 200 * HOUR);
    put_range(world, "more", "api", 0, 201, "");
    run(world, "restore-manager");
    assert_int_equal(progress(world, "r")->phase, LH_RESTORE_ACTIVE);
    assert_int_equal(progress(world, "r")->replicas, 200);
    assert_int_equal(replicas(world), 200);
    assert_int_equal(progress(world, "more")->phase, LH_RESTORE_REFUSED);
    assert_int_equal(progress(world, "more")->replicas, 201);
}

/* ---- time ---- */

static void expiry_is_set_once_from_when_it_was_first_live(void **state)
{
    g_autoptr(World) world = world_with("[\"default\"]", 2);

    (void)state;
    put_big_node(world, "a-00000001", "");
    put_range(world, "r", "api", 0, 1, ",\"ttl\":\"30m\"");
    run_all(world);
    assert_int_equal(replica(world, "api-0.default.r0")->expires_at, -1);
    world->now_ms += 7 * MINUTE;
    settle(world);
    assert_int_equal(replica(world, "api-0.default.r0")->expires_at, T0 + 37 * MINUTE);
    assert_int_equal(progress(world, "r")->live, 1);
    assert_int_equal(progress(world, "r")->until, T0 + 37 * MINUTE);
    assert_int_equal(condition_of(world, "restores/r/restore-manager", "Restored")->status,
                     LH_CONDITION_TRUE);
    /* Its node is lost: live again elsewhere, later, and no later over. */
    put_big_node(world, "b-00000001", "");
    lose_node(world, "a-00000001");
    world->now_ms += 5 * MINUTE;
    settle(world);
    world->now_ms += 5 * MINUTE;
    settle(world);
    assert_int_equal(progress(world, "r")->live, 1);
    assert_int_equal(replica(world, "api-0.default.r0")->expires_at, T0 + 37 * MINUTE);
    world->now_ms = T0 + 37 * MINUTE - 1;
    settle(world);
    assert_int_equal(replicas(world), 1);
    assert_int_equal(progress(world, "r")->phase, LH_RESTORE_ACTIVE);
    world->now_ms++;
    settle(world);
    assert_int_equal(replicas(world), 0);
    assert_int_equal(count_below(world, "decided/assignments/"), 0);
    assert_int_equal(progress(world, "r")->phase, LH_RESTORE_COMPLETED);
    assert_int_equal(progress(world, "r")->replicas, 1);
    assert_int_equal(progress(world, "r")->live, 0);
    assert_int_equal(progress(world, "r")->until, T0 + 37 * MINUTE);
    /* Nothing is created again, by this leader or another. */
    fail_over(world);
    run_all(world);
    assert_int_equal(replicas(world), 0);
}

static void the_plan_wakes_when_it_should(void **state)
{
    g_autoptr(World) world = world_with("[\"default\"]", 1);

    (void)state;
    put_range(world, "r", "api", 0, 1, "");
    run(world, "restore-manager");
    g_autoptr(LhPlan) plan = plan_of(world, "restore-manager");
    assert_int_equal(plan->wake_ms, T0 + DAY);
}

static void what_is_not_live_within_a_day_is_given_up_and_reported(void **state)
{
    g_autoptr(World) world = world_with("[\"default\"]", 40);

    (void)state;
    put_node(world, "a-00000001", 1000, 50, ""); /* room for five restored ones */
    put_range(world, "r", "api", 0, 40, ",\"ttl\":\"300h\"");
    settle(world);
    world->now_ms += DAY - 1;
    settle(world);
    assert_int_equal(replicas(world), 40);
    assert_int_equal(progress(world, "r")->live, 5);
    world->now_ms++;
    g_autoptr(LhPlan) plan = plan_of(world, "restore-manager");
    assert_true(has_event(plan, "GivenUp"));
    fail_over(world);
    settle(world);
    assert_int_equal(replicas(world), 5);
    assert_int_equal(progress(world, "r")->given_up, 35);
    assert_int_equal(progress(world, "r")->phase, LH_RESTORE_ACTIVE);
    assert_string_equal(progress(world, "r")->message,
                        "35 of 40 replicas were not live within 24 h and are given up");
    assert_int_equal(progress(world, "r")->until, T0 + 300 * HOUR);
    assert_string_equal(condition_of(world, "restores/r/restore-manager", "Restored")->reason,
                        "GivenUp");
    assert_nothing_to_do(world, "restore-manager");
}

static void a_load_that_is_under_way_for_a_day_is_given_up(void **state)
{
    g_autoptr(World) world = world_with("[\"default\"]", 1);

    (void)state;
    put_big_node(world, "a-00000001", "");
    put_range(world, "r", "api", 0, 1, "");
    run_all(world);
    answer(world, "a-00000001/api-0.default.r0", "loading");
    world->now_ms += DAY;
    run(world, "restore-manager");
    run_all(world);
    const LhAssignment *order = look(world,
                                     "decided/assignments/cache/a-00000001/api-0.default.r0");
    assert_int_equal(order->action, LH_ACTION_EVICT);
    settle(world);
    assert_int_equal(replicas(world), 0);
    assert_int_equal(progress(world, "r")->phase, LH_RESTORE_COMPLETED);
    assert_int_equal(progress(world, "r")->given_up, 1);
}

/* It became live while the leader was deciding: what it relied on does not hold. */
static void what_becomes_live_at_the_last_moment_is_not_given_up(void **state)
{
    g_autoptr(World) world = world_with("[\"default\"]", 1);

    (void)state;
    put_big_node(world, "a-00000001", "");
    put_range(world, "r", "api", 0, 1, "");
    run_all(world);
    world->now_ms += DAY;
    g_autoptr(LhPlan) plan = plan_of(world, "restore-manager");
    answer(world, "a-00000001/api-0.default.r0", "live");
    for (guint i = 0; i < lh_plan_groups(plan); i++)
        apply_group(world, plan, i);
    assert_int_equal(progress(world, "r")->given_up, 0);
    settle(world);
    assert_int_equal(replica(world, "api-0.default.r0")->expires_at, T0 + DAY + HOUR);
}

static void none_goes_while_the_request_is_pending(void **state)
{
    g_autoptr(World) world = world_with("[\"default\"]", 1);

    (void)state;
    put_service(world, "web", "\"paused\":true");
    put_old(world, "web", 1);
    put_big_node(world, "a-00000001", "");
    put_range(world, "r", "*", 0, 1, ",\"ttl\":\"1m\"");
    settle(world);
    assert_int_equal(replicas(world), 1);
    assert_int_equal(progress(world, "r")->phase, LH_RESTORE_PENDING);
    assert_int_equal(progress(world, "r")->replicas, 2);
    assert_string_equal(progress(world, "r")->message, "service web is paused");
    assert_int_equal(replica(world, "api-0.default.r0")->expires_at, T0 + MINUTE);
    world->now_ms += 10 * MINUTE; /* its time is over, but the other does not exist yet */
    settle(world);
    fail_over(world);
    settle(world);
    assert_int_equal(replicas(world), 1);
    assert_int_equal(items_in(world, LH_ITEM_LIVE), 1);
    put_service(world, "web", "\"paused\":false");
    settle(world);
    assert_int_equal(progress(world, "r")->phase, LH_RESTORE_ACTIVE);
    assert_null(replica(world, "api-0.default.r0"));
    assert_null(replica(world, "api-0.default.r1"));
    assert_int_equal(replica(world, "web-0.default.r0")->expires_at, T0 + 11 * MINUTE);
    world->now_ms = T0 + 11 * MINUTE;
    settle(world);
    assert_int_equal(progress(world, "r")->phase, LH_RESTORE_COMPLETED);
}

/* The eviction was planned before the Restore was changed: etcd refuses it. */
static void an_eviction_relies_on_the_phase(void **state)
{
    g_autoptr(World) world = world_with("[\"default\"]", 2);

    (void)state;
    put_big_node(world, "a-00000001", "");
    put_range(world, "r", "api", 0, 1, ",\"ttl\":\"10m\"");
    settle(world);
    world->now_ms += 10 * MINUTE;
    run(world, "restore-manager");
    step(world, "cache-evictor"); /* reserves */
    g_autoptr(LhPlan) plan = plan_of(world, "cache-evictor");
    assert_int_equal(lh_plan_groups(plan), 1);
    put_range(world, "r", "api", 0, 2, ",\"ttl\":\"1h\"");
    step(world, "restore-manager");
    assert_int_equal(progress(world, "r")->phase, LH_RESTORE_PENDING);
    assert_false(apply_group(world, plan, 0));
    settle(world);
    /* One hour from when it was first live. */
    assert_int_equal(replica(world, "api-0.default.r0")->expires_at, T0 + HOUR);
    assert_int_equal(replica(world, "api-1.default.r0")->expires_at, T0 + 10 * MINUTE + HOUR);
}

/* ---- changes ---- */

static void a_changed_restore_extends_it(void **state)
{
    g_autoptr(World) world = world_with("[\"default\"]", 5);

    (void)state;
    put_big_node(world, "a-00000001", "");
    put_range(world, "r", "api", 0, 2, ",\"ttl\":\"1h\"");
    settle(world);
    gint64 first = mod_rev(world, "decided/replicas/api-0.default.r0");
    world->now_ms += 30 * MINUTE;
    put_range(world, "r", "api", 0, 3, ",\"ttl\":\"2h\"");
    settle(world);
    assert_int_equal(replicas(world), 3);
    assert_true(mod_rev(world, "decided/replicas/api-0.default.r0") > first);
    assert_int_equal(replica(world, "api-0.default.r0")->expires_at, T0 + 2 * HOUR);
    assert_int_equal(replica(world, "api-2.default.r0")->expires_at, T0 + 150 * MINUTE);
    assert_int_equal(progress(world, "r")->replicas, 3);
    /* Shorter: nothing is taken away. */
    put_range(world, "r", "api", 0, 3, ",\"ttl\":\"1m\"");
    settle(world);
    assert_int_equal(replica(world, "api-0.default.r0")->expires_at, T0 + 2 * HOUR);
    /* What has expired since comes back when it is asked for again. */
    world->now_ms = T0 + 2 * HOUR;
    settle(world);
    assert_null(replica(world, "api-0.default.r0"));
    put_range(world, "r", "api", 0, 3, ",\"ttl\":\"1h\"");
    settle(world);
    assert_int_equal(replica(world, "api-0.default.r0")->expires_at, T0 + 3 * HOUR);
    assert_int_equal(replicas(world), 3);
}

static void invalid_edits_touch_nothing(void **state)
{
    g_autoptr(World) world = world_with("[\"default\"]", 3);

    (void)state;
    put_big_node(world, "a-00000001", "");
    put_range(world, "r", "api", 0, 2, "");
    settle(world);
    gint64 revision = progress(world, "r")->o.mod_rev;
    put(world, "desired/restores/r",
        "{\"spec\":{\"service\":\"api\",\"startTime\":9,\"endTime\":1}}");
    settle(world);
    put_range(world, "ok", "api", 99, 100, ""); /* admission has its turn */
    settle(world);
    assert_int_equal(progress(world, "r")->o.mod_rev, revision);
    assert_int_equal(replicas(world), 2);
    /* Pending: written, and not looked at by admission yet. */
    putf(world, "desired/restores/r",
         "{\"spec\":{\"service\":\"api\",\"startTime\":%" PRId64 ",\"endTime\":%" PRId64 "}}", OLD,
         OLD + 3 * HOUR);
    assert_nothing_to_do(world, "restore-manager");
    assert_nothing_to_do(world, "cache-evictor");
    settle(world);
    assert_int_equal(replicas(world), 3);
}

static void what_a_deleted_restore_created_lives_until_its_ttl_ends(void **state)
{
    g_autoptr(World) world = world_with("[\"default\"]", 3);

    (void)state;
    put_node(world, "a-00000001", 50, 0, ""); /* reserve: five bytes, one of them */
    put_range(world, "r", "api", 0, 2, "");
    settle(world);
    assert_int_equal(progress(world, "r")->live, 1);
    del(world, "desired/restores/r");
    run_all(world);
    assert_null(progress(world, "r"));
    assert_null(look(world, "decided/status/restores/r/restore-manager"));
    assert_int_equal(replicas(world), 2);
    put_big_node(world, "b-00000001", "");
    world->now_ms += 30 * MINUTE;
    settle(world);
    assert_int_equal(replicas(world), 2); /* and the other is live from now on */
    world->now_ms = T0 + HOUR;
    settle(world);
    assert_int_equal(replicas(world), 1);
    world->now_ms = T0 + 90 * MINUTE;
    settle(world);
    assert_int_equal(replicas(world), 0);
    assert_nothing_to_do(world, "restore-manager");
}

static void asked_for_again_under_the_same_name(void **state)
{
    g_autoptr(World) world = world_with("[\"default\"]", 1);

    (void)state;
    put_big_node(world, "a-00000001", "");
    put_range(world, "r", "api", 0, 1, "");
    settle(world);
    del(world, "desired/restores/r");
    settle(world);
    put_range(world, "r", "api", 0, 1, ",\"ttl\":\"3h\"");
    settle(world);
    assert_int_equal(replicas(world), 1);
    assert_int_equal(replica(world, "api-0.default.r0")->expires_at, T0 + 3 * HOUR);
    assert_int_equal(progress(world, "r")->phase, LH_RESTORE_ACTIVE);
}

/* ---- unknown is not absent ---- */

static void nothing_is_created_on_what_does_not_parse(void **state)
{
    g_autoptr(World) world = world_with("[\"default\"]", 3);

    (void)state;
    put(world, "decided/replicas/api-0.default.r0", "not json");
    put(world, "published/snapshots/odd", "not json");
    put_range(world, "r", "api", 0, 2, "");
    put_restore(world, "named", "\"snapshots\":[\"odd\"]");
    run(world, "restore-manager");
    assert_int_equal(replicas(world), 2);
    assert_null(replica(world, "api-0.default.r1"));
    assert_int_equal(progress(world, "named")->phase, LH_RESTORE_PENDING);
    assert_string_equal(progress(world, "named")->message, "snapshot odd does not parse");
    put(world, "decided/accepted/services/api", "not json");
    put_restore(world, "s", "\"snapshots\":[\"api-2\",\"api-0\"]");
    run(world, "restore-manager");
    assert_int_equal(progress(world, "s")->phase, LH_RESTORE_PENDING);
    assert_non_null(strstr(progress(world, "s")->message, "does not parse"));
    /* Its own progress: nothing at all is done. */
    put(world, "decided/restoreprogress/s", "not json");
    run(world, "restore-manager");
    assert_string_equal(g_hash_table_lookup(world->values, "decided/restoreprogress/s"),
                        "not json");
}

static void nothing_goes_while_the_progress_does_not_parse(void **state)
{
    g_autoptr(World) world = world_with("[\"default\"]", 1);

    (void)state;
    put_big_node(world, "a-00000001", "");
    put_range(world, "r", "api", 0, 1, "");
    settle(world);
    put(world, "decided/restoreprogress/r", "not json");
    world->now_ms += DAY;
    settle(world);
    assert_int_equal(replicas(world), 1);
    assert_int_equal(items_in(world, LH_ITEM_LIVE), 1);
}

static void a_paused_service_keeps_what_was_restored(void **state)
{
    g_autoptr(World) world = world_with("[\"default\"]", 1);

    (void)state;
    put_big_node(world, "a-00000001", "");
    put_range(world, "r", "api", 0, 1, "");
    settle(world);
    put_service(world, "api", "\"paused\":true");
    world->now_ms += DAY;
    settle(world);
    assert_int_equal(replicas(world), 1);
    assert_int_equal(progress(world, "r")->phase, LH_RESTORE_ACTIVE);
    put_service(world, "api", "%s", "");
    settle(world);
    assert_int_equal(replicas(world), 0);
    assert_int_equal(progress(world, "r")->phase, LH_RESTORE_COMPLETED);
}

/* ---- the reserve ---- */

static void regular_and_restored_never_share_capacity(void **state)
{
    g_autoptr(World) world = world_new();
    const LhFleetHost *host;

    (void)state;
    put_settings(world, "cache-assigner", "\"restoreReservePercent\":20,\"maxConcurrentLoads\":99");
    put_service(world, "api", "%s", "");
    put_node(world, "a-00000001", 100, 0, "");
    put_old(world, "api", 10);
    for (int i = 0; i < 30; i++) {
        g_autofree char *name = g_strdup_printf("new-%d", i);
        put_snapshot(world, name, "api", T0 - i * SECOND, 5);
    }
    put_range(world, "r", "api", 0, 10, "");
    settle(world);
    host = g_hash_table_lookup(fleet(world)->hosts, "a");
    assert_int_equal(host->used_bytes, 80);
    assert_int_equal(host->restored_bytes, 20);
    assert_int_equal(progress(world, "r")->live, 4);
}

static void twins_never_share_a_node(void **state)
{
    g_autoptr(World) world = world_new();

    (void)state;
    put_service(world, "api", "\"cache\":{\"window\":\"2h\"}");
    put_snapshot(world, "s", "api", T0, 5);
    put_node(world, "a-00000001", 1000, 0, "");
    settle(world);
    /* The regular one is about to expire, and does not count any more; it is still there. */
    put_settings(world, "cache-evictor", "\"paused\":true");
    world->now_ms += 2 * HOUR;
    put_restore(world, "r", "\"snapshots\":[\"s\"]");
    run(world, "restore-manager");
    step(world, "cache-assigner");
    assert_non_null(replica(world, "s.default.r0"));
    g_autofree char *node = node_of(world, "s.default.r0");
    assert_null(node);
    put_node(world, "b-00000001", 1000, 0, "");
    step(world, "cache-assigner");
    g_autofree char *other = node_of(world, "s.default.r0");
    assert_string_equal(other, "b-00000001");
}

/* What does not parse any more is counted as what its name says. */
static void a_spoilt_restored_replica_still_counts_in_the_reserve(void **state)
{
    g_autoptr(World) world = world_with("[\"default\"]", 1);
    const LhFleetHost *host;

    (void)state;
    put_node(world, "a-00000001", 50, 0, "");
    put_range(world, "r", "api", 0, 1, "");
    settle(world);
    put(world, "decided/replicas/api-0.default.r0", "not json");
    for (int leader = 0; leader < 2; leader++) {
        host = g_hash_table_lookup(fleet(world)->hosts, "a");
        assert_int_equal(host->restored_bytes, 5);
        assert_int_equal(host->used_bytes, 0);
        fail_over(world);
    }
}

static void a_node_that_comes_back_smaller_keeps_no_more_than_its_reserve(void **state)
{
    g_autoptr(World) world = world_with("[\"default\"]", 4);

    (void)state;
    put_node(world, "a-00000001", 200, 0, ""); /* reserve 20: four */
    put_range(world, "r", "api", 0, 4, "");
    settle(world);
    assert_int_equal(progress(world, "r")->live, 4);
    lose_node(world, "a-00000001");
    put_node(world, "a-00000002", 100, 0, ""); /* reserve 10: two */
    settle(world);
    assert_int_equal(progress(world, "r")->live, 2);
}

/* ---- cost ---- */

static void add_name(LhFleetSnapshot *snapshot, gpointer data)
{
    g_ptr_array_add(data, (gpointer)snapshot->name);
}

static gint by_text(gconstpointer a, gconstpointer b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Every snapshot that overlaps is found, and no other, whatever their durations. */
static void ranges_find_what_overlaps(void **state)
{
    g_autoptr(World) world = world_new();
    g_autoptr(GRand) rand = g_rand_new_with_seed(7);
    gint64 starts[300], ends[300];
    const LhFleetService *service;

    (void)state;
    for (int i = 0; i < 300; i++) {
        gint64 duration = i % 50 == 0
                              ? 0
                              : g_rand_int_range(rand, 0, 1 << g_rand_int_range(rand, 1, 30));
        g_autofree char *key = g_strdup_printf("published/snapshots/s%03d", i);
        ends[i] = OLD + g_rand_int_range(rand, 0, 1 << 30);
        starts[i] = ends[i] - duration;
        putf(world, key,
             "{\"service\":\"api\",\"startTime\":%" PRId64 ",\"endTime\":%" PRId64
             ",\"sizeBytes\":5,\"uri\":\"s3://bucket/s%03d/\"}",
             starts[i], ends[i], i);
    }
    service = g_hash_table_lookup(fleet(world)->services, "api");
    for (int n = 0; n < 400; n++) {
        gint64 start = OLD + g_rand_int_range(rand, 0, 1 << 30);
        gint64 end = n % 3 == 0 ? start : start + g_rand_int_range(rand, 0, 1 << 28);
        g_autoptr(GPtrArray) found = g_ptr_array_new();
        guint want = 0;
        if (n % 7 == 0)
            end = start = ends[n % 300];
        lh_fleet_between(service, start, end, add_name, found);
        g_ptr_array_sort(found, by_text);
        for (int i = 0; i < 300; i++) {
            g_autofree char *name = g_strdup_printf("s%03d", i);
            if (starts[i] > end || ends[i] < start)
                continue;
            assert_true(want < found->len);
            assert_string_equal(found->pdata[want++], name);
        }
        assert_int_equal(want, found->len);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_set_gets_its_replicas),
        cmocka_unit_test(the_queue_is_not_drained_by_the_first_set),
        cmocka_unit_test(a_request_is_not_lost_with_its_process),
        cmocka_unit_test(one_refused_creation_neither_aborts_the_pass_nor_counts),
        cmocka_unit_test(what_is_live_or_coming_is_not_restored),
        cmocka_unit_test(an_expired_replica_that_is_not_deleted_yet_does_not_block),
        cmocka_unit_test(live_snapshots_are_not_restored),
        cmocka_unit_test(only_the_service_and_the_range_that_are_asked_for),
        cmocka_unit_test(exactly_the_limit_is_not_refused_one_more_is),
        cmocka_unit_test(exactly_the_limit_in_one_request),
        cmocka_unit_test(expiry_is_set_once_from_when_it_was_first_live),
        cmocka_unit_test(the_plan_wakes_when_it_should),
        cmocka_unit_test(what_is_not_live_within_a_day_is_given_up_and_reported),
        cmocka_unit_test(a_load_that_is_under_way_for_a_day_is_given_up),
        cmocka_unit_test(what_becomes_live_at_the_last_moment_is_not_given_up),
        cmocka_unit_test(none_goes_while_the_request_is_pending),
        cmocka_unit_test(an_eviction_relies_on_the_phase),
        cmocka_unit_test(a_changed_restore_extends_it),
        cmocka_unit_test(invalid_edits_touch_nothing),
        cmocka_unit_test(what_a_deleted_restore_created_lives_until_its_ttl_ends),
        cmocka_unit_test(asked_for_again_under_the_same_name),
        cmocka_unit_test(nothing_is_created_on_what_does_not_parse),
        cmocka_unit_test(nothing_goes_while_the_progress_does_not_parse),
        cmocka_unit_test(a_paused_service_keeps_what_was_restored),
        cmocka_unit_test(regular_and_restored_never_share_capacity),
        cmocka_unit_test(twins_never_share_a_node),
        cmocka_unit_test(a_spoilt_restored_replica_still_counts_in_the_reserve),
        cmocka_unit_test(a_node_that_comes_back_smaller_keeps_no_more_than_its_reserve),
        cmocka_unit_test(ranges_find_what_overlaps),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
