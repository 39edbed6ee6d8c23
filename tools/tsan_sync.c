/*
 * Tells ThreadSanitizer about hand-overs between threads that happen inside the distribution's
 * GLib and gRPC, which are not instrumented: GLib's locks and queues, functions given to a main
 * loop, and tags that pass through a gRPC completion queue. Without it, each of them is reported
 * as a race.
 *
 * Linked into every program of a build with -Db_sanitize=thread, and into nothing else. Our calls
 * reach these definitions; those between the libraries do not. What is missing here (GRWLock, the
 * callbacks of other sources) says so with a false report: add it here, do not suppress it.
 */

#include <dlfcn.h>
#include <glib.h>
#include <grpc/grpc.h>

void __tsan_acquire(void *address);
void __tsan_release(void *address);

/* `real`: the definition that this one hides. */
#define REAL(name)                                                       \
    static __typeof__(&name) cached;                                     \
    __typeof__(&name) real = __atomic_load_n(&cached, __ATOMIC_RELAXED); \
    if (!real) {                                                         \
        real = (__typeof__(&name))dlsym(RTLD_NEXT, #name);               \
        __atomic_store_n(&cached, real, __ATOMIC_RELAXED);               \
    }                                                                    \
    _Static_assert(1, "")

#undef g_idle_add
#undef g_main_context_invoke

/* --- Locks ------------------------------------------------------------------------------- */

void g_mutex_lock(GMutex *mutex)
{
    REAL(g_mutex_lock);
    real(mutex);
    __tsan_acquire(mutex);
}

gboolean g_mutex_trylock(GMutex *mutex)
{
    REAL(g_mutex_trylock);
    gboolean locked = real(mutex);
    if (locked)
        __tsan_acquire(mutex);
    return locked;
}

void g_mutex_unlock(GMutex *mutex)
{
    REAL(g_mutex_unlock);
    __tsan_release(mutex);
    real(mutex);
}

void g_cond_wait(GCond *cond, GMutex *mutex)
{
    REAL(g_cond_wait);
    __tsan_release(mutex);
    real(cond, mutex);
    __tsan_acquire(mutex);
}

gboolean g_cond_wait_until(GCond *cond, GMutex *mutex, gint64 end_time)
{
    REAL(g_cond_wait_until);
    __tsan_release(mutex);
    gboolean signalled = real(cond, mutex, end_time);
    __tsan_acquire(mutex);
    return signalled;
}

/* --- Queues ------------------------------------------------------------------------------ */

void g_async_queue_push(GAsyncQueue *queue, gpointer data)
{
    REAL(g_async_queue_push);
    __tsan_release(queue);
    real(queue, data);
}

static gpointer popped(GAsyncQueue *queue, gpointer data)
{
    __tsan_acquire(queue);
    return data;
}

gpointer g_async_queue_pop(GAsyncQueue *queue)
{
    REAL(g_async_queue_pop);
    return popped(queue, real(queue));
}

gpointer g_async_queue_try_pop(GAsyncQueue *queue)
{
    REAL(g_async_queue_try_pop);
    return popped(queue, real(queue));
}

gpointer g_async_queue_timeout_pop(GAsyncQueue *queue, guint64 timeout)
{
    REAL(g_async_queue_timeout_pop);
    return popped(queue, real(queue, timeout));
}

/* --- Functions given to a main loop: the loop's thread acquires before it calls them. ------ */

typedef struct {
    GSourceFunc function;
    gpointer data;
    GDestroyNotify notify;
} Handed;

static Handed *handed_new(GSourceFunc function, gpointer data, GDestroyNotify notify)
{
    Handed *handed = g_new(Handed, 1);
    *handed = (Handed){function, data, notify};
    __tsan_release(handed);
    return handed;
}

static gboolean handed_call(gpointer data)
{
    Handed *handed = data;
    __tsan_acquire(handed);
    gboolean again = handed->function(handed->data);
    /* The loop may free it in another thread. */
    __tsan_release(handed);
    return again;
}

static void handed_free(gpointer data)
{
    Handed *handed = data;
    __tsan_acquire(handed);
    if (handed->notify)
        handed->notify(handed->data);
    g_free(handed);
}

void g_main_context_invoke_full(GMainContext *context, gint priority, GSourceFunc function,
                                gpointer data, GDestroyNotify notify)
{
    REAL(g_main_context_invoke_full);
    real(context, priority, handed_call, handed_new(function, data, notify), handed_free);
}

void g_main_context_invoke(GMainContext *context, GSourceFunc function, gpointer data)
{
    g_main_context_invoke_full(context, G_PRIORITY_DEFAULT, function, data, NULL);
}

guint g_idle_add_full(gint priority, GSourceFunc function, gpointer data, GDestroyNotify notify)
{
    REAL(g_idle_add_full);
    return real(priority, handed_call, handed_new(function, data, notify), handed_free);
}

guint g_idle_add(GSourceFunc function, gpointer data)
{
    return g_idle_add_full(G_PRIORITY_DEFAULT_IDLE, function, data, NULL);
}

void g_source_set_callback(GSource *source, GSourceFunc function, gpointer data,
                           GDestroyNotify notify)
{
    REAL(g_source_set_callback);
    /* Other sources call functions of other types. */
    if (function &&
        (source->source_funcs == &g_idle_funcs || source->source_funcs == &g_timeout_funcs))
        real(source, handed_call, handed_new(function, data, notify), handed_free);
    else
        real(source, function, data, notify);
}

/* --- Tags of gRPC: released by whoever starts a batch, acquired by whoever gets its event. -- */

grpc_call_error grpc_call_start_batch(grpc_call *call, const grpc_op *ops, size_t nops, void *tag,
                                      void *reserved)
{
    REAL(grpc_call_start_batch);
    __tsan_release(tag);
    return real(call, ops, nops, tag, reserved);
}

grpc_event grpc_completion_queue_next(grpc_completion_queue *queue, gpr_timespec deadline,
                                      void *reserved)
{
    REAL(grpc_completion_queue_next);
    grpc_event event = real(queue, deadline, reserved);
    if (event.type == GRPC_OP_COMPLETE)
        __tsan_acquire(event.tag);
    return event;
}
