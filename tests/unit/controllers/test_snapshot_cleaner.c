/*
 * snapshot-cleaner: what it deletes, in which order, and above all what it does not.
 */
#include "controllers/cleaner.h"
#include "tests/unit/controllers/harness.h"

#define C    "snapshot-cleaner"
#define ROOT "s3://bucket/"

/* ---- a world with one root ---- */

static LhPlanContext context_of(const World *world)
{
    return (LhPlanContext){.now_ms = world->now_ms,
                           .revision = world->revision,
                           .epoch = 7,
                           .led_ms = world->led_ms,
                           .regressed = world->regressed,
                           .regressed_rev = world->regressed_rev,
                           .max_groups = G_MAXUINT};
}

/* "delete.old 901/1 s3://bucket/old/|…": what is wanted outside now. */
static char *wanted(const World *world)
{
    g_autoptr(LhErrands) errands = lh_errands_new();
    GString *text = g_string_new(NULL);
    LhPlanContext context = context_of(world);

    lh_controller_find(C)->errands(world->index, &context, errands);
    for (guint i = 0; i < errands->errands->len; i++) {
        const LhErrand *errand = &g_array_index(errands->errands, LhErrand, i);
        g_string_append_printf(text, "%s %" PRId64 "/%" PRId64 " %s|", errand->id, errand->token,
                               errand->attempt, errand->uri == NULL ? "" : errand->uri);
    }
    return g_string_free(text, FALSE);
}

/* Of the errand @id; -7: it is not wanted. */
static gint64 number_of(const World *world, const char *id)
{
    g_autoptr(LhErrands) errands = lh_errands_new();
    const LhPlanContext context = {
        .now_ms = world->now_ms, .revision = world->revision, .max_groups = G_MAXUINT};

    lh_controller_find(C)->errands(world->index, &context, errands);
    for (guint i = 0; i < errands->errands->len; i++)
        if (strcmp(g_array_index(errands->errands, LhErrand, i).id, id) == 0)
            return g_array_index(errands->errands, LhErrand, i).number;
    return -7;
}

/* Whether a marker may be written over, or made where there is something. */
static gboolean claims(const World *world)
{
    g_autoptr(LhErrands) errands = lh_errands_new();
    const LhPlanContext context = {
        .now_ms = world->now_ms, .revision = world->revision, .max_groups = G_MAXUINT};

    lh_controller_find(C)->errands(world->index, &context, errands);
    for (guint i = 0; i < errands->errands->len; i++)
        if (strcmp(g_array_index(errands->errands, LhErrand, i).what, LH_CLEANER_CLAIM) == 0)
            return TRUE;
    return FALSE;
}

static gboolean wants(const World *world, const char *part)
{
    g_autofree char *all = wanted(world);

    return strstr(all, part) != NULL;
}

static G_GNUC_PRINTF(3, 4) void observe(World *world, const char *name, const char *format, ...)
{
    g_autofree char *key = g_strconcat("observed/" C "/", name, NULL), *value = NULL;
    va_list args;

    va_start(args, format);
    value = *format == '\0' ? NULL : g_strdup_vprintf(format, args);
    va_end(args);
    change(world, key, value);
}

static char *root_id(const char *kind)
{
    return lh_cleaner_errand(kind, ROOT);
}

/* @look: more members, begins with a comma, or "". */
static void look_at(World *world, const char *state, gint64 clock_ms, const char *look)
{
    g_autofree char *id = root_id("look.");

    observe(world, id, "{\"at\":%" PRId64 ",\"token\":1,\"clock\":%" PRId64 ",\"state\":\"%s\"%s}",
            world->now_ms, clock_ms, state, look);
}

static gint64 listing_token = 1;

static void listed(World *world, const char *more)
{
    g_autofree char *id = root_id("list.");

    observe(world, id,
            "{\"at\":%" PRId64 ",\"token\":%" PRId64 ",\"clock\":%" PRId64 ",\"uri\":\"" ROOT
            "\",\"objects\":1000%s}",
            world->now_ms, listing_token, world->now_ms, more);
}

static void etcd_says(World *world, gint64 clock_ms)
{
    observe(world, "etcd", "{\"at\":%" PRId64 ",\"token\":1,\"clock\":%" PRId64 "}", world->now_ms,
            clock_ms);
}

/* All is well, and fresh. */
static void all_well(World *world)
{
    observe(world, "roots", "{\"at\":%" PRId64 ",\"uris\":[\"" ROOT "\"]}", world->now_ms);
    look_at(world, "ours", world->now_ms, "");
    listed(world, "");
    etcd_says(world, world->now_ms);
}

static void pass_time(World *world, gint64 ms)
{
    world->now_ms += ms;
    all_well(world);
}

/* Retention 1 h, buffer 1 min; @n snapshots old-000…, due in exactly @due_in_ms. */
static World *world_with(guint n, gint64 due_in_ms)
{
    World *world = world_new();

    put_settings(world, C, "\"buffer\":\"1m\",\"brakePercent\":100");
    put_service(world, "s", "\"cache\":{\"window\":\"10m\",\"replicas\":0},\"retention\":\"1h\"");
    for (guint i = 0; i < n; i++) {
        g_autofree char *name = g_strdup_printf("old-%03u", i);
        put_snapshot(world, name, "s", T0 + due_in_ms - HOUR - MINUTE, 10);
    }
    all_well(world);
    return world;
}

static guint deletions(const World *world)
{
    return count_below(world, "decided/deletions/");
}

static const LhBrake *brake(const World *world)
{
    return look(world, "decided/brakes/" C);
}

static void assert_keeps(World *world)
{
    run(world, C);
    if (deletions(world) != 0)
        fail_msg("something is to be deleted");
    assert_false(wants(world, "delete."));
}

/* As many are decided as were before. */
static void assert_keeps_decided(World *world, guint n)
{
    run(world, C);
    assert_int_equal(deletions(world), n);
}

static void erased(World *world, const char *snapshot, const char *more)
{
    const LhDeletion *deletion = lookf(world, "decided/deletions/%s", snapshot);
    g_autofree char *name = g_strconcat("delete.", snapshot, NULL);

    observe(world, name, "{\"at\":%" PRId64 ",\"token\":%" PRId64 ",\"objects\":3%s}",
            world->now_ms, deletion->o.create_rev, more);
}

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
        g_autofree char *first = wanted(world);
        assert_string_equal(first, "roots 0/0 |"); /* nothing else before that */
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
    observe(world, "roots", "{\"at\":%" PRId64 "}", world->now_ms); /* no roots at all */
    put_snapshot(world, "old", "s", T0 - DAY, 10);
    assert_keeps(world);
    assert_null(condition_of(world, "snapshots/out/" C, "Deletable"));
    observe(world, "roots", "%s", ""); /* not known: what was said stays */
    observe(world, "roots", "%s", "");
    assert_keeps(world);
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

static void confirm(World *world, const char *hash)
{
    world->now_ms += SECOND;
    putf(world, "desired/confirmations/" C, "{\"spec\":{\"planHash\":\"%s\"}}", hash);
    run(world, "admission");
}

/* Confirms the present Brake, and no more. */
static void confirm_brake(World *world)
{
    g_autofree char *hash = g_strdup(brake(world)->plan_hash);

    confirm(world, hash);
    step(world, C);
    assert_true(brake(world)->confirmed_at >= 0);
    assert_string_equal(brake(world)->plan_hash, hash);
}

static void assert_restored(World *world)
{
    assert_int_equal(brake(world)->cause, LH_BRAKE_RESTORED);
    assert_int_equal(brake(world)->confirmed_at, -1);
    assert_false(wants(world, "delete."));
    assert_false(wants(world, "erase."));
}

/* The number of what is wanted of the look, and its word. */
static gint64 look_number(World *world, const char *what)
{
    g_autoptr(LhErrands) errands = lh_errands_new();
    g_autofree char *id = root_id("look.");
    LhPlanContext context = context_of(world);

    context.now_ms += MINUTE;
    lh_controller_find(C)->errands(world->index, &context, errands);
    for (guint i = 0; i < errands->errands->len; i++) {
        const LhErrand *errand = &g_array_index(errands->errands, LhErrand, i);
        if (strcmp(errand->id, id) != 0)
            continue;
        assert_string_equal(errand->what, what);
        return errand->number;
    }
    fail_msg("no look is wanted");
    return 0;
}

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

/* ---- the brake and the rate ---- */

static World *two_services(guint old, guint young)
{
    World *world = world_with(old, 0);

    put_settings(world, C, "\"buffer\":\"1m\",\"deletesPerSecond\":1000");
    put_service(world, "young", "\"cache\":{\"window\":\"10m\",\"replicas\":0}");
    for (guint i = 0; i < young; i++) {
        g_autofree char *name = g_strdup_printf("young-%03u", i);
        put_snapshot(world, name, "young", T0, 10);
    }
    return world;
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
    observe(world, "roots", "{\"at\":%" PRId64 ",\"uris\":[\"" ROOT "\",\"s3://more/\"]}",
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
    pass_time(world, 5 * MINUTE); /* they alone are too few */
    run(world, C);
    assert_null(brake(world));
    assert_int_equal(deletions(world), 11);
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

#define STRAY ROOT "stray/dir/"

static char *orphan_name(void)
{
    return g_compute_checksum_for_string(G_CHECKSUM_SHA256, STRAY, -1);
}

static const LhOrphan *orphan(const World *world)
{
    g_autofree char *name = orphan_name();

    return lookf(world, "decided/orphans/%s", name);
}

static void see_orphan_at(World *world, gint64 objects, gint64 newest_ms, gint64 clock_ms)
{
    g_autofree char *name = orphan_name();
    g_autofree char *id = g_strconcat("orphan.", name, NULL);

    listing_token++;
    observe(world, id,
            "{\"at\":%" PRId64 ",\"token\":%" PRId64 ",\"clock\":%" PRId64 ",\"uri\":\"" STRAY
            "\",\"objects\":%" PRId64 ",\"bytes\":7,\"newest\":%" PRId64 "}",
            world->now_ms, listing_token, clock_ms, objects, newest_ms);
    listed(world, ",\"orphans\":3");
}

static void see_orphan(World *world, gint64 objects, gint64 newest_ms)
{
    see_orphan_at(world, objects, newest_ms, world->now_ms);
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
    observe(world, "roots", "{\"at\":%" PRId64 ",\"uris\":[\"%s\",\"" ROOT "\"]}", world->now_ms,
            other);
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
        cmocka_unit_test(dry_runs_do_nothing),
        cmocka_unit_test(a_foreign_marker_holds_everything),
        cmocka_unit_test(clocks_that_differ_hold_everything),
        cmocka_unit_test(a_listing_that_failed_or_is_empty_holds_everything),
        cmocka_unit_test(what_is_not_known_yet_is_waited_for),
        cmocka_unit_test(an_etcd_from_the_past_is_confirmed_first),
        cmocka_unit_test(a_root_without_a_marker_is_confirmed_first),
        cmocka_unit_test(a_restoration_is_braked_with_nothing_to_do),
        cmocka_unit_test(a_newer_marker_stays_newer_until_it_is_confirmed),
        cmocka_unit_test(another_marker_is_not_claimed),
        cmocka_unit_test(what_was_confirmed_as_much_confirms_no_restoration),
        cmocka_unit_test(a_confirmed_restoration_confirms_no_masses),
        cmocka_unit_test(an_old_confirmation_of_a_restoration_is_none),
        cmocka_unit_test(a_brake_that_does_not_parse_holds_what_is_decided),
        cmocka_unit_test(roots_are_looked_at_without_work_too),
        cmocka_unit_test(a_look_that_hangs_is_waited_for_no_longer_than_it_counts),
        cmocka_unit_test(a_confirmed_brake_of_a_backup_counts_for_nothing),
        cmocka_unit_test(the_brake_counts_by_service_and_by_all),
        cmocka_unit_test(a_confirmation_releases_exactly_that_set),
        cmocka_unit_test(a_confirmed_brake_does_not_wait_for_restored_replicas),
        cmocka_unit_test(other_settings_void_a_confirmation),
        cmocka_unit_test(other_roots_void_a_confirmation),
        cmocka_unit_test(another_member_voids_a_confirmation),
        cmocka_unit_test(what_was_confirmed_long_ago_is_asked_for_again),
        cmocka_unit_test(a_slow_plan_is_carried_out_to_its_end),
        cmocka_unit_test(small_steps_do_not_slip_under),
        cmocka_unit_test(what_is_braked_is_no_smaller_share_of_more),
        cmocka_unit_test(an_orphan_that_ripens_later_was_not_confirmed),
        cmocka_unit_test(pauses_keep_what_is_decided),
        cmocka_unit_test(so_many_a_second),
        cmocka_unit_test(missing_data_is_said_and_nothing_more),
        cmocka_unit_test(an_orphan_is_seen_twice_a_grace_apart),
        cmocka_unit_test(an_orphan_that_changes_or_is_claimed_is_none),
        cmocka_unit_test(an_orphan_that_has_changed_when_it_is_erased_is_none),
        cmocka_unit_test(an_old_listing_decides_nothing),
        cmocka_unit_test(a_sighting_counts_only_when_clocks_agree),
        cmocka_unit_test(an_orphan_rests_on_settings),
        cmocka_unit_test(many_orphans_brake),
        cmocka_unit_test(many_orphans_of_one_root_brake),
    };

    return cmocka_run_group_tests_name("snapshot-cleaner", tests, NULL, NULL);
}
