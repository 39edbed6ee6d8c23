/*
 * (e) Memory: the resident set of a manager that mirrors snapshots which want nothing (all are older than
 * their cache window), once it is ready and at rest; and of one that mirrors none.
 * (f) Cold start: from the start of the process to the first 200 of /readyz, as a multiple of what reading
 * the same keys through the same client takes, in turns. (j) the same with everything a fleet has.
 */
#include "rows.h"

static const gint64 pages[] = {100000, 250000};

void row_memory(Cluster *cluster)
{
    ClusterOptions nothing = {.label = "nothing"};
    Cluster *empty = cluster_new(&nothing);
    Process *manager = manager_ready(empty, "manager-of-none", NULL);
    double n = cluster->o.snapshots, none = (double)process_rss_bytes(manager), all;

    process_stop(manager);
    cluster_free(empty);
    manager = manager_ready(cluster, "manager-of-all", NULL);
    all = (double)process_rss_bytes(manager);
    process_stop(manager);
    table_add(bench.table, "e", all / n, "B", AT_MOST(300), "554",
              "resident for each of %u snapshots of 343 B, over all", cluster->o.snapshots);
    table_add(bench.table, "e", (all - none) / n, "B", NO_AIM, NULL,
              "the same without the %.1f MiB of a manager of none", none / (1 << 20));
}

void row_memory_placed(const Cluster *cluster, const Process *manager)
{
    table_add(bench.table, "e", (double)process_rss_bytes(manager) / cluster->o.snapshots, "B",
              NO_AIM, NULL,
              "resident for each of %u snapshots with a replica and an assignment, over all",
              cluster->o.snapshots);
}

static double cold_start_s(const Cluster *cluster)
{
    Process *manager = manager_start(cluster, "manager-cold", NULL);
    gint64 took = manager_wait_ready(manager) - manager->started_us;

    bench_say("  cold start: %.2f s, %.2f s of the manager's CPU", (double)took / G_USEC_PER_SEC,
              (double)process_cpu_ns(manager) / 1e9);
    manager_settle(manager);
    process_stop(manager);
    return (double)took / G_USEC_PER_SEC;
}

static guint64 raw_range(const Cluster *cluster, gint64 page_keys, Samples *raws)
{
    const Process etcd = {.pid = etcd_process_pid(bench.etcd), .name = (char *)"etcd"};
    gint64 cpu = process_cpu_ns(&etcd);
    RawRange range = client_range(cluster->prefix, page_keys);

    samples_add(raws, (double)range.took_us / G_USEC_PER_SEC);
    bench_say("  %" G_GUINT64_FORMAT " keys, %" G_GUINT64_FORMAT
              " bytes in pages of %" G_GINT64_FORMAT ": %.2f s, %.2f s of etcd's CPU",
              range.keys, range.bytes, page_keys, (double)range.took_us / G_USEC_PER_SEC,
              (double)(process_cpu_ns(&etcd) - cpu) / 1e9);
    return range.keys;
}

static void start(Cluster *cluster, const char *row, const char *what, Aim aim,
                  const char *const *references)
{
    g_autoptr(GArray) starts = samples_new();
    Samples *raws[G_N_ELEMENTS(pages)];
    guint64 keys = 0;
    double raw;
    guint best = 0;

    for (guint p = 0; p < G_N_ELEMENTS(pages); p++)
        raws[p] = samples_new();
    for (guint round = 0; round < bench.sizes.start_rounds; round++) {
        for (guint p = 0; p < G_N_ELEMENTS(pages); p++)
            keys = raw_range(cluster, pages[p], raws[p]);
        samples_add(starts, cold_start_s(cluster));
    }
    for (guint p = 1; p < G_N_ELEMENTS(pages); p++)
        if (samples_median(raws[p]) < samples_median(raws[best]))
            best = p;
    raw = samples_median(raws[best]);
    table_add(bench.table, row, samples_median(starts), "s", NO_AIM, references[0],
              "cold start with %u snapshots%s, to /readyz", cluster->o.snapshots, what);
    table_add(bench.table, row, raw, "s", NO_AIM, references[1],
              "the raw range of the same %" G_GUINT64_FORMAT " keys, pages of %" G_GINT64_FORMAT,
              keys, pages[best]);
    table_add(bench.table, row, samples_median(starts) / raw, "x", aim, references[2],
              "cold start as a multiple of the raw range");
    for (guint p = 0; p < G_N_ELEMENTS(pages); p++)
        g_array_unref(raws[p]);
}

void row_start(Cluster *cluster)
{
    static const char *const go[] = {"11.3", "5.7", "2.0"};

    start(cluster, "f", "", AT_MOST(1.2), go);
}

void row_fleet_start(Cluster *cluster)
{
    static const char *const none[] = {NULL, NULL, NULL};
    g_autofree char *what = g_strdup_printf(
        " of %u services, replicas, assignments, live items and searches",
        cluster_services(cluster));

    start(cluster, "j", what, NO_AIM, none);
}
