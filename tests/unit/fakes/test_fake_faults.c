/*
 * tests/fakes/fake_etcd: the faults, which no real etcd can be asked to have (what both have in common
 * is tests/conformance/), the history, and that a seed is a run.
 */
#include "base/errors.h"
#include "tests/fakes/env_sim.h"
#include "tests/fakes/fake_etcd.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

typedef struct {
    SimWorld *world;
    FakeEtcd *server;
    LhEnv *env;
    LhEtcd *etcd;
} World;

static World world_new(guint64 seed, const FakeEtcdOptions *options)
{
    World w = {.world = sim_world_new(seed)};
    w.server = fake_etcd_new(sim_machine_new(w.world, "etcd"), options);
    w.env = sim_machine_new(w.world, "client");
    w.etcd = fake_etcd_connect(w.server, w.env, "client");
    return w;
}

static void world_free(World *w)
{
    lh_etcd_free(w->etcd);
    fake_etcd_free(w->server);
    sim_world_free(w->world);
}

static void pass(World *w, gint64 ms)
{
    sim_world_run_until(w->world, sim_world_now_ms(w->world) + ms);
}

typedef struct {
    guint times;
    int error;
    gint64 ttl_s, lease;
    gint64 at_ms;
    World *world;
} Heard;

static void hear(Heard *heard, const GError *error)
{
    heard->times++;
    heard->error = error != NULL ? error->code : -1;
    heard->at_ms = sim_world_now_ms(heard->world->world);
}

static void on_txn(const LhTxnReply *reply, const GError *error, gpointer data)
{
    hear(data, error);
    assert_true((reply != NULL) == (error == NULL));
}

static void on_range(const LhRangeReply *reply, const GError *error, gpointer data)
{
    hear(data, error);
    assert_true((reply != NULL) == (error == NULL));
}

static void on_lease(gint64 lease, gint64 ttl_s, const GError *error, gpointer data)
{
    hear(data, error);
    ((Heard *)data)->lease = lease;
    ((Heard *)data)->ttl_s = ttl_s;
}

static void start_put(World *w, Heard *heard, const char *key)
{
    const LhTxnOp op = lh_txn_put(key, "v", 0);
    const LhCompare compare = lh_compare_mod("/none", 0);
    const LhTxnRequest request = {.compares = &compare,
                                  .n_compares = 1,
                                  .success = &op,
                                  .n_success = 1};
    *heard = (Heard){.world = w};
    lh_etcd_txn(w->etcd, &request, on_txn, heard);
}

static void start_get(World *w, Heard *heard)
{
    const LhRangeRequest request = {.key = "/a"};
    *heard = (Heard){.world = w};
    lh_etcd_range(w->etcd, &request, on_range, heard);
}

static const FakeCommit *last_commit(World *w)
{
    gsize n = fake_etcd_history_len(w->server);
    assert_true(n > 0);
    return fake_etcd_history_at(w->server, n - 1);
}

static void fault_refused_and_overloaded_do_nothing(void **state)
{
    World w = world_new(1, NULL);
    Heard write;
    Heard read;
    fake_etcd_client_fault_next(w.etcd, FAKE_FAULT_REFUSED, 2);
    start_put(&w, &write, "/a");
    start_get(&w, &read);
    assert_int_equal(write.times, 0);
    pass(&w, 30000);
    assert_int_equal(write.error, LH_ERR_UNAVAILABLE);
    assert_int_equal(read.error, LH_ERR_UNAVAILABLE);
    assert_true(write.at_ms < 10);
    fake_etcd_client_fault_next(w.etcd, FAKE_FAULT_OVERLOADED, 1);
    start_put(&w, &write, "/a");
    pass(&w, 30000);
    assert_int_equal(write.error, LH_ERR_OVERLOADED);
    assert_int_equal(fake_etcd_revision(w.server), 1);
    start_put(&w, &write, "/a"); /* the next one is well */
    pass(&w, 100);
    assert_int_equal(write.error, -1);
    assert_int_equal(fake_etcd_revision(w.server), 2);
    world_free(&w);
}

static void fault_request_lost(void **state)
{
    for (guint64 seed = 1; seed <= 10; seed++) {
        World w = world_new(seed, NULL);
        Heard write;
        Heard read;
        fake_etcd_client_fault_next(w.etcd, FAKE_FAULT_REQUEST_LOST, 2);
        start_put(&w, &write, "/a");
        start_get(&w, &read);
        pass(&w, 60000);
        assert_int_equal(write.times, 1);
        assert_int_equal(write.error, LH_ERR_UNKNOWN_OUTCOME);
        assert_int_equal(read.error, LH_ERR_UNAVAILABLE);
        assert_true(write.at_ms <= LH_ETCD_DEADLINE_MS);
        assert_int_equal(fake_etcd_history_len(w.server), 0);
        world_free(&w);
    }
}

static void fault_reply_lost_commits_now(void **state)
{
    for (guint64 seed = 1; seed <= 10; seed++) {
        World w = world_new(seed, NULL);
        Heard write;
        fake_etcd_client_fault_next(w.etcd, FAKE_FAULT_REPLY_LOST, 1);
        start_put(&w, &write, "/a");
        pass(&w, 4);
        assert_int_equal(fake_etcd_revision(w.server), 2);
        assert_false(last_commit(&w)->late);
        pass(&w, 60000);
        assert_int_equal(write.times, 1);
        assert_int_equal(write.error, LH_ERR_UNKNOWN_OUTCOME);
        world_free(&w);
    }
}

static void fault_late_commit_lands_after_the_caller_was_told(void **state)
{
    for (guint64 seed = 1; seed <= 20; seed++) {
        World w = world_new(seed, NULL);
        Heard write;
        fake_etcd_client_fault_next(w.etcd, FAKE_FAULT_LATE_COMMIT, 1);
        start_put(&w, &write, "/a");
        while (write.times == 0) {
            assert_true(sim_world_step(w.world));
        }
        assert_int_equal(write.error, LH_ERR_UNKNOWN_OUTCOME);
        assert_int_equal(fake_etcd_revision(w.server), 1);
        pass(&w, 20000 + 10);
        assert_int_equal(fake_etcd_revision(w.server), 2);
        assert_true(last_commit(&w)->late);
        assert_int_equal(write.times, 1);
        world_free(&w);
    }
}

/* The client is gone (kill -9); what it sent is not. */
static void fault_late_commit_outlives_its_client(void **state)
{
    World w = world_new(3, NULL);
    Heard write;
    fake_etcd_client_fault_next(w.etcd, FAKE_FAULT_LATE_COMMIT, 1);
    start_put(&w, &write, "/a");
    pass(&w, 1);
    sim_machine_crash(w.env);
    lh_etcd_free(w.etcd);
    lh_env_free(w.env);
    pass(&w, 40000);
    assert_int_equal(fake_etcd_revision(w.server), 2);
    assert_true(last_commit(&w)->late);
    assert_string_equal(last_commit(&w)->client, "client");
    assert_true(write.times <= 1);
    fake_etcd_free(w.server);
    sim_world_free(w.world);
}

static void fault_rates_are_met(void **state)
{
    World w = world_new(5, NULL);
    const FakeFaultRates rates = {.refused = 1000, .reply_lost = 1000, .late_commit = 1000};
    fake_etcd_client_fault_rates(w.etcd, &rates);
    Heard heard[1000];
    guint failed = 0;
    for (guint i = 0; i < 1000; i++) {
        start_put(&w, &heard[i], "/a");
    }
    pass(&w, 60000);
    for (guint i = 0; i < 1000; i++) {
        assert_int_equal(heard[i].times, 1);
        failed += heard[i].error != -1;
    }
    const FakeEtcdStats *stats = fake_etcd_stats(w.server);
    assert_in_range(failed, 200, 400);
    assert_in_range(stats->refused, 50, 150);
    assert_in_range(stats->replies_lost, 50, 150);
    assert_in_range(stats->late_commits, 50, 150);
    assert_int_equal(stats->txns, 1000 - stats->refused);
    world_free(&w);
}

/* ---- cuts ---- */

typedef struct {
    World *world;
    LhEtcdStream *stream;
    guint created, events, closed, progress;
    int error;
    gint64 closed_at_ms;
} Stream;

static void on_reply(const LhWatchReply *reply, gpointer data)
{
    Stream *stream = data;
    stream->created += reply->created;
    stream->progress += reply->progress;
    stream->events += (guint)reply->n_events;
}

static void on_closed(const GError *error, gpointer data)
{
    Stream *stream = data;
    stream->closed++;
    stream->error = error->code;
    stream->closed_at_ms = sim_world_now_ms(stream->world->world);
}

static void start_watch(World *w, Stream *stream)
{
    const LhWatchRequest request = {.key = "/", .range_end = "0"};
    *stream = (Stream){.world = w};
    stream->stream = w->etcd->v->watch(w->etcd, &request, on_reply, on_closed, stream);
}

static void cut_short_is_survived_by_streams(void **state)
{
    World w = world_new(1, NULL);
    Stream stream;
    start_watch(&w, &stream);
    pass(&w, 10);
    assert_int_equal(stream.created, 1);
    fake_etcd_client_cut(w.etcd, FAKE_CUT_BOTH);
    fake_etcd_put(w.server, "/a", "1", 0);
    fake_etcd_put(w.server, "/a", "2", 0);
    pass(&w, 9000);
    assert_int_equal(stream.events, 0);
    fake_etcd_client_cut(w.etcd, FAKE_CUT_NONE);
    pass(&w, 20000);
    assert_int_equal(stream.events, 2);
    assert_int_equal(stream.closed, 0);
    w.etcd->v->watch_close(w.etcd, stream.stream);
    world_free(&w);
}

static void cut_long_closes_streams_and_refuses_calls(void **state)
{
    World w = world_new(1, NULL);
    Stream stream;
    Heard write;
    start_watch(&w, &stream);
    pass(&w, 10);
    gint64 cut_at = sim_world_now_ms(w.world);
    fake_etcd_client_cut(w.etcd, FAKE_CUT_BOTH);
    fake_etcd_put(w.server, "/a", "1", 0);
    start_put(&w, &write, "/b");
    pass(&w, 16000);
    assert_int_equal(stream.closed, 1);
    assert_int_equal(stream.error, LH_ERR_UNAVAILABLE);
    assert_in_range(stream.closed_at_ms - cut_at, 10000, 15100);
    assert_int_equal(stream.events, 0);
    assert_int_equal(write.error, LH_ERR_UNKNOWN_OUTCOME);
    gint64 sent = sim_world_now_ms(w.world);
    start_put(&w, &write, "/b");
    pass(&w, 100);
    assert_int_equal(write.error, LH_ERR_UNAVAILABLE);
    assert_true(write.at_ms - sent < 10);
    start_watch(&w, &stream);
    pass(&w, 100);
    assert_int_equal(stream.closed, 1);
    fake_etcd_client_cut(w.etcd, FAKE_CUT_NONE);
    pass(&w, 2100);
    start_put(&w, &write, "/b");
    pass(&w, 100);
    assert_int_equal(write.error, -1);
    assert_string_equal(fake_etcd_get(w.server, "/b", 0)->value, "v");
    world_free(&w);
}

/* A request caught in a cut: late or never. Over many seeds both happen, also after the deadline. */
static void cut_requests_arrive_late_or_never(void **state)
{
    guint late = 0;
    guint never = 0;
    for (guint64 seed = 1; seed <= 40; seed++) {
        World w = world_new(seed, NULL);
        Heard write;
        fake_etcd_client_cut(w.etcd, FAKE_CUT_REQUESTS);
        start_put(&w, &write, "/a");
        pass(&w, 7000);
        assert_int_equal(write.error, LH_ERR_UNKNOWN_OUTCOME);
        assert_int_equal(fake_etcd_history_len(w.server), 0);
        fake_etcd_client_cut(w.etcd, FAKE_CUT_NONE);
        pass(&w, 1000);
        if (fake_etcd_history_len(w.server) > 0) {
            late++;
            assert_true(last_commit(&w)->late);
        } else {
            never++;
        }
        assert_int_equal(write.times, 1);
        world_free(&w);
    }
    assert_true(late >= 5 && never >= 5);
}

static void cut_of_replies_only(void **state)
{
    World w = world_new(1, NULL);
    Heard write;
    fake_etcd_client_cut(w.etcd, FAKE_CUT_REPLIES);
    start_put(&w, &write, "/a");
    pass(&w, 10);
    assert_int_equal(fake_etcd_revision(w.server), 2);
    assert_int_equal(write.times, 0);
    fake_etcd_client_cut(w.etcd, FAKE_CUT_NONE); /* in time: the reply still comes */
    pass(&w, 10);
    assert_int_equal(write.error, -1);
    fake_etcd_client_cut(w.etcd, FAKE_CUT_REPLIES);
    start_put(&w, &write, "/a");
    pass(&w, 6000);
    assert_int_equal(write.error, LH_ERR_UNKNOWN_OUTCOME);
    assert_int_equal(fake_etcd_revision(w.server), 3);
    world_free(&w);
}

static void cut_and_cancelled_never_arrives(void **state)
{
    for (guint64 seed = 1; seed <= 10; seed++) {
        World w = world_new(seed, NULL);
        const LhTxnOp op = lh_txn_put("/a", "v", 0);
        const LhTxnRequest request = {.success = &op, .n_success = 1};
        Heard heard = {.world = &w};
        fake_etcd_client_cut(w.etcd, FAKE_CUT_REQUESTS);
        LhCallId call = lh_etcd_txn(w.etcd, &request, on_txn, &heard);
        lh_etcd_cancel(w.etcd, &call);
        pass(&w, 1000);
        assert_int_equal(fake_etcd_history_len(w.server), 0);
        assert_int_equal(heard.times, 0);
        world_free(&w);
    }
}

static void reset_fails_what_is_in_flight(void **state)
{
    guint applied = 0;
    for (guint64 seed = 1; seed <= 20; seed++) {
        World w = world_new(seed, NULL);
        Heard write;
        Stream stream;
        start_watch(&w, &stream);
        pass(&w, 10);
        start_put(&w, &write, "/a");
        fake_etcd_client_reset(w.etcd);
        pass(&w, 100);
        assert_int_equal(write.error, LH_ERR_UNKNOWN_OUTCOME);
        assert_int_equal(stream.closed, 1);
        applied += fake_etcd_revision(w.server) > 1;
        start_put(&w, &write, "/b");
        pass(&w, 100);
        assert_int_equal(write.error, -1);
        world_free(&w);
    }
    assert_in_range(applied, 3, 17);
}

/* ---- machines ---- */

static void paused_client_finds_replies_and_deadlines(void **state)
{
    guint in_time = 0;
    guint too_late = 0;
    for (guint64 seed = 1; seed <= 20; seed++) {
        World w = world_new(seed, NULL);
        Heard write;
        start_put(&w, &write, "/a");
        sim_machine_pause(w.env);
        pass(&w, 30000);
        assert_int_equal(write.times, 0);
        assert_int_equal(fake_etcd_revision(w.server), 2);
        sim_machine_resume(w.env);
        pass(&w, 1);
        assert_int_equal(write.times, 1);
        in_time += write.error == -1;
        too_late += write.error == LH_ERR_UNKNOWN_OUTCOME;
        world_free(&w);
    }
    assert_true(in_time > 0 && too_late > 0);
    assert_int_equal(in_time + too_late, 20);
}

/* ---- the server ---- */

static gint64 grant(World *w, gint64 ttl_s)
{
    Heard heard = {.world = w};
    w->etcd->v->lease_grant(w->etcd, ttl_s, 5000, on_lease, &heard);
    pass(w, 10);
    assert_int_equal(heard.error, -1);
    return heard.lease;
}

static void elect_extends_leases_and_holds_requests(void **state)
{
    World w = world_new(1, NULL);
    Heard write;
    Stream stream;
    start_watch(&w, &stream);
    gint64 lease = grant(&w, 3);
    pass(&w, 2500);
    fake_etcd_elect(w.server, 3000);
    start_put(&w, &write, "/a");
    pass(&w, 2900);
    assert_int_equal(write.times, 0);
    assert_true(fake_etcd_lease_exists(w.server, lease)); /* overdue, but nobody may revoke it */
    pass(&w, 200);
    assert_int_equal(write.error, -1);
    pass(&w, 3800);
    assert_true(fake_etcd_lease_exists(w.server, lease)); /* TTL + 1 s from the election */
    pass(&w, 900);
    assert_false(fake_etcd_lease_exists(w.server, lease));
    assert_int_equal(stream.closed, 0);
    fake_etcd_elect(w.server, 6000);
    pass(&w, 4100);
    assert_int_equal(stream.closed, 1); /* hasleader */
    start_watch(&w, &stream);
    pass(&w, 100);
    assert_int_equal(stream.closed, 1);
    pass(&w, 2000);
    start_watch(&w, &stream);
    pass(&w, 100);
    assert_int_equal(stream.created, 1);
    world_free(&w);
}

static void freeze_expires_leases_at_the_thaw(void **state)
{
    World w = world_new(1, NULL);
    Heard alive = {.world = &w};
    gint64 lease = grant(&w, 3);
    fake_etcd_put(w.server, "/a", "", lease);
    fake_etcd_freeze(w.server);
    w.etcd->v->lease_keepalive(w.etcd, lease, 60000, on_lease, &alive);
    pass(&w, 8000);
    assert_int_equal(alive.times, 0);
    assert_non_null(fake_etcd_get(w.server, "/a", 0));
    fake_etcd_thaw(w.server);
    pass(&w, 600);
    assert_null(fake_etcd_get(w.server, "/a", 0));
    assert_int_equal(alive.error, -1);
    assert_int_equal(alive.ttl_s, 0);
    assert_int_equal(last_commit(&w)->cause, FAKE_BY_EXPIRY);
    assert_int_equal(last_commit(&w)->lease, lease);
    world_free(&w);
}

static void restore_goes_back_in_time(void **state)
{
    World w = world_new(1, NULL);
    Stream stream;
    gint64 lease = grant(&w, 60);
    fake_etcd_put(w.server, "/kept", "old", lease);
    fake_etcd_put(w.server, "/gone", "x", 0);
    gint64 then = fake_etcd_revision(w.server);
    guint64 cluster = fake_etcd_cluster_id(w.server);
    FakeEtcdBackup *backup = fake_etcd_backup(w.server);
    fake_etcd_put(w.server, "/kept", "new", 0);
    fake_etcd_delete(w.server, "/gone", NULL);
    fake_etcd_put(w.server, "/late", "x", 0);
    fake_etcd_compact(w.server, fake_etcd_revision(w.server));
    start_watch(&w, &stream);
    pass(&w, 10);
    for (guint round = 1; round <= 2; round++) {
        fake_etcd_restore(w.server, backup);
        pass(&w, 3000);
        assert_int_equal(stream.closed, 1);
        assert_int_equal(fake_etcd_timeline(w.server), round);
        assert_int_equal(fake_etcd_revision(w.server), then);
        assert_true(fake_etcd_cluster_id(w.server) == cluster);
        assert_string_equal(fake_etcd_get(w.server, "/kept", 0)->value, "old");
        assert_non_null(fake_etcd_get(w.server, "/gone", 0));
        assert_null(fake_etcd_get(w.server, "/late", 0));
        assert_true(fake_etcd_lease_exists(w.server, lease));
        assert_int_equal(fake_etcd_put(w.server, "/late", "y", 0), then + 1);
        assert_int_equal(last_commit(&w)->timeline, round);
        assert_true(fake_etcd_revoke(w.server, lease));
        assert_null(fake_etcd_get(w.server, "/kept", 0));
    }
    assert_int_equal(fake_etcd_history_len(w.server), 2 + 3 + 2 + 2);
    fake_etcd_backup_free(backup);
    world_free(&w);
}

static void nospace_may_commit_all_the_same(void **state)
{
    World w = world_new(1, NULL);
    Heard write;
    fake_etcd_set_nospace(w.server, TRUE, 1);
    start_put(&w, &write, "/a");
    pass(&w, 10);
    assert_int_equal(write.error, LH_ERR_NO_SPACE);
    assert_int_equal(fake_etcd_revision(w.server), 2);
    start_put(&w, &write, "/b");
    pass(&w, 10);
    assert_int_equal(write.error, LH_ERR_NO_SPACE);
    assert_int_equal(fake_etcd_revision(w.server), 2);
    world_free(&w);
}

/* ---- history ---- */

static void count_commit(const FakeCommit *commit, gpointer data)
{
    assert_true(commit->n_events > 0);
    (*(guint *)data)++;
}

static void history_tells_who_and_why(void **state)
{
    World w = world_new(1, NULL);
    guint commits = 0;
    Heard write;
    fake_etcd_on_commit(w.server, count_commit, &commits);
    start_put(&w, &write, "/a");
    pass(&w, 10);
    const FakeCommit *commit = last_commit(&w);
    assert_int_equal(commit->cause, FAKE_BY_TXN);
    assert_int_equal(commit->revision, 2);
    assert_string_equal(commit->client, "client");
    assert_true(commit->succeeded);
    assert_int_equal(commit->n_compares, 1);
    assert_string_equal(commit->compares[0].key, "/none");
    assert_int_equal(commit->compares[0].target, LH_CMP_MOD);
    assert_null(fake_commit_prev(commit, 0));
    fake_etcd_put(w.server, "/a", "second", 0);
    commit = last_commit(&w);
    assert_int_equal(commit->cause, FAKE_BY_OPERATOR);
    assert_string_equal(fake_commit_event(commit, 0)->kv.value, "second");
    assert_string_equal(fake_commit_prev(commit, 0)->value, "v");
    assert_string_equal(fake_etcd_get(w.server, "/a", 2)->value, "v");
    fake_etcd_compact(w.server, 3);
    assert_string_equal(fake_commit_prev(commit, 0)->value, "v"); /* compaction spares the history */
    assert_int_equal(fake_etcd_delete(w.server, "/none", NULL), 0);
    assert_int_equal(fake_etcd_history_len(w.server), 2);
    assert_int_equal(fake_etcd_delete(w.server, "/", "0"), 1);
    assert_true(fake_commit_event(last_commit(&w), 0)->is_delete);
    assert_int_equal(commits, 3);
    fake_etcd_history_trim(w.server, 1);
    assert_int_equal(fake_etcd_history_len(w.server), 1);
    assert_int_equal(fake_etcd_history_at(w.server, 0)->revision, 4);
    world_free(&w);
}

static void compaction_by_itself_keeps_the_newest(void **state)
{
    const FakeEtcdOptions options = {.auto_compact_revisions = 10};
    World w = world_new(1, &options);
    for (guint i = 0; i < 5000; i++) {
        g_autofree char *key = g_strdup_printf("/%u", i % 7);
        if (i % 3 == 0) {
            fake_etcd_delete(w.server, key, NULL);
        } else {
            fake_etcd_put(w.server, key, key, 0);
        }
        gint64 behind = fake_etcd_revision(w.server) - fake_etcd_compacted(w.server);
        assert_true(behind <= 20);
    }
    assert_true(fake_etcd_compacted(w.server) > 3000);
    gint64 now = fake_etcd_revision(w.server);
    for (guint i = 0; i < 7; i++) {
        g_autofree char *key = g_strdup_printf("/%u", i);
        const LhKv *kv = fake_etcd_get(w.server, key, 0);
        const LhKv *then = fake_etcd_get(w.server, key, now);
        assert_ptr_equal(kv, then);
    }
    world_free(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fault_refused_and_overloaded_do_nothing),
        cmocka_unit_test(fault_request_lost),
        cmocka_unit_test(fault_reply_lost_commits_now),
        cmocka_unit_test(fault_late_commit_lands_after_the_caller_was_told),
        cmocka_unit_test(fault_late_commit_outlives_its_client),
        cmocka_unit_test(fault_rates_are_met),
        cmocka_unit_test(cut_short_is_survived_by_streams),
        cmocka_unit_test(cut_long_closes_streams_and_refuses_calls),
        cmocka_unit_test(cut_requests_arrive_late_or_never),
        cmocka_unit_test(cut_of_replies_only),
        cmocka_unit_test(cut_and_cancelled_never_arrives),
        cmocka_unit_test(reset_fails_what_is_in_flight),
        cmocka_unit_test(paused_client_finds_replies_and_deadlines),
        cmocka_unit_test(elect_extends_leases_and_holds_requests),
        cmocka_unit_test(freeze_expires_leases_at_the_thaw),
        cmocka_unit_test(restore_goes_back_in_time),
        cmocka_unit_test(nospace_may_commit_all_the_same),
        cmocka_unit_test(history_tells_who_and_why),
        cmocka_unit_test(compaction_by_itself_keeps_the_newest),
    };
    return cmocka_run_group_tests_name("fake-faults", tests, NULL, NULL);
}
