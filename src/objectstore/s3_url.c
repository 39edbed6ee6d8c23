/* Canonical urls for S3: encoding, sorted queries, endpoints, and where the bucket's name goes. */
#include "objectstore/s3_url.h"

#include "base/errors.h"

#include <arpa/inet.h>
#include <curl/curl.h>
#include <string.h>

void lh_s3_encode(GString *out, const char *text, gboolean keep_slash)
{
    for (const char *at = text; *at != '\0'; at++) {
        guchar c = (guchar)*at;
        if (g_ascii_isalnum(*at) || strchr("-._~", *at) != NULL || (keep_slash && c == '/'))
            g_string_append_c(out, *at);
        else
            g_string_append_printf(out, "%%%02X", c);
    }
}

char *lh_s3_decode(const char *text)
{
    GString *out = g_string_sized_new(strlen(text));
    gboolean ok = TRUE;
    for (const char *at = text; ok && *at != '\0'; at++) {
        if (*at == '%') {
            int high = g_ascii_xdigit_value(at[1]);
            int low = high >= 0 ? g_ascii_xdigit_value(at[2]) : -1;
            ok = low >= 0 && high * 16 + low != 0;
            if (ok)
                g_string_append_c(out, (char)(high * 16 + low));
            at += ok ? 2 : 0;
        } else {
            g_string_append_c(out, *at == '+' ? ' ' : *at);
        }
    }
    ok = ok && g_utf8_validate(out->str, (gssize)out->len, NULL);
    return g_string_free(out, !ok);
}

static gint compare_names(gconstpointer a, gconstpointer b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

char *lh_s3_query(const LhS3Param *params, gsize n)
{
    g_autoptr(GPtrArray) pairs = g_ptr_array_new_with_free_func(g_free);
    for (gsize i = 0; i < n; i++) {
        GString *pair = g_string_new(NULL);
        lh_s3_encode(pair, params[i].name, FALSE);
        /* '=' sorts after digits and '-' and '.': in its place something that sorts before all. */
        g_string_append_c(pair, '\x01');
        lh_s3_encode(pair, params[i].value, FALSE);
        g_ptr_array_add(pairs, g_string_free(pair, FALSE));
    }
    g_ptr_array_sort(pairs, compare_names);
    GString *query = g_string_new(NULL);
    for (guint i = 0; i < pairs->len; i++) {
        char *pair = g_ptr_array_index(pairs, i);
        *strchr(pair, '\x01') = '=';
        g_string_append_printf(query, "%s%s", i > 0 ? "&" : "", pair);
    }
    return g_string_free(query, FALSE);
}

/* ---- endpoints ---- */

static char *url_part(CURLU *url, CURLUPart part)
{
    char *text = NULL;
    if (curl_url_get(url, part, &text, 0) != CURLUE_OK)
        return NULL;
    char *copy = g_strdup(text);
    curl_free(text);
    return copy;
}

static gboolean below(const char *host, const char *domain)
{
    g_autofree char *suffix = g_strconcat(".", domain, NULL);
    gsize n = strlen(host), m = strlen(suffix);
    return n > m && g_ascii_strcasecmp(host + n - m, suffix) == 0;
}

static const char *endpoint_problem(CURLU *url, const char *text)
{
    g_autofree char *scheme = url_part(url, CURLUPART_SCHEME);
    g_autofree char *path = url_part(url, CURLUPART_PATH);
    g_autofree char *query = url_part(url, CURLUPART_QUERY);
    g_autofree char *fragment = url_part(url, CURLUPART_FRAGMENT);
    g_autofree char *user = url_part(url, CURLUPART_USER);
    g_autofree char *password = url_part(url, CURLUPART_PASSWORD);
    if (strstr(text, "://") == NULL ||
        (g_strcmp0(scheme, "http") != 0 && g_strcmp0(scheme, "https") != 0))
        return "must begin with http:// or https://";
    if (user != NULL || password != NULL)
        return "must not hold a user or password";
    if (query != NULL || fragment != NULL || (path != NULL && strcmp(path, "/") != 0))
        return "must end after host and port";
    return NULL;
}

gboolean lh_s3_endpoint_parse(const char *text, LhS3Endpoint *out, GError **error)
{
    CURLU *url = curl_url();
    const char *problem = "is not a url";
    if (curl_url_set(url, CURLUPART_URL, text, CURLU_NON_SUPPORT_SCHEME) == CURLUE_OK)
        problem = endpoint_problem(url, text);
    if (problem != NULL) {
        curl_url_cleanup(url);
        g_set_error(error, LH_ERROR, LH_ERR_INVALID, "%s, like https://host:port", problem);
        return FALSE;
    }
    g_autofree char *host = url_part(url, CURLUPART_HOST);
    g_autofree char *port = url_part(url, CURLUPART_PORT);
    struct in_addr address;
    *out = (LhS3Endpoint){
        .scheme = url_part(url, CURLUPART_SCHEME),
        .host = port != NULL ? g_strdup_printf("%s:%s", host, port) : g_strdup(host),
        .is_amazon = below(host, "amazonaws.com") || below(host, "amazonaws.com.cn"),
        .is_address = host[0] == '[' || inet_pton(AF_INET, host, &address) == 1,
    };
    curl_url_cleanup(url);
    return TRUE;
}

void lh_s3_endpoint_clear(LhS3Endpoint *endpoint)
{
    g_clear_pointer(&endpoint->scheme, g_free);
    g_clear_pointer(&endpoint->host, g_free);
}

gboolean lh_s3_addressing_parse(const char *text, LhS3Addressing *out)
{
    static const char *const names[] = {
        [LH_S3_AUTO] = "auto", [LH_S3_VIRTUAL] = "virtual", [LH_S3_PATH] = "path"};
    for (guint i = 0; i < G_N_ELEMENTS(names); i++) {
        if (strcmp(text != NULL ? text : "auto", names[i]) == 0) {
            *out = (LhS3Addressing)i;
            return TRUE;
        }
    }
    return FALSE;
}

/* ---- buckets ---- */

gboolean lh_s3_bucket_valid(const char *bucket)
{
    gsize n = strlen(bucket);
    for (gsize i = 0; i < n; i++) {
        if (!g_ascii_isalnum(bucket[i]) && (i == 0 || strchr("._-", bucket[i]) == NULL))
            return FALSE;
    }
    return n > 0 && n <= 255;
}

/* Can @bucket be put before the host's name, and does a wildcard certificate cover it? */
static gboolean fits_host(const LhS3Endpoint *endpoint, const char *bucket)
{
    for (const char *at = bucket; *at != '\0'; at++) {
        if (g_ascii_isupper(*at) || *at == '_' ||
            (*at == '.' && strcmp(endpoint->scheme, "https") == 0))
            return FALSE;
    }
    return strlen(bucket) <= 63;
}

char *lh_s3_url(const LhS3Endpoint *endpoint, LhS3Addressing addressing, const char *bucket,
                const char *key, const char *query)
{
    gboolean in_host = addressing == LH_S3_VIRTUAL ||
                       (addressing == LH_S3_AUTO && endpoint->is_amazon &&
                        fits_host(endpoint, bucket));
    GString *url = g_string_new(NULL);
    if (in_host)
        g_string_append_printf(url, "%s://%s.%s/", endpoint->scheme, bucket, endpoint->host);
    else
        g_string_append_printf(url, "%s://%s/%s%s", endpoint->scheme, endpoint->host, bucket,
                               key != NULL ? "/" : "");
    if (key != NULL)
        lh_s3_encode(url, key, TRUE);
    if (query != NULL && *query != '\0')
        g_string_append_printf(url, "?%s", query);
    return g_string_free(url, FALSE);
}
