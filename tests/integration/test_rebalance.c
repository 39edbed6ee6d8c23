/*
 * Crawl managers that are made even on request, with the real controller: the command waits, says how many seeds
 * moved, and the second one finds nothing to move. At every revision of etcd a policy is on one manager.
 * (Who may ask: test_roles_api.c.)
 */
#include "harness.h"

#include <string.h>

#define ORDERS "decided/assignments/manager/"

typedef struct {
    const char *seed, *node; /* names */
} Wanted;

static gboolean is_live(World *world, gpointer data)
{
    const Wanted *wanted = data;
    g_autoptr(GPtrArray) keys = world_range(world, ORDERS);

    for (guint i = 0; i < keys->len; i++) {
        const char *name = ((const Kv *)g_ptr_array_index(keys, i))->key +
                           strlen("decided/assignments/");
        g_autofree char *id = lh_name_part(name, 1), *seed = lh_name_part(name, 2);
        g_autofree char *node = lh_node_name_of(id);
        const LhItem *item = world_get(world, LH_KIND_ITEM, "%s", name);
        if (strcmp(seed, wanted->seed) == 0 && strcmp(node, wanted->node) == 0)
            return item != NULL && item->state == LH_ITEM_LIVE;
    }
    return FALSE;
}

static void wait_live(World *world, const char *seed, const char *node)
{
    Wanted wanted = {seed, node};

    world_wait(world, is_live, &wanted, "%s is live on %s", seed, node);
}

static void see_node(const LhObject *object, gpointer data)
{
    Wanted *wanted = data;

    if (strcmp(((const LhNode *)object)->node_name, wanted->node) == 0)
        wanted->seed = NULL;
}

static gboolean is_registered(World *world, gpointer data)
{
    lh_mirror_foreach(world->mirror, LH_KIND_NODE, see_node, data);
    return ((Wanted *)data)->seed == NULL;
}

static void start_node(World *world, const char *name)
{
    Wanted wanted = {"", name};

    agent_start(world, &(AgentOptions){.name = name, .pool = "manager"});
    world_wait(world, is_registered, &wanted, "%s is registered", name);
}

static void start_seed(World *world, const char *name, const char *throttle)
{
    g_autofree char *key = g_strconcat("desired/seeds/", name, NULL);

    world_putf(world, key, "{\"spec\":{\"url\":\"https://%s.example/\"%s%s%s}}", name,
               throttle != NULL ? ",\"throttle\":\"" : "", throttle != NULL ? throttle : "",
               throttle != NULL ? "\"" : "");
}

/* Two seeds of one policy and one without are on m-1, one of another is on m-2, nothing is on m-3. */
static Proc *begin(World *world)
{
    Proc *manager = manager_start(world, "manager", NULL);

    world_put(world, "desired/settings/seed-allocator", "{\"spec\":{\"autoRebalance\":false}}");
    world_put(world, "desired/throttles/two", "{\"spec\":{\"requests\":100,\"period\":\"1s\"}}");
    world_put(world, "desired/throttles/one", "{\"spec\":{\"requests\":100,\"period\":\"1s\"}}");
    start_node(world, "m-1");
    start_seed(world, "two-a", "two");
    start_seed(world, "two-b", "two");
    start_seed(world, "free", NULL);
    wait_live(world, "two-a", "m-1");
    wait_live(world, "two-b", "m-1");
    wait_live(world, "free", "m-1");
    start_node(world, "m-2");
    start_seed(world, "one-a", "one");
    wait_live(world, "one-a", "m-2");
    return manager;
}

static void rebalances(Proc *manager, const char *says)
{
    g_autoptr(Run) asked = cli(manager, "rebalance", "manager", "--wait", "--timeout", "60s", NULL);

    if (asked->code != 0 || strstr(asked->out, says) == NULL)
        fail_msg("%d, not \"%s\": %s%s", asked->code, says, asked->out, asked->err);
}

/* Loads and evictions that the controller has written. */
static guint orders_so_far(World *world)
{
    g_autoptr(GPtrArray) history = world_history(world, 0);
    guint n = 0;

    for (guint i = 0; i < history->len; i++) {
        const Kv *kv = g_ptr_array_index(history, i);
        n += !kv->is_delete && g_str_has_prefix(kv->key, ORDERS);
    }
    return n;
}

typedef struct {
    char *policy, *node;
} Holder;

static void free_holder(gpointer data)
{
    Holder *holder = data;

    g_free(holder->policy);
    g_free(holder->node);
    g_free(holder);
}

/* A load of it; NULL: it is none, or of no policy. */
static Holder *holder_of(const Kv *kv)
{
    const char *policy = strstr(kv->value, "\"throttle\":{\"name\":\"");
    Holder *holder;

    if (policy == NULL || strstr(kv->value, "\"action\":\"load\"") == NULL)
        return NULL;
    policy += strlen("\"throttle\":{\"name\":\"");
    holder = g_new0(Holder, 1);
    holder->policy = g_strndup(policy, strcspn(policy, "\""));
    holder->node = lh_name_part(kv->key + strlen("decided/assignments/"), 1);
    return holder;
}

static void hold(World *world, GHashTable *holders, const char *name, Holder *holder)
{
    GHashTableIter iter;
    gpointer value;

    g_hash_table_iter_init(&iter, holders);
    while (g_hash_table_iter_next(&iter, NULL, &value)) {
        const Holder *other = value;
        if (strcmp(other->policy, holder->policy) == 0 && strcmp(other->node, holder->node) != 0)
            world_fail(world, "policy %s is on %s and %s", holder->policy, other->node,
                       holder->node);
    }
    g_hash_table_replace(holders, g_strdup(name), holder);
}

/* From each load until it is answered with evicted, or gone. Returns how many loads there were. */
static guint check_together(World *world)
{
    g_autoptr(GPtrArray) history = world_history(world, 0);
    g_autoptr(GHashTable) holders = g_hash_table_new_full(g_str_hash, g_str_equal, g_free,
                                                          free_holder);
    guint loads = 0;

    for (guint i = 0; i < history->len; i++) {
        const Kv *kv = g_ptr_array_index(history, i);
        Holder *holder;
        if (g_str_has_prefix(kv->key, "actual/items/manager/")) {
            if (!kv->is_delete && strstr(kv->value, "\"state\":\"evicted\"") != NULL)
                g_hash_table_remove(holders, kv->key + strlen("actual/items/"));
        } else if (g_str_has_prefix(kv->key, ORDERS)) {
            const char *name = kv->key + strlen("decided/assignments/");
            if (kv->is_delete) {
                g_hash_table_remove(holders, name);
            } else if ((holder = holder_of(kv)) != NULL) {
                hold(world, holders, name, holder);
                loads++;
            }
        }
    }
    return loads;
}

static void one_seed_moves_and_then_none(void **state)
{
    World *world = *state;
    Proc *manager = begin(world);
    guint orders;

    start_node(world, "m-3");
    start_seed(world, "late", "one"); /* to the manager of its policy */
    wait_live(world, "late", "m-2");
    rebalances(manager, "rebalanced: 1 seed moved");
    wait_live(world, "free", "m-3");
    wait_live(world, "two-a", "m-1");
    wait_live(world, "two-b", "m-1");
    orders = orders_so_far(world);
    rebalances(manager, "rebalanced: 0 seeds moved");
    assert_int_equal(orders_so_far(world), orders);
    assert_int_equal(check_together(world), 4);
}

/* A policy goes as a whole, and all of its seeds are counted. */
static void a_policy_moves_as_a_whole(void **state)
{
    World *world = *state;
    Proc *manager = begin(world);
    guint orders;

    start_seed(world, "more-a", "one");
    start_seed(world, "more-b", "one");
    wait_live(world, "more-a", "m-2");
    wait_live(world, "more-b", "m-2");
    world_put(world, "desired/nodepolicies/manager/m-2", "{\"spec\":{\"cordon\":true}}");
    world_put(world, "desired/throttles/third", "{\"spec\":{\"requests\":100,\"period\":\"1s\"}}");
    start_seed(world, "third-a", "third");
    start_seed(world, "third-b", "third");
    start_seed(world, "third-c", "third");
    wait_live(world, "third-a", "m-1");
    wait_live(world, "third-b", "m-1");
    wait_live(world, "third-c", "m-1");
    start_node(world, "m-3");
    start_seed(world, "fourth", NULL);
    wait_live(world, "fourth", "m-3");
    rebalances(manager, "rebalanced: 3 seeds moved");
    orders = orders_so_far(world);
    rebalances(manager, "rebalanced: 0 seeds moved");
    assert_int_equal(orders_so_far(world), orders);
    assert_true(check_together(world) >= 8 + 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(one_seed_moves_and_then_none, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(a_policy_moves_as_a_whole, world_setup, world_teardown),
    };

    return cmocka_run_group_tests_name("integration/rebalance", tests, NULL, NULL);
}
