/* See explain.h: the items of the exclusive pools. */
#include "base/units.h"
#include "controllers/explain.h"
#include "controllers/partitions.h"
#include "controllers/pool.h"
#include "controllers/registry.h"

#include <string.h>

static void line(GPtrArray *lines, const char *format, ...) G_GNUC_PRINTF(2, 3);
static void line(GPtrArray *lines, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    g_ptr_array_add(lines, g_strdup_vprintf(format, args));
    va_end(args);
}

static const char *seen_as(const LhPoolAssignment *assignment)
{
    const LhAssignment *order = lh_pool_order(assignment);
    gboolean load = order != NULL && order->action == LH_ACTION_LOAD;

    if (order == NULL)
        return "Unknown";
    switch (lh_pool_answer(assignment)) {
    case LH_ITEM_LOADING:
        return load ? "Loading" : "Evict";
    case LH_ITEM_LIVE:
        return load ? "Live" : "Evict";
    case LH_ITEM_EVICTING:
        return "Evicting";
    case LH_ITEM_FAILED:
        return "Failed";
    case LH_ITEM_DONE:
        return "Done";
    case LH_ITEM_EVICTED:
        return "Free";
    default:
        return load ? "Assigned" : "Evict";
    }
}

const char *lh_pool_item_state(const LhPoolItem *item, const char **owner)
{
    const LhRetry *retry = lh_pool_retry(item, NULL);

    *owner = NULL;
    for (guint i = 0; item->assignments != NULL && i < item->assignments->len; i++) {
        const LhPoolAssignment *assignment = g_ptr_array_index(item->assignments, i);
        if (assignment->object == NULL)
            continue;
        *owner = assignment->node->id;
        return seen_as(assignment);
    }
    return retry != NULL && retry->parked ? "Parked" : "Waiting";
}

static void explain_end(const LhPoolAssignment *assignment, GPtrArray *lines)
{
    const LhPoolNode *node = assignment->node;
    const LhHealth *health = (const LhHealth *)node->health;

    if (node->object != NULL || lh_pool_end(assignment) == LH_POOL_ANSWERED)
        return;
    if (lh_pool_end(assignment) == LH_POOL_LOST)
        line(lines, "the node has failed: it goes to another");
    else
        line(lines,
             "the node's registration is gone; it may still be working, and keeps it until it is "
             "said to have failed%s",
             health == NULL ? "; it has no NodeHealth" : "");
}

static void explain_assignment(const LhPoolAssignment *assignment, GPtrArray *lines)
{
    const LhAssignment *order = lh_pool_order(assignment);
    const LhItem *item = (const LhItem *)assignment->item;
    const char *id = assignment->node->id;

    if (assignment->object == NULL) {
        line(lines, "node %s says something of it without an assignment", id);
        return;
    }
    if (order == NULL) {
        line(lines, "its assignment to node %s does not parse (%s): mend or remove it", id,
             lh_object_error(assignment->object));
        return;
    }
    g_autofree char *since = lh_time_format(MAX(0, order->since));
    line(lines, "%s on node %s since %s, by %s, rule %s: %s",
         order->action == LH_ACTION_LOAD ? "assigned" : "ordered to be evicted", id, since,
         order->controller == NULL ? "nobody" : order->controller,
         order->rule == NULL ? "none" : order->rule, order->reason == NULL ? "" : order->reason);
    if (lh_pool_answer(assignment) >= 0)
        line(lines, "the node says %s%s%s", lh_item_state_name(item->state),
             item->message == NULL ? "" : ": ", item->message == NULL ? "" : item->message);
    else
        line(lines, "the node has not answered this order yet");
    explain_end(assignment, lines);
    if (lh_pool_host_drained(assignment->node->host))
        line(lines, "the node is being drained");
}

/* What the controllers of this index would do with it now. */
static void explain_plans(gconstpointer index, const LhPlanContext *context, const LhPoolItem *item,
                          GPtrArray *lines)
{
    g_autofree char *tail = g_strconcat("/", item->name, NULL);

    for (const LhController *const *c = lh_controllers(); *c != NULL; c++) {
        if ((*c)->index != &lh_pools_index)
            continue;
        g_autoptr(LhPlan) plan = lh_plan_new(TRUE);
        gboolean paused = lh_controller_paused(*c, index);
        (*c)->plan(index, context, plan);
        for (guint i = 0; i < plan->notes->len; i++) {
            const LhPlanNote *note = &g_array_index(plan->notes, LhPlanNote, i);
            if (g_str_has_suffix(note->object, tail))
                line(lines, "%s does nothing, rule %s: %s", (*c)->name, note->rule, note->reason);
        }
        for (guint i = 0; i < plan->ops->len; i++) {
            const LhOp *op = &g_array_index(plan->ops, LhOp, i);
            if (strcmp(op->name, item->name) == 0 || g_str_has_suffix(op->name, tail))
                line(lines, "%s %swould %s %s, rule %s: %s", (*c)->name,
                     paused ? "is paused, else it " : "", op->type == LH_OP_PUT ? "put" : "delete",
                     op->key, op->rule, op->reason);
        }
    }
}

static gint by_service_name(gconstpointer a, gconstpointer b)
{
    return strcmp((*(const LhPartitionService *const *)a)->name,
                  (*(const LhPartitionService *const *)b)->name);
}

/* Which services have a partition, and how much of it is used. */
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
                line(lines, "service %s has it, with %" G_GINT64_FORMAT " bytes/s%s", service->name,
                     use->used, use->dedicated ? ", for itself" : "");
        }
    }
    if (capacity >= 0)
        line(lines, "%" G_GINT64_FORMAT " of its %" G_GINT64_FORMAT " bytes/s are used",
             lh_partition_room_load(pools->partitions->room, record->seat), capacity);
}

GPtrArray *lh_explain_pool(gconstpointer index, const LhPlanContext *context, const char *pool,
                           const char *name, const char **state)
{
    const LhPoolView *view = lh_pools_view(index, pool);
    const LhPoolItem *item = view == NULL ? NULL : lh_pool_item(view, name);
    GPtrArray *lines;
    const char *owner;

    if (item == NULL)
        return NULL;
    lines = g_ptr_array_new_with_free_func(g_free);
    *state = lh_pool_item_state(item, &owner);
    if (item->subject != NULL && !lh_object_known(item->subject)) {
        *state = "Unknown";
        line(lines, "it does not parse (%s): mend or remove it", lh_object_error(item->subject));
    } else if (item->subject == NULL) {
        line(lines, "there is no object of this name in force");
    }
    for (guint i = 0; item->assignments != NULL && i < item->assignments->len; i++)
        explain_assignment(g_ptr_array_index(item->assignments, i), lines);
    if (item->assignments == NULL)
        line(lines, "on no node");
    if (strcmp(pool, LH_POOL_INDEXER) == 0) {
        const LhPools *pools = index;
        const LhPartitionRecord *partition = lh_partitions_record(pools->partitions, name);
        if (partition != NULL)
            explain_partition(pools, partition, lines);
    }
    explain_plans(index, context, item, lines);
    return lines;
}
