/*
 * Histories that each break one promise: exactly the group that keeps it complains. And good ones, of which
 * nothing is said. Snapshots: test_recorded_data.c; drains and seeds: test_recorded_moves.c.
 */
#include "tests/unit/api/samples.h"
#include "tests/unit/invariants/wrong.h"

#include <unistd.h>

/* ---- fence ---- */

static void old_epoch(History *h)
{
    end_lease(h, LEADERS);
    gint64 old = h->epoch;
    lead_all(h, 0xa2);
    h->epoch = old;
    create_replica(h, "s1", 1);
    put_order(h, NODE_B, "s1", 1, 400, "load");
    commit(h);
}

static void not_the_oldest(History *h)
{
    gint64 epoch = lead(h, "cache-assigner", 0xa2);
    create_replica(h, "s1", 1);
    h->epoch = epoch;
    put_order(h, NODE_B, "s1", 1, 400, "load");
    commit(h);
}

static void nobody_leads(History *h)
{
    end_lease(h, LEADERS);
    put(h, 0, "decided/status/services/svc/admission", "{\"observedRevision\":1}");
    commit(h);
}

static void two_controllers_at_once(History *h)
{
    put(h, 0, "decided/status/services/svc/admission", "{\"observedRevision\":1}");
    put(h, 0, "decided/health/cache/" NODE_B, "{\"state\":\"healthy\",\"leaseTtl\":\"10s\"}");
    commit(h);
}

static void anothers_kind(History *h)
{
    put(h, 0, "decided/status/replicas/" ITEM "/nobody", "{\"observedRevision\":1}");
    commit(h);
}

static void no_kind(History *h)
{
    put(h, 0, "decided/nothing/x", "{}");
    commit(h);
}

static void manager_desires(History *h)
{
    put(h, 0, "decided/status/services/svc/admission", "{\"observedRevision\":1}");
    put(h, 0, "desired/services/more", "{\"spec\":" SERVICE "}");
    commit(h);
}

static void agent_publishes(History *h)
{
    put_item(h, LEASE_A, NODE_A, ITEM, "live", h->order);
    put(h, 0, "published/snapshots/s2", "{}");
    commit(h);
}

static void manager_answers(History *h)
{
    put(h, 0, "decided/status/services/svc/admission", "{\"observedRevision\":1}");
    put_item(h, LEASE_A, NODE_A, ITEM, "live", h->order);
    commit(h);
}

static void badly_formed(History *h)
{
    put(h, 0, "decided/status/services/svc/admission", "{\"observedRevision\":");
    commit(h);
}

static void over_what_does_not_parse(History *h)
{
    put(h, 0, "decided/status/services/svc/admission", "junk");
    recorded_by_hand(h->recorded, commit(h));
    put(h, 0, "decided/status/services/svc/admission", "{\"observedRevision\":1}");
    commit(h);
}

static void anothers_lease(History *h)
{
    put(h, 0xb7, "leaders/admission/00000000000000b8", "{\"instance\":\"x\"}");
    commit(h);
}

static void event_of_nobody(History *h)
{
    put(h, 0, "events/1",
        "{\"time\":1,\"controller\":\"nobody\",\"reason\":\"X\",\"object\":\"x/y\"}");
    commit(h);
}

static void evictor_loads(History *h)
{
    create_replica(h, "s1", 1);
    put(h, 0, ON(NODE_B) "s1.default.1",
        "{\"action\":\"load\",\"controller\":\"cache-evictor\",\"epoch\":%" G_GINT64_FORMAT
        ",\"snapshot\":\"s1\",\"uri\":\"s3://bucket/s1/\",\"sizeBytes\":400,\"set\":\"default\"}",
        h->evictor);
    commit(h);
}

static void two_epochs_at_once(History *h)
{
    create_replica(h, "s1", 1);
    publish(h, "s2", 10);
    create_replica(h, "s2", 0);
    put_order(h, NODE_B, "s1", 1, 400, "load");
    h->epoch++;
    put_order(h, NODE_B, "s2", 0, 10, "load");
    commit(h);
}

/* ---- protocol ---- */

static void item_on_another_lease(History *h)
{
    put_item(h, LEASE_B, NODE_A, ITEM, "live", h->order);
    commit(h);
}

static void answer_to_another_order(History *h)
{
    put_item(h, LEASE_A, NODE_A, ITEM, "live", h->order + 1);
    commit(h);
}

static void answer_goes_back(History *h)
{
    put_item(h, LEASE_B, NODE_B, "s7.default.0", "failed", 9);
    commit(h);
    put_item(h, LEASE_B, NODE_B, "s7.default.0", "failed", 8);
    commit(h);
}

static void searchable_while_loading(History *h)
{
    publish(h, "s2", 100);
    create_replica(h, "s2", 0);
    put_order(h, NODE_B, "s2", 0, 100, "load");
    gint64 order = commit(h);
    put_item(h, LEASE_B, NODE_B, "s2.default.0", "loading", order);
    put_search(h, LEASE_B, NODE_B, "s2");
    commit(h);
}

static void failed_and_searchable(History *h)
{
    put_item(h, LEASE_A, NODE_A, ITEM, "failed", h->order);
    commit(h);
}

static void gone_and_searchable(History *h)
{
    del(h, "actual/items/cache/" NODE_A "/" ITEM);
    commit(h);
}

static void registered_twice(History *h)
{
    end_lease(h, LEASE_B);
    register_node(h, NODE_B, "node-b", 0x1b, "default");
}

static void registered_over(History *h)
{
    register_node(h, NODE_B, "node-b", 0x1b, "default");
}

/* ---- admission ---- */

static void accepted_of_no_revision(History *h)
{
    put(h, 0, "decided/accepted/services/svc", "{\"revision\":3,\"spec\":" SERVICE "}");
    commit(h);
}

static void accepted_is_not_what_was_written(History *h)
{
    put(h, 0, "desired/services/more", "{\"spec\":" SERVICE "}");
    gint64 revision = commit(h);
    put(h, 0, "decided/accepted/services/more",
        "{\"revision\":%" G_GINT64_FORMAT ",\"spec\":{\"owner\":\"other\"}}", revision);
    commit(h);
}

static void accepted_though_not_valid(History *h)
{
    put(h, 0, "desired/services/more", "{\"spec\":{\"owner\":7}}");
    gint64 revision = commit(h);
    put(h, 0, "decided/accepted/services/more",
        "{\"revision\":%" G_GINT64_FORMAT ",\"spec\":" SERVICE "}", revision);
    commit(h);
}

static void withdrawn_while_asked_for(History *h)
{
    del(h, "decided/accepted/services/svc");
    commit(h);
}

/* ---- health ---- */

static void taken_within_grace(History *h)
{
    end_lease(h, LEASE_A);
    history_wait(h, 27000);
    del(h, ON(NODE_A) ITEM);
    commit(h);
}

static void say_health(History *h, const char *state, const char *more)
{
    g_autofree char *value = g_strdup_printf("{\"state\":\"%s\",\"leaseTtl\":\"10s\"%s}", state,
                                             more);
    put(h, 0, "decided/health/cache/" NODE_A, "%s", value);
    commit(h);
}

static void say_failed(History *h)
{
    say_health(h, "failure", ",\"missingSince\":1767225600000");
    say_health(h, "failed", ",\"missingSince\":1767225600000");
}

static void well_again_at_once(History *h)
{
    say_health(h, "failure", "");
    say_health(h, "healthy", "");
}

static void failed_unmissed(History *h)
{
    end_lease(h, LEASE_A);
    history_wait(h, 10000);
    say_health(h, "failure", "");
    say_health(h, "failed", "");
}

static void revoked_no_more(History *h)
{
    say_health(h, "failure", ",\"revoking\":true");
    say_health(h, "probation", "");
}

/* Four nodes, of which two are condemned by their probes. */
static void half_a_fleet(History *h)
{
    register_node(h, "node-c-0000000c", "node-c", 0xc1, "default");
    register_node(h, "node-d-0000000d", "node-d", 0xd1, "default");
    put(h, 0, "decided/health/cache/" NODE_B, "{\"state\":\"healthy\",\"leaseTtl\":\"10s\"}");
    commit(h);
    history_wait(h, 20000);
    say_health(h, "failure", ",\"reason\":\"probe: timed out 3 times\"");
    put(h, 0, "decided/health/cache/" NODE_B,
        "{\"state\":\"failure\",\"leaseTtl\":\"10s\",\"reason\":\"probe: timed out 3 times\"}");
    commit(h);
}

static void given_in_failure(History *h)
{
    say_health(h, "failure", "");
    history_wait(h, 40000);
    publish(h, "s2", 10);
    create_replica(h, "s2", 0);
    put_order(h, NODE_A, "s2", 0, 10, "load");
    commit(h);
}

static void failed_while_registered(History *h)
{
    say_failed(h);
}

static void failed_too_soon(History *h)
{
    end_lease(h, LEASE_A);
    history_wait(h, 7500);
    say_failed(h);
}

/* A node of another pool has the same name. */
static void failed_too_soon_beside_a_namesake(History *h)
{
    end_lease(h, LEASE_A);
    put(h, 0xe7, "actual/nodes/recovery/" NODE_A,
        "{\"name\":\"node-a\",\"lease\":\"00000000000000e7\",\"leaseTtl\":\"10s\"}");
    recorded_by_hand(h->recorded, commit(h));
    history_wait(h, 7500);
    say_failed(h);
}

static void failed_and_back(History *h)
{
    end_lease(h, LEASE_A);
    history_wait(h, 10000);
    say_failed(h);
    put(h, 0, "decided/health/cache/" NODE_A, "{\"state\":\"healthy\",\"leaseTtl\":\"10s\"}");
    commit(h);
}

static void forgotten(History *h)
{
    del(h, "decided/health/cache/" NODE_A);
    commit(h);
}

/* ---- whole ---- */

static void one_is_missing(History *h)
{
    put(h, 0, "desired/services/more", "{\"spec\":" SERVICE "}");
    ((HistoryKey *)g_hash_table_lookup(h->keys, "desired/services/more"))->version++;
    commit(h);
    put(h, 0, "desired/services/more", "{\"spec\":" SERVICE "}");
    commit(h);
}

static void the_beginning_is_missing(History *h)
{
    g_hash_table_insert(h->keys, g_strdup("desired/services/old"), g_new0(HistoryKey, 1));
    del(h, "desired/services/old");
    commit(h);
}

static const Wrong wrongs[] = {
    ROW(FENCE, old_epoch, "of cache-assigner, whose oldest is"),
    ROW(FENCE, not_the_oldest, "of cache-assigner, whose oldest is"),
    ROW(FENCE, nobody_leads, "while nobody led who may"),
    ROW(FENCE, two_controllers_at_once, "no controller may write this"),
    ROW(FENCE, anothers_kind, "no controller may write this"),
    ROW(FENCE, no_kind, "no controller may write this"),
    ROW(FENCE, manager_desires, "a manager wrote desired/services/more"),
    ROW(FENCE, agent_publishes, "an agent wrote published/snapshots/s2"),
    ROW(FENCE, manager_answers, "a manager wrote actual/items/"),
    ROW(FENCE, badly_formed, "is not well-formed"),
    ROW(FENCE, over_what_does_not_parse, "admission wrote over"),
    ROW(FENCE, anothers_lease, "leaders/admission/00000000000000b8 was written by a manager"),
    ROW(FENCE, event_of_nobody, "no controller may write this"),
    ROW(FENCE, evictor_loads, "cache-evictor orders load over nothing"),
    ROW(FENCE, two_epochs_at_once, "it was written by cache-assigner under epoch"),
    ROW(PLACEMENT, taken_within_grace, "within failureGrace"),
    ROW(PROTOCOL, item_on_another_lease, "does not hang on its node's registration"),
    ROW(PROTOCOL, answer_to_another_order, "of its assignment, which is at"),
    ROW(PROTOCOL, answer_goes_back, "answers an older assignment than before"),
    ROW(PROTOCOL, searchable_while_loading, "is not live"),
    ROW(PROTOCOL, failed_and_searchable, "is failed, and still searchable"),
    ROW(PROTOCOL, gone_and_searchable, "is gone, and still searchable"),
    ROW(PROTOCOL, registered_twice, "is registered a second time"),
    ROW(PROTOCOL, registered_over, "by who does not hold its lease"),
    ROW(ADMISSION, accepted_of_no_revision, "speaks of revision 3; people wrote"),
    ROW(ADMISSION, accepted_is_not_what_was_written, "speaks of revision"),
    ROW(ADMISSION, accepted_though_not_valid, "what people wrote is gone or not valid"),
    ROW(ADMISSION, withdrawn_while_asked_for, "is withdrawn, but somebody still asks for it"),
    ROW(HEALTH, failed_while_registered, "is called failed; it is registered"),
    ROW(HEALTH, failed_too_soon, "ms after it went"),
    ROW(HEALTH, failed_too_soon_beside_a_namesake, "ms after it went"),
    ROW(HEALTH, failed_and_back, "goes from failed to healthy"),
    ROW(HEALTH, forgotten, "is forgotten before it failed"),
    ROW(HEALTH, well_again_at_once, "goes from failure to healthy"),
    ROW(HEALTH, failed_unmissed, "nobody has missed it"),
    ROW(HEALTH, revoked_no_more, "its lease was to be revoked"),
    ROW(HEALTH, half_a_fleet, "2 of 4 nodes are condemned by their probes at once"),
    ROW(HEALTH, given_in_failure, "its node has been in failure for"),
    ROW(MODEL, one_is_missing, "the history is not whole"),
    ROW(MODEL, the_beginning_is_missing, "the history is not whole"),
};

static void each_wrong_is_found_by_its_group(void **state)
{
    (void)state;
    assert_wrongs(wrongs, G_N_ELEMENTS(wrongs));
}

/* ---- what is good ---- */

static void good_beginning(void **state)
{
    (void)state;
    g_autoptr(History) h = begin();
    RecordedResult result;
    judge(h, &result);
    assert_int_equal(result.violations, 0);
    assert_int_equal(result.commits, h->revision - 1);
    assert_int_equal(result.kinds[LH_KIND_ITEM], 2);
    assert_int_equal(result.kinds[LH_KIND_LEADER], 5);
    assert_int_equal(result.counters.epochs, 4); /* the evictor has written nothing */
    assert_int_equal(result.counters.loads, 1);
    for (guint group = 0; group <= INV_HEALTH; group++) /* the later ones' work is not begun */
        assert_true(result.did[group] > 0);
    assert_true(result.skipped[INV_PLACEMENT] > 0); /* nobody knows what was compared */
    recorded_result_clear(&result);
}

static void good_loss_of_a_node(void **state)
{
    (void)state;
    g_autoptr(History) h = begin();
    end_lease(h, LEASE_A);
    history_wait(h, 10000);
    say_failed(h);
    history_wait(h, 20000);
    del(h, ON(NODE_A) ITEM);
    put_order(h, NODE_B, "s1", 0, 400, "load");
    gint64 order = commit(h);
    put_item(h, LEASE_B, NODE_B, ITEM, "loading", order);
    commit(h);
    del(h, "decided/health/cache/" NODE_A);
    commit(h);
    register_node(h, "node-a-0000001a", "node-a", 0x1a, "default");
    assert_good(h);
}

static void good_handover(void **state)
{
    (void)state;
    g_autoptr(History) h = begin();
    lead(h, "cache-assigner", 0xa2);
    end_lease(h, LEADERS);
    gint64 old = h->revision;
    lead_all(h, 0xa3);
    h->epoch = old - 1; /* of the one that stood by */
    lead(h, "admission", 0xa4);
    put(h, 0, "decided/status/services/svc/admission", "{\"observedRevision\":1}");
    commit(h);
    put(h, 0xe1, "events/1",
        "{\"time\":1,\"controller\":\"cache-evictor\",\"reason\":\"X\",\"object\":\"x/y\"}");
    commit(h);
    end_lease(h, 0xe1);
    create_replica(h, "s1", 1);
    put_order(h, NODE_B, "s1", 1, 400, "load");
    commit(h);
    assert_good(h);
}

/* What a person did is not held against a controller. */
static void people(void **state)
{
    (void)state;
    g_autoptr(History) h = begin();
    put(h, 0, "decided/nothing/x", "{}");
    recorded_by_hand(h->recorded, commit(h));
    put(h, 0, "decided/retries/cache/s5.default.0", "{\"attempt\":1,\"parked\":true}");
    commit(h);
    end_lease(h, 0xa1);
    lead(h, "admission", 0xa2);
    lead(h, "admission", 0xa3);
    del(h, "decided/retries/cache/s5.default.0"); /* leasehold retry */
    commit(h);
    del(h, "leaders/admission/00000000000000a2"); /* leasehold leaders move */
    commit(h);
    assert_good(h);
}

/* The same history, but all that is known of the times is that they were before it was read. */
static void what_is_not_known_is_not_held_against_it(void **state)
{
    (void)state;
    static const struct {
        void (*go_wrong)(History *h);
    } timed[] = {{taken_within_grace}, {failed_too_soon}};
    for (guint i = 0; i < G_N_ELEMENTS(timed); i++) {
        g_autoptr(History) h = begin();
        RecordedResult result;
        timed[i].go_wrong(h);
        g_autofree char *path = g_build_filename(g_get_tmp_dir(), "later-XXXXXX", NULL);
        int fd = g_mkstemp(path);
        assert_true(fd >= 0 && close(fd) == 0);
        g_autoptr(GString) text = g_string_new("{\"prefix\":\"" PREFIX "\"}\n");
        for (gsize n = 0; n < recorded_len(h->recorded); n++) {
            g_autofree char *line = recorded_line(h->recorded, n);
            char *since = strstr(line, "\"since\":") + strlen("\"since\":");
            *since = '0';
            memset(since + 1, ' ', strspn(since + 1, "0123456789"));
            g_string_append(text, line);
        }
        assert_true(g_file_set_contents(path, text->str, -1, NULL));
        g_autoptr(GError) error = NULL;
        g_autoptr(Recorded) loaded = recorded_load(path, &error);
        assert_null(error);
        const RecordedTolerance tolerance = {.clock_ms = 1000, .late_ms = 5000};
        recorded_check(loaded, &tolerance, &result);
        if (result.violations > 0)
            fail_msg("%s", (char *)result.said->pdata[0]);
        recorded_result_clear(&result);
        remove(path);
    }
}

/* Values with no more than they need, and keys of any shape: nothing is taken for granted. */
static void the_least_of_every_kind_is_judged(void **state)
{
    (void)state;
    g_autoptr(History) h = begin();
    RecordedResult result;
    for (guint round = 0; round < 3; round++) {
        for (guint kind = 0; kind < LH_N_KINDS; kind++) {
            const char *names[] = {samples[kind].name, "", "x", "a/b/c/d", NULL};
            for (guint i = 0; names[i] != NULL; i++) {
                g_autofree char *key = lh_key((LhKind)kind, names[i]);
                g_autofree char *value = sample_value((LhKind)kind, samples[kind].json);
                if (round < 2)
                    put_bytes(h, round == 0 ? 0 : 7, key, value, strlen(value));
                else
                    del(h, key);
                commit(h);
            }
        }
    }
    judge(h, &result);
    assert_int_equal(result.failed[INV_MODEL], 0);
    assert_int_equal(result.commits, h->revision - 1);
    recorded_result_clear(&result);
}

static void nothing_checked_is_a_failure(void **state)
{
    (void)state;
    g_autoptr(History) h = history_new();
    RecordedResult result;
    judge(h, &result);
    assert_int_equal(result.failed[INV_MODEL], 1);
    assert_non_null(strstr(result.said->pdata[0], "nothing was checked"));
    recorded_result_clear(&result);
    put(h, 0, "desired/services/svc", "{\"spec\":" SERVICE "}");
    commit(h);
    judge(h, &result);
    assert_int_equal(result.failed[INV_MODEL], 1);
    recorded_result_clear(&result);
}

static void many_violations_are_counted(void **state)
{
    (void)state;
    g_autoptr(History) h = begin();
    RecordedResult result;
    for (guint i = 0; i < RECORDED_SAYS + 9; i++)
        no_kind(h);
    judge(h, &result);
    assert_int_equal(result.violations, RECORDED_SAYS + 9);
    assert_int_equal(result.said->len, RECORDED_SAYS);
    recorded_result_clear(&result);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_wrong_is_found_by_its_group),
        cmocka_unit_test(good_beginning),
        cmocka_unit_test(good_loss_of_a_node),
        cmocka_unit_test(good_handover),
        cmocka_unit_test(people),
        cmocka_unit_test(what_is_not_known_is_not_held_against_it),
        cmocka_unit_test(the_least_of_every_kind_is_judged),
        cmocka_unit_test(nothing_checked_is_a_failure),
        cmocka_unit_test(many_violations_are_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
