/*
 * agent/hooks: real programs: what they are given, how they end, and that nothing of them stays.
 */
#include "agent/hooks.h"
#include "base/errors.h"

#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

typedef struct {
    LhEnv *env;
    LhHooks *hooks;
    char *dir;
    guint answers;
    char *output;
    GError *error;
} Fixture;

static int setup(void **state)
{
    Fixture *f = g_new0(Fixture, 1);
    f->env = lh_env_glib_new(NULL);
    f->hooks = lh_hooks_new(f->env);
    f->dir = g_dir_make_tmp("lh-hooks-XXXXXX", NULL);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    Fixture *f = *state;
    lh_hooks_free(f->hooks);
    lh_env_free(f->env);
    g_autofree char *command = g_strdup_printf("rm -rf '%s'", f->dir);
    assert_int_equal(system(command), 0);
    g_free(f->dir);
    g_free(f->output);
    g_clear_error(&f->error);
    g_free(f);
    return 0;
}

static void on_done(const char *output, const GError *error, gpointer data)
{
    Fixture *f = data;
    f->answers++;
    assert_true((output == NULL) != (error == NULL));
    f->output = g_strdup(output);
    f->error = error != NULL ? g_error_copy(error) : NULL;
}

static LhHookRun start(Fixture *f, const char *command, const char *input, gint64 timeout_ms)
{
    g_auto(GStrv) argv = lh_hook_split(command, NULL);
    assert_non_null(argv);
    const char *const environment[] = {"LEASEHOLD_ITEM", "a b", "LEASEHOLD_DIR", f->dir, NULL};
    const LhHookCall call = {
        .argv = (const char *const *)argv,
        .environment = environment,
        .input = input,
        .timeout_ms = timeout_ms,
    };
    f->answers = 0;
    g_clear_pointer(&f->output, g_free);
    g_clear_error(&f->error);
    LhHookRun run = lh_hooks_run(f->hooks, &call, on_done, f);
    assert_true(run != 0);
    assert_int_equal(f->answers, 0);
    return run;
}

static gboolean wait_for(gboolean (*done)(Fixture *f), Fixture *f)
{
    gint64 deadline = g_get_monotonic_time() + 20 * G_USEC_PER_SEC;
    while (!done(f) && g_get_monotonic_time() < deadline) {
        g_main_context_iteration(NULL, FALSE);
        g_usleep(500);
    }
    return done(f);
}

static gboolean answered(Fixture *f)
{
    return f->answers > 0;
}

static void run(Fixture *f, const char *command, const char *input)
{
    start(f, command, input, 15000);
    assert_true(wait_for(answered, f));
    assert_int_equal(f->answers, 1);
}

static void assert_failed(const Fixture *f, const char *why)
{
    assert_non_null(f->error);
    if (strstr(f->error->message, why) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", f->error->message, why);
}

static void gets_input_and_environment(void **state)
{
    Fixture *f = *state;
    run(f, "sh -c 'printf \"%s|\" \"$LEASEHOLD_ITEM\"; cat'", "{\"action\":\"load\"}");
    assert_string_equal(f->output, "a b|{\"action\":\"load\"}");
    g_autofree char *big = g_strnfill(60 * 1024, 'x');
    run(f, "wc -c", big);
    assert_int_equal(atoi(f->output), 60 * 1024);
    run(f, "true", big); /* one that does not read it */
    assert_null(f->error);
}

static void no_shell(void **state)
{
    Fixture *f = *state;
    run(f, "echo $HOME '*' ; touch x", "");
    assert_string_equal(f->output, "$HOME * ; touch x\n");
}

static void says_how_it_failed(void **state)
{
    Fixture *f = *state;
    run(f, "sh -c 'exit 3'", "");
    assert_failed(f, "exited with status 3");
    run(f, "sh -c 'kill -TERM $$'", "");
    assert_failed(f, "killed by signal 15");
    run(f, "/does/not/exist", "");
    assert_failed(f, "cannot be started");
    run(f, "/etc/passwd", "");
    assert_failed(f, "cannot be started");
}

/* GLib reaps on a thread of its own: the child may be gone before anybody has asked for its pid. */
static void one_that_ends_at_once(void **state)
{
    Fixture *f = *state;
    for (guint i = 0; i < 200; i++) {
        run(f, "true", "");
        assert_null(f->error);
    }
    for (guint i = 0; i < 50; i++) {
        LhHookRun hook = start(f, "true", "", 15000);
        lh_hooks_cancel(f->hooks, &hook);
    }
}

static gint64 pid_in(const Fixture *f, const char *name)
{
    g_autofree char *path = g_build_filename(f->dir, name, NULL);
    g_autofree char *text = NULL;
    return g_file_get_contents(path, &text, NULL, NULL) ? g_ascii_strtoll(text, NULL, 10) : 0;
}

static gboolean both_started(Fixture *f)
{
    return pid_in(f, "parent") > 0 && pid_in(f, "child") > 0;
}

static gboolean gone(gint64 pid)
{
    if (kill((pid_t)pid, 0) != 0)
        return errno == ESRCH;
    /* A zombie that nobody has waited for counts as gone. */
    g_autofree char *path = g_strdup_printf("/proc/%" G_GINT64_FORMAT "/stat", pid);
    g_autofree char *text = NULL;
    if (!g_file_get_contents(path, &text, NULL, NULL))
        return TRUE;
    const char *end = strrchr(text, ')');
    return end != NULL && end[2] == 'Z';
}

static gboolean both_gone(Fixture *f)
{
    return gone(pid_in(f, "parent")) && gone(pid_in(f, "child"));
}

#define FAMILY                                                               \
    "sh -c 'sh -c \"echo \\$\\$ >$LEASEHOLD_DIR/child; exec sleep 1000\" & " \
    "echo $$ >$LEASEHOLD_DIR/parent; wait'"

static void the_whole_group_is_killed_at_the_timeout(void **state)
{
    Fixture *f = *state;
    start(f, FAMILY, "", 1000);
    assert_true(wait_for(both_started, f));
    assert_true(wait_for(answered, f));
    assert_failed(f, "did not end within 1000 ms");
    assert_true(wait_for(both_gone, f));
}

static void the_whole_group_is_killed_when_cancelled(void **state)
{
    Fixture *f = *state;
    LhHookRun hook = start(f, FAMILY, "", 100000);
    assert_true(wait_for(both_started, f));
    lh_hooks_cancel(f->hooks, &hook);
    assert_int_equal(hook, 0);
    assert_true(wait_for(both_gone, f));
    assert_int_equal(f->answers, 0);
    lh_hooks_cancel(f->hooks, &hook);
}

static void the_whole_group_is_killed_when_freed(void **state)
{
    Fixture *f = *state;
    start(f, FAMILY, "", 100000);
    assert_true(wait_for(both_started, f));
    lh_hooks_free(f->hooks);
    f->hooks = NULL;
    assert_true(wait_for(both_gone, f));
    assert_int_equal(f->answers, 0);
}

static void one_that_talks_too_much_is_killed(void **state)
{
    Fixture *f = *state;
    run(f, "yes", "");
    assert_failed(f, "printed more than");
}

static void a_child_in_the_background_does_not_hold_it_up(void **state)
{
    Fixture *f = *state;
    gint64 before = g_get_monotonic_time();
    run(f, "sh -c 'sleep 30 & echo $! >$LEASEHOLD_DIR/child; echo done'", "");
    assert_string_equal(f->output, "done\n");
    assert_true(g_get_monotonic_time() - before < 10 * G_USEC_PER_SEC);
    kill((pid_t)pid_in(f, "child"), SIGKILL);
}

static void descriptors_are_not_inherited(void **state)
{
    Fixture *f = *state;
    run(f, "sh -c 'ls /proc/self/fd | wc -l'", "");
    assert_true(atoi(f->output) <= 4); /* 0, 1, 2 and ls's own */
}

static void commands_are_split_once(void **state)
{
    (void)state;
    g_autoptr(GError) error = NULL;
    assert_null(lh_hook_split("a 'b", &error));
    assert_true(g_error_matches(error, LH_ERROR, LH_ERR_INVALID));
    assert_string_equal(error->message, "\"a 'b\": a quote or a backslash at its end is left open");
    g_clear_error(&error);
    assert_null(lh_hook_split("a\nb\xff '", &error));
    assert_string_equal(error->message,
                        "\"a\\nb\xef\xbf\xbd '\": a quote or a backslash at its end is left open");
    assert_null(lh_hook_split("", NULL));
    assert_null(lh_hook_split("   ", NULL));
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(gets_input_and_environment),
        TEST(no_shell),
        TEST(says_how_it_failed),
        TEST(one_that_ends_at_once),
        TEST(the_whole_group_is_killed_at_the_timeout),
        TEST(the_whole_group_is_killed_when_cancelled),
        TEST(the_whole_group_is_killed_when_freed),
        TEST(one_that_talks_too_much_is_killed),
        TEST(a_child_in_the_background_does_not_hold_it_up),
        TEST(descriptors_are_not_inherited),
        TEST(commands_are_split_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
