/*
 * The daemon: the listening socket, libmicrohttpd on the main loop, and the way of a request from
 * its first line to its handler.
 *
 * libmicrohttpd runs without threads; its epoll descriptor and its timeout, with the hang-ups of
 * connection.c, are one GSource.
 */
#include "base/errors.h"
#include "base/log.h"
#include "http/internal.h"

#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- requests ---- */

static void *on_target(void *data, const char *uri, struct MHD_Connection *mhd)
{
    (void)data;
    LhHttpConnection *connection = lh_http_connection_of(mhd);
    g_free(connection->target);
    connection->target = g_strdup(uri);
    return NULL;
}

/* Paths and parameters are decoded in target.c, from the raw text. */
static size_t keep_escapes(void *data, struct MHD_Connection *mhd, char *text)
{
    (void)data;
    (void)mhd;
    return strlen(text);
}

static gboolean route_matches(const LhHttpRoute *route, const char *path)
{
    return route->below ? g_str_has_prefix(path, route->path) : strcmp(route->path, path) == 0;
}

/* The route, or NULL and *allow: the methods that the path has (NULL: no such path). */
static const LhHttpRoute *route_find(const LhHttpServer *server, const char *method,
                                     const char *path, char **allow)
{
    g_autoptr(GPtrArray) others = g_ptr_array_new();
    gboolean head = strcmp(method, "HEAD") == 0;
    for (guint i = 0; i < server->routes->len; i++) {
        const LhHttpRoute *route = server->routes->pdata[i];
        if (!route_matches(route, path)) {
            continue;
        }
        if (strcmp(route->method, method) == 0 || (head && strcmp(route->method, "GET") == 0)) {
            return route;
        }
        if (!g_ptr_array_find_with_equal_func(others, route->method, g_str_equal, NULL)) {
            g_ptr_array_add(others, route->method);
            if (strcmp(route->method, "GET") == 0) {
                g_ptr_array_add(others, (gpointer) "HEAD");
            }
        }
    }
    if (others->len > 0) {
        g_ptr_array_add(others, NULL);
        *allow = g_strjoinv(", ", (char **)others->pdata);
    }
    return NULL;
}

/* A refusal is a reply like any other; it only has no handler. */
static void refuse(LhHttpRequest *request, guint status, const char *why)
{
    request->why = why;
    request->state = REQUEST_HANDLING;
    request->refs++;
    lh_http_reply_problem(request, status, NULL, "%s", why);
}

/* Who may ask at all, before anything is said about what there is. TRUE: refused. */
static gboolean refuse_stranger(LhHttpRequest *request, LhRole needed)
{
    const char *why = NULL;
    if (needed != LH_ROLE_ANYONE || !request->server->authenticates) {
        lh_http_identify(request);
    }
    guint status = lh_http_guard_origin(request->server, request, &why);
    if (status == 0) {
        status = lh_http_guard_role(request, needed, &why);
        request->denied = status != 0;
        if (status == 401) {
            lh_http_set_header(request, MHD_HTTP_HEADER_WWW_AUTHENTICATE, "Bearer");
        }
    }
    if (status != 0) {
        refuse(request, status, why);
    }
    return status != 0;
}

static void request_begin(LhHttpRequest *request)
{
    LhHttpConnection *connection = request->connection;
    LhHttpServer *server = connection->server;
    g_autofree char *path = NULL, *allow = NULL;
    g_autoptr(GPtrArray) query = NULL;
    const char *why = NULL;
    if (lh_http_target_parse(connection->target, &path, &query, &why)) {
        g_free(request->path);
        request->path = g_steal_pointer(&path);
        g_ptr_array_unref(request->query);
        request->query = g_steal_pointer(&query);
        request->rest = request->path + strlen(request->path);
        request->route = route_find(server, request->method, request->path, &allow);
    }
    if (refuse_stranger(request, request->route != NULL ? request->route->role : LH_ROLE_VIEWER)) {
        return;
    }
    if (why != NULL) {
        refuse(request, 400, why);
        return;
    }
    if (request->route == NULL) {
        if (allow != NULL) {
            lh_http_set_header(request, MHD_HTTP_HEADER_ALLOW, allow);
            refuse(request, 405, "the path does not have this method");
        } else {
            refuse(request, 404, "no such path");
        }
        return;
    }
    if (request->route->below) {
        request->rest = request->path + strlen(request->route->path);
    }
    guint status = lh_http_guard_content(request, &why);
    if (status != 0) {
        refuse(request, status, why);
        return;
    }
    const char *length = lh_http_header(request, "Content-Length");
    if (length != NULL && g_ascii_strtoull(length, NULL, 10) > server->max_body) {
        refuse(request, 413, "the body is too large");
    }
}

/* Of a refused request, a body of reasonable size is still read: a client that is sending would
 * otherwise see a reset instead of the reply. */
static gboolean refuse_early(const LhHttpRequest *request)
{
    const char *length = lh_http_header(request, "Content-Length");
    return lh_http_header(request, "Expect") != NULL ||
           (length != NULL && g_ascii_strtoull(length, NULL, 10) > HTTP_DRAIN_BYTES);
}

static enum MHD_Result send_answer(LhHttpRequest *request)
{
    lh_http_connection_stop_waiting(request->connection);
    return MHD_queue_response(request->connection->connection, request->status, request->response);
}

static enum MHD_Result take_body(LhHttpRequest *request, const char *data, size_t *size)
{
    if (request->state == REQUEST_READING &&
        request->body->len + *size > request->server->max_body) {
        refuse(request, 413, "the body is too large");
        g_string_truncate(request->body, 0);
    }
    if (request->state == REQUEST_READING) {
        g_string_append_len(request->body, data, (gssize)*size);
    } else if ((request->drained += *size) > HTTP_DRAIN_BYTES) {
        return MHD_NO;
    }
    *size = 0;
    return MHD_YES;
}

static enum MHD_Result dispatch(LhHttpRequest *request)
{
    LhHttpConnection *connection = request->connection;
    lh_http_connection_stop_waiting(connection);
    request->state = REQUEST_HANDLING;
    request->refs++;
    request->route->handler(request, request->route->data);
    if (request->state == REQUEST_ANSWERED) {
        return send_answer(request);
    }
    if (connection->peer_closed) {
        lh_http_request_gone(request);
        return MHD_NO;
    }
    request->suspended = TRUE;
    MHD_suspend_connection(connection->connection);
    return MHD_YES;
}

/* Called for the headers, for each piece of the body, at its end, and again after a resume. */
static enum MHD_Result on_request(void *data, struct MHD_Connection *mhd, const char *url,
                                  const char *method, const char *version, const char *upload,
                                  size_t *upload_size, void **context)
{
    (void)data;
    (void)url;
    (void)version;
    LhHttpConnection *connection = lh_http_connection_of(mhd);
    LhHttpRequest *request = *context;
    if (connection->cut || (request != NULL && request->gone)) {
        return MHD_NO;
    }
    if (request == NULL) {
        request = *context = connection->request = lh_http_request_new(connection, method);
        request_begin(request);
        return request->state == REQUEST_ANSWERED && refuse_early(request) ? send_answer(request)
                                                                           : MHD_YES;
    }
    if (*upload_size > 0) {
        return take_body(request, upload, upload_size);
    }
    return request->state == REQUEST_READING ? dispatch(request) : send_answer(request);
}

static void on_completed(void *data, struct MHD_Connection *mhd, void **context,
                         enum MHD_RequestTerminationCode code)
{
    (void)data;
    (void)code;
    LhHttpConnection *connection = lh_http_connection_of(mhd);
    LhHttpRequest *request = *context;
    *context = NULL;
    g_clear_pointer(&connection->target, g_free);
    if (request == NULL) {
        return;
    }
    connection->request = NULL;
    if (request->stream != NULL) {
        lh_http_stream_ended(g_steal_pointer(&request->stream));
    }
    if (request->state == REQUEST_READING) {
        lh_http_audit(connection->server, request, "gone");
    } else if (request->state == REQUEST_HANDLING) {
        lh_http_request_gone(request);
    }
    lh_http_request_unref(request);
    lh_http_connection_wait(connection);
}

/* ---- the main loop ---- */

typedef struct {
    GSource source;
    LhHttpServer *server;
} HttpSource;

static int mhd_timeout_ms(const LhHttpServer *server)
{
    MHD_UNSIGNED_LONG_LONG timeout = 0;
    if (server->again) {
        return 0;
    }
    if (MHD_get_timeout(server->daemon, &timeout) != MHD_YES) {
        return -1;
    }
    return (int)MIN(timeout, (MHD_UNSIGNED_LONG_LONG)G_MAXINT);
}

static gboolean source_prepare(GSource *source, int *timeout)
{
    *timeout = mhd_timeout_ms(((HttpSource *)source)->server);
    return *timeout == 0;
}

static gboolean source_check(GSource *source)
{
    LhHttpServer *server = ((HttpSource *)source)->server;
    return g_source_query_unix_fd(source, server->mhd_tag) != 0 ||
           g_source_query_unix_fd(source, server->hangup_tag) != 0 || mhd_timeout_ms(server) == 0;
}

static gboolean source_dispatch(GSource *source, GSourceFunc func, gpointer data)
{
    (void)func;
    (void)data;
    LhHttpServer *server = ((HttpSource *)source)->server;
    lh_http_hangups_read(server);
    server->again = FALSE;
    MHD_run(server->daemon);
    lh_http_handshakes_park(server);
    return G_SOURCE_CONTINUE;
}

static GSourceFuncs source_funcs = {
    .prepare = source_prepare,
    .check = source_check,
    .dispatch = source_dispatch,
};

static void source_attach(LhHttpServer *server, GMainContext *context)
{
    int epoll_fd = MHD_get_daemon_info(server->daemon, MHD_DAEMON_INFO_EPOLL_FD)->epoll_fd;
    server->source = g_source_new(&source_funcs, sizeof(HttpSource));
    ((HttpSource *)server->source)->server = server;
    g_source_set_static_name(server->source, "http");
    server->mhd_tag = g_source_add_unix_fd(server->source, epoll_fd, G_IO_IN);
    server->hangup_tag = g_source_add_unix_fd(server->source, server->hangup_fd, G_IO_IN);
    g_source_attach(server->source, context);
}

/* ---- the server ---- */

static void on_comment(gpointer data)
{
    LhHttpServer *server = data;
    lh_http_streams_comment(server);
    server->comment_timer = lh_timer_in(server->env, HTTP_COMMENT_MS, on_comment, server);
}

static void on_mhd_log(void *data, const char *format, va_list args) G_GNUC_PRINTF(2, 0);
static void on_mhd_log(void *data, const char *format, va_list args)
{
    (void)data;
    if (lh_log_enabled(LH_LOG_DEBUG)) {
        g_autofree char *text = g_strdup_vprintf(format, args);
        lh_log(LH_LOG_DEBUG, "libmicrohttpd", "text", g_strchomp(text), NULL);
    }
}

static int listen_on(GSocketAddress *address, const char *text, GError **error)
{
    struct sockaddr_storage native;
    gssize size = g_socket_address_get_native_size(address);
    int one = 1, zero = 0;
    g_socket_address_to_native(address, &native, sizeof native, NULL);
    int fd = socket(native.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd >= 0) {
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
        if (native.ss_family == AF_INET6) {
            setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &zero, sizeof zero);
        }
    }
    if (fd < 0 || bind(fd, (struct sockaddr *)&native, (socklen_t)size) != 0 ||
        listen(fd, SOMAXCONN) != 0) {
        int code = errno;
        g_set_error(error, LH_ERROR, LH_ERR_IO, "listen %s: %s", text, g_strerror(code));
        if (fd >= 0) {
            close(fd);
        }
        return -1;
    }
    return fd;
}

static void address_learn(LhHttpServer *server, int fd)
{
    struct sockaddr_storage native;
    socklen_t size = sizeof native;
    getsockname(fd, (struct sockaddr *)&native, &size);
    g_autoptr(GSocketAddress) bound = g_socket_address_new_from_native(&native, size);
    GInetSocketAddress *inet = G_INET_SOCKET_ADDRESS(bound);
    g_autofree char *host = g_inet_address_to_string(g_inet_socket_address_get_address(inet));
    server->port = g_inet_socket_address_get_port(inet);
    server->address = g_strdup_printf(native.ss_family == AF_INET6 ? "[%s]:%u" : "%s:%u", host,
                                      server->port);
}

/* What the process needs besides its connections: etcd, files, pipes. */
#define OTHER_DESCRIPTORS 512

/* The usual soft limit of 1,024 is for programs that use select(); the hard limit is ours to use. */
static void allow_descriptors(guint connections)
{
    struct rlimit limit;
    rlim_t wanted = (rlim_t)connections + OTHER_DESCRIPTORS;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= wanted) {
        return;
    }
    limit.rlim_cur = MIN(wanted, limit.rlim_max);
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur < wanted) {
        lh_log(LH_LOG_WARNING, "fewer open files are permitted than connections", "files",
               lh_fmt("%" G_GUINT64_FORMAT, (guint64)limit.rlim_cur), "connections",
               lh_fmt("%u", connections), "next", "further ones will not be accepted", NULL);
    }
}

static struct MHD_Daemon *daemon_start(LhHttpServer *server, int fd, const LhHttpOptions *options)
{
    guint max = options->max_connections > 0 ? options->max_connections : 1024;
    guint per_ip = options->max_per_ip > 0 ? options->max_per_ip : MAX(max / 2, 1);
    allow_descriptors(max);
    struct MHD_OptionItem tls[] = {
        {MHD_OPTION_HTTPS_CERT_CALLBACK, 0, (gpointer)(intptr_t)lh_tls_no_certificate},
        {MHD_OPTION_HTTPS_PRIORITIES, 0, (gpointer)LH_TLS_PRIORITIES},
        {MHD_OPTION_END, 0, NULL},
    };
    struct MHD_OptionItem none[] = {{MHD_OPTION_END, 0, NULL}};
    guint flags = MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG;
    /* clang-format off */
    return MHD_start_daemon(
        flags | (server->tls != NULL ? MHD_USE_TLS : 0), 0, NULL, NULL,
        on_request, server,
        MHD_OPTION_EXTERNAL_LOGGER, on_mhd_log, NULL,
        MHD_OPTION_ARRAY, server->tls != NULL ? tls : none,
        MHD_OPTION_LISTEN_SOCKET, fd,
        MHD_OPTION_CONNECTION_LIMIT, max,
        MHD_OPTION_PER_IP_CONNECTION_LIMIT, per_ip,
        MHD_OPTION_CONNECTION_TIMEOUT, (guint)HTTP_IDLE_TIMEOUT_S,
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)HTTP_MEMORY_BYTES,
        MHD_OPTION_STRICT_FOR_CLIENT, 1,
        MHD_OPTION_SIGPIPE_HANDLED_BY_APP, 1,
        MHD_OPTION_NOTIFY_CONNECTION, lh_http_on_connection, server,
        MHD_OPTION_NOTIFY_COMPLETED, on_completed, server,
        MHD_OPTION_URI_LOG_CALLBACK, on_target, server,
        MHD_OPTION_UNESCAPE_CALLBACK, keep_escapes, server,
        MHD_OPTION_END);
    /* clang-format on */
}

static void sigpipe_ignore(void)
{
    struct sigaction old;
    if (sigaction(SIGPIPE, NULL, &old) == 0 && old.sa_handler == SIG_DFL) {
        signal(SIGPIPE, SIG_IGN);
    }
}

static void route_free(gpointer data)
{
    LhHttpRoute *route = data;
    g_free(route->method);
    g_free(route->path);
    g_free(route);
}

/* Everything but the socket: what is wrong with the files is said before anything is bound. */
static gboolean prepare(LhHttpServer *server, const LhHttpOptions *options, GError **error)
{
    if (options->cert != NULL) {
        server->tls = lh_tls_new(options->cert, options->key, options->client_ca, error);
        if (server->tls == NULL) {
            return FALSE;
        }
    }
    return lh_http_access_init(server, options, error);
}

static gboolean start(LhHttpServer *server, GSocketAddress *address, const LhHttpOptions *options,
                      GError **error)
{
    int fd = listen_on(address, options->listen, error);
    if (fd < 0) {
        return FALSE;
    }
    address_learn(server, fd);
    server->hangup_fd = epoll_create1(EPOLL_CLOEXEC);
    /* libmicrohttpd owns the socket, even if it does not start. */
    server->daemon = daemon_start(server, fd, options);
    if (server->hangup_fd < 0 || server->daemon == NULL) {
        g_set_error(error, LH_ERROR, LH_ERR_IO, "listen %s: cannot start the server",
                    options->listen);
        return FALSE;
    }
    return TRUE;
}

/* "http://lh.example:8083/x" -> "lh.example:8083" */
static char *authority_of(const char *url)
{
    const char *begin = url == NULL ? NULL : strstr(url, "://");
    return begin == NULL ? NULL : g_strndup(begin + 3, strcspn(begin + 3, "/"));
}

LhHttpServer *lh_http_server_new(LhEnv *env, GMainContext *context, const LhHttpOptions *options,
                                 GError **error)
{
    gboolean loopback;
    g_autoptr(GSocketAddress) address = lh_http_options_address(options, &loopback, error);
    if (address == NULL) {
        return NULL;
    }
    sigpipe_ignore();
    LhHttpServer *server = g_new0(LhHttpServer, 1);
    server->env = env;
    server->hangup_fd = -1;
    server->loopback = loopback;
    server->authority = authority_of(options->advertised);
    server->max_body = options->max_body > 0 ? options->max_body : 1024 * 1024;
    server->routes = g_ptr_array_new_with_free_func(route_free);
    if (!prepare(server, options, error) || !start(server, address, options, error)) {
        lh_http_server_free(server);
        return NULL;
    }
    source_attach(server, context);
    on_comment(server);
    return server;
}

void lh_http_server_free(LhHttpServer *server)
{
    if (server == NULL) {
        return;
    }
    /* libmicrohttpd does not stop while a connection is suspended. */
    for (GList *l = server->connections.head; l != NULL; l = l->next) {
        LhHttpConnection *connection = l->data;
        lh_http_connection_cut(connection);
        lh_http_connection_lost(connection);
    }
    if (server->daemon != NULL) {
        MHD_stop_daemon(server->daemon);
    }
    if (server->source != NULL) {
        g_source_destroy(server->source);
        g_source_unref(server->source);
    }
    lh_timer_clear(server->env, &server->deadline_timer);
    lh_timer_clear(server->env, &server->comment_timer);
    if (server->hangup_fd >= 0) {
        close(server->hangup_fd);
    }
    lh_http_access_clear(server);
    lh_tls_free(server->tls);
    g_ptr_array_unref(server->routes);
    g_free(server->address);
    g_free(server->authority);
    g_free(server);
}

const char *lh_http_server_address(const LhHttpServer *server)
{
    return server->address;
}

const char *lh_http_server_scheme(const LhHttpServer *server)
{
    return server->tls != NULL ? "https" : "http";
}

char *lh_http_server_url(const LhHttpServer *server)
{
    const char *scheme = lh_http_server_scheme(server);
    const char *address = server->address;
    if (g_str_has_prefix(address, "0.0.0.0:") || g_str_has_prefix(address, "[::]:")) {
        return g_strdup_printf("%s://%s%s", scheme, g_get_host_name(), strrchr(address, ':'));
    }
    return g_strdup_printf("%s://%s", scheme, address);
}

void lh_http_server_route(LhHttpServer *server, const char *method, const char *path, LhRole role,
                          LhHttpHandler handler, gpointer data)
{
    LhHttpRoute *route = g_new0(LhHttpRoute, 1);
    route->below = g_str_has_suffix(path, "/*");
    route->method = g_strdup(method);
    route->path = g_strndup(path, strlen(path) - (route->below ? 1 : 0));
    route->role = role;
    route->handler = handler;
    route->data = data;
    g_ptr_array_add(server->routes, route);
}
