/*
 * For the tests of exclusive pools: nodes, orders, answers and health of any pool in the World of
 * harness.h. Nothing answers by itself.
 */
#pragma once

#include "tests/unit/controllers/harness.h"

/* @id: "r-00000001"; @more: further members, begins with a comma. */
static G_GNUC_UNUSED void join_pool(World *world, const char *pool, const char *id,
                                    const char *more)
{
    g_autofree char *key = g_strconcat("actual/nodes/", pool, "/", id, NULL);
    g_autofree char *name = lh_node_name_of(id);

    putf(world, key, "{\"name\":\"%s\",\"state\":\"online\",\"leaseTtl\":\"5s\"%s}", name, more);
}

/* Its lease ends: what is bound to it vanishes at one revision; a leaseless item stays. */
static G_GNUC_UNUSED void leave_pool(World *world, const char *pool, const char *id)
{
    g_autofree char *node = g_strconcat("actual/nodes/", pool, "/", id, NULL);
    g_autofree char *below = g_strconcat("actual/items/", pool, "/", id, "/", NULL);
    g_autoptr(GPtrArray) keys = keys_below(world, below);

    world->revision++;
    for (guint i = 0; i < keys->len; i++) {
        g_autofree char *key = g_strdup(keys->pdata[i]);
        if (lh_object_lease(look(world, key)) != 0)
            change(world, key, NULL);
    }
    change(world, node, NULL);
}

static G_GNUC_UNUSED void say_health(World *world, const char *pool, const char *id,
                                     const char *state)
{
    g_autofree char *key = g_strconcat("decided/health/", pool, "/", id, NULL);

    putf(world, key, "{\"state\":\"%s\",\"since\":%" PRId64 "%s}", state, world->now_ms,
         strcmp(state, "failed") == 0 ? ",\"missingSince\":1" : "");
}

/* @name: "<pool>/<node>/<item>". Answers the order as it stands; done is put without a lease. */
static G_GNUC_UNUSED void answer_in_pool(World *world, const char *name, const char *state,
                                         const char *message)
{
    g_autofree char *assignment = g_strconcat("decided/assignments/", name, NULL);
    g_autofree char *key = g_strconcat("actual/items/", name, NULL);
    gint64 lease = world->lease;

    if (strcmp(state, "done") == 0)
        world->lease = 0;
    putf(world, key,
         "{\"state\":\"%s\",\"since\":%" PRId64 ",\"assignment\":%" PRId64 ",\"message\":\"%s\"}",
         state, world->now_ms, mod_rev(world, assignment), message);
    world->lease = lease;
}

static G_GNUC_UNUSED const LhAssignment *order_of(const World *world, const char *name)
{
    return lookf(world, "decided/assignments/%s", name);
}

static G_GNUC_UNUSED LhPoolView *view_in(const World *world, const char *pool)
{
    return lh_pools_view(world->pools, pool);
}

static G_GNUC_UNUSED const LhPoolAssignment *record_of(const World *world, const char *pool,
                                                       const char *key)
{
    return g_hash_table_lookup(view_in(world, pool)->assignments, key);
}
