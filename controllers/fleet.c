/*
 * The fold: which record an object belongs to, and what must be looked at again because of it. Pure. One
 * row for each kind; a kind that is not in the table concerns other indexes.
 */
#include "controllers/fleet.h"

#include "base/planted.h"
#include "controllers/fleet_internal.h"

#include <string.h>

/* ---- small questions about records ---- */

const LhService *lh_fleet_service_spec(const LhFleetService *service)
{
    return lh_accepted_spec(service->accepted, LH_KIND_SERVICE);
}

const LhSnapshot *lh_fleet_snapshot_object(const LhFleetSnapshot *snapshot)
{
    return snapshot->object != NULL && lh_object_known(snapshot->object)
               ? (const LhSnapshot *)snapshot->object
               : NULL;
}

const LhAssignment *lh_fleet_load(const LhFleetAssignment *assignment)
{
    const LhAssignment *object = (const LhAssignment *)assignment->object;

    if (object == NULL || !lh_object_known(&object->o) || object->action != LH_ACTION_LOAD)
        return NULL;
    return object;
}

int lh_fleet_answer(const LhFleetAssignment *assignment)
{
    const LhItem *item = (const LhItem *)assignment->item;

    if (item == NULL || !lh_object_known(&item->o) || assignment->object == NULL)
        return -1;
    if (LH_BUG(END_WITHOUT_ANSWER) && lh_object_known(assignment->object) &&
        ((const LhAssignment *)assignment->object)->action == LH_ACTION_EVICT)
        return LH_ITEM_EVICTED;
    if (item->assignment != assignment->object->mod_rev && !LH_BUG(OLD_ANSWER_COUNTS))
        return -1;
    return item->state;
}

gboolean lh_fleet_node_gone(const LhFleetNode *node)
{
    return node->object == NULL;
}

static gboolean is_newer(const LhFleetNode *a, const LhFleetNode *b)
{
    if (a->object->create_rev != b->object->create_rev)
        return a->object->create_rev > b->object->create_rev;
    return strcmp(a->id, b->id) > 0;
}

gboolean lh_fleet_leaving(const LhFleetNode *node)
{
    return node->host->draining || node->failing;
}

static gboolean health_says(const LhFleetNode *node, LhHealthState state)
{
    return node->health != NULL && lh_object_known(node->health) &&
           ((const LhHealth *)node->health)->state == (int)state;
}

gboolean lh_fleet_in_failure(const LhFleetNode *node)
{
    return health_says(node, LH_HEALTH_FAILURE);
}

gboolean lh_fleet_on_probation(const LhFleetNode *node)
{
    return health_says(node, LH_HEALTH_PROBATION);
}

const LhFleetNode *lh_fleet_host_newest(const LhFleetHost *host)
{
    const LhFleetNode *newest = NULL;

    for (guint i = 0; i < host->nodes->len; i++) {
        const LhFleetNode *node = g_ptr_array_index(host->nodes, i);
        if (node->object != NULL && (newest == NULL || is_newer(node, newest)))
            newest = node;
    }
    return newest;
}

const LhNode *lh_fleet_host_takes(const LhFleetHost *host, const char **why)
{
    const LhFleetNode *node = lh_fleet_host_newest(host);
    const LhHealth *health = node == NULL ? NULL : (const LhHealth *)node->health;
    const LhNodePolicy *policy = lh_accepted_spec(host->policy, LH_KIND_NODEPOLICY);
    const LhNode *object;
    const char *reason = NULL;

    if (node == NULL)
        reason = "not registered";
    else if (!lh_object_known(node->object))
        reason = "its registration does not parse";
    else if (node->health != NULL && !lh_object_known(node->health))
        reason = "its health does not parse";
    else if (health != NULL && !LH_BUG(FAILURE_TAKES) &&
             (health->state == LH_HEALTH_FAILURE || health->state == LH_HEALTH_FAILED))
        reason = "it is in failure";
    else if (host->policy != NULL && policy == NULL)
        reason = "its policy does not parse";
    else if (policy != NULL && (policy->cordon || policy->drain))
        reason = policy->drain ? "it is being drained" : "it is cordoned";
    else if (host->unsized > 0)
        reason = "an assignment on it does not parse, and so its room is not known";
    object = node == NULL ? NULL : (const LhNode *)node->object;
    if (reason == NULL && object->state != LH_NODE_ONLINE && object->state != LH_NODE_WAITING)
        reason = object->state == LH_NODE_PAUSED ? "it says it is paused" : "it reports an error";
    if (why != NULL)
        *why = reason;
    return reason == NULL ? object : NULL;
}

gint64 lh_fleet_replica_bytes(const LhFleetReplica *replica)
{
    const LhSnapshot *snapshot = lh_fleet_snapshot_object(replica->snapshot);

    return snapshot == NULL ? 0 : MAX(0, snapshot->size_bytes); /* a live one need not say */
}

gboolean lh_fleet_retry_void(const LhFleetReplica *replica)
{
    gint64 failed_rev = replica->retry->mod_rev;

    return (replica->object != NULL && replica->object->mod_rev > failed_rev) ||
           (replica->snapshot->object != NULL && replica->snapshot->object->mod_rev > failed_rev);
}

const LhSettings *lh_fleet_settings(const LhFleet *fleet, const char *controller)
{
    const LhSettings *accepted = lh_accepted_spec(g_hash_table_lookup(fleet->settings, controller),
                                                  LH_KIND_SETTINGS);

    if (accepted == NULL)
        accepted = g_hash_table_lookup(fleet->held, controller);
    return accepted != NULL ? accepted : lh_settings_default(controller);
}

const LhSettings *lh_fleet_settings_of(gconstpointer index, const char *controller)
{
    return lh_fleet_settings(index, controller);
}

gboolean lh_fleet_described(const LhFleet *fleet, const char *plural, const char *name)
{
    g_autofree char *subject = NULL;

    if (g_hash_table_size(fleet->described) == 0)
        return FALSE;
    subject = g_strconcat(plural, "/", name, NULL);
    return g_hash_table_contains(fleet->described, subject);
}

const LhObject *lh_fleet_status(const LhFleet *fleet, const char *plural, const char *name,
                                const char *controller)
{
    g_autofree char *key = g_strconcat(plural, "/", name, "/", controller, NULL);

    return g_hash_table_lookup(fleet->statuses, key);
}

char *lh_fleet_subject_invalid(const LhFleet *fleet, const LhFleetSubject *subject)
{
    const LhObject *desired = subject->desired;

    if (!lh_object_known(desired))
        return g_strdup(lh_object_error(desired));
    if (subject->accepted != NULL && !lh_object_known(subject->accepted))
        return g_strdup_printf("decided/accepted/%s does not parse (%s): mend or remove it",
                               subject->key, lh_object_error(subject->accepted));
    if (subject->kind == LH_KIND_SEED && ((const LhSeed *)desired)->throttle != NULL) {
        g_autofree char *key = g_strconcat("throttles/", ((const LhSeed *)desired)->throttle, NULL);
        const LhFleetSubject *throttle = g_hash_table_lookup(fleet->subjects, key);
        if (throttle == NULL || throttle->accepted == NULL)
            return g_strdup_printf("spec.throttle: no ThrottlePolicy is called %s",
                                   ((const LhSeed *)desired)->throttle);
    }
    return NULL;
}

gboolean lh_fleet_service_missing(const LhFleetSnapshot *snapshot, LhCondition *out)
{
    const LhFleetService *service = snapshot->service;

    /* Nobody asks for it: neither in force nor waiting for admission. */
    if (service == NULL || service->accepted != NULL || service->desired != NULL)
        return FALSE;
    *out = (LhCondition){
        .type = "ServiceMissing",
        .status = LH_CONDITION_TRUE,
        .reason = "NoService",
        .message = g_strdup_printf("no service is called %s", service->name),
    };
    return TRUE;
}

guint lh_fleet_valid_condition(const LhObject *object, const char *invalid, LhCondition *out)
{
    const char *warning = lh_object_warning(object);

    *out = (LhCondition){
        .type = "Valid",
        .status = invalid == NULL ? LH_CONDITION_TRUE : LH_CONDITION_FALSE,
        .reason = invalid != NULL   ? "Invalid"
                  : warning != NULL ? "UnknownFields"
                                    : "Accepted",
        .message = invalid != NULL ? invalid : warning,
    };
    return lh_kind_is_desired((LhKind)object->kind) || out->message != NULL ? 1 : 0;
}

/* ---- the fold, kind by kind ---- */

/* "cache/rest": rest; NULL for another pool. */
static const char *in_cache(const char *name)
{
    return g_str_has_prefix(name, LH_POOL_CACHE "/") ? name + strlen(LH_POOL_CACHE "/") : NULL;
}

static void hold_in_table(GHashTable *table, const char *key, const LhObject *after)
{
    if (after == NULL)
        g_hash_table_remove(table, key);
    else
        g_hash_table_replace(table, g_strdup(key), lh_object_ref(after));
}

/* ---- what a seed asks for ---- */

/* The ThrottlePolicy that must be in force, or NULL. */
static const char *throttle_of(const LhFleetSubject *subject)
{
    return subject->kind == LH_KIND_SEED && subject->desired != NULL &&
                   lh_object_known(subject->desired)
               ? ((const LhSeed *)subject->desired)->throttle
               : NULL;
}

static void forget_asker(LhFleet *fleet, LhFleetSubject *subject)
{
    const char *throttle = throttle_of(subject);
    GHashTable *set = throttle == NULL ? NULL : g_hash_table_lookup(fleet->askers, throttle);

    if (set != NULL && g_hash_table_remove(set, subject) && g_hash_table_size(set) == 0)
        g_hash_table_remove(fleet->askers, throttle);
}

static void note_asker(LhFleet *fleet, LhFleetSubject *subject)
{
    const char *throttle = throttle_of(subject);
    GHashTable *set = throttle == NULL ? NULL : g_hash_table_lookup(fleet->askers, throttle);

    if (throttle == NULL)
        return;
    if (set == NULL) {
        set = g_hash_table_new(NULL, NULL);
        g_hash_table_insert(fleet->askers, g_strdup(throttle), set);
    }
    g_hash_table_add(set, subject);
}

/* It came into force, or is in force no more: for those that ask for it, and nobody else. */
static void touch_askers(LhFleet *fleet, const char *throttle)
{
    GHashTable *set = g_hash_table_lookup(fleet->askers, throttle);
    GHashTableIter iter;
    gpointer subject;

    if (set == NULL)
        return;
    g_hash_table_iter_init(&iter, set);
    while (g_hash_table_iter_next(&iter, &subject, NULL))
        lh_fleet_touch_subject(fleet, subject);
}

static void fold_subject(LhFleet *fleet, LhKind kind, const char *key, const LhObject *desired,
                         const LhObject *accepted, gboolean is_accepted)
{
    LhFleetSubject *subject = lh_fleet_subject(fleet, kind, key);
    gboolean was_in_force = subject->accepted != NULL;

    if (is_accepted) {
        lh_fleet_hold(&subject->accepted, accepted);
    } else {
        forget_asker(fleet, subject);
        lh_fleet_hold(&subject->desired, desired);
        note_asker(fleet, subject);
    }
    lh_fleet_touch_subject(fleet, subject);
    lh_fleet_drop_subject(fleet, subject);
    if (is_accepted && kind == LH_KIND_THROTTLE && was_in_force != (accepted != NULL))
        touch_askers(fleet, strchr(key, '/') + 1);
}

/* ---- what people want ---- */

static void fold_service(LhFleet *fleet, const char *name, const LhObject *object,
                         gboolean is_accepted)
{
    LhFleetService *service = lh_fleet_service(fleet, name);
    /* What is desired counts only for a service that is not in force, and only that it is there: an edit
     * need not touch all that the service holds. */
    gboolean matters = is_accepted || (service->accepted == NULL &&
                                       (service->desired == NULL) != (object == NULL));

    lh_fleet_hold(is_accepted ? &service->accepted : &service->desired, object);
    lh_fleet_touch_counts(fleet, service);
    if (matters)
        lh_fleet_touch_service(fleet, service);
    lh_fleet_drop_service(fleet, service);
}

static gboolean fold_desired(LhFleet *fleet, const LhObject *before, const LhObject *after)
{
    const LhObject *object = after != NULL ? after : before;
    g_autofree char *key = g_strconcat(lh_kind_info(object->kind)->plural, "/", object->name, NULL);

    fold_subject(fleet, object->kind, key, after, NULL, FALSE);
    if (object->kind == LH_KIND_SERVICE)
        fold_service(fleet, object->name, after, FALSE);
    return TRUE;
}

static void fold_policy(LhFleet *fleet, const char *name, const LhObject *accepted)
{
    const char *host_name = in_cache(name);
    LhFleetHost *host;

    if (host_name == NULL)
        return;
    host = lh_fleet_host(fleet, host_name);
    lh_fleet_hold(&host->policy, accepted);
    lh_places_touch(fleet->places, host);
    lh_fleet_touch_host(fleet, host);
    lh_fleet_drop_host(fleet, host);
}

/* What its detector's onFailure decides of nodes. */
static void fold_on_failure(LhFleet *fleet)
{
    GHashTableIter iter;
    gpointer node;

    g_hash_table_iter_init(&iter, fleet->nodes);
    while (g_hash_table_iter_next(&iter, NULL, &node))
        lh_fleet_touch_failing(fleet, node);
}

/* Unknown is not absent: a controller whose Settings in force do not parse does nothing, where the defaults
 * might set going what somebody has paused. */
static void fold_settings(LhFleet *fleet, const char *controller, const LhObject *accepted)
{
    const LhSettings *fallback = lh_settings_default(controller);

    hold_in_table(fleet->settings, controller, accepted);
    g_hash_table_remove(fleet->held, controller);
    if (accepted != NULL && !lh_object_known(accepted) && fallback != NULL) {
        LhSettings *held = g_memdup2(fallback, sizeof *fallback);
        held->paused = TRUE;
        g_hash_table_insert(fleet->held, g_strdup(controller), held);
    }
    if (strcmp(controller, "failure-detector") == 0)
        fold_on_failure(fleet);
}

static gboolean fold_accepted(LhFleet *fleet, const LhObject *before, const LhObject *after)
{
    const LhObject *object = after != NULL ? after : before;
    const char *rest;
    LhKind kind;

    if (!lh_subject_split(object->name, &kind, &rest))
        return TRUE;
    fold_subject(fleet, kind, object->name, NULL, after, TRUE);
    if (kind == LH_KIND_SERVICE)
        fold_service(fleet, rest, after, TRUE);
    else if (kind == LH_KIND_SETTINGS)
        fold_settings(fleet, rest, after);
    else if (kind == LH_KIND_CONFIRMATION)
        hold_in_table(fleet->confirmations, rest, after);
    else if (kind == LH_KIND_NODEPOLICY)
        fold_policy(fleet, rest, after);
    else if (kind == LH_KIND_RESTORE)
        lh_fleet_fold_restore(fleet, rest, after);
    return TRUE;
}

static gboolean fold_snapshot(LhFleet *fleet, const LhObject *before, const LhObject *after)
{
    LhFleetSnapshot *snapshot = lh_fleet_snapshot(fleet, (after != NULL ? after : before)->name);
    const LhSnapshot *was = lh_fleet_snapshot_object(snapshot), *is;
    /* Only where others may be concerned. */
    g_autofree char *old_uri = NULL, *new_uri = NULL;

    lh_fleet_clean_unknown(fleet, before, after);
    lh_fleet_clean_leave(snapshot);
    if (was != NULL && lh_fleet_uri_remove(fleet, snapshot))
        old_uri = lh_uri_text(&was->uri);
    lh_fleet_time_set(snapshot, FALSE);
    fleet->unknown_uris += (guint)((after != NULL && !lh_object_known(after)) -
                                   (before != NULL && !lh_object_known(before)));
    lh_fleet_hold_snapshot(snapshot, after);
    is = lh_fleet_snapshot_object(snapshot);
    if (is != NULL && lh_fleet_uri_add(fleet, snapshot))
        new_uri = lh_uri_text(&is->uri);
    lh_fleet_link_service(fleet, snapshot, is == NULL ? NULL : is->service);
    lh_fleet_time_set(snapshot, TRUE);
    lh_fleet_touch_snapshot(fleet, snapshot);
    for (guint i = 0; snapshot->replicas != NULL && i < snapshot->replicas->len; i++) {
        LhFleetReplica *replica = g_ptr_array_index(snapshot->replicas, i);
        for (guint a = 0; replica->assignments != NULL && a < replica->assignments->len; a++)
            lh_fleet_touch_assignment(fleet, g_ptr_array_index(replica->assignments, a));
    }
    if (old_uri != NULL && g_strcmp0(old_uri, new_uri) != 0)
        lh_fleet_uri_touch(fleet, old_uri, snapshot);
    if (new_uri != NULL)
        lh_fleet_uri_touch(fleet, new_uri, snapshot);
    lh_fleet_drop_snapshot(fleet, snapshot);
    return TRUE;
}

static const char *deletion_uri(const LhObject *object)
{
    return object != NULL && lh_object_known(object) ? ((const LhDeletion *)object)->uri : NULL;
}

static gboolean fold_deletion(LhFleet *fleet, const LhObject *before, const LhObject *after)
{
    LhFleetSnapshot *snapshot = lh_fleet_snapshot(fleet, (after != NULL ? after : before)->name);
    const char *old_uri = deletion_uri(before), *new_uri = deletion_uri(after);

    if (old_uri != NULL)
        lh_fleet_uri_take(fleet, fleet->taken_uris, old_uri, -1);
    if (new_uri != NULL)
        lh_fleet_uri_take(fleet, fleet->taken_uris, new_uri, 1);
    lh_fleet_clean_deletion(fleet, before, after);
    hold_in_table(fleet->deletions, snapshot->name, after);
    snapshot->has_deletion = after != NULL;
    lh_fleet_touch_snapshot(fleet, snapshot);
    lh_fleet_drop_snapshot(fleet, snapshot);
    if (old_uri != NULL)
        lh_fleet_uri_touch(fleet, old_uri, NULL);
    if (new_uri != NULL)
        lh_fleet_uri_touch(fleet, new_uri, NULL);
    return TRUE;
}

static gboolean fold_replica(LhFleet *fleet, const LhObject *before, const LhObject *after)
{
    LhFleetReplica *replica = lh_fleet_replica(fleet, (after != NULL ? after : before)->name);
    LhFleetSnapshot *snapshot = replica->snapshot;

    lh_fleet_hold(&replica->object, after);
    for (guint i = 0; replica->assignments != NULL && i < replica->assignments->len; i++)
        lh_fleet_touch_assignment(fleet, g_ptr_array_index(replica->assignments, i));
    lh_fleet_touch_snapshot(fleet, snapshot);
    lh_fleet_drop_replica(fleet, replica);
    return TRUE;
}

static gboolean fold_retry(LhFleet *fleet, const LhObject *before, const LhObject *after)
{
    const char *item = in_cache((after != NULL ? after : before)->name);
    LhFleetReplica *replica;

    if (item == NULL)
        return FALSE;
    replica = lh_fleet_replica(fleet, item);
    lh_fleet_hold(&replica->retry, after);
    lh_fleet_touch_replica(fleet, replica);
    lh_fleet_drop_replica(fleet, replica);
    return TRUE;
}

static void count_presence(LhFleet *fleet, const char *name, int delta)
{
    const char *pool_end = strchr(name, '/');
    const char *node_end = pool_end == NULL ? NULL : strchr(pool_end + 1, '/');
    g_autofree char *key = NULL;
    LhFleetPresence *presence;

    if (node_end == NULL)
        return;
    key = g_strndup(name, (gsize)(node_end - name));
    presence = lh_fleet_presence(fleet, key);
    presence->assignments = (guint)((int)presence->assignments + delta);
    lh_fleet_touch_presence(fleet, presence);
    lh_fleet_drop_presence(fleet, presence);
}

/* The record of a cache assignment or item; NULL for other pools and for names that are none. */
static LhFleetAssignment *assignment_of(LhFleet *fleet, const char *name)
{
    const char *rest = in_cache(name);
    const char *slash = rest == NULL ? NULL : strchr(rest, '/');
    g_autofree char *node = NULL;

    if (slash == NULL || slash == rest || slash[1] == '\0')
        return NULL;
    node = g_strndup(rest, (gsize)(slash - rest));
    return lh_fleet_assignment(fleet, node, slash + 1);
}

static gboolean fold_assignment(LhFleet *fleet, const LhObject *before, const LhObject *after)
{
    const char *name = (after != NULL ? after : before)->name;
    LhFleetAssignment *assignment = assignment_of(fleet, name);

    if ((before == NULL) != (after == NULL))
        count_presence(fleet, name, after != NULL ? 1 : -1);
    if (assignment == NULL)
        return TRUE;
    lh_fleet_hold(&assignment->object, after);
    lh_fleet_touch_assignment(fleet, assignment);
    lh_fleet_drop_assignment(fleet, assignment);
    return TRUE;
}

static gboolean item_matters(const LhObject *before, const LhObject *after)
{
    if (before == NULL || after == NULL || !lh_object_known(before) || !lh_object_known(after))
        return TRUE;
    return ((const LhItem *)before)->state != ((const LhItem *)after)->state ||
           ((const LhItem *)before)->since != ((const LhItem *)after)->since ||
           ((const LhItem *)before)->assignment != ((const LhItem *)after)->assignment;
}

static gboolean fold_item(LhFleet *fleet, const LhObject *before, const LhObject *after)
{
    LhFleetAssignment *assignment = assignment_of(fleet, (after != NULL ? after : before)->name);
    gboolean matters = item_matters(before, after);

    if (assignment == NULL)
        return FALSE;
    lh_fleet_hold(&assignment->item, after);
    if (matters)
        lh_fleet_touch_assignment(fleet, assignment);
    lh_fleet_drop_assignment(fleet, assignment);
    return matters;
}

static void fold_warm(LhFleet *fleet, LhFleetNode *node, const LhObject *object, gboolean add)
{
    const char *const *warm = object != NULL && lh_object_known(object)
                                  ? ((const LhNode *)object)->warm
                                  : NULL;

    for (guint i = 0; warm != NULL && warm[i] != NULL; i++) {
        GPtrArray *nodes = g_hash_table_lookup(fleet->warm, warm[i]);
        if (add && nodes == NULL) {
            nodes = g_ptr_array_new();
            g_hash_table_insert(fleet->warm, g_strdup(warm[i]), nodes);
        }
        if (add)
            g_ptr_array_add(nodes, node);
        else if (nodes != NULL && g_ptr_array_remove_fast(nodes, node) && nodes->len == 0)
            g_hash_table_remove(fleet->warm, warm[i]);
    }
}

static gboolean fold_node(LhFleet *fleet, const LhObject *before, const LhObject *after)
{
    const char *name = (after != NULL ? after : before)->name, *id = in_cache(name);
    LhFleetPresence *presence = lh_fleet_presence(fleet, name);

    lh_fleet_hold(&presence->node, after);
    lh_fleet_touch_presence(fleet, presence);
    lh_fleet_drop_presence(fleet, presence);
    if (id == NULL || *id == '\0' || strchr(id, '/') != NULL)
        return TRUE;
    LhFleetNode *node = lh_fleet_node(fleet, id);
    gboolean was_gone = lh_fleet_node_gone(node);
    fold_warm(fleet, node, before, FALSE);
    lh_fleet_hold(&node->object, after);
    fold_warm(fleet, node, after, TRUE);
    if (lh_fleet_node_gone(node) != was_gone)
        lh_fleet_touch_node(fleet, node);
    else
        lh_places_touch(fleet->places, node->host);
    lh_fleet_touch_failing(fleet, node);
    lh_fleet_drop_node(fleet, node);
    return TRUE;
}

static gboolean fold_health(LhFleet *fleet, const LhObject *before, const LhObject *after)
{
    const char *name = (after != NULL ? after : before)->name, *id = in_cache(name);
    LhFleetPresence *presence = lh_fleet_presence(fleet, name);

    lh_fleet_hold(&presence->health, after);
    lh_fleet_touch_presence(fleet, presence);
    lh_fleet_drop_presence(fleet, presence);
    if (id == NULL || *id == '\0' || strchr(id, '/') != NULL)
        return TRUE;
    LhFleetNode *node = lh_fleet_node(fleet, id);
    lh_fleet_hold(&node->health, after);
    lh_places_touch(fleet->places, node->host);
    lh_fleet_touch_failing(fleet, node);
    lh_fleet_drop_node(fleet, node);
    return TRUE;
}

static gboolean fold_brake(LhFleet *fleet, const LhObject *before, const LhObject *after)
{
    hold_in_table(fleet->brakes, (after != NULL ? after : before)->name, after);
    return TRUE;
}

static gboolean fold_progress(LhFleet *fleet, const LhObject *before, const LhObject *after)
{
    lh_fleet_fold_progress(fleet, (after != NULL ? after : before)->name, after);
    return TRUE;
}

static gboolean folds_as_subject(LhKind kind)
{
    return lh_kind_is_desired(kind) || kind == LH_KIND_RECOVERYTASK;
}

static void count_described(LhFleet *fleet, const char *subject, int delta)
{
    int n = GPOINTER_TO_INT(g_hash_table_lookup(fleet->described, subject)) + delta;

    if (g_str_has_prefix(subject, "snapshots/"))
        fleet->described_snapshots += (guint)delta;
    if (n == 0)
        g_hash_table_remove(fleet->described, subject);
    else
        g_hash_table_insert(fleet->described, g_strdup(subject), GINT_TO_POINTER(n));
}

/* What cluster-monitor said of an item or a service. */
static void fold_monitored(LhFleet *fleet, LhKind kind, const char *subject, const char *name,
                           const LhObject *after)
{
    if (kind == LH_KIND_REPLICA || kind == LH_KIND_RECOVERYTASK || kind == LH_KIND_PARTITION ||
        kind == LH_KIND_SEED) {
        if (after == NULL)
            g_tree_remove(fleet->stuck_said, subject);
        else
            g_tree_replace(fleet->stuck_said, g_strdup(subject), lh_object_ref(after));
    } else if (kind == LH_KIND_SERVICE) {
        LhFleetService *service = lh_fleet_service(fleet, name);
        lh_fleet_hold(&service->counted, after);
        lh_fleet_touch_counts(fleet, service);
        lh_fleet_drop_service(fleet, service);
    }
}

/* What cache-assigner said of the policy of "<pool>/<node name>". */
static void fold_drained(LhFleet *fleet, const char *policy, const LhObject *after)
{
    const char *host_name = in_cache(policy);
    LhFleetHost *host;

    if (host_name == NULL || *host_name == '\0')
        return;
    host = lh_fleet_host(fleet, host_name);
    lh_fleet_hold(&host->drain_said, after);
    lh_fleet_touch_host(fleet, host);
    lh_fleet_drop_host(fleet, host);
}

/* What cache-assigner said of the node "<pool>/<node>". */
static void fold_evacuated(LhFleet *fleet, const char *name, const LhObject *after)
{
    const char *id = in_cache(name);
    LhFleetNode *node;

    if (id == NULL || *id == '\0' || strchr(id, '/') != NULL)
        return;
    node = lh_fleet_node(fleet, id);
    lh_fleet_hold(&node->said, after);
    lh_fleet_touch_failing(fleet, node);
    lh_fleet_drop_node(fleet, node);
}

/* Who has written a Status must see it, so as not to write it again. */
static gboolean fold_status(LhFleet *fleet, const LhObject *before, const LhObject *after)
{
    const char *name = (after != NULL ? after : before)->name, *rest;
    const char *last = strrchr(name, '/');
    g_autofree char *subject_key = NULL;
    LhKind kind;

    hold_in_table(fleet->statuses, name, after);
    if (last == NULL)
        return FALSE;
    subject_key = g_strndup(name, (gsize)(last - name));
    count_described(fleet, subject_key, (after != NULL) - (before != NULL));
    if (!lh_subject_split(subject_key, &kind, &rest))
        return FALSE;
    if (strcmp(last + 1, "cluster-monitor") == 0)
        fold_monitored(fleet, kind, subject_key, rest, after);
    else if (kind == LH_KIND_NODEPOLICY && strcmp(last + 1, "cache-assigner") == 0)
        fold_drained(fleet, rest, after);
    else if (kind == LH_KIND_NODE && strcmp(last + 1, "cache-assigner") == 0)
        fold_evacuated(fleet, rest, after);
    if (kind == LH_KIND_SNAPSHOT) {
        LhFleetSnapshot *snapshot = lh_fleet_snapshot(fleet, rest);
        lh_fleet_touch_snapshot(fleet, snapshot);
        lh_fleet_drop_snapshot(fleet, snapshot);
    } else if (kind == LH_KIND_REPLICA) {
        LhFleetReplica *replica = lh_fleet_replica(fleet, rest);
        lh_fleet_touch_replica(fleet, replica);
        lh_fleet_drop_replica(fleet, replica);
    } else if (folds_as_subject(kind)) {
        LhFleetSubject *subject = lh_fleet_subject(fleet, kind, subject_key);
        lh_fleet_touch_subject(fleet, subject);
        lh_fleet_drop_subject(fleet, subject);
        if (kind == LH_KIND_RESTORE)
            lh_fleet_touch_restore(fleet, rest);
    }
    return TRUE;
}

typedef gboolean (*FoldFunc)(LhFleet *fleet, const LhObject *before, const LhObject *after);

/* One more than there are kinds: a key of no known kind concerns nobody here. */
static const FoldFunc folds[LH_N_ALL_KINDS] = {
    [LH_KIND_SERVICE] = fold_desired,
    [LH_KIND_SEED] = fold_desired,
    [LH_KIND_THROTTLE] = fold_desired,
    [LH_KIND_PARTITION] = fold_desired,
    [LH_KIND_RESTORE] = fold_desired,
    [LH_KIND_NODEPOLICY] = fold_desired,
    [LH_KIND_SETTINGS] = fold_desired,
    [LH_KIND_CONFIRMATION] = fold_desired,
    [LH_KIND_SNAPSHOT] = fold_snapshot,
    [LH_KIND_ACCEPTED] = fold_accepted,
    [LH_KIND_REPLICA] = fold_replica,
    [LH_KIND_ASSIGNMENT] = fold_assignment,
    [LH_KIND_RETRY] = fold_retry,
    [LH_KIND_HEALTH] = fold_health,
    [LH_KIND_DELETION] = fold_deletion,
    [LH_KIND_BRAKE] = fold_brake,
    [LH_KIND_STATUS] = fold_status,
    [LH_KIND_NODE] = fold_node,
    [LH_KIND_ITEM] = fold_item,
    [LH_KIND_RECOVERYTASK] = fold_desired,
    [LH_KIND_RESTOREPROGRESS] = fold_progress,
    [LH_KIND_ORPHAN] = lh_fleet_fold_orphan,
    [LH_KIND_OBSERVATION] = lh_fleet_fold_observation,
};

static gboolean fleet_fold(gpointer index, const LhObject *before, const LhObject *after)
{
    FoldFunc fold = folds[after != NULL ? after->kind : before->kind];

    return fold != NULL && fold(index, before, after);
}

static gpointer fleet_new(void)
{
    LhFleet *fleet = g_new0(LhFleet, 1);
    GHashTable **plain[] = {&fleet->services, &fleet->replicas, &fleet->assignments, &fleet->nodes,
                            &fleet->hosts,    &fleet->subjects, &fleet->health};
    GHashTable **objects[] = {&fleet->settings, &fleet->confirmations, &fleet->brakes,
                              &fleet->statuses, &fleet->deletions};

    for (guint i = 0; i < G_N_ELEMENTS(plain); i++)
        *plain[i] = g_hash_table_new(g_str_hash, g_str_equal);
    for (guint i = 0; i < G_N_ELEMENTS(objects); i++)
        *objects[i] = g_hash_table_new_full(g_str_hash, g_str_equal, g_free,
                                            (GDestroyNotify)lh_object_unref);
    fleet->warm = g_hash_table_new_full(g_str_hash, g_str_equal, g_free,
                                        (GDestroyNotify)g_ptr_array_unref);
    fleet->askers = g_hash_table_new_full(g_str_hash, g_str_equal, g_free,
                                          (GDestroyNotify)g_hash_table_unref);
    fleet->held = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, g_free);
    fleet->described = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
    lh_name_set_init(&fleet->snapshots, offsetof(LhFleetSnapshot, name));
    lh_name_set_init(&fleet->contests, offsetof(LhFleetContest, name));
    lh_sorted_set_init(&fleet->by_uri, lh_fleet_uri_order);
    fleet->taken_uris = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
    fleet->taken_flat = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
    fleet->taken_parents = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
    fleet->places = lh_places_new();
    lh_fleet_trees_init(fleet);
    lh_fleet_clean_init(fleet);
    return fleet;
}

/* Records are freed as they stand: no sets to keep right any more. */
static void free_records(LhFleet *fleet)
{
    GHashTableIter iter;
    gpointer record;

#define FREE_EACH(table, type, ...)                        \
    g_hash_table_iter_init(&iter, fleet->table);           \
    while (g_hash_table_iter_next(&iter, NULL, &record)) { \
        type *r = record;                                  \
        __VA_ARGS__;                                       \
        g_free(r);                                         \
    }                                                      \
    g_hash_table_unref(fleet->table)

    FREE_EACH(services, LhFleetService, lh_object_unref(r->desired); lh_object_unref(r->accepted);
              lh_object_unref(r->counted); g_ptr_array_unref(r->snapshots);
              g_hash_table_unref(r->orphans); lh_sorted_set_clear(&r->by_time);
              lh_sorted_set_clear(&r->by_end); g_free(r->name));
    FREE_EACH(replicas, LhFleetReplica, lh_object_unref(r->object); lh_object_unref(r->retry);
              g_clear_pointer(&r->assignments, g_ptr_array_unref); g_free(r->restored);
              g_free(r->name));
    FREE_EACH(assignments, LhFleetAssignment, lh_object_unref(r->object); lh_object_unref(r->item);
              g_free(r->key));
    FREE_EACH(nodes, LhFleetNode, lh_object_unref(r->object); lh_object_unref(r->health);
              lh_object_unref(r->said); g_ptr_array_unref(r->assignments); g_free(r->id));
    FREE_EACH(hosts, LhFleetHost, lh_object_unref(r->policy); lh_object_unref(r->drain_said);
              g_ptr_array_unref(r->nodes); g_free(r->name));
    FREE_EACH(subjects, LhFleetSubject, lh_object_unref(r->desired); lh_object_unref(r->accepted);
              g_free(r->key));
    FREE_EACH(health, LhFleetPresence, lh_object_unref(r->node); lh_object_unref(r->health);
              lh_object_unref(r->probe); g_free(r->probe_id); g_free(r->key));
#undef FREE_EACH
}

static void free_snapshots(LhFleet *fleet)
{
    LhFleetSnapshot *snapshot;

    for (gsize at = 0; (snapshot = lh_name_set_next(&fleet->snapshots, &at)) != NULL;) {
        if (snapshot->object == NULL)
            g_free((char *)snapshot->name);
        lh_object_unref(snapshot->object);
        g_clear_pointer(&snapshot->replicas, g_ptr_array_unref);
        lh_slab_free(snapshot);
    }
    lh_name_set_clear(&fleet->snapshots);
    lh_slab_clear(&fleet->slab);
}

static void fleet_free(gpointer index)
{
    LhFleet *fleet = index;

    lh_fleet_trees_clear(fleet);
    lh_fleet_restores_clear(fleet);
    lh_fleet_clean_clear(fleet);
    lh_places_free(fleet->places);
    free_records(fleet);
    free_snapshots(fleet);
    lh_fleet_uris_clear(fleet);
    g_hash_table_unref(fleet->settings);
    g_hash_table_unref(fleet->held);
    g_hash_table_unref(fleet->askers);
    g_hash_table_unref(fleet->confirmations);
    g_hash_table_unref(fleet->brakes);
    g_hash_table_unref(fleet->statuses);
    g_hash_table_unref(fleet->warm);
    g_hash_table_unref(fleet->deletions);
    g_hash_table_unref(fleet->described);
    g_hash_table_unref(fleet->taken_uris);
    g_hash_table_unref(fleet->taken_flat);
    g_hash_table_unref(fleet->taken_parents);
    g_free(fleet);
}

const LhIndexType lh_fleet_index = {
    .name = "fleet",
    .new = fleet_new,
    .free = fleet_free,
    .fold = fleet_fold,
};
