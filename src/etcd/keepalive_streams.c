/*
 * A short list of streams, the one in use first, each with its queue of keepalives (keepalive.h).
 *
 * Callbacks may ask, cancel, or free all: whatever calls them holds references, and looks again
 * afterwards.
 */
#include "etcd/keepalive_streams.h"

#include "base/errors.h"

/* Keepalives without an answer that make the only stream useless. */
#define GIVEN_UP_AT_MOST 3
/* An answer takes one exchange of messages with etcd's leader. */
#define OVERDUE_US (300 * 1000)
/* Enough for a leader change that is asked about every TTL/6. */
#define STREAMS_AT_MOST 6

typedef struct {
    LhKeepaliveStreams *streams;
    guint endpoint;
    LhRpcStream *rpc; /* NULL: has ended */
    LhKeepalives keepalives;
} Stream;

struct LhKeepaliveStreams {
    LhRpc *rpc;
    guint method;
    GQueue list;    /* of Stream; the one in use first, else the one that was opened last */
    GQueue ended;   /* of Stream: their keepalives are being failed */
    GSource *timer; /* the next deadline */
    gboolean freed;
};

typedef struct {
    GSource base;
    LhKeepaliveStreams *streams;
} Timer;

static void stream_clear(gpointer data)
{
    lh_keepalives_clear(&((Stream *)data)->keepalives);
}

static void stream_unref(gpointer data)
{
    g_rc_box_release_full(data, stream_clear);
}

static void set_timer(LhKeepaliveStreams *streams)
{
    if (streams->freed)
        return;
    gint64 deadline_us = G_MAXINT64;
    for (const GList *link = streams->list.head; link != NULL; link = link->next) {
        const Stream *stream = link->data;
        deadline_us = MIN(deadline_us, lh_keepalives_next_deadline(&stream->keepalives));
    }
    g_source_set_ready_time(streams->timer, deadline_us == G_MAXINT64 ? -1 : deadline_us);
}

/* Takes it off the list; its keepalives fail. The caller holds a reference to @streams. */
static void end(LhKeepaliveStreams *streams, Stream *stream, const GError *error)
{
    g_queue_remove(&streams->list, stream);
    g_queue_push_tail(&streams->ended, stream);
    if (stream->rpc != NULL)
        lh_rpc_drop(stream->rpc);
    stream->rpc = NULL;
    lh_keepalives_fail(&stream->keepalives, error);
    g_queue_remove(&streams->ended, stream);
    stream_unref(stream);
}

static void give_up(LhKeepaliveStreams *streams, Stream *stream, const char *why)
{
    g_autoptr(GError) error = g_error_new(LH_ERROR, LH_ERR_UNAVAILABLE, "etcd LeaseKeepAlive: %s",
                                          why);
    end(streams, stream, error);
}

/* Streams other than the first on which nobody waits any more. Runs no callbacks. */
static void drop_idle(LhKeepaliveStreams *streams)
{
    for (GList *link = streams->list.head, *next = NULL; link != NULL; link = next) {
        Stream *stream = link->data;
        next = link->next;
        if (link->prev != NULL && lh_keepalives_next_deadline(&stream->keepalives) == G_MAXINT64)
            give_up(streams, stream, "not used any more");
    }
}

static Stream *find_useless(const LhKeepaliveStreams *streams)
{
    for (const GList *link = streams->list.head; link != NULL; link = link->next) {
        Stream *stream = link->data;
        if (stream->keepalives.given_up >= GIVEN_UP_AT_MOST)
            return stream;
    }
    return NULL;
}

static gboolean dispatch_timer(GSource *source, G_GNUC_UNUSED GSourceFunc func,
                               G_GNUC_UNUSED gpointer data)
{
    LhKeepaliveStreams *streams = g_rc_box_acquire(((Timer *)source)->streams);
    gint64 now_us = g_get_monotonic_time();
    g_autoptr(GPtrArray) all = g_ptr_array_new_with_free_func(stream_unref);
    for (GList *link = streams->list.head; link != NULL; link = link->next)
        g_ptr_array_add(all, g_rc_box_acquire(link->data));
    for (guint i = 0; i < all->len && !streams->freed; i++)
        lh_keepalives_expire(&((Stream *)all->pdata[i])->keepalives, now_us);
    Stream *useless = NULL;
    while (!streams->freed && (useless = find_useless(streams)) != NULL)
        give_up(streams, useless, "the stream answers nothing");
    if (!streams->freed)
        drop_idle(streams);
    set_timer(streams);
    g_rc_box_release(streams);
    return G_SOURCE_CONTINUE;
}

static void on_reply(gpointer reply, gpointer data)
{
    Stream *stream = g_rc_box_acquire(data);
    LhKeepaliveStreams *streams = g_rc_box_acquire(stream->streams);
    const LhLeaseReply *lease = reply;
    if (g_queue_peek_head(&streams->list) != stream) {
        g_queue_remove(&streams->list, stream);
        g_queue_push_head(&streams->list, stream);
        lh_rpc_prefer(streams->rpc, streams->method, stream->endpoint);
    }
    gboolean ours = lh_keepalives_answer(&stream->keepalives, lease->lease, lease->ttl_s);
    if (!streams->freed && stream->rpc != NULL && !ours)
        give_up(streams, stream, "an answer that nobody asked for");
    if (!streams->freed)
        drop_idle(streams);
    set_timer(streams);
    g_rc_box_release(streams);
    stream_unref(stream);
}

static void on_closed(const GError *error, gpointer data)
{
    Stream *stream = data;
    LhKeepaliveStreams *streams = g_rc_box_acquire(stream->streams);
    stream->rpc = NULL;
    end(streams, stream, error);
    set_timer(streams);
    g_rc_box_release(streams);
}

static gboolean is_overdue(const Stream *stream, gint64 now_us)
{
    return now_us - lh_keepalives_oldest_us(&stream->keepalives) >= OVERDUE_US;
}

/* NULL: another one must be opened. */
static Stream *find_good(const LhKeepaliveStreams *streams, gint64 now_us)
{
    gboolean only = lh_rpc_n_endpoints(streams->rpc) == 1;
    for (const GList *link = streams->list.head; link != NULL; link = link->next) {
        Stream *stream = link->data;
        if (only || !is_overdue(stream, now_us))
            return stream;
    }
    return NULL;
}

/* The first goes where the lane is; a further one after the one that was opened last. */
static Stream *open_stream(LhKeepaliveStreams *streams, LhBytes request)
{
    const Stream *last = g_queue_peek_head(&streams->list);
    Stream *stream = g_rc_box_new0(Stream);
    stream->streams = streams;
    stream->endpoint = last == NULL ? lh_rpc_endpoint(streams->rpc, streams->method)
                                    : (last->endpoint + 1) % lh_rpc_n_endpoints(streams->rpc);
    lh_keepalives_init(&stream->keepalives);
    g_queue_push_head(&streams->list, stream);
    stream->rpc = lh_rpc_open_at(streams->rpc, streams->method, stream->endpoint, request, on_reply,
                                 on_closed, stream);
    return stream;
}

void lh_keepalive_streams_ask(LhKeepaliveStreams *streams, LhCallId id, gint64 lease,
                              gint64 deadline_ms, LhLeaseFunc func, gpointer data)
{
    gint64 now_us = g_get_monotonic_time();
    LhBytes request = lh_codec_lease_keepalive(lease);
    Stream *stream = find_good(streams, now_us);
    if (stream == NULL && streams->list.length >= STREAMS_AT_MOST)
        stream = g_queue_peek_head(&streams->list);
    if (stream != NULL)
        lh_rpc_send(stream->rpc, request);
    else
        stream = open_stream(streams, request);
    lh_keepalives_add(&stream->keepalives, id, lease, now_us, now_us + MAX(deadline_ms, 1) * 1000,
                      func, data);
    set_timer(streams);
}

void lh_keepalive_streams_cancel(LhKeepaliveStreams *streams, LhCallId id)
{
    const GQueue *both[] = {&streams->list, &streams->ended};
    for (guint i = 0; i < G_N_ELEMENTS(both); i++) {
        for (GList *link = both[i]->head; link != NULL; link = link->next) {
            if (lh_keepalives_cancel(&((Stream *)link->data)->keepalives, id))
                return;
        }
    }
}

LhKeepaliveStreams *lh_keepalive_streams_new(LhRpc *rpc, guint method, GMainContext *context)
{
    static GSourceFuncs funcs = {.dispatch = dispatch_timer};
    LhKeepaliveStreams *streams = g_rc_box_new0(LhKeepaliveStreams);
    streams->rpc = rpc;
    streams->method = method;
    g_queue_init(&streams->list);
    g_queue_init(&streams->ended);
    streams->timer = g_source_new(&funcs, sizeof(Timer));
    ((Timer *)streams->timer)->streams = streams;
    g_source_set_static_name(streams->timer, "etcd keepalives");
    g_source_attach(streams->timer, context);
    return streams;
}

void lh_keepalive_streams_free(LhKeepaliveStreams *streams)
{
    streams->freed = TRUE;
    g_source_destroy(streams->timer);
    g_clear_pointer(&streams->timer, g_source_unref);
    /* Whoever is failing them holds on to them: end(). */
    for (GList *link = streams->ended.head; link != NULL; link = link->next)
        lh_keepalives_clear(&((Stream *)link->data)->keepalives);
    for (Stream *stream = NULL; (stream = g_queue_pop_head(&streams->list)) != NULL;) {
        stream->rpc = NULL;
        lh_keepalives_clear(&stream->keepalives);
        stream_unref(stream);
    }
    g_rc_box_release(streams);
}
