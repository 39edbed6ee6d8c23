/*
 * What a record's objects mean for the sets: the fate of a replica, what is missing of a snapshot, what an
 * assignment counts for. A touch looks at the present objects and puts the record into the sets where it
 * belongs, or leaves it there: most touches change neither membership nor order. Pure; no time: what
 * depends on the clock is sorted by when it becomes due.
 */
#include "base/planted.h"
#include "controllers/fleet_internal.h"

#include <string.h>

/* ---- orders of the sets ---- */

static gint compare_i64(gint64 a, gint64 b)
{
    return (a > b) - (a < b);
}

static gint by_snapshot_name(gconstpointer a, gconstpointer b, gpointer data)
{
    (void)data;
    return strcmp(((const LhFleetSnapshot *)a)->name, ((const LhFleetSnapshot *)b)->name);
}

static gint by_freshness(gconstpointer a, gconstpointer b, gpointer data)
{
    const LhFleetReplica *left = a, *right = b;
    gint order = compare_i64(right->sort_time, left->sort_time);

    (void)data;
    return order != 0 ? order : strcmp(left->name, right->name);
}

static gint by_due(gconstpointer a, gconstpointer b, gpointer data)
{
    const LhFleetReplica *left = a, *right = b;
    gint order = compare_i64(left->fate.due_ms, right->fate.due_ms);

    (void)data;
    return order != 0 ? order : strcmp(left->name, right->name);
}

static gint by_replica_name(gconstpointer a, gconstpointer b, gpointer data)
{
    (void)data;
    return strcmp(((const LhFleetReplica *)a)->name, ((const LhFleetReplica *)b)->name);
}

static gint by_subject(gconstpointer a, gconstpointer b, gpointer data)
{
    (void)data;
    return strcmp(((const LhFleetSubject *)a)->key, ((const LhFleetSubject *)b)->key);
}

static gint by_presence(gconstpointer a, gconstpointer b, gpointer data)
{
    (void)data;
    return strcmp(((const LhFleetPresence *)a)->key, ((const LhFleetPresence *)b)->key);
}

static gint by_order(gconstpointer a, gconstpointer b, gpointer data)
{
    const LhFleetAssignment *left = a, *right = b;
    gint order = compare_i64(left->evicting_rev, right->evicting_rev);

    (void)data;
    return order != 0 ? order : strcmp(left->key, right->key);
}

static gint by_watch(gconstpointer a, gconstpointer b, gpointer data)
{
    const LhFleetAssignment *left = a, *right = b;
    gint order = compare_i64(left->watch_ms, right->watch_ms);

    (void)data;
    return order != 0 ? order : strcmp(left->key, right->key);
}

static gint by_service_name(gconstpointer a, gconstpointer b, gpointer data)
{
    (void)data;
    return strcmp(((const LhFleetService *)a)->name, ((const LhFleetService *)b)->name);
}

static gint by_host_name(gconstpointer a, gconstpointer b, gpointer data)
{
    (void)data;
    return strcmp(((const LhFleetHost *)a)->name, ((const LhFleetHost *)b)->name);
}

static gint by_node_id(gconstpointer a, gconstpointer b, gpointer data)
{
    (void)data;
    return strcmp(((const LhFleetNode *)a)->id, ((const LhFleetNode *)b)->id);
}

static gint by_text(gconstpointer a, gconstpointer b, gpointer data)
{
    (void)data;
    return strcmp(a, b);
}

void lh_fleet_trees_init(LhFleet *fleet)
{
    fleet->create_todo = g_ptr_array_new();
    fleet->correct_todo = g_tree_new_full(by_snapshot_name, NULL, NULL, NULL);
    fleet->missing_todo = g_tree_new_full(by_snapshot_name, NULL, NULL, NULL);
    fleet->valid_todo = g_tree_new_full(by_snapshot_name, NULL, NULL, NULL);
    fleet->waiting = g_tree_new_full(by_freshness, NULL, NULL, NULL);
    fleet->due_assigned = g_tree_new_full(by_due, NULL, NULL, NULL);
    fleet->due_free = g_tree_new_full(by_due, NULL, NULL, NULL);
    fleet->todo = g_tree_new_full(by_replica_name, NULL, NULL, NULL);
    fleet->moving = g_tree_new_full(by_freshness, NULL, NULL, NULL);
    fleet->drains = g_tree_new_full(by_host_name, NULL, NULL, NULL);
    fleet->failures = g_tree_new_full(by_node_id, NULL, NULL, NULL);
    fleet->admit_todo = g_tree_new_full(by_subject, NULL, NULL, NULL);
    fleet->health_todo = g_tree_new_full(by_presence, NULL, NULL, NULL);
    fleet->evicting = g_tree_new_full(by_order, NULL, NULL, NULL);
    fleet->unsettled = g_tree_new_full(by_watch, NULL, NULL, NULL);
    fleet->count_todo = g_tree_new_full(by_service_name, NULL, NULL, NULL);
    fleet->stuck_said = g_tree_new_full(by_text, NULL, g_free, (GDestroyNotify)lh_object_unref);
    lh_fleet_restores_init(fleet);
}

void lh_fleet_trees_clear(LhFleet *fleet)
{
    g_ptr_array_unref(fleet->create_todo);
    g_tree_unref(fleet->correct_todo);
    g_tree_unref(fleet->missing_todo);
    g_tree_unref(fleet->valid_todo);
    g_tree_unref(fleet->waiting);
    g_tree_unref(fleet->due_assigned);
    g_tree_unref(fleet->due_free);
    g_tree_unref(fleet->todo);
    g_tree_unref(fleet->moving);
    g_tree_unref(fleet->drains);
    g_tree_unref(fleet->failures);
    g_tree_unref(fleet->admit_todo);
    g_tree_unref(fleet->health_todo);
    g_tree_unref(fleet->evicting);
    g_tree_unref(fleet->unsettled);
    g_tree_unref(fleet->count_todo);
    g_tree_unref(fleet->stuck_said);
}

/* Returns @want. */
static gboolean set_member(GTree *tree, gpointer record, gboolean is, gboolean want)
{
    if (is && !want)
        g_tree_remove(tree, record);
    else if (!is && want)
        g_tree_insert(tree, record, record);
    return want;
}

static void set_bit(GTree *tree, LhFleetReplica *replica, guint8 bit, gboolean want)
{
    set_member(tree, replica, (replica->in & bit) != 0, want);
    replica->in = (guint8)(want ? replica->in | bit : replica->in & ~bit);
}

/* ---- replicas ---- */

static LhFate fate(LhFateType type, gint64 due_ms, const char *rule)
{
    return (LhFate){.type = type, .due_ms = due_ms, .rule = rule};
}

static LhFate gone(const char *rule)
{
    return fate(LH_FATE_GO, G_MININT64, rule);
}

static LhFate unknown(const char *rule)
{
    return fate(LH_FATE_UNKNOWN, G_MAXINT64, rule);
}

static LhFate fate_in_service(const LhReplica *replica, const LhSnapshot *snapshot,
                              const LhService *spec)
{
    if (!g_strv_contains(spec->cache_sets, replica->set))
        return gone("set-removed");
    if (replica->ordinal >= spec->cache_replicas)
        return gone("surplus");
    return fate(LH_FATE_KEEP, snapshot->end_time + spec->cache_window_ms, "expired");
}

/* First match wins; fleet.h says what the types mean. */
static LhFate fate_of(const LhFleetReplica *record)
{
    const LhReplica *replica = (const LhReplica *)record->object;
    const LhFleetSnapshot *snapshot = record->snapshot;
    const LhFleetService *service = snapshot->service != NULL ? snapshot->service : record->service;
    const LhService *spec;

    if (record->object != NULL && !lh_object_known(record->object))
        return unknown("replica-unknown");
    if (snapshot->object != NULL && !lh_object_known(snapshot->object))
        return LH_BUG(UNKNOWN_IS_ABSENT) ? gone("snapshot-gone") : unknown("snapshot-unknown");
    if (snapshot->object != NULL && ((const LhSnapshot *)snapshot->object)->live)
        return unknown("snapshot-live");
    if (service != NULL && service->accepted != NULL && !lh_object_known(service->accepted))
        return unknown("service-unknown");
    spec = service == NULL ? NULL : lh_fleet_service_spec(service);
    if (spec != NULL && spec->paused)
        return fate(LH_FATE_PAUSED, G_MAXINT64, "service-paused");
    if (replica == NULL)
        return gone("no-replica");
    if (snapshot->object == NULL)
        return gone("snapshot-gone");
    if (replica->restored)
        return lh_fleet_restored_fate(record);
    if (spec == NULL)
        return service != NULL && service->desired != NULL ? unknown("service-not-accepted")
                                                           : gone("service-deleted");
    return fate_in_service(replica, (const LhSnapshot *)snapshot->object, spec);
}

gboolean lh_fleet_replica_placeable(const LhFleet *fleet, const LhFleetReplica *replica)
{
    g_autofree char *invalid = NULL;

    if (replica->object == NULL || !lh_object_known(replica->object) ||
        (replica->retry != NULL && !lh_object_known(replica->retry)))
        return FALSE;
    if (replica->fate.type != LH_FATE_KEEP && replica->fate.type != LH_FATE_PAUSED)
        return FALSE;
    if (replica->snapshot->object == NULL || replica->snapshot->has_deletion)
        return FALSE;
    invalid = lh_fleet_snapshot_invalid(fleet, replica->snapshot);
    return invalid == NULL;
}

static gboolean assigned(const LhFleetReplica *replica)
{
    for (guint i = 0; replica->assignments != NULL && i < replica->assignments->len; i++)
        if (((LhFleetAssignment *)g_ptr_array_index(replica->assignments, i))->object != NULL)
            return TRUE;
    return FALSE;
}

/* A load that evictor may end: one on a lost node is the assigner's. */
static gboolean has_load(const LhFleetReplica *replica)
{
    for (guint i = 0; replica->assignments != NULL && i < replica->assignments->len; i++) {
        const LhFleetAssignment *assignment = g_ptr_array_index(replica->assignments, i);
        if (lh_fleet_load(assignment) != NULL && !lh_fleet_node_gone(assignment->node))
            return TRUE;
    }
    return FALSE;
}

/* A load that should not be where it is, or of which there should be one less; or an order that a node in failure
 * may never answer. */
static gboolean is_moving(const LhFleetReplica *replica)
{
    guint loads = 0;

    for (guint i = 0; replica->assignments != NULL && i < replica->assignments->len; i++) {
        const LhFleetAssignment *assignment = g_ptr_array_index(replica->assignments, i);
        if (assignment->object != NULL && assignment->node->failing)
            return TRUE;
        if (lh_fleet_load(assignment) == NULL || lh_fleet_node_gone(assignment->node))
            continue;
        if (lh_fleet_leaving(assignment->node))
            return TRUE;
        loads++;
    }
    return loads > 1;
}

static gboolean assignment_todo(const LhFleetAssignment *assignment)
{
    int answer = lh_fleet_answer(assignment);

    if (assignment->object == NULL || !lh_object_known(assignment->object))
        return FALSE;
    return lh_fleet_node_gone(assignment->node) || answer == LH_ITEM_FAILED ||
           answer == LH_ITEM_EVICTED || answer == LH_ITEM_DONE;
}

const LhItem *lh_fleet_replica_live(const LhFleetReplica *replica)
{
    for (guint i = 0; replica->assignments != NULL && i < replica->assignments->len; i++) {
        const LhFleetAssignment *assignment = g_ptr_array_index(replica->assignments, i);
        if (lh_fleet_load(assignment) != NULL && lh_fleet_answer(assignment) == LH_ITEM_LIVE)
            return (const LhItem *)assignment->item;
    }
    return NULL;
}

gboolean lh_fleet_replica_settled(const LhFleetReplica *replica)
{
    for (guint i = 0; replica->assignments != NULL && i < replica->assignments->len; i++) {
        const LhFleetAssignment *assignment = g_ptr_array_index(replica->assignments, i);
        if (lh_fleet_load(assignment) != NULL && !lh_fleet_leaving(assignment->node) &&
            lh_fleet_answer(assignment) == LH_ITEM_LIVE)
            return TRUE;
    }
    return FALSE;
}

static gboolean parked_differs(const LhFleet *fleet, const LhFleetReplica *replica)
{
    const LhRetry *retry = (const LhRetry *)replica->retry;
    const LhObject *status = lh_fleet_described(fleet, "replicas", replica->name)
                                 ? lh_fleet_status(fleet, "replicas", replica->name,
                                                   "cache-assigner")
                                 : NULL;
    gboolean parked = retry != NULL && lh_object_known(replica->retry) && retry->parked &&
                      !lh_fleet_retry_void(replica);

    return parked != (status != NULL);
}

static gboolean replica_todo(const LhFleet *fleet, const LhFleetReplica *replica)
{
    for (guint i = 0; replica->assignments != NULL && i < replica->assignments->len; i++)
        if (assignment_todo(g_ptr_array_index(replica->assignments, i)))
            return TRUE;
    if (replica->retry != NULL && lh_object_known(replica->retry) &&
        (lh_fleet_replica_settled(replica) || (replica->object == NULL && !assigned(replica))))
        return TRUE;
    return parked_differs(fleet, replica);
}

/* The service that a replica names whose snapshot is gone: it may be paused. */
static const char *orphan_service(const LhFleetReplica *replica)
{
    if (replica->object == NULL || !lh_object_known(replica->object) ||
        replica->snapshot->object != NULL)
        return NULL;
    return ((const LhReplica *)replica->object)->service;
}

/* Takes it out of the sets that are sorted by what changes; most touches change neither. */
static void set_order(LhFleet *fleet, LhFleetReplica *replica, gint64 sort_time, LhFate fate)
{
    if (replica->sort_time != sort_time) {
        set_bit(fleet->waiting, replica, LH_IN_WAITING, FALSE);
        set_bit(fleet->moving, replica, LH_IN_MOVING, FALSE);
    }
    if (replica->fate.due_ms != fate.due_ms) {
        set_bit(fleet->due_assigned, replica, LH_IN_DUE_ASSIGNED, FALSE);
        set_bit(fleet->due_free, replica, LH_IN_DUE_FREE, FALSE);
    }
    replica->sort_time = sort_time;
    replica->fate = fate;
}

/* ---- what a service has, for its Status ---- */

static gboolean counts_differ(const LhFleetService *service)
{
    const LhStatus *said = (const LhStatus *)service->counted;

    if (said == NULL)
        return service->desired != NULL;
    if (!lh_object_known(&said->o))
        return FALSE; /* nothing is written over it */
    return service->desired == NULL || said->observed_revision != service->desired->mod_rev ||
           said->snapshots != service->snapshots->len ||
           said->replicas_desired != service->replicas || said->replicas_live != service->live;
}

void lh_fleet_touch_counts(LhFleet *fleet, LhFleetService *service)
{
    service->count_todo = set_member(fleet->count_todo, service, service->count_todo,
                                     counts_differ(service));
}

/* Into the counts of the service whose data it stands for, and out of another's. */
static void count_replica(LhFleet *fleet, LhFleetReplica *replica)
{
    gboolean known = replica->object != NULL && lh_object_known(replica->object);
    LhFleetService *of = replica->snapshot->service != NULL ? replica->snapshot->service
                                                            : replica->service;
    LhFleetService *old = replica->counted_in, *in = known ? of : NULL;
    gboolean live = in != NULL && lh_fleet_replica_live(replica) != NULL;

    if (in == old && live == replica->counted_live)
        return;
    if (in != NULL) {
        in->replicas++;
        in->live += live ? 1 : 0;
    }
    if (old != NULL) {
        old->replicas--;
        old->live -= replica->counted_live ? 1 : 0;
    }
    replica->counted_in = in;
    replica->counted_live = live;
    if (in != NULL)
        lh_fleet_touch_counts(fleet, in);
    if (old != NULL && old != in) {
        lh_fleet_touch_counts(fleet, old);
        lh_fleet_drop_service(fleet, old);
    }
}

void lh_fleet_touch_replica(LhFleet *fleet, LhFleetReplica *replica)
{
    const LhSnapshot *snapshot = lh_fleet_snapshot_object(replica->snapshot);
    const LhReplica *object = (const LhReplica *)replica->object;
    gboolean free, ends;

    lh_fleet_link_orphan(fleet, replica, orphan_service(replica));
    lh_fleet_link_restored(fleet, replica);
    count_replica(fleet, replica);
    set_order(fleet, replica, snapshot == NULL ? 0 : snapshot->end_time, fate_of(replica));
    replica->set = object != NULL && lh_object_known(replica->object) ? object->set : NULL;
    free = !assigned(replica);
    ends = (replica->fate.type == LH_FATE_KEEP && replica->fate.due_ms != G_MAXINT64) ||
           replica->fate.type == LH_FATE_GO;
    set_bit(fleet->waiting, replica, LH_IN_WAITING,
            free && lh_fleet_replica_placeable(fleet, replica));
    set_bit(fleet->due_free, replica, LH_IN_DUE_FREE, free && ends && object != NULL);
    set_bit(fleet->due_assigned, replica, LH_IN_DUE_ASSIGNED, ends && has_load(replica));
    set_bit(fleet->moving, replica, LH_IN_MOVING, is_moving(replica));
    set_bit(fleet->todo, replica, LH_IN_TODO, replica_todo(fleet, replica));
    lh_fleet_touch_restored(fleet, replica);
}

/* ---- snapshots ---- */

static const LhReplica *regular_replica(const LhFleet *fleet, const LhFleetSnapshot *snapshot,
                                        const char *set, gint64 ordinal, gboolean *present)
{
    g_autofree char *name = lh_replica_name(snapshot->name, set, ordinal, FALSE);
    const LhFleetReplica *replica = g_hash_table_lookup(fleet->replicas, name);

    *present = replica != NULL && replica->object != NULL;
    return *present && lh_object_known(replica->object) ? (const LhReplica *)replica->object : NULL;
}

/* Not created when it would expire within this: two instances whose clocks differ must not create and
 * delete it in turns. A tenth of the window, at most 10 s. */
gint64 lh_fleet_creation_margin_ms(const LhService *spec)
{
    return MIN(10000, spec->cache_window_ms / 10);
}

/* Whether replicas are missing, and whether some say another expiry than service and snapshot do. */
static void compare_replicas(const LhFleet *fleet, const LhFleetSnapshot *snapshot,
                             const LhService *spec, gint64 expires_at, gboolean *missing,
                             gboolean *differ)
{
    if (snapshot->replicas == NULL) {
        *missing = spec->cache_sets[0] != NULL && spec->cache_replicas > 0;
        return;
    }
    for (guint s = 0; spec->cache_sets[s] != NULL; s++) {
        for (gint64 ordinal = 0; ordinal < spec->cache_replicas; ordinal++) {
            gboolean present;
            const LhReplica *replica = regular_replica(fleet, snapshot, spec->cache_sets[s],
                                                       ordinal, &present);
            if (!present)
                *missing = TRUE;
            else if (replica != NULL && replica->expires_at != expires_at)
                *differ = TRUE;
        }
    }
}

static void touch_creation(LhFleet *fleet, LhFleetSnapshot *snapshot, const char *invalid)
{
    const LhSnapshot *object = lh_fleet_snapshot_object(snapshot);
    const LhService *spec = snapshot->service == NULL ? NULL
                                                      : lh_fleet_service_spec(snapshot->service);
    gint64 expires_at = object != NULL && spec != NULL ? object->end_time + spec->cache_window_ms
                                                       : 0;
    gboolean missing = FALSE, differ = FALSE;

    if (object != NULL && spec != NULL && !object->live && !spec->paused &&
        !snapshot->has_deletion && invalid == NULL)
        compare_replicas(fleet, snapshot, spec, expires_at, &missing, &differ);
    lh_fleet_heap_set(fleet->create_todo, snapshot, missing, expires_at);
    snapshot->correct_todo =
        set_member(fleet->correct_todo, snapshot, snapshot->correct_todo, differ) & 1;
}

static gboolean missing_differs(const LhFleetSnapshot *snapshot, const LhObject *status)
{
    LhCondition condition = {.message = NULL};
    gboolean missing = lh_fleet_service_missing(snapshot, &condition);
    gboolean differs = lh_status_differs(status, missing ? snapshot->object->mod_rev : 0,
                                         &condition, missing ? 1 : 0);

    g_free((char *)condition.message);
    return differs;
}

static gboolean valid_differs(const LhFleetSnapshot *snapshot, const LhObject *status,
                              const char *invalid)
{
    LhCondition condition;
    guint n;

    if (snapshot->object == NULL)
        return status != NULL;
    if (!lh_object_known(snapshot->object) && !lh_kind_name_valid(LH_KIND_SNAPSHOT, snapshot->name))
        return status != NULL;
    n = lh_fleet_valid_condition(snapshot->object, invalid, &condition);
    return lh_status_differs(status, snapshot->object->mod_rev, &condition, n);
}

void lh_fleet_touch_snapshot(LhFleet *fleet, LhFleetSnapshot *snapshot)
{
    g_autofree char *invalid = lh_fleet_snapshot_invalid(fleet, snapshot);
    const LhObject *missing = NULL, *valid = NULL;

    if (fleet->described_snapshots > 0 && lh_fleet_described(fleet, "snapshots", snapshot->name)) {
        missing = lh_fleet_status(fleet, "snapshots", snapshot->name, "replica-creator");
        valid = lh_fleet_status(fleet, "snapshots", snapshot->name, "admission");
    }
    touch_creation(fleet, snapshot, invalid);
    snapshot->missing_todo = set_member(fleet->missing_todo, snapshot, snapshot->missing_todo,
                                        missing_differs(snapshot, missing)) &
                             1;
    snapshot->valid_todo = set_member(fleet->valid_todo, snapshot, snapshot->valid_todo,
                                      valid_differs(snapshot, valid, invalid)) &
                           1;
    lh_fleet_clean_touch(fleet, snapshot, invalid);
    for (guint i = 0; snapshot->replicas != NULL && i < snapshot->replicas->len; i++)
        lh_fleet_touch_replica(fleet, g_ptr_array_index(snapshot->replicas, i));
}

void lh_fleet_touch_service(LhFleet *fleet, LhFleetService *service)
{
    GHashTableIter iter;
    gpointer orphan;

    for (guint i = 0; i < service->snapshots->len; i++)
        lh_fleet_touch_snapshot(fleet, g_ptr_array_index(service->snapshots, i));
    g_hash_table_iter_init(&iter, service->orphans);
    while (g_hash_table_iter_next(&iter, &orphan, NULL))
        lh_fleet_touch_replica(fleet, orphan);
}

/* ---- assignments and nodes ---- */

static void count(LhFleetAssignment *assignment, gint64 sign)
{
    LhFleetHost *host = assignment->node->host;

    if (assignment->restored) {
        host->restored_bytes += sign * assignment->bytes;
        host->restored_items += sign * assignment->items;
    } else {
        host->used_bytes += sign * assignment->bytes;
        host->used_items += sign * assignment->items;
    }
    if (assignment->loading)
        assignment->node->loading += sign;
    if (assignment->unsized)
        host->unsized += sign;
}

void lh_fleet_uncount(LhFleet *fleet, LhFleetAssignment *assignment)
{
    lh_places_touch(fleet->places, assignment->node->host);
    count(assignment, -1);
    fleet->assigned_items -= assignment->items;
    if (assignment->evicting)
        g_tree_remove(fleet->evicting, assignment);
    assignment->bytes = assignment->items = 0;
    assignment->loading = assignment->evicting = assignment->unsized = FALSE;
}

static void recount(LhFleet *fleet, LhFleetAssignment *assignment)
{
    const LhAssignment *load = lh_fleet_load(assignment);

    lh_fleet_uncount(fleet, assignment);
    if (assignment->object == NULL)
        return;
    assignment->items = 1;
    assignment->bytes = lh_object_known(assignment->object)
                            ? ((const LhAssignment *)assignment->object)->size_bytes
                            : lh_fleet_replica_bytes(assignment->replica);
    assignment->restored = assignment->replica->is_restored;
    assignment->loading = load != NULL && lh_fleet_answer(assignment) != LH_ITEM_LIVE;
    assignment->evicting = load == NULL && lh_object_known(assignment->object);
    if (LH_BUG(EVICTING_IS_FREE) && assignment->evicting)
        assignment->bytes = assignment->items = 0;
    assignment->unsized = !lh_object_known(assignment->object) &&
                          lh_fleet_snapshot_object(assignment->replica->snapshot) == NULL;
    count(assignment, 1);
    fleet->assigned_items += assignment->items;
    if (!assignment->evicting)
        return;
    assignment->evicting_rev = assignment->object->mod_rev;
    g_tree_insert(fleet->evicting, assignment, assignment);
}

static LhFleetWatch watch_of(const LhFleetAssignment *assignment, gint64 *since)
{
    const LhAssignment *order = (const LhAssignment *)assignment->object;
    const LhItem *item = (const LhItem *)assignment->item;
    int answer = lh_fleet_answer(assignment);

    if (order == NULL) {
        if (item == NULL || !lh_object_known(&item->o))
            return LH_WATCH_NONE;
        *since = item->since;
        return LH_WATCH_ZOMBIE;
    }
    if (!lh_object_known(&order->o) || lh_fleet_node_gone(assignment->node) ||
        answer == LH_ITEM_FAILED || answer == LH_ITEM_EVICTED || answer == LH_ITEM_DONE)
        return LH_WATCH_NONE;
    if (order->action == LH_ACTION_LOAD && answer == LH_ITEM_LIVE)
        return LH_WATCH_NONE;
    *since = order->since; /* a manager's clock; the node's may be anything */
    if (order->action == LH_ACTION_EVICT)
        return LH_WATCH_EVICTING;
    return answer == LH_ITEM_LOADING ? LH_WATCH_LOADING : LH_WATCH_ASSIGNED;
}

static void touch_watch(LhFleet *fleet, LhFleetAssignment *assignment)
{
    gint64 since = 0;
    LhFleetWatch watch = watch_of(assignment, &since);

    if (watch == assignment->watch && since == assignment->watch_ms)
        return;
    if (assignment->watch != LH_WATCH_NONE)
        g_tree_remove(fleet->unsettled, assignment);
    assignment->watch = watch;
    assignment->watch_ms = since;
    if (watch != LH_WATCH_NONE)
        g_tree_insert(fleet->unsettled, assignment, assignment);
}

void lh_fleet_touch_assignment(LhFleet *fleet, LhFleetAssignment *assignment)
{
    recount(fleet, assignment);
    touch_watch(fleet, assignment);
    lh_fleet_touch_replica(fleet, assignment->replica);
}

void lh_fleet_touch_node(LhFleet *fleet, LhFleetNode *node)
{
    lh_places_touch(fleet->places, node->host);
    for (guint i = 0; i < node->assignments->len; i++)
        lh_fleet_touch_assignment(fleet, g_ptr_array_index(node->assignments, i));
}

void lh_fleet_touch_host(LhFleet *fleet, LhFleetHost *host)
{
    const LhNodePolicy *policy = lh_accepted_spec(host->policy, LH_KIND_NODEPOLICY);
    gboolean draining = policy != NULL && policy->drain;

    if (draining != host->draining) {
        host->draining = draining;
        for (guint i = 0; i < host->nodes->len; i++)
            lh_fleet_touch_node(fleet, g_ptr_array_index(host->nodes, i));
    }
    host->in_drains = set_member(fleet->drains, host, host->in_drains,
                                 draining || host->drain_said != NULL);
}

/* One whose registration is gone, or does not parse, is another matter. Nobody acts on the word of a detector
 * that people have stopped, or whose Settings do not parse. */
static gboolean is_failing(const LhFleet *fleet, const LhFleetNode *node)
{
    const LhSettings *detector = lh_fleet_settings(fleet, "failure-detector");

    return node->object != NULL && lh_object_known(node->object) && lh_fleet_in_failure(node) &&
           ((const LhHealth *)node->health)->missing_since < 0 &&
           detector->on_failure == LH_ON_FAILURE_EVICT && !detector->paused;
}

void lh_fleet_touch_failing(LhFleet *fleet, LhFleetNode *node)
{
    gboolean failing = is_failing(fleet, node);

    if (failing != node->failing) {
        node->failing = failing;
        lh_fleet_touch_node(fleet, node);
    }
    node->in_failures = set_member(fleet->failures, node, node->in_failures,
                                   failing || node->said != NULL);
}

/* ---- admission and health ---- */

static gboolean subject_todo(const LhFleet *fleet, const LhFleetSubject *subject)
{
    const LhAccepted *accepted = (const LhAccepted *)subject->accepted;
    const LhKindInfo *info = lh_kind_info(subject->kind);
    const char *name = subject->key + strlen(info->plural) + 1;
    const LhObject *status = lh_fleet_status(fleet, info->plural, name, "admission");
    g_autofree char *invalid = NULL;
    LhCondition condition;
    guint n;

    if (subject->desired == NULL)
        return subject->accepted != NULL || status != NULL;
    if (!lh_kind_name_valid(subject->kind, name))
        return FALSE;
    invalid = lh_fleet_subject_invalid(fleet, subject);
    if (invalid == NULL && lh_kind_is_desired(subject->kind) &&
        (accepted == NULL ||
         (lh_object_known(subject->accepted) && accepted->revision != subject->desired->mod_rev)))
        return TRUE;
    n = lh_fleet_valid_condition(subject->desired, invalid, &condition);
    return lh_status_differs(status, subject->desired->mod_rev, &condition, n);
}

void lh_fleet_touch_subject(LhFleet *fleet, LhFleetSubject *subject)
{
    subject->todo = set_member(fleet->admit_todo, subject, subject->todo,
                               subject_todo(fleet, subject));
}

/* All is well with it, as far as it and its probes say. */
static gboolean presence_well(const LhFleetPresence *presence)
{
    const LhNode *node = (const LhNode *)presence->node;
    const LhHealth *health = (const LhHealth *)presence->health;
    const LhObservation *probe = (const LhObservation *)presence->probe;

    return health->state == LH_HEALTH_HEALTHY && health->missing_since < 0 &&
           (!lh_object_known(&node->o) || node->state != LH_NODE_ERROR) &&
           (probe == NULL || !lh_object_known(&probe->o) || probe->missing <= 0);
}

static gboolean presence_todo(const LhFleetPresence *presence)
{
    const LhHealth *health = (const LhHealth *)presence->health;

    if (presence->health != NULL && !lh_object_known(presence->health))
        return FALSE;
    if (presence->node != NULL)
        return health == NULL || (health->state != LH_HEALTH_FAILED && !presence_well(presence));
    /* Gone: until it is said to be failed; and then until that is forgotten. */
    return health != NULL || presence->assignments != 0;
}

void lh_fleet_fold_probe(LhFleet *fleet, const char *id, const LhObject *seen)
{
    const char *dot = strchr(id, '.'); /* a pool has none */
    g_autofree char *key = dot == NULL ? NULL
                                       : g_strdup_printf("%.*s/%s", (int)(dot - id), id, dot + 1);
    LhFleetPresence *presence;

    if (key == NULL)
        return;
    presence = lh_fleet_presence(fleet, key);
    lh_fleet_hold(&presence->probe, seen);
    lh_fleet_touch_presence(fleet, presence);
    lh_fleet_drop_presence(fleet, presence);
}

/* FNV-1a */
static guint64 mix(guint64 sum, const void *bytes, gsize len)
{
    for (gsize i = 0; i < len; i++)
        sum = (sum ^ ((const guint8 *)bytes)[i]) * G_GUINT64_CONSTANT(1099511628211);
    return sum;
}

static guint64 mix_text(guint64 sum, const char *text)
{
    return text == NULL ? sum : mix(sum, text, strlen(text) + 1);
}

static guint64 mix_number(guint64 sum, gint64 number)
{
    return mix(sum, &number, sizeof number);
}

static guint64 errand_digest(const LhFleetPresence *presence)
{
    const LhHealth *health = (const LhHealth *)presence->health;
    guint64 sum = mix_text(1, presence->key);

    if (presence->node == NULL || !lh_object_known(presence->node))
        return 0;
    sum = mix_text(sum, ((const LhNode *)presence->node)->url);
    sum = mix_number(sum, presence->node->create_rev);
    if (health == NULL || !lh_object_known(&health->o) || !health->revoking)
        return sum;
    return mix_number(mix_number(sum, health->o.mod_rev), lh_object_lease(presence->node));
}

static guint64 revoked_digest(const LhObject *object)
{
    const LhObservation *seen = (const LhObservation *)object;

    return object == NULL || !lh_object_known(object)
               ? 0
               : mix_number(mix_number(mix_number(mix_text(mix_text(1, object->name), seen->error),
                                                  seen->token),
                                       seen->attempt),
                            seen->at);
}

void lh_fleet_fold_revoked(LhFleet *fleet, const LhObject *before, const LhObject *after)
{
    fleet->errands_digest += revoked_digest(after) - revoked_digest(before);
}

void lh_fleet_touch_presence(LhFleet *fleet, LhFleetPresence *presence)
{
    guint64 digest = errand_digest(presence);

    fleet->errands_digest += digest - presence->errand_digest;
    presence->errand_digest = digest;
    presence->todo = set_member(fleet->health_todo, presence, presence->todo,
                                presence_todo(presence));
}
