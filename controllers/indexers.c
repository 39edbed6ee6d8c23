/* See indexers.h. */
#include "controllers/indexers.h"

#include "controllers/attempts.h"
#include "controllers/partitions.h"

#include <string.h>

#define NAME "partition-allocator"
/* A partition is moved when its indexer has this much more to do than another, of what one has on average,
 * and when the move makes up for at least half of that. */
#define UNEVEN_PERCENT 20

/* A partition that shall be on an indexer. */
typedef struct {
    const char *name;
    gint64 load; /* bytes per second, at least 1 */
} Wanted;

typedef struct {
    const LhPools *pools;
    const LhPartitions *partitions;
    const LhPoolView *view; /* may be NULL */
    const LhPlanContext *context;
    LhPlan *plan;
    GHashTable *wanted; /* name -> Wanted */
    GArray *takers;     /* LhPoolTaker */
    gint64 *loads;      /* of each taker: bytes per second */
    guint moving;       /* on the way to or from an indexer */
    guint waiting;      /* without an indexer, and not held back */
    guint missing;      /* of them: no indexer has room */
    gboolean stopped;   /* the budget ended: not all was looked at */
} Round;

static gboolean full(Round *round)
{
    if (lh_plan_groups(round->plan) < round->context->max_groups)
        return FALSE;
    round->plan->more = TRUE;
    round->stopped = TRUE;
    return TRUE;
}

/* ---- what shall be on an indexer ---- */

static Wanted *want(GHashTable *wanted, const char *name)
{
    Wanted *at = g_hash_table_lookup(wanted, name);

    if (at == NULL) {
        at = g_new0(Wanted, 1);
        at->name = name;
        at->load = 1;
        g_hash_table_insert(wanted, (gpointer)name, at);
    }
    return at;
}

static void want_interval(GHashTable *wanted, const LhPartitionService *service,
                          const LhPartitionInterval *interval, gboolean running)
{
    const LhService *spec = lh_partition_service_spec(service);
    guint n = g_strv_length((GStrv)interval->partitions);

    for (guint i = 0; i < n; i++) {
        Wanted *at = want(wanted, interval->partitions[i]);
        if (running && spec != NULL)
            at->load += lh_partition_share(
                MIN(spec->throughput_bytes_per_second, LH_PARTITION_MOST), n);
    }
}

/* What ends or has ended lately; @plan (may be NULL) is woken when that changes. */
static void want_ending(GHashTable *wanted, const LhPartitionService *service, gint64 drain_ms,
                        gint64 now_ms, LhPlan *plan)
{
    const LhArray *history = lh_partition_service_history(service);

    for (guint i = history->n - 1; i > 0; i--) {
        const LhPartitionInterval *interval = lh_array_at(history, i - 1);
        gint64 until = interval->end + drain_ms;
        if (until <= now_ms)
            return;
        want_interval(wanted, service, interval, interval->end > now_ms);
        if (plan != NULL)
            lh_plan_wake(plan, until);
    }
}

static GHashTable *all_wanted(const LhPools *pools, gint64 now_ms, LhPlan *plan)
{
    const LhPartitions *partitions = pools->partitions;
    gint64 drain = lh_pools_settings(pools, NAME)->cutover_ms;
    const LhPartitionService key = {.name = (char *)"", .last_start = now_ms - drain + 1};
    GHashTable *wanted = g_hash_table_new_full(g_str_hash, g_str_equal, NULL, g_free);
    GHashTableIter iter;
    gpointer at;

    g_hash_table_iter_init(&iter, partitions->partitions);
    while (g_hash_table_iter_next(&iter, NULL, &at)) {
        const LhPartitionRecord *record = at;
        if (record->users->len > 0)
            want(wanted, record->name)->load += lh_partition_room_load(partitions->room,
                                                                       record->seat);
    }
    for (GTreeNode *n = g_tree_lower_bound(partitions->by_start, &key); n != NULL;
         n = g_tree_node_next(n))
        want_ending(wanted, g_tree_node_key(n), drain, now_ms, plan);
    return wanted;
}

/* ---- what is answered, lost or not wanted ---- */

static void count_failure(Round *round, const LhPoolAssignment *assignment, const char *message)
{
    const LhPoolItem *item = assignment->of;
    gboolean unknown;
    const LhRetry *before = lh_pool_retry(item, &unknown);
    g_autofree char *name = g_strconcat(LH_POOL_INDEXER "/", item->name, NULL);
    LhRetry retry = {
        .attempt = (before == NULL ? 0 : before->attempt) + 1,
        .message = message,
        .node = assignment->node->host->name,
    };

    if (unknown)
        return;
    lh_attempts_failed(&retry, round->context->now_ms);
    lh_plan_put(round->plan, LH_KIND_RETRY, name, &retry,
                item->retry == NULL ? 0 : item->retry->mod_rev, retry.parked ? "parked" : "retry",
                "attempt %" G_GINT64_FORMAT " on %s: %s", retry.attempt, retry.node, message);
    lh_plan_event(round->plan, LH_EVENT_WARNING, retry.parked ? "Parked" : "LoadFailed",
                  LH_KIND_PARTITION, item->name, "attempt %" G_GINT64_FORMAT " on %s: %s",
                  retry.attempt, retry.node, message);
}

static void take_answer(Round *round, const LhPoolAssignment *assignment)
{
    const LhItem *item = (const LhItem *)assignment->item;
    gboolean evicted = lh_pool_order(assignment)->action != LH_ACTION_LOAD;
    gboolean silent = item->message == NULL || *item->message == '\0';
    const char *message = silent && item->state == LH_ITEM_DONE ? "the node ended it by itself"
                                                                : lh_attempts_words(item->message);

    lh_plan_begin(round->plan);
    lh_pool_take(round->plan, assignment, evicted ? "evicted" : "failed",
                 evicted ? "its indexer works on it no more" : message);
    if (!evicted && g_hash_table_contains(round->wanted, assignment->of->name))
        count_failure(round, assignment, message);
    lh_plan_end(round->plan);
}

static void take_lost(Round *round, const LhPoolAssignment *assignment)
{
    lh_plan_begin(round->plan);
    lh_pool_take(round->plan, assignment, "node-failed", "its indexer has failed");
    lh_plan_event(round->plan, LH_EVENT_WARNING, "IndexerLost", LH_KIND_PARTITION,
                  assignment->of->name, "its indexer %s has failed; goes to another",
                  assignment->node->id);
    lh_plan_end(round->plan);
}

static void evict(Round *round, const LhPoolAssignment *assignment, const char *rule,
                  const char *reason)
{
    lh_plan_begin(round->plan);
    lh_pool_evict(round->plan, assignment, round->context, NAME, rule, reason);
    lh_plan_end(round->plan);
    round->moving++;
}

static gboolean may_go(const Round *round, const LhPoolItem *item)
{
    return !g_hash_table_contains(round->wanted, item->name) &&
           round->partitions->unknown_plans == 0 &&
           (item->subject == NULL || lh_object_known(item->subject));
}

static void plan_assignment(Round *round, const LhPoolAssignment *assignment)
{
    const LhAssignment *order = lh_pool_order(assignment);

    if (order == NULL) {
        lh_pool_sweep(round->plan, assignment);
        return;
    }
    switch (lh_pool_end(assignment)) {
    case LH_POOL_ANSWERED:
        take_answer(round, assignment);
        round->moving++; /* until it is somewhere else */
        return;
    case LH_POOL_LOST:
        take_lost(round, assignment);
        return;
    case LH_POOL_HELD:
        if (lh_pool_answer(assignment) != LH_ITEM_LIVE || order->action == LH_ACTION_EVICT)
            round->moving++;
        if (order->action == LH_ACTION_EVICT)
            return;
        if (assignment->node->object == NULL)
            return; /* hears nothing: waits until it is said to have failed */
        if (lh_pool_doubled(assignment))
            evict(round, assignment, "doubled", "another indexer has it, and had it first");
        else if (may_go(round, assignment->of))
            evict(round, assignment, "not-used", "no plan uses this partition any more");
        return;
    }
}

static gboolean is_live(const LhPoolItem *item)
{
    for (guint i = 0; item->assignments != NULL && i < item->assignments->len; i++) {
        const LhPoolAssignment *assignment = g_ptr_array_index(item->assignments, i);
        if (lh_pool_order(assignment) != NULL &&
            lh_pool_order(assignment)->action == LH_ACTION_LOAD &&
            lh_pool_answer(assignment) == LH_ITEM_LIVE)
            return TRUE;
    }
    return FALSE;
}

static void plan_retry(Round *round, const LhPoolItem *item)
{
    gboolean over = is_live(item) || (!lh_pool_item_assigned(item) && may_go(round, item));

    if (item->retry == NULL || !lh_object_known(item->retry) || !over)
        return;
    lh_plan_begin(round->plan);
    lh_plan_delete(round->plan, LH_KIND_RETRY, item->retry->name, item->retry->mod_rev,
                   "retry-over", is_live(item) ? "it is live" : "no plan uses this partition");
    lh_plan_end(round->plan);
}

static void plan_busy(Round *round)
{
    for (GTreeNode *n = g_tree_node_first(round->view->busy); n != NULL; n = g_tree_node_next(n)) {
        const LhPoolItem *item = lh_pool_record(n);
        if (full(round))
            return;
        for (guint i = 0; item->assignments != NULL && i < item->assignments->len; i++)
            plan_assignment(round, g_ptr_array_index(item->assignments, i));
        plan_retry(round, item);
    }
}

/* ---- placing ---- */

static void sum_loads(Round *round)
{
    round->takers = round->view == NULL ? g_array_new(FALSE, FALSE, sizeof(LhPoolTaker))
                                        : lh_pool_takers(round->view);
    round->loads = g_new0(gint64, round->takers->len + 1);
    for (guint i = 0; i < round->takers->len; i++) {
        const LhPoolNode *node = g_array_index(round->takers, LhPoolTaker, i).node;
        for (guint a = 0; a < node->assignments->len; a++) {
            const LhPoolAssignment *assignment = g_ptr_array_index(node->assignments, a);
            const Wanted *at = g_hash_table_lookup(round->wanted, assignment->of->name);
            if (assignment->object != NULL && at != NULL)
                round->loads[i] += at->load;
        }
    }
}

/* Of the indexers with room the one with the least to do, not @avoid if there is another; -1: none. */
static int least_busy(const Round *round, const char *avoid)
{
    int best = -1;
    gboolean best_avoided = TRUE;

    for (guint i = 0; i < round->takers->len; i++) {
        const LhPoolTaker *taker = &g_array_index(round->takers, LhPoolTaker, i);
        gboolean avoided = avoid != NULL && strcmp(taker->node->host->name, avoid) == 0;
        if (taker->held >= taker->limit)
            continue;
        if (best < 0 || avoided < best_avoided ||
            (avoided == best_avoided && round->loads[i] < round->loads[best])) {
            best = (int)i;
            best_avoided = avoided;
        }
    }
    return best;
}

static void load(Round *round, const Wanted *at, const LhPoolItem *item, int taker_at)
{
    LhPoolTaker *taker = &g_array_index(round->takers, LhPoolTaker, (guint)taker_at);
    const LhPoolNode *node = taker->node;
    g_autofree char *name = g_strconcat(LH_POOL_INDEXER "/", node->id, "/", at->name, NULL);
    g_autofree char *registration = g_strconcat(LH_POOL_INDEXER "/", node->id, NULL);
    g_autofree char *retry = g_strconcat(LH_POOL_INDEXER "/", at->name, NULL);
    LhAssignment order = {
        .action = LH_ACTION_LOAD,
        .since = round->context->now_ms,
        .controller = NAME,
        .epoch = round->context->epoch,
        .rule = "least-busy",
        .reason = "the indexer with the least to do",
    };

    lh_plan_begin(round->plan);
    lh_plan_put(round->plan, LH_KIND_ASSIGNMENT, name, &order, 0, order.rule, "%s", order.reason);
    lh_plan_rely(round->plan, LH_KIND_NODE, registration, node->object->mod_rev);
    lh_plan_rely(round->plan, LH_KIND_RETRY, retry,
                 item == NULL || item->retry == NULL ? 0 : item->retry->mod_rev);
    lh_plan_end(round->plan);
    taker->held++;
    round->loads[taker_at] += at->load;
}

/* Not to be begun now. */
static gboolean held_back(Round *round, const LhPoolItem *item)
{
    gboolean unknown;
    const LhRetry *retry = item == NULL ? NULL : lh_pool_retry(item, &unknown);

    if (item == NULL)
        return FALSE;
    if (unknown || (item->subject != NULL && !lh_object_known(item->subject))) {
        lh_plan_note(round->plan, LH_KIND_PARTITION, item->name, "unknown",
                     "it or its retry does not parse: mend or remove it");
        return TRUE;
    }
    if (retry == NULL || (!retry->parked && retry->not_before <= round->context->now_ms))
        return FALSE;
    if (!retry->parked)
        lh_plan_wake(round->plan, retry->not_before);
    lh_plan_note(round->plan, LH_KIND_PARTITION, item->name,
                 retry->parked ? "parked" : "wait-backoff",
                 "%" G_GINT64_FORMAT " attempts failed: %s%s%s", retry->attempt,
                 retry->message == NULL ? "" : retry->message,
                 retry->parked ? "; leasehold retry " LH_POOL_INDEXER "/" : "",
                 retry->parked ? item->name : "");
    return TRUE;
}

static gint busiest_first(gconstpointer a, gconstpointer b)
{
    const Wanted *x = *(const Wanted *const *)a, *y = *(const Wanted *const *)b;

    if (x->load != y->load)
        return x->load > y->load ? -1 : 1;
    return strcmp(x->name, y->name);
}

static void plan_waiting(Round *round)
{
    g_autoptr(GPtrArray) waiting = g_ptr_array_new();
    GHashTableIter iter;
    gpointer at;

    g_hash_table_iter_init(&iter, round->wanted);
    while (g_hash_table_iter_next(&iter, NULL, &at)) {
        const LhPoolItem *item = round->view == NULL
                                     ? NULL
                                     : lh_pool_item(round->view, ((const Wanted *)at)->name);
        if (item == NULL || !lh_pool_item_assigned(item))
            g_ptr_array_add(waiting, at);
    }
    g_ptr_array_sort(waiting, busiest_first);
    for (guint i = 0; i < waiting->len; i++) {
        const Wanted *wanted = waiting->pdata[i];
        const LhPoolItem *item = round->view == NULL ? NULL
                                                     : lh_pool_item(round->view, wanted->name);
        const LhRetry *retry;
        int taker;
        if (full(round))
            return;
        if (held_back(round, item))
            continue;
        retry = item == NULL ? NULL : lh_pool_retry(item, NULL);
        taker = least_busy(round, retry == NULL ? NULL : retry->node);
        round->waiting++;
        if (taker >= 0) {
            load(round, wanted, item, taker);
            continue;
        }
        round->missing++;
        lh_plan_note(round->plan, LH_KIND_PARTITION, wanted->name, "wait-node",
                     "no indexer takes another partition");
    }
}

/* ---- moving ---- */

/* A load that was answered live, of something that may be moved. */
static const Wanted *movable(const Round *round, const LhPoolAssignment *assignment)
{
    const LhAssignment *order = lh_pool_order(assignment);
    const LhPoolItem *item = assignment->of;

    if (order == NULL || order->action != LH_ACTION_LOAD ||
        lh_pool_answer(assignment) != LH_ITEM_LIVE ||
        (item->subject != NULL && !lh_object_known(item->subject)))
        return NULL;
    return g_hash_table_lookup(round->wanted, item->name);
}

static gboolean move_drained(Round *round)
{
    for (GTreeNode *n = g_tree_node_first(round->view->busy); n != NULL; n = g_tree_node_next(n)) {
        const LhPoolItem *item = lh_pool_record(n);
        for (guint i = 0; item->assignments != NULL && i < item->assignments->len; i++) {
            const LhPoolAssignment *assignment = g_ptr_array_index(item->assignments, i);
            if (assignment->node->object == NULL || !lh_pool_host_drained(assignment->node->host) ||
                movable(round, assignment) == NULL)
                continue;
            evict(round, assignment, "drained", "its indexer is drained");
            return TRUE;
        }
    }
    return FALSE;
}

/* Of what is on @node the one whose move to an indexer with @gap less to do evens them best. */
static const LhPoolAssignment *best_move(const Round *round, const LhPoolNode *node, gint64 gap,
                                         gint64 least)
{
    const LhPoolAssignment *best = NULL;
    gint64 best_gain = least - 1;

    for (guint i = 0; i < node->assignments->len; i++) {
        const LhPoolAssignment *assignment = g_ptr_array_index(node->assignments, i);
        const Wanted *at = movable(round, assignment);
        gint64 gain;
        if (at == NULL)
            continue;
        gain = MIN(at->load, gap - at->load);
        if (gain > best_gain ||
            (gain == best_gain && best != NULL && strcmp(assignment->key, best->key) < 0)) {
            best = assignment;
            best_gain = gain;
        }
    }
    return best;
}

static void rebalance(Round *round)
{
    int low = least_busy(round, NULL), high = -1;
    const LhPoolAssignment *move;
    gint64 total = 0, uneven;

    for (guint i = 0; i < round->takers->len; i++) {
        total += round->loads[i];
        if (high < 0 || round->loads[i] > round->loads[high])
            high = (int)i;
    }
    if (low < 0 || high == low || round->takers->len == 0)
        return;
    uneven = MAX(1, total / (gint64)round->takers->len * UNEVEN_PERCENT / 100);
    if (round->loads[high] - round->loads[low] <= uneven)
        return;
    move = best_move(round, g_array_index(round->takers, LhPoolTaker, (guint)high).node,
                     round->loads[high] - round->loads[low], MAX(1, uneven / 2));
    if (move != NULL)
        evict(round, move, "rebalance", "another indexer has much less to do");
}

/* One at a time: nothing is on its way, and nothing waits for room. */
static void plan_moves(Round *round)
{
    if (round->view == NULL || round->stopped || round->moving > 0 || round->waiting > 0 ||
        round->partitions->unknown_plans > 0 || least_busy(round, NULL) < 0 || full(round))
        return;
    if (!move_drained(round))
        rebalance(round);
}

/* ---- what is said ---- */

static guint partition_conditions(const Round *round, const LhPartitionRecord *record,
                                  LhCondition *out, char **texts)
{
    const LhPoolItem *item = round->view == NULL ? NULL : lh_pool_item(round->view, record->name);
    const LhRetry *retry = item == NULL ? NULL : lh_pool_retry(item, NULL);
    guint n = 0;

    if (record->accepted == NULL && g_hash_table_contains(round->wanted, record->name)) {
        texts[n] = g_strdup_printf("there is no such partition (any more), but plans use it, %u of "
                                   "them without an end",
                                   record->users->len);
        out[n] = (LhCondition){.type = "InUse",
                               .status = LH_CONDITION_TRUE,
                               .reason = "RemovedInUse",
                               .message = texts[n]};
        n++;
    }
    if (retry != NULL && retry->parked) {
        texts[n] = g_strdup_printf("%" G_GINT64_FORMAT " attempts failed, the last on %s: %s",
                                   retry->attempt, retry->node == NULL ? "a node" : retry->node,
                                   retry->message == NULL ? "no reason given" : retry->message);
        out[n] = (LhCondition){.type = "Parked",
                               .status = LH_CONDITION_TRUE,
                               .reason = "TooManyAttempts",
                               .message = texts[n]};
        n++;
    }
    return n;
}

static gint by_record_name(gconstpointer a, gconstpointer b)
{
    return strcmp((*(const LhPartitionRecord *const *)a)->name,
                  (*(const LhPartitionRecord *const *)b)->name);
}

static void plan_statuses(Round *round)
{
    g_autoptr(GPtrArray) records = g_ptr_array_new();
    GHashTableIter iter;
    gpointer at;

    g_hash_table_iter_init(&iter, round->partitions->partitions);
    while (g_hash_table_iter_next(&iter, NULL, &at)) {
        const LhPartitionRecord *record = at;
        const LhPoolItem *item = round->view == NULL ? NULL
                                                     : lh_pool_item(round->view, record->name);
        if (record->status != NULL || record->accepted == NULL ||
            (item != NULL && item->retry != NULL))
            g_ptr_array_add(records, at);
    }
    g_ptr_array_sort(records, by_record_name);
    for (guint i = 0; i < records->len && !full(round); i++) {
        const LhPartitionRecord *record = records->pdata[i];
        g_autofree char *name = g_strconcat("partitions/", record->name, "/" NAME, NULL);
        char *texts[2] = {NULL};
        LhCondition conditions[2];
        guint n = partition_conditions(round, record, conditions, texts);
        lh_plan_status(round->plan, record->status, name,
                       lh_accepted_spec(record->accepted, LH_KIND_PARTITION) == NULL
                           ? 0
                           : ((const LhAccepted *)record->accepted)->revision,
                       conditions, n, round->context->now_ms);
        g_free(texts[0]);
        g_free(texts[1]);
    }
}

static void plan_capacity(Round *round)
{
    const LhObject *present = lh_pools_status(round->pools, "settings", NAME, NAME);
    const LhObject *accepted = lh_pools_settings_object(round->pools, NAME);
    g_autofree char *message = NULL;
    LhCondition condition = {
        .type = "Capacity", .status = LH_CONDITION_TRUE, .reason = "Sufficient"};

    if (round->missing == 0 && present == NULL)
        return;
    if (round->missing > 0) {
        message = g_strdup_printf("%u partitions have no indexer: none takes another one",
                                  round->missing);
        condition.status = LH_CONDITION_FALSE;
        condition.reason = "InsufficientCapacity";
        condition.message = message;
    }
    if (lh_plan_status(round->plan, present, "settings/" NAME "/" NAME,
                       accepted == NULL ? 0 : accepted->mod_rev, &condition, 1,
                       round->context->now_ms) &&
        message != NULL)
        lh_plan_event(round->plan, LH_EVENT_WARNING, "InsufficientCapacity", LH_KIND_SETTINGS, NAME,
                      "%s", message);
}

void lh_indexers_plan(const LhPools *pools, const LhPlanContext *context, LhPlan *plan)
{
    Round round = {
        .pools = pools,
        .partitions = pools->partitions,
        .view = lh_pools_view(pools, LH_POOL_INDEXER),
        .context = context,
        .plan = plan,
        .wanted = all_wanted(pools, context->now_ms, plan),
    };

    sum_loads(&round);
    if (round.view != NULL)
        plan_busy(&round);
    plan_waiting(&round);
    plan_moves(&round);
    plan_statuses(&round);
    if (!round.stopped) {
        gboolean room = least_busy(&round, NULL) >= 0;
        plan_capacity(&round);
        lh_pool_say_drained(round.view, NAME, room ? "Moving" : "NoRoom",
                            room ? "one at a time goes to another indexer"
                                 : "no other indexer takes a partition",
                            context->now_ms, plan);
    }
    g_hash_table_unref(round.wanted);
    g_array_unref(round.takers);
    g_free(round.loads);
}

void lh_indexers_gauges(gconstpointer index, gint64 now_ms, LhGaugeFunc gauge, gpointer data)
{
    const LhPools *pools = index;
    const LhPoolView *view = lh_pools_view(pools, LH_POOL_INDEXER);
    g_autoptr(GHashTable) wanted = all_wanted(pools, now_ms, NULL);
    GHashTableIter iter;
    gpointer name;
    guint waiting = 0;

    g_hash_table_iter_init(&iter, wanted);
    while (g_hash_table_iter_next(&iter, &name, NULL)) {
        const LhPoolItem *item = view == NULL ? NULL : lh_pool_item(view, name);
        waiting += item == NULL || !lh_pool_item_assigned(item);
    }
    lh_pool_gauges(view, LH_POOL_INDEXER, gauge, data);
    gauge("unassigned_items", "pool=\"indexer\",set=\"default\"", waiting, data);
}
