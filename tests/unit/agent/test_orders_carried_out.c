/*
 * agent: what a node does with orders, as seen in etcd. CONTRACT.md section 2, one test for each promise.
 */
#include "agent_fixture.h"

/* links: fakes */

static int setup(void **state)
{
    *state = fixture_new(1, NULL);
    registered(*state);
    return 0;
}

static int teardown(void **state)
{
    fixture_free(*state);
    return 0;
}

static void load_live_evict_free(void **state)
{
    Fixture *f = *state;
    gint64 load = order(f, "a", "load");
    run_ms(f, 100);
    assert_item(f, "a", "loading", load);
    assert_false(has_search(f, "a"));
    run_ms(f, 200);
    assert_item(f, "a", "live", load);
    assert_true(has_search(f, "a"));
    assert_true(virtual_served(f->work, "a"));
    g_autofree char *url = item_field(f, "a", "url");
    assert_string_equal(url, "http://node/v1/files/a/");

    gint64 evict = order(f, "a", "evict");
    run_ms(f, 1000);
    assert_item(f, "a", "evicting", evict);
    assert_false(has_search(f, "a"));
    assert_int_equal(f->work->releases, 0); /* readers have the grace to go */
    assert_true(virtual_served(f->work, "a"));
    run_ms(f, 1500);
    assert_item(f, "a", "evicted", evict);
    assert_int_equal(f->work->releases, 1);

    unassign(f, "a");
    run_ms(f, 100);
    assert_item(f, "a", NULL, 0);
    assert_states(f, "a", "loading live evicting evicted -");
}

static void the_search_key_says_where(void **state)
{
    Fixture *f = *state;
    order(f, "a", "load");
    run_ms(f, 500);
    g_autofree char *key = key_of(f, "actual/search", "snap-a");
    const LhKv *kv = fake_etcd_get(f->server, key, 0);
    g_autofree char *snapshot = field(kv, "snapshot"), *replica = field(kv, "replica");
    g_autofree char *node = field(kv, "node"), *url = field(kv, "url");
    assert_string_equal(snapshot, "snap-a");
    assert_string_equal(replica, "a");
    assert_string_equal(node, node_id(f));
    assert_string_equal(url, "http://node/v1/files/a/");
    assert_true(kv->lease != 0);
}

static void a_load_of_what_is_held_updates_it(void **state)
{
    Fixture *f = *state;
    order(f, "a", "load");
    run_ms(f, 50);
    gint64 second = order(f, "a", "load");
    run_ms(f, 50);
    assert_item(f, "a", "loading", second);
    run_ms(f, 500);
    gint64 third = order(f, "a", "load");
    run_ms(f, 50);
    assert_item(f, "a", "live", third);
    assert_int_equal(f->work->loads, 1);
    assert_int_equal(f->work->releases, 0);
}

static void a_load_of_something_else_replaces_it(void **state)
{
    Fixture *f = *state;
    order(f, "a", "load");
    run_ms(f, 500);
    gint64 other = order_uri(f, "a", "load", "file:///data/other/");
    run_ms(f, 5000);
    assert_item(f, "a", "live", other);
    assert_int_equal(f->work->loads, 2);
    assert_int_equal(f->work->releases, 1);
    assert_states(f, "a", "loading live evicting loading live");
}

static void another_snapshot_takes_its_own_search_key(void **state)
{
    Fixture *f = *state;
    f->strict = FALSE;
    order(f, "a", "load");
    run_ms(f, 500);
    g_autofree char *key = key_of(f, "decided/assignments", "a");
    fake_etcd_put(
        f->server, key,
        "{\"action\":\"load\",\"since\":1,\"snapshot\":\"snap-b\",\"uri\":\"file:///data/s/\","
        "\"sizeBytes\":1000,\"set\":\"default\",\"controller\":\"c\",\"epoch\":1,"
        "\"rule\":\"r\",\"reason\":\"x\",\"evictGrace\":\"1s\"}",
        0);
    run_ms(f, 500);
    assert_false(has_search(f, "a"));
    run_ms(f, 5000);
    assert_false(has_search(f, "a"));
    assert_true(has_search(f, "b"));
}

static void evict_of_what_is_not_held_is_answered(void **state)
{
    Fixture *f = *state;
    gint64 evict = order(f, "a", "evict");
    run_ms(f, 100);
    assert_item(f, "a", "evicted", evict);
    assert_int_equal(f->work->loads + f->work->releases, 0);
    gint64 again = order(f, "a", "evict");
    run_ms(f, 100);
    assert_item(f, "a", "evicted", again);
}

static void a_deleted_assignment_means_evict(void **state)
{
    Fixture *f = *state;
    order(f, "a", "load");
    run_ms(f, 500);
    unassign(f, "a");
    run_ms(f, 500);
    assert_false(has_search(f, "a"));
    run_ms(f, 3000);
    assert_item(f, "a", NULL, 0);
    assert_int_equal(f->work->releases, 1);
    assert_states(f, "a", "loading live evicting -");
}

static void an_evict_cancels_a_load(void **state)
{
    Fixture *f = *state;
    order(f, "a", "load");
    run_ms(f, 100);
    gint64 evict = order(f, "a", "evict");
    run_ms(f, 500);
    assert_item(f, "a", "evicted", evict);
    assert_int_equal(f->work->releases, 1);
    assert_states(f, "a", "loading evicted"); /* never live */
}

static void a_deletion_cancels_a_load(void **state)
{
    Fixture *f = *state;
    order(f, "a", "load");
    run_ms(f, 100);
    unassign(f, "a");
    run_ms(f, 500);
    assert_item(f, "a", NULL, 0);
    assert_states(f, "a", "loading -");
}

static void a_load_during_the_grace_keeps_it(void **state)
{
    Fixture *f = *state;
    order(f, "a", "load");
    run_ms(f, 500);
    order(f, "a", "evict");
    run_ms(f, 500);
    gint64 load = order(f, "a", "load");
    run_ms(f, 5000);
    assert_item(f, "a", "live", load);
    assert_true(has_search(f, "a"));
    assert_int_equal(f->work->loads, 1);
    assert_int_equal(f->work->releases, 0);
}

static void a_load_during_the_release_loads_anew(void **state)
{
    Fixture *f = *state;
    f->work->release_ms = 1000;
    order(f, "a", "load");
    run_ms(f, 100);
    order(f, "a", "evict");
    run_ms(f, 100);
    gint64 load = order(f, "a", "load");
    run_ms(f, 5000);
    assert_item(f, "a", "live", load);
    assert_int_equal(f->work->loads, 2);
    assert_int_equal(f->work->releases, 1);
}

static void failed_says_why_and_can_be_tried_again(void **state)
{
    Fixture *f = *state;
    f->work->fail_loads = "x.bin: its sha256 is wrong";
    gint64 load = order(f, "a", "load");
    run_ms(f, 500);
    assert_item(f, "a", "failed", load);
    g_autofree char *message = item_field(f, "a", "message");
    assert_string_equal(message, "x.bin: its sha256 is wrong");
    assert_false(has_search(f, "a"));
    unassign(f, "a");
    run_ms(f, 500);
    assert_item(f, "a", NULL, 0);
    f->work->fail_loads = NULL;
    gint64 again = order(f, "a", "load");
    run_ms(f, 500);
    assert_item(f, "a", "live", again);
    g_autofree char *none = item_field(f, "a", "message");
    assert_null(none);
}

static void evict_of_what_failed_is_answered(void **state)
{
    Fixture *f = *state;
    f->work->fail_loads = "no";
    order(f, "a", "load");
    run_ms(f, 500);
    gint64 evict = order(f, "a", "evict");
    run_ms(f, 500);
    assert_item(f, "a", "evicted", evict);
}

static void work_may_end_by_done(void **state)
{
    Fixture *f = *state;
    f->work->finish = TRUE;
    gint64 load = order(f, "a", "load");
    run_ms(f, 500);
    assert_item(f, "a", "done", load);
    unassign(f, "a");
    run_ms(f, 500);
    assert_item(f, "a", NULL, 0);
}

static void a_release_that_fails_is_tried_again(void **state)
{
    Fixture *f = *state;
    f->work->fail_releases = 3;
    order(f, "a", "load");
    run_ms(f, 500);
    gint64 evict = order(f, "a", "evict");
    run_ms(f, 2500);
    assert_item(f, "a", "evicting", evict); /* something is still held */
    g_autofree char *message = item_field(f, "a", "message");
    assert_string_equal(message, "busy");
    run_ms(f, 20000);
    assert_item(f, "a", "evicted", evict);
}

static void what_is_not_understood_changes_nothing(void **state)
{
    Fixture *f = *state;
    gint64 load = order(f, "a", "load");
    run_ms(f, 500);
    const char *const bad[] = {"",
                               "nonsense",
                               "{}",
                               "{\"action\":\"explode\",\"since\":1}",
                               "[1]",
                               ("{\"action\":\"prepare\",\"since\":1,\"controller\":\"c\","
                                "\"epoch\":1,\"rule\":\"r\",\"reason\":\"x\"}")};
    g_autofree char *key = key_of(f, "decided/assignments", "a");
    g_autofree char *new_key = key_of(f, "decided/assignments", "b");
    for (gsize i = 0; i < G_N_ELEMENTS(bad); i++) {
        fake_etcd_put(f->server, key, bad[i], 0);
        fake_etcd_put(f->server, new_key, bad[i], 0);
        run_ms(f, 500);
        assert_item(f, "a", "live", load);
        assert_true(has_search(f, "a"));
        assert_item(f, "b", NULL, 0);
    }
    gint64 mended = order(f, "a", "load");
    run_ms(f, 500);
    assert_item(f, "a", "live", mended);
    assert_int_equal(f->work->loads, 1);
}

static void names_that_are_none_are_ignored(void **state)
{
    Fixture *f = *state;
    const char *const bad[] = {"a/b", "-a", "a b", "", "a\xc3"};
    for (gsize i = 0; i < G_N_ELEMENTS(bad); i++)
        order(f, bad[i], "load");
    run_ms(f, 1000);
    assert_int_equal(f->work->loads, 0);
    assert_true(is_registered(f));
}

static void orders_for_others_are_not_taken(void **state)
{
    Fixture *f = *state;
    g_autofree char *other = g_strdup_printf(PREFIX "decided/assignments/cache/%s0/a", node_id(f));
    g_autofree char *mine = key_of(f, "decided/assignments", "b");
    order(f, "b", "load");
    const LhKv *kv = fake_etcd_get(f->server, mine, 0);
    g_autofree char *value = g_strdup(kv->value);
    fake_etcd_put(f->server, other, value, 0);
    run_ms(f, 1000);
    assert_int_equal(f->work->loads, 1);
}

static void progress_is_told_sparingly(void **state)
{
    Fixture *f = *state;
    f->work->load_ms = 60000;
    f->work->progress_steps = 999;
    order(f, "a", "load");
    run_ms(f, 59000);
    guint writes = f->loading_writes;
    assert_true(writes <= 10);
    assert_true(writes >= 5);
    g_autofree char *done = item_field(f, "a", "bytesDone");
    assert_true(g_ascii_strtoll(done, NULL, 10) >= 800);
}

static void fast_progress_is_told_at_most_twice_a_second(void **state)
{
    Fixture *f = *state;
    f->work->load_ms = 2000;
    f->work->progress_steps = 500;
    order(f, "a", "load");
    run_ms(f, 3000);
    assert_true(f->loading_writes <= 5);
    assert_true(f->loading_writes >= 3);
    g_autofree char *done = item_field(f, "a", "bytesDone");
    assert_string_equal(done, "1000");
}

static void two_replicas_of_one_snapshot_share_the_search_key(void **state)
{
    Fixture *f = *state;
    f->strict = FALSE;
    g_autofree char *key_a = key_of(f, "decided/assignments", "a");
    g_autofree char *key_b = key_of(f, "decided/assignments", "b");
    order(f, "a", "load");
    g_autofree char *value = g_strdup(fake_etcd_get(f->server, key_a, 0)->value);
    fake_etcd_put(f->server, key_b, value, 0);
    run_ms(f, 500);
    assert_true(has_search(f, "a"));
    unassign(f, "a");
    run_ms(f, 4000);
    assert_true(has_search(f, "a")); /* b still serves it */
    g_autofree char *search = key_of(f, "actual/search", "snap-a");
    g_autofree char *replica = field(fake_etcd_get(f->server, search, 0), "replica");
    assert_string_equal(replica, "b");
    unassign(f, "b");
    run_ms(f, 4000);
    assert_false(has_search(f, "a"));
}

static void an_item_deleted_by_somebody_is_written_again(void **state)
{
    Fixture *f = *state;
    order(f, "a", "load");
    run_ms(f, 500);
    g_autofree char *key = key_of(f, "actual/items", "a");
    fake_etcd_delete(f->server, key, NULL);
    gint64 again = order(f, "a", "load");
    run_ms(f, 500);
    assert_item(f, "a", "live", again);
    fake_etcd_put(f->server, key, "garbage", 0);
    gint64 evict = order(f, "a", "evict");
    run_ms(f, 5000);
    assert_item(f, "a", "evicted", evict);
    assert_true(fake_etcd_get(f->server, key, 0)->lease != 0);
}

static void a_thousand_items(void **state)
{
    Fixture *f = *state;
    for (guint i = 0; i < 1000; i++) {
        g_autofree char *name = g_strdup_printf("i%u", i);
        order(f, name, "load");
    }
    run_ms(f, 5000);
    assert_int_equal(f->work->loads, 1000);
    g_autofree char *prefix = key_of(f, "actual/search", "");
    assert_int_equal(count_keys(f, prefix), 1000);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(load_live_evict_free),
        TEST(the_search_key_says_where),
        TEST(a_load_of_what_is_held_updates_it),
        TEST(a_load_of_something_else_replaces_it),
        TEST(another_snapshot_takes_its_own_search_key),
        TEST(evict_of_what_is_not_held_is_answered),
        TEST(a_deleted_assignment_means_evict),
        TEST(an_evict_cancels_a_load),
        TEST(a_deletion_cancels_a_load),
        TEST(a_load_during_the_grace_keeps_it),
        TEST(a_load_during_the_release_loads_anew),
        TEST(failed_says_why_and_can_be_tried_again),
        TEST(evict_of_what_failed_is_answered),
        TEST(work_may_end_by_done),
        TEST(a_release_that_fails_is_tried_again),
        TEST(what_is_not_understood_changes_nothing),
        TEST(names_that_are_none_are_ignored),
        TEST(orders_for_others_are_not_taken),
        TEST(progress_is_told_sparingly),
        TEST(fast_progress_is_told_at_most_twice_a_second),
        TEST(two_replicas_of_one_snapshot_share_the_search_key),
        TEST(an_item_deleted_by_somebody_is_written_again),
        TEST(a_thousand_items),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
