/*
 * agent/cache_work: what is copied and what is not, what is refused, what is left behind, and what
 * survives a crash.
 */
#include "cache_fixture.h"

/* links: fakes */
/* suite: threads */

/* ---- loading ---- */

static void copies_verifies_serves(void **state)
{
    Fixture *f = *state;
    publish(f, "s", 1000);
    loaded(f, "a", "s", 1000);
    assert_true(exists(f, "data/snapshots/s/data/x"));
    assert_true(exists(f, "data/snapshots/s/data/d/y"));
    assert_true(exists(f, "data/snapshots/s/manifest.json"));
    assert_int_equal(entries_in(f, "data/loading"), 0);
    assert_int_equal(copied(f), 1000);
    assert_int_equal(f->progress, 1000);

    assert_int_equal(lh_cache_work_open_file(f->work, "s", "x"), -1); /* not live yet */
    assert_null(lh_cache_work_manifest(f->work, "s"));
    base(f)->v->serve(base(f), "a", TRUE);
    int fd = lh_cache_work_open_file(f->work, "s", "d/y");
    assert_true(fd >= 0);
    close(fd);
    g_autofree char *manifest = lh_cache_work_manifest(f->work, "s");
    assert_non_null(strstr(manifest, "{\"name\":\"d/y\",\"size\":1,\"sha256\":\"2d711642"));
    base(f)->v->serve(base(f), "a", FALSE);
    assert_int_equal(lh_cache_work_open_file(f->work, "s", "x"), -1);
}

static void serves_nothing_else(void **state)
{
    Fixture *f = *state;
    publish(f, "s", 100);
    write_file(f, "secret", 10);
    loaded(f, "a", "s", 100);
    base(f)->v->serve(base(f), "a", TRUE);
    g_autofree char *link = path_of(f, "data/snapshots/s/data/link");
    g_autofree char *dir_link = path_of(f, "data/snapshots/s/data/up");
    g_autofree char *secret = path_of(f, "secret");
    g_autofree char *fifo = path_of(f, "data/snapshots/s/data/fifo");
    assert_int_equal(symlink(secret, link), 0);
    assert_int_equal(symlink("/", dir_link), 0);
    assert_int_equal(mkfifo(fifo, 0600), 0);
    const char *const names[] = {
        "../manifest.json", "link",   "up/etc/passwd", "",     ".",    "..", "d",
        "/etc/passwd",      "d/../x", "nope",          "fifo", "d//y", "x/"};
    for (gsize i = 0; i < G_N_ELEMENTS(names); i++) {
        if (lh_cache_work_open_file(f->work, "s", names[i]) != -1)
            fail_msg("%s was opened", names[i]);
    }
    assert_int_equal(lh_cache_work_open_file(f->work, "..", "x"), -1);
    assert_int_equal(lh_cache_work_open_file(f->work, "other", "x"), -1);
}

static void an_empty_snapshot(void **state)
{
    Fixture *f = *state;
    g_autofree char *dir = path_of(f, "source/e");
    g_autofree char *uri = uri_of(f, "e");
    assert_int_equal(g_mkdir_with_parents(dir, 0755), 0);
    publish_as(f, "e", 0, uri, "");
    loaded(f, "a", "e", 0);
}

static void checks_sha256(void **state)
{
    Fixture *f = *state;
    g_autofree char *uri = uri_of(f, "s");
    g_autofree char *good = g_compute_checksum_for_string(G_CHECKSUM_SHA256, "x", 1);
    g_autofree char *right = g_strdup_printf(",\"sha256\":{\"d/y\":\"%s\"}", good);
    g_autofree char *wrong = g_strdup_printf(",\"sha256\":{\"x\":\"%s\"}", good);
    publish(f, "s", 100);
    publish_as(f, "s", 100, uri, wrong);
    load(f, "a", "s", 100);
    expect_failed(f, "a", "x: its sha256 is ");
    assert_false(exists(f, "data/snapshots/s"));
    assert_warm(f, "");
    publish_as(f, "s", 100, uri, right);
    loaded(f, "a", "s", 100);
}

static void what_does_not_agree_is_refused(void **state)
{
    Fixture *f = *state;
    g_autofree char *uri = uri_of(f, "s");
    g_autofree char *other = uri_of(f, "other");
    g_autofree char *missing = g_strdup_printf(",\"sha256\":{\"z\":\"%064d\"}", 0);
    publish(f, "other", 100);

    load(f, "a", "s", 100);
    expect_failed(f, "a", "is not published");
    publish(f, "s", 100);
    load(f, "a", "s", 99);
    expect_failed(f, "a", "ordered with 99");
    load_from(f, "a", "s", 100, other);
    expect_failed(f, "a", "is published at");
    publish_as(f, "s", 100, uri, ",\"live\":true");
    load(f, "a", "s", 100);
    expect_failed(f, "a", "still being written");
    fake_etcd_put(f->server, "/leasehold/published/snapshots/s", "rubbish", 0);
    load(f, "a", "s", 100);
    expect_failed(f, "a", "not understood");
    publish_as(f, "s", 100, uri, missing);
    load(f, "a", "s", 100);
    expect_failed(f, "a", "z: is missing");
    publish_as(f, "s", 101, uri, "");
    load(f, "a", "s", 101);
    expect_failed(f, "a", "have 100 bytes, must be 101");
    assert_int_equal(copied(f), 0);
}

static void a_missing_directory_fails(void **state)
{
    Fixture *f = *state;
    g_autofree char *uri = uri_of(f, "gone");
    publish_as(f, "gone", 5, uri, "");
    load(f, "a", "gone", 5);
    expect_failed(f, "a", "No such file");
    publish_as(f, "outside", 5, "file:///etc/ssl/", "");
    load_from(f, "a", "outside", 5, "file:///etc/ssl/");
    expect_failed(f, "a", "not below any of objectStore.roots");
    publish_as(f, "cloud", 5, "s3://bucket/key/", "");
    load_from(f, "a", "cloud", 5, "s3://bucket/key/");
    expect_failed(f, "a", "not below any of objectStore.roots");
}

static void an_etcd_that_does_not_answer_is_waited_for(void **state)
{
    Fixture *f = *state;
    publish(f, "s", 100);
    fake_etcd_client_fault_next(f->etcd, FAKE_FAULT_REFUSED, 3);
    loaded(f, "a", "s", 100);
}

/* ---- warm ---- */

static void a_restart_finds_its_data(void **state)
{
    Fixture *f = *state;
    publish(f, "s", 1000);
    publish(f, "t", 2000);
    loaded(f, "a", "s", 1000);
    g_usleep(3000); /* another millisecond */
    loaded(f, "b", "t", 2000);
    restart(f);
    assert_warm(f, "t s"); /* most recent first */
    loaded(f, "a", "s", 1000);
    assert_int_equal(copied(f), 0);
    base(f)->v->serve(base(f), "a", TRUE);
    int fd = lh_cache_work_open_file(f->work, "s", "x");
    assert_true(fd >= 0);
    close(fd);
}

static void dropped_it_is_warm(void **state)
{
    Fixture *f = *state;
    publish(f, "s", 1000);
    loaded(f, "a", "s", 1000);
    base(f)->v->serve(base(f), "a", TRUE);
    base(f)->v->drop(base(f));
    assert_int_equal(lh_cache_work_open_file(f->work, "s", "x"), -1);
    assert_warm(f, "s");
    gint64 before = copied(f);
    loaded(f, "a", "s", 1000);
    assert_int_equal(copied(f), before);
}

static void damaged_data_is_not_warm(void **state)
{
    Fixture *f = *state;
    const char *const names[] = {"short",   "lost",   "nomanifest", "badmanifest",
                                 "renamed", "linked", "whole"};
    for (gsize i = 0; i < G_N_ELEMENTS(names); i++) {
        publish(f, names[i], 100);
        loaded(f, names[i], names[i], 100);
    }
    close_work(f);
    write_file(f, "data/snapshots/short/data/x", 98);
    g_autofree char *lost = path_of(f, "data/snapshots/lost/data/d/y");
    g_autofree char *manifest = path_of(f, "data/snapshots/nomanifest/manifest.json");
    g_autofree char *linked = path_of(f, "data/snapshots/linked/data/x");
    g_autofree char *old = path_of(f, "data/snapshots/renamed");
    g_autofree char *new = path_of(f, "data/snapshots/otherwise");
    g_autofree char *source = path_of(f, "source/linked/x");
    assert_int_equal(unlink(lost), 0);
    assert_int_equal(unlink(manifest), 0);
    assert_int_equal(unlink(linked), 0);
    assert_int_equal(symlink(source, linked), 0);
    assert_int_equal(rename(old, new), 0);
    write_file(f, "data/snapshots/badmanifest/manifest.json", 10);
    write_file(f, "data/loading/9/data/half", 10);
    write_file(f, "data/trash/9/data/old", 10);
    open_work(f);
    assert_warm(f, "whole");
    await(trash_is_empty, f);
    assert_int_equal(entries_in(f, "data/snapshots"), 1);
    assert_int_equal(entries_in(f, "data/loading"), 0);
    loaded(f, "short", "short", 100);
    assert_int_equal(copied(f), 100);
}

static void data_damaged_while_it_runs_is_copied_again(void **state)
{
    Fixture *f = *state;
    publish(f, "s", 1000);
    loaded(f, "a", "s", 1000);
    base(f)->v->drop(base(f));
    write_file(f, "data/snapshots/s/data/x", 5);
    loaded(f, "a", "s", 1000);
    assert_int_equal(copied(f), 2000);
}

static void another_snapshot_of_that_name_is_not_the_same(void **state)
{
    Fixture *f = *state;
    publish(f, "s", 1000);
    loaded(f, "a", "s", 1000);
    base(f)->v->drop(base(f));
    fake_etcd_delete(f->server, "/leasehold/published/snapshots/s", NULL);
    publish(f, "s", 1000); /* the same to the letter, but created anew */
    loaded(f, "a", "s", 1000);
    assert_int_equal(copied(f), 2000);
}

/* ---- releasing ---- */

static void evict_removes_the_data(void **state)
{
    Fixture *f = *state;
    publish(f, "s", 1000);
    loaded(f, "a", "s", 1000);
    release(f, "a");
    expect_answer(f, "released a");
    assert_false(exists(f, "data/snapshots/s"));
    assert_int_equal(entries_in(f, "data/trash"), 0);
    assert_warm(f, "");
    release(f, "a"); /* what is not held */
    expect_answer(f, "released a");
}

static void evict_cancels_a_load_at_any_step(void **state)
{
    Fixture *f = *state;
    publish(f, "s", 5000);
    for (guint turns = 0; turns < 60; turns++) {
        load(f, "a", "s", 5000);
        for (guint i = 0; i < turns && f->answers->len == 0; i++)
            g_main_context_iteration(NULL, TRUE);
        gboolean was_ready = f->answers->len > 0;
        if (was_ready)
            expect_answer(f, "ready a");
        release(f, "a");
        expect_answer(f, "released a");
        assert_int_equal(entries_in(f, "data/loading"), 0);
        assert_int_equal(entries_in(f, "data/snapshots"), 0);
        for (guint i = 0; i < 5; i++)
            g_main_context_iteration(NULL, FALSE);
        assert_int_equal(f->answers->len, 0); /* the load is never answered after that */
    }
}

static void drop_at_any_step_leaves_whole_data_or_none(void **state)
{
    Fixture *f = *state;
    publish(f, "s", 5000);
    for (guint turns = 0; turns < 40; turns++) {
        load(f, "a", "s", 5000);
        for (guint i = 0; i < turns && f->answers->len == 0; i++)
            g_main_context_iteration(NULL, TRUE);
        base(f)->v->drop(base(f));
        g_ptr_array_set_size(f->answers, 0);
        assert_true(entries_in(f, "data/loading") <= 1); /* the next load goes on with it */
        for (guint i = 0; i < 5; i++)
            g_main_context_iteration(NULL, FALSE);
        assert_int_equal(f->answers->len, 0);
    }
    restart(f);
    g_auto(GStrv) warm = base(f)->v->warm(base(f));
    assert_true(g_strv_length(warm) <= 1);
}

static void two_items_of_one_snapshot(void **state)
{
    Fixture *f = *state;
    publish(f, "s", 1000);
    load(f, "a", "s", 1000);
    load(f, "b", "s", 1000);
    expect_answer(f, "ready ");
    expect_answer(f, "ready ");
    base(f)->v->serve(base(f), "a", TRUE);
    base(f)->v->serve(base(f), "b", TRUE);
    base(f)->v->serve(base(f), "a", FALSE);
    release(f, "a");
    expect_answer(f, "released a");
    int fd = lh_cache_work_open_file(f->work, "s", "x");
    assert_true(fd >= 0);
    close(fd);
    base(f)->v->serve(base(f), "b", FALSE);
    release(f, "b");
    expect_answer(f, "released b");
    assert_false(exists(f, "data/snapshots/s"));
}

/* ---- room ---- */

static void never_more_than_its_capacity(void **state)
{
    Fixture *f = *state;
    publish(f, "s", 6000);
    publish(f, "t", 6000);
    publish(f, "u", 4000);
    loaded(f, "a", "s", 6000);
    load(f, "b", "t", 6000);
    expect_failed(f, "b", "no room: 6000 bytes are taken, 6000 wanted, capacity is 10000");
    loaded(f, "c", "u", 4000);
}

static void loads_under_way_count(void **state)
{
    Fixture *f = *state;
    publish(f, "s", 6000);
    publish(f, "t", 6000);
    load(f, "a", "s", 6000);
    load(f, "b", "t", 6000);
    guint ready = 0, failed = 0;
    for (guint i = 0; i < 2; i++) {
        gint64 deadline = g_get_monotonic_time() + 20 * G_USEC_PER_SEC;
        while (f->answers->len == 0 && g_get_monotonic_time() < deadline)
            g_main_context_iteration(NULL, FALSE);
        const char *answer = g_ptr_array_index(f->answers, 0);
        ready += g_str_has_prefix(answer, "ready");
        failed += g_str_has_prefix(answer, "failed");
        g_ptr_array_remove_index(f->answers, 0);
    }
    assert_int_equal(ready, 1);
    assert_int_equal(failed, 1);
}

static void warm_data_makes_way(void **state)
{
    Fixture *f = *state;
    publish(f, "old", 4000);
    publish(f, "new", 4000);
    publish(f, "s", 5000);
    loaded(f, "a", "old", 4000);
    g_usleep(3000);
    loaded(f, "b", "new", 4000);
    base(f)->v->drop(base(f));
    loaded(f, "c", "s", 5000);
    assert_warm(f, "s new"); /* the oldest went, and only that */
    assert_false(exists(f, "data/snapshots/old"));
    publish(f, "t", 2000);
    loaded(f, "d", "t", 2000);
    assert_warm(f, "t s");
}

static void a_bigger_snapshot_than_the_node(void **state)
{
    Fixture *f = *state;
    publish(f, "warm", 100);
    publish(f, "s", CAPACITY + 1);
    loaded(f, "a", "warm", 100);
    release(f, "a");
    expect_answer(f, "released a");
    load(f, "a", "s", CAPACITY + 1);
    expect_failed(f, "a", "no room");
    publish(f, "t", CAPACITY);
    loaded(f, "a", "t", CAPACITY);
}

/* ---- the data directory ---- */

static void one_agent_for_each_directory(void **state)
{
    Fixture *f = *state;
    g_autoptr(GError) error = NULL;
    LhCacheWorkOptions options = f->options;
    options.metrics = NULL;
    assert_null(lh_cache_work_new(f->env, f->etcd, f->objects, f->hooks, &options, &error));
    assert_true(g_error_matches(error, LH_ERROR, LH_ERR_CONFLICT));
    assert_non_null(strstr(error->message, "another agent"));
    assert_null(strchr(error->message, '\n'));
}

static void without_a_capacity_the_disk_is_it(void **state)
{
    Fixture *f = *state;
    close_work(f);
    f->options.capacity_bytes = 0;
    open_work(f);
    assert_true(lh_cache_work_capacity(f->work) > 0);
    publish(f, "s", 1000);
    loaded(f, "a", "s", 1000);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(copies_verifies_serves),
        TEST(serves_nothing_else),
        TEST(an_empty_snapshot),
        TEST(checks_sha256),
        TEST(what_does_not_agree_is_refused),
        TEST(a_missing_directory_fails),
        TEST(an_etcd_that_does_not_answer_is_waited_for),
        TEST(a_restart_finds_its_data),
        TEST(dropped_it_is_warm),
        TEST(damaged_data_is_not_warm),
        TEST(data_damaged_while_it_runs_is_copied_again),
        TEST(another_snapshot_of_that_name_is_not_the_same),
        TEST(evict_removes_the_data),
        TEST(evict_cancels_a_load_at_any_step),
        TEST(drop_at_any_step_leaves_whole_data_or_none),
        TEST(two_items_of_one_snapshot),
        TEST(never_more_than_its_capacity),
        TEST(loads_under_way_count),
        TEST(warm_data_makes_way),
        TEST(a_bigger_snapshot_than_the_node),
        TEST(one_agent_for_each_directory),
        TEST(without_a_capacity_the_disk_is_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
