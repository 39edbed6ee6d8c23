/*
 * (i) What idle watchers and a steady trickle of requests add to the reaction of (c): blocks of changes
 * with and without them, in turns. A server that does not let all watchers in is measured with those that
 * it lets in, and the row says how many.
 */
#include "http_load.h"
#include "rows.h"

#include <string.h>

#define BLOCKS        4
#define LIMIT_FLAG    "--http-max-connections"
#define WATCH_PATH    "/v1/services?watch=true"
#define REQUEST_PATH  "/v1/services"
#define FILES_BESIDES 500 /* that manager and benchmark need for themselves */

typedef struct {
    Samples *with, *without;
    guint watchers;
    guint64 answered, failed;
} Blocks;

static void add_all(Samples *to, const Samples *from)
{
    g_array_append_vals(to, from->data, from->len);
}

static void run_block(Cluster *cluster, Process *manager, guint watchers, gboolean loaded,
                      Blocks *blocks)
{
    HttpLoad *load = loaded ? http_load_start(manager->port, watchers, WATCH_PATH,
                                              bench.sizes.requests_per_s, REQUEST_PATH)
                            : NULL;
    Reaction reaction;

    reaction_run(cluster, manager, MAX(1, bench.sizes.samples / BLOCKS), 0, &reaction);
    add_all(loaded ? blocks->with : blocks->without, reaction.reaction_ms);
    reaction_clear(&reaction);
    if (load == NULL)
        return;
    HttpLoadCounts counts = http_load_counts(load);
    http_load_stop(load);
    blocks->watchers = counts.watchers;
    blocks->answered += counts.answered;
    blocks->failed += counts.failed;
    bench_say("  %u watchers, %u refused, %" G_GUINT64_FORMAT " requests answered", counts.watchers,
              counts.refused, counts.answered);
    manager_settle(manager);
}

static void report(const Blocks *blocks, guint wanted)
{
    static const double shares[] = {0.5, 0.99};

    table_add(bench.table, "i", blocks->watchers, "", AT_LEAST(wanted), NULL,
              "idle watchers that the server holds, beside %u requests/s (%" G_GUINT64_FORMAT
              " answered, %" G_GUINT64_FORMAT " not)",
              bench.sizes.requests_per_s, blocks->answered, blocks->failed);
    for (guint i = 0; i < G_N_ELEMENTS(shares); i++) {
        double without = samples_quantile(blocks->without, shares[i]);
        double with = samples_quantile(blocks->with, shares[i]);
        table_add(bench.table, "i", with - without, "ms", NO_AIM, NULL,
                  "what they add to the reaction, p%.0f (%.3f -> %.3f)", shares[i] * 100, without,
                  with);
    }
}

void row_watchers(Cluster *cluster)
{
    guint64 files = raise_file_limit();
    guint wanted = bench.sizes.watchers;
    g_autofree char *limit = g_strdup_printf("%u", wanted + FILES_BESIDES);
    const char *const more[] = {LIMIT_FLAG, limit, NULL};
    Blocks blocks = {.with = samples_new(), .without = samples_new()};
    guint watchers = (guint)MIN(wanted, files - MIN(files, FILES_BESIDES));
    gboolean has_limit = manager_knows(LIMIT_FLAG);
    Process *manager;

    if (!has_limit)
        bench_say("  leasehold manager has no %s: its default limit stands", LIMIT_FLAG);
    if (watchers < wanted)
        bench_say("  %" G_GUINT64_FORMAT " open files are permitted: %u watchers", files, watchers);
    manager = manager_ready(cluster, "manager-watched", has_limit ? more : NULL);
    for (guint block = 0; block < BLOCKS; block++) {
        run_block(cluster, manager, watchers, FALSE, &blocks);
        run_block(cluster, manager, watchers, TRUE, &blocks);
    }
    report(&blocks, wanted);
    process_stop(manager);
    g_array_unref(blocks.with);
    g_array_unref(blocks.without);
}
