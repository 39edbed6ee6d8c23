/*
 * For the tests of seed-allocator: seeds, policies, settings and crawl managers that do what they are told, in the
 * World of harness.h.
 */
#pragma once

#include "controllers/seeds.h"
#include "tests/unit/controllers/pool_world.h"

#define NAME "seed-allocator"

static G_GNUC_UNUSED void accept_throttle(World *world, const char *name, const char *spec)
{
    g_autofree char *key = g_strconcat("decided/accepted/throttles/", name, NULL);

    putf(world, key, "{\"revision\":%" PRId64 ",\"acceptedAt\":1,\"spec\":%s}", world->revision,
         spec);
}

/* @throttle NULL: none. */
static G_GNUC_UNUSED void accept_seed(World *world, const char *name, const char *throttle,
                                      const char *state)
{
    g_autofree char *key = g_strconcat("decided/accepted/seeds/", name, NULL);
    g_autofree char *by = throttle == NULL ? g_strdup("")
                                           : g_strdup_printf(",\"throttle\":\"%s\"", throttle);

    putf(world, key,
         "{\"revision\":%" PRId64 ",\"acceptedAt\":1,\"spec\":{\"url\":\"http://%s/\",\"state\":"
         "\"%s\"%s}}",
         world->revision, name, state, by);
}

static G_GNUC_UNUSED void settings(World *world, const char *spec)
{
    putf(world, "decided/accepted/settings/" NAME,
         "{\"revision\":%" PRId64 ",\"acceptedAt\":1,\"spec\":%s}", world->revision, spec);
}

/* "<order>@<revision>" that were answered evicted: that stays so when their node's lease ends. */
static G_GNUC_UNUSED GHashTable *released;

static G_GNUC_UNUSED char *order_id(const char *name, gint64 rev)
{
    return g_strdup_printf("%s@%" PRId64, name, rev);
}

static G_GNUC_UNUSED void answer_with(World *world, const char *name, const char *state,
                                      const char *window)
{
    g_autofree char *assignment = g_strconcat("decided/assignments/", name, NULL);
    g_autofree char *key = g_strconcat("actual/items/", name, NULL);

    putf(world, key, "{\"state\":\"%s\",\"since\":%" PRId64 ",\"assignment\":%" PRId64 "%s}", state,
         world->now_ms, mod_rev(world, assignment), window);
    if (released != NULL && strcmp(state, "evicted") == 0)
        g_hash_table_add(released, order_id(name, mod_rev(world, assignment)));
}

static G_GNUC_UNUSED gboolean answers(World *world, const LhAssignment *order)
{
    const LhItem *item = lookf(world, "actual/items/%s", order->o.name);

    return item != NULL && item->assignment == order->o.mod_rev;
}

/* Some of the managers, or all (@rand NULL), do what they were told. TRUE: something was said. */
static G_GNUC_UNUSED gboolean managers_answer(World *world, GRand *rand)
{
    g_autoptr(GPtrArray) orders = keys_below(world, "decided/assignments/manager/");
    g_autoptr(GPtrArray) items = keys_below(world, "actual/items/manager/");
    gboolean any = FALSE;

    for (guint i = 0; i < items->len; i++) {
        g_autofree char *key = g_strdup(items->pdata[i]);
        if (lookf(world, "decided/assignments/%s", key + strlen("actual/items/")) == NULL)
            del(world, key);
    }
    for (guint i = 0; i < orders->len; i++) {
        const LhAssignment *order = look(world, orders->pdata[i]);
        g_autofree char *name = g_strdup(order->o.name);
        g_autofree char *id = lh_name_part(name, 1);
        if (answers(world, order) || (rand != NULL && g_rand_boolean(rand)) ||
            lookf(world, "actual/nodes/manager/%s", id) == NULL)
            continue;
        answer_with(world, name, order->action == LH_ACTION_LOAD ? "live" : "evicted",
                    order->action == LH_ACTION_LOAD ? "" : ",\"window\":{\"granted\":[[5,1]]}");
        any = TRUE;
    }
    return any;
}

static G_GNUC_UNUSED void settle_seeds(World *world)
{
    for (int round = 0; round < 300; round++) {
        guint written = step(world, NAME);
        if (!managers_answer(world, NULL) && written == 0)
            return;
    }
    fail_msg("it does not settle");
}

/* g_free; NULL: nowhere. Fails when it is on two. */
static G_GNUC_UNUSED char *manager_of(const World *world, const char *seed)
{
    g_autoptr(GPtrArray) keys = keys_below(world, "decided/assignments/manager/");
    g_autofree char *tail = g_strconcat("/", seed, NULL);
    char *found = NULL;

    for (guint i = 0; i < keys->len; i++)
        if (g_str_has_suffix(keys->pdata[i], tail)) {
            const char *name = (const char *)keys->pdata[i] + strlen("decided/assignments/");
            if (found != NULL)
                fail_msg("%s is on %s and elsewhere", seed, found);
            found = lh_name_part(name, 1);
        }
    return found;
}

static G_GNUC_UNUSED const LhAssignment *load_of(const World *world, const char *seed)
{
    g_autofree char *id = manager_of(world, seed);

    return id == NULL ? NULL : lookf(world, "decided/assignments/manager/%s/%s", id, seed);
}

static G_GNUC_UNUSED void assert_on(const World *world, const char *seed, const char *id)
{
    g_autofree char *found = manager_of(world, seed);

    if (g_strcmp0(found, id) != 0)
        fail_msg("%s is on %s, not on %s", seed, found == NULL ? "none" : found,
                 id == NULL ? "none" : id);
}

static G_GNUC_UNUSED World *fleet_of(guint managers)
{
    World *world = world_new();

    for (guint i = 0; i < managers; i++) {
        g_autofree char *id = g_strdup_printf("m%u-00000001", i);
        join_pool(world, LH_POOL_MANAGER, id, "");
    }
    accept_throttle(world, "slow", "{\"requests\":100,\"period\":\"1m\"}");
    return world;
}

/* What a policy's orders and the nodes' last words hold, on one node only. */
static G_GNUC_UNUSED void assert_not_split(const World *world)
{
    g_autoptr(GPtrArray) orders = keys_below(world, "decided/assignments/manager/");
    g_autoptr(GHashTable) holders = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, g_free);

    for (guint i = 0; i < orders->len; i++) {
        const LhAssignment *order = look(world, orders->pdata[i]);
        g_autofree char *as = order_id(order->o.name, order->o.mod_rev);
        const char *throttle = strstr(order->seed, "\"throttle\":{\"name\":\"");
        g_autofree char *id = lh_name_part(order->o.name, 1);
        g_autofree char *node = g_strconcat("manager/", id, NULL);
        const LhHealth *health = lookf(world, "decided/health/%s", node);
        char *policy;
        if (throttle == NULL || (health != NULL && health->state == LH_HEALTH_FAILED) ||
            (released != NULL && g_hash_table_contains(released, as)))
            continue;
        throttle += strlen("\"throttle\":{\"name\":\"");
        policy = g_strndup(throttle, strcspn(throttle, "\""));
        if (g_hash_table_contains(holders, policy) &&
            strcmp(g_hash_table_lookup(holders, policy), id) != 0)
            fail_msg("policy %s is on %s and %s", policy,
                     (char *)g_hash_table_lookup(holders, policy), id);
        g_hash_table_replace(holders, policy, g_strdup(id));
    }
}
