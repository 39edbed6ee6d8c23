/*
 * lease.h on both servers: a lease that is kept, in doubt, lost, revoked.
 */
#include "etcd/lease.h"
#include "suite.h"

typedef struct {
    LhLease *lease;
    guint granted, doubts, renewed, lost, done;
    gint64 id, ttl_s;
    gint64 doubt_at_ms, deadline_at_doubt_ms;
} Keeping;

static void on_granted(gint64 id, gint64 ttl_s, gpointer data)
{
    Keeping *keeping = data;
    keeping->granted++;
    keeping->id = id;
    keeping->ttl_s = ttl_s;
}

static void on_doubt(gpointer data)
{
    Keeping *keeping = data;
    keeping->doubts++;
    keeping->doubt_at_ms = now_ms();
    keeping->deadline_at_doubt_ms = lh_lease_deadline_ms(keeping->lease);
    assert_false(lh_lease_alive(keeping->lease));
}

static void on_renewed(gpointer data)
{
    Keeping *keeping = data;
    keeping->renewed++;
    assert_true(lh_lease_alive(keeping->lease));
}

static void on_lost(gpointer data)
{
    Keeping *keeping = data;
    keeping->lost++;
    assert_false(lh_lease_alive(keeping->lease));
}

static void on_revoked(gpointer data)
{
    ((Keeping *)data)->done++;
}

static const LhLeaseFuncs lease_funcs = {.granted = on_granted,
                                         .doubt = on_doubt,
                                         .renewed = on_renewed,
                                         .lost = on_lost};

static gboolean is_granted(gpointer data)
{
    return ((Keeping *)data)->granted > 0;
}

static gboolean is_granted_again(gpointer data)
{
    return ((Keeping *)data)->granted > 1;
}

static gboolean is_lost(gpointer data)
{
    return ((Keeping *)data)->lost > 0;
}

static gboolean is_in_doubt(gpointer data)
{
    return ((Keeping *)data)->doubts > 0;
}

static gboolean is_settled(gpointer data)
{
    const Keeping *keeping = data;
    return keeping->renewed > 0 || keeping->lost > 0;
}

static gboolean is_revoked(gpointer data)
{
    return ((Keeping *)data)->done > 0;
}

static void stop_keeping(gpointer data)
{
    Keeping *keeping = data;
    lh_lease_free(g_steal_pointer(&keeping->lease));
}

static Keeping *start_keeping(gint64 ttl_s)
{
    Keeping *keeping = scratch(sizeof(Keeping));
    at_end(stop_keeping, keeping);
    keeping->lease = lh_lease_start(driver->env, driver->etcd, ttl_s, &lease_funcs, keeping);
    assert_int_equal(lh_lease_id(keeping->lease), 0);
    assert_int_equal(lh_lease_deadline_ms(keeping->lease), 0);
    assert_false(lh_lease_alive(keeping->lease));
    wait_for(is_granted, keeping);
    assert_true(keeping->id > 0);
    assert_int_equal(lh_lease_id(keeping->lease), keeping->id);
    return keeping;
}

static void keeper_keeps_its_lease(void **state)
{
    gint64 before = now_ms();
    Keeping *keeping = start_keeping(2);
    gint64 deadline = lh_lease_deadline_ms(keeping->lease);
    assert_true(deadline >= before + 2000 && deadline <= now_ms() + 2000);
    put_leased(k("a"), "", keeping->id);
    let_pass(5000);
    assert_int_equal(get(k("a"), 0)->n, 1);
    assert_true(lh_lease_alive(keeping->lease));
    assert_true(lh_lease_deadline_ms(keeping->lease) >= deadline + 3000);
    assert_int_equal(keeping->doubts + keeping->lost + keeping->renewed, 0);
    assert_int_equal(keeping->granted, 1);
    lh_lease_revoke(keeping->lease, on_revoked, keeping);
    wait_for(is_revoked, keeping);
    assert_int_equal(get(k("a"), 0)->n, 0);
    assert_int_equal(keepalive(keeping->id)->ttl_s, 0);
    assert_int_equal(keeping->lost, 0);
}

static void keeper_freed_lets_it_run_out(void **state)
{
    Keeping *keeping = start_keeping(2);
    put_leased(k("a"), "", keeping->id);
    Watching *w = watch_created(k("a"), NULL, 0);
    gint64 freed = now_ms();
    stop_keeping(keeping);
    wait_events(w, 1);
    assert_true(now_ms() - freed <= 4500);
}

static void keeper_hears_that_it_is_lost(void **state)
{
    Keeping *keeping = start_keeping(2);
    assert_true(drop_lease(keeping->id)->ok);
    wait_for(is_lost, keeping);
    let_pass(1000);
    assert_int_equal(keeping->lost, 1);
    gint64 old = keeping->id;
    lh_lease_restart(keeping->lease);
    wait_for(is_granted_again, keeping);
    assert_int_not_equal(keeping->id, old);
    assert_true(lh_lease_alive(keeping->lease));
    lh_lease_revoke(keeping->lease, NULL, NULL);
}

/* In doubt at the local deadline, never later than the server's; then it says what happened. */
static void keeper_doubts_at_its_deadline(void **state)
{
    Keeping *keeping = start_keeping(3);
    put_leased(k("a"), "", keeping->id);
    freeze_server();
    wait_for(is_in_doubt, keeping);
    assert_true(keeping->doubt_at_ms >= keeping->deadline_at_doubt_ms);
    assert_true(keeping->doubt_at_ms <= keeping->deadline_at_doubt_ms + 1000);
    assert_int_equal(keeping->lost, 0);
    driver->thaw(driver);
    wait_for(is_settled, keeping);
    assert_int_equal(keeping->renewed + keeping->lost, 1);
    if (keeping->renewed > 0) {
        /* It lives: so does the key, and goes on doing so. */
        let_pass(4000);
        assert_int_equal(get(k("a"), 0)->n, 1);
    }
}

static void keeper_survives_a_crash_of_the_server(void **state)
{
    Keeping *keeping = start_keeping(5);
    put_leased(k("a"), "", keeping->id);
    driver->restart(driver);
    let_pass(8000);
    assert_int_equal(keeping->lost, 0);
    assert_true(lh_lease_alive(keeping->lease));
    assert_int_equal(get(k("a"), 0)->n, 1);
    lh_lease_revoke(keeping->lease, on_revoked, keeping);
    wait_for(is_revoked, keeping);
}

const struct CMUnitTest keeper_tests[] = {
    TEST(keeper_keeps_its_lease),
    TEST(keeper_freed_lets_it_run_out),
    TEST(keeper_hears_that_it_is_lost),
    TEST(keeper_doubts_at_its_deadline),
    TEST(keeper_survives_a_crash_of_the_server),
    NO_MORE_TESTS,
};
