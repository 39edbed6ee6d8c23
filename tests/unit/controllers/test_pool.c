/*
 * The index of the exclusive pools: which answers count, when an assignment may end, which nodes take work,
 * which items wait, and that records go when nothing refers to them any more.
 */
#include "tests/unit/controllers/pool_world.h"

#define TASK(n)  "published/recoverytasks/" n
#define ORDER(n) "decided/assignments/recovery/" n
#define ITEM(n)  "actual/items/recovery/" n

static void put_task(World *world, const char *name, gint64 created_at)
{
    g_autofree char *key = g_strconcat(TASK(""), name, NULL);

    putf(world, key,
         "{\"partition\":\"p\",\"startOffset\":0,\"endOffset\":9,\"createdAt\":%" PRId64 "}",
         created_at);
}

static void put_order(World *world, const char *name, const char *action)
{
    g_autofree char *key = g_strconcat(ORDER(""), name, NULL);

    putf(world, key, "{\"action\":\"%s\",\"since\":%" PRId64 "}", action, world->now_ms);
}

static void assert_end(const World *world, LhPoolEnd end)
{
    assert_int_equal(lh_pool_end(record_of(world, "recovery", "a-00000001/t")), end);
}

static void assert_waiting(const World *world, const char *names)
{
    g_autoptr(GString) found = g_string_new(NULL);

    for (GTreeNode *n = g_tree_node_first(view_in(world, "recovery")->waiting); n != NULL;
         n = g_tree_node_next(n))
        g_string_append_printf(found, "%s ", ((const LhPoolItem *)lh_pool_record(n))->name);
    assert_string_equal(found->str, names);
}

static void only_an_answer_to_this_order_counts(void **state)
{
    g_autoptr(World) world = world_new();

    (void)state;
    join_pool(world, "recovery", "a-00000001", "");
    put_order(world, "a-00000001/t", "load");
    assert_end(world, LH_POOL_HELD);
    answer_in_pool(world, "recovery/a-00000001/t", "loading", "");
    assert_end(world, LH_POOL_HELD);
    answer_in_pool(world, "recovery/a-00000001/t", "failed", "");
    assert_end(world, LH_POOL_ANSWERED);
    put_order(world, "a-00000001/t", "evict");
    assert_end(world, LH_POOL_HELD);
    assert_int_equal(lh_pool_answer(record_of(world, "recovery", "a-00000001/t")), -1);
    answer_in_pool(world, "recovery/a-00000001/t", "evicting", "");
    assert_end(world, LH_POOL_HELD);
    answer_in_pool(world, "recovery/a-00000001/t", "evicted", "");
    assert_end(world, LH_POOL_ANSWERED);
    put(world, ITEM("a-00000001/t"), "garbage");
    assert_end(world, LH_POOL_HELD);
}

static void gone_is_not_yet_stopped(void **state)
{
    g_autoptr(World) world = world_new();

    (void)state;
    join_pool(world, "recovery", "a-00000001", "");
    put_order(world, "a-00000001/t", "load");
    answer_in_pool(world, "recovery/a-00000001/t", "loading", "");
    leave_pool(world, "recovery", "a-00000001");
    assert_end(world, LH_POOL_HELD);
    say_health(world, "recovery", "a-00000001", "failure");
    assert_end(world, LH_POOL_HELD);
    put(world, "decided/health/recovery/a-00000001", "garbage");
    assert_end(world, LH_POOL_HELD);
    say_health(world, "recovery", "a-00000001", "failed");
    assert_end(world, LH_POOL_LOST);
    put(world, ORDER("a-00000001/t"), "garbage");
    assert_end(world, LH_POOL_HELD);
}

/* Somebody else's registration under its id: its lease is not gone. */
static void failed_but_registered_is_held(void **state)
{
    g_autoptr(World) world = world_new();

    (void)state;
    join_pool(world, "recovery", "a-00000001", "");
    put_order(world, "a-00000001/t", "load");
    say_health(world, "recovery", "a-00000001", "failed");
    assert_end(world, LH_POOL_HELD);
}

static void a_done_outlives_its_node(void **state)
{
    g_autoptr(World) world = world_new();

    (void)state;
    join_pool(world, "recovery", "a-00000001", "");
    put_order(world, "a-00000001/t", "load");
    answer_in_pool(world, "recovery/a-00000001/t", "done", "");
    leave_pool(world, "recovery", "a-00000001");
    say_health(world, "recovery", "a-00000001", "failed");
    assert_end(world, LH_POOL_ANSWERED);
    assert_int_equal(lh_pool_answer(record_of(world, "recovery", "a-00000001/t")), LH_ITEM_DONE);
}

static guint n_swept(const World *world, const char *key)
{
    g_autoptr(LhPlan) plan = lh_plan_new(FALSE);

    lh_pool_sweep(plan, record_of(world, "recovery", key));
    return lh_plan_groups(plan);
}

static void only_what_no_lease_ends_is_swept(void **state)
{
    g_autoptr(World) world = world_new();

    (void)state;
    put_order(world, "a-00000001/t", "load");
    answer_in_pool(world, "recovery/a-00000001/t", "done", "");
    assert_int_equal(n_swept(world, "a-00000001/t"), 0);
    del(world, ORDER("a-00000001/t"));
    assert_int_equal(n_swept(world, "a-00000001/t"), 1);
    put(world, ITEM("a-00000001/u"), "{\"state\":\"loading\",\"assignment\":1}");
    assert_int_equal(n_swept(world, "a-00000001/u"), 0);
}

static void what_waits_is_sorted_by_age(void **state)
{
    g_autoptr(World) world = world_new();

    (void)state;
    put_task(world, "young", T0 + 2);
    put_task(world, "old", T0);
    put_task(world, "b", T0 + 1);
    put_task(world, "a", T0 + 1);
    put(world, TASK("bad"), "garbage");
    put(world, TASK("empty"), "{\"partition\":\"p\",\"startOffset\":7,\"endOffset\":6}");
    assert_waiting(world, "empty old a b young ");
    put_order(world, "a-00000001/a", "load");
    put(world, ORDER("a-00000001/b"), "garbage");
    assert_waiting(world, "empty old young ");
    del(world, ORDER("a-00000001/a"));
    put_task(world, "young", T0 - 1);
    assert_waiting(world, "empty young old a ");
    del(world, TASK("empty"));
    put(world, TASK("old"), "garbage");
    assert_waiting(world, "young a ");
}

static const LhPoolTaker *taker_of(const GArray *takers, const char *id)
{
    for (guint i = 0; i < takers->len; i++) {
        const LhPoolTaker *taker = &g_array_index(takers, LhPoolTaker, i);
        if (strcmp(taker->node->id, id) == 0)
            return taker;
    }
    return NULL;
}

static gboolean takes(const World *world, const char *id)
{
    g_autoptr(GArray) takers = lh_pool_takers(view_in(world, "indexer"));

    return taker_of(takers, id) != NULL;
}

static void who_takes_new_work(void **state)
{
    g_autoptr(World) world = world_new();

    (void)state;
    join_pool(world, "indexer", "a-00000001", "");
    assert_true(takes(world, "a-00000001"));
    say_health(world, "indexer", "a-00000001", "failure");
    assert_false(takes(world, "a-00000001"));
    put(world, "decided/health/indexer/a-00000001", "garbage");
    assert_false(takes(world, "a-00000001"));
    say_health(world, "indexer", "a-00000001", "healthy");
    assert_true(takes(world, "a-00000001"));
    put(world, "desired/nodepolicies/indexer/a", "{\"spec\":{\"cordon\":true}}");
    step(world, "admission");
    assert_false(takes(world, "a-00000001"));
    put(world, "desired/nodepolicies/indexer/a", "{\"spec\":{\"drain\":true}}");
    step(world, "admission");
    assert_false(takes(world, "a-00000001"));
    del(world, "desired/nodepolicies/indexer/a");
    step(world, "admission");
    assert_true(takes(world, "a-00000001"));
    join_pool(world, "indexer", "a-00000002", "");
    assert_false(takes(world, "a-00000001")); /* another of its name is newer */
    assert_true(takes(world, "a-00000002"));
    join_pool(world, "indexer", "a-00000002", ",\"state\":\"paused\"");
    assert_false(takes(world, "a-00000002"));
    put(world, "actual/nodes/indexer/a-00000002", "garbage");
    assert_false(takes(world, "a-00000002"));
    leave_pool(world, "indexer", "a-00000002");
    assert_true(takes(world, "a-00000001"));
}

static void put_partition(World *world, const char *name)
{
    g_autofree char *key = g_strconcat("desired/partitions/", name, NULL);

    put(world, key, "{\"spec\":{\"capacityBytesPerSecond\":1,\"topic\":\"t\"}}");
    step(world, "admission");
}

static void half_a_share_on_probation(void **state)
{
    g_autoptr(World) world = world_new();
    g_autoptr(GArray) takers = NULL;

    (void)state;
    join_pool(world, "indexer", "a-00000001", "");
    join_pool(world, "indexer", "b-00000001", ",\"capacityItems\":5");
    say_health(world, "indexer", "a-00000001", "probation");
    for (int i = 0; i < 8; i++) {
        g_autofree char *name = g_strdup_printf("p%d", i);
        put_partition(world, name);
    }
    put(world, "decided/assignments/indexer/a-00000001/p0", "{\"action\":\"load\"}");
    put(world, "decided/assignments/indexer/b-00000001/p1", "{\"action\":\"evict\"}");
    put(world, "decided/assignments/indexer/b-00000001/p2", "garbage");
    takers = lh_pool_takers(view_in(world, "indexer"));
    assert_int_equal(takers->len, 2);
    assert_int_equal(taker_of(takers, "a-00000001")->held, 1);
    assert_int_equal(taker_of(takers, "a-00000001")->limit, 2); /* half of 8 over 2 nodes */
    assert_int_equal(taker_of(takers, "b-00000001")->held, 2);
    assert_int_equal(taker_of(takers, "b-00000001")->limit, 5);
}

static void a_changed_object_voids_its_retry(void **state)
{
    g_autoptr(World) world = world_new();
    gboolean unknown;
    const LhPoolItem *item;

    (void)state;
    put_task(world, "t", T0);
    put(world, "decided/retries/recovery/t", "{\"attempt\":5,\"parked\":true}");
    item = lh_pool_item(view_in(world, "recovery"), "t");
    assert_int_equal(lh_pool_retry(item, &unknown)->attempt, 5);
    assert_false(unknown);
    put_task(world, "t", T0 + 1);
    assert_null(lh_pool_retry(item, &unknown));
    assert_false(unknown);
    put(world, "decided/retries/recovery/t", "garbage");
    assert_null(lh_pool_retry(item, &unknown));
    assert_true(unknown);
}

static void settings_that_do_not_parse_hold(void **state)
{
    g_autoptr(World) world = world_new();

    (void)state;
    assert_int_equal(lh_pools_settings(world->pools, "recovery-assigner")->recovery_timeout_ms,
                     HOUR);
    put(world, "decided/accepted/settings/recovery-assigner",
        "{\"revision\":1,\"spec\":{\"recoveryTimeout\":\"5m\"}}");
    assert_int_equal(lh_pools_settings(world->pools, "recovery-assigner")->recovery_timeout_ms,
                     5 * MINUTE);
    put(world, "decided/accepted/settings/recovery-assigner", "garbage");
    assert_true(lh_pools_settings(world->pools, "recovery-assigner")->paused);
    del(world, "decided/accepted/settings/recovery-assigner");
    assert_false(lh_pools_settings(world->pools, "recovery-assigner")->paused);
}

/* Every key there is, in any order; then away again. */
static void records_go_with_their_last_object(void **state)
{
    static const char *const keys[] = {
        TASK("t"),
        ORDER("a-00000001/t"),
        ITEM("a-00000001/t"),
        "decided/retries/recovery/t",
        "actual/nodes/recovery/a-00000001",
        "decided/health/recovery/a-00000001",
        "decided/accepted/nodepolicies/recovery/a",
        "decided/accepted/partitions/t",
        "decided/accepted/settings/recovery-assigner",
        "decided/status/recoverytasks/t/recovery-assigner",
        "decided/assignments/recovery",
        "decided/assignments/recovery/",
        "decided/assignments//x",
        "decided/assignments/odd/node",
        "decided/assignments/odd/node/",
        "actual/nodes/odd/a/b",
        "decided/retries/odd/",
        "published/recoverytasks/",
    };
    g_autoptr(World) world = world_new();
    g_autoptr(GRand) rand = g_rand_new_with_seed(7);
    const LhPools *pools = world->pools;

    (void)state;
    for (int i = 0; i < 20000; i++) {
        const char *key = keys[g_rand_int_range(rand, 0, G_N_ELEMENTS(keys))];
        if (g_rand_int_range(rand, 0, 2) == 0)
            put(world, key,
                g_rand_int_range(rand, 0, 3) == 0 ? "garbage" : "{\"action\":\"load\"}");
        else
            del(world, key);
    }
    for (guint i = 0; i < G_N_ELEMENTS(keys); i++)
        del(world, keys[i]);
    assert_int_equal(g_hash_table_size(pools->views), 0);
    assert_int_equal(g_hash_table_size(pools->settings), 0);
    assert_int_equal(g_hash_table_size(pools->held), 0);
    for (guint i = 0; i < LH_N_KINDS; i++)
        if (pools->objects[i] != NULL)
            assert_int_equal(g_hash_table_size(pools->objects[i]), 0);
}

/* Recovery's plan walks these, and would not end if it walked all. */
static void statuses_of_tasks_are_apart(void **state)
{
    g_autoptr(World) world = world_new();
    static const char status[] = "{\"observedRevision\":1,\"conditions\":[]}";
    static const char *const keys[] = {
        "decided/status/recoverytasks/z/recovery-assigner",
        "decided/status/seeds/s/seed-allocator",
        "decided/status/recoverytasks/a/recovery-assigner",
        "decided/status/recoverytasks/a/admission",
        "decided/status/partitions/p/partition-allocator",
    };

    const LhPools *pools = world->pools;

    (void)state;
    for (guint i = 0; i < G_N_ELEMENTS(keys); i++)
        put(world, keys[i], status);
    assert_int_equal(g_tree_nnodes(pools->task_statuses), 2);
    assert_string_equal(g_tree_node_key(g_tree_node_first(pools->task_statuses)),
                        "recoverytasks/a/recovery-assigner");
    put(world, keys[0], status);
    assert_int_equal(g_tree_nnodes(pools->task_statuses), 2);
    for (guint i = 0; i < G_N_ELEMENTS(keys); i++)
        del(world, keys[i]);
    assert_int_equal(g_tree_nnodes(pools->task_statuses), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_an_answer_to_this_order_counts),
        cmocka_unit_test(gone_is_not_yet_stopped),
        cmocka_unit_test(failed_but_registered_is_held),
        cmocka_unit_test(a_done_outlives_its_node),
        cmocka_unit_test(only_what_no_lease_ends_is_swept),
        cmocka_unit_test(what_waits_is_sorted_by_age),
        cmocka_unit_test(who_takes_new_work),
        cmocka_unit_test(half_a_share_on_probation),
        cmocka_unit_test(a_changed_object_voids_its_retry),
        cmocka_unit_test(settings_that_do_not_parse_hold),
        cmocka_unit_test(records_go_with_their_last_object),
        cmocka_unit_test(statuses_of_tasks_are_apart),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
