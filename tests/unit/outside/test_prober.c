/*
 * outside/prober: what a probe says of servers of all kinds, on real sockets and the real loop; and the
 * revocation of a lease.
 */
#include "controllers/detector.h"
#include "outside/prober.h"
#include "tests/fakes/env_sim.h"

#include <gio/gio.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

/* links: gio */
/* links: fakes */

#define HEALTHY "{\"status\":\"healthy\"}"

typedef struct {
    LhEtcd etcd;
    LhEnv *env;
    LhMirror *mirror;
    LhMetrics *metrics;
    LhProber *prober;
    GSocketService *service;
    guint16 port;
    GPtrArray *held; /* connections that are never answered */
    gboolean ill;    /* /turns answers 500 */
    gint64 revoked;
    guint asked, redirected, clients;
    guint listening; /* to clients */
    gboolean late;
} Lab;

static void send_answer(GOutputStream *out, const char *head, const char *body)
{
    g_autofree char *text = g_strdup_printf(
        "HTTP/1.1 %s\r\nContent-Length: %zu\r\nConnection: close\r\n\r\n%s", head, strlen(body),
        body);

    g_output_stream_write_all(out, text, strlen(text), NULL, NULL, NULL);
}

typedef struct {
    Lab *lab;
    GSocketConnection *connection;
    char request[1024];
} Client;

static void on_request(GObject *stream, GAsyncResult *result, gpointer data);

static void listen_to(Client *client)
{
    client->lab->listening++;
    g_input_stream_read_async(g_io_stream_get_input_stream(G_IO_STREAM(client->connection)),
                              client->request, sizeof client->request - 1, G_PRIORITY_DEFAULT, NULL,
                              on_request, client);
}

/* The peer says when it is over. */
static void keep_open(Client *client)
{
    static const char text[] = "HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\n" HEALTHY;

    g_output_stream_write_all(g_io_stream_get_output_stream(G_IO_STREAM(client->connection)), text,
                              strlen(text), NULL, NULL, NULL);
    g_object_ref(client->connection);
    listen_to(client);
}

static void on_request(GObject *stream, GAsyncResult *result, gpointer data)
{
    Client *client = data;
    Lab *lab = client->lab;
    const char *request = client->request;
    g_autoptr(GSocketConnection) connection = client->connection;
    GOutputStream *out = g_io_stream_get_output_stream(G_IO_STREAM(connection));

    lab->listening--;
    if (g_input_stream_read_finish(G_INPUT_STREAM(stream), result, NULL) <= 0) {
        g_free(client);
        return;
    }
    lab->asked++;
    if (g_str_has_prefix(request, "GET /keep ")) {
        keep_open(client);
        return;
    }
    if (g_str_has_prefix(request, "GET /hang ")) {
        g_ptr_array_add(lab->held, g_object_ref(connection));
    } else if (g_str_has_prefix(request, "GET /500 ") ||
               (lab->ill && g_str_has_prefix(request, "GET /turns "))) {
        send_answer(out, "500 No", HEALTHY);
    } else if (g_str_has_prefix(request, "GET /wrong ")) {
        send_answer(out, "200 OK", "{\"status\":\"ill\"}");
    } else if (g_str_has_prefix(request, "GET /text ")) {
        send_answer(out, "200 OK", "healthy");
    } else if (g_str_has_prefix(request, "GET /long ")) {
        g_autofree char *spaces = g_strnfill(100000, ' ');
        g_autofree char *body = g_strconcat(HEALTHY, spaces, NULL);
        send_answer(out, "200 OK", body);
    } else if (g_str_has_prefix(request, "GET /redirect ")) {
        send_answer(out, "302 There\r\nLocation: /there", "");
    } else if (g_str_has_prefix(request, "GET /there ")) {
        lab->redirected++;
        send_answer(out, "200 OK", HEALTHY);
    } else {
        send_answer(out, "200 OK", HEALTHY);
    }
    g_free(client);
}

static gboolean on_client(GSocketService *service, GSocketConnection *connection, GObject *source,
                          gpointer data)
{
    Client *client = g_new0(Client, 1);

    (void)service;
    (void)source;
    client->lab = data;
    client->connection = g_object_ref(connection);
    client->lab->clients++;
    listen_to(client);
    return TRUE;
}

static LhCallId revoke_lease(LhEtcd *etcd, gint64 lease, gint64 deadline_ms, LhLeaseFunc func,
                             gpointer data)
{
    Lab *lab = (Lab *)etcd;

    assert_in_range(deadline_ms, 1, 60000); /* from now on */
    lab->revoked = lease;
    func(lease, 0, NULL, data);
    return 0;
}

static const LhEtcdVtable etcd_vtable = {.lease_revoke = revoke_lease};

static int set_up(void **state)
{
    Lab *lab = g_new0(Lab, 1);

    lab->etcd.v = &etcd_vtable;
    lab->env = lh_env_glib_new(NULL);
    lab->mirror = lh_mirror_new(lab->env, &lab->etcd, "/leasehold/");
    lab->metrics = lh_metrics_new();
    lab->held = g_ptr_array_new_with_free_func(g_object_unref);
    lab->service = g_socket_service_new();
    lab->port = g_socket_listener_add_any_inet_port(G_SOCKET_LISTENER(lab->service), NULL, NULL);
    assert_int_not_equal(lab->port, 0);
    g_signal_connect(lab->service, "incoming", G_CALLBACK(on_client), lab);
    g_socket_service_start(lab->service);
    lab->prober = lh_prober_new(&(LhProberOptions){.env = lab->env,
                                                   .mirror = lab->mirror,
                                                   .etcd = &lab->etcd,
                                                   .metrics = lab->metrics,
                                                   .most = 4,
                                                   .kept = 2});
    *state = lab;
    return 0;
}

static int tear_down(void **state)
{
    Lab *lab = *state;

    lh_prober_free(lab->prober);
    g_socket_service_stop(lab->service);
    while (lab->listening > 0) /* each has been closed */
        g_main_context_iteration(NULL, TRUE);
    g_socket_listener_close(G_SOCKET_LISTENER(lab->service));
    g_object_unref(lab->service);
    g_ptr_array_unref(lab->held);
    lh_mirror_free(lab->mirror);
    lh_metrics_free(lab->metrics);
    lh_env_free(lab->env);
    g_free(lab);
    return 0;
}

static const LhObservation *seen(const Lab *lab, const char *id)
{
    g_autofree char *name = g_strconcat(LH_DETECTOR "/", id, NULL);

    return (const LhObservation *)lh_mirror_get(lab->mirror, LH_KIND_OBSERVATION, name);
}

static void on_late(gpointer data)
{
    ((Lab *)data)->late = TRUE;
}

/* Until @misses were observed of @id. */
static void await(Lab *lab, const char *id, gint64 misses)
{
    LhTimer *timer = lh_timer_in(lab->env, 20000, on_late, lab);

    while (!lab->late && (seen(lab, id) == NULL || seen(lab, id)->missing != misses))
        g_main_context_iteration(NULL, TRUE);
    assert_false(lab->late);
    lh_timer_clear(lab->env, &timer);
}

static void probe(Lab *lab, guint16 port, const char *path, gint64 most)
{
    g_autofree char *uri = g_strdup_printf("http://127.0.0.1:%u%s", port, path);
    const LhErrand errand = {.id = "probe.cache.a",
                             .what = LH_DETECTOR_PROBE,
                             .uri = uri,
                             .token = 7,
                             .period_ms = 10,
                             .timeout_ms = 200,
                             .most = most};

    lh_prober_outside.set(LH_DETECTOR, &errand, 1, lab->prober);
}

static void what_is_healthy(void **state)
{
    Lab *lab = *state;

    probe(lab, lab->port, "/ok", 3);
    await(lab, "probe.cache.a", 0);
    assert_int_equal(seen(lab, "probe.cache.a")->token, 7);
    assert_null(seen(lab, "probe.cache.a")->error);
}

static void what_is_a_miss(void **state)
{
    static const struct {
        const char *path, *why;
    } rows[] = {{"/500", "answered 500"},
                {"/wrong", "did not answer status healthy"},
                {"/text", "did not answer status healthy"},
                {"/long", "too long an answer"},
                {"/redirect", "answered 302"},
                {"/hang", "timed out"}};
    Lab *lab = *state;

    for (guint i = 0; i < G_N_ELEMENTS(rows); i++) {
        lh_mirror_forget(lab->mirror, LH_DETECTOR);
        probe(lab, lab->port, rows[i].path, 3);
        await(lab, "probe.cache.a", 3);
        assert_string_equal(seen(lab, "probe.cache.a")->error, rows[i].why);
    }
    assert_int_equal(lab->redirected, 0);
}

static void nobody_there_is_a_miss(void **state)
{
    Lab *lab = *state;

    g_autoptr(GSocketListener) nobody = g_socket_listener_new();
    guint16 port = g_socket_listener_add_any_inet_port(nobody, NULL, NULL);

    g_socket_listener_close(nobody);
    probe(lab, port, "/ok", 3);
    await(lab, "probe.cache.a", 3);
}

static void misses_end_with_the_first_success(void **state)
{
    Lab *lab = *state;

    lab->ill = TRUE;
    probe(lab, lab->port, "/turns", 5);
    await(lab, "probe.cache.a", 5);
    lab->ill = FALSE;
    await(lab, "probe.cache.a", 0);
    lab->ill = TRUE;
    await(lab, "probe.cache.a", 1);
}

static void hits_in_a_row_are_told_once(void **state)
{
    Lab *lab = *state;
    const LhObservation *first;

    probe(lab, lab->port, "/ok", 3);
    await(lab, "probe.cache.a", 0);
    first = seen(lab, "probe.cache.a");
    guint asked = lab->asked;
    LhTimer *timer = lh_timer_in(lab->env, 20000, on_late, lab);
    while (!lab->late && lab->asked < asked + 5)
        g_main_context_iteration(NULL, TRUE);
    lh_timer_clear(lab->env, &timer);
    assert_false(lab->late);
    assert_ptr_equal(seen(lab, "probe.cache.a"), first);
}

/* Four at a time; those that hang keep nobody else from being asked. */
static void many_at_once(void **state)
{
    Lab *lab = *state;
    g_autoptr(GPtrArray) texts = g_ptr_array_new_with_free_func(g_free);
    LhErrand errands[200] = {{.id = NULL}};

    for (guint i = 0; i < G_N_ELEMENTS(errands); i++) {
        char *id = g_strdup_printf("probe.cache.n%u", i);
        char *uri = g_strdup_printf("http://127.0.0.1:%u/%s", lab->port, i % 50 == 0 ? "hang" : "");
        g_ptr_array_add(texts, id);
        g_ptr_array_add(texts, uri);
        errands[i] = (LhErrand){.id = id,
                                .what = LH_DETECTOR_PROBE,
                                .uri = uri,
                                .period_ms = 1000,
                                .timeout_ms = 200,
                                .most = 1};
    }
    lh_prober_outside.set(LH_DETECTOR, errands, G_N_ELEMENTS(errands), lab->prober);
    for (guint i = 0; i < G_N_ELEMENTS(errands); i++)
        await(lab, errands[i].id, i % 50 == 0 ? 1 : 0);
    lh_prober_outside.set(LH_DETECTOR, NULL, 0, lab->prober);
}

/* How many connections are opened for five probes of each of @nodes. */
static guint connections_for(Lab *lab, guint nodes)
{
    g_autofree char *uri = g_strdup_printf("http://127.0.0.1:%u/keep", lab->port);
    LhTimer *timer = lh_timer_in(lab->env, 20000, on_late, lab);
    static const char *const ids[] = {"probe.cache.a", "probe.cache.b", "probe.cache.c"};
    LhErrand errands[G_N_ELEMENTS(ids)] = {{.id = NULL}};

    for (guint i = 0; i < nodes; i++)
        errands[i] = (LhErrand){.id = ids[i],
                                .what = LH_DETECTOR_PROBE,
                                .uri = uri,
                                .period_ms = 10,
                                .timeout_ms = 10000,
                                .most = 1};
    lab->asked = lab->clients = 0;
    lh_prober_outside.set(LH_DETECTOR, errands, nodes, lab->prober);
    while (!lab->late && lab->asked < 5 * nodes)
        g_main_context_iteration(NULL, TRUE);
    assert_false(lab->late);
    lh_timer_clear(lab->env, &timer);
    lh_prober_outside.set(LH_DETECTOR, NULL, 0, lab->prober);
    return lab->clients;
}

static void connections_are_kept_of_no_more_nodes_than_fit(void **state)
{
    Lab *lab = *state;

    assert_in_range(connections_for(lab, 2), 1, 2);
    /* Two that were kept may be used once more, and questions of before be heard late; three may be open before
     * they are used. */
    assert_in_range(connections_for(lab, 3), 15 - 5, 15 + 3);
}

static void a_lease_is_revoked_once(void **state)
{
    Lab *lab = *state;
    const LhErrand errand = {
        .id = "revoke.worker.w", .what = LH_DETECTOR_REVOKE, .token = 9, .number = 0xab};

    lh_prober_outside.set(LH_DETECTOR, &errand, 1, lab->prober);
    assert_int_equal(lab->revoked, 0xab);
    assert_int_equal(seen(lab, "revoke.worker.w")->token, 9);
    lab->revoked = 0;
    lh_prober_outside.set(LH_DETECTOR, &errand, 1, lab->prober);
    assert_int_equal(lab->revoked, 0);
}

/* ---- in virtual time, with an asker of its own ---- */

typedef struct {
    LhProbeDone done;
    gpointer data;
} Asked;

static gpointer keep_question(gpointer data, const char *id, const char *uri, gint64 timeout_ms,
                              gboolean keep, LhProbeDone done, gpointer done_data)
{
    (void)keep;
    assert_string_equal(id, "probe.cache.a");
    assert_string_equal(uri, "http://127.0.0.1:1/ok");
    assert_int_equal(timeout_ms, 200);
    *(Asked *)data = (Asked){done, done_data};
    return data;
}

static void drop_question(gpointer data, gpointer question)
{
    assert_ptr_equal(data, question);
    ((Asked *)data)->done = NULL;
}

static void time_is_out(Asked *asked)
{
    LhProbeDone done = asked->done;

    assert_non_null(done);
    asked->done = NULL;
    done(&(LhProbeAnswer){.error = "no time left", .timed_out = TRUE}, asked->data);
}

/* A loop that stood still cannot know whether the answer was there in time. */
static void a_time_that_ran_out_while_the_loop_stood_still_is_no_miss(void **state)
{
    Lab *lab = *state;
    SimWorld *world = sim_world_new(1);
    LhEnv *env = sim_machine_new(world, "manager");
    LhMirror *mirror = lh_mirror_new(env, &lab->etcd, "/leasehold/");
    Asked asked = {NULL, NULL};
    const LhProberOptions options = {.env = env,
                                     .mirror = mirror,
                                     .etcd = &lab->etcd,
                                     .metrics = lab->metrics,
                                     .asker = {keep_question, drop_question, &asked}};
    LhProber *prober = lh_prober_new(&options), *kept = lab->prober;
    LhMirror *real = lab->mirror;
    gint64 now = 0;

    lab->prober = prober;
    lab->mirror = mirror;
    probe(lab, 1, "/ok", 3);
    for (gint64 misses = 1; misses <= 2; misses++) {
        sim_world_run_until(world, now += 20);
        sim_world_run_until(world, now += 200 + 5000); /* nothing else to do: it stood still */
        time_is_out(&asked);
        assert_int_equal(seen(lab, "probe.cache.a") == NULL ? 0
                                                            : seen(lab, "probe.cache.a")->missing,
                         misses - 1);
        sim_world_run_until(world, now += 20);
        sim_world_run_until(world, now += 200);
        time_is_out(&asked);
        assert_int_equal(seen(lab, "probe.cache.a")->missing, misses);
    }
    lh_prober_free(prober);
    assert_null(asked.done);
    lh_mirror_free(mirror);
    lh_env_free(env);
    sim_world_free(world);
    lab->prober = kept;
    lab->mirror = real;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(what_is_healthy),
        TEST(what_is_a_miss),
        TEST(nobody_there_is_a_miss),
        TEST(misses_end_with_the_first_success),
        TEST(hits_in_a_row_are_told_once),
        TEST(many_at_once),
        TEST(connections_are_kept_of_no_more_nodes_than_fit),
        TEST(a_lease_is_revoked_once),
        TEST(a_time_that_ran_out_while_the_loop_stood_still_is_no_miss),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
