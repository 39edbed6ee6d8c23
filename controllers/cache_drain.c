/* See cache_drain.h. Which copy moves, which stays, and what is said of host and node until they are empty. */
#include "controllers/cache_drain.h"

#include "base/planted.h"
#include "controllers/cache_rules.h"

#include <string.h>

gboolean lh_drain_is_move(const LhAssignment *order)
{
    return g_strcmp0(order->rule, LH_RULE_DRAINED) == 0 ||
           g_strcmp0(order->rule, LH_RULE_FAILING) == 0 ||
           g_strcmp0(order->rule, LH_RULE_DOUBLED) == 0;
}

const char *lh_drain_rule(const LhFleetNode *node)
{
    return node->host->draining ? LH_RULE_DRAINED : node->failing ? LH_RULE_FAILING : NULL;
}

const char *lh_drain_words(const LhFleetNode *node)
{
    return node->host->draining ? "is drained" : node->failing ? "is in failure" : NULL;
}

/* A load whose node is registered, as far as that is known. */
static gboolean is_held(const LhFleetAssignment *assignment)
{
    return lh_fleet_load(assignment) != NULL && !lh_fleet_node_gone(assignment->node);
}

static gboolean is_leaving(const LhFleetAssignment *assignment)
{
    return lh_fleet_leaving(assignment->node);
}

/* Of two loads the one that is kept, as far as that depends on no answer. */
static gboolean stays_rather(const LhFleetAssignment *one, const LhFleetAssignment *other)
{
    if (is_leaving(one) != is_leaving(other))
        return is_leaving(other);
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

/* It ends in this plan, or will: that may say that the next attempt waits. */
static gboolean is_ending(const LhFleetAssignment *assignment)
{
    int answer = lh_fleet_answer(assignment);

    if (answer == LH_ITEM_FAILED || answer == LH_ITEM_EVICTED || answer == LH_ITEM_DONE)
        return TRUE;
    return !assignment->node->failing &&
           g_strcmp0(((const LhAssignment *)assignment->object)->rule, LH_RULE_STUCK_LOADING) == 0;
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
        if (is_ending(assignment))
            return NULL;
        if (lh_fleet_load(assignment) == NULL && !assignment->node->failing)
            continue;
        if (!is_leaving(assignment))
            return NULL; /* even of a lost node, which may be back in time */
        /* A node in failure may never answer that it has evicted it. */
        if ((is_held(assignment) || assignment->node->failing) &&
            (source == NULL || stays_rather(assignment, source)))
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

static void rely_on_health(LhPlan *plan, const LhFleetNode *node)
{
    g_autofree char *name = g_strconcat(LH_POOL_CACHE "/", node->id, NULL);

    lh_plan_rely(plan, LH_KIND_HEALTH, name, node->health == NULL ? 0 : node->health->mod_rev);
}

/* That @node is left: its policy, and what makes it failing. */
static void rely_on_leaving(LhPlan *plan, const LhFleet *fleet, const LhFleetNode *node)
{
    const LhObject *detector = g_hash_table_lookup(fleet->settings, "failure-detector");

    rely_on_policy(plan, node->host);
    if (!node->failing)
        return;
    rely_on_health(plan, node);
    lh_plan_rely(plan, LH_KIND_ACCEPTED, "settings/failure-detector",
                 detector == NULL ? 0 : detector->mod_rev);
}

void lh_drain_rely_on_source(LhPlan *plan, const LhFleet *fleet, const LhFleetAssignment *source)
{
    lh_plan_rely(plan, LH_KIND_ASSIGNMENT, source->object->name, source->object->mod_rev);
    rely_on_leaving(plan, fleet, source->node);
}

/* ---- evicting here ---- */

static gboolean may_stay(const LhFleetAssignment *assignment)
{
    const LhFleetNode *node = assignment->node;
    const LhHealth *health = (const LhHealth *)node->health;

    if (!is_held(assignment) || !lh_object_known(node->object) ||
        ((const LhNode *)node->object)->state == LH_NODE_ERROR ||
        lh_fleet_answer(assignment) != LH_ITEM_LIVE)
        return FALSE;
    return health == NULL || (lh_object_known(&health->o) && health->state != LH_HEALTH_FAILURE &&
                              health->state != LH_HEALTH_FAILED);
}

/* One of its copies is on a node in failure. */
static gboolean on_failing(const LhFleetReplica *replica)
{
    for (guint i = 0; i < replica->assignments->len; i++)
        if (((LhFleetAssignment *)g_ptr_array_index(replica->assignments, i))->node->failing)
            return TRUE;
    return FALSE;
}

const LhFleetAssignment *lh_drain_stayer(const LhFleetReplica *replica)
{
    const LhFleetAssignment *best = NULL;

    for (guint i = 0; i < replica->assignments->len; i++) {
        const LhFleetAssignment *assignment = g_ptr_array_index(replica->assignments, i);
        if (LH_BUG(FAILED_EVICTED_FIRST) && is_held(assignment) && assignment->item != NULL &&
            !is_leaving(assignment) && on_failing(replica))
            return assignment;
        if (may_stay(assignment) && (best == NULL || stays_rather(assignment, best)))
            best = assignment;
    }
    return best;
}

gboolean lh_drain_ends(const LhFleetAssignment *assignment, const LhFleetAssignment *stayer)
{
    if (assignment == stayer || !is_held(assignment))
        return FALSE;
    if (is_leaving(assignment))
        return TRUE;
    /* Of a node whose health does not parse nobody can say that its copy should not be what stays. */
    return !is_leaving(stayer) &&
           (assignment->node->health == NULL || lh_object_known(assignment->node->health));
}

void lh_drain_rely_on_stayer(LhPlan *plan, const LhFleet *fleet, const LhFleetAssignment *target,
                             const LhFleetAssignment *stayer)
{
    g_autofree char *node = g_strconcat(LH_POOL_CACHE "/", stayer->node->id, NULL);

    lh_plan_rely(plan, LH_KIND_ASSIGNMENT, stayer->object->name, stayer->object->mod_rev);
    lh_plan_rely(plan, LH_KIND_ITEM, stayer->item->name, stayer->item->mod_rev);
    lh_plan_rely(plan, LH_KIND_NODE, node, stayer->node->object->mod_rev);
    rely_on_health(plan, stayer->node);
    rely_on_leaving(plan, fleet, target->node);
    rely_on_policy(plan, stayer->node->host);
}

/* ---- the conditions Drained and Evacuated ---- */

typedef struct {
    guint waits[LH_DRAIN_LEFT + 1];
    const char *why[LH_DRAIN_LEFT + 1]; /* of one of them */
} Row;

struct LhDrainTally {
    GHashTable *rows; /* LhFleetHost and LhFleetNode -> Row */
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

static void add_wait(LhDrainTally *tally, gconstpointer left, LhDrainWait wait, const char *why)
{
    Row *row = g_hash_table_lookup(tally->rows, left);

    if (row == NULL) {
        row = g_new0(Row, 1);
        g_hash_table_insert(tally->rows, (gpointer)left, row);
    }
    row->waits[wait]++;
    row->why[wait] = why;
}

void lh_drain_tally_add(LhDrainTally *tally, const LhFleetReplica *replica, LhDrainWait wait,
                        const char *why)
{
    for (guint i = 0; i < replica->assignments->len; i++) {
        const LhFleetAssignment *assignment = g_ptr_array_index(replica->assignments, i);
        if (!is_held(assignment))
            continue;
        if (assignment->node->host->draining)
            add_wait(tally, assignment->node->host, wait, why);
        if (assignment->node->failing)
            add_wait(tally, assignment->node, wait, why);
    }
}

static char *left_text(gint64 items, const Row *row)
{
    static const char *const texts[] = {
        [LH_DRAIN_NO_ROOM] = "have no room elsewhere",
        [LH_DRAIN_FAILING] = "could not be loaded elsewhere",
        [LH_DRAIN_LEFT] = "are left alone",
    };
    gint64 moving = items;
    GString *text = g_string_new(NULL);

    g_string_append_printf(text, "%" G_GINT64_FORMAT " left", items);
    for (guint i = 0; i < G_N_ELEMENTS(texts); i++)
        moving -= row->waits[i];
    if (moving > 0)
        g_string_append_printf(text, ", %" G_GINT64_FORMAT " on their way", moving);
    for (guint i = 0; i < G_N_ELEMENTS(texts); i++)
        if (row->waits[i] > 0)
            g_string_append_printf(text, ", %u %s (%s)", row->waits[i], texts[i], row->why[i]);
    return g_string_free(text, FALSE);
}

static const char *left_reason(const Row *row)
{
    if (row->waits[LH_DRAIN_NO_ROOM] > 0)
        return "NoRoom";
    if (row->waits[LH_DRAIN_FAILING] > 0)
        return "LoadFailed";
    return row->waits[LH_DRAIN_LEFT] > 0 ? "LeftAlone" : "Moving";
}

/* Assignments that do not parse: of those nobody can say whether they are loads. */
static void add_unknown(const LhFleetNode *node, Row *row)
{
    for (guint i = 0; i < node->assignments->len; i++) {
        const LhFleetAssignment *assignment = g_ptr_array_index(node->assignments, i);
        if (assignment->object == NULL || lh_object_known(assignment->object))
            continue;
        row->waits[LH_DRAIN_LEFT]++;
        row->why[LH_DRAIN_LEFT] = "an assignment does not parse: mend or remove it";
    }
}

static Row row_of(const LhDrainTally *tally, gconstpointer left)
{
    const Row *waits = g_hash_table_lookup(tally->rows, left);

    return waits == NULL ? (Row){{0}, {NULL}} : *waits;
}

/* A condition of @items that are left, as a group of @plan; @applies: else there is none. */
static void say(LhPlan *plan, const LhObject *present, const char *name, gint64 revision,
                const char *type, gint64 items, const Row *row, gboolean applies, gint64 now_ms)
{
    g_autofree char *message = items == 0 ? g_strdup("nothing is assigned to it")
                                          : left_text(items, row);
    LhCondition condition = {
        .type = type,
        .status = items == 0 ? LH_CONDITION_TRUE : LH_CONDITION_FALSE,
        .reason = items == 0 ? "Empty" : left_reason(row),
        .message = message,
    };

    lh_plan_status(plan, present, name, revision, &condition, applies ? 1 : 0, now_ms);
}

static void say_drained(const LhFleetHost *host, const LhDrainTally *tally, gint64 now_ms,
                        LhPlan *plan)
{
    Row row = row_of(tally, host);
    g_autofree char *name = g_strconcat("nodepolicies/cache/", host->name, "/cache-assigner", NULL);

    for (guint i = 0; i < host->nodes->len; i++)
        add_unknown(g_ptr_array_index(host->nodes, i), &row);
    say(plan, host->drain_said, name,
        host->draining ? ((const LhAccepted *)host->policy)->revision : 0, "Drained",
        host->used_items + host->restored_items, &row, host->draining, now_ms);
}

static void say_evacuated(const LhFleetNode *node, const LhDrainTally *tally, gint64 now_ms,
                          LhPlan *plan)
{
    Row row = row_of(tally, node);
    g_autofree char *name = g_strconcat("nodes/cache/", node->id, "/cache-assigner", NULL);
    gint64 items = 0;

    for (guint i = 0; i < node->assignments->len; i++)
        items += ((const LhFleetAssignment *)g_ptr_array_index(node->assignments, i))->items;
    add_unknown(node, &row);
    say(plan, node->said, name, node->failing ? node->object->mod_rev : 0, "Evacuated", items, &row,
        node->failing, now_ms);
}

void lh_drain_say(const LhFleet *fleet, const LhDrainTally *tally, gint64 now_ms, LhPlan *plan)
{
    for (GTreeNode *n = g_tree_node_first(fleet->drains); n != NULL; n = g_tree_node_next(n))
        say_drained(lh_tree_record(n), tally, now_ms, plan);
    for (GTreeNode *n = g_tree_node_first(fleet->failures); n != NULL; n = g_tree_node_next(n))
        say_evacuated(lh_tree_record(n), tally, now_ms, plan);
}
