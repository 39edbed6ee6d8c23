/*
 * (m) Memory for each object of each kind: the product's mirror and indexes are fed with all snapshots, then
 * with all replicas, and so on; after each kind the heap in use and the resident set are looked at. In this
 * process, before anything else has used memory.
 *
 * What a later kind gives back of an earlier one counts for the later: a replica that waits for its
 * assignment, a load that waits for its answer.
 */
#include "folded.h"
#include "rows.h"
#include "tests/fakes/heap.h"

#include <unistd.h>

typedef struct {
    gsize heap;
    gint64 rss;
} Used;

static Used used(void)
{
    const Process own = {.pid = getpid(), .name = (char *)"the benchmark"};
    Used now;

    malloc_trim(0);
    now.heap = heap_bytes();
    now.rss = process_rss_bytes(&own);
    return now;
}

/* @n: of that kind; the shares are for each of them. */
static Used report(Used before, guint n, const char *what)
{
    Used now = used();

    if (heap_is_counted())
        table_add(bench.table, "m", ((double)now.heap - (double)before.heap) / n, "B", NO_AIM, NULL,
                  "heap for %s (%u)", what, n);
    else
        table_skip(bench.table, "m", "%s: a sanitizer's heap cannot be counted", what);
    table_add(bench.table, "m", (double)(now.rss - before.rss) / n, "B", NO_AIM, NULL,
              "resident for %s (%u)", what, n);
    return now;
}

void row_kinds(void)
{
    ClusterOptions o = {
        .label = "kinds",
        .snapshots = bench.sizes.snapshots,
        .nodes = bench.sizes.nodes,
        .services = FLEET_SERVICES,
    };
    Cluster *cluster = cluster_imagine(&o);
    Folded *folded = folded_new();
    Used first, at;

    bench_say("folding %u snapshots of %u services in this process, kind after kind", o.snapshots,
              o.services);
    folded_fill_rest(folded, cluster);
    first = at = used();
    folded_fill(folded, cluster, o.snapshots, cluster_snapshot);
    at = report(at, o.snapshots, "each snapshot");
    folded_fill(folded, cluster, o.snapshots, cluster_replica);
    at = report(at, o.snapshots, "each replica");
    folded_fill(folded, cluster, o.snapshots, cluster_assignment);
    at = report(at, o.snapshots, "each assignment");
    folded_fill_items(folded, cluster);
    at = report(at, o.snapshots, "each live item");
    folded_fill_searches(folded, cluster);
    report(at, o.snapshots, "each search");
    report(first, o.snapshots, "one of each, together");
    folded_free(folded);
    cluster_free(cluster);
    malloc_trim(0);
}
