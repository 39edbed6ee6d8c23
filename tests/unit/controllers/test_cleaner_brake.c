/*
 * The brake of snapshot-cleaner: a restored etcd, too much at once, and what each Confirmation lets go.
 */
#include "tests/unit/controllers/cleaner_world.h"

/* etcd was restored from an old backup: only a person can say that it is well. */
static void an_etcd_from_the_past_is_confirmed_first(void **state)
{
    g_autoptr(World) world = world_with(3, 0);

    (void)state;
    put(world, "decided/deletions/gone",
        "{\"uri\":\"" ROOT "gone/\",\"snapshotRevision\":5,\"decidedAt\":6}");
    world->regressed = TRUE;
    world->regressed_rev = world->revision;
    assert_keeps_decided(world, 1);
    assert_restored(world);
    assert_non_null(strstr(brake(world)->message, "back in time"));
    /* Any other leader, also one that was started since and saw nothing. */
    world->regressed = FALSE;
    fail_over(world);
    assert_keeps_decided(world, 1);
    assert_restored(world);
    confirm_brake(world);
    run(world, C);
    assert_null(brake(world));
    assert_int_equal(deletions(world), 4);
    assert_true(wants(world, "delete.gone "));
}

/* It is a key before anything is due: nobody may forget it meanwhile. */
static void a_restoration_is_braked_with_nothing_to_do(void **state)
{
    g_autoptr(World) world = world_with(1, DAY);

    (void)state;
    world->regressed = TRUE;
    run(world, C);
    assert_restored(world);
    world->regressed = FALSE;
    fail_over(world);
    pass_time(world, DAY);
    assert_keeps(world);
    assert_restored(world);
}

static void a_newer_marker_stays_newer_until_it_is_confirmed(void **state)
{
    g_autoptr(World) world = world_with(2, 0);
    gint64 marker = world->revision + 50;
    g_autofree char *more = g_strdup_printf(",\"revision\":%" PRId64, marker);

    (void)state;
    look_at(world, "newer", world->now_ms, more);
    assert_keeps(world);
    assert_restored(world);
    /* However far etcd gets, and whoever looks: a look does not raise it. */
    while (world->revision < marker + 10)
        put(world, "desired/cordons/x", "{}");
    assert_int_equal(look_number(world, "look."), marker - 1);
    fail_over(world);
    assert_int_equal(look_number(world, "look."), marker - 1);
    all_well(world); /* or somebody else did */
    assert_keeps(world);
    assert_restored(world);
    look_at(world, "newer", world->now_ms, more);
    confirm_brake(world);
    assert_int_equal(look_number(world, "claim"), world->revision);
    run(world, C);
    assert_int_equal(deletions(world), 0); /* it is not claimed yet */
    all_well(world);
    run(world, C);
    assert_null(brake(world));
    assert_int_equal(deletions(world), 2);
}

/* What was confirmed was another marker: nothing is written over this one. */
static void another_marker_is_not_claimed(void **state)
{
    g_autoptr(World) world = world_with(2, 0);

    (void)state;
    look_at(world, "newer", world->now_ms, ",\"revision\":99998");
    run(world, C);
    confirm_brake(world);
    look_at(world, "newer", world->now_ms, ",\"revision\":99999");
    look_number(world, "look.");
    assert_keeps(world);
    assert_restored(world);
}

/* A Confirmation of one cause is none of another, whether etcd was seen going back or only its marker is. */
static void what_was_confirmed_as_much_confirms_no_restoration(void **state)
{
    for (int marker = 0; marker < 2; marker++) {
        g_autoptr(World) world = world_with(12, 0);
        put_settings(world, C, "\"buffer\":\"1m\",\"deletesPerSecond\":3");
        run(world, C);
        assert_int_equal(brake(world)->cause, LH_BRAKE_MUCH);
        confirm_brake(world);
        if (marker)
            look_at(world, "newer", world->now_ms, ",\"revision\":99999");
        else
            world->regressed = TRUE; /* and the Brake is of this history */
        assert_keeps(world);
        assert_restored(world);
        look_number(world, "look.");
    }
    (void)state;
}

/* The wrong root, or one that is not there any more: only a person can say that it is the right one. */
static void a_root_without_a_marker_is_confirmed_first(void **state)
{
    g_autoptr(World) world = world_with(2, 0);

    (void)state;
    look_at(world, "unmarked", world->now_ms, ",\"revision\":0");
    assert_keeps(world);
    assert_restored(world);
    assert_non_null(strstr(brake(world)->message, ROOT ": it has no marker"));
    assert_null(strstr(brake(world)->message, "back in time"));
    assert_false(claims(world));
    look_at(world, "ours", world->now_ms, ""); /* the volume is back: somebody should know */
    assert_keeps(world);
    assert_restored(world);
    look_at(world, "unmarked", world->now_ms, ",\"revision\":0");
    confirm_brake(world);
    world->now_ms += 11 * SECOND;
    assert_true(claims(world)); /* and only then the marker is written */
    all_well(world);
    run(world, C);
    run(world, C);
    assert_int_equal(deletions(world), 2);
    assert_null(brake(world));
}

static void a_confirmed_restoration_confirms_no_masses(void **state)
{
    g_autoptr(World) world = world_with(12, 0);

    (void)state;
    put_settings(world, C, "\"buffer\":\"1m\"");
    world->regressed = TRUE;
    run(world, C);
    confirm_brake(world);
    world->regressed = FALSE;
    assert_keeps(world);
    assert_int_equal(brake(world)->cause, LH_BRAKE_MUCH);
}

/* A confirmed Brake for a restoration that came back with a backup. */
static void an_old_confirmation_of_a_restoration_is_none(void **state)
{
    g_autoptr(World) seen = world_with(2, 0), told = world_with(2, 0);
    World *both[] = {seen, told};

    (void)state;
    for (int i = 0; i < 2; i++) {
        both[i]->regressed = TRUE;
        run(both[i], C);
        confirm_brake(both[i]);
    }
    seen->regressed_rev = seen->revision;
    assert_keeps(seen);
    assert_restored(seen);
    told->regressed = FALSE; /* nobody saw it, but the marker tells */
    look_at(told, "newer", told->now_ms, ",\"revision\":99999");
    assert_keeps(told);
    assert_restored(told);
}

static void a_brake_that_does_not_parse_holds_what_is_decided(void **state)
{
    g_autoptr(World) world = world_with(1, 0);

    (void)state;
    run(world, C);
    assert_true(wants(world, "delete."));
    put(world, "decided/brakes/" C, "{");
    assert_false(wants(world, "delete."));
}

/* What was confirmed before the backup was made says nothing of what is there now. */
static void a_confirmed_brake_of_a_backup_counts_for_nothing(void **state)
{
    g_autoptr(World) world = world_with(2, 0);

    (void)state;
    put(world, "decided/brakes/" C,
        "{\"revision\":50,\"since\":1,\"planHash\":\"abc\","
        "\"eligible\":9,\"confirmedAt\":2}");
    world->regressed = TRUE;
    world->regressed_rev = 60;
    assert_keeps(world);
    assert_int_equal(brake(world)->confirmed_at, -1);
    assert_int_equal(brake(world)->eligible, 2);
}

static void the_brake_counts_by_service_and_by_all(void **state)
{
    g_autoptr(World) ten = two_services(10, 0), eleven = two_services(11, 1000);

    (void)state;
    run(ten, C);
    assert_int_equal(deletions(ten), 10); /* all, but no more than ten */
    run(eleven, C);
    assert_int_equal(deletions(eleven), 0); /* all of one service, 1 % of all */
    assert_int_equal(brake(eleven)->eligible, 11);
    assert_non_null(strstr(brake(eleven)->message, "service s"));
    assert_int_equal(condition_of(eleven, "settings/" C "/" C, "Braked")->status,
                     LH_CONDITION_TRUE);
}

static void a_confirmation_releases_exactly_that_set(void **state)
{
    g_autoptr(World) world = two_services(12, 0);

    (void)state;
    run(world, C);
    g_autofree char *hash = g_strdup(brake(world)->plan_hash);
    putf(world, "desired/confirmations/" C, "{\"spec\":{\"planHash\":\"%s\"}}", "0123456789abcdef");
    run(world, "admission");
    assert_keeps(world); /* another plan's */
    world->now_ms += SECOND;
    putf(world, "desired/confirmations/" C, "{\"spec\":{\"planHash\":\"%s\"}}", hash);
    run(world, "admission");
    step(world, C);
    assert_true(brake(world)->confirmed_at >= 0);
    fail_over(world);
    put_snapshot(world, "late", "s", T0 - DAY, 10); /* after it: not what was confirmed */
    step(world, C);
    assert_int_equal(deletions(world), 12);
    assert_null(look(world, "decided/deletions/late"));
    run(world, C);
    assert_null(brake(world));
}

/* The names are those that were confirmed, but one of them is not what it was: somebody should look again, and
 * know that. */
static void a_confirmation_of_what_has_changed_is_said_not_to_count(void **state)
{
    g_autoptr(World) world = two_services(12, 0);

    (void)state;
    run(world, C);
    g_autofree char *hash = g_strdup(brake(world)->plan_hash);
    put_snapshot(world, "old-003", "s", T0 - HOUR - MINUTE, 20);
    confirm(world, hash);
    run(world, C); /* which puts it anew: what was confirmed had not seen that */
    del(world, "desired/confirmations/" C);
    run(world, "admission");
    assert_keeps(world);
    assert_string_equal(brake(world)->plan_hash, hash);
    assert_null(strstr(condition_of(world, "settings/" C "/" C, "Braked")->message, "once more"));
    confirm(world, hash);
    put_snapshot(world, "old-004", "s", T0 - HOUR - MINUTE, 20);
    assert_keeps(world);
    assert_string_equal(brake(world)->plan_hash, hash);
    assert_non_null(
        strstr(condition_of(world, "settings/" C "/" C, "Braked")->message, "once more"));
    confirm(world, hash);
    step(world, C);
    assert_true(brake(world)->confirmed_at >= 0);
    run(world, C);
    assert_int_equal(deletions(world), 12);
}

/* What a restored replica keeps is deleted when that goes, and holds up nobody else's plan until then. */
static void a_confirmed_brake_does_not_wait_for_restored_replicas(void **state)
{
    g_autoptr(World) world = two_services(12, 0);

    (void)state;
    put(world, "decided/replicas/old-003.default.r0",
        "{\"snapshot\":\"old-003\",\"service\":\"s\",\"set\":\"default\",\"restored\":true}");
    run(world, C);
    world->now_ms += SECOND;
    putf(world, "desired/confirmations/" C, "{\"spec\":{\"planHash\":\"%s\"}}",
         brake(world)->plan_hash);
    run(world, "admission");
    run(world, C);
    assert_int_equal(deletions(world), 11);
    assert_null(brake(world));
    del(world, "decided/replicas/old-003.default.r0");
    run(world, C);
    assert_int_equal(deletions(world), 12);
}

/* Twelve that are due, and confirmed, so slowly that none of them is decided in the first second but three. */
static World *confirmed_slowly(void)
{
    World *world = two_services(12, 0);

    put_settings(world, C, "\"buffer\":\"1m\",\"deletesPerSecond\":3");
    run(world, C);
    confirm_brake(world);
    return world;
}

/* Nobody confirmed what the new Settings let go. */
static void other_settings_void_a_confirmation(void **state)
{
    g_autoptr(World) world = world_with(0, 0);

    (void)state;
    put_settings(world, C, "\"buffer\":\"6h\"");
    for (int i = 0; i < 12; i++) {
        g_autofree char *name = g_strdup_printf("old-%03d", i);
        put_snapshot(world, name, "s", T0 - 8 * HOUR, 10);
    }
    for (int i = 0; i < 10; i++) {
        g_autofree char *name = g_strdup_printf("young-%03d", i);
        put_snapshot(world, name, "s", T0 - 3 * HOUR, 10);
    }
    run(world, C);
    assert_int_equal(brake(world)->eligible, 12);
    confirm_brake(world);
    put_settings(world, C, "\"buffer\":\"0s\",\"deletesPerSecond\":1000");
    assert_keeps(world);
    assert_int_equal(brake(world)->eligible, 22);
    assert_int_equal(brake(world)->confirmed_at, -1);
}

static void other_roots_void_a_confirmation(void **state)
{
    g_autoptr(World) world = confirmed_slowly();

    (void)state;
    observe(world, LH_CLEANER_ROOTS, "{\"at\":%" PRId64 ",\"uris\":[\"" ROOT "\",\"s3://more/\"]}",
            world->now_ms);
    assert_keeps(world);
    assert_int_equal(brake(world)->confirmed_at, -1);
}

/* As many as were confirmed, but not the same: one is gone, and another is not in the way any more. */
static void another_member_voids_a_confirmation(void **state)
{
    g_autoptr(World) world = two_services(12, 0);

    (void)state;
    put_snapshot(world, "outer", "s", T0 - DAY, 10);
    put(world, "published/snapshots/inner",
        "{\"service\":\"s\",\"startTime\":1,\"endTime\":2,\"sizeBytes\":1,\"uri\":\"" ROOT
        "outer/in/\"}");
    run(world, C);
    assert_int_equal(brake(world)->eligible, 12);
    confirm_brake(world);
    del(world, "published/snapshots/old-003");
    del(world, "published/snapshots/inner");
    assert_keeps(world);
    assert_int_equal(brake(world)->eligible, 12);
    assert_int_equal(brake(world)->confirmed_at, -1);
}

static void what_was_confirmed_long_ago_is_asked_for_again(void **state)
{
    g_autoptr(World) world = confirmed_slowly();

    (void)state;
    pass_time(world, 30 * MINUTE + 4 * SECOND + 1); /* half an hour, and its rate's time */
    assert_keeps(world);
    assert_int_equal(brake(world)->confirmed_at, -1);
}

/* What is decided belongs to the plan by name, whoever leads, and how slowly it may go. */
static void a_slow_plan_is_carried_out_to_its_end(void **state)
{
    g_autoptr(World) world = confirmed_slowly();

    (void)state;
    for (guint i = 1; i <= 4; i++) {
        run(world, C);
        assert_int_equal(deletions(world), 3 * i);
        const LhDeletion *deletion = look(world, "decided/deletions/old-000");
        assert_non_null(deletion->plan_hash);
        assert_string_equal(deletion->service, "s");
        fail_over(world);
        pass_time(world, SECOND);
    }
    run(world, C);
    assert_null(brake(world));
    /* And it does not count as much that went by itself. */
    put_snapshot(world, "next", "s", T0 - DAY, 10);
    run(world, C);
    assert_null(brake(world));
    assert_int_equal(deletions(world), 13);
}

static void small_steps_do_not_slip_under(void **state)
{
    g_autoptr(World) world = two_services(8, 0);

    (void)state;
    run(world, C);
    assert_int_equal(deletions(world), 8);
    for (int i = 0; i < 8; i++) { /* and retired */
        g_autofree char *name = g_strdup_printf("old-%03d", i);
        erased(world, name, "");
    }
    run(world, C);
    pass_time(world, 5 * MINUTE);
    fail_over(world);
    for (int i = 0; i < 3; i++) {
        g_autofree char *name = g_strdup_printf("more-%d", i);
        put_snapshot(world, name, "s", T0 - DAY, 10);
    }
    run(world, C);
    assert_int_equal(deletions(world), 8);
    assert_int_equal(brake(world)->eligible, 3);
    assert_int_equal(brake(world)->cause, LH_BRAKE_MUCH);
    pass_time(world, 5 * MINUTE + 5 * SECOND); /* they alone are too few */
    run(world, C);
    assert_null(brake(world));
    assert_int_equal(deletions(world), 11);
}

/* With 100 % nothing brakes, however many are retired already. */
static void what_is_retired_belongs_to_the_whole(void **state)
{
    g_autoptr(World) world = world_with(12, 0);

    (void)state;
    put_settings(world, C, "\"buffer\":\"1m\",\"brakePercent\":100,\"deletesPerSecond\":1000");
    run(world, C);
    assert_int_equal(deletions(world), 12);
    for (int i = 0; i < 12; i++) {
        g_autofree char *name = g_strdup_printf("old-%03d", i);
        erased(world, name, "");
    }
    run(world, C);
    put_snapshot(world, "next", "s", T0 - DAY, 10);
    run(world, C);
    assert_null(brake(world));
    assert_int_equal(deletions(world), 13);
}

/* 12 of 12 are no less because there are 60 more. */
static void what_is_braked_is_no_smaller_share_of_more(void **state)
{
    g_autoptr(World) world = two_services(12, 0);

    (void)state;
    run(world, C);
    assert_non_null(brake(world));
    for (int i = 0; i < 60; i++) {
        g_autofree char *name = g_strdup_printf("more-%02d", i);
        put_snapshot(world, name, "s", T0, 10);
    }
    assert_keeps(world);
    assert_non_null(brake(world));
    put_service(world, "s", "\"cache\":{\"window\":\"10m\",\"replicas\":0},\"retention\":\"90d\"");
    run(world, C); /* undone */
    assert_null(brake(world));
    assert_int_equal(deletions(world), 0);
}

static void many_orphans_brake(void **state)
{
    g_autoptr(World) world = world_with(0, 0);

    (void)state;
    put_settings(world, C, "\"brakePercent\":20");
    see_orphan(world, 300, T0 - DAY);
    run(world, C);
    pass_time(world, DAY);
    see_orphan(world, 300, T0 - DAY); /* of 1,000 listed */
    run(world, C);
    assert_int_equal(orphan(world)->decided_at, -1);
    assert_non_null(strstr(brake(world)->message, "300 of 1000 listed objects"));
    world->now_ms += SECOND;
    putf(world, "desired/confirmations/" C, "{\"spec\":{\"planHash\":\"%s\"}}",
         brake(world)->plan_hash);
    run(world, "admission");
    run(world, C);
    assert_true(orphan(world)->decided_at >= 0);
}

/* The limit is each root's: all of a small one is a small part of both. */
static void many_orphans_of_one_root_brake(void **state)
{
    g_autoptr(World) world = world_with(0, 0);
    static const char other[] = "s3://large/";
    g_autofree char *look_id = lh_cleaner_errand("look.", other);
    g_autofree char *list_id = lh_cleaner_errand("list.", other);

    (void)state;
    put_settings(world, C, "\"brakePercent\":20");
    see_orphan(world, 300, T0 - DAY);
    run(world, C);
    pass_time(world, DAY);
    observe(world, LH_CLEANER_ROOTS, "{\"at\":%" PRId64 ",\"uris\":[\"%s\",\"" ROOT "\"]}",
            world->now_ms, other);
    observe(world, look_id,
            "{\"at\":%" PRId64 ",\"token\":1,\"clock\":%" PRId64 ",\"state\":\"ours\"}",
            world->now_ms, world->now_ms);
    observe(world, list_id,
            "{\"at\":%" PRId64 ",\"token\":1,\"clock\":%" PRId64
            ",\"uri\":\"%s\",\"objects\":1000000}",
            world->now_ms, world->now_ms, other);
    see_orphan(world, 300, T0 - DAY); /* of 1,000 there, and of a million */
    run(world, C);
    assert_int_equal(orphan(world)->decided_at, -1);
    assert_non_null(strstr(brake(world)->message, "300 of 1000 listed objects"));
}

/* As many as one that is braked, one after the other, erased and listed anew between. */
static void orphans_in_small_steps_do_not_slip_under(void **state)
{
    for (int late = 0; late < 2; late++) {
        g_autoptr(World) world = world_with(0, 0);
        (void)state;
        put_settings(world, C, "\"brakePercent\":20,\"orphanGrace\":\"1m\"");
        see_orphan_of(world, STRAY, 150, T0 - DAY, world->now_ms);
        see_orphan_of(world, ROOT "second/", 90, T0 - DAY, world->now_ms);
        run(world, C);
        pass_time(world, MINUTE);
        see_orphan_of(world, STRAY, 150, T0 - DAY, world->now_ms);
        run(world, C);
        assert_true(orphan(world)->decided_at >= 0);
        orphan_erased(world, STRAY);
        fail_over(world);
        pass_time(world, late ? 11 * MINUTE : 5 * MINUTE);
        see_orphan_of(world, ROOT "second/", 90, T0 - DAY, world->now_ms);
        run(world, C);
        assert_int_equal(orphan_at(world, ROOT "second/")->decided_at >= 0, late);
        assert_int_equal(brake(world) == NULL, late);
        if (!late)
            assert_non_null(strstr(brake(world)->message, "240 of 1150 listed objects"));
    }
}

/* With 100 % nothing brakes, however much of it is gone already. */
static void orphans_that_are_gone_belong_to_the_whole(void **state)
{
    g_autoptr(World) world = world_with(0, 0);
    static const char *const uris[] = {STRAY, ROOT "second/"};

    (void)state;
    put_settings(world, C, "\"brakePercent\":100,\"orphanGrace\":\"1m\"");
    for (gsize i = 0; i < G_N_ELEMENTS(uris); i++) {
        see_orphan_of(world, uris[i], 600, T0 - DAY, world->now_ms);
        run(world, C);
        pass_time(world, MINUTE);
        see_orphan_of(world, uris[i], 600, T0 - DAY, world->now_ms);
        run(world, C);
        assert_true(orphan_at(world, uris[i])->decided_at >= 0);
        orphan_erased(world, uris[i]);
    }
}

/* What is old enough only after the Brake is none of its plan. */
static void an_orphan_that_ripens_later_was_not_confirmed(void **state)
{
    g_autoptr(World) world = two_services(0, 0);

    (void)state;
    put_settings(world, C, "\"buffer\":\"1m\",\"orphanGrace\":\"10m\",\"deletesPerSecond\":2");
    see_orphan(world, 300, T0 - DAY);
    run(world, C);
    assert_non_null(orphan(world));
    for (int i = 0; i < 12; i++) {
        g_autofree char *name = g_strdup_printf("old-%03d", i);
        put_snapshot(world, name, "s", T0 - 8 * HOUR, 10);
    }
    run(world, C);
    assert_int_equal(brake(world)->eligible, 12);
    confirm_brake(world);
    pass_time(world, 10 * MINUTE);
    see_orphan(world, 300, T0 - DAY); /* 300 of 1,000 listed */
    run(world, C);
    assert_int_equal(orphan(world)->decided_at, -1);
    assert_true(brake(world)->confirmed_at >= 0);
    for (int i = 0; i < 14; i++) {
        pass_time(world, SECOND);
        run(world, C);
    }
    assert_int_equal(deletions(world), 12);
    assert_int_equal(orphan(world)->decided_at, -1);
    assert_int_equal(brake(world)->confirmed_at, -1); /* which is another one */
    assert_non_null(strstr(brake(world)->message, "300 of 1000 listed objects"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_etcd_from_the_past_is_confirmed_first),
        cmocka_unit_test(a_root_without_a_marker_is_confirmed_first),
        cmocka_unit_test(a_restoration_is_braked_with_nothing_to_do),
        cmocka_unit_test(a_newer_marker_stays_newer_until_it_is_confirmed),
        cmocka_unit_test(another_marker_is_not_claimed),
        cmocka_unit_test(what_was_confirmed_as_much_confirms_no_restoration),
        cmocka_unit_test(a_confirmed_restoration_confirms_no_masses),
        cmocka_unit_test(an_old_confirmation_of_a_restoration_is_none),
        cmocka_unit_test(a_brake_that_does_not_parse_holds_what_is_decided),
        cmocka_unit_test(a_confirmed_brake_of_a_backup_counts_for_nothing),
        cmocka_unit_test(the_brake_counts_by_service_and_by_all),
        cmocka_unit_test(a_confirmation_releases_exactly_that_set),
        cmocka_unit_test(a_confirmation_of_what_has_changed_is_said_not_to_count),
        cmocka_unit_test(a_confirmed_brake_does_not_wait_for_restored_replicas),
        cmocka_unit_test(other_settings_void_a_confirmation),
        cmocka_unit_test(other_roots_void_a_confirmation),
        cmocka_unit_test(another_member_voids_a_confirmation),
        cmocka_unit_test(what_was_confirmed_long_ago_is_asked_for_again),
        cmocka_unit_test(a_slow_plan_is_carried_out_to_its_end),
        cmocka_unit_test(small_steps_do_not_slip_under),
        cmocka_unit_test(what_is_retired_belongs_to_the_whole),
        cmocka_unit_test(what_is_braked_is_no_smaller_share_of_more),
        cmocka_unit_test(an_orphan_that_ripens_later_was_not_confirmed),
        cmocka_unit_test(many_orphans_brake),
        cmocka_unit_test(many_orphans_of_one_root_brake),
        cmocka_unit_test(orphans_in_small_steps_do_not_slip_under),
        cmocka_unit_test(orphans_that_are_gone_belong_to_the_whole),
    };

    return cmocka_run_group_tests_name("cleaner-brake", tests, NULL, NULL);
}
