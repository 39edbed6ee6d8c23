/*
 * The fold of the exclusive pools: which record an object belongs to, and which sets that record is in.
 * Records are made when first named and dropped when nothing refers to them any more. Pure. What may be
 * concluded from records is in pool_read.c.
 */
#include "controllers/pool.h"

#include "controllers/partitions.h"
#include "controllers/seeds.h"

#include <string.h>

#define POOL_CACHE "cache" /* not exclusive: the fleet index has it */

static void hold(const LhObject **slot, const LhObject *object)
{
    const LhObject *before = *slot;

    *slot = object == NULL ? NULL : lh_object_ref(object);
    lh_object_unref(before);
}

/* ---- orders of the sets ---- */

static gint by_host_name(gconstpointer a, gconstpointer b, gpointer data)
{
    (void)data;
    return strcmp(((const LhPoolHost *)a)->name, ((const LhPoolHost *)b)->name);
}

static gint by_item_name(gconstpointer a, gconstpointer b, gpointer data)
{
    (void)data;
    return strcmp(((const LhPoolItem *)a)->name, ((const LhPoolItem *)b)->name);
}

static gint by_age(gconstpointer a, gconstpointer b, gpointer data)
{
    const LhPoolItem *left = a, *right = b;

    if (left->sort_time != right->sort_time)
        return left->sort_time < right->sort_time ? -1 : 1;
    return by_item_name(a, b, data);
}

static gint by_since(gconstpointer a, gconstpointer b, gpointer data)
{
    const LhPoolAssignment *left = a, *right = b;

    (void)data;
    if (left->since != right->since)
        return left->since < right->since ? -1 : 1;
    return strcmp(left->key, right->key);
}

static gboolean set_member(GTree *tree, gpointer record, gboolean is, gboolean want)
{
    if (is && !want)
        g_tree_remove(tree, record);
    else if (!is && want)
        g_tree_insert(tree, record, record);
    return want;
}

/* ---- records ---- */

static LhPoolView *view_of(LhPools *pools, const char *name)
{
    LhPoolView *view = g_hash_table_lookup(pools->views, name);

    if (view != NULL)
        return view;
    view = g_new0(LhPoolView, 1);
    view->name = g_strdup(name);
    view->pools = pools;
    view->is_manager = strcmp(name, LH_POOL_MANAGER) == 0;
    view->items = g_hash_table_new(g_str_hash, g_str_equal);
    view->assignments = g_hash_table_new(g_str_hash, g_str_equal);
    view->nodes = g_hash_table_new(g_str_hash, g_str_equal);
    view->hosts = g_tree_new_full(by_host_name, NULL, NULL, NULL);
    view->busy = g_tree_new_full(by_item_name, NULL, NULL, NULL);
    view->waiting = g_tree_new_full(by_age, NULL, NULL, NULL);
    view->running = g_tree_new_full(by_since, NULL, NULL, NULL);
    g_hash_table_insert(pools->views, view->name, view);
    return view;
}

static void view_free(LhPoolView *view)
{
    g_hash_table_unref(view->items);
    g_hash_table_unref(view->assignments);
    g_hash_table_unref(view->nodes);
    g_tree_unref(view->hosts);
    g_tree_unref(view->busy);
    g_tree_unref(view->waiting);
    g_tree_unref(view->running);
    g_free(view->name);
    g_free(view);
}

static void drop_view(LhPoolView *view)
{
    if (g_hash_table_size(view->items) != 0 || g_hash_table_size(view->nodes) != 0 ||
        g_tree_nnodes(view->hosts) != 0)
        return;
    g_hash_table_remove(view->pools->views, view->name);
    view_free(view);
}

static LhPoolItem *item_of(LhPoolView *view, const char *name)
{
    LhPoolItem *item = g_hash_table_lookup(view->items, name);

    if (item == NULL) {
        item = g_new0(LhPoolItem, 1);
        item->name = g_strdup(name);
        item->pool = view;
        g_hash_table_insert(view->items, item->name, item);
    }
    return item;
}

static void drop_item(LhPoolItem *item)
{
    if (item->subject != NULL || item->retry != NULL || item->assignments != NULL ||
        item->status != NULL)
        return;
    g_assert(!item->is_busy && !item->is_waiting && !item->is_todo);
    g_hash_table_remove(item->pool->items, item->name);
    g_free(item->name);
    g_free(item);
}

static LhPoolHost *host_of(LhPoolView *view, const char *name)
{
    const LhPoolHost wanted = {.name = (char *)name};
    LhPoolHost *host = g_tree_lookup(view->hosts, &wanted);

    if (host == NULL) {
        host = g_new0(LhPoolHost, 1);
        host->name = g_strdup(name);
        host->pool = view;
        host->nodes = g_ptr_array_new();
        g_tree_insert(view->hosts, host, host);
    }
    return host;
}

static void drop_host(LhPoolHost *host)
{
    if (host->policy != NULL || host->drain_said != NULL || host->nodes->len != 0)
        return;
    g_tree_remove(host->pool->hosts, host);
    g_ptr_array_unref(host->nodes);
    g_free(host->name);
    g_free(host);
}

static LhPoolNode *node_of(LhPoolView *view, const char *id)
{
    LhPoolNode *node = g_hash_table_lookup(view->nodes, id);
    g_autofree char *name = NULL;

    if (node != NULL)
        return node;
    name = lh_node_name_of(id);
    node = g_new0(LhPoolNode, 1);
    node->id = g_strdup(id);
    node->host = host_of(view, name == NULL ? id : name);
    node->assignments = g_ptr_array_new();
    g_ptr_array_add(node->host->nodes, node);
    g_hash_table_insert(view->nodes, node->id, node);
    return node;
}

static void drop_node(LhPoolNode *node)
{
    if (node->object != NULL || node->health != NULL || node->assignments->len != 0)
        return;
    g_hash_table_remove(node->host->pool->nodes, node->id);
    g_ptr_array_remove_fast(node->host->nodes, node);
    drop_host(node->host);
    g_ptr_array_unref(node->assignments);
    g_free(node->id);
    g_free(node);
}

static gint by_node_id(gconstpointer a, gconstpointer b)
{
    const LhPoolAssignment *left = *(LhPoolAssignment *const *)a;
    const LhPoolAssignment *right = *(LhPoolAssignment *const *)b;

    return strcmp(left->node->id, right->node->id);
}

/* The record of "<node>/<item>"; NULL when the name is none. */
static LhPoolAssignment *assignment_of(LhPoolView *view, const char *key)
{
    LhPoolAssignment *assignment = g_hash_table_lookup(view->assignments, key);
    const char *slash = strchr(key, '/');
    g_autofree char *node = NULL;

    if (assignment != NULL)
        return assignment;
    if (slash == NULL || slash == key || slash[1] == '\0')
        return NULL;
    node = g_strndup(key, (gsize)(slash - key));
    assignment = g_new0(LhPoolAssignment, 1);
    assignment->key = g_strdup(key);
    assignment->node = node_of(view, node);
    assignment->of = item_of(view, slash + 1);
    g_ptr_array_add(assignment->node->assignments, assignment);
    if (assignment->of->assignments == NULL)
        assignment->of->assignments = g_ptr_array_new();
    g_ptr_array_add(assignment->of->assignments, assignment);
    g_ptr_array_sort(assignment->of->assignments, by_node_id);
    g_hash_table_insert(view->assignments, assignment->key, assignment);
    return assignment;
}

static void touch_item(LhPoolItem *item);

static void drop_assignment(LhPoolAssignment *assignment)
{
    LhPoolItem *item = assignment->of;

    if (assignment->object != NULL || assignment->item != NULL)
        return;
    g_assert(!assignment->is_running);
    g_hash_table_remove(item->pool->assignments, assignment->key);
    g_ptr_array_remove_fast(assignment->node->assignments, assignment);
    drop_node(assignment->node);
    g_ptr_array_remove(item->assignments, assignment);
    if (item->assignments->len == 0)
        g_clear_pointer(&item->assignments, g_ptr_array_unref);
    g_free(assignment->key);
    g_free(assignment);
    touch_item(item);
    drop_item(item);
}

/* ---- the sets ---- */

static gint64 age_of(const LhPoolItem *item)
{
    const LhRecoveryTask *task = (const LhRecoveryTask *)item->subject;

    if (task == NULL || task->o.kind != LH_KIND_RECOVERYTASK || !lh_object_known(&task->o))
        return 0;
    return task->end_offset < task->start_offset ? G_MININT64 : task->created_at;
}

static gboolean is_wanted(const LhPoolItem *item)
{
    if (item->subject == NULL || !lh_object_known(item->subject))
        return FALSE;
    return !item->pool->is_manager || lh_seed_wanted(item);
}

static void touch_item(LhPoolItem *item)
{
    LhPoolView *view = item->pool;
    gint64 age = age_of(item);

    if (item->sort_time != age)
        item->is_waiting = set_member(view->waiting, item, item->is_waiting, FALSE);
    item->sort_time = age;
    item->is_waiting = set_member(view->waiting, item, item->is_waiting,
                                  is_wanted(item) && !lh_pool_item_assigned(item));
    item->is_busy = set_member(view->busy, item, item->is_busy,
                               item->assignments != NULL || item->retry != NULL);
    if (view->is_manager)
        lh_seeds_touch(view->pools->seeds, item);
}

static void touch_assignment(LhPoolAssignment *assignment)
{
    LhPoolView *view = assignment->of->pool;
    const LhAssignment *order = lh_pool_order(assignment);
    gint64 since = order == NULL ? 0 : order->since;

    if (assignment->since != since)
        assignment->is_running = set_member(view->running, assignment, assignment->is_running,
                                            FALSE);
    assignment->since = since;
    assignment->is_running = set_member(view->running, assignment, assignment->is_running,
                                        order != NULL && order->action == LH_ACTION_LOAD &&
                                            lh_pool_end(assignment) != LH_POOL_ANSWERED);
    touch_item(assignment->of);
}

/* ---- the fold, kind by kind ---- */

/* The view of "<pool>/<rest>"; NULL: the cache pool, or no such name. */
static LhPoolView *view_of_name(LhPools *pools, const char *name, const char **rest)
{
    const char *slash = strchr(name, '/');
    g_autofree char *pool = NULL;

    if (slash == NULL || slash == name || slash[1] == '\0')
        return NULL;
    *rest = slash + 1;
    pool = g_strndup(name, (gsize)(slash - name));
    return strcmp(pool, POOL_CACHE) == 0 ? NULL : view_of(pools, pool);
}

static void fold_table(LhPools *pools, LhKind kind, const char *name, const LhObject *after)
{
    GHashTable *table = pools->objects[kind];

    if (after == NULL)
        g_hash_table_remove(table, name);
    else
        g_hash_table_replace(table, g_strdup(name), lh_object_ref(after));
}

static void fold_subject(LhPools *pools, const char *pool, const char *name, const LhObject *after)
{
    LhPoolView *view = view_of(pools, pool);
    LhPoolItem *item = item_of(view, name);

    hold(&item->subject, after);
    if (view->is_manager)
        lh_seeds_subject(pools->seeds, item);
    touch_item(item);
    drop_item(item);
    drop_view(view);
}

/* Unknown is not absent: a controller whose Settings in force do not parse does nothing. */
static void fold_settings(LhPools *pools, const char *controller, const LhObject *accepted)
{
    const LhSettings *fallback = lh_settings_default(controller);

    if (accepted == NULL)
        g_hash_table_remove(pools->settings, controller);
    else
        g_hash_table_replace(pools->settings, g_strdup(controller), lh_object_ref(accepted));
    g_hash_table_remove(pools->held, controller);
    if (accepted != NULL && !lh_object_known(accepted) && fallback != NULL) {
        LhSettings *held = g_memdup2(fallback, sizeof *fallback);
        held->paused = TRUE;
        g_hash_table_insert(pools->held, g_strdup(controller), held);
    }
}

static void fold_policy(LhPools *pools, const char *name, const LhObject *accepted)
{
    const char *host_name;
    LhPoolView *view = view_of_name(pools, name, &host_name);
    LhPoolHost *host;

    if (view == NULL)
        return;
    host = host_of(view, host_name);
    hold(&host->policy, accepted);
    drop_host(host);
    drop_view(view);
}

/* @name: "<pool>/<node name>/<controller>" of a Status that says how a drain goes. */
static gboolean fold_drained(LhPools *pools, const char *name, const LhObject *after)
{
    static const struct {
        const char *pool, *controller;
    } writers[] = {
        {LH_POOL_RECOVERY, "recovery-assigner"},
        {LH_POOL_INDEXER, "partition-allocator"},
        {LH_POOL_MANAGER, "seed-allocator"},
    };
    g_auto(GStrv) parts = g_strsplit(name, "/", -1);
    gboolean own = FALSE;
    LhPoolView *view;
    LhPoolHost *host;

    for (guint i = 0; g_strv_length(parts) == 3 && i < G_N_ELEMENTS(writers); i++)
        own = own || (strcmp(parts[0], writers[i].pool) == 0 &&
                      strcmp(parts[2], writers[i].controller) == 0);
    if (!own || *parts[1] == '\0')
        return FALSE;
    view = view_of(pools, parts[0]);
    host = host_of(view, parts[1]);
    hold(&host->drain_said, after);
    drop_host(host);
    drop_view(view);
    return TRUE;
}

static gboolean fold_accepted(LhPools *pools, const char *name, const LhObject *after)
{
    const char *rest;
    LhKind kind;

    if (!lh_subject_split(name, &kind, &rest))
        return FALSE;
    switch ((int)kind) {
    case LH_KIND_SETTINGS:
        fold_settings(pools, rest, after);
        return TRUE;
    case LH_KIND_NODEPOLICY:
        fold_policy(pools, rest, after);
        return TRUE;
    case LH_KIND_PARTITION:
        fold_table(pools, LH_KIND_ACCEPTED, name, after);
        fold_subject(pools, LH_POOL_INDEXER, rest, after);
        return TRUE;
    case LH_KIND_SEED:
        fold_table(pools, LH_KIND_ACCEPTED, name, after);
        fold_subject(pools, LH_POOL_MANAGER, rest, after);
        return TRUE;
    case LH_KIND_THROTTLE:
        lh_seeds_throttle(pools->seeds, rest, LH_KIND_ACCEPTED, after);
        fold_table(pools, LH_KIND_ACCEPTED, name, after);
        return TRUE;
    case LH_KIND_SERVICE:
        fold_table(pools, LH_KIND_ACCEPTED, name, after);
        return TRUE;
    default: /* every other kind: no pool needs it */
        return FALSE;
    }
}

static gboolean fold_task(LhPools *pools, const char *name, const LhObject *after)
{
    fold_table(pools, LH_KIND_RECOVERYTASK, name, after);
    fold_subject(pools, LH_POOL_RECOVERY, name, after);
    return TRUE;
}

static void fold_seed_status(LhPools *pools, const char *name, const LhObject *after)
{
    LhKind kind = LH_N_KINDS;
    const char *controller;
    g_autofree char *subject = NULL;

    if (!lh_status_name_split(name, &kind, &subject, &controller) ||
        strcmp(controller, "seed-allocator") != 0)
        return;
    if (kind == LH_KIND_THROTTLE) {
        lh_seeds_throttle(pools->seeds, subject, LH_KIND_STATUS, after);
    } else if (kind == LH_KIND_SEED) {
        LhPoolView *view = view_of(pools, LH_POOL_MANAGER);
        LhPoolItem *item = item_of(view, subject);
        hold(&item->status, after);
        touch_item(item);
        drop_item(item);
        drop_view(view);
    }
}

static gint by_text(gconstpointer a, gconstpointer b, gpointer data)
{
    (void)data;
    return strcmp(a, b);
}

/* They are looked for without looking at those of seeds, which are many. */
static void fold_task_status(LhPools *pools, const char *name, const LhObject *after)
{
    if (!g_str_has_prefix(name, "recoverytasks/") || !g_str_has_suffix(name, "/recovery-assigner"))
        return;
    if (after == NULL)
        g_tree_remove(pools->task_statuses, name);
    else
        g_tree_replace(pools->task_statuses, g_strdup(name), lh_object_ref(after));
}

static gboolean fold_status(LhPools *pools, const char *name, const LhObject *after)
{
    static const char *const plurals[] = {"recoverytasks/", "partitions/", "seeds/", "throttles/",
                                          "settings/"};

    static const char *const writers[] = {"/recovery-assigner", "/partition-allocator",
                                          "/seed-allocator"};

    if (g_str_has_prefix(name, "nodepolicies/"))
        return fold_drained(pools, name + strlen("nodepolicies/"), after);
    for (guint i = 0; i < G_N_ELEMENTS(plurals); i++) {
        if (!g_str_has_prefix(name, plurals[i]))
            continue;
        fold_table(pools, LH_KIND_STATUS, name, after);
        fold_seed_status(pools, name, after);
        fold_task_status(pools, name, after);
        /* What others say of it changes no decision here. */
        for (guint w = 0; w < G_N_ELEMENTS(writers); w++)
            if (g_str_has_suffix(name, writers[w]))
                return TRUE;
    }
    return FALSE;
}

static gboolean fold_retry(LhPools *pools, const char *name, const LhObject *after)
{
    const char *item_name;
    LhPoolView *view = view_of_name(pools, name, &item_name);
    LhPoolItem *item;

    if (view == NULL)
        return FALSE;
    item = item_of(view, item_name);
    hold(&item->retry, after);
    touch_item(item);
    drop_item(item);
    drop_view(view);
    return TRUE;
}

static gboolean fold_assignment(LhPools *pools, const char *name, const LhObject *after)
{
    const char *key;
    LhPoolView *view = view_of_name(pools, name, &key);
    LhPoolAssignment *assignment = view == NULL ? NULL : assignment_of(view, key);

    if (assignment != NULL) {
        assignment->node->held += (after != NULL) - (assignment->object != NULL);
        hold(&assignment->object, after);
        if (view->is_manager)
            lh_seeds_order(pools->seeds, assignment);
        touch_assignment(assignment);
        drop_assignment(assignment);
    }
    if (view != NULL)
        drop_view(view);
    return assignment != NULL;
}

static gboolean item_matters(const LhObject *before, const LhObject *after)
{
    if (before == NULL || after == NULL || !lh_object_known(before) || !lh_object_known(after))
        return TRUE;
    return ((const LhItem *)before)->state != ((const LhItem *)after)->state ||
           ((const LhItem *)before)->assignment != ((const LhItem *)after)->assignment ||
           lh_object_lease(before) != lh_object_lease(after);
}

static gboolean fold_item(LhPools *pools, const char *name, const LhObject *after)
{
    const char *key;
    LhPoolView *view = view_of_name(pools, name, &key);
    LhPoolAssignment *assignment = view == NULL ? NULL : assignment_of(view, key);
    gboolean matters = FALSE;

    if (assignment != NULL) {
        matters = item_matters(assignment->item, after);
        hold(&assignment->item, after);
        touch_assignment(assignment);
        drop_assignment(assignment);
    }
    if (view != NULL)
        drop_view(view);
    return matters;
}

static gboolean fold_node(LhPools *pools, const LhObject *object, const LhObject *after)
{
    const char *id;
    LhPoolView *view = view_of_name(pools, object->name, &id);
    LhPoolNode *node;

    if (view == NULL)
        return FALSE;
    if (strchr(id, '/') == NULL) {
        node = node_of(view, id);
        hold(object->kind == LH_KIND_NODE ? &node->object : &node->health, after);
        for (guint i = 0; i < node->assignments->len; i++)
            touch_assignment(g_ptr_array_index(node->assignments, i));
        drop_node(node);
    }
    drop_view(view);
    return TRUE;
}

static gboolean fold_object(LhPools *pools, const LhObject *before, const LhObject *after)
{
    const LhObject *object = after != NULL ? after : before;

    switch ((int)object->kind) {
    case LH_KIND_ACCEPTED:
        return fold_accepted(pools, object->name, after);
    case LH_KIND_RECOVERYTASK:
        return fold_task(pools, object->name, after);
    case LH_KIND_STATUS:
        return fold_status(pools, object->name, after);
    case LH_KIND_RETRY:
        return fold_retry(pools, object->name, after);
    case LH_KIND_ASSIGNMENT:
        return fold_assignment(pools, object->name, after);
    case LH_KIND_ITEM:
        return fold_item(pools, object->name, after);
    case LH_KIND_NODE:
    case LH_KIND_HEALTH:
        return fold_node(pools, object, after);
    default:
        if (object->kind >= LH_N_KINDS || pools->objects[object->kind] == NULL)
            return FALSE;
        fold_table(pools, (LhKind)object->kind, object->name, after);
        return TRUE;
    }
}

static gboolean pools_fold(gpointer index, const LhObject *before, const LhObject *after)
{
    LhPools *pools = index;
    gboolean matters = fold_object(pools, before, after);

    return lh_partitions_fold(pools->partitions, before, after) || matters;
}

static gpointer pools_new(void)
{
    static const LhKind held[] = {
        LH_KIND_SERVICE,       LH_KIND_PARTITION, LH_KIND_SEED,
        LH_KIND_THROTTLE,      LH_KIND_ACCEPTED,  LH_KIND_RECOVERYTASK,
        LH_KIND_PARTITIONPLAN, LH_KIND_BRAKE,     LH_KIND_STATUS,
    };
    LhPools *pools = g_new0(LhPools, 1);

    pools->views = g_hash_table_new(g_str_hash, g_str_equal);
    pools->partitions = lh_partitions_new();
    pools->seeds = lh_seeds_new(pools);
    pools->settings = g_hash_table_new_full(g_str_hash, g_str_equal, g_free,
                                            (GDestroyNotify)lh_object_unref);
    pools->held = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, g_free);
    pools->task_statuses = g_tree_new_full(by_text, NULL, g_free, (GDestroyNotify)lh_object_unref);
    for (guint i = 0; i < G_N_ELEMENTS(held); i++)
        pools->objects[held[i]] = g_hash_table_new_full(g_str_hash, g_str_equal, g_free,
                                                        (GDestroyNotify)lh_object_unref);
    return pools;
}

static gboolean free_host(gpointer key, gpointer value, gpointer data)
{
    LhPoolHost *host = value;

    (void)key;
    (void)data;
    lh_object_unref(host->policy);
    lh_object_unref(host->drain_said);
    g_ptr_array_unref(host->nodes);
    g_free(host->name);
    g_free(host);
    return FALSE;
}

/* Records are freed as they stand: no sets to keep right any more. */
static void free_records(LhPoolView *view)
{
    GHashTableIter iter;
    gpointer record;

    g_hash_table_iter_init(&iter, view->items);
    while (g_hash_table_iter_next(&iter, NULL, &record)) {
        LhPoolItem *item = record;
        lh_object_unref(item->subject);
        lh_object_unref(item->retry);
        lh_object_unref(item->status);
        g_clear_pointer(&item->assignments, g_ptr_array_unref);
        g_free(item->name);
        g_free(item);
    }
    g_hash_table_iter_init(&iter, view->assignments);
    while (g_hash_table_iter_next(&iter, NULL, &record)) {
        LhPoolAssignment *assignment = record;
        lh_object_unref(assignment->object);
        lh_object_unref(assignment->item);
        g_free(assignment->key);
        g_free(assignment);
    }
    g_hash_table_iter_init(&iter, view->nodes);
    while (g_hash_table_iter_next(&iter, NULL, &record)) {
        LhPoolNode *node = record;
        lh_object_unref(node->object);
        lh_object_unref(node->health);
        g_ptr_array_unref(node->assignments);
        g_free(node->id);
        g_free(node);
    }
    g_tree_foreach(view->hosts, free_host, NULL);
}

static void pools_free(gpointer index)
{
    LhPools *pools = index;
    GHashTableIter iter;
    gpointer view;

    g_hash_table_iter_init(&iter, pools->views);
    while (g_hash_table_iter_next(&iter, NULL, &view)) {
        free_records(view);
        view_free(view);
    }
    g_hash_table_unref(pools->views);
    g_hash_table_unref(pools->settings);
    g_hash_table_unref(pools->held);
    g_tree_unref(pools->task_statuses);
    for (guint i = 0; i < LH_N_KINDS; i++)
        g_clear_pointer(&pools->objects[i], g_hash_table_unref);
    lh_partitions_free(pools->partitions);
    lh_seeds_free(pools->seeds);
    g_free(pools);
}

const LhIndexType lh_pools_index = {
    .name = "pools",
    .new = pools_new,
    .free = pools_free,
    .fold = pools_fold,
};
