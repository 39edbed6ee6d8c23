/*
 * sim [--seeds A..B | --seed N] [-j JOBS] [--hours H] …: runs one seed after the other.
 * sim --inject SEED [--every K] [-j JOBS]: a fault at each K-th write of a quiet run.
 * sim --seed N [--bug NAME] --shrink [--to FILE] · sim --replay FILE [--trace] · sim-bugs --bugs
 *
 * A seed that fails prints what was violated, the tail of its trace, and the command that replays it.
 * With --tap the seeds are CASES test cases, each of which must have done enough to prove something, and
 * one more runs its first seed twice and compares. LEASEHOLD_SIM_SEEDS=A..B replaces --seeds.
 */
#include "sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

typedef struct {
    SimBatch batch;
    guint cases;
    gboolean shrink, all_bugs;
    char *bug, *to, *replay;
    gint64 inject; /* seed; -1: no injection */
    guint64 every;
} Args;

/* Of this process and its children: the machine may be busy with other things. */
static double cpu_seconds(void)
{
    double sum = 0;
    const int whose[] = {RUSAGE_SELF, RUSAGE_CHILDREN};
    for (guint i = 0; i < G_N_ELEMENTS(whose); i++) {
        struct rusage used;
        getrusage(whose[i], &used);
        sum += (double)used.ru_utime.tv_sec + (double)used.ru_utime.tv_usec / 1e6 +
               (double)used.ru_stime.tv_sec + (double)used.ru_stime.tv_usec / 1e6;
    }
    return MAX(sum, 1e-3);
}

static void print_speed(const SimCounters *sum, const char *mark)
{
    double s = cpu_seconds();
    printf("%s%.0f simulated s in %.2f s of a core: %.0f × real time, %.0f steps/s\n", mark,
           (double)sum->simulated_s, s, (double)sum->simulated_s / s, (double)sum->steps / s);
}

static gboolean is_normal(const SimOptions *options)
{
    return options->off == 0 && options->only == NULL && options->inject == SIM_INJECT_NONE &&
           options->chaos_ms >= SIM_CHAOS_MS && options->agents >= SIM_AGENTS &&
           options->managers >= SIM_MANAGERS;
}

static int run_plain(const Args *args)
{
    const SimBatch *batch = &args->batch;
    SimBatchResult result = {.runs = 1};
    guint64 hash = 0;
    if (batch->first == batch->last)
        result.failed = !sim_batch_one(batch, batch->first, &result.sum, &hash);
    else
        sim_batch_run(batch, &result);
    g_autofree char *little = is_normal(&batch->options)
                                  ? sim_counters_lack(&result.sum, result.runs)
                                  : NULL;
    sim_counters_print(&result.sum, "");
    print_speed(&result.sum, "");
    if (batch->first == batch->last)
        printf("trace hash %016" G_GINT64_MODIFIER "x\n", hash);
    if (little != NULL)
        printf("%s\n", little);
    printf("%" G_GUINT64_FORMAT " of %" G_GUINT64_FORMAT " seeds failed\n", result.failed,
           result.runs);
    return result.failed > 0 || little != NULL || result.runs == 0;
}

/* ---- TAP ---- */

static gboolean run_case(const Args *args, guint number, guint64 first, guint64 last,
                         SimCounters *sum)
{
    SimBatch batch = args->batch;
    SimBatchResult result;
    batch.first = first;
    batch.last = last;
    sim_batch_run(&batch, &result);
    gboolean ok = result.failed == 0;
    g_autofree char *little = ok ? sim_counters_lack(&result.sum, result.runs) : NULL;
    if (little != NULL)
        printf("# %s\n", little);
    ok = ok && little == NULL;
    printf("%sok %u - seeds %" G_GUINT64_FORMAT "..%" G_GUINT64_FORMAT "\n", ok ? "" : "not ",
           number, first, last);
    fflush(stdout);
    for (gsize i = 0; i < sizeof *sum / sizeof(guint64); i++)
        ((guint64 *)sum)[i] += ((const guint64 *)&result.sum)[i];
    return ok;
}

static gboolean run_twice(const Args *args, guint number)
{
    SimCounters sum[2] = {0};
    guint64 hash[2] = {0, 1};
    for (guint i = 0; i < 2; i++)
        sim_batch_one(&args->batch, args->batch.first, &sum[i], &hash[i]);
    gboolean ok = hash[0] == hash[1] && memcmp(&sum[0], &sum[1], sizeof sum[0]) == 0;
    printf("%sok %u - a run is a function of its seed\n", ok ? "" : "not ", number);
    return ok;
}

static int run_tap(Args *args)
{
    SimCounters sum = {0};
    guint64 first = args->batch.first, runs = args->batch.last - first + 1;
    guint cases = (guint)MIN(args->cases, runs);
    gboolean ok = TRUE;
    args->batch.mark = "# ";
    printf("1..%u\n", cases + 1);
    for (guint i = 0; i < cases; i++)
        ok = run_case(args, i + 1, first + runs * i / cases, first + runs * (i + 1) / cases - 1,
                      &sum) &&
             ok;
    sim_counters_print(&sum, "# ");
    print_speed(&sum, "# ");
    ok = run_twice(args, cases + 1) && ok;
    return !ok;
}

/* ---- arguments ---- */

static gboolean parse_seeds(const char *text, SimBatch *batch)
{
    char *end;
    batch->first = batch->last = g_ascii_strtoull(text, &end, 10);
    if (end == text)
        return FALSE;
    if (g_str_has_prefix(end, "..")) {
        const char *second = end + 2;
        batch->last = *second == '\0' ? G_MAXUINT32 : g_ascii_strtoull(second, &end, 10);
        if (*second == '\0')
            end += 2;
    }
    return *end == '\0' && batch->last >= batch->first;
}

/* What a scenario could say, said by flags. */
static gboolean set_all(SimOptions *options, char **off, int at, const char *what)
{
    g_autofree char *unused = NULL;
    for (guint i = 0; off != NULL && off[i] != NULL; i++)
        if (!sim_scenario_set(options, &unused, "off", off[i]))
            return FALSE;
    if (what == NULL)
        return TRUE;
    g_autofree char *inject = g_strdup_printf("%s %d", what, at);
    return sim_scenario_set(options, &unused, "inject", inject);
}

static gboolean load(Args *args, GError **error)
{
    g_autofree char *bug = NULL;
    gboolean trace = args->batch.options.trace;
    if (args->replay == NULL)
        return TRUE;
    if (!sim_scenario_load(args->replay, &args->batch.options, &bug, error))
        return FALSE;
    args->batch.options.trace = trace;
    args->batch.first = args->batch.last = args->batch.options.seed;
    if (bug != NULL) {
        g_free(args->bug);
        args->bug = g_steal_pointer(&bug);
    }
    return TRUE;
}

static gboolean parse(int argc, char **argv, Args *args)
{
    g_autofree char *seeds = NULL, *seed = NULL, *what = NULL;
    g_auto(GStrv) off = NULL;
    double hours = 0, minutes = 0;
    gint64 every = 1;
    int agents = SIM_AGENTS, managers = SIM_MANAGERS, snapshots = 0, cases = 0, jobs = 1, at = 0;
    SimOptions *options = &args->batch.options;
    const char *env = g_getenv("LEASEHOLD_SIM_SEEDS");
    const GOptionEntry entries[] = {
        {"seeds", 0, 0, G_OPTION_ARG_STRING, &seeds, "Seeds (1..20); A.. has no end", "A..B"},
        {"seed", 0, 0, G_OPTION_ARG_STRING, &seed, "One seed", "N"},
        {"jobs", 'j', 0, G_OPTION_ARG_INT, &jobs, "Processes at a time (1)", "JOBS"},
        {"hours", 0, 0, G_OPTION_ARG_DOUBLE, &hours, "No run begins after so long", "H"},
        {"minutes", 0, 0, G_OPTION_ARG_DOUBLE, &minutes, "With faults, for each seed (8)", "M"},
        {"agents", 0, 0, G_OPTION_ARG_INT, &agents, "Cache nodes (5)", "N"},
        {"managers", 0, 0, G_OPTION_ARG_INT, &managers, "Managers (3)", "N"},
        {"snapshots", 0, 0, G_OPTION_ARG_INT, &snapshots, "There from the start (0)", "N"},
        {"off", 0, 0, G_OPTION_ARG_STRING_ARRAY, &off, "Switches a part off", "PART"},
        {"at", 0, 0, G_OPTION_ARG_INT, &at, "Injects into this write", "N"},
        {"do", 0, 0, G_OPTION_ARG_STRING, &what, "… crash-before, crash-after …", "WHAT"},
        {"trace", 0, 0, G_OPTION_ARG_NONE, &options->trace, "Print everything", NULL},
        {"recorded", 0, 0, G_OPTION_ARG_NONE, &options->recorded, "Judge as recorded, too", NULL},
        {"tap", 0, 0, G_OPTION_ARG_INT, &cases, "As so many test cases", "CASES"},
        {"inject", 0, 0, G_OPTION_ARG_INT64, &args->inject, "A fault at every write", "SEED"},
        {"every", 0, 0, G_OPTION_ARG_INT64, &every, "… at each K-th only", "K"},
        {"bug", 0, 0, G_OPTION_ARG_STRING, &args->bug, "With this planted bug", "NAME"},
        {"bugs", 0, 0, G_OPTION_ARG_NONE, &args->all_bugs, "Finds all planted bugs", NULL},
        {"shrink", 0, 0, G_OPTION_ARG_NONE, &args->shrink, "Shortens a failing run", NULL},
        {"to", 0, 0, G_OPTION_ARG_STRING, &args->to, "… into this file", "FILE"},
        {"replay", 0, 0, G_OPTION_ARG_STRING, &args->replay, "Runs a scenario", "FILE"},
        G_OPTION_ENTRY_NULL,
    };
    g_autoptr(GOptionContext) context = g_option_context_new("- simulates the control plane");
    g_autoptr(GError) error = NULL;
    args->inject = -1;
    g_option_context_add_main_entries(context, entries, NULL);
    if (!g_option_context_parse(context, &argc, &argv, &error)) {
        fprintf(stderr, "sim: %s\n", error->message);
        return FALSE;
    }
    const char *text = seed != NULL    ? seed
                       : env != NULL   ? env
                       : seeds != NULL ? seeds
                       : hours > 0     ? "1.."
                                       : "1..20";
    gboolean trace = options->trace, recorded = options->recorded;
    *options = sim_options_normal(1);
    options->trace = trace;
    options->recorded = recorded;
    options->agents = (guint)agents;
    options->managers = (guint)managers;
    options->snapshots = (guint)snapshots;
    options->chaos_ms = minutes > 0 ? (gint64)(minutes * 60000) : SIM_CHAOS_MS;
    if (!parse_seeds(text, &args->batch) || agents < 1 || managers < 1 || snapshots < 0 ||
        cases < 0 || hours < 0 || jobs < 1 || every < 1 || agents + managers > SIM_MAX_PROCESSES ||
        !set_all(options, off, at, what)) {
        fprintf(stderr,
                "sim: --seeds A..B; --agents and --managers from 1 to %d together; --help "
                "says the rest\n",
                SIM_MAX_PROCESSES);
        return FALSE;
    }
    args->cases = (guint)cases;
    args->every = (guint64)every;
    args->batch.jobs = (guint)jobs;
    args->batch.mark = "";
    args->batch.until_us = hours > 0 ? g_get_monotonic_time() + (gint64)(hours * 3.6e9) : 0;
    if (!load(args, &error)) {
        fprintf(stderr, "sim: %s\n", error->message);
        return FALSE;
    }
    args->batch.bug = args->bug;
    if (args->bug != NULL && !sim_bug_choose(args->bug)) {
        fprintf(stderr, "sim: no planted bug %s here (build/tests/sim/sim-bugs has them)\n",
                args->bug);
        return FALSE;
    }
    return TRUE;
}

static int run(Args *args)
{
    const SimOptions *options = &args->batch.options;
    if (args->all_bugs)
        return sim_bugs_run(args->bug, args->cases > 0);
    if (args->inject >= 0)
        return sim_inject((guint64)args->inject, args->every, args->batch.jobs, args->cases > 0);
    if (args->shrink) {
        SimOptions one = *options;
        one.seed = args->batch.first;
        g_autofree char *path = args->to != NULL
                                    ? g_strdup(args->to)
                                    : g_strdup_printf("sim-%" G_GUINT64_FORMAT ".scenario",
                                                      one.seed);
        return sim_shrink(&one, args->bug, path);
    }
    return args->cases > 0 ? run_tap(args) : run_plain(args);
}

int main(int argc, char **argv)
{
    Args args = {.cases = 0};
    setvbuf(stdout, NULL, _IOLBF, 0);
    int status = parse(argc, argv, &args) ? run(&args) : 2;
    if (args.batch.options.only != NULL)
        g_hash_table_unref(args.batch.options.only);
    g_free(args.bug);
    g_free(args.to);
    g_free(args.replay);
    return status;
}
