/*
 * Histories that each break one promise: exactly the group that keeps it complains. And good ones, of which
 * nothing is said.
 */
#include "tests/unit/api/samples.h"
#include "tests/unit/invariants/history.h"

#include <unistd.h>

typedef struct {
    const char *name;
    InvGroupId group;
    const char *says; /* part of the first violation */
    void (*go_wrong)(History *h);
} Wrong;

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
    put(h, 0, "decided/status/replicas/" ITEM "/failure-detector", "{\"observedRevision\":1}");
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

/* ---- placement ---- */

static void assigned_twice(History *h)
{
    put_order(h, NODE_B, "s1", 0, 400, "load");
    commit(h);
}

static void two_of_a_snapshot(History *h)
{
    create_replica(h, "s1", 1);
    put_order(h, NODE_A, "s1", 1, 400, "load");
    commit(h);
}

static void beyond_capacity(History *h)
{
    publish(h, "s2", 501);
    create_replica(h, "s2", 0);
    put_order(h, NODE_A, "s2", 0, 501, "load");
    commit(h);
}

static void no_replica(History *h)
{
    publish(h, "s2", 100);
    put_order(h, NODE_B, "s2", 0, 100, "load");
    commit(h);
}

static void no_snapshot(History *h)
{
    create_replica(h, "s1", 1);
    del(h, "published/snapshots/s1");
    commit(h);
    put_order(h, NODE_B, "s1", 1, 400, "load");
    commit(h);
}

static void another_size(History *h)
{
    create_replica(h, "s1", 1);
    put_order(h, NODE_B, "s1", 1, 399, "load");
    commit(h);
}

static void another_set(History *h)
{
    register_node(h, "node-c-0000000c", "node-c", 0xc, "extra");
    create_replica(h, "s1", 1);
    put_order(h, "node-c-0000000c", "s1", 1, 400, "load");
    commit(h);
}

static void not_registered(History *h)
{
    end_lease(h, LEASE_B);
    create_replica(h, "s1", 1);
    put_order(h, NODE_B, "s1", 1, 400, "load");
    commit(h);
}

static void taken_without_answer(History *h)
{
    del(h, ON(NODE_A) ITEM);
    commit(h);
}

/* It counts only when it names the order's revision. */
static void taken_by_an_old_answer(History *h)
{
    accept_spec(h, "services/svc",
                "{\"owner\":\"t\",\"cache\":{\"window\":\"1h\",\"replicas\":0}}");
    del(h, "actual/search/cache/" NODE_A "/s1");
    put_item(h, LEASE_A, NODE_A, ITEM, "failed", h->order);
    commit(h);
    put_order(h, NODE_A, "s1", 0, 400, "evict");
    commit(h);
    del(h, ON(NODE_A) ITEM);
    commit(h);
}

static void taken_within_grace(History *h)
{
    end_lease(h, LEASE_A);
    history_wait(h, 27000);
    del(h, ON(NODE_A) ITEM);
    commit(h);
}

static void load_again_too_soon(History *h)
{
    create_replica(h, "s1", 1);
    put(h, 0, "decided/retries/cache/s1.default.1",
        "{\"attempt\":1,\"notBefore\":%" G_GINT64_FORMAT "}", h->now_ms + 10000);
    commit(h);
    put_order(h, NODE_B, "s1", 1, 400, "load");
    commit(h);
}

static void on_a_cordoned_node(History *h)
{
    accept_spec(h, "nodepolicies/cache/node-b", "{\"cordon\":true}");
    history_wait(h, 70000);
    create_replica(h, "s1", 1);
    put_order(h, NODE_B, "s1", 1, 400, "load");
    commit(h);
}

/* ---- a drain ---- */

static void put_move(History *h, const char *node, const char *rule)
{
    g_autofree char *key = g_strdup_printf(ON("%s") ITEM, node);
    put(h, 0, key,
        "{\"action\":\"evict\",\"controller\":\"cache-evictor\",\"epoch\":%" G_GINT64_FORMAT
        ",\"rule\":\"%s\",\"snapshot\":\"s1\",\"uri\":\"s3://bucket/s1/\",\"sizeBytes\":400,"
        "\"set\":\"default\"}",
        h->evictor, rule);
    commit(h);
}

/* It is live on node a, which is drained, and on its way to node b. */
static gint64 moving(History *h)
{
    accept_spec(h, "nodepolicies/cache/node-a", "{\"drain\":true}");
    put_order(h, NODE_B, "s1", 0, 400, "load");
    gint64 order = commit(h);
    put_item(h, LEASE_B, NODE_B, ITEM, "loading", order);
    commit(h);
    return order;
}

static void moved(History *h)
{
    put_item(h, LEASE_B, NODE_B, ITEM, "live", moving(h));
    put_search(h, LEASE_B, NODE_B, "s1");
    commit(h);
}

static void drained_and_nowhere_else(History *h)
{
    accept_spec(h, "nodepolicies/cache/node-a", "{\"drain\":true}");
    put_move(h, NODE_A, "drained");
}

static void drained_while_it_loads_elsewhere(History *h)
{
    moving(h);
    put_move(h, NODE_A, "drained");
}

static void doubled_and_left_on_the_drained(History *h)
{
    moved(h);
    put_move(h, NODE_B, "doubled");
}

static void drained_while_paused(History *h)
{
    moved(h);
    accept_spec(h, "services/svc", "{\"owner\":\"t\",\"paused\":true}");
    put_move(h, NODE_A, "drained");
}

/* ---- retention ---- */

static void evicted_while_wanted(History *h)
{
    put_order(h, NODE_A, "s1", 0, 400, "evict");
    commit(h);
}

static void evicted_before_its_window_ends(History *h)
{
    history_wait(h, 3600 * 1000 - 5000);
    evicted_while_wanted(h);
}

static void replica_goes_while_wanted(History *h)
{
    create_replica(h, "s1", 1);
    del(h, "decided/replicas/s1.default.1");
    commit(h);
}

static void replica_goes_while_assigned(History *h)
{
    accept_spec(h, "services/svc",
                "{\"owner\":\"t\",\"cache\":{\"window\":\"1h\",\"replicas\":0}}");
    del(h, "decided/replicas/" ITEM);
    commit(h);
}

static void replica_of_no_snapshot(History *h)
{
    create_replica(h, "s9", 0);
}

static void replica_of_a_snapshot_that_is_deleted(History *h)
{
    put(h, 0, "decided/deletions/s1",
        "{\"uri\":\"s3://bucket/s1/\",\"snapshotRevision\":5,\"decidedAt\":6}");
    recorded_by_hand(h->recorded, commit(h));
    create_replica(h, "s1", 1);
}

static void replica_of_no_service(History *h)
{
    put(h, 0, "published/snapshots/s2",
        "{\"service\":\"nobodys\",\"startTime\":1,\"endTime\":%" G_GINT64_FORMAT
        ",\"sizeBytes\":1,\"uri\":\"s3://bucket/s2/\"}",
        T0);
    commit(h);
    put(h, 0, "decided/replicas/s2.default.0",
        "{\"snapshot\":\"s2\",\"service\":\"nobodys\",\"set\":\"default\",\"ordinal\":0,"
        "\"expiresAt\":%" G_GINT64_FORMAT "}",
        T0 + 3600 * 1000);
    commit(h);
}

static void replica_of_a_paused_service(History *h)
{
    accept_spec(h, "services/svc", "{\"owner\":\"t\",\"paused\":true}");
    create_replica(h, "s1", 1);
}

static void replica_too_many(History *h)
{
    create_replica(h, "s1", 2);
}

static void replica_expired_long_ago(History *h)
{
    history_wait(h, 3600 * 1000 + 10000);
    create_replica(h, "s1", 1);
}

static void replica_expires_wrongly(History *h)
{
    put(h, 0, "decided/replicas/s1.default.1",
        "{\"snapshot\":\"s1\",\"service\":\"svc\",\"set\":\"default\",\"ordinal\":1,"
        "\"createdAt\":%" G_GINT64_FORMAT ",\"expiresAt\":%" G_GINT64_FORMAT "}",
        h->now_ms, T0 + 3600 * 1000 + 1);
    commit(h);
}

/* @n further snapshots on node b, each live; then all are not wanted any more, and ordered away. */
static void masses(History *h, guint n)
{
    for (guint i = 0; i < n; i++) {
        g_autofree char *snapshot = g_strdup_printf("m%u", i);
        publish(h, snapshot, 10);
        create_replica(h, snapshot, 0);
        put_order(h, NODE_B, snapshot, 0, 10, "load");
        commit(h);
    }
    accept_spec(h, "services/svc",
                "{\"owner\":\"t\",\"cache\":{\"window\":\"1h\",\"replicas\":0}}");
    for (guint i = 0; i < n; i++) {
        g_autofree char *snapshot = g_strdup_printf("m%u", i);
        put_order(h, NODE_B, snapshot, 0, 10, "evict");
        commit(h);
    }
}

static void evicted_in_masses(History *h)
{
    masses(h, 13);
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

static void say_failed(History *h)
{
    put(h, 0, "decided/health/cache/" NODE_A, "{\"state\":\"failed\",\"leaseTtl\":\"10s\"}");
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

/* ---- monitor ---- */

static void put_timed_order(History *h, const char *action, const char *controller, gint64 epoch)
{
    put(h, 0, ON(NODE_B) "s1.default.1",
        "{\"action\":\"%s\",\"since\":%" G_GINT64_FORMAT
        ",\"controller\":\"%s\",\"epoch\":%" G_GINT64_FORMAT
        ",\"snapshot\":\"s1\",\"uri\":\"s3://bucket/s1/\",\"sizeBytes\":400,\"set\":\"default\"}",
        action, h->now_ms, controller, epoch);
}

/* s1.default.1 on the second node, ordered now; in @state after @minutes, when it is taken back. */
static gint64 taken_back(History *h, const char *state, gint64 minutes)
{
    gint64 epoch = lead(h, "cluster-monitor", LEADERS);
    create_replica(h, "s1", 1);
    put_timed_order(h, "load", "cache-assigner", h->epoch);
    gint64 order = commit(h);
    if (state != NULL) {
        put_item(h, LEASE_B, NODE_B, "s1.default.1", state, order);
        if (strcmp(state, "live") == 0)
            put(h, LEASE_B, "actual/search/cache/" NODE_B "/s1",
                "{\"snapshot\":\"s1\",\"replica\":\"s1.default.1\",\"node\":\"" NODE_B
                "\",\"url\":\"http://x/\"}");
        commit(h);
    }
    history_wait(h, minutes * 60000);
    put_timed_order(h, "evict", "cluster-monitor", epoch);
    commit(h);
    return epoch;
}

static void taken_back_too_soon(History *h)
{
    taken_back(h, "loading", 29);
}

static void taken_back_while_live(History *h)
{
    taken_back(h, "live", 31);
}

static void taken_back_unanswered(History *h)
{
    taken_back(h, NULL, 31);
}

static void evicted_by_the_monitor(History *h)
{
    gint64 epoch = taken_back(h, "loading", 31);
    put_timed_order(h, "evict", "cluster-monitor", epoch);
    commit(h);
}

#define ROW(group, func, says)         \
    {                                  \
#func, INV_##group, says, func \
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
    ROW(PLACEMENT, two_of_a_snapshot, "two replicas of s1 are on node-a"),
    ROW(PLACEMENT, beyond_capacity, "then node-a holds 901+0 of 1000 bytes"),
    ROW(PLACEMENT, no_replica, "there is no such replica"),
    ROW(PLACEMENT, no_snapshot, "there is no such snapshot to load"),
    ROW(PLACEMENT, another_size, "is not what its replica and snapshot say"),
    ROW(PLACEMENT, another_set, "its node is in set extra, not default"),
    ROW(PLACEMENT, not_registered, "its node is not registered"),
    ROW(PLACEMENT, taken_without_answer, "without an answer of its node, which is registered"),
    ROW(PLACEMENT, taken_by_an_old_answer, "without an answer of its node, which is registered"),
    ROW(PLACEMENT, taken_within_grace, "within failureGrace"),
    ROW(PLACEMENT, load_again_too_soon, "it failed 1 times and waits for another"),
    ROW(PLACEMENT, on_a_cordoned_node, "its node has been cordoned for"),
    ROW(RETENTION, evicted_while_wanted, "is ordered away, but wanted"),
    ROW(RETENTION, evicted_before_its_window_ends, "is ordered away, but wanted"),
    ROW(RETENTION, replica_goes_while_wanted, "is deleted, but wanted"),
    ROW(RETENTION, replica_goes_while_assigned, "is deleted while a node has it"),
    ROW(RETENTION, replica_of_no_snapshot, "its snapshot is not there"),
    ROW(RETENTION, replica_of_a_snapshot_that_is_deleted, "its snapshot is being deleted"),
    ROW(RETENTION, replica_of_no_service, "its service is not accepted"),
    ROW(RETENTION, replica_of_a_paused_service, "its service is paused"),
    ROW(RETENTION, replica_too_many, "its service wants no such replica"),
    ROW(RETENTION, replica_expired_long_ago, "it has been expired for"),
    ROW(RETENTION, replica_expires_wrongly, "its expiry is not endTime + window"),
    ROW(RETENTION, evicted_in_masses, "is the 13. of"),
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
    ROW(HEALTH, failed_and_back, "was failed, which is final; it is called healthy"),
    ROW(HEALTH, forgotten, "is forgotten before it failed"),
    ROW(MONITOR, taken_back_too_soon, "ms after it was ordered"),
    ROW(MONITOR, taken_back_while_live, "it is not loading"),
    ROW(MONITOR, taken_back_unanswered, "it is not loading"),
    ROW(MONITOR, evicted_by_the_monitor, "it was no load"),
    ROW(DRAIN, assigned_twice, "s1.default.0 is assigned twice"),
    ROW(DRAIN, drained_and_nowhere_else, "as drained, but no other live copy"),
    ROW(DRAIN, drained_while_it_loads_elsewhere, "as drained, but no other live copy"),
    ROW(DRAIN, doubled_and_left_on_the_drained, "as doubled, but no other live copy"),
    ROW(DRAIN, drained_while_paused, "but its service is paused"),
    ROW(MODEL, one_is_missing, "the history is not whole"),
    ROW(MODEL, the_beginning_is_missing, "the history is not whole"),
};

static void assert_only(const Wrong *wrong, const RecordedResult *result)
{
    for (guint group = 0; group < INV_N_GROUPS; group++)
        if ((result->failed[group] > 0) != (group == wrong->group))
            fail_msg("%s: group %s complains %" G_GUINT64_FORMAT " times; first: %s", wrong->name,
                     inv_group_name(group), result->failed[group],
                     result->said->len == 0 ? "nothing" : (char *)result->said->pdata[0]);
    if (strstr(result->said->pdata[0], wrong->says) == NULL)
        fail_msg("%s: \"%s\" does not say \"%s\"", wrong->name, (char *)result->said->pdata[0],
                 wrong->says);
}

static void each_wrong_is_found_by_its_group(void **state)
{
    (void)state;
    for (guint i = 0; i < G_N_ELEMENTS(wrongs); i++) {
        g_autoptr(History) h = begin();
        RecordedResult result;
        wrongs[i].go_wrong(h);
        judge(h, &result);
        assert_only(&wrongs[i], &result);
        recorded_result_clear(&result);
    }
}

/* ---- what is good ---- */

static void assert_good(const History *h)
{
    RecordedResult result;
    judge(h, &result);
    if (result.violations > 0)
        fail_msg("%s", (char *)result.said->pdata[0]);
    recorded_result_clear(&result);
}

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

/* @namesake: another pool has an item of the same name on the same node, and a node of the same name. */
static void evict_well(History *h, gboolean namesake)
{
    if (namesake) {
        put(h, 0, "decided/assignments/recovery/" NODE_A "/" ITEM,
            "{\"action\":\"load\",\"controller\":\"recovery-assigner\",\"epoch\":1}");
        recorded_by_hand(h->recorded, commit(h));
    }
    history_wait(h, 3600 * 1000 - 1000); /* by a clock that is fast */
    put_order(h, NODE_A, "s1", 0, 400, "evict");
    gint64 order = commit(h);
    del(h, "actual/search/cache/" NODE_A "/s1");
    put_item(h, LEASE_A, NODE_A, ITEM, "evicting", order);
    commit(h);
    put_item(h, LEASE_A, NODE_A, ITEM, "evicted", order);
    commit(h);
    del(h, ON(NODE_A) ITEM);
    commit(h);
    del(h, "actual/items/cache/" NODE_A "/" ITEM);
    commit(h);
    del(h, "decided/replicas/" ITEM);
    commit(h);
    assert_good(h);
}

static void good_eviction(void **state)
{
    for (int namesake = 0; namesake < 2; namesake++) {
        g_autoptr(History) h = begin();
        (void)state;
        evict_well(h, namesake);
    }
}

static void good_drain(void **state)
{
    (void)state;
    g_autoptr(History) h = begin();
    moved(h);
    put_move(h, NODE_A, "drained");
    assert_good(h);
}

static void good_drain_that_is_undone(void **state)
{
    (void)state;
    g_autoptr(History) h = begin();
    moving(h);
    accept_spec(h, "nodepolicies/cache/node-a", "{\"drain\":false}");
    put_move(h, NODE_B, "doubled");
    assert_good(h);
}

static void good_taking_back(void **state)
{
    (void)state;
    g_autoptr(History) h = begin();
    taken_back(h, "loading", 30);
    assert_good(h);
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

static void good_masses_up_to_ten(void **state)
{
    (void)state;
    g_autoptr(History) h = begin();
    masses(h, 12); /* ten, and what a reservation may count twice */
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
        cmocka_unit_test(good_eviction),
        cmocka_unit_test(good_drain),
        cmocka_unit_test(good_drain_that_is_undone),
        cmocka_unit_test(good_taking_back),
        cmocka_unit_test(good_loss_of_a_node),
        cmocka_unit_test(good_handover),
        cmocka_unit_test(good_masses_up_to_ten),
        cmocka_unit_test(people),
        cmocka_unit_test(what_is_not_known_is_not_held_against_it),
        cmocka_unit_test(the_least_of_every_kind_is_judged),
        cmocka_unit_test(nothing_checked_is_a_failure),
        cmocka_unit_test(many_violations_are_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
