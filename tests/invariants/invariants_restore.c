/*
 * Restores: replicas are created only while their request is Pending, for final snapshots that it asks for,
 * where no other is live or coming, none twice, never more than the limit; each expires ttl after it was
 * first live, which is set once, or is given up after a day; only a changed request extends it. A request
 * goes from Pending to Active when all that it asks for exists. (That nothing of a Pending one goes is
 * inv_want's; the reserve is the placement's.)
 */
#include "invariants.h"

#include <string.h>

#define GIVE_UP_MS (24 * G_GINT64_CONSTANT(3600000))

/* ---- a replica comes ---- */

static const LhService *service_of(const Inv *inv, const char *name, const LhObject **accepted)
{
    g_autofree char *key = g_strconcat("services/", name, NULL);
    *accepted = inv_get(inv, LH_KIND_ACCEPTED, key);
    return lh_accepted_spec(*accepted, LH_KIND_SERVICE);
}

static guint own_replicas(const Inv *inv, const char *restore, gint64 revision)
{
    GHashTableIter iter;
    gpointer value;
    guint n = 0;
    g_hash_table_iter_init(&iter, inv->kinds[LH_KIND_REPLICA]);
    while (g_hash_table_iter_next(&iter, NULL, &value)) {
        const LhReplica *replica = value;
        n += lh_object_known(&replica->o) && g_strcmp0(replica->restore, restore) == 0 &&
             replica->restore_revision == revision;
    }
    return n;
}

/* Another one of the set that will be there beyond all doubt about clocks, and was when this was decided. */
static const char *other_in_set(const Inv *inv, const InvCommit *commit, const LhReplica *replica)
{
    gint64 doubt = inv->options.clock_ms + inv->options.late_ms;
    GHashTableIter iter;
    gpointer value;
    g_hash_table_iter_init(&iter, inv->kinds[LH_KIND_REPLICA]);
    while (g_hash_table_iter_next(&iter, NULL, &value)) {
        const LhReplica *other = value;
        if (other->o.name == replica->o.name || !lh_object_known(&other->o) ||
            strcmp(other->snapshot, replica->snapshot) != 0 ||
            strcmp(other->set, replica->set) != 0 || other->o.mod_rev == commit->revision)
            continue;
        if (other->restored
                ? other->expires_at < 0 || other->expires_at > inv->wall_ms + doubt
                : inv_want(inv, other->o.name, &other->o, inv->wall_ms + doubt, NULL) == INV_WANTED)
            return other->o.name;
    }
    return NULL;
}

static const char *check_request(Inv *inv, const InvCommit *commit, const LhReplica *replica)
{
    const LhRestoreProgress *progress = NULL;
    const LhAccepted *restore = NULL;
    if (replica->restore != NULL) {
        progress = inv_progress(inv, replica->restore);
        restore = inv_restore(inv, replica->restore);
    }
    if (restore == NULL)
        return "there is no such Restore";
    if (progress == NULL || progress->phase != LH_RESTORE_PENDING)
        return "its Restore is not Pending";
    if (progress->observed_revision != restore->revision ||
        replica->restore_revision != restore->revision)
        return "it is for another revision of its Restore";
    if (!inv_relied_on(inv, INV_RESTORE, commit, LH_KIND_RESTOREPROGRESS, progress->o.name,
                       progress->o.mod_rev) ||
        !inv_relied_on(inv, INV_RESTORE, commit, LH_KIND_ACCEPTED, restore->o.name,
                       restore->o.mod_rev))
        return "its Restore or its progress was not compared";
    return NULL;
}

static const char *check_subject(Inv *inv, const InvCommit *commit, const LhReplica *replica)
{
    const LhSnapshot *snapshot = (const LhSnapshot *)inv_get(inv, LH_KIND_SNAPSHOT,
                                                             replica->snapshot);
    const LhAccepted *restore = inv_restore(inv, replica->restore);
    const LhObject *accepted;
    const LhService *service;
    if (snapshot == NULL || !lh_object_known(&snapshot->o) || snapshot->live)
        return "its snapshot is not there, or still being written";
    if (inv_get(inv, LH_KIND_DELETION, replica->snapshot) != NULL)
        return "its snapshot is being deleted";
    if (!inv_restore_asks(restore, snapshot))
        return "its Restore does not ask for it";
    service = service_of(inv, snapshot->service, &accepted);
    if ((accepted != NULL && service == NULL) || (service != NULL && service->paused))
        return "its service is paused, or does not parse";
    if (service != NULL ? !g_strv_contains(service->cache_sets, replica->set)
                        : strcmp(replica->set, "default") != 0)
        return "its service does not use that set";
    if (replica->expires_at >= 0 || replica->ttl_ms != ((const LhRestore *)restore->parsed)->ttl_ms)
        return "its time is not its Restore's";
    if (!inv_relied_on(inv, INV_RESTORE, commit, LH_KIND_SNAPSHOT, replica->snapshot,
                       snapshot->o.mod_rev) ||
        !inv_relied_on(inv, INV_RESTORE, commit, LH_KIND_DELETION, replica->snapshot, 0))
        return "its snapshot or a Deletion was not compared";
    return NULL;
}

static void check_came(Inv *inv, const InvCommit *commit, const InvChange *change)
{
    const LhReplica *replica = (const LhReplica *)change->after;
    const char *why = check_request(inv, commit, replica), *other;
    inv_did(inv, INV_RESTORE);
    inv->counters.restored++;
    if (why == NULL)
        why = check_subject(inv, commit, replica);
    if (why != NULL) {
        inv_fail(inv, INV_RESTORE, "%s: %s", change->key, why);
        return;
    }
    other = commit->late ? NULL : other_in_set(inv, commit, replica);
    if (other != NULL)
        inv_fail(inv, INV_RESTORE, "%s: %s is live or coming", change->key, other);
    char *once = g_strdup_printf("%s.%s %s %" G_GINT64_FORMAT, replica->snapshot, replica->set,
                                 replica->restore, replica->restore_revision);
    if (!g_hash_table_add(inv->created, once))
        inv_fail(inv, INV_RESTORE, "%s is created again for the same request", change->key);
    if (own_replicas(inv, replica->restore, replica->restore_revision) >
        inv_settings(inv, "restore-manager")->max_replicas_per_restore)
        inv_fail(inv, INV_RESTORE, "%s is more than its Restore may have", change->key);
}

/* ---- a replica changes ---- */

static void check_expiry(Inv *inv, const InvCommit *commit, const InvChange *change)
{
    const LhReplica *after = (const LhReplica *)change->after;
    const gint64 *first = g_hash_table_lookup(inv->first_live, change->name);
    gint64 doubt = inv->options.clock_ms + inv->options.late_ms;
    gint64 since = after->expires_at - after->ttl_ms;
    if (after->ttl_ms == 0) {
        if (after->expires_at != after->created_at + GIVE_UP_MS ||
            inv->wall_ms + inv->options.clock_ms < after->expires_at)
            inv_fail(inv, INV_RESTORE, "%s is given up before its day is over", change->key);
        return;
    }
    inv->counters.restore_expiries++;
    if (first == NULL)
        inv_fail(inv, INV_RESTORE, "%s gets its expiry, and was never live", change->key);
    else if (since < MIN(*first, inv->wall_ms - doubt) && !commit->late)
        inv_fail(inv, INV_RESTORE,
                 "%s expires %" G_GINT64_FORMAT " ms sooner than its ttl after it was first live",
                 change->key, *first - since);
    else if (since > inv->wall_ms + inv->options.clock_ms)
        inv_fail(inv, INV_RESTORE, "%s expires later than its ttl from now", change->key);
}

static void check_changed(Inv *inv, const InvCommit *commit, const InvChange *change)
{
    const LhReplica *before = (const LhReplica *)change->before;
    const LhReplica *after = (const LhReplica *)change->after;
    inv_did(inv, INV_RESTORE);
    if (after->created_at != before->created_at ||
        g_strcmp0(after->restore, before->restore) != 0) {
        inv_fail(inv, INV_RESTORE, "%s became another's", change->key);
    } else if (after->restore_revision != before->restore_revision) {
        const char *why = check_request(inv, commit, after);
        inv->counters.restore_extended++;
        if (why != NULL)
            inv_fail(inv, INV_RESTORE, "%s is extended, but %s", change->key, why);
        if (after->ttl_ms < before->ttl_ms || after->expires_at < before->expires_at ||
            (before->expires_at >= 0) != (after->expires_at >= 0) ||
            (after->expires_at >= 0 &&
             after->expires_at - after->ttl_ms != before->expires_at - before->ttl_ms))
            inv_fail(inv, INV_RESTORE, "%s: its time is not extended by what its ttl grew",
                     change->key);
    } else if (before->expires_at < 0 && after->expires_at >= 0) {
        check_expiry(inv, commit, change);
    } else {
        inv_fail(inv, INV_RESTORE, "%s: its expiry is set twice", change->key);
    }
}

/* ---- progress ---- */

static gboolean has_replica(const Inv *inv, const char *snapshot, const char *set)
{
    g_autofree char *prefix = g_strdup_printf("%s.%s.", snapshot, set);
    GHashTableIter iter;
    gpointer key;
    g_hash_table_iter_init(&iter, inv->kinds[LH_KIND_REPLICA]);
    while (g_hash_table_iter_next(&iter, &key, NULL))
        if (g_str_has_prefix(key, prefix))
            return TRUE;
    return FALSE;
}

/* A set in which what is asked for is neither there nor about to come, and has not been since @seen, a
 * revision that who decided has seen; NULL: none. */
static const char *missing_set(const Inv *inv, const LhSnapshot *snapshot, gint64 seen)
{
    g_autofree char *status = g_strdup_printf("snapshots/%s/admission", snapshot->o.name);
    const gint64 *left = g_hash_table_lookup(inv->left, snapshot->o.name);
    const LhObject *accepted;
    const LhService *service = service_of(inv, snapshot->service, &accepted);
    if (snapshot->o.mod_rev > seen || snapshot->live || service == NULL || service->paused ||
        accepted->mod_rev > seen || (left != NULL && *left > seen) ||
        inv_get(inv, LH_KIND_STATUS, status) != NULL || !inv_snapshot_valid(inv, snapshot) ||
        inv_get(inv, LH_KIND_DELETION, snapshot->o.name) != NULL)
        return NULL;
    /* A regular one may be about to come, and then be too late: not judged. */
    if (service->cache_replicas > 0 &&
        snapshot->end_time + service->cache_window_ms >
            inv->wall_ms - inv->options.clock_ms - inv->options.late_ms)
        return NULL;
    for (guint s = 0; service->cache_sets[s] != NULL; s++)
        if (!has_replica(inv, snapshot->o.name, service->cache_sets[s]))
            return service->cache_sets[s];
    return NULL;
}

static void check_all_exist(Inv *inv, const InvChange *change, const LhAccepted *restore)
{
    GHashTableIter iter;
    gpointer value;
    if (own_replicas(inv, change->name, restore->revision) >=
        inv_settings(inv, "restore-manager")->max_replicas_per_restore)
        return;
    g_hash_table_iter_init(&iter, inv->kinds[LH_KIND_SNAPSHOT]);
    while (g_hash_table_iter_next(&iter, NULL, &value)) {
        const LhSnapshot *snapshot = value;
        if (!lh_object_known(&snapshot->o) || !inv_restore_asks(restore, snapshot))
            continue;
        const char *set = missing_set(inv, snapshot, change->before->mod_rev);
        if (set != NULL)
            inv_fail(inv, INV_RESTORE, "%s ends to be Pending, but %s has nothing in set %s",
                     change->key, snapshot->o.name, set);
    }
}

static void check_progress(Inv *inv, const InvCommit *commit, const InvChange *change)
{
    const LhRestoreProgress *before = (const LhRestoreProgress *)change->before;
    const LhRestoreProgress *after = (const LhRestoreProgress *)change->after;
    const LhAccepted *restore = inv_restore(inv, change->name);
    gboolean same = before != NULL && before->observed_revision == after->observed_revision;
    gboolean was_over = same && before->phase != LH_RESTORE_PENDING;
    inv_did(inv, INV_RESTORE);
    inv->counters.restores_refused += after->phase == LH_RESTORE_REFUSED && !was_over;
    inv->counters.restores_completed += after->phase == LH_RESTORE_COMPLETED &&
                                        !(same && before->phase == LH_RESTORE_COMPLETED);
    if (restore == NULL || !inv_relied_on(inv, INV_RESTORE, commit, LH_KIND_ACCEPTED,
                                          restore->o.name, restore->o.mod_rev)) {
        inv_fail(inv, INV_RESTORE, "%s: its Restore is not accepted, or was not compared",
                 change->key);
        return;
    }
    if (after->observed_revision != restore->revision)
        inv_fail(inv, INV_RESTORE, "%s speaks of another revision of it", change->key);
    if (was_over && (after->phase == LH_RESTORE_PENDING ||
                     (after->phase == LH_RESTORE_REFUSED) != (before->phase == LH_RESTORE_REFUSED)))
        inv_fail(inv, INV_RESTORE, "%s goes from %s to %s", change->key,
                 lh_restore_phase_name(before->phase), lh_restore_phase_name(after->phase));
    if (after->phase == LH_RESTORE_REFUSED &&
        (after->replicas <= inv_settings(inv, "restore-manager")->max_replicas_per_restore ||
         after->message == NULL))
        inv_fail(inv, INV_RESTORE, "%s is refused, and needs only %" G_GINT64_FORMAT, change->key,
                 after->replicas);
    if (same && before->phase == LH_RESTORE_PENDING && after->phase != LH_RESTORE_PENDING &&
        !commit->late)
        check_all_exist(inv, change, restore);
}

/* ---- commits ---- */

static gboolean known(const LhObject *object)
{
    return object != NULL && lh_object_known(object);
}

static void after(Inv *inv, const InvCommit *commit)
{
    if (commit->facts != NULL && commit->facts->unaware)
        return;
    for (guint i = 0; i < commit->n && commit->by == INV_BY_MANAGER; i++) {
        const InvChange *change = &commit->changes[i];
        if (change->kind == LH_KIND_REPLICA && inv_is_restored(change->name)) {
            if (change->before == NULL && known(change->after))
                check_came(inv, commit, change);
            else if (known(change->before) && known(change->after))
                check_changed(inv, commit, change);
        } else if (change->kind == LH_KIND_RESTOREPROGRESS && known(change->after)) {
            check_progress(inv, commit, change);
        }
    }
}

const InvGroup inv_restores = {NULL, after};
