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

/* Of what is not on its way all orders are on one node: the first of them tells which. */
static const LhPoolNode *node_of(const LhSeedGroup *group)
{
    GTreeNode *first = g_tree_node_first(group->orders);

    return first == NULL ? NULL : ((const LhPoolAssignment *)g_tree_node_key(first))->node;
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

/* Up to @n seeds without throttle from @node: the first by name that may be moved. */
static void evict_free(LhSeedRound *round, const LhPoolNode *node, gint64 n, const char *rule,
                       const char *reason)
{
    g_autoptr(GPtrArray) list = g_ptr_array_new();
    gint64 left = n;

    for (guint i = 0; i < node->assignments->len; i++)
        if (((const LhPoolAssignment *)node->assignments->pdata[i])->is_free_load)
            g_ptr_array_add(list, node->assignments->pdata[i]);
    g_ptr_array_sort(list, by_assignment_key);
    for (guint i = 0; i < list->len && left > 0 && !lh_seed_plan_full(round); i++) {
        const LhPoolAssignment *assignment = list->pdata[i];
        if (!may_move(assignment) || g_hash_table_contains(round->told, assignment->of))
            continue;
        lh_seed_plan_evict(round, assignment, rule, reason);
        round->moves = TRUE;
        round->leaving++;
        left--;
    }
}

gboolean lh_seed_plan_moving(LhSeedRound *round)
{
    GHashTableIter iter;
    gpointer value;

    g_hash_table_iter_init(&iter, round->groups);
    while (g_hash_table_iter_next(&iter, NULL, &value)) {
        const LhSeedDecision *at = value;
        if (at->moving || at->claimed || (at->pending->len > 0 && !at->waits))
            return TRUE;
    }
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
    const LhSeedWish wish = {.group = group, .size = size};

    return lh_seed_places_best(round->places, &wish) != NULL;
}

/* One group, or one seed without throttle, of a node that is drained, at a time. */
static void drain_node(LhSeedRound *round, const LhPoolNode *node)
{
    if (node->object == NULL || leaves(node) > 0)
        return;
    for (GTreeNode *n = g_tree_node_first(round->pools->seeds->groups); n != NULL;
         n = g_tree_node_next(n)) {
        const LhSeedGroup *group = g_tree_node_key(n);
        if (node_of(group) == node && group_may_move(round, group) == node &&
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

/* ---- balance ---- */

static gint by_size(gconstpointer a, gconstpointer b)
{
    const LhSeedGroup *x = *(const LhSeedGroup *const *)a, *y = *(const LhSeedGroup *const *)b;
    gint m = g_tree_nnodes(x->orders), n = g_tree_nnodes(y->orders);

    return m != n ? (m > n ? -1 : 1) : strcmp(x->name, y->name);
}

/* For each place the groups on it, the largest first; whether they may move is asked when one is chosen. */
static GPtrArray *groups_by_place(LhSeedRound *round)
{
    guint managers = lh_seed_places_n(round->places);
    GPtrArray *all = g_ptr_array_new_full(managers, (GDestroyNotify)g_ptr_array_unref);
    g_autoptr(GHashTable) at = g_hash_table_new(NULL, NULL);

    for (guint i = 0; i < managers; i++) {
        GPtrArray *groups = g_ptr_array_new();
        g_ptr_array_add(all, groups);
        g_hash_table_insert(at, (gpointer)lh_seed_places_at(round->places, i)->node, groups);
    }
    for (GTreeNode *n = g_tree_node_first(round->pools->seeds->groups); n != NULL;
         n = g_tree_node_next(n)) {
        const LhSeedGroup *group = g_tree_node_key(n);
        GPtrArray *groups = g_hash_table_lookup(at, node_of(group));
        if (groups != NULL)
            g_ptr_array_add(groups, (gpointer)group);
    }
    for (guint i = 0; i < managers; i++)
        g_ptr_array_sort(all->pdata[i], by_size);
    return all;
}

typedef struct {
    guint from;      /* which place */
    LhSeedPlace *to; /* NULL: no move */
    guint group;     /* which of those there */
    gint64 gain;
} Move;

/* The group whose move evens that place and another best; the emptiest has @gap fewer. */
static Move best_move(LhSeedRound *round, guint from, const GPtrArray *groups, gint64 gap)
{
    const LhSeedPlace *place = lh_seed_places_at(round->places, from);
    Move best = {0};

    for (guint i = 0; i < groups->len; i++) {
        const LhSeedGroup *group = groups->pdata[i];
        gint64 size = g_tree_nnodes(group->orders);
        Move move = {.from = from, .group = i};
        if (size >= gap)
            continue; /* it evens nothing, wherever it goes: what is even costs no more than this */
        move.to = lh_seed_places_relief(round->places, place, size, &round->borne);
        if (move.to == NULL)
            continue;
        move.gain = lh_seed_places_gain(place, move.to, size);
        if (move.gain > best.gain && group_may_move(round, group) == place->node)
            best = move;
    }
    return best;
}

static gint by_total(gconstpointer a, gconstpointer b, gpointer data)
{
    const LhSeedRound *round = data;
    guint i = *(const guint *)a, j = *(const guint *)b;
    gint64 x = lh_seed_place_total(lh_seed_places_at(round->places, i)),
           y = lh_seed_place_total(lh_seed_places_at(round->places, j));

    return x != y ? (x > y ? -1 : 1) : (i > j) - (i < j);
}

/* The first of those with the most seeds that has a group to give. */
static Move next_move(LhSeedRound *round, const GPtrArray *groups)
{
    g_autoptr(GArray) order = g_array_new(FALSE, FALSE, sizeof(guint));
    Move move = {0};
    gint64 least = G_MAXINT64;

    for (guint i = 0; i < groups->len; i++) {
        least = MIN(least, lh_seed_place_total(lh_seed_places_at(round->places, i)));
        g_array_append_val(order, i);
    }
    g_array_sort_with_data(order, by_total, round);
    for (guint i = 0; i < order->len && move.to == NULL; i++) {
        guint from = g_array_index(order, guint, i);
        gint64 gap = lh_seed_place_total(lh_seed_places_at(round->places, from)) - least;
        if (gap <= round->borne.totals)
            break;
        move = best_move(round, from, groups->pdata[from], gap);
    }
    return move;
}

/* TRUE: some are moved. */
static gboolean rebalance_groups(LhSeedRound *round)
{
    g_autoptr(GPtrArray) groups = groups_by_place(round);
    gboolean any = FALSE;

    while (!lh_seed_plan_full(round)) {
        Move move = next_move(round, groups);
        const LhSeedGroup *group;
        if (move.to == NULL)
            break;
        group = g_ptr_array_remove_index(groups->pdata[move.from], move.group);
        evict_group(round, group, RULE_REBALANCE, "another manager has fewer seeds");
        lh_seed_places_move(lh_seed_places_at(round->places, move.from), move.to,
                            g_tree_nnodes(group->orders));
        any = TRUE;
    }
    return any;
}

/* Totals are left alone until the rest is as it will be: who has one more follows from it. */
static void rebalance_free(LhSeedRound *round, gboolean rest)
{
    gboolean uneven = lh_seed_places_level(round->places, round->leaving, &round->borne, TRUE);
    gboolean totals = rest && !uneven && round->leaving == 0;

    for (guint i = 0; i < lh_seed_places_n(round->places); i++) {
        const LhSeedPlace *place = lh_seed_places_at(round->places, i);
        if (place->free > place->even)
            evict_free(round, place->node, place->free - place->even, RULE_REBALANCE,
                       "another manager has fewer seeds without throttle");
        else if (totals && place->free > place->target)
            evict_free(round, place->node, place->free - place->target, RULE_REBALANCE,
                       "another manager has fewer seeds in all");
    }
}

void lh_seed_plan_moves(LhSeedRound *round)
{
    gboolean rest;

    if (round->view == NULL || round->stopped)
        return;
    plan_drains(round);
    if (!round->balances || round->stopped || round->missing > 0)
        return;
    rest = !round->moves && !lh_seed_plan_moving(round);
    if (rest) {
        lh_seed_places_level(round->places, round->leaving, &round->borne, TRUE);
        rest = !rebalance_groups(round);
    }
    if (!round->stopped)
        rebalance_free(round, rest);
}
