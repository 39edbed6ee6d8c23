/* Probes on one curl multi, driven by the main loop; see prober.h. */
#include "outside/prober.h"

#include "base/errors.h"
#include "base/json.h"
#include "base/log.h"
#include "controllers/detector.h"

#include <curl/curl.h>
#include <glib-unix.h>
#include <string.h>

#define MOST         256
#define MAX_BODY     4096
#define KEPT         1024
#define DNS_CACHE_S  60L
#define REVOKE_MS    5000
#define PROBES       "probes_total"
#define DURATION     "probe_duration_seconds"
#define RESULT(word) "result=\"" word "\""

typedef struct {
    LhProber *prober;
    char *id, *uri;
    gboolean is_address; /* nothing has to be resolved */
    const char *what;
    gint64 token, attempt, number, period_ms, timeout_ms, most;
    LhTimer *timer; /* of the next probe */
    gboolean queued;
    CURL *curl; /* while it is asked */
    gint64 began_ms;
    GString *body;
    gboolean too_big;
    gint64 misses; /* in a row; -1: nothing was told yet */
    LhCallId call; /* of a revocation */
} Job;

struct LhProber {
    LhProberOptions options;
    char *cacert;
    CURLM *multi;
    LhTimer *timer;      /* curl's */
    GHashTable *sources; /* socket -> id of its source */
    GHashTable *jobs;    /* id -> Job */
    GQueue waiting;      /* Job */
    guint running;
};

static void begin_waiting(LhProber *prober);
static void look_for_ends(LhProber *prober);

/* ---- the loop ---- */

static gboolean on_socket(gint fd, GIOCondition condition, gpointer data)
{
    LhProber *prober = data;
    int running, events = 0;

    if ((condition & (G_IO_IN | G_IO_HUP)) != 0)
        events |= CURL_CSELECT_IN;
    if ((condition & G_IO_OUT) != 0)
        events |= CURL_CSELECT_OUT;
    if ((condition & (G_IO_ERR | G_IO_NVAL)) != 0)
        events |= CURL_CSELECT_ERR;
    curl_multi_socket_action(prober->multi, fd, events, &running);
    look_for_ends(prober);
    return G_SOURCE_CONTINUE;
}

static void on_timeout(gpointer data)
{
    LhProber *prober = data;
    int running;

    prober->timer = NULL;
    curl_multi_socket_action(prober->multi, CURL_SOCKET_TIMEOUT, 0, &running);
    look_for_ends(prober);
}

static int set_socket(CURL *curl, curl_socket_t fd, int what, void *data, void *unused)
{
    LhProber *prober = data;
    guint old = GPOINTER_TO_UINT(g_hash_table_lookup(prober->sources, GINT_TO_POINTER(fd)));
    GIOCondition condition = 0;

    (void)curl;
    (void)unused;
    if (old != 0)
        g_source_remove(old);
    g_hash_table_remove(prober->sources, GINT_TO_POINTER(fd));
    if (what == CURL_POLL_REMOVE)
        return 0;
    if ((what & CURL_POLL_IN) != 0)
        condition |= G_IO_IN;
    if ((what & CURL_POLL_OUT) != 0)
        condition |= G_IO_OUT;
    g_hash_table_insert(prober->sources, GINT_TO_POINTER(fd),
                        GUINT_TO_POINTER(g_unix_fd_add(fd, condition, on_socket, prober)));
    return 0;
}

static int set_timer(CURLM *multi, long timeout_ms, void *data)
{
    LhProber *prober = data;

    (void)multi;
    lh_timer_clear(prober->options.env, &prober->timer);
    if (timeout_ms >= 0)
        prober->timer = lh_timer_in(prober->options.env, timeout_ms, on_timeout, prober);
    return 0;
}

/* ---- one probe ---- */

/* Of more nodes than connections are kept each connection would be closed just before it is needed again, and
 * libcurl looks through all of them for the oldest. */
static gboolean keeps_connections(const LhProber *prober)
{
    return g_hash_table_size(prober->jobs) <= prober->options.kept;
}

static void stop(Job *job)
{
    if (job->queued)
        g_queue_remove(&job->prober->waiting, job);
    job->queued = FALSE;
    if (job->curl == NULL)
        return;
    curl_multi_remove_handle(job->prober->multi, job->curl);
    curl_easy_cleanup(job->curl);
    job->curl = NULL;
    job->prober->running--;
}

static void on_due(gpointer data)
{
    Job *job = data;

    job->timer = NULL;
    job->queued = TRUE;
    g_queue_push_tail(&job->prober->waiting, job);
    begin_waiting(job->prober);
}

static size_t on_body(char *data, size_t size, size_t n, void *user_data)
{
    Job *job = user_data;

    if (size * n > MAX_BODY - job->body->len) {
        job->too_big = TRUE;
        return 0;
    }
    g_string_append_len(job->body, data, (gssize)(size * n));
    return size * n;
}

static void begin(Job *job)
{
    LhProber *prober = job->prober;
    CURL *curl = curl_easy_init();

    job->curl = curl;
    job->began_ms = lh_mono_ms(prober->options.env);
    job->too_big = FALSE;
    g_string_truncate(job->body, 0);
    prober->running++;
    curl_easy_setopt(curl, CURLOPT_URL, job->uri);
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_NOPROXY, "*");
    curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 0L);
    curl_easy_setopt(curl, CURLOPT_DNS_CACHE_TIMEOUT, job->is_address ? 0L : DNS_CACHE_S);
    curl_easy_setopt(curl, CURLOPT_FORBID_REUSE, keeps_connections(prober) ? 0L : 1L);
    curl_easy_setopt(curl, CURLOPT_USERAGENT, "leasehold");
    curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, (long)MIN(job->timeout_ms, G_MAXINT));
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, job);
    curl_easy_setopt(curl, CURLOPT_PRIVATE, job);
    if (prober->cacert != NULL)
        curl_easy_setopt(curl, CURLOPT_CAINFO, prober->cacert);
    curl_multi_add_handle(prober->multi, curl);
}

static void begin_waiting(LhProber *prober)
{
    while (prober->running < prober->options.most && !g_queue_is_empty(&prober->waiting)) {
        Job *job = g_queue_pop_head(&prober->waiting);
        job->queued = FALSE;
        begin(job);
    }
}

static gboolean says_healthy(const GString *body)
{
    g_autoptr(GError) error = NULL;
    cJSON *json = lh_json_parse(body->str, body->len, MAX_BODY, &error);
    const cJSON *status = cJSON_GetObjectItemCaseSensitive(json, "status");
    gboolean healthy = cJSON_IsString(status) && strcmp(status->valuestring, "healthy") == 0;

    cJSON_Delete(json);
    return healthy;
}

/* NULL: it is healthy; else why not; g_free. */
static char *verdict(const Job *job, CURLcode result)
{
    long status = 0;

    if (job->too_big)
        return g_strdup("too long an answer");
    if (result == CURLE_OPERATION_TIMEDOUT)
        return g_strdup("timed out");
    if (result != CURLE_OK)
        return g_strdup(curl_easy_strerror(result));
    curl_easy_getinfo(job->curl, CURLINFO_RESPONSE_CODE, &status);
    if (status != 200)
        return g_strdup_printf("answered %ld", status);
    return says_healthy(job->body) ? NULL : g_strdup("did not answer status healthy");
}

static void tell(Job *job, const char *error)
{
    g_autofree char *name = g_strconcat(LH_DETECTOR "/", job->id, NULL);
    LhObservation seen = {
        .at = lh_wall_ms(job->prober->options.env),
        .token = job->token,
        .attempt = job->attempt,
        .error = error,
        .clock = -1,
        .objects = -1,
        .bytes = -1,
        .revision = -1,
        .newest = -1,
        .missing = job->misses,
        .orphans = -1,
    };

    lh_mirror_observe(job->prober->options.mirror, name, &seen);
}

/* May free the job. */
static void take(Job *job, CURLcode result)
{
    const LhProberOptions *options = &job->prober->options;
    g_autofree char *why = verdict(job, result);
    gint64 now = lh_mono_ms(options->env), before = job->misses;

    stop(job);
    lh_counter_add(options->metrics, PROBES, why == NULL ? RESULT("healthy") : RESULT("miss"), 1);
    lh_histogram_observe(options->metrics, DURATION, NULL, (double)(now - job->began_ms) / 1000);
    job->timer = lh_timer_in(options->env, MAX(job->began_ms + job->period_ms - now, 1), on_due,
                             job);
    job->misses = why == NULL ? 0 : MIN(MAX(before, 0) + 1, job->most);
    if (job->misses != before)
        tell(job, why);
}

static void look_for_ends(LhProber *prober)
{
    const CURLMsg *message;
    int left;

    while ((message = curl_multi_info_read(prober->multi, &left)) != NULL) {
        Job *job = NULL;
        CURLcode result = message->data.result;
        if (message->msg != CURLMSG_DONE)
            continue;
        curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &job);
        take(job, result);
    }
    begin_waiting(prober);
}

/* ---- revoking ---- */

static void on_revoked(gint64 lease, gint64 ttl_s, const GError *error, gpointer data)
{
    Job *job = data;
    /* One that is gone already is what was wanted. */
    gboolean done = error == NULL || g_error_matches(error, LH_ERROR, LH_ERR_NOT_FOUND);

    (void)lease;
    (void)ttl_s;
    job->call = 0;
    job->misses = 0; /* it is over */
    lh_log(done ? LH_LOG_INFO : LH_LOG_WARNING, done ? "lease revoked" : "lease not revoked",
           "errand", job->id, done ? NULL : "why", done ? NULL : error->message, NULL);
    tell(job, done ? NULL : error->message);
}

/* libcurl keeps addresses too as if they had been resolved, and looks through all that it keeps, for what is too old,
 * whenever it connects. */
static gboolean names_an_address(const char *uri)
{
    g_autoptr(GUri) parsed = g_uri_parse(uri, G_URI_FLAGS_NONE, NULL);

    return parsed != NULL && g_hostname_is_ip_address(g_uri_get_host(parsed));
}

static void start(Job *job)
{
    LhEnv *env = job->prober->options.env;
    LhEtcd *etcd = job->prober->options.etcd;

    if (strcmp(job->what, LH_DETECTOR_PROBE) == 0)
        job->timer = lh_timer_in(env, (gint64)lh_random_below(env, (guint64)MAX(job->period_ms, 1)),
                                 on_due, job);
    else
        job->call = etcd->v->lease_revoke(etcd, job->number, REVOKE_MS, on_revoked, job);
}

/* ---- the list ---- */

static void job_free(gpointer data)
{
    Job *job = data;

    stop(job);
    lh_timer_clear(job->prober->options.env, &job->timer);
    if (job->call != 0)
        job->prober->options.etcd->v->cancel(job->prober->options.etcd, job->call);
    g_string_free(job->body, TRUE);
    g_free(job->id);
    g_free(job->uri);
    g_free(job);
}

static Job *job_new(LhProber *prober, const LhErrand *errand)
{
    Job *job = g_new0(Job, 1);

    *job = (Job){
        .prober = prober,
        .id = g_strdup(errand->id),
        .uri = g_strdup(errand->uri),
        .is_address = errand->uri != NULL && names_an_address(errand->uri),
        .what = errand->what,
        .token = errand->token,
        .attempt = errand->attempt,
        .number = errand->number,
        .body = g_string_new(NULL),
        .misses = -1,
    };
    return job;
}

static void prober_set(const char *controller, const LhErrand *errands, guint n, gpointer data)
{
    LhProber *prober = data;
    g_autoptr(GHashTable) wanted = NULL;

    if (strcmp(controller, LH_DETECTOR) != 0)
        return;
    wanted = g_hash_table_new_full(g_str_hash, g_str_equal, NULL, job_free);
    for (guint i = 0; i < n; i++) {
        const LhErrand *errand = &errands[i];
        Job *job = g_hash_table_lookup(prober->jobs, errand->id);
        if (job != NULL && job->token == errand->token && job->attempt == errand->attempt &&
            g_strcmp0(job->uri, errand->uri) == 0) {
            g_hash_table_steal(prober->jobs, errand->id);
        } else {
            job = job_new(prober, errand);
        }
        job->period_ms = errand->period_ms;
        job->timeout_ms = errand->timeout_ms;
        job->most = errand->most;
        g_hash_table_insert(wanted, job->id, job);
        if (job->timer == NULL && !job->queued && job->curl == NULL && job->call == 0 &&
            job->misses == -1)
            start(job);
    }
    g_hash_table_unref(prober->jobs);
    prober->jobs = g_steal_pointer(&wanted);
}

const LhOutside lh_prober_outside = {.set = prober_set};

LhProber *lh_prober_new(const LhProberOptions *options)
{
    LhProber *prober = g_new0(LhProber, 1);

    curl_global_init(CURL_GLOBAL_DEFAULT);
    prober->options = *options;
    if (prober->options.most == 0)
        prober->options.most = MOST;
    if (prober->options.kept == 0)
        prober->options.kept = KEPT;
    prober->cacert = g_strdup(options->cacert);
    prober->sources = g_hash_table_new(NULL, NULL);
    prober->jobs = g_hash_table_new_full(g_str_hash, g_str_equal, NULL, job_free);
    g_queue_init(&prober->waiting);
    lh_metrics_declare(options->metrics, LH_COUNTER, PROBES, "Probes of nodes, by result.", NULL);
    lh_metrics_declare(options->metrics, LH_HISTOGRAM, DURATION, "Time that a probe took.",
                       lh_duration_buckets);
    prober->multi = curl_multi_init();
    curl_multi_setopt(prober->multi, CURLMOPT_SOCKETFUNCTION, set_socket);
    curl_multi_setopt(prober->multi, CURLMOPT_SOCKETDATA, prober);
    curl_multi_setopt(prober->multi, CURLMOPT_TIMERFUNCTION, set_timer);
    curl_multi_setopt(prober->multi, CURLMOPT_TIMERDATA, prober);
    curl_multi_setopt(prober->multi, CURLMOPT_MAXCONNECTS, (long)prober->options.kept);
    return prober;
}

void lh_prober_free(LhProber *prober)
{
    GHashTableIter iter;
    gpointer source;

    if (prober == NULL)
        return;
    g_hash_table_unref(prober->jobs);
    curl_multi_cleanup(prober->multi);
    lh_timer_clear(prober->options.env, &prober->timer);
    g_hash_table_iter_init(&iter, prober->sources);
    while (g_hash_table_iter_next(&iter, NULL, &source))
        g_source_remove(GPOINTER_TO_UINT(source));
    g_hash_table_unref(prober->sources);
    g_free(prober->cacert);
    g_free(prober);
}
