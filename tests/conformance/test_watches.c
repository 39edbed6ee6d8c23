/*
 * Conformance of watches below watcher.h: what a stream says, in which order, and how it ends.
 */
#include "suite.h"

static const Reply *reply_at(const Watching *w, guint i)
{
    assert_true(i < w->replies->len);
    return w->replies->pdata[i];
}

/* Revisions never fall, over all replies. */
static void assert_ordered(const Watching *w)
{
    for (guint i = 1; i < w->events->len; i++) {
        assert_true(event_at(w, i - 1)->mod_rev <= event_at(w, i)->mod_rev);
    }
}

static void watch_says_that_it_is_created(void **state)
{
    gint64 before = put(k("a"), "");
    Watching *w = watch_created(k("a"), NULL, 0);
    const Reply *first = reply_at(w, 0);
    assert_true(first->created);
    assert_int_equal(first->n, 0);
    assert_int_equal(first->header.revision, before);
    assert_int_not_equal(first->header.cluster_id, 0);
    assert_false(first->canceled || first->progress || first->fragment);
    assert_int_equal(first->compact_revision, 0);
}

static void watch_from_now_hears_only_what_follows(void **state)
{
    put(k("a"), "before");
    Watching *w = watch_created(k("a"), NULL, 0);
    gint64 one = put(k("a"), "one");
    gint64 two = put(k("a"), "two");
    wait_events(w, 2);
    assert_int_equal(event_at(w, 0)->mod_rev, one);
    assert_string_equal(event_at(w, 0)->value, "one");
    assert_int_equal(event_at(w, 0)->version, 2);
    assert_int_equal(event_at(w, 1)->mod_rev, two);
    assert_false(event_at(w, 1)->is_delete);
}

static void watch_from_a_revision_includes_it(void **state)
{
    gint64 first = put(k("h/a"), "1");
    gint64 second = put(k("h/b"), "2");
    gint64 third = put(k("h/a"), "3");
    Watching *at = watch(k("h/"), kend("h/"), second);
    wait_events(at, 2);
    assert_int_equal(event_at(at, 0)->mod_rev, second);
    assert_int_equal(event_at(at, 1)->mod_rev, third);
    Watching *after = watch_created(k("h/"), kend("h/"), third + 1);
    Watching *all = watch(k("h/"), kend("h/"), first);
    wait_events(all, 3);
    gint64 fourth = put(k("h/c"), "4");
    wait_events(all, 4);
    wait_events(at, 3);
    wait_events(after, 1);
    assert_int_equal(event_at(after, 0)->mod_rev, fourth);
    assert_ordered(all);
}

static void watch_from_history_shows_values_as_they_were(void **state)
{
    gint64 first = put(k("a"), "1");
    put(k("a"), "2");
    del(k("a"), NULL);
    gint64 last = put(k("a"), "3");
    Watching *w = watch(k("a"), NULL, first);
    wait_events(w, 4);
    assert_string_equal(event_at(w, 0)->value, "1");
    assert_int_equal(event_at(w, 1)->version, 2);
    assert_int_equal(event_at(w, 1)->create_rev, first);
    assert_true(event_at(w, 2)->is_delete);
    assert_int_equal(event_at(w, 3)->create_rev, last);
}

static void watch_hears_a_transaction_at_one_revision(void **state)
{
    put(k("t/old"), "");
    put(k("u/other"), "");
    Watching *w = watch_created(k("t/"), kend("t/"), 0);
    const LhTxnOp list[] = {lh_txn_put(k("t/z"), "", 0), lh_txn_delete(k("t/old")),
                            lh_txn_put(k("u/other"), "", 0), lh_txn_put(k("t/a"), "", 0)};
    gint64 at = ops(list, 4)->header.revision;
    wait_events(w, 3);
    /* in the order of the ops, in one reply */
    assert_string_equal(event_at(w, 0)->key, k("t/z"));
    assert_string_equal(event_at(w, 1)->key, k("t/old"));
    assert_string_equal(event_at(w, 2)->key, k("t/a"));
    assert_true(event_at(w, 1)->is_delete);
    for (guint i = 0; i < 3; i++) {
        assert_int_equal(event_at(w, i)->mod_rev, at);
    }
    const Reply *last = reply_at(w, w->replies->len - 1);
    assert_int_equal(last->n, 3);
    assert_true(last->header.revision >= at);
}

static void watch_hears_deletions_with_key_and_revision_only(void **state)
{
    gint64 lease = grant(60);
    put_leased(k("d/a"), "value", lease);
    put(k("d/b"), "value");
    Watching *w = watch_created(k("d/"), kend("d/"), 0);
    gint64 at = del(k("d/"), kend("d/"));
    del(k("d/a"), NULL); /* not there: no event */
    wait_events(w, 2);
    for (guint i = 0; i < 2; i++) {
        const Kv *event = event_at(w, i);
        assert_true(event->is_delete);
        assert_string_equal(event->key, k(i == 0 ? "d/a" : "d/b"));
        assert_int_equal(event->mod_rev, at);
        assert_int_equal(event->value_len, 0);
        assert_int_equal(event->create_rev, 0);
        assert_int_equal(event->version, 0);
        assert_int_equal(event->lease, 0);
    }
    drop_lease(lease);
}

static void watch_of_a_key_is_not_of_a_prefix(void **state)
{
    Watching *w = watch_created(k("job_1"), NULL, 0);
    put(k("job_1/x"), "");
    put(k("job_10"), "");
    put(k("job_"), "");
    gint64 at = put(k("job_1"), "");
    wait_events(w, 1);
    assert_int_equal(event_at(w, 0)->mod_rev, at);
}

static void watch_of_a_prefix_ends_at_its_separator(void **state)
{
    Watching *slash = watch_created(k("job_1/"), kend("job_1/"), 0);
    Watching *dot = watch_created(k("job_1."), kend("job_1."), 0);
    Watching *loose = watch_created(k("job_1"), k("job_2"), 0);
    const char *names[] = {"job_10/x", "job_1", "job_1/x", "job_1.x", "job_1/", "job_2", "job_0/x"};
    for (gsize i = 0; i < G_N_ELEMENTS(names); i++) {
        put(k(names[i]), "");
    }
    wait_events(loose, 5);
    wait_events(slash, 2);
    wait_events(dot, 1);
    assert_string_equal(event_at(slash, 0)->key, k("job_1/x"));
    assert_string_equal(event_at(slash, 1)->key, k("job_1/"));
    assert_string_equal(event_at(dot, 0)->key, k("job_1.x"));
}

static void watch_of_a_range_is_not_of_a_prefix(void **state)
{
    Watching *w = watch_created(k("b/"), k("b2"), 0); /* as long as a prefix's end, but another */
    const char *names[] = {"a/x", "b/x", "b0", "b1/x", "b2", "b3", "c/x", "b."};
    for (gsize i = 0; i < G_N_ELEMENTS(names); i++) {
        put(k(names[i]), "");
    }
    wait_events(w, 3);
    const char *heard[] = {"b/x", "b0", "b1/x"};
    for (guint i = 0; i < G_N_ELEMENTS(heard); i++) {
        assert_string_equal(event_at(w, i)->key, k(heard[i]));
    }
}

static void watch_from_the_future_waits_for_it(void **state)
{
    if (version_before("3.4.38")) {
        print_message("# skipped: etcd %s sends older events to it (fixed in 3.4.38)\n",
                      driver->version);
        return; /* skip() is a failure in this cmocka's TAP */
    }
    gint64 now = put(k("a"), "");
    Watching *w = watch_created(k("a"), NULL, now + 3);
    put(k("a"), "");
    put(k("a"), "");
    gint64 at = put(k("a"), "");
    assert_int_equal(at, now + 3);
    wait_events(w, 1);
    assert_int_equal(event_at(w, 0)->mod_rev, at);
}

static gboolean is_canceled(gpointer data)
{
    const Watching *w = data;
    return w->replies->len > 0 && reply_at(w, w->replies->len - 1)->canceled;
}

static void watch_from_a_compacted_revision_is_canceled(void **state)
{
    gint64 first = put(k("a"), "1");
    put(k("a"), "2");
    gint64 third = put(k("a"), "3");
    driver->compact(driver, third);
    Watching *w = watch(k("a"), NULL, first);
    wait_for(is_canceled, w);
    assert_int_equal(w->created, 1);
    const Reply *last = reply_at(w, w->replies->len - 1);
    assert_int_equal(last->compact_revision, third);
    assert_int_equal(last->header.revision, 0);
    assert_int_equal(last->n, 0);
    assert_int_equal(w->events->len, 0);

    gint64 fourth = put(k("a"), "4");
    Watching *after = watch(k("a"), NULL, third + 1);
    wait_events(after, 1);
    assert_int_equal(event_at(after, 0)->mod_rev, fourth);
    assert_int_equal(w->events->len, 0);
}

static void watch_from_the_compaction_revision_itself(void **state)
{
    put(k("a"), "1");
    gint64 second = put(k("a"), "2");
    driver->compact(driver, second);
    Watching *w = watch(k("a"), NULL, second);
    wait_events(w, 1);
    assert_string_equal(event_at(w, 0)->value, "2");
}

static void watch_goes_on_over_a_compaction(void **state)
{
    Watching *w = watch_created(k("a"), NULL, 0);
    put(k("a"), "1");
    wait_events(w, 1);
    gint64 second = put(k("a"), "2");
    wait_events(w, 2);
    driver->compact(driver, second);
    gint64 third = put(k("a"), "3");
    wait_events(w, 3);
    assert_int_equal(event_at(w, 2)->mod_rev, third);
}

static gboolean has_progress(gpointer data)
{
    const Watching *w = data;
    return w->replies->len > 0 && reply_at(w, w->replies->len - 1)->progress;
}

static void watch_answers_a_progress_request(void **state)
{
    Watching *w = watch_created(k("a/"), kend("a/"), 0);
    put(k("a/1"), "");
    gint64 at = put(k("beside"), "");
    wait_events(w, 1);
    driver->etcd->v->watch_progress(driver->etcd, w->stream);
    wait_for(has_progress, w);
    const Reply *last = reply_at(w, w->replies->len - 1);
    assert_int_equal(last->n, 0);
    assert_int_equal(last->header.revision, at);
    assert_false(last->created || last->canceled);
    assert_int_equal(w->events->len, 1);
}

static void watch_progress_is_never_ahead_of_events(void **state)
{
    if (!lh_etcd_progress_trusted(driver->version)) {
        print_message("# skipped: etcd %s may be ahead (fixed in 3.4.25)\n", driver->version);
        return; /* skip() is a failure in this cmocka's TAP */
    }
    gint64 first = put(k("p/0"), "");
    for (guint i = 0; i < 50; i++) {
        put(k("p/x"), "");
    }
    Watching *w = watch_created(k("p/"), kend("p/"), first);
    for (guint i = 0; i < 200 && !has_progress(w); i++) {
        put(k("p/y"), "");
        driver->etcd->v->watch_progress(driver->etcd, w->stream);
    }
    wait_for(has_progress, w);
    gint64 said = reply_at(w, w->replies->len - 1)->header.revision;
    assert_int_equal(event_at(w, w->events->len - 1)->mod_rev, said);
    assert_int_equal(w->events->len, said - first + 1);
}

/* 3 MB of history: etcd cuts a reply over 1.5 MiB into fragments. */
static void watch_fragments_large_replies(void **state)
{
    gsize len = 60000;
    char *value = g_malloc(len + 1);
    keep(value);
    memset(value, 'x', len);
    value[len] = '\0';
    gint64 first = 0;
    for (guint i = 0; i < 50; i++) {
        g_autofree char *name = g_strdup_printf("f/%u", i);
        gint64 at = put(k(name), value);
        first = i == 0 ? at : first;
    }
    Watching *w = watch(k("f/"), kend("f/"), first);
    wait_events(w, 50);
    guint fragments = 0;
    for (guint i = 0; i < w->replies->len; i++) {
        const Reply *reply = reply_at(w, i);
        fragments += reply->fragment ? 1 : 0;
        assert_true(!reply->fragment || reply->n > 0);
    }
    assert_true(fragments > 0);
    assert_false(reply_at(w, w->replies->len - 1)->fragment);
    for (guint i = 0; i < 50; i++) {
        assert_int_equal(event_at(w, i)->mod_rev, first + i);
        assert_int_equal(event_at(w, i)->value_len, len);
    }
    del(k("f/"), kend("f/"));
}

/* More revisions than etcd puts into one reply; the header is ahead of the events then. */
static void watch_catches_up_in_order(void **state)
{
    enum { N = 2500, BATCH = 100 };
    gint64 first = revision() + 1;
    for (guint i = 0; i < N / BATCH; i++) {
        Answer *answers[BATCH];
        for (guint j = 0; j < BATCH; j++) {
            const LhTxnOp list[] = {lh_txn_put(k("c/a"), "", 0), lh_txn_put(k("c/b"), "", 0)};
            const LhTxnRequest request = {.success = list, .n_success = 2};
            answers[j] = start_txn(&request, LH_ETCD_DEADLINE_MS);
        }
        for (guint j = 0; j < BATCH; j++) {
            wait_for(answered, answers[j]);
            assert_true(answers[j]->ok);
        }
    }
    Watching *w = watch(k("c/"), kend("c/"), first);
    wait_events(w, 2 * N);
    for (guint i = 0; i < N; i++) {
        assert_int_equal(event_at(w, 2 * i)->mod_rev, first + i);
        assert_int_equal(event_at(w, 2 * i + 1)->mod_rev, first + i);
    }
    for (guint i = 0; i < w->replies->len; i++) {
        const Reply *reply = reply_at(w, i);
        /* without fragments, a revision is never cut */
        if (reply->n > 0 && !reply->fragment && i > 0 && !reply_at(w, i - 1)->fragment) {
            assert_int_equal(reply->n % 2, 0);
            assert_true(reply->header.revision >= reply->events[reply->n - 1].mod_rev);
        }
    }
    put(k("c/a"), "last");
    wait_events(w, 2 * N + 1);
}

static void watch_closed_is_silent(void **state)
{
    Watching *w = watch_created(k("a"), NULL, 0);
    Watching *other = watch_created(k("a"), NULL, 0);
    put(k("a"), "1");
    wait_events(w, 1);
    unwatch(w);
    put(k("a"), "2");
    wait_events(other, 2);
    let_pass(200);
    assert_int_equal(w->events->len, 1);
    assert_int_equal(w->closed, 0);
    /* closed before it is open */
    Watching *early = watch(k("a"), NULL, 0);
    unwatch(early);
    put(k("a"), "3");
    wait_events(other, 3);
    let_pass(200);
    assert_int_equal(early->replies->len, 0);
}

static void watches_are_independent(void **state)
{
    gint64 first = put(k("a"), "1");
    driver->compact(driver, put(k("a"), "2"));
    Watching *good = watch_created(k("a"), NULL, 0);
    Watching *bad = watch(k("a"), NULL, first);
    wait_for(is_canceled, bad);
    put(k("a"), "3");
    wait_events(good, 1);
    assert_int_equal(good->closed, 0);
}

const struct CMUnitTest watch_tests[] = {
    TEST(watch_says_that_it_is_created),
    TEST(watch_from_now_hears_only_what_follows),
    TEST(watch_from_a_revision_includes_it),
    TEST(watch_from_history_shows_values_as_they_were),
    TEST(watch_hears_a_transaction_at_one_revision),
    TEST(watch_hears_deletions_with_key_and_revision_only),
    TEST(watch_of_a_key_is_not_of_a_prefix),
    TEST(watch_of_a_prefix_ends_at_its_separator),
    TEST(watch_of_a_range_is_not_of_a_prefix),
    TEST(watch_from_the_future_waits_for_it),
    TEST(watch_from_a_compacted_revision_is_canceled),
    TEST(watch_from_the_compaction_revision_itself),
    TEST(watch_goes_on_over_a_compaction),
    TEST(watch_answers_a_progress_request),
    TEST(watch_progress_is_never_ahead_of_events),
    TEST(watch_fragments_large_replies),
    TEST(watch_catches_up_in_order),
    TEST(watch_closed_is_silent),
    TEST(watches_are_independent),
    NO_MORE_TESTS,
};
