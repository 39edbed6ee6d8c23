/*
 * A request's life: its accessors, its one reply, and what happens when the client leaves first.
 *
 * Replies only prepare a response; server.c hands it to libmicrohttpd when that asks again. Nothing
 * here may touch libmicrohttpd's connection once the request is gone.
 */
#include "base/errors.h"
#include "base/json.h"
#include "base/log.h"
#include "http/internal.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

static enum MHD_Result keep_header(void *data, enum MHD_ValueKind kind, const char *name,
                                   const char *value)
{
    (void)kind;
    GPtrArray *headers = data;
    g_ptr_array_add(headers, g_strdup(name));
    g_ptr_array_add(headers, g_strdup(value != NULL ? value : ""));
    return MHD_YES;
}

static char *peer_text(struct MHD_Connection *connection)
{
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(
        connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    char text[INET6_ADDRSTRLEN] = "";
    const struct sockaddr *address = info != NULL ? info->client_addr : NULL;
    if (address != NULL && address->sa_family == AF_INET) {
        const struct sockaddr_in *in = (const void *)address;
        inet_ntop(AF_INET, &in->sin_addr, text, sizeof text);
        return g_strdup_printf("%s:%u", text, ntohs(in->sin_port));
    }
    if (address != NULL && address->sa_family == AF_INET6) {
        const struct sockaddr_in6 *in6 = (const void *)address;
        inet_ntop(AF_INET6, &in6->sin6_addr, text, sizeof text);
        return g_strdup_printf("[%s]:%u", text, ntohs(in6->sin6_port));
    }
    return g_strdup("unknown");
}

LhHttpRequest *lh_http_request_new(LhHttpConnection *connection, const char *method)
{
    LhHttpRequest *request = g_new0(LhHttpRequest, 1);
    request->server = connection->server;
    request->connection = connection;
    request->refs = 1;
    request->method = g_strdup(method);
    /* Until it is decoded: what there is to say of a request whose target cannot be. */
    request->path = g_strndup(connection->target, strcspn(connection->target, "?"));
    request->rest = "";
    request->peer = peer_text(connection->connection);
    request->query = g_ptr_array_new_with_free_func(g_free);
    request->headers = g_ptr_array_new_with_free_func(g_free);
    request->reply_headers = g_ptr_array_new_with_free_func(g_free);
    request->body = g_string_new(NULL);
    request->started_ms = lh_mono_ms(connection->server->env);
    MHD_get_connection_values(connection->connection, MHD_HEADER_KIND, keep_header,
                              request->headers);
    return request;
}

void lh_http_request_unref(LhHttpRequest *request)
{
    if (--request->refs > 0) {
        return;
    }
    if (request->response != NULL) {
        MHD_destroy_response(request->response);
    }
    g_free(request->method);
    g_free(request->path);
    g_free(request->peer);
    g_free(request->who);
    g_ptr_array_unref(request->query);
    g_ptr_array_unref(request->headers);
    g_ptr_array_unref(request->reply_headers);
    g_string_free(request->body, TRUE);
    g_free(request);
}

void lh_http_request_gone(LhHttpRequest *request)
{
    if (request->gone) {
        return;
    }
    request->gone = TRUE;
    request->server = NULL;
    request->connection = NULL;
    void (*func)(gpointer) = request->gone_func;
    request->gone_func = NULL;
    if (func != NULL) {
        func(request->gone_data);
    }
}

static void log_answer(const LhHttpRequest *request)
{
    if (lh_log_enabled(LH_LOG_DEBUG)) {
        lh_log(LH_LOG_DEBUG, "http request", "method", request->method, "path", request->path,
               "status", lh_fmt("%u", request->status), "peer", request->peer, "ms",
               lh_fmt("%" G_GINT64_FORMAT, lh_mono_ms(request->server->env) - request->started_ms),
               NULL);
    }
}

void lh_http_request_answer(LhHttpRequest *request, guint status, struct MHD_Response *response)
{
    g_assert(request->state == REQUEST_HANDLING);
    lh_http_audit(request->server, request, lh_fmt("%u", status));
    request->state = REQUEST_ANSWERED;
    request->status = status;
    request->gone_func = NULL;
    if (request->gone) {
        MHD_destroy_response(response);
    } else {
        request->response = response;
        MHD_add_response_header(response, "X-Content-Type-Options", "nosniff");
        for (guint i = 0; i < request->reply_headers->len; i += 2) {
            MHD_add_response_header(response, request->reply_headers->pdata[i],
                                    request->reply_headers->pdata[i + 1]);
        }
        log_answer(request);
        if (request->suspended) {
            request->suspended = FALSE;
            lh_http_connection_resume(request->connection);
        }
    }
    lh_http_request_unref(request);
}

static const char *find(const GPtrArray *pairs, const char *name, gboolean any_case)
{
    for (guint i = 0; i < pairs->len; i += 2) {
        const char *key = pairs->pdata[i];
        if ((any_case ? g_ascii_strcasecmp(key, name) : strcmp(key, name)) == 0) {
            return pairs->pdata[i + 1];
        }
    }
    return NULL;
}

const char *lh_http_method(const LhHttpRequest *request)
{
    return request->method;
}

const char *lh_http_path(const LhHttpRequest *request)
{
    return request->path;
}

const char *lh_http_rest(const LhHttpRequest *request)
{
    return request->rest;
}

const char *lh_http_query(const LhHttpRequest *request, const char *name)
{
    return find(request->query, name, FALSE);
}

const char *lh_http_header(const LhHttpRequest *request, const char *name)
{
    return find(request->headers, name, TRUE);
}

const char *lh_http_body(const LhHttpRequest *request, gsize *len)
{
    if (len != NULL) {
        *len = request->body->len;
    }
    return request->body->str;
}

const char *lh_http_peer(const LhHttpRequest *request)
{
    return request->peer;
}

void lh_http_set_gone(LhHttpRequest *request, void (*gone)(gpointer data), gpointer data)
{
    request->gone_func = gone;
    request->gone_data = data;
}

void lh_http_set_header(LhHttpRequest *request, const char *name, const char *value)
{
    g_ptr_array_add(request->reply_headers, g_strdup(name));
    g_ptr_array_add(request->reply_headers, g_strdup(value));
}

/* Takes @body. */
static void reply_taking(LhHttpRequest *request, guint status, const char *content_type, char *body,
                         gsize len)
{
    struct MHD_Response *response = MHD_create_response_from_buffer_with_free_callback(len, body,
                                                                                       g_free);
    if (content_type != NULL) {
        MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, content_type);
    }
    lh_http_request_answer(request, status, response);
}

void lh_http_reply(LhHttpRequest *request, guint status, const char *content_type, const char *body,
                   gssize len)
{
    gsize n = len >= 0 ? (gsize)len : body != NULL ? strlen(body) : 0;
    char *copy = g_malloc(n + 1);
    if (n > 0) {
        memcpy(copy, body, n);
    }
    reply_taking(request, status, content_type, copy, n);
}

void lh_http_reply_json(LhHttpRequest *request, guint status, char *json, const char *etag)
{
    if (etag != NULL) {
        lh_http_set_header(request, MHD_HTTP_HEADER_ETAG, etag);
    }
    reply_taking(request, status, "application/json", json, strlen(json));
}

static void reply_problem_text(LhHttpRequest *request, guint status, const char *field,
                               const char *detail)
{
    const char *title = MHD_get_reason_phrase_for(status);
    GString *out = g_string_new("{");
    lh_json_append_key(out, "type");
    lh_json_append_string(out, "about:blank");
    lh_json_append_key(out, "title");
    lh_json_append_string(out, title);
    lh_json_append_key(out, "status");
    lh_json_append_int(out, status);
    lh_json_append_key(out, "detail");
    lh_json_append_string(out, detail);
    if (field != NULL) {
        lh_json_append_key(out, "field");
        lh_json_append_string(out, field);
    }
    g_string_append_c(out, '}');
    gsize len = out->len;
    reply_taking(request, status, "application/problem+json", g_string_free(out, FALSE), len);
}

void lh_http_reply_problem(LhHttpRequest *request, guint status, const char *field,
                           const char *format, ...)
{
    va_list args;
    va_start(args, format);
    g_autofree char *detail = g_strdup_vprintf(format, args);
    va_end(args);
    reply_problem_text(request, status, field, detail);
}

void lh_http_reply_error(LhHttpRequest *request, const GError *error)
{
    static const guint16 status[LH_N_ERRORS] = {
        [LH_ERR_INVALID] = 400,    [LH_ERR_NOT_FOUND] = 404,   [LH_ERR_CONFLICT] = 409,
        [LH_ERR_FENCED] = 503,     [LH_ERR_UNAVAILABLE] = 503, [LH_ERR_UNKNOWN_OUTCOME] = 504,
        [LH_ERR_OVERLOADED] = 429, [LH_ERR_COMPACTED] = 410,   [LH_ERR_NO_SPACE] = 507,
        [LH_ERR_CANCELLED] = 503,  [LH_ERR_AUTH] = 401,        [LH_ERR_FORBIDDEN] = 403,
        [LH_ERR_IO] = 500,         [LH_ERR_CHECKSUM] = 500,    [LH_ERR_LEASE_LOST] = 503,
        [LH_ERR_INTERNAL] = 500,
    };
    gboolean ours = error->domain == LH_ERROR && error->code >= 0 && error->code < LH_N_ERRORS;
    reply_problem_text(request, ours ? status[error->code] : 500, NULL, error->message);
}
