/*
 * The life of the runtime: its controllers and indexes, what the mirror and the lease tell it, stopping, and
 * what it says about itself. Must not know what any controller decides.
 */
#include "runtime/runtime.h"

#include "base/errors.h"
#include "base/log.h"
#include "base/planted.h"
#include "runtime/internal.h"

#include <string.h>

#define STOP_MS 5000

/* ---- the mirror's changes ---- */

/* That etcd was restored, and was confirmed since, ends the brake of all deletions; what was confirmed of
 * something else does not. */
static void note_brake(LhRuntime *runtime, const LhBrake *brake)
{
    for (guint r = 0; r < runtime->n_runners; r++) {
        Runner *runner = &runtime->runners[r];
        if (brake->confirmed_at >= 0 && strcmp(runner->controller->name, brake->o.name) == 0 &&
            brake->cause == LH_BRAKE_RESTORED &&
            (!lh_brake_is_old(brake, runner->regressed_rev) || LH_BUG(OLD_CONFIRMATION_COUNTS)))
            runner->regressed = FALSE;
    }
}

static void on_change(const LhObject *before, const LhObject *after, gpointer data)
{
    LhRuntime *runtime = data;
    const LhObject *object = after != NULL ? after : before;
    guint64 bit = LH_KIND_BIT(object->kind);

    if (object->kind == LH_KIND_LEADER)
        runtime->leaders_changed = TRUE;
    for (guint i = 0; i < runtime->indexes->len; i++) {
        LhIndexSlot *slot = &g_array_index(runtime->indexes, LhIndexSlot, i);
        if (!slot->type->fold(slot->index, before, after))
            continue;
        for (guint r = 0; r < runtime->n_runners; r++) {
            Runner *runner = &runtime->runners[r];
            if (runner->leads && (runner->index == slot->index || runner->also == slot->index) &&
                (runner->controller->kinds & bit) != 0)
                lh_runner_dirty(runner, object);
        }
    }
    if (object->kind == LH_KIND_BRAKE && after != NULL && lh_object_known(after))
        note_brake(runtime, (const LhBrake *)after);
}

static void on_applied(gint64 revision, gpointer data)
{
    LhRuntime *runtime = data;
    gboolean changed = runtime->leaders_changed;

    (void)revision;
    runtime->leaders_changed = FALSE;
    for (guint i = 0; i < runtime->n_runners; i++)
        if (changed || runtime->runners[i].key_create == 0)
            lh_election_update(&runtime->runners[i]);
    for (guint i = 0; i < runtime->n_runners; i++)
        lh_runner_schedule(&runtime->runners[i]);
}

static void on_regressed(gint64 from_revision, gint64 to_revision, gpointer data)
{
    LhRuntime *runtime = data;

    (void)from_revision;
    for (guint i = 0; i < runtime->n_runners; i++) {
        lh_election_regressed(&runtime->runners[i]);
        runtime->runners[i].regressed = !LH_BUG(REGRESSION_IGNORED);
        runtime->runners[i].regressed_rev = to_revision;
    }
}

/* etcd was restored, and what the mirror shows may be of another history: nothing goes on outside. */
static void on_mirror_doubt(gpointer data)
{
    LhRuntime *runtime = data;

    for (guint i = 0; i < runtime->n_runners; i++)
        lh_runner_errands_end(&runtime->runners[i]);
}

static const LhMirrorFuncs mirror_funcs = {
    .change = on_change,
    .applied = on_applied,
    .regressed = on_regressed,
    .doubt = on_mirror_doubt,
};

/* ---- the lease ---- */

static void on_granted(gint64 lease, gint64 ttl_s, gpointer data)
{
    g_autofree char *hex = lh_lease_hex(lease);

    lh_log(LH_LOG_INFO, "lease granted", "lease", hex, "ttl_s", lh_fmt("%" G_GINT64_FORMAT, ttl_s),
           NULL);
    lh_election_lease_granted(data);
}

static void on_doubt(gpointer data)
{
    LhRuntime *runtime = data;

    if (runtime->options.fault_no_deadline)
        return;
    lh_log(LH_LOG_WARNING, "lease in doubt", "why", "no answer to a keepalive within its TTL",
           "next", "stop acting until it answers", NULL);
    for (guint i = 0; i < runtime->n_runners; i++)
        lh_election_step_down(&runtime->runners[i], "its lease is in doubt");
}

static void on_renewed(gpointer data)
{
    LhRuntime *runtime = data;

    lh_log(LH_LOG_INFO, "lease renewed after doubt", NULL);
    for (guint i = 0; i < runtime->n_runners; i++) {
        lh_election_update(&runtime->runners[i]);
        lh_runner_schedule(&runtime->runners[i]);
    }
}

/* TRUE: it is stopping; then it leads nothing any more, and no other lease is asked for. */
static gboolean stops_without(LhRuntime *runtime)
{
    if (!runtime->stopping)
        return FALSE;
    lh_election_lease_lost(runtime);
    lh_runtime_maybe_stopped(runtime);
    return TRUE;
}

static void on_lost(gpointer data)
{
    LhRuntime *runtime = data;

    if (stops_without(runtime))
        return;
    lh_log(LH_LOG_WARNING, "lease lost", "next", "ask for a new one and campaign again", NULL);
    lh_election_lease_lost(runtime);
    lh_lease_restart(runtime->lease);
}

static void on_extended(gpointer data)
{
    const LhRuntime *runtime = data;

    if (runtime->outside != NULL && runtime->outside->until != NULL)
        runtime->outside->until(
            runtime->options.fault_no_deadline ? G_MAXINT64 : lh_lease_deadline_ms(runtime->lease),
            runtime->outside_data);
}

static const LhLeaseFuncs lease_funcs = {
    .granted = on_granted,
    .doubt = on_doubt,
    .extended = on_extended,
    .renewed = on_renewed,
    .lost = on_lost,
};

void lh_runtime_lease_is_gone(LhRuntime *runtime)
{
    if (stops_without(runtime))
        return;
    lh_log(LH_LOG_WARNING, "lease lost", "why", "etcd refused it for the leader key", "next",
           "ask for a new one and campaign again", NULL);
    lh_election_lease_lost(runtime);
    lh_lease_free(runtime->lease);
    lh_runtime_start(runtime);
}

/* ---- life ---- */

static gpointer index_of(LhRuntime *runtime, const LhIndexType *type)
{
    LhIndexSlot slot = {.type = type};

    for (guint i = 0; i < runtime->indexes->len; i++)
        if (g_array_index(runtime->indexes, LhIndexSlot, i).type == type)
            return g_array_index(runtime->indexes, LhIndexSlot, i).index;
    slot.index = type->new ();
    g_array_append_val(runtime->indexes, slot);
    return slot.index;
}

static void collect(LhMetrics *metrics, gpointer data);

LhRuntime *lh_runtime_new(LhEnv *env, LhEtcd *etcd, LhMirror *mirror, LhMetrics *metrics,
                          const LhController *const *controllers, const LhRuntimeOptions *options)
{
    LhRuntime *runtime = g_new0(LhRuntime, 1);

    runtime->env = env;
    runtime->etcd = etcd;
    runtime->mirror = mirror;
    runtime->metrics = metrics;
    runtime->controllers = controllers;
    runtime->options = *options;
    runtime->instance = g_strdup(options->instance);
    runtime->host = g_strdup(options->host);
    runtime->url = g_strdup(options->url);
    runtime->version = g_strdup(options->version);
    runtime->started_ms = lh_wall_ms(env);
    if (runtime->options.max_groups == 0)
        runtime->options.max_groups = 50000;
    if (runtime->options.max_in_flight == 0)
        runtime->options.max_in_flight = 32;
    runtime->indexes = g_array_new(FALSE, FALSE, sizeof(LhIndexSlot));
    runtime->throttled = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, g_free);
    runtime->recorder = lh_recorder_new(runtime);
    runtime->batch = lh_batch_new(lh_mirror_prefix(mirror));
    while (controllers[runtime->n_runners] != NULL)
        runtime->n_runners++;
    runtime->runners = g_new0(Runner, runtime->n_runners);
    for (guint i = 0; i < runtime->n_runners; i++) {
        Runner *runner = &runtime->runners[i];
        runner->runtime = runtime;
        runner->controller = controllers[i];
        runner->index = index_of(runtime, controllers[i]->index);
        if (controllers[i]->also != NULL)
            runner->also = index_of(runtime, controllers[i]->also);
        runner->labels = lh_labels("controller", controllers[i]->name, NULL);
        runner->ok_labels = lh_labels("controller", controllers[i]->name, "result", "ok", NULL);
        runner->nothing_labels = lh_labels("controller", controllers[i]->name, "result", "nothing",
                                           NULL);
        runner->events = g_ptr_array_new();
        runner->pack = G_MAXUINT;
        lh_gauge_set(metrics, "leader", runner->labels, 0);
    }
    lh_counter_add(metrics, "fenced_writes_rejected_total", NULL, 0);
    lh_metrics_add_collector(metrics, collect, runtime);
    lh_mirror_listen(mirror, &mirror_funcs, runtime);
    return runtime;
}

void lh_runtime_set_outside(LhRuntime *runtime, const LhOutside *outside, gpointer data)
{
    runtime->outside = outside;
    runtime->outside_data = data;
}

void lh_runtime_start(LhRuntime *runtime)
{
    runtime->lease = lh_lease_start(runtime->env, runtime->etcd, runtime->options.lease_ttl_s,
                                    &lease_funcs, runtime);
}

void lh_runtime_free(LhRuntime *runtime)
{
    if (runtime == NULL)
        return;
    lh_metrics_remove_collector(runtime->metrics, collect, runtime);
    lh_mirror_unlisten(runtime->mirror, &mirror_funcs, runtime);
    lh_timer_clear(runtime->env, &runtime->stop_timer);
    for (guint i = 0; i < runtime->n_runners; i++) {
        Runner *runner = &runtime->runners[i];
        lh_runner_reset_round(runner);
        lh_election_clear(runner);
        g_ptr_array_unref(runner->events);
        g_free(runner->labels);
        g_free(runner->ok_labels);
        g_free(runner->nothing_labels);
    }
    lh_recorder_free(runtime->recorder);
    lh_batch_free(runtime->batch);
    lh_lease_free(runtime->lease);
    for (guint i = 0; i < runtime->indexes->len; i++) {
        LhIndexSlot *slot = &g_array_index(runtime->indexes, LhIndexSlot, i);
        slot->type->free(slot->index);
    }
    g_array_unref(runtime->indexes);
    g_hash_table_unref(runtime->throttled);
    g_free(runtime->runners);
    g_free(runtime->instance);
    g_free(runtime->host);
    g_free(runtime->url);
    g_free(runtime->version);
    g_free(runtime);
}

static void on_revoked(gpointer data)
{
    LhRuntime *runtime = data;
    void (*done)(gpointer data) = runtime->stop_done;

    lh_timer_clear(runtime->env, &runtime->stop_timer);
    runtime->stop_done = NULL;
    if (done != NULL)
        done(runtime->stop_data);
}

static void on_stop_timer(gpointer data);

void lh_runtime_maybe_stopped(LhRuntime *runtime)
{
    if (!runtime->stopping || runtime->revoking)
        return;
    for (guint i = 0; i < runtime->n_runners; i++)
        if (lh_execution_in_flight(runtime->runners[i].execution))
            return;
    runtime->revoking = TRUE;
    for (guint i = 0; i < runtime->n_runners; i++)
        lh_election_step_down(&runtime->runners[i], "stopping");
    if (runtime->lease != NULL) {
        lh_lease_revoke(runtime->lease, on_revoked, runtime);
        return;
    }
    lh_timer_clear(runtime->env, &runtime->stop_timer);
    runtime->stop_timer = lh_timer_in(runtime->env, 0, on_stop_timer, runtime);
}

static void on_stop_timer(gpointer data)
{
    LhRuntime *runtime = data;

    runtime->stop_timer = NULL;
    if (!runtime->revoking) {
        for (guint i = 0; i < runtime->n_runners; i++)
            g_clear_pointer(&runtime->runners[i].execution, lh_execution_free);
        lh_runtime_maybe_stopped(runtime);
        runtime->stop_timer = lh_timer_in(runtime->env, STOP_MS, on_stop_timer, runtime);
        return;
    }
    on_revoked(runtime); /* etcd does not answer: the lease will expire */
}

void lh_runtime_stop(LhRuntime *runtime, void (*done)(gpointer data), gpointer data)
{
    if (runtime->stopping)
        return;
    runtime->stopping = TRUE;
    runtime->stop_done = done;
    runtime->stop_data = data;
    runtime->stop_timer = lh_timer_in(runtime->env, STOP_MS, on_stop_timer, runtime);
    for (guint i = 0; i < runtime->n_runners; i++)
        lh_runner_errands_end(&runtime->runners[i]);
    lh_runtime_maybe_stopped(runtime);
}

/* ---- looking at it ---- */

static const Runner *find_runner(const LhRuntime *runtime, const char *controller)
{
    for (guint i = 0; i < runtime->n_runners; i++)
        if (strcmp(runtime->runners[i].controller->name, controller) == 0)
            return &runtime->runners[i];
    return NULL;
}

gboolean lh_runtime_leads(const LhRuntime *runtime, const char *controller)
{
    const Runner *runner = find_runner(runtime, controller);

    return runner != NULL && runner->leads;
}

gint64 lh_runtime_epoch(const LhRuntime *runtime, const char *controller)
{
    const Runner *runner = find_runner(runtime, controller);

    return runner != NULL && runner->leads ? runner->key_create : 0;
}

gint64 lh_runtime_lease(const LhRuntime *runtime)
{
    return runtime->lease == NULL ? 0 : lh_lease_id(runtime->lease);
}

gboolean lh_runtime_idle(const LhRuntime *runtime)
{
    for (guint i = 0; i < runtime->n_runners; i++) {
        const Runner *runner = &runtime->runners[i];
        if (runner->leads && (runner->dirty || runner->again || runner->state != LH_ROUND_IDLE))
            return FALSE;
    }
    return TRUE;
}

gconstpointer lh_runtime_index(const LhRuntime *runtime, const LhController *controller,
                               LhPlanContext *context)
{
    Runner *runner = (Runner *)find_runner(runtime, controller->name);

    *context = lh_runner_context(runner);
    return runner->index;
}

LhPlan *lh_runtime_plan(const LhRuntime *runtime, const LhController *controller, gboolean explain)
{
    LhPlan *plan = lh_plan_new(explain);
    LhPlanContext context;
    gconstpointer index = lh_runtime_index(runtime, controller, &context);

    controller->plan(index, &context, plan);
    return plan;
}

const LhController *const *lh_runtime_controllers(const LhRuntime *runtime)
{
    return runtime->controllers;
}

void lh_runtime_observe(LhRuntime *runtime, LhRuntimeObserver observer, gpointer data)
{
    runtime->observer = observer;
    runtime->observer_data = data;
}

/* ---- metrics ---- */

static void collect_gauge(const char *name, const char *labels, double value, gpointer data)
{
    lh_gauge_set(data, name, labels, value);
}

static void collect_kinds(LhRuntime *runtime, LhMetrics *metrics)
{
    for (guint kind = 0; kind < LH_N_KINDS; kind++) {
        g_autofree char *labels = lh_labels("kind", lh_kind_info((LhKind)kind)->plural, NULL);
        lh_gauge_set(metrics, "mirror_objects", labels,
                     lh_mirror_count(runtime->mirror, (LhKind)kind));
        lh_gauge_set(metrics, "invalid_objects", labels,
                     lh_mirror_invalid(runtime->mirror, (LhKind)kind));
    }
    lh_gauge_set(metrics, "invalid_objects", "kind=\"unknown\"",
                 lh_mirror_invalid(runtime->mirror, LH_N_KINDS));
}

static void collect(LhMetrics *metrics, gpointer data)
{
    LhRuntime *runtime = data;
    gint64 lag = 0;

    lh_gauge_set(metrics, "mirror_revision", NULL, (double)lh_mirror_revision(runtime->mirror));
    lh_gauge_set(metrics, "mirror_staleness_seconds", NULL,
                 (double)lh_mirror_staleness_ms(runtime->mirror) / 1000);
    collect_kinds(runtime, metrics);
    /* All first: controllers share families. */
    for (guint i = 0; i < runtime->n_runners; i++) {
        const LhController *controller = runtime->runners[i].controller;
        for (guint g = 0; controller->gauge_names != NULL && controller->gauge_names[g] != NULL;
             g++)
            lh_metrics_drop(metrics, controller->gauge_names[g]);
    }
    for (guint i = 0; i < runtime->n_runners; i++) {
        Runner *runner = &runtime->runners[i];
        const LhController *controller = runner->controller;
        lh_gauge_set(metrics, "queue_depth", runner->labels, runner->n_triggers);
        if (runner->leads)
            lag = MAX(lag, runner->wait_rev - lh_mirror_revision(runtime->mirror));
        if (!runner->leads || controller->gauges == NULL)
            continue;
        controller->gauges(runner->index, lh_wall_ms(runtime->env), collect_gauge, metrics);
    }
    lh_gauge_set(metrics, "etcd_watch_lag_revisions", NULL, (double)lag);
}

void lh_runtime_declare_metrics(LhMetrics *metrics)
{
    static const struct {
        LhMetricType type;
        const char *name, *help;
    } rows[] = {
        {LH_COUNTER, "reconcile_total", "Rounds of a controller by result."},
        {LH_GAUGE, "last_successful_reconcile_timestamp_seconds", "When a round last succeeded."},
        {LH_GAUGE, "queue_depth", "Changes that wait for the controller's next plan."},
        {LH_GAUGE, "leader", "1 on the instance that leads the controller."},
        {LH_COUNTER, "etcd_txn_total", "Transactions by result."},
        {LH_GAUGE, "etcd_watch_lag_revisions",
         "Revisions that the mirror is behind the own writes."},
        {LH_GAUGE, "mirror_objects", "Objects in the mirror by kind."},
        {LH_GAUGE, "mirror_revision", "The revision of etcd that the mirror shows."},
        {LH_GAUGE, "mirror_staleness_seconds", "Time since etcd was last heard."},
        {LH_GAUGE, "snapshots_missing_data", "Snapshots without any object, as last listed."},
        {LH_GAUGE, "objectstore_orphaned_objects", "Objects that are nobody's, as last listed."},
        {LH_GAUGE, "snapshots_expired", "Snapshots whose data is due to be deleted."},
        {LH_GAUGE, "deletions_pending", "Deletions whose data is still there."},
        {LH_GAUGE, "invalid_objects", "Objects that do not parse, and keys of no known kind."},
        {LH_COUNTER, "fenced_writes_rejected_total",
         "Transactions that etcd refused to a past leader."},
        {LH_GAUGE, "brake", "1 while the controller is on its brake."},
        {LH_GAUGE, "items", "Items of a pool by the state that their nodes report."},
        {LH_GAUGE, "nodes", "Nodes of a pool by state."},
        {LH_GAUGE, "pool_capacity_bytes", "Capacity of the nodes that take work."},
        {LH_GAUGE, "pool_used_bytes", "Bytes of the items assigned to them."},
        {LH_GAUGE, "unassigned_items", "Items that wait for a node."},
        {LH_GAUGE, "unassigned_bytes", "Bytes of the items that wait for a node."},
        {LH_GAUGE, "missing_bytes", "Bytes that all free room together cannot hold."},
        {LH_GAUGE, "cache_wanted_bytes", "Bytes assigned or waiting in the set."},
        {LH_GAUGE, "cache_demand_ratio", "Bytes wanted in the set to the capacity of its nodes."},
        {LH_GAUGE, "parked_items", "Items that failed too often and wait for a person."},
        {LH_GAUGE, "stuck_items", "Items that are longer in one state than Settings allow."},
        {LH_GAUGE, "pool_imbalance_ratio",
         "Share of capacity by which a set's fullest node is fuller than its emptiest."},
    };

    for (guint i = 0; i < G_N_ELEMENTS(rows); i++)
        lh_metrics_declare(metrics, rows[i].type, rows[i].name, rows[i].help, NULL);
    lh_metrics_declare(metrics, LH_HISTOGRAM, "reconcile_duration_seconds", "Time to make a plan.",
                       lh_duration_buckets);
    lh_metrics_declare(metrics, LH_HISTOGRAM, "etcd_txn_duration_seconds", "Time of a transaction.",
                       lh_duration_buckets);
    lh_metrics_declare(metrics, LH_HISTOGRAM, "event_to_commit_duration_seconds",
                       "From the watch event that caused a decision to its committed transaction.",
                       lh_duration_buckets);
}
