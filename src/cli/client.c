/*
 * The HTTP client: requests on one libcurl handle, whole lists, and what replies mean as errors.
 *
 * Nothing is followed anywhere else: no redirects, no other protocols, no proxy for a loopback
 * address.
 */
#include "cli/client.h"

#include "base/errors.h"
#include "base/json.h"
#include "cli/client_internal.h"

#include <arpa/inet.h>
#include <string.h>

#define MAX_BODY_BYTES  (256 * 1024 * 1024)
#define CONNECT_MS      5000
#define SILENCE_S       60 /* less than a byte a second for so long ends a transfer */
#define PAGE            500
#define MAX_LIST_STARTS 5

/* ---- setting up ---- */

/* Where nobody else can listen, and no proxy is asked. */
static gboolean is_loopback(const char *host)
{
    struct in_addr address;
    return g_ascii_strcasecmp(host, "localhost") == 0 || strcmp(host, "[::1]") == 0 ||
           (inet_pton(AF_INET, host, &address) == 1 && ntohl(address.s_addr) >> 24 == 127);
}

static gboolean server_parse(LhClient *client, const char *server, GError **error)
{
    CURLU *url = curl_url();
    char *scheme = NULL, *host = NULL, *query = NULL, *user = NULL;
    gboolean ok = curl_url_set(url, CURLUPART_URL, server, 0) == CURLUE_OK &&
                  curl_url_get(url, CURLUPART_SCHEME, &scheme, 0) == CURLUE_OK &&
                  curl_url_get(url, CURLUPART_HOST, &host, 0) == CURLUE_OK &&
                  (strcmp(scheme, "http") == 0 || strcmp(scheme, "https") == 0) &&
                  curl_url_get(url, CURLUPART_QUERY, &query, 0) != CURLUE_OK &&
                  curl_url_get(url, CURLUPART_USER, &user, 0) != CURLUE_OK;
    if (ok) {
        client->direct = is_loopback(host);
        client->tls = strcmp(scheme, "https") == 0;
        gsize len = strlen(server);
        while (len > 0 && server[len - 1] == '/') {
            len--;
        }
        client->server = g_strndup(server, len);
    } else {
        g_set_error(error, LH_ERROR, LH_ERR_INVALID,
                    "server %s: must be http://address:port or https://address:port", server);
    }
    curl_free(scheme);
    curl_free(host);
    curl_free(query);
    curl_free(user);
    curl_url_cleanup(url);
    return ok;
}

static gboolean token_add(LhClient *client, const char *token, GError **error)
{
    if (!client->tls && !client->direct) {
        g_set_error(error, LH_ERROR, LH_ERR_INVALID,
                    "server %s: a token is not sent to another machine without TLS; use https",
                    client->server);
        return FALSE;
    }
    for (const char *p = token; *p != '\0'; p++) {
        if (!g_ascii_isgraph(*p)) {
            g_set_error(error, LH_ERROR, LH_ERR_INVALID,
                        "token: must be printable ASCII without spaces");
            return FALSE;
        }
    }
    g_autofree char *line = g_strdup_printf("Authorization: Bearer %s", token);
    client->auth = curl_slist_append(NULL, line);
    return TRUE;
}

static gboolean files_add(LhClient *client, const LhClientOptions *options, GError **error)
{
    if ((options->cert != NULL) != (options->key != NULL)) {
        g_set_error(error, LH_ERROR, LH_ERR_INVALID, "%s: needs %s too",
                    options->cert != NULL ? "--cert" : "--key",
                    options->cert != NULL ? "--key" : "--cert");
        return FALSE;
    }
    client->cacert = g_strdup(options->cacert);
    client->cert = g_strdup(options->cert);
    client->key = g_strdup(options->key);
    return TRUE;
}

LhClient *lh_client_new(LhEnv *env, const LhClientOptions *options, GError **error)
{
    LhClient *client = g_new0(LhClient, 1);
    client->env = env;
    if (!server_parse(client, options->server, error) || !files_add(client, options, error) ||
        (options->token != NULL && !token_add(client, options->token, error))) {
        lh_client_free(client);
        return NULL;
    }
    client->curl = curl_easy_init();
    return client;
}

void lh_client_free(LhClient *client)
{
    if (client == NULL) {
        return;
    }
    if (client->curl != NULL) {
        curl_easy_cleanup(client->curl);
    }
    curl_slist_free_all(client->auth);
    cJSON_Delete(client->problem);
    g_free(client->cacert);
    g_free(client->cert);
    g_free(client->key);
    g_free(client->server);
    g_free(client);
}

const char *lh_client_server(const LhClient *client)
{
    return client->server;
}

void lh_client_setup(const LhClient *client, CURL *curl, const char *path)
{
    g_autofree char *url = g_strconcat(client->server, path, NULL);
    curl_easy_setopt(curl, CURLOPT_URL, url);
    curl_easy_setopt(curl, CURLOPT_PATH_AS_IS, 1L);
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT_MS, (long)CONNECT_MS);
    curl_easy_setopt(curl, CURLOPT_LOW_SPEED_LIMIT, 1L);
    curl_easy_setopt(curl, CURLOPT_LOW_SPEED_TIME, (long)SILENCE_S);
    curl_easy_setopt(curl, CURLOPT_USERAGENT, "leasehold");
    curl_easy_setopt(curl, CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
    if (client->cacert != NULL) {
        /* Nobody else is trusted then. */
        curl_easy_setopt(curl, CURLOPT_CAINFO, client->cacert);
        curl_easy_setopt(curl, CURLOPT_CAPATH, NULL);
    }
    if (client->cert != NULL) {
        curl_easy_setopt(curl, CURLOPT_SSLCERT, client->cert);
        curl_easy_setopt(curl, CURLOPT_SSLKEY, client->key);
    }
    if (client->direct) {
        curl_easy_setopt(curl, CURLOPT_PROXY, "");
    }
}

/* ---- what a failure means ---- */

static LhErrorCode code_of(guint status)
{
    static const struct {
        guint status;
        LhErrorCode code;
    } codes[] = {
        {401, LH_ERR_AUTH},        {403, LH_ERR_FORBIDDEN},   {404, LH_ERR_NOT_FOUND},
        {405, LH_ERR_FORBIDDEN},   {408, LH_ERR_UNAVAILABLE}, {409, LH_ERR_CONFLICT},
        {410, LH_ERR_COMPACTED},   {412, LH_ERR_CONFLICT},    {429, LH_ERR_OVERLOADED},
        {502, LH_ERR_UNAVAILABLE}, {503, LH_ERR_UNAVAILABLE}, {504, LH_ERR_UNKNOWN_OUTCOME},
        {507, LH_ERR_NO_SPACE},
    };
    for (guint i = 0; i < G_N_ELEMENTS(codes); i++) {
        if (codes[i].status == status) {
            return codes[i].code;
        }
    }
    return status >= 400 && status < 500 ? LH_ERR_INVALID : LH_ERR_INTERNAL;
}

/* "/v1/services/a?dryRun=true" → "services/a" */
static char *subject_of(const char *path)
{
    const char *start = g_str_has_prefix(path, "/v1/") ? path + 4 : path;
    g_autofree char *escaped = g_strndup(start, strcspn(start, "?"));
    char *plain = g_uri_unescape_string(escaped, NULL);
    return plain != NULL ? plain : g_steal_pointer(&escaped);
}

void lh_client_refused(LhClient *client, const char *path, guint status, const GString *body,
                       GError **error)
{
    g_autofree char *subject = subject_of(path);
    cJSON_Delete(client->problem);
    client->problem = cJSON_ParseWithLength(body->str, body->len);
    const char *detail = lh_json_get_string(client->problem, "detail", NULL);
    const char *field = lh_json_get_string(client->problem, "field", NULL);
    g_autofree char *plain = NULL;
    if (detail == NULL) {
        cJSON_Delete(client->problem);
        client->problem = NULL;
        detail = plain = g_strdup_printf("the server answered %u", status);
    } else if (cJSON_GetObjectItemCaseSensitive(client->problem, "instance") == NULL) {
        cJSON_AddStringToObject(client->problem, "instance", path);
    }
    gboolean named = field == NULL || strstr(detail, field) != NULL;
    g_set_error(error, LH_ERROR, code_of(status), "%s: %s%s%s", subject, named ? "" : field,
                named ? "" : ": ", detail);
}

gboolean lh_client_is_final(CURLcode code)
{
    return code == CURLE_PEER_FAILED_VERIFICATION || code == CURLE_SSL_CERTPROBLEM ||
           code == CURLE_SSL_CACERT_BADFILE;
}

/* What OpenSSL said of the certificate; its numbers are part of its interface. */
static const char *distrust_of(CURL *curl)
{
    enum { NOT_YET_VALID = 9, EXPIRED = 10 };
    long result = 0;
    curl_easy_getinfo(curl, CURLINFO_SSL_VERIFYRESULT, &result);
    return result == EXPIRED         ? "its certificate has expired"
           : result == NOT_YET_VALID ? "its certificate is not valid yet"
                                     : "its certificate is not trusted";
}

void lh_client_unreachable(const LhClient *client, CURL *curl, CURLcode code, const char *details,
                           GError **error)
{
    const char *why = details[0] != '\0' ? details : curl_easy_strerror(code);
    if (code == CURLE_SSL_CACERT_BADFILE) {
        g_set_error(error, LH_ERROR, LH_ERR_INVALID, "--cacert %s: %s",
                    client->cacert != NULL ? client->cacert : "of the system", why);
    } else if (code == CURLE_SSL_CERTPROBLEM) {
        g_set_error(error, LH_ERROR, LH_ERR_INVALID, "--cert %s, --key %s: %s", client->cert,
                    client->key, why);
    } else if (code == CURLE_PEER_FAILED_VERIFICATION) {
        g_set_error(error, LH_ERROR, LH_ERR_AUTH, "server %s: %s: %s", client->server,
                    distrust_of(curl), why);
    } else {
        g_set_error(error, LH_ERROR, LH_ERR_UNAVAILABLE, "server %s: %s", client->server, why);
    }
}

const cJSON *lh_client_problem(const LhClient *client, const char *message)
{
    const char *detail = lh_json_get_string(client->problem, "detail", NULL);
    return detail != NULL && g_str_has_suffix(message, detail) ? client->problem : NULL;
}

/* ---- requests ---- */

static size_t take_body(char *data, size_t size, size_t n, void *user)
{
    GString *body = user;
    if (body->len + size * n > MAX_BODY_BYTES) {
        return 0;
    }
    g_string_append_len(body, data, (gssize)(size * n));
    return size * n;
}

static struct curl_slist *headers_of(const LhClient *client, const char *body,
                                     const char *condition)
{
    struct curl_slist *headers = NULL;
    if (client->auth != NULL) {
        headers = curl_slist_append(headers, client->auth->data);
    }
    if (condition != NULL) {
        headers = curl_slist_append(headers, condition);
    }
    if (body != NULL) {
        headers = curl_slist_append(headers, "Content-Type: application/json");
        headers = curl_slist_append(headers, "Expect:");
    }
    return headers;
}

/* 0 and an error when there was no answer. */
static guint perform(LhClient *client, const char *method, const char *path, const char *body,
                     const char *condition, GString *reply, GError **error)
{
    char details[CURL_ERROR_SIZE] = "";
    long status = 0;
    CURL *curl = client->curl;
    curl_easy_reset(curl); /* keeps the connection */
    lh_client_setup(client, curl, path);
    struct curl_slist *headers = headers_of(client, body, condition);
    curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, method);
    if (body != NULL) {
        curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)strlen(body));
        curl_easy_setopt(curl, CURLOPT_POSTFIELDS, body);
    }
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, take_body);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, reply);
    curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, details);
    CURLcode code = curl_easy_perform(curl);
    curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
    curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, NULL);
    curl_slist_free_all(headers);
    if (code != CURLE_OK || status <= 0) {
        lh_client_unreachable(client, curl, code, details, error);
        return 0;
    }
    return (guint)status;
}

cJSON *lh_client_call(LhClient *client, const char *method, const char *path, const char *body,
                      const char *condition, guint *status, GError **error)
{
    g_autoptr(GString) reply = g_string_new(NULL);
    guint code = perform(client, method, path, body, condition, reply, error);
    if (code == 0) {
        return NULL;
    }
    if (status != NULL) {
        *status = code;
    }
    if (code < 200 || code > 299) {
        lh_client_refused(client, path, code, reply, error);
        return NULL;
    }
    if (reply->len == 0) {
        return cJSON_CreateObject();
    }
    cJSON *object = cJSON_ParseWithLength(reply->str, reply->len);
    if (!cJSON_IsObject(object)) {
        g_set_error(error, LH_ERROR, LH_ERR_INTERNAL,
                    "server %s: the answer to %s is not a JSON object", client->server, path);
        g_clear_pointer(&object, cJSON_Delete);
    }
    return object;
}

cJSON *lh_client_get(LhClient *client, const char *path, GError **error)
{
    return lh_client_call(client, "GET", path, NULL, NULL, NULL, error);
}

char *lh_client_path(const char *plural, const char *name)
{
    g_autofree char *escaped = g_uri_escape_string(name, "/", FALSE);
    return g_strdup_printf("/v1/%s/%s", plural, escaped);
}

/* ---- lists ---- */

static char *page_path(const char *plural, const char *selector, const char *token)
{
    GString *path = g_string_new(NULL);
    g_string_append_printf(path, "/v1/%s?limit=%d", plural, PAGE);
    if (selector != NULL) {
        g_autofree char *escaped = g_uri_escape_string(selector, NULL, FALSE);
        g_string_append_printf(path, "&labelSelector=%s", escaped);
    }
    if (token != NULL) {
        g_autofree char *escaped = g_uri_escape_string(token, NULL, FALSE);
        g_string_append_printf(path, "&continue=%s", escaped);
    }
    return g_string_free(path, FALSE);
}

/* Appends pages to *@list (NULL at first) until there are no more. */
static gboolean list_once(LhClient *client, const char *plural, const char *selector, cJSON **list,
                          GError **error)
{
    g_autofree char *token = NULL;
    do {
        g_autofree char *path = page_path(plural, selector, token);
        g_autoptr(cJSON) page = lh_client_get(client, path, error);
        if (page == NULL) {
            return FALSE;
        }
        g_free(token);
        const char *next = lh_json_get_string(page, "continue", NULL);
        token = next != NULL && next[0] != '\0' ? g_strdup(next) : NULL;
        if (*list == NULL) {
            cJSON_DeleteItemFromObjectCaseSensitive(page, "continue");
            *list = g_steal_pointer(&page);
            continue;
        }
        cJSON *all = cJSON_GetObjectItemCaseSensitive(*list, "items"), *item;
        cJSON *items = cJSON_GetObjectItemCaseSensitive(page, "items");
        while ((item = cJSON_DetachItemFromArray(items, 0)) != NULL) {
            cJSON_AddItemToArray(all, item);
        }
    } while (token != NULL);
    return TRUE;
}

cJSON *lh_client_list(LhClient *client, const char *plural, const char *selector, GError **error)
{
    for (guint i = 0;; i++) {
        g_autoptr(GError) local = NULL;
        cJSON *list = NULL;
        if (list_once(client, plural, selector, &list, &local)) {
            if (cJSON_IsArray(cJSON_GetObjectItemCaseSensitive(list, "items"))) {
                return list;
            }
            g_set_error(&local, LH_ERROR, LH_ERR_INTERNAL, "server %s: %s: not a list",
                        client->server, plural);
        }
        gboolean begun = list != NULL;
        cJSON_Delete(list);
        if (!begun || i >= MAX_LIST_STARTS || !g_error_matches(local, LH_ERROR, LH_ERR_COMPACTED)) {
            g_propagate_error(error, g_steal_pointer(&local));
            return NULL;
        }
    }
}

/* ---- downloads ---- */

typedef struct {
    CURL *curl;
    FILE *out;
    GString *refusal;
} Download;

static size_t take_download(char *data, size_t size, size_t n, void *user)
{
    Download *download = user;
    long status = 0;
    curl_easy_getinfo(download->curl, CURLINFO_RESPONSE_CODE, &status);
    if (status == 200) {
        return fwrite(data, 1, size * n, download->out);
    }
    if (download->refusal->len < 64 * 1024) {
        g_string_append_len(download->refusal, data, (gssize)(size * n));
    }
    return size * n;
}

gboolean lh_client_download(LhClient *client, const char *path, FILE *out, GError **error)
{
    char details[CURL_ERROR_SIZE] = "";
    long status = 0;
    g_autoptr(GString) refusal = g_string_new(NULL);
    Download download = {client->curl, out, refusal};
    curl_easy_reset(client->curl);
    lh_client_setup(client, client->curl, path);
    curl_easy_setopt(client->curl, CURLOPT_HTTPHEADER, client->auth);
    curl_easy_setopt(client->curl, CURLOPT_WRITEFUNCTION, take_download);
    curl_easy_setopt(client->curl, CURLOPT_WRITEDATA, &download);
    curl_easy_setopt(client->curl, CURLOPT_ERRORBUFFER, details);
    CURLcode code = curl_easy_perform(client->curl);
    curl_easy_getinfo(client->curl, CURLINFO_RESPONSE_CODE, &status);
    curl_easy_setopt(client->curl, CURLOPT_ERRORBUFFER, NULL);
    if (code != CURLE_OK) {
        lh_client_unreachable(client, client->curl, code, details, error);
        return FALSE;
    }
    if (status != 200) {
        lh_client_refused(client, path, (guint)status, refusal, error);
        return FALSE;
    }
    return TRUE;
}
