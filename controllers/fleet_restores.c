/*
 * Restores in the fleet index: which replicas were created for which, how many of them are live, which
 * still lack their expiry; and the snapshots of a service by time, so that a request is answered without
 * looking at all that exists. Pure; no time: what depends on the clock is sorted by when it becomes due.
 */
#include "base/planted.h"
#include "controllers/fleet_internal.h"

#include <string.h>

enum { IN_LIVE_TODO = 1 << 0, IN_NOT_LIVE = 1 << 1 };

static gint compare_i64(gint64 a, gint64 b)
{
    return (a > b) - (a < b);
}

static gint by_expiry(gconstpointer a, gconstpointer b, gpointer data)
{
    const LhFleetRestored *left = a, *right = b;
    gint order = compare_i64(left->until, right->until);

    (void)data;
    return order != 0 ? order : strcmp(left->replica->name, right->replica->name);
}

static gint by_creation(gconstpointer a, gconstpointer b, gpointer data)
{
    const LhFleetRestored *left = a, *right = b;
    gint order = compare_i64(left->created_at, right->created_at);

    (void)data;
    return order != 0 ? order : strcmp(left->replica->name, right->replica->name);
}

static gint by_replica(gconstpointer a, gconstpointer b, gpointer data)
{
    const LhFleetRestored *left = a, *right = b;

    (void)data;
    return strcmp(left->replica->name, right->replica->name);
}

static gint by_restore_name(gconstpointer a, gconstpointer b, gpointer data)
{
    (void)data;
    return strcmp(((const LhFleetRestore *)a)->name, ((const LhFleetRestore *)b)->name);
}

void lh_fleet_restores_init(LhFleet *fleet)
{
    fleet->restores = g_hash_table_new(g_str_hash, g_str_equal);
    fleet->restore_todo = g_tree_new_full(by_restore_name, NULL, NULL, NULL);
    fleet->live_todo = g_tree_new_full(by_replica, NULL, NULL, NULL);
    fleet->not_live = g_tree_new_full(by_creation, NULL, NULL, NULL);
}

void lh_fleet_restores_clear(LhFleet *fleet)
{
    GHashTableIter iter;
    gpointer record;

    g_hash_table_iter_init(&iter, fleet->restores);
    while (g_hash_table_iter_next(&iter, NULL, &record)) {
        LhFleetRestore *restore = record;
        lh_object_unref(restore->accepted);
        lh_object_unref(restore->progress);
        g_tree_unref(restore->replicas);
        g_free(restore->name);
        g_free(restore);
    }
    g_hash_table_unref(fleet->restores);
    g_tree_unref(fleet->restore_todo);
    g_tree_unref(fleet->live_todo);
    g_tree_unref(fleet->not_live);
}

/* ---- records ---- */

static LhFleetRestore *restore_of(LhFleet *fleet, const char *name)
{
    LhFleetRestore *restore = g_hash_table_lookup(fleet->restores, name);

    if (restore == NULL) {
        restore = g_new0(LhFleetRestore, 1);
        restore->name = g_strdup(name);
        restore->replicas = g_tree_new_full(by_expiry, NULL, NULL, NULL);
        g_hash_table_insert(fleet->restores, restore->name, restore);
    }
    return restore;
}

static void drop_restore(LhFleet *fleet, LhFleetRestore *restore)
{
    if (restore->accepted != NULL || restore->progress != NULL || restore->todo ||
        g_tree_nnodes(restore->replicas) != 0)
        return;
    g_hash_table_remove(fleet->restores, restore->name);
    g_tree_unref(restore->replicas);
    g_free(restore->name);
    g_free(restore);
}

/* ---- what follows for a restore ---- */

static const LhRestoreProgress *progress_of(const LhFleetRestore *restore)
{
    return restore->progress != NULL && lh_object_known(restore->progress)
               ? (const LhRestoreProgress *)restore->progress
               : NULL;
}

gint64 lh_fleet_restore_until(const LhFleetRestore *restore)
{
    GTreeNode *last = g_tree_node_last(restore->replicas);

    return last == NULL ? -1 : ((const LhFleetRestored *)lh_tree_record(last))->until;
}

LhRestorePhase lh_fleet_restore_phase(const LhFleetRestore *restore)
{
    return g_tree_nnodes(restore->replicas) == 0 ? LH_RESTORE_COMPLETED : LH_RESTORE_ACTIVE;
}

gboolean lh_fleet_restore_condition(const LhFleetRestore *restore, LhCondition *out)
{
    const LhRestoreProgress *progress = progress_of(restore);
    const char *reason = NULL;

    if (progress == NULL || restore->accepted == NULL)
        return FALSE;
    switch ((LhRestorePhase)progress->phase) {
    case LH_RESTORE_PENDING:
        reason = "Creating";
        break;
    case LH_RESTORE_ACTIVE:
        reason = progress->given_up > 0                ? "GivenUp"
                 : progress->live < progress->replicas ? "Loading"
                                                       : "Live";
        break;
    case LH_RESTORE_COMPLETED:
        reason = "Over";
        break;
    case LH_RESTORE_REFUSED:
        reason = "Refused";
        break;
    }
    *out = (LhCondition){
        .type = "Restored",
        .status = strcmp(reason, "Live") == 0 ? LH_CONDITION_TRUE : LH_CONDITION_FALSE,
        .reason = reason,
        .message = progress->message,
    };
    return TRUE;
}

static gboolean status_differs(const LhFleet *fleet, const LhFleetRestore *restore)
{
    const LhObject *status = lh_fleet_status(fleet, "restores", restore->name, "restore-manager");
    const LhAccepted *accepted = (const LhAccepted *)restore->accepted;
    LhCondition condition;
    guint n = lh_fleet_restore_condition(restore, &condition) ? 1 : 0;

    return lh_status_differs(status, n == 0 || accepted == NULL ? 0 : accepted->revision,
                             &condition, n);
}

static gboolean restore_todo(const LhFleet *fleet, const LhFleetRestore *restore)
{
    const LhRestoreProgress *progress = progress_of(restore);
    const LhAccepted *accepted = (const LhAccepted *)restore->accepted;
    gint64 until = lh_fleet_restore_until(restore);

    if ((restore->progress != NULL && progress == NULL) ||
        (restore->accepted != NULL && !lh_object_known(restore->accepted)))
        return FALSE;
    if (status_differs(fleet, restore))
        return TRUE;
    if (restore->accepted == NULL)
        return progress != NULL;
    if (progress == NULL || progress->observed_revision != accepted->revision ||
        progress->phase == LH_RESTORE_PENDING)
        return TRUE;
    return progress->phase != LH_RESTORE_REFUSED &&
           (progress->live != restore->live || (until >= 0 && progress->until != until) ||
            progress->phase != (int)lh_fleet_restore_phase(restore));
}

static void touch_restore(LhFleet *fleet, LhFleetRestore *restore)
{
    gboolean want = restore_todo(fleet, restore);

    if (restore->todo && !want)
        g_tree_remove(fleet->restore_todo, restore);
    else if (!restore->todo && want)
        g_tree_insert(fleet->restore_todo, restore, restore);
    restore->todo = want;
}

void lh_fleet_touch_restore(LhFleet *fleet, const char *name)
{
    LhFleetRestore *restore = restore_of(fleet, name);

    touch_restore(fleet, restore);
    drop_restore(fleet, restore);
}

/* ---- the fate of what was created for it ---- */

typedef enum { LET_GO, HOLD, HANDS_OFF } Hold;

/* While it is Pending nothing of it goes. */
static Hold hold_of(const LhFleetRestore *restore)
{
    const LhRestoreProgress *progress = restore == NULL ? NULL : progress_of(restore);

    if (restore == NULL || restore->accepted == NULL)
        return LET_GO;
    if (!lh_object_known(restore->accepted) || (restore->progress != NULL && progress == NULL))
        return HANDS_OFF;
    if (LH_BUG(RESTORE_LETS_GO))
        return LET_GO;
    return progress == NULL || progress->phase == LH_RESTORE_PENDING ? HOLD : LET_GO;
}

LhFate lh_fleet_restored_fate(const LhFleetReplica *replica)
{
    gint64 expires_at = ((const LhReplica *)replica->object)->expires_at;

    switch (hold_of(replica->restored == NULL ? NULL : replica->restored->restore)) {
    case HANDS_OFF:
        return (LhFate){LH_FATE_UNKNOWN, G_MAXINT64, "restore-unknown"};
    case HOLD:
        return (LhFate){LH_FATE_KEEP, G_MAXINT64, "expired"};
    case LET_GO:
        break;
    }
    return (LhFate){LH_FATE_KEEP, expires_at < 0 ? G_MAXINT64 : expires_at, "expired"};
}

static gboolean touch_one(gpointer record, gpointer value, gpointer fleet)
{
    (void)value;
    lh_fleet_touch_replica(fleet, ((LhFleetRestored *)record)->replica);
    return FALSE;
}

static void hold_object(LhFleet *fleet, LhFleetRestore *restore, const LhObject **slot,
                        const LhObject *object)
{
    Hold before = hold_of(restore);

    lh_fleet_hold(slot, object);
    if (hold_of(restore) != before)
        g_tree_foreach(restore->replicas, touch_one, fleet);
    touch_restore(fleet, restore);
    drop_restore(fleet, restore);
}

void lh_fleet_fold_restore(LhFleet *fleet, const char *name, const LhObject *accepted)
{
    LhFleetRestore *restore = restore_of(fleet, name);

    hold_object(fleet, restore, &restore->accepted, accepted);
}

void lh_fleet_fold_progress(LhFleet *fleet, const char *name, const LhObject *progress)
{
    LhFleetRestore *restore = restore_of(fleet, name);

    hold_object(fleet, restore, &restore->progress, progress);
}

/* ---- replicas ---- */

static void set_bit(GTree *tree, LhFleetRestored *restored, guint8 bit, gboolean want)
{
    gboolean is = (restored->in & bit) != 0;

    if (is && !want)
        g_tree_remove(tree, restored);
    else if (!is && want)
        g_tree_insert(tree, restored, restored);
    restored->in = (guint8)(want ? restored->in | bit : restored->in & ~bit);
}

static void unlink_restored(LhFleet *fleet, LhFleetReplica *replica)
{
    LhFleetRestored *restored = replica->restored;
    LhFleetRestore *restore = restored->restore;

    set_bit(fleet->live_todo, restored, IN_LIVE_TODO, FALSE);
    set_bit(fleet->not_live, restored, IN_NOT_LIVE, FALSE);
    replica->restored = NULL;
    if (restore != NULL) {
        g_tree_remove(restore->replicas, restored);
        restore->live -= restored->live;
        touch_restore(fleet, restore);
        drop_restore(fleet, restore);
    }
    g_free(restored);
}

static gint64 until_of(const LhReplica *object)
{
    return object->ttl_ms > 0 ? object->expires_at : -1;
}

/* Of equal objects follow equal links: it is made anew when any of them changed. */
static gboolean linked_as(const LhFleetRestored *restored, const LhReplica *object)
{
    const char *name = restored->restore == NULL ? NULL : restored->restore->name;

    return restored->created_at == object->created_at &&
           restored->expires_at == object->expires_at && restored->until == until_of(object) &&
           g_strcmp0(name, object->restore) == 0;
}

void lh_fleet_link_restored(LhFleet *fleet, LhFleetReplica *replica)
{
    const LhReplica *object = replica->object != NULL && lh_object_known(replica->object)
                                  ? (const LhReplica *)replica->object
                                  : NULL;
    LhFleetRestored *restored;

    if (object != NULL && !object->restored)
        object = NULL;
    if (replica->restored != NULL && object != NULL && linked_as(replica->restored, object))
        return;
    if (replica->restored != NULL)
        unlink_restored(fleet, replica);
    if (object == NULL)
        return;
    restored = replica->restored = g_new0(LhFleetRestored, 1);
    restored->replica = replica;
    restored->created_at = object->created_at;
    restored->expires_at = object->expires_at;
    restored->until = until_of(object);
    if (object->restore != NULL) {
        restored->restore = restore_of(fleet, object->restore);
        g_tree_insert(restored->restore->replicas, restored, restored);
        touch_restore(fleet, restored->restore);
    }
}

void lh_fleet_touch_restored(LhFleet *fleet, LhFleetReplica *replica)
{
    LhFleetRestored *restored = replica->restored;
    gboolean live, open;

    if (restored == NULL)
        return;
    live = lh_fleet_replica_live(replica) != NULL;
    open = restored->expires_at < 0;
    set_bit(fleet->live_todo, restored, IN_LIVE_TODO, open && live);
    set_bit(fleet->not_live, restored, IN_NOT_LIVE, open && !live && restored->created_at >= 0);
    if (live == restored->live)
        return;
    restored->live = live;
    if (restored->restore != NULL) {
        restored->restore->live += live ? 1 : -1;
        touch_restore(fleet, restored->restore);
    }
}

/* ---- snapshots by time ---- */

/* Snapshots are sorted by the power of two that their duration lies below, then by their end: of those of
 * one class that overlap a time, none ends later than that power after it. */
typedef struct {
    guint duration_class;
    gint64 end_time;
    const char *name;
} TimeKey;

static TimeKey time_key(const LhSnapshot *snapshot)
{
    gint64 duration = MAX(0, snapshot->end_time - snapshot->start_time);

    return (TimeKey){g_bit_storage((gulong)duration), snapshot->end_time, snapshot->o.name};
}

int lh_fleet_time_order(gconstpointer record, gconstpointer key)
{
    const LhFleetSnapshot *snapshot = record;
    TimeKey left = time_key((const LhSnapshot *)snapshot->object);
    const TimeKey *right = key;

    if (left.duration_class != right->duration_class)
        return left.duration_class < right->duration_class ? -1 : 1;
    if (left.end_time != right->end_time)
        return left.end_time < right->end_time ? -1 : 1;
    return strcmp(left.name, right->name);
}

void lh_fleet_time_set(LhFleetSnapshot *snapshot, gboolean in)
{
    const LhSnapshot *object = lh_fleet_snapshot_object(snapshot);
    LhSortedSet *set;
    TimeKey key;

    if (object == NULL || object->live)
        return;
    set = &snapshot->service->by_time;
    key = time_key(object);
    if (in)
        lh_sorted_set_put(set, lh_sorted_set_find(set, &key), snapshot);
    else
        lh_sorted_set_take(set, lh_sorted_set_find(set, &key));
}

void lh_fleet_between(const LhFleetService *service, gint64 start, gint64 end,
                      LhFleetSnapshotFunc func, gpointer data)
{
    const LhSortedSet *set = &service->by_time;
    TimeKey key = {.duration_class = 0};
    LhFleetSnapshot *snapshot;

    for (guint class = 0; class < 64; class ++) {
        key = (TimeKey){class, start, ""};
        LhSortedPlace place = lh_sorted_set_find(set, &key);
        gint64 latest = class >= 62 || end > G_MAXINT64 - (G_GINT64_CONSTANT(1) << class)
                            ? G_MAXINT64
                            : end + (G_GINT64_CONSTANT(1) << class);
        while ((snapshot = lh_sorted_set_next(set, &place)) != NULL) {
            const LhSnapshot *object = (const LhSnapshot *)snapshot->object;
            if (time_key(object).duration_class != class) {
                /* No other class below this one's has any: go on with the next that has. */
                class = MAX(class, time_key(object).duration_class - 1);
                break;
            }
            if (object->end_time > latest)
                break;
            if (object->start_time <= end)
                func(snapshot, data);
        }
        if (snapshot == NULL)
            return;
    }
}
