/*
 * tests/fakes/fake_etcd: the faults of a client's network and of its machine, which no real etcd
 * can be asked to have (what both have in common is tests/conformance/).
 */
#include "world.h"

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

/* A request caught in a cut: late or never. Over many seeds both happen, after the deadline too. */
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
    };
    return cmocka_run_group_tests_name("fake-faults", tests, NULL, NULL);
}
