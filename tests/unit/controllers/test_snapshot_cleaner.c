/*
 * snapshot-cleaner: what it deletes, in which order, and above all what it does not.
 */
#include "tests/unit/controllers/cleaner_world.h"

/* ---- the order of things ---- */

static void intent_then_data_then_the_record(void **state)
{
    g_autoptr(World) world = world_with(1, 0);
    g_autoptr(LhPlan) plan = plan_of(world, C);
    g_autofree char *text = plan_text(plan);

    (void)state;
    assert_false(wants(world, "delete."));
    /* Everything that the decision rests on is compared. */
    assert_non_null(strstr(text, "put decided/deletions/old-000 @0 expired"));
    assert_non_null(strstr(text, "rely published/snapshots/old-000 0 @"));
    assert_non_null(strstr(text, "rely decided/replicas/old-000. 1 "));
    assert_non_null(strstr(text, "rely decided/brakes/" C " 0 @0"));
    assert_non_null(strstr(text, "rely desired/services/s 0 @"));
    assert_non_null(strstr(text, "rely decided/accepted/services/s 0 @"));
    assert_non_null(strstr(text, "rely decided/accepted/settings/" C " 0 @"));
    assert_non_null(strstr(text, "rely decided/accepted/settings/all 0 @"));
    run(world, C);
    const LhDeletion *deletion = look(world, "decided/deletions/old-000");
    assert_string_equal(deletion->uri, ROOT "old-000/");
    assert_int_equal(deletion->data_deleted_at, -1);
    assert_true(wants(world, "/1 " ROOT "old-000/"));
    assert_non_null(look(world, "published/snapshots/old-000"));
    erased(world, "old-000", "");
    guint before = (guint)world->revision;
    assert_int_equal(step(world, C), 1); /* one transaction */
    assert_int_equal(world->revision, before + 1);
    assert_null(look(world, "published/snapshots/old-000"));
    deletion = look(world, "decided/deletions/old-000");
    assert_int_equal(deletion->data_deleted_at, world->now_ms);
    assert_false(wants(world, "delete."));
    assert_nothing_to_do(world, C);
}

static void not_a_millisecond_too_soon(void **state)
{
    g_autoptr(World) world = world_with(1, 1);
    g_autoptr(LhPlan) plan = plan_of(world, C);

    (void)state;
    assert_int_equal(plan->wake_ms, T0 + 1);
    assert_keeps(world);
    world->now_ms++;
    run(world, C);
    assert_int_equal(deletions(world), 1);
}

/* A new leader knows nothing of what was seen, and everything of what was decided. */
static void any_leader_goes_on_where_the_last_stopped(void **state)
{
    g_autoptr(World) world = world_with(1, 0);

    (void)state;
    run(world, C);
    for (int i = 0; i < 2; i++) {
        g_autoptr(GPtrArray) seen = keys_below(world, "observed/");
        g_autofree char **names = g_new0(char *, seen->len + 1);
        for (guint n = 0; n < seen->len; n++)
            names[n] = g_strdup(seen->pdata[n]);
        for (guint n = 0; names[n] != NULL; n++) {
            change(world, names[n], NULL);
            g_free(names[n]);
        }
        fail_over(world);
        g_autofree char *nothing = wanted(world);
        assert_string_equal(nothing, ""); /* before the roots are known */
        observe(world, LH_CLEANER_ROOTS, "{\"at\":%" PRId64 ",\"uris\":[\"" ROOT "\"]}",
                world->now_ms);
        assert_true(wants(world, "look."));
        assert_false(wants(world, "delete.")); /* nor before it has looked itself */
        all_well(world);
        assert_true(wants(world, "delete.old-000 "));
    }
    erased(world, "old-000", "");
    fail_over(world);
    run(world, C);
    assert_null(look(world, "published/snapshots/old-000"));
}

static void what_failed_is_tried_again_later(void **state)
{
    g_autoptr(World) world = world_with(1, 0);

    (void)state;
    run(world, C);
    erased(world, "old-000", ",\"attempt\":1,\"error\":\"access is denied\"");
    run(world, C);
    assert_non_null(look(world, "published/snapshots/old-000"));
    assert_false(wants(world, "delete."));
    pass_time(world, 10 * SECOND);
    assert_true(wants(world, "/2 " ROOT "old-000/"));
}

/* An answer to another Deletion of that name says nothing. */
static void only_its_own_answer_counts(void **state)
{
    g_autoptr(World) world = world_with(1, 0);

    (void)state;
    run(world, C);
    observe(world, "delete.old-000", "{\"at\":%" PRId64 ",\"token\":3}", world->now_ms);
    run(world, C);
    assert_non_null(look(world, "published/snapshots/old-000"));
    assert_true(wants(world, "delete.old-000 "));
}

/* ---- what keeps data ---- */

static void replicas_keep_data(void **state)
{
    g_autoptr(World) world = world_with(1, 0);
    static const char value[] = "{\"snapshot\":\"%s\",\"service\":\"s\",\"set\":\"default\","
                                "\"ordinal\":0,\"expiresAt\":1}";

    (void)state;
    putf(world, "decided/replicas/old-000.default.0", value, "old-000");
    assert_keeps(world);
    put(world, "decided/replicas/old-000.default.0", "what is this");
    assert_keeps(world);
    del(world, "decided/replicas/old-000.default.0");
    /* Also one that etcd's range compare cannot tell from its own. */
    putf(world, "decided/replicas/old-000.more.default.0", value, "old-000.more");
    assert_keeps(world);
    assert_int_equal(world->conflicts, 0);
    del(world, "decided/replicas/old-000.more.default.0");
    run(world, C);
    assert_int_equal(deletions(world), 1);
}

/* It came between the plan and its commit. */
static void a_replica_that_comes_late_is_in_the_way(void **state)
{
    g_autoptr(World) world = world_with(1, 0);
    g_autoptr(LhPlan) plan = plan_of(world, C);

    (void)state;
    put(world, "decided/replicas/old-000.default.r0",
        "{\"snapshot\":\"old-000\",\"service\":\"s\",\"set\":\"default\",\"restored\":true}");
    assert_int_equal(lh_plan_groups(plan), 1);
    assert_false(apply_group(world, plan, 0));
}

static void the_service_keeps_data(void **state)
{
    static const char valid[] = "{\"spec\":{\"owner\":\"me\",\"cache\":{\"window\":\"10m\","
                                "\"replicas\":0},\"retention\":\"%s\"%s}}";
    g_autoptr(World) world = world_with(1, 0);

    (void)state;
    putf(world, "desired/services/s", valid, "90d", ""); /* an edit that is not in force yet */
    assert_keeps(world);
    step(world, "admission");
    assert_keeps(world); /* and then it is */
    put(world, "desired/services/s",
        "{\"spec\":{}}"); /* invalid: the last good one is in force, … */
    step(world, "admission");
    assert_keeps(world);
    putf(world, "desired/services/s", valid, "1h", ",\"paused\":true");
    step(world, "admission");
    assert_keeps(world);
    del(world, "desired/services/s"); /* deleted: no data is deleted */
    run(world, "admission");
    assert_keeps(world);
    putf(world, "desired/services/s", valid, "1h", "");
    run(world, "admission");
    put(world, "decided/accepted/services/s", "what is this");
    assert_keeps(world);
    del(world, "decided/accepted/services/s");
    run(world, "admission");
    run(world, C);
    assert_int_equal(deletions(world), 1);
}

static void live_unreadable_and_overlapping_snapshots_stay(void **state)
{
    g_autoptr(World) world = world_with(0, 0);

    (void)state;
    put(world, "published/snapshots/live",
        "{\"service\":\"s\",\"startTime\":1,\"endTime\":2,\"uri\":\"" ROOT
        "live/\",\"live\":true}");
    put(world, "published/snapshots/what", "{\"service\":\"s\",\"uri\":\"" ROOT "what/\"}");
    put_snapshot(world, "a", "s", T0 - DAY, 10);
    put(world, "published/snapshots/b", /* younger, in a: neither is deleted */
        "{\"service\":\"s\",\"startTime\":1,\"endTime\":2,\"sizeBytes\":1,\"uri\":\"" ROOT
        "a/b/\"}");
    assert_keeps(world);
    const LhCondition *condition = condition_of(world, "snapshots/a/" C, "Deletable");
    assert_non_null(condition);
    assert_string_equal(condition->reason, "Overlaps");
    del(world, "published/snapshots/b");
    run(world, C);
    assert_null(condition_of(world, "snapshots/a/" C, "Deletable"));
    assert_int_equal(deletions(world), 1);
}

/* Unknown is not absent: b would be valid, and may go, only because a does not parse any more. */
static void what_does_not_parse_keeps_what_it_overlaps(void **state)
{
    g_autoptr(World) world = world_with(0, 0);
    static const char b[] = "{\"service\":\"s\",\"startTime\":1,\"endTime\":2,\"sizeBytes\":1,"
                            "\"uri\":\"" ROOT "a/b/\"}";

    (void)state;
    put_snapshot(world, "a", "s", T0 - DAY, 10);
    put(world, "published/snapshots/b", b);
    put(world, "published/snapshots/a", "{\"service\":\"s\",\"uri\":\"" ROOT "a/\"}");
    assert_keeps(world);
    assert_null(brake(world));
    put_snapshot(world, "c", "s", T0 - DAY, 10); /* elsewhere: it goes */
    run(world, C);
    assert_non_null(look(world, "decided/deletions/c"));
    assert_null(look(world, "decided/deletions/b"));
    del(world, "published/snapshots/a");
    put(world, "published/snapshots/x", "{"); /* who knows where */
    run(world, C);
    assert_null(look(world, "decided/deletions/b"));
    assert_non_null(strstr(brake(world)->message, "does not parse"));
    del(world, "published/snapshots/x");
    run(world, C);
    assert_non_null(look(world, "decided/deletions/b"));
}

/* One that was there first keeps what it shares with a Deletion from going. */
static void a_deletion_that_overlaps_an_older_snapshot_waits(void **state)
{
    g_autoptr(World) world = world_with(0, 0);

    (void)state;
    put_snapshot(world, "z", "s", T0, 10);
    put(world, "decided/deletions/a",
        "{\"uri\":\"" ROOT "z/in/\",\"snapshotRevision\":5,\"decidedAt\":6}");
    all_well(world);
    assert_false(wants(world, "delete."));
    del(world, "published/snapshots/z");
    assert_true(wants(world, "delete.a "));
}

/* Also where it was decided before: that the data is nobody else's was known of what did parse. */
static void what_does_not_parse_keeps_what_was_decided(void **state)
{
    g_autoptr(World) world = world_with(0, 0);
    g_autofree char *sum = g_compute_checksum_for_string(G_CHECKSUM_SHA256, ROOT "o/", -1);
    static const struct {
        const char *value;
        gboolean deletes, erases;
    } cases[] = {
        {"{\"service\":\"s\",\"uri\":\"" ROOT "a/\"}", FALSE, TRUE},
        {"{\"service\":\"s\",\"uri\":\"" ROOT "a/b/\"}", FALSE, TRUE},
        {"{\"service\":\"s\",\"uri\":\"" ROOT "o/\"}", TRUE, FALSE},
        {"{\"service\":\"s\",\"uri\":\"" ROOT "else/\"}", TRUE, TRUE},
        {"{", FALSE, FALSE}, /* who knows where */
    };

    (void)state;
    put(world, "decided/deletions/a",
        "{\"uri\":\"" ROOT "a/\",\"snapshotRevision\":5,\"decidedAt\":6}");
    g_autofree char *key = g_strconcat("decided/orphans/", sum, NULL);
    put(world, key,
        "{\"uri\":\"" ROOT "o/\",\"objects\":1,\"bytes\":1,\"firstSeen\":1,\"secondSeen\":2,"
        "\"decidedAt\":3}");
    assert_true(wants(world, "delete.a ") && wants(world, " " ROOT "o/|"));
    for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
        put(world, "published/snapshots/x", cases[i].value);
        if (wants(world, "delete.a ") != cases[i].deletes ||
            wants(world, " " ROOT "o/|") != cases[i].erases)
            fail_msg("case %u", i);
    }
    del(world, "published/snapshots/x");
    assert_true(wants(world, "delete.a ") && wants(world, " " ROOT "o/|"));
}

static void nothing_outside_the_roots(void **state)
{
    g_autoptr(World) world = world_with(0, 0);

    (void)state;
    put(world, "published/snapshots/out",
        "{\"service\":\"s\",\"startTime\":1,\"endTime\":2,\"sizeBytes\":1,\"uri\":\"s3://other/x/\"}");
    put(world, "published/snapshots/like",
        "{\"service\":\"s\",\"startTime\":1,\"endTime\":2,\"sizeBytes\":1,\"uri\":\"s3://bucket2/x/\"}");
    assert_keeps(world);
    assert_string_equal(condition_of(world, "snapshots/out/" C, "Deletable")->reason,
                        "NotBelowRoot");
    observe(world, LH_CLEANER_ROOTS, "{\"at\":%" PRId64 "}", world->now_ms); /* no roots at all */
    put_snapshot(world, "old", "s", T0 - DAY, 10);
    assert_keeps(world);
    assert_null(condition_of(world, "snapshots/out/" C, "Deletable"));
    observe(world, LH_CLEANER_ROOTS, "%s", ""); /* not known: what was said stays */
    observe(world, LH_CLEANER_ROOTS, "%s", "");
    assert_keeps(world);
}

/* Live ones are in no order of ends. */
static void roots_that_become_known_are_for_all(void **state)
{
    static const char *const out[] = {"snapshots/final/" C, "snapshots/live/" C};
    g_autoptr(World) world = world_with(1, 0);

    (void)state;
    observe(world, LH_CLEANER_ROOTS, "%s", "");
    put(world, "published/snapshots/final",
        "{\"service\":\"s\",\"startTime\":1,\"endTime\":2,\"sizeBytes\":1,\"uri\":\"s3://other/x/\"}");
    put(world, "published/snapshots/live",
        "{\"service\":\"s\",\"startTime\":1,\"uri\":\"s3://other/y/\",\"live\":true}");
    assert_keeps(world);
    for (guint i = 0; i < G_N_ELEMENTS(out); i++)
        assert_null(condition_of(world, out[i], "Deletable"));
    all_well(world);
    run(world, C);
    assert_int_equal(deletions(world), 1);
    for (guint i = 0; i < G_N_ELEMENTS(out); i++)
        assert_string_equal(condition_of(world, out[i], "Deletable")->reason, "NotBelowRoot");
}

static void dry_runs_do_nothing(void **state)
{
    g_autoptr(World) world = world_with(12, 0);

    (void)state;
    put(world, "decided/deletions/gone",
        "{\"uri\":\"" ROOT "gone/\",\"snapshotRevision\":5,\"decidedAt\":6}");
    assert_true(wants(world, "delete.gone "));
    put_settings(world, C, "\"buffer\":\"1m\",\"dryRun\":true");
    run(world, C);
    assert_int_equal(deletions(world), 1);
    assert_false(wants(world, "delete."));
    assert_null(brake(world));
    g_autoptr(LhPlan) plan = plan_of(world, C);
    assert_string_equal(note_rule(plan, "snapshots/old-003"), "dry-run");
    const LhCondition *dry = condition_of(world, "settings/" C "/" C, "DryRun");
    assert_non_null(strstr(dry->message, "12 snapshots"));
    world->regressed = TRUE; /* who ends the dry run must know */
    run(world, C);
    assert_int_equal(brake(world)->cause, LH_BRAKE_RESTORED);
}

/* The runtime does not ask it then; a paused Service it keeps by itself. */
static void pauses_keep_what_is_decided(void **state)
{
    g_autoptr(World) world = world_with(3, 0);
    const LhController *controller = lh_controller_find(C);

    (void)state;
    assert_false(lh_controller_paused(controller, world->index));
    put_settings(world, C, "\"buffer\":\"1m\",\"paused\":true");
    assert_true(lh_controller_paused(controller, world->index));
    assert_false(controller->plans_paused);
    put_settings(world, C, "\"buffer\":\"1m\"");
    put_settings(world, "all", "\"paused\":true");
    assert_true(lh_controller_paused(controller, world->index));
    put_settings(world, "all", "\"paused\":false");
    put_service(
        world, "s",
        "\"paused\":true,\"cache\":{\"window\":\"10m\",\"replicas\":0},\"retention\":\"1h\"");
    assert_keeps(world);
}

/* ---- clocks, markers, listings ---- */

static void held(World *world, const char *why)
{
    assert_keeps(world);
    assert_non_null(brake(world));
    if (strstr(brake(world)->message, why) == NULL)
        fail_msg("\"%s\" does not say %s", brake(world)->message, why);
    /* Nobody can confirm that away. */
    putf(world, "desired/confirmations/" C, "{\"spec\":{\"planHash\":\"%s\"}}",
         brake(world)->plan_hash);
    run(world, "admission");
    assert_keeps(world);
    del(world, "desired/confirmations/" C);
    run(world, "admission");
    all_well(world);
    run(world, C);
    assert_null(brake(world));
    assert_true(deletions(world) > 0);
}

static void a_foreign_marker_holds_everything(void **state)
{
    g_autoptr(World) world = world_with(3, 0);

    (void)state;
    look_at(world, "foreign", world->now_ms, "");
    held(world, "another cluster");
}

static void clocks_that_differ_hold_everything(void **state)
{
    for (int i = 0; i < 4; i++) {
        g_autoptr(World) world = world_with(3, 0);
        gint64 off = (i % 2 == 0 ? 61 : -61) * SECOND;
        if (i < 2)
            look_at(world, "ours", world->now_ms + off, "");
        else
            etcd_says(world, world->now_ms + off);
        held(world, "60 s off");
    }
    (void)state;
}

/* Astra: a list that failed came back empty: everything would be deleted. */
static void a_listing_that_failed_or_is_empty_holds_everything(void **state)
{
    g_autoptr(World) failed = world_with(3, 0), empty = world_with(3, 0);
    g_autofree char *id = root_id("list.");

    (void)state;
    listed(failed, ",\"error\":\"access is denied\"");
    held(failed, "its listing failed");
    observe(empty, id, "{\"at\":%" PRId64 ",\"token\":1,\"objects\":0,\"missing\":3}",
            empty->now_ms);
    held(empty, "its listing is empty");
}

static void what_is_not_known_yet_is_waited_for(void **state)
{
    g_autoptr(World) world = world_with(1, 0);
    g_autofree char *look_id = root_id("look."), *list_id = root_id("list.");

    (void)state;
    observe(world, list_id, "%s", "");
    assert_keeps(world);
    assert_true(wants(world, list_id));
    all_well(world);
    observe(world, "etcd", "%s", "");
    assert_keeps(world);
    assert_true(wants(world, "etcd 1/0"));
    all_well(world);
    look_at(world, "new", world->now_ms, ""); /* the marker was just written: not in this pass */
    assert_keeps(world);
    all_well(world);
    world->now_ms += 61 * SECOND; /* the look is too long ago */
    etcd_says(world, world->now_ms);
    assert_keeps(world);
    assert_true(wants(world, look_id));
    all_well(world);
    world->now_ms += 61 * SECOND; /* what etcd said is */
    look_at(world, "ours", world->now_ms, "");
    assert_keeps(world);
    assert_null(brake(world));
    all_well(world);
    run(world, C);
    assert_int_equal(deletions(world), 1);
    world->now_ms += 61 * SECOND; /* holds for what is decided, too */
    assert_false(wants(world, "delete."));
}

/* The marker must tell how far etcd has got, also when nothing has been due for long. */
static void roots_are_looked_at_without_work_too(void **state)
{
    g_autoptr(World) world = world_with(1, DAY);
    g_autofree char *id = root_id("look.");

    (void)state;
    assert_keeps(world);
    assert_false(wants(world, id));
    world->now_ms += 31 * SECOND;
    assert_true(wants(world, id));
    assert_int_equal(look_number(world, "look."), world->revision);
}

/* A look that hangs: what rests on the last one ends in time. */
static void a_look_that_hangs_is_waited_for_no_longer_than_it_counts(void **state)
{
    g_autoptr(World) world = world_with(1, 0);
    g_autoptr(LhErrands) errands = lh_errands_new();
    gint64 seen_ms = world->now_ms;

    (void)state;
    run(world, C);
    world->now_ms += 40 * SECOND;
    etcd_says(world, world->now_ms);
    LhPlanContext context = context_of(world);
    lh_controller_find(C)->errands(world->index, &context, errands);
    assert_int_equal(errands->wake_ms, seen_ms + MINUTE + 1);
    assert_true(wants(world, "delete."));
    world->now_ms = errands->wake_ms;
    assert_false(wants(world, "delete."));
}

static void so_many_a_second(void **state)
{
    g_autoptr(World) world = world_with(10, 0);

    (void)state;
    put_settings(world, C, "\"buffer\":\"1m\",\"deletesPerSecond\":3,\"brakePercent\":100");
    for (guint i = 1; i <= 4; i++) {
        run(world, C);
        assert_int_equal(deletions(world), MIN(10, 3 * i));
        fail_over(world); /* what was decided lately is a key */
        run(world, C);
        assert_int_equal(deletions(world), MIN(10, 3 * i));
        pass_time(world, SECOND);
    }
}

/* ---- listings ---- */

static void missing_data_is_said_and_nothing_more(void **state)
{
    g_autoptr(World) world = world_with(0, 0);

    (void)state;
    put_snapshot(world, "gone", "s", T0, 10);
    const LhSnapshot *snapshot = look(world, "published/snapshots/gone");
    observe(world, "missing.gone", "{\"at\":%" PRId64 ",\"token\":1,\"revision\":%" PRId64 "}",
            world->now_ms, snapshot->o.mod_rev);
    listed(world, ",\"missing\":1");
    run(world, C);
    assert_int_equal(condition_of(world, "snapshots/gone/" C, "DataMissing")->status,
                     LH_CONDITION_TRUE);
    assert_int_equal(deletions(world), 0);
    assert_non_null(look(world, "published/snapshots/gone"));
    /* Another leader has not listed yet: it neither takes it back nor says it anew. */
    g_autofree char *list_id = root_id("list.");
    observe(world, list_id, "%s", "");
    observe(world, "missing.gone", "%s", "");
    fail_over(world);
    assert_nothing_to_do(world, C);
    listed(world, "");
    run(world, C);
    assert_null(condition_of(world, "snapshots/gone/" C, "DataMissing"));
}

/* What was said of an earlier publication is not said of a later one that nobody has looked for yet. */
static void missing_data_of_an_earlier_publication(void **state)
{
    g_autoptr(World) world = world_with(0, 0);

    (void)state;
    put_snapshot(world, "gone", "s", T0, 10);
    const LhSnapshot *snapshot = look(world, "published/snapshots/gone");
    observe(world, "missing.gone", "{\"at\":%" PRId64 ",\"token\":1,\"revision\":%" PRId64 "}",
            world->now_ms, snapshot->o.mod_rev);
    listed(world, ",\"missing\":1");
    run(world, C);
    assert_non_null(condition_of(world, "snapshots/gone/" C, "DataMissing"));
    g_autofree char *list_id = root_id("list.");
    observe(world, list_id, "%s", "");
    observe(world, "missing.gone", "%s", "");
    fail_over(world);
    put_snapshot(world, "gone", "s", T0, 11);
    run(world, C);
    assert_null(condition_of(world, "snapshots/gone/" C, "DataMissing"));
}

static void an_orphan_is_seen_twice_a_grace_apart(void **state)
{
    g_autoptr(World) world = world_with(0, 0);

    (void)state;
    see_orphan(world, 3, T0 - DAY);
    run(world, C);
    assert_int_equal(orphan(world)->first_seen, T0);
    assert_int_equal(orphan(world)->decided_at, -1);
    pass_time(world, DAY - 1);
    see_orphan(world, 3, T0 - DAY);
    run(world, C);
    assert_int_equal(orphan(world)->decided_at, -1); /* a millisecond too soon */
    pass_time(world, 1);
    see_orphan(world, 3, T0 - DAY);
    assert_false(wants(world, "erase."));
    run(world, C);
    assert_int_equal(orphan(world)->second_seen, T0 + DAY);
    assert_int_equal(orphan(world)->decided_at, T0 + DAY);
    assert_true(wants(world, " " STRAY "|"));
    /* Whoever publishes there, or above it, must use another uri; deeper there is room for anybody: a
     * console's empty "folder" was no more than one object. */
    for (guint i = 0; i < 3; i++) {
        static const char *const uris[] = {STRAY, ROOT "stray/", STRAY "x/"};
        putf(world, "published/snapshots/late",
             "{\"service\":\"s\",\"startTime\":1,\"endTime\":2,\"sizeBytes\":1,\"uri\":\"%s\"}",
             uris[i]);
        run(world, "admission");
        const LhCondition *valid = condition_of(world, "snapshots/late/admission", "Valid");
        assert_true(i < 2 ? valid->status == LH_CONDITION_FALSE : valid == NULL);
        assert_true(wants(world, " " STRAY "|"));
        del(world, "published/snapshots/late");
    }
    g_autofree char *name = orphan_name();
    g_autofree char *id = g_strconcat("erase.", name, NULL);
    observe(world, id, "{\"at\":%" PRId64 ",\"token\":%" PRId64 ",\"objects\":3}", world->now_ms,
            orphan(world)->o.create_rev);
    run(world, C);
    assert_int_equal(orphan(world)->objects, 0); /* the tombstone */
    assert_false(wants(world, "erase."));
}

static void an_orphan_that_changes_or_is_claimed_is_none(void **state)
{
    g_autoptr(World) changed = world_with(0, 0), young = world_with(0, 0),
                     claimed = world_with(0, 0);
    g_autoptr(World) unreadable = world_with(0, 0), raced = world_with(0, 0);
    World *all[] = {changed, young, claimed, unreadable, raced};

    (void)state;
    for (guint i = 0; i < G_N_ELEMENTS(all); i++) {
        see_orphan(all[i], 3, T0 - DAY);
        run(all[i], C);
        pass_time(all[i], DAY);
    }
    see_orphan(changed, 4, T0 - DAY);
    run(changed, C);
    assert_int_equal(orphan(changed)->first_seen, T0 + DAY);
    assert_int_equal(orphan(changed)->decided_at, -1);
    see_orphan(young, 3, T0 + 1); /* same count, but something was written meanwhile */
    run(young, C);
    assert_int_equal(orphan(young)->decided_at, -1);
    put(claimed, "published/snapshots/mine",
        "{\"service\":\"s\",\"startTime\":1,\"uri\":\"" ROOT "stray/\",\"live\":true}");
    see_orphan(claimed, 3, T0 - DAY);
    run(claimed, C);
    assert_int_equal(orphan(claimed)->decided_at, -1);
    put(unreadable, "published/snapshots/what", "{"); /* who knows where its data is */
    see_orphan(unreadable, 3, T0 - DAY);
    run(unreadable, C);
    assert_int_equal(orphan(unreadable)->decided_at, -1);
    /* Published before the decision was committed, and seen only after it. */
    see_orphan(raced, 3, T0 - DAY);
    g_autoptr(LhPlan) plan = plan_of(raced, C);
    put(raced, "published/snapshots/mine",
        "{\"service\":\"s\",\"startTime\":1,\"endTime\":2,"
        "\"sizeBytes\":1,\"uri\":\"" STRAY "\"}");
    for (guint i = 0; i < lh_plan_groups(plan); i++)
        apply_group(raced, plan, i);
    assert_true(orphan(raced)->decided_at >= 0);
    assert_false(wants(raced, "erase."));
    run(raced, C);
    assert_null(orphan(raced));
    run(raced, "admission");
    assert_null(condition_of(raced, "snapshots/mine/admission", "Valid"));
}

/* What the errand may take is no younger than a grace before the second sighting. */
static void an_orphan_that_has_changed_when_it_is_erased_is_none(void **state)
{
    g_autoptr(World) world = world_with(0, 0);
    g_autofree char *name = orphan_name();
    g_autofree char *id = g_strconcat("erase.", name, NULL);

    (void)state;
    see_orphan(world, 3, T0 - DAY);
    run(world, C);
    pass_time(world, DAY + MINUTE);
    see_orphan(world, 3, T0 - DAY);
    run(world, C);
    assert_int_equal(number_of(world, id), T0 + MINUTE);
    observe(world, id,
            "{\"at\":%" PRId64 ",\"token\":%" PRId64
            ",\"attempt\":1,\"state\":\"changed\",\"error\":\"there is more\"}",
            world->now_ms, orphan(world)->o.create_rev);
    run(world, C);
    assert_true(orphan(world) == NULL || orphan(world)->decided_at < 0);
    assert_false(wants(world, "erase."));
}

/* A listing that hangs is not the last one's word for ever. */
static void an_old_listing_decides_nothing(void **state)
{
    g_autoptr(World) world = world_with(0, 0);
    g_autofree char *list_id = root_id("list.");

    (void)state;
    put_settings(world, C, "\"reconcileInterval\":\"1h\"");
    see_orphan(world, 3, T0 - DAY);
    run(world, C);
    pass_time(world, DAY);
    see_orphan(world, 3, T0 - DAY);
    world->now_ms += 2 * HOUR + 1;
    look_at(world, "ours", world->now_ms, "");
    etcd_says(world, world->now_ms);
    run(world, C);
    assert_int_equal(orphan(world)->decided_at, -1);
    assert_true(wants(world, list_id));
    see_orphan(world, 3, T0 - DAY);
    run(world, C);
    assert_true(orphan(world)->decided_at >= 0);
}

/* By the store's clock a grace has passed, or by ours: both must be right. */
static void a_sighting_counts_only_when_clocks_agree(void **state)
{
    g_autoptr(World) world = world_with(0, 0);

    (void)state;
    see_orphan_at(world, 3, T0 - DAY, world->now_ms - DAY); /* the store's is a day behind */
    run(world, C);
    assert_null(orphan(world));
    observe(world, "etcd", "%s", "");
    see_orphan(world, 3, T0 - DAY);
    run(world, C);
    assert_null(orphan(world)); /* ours may be wrong, too: etcd's is asked */
    assert_true(wants(world, "etcd 1/0"));
    etcd_says(world, world->now_ms + 61 * SECOND);
    run(world, C);
    assert_null(orphan(world));
    etcd_says(world, world->now_ms);
    run(world, C);
    assert_int_equal(orphan(world)->first_seen, T0);
    see_orphan_at(world, 3, T0 - DAY, world->now_ms + DAY); /* a day ahead */
    run(world, C);
    assert_int_equal(orphan(world)->decided_at, -1);
    pass_time(world, DAY);
    see_orphan_at(world, 3, T0 - DAY, world->now_ms + 60 * SECOND);
    run(world, C);
    assert_true(orphan(world)->decided_at >= 0);
}

/* A longer grace, a pause, a dry run that came between the plan and its commit. */
static void an_orphan_rests_on_settings(void **state)
{
    static const char *const names[] = {C, C, C, "all"};
    static const char *const edits[] = {"\"orphanGrace\":\"9d\"", "\"dryRun\":true",
                                        "\"paused\":true", "\"paused\":true"};

    (void)state;
    for (guint i = 0; i < G_N_ELEMENTS(names); i++) {
        g_autoptr(World) world = world_with(0, 0);
        see_orphan(world, 3, T0 - DAY);
        run(world, C);
        pass_time(world, DAY);
        see_orphan(world, 3, T0 - DAY);
        g_autoptr(LhPlan) plan = plan_of(world, C);
        put_settings(world, names[i], edits[i]);
        assert_int_equal(lh_plan_groups(plan), 1);
        assert_false(apply_group(world, plan, 0));
        assert_int_equal(orphan(world)->decided_at, -1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(intent_then_data_then_the_record),
        cmocka_unit_test(not_a_millisecond_too_soon),
        cmocka_unit_test(any_leader_goes_on_where_the_last_stopped),
        cmocka_unit_test(what_failed_is_tried_again_later),
        cmocka_unit_test(only_its_own_answer_counts),
        cmocka_unit_test(replicas_keep_data),
        cmocka_unit_test(a_replica_that_comes_late_is_in_the_way),
        cmocka_unit_test(the_service_keeps_data),
        cmocka_unit_test(live_unreadable_and_overlapping_snapshots_stay),
        cmocka_unit_test(what_does_not_parse_keeps_what_it_overlaps),
        cmocka_unit_test(a_deletion_that_overlaps_an_older_snapshot_waits),
        cmocka_unit_test(what_does_not_parse_keeps_what_was_decided),
        cmocka_unit_test(nothing_outside_the_roots),
        cmocka_unit_test(roots_that_become_known_are_for_all),
        cmocka_unit_test(dry_runs_do_nothing),
        cmocka_unit_test(a_foreign_marker_holds_everything),
        cmocka_unit_test(clocks_that_differ_hold_everything),
        cmocka_unit_test(a_listing_that_failed_or_is_empty_holds_everything),
        cmocka_unit_test(what_is_not_known_yet_is_waited_for),
        cmocka_unit_test(roots_are_looked_at_without_work_too),
        cmocka_unit_test(a_look_that_hangs_is_waited_for_no_longer_than_it_counts),
        cmocka_unit_test(pauses_keep_what_is_decided),
        cmocka_unit_test(so_many_a_second),
        cmocka_unit_test(missing_data_is_said_and_nothing_more),
        cmocka_unit_test(missing_data_of_an_earlier_publication),
        cmocka_unit_test(an_orphan_is_seen_twice_a_grace_apart),
        cmocka_unit_test(an_orphan_that_changes_or_is_claimed_is_none),
        cmocka_unit_test(an_orphan_that_has_changed_when_it_is_erased_is_none),
        cmocka_unit_test(an_old_listing_decides_nothing),
        cmocka_unit_test(a_sighting_counts_only_when_clocks_agree),
        cmocka_unit_test(an_orphan_rests_on_settings),
    };

    return cmocka_run_group_tests_name("snapshot-cleaner", tests, NULL, NULL);
}
