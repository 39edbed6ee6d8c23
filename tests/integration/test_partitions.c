/*
 * Services, partitions and indexers with real processes: a service gets partitions, its throughput is raised,
 * and what it needs from then on begins after the cut-over; too little capacity is said with numbers; partitions
 * of an indexer that dies go to another one, and not before it has failed.
 */
#include "harness.h"

#include <glib/gstdio.h>
#include <string.h>

#define NAME "partition-allocator"

static void put_partitions(World *world, guint n, gint64 capacity)
{
    for (guint i = 1; i <= n; i++) {
        g_autofree char *key = g_strdup_printf("desired/partitions/p_%u", i);
        world_putf(world, key,
                   "{\"spec\":{\"capacityBytesPerSecond\":%" G_GINT64_FORMAT
                   ",\"topic\":\"logs\",\"kafkaPartition\":%u}}",
                   capacity, i);
    }
}

static void put_service(World *world, const char *name, gint64 throughput)
{
    g_autofree char *key = g_strconcat("desired/services/", name, NULL);

    world_putf(world, key,
               "{\"spec\":{\"owner\":\"me\",\"throughputBytesPerSecond\":%" G_GINT64_FORMAT "}}",
               throughput);
}

/* Works on what it is given until it is stopped. */
static Proc *indexer(World *world, const char *name)
{
    g_autofree char *path = g_build_filename(world->dir, "index", NULL);
    const char *const extra[] = {"--exec", path, NULL};

    assert_true(g_file_set_contents(path, "#!/bin/sh\nexec sleep 1000\n", -1, NULL));
    assert_int_equal(g_chmod(path, 0755), 0);
    return agent_start(world, &(AgentOptions){.name = name, .pool = "indexer", .extra = extra});
}

/* ---- plans ---- */

static const LhPartitionInterval *interval(World *world, const char *service, guint i)
{
    const LhPartitionPlan *plan = world_get(world, LH_KIND_PARTITIONPLAN, "%s", service);

    return plan == NULL || plan->history->n <= i ? NULL : lh_array_at(plan->history, i);
}

typedef struct {
    const char *service;
    guint n, partitions;
} Planned;

static gboolean is_planned(World *world, gpointer data)
{
    const Planned *planned = data;
    const LhPartitionPlan *plan = world_get(world, LH_KIND_PARTITIONPLAN, "%s", planned->service);

    return plan != NULL && plan->history->n == planned->n &&
           g_strv_length((GStrv)interval(world, planned->service, planned->n - 1)->partitions) ==
               planned->partitions;
}

static void wait_planned(World *world, const char *service, guint n, guint partitions)
{
    Planned planned = {service, n, partitions};

    world_wait(world, is_planned, &planned, "%s has %u intervals, the last with %u partitions",
               service, n, partitions);
}

typedef struct {
    const char *service;
    int status;
    const char *part;
} Allocated;

static gboolean is_allocated(World *world, gpointer data)
{
    const Allocated *said = data;
    g_autofree char *name = g_strdup_printf("services/%s/" NAME, said->service);
    const LhCondition *condition = world_condition(world, name, "Allocated");

    return condition != NULL && condition->status == said->status &&
           strstr(condition->message, said->part) != NULL;
}

static void wait_allocated(World *world, const char *service, int status, const char *part)
{
    Allocated said = {service, status, part};

    world_wait(world, is_allocated, &said, "Allocated of %s says \"%s\"", service, part);
}

/* ---- items ---- */

typedef struct {
    const char *host; /* NULL: any */
    guint n;
} Items;

static void count_live(const LhObject *object, gpointer data)
{
    Items *items = data;
    g_autofree char *node = lh_name_part(object->name, 1);

    if (g_str_has_prefix(object->name, "indexer/") && lh_object_known(object) &&
        ((const LhItem *)object)->state == LH_ITEM_LIVE &&
        (items->host == NULL || g_str_has_prefix(node, items->host)))
        items->n++;
}

static gboolean are_live(World *world, gpointer data)
{
    const Items *wanted = data;
    Items found = {wanted->host, 0};

    lh_mirror_foreach(world->mirror, LH_KIND_ITEM, count_live, &found);
    return found.n == wanted->n;
}

static void wait_items(World *world, const char *host, guint n)
{
    Items items = {host, n};

    world_wait(world, are_live, &items, "%u partitions are live on %s", n,
               host == NULL ? "all indexers" : host);
}

/* What an agent worked on is ended by its watchdogs, which may take a moment longer than it. */
static gboolean nothing_else_runs(World *world, gpointer data)
{
    g_autoptr(GArray) pids = world_pids(world);
    guint running = 0;

    for (guint i = 0; i < world->procs->len; i++)
        running += !((const Proc *)world->procs->pdata[i])->ended;
    return pids->len == running;
}

static void stop_indexer(Proc *proc)
{
    assert_int_equal(proc_stop(proc), 0);
}

static void wait_ended(World *world)
{
    world_poll(world, nothing_else_runs, NULL, "what the indexers worked on has ended");
}

/* ---- tests ---- */

static void test_throughput_is_raised(void **state)
{
    World *world = *state;
    Proc *manager = manager_ready(world, "manager"), *one, *two;
    const LhPartitionInterval *first, *second;
    g_autoptr(Run) shown = NULL;
    g_autoptr(Run) explained = NULL;

    one = indexer(world, "one");
    two = indexer(world, "two");
    world_put(world, "desired/settings/" NAME, "{\"spec\":{\"cutover\":\"3s\"}}");
    put_partitions(world, 4, 5000);
    put_service(world, "logs", 8000);
    wait_planned(world, "logs", 1, 2);
    wait_items(world, NULL, 2);
    wait_items(world, "one", 1); /* evenly */
    wait_allocated(world, "logs", LH_CONDITION_TRUE, "2 partitions from ");

    put_service(world, "logs", 19000);
    wait_planned(world, "logs", 2, 4);
    first = interval(world, "logs", 0);
    second = interval(world, "logs", 1);
    assert_int_equal(first->end, second->start);
    assert_true(second->start >= first->start + 3000);
    assert_int_equal(second->end, -1);
    /* The indexers have them before anybody writes to them. */
    wait_items(world, NULL, 4);
    wait_items(world, "two", 2);
    shown = cli(manager, "get", "partitionplans", NULL);
    assert_int_equal(shown->code, 0);
    assert_non_null(strstr(shown->out, "PARTITIONS"));
    assert_non_null(strstr(shown->out, "logs"));
    explained = cli(manager, "explain", "indexer/p_1", NULL);
    assert_int_equal(explained->code, 0);
    assert_non_null(strstr(explained->out, "service logs has it, with 4750 bytes/s"));
    stop_indexer(one);
    stop_indexer(two);
    wait_ended(world);
}

/* What it leaves is read on until nothing is left to read, then given up. */
static void test_throughput_is_lowered(void **state)
{
    World *world = *state;
    Proc *one;

    manager_ready(world, "manager");
    one = indexer(world, "one");
    world_put(world, "desired/settings/" NAME, "{\"spec\":{\"cutover\":\"1s\"}}");
    put_partitions(world, 4, 5000);
    put_service(world, "logs", 19000);
    wait_planned(world, "logs", 1, 4);
    wait_items(world, NULL, 4);
    put_service(world, "logs", 100);
    wait_planned(world, "logs", 2, 2);
    wait_items(world, NULL, 2);
    stop_indexer(one);
    wait_ended(world);
}

static void test_not_enough_capacity(void **state)
{
    World *world = *state;
    Proc *manager = manager_ready(world, "manager");
    g_autoptr(Run) waited = NULL;

    put_partitions(world, 3, 5000);
    put_service(world, "logs", 16000);
    wait_allocated(world, "logs", LH_CONDITION_FALSE,
                   "needed 4 partitions with enough capacity, found 3 (4000 bytes/s free in each)");
    assert_null(world_get(world, LH_KIND_PARTITIONPLAN, "logs"));
    world_wait_event(world, "InsufficientCapacity", "services/logs");
    put_partitions(world, 4, 5000);
    waited = cli(manager, "wait", "services", "logs", "--for", "condition=Allocated", "--timeout",
                 "20s", NULL);
    if (waited->code != 0)
        world_fail(world, "%s", waited->err);
    wait_planned(world, "logs", 1, 4);
}

typedef struct {
    gint64 failed, deleted;
} Order;

/* When the node that began with @host was said to have failed, and when an order of its was deleted first. */
static Order order_of(World *world, const char *host)
{
    g_autoptr(GPtrArray) history = world_history(world, 0);
    g_autofree char *health = g_strconcat("decided/health/indexer/", host, "-", NULL);
    g_autofree char *orders = g_strconcat("decided/assignments/indexer/", host, "-", NULL);
    Order order = {0, 0};

    for (guint i = 0; i < history->len; i++) {
        const Kv *kv = history->pdata[i];
        if (g_str_has_prefix(kv->key, health) && !kv->is_delete &&
            strstr(kv->value, "\"failed\"") != NULL)
            order.failed = kv->mod_rev;
        if (g_str_has_prefix(kv->key, orders) && kv->is_delete && order.deleted == 0)
            order.deleted = kv->mod_rev;
    }
    return order;
}

static void test_indexer_dies(void **state)
{
    World *world = *state;
    Proc *one, *two;
    Order order;

    manager_ready(world, "manager");
    one = indexer(world, "one");
    two = indexer(world, "two");
    put_partitions(world, 4, 5000);
    put_service(world, "logs", 19000);
    wait_items(world, NULL, 4);
    wait_items(world, "one", 2);
    proc_kill(one);
    wait_items(world, "two", 4);
    order = order_of(world, "one");
    assert_true(order.failed > 0);
    assert_true(order.deleted > order.failed);
    world_wait_event(world, "IndexerLost", NULL);
    stop_indexer(two);
    wait_ended(world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_throughput_is_raised, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(test_throughput_is_lowered, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(test_not_enough_capacity, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(test_indexer_dies, world_setup, world_teardown),
    };

    return cmocka_run_group_tests_name("partitions", tests, NULL, NULL);
}
