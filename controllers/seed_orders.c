/* See seed_plan.h: what is written of seeds and policies, with all that each transaction relies on. */
#include "api/window.h"
#include "controllers/attempts.h"
#include "controllers/seed_plan.h"

#include <string.h>

/* ---- the claim ---- */

char *lh_seed_claim_name(const LhSeedGroup *group)
{
    return g_strconcat("throttles/", group->name, "/" SEED_ALLOCATOR, NULL);
}

void lh_seed_claim_put(LhSeedRound *round, LhSeedDecision *at, const char *node)
{
    const LhAccepted *accepted = (const LhAccepted *)at->group->throttle;
    g_autofree char *name = lh_seed_claim_name(at->group);
    LhCondition condition = {
        .type = "Held",
        .status = node != NULL ? LH_CONDITION_TRUE : LH_CONDITION_FALSE,
        .reason = node != NULL ? "Held" : "Released",
        .message = node != NULL ? "its seeds are on this node only" : "none of its seeds is held",
        .since = round->context->now_ms,
    };
    LhArray conditions = {1, sizeof condition, &condition};
    LhStatus status = {
        .observed_revision = accepted == NULL || lh_seed_plan_unknown(&accepted->o)
                                 ? 0
                                 : accepted->revision,
        .conditions = &conditions,
        .snapshots = -1,
        .replicas_desired = -1,
        .replicas_live = -1,
        .owner = node,
    };

    lh_plan_put(round->plan, LH_KIND_STATUS, name, &status,
                at->group->status == NULL ? 0 : at->group->status->mod_rev,
                node != NULL ? "claim" : "release", "%s", condition.message);
    at->claimed = TRUE;
}

static void rely_on_claim(LhSeedRound *round, const LhSeedDecision *at)
{
    g_autofree char *name = lh_seed_claim_name(at->group);

    lh_plan_rely(round->plan, LH_KIND_STATUS, name,
                 at->group->status == NULL ? 0 : at->group->status->mod_rev);
}

static void rely_on_throttle(LhSeedRound *round, const LhSeedGroup *group)
{
    g_autofree char *name = g_strconcat("throttles/", group->name, NULL);

    lh_plan_rely(round->plan, LH_KIND_ACCEPTED, name, group->throttle->mod_rev);
}

void lh_seed_rely(LhSeedRound *round, const LhPoolItem *item)
{
    g_autofree char *name = g_strconcat("seeds/", item->name, NULL);

    lh_plan_rely(round->plan, LH_KIND_ACCEPTED, name,
                 item->subject == NULL ? 0 : item->subject->mod_rev);
}

/* ---- windows ---- */

/* The longest time for which what the holder at @order granted counts by the policy as it stands is one for
 * which the holder remembered it: its policy is the same, as text. */
static gboolean remembers(const LhPoolAssignment *assignment, const char *json)
{
    const char *order = lh_pool_order(assignment)->seed;
    const char *was = order == NULL ? NULL : strstr(order, "\"throttle\":{");
    const char *is = json == NULL ? NULL : strstr(json, "\"throttle\":{");

    return was != NULL && is != NULL && strcspn(was, "}") == strcspn(is, "}") &&
           strncmp(was, is, strcspn(was, "}")) == 0;
}

/* What the first load of a claim says; NULL: nobody knows. Of a group that moves the last acknowledgement has
 * all that its holder granted. */
static const char *window_of(const LhSeedRound *round, const LhSeedDecision *at, const char *json)
{
    const LhThrottle *throttle = lh_seed_group_throttle(at->group);
    gint64 quiet = lh_window_quiet_ms(throttle->requests, throttle->period_ms,
                                      throttle->max_concurrent);
    gint64 since = MAX(at->owner_since, round->context->led_ms);
    gboolean watched = round->context->now_ms - round->context->led_ms >= quiet;

    /* etcd was restored: somebody who is not in the backup, or not any more, may have held it since. */
    if (round->context->regressed_rev > 0 && !watched)
        return NULL;
    if (g_tree_nnodes(at->group->orders) == 0) {
        if (at->group->status == NULL)
            return "{}"; /* never held: whoever holds it writes the claim first */
        return at->owner == NULL && at->owner_since < G_MAXINT64 &&
                       round->context->now_ms - since >= quiet
                   ? "{}"
                   : NULL;
    }
    if (at->lost || !at->moving || at->last == NULL || !remembers(at->last, json) ||
        lh_pool_answer(at->last) != LH_ITEM_EVICTED)
        return NULL;
    return ((const LhItem *)at->last->item)->window;
}

/* ---- loading ---- */

static LhAssignment load_order(const LhSeedRound *round, const char *rule, const char *reason,
                               const char *json, const char *window)
{
    return (LhAssignment){
        .action = LH_ACTION_LOAD,
        .since = round->context->now_ms,
        .controller = SEED_ALLOCATOR,
        .epoch = round->context->epoch,
        .rule = rule,
        .reason = reason,
        .seed = json,
        .window = window,
    };
}

void lh_seed_load(LhSeedRound *round, LhSeedDecision *at, const LhSeedPending *pending,
                  const LhPoolNode *node, gboolean claim)
{
    const LhPoolItem *item = pending->item;
    const LhPoolAssignment *ended = pending->ended;
    g_autofree char *json = lh_seed_json(item);
    g_autofree char *name = g_strconcat(LH_POOL_MANAGER "/", node->id, "/", item->name, NULL);
    g_autofree char *registration = g_strconcat(LH_POOL_MANAGER "/", node->id, NULL);
    g_autofree char *retry = g_strconcat(LH_POOL_MANAGER "/", item->name, NULL);
    const char *window = claim ? window_of(round, at, json) : NULL;
    LhAssignment order = load_order(round, at == NULL || claim ? "fewest-seeds" : "same-policy",
                                    at == NULL || claim ? "the manager with the fewest seeds"
                                                        : "the manager of its policy",
                                    json, window);

    g_hash_table_add(round->told, (gpointer)item);
    lh_plan_begin(round->plan);
    if (claim)
        lh_seed_claim_put(round, at, node->id);
    if (ended != NULL)
        lh_pool_take(round->plan, ended, "moved", "nothing of it is held there; it goes elsewhere");
    lh_plan_put(round->plan, LH_KIND_ASSIGNMENT, name, &order, 0, order.rule, "%s", order.reason);
    lh_seed_rely(round, item);
    lh_plan_rely(round->plan, LH_KIND_RETRY, retry, item->retry == NULL ? 0 : item->retry->mod_rev);
    if (at != NULL) {
        rely_on_throttle(round, at->group);
        if (!claim)
            rely_on_claim(round, at);
        at->joined = TRUE;
    }
    lh_plan_rely(round->plan, LH_KIND_NODE, registration, node->object->mod_rev);
    if (at == NULL || claim)
        lh_plan_event(round->plan, LH_EVENT_NORMAL, ended == NULL ? "SeedAssigned" : "SeedMoved",
                      LH_KIND_SEED, item->name, "to %s%s%s", node->id,
                      at == NULL ? "" : ", with all of policy ", at == NULL ? "" : at->group->name);
    lh_plan_end(round->plan);
}

/* ---- what is answered or lost ---- */

static gboolean asks_for_this(const LhPoolAssignment *assignment)
{
    g_autofree char *json = lh_seed_json(assignment->of);

    return json != NULL && g_strcmp0(json, lh_pool_order(assignment)->seed) == 0;
}

void lh_seed_put_status(LhSeedRound *round, const LhPoolItem *item, const char *owner,
                        const char *state, const char *message)
{
    const LhStatus *present = (const LhStatus *)item->status;
    g_autofree char *name = g_strconcat("seeds/", item->name, "/" SEED_ALLOCATOR, NULL);
    LhCondition said[] = {
        {
            .type = "Assigned",
            .status = owner != NULL ? LH_CONDITION_TRUE : LH_CONDITION_FALSE,
            .reason = state,
            .message = message,
            .since = round->context->now_ms,
        },
        {
            .type = "Parked",
            .status = LH_CONDITION_TRUE,
            .reason = "TooManyAttempts",
            .message = message,
            .since = round->context->now_ms,
        },
    };
    LhArray conditions = {strcmp(state, "Parked") == 0 ? 2 : 1, sizeof said[0], said};
    LhStatus status = {
        .observed_revision = ((const LhAccepted *)item->subject)->revision,
        .conditions = &conditions,
        .snapshots = -1,
        .replicas_desired = -1,
        .replicas_live = -1,
        .owner = owner,
        .state = state,
    };

    for (guint i = 0; present != NULL && i < present->conditions->n; i++) {
        const LhCondition *was = lh_array_at(present->conditions, i);
        if (g_strcmp0(was->type, "Assigned") == 0 && g_strcmp0(present->state, state) == 0)
            said[0].since = was->since;
    }
    lh_plan_put(round->plan, LH_KIND_STATUS, name, &status,
                present == NULL ? 0 : present->o.mod_rev, "status", "%s", state);
}

/* It is not begun again until it is edited: its Status remembers that. */
void lh_seed_take_done(LhSeedRound *round, const LhPoolAssignment *assignment)
{
    const LhPoolItem *item = assignment->of;

    lh_plan_begin(round->plan);
    lh_plan_delete(round->plan, LH_KIND_ASSIGNMENT, assignment->object->name,
                   assignment->object->mod_rev, "done", "its node has done it");
    lh_plan_delete(round->plan, LH_KIND_ITEM, assignment->item->name, assignment->item->mod_rev,
                   "done", "its answer has been taken");
    lh_seed_rely(round, item);
    if (lh_seed_wanted(item) && !lh_seed_plan_unknown(item->status) && asks_for_this(assignment)) {
        lh_seed_put_status(round, item, NULL, "Done",
                           "its crawl has ended; edit it to begin again");
        lh_plan_event(round->plan, LH_EVENT_NORMAL, "SeedDone", LH_KIND_SEED, item->name,
                      "done by %s", assignment->node->id);
    }
    lh_plan_end(round->plan);
}

void lh_seed_take_failed(LhSeedRound *round, const LhPoolAssignment *assignment)
{
    const LhPoolItem *item = assignment->of;
    const LhItem *said = (const LhItem *)assignment->item;
    gboolean unknown;
    const LhRetry *before = lh_pool_retry(item, &unknown);
    g_autofree char *name = g_strconcat(LH_POOL_MANAGER "/", item->name, NULL);
    LhRetry retry = {
        .attempt = (before == NULL ? 0 : before->attempt) + 1,
        .message = said->message == NULL || *said->message == '\0' ? "the node gave no reason"
                                                                   : said->message,
        .node = assignment->node->host->name,
    };

    lh_plan_begin(round->plan);
    lh_pool_take(round->plan, assignment, "failed", retry.message);
    if (!unknown && lh_seed_wanted(item) && asks_for_this(assignment)) {
        lh_attempts_failed(&retry, round->context->now_ms);
        lh_plan_put(round->plan, LH_KIND_RETRY, name, &retry,
                    item->retry == NULL ? 0 : item->retry->mod_rev,
                    retry.parked ? "parked" : "retry", "attempt %" G_GINT64_FORMAT " on %s: %s",
                    retry.attempt, retry.node, retry.message);
        lh_plan_event(round->plan, LH_EVENT_WARNING, retry.parked ? "Parked" : "LoadFailed",
                      LH_KIND_SEED, item->name, "attempt %" G_GINT64_FORMAT " on %s: %s",
                      retry.attempt, retry.node, retry.message);
    }
    lh_plan_end(round->plan);
}

void lh_seed_take(LhSeedRound *round, const LhPoolAssignment *assignment, const char *rule,
                  const char *reason)
{
    lh_plan_begin(round->plan);
    lh_pool_take(round->plan, assignment, rule, reason);
    lh_seed_rely(round, assignment->of);
    lh_plan_end(round->plan);
    g_hash_table_add(round->told, assignment->of);
}

/* ---- what is held ---- */

void lh_seed_plan_evict(LhSeedRound *round, const LhPoolAssignment *assignment, const char *rule,
                        const char *reason)
{
    lh_plan_begin(round->plan);
    lh_pool_evict(round->plan, assignment, round->context, SEED_ALLOCATOR, rule, reason);
    lh_seed_rely(round, assignment->of);
    lh_plan_end(round->plan);
    g_hash_table_add(round->told, assignment->of);
}

void lh_seed_update(LhSeedRound *round, const LhPoolAssignment *assignment, LhSeedDecision *at,
                    gboolean claim, const char *json)
{
    const LhPoolItem *item = assignment->of;
    const LhAssignment *order = lh_pool_order(assignment);
    /* A window is only for a node that has not begun: who holds the policy has its own. */
    gboolean same = assignment->item == NULL && assignment->group == item->group;
    LhAssignment next = load_order(round, "in-place", "the seed or its policy was edited", json,
                                   claim  ? window_of(round, at, json)
                                   : same ? order->window
                                          : NULL);

    lh_plan_begin(round->plan);
    if (claim)
        lh_seed_claim_put(round, at, assignment->node->id);
    lh_plan_put(round->plan, LH_KIND_ASSIGNMENT, assignment->object->name, &next,
                assignment->object->mod_rev, next.rule, "%s", next.reason);
    lh_pool_rely_on_end(round->plan, assignment);
    lh_seed_rely(round, item);
    if (at != NULL) {
        rely_on_throttle(round, at->group);
        if (!claim)
            rely_on_claim(round, at);
        at->joined = TRUE;
    }
    lh_plan_end(round->plan);
    g_hash_table_add(round->told, (gpointer)item);
}
