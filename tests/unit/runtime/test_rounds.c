/* links: fakes */
/*
 * runtime/runtime: when a controller plans (debounce, timers, budget, paused), what it says about itself
 * (metrics, idle), and how it ends (stop, free) at any moment.
 */
#include "lab.h"

static Lab *lab_of_one(guint64 seed, Manager **manager)
{
    Lab *lab = lab_new(seed);

    *manager = lab_manager(lab, "m0");
    wait_for(lab, one_leads, 1000);
    pass(lab, 1000);
    script.plans = 0;
    return lab;
}

static void a_burst_is_one_plan(void **state)
{
    Manager *manager;
    Lab *lab = lab_of_one(1, &manager);
    gint64 start = sim_world_now_ms(lab->world);

    for (guint i = 0; i < 4; i++) { /* quiet for less than 50 ms between them */
        publish(lab, i, 1);
        pass(lab, 10);
    }
    assert_int_equal(script.plans, 0);
    pass(lab, 35);
    assert_int_equal(script.plans, 0);
    wait_for(lab, quiet, 1000);
    assert_in_range(script.planned_at_ms[0] - start, 80, 90); /* 50 ms after the last */
    assert_int_equal(manager->tap->decisions, 1);
    pass(lab, 1000);
    assert_true(script.plans <= 2); /* its own write makes it look again, and find nothing */
    lab_free(lab);
}

static void a_stream_of_changes_does_not_put_it_off_for_ever(void **state)
{
    Manager *manager;
    Lab *lab = lab_of_one(2, &manager);
    gint64 start = sim_world_now_ms(lab->world);

    for (guint i = 0; i < 30; i++) {
        publish(lab, i, 1);
        pass(lab, 10);
    }
    assert_true(script.plans >= 2);
    assert_in_range(script.planned_at_ms[0] - start, 95, 105); /* twice the debounce */
    lab_free(lab);
}

static void settings_are_read_while_running(void **state)
{
    Manager *manager;
    Lab *lab = lab_of_one(3, &manager);

    put(lab, "desired/settings/" NAME, "{\"spec\":{\"debounce\":\"3s\"}}");
    pass(lab, 10000);
    script.plans = 0;
    publish(lab, 0, 1);
    pass(lab, 2900);
    assert_int_equal(script.plans, 0);
    pass(lab, 200);
    assert_int_equal(script.plans, 1);
    wait_for(lab, quiet, 5000);
    lab_free(lab);
}

static void paused_it_plans_nothing_and_then_all(void **state)
{
    Manager *manager;
    Lab *lab = lab_of_one(4, &manager);

    put(lab, "desired/settings/" NAME, "{\"spec\":{\"paused\":true}}");
    pass(lab, 1000);
    script.plans = 0;
    publish(lab, 0, 100);
    pass(lab, 60000);
    assert_int_equal(script.plans, 0);
    assert_true(leads(manager));
    assert_int_equal(lab->decisions, 0);
    put(lab, "desired/settings/" NAME, "{\"spec\":{}}");
    wait_for(lab, quiet, 1000);
    assert_int_equal(lab->decisions, 100);
    lab_free(lab);
}

static void it_wakes_when_the_plan_said(void **state)
{
    Manager *manager;
    Lab *lab = lab_new(5);
    gint64 at = 90000;

    script.wake_at_ms = SIM_WALL_START_MS + at;
    manager = lab_manager(lab, "m0");
    wait_for(lab, one_leads, 1000);
    pass(lab, 10000);
    script.plans = 0;
    sim_world_run_until(lab->world, at - 1);
    assert_int_equal(script.plans, 0);
    assert_true(lh_runtime_idle(manager->runtime));
    sim_world_run_until(lab->world, at + 5);
    assert_int_equal(script.plans, 1);
    assert_true(script.last.now_ms >= script.wake_at_ms);
    pass(lab, 100000);
    assert_int_equal(script.plans, 1);
    lab_free(lab);
}

static void a_budget_is_kept_and_the_rest_follows(void **state)
{
    Lab *lab = lab_new(6);
    LhRuntimeOptions options = lab_options("m0");

    options.max_groups = 10;
    Manager *manager = lab_manager_with(lab, controllers, &options);
    wait_for(lab, one_leads, 1000);
    pass(lab, 1000);
    script.plans = 0;
    publish(lab, 0, 95);
    wait_for(lab, quiet, 1000);
    assert_int_equal(lab->decisions, 95);
    assert_int_equal(manager->tap->decisions, 10);
    assert_int_equal(script.last.max_groups, 10);
    lab_free(lab);
}

static void plan_more(G_GNUC_UNUSED const Index *index, G_GNUC_UNUSED const LhPlanContext *context,
                      LhPlan *plan)
{
    plan->more = script.plans < 1000;
}

/* The lease needs the loop between two plans, whatever a controller says. */
static void more_without_ops_leaves_the_loop_its_turn(void **state)
{
    Manager *manager;
    Lab *lab = lab_of_one(7, &manager);
    guint64 steps = sim_world_steps(lab->world);

    script.plan = plan_more;
    publish(lab, 0, 1);
    pass(lab, 1000);
    assert_int_equal(script.plans, 1000);
    assert_true(sim_world_steps(lab->world) - steps >= 1000);
    lab_free(lab);
}

static void what_an_index_ignores_makes_no_plan(void **state)
{
    Manager *manager;
    Lab *lab = lab_of_one(8, &manager);

    put(lab, "actual/items/cache/n-0123abcd/x.default.0", "{\"state\":\"loading\"}");
    put(lab, "desired/services/s", "{\"spec\":{\"owner\":\"a\"}}"); /* not of its kinds */
    pass(lab, 1000);
    assert_int_equal(script.plans, 0);
    assert_int_equal(metric(manager, "queue_depth", "controller=\"" NAME "\""), 0);
    lab_free(lab);
}

/* ---- statuses ---- */

static void plan_status(const Index *index, const LhPlanContext *context, LhPlan *plan)
{
    const LhObject *snapshot = find(index, LH_KIND_SNAPSHOT, "snap-00000");
    const char *name = "snapshots/snap-00000/" NAME;

    if (snapshot == NULL)
        return;
    g_autofree char *message = g_strdup_printf("revision %" G_GINT64_FORMAT, snapshot->mod_rev);
    LhCondition condition = {.type = "Valid", .reason = "Seen", .message = message};
    lh_plan_status(plan, find(index, LH_KIND_STATUS, name), name, snapshot->mod_rev, &condition, 1,
                   context->now_ms);
}

static gint64 last_status_ms;
static guint n_statuses;

static void note_status(const FakeCommit *commit, G_GNUC_UNUSED gpointer data)
{
    if (strstr(fake_commit_event(commit, 0)->kv.key, "decided/status/") == NULL)
        return;
    if (n_statuses++ > 0)
        assert_true(commit->time_ms - last_status_ms >= 1000);
    last_status_ms = commit->time_ms;
}

static void a_status_is_written_once_a_second(void **state)
{
    Manager *manager;
    Lab *lab = lab_of_one(9, &manager);

    last_status_ms = n_statuses = 0;
    script.plan = plan_status;
    fake_etcd_on_commit(lab->server, note_status, NULL);
    for (guint i = 0; i < 100; i++) {
        publish(lab, 0, 1);
        pass(lab, 100);
    }
    assert_in_range(n_statuses, 8, 10);
    pass(lab, 2000); /* and the last one is not forgotten */
    const LhStatus *status = (const LhStatus *)lh_mirror_get(manager->mirror, LH_KIND_STATUS,
                                                             "snapshots/snap-00000/" NAME);
    const LhObject *snapshot = lh_mirror_get(manager->mirror, LH_KIND_SNAPSHOT, "snap-00000");
    assert_int_equal(status->observed_revision, snapshot->mod_rev);
    guint plans = script.plans;
    pass(lab, 60000);
    assert_int_equal(script.plans, plans);
    lab_free(lab);
}

/* ---- what it says about itself ---- */

static void observe(const char *name, const LhOp *op, gint64 revision, gpointer data)
{
    assert_string_equal(name, NAME);
    assert_string_equal(op->rule, "missing");
    assert_true(revision > 0);
    (*(guint *)data)++;
}

static void the_metrics_tell_what_happened(void **state)
{
    static const char labels[] = "controller=\"" NAME "\"";
    Manager *manager;
    Lab *lab = lab_of_one(10, &manager);
    guint observed = 0;

    lh_runtime_observe(manager->runtime, observe, &observed);
    put(lab, "published/snapshots/bad", "bad");
    put(lab, "foreign", "bad");
    publish(lab, 0, 100);
    pass(lab, 20);
    g_free(lh_metrics_text(manager->metrics)); /* runs the collectors */
    assert_int_equal(metric(manager, "queue_depth", labels), 101);
    fake_etcd_delete(lab->server, P "published/snapshots/bad", NULL);
    wait_for(lab, quiet, 1000);
    pass(lab, 1000);
    put(lab, "published/snapshots/bad", "bad");
    pass(lab, 20);
    g_autofree char *text = lh_metrics_text(manager->metrics);
    assert_int_equal(observed, 100);
    assert_int_equal(metric(manager, "mirror_objects", "kind=\"snapshots\""), 101);
    assert_int_equal(metric(manager, "invalid_objects", "kind=\"snapshots\""), 1);
    assert_int_equal(metric(manager, "invalid_objects", "kind=\"unknown\""), 1);
    assert_int_equal(metric(manager, "mirror_revision", NULL), fake_etcd_revision(lab->server));
    assert_int_equal(metric(manager, "etcd_watch_lag_revisions", NULL), 0);
    assert_int_equal(metric(manager, "unassigned_items", "pool=\"cache\""), 100);
    assert_int_equal(metric(manager, "leader", labels), 1);
    assert_int_equal(metric(manager, "fenced_writes_rejected_total", NULL), 0);
    assert_non_null(strstr(text, "leasehold_fenced_writes_rejected_total 0"));
    assert_true(metric(manager, "reconcile_total", "controller=\"" NAME "\",result=\"ok\"") > 0);
    assert_true(metric(manager, "reconcile_total", "controller=\"" NAME "\",result=\"nothing\"") >
                0);
    double last = metric(manager, "last_successful_reconcile_timestamp_seconds", labels);
    assert_true(last * 1000 > SIM_WALL_START_MS + 1000);
    /* Two transactions, from the change to the commit about 50 ms (the debounce). */
    assert_non_null(strstr(text, "leasehold_etcd_txn_duration_seconds_count 2\n"));
    assert_non_null(strstr(
        text, "leasehold_event_to_commit_duration_seconds_count{controller=\"" NAME "\"} 1\n"));
    /* Stepped down: the fleet's gauges are another's. */
    g_autofree char *key = leader_key(manager);
    Manager *second = lab_manager(lab, "m1");
    pass(lab, 1000);
    fake_etcd_delete(lab->server, key, NULL);
    pass(lab, 1000);
    assert_true(leads(second));
    g_autofree char *after = lh_metrics_text(manager->metrics);
    assert_null(strstr(after, "unassigned_items"));
    assert_int_equal(metric(manager, "leader", labels), 0);
    lab_free(lab);
}

static void a_plan_can_be_looked_at(void **state)
{
    Manager *manager;
    Lab *lab = lab_of_one(11, &manager);
    LhPlanContext context;

    put(lab, "desired/settings/" NAME, "{\"spec\":{\"paused\":true}}");
    publish(lab, 0, 5);
    pass(lab, 100);
    g_autoptr(LhPlan) shown = lh_runtime_plan(manager->runtime, &controller, TRUE);
    assert_int_equal(lh_plan_groups(shown), 5);
    assert_true(shown->explain);
    const Index *index = lh_runtime_index(manager->runtime, &controller, &context);
    assert_int_equal(g_tree_nnodes(index->objects[LH_KIND_SNAPSHOT]), 5);
    assert_int_equal(context.revision, fake_etcd_revision(lab->server));
    assert_int_equal(context.epoch, lh_runtime_epoch(manager->runtime, NAME));
    assert_in_range(context.led_ms, SIM_WALL_START_MS, SIM_WALL_START_MS + 1000);
    assert_int_equal(lab->decisions, 0);
    lab_free(lab);
}

static LhPlanContext context_of(const Manager *manager)
{
    LhPlanContext context;

    lh_runtime_index(manager->runtime, &controller, &context);
    return context;
}

/* Forward or backward, seen by a plan or not: what must be waited for is waited for anew. */
static void a_jump_of_the_clock_begins_its_waits_anew(void **state)
{
    static const gint64 jumps[] = {3600 * 1000, -3600 * 1000, 1001, -1001};

    (void)state;
    for (guint i = 0; i < G_N_ELEMENTS(jumps); i++) {
        Manager *manager;
        Lab *lab = lab_of_one(12, &manager);
        LhPlanContext before = context_of(manager);
        script.wake_at_ms = before.now_ms + 10000;
        publish(lab, 0, 1);
        pass(lab, 1000);
        guint plans = script.plans;
        sim_machine_set_wall_offset(manager->env, 900); /* slewed */
        assert_int_equal(context_of(manager).led_ms, before.led_ms);
        assert_int_equal(context_of(manager).ahead_ms, 900);
        sim_machine_set_wall_offset(manager->env, jumps[i]);
        pass(lab, 11000); /* plans then, although its wall clock may say that it is too early */
        assert_true(script.plans > plans);
        LhPlanContext after = context_of(manager);
        assert_true(after.led_ms >= before.led_ms + jumps[i]);
        assert_true(after.now_ms - after.led_ms <= 11000);
        assert_int_equal(after.ahead_ms, 0);
        lab_free(lab);
    }
    script.wake_at_ms = 0;
}

/* ---- the end ---- */

static void stop_lets_end_what_is_in_flight(void **state)
{
    for (guint64 seed = 20; seed < 30; seed++) {
        Lab *lab = lab_new(seed);
        LhRuntimeOptions options = lab_options("m0");
        options.max_in_flight = 4;
        Manager *manager = lab_manager_with(lab, controllers, &options);
        wait_for(lab, one_leads, 1000);
        pass(lab, 1000);
        publish(lab, 0, 3000);
        while (manager->tap->decisions == 0)
            pass(lab, 1);
        guint sent = manager->tap->decisions;
        lh_runtime_stop(manager->runtime, on_stopped, manager);
        pass(lab, 100);
        assert_int_equal(manager->tap->decisions, sent); /* nothing new */
        assert_int_equal(manager->stopped, 1);
        assert_int_equal(lab->decisions, sent * 63); /* what was sent, ended */
        assert_int_equal(n_keys(lab, "leaders/" NAME "/"), 0);
        assert_false(leads(manager));
        pass(lab, 60000);
        assert_int_equal(manager->stopped, 1);
        lab_free(lab);
    }
}

static void stop_is_bounded_when_etcd_is_dead(void **state)
{
    for (guint variant = 0; variant < 4; variant++) {
        Lab *lab = lab_new(30 + variant);
        Manager *manager = lab_manager(lab, "m0");
        if (variant > 0)
            wait_for(lab, one_leads, 1000);
        publish(lab, 0, 300);
        if (variant == 2)
            while (manager->tap->decisions == 0)
                pass(lab, 1);
        if (variant == 3)
            fake_etcd_stop(lab->server);
        else
            fake_etcd_client_cut(manager->tap->inner, FAKE_CUT_BOTH);
        gint64 start = sim_world_now_ms(lab->world);
        lh_runtime_stop(manager->runtime, on_stopped, manager);
        pass(lab, 10100);
        assert_int_equal(manager->stopped, 1);
        assert_true(manager->stopped_at_ms - start <= 10000);
        pass(lab, 60000);
        assert_int_equal(manager->stopped, 1);
        lab_free(lab);
    }
}

static void stop_without_start_reports_too(void **state)
{
    Lab *lab = lab_new(40);
    Manager manager = {.env = sim_machine_new(lab->world, "m")};
    LhRuntimeOptions options = lab_options("m");

    manager.tap = tap_new(fake_etcd_connect(lab->server, manager.env, "m"));
    manager.mirror = lh_mirror_new(manager.env, &manager.tap->etcd, P);
    manager.metrics = lh_metrics_new();
    lh_runtime_declare_metrics(manager.metrics);
    manager.runtime = lh_runtime_new(manager.env, &manager.tap->etcd, manager.mirror,
                                     manager.metrics, controllers, &options);
    assert_int_equal(lh_runtime_lease(manager.runtime), 0);
    assert_true(lh_runtime_idle(manager.runtime));
    lh_runtime_stop(manager.runtime, on_stopped, &manager);
    assert_int_equal(manager.stopped, 0);
    pass(lab, 10);
    assert_int_equal(manager.stopped, 1);
    manager_drop(&manager);
    lh_runtime_free(NULL);
    lab_free(lab);
}

static void free_in_done(gpointer data)
{
    on_stopped(data);
    manager_drop(data);
}

static void it_can_be_freed_when_it_has_stopped(void **state)
{
    for (guint dead = 0; dead < 2; dead++) {
        Manager *manager;
        Lab *lab = lab_of_one(50 + dead, &manager);
        publish(lab, 0, 10);
        pass(lab, 1000);
        if (dead)
            fake_etcd_freeze(lab->server);
        lh_runtime_stop(manager->runtime, free_in_done, manager);
        pass(lab, 30000);
        assert_int_equal(manager->stopped, 1);
        lab_free(lab);
    }
}

/* Frees one of two after @steps timers, in a run with most of what can happen. */
static void freed_after(guint64 seed, guint steps)
{
    Lab *lab = lab_new(seed);
    const FakeFaultRates rates = {.refused = 300, .reply_lost = 1000, .late_commit = 300};

    script.events = TRUE;
    Manager *first = lab_manager(lab, "m0");
    lab_manager(lab, "m1");
    fake_etcd_client_fault_rates(first->tap->inner, &rates);
    publish(lab, 0, 100);
    for (guint i = 0; i < steps; i++) {
        if (i == 100)
            publish(lab, 200, 100);
        if (i == 300)
            fake_etcd_elect(lab->server, 6000);
        if (i == 400 && lh_runtime_lease(first->runtime) != 0)
            fake_etcd_revoke(lab->server, lh_runtime_lease(first->runtime));
        if (i == 500)
            lh_runtime_stop(first->runtime, on_stopped, first);
        sim_world_step(lab->world);
    }
    manager_crash(first);
    pass(lab, 30000);
    assert_true(quiet(lab));
    lab_free(lab);
}

static void it_can_be_freed_at_any_step(void **state)
{
    for (guint steps = 0; steps < 560; steps += (1 + steps / 100) * every())
        freed_after(60 + steps, steps);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_burst_is_one_plan),
        cmocka_unit_test(a_stream_of_changes_does_not_put_it_off_for_ever),
        cmocka_unit_test(settings_are_read_while_running),
        cmocka_unit_test(paused_it_plans_nothing_and_then_all),
        cmocka_unit_test(it_wakes_when_the_plan_said),
        cmocka_unit_test(a_budget_is_kept_and_the_rest_follows),
        cmocka_unit_test(more_without_ops_leaves_the_loop_its_turn),
        cmocka_unit_test(what_an_index_ignores_makes_no_plan),
        cmocka_unit_test(a_status_is_written_once_a_second),
        cmocka_unit_test(the_metrics_tell_what_happened),
        cmocka_unit_test(a_plan_can_be_looked_at),
        cmocka_unit_test(a_jump_of_the_clock_begins_its_waits_anew),
        cmocka_unit_test(stop_lets_end_what_is_in_flight),
        cmocka_unit_test(stop_is_bounded_when_etcd_is_dead),
        cmocka_unit_test(stop_without_start_reports_too),
        cmocka_unit_test(it_can_be_freed_when_it_has_stopped),
        cmocka_unit_test(it_can_be_freed_at_any_step),
    };

    return cmocka_run_group_tests_name("rounds", tests, NULL, NULL);
}
