/*
 * agent/cache_hooks: --on-load and --on-evict as the cache pool runs them, with real programs.
 */
#include "cache_fixture.h"

/* links: fakes */

static const char *const log_hook[] = {
    "sh", "-c",
    "echo $LEASEHOLD_ACTION $LEASEHOLD_ITEM $LEASEHOLD_SNAPSHOT $LEASEHOLD_POOL $LEASEHOLD_NODE "
    "$(ls $LEASEHOLD_DIR | tr '\\n' ' ')$(cat | grep -o '\"action\":\"[a-z]*\"') "
    ">>$LEASEHOLD_DIR/../../../../log",
    NULL};

static void with_hooks(Fixture *f, const char *const *on_load, const char *const *on_evict)
{
    close_work(f);
    f->options.on_load = on_load;
    f->options.on_evict = on_evict;
    open_work(f);
    lh_cache_work_set_node(f->work, "n-1");
}

static char *hook_log(const Fixture *f)
{
    g_autofree char *path = path_of(f, "log");
    char *text = NULL;
    return g_file_get_contents(path, &text, NULL, NULL) ? text : g_strdup("");
}

static void hooks_are_told_what_happens(void **state)
{
    Fixture *f = *state;
    with_hooks(f, log_hook, log_hook);
    publish(f, "s", 100);
    loaded(f, "a", "s", 100);
    release(f, "a");
    expect_answer(f, "released a");
    g_autofree char *log = hook_log(f);
    assert_string_equal(log, "load a s cache n-1 d x \"action\":\"load\"\n"
                             "evict a s cache n-1 d x \"action\":\"evict\"\n");
}

static void on_load_may_say_where(void **state)
{
    Fixture *f = *state;
    static const char *const says[] = {"echo", "{\"url\":\"http://elsewhere/s\"}", NULL};
    static const char *const babbles[] = {"echo", "hello", NULL};
    with_hooks(f, says, NULL);
    publish(f, "s", 100);
    load(f, "a", "s", 100);
    expect_answer(f, "ready a http://elsewhere/s");
    with_hooks(f, babbles, NULL);
    loaded(f, "a", "s", 100);
}

static void a_failing_on_load_fails_the_item(void **state)
{
    Fixture *f = *state;
    static const char *const no[] = {"sh", "-c", "exit 7", NULL};
    with_hooks(f, no, log_hook);
    publish(f, "s", 100);
    load(f, "a", "s", 100);
    expect_failed(f, "a", "on-load: sh: exited with status 7");
    assert_int_equal(lh_cache_work_open_file(f->work, "s", "x"), -1);
    assert_warm(f, "s"); /* whole and verified: the next try copies nothing */
    g_autofree char *log = hook_log(f);
    assert_string_equal(log, ""); /* what it did not take it need not give back */
}

static void a_cancelled_on_load_is_killed_and_undone(void **state)
{
    Fixture *f = *state;
    static const char *const hangs[] = {
        "sh", "-c", "echo $$ >$LEASEHOLD_DIR/../../../../pid; exec sleep 1000", NULL};
    with_hooks(f, hangs, log_hook);
    publish(f, "s", 100);
    load(f, "a", "s", 100);
    g_autofree char *path = path_of(f, "pid");
    g_autofree char *pid = NULL;
    gint64 deadline = g_get_monotonic_time() + 20 * G_USEC_PER_SEC;
    while (g_get_monotonic_time() < deadline) {
        g_main_context_iteration(NULL, FALSE);
        g_clear_pointer(&pid, g_free);
        if (g_file_get_contents(path, &pid, NULL, NULL) && strchr(pid, '\n') != NULL)
            break;
    }
    release(f, "a");
    expect_answer(f, "released a");
    g_autofree char *log = hook_log(f);
    assert_true(g_str_has_prefix(log, "evict a s"));
    assert_false(exists(f, "data/snapshots/s"));
    while (kill((pid_t)atoi(pid), 0) == 0 && g_get_monotonic_time() < deadline)
        g_main_context_iteration(NULL, FALSE);
    assert_int_not_equal(kill((pid_t)atoi(pid), 0), 0);
}

static void a_failing_on_evict_keeps_the_data(void **state)
{
    Fixture *f = *state;
    static const char *const once[] = {
        "sh", "-c",
        "test -e $LEASEHOLD_DIR/../../../../may || { touch $LEASEHOLD_DIR/../../../../may; exit 1; }",
        NULL};
    with_hooks(f, NULL, once);
    publish(f, "s", 100);
    loaded(f, "a", "s", 100);
    release(f, "a");
    expect_answer(f, "released a on-evict: sh: exited with status 1");
    assert_true(exists(f, "data/snapshots/s"));
    release(f, "a");
    expect_answer(f, "released a");
    assert_false(exists(f, "data/snapshots/s"));
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(hooks_are_told_what_happens),       TEST(on_load_may_say_where),
        TEST(a_failing_on_load_fails_the_item),  TEST(a_cancelled_on_load_is_killed_and_undone),
        TEST(a_failing_on_evict_keeps_the_data),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
