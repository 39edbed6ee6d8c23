/*
 * The checks before routing that keep web pages of other origins out (CONTRACT.md section 3). Pure.
 * Who asks is access.c's matter.
 *
 * On loopback without authentication, Host must name this host and our port, or what others are told: a page
 * whose name was re-bound to 127.0.0.1 sends its own name. An Origin must be the one that Host gives. A body must be JSON, because a
 * form cannot send that without asking first.
 */
#include "http/internal.h"

#include <string.h>

/* "localhost:8083", "127.0.0.1:8083", "[::1]:8083"; without port: that of the scheme. */
static gboolean host_is_ours(const LhHttpServer *server, const char *host)
{
    const char *colon = strrchr(host, ':');
    if (server->authority != NULL && g_ascii_strcasecmp(host, server->authority) == 0) {
        return TRUE;
    }
    if (colon != NULL && strchr(colon, ']') != NULL) {
        colon = NULL;
    }
    guint64 port = server->tls != NULL ? 443 : 80;
    if (colon != NULL &&
        (!g_ascii_isdigit(colon[1]) ||
         !g_ascii_string_to_unsigned(colon + 1, 10, 1, G_MAXUINT16, &port, NULL))) {
        return FALSE;
    }
    gsize len = colon != NULL ? (gsize)(colon - host) : strlen(host);
    g_autofree char *name = g_strndup(host, len);
    if (port != server->port) {
        return FALSE;
    }
    if (g_ascii_strcasecmp(name, "localhost") == 0) {
        return TRUE;
    }
    if (len > 2 && name[0] == '[' && name[len - 1] == ']') {
        name[len - 1] = '\0';
        memmove(name, name + 1, len - 1);
    } else if (strchr(name, ':') != NULL) {
        return FALSE;
    }
    g_autoptr(GInetAddress) address = g_inet_address_new_from_string(name);
    return address != NULL && g_inet_address_get_is_loopback(address);
}

static gboolean origin_fits(const LhHttpServer *server, const char *origin, const char *host)
{
    const char *scheme = server->tls != NULL ? "https://" : "http://";
    gsize len = strlen(scheme);
    return host != NULL && g_ascii_strncasecmp(origin, scheme, len) == 0 &&
           g_ascii_strcasecmp(origin + len, host) == 0;
}

static gboolean is_json(const char *content_type)
{
    static const char json[] = "application/json";
    if (content_type == NULL || g_ascii_strncasecmp(content_type, json, sizeof json - 1) != 0) {
        return FALSE;
    }
    char next = content_type[sizeof json - 1];
    return next == '\0' || next == ';' || next == ' ' || next == '\t';
}

static gboolean has_body(const LhHttpRequest *request)
{
    const char *length = lh_http_header(request, "Content-Length");
    return lh_http_header(request, "Transfer-Encoding") != NULL ||
           (length != NULL && strcmp(length, "0") != 0);
}

/* A DELETE without a body needs no type: browsers ask before they send one to another origin. */
guint lh_http_guard_content(const LhHttpRequest *request, const char **why)
{
    const char *method = request->method;
    gboolean posts = strcmp(method, "PUT") == 0 || strcmp(method, "POST") == 0 ||
                     strcmp(method, "PATCH") == 0;
    if (!posts && !(strcmp(method, "DELETE") == 0 && has_body(request))) {
        return 0;
    }
    if (!is_json(lh_http_header(request, "Content-Type"))) {
        *why = "Content-Type must be application/json";
        return 415;
    }
    const char *encoding = lh_http_header(request, "Content-Encoding");
    if (encoding != NULL && g_ascii_strcasecmp(encoding, "identity") != 0) {
        *why = "Content-Encoding is not supported";
        return 415;
    }
    return 0;
}

guint lh_http_guard_origin(const LhHttpServer *server, const LhHttpRequest *request,
                           const char **why)
{
    const char *host = NULL;
    for (guint i = 0; i < request->headers->len; i += 2) {
        if (g_ascii_strcasecmp(request->headers->pdata[i], "Host") == 0) {
            if (host != NULL) {
                *why = "more than one Host header";
                return 400;
            }
            host = request->headers->pdata[i + 1];
        }
    }
    if (server->loopback && !server->authenticates &&
        (host == NULL || !host_is_ours(server, host))) {
        *why = "Host is not this server's loopback address and port, nor its advertised URL's";
        return 403;
    }
    const char *origin = lh_http_header(request, "Origin");
    if (origin != NULL && !origin_fits(server, origin, host)) {
        *why = "requests from another origin are refused";
        return 403;
    }
    return 0;
}
