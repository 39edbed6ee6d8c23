/*
 * (n) Nodes that are probed: a manager of registered cache nodes, each at an address of its own, asks them all in
 * every period; a server in a thread of this process answers for them (probe_server.h). The manager's CPU clock
 * is read before and after a few periods, and so it was in idleness, with the failure-detector paused. Then one
 * node in twenty hangs: until each of them is said to be in failure, and the same again.
 *
 * How probes are spread is told by the server: the most in any 100 ms as a multiple of the mean; and the longest
 * time between two probes of one node, in periods.
 */
#include "api/actual.h"
#include "cluster.h"
#include "etcd/lease.h"
#include "http_load.h"
#include "probe_server.h"
#include "rows.h"

#include <string.h>

#define WITHIN_MS (2 * 60 * 1000)
#define TTL_S     60
#define ONE_OF    20   /* hangs */
#define FILES     2000 /* for each of two processes */
#define HEALTH    "decided/health/cache/"

typedef struct {
    Cluster *cluster;
    ProbeServer *server;
    Process *manager;
    GHashTable *in_failure; /* keys */
    gint64 last_us;
    double idle_share;
} Lab;

/* ---- nodes ---- */

static void node_item(guint i, char **key, char **value, gpointer data)
{
    const Lab *lab = data;
    g_autofree char *id = g_strdup_printf("probed-%05u-%08x", i, i * 2654435761u);
    g_autofree char *name = lh_node_name_of(id), *url = probe_server_url(lab->server, i);
    g_autofree char *lease = lh_lease_hex(keeper_lease(lab->cluster->keeper));
    LhNode node = {
        .node_name = name,
        .host = name,
        .url = url,
        .set = "default",
        .capacity_bytes = 1,
        .state = LH_NODE_ONLINE,
        .started_at = 1,
        .version = LEASEHOLD_VERSION,
        .lease = lease,
        .lease_ttl_ms = TTL_S * 1000,
    };

    *key = cluster_key(lab->cluster, "actual/nodes/cache/%s", id);
    *value = lh_object_print(LH_KIND_NODE, &node);
}

static void on_health(const LhEtcdEvent *event, gint64 at_us, gpointer data)
{
    Lab *lab = data;
    gboolean failure = !event->is_delete &&
                       strstr(event->kv.value, "\"state\":\"failure\"") != NULL;

    if (!failure)
        g_hash_table_remove(lab->in_failure, event->kv.key);
    else if (g_hash_table_add(lab->in_failure, g_strdup(event->kv.key)))
        lab->last_us = at_us;
}

static guint hanging(void)
{
    return (bench.sizes.probed + ONE_OF - 1) / ONE_OF;
}

static gboolean all_in_failure(gpointer data)
{
    return g_hash_table_size(((const Lab *)data)->in_failure) >= hanging();
}

static gboolean all_asked(gpointer data)
{
    return probe_server_counts(((const Lab *)data)->server).asked == bench.sizes.probed;
}

/* ---- figures ---- */

static guint open_files(const Process *process)
{
    g_autofree char *path = g_strdup_printf("/proc/%d/fd", (int)process->pid);
    g_autoptr(GDir) dir = g_dir_open(path, 0, NULL);
    guint n = 0;

    while (dir != NULL && g_dir_read_name(dir) != NULL)
        n++;
    return n;
}

static double cpu_share(const Process *manager, gint64 ms)
{
    gint64 cpu = process_cpu_ns(manager), start = now_us();

    bench_pause(ms);
    return (double)(process_cpu_ns(manager) - cpu) / 1000 / (double)(now_us() - start);
}

static void look(Lab *lab, const char *words)
{
    gint64 ms = bench.sizes.probe_period_ms * bench.sizes.probe_periods, start;
    double share, took_s, mean;
    ProbeCounts counts;

    probe_server_forget(lab->server);
    start = now_us();
    share = cpu_share(lab->manager, ms) - lab->idle_share;
    took_s = (double)(now_us() - start) / G_USEC_PER_SEC;
    counts = probe_server_counts(lab->server);
    mean = (double)counts.requests / took_s * PROBE_SLICE_MS / 1000;
    table_add(bench.table, "n", share * 100, "%", NO_AIM, NULL,
              "of a core: probes of %u nodes, %s, period %" G_GINT64_FORMAT
              " ms (idle: %.2f %%; %.0f probes/s)",
              bench.sizes.probed, words, bench.sizes.probe_period_ms, lab->idle_share * 100,
              (double)counts.requests / took_s);
    table_add(bench.table, "n", share * 1e6 * took_s / (double)MAX(counts.requests, 1), "us",
              NO_AIM, NULL, "the same: CPU for each probe");
    table_add(bench.table, "n", (double)counts.most / mean, "x", NO_AIM, NULL,
              "the same: the most probes in any %d ms over the mean, %.1f", PROBE_SLICE_MS, mean);
    table_add(bench.table, "n",
              (double)counts.longest_gap_us / 1000 / (double)bench.sizes.probe_period_ms, "x",
              NO_AIM, NULL, "the same: the longest time between two probes of a node, in periods");
    table_add(bench.table, "n", counts.most_open, "", NO_AIM, NULL,
              "the same: connections at most at a time (%" G_GUINT64_FORMAT
              " opened in all; the manager has %u files open)",
              counts.accepted, open_files(lab->manager));
}

static void let_it_run(const Lab *lab)
{
    g_autofree char *key = cluster_key(lab->cluster, "desired/settings/failure-detector");
    g_autofree char *value = g_strdup_printf("{\"spec\":{\"probePeriod\":\"%" G_GINT64_FORMAT
                                             "ms\",\"probeTimeout\":\"%" G_GINT64_FORMAT "ms\"}}",
                                             bench.sizes.probe_period_ms,
                                             bench.sizes.probe_period_ms * 2 / 5);

    client_put(key, value, 0);
}

static void find_hanging(Lab *lab)
{
    gint64 cpu = process_cpu_ns(lab->manager), start = now_us();

    probe_server_hang(lab->server, ONE_OF);
    bench_wait(all_in_failure, lab, WITHIN_MS, "%u nodes that hang are in failure", hanging());
    cpu = process_cpu_ns(lab->manager) - cpu;
    table_add(
        bench.table, "n", (double)(lab->last_us - start) / G_USEC_PER_SEC, "s", NO_AIM, NULL,
        "%u of them hang: until the last is said to be in failure (the manager's CPU: %.2f s)",
        hanging(), (double)cpu / 1e9);
}

static void run(Lab *lab)
{
    g_autofree char *prefix = cluster_key(lab->cluster, HEALTH);
    Watch *watch;

    cluster_put_accepted(lab->cluster, "settings/failure-detector", "{\"paused\":true}");
    lab->cluster->keeper = keeper_new(TTL_S);
    client_load(bench.sizes.probed, node_item, lab, keeper_lease(lab->cluster->keeper));
    lab->manager = manager_ready(lab->cluster, "manager-probes", NULL);
    lab->idle_share = cpu_share(lab->manager, bench.sizes.idle_ms);
    watch = watch_new(prefix, on_health, lab);
    let_it_run(lab);
    bench_wait(all_asked, lab, WITHIN_MS, "all nodes are probed");
    bench_pause(bench.sizes.probe_period_ms);
    look(lab, "all healthy");
    find_hanging(lab);
    look(lab, "one in twenty hangs");
    process_stop(lab->manager);
    watch_free(watch);
}

void row_probes(void)
{
    ClusterOptions o = {.label = "probes"};
    const char *why = NULL;
    Lab lab = {.server = probe_server_new(bench.sizes.probed, &why)};

    if (lab.server == NULL) {
        table_skip(bench.table, "n", "a socket on all of 127.0.0.0/8: %s", why);
        return;
    }
    if (raise_file_limit() < FILES) {
        table_skip(bench.table, "n", "fewer than %d open files are permitted", FILES);
    } else {
        lab.cluster = cluster_new(&o);
        lab.in_failure = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
        run(&lab);
        g_hash_table_unref(lab.in_failure);
        cluster_free(lab.cluster);
    }
    probe_server_free(lab.server);
}
