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
#include "api/window.h"
#include "base/planted.h"
#include "base/units.h"
#include "controllers/attempts.h"
#include "controllers/registry.h"
#include "controllers/seed_plan.h"

#include <string.h>

#define NAME "seed-allocator"

gboolean lh_seed_plan_full(LhSeedRound *round)
{
    if (lh_plan_groups(round->plan) < round->context->max_groups)
        return FALSE;
    round->plan->more = TRUE;
    round->stopped = TRUE;
    return TRUE;
}

static gboolean is_unknown(const LhObject *object)
{
    return object != NULL && !lh_object_known(object);
}

static void note(LhSeedRound *round, const LhPoolItem *item, const char *rule, const char *reason)
{
    lh_plan_note(round->plan, LH_KIND_SEED, item->name, rule, "%s", reason);
}

static void free_group(gpointer data)
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

    at->unknown = at->unknown || is_unknown(item->subject);
    if (moves_group(assignment) && item->group == at->group && lh_seed_wanted(item) &&
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

static LhSeedDecision *group_at(LhSeedRound *round, const LhSeedGroup *group)
{
    LhSeedDecision *at = g_hash_table_lookup(round->groups, group->name);

    if (at != NULL)
        return at;
    at = g_new0(LhSeedDecision, 1);
    at->group = group;
    at->owner = lh_seed_group_owner(group, &at->owner_since);
    at->unknown = is_unknown(group->throttle) || is_unknown(group->status);
    at->pending = g_array_new(FALSE, FALSE, sizeof(LhSeedPending));
    for (GTreeNode *n = g_tree_node_first(group->orders); n != NULL; n = g_tree_node_next(n))
        read_order(at, g_tree_node_key(n));
    g_hash_table_insert(round->groups, group->name, at);
    return at;
}

/* Its throttle has to do with something that does not parse. */
static gboolean is_frozen(LhSeedRound *round, const LhSeedGroup *group)
{
    return group != NULL && (is_unknown(group->throttle) || is_unknown(group->status));
}

/* ---- the claim ---- */

static char *throttle_status(const LhSeedGroup *group)
{
    return g_strconcat("throttles/", group->name, "/" NAME, NULL);
}

static void put_claim(LhSeedRound *round, LhSeedDecision *at, const char *node)
{
    const LhAccepted *accepted = (const LhAccepted *)at->group->throttle;
    g_autofree char *name = throttle_status(at->group);
    LhCondition condition = {
        .type = "Held",
        .status = node != NULL ? LH_CONDITION_TRUE : LH_CONDITION_FALSE,
        .reason = node != NULL ? "Held" : "Released",
        .message = node != NULL ? "its seeds are on this node only" : "none of its seeds is held",
        .since = round->context->now_ms,
    };
    LhArray conditions = {1, sizeof condition, &condition};
    LhStatus status = {
        .observed_revision = accepted == NULL || is_unknown(&accepted->o) ? 0 : accepted->revision,
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
    g_autofree char *name = throttle_status(at->group);

    lh_plan_rely(round->plan, LH_KIND_STATUS, name,
                 at->group->status == NULL ? 0 : at->group->status->mod_rev);
}

static void rely_on_throttle(LhSeedRound *round, const LhSeedGroup *group)
{
    g_autofree char *name = g_strconcat("throttles/", group->name, NULL);

    lh_plan_rely(round->plan, LH_KIND_ACCEPTED, name, group->throttle->mod_rev);
}

static void rely_on_seed(LhSeedRound *round, const LhPoolItem *item)
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
        .controller = NAME,
        .epoch = round->context->epoch,
        .rule = rule,
        .reason = reason,
        .seed = json,
        .window = window,
    };
}

/* @claim: with the claim of its policy for this node; else that stands, or it has none. */
static void load(LhSeedRound *round, LhSeedDecision *at, const LhSeedPending *pending,
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
        put_claim(round, at, node->id);
    if (ended != NULL)
        lh_pool_take(round->plan, ended, "moved", "nothing of it is held there; it goes elsewhere");
    lh_plan_put(round->plan, LH_KIND_ASSIGNMENT, name, &order, 0, order.rule, "%s", order.reason);
    rely_on_seed(round, item);
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

static void put_seed_status(LhSeedRound *round, const LhPoolItem *item, const char *owner,
                            const char *state, const char *message)
{
    const LhStatus *present = (const LhStatus *)item->status;
    g_autofree char *name = g_strconcat("seeds/", item->name, "/" NAME, NULL);
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
static void take_done(LhSeedRound *round, const LhPoolAssignment *assignment)
{
    const LhPoolItem *item = assignment->of;

    lh_plan_begin(round->plan);
    lh_plan_delete(round->plan, LH_KIND_ASSIGNMENT, assignment->object->name,
                   assignment->object->mod_rev, "done", "its node has done it");
    lh_plan_delete(round->plan, LH_KIND_ITEM, assignment->item->name, assignment->item->mod_rev,
                   "done", "its answer has been taken");
    rely_on_seed(round, item);
    if (lh_seed_wanted(item) && !is_unknown(item->status) && asks_for_this(assignment)) {
        put_seed_status(round, item, NULL, "Done", "its crawl has ended; edit it to begin again");
        lh_plan_event(round->plan, LH_EVENT_NORMAL, "SeedDone", LH_KIND_SEED, item->name,
                      "done by %s", assignment->node->id);
    }
    lh_plan_end(round->plan);
}

static void take_failed(LhSeedRound *round, const LhPoolAssignment *assignment)
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

static void take(LhSeedRound *round, const LhPoolAssignment *assignment, const char *rule,
                 const char *reason)
{
    lh_plan_begin(round->plan);
    lh_pool_take(round->plan, assignment, rule, reason);
    rely_on_seed(round, assignment->of);
    lh_plan_end(round->plan);
    g_hash_table_add(round->told, assignment->of);
}

/* ---- what is held ---- */

void lh_seed_plan_evict(LhSeedRound *round, const LhPoolAssignment *assignment, const char *rule,
                        const char *reason)
{
    lh_plan_begin(round->plan);
    lh_pool_evict(round->plan, assignment, round->context, NAME, rule, reason);
    rely_on_seed(round, assignment->of);
    lh_plan_end(round->plan);
    g_hash_table_add(round->told, assignment->of);
}

/* The order as the seed and its policy are now; @claim: with the claim of the policy for this node. */
static void update(LhSeedRound *round, const LhPoolAssignment *assignment, LhSeedDecision *at,
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
        put_claim(round, at, assignment->node->id);
    lh_plan_put(round->plan, LH_KIND_ASSIGNMENT, assignment->object->name, &next,
                assignment->object->mod_rev, next.rule, "%s", next.reason);
    lh_pool_rely_on_end(round->plan, assignment);
    rely_on_seed(round, item);
    if (at != NULL) {
        rely_on_throttle(round, at->group);
        if (!claim)
            rely_on_claim(round, at);
        at->joined = TRUE;
    }
    lh_plan_end(round->plan);
    g_hash_table_add(round->told, (gpointer)item);
}

/* A seed that runs asks for another policy, or for none. Of one that it has, no order in place may take it:
 * until the node has heard of it, it crawls under the old policy, which nothing would say any more. */
static void change_policy(LhSeedRound *round, const LhPoolAssignment *assignment, const char *json)
{
    const LhPoolItem *item = assignment->of;
    LhSeedDecision *at = item->group == NULL ? NULL : group_at(round, item->group);

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
        update(round, assignment, at, TRUE, json);
    else if (at->node == assignment->node && !at->split && !at->moving &&
             g_strcmp0(at->owner, assignment->node->id) == 0)
        update(round, assignment, at, FALSE, json);
    else
        lh_seed_plan_evict(round, assignment, "throttle-changed",
                           "the seeds of its policy are elsewhere");
}

static void plan_held(LhSeedRound *round, const LhPoolAssignment *assignment)
{
    const LhPoolItem *item = assignment->of;
    const LhAssignment *order = lh_pool_order(assignment);
    LhSeedDecision *was = assignment->group == NULL ? NULL : group_at(round, assignment->group);
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
            note(round, item, "wait-throttle", "its throttle policy is not in force");
        else if (assignment->group != item->group)
            change_policy(round, assignment, json);
        else if (g_strcmp0(json, order->seed) != 0 &&
                 (was == NULL || (!was->unknown && !was->split)))
            update(round, assignment, was, FALSE, json);
    }
}

/* ---- one seed ---- */

static gboolean held_back(LhSeedRound *round, const LhPoolItem *item)
{
    gboolean unknown;
    const LhRetry *retry = lh_pool_retry(item, &unknown);

    if (unknown) {
        note(round, item, "retry-unknown", "its retry does not parse: mend or remove it");
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

/* A manager of that name may come back; *until: how long it is waited for. */
static gboolean in_grace(const LhSeedRound *round, const LhPoolAssignment *ended, gint64 *until)
{
    const LhHealth *health = (const LhHealth *)ended->node->health;

    if (round->settings->failure_grace_ms == 0 || lh_pool_end(ended) != LH_POOL_LOST)
        return FALSE;
    *until = MAX(health->missing_since, 0) + round->settings->failure_grace_ms;
    return *until > round->context->now_ms;
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
            note(round, item, "wait-throttle", "its throttle policy is not in force");
        else
            g_array_append_val(group_at(round, item->group)->pending, pending);
        return;
    }
    if (ended != NULL && in_grace(round, ended, &until) &&
        lh_pool_host_takes(ended->node->host, NULL) == NULL) {
        lh_plan_wake(round->plan, until);
        note(round, item, "wait-grace", "its manager may come back (failureGrace)");
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

    if (assignment->group != NULL && group_at(round, assignment->group)->moving) {
        return first && item->group == assignment->group && lh_seed_wanted(item);
    } else if (load && answer == LH_ITEM_DONE) {
        take_done(round, assignment);
    } else if (load && answer == LH_ITEM_FAILED) {
        take_failed(round, assignment);
    } else if (!first || !lh_seed_wanted(item) || answer == LH_ITEM_DONE) {
        if (answer == LH_ITEM_DONE)
            take_done(round, assignment);
        else
            take(round, assignment,
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
    rely_on_seed(round, item);
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
        } else if (is_frozen(round, assignment->group) || is_frozen(round, item->group)) {
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
            /* Where another policy is being moved it is not deleted, and the seed is not loaded beside it. */
            held = held || assignment->group == NULL || assignment->group != item->group ||
                   !group_at(round, assignment->group)->moving;
        }
    }
    plan_retry(round, item, live);
    if (is_frozen(round, item->group))
        note(round, item, "unknown", "its throttle policy does not parse: mend it");
    else if (!held && lh_seed_wanted(item))
        wait_for_node(round, item, ended);
}

static void plan_todo(LhSeedRound *round)
{
    for (GTreeNode *n = g_tree_node_first(round->pools->seeds->todo); n != NULL;
         n = g_tree_node_next(n)) {
        if (lh_seed_plan_full(round))
            return;
        plan_seed(round, g_tree_node_key(n));
    }
}

/* ---- policies ---- */

static void note_pending(LhSeedRound *round, const LhSeedDecision *at, const char *rule,
                         const char *reason)
{
    for (guint i = 0; round->plan->explain && i < at->pending->len; i++)
        note(round, g_array_index(at->pending, LhSeedPending, i).item, rule, reason);
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
        note_pending(round, at, "wait-manager", "the manager of its policy takes nothing new");
        return;
    }
    for (guint i = 0; i < at->pending->len && !lh_seed_plan_full(round); i++) {
        const LhSeedPending *pending = &g_array_index(at->pending, LhSeedPending, i);
        if (pending->ended != NULL && pending->ended->node == place->node) {
            take(round, pending->ended, "evicted", "nothing of it is held there; it is begun anew");
            continue;
        }
        if (place->held >= place->limit) {
            round->missing++;
            note(round, pending->item, "wait-capacity", "the manager of its policy is full");
            continue;
        }
        load(round, at, pending, place->node, FALSE);
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
        note_pending(round, at, "wait-policy", "what is known of its policy is not settled");
    else if (is_being_moved(at))
        note_pending(round, at, "wait-move", "the seeds of its policy are being moved");
    else if (at->node != NULL && !(at->moving && LH_BUG(GROUP_SPLIT)))
        join(round, at);
    else if (round->pools->seeds->unknown_orders > 0)
        note_pending(round, at, "unknown", "an assignment of the pool does not parse: mend it");
    else if (first->ended != NULL && in_grace(round, first->ended, &until) &&
             lh_pool_host_takes(first->ended->node->host, NULL) == NULL) {
        lh_plan_wake(round->plan, until);
        note_pending(round, at, "wait-grace", "its manager may come back (failureGrace)");
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

    if (g_tree_nnodes(group->orders) > 0 || group->status == NULL || is_unknown(group->status) ||
        round->pools->seeds->unknown_orders > 0)
        return;
    at = g_hash_table_lookup(round->groups, group->name);
    if (at != NULL && at->claimed)
        return;
    if (lh_seed_group_owner(group, &since) != NULL) {
        lh_plan_begin(round->plan);
        put_claim(round, group_at(round, group), NULL);
        lh_plan_end(round->plan);
    } else if (group->throttle == NULL && g_tree_nnodes(group->members) == 0) {
        gint64 keep = MAX(since, round->context->led_ms) + 24 * 3600 * G_GINT64_CONSTANT(1000);
        if (keep > round->context->now_ms) {
            lh_plan_wake(round->plan, keep);
            return;
        }
        g_autofree char *name = throttle_status(group);
        lh_plan_begin(round->plan);
        lh_plan_delete(round->plan, LH_KIND_STATUS, name, group->status->mod_rev, "status",
                       "its policy is gone");
        lh_plan_end(round->plan);
    }
}

static void plan_groups(LhSeedRound *round)
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

static void plan_releases(LhSeedRound *round)
{
    for (GTreeNode *n = g_tree_node_first(round->pools->seeds->groups);
         n != NULL && !lh_seed_plan_full(round); n = g_tree_node_next(n))
        plan_release(round, g_tree_node_key(n));
}

/* ---- placing ---- */

static gint by_urgency(gconstpointer a, gconstpointer b)
{
    const LhSeedUnit *x = a, *y = b;

    if (x->priority != y->priority)
        return x->priority > y->priority ? -1 : 1;
    if (x->size != y->size)
        return x->size > y->size ? -1 : 1;
    return strcmp(x->one.item->name, y->one.item->name);
}

/* It stays where it was: what is there ends first, then it is loaded anew. What the first seed leaves may be of
 * another policy. */
static void end_all(LhSeedRound *round, const LhSeedUnit *unit)
{
    const LhSeedGroup *group = unit->group == NULL ? NULL : unit->group->group;

    if (group == NULL || unit->one.ended->group != group)
        take(round, unit->one.ended, "evicted", "nothing of it is held there");
    for (GTreeNode *n = group == NULL ? NULL : g_tree_node_first(group->orders);
         n != NULL && !lh_seed_plan_full(round); n = g_tree_node_next(n))
        take(round, g_tree_node_key(n), "evicted", "nothing of it is held there");
}

static LhSeedPlace *place_for(LhSeedRound *round, const LhSeedUnit *unit)
{
    const LhPoolAssignment *ended = unit->one.ended;
    const LhRetry *retry = lh_pool_retry(unit->one.item, NULL);
    LhSeedPlace *place = NULL;
    gint64 until;

    if (ended != NULL && in_grace(round, ended, &until)) {
        place = lh_seed_places_find(round->places, lh_pool_host_takes(ended->node->host, NULL));
        if (place != NULL && place->limit - place->held < unit->size)
            place = NULL;
    }
    return place != NULL ? place
                         : lh_seed_places_best(round->places, unit->group != NULL, unit->size,
                                               retry == NULL ? NULL : retry->node);
}

static void plan_units(LhSeedRound *round)
{
    g_array_sort(round->units, by_urgency);
    for (guint i = 0; i < round->units->len; i++) {
        const LhSeedUnit *unit = &g_array_index(round->units, LhSeedUnit, i);
        LhSeedPlace *place;
        if (lh_seed_plan_full(round))
            return;
        place = place_for(round, unit);
        if (place == NULL) {
            round->missing += unit->size;
            if (unit->group != NULL)
                note_pending(round, unit->group, "wait-capacity",
                             "no manager has room for all seeds of its policy");
            else
                note(round, unit->one.item, "wait-capacity", "no manager takes another seed");
            continue;
        }
        lh_seed_places_add(place, unit->group != NULL, unit->size);
        if (unit->one.ended != NULL && unit->one.ended->node == place->node)
            end_all(round, unit);
        else
            load(round, unit->group, &unit->one, place->node, unit->group != NULL);
    }
}

/* ---- what is said ---- */

static char *asked_message(const LhSeedRound *round)
{
    g_autofree char *at = lh_time_format(MAX(0, round->settings->rebalance_at));

    return g_strdup_printf("asked for at %s", at);
}

static const LhCondition *said(const LhSeedRound *round, const char *type)
{
    const LhStatus *status = (const LhStatus *)lh_pools_status(round->pools, "settings", NAME,
                                                               NAME);

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
    const LhObject *present = lh_pools_status(round->pools, "settings", NAME, NAME);
    const LhObject *accepted = lh_pools_settings_object(round->pools, NAME);
    g_autofree char *missing = NULL, *asked = asked_message(round);
    gboolean busy = round->asked &&
                    (round->moves || round->leaving > 0 || lh_seed_plan_moving(round) ||
                     round->units->len > 0 || round->missing > 0);
    LhCondition conditions[2];
    guint n = 0;

    if (round->missing > 0 || said(round, "Capacity") != NULL) {
        missing = g_strdup_printf("%" G_GINT64_FORMAT " seeds have no manager: none has room",
                                  round->missing);
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
            .message = asked,
        };
    if (lh_plan_status(round->plan, present, "settings/" NAME "/" NAME,
                       accepted != NULL && lh_object_known(accepted)
                           ? ((const LhAccepted *)accepted)->revision
                           : 0,
                       conditions, n, round->context->now_ms) &&
        round->missing > 0)
        lh_plan_event(round->plan, LH_EVENT_WARNING, "InsufficientCapacity", LH_KIND_SETTINGS, NAME,
                      "%s", missing);
}

static void plan_seed_status(LhSeedRound *round, const LhPoolItem *item)
{
    const LhStatus *present = (const LhStatus *)item->status;
    const char *owner, *state = lh_seed_state(item, &owner);
    const LhRetry *retry = lh_pool_retry(item, NULL);
    gint64 revision;

    if (is_unknown(item->subject) || is_unknown(item->status))
        return;
    if (item->subject == NULL) {
        if (present == NULL || item->assignments != NULL)
            return;
        lh_plan_begin(round->plan);
        lh_plan_delete(round->plan, LH_KIND_STATUS, present->o.name, present->o.mod_rev, "status",
                       "its seed is gone");
        rely_on_seed(round, item);
        lh_plan_end(round->plan);
        return;
    }
    revision = ((const LhAccepted *)item->subject)->revision;
    if (present != NULL && present->observed_revision == revision &&
        g_strcmp0(present->state, state) == 0 && g_strcmp0(present->owner, owner) == 0)
        return;
    lh_plan_begin(round->plan);
    put_seed_status(round, item, owner, state,
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
        .settings = lh_pools_settings(pools, NAME),
        .plan = plan,
        .groups = g_hash_table_new_full(g_str_hash, g_str_equal, NULL, free_group),
        .told = g_hash_table_new(NULL, NULL),
        .units = g_array_new(FALSE, FALSE, sizeof(LhSeedUnit)),
    };

    round.places = lh_seed_places_new(round.view);
    round.asked = is_asked(&round);
    plan_todo(&round);
    plan_groups(&round);
    plan_units(&round);
    plan_releases(&round);
    lh_seed_plan_moves(&round);
    plan_seed_statuses(&round);
    if (!round.stopped) {
        plan_settings_status(&round);
        lh_pool_say_drained(round.view, NAME, round.missing > 0 ? "NoRoom" : "Moving",
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
    .name = NAME,
    .index = &lh_pools_index,
    .kinds = LH_KIND_BIT(LH_KIND_ASSIGNMENT) | LH_KIND_BIT(LH_KIND_ITEM) |
             LH_KIND_BIT(LH_KIND_NODE) | LH_KIND_BIT(LH_KIND_HEALTH) | LH_KIND_BIT(LH_KIND_RETRY) |
             LH_KIND_BIT(LH_KIND_ACCEPTED) | LH_KIND_BIT(LH_KIND_STATUS),
    .plan = seed_allocator_plan,
    .gauges = seed_allocator_gauges,
    .gauge_names = gauge_names,
    .settings = lh_pools_settings_of,
};
