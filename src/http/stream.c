/*
 * Server-sent events: a buffer that libmicrohttpd empties when the client takes it.
 *
 * An empty buffer suspends the connection, a new event resumes it. A stream ends in one place,
 * lh_http_stream_ended, called when libmicrohttpd has finished with the request; everything else
 * only asks for that.
 */
#include "http/internal.h"

#include <string.h>

static gsize left(const LhHttpStream *stream)
{
    return stream->waiting->len - stream->sent;
}

static void wake(LhHttpStream *stream)
{
    if (stream->suspended) {
        stream->suspended = FALSE;
        lh_http_connection_resume(stream->request->connection);
    }
}

static ssize_t take(void *data, uint64_t pos, char *buffer, size_t max)
{
    (void)pos;
    LhHttpStream *stream = data;
    if (stream->dead) {
        return MHD_CONTENT_READER_END_WITH_ERROR;
    }
    gsize n = MIN(left(stream), max);
    if (n == 0 && stream->closing) {
        return MHD_CONTENT_READER_END_OF_STREAM;
    }
    if (n == 0) {
        if (stream->request->connection->peer_closed) {
            return MHD_CONTENT_READER_END_WITH_ERROR;
        }
        stream->suspended = TRUE;
        MHD_suspend_connection(stream->request->connection->connection);
        return 0;
    }
    memcpy(buffer, stream->waiting->str + stream->sent, n);
    stream->sent += n;
    if (stream->sent == stream->waiting->len) {
        g_string_truncate(stream->waiting, 0);
        stream->sent = 0;
    } else if (stream->sent > stream->waiting->len / 2) {
        g_string_erase(stream->waiting, 0, (gssize)stream->sent);
        stream->sent = 0;
    }
    return (ssize_t)n;
}

LhHttpStream *lh_http_stream_open(LhHttpRequest *request, void (*closed)(gpointer data),
                                  gpointer data)
{
    if (request->gone) {
        lh_http_request_answer(request, 200,
                               MHD_create_response_from_buffer(0, NULL, MHD_RESPMEM_PERSISTENT));
        return NULL;
    }
    LhHttpStream *stream = g_new0(LhHttpStream, 1);
    stream->server = request->server;
    stream->request = request;
    stream->closed = closed;
    stream->data = data;
    /* Something to send at once, or the client would not see the status until the first event. */
    stream->waiting = g_string_new("retry: 1000\n\n");
    stream->link.data = stream;
    g_queue_push_tail_link(&stream->server->streams, &stream->link);
    request->stream = stream;

    struct MHD_Response *response = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, 16 * 1024,
                                                                      take, stream, NULL);
    MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, "text/event-stream");
    MHD_add_response_header(response, MHD_HTTP_HEADER_CACHE_CONTROL, "no-store");
    lh_http_request_answer(request, 200, response);
    return stream;
}

void lh_http_stream_kill(LhHttpStream *stream)
{
    if (stream->dead) {
        return;
    }
    stream->dead = TRUE;
    if (stream->suspended) {
        wake(stream);
    } else {
        lh_http_connection_cut(stream->request->connection);
    }
}

static void append_lines(GString *out, const char *text)
{
    for (;;) {
        gsize len = strcspn(text, "\r\n");
        g_string_append(out, "data: ");
        g_string_append_len(out, text, (gssize)len);
        g_string_append_c(out, '\n');
        if (text[len] == '\0') {
            return;
        }
        text += len + (text[len] == '\r' && text[len + 1] == '\n' ? 2 : 1);
    }
}

void lh_http_stream_send(LhHttpStream *stream, gint64 id, const char *event, const char *data)
{
    if (stream->dead) {
        return;
    }
    if (left(stream) + strlen(data) > HTTP_STREAM_MAX_BYTES) {
        lh_http_stream_kill(stream);
        return;
    }
    if (event != NULL) {
        g_string_append_printf(stream->waiting, "event: %s\n", event);
    }
    if (id >= 0) {
        g_string_append_printf(stream->waiting, "id: %" G_GINT64_FORMAT "\n", id);
    }
    append_lines(stream->waiting, data);
    g_string_append_c(stream->waiting, '\n');
    wake(stream);
}

void lh_http_stream_close(LhHttpStream *stream)
{
    if (stream == NULL) {
        return;
    }
    stream->closed = NULL;
    stream->closing = TRUE;
    wake(stream);
}

void lh_http_stream_ended(LhHttpStream *stream)
{
    g_queue_unlink(&stream->server->streams, &stream->link);
    stream->dead = TRUE; /* @closed may still send or close */
    stream->suspended = FALSE;
    if (stream->closed != NULL) {
        stream->closed(stream->data);
    }
    g_string_free(stream->waiting, TRUE);
    g_free(stream);
}

void lh_http_streams_comment(LhHttpServer *server)
{
    for (GList *l = server->streams.head; l != NULL; l = l->next) {
        LhHttpStream *stream = l->data;
        if (!stream->dead && lh_http_access_lost(stream->request)) {
            lh_http_stream_kill(stream);
            continue;
        }
        /* What waits will tell the client that we are here. */
        if (!stream->dead && !stream->closing && left(stream) == 0) {
            g_string_append(stream->waiting, ":\n\n");
            wake(stream);
        }
    }
}
