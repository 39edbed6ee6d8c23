/* suite: slow */
/*
 * partition-allocator under random histories: people who edit services and partitions, indexers that come, go
 * and answer, values that do not parse, a clock that goes on. After every few steps the incremental index must
 * plan byte for byte what one built from the present objects plans. At every commit of a PartitionPlan: the past
 * is what it was, nothing new is put where there is no room, what is dedicated is not shared. No partition is
 * assigned to two indexers. Once the noise ends, everything converges and stays.
 *
 * LEASEHOLD_SEED=N runs that seed alone.
 */
#include "tests/unit/controllers/pool_world.h"

#include <stdlib.h>

#define NAME  "partition-allocator"
#define SEEDS 120
#define STEPS 400

typedef struct {
    World *world;
    GRand *rand;
    guint seed, step, next_node;
    guint plans, changed, moves, taken, refused; /* what was seen to happen */
} History;

static gint32 pick(History *h, gint32 n)
{
    return g_rand_int_range(h->rand, 0, n);
}

static gboolean chance(History *h, gint32 percent)
{
    return pick(h, 100) < percent;
}

static char *any_key(History *h, const char *prefix)
{
    g_autoptr(GPtrArray) keys = keys_below(h->world, prefix);

    return keys->len == 0 ? NULL : g_strdup(keys->pdata[pick(h, (gint32)keys->len)]);
}

/* ---- what people, publishers and indexers do ---- */

static void do_service(History *h)
{
    g_autofree char *key = g_strdup_printf("desired/services/s%d", pick(h, 8));

    if (chance(h, 10))
        del(h->world, key);
    else if (chance(h, 5))
        put(h->world, key, "garbage");
    else
        putf(h->world, key,
             "{\"spec\":{\"owner\":\"o\",\"throughputBytesPerSecond\":%d,\"retention\":\"2d\","
             "\"partitions\":{\"min\":%d,\"dedicated\":%s}}}",
             pick(h, 60), 1 + pick(h, 3), chance(h, 25) ? "true" : "false");
}

static void do_partition(History *h)
{
    g_autofree char *key = g_strdup_printf("desired/partitions/p_%d", pick(h, 14));

    if (chance(h, 20))
        del(h->world, key);
    else if (chance(h, 5))
        put(h->world, key, "garbage");
    else
        putf(h->world, key, "{\"spec\":{\"capacityBytesPerSecond\":%d}}", pick(h, 40));
}

/* As admission would: what a group that comes later takes is compared with it. */
static void do_shrink(History *h)
{
    g_autofree char *key = any_key(h, "decided/accepted/partitions/");

    if (key != NULL)
        putf(h->world, key, "{\"revision\":1,\"spec\":{\"capacityBytesPerSecond\":%d}}",
             pick(h, 10));
}

static void do_settings(History *h)
{
    static const char *const cutovers[] = {"15m", "15m", "0s", "1m", "2h"};

    putf(h->world, "desired/settings/" NAME, "{\"spec\":{\"cutover\":\"%s\"}}",
         cutovers[pick(h, G_N_ELEMENTS(cutovers))]);
}

static void do_snapshot(History *h)
{
    int name = pick(h, 6);
    g_autofree char *key = g_strdup_printf("published/snapshots/x%d", name);

    if (chance(h, 50))
        del(h->world, key);
    else if (chance(h, 10))
        put(h->world, key, "garbage");
    else
        putf(h->world, key,
             "{\"service\":\"s%d\",\"startTime\":1,\"endTime\":2,\"sizeBytes\":1,\"uri\":"
             "\"s3://bucket/x%d/\"}",
             pick(h, 8), name);
}

/* Something of the controllers' is spoilt by hand, or removed. */
static void do_spoil(History *h)
{
    static const char *const areas[] = {"decided/accepted/partitions/",
                                        "decided/accepted/services/",
                                        "decided/partitionplans/",
                                        "decided/status/",
                                        "decided/retries/",
                                        "decided/accepted/settings/"};
    g_autofree char *key = any_key(h, areas[pick(h, G_N_ELEMENTS(areas))]);

    if (key != NULL && chance(h, 50))
        put(h->world, key, "garbage");
    else if (key != NULL)
        del(h->world, key);
}

static void do_join(History *h)
{
    int host = pick(h, 4);
    g_autofree char *id = g_strdup_printf("i%d-%08x", host, h->next_node++);
    g_autofree char *present = g_strdup_printf("actual/nodes/indexer/i%d-", host);

    if (count_below(h->world, present) == 0)
        join_pool(h->world, "indexer", id, chance(h, 50) ? "" : ",\"capacityItems\":4");
}

static void do_leave(History *h)
{
    g_autofree char *key = any_key(h, "actual/nodes/indexer/");

    if (key != NULL)
        leave_pool(h->world, "indexer", key + strlen("actual/nodes/indexer/"));
}

static void do_policy(History *h)
{
    g_autofree char *key = g_strdup_printf("desired/nodepolicies/indexer/i%d", pick(h, 4));

    if (chance(h, 60))
        del(h->world, key);
    else
        putf(h->world, key, "{\"spec\":{\"%s\":true}}", chance(h, 50) ? "drain" : "cordon");
}

static gboolean answer_order(History *h, const char *key, const char *state)
{
    const char *name = key + strlen("decided/assignments/");
    g_autofree char *id = lh_name_part(name, 1);

    if (lookf(h->world, "actual/nodes/indexer/%s", id) == NULL)
        return FALSE;
    answer_in_pool(h->world, name, state, "");
    return TRUE;
}

static void do_answer(History *h)
{
    g_autofree char *key = any_key(h, "decided/assignments/indexer/");
    const LhAssignment *order = key == NULL ? NULL : look(h->world, key);

    if (order == NULL || !lh_object_known(&order->o))
        return;
    if (chance(h, 8))
        answer_order(h, key, "failed");
    else if (chance(h, 20))
        answer_order(h, key, order->action == LH_ACTION_LOAD ? "loading" : "evicting");
    else
        answer_order(h, key, order->action == LH_ACTION_LOAD ? "live" : "evicted");
}

static void do_time(History *h)
{
    static const gint64 steps[] = {SECOND, MINUTE, 5 * MINUTE, 15 * MINUTE, 3 * HOUR, DAY};

    h->world->now_ms += steps[pick(h, G_N_ELEMENTS(steps))];
    if (chance(h, 5))
        fail_over(h->world);
}

/* ---- what must hold at a commit ---- */

typedef struct {
    gint64 load;
    guint users, dedicated, unsized;
} Load;

static gboolean has(const LhPartitionInterval *interval, const char *partition)
{
    return g_strv_contains(interval->partitions, partition);
}

/* All that is or will be on @partition, as the plans stand. */
static Load load_of(const World *world, const char *partition)
{
    g_autoptr(GPtrArray) keys = keys_below(world, "decided/partitionplans/");
    Load load = {0, 0, 0, 0};

    for (guint i = 0; i < keys->len; i++) {
        const LhPartitionPlan *plan = look(world, keys->pdata[i]);
        const LhService *spec = lh_accepted_spec(
            lookf(world, "decided/accepted/services/%s", plan->o.name), LH_KIND_SERVICE);
        gint64 most = -1;
        assert_true(lh_object_known(&plan->o)); /* else nothing new is put anywhere */
        for (guint n = 0; n < plan->history->n; n++) {
            const LhPartitionInterval *at = lh_array_at(plan->history, n);
            gint64 count = g_strv_length((GStrv)at->partitions);
            if ((at->end >= 0 && at->end <= world->now_ms) || !has(at, partition))
                continue;
            most = MAX(most,
                       spec == NULL ? 0 : (spec->throughput_bytes_per_second + count - 1) / count);
        }
        if (most < 0)
            continue;
        load.users++;
        load.load += most;
        load.unsized += spec == NULL;
        load.dedicated += spec != NULL && spec->partitions_dedicated;
    }
    return load;
}

static gboolean used_before(const LhPartitionPlan *before, const char *partition, gint64 now_ms)
{
    for (guint n = 0; before != NULL && n < before->history->n; n++) {
        const LhPartitionInterval *at = lh_array_at(before->history, n);
        if ((at->end < 0 || at->end > now_ms) && has(at, partition))
            return TRUE;
    }
    return FALSE;
}

static void check_room(History *h, const LhPartitionPlan *before, const LhPartitionPlan *after)
{
    const LhPartitionInterval *last = lh_array_at(after->history, after->history->n - 1);
    const LhService *spec = lh_accepted_spec(
        lookf(h->world, "decided/accepted/services/%s", after->o.name), LH_KIND_SERVICE);

    for (guint i = 0; last->partitions[i] != NULL; i++) {
        const LhPartition *partition = lh_accepted_spec(
            lookf(h->world, "decided/accepted/partitions/%s", last->partitions[i]),
            LH_KIND_PARTITION);
        Load load;
        if (used_before(before, last->partitions[i], h->world->now_ms))
            continue;
        load = load_of(h->world, last->partitions[i]);
        h->taken++;
        if (spec == NULL || partition == NULL || load.unsized != 0 ||
            (load.dedicated != 0 && load.users != 1) ||
            (!spec->partitions_dedicated && load.load > partition->capacity_bytes_per_second))
            fail_msg("seed %u step %u: %s takes %s: load %d of %d, %u users, %u dedicated, %u of "
                     "unknown size",
                     h->seed, h->step, after->o.name, last->partitions[i], (int)load.load,
                     partition == NULL ? -1 : (int)partition->capacity_bytes_per_second, load.users,
                     load.dedicated, load.unsized);
    }
}

/* What had begun stays, but for the end of what is running, which lies ahead; the oldest may go. */
static void check_past(History *h, const LhPartitionPlan *before, const LhPartitionPlan *after)
{
    const LhPartitionInterval *first = lh_array_at(after->history, 0);
    guint skip = 0;

    if (before == NULL || before->history->n == 0)
        return;
    while (skip < before->history->n &&
           ((const LhPartitionInterval *)lh_array_at(before->history, skip))->start != first->start)
        skip++;
    for (guint i = skip; i < before->history->n; i++) {
        const LhPartitionInterval *was = lh_array_at(before->history, i);
        const LhPartitionInterval *is = i - skip < after->history->n
                                            ? lh_array_at(after->history, i - skip)
                                            : NULL;
        if (was->start > h->world->now_ms)
            break;
        if (is == NULL || is->start != was->start ||
            !g_strv_equal(is->partitions, was->partitions) ||
            (was->end != is->end && ((was->end >= 0 && was->end <= h->world->now_ms) ||
                                     (is->end >= 0 && is->end < h->world->now_ms))))
            fail_msg("seed %u step %u: %s: the past was changed", h->seed, h->step, after->o.name);
    }
    if (skip == before->history->n)
        fail_msg("seed %u step %u: %s: nothing of the past is left", h->seed, h->step,
                 after->o.name);
}

static void commit(History *h, const LhPlan *plan, guint group)
{
    const LhGroup *range = lh_plan_group(plan, group);
    const LhOp *op = lh_plan_op(plan, range, 0);
    g_autoptr(LhObject) before = lh_object_ref(look(h->world, op->key));
    const LhPartitionPlan *after;

    if (!apply_group(h->world, plan, group)) {
        h->refused++;
        return;
    }
    if (op->kind == LH_KIND_ASSIGNMENT && op->type == LH_OP_PUT && op->expect_rev != 0)
        h->moves++;
    if (op->kind != LH_KIND_PARTITIONPLAN || op->type != LH_OP_PUT)
        return;
    h->plans++;
    h->changed += before != NULL;
    after = look(h->world, op->key);
    check_past(h, (const LhPartitionPlan *)before, after);
    check_room(h, (const LhPartitionPlan *)before, after);
}

static void check_assigned_once(History *h)
{
    g_autoptr(GPtrArray) keys = keys_below(h->world, "decided/assignments/indexer/");
    g_autoptr(GHashTable) seen = g_hash_table_new(g_str_hash, g_str_equal);

    for (guint i = 0; i < keys->len; i++)
        if (!g_hash_table_add(seen, strrchr(keys->pdata[i], '/') + 1))
            fail_msg("seed %u step %u: %s is assigned twice", h->seed, h->step,
                     (const char *)keys->pdata[i]);
}

/* Some of a plan's groups, in any order; sometimes something happens between two of them. */
static void do_controller(History *h)
{
    static const char *const names[] = {"admission", "admission", NAME,
                                        NAME,        NAME,        "failure-detector"};
    const char *name = names[pick(h, G_N_ELEMENTS(names))];
    g_autoptr(LhPlan) plan = NULL;
    guint n, skip = chance(h, 25) ? (guint)pick(h, 100) : 0;

    h->world->max_groups = chance(h, 20) ? 1 + (guint)pick(h, 3) : G_MAXUINT;
    plan = plan_of(h->world, name);
    h->world->max_groups = G_MAXUINT;
    n = lh_plan_groups(plan);
    g_autofree guint *order = g_new(guint, n + 1);
    for (guint i = 0; i < n; i++) {
        guint j = (guint)pick(h, (gint32)i + 1);
        order[i] = order[j];
        order[j] = i;
    }
    for (guint i = 0; i < n; i++) {
        if (skip > 0 && chance(h, (gint32)skip))
            continue;
        commit(h, plan, order[i]);
        if (chance(h, 3))
            do_answer(h);
        if (chance(h, 8))
            do_shrink(h);
    }
    check_assigned_once(h);
}

static void random_step(History *h)
{
    static const struct {
        guint weight;
        void (*act)(History *h);
    } acts[] = {
        {12, do_service}, {8, do_partition},   {1, do_settings}, {2, do_snapshot},
        {3, do_spoil},    {4, do_join},        {2, do_leave},    {2, do_policy},
        {16, do_answer},  {45, do_controller}, {5, do_time},
    };
    guint sum = 0, at;

    for (guint i = 0; i < G_N_ELEMENTS(acts); i++)
        sum += acts[i].weight;
    at = (guint)pick(h, (gint32)sum);
    for (guint i = 0; i < G_N_ELEMENTS(acts); i++) {
        if (at < acts[i].weight) {
            acts[i].act(h);
            return;
        }
        at -= acts[i].weight;
    }
}

/* ---- rebuilt, and at rest ---- */

static void check_rebuilt(History *h)
{
    gpointer pools = rebuilt_of(h->world, &lh_pools_index, h->rand);
    g_autoptr(LhPlan) a = plan_of(h->world, NAME);
    g_autoptr(LhPlan) b = plan_on(h->world, pools, NAME);
    g_autofree char *left = plan_text(a), *right = plan_text(b);

    if (strcmp(left, right) != 0)
        fail_msg("seed %u step %u: plans\n%s\nrebuilt\n%s", h->seed, h->step, left, right);
    lh_pools_index.free(pools);
}

static gboolean answer_all(History *h)
{
    g_autoptr(GPtrArray) orders = keys_below(h->world, "decided/assignments/indexer/");
    g_autoptr(GPtrArray) items = keys_below(h->world, "actual/items/indexer/");
    gboolean any = FALSE;

    for (guint i = 0; i < items->len; i++) {
        g_autofree char *key = g_strdup(items->pdata[i]);
        if (lookf(h->world, "decided/assignments/%s", key + strlen("actual/items/")) != NULL)
            continue;
        del(h->world, key);
        any = TRUE;
    }
    for (guint i = 0; i < orders->len; i++) {
        const LhAssignment *order = look(h->world, orders->pdata[i]);
        const LhItem *item = lookf(h->world, "actual/items/%s", order->o.name);
        const char *state = order->action == LH_ACTION_LOAD ? "live" : "evicted";
        if (item != NULL && item->assignment == order->o.mod_rev &&
            strcmp(lh_item_state_name(item->state), state) == 0)
            continue;
        any = answer_order(h, orders->pdata[i], state) || any;
    }
    return any;
}

static void rest(History *h)
{
    g_autofree char *text = NULL;

    for (int round = 0; round < 2000; round++) {
        guint written = 0;
        static const char *const names[] = {"admission", "failure-detector", NAME};
        for (guint i = 0; i < G_N_ELEMENTS(names); i++) {
            g_autoptr(LhPlan) plan = plan_of(h->world, names[i]);
            if (lh_plan_groups(plan) > 0) {
                g_free(text);
                text = plan_text(plan);
            }
            for (guint g = 0; g < lh_plan_groups(plan); g++, written++)
                commit(h, plan, g);
        }
        check_assigned_once(h);
        if (!answer_all(h) && written == 0)
            return;
    }
    fail_msg("seed %u: does not come to rest:\n%s", h->seed, text);
}

static void mend(History *h)
{
    g_autoptr(GPtrArray) keys = keys_below(h->world, "");

    for (guint i = 0; i < keys->len; i++) {
        g_autofree char *key = g_strdup(keys->pdata[i]);
        const LhObject *object = look(h->world, key);
        if (object != NULL &&
            (!lh_object_known(object) || g_str_has_prefix(key, "decided/retries/") ||
             g_str_has_prefix(key, "desired/nodepolicies/")))
            del(h->world, key);
    }
    join_pool(h->world, "indexer", "big-00000001", "");
}

/* Every partition that a plan names for ever is live on an indexer, and each service has what it needs or is
 * told why not. */
static void check_at_rest(History *h)
{
    g_autoptr(GPtrArray) keys = keys_below(h->world, "decided/partitionplans/");
    g_autoptr(GPtrArray) services = keys_below(h->world, "decided/accepted/services/");

    for (guint i = 0; i < keys->len; i++) {
        const LhPartitionPlan *plan = look(h->world, keys->pdata[i]);
        const LhPartitionInterval *last = lh_array_at(plan->history, plan->history->n - 1);
        for (guint p = 0; last->partitions[p] != NULL; p++) {
            g_autofree char *tail = g_strconcat("/", last->partitions[p], NULL);
            g_autoptr(GPtrArray) items = keys_below(h->world, "actual/items/indexer/");
            guint live = 0;
            for (guint n = 0; n < items->len; n++)
                live += g_str_has_suffix(items->pdata[n], tail) &&
                        ((const LhItem *)look(h->world, items->pdata[n]))->state == LH_ITEM_LIVE;
            if (live != 1)
                fail_msg("seed %u: %s is live on %u indexers", h->seed, last->partitions[p], live);
        }
    }
    for (guint i = 0; i < services->len; i++) {
        const char *name = (const char *)services->pdata[i] + strlen("decided/accepted/services/");
        const LhService *spec = lh_accepted_spec(look(h->world, services->pdata[i]),
                                                 LH_KIND_SERVICE);
        g_autofree char *status = g_strdup_printf("services/%s/" NAME, name);
        if (spec->throughput_bytes_per_second > 0 &&
            condition_of(h->world, status, "Allocated") == NULL)
            fail_msg("seed %u: nothing is said of %s", h->seed, name);
    }
}

static void check_converges(History *h)
{
    mend(h);
    rest(h);
    for (int round = 0; round < 200; round++) {
        g_autoptr(LhPlan) plan = plan_of(h->world, NAME);
        g_autoptr(LhPlan) detector = plan_of(h->world, "failure-detector");
        gint64 wake = plan->wake_ms != 0 ? plan->wake_ms : detector->wake_ms;
        if (wake == 0)
            break;
        h->world->now_ms = MAX(wake, h->world->now_ms + 1);
        rest(h);
    }
    check_rebuilt(h);
    check_at_rest(h);
    fail_over(h->world);
    assert_nothing_to_do(h->world, NAME);
}

static void run_seed(guint seed, History *sum)
{
    History h = {
        .world = world_new(), .rand = g_rand_new_with_seed(seed), .seed = seed, .next_node = 1};

    for (int i = 0; i < 10; i++)
        do_partition(&h);
    for (h.step = 0; h.step < STEPS; h.step++) {
        random_step(&h);
        if (h.step % 3 == 0)
            check_rebuilt(&h);
    }
    check_converges(&h);
    sum->plans += h.plans;
    sum->changed += h.changed;
    sum->moves += h.moves;
    sum->taken += h.taken;
    sum->refused += h.refused;
    world_free(h.world);
    g_rand_free(h.rand);
}

static void test_random_histories(void **state)
{
    const char *one = g_getenv("LEASEHOLD_SEED");
    History sum = {.seed = 0};

    (void)state;
    if (one != NULL) {
        run_seed((guint)atoi(one), &sum);
        return;
    }
    for (guint seed = 1; seed <= SEEDS; seed++)
        run_seed(seed, &sum);
    print_message("# plans %u, changes %u, moves %u, taken %u, refused %u\n", sum.plans,
                  sum.changed, sum.moves, sum.taken, sum.refused);
    /* Too little work would prove nothing. */
    assert_true(sum.plans > SEEDS * 10);
    assert_true(sum.changed > SEEDS * 5);
    assert_true(sum.taken > SEEDS * 20);
    assert_true(sum.moves > SEEDS * 2);
    assert_true(sum.refused > SEEDS / 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_random_histories)};

    return cmocka_run_group_tests_name("partition_histories", tests, NULL, NULL);
}
