/*
 * Secured servers over time and under pressure: what they refuse to start with, tokens and
 * certificates that are replaced, an agent's files, slow strangers, and pages of other origins.
 */
#include "secure.h"

#include <arpa/inet.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- starting ---- */

static Run *start_manager(World *world, const char *const *extra)
{
    g_autoptr(GPtrArray) argv = g_ptr_array_new();
    const char *const words[] = {"leasehold", "manager", "--etcd-endpoints",
                                 etcd_process_endpoint(world->etcd)};
    for (guint i = 0; i < G_N_ELEMENTS(words); i++) {
        g_ptr_array_add(argv, (gpointer)words[i]);
    }
    for (; *extra != NULL; extra++) {
        g_ptr_array_add(argv, (gpointer)*extra);
    }
    g_ptr_array_add(argv, NULL);
    return run_argv(world, (const char *const *)argv->pdata);
}

static void open_doors_are_refused(void **state)
{
    World *world = *state;
    Lab *lab = lab_new(world);
    const char *cert = lab->server.cert, *key = lab->server.key, *tokens = lab->tokens_file;
    const struct {
        const char *extra[9];
        const char *says;
    } rows[] = {
        {{"--listen", "0.0.0.0:0"}, "listen 0.0.0.0:0: not a loopback address"},
        {{"--listen", "[::]:0"}, "not a loopback address"},
        {{"--listen", "0.0.0.0:0", "--auth-tokens-file", tokens}, "not a loopback address"},
        {{"--listen", "0.0.0.0:0", "--tls-cert", cert, "--tls-key", key}, "not a loopback address"},
        {{"--listen", "127.0.0.1:0", "--tls-cert", cert}, "--tls-cert: needs tls.key too"},
        {{"--listen", "127.0.0.1:0", "--tls-cert", cert, "--tls-key", lab->authority.key},
         "the key is not that of the certificate"},
        {{"--listen", "127.0.0.1:0", "--tls-cert", tokens, "--tls-key", key}, "tls.cert /"},
        {{"--listen", "127.0.0.1:0", "--tls-cert", "/none", "--tls-key", key}, "tls.cert /none"},
        {{"--listen", "127.0.0.1:0", "--auth-tokens-file", "/none"}, "auth.tokensFile /none"},
    };
    for (gsize i = 0; i < G_N_ELEMENTS(rows); i++) {
        g_autoptr(Run) manager = start_manager(world, rows[i].extra);
        lab_refused(manager, 2, rows[i].says);
    }
    lab_free(lab);
}

static void bad_tokens_files_are_refused(void **state)
{
    static const char digest[] = "8a1c5ebf0e4e2ab1c3d1bb0a7f5e1f8a8a1c5ebf0e4e2ab1c3d1bb0a7f5e1f8a";
    static const struct {
        const char *before;
        int digits;
        const char *after;
    } rows[] = {
        {"ci operator sha256:", 63, ""},
        {"ci boss sha256:", 64, ""},
        {"ci operator ", 64, ""},
        {"ci sha256:", 64, ""},
        {"ci operator sha256:", 64, " more"},
    };
    World *world = *state;
    g_autofree char *path = g_build_filename(world->dir, "tokens", NULL);
    const char *const extra[] = {"--listen", "127.0.0.1:0", "--auth-tokens-file", path, NULL};
    for (gsize i = 0; i < G_N_ELEMENTS(rows); i++) {
        g_autoptr(GString) text = g_string_new("# tokens\n\n");
        g_string_append_printf(text, "%s%.*s%s\n", rows[i].before, rows[i].digits, digest,
                               rows[i].after);
        assert_true(g_file_set_contents(path, text->str, -1, NULL));
        g_autoptr(Run) manager = start_manager(world, extra);
        lab_refused(manager, 2, "line 3: ");
        assert_null(strstr(manager->err, "8a1c5ebf"));
        assert_non_null(strstr(manager->err, path));
    }
}

/* ---- replacing ---- */

typedef struct {
    Proc *server;
    Identity who;
    int status; /* wanted; 0: no answer, as from one that is not trusted */
} Asking;

static gboolean answers(World *world, gpointer data)
{
    const Asking *asking = data;
    g_autoptr(Reply) reply = http_as(asking->server, &asking->who, "GET", "/v1/services", NULL);
    return reply->status == asking->status;
}

static gboolean says_so(World *world, gpointer data)
{
    const Asking *asking = data;
    answers(world, data); /* files are looked at when somebody asks */
    return lab_lines(asking->server, "auth.tokensFile", "line 1", NULL) > 0;
}

static void files_are_replaced_while_it_runs(void **state)
{
    World *world = *state;
    Lab *lab = lab_new(world);
    Proc *server = lab_manager(lab, "manager", "127.0.0.1:0");
    Identity old = lab->who[BY_TOKEN][ADMIN],
             fresh = {.cacert = old.cacert, .token = "fresh-token"};
    Asking gone = {server, old, 401}, known = {server, fresh, 200};
    assert_true(answers(world, &(Asking){server, old, 200}));
    assert_true(answers(world, &(Asking){server, fresh, 401}));
    /* It is promised for 10 s; what is never read again would fail here. */
    gint64 from = g_get_monotonic_time();
    g_autofree char *line = lab_token_line("fresh", "viewer", "fresh-token");
    assert_true(g_file_set_contents(lab->tokens_file, line, -1, NULL));
    world_poll(world, answers, &gone, "the old token is refused");
    world_poll(world, answers, &known, "the new token is accepted");
    assert_true(g_get_monotonic_time() - from < 20 * G_USEC_PER_SEC);
    /* What does not parse changes nothing, and is told once. */
    assert_true(g_file_set_contents(lab->tokens_file, "fresh viewer sha256:00\n", -1, NULL));
    world_poll(world, says_so, &known, "the log says what is wrong with the new tokens");
    assert_true(answers(world, &known));
    /* Another authority's certificate: those who trust only the old one turn away. */
    const CertSpec spec = {.cn = "server", .names = "IP:127.0.0.1"};
    CertFiles next = certs_issue(lab->dir, "server", &lab->stranger, &spec);
    certs_clear(&next);
    Asking away = {server, fresh, 0}, again = {server, fresh, 200};
    again.who.cacert = lab->stranger.cert;
    world_poll(world, answers, &again, "the new certificate is shown");
    world_poll(world, answers, &away, "the old one is not");
    assert_int_equal(lab_lines(server, "auth.tokensFile", "line 1", NULL), 1);
    lab_check_logs(lab);
    lab_free(lab);
}

/* ---- an agent ---- */

static void files_need_a_token(void **state)
{
    World *world = *state;
    Lab *lab = lab_new(world);
    const char *const extra[] = {
        "--tls-cert",         lab->server.cert, "--tls-key", lab->server.key,
        "--auth-tokens-file", lab->tokens_file, NULL};
    manager_ready(world, "manager");
    Proc *agent = agent_start(world, &(AgentOptions){.name = "agent-1", .extra = extra});
    world_put(world, "desired/services/x", "{\"spec\":{\"owner\":\"a\"}}");
    snapshot_publish(world, "s", "x", world->now_ms - 60000, 1, 5000);
    world_wait_live(world, NULL, 1);
    g_autoptr(GPtrArray) keys = lh_mirror_list(world->mirror, LH_KIND_SEARCH);
    const LhSearch *search = g_ptr_array_index(keys, 0);
    g_autofree char *url = g_strconcat(search->url, "part-0", NULL);
    g_autofree char *path = snapshot_path(world, "s", "part-0");
    g_autofree char *data = NULL;
    gsize len = 0;
    assert_true(g_str_has_prefix(search->url, "https://127.0.0.1:"));
    assert_true(g_file_get_contents(path, &data, &len, NULL));
    g_autoptr(Reply) anonymous = http_send_as(&lab->nobody, "GET", url, NULL, NULL);
    reply_must(anonymous, 401);
    Identity wrong = {.cacert = lab->authority.cert, .token = "wrong"};
    g_autoptr(Reply) stranger = http_send_as(&wrong, "GET", url, NULL, NULL);
    reply_must(stranger, 401);
    g_autoptr(Reply) metrics = http_as(agent, &lab->nobody, "GET", "/metrics", NULL);
    reply_must(metrics, 401);
    g_autoptr(Reply) viewer = http_send_as(&lab->who[BY_TOKEN][VIEWER], "GET", url, NULL, NULL);
    reply_must(viewer, 200);
    assert_int_equal(viewer->body->len, len);
    assert_memory_equal(viewer->body->str, data, len);
    lab_check_logs(lab);
    lab_free(lab);
}

/* ---- pressure ---- */

#define SLOW 200

static int connect_to(const Proc *server)
{
    int port = atoi(strrchr(server->url, ':') + 1);
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((guint16)port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
    return fd;
}

static void slow_strangers_do_not_hinder(void **state)
{
    static const char hello[] = "\x16\x03\x01\x02\x00\x01\x00"; /* a ClientHello's first bytes */
    World *world = *state;
    Lab *lab = lab_new(world);
    Proc *server = lab_manager(lab, "manager", "127.0.0.1:0");
    const Identity *admin = &lab->who[BY_CERT][ADMIN];
    int slow[SLOW];
    for (guint i = 0; i < SLOW; i++) {
        slow[i] = connect_to(server);
        if (i % 2 == 0) {
            assert_int_equal(send(slow[i], hello, sizeof hello - 1, MSG_NOSIGNAL),
                             sizeof hello - 1);
        }
    }
    for (guint i = 0; i < 20; i++) {
        g_autoptr(Reply) ready = http_as(server, &lab->nobody, "GET", "/readyz", NULL);
        reply_must(ready, 200);
        g_autoptr(Reply) list = http_as(server, admin, "GET", "/v1/services", NULL);
        reply_must(list, 200);
    }
    g_autofree char *text = g_strnfill(40 * 1024, 'x');
    g_autofree char *header = g_strconcat("X-Long: ", text, NULL);
    g_autofree char *url = g_strconcat(server->url, "/v1/services/x", NULL);
    const char *const headers[] = {header, NULL};
    g_autoptr(Reply) long_head = http_send_as(admin, "GET", url, NULL, headers);
    reply_must(long_head, 431);
    g_autofree char *spaces = g_strnfill(1024 * 1024, ' ');
    g_autofree char *body = g_strconcat(spaces, "{\"spec\":{\"owner\":\"a\"}}", NULL);
    g_autoptr(Reply) long_body = http_as(server, admin, "PUT", "/v1/services/x", body);
    reply_must(long_body, 413);
    g_autoptr(Reply) fitting = http_as(server, admin, "PUT", "/v1/services/x",
                                       "{\"spec\":{\"owner\":\"a\"}}");
    reply_must(fitting, 201);
    for (guint i = 0; i < SLOW; i++) {
        close(slow[i]);
    }
    lab_free(lab);
}

static void pages_of_others_are_refused(void **state)
{
    World *world = *state;
    Proc *server = manager_ready(world, "manager");
    static const char *const foreign[] = {"Host: evil.example", "Origin: http://evil.example",
                                          "Origin: null"};
    for (guint i = 0; i < G_N_ELEMENTS(foreign); i++) {
        g_autoptr(Reply) read = http_with(server, "GET", "/v1/services", NULL, foreign[i]);
        reply_must(read, 403);
        g_autoptr(Reply) written = http_with(server, "PUT", "/v1/services/x",
                                             "{\"spec\":{\"owner\":\"a\"}}", foreign[i]);
        reply_must(written, 403);
    }
    g_autoptr(Reply) form = http_with(server, "PUT", "/v1/services/x",
                                      "{\"spec\":{\"owner\":\"a\"}}", "Content-Type: text/plain");
    reply_must(form, 415);
    world_catch_up(world, world_revision(world));
    assert_null(world_get(world, LH_KIND_SERVICE, "x"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(open_doors_are_refused, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(bad_tokens_files_are_refused, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(files_are_replaced_while_it_runs, world_setup,
                                        world_teardown),
        cmocka_unit_test_setup_teardown(files_need_a_token, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(slow_strangers_do_not_hinder, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(pages_of_others_are_refused, world_setup, world_teardown),
    };
    return cmocka_run_group_tests_name("integration-secure-api", tests, NULL, NULL);
}
