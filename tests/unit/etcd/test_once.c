/*
 * A write that reached etcd, and whose answer did not reach us: the caller hears that its outcome is not
 * known, and it is not sent again, over no connection and to no endpoint. A relay keeps the answer back.
 * Without an etcd: skipped.
 */
/* links: fakes */
/* suite: slow */
/* suite: waits */
#include "base/errors.h"
#include "base/log.h"
#include "etcd/transport_grpc.h"
#include "tests/fakes/etcd_process.h"
#include "tests/fakes/relay.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define WAIT_MS  30000
#define RELAYS   2
#define PASSWORD "open-4711"

static EtcdProcess *plain, *with_users;
static guint fixtures;

typedef struct {
    EtcdProcess *process;
    Relay *relays[RELAYS];
    LhEtcd *etcd;   /* through the relays */
    LhEtcd *direct; /* past them */
    char *key, *dir;
    gboolean answered;
    int code; /* LhErrorCode; -1: it was done */
    gint64 version;
} Fixture;

/* ---- waiting ---- */

static gboolean on_deadline(gpointer data)
{
    *(gboolean *)data = TRUE;
    return G_SOURCE_CONTINUE;
}

static gboolean on_tick(gpointer data)
{
    (void)data;
    return G_SOURCE_CONTINUE;
}

static void wait_until(Fixture *f, const char *what, gboolean (*condition)(Fixture *f))
{
    gboolean over = FALSE;
    guint timeout = g_timeout_add(WAIT_MS, on_deadline, &over);
    guint tick = g_timeout_add(10, on_tick, NULL);
    while (!condition(f) && !over)
        g_main_context_iteration(NULL, TRUE);
    g_source_remove(timeout);
    g_source_remove(tick);
    if (!condition(f))
        fail_msg("not within %d ms: %s", WAIT_MS, what);
}

static gboolean is_answered(Fixture *f)
{
    return f->answered;
}

/* etcd has answered, so it has done it; and we have not. */
static gboolean is_withheld(Fixture *f)
{
    return relay_withheld(f->relays[0]) + relay_withheld(f->relays[1]) > 0;
}

/* ---- calls ---- */

static void on_put(const LhTxnReply *reply, const GError *error, gpointer data)
{
    Fixture *f = data;
    (void)reply;
    f->answered = TRUE;
    f->code = error != NULL ? error->code : -1;
}

static void put(Fixture *f, LhEtcd *etcd, const char *key, gint64 deadline_ms)
{
    const LhTxnOp op = lh_txn_put(key, "x", 0);
    f->answered = FALSE;
    etcd->v->txn(etcd, &(LhTxnRequest){.success = &op, .n_success = 1}, deadline_ms, on_put, f);
}

/* Until it is done: a connection that was just cut fails what is sent on it. */
static void must_put(Fixture *f, LhEtcd *etcd, const char *key)
{
    gint64 until_us = g_get_monotonic_time() + WAIT_MS * 1000;
    do {
        put(f, etcd, key, 1000);
        wait_until(f, "a write", is_answered);
    } while (f->code != -1 && g_get_monotonic_time() < until_us);
    assert_int_equal(f->code, -1);
}

static void on_read(const LhRangeReply *reply, const GError *error, gpointer data)
{
    Fixture *f = data;
    if (error != NULL)
        fail_msg("%s", error->message);
    f->answered = TRUE;
    f->version = reply->n_kvs > 0 ? reply->kvs[0].version : 0;
}

static gint64 version_of(Fixture *f, const char *key)
{
    f->answered = FALSE;
    lh_etcd_range(f->direct, &(LhRangeRequest){.key = key}, on_read, f);
    wait_until(f, "a read", is_answered);
    return f->version;
}

/* ---- the fixture ---- */

static LhEtcd *client(const Fixture *f, const char *const *endpoints)
{
    g_autoptr(GError) error = NULL;
    g_autofree char *file = g_build_filename(f->dir, "password", NULL);
    gboolean users = f->process == with_users;
    LhEtcd *etcd = lh_etcd_grpc_new(&(LhEtcdOptions){.endpoints = endpoints,
                                                     .user = users ? "root" : NULL,
                                                     .password_file = users ? file : NULL},
                                    NULL, &error);
    if (etcd == NULL)
        fail_msg("%s", error->message);
    return etcd;
}

static Fixture *fixture_new(EtcdProcess *process, guint relays)
{
    Fixture *f = g_new0(Fixture, 1);
    guint16 port = (guint16)g_ascii_strtoull(strrchr(etcd_process_endpoint(process), ':') + 1, NULL,
                                             10);
    char *endpoints[RELAYS + 1] = {NULL};
    f->process = process;
    f->dir = g_dir_make_tmp("leasehold-once-XXXXXX", NULL);
    g_autofree char *file = g_build_filename(f->dir, "password", NULL);
    assert_true(g_file_set_contents(file, PASSWORD, -1, NULL));
    for (guint i = 0; i < RELAYS; i++) {
        f->relays[i] = relay_new(port);
        if (i < relays)
            endpoints[i] = g_strdup_printf("127.0.0.1:%u", relay_port(f->relays[i]));
    }
    f->key = g_strdup_printf("/once/%u/written", ++fixtures);
    f->etcd = client(f, (const char *const *)endpoints);
    f->direct = client(f, (const char *const[]){etcd_process_endpoint(process), NULL});
    for (guint i = 0; i < relays; i++)
        g_free(endpoints[i]);
    /* So that the connection is there. */
    g_autofree char *first = g_strdup_printf("/once/%u/first", fixtures);
    must_put(f, f->etcd, first);
    for (guint i = 0; i < RELAYS; i++)
        relay_mute(f->relays[i], f->key);
    return f;
}

static void fixture_free(Fixture *f)
{
    g_autofree char *file = g_build_filename(f->dir, "password", NULL);
    lh_etcd_free(f->etcd);
    lh_etcd_free(f->direct);
    for (guint i = 0; i < RELAYS; i++)
        relay_free(f->relays[i]);
    remove(file);
    remove(f->dir);
    g_free(f->dir);
    g_free(f->key);
    g_free(f);
}

static void cut(Fixture *f)
{
    for (guint i = 0; i < RELAYS; i++)
        relay_cut_muted(f->relays[i]);
}

/* By now it would have been sent again: what comes later on the new connection is through. */
static void was_sent_once(Fixture *f)
{
    g_autofree char *later = g_strdup_printf("/once/%u/later", fixtures);
    cut(f);
    for (guint i = 0; i < 3; i++)
        must_put(f, f->etcd, later);
    assert_int_equal(relay_seen(f->relays[0]) + relay_seen(f->relays[1]), 1);
    assert_int_equal(version_of(f, f->key), 1);
}

/* ---- tests ---- */

static void connection_lost(EtcdProcess *process, guint endpoints)
{
    Fixture *f = fixture_new(process, endpoints);
    put(f, f->etcd, f->key, WAIT_MS);
    wait_until(f, "etcd's answer, kept back", is_withheld);
    cut(f);
    wait_until(f, "the outcome", is_answered);
    assert_int_equal(f->code, LH_ERR_UNKNOWN_OUTCOME);
    was_sent_once(f);
    fixture_free(f);
}

static void the_connection_is_lost(void **state)
{
    (void)state;
    connection_lost(plain, 1);
}

/* The other endpoint is as good as the one that was lost. */
static void and_there_is_another_endpoint(void **state)
{
    (void)state;
    connection_lost(plain, 2);
}

/* With a token: that is what a call may be sent again for. */
static void and_there_is_a_token(void **state)
{
    (void)state;
    connection_lost(with_users, 2);
}

static void deadline_passes(EtcdProcess *process, guint endpoints)
{
    Fixture *f = fixture_new(process, endpoints);
    put(f, f->etcd, f->key, 1500);
    wait_until(f, "the outcome", is_answered);
    assert_int_equal(f->code, LH_ERR_UNKNOWN_OUTCOME);
    assert_true(is_withheld(f));
    was_sent_once(f);
    fixture_free(f);
}

static void the_deadline_passes(void **state)
{
    (void)state;
    deadline_passes(plain, 1);
}

static void and_another_endpoint_is_asked(void **state)
{
    (void)state;
    deadline_passes(with_users, 2);
}

/* Nothing was sent: that is certain, and said so. */
static void without_a_connection(void **state)
{
    (void)state;
    Fixture *f = fixture_new(plain, 2);
    for (guint i = 0; i < RELAYS; i++)
        relay_refuse(f->relays[i], "");
    /* The first may be handed to a connection that was just closed. */
    do {
        put(f, f->etcd, f->key, 300);
        wait_until(f, "the outcome", is_answered);
    } while (f->code == LH_ERR_UNKNOWN_OUTCOME);
    assert_int_equal(f->code, LH_ERR_UNAVAILABLE);
    for (guint i = 0; i < RELAYS; i++)
        relay_refuse(f->relays[i], NULL);
    g_autofree char *later = g_strdup_printf("/once/%u/later", fixtures);
    must_put(f, f->etcd, later);
    assert_int_equal(relay_seen(f->relays[0]) + relay_seen(f->relays[1]), 0);
    assert_int_equal(version_of(f, f->key), 0);
    fixture_free(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_connection_is_lost),
        cmocka_unit_test(and_there_is_another_endpoint),
        cmocka_unit_test(and_there_is_a_token),
        cmocka_unit_test(the_deadline_passes),
        cmocka_unit_test(and_another_endpoint_is_asked),
        cmocka_unit_test(without_a_connection),
    };
    g_autoptr(GError) error = NULL;
    lh_log_setup(g_getenv("LEASEHOLD_TEST_LOG") != NULL ? LH_LOG_DEBUG : LH_LOG_ERROR, LH_LOG_TEXT);
    plain = etcd_process_new(NULL, &error);
    with_users = plain != NULL ? etcd_process_new_with(
                                     &(EtcdProcessOptions){.root_password = PASSWORD}, &error)
                               : NULL;
    if (with_users == NULL) {
        printf("1..0 # SKIP %s\n", error->message);
        etcd_process_free(plain);
        return error->code == LH_ERR_NOT_FOUND ? 77 : 1;
    }
    cmocka_set_test_filter(g_getenv("LEASEHOLD_TEST_ONLY"));
    int failed = cmocka_run_group_tests_name("etcd-once", tests, NULL, NULL);
    etcd_process_free(plain);
    etcd_process_free(with_users);
    return failed;
}
