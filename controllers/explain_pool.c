/*
 * explain.h for items of the exclusive pools: a partition, a recovery task, a seed. Of a partition it also
 * says which services have it.
 */
#include "base/units.h"
#include "controllers/explain.h"
#include "controllers/partitions.h"
#include "controllers/pool.h"

#include <string.h>

static const char *seen_as(const LhPoolAssignment *assignment)
{
    gboolean load = lh_pool_order(assignment)->action == LH_ACTION_LOAD;

    switch (lh_pool_answer(assignment)) {
    case LH_ITEM_LOADING:
        return load ? "Loading" : "Evict";
    case LH_ITEM_LIVE:
        return load ? "Live" : "Evict";
    case LH_ITEM_EVICTING:
        return "Evicting";
    case LH_ITEM_FAILED:
        return "Failed";
    case LH_ITEM_EVICTED:
    case LH_ITEM_DONE:
        return "Free";
    default: /* -1: no answer that counts */
        return load ? "Assigned" : "Evict";
    }
}

static void explain_assignment(const LhPoolAssignment *record, GPtrArray *lines, const char **state)
{
    const LhAssignment *order = lh_pool_order(record);
    const LhItem *item = (const LhItem *)record->item;
    g_autofree char *since = NULL;

    if (record->object == NULL) {
        lh_explain_line(lines, "node %s says %s without an assignment", record->node->id,
                        lh_object_known(&item->o) ? lh_item_state_name(item->state)
                                                  : "something that does not parse");
        return;
    }
    if (order == NULL) {
        *state = "Unknown";
        lh_explain_line(lines, "its assignment to node %s does not parse (%s): mend or remove it",
                        record->node->id, lh_object_error(record->object));
        return;
    }
    since = lh_time_format(MAX(0, order->since));
    *state = seen_as(record);
    lh_explain_line(
        lines, "%s on node %s since %s, by %s, rule %s: %s",
        order->action == LH_ACTION_LOAD ? "assigned" : "ordered to be evicted", record->node->id,
        since, order->controller == NULL ? "nobody" : order->controller,
        order->rule == NULL ? "none" : order->rule, order->reason == NULL ? "" : order->reason);
    if (lh_pool_answer(record) >= 0)
        lh_explain_line(lines, "the node says %s%s%s", lh_item_state_name(item->state),
                        item->message == NULL ? "" : ": ",
                        item->message == NULL ? "" : item->message);
    else
        lh_explain_line(lines, "the node has not answered this order yet");
    if (record->node->object == NULL)
        lh_explain_line(lines, "the node's registration is gone; what it worked on goes to another "
                               "when it is said to have failed");
}

static gint by_service_name(gconstpointer a, gconstpointer b)
{
    return strcmp((*(const LhPartitionService *const *)a)->name,
                  (*(const LhPartitionService *const *)b)->name);
}

static void explain_partition(const LhPools *pools, const LhPartitionRecord *record,
                              GPtrArray *lines)
{
    g_autoptr(GPtrArray) users = g_ptr_array_copy(record->users, NULL, NULL);
    gint64 capacity = lh_partition_room_capacity(pools->partitions->room, record->seat);

    g_ptr_array_sort(users, by_service_name);
    for (guint i = 0; i < users->len; i++) {
        const LhPartitionService *service = users->pdata[i];
        for (guint u = 0; u < service->uses->len; u++) {
            const LhPartitionUse *use = &g_array_index(service->uses, LhPartitionUse, u);
            if (use->seat == record->seat)
                lh_explain_line(lines, "service %s has it, with %" G_GINT64_FORMAT " bytes/s%s",
                                service->name, use->used, use->dedicated ? ", for itself" : "");
        }
    }
    if (capacity < 0)
        lh_explain_line(lines, "%s",
                        record->accepted == NULL ? "there is no such partition (any more)"
                                                 : "what was accepted of it does not parse");
    else
        lh_explain_line(lines, "%" G_GINT64_FORMAT " of its %" G_GINT64_FORMAT " bytes/s are used",
                        lh_partition_room_load(pools->partitions->room, record->seat), capacity);
}

typedef struct {
    const char *pool, *item;
} About;

static gboolean is_about(const LhOp *op, gconstpointer data)
{
    const About *about = data;
    g_autofree char *head = g_strconcat(about->pool, "/", NULL);
    g_autofree char *tail = g_strconcat("/", about->item, NULL);

    return g_str_has_prefix(op->name, head) && g_str_has_suffix(op->name, tail);
}

/* Of which kind an item of @pool is. */
static const char *plural_of(const char *pool)
{
    LhKind kind = strcmp(pool, LH_POOL_RECOVERY) == 0  ? LH_KIND_RECOVERYTASK
                  : strcmp(pool, LH_POOL_INDEXER) == 0 ? LH_KIND_PARTITION
                                                       : LH_KIND_SEED;

    return lh_kind_info(kind)->plural;
}

GPtrArray *lh_explain_in_pool(gconstpointer index, const LhPlanContext *context, const char *pool,
                              const char *name, const char **state)
{
    const LhPools *pools = index;
    const LhPoolView *view = lh_pools_view(pools, pool);
    const LhPoolItem *item = view == NULL ? NULL : lh_pool_item(view, name);
    const LhPartitionRecord *partition = strcmp(pool, LH_POOL_INDEXER) == 0
                                             ? lh_partitions_record(pools->partitions, name)
                                             : NULL;
    g_autofree char *object = g_strconcat(plural_of(pool), "/", name, NULL);
    const About about = {pool, name};
    const char *rule = NULL;
    GPtrArray *lines;

    if (item == NULL && partition == NULL)
        return NULL;
    lines = g_ptr_array_new_with_free_func(g_free);
    *state = "Waiting";
    for (guint i = 0; item != NULL && item->assignments != NULL && i < item->assignments->len; i++)
        explain_assignment(g_ptr_array_index(item->assignments, i), lines, state);
    if (item == NULL || !lh_pool_item_assigned(item))
        lh_explain_line(lines, "on no node");
    if (partition != NULL) {
        if (partition->users->len == 0 && strcmp(*state, "Waiting") == 0)
            *state = "Unused";
        explain_partition(pools, partition, lines);
    }
    lh_explain_plans(&lh_pools_index, index, context, object, is_about, &about, lines, &rule);
    if (g_strcmp0(rule, "parked") == 0)
        *state = "Parked";
    return lines;
}
