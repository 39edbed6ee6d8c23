/*
 * Conformance of calls as such: exactly one answer, cancelling, and what is said when a server is
 * frozen, killed, or full.
 */
#include "suite.h"

static LhTxnRequest one_put(LhTxnOp *op, const char *key)
{
    *op = lh_txn_put(key, "", 0);
    return (LhTxnRequest){.success = op, .n_success = 1};
}

static void call_status(void **state)
{
    put(k("a"), "");
    Answer *a = start_status(LH_ETCD_DEADLINE_MS);
    wait_for(answered, a);
    assert_true(a->ok);
    assert_string_equal(a->status.version, driver->version);
    assert_true(a->status.db_size_bytes > 0);
    assert_int_equal(a->status.leader, a->status.header.member_id);
    assert_int_equal(a->status.header.revision, revision());
    assert_int_equal(a->status.header.cluster_id, get(k("a"), 0)->header.cluster_id);
    assert_false(a->status.alarm_nospace);
    assert_false(a->status.alarm_corrupt);
}

static gboolean all_answered(gpointer data)
{
    Answer **answers = data;
    for (guint i = 0; answers[i] != NULL; i++) {
        if (!answered(answers[i])) {
            return FALSE;
        }
    }
    return TRUE;
}

static void call_many_at_once(void **state)
{
    Answer *answers[201] = {0};
    LhTxnOp op;
    for (guint i = 0; i < 200; i++) {
        g_autofree char *name = g_strdup_printf("many/%u", i / 2);
        const LhTxnRequest request = one_put(&op, k(name));
        const LhRangeRequest look = {.key = k(name)};
        answers[i] = i % 2 == 0 ? start_txn(&request, LH_ETCD_DEADLINE_MS)
                                : start_range(&look, LH_ETCD_DEADLINE_MS);
    }
    wait_for(all_answered, answers);
    let_pass(50);
    for (guint i = 0; i < 200; i++) {
        assert_true(answers[i]->ok);
        assert_int_equal(answers[i]->times, 1);
        for (guint j = 0; j < i; j++) {
            assert_int_not_equal(answers[i]->call, answers[j]->call);
        }
    }
    const LhRangeRequest all = {.key = k("many/"), .range_end = kend("many/")};
    assert_int_equal(range(&all)->count, 100);
}

static void call_cancelled_is_never_answered(void **state)
{
    LhTxnOp op;
    const LhTxnRequest write = one_put(&op, k("a"));
    const LhRangeRequest read = {.key = k("a")};
    Answer *answers[] = {start_txn(&write, 500), start_range(&read, 500), start_grant(60, 500),
                         start_keepalive(77, 500), start_status(500)};
    for (gsize i = 0; i < G_N_ELEMENTS(answers); i++) {
        LhCallId call = answers[i]->call;
        lh_etcd_cancel(driver->etcd, &call);
        assert_int_equal(call, 0);
        lh_etcd_cancel(driver->etcd, &call);
    }
    let_pass(1000);
    for (gsize i = 0; i < G_N_ELEMENTS(answers); i++) {
        assert_int_equal(answers[i]->times, 0);
    }
    Answer *done = get(k("a"), 0);
    LhCallId call = done->call;
    lh_etcd_cancel(driver->etcd, &call); /* it has ended: ignored */
    assert_true(get(k("a"), 0)->ok);
}

/* A server that speaks HTTP/2 to the letter ends the connection, and with it all that is under way, when a
 * call is reset of which it has not seen the beginning. */
static void call_cancelled_at_once_leaves_the_others_alone(void **state)
{
    enum { ROUNDS = 200, CANCELLED = 10 };
    LhTxnOp op;
    const LhTxnRequest write = one_put(&op, k("a"));
    for (guint round = 0; round < ROUNDS; round++) {
        Answer *other = start_txn(&write, LH_ETCD_DEADLINE_MS);
        for (guint i = 0; i < CANCELLED; i++) {
            LhCallId call = start_txn(&write, LH_ETCD_DEADLINE_MS)->call;
            lh_etcd_cancel(driver->etcd, &call);
            unwatch(watch(k("a"), NULL, 0));
        }
        wait_for(answered, other);
        assert_true(other->ok);
    }
}

typedef struct {
    guint times;
} Heard;

static void hear_range(const LhRangeReply *reply, const GError *error, gpointer data)
{
    ((Heard *)data)->times++;
}

static void hear_reply(const LhWatchReply *reply, gpointer data)
{
    ((Heard *)data)->times++;
}

static void hear_closed(const GError *error, gpointer data)
{
    ((Heard *)data)->times++;
}

static void call_of_a_freed_client_is_never_answered(void **state)
{
    Heard heard = {0};
    LhEtcd *other = driver->connect(driver);
    const LhRangeRequest read = {.key = k("a")};
    const LhWatchRequest request = {.key = k("a")};
    lh_etcd_range(other, &read, hear_range, &heard);
    other->v->watch(other, &request, hear_reply, hear_closed, &heard);
    lh_etcd_free(other);
    put(k("a"), "");
    let_pass(200);
    assert_int_equal(heard.times, 0);
}

static void call_to_a_frozen_server_has_its_deadline(void **state)
{
    LhTxnOp op;
    gint64 lease = grant(60);
    const LhTxnRequest write = one_put(&op, k("a"));
    const LhRangeRequest read = {.key = k("a")};
    put(k("a"), ""); /* connected: else nothing would be sent, which is UNAVAILABLE */
    keepalive(lease);
    freeze_server();
    gint64 sent = now_ms();
    Answer *answers[] = {start_txn(&write, 300),
                         start_range(&read, 300),
                         start_grant(60, 300),
                         start_revoke(lease, 300),
                         start_keepalive(lease, 300),
                         start_status(300),
                         NULL};
    wait_for(all_answered, answers);
    assert_true(now_ms() - sent >= 300);
    assert_true(now_ms() - sent < 3000);
    assert_fails(answers[0], LH_ERR_UNKNOWN_OUTCOME);
    assert_fails(answers[1], LH_ERR_UNAVAILABLE);
    assert_fails(answers[2], LH_ERR_UNKNOWN_OUTCOME);
    assert_fails(answers[3], LH_ERR_UNKNOWN_OUTCOME);
    assert_fails(answers[4], LH_ERR_UNAVAILABLE);
    assert_fails(answers[5], LH_ERR_UNAVAILABLE);
    driver->thaw(driver);
    gint64 at = put(k("b"), "");
    assert_true(at > 0);
    for (guint i = 0; answers[i] != NULL; i++) {
        assert_int_equal(answers[i]->times, 1);
    }
}

/* What was sent to a frozen server within its deadline is answered at the thaw. */
static void call_to_a_frozen_server_waits_for_the_thaw(void **state)
{
    LhTxnOp op;
    const LhTxnRequest write = one_put(&op, k("a"));
    put(k("b"), "");
    freeze_server();
    Answer *a = start_txn(&write, 10000);
    let_pass(500);
    assert_int_equal(a->times, 0);
    driver->thaw(driver);
    wait_for(answered, a);
    assert_true(a->ok);
    assert_int_equal(get(k("a"), 0)->n, 1);
}

static void call_watch_survives_a_short_freeze(void **state)
{
    Watching *w = watch_created(k("a"), NULL, 0);
    put(k("a"), "1");
    freeze_server();
    let_pass(1000);
    driver->thaw(driver);
    put(k("a"), "2");
    wait_events(w, 2);
    assert_int_equal(w->closed, 0);
}

static gboolean is_closed(gpointer data)
{
    return ((Watching *)data)->closed > 0;
}

/* Reads until one succeeds: the connection comes back by itself. */
static Answer *read_until_it_works(const char *key)
{
    const LhRangeRequest read = {.key = key};
    for (guint i = 0; i < 100; i++) {
        Answer *a = range(&read);
        if (a->ok) {
            return a;
        }
        assert_fails(a, LH_ERR_UNAVAILABLE);
        let_pass(100);
    }
    fail_msg("the server does not come back");
    return NULL;
}

static void call_after_a_crash_of_the_server(void **state)
{
    gint64 lease = grant(60);
    gint64 at = put_leased(k("a"), "kept", lease);
    guint64 cluster = get(k("a"), 0)->header.cluster_id;
    Watching *w = watch_created(k("a"), NULL, 0);
    driver->restart(driver);
    wait_for(is_closed, w);
    assert_int_equal(w->error, LH_ERR_UNAVAILABLE);
    assert_int_equal(w->closed, 1);
    Answer *a = read_until_it_works(k("a"));
    assert_string_equal(a->kvs[0].value, "kept");
    assert_int_equal(a->kvs[0].mod_rev, at);
    assert_int_equal(a->kvs[0].lease, lease);
    assert_int_equal(a->header.revision, at);
    assert_int_equal(a->header.cluster_id, cluster);
    assert_int_equal(keepalive(lease)->ttl_s, 60);
    Watching *again = watch(k("a"), NULL, at);
    wait_events(again, 1);
    assert_true(drop_lease(lease)->ok);
    wait_events(again, 2);
    assert_true(event_at(again, 1)->is_delete);
}

static void call_lease_is_rearmed_after_a_crash(void **state)
{
    gint64 lease = grant(2);
    put_leased(k("a"), "", lease);
    let_pass(1500);
    driver->restart(driver);
    gint64 up = now_ms();
    Answer *a = read_until_it_works(k("a"));
    assert_int_equal(a->n, 1); /* it would be gone, were it not re-armed */
    Watching *w = watch_created(k("a"), NULL, 0);
    wait_events(w, 1);
    assert_true(now_ms() - up <= 2000 + 1000 + 2000);
}

enum { FLIGHT = 64, ROUNDS = 20 };

static const char *flight_key(guint round, guint i)
{
    g_autofree char *name = g_strdup_printf("flight/%02u/%02u", round, i);
    return k(name);
}

/* FLIGHT puts, each of a key of its own. */
static Answer **take_off(guint round, gint64 deadline_ms)
{
    Answer **answers = scratch((FLIGHT + 1) * sizeof(Answer *));
    for (guint i = 0; i < FLIGHT; i++) {
        LhTxnOp op;
        const LhTxnRequest request = one_put(&op, flight_key(round, i));
        answers[i] = start_txn(&request, deadline_ms);
    }
    return answers;
}

/* OK: it is there. UNAVAILABLE: it is not, and never will be. UNKNOWN_OUTCOME: either. The number of
 * these. */
static guint check_outcomes(guint round, Answer **answers)
{
    guint unknown = 0;
    for (guint i = 0; i < FLIGHT; i++) {
        const Answer *a = answers[i];
        Answer *there = read_until_it_works(flight_key(round, i));
        if (a->ok) {
            assert_int_equal(there->n, 1);
        } else if (a->error == LH_ERR_UNAVAILABLE) {
            if (there->n != 0) {
                fail_msg("'%s' was said of a write that was applied", a->message);
            }
        } else {
            assert_fails(a, LH_ERR_UNKNOWN_OUTCOME);
            unknown++;
        }
    }
    return unknown;
}

/* As often as it takes to catch some in flight. */
static void call_outcomes_are_true_over_a_crash(void **state)
{
    guint unknown = 0;
    for (guint round = 0; round < ROUNDS && unknown == 0; round++) {
        read_until_it_works(k("connected"));
        Answer **answers = take_off(round, 3000);
        wait_for(answered, answers[0]);
        driver->restart(driver);
        wait_for(all_answered, answers);
        unknown += check_outcomes(round, answers);
    }
    assert_true(unknown > 0);
}

static void call_outcomes_are_true_over_a_freeze(void **state)
{
    put(k("connected"), "");
    freeze_server();
    Answer **answers = take_off(0, 500);
    wait_for(all_answered, answers);
    driver->thaw(driver);
    put(k("after"), "");
    let_pass(500);
    assert_true(check_outcomes(0, answers) > 0);
}

static void call_when_there_is_no_space(void **state)
{
    gint64 lease = grant(60);
    gint64 before = put(k("a"), "");
    LhTxnOp op;
    const LhTxnRequest write = one_put(&op, k("a"));
    const LhTxnRequest other_branch = {.failure = &op, .n_failure = 1};
    fill_server();
    Answer *s = start_status(LH_ETCD_DEADLINE_MS);
    wait_for(answered, s);
    assert_true(s->status.alarm_nospace);
    assert_fails(txn(&write), LH_ERR_NO_SPACE);
    assert_fails(txn(&other_branch), LH_ERR_NO_SPACE); /* whichever branch has the put */
    Answer *g = start_grant(60, LH_ETCD_DEADLINE_MS);
    wait_for(answered, g);
    assert_fails(g, LH_ERR_NO_SPACE);
    Answer *a = get(k("a"), 0);
    assert_int_equal(a->kvs[0].mod_rev, before);
    assert_int_equal(keepalive(lease)->ttl_s, 60);
    assert_int_equal(del(k("a"), NULL), before + 1);
    assert_true(drop_lease(lease)->ok);
    driver->set_nospace(driver, FALSE);
    assert_int_equal(put(k("a"), ""), before + 2);
    s = start_status(LH_ETCD_DEADLINE_MS);
    wait_for(answered, s);
    assert_false(s->status.alarm_nospace);
}

static void call_revision_is_seen_by_the_next_read(void **state)
{
    LhEtcd *other = driver->connect(driver);
    LhEtcd *mine = driver->etcd;
    for (guint i = 0; i < 20; i++) {
        gint64 at = put(k("a"), "");
        driver->etcd = other;
        Answer *a = get(k("a"), 0);
        driver->etcd = mine;
        assert_true(a->ok);
        assert_true(a->header.revision >= at);
        assert_int_equal(a->kvs[0].mod_rev, at);
    }
    lh_etcd_free(other);
}

const struct CMUnitTest call_tests[] = {
    TEST(call_status),
    TEST(call_many_at_once),
    TEST(call_cancelled_is_never_answered),
    TEST(call_cancelled_at_once_leaves_the_others_alone),
    TEST(call_of_a_freed_client_is_never_answered),
    TEST(call_to_a_frozen_server_has_its_deadline),
    TEST(call_to_a_frozen_server_waits_for_the_thaw),
    TEST(call_watch_survives_a_short_freeze),
    TEST(call_after_a_crash_of_the_server),
    TEST(call_lease_is_rearmed_after_a_crash),
    TEST(call_outcomes_are_true_over_a_crash),
    TEST(call_outcomes_are_true_over_a_freeze),
    TEST(call_when_there_is_no_space),
    TEST(call_revision_is_seen_by_the_next_read),
    NO_MORE_TESTS,
};
