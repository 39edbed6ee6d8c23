/* suite: processes */
/*
 * agent/guard and agent/watchdog with real processes: how programs end, and that nothing of them lives past
 * the deadline, whatever becomes of the agent: killed, stopped, or merely silent.
 */
#include "agent/hooks.h"
#include "base/errors.h"
#include "tests/unit/agent/guard_fixture.h"

typedef struct {
    LhEnv *env;
    char *dir, *path;
    LhGuard *guard;
    guint started, ended, over;
    char *output;
    GError *error;
} Fixture;

static int setup(void **state)
{
    Fixture *f = g_new0(Fixture, 1);
    f->env = lh_env_glib_new(NULL);
    f->dir = g_dir_make_tmp("lh-guard-XXXXXX", NULL);
    f->path = g_build_filename(f->dir, "ticks", NULL);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    Fixture *f = *state;
    g_autofree char *command = g_strdup_printf("rm -rf '%s'", f->dir);
    assert_int_equal(system(command), 0);
    lh_env_free(f->env);
    g_free(f->dir);
    g_free(f->path);
    g_free(f->output);
    g_clear_error(&f->error);
    g_free(f);
    return 0;
}

static void on_started(gpointer data)
{
    ((Fixture *)data)->started++;
}

static void on_ended(const char *output, const GError *error, gpointer data)
{
    Fixture *f = data;
    f->ended++;
    assert_int_equal(f->over, 0);
    assert_true((output == NULL) != (error == NULL));
    f->output = g_strdup(output);
    f->error = error != NULL ? g_error_copy(error) : NULL;
}

static void on_over(gpointer data)
{
    Fixture *f = data;
    f->over++;
    f->guard = NULL;
}

static const LhGuardFuncs funcs = {.started = on_started, .ended = on_ended, .over = on_over};

static LhGuardCall call_of(const Fixture *f, const char *const *argv, gint64 live_ms)
{
    return (LhGuardCall){
        .argv = argv,
        .input = "",
        .deadline_ms = lh_mono_ms(f->env) + live_ms,
    };
}

static void start(Fixture *f, const LhGuardCall *call)
{
    f->started = f->ended = f->over = 0;
    g_clear_pointer(&f->output, g_free);
    g_clear_error(&f->error);
    f->guard = lh_guard_start(f->env, call, &funcs, f);
    assert_int_equal(f->ended, 0);
}

static gboolean is_over(gpointer data)
{
    return ((Fixture *)data)->over > 0;
}

static gboolean has_ended(gpointer data)
{
    return ((Fixture *)data)->ended > 0;
}

static gboolean has_started(gpointer data)
{
    return ((Fixture *)data)->started > 0;
}

static void wait_over(Fixture *f)
{
    assert_true(guard_wait(is_over, f));
    assert_int_equal(f->over, 1);
    assert_int_equal(f->ended, 1);
}

static void assert_error(const Fixture *f, const char *why)
{
    assert_non_null(f->error);
    if (strstr(f->error->message, why) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", f->error->message, why);
}

#define ARGV(...) ((const char *const[]){__VA_ARGS__, NULL})

static void gets_arguments_environment_and_input(void **state)
{
    Fixture *f = *state;
    LhGuardCall call = call_of(f, ARGV("sh", "-c", "pwd; printf '%s|' \"$0\" \"$X\"; cat", "a $b"),
                               10000);
    const char *const environment[] = {"X", "y z", NULL};
    g_autofree char *real = realpath(f->dir, NULL);
    g_autofree char *expected = g_strdup_printf("%s\na $b|y z|{\"in\":1}", real);
    call.environment = environment;
    call.input = "{\"in\":1}";
    call.directory = f->dir;
    call.capture = TRUE;
    start(f, &call);
    wait_over(f);
    assert_int_equal(f->started, 1);
    assert_null(f->error);
    assert_string_equal(f->output, expected);
}

static void ends_are_told_apart(void **state)
{
    Fixture *f = *state;
    LhGuardCall call = call_of(
        f, ARGV("sh", "-c", "echo one >&2; echo ' the last ' >&2; echo >&2; exit 3"), 10000);
    start(f, &call);
    wait_over(f);
    assert_error(f, "sh: exited with status 3: the last");
    call = call_of(f, ARGV("sh", "-c", "printf unfinished >&2; kill -USR1 $$"), 10000);
    start(f, &call);
    wait_over(f);
    assert_error(f, "sh: killed by signal 10: unfinished");
    call = call_of(f, ARGV("/nowhere/at/all"), 10000);
    start(f, &call);
    wait_over(f);
    assert_int_equal(f->started, 0);
    assert_error(f, "/nowhere/at/all: cannot be started: No such file");
    call = call_of(f, ARGV("sh", "-c", "yes | head -c 100000"), 10000);
    call.capture = TRUE;
    start(f, &call);
    wait_over(f);
    assert_error(f, "printed more than");
    call = call_of(f, ARGV("sleep", "100"), 10000);
    call.timeout_ms = 100;
    start(f, &call);
    wait_over(f);
    assert_error(f, "sleep: did not end within 100 ms; killed");
}

static void killed_at_the_deadline(void **state)
{
    Fixture *f = *state;
    LhGuardCall call = call_of(f, ARGV("sh", "-c", TICKS, f->path), 600);
    start(f, &call);
    wait_over(f);
    assert_error(f, "killed by signal 9");
    assert_true(last_tick_ms(f->path) <= call.deadline_ms + 10);
    assert_true(end_of_ticks(f->path) <= call.deadline_ms + 10);
}

static gboolean ticks_past(gpointer data)
{
    const GuardQuiet *quiet = data;
    return last_tick_ms(quiet->path) > quiet->last_ms;
}

static void a_deadline_that_moves(void **state)
{
    Fixture *f = *state;
    LhGuardCall call = call_of(f, ARGV("sh", "-c", TICKS, f->path), 1000);
    GuardQuiet past = {.path = f->path, .last_ms = call.deadline_ms};
    start(f, &call);
    assert_true(guard_wait(has_started, f));
    lh_guard_deadline(f->guard, call.deadline_ms + 600);
    assert_true(guard_wait(ticks_past, &past));
    wait_over(f);
    assert_true(end_of_ticks(f->path) <= call.deadline_ms + 610);
}

static void a_deadline_that_is_past(void **state)
{
    Fixture *f = *state;
    LhGuardCall call = call_of(f, ARGV("sh", "-c", TICKS, f->path), -1);
    start(f, &call);
    wait_over(f);
    assert_int_equal(f->started, 0);
    assert_non_null(f->error);
    assert_int_equal(last_tick_ms(f->path), 0);
}

/* Away from its parent, its group and its session. */
#define DAEMON "setsid sh -c '" TICKS "' \"$0\" & "

static void a_double_fork_does_not_escape(void **state)
{
    Fixture *f = *state;
    LhGuardCall call = call_of(f, ARGV("sh", "-c", "(" DAEMON "); sleep 100", f->path), 800);
    start(f, &call);
    wait_over(f);
    assert_true(last_tick_ms(f->path) != 0);
    assert_true(end_of_ticks(f->path) <= call.deadline_ms + 10);
}

static void what_it_leaves_behind_ends_with_it(void **state)
{
    Fixture *f = *state;
    LhGuardCall call = call_of(
        f, ARGV("sh", "-c", DAEMON "while [ ! -s \"$0\" ]; do sleep 0.01; done", f->path), 30000);
    start(f, &call);
    wait_over(f);
    assert_null(f->error);
    gint64 now = lh_mono_ms(f->env);
    assert_true(end_of_ticks(f->path) <= now + 10);
}

static void held_what_it_leaves_behind_lives_on(void **state)
{
    Fixture *f = *state;
    LhGuardCall call = call_of(f, ARGV("sh", "-c", DAEMON, f->path), 30000);
    GuardQuiet past = {.path = f->path};
    call.hold = TRUE;
    start(f, &call);
    assert_true(guard_wait(has_ended, f));
    assert_null(f->error);
    past.last_ms = lh_mono_ms(f->env) + 200;
    assert_true(guard_wait(ticks_past, &past));
    assert_int_equal(f->over, 0);
    lh_guard_stop(f->guard, 10000);
    wait_over(f);
    gint64 now = lh_mono_ms(f->env);
    assert_true(end_of_ticks(f->path) <= now + 10);
}

static void stopping_asks_first(void **state)
{
    Fixture *f = *state;
    LhGuardCall call = call_of(
        f,
        ARGV("sh", "-c",
             "trap 'echo asked; exit 0' TERM; echo up > \"$0\"; while :; do sleep 0.01; done",
             f->path),
        30000);
    call.capture = TRUE;
    start(f, &call);
    while (access(f->path, F_OK) != 0)
        g_main_context_iteration(NULL, FALSE);
    lh_guard_stop(f->guard, 10000);
    wait_over(f);
    assert_null(f->error);
    assert_string_equal(f->output, "asked\n");
}

static void who_does_not_listen_is_killed(void **state)
{
    Fixture *f = *state;
    LhGuardCall call = call_of(f, ARGV("sh", "-c", "trap '' TERM; " TICKS, f->path), 30000);
    start(f, &call);
    assert_true(guard_wait(ticks, f->path));
    lh_guard_stop(f->guard, 300);
    wait_over(f);
    assert_error(f, "killed by signal 9");
}

static void abandoned_it_answers_nothing(void **state)
{
    Fixture *f = *state;
    LhGuardCall call = call_of(f, ARGV("sh", "-c", TICKS, f->path), 30000);
    start(f, &call);
    assert_true(guard_wait(ticks, f->path));
    lh_guard_abandon(f->guard);
    gint64 now = lh_mono_ms(f->env);
    assert_true(end_of_ticks(f->path) <= now + 200);
    assert_int_equal(f->ended + f->over, 0);
    call = call_of(f, ARGV("/nowhere/at/all"), 30000);
    start(f, &call);
    lh_guard_abandon(f->guard);
    while (g_main_context_iteration(NULL, FALSE))
        continue;
    assert_int_equal(f->ended + f->over, 0);
}

/* ---- an agent of its own process, which is killed or stopped ---- */

G_GNUC_NORETURN static void host_main(char **argv)
{
    LhEnv *env = lh_env_glib_new(NULL);
    Fixture f = {.env = env};
    LhGuardCall call = {
        .argv = (const char *const *)(argv + 3),
        .input = "",
        .deadline_ms = g_ascii_strtoll(argv[2], NULL, 10),
    };
    f.guard = lh_guard_start(env, &call, &funcs, &f);
    for (;;)
        g_main_context_iteration(NULL, TRUE);
}

static pid_t start_host(Fixture *f, gint64 deadline_ms, const char *script)
{
    g_autofree char *deadline = g_strdup_printf("%" G_GINT64_FORMAT, deadline_ms);
    pid_t host = fork();
    assert_true(host >= 0);
    if (host == 0) {
        execl("/proc/self/exe", "test", "host", deadline, "sh", "-c", script, f->path, NULL);
        _exit(1);
    }
    assert_true(guard_wait(ticks, f->path));
    return host;
}

static void bury(pid_t host)
{
    kill(host, SIGKILL);
    assert_int_equal(waitpid(host, NULL, 0), host);
}

static void dies_with_a_killed_agent(void **state)
{
    Fixture *f = *state;
    pid_t host = start_host(f, lh_mono_ms(f->env) + 60000, "(" DAEMON "); " TICKS);
    bury(host);
    gint64 now = lh_mono_ms(f->env);
    assert_true(end_of_ticks(f->path) <= now + 1000);
}

static void a_stopped_agent_keeps_nothing_alive(void **state)
{
    Fixture *f = *state;
    gint64 deadline = lh_mono_ms(f->env) + 1500;
    pid_t host = start_host(f, deadline, "(" DAEMON "); " TICKS);
    GuardQuiet past = {.path = f->path};
    kill(host, SIGSTOP);
    past.last_ms = lh_mono_ms(f->env) + 100;
    assert_true(guard_wait(ticks_past, &past)); /* it goes on until then */
    assert_true(end_of_ticks(f->path) <= deadline + 10);
    bury(host);
}

int main(int argc, char **argv)
{
    if (argc > 2 && strcmp(argv[1], LH_WATCHDOG_ARG) == 0)
        return lh_watchdog_main(argc - 1, argv + 1);
    if (argc > 3 && strcmp(argv[1], "host") == 0)
        host_main(argv);
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(gets_arguments_environment_and_input),
        TEST(ends_are_told_apart),
        TEST(killed_at_the_deadline),
        TEST(a_deadline_that_moves),
        TEST(a_deadline_that_is_past),
        TEST(a_double_fork_does_not_escape),
        TEST(what_it_leaves_behind_ends_with_it),
        TEST(held_what_it_leaves_behind_lives_on),
        TEST(stopping_asks_first),
        TEST(who_does_not_listen_is_killed),
        TEST(abandoned_it_answers_nothing),
        TEST(dies_with_a_killed_agent),
        TEST(a_stopped_agent_keeps_nothing_alive),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
