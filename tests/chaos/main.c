/*
 * One chaos run (chaos.h): arguments, the phases, the table at the end. As a program for people, and as a test
 * of CI's size.
 *
 *   begin → load and faults for so long → faults end → everything comes to rest → history is checked
 */
#include "chaos.h"
#include "tests/integration/lines.h"

#include <glib-unix.h>
#include <glib/gstdio.h>
#include <signal.h>
#include <string.h>

#define CI_MS       72000
#define QUOTA       "--quota-backend-bytes=33554432"
#define INTERRUPTED "interrupted"
#define HEAL_MS     120000
#define LONGER_MS   90000

static Chaos chaos;

gint64 chaos_ms(const Chaos *c)
{
    return (g_get_monotonic_time() - c->began_us) / 1000;
}

void chaos_say(Chaos *c, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    g_autofree char *text = g_strdup_vprintf(format, args);
    va_end(args);
    g_autofree char *line = g_strdup_printf("%7.1f s  %s\n", (double)chaos_ms(c) / 1000, text);
    g_string_append(c->log, line);
    if (c->options.verbose) {
        g_printerr("# %s", line);
    }
}

void chaos_wrong(Chaos *c, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    g_autofree char *text = g_strdup_vprintf(format, args);
    va_end(args);
    chaos_say(c, "WRONG: %s", text);
    g_string_append_printf(c->wrong, "%s%s", c->wrong->len > 0 ? "\n" : "", text);
}

/* ---- beginning and end ---- */

static int begin(void **state)
{
    static const char *const args[] = {QUOTA, NULL};
    g_autoptr(GError) error = NULL;
    chaos.log = g_string_new(NULL);
    chaos.wrong = g_string_new(NULL);
    chaos.rand = g_rand_new_with_seed((guint32)chaos.options.seed);
    chaos.frozen_member = -1;
    chaos.began_us = g_get_monotonic_time();
    chaos.s3 = s3_process_new(&error);
    if (chaos.s3 == NULL) {
        fail_msg("%s", error->message);
    }
    s3_process_make_bucket(chaos.s3, CHAOS_BUCKET);
    chaos.net = net_new();
    chaos.world = world_new_with(
        &(WorldOptions){.members = CHAOS_MEMBERS, .args = args, .relayed = TRUE});
    chaos.access_file = s3_secret_file(chaos.world, "access", s3_process_access_key(chaos.s3));
    chaos.secret_file = s3_secret_file(chaos.world, "secret", s3_process_secret_key(chaos.s3));
    g_autofree char *history = g_build_filename(chaos.world->dir, "history", NULL);
    chaos.recorder = recorder_start(chaos.world->env, chaos.world->client, PREFIX, history, &error);
    g_assert_no_error(error);
    chaos.load = load_new(&chaos);
    chaos.reader = reader_new(&chaos);
    chaos.schedule = schedule_new(&chaos);
    return 0;
}

/* Logs, history and what was done, into a directory that stays. */
static void keep(void)
{
    g_autofree char *dir = g_build_filename(g_get_tmp_dir(), "leasehold-chaos-XXXXXX", NULL);
    g_assert(g_mkdtemp(dir) != NULL);
    g_autofree char *log = g_build_filename(dir, "faults.log", NULL);
    g_autofree char *quoted = g_shell_quote(chaos.world->dir);
    g_autofree char *to = g_shell_quote(dir);
    g_autoptr(GString) command = g_string_new(NULL);
    g_string_printf(command, "cp -- %s/*.log %s/history %s", quoted, quoted, to);
    for (guint i = 0; i < CHAOS_MEMBERS; i++) {
        const char *etcd = etcd_process_dir(etcd_cluster_member(chaos.world->cluster, i));
        g_string_append_printf(command, "; cp -- %s/log %s/etcd-%u.log", etcd, to, i);
    }
    const char *argv[] = {"sh", "-c", command->str, NULL};
    g_file_set_contents(log, chaos.log->str, -1, NULL);
    g_spawn_sync(NULL, (char **)argv, NULL, G_SPAWN_SEARCH_PATH, NULL, NULL, NULL, NULL, NULL,
                 NULL);
    g_print("# logs, history and faults.log: %s (check-history %s/history)\n", dir, dir);
}

static gboolean passed;

static int end(void **state)
{
    if (chaos.world == NULL) {
        s3_process_free(chaos.s3);
        return -1;
    }
    if (!passed || chaos.options.keep) {
        keep();
    }
    schedule_free(chaos.schedule);
    reader_halt(chaos.reader);
    load_halt(chaos.load);
    recorder_free(chaos.recorder);
    /* Those who stand still, or whom nobody answers, could not end. */
    for (guint i = 0; i < CHAOS_MACHINES; i++) {
        Machine *machine = &chaos.machines[i];
        if (!passed && machine->proc != NULL) {
            machine_kill(machine);
        }
    }
    g_autofree char *wrong = world_free(chaos.world);
    reader_free(chaos.reader);
    load_free(chaos.load);
    machines_free(&chaos);
    net_free(chaos.net);
    s3_process_free(chaos.s3);
    g_free(chaos.access_file);
    g_free(chaos.secret_file);
    g_string_free(chaos.log, TRUE);
    g_string_free(chaos.wrong, TRUE);
    g_rand_free(chaos.rand);
    if (wrong != NULL) {
        g_printerr("# at the end: %s\n", wrong);
    }
    return wrong == NULL ? 0 : -1;
}

/* ---- the table ---- */

static void print_counters(gboolean whole, GString *lack)
{
    const struct {
        const char *text;
        guint64 n, least;
    } rows[] = {
#define X(field, text, least) {text, chaos.counters.field, least},
        CHAOS_COUNTERS(X)
#undef X
    };
    for (guint i = 0; i < G_N_ELEMENTS(rows); i++) {
        g_print("# %-18s %8" G_GUINT64_FORMAT "  %s\n", "", rows[i].n, rows[i].text);
        if (whole && rows[i].n < rows[i].least) {
            g_string_append_printf(
                lack, "%s: %" G_GUINT64_FORMAT ", which should be %" G_GUINT64_FORMAT "; ",
                rows[i].text, rows[i].n, rows[i].least);
        }
    }
}

/* A run with some faults only, or a short one, proves what it proves. */
static gboolean is_whole(void)
{
    return chaos.options.only == NULL && chaos.options.chaos_ms >= CI_MS;
}

static char *print_table(void)
{
    gboolean whole = is_whole();
    g_autoptr(GString) lack = g_string_new(NULL);
    g_print("# %-18s %8s\n", "fault", "how often");
    schedule_print(chaos.schedule, lack);
    g_print("# %-18s %8s\n", "work", "how much");
    print_counters(whole, lack);
    return whole && lack->len > 0 ? g_strdup(lack->str) : NULL;
}

/* ---- the run ---- */

/* A machine that is busy gets more time for the rest of the round. */
static gboolean time_is_up(World *world, gpointer data)
{
    return chaos.wrong->len > 0 || (chaos_ms(&chaos) >= *(gint64 *)data &&
                                    (!is_whole() || schedule_is_enough(chaos.schedule)));
}

/* Once: the run has failed, and removes what it has made. Twice: it ends at once. */
static gboolean on_signal(gpointer data)
{
    if (strstr(chaos.wrong->str, INTERRUPTED) != NULL) {
        exit(1);
    }
    chaos_wrong(&chaos, INTERRUPTED);
    return G_SOURCE_CONTINUE;
}

static void fail_if_wrong(void)
{
    if (chaos.wrong->len > 0) {
        print_table();
        world_fail(chaos.world, "%s", chaos.wrong->str);
    }
}

static void survives_chaos(void **state)
{
    guint signals[] = {g_unix_signal_add(SIGINT, on_signal, NULL),
                       g_unix_signal_add(SIGTERM, on_signal, NULL)};
    counts_begin(&chaos);
    machines_start(&chaos);
    load_begin(chaos.load);
    load_start(chaos.load);
    reader_start(chaos.reader);
    schedule_start(chaos.schedule);
    chaos_say(&chaos, "faults begin");
    gint64 until_ms = chaos_ms(&chaos) + chaos.options.chaos_ms;
    world_until(chaos.world, time_is_up, &until_ms, chaos.options.chaos_ms + LONGER_MS);
    if (strstr(chaos.wrong->str, INTERRUPTED) != NULL) {
        fail_if_wrong();
    }
    schedule_stop(chaos.schedule);
    if (!world_until(chaos.world, schedule_is_calm, chaos.schedule, HEAL_MS)) {
        world_fail(chaos.world, "%s could not be ended", schedule_going(chaos.schedule));
    }
    chaos_say(&chaos, "faults have ended");
    load_stop(chaos.load);
    reader_stop(chaos.reader);
    if (chaos.wrong->len == 0) {
        judge_rest(&chaos);
    }
    judge_history(&chaos);
    crawl_judge(&chaos);
    counts_end(&chaos);
    fail_if_wrong();
    g_autofree char *lack = print_table();
    if (lack != NULL) {
        world_fail(chaos.world, "it was too little to prove anything: %s", lack);
    }
    passed = TRUE;
    g_source_remove(signals[0]);
    g_source_remove(signals[1]);
}

/* ---- arguments ---- */

static gboolean read_options(int argc, char **argv)
{
    ChaosOptions *options = &chaos.options;
    g_autoptr(GError) error = NULL;
    gint64 seed = 1;
    double minutes = 0, hours = 0;
    gboolean list = FALSE;
    gint bugs = 0;
    g_autofree char *only = NULL;
    char *bug = NULL;
    const GOptionEntry entries[] = {
        {"seed", 0, 0, G_OPTION_ARG_INT64, &seed, "what decides the schedule of faults (1)", "N"},
        {"minutes", 0, 0, G_OPTION_ARG_DOUBLE, &minutes, "how long faults come (1.2)", "M"},
        {"hours", 0, 0, G_OPTION_ARG_DOUBLE, &hours, "the same", "H"},
        {"only", 0, 0, G_OPTION_ARG_STRING, &only, "only these faults", "FAULT,…"},
        {"keep", 0, 0, G_OPTION_ARG_NONE, &options->keep, "logs and history, after a success too",
         NULL},
        {"verbose", 'v', 0, G_OPTION_ARG_NONE, &options->verbose, "say what happens", NULL},
        {"list", 0, 0, G_OPTION_ARG_NONE, &list, "the faults, and end", NULL},
        {"bug", 0, 0, G_OPTION_ARG_STRING, &bug, "run leasehold-bugs with this planted bug", "BUG"},
        {"unguarded", 0, 0, G_OPTION_ARG_NONE, &options->unguarded,
         "managers that nothing but the fence stops (leasehold-bugs)", NULL},
        {"bugs", 0, 0, G_OPTION_ARG_INT, &bugs, "run with the first N planted bugs, and find each",
         "N"},
        {NULL, 0, 0, G_OPTION_ARG_NONE, NULL, NULL, NULL},
    };
    g_autoptr(GOptionContext) context = g_option_context_new(
        "- break a real cluster, and judge it");
    g_option_context_add_main_entries(context, entries, NULL);
    if (!g_option_context_parse(context, &argc, &argv, &error)) {
        g_printerr("chaos: %s\n", error->message);
        return FALSE;
    }
    if (list) {
        schedule_list();
        exit(0);
    }
    if (bugs > 0) {
        exit(bugs_run("/proc/self/exe", (guint)bugs));
    }
    options->seed = (guint64)seed;
    options->bug = bug;
    options->chaos_ms = minutes > 0 || hours > 0 ? (gint64)(minutes * 60000 + hours * 3600000)
                                                 : CI_MS;
    options->only = only != NULL ? g_strsplit(only, ",", -1) : NULL;
    const char *unknown = schedule_unknown(options->only);
    if (unknown != NULL || argc > 1) {
        g_printerr("chaos: %s: %s\n", unknown != NULL ? unknown : argv[1],
                   unknown != NULL ? "no such fault; see --list" : "not understood");
        return FALSE;
    }
    return TRUE;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test_setup_teardown(survives_chaos, begin, end)};
    char *why = NULL;
    if (argc == 3 && strcmp(argv[1], "--lines") == 0) {
        return lines_work(argv[2]);
    }
    if (!read_options(argc, argv)) {
        return 2;
    }
    g_setenv("LEASEHOLD_PLANTED_BUG", chaos.options.bug != NULL ? chaos.options.bug : "none", TRUE);
    if (!islands_begin(CHAOS_ISLANDS, &why)) {
        chaos.no_islands = why;
    }
    int failed = cmocka_run_group_tests_name("chaos", tests, NULL, NULL);
    islands_end();
    g_strfreev(chaos.options.only);
    return failed != 0;
}
