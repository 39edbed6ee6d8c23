/* links: fakes */
/*
 * runtime/election against a model of a few lines, in random histories: three instances that work, crash,
 * are stopped, paused, cut off, lose their lease or key, are moved away from, whose requests and answers
 * are lost or come late, and whose watches must list anew.
 *
 * The model is a queue: a leader key joins at its end when it is created under a lease, keeps its place
 * when it is rewritten under that lease, and leaves when it goes or is written over without; the first in
 * the queue leads. It is fed by the commits alone. After every step every instance must lead exactly when
 * the model says so at the revision that the instance's mirror shows, and its lease's deadline, counted by
 * the tap, has not passed.
 *
 * LEASEHOLD_SEED=N runs that history alone (LAB_LOG=1 with its log), LEASEHOLD_HISTORIES=N so many.
 */
#include "lab.h"

#define HISTORIES 1000
#define ROUNDS    30
#define N         MAX_LAB
#define QUIET_MS  60000

typedef struct {
    gint64 create, lease; /* 0: nobody */
} Place;

typedef struct {
    gint64 from_rev;
    Place head;
} Reign;

static struct {
    guint64 seed;
    Lab *lab;
    LhEtcd *operator_client;
    GArray *queue;  /* Place */
    GArray *reigns; /* Reign, by from_rev; the last one is the present's */
    gboolean faults, guards;
    gboolean stopping[N];
    gint64 resumed_ms[N];
    gint64 last_epoch;                /* of a committed decision */
    gint64 planned_epoch, planned_ms; /* the last plan */
    guint published, unpublished;
    guint64 starts;
} model;

/* Over all histories: a run that saw too little proves nothing. */
static struct {
    guint64 steps, reigns, commits, late, fenced, moves, rewrites, relists, expiries;
} seen;

#define CHECK(condition, ...)                \
    do {                                     \
        if (!(condition))                    \
            broken(#condition, __VA_ARGS__); \
    } while (0)

static void G_GNUC_PRINTF(2, 3) broken(const char *condition, const char *format, ...)
{
    va_list arguments;
    g_autofree char *what = NULL;

    va_start(arguments, format);
    what = g_strdup_vprintf(format, arguments);
    va_end(arguments);
    fail_msg("LEASEHOLD_SEED=%" G_GUINT64_FORMAT ", at %" G_GINT64_FORMAT " ms: %s: %s", model.seed,
             sim_world_now_ms(model.lab->world), what, condition);
}

/* ---- the model ---- */

static Place head_now(void)
{
    return model.queue->len == 0 ? (Place){0} : g_array_index(model.queue, Place, 0);
}

static const Reign *reign_at(gint64 revision)
{
    static const Reign nobody;

    for (guint i = model.reigns->len; i > 0; i--) {
        const Reign *reign = &g_array_index(model.reigns, Reign, i - 1);
        if (reign->from_rev <= revision)
            return reign;
    }
    return &nobody;
}

static void leave(gint64 lease)
{
    for (guint i = 0; i < model.queue->len; i++)
        if (g_array_index(model.queue, Place, i).lease == lease) {
            g_array_remove_index(model.queue, i);
            return;
        }
}

static void model_event(const LhEtcdEvent *event, const LhKv *before)
{
    gint64 owner = (gint64)g_ascii_strtoull(strrchr(event->kv.key, '/') + 1, NULL, 16);
    Place place = {event->kv.create_rev, owner};

    if (event->is_delete || event->kv.lease == 0)
        leave(owner);
    else if (before == NULL)
        g_array_append_val(model.queue, place);
    else
        CHECK(before->lease == owner && event->kv.lease == owner, "bound anew: %s", event->kv.key);
}

/* Who crosses the deadline must know before etcd gives the lease to nobody. */
static void model_expiry(const FakeCommit *commit)
{
    for (guint i = 0; i < N; i++) {
        const Manager *m = &model.lab->managers[i];
        if (m->runtime != NULL && lh_runtime_lease(m->runtime) == commit->lease)
            CHECK(m->tap->held_until_ms <= lh_mono_ms(m->env), "%s relies on an expired lease",
                  m->name);
    }
    seen.expiries++;
}

static void model_decision(const FakeCommit *commit)
{
    gint64 epoch = commit->compares[0].number, now_ms = sim_world_now_ms(model.lab->world);

    CHECK(epoch == head_now().create,
          "epoch %" G_GINT64_FORMAT " wrote, %" G_GINT64_FORMAT " leads", epoch, head_now().create);
    CHECK(epoch >= model.last_epoch, "epoch %" G_GINT64_FORMAT " after %" G_GINT64_FORMAT, epoch,
          model.last_epoch);
    model.last_epoch = epoch;
    /* What is unknown is voided before the next plan: nothing of an earlier one comes after it. */
    if (model.guards && epoch == model.planned_epoch)
        CHECK(now_ms - (commit->time_ms - commit->sent_ms) >= model.planned_ms,
              "a transaction of before the last plan");
    seen.commits++;
    seen.late += commit->late;
}

static void on_model_commit(const FakeCommit *commit, gpointer data)
{
    gint64 head = head_now().create;
    gboolean leaders = FALSE;

    check_commit(commit, data);
    for (gsize i = 0; i < commit->n_events; i++) {
        const LhEtcdEvent *event = fake_commit_event(commit, i);
        if (g_str_has_prefix(event->kv.key, P "leaders/" NAME "/")) {
            model_event(event, fake_commit_prev(commit, i));
            leaders = TRUE;
        }
    }
    if (commit->cause == FAKE_BY_EXPIRY)
        model_expiry(commit);
    if (commit->cause == FAKE_BY_TXN && !leaders)
        model_decision(commit);
    if (head_now().create == head)
        return;
    Reign reign = {commit->revision, head_now()};
    g_array_append_val(model.reigns, reign);
    seen.reigns++;
}

/* ---- the instances against it ---- */

/* Its clocks went on while it stood still, and what it missed is only being run. */
static gboolean stands_still(guint i)
{
    return sim_machine_paused(model.lab->managers[i].env) ||
           model.resumed_ms[i] == sim_world_now_ms(model.lab->world);
}

static void check_instance(guint i)
{
    const Manager *m = &model.lab->managers[i];
    gint64 now_ms = lh_mono_ms(m->env), until_ms = m->tap->held_until_ms;
    gint64 lease = lh_runtime_lease(m->runtime), revision = lh_mirror_revision(m->mirror);
    const Reign *reign = reign_at(revision);
    gboolean first = lease != 0 && reign->head.lease == lease;

    if (lh_runtime_leads(m->runtime, NAME)) {
        CHECK(first, "%s leads, not the first of revision %" G_GINT64_FORMAT, m->name, revision);
        CHECK(lh_runtime_epoch(m->runtime, NAME) == reign->head.create, "%s: epoch", m->name);
        CHECK(now_ms <= until_ms || stands_still(i), "%s leads past its deadline", m->name);
    } else if (first && now_ms < until_ms && !stands_still(i) && !model.stopping[i]) {
        /* Only etcd's own word may come before the mirror's. */
        CHECK(head_now().create != reign->head.create,
              "%s does not lead at revision %" G_GINT64_FORMAT, m->name, revision);
    }
}

/* Two may believe that they lead while a mirror is behind; never two that have seen everything. */
static void check_all(void)
{
    guint believe = 0;

    for (guint i = 0; i < N; i++) {
        const Manager *m = &model.lab->managers[i];
        if (m->runtime == NULL)
            continue;
        check_instance(i);
        believe += lh_runtime_leads(m->runtime, NAME) &&
                   lh_mono_ms(m->env) < m->tap->held_until_ms &&
                   lh_mirror_revision(m->mirror) >= reign_at(G_MAXINT64)->from_rev;
    }
    CHECK(believe <= 1, "%u lead", believe);
    seen.steps++;
}

static void go_on(gint64 ms)
{
    gint64 until_ms = sim_world_now_ms(model.lab->world) + ms;

    while (sim_world_next_ms(model.lab->world) <= until_ms) {
        sim_world_step(model.lab->world);
        if (model.guards)
            check_all();
    }
    sim_world_run_until(model.lab->world, until_ms);
}

static void plan_checked(const Index *index, const LhPlanContext *context, LhPlan *plan)
{
    const Reign *reign = reign_at(context->revision);

    if (model.guards)
        CHECK(context->epoch == reign->head.create,
              "epoch %" G_GINT64_FORMAT " plans at revision %" G_GINT64_FORMAT, context->epoch,
              context->revision);
    model.planned_epoch = context->epoch;
    model.planned_ms = sim_world_now_ms(model.lab->world);
    plan_replicas(index, context, plan);
}

/* ---- faults of single transactions ---- */

static guint below(guint n)
{
    return (guint)sim_world_below(model.lab->world, n);
}

static FakeFault choose_fault(Tap *tap, const LhTxnRequest *request)
{
    guint dice = below(100);

    if (is_decision(request) && model.guards)
        CHECK(lh_mono_ms(tap->env) < tap->held_until_ms, "a transaction past the deadline");
    seen.rewrites += is_rewrite(request);
    if (!model.faults)
        return FAKE_FAULT_NONE;
    return dice < 6    ? FAKE_FAULT_LATE_COMMIT
           : dice < 12 ? FAKE_FAULT_REPLY_LOST
           : dice < 16 ? FAKE_FAULT_REQUEST_LOST
           : dice < 18 ? FAKE_FAULT_REFUSED
                       : FAKE_FAULT_NONE;
}

/* ---- what happens ---- */

static void start(guint i)
{
    g_autofree char *name = g_strdup_printf("m%u-%" G_GUINT64_FORMAT, i, model.starts++);
    LhRuntimeOptions options = lab_options(name);
    Lab *lab = model.lab;

    options.fault_no_deadline = options.fault_no_leader_watch = !model.guards;
    lab->n = i;
    Manager *manager = lab_manager_with(lab, controllers, &options);
    lab->n = N;
    manager->stopped = 0;
    manager->tap->fault = choose_fault;
    model.stopping[i] = FALSE;
    model.resumed_ms[i] = -1;
}

static void count_manager(const Manager *m)
{
    seen.fenced += (guint64)metric(m, "fenced_writes_rejected_total", NULL);
}

static void end_instance(guint i)
{
    count_manager(&model.lab->managers[i]);
    manager_crash(&model.lab->managers[i]);
}

static void act_work(guint i)
{
    guint n = 1 + below(20);

    publish(model.lab, model.published, n);
    model.published += n;
}

static void act_less_work(guint i)
{
    guint n = below(5);

    n = MIN(n, model.published - model.unpublished);

    unpublish(model.lab, model.unpublished, n);
    model.unpublished += n;
}

static void act_crash(guint i)
{
    end_instance(i);
    if (below(2) == 0)
        start(i);
}

static void act_stop(guint i)
{
    Manager *m = &model.lab->managers[i];

    lh_runtime_stop(m->runtime, on_stopped, m);
    model.stopping[i] = TRUE;
}

static void act_pause(guint i)
{
    sim_machine_pause(model.lab->managers[i].env);
}

static void act_resume(guint i)
{
    for (guint k = 0; k < N; k++)
        if (model.lab->managers[k].runtime != NULL &&
            sim_machine_paused(model.lab->managers[k].env)) {
            model.resumed_ms[k] = sim_world_now_ms(model.lab->world);
            sim_machine_resume(model.lab->managers[k].env);
        }
}

static void act_cut(guint i)
{
    fake_etcd_client_cut(model.lab->managers[i].tap->inner, (FakeCut)(1 + below(3)));
}

static void act_heal(guint i)
{
    for (guint k = 0; k < N; k++)
        if (model.lab->managers[k].runtime != NULL)
            fake_etcd_client_cut(model.lab->managers[k].tap->inner, FAKE_CUT_NONE);
}

static void act_reset(guint i)
{
    fake_etcd_client_reset(model.lab->managers[i].tap->inner);
}

static void act_slow(guint i)
{
    fake_etcd_client_slow(model.lab->managers[i].tap->inner, below(2) * 1000, below(2) * 1500);
}

static void act_revoke(guint i)
{
    fake_etcd_revoke(model.lab->server, lh_runtime_lease(model.lab->managers[i].runtime));
}

static void act_delete_key(guint i)
{
    g_autofree char *key = leader_key(&model.lab->managers[i]);

    fake_etcd_delete(model.lab->server, key, NULL);
}

static void act_write_over(guint i)
{
    g_autofree char *key = leader_key(&model.lab->managers[i]);

    if (fake_etcd_get(model.lab->server, key, 0) != NULL)
        fake_etcd_put(model.lab->server, key, "{}", 0);
}

static void on_moved(const LhTxnReply *reply, const GError *error, gpointer data)
{
    seen.moves += error == NULL && reply->succeeded;
}

/* `leaders move`: one transaction, the target exists and all older keys go. */
static void act_move(guint i)
{
    guint at = model.queue->len == 0 ? 0 : below(model.queue->len);
    g_autoptr(GPtrArray) keys = g_ptr_array_new_with_free_func(g_free);
    LhTxnOp ops[N * 4];

    if (at == 0 || at >= G_N_ELEMENTS(ops))
        return;
    for (guint k = 0; k <= at; k++) {
        g_autofree char *hex = lh_lease_hex(g_array_index(model.queue, Place, k).lease);
        g_ptr_array_add(keys, g_strconcat(P "leaders/" NAME "/", hex, NULL));
        ops[k] = lh_txn_delete(keys->pdata[k]);
    }
    LhCompare exists = lh_compare_create(keys->pdata[at],
                                         g_array_index(model.queue, Place, at).create);
    LhTxnRequest request = {.compares = &exists, .n_compares = 1, .success = ops, .n_success = at};
    lh_etcd_txn(model.operator_client, &request, on_moved, NULL);
}

static void act_compact(guint i)
{
    fake_etcd_compact(model.lab->server, fake_etcd_revision(model.lab->server));
    for (guint k = 0; k < N; k++)
        if (model.lab->managers[k].runtime != NULL)
            fake_etcd_client_close_streams(model.lab->managers[k].tap->inner);
    seen.relists++;
}

static void act_elect(guint i)
{
    fake_etcd_elect(model.lab->server, 500 + below(8000));
}

/* needs: the instance lives, and has a lease that it was not asked to give up */
static const struct {
    guint weight;
    gboolean needs;
    void (*act)(guint i);
} acts[] = {
    {30, FALSE, act_work},     {5, FALSE, act_less_work}, {5, TRUE, act_crash},
    {5, TRUE, act_stop},       {8, TRUE, act_pause},      {12, FALSE, act_resume},
    {6, TRUE, act_cut},        {10, FALSE, act_heal},     {4, TRUE, act_reset},
    {4, TRUE, act_slow},       {5, TRUE, act_revoke},     {5, TRUE, act_delete_key},
    {3, TRUE, act_write_over}, {10, FALSE, act_move},     {5, FALSE, act_compact},
    {3, FALSE, act_elect},
};

static void act(void)
{
    guint total = 0, i = below(N);

    for (guint k = 0; k < G_N_ELEMENTS(acts); k++)
        total += acts[k].weight;
    guint at = below(total), k = 0;
    while (at >= acts[k].weight)
        at -= acts[k++].weight;
    const Manager *m = &model.lab->managers[i];
    gboolean fit = m->runtime != NULL && !model.stopping[i] && lh_runtime_lease(m->runtime) != 0;
    if (!acts[k].needs || fit)
        acts[k].act(i);
}

/* Who has stopped or died comes back, now and then. */
static void revive(gboolean all)
{
    for (guint i = 0; i < N; i++) {
        Manager *m = &model.lab->managers[i];
        if (m->runtime != NULL && m->stopped > 0)
            end_instance(i);
        if (m->runtime == NULL && (all || below(3) == 0))
            start(i);
    }
}

/* ---- the end: everybody has caught up ---- */

static gboolean at_rest(Lab *lab)
{
    return model.queue->len == N && n_leaders(lab) == 1 && quiet(lab);
}

static void come_to_rest(void)
{
    Lab *lab = model.lab;
    gint64 start_ms = sim_world_now_ms(lab->world), epoch;

    model.faults = FALSE;
    act_resume(0);
    act_heal(0);
    for (guint i = 0; i < N; i++) {
        if (model.stopping[i] && lab->managers[i].runtime != NULL)
            end_instance(i);
        if (lab->managers[i].runtime != NULL)
            fake_etcd_client_slow(lab->managers[i].tap->inner, 0, 0);
    }
    revive(TRUE);
    go_on(25000); /* what is late has come, and what has no owner has expired */
    while (!at_rest(lab)) {
        CHECK(sim_world_now_ms(lab->world) < start_ms + QUIET_MS, "%u wait, %u lead",
              model.queue->len, n_leaders(lab));
        go_on(500);
    }
    epoch = lh_runtime_epoch(leader(lab)->runtime, NAME);
    CHECK(epoch == head_now().create, "epoch %" G_GINT64_FORMAT, epoch);
    CHECK(lh_runtime_lease(leader(lab)->runtime) == head_now().lease, "the first does not lead");
    go_on(2 * TTL_S * 1000);
    CHECK(at_rest(lab) && lh_runtime_epoch(leader(lab)->runtime, NAME) == epoch, "no rest");
}

static void run_history(guint64 seed)
{
    Lab *lab = lab_new(seed);

    memset(&model, 0, sizeof model);
    model.seed = seed;
    model.lab = lab;
    model.queue = g_array_new(FALSE, FALSE, sizeof(Place));
    model.reigns = g_array_new(FALSE, FALSE, sizeof(Reign));
    model.faults = TRUE;
    model.guards = seed % 8 != 0;
    script.plan = plan_checked;
    fake_etcd_on_commit(lab->server, on_model_commit, lab);
    model.operator_client = fake_etcd_connect(lab->server, sim_machine_new(lab->world, "op"), "op");
    for (guint i = 0; i < N; i++)
        start(i);
    for (guint round = 0; round < ROUNDS; round++) {
        act();
        go_on(below(4) == 0 ? below(6000) : below(300));
        revive(FALSE);
    }
    model.guards ? come_to_rest() : go_on(1000);
    for (guint i = 0; i < N; i++)
        if (lab->managers[i].runtime != NULL)
            count_manager(&lab->managers[i]);
    lh_etcd_free(model.operator_client);
    lab_free(lab);
    g_array_unref(model.queue);
    g_array_unref(model.reigns);
}

static void elections_are_a_queue(void **state)
{
    const char *one = g_getenv("LEASEHOLD_SEED"), *many = g_getenv("LEASEHOLD_HISTORIES");
    guint64 n = many == NULL ? HISTORIES / every() : g_ascii_strtoull(many, NULL, 10);

    if (one != NULL) {
        run_history(g_ascii_strtoull(one, NULL, 10));
        return;
    }
    for (guint64 seed = 1; seed <= n; seed++)
        run_history(seed);
    print_message("seeds 1..%" G_GUINT64_FORMAT ": %" G_GUINT64_FORMAT " steps, %" G_GUINT64_FORMAT
                  " changes of the first, %" G_GUINT64_FORMAT
                  " decisions committed (%" G_GUINT64_FORMAT " late), %" G_GUINT64_FORMAT
                  " refused by the fence, %" G_GUINT64_FORMAT " moves, %" G_GUINT64_FORMAT
                  " rewrites, %" G_GUINT64_FORMAT " compactions, %" G_GUINT64_FORMAT " expiries\n",
                  n, seen.steps, seen.reigns, seen.commits, seen.late, seen.fenced, seen.moves,
                  seen.rewrites, seen.relists, seen.expiries);
    assert_true(seen.reigns > 3 * n && seen.commits > 4 * n);
    assert_true(seen.fenced > n / 10 && seen.late > n / 30);
    assert_true(seen.moves > n / 2 && seen.rewrites > n / 2);
    assert_true(seen.relists > n / 2 && seen.expiries > n / 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(elections_are_a_queue),
    };

    return cmocka_run_group_tests_name("election_model", tests, NULL, NULL);
}
