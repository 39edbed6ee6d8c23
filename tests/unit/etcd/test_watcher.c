/*
 * etcd/watcher over a scripted etcd and virtual time.
 *
 * What a careful client does (references/etcd-client-practice.md), and where it is held to it. C is
 * tests/conformance/ (the fake and a real etcd), the other names are of tests/unit/etcd/.
 *
 *   Lease cadence      test_lease: renewed_every_third, deadline_counts_from_sending; CLOCK_BOOTTIME is
 *                      env_glib's (tests/unit/base/test_env_glib)
 *   Leader change      leases are extended by etcd: nothing of ours to test; stalls: test_lease:
 *                      doubt_at_the_deadline, test_keepalive: late_answer_is_not_the_next_ones
 *   Keepalive lost     test_lease: unanswered is doubt, only TTL 0 or NOT_FOUND is lost; C: test_leases
 *   Heartbeats         no key is written here at all
 *   hasleader          transport_grpc.c sets it on every stream; needs a member without quorum: chaos
 *   HTTP/2 pings       channel arguments, transport_grpc.c; a frozen etcd: C: test_keeper
 *   Progress           silence_is_asked_about, progress_is_believed_only_if_trusted
 *   Fragments          fragments_are_joined, fragments_of_a_lost_stream_are_forgotten,
 *                      any_fragmentation_and_any_closing
 *   Atomicity          the same, and the_headers_revision_is_no_progress
 *   Compaction         compaction_is_lost; relist and synthesised deletions are the mirror's
 *   Prefixes           test_etcd: prefix_ends
 *   Slow consumer      transport_grpc.c reads on while the loop is busy, 32 MiB for each stream; no test
 *                      (needs a blocked loop and more than that of events)
 *   Lists              test_list, C: test_lists
 *   Reads              test_list: every request is linearizable; another_cluster_is_lost, revision_that_went_back,
 *                      a_member_that_lags, a_put_of_another_history_is_lost and those after it
 *   Limits             test_etcd: transactions_that_etcd_would_refuse
 *   Retries            test_rpc_status: a write's failure is UNKNOWN_OUTCOME unless etcd refused it;
 *                      unsent writes: test_remote
 *   NOSPACE            test_rpc_status; alarms: C: test_calls
 *   Overload           test_rpc_status; test_lease and this file: backoff with jitter; the connection
 *                      of leases: transport_grpc.h
 *   Auth               not supported yet: test_remote: options_that_are_refused
 *   Locks              the runtime's fence
 *   Bugs by version    progress (3.4.25): progress_is_believed_only_if_trusted, test_etcd:
 *                      trusted_versions; old events (3.4.38): events_before_the_start_are_dropped;
 *                      renewal of a revoked lease (3.4.38): lease.h says what is proof; events lost
 *                      after compaction (3.4.31, 3.4.36): not to be seen from here, the mirror relists
 */
/* links: fakes */
#include "etcd/watcher.h"
#include "tests/fakes/env_sim.h"
#include "tests/unit/etcd/script.h"

typedef enum { CALL_NONE, CALL_OPENED, CALL_EVENTS, CALL_INTERRUPTED, CALL_LOST } Callback;

typedef struct {
    SimWorld *world;
    LhEnv *env;
    Script *etcd;
    LhWatcher *watcher;
    GString *seen; /* "opened", "events 5 6 |6", … */
    Callback free_in;
} Fixture;

static void maybe_free(Fixture *f, Callback callback)
{
    if (f->free_in != callback)
        return;
    lh_watcher_free(f->watcher);
    f->watcher = NULL;
}

static void on_opened(gpointer data)
{
    Fixture *f = data;
    g_string_append(f->seen, "opened\n");
    maybe_free(f, CALL_OPENED);
}

static void on_events(const LhEtcdEvent *events, gsize n, gint64 revision, gpointer data)
{
    Fixture *f = data;
    g_string_append(f->seen, "events");
    for (gsize i = 0; i < n; i++)
        g_string_append_printf(f->seen, " %s@%" G_GINT64_FORMAT, events[i].kv.key,
                               events[i].kv.mod_rev);
    g_string_append_printf(f->seen, " |%" G_GINT64_FORMAT "\n", revision);
    maybe_free(f, CALL_EVENTS);
}

static void on_interrupted(const GError *error, gpointer data)
{
    Fixture *f = data;
    assert_int_equal(error->code, LH_ERR_UNAVAILABLE);
    g_string_append(f->seen, "interrupted\n");
    maybe_free(f, CALL_INTERRUPTED);
}

static void on_lost(gint64 compact_revision, gpointer data)
{
    Fixture *f = data;
    g_string_append_printf(f->seen, "lost %" G_GINT64_FORMAT "\n", compact_revision);
    maybe_free(f, CALL_LOST);
}

static void start(Fixture *f, gint64 start_revision, gboolean trust_progress)
{
    static const LhWatcherFuncs funcs = {
        .opened = on_opened, .events = on_events, .interrupted = on_interrupted, .lost = on_lost};
    LhWatcherOptions options = {.key = "/p/",
                                .range_end = "/p0",
                                .start_revision = start_revision,
                                .cluster_id = CLUSTER,
                                .progress_ms = 1000,
                                .trust_progress = trust_progress};
    f->watcher = lh_watcher_start(f->env, &f->etcd->base, &options, &funcs, f);
}

static int setup(void **state)
{
    Fixture *f = g_new0(Fixture, 1);
    f->world = sim_world_new(1);
    f->env = sim_machine_new(f->world, "m");
    f->etcd = script_new();
    f->seen = g_string_new(NULL);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    Fixture *f = *state;
    lh_watcher_free(f->watcher);
    script_free(f->etcd);
    assert_int_equal(sim_world_pending(f->world), 0);
    sim_world_free(f->world);
    g_string_free(f->seen, TRUE);
    g_free(f);
    return 0;
}

static void expect(Fixture *f, const char *text)
{
    assert_string_equal(f->seen->str, text);
    g_string_truncate(f->seen, 0);
}

static void pass(Fixture *f, gint64 ms)
{
    sim_world_run_until(f->world, sim_world_now_ms(f->world) + ms);
}

/* Events "a", "b", … of these revisions. */
static void send(Fixture *f, gboolean fragment, gint64 header_revision, const gint64 *revisions)
{
    static const char *const names[] = {"a", "b", "c", "d", "e", "f"};
    LhEtcdEvent events[G_N_ELEMENTS(names)];
    gsize n = 0;
    for (; revisions[n] != 0; n++)
        events[n] = (LhEtcdEvent){
            .kv = {.key = names[n], .key_len = 1, .value = "", .mod_rev = revisions[n]}};
    script_reply(f->etcd, (LhWatchReply){.header.revision = header_revision,
                                         .fragment = fragment,
                                         .events = events,
                                         .n_events = n});
}

#define REVISIONS(...) ((const gint64[]){__VA_ARGS__, 0})

/* Opens a watcher whose next revision is @cursor. */
static void start_open(Fixture *f, gint64 cursor)
{
    start(f, cursor, FALSE);
    script_created(f->etcd, cursor);
    expect(f, "opened\n");
}

/* The watcher asks whether @key was put at @revision; etcd has @value of @present then (0: not at all). */
static void answer_witness_value(Fixture *f, const char *key, gint64 revision, gint64 present,
                                 const char *value)
{
    const ScriptCall *call = script_peek(f->etcd, S_RANGE);
    LhKv kv = {.key = key,
               .key_len = strlen(key),
               .value = value,
               .value_len = strlen(value),
               .mod_rev = present};
    LhRangeReply reply = {.header = {.cluster_id = CLUSTER, .revision = 1000000},
                          .kvs = &kv,
                          .n_kvs = present == 0 ? 0 : 1,
                          .count = present == 0 ? 0 : 1};
    assert_string_equal(call->key, key);
    assert_int_equal(call->revision, revision);
    assert_false(call->serializable);
    script_answer_range(f->etcd, &reply);
}

static void answer_witness(Fixture *f, const char *key, gint64 revision, gint64 present)
{
    answer_witness_value(f, key, revision, present, "");
}

static void from_now_on_means_after_the_created_reply(void **state)
{
    Fixture *f = *state;
    start(f, 0, FALSE);
    assert_string_equal(f->etcd->stream->key, "/p/");
    assert_string_equal(f->etcd->stream->range_end, "/p0");
    assert_int_equal(f->etcd->stream->start_revision, 0);
    expect(f, "");
    script_created(f->etcd, 41);
    expect(f, "opened\n");
    script_close(f->etcd);
    expect(f, "interrupted\n");
    pass(f, 100);
    assert_int_equal(f->etcd->stream->start_revision, 42);
}

static void closed_before_created_begins_from_now_again(void **state)
{
    Fixture *f = *state;
    start(f, 0, FALSE);
    script_close(f->etcd);
    pass(f, 100);
    assert_int_equal(f->etcd->stream->start_revision, 0);
    expect(f, "interrupted\n");
}

static void resumes_after_the_last_whole_revision(void **state)
{
    Fixture *f = *state;
    start_open(f, 5);
    send(f, FALSE, 6, REVISIONS(5, 5, 6));
    expect(f, "events a@5 b@5 c@6 |6\n");
    script_close(f->etcd);
    assert_null(f->etcd->stream);
    pass(f, 100);
    assert_int_equal(f->etcd->stream->start_revision, 7);
    script_created(f->etcd, 6);
    answer_witness(f, "c", 6, 6);
    expect(f, "interrupted\n");
    answer_witness(f, "b", 5, 5);
    expect(f, "opened\n");
}

static void the_headers_revision_is_no_progress(void **state)
{
    Fixture *f = *state;
    start_open(f, 5);
    send(f, FALSE, 9000, REVISIONS(5));
    script_close(f->etcd);
    pass(f, 100);
    assert_int_equal(f->etcd->stream->start_revision, 6);
}

static void fragments_are_joined(void **state)
{
    Fixture *f = *state;
    start_open(f, 5);
    send(f, TRUE, 7, REVISIONS(5, 6, 6));
    expect(f, "events a@5 |5\n");
    send(f, TRUE, 7, REVISIONS(6));
    expect(f, "");
    send(f, TRUE, 7, REVISIONS(6, 7));
    expect(f, "events b@6 c@6 a@6 a@6 |6\n");
    send(f, FALSE, 7, REVISIONS(7));
    expect(f, "events b@7 a@7 |7\n");
    send(f, FALSE, 8, REVISIONS(8));
    expect(f, "events a@8 |8\n");
}

static void fragments_of_a_lost_stream_are_forgotten(void **state)
{
    Fixture *f = *state;
    start_open(f, 5);
    send(f, TRUE, 6, REVISIONS(5, 6));
    expect(f, "events a@5 |5\n");
    script_close(f->etcd);
    pass(f, 100);
    assert_int_equal(f->etcd->stream->start_revision, 6);
    script_created(f->etcd, 6);
    answer_witness(f, "a", 5, 5);
    send(f, FALSE, 6, REVISIONS(6, 6));
    expect(f, "interrupted\nopened\nevents a@6 b@6 |6\n");
}

static void events_before_the_start_are_dropped(void **state)
{
    Fixture *f = *state;
    start_open(f, 5);
    send(f, FALSE, 6, REVISIONS(3, 4, 5));
    expect(f, "events c@5 |5\n");
    send(f, FALSE, 6, REVISIONS(4, 5));
    expect(f, "");
}

static void compaction_is_lost(void **state)
{
    Fixture *f = *state;
    start_open(f, 5);
    script_reply(f->etcd, (LhWatchReply){.canceled = TRUE, .compact_revision = 90});
    expect(f, "lost 90\n");
    assert_null(f->etcd->stream);
    pass(f, 60000);
    assert_int_equal(f->etcd->opened, 1);
    expect(f, "");
}

static void another_cluster_is_lost(void **state)
{
    Fixture *f = *state;
    start(f, 5, FALSE);
    script_reply(f->etcd, (LhWatchReply){.header = {.cluster_id = CLUSTER + 1, .revision = 500},
                                         .created = TRUE});
    expect(f, "lost 0\n");
}

static void answer_revision(Fixture *f, gint64 revision)
{
    script_answer_range(f->etcd,
                        &(LhRangeReply){.header = {.cluster_id = CLUSTER, .revision = revision}});
}

static void a_member_that_lags(void **state)
{
    Fixture *f = *state;
    start(f, 100, FALSE);
    script_created(f->etcd, 90);
    assert_false(script_peek(f->etcd, S_RANGE)->serializable);
    answer_revision(f, 99);
    send(f, FALSE, 100, REVISIONS(100));
    expect(f, "opened\nevents a@100 |100\n");
}

static void revision_that_went_back(void **state)
{
    Fixture *f = *state;
    start(f, 100, FALSE);
    script_created(f->etcd, 98);
    expect(f, "opened\n");
    answer_revision(f, 98);
    expect(f, "lost 0\n");
}

static void a_doubtful_revision_that_cannot_be_verified(void **state)
{
    Fixture *f = *state;
    start(f, 100, FALSE);
    script_created(f->etcd, 90);
    script_fail(f->etcd, S_RANGE, LH_ERR_UNAVAILABLE);
    expect(f, "opened\ninterrupted\n");
    pass(f, 100);
    script_created(f->etcd, 90);
    answer_revision(f, 42);
    expect(f, "opened\nlost 0\n");
}

static void silence_is_asked_about(void **state)
{
    Fixture *f = *state;
    start_open(f, 5);
    pass(f, 999);
    assert_int_equal(f->etcd->stream->progress_asked, 0);
    pass(f, 1);
    assert_int_equal(f->etcd->stream->progress_asked, 1);
    gint64 asked_at_ms = lh_mono_ms(f->env);
    pass(f, 500);
    script_reply(f->etcd, (LhWatchReply){.header.revision = 50, .progress = TRUE});
    assert_int_equal(lh_watcher_last_heard_ms(f->watcher), asked_at_ms + 500);
    pass(f, 999);
    assert_int_equal(f->etcd->stream->progress_asked, 1);
    pass(f, 501);
    assert_int_equal(f->etcd->stream->progress_asked, 2);
    assert_int_equal(f->etcd->opened, 1);
    expect(f, "");
}

static void silence_after_asking_opens_a_new_stream(void **state)
{
    Fixture *f = *state;
    start_open(f, 5);
    pass(f, 2000);
    expect(f, "interrupted\n");
    assert_int_equal(f->etcd->closed, 1);
    pass(f, 100);
    assert_int_equal(f->etcd->opened, 2);
    /* Also one that is never created. */
    pass(f, 2000);
    expect(f, "interrupted\n");
}

static void progress_is_believed_only_if_trusted(void **state)
{
    Fixture *f = *state;
    start_open(f, 5);
    script_reply(f->etcd, (LhWatchReply){.header.revision = 50, .progress = TRUE});
    expect(f, "");
    script_close(f->etcd);
    pass(f, 100);
    assert_int_equal(f->etcd->stream->start_revision, 5);
    lh_watcher_free(f->watcher);
    g_string_truncate(f->seen, 0);

    start(f, 5, TRUE);
    script_created(f->etcd, 5);
    script_reply(f->etcd, (LhWatchReply){.header.revision = 50, .progress = TRUE});
    script_reply(f->etcd, (LhWatchReply){.header.revision = 49, .progress = TRUE});
    expect(f, "opened\nevents |50\n");
    /* Not in the middle of a revision. */
    send(f, TRUE, 51, REVISIONS(51));
    script_reply(f->etcd, (LhWatchReply){.header.revision = 60, .progress = TRUE});
    expect(f, "");
    script_close(f->etcd);
    pass(f, 100);
    assert_int_equal(f->etcd->stream->start_revision, 5);
}

static void canceled_without_compaction_is_tried_again(void **state)
{
    Fixture *f = *state;
    start(f, 5, FALSE);
    script_reply(f->etcd, (LhWatchReply){.created = TRUE,
                                         .canceled = TRUE,
                                         .reason = "etcdserver: permission denied"});
    expect(f, "interrupted\n");
    pass(f, 100);
    assert_int_equal(f->etcd->stream->start_revision, 5);
}

static void created_twice_is_ignored(void **state)
{
    Fixture *f = *state;
    start_open(f, 5);
    script_created(f->etcd, 7);
    expect(f, "");
}

/* ---- another history: the revision has passed the cursor by the time the watch is back ---- */

static void resume_after(Fixture *f, gboolean deletion)
{
    LhEtcdEvent event = {.is_delete = deletion,
                         .kv = {.key = "a", .key_len = 1, .value = "", .mod_rev = 9}};
    start_open(f, 5);
    if (deletion)
        send(f, FALSE, 9, REVISIONS(5));
    script_reply(f->etcd, (LhWatchReply){.header.revision = 9, .events = &event, .n_events = 1});
    script_close(f->etcd);
    pass(f, 100);
    assert_int_equal(f->etcd->stream->start_revision, 10);
    script_created(f->etcd, 50);
    expect(f, deletion ? "events a@5 |5\nevents a@9 |9\ninterrupted\n"
                       : "events a@9 |9\ninterrupted\n");
}

static void a_put_of_another_history_is_lost(void **state)
{
    Fixture *f = *state;
    resume_after(f, FALSE);
    send(f, FALSE, 50, REVISIONS(12));
    expect(f, "");
    answer_witness(f, "a", 9, 3);
    expect(f, "lost 0\n");
}

/* What is written again and again is easily written at the same revision in both. */
static void another_value_at_the_same_revision_is_lost(void **state)
{
    Fixture *f = *state;
    resume_after(f, FALSE);
    answer_witness_value(f, "a", 9, 9, "another");
    expect(f, "lost 0\n");
}

/* The last event is the same in both histories, the one before it is not. */
static void the_revisions_before_the_last_are_proved_too(void **state)
{
    Fixture *f = *state;
    start_open(f, 5);
    send(f, FALSE, 8, REVISIONS(5, 6, 7, 7));
    send(f, FALSE, 8, REVISIONS(8));
    script_close(f->etcd);
    pass(f, 100);
    script_created(f->etcd, 50);
    expect(f, "events a@5 b@6 c@7 d@7 |7\nevents a@8 |8\ninterrupted\n");
    answer_witness(f, "a", 8, 8);
    answer_witness(f, "d", 7, 7);
    expect(f, "");
    answer_witness(f, "b", 6, 3);
    expect(f, "lost 0\n");
}

static void a_put_that_was_never_there_is_lost(void **state)
{
    Fixture *f = *state;
    resume_after(f, FALSE);
    answer_witness(f, "a", 9, 0);
    expect(f, "lost 0\n");
}

static void a_deletion_is_proved_by_what_was_there_before(void **state)
{
    Fixture *f = *state;
    resume_after(f, TRUE);
    answer_witness(f, "a", 9, 0);
    expect(f, "");
    answer_witness(f, "a", 8, 4);
    expect(f, "");
    answer_witness(f, "a", 5, 5);
    expect(f, "opened\n");
}

/* Which keys were deleted is not known; any history may have deleted this one. */
static void deletions_alone_prove_nothing(void **state)
{
    Fixture *f = *state;
    LhEtcdEvent event = {.is_delete = TRUE, .kv = {.key = "a", .key_len = 1, .mod_rev = 9}};
    start_open(f, 5);
    script_reply(f->etcd, (LhWatchReply){.header.revision = 9, .events = &event, .n_events = 1});
    script_close(f->etcd);
    pass(f, 100);
    script_created(f->etcd, 50);
    expect(f, "events a@9 |9\ninterrupted\nlost 10\n");
}

/* Progress says that there is nothing up to 50, and another history has something there. */
static void it_resumes_after_the_last_event(void **state)
{
    Fixture *f = *state;
    start(f, 5, TRUE);
    script_created(f->etcd, 5);
    send(f, FALSE, 9, REVISIONS(9));
    script_reply(f->etcd, (LhWatchReply){.header.revision = 50, .progress = TRUE});
    script_close(f->etcd);
    pass(f, 100);
    expect(f, "opened\nevents a@9 |9\nevents |50\ninterrupted\n");
    assert_int_equal(f->etcd->stream->start_revision, 10);
    script_created(f->etcd, 60);
    answer_witness(f, "a", 9, 9);
    expect(f, "opened\n");
    send(f, FALSE, 60, REVISIONS(30));
    expect(f, "lost 51\n");
}

/* A list that is followed, and a stream that was interrupted before its first event. */
static void a_list_without_a_proof_is_made_again(void **state)
{
    Fixture *f = *state;
    static const LhWatcherFuncs funcs = {
        .opened = on_opened, .events = on_events, .interrupted = on_interrupted, .lost = on_lost};
    const LhWatcherOptions options = {
        .key = "/p/", .range_end = "/p0", .start_revision = 5, .listed = TRUE};
    f->watcher = lh_watcher_start(f->env, &f->etcd->base, &options, &funcs, f);
    script_created(f->etcd, 5);
    script_close(f->etcd);
    pass(f, 100);
    script_created(f->etcd, 50);
    expect(f, "opened\ninterrupted\nlost 5\n");
}

static void a_deletion_of_another_history_is_lost(void **state)
{
    Fixture *f = *state;
    resume_after(f, TRUE);
    answer_witness(f, "a", 9, 0);
    answer_witness(f, "a", 8, 0);
    expect(f, "lost 0\n");
}

/* Behind when it answers first, and past the cursor a moment later. */
static void catching_up_in_another_history_is_lost(void **state)
{
    Fixture *f = *state;
    LhRangeReply caught_up = {.header = {.cluster_id = CLUSTER, .revision = 12}};
    start_open(f, 5);
    send(f, FALSE, 9, REVISIONS(9));
    script_close(f->etcd);
    pass(f, 100);
    script_created(f->etcd, 7);
    send(f, FALSE, 11, REVISIONS(11));
    expect(f, "events a@9 |9\ninterrupted\n");
    script_answer_range(f->etcd, &caught_up);
    answer_witness(f, "a", 9, 6);
    expect(f, "lost 0\n");
}

static void what_comes_before_the_proof_is_delivered_after_it(void **state)
{
    Fixture *f = *state;
    resume_after(f, FALSE);
    send(f, TRUE, 50, REVISIONS(12, 13));
    send(f, FALSE, 50, REVISIONS(13));
    expect(f, "");
    answer_witness(f, "a", 9, 9);
    expect(f, "opened\nevents a@12 |12\nevents b@13 a@13 |13\n");
}

static void a_witness_that_was_compacted_proves_nothing(void **state)
{
    Fixture *f = *state;
    resume_after(f, FALSE);
    script_fail(f->etcd, S_RANGE, LH_ERR_COMPACTED);
    expect(f, "lost 9\n");
}

/* The newest is there with its value: what is compacted of the older ones says nothing against it. */
static void an_older_witness_may_be_compacted(void **state)
{
    Fixture *f = *state;
    start_open(f, 5);
    send(f, FALSE, 9, REVISIONS(8, 9));
    script_close(f->etcd);
    pass(f, 100);
    script_created(f->etcd, 50);
    expect(f, "events a@8 b@9 |9\ninterrupted\n");
    answer_witness(f, "b", 9, 9);
    script_fail(f->etcd, S_RANGE, LH_ERR_COMPACTED);
    expect(f, "opened\n");
}

static void a_proof_that_fails_is_tried_again(void **state)
{
    Fixture *f = *state;
    resume_after(f, FALSE);
    script_fail(f->etcd, S_RANGE, LH_ERR_UNAVAILABLE);
    expect(f, "interrupted\n");
    pass(f, 200);
    script_created(f->etcd, 50);
    answer_witness(f, "a", 9, 9);
    expect(f, "opened\n");
}

/* Milliseconds until the next stream is opened. */
static gint64 wait_for_stream(Fixture *f)
{
    gint64 from_ms = sim_world_now_ms(f->world);
    while (f->etcd->stream == NULL)
        assert_true(sim_world_step(f->world));
    return sim_world_now_ms(f->world) - from_ms;
}

static void backoff_grows_and_is_forgotten(void **state)
{
    Fixture *f = *state;
    start(f, 5, FALSE);
    for (guint i = 0; i < 12; i++) {
        script_close(f->etcd);
        gint64 most_ms = MIN(100 << i, 5000);
        gint64 waited_ms = wait_for_stream(f);
        assert_in_range(waited_ms, most_ms / 2, most_ms);
    }
    /* A stream that is created and closed at once proves nothing. */
    script_created(f->etcd, 5);
    script_close(f->etcd);
    assert_in_range(wait_for_stream(f), 2500, 5000);
    script_created(f->etcd, 5);
    send(f, FALSE, 5, REVISIONS(5));
    script_close(f->etcd);
    assert_in_range(wait_for_stream(f), 50, 100);
}

static void freed_inside_each_callback(void **state)
{
    Fixture *f = *state;
    for (Callback callback = CALL_OPENED; callback <= CALL_LOST; callback++) {
        f->free_in = callback;
        start(f, 5, FALSE);
        script_created(f->etcd, 5);
        if (f->watcher != NULL)
            send(f, TRUE, 6, REVISIONS(5, 6));
        if (f->watcher != NULL && callback == CALL_INTERRUPTED)
            script_close(f->etcd);
        if (f->watcher != NULL)
            script_reply(f->etcd, (LhWatchReply){.canceled = TRUE, .compact_revision = 3});
        assert_null(f->watcher);
        assert_null(f->etcd->stream);
        assert_int_equal(sim_world_pending(f->world), 0);
    }
}

/* --- any way of cutting a history into replies and streams gives the same history --- */

typedef struct {
    GArray *revisions; /* of each event of the history, ascending, from 1 on */
    gint64 next;       /* the first revision that was not delivered */
    gsize delivered;   /* events */
} History;

static void history_opened(gpointer data)
{
    (void)data;
}

static void history_events(const LhEtcdEvent *events, gsize n, gint64 revision, gpointer data)
{
    History *history = data;
    for (gsize i = 0; i < n; i++) {
        g_autofree char *name = g_strdup_printf("k%zu", history->delivered);
        assert_string_equal(events[i].kv.key, name);
        assert_int_equal(events[i].kv.mod_rev,
                         g_array_index(history->revisions, gint64, history->delivered));
        history->delivered++;
    }
    /* Whole revisions only. */
    assert_int_equal(events[n - 1].kv.mod_rev, revision);
    assert_true(history->delivered == history->revisions->len ||
                g_array_index(history->revisions, gint64, history->delivered) > revision);
    history->next = revision + 1;
}

static void history_lost(gint64 compact_revision, gpointer data)
{
    (void)compact_revision, (void)data;
    fail();
}

static GArray *random_history(SimWorld *world, gsize n)
{
    GArray *revisions = g_array_new(FALSE, FALSE, sizeof(gint64));
    gint64 revision = 1;
    for (gsize i = 0; i < n; i++) {
        revision += (gint64)(sim_world_below(world, 2) * sim_world_below(world, 4));
        g_array_append_val(revisions, revision);
    }
    return revisions;
}

/* Sends the history from the stream's start on in random pieces, as etcd would: a reply that is no
 * fragment ends a revision. Breaks off at random. */
static void play(Fixture *f, const History *history)
{
    gsize at = 0;
    gsize total = history->revisions->len;
    const gint64 *revisions = (const gint64 *)(gpointer)history->revisions->data;
    while (at < total && revisions[at] < f->etcd->stream->start_revision)
        at++;
    while (at < total && sim_world_below(f->world, 8) != 0) {
        LhEtcdEvent events[8];
        char names[8][24];
        gsize n = 1 + sim_world_below(f->world, 8);
        n = MIN(n, total - at);
        for (gsize i = 0; i < n; i++) {
            g_snprintf(names[i], sizeof names[i], "k%zu", at + i);
            events[i] = (LhEtcdEvent){.kv = {.key = names[i],
                                             .key_len = strlen(names[i]),
                                             .value = "",
                                             .mod_rev = revisions[at + i]}};
        }
        at += n;
        gboolean ends = at == total || revisions[at] != revisions[at - 1];
        script_reply(f->etcd, (LhWatchReply){.header.revision = 1000000,
                                             .fragment = !ends || sim_world_below(f->world, 2) == 0,
                                             .events = events,
                                             .n_events = n});
        memset(names, '!', sizeof names);
    }
}

/* The last event of each of the last three revisions. */
static void prove(Fixture *f, const History *history)
{
    gint64 proved = 0;
    for (gsize i = history->delivered, n = 0; i-- > 0 && n < 3;) {
        gint64 revision = g_array_index(history->revisions, gint64, i);
        if (revision == proved)
            continue;
        g_autofree char *name = g_strdup_printf("k%zu", i);
        answer_witness(f, name, revision, revision);
        proved = revision;
        n++;
    }
}

static void any_fragmentation_and_any_closing(void **state)
{
    Fixture *f = *state;
    static const LhWatcherFuncs funcs = {
        .opened = history_opened, .events = history_events, .lost = history_lost};
    for (guint round = 0; round < 200; round++) {
        g_autoptr(GArray) revisions = random_history(f->world, 60);
        History history = {.revisions = revisions};
        LhWatcherOptions options = {.key = "/", .start_revision = 1};
        LhWatcher *watcher = lh_watcher_start(f->env, &f->etcd->base, &options, &funcs, &history);
        while (history.delivered < revisions->len) {
            script_created(f->etcd, 1000000);
            prove(f, &history);
            play(f, &history);
            script_close(f->etcd);
            wait_for_stream(f);
            assert_int_equal(f->etcd->stream->start_revision, MAX(history.next, 1));
        }
        lh_watcher_free(watcher);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(from_now_on_means_after_the_created_reply),
        TEST(closed_before_created_begins_from_now_again),
        TEST(resumes_after_the_last_whole_revision),
        TEST(a_put_of_another_history_is_lost),
        TEST(another_value_at_the_same_revision_is_lost),
        TEST(the_revisions_before_the_last_are_proved_too),
        TEST(a_put_that_was_never_there_is_lost),
        TEST(a_deletion_is_proved_by_what_was_there_before),
        TEST(a_deletion_of_another_history_is_lost),
        TEST(deletions_alone_prove_nothing),
        TEST(it_resumes_after_the_last_event),
        TEST(a_list_without_a_proof_is_made_again),
        TEST(catching_up_in_another_history_is_lost),
        TEST(what_comes_before_the_proof_is_delivered_after_it),
        TEST(a_witness_that_was_compacted_proves_nothing),
        TEST(an_older_witness_may_be_compacted),
        TEST(a_proof_that_fails_is_tried_again),
        TEST(the_headers_revision_is_no_progress),
        TEST(fragments_are_joined),
        TEST(fragments_of_a_lost_stream_are_forgotten),
        TEST(events_before_the_start_are_dropped),
        TEST(compaction_is_lost),
        TEST(another_cluster_is_lost),
        TEST(a_member_that_lags),
        TEST(revision_that_went_back),
        TEST(a_doubtful_revision_that_cannot_be_verified),
        TEST(silence_is_asked_about),
        TEST(silence_after_asking_opens_a_new_stream),
        TEST(progress_is_believed_only_if_trusted),
        TEST(canceled_without_compaction_is_tried_again),
        TEST(created_twice_is_ignored),
        TEST(backoff_grows_and_is_forgotten),
        TEST(freed_inside_each_callback),
        TEST(any_fragmentation_and_any_closing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
