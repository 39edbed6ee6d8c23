/*
 * Deleting data: no Deletion inside retention and buffer, of a live or overlapping snapshot, against an edit
 * that is not in force, or while there is a replica; it is decided once and never taken back; a snapshot is
 * retired only with the revision that says that its data is deleted; an Orphan is decided only after it was
 * seen twice, a grace apart, and of no place that a snapshot says it has or may have. Nothing is decided under a
 * Brake that nobody has confirmed; under a confirmed one only what was there when it was put; and masses only
 * so.
 */
#include "base/json.h"
#include "invariants.h"

#include <string.h>

#define WINDOW_MS     (9 * 60 * 1000) /* the brake's own is longer */
#define BRAKE_SLACK   2               /* snapshots that went meanwhile */
#define TOMBSTONE_MS  (30 * G_GINT64_CONSTANT(86400000))
#define SAY(inv, ...) inv_fail(inv, INV_CLEANER, __VA_ARGS__)

static gboolean has_replica(const Inv *inv, const char *snapshot)
{
    g_autofree char *prefix = g_strconcat(snapshot, ".", NULL);
    GHashTableIter iter;
    gpointer name;
    g_hash_table_iter_init(&iter, inv->kinds[LH_KIND_REPLICA]);
    while (g_hash_table_iter_next(&iter, &name, NULL))
        if (g_str_has_prefix(name, prefix))
            return TRUE;
    return FALSE;
}

static void check_service(Inv *inv, const InvCommit *commit, const InvChange *change,
                          const LhSnapshot *snapshot)
{
    g_autofree char *name = g_strconcat("services/", snapshot->service, NULL);
    const LhAccepted *accepted = (const LhAccepted *)inv_get(inv, LH_KIND_ACCEPTED, name);
    const LhObject *desired = inv_get(inv, LH_KIND_SERVICE, snapshot->service);
    const LhService *spec = lh_accepted_spec((const LhObject *)accepted, LH_KIND_SERVICE);
    gint64 due;
    if (spec == NULL || desired == NULL) {
        SAY(inv, "%s: its service is not in force, or deleted", change->key);
        return;
    }
    due = snapshot->end_time + spec->retention_ms +
          inv_settings(inv, "snapshot-cleaner")->buffer_ms;
    if (spec->paused)
        SAY(inv, "%s: its service is paused", change->key);
    else if (!lh_object_known(desired) || desired->mod_rev != accepted->revision)
        SAY(inv, "%s: an edit of its service is not in force", change->key);
    else if (commit->wall_ms + inv->options.clock_ms < due)
        SAY(inv, "%s: it is kept for %" G_GINT64_FORMAT " ms more", change->key,
            due - commit->wall_ms);
    else if (!inv_relied_on(inv, INV_CLEANER, commit, LH_KIND_SERVICE, snapshot->service,
                            desired->mod_rev) ||
             !inv_relied_on(inv, INV_CLEANER, commit, LH_KIND_ACCEPTED, name, accepted->o.mod_rev))
        SAY(inv, "%s: its service was not compared", change->key);
}

/* Where a Snapshot says that its data is, also one that does not parse; "" where nobody can say. */
static char *said_uri(const LhObject *object)
{
    gsize len = 0;
    const char *raw = lh_object_known(object) ? NULL : lh_object_raw(object, &len);
    g_autoptr(cJSON) json = raw == NULL ? NULL : lh_json_parse(raw, len, LH_JSON_MAX_BYTES, NULL);
    const char *uri = cJSON_IsObject(json) ? lh_json_get_string(json, "uri", NULL) : NULL;
    if (lh_object_known(object))
        return lh_uri_text(&((const LhSnapshot *)object)->uri);
    return g_strdup(uri != NULL && lh_uri_check(uri, NULL) ? uri : "");
}

/* Whoever decided knew at least so much of etcd: a mirror is etcd's state at one revision, and all that was
 * compared was in it. */
static gint64 seen_revision(const InvCommit *commit, gint64 least)
{
    gint64 seen = least;
    for (gsize i = 0; commit->facts != NULL && i < commit->facts->n_compares; i++) {
        const LhCompare *compare = &commit->facts->compares[i];
        if (compare->result == LH_CMP_EQUAL &&
            (compare->target == LH_CMP_MOD || compare->target == LH_CMP_CREATE))
            seen = MAX(seen, compare->number);
    }
    return seen;
}

/* Another snapshot than @own that was there by revision @seen; of those that collide neither is deleted, and
 * one that does not parse keeps what it says, or everything. */
static gboolean overlaps(const Inv *inv, const LhObject *own, const char *uri, gint64 seen)
{
    GHashTableIter iter;
    gpointer value;
    g_hash_table_iter_init(&iter, inv->kinds[LH_KIND_SNAPSHOT]);
    while (g_hash_table_iter_next(&iter, NULL, &value)) {
        const LhObject *other = value;
        g_autofree char *held = other == own || other->mod_rev > seen ? NULL : said_uri(other);
        if (held != NULL && (g_str_has_prefix(held, uri) || g_str_has_prefix(uri, held)))
            return TRUE;
    }
    return FALSE;
}

/* ---- the brake ---- */

static const LhBrake *brake_of(const Inv *inv)
{
    const LhObject *brake = inv_get(inv, LH_KIND_BRAKE, "snapshot-cleaner");
    return brake != NULL && lh_object_known(brake) ? (const LhBrake *)brake : NULL;
}

/* Without a confirmed Brake never more than ten, and more than brakePercent, within the window. */
static void check_masses(Inv *inv, const InvChange *change)
{
    gint64 percent = inv_settings(inv, "snapshot-cleaner")->brake_percent, now = inv->now_ms;
    guint old = 0, n, all = g_hash_table_size(inv->kinds[LH_KIND_SNAPSHOT]);
    g_array_append_val(inv->deleted_ms, now);
    while (g_array_index(inv->deleted_ms, gint64, old) + WINDOW_MS < now)
        old++;
    g_array_remove_range(inv->deleted_ms, 0, old);
    n = inv->deleted_ms->len;
    if (n > 10 && n * 100 > percent * (all + n + BRAKE_SLACK))
        SAY(inv, "%s is the %u. of %u that are deleted within the window", change->key, n, all + n);
}

/* @plan_hash: what it says that it is part of; @mod_rev: of what goes. */
static void check_brake(Inv *inv, const InvChange *change, const char *plan_hash, gint64 mod_rev)
{
    const LhBrake *brake = brake_of(inv);
    if (plan_hash == NULL && brake != NULL)
        SAY(inv, "%s is decided beside a Brake", change->key);
    else if (plan_hash != NULL &&
             (brake == NULL || brake->confirmed_at < 0 || brake->cause != LH_BRAKE_MUCH ||
              strcmp(brake->plan_hash, plan_hash) != 0))
        SAY(inv, "%s is decided as part of a plan that nobody has confirmed", change->key);
    else if (plan_hash != NULL && mod_rev > brake->revision)
        SAY(inv, "%s is decided, and was not there when its plan was braked", change->key);
    else if (plan_hash == NULL && change->kind == LH_KIND_DELETION)
        check_masses(inv, change);
}

static void check_decided(Inv *inv, const InvCommit *commit, const InvChange *change)
{
    const LhDeletion *deletion = (const LhDeletion *)change->after;
    const LhSnapshot *snapshot = (const LhSnapshot *)inv_get(inv, LH_KIND_SNAPSHOT, change->name);
    if (snapshot == NULL || !lh_object_known(&snapshot->o) ||
        !lh_uri_is(&snapshot->uri, deletion->uri) ||
        deletion->snapshot_revision != snapshot->o.mod_rev) {
        SAY(inv, "%s: not the snapshot that is there", change->key);
        return;
    }
    if (snapshot->live)
        SAY(inv, "%s: the snapshot is live", change->key);
    if (deletion->data_deleted_at >= 0)
        SAY(inv, "%s: nothing can be deleted yet", change->key);
    if (has_replica(inv, change->name))
        SAY(inv, "%s: it has a replica", change->key);
    if (overlaps(inv, &snapshot->o, deletion->uri, seen_revision(commit, snapshot->o.mod_rev)))
        SAY(inv, "%s: another snapshot's data lies there", change->key);
    if (!inv_relied_on(inv, INV_CLEANER, commit, LH_KIND_SNAPSHOT, change->name,
                       snapshot->o.mod_rev))
        SAY(inv, "%s: the snapshot was not compared", change->key);
    check_service(inv, commit, change, snapshot);
    check_brake(inv, change, deletion->plan_hash, snapshot->o.mod_rev);
}

static void check_deletion(Inv *inv, const InvCommit *commit, const InvChange *change)
{
    const LhDeletion *before = (const LhDeletion *)change->before;
    const LhDeletion *after = (const LhDeletion *)change->after;
    inv_did(inv, INV_CLEANER);
    if (after == NULL &&
        (before == NULL || !lh_object_known(&before->o) || before->data_deleted_at < 0 ||
         commit->wall_ms + inv->options.clock_ms < before->data_deleted_at + TOMBSTONE_MS))
        SAY(inv, "%s: a tombstone is deleted", change->key);
    else if (after == NULL)
        return;
    else if (before == NULL)
        check_decided(inv, commit, change);
    else if (lh_object_known(&before->o) &&
             (strcmp(before->uri, after->uri) != 0 || before->decided_at != after->decided_at ||
              before->data_deleted_at >= 0 || after->data_deleted_at < 0))
        SAY(inv, "%s: what was decided is changed", change->key);
}

/* Its data is deleted, and that is said in the same revision. */
static void check_retired(Inv *inv, const InvCommit *commit, const InvChange *change)
{
    g_autofree char *key = lh_key(LH_KIND_DELETION, change->name);
    inv_did(inv, INV_CLEANER);
    for (guint i = 0; i < commit->n; i++) {
        const LhDeletion *deletion = (const LhDeletion *)commit->changes[i].after;
        if (strcmp(commit->changes[i].key, key) == 0 && deletion != NULL &&
            deletion->data_deleted_at >= 0)
            return;
    }
    SAY(inv, "%s is retired; its data is not said to be deleted", change->key);
}

static void check_orphan(Inv *inv, const InvCommit *commit, const InvChange *change)
{
    const LhOrphan *before = (const LhOrphan *)change->before;
    const LhOrphan *after = (const LhOrphan *)change->after;
    gboolean was = before != NULL && lh_object_known(&before->o) && before->decided_at >= 0;
    inv_did(inv, INV_CLEANER);
    if (after == NULL || after->decided_at < 0 || was)
        return;
    check_brake(inv, change, after->plan_hash, before == NULL ? 0 : before->o.mod_rev);
    if (before == NULL || before->first_seen != after->first_seen ||
        strcmp(before->uri, after->uri) != 0 || before->objects != after->objects)
        SAY(inv, "%s is decided, and was not seen like this before", change->key);
    else if (after->second_seen - after->first_seen <
             inv_settings(inv, "snapshot-cleaner")->orphan_grace_ms)
        SAY(inv, "%s is decided %" G_GINT64_FORMAT " ms after it was first seen", change->key,
            after->second_seen - after->first_seen);
    if (overlaps(inv, NULL, after->uri,
                 seen_revision(commit, before == NULL ? 0 : before->o.mod_rev)))
        SAY(inv, "%s is decided, and a snapshot's data lies there, or may", change->key);
}

static void on_commit(Inv *inv, const InvCommit *commit)
{
    for (guint i = 0; i < commit->n && commit->by == INV_BY_MANAGER; i++) {
        const InvChange *change = &commit->changes[i];
        if (change->kind == LH_KIND_DELETION)
            check_deletion(inv, commit, change);
        else if (change->kind == LH_KIND_ORPHAN)
            check_orphan(inv, commit, change);
        else if (change->kind == LH_KIND_SNAPSHOT && change->after == NULL)
            check_retired(inv, commit, change);
        else if (change->kind == LH_KIND_SNAPSHOT)
            SAY(inv, "%s is written by a manager", change->key);
    }
}

const InvGroup inv_cleaner = {on_commit, NULL};
