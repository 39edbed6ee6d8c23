/*
 * etcd/lease over a scripted etcd and virtual time: the deadline counts from sending, doubt is not loss,
 * and only etcd's word is.
 */
/* links: fakes */
#include "base/log.h"
#include "etcd/lease.h"
#include "tests/fakes/env_sim.h"
#include "tests/unit/etcd/script.h"

#define ID 0x1234

typedef struct {
    SimWorld *world;
    LhEnv *env;
    Script *etcd;
    LhLease *lease;
    GString *seen;
    gboolean free_in_lost, restart_in_lost;
    guint log_lines;
} Fixture;

static void on_granted(gint64 lease, gint64 ttl_s, gpointer data)
{
    Fixture *f = data;
    g_string_append_printf(f->seen, "granted %" G_GINT64_MODIFIER "x %" G_GINT64_FORMAT "\n", lease,
                           ttl_s);
}

static void on_doubt(gpointer data)
{
    g_string_append(((Fixture *)data)->seen, "doubt\n");
}

static void on_renewed(gpointer data)
{
    g_string_append(((Fixture *)data)->seen, "renewed\n");
}

static void on_lost(gpointer data)
{
    Fixture *f = data;
    g_string_append(f->seen, "lost\n");
    if (f->restart_in_lost)
        lh_lease_restart(f->lease);
    if (f->free_in_lost)
        g_clear_pointer(&f->lease, lh_lease_free);
}

static void on_revoked(gpointer data)
{
    g_string_append(((Fixture *)data)->seen, "revoked\n");
}

static void count_line(const char *line, gpointer data)
{
    (void)line;
    ((Fixture *)data)->log_lines++;
}

static int setup(void **state)
{
    static const LhLeaseFuncs funcs = {
        .granted = on_granted, .doubt = on_doubt, .renewed = on_renewed, .lost = on_lost};
    Fixture *f = g_new0(Fixture, 1);
    lh_log_set_sink(count_line, f);
    f->world = sim_world_new(1);
    f->env = sim_machine_new(f->world, "m");
    f->etcd = script_new();
    f->seen = g_string_new(NULL);
    f->lease = lh_lease_start(f->env, &f->etcd->base, 6, &funcs, f);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    Fixture *f = *state;
    lh_lease_free(f->lease);
    script_free(f->etcd);
    assert_int_equal(sim_world_pending(f->world), 0);
    sim_world_free(f->world);
    g_string_free(f->seen, TRUE);
    lh_log_set_sink(NULL, NULL);
    g_free(f);
    return 0;
}

static void expect(Fixture *f, const char *text)
{
    assert_string_equal(f->seen->str, text);
    g_string_truncate(f->seen, 0);
}

static void pass(Fixture *f, gint64 ms)
{
    sim_world_run_until(f->world, sim_world_now_ms(f->world) + ms);
}

static gint64 now(Fixture *f)
{
    return lh_mono_ms(f->env);
}

static void grant(Fixture *f)
{
    script_answer_lease(f->etcd, S_GRANT, ID, 6);
    expect(f, "granted 1234 6\n");
}

static void granted_after_failures(void **state)
{
    Fixture *f = *state;
    assert_int_equal(script_peek(f->etcd, S_GRANT)->ttl_s, 6);
    assert_int_equal(script_peek(f->etcd, S_GRANT)->deadline_ms, 5000);
    const LhErrorCode codes[] = {LH_ERR_UNAVAILABLE, LH_ERR_UNKNOWN_OUTCOME,
                                 LH_ERR_OVERLOADED,  LH_ERR_NO_SPACE,
                                 LH_ERR_AUTH,        LH_ERR_INVALID};
    for (guint i = 0; i < G_N_ELEMENTS(codes); i++) {
        script_fail(f->etcd, S_GRANT, codes[i]);
        assert_int_equal(f->etcd->calls.length, 0);
        assert_int_equal(lh_lease_id(f->lease), 0);
        pass(f, MIN(100 << i, 5000));
    }
    assert_int_equal(f->log_lines, G_N_ELEMENTS(codes));
    expect(f, "");
    grant(f);
    assert_int_equal(lh_lease_id(f->lease), ID);
    assert_true(lh_lease_alive(f->lease));
}

static void deadline_counts_from_sending(void **state)
{
    Fixture *f = *state;
    gint64 sent_ms = now(f);
    assert_int_equal(lh_lease_deadline_ms(f->lease), 0);
    assert_false(lh_lease_alive(f->lease));
    pass(f, 700);
    grant(f);
    assert_int_equal(lh_lease_deadline_ms(f->lease), sent_ms + 6000);
    pass(f, 1300);
    sent_ms = now(f);
    assert_int_equal(script_peek(f->etcd, S_KEEPALIVE)->lease, ID);
    pass(f, 1900);
    script_answer_lease(f->etcd, S_KEEPALIVE, ID, 6);
    assert_int_equal(lh_lease_deadline_ms(f->lease), sent_ms + 6000);
}

static void etcds_ttl_counts(void **state)
{
    Fixture *f = *state;
    gint64 sent_ms = now(f);
    script_answer_lease(f->etcd, S_GRANT, ID, 9);
    expect(f, "granted 1234 9\n");
    assert_int_equal(lh_lease_deadline_ms(f->lease), sent_ms + 9000);
    pass(f, 2999);
    assert_int_equal(f->etcd->calls.length, 0);
    pass(f, 1);
    script_answer_lease(f->etcd, S_KEEPALIVE, ID, 9);
}

static void renewed_every_third(void **state)
{
    Fixture *f = *state;
    grant(f);
    for (guint i = 0; i < 100; i++) {
        pass(f, 1999);
        assert_int_equal(f->etcd->calls.length, 0);
        pass(f, 1);
        assert_int_equal(script_peek(f->etcd, S_KEEPALIVE)->deadline_ms, 4000);
        script_answer_lease(f->etcd, S_KEEPALIVE, ID, 6);
    }
    assert_true(lh_lease_alive(f->lease));
    expect(f, "");
}

static void failed_renewal_is_tried_again_at_once(void **state)
{
    Fixture *f = *state;
    grant(f);
    pass(f, 2500);
    script_fail(f->etcd, S_KEEPALIVE, LH_ERR_UNAVAILABLE);
    pass(f, 100);
    script_fail(f->etcd, S_KEEPALIVE, LH_ERR_UNAVAILABLE);
    pass(f, 200);
    script_answer_lease(f->etcd, S_KEEPALIVE, ID, 6);
    pass(f, 1000);
    expect(f, "");
    assert_true(lh_lease_alive(f->lease));
    assert_int_equal(f->etcd->calls.length, 0);
}

/* Another keepalive every TTL/6, none of which takes the place of those that are waited for. */
static void silence_is_asked_again(void **state)
{
    Fixture *f = *state;
    gint64 granted_ms = now(f);
    grant(f);
    pass(f, 2000);
    for (guint n = 1; n <= 4; n++) {
        assert_int_equal(f->etcd->calls.length, n);
        pass(f, 999);
        assert_int_equal(f->etcd->calls.length, n);
        pass(f, 1);
    }
    assert_int_equal(f->etcd->calls.length, 4); /* no more at a time */
    assert_int_equal(f->etcd->cancelled, 0);
    expect(f, "doubt\n"); /* at 6000 */
    /* The second (sent at 3000): what was sent before it is not waited for any longer. */
    ScriptCall *first = g_queue_pop_head(&f->etcd->calls);
    g_queue_insert_after(&f->etcd->calls, f->etcd->calls.head, first);
    script_answer_lease(f->etcd, S_KEEPALIVE, ID, 6);
    assert_int_equal(lh_lease_deadline_ms(f->lease), granted_ms + 3000 + 6000);
    assert_int_equal(f->etcd->cancelled, 1);
    expect(f, "renewed\n");
    script_answer_lease(f->etcd, S_KEEPALIVE, ID, 6);
    assert_int_equal(lh_lease_deadline_ms(f->lease), granted_ms + 4000 + 6000);
}

static void one_failure_among_many_is_none(void **state)
{
    Fixture *f = *state;
    grant(f);
    pass(f, 3500); /* asked at 2000 and 3000 */
    script_fail(f->etcd, S_KEEPALIVE, LH_ERR_UNAVAILABLE);
    assert_int_equal(f->log_lines, 0);
    pass(f, 499);
    assert_int_equal(f->etcd->calls.length, 1);
    pass(f, 1);
    assert_int_equal(f->etcd->calls.length, 2);
    script_fail(f->etcd, S_KEEPALIVE, LH_ERR_UNAVAILABLE);
    script_fail(f->etcd, S_KEEPALIVE, LH_ERR_UNAVAILABLE);
    assert_int_equal(f->log_lines, 1);
    pass(f, 100);
    script_answer_lease(f->etcd, S_KEEPALIVE, ID, 6);
    expect(f, "");
}

/* Fails every keepalive for @ms. */
static void fail_for(Fixture *f, gint64 ms)
{
    gint64 until_ms = sim_world_now_ms(f->world) + ms;
    while (sim_world_next_ms(f->world) <= until_ms) {
        sim_world_step(f->world);
        if (f->etcd->calls.length > 0)
            script_fail(f->etcd, S_KEEPALIVE, LH_ERR_UNAVAILABLE);
    }
    sim_world_run_until(f->world, until_ms);
}

static void doubt_at_the_deadline(void **state)
{
    Fixture *f = *state;
    grant(f);
    fail_for(f, 5999);
    assert_true(lh_lease_alive(f->lease));
    expect(f, "");
    fail_for(f, 1);
    assert_false(lh_lease_alive(f->lease));
    expect(f, "doubt\n");
    /* Renewing goes on, at least once a second, and doubt is said once. */
    for (guint i = 0; i < 30; i++) {
        pass(f, 1000);
        script_fail(f->etcd, S_KEEPALIVE, LH_ERR_UNAVAILABLE);
    }
    expect(f, "");
    pass(f, 1000);
    gint64 sent_ms = now(f) - 500;
    script_answer_lease(f->etcd, S_KEEPALIVE, ID, 6);
    expect(f, "renewed\n");
    assert_true(lh_lease_alive(f->lease));
    assert_true(lh_lease_deadline_ms(f->lease) >= sent_ms + 6000 - 500);
    /* And again. */
    fail_for(f, 7000);
    expect(f, "doubt\n");
    assert_int_equal(lh_lease_id(f->lease), ID);
}

static void answer_after_its_own_deadline_ends_no_doubt(void **state)
{
    Fixture *f = *state;
    grant(f);
    pass(f, 2000);
    pass(f, 7000); /* the transport is late with its own deadline */
    expect(f, "doubt\n");
    script_answer_lease(f->etcd, S_KEEPALIVE, ID, 6);
    assert_false(lh_lease_alive(f->lease));
    expect(f, "");
    script_answer_lease(f->etcd, S_KEEPALIVE, ID, 6); /* sent at 3000, and it is 9000 */
    assert_false(lh_lease_alive(f->lease));
    expect(f, "");
    script_answer_lease(f->etcd, S_KEEPALIVE, ID, 6);
    expect(f, "renewed\n");
    assert_true(lh_lease_alive(f->lease));
}

static void ttl_zero_is_lost(void **state)
{
    Fixture *f = *state;
    grant(f);
    pass(f, 2000);
    script_answer_lease(f->etcd, S_KEEPALIVE, ID, 0);
    expect(f, "lost\n");
    assert_int_equal(lh_lease_id(f->lease), 0);
    assert_int_equal(lh_lease_deadline_ms(f->lease), 0);
    assert_false(lh_lease_alive(f->lease));
    pass(f, 60000);
    assert_int_equal(f->etcd->calls.length, 0);
    lh_lease_restart(f->lease);
    script_answer_lease(f->etcd, S_GRANT, 0x77, 6);
    expect(f, "granted 77 6\n");
}

static void lease_not_found_is_lost(void **state)
{
    Fixture *f = *state;
    grant(f);
    f->restart_in_lost = TRUE;
    pass(f, 2000);
    script_fail(f->etcd, S_KEEPALIVE, LH_ERR_LEASE_LOST);
    expect(f, "lost\n");
    f->free_in_lost = TRUE;
    grant(f);
    pass(f, 2000);
    script_answer_lease(f->etcd, S_KEEPALIVE, ID, 0);
    expect(f, "lost\n");
    assert_null(f->lease);
}

static void lost_in_doubt(void **state)
{
    Fixture *f = *state;
    grant(f);
    fail_for(f, 6500);
    expect(f, "doubt\n");
    pass(f, 1000);
    script_answer_lease(f->etcd, S_KEEPALIVE, ID, 0);
    expect(f, "lost\n");
}

static void revoke_reports(void **state)
{
    Fixture *f = *state;
    grant(f);
    pass(f, 2000); /* a keepalive is under way */
    lh_lease_revoke(f->lease, on_revoked, f);
    assert_int_equal(f->etcd->cancelled, 1);
    assert_false(lh_lease_alive(f->lease));
    assert_int_equal(script_peek(f->etcd, S_REVOKE)->lease, ID);
    expect(f, "");
    script_answer_lease(f->etcd, S_REVOKE, 0, 0);
    expect(f, "revoked\n");
    assert_int_equal(lh_lease_id(f->lease), 0);
    pass(f, 60000);
    assert_int_equal(f->etcd->calls.length, 0);
    expect(f, "");
}

static void failed_revoke_reports_too(void **state)
{
    Fixture *f = *state;
    grant(f);
    lh_lease_revoke(f->lease, on_revoked, f);
    script_fail(f->etcd, S_REVOKE, LH_ERR_UNKNOWN_OUTCOME);
    expect(f, "revoked\n");
    assert_int_equal(f->log_lines, 1);
    lh_lease_restart(f->lease);
    grant(f);
    lh_lease_revoke(f->lease, NULL, NULL);
    script_fail(f->etcd, S_REVOKE, LH_ERR_LEASE_LOST); /* as good as revoked */
    assert_int_equal(f->log_lines, 1);
}

static void revoke_without_a_lease(void **state)
{
    Fixture *f = *state;
    lh_lease_revoke(f->lease, on_revoked, f);
    assert_int_equal(f->etcd->cancelled, 1);
    expect(f, "");
    pass(f, 0);
    expect(f, "revoked\n");
}

static void freed_at_any_time(void **state)
{
    Fixture *f = *state;
    grant(f);
    pass(f, 2000);
    script_fail(f->etcd, S_KEEPALIVE, LH_ERR_UNAVAILABLE);
    /* Teardown checks that neither a timer nor a call is left. */
    expect(f, "");
}

static void hex(void **state)
{
    (void)state;
    g_autofree char *small = lh_lease_hex(0xab);
    assert_string_equal(small, "00000000000000ab");
    g_autofree char *negative = lh_lease_hex(-1);
    assert_string_equal(negative, "ffffffffffffffff");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(granted_after_failures),
        TEST(deadline_counts_from_sending),
        TEST(etcds_ttl_counts),
        TEST(renewed_every_third),
        TEST(failed_renewal_is_tried_again_at_once),
        TEST(silence_is_asked_again),
        TEST(one_failure_among_many_is_none),
        TEST(doubt_at_the_deadline),
        TEST(answer_after_its_own_deadline_ends_no_doubt),
        TEST(ttl_zero_is_lost),
        TEST(lease_not_found_is_lost),
        TEST(lost_in_doubt),
        TEST(revoke_reports),
        TEST(failed_revoke_reports_too),
        TEST(revoke_without_a_lease),
        TEST(freed_at_any_time),
        cmocka_unit_test(hex),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
