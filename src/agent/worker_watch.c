/*
 * The watch is opened first, and what was there before is listed then: nothing is missed in between.
 */
#include "agent/worker_watch.h"

#include "agent/follow.h"
#include "api/decided.h"
#include "base/log.h"
#include "etcd/list.h"

#include <string.h>

#define AGAIN_MS 1000

struct LhWorkerWatch {
    LhEnv *env;
    LhEtcd *etcd;
    const LhWorkerWatchFuncs *funcs;
    gpointer data;
    char *below, *end; /* the range of keys */
    LhFollow *follow;
    LhList *list;
    LhTimer *again;
};

static void start(gpointer data);

static void start_list(gpointer data);

static void list_page(const LhKv *kvs, gsize n, gpointer data)
{
    const LhWorkerWatch *w = data;
    for (gsize i = 0; i < n; i++)
        lh_follow_seed(w->follow, &kvs[i]);
}

static void list_done(const LhEtcdHeader *header G_GNUC_UNUSED, const GError *error, gpointer data)
{
    LhWorkerWatch *w = data;
    w->list = NULL;
    if (error == NULL)
        return;
    lh_log(LH_LOG_WARNING, "cannot list the workers' health; trying again", "error", error->message,
           NULL);
    lh_timer_clear(w->env, &w->again);
    w->again = lh_timer_in(w->env, AGAIN_MS, start_list, w);
}

static void start_list(gpointer data)
{
    static const LhListFuncs funcs = {.page = list_page, .done = list_done};
    LhWorkerWatch *w = data;
    w->again = NULL;
    w->list = lh_list_start(w->env, w->etcd, w->below, 0, 0, &funcs, w);
}

static void on_opened(gpointer data)
{
    start_list(data);
}

static void on_put(const LhKv *kv, gpointer data)
{
    const LhWorkerWatch *w = data;
    if (strlen(kv->key) != kv->key_len)
        return;
    const char *worker = kv->key + strlen(w->below);
    g_autofree char *name = g_strconcat("worker/", worker, NULL);
    if (!lh_kind_name_valid(LH_KIND_HEALTH, name))
        return;
    g_autoptr(LhObject) object = lh_object_parse(LH_KIND_HEALTH, name, kv->value, kv->value_len,
                                                 kv->create_rev, kv->mod_rev, kv->lease);
    if (lh_object_known(object) && ((const LhHealth *)object)->state == LH_HEALTH_FAILED)
        w->funcs->failed(worker, w->data);
}

static void on_gone(const char *key, gint64 rev G_GNUC_UNUSED, gpointer data)
{
    const LhWorkerWatch *w = data;
    w->funcs->forgotten(key + strlen(w->below), w->data);
}

static void stop(LhWorkerWatch *w)
{
    lh_timer_clear(w->env, &w->again);
    g_clear_pointer(&w->list, lh_list_cancel);
    g_clear_pointer(&w->follow, lh_follow_free);
}

static void start_anew(gpointer data)
{
    LhWorkerWatch *w = data;
    w->again = NULL;
    stop(w);
    w->funcs->forgotten(NULL, w->data);
    start(w);
}

static void on_void(gpointer data)
{
    LhWorkerWatch *w = data;
    g_clear_pointer(&w->list, lh_list_cancel);
    lh_timer_clear(w->env, &w->again);
    w->again = lh_timer_in(w->env, 0, start_anew, w);
}

static void start(gpointer data)
{
    static const LhFollowFuncs funcs = {
        .opened = on_opened, .put = on_put, .gone = on_gone, .void_ = on_void};
    LhWorkerWatch *w = data;
    w->follow = lh_follow_start(w->env, w->etcd, w->below, w->end, &funcs, w);
}

LhWorkerWatch *lh_worker_watch_new(LhEnv *env, LhEtcd *etcd, const char *prefix,
                                   const LhWorkerWatchFuncs *funcs, gpointer data)
{
    LhWorkerWatch *w = g_new0(LhWorkerWatch, 1);
    w->env = env;
    w->etcd = etcd;
    w->funcs = funcs;
    w->data = data;
    w->below = g_strconcat(prefix, "decided/health/worker/", NULL);
    w->end = lh_etcd_prefix_end(w->below);
    start(w);
    return w;
}

void lh_worker_watch_free(LhWorkerWatch *w)
{
    if (w == NULL)
        return;
    stop(w);
    g_free(w->below);
    g_free(w->end);
    g_free(w);
}
