/*
 * sim [--seeds A..B | --seed N] [--trace] [--hours H] [--agents N] [--managers N] [--tap CASES]
 *
 * Runs one seed after the other; --hours is the simulated time with faults of each. A seed that fails
 * prints what was violated, the tail of its trace, and the command that replays it. With --tap the
 * seeds are CASES test cases, each of which must have done enough to prove something, and one more
 * runs its first seed twice and compares. LEASEHOLD_SIM_SEEDS=A..B replaces --seeds.
 */
#include "sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHAOS_MS (8 * 60 * 1000)

typedef struct {
    guint64 first, last;
    guint cases;
    gboolean options_changed;
    SimOptions sim;
} Args;

static void add_counters(SimCounters *sum, const SimCounters *more)
{
    guint64 *to = (guint64 *)sum;
    const guint64 *from = (const guint64 *)more;
    for (gsize i = 0; i < sizeof *sum / sizeof *to; i++)
        to[i] += from[i];
}

static void print_counters(const SimCounters *counters, const char *mark)
{
    static const char *const names[] = {
#define X(name, text) text,
        SIM_COUNTERS(X)
#undef X
    };
    const guint64 *values = (const guint64 *)counters;
    for (gsize i = 0; i < G_N_ELEMENTS(names); i++)
        printf("%s%s %" G_GUINT64_FORMAT "%s", i % 6 == 0 ? mark : "", names[i], values[i],
               i + 1 == G_N_ELEMENTS(names) || i % 6 == 5 ? "\n" : ", ");
}

/* What @runs runs of the normal size must at least have been through; NULL: they have. */
static char *too_little(const SimCounters *c, guint64 runs)
{
    const struct {
        const char *name;
        guint64 is, least;
    } rows[] = {
        {"crashes", c->crashes, runs},
        {"pauses beyond the lease", c->pauses_beyond_lease, runs / 2},
        {"network cuts", c->cuts, runs},
        {"compactions", c->compactions, runs},
        {"late commits", c->late_commits, runs},
        {"replies lost", c->replies_lost, runs},
        {"lease expiries", c->expiries, runs},
        {"bad values", c->bad_values, runs},
        {"commits under a fence", c->fenced_commits, runs * 100},
        {"epochs that wrote", c->epochs, runs * 5},
        {"items made live", c->live, runs * 20},
        {"evictions ordered", c->evictions, runs},
        {"items back on a returned node", c->moved_back, runs / 2},
        {"mirrors compared", c->mirror_checks, runs * 50},
        {"items live in the end", c->settled_live, runs},
    };
    for (gsize i = 0; i < G_N_ELEMENTS(rows); i++)
        if (rows[i].is < rows[i].least)
            return g_strdup_printf("too little was done: %s: %" G_GUINT64_FORMAT
                                   ", at least %" G_GUINT64_FORMAT " expected",
                                   rows[i].name, rows[i].is, rows[i].least);
    return NULL;
}

static void print_failure(const Args *args, guint64 seed, const SimResult *result, const char *mark)
{
    g_auto(GStrv) lines = g_strsplit(result->tail, "\n", -1);
    printf("%sseed %" G_GUINT64_FORMAT " failed; the end of its trace:\n", mark, seed);
    for (guint i = 0; lines[i] != NULL; i++)
        printf("%s  %s\n", mark, lines[i]);
    printf("%s%s\n%sreplay: build/tests/sim/sim --seed %" G_GUINT64_FORMAT, mark, result->violation,
           mark, seed);
    if (args->options_changed)
        printf(" --managers %u --agents %u --hours %g", args->sim.managers, args->sim.agents,
               (double)args->sim.chaos_ms / 3600000);
    printf(" --trace\n");
}

static gboolean run_seed(const Args *args, guint64 seed, SimCounters *sum, guint64 *hash,
                         const char *mark)
{
    SimOptions options = args->sim;
    SimResult result;
    options.seed = seed;
    sim_run(&options, &result);
    if (result.failed)
        print_failure(args, seed, &result, mark);
    add_counters(sum, &result.counters);
    if (hash != NULL)
        *hash = result.hash;
    g_free(result.violation);
    g_free(result.tail);
    return !result.failed;
}

static double seconds_since(gint64 start_us)
{
    return (double)(g_get_monotonic_time() - start_us) / 1e6;
}

static void print_speed(const SimCounters *sum, gint64 start_us, const char *mark)
{
    double s = seconds_since(start_us);
    printf("%s%.0f simulated s in %.2f s: %.0f × real time, %.0f steps/s\n", mark,
           (double)sum->simulated_s, s, (double)sum->simulated_s / s, (double)sum->steps / s);
}

static int run_plain(const Args *args)
{
    SimCounters sum = {0};
    gint64 start = g_get_monotonic_time();
    guint64 failed = 0, hash = 0;
    for (guint64 seed = args->first; seed <= args->last; seed++)
        failed += !run_seed(args, seed, &sum, &hash, "");
    guint64 runs = args->last - args->first + 1;
    print_counters(&sum, "");
    print_speed(&sum, start, "");
    if (runs == 1)
        printf("trace hash %016" G_GINT64_MODIFIER "x\n", hash);
    g_autofree char *little = runs < 5 ? NULL : too_little(&sum, runs);
    if (little != NULL)
        printf("%s\n", little);
    printf("%" G_GUINT64_FORMAT " of %" G_GUINT64_FORMAT " seeds failed\n", failed, runs);
    return failed > 0 || little != NULL;
}

/* ---- TAP ---- */

static gboolean run_case(const Args *args, guint number, guint64 first, guint64 last,
                         SimCounters *sum)
{
    SimCounters mine = {0};
    guint64 runs = last - first + 1;
    gboolean ok = TRUE;
    for (guint64 seed = first; seed <= last; seed++)
        ok = run_seed(args, seed, &mine, NULL, "# ") && ok;
    g_autofree char *little = ok && runs >= 5 ? too_little(&mine, runs) : NULL;
    if (little != NULL)
        printf("# %s\n", little);
    ok = ok && little == NULL;
    printf("%sok %u - seeds %" G_GUINT64_FORMAT "..%" G_GUINT64_FORMAT "\n", ok ? "" : "not ",
           number, first, last);
    fflush(stdout);
    add_counters(sum, &mine);
    return ok;
}

static gboolean run_twice(const Args *args, guint number)
{
    SimCounters sum[2] = {0};
    guint64 hash[2] = {0, 1};
    for (guint i = 0; i < 2; i++)
        run_seed(args, args->first, &sum[i], &hash[i], "# ");
    gboolean ok = hash[0] == hash[1] && memcmp(&sum[0], &sum[1], sizeof sum[0]) == 0;
    printf("%sok %u - a run is a function of its seed\n", ok ? "" : "not ", number);
    return ok;
}

static int run_tap(const Args *args)
{
    SimCounters sum = {0};
    gint64 start = g_get_monotonic_time();
    guint64 runs = args->last - args->first + 1;
    guint cases = (guint)MIN(args->cases, runs);
    gboolean ok = TRUE;
    printf("1..%u\n", cases + 1);
    for (guint i = 0; i < cases; i++)
        ok = run_case(args, i + 1, args->first + runs * i / cases,
                      args->first + runs * (i + 1) / cases - 1, &sum) &&
             ok;
    print_counters(&sum, "# ");
    print_speed(&sum, start, "# ");
    ok = run_twice(args, cases + 1) && ok;
    return !ok;
}

/* ---- arguments ---- */

static gboolean parse_seeds(const char *text, Args *args)
{
    char *end;
    args->first = args->last = g_ascii_strtoull(text, &end, 10);
    if (end == text)
        return FALSE;
    if (g_str_has_prefix(end, "..")) {
        const char *second = end + 2;
        args->last = g_ascii_strtoull(second, &end, 10);
        if (end == second)
            return FALSE;
    }
    return *end == '\0' && args->last >= args->first;
}

static gboolean parse(int argc, char **argv, Args *args)
{
    g_autofree char *seeds = NULL, *seed = NULL;
    double hours = 0;
    int agents = 5, managers = 3, cases = 0;
    const char *env = g_getenv("LEASEHOLD_SIM_SEEDS");
    const GOptionEntry entries[] = {
        {"seeds", 0, 0, G_OPTION_ARG_STRING, &seeds, "Seeds (1..20)", "A..B"},
        {"seed", 0, 0, G_OPTION_ARG_STRING, &seed, "One seed", "N"},
        {"trace", 0, 0, G_OPTION_ARG_NONE, &args->sim.trace, "Print everything", NULL},
        {"hours", 0, 0, G_OPTION_ARG_DOUBLE, &hours, "With faults, for each seed (0.133)", "H"},
        {"agents", 0, 0, G_OPTION_ARG_INT, &agents, "Cache nodes (5)", "N"},
        {"managers", 0, 0, G_OPTION_ARG_INT, &managers, "Managers (3)", "N"},
        {"tap", 0, 0, G_OPTION_ARG_INT, &cases, "As so many test cases", "CASES"},
        G_OPTION_ENTRY_NULL,
    };
    g_autoptr(GOptionContext) context = g_option_context_new("- simulates the control plane");
    g_autoptr(GError) error = NULL;
    g_option_context_add_main_entries(context, entries, NULL);
    if (!g_option_context_parse(context, &argc, &argv, &error)) {
        fprintf(stderr, "sim: %s\n", error->message);
        return FALSE;
    }
    const char *text = seed != NULL ? seed : env != NULL ? env : seeds != NULL ? seeds : "1..20";
    if (!parse_seeds(text, args) || agents < 1 || managers < 1 || cases < 0 || hours < 0 ||
        agents + managers > SIM_MAX_PROCESSES) {
        fprintf(stderr, "sim: --seeds A..B, --agents and --managers from 1 to %d together\n",
                SIM_MAX_PROCESSES);
        return FALSE;
    }
    args->cases = (guint)cases;
    args->sim.agents = (guint)agents;
    args->sim.managers = (guint)managers;
    args->sim.chaos_ms = hours > 0 ? (gint64)(hours * 3600000) : CHAOS_MS;
    args->options_changed = hours > 0 || agents != 5 || managers != 3;
    return TRUE;
}

int main(int argc, char **argv)
{
    Args args = {0};
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (!parse(argc, argv, &args))
        return 2;
    return args.cases > 0 ? run_tap(&args) : run_plain(&args);
}
