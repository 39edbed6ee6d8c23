/*
 * What is moved or shared out, in histories: drains, and seeds on their managers.
 */
#include "tests/unit/invariants/wrong.h"

/* ---- a drain ---- */

static void assigned_twice(History *h)
{
    put_order(h, NODE_B, "s1", 0, 400, "load");
    commit(h);
}

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

/* ---- seeds ---- */

#define MANAGER(letter) "m" letter "-0000000" letter

static void join_manager(History *h, const char *id, gint64 lease)
{
    g_autofree char *key = g_strconcat("actual/nodes/manager/", id, NULL);
    g_autofree char *name = g_strndup(id, strlen(id) - 9);
    put(h, lease, key,
        "{\"name\":\"%s\",\"lease\":\"%016" G_GINT64_MODIFIER "x\",\"leaseTtl\":\"10s\"}", name,
        (guint64)lease);
    commit(h);
}

/* Adds to the transaction. */
static void put_claim(History *h, const char *id)
{
    put(h, 0, "decided/status/throttles/slow/seed-allocator", "{\"owner\":\"%s\"}", id);
}

/* Adds to the transaction. */
static void put_seed(History *h, const char *id, const char *seed, const char *action)
{
    g_autofree char *key = g_strdup_printf("decided/assignments/manager/%s/%s", id, seed);
    put(h, 0, key,
        "{\"action\":\"%s\",\"controller\":\"seed-allocator\",\"epoch\":%" G_GINT64_FORMAT
        ",\"seed\":{\"url\":\"http://x/\",\"throttle\":{\"name\":\"slow\",\"requests\":1}}}",
        action, h->epoch);
}

static void say_seed(History *h, gint64 lease, const char *id, const char *seed, const char *state,
                     gint64 order)
{
    g_autofree char *key = g_strdup_printf("actual/items/manager/%s/%s", id, seed);
    put(h, lease, key, "{\"state\":\"%s\",\"assignment\":%" G_GINT64_FORMAT "}", state, order);
    commit(h);
}

/* Seed a of policy slow is ordered to leave manager a. */
static gint64 seed_leaves(History *h)
{
    h->epoch = lead(h, "seed-allocator", LEADERS);
    join_manager(h, MANAGER("a"), 0x1a);
    join_manager(h, MANAGER("b"), 0x1b);
    put_claim(h, MANAGER("a"));
    put_seed(h, MANAGER("a"), "a", "load");
    say_seed(h, 0x1a, MANAGER("a"), "a", "live", commit(h));
    put_seed(h, MANAGER("a"), "a", "evict");
    return commit(h);
}

static void a_policy_on_two_managers(History *h)
{
    seed_leaves(h);
    put_claim(h, MANAGER("b"));
    put_seed(h, MANAGER("b"), "b", "load");
    commit(h);
}

static void a_seed_on_two_managers(History *h)
{
    gint64 order = seed_leaves(h);
    say_seed(h, 0x1a, MANAGER("a"), "a", "evicted", order);
    put_claim(h, MANAGER("b"));
    put_seed(h, MANAGER("b"), "a", "load");
    commit(h);
}

static void a_policy_that_nobody_claimed(History *h)
{
    gint64 order = seed_leaves(h);
    say_seed(h, 0x1a, MANAGER("a"), "a", "evicted", order);
    put_seed(h, MANAGER("b"), "b", "load");
    commit(h);
}

static void an_eviction_taken_back(History *h)
{
    seed_leaves(h);
    put_seed(h, MANAGER("a"), "a", "load");
    commit(h);
}

static const Wrong wrongs[] = {
    ROW(DRAIN, assigned_twice, "s1.default.0 is assigned twice"),
    ROW(DRAIN, drained_and_nowhere_else, "as drained, but no other live copy"),
    ROW(DRAIN, drained_while_it_loads_elsewhere, "as drained, but no other live copy"),
    ROW(DRAIN, doubled_and_left_on_the_drained, "as doubled, but no other live copy"),
    ROW(DRAIN, drained_while_paused, "but its service is paused"),
    ROW(SEEDS, a_policy_on_two_managers, "policy slow is on ma-0000000a too"),
    ROW(SEEDS, a_seed_on_two_managers, "the seed is on ma-0000000a too"),
    ROW(SEEDS, a_policy_that_nobody_claimed, "its policy slow is not claimed for that node"),
    ROW(SEEDS, an_eviction_taken_back, "ordered to be evicted, and is loaded again"),
};

static void each_wrong_is_found_by_its_group(void **state)
{
    (void)state;
    assert_wrongs(wrongs, G_N_ELEMENTS(wrongs));
}

/* ---- what is good ---- */

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

static void good_move_of_a_policy(void **state)
{
    (void)state;
    g_autoptr(History) h = begin();
    gint64 order = seed_leaves(h);
    say_seed(h, 0x1a, MANAGER("a"), "a", "evicted", order);
    del(h, "decided/assignments/manager/" MANAGER("a") "/a");
    put_claim(h, MANAGER("b"));
    put_seed(h, MANAGER("b"), "a", "load");
    commit(h);
    put_seed(h, MANAGER("b"), "b", "load");
    commit(h);
    assert_good(h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_wrong_is_found_by_its_group),
        cmocka_unit_test(good_drain),
        cmocka_unit_test(good_move_of_a_policy),
        cmocka_unit_test(good_drain_that_is_undone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
