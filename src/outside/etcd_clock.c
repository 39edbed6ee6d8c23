/* etcd's clock over HTTP; see etcd_clock.h. /version asks for no password, only for what TLS asks for. */
#include "outside/etcd_clock.h"

#include "base/errors.h"
#include "base/workers.h"

#include <curl/curl.h>
#include <string.h>
#include <time.h>

#define TIMEOUT_S 10

typedef struct {
    LhEtcdClock *clock;
    char *url;
    gint64 clock_ms;
    GError *error;
    gboolean cancelled; /* of the loop */
    void (*done)(gint64 clock_ms, const GError *error, gpointer done_data);
    gpointer done_data;
} Question;

struct LhEtcdClock {
    LhWorkers *workers;
    char *(*endpoint)(gpointer data);
    gpointer data;
    char *cacert, *cert, *key;
    Question *question; /* NULL: none is open */
};

static void question_free(gpointer data)
{
    Question *question = data;

    g_free(question->url);
    g_clear_error(&question->error);
    g_free(question);
}

static size_t on_header(char *data, size_t size, size_t n, void *user_data)
{
    Question *question = user_data;
    g_autofree char *line = g_strndup(data, size * n);

    if (g_ascii_strncasecmp(line, "date:", 5) == 0) {
        time_t date = curl_getdate(g_strstrip(line + 5), NULL);
        question->clock_ms = date > 0 ? (gint64)date * 1000 : -1;
    }
    return size * n;
}

static size_t ignore(char *data, size_t size, size_t n, void *user_data)
{
    (void)data;
    (void)user_data;
    return size * n;
}

static void finish(gpointer data)
{
    Question *question = data;

    if (!question->cancelled) {
        question->clock->question = NULL;
        question->done(question->clock_ms, question->error, question->done_data);
    }
    question_free(question);
}

/* On a worker's thread. */
static void work(gpointer data)
{
    Question *question = data;
    const LhEtcdClock *clock = question->clock;
    CURL *curl = curl_easy_init();
    char why[CURL_ERROR_SIZE] = "";
    CURLcode result;

    question->clock_ms = -1;
    curl_easy_setopt(curl, CURLOPT_URL, question->url);
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, why);
    curl_easy_setopt(curl, CURLOPT_NOPROXY, "*");
    curl_easy_setopt(curl, CURLOPT_TIMEOUT, (long)TIMEOUT_S);
    curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(curl, CURLOPT_HEADERDATA, question);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, ignore);
    if (clock->cacert != NULL)
        curl_easy_setopt(curl, CURLOPT_CAINFO, clock->cacert);
    if (clock->cert != NULL) {
        curl_easy_setopt(curl, CURLOPT_SSLCERT, clock->cert);
        curl_easy_setopt(curl, CURLOPT_SSLKEY, clock->key);
    }
    result = curl_easy_perform(curl);
    if (result != CURLE_OK)
        g_set_error(&question->error, LH_ERROR, LH_ERR_UNAVAILABLE, "%s: %s", question->url,
                    *g_strstrip(why) != '\0' ? g_strdelimit(why, "\r\n", ' ')
                                             : curl_easy_strerror(result));
    else if (question->clock_ms < 0)
        g_set_error(&question->error, LH_ERROR, LH_ERR_INVALID, "%s: the answer has no Date",
                    question->url);
    curl_easy_cleanup(curl);
    lh_workers_post(clock->workers, finish, question, question_free);
}

static void ask(gpointer data,
                void (*done)(gint64 clock_ms, const GError *error, gpointer done_data),
                gpointer done_data)
{
    LhEtcdClock *clock = data;
    Question *question = g_new0(Question, 1);
    g_autofree char *endpoint = clock->endpoint(clock->data);

    g_assert(clock->question == NULL);
    *question = (Question){
        .clock = clock,
        .url = g_strconcat(endpoint, "/version", NULL),
        .done = done,
        .done_data = done_data,
    };
    clock->question = question;
    lh_workers_run(clock->workers, work, question);
}

static void cancel(gpointer data)
{
    LhEtcdClock *clock = data;

    if (clock->question != NULL)
        clock->question->cancelled = TRUE;
    clock->question = NULL;
}

LhEtcdClock *lh_etcd_clock_new(char *(*endpoint)(gpointer data), gpointer data, const char *cacert,
                               const char *cert, const char *key)
{
    LhEtcdClock *clock = g_new0(LhEtcdClock, 1);

    curl_global_init(CURL_GLOBAL_DEFAULT);
    (void)lh_error_quark(); /* before there are threads */
    clock->workers = lh_workers_new(1);
    clock->endpoint = endpoint;
    clock->data = data;
    clock->cacert = g_strdup(cacert);
    clock->cert = g_strdup(cert);
    clock->key = g_strdup(key);
    return clock;
}

void lh_etcd_clock_free(LhEtcdClock *clock)
{
    if (clock == NULL)
        return;
    cancel(clock);
    lh_workers_free(clock->workers);
    g_free(clock->cacert);
    g_free(clock->cert);
    g_free(clock->key);
    g_free(clock);
}

LhClockSource lh_etcd_clock_source(LhEtcdClock *clock)
{
    return (LhClockSource){.ask = ask, .cancel = cancel, .data = clock};
}
