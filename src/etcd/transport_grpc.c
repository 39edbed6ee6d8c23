/*
 * rpc.h on gRPC's C core. The only file that includes <grpc/…>; it knows nothing of etcd but its lease
 * connection and the hasleader metadata.
 *
 * The loop thread starts calls. A lane's thread sits in grpc_completion_queue_next, decodes replies
 * into memory that nobody else touches yet, and posts them; a GSource on the loop delivers what was
 * posted, in order. Whether a call still has an owner (cancelled, dropped, closing) is the loop's to
 * know alone. It must not retry anything, and nothing here outlives lh_rpc_free.
 */
#include "base/errors.h"
#include "base/log.h"
#include "etcd/rpc.h"

#include <grpc/byte_buffer.h>
#include <grpc/byte_buffer_reader.h>
#include <grpc/grpc.h>
#include <grpc/grpc_security.h>
#include <grpc/support/log.h>
#include <grpc/support/time.h>

/* Delivered in one turn of the loop, so that timers and other sources get theirs. */
#define DELIVER_AT_ONCE 256
/* Received on one stream and not delivered yet. Beyond it the stream is not read, until the loop has
 * caught up: etcd buffers, and then treats the watcher as slow. */
#define STREAM_QUEUE_BYTES (32 * 1024 * 1024)

/* An item on the way to the loop. */
typedef struct Posted Posted;
struct Posted {
    Posted *next;
    void (*deliver)(LhRpc *rpc, Posted *posted); /* loop */
};

/* What gRPC is asked to do; its address is the tag. */
typedef struct {
    gint begun; /* atomic: hands the owner's memory from the loop to the lane's thread */
    void (*ended)(gpointer owner, gboolean ok); /* lane's thread */
    gpointer owner;
} Op;

/* A connection with a thread of its own. Leases have one for themselves: their answers must not wait
 * until a page of 100 MB has been received and decoded. */
typedef struct {
    grpc_completion_queue *queue;
    grpc_channel *channel;
    GThread *thread;
} Lane;

struct LhRpc {
    const LhRpcMethod *methods;
    Lane lanes[2];     /* leases: 1 */
    void **registered; /* by method */
    char *target;
    GSource *source; /* delivers what was posted */

    GMutex lock;
    GCond not_empty;
    Posted *posted, **posted_tail; /* under the lock */

    /* The loop's. */
    Posted *ready, **ready_tail; /* taken from posted, not delivered yet */
    GQueue calls, streams;       /* by their links: what a lane's thread may still speak of */
    gboolean closing;
};

struct LhRpcCall {
    Posted posted; /* first */
    Op op;
    LhRpc *rpc;
    guint method;
    gpr_timespec deadline;
    LhBytes unsent;  /* until it is handed to gRPC */
    grpc_call *call; /* NULL: not handed to gRPC */
    grpc_byte_buffer *request, *received;
    grpc_metadata_array initial, trailing;
    grpc_status_code code;
    grpc_slice details;
    LhArena arena;
    gpointer reply; /* in the arena; or */
    GError *error;
    /* The loop's. */
    GList link;
    gboolean cancelled;
    LhRpcFunc func;
    gpointer data;
};

struct LhRpcStream {
    Posted closed; /* first */
    Posted sent;
    Op send, receive, end;
    LhRpc *rpc;
    guint method;
    grpc_call *call;
    grpc_byte_buffer *request, *received;
    grpc_metadata_array initial, trailing;
    gboolean asked_initial; /* belongs to whoever starts the next receive */
    grpc_status_code code;
    grpc_slice details;
    gint pending; /* atomic: batches begun and not ended, and a reply that holds back the next */
    gint queued_bytes; /* atomic */
    /* The loop's. */
    GList link;
    gboolean sending, dropped;
    GQueue unsent; /* of LhBytes */
    LhRpcReplyFunc on_reply;
    LhRpcClosedFunc on_closed;
    gpointer data;
};

/* One reply of a stream. */
typedef struct {
    Posted posted; /* first */
    LhRpcStream *stream;
    LhArena arena;
    gpointer reply;
    gint bytes;
    gboolean resume; /* the queue was full: receive again when this is delivered */
} Reply;

/* --- between the threads --- */

static void post(LhRpc *rpc, Posted *posted, void (*deliver)(LhRpc *rpc, Posted *posted))
{
    posted->deliver = deliver;
    posted->next = NULL;
    g_mutex_lock(&rpc->lock);
    gboolean first = rpc->posted == NULL;
    *rpc->posted_tail = posted;
    rpc->posted_tail = &posted->next;
    g_cond_signal(&rpc->not_empty);
    g_mutex_unlock(&rpc->lock);
    if (first)
        g_source_set_ready_time(rpc->source, 0);
}

static void take_posted(LhRpc *rpc, gboolean wait)
{
    g_mutex_lock(&rpc->lock);
    while (wait && rpc->posted == NULL)
        g_cond_wait(&rpc->not_empty, &rpc->lock);
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
    Posted *posted = rpc->ready;
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

typedef struct {
    GSource base;
    LhRpc *rpc;
} Source;

static gboolean dispatch(GSource *source, G_GNUC_UNUSED GSourceFunc func,
                         G_GNUC_UNUSED gpointer data)
{
    /* A callback may free it: it stays allocated until this returns. */
    LhRpc *rpc = g_rc_box_acquire(((Source *)source)->rpc);
    /* Before taking: whoever posts after that finds the queue empty and sets it again. */
    g_source_set_ready_time(source, -1);
    take_posted(rpc, FALSE);
    for (guint n = 0; n < DELIVER_AT_ONCE && deliver_next(rpc); n++)
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
        Op *op = event.tag;
        g_assert(g_atomic_int_get(&op->begun));
        op->ended(op->owner, event.success != 0);
    }
}

static void start_batch(grpc_call *call, const grpc_op *ops, gsize n, Op *op)
{
    g_atomic_int_set(&op->begun, TRUE);
    grpc_call_error misuse = grpc_call_start_batch(call, ops, n, op, NULL);
    g_assert(misuse == GRPC_CALL_OK);
}

/* --- bytes and operations --- */

static grpc_byte_buffer *make_buffer(LhBytes bytes)
{
    grpc_slice slice = grpc_slice_new(bytes.data, bytes.len, g_free);
    grpc_byte_buffer *buffer = grpc_raw_byte_buffer_create(&slice, 1);
    grpc_slice_unref(slice);
    return buffer;
}

static gpointer decode(const LhRpcMethod *method, LhArena *arena, grpc_byte_buffer *buffer)
{
    grpc_byte_buffer_reader reader;
    if (!grpc_byte_buffer_reader_init(&reader, buffer))
        return NULL;
    grpc_slice all = grpc_byte_buffer_reader_readall(&reader);
    grpc_byte_buffer_reader_destroy(&reader);
    gpointer reply = method->decode(arena, GRPC_SLICE_START_PTR(all), GRPC_SLICE_LENGTH(all));
    grpc_slice_unref(all);
    return reply;
}

static grpc_op send_metadata_op(grpc_metadata *metadata, gsize n)
{
    grpc_op op = {.op = GRPC_OP_SEND_INITIAL_METADATA};
    op.data.send_initial_metadata.metadata = metadata;
    op.data.send_initial_metadata.count = n;
    return op;
}

static grpc_op send_message_op(grpc_byte_buffer *message)
{
    grpc_op op = {.op = GRPC_OP_SEND_MESSAGE};
    op.data.send_message.send_message = message;
    return op;
}

static grpc_op receive_metadata_op(grpc_metadata_array *metadata)
{
    grpc_op op = {.op = GRPC_OP_RECV_INITIAL_METADATA};
    op.data.recv_initial_metadata.recv_initial_metadata = metadata;
    return op;
}

static grpc_op receive_message_op(grpc_byte_buffer **message)
{
    grpc_op op = {.op = GRPC_OP_RECV_MESSAGE};
    op.data.recv_message.recv_message = message;
    return op;
}

static grpc_op receive_status_op(grpc_metadata_array *metadata, grpc_status_code *code,
                                 grpc_slice *details)
{
    grpc_op op = {.op = GRPC_OP_RECV_STATUS_ON_CLIENT};
    op.data.recv_status_on_client.trailing_metadata = metadata;
    op.data.recv_status_on_client.status = code;
    op.data.recv_status_on_client.status_details = details;
    return op;
}

static GError *make_error(const LhRpcMethod *method, grpc_status_code code, grpc_slice details)
{
    return lh_rpc_error(method->name, method->kind, (int)code,
                        (const char *)GRPC_SLICE_START_PTR(details), GRPC_SLICE_LENGTH(details));
}

static const Lane *get_lane(const LhRpc *rpc, guint method)
{
    return &rpc->lanes[rpc->methods[method].lease];
}

static grpc_call *make_call(LhRpc *rpc, guint method, gpr_timespec deadline)
{
    const Lane *lane = get_lane(rpc, method);
    return grpc_channel_create_registered_call(lane->channel, NULL, GRPC_PROPAGATE_DEFAULTS,
                                               lane->queue, rpc->registered[method], deadline,
                                               NULL);
}

/* --- unary calls --- */

static void deliver_call(LhRpc *rpc, Posted *posted)
{
    LhRpcCall *call = (LhRpcCall *)posted;
    g_queue_unlink(&rpc->calls, &call->link);
    /* All of gRPC's before the callback, which may free the transport. */
    if (call->call != NULL)
        grpc_call_unref(call->call);
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
        call->error = make_error(method, call->code, call->details);
    } else {
        call->reply = decode(method, &call->arena, call->received);
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
    post(call->rpc, &call->posted, deliver_call);
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
    call->op = (Op){.ended = call_ended, .owner = call};
    call->call = make_call(call->rpc, call->method, call->deadline);
    call->request = make_buffer(call->unsent);
    call->unsent = (LhBytes){0};
    grpc_metadata_array_init(&call->initial);
    grpc_metadata_array_init(&call->trailing);
    const grpc_op ops[] = {
        send_metadata_op(NULL, 0),
        send_message_op(call->request),
        {.op = GRPC_OP_SEND_CLOSE_FROM_CLIENT},
        receive_metadata_op(&call->initial),
        receive_message_op(&call->received),
        receive_status_op(&call->trailing, &call->code, &call->details),
    };
    start_batch(call->call, ops, G_N_ELEMENTS(ops), &call->op);
}

static void call_send_connected(LhRpcCall *call);

static void deliver_connectivity(LhRpc *rpc, Posted *posted)
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
    post(call->rpc, &call->posted, deliver_connectivity);
}

/* For writes. gRPC does not tell whether a call that failed was ever sent; one that was not handed to
 * it surely was not. So a write waits here until its channel is connected, and fails here if it cannot;
 * from then on its failures have an unknown outcome. */
static void call_send_connected(LhRpcCall *call)
{
    LhRpc *rpc = call->rpc;
    const Lane *lane = get_lane(rpc, call->method);
    grpc_connectivity_state state = grpc_channel_check_connectivity_state(lane->channel, TRUE);
    if (state == GRPC_CHANNEL_READY) {
        call_send(call);
        return;
    }
    gboolean connecting = state == GRPC_CHANNEL_IDLE || state == GRPC_CHANNEL_CONNECTING;
    if (connecting && gpr_time_cmp(gpr_now(GPR_CLOCK_MONOTONIC), call->deadline) < 0) {
        call->op = (Op){.ended = connectivity_changed, .owner = call};
        g_atomic_int_set(&call->op.begun, TRUE);
        grpc_channel_watch_connectivity_state(lane->channel, state, call->deadline, lane->queue,
                                              &call->op);
        return;
    }
    call->error = g_error_new(LH_ERROR, LH_ERR_UNAVAILABLE,
                              "etcd %s: no connection to %s; not sent",
                              rpc->methods[call->method].name,
                              rpc->target + (g_str_has_prefix(rpc->target, "dns:///") ? 7 : 0));
    post(rpc, &call->posted, deliver_call);
}

LhRpcCall *lh_rpc_call(LhRpc *rpc, guint method, LhBytes request, gint64 deadline_ms,
                       LhRpcFunc func, gpointer data)
{
    LhRpcCall *call = call_new(rpc, func, data);
    call->method = method;
    call->unsent = request;
    call->deadline = gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                                  gpr_time_from_millis(MAX(deadline_ms, 1), GPR_TIMESPAN));
    if (rpc->methods[method].kind == LH_RPC_WRITE)
        call_send_connected(call);
    else
        call_send(call);
    return call;
}

LhRpcCall *lh_rpc_refuse(LhRpc *rpc, GError *error, LhRpcFunc func, gpointer data)
{
    LhRpcCall *call = call_new(rpc, func, data);
    call->error = error;
    post(rpc, &call->posted, deliver_call);
    return call;
}

void lh_rpc_cancel(LhRpcCall *call)
{
    call->cancelled = TRUE;
    if (call->call != NULL)
        grpc_call_cancel(call->call, NULL);
}

/* --- streams --- */

static void stream_free(LhRpcStream *stream)
{
    for (LhBytes *bytes = NULL; (bytes = g_queue_pop_head(&stream->unsent)) != NULL;) {
        g_free(bytes->data);
        g_free(bytes);
    }
    grpc_metadata_array_destroy(&stream->initial);
    grpc_metadata_array_destroy(&stream->trailing);
    grpc_slice_unref(stream->details);
    grpc_call_unref(stream->call);
    g_free(stream);
}

static void deliver_closed(LhRpc *rpc, Posted *posted)
{
    LhRpcStream *stream = (LhRpcStream *)posted;
    g_queue_unlink(&rpc->streams, &stream->link);
    gboolean silent = stream->dropped || rpc->closing;
    LhRpcClosedFunc on_closed = stream->on_closed;
    gpointer data = stream->data;
    g_autoptr(GError) error = make_error(&rpc->methods[stream->method], stream->code,
                                         stream->details);
    /* Before the callback, which may free the transport. */
    stream_free(stream);
    if (!silent)
        on_closed(error, data);
}

/* FALSE: all has ended and closed is posted; nothing may be started any more. */
static gboolean stream_pend(LhRpcStream *stream)
{
    for (;;) {
        gint pending = g_atomic_int_get(&stream->pending);
        if (pending == 0)
            return FALSE;
        if (g_atomic_int_compare_and_exchange(&stream->pending, pending, pending + 1))
            return TRUE;
    }
}

static void stream_unpend(LhRpcStream *stream)
{
    if (g_atomic_int_dec_and_test(&stream->pending))
        post(stream->rpc, &stream->closed, deliver_closed);
}

/* Takes over one pending. */
static void stream_receive(LhRpcStream *stream)
{
    const grpc_op ops[] = {
        receive_message_op(&stream->received),
        receive_metadata_op(&stream->initial),
    };
    gsize n = stream->asked_initial ? 1 : 2;
    stream->asked_initial = TRUE;
    start_batch(stream->call, ops, n, &stream->receive);
}

static void deliver_reply(LhRpc *rpc, Posted *posted)
{
    Reply *reply = (Reply *)posted;
    LhRpcStream *stream = reply->stream;
    g_atomic_int_add(&stream->queued_bytes, -reply->bytes);
    /* Before the callback: that may free the transport, which waits for the stream's end. */
    if (reply->resume)
        stream_receive(stream);
    if (!stream->dropped && !rpc->closing)
        stream->on_reply(reply->reply, stream->data);
    lh_arena_clear(&reply->arena);
    g_free(reply);
}

static void stream_received(gpointer owner, gboolean ok)
{
    LhRpcStream *stream = owner;
    if (!ok || stream->received == NULL) {
        stream_unpend(stream);
        return;
    }
    Reply *reply = g_new0(Reply, 1);
    reply->stream = stream;
    reply->bytes = (gint)MIN(grpc_byte_buffer_length(stream->received), G_MAXINT / 2);
    reply->reply = decode(&stream->rpc->methods[stream->method], &reply->arena, stream->received);
    grpc_byte_buffer_destroy(stream->received);
    stream->received = NULL;
    if (reply->reply == NULL) {
        lh_arena_clear(&reply->arena);
        g_free(reply);
        grpc_call_cancel_with_status(stream->call, GRPC_STATUS_INTERNAL, "malformed reply", NULL);
        stream_receive(stream);
        return;
    }
    gint queued = g_atomic_int_add(&stream->queued_bytes, reply->bytes) + reply->bytes;
    gboolean full = queued > STREAM_QUEUE_BYTES;
    reply->resume = full;
    /* Delivered, a reply may resume: nothing of the stream is touched after this if it is full. */
    post(stream->rpc, &reply->posted, deliver_reply);
    if (!full)
        stream_receive(stream);
}

static void stream_ended(gpointer owner, G_GNUC_UNUSED gboolean ok)
{
    stream_unpend(owner);
}

static void deliver_sent(LhRpc *rpc, Posted *posted)
{
    LhRpcStream *stream = (LhRpcStream *)((char *)posted - offsetof(LhRpcStream, sent));
    stream->sending = FALSE;
    g_autofree LhBytes *next = g_queue_pop_head(&stream->unsent);
    if (next == NULL)
        return;
    if (stream->dropped || rpc->closing)
        g_free(next->data);
    else
        lh_rpc_send(stream, *next);
}

static void stream_sent(gpointer owner, G_GNUC_UNUSED gboolean ok)
{
    LhRpcStream *stream = owner;
    grpc_byte_buffer_destroy(stream->request);
    stream->request = NULL;
    post(stream->rpc, &stream->sent, deliver_sent);
    stream_unpend(stream);
}

void lh_rpc_send(LhRpcStream *stream, LhBytes message)
{
    if (stream->sending) {
        g_queue_push_tail(&stream->unsent, g_memdup2(&message, sizeof message));
        return;
    }
    if (!stream_pend(stream)) {
        g_free(message.data);
        return;
    }
    stream->sending = TRUE;
    stream->request = make_buffer(message);
    const grpc_op op = send_message_op(stream->request);
    start_batch(stream->call, &op, 1, &stream->send);
}

LhRpcStream *lh_rpc_open(LhRpc *rpc, guint method, LhBytes first, LhRpcReplyFunc on_reply,
                         LhRpcClosedFunc on_closed, gpointer data)
{
    LhRpcStream *stream = g_new0(LhRpcStream, 1);
    stream->rpc = rpc;
    stream->method = method;
    stream->on_reply = on_reply;
    stream->on_closed = on_closed;
    stream->data = data;
    stream->send = (Op){.ended = stream_sent, .owner = stream};
    stream->receive = (Op){.ended = stream_received, .owner = stream};
    stream->end = (Op){.ended = stream_ended, .owner = stream};
    grpc_metadata_array_init(&stream->initial);
    grpc_metadata_array_init(&stream->trailing);
    g_queue_init(&stream->unsent);
    stream->link.data = stream;
    g_queue_push_tail_link(&rpc->streams, &stream->link);
    stream->pending = 3;
    stream->sending = TRUE;
    stream->request = make_buffer(first);
    stream->call = make_call(rpc, method, gpr_inf_future(GPR_CLOCK_REALTIME));
    /* etcd ends the stream when its member loses the leader. Static slices need no unref. */
    grpc_metadata leader = {.key = grpc_slice_from_static_string("hasleader"),
                            .value = grpc_slice_from_static_string("true")};
    const grpc_op begin[] = {send_metadata_op(&leader, 1), send_message_op(stream->request)};
    start_batch(stream->call, begin, G_N_ELEMENTS(begin), &stream->send);
    stream_receive(stream);
    const grpc_op end = receive_status_op(&stream->trailing, &stream->code, &stream->details);
    start_batch(stream->call, &end, 1, &stream->end);
    return stream;
}

void lh_rpc_drop(LhRpcStream *stream)
{
    stream->dropped = TRUE;
    grpc_call_cancel(stream->call, NULL);
}

/* --- the whole --- */

static void log_grpc(gpr_log_func_args *args)
{
    static const LhLogLevel levels[] = {
        [GPR_LOG_SEVERITY_DEBUG] = LH_LOG_DEBUG,
        [GPR_LOG_SEVERITY_INFO] = LH_LOG_INFO,
        [GPR_LOG_SEVERITY_ERROR] = LH_LOG_WARNING, /* calls report their errors themselves */
    };
    lh_log(levels[args->severity], "grpc", "text", args->message, NULL);
}

static grpc_channel *make_channel(const char *target)
{
    static const struct {
        const char *name;
        int value;
    } settings[] = {
        {GRPC_ARG_KEEPALIVE_TIME_MS, 10000},
        {GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 5000},
        {GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 0},
        {GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0},
        {GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100},
        /* The least time that one attempt gets; attempts that fail at once do not wait for it. */
        {GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 1000},
        {GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 2000},
        {GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH, -1},
        {GRPC_ARG_ENABLE_RETRIES, 0},                    /* nothing is retried below etcd.h */
        {GRPC_ARG_SERVICE_CONFIG_DISABLE_RESOLUTION, 1}, /* no TXT lookups */
        {GRPC_ARG_ENABLE_HTTP_PROXY, 0},                 /* http_proxy is for other traffic */
        {GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1},         /* else the lanes share a connection */
    };
    grpc_arg args[G_N_ELEMENTS(settings)];
    for (gsize i = 0; i < G_N_ELEMENTS(settings); i++) {
        args[i].type = GRPC_ARG_INTEGER;
        args[i].key = (char *)(guintptr)settings[i].name;
        args[i].value.integer = settings[i].value;
    }
    grpc_channel_args all = {.num_args = G_N_ELEMENTS(args), .args = args};
    grpc_channel_credentials *plain = grpc_insecure_credentials_create();
    grpc_channel *channel = grpc_channel_create(target, plain, &all);
    grpc_channel_credentials_release(plain);
    return channel;
}

LhRpc *lh_rpc_new(const char *target, const LhRpcMethod *methods, guint n_methods,
                  GMainContext *context)
{
    static GSourceFuncs funcs = {.dispatch = dispatch};
    gpr_set_log_function(log_grpc);
    grpc_init();
    LhRpc *rpc = g_rc_box_new0(LhRpc);
    rpc->methods = methods;
    for (guint i = 0; i < G_N_ELEMENTS(rpc->lanes); i++) {
        rpc->lanes[i].queue = grpc_completion_queue_create_for_next(NULL);
        rpc->lanes[i].channel = make_channel(target);
    }
    rpc->target = g_strdup(target);
    rpc->registered = g_new(void *, n_methods);
    for (guint i = 0; i < n_methods; i++)
        rpc->registered[i] = grpc_channel_register_call(get_lane(rpc, i)->channel, methods[i].path,
                                                        NULL, NULL);
    g_mutex_init(&rpc->lock);
    g_cond_init(&rpc->not_empty);
    rpc->posted_tail = &rpc->posted;
    rpc->ready_tail = &rpc->ready;
    g_queue_init(&rpc->calls);
    g_queue_init(&rpc->streams);
    rpc->source = g_source_new(&funcs, sizeof(Source));
    ((Source *)rpc->source)->rpc = rpc;
    g_source_set_static_name(rpc->source, "etcd");
    g_source_attach(rpc->source, context);
    for (guint i = 0; i < G_N_ELEMENTS(rpc->lanes); i++)
        rpc->lanes[i].thread = g_thread_new(i == 0 ? "etcd" : "etcd leases", run_queue,
                                            rpc->lanes[i].queue);
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
    for (guint i = 0; i < G_N_ELEMENTS(rpc->lanes); i++)
        grpc_channel_destroy(rpc->lanes[i].channel);
    while (rpc->calls.length + rpc->streams.length > 0) {
        if (!deliver_next(rpc))
            take_posted(rpc, TRUE);
    }
    /* Only now, with nothing under way: a batch must not be started on a queue that shuts down. */
    for (guint i = 0; i < G_N_ELEMENTS(rpc->lanes); i++) {
        grpc_completion_queue_shutdown(rpc->lanes[i].queue);
        g_thread_join(rpc->lanes[i].thread);
        grpc_completion_queue_destroy(rpc->lanes[i].queue);
    }
    g_source_destroy(rpc->source);
    g_source_unref(rpc->source);
    g_free(rpc->registered);
    g_free(rpc->target);
    grpc_shutdown();
    g_rc_box_release_full(rpc, finalize);
}
