/*
 * What the files of src/http share: the connection, the request and the stream as they are inside.
 *
 * A connection lives from libmicrohttpd's START to its CLOSED notification and carries at most one
 * request at a time. A request has two holders: libmicrohttpd (until it says that the request is
 * completed) and the handler (until it replies); the last one frees it.
 */
#pragma once

#include "http/server.h"
#include "http/tls.h"
#include "http/watched.h"

#include <gio/gio.h>
#include <microhttpd.h>

#define HTTP_REQUEST_TIMEOUT_MS 30000
#define HTTP_CLOSED_TIMEOUT_MS  1000 /* for what a peer has sent before it closed its side */
#define HTTP_IDLE_TIMEOUT_S     60   /* no progress at all; libmicrohttpd's own timeout */
#define HTTP_COMMENT_MS         15000
#define HTTP_STREAM_MAX_BYTES   (4 * 1024 * 1024)
#define HTTP_MEMORY_BYTES       (32 * 1024) /* headers, read and write buffer of one connection */
#define HTTP_DRAIN_BYTES \
    (8 * 1024 * 1024) /* of a refused body are read so that the reply arrives */
#define HTTP_MAX_QUERY 64

typedef struct {
    char *method, *path;
    gboolean below; /* path ended in "*", which is cut off */
    LhRole role;
    LhHttpHandler handler;
    gpointer data;
} LhHttpRoute;

typedef struct {
    LhHttpServer *server;
    struct MHD_Connection *connection;
    int fd;
    GList link;         /* in server->connections */
    GList waiting_link; /* in server->waiting while waiting */
    gboolean waiting;   /* for a complete request, until deadline_ms */
    gint64 deadline_ms;
    char *target; /* of the request being read; NULL: its first line has not come yet */
    LhHttpRequest *request;
    gpointer session; /* GnuTLS's; NULL: no TLS */
    gboolean handshaken, parked;
    GList handshake_link;  /* in server->handshakes, if it is to be parked */
    gboolean handshake_on; /* it is there */
    LhTlsCredentials *credentials;
    LhTlsPeer peer;
    gboolean peer_closed; /* its sending side */
    gboolean cut;         /* we have shut the socket down */
} LhHttpConnection;

struct LhHttpServer {
    LhEnv *env;
    struct MHD_Daemon *daemon;
    GSource *source;
    gpointer mhd_tag, hangup_tag;
    int hangup_fd; /* an epoll set of all connections that waits only for the peer's end */
    char *address;
    guint16 port;
    gboolean loopback;
    char *authority; /* that others are told; NULL: none */
    LhTls *tls;      /* NULL: plain */
    gboolean authenticates;
    LhWatched tokens_file;
    LhTokens *tokens; /* NULL: there is no tokens file */
    gint64 tokens_looked_ms;
    guint audit_lines; /* about strangers, in this period */
    guint64 audit_left_out;
    LhTimer *audit_timer; /* the end of the period; NULL: none has begun */
    gboolean again;       /* libmicrohttpd must run once more, though nothing is readable */
    gsize max_body;
    GPtrArray *routes;
    GQueue connections, waiting, streams, handshakes;
    LhTimer *deadline_timer, *comment_timer;
    gint64 deadline_timer_ms;
};

typedef enum {
    REQUEST_READING,
    REQUEST_HANDLING, /* the handler owes a reply */
    REQUEST_ANSWERED,
} LhHttpRequestState;

struct LhHttpRequest {
    LhHttpServer *server; /* NULL once gone */
    LhHttpConnection *connection;
    LhHttpRequestState state;
    guint refs;
    gboolean gone;
    gboolean suspended; /* in libmicrohttpd, until the reply */
    char *method;
    char *path;
    const char *rest; /* points into path */
    char *peer;
    char *who;       /* NULL: anonymous */
    LhRole role;     /* of the client */
    const char *why; /* it is nobody, or may not do this; static */
    gboolean denied; /* refused for what its client is */
    gboolean audited;
    GPtrArray *query;         /* name, value, … decoded */
    GPtrArray *headers;       /* name, value, … of the request */
    GPtrArray *reply_headers; /* name, value, … */
    GString *body;
    gsize drained;
    const LhHttpRoute *route;
    struct MHD_Response *response;
    guint status;
    gint64 started_ms;
    void (*gone_func)(gpointer data);
    gpointer gone_data;
    LhHttpStream *stream;
};

struct LhHttpStream {
    LhHttpServer *server;
    LhHttpRequest *request;
    GList link; /* in server->streams */
    GString *waiting;
    gsize sent; /* of waiting */
    gboolean suspended;
    gboolean closing; /* by its owner: end when all is sent */
    gboolean dead;
    void (*closed)(gpointer data);
    gpointer data;
};

/* connection.c */
void lh_http_on_connection(void *data, struct MHD_Connection *mhd, void **context,
                           enum MHD_ConnectionNotificationCode code);
LhHttpConnection *lh_http_connection_of(struct MHD_Connection *mhd);
void lh_http_connection_wait(LhHttpConnection *connection); /* for a complete request */
void lh_http_connection_stop_waiting(LhHttpConnection *connection);
void lh_http_connection_resume(LhHttpConnection *connection);
void lh_http_connection_cut(LhHttpConnection *connection);
/* The client is not there any more: whoever waits for it on our side is told. */
void lh_http_connection_lost(LhHttpConnection *connection);
void lh_http_hangups_read(LhHttpServer *server);
/* After libmicrohttpd has run: until their sockets are ready, handshakes are kept from it. */
void lh_http_handshakes_park(LhHttpServer *server);

/* target.c: origin-form only. False: *why is static storage, outputs are untouched. */
gboolean lh_http_target_parse(const char *target, char **path, GPtrArray **query, const char **why);

/* options.c: NULL and LH_ERR_INVALID, also when what is wanted may not be served there. */
GSocketAddress *lh_http_options_address(const LhHttpOptions *options, gboolean *loopback,
                                        GError **error);

/* access.c */
gboolean lh_http_access_init(LhHttpServer *server, const LhHttpOptions *options, GError **error);
void lh_http_access_clear(LhHttpServer *server);
/* Sets who and role, from what the request and its connection say now. */
void lh_http_identify(LhHttpRequest *request);
/* 0, 401 or 403, for the role that lh_http_identify found. */
guint lh_http_guard_role(const LhHttpRequest *request, LhRole needed, const char **why);
/* A stream may last longer than the right to it. */
gboolean lh_http_access_lost(LhHttpRequest *request);
/* The line about a request that is over, where it leaves one; once. @server NULL: it is gone. */
void lh_http_audit(LhHttpServer *server, LhHttpRequest *request, const char *status);

/* guard.c: 0, or the status of a refusal and its reason (static storage). */
guint lh_http_guard_origin(const LhHttpServer *server, const LhHttpRequest *request,
                           const char **why);
guint lh_http_guard_content(const LhHttpRequest *request, const char **why);

/* request.c */
LhHttpRequest *lh_http_request_new(LhHttpConnection *connection, const char *method);
void lh_http_request_unref(LhHttpRequest *request);
/* Tells the handler; the request loses its connection. */
void lh_http_request_gone(LhHttpRequest *request);
/* Takes @response and ends the handler's hold. */
void lh_http_request_answer(LhHttpRequest *request, guint status, struct MHD_Response *response);

/* stream.c */
void lh_http_stream_kill(LhHttpStream *stream);
void lh_http_stream_ended(LhHttpStream *stream); /* calls closed, frees */
void lh_http_streams_comment(LhHttpServer *server);
