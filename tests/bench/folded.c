/* Keys to objects to indexes, as the mirror and the runtime do it. */
#include "folded.h"

#include "controllers/registry.h"
#include "nodes.h"

#include <string.h>
#include <time.h>

#define PREFIX     "/folded/"
#define EPOCH      1
#define MAX_GROUPS 50000 /* as the runtime has it */
#define FENCE      2     /* compares of each transaction */

typedef struct {
    const LhIndexType *type;
    gpointer index;
} Slot;

/* ---- life ---- */

static void on_change(const LhObject *before, const LhObject *after, gpointer data)
{
    const Folded *folded = data;

    for (guint i = 0; i < folded->indexes->len; i++) {
        const Slot *slot = &g_array_index(folded->indexes, Slot, i);
        slot->type->fold(slot->index, before, after);
    }
}

static void on_applied(gint64 revision, gpointer data)
{
    (void)revision;
    (void)data;
}

static const LhMirrorFuncs mirror_funcs = {.change = on_change, .applied = on_applied};

gconstpointer folded_index(const Folded *folded, const LhIndexType *type)
{
    for (guint i = 0; i < folded->indexes->len; i++)
        if (g_array_index(folded->indexes, Slot, i).type == type)
            return g_array_index(folded->indexes, Slot, i).index;
    return NULL;
}

static void add_index(Folded *folded, const LhIndexType *type)
{
    Slot slot = {.type = type};

    if (type == NULL || folded_index(folded, type) != NULL)
        return;
    slot.index = type->new ();
    g_array_append_val(folded->indexes, slot);
}

Folded *folded_new(void)
{
    Folded *folded = g_new0(Folded, 1);

    folded->mirror = lh_mirror_new(NULL, NULL, PREFIX);
    folded->indexes = g_array_new(FALSE, FALSE, sizeof(Slot));
    for (guint i = 0; lh_controllers()[i] != NULL; i++) {
        add_index(folded, lh_controllers()[i]->index);
        add_index(folded, lh_controllers()[i]->also);
    }
    lh_mirror_listen(folded->mirror, &mirror_funcs, folded);
    return folded;
}

void folded_free(Folded *folded)
{
    lh_mirror_free(folded->mirror);
    for (guint i = 0; i < folded->indexes->len; i++) {
        const Slot *slot = &g_array_index(folded->indexes, Slot, i);
        slot->type->free(slot->index);
    }
    g_array_unref(folded->indexes);
    g_free(folded);
}

/* ---- writing ---- */

static const LhObject *present(const Folded *folded, const char *key)
{
    LhKind kind = LH_N_KINDS;
    const char *name = NULL;

    if (!lh_key_split(key, &kind, &name))
        bench_fail("%s is no key of any kind", key);
    return lh_mirror_get(folded->mirror, kind, name);
}

static void put_at(Folded *folded, const char *key, const char *value)
{
    const LhObject *before = present(folded, key), *after;

    lh_mirror_load(folded->mirror, key, value, value == NULL ? 0 : strlen(value),
                   before == NULL ? folded->revision : before->create_rev, folded->revision, 0);
    after = present(folded, key);
    if (after != NULL && !lh_object_known(after))
        bench_fail("%s: %s", key, lh_object_error(after));
}

void folded_put(Folded *folded, const char *key, const char *value)
{
    folded->revision++;
    put_at(folded, key, value);
}

void folded_observe(Folded *folded, const char *name, const char *format, ...)
{
    g_autofree char *key = g_strconcat(
        "observed/", strchr(name, '/') == NULL ? "snapshot-cleaner/" : "", name, NULL);
    g_autofree char *value = NULL;
    va_list args;

    va_start(args, format);
    value = g_strdup_vprintf(format, args);
    va_end(args);
    lh_mirror_load(folded->mirror, key, value, strlen(value), 0, 0, 0);
}

/* ---- filling ---- */

void folded_fill(Folded *folded, const Cluster *cluster, guint n,
                 void (*item)(const Cluster *cluster, guint i, char **key, char **value))
{
    for (guint i = 0; i < n; i++) {
        g_autofree char *key = NULL, *value = NULL;
        item(cluster, i, &key, &value);
        folded_put(folded, key, value);
    }
}

static const LhObject *assignment_of(const Folded *folded, const Cluster *cluster, guint i)
{
    g_autofree char *key = NULL, *value = NULL;

    cluster_assignment(cluster, i, &key, &value);
    return present(folded, key);
}

void folded_fill_items(Folded *folded, const Cluster *cluster)
{
    for (guint i = 0; i < cluster->o.snapshots; i++) {
        g_autofree char *key = NULL, *value = NULL;
        nodes_item(assignment_of(folded, cluster, i), LH_ITEM_LIVE, &key, &value);
        folded_put(folded, key, value);
    }
}

void folded_fill_searches(Folded *folded, const Cluster *cluster)
{
    for (guint i = 0; i < cluster->o.snapshots; i++) {
        g_autofree char *key = NULL, *value = NULL;
        nodes_search(assignment_of(folded, cluster, i), &key, &value);
        folded_put(folded, key, value);
    }
}

void folded_accept(Folded *folded, const char *subject, const char *spec)
{
    g_autofree char *desired_key = g_strconcat("desired/", subject, NULL);
    g_autofree char *accepted_key = g_strconcat("decided/accepted/", subject, NULL);
    g_autofree char *desired = g_strdup_printf("{\"spec\":%s}", spec);
    g_autofree char *accepted = NULL;

    folded_put(folded, desired_key, desired);
    accepted = g_strdup_printf("{\"revision\":%" G_GINT64_FORMAT
                               ",\"acceptedAt\":\"2026-01-01T00:00:00.000Z\",\"spec\":%s}",
                               folded->revision, spec);
    folded_put(folded, accepted_key, accepted);
}

void folded_fill_rest(Folded *folded, const Cluster *cluster)
{
    g_autofree char *settings = cluster_settings_spec(cluster, FALSE);

    for (guint i = 0; i < cluster_services(cluster); i++) {
        g_autofree char *subject = g_strdup_printf("services/svc-%02u", i);
        g_autofree char *spec = cluster_service_spec(cluster, i);
        folded_accept(folded, subject, spec);
    }
    folded_accept(folded, "settings/cache-assigner", settings);
    folded_accept(folded, "settings/cache-evictor", "{\"brakePercent\":100}");
    folded_accept(folded, "settings/snapshot-cleaner",
                  "{\"brakePercent\":100,\"buffer\":\"0s\",\"deletesPerSecond\":10000}");
    folded_fill(folded, cluster, cluster->o.nodes, cluster_node);
}

/* ---- plans ---- */

LhPlanContext folded_context(const Folded *folded, const LhController *controller, gint64 now_ms)
{
    return (LhPlanContext){
        .now_ms = now_ms,
        .revision = folded->revision,
        .epoch = EPOCH,
        .led_ms = 0,
        .max_groups = MAX_GROUPS,
        .also = controller->also == NULL ? NULL : folded_index(folded, controller->also),
    };
}

static void commit_op(Folded *folded, const LhOp *op)
{
    const LhObject *before = lh_mirror_get(folded->mirror, op->kind, op->name);

    if ((before == NULL ? 0 : before->mod_rev) != op->expect_rev)
        bench_fail("a plan expects another revision of %s", op->key);
    put_at(folded, op->key, op->type == LH_OP_PUT ? op->value : NULL);
}

guint folded_commit(Folded *folded, const LhPlan *plan)
{
    for (guint g = 0; g < lh_plan_groups(plan); g++) {
        const LhGroup *group = lh_plan_group(plan, g);
        folded->revision++;
        for (guint i = 0; i < group->n_ops; i++)
            commit_op(folded, lh_plan_op(plan, group, i));
    }
    return lh_plan_groups(plan);
}

/* ---- transactions ---- */

static const LhReliance *reliance_at(const LhPlan *plan, const LhGroup *group, guint i)
{
    return &g_array_index(plan->reliances, LhReliance, group->first_reliance + i);
}

static const char *last_reliance(const LhPlan *plan, const LhGroup *group)
{
    return group->n_reliances == 0 ? "" : reliance_at(plan, group, group->n_reliances - 1)->key;
}

static gint by_last_reliance(gconstpointer a, gconstpointer b, gpointer data)
{
    return strcmp(last_reliance(data, *(const LhGroup *const *)a),
                  last_reliance(data, *(const LhGroup *const *)b));
}

guint folded_transactions(const LhPlan *plan)
{
    g_autoptr(GPtrArray) groups = g_ptr_array_new();
    g_autoptr(GHashTable) compared = g_hash_table_new(g_str_hash, g_str_equal);
    guint n = 0, ops = 0;

    for (guint i = 0; i < lh_plan_groups(plan); i++)
        g_ptr_array_add(groups, (gpointer)lh_plan_group(plan, i));
    g_ptr_array_sort_with_data(groups, by_last_reliance, (gpointer)plan);
    for (guint i = 0; i < groups->len; i++) {
        const LhGroup *group = groups->pdata[i];
        guint fresh = group->n_ops;
        for (guint r = 0; r < group->n_reliances; r++)
            fresh += !g_hash_table_contains(compared, reliance_at(plan, group, r)->key);
        if (n == 0 || ops + group->n_ops > LH_ETCD_MAX_TXN_OPS ||
            FENCE + g_hash_table_size(compared) + fresh > LH_ETCD_MAX_TXN_OPS) {
            g_hash_table_remove_all(compared);
            ops = 0;
            n++;
        }
        ops += group->n_ops;
        for (guint o = 0; o < group->n_ops; o++)
            g_hash_table_add(compared, (gpointer)lh_plan_op(plan, group, o)->key);
        for (guint r = 0; r < group->n_reliances; r++)
            g_hash_table_add(compared, (gpointer)reliance_at(plan, group, r)->key);
    }
    return n;
}

gint64 folded_cpu_ns(void)
{
    struct timespec used;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    return used.tv_sec * G_GINT64_CONSTANT(1000000000) + used.tv_nsec;
}
