/*
 * agent/agent_http: what an agent serves, asked over a real socket while a real snapshot is loaded, live
 * and hidden again.
 */
#include "agent/agent_http.h"
#include "base/log.h"
#include "tests/fakes/fake_etcd.h"

#include <gio/gio.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* links: fakes */

typedef struct {
    char *dir;
    LhEnv *env;
    FakeEtcd *server;
    LhEtcd *etcd;
    LhObjectStore *objects;
    LhHooks *hooks;
    LhCacheWork *work;
    LhHttpServer *http_server;
    LhAgentHttp http;
    guint ready;
} Fixture;

static void on_ready(const char *item, const char *url, gpointer data)
{
    (void)item;
    (void)url;
    ((Fixture *)data)->ready++;
}

static void on_failed(const char *item, const GError *error, gpointer data)
{
    (void)data;
    fail_msg("%s: %s", item, error->message);
}

static void on_progress(const char *item, gint64 bytes, gpointer data)
{
    (void)item;
    (void)bytes;
    (void)data;
}

static void quiet(const char *line, gpointer data)
{
    (void)line;
    (void)data;
}

static LhAgentWork *base(Fixture *f)
{
    return lh_cache_work_base(f->work);
}

static void load(Fixture *f)
{
    g_autofree char *source = g_build_filename(f->dir, "source", "s", "d", NULL);
    g_autofree char *file = g_build_filename(source, "a b%2e", NULL);
    g_autofree char *value = g_strdup_printf(
        "{\"action\":\"load\",\"since\":1,\"controller\":\"c\",\"epoch\":1,\"rule\":\"r\","
        "\"reason\":\"x\",\"set\":\"default\",\"snapshot\":\"s\",\"uri\":\"file://%s/source/s/\","
        "\"sizeBytes\":5,\"service\":\"s\",\"startTime\":1,\"endTime\":2,\"maxOffset\":1}",
        f->dir);
    assert_int_equal(g_mkdir_with_parents(source, 0755), 0);
    assert_true(g_file_set_contents(file, "12345", 5, NULL));
    fake_etcd_put(f->server, "/leasehold/published/snapshots/s", value, 0);
    g_autoptr(LhObject) object = lh_object_parse(LH_KIND_ASSIGNMENT, "cache/n-00000000/i", value,
                                                 strlen(value), 1, 1, 0);
    if (!lh_object_known(object))
        fail_msg("%s", lh_object_error(object));
    base(f)->v->load(base(f), "i", (const LhAssignment *)object);
    gint64 deadline = g_get_monotonic_time() + 20 * G_USEC_PER_SEC;
    while (f->ready == 0 && g_get_monotonic_time() < deadline)
        g_main_context_iteration(NULL, FALSE);
    assert_int_equal(f->ready, 1);
}

static int setup(void **state)
{
    static const LhWorkFuncs funcs = {
        .progress = on_progress, .ready = on_ready, .failed = on_failed};
    Fixture *f = g_new0(Fixture, 1);
    lh_log_set_sink(quiet, NULL);
    f->dir = g_dir_make_tmp("lh-http-XXXXXX", NULL);
    f->env = lh_env_glib_new(NULL);
    f->server = fake_etcd_new(f->env, NULL);
    f->etcd = fake_etcd_connect(f->server, f->env, "agent");
    g_autofree char *root = g_strdup_printf("file://%s/source/", f->dir);
    g_autofree char *data = g_build_filename(f->dir, "data", NULL);
    const char *const roots[] = {root, NULL};
    f->objects = lh_objectstore_new(f->env, &(LhObjectStoreOptions){.roots = roots}, NULL);
    f->hooks = lh_hooks_new(f->env);
    const LhHttpOptions http_options = {.listen = "127.0.0.1:0"};
    f->http_server = lh_http_server_new(f->env, NULL, &http_options, NULL);
    assert_non_null(f->http_server);
    f->http.metrics = lh_metrics_new();
    const LhCacheWorkOptions options = {
        .prefix = "/leasehold/",
        .data_dir = data,
        .url = "http://n",
        .capacity_bytes = 1000,
        .hook_timeout_ms = 1000,
        .metrics = f->http.metrics,
    };
    f->work = lh_cache_work_new(f->env, f->etcd, f->objects, f->hooks, &options, NULL);
    assert_non_null(f->work);
    base(f)->v->attach(base(f), &funcs, f);
    f->http.cache = f->work;
    lh_agent_http_routes(f->http_server, &f->http);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    Fixture *f = *state;
    lh_http_server_free(f->http_server);
    lh_cache_work_free(f->work);
    lh_metrics_free(f->http.metrics);
    lh_hooks_free(f->hooks);
    lh_store_free(f->objects);
    lh_etcd_free(f->etcd);
    fake_etcd_free(f->server);
    while (g_main_context_iteration(NULL, FALSE))
        ;
    lh_env_free(f->env);
    g_autofree char *command = g_strdup_printf("rm -rf '%s'", f->dir);
    assert_int_equal(system(command), 0);
    g_free(f->dir);
    g_free(f);
    lh_log_set_sink(NULL, NULL);
    return 0;
}

typedef struct {
    char *address, *request, *reply;
    gint done;
} Talk;

static gpointer talk(gpointer data)
{
    Talk *t = data;
    g_autoptr(GSocketClient) client = g_socket_client_new();
    g_autoptr(GSocketConnection) connection = g_socket_client_connect_to_host(client, t->address, 0,
                                                                              NULL, NULL);
    g_autoptr(GString) reply = g_string_new(NULL);
    if (connection != NULL) {
        GOutputStream *out = g_io_stream_get_output_stream(G_IO_STREAM(connection));
        GInputStream *in = g_io_stream_get_input_stream(G_IO_STREAM(connection));
        char buffer[4096];
        gssize n;
        g_output_stream_write_all(out, t->request, strlen(t->request), NULL, NULL, NULL);
        while ((n = g_input_stream_read(in, buffer, sizeof buffer, NULL, NULL)) > 0)
            g_string_append_len(reply, buffer, n);
    }
    t->reply = g_string_free(g_steal_pointer(&reply), FALSE);
    g_atomic_int_set(&t->done, 1);
    return NULL;
}

/* The whole reply to one request. g_free. */
static char *ask(Fixture *f, const char *method, const char *path, const char *more)
{
    const char *address = lh_http_server_address(f->http_server);
    g_autofree char *request = g_strdup_printf(
        "%s %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n%s\r\n", method, path, address, more);
    Talk t = {.address = (char *)address, .request = request};
    GThread *thread = g_thread_new("client", talk, &t);
    while (!g_atomic_int_get(&t.done))
        g_main_context_iteration(NULL, FALSE);
    g_thread_join(thread);
    return t.reply;
}

static void assert_reply(Fixture *f, const char *path, guint status, const char *holds)
{
    g_autofree char *reply = ask(f, "GET", path, "");
    g_autofree char *line = g_strdup_printf("HTTP/1.1 %u ", status);
    if (!g_str_has_prefix(reply, line) || strstr(reply, holds) == NULL)
        fail_msg("GET %s: expected %u with %s, got %s", path, status, holds, reply);
}

static void health_and_metrics(void **state)
{
    Fixture *f = *state;
    assert_reply(f, "/get_health_status", 200, "{\"status\":\"healthy\"}");
    assert_reply(f, "/metrics", 200, "leasehold_agent_disk_capacity_bytes 1000");
    assert_reply(f, "/healthz", 200, "ok");
    assert_reply(f, "/readyz", 503, "the node is not registered");
    f->http.registered = TRUE;
    assert_reply(f, "/readyz", 200, "ok");
    assert_reply(f, "/", 404, "");
    g_autofree char *post = ask(f, "POST", "/metrics",
                                "Content-Length: 0\r\nContent-Type: application/json\r\n");
    assert_true(g_str_has_prefix(post, "HTTP/1.1 405"));
}

static void files_of_live_snapshots_only(void **state)
{
    Fixture *f = *state;
    const char *const file = "/v1/files/s/d/a%20b%252e";
    assert_reply(f, file, 404, "no such file");
    load(f);
    assert_reply(f, file, 404, "");
    assert_reply(f, "/v1/files/s/", 404, "");
    base(f)->v->serve(base(f), "i", TRUE);
    assert_reply(f, file, 200, "12345");
    assert_reply(f, "/v1/files/s/", 200, "{\"name\":\"d/a b%2e\",\"size\":5");
    g_autofree char *range = ask(f, "GET", file, "Range: bytes=1-2\r\n");
    assert_true(g_str_has_prefix(range, "HTTP/1.1 206") && g_str_has_suffix(range, "\r\n\r\n23"));
    g_autofree char *head = ask(f, "HEAD", file, "");
    assert_true(g_str_has_prefix(head, "HTTP/1.1 200") && g_str_has_suffix(head, "\r\n\r\n"));
    base(f)->v->serve(base(f), "i", FALSE);
    assert_reply(f, file, 404, "");
}

static void nothing_else(void **state)
{
    Fixture *f = *state;
    load(f);
    base(f)->v->serve(base(f), "i", TRUE);
    const char *const paths[] = {
        "/v1/files/",
        "/v1/files/s",
        "/v1/files/s/d",
        "/v1/files/s/d/",
        "/v1/files/other/x",
        "/v1/files/s/../manifest.json",
        "/v1/files/s/%2e%2e/manifest.json",
        "/v1/files/s/..%2fmanifest.json",
        "/v1/files/../../lock",
        "/v1/files/.../x",
        "/v1/files/s//etc/passwd",
        "/v1/files/%00/x",
        "/v1/files/s/nope",
    };
    for (gsize i = 0; i < G_N_ELEMENTS(paths); i++) {
        g_autofree char *reply = ask(f, "GET", paths[i], "");
        if (!g_str_has_prefix(reply, "HTTP/1.1 404") && !g_str_has_prefix(reply, "HTTP/1.1 400"))
            fail_msg("GET %s: %s", paths[i], reply);
    }
    g_autofree char *del = ask(f, "DELETE", "/v1/files/s/d/a%20b%252e", "");
    assert_true(g_str_has_prefix(del, "HTTP/1.1 405"));
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(health_and_metrics),
        TEST(files_of_live_snapshots_only),
        TEST(nothing_else),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
