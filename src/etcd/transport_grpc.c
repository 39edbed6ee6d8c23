/*
 * rpc.h on gRPC's C core. With transport_channels.c the only file that includes <grpc/…>; it knows
 * nothing of etcd but its lease connection and the metadata hasleader and token.
 *
 * The loop thread starts calls. A lane's thread sits in grpc_completion_queue_next, decodes replies
 * into memory that nobody else touches yet, and posts them; a GSource on the loop delivers what was
 * posted, in order. Whether a call still has an owner (cancelled, dropped, closing) is the loop's to
 * know alone. It must not retry anything, and nothing here outlives lh_rpc_free.
 */
#include "base/errors.h"
#include "base/log.h"
#include "etcd/rpc.h"
#include "etcd/transport_channels.h"

#include <grpc/byte_buffer.h>
#include <grpc/byte_buffer_reader.h>
#include <grpc/support/log.h>
#include <grpc/support/time.h>

/* Delivered in one turn of the loop, so that timers and other sources get theirs. */
#define DELIVER_AT_ONCE 256
/* Received on one stream and not delivered yet. Beyond it the stream is not read, until the loop has
 * caught up: etcd buffers, and then treats the watcher as slow. */
#define STREAM_QUEUE_BYTES (32 * 1024 * 1024)

/* With several endpoints: how long a stream may leave a message without any answer. */
#define SILENCE_US (3 * G_USEC_PER_SEC)
/* Between two lines that gRPC wants to be read. */
#define GRPC_SAYS_EVERY_S 60

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

/* Each lane has a thread of its own. Leases have one for themselves: their answers must not wait until
 * a page of 100 MB has been received and decoded. */
struct LhRpc {
    const LhRpcMethod *methods;
    LhChannels *channels;
    GThread *threads[2]; /* leases: 1 */
    GSource *source;     /* delivers what was posted */

    GMutex lock;
    GCond not_empty;
    Posted *posted, **posted_tail; /* under the lock */

    /* The loop's. */
    Posted *ready, **ready_tail; /* taken from posted, not delivered yet */
    GQueue calls, streams;       /* by their links: what a lane's thread may still speak of */
    GSource *silence;            /* when the next stream has been silent for too long */
    char *token;                 /* NULL: none */
    gboolean closing;
};

struct LhRpcCall {
    Posted posted; /* first */
    Op op;
    LhRpc *rpc;
    guint method;
    guint endpoint, moves; /* where it went, and of the lane when it did */
    gint64 sent_us;
    guint refused; /* endpoints without a connection that it has seen */
    gpr_timespec deadline;
    LhBytes unsent;  /* until it is handed to gRPC */
    grpc_call *call; /* NULL: not handed to gRPC */
    grpc_byte_buffer *request, *received;
    grpc_metadata_array initial, trailing;
    grpc_status_code code;
    grpc_slice details, token;
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
    guint endpoint, moves;
    gboolean pinned; /* to its endpoint */
    grpc_call *call;
    grpc_byte_buffer *request, *received;
    grpc_metadata_array initial, trailing;
    gboolean asked_initial; /* belongs to whoever starts the next receive */
    grpc_status_code code;
    grpc_slice details, token;
    gint pending; /* atomic: batches begun and not ended, and a reply that holds back the next */
    gint queued_bytes; /* atomic */
    /* The loop's. */
    GList link;
    gboolean sending, dropped;
    gint64 asked_us; /* since when something is unanswered; 0: nothing is */
    GQueue unsent;   /* of LhBytes */
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

static LhLane *get_lane(const LhRpc *rpc, guint method)
{
    return lh_channels_lane(rpc->channels, rpc->methods[method].lease);
}

static grpc_call *make_call(LhRpc *rpc, guint method, guint endpoint, gpr_timespec deadline)
{
    LhLane *lane = get_lane(rpc, method);
    const LhChannel *channel = lh_channels_get(rpc->channels, lane, endpoint);
    return grpc_channel_create_registered_call(channel->channel, NULL, GRPC_PROPAGATE_DEFAULTS,
                                               lane->queue, channel->registered[method], deadline,
                                               NULL);
}

/* Static slices need no unref; the token's belongs to the caller until the call has ended. */
static grpc_metadata token_metadata(grpc_slice token)
{
    return (grpc_metadata){.key = grpc_slice_from_static_string("token"), .value = token};
}

static grpc_slice make_token(const LhRpc *rpc, guint method)
{
    return rpc->token != NULL && !rpc->methods[method].anonymous
               ? grpc_slice_from_copied_string(rpc->token)
               : grpc_empty_slice();
}

/* --- which endpoint --- */

/* What the lane has under way on the endpoint that it leaves ends as if that had gone away. */
static void move(LhRpc *rpc, LhLane *lane, const char *why)
{
    guint from = lane->current;
    if (lh_channels_n(rpc->channels) == 1 || rpc->closing)
        return;
    lh_channels_move(rpc->channels, lane, why);
    for (GList *link = rpc->calls.head; link != NULL; link = link->next) {
        const LhRpcCall *call = link->data;
        if (call->call != NULL && call->endpoint == from && get_lane(rpc, call->method) == lane)
            grpc_call_cancel_with_status(call->call, GRPC_STATUS_UNAVAILABLE,
                                         "given up for another endpoint", NULL);
    }
    for (GList *link = rpc->streams.head; link != NULL; link = link->next) {
        const LhRpcStream *stream = link->data;
        if (!stream->pinned && stream->endpoint == from && get_lane(rpc, stream->method) == lane)
            grpc_call_cancel_with_status(stream->call, GRPC_STATUS_UNAVAILABLE,
                                         "given up for another endpoint", NULL);
    }
}

static void heard(LhRpc *rpc, guint method, guint endpoint)
{
    if (rpc->closing) /* the channels are gone */
        return;
    LhChannel *channel = lh_channels_get(rpc->channels, get_lane(rpc, method), endpoint);
    channel->heard_us = g_get_monotonic_time();
    if (!rpc->methods[method].alone)
        channel->agreed_us = channel->heard_us;
}

/* What the end of a call or stream that was sent at @sent_us says of its endpoint. A deadline alone says
 * nothing (a page of 100 MB takes its time) unless there was no answer to anything else either; answers
 * that a member gives without a leader do not count for what takes one. @moves: the lane's when it was
 * sent: what a move ended, or what ended before, is no reason for another. */
static void judge(LhRpc *rpc, guint method, guint endpoint, guint moves, grpc_status_code code,
                  gint64 sent_us)
{
    LhLane *lane = get_lane(rpc, method);
    const LhChannel *channel = lh_channels_get(rpc->channels, lane, endpoint);
    if (code == GRPC_STATUS_OK)
        heard(rpc, method, endpoint);
    if (moves != lane->moves || endpoint != lane->current)
        return;
    gint64 heard_us = rpc->methods[method].alone ? channel->heard_us : channel->agreed_us;
    if (code == GRPC_STATUS_UNAVAILABLE)
        move(rpc, lane, "unavailable");
    else if (code == GRPC_STATUS_DEADLINE_EXCEEDED && heard_us < sent_us)
        move(rpc, lane, "no answer before a deadline");
}

static grpc_connectivity_state connectivity(LhRpc *rpc, LhLane *lane)
{
    return grpc_channel_check_connectivity_state(
        lh_channels_get(rpc->channels, lane, lane->current)->channel, TRUE);
}

/* --- unary calls --- */

static void deliver_call(LhRpc *rpc, Posted *posted)
{
    LhRpcCall *call = (LhRpcCall *)posted;
    g_queue_unlink(&rpc->calls, &call->link);
    /* All of gRPC's before the callback, which may free the transport. */
    if (call->call != NULL) {
        grpc_call_unref(call->call);
        if (!call->cancelled && !rpc->closing)
            judge(rpc, call->method, call->endpoint, call->moves, call->code, call->sent_us);
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
    grpc_slice_unref(call->token);
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
    const LhLane *lane = get_lane(call->rpc, call->method);
    call->endpoint = lane->current;
    call->moves = lane->moves;
    call->sent_us = g_get_monotonic_time();
    call->call = make_call(call->rpc, call->method, call->endpoint, call->deadline);
    call->token = make_token(call->rpc, call->method);
    grpc_metadata token = token_metadata(call->token);
    call->request = make_buffer(call->unsent);
    call->unsent = (LhBytes){0};
    grpc_metadata_array_init(&call->initial);
    grpc_metadata_array_init(&call->trailing);
    const grpc_op ops[] = {
        send_metadata_op(&token, GRPC_SLICE_LENGTH(call->token) > 0 ? 1 : 0),
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

/* For writes, and for all where there are several endpoints. gRPC does not tell whether a call that
 * failed was ever sent; one that was not handed to it surely was not. So a call waits here until its
 * lane's endpoint is connected, sees each endpoint refuse at most once, and fails here if none is left;
 * once it is handed over, the failure of a write has an unknown outcome. */
static void call_send_connected(LhRpcCall *call)
{
    LhRpc *rpc = call->rpc;
    LhLane *lane = get_lane(rpc, call->method);
    gboolean in_time = gpr_time_cmp(gpr_now(GPR_CLOCK_MONOTONIC), call->deadline) < 0;
    guint n = lh_channels_n(rpc->channels);
    guint last = lane->current;
    while (call->refused < n) {
        grpc_connectivity_state state = connectivity(rpc, lane);
        if (state == GRPC_CHANNEL_READY) {
            call_send(call);
            return;
        }
        if (in_time && (state == GRPC_CHANNEL_IDLE || state == GRPC_CHANNEL_CONNECTING)) {
            call->op = (Op){.ended = connectivity_changed, .owner = call};
            g_atomic_int_set(&call->op.begun, TRUE);
            grpc_channel_watch_connectivity_state(
                lh_channels_get(rpc->channels, lane, lane->current)->channel, state,
                call->deadline, lane->queue, &call->op);
            return;
        }
        last = lane->current;
        move(rpc, lane, in_time ? "no connection" : "no connection before a deadline");
        call->refused = in_time ? call->refused + 1 : n;
    }
    call->error = g_error_new(LH_ERROR, LH_ERR_UNAVAILABLE,
                              "etcd %s: no connection to %s%s; not sent",
                              rpc->methods[call->method].name,
                              lh_channels_url(rpc->channels, last), n > 1 ? " or another endpoint" : "");
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
    grpc_slice_unref(stream->token);
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
    if (!silent)
        judge(rpc, stream->method, stream->endpoint, stream->moves, stream->code, 0);
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
    stream->asked_us = 0;
    heard(rpc, stream->method, stream->endpoint);
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

static void send_message(LhRpcStream *stream, LhBytes message);

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
        send_message(stream, *next);
}

static void stream_sent(gpointer owner, G_GNUC_UNUSED gboolean ok)
{
    LhRpcStream *stream = owner;
    grpc_byte_buffer_destroy(stream->request);
    stream->request = NULL;
    post(stream->rpc, &stream->sent, deliver_sent);
    stream_unpend(stream);
}

static void send_message(LhRpcStream *stream, LhBytes message)
{
    if (!stream_pend(stream)) {
        g_free(message.data);
        return;
    }
    stream->sending = TRUE;
    stream->request = make_buffer(message);
    const grpc_op op = send_message_op(stream->request);
    start_batch(stream->call, &op, 1, &stream->send);
}

/* Whoever waits longest. */
static void set_silence(LhRpc *rpc)
{
    gint64 oldest_us = G_MAXINT64;
    for (const GList *link = rpc->streams.head; link != NULL; link = link->next) {
        const LhRpcStream *stream = link->data;
        if (stream->asked_us > 0 && !stream->dropped)
            oldest_us = MIN(oldest_us, stream->asked_us);
    }
    g_source_set_ready_time(rpc->silence, oldest_us == G_MAXINT64 ? -1 : oldest_us + SILENCE_US);
}

static void ask(LhRpcStream *stream)
{
    if (stream->pinned || stream->asked_us > 0 || lh_channels_n(stream->rpc->channels) == 1)
        return;
    stream->asked_us = g_get_monotonic_time();
    set_silence(stream->rpc);
}

static gboolean has_calls(const LhRpc *rpc, const LhLane *lane, guint endpoint)
{
    for (const GList *link = rpc->calls.head; link != NULL; link = link->next) {
        const LhRpcCall *call = link->data;
        if (call->call != NULL && call->endpoint == endpoint &&
            get_lane(rpc, call->method) == lane)
            return TRUE;
    }
    return FALSE;
}

/* A stream has waited long enough. Where calls are under way too, their deadlines decide: an answer of
 * 100 MB may be what it waits behind. */
static gboolean dispatch_silence(GSource *source, G_GNUC_UNUSED GSourceFunc func,
                                 G_GNUC_UNUSED gpointer data)
{
    LhRpc *rpc = ((Source *)source)->rpc;
    gint64 now_us = g_get_monotonic_time();
    for (GList *link = rpc->streams.head; link != NULL; link = link->next) {
        LhRpcStream *stream = link->data;
        LhLane *lane = get_lane(rpc, stream->method);
        if (stream->asked_us == 0 || stream->dropped || now_us - stream->asked_us < SILENCE_US)
            continue;
        gint64 asked_us = stream->asked_us;
        stream->asked_us = now_us;
        if (stream->endpoint == lane->current && stream->moves == lane->moves &&
            !has_calls(rpc, lane, stream->endpoint) &&
            lh_channels_get(rpc->channels, lane, stream->endpoint)->heard_us < asked_us)
            move(rpc, lane, "silent");
    }
    set_silence(rpc);
    return G_SOURCE_CONTINUE;
}

void lh_rpc_send(LhRpcStream *stream, LhBytes message)
{
    if (stream->sending)
        g_queue_push_tail(&stream->unsent, g_memdup2(&message, sizeof message));
    else
        send_message(stream, message);
    ask(stream);
}

static LhRpcStream *stream_open(LhRpc *rpc, guint method, guint endpoint, gboolean pinned,
                                LhBytes first)
{
    LhRpcStream *stream = g_new0(LhRpcStream, 1);
    stream->rpc = rpc;
    stream->method = method;
    stream->endpoint = endpoint;
    stream->moves = get_lane(rpc, method)->moves;
    stream->pinned = pinned;
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
    stream->token = make_token(rpc, method);
    stream->call = make_call(rpc, method, endpoint, gpr_inf_future(GPR_CLOCK_REALTIME));
    /* etcd ends the stream when its member loses the leader. */
    grpc_metadata metadata[] = {{.key = grpc_slice_from_static_string("hasleader"),
                                 .value = grpc_slice_from_static_string("true")},
                                token_metadata(stream->token)};
    const grpc_op begin[] = {
        send_metadata_op(metadata, GRPC_SLICE_LENGTH(stream->token) > 0 ? 2 : 1),
        send_message_op(stream->request)};
    start_batch(stream->call, begin, G_N_ELEMENTS(begin), &stream->send);
    stream_receive(stream);
    const grpc_op end = receive_status_op(&stream->trailing, &stream->code, &stream->details);
    start_batch(stream->call, &end, 1, &stream->end);
    ask(stream);
    return stream;
}

LhRpcStream *lh_rpc_open(LhRpc *rpc, guint method, LhBytes first, LhRpcReplyFunc on_reply,
                         LhRpcClosedFunc on_closed, gpointer data)
{
    LhLane *lane = get_lane(rpc, method);
    guint n = lh_channels_n(rpc->channels);
    for (guint i = 1; i < n && connectivity(rpc, lane) == GRPC_CHANNEL_TRANSIENT_FAILURE; i++)
        move(rpc, lane, "no connection");
    LhRpcStream *stream = stream_open(rpc, method, lane->current, FALSE, first);
    stream->on_reply = on_reply;
    stream->on_closed = on_closed;
    stream->data = data;
    return stream;
}

LhRpcStream *lh_rpc_open_at(LhRpc *rpc, guint method, guint endpoint, LhBytes first,
                            LhRpcReplyFunc on_reply, LhRpcClosedFunc on_closed, gpointer data)
{
    LhRpcStream *stream = stream_open(rpc, method, endpoint, TRUE, first);
    stream->on_reply = on_reply;
    stream->on_closed = on_closed;
    stream->data = data;
    return stream;
}

void lh_rpc_drop(LhRpcStream *stream)
{
    stream->dropped = TRUE;
    grpc_call_cancel(stream->call, NULL);
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
    GSource *source = g_source_new(funcs, sizeof(Source));
    ((Source *)source)->rpc = rpc;
    g_source_set_static_name(source, name);
    g_source_attach(source, context);
    return source;
}

LhRpc *lh_rpc_new(const LhRpcServers *servers, const LhRpcMethod *methods, guint n_methods,
                  GMainContext *context)
{
    static GSourceFuncs funcs = {.dispatch = dispatch};
    static GSourceFuncs silence_funcs = {.dispatch = dispatch_silence};
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
    return get_lane(rpc, method)->current;
}

void lh_rpc_prefer(LhRpc *rpc, guint method, guint endpoint)
{
    get_lane(rpc, method)->current = endpoint;
}

void lh_rpc_set_token(LhRpc *rpc, const char *token)
{
    g_free(rpc->token);
    rpc->token = g_strdup(token);
}
