/*
 * Holding and releasing snapshots, as the agent asks for it: one Holding for each item. Loading: cache_load.c;
 * what both do to a Holding: cache_holding.c; hooks: cache_hooks.c.
 */
#include "agent/cache_work.h"

#include "agent/cache_internal.h"
#include "agent/cache_store.h"

/* So long after a start or a drop the same load has come again, or will not. */
#define LEFTOVERS_MS (10 * 60 * 1000)

/* ---- releasing ---- */

static void report_released(gpointer data)
{
    Holding *h = data;
    LhCacheWork *work = h->work;
    h->timer = NULL;
    g_autofree char *item = g_strdup(h->item);
    g_hash_table_remove(work->holdings, item);
    work->funcs->released(item, NULL, work->data);
}

static void remove_data(Holding *h)
{
    LhCacheStore *store = h->work->store;
    LhCacheEntry *entry = h->entry;
    gboolean waits = FALSE;
    lh_holding_unhold(h);
    if (entry != NULL && entry->held == 0) {
        lh_cache_store_remove(store, entry, report_released, h);
        waits = TRUE;
    } else {
        waits = lh_holding_discard(h, report_released, h);
    }
    if (!waits)
        h->timer = lh_timer_in(h->work->env, 0, report_released, h);
}

static void evicted(const char *url G_GNUC_UNUSED, const GError *error, gpointer data)
{
    Holding *h = data;
    if (error != NULL)
        h->work->funcs->released(h->item, error, h->work->data);
    else
        remove_data(h);
}

static void nothing_held(gpointer data)
{
    Unknown *unknown = data;
    LhCacheWork *work = unknown->work;
    g_autofree char *item = g_strdup(unknown->item);
    unknown->timer = NULL;
    g_hash_table_remove(work->unknown, item);
    work->funcs->released(item, NULL, work->data);
}

static void unknown_free(gpointer data)
{
    Unknown *unknown = data;
    lh_timer_clear(unknown->work->env, &unknown->timer);
    g_free(unknown->item);
    g_free(unknown);
}

static void work_release(LhAgentWork *base, const char *item)
{
    LhCacheWork *work = (LhCacheWork *)base;
    Holding *h = g_hash_table_lookup(work->holdings, item);
    if (h != NULL) {
        lh_holding_stop(h);
        lh_cache_hook_evict(h, evicted);
        return;
    }
    Unknown *unknown = g_new0(Unknown, 1);
    unknown->work = work;
    unknown->item = g_strdup(item);
    unknown->timer = lh_timer_in(work->env, 0, nothing_held, unknown);
    g_hash_table_replace(work->unknown, unknown->item, unknown);
}

/* ---- the vtable ---- */

static void work_attach(LhAgentWork *base, const LhWorkFuncs *funcs, gpointer data)
{
    LhCacheWork *work = (LhCacheWork *)base;
    work->funcs = funcs;
    work->data = data;
}

static void work_load(LhAgentWork *base, const char *item, const LhAssignment *assignment)
{
    LhCacheWork *work = (LhCacheWork *)base;
    Holding *h = g_new0(Holding, 1);
    h->work = work;
    h->item = g_strdup(item);
    h->sha256 = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, g_free);
    h->assignment = assignment;
    lh_object_ref(&assignment->o);
    g_hash_table_replace(work->holdings, h->item, h);
    h->timer = lh_timer_in(work->env, 0, lh_cache_load, h);
}

static gboolean work_update(LhAgentWork *base, const char *item, const LhAssignment *assignment)
{
    LhCacheWork *work = (LhCacheWork *)base;
    const Holding *h = g_hash_table_lookup(work->holdings, item);
    return h != NULL && g_strcmp0(h->assignment->snapshot, assignment->snapshot) == 0 &&
           g_strcmp0(h->assignment->uri, assignment->uri) == 0 &&
           h->assignment->size_bytes == assignment->size_bytes;
}

static void work_serve(LhAgentWork *base, const char *item, gboolean on)
{
    LhCacheWork *work = (LhCacheWork *)base;
    Holding *h = g_hash_table_lookup(work->holdings, item);
    if (h == NULL || h->entry == NULL || h->served == on)
        return;
    h->served = on;
    if (on)
        h->entry->served++;
    else
        h->entry->served--;
}

static void give_up_leftovers(gpointer data)
{
    LhCacheWork *work = data;
    work->leftovers = NULL;
    lh_cache_store_discard_parked(work->store);
}

static void watch_leftovers(LhCacheWork *work)
{
    lh_timer_clear(work->env, &work->leftovers);
    work->leftovers = lh_timer_in(work->env, LEFTOVERS_MS, give_up_leftovers, work);
}

static void work_drop(LhAgentWork *base)
{
    LhCacheWork *work = (LhCacheWork *)base;
    g_hash_table_remove_all(work->holdings);
    g_hash_table_remove_all(work->unknown);
    watch_leftovers(work);
}

static char **work_warm(LhAgentWork *base)
{
    return lh_cache_store_names(((LhCacheWork *)base)->store);
}

/* ---- the rest ---- */

static void collect(LhMetrics *metrics, gpointer data)
{
    LhCacheWork *work = data;
    lh_gauge_set(metrics, "agent_disk_used_bytes", NULL, (double)lh_cache_store_bytes(work->store));
    lh_gauge_set(metrics, "agent_disk_capacity_bytes", NULL, (double)work->capacity_bytes);
    lh_counter_add(metrics, "agent_copied_bytes_total", NULL,
                   (double)(work->copied_bytes - work->counted_bytes));
    work->counted_bytes = work->copied_bytes;
}

static void declare_metrics(LhCacheWork *work)
{
    LhMetrics *m = work->metrics;
    if (m == NULL)
        return;
    lh_metrics_declare(m, LH_GAUGE, "agent_disk_used_bytes",
                       "Bytes of snapshots on this node's disk.", NULL);
    lh_metrics_declare(m, LH_GAUGE, "agent_disk_capacity_bytes", "Bytes of snapshots it may hold.",
                       NULL);
    lh_metrics_declare(m, LH_COUNTER, "agent_copied_bytes_total",
                       "Bytes copied from the object store.", NULL);
    lh_metrics_add_collector(m, collect, work);
}

LhCacheWork *lh_cache_work_new(LhEnv *env, LhEtcd *etcd, LhObjectStore *objects, LhHooks *hooks,
                               const LhCacheWorkOptions *options, GError **error)
{
    static const LhAgentWorkVtable vtable = {
        .attach = work_attach,
        .load = work_load,
        .update = work_update,
        .serve = work_serve,
        .release = work_release,
        .drop = work_drop,
        .warm = work_warm,
    };
    LhCacheStore *store = lh_cache_store_open(options->data_dir, error);
    if (store == NULL)
        return NULL;
    LhCacheWork *work = g_new0(LhCacheWork, 1);
    work->base.v = &vtable;
    work->env = env;
    work->etcd = etcd;
    work->objects = objects;
    work->hooks = hooks;
    work->store = store;
    work->metrics = options->metrics;
    work->prefix = g_strdup(options->prefix);
    work->url = g_strdup(options->url);
    work->on_load = g_strdupv((char **)options->on_load);
    work->on_evict = g_strdupv((char **)options->on_evict);
    work->hook_timeout_ms = options->hook_timeout_ms;
    gint64 present = lh_cache_store_bytes(store) + lh_cache_store_disk_free(store);
    work->capacity_bytes = options->capacity_bytes > 0 ? options->capacity_bytes : present;
    work->holdings = g_hash_table_new_full(g_str_hash, g_str_equal, NULL, lh_holding_free);
    work->unknown = g_hash_table_new_full(g_str_hash, g_str_equal, NULL, unknown_free);
    lh_cache_store_on_removed(store, lh_cache_load_room, work);
    watch_leftovers(work);
    declare_metrics(work);
    return work;
}

void lh_cache_work_free(LhCacheWork *work)
{
    if (work == NULL)
        return;
    work->closing = TRUE;
    work_drop(&work->base);
    lh_timer_clear(work->env, &work->leftovers);
    g_hash_table_unref(work->holdings);
    g_hash_table_unref(work->unknown);
    lh_cache_store_free(work->store);
    if (work->metrics != NULL)
        lh_metrics_remove_collector(work->metrics, collect, work);
    g_strfreev(work->on_load);
    g_strfreev(work->on_evict);
    g_free(work->node);
    g_free(work->prefix);
    g_free(work->url);
    g_free(work);
}

LhAgentWork *lh_cache_work_base(LhCacheWork *work)
{
    return &work->base;
}

gint64 lh_cache_work_capacity(const LhCacheWork *work)
{
    return work->capacity_bytes;
}

void lh_cache_work_set_node(LhCacheWork *work, const char *id)
{
    g_free(work->node);
    work->node = g_strdup(id);
}

int lh_cache_work_open_file(LhCacheWork *work, const char *snapshot, const char *name)
{
    const LhCacheEntry *entry = lh_cache_store_find(work->store, snapshot);
    return entry != NULL && entry->served > 0
               ? lh_cache_store_open_file(work->store, snapshot, name)
               : -1;
}

char *lh_cache_work_manifest(LhCacheWork *work, const char *snapshot)
{
    const LhCacheEntry *entry = lh_cache_store_find(work->store, snapshot);
    return entry != NULL && entry->served > 0 ? lh_cache_entry_json(entry) : NULL;
}
