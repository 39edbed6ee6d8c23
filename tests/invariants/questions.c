/*
 * What the contract says about the state that the model holds: which replicas are wanted, which snapshots
 * are valid, what is in force.
 */
#include "invariants.h"

#include <string.h>

const LhObject *inv_get(const Inv *inv, LhKind kind, const char *name)
{
    return g_hash_table_lookup(inv->kinds[kind], name);
}

const LhObject *inv_node(const Inv *inv, const char *node)
{
    g_autofree char *name = g_strconcat(INV_POOL "/", node, NULL);
    return inv_get(inv, LH_KIND_NODE, name);
}

const LhSettings *inv_settings(const Inv *inv, const char *controller)
{
    g_autofree char *name = g_strconcat("settings/", controller, NULL);
    const LhSettings *settings = lh_accepted_spec(inv_get(inv, LH_KIND_ACCEPTED, name),
                                                  LH_KIND_SETTINGS);
    return settings != NULL ? settings : lh_settings_default(controller);
}

gint64 inv_assignment_bytes(const Inv *inv, const char *name)
{
    const gint64 *bytes = g_hash_table_lookup(inv->bytes, name);
    return bytes == NULL ? 0 : *bytes;
}

char *inv_snapshot_of(const char *replica)
{
    char *snapshot = NULL;
    return lh_replica_name_split(replica, &snapshot, NULL, NULL, NULL) ? snapshot : NULL;
}

gboolean inv_is_restored(const char *replica)
{
    gboolean restored = FALSE;
    return lh_replica_name_split(replica, NULL, NULL, NULL, &restored) && restored;
}

const LhRestoreProgress *inv_progress(const Inv *inv, const char *restore)
{
    const LhObject *progress = inv_get(inv, LH_KIND_RESTOREPROGRESS, restore);
    return progress != NULL && lh_object_known(progress) ? (const LhRestoreProgress *)progress
                                                         : NULL;
}

static const LhObject *accepted_restore(const Inv *inv, const char *restore)
{
    g_autofree char *name = g_strconcat("restores/", restore, NULL);
    return inv_get(inv, LH_KIND_ACCEPTED, name);
}

const LhAccepted *inv_restore(const Inv *inv, const char *restore)
{
    const LhObject *accepted = accepted_restore(inv, restore);
    return lh_accepted_spec(accepted, LH_KIND_RESTORE) == NULL ? NULL
                                                               : (const LhAccepted *)accepted;
}

gboolean inv_restore_asks(const LhAccepted *restore, const LhSnapshot *snapshot)
{
    const LhRestore *spec = (const LhRestore *)restore->parsed;
    if (spec->snapshots[0] != NULL)
        return g_strv_contains(spec->snapshots, snapshot->o.name);
    return (strcmp(spec->service, "*") == 0 || strcmp(spec->service, snapshot->service) == 0) &&
           snapshot->start_time <= spec->end_time && snapshot->end_time >= spec->start_time;
}

static InvWant say(const char **why, InvWant want, const char *text)
{
    if (why != NULL)
        *why = text;
    return want;
}

static InvWant want_of_spec(const LhReplica *replica, const LhSnapshot *snapshot,
                            const LhService *spec, gint64 now_ms, const char **why)
{
    if (!g_strv_contains(spec->cache_sets, replica->set))
        return say(why, INV_UNWANTED, "its set was removed");
    if (replica->ordinal >= spec->cache_replicas)
        return say(why, INV_UNWANTED, "surplus");
    if (now_ms >= snapshot->end_time + spec->cache_window_ms)
        return say(why, INV_EXPIRED, "its window is over");
    return say(why, INV_WANTED, "wanted");
}

/* Until its Restore is no longer Pending it stays; then until its time is over. */
static InvWant want_of_restored(const Inv *inv, const LhReplica *replica, gint64 now_ms,
                                const char **why)
{
    const LhObject *accepted = NULL, *progress = NULL;
    if (replica->restore != NULL) {
        accepted = accepted_restore(inv, replica->restore);
        progress = inv_get(inv, LH_KIND_RESTOREPROGRESS, replica->restore);
    }
    if (accepted != NULL &&
        (!lh_object_known(accepted) || (progress != NULL && !lh_object_known(progress))))
        return say(why, INV_UNDECIDED, "what is decided of its Restore does not parse");
    if (accepted != NULL &&
        (progress == NULL || ((const LhRestoreProgress *)progress)->phase == LH_RESTORE_PENDING))
        return say(why, INV_WANTED, "its Restore is Pending");
    if (replica->expires_at >= 0 && now_ms >= replica->expires_at)
        return say(why, INV_EXPIRED, "its time is over");
    return say(why, INV_WANTED, "wanted");
}

InvWant inv_want(const Inv *inv, const char *name, const LhObject *object, gint64 now_ms,
                 const char **why)
{
    const LhReplica *replica = (const LhReplica *)object;
    g_autofree char *snapshot_name = inv_snapshot_of(name);
    const LhObject *snapshot = snapshot_name == NULL
                                   ? NULL
                                   : inv_get(inv, LH_KIND_SNAPSHOT, snapshot_name);
    const LhObject *accepted = NULL, *desired = NULL;
    if (object != NULL && !lh_object_known(object))
        return say(why, INV_UNDECIDED, "the replica does not parse");
    if (snapshot != NULL && !lh_object_known(snapshot))
        return say(why, INV_UNDECIDED, "the snapshot does not parse");
    const char *service = snapshot != NULL  ? ((const LhSnapshot *)snapshot)->service
                          : replica != NULL ? replica->service
                                            : NULL;
    if (service != NULL) {
        g_autofree char *accepted_name = g_strconcat("services/", service, NULL);
        accepted = inv_get(inv, LH_KIND_ACCEPTED, accepted_name);
        desired = inv_get(inv, LH_KIND_SERVICE, service);
    }
    if (accepted != NULL && !lh_object_known(accepted))
        return say(why, INV_UNDECIDED, "what is accepted of its service does not parse");
    const LhService *spec = lh_accepted_spec(accepted, LH_KIND_SERVICE);
    if (spec != NULL && spec->paused)
        return say(why, INV_UNDECIDED, "its service is paused");
    if (object == NULL)
        return say(why, INV_UNWANTED, "there is no such replica");
    if (snapshot == NULL)
        return say(why, INV_UNWANTED, "its snapshot is gone");
    if (((const LhSnapshot *)snapshot)->live)
        return say(why, INV_UNDECIDED, "its snapshot is being written");
    if (replica->restored)
        return want_of_restored(inv, replica, now_ms, why);
    if (spec == NULL)
        return desired != NULL ? say(why, INV_UNDECIDED, "its service is not accepted")
                               : say(why, INV_UNWANTED, "its service was deleted");
    return want_of_spec(replica, (const LhSnapshot *)snapshot, spec, now_ms, why);
}

gboolean inv_is_move(const InvChange *change)
{
    const LhAssignment *after = (const LhAssignment *)change->after;
    return change->kind == LH_KIND_ASSIGNMENT && after != NULL && lh_object_known(&after->o) &&
           inv_is_cache(change->name) && after->action == LH_ACTION_EVICT &&
           g_strcmp0(after->controller, "cache-evictor") == 0 &&
           (g_strcmp0(after->rule, "drained") == 0 || g_strcmp0(after->rule, "doubled") == 0 ||
            g_strcmp0(after->rule, "node-in-failure") == 0);
}

/* Whether a Deletion of another snapshot holds what @uri equals, contains or lies in, or a decided Orphan what it
 * equals or contains. */
static gboolean is_held(const Inv *inv, const char *uri, const LhSnapshot *snapshot)
{
    GHashTableIter iter;
    gpointer key, value;
    for (guint i = 0; i < 2; i++) {
        g_hash_table_iter_init(&iter, inv->kinds[i == 0 ? LH_KIND_DELETION : LH_KIND_ORPHAN]);
        while (g_hash_table_iter_next(&iter, &key, &value)) {
            const char *taken = i == 0 ? ((LhDeletion *)value)->uri : ((LhOrphan *)value)->uri;
            gboolean own = i == 0 && strcmp(key, snapshot->o.name) == 0 &&
                           ((LhDeletion *)value)->snapshot_revision == snapshot->o.mod_rev;
            if (!lh_object_known(value) || own || (i == 1 && ((LhOrphan *)value)->decided_at < 0))
                continue;
            if (g_str_has_prefix(taken, uri) || (i == 0 && g_str_has_prefix(uri, taken)))
                return TRUE;
        }
    }
    return FALSE;
}

gboolean inv_snapshot_valid(const Inv *inv, const LhSnapshot *snapshot)
{
    g_autofree char *own = lh_uri_text(&snapshot->uri);
    gsize len = strlen(own);
    GHashTableIter iter;
    gpointer name, value;
    if (is_held(inv, own, snapshot))
        return FALSE;
    g_hash_table_iter_init(&iter, inv->uris);
    while (g_hash_table_iter_next(&iter, &name, &value)) {
        const char *uri = value;
        if (strncmp(uri, own, MIN(len, strlen(uri))) != 0 || strcmp(name, snapshot->o.name) == 0)
            continue;
        const LhObject *other = inv_get(inv, LH_KIND_SNAPSHOT, name);
        if (other != &snapshot->o && other->create_rev <= snapshot->o.create_rev)
            return FALSE;
    }
    return TRUE;
}
