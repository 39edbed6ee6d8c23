/*
 * The s3:// backend's frame: options, the parts of a uri, and patience with failures that may pass.
 */
#include "objectstore/objectstore_s3.h"

#include "base/errors.h"
#include "objectstore/s3_url.h"

#include <string.h>

const LhS3Tuning lh_s3_tuning_default = {
    .part_bytes = 64 * 1024 * 1024,
    .parts_at_once = LH_S3_MAX_PARTS,
    .max_keys = 1000,
    .attempts = 6,
    .backoff_ms = 200,
    .backoff_cap_ms = 5000,
    .retry_after_ms = 20000,
    .connect_s = 10,
    .stall_s = 30,
};

typedef struct {
    LhStoreBackend base;
    LhS3Client *client;
} S3;

/* ---- uris ---- */

gboolean lh_s3_place_of(const char *uri, LhS3Place *out, GError **error)
{
    const char *bucket = uri + strlen(LH_S3_SCHEME);
    const char *slash = strchr(bucket, '/');
    g_autofree char *name = g_strndup(bucket, (gsize)(slash - bucket));
    if (!lh_s3_bucket_valid(name)) {
        g_set_error(error, LH_ERROR, LH_ERR_INVALID, "%s: its bucket is not the name of one", uri);
        return FALSE;
    }
    if (!g_utf8_validate(uri, -1, NULL)) {
        g_set_error(error, LH_ERROR, LH_ERR_INVALID, "an uri in bucket %s is not UTF-8", name);
        return FALSE;
    }
    *out = (LhS3Place){.bucket = g_steal_pointer(&name), .prefix = g_strdup(slash + 1)};
    return TRUE;
}

void lh_s3_place_clear(LhS3Place *place)
{
    g_clear_pointer(&place->bucket, g_free);
    g_clear_pointer(&place->prefix, g_free);
}

/* ---- patience ---- */

gint64 lh_s3_patience_next(LhS3Patience *patience, gint64 server_asks_ms, GError **error)
{
    const LhS3Tuning *t = patience->tuning;
    guint shift = MIN(patience->failures, 20u);
    if (++patience->failures >= t->attempts) {
        if (error != NULL && *error != NULL) {
            g_autofree char *more = g_strdup_printf("; given up after %u attempts",
                                                    patience->failures);
            g_autofree char *text = g_strconcat((*error)->message, more, NULL);
            g_free((*error)->message);
            (*error)->message = g_steal_pointer(&text);
        }
        return 0;
    }
    gint64 base = MAX(MIN(t->backoff_ms << shift, t->backoff_cap_ms), 1);
    gint64 pause = g_rand_int_range(patience->rand, (gint32)(base / 2), (gint32)base + 1);
    pause = MAX(pause, MIN(server_asks_ms, t->retry_after_ms));
    return g_get_monotonic_time() + pause * 1000;
}

gboolean lh_s3_ask(LhS3Session *session, LhS3Exchange *exchange, LhS3Patience *patience,
                   LhStoreTask *task, const char *name, GError **error)
{
    const LhStoreJob *job = lh_task_job(task);
    patience->failures = 0;
    for (;;) {
        gint64 after_ms = 0, until = 0;
        g_autoptr(GError) local = NULL;
        if (!lh_s3_exchange_start(session, exchange, error))
            return FALSE;
        if (lh_s3_session_run(session, G_MAXINT64) != NULL) {
            LhS3Verdict verdict = lh_s3_exchange_verdict(exchange, job->uri, name, &after_ms,
                                                         &local);
            if (verdict == LH_S3_OK)
                return TRUE;
            if (verdict == LH_S3_AGAIN)
                until = lh_s3_patience_next(patience, after_ms, &local);
            if (until == 0) {
                g_propagate_error(error, g_steal_pointer(&local));
                return FALSE;
            }
            lh_s3_session_run(session, until);
        }
        if (lh_task_cancelled(task)) {
            g_set_error(error, LH_ERROR, LH_ERR_CANCELLED, "%s: cancelled", job->uri);
            return FALSE;
        }
    }
}

/* ---- options ---- */

const char *lh_store_s3_options_check(const LhObjectStoreOptions *options, GError **error)
{
    LhS3Addressing addressing;
    g_auto(LhS3Endpoint) endpoint = {0};
    if (!lh_s3_addressing_parse(options->addressing, &addressing)) {
        g_set_error(error, LH_ERROR, LH_ERR_INVALID, "\"%s\": must be auto, path or virtual",
                    options->addressing);
        return "objectStore.addressing";
    }
    if (options->endpoint != NULL && !lh_s3_endpoint_parse(options->endpoint, &endpoint, error))
        return "objectStore.endpoint";
    if (endpoint.is_address && addressing == LH_S3_VIRTUAL) {
        g_set_error(error, LH_ERROR, LH_ERR_INVALID,
                    "virtual needs an objectStore.endpoint that is a name, not an address");
        return "objectStore.addressing";
    }
    for (const char *at = options->region; at != NULL && *at != '\0'; at++) {
        if (!g_ascii_isalnum(*at) && strchr("-_", *at) == NULL) {
            g_set_error(error, LH_ERROR, LH_ERR_INVALID,
                        "must be letters, digits, '-' and '_', like eu-west-1");
            return "objectStore.region";
        }
    }
    if ((options->access_key_file == NULL) != (options->secret_key_file == NULL)) {
        gboolean has_access = options->access_key_file != NULL;
        g_set_error(error, LH_ERROR, LH_ERR_INVALID, "objectStore.%s must be given too",
                    has_access ? "secretKeyFile" : "accessKeyFile");
        return has_access ? "objectStore.accessKeyFile" : "objectStore.secretKeyFile";
    }
    return NULL;
}

/* ---- the backend ---- */

static gboolean s3_list(LhStoreBackend *backend, LhStoreTask *task, GError **error)
{
    return lh_s3_list(((S3 *)backend)->client, task, error);
}

static char *s3_fetch(LhStoreBackend *backend, LhStoreTask *task, GError **error)
{
    return lh_s3_fetch(((S3 *)backend)->client, task, error);
}

static gboolean s3_work(LhStoreBackend *backend, LhStoreTask *task, GError **error)
{
    return lh_s3_work(((S3 *)backend)->client, task, error);
}

static void s3_wake(LhStoreBackend *backend, LhStoreTask *task)
{
    lh_s3_client_wake(((S3 *)backend)->client, task);
}

static void s3_free(LhStoreBackend *backend)
{
    lh_s3_client_free(((S3 *)backend)->client);
    g_free(backend);
}

LhStoreBackend *lh_store_s3_new(const LhObjectStoreOptions *options, const LhS3Tuning *tuning,
                                GError **error)
{
    static const LhStoreBackendVtable vtable = {
        .list = s3_list,
        .fetch = s3_fetch,
        .work = s3_work,
        .wake = s3_wake,
        .free = s3_free,
    };
    const char *wrong = lh_store_s3_options_check(options, error);
    if (wrong != NULL) {
        g_prefix_error(error, "%s: ", wrong);
        return NULL;
    }
    LhS3Client *client = lh_s3_client_new(options, tuning, error);
    if (client == NULL)
        return NULL;
    S3 *s3 = g_new0(S3, 1);
    s3->base.v = &vtable;
    s3->client = client;
    return &s3->base;
}
