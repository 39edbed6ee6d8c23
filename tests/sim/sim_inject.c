/*
 * A fault at every write: a run without other faults is made once, to count what each process writes, and
 * then again for each write (or each K-th) and each of: the writer dies before it, dies after it, the
 * reply is lost, the write commits later. Every invariant holds, and it settles.
 */
#include "sim.h"

#include <stdio.h>

#define MANAGERS 2
#define AGENTS   3
#define CHAOS_MS 90000

typedef struct {
    SimBatch batch;
    guint64 every;
} Inject;

static const guint kinds = SIM_N_INJECTIONS - 1;

static gboolean run_one(guint64 n, gpointer data)
{
    const Inject *inject = data;
    SimBatch batch = inject->batch;
    SimCounters sum = {0};
    batch.options.inject = (SimInjection)(SIM_INJECT_NONE + 1 + n % kinds);
    batch.options.inject_write = 1 + n / kinds * inject->every;
    return sim_batch_one(&batch, batch.options.seed, &sum, NULL);
}

static void print_writers(const SimOptions *options, const SimResult *result, const char *mark)
{
    printf("%s%" G_GUINT64_FORMAT " writes:", mark, result->writes);
    for (guint i = 0; i < options->managers + options->agents; i++)
        printf(" %s-%u %" G_GUINT64_FORMAT, i < options->managers ? "manager" : "node",
               i < options->managers ? i : i - options->managers, result->by_process[i]);
    printf("\n");
}

int sim_inject(guint64 seed, guint64 every, guint jobs, gboolean tap)
{
    Inject inject = {
        .batch = {.mark = tap ? "# " : "", .options = sim_options_normal(seed)},
        .every = every,
    };
    SimOptions *options = &inject.batch.options;
    SimResult quiet;
    options->managers = MANAGERS;
    options->agents = AGENTS;
    options->chaos_ms = CHAOS_MS;
    options->off = (1u << SIM_N_PARTS) - 1;
    sim_run(options, &quiet);
    guint64 writes = quiet.writes, first = quiet.failed;
    guint64 runs = (writes + every - 1) / every * kinds;
    print_writers(options, &quiet, inject.batch.mark);
    if (quiet.failed)
        printf("%swithout any fault: %s\n", inject.batch.mark, quiet.violation);
    sim_result_clear(&quiet);
    guint64 failed = first + sim_fork_each(runs, jobs, 0, run_one, &inject);
    gboolean enough = writes >= 100; /* else there was nothing to inject into */
    printf("%s%" G_GUINT64_FORMAT " of %" G_GUINT64_FORMAT " injections failed\n",
           inject.batch.mark, failed, runs);
    if (!enough)
        printf("%stoo few writes\n", inject.batch.mark);
    if (tap)
        printf("1..1\n%sok 1 - a fault at one of %" G_GUINT64_FORMAT " writes\n",
               failed == 0 && enough ? "" : "not ", every);
    return failed > 0 || !enough;
}
