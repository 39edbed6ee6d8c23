/*
 * Whatever a client may send, to the real server over loopback: one connection for each input, its bytes
 * as they are, but that ":8083" becomes the server's port (Host is checked). Handlers see only what the
 * header promises; the first answer is well-formed HTTP; after the client has closed its side and the
 * deadlines have passed in virtual time, every request is answered or gone and the connection closed. Then
 * once more, from a client that never closes anything: the deadlines alone do it.
 */
#include "base/json.h"
#include "http/api_internal.h"
#include "tests/fakes/env_sim.h"
#include "tests/fuzz/fuzz.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define MAX_BODY    4096
#define TURNS       10000 /* of the loop, for one input: far more than any needs */
#define MAX_BYTES   (64 * 1024)
#define DEADLINE_MS 31000

typedef struct {
    SimWorld *world;
    GMainContext *context;
    LhHttpServer *server;
    guint16 port;
    GPtrArray *held; /* LhHttpRequest whose answer is due later */
    LhHttpStream *stream;
    guint begun, ended; /* late requests and streams */
} Site;

static Site site;

/* ---- handlers ---- */

/* No page of another origin, nor a name that was re-bound to us, gets as far as a handler. */
static void check_origin(LhHttpRequest *request)
{
    const char *host = lh_http_header(request, "Host");
    const char *origin = lh_http_header(request, "Origin");
    const char *type = lh_http_header(request, "Content-Type");
    g_autofree char *port = g_strdup_printf(":%u", site.port);

    FUZZ_CHECK(host != NULL && g_str_has_suffix(host, port), "Host: %s", host);
    FUZZ_CHECK(g_ascii_strncasecmp(host, "localhost:", 10) == 0 || *host == '[' ||
                   g_str_has_prefix(host, "127."),
               "Host: %s", host);
    if (origin != NULL)
        FUZZ_CHECK(g_ascii_strncasecmp(origin, "http://", 7) == 0 &&
                       g_ascii_strcasecmp(origin + 7, host) == 0,
                   "Origin: %s", origin);
    if (strcmp(lh_http_method(request), "GET") != 0 && strcmp(lh_http_method(request), "HEAD") != 0)
        FUZZ_CHECK(type != NULL && g_ascii_strncasecmp(type, "application/json", 16) == 0,
                   "Content-Type: %s", type);
}

static void check_request(LhHttpRequest *request)
{
    const char *path = lh_http_path(request);
    gsize len = 0;
    const char *body = lh_http_body(request, &len);

    FUZZ_CHECK(*path == '/' && g_utf8_validate(path, -1, NULL), "%s", path);
    FUZZ_CHECK(strstr(path, "/../") == NULL && strstr(path, "/./") == NULL, "%s", path);
    FUZZ_CHECK(g_str_has_suffix(path, lh_http_rest(request)), "%s", lh_http_rest(request));
    FUZZ_CHECK(len <= MAX_BODY && body[len] == '\0', "%" G_GSIZE_FORMAT, len);
    FUZZ_CHECK(g_str_has_prefix(lh_http_peer(request), "127.0.0.1:"), "%s", lh_http_peer(request));
    FUZZ_CHECK(lh_http_query(request, "absent-for-sure") == NULL, "query");
    check_origin(request);
}

static void handle_echo(LhHttpRequest *request, gpointer data)
{
    check_request(request);
    lh_http_set_header(request, "Cache-Control", "no-cache");
    lh_http_reply(request, 200, "text/plain", lh_http_path(request), -1);
}

/* What is stored of a body is an object that is known. */
static void handle_put(LhHttpRequest *request, gpointer data)
{
    g_auto(GStrv) parts = g_strsplit(lh_http_rest(request), "/", 2);
    LhKind kind = parts[0] == NULL ? LH_N_KINDS : lh_kind_lookup(parts[0]);
    gsize len = 0;
    const char *body = lh_http_body(request, &len), *name;
    g_autoptr(GError) error = NULL;
    g_autofree char *value = NULL;

    check_request(request);
    if (!lh_kind_is_desired(kind)) {
        lh_http_reply_problem(request, 404, NULL, "no such kind: %s", lh_http_rest(request));
        return;
    }
    name = parts[1] == NULL ? "" : parts[1];
    value = lh_api_desired_value(kind, name, body, len, &error);
    if (value == NULL) {
        lh_http_reply_error(request, error);
        return;
    }
    g_autoptr(LhObject) object = lh_object_parse(kind, name, value, strlen(value), 1, 1, 0);
    FUZZ_CHECK(lh_object_known(object), "%s: %s", value, lh_object_error(object));
    lh_http_reply_json(request, 200, g_steal_pointer(&value), "\"1\"");
}

static void on_gone(gpointer data)
{
}

static void handle_late(LhHttpRequest *request, gpointer data)
{
    check_request(request);
    site.begun++;
    lh_http_set_gone(request, on_gone, NULL);
    g_ptr_array_add(site.held, request);
}

static void on_stream_closed(gpointer data)
{
    site.ended++;
    site.stream = NULL;
}

static void handle_stream(LhHttpRequest *request, gpointer data)
{
    LhHttpStream *stream;

    check_request(request);
    if (site.stream != NULL) {
        lh_http_reply_problem(request, 503, NULL, "one stream only");
        return;
    }
    stream = lh_http_stream_open(request, on_stream_closed, NULL);
    if (stream != NULL) {
        site.begun++;
        site.stream = stream;
        lh_http_stream_send(stream, 7, "change", "{}\nsecond");
    }
}

static void open_site(void)
{
    const LhHttpOptions options = {.listen = "127.0.0.1:0", .max_body = MAX_BODY};
    g_autoptr(GError) error = NULL;

    site.world = sim_world_new(1);
    site.context = g_main_context_new();
    site.held = g_ptr_array_new();
    site.server = lh_http_server_new(sim_machine_new(site.world, "server"), site.context, &options,
                                     &error);
    FUZZ_CHECK(site.server != NULL, "%s", error->message);
    site.port = (guint16)g_ascii_strtoull(strrchr(lh_http_server_address(site.server), ':') + 1,
                                          NULL, 10);
    lh_http_server_route(site.server, "GET", "/echo", LH_ROLE_VIEWER, handle_echo, NULL);
    lh_http_server_route(site.server, "GET", "/v1/*", LH_ROLE_VIEWER, handle_echo, NULL);
    lh_http_server_route(site.server, "PUT", "/v1/*", LH_ROLE_OPERATOR, handle_put, NULL);
    lh_http_server_route(site.server, "POST", "/late", LH_ROLE_OPERATOR, handle_late, NULL);
    lh_http_server_route(site.server, "GET", "/late", LH_ROLE_VIEWER, handle_late, NULL);
    lh_http_server_route(site.server, "GET", "/stream", LH_ROLE_VIEWER, handle_stream, NULL);
}

/* ---- the client ---- */

static int dial(void)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(site.port)};
    /* Closing resets the connection: else thousands of them would wait in the kernel for minutes. */
    struct linger linger = {.l_onoff = 1};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    FUZZ_CHECK(fd >= 0 &&
                   (connect(fd, (struct sockaddr *)&to, sizeof to) == 0 || errno == EINPROGRESS),
               "connect: %s", g_strerror(errno));
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger);
    return fd;
}

/* Sends and receives what is possible. FALSE: nothing was. */
static gboolean exchange(int fd, const GString *out, gsize *sent, GString *in, gboolean *ended)
{
    char buffer[4096];
    gboolean moved = FALSE;

    if (*sent < out->len) {
        ssize_t n = send(fd, out->str + *sent, out->len - *sent, MSG_NOSIGNAL);
        if (n > 0)
            *sent += (gsize)n;
        else if (errno != EAGAIN && errno != ENOTCONN)
            *sent = out->len; /* it does not want the rest */
        moved = n > 0;
    }
    ssize_t n = recv(fd, buffer, sizeof buffer, 0);
    if (n > 0)
        g_string_append_len(in, buffer, n);
    else if (n == 0 || (errno != EAGAIN && errno != ENOTCONN))
        *ended = TRUE;
    return moved || n > 0 || *ended;
}

static void answer_held(void)
{
    while (site.held->len > 0) {
        LhHttpRequest *request = g_ptr_array_steal_index(site.held, 0);
        site.ended++;
        lh_http_reply(request, 200, "text/plain", "late", -1);
    }
}

static void close_stream(void)
{
    lh_http_stream_close(g_steal_pointer(&site.stream));
    site.ended = site.begun;
}

/* What came behind another request, and that no deadline ends while the client stays. FALSE: nothing. */
static gboolean end_pipelined(guint pauses)
{
    if (site.held->len > 0)
        answer_held();
    else if (site.stream != NULL && pauses > 2)
        close_stream();
    else
        return FALSE;
    return TRUE;
}

/* Nothing moves any more: what happens next? */
static void go_on(int fd, guint pause, gboolean patient)
{
    if (pause == 0)
        answer_held();
    else if (pause == 1 && patient)
        sim_world_run_until(site.world, sim_world_now_ms(site.world) + DEADLINE_MS);
    else if (pause == 1)
        shutdown(fd, SHUT_WR);
    else if (pause == 2)
        close_stream();
    else
        sim_world_run_until(site.world, sim_world_now_ms(site.world) + DEADLINE_MS);
    FUZZ_CHECK(pause < 6, "the connection is never closed");
}

static GString *talk(const GString *out, gboolean patient)
{
    GString *in = g_string_new(NULL);
    gboolean ended = FALSE;
    gsize sent = 0;
    guint idle = 0, pauses = 0;
    int fd = dial();

    for (guint turn = 0; !ended; turn++) {
        gboolean moved = g_main_context_iteration(site.context, FALSE);
        moved |= exchange(fd, out, &sent, in, &ended);
        idle = moved ? 0 : idle + 1;
        if (idle >= 3) {
            if (!patient || !end_pipelined(pauses))
                go_on(fd, pauses++, patient);
            idle = 0;
        }
        FUZZ_CHECK(turn < TURNS, "no end after %u turns, %" G_GSIZE_FORMAT " bytes", turn, in->len);
    }
    close(fd);
    answer_held();
    for (guint i = 0; i < 3; i++)
        while (g_main_context_iteration(site.context, FALSE))
            continue;
    answer_held();
    if (site.stream != NULL) { /* its end is seen when something is written, or at a deadline */
        lh_http_stream_close(g_steal_pointer(&site.stream));
        site.ended++;
    }
    return in;
}

/* ---- what comes back ---- */

static void check_answer(const GString *in, gboolean head)
{
    const char *end = strstr(in->str, "\r\n\r\n");
    guint status;

    if (in->len == 0)
        return;
    FUZZ_CHECK(g_str_has_prefix(in->str, "HTTP/1.") && in->len > 12, "%.40s", in->str);
    status = (guint)g_ascii_strtoull(in->str + 9, NULL, 10);
    FUZZ_CHECK(status >= 100 && status < 600 && end != NULL, "%.40s", in->str);
    if (status == 100)
        return;
    g_autofree char *headers = g_ascii_strdown(in->str, end - in->str);
    const char *length = strstr(headers, "\r\ncontent-length:");
    if (length == NULL || head)
        return;
    gsize size = (gsize)g_ascii_strtoull(length + strlen("\r\ncontent-length:"), NULL, 10);
    gsize rest = in->len - (gsize)(end + 4 - in->str);
    if (rest < size)
        return; /* cut by a reset, when the client sent what nobody read */
    if (strstr(headers, "application/problem+json") != NULL) {
        g_autoptr(GError) error = NULL;
        g_autoptr(cJSON) problem = lh_json_parse(end + 4, size, LH_JSON_MAX_BYTES, &error);
        FUZZ_CHECK(problem != NULL, "%s: %s", error->message, end + 4);
        FUZZ_CHECK(lh_json_get_int(problem, "status", 0) == status, "%s", end + 4);
        fuzz_check_message(lh_json_get_string(problem, "detail", NULL));
    }
}

/* What GLib interns stays for ever: nothing that a client chooses may be. */
static void check_not_kept(const GString *out)
{
    g_autofree char *method = g_strndup(out->str, strcspn(out->str, " \r\n"));

    FUZZ_CHECK(!g_str_has_prefix(method, "X-") || g_quark_try_string(method) == 0, "%s", method);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    FuzzBytes bytes = {data, MIN(size, MAX_BYTES)};
    g_autoptr(GString) out = g_string_new_len((const char *)bytes.data, (gssize)bytes.size);
    g_autofree char *port = NULL;

    if (site.server == NULL)
        open_site();
    port = g_strdup_printf(":%u", site.port);
    for (gsize i = 0; i + 5 <= out->len; i++)
        if (memcmp(out->str + i, ":8083", 5) == 0) {
            g_string_erase(out, (gssize)i, 5);
            g_string_insert(out, (gssize)i, port);
        }
    for (guint patient = 0; patient < 2; patient++) {
        GString *in = talk(out, patient != 0);
        check_answer(in,
                     g_str_has_prefix(out->str, "HEAD ") || strstr(out->str, "\nHEAD ") != NULL);
        g_string_free(in, TRUE);
        check_not_kept(out);
        FUZZ_CHECK(site.held->len == 0, "%u requests without an answer", site.held->len);
    }
    return 0;
}
