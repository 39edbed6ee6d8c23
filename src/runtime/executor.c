/*
 * A plan's groups packed into full transactions, many in flight, each under the fence. Groups are never
 * split; a compare that several groups share is sent once. The failure branch reads the leader key, which
 * tells "fenced" from "conflict". Must not retry anything: what failed is planned again.
 */
#include "base/errors.h"
#include "base/log.h"
#include "base/planted.h"
#include "runtime/internal.h"

#include <string.h>

#define FENCE_COMPARES 2
#define MAX_BYTES      (1024 * 1024)
#define THROTTLE_MS    1000
#define MAX_THROTTLED  4096 /* remembered before old ones are forgotten */

typedef struct {
    LhExecution *execution;
    GArray *compares;     /* LhCompare; fence first */
    GArray *ops;          /* LhTxnOp */
    GArray *groups;       /* guint: indexes into the plan */
    GHashTable *expected; /* key -> LhCompare* index + 1 */
    GHashTable *written;  /* keys that an op writes */
    gsize bytes;
    LhCallId call;
    gint64 sent_ms;
} Txn;

struct LhExecution {
    Runner *runner;
    LhPlan *plan;
    GStringChunk *keys;
    GPtrArray *txns; /* Txn */
    guint next;      /* first not sent */
    guint in_flight;
    LhRoundResult result;
    LhTimer *done_timer; /* completion is never reported inside start */
};

static void txn_free(gpointer data)
{
    Txn *txn = data;

    lh_etcd_cancel(txn->execution->runner->runtime->etcd, &txn->call);
    g_array_unref(txn->compares);
    g_array_unref(txn->ops);
    g_array_unref(txn->groups);
    g_clear_pointer(&txn->expected, g_hash_table_unref);
    g_clear_pointer(&txn->written, g_hash_table_unref);
    g_free(txn);
}

void lh_execution_free(LhExecution *execution)
{
    if (execution == NULL)
        return;
    lh_timer_clear(execution->runner->runtime->env, &execution->done_timer);
    g_ptr_array_unref(execution->txns);
    g_string_chunk_free(execution->keys);
    lh_plan_free(execution->plan);
    g_clear_error(&execution->result.error);
    g_free(execution);
}

gboolean lh_execution_in_flight(const LhExecution *execution)
{
    return execution != NULL && execution->in_flight > 0;
}

gboolean lh_execution_in_doubt(const LhExecution *execution)
{
    return execution != NULL && (execution->in_flight > 0 || execution->result.unknown > 0);
}

/* ---- packing ---- */

static Txn *txn_new(LhExecution *execution)
{
    Txn *txn = g_new0(Txn, 1);

    txn->execution = execution;
    txn->compares = g_array_sized_new(FALSE, FALSE, sizeof(LhCompare), LH_ETCD_MAX_TXN_OPS);
    txn->ops = g_array_sized_new(FALSE, FALSE, sizeof(LhTxnOp), LH_ETCD_MAX_TXN_OPS);
    txn->groups = g_array_new(FALSE, FALSE, sizeof(guint));
    txn->expected = g_hash_table_new(g_str_hash, g_str_equal);
    txn->written = g_hash_table_new(g_str_hash, g_str_equal);
    g_array_set_size(txn->compares, FENCE_COMPARES); /* filled when it is sent */
    g_ptr_array_add(execution->txns, txn);
    return txn;
}

static const char *whole_key(LhExecution *execution, const char *key)
{
    g_autofree char *whole = g_strconcat(lh_mirror_prefix(execution->runner->runtime->mirror), key,
                                         NULL);

    return g_string_chunk_insert_const(execution->keys, whole);
}

/* What a group needs, with whole keys, gathered once. */
typedef struct {
    GArray *compares, *ops; /* LhCompare, LhTxnOp */
    gsize bytes;
} Need;

static void need_of(LhExecution *execution, const LhGroup *group, Need *need)
{
    const LhPlan *plan = execution->plan;

    g_array_set_size(need->compares, 0);
    g_array_set_size(need->ops, 0);
    need->bytes = 0;
    for (guint i = 0; i < group->n_ops; i++) {
        const LhOp *op = lh_plan_op(plan, group, i);
        const char *key = whole_key(execution, op->key);
        LhCompare compare = lh_compare_mod(key, op->expect_rev);
        LhTxnOp txn_op = op->type == LH_OP_PUT ? lh_txn_put(key, op->value, 0) : lh_txn_delete(key);
        g_array_append_val(need->compares, compare);
        g_array_append_val(need->ops, txn_op);
        need->bytes += strlen(key) * 2 + (op->value == NULL ? 0 : strlen(op->value)) + 32;
    }
    for (guint i = 0; i < group->n_reliances && !LH_BUG(RELIANCES_DROPPED); i++) {
        const LhReliance *reliance = &g_array_index(plan->reliances, LhReliance,
                                                    group->first_reliance + i);
        const char *key = whole_key(execution, reliance->key);
        LhCompare compare = lh_compare_mod(key, reliance->mod_rev);
        if (reliance->none_below) {
            g_autofree char *end = lh_etcd_prefix_end(key);
            compare.range_end = g_string_chunk_insert_const(execution->keys, end);
            compare.target = LH_CMP_CREATE;
            compare.number = 0;
        }
        g_array_append_val(need->compares, compare);
        need->bytes += strlen(key) + 32;
    }
}

static const LhCompare *present_compare(const Txn *txn, const LhCompare *compare)
{
    guint at = GPOINTER_TO_UINT(g_hash_table_lookup(txn->expected, compare->key));

    return at == 0 ? NULL : &g_array_index(txn->compares, LhCompare, at - 1);
}

static gboolean same_compare(const LhCompare *a, const LhCompare *b)
{
    return a->number == b->number && (a->range_end != NULL) == (b->range_end != NULL);
}

/* Whether @txn writes what @compare speaks of. */
static gboolean is_written(const Txn *txn, const LhCompare *compare)
{
    GHashTableIter iter;
    gpointer key;

    if (compare->range_end == NULL)
        return g_hash_table_contains(txn->written, compare->key);
    g_hash_table_iter_init(&iter, txn->written);
    while (g_hash_table_iter_next(&iter, &key, NULL))
        if (g_str_has_prefix(key, compare->key))
            return TRUE;
    return FALSE;
}

/* How many of the group's compares are new to @txn; -1 when it must go into another one: a compare
 * contradicts one that is there, or speaks of what @txn writes (also because it would be written twice).
 * etcd compares before it writes: within one transaction such a reliance would not hold. */
static int fits(const Txn *txn, const Need *need)
{
    int fresh = 0;

    for (guint i = 0; i < need->compares->len; i++) {
        const LhCompare *compare = &g_array_index(need->compares, LhCompare, i);
        const LhCompare *there = present_compare(txn, compare);
        if (is_written(txn, compare) || (there != NULL && !same_compare(there, compare)))
            return -1;
        fresh += there == NULL;
    }
    return fresh;
}

static void add_group(Txn *txn, guint group, const Need *need)
{
    for (guint i = 0; i < need->compares->len; i++) {
        const LhCompare *compare = &g_array_index(need->compares, LhCompare, i);
        const LhCompare *there = present_compare(txn, compare);
        if (there != NULL && same_compare(there, compare))
            continue;
        g_array_append_vals(txn->compares, compare, 1);
        g_hash_table_insert(txn->expected, (gpointer)compare->key,
                            GUINT_TO_POINTER(txn->compares->len));
    }
    for (guint i = 0; i < need->ops->len; i++) {
        const LhTxnOp *op = &g_array_index(need->ops, LhTxnOp, i);
        g_array_append_vals(txn->ops, op, 1);
        g_hash_table_add(txn->written, (gpointer)op->key);
    }
    g_array_append_val(txn->groups, group);
    txn->bytes += need->bytes;
}

/* A Status that was written within the last second waits; the runner is woken when it may go. */
static gboolean throttled(LhExecution *execution, const LhGroup *group)
{
    Runner *runner = execution->runner;
    LhRuntime *runtime = runner->runtime;
    const gint64 *last = group->throttle == NULL
                             ? NULL
                             : g_hash_table_lookup(runtime->throttled, group->throttle);
    gint64 now = lh_mono_ms(runtime->env);

    if (last == NULL || now >= *last + THROTTLE_MS)
        return FALSE;
    lh_plan_wake(execution->plan, lh_wall_ms(runtime->env) + (*last + THROTTLE_MS - now));
    return TRUE;
}

static void pack(LhExecution *execution)
{
    Need need = {
        .compares = g_array_new(FALSE, FALSE, sizeof(LhCompare)),
        .ops = g_array_new(FALSE, FALSE, sizeof(LhTxnOp)),
    };
    Txn *txn = NULL;

    for (guint i = 0; i < lh_plan_groups(execution->plan); i++) {
        const LhGroup *group = lh_plan_group(execution->plan, i);
        int fresh;
        if (throttled(execution, group))
            continue;
        need_of(execution, group, &need);
        fresh = txn == NULL ? -1 : fits(txn, &need);
        if (fresh < 0 || txn->groups->len >= execution->runner->pack ||
            txn->compares->len + (guint)fresh > LH_ETCD_MAX_TXN_OPS ||
            txn->ops->len + need.ops->len > LH_ETCD_MAX_TXN_OPS ||
            txn->bytes + need.bytes > MAX_BYTES)
            txn = txn_new(execution);
        add_group(txn, i, &need);
    }
    g_array_unref(need.compares);
    g_array_unref(need.ops);
}

/* ---- sending ---- */

static void send_more(LhExecution *execution);

static void finish(gpointer data)
{
    LhExecution *execution = data;
    Runner *runner = execution->runner;
    LhRoundResult result = execution->result;

    execution->done_timer = NULL;
    execution->result.error = NULL;
    result.unsent = execution->next < execution->txns->len;
    runner->execution = NULL;
    if (execution->plan->wake_ms != 0 &&
        (runner->wake_wall_ms == 0 || execution->plan->wake_ms < runner->wake_wall_ms))
        runner->wake_wall_ms = execution->plan->wake_ms;
    lh_execution_free(execution);
    lh_runner_executed(runner, &result);
    g_clear_error(&result.error);
}

static gboolean is_over(gpointer key, gpointer value, gpointer data)
{
    (void)key;
    return *(gint64 *)value + THROTTLE_MS < *(gint64 *)data;
}

static void remember_throttle(LhRuntime *runtime, const char *key)
{
    gint64 *at = g_new(gint64, 1);

    *at = lh_mono_ms(runtime->env);
    if (g_hash_table_size(runtime->throttled) >= MAX_THROTTLED)
        g_hash_table_foreach_remove(runtime->throttled, is_over, at);
    g_hash_table_replace(runtime->throttled, g_strdup(key), at);
}

static void report_group(LhExecution *execution, guint index, gint64 revision)
{
    Runner *runner = execution->runner;
    LhRuntime *runtime = runner->runtime;
    const LhGroup *group = lh_plan_group(execution->plan, index);

    for (guint i = 0; i < group->n_ops; i++) {
        const LhOp *op = lh_plan_op(execution->plan, group, i);
        if (lh_log_enabled(LH_LOG_INFO))
            lh_log(LH_LOG_INFO, op->type == LH_OP_PUT ? "put" : "deleted", "controller",
                   runner->controller->name, "key", op->key, "revision",
                   lh_fmt("%" G_GINT64_FORMAT, revision), "rule", op->rule, "reason", op->reason,
                   NULL);
        if (runtime->observer != NULL)
            runtime->observer(runner->controller->name, op, revision, runtime->observer_data);
    }
    for (guint i = 0; i < group->n_events; i++)
        lh_recorder_add(
            runtime->recorder, runner,
            &g_array_index(execution->plan->events, LhPlanEvent, group->first_event + i));
    if (group->throttle != NULL)
        remember_throttle(runtime, group->throttle);
}

static void take_error(LhExecution *execution, const GError *error)
{
    LhRoundResult *result = &execution->result;

    if (g_error_matches(error, LH_ERROR, LH_ERR_UNKNOWN_OUTCOME)) {
        result->unknown++;
        return;
    }
    /* etcd's NOSPACE may strike after the proposal: treat it as unknown, it costs one write. */
    if (g_error_matches(error, LH_ERROR, LH_ERR_NO_SPACE))
        result->unknown++;
    result->failed++;
    /* Of several, one that asks to wait says more about the next round. */
    if (result->error != NULL && lh_gerror_class(error) == LH_CLASS_TERMINAL)
        return;
    g_clear_error(&result->error);
    result->error = g_error_copy(error);
}

static void on_txn(const LhTxnReply *reply, const GError *error, gpointer data)
{
    Txn *txn = data;
    LhExecution *execution = txn->execution;
    LhRuntime *runtime = execution->runner->runtime;
    const char *outcome = "committed";

    txn->call = 0;
    execution->in_flight--;
    lh_histogram_observe(runtime->metrics, "etcd_txn_duration_seconds", NULL,
                         (double)(lh_mono_ms(runtime->env) - txn->sent_ms) / 1000);
    if (error != NULL) {
        take_error(execution, error);
        outcome = lh_error_name((LhErrorCode)error->code);
    } else if (reply->succeeded) {
        execution->result.committed++;
        execution->runner->wait_rev = MAX(execution->runner->wait_rev, reply->header.revision);
        for (guint i = 0; i < txn->groups->len; i++)
            report_group(execution, g_array_index(txn->groups, guint, i), reply->header.revision);
    } else if (lh_election_still_ours(execution->runner, &reply->ops[0].range)) {
        execution->result.conflicts++;
        execution->result.conflict_rev = MAX(execution->result.conflict_rev,
                                             reply->header.revision);
        outcome = "conflict";
    } else {
        execution->result.fenced = TRUE;
        lh_counter_add(runtime->metrics, "fenced_writes_rejected_total", NULL, 1);
        outcome = "fenced";
    }
    g_autofree char *labels = lh_labels("result", outcome, NULL);
    lh_counter_add(runtime->metrics, "etcd_txn_total", labels, 1);
    send_more(execution);
}

static void send_txn(Txn *txn)
{
    LhExecution *execution = txn->execution;
    Runner *runner = execution->runner;
    LhTxnOp leader = lh_txn_range(runner->leader_key);
    LhTxnRequest request;

    lh_election_fence(runner, (LhCompare *)txn->compares->data);
    request = (LhTxnRequest){
        .compares = (LhCompare *)txn->compares->data,
        .n_compares = txn->compares->len,
        .success = (LhTxnOp *)txn->ops->data,
        .n_success = txn->ops->len,
        .failure = &leader,
        .n_failure = 1,
    };
    if (LH_BUG(UNFENCED_WRITE)) {
        request.compares += FENCE_COMPARES;
        request.n_compares -= FENCE_COMPARES;
    }
    txn->sent_ms = lh_mono_ms(runner->runtime->env);
    execution->in_flight++;
    txn->call = lh_etcd_txn(runner->runtime->etcd, &request, on_txn, txn);
    g_clear_pointer(&txn->expected, g_hash_table_unref);
    g_clear_pointer(&txn->written, g_hash_table_unref);
}

/* After the first fence, unknown outcome or error that asks to wait. */
static gboolean must_stop(const LhExecution *execution)
{
    const LhRoundResult *result = &execution->result;

    return result->fenced || result->unknown > 0 || !lh_election_may_act(execution->runner) ||
           (result->error != NULL && lh_gerror_class(result->error) != LH_CLASS_TERMINAL);
}

/* Sends as many as may be in flight, or ends the round. When it must stop nothing more is sent; what has
 * been sent is awaited. */
static void send_more(LhExecution *execution)
{
    Runner *runner = execution->runner;
    gboolean stop = must_stop(execution);

    while (!stop && execution->next < execution->txns->len &&
           execution->in_flight < runner->runtime->options.max_in_flight)
        send_txn(g_ptr_array_index(execution->txns, execution->next++));
    if (execution->in_flight == 0 && execution->done_timer == NULL)
        execution->done_timer = lh_timer_in(runner->runtime->env, 0, finish, execution);
}

LhExecution *lh_execution_start(Runner *runner, LhPlan *plan)
{
    LhExecution *execution = g_new0(LhExecution, 1);

    execution->runner = runner;
    execution->plan = plan;
    execution->keys = g_string_chunk_new(8192);
    execution->txns = g_ptr_array_new_with_free_func(txn_free);
    pack(execution);
    send_more(execution);
    return execution;
}
