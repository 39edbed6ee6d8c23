/*
 * The transport on three real members that are killed, frozen and left without a leader, under load:
 * what was said of each write is true, a watch misses and repeats nothing, a lease of 5 s is kept.
 * Without an etcd: skipped.
 */
/* links: fakes */
/* suite: slow */
/* suite: waits */
#include "base/errors.h"
#include "base/log.h"
#include "etcd/lease.h"
#include "etcd/transport_grpc.h"
#include "etcd/watcher.h"
#include "tests/fakes/etcd_cluster.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define FLIGHT  16
#define WAIT_MS 30000
#define PREFIX  "/failover/"

static EtcdCluster *cluster;
static guint fixtures; /* each has a prefix of its own */

typedef struct Fixture Fixture;

/* Each is sent once, under a key of its own. */
typedef struct {
    Fixture *f;
    char *key;
    int error;   /* LhErrorCode; -1: none, it was done */
    guint seen;  /* by the watch */
    gint64 at;   /* the revision of the last of these */
    gint64 read; /* its key's version at the end */
} Write;

struct Fixture {
    LhEnv *env;
    LhEtcd *etcd;
    LhLease *lease;
    LhWatcher *watcher;
    GPtrArray *writes;
    GHashTable *by_key;
    guint in_flight, done, refused, unknown;
    gboolean stopping, opened, checked;
    gint64 listed_at; /* the revision of the list at the end */
    guint granted, doubts, lost;
    LhTimer *pause;
};

static gboolean on_deadline(gpointer data)
{
    *(gboolean *)data = TRUE;
    return G_SOURCE_CONTINUE;
}

typedef gboolean (*Condition)(Fixture *f, guint n);

static gboolean run_until(Fixture *f, Condition condition, guint n, guint within_ms)
{
    gboolean over = FALSE;
    guint timeout = g_timeout_add(within_ms, on_deadline, &over);
    while (!condition(f, n) && !over)
        g_main_context_iteration(NULL, TRUE);
    g_source_remove(timeout);
    return condition(f, n);
}

static void wait_until(Fixture *f, const char *what, Condition condition, guint n)
{
    if (!run_until(f, condition, n, WAIT_MS))
        fail_msg("not within %d ms: %s", WAIT_MS, what);
}

static gboolean never(Fixture *f, guint n)
{
    (void)f, (void)n;
    return FALSE;
}

/* --- load --- */

static void send_writes(Fixture *f);

static void on_pause(gpointer data)
{
    Fixture *f = data;
    f->pause = NULL;
    send_writes(f);
}

static void on_written(const LhTxnReply *reply, const GError *error, gpointer data)
{
    Write *write = data;
    Fixture *f = write->f;
    f->in_flight--;
    write->error = error != NULL ? error->code : -1;
    if (reply != NULL)
        f->done++;
    else if (error->code == LH_ERR_UNAVAILABLE)
        f->refused++;
    else if (error->code == LH_ERR_UNKNOWN_OUTCOME)
        f->unknown++;
    else
        fail_msg("%s", error->message);
    /* Always some on the way, so that a kill finds them anywhere; but failures are not hurried. */
    if (error == NULL)
        send_writes(f);
    else if (f->pause == NULL)
        f->pause = lh_timer_in(f->env, 5, on_pause, f);
}

static void send_writes(Fixture *f)
{
    while (f->in_flight < FLIGHT && !f->stopping) {
        Write *write = g_new0(Write, 1);
        write->f = f;
        write->key = g_strdup_printf(PREFIX "%u/%06u", fixtures, f->writes->len);
        g_ptr_array_add(f->writes, write);
        g_hash_table_insert(f->by_key, write->key, write);
        LhTxnOp op = lh_txn_put(write->key, "x", 0);
        f->in_flight++;
        lh_etcd_txn(f->etcd, &(LhTxnRequest){.success = &op, .n_success = 1}, on_written, write);
    }
}

static void write_free(gpointer data)
{
    g_free(((Write *)data)->key);
    g_free(data);
}

/* --- watch and lease --- */

static void on_events(const LhEtcdEvent *events, gsize n, gint64 revision, gpointer data)
{
    Fixture *f = data;
    for (gsize i = 0; i < n; i++) {
        Write *write = g_hash_table_lookup(f->by_key, events[i].kv.key);
        assert_non_null(write);
        write->seen++;
        write->at = revision;
    }
}

static void on_opened(gpointer data)
{
    ((Fixture *)data)->opened = TRUE;
}

static void on_watch_lost(gint64 compact_revision, gpointer data)
{
    (void)compact_revision, (void)data;
    fail_msg("the watch is lost");
}

static void on_granted(gint64 lease, gint64 ttl_s, gpointer data)
{
    (void)lease, (void)ttl_s;
    ((Fixture *)data)->granted++;
}

static void on_doubt(gpointer data)
{
    ((Fixture *)data)->doubts++;
}

static void on_lost(gpointer data)
{
    ((Fixture *)data)->lost++;
}

/* --- conditions --- */

static gboolean is_ready(Fixture *f, guint n)
{
    (void)n;
    return f->opened && f->granted > 0 && f->done > 0;
}

static gboolean has_done(Fixture *f, guint n)
{
    return f->done >= n;
}

static gboolean is_quiet(Fixture *f, guint n)
{
    (void)n;
    return f->in_flight == 0;
}

static gboolean has_failed(Fixture *f, guint n)
{
    return f->unknown + f->refused >= n;
}

static gboolean is_checked(Fixture *f, guint n)
{
    (void)n;
    return f->checked;
}

static gboolean has_seen_all(Fixture *f, guint n)
{
    (void)n;
    for (guint i = 0; i < f->writes->len; i++) {
        const Write *write = f->writes->pdata[i];
        if (write->read > 0 && write->seen == 0)
            return FALSE;
    }
    return TRUE;
}

/* --- the fixture --- */

static int setup(void **state)
{
    static const LhLeaseFuncs lease_funcs = {
        .granted = on_granted, .doubt = on_doubt, .lost = on_lost};
    static const LhWatcherFuncs watcher_funcs = {
        .opened = on_opened, .events = on_events, .lost = on_watch_lost};
    Fixture *f = g_new0(Fixture, 1);
    g_autoptr(GError) error = NULL;
    const LhEtcdOptions options = {.endpoints = etcd_cluster_endpoints(cluster)};
    fixtures++;
    f->env = lh_env_glib_new(NULL);
    f->etcd = lh_etcd_grpc_new(&options, NULL, &error);
    assert_non_null(f->etcd);
    f->writes = g_ptr_array_new_with_free_func(write_free);
    f->by_key = g_hash_table_new(g_str_hash, g_str_equal);
    g_autofree char *prefix = g_strdup_printf(PREFIX "%u/", fixtures);
    g_autofree char *end = lh_etcd_prefix_end(prefix);
    f->lease = lh_lease_start(f->env, f->etcd, 5, &lease_funcs, f);
    f->watcher = lh_watcher_start(
        f->env, f->etcd, &(LhWatcherOptions){.key = prefix, .range_end = end}, &watcher_funcs, f);
    while (!f->opened)
        g_main_context_iteration(NULL, TRUE);
    send_writes(f);
    wait_until(f, "the start", is_ready, 0);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    Fixture *f = *state;
    lh_lease_free(f->lease);
    lh_watcher_free(f->watcher);
    lh_timer_clear(f->env, &f->pause);
    lh_etcd_free(f->etcd);
    lh_env_free(f->env);
    g_hash_table_unref(f->by_key);
    g_ptr_array_unref(f->writes);
    g_free(f);
    /* A test that failed may have left one down, or frozen. */
    for (guint i = 0; i < etcd_cluster_size(cluster); i++)
        etcd_process_thaw(etcd_cluster_member(cluster, i));
    for (guint i = 0; i < etcd_cluster_size(cluster); i++) {
        if (etcd_process_pid(etcd_cluster_member(cluster, i)) == 0)
            assert_true(etcd_process_spawn(etcd_cluster_member(cluster, i), NULL));
    }
    for (guint i = 0; i < etcd_cluster_size(cluster); i++)
        assert_true(etcd_process_wait(etcd_cluster_member(cluster, i), NULL));
    return 0;
}

static void on_all(const LhRangeReply *reply, const GError *error, gpointer data)
{
    Fixture *f = data;
    if (error != NULL)
        fail_msg("%s", error->message);
    for (gsize i = 0; i < reply->n_kvs; i++) {
        Write *write = g_hash_table_lookup(f->by_key, reply->kvs[i].key);
        assert_non_null(write);
        write->read = reply->kvs[i].version;
    }
    f->listed_at = reply->header.revision;
    f->checked = TRUE;
}

/* Ends the load. Done: it is there, once. Refused: it is not. Unknown: either. And the watch has seen
 * what is there, once; what a frozen member did with an unknown one only after the list comes later. */
static void check_writes(Fixture *f)
{
    f->stopping = TRUE;
    wait_until(f, "the end of all writes", is_quiet, 0);
    g_autofree char *prefix = g_strdup_printf(PREFIX "%u/", fixtures);
    g_autofree char *end = lh_etcd_prefix_end(prefix);
    lh_etcd_range(f->etcd, &(LhRangeRequest){.key = prefix, .range_end = end}, on_all, f);
    wait_until(f, "the list", is_checked, 0);
    wait_until(f, "the watch's events", has_seen_all, 0);
    for (guint i = 0; i < f->writes->len; i++) {
        const Write *write = f->writes->pdata[i];
        if (write->error == -1)
            assert_int_equal(write->read, 1);
        else if (write->error == LH_ERR_UNAVAILABLE)
            assert_int_equal(write->read, 0);
        else
            assert_in_range(write->read, 0, 1);
        if (write->read == 0 && write->at > f->listed_at)
            assert_true(write->seen == 1 && write->error == LH_ERR_UNKNOWN_OUTCOME);
        else
            assert_int_equal(write->seen, write->read);
    }
    fprintf(stderr, "# %u done, %u refused, %u unknown\n", f->done, f->refused, f->unknown);
}

static guint in_use(const Fixture *f)
{
    return etcd_cluster_find(cluster, lh_etcd_grpc_endpoint(f->etcd));
}

static gboolean is_alive(Fixture *f, guint number)
{
    (void)number;
    return lh_lease_alive(f->lease);
}

/* When etcd's leader changes, no member answers keepalives for about 3.3 s, and the last one may have
 * been sent 1.7 s before: doubt is possible, a loss is not, because the next leader gives every lease its
 * whole time anew. */
static void check_lease(Fixture *f)
{
    wait_until(f, "an answer to a keepalive", is_alive, 0);
    assert_int_equal(f->lost, 0);
}

/* While the leader stays, another member is asked in time. */
static void check_no_doubt(Fixture *f)
{
    check_lease(f);
    assert_int_equal(f->doubts, 0);
}

static void restart(guint member)
{
    g_autoptr(GError) error = NULL;
    if (!etcd_process_restart(etcd_cluster_member(cluster, member), &error))
        fail_msg("%s", error->message);
}

/* --- tests --- */

/* The member in use, four times: so one that was down is used again. */
static void members_killed_in_turn(void **state)
{
    Fixture *f = *state;
    for (guint round = 0; round < 4; round++) {
        guint member = in_use(f);
        assert_true(
            etcd_cluster_move_leader(cluster, (member + 1) % etcd_cluster_size(cluster), NULL));
        wait_until(f, "writes", has_done, f->done + 2 * FLIGHT);
        member = in_use(f);
        etcd_process_kill(etcd_cluster_member(cluster, member));
        wait_until(f, "writes through another member", has_done, f->done + 2 * FLIGHT);
        assert_int_not_equal(in_use(f), member);
        restart(member);
    }
    check_lease(f);
    check_writes(f);
    assert_true(f->unknown > 0);
}

static void leader_killed_behind_another_member(void **state)
{
    Fixture *f = *state;
    guint other = (in_use(f) + 1) % etcd_cluster_size(cluster);
    assert_true(etcd_cluster_move_leader(cluster, other, NULL));
    wait_until(f, "writes", has_done, f->done + 2 * FLIGHT);
    etcd_process_kill(etcd_cluster_member(cluster, other));
    run_until(f, never, 0, 7000); /* more than the TTL */
    check_lease(f);
    wait_until(f, "writes under the next leader", has_done, f->done + 2 * FLIGHT);
    check_writes(f);
}

/* The member in use leads: its peers elect another, and do not answer keepalives until then. */
static void leader_in_use_frozen(void **state)
{
    Fixture *f = *state;
    guint member = in_use(f);
    assert_true(etcd_cluster_move_leader(cluster, member, NULL));
    wait_until(f, "writes", has_done, f->done + 2 * FLIGHT);
    member = in_use(f);
    gint64 frozen_us = g_get_monotonic_time();
    etcd_process_freeze(etcd_cluster_member(cluster, member));
    /* What is in flight has 5 s. */
    wait_until(f, "writes through another member", has_done, f->done + 2 * FLIGHT);
    assert_true(g_get_monotonic_time() - frozen_us < 12 * G_USEC_PER_SEC);
    assert_int_not_equal(in_use(f), member);
    run_until(f, never, 0, 1000);
    check_lease(f);
    etcd_process_thaw(etcd_cluster_member(cluster, member));
    check_writes(f);
}

static void note_silence(const char *line, gpointer data)
{
    *(gboolean *)data |= strstr(line, "why=silent") != NULL;
}

/* A watch alone, without any call whose deadline would tell. Pings of HTTP/2 tell too, between 5 and
 * 15 s after the freeze: so which of them it was is looked at. */
static void frozen_under_a_watch(void **state)
{
    Fixture *f = *state;
    f->stopping = TRUE;
    wait_until(f, "the end of all writes", is_quiet, 0);
    guint member = in_use(f);
    guint other = (member + 1) % etcd_cluster_size(cluster);
    assert_true(etcd_cluster_move_leader(cluster, other, NULL));
    etcd_process_freeze(etcd_cluster_member(cluster, member));
    gboolean silent = FALSE;
    lh_log_setup(LH_LOG_DEBUG, LH_LOG_TEXT);
    lh_log_set_sink(note_silence, &silent);
    for (guint i = 0; i < 150 && in_use(f) == member; i++)
        run_until(f, never, 0, 100);
    lh_log_set_sink(NULL, NULL);
    lh_log_setup(LH_LOG_ERROR, LH_LOG_TEXT);
    assert_int_not_equal(in_use(f), member);
    assert_true(silent);
    check_no_doubt(f);
    f->stopping = FALSE;
    send_writes(f);
    wait_until(f, "writes through another member", has_done, f->done + 2 * FLIGHT);
    check_writes(f);
}

/* The member in use is alone: nothing is done, nothing is claimed, and it goes on when the others are
 * back. */
static void without_a_quorum(void **state)
{
    Fixture *f = *state;
    guint member = in_use(f);
    for (guint i = 0; i < etcd_cluster_size(cluster); i++) {
        if (i != member)
            etcd_process_freeze(etcd_cluster_member(cluster, i));
    }
    wait_until(f, "failures", has_failed, f->unknown + f->refused + FLIGHT);
    for (guint i = 0; i < etcd_cluster_size(cluster); i++)
        etcd_process_thaw(etcd_cluster_member(cluster, i));
    wait_until(f, "writes with a quorum", has_done, f->done + 2 * FLIGHT);
    check_writes(f);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(members_killed_in_turn), TEST(leader_killed_behind_another_member),
        TEST(leader_in_use_frozen),   TEST(frozen_under_a_watch),
        TEST(without_a_quorum),
    };
    g_autoptr(GError) error = NULL;
    lh_log_setup(g_getenv("LEASEHOLD_TEST_LOG") != NULL ? LH_LOG_DEBUG : LH_LOG_ERROR, LH_LOG_TEXT);
    cluster = etcd_cluster_new(3, NULL, &error);
    if (cluster == NULL) {
        printf("1..0 # SKIP %s\n", error->message);
        return error->code == LH_ERR_NOT_FOUND ? 77 : 1;
    }
    cmocka_set_test_filter(g_getenv("LEASEHOLD_TEST_ONLY"));
    int failed = cmocka_run_group_tests_name("etcd-failover", tests, NULL, NULL);
    etcd_cluster_free(cluster);
    return failed;
}
