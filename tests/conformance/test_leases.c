/*
 * Conformance of leases: time to live, attachment, revocation and expiry.
 */
#include "suite.h"

#define LATE_MS 2000 /* how late an expiry may be: a tick of 500 ms, and the machine may be busy */

static void lease_has_a_floor(void **state)
{
    Answer *a = start_grant(1, LH_ETCD_DEADLINE_MS);
    wait_for(answered, a);
    assert_true(a->ok);
    assert_int_equal(a->ttl_s, 2); /* 1.5 election timeouts, in whole seconds */
    a = start_grant(30, LH_ETCD_DEADLINE_MS);
    wait_for(answered, a);
    assert_int_equal(a->ttl_s, 30);
    assert_true(a->lease > 0);
    assert_true(drop_lease(a->lease)->ok);
}

static void lease_of_too_many_seconds_is_refused(void **state)
{
    Answer *a = start_grant(G_GINT64_CONSTANT(9000000001), LH_ETCD_DEADLINE_MS);
    wait_for(answered, a);
    assert_fails(a, LH_ERR_INVALID);
}

static void lease_grant_makes_no_revision(void **state)
{
    gint64 before = revision();
    gint64 lease = grant(60);
    assert_int_equal(keepalive(lease)->ttl_s, 60);
    assert_true(drop_lease(lease)->ok);
    assert_int_equal(revision(), before);
}

static void lease_keepalive_of_an_unknown_one_says_zero(void **state)
{
    Answer *a = keepalive(4242);
    assert_true(a->ok);
    assert_int_equal(a->lease, 4242);
    assert_int_equal(a->ttl_s, 0);
    gint64 lease = grant(60);
    drop_lease(lease);
    a = keepalive(lease);
    assert_true(a->ok);
    assert_int_equal(a->ttl_s, 0);
}

static void lease_revoke_of_an_unknown_one_fails(void **state)
{
    assert_fails(drop_lease(4242), LH_ERR_LEASE_LOST);
    gint64 lease = grant(60);
    assert_true(drop_lease(lease)->ok);
    assert_fails(drop_lease(lease), LH_ERR_LEASE_LOST);
}

static void lease_revoke_deletes_its_keys_in_one_revision(void **state)
{
    gint64 lease = grant(60);
    put_leased(k("r/c"), "", lease);
    put_leased(k("r/a"), "", lease);
    put_leased(k("r/b"), "", lease);
    gint64 before = put(k("r/stays"), "");
    assert_int_equal(get(k("r/a"), 0)->kvs[0].lease, lease);
    Watching *w = watch_created(k("r/"), kend("r/"), 0);
    assert_true(drop_lease(lease)->ok);
    wait_events(w, 3);
    const char *names[] = {"r/a", "r/b", "r/c"};
    for (guint i = 0; i < 3; i++) {
        assert_true(event_at(w, i)->is_delete);
        assert_string_equal(event_at(w, i)->key, k(names[i]));
        assert_int_equal(event_at(w, i)->mod_rev, before + 1);
    }
    assert_int_equal(revision(), before + 1);
    assert_int_equal(get(k("r/stays"), 0)->n, 1);
}

static void lease_put_without_it_detaches(void **state)
{
    gint64 lease = grant(60);
    put_leased(k("a"), "", lease);
    put_leased(k("b"), "", lease);
    put(k("a"), "");
    assert_int_equal(get(k("a"), 0)->kvs[0].lease, 0);
    assert_true(drop_lease(lease)->ok);
    assert_int_equal(get(k("a"), 0)->n, 1);
    assert_int_equal(get(k("b"), 0)->n, 0);
}

static void lease_put_with_another_moves(void **state)
{
    gint64 first = grant(60);
    gint64 second = grant(60);
    put_leased(k("a"), "", first);
    gint64 moved = put_leased(k("a"), "", second);
    assert_int_equal(get(k("a"), 0)->kvs[0].lease, second);
    assert_true(drop_lease(first)->ok);
    assert_int_equal(get(k("a"), 0)->n, 1);
    assert_int_equal(revision(), moved);
    assert_true(drop_lease(second)->ok);
    assert_int_equal(get(k("a"), 0)->n, 0);
}

static void lease_of_a_deleted_key_is_let_go(void **state)
{
    gint64 lease = grant(60);
    put_leased(k("a"), "", lease);
    del(k("a"), NULL);
    gint64 before = put(k("a"), "anew");
    assert_true(drop_lease(lease)->ok);
    assert_int_equal(revision(), before);
    assert_int_equal(get(k("a"), 0)->n, 1);
}

static void lease_is_seen_at_old_revisions(void **state)
{
    gint64 lease = grant(60);
    gint64 with = put_leased(k("a"), "", lease);
    put(k("a"), "");
    assert_int_equal(get(k("a"), with)->kvs[0].lease, lease);
    drop_lease(lease);
}

static void lease_expires_not_before_its_time(void **state)
{
    Watching *w = watch_created(k("x/"), kend("x/"), 0);
    gint64 sent = now_ms();
    gint64 lease = grant(2);
    gint64 granted = now_ms();
    const LhTxnOp list[] = {lh_txn_put(k("x/b"), "", lease), lh_txn_put(k("x/a"), "", lease)};
    assert_true(ops(list, 2)->ok);
    gint64 before = put(k("x/c"), "");
    wait_events(w, 5);
    gint64 gone = now_ms();
    assert_true(gone - sent >= 2000);
    assert_true(gone - granted <= 2000 + LATE_MS);
    assert_string_equal(event_at(w, 3)->key, k("x/a"));
    assert_string_equal(event_at(w, 4)->key, k("x/b"));
    assert_true(event_at(w, 3)->is_delete && event_at(w, 4)->is_delete);
    assert_int_equal(event_at(w, 3)->mod_rev, before + 1);
    assert_int_equal(event_at(w, 4)->mod_rev, before + 1);
    assert_int_equal(keepalive(lease)->ttl_s, 0);
    assert_fails(drop_lease(lease), LH_ERR_LEASE_LOST);
}

static void lease_keepalive_renews_it_whole(void **state)
{
    gint64 lease = grant(2);
    put_leased(k("a"), "", lease);
    Watching *w = watch_created(k("a"), NULL, 0);
    let_pass(1500);
    gint64 sent = now_ms();
    assert_int_equal(keepalive(lease)->ttl_s, 2);
    gint64 renewed = now_ms();
    wait_events(w, 1);
    assert_true(now_ms() - sent >= 2000);
    assert_true(now_ms() - renewed <= 2000 + LATE_MS);
}

static void lease_keepalive_at_its_end_is_true(void **state)
{
    gint64 lease = grant(2);
    put_leased(k("a"), "", lease);
    Watching *w = watch_created(k("a"), NULL, 0);
    /* Renewing as late as possible: either it lives for a whole TTL more, or it says 0. */
    for (int i = 0; i < 2; i++) {
        let_pass(1990);
        gint64 sent = now_ms();
        Answer *a = keepalive(lease);
        assert_true(a->ok);
        if (a->ttl_s == 0) {
            break;
        }
        assert_int_equal(a->ttl_s, 2);
        let_pass(1950 - (now_ms() - sent));
        assert_int_equal(w->events->len, 0);
    }
    wait_events(w, 1);
    assert_int_equal(keepalive(lease)->ttl_s, 0);
}

static void leases_expire_each_in_its_own_revision(void **state)
{
    gint64 leases[] = {grant(2), grant(2)};
    put_leased(k("y/a"), "", leases[0]);
    put_leased(k("y/b"), "", leases[1]);
    Watching *w = watch_created(k("y/"), kend("y/"), 0);
    wait_events(w, 2);
    assert_int_not_equal(event_at(w, 0)->mod_rev, event_at(w, 1)->mod_rev);
}

const struct CMUnitTest lease_tests[] = {
    TEST(lease_has_a_floor),
    TEST(lease_of_too_many_seconds_is_refused),
    TEST(lease_grant_makes_no_revision),
    TEST(lease_keepalive_of_an_unknown_one_says_zero),
    TEST(lease_revoke_of_an_unknown_one_fails),
    TEST(lease_revoke_deletes_its_keys_in_one_revision),
    TEST(lease_put_without_it_detaches),
    TEST(lease_put_with_another_moves),
    TEST(lease_of_a_deleted_key_is_let_go),
    TEST(lease_is_seen_at_old_revisions),
    TEST(lease_expires_not_before_its_time),
    TEST(lease_keepalive_renews_it_whole),
    TEST(lease_keepalive_at_its_end_is_true),
    TEST(leases_expire_each_in_its_own_revision),
    NO_MORE_TESTS,
};
