/*
 * objectstore on a full disk: a tiny tmpfs in a mount namespace of this program's own, so that the
 * error is the kernel's. Skipped where such namespaces are not permitted.
 */
#include "base/errors.h"
#include "objectstore/objectstore.h"
#include "tests/fakes/s3_faults.h"

#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <unistd.h>

#include <cmocka.h>

/* links: fakes */

#define BYTES (1024 * 1024)

static char *dir;
static gboolean have_disk;

typedef struct {
    guint answers;
    GError *error;
} Answer;

static void on_fetch(gint64 bytes G_GNUC_UNUSED, const char *sha256 G_GNUC_UNUSED,
                     const GError *error, gpointer data)
{
    Answer *answer = data;
    answer->answers++;
    answer->error = error != NULL ? g_error_copy(error) : NULL;
}

static void expect_no_space(const LhObjectStoreOptions *options, const char *uri)
{
    g_autofree char *to = g_build_filename(dir, "disk", "x", NULL);
    LhEnv *env = lh_env_glib_new(NULL);
    LhObjectStore *store = lh_objectstore_new(env, options, NULL);
    Answer answer = {0};
    lh_store_fetch(store, uri, "x", to, NULL, on_fetch, &answer);
    gint64 deadline = g_get_monotonic_time() + 20 * G_USEC_PER_SEC;
    while (answer.answers == 0 && g_get_monotonic_time() < deadline)
        g_main_context_iteration(NULL, FALSE);
    assert_int_equal(answer.answers, 1);
    assert_true(g_error_matches(answer.error, LH_ERROR, LH_ERR_NO_SPACE));
    assert_int_not_equal(access(to, F_OK), 0);
    g_clear_error(&answer.error);
    lh_store_free(store);
    lh_env_free(env);
}

static void a_full_disk_is_told_apart(void **state)
{
    (void)state;
    if (!have_disk)
        skip();
    g_autofree char *source = g_build_filename(dir, "store", "s", NULL);
    g_autofree char *file = g_build_filename(source, "x", NULL);
    g_autofree char *root = g_strconcat("file://", dir, "/store/", NULL);
    g_autofree char *uri = g_strconcat(root, "s/", NULL);
    const char *const roots[] = {root, NULL};
    assert_int_equal(g_mkdir_with_parents(source, 0755), 0);
    g_autofree char *data = g_malloc0(BYTES);
    assert_true(g_file_set_contents(file, data, BYTES, NULL));
    expect_no_space(&(LhObjectStoreOptions){.roots = roots}, uri);
}

static void from_s3_too(void **state)
{
    (void)state;
    if (!have_disk)
        skip();
    S3Faults *server = s3_faults_new();
    g_autofree char *data = g_malloc0(BYTES);
    s3_faults_put(server, "/b/s/x", data, BYTES);
    expect_no_space(&(LhObjectStoreOptions){.endpoint = s3_faults_endpoint(server)}, "s3://b/s/");
    s3_faults_free(server);
}

/* Before any thread: a user namespace cannot be entered later. */
static gboolean mount_disk(void)
{
    g_autofree char *disk = g_build_filename(dir, "disk", NULL);
    return g_mkdir_with_parents(disk, 0755) == 0 &&
           (unshare(CLONE_NEWNS) == 0 || unshare(CLONE_NEWUSER | CLONE_NEWNS) == 0) &&
           mount("none", "/", "none", MS_REC | MS_PRIVATE, NULL) == 0 &&
           mount("tmpfs", disk, "tmpfs", 0, "size=128k") == 0;
}

int main(void)
{
    dir = g_dir_make_tmp("lh-full-XXXXXX", NULL);
    have_disk = mount_disk();
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_full_disk_is_told_apart),
                                       cmocka_unit_test(from_s3_too)};
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    g_autofree char *disk = g_build_filename(dir, "disk", NULL);
    if (have_disk)
        umount(disk);
    g_autofree char *command = g_strdup_printf("rm -rf '%s'", dir);
    if (system(command) != 0)
        failed = 1;
    g_free(dir);
    return failed;
}
