/*
 * agent/cache_work with s3://: several files at the same time, and loads that are interrupted and
 * go on, from a server that stalls when it is told to.
 */
#include "cache_fixture.h"
#include "objectstore/s3_tuning.h"
#include "tests/fakes/s3_faults.h"

/* links: fakes */
/* suite: threads */

#define FILES 10
#define SIZE  100
#define TOTAL (FILES * SIZE)

static S3Faults *server;
static char *pieces[FILES];

static void use_s3(Fixture *f)
{
    LhS3Tuning tuning = lh_s3_tuning_default;
    tuning.backoff_ms = 5;
    const LhObjectStoreOptions options = {.endpoint = s3_faults_endpoint(server)};
    lh_store_free(f->objects);
    f->objects = lh_objectstore_new_tuned(f->env, &options, &tuning, NULL);
    assert_non_null(f->objects);
}

static int setup_s3(void **state)
{
    setup(state);
    Fixture *f = *state;
    close_work(f);
    server = s3_faults_new();
    g_free(f->root);
    f->root = g_strdup("s3://b/");
    use_s3(f);
    open_work(f);
    for (guint i = 0; i < FILES; i++) {
        g_autofree char *path = g_strdup_printf("/b/s/d%u/f%u", i % 3, i);
        pieces[i] = g_strnfill(SIZE, (char)('a' + i));
        s3_faults_put(server, path, pieces[i], SIZE);
    }
    publish_as(f, "s", TOTAL, "s3://b/s/", "");
    return 0;
}

static int teardown_s3(void **state)
{
    teardown(state);
    s3_faults_free(server);
    for (guint i = 0; i < FILES; i++)
        g_free(pieces[i]);
    return 0;
}

static void stall(const char *match, guint times)
{
    s3_faults_add(server,
                  &(S3Fault){.match = match, .times = times, .kind = S3_FAULT_STALL, .after = 50});
}

static void await_copied(Fixture *f, gint64 bytes)
{
    gint64 deadline = g_get_monotonic_time() + 20 * G_USEC_PER_SEC;
    while (copied(f) < bytes && g_get_monotonic_time() < deadline)
        g_main_context_iteration(NULL, FALSE);
    assert_int_equal(copied(f), bytes);
}

static void assert_whole(const Fixture *f)
{
    for (guint i = 0; i < FILES; i++) {
        g_autofree char *name = g_strdup_printf("data/snapshots/s/data/d%u/f%u", i % 3, i);
        g_autofree char *path = path_of(f, name);
        g_autofree char *text = NULL;
        assert_true(g_file_get_contents(path, &text, NULL, NULL));
        assert_string_equal(text, pieces[i]);
    }
    assert_int_equal(entries_in(f, "data/loading"), 0);
    assert_int_equal(entries_in(f, "data/parts"), 0);
    assert_int_equal(entries_in(f, "data/snapshots/s"), 2); /* data, manifest.json */
}

/* All but f7 are there; f7 has come half-way. */
static void load_but_one(Fixture *f)
{
    stall("/f7 ", 1);
    load(f, "a", "s", TOTAL);
    await_copied(f, TOTAL - SIZE);
    assert_int_equal(f->answers->len, 0);
}

/* ---- tests ---- */

static void loads_from_s3(void **state)
{
    Fixture *f = *state;
    loaded(f, "a", "s", TOTAL);
    assert_whole(f);
    assert_int_equal(copied(f), TOTAL);
    assert_int_equal(f->progress, TOTAL);
    base(f)->v->serve(base(f), "a", TRUE);
    g_autofree char *sha256 = g_compute_checksum_for_string(G_CHECKSUM_SHA256, pieces[4], SIZE);
    g_autofree char *manifest = lh_cache_work_manifest(f->work, "s");
    assert_non_null(strstr(manifest, sha256));
}

static void eight_at_the_same_time(void **state)
{
    Fixture *f = *state;
    stall("GET /b/s/", 100);
    load(f, "a", "s", TOTAL);
    gint64 deadline = g_get_monotonic_time() + 20 * G_USEC_PER_SEC;
    while (s3_faults_count(server, "GET /b/s/") < 8 && g_get_monotonic_time() < deadline)
        g_main_context_iteration(NULL, FALSE);
    for (guint i = 0; i < 1000; i++)
        g_main_context_iteration(NULL, FALSE);
    assert_int_equal(s3_faults_count(server, "GET /b/s/"), 8);
    release(f, "a");
    expect_answer(f, "released a");
    assert_int_equal(entries_in(f, "data/loading"), 0);
}

static void a_restart_goes_on(void **state)
{
    Fixture *f = *state;
    load_but_one(f);
    restart(f);
    assert_int_equal(entries_in(f, "data/loading"), 1);
    assert_warm(f, ""); /* what is not whole is offered to nobody */
    loaded(f, "a", "s", TOTAL);
    assert_int_equal(copied(f), SIZE);
    assert_int_equal(f->progress, TOTAL);
    assert_int_equal(s3_faults_count(server, "/f3 "), 1);
    assert_int_equal(s3_faults_count(server, "/f7 "), 2);
    assert_whole(f);
    restart(f);
    assert_warm(f, "s");
}

static void a_drop_goes_on(void **state)
{
    Fixture *f = *state;
    load_but_one(f);
    base(f)->v->drop(base(f));
    loaded(f, "a", "s", TOTAL);
    assert_int_equal(copied(f), TOTAL);
    assert_int_equal(s3_faults_count(server, "/f3 "), 1);
    await(trash_is_empty, f);
    assert_whole(f);
}

/* A process that was killed: its half-written file, files of the wrong size, strangers. */
static void what_a_crash_left_is_looked_at(void **state)
{
    Fixture *f = *state;
    g_autofree char *sum = g_compute_checksum_for_string(G_CHECKSUM_SHA256, pieces[5], SIZE);
    g_autofree char *more = g_strdup_printf(",\"sha256\":{\"d2/f5\":\"%s\"}", sum);
    fake_etcd_delete(f->server, "/leasehold/published/snapshots/s", NULL);
    publish_as(f, "s", TOTAL, "s3://b/s/", more);
    load_but_one(f);
    close_work(f);
    g_autofree char *loading = path_of(f, "data/loading");
    g_autoptr(GDir) dir = g_dir_open(loading, 0, NULL);
    const char *n = g_dir_read_name(dir);
    g_autofree char *cut = g_strdup_printf("data/loading/%s/data/d0/f3", n);
    g_autofree char *other = g_strdup_printf("data/loading/%s/data/d2/f5", n);
    g_autofree char *stranger = g_strdup_printf("data/loading/%s/data/d9/stranger", n);
    g_autofree char *linked = g_strdup_printf("data/loading/%s/data/d1/f4", n);
    g_autofree char *link_path = path_of(f, linked);
    write_file(f, cut, SIZE - 1);
    write_file(f, other, SIZE); /* its size, but not its bytes: a published digest tells */
    write_file(f, stranger, 5);
    write_file(f, "data/parts/half", 50);
    write_file(f, "secret", SIZE);
    g_autofree char *secret = path_of(f, "secret");
    assert_int_equal(unlink(link_path), 0);
    assert_int_equal(symlink(secret, link_path), 0);
    open_work(f);
    loaded(f, "a", "s", TOTAL);
    assert_int_equal(copied(f), 4 * SIZE); /* f3, f4, f5, f7 */
    await(trash_is_empty, f);
    assert_whole(f);
    assert_false(exists(f, "data/snapshots/s/data/d9"));
}

static void another_snapshot_does_not_go_on(void **state)
{
    Fixture *f = *state;
    load_but_one(f);
    close_work(f);
    fake_etcd_delete(f->server, "/leasehold/published/snapshots/s", NULL);
    publish_as(f, "s", TOTAL, "s3://b/s/", ""); /* the same to the letter, but created anew */
    open_work(f);
    loaded(f, "a", "s", TOTAL);
    assert_int_equal(copied(f), TOTAL);
    await(trash_is_empty, f);
    assert_whole(f);
}

static void what_was_begun_makes_way(void **state)
{
    Fixture *f = *state;
    load_but_one(f);
    restart(f);
    g_autofree char *big = g_strnfill(CAPACITY - SIZE, 'x');
    s3_faults_put(server, "/b/t/x", big, CAPACITY - SIZE);
    publish_as(f, "t", CAPACITY - SIZE, "s3://b/t/", "");
    loaded(f, "b", "t", CAPACITY - SIZE);
    assert_int_equal(entries_in(f, "data/loading"), 0);
    assert_warm(f, "t");
}

/* It needs the room that its own beginning takes. */
static void a_load_of_all_the_room_goes_on(void **state)
{
    Fixture *f = *state;
    close_work(f);
    f->options.capacity_bytes = TOTAL;
    open_work(f);
    load_but_one(f);
    restart(f);
    loaded(f, "a", "s", TOTAL);
    assert_int_equal(copied(f), SIZE);
}

static void one_file_that_fails_ends_the_load(void **state)
{
    Fixture *f = *state;
    stall("/f3 ", 1);
    s3_faults_add(server, &(S3Fault){.match = "/f9 ",
                                     .times = 1,
                                     .kind = S3_FAULT_REPLY,
                                     .status = 403,
                                     .code = "AccessDenied"});
    load(f, "a", "s", TOTAL);
    expect_failed(f, "a", "s3://b/s/d0/f9: access is denied");
    gint64 deadline = g_get_monotonic_time() + 20 * G_USEC_PER_SEC;
    while (entries_in(f, "data/parts") > 0 && g_get_monotonic_time() < deadline)
        g_main_context_iteration(NULL, FALSE);
    assert_int_equal(entries_in(f, "data/parts"), 0);
    loaded(f, "a", "s", TOTAL);
}

static void interrupted_at_any_step(void **state)
{
    Fixture *f = *state;
    for (guint turns = 0; turns < 60; turns++) {
        load(f, "a", "s", TOTAL);
        for (guint i = 0; i < turns && f->answers->len == 0; i++)
            g_main_context_iteration(NULL, TRUE);
        gboolean was_ready = f->answers->len > 0;
        restart(f);
        g_ptr_array_set_size(f->answers, 0);
        loaded(f, "a", "s", TOTAL);
        assert_true(copied(f) <= (was_ready ? 0 : TOTAL));
        await(trash_is_empty, f);
        assert_whole(f);
        release(f, "a");
        expect_answer(f, "released a");
    }
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup_s3, teardown_s3)
    const struct CMUnitTest tests[] = {
        TEST(loads_from_s3),
        TEST(eight_at_the_same_time),
        TEST(a_restart_goes_on),
        TEST(a_drop_goes_on),
        TEST(what_a_crash_left_is_looked_at),
        TEST(another_snapshot_does_not_go_on),
        TEST(what_was_begun_makes_way),
        TEST(a_load_of_all_the_room_goes_on),
        TEST(one_file_that_fails_ends_the_load),
        TEST(interrupted_at_any_step),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
