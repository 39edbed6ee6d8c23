/*
 * Many runs: seed after seed, in several processes if asked, what each has been through added up, and
 * what has to be said when one fails. Here is also what a run of many seeds must at least have done.
 */
#include "sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define MAX_JOBS    64
#define FEWEST_RUNS 5 /* fewer prove nothing about how much is done in general */

static const struct {
    const char *name;
    guint64 least; /* in 100 runs */
} rows[] = {
#define X(name, text, least) {text, least},
    SIM_COUNTERS(X)
#undef X
};

static void add_counters(SimCounters *sum, const SimCounters *more)
{
    guint64 *to = (guint64 *)sum;
    const guint64 *from = (const guint64 *)more;
    for (gsize i = 0; i < G_N_ELEMENTS(rows); i++)
        to[i] += from[i];
}

void sim_counters_print(const SimCounters *counters, const char *mark)
{
    const guint64 *values = (const guint64 *)counters;
    for (gsize i = 0; i < G_N_ELEMENTS(rows); i++)
        printf("%s%s %" G_GUINT64_FORMAT "%s", i % 6 == 0 ? mark : "", rows[i].name, values[i],
               i + 1 == G_N_ELEMENTS(rows) || i % 6 == 5 ? "\n" : ", ");
}

char *sim_counters_lack(const SimCounters *counters, guint64 runs)
{
    const guint64 *values = (const guint64 *)counters;
    for (gsize i = 0; i < G_N_ELEMENTS(rows) && runs >= FEWEST_RUNS; i++) {
        guint64 least = rows[i].least * runs / 100;
        if (values[i] < least)
            return g_strdup_printf("too little was done: %s: %" G_GUINT64_FORMAT
                                   ", at least %" G_GUINT64_FORMAT " expected",
                                   rows[i].name, values[i], least);
    }
    return NULL;
}

/* ---- one run ---- */

static void print_failure(const SimBatch *batch, const SimOptions *options, const SimResult *result)
{
    g_auto(GStrv) lines = g_strsplit(result->tail, "\n", -1);
    g_autofree char *command = sim_command(options, batch->bug);
    g_autoptr(GString) text = g_string_new(NULL);
    g_string_append_printf(text, "%sseed %" G_GUINT64_FORMAT " failed; the end of its trace:\n",
                           batch->mark, options->seed);
    for (guint i = 0; lines[i] != NULL; i++)
        g_string_append_printf(text, "%s  %s\n", batch->mark, lines[i]);
    g_string_append_printf(text, "%s%s\n%sreplay: %s --trace\n%sshorten: %s --shrink\n",
                           batch->mark, result->violation, batch->mark, command, batch->mark,
                           command);
    fwrite(text->str, 1, text->len, stdout); /* at once: other processes print too */
    fflush(stdout);
}

gboolean sim_batch_one(const SimBatch *batch, guint64 seed, SimCounters *sum, guint64 *hash)
{
    SimOptions options = batch->options;
    SimResult result;
    options.seed = seed;
    sim_run(&options, &result);
    gboolean ok = !result.failed;
    if (!ok)
        print_failure(batch, &options, &result);
    add_counters(sum, &result.counters);
    if (hash != NULL)
        *hash = result.hash;
    sim_result_clear(&result);
    return ok;
}

/* ---- processes ---- */

/* What the children of one fork_each tell, in memory that all share. */
typedef struct {
    guint64 present; /* what it is at, or was when it died */
    guint64 failed;
} Slot;

static void run_child(guint64 first, guint64 count, guint jobs, gint64 until_us, Slot *slot,
                      gboolean (*func)(guint64 n, gpointer data), gpointer data)
{
    for (guint64 n = first; n < count; n += jobs) {
        if (until_us != 0 && g_get_monotonic_time() >= until_us)
            break;
        slot->present = n;
        slot->failed += !func(n, data);
    }
    fflush(NULL);
    _exit(0);
}

guint64 sim_fork_each(guint64 count, guint jobs, gint64 until_us,
                      gboolean (*func)(guint64 n, gpointer data), gpointer data)
{
    pid_t pids[MAX_JOBS];
    guint64 failed = 0;
    jobs = CLAMP(jobs, 1, MAX_JOBS);
    Slot *slots = mmap(NULL, jobs * sizeof *slots, PROT_READ | PROT_WRITE,
                       MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (slots == MAP_FAILED)
        g_error("sim: no memory to share");
    fflush(NULL);
    for (guint i = 0; i < jobs; i++) {
        pids[i] = fork();
        if (pids[i] == 0)
            run_child(i, count, jobs, until_us, &slots[i], func, data);
        if (pids[i] < 0)
            g_error("sim: cannot fork");
    }
    for (guint i = 0; i < jobs; i++) {
        int status = 0;
        waitpid(pids[i], &status, 0);
        failed += slots[i].failed;
        if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
            continue;
        failed++;
        printf("# number %" G_GUINT64_FORMAT " (from 0) died, status %d\n", slots[i].present,
               status);
    }
    munmap(slots, jobs * sizeof *slots);
    return failed;
}

/* ---- a batch ---- */

typedef struct {
    const SimBatch *batch;
    SimCounters *sums; /* shared, one for each job */
    guint64 *runs, *first_failed;
} Shared;

static gboolean run_one(guint64 n, gpointer data)
{
    const Shared *shared = data;
    guint64 job = n % shared->batch->jobs, seed = shared->batch->first + n;
    gboolean ok = sim_batch_one(shared->batch, seed, &shared->sums[job], NULL);
    shared->runs[job]++;
    if (!ok && shared->first_failed[job] == 0)
        shared->first_failed[job] = seed;
    return ok;
}

void sim_batch_run(const SimBatch *batch, SimBatchResult *out)
{
    guint jobs = CLAMP(batch->jobs, 1, MAX_JOBS);
    gsize size = jobs * (sizeof(SimCounters) + 2 * sizeof(guint64));
    guint64 count = batch->last - batch->first + 1;
    SimBatch mine = *batch;
    char *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        g_error("sim: no memory to share");
    mine.jobs = jobs;
    Shared shared = {.batch = &mine, .sums = (SimCounters *)(gpointer)memory};
    shared.runs = (guint64 *)(gpointer)(memory + jobs * sizeof(SimCounters));
    shared.first_failed = shared.runs + jobs;
    *out = (SimBatchResult){.runs = 0};
    if (jobs > 1)
        out->failed = sim_fork_each(count, jobs, batch->until_us, run_one, &shared);
    for (guint64 n = 0; jobs == 1 && n < count; n++) {
        if (batch->until_us != 0 && g_get_monotonic_time() >= batch->until_us)
            break;
        out->failed += !run_one(n, &shared);
    }
    for (guint i = 0; i < jobs; i++) {
        guint64 first = shared.first_failed[i];
        add_counters(&out->sum, &shared.sums[i]);
        out->runs += shared.runs[i];
        if (first != 0 && (out->first_failed == 0 || first < out->first_failed))
            out->first_failed = first;
    }
    munmap(memory, size);
}
