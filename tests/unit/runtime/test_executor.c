/* links: fakes */
/*
 * runtime/executor: plans as full transactions, many in flight, and what becomes of those that fail or
 * whose outcome nobody knows. Its packing is checked on what etcd committed.
 */
#include "place.h"

/* ---- packing ---- */

/* What the decisions committed since @from looked like. */
typedef struct {
    guint n, most_compares, most_events, least_events;
} Shape;

static Shape shape_since(Lab *lab, gsize from)
{
    Shape shape = {.least_events = G_MAXUINT};

    for (gsize i = from; i < fake_etcd_history_len(lab->server); i++) {
        const FakeCommit *commit = fake_etcd_history_at(lab->server, i);
        if (commit->cause != FAKE_BY_TXN ||
            strstr(fake_commit_event(commit, 0)->kv.key, "/decided/") == NULL)
            continue;
        shape.n++;
        shape.most_compares = MAX(shape.most_compares, (guint)commit->n_compares);
        shape.most_events = MAX(shape.most_events, (guint)commit->n_events);
        shape.least_events = MIN(shape.least_events, (guint)commit->n_events);
    }
    return shape;
}

/* Runs @plan for one snapshot ("snap-00000"), once, and tells what was committed. */
static Shape run_once(guint64 seed, PlanFunc plan, guint n_replicas, Manager **manager, Lab **out)
{
    Lab *lab = *out = lab_new(seed);

    *manager = lab_manager(lab, "m0");
    script.plan = plan;
    wait_for(lab, one_leads, 1000);
    pass(lab, 1000);
    gsize from = fake_etcd_history_len(lab->server);
    (*manager)->tap->decisions = 0;
    publish(lab, 0, 1);
    pass(lab, 2000);
    assert_int_equal(n_keys(lab, "decided/replicas/"), n_replicas);
    return shape_since(lab, from);
}

static void transactions_are_full(void **state)
{
    Lab *lab = lab_new(1);
    Manager *manager = lab_manager(lab, "m0");

    wait_for(lab, one_leads, 1000);
    publish(lab, 0, 500);
    wait_for(lab, quiet, 2000);
    Shape shape = shape_since(lab, 0);
    assert_int_equal(shape.n, 8); /* 2 compares of the fence and 63 × 2 */
    assert_int_equal(shape.most_compares, 128);
    assert_int_equal(shape.most_events, 63);
    assert_int_equal(manager->tap->decisions, 8);
    assert_int_equal(metric(manager, "etcd_txn_total", "result=\"committed\""), 8);
    lab_free(lab);
}

static void plan_shared(const Index *index, G_GNUC_UNUSED const LhPlanContext *context,
                        LhPlan *plan)
{
    const LhObject *snapshot = find(index, LH_KIND_SNAPSHOT, "snap-00000");

    if (snapshot == NULL || g_tree_nnodes(index->objects[LH_KIND_REPLICA]) > 0)
        return;
    for (guint i = 0; i < 250; i++) {
        lh_plan_begin(plan);
        plan_one(plan, "snap-00000", i);
        lh_plan_rely(plan, LH_KIND_SNAPSHOT, "snap-00000", snapshot->mod_rev);
        lh_plan_rely(plan, LH_KIND_SNAPSHOT, "snap-00000", snapshot->mod_rev);
        lh_plan_end(plan);
    }
}

static void a_shared_compare_is_sent_once(void **state)
{
    Manager *manager;
    Lab *lab;
    Shape shape = run_once(2, plan_shared, 250, &manager, &lab);

    assert_int_equal(shape.n, 2);
    assert_int_equal(shape.most_compares, 128);
    assert_int_equal(shape.most_events, 125);
    lab_free(lab);
}

/* As an assigner does: two reliances of each group's own, and one of six that it shares, in turns. */
static void plan_in_turns(const Index *index, G_GNUC_UNUSED const LhPlanContext *context,
                          LhPlan *plan)
{
    if (find(index, LH_KIND_SNAPSHOT, "snap-00000") == NULL ||
        g_tree_nnodes(index->objects[LH_KIND_REPLICA]) > 0)
        return;
    for (guint i = 0; i < 240; i++) {
        g_autofree char *own = g_strdup_printf("own-%u", i);
        g_autofree char *shared = g_strdup_printf("cache/node-%u", i % 6);
        lh_plan_begin(plan);
        plan_one(plan, "snap-00000", i);
        lh_plan_rely(plan, LH_KIND_SNAPSHOT, own, 0);
        lh_plan_rely(plan, LH_KIND_DELETION, own, 0);
        lh_plan_rely(plan, LH_KIND_NODE, shared, 0);
        lh_plan_end(plan);
    }
}

/* 126 compares are the groups' own: three for each and one for each node in the transaction. */
static void groups_that_share_go_together(void **state)
{
    Manager *manager;
    Lab *lab;
    Shape shape = run_once(17, plan_in_turns, 240, &manager, &lab);

    assert_int_equal(shape.n, 6);
    assert_true(shape.most_events >= 41);
    assert_true(shape.most_compares <= 128);
    lab_free(lab);
}

static Tap *early_tap;
static guint sent_while_planning;

static void plan_much(const Index *index, const LhPlanContext *context, LhPlan *plan)
{
    guint before = early_tap->decisions;

    plan_replicas(index, context, plan);
    sent_while_planning = MAX(sent_while_planning, early_tap->decisions - before);
}

/* etcd need not wait until the last of many groups is decided; and nothing is sent twice or left out. */
static void the_first_of_a_large_plan_go_while_it_is_made(void **state)
{
    Lab *lab = lab_new(18);
    Manager *manager = lab_manager(lab, "m0");

    early_tap = manager->tap;
    sent_while_planning = 0;
    wait_for(lab, one_leads, 1000);
    script.plan = plan_much;
    publish(lab, 0, 5000);
    wait_for(lab, quiet, 5000);
    assert_int_equal(sent_while_planning, 32);
    assert_int_equal(n_keys(lab, "decided/replicas/"), 5000);
    assert_int_equal(manager->tap->decisions,
                     metric(manager, "etcd_txn_total", "result=\"committed\""));
    assert_true(manager->tap->decisions <= 5000 / 63 + 2);
    lab_free(lab);
}

static void plan_groups(const Index *index, G_GNUC_UNUSED const LhPlanContext *context,
                        LhPlan *plan)
{
    if (find(index, LH_KIND_SNAPSHOT, "snap-00000") == NULL ||
        g_tree_nnodes(index->objects[LH_KIND_REPLICA]) > 0)
        return;
    for (guint g = 0; g < 7; g++) {
        lh_plan_begin(plan);
        for (guint i = 0; i < 50; i++)
            plan_one(plan, "snap-00000", g * 50 + i);
        lh_plan_end(plan);
    }
}

static void groups_are_never_split(void **state)
{
    Manager *manager;
    Lab *lab;
    Shape shape = run_once(3, plan_groups, 350, &manager, &lab);

    assert_int_equal(shape.n, 4);
    assert_int_equal(shape.most_events, 100);
    assert_int_equal(shape.least_events, 50);
    lab_free(lab);
}

/* Two groups that must not share a transaction, because etcd compares all before it writes any. */
static void plan_apart(const Index *index, G_GNUC_UNUSED const LhPlanContext *context, LhPlan *plan)
{
    const LhObject *snapshot = find(index, LH_KIND_SNAPSHOT, "snap-00000");

    if (snapshot == NULL || g_tree_nnodes(index->objects[LH_KIND_REPLICA]) > 0)
        return;
    lh_plan_begin(plan);
    plan_one(plan, "snap-00000", 0);
    lh_plan_rely(plan, LH_KIND_SNAPSHOT, "snap-00000", snapshot->mod_rev);
    lh_plan_end(plan);
    for (guint i = 0; i < 4; i++) {
        lh_plan_begin(plan);
        if (i == 0)
            plan_one(plan, "snap-00000", 0); /* the same key */
        else
            plan_one(plan, "snap-00001", i);
        if (i == 1)
            lh_plan_rely(plan, LH_KIND_REPLICA, "snap-00000.default.0", 0);
        if (i == 2)
            lh_plan_rely_none(plan, LH_KIND_REPLICA, "snap-00000.");
        if (i == 3)
            lh_plan_rely(plan, LH_KIND_SNAPSHOT, "snap-00000", snapshot->mod_rev + 1);
        lh_plan_end(plan);
    }
}

static void what_excludes_each_other_goes_apart(void **state)
{
    for (guint64 seed = 4; seed < 14; seed += every()) {
        Manager *manager;
        Lab *lab = lab_new(seed);
        manager = lab_manager(lab, "m0");
        script.plan = plan_apart;
        wait_for(lab, one_leads, 1000);
        publish(lab, 0, 1);
        pass(lab, 2000);
        /* Whatever came first, the others were refused, and never was one of two beside the other. */
        guint first = 0;
        for (gsize i = 0; i < fake_etcd_history_len(lab->server); i++) {
            const FakeCommit *commit = fake_etcd_history_at(lab->server, i);
            if (commit->cause != FAKE_BY_TXN ||
                strstr(fake_commit_event(commit, 0)->kv.key, "/decided/") == NULL)
                continue;
            gboolean has_first = FALSE, has_reliant = FALSE;
            for (gsize e = 0; e < commit->n_events; e++) {
                const char *key = fake_commit_event(commit, e)->kv.key;
                has_first = has_first || strstr(key, "snap-00000.default.0") != NULL;
                has_reliant = has_reliant || strstr(key, "snap-00001") != NULL;
            }
            assert_false(has_first && has_reliant);
            first += has_first;
        }
        assert_int_equal(first, 1);
        assert_true(manager->tap->decisions >= 3);
        assert_true(metric(manager, "etcd_txn_total", "result=\"conflict\"") > 0);
        assert_int_equal(metric(manager, "etcd_txn_total", "result=\"invalid\""), 0);
        lab_free(lab);
    }
}

static void plan_contradictory(const Index *index, G_GNUC_UNUSED const LhPlanContext *context,
                               LhPlan *plan)
{
    const LhObject *snapshot = find(index, LH_KIND_SNAPSHOT, "snap-00000");

    for (guint i = 0; snapshot != NULL && i < 2; i++) {
        lh_plan_begin(plan);
        plan_one(plan, "snap-00000", i);
        lh_plan_rely(plan, LH_KIND_SNAPSHOT, "snap-00000", snapshot->mod_rev + i);
        lh_plan_end(plan);
    }
}

/* One of the two is wrong about the snapshot, and does not take the other one with it. */
static void what_contradicts_each_other_goes_apart(void **state)
{
    Lab *lab = lab_new(16);
    Manager *manager = lab_manager(lab, "m0");

    script.plan = plan_contradictory;
    wait_for(lab, one_leads, 1000);
    publish(lab, 0, 1);
    while (manager->tap->decisions == 0)
        pass(lab, 1);
    assert_int_equal(manager->tap->decisions, 2);
    pass(lab, 1000);
    assert_int_equal(n_keys(lab, "decided/replicas/"), 1);
    lab_free(lab);
}

/* The first makes what the other two rely on not being there, one by name and one by prefix. */
static void plan_on_absence(const Index *index, G_GNUC_UNUSED const LhPlanContext *context,
                            LhPlan *plan)
{
    if (find(index, LH_KIND_SNAPSHOT, "snap-00000") == NULL ||
        g_tree_nnodes(index->objects[LH_KIND_REPLICA]) > 0)
        return;
    for (guint i = 0; i < 3; i++) {
        lh_plan_begin(plan);
        plan_one(plan, "snap-00000", i);
        if (i == 1)
            lh_plan_rely(plan, LH_KIND_REPLICA, "snap-00000.default.0", 0);
        if (i == 2)
            lh_plan_rely_none(plan, LH_KIND_REPLICA, "snap-00000.");
        lh_plan_end(plan);
    }
}

/* etcd compares before it writes: in one transaction all three would pass. */
static void what_relies_on_what_is_written_goes_apart(void **state)
{
    Manager *manager;
    Lab *lab;
    Shape shape = run_once(19, plan_on_absence, 1, &manager, &lab);

    assert_int_equal(shape.n, 1);
    assert_int_equal(manager->tap->decisions, 3);
    lab_free(lab);
}

static void at_most_so_many_are_in_flight(void **state)
{
    Lab *lab = lab_new(15);
    Manager *manager = lab_manager(lab, "m0");

    wait_for(lab, one_leads, 1000);
    publish(lab, 0, 7000);
    wait_for(lab, quiet, 5000);
    assert_int_equal(manager->tap->decisions, 112);
    assert_int_equal(manager->tap->most_in_flight, 32);
    lab_free(lab);
}

/* ---- unknown outcomes ---- */

static FakeFault outcome;

static FakeFault fault_decisions(Tap *tap, const LhTxnRequest *request)
{
    if (!is_decision(request) || tap->faults_left == 0)
        return FAKE_FAULT_NONE;
    tap->faults_left--;
    return outcome;
}

static void an_unknown_outcome(FakeFault fault, guint64 seed, guint *late)
{
    Lab *lab = lab_new(seed);
    Manager *manager = lab_manager(lab, "m0");

    script.plan = place_once;
    outcome = fault;
    wait_for(lab, one_leads, 1000);
    pass(lab, 1000);
    gint64 epoch = lh_runtime_epoch(manager->runtime, NAME);
    manager->tap->fault = fault_decisions;
    manager->tap->faults_left = 2;
    publish(lab, 0, 200);
    wait_for(lab, quiet, 40000);
    pass(lab, 30000);
    check_placed_once(lab, 200);
    assert_true(manager->tap->rewrites > 0);
    assert_true(leads(manager));
    assert_int_equal(lh_runtime_epoch(manager->runtime, NAME), epoch);
    assert_int_equal(metric(manager, "fenced_writes_rejected_total", NULL), 0);
    assert_true(metric(manager, "etcd_txn_total", "result=\"unknown_outcome\"") > 0);
    assert_true(metric(manager, "reconcile_total",
                       "controller=\"" NAME "\",result=\"unknown_outcome\"") > 0);
    *late += (guint)fake_etcd_stats(lab->server)->late_commits;
    lab_free(lab);
}

static void a_lost_reply_is_looked_after(void **state)
{
    guint late = 0;

    for (guint64 seed = 100; seed < 112; seed += every())
        an_unknown_outcome(FAKE_FAULT_REPLY_LOST, seed, &late);
}

static void a_lost_request_is_looked_after(void **state)
{
    guint late = 0;

    for (guint64 seed = 120; seed < 132; seed += every())
        an_unknown_outcome(FAKE_FAULT_REQUEST_LOST, seed, &late);
}

static void a_late_request_is_refused(void **state)
{
    guint late = 0;

    for (guint64 seed = 140; seed < 152; seed += every())
        an_unknown_outcome(FAKE_FAULT_LATE_COMMIT, seed, &late);
    /* They arrived, and check_placed_once says that they changed nothing. */
    assert_true(late >= 18 / every());
}

/* The first decision's reply is lost, and the first rewrite of the leader key comes late: after the second
 * one, and after decisions under it. */
static FakeFault late_rewrite(Tap *tap, const LhTxnRequest *request)
{
    if (is_decision(request) && tap->faults_left == 2) {
        tap->faults_left = 1;
        return FAKE_FAULT_REPLY_LOST;
    }
    if (is_rewrite(request) && tap->faults_left == 1) {
        tap->faults_left = 0;
        return FAKE_FAULT_LATE_COMMIT;
    }
    return FAKE_FAULT_NONE;
}

static void its_own_late_rewrite_is_adopted(void **state)
{
    guint adopted = 0;

    for (guint64 seed = 160; seed < 168; seed += every()) {
        Lab *lab = lab_new(seed);
        Manager *manager = lab_manager(lab, "m0");
        script.plan = place_once;
        wait_for(lab, one_leads, 1000);
        pass(lab, 1000);
        gint64 epoch = lh_runtime_epoch(manager->runtime, NAME);
        manager->tap->fault = late_rewrite;
        manager->tap->faults_left = 2;
        for (guint i = 0; i < 1000; i++) { /* 30 s: decisions all the time */
            publish(lab, i, 1);
            pass(lab, 30);
        }
        wait_for(lab, all_idle, 10000);
        check_placed_once(lab, 1000);
        assert_int_equal(manager->tap->faults_left, 0);
        assert_int_equal(fake_etcd_stats(lab->server)->late_commits, 1);
        assert_int_equal(lh_runtime_epoch(manager->runtime, NAME), epoch);
        assert_int_equal(metric(manager, "fenced_writes_rejected_total", NULL), 0);
        adopted += metric(manager, "etcd_txn_total", "result=\"conflict\"") > 0;
        lab_free(lab);
    }
    assert_true(adopted > 0); /* at least once a decision had been on its way */
}

/* The connection breaks, and the lease runs into doubt, while the instance stands still: it hears of both in
 * one turn, and steps down before the round has ended. etcd has kept the lease: it leads again under the same
 * key, which what it sent then still compares. */
static void an_unknown_outcome_outlives_stepping_down(void **state)
{
    Lab *lab = lab_new(170);
    Manager *manager = lab_manager(lab, "m0");

    wait_for(lab, one_leads, 1000);
    pass(lab, 1000);
    gint64 epoch = lh_runtime_epoch(manager->runtime, NAME);
    outcome = FAKE_FAULT_REPLY_LOST;
    manager->tap->fault = fault_decisions;
    manager->tap->faults_left = 1;
    publish(lab, 0, 1);
    while (manager->tap->faults_left == 1)
        pass(lab, 1);
    fake_etcd_elect(lab->server, 9000); /* no lease ends meanwhile */
    sim_machine_pause(manager->env);
    fake_etcd_client_reset(manager->tap->inner);
    pass(lab, 8000);
    sim_machine_resume(manager->env);
    pass(lab, 1);
    assert_false(leads(manager));
    wait_for(lab, one_leads, 10000);
    assert_int_equal(lh_runtime_epoch(manager->runtime, NAME), epoch);
    wait_for(lab, quiet, 40000);
    assert_true(manager->tap->rewrites > 0);
    pass(lab, 30000);
    check_placed_once(lab, 1);
    lab_free(lab);
}

/* ---- conflicts and errors ---- */

static gboolean poison_with_size; /* or with a compare that never holds */

static void plan_poisoned(const Index *index, const LhPlanContext *context, LhPlan *plan)
{
    lh_plan_begin(plan);
    plan_one(plan, "poison", 0);
    if (poison_with_size)
        for (guint i = 1; i < 130; i++)
            plan_one(plan, "poison", i);
    else
        lh_plan_rely(plan, LH_KIND_SNAPSHOT, "snap-00000", 1);
    lh_plan_end(plan);
    plan_replicas(index, context, plan);
}

static void a_group_that_never_passes(guint64 seed, gboolean size)
{
    Lab *lab = lab_new(seed);
    Manager *manager = lab_manager(lab, "m0");

    poison_with_size = size;
    script.plan = plan_poisoned;
    wait_for(lab, one_leads, 1000);
    publish(lab, 0, 300);
    wait_for(lab, converged, 5000); /* the others pass */
    pass(lab, 10000);
    guint sent = manager->tap->decisions;
    pass(lab, 60000);
    assert_true(manager->tap->decisions > sent); /* it goes on trying */
    assert_true(manager->tap->decisions <= sent + 200);
    publish(lab, 300, 10);
    wait_for(lab, converged, 12000);
    assert_true(leads(manager));
    lab_free(lab);
}

static void a_conflict_for_ever_holds_up_nobody(void **state)
{
    a_group_that_never_passes(180, FALSE);
}

static void an_invalid_group_holds_up_nobody(void **state)
{
    a_group_that_never_passes(181, TRUE);
}

/* People edit what it relies on, all the time. */
static void conflicts_end(void **state)
{
    Lab *lab = lab_new(182);
    Manager *manager = lab_manager(lab, "m0");
    guint rounds = 0;

    wait_for(lab, one_leads, 1000);
    publish(lab, 0, 400);
    while (!converged(lab) && rounds++ < 5000) {
        for (guint i = 0; i < 20; i++)
            publish(lab, (guint)sim_world_below(lab->world, 400), 1); /* rewritten */
        pass(lab, 2);
    }
    assert_in_range(rounds, 50, 2000);
    assert_true(metric(manager, "etcd_txn_total", "result=\"conflict\"") > 0);
    assert_true(metric(manager, "reconcile_total", "controller=\"" NAME "\",result=\"conflict\"") >
                0);
    pass(lab, 2000);
    assert_true(quiet(lab));
    lab_free(lab);
}

static void a_full_etcd_is_waited_for(void **state)
{
    for (guint commit_anyway = 0; commit_anyway < 2; commit_anyway++) {
        Lab *lab = lab_new(183 + commit_anyway);
        Manager *manager = lab_manager(lab, "m0");
        script.plan = place_once;
        wait_for(lab, one_leads, 1000);
        pass(lab, 1000);
        fake_etcd_set_nospace(lab->server, TRUE, commit_anyway);
        publish(lab, 0, 100);
        pass(lab, 60000);
        assert_true(leads(manager));
        assert_true(manager->tap->sent < 100); /* backs off */
        fake_etcd_set_nospace(lab->server, FALSE, 0);
        wait_for(lab, quiet, 5000);
        check_placed_once(lab, 100);
        lab_free(lab);
    }
}

static void an_overloaded_etcd_is_spared(void **state)
{
    Lab *lab = lab_new(185);
    LhRuntimeOptions options = lab_options("m0");

    options.max_in_flight = 4;
    Manager *manager = lab_manager_with(lab, controllers, &options);
    wait_for(lab, one_leads, 1000);
    pass(lab, 1000);
    outcome = FAKE_FAULT_OVERLOADED;
    manager->tap->fault = fault_decisions;
    manager->tap->faults_left = 1000000;
    publish(lab, 0, 7000);
    pass(lab, 30000);
    assert_in_range(manager->tap->decisions, 5, 100);
    assert_true(
        metric(manager, "reconcile_total", "controller=\"" NAME "\",result=\"overloaded\"") > 0);
    assert_int_equal(manager->tap->rewrites, 0); /* surely nothing was done */
    manager->tap->faults_left = 0;
    wait_for(lab, quiet, 15000);
    lab_free(lab);
}

/* Some transactions commit, one is refused, and the watch is slow: what was written must be seen before
 * the next plan. */
static FakeFault refuse_one(Tap *tap, const LhTxnRequest *request)
{
    if (!is_decision(request) || tap->faults_left == 0)
        return FAKE_FAULT_NONE;
    return --tap->faults_left == 0 ? FAKE_FAULT_REFUSED : FAKE_FAULT_NONE;
}

static void own_writes_are_seen_before_the_next_plan(void **state)
{
    const FakeFaultRates rates = {.stream_closed = 8000};

    for (guint64 seed = 190; seed < 202; seed += every()) {
        Lab *lab = lab_new(seed);
        Manager *manager = lab_manager(lab, "m0");
        script.plan = place_once;
        wait_for(lab, one_leads, 1000);
        pass(lab, 1000);
        publish(lab, 0, 200);
        manager->tap->fault = refuse_one;
        manager->tap->faults_left = 2;
        while (manager->tap->decisions == 0)
            pass(lab, 1);
        fake_etcd_client_close_streams(manager->tap->inner);
        fake_etcd_client_fault_rates(manager->tap->inner, &rates);
        pass(lab, 20000);
        fake_etcd_client_fault_rates(manager->tap->inner, NULL);
        pass(lab, 20000);
        assert_true(all_idle(lab));
        check_placed_once(lab, 200);
        lab_free(lab);
    }
}

/* In doubt and renewed in between: still the same leader, still its own writes. */
static void own_writes_are_seen_after_doubt_too(void **state)
{
    const FakeFaultRates rates = {.stream_closed = 9500};
    guint waited = 0;

    for (guint64 seed = 220; seed < 232; seed++) {
        Lab *lab = lab_new(seed);
        Manager *manager = lab_manager(lab, "m0");
        script.plan = place_once;
        wait_for(lab, one_leads, 1000);
        pass(lab, 1000);
        publish(lab, 0, 200);
        while (manager->tap->decisions == 0)
            pass(lab, 1);
        fake_etcd_client_close_streams(manager->tap->inner);
        fake_etcd_client_fault_rates(manager->tap->inner, &rates);
        pass(lab, 10);
        waited += lab->decisions == 200 && lh_mirror_count(manager->mirror, LH_KIND_REPLICA) == 0;
        fake_etcd_elect(lab->server, 6000);
        wait_for(lab, none_leads, 6000);
        pass(lab, 30000);
        fake_etcd_client_fault_rates(manager->tap->inner, NULL);
        pass(lab, 20000);
        assert_true(all_idle(lab));
        check_placed_once(lab, 200);
        lab_free(lab);
    }
    assert_true(waited > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(transactions_are_full),
        cmocka_unit_test(a_shared_compare_is_sent_once),
        cmocka_unit_test(groups_are_never_split),
        cmocka_unit_test(what_excludes_each_other_goes_apart),
        cmocka_unit_test(what_contradicts_each_other_goes_apart),
        cmocka_unit_test(what_relies_on_what_is_written_goes_apart),
        cmocka_unit_test(at_most_so_many_are_in_flight),
        cmocka_unit_test(groups_that_share_go_together),
        cmocka_unit_test(the_first_of_a_large_plan_go_while_it_is_made),
        cmocka_unit_test(a_lost_reply_is_looked_after),
        cmocka_unit_test(a_lost_request_is_looked_after),
        cmocka_unit_test(a_late_request_is_refused),
        cmocka_unit_test(its_own_late_rewrite_is_adopted),
        cmocka_unit_test(an_unknown_outcome_outlives_stepping_down),
        cmocka_unit_test(a_conflict_for_ever_holds_up_nobody),
        cmocka_unit_test(an_invalid_group_holds_up_nobody),
        cmocka_unit_test(conflicts_end),
        cmocka_unit_test(a_full_etcd_is_waited_for),
        cmocka_unit_test(an_overloaded_etcd_is_spared),
        cmocka_unit_test(own_writes_are_seen_before_the_next_plan),
        cmocka_unit_test(own_writes_are_seen_after_doubt_too),
    };

    return cmocka_run_group_tests_name("executor", tests, NULL, NULL);
}
