/*
 * See recorded.h: a recorded history is fed to the invariants, commit by commit. Beside them it is held to
 * be whole: each change must follow on the one before of the same key.
 */
#include "base/units.h"
#include "recorded_internal.h"

#include <string.h>

typedef struct {
    const Recorded *recorded;
    Inv inv;
    GHashTable *keys;   /* key → LhKv, both in the history */
    GHashTable *leases; /* gint64 → how many keys hang on it */
    gint64 revision, time_ms;
    RecordedResult *out;
} Check;

static void on_violation(InvGroupId group, const char *text, gpointer data)
{
    Check *check = data;
    RecordedResult *out = check->out;
    out->violations++;
    out->failed[group]++;
    if (out->violations > RECORDED_SAYS)
        return;
    g_ptr_array_add(out->said,
                    g_strdup_printf("%s: revision %" G_GINT64_FORMAT
                                    ", received at %" G_GINT64_FORMAT " ms: %s",
                                    inv_group_name(group), check->revision, check->time_ms, text));
}

/* ---- is it whole ---- */

/* FALSE: something is missing; what follows would be judged wrongly. */
static gboolean follows(Check *check, const LhEtcdEvent *event, const LhKv *prev)
{
    const LhKv *kv = &event->kv;
    gboolean ok = event->is_delete ? prev != NULL
                  : prev == NULL
                      ? kv->version == 1 && kv->create_rev == kv->mod_rev
                      : kv->version == prev->version + 1 && kv->create_rev == prev->create_rev;
    if (!ok)
        inv_fail(&check->inv, INV_MODEL,
                 "the history is not whole: %s (version %" G_GINT64_FORMAT ") does not follow on "
                 "version %" G_GINT64_FORMAT,
                 kv->key, kv->version, prev == NULL ? 0 : prev->version);
    return ok;
}

static void count_lease(Check *check, gint64 lease, gint sign)
{
    gint n = GPOINTER_TO_INT(g_hash_table_lookup(check->leases, &lease)) + sign;
    if (lease == 0)
        return;
    if (n == 0)
        g_hash_table_remove(check->leases, &lease);
    else
        g_hash_table_replace(check->leases, g_memdup2(&lease, sizeof lease), GINT_TO_POINTER(n));
}

static void remember(Check *check, const LhEtcdEvent *event, const LhKv *prev)
{
    if (prev != NULL)
        count_lease(check, prev->lease, -1);
    if (event->is_delete) {
        g_hash_table_remove(check->keys, event->kv.key);
    } else {
        count_lease(check, event->kv.lease, 1);
        g_hash_table_replace(check->keys, (gpointer)event->kv.key, (gpointer)&event->kv);
    }
}

/* ---- who wrote ---- */

/* All keys of one lease went, and nothing else: the lease ended or was revoked. */
static gboolean lease_ended(const Check *check, const InvChange *changes, guint n)
{
    gint64 lease = changes[0].prev == NULL ? 0 : changes[0].prev->lease;
    for (guint i = 0; i < n; i++)
        if (!changes[i].event->is_delete || changes[i].prev == NULL ||
            changes[i].prev->lease != lease)
            return FALSE;
    return lease != 0 && GPOINTER_TO_UINT(g_hash_table_lookup(check->leases, &lease)) == n;
}

static gboolean is_of_people(const InvChange *change)
{
    return g_str_has_prefix(change->key, "desired/") || g_str_has_prefix(change->key, "published/");
}

/* A transaction that touches what managers write is a manager's; and so on down. */
static InvBy writer_of(const InvChange *changes, guint n)
{
    InvBy by = INV_BY_NOBODY;
    for (guint i = 0; i < n; i++) {
        if (g_str_has_prefix(changes[i].key, "actual/"))
            by = by == INV_BY_MANAGER ? by : INV_BY_AGENT;
        else if (!is_of_people(&changes[i]))
            by = INV_BY_MANAGER;
    }
    return by;
}

/* ---- commits ---- */

static void count_changes(RecordedResult *out, const InvCommit *commit)
{
    out->commits++;
    out->changes += commit->n;
    for (guint i = 0; i < commit->n; i++)
        out->kinds[commit->changes[i].kind]++;
}

static void judge(Check *check, const RecordedRevision *revision, const InvChange *changes)
{
    guint n = (guint)revision->n;
    InvCommit commit = {
        .revision = revision->revision,
        .now_ms = revision->time_ms,
        .earliest_ms = revision->since_ms,
        .wall_ms = revision->time_ms,
        .by_hand = g_hash_table_contains(check->recorded->by_hand, &revision->revision),
        .changes = changes,
        .n = n,
    };
    commit.by_lease = lease_ended(check, changes, n);
    if (!commit.by_hand && !commit.by_lease)
        commit.by = writer_of(changes, n);
    count_changes(check->out, &commit);
    inv_before(&check->inv, &commit);
    inv_apply(&check->inv, &commit);
    inv_after(&check->inv, &commit);
}

static gboolean feed(Check *check, const RecordedRevision *revision)
{
    guint n = (guint)revision->n;
    g_autofree InvChange *changes = g_new0(InvChange, n);
    gboolean whole = TRUE;
    check->revision = revision->revision;
    check->time_ms = revision->time_ms;
    for (guint i = 0; i < n; i++) {
        const LhEtcdEvent *event = &revision->events[i];
        const LhKv *prev = g_hash_table_lookup(check->keys, event->kv.key);
        whole = follows(check, event, prev) && whole;
        changes[i] = inv_change(&check->inv, event, prev);
    }
    if (whole)
        judge(check, revision, changes);
    for (guint i = 0; i < n; i++) {
        remember(check, &revision->events[i], changes[i].prev);
        inv_change_clear(&changes[i]);
    }
    return whole;
}

static void conclude(Check *check)
{
    RecordedResult *out = check->out;
    guint64 did = 0;
    out->counters = check->inv.counters;
    memcpy(out->did, check->inv.did, sizeof out->did);
    memcpy(out->skipped, check->inv.skipped, sizeof out->skipped);
    for (guint i = 0; i < INV_N_GROUPS; i++)
        did += out->did[i];
    if (did == 0)
        inv_fail(&check->inv, INV_MODEL, "nothing was checked");
}

void recorded_check(const Recorded *recorded, const RecordedTolerance *tolerance,
                    RecordedResult *out)
{
    Check check = {.recorded = recorded, .out = out};
    const InvOptions options = {
        .prefix = recorded->prefix,
        .clock_ms = tolerance->clock_ms,
        .late_ms = tolerance->late_ms,
        .grace_ms = -1,
        .reserve = -1,
        .fail = on_violation,
        .data = &check,
    };
    *out = (RecordedResult){.said = g_ptr_array_new_with_free_func(g_free)};
    inv_init(&check.inv, &options);
    check.keys = g_hash_table_new(g_str_hash, g_str_equal);
    check.leases = g_hash_table_new_full(g_int64_hash, g_int64_equal, g_free, NULL);
    for (guint i = 0; i < recorded->revisions->len; i++)
        if (!feed(&check, g_ptr_array_index(recorded->revisions, i)))
            break;
    conclude(&check);
    inv_clear(&check.inv);
    g_hash_table_unref(check.keys);
    g_hash_table_unref(check.leases);
}

void recorded_result_clear(RecordedResult *result)
{
    g_clear_pointer(&result->said, g_ptr_array_unref);
}

static void print_kinds(const RecordedResult *result, const char *mark, FILE *out)
{
    fprintf(out, "%schanges:", mark);
    for (guint kind = 0; kind <= LH_N_KINDS; kind++)
        if (result->kinds[kind] > 0)
            fprintf(out, " %s %" G_GUINT64_FORMAT,
                    kind == LH_N_KINDS ? "other" : lh_kind_info((LhKind)kind)->plural,
                    result->kinds[kind]);
    fprintf(out, "\n");
}

void recorded_result_print(const RecordedResult *result, const char *mark, FILE *out)
{
    fprintf(out, "%s%" G_GUINT64_FORMAT " commits, %" G_GUINT64_FORMAT " changes", mark,
            result->commits, result->changes);
#define X(name, text) fprintf(out, ", %" G_GUINT64_FORMAT " " text, result->counters.name);
    INV_COUNTERS(X)
#undef X
    fprintf(out, "\n");
    print_kinds(result, mark, out);
    for (guint group = 0; group < INV_MODEL; group++)
        fprintf(out,
                "%s%s: %" G_GUINT64_FORMAT " checked, %" G_GUINT64_FORMAT
                " questions skipped for lack of facts, %" G_GUINT64_FORMAT " violations\n",
                mark, inv_group_name(group), result->did[group], result->skipped[group],
                result->failed[group]);
    for (guint i = 0; i < result->said->len; i++)
        fprintf(out, "%sVIOLATION %s\n", mark, (char *)g_ptr_array_index(result->said, i));
    if (result->violations > RECORDED_SAYS)
        fprintf(out, "%s… and %" G_GUINT64_FORMAT " more\n", mark,
                result->violations - RECORDED_SAYS);
}
