/* Requests of a client that knows nothing but HTTP and JSON. */
#include "harness.h"

#include <curl/curl.h>
#include <math.h>
#include <string.h>

static size_t on_body(char *data, size_t size, size_t n, void *reply)
{
    g_string_append_len(((Reply *)reply)->body, data, (gssize)(size * n));
    return size * n;
}

static size_t on_header(char *data, size_t size, size_t n, void *user)
{
    Reply *reply = user;
    g_autofree char *line = g_strstrip(g_strndup(data, size * n));
    const char *value = strchr(line, ':');
    if (value != NULL && g_ascii_strncasecmp(line, "etag:", 5) == 0) {
        g_free(reply->etag);
        reply->etag = g_strstrip(g_strdup(value + 1));
    } else if (value != NULL && g_ascii_strncasecmp(line, "content-type:", 13) == 0) {
        g_free(reply->type);
        reply->type = g_strstrip(g_strdup(value + 1));
    }
    return size * n;
}

static void set_identity(CURL *curl, const Identity *who, struct curl_slist **headers)
{
    if (who->cacert != NULL) {
        curl_easy_setopt(curl, CURLOPT_CAINFO, who->cacert);
        curl_easy_setopt(curl, CURLOPT_CAPATH, NULL);
    }
    if (who->cert != NULL) {
        curl_easy_setopt(curl, CURLOPT_SSLCERT, who->cert);
        curl_easy_setopt(curl, CURLOPT_SSLKEY, who->key);
    }
    if (who->token != NULL) {
        g_autofree char *line = g_strdup_printf("Authorization: Bearer %s", who->token);
        *headers = curl_slist_append(*headers, line);
    }
}

Reply *http_send_as(const Identity *who, const char *method, const char *url, const char *body,
                    const char *const *headers)
{
    Reply *reply = g_new0(Reply, 1);
    long status = 0;
    gboolean typed = body == NULL;
    struct curl_slist *list = NULL;
    CURL *curl = curl_easy_init();
    reply->body = g_string_new(NULL);
    for (; headers != NULL && *headers != NULL; headers++) {
        list = curl_slist_append(list, *headers);
        typed |= g_str_has_prefix(*headers, "Content-Type:");
    }
    if (!typed) {
        list = curl_slist_append(list, "Content-Type: application/json");
    }
    set_identity(curl, who, &list);
    curl_easy_setopt(curl, CURLOPT_URL, url);
    curl_easy_setopt(curl, CURLOPT_NOPROXY, "*");
    curl_easy_setopt(curl, CURLOPT_TIMEOUT, (long)(WAIT_MS / 1000));
    curl_easy_setopt(curl, CURLOPT_HTTPHEADER, list);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, reply);
    curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(curl, CURLOPT_HEADERDATA, reply);
    if (body != NULL) {
        curl_easy_setopt(curl, CURLOPT_POSTFIELDS, body);
    }
    if (strcmp(method, "HEAD") == 0) {
        curl_easy_setopt(curl, CURLOPT_NOBODY, 1L);
    } else {
        curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, method);
    }
    if (curl_easy_perform(curl) == CURLE_OK) {
        curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
    }
    reply->status = (int)status;
    reply->json = cJSON_ParseWithLength(reply->body->str, reply->body->len);
    curl_slist_free_all(list);
    curl_easy_cleanup(curl);
    return reply;
}

Reply *http_send(const char *method, const char *url, const char *body, const char *const *headers)
{
    return http_send_as(&(Identity){0}, method, url, body, headers);
}

Reply *http_as(Proc *server, const Identity *who, const char *method, const char *path,
               const char *body)
{
    g_autofree char *url = g_strconcat(server->url, path, NULL);
    return http_send_as(who, method, url, body, NULL);
}

Reply *http_with(Proc *server, const char *method, const char *path, const char *body,
                 const char *header)
{
    g_autofree char *url = g_strconcat(server->url, path, NULL);
    const char *const headers[] = {header, NULL};
    return http_send(method, url, body, headers);
}

Reply *http(Proc *server, const char *method, const char *path, const char *body)
{
    return http_with(server, method, path, body, NULL);
}

void reply_free(Reply *reply)
{
    g_free(reply->etag);
    g_free(reply->type);
    g_string_free(reply->body, TRUE);
    cJSON_Delete(reply->json);
    g_free(reply);
}

void reply_must(const Reply *reply, int status)
{
    if (reply->status != status) {
        fail_msg("HTTP status %d instead of %d: %.300s", reply->status, status, reply->body->str);
    }
}

const cJSON *json_at(const cJSON *json, const char *path)
{
    g_auto(GStrv) parts = g_strsplit(path, ".", -1);
    for (guint i = 0; parts[i] != NULL && json != NULL; i++) {
        json = cJSON_IsArray(json) ? cJSON_GetArrayItem(json, atoi(parts[i]))
                                   : cJSON_GetObjectItemCaseSensitive(json, parts[i]);
    }
    return json;
}

const char *json_text(const cJSON *json, const char *path)
{
    const cJSON *item = json_at(json, path);
    return cJSON_IsString(item) ? item->valuestring : "";
}

double metric(Proc *server, const char *series)
{
    g_autoptr(Reply) reply = http(server, "GET", "/metrics", NULL);
    g_autofree char *start = g_strdup_printf("leasehold_%s ", series);
    g_auto(GStrv) lines = g_strsplit(reply->body->str, "\n", -1);
    for (guint i = 0; lines[i] != NULL; i++) {
        if (g_str_has_prefix(lines[i], start)) {
            return g_ascii_strtod(lines[i] + strlen(start), NULL);
        }
    }
    return NAN;
}
