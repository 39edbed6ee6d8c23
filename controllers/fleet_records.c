/*
 * The records of the fleet index: made when first named, dropped when nothing refers to them any more, so
 * that an index built from the present objects alone has the same records. Pure.
 */
#include "controllers/fleet_internal.h"

#include <string.h>

void lh_fleet_hold(const LhObject **slot, const LhObject *object)
{
    const LhObject *before = *slot;

    *slot = object == NULL ? NULL : lh_object_ref(object);
    lh_object_unref(before);
}

static void remove_fast(GPtrArray **array, gpointer record)
{
    g_ptr_array_remove_fast(*array, record);
    if ((*array)->len == 0)
        g_clear_pointer(array, g_ptr_array_unref);
}

static void append(GPtrArray **array, gpointer record)
{
    if (*array == NULL)
        *array = g_ptr_array_sized_new(1);
    g_ptr_array_add(*array, record);
}

LhFleetService *lh_fleet_service(LhFleet *fleet, const char *name)
{
    LhFleetService *service = g_hash_table_lookup(fleet->services, name);

    if (service == NULL) {
        service = g_new0(LhFleetService, 1);
        service->name = g_strdup(name);
        service->snapshots = g_ptr_array_new();
        service->orphans = g_hash_table_new(NULL, NULL);
        lh_sorted_set_init(&service->by_time, lh_fleet_time_order);
        lh_sorted_set_init(&service->by_end, lh_fleet_end_order);
        g_hash_table_insert(fleet->services, service->name, service);
    }
    return service;
}

void lh_fleet_drop_service(LhFleet *fleet, LhFleetService *service)
{
    if (service->desired != NULL || service->accepted != NULL || service->snapshots->len != 0 ||
        service->replicas != 0 || service->counted != NULL ||
        g_hash_table_size(service->orphans) != 0)
        return;
    g_assert(!service->count_todo);
    g_hash_table_remove(fleet->services, service->name);
    g_ptr_array_unref(service->snapshots);
    g_hash_table_unref(service->orphans);
    lh_sorted_set_clear(&service->by_time);
    lh_sorted_set_clear(&service->by_end);
    g_free(service->name);
    g_free(service);
}

LhFleetSnapshot *lh_fleet_snapshot(LhFleet *fleet, const char *name)
{
    LhNamePlace place;
    LhFleetSnapshot *snapshot = lh_name_set_find(&fleet->snapshots, name, &place);

    if (snapshot == NULL) {
        snapshot = lh_slab_alloc(&fleet->slab, sizeof *snapshot);
        *snapshot = (LhFleetSnapshot){.name = g_strdup(name)};
        lh_name_set_put_at(&fleet->snapshots, place, snapshot);
    }
    return snapshot;
}

void lh_fleet_hold_snapshot(LhFleetSnapshot *snapshot, const LhObject *object)
{
    const LhObject *before = snapshot->object;
    char *own = before == NULL ? (char *)snapshot->name : NULL;

    if (object == before)
        return;
    snapshot->name = object != NULL ? object->name : g_strdup(snapshot->name);
    snapshot->object = object == NULL ? NULL : lh_object_ref(object);
    g_free(own);
    lh_object_unref(before);
}

void lh_fleet_link_service(LhFleet *fleet, LhFleetSnapshot *snapshot, const char *service_name)
{
    LhFleetService *old = snapshot->service;

    if (old != NULL && service_name != NULL && strcmp(old->name, service_name) == 0)
        return;
    if (old != NULL) {
        LhFleetSnapshot *last = g_ptr_array_index(old->snapshots, old->snapshots->len - 1);
        g_ptr_array_remove_index_fast(old->snapshots, snapshot->service_slot);
        last->service_slot = snapshot->service_slot;
        snapshot->service = NULL;
        lh_fleet_touch_counts(fleet, old);
        lh_fleet_drop_service(fleet, old);
    }
    if (service_name != NULL) {
        snapshot->service = lh_fleet_service(fleet, service_name);
        snapshot->service_slot = snapshot->service->snapshots->len;
        g_ptr_array_add(snapshot->service->snapshots, snapshot);
        lh_fleet_touch_counts(fleet, snapshot->service);
    }
}

void lh_fleet_link_orphan(LhFleet *fleet, LhFleetReplica *replica, const char *service_name)
{
    LhFleetService *old = replica->service;

    if (old != NULL && service_name != NULL && strcmp(old->name, service_name) == 0)
        return;
    replica->service = NULL;
    if (old != NULL) {
        g_hash_table_remove(old->orphans, replica);
        lh_fleet_drop_service(fleet, old);
    }
    if (service_name != NULL) {
        replica->service = lh_fleet_service(fleet, service_name);
        g_hash_table_add(replica->service->orphans, replica);
    }
}

void lh_fleet_drop_snapshot(LhFleet *fleet, LhFleetSnapshot *snapshot)
{
    /* A Status that outlived its subject keeps the record until it is removed. */
    if (snapshot->object != NULL || snapshot->has_deletion || snapshot->replicas != NULL ||
        snapshot->missing_todo || snapshot->valid_todo || snapshot->clean_todo)
        return;
    g_assert(snapshot->heap_slot == 0 && !snapshot->correct_todo && !snapshot->in_by_end);
    lh_name_set_take(&fleet->snapshots, snapshot->name);
    g_free((char *)snapshot->name); /* without an object it is a copy */
    lh_slab_free(snapshot);
}

LhFleetReplica *lh_fleet_replica(LhFleet *fleet, const char *name)
{
    LhFleetReplica *replica = g_hash_table_lookup(fleet->replicas, name);
    g_autofree char *snapshot = NULL;
    gboolean restored = FALSE;

    if (replica != NULL)
        return replica;
    replica = g_new0(LhFleetReplica, 1);
    replica->name = g_strdup(name);
    /* A name that is no replica's gets a snapshot record of the same name, which no object ever joins. */
    lh_replica_name_split(name, &snapshot, NULL, NULL, &restored);
    replica->is_restored = restored ? 1 : 0;
    replica->snapshot = lh_fleet_snapshot(fleet, snapshot == NULL ? name : snapshot);
    if (replica->snapshot->replicas == NULL)
        lh_fleet_clean_dotted(fleet, replica->snapshot->name, 1);
    append(&replica->snapshot->replicas, replica);
    g_hash_table_insert(fleet->replicas, replica->name, replica);
    return replica;
}

void lh_fleet_drop_replica(LhFleet *fleet, LhFleetReplica *replica)
{
    LhFleetSnapshot *snapshot = replica->snapshot;

    /* A Status that outlived its subject keeps the record until it is removed. */
    if (replica->object != NULL || replica->retry != NULL || replica->assignments != NULL ||
        (replica->in & LH_IN_TODO) != 0)
        return;
    g_assert(replica->in == 0 && replica->service == NULL && replica->restored == NULL &&
             replica->counted_in == NULL);
    g_hash_table_remove(fleet->replicas, replica->name);
    remove_fast(&snapshot->replicas, replica);
    if (snapshot->replicas == NULL)
        lh_fleet_clean_dotted(fleet, snapshot->name, -1);
    g_free(replica->name);
    g_free(replica);
    lh_fleet_drop_snapshot(fleet, snapshot);
}

static gint by_assignment_key(gconstpointer a, gconstpointer b)
{
    return strcmp((*(LhFleetAssignment *const *)a)->key, (*(LhFleetAssignment *const *)b)->key);
}

LhFleetAssignment *lh_fleet_assignment(LhFleet *fleet, const char *node, const char *item)
{
    g_autofree char *key = g_strconcat(node, "/", item, NULL);
    LhFleetAssignment *assignment = g_hash_table_lookup(fleet->assignments, key);

    if (assignment != NULL)
        return assignment;
    assignment = g_new0(LhFleetAssignment, 1);
    assignment->key = g_steal_pointer(&key);
    assignment->replica = lh_fleet_replica(fleet, item);
    assignment->node = lh_fleet_node(fleet, node);
    append(&assignment->replica->assignments, assignment);
    /* A drain makes several: what a plan says of them must not depend on which came first. */
    g_ptr_array_sort(assignment->replica->assignments, by_assignment_key);
    g_ptr_array_add(assignment->node->assignments, assignment);
    g_hash_table_insert(fleet->assignments, assignment->key, assignment);
    return assignment;
}

void lh_fleet_drop_assignment(LhFleet *fleet, LhFleetAssignment *assignment)
{
    LhFleetReplica *replica = assignment->replica;
    LhFleetNode *node = assignment->node;

    if (assignment->object != NULL || assignment->item != NULL)
        return;
    lh_fleet_uncount(fleet, assignment);
    g_hash_table_remove(fleet->assignments, assignment->key);
    g_ptr_array_remove(replica->assignments, assignment); /* stays sorted */
    if (replica->assignments->len == 0)
        g_clear_pointer(&replica->assignments, g_ptr_array_unref);
    g_ptr_array_remove_fast(node->assignments, assignment);
    g_free(assignment->key);
    g_free(assignment);
    lh_fleet_touch_replica(fleet, replica);
    lh_fleet_drop_replica(fleet, replica);
    lh_fleet_drop_node(fleet, node);
}

LhFleetHost *lh_fleet_host(LhFleet *fleet, const char *name)
{
    LhFleetHost *host = g_hash_table_lookup(fleet->hosts, name);

    if (host == NULL) {
        host = g_new0(LhFleetHost, 1);
        host->name = g_strdup(name);
        host->nodes = g_ptr_array_new();
        g_hash_table_insert(fleet->hosts, host->name, host);
    }
    return host;
}

void lh_fleet_drop_host(LhFleet *fleet, LhFleetHost *host)
{
    if (host->policy != NULL || host->drain_said != NULL || host->nodes->len != 0)
        return;
    lh_places_forget(fleet->places, host);
    g_hash_table_remove(fleet->hosts, host->name);
    g_ptr_array_unref(host->nodes);
    g_free(host->name);
    g_free(host);
}

LhFleetNode *lh_fleet_node(LhFleet *fleet, const char *id)
{
    LhFleetNode *node = g_hash_table_lookup(fleet->nodes, id);
    g_autofree char *name = NULL;

    if (node != NULL)
        return node;
    node = g_new0(LhFleetNode, 1);
    node->id = g_strdup(id);
    node->assignments = g_ptr_array_new();
    name = lh_node_name_of(id);
    node->host = lh_fleet_host(fleet, name == NULL ? id : name);
    g_ptr_array_add(node->host->nodes, node);
    g_hash_table_insert(fleet->nodes, node->id, node);
    return node;
}

void lh_fleet_drop_node(LhFleet *fleet, LhFleetNode *node)
{
    LhFleetHost *host = node->host;

    if (node->object != NULL || node->health != NULL || node->said != NULL ||
        node->assignments->len != 0)
        return;
    g_hash_table_remove(fleet->nodes, node->id);
    g_ptr_array_remove_fast(host->nodes, node);
    g_ptr_array_unref(node->assignments);
    g_free(node->id);
    g_free(node);
    lh_fleet_drop_host(fleet, host);
}

LhFleetSubject *lh_fleet_subject(LhFleet *fleet, LhKind kind, const char *key)
{
    LhFleetSubject *subject = g_hash_table_lookup(fleet->subjects, key);

    if (subject == NULL) {
        subject = g_new0(LhFleetSubject, 1);
        subject->kind = kind;
        subject->key = g_strdup(key);
        g_hash_table_insert(fleet->subjects, subject->key, subject);
    }
    return subject;
}

void lh_fleet_drop_subject(LhFleet *fleet, LhFleetSubject *subject)
{
    if (subject->desired != NULL || subject->accepted != NULL || subject->todo)
        return;
    g_hash_table_remove(fleet->subjects, subject->key);
    g_free(subject->key);
    g_free(subject);
}

static char *probe_id(const char *key)
{
    g_autofree char *name = g_strconcat(LH_PROBE_OBSERVED, key, NULL);
    char *id = strchr(name, '/') + 1, *slash = strchr(id, '/');

    if (slash != NULL)
        *slash = '.';
    return lh_kind_name_valid(LH_KIND_OBSERVATION, name) ? g_strdup(id) : NULL;
}

LhFleetPresence *lh_fleet_presence(LhFleet *fleet, const char *key)
{
    LhFleetPresence *presence = g_hash_table_lookup(fleet->health, key);

    if (presence == NULL) {
        presence = g_new0(LhFleetPresence, 1);
        presence->key = g_strdup(key);
        presence->probe_id = probe_id(key);
        g_hash_table_insert(fleet->health, presence->key, presence);
    }
    return presence;
}

void lh_fleet_drop_presence(LhFleet *fleet, LhFleetPresence *presence)
{
    if (presence->node != NULL || presence->health != NULL || presence->probe != NULL ||
        presence->assignments != 0)
        return;
    g_assert(!presence->todo);
    g_hash_table_remove(fleet->health, presence->key);
    g_free(presence->key);
    g_free(presence->probe_id);
    g_free(presence);
}
