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
#define EARLY_GROUPS \
    2048 /* of a plan that is still being made: enough to fill what may be in flight */
#define MAX_THROTTLED 4096 /* remembered before old ones are forgotten */

/* What a transaction in the making compares and writes, by key: open addressing, as keys come and go
 * with each transaction. */
#define TABLE_SIZE 512 /* a power of two, well above LH_ETCD_MAX_TXN_OPS */

typedef struct {
    const char *key; /* under the prefix; the plan's */
    guint round;     /* of another round: free */
    guint hash;
    guint compare; /* index */
    gboolean written;
} Entry;

/* The transaction in the making. One for the whole runtime, as it is sent in the call that packs it. */
struct LhBatch {
    GArray *compares; /* LhCompare; fence first */
    GArray *ops;      /* LhTxnOp */
    GArray *groups;   /* guint: indexes into the plan */
    GStringChunk *keys;
    GString *whole; /* a key with the prefix, while it is made */
    gsize prefix_len;
    Entry table[TABLE_SIZE];
    guint round;
    gsize bytes;
};
typedef struct LhBatch Batch;

/* One in flight. */
typedef struct {
    LhExecution *execution;
    GArray *groups; /* guint: indexes into the plan */
    LhCallId call;
    gint64 sent_ms;
    gint64 seen_rev; /* of the mirror when it was sent: the answer cannot be older */
} Txn;

struct LhExecution {
    Runner *runner;
    LhPlan *plan;
    GArray *order;   /* guint: the plan's groups, as they are sent */
    guint next;      /* in order: first that is not sent */
    GPtrArray *txns; /* Txn in flight */
    LhRoundResult result;
    LhTimer *done_timer; /* completion is never reported inside start */
};

static void txn_free(gpointer data)
{
    Txn *txn = data;

    lh_etcd_cancel(txn->execution->runner->runtime->etcd, &txn->call);
    g_array_unref(txn->groups);
    g_free(txn);
}

LhBatch *lh_batch_new(const char *prefix)
{
    Batch *batch = g_new0(Batch, 1);

    batch->compares = g_array_sized_new(FALSE, FALSE, sizeof(LhCompare), LH_ETCD_MAX_TXN_OPS);
    batch->ops = g_array_sized_new(FALSE, FALSE, sizeof(LhTxnOp), LH_ETCD_MAX_TXN_OPS);
    batch->keys = g_string_chunk_new(16384);
    batch->whole = g_string_new(prefix);
    batch->prefix_len = strlen(prefix);
    return batch;
}

void lh_batch_free(LhBatch *batch)
{
    g_array_unref(batch->compares);
    g_array_unref(batch->ops);
    g_clear_pointer(&batch->groups, g_array_unref);
    g_string_chunk_free(batch->keys);
    g_string_free(batch->whole, TRUE);
    g_free(batch);
}

static void batch_start(Batch *batch)
{
    g_array_set_size(batch->compares, FENCE_COMPARES); /* filled when it is sent */
    g_array_set_size(batch->ops, 0);
    g_string_chunk_clear(batch->keys);
    batch->round++;
    batch->groups = g_array_new(FALSE, FALSE, sizeof(guint));
    batch->bytes = 0;
}

void lh_execution_free(LhExecution *execution)
{
    if (execution == NULL)
        return;
    lh_timer_clear(execution->runner->runtime->env, &execution->done_timer);
    g_ptr_array_unref(execution->txns);
    g_array_unref(execution->order);
    lh_plan_free(execution->plan);
    g_clear_error(&execution->result.error);
    g_free(execution);
}

gboolean lh_execution_in_flight(const LhExecution *execution)
{
    return execution != NULL && execution->txns->len > 0;
}

gboolean lh_execution_in_doubt(const LhExecution *execution)
{
    return execution != NULL && (execution->txns->len > 0 || execution->result.unknown > 0);
}

/* ---- packing ---- */

static const char *whole_key(Batch *batch, const char *key)
{
    g_string_truncate(batch->whole, batch->prefix_len);
    g_string_append(batch->whole, key);
    return g_string_chunk_insert_len(batch->keys, batch->whole->str, (gssize)batch->whole->len);
}

/* What a group compares, op by op and then reliance by reliance. */
typedef struct {
    const char *key; /* under the prefix; the plan's */
    gint64 mod_rev;
    gboolean none_below;
    guint hash;
} Compare;

static guint n_compares(const LhGroup *group)
{
    return group->n_ops + (LH_BUG(RELIANCES_DROPPED) ? 0 : group->n_reliances);
}

static Compare compare_at(const LhPlan *plan, const LhGroup *group, guint i)
{
    Compare compare;

    if (i < group->n_ops) {
        const LhOp *op = lh_plan_op(plan, group, i);
        compare = (Compare){.key = op->key, .mod_rev = op->expect_rev};
    } else {
        const LhReliance *reliance = &g_array_index(plan->reliances, LhReliance,
                                                    group->first_reliance + i - group->n_ops);
        compare = (Compare){.key = reliance->key,
                            .mod_rev = reliance->none_below ? 0 : reliance->mod_rev,
                            .none_below = reliance->none_below};
    }
    compare.hash = g_str_hash(compare.key);
    return compare;
}

static gboolean is_free(const Batch *batch, const Entry *entry)
{
    return entry->round != batch->round;
}

/* Its entry, or the free one where it belongs. */
static Entry *find_entry(Batch *batch, const char *key, guint hash)
{
    guint at = hash % TABLE_SIZE;

    while (!is_free(batch, &batch->table[at]) &&
           (batch->table[at].hash != hash || strcmp(batch->table[at].key, key) != 0))
        at = (at + 1) % TABLE_SIZE;
    return &batch->table[at];
}

static gboolean same_compare(const LhCompare *a, const Compare *b)
{
    return a->number == b->mod_rev && (a->range_end != NULL) == b->none_below;
}

/* Whether @batch writes a key below @prefix. */
static gboolean writes_below(const Batch *batch, const char *prefix)
{
    for (guint i = 0; i < batch->ops->len; i++)
        if (g_str_has_prefix(g_array_index(batch->ops, LhTxnOp, i).key + batch->prefix_len, prefix))
            return TRUE;
    return FALSE;
}

/* How many of the group's compares are new to @batch; -1 when it must go into another one: a compare
 * contradicts one that is there, or speaks of what @batch writes (also because it would be written twice).
 * etcd compares before it writes: within one transaction such a reliance would not hold. */
static int fits(Batch *batch, const LhPlan *plan, const LhGroup *group)
{
    int fresh = 0;

    for (guint i = 0; i < n_compares(group); i++) {
        Compare compare = compare_at(plan, group, i);
        const Entry *there = find_entry(batch, compare.key, compare.hash);
        if (compare.none_below && writes_below(batch, compare.key))
            return -1;
        if (is_free(batch, there))
            fresh++;
        else if (there->written ||
                 !same_compare(&g_array_index(batch->compares, LhCompare, there->compare),
                               &compare))
            return -1;
    }
    return fresh;
}

static void add_compare(Batch *batch, Entry *entry, const Compare *compare)
{
    LhCompare whole = lh_compare_mod(whole_key(batch, compare->key), compare->mod_rev);

    if (compare->none_below) {
        g_autofree char *end = lh_etcd_prefix_end(whole.key);
        whole.range_end = g_string_chunk_insert(batch->keys, end);
        whole.target = LH_CMP_CREATE;
    }
    *entry = (Entry){.key = compare->key,
                     .round = batch->round,
                     .hash = compare->hash,
                     .compare = batch->compares->len};
    g_array_append_val(batch->compares, whole);
}

static gsize bytes_of(const LhPlan *plan, const LhGroup *group)
{
    gsize bytes = 0;

    for (guint i = 0; i < n_compares(group); i++)
        bytes += strlen(compare_at(plan, group, i).key) + 32;
    for (guint i = 0; i < group->n_ops; i++) {
        const LhOp *op = lh_plan_op(plan, group, i);
        bytes += strlen(op->key) + (op->value == NULL ? 0 : strlen(op->value)) + 32;
    }
    return bytes;
}

static void add_group(Batch *batch, const LhPlan *plan, guint number)
{
    const LhGroup *group = lh_plan_group(plan, number);

    for (guint i = 0; i < n_compares(group); i++) {
        Compare compare = compare_at(plan, group, i);
        Entry *entry = find_entry(batch, compare.key, compare.hash);
        if (is_free(batch, entry))
            add_compare(batch, entry, &compare);
        if (i >= group->n_ops)
            continue;
        const LhOp *op = lh_plan_op(plan, group, i);
        const char *key = g_array_index(batch->compares, LhCompare, entry->compare).key;
        LhTxnOp txn_op = op->type == LH_OP_PUT ? lh_txn_put(key, op->value, 0) : lh_txn_delete(key);
        g_array_append_val(batch->ops, txn_op);
        entry->written = TRUE;
    }
    g_array_append_val(batch->groups, number);
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

/* What the group shares with others, by convention; groups that share nothing are alone. */
static const char *shared_key(const LhPlan *plan, const LhGroup *group)
{
    guint last = group->first_reliance + group->n_reliances - 1;

    return group->n_reliances == 0 ? "" : g_array_index(plan->reliances, LhReliance, last).key;
}

/* Orders the groups that the plan has got since: as they came, but those that share what they rely on
 * follow the first of them. */
static void order_more(LhExecution *execution)
{
    const LhPlan *plan = execution->plan;
    g_autoptr(GHashTable) heaps = g_hash_table_new(g_str_hash, g_str_equal);
    guint first = execution->order->len, n = lh_plan_groups(plan) - first, n_heaps = 0, sum = first;
    g_autofree guint *heap_of = g_new(guint, n + 1), *start = g_new0(guint, n + 1);

    for (guint i = 0; i < n; i++) {
        const char *key = shared_key(plan, lh_plan_group(plan, first + i));
        guint heap = GPOINTER_TO_UINT(g_hash_table_lookup(heaps, key));
        if (heap == 0) {
            heap = ++n_heaps;
            g_hash_table_insert(heaps, (gpointer)key, GUINT_TO_POINTER(heap));
        }
        heap_of[i] = heap - 1;
        start[heap - 1]++;
    }
    for (guint heap = 0; heap < n_heaps; heap++) {
        guint size = start[heap];
        start[heap] = sum;
        sum += size;
    }
    g_array_set_size(execution->order, first + n);
    for (guint i = 0; i < n; i++)
        g_array_index(execution->order, guint, start[heap_of[i]]++) = first + i;
}

/* Fills the batch with the next groups; false when there are none. */
static gboolean pack(LhExecution *execution)
{
    const LhPlan *plan = execution->plan;
    Batch *batch = execution->runner->runtime->batch;

    batch_start(batch);
    for (; execution->next < execution->order->len; execution->next++) {
        guint number = g_array_index(execution->order, guint, execution->next);
        const LhGroup *group = lh_plan_group(plan, number);
        gsize bytes;
        int fresh;
        if (throttled(execution, group))
            continue;
        bytes = bytes_of(plan, group);
        fresh = batch->groups->len == 0 ? 0 : fits(batch, plan, group);
        if (fresh < 0 ||
            (batch->groups->len > 0 && (batch->groups->len >= execution->runner->pack ||
                                        batch->compares->len + (guint)fresh > LH_ETCD_MAX_TXN_OPS ||
                                        batch->ops->len + group->n_ops > LH_ETCD_MAX_TXN_OPS ||
                                        batch->bytes + bytes > MAX_BYTES)))
            break;
        add_group(batch, plan, number);
        batch->bytes += bytes;
    }
    if (batch->groups->len > 0)
        return TRUE;
    g_clear_pointer(&batch->groups, g_array_unref);
    return FALSE;
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
    result.unsent = execution->next < execution->order->len;
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
    lh_histogram_observe(runtime->metrics, "etcd_txn_duration_seconds", NULL,
                         (double)(lh_mono_ms(runtime->env) - txn->sent_ms) / 1000);
    if (error != NULL) {
        take_error(execution, error);
        outcome = lh_error_name((LhErrorCode)error->code);
    } else if (reply->succeeded) {
        execution->result.committed++;
        execution->runner->wait_rev = MAX(execution->runner->wait_rev, reply->header.revision);
        lh_log_hold();
        for (guint i = 0; i < txn->groups->len; i++)
            report_group(execution, g_array_index(txn->groups, guint, i), reply->header.revision);
        lh_log_release();
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
    if (error == NULL && reply->header.revision < txn->seen_rev)
        lh_mirror_doubt(runtime->mirror);
    g_autofree char *labels = lh_labels("result", outcome, NULL);
    lh_counter_add(runtime->metrics, "etcd_txn_total", labels, 1);
    g_ptr_array_remove_fast(execution->txns, txn);
    send_more(execution);
    if (execution->txns->len == 0)
        finish(execution);
}

static void send_batch(LhExecution *execution)
{
    Runner *runner = execution->runner;
    Batch *batch = runner->runtime->batch;
    LhTxnOp leader = lh_txn_range(runner->leader_key);
    LhTxnRequest request;
    Txn *txn = g_new0(Txn, 1);

    lh_election_fence(runner, (LhCompare *)batch->compares->data);
    request = (LhTxnRequest){
        .compares = (LhCompare *)batch->compares->data,
        .n_compares = batch->compares->len,
        .success = (LhTxnOp *)batch->ops->data,
        .n_success = batch->ops->len,
        .failure = &leader,
        .n_failure = 1,
    };
    txn->execution = execution;
    txn->groups = g_steal_pointer(&batch->groups);
    if (LH_BUG(UNFENCED_WRITE)) {
        request.compares += FENCE_COMPARES;
        request.n_compares -= FENCE_COMPARES;
    }
    txn->sent_ms = lh_mono_ms(runner->runtime->env);
    txn->seen_rev = lh_mirror_revision(runner->runtime->mirror);
    g_ptr_array_add(execution->txns, txn);
    txn->call = lh_etcd_txn(runner->runtime->etcd, &request, on_txn, txn);
}

/* After the first fence, unknown outcome or error that asks to wait. */
static gboolean must_stop(const LhExecution *execution)
{
    const LhRoundResult *result = &execution->result;

    return result->fenced || result->unknown > 0 || !lh_election_may_act(execution->runner) ||
           (result->error != NULL && lh_gerror_class(result->error) != LH_CLASS_TERMINAL);
}

/* Sends as many as may be in flight. When it must stop nothing more is sent; what has been sent is awaited. */
static void send_more(LhExecution *execution)
{
    if (must_stop(execution))
        return;
    while (execution->txns->len < execution->runner->runtime->options.max_in_flight &&
           pack(execution))
        send_batch(execution);
}

static void on_group(gpointer data)
{
    LhExecution *execution = data;

    if (execution->order->len > 0 || lh_plan_groups(execution->plan) < EARLY_GROUPS)
        return;
    order_more(execution);
    send_more(execution);
}

LhExecution *lh_execution_new(Runner *runner, LhPlan *plan)
{
    LhExecution *execution = g_new0(LhExecution, 1);

    execution->runner = runner;
    execution->plan = plan;
    execution->order = g_array_new(FALSE, FALSE, sizeof(guint));
    execution->txns = g_ptr_array_new_with_free_func(txn_free);
    plan->ended = on_group;
    plan->ended_data = execution;
    return execution;
}

void lh_execution_start(LhExecution *execution)
{
    LhEnv *env = execution->runner->runtime->env;

    execution->plan->ended = NULL;
    order_more(execution);
    send_more(execution);
    if (execution->txns->len == 0)
        execution->done_timer = lh_timer_in(env, 0, finish, execution);
}
