/*
 * The gRPC transport against what is no etcd: options that make no sense, nobody listening, somebody who
 * accepts and says nothing. tests/conformance/ has the rest, with a real etcd.
 */
/* suite: threads */
#include "base/errors.h"
#include "etcd/transport_grpc.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

typedef struct {
    GMainContext *context;
    LhEtcd *etcd;
    int listener;
    guint16 port;
    guint ended;
    int code; /* of the last error */
    gboolean free_in_callback;
} Fixture;

static int setup(void **state)
{
    Fixture *f = g_new0(Fixture, 1);
    f->context = g_main_context_new();
    f->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof address;
    assert_int_equal(bind(f->listener, (struct sockaddr *)&address, len), 0);
    assert_int_equal(getsockname(f->listener, (struct sockaddr *)&address, &len), 0);
    f->port = ntohs(address.sin_port);
    g_autofree char *endpoint = g_strdup_printf("http://127.0.0.1:%u/", f->port);
    LhEtcdOptions options = {.endpoints = (const char *const[]){endpoint, NULL}};
    f->etcd = lh_etcd_grpc_new(&options, f->context, NULL);
    assert_non_null(f->etcd);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    Fixture *f = *state;
    lh_etcd_free(f->etcd);
    assert_false(g_main_context_iteration(f->context, FALSE));
    g_main_context_unref(f->context);
    close(f->listener);
    g_free(f);
    return 0;
}

static gboolean on_timeout(gpointer data)
{
    (void)data;
    fail_msg("nothing happened for 20 s");
    return G_SOURCE_REMOVE;
}

static void wait_for(Fixture *f, guint ended)
{
    GSource *timeout = g_timeout_source_new_seconds(20);
    g_source_set_callback(timeout, on_timeout, NULL, NULL);
    g_source_attach(timeout, f->context);
    while (f->ended < ended)
        g_main_context_iteration(f->context, TRUE);
    g_source_destroy(timeout);
    g_source_unref(timeout);
}

static void end(Fixture *f, const GError *error)
{
    assert_non_null(error);
    assert_true(error->domain == LH_ERROR);
    f->ended++;
    f->code = error->code;
    if (f->free_in_callback)
        g_clear_pointer(&f->etcd, lh_etcd_free);
}

static void on_range(const LhRangeReply *reply, const GError *error, gpointer data)
{
    assert_null(reply);
    end(data, error);
}

static void on_txn(const LhTxnReply *reply, const GError *error, gpointer data)
{
    assert_null(reply);
    end(data, error);
}

static void on_lease(gint64 lease, gint64 ttl_s, const GError *error, gpointer data)
{
    assert_int_equal(lease, 0);
    assert_int_equal(ttl_s, 0);
    end(data, error);
}

static void on_status(const LhStatusReply *reply, const GError *error, gpointer data)
{
    assert_null(reply);
    end(data, error);
}

static void on_watch_reply(const LhWatchReply *reply, gpointer data)
{
    (void)reply, (void)data;
    fail();
}

static void on_watch_closed(const GError *error, gpointer data)
{
    end(data, error);
}

/* One of each; the watch has no deadline. */
#define N_CALLS 6

static void call_all(Fixture *f, gint64 deadline_ms)
{
    guint before = f->ended;
    const LhEtcdVtable *v = f->etcd->v;
    LhTxnOp op = lh_txn_put("k", "v", 0);
    v->txn(f->etcd, &(LhTxnRequest){.success = &op, .n_success = 1}, deadline_ms, on_txn, f);
    v->range(f->etcd, &(LhRangeRequest){.key = "k"}, deadline_ms, on_range, f);
    v->lease_grant(f->etcd, 5, deadline_ms, on_lease, f);
    v->lease_keepalive(f->etcd, 5, deadline_ms, on_lease, f);
    v->lease_revoke(f->etcd, 5, deadline_ms, on_lease, f);
    v->status(f->etcd, deadline_ms, on_status, f);
    assert_int_equal(f->ended, before);
}

static void options_that_are_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {"127.0.0.1",
                                      "127.0.0.1:",
                                      "127.0.0.1:x",
                                      "127.0.0.1:0",
                                      "127.0.0.1:65536",
                                      ":2379",
                                      "",
                                      "http://",
                                      "http://a:1/path",
                                      "http://a:1?q",
                                      "http://me@a:1",
                                      "unix:///tmp/x",
                                      "a b:1"};
    for (guint i = 0; i < G_N_ELEMENTS(bad); i++) {
        g_autoptr(GError) error = NULL;
        LhEtcdOptions options = {.endpoints = (const char *const[]){bad[i], NULL}};
        if (lh_etcd_grpc_new(&options, NULL, &error) != NULL)
            fail_msg("accepted %s", bad[i]);
        assert_true(g_error_matches(error, LH_ERROR, LH_ERR_INVALID));
    }
}

static void nobody_listens(void **state)
{
    Fixture *f = *state;
    call_all(f, 5000);
    f->etcd->v->watch(f->etcd, &(LhWatchRequest){.key = "k"}, on_watch_reply, on_watch_closed, f);
    for (guint ended = 1; ended <= N_CALLS + 1; ended++) {
        wait_for(f, ended);
        assert_int_equal(f->code, LH_ERR_UNAVAILABLE); /* the writes, too: surely not sent */
    }
}

/* Three endpoints that refuse: each call sees all of them, and ends in time. */
static void nobody_listens_anywhere(void **state)
{
    Fixture *f = *state;
    lh_etcd_free(f->etcd);
    /* Nobody listens on port 1 either. */
    g_autofree char *endpoint = g_strdup_printf("127.0.0.1:%u", f->port);
    const LhEtcdOptions options = {
        .endpoints = (const char *const[]){endpoint, "127.0.0.1:1", "127.0.0.2:1", NULL}};
    f->etcd = lh_etcd_grpc_new(&options, f->context, NULL);
    gint64 begun_us = g_get_monotonic_time();
    call_all(f, 15000);
    f->etcd->v->watch(f->etcd, &(LhWatchRequest){.key = "k"}, on_watch_reply, on_watch_closed, f);
    for (guint ended = 1; ended <= N_CALLS + 1; ended++) {
        wait_for(f, ended);
        assert_int_equal(f->code, LH_ERR_UNAVAILABLE);
    }
    assert_true(g_get_monotonic_time() - begun_us < 14 * G_USEC_PER_SEC);
    call_all(f, 5000);
}

static void silence_ends_at_the_deadline(void **state)
{
    Fixture *f = *state;
    assert_int_equal(listen(f->listener, 5), 0);
    call_all(f, 50);
    for (guint ended = 1; ended <= N_CALLS; ended++) {
        wait_for(f, ended);
        assert_int_equal(f->code, LH_ERR_UNAVAILABLE);
    }
}

static void refused_transactions_come_back_through_the_callback(void **state)
{
    Fixture *f = *state;
    LhTxnOp ops[129];
    for (guint i = 0; i < G_N_ELEMENTS(ops); i++)
        ops[i] = lh_txn_delete("k");
    LhTxnRequest request = {.success = ops, .n_success = G_N_ELEMENTS(ops)};
    lh_etcd_txn(f->etcd, &request, on_txn, f);
    assert_int_equal(f->ended, 0);
    wait_for(f, 1);
    assert_int_equal(f->code, LH_ERR_INVALID);
    LhCallId call = lh_etcd_txn(f->etcd, &request, on_txn, f);
    lh_etcd_cancel(f->etcd, &call);
    assert_int_equal(call, 0);
    lh_etcd_txn(f->etcd, &request, on_txn, f);
    wait_for(f, 2);
}

static void cancelled_calls_stay_silent(void **state)
{
    Fixture *f = *state;
    assert_int_equal(listen(f->listener, 5), 0);
    const LhEtcdVtable *v = f->etcd->v;
    LhTxnOp op = lh_txn_put("k", "v", 0);
    LhTxnRequest txn = {.success = &op, .n_success = 1};
    LhCallId calls[] = {
        v->txn(f->etcd, &txn, 30, on_txn, f),
        v->range(f->etcd, &(LhRangeRequest){.key = "k"}, 30, on_range, f),
        v->lease_keepalive(f->etcd, 5, 30, on_lease, f),
        v->status(f->etcd, 30, on_status, f),
    };
    LhEtcdStream *watch = v->watch(f->etcd, &(LhWatchRequest){.key = "k"}, on_watch_reply,
                                   on_watch_closed, f);
    v->watch_progress(f->etcd, watch);
    for (guint i = 0; i < G_N_ELEMENTS(calls); i++) {
        LhCallId id = calls[i];
        lh_etcd_cancel(f->etcd, &id);
        v->cancel(f->etcd, calls[i]); /* gone already: ignored */
    }
    v->watch_close(f->etcd, watch);
    /* One that is not cancelled, with a later deadline, ends after them. */
    v->range(f->etcd, &(LhRangeRequest){.key = "k"}, 100, on_range, f);
    wait_for(f, 1);
    assert_int_equal(f->ended, 1);
}

static void freed_with_everything_under_way(void **state)
{
    Fixture *f = *state;
    assert_int_equal(listen(f->listener, 5), 0);
    call_all(f, 5000);
    f->etcd->v->watch(f->etcd, &(LhWatchRequest){.key = "k"}, on_watch_reply, on_watch_closed, f);
    g_main_context_iteration(f->context, FALSE);
    g_clear_pointer(&f->etcd, lh_etcd_free);
    assert_int_equal(f->ended, 0);
}

static void freed_inside_a_callback(void **state)
{
    Fixture *f = *state;
    f->free_in_callback = TRUE;
    call_all(f, 5000);
    f->etcd->v->watch(f->etcd, &(LhWatchRequest){.key = "k"}, on_watch_reply, on_watch_closed, f);
    wait_for(f, 1);
    assert_null(f->etcd);
    while (g_main_context_iteration(f->context, FALSE))
        ;
    assert_int_equal(f->ended, 1);
}

static void free_the_etcd(Fixture *f)
{
    f->free_in_callback = TRUE;
    wait_for(f, 1);
    assert_null(f->etcd);
}

static void freed_inside_a_keepalives_deadline(void **state)
{
    Fixture *f = *state;
    assert_int_equal(listen(f->listener, 5), 0);
    f->etcd->v->lease_keepalive(f->etcd, 5, 20, on_lease, f);
    f->etcd->v->lease_keepalive(f->etcd, 6, 20, on_lease, f);
    free_the_etcd(f);
}

static void freed_inside_a_closed_stream(void **state)
{
    Fixture *f = *state;
    f->etcd->v->lease_keepalive(f->etcd, 5, 5000, on_lease, f);
    f->etcd->v->lease_keepalive(f->etcd, 6, 5000, on_lease, f);
    free_the_etcd(f);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(options_that_are_refused),
        TEST(nobody_listens),
        TEST(nobody_listens_anywhere),
        TEST(silence_ends_at_the_deadline),
        TEST(refused_transactions_come_back_through_the_callback),
        TEST(cancelled_calls_stay_silent),
        TEST(freed_with_everything_under_way),
        TEST(freed_inside_a_callback),
        TEST(freed_inside_a_keepalives_deadline),
        TEST(freed_inside_a_closed_stream),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
