/*
 * seed-allocator: started seeds to crawl managers; the seeds of one throttle policy to one of them, always.
 *
 * Why a policy is never on two nodes, whatever subset of the groups is committed in whatever order:
 *  - Who holds a policy is a key, the Status of its ThrottlePolicy by this controller (the claim). Every load
 *    of one of its seeds is in a transaction that writes the claim, or compares the claim's revision. So a
 *    load that was decided under an earlier claim is refused once there is another.
 *  - A claim for another node is only made from a mirror in which every assignment that says the policy may end
 *    (lh_pool_end), or is gone. Loads are the only ops that make a policy held, and a plan begins after all
 *    transactions of the plan before it have ended and are seen; another leader's are fenced. So none is on
 *    its way that the claim does not see; and one plan claims a policy once.
 *  - Evictions, ends and updates in place do not make another node hold a policy: any subset is safe. An update
 *    that brings a seed to a policy is a load of that policy, and compares or writes its claim. None takes a
 *    seed from its policy: the order would not say any more what the node does until it has heard it.
 *
 * A move is: all seeds of the group evicted (orders of a moving rule at the claimed node are what says that the
 * group moves), all acknowledged, then one transaction with the claim, the end of one old assignment, and the
 * load of that seed with the window; then each other seed by a transaction of two ops. While a group moves
 * nothing of it is deleted, so that the last acknowledgement, which has the whole window, is not lost.
 */
#include "base/units.h"
#include "controllers/registry.h"
#include "controllers/seed_plan.h"

#include <string.h>

gboolean lh_seed_plan_full(LhSeedRound *round)
{
    if (lh_plan_groups(round->plan) < round->context->max_groups)
        return FALSE;
    round->plan->more = TRUE;
    round->stopped = TRUE;
    return TRUE;
}

gboolean lh_seed_plan_unknown(const LhObject *object)
{
    return object != NULL && !lh_object_known(object);
}

void lh_seed_plan_note(LhSeedRound *round, const LhPoolItem *item, const char *rule,
                       const char *reason)
{
    lh_plan_note(round->plan, LH_KIND_SEED, item->name, rule, "%s", reason);
}

gboolean lh_seed_plan_grace(const LhSeedRound *round, const LhPoolAssignment *ended, gint64 *until)
{
    const LhHealth *health = (const LhHealth *)ended->node->health;

    if (round->settings->failure_grace_ms == 0 || lh_pool_end(ended) != LH_POOL_LOST)
        return FALSE;
    *until = MAX(health->missing_since, 0) + round->settings->failure_grace_ms;
    return *until > round->context->now_ms;
}

static const char *why_nowhere(const LhSeedRound *round)
{
    GHashTableIter iter;
    gpointer node;

    if (lh_seed_places_n(round->places) > 0)
        return NULL;
    if (round->view != NULL) {
        g_hash_table_iter_init(&iter, round->view->nodes);
        while (g_hash_table_iter_next(&iter, NULL, &node))
            if (((const LhPoolNode *)node)->object != NULL)
                return "no manager takes new seeds";
    }
    return "no manager is there";
}

/* ---- what is said ---- */

/* g_free. */
static char *missing_message(const LhSeedRound *round)
{
    return g_strdup_printf("%" G_GINT64_FORMAT " %s no manager: %s", round->missing,
                           round->missing == 1 ? "seed has" : "seeds have",
                           round->nowhere != NULL ? round->nowhere : "none has room");
}

static char *asked_message(const LhSeedRound *round)
{
    g_autofree char *at = lh_time_format(MAX(0, round->settings->rebalance_at));

    return g_strdup_printf("asked for at %s", at);
}

static const LhCondition *said(const LhSeedRound *round, const char *type)
{
    const LhStatus *status = (const LhStatus *)lh_pools_status(round->pools, "settings",
                                                               SEED_ALLOCATOR, SEED_ALLOCATOR);

    for (guint i = 0; status != NULL && lh_object_known(&status->o) && i < status->conditions->n;
         i++) {
        const LhCondition *condition = lh_array_at(status->conditions, i);
        if (g_strcmp0(condition->type, type) == 0)
            return condition;
    }
    return NULL;
}

/* A person asked for a rebalance that has not been carried out. */
static gboolean is_asked(const LhSeedRound *round)
{
    const LhCondition *done = said(round, "Rebalanced");
    g_autofree char *message = asked_message(round);

    return round->settings->rebalance_at >= 0 &&
           (done == NULL || done->status != LH_CONDITION_TRUE ||
            g_strcmp0(done->message, message) != 0);
}

static void plan_settings_status(LhSeedRound *round)
{
    const LhObject *present = lh_pools_status(round->pools, "settings", SEED_ALLOCATOR,
                                              SEED_ALLOCATOR);
    const LhObject *accepted = lh_pools_settings_object(round->pools, SEED_ALLOCATOR);
    g_autofree char *missing = NULL, *asked = asked_message(round);
    gboolean busy = round->asked &&
                    (round->moves || round->leaving > 0 || lh_seed_plan_moving(round) ||
                     round->units->len > 0 || round->missing > 0);
    LhCondition conditions[2];
    guint n = 0;

    if (round->missing > 0 || said(round, "Capacity") != NULL) {
        missing = missing_message(round);
        conditions[n++] = (LhCondition){
            .type = "Capacity",
            .status = round->missing > 0 ? LH_CONDITION_FALSE : LH_CONDITION_TRUE,
            .reason = round->missing > 0 ? "InsufficientCapacity" : "Sufficient",
            .message = round->missing > 0 ? missing : NULL,
        };
    }
    if (round->settings->rebalance_at >= 0)
        conditions[n++] = (LhCondition){
            .type = "Rebalanced",
            .status = busy ? LH_CONDITION_FALSE : LH_CONDITION_TRUE,
            .reason = busy ? "InProgress" : "Done",
            .message = busy && round->missing > 0 ? missing : asked,
        };
    if (lh_plan_status(round->plan, present, "settings/" SEED_ALLOCATOR "/" SEED_ALLOCATOR,
                       accepted != NULL && lh_object_known(accepted)
                           ? ((const LhAccepted *)accepted)->revision
                           : 0,
                       conditions, n, round->context->now_ms) &&
        round->missing > 0)
        lh_plan_event(round->plan, LH_EVENT_WARNING, "InsufficientCapacity", LH_KIND_SETTINGS,
                      SEED_ALLOCATOR, "%s", missing);
}

static void plan_seed_status(LhSeedRound *round, const LhPoolItem *item)
{
    const LhStatus *present = (const LhStatus *)item->status;
    const char *owner, *state = lh_seed_state(item, &owner);
    const LhRetry *retry = lh_pool_retry(item, NULL);
    gint64 revision;

    if (lh_seed_plan_unknown(item->subject) || lh_seed_plan_unknown(item->status))
        return;
    if (item->subject == NULL) {
        if (present == NULL || item->assignments != NULL)
            return;
        lh_plan_begin(round->plan);
        lh_plan_delete(round->plan, LH_KIND_STATUS, present->o.name, present->o.mod_rev, "status",
                       "its seed is gone");
        lh_seed_rely(round, item);
        lh_plan_end(round->plan);
        return;
    }
    revision = ((const LhAccepted *)item->subject)->revision;
    if (present != NULL && present->observed_revision == revision &&
        g_strcmp0(present->state, state) == 0 && g_strcmp0(present->owner, owner) == 0)
        return;
    lh_plan_begin(round->plan);
    lh_seed_put_status(round, item, owner, state,
                       retry != NULL && retry->parked ? retry->message : NULL);
    lh_plan_throttle(round->plan);
    lh_plan_end(round->plan);
}

static void plan_seed_statuses(LhSeedRound *round)
{
    for (GTreeNode *n = g_tree_node_first(round->pools->seeds->todo); n != NULL;
         n = g_tree_node_next(n)) {
        const LhPoolItem *item = g_tree_node_key(n);
        if (g_hash_table_contains(round->told, item))
            continue;
        if (lh_seed_plan_full(round))
            return;
        plan_seed_status(round, item);
    }
}

static void seed_allocator_plan(gconstpointer index, const LhPlanContext *context, LhPlan *plan)
{
    const LhPools *pools = index;
    LhSeedRound round = {
        .pools = pools,
        .view = lh_pools_view(pools, LH_POOL_MANAGER),
        .context = context,
        .settings = lh_pools_settings(pools, SEED_ALLOCATOR),
        .plan = plan,
        .groups = g_hash_table_new_full(g_str_hash, g_str_equal, NULL, lh_seed_decision_free),
        .told = g_hash_table_new(NULL, NULL),
        .units = g_array_new(FALSE, FALSE, sizeof(LhSeedUnit)),
    };

    round.places = lh_seed_places_new(round.view);
    round.nowhere = why_nowhere(&round);
    round.asked = is_asked(&round);
    round.balances = round.asked || round.settings->auto_rebalance;
    round.borne = round.asked
                      ? (LhSeedBorne){1, 1}
                      : lh_seed_places_borne(round.places, round.settings->rebalance_threshold);
    lh_seed_plan_todo(&round);
    lh_seed_plan_policies(&round);
    lh_seed_plan_units(&round);
    lh_seed_plan_releases(&round);
    lh_seed_plan_moves(&round);
    plan_seed_statuses(&round);
    if (!round.stopped) {
        plan_settings_status(&round);
        lh_pool_say_drained(round.view, SEED_ALLOCATOR, round.missing > 0 ? "NoRoom" : "Moving",
                            round.missing > 0 ? "no other manager has room for all of them"
                                              : "policy by policy goes to another manager",
                            context->now_ms, plan);
    }
    lh_seed_places_free(round.places);
    g_hash_table_unref(round.groups);
    g_hash_table_unref(round.told);
    g_array_unref(round.units);
}

/* ---- gauges ---- */

static void seed_allocator_gauges(gconstpointer index, gint64 now_ms, LhGaugeFunc gauge,
                                  gpointer data)
{
    const LhPoolView *view = lh_pools_view(index, LH_POOL_MANAGER);

    (void)now_ms;
    lh_pool_gauges(view, LH_POOL_MANAGER, gauge, data);
    gauge("unassigned_items", "pool=\"manager\",set=\"default\"",
          view == NULL ? 0 : g_tree_nnodes(view->waiting), data);
}

static const char *const gauge_names[] = {"items", "parked_items", "unassigned_items", NULL};

const LhController lh_seed_allocator = {
    .name = SEED_ALLOCATOR,
    .index = &lh_pools_index,
    .kinds = LH_KIND_BIT(LH_KIND_ASSIGNMENT) | LH_KIND_BIT(LH_KIND_ITEM) |
             LH_KIND_BIT(LH_KIND_NODE) | LH_KIND_BIT(LH_KIND_HEALTH) | LH_KIND_BIT(LH_KIND_RETRY) |
             LH_KIND_BIT(LH_KIND_ACCEPTED) | LH_KIND_BIT(LH_KIND_STATUS),
    .plan = seed_allocator_plan,
    .gauges = seed_allocator_gauges,
    .gauge_names = gauge_names,
    .settings = lh_pools_settings_of,
};
