/*
 * Streams of the gRPC transport: messages in order both ways, how much may wait, and for how long one may
 * be silent.
 */
#include "etcd/transport_private.h"

#include <grpc/byte_buffer.h>

/* Received on one stream and not delivered yet. Beyond it the stream is not read, until the loop has
 * caught up: etcd buffers, and then treats the watcher as slow. */
#define STREAM_QUEUE_BYTES (32 * 1024 * 1024)

/* With several endpoints: how long a stream may leave a message without any answer. */
#define SILENCE_US (3 * G_USEC_PER_SEC)

/* One reply of a stream. */
typedef struct {
    LhPosted posted; /* first */
    LhRpcStream *stream;
    LhArena arena;
    gpointer reply;
    gint bytes;
    gboolean resume; /* the queue was full: receive again when this is delivered */
} Reply;

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

static void deliver_closed(LhRpc *rpc, LhPosted *posted)
{
    LhRpcStream *stream = (LhRpcStream *)posted;
    g_queue_unlink(&rpc->streams, &stream->link);
    gboolean silent = stream->dropped || rpc->closing;
    LhRpcClosedFunc on_closed = stream->on_closed;
    gpointer data = stream->data;
    g_autoptr(GError) error = lh_grpc_error(&rpc->methods[stream->method], stream->code,
                                            stream->details);
    if (!silent)
        lh_grpc_judge(rpc, stream->method, stream->endpoint, stream->moves, stream->code, 0);
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
        lh_grpc_post(stream->rpc, &stream->closed, deliver_closed);
}

/* Takes over one pending. */
static void stream_receive(LhRpcStream *stream)
{
    const grpc_op ops[] = {
        lh_grpc_receive_message(&stream->received),
        lh_grpc_receive_metadata(&stream->initial),
    };
    gsize n = stream->asked_initial ? 1 : 2;
    stream->asked_initial = TRUE;
    lh_grpc_start_batch(stream->call, ops, n, &stream->receive);
}

static void deliver_reply(LhRpc *rpc, LhPosted *posted)
{
    Reply *reply = (Reply *)posted;
    LhRpcStream *stream = reply->stream;
    g_atomic_int_add(&stream->queued_bytes, -reply->bytes);
    stream->asked_us = 0;
    lh_grpc_heard(rpc, stream->method, stream->endpoint);
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
    reply->reply = lh_grpc_decode(&stream->rpc->methods[stream->method], &reply->arena,
                                  stream->received);
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
    lh_grpc_post(stream->rpc, &reply->posted, deliver_reply);
    if (!full)
        stream_receive(stream);
}

static void stream_ended(gpointer owner, G_GNUC_UNUSED gboolean ok)
{
    stream_unpend(owner);
}

static void send_message(LhRpcStream *stream, LhBytes message);

static void deliver_sent(LhRpc *rpc, LhPosted *posted)
{
    LhRpcStream *stream = (LhRpcStream *)((char *)posted - offsetof(LhRpcStream, sent));
    stream->sending = FALSE;
    if (!stream->opened && stream->dropped)
        grpc_call_cancel(stream->call, NULL);
    stream->opened = TRUE;
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
    lh_grpc_post(stream->rpc, &stream->sent, deliver_sent);
    stream_unpend(stream);
}

static void send_message(LhRpcStream *stream, LhBytes message)
{
    if (!stream_pend(stream)) {
        g_free(message.data);
        return;
    }
    stream->sending = TRUE;
    stream->request = lh_grpc_buffer(message);
    const grpc_op op = lh_grpc_send_message(stream->request);
    lh_grpc_start_batch(stream->call, &op, 1, &stream->send);
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
            lh_grpc_lane(rpc, call->method) == lane)
            return TRUE;
    }
    return FALSE;
}

/* A stream has waited long enough. Where calls are under way too, their deadlines decide: an answer of
 * 100 MB may be what it waits behind. */
gboolean lh_grpc_dispatch_silence(GSource *source, G_GNUC_UNUSED GSourceFunc func,
                                  G_GNUC_UNUSED gpointer data)
{
    LhRpc *rpc = ((LhRpcSource *)source)->rpc;
    gint64 now_us = g_get_monotonic_time();
    for (GList *link = rpc->streams.head; link != NULL; link = link->next) {
        LhRpcStream *stream = link->data;
        LhLane *lane = lh_grpc_lane(rpc, stream->method);
        if (stream->asked_us == 0 || stream->dropped || now_us - stream->asked_us < SILENCE_US)
            continue;
        gint64 asked_us = stream->asked_us;
        stream->asked_us = now_us;
        if (stream->endpoint == lane->current && stream->moves == lane->moves &&
            !has_calls(rpc, lane, stream->endpoint) &&
            lh_channels_get(rpc->channels, lane, stream->endpoint)->heard_us < asked_us)
            lh_grpc_move(rpc, lane, "silent");
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
    stream->moves = lh_grpc_lane(rpc, method)->moves;
    stream->pinned = pinned;
    stream->send = (LhOp){.ended = stream_sent, .owner = stream};
    stream->receive = (LhOp){.ended = stream_received, .owner = stream};
    stream->end = (LhOp){.ended = stream_ended, .owner = stream};
    grpc_metadata_array_init(&stream->initial);
    grpc_metadata_array_init(&stream->trailing);
    g_queue_init(&stream->unsent);
    stream->link.data = stream;
    g_queue_push_tail_link(&rpc->streams, &stream->link);
    stream->pending = 3;
    stream->sending = TRUE;
    stream->request = lh_grpc_buffer(first);
    stream->token = lh_grpc_token(rpc, method);
    stream->call = lh_grpc_call(rpc, method, endpoint, gpr_inf_future(GPR_CLOCK_REALTIME));
    /* etcd ends the stream when its member loses the leader. */
    grpc_metadata metadata[] = {{.key = grpc_slice_from_static_string("hasleader"),
                                 .value = grpc_slice_from_static_string("true")},
                                lh_grpc_token_metadata(stream->token)};
    const grpc_op begin[] = {
        lh_grpc_send_metadata(metadata, GRPC_SLICE_LENGTH(stream->token) > 0 ? 2 : 1),
        lh_grpc_send_message(stream->request)};
    lh_grpc_start_batch(stream->call, begin, G_N_ELEMENTS(begin), &stream->send);
    stream_receive(stream);
    const grpc_op end = lh_grpc_receive_status(&stream->trailing, &stream->code, &stream->details);
    lh_grpc_start_batch(stream->call, &end, 1, &stream->end);
    ask(stream);
    return stream;
}

LhRpcStream *lh_rpc_open(LhRpc *rpc, guint method, LhBytes first, LhRpcReplyFunc on_reply,
                         LhRpcClosedFunc on_closed, gpointer data)
{
    LhLane *lane = lh_grpc_lane(rpc, method);
    guint n = lh_channels_n(rpc->channels);
    for (guint i = 1; i < n && lh_grpc_connectivity(rpc, lane) == GRPC_CHANNEL_TRANSIENT_FAILURE;
         i++)
        lh_grpc_move(rpc, lane, "no connection");
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
    /* Not before its beginning is written: see lh_rpc_cancel(). */
    if (stream->opened || stream->rpc->closing)
        grpc_call_cancel(stream->call, NULL);
}
