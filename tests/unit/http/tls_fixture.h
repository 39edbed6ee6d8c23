/*
 * For the tests of TLS and of who may ask: the server of fixture.h with certificates of its own, calls
 * through libcurl in the same loop, and what was logged.
 */
#pragma once

#include "base/log.h"
#include "tests/fakes/certs.h"
#include "tests/unit/http/fixture.h"

#include <curl/curl.h>

typedef struct {
    Fixture *f;
    char *dir;
    CertFiles authority, stranger, server;
    char *tokens_file;
    CURLM *multi;
    GPtrArray *log;
    int upload_max; /* highest TLS version of calls; 0: any */
} Lab;

typedef struct {
    CURL *curl;
    struct curl_slist *headers;
    GString *head, *body;
    char details[CURL_ERROR_SIZE];
    gboolean done, raw;
    CURLcode code;
    long status;
} Call;

/* ---- the server ---- */

static inline void keep_line(const char *line, gpointer data)
{
    g_ptr_array_add(data, g_strdup(line));
}

/* How many lines hold both; @other may be NULL. */
static inline guint n_lines(const Lab *lab, const char *part, const char *other)
{
    guint n = 0;
    for (guint i = 0; i < lab->log->len; i++) {
        n += strstr(lab->log->pdata[i], part) != NULL &&
             (other == NULL || strstr(lab->log->pdata[i], other) != NULL);
    }
    return n;
}

static inline void assert_line(const Lab *lab, const char *part, const char *other)
{
    if (n_lines(lab, part, other) != 1) {
        for (guint i = 0; i < lab->log->len; i++) {
            print_message("%s\n", (char *)lab->log->pdata[i]);
        }
        fail_msg("%u lines have %s and %s", n_lines(lab, part, other), part,
                 other != NULL ? other : "whatever");
    }
}

static inline char *token_line(const char *name, const char *role, const char *token)
{
    g_autofree char *digest = g_compute_checksum_for_string(G_CHECKSUM_SHA256, token, -1);
    return g_strdup_printf("%s %s sha256:%s\n", name, role, digest);
}

static inline void write_tokens(const Lab *lab, const char *text)
{
    assert_true(g_file_set_contents(lab->tokens_file, text, -1, NULL));
}

static inline CertFiles issue(const Lab *lab, const char *name, const char *organizations)
{
    const CertSpec spec = {.cn = name, .organizations = organizations};
    return certs_issue(lab->dir, name, &lab->authority, &spec);
}

static inline void serve_certificate(Lab *lab, const char *cn)
{
    const CertSpec spec = {.cn = cn, .names = "IP:127.0.0.1,DNS:localhost"};
    certs_clear(&lab->server);
    lab->server = certs_issue(lab->dir, "server", &lab->authority, &spec);
}

#define USE_TLS    1
#define USE_CA     2
#define USE_TOKENS 4

static inline int lab_setup(void **state, int what, LhHttpOptions options)
{
    Lab *lab = g_new0(Lab, 1);
    void *fixture = NULL;
    lab->dir = g_dir_make_tmp("lh-tls-XXXXXX", NULL);
    lab->authority = certs_authority(lab->dir, "authority");
    lab->stranger = certs_authority(lab->dir, "stranger");
    lab->tokens_file = g_build_filename(lab->dir, "tokens", NULL);
    serve_certificate(lab, "first");
    g_autofree char *viewer = token_line("vera", "viewer", "token-v");
    g_autofree char *operator= token_line("otto", "operator", "token-o");
    g_autofree char *admin = token_line("ada", "admin", "token-a");
    g_autofree char *all = g_strconcat(viewer, operator, admin, NULL);
    write_tokens(lab, all);
    if (options.listen == NULL) {
        options.listen = "127.0.0.1:0";
    }
    if ((what & USE_TLS) != 0) {
        options.cert = lab->server.cert;
        options.key = lab->server.key;
    }
    if ((what & USE_CA) != 0) {
        options.client_ca = lab->authority.cert;
    }
    if ((what & USE_TOKENS) != 0) {
        options.tokens_file = lab->tokens_file;
    }
    curl_global_init(CURL_GLOBAL_DEFAULT);
    lab->multi = curl_multi_init();
    lab->log = g_ptr_array_new_with_free_func(g_free);
    lh_log_set_sink(keep_line, lab->log);
    setup_with(&fixture, &options);
    lab->f = fixture;
    *state = lab;
    return 0;
}

static inline int lab_teardown(void **state)
{
    Lab *lab = *state;
    void *fixture = lab->f;
    curl_multi_cleanup(lab->multi);
    teardown(&fixture);
    lh_log_set_sink(NULL, NULL);
    g_ptr_array_unref(lab->log);
    g_autoptr(GDir) dir = g_dir_open(lab->dir, 0, NULL);
    for (const char *name; (name = g_dir_read_name(dir)) != NULL;) {
        g_autofree char *path = g_build_filename(lab->dir, name, NULL);
        unlink(path);
    }
    rmdir(lab->dir);
    certs_clear(&lab->authority);
    certs_clear(&lab->stranger);
    certs_clear(&lab->server);
    g_free(lab->tokens_file);
    g_free(lab->dir);
    g_free(lab);
    return 0;
}

/* ---- calls ---- */

static inline size_t keep_text(char *data, size_t size, size_t n, void *user)
{
    g_string_append_len(user, data, (gssize)(size * n));
    return size * n;
}

/* @token, @client: credentials, or NULL. */
static inline Call *call_new(Lab *lab, const char *method, const char *path, const char *token,
                             const CertFiles *client)
{
    Call *call = g_new0(Call, 1);
    g_autofree char *url = g_strdup_printf("%s://%s%s", lh_http_server_scheme(lab->f->server),
                                           lh_http_server_address(lab->f->server), path);
    call->curl = curl_easy_init();
    call->head = g_string_new(NULL);
    call->body = g_string_new(NULL);
    if (token != NULL) {
        g_autofree char *line = g_strconcat("Authorization: Bearer ", token, NULL);
        call->headers = curl_slist_append(call->headers, line);
    }
    call->headers = curl_slist_append(call->headers, "Content-Type: application/json");
    call->headers = curl_slist_append(call->headers, "Expect:");
    curl_easy_setopt(call->curl, CURLOPT_URL, url);
    curl_easy_setopt(call->curl, CURLOPT_CUSTOMREQUEST, method);
    curl_easy_setopt(call->curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(call->curl, CURLOPT_PATH_AS_IS, 1L);
    curl_easy_setopt(call->curl, CURLOPT_CAINFO, lab->authority.cert);
    curl_easy_setopt(call->curl, CURLOPT_CAPATH, NULL);
    curl_easy_setopt(call->curl, CURLOPT_PROXY, "");
    curl_easy_setopt(call->curl, CURLOPT_ERRORBUFFER, call->details);
    curl_easy_setopt(call->curl, CURLOPT_PRIVATE, call);
    curl_easy_setopt(call->curl, CURLOPT_HEADERFUNCTION, keep_text);
    curl_easy_setopt(call->curl, CURLOPT_HEADERDATA, call->head);
    curl_easy_setopt(call->curl, CURLOPT_WRITEFUNCTION, keep_text);
    curl_easy_setopt(call->curl, CURLOPT_WRITEDATA, call->body);
    curl_easy_setopt(call->curl, CURLOPT_HTTPHEADER, call->headers);
    if (lab->upload_max != 0) {
        curl_easy_setopt(call->curl, CURLOPT_SSLVERSION, (long)lab->upload_max);
    }
    if (client != NULL) {
        curl_easy_setopt(call->curl, CURLOPT_SSLCERT, client->cert);
        curl_easy_setopt(call->curl, CURLOPT_SSLKEY, client->key);
    }
    return call;
}

static inline void call_start(Lab *lab, Call *call)
{
    call->done = FALSE;
    g_string_truncate(call->body, 0);
    g_string_truncate(call->head, 0);
    curl_multi_add_handle(lab->multi, call->curl);
}

static inline void calls_turn(Lab *lab)
{
    int running, left;
    CURLMsg *message;
    curl_multi_perform(lab->multi, &running);
    while ((message = curl_multi_info_read(lab->multi, &left)) != NULL) {
        Call *call = NULL;
        CURLcode code = message->data.result;
        CURL *curl = message->easy_handle;
        curl_easy_getinfo(curl, CURLINFO_PRIVATE, (char **)&call);
        call->done = TRUE;
        call->code = code;
        curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &call->status);
        if (!call->raw) {
            curl_multi_remove_handle(lab->multi, curl);
        }
    }
    settle();
    curl_multi_poll(lab->multi, NULL, 0, 1, NULL);
}

/* As wait_for, while the calls go on. */
#define lab_wait_for(condition)                                           \
    do {                                                                  \
        gboolean in_vain = FALSE;                                         \
        guint waiting = g_timeout_add_seconds(20, on_hopeless, &in_vain); \
        while (!(condition) && !in_vain) {                                \
            calls_turn(lab);                                              \
        }                                                                 \
        g_source_remove(waiting);                                         \
        if (in_vain) {                                                    \
            fail_msg("waited in vain for: %s", #condition);               \
        }                                                                 \
    } while (0)

static inline void call_free(Lab *lab, Call *call)
{
    if (!call->done || call->raw) {
        curl_multi_remove_handle(lab->multi, call->curl);
    }
    curl_easy_cleanup(call->curl);
    curl_slist_free_all(call->headers);
    g_string_free(call->head, TRUE);
    g_string_free(call->body, TRUE);
    g_free(call);
}

/* A finished call on a connection of its own. */
static inline Call *call_body(Lab *lab, const char *method, const char *path, const char *token,
                              const CertFiles *client, const char *body)
{
    Call *call = call_new(lab, method, path, token, client);
    curl_easy_setopt(call->curl, CURLOPT_FRESH_CONNECT, 1L);
    curl_easy_setopt(call->curl, CURLOPT_FORBID_REUSE, 1L);
    if (body != NULL) {
        curl_easy_setopt(call->curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)strlen(body));
        curl_easy_setopt(call->curl, CURLOPT_POSTFIELDS, body);
    } else if (strcmp(method, "HEAD") == 0) {
        curl_easy_setopt(call->curl, CURLOPT_NOBODY, 1L);
    }
    call_start(lab, call);
    lab_wait_for(call->done);
    return call;
}

/* The status; below 0: no answer, and libcurl's code. */
static inline int status_of(Lab *lab, const char *method, const char *path, const char *token,
                            const CertFiles *client)
{
    Call *call = call_body(lab, method, path, token, client, NULL);
    int status = call->code == CURLE_OK ? (int)call->status : -(int)call->code;
    call_free(lab, call);
    return status;
}

/* The CN of the certificate that a new connection sees. */
static inline char *served_cn(Lab *lab)
{
    Call *call = call_new(lab, "GET", "/hello", NULL, NULL);
    struct curl_certinfo *info = NULL;
    char *cn = NULL;
    curl_easy_setopt(call->curl, CURLOPT_FRESH_CONNECT, 1L);
    curl_easy_setopt(call->curl, CURLOPT_FORBID_REUSE, 1L);
    curl_easy_setopt(call->curl, CURLOPT_CERTINFO, 1L);
    call_start(lab, call);
    lab_wait_for(call->done);
    if (call->code == CURLE_OK &&
        curl_easy_getinfo(call->curl, CURLINFO_CERTINFO, &info) == CURLE_OK) {
        for (struct curl_slist *l = info->certinfo[0]; l != NULL && cn == NULL; l = l->next) {
            const char *found = g_str_has_prefix(l->data, "Subject:") ? strstr(l->data, "CN = ")
                                                                      : NULL;
            cn = found != NULL ? g_strdup(found + strlen("CN = ")) : NULL;
        }
    }
    call_free(lab, call);
    return cn;
}

static inline void assert_served(Lab *lab, const char *cn)
{
    g_autofree char *served = served_cn(lab);
    assert_non_null(served);
    assert_string_equal(served, cn);
}

/* ---- bytes through TLS, for what no client would send ---- */

static inline gboolean raw_write(Call *call, const char *data, gsize len, gsize *from)
{
    size_t n = 0;
    CURLcode code = curl_easy_send(call->curl, data + *from, len - *from, &n);
    assert_true(code == CURLE_OK || code == CURLE_AGAIN);
    *from += n;
    return *from == len;
}

static inline void raw_send(Lab *lab, Call *call, const char *data, gsize len)
{
    gsize from = 0;
    lab_wait_for(raw_write(call, data, len, &from));
}

/* What has come; TRUE: the connection has ended. */
static inline gboolean raw_read(Call *call)
{
    char buffer[16384];
    for (;;) {
        size_t n = 0;
        CURLcode code = curl_easy_recv(call->curl, buffer, sizeof buffer, &n);
        if (code == CURLE_AGAIN) {
            return FALSE;
        }
        if (code != CURLE_OK || n == 0) {
            return TRUE;
        }
        g_string_append_len(call->body, buffer, (gssize)n);
    }
}

/* A handshake, and nothing more. The handle stays in the multi handle, which owns the connection. */
static inline Call *raw_connect(Lab *lab)
{
    Call *call = call_new(lab, "GET", "/", NULL, NULL);
    curl_easy_setopt(call->curl, CURLOPT_CONNECT_ONLY, 1L);
    call->raw = TRUE;
    curl_multi_add_handle(lab->multi, call->curl);
    lab_wait_for(call->done);
    assert_int_equal(call->code, CURLE_OK);
    return call;
}
