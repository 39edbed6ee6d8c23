/*
 * Threads that do, and a source that delivers: one mutex guards both queues.
 *
 * Nothing that GLib allocates crosses the threads, and every hand-over goes through the mutex, so that a
 * race detector sees it. The pool gets a token for each task; which task it is, the queue says.
 */
#include "base/workers.h"

typedef struct {
    void (*func)(gpointer data);
    gpointer data;
    GDestroyNotify drop;
} Call;

typedef struct {
    GSource base;
    LhWorkers *workers; /* NULL: freed */
} Source;

struct LhWorkers {
    GThreadPool *pool;
    GSource *source;
    GMutex mutex;
    GQueue tasks, posted; /* of Call */
    GCond idle;
    guint unfinished; /* tasks */
};

static Call *take(LhWorkers *workers, GQueue *queue)
{
    g_mutex_lock(&workers->mutex);
    Call *call = g_queue_pop_head(queue);
    g_mutex_unlock(&workers->mutex);
    return call;
}

static void put(LhWorkers *workers, GQueue *queue, void (*func)(gpointer data), gpointer data,
                GDestroyNotify drop)
{
    Call *call = g_new(Call, 1);
    *call = (Call){func, data, drop};
    g_mutex_lock(&workers->mutex);
    g_queue_push_tail(queue, call);
    g_mutex_unlock(&workers->mutex);
}

static void on_thread(gpointer token, gpointer user_data)
{
    (void)token;
    LhWorkers *workers = user_data;
    Call *call = take(workers, &workers->tasks);
    call->func(call->data);
    g_free(call);
    g_mutex_lock(&workers->mutex);
    if (--workers->unfinished == 0)
        g_cond_signal(&workers->idle);
    g_mutex_unlock(&workers->mutex);
}

static gboolean dispatch(GSource *base, GSourceFunc callback, gpointer data)
{
    (void)callback;
    (void)data;
    Source *source = (Source *)base;
    /* Before looking: what is posted after this wakes it again. */
    g_source_set_ready_time(base, -1);
    g_source_ref(base);
    Call *call;
    while (source->workers != NULL && (call = take(source->workers, &source->workers->posted))) {
        call->func(call->data);
        g_free(call);
    }
    g_source_unref(base);
    return G_SOURCE_CONTINUE;
}

LhWorkers *lh_workers_new(guint threads)
{
    static GSourceFuncs funcs = {.dispatch = dispatch};
    LhWorkers *workers = g_new0(LhWorkers, 1);
    g_mutex_init(&workers->mutex);
    g_cond_init(&workers->idle);
    g_queue_init(&workers->tasks);
    g_queue_init(&workers->posted);
    workers->pool = g_thread_pool_new(on_thread, workers, (gint)threads, FALSE, NULL);
    workers->source = g_source_new(&funcs, sizeof(Source));
    ((Source *)workers->source)->workers = workers;
    g_source_set_static_name(workers->source, "workers");
    GMainContext *context = g_main_context_ref_thread_default();
    g_source_attach(workers->source, context);
    g_main_context_unref(context);
    return workers;
}

void lh_workers_free(LhWorkers *workers)
{
    if (workers == NULL)
        return;
    g_mutex_lock(&workers->mutex);
    while (workers->unfinished > 0)
        g_cond_wait(&workers->idle, &workers->mutex);
    g_mutex_unlock(&workers->mutex);
    g_thread_pool_free(workers->pool, FALSE, TRUE);
    ((Source *)workers->source)->workers = NULL;
    g_source_destroy(workers->source);
    g_source_unref(workers->source);
    Call *call;
    while ((call = take(workers, &workers->posted)) != NULL) {
        if (call->drop != NULL)
            call->drop(call->data);
        g_free(call);
    }
    g_mutex_clear(&workers->mutex);
    g_cond_clear(&workers->idle);
    g_free(workers);
}

void lh_workers_run(LhWorkers *workers, void (*func)(gpointer data), gpointer data)
{
    g_mutex_lock(&workers->mutex);
    workers->unfinished++;
    g_mutex_unlock(&workers->mutex);
    put(workers, &workers->tasks, func, data, NULL);
    g_thread_pool_push(workers->pool, workers, NULL);
}

void lh_workers_post(LhWorkers *workers, void (*func)(gpointer data), gpointer data,
                     GDestroyNotify drop)
{
    put(workers, &workers->posted, func, data, drop);
    g_source_set_ready_time(workers->source, 0);
}
