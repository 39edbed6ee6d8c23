/*
 * (a) The limit: the transactions that the product would send, from a loop that does nothing else.
 * (b) Convergence: a real manager is shown one change - the cache-assigner is no longer paused - and a
 * watch counts its assignments until all are there.
 *
 * The rounds of (a) lie before and after those of (b), on the same etcd with the same data: what the
 * machine does meanwhile to one, it does to the other.
 */
#include "rows.h"
#include "shape.h"

#include <math.h>

#define CONVERGE_MS  (20 * 60 * 1000)
#define LIMIT_PREFIX "/bench/limit/"
#define WATCHES      2 /* the manager's and ours */

static const guint flights[] = {4, 8, 16, 32, 64};

typedef struct {
    Shape *shape;
    guint round; /* of prefixes, none of which is used twice */
    Samples *rates[G_N_ELEMENTS(flights)];
    Samples *watched; /* with as many watches of what is written as (b) has */
    guint best;
    guint keys; /* of one round */
} Limit;

/* ---- (a) ---- */

typedef struct {
    Limit *limit;
    char *prefix;
} Pass;

static const LhTxnRequest *limit_request(guint i, gpointer data)
{
    const Pass *pass = data;
    guint n = shape_txns(pass->limit->shape);
    g_autofree char *prefix = g_strdup_printf("%s%u/", pass->prefix, i / n);

    return shape_request(pass->limit->shape, i % n, prefix);
}

static void limit_round(Limit *limit, guint flight, Samples *rates)
{
    guint passes = MAX(1, limit->keys / shape_puts(limit->shape));
    Pass pass = {limit, g_strdup_printf(LIMIT_PREFIX "%u/", limit->round++)};
    gint64 took = client_pump(passes * shape_txns(limit->shape), flights[flight], limit_request,
                              &pass);

    samples_add(rates, (double)passes * shape_puts(limit->shape) / ((double)took / G_USEC_PER_SEC));
    client_delete_prefix(pass.prefix);
    g_free(pass.prefix);
}

static void limit_begin(Limit *limit, const Cluster *cluster)
{
    double best = 0;

    limit->shape = shape_new(cluster, MIN(cluster->o.snapshots, 4000));
    limit->keys = bench.sizes.limit_keys;
    limit->watched = samples_new();
    for (guint f = 0; f < G_N_ELEMENTS(flights); f++)
        limit->rates[f] = samples_new();
    for (guint round = 0; round < MAX(1, bench.sizes.limit_rounds / 2); round++)
        for (guint f = 0; f < G_N_ELEMENTS(flights); f++)
            limit_round(limit, f, limit->rates[f]);
    for (guint f = 0; f < G_N_ELEMENTS(flights); f++) {
        double rate = samples_median(limit->rates[f]);
        bench_say("  limit with %u in flight: %.0f keys/s", flights[f], rate);
        if (rate > best) {
            best = rate;
            limit->best = f;
        }
    }
}

static void ignore_event(const LhEtcdEvent *event, gint64 at_us, gpointer data)
{
}

static void limit_more(Limit *limit)
{
    Watch *watches[WATCHES];

    for (guint round = 0; round < MAX(1, bench.sizes.limit_rounds / 2); round++) {
        limit_round(limit, limit->best, limit->rates[limit->best]);
        for (guint w = 0; w < WATCHES; w++)
            watches[w] = watch_new(LIMIT_PREFIX, ignore_event, NULL);
        limit_round(limit, limit->best, limit->watched);
        for (guint w = 0; w < WATCHES; w++)
            watch_free(watches[w]);
    }
}

static double limit_rate(const Limit *limit)
{
    return samples_median(limit->rates[limit->best]);
}

static void limit_end(Limit *limit)
{
    for (guint f = 0; f < G_N_ELEMENTS(flights); f++)
        g_array_unref(limit->rates[f]);
    g_array_unref(limit->watched);
    shape_free(limit->shape);
}

/* ---- (b) ---- */

typedef struct {
    guint wanted, present;
    gint64 last_us, last_revision;
    guint revisions; /* that brought any */
} Counting;

static void on_assignment(const LhEtcdEvent *event, gint64 at_us, gpointer data)
{
    Counting *counting = data;

    if (event->is_delete) {
        counting->present--;
        return;
    }
    if (event->kv.version != 1) /* changed, not made */
        return;
    counting->present++;
    counting->last_us = at_us;
    counting->revisions += event->kv.mod_rev != counting->last_revision;
    counting->last_revision = event->kv.mod_rev;
}

static gboolean all_present(gpointer data)
{
    const Counting *counting = data;

    return counting->present >= counting->wanted;
}

static gboolean none_present(gpointer data)
{
    return ((Counting *)data)->present == 0;
}

typedef struct {
    Samples *rates, *cpu_s, *busy;
    double ops_per_txn;
} Converged;

static void converge_once(Cluster *cluster, Process *manager, Converged *out)
{
    Counting counting = {.wanted = cluster->o.snapshots};
    g_autofree char *prefix = cluster_key(cluster, "decided/assignments/");
    Watch *watch = watch_new(prefix, on_assignment, &counting);
    gint64 cpu = process_cpu_ns(manager), start = now_us(), until_last;
    double took_s, used_s;

    cluster_pause(cluster, FALSE);
    bench_wait(all_present, &counting, CONVERGE_MS, "%u replicas are assigned", counting.wanted);
    until_last = process_cpu_ns(manager) - cpu;
    took_s = (double)(counting.last_us - start) / G_USEC_PER_SEC;
    manager_settle(manager); /* what it does about the last of them is part of the work */
    used_s = (double)(process_cpu_ns(manager) - cpu) / 1e9;
    samples_add(out->rates, counting.wanted / took_s);
    samples_add(out->cpu_s, used_s * 1000 / counting.wanted);
    samples_add(out->busy, (double)until_last / 1e9 / took_s);
    out->ops_per_txn = (double)counting.wanted / counting.revisions;
    bench_say("  %u assigned in %.2f s, %.2f s of CPU, %.1f in a transaction", counting.wanted,
              took_s, used_s, out->ops_per_txn);
    watch_free(watch);
}

static void unconverge(Cluster *cluster, Process *manager)
{
    Counting counting = {.present = cluster->o.snapshots};
    g_autofree char *prefix = cluster_key(cluster, "decided/assignments/");

    cluster_pause(cluster, TRUE);
    manager_settle(manager);
    Watch *watch = watch_new(prefix, on_assignment, &counting);
    cluster_unassign(cluster);
    bench_wait(none_present, &counting, CONVERGE_MS, "no replica is assigned");
    watch_free(watch);
    manager_settle(manager);
}

static void report_limit(const Limit *limit)
{
    table_add(bench.table, "a", limit_rate(limit), "keys/s", NO_AIM, NULL,
              "etcd's limit: %u in flight, %.1f puts and %.1f compares a transaction, %.0f B each",
              flights[limit->best], (double)shape_puts(limit->shape) / shape_txns(limit->shape),
              (double)shape_compares(limit->shape) / shape_txns(limit->shape),
              shape_value_bytes(limit->shape));
    table_add(bench.table, "a", samples_median(limit->watched), "keys/s", NO_AIM, NULL,
              "the same while %d watches are told of it, as in b", WATCHES);
}

Process *row_converge(Cluster *cluster, gboolean with_manager)
{
    Limit limit = {0};
    Converged converged = {samples_new(), samples_new(), samples_new(), 0};
    Process *manager = NULL;

    limit_begin(&limit, cluster);
    if (with_manager) {
        manager = manager_ready(cluster, "manager", NULL);
        for (guint round = 0; round < bench.sizes.converge_rounds; round++) {
            if (round > 0)
                unconverge(cluster, manager);
            converge_once(cluster, manager, &converged);
        }
    }
    limit_more(&limit);
    report_limit(&limit);
    if (with_manager) {
        double rate = samples_median(converged.rates);
        table_add(bench.table, "b", rate, "1/s", NO_AIM, NULL,
                  "%u replicas over %u nodes: assignments committed", cluster->o.snapshots,
                  cluster->o.nodes);
        table_add(bench.table, "b", rate / limit_rate(&limit), "of a", AT_LEAST(0.9), "0.61",
                  "the same, as a share of etcd's limit (%.1f in a transaction)",
                  converged.ops_per_txn);
        table_add(bench.table, "b", samples_median(converged.cpu_s), "s", AT_MOST(0.015), "0.053",
                  "CPU of the manager for 1,000 assignments");
        table_add(bench.table, "b", samples_median(converged.busy), "cores", NO_AIM, NULL,
                  "CPU of the manager meanwhile");
    }
    limit_end(&limit);
    g_array_unref(converged.rates);
    g_array_unref(converged.cpu_s);
    g_array_unref(converged.busy);
    return manager;
}
