/*
 * (y) Many expiries at once, with a real etcd and a real manager: all snapshots of a tenth of the services
 * are past window and retention while the cache-evictor is paused; then it is not any more. Simulated nodes
 * answer, and a watch of everything counts: orders, assignments, replicas, Deletions and, their data being
 * files, snapshots that are retired. The manager's CPU is that until it is at rest.
 */
#include "api/decided.h"
#include "controllers/cleaner.h"
#include "nodes.h"
#include "rows.h"

#include <string.h>

#define TENTH     10
#define WITHIN_MS (10 * 60 * 1000)

enum { ORDERED, UNASSIGNED, NO_REPLICA, DECIDED, RETIRED, N_STEPS };

static const char *const steps[N_STEPS] = {
    "the last is ordered away",
    "the last assignment is gone",
    "the last replica is gone",
    "the last Deletion is decided",
    "the last data is deleted, and its snapshot retired",
};

typedef struct {
    const Cluster *cluster;
    guint wanted;
    guint seen[N_STEPS];
    gint64 last_us[N_STEPS];
} Seen;

static int step_of(const LhEtcdEvent *event, LhKind kind)
{
    if (kind == LH_KIND_ASSIGNMENT)
        return event->is_delete ? UNASSIGNED : event->kv.version > 1 ? ORDERED : -1;
    if (kind == LH_KIND_DELETION)
        return !event->is_delete && event->kv.version == 1 ? DECIDED : -1;
    if (kind == LH_KIND_REPLICA)
        return event->is_delete ? NO_REPLICA : -1;
    return kind == LH_KIND_SNAPSHOT && event->is_delete ? RETIRED : -1;
}

static void on_event(const LhEtcdEvent *event, gint64 at_us, gpointer data)
{
    Seen *seen = data;
    LhKind kind = LH_N_KINDS;
    const char *name = NULL;
    int step = -1;

    if (lh_key_split(event->kv.key + strlen(seen->cluster->prefix), &kind, &name))
        step = step_of(event, kind);
    if (step < 0)
        return;
    seen->seen[step]++;
    seen->last_us[step] = at_us;
}

static gboolean all_seen(gpointer data)
{
    const Seen *seen = data;

    for (guint s = 0; s < N_STEPS; s++)
        if (seen->seen[s] < seen->wanted)
            return FALSE;
    return TRUE;
}

/* A root that is not empty, and has no marker, is left alone until somebody confirms it: so a manager finds
 * it empty, and marks it. */
static gboolean is_marked(gpointer root)
{
    g_autofree char *marker = g_build_filename(root, LH_CLEANER_MARKER, NULL);

    return g_file_test(marker, G_FILE_TEST_EXISTS);
}

static void mark(const ClusterOptions *options, char *dir)
{
    const char *const extra[] = {"--object-store-roots", options->root, NULL};
    Cluster *empty = cluster_imagine(options);
    Process *manager = manager_start(empty, "manager-marks", extra);

    bench_poll(is_marked, dir, 20, WITHIN_MS, "%s has its marker", options->root);
    process_stop(manager);
    cluster_free(empty);
}

static guint expiring(const Cluster *cluster)
{
    guint n = 0;

    for (guint i = 0; i < cluster->o.snapshots; i++)
        n += i % cluster_services(cluster) < cluster->o.expiring;
    return n;
}

static void let_it_run(const Cluster *cluster)
{
    g_autofree char *key = cluster_key(cluster, "desired/settings/cache-evictor");

    client_put(key, "{\"spec\":{\"brakePercent\":100}}", 0);
}

static void report(const Seen *seen, gint64 start, gint64 cpu_ns)
{
    for (guint s = 0; s < N_STEPS; s++)
        table_add(bench.table, "y", (double)(seen->last_us[s] - start) / G_USEC_PER_SEC, "s",
                  NO_AIM, NULL, "%u of %u expire at once: until %s", seen->wanted,
                  seen->cluster->o.snapshots, steps[s]);
    table_add(bench.table, "y", (double)cpu_ns / 1e6 / seen->wanted, "ms", NO_AIM, NULL,
              "the same: CPU of the manager for each, all controllers, until it is at rest");
}

static void run(Cluster *cluster)
{
    const char *const extra[] = {"--object-store-roots", cluster->o.root, NULL};
    Seen seen = {.cluster = cluster, .wanted = expiring(cluster)};
    Process *manager = manager_ready(cluster, "manager-expiry", extra);
    Nodes *nodes = nodes_new(cluster);
    Watch *watch = watch_new(cluster->prefix, on_event, &seen);
    gint64 cpu = process_cpu_ns(manager), start = now_us();

    let_it_run(cluster);
    bench_wait(all_seen, &seen, WITHIN_MS, "%u expired snapshots are deleted", seen.wanted);
    manager_settle(manager);
    cpu = process_cpu_ns(manager) - cpu;
    watch_free(watch);
    process_stop(manager);
    nodes_free(nodes);
    for (guint s = 0; s < N_STEPS; s++)
        if (seen.seen[s] != seen.wanted)
            bench_fail("%u instead of %u: until %s", seen.seen[s], seen.wanted, steps[s]);
    report(&seen, start, cpu);
}

void row_expiry(void)
{
    g_autofree char *dir = g_build_filename(bench.dir, "objects", NULL);
    g_autofree char *root = g_strdup_printf("file://%s/", dir);
    ClusterOptions o = {
        .label = "expiry",
        .snapshots = bench.sizes.at_once * TENTH,
        .nodes = bench.sizes.nodes,
        .services = FLEET_SERVICES,
        .expiring = FLEET_SERVICES / TENTH,
        .root = root,
        .evictor_paused = TRUE,
        .replicated = TRUE,
        .assigned = TRUE,
        .live = TRUE,
    };
    Cluster *cluster;

    if (g_mkdir_with_parents(dir, 0700) != 0)
        bench_fail("%s cannot be made", dir);
    mark(&o, dir);
    cluster = cluster_new(&o);
    cluster_write_files(cluster);
    cluster_put_accepted(cluster, "settings/snapshot-cleaner",
                         "{\"brakePercent\":100,\"buffer\":\"0s\",\"deletesPerSecond\":10000}");
    run(cluster);
    cluster_free(cluster);
    bench_remove(dir);
}
