/* See cache_drain.h. Which copy moves, which stays, and what is said of a host until it is empty. */
#include "controllers/cache_drain.h"

#include "controllers/cache_rules.h"

#include <string.h>

gboolean lh_drain_is_move(const LhAssignment *order)
{
    return g_strcmp0(order->rule, LH_RULE_DRAINED) == 0 ||
           g_strcmp0(order->rule, LH_RULE_DOUBLED) == 0;
}

/* A load whose node is registered, as far as that is known. */
static gboolean is_held(const LhFleetAssignment *assignment)
{
    return lh_fleet_load(assignment) != NULL && !lh_fleet_node_gone(assignment->node);
}

static gboolean is_drained(const LhFleetAssignment *assignment)
{
    return assignment->node->host->draining;
}

/* Of two loads the one that is kept, as far as that depends on no answer. */
static gboolean stays_rather(const LhFleetAssignment *one, const LhFleetAssignment *other)
{
    if (is_drained(one) != is_drained(other))
        return is_drained(other);
    if (one->object->create_rev != other->object->create_rev)
        return one->object->create_rev < other->object->create_rev;
    return strcmp(one->key, other->key) < 0;
}

/* ---- loading elsewhere ---- */

static const char *in_the_way(const LhFleet *fleet, const LhFleetReplica *replica)
{
    if (replica->fate.type == LH_FATE_UNKNOWN || replica->fate.type == LH_FATE_PAUSED)
        return lh_cache_fate_text(&replica->fate);
    return lh_fleet_replica_placeable(fleet, replica) ? NULL
                                                      : "its snapshot may not be cached any more";
}

const LhFleetAssignment *lh_drain_source(const LhFleet *fleet, const LhFleetReplica *replica,
                                         gint64 now_ms, const char **why)
{
    const LhFleetAssignment *source = NULL;

    *why = NULL;
    for (guint i = 0; i < replica->assignments->len; i++) {
        const LhFleetAssignment *assignment = g_ptr_array_index(replica->assignments, i);
        if (assignment->object == NULL)
            continue;
        if (!lh_object_known(assignment->object)) {
            *why = "an assignment of it does not parse";
            return NULL;
        }
        if (lh_fleet_load(assignment) == NULL)
            continue;
        if (!is_drained(assignment))
            return NULL; /* even of a lost node, which may be back in time */
        if (is_held(assignment) && (source == NULL || stays_rather(assignment, source)))
            source = assignment;
    }
    if (source == NULL || replica->fate.type == LH_FATE_GO || replica->fate.due_ms <= now_ms)
        return NULL;
    *why = in_the_way(fleet, replica);
    return *why == NULL ? source : NULL;
}

static void rely_on_policy(LhPlan *plan, const LhFleetHost *host)
{
    g_autofree char *name = g_strconcat("nodepolicies/" LH_POOL_CACHE "/", host->name, NULL);

    lh_plan_rely(plan, LH_KIND_ACCEPTED, name, host->policy == NULL ? 0 : host->policy->mod_rev);
}

void lh_drain_rely_on_source(LhPlan *plan, const LhFleetAssignment *source)
{
    lh_plan_rely(plan, LH_KIND_ASSIGNMENT, source->object->name, source->object->mod_rev);
    rely_on_policy(plan, source->node->host);
}

/* ---- evicting here ---- */

static gboolean may_stay(const LhFleetAssignment *assignment)
{
    const LhFleetNode *node = assignment->node;
    const LhHealth *health = (const LhHealth *)node->health;

    if (!is_held(assignment) || !lh_object_known(node->object) ||
        lh_fleet_answer(assignment) != LH_ITEM_LIVE)
        return FALSE;
    return health == NULL || (lh_object_known(&health->o) && health->state != LH_HEALTH_FAILURE &&
                              health->state != LH_HEALTH_FAILED);
}

const LhFleetAssignment *lh_drain_stayer(const LhFleetReplica *replica)
{
    const LhFleetAssignment *best = NULL;

    for (guint i = 0; i < replica->assignments->len; i++) {
        const LhFleetAssignment *assignment = g_ptr_array_index(replica->assignments, i);
        if (may_stay(assignment) && (best == NULL || stays_rather(assignment, best)))
            best = assignment;
    }
    return best;
}

gboolean lh_drain_ends(const LhFleetAssignment *assignment, const LhFleetAssignment *stayer)
{
    if (assignment == stayer || !is_held(assignment))
        return FALSE;
    return is_drained(assignment) || !is_drained(stayer);
}

void lh_drain_rely_on_stayer(LhPlan *plan, const LhFleetAssignment *target,
                             const LhFleetAssignment *stayer)
{
    g_autofree char *node = g_strconcat(LH_POOL_CACHE "/", stayer->node->id, NULL);
    const LhObject *health = stayer->node->health;

    lh_plan_rely(plan, LH_KIND_ASSIGNMENT, stayer->object->name, stayer->object->mod_rev);
    lh_plan_rely(plan, LH_KIND_ITEM, stayer->item->name, stayer->item->mod_rev);
    lh_plan_rely(plan, LH_KIND_NODE, node, stayer->node->object->mod_rev);
    lh_plan_rely(plan, LH_KIND_HEALTH, node, health == NULL ? 0 : health->mod_rev);
    rely_on_policy(plan, target->node->host);
    rely_on_policy(plan, stayer->node->host);
}

/* ---- the condition Drained ---- */

typedef struct {
    guint waits[LH_DRAIN_LEFT + 1];
    const char *why[LH_DRAIN_LEFT + 1]; /* of one of them */
} Row;

struct LhDrainTally {
    GHashTable *rows; /* LhFleetHost -> Row */
};

LhDrainTally *lh_drain_tally_new(void)
{
    LhDrainTally *tally = g_new0(LhDrainTally, 1);

    tally->rows = g_hash_table_new_full(NULL, NULL, NULL, g_free);
    return tally;
}

void lh_drain_tally_free(LhDrainTally *tally)
{
    if (tally == NULL)
        return;
    g_hash_table_unref(tally->rows);
    g_free(tally);
}

void lh_drain_tally_add(LhDrainTally *tally, const LhFleetReplica *replica, LhDrainWait wait,
                        const char *why)
{
    for (guint i = 0; i < replica->assignments->len; i++) {
        const LhFleetAssignment *assignment = g_ptr_array_index(replica->assignments, i);
        Row *row;
        if (!is_held(assignment) || !is_drained(assignment))
            continue;
        row = g_hash_table_lookup(tally->rows, assignment->node->host);
        if (row == NULL) {
            row = g_new0(Row, 1);
            g_hash_table_insert(tally->rows, assignment->node->host, row);
        }
        row->waits[wait]++;
        row->why[wait] = why;
    }
}

static char *left_text(const LhFleetHost *host, const Row *row)
{
    static const char *const texts[] = {
        [LH_DRAIN_NO_ROOM] = "have no room elsewhere",
        [LH_DRAIN_FAILING] = "could not be loaded elsewhere",
        [LH_DRAIN_LEFT] = "are left alone",
    };
    gint64 items = host->used_items + host->restored_items, moving = items;
    GString *text = g_string_new(NULL);

    g_string_append_printf(text, "%" G_GINT64_FORMAT " left", items);
    for (guint i = 0; row != NULL && i < G_N_ELEMENTS(texts); i++)
        moving -= row->waits[i];
    if (moving > 0)
        g_string_append_printf(text, ", %" G_GINT64_FORMAT " on their way", moving);
    for (guint i = 0; row != NULL && i < G_N_ELEMENTS(texts); i++)
        if (row->waits[i] > 0)
            g_string_append_printf(text, ", %u %s (%s)", row->waits[i], texts[i], row->why[i]);
    return g_string_free(text, FALSE);
}

static const char *left_reason(const Row *row)
{
    if (row != NULL && row->waits[LH_DRAIN_NO_ROOM] > 0)
        return "NoRoom";
    if (row != NULL && row->waits[LH_DRAIN_FAILING] > 0)
        return "LoadFailed";
    return row != NULL && row->waits[LH_DRAIN_LEFT] > 0 ? "LeftAlone" : "Moving";
}

void lh_drain_say(const LhFleet *fleet, const LhDrainTally *tally, gint64 now_ms, LhPlan *plan)
{
    for (GTreeNode *n = g_tree_node_first(fleet->drains); n != NULL; n = g_tree_node_next(n)) {
        const LhFleetHost *host = lh_tree_record(n);
        const Row *row = g_hash_table_lookup(tally->rows, host);
        gboolean empty = host->used_items + host->restored_items == 0;
        g_autofree char *name = g_strconcat("nodepolicies/" LH_POOL_CACHE "/", host->name,
                                            "/cache-assigner", NULL);
        g_autofree char *message = empty ? g_strdup("nothing is assigned to it")
                                         : left_text(host, row);
        LhCondition condition = {
            .type = "Drained",
            .status = empty ? LH_CONDITION_TRUE : LH_CONDITION_FALSE,
            .reason = empty ? "Empty" : left_reason(row),
            .message = message,
        };
        lh_plan_status(plan, host->drain_said, name,
                       host->draining ? ((const LhAccepted *)host->policy)->revision : 0,
                       &condition, host->draining ? 1 : 0, now_ms);
    }
}
