/*
 * rpc.h on gRPC's C core: threads, unary calls, the whole. Only transport_* include <grpc/…>; they know
 * nothing of etcd but its lease connection and the metadata hasleader and token.
 *
 * The loop thread starts calls. A lane's thread sits in grpc_completion_queue_next, decodes replies
 * into memory that nobody else touches yet, and posts them; a GSource on the loop delivers what was
 * posted, in order. Whether a call still has an owner (cancelled, dropped, closing) is the loop's to
 * know alone. It must not retry anything, and nothing here outlives lh_rpc_free.
 */
#include "base/errors.h"
#include "base/log.h"
#include "etcd/transport_private.h"

#include <grpc/byte_buffer.h>
#include <grpc/support/log.h>
#include <grpc/support/time.h>

/* One turn of the loop delivers for so long, so that timers (the lease's) and other sources get theirs. */
#define DELIVER_US 10000
/* Between two lines that gRPC wants to be read. */
#define GRPC_SAYS_EVERY_S 60

/* --- between the threads --- */

void lh_grpc_post(LhRpc *rpc, LhPosted *posted, void (*deliver)(LhRpc *rpc, LhPosted *posted))
{
    posted->deliver = deliver;
    posted->next = NULL;
    g_mutex_lock(&rpc->lock);
    gboolean first = rpc->posted == NULL;
    *rpc->posted_tail = posted;
    rpc->posted_tail = &posted->next;
    if (rpc->waiting) /* a signal is a system call, whether anybody waits or not */
        g_cond_signal(&rpc->not_empty);
    g_mutex_unlock(&rpc->lock);
    if (first)
        g_source_set_ready_time(rpc->source, 0);
}

static void take_posted(LhRpc *rpc, gboolean wait)
{
    g_mutex_lock(&rpc->lock);
    rpc->waiting = wait;
    while (wait && rpc->posted == NULL)
        g_cond_wait(&rpc->not_empty, &rpc->lock);
    rpc->waiting = FALSE;
    if (rpc->posted != NULL) {
        *rpc->ready_tail = rpc->posted;
        rpc->ready_tail = rpc->posted_tail;
        rpc->posted = NULL;
        rpc->posted_tail = &rpc->posted;
    }
    g_mutex_unlock(&rpc->lock);
}

static gboolean deliver_next(LhRpc *rpc)
{
    LhPosted *posted = rpc->ready;
    if (posted == NULL)
        return FALSE;
    rpc->ready = posted->next;
    if (rpc->ready == NULL)
        rpc->ready_tail = &rpc->ready;
    posted->deliver(rpc, posted);
    return TRUE;
}

static void finalize(gpointer data)
{
    LhRpc *rpc = data;
    g_mutex_clear(&rpc->lock);
    g_cond_clear(&rpc->not_empty);
}

static gboolean dispatch(GSource *source, G_GNUC_UNUSED GSourceFunc func,
                         G_GNUC_UNUSED gpointer data)
{
    /* A callback may free it: it stays allocated until this returns. */
    LhRpc *rpc = g_rc_box_acquire(((LhRpcSource *)source)->rpc);
    /* Before taking: whoever posts after that finds the queue empty and sets it again. */
    g_source_set_ready_time(source, -1);
    take_posted(rpc, FALSE);
    gint64 until_us = g_get_monotonic_time() + DELIVER_US;
    while (deliver_next(rpc) && g_get_monotonic_time() < until_us)
        ;
    if (rpc->ready != NULL)
        g_source_set_ready_time(source, 0);
    g_rc_box_release_full(rpc, finalize);
    return G_SOURCE_CONTINUE;
}

static gpointer run_queue(gpointer data)
{
    grpc_completion_queue *queue = data;
    for (;;) {
        grpc_event event = grpc_completion_queue_next(queue, gpr_inf_future(GPR_CLOCK_REALTIME),
                                                      NULL);
        if (event.type == GRPC_QUEUE_SHUTDOWN)
            return NULL;
        LhOp *op = event.tag;
        g_assert(g_atomic_int_get(&op->begun));
        op->ended(op->owner, event.success != 0);
    }
}

/* --- unary calls --- */

static void deliver_call(LhRpc *rpc, LhPosted *posted)
{
    LhRpcCall *call = (LhRpcCall *)posted;
    g_queue_unlink(&rpc->calls, &call->link);
    /* All of gRPC's before the callback, which may free the transport. */
    if (call->call != NULL) {
        grpc_call_unref(call->call);
        if (!call->cancelled && !rpc->closing)
            lh_grpc_judge(rpc, call->method, call->endpoint, call->moves, call->code,
                          call->sent_us);
    }
    if (!call->cancelled && !rpc->closing)
        call->func(call->reply, call->error, call->data);
    lh_arena_clear(&call->arena);
    g_clear_error(&call->error);
    g_free(call->unsent.data);
    g_free(call);
}

static void call_ended(gpointer owner, G_GNUC_UNUSED gboolean ok)
{
    LhRpcCall *call = owner;
    const LhRpcMethod *method = &call->rpc->methods[call->method];
    if (call->code != GRPC_STATUS_OK || call->received == NULL) {
        call->error = lh_grpc_error(method, call->code, call->details);
    } else {
        call->reply = lh_grpc_decode(method, &call->arena, call->received);
        /* A write that was answered, however badly, was probably done. */
        LhErrorCode code = method->kind == LH_RPC_WRITE ? LH_ERR_UNKNOWN_OUTCOME : LH_ERR_INTERNAL;
        if (call->reply == NULL)
            call->error = g_error_new(LH_ERROR, (gint)code, "etcd %s: malformed reply",
                                      method->name);
    }
    grpc_byte_buffer_destroy(call->request);
    grpc_byte_buffer_destroy(call->received);
    grpc_metadata_array_destroy(&call->initial);
    grpc_metadata_array_destroy(&call->trailing);
    grpc_slice_unref(call->details);
    grpc_slice_unref(call->token);
    lh_grpc_post(call->rpc, &call->posted, deliver_call);
}

static LhRpcCall *call_new(LhRpc *rpc, LhRpcFunc func, gpointer data)
{
    LhRpcCall *call = g_new0(LhRpcCall, 1);
    call->rpc = rpc;
    call->func = func;
    call->data = data;
    call->link.data = call;
    g_queue_push_tail_link(&rpc->calls, &call->link);
    return call;
}

static void call_send(LhRpcCall *call)
{
    call->op = (LhOp){.ended = call_ended, .owner = call};
    const LhLane *lane = lh_grpc_lane(call->rpc, call->method);
    call->endpoint = lane->current;
    call->moves = lane->moves;
    call->sent_us = g_get_monotonic_time();
    call->call = lh_grpc_call(call->rpc, call->method, call->endpoint, call->deadline);
    call->token = lh_grpc_token(call->rpc, call->method);
    grpc_metadata token = lh_grpc_token_metadata(call->token);
    call->request = lh_grpc_buffer(call->unsent);
    call->unsent = (LhBytes){0};
    grpc_metadata_array_init(&call->initial);
    grpc_metadata_array_init(&call->trailing);
    const grpc_op ops[] = {
        lh_grpc_send_metadata(&token, GRPC_SLICE_LENGTH(call->token) > 0 ? 1 : 0),
        lh_grpc_send_message(call->request),
        {.op = GRPC_OP_SEND_CLOSE_FROM_CLIENT},
        lh_grpc_receive_metadata(&call->initial),
        lh_grpc_receive_message(&call->received),
        lh_grpc_receive_status(&call->trailing, &call->code, &call->details),
    };
    lh_grpc_start_batch(call->call, ops, G_N_ELEMENTS(ops), &call->op);
}

static void call_send_connected(LhRpcCall *call);

static void deliver_connectivity(LhRpc *rpc, LhPosted *posted)
{
    LhRpcCall *call = (LhRpcCall *)posted;
    if (call->cancelled || rpc->closing)
        deliver_call(rpc, posted);
    else
        call_send_connected(call);
}

static void connectivity_changed(gpointer owner, G_GNUC_UNUSED gboolean ok)
{
    LhRpcCall *call = owner;
    lh_grpc_post(call->rpc, &call->posted, deliver_connectivity);
}

/* For writes, and for all where there are several endpoints. gRPC does not tell whether a call that
 * failed was ever sent; one that was not handed to it surely was not. So a call waits here until its
 * lane's endpoint is connected, sees each endpoint refuse at most once, and fails here if none is left;
 * once it is handed over, the failure of a write has an unknown outcome. */
static void call_send_connected(LhRpcCall *call)
{
    LhRpc *rpc = call->rpc;
    LhLane *lane = lh_grpc_lane(rpc, call->method);
    gboolean in_time = gpr_time_cmp(gpr_now(GPR_CLOCK_MONOTONIC), call->deadline) < 0;
    guint n = lh_channels_n(rpc->channels);
    guint last = lane->current;
    while (call->refused < n) {
        grpc_connectivity_state state = lh_grpc_connectivity(rpc, lane);
        if (state == GRPC_CHANNEL_READY) {
            call_send(call);
            return;
        }
        if (in_time && (state == GRPC_CHANNEL_IDLE || state == GRPC_CHANNEL_CONNECTING)) {
            call->op = (LhOp){.ended = connectivity_changed, .owner = call};
            g_atomic_int_set(&call->op.begun, TRUE);
            grpc_channel_watch_connectivity_state(
                lh_channels_get(rpc->channels, lane, lane->current)->channel, state, call->deadline,
                lane->queue, &call->op);
            return;
        }
        last = lane->current;
        lh_grpc_move(rpc, lane, in_time ? "no connection" : "no connection before a deadline");
        call->refused = in_time ? call->refused + 1 : n;
    }
    call->error = g_error_new(LH_ERROR, LH_ERR_UNAVAILABLE,
                              "etcd %s: no connection to %s%s; not sent",
                              rpc->methods[call->method].name, lh_channels_url(rpc->channels, last),
                              n > 1 ? " or another endpoint" : "");
    lh_grpc_post(rpc, &call->posted, deliver_call);
}

LhRpcCall *lh_rpc_call(LhRpc *rpc, guint method, LhBytes request, gint64 deadline_ms,
                       LhRpcFunc func, gpointer data)
{
    LhRpcCall *call = call_new(rpc, func, data);
    call->method = method;
    call->unsent = request;
    call->deadline = gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                                  gpr_time_from_millis(MAX(deadline_ms, 1), GPR_TIMESPAN));
    if (rpc->methods[method].kind == LH_RPC_WRITE || lh_channels_n(rpc->channels) > 1)
        call_send_connected(call);
    else
        call_send(call);
    return call;
}

LhRpcCall *lh_rpc_refuse(LhRpc *rpc, GError *error, LhRpcFunc func, gpointer data)
{
    LhRpcCall *call = call_new(rpc, func, data);
    call->error = error;
    lh_grpc_post(rpc, &call->posted, deliver_call);
    return call;
}

void lh_rpc_cancel(LhRpcCall *call)
{
    call->cancelled = TRUE;
    if (call->call != NULL && call->rpc->closing)
        grpc_call_cancel(call->call, NULL);
}

/* --- the whole --- */

/* What gRPC calls an error is a connection that failed: calls report that themselves, an outage has one
 * every second, and only some (of TLS) say more than the calls do. */
static void log_grpc(gpr_log_func_args *args)
{
    static gint64 said_s; /* atomic by its alignment; two lines at a time harm nobody */
    LhLogLevel level = LH_LOG_DEBUG;
    if (args->severity == GPR_LOG_SEVERITY_ERROR) {
        gint64 now_s = g_get_monotonic_time() / G_USEC_PER_SEC;
        gint64 before_s = __atomic_load_n(&said_s, __ATOMIC_RELAXED);
        if (before_s == 0 || now_s - before_s >= GRPC_SAYS_EVERY_S) {
            __atomic_store_n(&said_s, now_s, __ATOMIC_RELAXED);
            level = LH_LOG_WARNING;
        }
    }
    lh_log(level, "grpc", "text", args->message, NULL);
}

static GSource *make_source(LhRpc *rpc, GSourceFuncs *funcs, const char *name,
                            GMainContext *context)
{
    GSource *source = g_source_new(funcs, sizeof(LhRpcSource));
    ((LhRpcSource *)source)->rpc = rpc;
    g_source_set_static_name(source, name);
    g_source_attach(source, context);
    return source;
}

LhRpc *lh_rpc_new(const LhRpcServers *servers, const LhRpcMethod *methods, guint n_methods,
                  GMainContext *context)
{
    static GSourceFuncs funcs = {.dispatch = dispatch};
    static GSourceFuncs silence_funcs = {.dispatch = lh_grpc_dispatch_silence};
    gpr_set_log_function(log_grpc);
    grpc_init();
    LhRpc *rpc = g_rc_box_new0(LhRpc);
    rpc->methods = methods;
    rpc->channels = lh_channels_new(servers, methods, n_methods);
    g_mutex_init(&rpc->lock);
    g_cond_init(&rpc->not_empty);
    rpc->posted_tail = &rpc->posted;
    rpc->ready_tail = &rpc->ready;
    g_queue_init(&rpc->calls);
    g_queue_init(&rpc->streams);
    rpc->source = make_source(rpc, &funcs, "etcd", context);
    rpc->silence = make_source(rpc, &silence_funcs, "etcd silence", context);
    for (guint i = 0; i < G_N_ELEMENTS(rpc->threads); i++)
        rpc->threads[i] = g_thread_new(i == 0 ? "etcd" : "etcd leases", run_queue,
                                       lh_channels_lane(rpc->channels, i == 1)->queue);
    return rpc;
}

void lh_rpc_free(LhRpc *rpc)
{
    rpc->closing = TRUE;
    for (GList *link = rpc->calls.head; link != NULL; link = link->next)
        lh_rpc_cancel(link->data);
    for (GList *link = rpc->streams.head; link != NULL; link = link->next)
        lh_rpc_drop(link->data);
    /* Ends the waiting for a connection too. */
    lh_channels_close(rpc->channels);
    while (rpc->calls.length + rpc->streams.length > 0) {
        if (!deliver_next(rpc))
            take_posted(rpc, TRUE);
    }
    /* Only now, with nothing under way: a batch must not be started on a queue that shuts down. */
    for (guint i = 0; i < G_N_ELEMENTS(rpc->threads); i++) {
        grpc_completion_queue_shutdown(lh_channels_lane(rpc->channels, i == 1)->queue);
        g_thread_join(rpc->threads[i]);
    }
    lh_channels_free(rpc->channels);
    g_source_destroy(rpc->source);
    g_source_unref(rpc->source);
    g_source_destroy(rpc->silence);
    g_source_unref(rpc->silence);
    g_free(rpc->token);
    grpc_shutdown();
    g_rc_box_release_full(rpc, finalize);
}

guint lh_rpc_n_endpoints(const LhRpc *rpc)
{
    return lh_channels_n(rpc->channels);
}

const char *lh_rpc_url(const LhRpc *rpc, guint endpoint)
{
    return lh_channels_url(rpc->channels, endpoint);
}

guint lh_rpc_endpoint(LhRpc *rpc, guint method)
{
    return lh_grpc_lane(rpc, method)->current;
}

void lh_rpc_prefer(LhRpc *rpc, guint method, guint endpoint)
{
    lh_grpc_lane(rpc, method)->current = endpoint;
}

void lh_rpc_set_token(LhRpc *rpc, const char *token)
{
    g_free(rpc->token);
    rpc->token = g_strdup(token);
}
