/*
 * The HTTP server through real sockets on 127.0.0.1, client and server in one loop: routing,
 * limits, the checks against other origins, late replies, files and event streams.
 *
 * The clock of the server's own deadlines is the test's; nothing sleeps.
 */
#include "base/errors.h"
#include "base/json.h"
#include "http/server.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <glib-unix.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

/* ---- a clock that only the test moves ---- */

struct LhTimer {
    gint64 due_ms;
    LhTimerFunc func;
    gpointer data;
};

typedef struct {
    LhEnv env;
    gint64 now_ms;
    GList *timers;
} Clock;

static gint64 clock_now(LhEnv *env)
{
    return ((Clock *)env)->now_ms;
}

static LhTimer *clock_timer_at(LhEnv *env, gint64 due_ms, LhTimerFunc func, gpointer data)
{
    LhTimer *timer = g_new0(LhTimer, 1);
    *timer = (LhTimer){due_ms, func, data};
    ((Clock *)env)->timers = g_list_append(((Clock *)env)->timers, timer);
    return timer;
}

static void clock_timer_cancel(LhEnv *env, LhTimer *timer)
{
    ((Clock *)env)->timers = g_list_remove(((Clock *)env)->timers, timer);
    g_free(timer);
}

static const LhEnvVtable clock_vtable = {
    .wall_ms = clock_now,
    .mono_ms = clock_now,
    .timer_at = clock_timer_at,
    .timer_cancel = clock_timer_cancel,
};

static void clock_advance(Clock *clock, gint64 ms)
{
    clock->now_ms += ms;
    for (GList *l = clock->timers; l != NULL;) {
        LhTimer *timer = l->data;
        if (timer->due_ms <= clock->now_ms) {
            clock->timers = g_list_delete_link(clock->timers, l);
            timer->func(timer->data);
            g_free(timer);
            l = clock->timers;
        } else {
            l = l->next;
        }
    }
}

/* ---- the fixture ---- */

#define MAX_CLIENTS 16

typedef struct {
    int fd;
    guint source;
    GString *in;
    gboolean eof;
} Client;

typedef struct {
    Clock clock;
    LhHttpServer *server;
    guint16 port;
    Client clients[MAX_CLIENTS];
    guint n_clients;
    LhHttpRequest *held; /* a request whose reply is late */
    guint n_held, n_gone, n_closed;
    LhHttpStream *stream;
    char *dir;
    char *file;
} Fixture;

static void handle_hello(LhHttpRequest *request, gpointer data)
{
    (void)data;
    lh_http_reply(request, 200, "text/plain", "hello", -1);
}

/* Everything that the handler can see, as text. */
static void handle_echo(LhHttpRequest *request, gpointer data)
{
    (void)data;
    gsize len = 0;
    const char *body = lh_http_body(request, &len);
    const char *q = lh_http_query(request, "q");
    g_autofree char *text = g_strdup_printf(
        "%s|%s|%s|%s|%" G_GSIZE_FORMAT ":%s|%s", lh_http_method(request), lh_http_path(request),
        lh_http_rest(request), q != NULL ? q : "(none)", len, len < 100 ? body : "(long)",
        lh_http_query(request, "absent") == NULL ? "absent" : "present");
    lh_http_reply(request, 200, "text/plain", text, -1);
}

static void on_gone(gpointer data)
{
    Fixture *f = data;
    f->n_gone++;
}

static void handle_late(LhHttpRequest *request, gpointer data)
{
    Fixture *f = data;
    f->held = request;
    f->n_held++;
    lh_http_set_gone(request, on_gone, f);
}

static void on_gone_replies(gpointer data)
{
    Fixture *f = data;
    f->n_gone++;
    lh_http_reply(g_steal_pointer(&f->held), 200, NULL, NULL, 0);
}

static void handle_cancel(LhHttpRequest *request, gpointer data)
{
    Fixture *f = data;
    f->held = request;
    lh_http_set_gone(request, on_gone_replies, f);
}

static void handle_json(LhHttpRequest *request, gpointer data)
{
    (void)data;
    lh_http_set_header(request, "Cache-Control", "no-cache");
    lh_http_reply_json(request, 201, g_strdup("{\"a\":1}"), "\"42\"");
}

static void handle_error(LhHttpRequest *request, gpointer data)
{
    (void)data;
    g_autoptr(GError) error = NULL;
    if (strcmp(lh_http_rest(request), "field") == 0) {
        lh_http_reply_problem(request, 422, "spec.owner", "owner \"%s\": too long", "x");
        return;
    }
    g_set_error(&error, LH_ERROR, atoi(lh_http_rest(request)), "because");
    lh_http_reply_error(request, error);
}

static void handle_file(LhHttpRequest *request, gpointer data)
{
    Fixture *f = data;
    gboolean directory = strcmp(lh_http_rest(request), "dir") == 0;
    lh_http_reply_fd(request, open(directory ? f->dir : f->file, O_RDONLY | O_CLOEXEC),
                     "text/x-test");
}

static void on_closed(gpointer data)
{
    Fixture *f = data;
    f->n_closed++;
    f->stream = NULL;
}

static void handle_events(LhHttpRequest *request, gpointer data)
{
    Fixture *f = data;
    f->stream = lh_http_stream_open(request, on_closed, f);
}

static int setup_with(void **state, const LhHttpOptions *options)
{
    Fixture *f = g_new0(Fixture, 1);
    g_autoptr(GError) error = NULL;
    f->clock.env.v = &clock_vtable;
    f->clock.now_ms = 1000000;
    f->server = lh_http_server_new(&f->clock.env, NULL, options, &error);
    assert_null(error);
    f->port = (guint16)atoi(strrchr(lh_http_server_address(f->server), ':') + 1);
    f->dir = g_dir_make_tmp("lh-http-XXXXXX", NULL);
    f->file = g_build_filename(f->dir, "file", NULL);
    assert_true(g_file_set_contents(f->file, "0123456789", 10, NULL));

    static const struct {
        const char *method, *path;
        LhHttpHandler handler;
    } routes[] = {
        {"GET", "/hello", handle_hello},   {"GET", "/echo/*", handle_echo},
        {"PUT", "/echo/*", handle_echo},   {"DELETE", "/echo/*", handle_echo},
        {"POST", "/echo/*", handle_echo},  {"GET", "/late", handle_late},
        {"GET", "/cancel", handle_cancel}, {"GET", "/json", handle_json},
        {"GET", "/error/*", handle_error}, {"GET", "/file/*", handle_file},
        {"GET", "/events", handle_events},
    };
    for (guint i = 0; i < G_N_ELEMENTS(routes); i++) {
        lh_http_server_route(f->server, routes[i].method, routes[i].path, LH_ROLE_VIEWER,
                             routes[i].handler, f);
    }
    *state = f;
    return 0;
}

static int setup(void **state)
{
    const LhHttpOptions options = {.listen = "127.0.0.1:0", .max_body = 64 * 1024};
    return setup_with(state, &options);
}

static int setup_small(void **state)
{
    const LhHttpOptions options = {.listen = "127.0.0.1:0", .max_connections = 6, .max_per_ip = 3};
    return setup_with(state, &options);
}

static int teardown(void **state)
{
    Fixture *f = *state;
    lh_http_server_free(f->server);
    assert_null(f->clock.timers);
    for (guint i = 0; i < f->n_clients; i++) {
        Client *client = &f->clients[i];
        g_clear_handle_id(&client->source, g_source_remove);
        if (client->fd >= 0) {
            close(client->fd);
        }
        g_string_free(client->in, TRUE);
    }
    unlink(f->file);
    rmdir(f->dir);
    g_free(f->file);
    g_free(f->dir);
    g_free(f);
    return 0;
}

/* ---- clients ---- */

static gboolean on_readable(int fd, GIOCondition condition, gpointer data)
{
    (void)condition;
    Client *client = data;
    char buffer[65536];
    ssize_t n = read(fd, buffer, sizeof buffer);
    if (n > 0) {
        g_string_append_len(client->in, buffer, n);
        return G_SOURCE_CONTINUE;
    }
    if (n < 0 && errno == EAGAIN) {
        return G_SOURCE_CONTINUE;
    }
    client->eof = TRUE;
    client->source = 0;
    return G_SOURCE_REMOVE;
}

static void client_read(Client *client)
{
    client->source = g_unix_fd_add(client->fd, G_IO_IN | G_IO_HUP, on_readable, client);
}

static Client *client_from(Fixture *f, const char *from)
{
    assert_true(f->n_clients < MAX_CLIENTS);
    Client *client = &f->clients[f->n_clients++];
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons(f->port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    client->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    client->in = g_string_new(NULL);
    struct sockaddr_in source = {.sin_family = AF_INET, .sin_addr.s_addr = inet_addr(from)};
    assert_int_equal(bind(client->fd, (struct sockaddr *)&source, sizeof source), 0);
    assert_int_equal(connect(client->fd, (struct sockaddr *)&address, sizeof address), 0);
    fcntl(client->fd, F_SETFL, O_NONBLOCK);
    client_read(client);
    return client;
}

static Client *client_new(Fixture *f)
{
    return client_from(f, "127.0.0.1");
}

static void client_close(Client *client)
{
    g_clear_handle_id(&client->source, g_source_remove);
    close(client->fd);
    client->fd = -1;
}

static gboolean on_hopeless(gpointer data)
{
    *(gboolean *)data = TRUE;
    return G_SOURCE_CONTINUE;
}

#define wait_for(condition)                                              \
    do {                                                                 \
        gboolean hopeless = FALSE;                                       \
        guint timer = g_timeout_add_seconds(20, on_hopeless, &hopeless); \
        while (!(condition) && !hopeless) {                              \
            g_main_context_iteration(NULL, TRUE);                        \
        }                                                                \
        g_source_remove(timer);                                          \
        if (hopeless) {                                                  \
            fail_msg("waited in vain for: %s", #condition);              \
        }                                                                \
    } while (0)

/* Lets everything happen that can happen now. */
static void settle(void)
{
    while (g_main_context_iteration(NULL, FALSE)) {
    }
}

static void client_send(Client *client, const char *data, gsize len)
{
    while (len > 0) {
        ssize_t n = send(client->fd, data, len, MSG_NOSIGNAL);
        if (n < 0 && errno == EAGAIN) {
            g_main_context_iteration(NULL, FALSE);
            continue;
        }
        if (n <= 0) {
            return; /* refused while sending: the reply says why */
        }
        data += n;
        len -= (gsize)n;
    }
}

/* @request without Host (it is added) and without the final empty line; @body may be NULL. */
static void client_ask(Fixture *f, Client *client, const char *request, const char *body)
{
    const char *line_end = strchrnul(request, '\n');
    GString *text = g_string_new_len(request, line_end - request);
    g_string_append_printf(text, "\r\nHost: 127.0.0.1:%u\r\n", f->port);
    if (*line_end != '\0') {
        g_string_append_printf(text, "%s\r\n", line_end + 1);
    }
    if (body != NULL) {
        g_string_append_printf(text, "Content-Length: %zu\r\n", strlen(body));
    }
    g_string_append_printf(text, "\r\n%s", body != NULL ? body : "");
    client_send(client, text->str, text->len);
    g_string_free(text, TRUE);
}

static int reply_status(const Client *client)
{
    return g_str_has_prefix(client->in->str, "HTTP/1.1 ") ? atoi(client->in->str + 9) : 0;
}

/* The value of a header in the first reply; g_free. */
static char *reply_header(const Client *client, const char *name)
{
    const char *end = strstr(client->in->str, "\r\n\r\n");
    g_autofree char *head = g_strndup(client->in->str, (gsize)(end - client->in->str));
    g_auto(GStrv) lines = g_strsplit(head, "\r\n", -1);
    for (guint i = 1; lines[i] != NULL; i++) {
        gsize len = strlen(name);
        if (g_ascii_strncasecmp(lines[i], name, len) == 0 && lines[i][len] == ':') {
            return g_strdup(g_strstrip(lines[i] + len + 1));
        }
    }
    return NULL;
}

static const char *reply_body(const Client *client)
{
    const char *end = strstr(client->in->str, "\r\n\r\n");
    return end != NULL ? end + 4 : NULL;
}

static gboolean reply_complete(const Client *client)
{
    const char *body = reply_body(client);
    if (body == NULL) {
        return FALSE;
    }
    g_autofree char *length = reply_header(client, "Content-Length");
    return length != NULL &&
           client->in->len - (gsize)(body - client->in->str) >= g_ascii_strtoull(length, NULL, 10);
}

/* Asks on a new connection, waits for the reply, returns its status. */
static Client *ask(Fixture *f, const char *request, const char *body)
{
    Client *client = client_new(f);
    client_ask(f, client, request, body);
    wait_for(reply_complete(client) || client->eof);
    return client;
}

static void assert_ask(Fixture *f, const char *request, const char *body, int status,
                       const char *expected)
{
    Client *client = ask(f, request, body);
    if (reply_status(client) != status) {
        fail_msg("%s: %d, expected %d\n%s", request, reply_status(client), status, client->in->str);
    }
    if (expected != NULL && strstr(reply_body(client), expected) == NULL) {
        fail_msg("%s: \"%s\" is not in %s", request, expected, reply_body(client));
    }
    client_close(client);
    g_string_free(client->in, TRUE);
    f->n_clients--;
}

static void assert_header(const Client *client, const char *name, const char *expected)
{
    g_autofree char *value = reply_header(client, name);
    if (expected == NULL) {
        assert_null(value);
    } else {
        assert_non_null(value);
        assert_string_equal(value, expected);
    }
}

/* ---- requests and replies ---- */

static void test_routes(void **state)
{
    Fixture *f = *state;
    assert_ask(f, "GET /hello HTTP/1.1", NULL, 200, "hello");
    assert_ask(f, "GET /nothing HTTP/1.1", NULL, 404, "\"title\":\"Not Found\"");
    assert_ask(f, "GET /hello/more HTTP/1.1", NULL, 404, NULL);
    assert_ask(f, "GET /echo HTTP/1.1", NULL, 404, NULL);
    assert_ask(f, "GET /echo/ HTTP/1.1", NULL, 200, "GET|/echo/||(none)|0:|absent");
    assert_ask(f, "GET /echo/a/b/?x=1 HTTP/1.1", NULL, 200, "GET|/echo/a/b/|a/b/|(none)|0:|absent");
    assert_ask(f, "PUT /echo/a HTTP/1.1\nContent-Type: application/json", "{}", 200,
               "PUT|/echo/a|a|(none)|2:{}|absent");
    assert_ask(f, "DELETE /echo/a HTTP/1.1", NULL, 200, "DELETE|/echo/a|a|");

    Client *client = ask(f, "DELETE /hello HTTP/1.1", NULL);
    assert_int_equal(reply_status(client), 405);
    assert_header(client, "Allow", "GET, HEAD");
    assert_header(client, "Content-Type", "application/problem+json");
    client = ask(f, "OPTIONS /echo/x HTTP/1.1", NULL);
    assert_int_equal(reply_status(client), 405);
    assert_header(client, "Allow", "GET, HEAD, PUT, DELETE, POST");
    assert_header(client, "Access-Control-Allow-Origin", NULL);
}

static void test_head(void **state)
{
    Fixture *f = *state;
    Client *client = client_new(f);
    client_ask(f, client, "HEAD /hello HTTP/1.1", NULL);
    wait_for(reply_body(client) != NULL);
    assert_int_equal(reply_status(client), 200);
    assert_header(client, "Content-Length", "5");
    client_ask(f, client, "GET /hello HTTP/1.1", NULL);
    wait_for(g_str_has_suffix(client->in->str, "hello"));
    /* No body came in between. */
    assert_true(g_str_has_prefix(reply_body(client), "HTTP/1.1 200"));

    client = client_new(f);
    client_ask(f, client, "HEAD /events HTTP/1.1", NULL);
    wait_for(reply_body(client) != NULL && f->n_closed == 1);
    assert_header(client, "Content-Type", "text/event-stream");
}

static void test_decoding(void **state)
{
    Fixture *f = *state;
    assert_ask(f, "GET /echo/a%20b%C3%A9?q=%2Fx+y%3D HTTP/1.1", NULL, 200,
               "GET|/echo/a b\xc3\xa9|a b\xc3\xa9|/x y=|0:|absent");
    assert_ask(f, "GET /echo/?q&q=2 HTTP/1.1", NULL, 200, "|/echo/|||0:|absent");
    assert_ask(f, "GET /echo/?&&q=a=b& HTTP/1.1", NULL, 200, "|/echo/||a=b|0:|absent");
    assert_ask(f, "GET /h%65llo HTTP/1.1", NULL, 200, "hello");
    static const char *const bad[] = {
        "/echo/a%2Fb",  "/echo/a%2fb",    "/echo/%00",     "/echo/%",         "/echo/%1",
        "/echo/%zz",    "/echo/%-1",      "/echo/%ff",     "/echo/%0a",       "/echo/%7F",
        "/echo/../x",   "/echo/%2e%2e/x", "/echo/.%2E",    "/echo/.",         "/echo/./x",
        "/echo//x",     "//echo/x",       "/echo/x/..",    "/echo/?q=%00",    "/echo/?q=%f",
        "/echo/?%zz=1", "/echo/?q=%C3",   "/%2e%2e/hello", "http://a/echo/x", "*",
    };
    for (guint i = 0; i < G_N_ELEMENTS(bad); i++) {
        g_autofree char *line = g_strdup_printf("GET %s HTTP/1.1", bad[i]);
        assert_ask(f, line, NULL, 400, "\"status\":400");
    }
    /* Three dots are a name. */
    assert_ask(f, "GET /echo/... HTTP/1.1", NULL, 200, "|...|");
    GString *line = g_string_new("GET /echo/?a");
    for (guint i = 0; i < 64; i++) {
        g_string_append(line, "&b=c");
    }
    g_string_append(line, " HTTP/1.1");
    assert_ask(f, line->str, NULL, 400, "too many");
    g_string_free(line, TRUE);
}

static void test_json(void **state)
{
    Fixture *f = *state;
    Client *client = ask(f, "GET /json HTTP/1.1", NULL);
    assert_int_equal(reply_status(client), 201);
    assert_string_equal(reply_body(client), "{\"a\":1}");
    assert_header(client, "ETag", "\"42\"");
    assert_header(client, "Cache-Control", "no-cache");
    assert_header(client, "Content-Type", "application/json");
    assert_header(client, "X-Content-Type-Options", "nosniff");
}

static void test_problems(void **state)
{
    Fixture *f = *state;
    static const int expected[LH_N_ERRORS] = {400, 404, 409, 503, 503, 504, 429, 410,
                                              507, 503, 401, 403, 500, 500, 503, 500};
    for (int code = 0; code < LH_N_ERRORS; code++) {
        g_autofree char *line = g_strdup_printf("GET /error/%d HTTP/1.1", code);
        assert_ask(f, line, NULL, expected[code], "\"detail\":\"because\"");
    }
    assert_ask(f, "GET /error/99 HTTP/1.1", NULL, 500, "\"detail\":\"because\"");
    Client *client = ask(f, "GET /error/field HTTP/1.1", NULL);
    assert_int_equal(reply_status(client), 422);
    assert_header(client, "Content-Type", "application/problem+json");
    assert_non_null(
        strstr(reply_body(client), "{\"type\":\"about:blank\",\"title\":\"Unprocessable"));
    assert_non_null(strstr(reply_body(client), "\"status\":422,\"detail\":\"owner \\\"x\\\": too "
                                               "long\",\"field\":\"spec.owner\"}"));
}

/* ---- who may ask ---- */

static int status_with(Fixture *f, const char *request)
{
    Client *client = client_new(f);
    client_send(client, request, strlen(request));
    wait_for(reply_complete(client) || client->eof);
    int status = reply_status(client);
    client_close(client);
    g_string_free(client->in, TRUE);
    f->n_clients--;
    return status;
}

static void test_host(void **state)
{
    Fixture *f = *state;
    const struct {
        const char *host; /* "@": our port */
        int status;
    } cases[] = {
        {"127.0.0.1:@", 200},
        {"localhost:@", 200},
        {"LOCALHOST:@", 200},
        {"[::1]:@", 200},
        {"127.8.9.1:@", 200},
        {"localhost", 403},
        {"127.0.0.1", 403},
        {"127.0.0.1:1", 403},
        {"evil.example:@", 403},
        {"127.0.0.1.evil:@", 403},
        {"10.0.0.1:@", 403},
        {"[::2]:@", 403},
        {"::1:@", 403},
        {"", 403},
        {":@", 403},
        {"localhost.:@", 403},
        {"user@localhost:@@", 403},
        {"localhost:+@", 403},
        {"[127.0.0.1:@", 403},
        {"localhost:@x", 403},
        {"0.0.0.0:@", 403},
    };
    g_autofree char *port = g_strdup_printf("%u", f->port);
    for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
        g_auto(GStrv) parts = g_strsplit(cases[i].host, "@", -1);
        g_autofree char *host = g_strjoinv(port, parts);
        g_autofree char *request = g_strdup_printf("GET /hello HTTP/1.1\r\nHost: %s\r\n\r\n", host);
        int status = status_with(f, request);
        if (status != cases[i].status) {
            fail_msg("Host \"%s\": %d, expected %d", host, status, cases[i].status);
        }
    }
    g_autofree char *twice = g_strdup_printf(
        "GET /hello HTTP/1.1\r\nHost: localhost:%u\r\nHost: localhost:%u\r\n\r\n", f->port,
        f->port);
    assert_int_equal(status_with(f, twice), 400);
    assert_int_equal(status_with(f, "GET /hello HTTP/1.1\r\n\r\n"), 400);
}

static void test_origin(void **state)
{
    Fixture *f = *state;
    const struct {
        const char *origin;
        int status;
    } cases[] = {
        {"http://127.0.0.1:%u", 200},
        {"http://localhost:%u", 403},
        {"https://127.0.0.1:%u", 403},
        {"http://127.0.0.1:1", 403},
        {"http://evil.example", 403},
        {"null", 403},
        {"", 403},
    };
    for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
        GString *line = g_string_new("GET /hello HTTP/1.1\nOrigin: ");
        g_string_append(line, cases[i].origin);
        g_autofree char *port = g_strdup_printf("%u", f->port);
        g_string_replace(line, "%u", port, 0);
        assert_ask(f, line->str, NULL, cases[i].status, NULL);
        g_string_free(line, TRUE);
    }
}

static void test_content_type(void **state)
{
    Fixture *f = *state;
    assert_ask(f, "PUT /echo/a HTTP/1.1", "{}", 415, "application/json");
    assert_ask(f, "POST /echo/a HTTP/1.1", NULL, 415, NULL);
    assert_ask(f, "POST /echo/a HTTP/1.1\nContent-Type: text/plain", "{}", 415, NULL);
    assert_ask(f, "POST /echo/a HTTP/1.1\nContent-Type: application/jsonp", "{}", 415, NULL);
    assert_ask(f, "DELETE /echo/a HTTP/1.1", "x", 415, NULL);
    assert_ask(f, "PUT /echo/a HTTP/1.1\nContent-Type: Application/JSON; charset=utf-8", "{}", 200,
               NULL);
    assert_ask(f, "PUT /echo/a HTTP/1.1\nContent-Type: application/json\nContent-Encoding: gzip",
               "{}", 415, NULL);
    /* A path that does not exist says so first. */
    assert_ask(f, "PUT /nothing HTTP/1.1", "{}", 404, NULL);
}

static void test_addresses(void **state)
{
    (void)state;
    static const struct {
        const char *listen;
        gboolean insecure;
        int code; /* -1: works */
    } cases[] = {
        {"127.0.0.1:0", FALSE, -1},
        {"localhost:0", FALSE, -1},
        {"0.0.0.0:0", FALSE, LH_ERR_INVALID},
        {"0.0.0.0:0", TRUE, -1},
        {"[::]:0", FALSE, LH_ERR_INVALID},
        {"::1:0", FALSE, LH_ERR_INVALID},
        {"example.com:1", FALSE, LH_ERR_INVALID},
        {"127.0.0.1", FALSE, LH_ERR_INVALID},
        {"127.0.0.1:65536", FALSE, LH_ERR_INVALID},
        {"127.0.0.1:x", FALSE, LH_ERR_INVALID},
        {NULL, FALSE, LH_ERR_INVALID},
        {"203.0.113.1:1", TRUE, LH_ERR_IO},
    };
    Clock clock = {.env.v = &clock_vtable};
    for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
        g_autoptr(GError) error = NULL;
        LhHttpOptions options = {.listen = cases[i].listen, .insecure = cases[i].insecure};
        LhHttpServer *server = lh_http_server_new(&clock.env, NULL, &options, &error);
        if (cases[i].code < 0) {
            assert_null(error);
            assert_false(g_str_has_suffix(lh_http_server_address(server), ":0"));
        } else {
            assert_null(server);
            assert_true(g_error_matches(error, LH_ERROR, cases[i].code));
            assert_true(g_str_has_prefix(error->message, "listen "));
        }
        lh_http_server_free(server);
    }
}

static void test_not_loopback(void **state)
{
    const LhHttpOptions options = {.listen = "0.0.0.0:0", .insecure = TRUE};
    setup_with(state, &options);
    Fixture *f = *state;
    assert_int_equal(status_with(f, "GET /hello HTTP/1.1\r\nHost: lh.example\r\n\r\n"), 200);
    assert_int_equal(status_with(f, "GET /hello HTTP/1.1\r\nHost: lh.example\r\n"
                                    "Origin: http://lh.example\r\n\r\n"),
                     200);
    assert_int_equal(status_with(f, "GET /hello HTTP/1.1\r\nHost: lh.example\r\n"
                                    "Origin: http://evil.example\r\n\r\n"),
                     403);
    teardown(state);
}

/* ---- limits ---- */

static void test_body_limit(void **state)
{
    Fixture *f = *state;
    g_autofree char *fits = g_strnfill(64 * 1024, 'x');
    g_autofree char *over = g_strnfill(64 * 1024 + 1, 'x');
    assert_ask(f, "PUT /echo/a HTTP/1.1\nContent-Type: application/json", fits, 200,
               "65536:(long)");
    assert_ask(f, "PUT /echo/a HTTP/1.1\nContent-Type: application/json", over, 413, "too large");

    /* Without a length, and in pieces. */
    GString *chunks = g_string_new(NULL);
    for (guint i = 0; i < 65; i++) {
        g_string_append_printf(chunks, "400\r\n%.1024s\r\n", over);
    }
    g_string_append(chunks, "0\r\n\r\n");
    Client *client = client_new(f);
    client_ask(f, client,
               "PUT /echo/a HTTP/1.1\nContent-Type: application/json\nTransfer-Encoding: chunked",
               NULL);
    client_send(client, chunks->str, chunks->len);
    wait_for(reply_complete(client));
    assert_int_equal(reply_status(client), 413);
    g_string_free(chunks, TRUE);

    /* Announced: refused before it is sent. */
    client = client_new(f);
    client_ask(f, client,
               "PUT /echo/a HTTP/1.1\nContent-Type: application/json\nContent-Length: 70000\n"
               "Expect: 100-continue",
               NULL);
    wait_for(reply_complete(client));
    assert_int_equal(reply_status(client), 413);
    client = client_new(f);
    client_ask(f, client,
               "PUT /echo/a HTTP/1.1\nContent-Type: application/json\nContent-Length: 99999999999",
               NULL);
    wait_for(reply_complete(client) && client->eof);
    assert_int_equal(reply_status(client), 413);
    client = client_new(f);
    client_ask(f, client,
               "PUT /echo/a HTTP/1.1\nContent-Type: application/json\n"
               "Content-Length: 99999999999999999999999",
               NULL);
    wait_for(client->eof);
    assert_true(reply_status(client) == 413 || reply_status(client) == 400);
}

static void test_endless_body(void **state)
{
    Fixture *f = *state;
    Client *client = client_new(f);
    client_ask(f, client, "PUT /nothing HTTP/1.1\nTransfer-Encoding: chunked", NULL);
    g_autofree char *chunk = g_strnfill(65536, 'x');
    for (guint i = 0; i < 400 && !client->eof; i++) {
        client_send(client, "10000\r\n", 7);
        client_send(client, chunk, 65536);
        client_send(client, "\r\n", 2);
        settle();
    }
    wait_for(client->eof);
}

static void test_header_limit(void **state)
{
    Fixture *f = *state;
    g_autofree char *large = g_strnfill(20 * 1024, 'h');
    g_autofree char *huge = g_strnfill(200 * 1024, 'h');
    g_autofree char *fits = g_strdup_printf("GET /hello HTTP/1.1\nX-A: %s", large);
    assert_ask(f, fits, NULL, 200, NULL);
    g_autofree char *header = g_strdup_printf("GET /hello HTTP/1.1\nX-A: %s", huge);
    Client *client = client_new(f);
    client_ask(f, client, header, NULL);
    wait_for(client->eof);
    assert_int_equal(reply_status(client), 431);
    g_autofree char *line = g_strdup_printf("GET /echo/?q=%s HTTP/1.1", huge);
    client = client_new(f);
    client_ask(f, client, line, NULL);
    wait_for(client->eof);
    assert_true(reply_status(client) == 414 || reply_status(client) == 431);
    assert_ask(f, "GET /hello HTTP/1.1", NULL, 200, NULL);
}

static void test_slow_client(void **state)
{
    Fixture *f = *state;
    Client *silent = client_new(f), *trickle = client_new(f), *body = client_new(f);
    client_send(trickle, "GET /hello HTTP/1.1\r\nX-A: ", 26);
    client_ask(f, body, "PUT /echo/a HTTP/1.1\nContent-Type: application/json\nContent-Length: 9",
               NULL);
    for (guint i = 0; i < 29; i++) {
        settle();
        clock_advance(&f->clock, 1000);
        client_send(trickle, "x", 1);
        if (i < 5) {
            client_send(body, "x", 1);
        }
    }
    settle();
    assert_false(silent->eof || trickle->eof || body->eof);
    /* An honest one that came later is not touched. */
    Client *late = client_new(f);
    settle();
    clock_advance(&f->clock, 1500);
    wait_for(silent->eof && trickle->eof && body->eof);
    assert_int_equal(silent->in->len, 0);
    assert_int_equal(reply_status(trickle), 408);
    assert_int_equal(reply_status(body), 408);
    client_ask(f, late, "GET /hello HTTP/1.1", NULL);
    wait_for(reply_complete(late));
    /* Time counts anew after each reply. */
    clock_advance(&f->clock, 29000);
    settle();
    assert_false(late->eof);
    clock_advance(&f->clock, 1000);
    wait_for(late->eof);
}

static void test_slow_handler(void **state)
{
    Fixture *f = *state;
    Client *client = client_new(f);
    client_ask(f, client, "GET /late HTTP/1.1", NULL);
    wait_for(f->held != NULL);
    clock_advance(&f->clock, 600000);
    settle();
    assert_false(client->eof);
    lh_http_reply(f->held, 200, NULL, "done", -1);
    wait_for(reply_complete(client));
    assert_int_equal(f->n_gone, 0);
}

static void test_connection_limits(void **state)
{
    Fixture *f = *state;
    Client *clients[4];
    for (guint i = 0; i < 4; i++) {
        clients[i] = client_new(f);
        settle();
    }
    client_ask(f, clients[0], "GET /hello HTTP/1.1", NULL);
    wait_for(reply_complete(clients[0]));
    wait_for(clients[3]->eof);
    assert_false(clients[2]->eof);
    client_close(clients[1]);
    settle();
    assert_ask(f, "GET /hello HTTP/1.1", NULL, 200, NULL);

    /* Six in all: the next one, from whatever address, waits until there is room. */
    Client *others[5];
    for (guint i = 0; i < 5; i++) {
        others[i] = client_from(f, i < 3 ? "127.0.0.2" : "127.0.0.3");
        client_ask(f, others[i], "GET /hello HTTP/1.1", NULL);
        settle();
    }
    wait_for(reply_complete(others[3]));
    settle();
    assert_int_equal(others[4]->in->len, 0);
    assert_false(others[4]->eof);
    client_close(others[0]);
    wait_for(reply_complete(others[4]));
}

/* ---- late replies, and clients that do not wait for them ---- */

static void test_late_reply(void **state)
{
    Fixture *f = *state;
    Client *client = client_new(f);
    client_ask(f, client, "GET /late HTTP/1.1", NULL);
    wait_for(f->held != NULL);
    settle();
    assert_int_equal(client->in->len, 0);
    assert_ask(f, "GET /hello HTTP/1.1", NULL, 200, NULL);
    lh_http_reply_json(f->held, 200, g_strdup("[]"), NULL);
    wait_for(reply_complete(client));
    assert_string_equal(reply_body(client), "[]");
    assert_int_equal(f->n_gone, 0);
}

static void test_client_leaves(void **state)
{
    Fixture *f = *state;
    Client *client = client_new(f);
    client_ask(f, client, "GET /late HTTP/1.1\nX-Mark: kept", NULL);
    wait_for(f->held != NULL);
    client_close(client);
    wait_for(f->n_gone == 1);
    settle();
    /* What the handler knows stays readable, and it still owes the reply. */
    assert_string_equal(lh_http_header(f->held, "x-mark"), "kept");
    assert_string_equal(lh_http_path(f->held), "/late");
    assert_true(g_str_has_prefix(lh_http_peer(f->held), "127.0.0.1:"));
    lh_http_reply(g_steal_pointer(&f->held), 200, NULL, "too late", -1);
    assert_int_equal(f->n_gone, 1);

    client = client_new(f);
    client_ask(f, client, "GET /cancel HTTP/1.1", NULL);
    wait_for(f->held != NULL);
    struct linger hard = {.l_onoff = 1};
    setsockopt(client->fd, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
    client_close(client);
    wait_for(f->n_gone == 2);
    assert_null(f->held);

    /* Gone before the handler even runs. */
    client = client_new(f);
    client_ask(f, client, "GET /late HTTP/1.1", NULL);
    client_close(client);
    wait_for(f->n_gone == 3);
    assert_null(lh_http_stream_open(f->held, on_closed, f));
    settle();
    assert_int_equal(f->n_closed, 0);
    assert_ask(f, "GET /hello HTTP/1.1", NULL, 200, NULL);
}

static void test_free_with_open_requests(void **state)
{
    Fixture *f = *state;
    Client *late = client_new(f), *events = client_new(f), *half = client_new(f);
    client_ask(f, late, "GET /late HTTP/1.1", NULL);
    client_ask(f, events, "GET /events HTTP/1.1", NULL);
    client_ask(f, half, "PUT /echo/a HTTP/1.1\nContent-Type: application/json\nContent-Length: 9",
               NULL);
    wait_for(f->held != NULL && f->stream != NULL);
    settle();
    lh_http_server_free(g_steal_pointer(&f->server));
    assert_int_equal(f->n_gone, 1);
    assert_int_equal(f->n_closed, 1);
    lh_http_reply(f->held, 200, NULL, "nobody", -1);
    wait_for(late->eof && events->eof && half->eof);
}

static void test_pipeline(void **state)
{
    Fixture *f = *state;
    Client *client = client_new(f);
    GString *text = g_string_new(NULL);
    static const char *const paths[] = {"/echo/1", "/late", "/echo/2", "/nothing", "/echo/3"};
    for (guint i = 0; i < G_N_ELEMENTS(paths); i++) {
        g_string_append_printf(text, "GET %s HTTP/1.1\r\nHost: 127.0.0.1:%u\r\n\r\n", paths[i],
                               f->port);
    }
    client_send(client, text->str, text->len);
    g_string_free(text, TRUE);
    wait_for(f->held != NULL);
    settle();
    /* The order is kept: nothing after the late one. */
    assert_non_null(strstr(client->in->str, "/echo/1"));
    assert_null(strstr(client->in->str, "/echo/2"));
    lh_http_reply(f->held, 200, NULL, "-late-", -1);
    wait_for(strstr(client->in->str, "/echo/3") != NULL);
    const char *late = strstr(client->in->str, "-late-");
    assert_non_null(late);
    assert_true(late < strstr(client->in->str, "/echo/2"));
    assert_non_null(strstr(client->in->str, "404"));
    assert_int_equal(f->n_held, 1);
}

/* ---- files ---- */

static void assert_range(Fixture *f, const char *headers, int status, const char *body,
                         const char *range)
{
    g_autofree char *request = g_strdup_printf("GET /file/x HTTP/1.1\n%s", headers);
    Client *client = ask(f, request, NULL);
    assert_int_equal(reply_status(client), status);
    if (body != NULL) {
        assert_string_equal(reply_body(client), body);
        assert_header(client, "Content-Type", "text/x-test");
    }
    assert_header(client, "Content-Range", range);
    client_close(client);
    g_string_free(client->in, TRUE);
    f->n_clients--;
}

static void test_files(void **state)
{
    Fixture *f = *state;
    assert_range(f, "X-A: b", 200, "0123456789", NULL);
    assert_range(f, "Range: bytes=2-4", 206, "234", "bytes 2-4/10");
    assert_range(f, "Range: bytes=7-", 206, "789", "bytes 7-9/10");
    assert_range(f, "Range: bytes=-3", 206, "789", "bytes 7-9/10");
    assert_range(f, "Range: bytes=-30", 206, "0123456789", "bytes 0-9/10");
    assert_range(f, "Range: bytes=9-100", 206, "9", "bytes 9-9/10");
    assert_range(f, "Range: bytes=10-", 416, NULL, "bytes */10");
    assert_range(f, "Range: bytes=-0", 416, NULL, "bytes */10");
    assert_range(f, "Range: bytes=4-2", 200, "0123456789", NULL);
    assert_range(f, "Range: bytes=0-1,3-4", 200, "0123456789", NULL);
    assert_range(f, "Range: lines=0-1", 200, "0123456789", NULL);
    assert_range(f, "Range: bytes=-", 200, "0123456789", NULL);
    assert_range(f, "Range: bytes=99999999999999999999-", 200, "0123456789", NULL);
    assert_range(f, "Range: bytes=2-4\nIf-Range: \"other\"", 200, "0123456789", NULL);
    assert_ask(f, "GET /file/dir HTTP/1.1", NULL, 404, "not a regular file");

    Client *client = ask(f, "GET /file/x HTTP/1.1", NULL);
    g_autofree char *etag = reply_header(client, "ETag");
    g_autofree char *headers = g_strdup_printf("Range: bytes=2-4\nIf-Range: %s", etag);
    assert_range(f, headers, 206, "234", "bytes 2-4/10");
    assert_header(client, "Accept-Ranges", "bytes");

    client = client_new(f);
    client_ask(f, client, "HEAD /file/x HTTP/1.1\nRange: bytes=2-4", NULL);
    wait_for(reply_body(client) != NULL);
    settle();
    assert_int_equal(reply_status(client), 206);
    assert_header(client, "Content-Length", "3");
    assert_string_equal(reply_body(client), "");

    assert_true(g_file_set_contents(f->file, "", 0, NULL));
    assert_range(f, "X-A: b", 200, "", NULL);
    assert_range(f, "Range: bytes=0-", 416, NULL, "bytes */0");
}

static void test_large_file(void **state)
{
    Fixture *f = *state;
    gsize size = 8 * 1024 * 1024 + 17;
    g_autofree char *content = g_malloc(size);
    for (gsize i = 0; i < size; i++) {
        content[i] = (char)(i * 31 + i / 251);
    }
    assert_true(g_file_set_contents(f->file, content, (gssize)size, NULL));
    Client *client = ask(f, "GET /file/x HTTP/1.1\nRange: bytes=5-", NULL);
    assert_int_equal(reply_status(client), 206);
    assert_memory_equal(reply_body(client), content + 5, size - 5);
}

/* ---- event streams ---- */

static void test_stream(void **state)
{
    Fixture *f = *state;
    Client *client = client_new(f);
    client_ask(f, client, "GET /events HTTP/1.1", NULL);
    wait_for(f->stream != NULL && strstr(client->in->str, "retry: 1000\n\n") != NULL);
    assert_int_equal(reply_status(client), 200);
    assert_header(client, "Content-Type", "text/event-stream");
    assert_header(client, "Cache-Control", "no-store");
    lh_http_stream_send(f->stream, 7, "PUT", "{\"a\":1}");
    wait_for(strstr(client->in->str, "event: PUT\nid: 7\ndata: {\"a\":1}\n\n") != NULL);
    lh_http_stream_send(f->stream, -1, NULL, "one\ntwo\r\nthree");
    wait_for(strstr(client->in->str, "\ndata: one\ndata: two\ndata: three\n\n") != NULL);

    /* A sign of life every 15 s. */
    g_string_truncate(client->in, 0);
    clock_advance(&f->clock, 14999);
    settle();
    assert_int_equal(client->in->len, 0);
    clock_advance(&f->clock, 1);
    wait_for(strstr(client->in->str, ":\n\n") != NULL);

    lh_http_stream_send(f->stream, 8, "DELETE", "last");
    lh_http_stream_close(f->stream);
    wait_for(g_str_has_suffix(client->in->str, "data: last\n\n\r\n0\r\n\r\n"));
    assert_int_equal(f->n_closed, 0);
    /* The connection is good for another request. */
    g_string_truncate(client->in, 0);
    client_ask(f, client, "GET /hello HTTP/1.1", NULL);
    wait_for(reply_complete(client));
    lh_http_stream_close(NULL);
}

static void test_stream_client_leaves(void **state)
{
    Fixture *f = *state;
    Client *client = client_new(f);
    client_ask(f, client, "GET /events HTTP/1.1", NULL);
    wait_for(f->stream != NULL && client->in->len > 0);
    client_close(client);
    wait_for(f->n_closed == 1);

    /* While much is under way. */
    client = client_new(f);
    client_ask(f, client, "GET /events HTTP/1.1", NULL);
    wait_for(f->stream != NULL && client->in->len > 0);
    g_autofree char *large = g_strnfill(1024 * 1024, 'x');
    lh_http_stream_send(f->stream, 1, "PUT", large);
    client_close(client);
    wait_for(f->n_closed == 2);
}

/* A client that shuts down its sending side still gets what is answered at once, but nobody waits
 * for it. */
static void test_half_closed(void **state)
{
    Fixture *f = *state;
    Client *hello = client_new(f), *events = client_new(f);
    client_ask(f, hello, "GET /hello HTTP/1.1", NULL);
    shutdown(hello->fd, SHUT_WR);
    wait_for(reply_complete(hello));
    assert_int_equal(reply_status(hello), 200);
    Client *partial = client_new(f);
    client_send(partial, "GET /hel", 8);
    shutdown(partial->fd, SHUT_WR);
    settle();
    clock_advance(&f->clock, 1000);
    wait_for(hello->eof && partial->eof);
    client_ask(f, events, "GET /events HTTP/1.1", NULL);
    shutdown(events->fd, SHUT_WR);
    wait_for(f->n_closed == 1);
}

static void test_stream_reader_sleeps(void **state)
{
    Fixture *f = *state;
    Client *client = client_new(f);
    client_ask(f, client, "GET /events HTTP/1.1", NULL);
    wait_for(f->stream != NULL && client->in->len > 0);
    g_clear_handle_id(&client->source, g_source_remove);
    g_autofree char *large = g_strnfill(100 * 1024, 'x');
    guint sent = 0;
    for (; f->stream != NULL && sent < 1000; sent++) {
        lh_http_stream_send(f->stream, sent, "PUT", large);
        assert_true(f->stream != NULL); /* closed comes from the loop, not from send */
        settle();
    }
    /* More than the buffer, less than the buffer and what two kernels may hold. */
    assert_in_range(sent, 40, 400);
    assert_int_equal(f->n_closed, 1);
    assert_ask(f, "GET /hello HTTP/1.1", NULL, 200, NULL);
    client_read(client);
    wait_for(client->eof);
}

static void test_stream_burst(void **state)
{
    Fixture *f = *state;
    Client *client = client_new(f);
    client_ask(f, client, "GET /events HTTP/1.1", NULL);
    wait_for(f->stream != NULL);
    for (guint i = 0; i < 20000; i++) {
        lh_http_stream_send(f->stream, i, "PUT", "0123456789012345678901234567890123456789");
    }
    wait_for(strstr(client->in->str, "id: 19999\n") != NULL);
    assert_int_equal(f->n_closed, 0);
}

/* Nothing to do means no turns of the loop. */
static void test_idle(void **state)
{
    Fixture *f = *state;
    Client *late = client_new(f), *events = client_new(f), *idle = client_new(f);
    client_ask(f, late, "GET /late HTTP/1.1", NULL);
    client_ask(f, events, "GET /events HTTP/1.1", NULL);
    client_ask(f, idle, "GET /hello HTTP/1.1", NULL);
    wait_for(f->held != NULL && f->stream != NULL && reply_complete(idle));
    settle();
    gboolean over = FALSE;
    guint timer = g_timeout_add(300, on_hopeless, &over), turns = 0;
    while (!over) {
        g_main_context_iteration(NULL, TRUE);
        turns++;
    }
    g_source_remove(timer);
    assert_in_range(turns, 1, 5);
    lh_http_reply(f->held, 200, NULL, "", 0);
}

#define test_case(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        test_case(test_routes),
        test_case(test_head),
        test_case(test_decoding),
        test_case(test_json),
        test_case(test_problems),
        test_case(test_host),
        test_case(test_origin),
        test_case(test_content_type),
        cmocka_unit_test(test_addresses),
        cmocka_unit_test(test_not_loopback),
        test_case(test_body_limit),
        test_case(test_endless_body),
        test_case(test_header_limit),
        test_case(test_slow_client),
        test_case(test_slow_handler),
        cmocka_unit_test_setup_teardown(test_connection_limits, setup_small, teardown),
        test_case(test_late_reply),
        test_case(test_client_leaves),
        test_case(test_free_with_open_requests),
        test_case(test_pipeline),
        test_case(test_files),
        test_case(test_large_file),
        test_case(test_stream),
        test_case(test_stream_client_leaves),
        test_case(test_half_closed),
        test_case(test_stream_reader_sleeps),
        test_case(test_stream_burst),
        test_case(test_idle),
    };
    return cmocka_run_group_tests_name("http/server", tests, NULL, NULL);
}
