/*
 * recovery-assigner: recovery tasks to free recovery nodes, the oldest first, one each; a task is retired
 * when a node says that it is done.
 *
 * A task leaves published/ only in the transaction that also takes its assignment and the node's answer
 * away. It is given to another node only after this one has answered or has failed (lh_pool_end), and not
 * before its retry says so. What does not parse is neither assigned nor deleted.
 */
#include "controllers/attempts.h"
#include "controllers/pool.h"
#include "controllers/registry.h"

#include <string.h>

#define NAME         "recovery-assigner"
#define RULE_TIMEOUT "timeout"

typedef struct {
    const LhPools *pools;
    const LhPoolView *view;
    const LhPlanContext *context;
    const LhSettings *settings;
    LhPlan *plan;
} Round;

static gboolean full(Round *round)
{
    if (lh_plan_groups(round->plan) < round->context->max_groups)
        return FALSE;
    round->plan->more = TRUE;
    return TRUE;
}

static const LhRecoveryTask *known_task(const LhPoolItem *item)
{
    return item->subject != NULL && lh_object_known(item->subject)
               ? (const LhRecoveryTask *)item->subject
               : NULL;
}

static gboolean is_unknown(const LhPoolItem *item)
{
    return item->subject != NULL && !lh_object_known(item->subject);
}

/* Whether @order is about the task as it stands. */
static gboolean is_about(const LhAssignment *order, const LhRecoveryTask *task)
{
    return g_strcmp0(order->partition, task->partition) == 0 &&
           order->start_offset == task->start_offset && order->end_offset == task->end_offset;
}

static const LhObject *status_of(const Round *round, const LhPoolItem *item)
{
    return lh_pools_status(round->pools, "recoverytasks", item->name, NAME);
}

/* ---- parts of groups ---- */

static void delete_assignment(Round *round, const LhPoolAssignment *assignment, const char *rule,
                              const char *reason)
{
    lh_plan_delete(round->plan, LH_KIND_ASSIGNMENT, assignment->object->name,
                   assignment->object->mod_rev, rule, "%s", reason);
}

static void delete_retry(Round *round, const LhPoolItem *item)
{
    if (item->retry != NULL && lh_object_known(item->retry))
        lh_plan_delete(round->plan, LH_KIND_RETRY, item->retry->name, item->retry->mod_rev,
                       "retry-over", "its task is over");
}

/* Of an item in no set plan_statuses takes the Status away. */
static gboolean keeps_status(const LhPoolItem *item)
{
    return item != NULL && item->is_busy && item->subject != NULL;
}

/* What is written about a task goes with it. */
static void retire(Round *round, const LhPoolItem *item, const char *rule, const char *reason)
{
    const LhObject *status = keeps_status(item) ? status_of(round, item) : NULL;

    lh_plan_delete(round->plan, LH_KIND_RECOVERYTASK, item->name, item->subject->mod_rev, rule,
                   "%s", reason);
    delete_retry(round, item);
    if (status != NULL)
        lh_plan_delete(round->plan, LH_KIND_STATUS, status->name, status->mod_rev, "status",
                       "its task is over");
}

/* ---- what was answered or lost ---- */

/* The answer is put without a lease and would outlive its node: it goes in the same transaction. TRUE: so
 * does the task. */
static gboolean take_done(Round *round, const LhPoolAssignment *assignment)
{
    const LhPoolItem *item = assignment->of;
    const LhRecoveryTask *task = known_task(item);
    gboolean about = task != NULL && is_about(lh_pool_order(assignment), task);

    lh_plan_begin(round->plan);
    if (about) {
        retire(round, item, "done", "a node has done it");
        lh_plan_event(round->plan, LH_EVENT_NORMAL, "RecoveryDone", LH_KIND_RECOVERYTASK,
                      item->name, "done by %s", assignment->node->id);
        delete_assignment(round, assignment, "done", "its node has done it");
    } else {
        delete_assignment(round, assignment, "done",
                          task == NULL ? "done, and its task is gone already"
                                       : "its node has done what the task asked for before it "
                                         "was changed");
        lh_plan_rely(round->plan, LH_KIND_RECOVERYTASK, item->name,
                     task == NULL ? 0 : task->o.mod_rev);
    }
    lh_plan_delete(round->plan, LH_KIND_ITEM, assignment->item->name, assignment->item->mod_rev,
                   "done", "its answer has been taken");
    lh_plan_end(round->plan);
    return about;
}

/* Counts an attempt that did not succeed, in the group that takes its assignment away. */
static void count_failure(Round *round, const LhPoolAssignment *assignment, const char *message)
{
    const LhPoolItem *item = assignment->of;
    const LhRecoveryTask *task = known_task(item);
    gboolean unknown;
    const LhRetry *before = lh_pool_retry(item, &unknown);
    g_autofree char *name = g_strconcat(LH_POOL_RECOVERY "/", item->name, NULL);
    LhRetry retry = {
        .attempt = (before == NULL ? 0 : before->attempt) + 1,
        .message = message,
        .node = assignment->node->host->name,
    };

    /* A task that asks for something else now has not failed. */
    if (task == NULL || !is_about(lh_pool_order(assignment), task) || unknown)
        return;
    lh_attempts_failed(&retry, round->context->now_ms);
    lh_plan_put(round->plan, LH_KIND_RETRY, name, &retry,
                item->retry == NULL ? 0 : item->retry->mod_rev, retry.parked ? "parked" : "retry",
                "attempt %" G_GINT64_FORMAT " on %s: %s", retry.attempt, retry.node, message);
    lh_plan_event(round->plan, LH_EVENT_WARNING, retry.parked ? "Parked" : "RecoveryFailed",
                  LH_KIND_RECOVERYTASK, item->name, "attempt %" G_GINT64_FORMAT " on %s: %s",
                  retry.attempt, retry.node, message);
}

static void take_failed(Round *round, const LhPoolAssignment *assignment)
{
    const LhAssignment *order = lh_pool_order(assignment);
    const LhItem *item = (const LhItem *)assignment->item;
    const char *message = lh_attempts_words(item->message);
    gboolean evicted = order->action != LH_ACTION_LOAD;

    lh_plan_begin(round->plan);
    delete_assignment(round, assignment, evicted ? "evicted" : "failed",
                      evicted ? "its node works on it no more" : message);
    lh_pool_rely_on_end(round->plan, assignment);
    if (!evicted)
        count_failure(round, assignment, message);
    else if (g_strcmp0(order->rule, RULE_TIMEOUT) == 0)
        count_failure(round, assignment, order->reason);
    lh_plan_end(round->plan);
}

static void take_lost(Round *round, const LhPoolAssignment *assignment)
{
    lh_plan_begin(round->plan);
    lh_pool_take(round->plan, assignment, "node-failed", "its node has failed");
    lh_plan_event(round->plan, LH_EVENT_WARNING, "RecoveryInterrupted", LH_KIND_RECOVERYTASK,
                  assignment->of->name, "its node %s has failed; goes to another",
                  assignment->node->id);
    lh_plan_end(round->plan);
}

/* ---- what is taken away ---- */

static void evict(Round *round, const LhPoolAssignment *assignment, const char *rule,
                  const char *reason)
{
    lh_plan_begin(round->plan);
    lh_pool_evict(round->plan, assignment, round->context, NAME, rule, reason);
    lh_plan_event(round->plan, LH_EVENT_WARNING, "RecoveryTakenAway", LH_KIND_RECOVERYTASK,
                  assignment->of->name, "taken away from %s: %s", assignment->node->id, reason);
    lh_plan_end(round->plan);
}

/* Why a load that nobody has answered is to end, but for its age; NULL: it is not. */
static const char *unwanted(const LhPoolAssignment *assignment, const char **reason)
{
    const LhRecoveryTask *task = known_task(assignment->of);

    if (task == NULL) {
        *reason = "its task is gone";
        return "task-gone";
    }
    if (!is_about(lh_pool_order(assignment), task)) {
        *reason = "its task asks for something else now";
        return "task-changed";
    }
    if (lh_pool_doubled(assignment)) {
        *reason = "another node has it, and had it first";
        return "doubled";
    }
    return NULL;
}

/* TRUE: its task is retired. */
static gboolean plan_assignment(Round *round, const LhPoolAssignment *assignment)
{
    const LhAssignment *order = lh_pool_order(assignment);
    const char *rule, *reason;

    if (order == NULL) {
        lh_pool_sweep(round->plan, assignment);
        return FALSE;
    }
    if (is_unknown(assignment->of))
        return FALSE; /* until it is mended */
    switch (lh_pool_end(assignment)) {
    case LH_POOL_ANSWERED:
        if (lh_pool_answer(assignment) == LH_ITEM_DONE)
            return take_done(round, assignment);
        take_failed(round, assignment);
        return FALSE;
    case LH_POOL_LOST:
        take_lost(round, assignment);
        return FALSE;
    case LH_POOL_HELD:
        /* A node that is gone hears nothing: it answers no more, and is said to have failed. */
        if (order->action == LH_ACTION_EVICT || assignment->node->object == NULL)
            return FALSE;
        rule = unwanted(assignment, &reason);
        if (rule != NULL)
            evict(round, assignment, rule, reason);
        return FALSE;
    }
    g_assert_not_reached();
}

/* ---- parked ---- */

static void plan_parked(Round *round, const LhPoolItem *item)
{
    const LhRetry *retry = lh_pool_retry(item, NULL);
    g_autofree char *name = g_strconcat("recoverytasks/", item->name, "/" NAME, NULL);
    gboolean parked = retry != NULL && retry->parked;
    g_autofree char *message =
        parked ? g_strdup_printf("%" G_GINT64_FORMAT " attempts failed, the last on %s: %s",
                                 retry->attempt, retry->node == NULL ? "a node" : retry->node,
                                 retry->message == NULL ? "no reason given" : retry->message)
               : NULL;
    LhCondition condition = {.type = "Parked",
                             .status = LH_CONDITION_TRUE,
                             .reason = "TooManyAttempts",
                             .message = message};

    lh_plan_status(round->plan, status_of(round, item), name, item->subject->mod_rev, &condition,
                   parked ? 1 : 0, round->context->now_ms);
}

/* A retry of a task that is gone. */
static void plan_left(Round *round, const LhPoolItem *item)
{
    if (item->retry == NULL || !lh_object_known(item->retry) || item->subject != NULL ||
        lh_pool_item_assigned(item))
        return;
    lh_plan_begin(round->plan);
    delete_retry(round, item);
    lh_plan_rely(round->plan, LH_KIND_RECOVERYTASK, item->name, 0);
    lh_plan_end(round->plan);
}

static void plan_busy(Round *round)
{
    for (GTreeNode *n = g_tree_node_first(round->view->busy); n != NULL; n = g_tree_node_next(n)) {
        const LhPoolItem *item = lh_pool_record(n);
        gboolean retired = FALSE;
        if (full(round))
            return;
        for (guint i = 0; item->assignments != NULL && i < item->assignments->len && !retired; i++)
            retired = plan_assignment(round, g_ptr_array_index(item->assignments, i));
        plan_left(round, item);
        if (keeps_status(item) && !retired)
            plan_parked(round, item);
    }
}

/* A Status whose task or retry is gone: the item is in no set any more. */
static void plan_statuses(Round *round)
{
    for (GTreeNode *n = g_tree_node_first(round->pools->task_statuses); n != NULL;
         n = g_tree_node_next(n)) {
        const LhObject *status = g_tree_node_value(n);
        g_autofree char *name = NULL;
        if (!lh_status_name_split(status->name, NULL, &name, NULL))
            continue;
        if (round->view != NULL && keeps_status(lh_pool_item(round->view, name)))
            continue; /* plan_parked looks at it */
        if (full(round))
            return;
        lh_plan_begin(round->plan);
        lh_plan_delete(round->plan, LH_KIND_STATUS, status->name, status->mod_rev, "status",
                       "nothing is to be said of it any more");
        lh_plan_end(round->plan);
    }
}

static void plan_timeouts(Round *round)
{
    gint64 timeout = round->settings->recovery_timeout_ms;

    for (GTreeNode *n = g_tree_node_first(round->view->running); n != NULL;
         n = g_tree_node_next(n)) {
        const LhPoolAssignment *assignment = lh_pool_record(n);
        gint64 due = assignment->since + timeout;
        g_autofree char *reason = NULL;
        const char *ignored;
        if (due > round->context->now_ms) {
            lh_plan_wake(round->plan, due);
            return;
        }
        if (is_unknown(assignment->of) || assignment->node->object == NULL ||
            unwanted(assignment, &ignored) != NULL)
            continue;
        if (full(round))
            return;
        reason = g_strdup_printf("runs longer than recoveryTimeout (%" G_GINT64_FORMAT " s)",
                                 timeout / 1000);
        evict(round, assignment, RULE_TIMEOUT, reason);
    }
}

/* ---- assigning ---- */

static void assign(Round *round, const LhPoolItem *item, const LhPoolNode *node)
{
    const LhRecoveryTask *task = known_task(item);
    g_autofree char *name = g_strconcat(LH_POOL_RECOVERY "/", node->id, "/", item->name, NULL);
    g_autofree char *registration = g_strconcat(LH_POOL_RECOVERY "/", node->id, NULL);
    g_autofree char *retry = g_strconcat(LH_POOL_RECOVERY "/", item->name, NULL);
    LhAssignment order = {
        .action = LH_ACTION_LOAD,
        .since = round->context->now_ms,
        .controller = NAME,
        .epoch = round->context->epoch,
        .rule = "oldest-first",
        .reason = "a free node takes the oldest task",
        .partition = task->partition,
        .start_offset = task->start_offset,
        .end_offset = task->end_offset,
    };

    lh_plan_begin(round->plan);
    lh_plan_put(round->plan, LH_KIND_ASSIGNMENT, name, &order, 0, order.rule, "%s", order.reason);
    lh_plan_rely(round->plan, LH_KIND_RECOVERYTASK, item->name, task->o.mod_rev);
    lh_plan_rely(round->plan, LH_KIND_NODE, registration, node->object->mod_rev);
    lh_plan_rely(round->plan, LH_KIND_RETRY, retry, item->retry == NULL ? 0 : item->retry->mod_rev);
    lh_plan_end(round->plan);
}

/* Not to be begun now: its retry does not parse, waits or is parked. */
static gboolean held_back(Round *round, const LhPoolItem *item)
{
    gboolean unknown;
    const LhRetry *retry = lh_pool_retry(item, &unknown);
    const char *rule = NULL;

    if (unknown) {
        lh_plan_note(round->plan, LH_KIND_RECOVERYTASK, item->name, "retry-unknown",
                     "its retry does not parse (%s): mend or remove it",
                     lh_object_error(item->retry));
        return TRUE;
    }
    if (retry == NULL)
        return FALSE;
    if (retry->parked)
        rule = "parked";
    else if (retry->not_before > round->context->now_ms)
        rule = "wait-backoff";
    if (rule == NULL)
        return FALSE;
    if (!retry->parked)
        lh_plan_wake(round->plan, retry->not_before);
    lh_plan_note(round->plan, LH_KIND_RECOVERYTASK, item->name, rule,
                 "%" G_GINT64_FORMAT " attempts failed: %s%s%s", retry->attempt,
                 retry->message == NULL ? "" : retry->message,
                 retry->parked ? "; leasehold retry recovery/" : "",
                 retry->parked ? item->name : "");
    return TRUE;
}

/* The nodes that are free, sorted by name: one task each. */
static GPtrArray *free_nodes(const Round *round)
{
    g_autoptr(GArray) takers = lh_pool_takers(round->view);
    GPtrArray *free = g_ptr_array_new();

    for (guint i = 0; i < takers->len; i++) {
        const LhPoolTaker *taker = &g_array_index(takers, LhPoolTaker, i);
        if (taker->held == 0 && taker->limit > 0)
            g_ptr_array_add(free, (gpointer)taker->node);
    }
    return free;
}

/* Takes one of @free, elsewhere than where it failed if there is such a one. */
static const LhPoolNode *take_node(GPtrArray *free, const LhRetry *retry)
{
    guint at = 0;

    if (retry != NULL && retry->node != NULL)
        while (at < free->len &&
               strcmp(((const LhPoolNode *)free->pdata[at])->host->name, retry->node) == 0)
            at++;
    return g_ptr_array_steal_index(free, at < free->len ? at : 0);
}

static void plan_waiting(Round *round)
{
    g_autoptr(GPtrArray) free = free_nodes(round);

    for (GTreeNode *n = g_tree_node_first(round->view->waiting); n != NULL;
         n = g_tree_node_next(n)) {
        const LhPoolItem *item = lh_pool_record(n);
        if (full(round))
            return;
        if (item->sort_time == G_MININT64) {
            lh_plan_begin(round->plan);
            retire(round, item, "empty", "its range holds nothing");
            lh_plan_event(round->plan, LH_EVENT_NORMAL, "RecoveryDone", LH_KIND_RECOVERYTASK,
                          item->name, "its range holds nothing");
            lh_plan_end(round->plan);
        } else if (free->len == 0 && !round->plan->explain) {
            return;
        } else if (held_back(round, item)) {
            continue;
        } else if (free->len == 0) {
            lh_plan_note(round->plan, LH_KIND_RECOVERYTASK, item->name, "wait-node",
                         "no recovery node is free");
        } else {
            assign(round, item, take_node(free, lh_pool_retry(item, NULL)));
        }
    }
}

static void recovery_assigner_plan(gconstpointer index, const LhPlanContext *context, LhPlan *plan)
{
    Round round = {
        .pools = index,
        .view = lh_pools_view(index, LH_POOL_RECOVERY),
        .context = context,
        .settings = lh_pools_settings(index, NAME),
        .plan = plan,
    };

    plan_statuses(&round);
    if (round.view == NULL)
        return;
    plan_busy(&round);
    plan_timeouts(&round);
    plan_waiting(&round);
    if (!plan->more)
        lh_pool_say_drained(round.view, NAME, "Running", "what runs there is let run to its end",
                            context->now_ms, plan);
}

/* ---- gauges ---- */

static void recovery_assigner_gauges(gconstpointer index, gint64 now_ms, LhGaugeFunc gauge,
                                     gpointer data)
{
    const LhPoolView *view = lh_pools_view(index, LH_POOL_RECOVERY);

    (void)now_ms;
    lh_pool_gauges(view, LH_POOL_RECOVERY, gauge, data);
    gauge("unassigned_items", "pool=\"recovery\",set=\"default\"",
          view == NULL ? 0 : g_tree_nnodes(view->waiting), data);
}

static const char *const gauge_names[] = {"items", "parked_items", "unassigned_items", NULL};

const LhController lh_recovery_assigner = {
    .name = NAME,
    .index = &lh_pools_index,
    .kinds = LH_KIND_BIT(LH_KIND_RECOVERYTASK) | LH_KIND_BIT(LH_KIND_ASSIGNMENT) |
             LH_KIND_BIT(LH_KIND_ITEM) | LH_KIND_BIT(LH_KIND_NODE) | LH_KIND_BIT(LH_KIND_HEALTH) |
             LH_KIND_BIT(LH_KIND_RETRY) | LH_KIND_BIT(LH_KIND_ACCEPTED) |
             LH_KIND_BIT(LH_KIND_STATUS),
    .plan = recovery_assigner_plan,
    .gauges = recovery_assigner_gauges,
    .gauge_names = gauge_names,
    .settings = lh_pools_settings_of,
};
