/* See seed_plan.h: what the assignments of each policy say, and what that lets be done with its seeds. */
#include "base/planted.h"
#include "controllers/seed_plan.h"

#include <string.h>

void lh_seed_decision_free(gpointer data)
{
    LhSeedDecision *at = data;

    g_array_unref(at->pending);
    g_free(at);
}

/* ---- what a policy's assignments say ---- */

static gboolean moves_group(const LhPoolAssignment *assignment)
{
    const LhAssignment *order = lh_pool_order(assignment);

    return order->action == LH_ACTION_EVICT &&
           (g_strcmp0(order->rule, RULE_REBALANCE) == 0 ||
            g_strcmp0(order->rule, RULE_DRAINED) == 0 || g_strcmp0(order->rule, RULE_MOVED) == 0);
}

static void read_ended(LhSeedDecision *at, const LhPoolAssignment *assignment)
{
    const LhItem *item = (const LhItem *)assignment->item;

    if (lh_pool_end(assignment) == LH_POOL_LOST) {
        at->lost = TRUE;
        return;
    }
    if (at->last == NULL || item->o.mod_rev > at->last->item->mod_rev)
        at->last = assignment;
}

static void read_order(LhSeedDecision *at, const LhPoolAssignment *assignment)
{
    const LhPoolItem *item = assignment->of;

    at->unknown = at->unknown || lh_seed_plan_unknown(item->subject);
    if (moves_group(assignment) && item->group == at->group && lh_seed_wanted(item) &&
        lh_pool_answer(assignment) != LH_ITEM_DONE &&
        g_strcmp0(assignment->node->id, at->owner) == 0)
        at->moving = TRUE;
    if (lh_pool_end(assignment) != LH_POOL_HELD) {
        read_ended(at, assignment);
        return;
    }
    if (lh_pool_order(assignment)->action == LH_ACTION_LOAD)
        at->loads++;
    else
        at->evicts++;
    at->split = at->split || (at->node != NULL && at->node != assignment->node);
    at->node = assignment->node;
}

LhSeedDecision *lh_seed_plan_group(LhSeedRound *round, const LhSeedGroup *group)
{
    LhSeedDecision *at = g_hash_table_lookup(round->groups, group->name);

    if (at != NULL)
        return at;
    at = g_new0(LhSeedDecision, 1);
    at->group = group;
    at->owner = lh_seed_group_owner(group, &at->owner_since);
    at->unknown = lh_seed_plan_unknown(group->throttle) || lh_seed_plan_unknown(group->status);
    at->pending = g_array_new(FALSE, FALSE, sizeof(LhSeedPending));
    for (GTreeNode *n = g_tree_node_first(group->orders); n != NULL; n = g_tree_node_next(n))
        read_order(at, g_tree_node_key(n));
    g_hash_table_insert(round->groups, group->name, at);
    return at;
}

gboolean lh_seed_plan_frozen(const LhSeedGroup *group)
{
    return group != NULL &&
           (lh_seed_plan_unknown(group->throttle) || lh_seed_plan_unknown(group->status));
}

/* ---- policies ---- */

void lh_seed_plan_note_all(LhSeedRound *round, const LhSeedDecision *at, const char *rule,
                           const char *reason)
{
    for (guint i = 0; round->plan->explain && i < at->pending->len; i++)
        lh_seed_plan_note(round, g_array_index(at->pending, LhSeedPending, i).item, rule, reason);
}

static gint by_priority(gconstpointer a, gconstpointer b)
{
    const LhSeedPending *x = a, *y = b;
    gint64 p = lh_seed_spec(x->item)->priority, q = lh_seed_spec(y->item)->priority;

    if (p != q)
        return p > q ? -1 : 1;
    return strcmp(x->item->name, y->item->name);
}

/* To the node that holds the policy. */
static void join(LhSeedRound *round, LhSeedDecision *at)
{
    LhSeedPlace *place = lh_seed_places_find(round->places, at->node);

    if (place == NULL || g_strcmp0(at->owner, at->node->id) != 0) {
        at->waits = TRUE;
        lh_seed_plan_note_all(round, at, "wait-manager",
                              "the manager of its policy takes nothing new");
        return;
    }
    for (guint i = 0; i < at->pending->len && !lh_seed_plan_full(round); i++) {
        const LhSeedPending *pending = &g_array_index(at->pending, LhSeedPending, i);
        if (pending->ended != NULL && pending->ended->node == place->node) {
            lh_seed_take(round, pending->ended, "evicted",
                         "nothing of it is held there; it is begun anew");
            continue;
        }
        if (place->held >= place->limit) {
            round->missing++;
            lh_seed_plan_note(round, pending->item, "wait-capacity",
                              "the manager of its policy is full");
            continue;
        }
        lh_seed_load(round, at, pending, place->node, FALSE);
        lh_seed_places_add(place, TRUE, 1);
    }
}

static gboolean is_being_moved(const LhSeedDecision *at)
{
    if (LH_BUG(JOINS_MOVING))
        return FALSE;
    if (LH_BUG(GROUP_SPLIT))
        return FALSE;
    return at->moving && at->loads + at->evicts > 0;
}

static void plan_group(LhSeedRound *round, LhSeedDecision *at)
{
    const LhSeedPending *first;
    gint64 until;

    if (at->moving && at->loads > 0)
        for (GTreeNode *n = g_tree_node_first(at->group->orders);
             n != NULL && !lh_seed_plan_full(round); n = g_tree_node_next(n)) {
            const LhPoolAssignment *assignment = g_tree_node_key(n);
            if (lh_pool_end(assignment) == LH_POOL_HELD && !at->unknown &&
                lh_pool_order(assignment)->action == LH_ACTION_LOAD &&
                !g_hash_table_contains(round->told, assignment->of))
                lh_seed_plan_evict(round, assignment, RULE_MOVED,
                                   "the seeds of its policy move together");
        }
    if (at->pending->len == 0 || lh_seed_plan_full(round))
        return;
    g_array_sort(at->pending, by_priority);
    first = &g_array_index(at->pending, LhSeedPending, 0);
    if (at->claimed || at->unknown || at->split)
        lh_seed_plan_note_all(round, at, "wait-policy",
                              "what is known of its policy is not settled");
    else if (is_being_moved(at))
        lh_seed_plan_note_all(round, at, "wait-move", "the seeds of its policy are being moved");
    else if (at->node != NULL && !(at->moving && LH_BUG(GROUP_SPLIT)))
        join(round, at);
    else if (round->pools->seeds->unknown_orders > 0)
        lh_seed_plan_note_all(round, at, "unknown",
                              "an assignment of the pool does not parse: mend it");
    else if (first->ended != NULL && lh_seed_plan_grace(round, first->ended, &until) &&
             lh_pool_host_takes(first->ended->node->host, NULL) == NULL) {
        lh_plan_wake(round->plan, until);
        lh_seed_plan_note_all(round, at, "wait-grace", "its manager may come back (failureGrace)");
    } else {
        LhSeedUnit unit = {.group = at,
                           .one = *first,
                           .size = at->pending->len,
                           .priority = lh_seed_spec(first->item)->priority};
        g_array_append_val(round->units, unit);
    }
}

/* Of a policy that nobody holds any more: since when is what decides about its window. */
static void plan_release(LhSeedRound *round, const LhSeedGroup *group)
{
    gint64 since;
    LhSeedDecision *at;

    if (g_tree_nnodes(group->orders) > 0 || group->status == NULL ||
        lh_seed_plan_unknown(group->status) || round->pools->seeds->unknown_orders > 0)
        return;
    at = g_hash_table_lookup(round->groups, group->name);
    if (at != NULL && at->claimed)
        return;
    if (lh_seed_group_owner(group, &since) != NULL) {
        lh_plan_begin(round->plan);
        lh_seed_claim_put(round, lh_seed_plan_group(round, group), NULL);
        lh_plan_end(round->plan);
    } else if (group->throttle == NULL && g_tree_nnodes(group->members) == 0) {
        gint64 keep = MAX(since, round->context->led_ms) + 24 * 3600 * G_GINT64_CONSTANT(1000);
        if (keep > round->context->now_ms) {
            lh_plan_wake(round->plan, keep);
            return;
        }
        g_autofree char *name = lh_seed_claim_name(group);
        lh_plan_begin(round->plan);
        lh_plan_delete(round->plan, LH_KIND_STATUS, name, group->status->mod_rev, "status",
                       "its policy is gone");
        lh_plan_end(round->plan);
    }
}

void lh_seed_plan_policies(LhSeedRound *round)
{
    for (GTreeNode *n = g_tree_node_first(round->pools->seeds->groups); n != NULL;
         n = g_tree_node_next(n)) {
        const LhSeedGroup *group = g_tree_node_key(n);
        LhSeedDecision *at = g_hash_table_lookup(round->groups, group->name);
        if (lh_seed_plan_full(round))
            return;
        if (at != NULL)
            plan_group(round, at);
    }
}

void lh_seed_plan_releases(LhSeedRound *round)
{
    for (GTreeNode *n = g_tree_node_first(round->pools->seeds->groups);
         n != NULL && !lh_seed_plan_full(round); n = g_tree_node_next(n))
        plan_release(round, g_tree_node_key(n));
}
