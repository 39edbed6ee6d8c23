/* suite: processes */
/*
 * agent/program_work: what becomes of items as programs: done, failed, held, released, dropped, and begun
 * anew only when nothing of before is left.
 */
#include "agent/program_work.h"
#include "tests/unit/agent/guard_fixture.h"

typedef struct {
    LhEnv *env;
    LhProgramWork *work;
    LhAgentWork *base;
    LhProgramWorkOptions o;
    char *dir, *path;
    GString *log; /* the answers, one word each, with a space after it */
    char *message, *url;
    pid_t stopped; /* a watchdog; it must not outlive a test that fails */
} Fixture;

static void say(Fixture *f, const char *item, const char *what)
{
    g_string_append_printf(f->log, "%s:%s ", item, what);
}

static void on_progress(const char *item, gint64 bytes G_GNUC_UNUSED, gpointer data)
{
    say(data, item, "progress");
}

static void on_ready(const char *item, const char *url, gpointer data)
{
    Fixture *f = data;
    g_free(f->url);
    f->url = g_strdup(url);
    say(f, item, "ready");
}

static void on_finished(const char *item, gpointer data)
{
    say(data, item, "done");
}

static void keep_message(Fixture *f, const GError *error)
{
    g_free(f->message);
    f->message = error != NULL ? g_strdup(error->message) : NULL;
}

static void on_failed(const char *item, const GError *error, gpointer data)
{
    keep_message(data, error);
    say(data, item, "failed");
}

static void on_released(const char *item, const GError *error, gpointer data)
{
    keep_message(data, error);
    say(data, item, error != NULL ? "stuck" : "released");
}

static int setup(void **state)
{
    Fixture *f = g_new0(Fixture, 1);
    f->env = lh_env_glib_new(NULL);
    f->dir = g_dir_make_tmp("lh-programs-XXXXXX", NULL);
    f->path = g_build_filename(f->dir, "ticks", NULL);
    f->log = g_string_new(NULL);
    f->o = (LhProgramWorkOptions){.pool = "recovery",
                                  .ends = TRUE,
                                  .directory = f->dir,
                                  .hook_timeout_ms = 10000,
                                  .stop_ms = 5000};
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    Fixture *f = *state;
    if (f->stopped != 0)
        kill(f->stopped, SIGCONT);
    lh_program_work_free(f->work);
    g_autofree char *command = g_strdup_printf("rm -rf '%s'", f->dir);
    assert_int_equal(system(command), 0);
    while (g_main_context_iteration(NULL, FALSE))
        continue;
    lh_env_free(f->env);
    g_free(f->dir);
    g_free(f->path);
    g_free(f->message);
    g_free(f->url);
    g_string_free(f->log, TRUE);
    g_free(f);
    return 0;
}

#define SH(script) ((const char *const[]){"sh", "-c", script, NULL})

static void begin(Fixture *f)
{
    static const LhWorkFuncs funcs = {.progress = on_progress,
                                      .ready = on_ready,
                                      .finished = on_finished,
                                      .failed = on_failed,
                                      .released = on_released};
    f->work = lh_program_work_new(f->env, &f->o);
    f->base = lh_program_work_base(f->work);
    lh_program_work_set_node(f->work, "n-00000001");
    f->base->v->attach(f->base, &funcs, f);
    f->base->v->deadline(f->base, lh_mono_ms(f->env) + 60000);
}

static void load(Fixture *f, const char *item)
{
    static const char value[] =
        "{\"action\":\"load\",\"partition\":\"p1\",\"startOffset\":3,\"endOffset\":9}";
    g_autofree char *name = g_strconcat("recovery/n-00000001/", item, NULL);
    g_autoptr(LhObject) object = lh_object_parse(LH_KIND_ASSIGNMENT, name, value, strlen(value), 1,
                                                 1, 0);
    f->base->v->load(f->base, item, (const LhAssignment *)object);
}

static void release(Fixture *f, const char *item)
{
    f->base->v->release(f->base, item);
}

typedef struct {
    const Fixture *f;
    const char *log;
} Expected;

static gboolean log_is(gpointer data)
{
    const Expected *expected = data;
    return strcmp(expected->f->log->str, expected->log) == 0;
}

static void expect(Fixture *f, const char *log)
{
    Expected expected = {.f = f, .log = log};
    if (!guard_wait(log_is, &expected))
        fail_msg("answers are \"%s\", not \"%s\"", f->log->str, log);
}

static gboolean log_has(gpointer data)
{
    const Expected *expected = data;
    return strstr(expected->f->log->str, expected->log) != NULL;
}

static void expect_at_last(Fixture *f, const char *answer)
{
    Expected expected = {.f = f, .log = answer};
    if (!guard_wait(log_has, &expected))
        fail_msg("answers are \"%s\", without \"%s\"", f->log->str, answer);
}

static char *content(const Fixture *f, const char *name)
{
    g_autofree char *path = g_build_filename(f->dir, name, NULL);
    char *text = NULL;
    g_file_get_contents(path, &text, NULL, NULL);
    return text;
}

static void a_task_is_done_or_failed(void **state)
{
    Fixture *f = *state;
    f->o.exec = SH("printf '%s %s %s %s %s %s %s|' \"$LEASEHOLD_POOL\" \"$LEASEHOLD_NODE\" "
                   "\"$LEASEHOLD_ITEM\" \"$LEASEHOLD_ACTION\" \"$LEASEHOLD_PARTITION\" "
                   "\"$LEASEHOLD_START_OFFSET\" \"$LEASEHOLD_END_OFFSET\" > told; cat >> told; "
                   "echo 'it broke' >&2; test \"$LEASEHOLD_ITEM\" = good");
    begin(f);
    load(f, "good");
    expect(f, "good:done ");
    g_autofree char *told = content(f, "told");
    assert_non_null(strstr(told, "recovery n-00000001 good load p1 3 9|{\"action\":\"load\""));
    assert_non_null(strstr(told, "\"partition\":\"p1\""));
    load(f, "bad");
    expect(f, "good:done bad:failed ");
    assert_string_equal(f->message, "sh: exited with status 1: it broke");
    load(f, "good"); /* it may come back */
    expect(f, "good:done bad:failed good:done ");
}

static void a_program_that_is_not_there(void **state)
{
    Fixture *f = *state;
    f->o.exec = ((const char *const[]){"/nowhere/at/all", NULL});
    begin(f);
    load(f, "a");
    expect(f, "a:failed ");
    assert_non_null(strstr(f->message, "cannot be started"));
}

static void a_task_that_takes_too_long(void **state)
{
    Fixture *f = *state;
    f->o.exec = SH("sleep 100");
    f->o.exec_timeout_ms = 100;
    begin(f);
    load(f, "a");
    expect(f, "a:failed ");
    assert_non_null(strstr(f->message, "did not end within 100 ms"));
}

static void released_is_said_when_nothing_is_left(void **state)
{
    Fixture *f = *state;
    f->o.exec = SH("trap '' TERM; setsid sh -c '" TICKS "' ticks & while :; do sleep 0.01; done");
    f->o.stop_ms = 200;
    begin(f);
    load(f, "a");
    assert_true(guard_wait(ticks, f->path));
    release(f, "a");
    expect(f, "a:released ");
    gint64 now = lh_mono_ms(f->env);
    assert_true(end_of_ticks(f->path) <= now + 10);
}

static void held_programs_run_on(void **state)
{
    Fixture *f = *state;
    f->o.pool = "indexer";
    f->o.ends = FALSE;
    f->o.on_load = SH("echo load >> log; echo '{\"url\":\"http://x/\"}'");
    f->o.exec = SH("echo exec >> log; trap 'echo term >> log; exit 0' TERM; echo up > ticks; "
                   "while :; do sleep 0.01; done");
    f->o.on_evict = SH("echo evict $LEASEHOLD_ACTION >> log");
    begin(f);
    load(f, "p1");
    expect(f, "p1:ready ");
    assert_string_equal(f->url, "http://x/");
    while (access(f->path, F_OK) != 0)
        g_main_context_iteration(NULL, FALSE);
    release(f, "p1");
    expect(f, "p1:ready p1:released ");
    g_autofree char *log = content(f, "log");
    assert_string_equal(log, "load\nexec\nterm\nevict evict\n");
}

static void a_held_program_that_ends_has_failed(void **state)
{
    Fixture *f = *state;
    f->o.ends = FALSE;
    f->o.on_load = SH("true");
    f->o.exec = SH("exit 0");
    f->o.on_evict = SH("echo evict >> log");
    begin(f);
    load(f, "p1");
    expect(f, "p1:ready p1:failed ");
    assert_non_null(strstr(f->message, "ended by itself while the item was held"));
    g_autofree char *log = content(f, "log");
    assert_string_equal(log, "evict\n");
}

/* The agent, which was just hiding it, has no use for that answer, and asks for its release. */
static void released_after_it_has_ended(void **state)
{
    Fixture *f = *state;
    f->o.ends = FALSE;
    f->o.exec = SH("exit 1");
    begin(f);
    load(f, "a");
    expect(f, "a:ready a:failed ");
    release(f, "a");
    expect(f, "a:ready a:failed a:released ");
    load(f, "a");
    expect(f, "a:ready a:failed a:released a:ready a:failed ");
}

static gboolean order_seed(Fixture *f, const char *item, const char *seed, gboolean update)
{
    g_autofree char *name = g_strconcat("manager/n-00000001/", item, NULL);
    g_autofree char *value = g_strdup_printf("{\"action\":\"load\",\"seed\":%s}", seed);
    g_autoptr(LhObject) object = lh_object_parse(LH_KIND_ASSIGNMENT, name, value, strlen(value), 1,
                                                 1, 0);
    if (update)
        return f->base->v->update(f->base, item, (const LhAssignment *)object);
    f->base->v->load(f->base, item, (const LhAssignment *)object);
    return TRUE;
}

static void a_seed_is_done_when_its_program_is(void **state)
{
    Fixture *f = *state;
    f->o.pool = "manager";
    f->o.ends = FALSE;
    f->o.may_end = TRUE;
    f->o.permits_url = "http://h/v1/permits/";
    f->o.exec = SH("echo $LEASEHOLD_SEED $LEASEHOLD_PERMITS_URL > told; "
                   "test \"$LEASEHOLD_SEED\" = good");
    begin(f);
    order_seed(f, "good", "{\"url\":\"u\"}", FALSE);
    expect(f, "good:ready good:done ");
    g_autofree char *told = content(f, "told");
    assert_string_equal(told, "good http://h/v1/permits/good\n");
    order_seed(f, "bad", "{\"url\":\"u\"}", FALSE);
    expect(f, "good:ready good:done bad:ready bad:failed ");
}

static void what_may_change_of_a_seed_while_it_runs(void **state)
{
    Fixture *f = *state;
    f->o.pool = "manager";
    f->o.ends = FALSE;
    f->o.on_evict = SH("cat > told");
    f->o.on_load = SH("true");
    begin(f);
    order_seed(f, "s", "{\"url\":\"u\",\"priority\":1}", FALSE);
    expect(f, "s:ready ");
    assert_true(order_seed(f, "s",
                           "{\"state\":\"paused\",\"url\":\"u\",\"priority\":2,"
                           "\"throttle\":{\"name\":\"p\"}}",
                           TRUE));
    assert_false(order_seed(f, "s", "{\"url\":\"v\",\"priority\":1}", TRUE));
    assert_false(order_seed(f, "s", "{\"url\":\"u\",\"config\":{}}", TRUE));
    release(f, "s");
    expect(f, "s:ready s:released ");
    g_autofree char *told = content(f, "told"); /* as it was updated */
    assert_non_null(strstr(told, "\"paused\""));
}

static void an_on_load_that_fails_prepared_nothing(void **state)
{
    Fixture *f = *state;
    f->o.ends = FALSE;
    f->o.on_load = SH("echo no >&2; exit 1");
    f->o.exec = SH("echo exec >> log");
    f->o.on_evict = SH("echo evict >> log");
    begin(f);
    load(f, "p1");
    expect(f, "p1:failed ");
    assert_string_equal(f->message, "on-load: sh: exited with status 1: no");
    assert_null(content(f, "log"));
}

static void released_while_it_is_prepared(void **state)
{
    Fixture *f = *state;
    f->o.ends = FALSE;
    f->o.on_load = SH("echo up > ticks; sleep 100");
    f->o.exec = SH("echo exec >> log");
    f->o.on_evict = SH("echo evict >> log");
    begin(f);
    load(f, "p1");
    while (access(f->path, F_OK) != 0)
        g_main_context_iteration(NULL, FALSE);
    release(f, "p1");
    expect(f, "p1:released ");
    g_autofree char *log = content(f, "log");
    assert_string_equal(log, "evict\n");
}

static void an_on_evict_that_fails_is_asked_again(void **state)
{
    Fixture *f = *state;
    f->o.ends = FALSE;
    f->o.on_load = SH("setsid sh -c '" TICKS "' ticks & true");
    f->o.on_evict = SH("test -e gone || { echo busy >&2; exit 1; }");
    begin(f);
    load(f, "p1");
    expect(f, "p1:ready ");
    release(f, "p1");
    expect(f, "p1:ready p1:stuck ");
    assert_string_equal(f->message, "on-evict: sh: exited with status 1: busy");
    g_autofree char *gone = g_build_filename(f->dir, "gone", NULL);
    assert_true(g_file_set_contents(gone, "", 0, NULL));
    release(f, "p1");
    expect(f, "p1:ready p1:stuck p1:released ");
    gint64 now = lh_mono_ms(f->env);
    assert_true(end_of_ticks(f->path) <= now + 10); /* what on-load left running */
}

static void dropped_it_ends_and_says_nothing(void **state)
{
    Fixture *f = *state;
    f->o.exec = ((const char *const[]){"sh", "-c", TICKS, "ticks", NULL});
    begin(f);
    load(f, "a");
    assert_true(guard_wait(ticks, f->path));
    f->base->v->drop(f->base);
    gint64 now = lh_mono_ms(f->env);
    assert_true(end_of_ticks(f->path) <= now + 300);
    assert_string_equal(f->log->str, "");
}

/* A new registration is given what the old one worked on: on one machine, too, one at a time. */
static void the_next_waits_for_the_end_of_the_last(void **state)
{
    Fixture *f = *state;
    f->o.exec = SH("exec 9> lock; flock -n 9 || { echo x > doubled; exit 1; }; "
                   "test -e last && exit 0; echo up > ticks; sleep 100");
    begin(f);
    for (guint i = 0; i < 5; i++) {
        load(f, "a");
        while (access(f->path, F_OK) != 0)
            g_main_context_iteration(NULL, FALSE);
        assert_int_equal(unlink(f->path), 0);
        f->base->v->drop(f->base);
    }
    g_autofree char *last = g_build_filename(f->dir, "last", NULL);
    assert_true(g_file_set_contents(last, "", 0, NULL));
    load(f, "a");
    expect(f, "a:done ");
    assert_null(content(f, "doubled"));
}

/* ---- what is being killed is not gone yet ---- */

/* The watchdog of the program that has written its parent's number there; it is stopped. */
static void stop_watchdog(Fixture *f)
{
    gchar *text = NULL;
    while (access(f->path, F_OK) != 0 || (text = content(f, "ticks")) == NULL || *text == '\0') {
        g_free(g_steal_pointer(&text));
        g_main_context_iteration(NULL, FALSE);
    }
    f->stopped = (pid_t)atoi(text);
    g_free(text);
    assert_true(f->stopped > 1);
    assert_int_equal(kill(f->stopped, SIGSTOP), 0);
}

static void resume_watchdog(Fixture *f)
{
    kill(f->stopped, SIGCONT);
    f->stopped = 0;
}

/* Time enough for what must not happen. */
static void give_it_time(Fixture *f)
{
    gint64 until = lh_mono_ms(f->env) + 300;
    while (lh_mono_ms(f->env) < until) {
        g_main_context_iteration(NULL, FALSE);
        g_usleep(500);
    }
}

static void the_next_waits_while_the_last_still_lives(void **state)
{
    Fixture *f = *state;
    f->o.exec = SH("exec 9> lock; flock -n 9 || { echo x > doubled; exit 1; }; "
                   "test -e last && exit 0; echo $PPID > ticks; sleep 100");
    begin(f);
    load(f, "a");
    stop_watchdog(f);
    g_autofree char *last = g_build_filename(f->dir, "last", NULL);
    assert_true(g_file_set_contents(last, "", 0, NULL));
    f->base->v->drop(f->base);
    load(f, "a");
    give_it_time(f);
    assert_string_equal(f->log->str, "");
    resume_watchdog(f);
    expect(f, "a:done ");
    assert_null(content(f, "doubled"));
}

static void released_is_not_said_before_the_leftovers_are_gone(void **state)
{
    Fixture *f = *state;
    f->o.ends = FALSE;
    f->o.on_load = SH("setsid sleep 100 & echo $PPID > ticks");
    begin(f);
    load(f, "p1");
    expect(f, "p1:ready ");
    stop_watchdog(f);
    release(f, "p1");
    give_it_time(f);
    assert_string_equal(f->log->str, "p1:ready ");
    resume_watchdog(f);
    expect(f, "p1:ready p1:released ");
}

static void past_the_deadline_it_answers_nothing(void **state)
{
    Fixture *f = *state;
    f->o.exec = ((const char *const[]){"sh", "-c", TICKS, "ticks", NULL});
    begin(f);
    gint64 deadline = lh_mono_ms(f->env) + 800;
    f->base->v->deadline(f->base, deadline);
    load(f, "a");
    assert_true(end_of_ticks(f->path) <= deadline + 10);
    assert_string_equal(f->log->str, "");
    f->base->v->deadline(f->base, lh_mono_ms(f->env) + 60000); /* the lease lives after all */
    expect(f, "a:failed ");
    assert_non_null(strstr(f->message, "killed by signal 9"));
}

static void the_same_order_is_updated_in_place(void **state)
{
    Fixture *f = *state;
    static const char value[] =
        "{\"action\":\"load\",\"partition\":\"p1\",\"startOffset\":3,\"endOffset\":10}";
    g_autoptr(LhObject) other = lh_object_parse(LH_KIND_ASSIGNMENT, "recovery/n-00000001/a", value,
                                                strlen(value), 1, 2, 0);
    static const char same_value[] =
        "{\"action\":\"load\",\"partition\":\"p1\",\"startOffset\":3,\"endOffset\":9,\"epoch\":4}";
    g_autoptr(LhObject) same = lh_object_parse(LH_KIND_ASSIGNMENT, "recovery/n-00000001/a",
                                               same_value, strlen(same_value), 1, 2, 0);
    f->o.exec = SH("sleep 100");
    begin(f);
    load(f, "a");
    assert_true(f->base->v->update(f->base, "a", (const LhAssignment *)same));
    assert_false(f->base->v->update(f->base, "a", (const LhAssignment *)other));
}

static guint children(void)
{
    g_autofree char *path = g_strdup_printf("/proc/self/task/%d/children", (int)getpid());
    g_autofree char *text = NULL;
    guint n = 0;
    assert_true(g_file_get_contents(path, &text, NULL, NULL));
    for (const char *c = text; *c != '\0'; c++)
        n += *c == ' ';
    return n;
}

/* The loop has its turns between them, and the lease what it needs; what is not begun yet leaves nothing. */
static void many_begin_one_after_the_other(void **state)
{
    Fixture *f = *state;
    f->o.ends = FALSE;
    f->o.on_load = SH("echo x >> ticks");
    f->o.on_evict = SH("echo y >> evicted");
    begin(f);
    for (guint i = 0; i < 8; i++) {
        g_autofree char *item = g_strdup_printf("i%u", i);
        load(f, item);
    }
    assert_int_equal(children(), 0);
    while (children() == 0)
        g_main_context_iteration(NULL, TRUE);
    assert_int_equal(children(), 1);
    g_main_context_iteration(NULL, TRUE);
    assert_in_range(children(), 0, 2);
    release(f, "i7");
    expect_at_last(f, "i7:released ");
    for (guint i = 0; i < 7; i++) {
        g_autofree char *answer = g_strdup_printf("i%u:ready ", i);
        expect_at_last(f, answer);
    }
    g_autofree char *ticks = content(f, "ticks");
    assert_string_equal(ticks, "x\nx\nx\nx\nx\nx\nx\n");
    assert_null(content(f, "evicted"));
}

int main(int argc, char **argv)
{
    if (argc > 2 && strcmp(argv[1], LH_WATCHDOG_ARG) == 0)
        return lh_watchdog_main(argc - 1, argv + 1);
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(a_task_is_done_or_failed),
        TEST(a_program_that_is_not_there),
        TEST(a_task_that_takes_too_long),
        TEST(released_is_said_when_nothing_is_left),
        TEST(held_programs_run_on),
        TEST(a_held_program_that_ends_has_failed),
        TEST(released_after_it_has_ended),
        TEST(a_seed_is_done_when_its_program_is),
        TEST(what_may_change_of_a_seed_while_it_runs),
        TEST(an_on_load_that_fails_prepared_nothing),
        TEST(released_while_it_is_prepared),
        TEST(an_on_evict_that_fails_is_asked_again),
        TEST(dropped_it_ends_and_says_nothing),
        TEST(the_next_waits_for_the_end_of_the_last),
        TEST(the_next_waits_while_the_last_still_lives),
        TEST(released_is_not_said_before_the_leftovers_are_gone),
        TEST(past_the_deadline_it_answers_nothing),
        TEST(the_same_order_is_updated_in_place),
        TEST(many_begin_one_after_the_other),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
