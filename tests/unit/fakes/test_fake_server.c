/*
 * tests/fakes/fake_etcd: the faults and operation of the server (elections, freezes, restores,
 * NOSPACE, compaction) and its history.
 */
#include "world.h"

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

static void stop_drops_what_is_on_the_way(void **state)
{
    World w = world_new(1, NULL);
    Heard late;
    Heard write;
    Heard read;
    fake_etcd_client_fault_next(w.etcd, FAKE_FAULT_LATE_COMMIT, 1);
    start_put(&w, &late, "/late");
    pass(&w, 1);
    start_put(&w, &write, "/a");
    start_get(&w, &read);
    fake_etcd_stop(w.server);
    pass(&w, 100);
    assert_int_equal(write.error, LH_ERR_UNKNOWN_OUTCOME);
    assert_int_equal(read.error, LH_ERR_UNAVAILABLE);
    start_put(&w, &write, "/a");
    pass(&w, 100);
    assert_int_equal(write.error, LH_ERR_UNAVAILABLE);
    fake_etcd_start(w.server);
    pass(&w, 60000);
    assert_int_equal(late.error, LH_ERR_UNKNOWN_OUTCOME);
    assert_int_equal(fake_etcd_history_len(w.server), 0);
    start_put(&w, &write, "/a");
    pass(&w, 100);
    assert_int_equal(write.error, -1);
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
    assert_string_equal(fake_commit_prev(commit, 0)->value,
                        "v"); /* compaction spares the history */
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
    gboolean there[7] = {FALSE};
    for (guint i = 0; i < 5000; i++) {
        g_autofree char *key = g_strdup_printf("/%u", i % 7);
        there[i % 7] = i % 3 != 0;
        if (there[i % 7]) {
            fake_etcd_put(w.server, key, key, 0);
        } else {
            fake_etcd_delete(w.server, key, NULL);
        }
        gint64 behind = fake_etcd_revision(w.server) - fake_etcd_compacted(w.server);
        assert_true(behind <= 20);
    }
    assert_true(fake_etcd_compacted(w.server) > 3000);
    gint64 now = fake_etcd_revision(w.server);
    for (guint i = 0; i < 7; i++) {
        g_autofree char *key = g_strdup_printf("/%u", i);
        const LhKv *kv = fake_etcd_get(w.server, key, 0);
        assert_ptr_equal(kv, fake_etcd_get(w.server, key, now));
        assert_true((kv != NULL) == there[i]);
    }
    world_free(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(elect_extends_leases_and_holds_requests),
        cmocka_unit_test(freeze_expires_leases_at_the_thaw),
        cmocka_unit_test(restore_goes_back_in_time),
        cmocka_unit_test(stop_drops_what_is_on_the_way),
        cmocka_unit_test(nospace_may_commit_all_the_same),
        cmocka_unit_test(history_tells_who_and_why),
        cmocka_unit_test(compaction_by_itself_keeps_the_newest),
    };
    return cmocka_run_group_tests_name("fake-server", tests, NULL, NULL);
}
