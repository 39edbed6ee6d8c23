/* Folds, plans and packs as a manager does; sends nothing. */
#include "shape.h"

#include "controllers/fleet.h"
#include "controllers/registry.h"

#include <string.h>

#define EPOCH     1000000
#define FENCE_KEY "/bench/leader"
#define FENCE     2 /* compares: create and mod revision of the leader key */

typedef struct {
    GArray *compares, *ops; /* LhCompare, LhTxnOp; keys are borrowed from the shape or this */
    GPtrArray *keys;        /* put keys below the prefix asked for; g_free */
    GPtrArray *below;       /* the same under no prefix; borrowed from the plan */
    GHashTable *compared;
    LhTxnOp leader;
    LhTxnRequest request;
} Packed;

struct Shape {
    const Cluster *cluster;
    gpointer index;
    LhPlan *plan;
    GStringChunk *keys;
    GPtrArray *txns; /* Packed */
    guint puts, compares;
    guint64 value_bytes;
};

/* ---- fold and plan ---- */

static void fold(Shape *shape, char *key, char *value)
{
    LhKind kind = LH_N_KINDS;
    const char *name = NULL;

    if (!lh_key_split(key, &kind, &name))
        bench_fail("%s is no key of any kind", key);
    g_autoptr(LhObject) object = lh_object_parse(kind, name, value, strlen(value), 1, 1, 0);
    if (!lh_object_known(object))
        bench_fail("%s: %s", key, lh_object_error(object));
    lh_fleet_index.fold(shape->index, NULL, object);
    g_free(key);
    g_free(value);
}

static void fold_all(Shape *shape, guint replicas)
{
    const Cluster *cluster = shape->cluster;
    char *key, *value;

    fold(shape, g_strdup("decided/accepted/settings/cache-assigner"),
         cluster_settings(cluster, FALSE));
    for (guint i = 0; i < cluster_services(cluster); i++) {
        cluster_service(cluster, i, &key, &value);
        fold(shape, key, value);
    }
    for (guint i = 0; i < cluster->o.nodes; i++) {
        cluster_node(cluster, i, &key, &value);
        fold(shape, key, value);
    }
    for (guint i = 0; i < replicas; i++) {
        cluster_snapshot(cluster, i, &key, &value);
        fold(shape, key, value);
        cluster_replica(cluster, i, &key, &value);
        fold(shape, key, value);
    }
}

/* ---- packing ---- */

static Packed *packed_new(Shape *shape)
{
    Packed *packed = g_new0(Packed, 1);
    LhCompare fence[FENCE] = {lh_compare_create(FENCE_KEY, 0), lh_compare_mod(FENCE_KEY, 0)};

    packed->compares = g_array_new(FALSE, FALSE, sizeof(LhCompare));
    packed->ops = g_array_new(FALSE, FALSE, sizeof(LhTxnOp));
    packed->keys = g_ptr_array_new_with_free_func(g_free);
    packed->below = g_ptr_array_new();
    packed->compared = g_hash_table_new(g_str_hash, g_str_equal);
    packed->leader = lh_txn_range(FENCE_KEY);
    fence[0].result = fence[1].result = LH_CMP_GREATER;
    g_array_append_vals(packed->compares, fence, FENCE);
    g_ptr_array_add(shape->txns, packed);
    return packed;
}

static void packed_free(gpointer data)
{
    Packed *packed = data;

    g_array_unref(packed->compares);
    g_array_unref(packed->ops);
    g_ptr_array_unref(packed->keys);
    g_ptr_array_unref(packed->below);
    g_hash_table_unref(packed->compared);
    g_free(packed);
}

static const LhReliance *reliance_at(const Shape *shape, const LhGroup *group, guint i)
{
    return &g_array_index(shape->plan->reliances, LhReliance, group->first_reliance + i);
}

static gboolean fits(const Shape *shape, const Packed *packed, const LhGroup *group)
{
    guint fresh = group->n_ops;

    for (guint i = 0; i < group->n_reliances; i++)
        fresh += !g_hash_table_contains(packed->compared, reliance_at(shape, group, i)->key);
    return packed->compares->len + fresh <= LH_ETCD_MAX_TXN_OPS &&
           packed->ops->len + group->n_ops <= LH_ETCD_MAX_TXN_OPS;
}

static void add_group(Shape *shape, Packed *packed, const LhGroup *group)
{
    for (guint i = 0; i < group->n_ops; i++) {
        const LhOp *op = lh_plan_op(shape->plan, group, i);
        LhCompare absent = lh_compare_mod(NULL, 0);
        LhTxnOp put = lh_txn_put(NULL, op->value, 0);
        if (op->type != LH_OP_PUT || op->kind != LH_KIND_ASSIGNMENT)
            bench_fail("the cache-assigner would write %s, which is no new assignment", op->key);
        g_array_append_val(packed->compares, absent); /* its key follows in shape_request */
        g_array_append_val(packed->ops, put);
        g_ptr_array_add(packed->below, (gpointer)op->key);
        shape->value_bytes += strlen(op->value);
    }
    for (guint i = 0; i < group->n_reliances; i++) {
        const LhReliance *reliance = reliance_at(shape, group, i);
        g_autofree char *whole = g_strconcat(shape->cluster->prefix, reliance->key, NULL);
        LhCompare there = lh_compare_mod(g_string_chunk_insert_const(shape->keys, whole), 0);
        if (!g_hash_table_add(packed->compared, (gpointer)reliance->key))
            continue;
        if (reliance->none_below || reliance->mod_rev == 0)
            bench_fail("an assignment relies on the absence of %s", reliance->key);
        there.result = LH_CMP_GREATER;
        g_array_append_val(packed->compares, there);
    }
}

/* The executor sends groups together that share their last reliance (plan.h). */
static gint by_last_reliance(gconstpointer a, gconstpointer b, gpointer data)
{
    Shape *shape = data;
    const LhGroup *x = *(LhGroup *const *)a, *y = *(LhGroup *const *)b;

    return strcmp(reliance_at(shape, x, x->n_reliances - 1)->key,
                  reliance_at(shape, y, y->n_reliances - 1)->key);
}

static void pack(Shape *shape)
{
    Packed *packed = NULL;
    g_autoptr(GPtrArray) groups = g_ptr_array_new();

    for (guint i = 0; i < lh_plan_groups(shape->plan); i++)
        g_ptr_array_add(groups, (gpointer)lh_plan_group(shape->plan, i));
    g_ptr_array_sort_with_data(groups, by_last_reliance, shape);
    for (guint i = 0; i < groups->len; i++) {
        const LhGroup *group = groups->pdata[i];
        if (packed == NULL || !fits(shape, packed, group))
            packed = packed_new(shape);
        add_group(shape, packed, group);
    }
    for (guint i = 0; i < shape->txns->len; i++) {
        packed = g_ptr_array_index(shape->txns, i);
        shape->puts += packed->ops->len;
        shape->compares += packed->compares->len;
    }
}

Shape *shape_new(const Cluster *cluster, guint replicas)
{
    Shape *shape = g_new0(Shape, 1);
    LhPlanContext context = {
        .now_ms = g_get_real_time() / 1000,
        .led_ms = g_get_real_time() / 1000,
        .revision = 1,
        .epoch = EPOCH,
        .max_groups = replicas,
    };

    shape->cluster = cluster;
    shape->index = lh_fleet_index.new();
    shape->plan = lh_plan_new(FALSE);
    shape->keys = g_string_chunk_new(65536);
    shape->txns = g_ptr_array_new_with_free_func(packed_free);
    fold_all(shape, replicas);
    lh_cache_assigner.plan(shape->index, &context, shape->plan);
    if (lh_plan_groups(shape->plan) != replicas)
        bench_fail("the cache-assigner plans %u of %u assignments", lh_plan_groups(shape->plan),
                   replicas);
    pack(shape);
    client_put(FENCE_KEY, "{}", 0);
    return shape;
}

void shape_free(Shape *shape)
{
    g_ptr_array_unref(shape->txns);
    lh_plan_free(shape->plan);
    lh_fleet_index.free(shape->index);
    g_string_chunk_free(shape->keys);
    g_free(shape);
}

guint shape_txns(const Shape *shape)
{
    return shape->txns->len;
}

guint shape_puts(const Shape *shape)
{
    return shape->puts;
}

guint shape_compares(const Shape *shape)
{
    return shape->compares;
}

double shape_value_bytes(const Shape *shape)
{
    return (double)shape->value_bytes / shape->puts;
}

const LhTxnRequest *shape_request(Shape *shape, guint i, const char *prefix)
{
    Packed *packed = g_ptr_array_index(shape->txns, i);
    guint next = 0;

    g_ptr_array_set_size(packed->keys, 0);
    for (guint k = 0; k < packed->ops->len; k++) {
        char *key = g_strconcat(prefix, packed->below->pdata[k], NULL);
        g_ptr_array_add(packed->keys, key);
        g_array_index(packed->ops, LhTxnOp, k).key = key;
        /* Its compare: the next one that says "absent". */
        while (g_array_index(packed->compares, LhCompare, next).result != LH_CMP_EQUAL)
            next++;
        g_array_index(packed->compares, LhCompare, next++).key = key;
    }
    packed->request = (LhTxnRequest){
        .compares = (LhCompare *)packed->compares->data,
        .n_compares = packed->compares->len,
        .success = (LhTxnOp *)packed->ops->data,
        .n_success = packed->ops->len,
        .failure = &packed->leader,
        .n_failure = 1,
    };
    return &packed->request;
}
