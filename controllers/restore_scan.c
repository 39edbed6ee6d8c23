/*
 * Looks at the snapshots that a Restore names or overlaps, and at nothing else. "There" is what is live or
 * will be: an expired replica that is not deleted yet is not, one of the Restore's present revision always
 * is, so that within one revision nothing is created twice. What does not parse is there. Pure.
 */
#include "controllers/restore_scan.h"

#include <string.h>

static const char *const default_sets[] = {"default", NULL};

typedef struct {
    const LhFleet *fleet;
    const LhFleetRestore *restore;
    const LhRestore *spec;
    gint64 revision; /* of the Restore */
    gint64 now_ms;
    gboolean creator_paused;
    GPtrArray *snapshots; /* LhFleetSnapshot that are asked for */
    LhRestoreScan *out;
} Scan;

gint64 lh_restore_extended(const LhReplica *replica, gint64 ttl_ms)
{
    return replica->expires_at < 0 ? -1 : replica->expires_at + MAX(0, ttl_ms - replica->ttl_ms);
}

static void block(Scan *scan, char *why)
{
    if (scan->out->blocked == NULL)
        scan->out->blocked = why;
    else
        g_free(why);
}

/* ---- what is there ---- */

typedef enum { ABSENT, THERE, OWN, TO_EXTEND } Presence;

static Presence presence_of_own(const Scan *scan, const LhReplica *object)
{
    gint64 expires_at = lh_restore_extended(object, scan->spec->ttl_ms);

    if (object->restore_revision == scan->revision)
        return OWN;
    if (object->expires_at >= 0 && object->ttl_ms == 0)
        return ABSENT; /* given up */
    return expires_at < 0 || expires_at > scan->now_ms ? TO_EXTEND : ABSENT;
}

static gboolean is_in(const LhFleetReplica *replica, const char *set)
{
    g_autofree char *named = NULL;

    if (replica->set != NULL)
        return strcmp(replica->set, set) == 0;
    return lh_replica_name_split(replica->name, NULL, &named, NULL, NULL) &&
           strcmp(named, set) == 0;
}

static Presence presence_of(const Scan *scan, const LhFleetReplica *replica)
{
    const LhReplica *object = (const LhReplica *)replica->object;

    if (object == NULL)
        return ABSENT;
    if (!lh_object_known(&object->o))
        return THERE;
    if (replica->restored != NULL && replica->restored->restore == scan->restore)
        return presence_of_own(scan, object);
    if (replica->fate.type == LH_FATE_GO)
        return ABSENT;
    if (object->restored)
        return object->expires_at < 0 || object->expires_at > scan->now_ms ? THERE : ABSENT;
    return replica->fate.type != LH_FATE_KEEP || replica->fate.due_ms > scan->now_ms ? THERE
                                                                                     : ABSENT;
}

/* replica-creator is about to create one there. */
static gboolean is_coming(const Scan *scan, const LhFleetSnapshot *snapshot, const char *set)
{
    const LhService *spec = lh_fleet_service_spec(snapshot->service);

    return spec != NULL && snapshot->heap_slot != 0 && spec->cache_replicas > 0 &&
           !scan->creator_paused && g_strv_contains(spec->cache_sets, set) &&
           snapshot->sort_time - lh_fleet_creation_margin_ms(spec) > scan->now_ms;
}

/* The lowest that no key of any kind knows. */
static gint64 free_ordinal(const Scan *scan, const LhFleetSnapshot *snapshot, const char *set)
{
    for (gint64 ordinal = 0;; ordinal++) {
        g_autofree char *name = lh_replica_name(snapshot->name, set, ordinal, TRUE);
        if (!g_hash_table_contains(scan->fleet->replicas, name))
            return ordinal;
    }
}

static void scan_set(Scan *scan, const LhFleetSnapshot *snapshot, const char *set, gboolean blocked)
{
    LhRestoreScan *out = scan->out;
    Presence best = is_coming(scan, snapshot, set) ? THERE : ABSENT;
    LhRestoreMissing missing = {.snapshot = snapshot, .set = set};

    for (guint i = 0; snapshot->replicas != NULL && i < snapshot->replicas->len; i++) {
        LhFleetReplica *replica = g_ptr_array_index(snapshot->replicas, i);
        Presence presence = is_in(replica, set) ? presence_of(scan, replica) : ABSENT;
        if (presence == TO_EXTEND)
            g_ptr_array_add(out->extend, replica);
        out->own += presence == OWN || presence == TO_EXTEND;
        best = MAX(best, presence);
    }
    if (best == THERE)
        out->covered++;
    if (best != ABSENT)
        return;
    if (blocked) {
        out->held++;
        return;
    }
    missing.ordinal = free_ordinal(scan, snapshot, set);
    g_array_append_val(out->missing, missing);
}

/* ---- snapshot by snapshot ---- */

/* Why nothing of the service may be created for now; g_free; NULL: it may. */
static char *service_blocks(const LhFleetService *service)
{
    const LhService *spec = lh_fleet_service_spec(service);

    if (service->accepted != NULL && !lh_object_known(service->accepted))
        return g_strdup_printf("what is in force of service %s does not parse", service->name);
    if (spec == NULL && service->desired != NULL)
        return g_strdup_printf("service %s is not accepted", service->name);
    if (spec != NULL && spec->paused)
        return g_strdup_printf("service %s is paused", service->name);
    return NULL;
}

static gboolean can_be_restored(const Scan *scan, const LhFleetSnapshot *snapshot)
{
    const LhSnapshot *object = lh_fleet_snapshot_object(snapshot);
    g_autofree char *invalid = NULL;

    if (object == NULL || object->live || snapshot->has_deletion)
        return FALSE;
    invalid = lh_fleet_snapshot_invalid(scan->fleet, snapshot);
    return invalid == NULL;
}

static void scan_snapshot(Scan *scan, const LhFleetSnapshot *snapshot)
{
    const LhService *spec;
    const char *const *sets;
    char *why;

    if (!can_be_restored(scan, snapshot)) {
        scan->out->skipped++;
        return;
    }
    why = service_blocks(snapshot->service);
    spec = lh_fleet_service_spec(snapshot->service);
    sets = spec == NULL ? default_sets : spec->cache_sets;
    for (guint s = 0; sets[s] != NULL; s++)
        scan_set(scan, snapshot, sets[s], why != NULL);
    if (why != NULL && scan->out->held > 0)
        block(scan, why);
    else
        g_free(why);
}

static gint freshest_first(gconstpointer a, gconstpointer b)
{
    const LhFleetSnapshot *left = *(LhFleetSnapshot *const *)a;
    const LhFleetSnapshot *right = *(LhFleetSnapshot *const *)b;
    gint64 l = ((const LhSnapshot *)left->object)->end_time;
    gint64 r = ((const LhSnapshot *)right->object)->end_time;

    return l != r ? (l < r) - (l > r) : strcmp(left->name, right->name);
}

static void add(LhFleetSnapshot *snapshot, gpointer data)
{
    g_ptr_array_add(((Scan *)data)->snapshots, snapshot);
}

static void find_named(Scan *scan)
{
    for (guint i = 0; scan->spec->snapshots[i] != NULL; i++) {
        const char *name = scan->spec->snapshots[i];
        LhFleetSnapshot *snapshot = lh_name_set_get(&scan->fleet->snapshots, name);
        if (snapshot == NULL || snapshot->object == NULL) {
            scan->out->skipped++;
        } else if (!lh_object_known(snapshot->object)) {
            scan->out->held++;
            block(scan, g_strdup_printf("snapshot %s does not parse", name));
        } else {
            add(snapshot, scan);
        }
    }
}

static void find_in_window(Scan *scan)
{
    const LhRestore *spec = scan->spec;
    GHashTableIter iter;
    gpointer service;

    if (strcmp(spec->service, "*") != 0) {
        service = g_hash_table_lookup(scan->fleet->services, spec->service);
        if (service != NULL)
            lh_fleet_between(service, spec->start_time, spec->end_time, add, scan);
        return;
    }
    g_hash_table_iter_init(&iter, scan->fleet->services);
    while (g_hash_table_iter_next(&iter, NULL, &service))
        lh_fleet_between(service, spec->start_time, spec->end_time, add, scan);
}

static gint by_name(gconstpointer a, gconstpointer b)
{
    return strcmp((*(LhFleetReplica *const *)a)->name, (*(LhFleetReplica *const *)b)->name);
}

void lh_restore_scan(const LhFleet *fleet, const LhFleetRestore *restore, gint64 now_ms,
                     LhRestoreScan *out)
{
    g_autoptr(GPtrArray) snapshots = g_ptr_array_new();
    Scan scan = {
        .fleet = fleet,
        .restore = restore,
        .spec = lh_accepted_spec(restore->accepted, LH_KIND_RESTORE),
        .revision = ((const LhAccepted *)restore->accepted)->revision,
        .now_ms = now_ms,
        .creator_paused = lh_fleet_settings(fleet, "replica-creator")->paused,
        .snapshots = snapshots,
        .out = out,
    };

    *out = (LhRestoreScan){
        .missing = g_array_new(FALSE, FALSE, sizeof(LhRestoreMissing)),
        .extend = g_ptr_array_new(),
    };
    if (scan.spec->snapshots[0] != NULL)
        find_named(&scan);
    else
        find_in_window(&scan);
    g_ptr_array_sort(snapshots, freshest_first);
    for (guint i = 0; i < snapshots->len; i++)
        scan_snapshot(&scan, g_ptr_array_index(snapshots, i));
    g_ptr_array_sort(out->extend, by_name);
}

void lh_restore_scan_clear(LhRestoreScan *scan)
{
    g_clear_pointer(&scan->missing, g_array_unref);
    g_clear_pointer(&scan->extend, g_ptr_array_unref);
    g_clear_pointer(&scan->blocked, g_free);
}
