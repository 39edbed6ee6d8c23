/* Probes on one curl multi, driven by the main loop; see probe_http.h. */
#include "outside/probe_http.h"

#include <curl/curl.h>
#include <glib-unix.h>
#include <string.h>

#define MAX_BODY    4096
#define DNS_CACHE_S 60L

typedef struct {
    LhProbeHttp *http;
    CURL *curl;
    GString *body;
    gboolean too_big;
    LhProbeDone done;
    gpointer data;
} Question;

struct LhProbeHttp {
    LhEnv *env;
    char *cacert;
    CURLM *multi;
    LhTimer *timer;      /* curl's */
    GHashTable *sources; /* socket -> id of its source */
};

static void look_for_ends(LhProbeHttp *http);

/* ---- the loop ---- */

static gboolean on_socket(gint fd, GIOCondition condition, gpointer data)
{
    LhProbeHttp *http = data;
    int running, events = 0;

    if ((condition & (G_IO_IN | G_IO_HUP)) != 0)
        events |= CURL_CSELECT_IN;
    if ((condition & G_IO_OUT) != 0)
        events |= CURL_CSELECT_OUT;
    if ((condition & (G_IO_ERR | G_IO_NVAL)) != 0)
        events |= CURL_CSELECT_ERR;
    curl_multi_socket_action(http->multi, fd, events, &running);
    look_for_ends(http);
    return G_SOURCE_CONTINUE;
}

static void on_timeout(gpointer data)
{
    LhProbeHttp *http = data;
    int running;

    http->timer = NULL;
    curl_multi_socket_action(http->multi, CURL_SOCKET_TIMEOUT, 0, &running);
    look_for_ends(http);
}

static int set_socket(CURL *curl, curl_socket_t fd, int what, void *data, void *unused)
{
    LhProbeHttp *http = data;
    guint old = GPOINTER_TO_UINT(g_hash_table_lookup(http->sources, GINT_TO_POINTER(fd)));
    GIOCondition condition = 0;

    (void)curl;
    (void)unused;
    if (old != 0)
        g_source_remove(old);
    g_hash_table_remove(http->sources, GINT_TO_POINTER(fd));
    if (what == CURL_POLL_REMOVE)
        return 0;
    if ((what & CURL_POLL_IN) != 0)
        condition |= G_IO_IN;
    if ((what & CURL_POLL_OUT) != 0)
        condition |= G_IO_OUT;
    g_hash_table_insert(http->sources, GINT_TO_POINTER(fd),
                        GUINT_TO_POINTER(g_unix_fd_add(fd, condition, on_socket, http)));
    return 0;
}

static int set_timer(CURLM *multi, long timeout_ms, void *data)
{
    LhProbeHttp *http = data;

    (void)multi;
    lh_timer_clear(http->env, &http->timer);
    if (timeout_ms >= 0)
        http->timer = lh_timer_in(http->env, timeout_ms, on_timeout, http);
    return 0;
}

/* ---- one question ---- */

static void question_free(Question *question)
{
    curl_multi_remove_handle(question->http->multi, question->curl);
    curl_easy_cleanup(question->curl);
    g_string_free(question->body, TRUE);
    g_free(question);
}

static size_t on_body(char *data, size_t size, size_t n, void *user_data)
{
    Question *question = user_data;

    if (size * n > MAX_BODY - question->body->len) {
        question->too_big = TRUE;
        return 0;
    }
    g_string_append_len(question->body, data, (gssize)(size * n));
    return size * n;
}

/* libcurl keeps addresses too as if they had been resolved, and looks through all that it keeps, for what is too
 * old, whenever it connects. */
static gboolean names_an_address(const char *uri)
{
    g_autoptr(GUri) parsed = g_uri_parse(uri, G_URI_FLAGS_NONE, NULL);

    return parsed != NULL && g_hostname_is_ip_address(g_uri_get_host(parsed));
}

static gpointer http_ask(gpointer data, const char *id, const char *uri, gint64 timeout_ms,
                         gboolean keep, LhProbeDone done, gpointer done_data)
{
    LhProbeHttp *http = data;
    Question *question = g_new0(Question, 1);
    CURL *curl = curl_easy_init();

    (void)id;
    *question = (Question){
        .http = http,
        .curl = curl,
        .body = g_string_new(NULL),
        .done = done,
        .data = done_data,
    };
    curl_easy_setopt(curl, CURLOPT_URL, uri);
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_NOPROXY, "*");
    curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 0L);
    curl_easy_setopt(curl, CURLOPT_DNS_CACHE_TIMEOUT, names_an_address(uri) ? 0L : DNS_CACHE_S);
    curl_easy_setopt(curl, CURLOPT_FORBID_REUSE, keep ? 0L : 1L);
    curl_easy_setopt(curl, CURLOPT_USERAGENT, "leasehold");
    curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, (long)MIN(timeout_ms, G_MAXINT));
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, question);
    curl_easy_setopt(curl, CURLOPT_PRIVATE, question);
    if (http->cacert != NULL)
        curl_easy_setopt(curl, CURLOPT_CAINFO, http->cacert);
    curl_multi_add_handle(http->multi, curl);
    return question;
}

static void http_cancel(gpointer data, gpointer question)
{
    (void)data;
    question_free(question);
}

static void answer(Question *question, CURLcode result)
{
    LhProbeAnswer told = {
        .error = question->too_big    ? "too long an answer"
                 : result == CURLE_OK ? NULL
                                      : curl_easy_strerror(result),
        .timed_out = result == CURLE_OPERATION_TIMEDOUT,
        .body = question->body->str,
        .len = question->body->len,
    };
    LhProbeDone done = question->done;
    gpointer data = question->data;

    curl_easy_getinfo(question->curl, CURLINFO_RESPONSE_CODE, &told.status);
    done(&told, data);
    question_free(question);
}

static void look_for_ends(LhProbeHttp *http)
{
    const CURLMsg *message;
    int left;

    while ((message = curl_multi_info_read(http->multi, &left)) != NULL) {
        Question *question = NULL;
        if (message->msg != CURLMSG_DONE)
            continue;
        curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &question);
        answer(question, message->data.result);
    }
}

LhProbeAsker lh_probe_http_asker(LhProbeHttp *http)
{
    return (LhProbeAsker){.ask = http_ask, .cancel = http_cancel, .data = http};
}

LhProbeHttp *lh_probe_http_new(LhEnv *env, const char *cacert, guint kept)
{
    LhProbeHttp *http = g_new0(LhProbeHttp, 1);

    curl_global_init(CURL_GLOBAL_DEFAULT);
    http->env = env;
    http->cacert = g_strdup(cacert);
    http->sources = g_hash_table_new(NULL, NULL);
    http->multi = curl_multi_init();
    curl_multi_setopt(http->multi, CURLMOPT_SOCKETFUNCTION, set_socket);
    curl_multi_setopt(http->multi, CURLMOPT_SOCKETDATA, http);
    curl_multi_setopt(http->multi, CURLMOPT_TIMERFUNCTION, set_timer);
    curl_multi_setopt(http->multi, CURLMOPT_TIMERDATA, http);
    curl_multi_setopt(http->multi, CURLMOPT_MAXCONNECTS, (long)kept);
    return http;
}

void lh_probe_http_free(LhProbeHttp *http)
{
    GHashTableIter iter;
    gpointer source;

    if (http == NULL)
        return;
    curl_multi_cleanup(http->multi);
    lh_timer_clear(http->env, &http->timer);
    g_hash_table_iter_init(&iter, http->sources);
    while (g_hash_table_iter_next(&iter, NULL, &source))
        g_source_remove(GPOINTER_TO_UINT(source));
    g_hash_table_unref(http->sources);
    g_free(http->cacert);
    g_free(http);
}
