/*
 * Watches: server-sent events of one or several lists at once, on libcurl's multi interface.
 *
 * A connection that ends is opened again from the last revision seen. What the server refuses (but
 * overload and its own absence) ends the watch.
 */
#include "base/errors.h"
#include "base/json.h"
#include "cli/client.h"
#include "cli/client_internal.h"
#include "cli/sse.h"

#include <string.h>

#define RECONNECT_MS 1000
#define GIVE_UP_MS   30000
#define MAX_WAIT_MS  1000

typedef struct {
    LhWatch *watch;
    CURL *curl;
    struct curl_slist *headers;
    LhSse *sse;
    GString *refusal;
    char *path;
    gboolean active;      /* in the multi handle */
    gint64 again_ms;      /* when to connect, unless active */
    gint64 lost_since_ms; /* -1: connected last time */
    gboolean answered;    /* something came on this connection */
    gboolean told;        /* its watch->opened was called */
    gboolean ended, broken;
    char details[CURL_ERROR_SIZE];
} Stream;

typedef struct {
    LhClient *client;
    CURLM *multi;
    Stream *streams;
    guint n;
    LhWatchEnd end;
    GError *error;
} Session;

static gboolean on_event(const char *event, const char *id, const char *data, gpointer user)
{
    Stream *stream = user;
    gint64 revision = g_ascii_strtoll(id, NULL, 10);
    if (strcmp(event, "PUT") != 0 && strcmp(event, "DELETE") != 0) {
        return TRUE; /* a kind of event that is newer than this program */
    }
    g_autoptr(cJSON) object = cJSON_Parse(data);
    if (object == NULL) {
        stream->broken = TRUE;
        return FALSE;
    }
    if (revision > stream->watch->revision) {
        stream->watch->revision = revision;
    }
    stream->ended = stream->watch->func(event, revision, object, stream->watch->data);
    return !stream->ended;
}

static size_t take_events(char *data, size_t size, size_t n, void *user)
{
    Stream *stream = user;
    long status = 0;
    gboolean too_large = FALSE;
    curl_easy_getinfo(stream->curl, CURLINFO_RESPONSE_CODE, &status);
    if (status != 200) {
        if (stream->refusal->len < 64 * 1024) {
            g_string_append_len(stream->refusal, data, (gssize)(size * n));
        }
        return size * n;
    }
    stream->lost_since_ms = -1;
    stream->answered = TRUE;
    if (!lh_sse_feed(stream->sse, data, size * n, &too_large)) {
        stream->broken |= too_large;
        return 0;
    }
    return size * n;
}

static void stream_start(Session *session, Stream *stream)
{
    const LhWatch *watch = stream->watch;
    GString *path = g_string_new(NULL);
    g_string_append_printf(path, "/v1/%s?watch=true&revision=%" G_GINT64_FORMAT, watch->plural,
                           watch->revision);
    if (watch->selector != NULL) {
        g_autofree char *escaped = g_uri_escape_string(watch->selector, NULL, FALSE);
        g_string_append_printf(path, "&labelSelector=%s", escaped);
    }
    g_free(stream->path);
    stream->path = g_string_free(path, FALSE);
    lh_sse_free(stream->sse);
    stream->sse = lh_sse_new(on_event, stream);
    g_string_truncate(stream->refusal, 0);
    stream->details[0] = '\0';
    stream->answered = stream->told = FALSE;

    curl_easy_reset(stream->curl);
    lh_client_setup(session->client, stream->curl, stream->path);
    curl_easy_setopt(stream->curl, CURLOPT_HTTPHEADER, stream->headers);
    curl_easy_setopt(stream->curl, CURLOPT_WRITEFUNCTION, take_events);
    curl_easy_setopt(stream->curl, CURLOPT_WRITEDATA, stream);
    curl_easy_setopt(stream->curl, CURLOPT_ERRORBUFFER, stream->details);
    curl_easy_setopt(stream->curl, CURLOPT_PRIVATE, stream);
    curl_multi_add_handle(session->multi, stream->curl);
    stream->active = TRUE;
}

/* A transfer is over: decides between the end, an error (TRUE), and another try (FALSE). */
static gboolean stream_done(Session *session, Stream *stream, CURLcode code)
{
    long status = 0;
    gint64 now = lh_mono_ms(session->client->env);
    curl_easy_getinfo(stream->curl, CURLINFO_RESPONSE_CODE, &status);
    curl_multi_remove_handle(session->multi, stream->curl);
    stream->active = FALSE;
    if (stream->ended) {
        session->end = LH_WATCH_ENDED;
    } else if (stream->broken) {
        session->end = LH_WATCH_ERROR;
        g_set_error(&session->error, LH_ERROR, LH_ERR_INTERNAL,
                    "server %s: an event of %s is too large or not JSON", session->client->server,
                    stream->watch->plural);
    } else if (status == 410) {
        session->end = LH_WATCH_EXPIRED;
    } else if (status >= 400 && status != 429 && status < 500) {
        session->end = LH_WATCH_ERROR;
        lh_client_refused(session->client, stream->path, (guint)status, stream->refusal,
                          &session->error);
    } else if (lh_client_is_final(code)) {
        session->end = LH_WATCH_ERROR;
        lh_client_unreachable(session->client, stream->curl, code, stream->details,
                              &session->error);
    } else {
        if (stream->lost_since_ms < 0) {
            stream->lost_since_ms = now;
        }
        stream->again_ms = now + RECONNECT_MS;
        if (stream->again_ms - stream->lost_since_ms > GIVE_UP_MS) {
            session->end = LH_WATCH_ERROR;
            if (status >= 400) {
                lh_client_refused(session->client, stream->path, (guint)status, stream->refusal,
                                  &session->error);
            } else {
                lh_client_unreachable(session->client, stream->curl, code, stream->details,
                                      &session->error);
            }
            return TRUE;
        }
        return FALSE;
    }
    return TRUE;
}

/* TRUE: over, and session->end says how. */
static gboolean session_turn(Session *session, gint64 deadline_ms)
{
    gint64 now = lh_mono_ms(session->client->env);
    gint64 wait = MAX_WAIT_MS;
    int running, left;
    if (deadline_ms >= 0 && now >= deadline_ms) {
        session->end = LH_WATCH_TIMEOUT;
        return TRUE;
    }
    for (guint i = 0; i < session->n; i++) {
        Stream *stream = &session->streams[i];
        if (!stream->active && now >= stream->again_ms) {
            stream_start(session, stream);
        } else if (!stream->active) {
            wait = MIN(wait, stream->again_ms - now);
        }
    }
    curl_multi_perform(session->multi, &running);
    CURLMsg *message;
    while ((message = curl_multi_info_read(session->multi, &left)) != NULL) {
        Stream *stream = NULL;
        CURLcode code = message->data.result;
        curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, (char **)&stream);
        if (stream_done(session, stream, code)) {
            return TRUE;
        }
    }
    for (guint i = 0; i < session->n; i++) {
        Stream *stream = &session->streams[i];
        if (stream->answered && !stream->told && stream->watch->opened != NULL) {
            stream->told = TRUE;
            if (stream->watch->opened(stream->watch->data)) {
                session->end = LH_WATCH_ENDED;
                return TRUE;
            }
        }
    }
    if (deadline_ms >= 0) {
        wait = MIN(wait, deadline_ms - now);
    }
    curl_multi_poll(session->multi, NULL, 0, (int)MAX(wait, 0), NULL);
    return FALSE;
}

LhWatchEnd lh_client_watch(LhClient *client, LhWatch *watches, guint n, gint64 deadline_ms,
                           GError **error)
{
    Session session = {.client = client, .multi = curl_multi_init(), .n = n};
    session.streams = g_new0(Stream, n);
    for (guint i = 0; i < n; i++) {
        Stream *stream = &session.streams[i];
        stream->watch = &watches[i];
        stream->curl = curl_easy_init();
        stream->refusal = g_string_new(NULL);
        stream->lost_since_ms = -1;
        stream->headers = curl_slist_append(NULL, "Accept: text/event-stream");
        if (client->auth != NULL) {
            stream->headers = curl_slist_append(stream->headers, client->auth->data);
        }
    }
    while (!session_turn(&session, deadline_ms)) {
    }
    for (guint i = 0; i < n; i++) {
        Stream *stream = &session.streams[i];
        if (stream->active) {
            curl_multi_remove_handle(session.multi, stream->curl);
        }
        curl_easy_cleanup(stream->curl);
        curl_slist_free_all(stream->headers);
        lh_sse_free(stream->sse);
        g_string_free(stream->refusal, TRUE);
        g_free(stream->path);
    }
    curl_multi_cleanup(session.multi);
    g_free(session.streams);
    if (session.error != NULL) {
        g_propagate_error(error, session.error);
    }
    return session.end;
}
