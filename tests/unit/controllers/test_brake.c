/*
 * The brake of cache-evictor: when it holds, what it stands for, and what releases it.
 */
#include "tests/unit/controllers/harness.h"

/* @counts[i] live items of service s<i>, window 24 h. */
static World *live_services(const int *counts, int n)
{
    World *world = world_new();

    put_settings(world, "cache-assigner", "\"maxConcurrentLoads\":1000");
    for (int s = 0; s < n; s++) {
        g_autofree char *service = g_strdup_printf("s%d", s);
        put_service(world, service, "%s", "");
        for (int i = 0; i < counts[s]; i++) {
            g_autofree char *name = g_strdup_printf("s%d-%03d", s, i);
            put_snapshot(world, name, service, T0 - SECOND * i, 10);
        }
    }
    put_node(world, "a-00000001", 100000, 0, "");
    put_node(world, "b-00000001", 100000, 0, "");
    settle(world);
    return world;
}

static guint evicting(const World *world)
{
    g_autoptr(GPtrArray) keys = keys_below(world, "decided/assignments/");
    guint n = 0;

    for (guint i = 0; i < keys->len; i++)
        n += ((const LhAssignment *)look(world, keys->pdata[i]))->action == LH_ACTION_EVICT;
    return n;
}

static const LhBrake *brake(const World *world)
{
    return look(world, "decided/brakes/cache-evictor");
}

static void drop_service(World *world, const char *name)
{
    g_autofree char *key = g_strconcat("desired/services/", name, NULL);

    del(world, key);
    run(world, "admission");
}

static void confirm(World *world, const char *hash)
{
    putf(world, "desired/confirmations/cache-evictor", "{\"spec\":{\"planHash\":\"%s\"}}", hash);
    run(world, "admission");
}

static void small_plans_are_carried_out(void **state)
{
    const int counts[] = {10, 5, 20, 80};
    g_autoptr(World) ten_of_fifteen = live_services(counts, 2);
    g_autoptr(World) twenty_of_hundred = live_services(counts + 2, 2);

    (void)state;
    drop_service(ten_of_fifteen, "s0"); /* 67 %, but no more than 10 */
    run(ten_of_fifteen, "cache-evictor");
    assert_null(brake(ten_of_fifteen));
    assert_int_equal(evicting(ten_of_fifteen), 10);
    drop_service(twenty_of_hundred, "s0"); /* more than 10, but no more than 20 % */
    run(twenty_of_hundred, "cache-evictor");
    assert_null(brake(twenty_of_hundred));
    assert_int_equal(evicting(twenty_of_hundred), 20);
    settle(twenty_of_hundred);
    assert_int_equal(items_in(twenty_of_hundred, LH_ITEM_LIVE), 80);
}

static void more_than_ten_and_a_fifth_brake(void **state)
{
    const int eleven[] = {11, 5}, more[] = {21, 79};
    g_autoptr(World) small = live_services(eleven, 2), large = live_services(more, 2);

    (void)state;
    drop_service(small, "s0");
    g_autoptr(LhPlan) plan = plan_of(small, "cache-evictor");
    assert_true(has_event(plan, "Braked"));
    run(small, "cache-evictor");
    assert_int_equal(evicting(small), 0);
    assert_int_equal(brake(small)->eligible, 11);
    assert_int_equal(brake(small)->of, 16);
    assert_int_equal(brake(small)->since, T0);
    assert_int_equal(brake(small)->confirmed_at, -1);
    assert_non_null(strstr(brake(small)->message, brake(small)->plan_hash));
    assert_int_equal(condition_of(small, "settings/cache-evictor/cache-evictor", "Braked")->status,
                     LH_CONDITION_TRUE);
    settle(small);
    assert_int_equal(items_in(small, LH_ITEM_LIVE), 16);
    drop_service(large, "s0");
    run(large, "cache-evictor");
    assert_non_null(brake(large));
    assert_int_equal(evicting(large), 0);
}

/* The names are those that were confirmed, but one of them is not what it was: that is said. */
static void a_confirmation_of_what_has_changed_is_said_not_to_count(void **state)
{
    static const char status[] = "settings/cache-evictor/cache-evictor";
    const int counts[] = {11, 5};
    g_autoptr(World) world = live_services(counts, 2);

    (void)state;
    drop_service(world, "s0");
    run(world, "cache-evictor");
    g_autofree char *hash = g_strdup(brake(world)->plan_hash);
    confirm(world, hash);
    put_snapshot(world, "s0-003", "s0", T0 - 3 * SECOND, 10);
    run(world, "cache-evictor");
    assert_string_equal(brake(world)->plan_hash, hash);
    assert_int_equal(brake(world)->confirmed_at, -1);
    assert_int_equal(evicting(world), 0);
    assert_non_null(strstr(condition_of(world, status, "Braked")->message, "once more"));
    confirm(world, hash);
    run(world, "cache-evictor");
    assert_int_equal(evicting(world), 11);
}

/* 18 of 100 within one minute, 5 more three minutes later: 23 %. */
static void small_steps_do_not_slip_under(void **state)
{
    const int counts[] = {18, 5, 77};
    g_autoptr(World) world = live_services(counts, 3);

    (void)state;
    drop_service(world, "s0");
    run(world, "cache-evictor");
    assert_int_equal(evicting(world), 18);
    /* Whether the nodes have answered meanwhile makes no difference, nor who leads. */
    for (int answered = 0; answered < 2; answered++) {
        world->now_ms += 90 * SECOND;
        if (answered == 1)
            settle(world);
        fail_over(world);
        if (answered == 0)
            drop_service(world, "s1");
        run(world, "cache-evictor");
        assert_non_null(brake(world));
        assert_int_equal(brake(world)->eligible, 5);
    }
    /* Ten minutes (and a slice of the ledger) later they alone are too few to brake. */
    g_autoptr(LhPlan) plan = plan_of(world, "cache-evictor");
    assert_int_equal(plan->wake_ms, T0 + 11 * MINUTE);
    world->now_ms = T0 + 11 * MINUTE;
    run(world, "cache-evictor");
    assert_null(brake(world));
    assert_int_equal(evicting(world), 5);
}

/* 16 reserved, 10 of them ordered. */
static World *half_ordered(void)
{
    const int counts[] = {16, 12, 72};
    World *world = live_services(counts, 3);

    put_service(world, "s0", "\"cache\":{\"replicas\":0}");
    step(world, "cache-evictor");
    g_autoptr(LhPlan) plan = plan_of(world, "cache-evictor");
    assert_int_equal(lh_plan_groups(plan), 16);
    for (guint i = 0; i < 10; i++)
        apply_group(world, plan, i);
    return world;
}

static void what_is_reserved_and_not_yet_ordered_counts_once(void **state)
{
    g_autoptr(World) world = half_ordered();

    (void)state;
    fail_over(world);
    settle(world);
    assert_null(brake(world));
    assert_int_equal(items_in(world, LH_ITEM_LIVE), 84);
    put_service(world, "s1", "\"cache\":{\"replicas\":0}");
    run(world, "cache-evictor");
    assert_non_null(brake(world)); /* 28 */
}

static void what_was_ordered_of_a_reservation_counts(void **state)
{
    g_autoptr(World) world = half_ordered();

    (void)state;
    put_service(world, "s1", "\"cache\":{\"replicas\":0}");
    run(world, "cache-evictor");
    assert_non_null(brake(world)); /* 10 ordered, 6 and 12 due */
    assert_int_equal(brake(world)->eligible, 18);
    assert_int_equal(evicting(world), 10);
}

/* All that was reserved is ordered, and before that is noted more is due, of which nothing has changed since: a
 * snapshot that is gone leaves no revision behind. */
static void what_comes_after_a_reservation_is_not_taken_for_it(void **state)
{
    const int counts[] = {10, 12, 78};
    g_autoptr(World) world = live_services(counts, 3);

    (void)state;
    for (int i = 0; i < counts[0]; i++) {
        g_autofree char *key = g_strdup_printf("published/snapshots/s0-%03d", i);
        del(world, key);
    }
    step(world, "cache-evictor");
    g_autoptr(LhPlan) plan = plan_of(world, "cache-evictor");
    assert_int_equal(lh_plan_groups(plan), 10);
    for (guint i = 0; i < 10; i++)
        apply_group(world, plan, i);
    for (int i = 0; i < counts[1]; i++) {
        g_autofree char *key = g_strdup_printf("published/snapshots/s1-%03d", i);
        del(world, key);
    }
    run(world, "cache-evictor");
    assert_non_null(brake(world)); /* 22 */
    assert_int_equal(brake(world)->eligible, 12);
    assert_int_equal(evicting(world), 10);
}

/* What was reserved and never ordered makes no room for later. */
static void a_reservation_that_was_not_used_makes_no_room(void **state)
{
    const int counts[] = {18, 30, 52};
    g_autoptr(World) world = live_services(counts, 3);

    (void)state;
    put_service(world, "s0", "\"cache\":{\"replicas\":0}");
    step(world, "cache-evictor"); /* reserves 18 */
    put_service(world, "s0", "%s", "");
    world->now_ms += 20 * MINUTE;
    put_service(world, "s1", "\"cache\":{\"replicas\":0}");
    run(world, "cache-evictor");
    assert_non_null(brake(world));
    assert_int_equal(evicting(world), 0);
}

static void the_hash_holds_still_as_time_passes(void **state)
{
    const int counts[] = {40, 60};
    g_autoptr(World) world = live_services(counts, 2);
    gint64 written;

    (void)state;
    put_service(world, "s0",
                "\"cache\":{\"window\":\"19s\"}"); /* 21 of 40 are due, one more each second */
    run_all(world);
    world->now_ms += 5 * SECOND;
    run_all(world);
    g_autofree char *hash = g_strdup(brake(world)->plan_hash);
    written = mod_rev(world, "decided/brakes/cache-evictor");
    gint64 eligible = brake(world)->eligible;
    for (int i = 0; i < 10; i++) {
        world->now_ms += SECOND;
        if (i == 5)
            fail_over(world);
        run_all(world);
    }
    assert_int_equal(mod_rev(world, "decided/brakes/cache-evictor"), written);
    confirm(world, hash);
    world->max_groups = 7; /* in several rounds, by several leaders */
    fail_over(world);
    step(world, "cache-evictor"); /* confirmed */
    assert_int_equal(brake(world)->confirmed_at, world->now_ms);
    step(world, "cache-evictor");
    fail_over(world);
    world->now_ms += 2 * SECOND;
    step(world, "cache-evictor");
    fail_over(world);
    for (guint last = 0; last != evicting(world);) {
        last = evicting(world);
        step(world, "cache-evictor");
    }
    assert_int_equal(evicting(world), eligible); /* exactly that set */
}

static void after_the_confirmed_plan_the_rest_is_counted_anew(void **state)
{
    const int counts[] = {30, 70};
    g_autoptr(World) world = live_services(counts, 2);

    (void)state;
    drop_service(world, "s0");
    run(world, "cache-evictor");
    confirm(world, brake(world)->plan_hash);
    g_autoptr(LhPlan) plan = plan_of(world, "cache-evictor");
    assert_true(has_event(plan, "Confirmed"));
    run(world, "cache-evictor");
    assert_int_equal(evicting(world), 30);
    assert_null(brake(world));
    assert_int_equal(condition_of(world, "settings/cache-evictor/cache-evictor", "Braked")->status,
                     LH_CONDITION_FALSE);
    drop_service(world, "s1");
    run(world, "cache-evictor");
    assert_non_null(brake(world));
    assert_int_equal(brake(world)->eligible, 70);
    assert_int_equal(evicting(world), 30);
}

/* A service deleted while a confirmed plan is carried out was not confirmed. */
static void what_was_not_confirmed_is_not_carried_out(void **state)
{
    const int counts[] = {16, 40, 20};
    g_autoptr(World) world = live_services(counts, 3);

    (void)state;
    drop_service(world, "s0");
    run(world, "cache-evictor");
    confirm(world, brake(world)->plan_hash);
    step(world, "cache-evictor");
    assert_true(brake(world)->confirmed_at >= 0);
    drop_service(world, "s1");
    run(world, "cache-evictor");
    assert_int_equal(evicting(world), 0);
    assert_int_equal(brake(world)->confirmed_at, -1);
    assert_int_equal(brake(world)->eligible, 56);
}

static void other_confirmations_release_nothing(void **state)
{
    const int counts[] = {30, 70};
    g_autoptr(World) world = live_services(counts, 2);

    (void)state;
    drop_service(world, "s0");
    run(world, "cache-evictor");
    confirm(world, "0123456789abcdef");
    run(world, "cache-evictor");
    assert_int_equal(evicting(world), 0);
    /* One that was accepted too long ago. */
    world->now_ms += MINUTE;
    putf(world, "decided/accepted/confirmations/cache-evictor",
         "{\"revision\":%" PRId64 ",\"acceptedAt\":%" PRId64 ",\"spec\":{\"planHash\":\"%s\"}}",
         brake(world)->revision + 1, world->now_ms, brake(world)->plan_hash);
    world->now_ms += 10 * MINUTE + 1;
    run(world, "cache-evictor");
    assert_int_equal(evicting(world), 0);
    /* One from before the brake. */
    putf(world, "decided/accepted/confirmations/cache-evictor",
         "{\"revision\":%" PRId64 ",\"acceptedAt\":%" PRId64 ",\"spec\":{\"planHash\":\"%s\"}}",
         brake(world)->revision, world->now_ms, brake(world)->plan_hash);
    run(world, "cache-evictor");
    assert_int_equal(evicting(world), 0);
    /* And one just after it, whatever the clock of who accepted it says. */
    putf(world, "decided/accepted/confirmations/cache-evictor",
         "{\"revision\":%" PRId64 ",\"acceptedAt\":%" PRId64 ",\"spec\":{\"planHash\":\"%s\"}}",
         brake(world)->revision + 1, brake(world)->since - 1, brake(world)->plan_hash);
    world->now_ms = brake(world)->since + MINUTE;
    run(world, "cache-evictor");
    assert_int_equal(evicting(world), 30);
}

static void an_edit_taken_back_releases(void **state)
{
    const int counts[] = {30, 70};
    g_autoptr(World) world = live_services(counts, 2);

    (void)state;
    put_service(world, "s0", "\"cache\":{\"replicas\":0}");
    run(world, "cache-evictor");
    assert_non_null(brake(world));
    put_service(world, "s0", "%s", "");
    g_autoptr(LhPlan) plan = plan_of(world, "cache-evictor");
    assert_true(has_event(plan, "BrakeReleased"));
    run(world, "cache-evictor");
    assert_null(brake(world));
    settle(world);
    assert_int_equal(items_in(world, LH_ITEM_LIVE), 100);
}

static void a_higher_percentage_releases(void **state)
{
    const int counts[] = {30, 70};
    g_autoptr(World) world = live_services(counts, 2);

    (void)state;
    drop_service(world, "s0");
    run(world, "cache-evictor");
    assert_non_null(brake(world));
    put_settings(world, "cache-evictor", "\"brakePercent\":30");
    run(world, "cache-evictor");
    assert_null(brake(world));
    assert_int_equal(evicting(world), 30);
}

static void a_braked_set_that_changes_is_another_plan(void **state)
{
    const int counts[] = {30, 70};
    g_autoptr(World) world = live_services(counts, 2);

    (void)state;
    put_service(world, "s0", "\"cache\":{\"replicas\":0}");
    run(world, "cache-evictor");
    g_autofree char *hash = g_strdup(brake(world)->plan_hash);
    put_service(world, "s1", "\"cache\":{\"window\":\"1m\"}");
    put_service(world, "s0", "\"cache\":{\"sets\":[\"blue\"]}");
    run(world, "cache-evictor");
    confirm(world, hash);
    world->now_ms += SECOND;
    run(world, "cache-evictor");
    if (strcmp(hash, brake(world)->plan_hash) != 0)
        assert_int_equal(evicting(world), 0);
}

/* The runtime's part: a Confirmation of it ends what it remembers. */
static void confirm_restored(World *world)
{
    assert_int_equal(brake(world)->cause, LH_BRAKE_RESTORED);
    confirm(world, brake(world)->plan_hash);
    assert_int_equal(step(world, "cache-evictor"), 1);
    assert_true(brake(world)->confirmed_at >= 0);
    world->regressed = FALSE;
}

static void a_restored_etcd_brakes_until_it_is_confirmed(void **state)
{
    const int counts[] = {1, 99};
    g_autoptr(World) world = live_services(counts, 2);

    (void)state;
    world->regressed = TRUE;
    world->regressed_rev = world->revision;
    run(world, "cache-evictor"); /* also while nothing is due: it must outlive who saw it */
    assert_int_equal(brake(world)->cause, LH_BRAKE_RESTORED);
    assert_non_null(strstr(brake(world)->message, "back in time"));
    drop_service(world, "s0");
    run(world, "cache-evictor");
    assert_int_equal(evicting(world), 0);
    world->regressed = FALSE; /* a leader that was started since has not seen it */
    fail_over(world);
    assert_nothing_to_do(world, "cache-evictor");
    confirm_restored(world);
    run(world, "cache-evictor");
    assert_null(brake(world));
    assert_int_equal(evicting(world), 1);
}

/* Each cause has a Confirmation of its own. */
static void too_much_is_confirmed_apart_from_a_restoration(void **state)
{
    const int counts[] = {30, 70};
    g_autoptr(World) much = live_services(counts, 2), restored = live_services(counts, 2);

    (void)state;
    drop_service(restored, "s0");
    restored->regressed = TRUE;
    run(restored, "cache-evictor");
    confirm_restored(restored);
    run(restored, "cache-evictor");
    assert_int_equal(evicting(restored), 0);
    assert_int_equal(brake(restored)->cause, LH_BRAKE_MUCH);
    drop_service(much, "s0");
    run(much, "cache-evictor");
    confirm(much, brake(much)->plan_hash);
    assert_int_equal(step(much, "cache-evictor"), 1);
    assert_true(brake(much)->confirmed_at >= 0);
    much->regressed = TRUE; /* seen after that Brake was made by somebody else */
    run(much, "cache-evictor");
    assert_int_equal(evicting(much), 0);
    assert_int_equal(brake(much)->cause, LH_BRAKE_RESTORED);
}

/* 21 of 100 are no less because there are 200 now. */
static void what_is_braked_is_no_smaller_share_of_more(void **state)
{
    const int counts[] = {21, 79};
    g_autoptr(World) world = live_services(counts, 2);

    (void)state;
    drop_service(world, "s0");
    run(world, "cache-evictor");
    assert_non_null(brake(world));
    put_service(world, "more", "%s", "");
    for (int i = 0; i < 100; i++) {
        g_autofree char *name = g_strdup_printf("more-%03d", i);
        put_snapshot(world, name, "more", T0, 10);
    }
    settle(world);
    run(world, "cache-evictor");
    assert_non_null(brake(world));
    assert_int_equal(evicting(world), 0);
}

/* What is left of a confirmed plan after half an hour is asked for again. */
static void a_confirmation_does_not_count_for_ever(void **state)
{
    const int counts[] = {30, 70};
    g_autoptr(World) world = live_services(counts, 2);

    (void)state;
    drop_service(world, "s0");
    run(world, "cache-evictor");
    confirm(world, brake(world)->plan_hash);
    assert_int_equal(step(world, "cache-evictor"), 1);
    world->now_ms += 30 * MINUTE + 1;
    run(world, "cache-evictor");
    assert_int_equal(evicting(world), 0);
    assert_int_equal(brake(world)->confirmed_at, -1);
}

/* What became due because something was deleted cannot be told from what was reserved, but counted. */
static void what_was_reserved_for_others_makes_no_room(void **state)
{
    const int counts[] = {5, 8, 20};
    g_autoptr(World) world = live_services(counts, 2);

    (void)state;
    drop_service(world, "s0");
    assert_int_equal(step(world, "cache-evictor"), 1); /* reserves */
    assert_int_equal(step(world, "cache-evictor"), 5);
    drop_service(world, "s1");
    run(world, "cache-evictor");
    assert_int_equal(evicting(world), 5);
    assert_non_null(brake(world));
    assert_int_equal(brake(world)->eligible, 8);
}

/* A Brake that was confirmed before the backup was made, and what was written to confirm it. */
static void what_came_back_with_a_backup_confirms_nothing(void **state)
{
    const int counts[] = {30, 70};

    (void)state;
    for (guint confirmed = 0; confirmed < 2; confirmed++) {
        g_autoptr(World) world = live_services(counts, 2);
        drop_service(world, "s0");
        run(world, "cache-evictor");
        g_autofree char *hash = g_strdup(brake(world)->plan_hash);
        confirm(world, hash);
        world->now_ms += SECOND;
        if (confirmed) {
            assert_int_equal(step(world, "cache-evictor"), 1);
            assert_true(brake(world)->confirmed_at >= 0);
        }
        world->regressed = TRUE;
        world->regressed_rev = world->revision;
        run(world, "cache-evictor");
        assert_int_equal(evicting(world), 0);
        assert_int_equal(brake(world)->confirmed_at, -1);
        assert_true(brake(world)->revision >= world->regressed_rev);
        assert_string_not_equal(brake(world)->plan_hash, hash);
        /* Accepted anew, it is still what was written then. */
        run(world, "admission");
        confirm(world, hash);
        run(world, "cache-evictor");
        assert_int_equal(evicting(world), 0);
        assert_int_equal(brake(world)->confirmed_at, -1);
        confirm_restored(world);
        run(world, "cache-evictor");
        confirm(world, brake(world)->plan_hash);
        run(world, "cache-evictor");
        assert_int_equal(evicting(world), 30);
    }
}

/* Nothing is left of what it stood for: what stands is that etcd was restored. */
static void an_old_brake_gives_way_to_that_of_the_restoration(void **state)
{
    const int counts[] = {30, 70};
    g_autoptr(World) world = live_services(counts, 2);

    (void)state;
    drop_service(world, "s0");
    run(world, "cache-evictor");
    put_service(world, "s0", "%s", "");
    world->regressed = TRUE;
    world->regressed_rev = world->revision;
    run(world, "cache-evictor");
    assert_int_equal(brake(world)->cause, LH_BRAKE_RESTORED);
    assert_int_equal(evicting(world), 0);
}

static void dead_nodes_are_exempt(void **state)
{
    const int counts[] = {40};
    g_autoptr(World) world = live_services(counts, 1);

    (void)state;
    lose_node(world, "a-00000001"); /* with half of everything */
    drop_service(world, "s0");
    run_all(world);
    assert_int_equal(brake(world)->eligible, 20);
    assert_int_equal(evicting(world), 0);
    assert_int_equal(count_below(world, "decided/assignments/cache/a-"),
                     0); /* not held by the brake */
    assert_int_equal(count_below(world, "decided/assignments/cache/b-"), 20);
}

static void a_brake_that_does_not_parse_stops_everything(void **state)
{
    const int counts[] = {5, 95};
    g_autoptr(World) world = live_services(counts, 2);

    (void)state;
    put(world, "decided/brakes/cache-evictor", "spoilt");
    drop_service(world, "s0");
    run(world, "cache-evictor");
    assert_int_equal(evicting(world), 0);
    del(world, "decided/brakes/cache-evictor");
    put(world, "decided/status/settings/cache-evictor/cache-evictor", "spoilt");
    run(world, "cache-evictor");
    assert_int_equal(evicting(world), 0);
    del(world, "decided/status/settings/cache-evictor/cache-evictor");
    run(world, "cache-evictor");
    assert_int_equal(evicting(world), 5);
}

/* The ledger stays short, whatever the rate. */
static void the_ledger_has_a_row_a_minute(void **state)
{
    const int counts[] = {100};
    g_autoptr(World) world = live_services(counts, 1);

    (void)state;
    put_settings(world, "cache-evictor", "\"brakePercent\":100");
    world->now_ms = T0 + DAY - 100 * SECOND;
    for (int i = 0; i < 300; i++) {
        world->now_ms += SECOND;
        run(world, "cache-evictor");
        const LhStatus *status = look(world, "decided/status/settings/cache-evictor/cache-evictor");
        assert_true(status == NULL || status->recent->n <= 13);
    }
    assert_int_equal(evicting(world), 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_plans_are_carried_out),
        cmocka_unit_test(more_than_ten_and_a_fifth_brake),
        cmocka_unit_test(a_confirmation_of_what_has_changed_is_said_not_to_count),
        cmocka_unit_test(small_steps_do_not_slip_under),
        cmocka_unit_test(what_is_reserved_and_not_yet_ordered_counts_once),
        cmocka_unit_test(what_was_ordered_of_a_reservation_counts),
        cmocka_unit_test(what_comes_after_a_reservation_is_not_taken_for_it),
        cmocka_unit_test(a_reservation_that_was_not_used_makes_no_room),
        cmocka_unit_test(the_hash_holds_still_as_time_passes),
        cmocka_unit_test(after_the_confirmed_plan_the_rest_is_counted_anew),
        cmocka_unit_test(what_was_not_confirmed_is_not_carried_out),
        cmocka_unit_test(other_confirmations_release_nothing),
        cmocka_unit_test(an_edit_taken_back_releases),
        cmocka_unit_test(a_higher_percentage_releases),
        cmocka_unit_test(a_braked_set_that_changes_is_another_plan),
        cmocka_unit_test(a_restored_etcd_brakes_until_it_is_confirmed),
        cmocka_unit_test(too_much_is_confirmed_apart_from_a_restoration),
        cmocka_unit_test(what_is_braked_is_no_smaller_share_of_more),
        cmocka_unit_test(a_confirmation_does_not_count_for_ever),
        cmocka_unit_test(what_was_reserved_for_others_makes_no_room),
        cmocka_unit_test(what_came_back_with_a_backup_confirms_nothing),
        cmocka_unit_test(an_old_brake_gives_way_to_that_of_the_restoration),
        cmocka_unit_test(dead_nodes_are_exempt),
        cmocka_unit_test(a_brake_that_does_not_parse_stops_everything),
        cmocka_unit_test(the_ledger_has_a_row_a_minute),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
