/*
 * The benchmark: which rows, in which sizes, on which clusters, in which order. All rows share one etcd,
 * so that ratios hold; the small clusters come first, because a larger etcd is a slower one.
 */
#include "rows.h"

#include <stdio.h>
#include <string.h>

#define ALONE_ROWS "msx" /* need no etcd */
#define ALL_ROWS   "abcdefghijlmnpstxy"

static const Sizes full = {
    .replicas = 100000,
    .nodes = 1000,
    .few = 1000,
    .many = 1000000,
    .snapshots = 1000000,
    .fleets = {10000, 100000, 1000000},
    .expiries = {1, 100, 10000},
    .at_once = 10000,
    .services = 5000,
    .partitions = 1000,
    .seeds = 100000,
    .policies = 1000,
    .crawlers = 100,
    .probed = 10000,
    .probe_period_ms = 5000,
    .probe_periods = 6,
    .limit_keys = 20000,
    .limit_rounds = 6,
    .converge_rounds = 3,
    .start_rounds = 3,
    .handover_rounds = 10,
    .samples = 240,
    .watchers = 10000,
    .requests_per_s = 200,
    .objects = 200,
    .object_bytes = G_GINT64_CONSTANT(2000000000),
    .permit_requests = 50000,
    .idle_ms = 10000,
    .settle_ms = 1000,
};

static const Sizes quick = {
    .replicas = 10000,
    .nodes = 100,
    .few = 100,
    .many = 100000,
    .snapshots = 100000,
    .fleets = {1000, 10000, 100000},
    .expiries = {1, 100, 1000},
    .at_once = 1000,
    .services = 500,
    .partitions = 100,
    .seeds = 10000,
    .policies = 100,
    .crawlers = 10,
    .probed = 1000,
    .probe_period_ms = 5000,
    .probe_periods = 3,
    .limit_keys = 5000,
    .limit_rounds = 4,
    .converge_rounds = 2,
    .start_rounds = 2,
    .handover_rounds = 2,
    .samples = 60,
    .watchers = 1000,
    .requests_per_s = 200,
    .objects = 20,
    .object_bytes = G_GINT64_CONSTANT(200000000),
    .permit_requests = 5000,
    .idle_ms = 3000,
    .settle_ms = 1000,
};

/* Only to see that every row still works. */
static const Sizes smoke = {
    .replicas = 300,
    .nodes = 20,
    .few = 50,
    .many = 500,
    .snapshots = 2000,
    .fleets = {100, 200, 500},
    .expiries = {1, 5, 20},
    .at_once = 20,
    .services = 20,
    .partitions = 10,
    .seeds = 600,
    .policies = 20,
    .crawlers = 5,
    .probed = 50,
    .probe_period_ms = 500,
    .probe_periods = 2,
    .limit_keys = 300,
    .limit_rounds = 1,
    .converge_rounds = 2,
    .start_rounds = 1,
    .handover_rounds = 1,
    .samples = 4,
    .watchers = 20,
    .requests_per_s = 50,
    .objects = 3,
    .object_bytes = G_GINT64_CONSTANT(200000),
    .permit_requests = 20,
    .idle_ms = 200,
    .settle_ms = 100,
};

static gboolean want_quick, want_smoke;
static char *json_path, *log_level;
static char **row_words;

static const GOptionEntry options[] = {
    {"quick", 0, 0, G_OPTION_ARG_NONE, &want_quick, "a tenth of the size", NULL},
    {"smoke", 0, 0, G_OPTION_ARG_NONE, &want_smoke, "as small as can be: figures mean nothing",
     NULL},
    {"json", 0, 0, G_OPTION_ARG_FILENAME, &json_path, "write the results there too", "FILE"},
    {"log-level", 0, 0, G_OPTION_ARG_STRING, &log_level, "of the managers (as shipped: info)",
     "LEVEL"},
    {G_OPTION_REMAINING, 0, 0, G_OPTION_ARG_STRING_ARRAY, &row_words, NULL, "[ROW…]"},
    {NULL, 0, 0, 0, NULL, NULL, NULL},
};

/* "a c" and "ac" are the same; NULL when one of them is no row. */
static char *rows_of(char **words)
{
    g_autofree char *rows = words == NULL ? g_strdup(ALL_ROWS) : g_strjoinv("", words);

    return strspn(rows, ALL_ROWS) == strlen(rows) ? g_steal_pointer(&rows) : NULL;
}

static gboolean any(const char *rows, const char *of)
{
    return strpbrk(rows, of) != NULL;
}

/* ---- clusters ---- */

/* Rows a, b, c, g, i, and d for this size. */
static void main_cluster(const char *rows)
{
    gboolean converge = any(rows, "ab");
    ClusterOptions o = {
        .label = "leasehold",
        .snapshots = bench.sizes.replicas,
        .nodes = bench.sizes.nodes,
        .replicated = TRUE,
        .assigned = !converge,
        .paused = converge,
    };
    gboolean converged = !converge || any(rows, "bcdgi");
    Cluster *cluster = cluster_new(&o);
    Process *manager = converge ? row_converge(cluster, converged) : NULL;

    if (any(rows, "cd")) {
        if (manager == NULL)
            manager = manager_ready(cluster, "manager", NULL);
        row_reaction(cluster, manager, any(rows, "c"), any(rows, "d"));
    }
    process_stop(manager);
    if (any(rows, "i"))
        row_watchers(cluster);
    if (any(rows, "g"))
        row_handover(cluster);
    cluster_free(cluster);
}

/* Row d in a cluster of another size, and a line of e. A node may have 1,000 loads that it has not
 * answered. */
static void other_cluster(const char *label, guint replicas)
{
    ClusterOptions o = {
        .label = label,
        .snapshots = replicas,
        .nodes = MAX(bench.sizes.nodes, replicas / 800),
        .replicated = TRUE,
        .assigned = TRUE,
    };
    Cluster *cluster = cluster_new(&o);
    Process *manager = manager_ready(cluster, "manager", NULL);

    row_memory_placed(cluster, manager);
    row_reaction(cluster, manager, FALSE, TRUE);
    process_stop(manager);
    cluster_free(cluster);
}

static void snapshots_alone(const char *rows)
{
    ClusterOptions o = {.label = "snapshots", .snapshots = bench.sizes.snapshots, .expired = TRUE};
    Cluster *cluster = cluster_new(&o);

    if (any(rows, "e"))
        row_memory(cluster);
    if (any(rows, "f"))
        row_start(cluster);
    cluster_free(cluster);
}

static void whole_fleet(void)
{
    ClusterOptions o = {
        .label = "fleet",
        .snapshots = bench.sizes.snapshots,
        .nodes = MAX(bench.sizes.nodes, bench.sizes.snapshots / 800),
        .services = FLEET_SERVICES,
        .replicated = TRUE,
        .assigned = TRUE,
        .live = TRUE,
    };
    Cluster *cluster = cluster_new(&o);

    row_fleet_start(cluster);
    cluster_free(cluster);
}

static void run_alone(const char *rows)
{
    if (any(rows, "m"))
        row_kinds();
    if (any(rows, "x"))
        row_expiry_cpu();
    if (any(rows, "s"))
        row_seeds();
}

static void run(const char *rows)
{
    if (any(rows, "h"))
        row_s3();
    if (any(rows, "l"))
        row_permits();
    if (any(rows, "p"))
        row_partitions();
    if (any(rows, "t"))
        row_seeds_etcd();
    if (any(rows, "n"))
        row_probes();
    if (any(rows, "y"))
        row_expiry();
    if (any(rows, "d"))
        other_cluster("few", bench.sizes.few);
    if (any(rows, "abcdgi"))
        main_cluster(rows);
    if (any(rows, "ef"))
        snapshots_alone(rows);
    if (any(rows, "d")) {
        other_cluster("many", bench.sizes.many);
        row_reaction_flat();
    }
    if (any(rows, "j"))
        whole_fleet();
}

int main(int argc, char **argv)
{
    g_autoptr(GOptionContext) context = g_option_context_new(NULL);
    g_autoptr(GError) error = NULL;
    g_autofree char *rows = NULL;

    g_option_context_add_main_entries(context, options, NULL);
    g_option_context_set_summary(
        context, "Measures rows a to j, l to n, p, s, t, x and y (all of them, if none is named); "
                 "tests/README.md says what each is.");
    if (!g_option_context_parse(context, &argc, &argv, &error)) {
        fprintf(stderr, "tools/bench: %s\n", error->message);
        return 2;
    }
    rows = rows_of(row_words);
    if (rows == NULL) {
        fprintf(stderr, "tools/bench: rows are letters of " ALL_ROWS "\n");
        return 2;
    }
    bench.log_level = log_level;
    bench_begin(want_smoke ? &smoke : want_quick ? &quick : &full);
    run_alone(rows);
    if (strspn(rows, ALONE_ROWS) < strlen(rows)) {
        bench_connect();
        run(rows);
    }
    if (json_path != NULL && !table_write_json(bench.table, json_path, &error))
        bench_fail("%s: %s", json_path, error->message);
    bench_finish();
}
