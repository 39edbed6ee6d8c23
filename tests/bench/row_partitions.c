/*
 * (p) Partition allocation: a manager at rest sees that its partition-allocator is no longer paused, and finds
 * services that have no partitions; a watch counts their plans until the last is there. The transactions that
 * carried plans are the revisions at which some came. Then services are edited one after the other, so that each
 * needs one partition more: the manager's CPU for one edit is that of all, its idleness included.
 */
#include "rows.h"

#include <string.h>

#define CAPACITY   5000000
#define WITHIN_MS  (5 * 60 * 1000)
#define PLANS      "decided/partitionplans/"
#define PER_SECOND 20 /* edits */

typedef struct {
    guint plans, transactions;
    gint64 revision, last_us;
    guint wanted;
} Seen;

static void on_plan(const LhEtcdEvent *event, gint64 at_us, gpointer data)
{
    Seen *seen = data;

    seen->plans++;
    seen->transactions += event->kv.mod_rev != seen->revision;
    seen->revision = event->kv.mod_rev;
    seen->last_us = at_us;
}

static gboolean all_seen(gpointer data)
{
    const Seen *seen = data;

    return seen->plans >= seen->wanted;
}

static void partition_item(guint i, char **key, char **value, gpointer data)
{
    *key = cluster_key(data, "desired/partitions/part-%05u", i);
    *value = g_strdup_printf("{\"spec\":{\"capacityBytesPerSecond\":%d,\"topic\":\"logs\","
                             "\"kafkaPartition\":%u}}",
                             CAPACITY, i);
}

/* Together four fifths of what there is. @min: partitions. */
static void put_service(const Cluster *cluster, guint i, guint min, char **key, char **value)
{
    gint64 throughput = (gint64)CAPACITY * bench.sizes.partitions / bench.sizes.services / 5 *
                        (3 + i % 3);

    *key = cluster_key(cluster, "desired/services/tenant-%05u", i);
    *value = g_strdup_printf(
        "{\"spec\":{\"owner\":\"team\",\"throughputBytesPerSecond\":%" G_GINT64_FORMAT
        ",\"partitions\":{\"min\":%u}}}",
        throughput, min);
}

static void service_item(guint i, char **key, char **value, gpointer data)
{
    put_service(data, i, 2, key, value);
}

/* Not accepted here: this is the change that the running manager shall see. */
static void let_it_run(const Cluster *cluster)
{
    g_autofree char *key = cluster_key(cluster, "desired/settings/partition-allocator");

    client_put(key, "{\"spec\":{\"paused\":false}}", 0);
}

static void all_at_once(const Cluster *cluster, Process *manager)
{
    g_autofree char *prefix = cluster_key(cluster, PLANS);
    Seen seen = {.wanted = bench.sizes.services};
    Watch *watch = watch_new(prefix, on_plan, &seen);
    gint64 cpu = process_cpu_ns(manager), start = now_us();

    let_it_run(cluster);
    bench_wait(all_seen, &seen, WITHIN_MS, "%u services have their partitions", seen.wanted);
    manager_settle(manager);
    cpu = process_cpu_ns(manager) - cpu;
    watch_free(watch);
    table_add(bench.table, "p", (double)(seen.last_us - start) / G_USEC_PER_SEC, "s", NO_AIM, NULL,
              "%u services on %u partitions: until the last plan is seen", bench.sizes.services,
              bench.sizes.partitions);
    table_add(bench.table, "p", seen.transactions, "", NO_AIM, NULL,
              "the same: transactions that carried plans");
    table_add(bench.table, "p", (double)cpu / 1e9, "s", NO_AIM, NULL,
              "the same: the manager's CPU until it is at rest, statuses included");
}

static void one_by_one(const Cluster *cluster, Process *manager)
{
    g_autofree char *prefix = cluster_key(cluster, PLANS);
    guint n = MIN(bench.sizes.samples, bench.sizes.services);
    Seen seen = {.plans = 0};
    Watch *watch = watch_new(prefix, on_plan, &seen);
    gint64 cpu = process_cpu_ns(manager);

    for (guint i = 0; i < n; i++) {
        g_autofree char *key = NULL, *value = NULL;
        put_service(cluster, i, 3, &key, &value);
        client_put(key, value, 0);
        seen.wanted = i + 1;
        bench_wait(all_seen, &seen, WITHIN_MS, "an edited service has its partitions");
        bench_pause(1000 / PER_SECOND);
    }
    manager_settle(manager);
    cpu = process_cpu_ns(manager) - cpu;
    watch_free(watch);
    table_add(bench.table, "p", (double)cpu / 1e6 / n, "ms", NO_AIM, NULL,
              "then: the manager's CPU for one service's edit, admission included");
}

void row_partitions(void)
{
    ClusterOptions o = {.label = "partitions"};
    Cluster *cluster = cluster_new(&o);
    Process *manager;

    cluster_put_accepted(cluster, "settings/partition-allocator", "{\"paused\":true}");
    client_load(bench.sizes.partitions, partition_item, cluster, 0);
    client_load(bench.sizes.services, service_item, cluster, 0);
    manager = manager_ready(cluster, "manager-partitions", NULL);
    all_at_once(cluster, manager);
    one_by_one(cluster, manager);
    process_stop(manager);
    cluster_free(cluster);
}
