/*
 * The client's end of a watch: one queue of messages in order, delivered one at a time by timers
 * of the client's machine; and the way of the open and progress requests to the server.
 */
#include "fake_internal.h"

struct LhEtcdStream {
    guint refs;
    FakeClient *client; /* NULL once closed */
    FakeWatch *watch;   /* at the server; NULL: not open there */
    char *key, *range_end;
    gint64 start_revision;
    LhWatchReplyFunc on_reply;
    LhWatchClosedFunc on_closed;
    gpointer data;
    LhTimer *open_timer, *progress_timer; /* on the server's env */
    gboolean open_held;
    guint progress_wanted;
    GQueue messages;
    LhTimer *timer; /* on the client's env, for the first message */
    gboolean lost;  /* the last message is its end */
};

static void message_free(gpointer data)
{
    FakeMessage *message = data;
    if (message->events != NULL) {
        g_ptr_array_free(message->events, TRUE);
    }
    g_clear_error(&message->error);
    g_free(message);
}

static void stream_unref(LhEtcdStream *stream)
{
    if (--stream->refs == 0) {
        g_free(stream->key);
        g_free(stream->range_end);
        g_free(stream);
    }
}

/* ---- the server's half ---- */

static void leave_server(LhEtcdStream *stream)
{
    FakeEtcd *server = stream->client->server;
    if (stream->watch != NULL) {
        fake_watch_remove(g_steal_pointer(&stream->watch));
    }
    lh_timer_clear(server->env, &stream->open_timer);
    lh_timer_clear(server->env, &stream->progress_timer);
    stream->open_held = FALSE;
    stream->progress_wanted = 0;
}

static gboolean reaches_server(const LhEtcdStream *stream)
{
    return (stream->client->cut & FAKE_CUT_REQUESTS) == 0 && !stream->client->server->frozen;
}

static void open_at_server(LhEtcdStream *stream)
{
    FakeEtcd *server = stream->client->server;
    LhWatchRequest request = {stream->key, stream->range_end, stream->start_revision};
    stream->open_held = FALSE;
    if (server->stopped) {
        fake_stream_abort(stream, "connection refused");
    } else if (server->leaderless) {
        fake_stream_abort(stream, "etcdserver: no leader");
    } else {
        stream->watch = fake_watch_add(server, &request, stream);
    }
}

static void on_open(gpointer data)
{
    LhEtcdStream *stream = data;
    stream->open_timer = NULL;
    if (reaches_server(stream)) {
        open_at_server(stream);
    } else {
        stream->open_held = TRUE;
    }
}

static void on_progress(gpointer data)
{
    LhEtcdStream *stream = data;
    stream->progress_timer = NULL;
    if (!reaches_server(stream)) {
        return;
    }
    while (stream->watch != NULL && stream->progress_wanted > 0) {
        stream->progress_wanted--;
        fake_watch_progress(stream->watch);
    }
    stream->progress_wanted = 0;
}

void fake_stream_progress(LhEtcdStream *stream)
{
    if (stream->client == NULL || stream->lost) {
        return;
    }
    FakeEtcd *server = stream->client->server;
    stream->progress_wanted++;
    if (stream->progress_timer == NULL) {
        stream->progress_timer = lh_timer_in(server->env, fake_delay(server), on_progress, stream);
    }
}

/* ---- the client's half ---- */

static void clear_messages(LhEtcdStream *stream)
{
    lh_timer_clear(stream->client->env, &stream->timer);
    g_queue_clear_full(&stream->messages, message_free);
}

/* Nothing happens on it any more. The caller holds a reference. */
static void detach(LhEtcdStream *stream)
{
    if (stream->client != NULL) {
        leave_server(stream);
        clear_messages(stream);
        g_ptr_array_remove(stream->client->streams, stream);
        stream->client = NULL;
        stream_unref(stream);
    }
}

static void deliver(LhEtcdStream *stream, FakeMessage *message)
{
    g_autofree LhEtcdEvent *events = NULL;
    LhWatchReply *reply = &message->reply;
    if (message->events != NULL) {
        reply->n_events = message->events->len;
        events = g_new(LhEtcdEvent, reply->n_events + 1);
        for (gsize i = 0; i < reply->n_events; i++) {
            events[i] = ((FakeEvent *)message->events->pdata[i])->event;
        }
        reply->events = events;
    }
    stream->on_reply(reply, stream->data);
}

static void arm(LhEtcdStream *stream);

static void on_message(gpointer data)
{
    LhEtcdStream *stream = data;
    FakeMessage *message = stream->messages.head->data;
    stream->timer = NULL;
    if (message->error == NULL && (stream->client->cut & FAKE_CUT_REPLIES) != 0) {
        return; /* fake_stream_wake */
    }
    g_queue_pop_head(&stream->messages);
    arm(stream);
    stream->refs++;
    if (message->error != NULL) {
        detach(stream);
        stream->on_closed(message->error, stream->data);
    } else {
        deliver(stream, message);
    }
    stream_unref(stream);
    message_free(message);
}

static void arm(LhEtcdStream *stream)
{
    const FakeMessage *first = g_queue_peek_head(&stream->messages);
    if (stream->timer == NULL && first != NULL) {
        stream->timer = lh_timer_at(stream->client->env, first->due_ms, on_message, stream);
    }
}

static void append(LhEtcdStream *stream, FakeMessage *message, gint64 delay_ms)
{
    /* One that is due before those ahead of it goes right after them. */
    message->due_ms = lh_mono_ms(stream->client->env) + delay_ms;
    g_queue_push_tail(&stream->messages, message);
    arm(stream);
}

void fake_stream_push(LhEtcdStream *stream, FakeMessage *message)
{
    FakeClient *client = stream->client;
    if (stream->lost) {
        message_free(message);
    } else if (fake_chance(client->server, client->rates.stream_closed)) {
        message_free(message);
        fake_stream_abort(stream, "stream closed");
    } else {
        append(stream, message, fake_stream_delay(client));
    }
}

static void on_aborted(gpointer data)
{
    LhEtcdStream *stream = data;
    stream->open_timer = NULL;
    leave_server(stream);
}

void fake_stream_abort(LhEtcdStream *stream, const char *why)
{
    FakeEtcd *server = stream->client->server;
    if (stream->lost) {
        return;
    }
    stream->lost = TRUE;
    clear_messages(stream);
    FakeMessage *message = g_new0(FakeMessage, 1);
    message->error = g_error_new(LH_ERROR, LH_ERR_UNAVAILABLE, "watch of %s: %s", stream->key, why);
    append(stream, message, fake_delay(server));
    /* Not here: the server may be walking its watches. */
    lh_timer_clear(server->env, &stream->open_timer);
    lh_timer_clear(server->env, &stream->progress_timer);
    stream->open_timer = lh_timer_in(server->env, 0, on_aborted, stream);
}

void fake_stream_wake(LhEtcdStream *stream)
{
    FakeEtcd *server = stream->client->server;
    if (stream->open_held && reaches_server(stream)) {
        open_at_server(stream);
    }
    if (stream->progress_wanted > 0 && stream->progress_timer == NULL && !stream->lost) {
        stream->progress_timer = lh_timer_in(server->env, fake_delay(server), on_progress, stream);
    }
    arm(stream);
}

LhEtcdStream *fake_stream_new(FakeClient *client, const LhWatchRequest *request,
                              LhWatchReplyFunc on_reply, LhWatchClosedFunc on_closed, gpointer data)
{
    FakeEtcd *server = client->server;
    LhEtcdStream *stream = g_new0(LhEtcdStream, 1);
    stream->refs = 1;
    stream->client = client;
    stream->key = g_strdup(request->key);
    stream->range_end = g_strdup(request->range_end);
    stream->start_revision = request->start_revision;
    stream->on_reply = on_reply;
    stream->on_closed = on_closed;
    stream->data = data;
    g_queue_init(&stream->messages);
    g_ptr_array_add(client->streams, stream);
    if (fake_client_refuses(client)) {
        fake_stream_abort(stream, "connection refused");
    } else {
        stream->open_timer = lh_timer_in(server->env, fake_delay(server), on_open, stream);
    }
    return stream;
}

void fake_stream_close(LhEtcdStream *stream)
{
    detach(stream);
}
