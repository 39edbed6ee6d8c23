/*
 * `leasehold agent`: bad usage is one line and the right exit code, before anything is touched.
 */
#include "agent/agent_main.h"

#include <fcntl.h>
#include <glib.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include <cmocka.h>

static char *dir;

/* Runs it with standard error in a file; returns the exit code, and what it said. */
static int run(const char *arguments, char **said)
{
    g_auto(GStrv) argv = NULL;
    int argc = 0;
    g_autofree char *line = g_strconcat("agent ", arguments, NULL);
    assert_true(g_shell_parse_argv(line, &argc, &argv, NULL));
    g_autofree char *path = g_build_filename(dir, "stderr", NULL);
    fflush(stderr);
    int saved = dup(2);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    dup2(fd, 2);
    close(fd);
    int code = lh_agent_main(argc, argv);
    fflush(stderr);
    dup2(saved, 2);
    close(saved);
    assert_true(g_file_get_contents(path, said, NULL, NULL));
    return code;
}

static void refused(int code, const char *arguments, const char *expected)
{
    g_autofree char *said = NULL;
    int got = run(arguments, &said);
    if (got != code || !g_str_has_prefix(said, "leasehold: ") || strstr(said, expected) == NULL ||
        strchr(said, '\n') != said + strlen(said) - 1)
        fail_msg("agent %s: exit code %d, said \"%s\"", arguments, got, said);
}

#define FINE "--pool cache --name n --data-dir /dev/null/x "

static void bad_usage(void **state)
{
    (void)state;
    refused(2, "", "--pool: is needed");
    refused(2, "--pool nope", "\"nope\" is not a pool");
    refused(2, "--pool recovery --name a", "--exec: is needed in the pool recovery");
    refused(2, "--pool worker --name a --exec x --on-load y",
            "--on-load: has no use in the pool worker");
    refused(2, "--pool indexer --name a --on-evict y", "--exec: or --on-load is needed");
    refused(2, "--pool recovery --name a --exec \"'\"", "--exec: ");
    refused(2, "--pool cache", "--name: is needed");
    refused(2, "--pool cache --name a/b", "\"a/b\"");
    refused(2, "--pool cache --name a", "--data-dir: is needed");
    refused(2, FINE "--set A", "--set: must be");
    refused(2, FINE "--zone ''", "--zone: ");
    refused(2, FINE "--lease-ttl 10ms", "--lease-ttl: must be from 1s");
    refused(2, FINE "--capacity 0", "--capacity: must be more than 0");
    refused(2, FINE "--hook-timeout 0s", "--hook-timeout: must be more than 0");
    refused(2, FINE "--etcd-endpoints ,", "--etcd-endpoints: names no endpoint");
    refused(2, FINE "--etcd-endpoints :::", "--etcd-endpoints: ");
    refused(2, FINE "--log-level loud", "--log-level: ");
    refused(2, FINE "--exec x", "--exec: has no use in the pool cache");
    refused(2, FINE "--etcd-cert x", "--etcd-cert: needs etcd.key too");
    refused(2, FINE "--on-load \"'\"", "--on-load: ");
    refused(2, FINE "--on-evict ''", "--on-evict: ");
    refused(2, FINE "--listen 0.0.0.0:0", "listen ");
    refused(2, FINE "--listen nonsense", "listen ");
    refused(2, FINE "--advertise-url ftp://x", "--advertise-url: must be");
    refused(2, FINE "--object-store-roots /srv",
            "--object-store-roots: /srv: must be file:///dir/ or s3://bucket/key/");
    refused(2, FINE "surplus", "unexpected \"surplus\"");
}

static void a_disk_that_is_none(void **state)
{
    (void)state;
    refused(1, FINE, "--data-dir: ");
}

static void a_data_directory_in_use(void **state)
{
    (void)state;
    g_autofree char *lock = g_build_filename(dir, "lock", NULL);
    int fd = open(lock, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_int_equal(flock(fd, LOCK_EX | LOCK_NB), 0);
    g_autofree char *arguments = g_strdup_printf("--pool cache --name n --data-dir '%s'", dir);
    refused(4, arguments, "another agent uses this data directory");
    close(fd);
}

int main(void)
{
    dir = g_dir_make_tmp("lh-main-XXXXXX", NULL);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bad_usage),
        cmocka_unit_test(a_disk_that_is_none),
        cmocka_unit_test(a_data_directory_in_use),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    g_autofree char *command = g_strdup_printf("rm -rf '%s'", dir);
    if (system(command) != 0)
        failed = 1;
    g_free(dir);
    return failed;
}
