/*
 * libcurl: sessions, signed requests, heads of answers.
 *
 * libcurl signs with CURLOPT_AWS_SIGV4, but leaves to us x-amz-content-sha256 on every request, and
 * a canonical url (s3_url.c). An X-Amz-Date of ours would be sent beside its own, and refused.
 * Credentials go to libcurl as options, never into an url, where an error could repeat them.
 */
#include "objectstore/s3_client.h"

#include "objectstore/s3_credentials.h"
#include "objectstore/s3_url.h"

#include <string.h>
#include <time.h>

/* The sha256 of nothing: hardly any request here has a body. */
#define EMPTY_SHA256 "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

#define BUFFER_BYTES     (512 * 1024)
#define MAX_ERROR_BYTES  (64 * 1024)
#define MAX_HEADER_BYTES 1024
#define MIN_BYTES_PER_S  1024

struct LhS3Client {
    LhS3Endpoint endpoint;
    LhS3Addressing addressing;
    char *signing, *region; /* "aws:amz:REGION:s3" */
    char *cacert;
    LhS3Credentials *credentials;
    LhS3Tuning tuning;
    char *resolve;
    GMutex mutex;     /* what follows */
    GPtrArray *idle;  /* of LhS3Session */
    GPtrArray *taken; /* of LhS3Session */
};

struct LhS3Session {
    LhS3Client *client;
    LhStoreTask *task;
    CURLM *multi;
    CURL *curls[LH_S3_MAX_PARTS];
    LhS3Exchange *running[LH_S3_MAX_PARTS];
    struct curl_slist *resolve;
};

/* ---- clients ---- */

static char *setting(const char *given, const char *variable, const char *other_variable)
{
    const char *value = given;
    if (value == NULL || *value == '\0')
        value = g_getenv(variable);
    if ((value == NULL || *value == '\0') && other_variable != NULL)
        value = g_getenv(other_variable);
    return value != NULL && *value != '\0' ? g_strdup(value) : NULL;
}

LhS3Client *lh_s3_client_new(const LhObjectStoreOptions *options, const LhS3Tuning *tuning,
                             GError **error)
{
    LhS3Credentials *credentials = lh_s3_credentials_new(options->access_key_file,
                                                         options->secret_key_file, error);
    if (credentials == NULL)
        return NULL;
    curl_global_init(CURL_GLOBAL_DEFAULT);
    LhS3Client *client = g_new0(LhS3Client, 1);
    client->credentials = credentials;
    client->region = setting(options->region, "AWS_REGION", "AWS_DEFAULT_REGION");
    if (client->region == NULL)
        client->region = g_strdup("us-east-1");
    client->signing = g_strdup_printf("aws:amz:%s:s3", client->region);
    client->cacert = setting(options->cacert, "AWS_CA_BUNDLE", NULL);
    g_autofree char *endpoint = setting(options->endpoint, "AWS_ENDPOINT_URL", NULL);
    g_autofree char *amazon = g_strdup_printf("https://s3.%s.amazonaws.com%s", client->region,
                                              g_str_has_prefix(client->region, "cn-") ? ".cn" : "");
    lh_s3_addressing_parse(options->addressing, &client->addressing);
    if (!lh_s3_endpoint_parse(endpoint != NULL ? endpoint : amazon, &client->endpoint, error)) {
        g_prefix_error(
            error, "%s: ", options->endpoint != NULL ? "objectStore.endpoint" : "AWS_ENDPOINT_URL");
        lh_s3_client_free(client);
        return NULL;
    }
    client->tuning = *tuning;
    client->resolve = g_strdup(tuning->resolve);
    client->tuning.resolve = client->resolve;
    g_mutex_init(&client->mutex);
    client->idle = g_ptr_array_new();
    client->taken = g_ptr_array_new();
    return client;
}

static void session_free(LhS3Session *session)
{
    for (guint i = 0; i < LH_S3_MAX_PARTS; i++) {
        if (session->curls[i] != NULL)
            curl_easy_cleanup(session->curls[i]);
    }
    curl_multi_cleanup(session->multi);
    curl_slist_free_all(session->resolve);
    g_free(session);
}

void lh_s3_client_free(LhS3Client *client)
{
    if (client->idle != NULL) {
        g_assert(client->taken->len == 0);
        for (guint i = 0; i < client->idle->len; i++)
            session_free(g_ptr_array_index(client->idle, i));
        g_ptr_array_unref(client->idle);
        g_ptr_array_unref(client->taken);
        g_mutex_clear(&client->mutex);
    }
    lh_s3_credentials_free(client->credentials);
    lh_s3_endpoint_clear(&client->endpoint);
    g_free(client->signing);
    g_free(client->region);
    g_free(client->cacert);
    g_free(client->resolve);
    g_free(client);
}

const LhS3Tuning *lh_s3_client_tuning(const LhS3Client *client)
{
    return &client->tuning;
}

/* ---- sessions ---- */

LhS3Session *lh_s3_session_take(LhS3Client *client, LhStoreTask *task)
{
    LhS3Session *session = NULL;
    g_mutex_lock(&client->mutex);
    if (client->idle->len > 0) /* the last one given: its connections are the youngest */
        session = g_ptr_array_steal_index(client->idle, client->idle->len - 1);
    if (session == NULL) {
        session = g_new0(LhS3Session, 1);
        session->client = client;
        session->multi = curl_multi_init();
        if (client->resolve != NULL)
            session->resolve = curl_slist_append(NULL, client->resolve);
    }
    session->task = task;
    g_ptr_array_add(client->taken, session);
    g_mutex_unlock(&client->mutex);
    return session;
}

void lh_s3_session_give(LhS3Session *session)
{
    LhS3Client *client = session->client;
    g_mutex_lock(&client->mutex);
    session->task = NULL;
    g_ptr_array_remove_fast(client->taken, session);
    g_ptr_array_add(client->idle, session);
    g_mutex_unlock(&client->mutex);
}

void lh_s3_client_wake(LhS3Client *client, const LhStoreTask *task)
{
    g_mutex_lock(&client->mutex);
    for (guint i = 0; i < client->taken->len; i++) {
        LhS3Session *session = g_ptr_array_index(client->taken, i);
        if (session->task == task)
            curl_multi_wakeup(session->multi);
    }
    g_mutex_unlock(&client->mutex);
}

/* ---- answers ---- */

static void forget_answer(LhS3Exchange *e)
{
    e->status = 0;
    g_clear_pointer(&e->etag, g_free);
    g_clear_pointer(&e->bucket_region, g_free);
    e->content_length = -1;
    e->range = LH_S3_RANGE_NONE;
    e->date_s = 0;
    if (e->body != NULL)
        g_string_free(e->body, TRUE);
    e->body = NULL;
    e->too_big = FALSE;
}

static void take_header(LhS3Exchange *e, const char *name, const char *value)
{
    if (g_ascii_strcasecmp(name, "etag") == 0) {
        g_free(e->etag);
        e->etag = *value != '\0' ? g_strdup(value) : NULL;
    } else if (g_ascii_strcasecmp(name, "content-length") == 0) {
        e->content_length = lh_s3_length_parse(value);
    } else if (g_ascii_strcasecmp(name, "content-range") == 0) {
        lh_s3_range_parse(value, &e->range);
    } else if (g_ascii_strcasecmp(name, "date") == 0) {
        time_t date = curl_getdate(value, NULL);
        e->date_s = date > 0 ? (gint64)date : 0;
    } else if (g_ascii_strcasecmp(name, "x-amz-bucket-region") == 0) {
        g_free(e->bucket_region);
        e->bucket_region = g_utf8_validate(value, -1, NULL) ? g_strdup(value) : NULL;
    }
}

static size_t on_header(char *data, size_t size, size_t n, void *user_data)
{
    LhS3Exchange *e = user_data;
    gsize len = size * n;
    if (len > MAX_HEADER_BYTES)
        return len; /* none that is looked at is so long */
    g_autofree char *line = g_strndup(data, len);
    g_strstrip(line);
    if (g_str_has_prefix(line, "HTTP/")) { /* of a second answer too, after a 100 */
        forget_answer(e);
        const char *space = strchr(line, ' ');
        e->status = space != NULL ? (glong)g_ascii_strtoll(space, NULL, 10) : 0;
        return len;
    }
    char *colon = strchr(line, ':');
    if (colon != NULL) {
        *colon = '\0';
        take_header(e, line, g_strstrip(colon + 1));
    }
    return len;
}

static size_t on_body(char *data, size_t size, size_t n, void *user_data)
{
    LhS3Exchange *e = user_data;
    gsize len = size * n;
    gboolean success = e->status >= 200 && e->status < 300;
    if (success && e->on_data != NULL)
        return e->on_data(e, (const guint8 *)data, len) ? len : 0;
    gsize limit = success ? e->body_limit : MAX_ERROR_BYTES;
    if (e->body == NULL)
        e->body = g_string_new(NULL);
    if (len > limit - e->body->len) {
        e->too_big = TRUE;
        return 0;
    }
    g_string_append_len(e->body, data, (gssize)len);
    return len;
}

/* ---- requests ---- */

/* The connection is there, and the request is what comes next: nothing that takes time is left. */
static int on_ready(void *user_data, char *to G_GNUC_UNUSED, char *from G_GNUC_UNUSED,
                    int to_port G_GNUC_UNUSED, int from_port G_GNUC_UNUSED)
{
    const LhS3Exchange *e = user_data;
    return lh_task_may_change(e->session->task) ? CURL_PREREQFUNC_OK : CURL_PREREQFUNC_ABORT;
}

G_GNUC_PRINTF(2, 3)
static void add_header(LhS3Exchange *e, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    g_autofree char *line = g_strdup_vprintf(format, args);
    va_end(args);
    e->headers = curl_slist_append(e->headers, line);
}

static gboolean sign(LhS3Exchange *e, GError **error)
{
    LhS3Client *client = e->session->client;
    g_auto(LhS3Identity) identity = {0};
    if (!lh_s3_credentials_get(client->credentials, g_get_monotonic_time(), &identity, error))
        return FALSE;
    e->signed_s = 0;
    if (identity.access_key == NULL)
        return TRUE;
    g_autofree char *sum = e->send == NULL
                               ? NULL
                               : g_compute_checksum_for_string(G_CHECKSUM_SHA256, e->send, -1);
    add_header(e, "X-Amz-Content-Sha256: %s", sum != NULL ? sum : EMPTY_SHA256);
    if (identity.session_token != NULL)
        add_header(e, "X-Amz-Security-Token: %s", identity.session_token);
    curl_easy_setopt(e->curl, CURLOPT_AWS_SIGV4, client->signing);
    curl_easy_setopt(e->curl, CURLOPT_USERNAME, identity.access_key);
    curl_easy_setopt(e->curl, CURLOPT_PASSWORD, identity.secret_key);
    e->signed_s = g_get_real_time() / G_USEC_PER_SEC; /* libcurl dates by the same clock */
    g_free(e->access_key);
    e->access_key = g_steal_pointer(&identity.access_key);
    return TRUE;
}

static void set_options(LhS3Exchange *e)
{
    const LhS3Client *client = e->session->client;
    CURL *curl = e->curl;
    g_autofree char *url = lh_s3_url(&client->endpoint, client->addressing, e->bucket, e->key,
                                     e->query);
    curl_easy_setopt(curl, CURLOPT_URL, url);
    curl_easy_setopt(curl, CURLOPT_PATH_AS_IS, 1L);
    curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, client->endpoint.scheme);
    curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 0L); /* credentials stay with this host */
    curl_easy_setopt(curl, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_USERAGENT, "leasehold");
    curl_easy_setopt(curl, CURLOPT_BUFFERSIZE, (long)BUFFER_BYTES);
    curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT, (long)client->tuning.connect_s);
    curl_easy_setopt(curl, CURLOPT_LOW_SPEED_LIMIT, (long)MIN_BYTES_PER_S);
    curl_easy_setopt(curl, CURLOPT_LOW_SPEED_TIME, (long)client->tuning.stall_s);
    curl_easy_setopt(curl, CURLOPT_TCP_KEEPALIVE, 1L);
    if (client->cacert != NULL)
        curl_easy_setopt(curl, CURLOPT_CAINFO, client->cacert);
    if (e->session->resolve != NULL)
        curl_easy_setopt(curl, CURLOPT_RESOLVE, e->session->resolve);
    e->message[0] = '\0';
    curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, e->message);
    curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(curl, CURLOPT_HEADERDATA, e);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, e);
    curl_easy_setopt(curl, CURLOPT_PRIVATE, e);
    if (e->first >= 0) {
        g_autofree char *range = g_strdup_printf("%" G_GINT64_FORMAT "-%" G_GINT64_FORMAT, e->first,
                                                 e->last);
        curl_easy_setopt(curl, CURLOPT_RANGE, range);
    }
    if (e->method != NULL) { /* it changes something */
        curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, e->method);
        curl_easy_setopt(curl, CURLOPT_PREREQFUNCTION, on_ready);
        curl_easy_setopt(curl, CURLOPT_PREREQDATA, e);
    }
    if (e->send != NULL) {
        curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE, (long)strlen(e->send));
        curl_easy_setopt(curl, CURLOPT_POSTFIELDS, e->send); /* not copied */
        add_header(e, "Content-Type: application/json");
    }
    if (e->if_match != NULL)
        add_header(e, "If-Match: %s", e->if_match);
    if (e->if_none_match != NULL)
        add_header(e, "If-None-Match: %s", e->if_none_match);
}

/* Takes the exchange out of its session; the answer stays. */
static void end(LhS3Exchange *e)
{
    LhS3Session *session = e->session;
    if (e->curl == NULL)
        return;
    curl_multi_remove_handle(session->multi, e->curl);
    curl_easy_reset(e->curl); /* it holds the secret, and points to the exchange */
    for (guint i = 0; i < LH_S3_MAX_PARTS; i++) {
        if (session->running[i] == e)
            session->running[i] = NULL;
    }
    g_clear_pointer(&e->headers, curl_slist_free_all);
    e->curl = NULL;
}

gboolean lh_s3_exchange_start(LhS3Session *session, LhS3Exchange *e, GError **error)
{
    guint slot = 0;
    while (slot < LH_S3_MAX_PARTS && session->running[slot] != NULL)
        slot++;
    g_assert(slot < LH_S3_MAX_PARTS && e->curl == NULL);
    forget_answer(e);
    if (session->curls[slot] == NULL)
        session->curls[slot] = curl_easy_init();
    e->session = session;
    e->curl = session->curls[slot];
    e->result = CURLE_OK;
    session->running[slot] = e;
    set_options(e);
    gboolean ok = sign(e, error);
    curl_easy_setopt(e->curl, CURLOPT_HTTPHEADER, e->headers);
    if (ok)
        curl_multi_add_handle(session->multi, e->curl);
    else
        end(e);
    return ok;
}

void lh_s3_exchange_clear(LhS3Exchange *e)
{
    end(e);
    forget_answer(e);
    g_clear_pointer(&e->access_key, g_free);
}

LhS3Exchange *lh_s3_session_run(LhS3Session *session, gint64 until_us)
{
    while (!lh_task_cancelled(session->task)) {
        int left = 0;
        curl_multi_perform(session->multi, &left);
        const CURLMsg *message;
        while ((message = curl_multi_info_read(session->multi, &left)) != NULL) {
            LhS3Exchange *e = NULL;
            if (message->msg != CURLMSG_DONE)
                continue;
            curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &e);
            e->result = message->data.result;
            curl_easy_getinfo(e->curl, CURLINFO_RETRY_AFTER, &e->retry_after_s);
            end(e);
            return e;
        }
        gint64 now = g_get_monotonic_time();
        if (now >= until_us)
            break;
        gint64 wait_ms = MIN((until_us - now + 999) / 1000, (gint64)G_MAXINT);
        curl_multi_poll(session->multi, NULL, 0, (int)wait_ms, NULL);
    }
    return NULL;
}
