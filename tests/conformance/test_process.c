/*
 * tests/fakes/etcd_process: it starts, stops, freezes and wipes its own etcd, and leaves none
 * behind when the test that started it is killed. Without any etcd: skipped (77).
 */
#include "base/errors.h"
#include "tests/fakes/etcd_process.h"

#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define WAIT_MS 10000

static EtcdProcess *started(void)
{
    g_autoptr(GError) error = NULL;
    EtcdProcess *etcd = etcd_process_new(NULL, &error);
    if (etcd == NULL) {
        fail_msg("%s", error->message);
    }
    return etcd;
}

/* From the reply's header: {"cluster_id":"1","member_id":"2","revision":"3",…} */
static char *field(const EtcdProcess *etcd, const char *name)
{
    g_autofree char *reply = etcd_process_post(etcd, "/v3/kv/range", "{\"key\":\"YQ==\"}", NULL);
    g_autofree char *wanted = g_strdup_printf("\"%s\":\"", name);
    const char *at = reply != NULL ? strstr(reply, wanted) : NULL;
    assert_non_null(at);
    at += strlen(wanted);
    return g_strndup(at, strcspn(at, "\""));
}

static void put_a(const EtcdProcess *etcd)
{
    g_autofree char *reply = etcd_process_post(etcd, "/v3/kv/put",
                                               "{\"key\":\"YQ==\",\"value\":\"YQ==\"}", NULL);
    assert_non_null(reply);
}

static void process_stops_and_starts_again_on_its_data(void **state)
{
    EtcdProcess *etcd = started();
    pid_t pid = etcd_process_pid(etcd);
    put_a(etcd);
    g_autofree char *cluster = field(etcd, "cluster_id");
    etcd_process_stop(etcd);
    assert_int_equal(etcd_process_pid(etcd), 0);
    assert_int_equal(kill(pid, 0), -1);
    assert_true(etcd_process_restart(etcd, NULL));
    g_autofree char *revision = field(etcd, "revision");
    g_autofree char *same = field(etcd, "cluster_id");
    assert_string_equal(revision, "2");
    assert_string_equal(cluster, same);
    assert_true(g_ascii_isdigit(etcd_process_version(etcd)[0]));
    etcd_process_free(etcd);
}

static void process_restarts_empty(void **state)
{
    EtcdProcess *etcd = started();
    put_a(etcd);
    etcd_process_freeze(etcd);
    assert_true(etcd_process_restart_empty(etcd, NULL)); /* frozen or not */
    g_autofree char *revision = field(etcd, "revision");
    assert_string_equal(revision, "1");
    etcd_process_free(etcd);
}

static void process_leaves_no_files(void **state)
{
    EtcdProcess *etcd = started();
    g_autofree char *dir = g_strdup(etcd_process_dir(etcd));
    assert_true(g_file_test(dir, G_FILE_TEST_IS_DIR));
    etcd_process_free(etcd);
    assert_false(g_file_test(dir, G_FILE_TEST_EXISTS));
}

static void process_dies_with_its_parent(void **state)
{
    struct {
        pid_t pid;
        char dir[256];
    } told = {0};
    int pipe_fds[2];
    assert_int_equal(pipe(pipe_fds), 0);
    pid_t parent = fork();
    if (parent == 0) {
        EtcdProcess *etcd = etcd_process_new(NULL, NULL);
        told.pid = etcd != NULL ? etcd_process_pid(etcd) : -1;
        g_strlcpy(told.dir, etcd != NULL ? etcd_process_dir(etcd) : "", sizeof(told.dir));
        _exit(write(pipe_fds[1], &told, sizeof(told)) == sizeof(told) && pause() == 0);
    }
    assert_int_equal(read(pipe_fds[0], &told, sizeof(told)), sizeof(told));
    assert_true(told.pid > 0);
    assert_int_equal(kill(told.pid, 0), 0);
    kill(parent, SIGKILL);
    waitpid(parent, NULL, 0);
    gboolean gone = FALSE;
    for (int waited = 0; waited < WAIT_MS && !gone; waited += 10) {
        poll(NULL, 0, 10);
        gone = kill(told.pid, 0) != 0 && errno == ESRCH;
        if (!gone) {
            /* Nobody may be there to reap it: a zombie is dead. */
            g_autofree char *path = g_strdup_printf("/proc/%d/stat", (int)told.pid);
            g_autofree char *stat = NULL;
            gone = !g_file_get_contents(path, &stat, NULL, NULL) || strstr(stat, ") Z ") != NULL;
        }
    }
    assert_true(gone);
    const char *argv[] = {"rm", "-rf", "--", told.dir, NULL};
    assert_true(g_str_has_prefix(told.dir, g_get_tmp_dir()));
    g_spawn_sync(NULL, (char **)argv, NULL, G_SPAWN_SEARCH_PATH, NULL, NULL, NULL, NULL, NULL,
                 NULL);
    close(pipe_fds[0]);
    close(pipe_fds[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(process_stops_and_starts_again_on_its_data),
        cmocka_unit_test(process_restarts_empty),
        cmocka_unit_test(process_leaves_no_files),
        cmocka_unit_test(process_dies_with_its_parent),
    };
    g_autoptr(GError) error = NULL;
    EtcdProcess *etcd = etcd_process_new(NULL, &error);
    if (etcd == NULL) {
        printf("1..0 # SKIP %s\n", error->message);
        return error->code == LH_ERR_NOT_FOUND ? 77 : 1;
    }
    etcd_process_free(etcd);
    return cmocka_run_group_tests_name("etcd-process", tests, NULL, NULL);
}
