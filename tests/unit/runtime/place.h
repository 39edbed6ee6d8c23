/*
 * A test controller that must not be wrong about its own writes: a plan that does not know what was
 * written before it places twice.
 */
#pragma once

#include "tests/unit/runtime/lab.h"

static void plan_one(LhPlan *plan, const char *snapshot, guint ordinal)
{
    LhReplica replica = {.snapshot = snapshot,
                         .service = "s",
                         .set = "default",
                         .ordinal = ordinal,
                         .expires_at = 1};
    g_autofree char *name = lh_replica_name(snapshot, "default", ordinal, FALSE);

    lh_plan_put(plan, LH_KIND_REPLICA, name, &replica, 0, "test", "because");
}

static gboolean note_placed(G_GNUC_UNUSED gpointer key, gpointer value, gpointer data)
{
    g_hash_table_add(data, (gpointer)((const LhReplica *)value)->snapshot);
    return FALSE;
}

typedef struct {
    GHashTable *placed;
    LhPlan *plan;
} Placing;

static gboolean place(gpointer key, gpointer value, gpointer data)
{
    const LhObject *snapshot = value;
    Placing *placing = data;

    if (g_hash_table_contains(placing->placed, key))
        return FALSE;
    lh_plan_begin(placing->plan);
    plan_one(placing->plan, key, script.plans);
    lh_plan_rely(placing->plan, LH_KIND_SNAPSHOT, key, snapshot->mod_rev);
    lh_plan_end(placing->plan);
    return FALSE;
}

/* One replica for each snapshot that has none, in a place of its own each time, as an assigner would: a
 * plan that does not know what was written before it doubles. */
static inline void place_once(const Index *index, G_GNUC_UNUSED const LhPlanContext *context,
                              LhPlan *plan)
{
    g_autoptr(GHashTable) placed = g_hash_table_new(g_str_hash, g_str_equal);
    Placing placing = {placed, plan};

    g_tree_foreach(index->objects[LH_KIND_REPLICA], note_placed, placed);
    g_tree_foreach(index->objects[LH_KIND_SNAPSHOT], place, &placing);
}

static inline void note_once(const LhKv *kv, gpointer data)
{
    char *end = strstr(kv->key, ".default.");

    assert_true(g_hash_table_add(data, g_strndup(kv->key, (gsize)(end - kv->key))));
}

static inline void check_placed_once(Lab *lab, guint n)
{
    g_autoptr(GHashTable) seen = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);

    fake_etcd_foreach(lab->server, P "decided/replicas/", P "decided/replicas0", 0, note_once,
                      seen);
    assert_int_equal(g_hash_table_size(seen), n);
}
