/*
 * objectstore: what is listed, what is copied, and above all what is refused. Real files in a
 * temporary directory; every wait has a deadline.
 */
#include "base/errors.h"
#include "objectstore/beneath.h"
#include "objectstore/objectstore.h"

#include <errno.h>
#include <fcntl.h>
#include <glib/gstdio.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

/* suite: threads */

#define SHA_OF_HELLO "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03"

typedef struct {
    char *dir; /* …/store is the root, …/out where copies go */
    LhEnv *env;
    LhObjectStore *store;
    /* The last answer. */
    guint answers;
    GString *names; /* "a:6 b/c:0" */
    GError *error;
    gint64 bytes;
    char *sha256;
    guint progress;
    gint64 progress_bytes;
} Fixture;

static void write_file(const Fixture *f, const char *name, const char *data, gssize n)
{
    g_autofree char *path = g_build_filename(f->dir, name, NULL);
    g_autofree char *parent = g_path_get_dirname(path);
    assert_int_equal(g_mkdir_with_parents(parent, 0755), 0);
    assert_true(g_file_set_contents(path, data, n, NULL));
}

static char *uri_of(const Fixture *f, const char *rest)
{
    return g_strconcat("file://", f->dir, "/store/", rest, NULL);
}

static int setup(void **state)
{
    Fixture *f = g_new0(Fixture, 1);
    f->dir = g_dir_make_tmp("lh-store-XXXXXX", NULL);
    f->env = lh_env_glib_new(NULL);
    f->names = g_string_new(NULL);
    write_file(f, "store/s/a", "hello\n", -1);
    write_file(f, "store/s/b/c", "", 0);
    write_file(f, "out/keep", "", 0);
    g_autofree char *root = uri_of(f, "");
    const char *const roots[] = {root, NULL};
    f->store = lh_objectstore_new(f->env, &(LhObjectStoreOptions){.roots = roots}, NULL);
    assert_non_null(f->store);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    Fixture *f = *state;
    lh_store_free(f->store);
    while (g_main_context_iteration(NULL, FALSE))
        ;
    g_autofree char *command = g_strdup_printf("rm -rf '%s'", f->dir);
    assert_int_equal(system(command), 0);
    lh_env_free(f->env);
    g_string_free(f->names, TRUE);
    g_clear_error(&f->error);
    g_free(f->sha256);
    g_free(f->dir);
    g_free(f);
    return 0;
}

static void forget(Fixture *f)
{
    f->answers = 0;
    g_clear_error(&f->error);
    g_string_truncate(f->names, 0);
    g_clear_pointer(&f->sha256, g_free);
}

static void on_list(const LhStoreEntry *entries, gsize n, const GError *error, gpointer data)
{
    Fixture *f = data;
    f->answers++;
    f->error = error != NULL ? g_error_copy(error) : NULL;
    for (gsize i = 0; i < n; i++)
        g_string_append_printf(f->names, "%s%s:%" G_GINT64_FORMAT, i > 0 ? " " : "",
                               entries[i].name, entries[i].size);
}

static void on_fetch(gint64 bytes, const char *sha256, const GError *error, gpointer data)
{
    Fixture *f = data;
    f->answers++;
    f->error = error != NULL ? g_error_copy(error) : NULL;
    f->bytes = bytes;
    f->sha256 = g_strdup(sha256);
}

static void on_progress(gint64 bytes, gpointer data)
{
    Fixture *f = data;
    assert_true(bytes >= f->progress_bytes);
    f->progress++;
    f->progress_bytes = bytes;
}

static void await(Fixture *f)
{
    gint64 deadline = g_get_monotonic_time() + 20 * G_USEC_PER_SEC;
    while (f->answers == 0 && g_get_monotonic_time() < deadline)
        g_main_context_iteration(NULL, FALSE);
    assert_int_equal(f->answers, 1);
}

static void list(Fixture *f, const char *uri)
{
    forget(f);
    assert_true(lh_store_list(f->store, uri, on_list, f) != 0);
    assert_int_equal(f->answers, 0); /* never inside the call */
    await(f);
}

static void fetch(Fixture *f, const char *uri, const char *name, const char *out)
{
    forget(f);
    g_autofree char *to = g_build_filename(f->dir, "out", out, NULL);
    assert_true(lh_store_fetch(f->store, uri, name, to, NULL, on_fetch, f) != 0);
    assert_int_equal(f->answers, 0);
    await(f);
}

static void assert_error(const Fixture *f, LhErrorCode code)
{
    if (f->error == NULL)
        fail_msg("succeeded, expected %s", lh_error_name(code));
    if (!g_error_matches(f->error, LH_ERROR, (gint)code))
        fail_msg("%s (%s), expected %s", lh_error_name((LhErrorCode)f->error->code),
                 f->error->message, lh_error_name(code));
}

static gboolean out_exists(const Fixture *f, const char *name)
{
    g_autofree char *path = g_build_filename(f->dir, "out", name, NULL);
    return g_file_test(path, G_FILE_TEST_EXISTS);
}

/* ---- tests ---- */

static void lists_all_files_sorted(void **state)
{
    Fixture *f = *state;
    g_autofree char *uri = uri_of(f, "s/");
    write_file(f, "store/s/a.b", "12", 2);
    write_file(f, "store/s/.hidden", "1", 1);
    list(f, uri);
    assert_null(f->error);
    assert_string_equal(f->names->str, ".hidden:1 a:6 a.b:2 b/c:0");
}

static void a_missing_directory_is_not_empty(void **state)
{
    Fixture *f = *state;
    g_autofree char *missing = uri_of(f, "gone/");
    g_autofree char *file = uri_of(f, "s/a/");
    list(f, missing);
    assert_error(f, LH_ERR_NOT_FOUND);
    list(f, file);
    assert_error(f, LH_ERR_NOT_FOUND);
    assert_int_equal(f->names->len, 0);
}

static void only_below_the_roots(void **state)
{
    Fixture *f = *state;
    write_file(f, "store-x/s/a", "secret", -1);
    write_file(f, "other/a", "secret", -1);
    g_autofree char *root = uri_of(f, "");
    g_autofree char *sibling = g_strconcat("file://", f->dir, "/store-x/s/", NULL);
    g_autofree char *other = g_strconcat("file://", f->dir, "/other/", NULL);
    const char *const forbidden[] = {root, sibling, other, "file:///etc/", "file:///"};
    for (gsize i = 0; i < G_N_ELEMENTS(forbidden); i++) {
        list(f, forbidden[i]);
        assert_error(f, LH_ERR_FORBIDDEN);
        fetch(f, forbidden[i], "a", "x");
        assert_error(f, LH_ERR_FORBIDDEN);
        assert_false(out_exists(f, "x"));
    }
}

static void refuses_what_is_no_uri(void **state)
{
    Fixture *f = *state;
    g_autofree char *up = uri_of(f, "s/../../other/");
    g_autofree char *dot = uri_of(f, "./s/");
    g_autofree char *empty = uri_of(f, "s//b/");
    g_autofree char *open = uri_of(f, "s");
    const char *const invalid[] = {up,      dot, empty,      open, "file://host/dir/",
                                   "/etc/", "",  "http://x/"};
    for (gsize i = 0; i < G_N_ELEMENTS(invalid); i++) {
        list(f, invalid[i]);
        assert_error(f, LH_ERR_INVALID);
    }
    list(f, "s3://bucket/key/"); /* it is one, but there are roots */
    assert_error(f, LH_ERR_FORBIDDEN);
    list(f, "s3://bucket/");
    assert_error(f, LH_ERR_INVALID);
}

static void without_roots_nothing(void **state)
{
    Fixture *f = *state;
    lh_store_free(f->store);
    f->store = lh_objectstore_new(f->env, &(LhObjectStoreOptions){0}, NULL);
    g_autofree char *uri = uri_of(f, "s/");
    list(f, uri);
    assert_error(f, LH_ERR_FORBIDDEN);
}

static void bad_roots_are_refused(void **state)
{
    const Fixture *f = *state;
    const char *const bad[] = {
        "/srv", "ftp://x/", "file://host/x/", "file:///a/../b/", "file:///a//b", "s3://", ""};
    for (gsize i = 0; i < G_N_ELEMENTS(bad); i++) {
        g_autoptr(GError) error = NULL;
        const char *const roots[] = {bad[i], NULL};
        assert_null(lh_objectstore_new(f->env, &(LhObjectStoreOptions){.roots = roots}, &error));
        assert_true(g_error_matches(error, LH_ERROR, LH_ERR_INVALID));
    }
}

static void a_root_needs_no_slash(void **state)
{
    Fixture *f = *state;
    g_autofree char *root = g_strconcat("file://", f->dir, "/store", NULL);
    const char *const roots[] = {"s3://bucket", root, NULL};
    lh_store_free(f->store);
    f->store = lh_objectstore_new(f->env, &(LhObjectStoreOptions){.roots = roots}, NULL);
    g_autofree char *uri = uri_of(f, "s/");
    list(f, uri);
    assert_null(f->error);
    assert_true(lh_store_uri_below(uri, roots));
    assert_true(lh_store_uri_below("s3://bucket/x/", roots));
    assert_false(lh_store_uri_below("s3://bucket/", roots));
    assert_false(lh_store_uri_below("s3://bucket2/x/", roots));
    assert_false(lh_store_uri_below(root, roots));
    assert_false(lh_store_uri_below(uri, NULL));
}

static void links_are_not_followed(void **state)
{
    Fixture *f = *state;
    write_file(f, "other/secret", "secret", -1);
    g_autofree char *other = g_build_filename(f->dir, "other", NULL);
    g_autofree char *secret = g_build_filename(other, "secret", NULL);
    g_autofree char *dir_link = g_build_filename(f->dir, "store", "link", NULL);
    g_autofree char *in_link = g_build_filename(f->dir, "store", "s", "inside", NULL);
    g_autofree char *file_link = g_build_filename(f->dir, "store", "t", "x", NULL);
    write_file(f, "store/t/plain", "1", 1);
    assert_int_equal(symlink(other, dir_link), 0);
    assert_int_equal(symlink(other, in_link), 0);
    assert_int_equal(symlink(secret, file_link), 0);

    g_autofree char *through = uri_of(f, "link/");
    g_autofree char *s = uri_of(f, "s/");
    g_autofree char *t = uri_of(f, "t/");
    list(f, through);
    assert_non_null(f->error);
    list(f, s);
    assert_error(f, LH_ERR_FORBIDDEN);
    list(f, t);
    assert_error(f, LH_ERR_FORBIDDEN);
    fetch(f, through, "secret", "x1");
    assert_error(f, LH_ERR_FORBIDDEN);
    fetch(f, s, "inside/secret", "x2");
    assert_error(f, LH_ERR_FORBIDDEN);
    fetch(f, t, "x", "x3");
    assert_error(f, LH_ERR_FORBIDDEN);
    assert_false(out_exists(f, "x1") || out_exists(f, "x2") || out_exists(f, "x3"));
}

static void copies_and_digests(void **state)
{
    Fixture *f = *state;
    g_autofree char *uri = uri_of(f, "s/");
    fetch(f, uri, "a", "a");
    assert_null(f->error);
    assert_int_equal(f->bytes, 6);
    assert_string_equal(f->sha256, SHA_OF_HELLO);
    g_autofree char *path = g_build_filename(f->dir, "out", "a", NULL);
    g_autofree char *text = NULL;
    assert_true(g_file_get_contents(path, &text, NULL, NULL));
    assert_string_equal(text, "hello\n");

    fetch(f, uri, "b/c", "c");
    assert_null(f->error);
    assert_int_equal(f->bytes, 0);
}

static void refuses_to_copy_what_is_no_file(void **state)
{
    Fixture *f = *state;
    g_autofree char *uri = uri_of(f, "s/");
    g_autofree char *fifo = g_build_filename(f->dir, "store", "s", "fifo", NULL);
    assert_int_equal(mkfifo(fifo, 0600), 0);
    fetch(f, uri, "nope", "x");
    assert_error(f, LH_ERR_NOT_FOUND);
    fetch(f, uri, "b", "x");
    assert_error(f, LH_ERR_INVALID);
    fetch(f, uri, "fifo", "x");
    assert_error(f, LH_ERR_INVALID);
    list(f, uri);
    assert_error(f, LH_ERR_INVALID);
    const char *const names[] = {"../s/a", "b/../a", "/etc/passwd", "", ".", "b//c", "b/"};
    for (gsize i = 0; i < G_N_ELEMENTS(names); i++) {
        fetch(f, uri, names[i], "x");
        assert_error(f, LH_ERR_INVALID);
    }
    assert_false(out_exists(f, "x"));
}

static void never_writes_over_a_file(void **state)
{
    Fixture *f = *state;
    g_autofree char *uri = uri_of(f, "s/");
    write_file(f, "out/there", "mine", -1);
    fetch(f, uri, "a", "there");
    assert_error(f, LH_ERR_IO);
    g_autofree char *path = g_build_filename(f->dir, "out", "there", NULL);
    g_autofree char *text = NULL;
    assert_true(g_file_get_contents(path, &text, NULL, NULL));
    assert_string_equal(text, "mine");
}

static void big_copies_tell_their_progress(void **state)
{
    Fixture *f = *state;
    g_autofree char *uri = uri_of(f, "big/");
    g_autofree char *path = g_build_filename(f->dir, "store", "big", "x", NULL);
    write_file(f, "store/big/x", "", 0);
    /* Sparse; as big as it must be here for more than 100 ms of hashing. */
    for (gint64 size = 32 * 1024 * 1024; f->progress == 0; size *= 2) {
        g_autofree char *name = g_strdup_printf("x%" G_GINT64_FORMAT, size);
        g_autofree char *to = g_build_filename(f->dir, "out", name, NULL);
        assert_true(size <= G_GINT64_CONSTANT(2048) * 1024 * 1024);
        assert_int_equal(truncate(path, size), 0);
        forget(f);
        lh_store_fetch(f->store, uri, "x", to, on_progress, on_fetch, f);
        await(f);
        assert_null(f->error);
        assert_int_equal(f->bytes, size);
        assert_true(f->progress_bytes <= size);
        unlink(to);
    }
}

static void cancelled_is_silent_and_leaves_nothing(void **state)
{
    Fixture *f = *state;
    g_autofree char *uri = uri_of(f, "big/");
    g_autofree char *path = g_build_filename(f->dir, "store", "big", "x", NULL);
    write_file(f, "store/big/x", "", 0);
    assert_int_equal(truncate(path, 64 * 1024 * 1024), 0);
    /* At once, while it copies, and about when it ends. */
    for (guint i = 0; i < 40; i++) {
        g_autofree char *name = g_strdup_printf("x%u", i);
        g_autofree char *to = g_build_filename(f->dir, "out", name, NULL);
        forget(f);
        LhStoreOp op = lh_store_fetch(f->store, uri, "x", to, on_progress, on_fetch, f);
        f->progress_bytes = 0;
        gint64 until = g_get_monotonic_time() + i * 4000;
        while (g_get_monotonic_time() < until && f->answers == 0)
            g_main_context_iteration(NULL, FALSE);
        guint before = f->answers;
        lh_store_cancel(f->store, &op);
        assert_int_equal(op, 0);
        /* The directory is removable as soon as the worker has noticed. */
        gint64 deadline = g_get_monotonic_time() + 20 * G_USEC_PER_SEC;
        while (before == 0 && out_exists(f, name) && g_get_monotonic_time() < deadline)
            g_main_context_iteration(NULL, FALSE);
        assert_int_equal(f->answers, before);
        assert_int_equal(out_exists(f, name), before);
        if (before > 0)
            unlink(to);
    }
    LhStoreOp none = 0;
    lh_store_cancel(f->store, &none);
    LhStoreOp unknown = 12345678;
    lh_store_cancel(f->store, &unknown);
}

static void freed_with_work_under_way(void **state)
{
    Fixture *f = *state;
    g_autofree char *uri = uri_of(f, "s/");
    forget(f);
    for (guint i = 0; i < 50; i++) {
        g_autofree char *to = g_strdup_printf("%s/out/f%u", f->dir, i);
        lh_store_fetch(f->store, uri, "a", to, on_progress, on_fetch, f);
        lh_store_list(f->store, uri, on_list, f);
    }
    lh_store_free(f->store);
    f->store = NULL;
    while (g_main_context_iteration(NULL, FALSE))
        ;
    assert_int_equal(f->answers, 0);
    for (guint i = 0; i < 50; i++) {
        g_autofree char *name = g_strdup_printf("f%u", i);
        assert_false(out_exists(f, name));
    }
}

static void cancel_first(gint64 bytes G_GNUC_UNUSED, const char *sha256 G_GNUC_UNUSED,
                         const GError *error G_GNUC_UNUSED, gpointer data)
{
    gpointer *slot = data;
    LhStoreOp *op = slot[1];
    lh_store_cancel(((Fixture *)slot[0])->store, op);
    ((Fixture *)slot[0])->answers++;
}

static void one_answer_cancels_another(void **state)
{
    Fixture *f = *state;
    g_autofree char *uri = uri_of(f, "s/");
    LhStoreOp list_op = 0;
    gpointer slot[2] = {f, &list_op};
    g_autofree char *to = g_build_filename(f->dir, "out", "y", NULL);
    forget(f);
    lh_store_fetch(f->store, uri, "a", to, NULL, cancel_first, slot);
    await(f);
    list_op = lh_store_list(f->store, uri, on_list, f);
    lh_store_cancel(f->store, &list_op);
    while (g_main_context_iteration(NULL, FALSE))
        ;
    assert_int_equal(f->answers, 1);
}

/* ---- beneath ---- */

static void check_beneath(const char *dir)
{
    int fd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    int a = lh_open_beneath(fd, "s/a", O_RDONLY);
    assert_true(a >= 0);
    close(a);
    assert_int_equal(lh_open_beneath(fd, "s/link", O_RDONLY), -1);
    assert_true(errno == ELOOP);
    assert_int_equal(lh_open_beneath(fd, "up/s/a", O_RDONLY), -1);
    assert_true(errno == ELOOP || errno == ENOTDIR);
    assert_int_equal(lh_open_beneath(fd, "s/../s/a", O_RDONLY), -1);
    assert_int_equal(errno, EINVAL);
    assert_int_equal(lh_open_beneath(fd, "s/none", O_RDONLY), -1);
    assert_int_equal(errno, ENOENT);
    close(fd);
}

static void make_links(const Fixture *f, char **root)
{
    *root = g_build_filename(f->dir, "store", NULL);
    g_autofree char *link = g_build_filename(*root, "s", "link", NULL);
    g_autofree char *up = g_build_filename(*root, "up", NULL);
    assert_int_equal(symlink("a", link), 0);
    assert_int_equal(symlink(".", up), 0);
}

static void beneath_refuses_links(void **state)
{
    g_autofree char *root = NULL;
    make_links(*state, &root);
    check_beneath(root);
}

/* As in a container whose kernel or seccomp filter does not know the call. */
static gboolean forbid_openat2(int as)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat2, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (guint)as),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = G_N_ELEMENTS(code), .filter = code};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

static void beneath_works_without_openat2(void **state)
{
    g_autofree char *root = NULL;
    make_links(*state, &root);
    const int codes[] = {ENOSYS, EPERM};
    for (gsize i = 0; i < G_N_ELEMENTS(codes); i++) {
        pid_t child = fork();
        if (child == 0) {
            if (!forbid_openat2(codes[i]))
                _exit(77);
            int fd = open(root, O_PATH | O_DIRECTORY | O_CLOEXEC);
            struct stat st;
            gboolean ok = lh_open_beneath(fd, "s/a", O_RDONLY) >= 0;
            ok = ok && lh_open_beneath(fd, "s/link", O_RDONLY) == -1 && errno == ELOOP;
            ok = ok && lh_open_beneath(fd, "up/s/a", O_RDONLY) == -1;
            ok = ok && lh_open_beneath(fd, "s/none", O_RDONLY) == -1 && errno == ENOENT;
            int b = lh_open_beneath(fd, "s/b", O_RDONLY | O_DIRECTORY);
            _exit(ok && fstat(b, &st) == 0 && S_ISDIR(st.st_mode) ? 0 : 1);
        }
        int status = 0;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFEXITED(status));
        if (WEXITSTATUS(status) == 77)
            skip();
        assert_int_equal(WEXITSTATUS(status), 0);
    }
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        /* First: it forks, and a copy of a program with threads looks leaky to valgrind. */
        TEST(beneath_works_without_openat2),
        TEST(lists_all_files_sorted),
        TEST(a_missing_directory_is_not_empty),
        TEST(only_below_the_roots),
        TEST(refuses_what_is_no_uri),
        TEST(without_roots_nothing),
        TEST(bad_roots_are_refused),
        TEST(a_root_needs_no_slash),
        TEST(links_are_not_followed),
        TEST(copies_and_digests),
        TEST(refuses_to_copy_what_is_no_file),
        TEST(never_writes_over_a_file),
        TEST(big_copies_tell_their_progress),
        TEST(cancelled_is_silent_and_leaves_nothing),
        TEST(freed_with_work_under_way),
        TEST(one_answer_cancels_another),
        TEST(beneath_refuses_links),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
