/*
 * objectstore, work on roots: walking page by page, erasing exactly one prefix, the marker, the clock; on
 * files, on Swift, and on a server that fails and lies.
 */
#include "s3_fixture.h"
#include "tests/fakes/s3_faults.h"
#include "tests/fakes/s3_process.h"

#include <sys/stat.h>

/* links: fakes */
/* suite: threads */

static S3Process *swift;

typedef struct {
    S3Fixture *f;
    S3Faults *server; /* NULL: files or Swift */
    char *root;
    const char *roots[3];
    char *dir; /* of files */
    /* The last answer. */
    guint answers, pages;
    GString *names;
    gint64 objects, bytes, clock_ms;
    char *text, *version;
    GError *error;
    gboolean stop_after_page;
    LhStoreOp op;
} Lab;

static void on_page(const LhStoreObject *objects, gsize n, gpointer data)
{
    Lab *lab = data;

    lab->pages++;
    for (gsize i = 0; i < n && lab->names->len < 4000; i++)
        g_string_append_printf(lab->names, "%s%s", lab->names->len > 0 ? " " : "", objects[i].name);
    if (lab->stop_after_page) {
        lh_store_cancel(lab->f->store, &lab->op);
        lab->answers++;
    }
}

static void on_done(const LhStoreAnswer *answer, const GError *error, gpointer data)
{
    Lab *lab = data;

    lab->answers++;
    assert_true((answer == NULL) == (error != NULL));
    g_clear_error(&lab->error);
    lab->error = error == NULL ? NULL : g_error_copy(error);
    if (answer == NULL)
        return;
    lab->objects = answer->objects;
    lab->bytes = answer->bytes;
    lab->clock_ms = answer->clock_ms;
    g_free(lab->text);
    lab->text = g_strdup(answer->text);
    g_free(lab->version);
    lab->version = g_strdup(answer->version);
}

static void await(Lab *lab)
{
    gboolean late = FALSE;
    guint timeout = g_timeout_add_seconds(40, it_is_late, &late);

    while (lab->answers == 0 && !late)
        g_main_context_iteration(NULL, TRUE);
    g_source_remove(timeout);
    assert_int_equal(lab->answers, 1);
}

static void begin(Lab *lab)
{
    lab->answers = lab->pages = 0;
    g_string_truncate(lab->names, 0);
    g_clear_error(&lab->error);
    g_clear_pointer(&lab->text, g_free);
    lab->objects = lab->bytes = lab->clock_ms = -7;
}

static void walk(Lab *lab, const char *root)
{
    begin(lab);
    lab->op = lh_store_walk(lab->f->store, root, on_page, on_done, lab);
    await(lab);
}

static const LhStoreKnown anything = {G_MAXINT64, G_MAXINT64, G_MAXINT64};

static void erase(Lab *lab, const char *below, gboolean deep)
{
    g_autofree char *uri = g_str_has_prefix(below, "file:") || g_str_has_prefix(below, "s3:")
                               ? g_strdup(below)
                               : g_strconcat(lab->root, below, NULL);

    begin(lab);
    if (deep)
        lh_store_erase(lab->f->store, uri, on_done, lab);
    else
        lh_store_erase_flat(lab->f->store, uri, &anything, on_done, lab);
    await(lab);
}

static void erase_known(Lab *lab, const char *below, gint64 objects, gint64 bytes, gint64 until_ms)
{
    const LhStoreKnown known = {objects, bytes, until_ms};
    g_autofree char *uri = g_strconcat(lab->root, below, NULL);

    begin(lab);
    lh_store_erase_flat(lab->f->store, uri, &known, on_done, lab);
    await(lab);
}

static void well(const Lab *lab)
{
    if (lab->error != NULL)
        fail_msg("%s", lab->error->message);
}

static void refused(const Lab *lab, LhErrorCode code)
{
    assert_non_null(lab->error);
    if (!g_error_matches(lab->error, LH_ERROR, (gint)code))
        fail_msg("%s: %s", lh_error_name((LhErrorCode)lab->error->code), lab->error->message);
}

/* ---- three worlds ---- */

static Lab *lab_new(const char *endpoint, const char *root)
{
    Lab *lab = g_new0(Lab, 1);

    lab->f = s3_fixture_new(endpoint);
    lab->names = g_string_new(NULL);
    lab->dir = g_build_filename(lab->f->dir, "store", NULL);
    assert_int_equal(g_mkdir(lab->dir, 0755), 0);
    lab->root = root != NULL ? g_strdup(root) : g_strconcat("file://", lab->dir, "/", NULL);
    lab->roots[0] = lab->root;
    lab->f->options.roots = lab->roots;
    return lab;
}

static int setup_files(void **state)
{
    Lab *lab = lab_new("http://127.0.0.1:1", NULL);

    open_store(lab->f);
    *state = lab;
    return 0;
}

static int setup_swift(void **state)
{
    static guint n;
    g_autofree char *root = g_strdup_printf("s3://data/work-%u/", n++);
    Lab *lab = lab_new(s3_process_endpoint(swift), root);

    set_keys(lab->f, s3_process_access_key(swift), s3_process_secret_key(swift));
    lab->f->tuning.max_keys = 3;
    open_store(lab->f);
    *state = lab;
    return 0;
}

static int setup_faults(void **state)
{
    S3Faults *server = s3_faults_new();
    Lab *lab = lab_new(s3_faults_endpoint(server), "s3://b/root/");

    lab->server = server;
    lab->f->tuning.max_keys = 2;
    open_store(lab->f);
    *state = lab;
    return 0;
}

static int teardown(void **state)
{
    Lab *lab = *state;

    s3_fixture_free(lab->f);
    if (lab->server != NULL)
        s3_faults_free(lab->server);
    g_string_free(lab->names, TRUE);
    g_clear_error(&lab->error);
    g_free(lab->text);
    g_free(lab->version);
    g_free(lab->root);
    g_free(lab->dir);
    g_free(lab);
    return 0;
}

/* Below the root, wherever that is. */
static void put(Lab *lab, const char *name, const char *text)
{
    if (g_str_has_prefix(lab->root, "file:")) {
        g_autofree char *path = g_build_filename(lab->dir, name, NULL);
        g_autofree char *above = g_path_get_dirname(path);
        assert_int_equal(g_mkdir_with_parents(above, 0755), 0);
        write_text(path, text);
    } else {
        g_autofree char *key = g_strconcat(strchr(lab->root + 5, '/') + 1, name, NULL);
        g_autofree char *path = g_strconcat("/b/", key, NULL);
        if (lab->server != NULL)
            s3_faults_put(lab->server, path, text, strlen(text));
        else
            s3_process_put(swift, "data", key, text, strlen(text));
    }
}

static gboolean has(Lab *lab, const char *name)
{
    g_auto(GStrv) names = NULL;

    walk(lab, lab->root);
    well(lab);
    names = g_strsplit(lab->names->str, " ", -1);
    return g_strv_contains((const char *const *)names, name);
}

/* ---- what holds everywhere ---- */

static void only_the_prefix_is_erased(void **state)
{
    Lab *lab = *state;

    put(lab, "a/s1/x", "12");
    put(lab, "a/s1/deep/er/y", "345");
    put(lab, "a/s10/z", "6");
    put(lab, "a/s1.bak/z", "6");
    for (guint i = 0; i < 7; i++) {
        g_autofree char *name = g_strdup_printf("a/s1/part-%u", i);
        put(lab, name, "1");
    }
    walk(lab, lab->root);
    well(lab);
    assert_int_equal(lab->objects, 11);
    assert_int_equal(lab->bytes, 14);
    erase(lab, "a/s1/", TRUE);
    well(lab);
    assert_int_equal(lab->objects, 9);
    walk(lab, lab->root);
    assert_int_equal(lab->objects, 2);
    assert_non_null(strstr(lab->names->str, "a/s10/z"));
    assert_non_null(strstr(lab->names->str, "a/s1.bak/z"));
    erase(lab, "a/s1/", TRUE); /* once more is well too */
    well(lab);
    assert_int_equal(lab->objects, 0);
    erase(lab, "never/there/", TRUE);
    well(lab);
}

static void a_flat_erase_leaves_what_lies_deeper(void **state)
{
    Lab *lab = *state;

    put(lab, "d/x", "1");
    put(lab, "d/y", "1");
    put(lab, "d/in/z", "1");
    erase(lab, "d/", FALSE);
    well(lab);
    assert_int_equal(lab->objects, 2);
    walk(lab, lab->root);
    assert_string_equal(lab->names->str, "d/in/z");
}

/* Whoever uploads there again loses nothing. */
static void a_flat_erase_takes_only_what_was_known(void **state)
{
    Lab *lab = *state;
    gint64 soon = g_get_real_time() / 1000 + 60000, past = soon - 120000;

    put(lab, "d/w", "1");
    put(lab, "d/x", "12");
    put(lab, "d/y", "123");
    put(lab, "d/in/z", "1");
    erase_known(lab, "d/", 3, 6, past); /* all are younger */
    refused(lab, LH_ERR_CONFLICT);
    erase_known(lab, "d/", 2, 6, soon); /* one more, and three come on two pages */
    refused(lab, LH_ERR_CONFLICT);
    erase_known(lab, "d/", 3, 5, soon); /* one of them has grown */
    refused(lab, LH_ERR_CONFLICT);
    walk(lab, lab->root);
    assert_int_equal(lab->objects, 4);
    erase_known(lab, "d/", 3, 6, soon);
    well(lab);
    assert_int_equal(lab->objects, 3);
    put(lab, "d/x", "1"); /* what an earlier one has left, and nothing */
    erase_known(lab, "d/", 3, 6, soon);
    well(lab);
    assert_int_equal(lab->objects, 1);
    erase_known(lab, "d/", 3, 6, past);
    well(lab);
    assert_true(has(lab, "d/in/z"));
}

static void what_lies_outside_is_refused(void **state)
{
    Lab *lab = *state;
    g_autofree char *inner = g_strconcat(lab->root, "inner/root/", NULL);
    g_autofree char *above = g_strconcat(lab->root, "inner/", NULL);

    put(lab, "inner/root/x", "1");
    erase(lab, lab->root, TRUE);
    refused(lab, LH_ERR_FORBIDDEN);
    erase(lab, "s3://other/a/", TRUE);
    refused(lab, LH_ERR_FORBIDDEN);
    erase(lab, "file:///tmp/", TRUE);
    refused(lab, LH_ERR_FORBIDDEN);
    erase(lab, "../x/", TRUE);
    assert_non_null(lab->error);
    begin(lab);
    lh_store_walk(lab->f->store, above, on_page, on_done, lab);
    await(lab);
    refused(lab, LH_ERR_FORBIDDEN);
    assert_true(has(lab, "inner/root/x"));
    lab->roots[1] = inner; /* a root within a root: its marker must not go with what lies above */
    open_store(lab->f);
    erase(lab, above, TRUE);
    refused(lab, LH_ERR_FORBIDDEN);
    assert_true(has(lab, "inner/root/x"));
}

static void a_marker_is_written_and_read(void **state)
{
    Lab *lab = *state;

    begin(lab);
    lh_store_read(lab->f->store, lab->root, ".leasehold", on_done, lab);
    await(lab);
    refused(lab, LH_ERR_NOT_FOUND);
    for (guint i = 0; i < 2; i++) { /* and written over */
        g_autofree char *text = g_strdup_printf("{\"revision\":%u}\n", i);
        begin(lab);
        lh_store_write(lab->f->store, lab->root, ".leasehold", text, NULL, on_done, lab);
        await(lab);
        well(lab);
        begin(lab);
        lh_store_read(lab->f->store, lab->root, ".leasehold", on_done, lab);
        await(lab);
        well(lab);
        assert_string_equal(lab->text, text);
    }
    walk(lab, lab->root);
    assert_string_equal(lab->names->str, ".leasehold"); /* and nothing of its making is left */
}

static void write_over(Lab *lab, const char *text, const char *over)
{
    begin(lab);
    lh_store_write(lab->f->store, lab->root, ".leasehold", text, over, on_done, lab);
    await(lab);
}

static void read_marker(Lab *lab)
{
    begin(lab);
    lh_store_read(lab->f->store, lab->root, ".leasehold", on_done, lab);
    await(lab);
    well(lab);
}

/* Whoever looked before somebody else has written, writes nothing. */
static void a_marker_is_written_only_over_what_was_read(void **state)
{
    Lab *lab = *state;
    gboolean is_swift = lab->server == NULL && g_str_has_prefix(lab->root, "s3:");

    write_over(lab, "one", "");
    well(lab);
    if (!is_swift) { /* it heeds no conditions on a PUT: there they must only do no harm */
        write_over(lab, "two", "");
        refused(lab, LH_ERR_CONFLICT);
    }
    read_marker(lab);
    assert_string_equal(lab->text, "one");
    g_autofree char *first = g_strdup(lab->version);
    assert_non_null(first);
    write_over(lab, "two", first);
    well(lab);
    if (is_swift)
        return;
    write_over(lab, "three", first);
    refused(lab, LH_ERR_CONFLICT);
    read_marker(lab);
    assert_string_equal(lab->text, "two");
    assert_string_not_equal(lab->version, first);
}

/* Then it is as good as without. */
static void a_server_without_conditions_is_written_to(void **state)
{
    Lab *lab = *state;
    const S3Fault unknown = {.match = "If-None-Match",
                             .times = 20,
                             .kind = S3_FAULT_REPLY,
                             .status = 501,
                             .code = "NotImplemented"};

    lab->f->tuning.attempts = 2;
    open_store(lab->f);
    s3_faults_add(lab->server, &unknown);
    write_over(lab, "one", "");
    well(lab);
    read_marker(lab);
    assert_string_equal(lab->text, "one");
}

static void the_clock_is_told(void **state)
{
    Lab *lab = *state;

    begin(lab);
    lh_store_clock(lab->f->store, lab->root, on_done, lab);
    await(lab);
    well(lab);
    assert_true(ABS(lab->clock_ms - g_get_real_time() / 1000) < 60000);
}

static void a_cancelled_walk_tells_no_more(void **state)
{
    Lab *lab = *state;

    for (guint i = 0; i < 2500;
         i += lab->server == NULL && lab->f->options.access_key_file ? 500 : 1) {
        g_autofree char *name = g_strdup_printf("many/%05u", i);
        put(lab, name, "");
    }
    lab->stop_after_page = TRUE;
    walk(lab, lab->root);
    lab->stop_after_page = FALSE;
    for (guint i = 0; i < 50; i++)
        g_main_context_iteration(NULL, FALSE);
    assert_int_equal(lab->answers, 1);
    assert_int_equal(lab->pages, 1);
}

/* ---- files ---- */

static void links_are_deleted_not_followed(void **state)
{
    Lab *lab = *state;
    g_autofree char *outside = g_build_filename(lab->f->dir, "outside", NULL);
    g_autofree char *kept = g_build_filename(outside, "kept", NULL);
    g_autofree char *link = g_build_filename(lab->dir, "s/link", NULL);
    g_autofree char *evil = g_build_filename(lab->dir, "evil", NULL);

    assert_int_equal(g_mkdir(outside, 0755), 0);
    write_text(kept, "kept");
    put(lab, "s/x", "1");
    assert_int_equal(symlink(outside, link), 0);
    assert_int_equal(symlink(outside, evil), 0);
    walk(lab, lab->root);
    assert_int_equal(lab->objects, 3); /* not what lies behind the links */
    erase(lab, "s/", TRUE);
    well(lab);
    assert_true(g_file_test(kept, G_FILE_TEST_EXISTS));
    erase(lab, "evil/", TRUE); /* the uri itself is a link */
    assert_non_null(lab->error);
    assert_true(g_file_test(kept, G_FILE_TEST_EXISTS));
}

static void a_directory_that_cannot_be_read_is_an_error(void **state)
{
    Lab *lab = *state;
    g_autofree char *dir = g_build_filename(lab->dir, "gone", NULL);

    if (geteuid() != 0) {
        put(lab, "shut/x", "1");
        g_autofree char *shut = g_build_filename(lab->dir, "shut", NULL);
        assert_int_equal(chmod(shut, 0), 0);
        walk(lab, lab->root);
        assert_int_equal(chmod(shut, 0755), 0);
        assert_non_null(lab->error);
    }
    g_autofree char *moved = g_strconcat(lab->dir, "-moved", NULL);
    assert_int_equal(g_rename(lab->dir, moved), 0);
    walk(lab, lab->root);
    refused(lab, LH_ERR_NOT_FOUND); /* a root that is not mounted is not an empty one */
    assert_int_equal(g_rename(moved, lab->dir), 0);
    walk(lab, lab->root);
    well(lab);
    assert_int_equal(lab->objects, 0);
    (void)dir;
}

/* A volume that is mounted in a root is a place of its own: here /dev/shm in /dev. */
static void what_is_mounted_below_a_root_is_left_alone(void **state)
{
    Lab *lab = *state;
    g_autofree char *dir = g_strdup("/dev/shm/leasehold-XXXXXX");
    struct stat dev, shm;

    if (stat("/dev", &dev) != 0 || stat("/dev/shm", &shm) != 0 || dev.st_dev == shm.st_dev ||
        g_mkdtemp(dir) == NULL) {
        skip();
        return;
    }
    g_autofree char *file = g_build_filename(dir, "x", NULL);
    g_autofree char *uri = g_strconcat("file://", dir, "/", NULL);
    write_text(file, "1");
    lab->roots[0] = "file:///dev/";
    open_store(lab->f);
    walk(lab, "file:///dev/");
    refused(lab, LH_ERR_FORBIDDEN);
    erase(lab, uri, TRUE);
    refused(lab, LH_ERR_FORBIDDEN);
    erase(lab, uri, FALSE);
    refused(lab, LH_ERR_FORBIDDEN);
    assert_true(g_file_test(file, G_FILE_TEST_EXISTS));
    lab->roots[0] = "file:///dev/shm/"; /* a root may be a mount */
    open_store(lab->f);
    erase(lab, uri, TRUE);
    well(lab);
    assert_false(g_file_test(dir, G_FILE_TEST_EXISTS));
}

/* ---- a server that fails and lies ---- */

static void an_error_in_the_middle_is_an_error(void **state)
{
    Lab *lab = *state;

    for (guint i = 0; i < 6; i++) {
        g_autofree char *name = g_strdup_printf("s/f%u", i);
        put(lab, name, "1");
    }
    const S3Fault denied = {.path = "/b/root/s/f3",
                            .match = "DELETE",
                            .times = 1,
                            .kind = S3_FAULT_REPLY,
                            .status = 403,
                            .code = "AccessDenied"};
    s3_faults_add(lab->server, &denied);
    erase(lab, "s/", TRUE);
    refused(lab, LH_ERR_FORBIDDEN);
    erase(lab, "s/", TRUE); /* again: the rest goes */
    well(lab);
    assert_false(has(lab, "s/f3"));
    put(lab, "s/f0", "1");
    put(lab, "s/f1", "1");
    const S3Fault slow = {
        .match = "DELETE", .times = 2, .kind = S3_FAULT_REPLY, .status = 503, .code = "SlowDown"};
    s3_faults_add(lab->server, &slow);
    const S3Fault gone = {.path = "/b/root/s/f1",
                          .match = "DELETE",
                          .times = 1,
                          .kind = S3_FAULT_REPLY,
                          .status = 404,
                          .code = "NoSuchKey"};
    s3_faults_add(lab->server, &gone);
    erase(lab, "s/", TRUE);
    well(lab);
    assert_false(has(lab, "s/f0"));
}

/* Astra: a list that failed came back empty. */
/* ---- who may not act any more ---- */

typedef struct {
    gint left; /* atomic: how often it still says yes */
    gint asked;
} Guard;

static gboolean may(gpointer data)
{
    Guard *guard = data;

    g_atomic_int_inc(&guard->asked);
    return g_atomic_int_add(&guard->left, -1) > 0;
}

static void put_some(Lab *lab, guint n)
{
    for (guint i = 0; i < n; i++) {
        g_autofree char *name = g_strdup_printf("s1/part-%u", i);
        put(lab, name, "1");
    }
}

/* A process that stood still wakes with its worker in the middle of a deletion. */
static void after_the_guard_says_no_nothing_goes(void **state)
{
    Lab *lab = *state;
    Guard guard = {.left = 1};

    lab->f->tuning.max_keys = 1000;
    open_store(lab->f);
    put_some(lab, 7);
    lh_store_set_guard(lab->f->store, may, &guard);
    erase(lab, "s1/", TRUE);
    refused(lab, LH_ERR_CANCELLED);
    walk(lab, lab->root);
    well(lab);
    assert_int_equal(lab->objects, 6);
    if (lab->server != NULL)
        assert_int_equal(s3_faults_count(lab->server, "DELETE "), 1);
    begin(lab);
    lh_store_write(lab->f->store, lab->root, ".leasehold", "{}", NULL, on_done, lab);
    await(lab);
    refused(lab, LH_ERR_CANCELLED);
    assert_false(has(lab, ".leasehold"));
    g_atomic_int_set(&guard.left, 100);
    erase(lab, "s1/", TRUE);
    well(lab);
    assert_int_equal(lab->objects, 6);
}

static void what_failed_is_not_tried_again_after_the_guard_says_no(void **state)
{
    Lab *lab = *state;
    Guard guard = {.left = 1};
    const S3Fault fails = {.match = "DELETE ",
                           .times = 1,
                           .kind = S3_FAULT_REPLY,
                           .status = 500,
                           .code = "InternalError"};

    put(lab, "s1/x", "1");
    s3_faults_add(lab->server, &fails);
    lh_store_set_guard(lab->f->store, may, &guard);
    erase(lab, "s1/", TRUE);
    refused(lab, LH_ERR_CANCELLED);
    assert_int_equal(s3_faults_count(lab->server, "DELETE "), 1);
    assert_true(has(lab, "s1/x"));
}

static void a_list_that_failed_is_not_empty(void **state)
{
    Lab *lab = *state;
    static const S3Fault faults[] = {
        {.match = "list-type",
         .times = 1,
         .kind = S3_FAULT_REPLY,
         .status = 403,
         .code = "AccessDenied"},
        {.match = "list-type", .times = 20, .kind = S3_FAULT_REPLY, .status = 500},
        {.match = "list-type", .times = 1, .kind = S3_FAULT_REPLY, .status = 200, .body = ""},
        {.match = "list-type",
         .times = 1,
         .kind = S3_FAULT_REPLY,
         .status = 200,
         .body = "<ListBucketResult></ListBucketResult>"},
        {.match = "continuation-token",
         .times = 1,
         .kind = S3_FAULT_REPLY,
         .status = 404,
         .code = "NoSuchBucket"},
        /* lies: out of order, not below the root, followed by itself */
        {.match = "list-type",
         .times = 1,
         .kind = S3_FAULT_REPLY,
         .status = 200,
         .body = "<ListBucketResult><IsTruncated>false</IsTruncated><Contents><Key>root/b</Key>"
                 "<Size>1</Size></Contents><Contents><Key>root/a</Key><Size>1</Size></Contents>"
                 "</ListBucketResult>"},
        {.match = "list-type",
         .times = 1,
         .kind = S3_FAULT_REPLY,
         .status = 200,
         .body = "<ListBucketResult><IsTruncated>false</IsTruncated><Contents><Key>other/b</Key>"
                 "<Size>1</Size></Contents></ListBucketResult>"},
    };

    lab->f->tuning.attempts = 3;
    open_store(lab->f);
    for (guint i = 0; i < 5; i++) {
        g_autofree char *name = g_strdup_printf("s/f%u", i);
        put(lab, name, "1");
    }
    for (guint i = 0; i < G_N_ELEMENTS(faults); i++) {
        S3Fault fault = faults[i];
        if (fault.times == 20)
            fault.times = 3;
        s3_faults_add(lab->server, &fault);
        walk(lab, lab->root);
        if (lab->error == NULL)
            fail_msg("fault %u: %" G_GINT64_FORMAT " objects", i, lab->objects);
        s3_faults_add(lab->server, &fault);
        erase(lab, "s/", TRUE);
        if (lab->error == NULL && i != 4)
            fail_msg("fault %u is taken for nothing to erase", i);
        for (guint n = 0; n < 5; n++) {
            g_autofree char *name = g_strdup_printf("s/f%u", n);
            put(lab, name, "1");
        }
    }
}

static void what_is_said_to_be_deleted_is_looked_for(void **state)
{
    Lab *lab = *state;
    const S3Fault keep = {.match = "DELETE", .times = 100, .kind = S3_FAULT_KEEP};

    put(lab, "s/x", "1");
    s3_faults_add(lab->server, &keep);
    erase(lab, "s/", TRUE);
    refused(lab, LH_ERR_UNAVAILABLE);
}

/* A store that does not say when an object was written. */
static void what_has_no_age_is_young(void **state)
{
    Lab *lab = *state;
    const S3Fault ageless = {
        .match = "delimiter",
        .times = 1,
        .kind = S3_FAULT_REPLY,
        .status = 200,
        .body = "<ListBucketResult><IsTruncated>false</IsTruncated><Contents><Key>root/s/x</Key>"
                "<Size>1</Size></Contents></ListBucketResult>"};

    put(lab, "s/x", "1");
    s3_faults_add(lab->server, &ageless);
    erase(lab, "s/", FALSE);
    refused(lab, LH_ERR_CONFLICT);
    assert_true(has(lab, "s/x"));
}

/* Then what lies deeper, which may be somebody's, would go with it. */
static void a_server_that_heeds_no_delimiter_erases_nothing(void **state)
{
    Lab *lab = *state;
    const S3Fault deep = {.match = "delimiter", .times = 50, .kind = S3_FAULT_DEEP};

    put(lab, "d/x", "1");
    put(lab, "d/y", "1");
    put(lab, "d/z/deep", "1"); /* on the second page */
    s3_faults_add(lab->server, &deep);
    erase(lab, "d/", FALSE);
    refused(lab, LH_ERR_INVALID);
    walk(lab, lab->root);
    assert_int_equal(lab->objects, 3);
}

static void roots_that_would_lose_data_are_refused(void **state)
{
    static const struct {
        const char *roots[4], *why;
    } cases[] = {
        {{NULL}, NULL},
        {{"file:///srv/a/", "file:///srv/ab/", "s3://a/"}, NULL},
        {{"s3://b/x/", "s3://b/xy/", "s3://bb/"}, NULL},
        {{"file:///"}, "whole file system"},
        {{"s3://b/", "file:///"}, "whole file system"},
        {{"s3://b/", "s3://b/x/"}, "s3://b/x/: lies in s3://b/"},
        {{"s3://c/", "s3://b/x/y/", "s3://b/x/"}, "s3://b/x/y/: lies in s3://b/x/"},
        {{"file:///a/", "file:///a"}, "equals"},
    };

    (void)state;
    for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
        g_autoptr(GError) error = NULL;
        g_auto(GStrv) roots = lh_store_roots(cases[i].roots, &error);
        assert_null(error);
        gboolean may = lh_store_roots_deletable((const char *const *)roots, &error);
        if (may != (cases[i].why == NULL))
            fail_msg("case %u: %s", i, error == NULL ? "is taken" : error->message);
        if (!may && strstr(error->message, cases[i].why) == NULL)
            fail_msg("%s", error->message);
    }
}

static int start_swift(void **state)
{
    g_autoptr(GError) error = NULL;

    (void)state;
    clean_environment();
    swift = s3_process_new(&error);
    if (swift == NULL)
        fail_msg("%s", error->message);
    s3_process_make_bucket(swift, "data");
    return 0;
}

static int stop_swift(void **state)
{
    (void)state;
    s3_process_free(swift);
    return 0;
}

#define EVERYWHERE(test)                                       \
    {#test " (file)", test, setup_files, teardown, NULL},      \
        {#test " (Swift)", test, setup_swift, teardown, NULL}, \
    {                                                          \
#test " (faults)", test, setup_faults, teardown, NULL  \
    }

int main(void)
{
    const struct CMUnitTest tests[] = {
        EVERYWHERE(only_the_prefix_is_erased),
        EVERYWHERE(a_flat_erase_leaves_what_lies_deeper),
        EVERYWHERE(a_flat_erase_takes_only_what_was_known),
        EVERYWHERE(what_lies_outside_is_refused),
        EVERYWHERE(a_marker_is_written_and_read),
        EVERYWHERE(a_marker_is_written_only_over_what_was_read),
        EVERYWHERE(the_clock_is_told),
        EVERYWHERE(a_cancelled_walk_tells_no_more),
        cmocka_unit_test_setup_teardown(links_are_deleted_not_followed, setup_files, teardown),
        cmocka_unit_test_setup_teardown(a_directory_that_cannot_be_read_is_an_error, setup_files,
                                        teardown),
        cmocka_unit_test_setup_teardown(what_is_mounted_below_a_root_is_left_alone, setup_files,
                                        teardown),
        cmocka_unit_test_setup_teardown(an_error_in_the_middle_is_an_error, setup_faults, teardown),
        cmocka_unit_test_setup_teardown(after_the_guard_says_no_nothing_goes, setup_faults,
                                        teardown),
        cmocka_unit_test_setup_teardown(after_the_guard_says_no_nothing_goes, setup_files,
                                        teardown),
        cmocka_unit_test_setup_teardown(what_failed_is_not_tried_again_after_the_guard_says_no,
                                        setup_faults, teardown),
        cmocka_unit_test_setup_teardown(a_list_that_failed_is_not_empty, setup_faults, teardown),
        cmocka_unit_test_setup_teardown(what_is_said_to_be_deleted_is_looked_for, setup_faults,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_server_that_heeds_no_delimiter_erases_nothing,
                                        setup_faults, teardown),
        cmocka_unit_test(roots_that_would_lose_data_are_refused),
        cmocka_unit_test_setup_teardown(what_has_no_age_is_young, setup_faults, teardown),
        cmocka_unit_test_setup_teardown(a_server_without_conditions_is_written_to, setup_faults,
                                        teardown),
    };

    return cmocka_run_group_tests_name("objectstore-work", tests, start_swift, stop_swift);
}
