/* Probes and revocations, from the list of errands to observations; see prober.h. */
#include "outside/prober.h"

#include "base/errors.h"
#include "base/json.h"
#include "base/log.h"
#include "base/planted.h"
#include "controllers/detector.h"
#include "outside/probe_http.h"

#include <string.h>

#define MOST      256
#define MAX_BODY  4096
#define KEPT      1024
#define REVOKE_MS 5000
/* A question's time is told to have run out so much later only when the loop did not turn meanwhile. */
#define STOOD_STILL_MS 250
#define PROBES         "probes_total"
#define DURATION       "probe_duration_seconds"
#define RESULT(word)   "result=\"" word "\""

typedef struct {
    LhProber *prober;
    char *id, *uri;
    const char *what;
    gint64 token, attempt, number, period_ms, timeout_ms, most;
    guint list;     /* the last one that it was in */
    LhTimer *timer; /* of the next probe */
    gboolean queued;
    gpointer question; /* while it is asked */
    gint64 began_ms;
    gint64 misses; /* in a row; -1: nothing was told yet */
    LhCallId call; /* of a revocation */
} Job;

struct LhProber {
    LhProberOptions options;
    LhProbeHttp *http; /* NULL: another asks */
    GHashTable *jobs;  /* id -> Job */
    GQueue waiting;    /* Job */
    guint running;
    guint list; /* how many there were */
};

static void begin_waiting(LhProber *prober);
static void take(const LhProbeAnswer *answer, gpointer data);

/* ---- one probe ---- */

/* Of more nodes than connections are kept each connection would be closed just before it is needed again, and
 * libcurl looks through all of them for the oldest. */
static gboolean keeps_connections(const LhProber *prober)
{
    return g_hash_table_size(prober->jobs) <= prober->options.kept;
}

static void stop(Job *job)
{
    LhProber *prober = job->prober;

    if (job->queued)
        g_queue_remove(&prober->waiting, job);
    job->queued = FALSE;
    if (job->question == NULL)
        return;
    prober->options.asker.cancel(prober->options.asker.data, job->question);
    job->question = NULL;
    prober->running--;
}

static void on_due(gpointer data)
{
    Job *job = data;

    job->timer = NULL;
    job->queued = TRUE;
    g_queue_push_tail(&job->prober->waiting, job);
    begin_waiting(job->prober);
}

static void begin_waiting(LhProber *prober)
{
    const LhProbeAsker *asker = &prober->options.asker;

    while (prober->running < prober->options.most && !g_queue_is_empty(&prober->waiting)) {
        Job *job = g_queue_pop_head(&prober->waiting);
        job->queued = FALSE;
        job->began_ms = lh_mono_ms(prober->options.env);
        prober->running++;
        job->question = asker->ask(asker->data, job->id, job->uri, job->timeout_ms,
                                   keeps_connections(prober), take, job);
    }
}

static gboolean says_healthy(const LhProbeAnswer *answer)
{
    g_autoptr(GError) error = NULL;
    cJSON *json = lh_json_parse(answer->body, answer->len, MAX_BODY, &error);
    const cJSON *status = cJSON_GetObjectItemCaseSensitive(json, "status");
    gboolean healthy = cJSON_IsString(status) && strcmp(status->valuestring, "healthy") == 0;

    cJSON_Delete(json);
    return healthy;
}

/* NULL: it is healthy; else why not; g_free. */
static char *verdict(const LhProbeAnswer *answer)
{
    if (answer->timed_out)
        return g_strdup("timed out");
    if (answer->error != NULL)
        return g_strdup(answer->error);
    if (answer->status != 200)
        return g_strdup_printf("answered %ld", answer->status);
    return says_healthy(answer) ? NULL : g_strdup("did not answer status healthy");
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
static void count(Job *job, const char *why)
{
    gint64 before = job->misses;

    job->misses = why == NULL ? 0 : MIN(MAX(before, 0) + (LH_BUG(MISS_TWICE) ? 2 : 1), job->most);
    if (job->misses != before)
        tell(job, why);
}

static void take(const LhProbeAnswer *answer, gpointer data)
{
    Job *job = data;
    LhProber *prober = job->prober;
    const LhProberOptions *options = &prober->options;
    g_autofree char *why = verdict(answer);
    gint64 now = lh_mono_ms(options->env), took = now - job->began_ms;
    gboolean asleep = answer->timed_out && took > job->timeout_ms + STOOD_STILL_MS;

    job->question = NULL;
    prober->running--;
    lh_counter_add(options->metrics, PROBES,
                   why == NULL ? RESULT("healthy")
                   : asleep    ? RESULT("late")
                               : RESULT("miss"),
                   1);
    lh_histogram_observe(options->metrics, DURATION, NULL, (double)took / 1000);
    job->timer = lh_timer_in(options->env, MAX(job->period_ms - took, 1), on_due, job);
    if (!asleep)
        count(job, why);
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
        .what = errand->what,
        .token = errand->token,
        .attempt = errand->attempt,
        .number = errand->number,
        .misses = -1,
    };
    return job;
}

static gboolean is_of(const Job *job, const LhErrand *errand)
{
    return job->token == errand->token && job->attempt == errand->attempt &&
           g_strcmp0(job->uri, errand->uri) == 0;
}

static gboolean is_unwanted(gpointer id, gpointer job, gpointer prober)
{
    (void)id;
    return ((const Job *)job)->list != ((const LhProber *)prober)->list;
}

static void prober_set(const char *controller, const LhErrand *errands, guint n, gpointer data)
{
    LhProber *prober = data;

    if (strcmp(controller, LH_DETECTOR) != 0)
        return;
    prober->list++;
    for (guint i = 0; i < n; i++) {
        const LhErrand *errand = &errands[i];
        Job *job = g_hash_table_lookup(prober->jobs, errand->id);
        gboolean is_new = job == NULL || !is_of(job, errand);
        if (is_new) {
            job = job_new(prober, errand);
            g_hash_table_replace(prober->jobs, job->id, job);
        }
        job->list = prober->list;
        job->period_ms = errand->period_ms;
        job->timeout_ms = errand->timeout_ms;
        job->most = errand->most;
        if (is_new)
            start(job);
    }
    g_hash_table_foreach_remove(prober->jobs, is_unwanted, prober);
}

const LhOutside lh_prober_outside = {.set = prober_set};

LhProber *lh_prober_new(const LhProberOptions *options)
{
    LhProber *prober = g_new0(LhProber, 1);

    prober->options = *options;
    if (prober->options.most == 0)
        prober->options.most = MOST;
    if (prober->options.kept == 0)
        prober->options.kept = KEPT;
    prober->options.cacert = NULL;
    if (prober->options.asker.ask == NULL) {
        prober->http = lh_probe_http_new(options->env, options->cacert, prober->options.kept);
        prober->options.asker = lh_probe_http_asker(prober->http);
    }
    prober->jobs = g_hash_table_new_full(g_str_hash, g_str_equal, NULL, job_free);
    g_queue_init(&prober->waiting);
    lh_metrics_declare(options->metrics, LH_COUNTER, PROBES, "Probes of nodes, by result.", NULL);
    lh_metrics_declare(options->metrics, LH_HISTOGRAM, DURATION, "Time that a probe took.",
                       lh_duration_buckets);
    return prober;
}

void lh_prober_free(LhProber *prober)
{
    if (prober == NULL)
        return;
    g_hash_table_unref(prober->jobs);
    lh_probe_http_free(prober->http);
    g_free(prober);
}
