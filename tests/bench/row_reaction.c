/*
 * (c) Reaction: one snapshot is published, and a watch waits for its assignment. What etcd alone needs for
 * that is measured in between, each part alone: the way of the publication to a watcher, and two
 * transactions of one op with as many compares as the manager's (fence, target, three that it relies on).
 *
 *   publish sent ─▶ seen by the manager │ replica sent ─▶ answered and seen │ assignment sent ─▶ seen here
 *          one delivery                 │         one transaction           │        one transaction
 *
 * (d) CPU: what the manager's CPU clock gained over all changes, without what it gains in the same time
 * with nothing to do, for each change. The parts are written outside its prefix: it does not see them.
 */
#include "rows.h"

#include <math.h>
#include <string.h>

#define REACTION_MS  60000
#define REST_MS      3 /* after each step: the manager's own work on it is over */
#define TAIL_MS      300
#define COMPARES     6
#define PROBE_PREFIX "/bench/probe/"
#define SIZES_MOST   3

typedef struct {
    char *wanted; /* end of the key; NULL: seen */
    gint64 at_us;
} Sight;

static void on_event(const LhEtcdEvent *event, gint64 at_us, gpointer data)
{
    Sight *sight = data;

    if (sight->wanted == NULL || event->is_delete ||
        !g_str_has_suffix(event->kv.key, sight->wanted))
        return;
    sight->at_us = at_us;
    g_clear_pointer(&sight->wanted, g_free);
}

static gboolean is_seen(gpointer data)
{
    return ((Sight *)data)->wanted == NULL;
}

/* ---- the parts ---- */

static double probe_delivery(Sight *sight, const char *value)
{
    static guint number;
    gint64 start;

    sight->wanted = g_strdup_printf("/delivery-%u", ++number);
    g_autofree char *key = g_strconcat("/bench/probe", sight->wanted, NULL);
    start = now_us();
    client_put(key, value, 0);
    bench_wait(is_seen, sight, REACTION_MS, "a watch shows what was put");
    return (double)(sight->at_us - start) / 1000;
}

static double probe_txn(const char *const *there, const char *value)
{
    static guint number;
    g_autofree char *key = g_strdup_printf("/bench/one/txn-%u", ++number);
    LhCompare compares[COMPARES] = {lh_compare_mod(key, 0)};
    LhTxnOp put = lh_txn_put(key, value, 0), leader = lh_txn_range(there[0]);
    LhTxnRequest request = {.compares = compares,
                            .n_compares = COMPARES,
                            .success = &put,
                            .n_success = 1,
                            .failure = &leader,
                            .n_failure = 1};
    gint64 start;

    for (guint i = 1; i < COMPARES; i++) {
        compares[i] = lh_compare_mod(there[i - 1], 0);
        compares[i].result = LH_CMP_GREATER;
    }
    start = now_us();
    client_txn(&request);
    return (double)(now_us() - start) / 1000;
}

/* Keys of the cluster that transactions are compared with. */
static GStrv compared_keys(const Cluster *cluster)
{
    GStrv keys = g_new0(char *, COMPARES);

    for (guint i = 0; i < COMPARES - 1; i++) {
        g_autofree char *key = NULL;
        g_autofree char *value = NULL;
        cluster_snapshot(cluster, i, &key, &value);
        keys[i] = cluster_key(cluster, "%s", key);
    }
    return keys;
}

static void measure_parts(Reaction *out, Sight *sight, const char *const *keys, const char *value)
{
    samples_add(out->delivery_ms, probe_delivery(sight, value));
    bench_pause(REST_MS);
    for (guint i = 0; i < 2; i++) {
        samples_add(out->txn_ms, probe_txn(keys, value));
        bench_pause(REST_MS);
    }
}

/* ---- the whole ---- */

static double publish_once(Cluster *cluster, Sight *sight, char **value)
{
    g_autofree char *key = NULL;
    g_autofree char *name = NULL;
    gint64 start;

    g_clear_pointer(value, g_free);
    name = cluster_next(cluster, &key, value);
    sight->wanted = g_strdup_printf("/%s.default.0", name);
    start = now_us();
    client_put(key, *value, 0);
    bench_wait(is_seen, sight, REACTION_MS, "the assignment of %s", name);
    return (double)(sight->at_us - start) / 1000;
}

static double idle_share(Process *manager)
{
    gint64 cpu = process_cpu_ns(manager), start = now_us();

    bench_pause(bench.sizes.idle_ms);
    return (double)(process_cpu_ns(manager) - cpu) / 1000 / (double)(now_us() - start);
}

void reaction_run(Cluster *cluster, Process *manager, guint n, ReactionFlags flags, Reaction *out)
{
    Sight assigned = {0}, delivered = {0};
    g_autofree char *prefix = cluster_key(cluster, "decided/assignments/");
    g_autofree char *value = NULL;
    g_auto(GStrv) keys = compared_keys(cluster);
    Watch *watch = watch_new(prefix, on_event, &assigned);
    Watch *probe = watch_new(PROBE_PREFIX, on_event, &delivered);
    gint64 cpu, start;

    *out = (Reaction){
        .reaction_ms = samples_new(), .delivery_ms = samples_new(), .txn_ms = samples_new()};
    publish_once(cluster, &assigned, &value); /* the first one is the warm-up */
    if ((flags & REACTION_CPU) != 0) {
        manager_settle(manager);
        out->idle_cpu_share = idle_share(manager);
    }
    cpu = process_cpu_ns(manager);
    start = now_us();
    for (guint i = 0; i < n; i++) {
        samples_add(out->reaction_ms, publish_once(cluster, &assigned, &value));
        bench_pause(REST_MS);
        if ((flags & REACTION_PARTS) != 0)
            measure_parts(out, &delivered, (const char *const *)keys, value);
    }
    bench_pause(TAIL_MS);
    out->cpu_ms = ((double)(process_cpu_ns(manager) - cpu) / 1e6 -
                   out->idle_cpu_share * (double)(now_us() - start) / 1000) /
                  n;
    out->floor_ms = samples_median(out->delivery_ms) + 2 * samples_median(out->txn_ms);
    watch_free(watch);
    watch_free(probe);
}

void reaction_clear(Reaction *reaction)
{
    g_array_unref(reaction->reaction_ms);
    g_array_unref(reaction->delivery_ms);
    g_array_unref(reaction->txn_ms);
}

/* ---- the lines ---- */

static double cpu_ms[SIZES_MOST]; /* of each cluster so far */
static guint n_cpu;

static void report_latency(const Reaction *reaction)
{
    double p50 = samples_quantile(reaction->reaction_ms, 0.5);

    table_add(bench.table, "c", p50, "ms", NO_AIM, NULL,
              "snapshot published -> its assignment seen: p50 of %u", reaction->reaction_ms->len);
    table_add(bench.table, "c", samples_quantile(reaction->reaction_ms, 0.99), "ms", NO_AIM, NULL,
              "the same: p99");
    table_add(bench.table, "c", reaction->floor_ms, "ms", NO_AIM, NULL,
              "etcd alone: a delivery (%.3f) and two transactions (%.3f each), medians",
              samples_median(reaction->delivery_ms), samples_median(reaction->txn_ms));
    table_add(bench.table, "c", p50 / reaction->floor_ms, "x", AT_MOST(1.1), "1.18",
              "p50 as a multiple of that");
}

static void report_cpu(const Cluster *cluster, const Reaction *reaction)
{
    g_assert(n_cpu < SIZES_MOST);
    cpu_ms[n_cpu++] = reaction->cpu_ms;
    table_add(bench.table, "d", reaction->cpu_ms, "ms", AT_MOST(0.3), "1.2",
              "CPU for one change, %u replicas (idle, subtracted: %.2f ms/s)", cluster->o.snapshots,
              reaction->idle_cpu_share * 1000);
}

void row_reaction(Cluster *cluster, Process *manager, gboolean latency, gboolean cpu)
{
    Reaction reaction;

    reaction_run(cluster, manager, bench.sizes.samples,
                 (latency ? REACTION_PARTS : 0) | (cpu ? REACTION_CPU : 0), &reaction);
    if (latency)
        report_latency(&reaction);
    if (cpu)
        report_cpu(cluster, &reaction);
    reaction_clear(&reaction);
}

void row_reaction_flat(void)
{
    double least = INFINITY, most = 0;

    for (guint i = 0; i < n_cpu; i++) {
        least = MIN(least, cpu_ms[i]);
        most = MAX(most, cpu_ms[i]);
    }
    table_add(bench.table, "d", most / least, "x", AT_MOST(1.5), NULL,
              "the dearest of these clusters as a multiple of the cheapest");
}
