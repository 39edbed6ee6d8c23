/*
 * An HTTP server on the GLib main loop (libmicrohttpd, its epoll descriptor as a GSource):
 * routing, bodies with limits, JSON and problem replies, files, server-sent events.
 *
 * Loop thread only. A handler answers at once or later: it gets an LhHttpRequest and must end it
 * with exactly one lh_http_reply…() call (or turn it into an event stream); the request is then
 * freed. If the client goes away first, @gone is called, once, and the handler's reply, which is
 * still due (from within @gone at the earliest), becomes a no-op. That holds for
 * lh_http_server_free too: a request that waits for its reply outlives the server. A client that
 * shuts down its sending side while it waits for a late reply or a stream counts as gone.
 *
 * Refused before a handler sees it: paths with bad escapes, %2F, NUL, control characters, invalid
 * UTF-8, or with ".", ".." or empty segments (400); bodies over max_body (413); headers over 32
 * KiB (431, 414; libmicrohttpd's own page); a request that is not complete 30 s after its
 * connection was opened or its predecessor answered (408, closed). HEAD works wherever GET does.
 */
#pragma once

#include "base/config.h"
#include "base/env.h"
#include "http/auth.h"

#include <cjson/cJSON.h>
#include <glib.h>

typedef struct LhHttpServer LhHttpServer;
typedef struct LhHttpRequest LhHttpRequest;
typedef struct LhHttpStream LhHttpStream; /* server-sent events */

typedef void (*LhHttpHandler)(LhHttpRequest *request, gpointer data);

typedef struct {
    const char *listen;      /* "127.0.0.1:8083", "[::1]:0"; port 0: any */
    gboolean insecure;       /* permits a non-loopback address without TLS and authentication */
    const char *cert, *key;  /* PEM files: serve TLS; both or none */
    const char *client_ca;   /* PEM file: certificates of clients that it has signed are accepted */
    const char *tokens_file; /* auth.h; NULL: no tokens */
    gsize max_body;          /* 0: 1 MiB */
    guint max_connections; /* 0: 1,024; further ones wait in the backlog. The limit on open files is
                            * raised to fit */
    guint max_per_ip;      /* 0: half of max_connections; further ones are closed */
    const char
        *advertised; /* URL that others are told; its host and port are a good Host. NULL: none */
} LhHttpOptions;

/* The options in @config (listen, insecure, tls.*, auth.*; borrowed from it). Errors: LH_ERR_INVALID
 * with the setting's source. */
gboolean lh_http_options_read(const LhConfig *config, LhHttpOptions *out, GError **error);

/* The files are read anew when they change, within 10 s: new connections get the new certificate, and
 * every request is checked against the tokens and the authority as they are; what cannot be read or
 * parsed then is logged, and the last good one stays. Addresses are numeric, or "localhost". Sets
 * SIGPIPE to be ignored if it has its default action. Errors: LH_ERR_INVALID (address; not loopback
 * and neither @insecure nor TLS with client_ca or tokens; a file), LH_ERR_IO (cannot listen). */
LhHttpServer *lh_http_server_new(LhEnv *env, GMainContext *context, const LhHttpOptions *options,
                                 GError **error);
/* Closes streams and connections (calling @closed and @gone); not from a handler. Accepts NULL. */
void lh_http_server_free(LhHttpServer *server);
/* "127.0.0.1:41234"; lives as long as the server. */
const char *lh_http_server_address(const LhHttpServer *server);
/* "http" or "https". */
const char *lh_http_server_scheme(const LhHttpServer *server);
/* Where others reach it: "https://10.0.0.1:8083"; the host's name if it listens on every address. g_free. */
char *lh_http_server_url(const LhHttpServer *server);

/* @path: exact ("/healthz"), or ending in "/" + "*" for everything below. First match in order
 * added wins; no path: 404, path with another method: 405 with Allow. On loopback without
 * authentication Host and Origin are checked (403); elsewhere an Origin must be that of Host. PUT,
 * POST and PATCH, and a DELETE with a body, need Content-Type: application/json (415) (CONTRACT.md
 * section 3).
 *
 * @role: what a client must be, when there is authentication (client_ca or tokens_file): 401 without
 * credentials or with wrong ones, 403 with too low a role, both before the body is read; what has no
 * route needs a viewer. An Authorization header decides alone; without one, the client certificate.
 * Without authentication everybody is admin. A stream whose client loses its role ends within 30 s.
 *
 * Every request with a method other than GET and HEAD leaves one line in the log when it is answered
 * (by a handler or with a refusal): audit who=… role=… from=… method=… path=… status=…, never a query
 * or a body; status=gone when its client went before it had sent all of it. So does every 401, and
 * 403 for the role, whatever the method, with why=…. Of refused reads and of what comes from clients
 * without a name there are 20 in 10 s, and then how many were left out; writes of those who have a
 * name always leave their line. */
void lh_http_server_route(LhHttpServer *server, const char *method, const char *path, LhRole role,
                          LhHttpHandler handler, gpointer data);

const char *lh_http_method(const LhHttpRequest *request);
/* Decoded; begins with '/', and no segment is empty (but the last one may be), "." or "..". */
const char *lh_http_path(const LhHttpRequest *request);
/* What "*" matched, decoded; "" for an exact route. */
const char *lh_http_rest(const LhHttpRequest *request);
const char *lh_http_query(const LhHttpRequest *request, const char *name);  /* NULL: absent */
const char *lh_http_header(const LhHttpRequest *request, const char *name); /* NULL: absent */
const char *lh_http_body(const LhHttpRequest *request, gsize *len);         /* NUL-terminated */
const char *lh_http_peer(const LhHttpRequest *request);                     /* "127.0.0.1:50123" */
LhRole lh_http_role(const LhHttpRequest *request);
const char *lh_http_who(const LhHttpRequest *request); /* of token or certificate; "anonymous" */
/* @gone: the client went away before the reply. Not called after the reply. */
void lh_http_set_gone(LhHttpRequest *request, void (*gone)(gpointer data), gpointer data);

/* What a handler answers leaves no line of audit: for traffic that changes nothing which anybody set. */
void lh_http_unaudited(LhHttpRequest *request);
/* A header of the reply to come (Location, Retry-After, Cache-Control …). */
void lh_http_set_header(LhHttpRequest *request, const char *name, const char *value);

/* @len -1: strlen. @body is copied. */
void lh_http_reply(LhHttpRequest *request, guint status, const char *content_type, const char *body,
                   gssize len);
/* Takes @json (a compact text made by g_malloc). @etag may be NULL. */
void lh_http_reply_json(LhHttpRequest *request, guint status, char *json, const char *etag);
/* RFC 9457: application/problem+json {type:"about:blank", title, status, detail, field}. */
void lh_http_reply_problem(LhHttpRequest *request, guint status, const char *field,
                           const char *format, ...) G_GNUC_PRINTF(4, 5);
/* The status that fits an LH_ERROR code, and the problem; INVALID 400, NOT_FOUND 404 … */
void lh_http_reply_error(LhHttpRequest *request, const GError *error);
/* A regular file opened by the caller (takes @fd). One Range is honoured, with If-Range. */
void lh_http_reply_fd(LhHttpRequest *request, int fd, const char *content_type);

/* Turns the request into text/event-stream. @closed: the client went away, was too slow (more than
 * 4 MiB waiting, or nothing taken for a minute) or the server is being freed; called once, from the
 * loop; the stream is freed after it. A comment line is sent every 15 s.
 * NULL when the client had gone already (@closed is then not called). */
LhHttpStream *lh_http_stream_open(LhHttpRequest *request, void (*closed)(gpointer data),
                                  gpointer data);
/* @id below 0, @event NULL: left out. @data may have several lines. */
void lh_http_stream_send(LhHttpStream *stream, gint64 id, const char *event, const char *data);
/* Ends the stream after what was sent; @closed will not be called, @stream is invalid. Accepts
 * NULL. */
void lh_http_stream_close(LhHttpStream *stream);
