/*
 * See seed_plan.h: which seeds are taken off a manager although they could stay. A whole policy or none of it;
 * only what is live and as people want it; as few as make the managers even. Everything else goes on.
 */
#include "controllers/seed_plan.h"

#include <string.h>

/* Known, live, and as people want it: it may be taken to another manager. */
static gboolean may_move(const LhPoolAssignment *assignment)
{
    const LhAssignment *order = lh_pool_order(assignment);
    const LhPoolItem *item = assignment->of;

    return order != NULL && order->action == LH_ACTION_LOAD &&
           lh_pool_answer(assignment) == LH_ITEM_LIVE && assignment->node->object != NULL &&
           lh_seed_wanted(item) && assignment->group == item->group;
}

/* The node that all of it may be moved from; NULL: it may not be moved now. */
static const LhPoolNode *group_may_move(LhSeedRound *round, const LhSeedGroup *group)
{
    const LhPoolNode *node = NULL;
    gint64 since;
    const char *owner = lh_seed_group_owner(group, &since);
    LhSeedDecision *at = g_hash_table_lookup(round->groups, group->name);

    if (lh_seed_group_throttle(group) == NULL ||
        (group->status != NULL && !lh_object_known(group->status)) || owner == NULL ||
        round->pools->seeds->unknown_orders > 0 || (at != NULL && (at->claimed || at->joined)))
        return NULL;
    for (GTreeNode *n = g_tree_node_first(group->orders); n != NULL; n = g_tree_node_next(n)) {
        const LhPoolAssignment *assignment = g_tree_node_key(n);
        if (!may_move(assignment) || (node != NULL && assignment->node != node) ||
            g_hash_table_contains(round->told, assignment->of))
            return NULL;
        node = assignment->node;
    }
    return node != NULL && strcmp(owner, node->id) == 0 ? node : NULL;
}

static void evict_group(LhSeedRound *round, const LhSeedGroup *group, const char *rule,
                        const char *reason)
{
    for (GTreeNode *n = g_tree_node_first(group->orders); n != NULL && !lh_seed_plan_full(round);
         n = g_tree_node_next(n))
        lh_seed_plan_evict(round, g_tree_node_key(n), rule, reason);
    round->moves = TRUE;
}

static gint by_assignment_key(gconstpointer a, gconstpointer b)
{
    return strcmp((*(const LhPoolAssignment *const *)a)->key,
                  (*(const LhPoolAssignment *const *)b)->key);
}

/* Up to @n seeds without throttle from @node. */
static void evict_free(LhSeedRound *round, const LhPoolNode *node, gint64 n, const char *rule,
                       const char *reason)
{
    g_autoptr(GPtrArray) list = g_ptr_array_new();

    for (guint i = 0; i < node->assignments->len; i++) {
        const LhPoolAssignment *assignment = node->assignments->pdata[i];
        if (assignment->group == NULL && may_move(assignment) &&
            !g_hash_table_contains(round->told, assignment->of))
            g_ptr_array_add(list, (gpointer)assignment);
    }
    g_ptr_array_sort(list, by_assignment_key);
    for (guint i = 0; i < list->len && (gint64)i < n && !lh_seed_plan_full(round); i++) {
        lh_seed_plan_evict(round, list->pdata[i], rule, reason);
        round->moves = TRUE;
    }
}

gboolean lh_seed_plan_moving(LhSeedRound *round)
{
    GHashTableIter iter;
    gpointer at;

    g_hash_table_iter_init(&iter, round->groups);
    while (g_hash_table_iter_next(&iter, NULL, &at))
        if (((LhSeedDecision *)at)->moving || ((LhSeedDecision *)at)->claimed ||
            ((LhSeedDecision *)at)->pending->len > 0)
            return TRUE;
    return FALSE;
}

static gint64 leaves(const LhPoolNode *node)
{
    gint64 n = 0;

    for (guint i = 0; i < node->assignments->len; i++) {
        const LhPoolAssignment *assignment = node->assignments->pdata[i];
        const LhAssignment *order = lh_pool_order(assignment);
        n += order != NULL && order->action == LH_ACTION_EVICT;
    }
    return n;
}

static gboolean has_room(const LhSeedRound *round, gboolean group, gint64 size)
{
    return lh_seed_places_best(round->places, group, size, NULL) != NULL;
}

/* One group, or one seed without throttle, of a node that is drained, at a time. */
static void drain_node(LhSeedRound *round, const LhPoolNode *node)
{
    if (node->object == NULL || leaves(node) > 0)
        return;
    for (GTreeNode *n = g_tree_node_first(round->pools->seeds->groups); n != NULL;
         n = g_tree_node_next(n)) {
        const LhSeedGroup *group = g_tree_node_key(n);
        if (group_may_move(round, group) == node &&
            has_room(round, TRUE, g_tree_nnodes(group->orders))) {
            evict_group(round, group, RULE_DRAINED, "its manager is drained");
            return;
        }
    }
    if (has_room(round, FALSE, 1))
        evict_free(round, node, 1, RULE_DRAINED, "its manager is drained");
}

static gint by_node_id(gconstpointer a, gconstpointer b)
{
    return strcmp((*(const LhPoolNode *const *)a)->id, (*(const LhPoolNode *const *)b)->id);
}

static void plan_drains(LhSeedRound *round)
{
    for (GTreeNode *n = g_tree_node_first(round->view->hosts); n != NULL; n = g_tree_node_next(n)) {
        const LhPoolHost *host = lh_pool_record(n);
        const LhNodePolicy *policy = lh_accepted_spec(host->policy, LH_KIND_NODEPOLICY);
        if (policy == NULL || !policy->drain)
            continue;
        g_autoptr(GPtrArray) nodes = g_ptr_array_copy(host->nodes, NULL, NULL);
        g_ptr_array_sort(nodes, by_node_id);
        for (guint i = 0; i < nodes->len && !lh_seed_plan_full(round); i++)
            drain_node(round, nodes->pdata[i]);
    }
}

/* The group whose move from @high to a node with @gap fewer evens them best. */
static const LhSeedGroup *best_group(LhSeedRound *round, const LhPoolNode *high, gint64 gap,
                                     gint64 room, const GHashTable *moved)
{
    const LhSeedGroup *best = NULL;
    gint64 best_gain = 0;

    for (GTreeNode *n = g_tree_node_first(round->pools->seeds->groups); n != NULL;
         n = g_tree_node_next(n)) {
        const LhSeedGroup *group = g_tree_node_key(n);
        gint64 size = g_tree_nnodes(group->orders), gain = MIN(size, gap - size);
        if (size <= room && gain > best_gain &&
            !g_hash_table_contains((GHashTable *)moved, group) &&
            group_may_move(round, group) == high) {
            best = group;
            best_gain = gain;
        }
    }
    return best;
}

static void rebalance_groups(LhSeedRound *round, gint64 threshold)
{
    g_autoptr(GHashTable) moved = g_hash_table_new(NULL, NULL);

    while (!lh_seed_plan_full(round)) {
        LhSeedPlace *low = lh_seed_places_best(round->places, TRUE, 1, NULL);
        LhSeedPlace *high = lh_seed_places_fullest(round->places);
        const LhSeedGroup *group;
        gint64 size;
        if (low == NULL || high == NULL || high->groups - low->groups <= threshold)
            return;
        group = best_group(round, high->node, high->groups - low->groups, low->limit - low->held,
                           moved);
        if (group == NULL)
            return;
        size = g_tree_nnodes(group->orders);
        g_hash_table_add(moved, (gpointer)group);
        evict_group(round, group, RULE_REBALANCE, "another manager has fewer seeds");
        high->groups -= size;
        lh_seed_places_add(low, TRUE, size);
    }
}

static void rebalance_free(LhSeedRound *round, gint64 threshold)
{
    g_autofree gint64 *surplus = lh_seed_places_surplus(round->places, round->leaving, threshold);

    for (guint i = 0; surplus != NULL && i < lh_seed_places_n(round->places); i++)
        if (surplus[i] > 0)
            evict_free(round, lh_seed_places_at(round->places, i)->node, surplus[i], RULE_REBALANCE,
                       "another manager has fewer seeds");
}

void lh_seed_plan_moves(LhSeedRound *round)
{
    gint64 threshold = round->asked ? 1 : round->settings->rebalance_threshold;

    if (round->view == NULL || round->stopped)
        return;
    plan_drains(round);
    if ((!round->settings->auto_rebalance && !round->asked) || round->stopped)
        return;
    if (!lh_seed_plan_moving(round) && round->missing == 0)
        rebalance_groups(round, threshold);
    if (round->missing == 0)
        rebalance_free(round, threshold);
}
