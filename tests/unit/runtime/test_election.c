/* links: fakes */
/*
 * runtime/election: who leads, how it is handed over, and that nobody writes who does not lead. Every
 * commit of every test is checked by lab.h's check_fence.
 */
#include "lab.h"

static Lab *lab_of_three(guint64 seed)
{
    Lab *lab = lab_new(seed);

    lab_manager(lab, "m0");
    lab_manager(lab, "m1");
    lab_manager(lab, "m2");
    wait_for(lab, one_leads, 1000);
    pass(lab, 1000); /* all have campaigned */
    return lab;
}

static void one_of_three_leads(void **state)
{
    Lab *lab = lab_of_three(1);
    Manager *first = leader(lab);
    g_autofree char *key = leader_key(first);

    assert_int_equal(n_keys(lab, "leaders/" NAME "/"), 3);
    for (guint i = 0; i < 20; i++) {
        publish(lab, i * 10, 10);
        pass(lab, 1000);
        assert_ptr_equal(leader(lab), first);
        assert_int_equal(n_leaders(lab), 1);
    }
    assert_true(converged(lab));
    for (guint i = 0; i < lab->n; i++) {
        Manager *manager = &lab->managers[i];
        gboolean is = manager == first;
        assert_int_equal(metric(manager, "leader", "controller=\"" NAME "\""), is);
        assert_true((lh_runtime_epoch(manager->runtime, NAME) != 0) == is);
        assert_true((manager->tap->decisions > 0) == is);
        assert_true(lh_runtime_idle(manager->runtime));
    }
    assert_int_equal(lh_runtime_epoch(first->runtime, NAME),
                     fake_etcd_get(lab->server, key, 0)->create_rev);
    assert_int_equal(script.last.epoch, lh_runtime_epoch(first->runtime, NAME));
    assert_false(lh_runtime_leads(first->runtime, "nobody"));
    lab_free(lab);
}

static void sigterm_hands_over_by_revoking(void **state)
{
    Lab *lab = lab_of_three(2);
    Manager *first = leader(lab), *second;

    publish(lab, 0, 500);
    pass(lab, 60); /* in the middle of it */
    lh_runtime_stop(first->runtime, on_stopped, first);
    lh_runtime_stop(first->runtime, on_stopped, first);
    assert_int_equal(first->stopped, 0); /* not inside the call */
    assert_true(wait_for(lab, one_leads, 1000) <= 100);
    second = leader(lab);
    assert_ptr_not_equal(second, first);
    wait_for(lab, quiet, 10000);
    pass(lab, 10);
    assert_int_equal(first->stopped, 1);
    assert_int_equal(fake_etcd_stats(lab->server)->expiries, 0);
    guint sent = first->tap->sent;
    publish(lab, 500, 10);
    pass(lab, 20000);
    assert_int_equal(first->tap->sent, sent);
    assert_int_equal(first->stopped, 1);
    assert_true(converged(lab));
    lab_free(lab);
}

static void a_crash_hands_over_by_expiry(void **state)
{
    Lab *lab = lab_of_three(3);
    gint64 waited;

    publish(lab, 0, 500);
    pass(lab, 60);
    manager_crash(leader(lab));
    waited = wait_for(lab, one_leads, 10000);
    assert_in_range(waited, TTL_S * 1000 * 2 / 3, TTL_S * 1000 + 1000);
    assert_int_equal(fake_etcd_stats(lab->server)->expiries, 1);
    wait_for(lab, quiet, 10000);
    assert_int_equal(lab->decisions, 500); /* the second did what was left */
    lab_free(lab);
}

/* The next in line hears nothing while its predecessor works and dies: it leads only when it has seen
 * all of it, so its first plan finds nothing to do. */
static void the_first_plan_waits_for_the_mirror(void **state)
{
    Lab *lab = lab_new(4);
    Manager *first = lab_manager(lab, "m0"), *second;

    wait_for(lab, one_leads, 1000);
    second = lab_manager(lab, "m1");
    pass(lab, 1000);
    fake_etcd_client_close_streams(second->tap->inner); /* blind for the time of a backoff */
    fake_etcd_client_cut(second->tap->inner, FAKE_CUT_REPLIES);
    publish(lab, 0, 300);
    wait_for(lab, quiet, 2000);
    lh_runtime_stop(first->runtime, on_stopped, first);
    pass(lab, 1000);
    assert_int_equal(first->stopped, 1);
    assert_int_equal(n_leaders(lab), 0);
    script.plans = 0;
    fake_etcd_client_cut(second->tap->inner, FAKE_CUT_NONE);
    wait_for(lab, one_leads, 20000);
    pass(lab, 1000);
    assert_true(script.plans > 0);
    assert_int_equal(second->tap->decisions, 0);
    assert_true(script.last.revision >= fake_etcd_revision(lab->server));
    lab_free(lab);
}

static void a_deleted_leader_key_is_stepped_down_from(void **state)
{
    Lab *lab = lab_of_three(5);
    Manager *first = leader(lab), *second;
    gint64 epoch = lh_runtime_epoch(first->runtime, NAME);
    g_autofree char *key = leader_key(first);

    publish(lab, 0, 500);
    pass(lab, 60);
    assert_int_equal(fake_etcd_delete(lab->server, key, NULL), 1);
    pass(lab, 50);
    second = leader(lab);
    assert_ptr_not_equal(second, first);
    assert_int_equal(n_leaders(lab), 1);
    wait_for(lab, quiet, 10000);
    assert_int_equal(n_keys(lab, "leaders/" NAME "/"), 3); /* back, as the youngest */
    assert_int_equal(fake_etcd_get(lab->server, key, 0)->version, 1);
    /* All others go: it leads again, in another epoch. */
    for (guint i = 0; i < lab->n; i++)
        if (&lab->managers[i] != first)
            manager_drop(&lab->managers[i]);
    pass(lab, 10000);
    assert_ptr_equal(leader(lab), first);
    assert_true(lh_runtime_epoch(first->runtime, NAME) > epoch);
    publish(lab, 500, 10);
    wait_for(lab, quiet, 10000);
    lab_free(lab);
}

/* A key that somebody wrote over without its lease never goes away: it is left behind, by its owner too. */
static void a_leader_key_written_over_is_left_behind(void **state)
{
    Lab *lab = lab_of_three(15);
    Manager *first = leader(lab);
    g_autofree char *key = leader_key(first);

    publish(lab, 0, 50);
    pass(lab, 1000);
    fake_etcd_put(lab->server, key, "{}", 0);
    pass(lab, 1000);
    assert_ptr_not_equal(leader(lab), first);
    assert_int_equal(n_leaders(lab), 1);
    publish(lab, 50, 50);
    wait_for(lab, quiet, 10000);
    /* All others go: it leads again, under another lease. */
    for (guint i = 0; i < lab->n; i++)
        if (&lab->managers[i] != first)
            manager_drop(&lab->managers[i]);
    pass(lab, 10000);
    assert_ptr_equal(leader(lab), first);
    assert_true(fake_etcd_get(lab->server, key, 0) != NULL);
    publish(lab, 100, 10);
    wait_for(lab, quiet, 10000);
    lab_free(lab);
}

/* etcd says that the key is gone before the watch does: the mirror is not believed. */
static void a_refused_write_is_believed(void **state)
{
    Lab *lab = lab_new(9);
    LhRuntimeOptions options = lab_options("m0");

    options.max_in_flight = 1;
    Manager *only = lab_manager_with(lab, controllers, &options);
    wait_for(lab, one_leads, 1000);
    gint64 epoch = lh_runtime_epoch(only->runtime, NAME);
    g_autofree char *key = leader_key(only);
    publish(lab, 0, 2000);
    while (only->tap->decisions == 0)
        pass(lab, 1);
    fake_etcd_client_close_streams(only->tap->inner);
    fake_etcd_delete(lab->server, key, NULL);
    wait_for(lab, none_leads, 40);
    assert_int_equal(metric(only, "fenced_writes_rejected_total", NULL), 1);
    wait_for(lab, one_leads, 1000);
    assert_true(lh_runtime_epoch(only->runtime, NAME) > epoch);
    wait_for(lab, quiet, 5000);
    assert_int_equal(metric(only, "fenced_writes_rejected_total", NULL), 1);
    lab_free(lab);
}

/* The refused write comes before the watch: what it said of the key must not outlast what the mirror shows. */
static void a_key_written_over_is_left_after_a_refused_write(void **state)
{
    Lab *lab = lab_new(16);
    LhRuntimeOptions options = lab_options("m0");

    options.max_in_flight = 1;
    Manager *only = lab_manager_with(lab, controllers, &options);
    wait_for(lab, one_leads, 1000);
    g_autofree char *key = leader_key(only);
    publish(lab, 0, 2000);
    while (only->tap->decisions == 0)
        pass(lab, 1);
    fake_etcd_client_close_streams(only->tap->inner);
    fake_etcd_put(lab->server, key, "{}", 0);
    wait_for(lab, none_leads, 40);
    assert_int_equal(metric(only, "fenced_writes_rejected_total", NULL), 1);
    wait_for(lab, one_leads, 10000);
    wait_for(lab, quiet, 10000);
    lab_free(lab);
}

/* What made it the first came while it stood still, as did the answer that keeps its lease: it hears of
 * the one when by the clock the lease is over, and of the other, which says that it is not, after that. */
static void what_came_during_a_pause_makes_it_lead(void **state)
{
    guint after = 0;

    for (guint64 seed = 100; seed < 130; seed += every()) {
        Lab *lab = lab_new(seed);
        Manager *first = lab_manager(lab, "m0"), *second;
        wait_for(lab, one_leads, 1000);
        second = lab_manager(lab, "m1");
        pass(lab, 1000);
        while (g_hash_table_size(second->tap->asks) == 0)
            sim_world_step(lab->world);
        gint64 held_until_ms = second->tap->held_until_ms;
        g_autofree char *key = leader_key(first);
        sim_machine_pause(second->env);
        manager_crash(first);
        fake_etcd_delete(lab->server, key, NULL);
        pass(lab, held_until_ms - lh_mono_ms(second->env) + 500);
        sim_machine_resume(second->env);
        sim_world_step(lab->world);
        pass(lab, 1);
        after += second->tap->held_until_ms > held_until_ms;
        wait_for(lab, one_leads, 100);
        lab_free(lab);
    }
    assert_true(after > 0);
}

static void a_revoked_lease_is_replaced(void **state)
{
    Lab *lab = lab_new(6);
    Manager *only = lab_manager(lab, "m0");
    gint64 lease;

    wait_for(lab, one_leads, 1000);
    pass(lab, 100);
    lease = lh_runtime_lease(only->runtime);
    assert_true(fake_etcd_revoke(lab->server, lease));
    wait_for(lab, none_leads, 50);
    /* It need not wait for the next keepalive: its campaign says that the lease is gone. */
    assert_true(wait_for(lab, one_leads, TTL_S * 1000) <= 100);
    assert_true(lh_runtime_lease(only->runtime) != lease);
    publish(lab, 0, 10);
    wait_for(lab, quiet, 10000);
    lab_free(lab);
}

static guint sent_by_decision(const Lab *lab)
{
    guint n = 0;

    for (guint i = 0; i < lab->n; i++)
        n += lab->managers[i].tap->sent;
    return n;
}

/* No leader in etcd for longer than the TTL: in doubt, quiet, and afterwards the same lease goes on. */
static void in_doubt_it_is_silent_and_then_goes_on(void **state)
{
    for (guint64 seed = 10; seed < 20; seed++) {
        Lab *lab = lab_new(seed);
        Manager *only = lab_manager(lab, "m0");
        wait_for(lab, one_leads, 1000);
        publish(lab, 0, 10);
        wait_for(lab, quiet, 1000);
        gint64 epoch = lh_runtime_epoch(only->runtime, NAME);
        gint64 lease = lh_runtime_lease(only->runtime);
        publish(lab, 10, 300);
        pass(lab, 55); /* some transactions are on their way to an etcd that will not answer */
        fake_etcd_elect(lab->server, 7000);
        pass(lab, 5100);
        assert_false(leads(only));
        guint sent = sent_by_decision(lab);
        publish(lab, 400, 10);
        pass(lab, 1800);
        assert_int_equal(sent_by_decision(lab), sent);
        wait_for(lab, one_leads, 10000);
        assert_int_equal(lh_runtime_epoch(only->runtime, NAME), epoch);
        assert_int_equal(lh_runtime_lease(only->runtime), lease);
        wait_for(lab, quiet, 20000);
        assert_int_equal(n_keys(lab, "decided/replicas/"), 320);
        lab_free(lab);
    }
}

static gboolean deciding(Lab *lab)
{
    return g_hash_table_size(lab->managers[0].tap->in_flight) > 0;
}

/* What was in flight when it stepped down may commit at any time: the leader key is rewritten before the
 * next plan. */
static void what_was_abandoned_is_voided_first(void **state)
{
    for (guint64 seed = 20; seed < 40; seed += every()) {
        Lab *lab = lab_new(seed);
        Manager *only = lab_manager(lab, "m0");
        wait_for(lab, one_leads, 1000);
        pass(lab, 1000 + (gint64)seed * 100);
        publish(lab, 0, 10);
        wait_for(lab, deciding, 100);
        fake_etcd_elect(lab->server, 6500);
        wait_for(lab, none_leads, 5000);
        pass(lab, 1400);
        assert_int_equal(only->tap->decisions, 1);
        assert_int_equal(only->tap->rewrites, 0);
        wait_for(lab, one_leads, 10000);
        assert_int_equal(only->tap->rewrites, 1);
        wait_for(lab, quiet, 10000);
        assert_int_equal(lab->decisions, 10);
        lab_free(lab);
    }
}

/* Returns how many decisions were sent on its waking up. */
static guint let_another_take_over(Lab *lab, Manager *paused, gint64 pause_ms)
{
    guint sent;

    publish(lab, 0, 2000);
    pass(lab, 53); /* one transaction of many has been answered or not */
    sim_machine_pause(paused->env);
    pass(lab, pause_ms);
    assert_int_equal(n_leaders(lab), 2); /* it does not know yet */
    sent = paused->tap->decisions;
    sim_machine_resume(paused->env);
    pass(lab, 20000);
    assert_int_equal(n_leaders(lab), 1);
    return paused->tap->decisions - sent;
}

static void pause_past_the_lease(gboolean faults, guint64 seed, double *rejected, guint *work)
{
    Lab *lab = lab_new(seed);
    LhRuntimeOptions options = lab_options("m0");
    Manager *first, *second;

    options.max_in_flight = 2; /* there is more to send when it wakes up */
    options.fault_no_deadline = options.fault_no_leader_watch = faults;
    first = lab_manager_with(lab, controllers, &options);
    wait_for(lab, one_leads, 1000);
    second = lab_manager(lab, "m1");
    pass(lab, 500);
    guint sent = let_another_take_over(lab, first, TTL_S * 1000 + 2000);
    assert_true(faults || sent == 0);
    assert_ptr_equal(leader(lab), second);
    *rejected += metric(first, "fenced_writes_rejected_total", NULL);
    *work += second->tap->decisions;
    assert_true(first->tap->decisions > 0);
    wait_for(lab, quiet, 20000);
    /* It is a candidate as any other, and can lead again. */
    manager_crash(second);
    wait_for(lab, one_leads, 10000);
    assert_ptr_equal(leader(lab), first);
    publish(lab, 3000, 10);
    wait_for(lab, quiet, 10000);
    lab_free(lab);
}

/* check_fence looks at every commit: none is of the old epoch after the takeover. */
static void a_paused_leader_writes_nothing_afterwards(void **state)
{
    double rejected = 0;
    guint work = 0;

    for (guint64 seed = 40; seed < 50; seed += every())
        pause_past_the_lease(FALSE, seed, &rejected, &work);
    assert_int_equal(rejected, 0); /* the local deadline held it back */
    assert_true(work > 0);
}

static void without_its_other_guards_the_fence_holds_it(void **state)
{
    for (guint64 seed = 40; seed < 50; seed += every()) {
        double rejected = 0;
        guint work = 0;
        pause_past_the_lease(TRUE, seed, &rejected, &work);
        assert_true(rejected > 0);
        assert_true(work > 0);
    }
}

/* A transaction of a leader that was cut off is refused when it arrives late. */
static void a_lost_lease_ends_the_epoch(void **state)
{
    Lab *lab = lab_of_three(7);
    Manager *first = leader(lab);

    publish(lab, 0, 100);
    fake_etcd_client_cut(first->tap->inner, FAKE_CUT_BOTH);
    pass(lab, TTL_S * 1000 + 1000);
    assert_false(leads(first));
    assert_int_equal(n_leaders(lab), 1);
    wait_for(lab, quiet, 5000);
    fake_etcd_client_cut(first->tap->inner, FAKE_CUT_NONE);
    pass(lab, 20000);
    assert_int_equal(n_leaders(lab), 1);
    assert_false(leads(first));
    assert_int_equal(n_keys(lab, "leaders/" NAME "/"), 3);
    lab_free(lab);
}

/* @confirmed_at -1: not confirmed. */
static void put_brake(Lab *lab, const char *cause, gint64 revision, gint64 confirmed_at)
{
    g_autofree char *at = g_strdup_printf(",\"confirmedAt\":%" G_GINT64_FORMAT, confirmed_at);
    g_autofree char *value = g_strdup_printf("{\"revision\":%" G_GINT64_FORMAT
                                             ",\"since\":1,\"planHash\":\"a\",\"cause\":\"%s\"%s}",
                                             revision, cause, confirmed_at >= 0 ? at : "");
    put(lab, "decided/brakes/" NAME, value);
}

/* A Brake that was confirmed comes back with the backup: it lifts nothing. */
static void a_confirmed_brake_that_comes_back_lifts_nothing(void **state)
{
    Lab *lab = lab_new(77);

    lab_manager(lab, "m0");
    lab->may_repeat = TRUE;
    wait_for(lab, one_leads, 1000);
    put_brake(lab, "restored", fake_etcd_revision(lab->server), 5);
    pass(lab, 100);
    FakeEtcdBackup *backup = fake_etcd_backup(lab->server);
    g_autofree char *key = g_strconcat("/leasehold/decided/brakes/", NAME, NULL);
    fake_etcd_delete(lab->server, key, NULL);
    publish(lab, 0, 50);
    wait_for(lab, converged, 5000);
    fake_etcd_restore(lab->server, backup);
    publish(lab, 0, 5);
    pass(lab, 30000);
    assert_true(quiet(lab));
    assert_non_null(fake_etcd_get(lab->server, key, 0));
    assert_true(script.last.regressed);
    fake_etcd_backup_free(backup);
    lab_free(lab);
}

/* etcd restored from a backup that is older than the leader key: campaign again, at once. */
static void a_restored_backup_begins_anew(void **state)
{
    for (guint with_key = 0; with_key < 2; with_key++) {
        Lab *lab = lab_new(60 + with_key);
        FakeEtcdBackup *backup = with_key ? NULL : fake_etcd_backup(lab->server);
        Manager *only = lab_manager(lab, "m0");
        lab->may_repeat = TRUE;
        if (!with_key)
            for (guint i = 0; i < 50; i++)
                put(lab, "desired/settings/admission", "{\"spec\":{}}");
        wait_for(lab, one_leads, 1000);
        pass(lab, 100);
        if (with_key)
            backup = fake_etcd_backup(lab->server);
        publish(lab, 0, 200);
        wait_for(lab, converged, 5000); /* the mirror is not yet there: it is catching up */
        assert_false(script.last.regressed);
        fake_etcd_restore(lab->server, backup);
        publish(lab, 0, 20); /* far fewer revisions than there had been */
        pass(lab, 30000);
        assert_true(quiet(lab));
        assert_int_equal(n_keys(lab, "decided/replicas/"), 20);
        assert_true(script.last.regressed);
        assert_in_range(script.last.regressed_rev, 1, fake_etcd_revision(lab->server));
        /* Of a plan before it, whoever wrote it; then of one after it. */
        put_brake(lab, "restored", script.last.regressed_rev - 1, 5);
        publish(lab, 20, 1);
        wait_for(lab, quiet, 1000);
        assert_true(script.last.regressed);
        put_brake(lab, "restored", script.last.regressed_rev, -1);
        publish(lab, 21, 1);
        wait_for(lab, quiet, 1000);
        assert_true(script.last.regressed);
        put_brake(lab, "much", script.last.regressed_rev, 5); /* of something else */
        publish(lab, 22, 1);
        wait_for(lab, quiet, 1000);
        assert_true(script.last.regressed);
        put_brake(lab, "restored", script.last.regressed_rev, 5);
        publish(lab, 23, 1);
        wait_for(lab, quiet, 1000);
        assert_false(script.last.regressed);
        assert_true(lh_runtime_epoch(only->runtime, NAME) <= fake_etcd_revision(lab->server));
        fake_etcd_backup_free(backup);
        lab_free(lab);
    }
}

static void two_controllers_are_two_elections(void **state)
{
    LhController other = controller;
    const LhController *const table[] = {&controller, &other, NULL};
    Lab *lab = lab_new(8);
    LhRuntimeOptions m0 = lab_options("m0"), m1 = lab_options("m1");

    other.name = "admission";
    script.plan = NULL;
    lab->may_repeat = TRUE;
    Manager *first = lab_manager_with(lab, table, &m0);
    wait_for(lab, one_leads, 1000);
    Manager *second = lab_manager_with(lab, table, &m1);
    pass(lab, 1000);
    g_autofree char *hex = lh_lease_hex(lh_runtime_lease(first->runtime));
    g_autofree char *key = g_strconcat(P "leaders/admission/", hex, NULL);
    fake_etcd_delete(lab->server, key, NULL);
    pass(lab, 1000);
    assert_true(lh_runtime_leads(first->runtime, NAME));
    assert_false(lh_runtime_leads(first->runtime, "admission"));
    assert_true(lh_runtime_leads(second->runtime, "admission"));
    assert_ptr_equal(lh_runtime_controllers(first->runtime), table);
    lab_free(lab);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_of_three_leads),
        cmocka_unit_test(sigterm_hands_over_by_revoking),
        cmocka_unit_test(a_crash_hands_over_by_expiry),
        cmocka_unit_test(the_first_plan_waits_for_the_mirror),
        cmocka_unit_test(a_deleted_leader_key_is_stepped_down_from),
        cmocka_unit_test(a_leader_key_written_over_is_left_behind),
        cmocka_unit_test(a_refused_write_is_believed),
        cmocka_unit_test(a_key_written_over_is_left_after_a_refused_write),
        cmocka_unit_test(what_came_during_a_pause_makes_it_lead),
        cmocka_unit_test(a_revoked_lease_is_replaced),
        cmocka_unit_test(in_doubt_it_is_silent_and_then_goes_on),
        cmocka_unit_test(what_was_abandoned_is_voided_first),
        cmocka_unit_test(a_paused_leader_writes_nothing_afterwards),
        cmocka_unit_test(without_its_other_guards_the_fence_holds_it),
        cmocka_unit_test(a_lost_lease_ends_the_epoch),
        cmocka_unit_test(a_restored_backup_begins_anew),
        cmocka_unit_test(a_confirmed_brake_that_comes_back_lifts_nothing),
        cmocka_unit_test(two_controllers_are_two_elections),
    };

    return cmocka_run_group_tests_name("election", tests, NULL, NULL);
}
