/*
 * Snapshots in histories: where their replicas are placed, when they go, and what the monitor takes back.
 */
#include "tests/unit/invariants/wrong.h"

/* ---- placement ---- */

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

static const Wrong wrongs[] = {
    ROW(PLACEMENT, two_of_a_snapshot, "two replicas of s1 are on node-a"),
    ROW(PLACEMENT, beyond_capacity, "then node-a holds 901+0 of 1000 bytes"),
    ROW(PLACEMENT, no_replica, "there is no such replica"),
    ROW(PLACEMENT, no_snapshot, "there is no such snapshot to load"),
    ROW(PLACEMENT, another_size, "is not what its replica and snapshot say"),
    ROW(PLACEMENT, another_set, "its node is in set extra, not default"),
    ROW(PLACEMENT, not_registered, "its node is not registered"),
    ROW(PLACEMENT, taken_without_answer, "without an answer of its node, which is registered"),
    ROW(PLACEMENT, taken_by_an_old_answer, "without an answer of its node, which is registered"),
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
    ROW(MONITOR, taken_back_too_soon, "ms after it was ordered"),
    ROW(MONITOR, taken_back_while_live, "it is not loading"),
    ROW(MONITOR, taken_back_unanswered, "it is not loading"),
    ROW(MONITOR, evicted_by_the_monitor, "it was no load"),
};

static void each_wrong_is_found_by_its_group(void **state)
{
    (void)state;
    assert_wrongs(wrongs, G_N_ELEMENTS(wrongs));
}

/* ---- what is good ---- */

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

static void good_taking_back(void **state)
{
    (void)state;
    g_autoptr(History) h = begin();
    taken_back(h, "loading", 30);
    assert_good(h);
}

static void good_masses_up_to_ten(void **state)
{
    (void)state;
    g_autoptr(History) h = begin();
    masses(h, 12); /* ten, and what a reservation may count twice */
    assert_good(h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_wrong_is_found_by_its_group),
        cmocka_unit_test(good_eviction),
        cmocka_unit_test(good_taking_back),
        cmocka_unit_test(good_masses_up_to_ten),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
