/*
 * `leasehold dev --demo`: every snapshot becomes live, and when it ends, by whatever signal,
 * nothing of it is left.
 */
#include "harness.h"

#include <signal.h>
#include <string.h>

#define PROCESSES 6 /* dev, etcd, manager, three agents */

static gboolean says_all_live(World *world, gpointer data)
{
    Proc *dev = data;
    g_autofree char *log = proc_log(dev);
    return dev->ended || strstr(log, "live and searchable") != NULL;
}

/* The value of the line "data     DIR   (removed at the end)". */
static char *data_dir_of(Proc *dev)
{
    g_autofree char *log = proc_log(dev);
    const char *line = strstr(log, "\ndata ");
    if (line == NULL) {
        world_fail(dev->world, "dev does not say where its data is");
    }
    const char *at = strchr(line, '/');
    return g_strndup(at, strcspn(at, " \n"));
}

static Proc *start_demo(World *world)
{
    const char *const argv[] = {"leasehold", "dev", "--demo", NULL};
    Proc *dev = proc_start(world, "dev", argv);
    world_poll(world, says_all_live, dev, "all snapshots of the demonstration are live");
    assert_false(dev->ended);
    return dev;
}

static gboolean nothing_runs(World *world, gpointer data)
{
    g_autoptr(GArray) pids = world_pids(world);
    return pids->len == 0;
}

static void check_processes(World *world)
{
    g_autoptr(GArray) pids = world_pids(world);
    assert_int_equal(pids->len, PROCESSES);
}

/* The API that it prints, asked for all items. */
static void check_items(Proc *dev)
{
    g_autofree char *log = proc_log(dev);
    const char *at = strstr(log, "http://127.0.0.1:");
    assert_non_null(at);
    g_autofree char *base = g_strndup(at, strcspn(at, " \n"));
    g_autofree char *url = g_strconcat(base, "/v1/items", NULL);
    g_autoptr(Reply) items = http_send("GET", url, NULL, NULL);
    reply_must(items, 200);
    const cJSON *list = json_at(items->json, "items"), *item;
    assert_int_equal(cJSON_GetArraySize(list), 12);
    cJSON_ArrayForEach(item, list) {
        assert_string_equal(json_text(item, "state"), "live");
    }
}

/* Nothing is wrong with it, and nothing asks to be confirmed. */
static void check_brakes(Proc *dev)
{
    g_autofree char *log = proc_log(dev);
    const char *at = strstr(log, "http://127.0.0.1:");
    assert_non_null(at);
    g_autofree char *base = g_strndup(at, strcspn(at, " \n"));
    g_autofree char *url = g_strconcat(base, "/v1/brakes", NULL);
    g_autoptr(Reply) brakes = http_send("GET", url, NULL, NULL);
    reply_must(brakes, 200);
    assert_int_equal(cJSON_GetArraySize(json_at(brakes->json, "items")), 0);
}

static void ctrl_c_leaves_nothing_behind(void **state)
{
    World *world = *state;
    Proc *dev = start_demo(world);
    g_autofree char *data_dir = data_dir_of(dev);
    assert_true(g_file_test(data_dir, G_FILE_TEST_IS_DIR));
    check_items(dev);
    check_brakes(dev);
    check_processes(world);
    g_subprocess_send_signal(dev->process, SIGINT);
    assert_int_equal(proc_wait(dev), 0);
    assert_true(nothing_runs(world, NULL));
    assert_false(g_file_test(data_dir, G_FILE_TEST_EXISTS));
}

static void sigterm_is_the_same(void **state)
{
    World *world = *state;
    Proc *dev = start_demo(world);
    g_autofree char *data_dir = data_dir_of(dev);
    assert_int_equal(proc_stop(dev), 0);
    assert_true(nothing_runs(world, NULL));
    assert_false(g_file_test(data_dir, G_FILE_TEST_EXISTS));
}

/* Its data stays, it could not remove it; no process does. */
static void kill_9_leaves_no_process(void **state)
{
    World *world = *state;
    Proc *dev = start_demo(world);
    g_autofree char *data_dir = data_dir_of(dev);
    check_processes(world);
    proc_kill(dev);
    world_poll(world, nothing_runs, NULL, "no process of dev is left");
    g_autoptr(Run) removed = run(world, "rm", "-r", data_dir, NULL);
    assert_int_equal(removed->code, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(ctrl_c_leaves_nothing_behind, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(sigterm_is_the_same, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(kill_9_leaves_no_process, world_setup, world_teardown),
    };
    return cmocka_run_group_tests_name("integration-dev", tests, NULL, NULL);
}
