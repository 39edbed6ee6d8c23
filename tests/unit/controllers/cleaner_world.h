/*
 * For the tests of snapshot-cleaner: a world with one root, what is seen there, and what is wanted there.
 */
#pragma once

#include "controllers/cleaner.h"
#include "tests/unit/controllers/harness.h"

#define C    "snapshot-cleaner"
#define ROOT "s3://bucket/"

static inline LhPlanContext context_of(const World *world)
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
static inline char *wanted(const World *world)
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
static inline gint64 number_of(const World *world, const char *id)
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
static inline gboolean claims(const World *world)
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

static inline gboolean wants(const World *world, const char *part)
{
    g_autofree char *all = wanted(world);

    return strstr(all, part) != NULL;
}

static inline G_GNUC_PRINTF(3, 4) void observe(World *world, const char *name, const char *format,
                                               ...)
{
    g_autofree char *key = g_strconcat("observed/", strchr(name, '/') == NULL ? C "/" : "", name,
                                       NULL),
                    *value = NULL;
    va_list args;

    va_start(args, format);
    value = *format == '\0' ? NULL : g_strdup_vprintf(format, args);
    va_end(args);
    change(world, key, value);
}

static inline char *root_id(const char *kind)
{
    return lh_cleaner_errand(kind, ROOT);
}

/* @look: more members, begins with a comma, or "". */
static inline void look_at(World *world, const char *state, gint64 clock_ms, const char *look)
{
    g_autofree char *id = root_id("look.");

    observe(world, id, "{\"at\":%" PRId64 ",\"token\":1,\"clock\":%" PRId64 ",\"state\":\"%s\"%s}",
            world->now_ms, clock_ms, state, look);
}

static gint64 listing_token = 1;

static inline void listed(World *world, const char *more)
{
    g_autofree char *id = root_id("list.");

    observe(world, id,
            "{\"at\":%" PRId64 ",\"token\":%" PRId64 ",\"clock\":%" PRId64 ",\"uri\":\"" ROOT
            "\",\"objects\":1000%s}",
            world->now_ms, listing_token, world->now_ms, more);
}

static inline void etcd_says(World *world, gint64 clock_ms)
{
    observe(world, "etcd", "{\"at\":%" PRId64 ",\"token\":1,\"clock\":%" PRId64 "}", world->now_ms,
            clock_ms);
}

/* All is well, and fresh. */
static inline void all_well(World *world)
{
    observe(world, LH_CLEANER_ROOTS, "{\"at\":%" PRId64 ",\"uris\":[\"" ROOT "\"]}", world->now_ms);
    look_at(world, "ours", world->now_ms, "");
    listed(world, "");
    etcd_says(world, world->now_ms);
}

static inline void pass_time(World *world, gint64 ms)
{
    world->now_ms += ms;
    all_well(world);
}

/* Retention 1 h, buffer 1 min; @n snapshots old-000…, due in exactly @due_in_ms. */
static inline World *world_with(guint n, gint64 due_in_ms)
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

static inline guint deletions(const World *world)
{
    return count_below(world, "decided/deletions/");
}

static inline const LhBrake *brake(const World *world)
{
    return look(world, "decided/brakes/" C);
}

static inline void assert_keeps(World *world)
{
    run(world, C);
    if (deletions(world) != 0)
        fail_msg("something is to be deleted");
    assert_false(wants(world, "delete."));
}

/* As many are decided as were before. */
static inline void assert_keeps_decided(World *world, guint n)
{
    run(world, C);
    assert_int_equal(deletions(world), n);
}

static inline void erased(World *world, const char *snapshot, const char *more)
{
    const LhDeletion *deletion = lookf(world, "decided/deletions/%s", snapshot);
    g_autofree char *name = g_strconcat("delete.", snapshot, NULL);

    observe(world, name, "{\"at\":%" PRId64 ",\"token\":%" PRId64 ",\"objects\":3%s}",
            world->now_ms, deletion->o.create_rev, more);
}

static inline void confirm(World *world, const char *hash)
{
    world->now_ms += SECOND;
    putf(world, "desired/confirmations/" C, "{\"spec\":{\"planHash\":\"%s\"}}", hash);
    run(world, "admission");
}

/* Confirms the present Brake, and no more. */
static inline void confirm_brake(World *world)
{
    g_autofree char *hash = g_strdup(brake(world)->plan_hash);

    confirm(world, hash);
    step(world, C);
    assert_true(brake(world)->confirmed_at >= 0);
    assert_string_equal(brake(world)->plan_hash, hash);
}

static inline void assert_restored(World *world)
{
    assert_int_equal(brake(world)->cause, LH_BRAKE_RESTORED);
    assert_int_equal(brake(world)->confirmed_at, -1);
    assert_false(wants(world, "delete."));
    assert_false(wants(world, "erase."));
}

/* The number of what is wanted of the look, and its word. */
static inline gint64 look_number(World *world, const char *what)
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

static inline World *two_services(guint old, guint young)
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

#define STRAY ROOT "stray/dir/"

static inline char *orphan_of(const char *uri)
{
    return g_compute_checksum_for_string(G_CHECKSUM_SHA256, uri, -1);
}

static inline char *orphan_name(void)
{
    return orphan_of(STRAY);
}

static inline const LhOrphan *orphan_at(const World *world, const char *uri)
{
    g_autofree char *name = orphan_of(uri);

    return lookf(world, "decided/orphans/%s", name);
}

static inline const LhOrphan *orphan(const World *world)
{
    return orphan_at(world, STRAY);
}

/* @uri alone, by a listing. */
static inline void see_orphan_of(World *world, const char *uri, gint64 objects, gint64 newest_ms,
                                 gint64 clock_ms)
{
    g_autofree char *name = orphan_of(uri);
    g_autofree char *id = g_strconcat("orphan.", name, NULL);

    listing_token++;
    observe(world, id,
            "{\"at\":%" PRId64 ",\"token\":%" PRId64 ",\"clock\":%" PRId64 ",\"uri\":\"%s"
            "\",\"objects\":%" PRId64 ",\"bytes\":7,\"newest\":%" PRId64 "}",
            world->now_ms, listing_token, clock_ms, uri, objects, newest_ms);
    listed(world, ",\"orphans\":3");
}

static inline void see_orphan_at(World *world, gint64 objects, gint64 newest_ms, gint64 clock_ms)
{
    see_orphan_of(world, STRAY, objects, newest_ms, clock_ms);
}

/* It was erased, and the next listing did not find it. */
static inline void orphan_erased(World *world, const char *uri)
{
    g_autofree char *name = orphan_of(uri), *seen = g_strconcat("orphan.", name, NULL);
    g_autofree char *id = g_strconcat("erase.", name, NULL);

    observe(world, id, "{\"at\":%" PRId64 ",\"token\":%" PRId64 ",\"objects\":%" PRId64 "}",
            world->now_ms, orphan_at(world, uri)->o.create_rev, orphan_at(world, uri)->objects);
    run(world, C);
    assert_int_equal(orphan_at(world, uri)->objects, 0);
    observe(world, seen, "%s", "");
}

static inline void see_orphan(World *world, gint64 objects, gint64 newest_ms)
{
    see_orphan_at(world, objects, newest_ms, world->now_ms);
}
