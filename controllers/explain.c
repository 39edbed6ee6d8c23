/* See explain.h. Each question of a person is one line, the most important first. */
#include "controllers/explain.h"

#include "base/units.h"
#include "controllers/cache_rules.h"
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

static const char *seen_as(const LhFleetAssignment *assignment)
{
    int answer = lh_fleet_answer(assignment);
    gboolean load = lh_fleet_load(assignment) != NULL;

    switch (answer) {
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
    default:
        return load ? "Assigned" : "Evict";
    }
}

static void explain_node(const LhFleetNode *node, GPtrArray *lines)
{
    const LhHealth *health = (const LhHealth *)node->health;
    const char *reason = node->health == NULL || !lh_object_known(node->health) ||
                                 health->reason == NULL
                             ? "nothing says why"
                             : health->reason;

    if (lh_fleet_node_gone(node))
        line(lines, "the node's registration is gone");
    else if (lh_fleet_in_failure(node))
        line(lines, "the node is in failure (%s): what it has %s", reason,
             node->failing ? "goes elsewhere" : "stays there");
    else if (lh_fleet_on_probation(node))
        line(lines, "the node is on probation (%s)", reason);
    if (node->host->draining)
        line(lines, "the node is being drained");
}

static void explain_assignment(const LhFleetAssignment *record, GPtrArray *lines,
                               const char **state)
{
    const LhAssignment *assignment = (const LhAssignment *)record->object;
    const LhItem *item = (const LhItem *)record->item;

    if (assignment == NULL) {
        line(lines, "node %s holds it without an assignment", record->node->id);
        return;
    }
    if (!lh_object_known(&assignment->o)) {
        *state = "Unknown";
        line(lines, "its assignment to node %s does not parse (%s): mend or remove it",
             record->node->id, lh_object_error(&assignment->o));
        return;
    }
    g_autofree char *since = lh_time_format(assignment->since);
    if (strcmp(*state, "Live") != 0)
        *state = seen_as(record); /* of several, as a drain makes them, a live one is what counts */
    line(lines, "%s on node %s since %s, by %s, rule %s: %s",
         assignment->action == LH_ACTION_LOAD ? "assigned" : "ordered to be evicted",
         record->node->id, since,
         assignment->controller == NULL ? "nobody" : assignment->controller,
         assignment->rule == NULL ? "none" : assignment->rule,
         assignment->reason == NULL ? "" : assignment->reason);
    if (item != NULL && lh_object_known(&item->o) && item->assignment == assignment->o.mod_rev)
        line(lines, "the node says %s (%" G_GINT64_FORMAT " of %" G_GINT64_FORMAT " bytes)%s%s",
             lh_item_state_name(item->state), item->bytes_done, item->bytes_total,
             item->message == NULL ? "" : ": ", item->message == NULL ? "" : item->message);
    else if (item != NULL)
        line(lines, "the node has not answered this order yet");
    explain_node(record->node, lines);
}

static void explain_fate(const LhFleetReplica *replica, GPtrArray *lines)
{
    switch (replica->fate.type) {
    case LH_FATE_KEEP:
        if (replica->fate.due_ms == G_MAXINT64) {
            line(lines, "wanted");
        } else {
            g_autofree char *until = lh_time_format(MAX(0, replica->fate.due_ms));
            line(lines, "wanted until %s", until);
        }
        return;
    case LH_FATE_GO:
        line(lines, "not wanted: %s", lh_cache_fate_text(&replica->fate));
        return;
    case LH_FATE_PAUSED:
    case LH_FATE_UNKNOWN:
        line(lines, "left alone: %s", lh_cache_fate_text(&replica->fate));
        return;
    }
}

/* What each controller's own plan says about it. */
static void explain_plans(gconstpointer index, const LhPlanContext *context, const char *item,
                          GPtrArray *lines, const char **rule)
{
    g_autofree char *object = g_strconcat("replicas/", item, NULL);
    g_autofree char *tail = g_strconcat("/", item, NULL);

    for (const LhController *const *c = lh_controllers(); *c != NULL; c++) {
        if ((*c)->index != &lh_fleet_index)
            continue; /* of other pools */
        g_autoptr(LhPlan) plan = lh_plan_new(TRUE);
        gboolean paused = lh_controller_paused(*c, index);
        (*c)->plan(index, context, plan);
        for (guint i = 0; i < plan->notes->len; i++) {
            const LhPlanNote *note = &g_array_index(plan->notes, LhPlanNote, i);
            if (strcmp(note->object, object) != 0)
                continue;
            line(lines, "%s does nothing, rule %s: %s", (*c)->name, note->rule, note->reason);
            *rule = note->rule;
        }
        for (guint i = 0; i < plan->ops->len; i++) {
            const LhOp *op = &g_array_index(plan->ops, LhOp, i);
            if (strcmp(op->name, item) == 0 || g_str_has_suffix(op->name, tail))
                line(lines, "%s %swould %s %s, rule %s: %s", (*c)->name,
                     paused ? "is paused, else it " : "", op->type == LH_OP_PUT ? "put" : "delete",
                     op->key, op->rule, op->reason);
        }
    }
}

GPtrArray *lh_explain(gconstpointer index, const LhPlanContext *context, const char *pool,
                      const char *item, const char **state)
{
    const LhFleet *fleet = index;
    const LhFleetReplica *replica = strcmp(pool, LH_POOL_CACHE) == 0
                                        ? g_hash_table_lookup(fleet->replicas, item)
                                        : NULL;
    GPtrArray *lines;
    const char *rule = NULL;

    if (replica == NULL)
        return NULL;
    lines = g_ptr_array_new_with_free_func(g_free);
    *state = "Waiting";
    if (replica->object == NULL)
        line(lines, "there is no replica of this name");
    else if (!lh_object_known(replica->object))
        line(lines, "the replica does not parse (%s): mend or remove it",
             lh_object_error(replica->object));
    for (guint i = 0; replica->assignments != NULL && i < replica->assignments->len; i++)
        explain_assignment(g_ptr_array_index(replica->assignments, i), lines, state);
    if (replica->assignments == NULL)
        line(lines, "on no node");
    explain_fate(replica, lines);
    explain_plans(index, context, item, lines, &rule);
    if (replica->assignments == NULL && rule != NULL && strcmp(rule, "parked") == 0)
        *state = "Parked";
    return lines;
}
