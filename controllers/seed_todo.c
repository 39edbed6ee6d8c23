/* See seed_plan.h: one seed after the other that is not as it should be, wherever it is. */
#include "controllers/seed_plan.h"

#include <string.h>

/* ---- what is held ---- */

/* A seed that runs asks for another policy, or for none. Of one that it has, no order in place may take it:
 * until the node has heard of it, it crawls under the old policy, which nothing would say any more. */
static void change_policy(LhSeedRound *round, const LhPoolAssignment *assignment, const char *json)
{
    const LhPoolItem *item = assignment->of;
    LhSeedDecision *at = item->group == NULL ? NULL : lh_seed_plan_group(round, item->group);

    if (assignment->group != NULL) {
        lh_seed_plan_evict(round, assignment, "throttle-changed",
                           "what it crawls under its old policy ends first");
        return;
    }
    if (at == NULL)
        return; /* it has no policy either way */
    if (at->claimed || at->unknown || round->pools->seeds->unknown_orders > 0)
        return; /* when that is seen */
    if (g_tree_nnodes(at->group->orders) == 0)
        lh_seed_update(round, assignment, at, TRUE, json);
    else if (at->node == assignment->node && !at->split && !at->moving &&
             g_strcmp0(at->owner, assignment->node->id) == 0)
        lh_seed_update(round, assignment, at, FALSE, json);
    else
        lh_seed_plan_evict(round, assignment, "throttle-changed",
                           "the seeds of its policy are elsewhere");
}

static void plan_held(LhSeedRound *round, const LhPoolAssignment *assignment)
{
    const LhPoolItem *item = assignment->of;
    const LhAssignment *order = lh_pool_order(assignment);
    LhSeedDecision *was = assignment->group == NULL ? NULL
                                                    : lh_seed_plan_group(round, assignment->group);
    g_autofree char *json = NULL;

    if (order->action == LH_ACTION_EVICT || assignment->node->object == NULL)
        return;
    if (lh_pool_doubled(assignment)) {
        lh_seed_plan_evict(round, assignment, "doubled",
                           "another manager has it, and had it first");
    } else if (item->subject == NULL) {
        lh_seed_plan_evict(round, assignment, "seed-deleted", "the seed was deleted");
    } else if (!lh_seed_wanted(item)) {
        lh_seed_plan_evict(round, assignment, "stopped", "the seed was stopped");
    } else if (was != NULL && was->split && g_strcmp0(was->owner, assignment->node->id) != 0) {
        lh_seed_plan_evict(round, assignment, "split", "its policy is held by another manager");
    } else {
        json = lh_seed_json(item);
        if (json == NULL)
            lh_seed_plan_note(round, item, "wait-throttle", "its throttle policy is not in force");
        else if (assignment->group != item->group)
            change_policy(round, assignment, json);
        else if (g_strcmp0(json, order->seed) != 0 &&
                 (was == NULL || (!was->unknown && !was->split)))
            lh_seed_update(round, assignment, was, FALSE, json);
    }
}

/* ---- one seed ---- */

static gboolean held_back(LhSeedRound *round, const LhPoolItem *item)
{
    gboolean unknown;
    const LhRetry *retry = lh_pool_retry(item, &unknown);

    if (unknown) {
        lh_seed_plan_note(round, item, "retry-unknown",
                          "its retry does not parse: mend or remove it");
        return TRUE;
    }
    if (retry == NULL || (!retry->parked && retry->not_before <= round->context->now_ms))
        return FALSE;
    if (!retry->parked)
        lh_plan_wake(round->plan, retry->not_before);
    lh_plan_note(round->plan, LH_KIND_SEED, item->name, retry->parked ? "parked" : "wait-backoff",
                 "%" G_GINT64_FORMAT " attempts failed: %s%s%s", retry->attempt,
                 retry->message == NULL ? "" : retry->message,
                 retry->parked ? "; leasehold retry " LH_POOL_MANAGER "/" : "",
                 retry->parked ? item->name : "");
    return TRUE;
}

/* A seed that waits, with what it leaves. */
static void wait_for_node(LhSeedRound *round, const LhPoolItem *item, const LhPoolAssignment *ended)
{
    LhSeedPending pending = {item, ended};
    gint64 until;

    if (held_back(round, item))
        return;
    if (item->group != NULL) {
        if (lh_seed_group_throttle(item->group) == NULL)
            lh_seed_plan_note(round, item, "wait-throttle", "its throttle policy is not in force");
        else
            g_array_append_val(lh_seed_plan_group(round, item->group)->pending, pending);
        return;
    }
    if (ended != NULL && lh_seed_plan_grace(round, ended, &until) &&
        lh_pool_host_takes(ended->node->host, NULL) == NULL) {
        lh_plan_wake(round->plan, until);
        lh_seed_plan_note(round, item, "wait-grace", "its manager may come back (failureGrace)");
        return;
    }
    LhSeedUnit unit = {.one = pending, .size = 1, .priority = lh_seed_spec(item)->priority};
    g_array_append_val(round->units, unit);
}

/* TRUE: it may be what the seed leaves, when that goes elsewhere. */
static gboolean plan_ended(LhSeedRound *round, const LhPoolAssignment *assignment, gboolean first)
{
    const LhPoolItem *item = assignment->of;
    gboolean load = lh_pool_order(assignment)->action == LH_ACTION_LOAD;
    int answer = lh_pool_answer(assignment);

    if (assignment->group != NULL && lh_seed_plan_group(round, assignment->group)->moving) {
        return first && item->group == assignment->group && lh_seed_wanted(item) &&
               answer != LH_ITEM_DONE;
    } else if (load && answer == LH_ITEM_DONE) {
        lh_seed_take_done(round, assignment);
    } else if (load && answer == LH_ITEM_FAILED) {
        lh_seed_take_failed(round, assignment);
    } else if (!first || !lh_seed_wanted(item) || answer == LH_ITEM_DONE) {
        if (answer == LH_ITEM_DONE)
            lh_seed_take_done(round, assignment);
        else
            lh_seed_take(round, assignment,
                         lh_pool_end(assignment) == LH_POOL_LOST ? "node-failed" : "evicted",
                         "nothing of it is held there");
    } else {
        return TRUE;
    }
    g_hash_table_add(round->told, (gpointer)item);
    return FALSE;
}

static void plan_retry(LhSeedRound *round, const LhPoolItem *item, gboolean live)
{
    if (item->retry == NULL || !lh_object_known(item->retry) ||
        (!live && (item->assignments != NULL || lh_seed_wanted(item))))
        return;
    lh_plan_begin(round->plan);
    lh_plan_delete(round->plan, LH_KIND_RETRY, item->retry->name, item->retry->mod_rev,
                   "retry-over", live ? "it is live" : "it is not to be crawled");
    lh_seed_rely(round, item);
    lh_plan_end(round->plan);
}

static void plan_seed(LhSeedRound *round, const LhPoolItem *item)
{
    const LhPoolAssignment *ended = NULL;
    gboolean held = FALSE, live = FALSE;

    for (guint i = 0; item->assignments != NULL && i < item->assignments->len; i++) {
        const LhPoolAssignment *assignment = item->assignments->pdata[i];
        if (lh_pool_order(assignment) == NULL) {
            held = held || assignment->object != NULL;
            lh_pool_sweep(round->plan, assignment);
        } else if (lh_seed_plan_frozen(assignment->group) || lh_seed_plan_frozen(item->group)) {
            held = TRUE;
        } else if (lh_pool_end(assignment) == LH_POOL_HELD) {
            held = TRUE;
            live = live || lh_pool_answer(assignment) == LH_ITEM_LIVE;
            round->leaving += assignment->group == NULL && lh_seed_wanted(item) &&
                              lh_pool_order(assignment)->action == LH_ACTION_EVICT;
            plan_held(round, assignment);
        } else if (plan_ended(round, assignment, ended == NULL)) {
            ended = assignment;
        } else {
            /* Where another policy is being moved it is not deleted, and the seed is not loaded beside it; nor
             * is one that is done, whose policy is being moved. */
            held = held || assignment->group == NULL || assignment->group != item->group ||
                   lh_pool_answer(assignment) == LH_ITEM_DONE ||
                   !lh_seed_plan_group(round, assignment->group)->moving;
        }
    }
    plan_retry(round, item, live);
    if (lh_seed_plan_frozen(item->group))
        lh_seed_plan_note(round, item, "unknown", "its throttle policy does not parse: mend it");
    else if (!held && lh_seed_wanted(item))
        wait_for_node(round, item, ended);
}

void lh_seed_plan_todo(LhSeedRound *round)
{
    for (GTreeNode *n = g_tree_node_first(round->pools->seeds->todo); n != NULL;
         n = g_tree_node_next(n)) {
        if (lh_seed_plan_full(round))
            return;
        plan_seed(round, g_tree_node_key(n));
    }
}
