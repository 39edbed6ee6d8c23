/*
 * What snapshot-cleaner needs to find without looking at the rest: of each service the snapshots by their
 * end, Deletions by when they were decided and those whose data is still there, Orphans, what was observed.
 * Part of the fold; pure; no time.
 */
#include "base/json.h"
#include "controllers/cleaner.h"
#include "controllers/fleet_internal.h"

#include <string.h>

#define MISSING   LH_CLEANER "/" LH_CLEANER_MISSING
#define LISTED    LH_CLEANER "/" LH_CLEANER_LIST
#define STATUS_OF "/" LH_CLEANER

/* ---- orders ---- */

int lh_fleet_end_order(gconstpointer record, gconstpointer key)
{
    const LhSnapshot *left = lh_fleet_snapshot_object(record);
    const LhSnapshot *right = lh_fleet_snapshot_object(key);

    if (left->end_time != right->end_time)
        return left->end_time < right->end_time ? -1 : 1;
    return strcmp(left->o.name, right->o.name);
}

static gint by_decision(gconstpointer a, gconstpointer b, gpointer data)
{
    const LhDeletion *left = a, *right = b;

    (void)data;
    if (left->decided_at != right->decided_at)
        return left->decided_at < right->decided_at ? -1 : 1;
    return strcmp(left->o.name, right->o.name);
}

static gint by_object_name(gconstpointer a, gconstpointer b, gpointer data)
{
    (void)data;
    return strcmp(((const LhObject *)a)->name, ((const LhObject *)b)->name);
}

static gint by_snapshot(gconstpointer a, gconstpointer b, gpointer data)
{
    (void)data;
    return strcmp(((const LhFleetSnapshot *)a)->name, ((const LhFleetSnapshot *)b)->name);
}

/* ---- what was decided lately ---- */

#define SLICE_MS 5000 /* what was decided within it is counted together */

typedef struct {
    char *service; /* "": all */
    gint64 slice;
    LhFleetLately counts;
} Slice;

static gint by_slice(gconstpointer a, gconstpointer b, gpointer data)
{
    const Slice *left = a, *right = b;
    int order = strcmp(left->service, right->service);

    (void)data;
    return order != 0 ? order : (left->slice > right->slice) - (left->slice < right->slice);
}

static void slice_free(gpointer data)
{
    Slice *slice = data;

    g_free(slice->service);
    g_free(slice);
}

static void count_in(LhFleet *fleet, const char *service, const LhDeletion *deletion, int delta)
{
    const Slice key = {.service = (char *)service, .slice = deletion->decided_at / SLICE_MS};
    Slice *slice = g_tree_lookup(fleet->lately, &key);

    if (slice == NULL) {
        slice = g_new0(Slice, 1);
        slice->service = g_strdup(service);
        slice->slice = key.slice;
        g_tree_insert(fleet->lately, slice, slice);
    }
    slice->counts.n += delta;
    slice->counts.gone += deletion->data_deleted_at >= 0 ? delta : 0;
    if (slice->counts.n == 0)
        g_tree_remove(fleet->lately, slice);
}

/* What was decided under a confirmed plan was asked for. */
static void count_lately(LhFleet *fleet, const LhObject *object, int delta)
{
    const LhDeletion *deletion = (const LhDeletion *)object;

    if (object == NULL || !lh_object_known(object) || deletion->plan_hash != NULL)
        return;
    count_in(fleet, "", deletion, delta);
    if (deletion->service != NULL && *deletion->service != '\0')
        count_in(fleet, deletion->service, deletion, delta);
}

LhFleetLately lh_fleet_lately(const LhFleet *fleet, const char *service, gint64 from_ms)
{
    const Slice key = {.service = (char *)(service == NULL ? "" : service),
                       .slice = (from_ms + 1) / SLICE_MS};
    LhFleetLately sum = {0, 0};

    for (GTreeNode *n = g_tree_lower_bound(fleet->lately, &key); n != NULL;
         n = g_tree_node_next(n)) {
        const Slice *slice = g_tree_node_key(n);
        if (strcmp(slice->service, key.service) != 0)
            break;
        sum.n += slice->counts.n;
        sum.gone += slice->counts.gone;
    }
    return sum;
}

static void object_unref(gpointer object)
{
    lh_object_unref(object);
}

void lh_fleet_clean_init(LhFleet *fleet)
{
    fleet->decided = g_tree_new_full(by_decision, NULL, NULL, NULL);
    fleet->lately = g_tree_new_full(by_slice, NULL, NULL, slice_free);
    fleet->undeleted = g_tree_new_full(by_object_name, NULL, NULL, NULL);
    fleet->orphans = g_tree_new_full(by_object_name, NULL, object_unref, NULL);
    fleet->observed = g_tree_new_full(by_object_name, NULL, object_unref, NULL);
    fleet->clean_todo = g_tree_new_full(by_snapshot, NULL, NULL, NULL);
    fleet->unknown = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, g_free);
    fleet->dotted = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
}

void lh_fleet_clean_clear(LhFleet *fleet)
{
    g_tree_unref(fleet->decided);
    g_tree_unref(fleet->lately);
    g_tree_unref(fleet->undeleted);
    g_tree_unref(fleet->orphans);
    g_tree_unref(fleet->observed);
    g_tree_unref(fleet->clean_todo);
    g_hash_table_unref(fleet->unknown);
    g_hash_table_unref(fleet->dotted);
}

/* ---- looking ---- */

const LhObservation *lh_fleet_observed(const LhFleet *fleet, const char *controller,
                                       const char *name)
{
    g_autofree char *whole = g_strconcat(controller, "/", name, NULL);
    const LhObject key = {.name = whole};
    const LhObject *object = g_tree_lookup(fleet->observed, &key);

    return object != NULL && lh_object_known(object) ? (const LhObservation *)object : NULL;
}

GTreeNode *lh_fleet_observed_from(const LhFleet *fleet, const char *name)
{
    const LhObject key = {.name = name};

    return g_tree_lower_bound(fleet->observed, &key);
}

const char *lh_fleet_root_of(const LhFleet *fleet, const LhUri *uri)
{
    for (guint i = 0; fleet->roots != NULL && fleet->roots[i] != NULL; i++)
        if (lh_uri_compare(uri, &(LhUri){.dir = fleet->roots[i]}) == LH_URI_INSIDE)
            return fleet->roots[i];
    return NULL;
}

gboolean lh_fleet_replicas_below(const LhFleet *fleet, const LhFleetSnapshot *snapshot)
{
    return snapshot->replicas != NULL || g_hash_table_contains(fleet->dotted, snapshot->name);
}

void lh_fleet_clean_dotted(LhFleet *fleet, const char *snapshot, int delta)
{
    for (const char *dot = strchr(snapshot, '.'); dot != NULL; dot = strchr(dot + 1, '.')) {
        g_autofree char *prefix = g_strndup(snapshot, (gsize)(dot - snapshot));
        int n = GPOINTER_TO_INT(g_hash_table_lookup(fleet->dotted, prefix)) + delta;
        if (n == 0)
            g_hash_table_remove(fleet->dotted, prefix);
        else
            g_hash_table_insert(fleet->dotted, g_steal_pointer(&prefix), GINT_TO_POINTER(n));
    }
}

/* ---- conditions ---- */

static const LhCondition *said(const LhStatus *status, const char *type)
{
    for (guint i = 0; status != NULL && lh_object_known(&status->o) && i < status->conditions->n;
         i++) {
        const LhCondition *condition = lh_array_at(status->conditions, i);
        if (strcmp(condition->type, type) == 0)
            return condition;
    }
    return NULL;
}

static gboolean not_deletable(const LhFleet *fleet, const LhFleetSnapshot *snapshot,
                              LhCondition *out)
{
    const LhSnapshot *object = lh_fleet_snapshot_object(snapshot);

    if (fleet->roots[0] == NULL)
        return FALSE; /* this manager deletes nothing at all */
    *out = (LhCondition){.type = "Deletable", .status = LH_CONDITION_FALSE};
    if (lh_fleet_root_of(fleet, &object->uri) == NULL) {
        out->reason = "NotBelowRoot";
        out->message = g_strdup("its uri does not lie strictly below a root of the manager's "
                                "object store: served, never deleted");
    } else if (lh_fleet_uri_contested(fleet, snapshot)) {
        out->reason = "Overlaps";
        out->message = g_strdup("its uri overlaps that of another snapshot: neither is deleted");
    } else {
        return FALSE;
    }
    return TRUE;
}

/* As the last whole listing of its root says; without one as it was said before, if that was of this very
 * publication: of a later one nobody knows yet. */
static gboolean data_missing(const LhFleet *fleet, const LhFleetSnapshot *snapshot,
                             const LhStatus *status, LhCondition *out)
{
    const LhSnapshot *object = lh_fleet_snapshot_object(snapshot);
    g_autofree char *name = g_strconcat(LH_CLEANER_MISSING, snapshot->name, NULL), *list = NULL;
    const LhObservation *missing = lh_fleet_observed(fleet, LH_CLEANER, name);
    const LhCondition *before = said(status, "DataMissing");
    const LhObservation *listed;
    const char *root;
    gboolean is;

    if (missing == NULL && before == NULL)
        return FALSE; /* a million of them: without looking for the listing */
    root = lh_fleet_root_of(fleet, &object->uri);
    list = root == NULL ? NULL : lh_cleaner_errand(LH_CLEANER_LIST, root);
    listed = list == NULL ? NULL : lh_fleet_observed(fleet, LH_CLEANER, list);
    is = listed != NULL && listed->error == NULL
             ? missing != NULL && missing->revision == object->o.mod_rev
             : root != NULL && before != NULL && status->observed_revision == object->o.mod_rev;
    *out = (LhCondition){
        .type = "DataMissing",
        .status = LH_CONDITION_TRUE,
        .reason = "NoObjects",
        .message = is ? g_strdup("there is no object below its uri; nothing is deleted for that")
                      : NULL,
    };
    return is;
}

guint lh_fleet_clean_conditions(const LhFleet *fleet, const LhFleetSnapshot *snapshot,
                                LhCondition *out)
{
    const LhStatus *status = (const LhStatus *)lh_fleet_status(fleet, "snapshots", snapshot->name,
                                                               LH_CLEANER);
    guint n = 0;

    if (lh_fleet_snapshot_object(snapshot) == NULL || fleet->roots == NULL)
        return 0;
    n += data_missing(fleet, snapshot, status, &out[n]);
    n += not_deletable(fleet, snapshot, &out[n]);
    return n;
}

static gboolean conditions_differ(const LhFleet *fleet, const LhFleetSnapshot *snapshot)
{
    const LhObject *status = fleet->described_snapshots > 0
                                 ? lh_fleet_status(fleet, "snapshots", snapshot->name, LH_CLEANER)
                                 : NULL;
    LhCondition conditions[2];
    gboolean differ;
    guint n;

    /* Until it is known what there is to be said, what was said stays; also of one that does not parse. */
    if (snapshot->object != NULL && (fleet->roots == NULL || !lh_object_known(snapshot->object)))
        return FALSE;
    n = lh_fleet_clean_conditions(fleet, snapshot, conditions);
    differ = lh_status_differs(
        status, n == 0 || snapshot->object == NULL ? 0 : snapshot->object->mod_rev, conditions, n);
    for (guint i = 0; i < n; i++)
        g_free((char *)conditions[i].message);
    return differ;
}

/* ---- snapshots ---- */

void lh_fleet_clean_leave(LhFleetSnapshot *snapshot)
{
    if (!snapshot->in_by_end)
        return;
    lh_sorted_set_take(&snapshot->service->by_end,
                       lh_sorted_set_find(&snapshot->service->by_end, snapshot));
    snapshot->in_by_end = FALSE;
}

/* What a Snapshot that does not parse still says of where its data is; "" when it says nothing. */
static char *readable_uri(const LhObject *object)
{
    gsize len = 0;
    const char *raw = lh_object_raw(object, &len);
    g_autoptr(cJSON) json = raw == NULL ? NULL : lh_json_parse(raw, len, LH_JSON_MAX_BYTES, NULL);
    const char *uri = cJSON_IsObject(json) ? lh_json_get_string(json, "uri", NULL) : NULL;

    return g_strdup(uri != NULL && lh_uri_check(uri, NULL) ? uri : "");
}

void lh_fleet_clean_unknown(LhFleet *fleet, const LhObject *before, const LhObject *after)
{
    const char *name = (after != NULL ? after : before)->name;
    g_autofree char *old = g_strdup(g_hash_table_lookup(fleet->unknown, name));
    g_autofree char *new = after != NULL && !lh_object_known(after) ? readable_uri(after) : NULL;

    if (old == NULL && new == NULL)
        return;
    fleet->unreadable += (guint)((new != NULL &&*new == '\0') - (old != NULL && *old == '\0'));
    if (new != NULL)
        g_hash_table_replace(fleet->unknown, g_strdup(name), g_strdup(new));
    else
        g_hash_table_remove(fleet->unknown, name);
    if (old != NULL && *old != '\0')
        lh_fleet_uri_touch(fleet, old, NULL);
    if (new != NULL &&*new != '\0')
        lh_fleet_uri_touch(fleet, new, NULL);
}

gboolean lh_fleet_uri_unknown(const LhFleet *fleet, const char *own)
{
    GHashTableIter iter;
    gpointer uri;

    g_hash_table_iter_init(&iter, fleet->unknown);
    while (g_hash_table_iter_next(&iter, NULL, &uri))
        if (*(const char *)uri != '\0' &&
            (g_str_has_prefix(uri, own) || g_str_has_prefix(own, uri)))
            return TRUE;
    return FALSE;
}

/* Unknown is not absent: what does not parse may have been there first. */
static gboolean meets_unknown(const LhFleet *fleet, const LhSnapshot *object)
{
    g_autofree char *own = g_hash_table_size(fleet->unknown) == 0 ? NULL
                                                                  : lh_uri_text(&object->uri);

    return own != NULL && lh_fleet_uri_unknown(fleet, own);
}

static gboolean may_be_deleted(const LhFleet *fleet, const LhFleetSnapshot *snapshot,
                               const char *invalid)
{
    const LhSnapshot *object = lh_fleet_snapshot_object(snapshot);

    return object != NULL && !object->live && object->end_time >= 0 && snapshot->service != NULL &&
           invalid == NULL && !snapshot->has_deletion &&
           lh_fleet_root_of(fleet, &object->uri) != NULL &&
           !lh_fleet_uri_contested(fleet, snapshot) && !meets_unknown(fleet, object);
}

void lh_fleet_clean_touch(LhFleet *fleet, LhFleetSnapshot *snapshot, const char *invalid)
{
    gboolean want = may_be_deleted(fleet, snapshot, invalid);
    gboolean todo = conditions_differ(fleet, snapshot);

    if (!want)
        lh_fleet_clean_leave(snapshot);
    if (want && !snapshot->in_by_end) {
        lh_sorted_set_put(&snapshot->service->by_end,
                          lh_sorted_set_find(&snapshot->service->by_end, snapshot), snapshot);
        snapshot->in_by_end = TRUE;
    }
    if (todo && !snapshot->clean_todo)
        g_tree_insert(fleet->clean_todo, snapshot, snapshot);
    else if (!todo && snapshot->clean_todo)
        g_tree_remove(fleet->clean_todo, snapshot);
    snapshot->clean_todo = todo & 1;
}

static void touch_one(LhFleet *fleet, LhFleetSnapshot *snapshot)
{
    g_autofree char *invalid = lh_fleet_snapshot_invalid(fleet, snapshot);

    lh_fleet_clean_touch(fleet, snapshot, invalid);
}

/* Those of a service in the order of their ends, as by_end has them: a million in the order of a hash table
 * would find nothing of each other in the processor's caches. */
static void touch_all(LhFleet *fleet)
{
    GHashTableIter iter;
    gpointer record;
    LhFleetSnapshot *snapshot;

    g_hash_table_iter_init(&iter, fleet->services);
    while (g_hash_table_iter_next(&iter, NULL, &record)) {
        const LhFleetService *service = record;
        LhSortedPlace place = {0, 0};
        while ((snapshot = lh_sorted_set_next(&service->by_time, &place)) != NULL)
            touch_one(fleet, snapshot);
    }
    for (gsize at = 0; (snapshot = lh_name_set_next(&fleet->snapshots, &at)) != NULL;) {
        const LhSnapshot *object = lh_fleet_snapshot_object(snapshot);
        if (object == NULL || object->live) /* not in by_time */
            touch_one(fleet, snapshot);
    }
}

static void touch_named(LhFleet *fleet, const char *name)
{
    LhFleetSnapshot *snapshot = lh_name_set_get(&fleet->snapshots, name);

    if (snapshot != NULL)
        touch_one(fleet, snapshot);
}

/* Those of which something has been said, or is to be. */
static void touch_described(LhFleet *fleet)
{
    g_autoptr(GPtrArray) names = g_ptr_array_new_with_free_func(g_free);
    GHashTableIter iter;
    gpointer key;

    for (GTreeNode *n = lh_fleet_observed_from(fleet, MISSING); n != NULL;
         n = g_tree_node_next(n)) {
        const char *name = ((const LhObject *)g_tree_node_key(n))->name;
        if (!g_str_has_prefix(name, MISSING))
            break;
        g_ptr_array_add(names, g_strdup(name + strlen(MISSING)));
    }

    g_hash_table_iter_init(&iter, fleet->statuses);
    while (fleet->described_snapshots > 0 && g_hash_table_iter_next(&iter, &key, NULL)) {
        const char *name = (const char *)key + strlen("snapshots/");
        if (g_str_has_prefix(key, "snapshots/") && g_str_has_suffix(key, STATUS_OF))
            g_ptr_array_add(names, g_strndup(name, strlen(name) - strlen(STATUS_OF)));
    }
    for (guint i = 0; i < names->len; i++)
        touch_named(fleet, names->pdata[i]);
}

/* ---- the fold ---- */

void lh_fleet_clean_deletion(LhFleet *fleet, const LhObject *before, const LhObject *after)
{
    count_lately(fleet, before, -1);
    count_lately(fleet, after, 1);
    if (before != NULL && lh_object_known(before)) {
        g_tree_remove(fleet->decided, before);
        g_tree_remove(fleet->undeleted, before);
    }
    if (after != NULL && lh_object_known(after)) {
        g_tree_insert(fleet->decided, (gpointer)after, (gpointer)after);
        if (((const LhDeletion *)after)->data_deleted_at < 0)
            g_tree_insert(fleet->undeleted, (gpointer)after, (gpointer)after);
    }
    fleet->unknown_uris += (guint)((after != NULL && !lh_object_known(after)) -
                                   (before != NULL && !lh_object_known(before)));
}

static void hold_in_tree(GTree *tree, const LhObject *before, const LhObject *after)
{
    if (before != NULL)
        g_tree_remove(tree, before);
    if (after != NULL)
        g_tree_insert(tree, lh_object_ref(after), (gpointer)after);
}

/* What a decided one deletes nobody may use again; what lies deeper is not its. */
static const char *held_uri(const LhObject *object)
{
    const LhOrphan *orphan = (const LhOrphan *)object;

    return object != NULL && lh_object_known(object) && orphan->decided_at >= 0 ? orphan->uri
                                                                                : NULL;
}

gboolean lh_fleet_fold_orphan(LhFleet *fleet, const LhObject *before, const LhObject *after)
{
    g_autofree char *old_uri = g_strdup(held_uri(before));
    const char *new_uri = held_uri(after);

    fleet->unknown_uris += (guint)((after != NULL && !lh_object_known(after)) -
                                   (before != NULL && !lh_object_known(before)));
    hold_in_tree(fleet->orphans, before, after);
    if (g_strcmp0(old_uri, new_uri) == 0)
        return TRUE;
    if (old_uri != NULL)
        lh_fleet_uri_take(fleet, fleet->taken_flat, old_uri, -1);
    if (new_uri != NULL)
        lh_fleet_uri_take(fleet, fleet->taken_flat, new_uri, 1);
    if (old_uri != NULL)
        lh_fleet_uri_touch(fleet, old_uri, NULL);
    if (new_uri != NULL)
        lh_fleet_uri_touch(fleet, new_uri, NULL);
    return TRUE;
}

gboolean lh_fleet_fold_observation(LhFleet *fleet, const LhObject *before, const LhObject *after)
{
    const char *name = (after != NULL ? after : before)->name;

    if (strcmp(name, LH_CLEANER_ROOTS) == 0)
        fleet->roots = after != NULL && lh_object_known(after)
                           ? ((const LhObservation *)after)->uris
                           : NULL;
    hold_in_tree(fleet->observed, before, after);
    if (g_str_has_prefix(name, LH_PROBE_OBSERVED))
        lh_fleet_fold_probe(fleet, name + strlen(LH_PROBE_OBSERVED), after);
    if (g_str_has_prefix(name, LH_REVOKE_OBSERVED))
        lh_fleet_fold_revoked(fleet, before, after);
    if (strcmp(name, LH_CLEANER_ROOTS) == 0)
        touch_all(fleet);
    else if (g_str_has_prefix(name, MISSING))
        touch_named(fleet, name + strlen(MISSING));
    else if (g_str_has_prefix(name, LISTED))
        touch_described(fleet);
    return TRUE;
}
