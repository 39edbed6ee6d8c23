/*
 * For the tests of the server: one on 127.0.0.1 with a clock that only the test moves, and clients on
 * plain sockets, all in one loop. Nothing sleeps.
 */
#pragma once

#include "base/errors.h"
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

static inline gint64 clock_now(LhEnv *env)
{
    return ((Clock *)env)->now_ms;
}

static inline LhTimer *clock_timer_at(LhEnv *env, gint64 due_ms, LhTimerFunc func, gpointer data)
{
    LhTimer *timer = g_new0(LhTimer, 1);
    *timer = (LhTimer){due_ms, func, data};
    ((Clock *)env)->timers = g_list_append(((Clock *)env)->timers, timer);
    return timer;
}

static inline void clock_timer_cancel(LhEnv *env, LhTimer *timer)
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

static inline void clock_advance(Clock *clock, gint64 ms)
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

static inline void handle_hello(LhHttpRequest *request, gpointer data)
{
    (void)data;
    lh_http_reply(request, 200, "text/plain", "hello", -1);
}

/* Everything that the handler can see, as text. */
static inline void handle_echo(LhHttpRequest *request, gpointer data)
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

static inline void on_gone(gpointer data)
{
    Fixture *f = data;
    f->n_gone++;
}

static inline void handle_late(LhHttpRequest *request, gpointer data)
{
    Fixture *f = data;
    f->held = request;
    f->n_held++;
    lh_http_set_gone(request, on_gone, f);
}

static inline void on_gone_replies(gpointer data)
{
    Fixture *f = data;
    f->n_gone++;
    lh_http_reply(g_steal_pointer(&f->held), 200, NULL, NULL, 0);
}

static inline void handle_cancel(LhHttpRequest *request, gpointer data)
{
    Fixture *f = data;
    f->held = request;
    lh_http_set_gone(request, on_gone_replies, f);
}

static inline void handle_json(LhHttpRequest *request, gpointer data)
{
    (void)data;
    lh_http_set_header(request, "Cache-Control", "no-cache");
    lh_http_reply_json(request, 201, g_strdup("{\"a\":1}"), "\"42\"");
}

static inline void handle_error(LhHttpRequest *request, gpointer data)
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

static inline void handle_file(LhHttpRequest *request, gpointer data)
{
    Fixture *f = data;
    gboolean directory = strcmp(lh_http_rest(request), "dir") == 0;
    lh_http_reply_fd(request, open(directory ? f->dir : f->file, O_RDONLY | O_CLOEXEC),
                     "text/x-test");
}

static inline void on_closed(gpointer data)
{
    Fixture *f = data;
    f->n_closed++;
    f->stream = NULL;
}

static inline void handle_events(LhHttpRequest *request, gpointer data)
{
    Fixture *f = data;
    f->stream = lh_http_stream_open(request, on_closed, f);
}

static inline int setup_with(void **state, const LhHttpOptions *options)
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

static inline int setup(void **state)
{
    const LhHttpOptions options = {.listen = "127.0.0.1:0", .max_body = 64 * 1024};
    return setup_with(state, &options);
}

static inline int setup_small(void **state)
{
    const LhHttpOptions options = {.listen = "127.0.0.1:0", .max_connections = 6, .max_per_ip = 3};
    return setup_with(state, &options);
}

static inline int teardown(void **state)
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

static inline gboolean on_readable(int fd, GIOCondition condition, gpointer data)
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

static inline void client_read(Client *client)
{
    client->source = g_unix_fd_add(client->fd, G_IO_IN | G_IO_HUP, on_readable, client);
}

static inline Client *client_from(Fixture *f, const char *from)
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

static inline Client *client_new(Fixture *f)
{
    return client_from(f, "127.0.0.1");
}

static inline void client_close(Client *client)
{
    g_clear_handle_id(&client->source, g_source_remove);
    close(client->fd);
    client->fd = -1;
}

static inline gboolean on_hopeless(gpointer data)
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
static inline void settle(void)
{
    while (g_main_context_iteration(NULL, FALSE)) {
    }
}

static inline void client_send(Client *client, const char *data, gsize len)
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
static inline void client_ask(Fixture *f, Client *client, const char *request, const char *body)
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

static inline int reply_status(const Client *client)
{
    return g_str_has_prefix(client->in->str, "HTTP/1.1 ") ? atoi(client->in->str + 9) : 0;
}

/* The value of a header in the first reply; g_free. */
static inline char *reply_header(const Client *client, const char *name)
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

static inline gboolean reply_complete(const Client *client)
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
static inline Client *ask(Fixture *f, const char *request, const char *body)
{
    Client *client = client_new(f);
    client_ask(f, client, request, body);
    wait_for(reply_complete(client) || client->eof);
    return client;
}

static inline void assert_ask(Fixture *f, const char *request, const char *body, int status,
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

static inline void assert_header(const Client *client, const char *name, const char *expected)
{
    g_autofree char *value = reply_header(client, name);
    if (expected == NULL) {
        assert_null(value);
    } else {
        assert_non_null(value);
        assert_string_equal(value, expected);
    }
}

static inline int status_with(Fixture *f, const char *request)
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

#define test_case(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
