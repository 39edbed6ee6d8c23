/*
 * watcher.h on both servers: nothing lost, nothing twice, whole revisions, over closed streams,
 * crashes, fragments and compactions.
 */
#include "etcd/watcher.h"
#include "suite.h"

typedef struct {
    LhWatcher *watcher;
    GArray *revisions; /* mod_rev of each event */
    guint opened, interrupted, lost, progress;
    gint64 complete; /* all up to here */
    guint64 content; /* of the last event */
    gint64 compact_revision;
} Following;

static void on_opened(gpointer data)
{
    ((Following *)data)->opened++;
}

static void on_events(const LhEtcdEvent *events, gsize n, gint64 at, gpointer data)
{
    Following *following = data;
    following->progress += n == 0 ? 1 : 0;
    for (gsize i = 0; i < n; i++) {
        gint64 mod = events[i].kv.mod_rev;
        /* whole revisions: what comes is above all that was complete */
        assert_true(mod > following->complete);
        assert_true(mod <= at);
        assert_true(i == 0 || mod >= events[i - 1].kv.mod_rev);
        g_array_append_val(following->revisions, mod);
    }
    assert_true(n == 0 || events[n - 1].kv.mod_rev == at);
    if (n > 0)
        following->content = lh_watcher_content(&events[n - 1].kv);
    assert_true(at >= following->complete);
    following->complete = at;
}

static void on_interrupted(const GError *error, gpointer data)
{
    assert_int_equal(error->domain, LH_ERROR);
    ((Following *)data)->interrupted++;
}

static void on_lost(gint64 compact_revision, gpointer data)
{
    Following *following = data;
    following->lost++;
    following->compact_revision = compact_revision;
}

static const LhWatcherFuncs watcher_funcs = {on_opened, on_events, on_interrupted, on_lost};

static void unfollow(gpointer data)
{
    Following *following = data;
    lh_watcher_free(following->watcher);
    g_array_free(following->revisions, TRUE);
}

static Following *follow(gint64 start_revision, gint64 progress_ms, guint64 cluster_id)
{
    const LhWatcherOptions options = {.key = k("w/"),
                                      .range_end = kend("w/"),
                                      .start_revision = start_revision,
                                      .progress_ms = progress_ms,
                                      .cluster_id = cluster_id,
                                      .trust_progress = lh_etcd_progress_trusted(driver->version)};
    Following *following = scratch(sizeof(Following));
    following->revisions = g_array_new(FALSE, FALSE, sizeof(gint64));
    at_end(unfollow, following);
    following->watcher = lh_watcher_start(driver->env, driver->etcd, &options, &watcher_funcs,
                                          following);
    return following;
}

static gboolean is_opened(gpointer data)
{
    return ((Following *)data)->opened > 0;
}

static gboolean is_lost(gpointer data)
{
    return ((Following *)data)->lost > 0;
}

typedef struct {
    Following *following;
    gint64 revision;
} Reach;

static gboolean has_reached(gpointer data)
{
    const Reach *reach = data;
    return reach->following->complete >= reach->revision;
}

static void wait_revision(Following *following, gint64 at)
{
    Reach reach = {following, at};
    wait_for(has_reached, &reach);
}

/* Exactly @per events of each of the revisions first..last. */
static void assert_followed(const Following *following, gint64 first, gint64 last, guint per)
{
    assert_int_equal(following->revisions->len, (guint)(last - first + 1) * per);
    for (guint i = 0; i < following->revisions->len; i++) {
        assert_int_equal(g_array_index(following->revisions, gint64, i), first + i / per);
    }
}

static void watcher_from_now(void **state)
{
    put(k("w/a"), "before");
    Following *f = follow(0, 0, 0);
    wait_for(is_opened, f);
    gint64 first = put(k("w/a"), "1");
    gint64 last = put(k("w/a"), "2");
    wait_revision(f, last);
    assert_followed(f, first, last, 1);
    assert_true(lh_watcher_last_heard_ms(f->watcher) <= now_ms());
    put(k("w/a"), "3");
    let_pass(100);
}

static void watcher_from_history(void **state)
{
    gint64 first = put(k("w/a"), "1");
    put(k("w/b"), "2");
    gint64 last = put(k("w/a"), "3");
    Following *f = follow(first, 0, get(k("none"), 0)->header.cluster_id);
    wait_revision(f, last);
    last = put(k("w/c"), "4");
    wait_revision(f, last);
    assert_followed(f, first, last, 1);
}

static void watcher_delivers_whole_revisions(void **state)
{
    gint64 first = revision() + 1;
    LhTxnOp list[40];
    char *value = g_malloc(4001);
    keep(value);
    memset(value, 'x', 4000);
    value[4000] = '\0';
    for (guint i = 0; i < G_N_ELEMENTS(list); i++) {
        g_autofree char *name = g_strdup_printf("w/%u", i);
        list[i] = lh_txn_put(k(name), value, 0);
    }
    gint64 last = first;
    for (guint i = 0; i < 20; i++) { /* 3 MB: it comes in fragments */
        last = ops(list, G_N_ELEMENTS(list))->header.revision;
    }
    Following *f = follow(first, 0, 0);
    wait_revision(f, last);
    assert_followed(f, first, last, G_N_ELEMENTS(list));
    for (guint i = 0; i < 3; i++) {
        last = ops(list, G_N_ELEMENTS(list))->header.revision;
    }
    wait_revision(f, last);
    assert_followed(f, first, last, G_N_ELEMENTS(list));
    del(k("w/"), kend("w/"));
}

static void watcher_resumes_after_a_crash(void **state)
{
    Following *f = follow(0, 0, 0);
    wait_for(is_opened, f);
    gint64 first = put(k("w/a"), "1");
    wait_revision(f, first);
    driver->restart(driver);
    gint64 last = 0;
    for (guint i = 0; i < 100 && last == 0; i++) {
        const LhTxnOp op = lh_txn_put(k("w/a"), "2", 0);
        Answer *a = ops(&op, 1);
        if (a->ok) {
            last = a->header.revision;
        } else {
            assert_int_equal(lh_error_class((LhErrorCode)a->error), LH_CLASS_RETRY);
            let_pass(100);
        }
    }
    wait_revision(f, last);
    assert_true(f->interrupted >= 1);
    assert_true(f->opened >= 2);
    assert_int_equal(f->lost, 0);
    assert_followed(f, first, last, 1);
}

static void watcher_lives_through_a_freeze(void **state)
{
    Following *f = follow(0, 400, 0); /* it asks for progress, is not answered, opens anew */
    wait_for(is_opened, f);
    gint64 first = put(k("w/a"), "1");
    wait_revision(f, first);
    freeze_server();
    let_pass(2000);
    driver->thaw(driver);
    put(k("w/a"), "2");
    gint64 last = put(k("w/a"), "3");
    wait_revision(f, last);
    assert_true(f->interrupted >= 1);
    assert_followed(f, first, last, 1);
}

static gboolean has_progress(gpointer data)
{
    return ((Following *)data)->progress > 0;
}

static void watcher_stays_open_when_it_is_quiet(void **state)
{
    Following *f = follow(0, 300, 0);
    wait_for(is_opened, f);
    gint64 beside = put(k("beside"), "1");
    if (lh_etcd_progress_trusted(driver->version)) {
        wait_for(has_progress, f);
        assert_int_equal(f->complete, beside);
    } else {
        let_pass(2000);
    }
    assert_int_equal(f->opened, 1);
    assert_int_equal(f->interrupted, 0);
    assert_true(now_ms() - lh_watcher_last_heard_ms(f->watcher) <= 1000);
}

static void watcher_is_lost_when_compacted(void **state)
{
    gint64 first = put(k("w/a"), "1");
    put(k("w/a"), "2");
    gint64 third = put(k("w/a"), "3");
    driver->compact(driver, third);
    Following *f = follow(first, 0, 0);
    wait_for(is_lost, f);
    assert_int_equal(f->compact_revision, third);
    assert_int_equal(f->revisions->len, 0);
    put(k("w/a"), "4");
    let_pass(300);
    assert_int_equal(f->lost, 1);
    assert_int_equal(f->revisions->len, 0);
}

static void watcher_is_lost_in_another_cluster(void **state)
{
    Following *f = follow(0, 0, 12345);
    wait_for(is_lost, f);
    assert_int_equal(f->compact_revision, 0);
}

/* As after a restore from a backup: the store is behind the cursor. */
static void watcher_is_lost_when_the_revision_went_back(void **state)
{
    Following *f = follow(revision() + 1000, 0, 0);
    wait_for(is_lost, f);
    assert_int_equal(f->compact_revision, 0);
}

/* As the mirror does after a list, whose newest key was @witness. */
static Following *follow_list(const char *witness, gint64 witness_rev, guint64 content)
{
    const LhWatcherOptions options = {.key = k("w/"),
                                      .range_end = kend("w/"),
                                      .start_revision = witness_rev + 1,
                                      .listed = TRUE,
                                      .witness = witness,
                                      .witness_rev = witness_rev,
                                      .witness_content = content};
    Following *following = scratch(sizeof(Following));
    following->revisions = g_array_new(FALSE, FALSE, sizeof(gint64));
    at_end(unfollow, following);
    following->watcher = lh_watcher_start(driver->env, driver->etcd, &options, &watcher_funcs,
                                          following);
    return following;
}

static void wait_until_it_answers(void)
{
    for (guint i = 0; i < 100; i++) {
        if (get(k("w/a"), 0)->ok)
            return;
        let_pass(100);
    }
    fail_msg("etcd does not answer after its restoration");
}

/* An older store is put back, and goes on past the revision that was heard: the same cluster, the same key at
 * the same revision, as often written as before; only its value is another. */
static void watcher_is_lost_in_another_history(void **state)
{
    put(k("w/a"), "0");
    driver->back_up(driver);
    wait_until_it_answers();
    Following *before = follow(0, 0, 0);
    wait_for(is_opened, before);
    gint64 heard = 0, again;
    for (guint i = 0; i < 5; i++)
        heard = put(k("w/a"), "one");
    guint64 cluster = get(k("w/a"), 0)->header.cluster_id;
    wait_revision(before, heard);
    Following *same = follow_list(k("w/a"), heard, before->content);
    wait_for(is_opened, same);
    assert_int_equal(same->lost, 0);
    lh_watcher_free(before->watcher);
    lh_watcher_free(same->watcher);
    before->watcher = same->watcher = NULL;

    driver->restore(driver);
    wait_until_it_answers();
    do
        again = put(k("w/a"), "two");
    while (again < heard);
    put(k("w/b"), "three");
    Answer *now = get(k("w/a"), heard);
    assert_int_equal(now->header.cluster_id, cluster);
    if (again == heard) /* else a lease of an earlier test ended at that very revision */
        assert_int_equal(now->kvs[0].mod_rev, heard);
    Following *other = follow_list(k("w/a"), heard, before->content);
    wait_for(is_lost, other);
    assert_int_equal(other->compact_revision, 0);
    assert_int_equal(other->opened, 0);
    assert_int_equal(other->revisions->len, 0);
}

const struct CMUnitTest watcher_tests[] = {
    TEST(watcher_from_now),
    TEST(watcher_from_history),
    TEST(watcher_delivers_whole_revisions),
    TEST(watcher_resumes_after_a_crash),
    TEST(watcher_lives_through_a_freeze),
    TEST(watcher_stays_open_when_it_is_quiet),
    TEST(watcher_is_lost_when_compacted),
    TEST(watcher_is_lost_in_another_cluster),
    TEST(watcher_is_lost_when_the_revision_went_back),
    TEST(watcher_is_lost_in_another_history),
    NO_MORE_TESTS,
};
