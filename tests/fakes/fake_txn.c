/*
 * What etcd answers to ranges and transactions, error for error: server/etcdserver/apply.go and
 * api/v3rpc/key.go are the models.
 *
 * Compares are evaluated as etcd does it: an empty range compares as one key whose numbers are all
 * 0, and never satisfies a compare of values.
 */
#include "fake_internal.h"

#include <string.h>

LhEtcdHeader fake_header(const FakeEtcd *server)
{
    return (LhEtcdHeader){
        .cluster_id = server->cluster_id,
        .member_id = server->member_id,
        .revision = server->revision,
        .raft_term = server->raft_term,
    };
}

FakeReply *fake_reply_new(void)
{
    FakeReply *reply = g_new0(FakeReply, 1);
    reply->events = g_ptr_array_new_with_free_func(fake_event_unref);
    reply->memory = g_ptr_array_new_with_free_func(g_free);
    return reply;
}

void fake_reply_free(FakeReply *reply)
{
    if (reply != NULL) {
        g_clear_error(&reply->error);
        g_ptr_array_free(reply->events, TRUE);
        g_ptr_array_free(reply->memory, TRUE);
        g_free(reply);
    }
}

void fake_reply_fail(FakeReply *reply, LhErrorCode code, const char *message)
{
    g_clear_error(&reply->error);
    reply->error = g_error_new_literal(LH_ERROR, (int)code, message);
}

/* ---- range ---- */

typedef struct {
    const LhRangeRequest *request;
    GArray *kvs;
    GPtrArray *events;
    gint64 count;
} Ranging;

static gboolean range_visit(FakeEvent *event, gpointer data)
{
    Ranging *ranging = data;
    const LhRangeRequest *request = ranging->request;
    ranging->count++;
    if (request->count_only || (request->limit > 0 && ranging->count > request->limit)) {
        return FALSE;
    }
    LhKv kv = event->event.kv;
    if (request->keys_only) {
        kv.value = "";
        kv.value_len = 0;
    }
    g_array_append_val(ranging->kvs, kv);
    g_ptr_array_add(ranging->events, fake_event_ref(event));
    return FALSE;
}

void fake_do_range(FakeEtcd *server, const LhRangeRequest *request, LhRangeReply *out,
                   FakeReply *memory)
{
    Ranging ranging = {request, g_array_new(FALSE, FALSE, sizeof(LhKv)), memory->events, 0};
    fake_store_visit(server, request->key, request->range_end, request->revision, range_visit,
                     &ranging);
    out->header = fake_header(server);
    out->n_kvs = ranging.kvs->len;
    out->kvs = (const LhKv *)(gpointer)g_array_free(ranging.kvs, FALSE);
    out->count = ranging.count;
    out->more = request->limit > 0 && ranging.count > request->limit && !request->count_only;
    g_ptr_array_add(memory->memory, (gpointer)out->kvs);
}

/* ---- compares ---- */

static int compare_numbers(gint64 a, gint64 b)
{
    return (a > b) - (a < b);
}

static int compare_values(const LhKv *kv, const LhCompare *compare)
{
    gsize n = MIN(kv->value_len, compare->value_len);
    int order = n > 0 ? memcmp(kv->value, compare->value, n) : 0;
    return order != 0 ? order : (kv->value_len > n) - (compare->value_len > n);
}

static gboolean kv_satisfies(const LhKv *kv, const LhCompare *compare)
{
    int order = 0;
    switch (compare->target) {
    case LH_CMP_VERSION:
        order = compare_numbers(kv->version, compare->number);
        break;
    case LH_CMP_CREATE:
        order = compare_numbers(kv->create_rev, compare->number);
        break;
    case LH_CMP_MOD:
        order = compare_numbers(kv->mod_rev, compare->number);
        break;
    case LH_CMP_LEASE:
        order = compare_numbers(kv->lease, compare->number);
        break;
    case LH_CMP_VALUE:
        order = compare_values(kv, compare);
        break;
    }
    switch (compare->result) {
    case LH_CMP_EQUAL:
        return order == 0;
    case LH_CMP_GREATER:
        return order > 0;
    case LH_CMP_LESS:
        return order < 0;
    case LH_CMP_NOT_EQUAL:
        return order != 0;
    }
    return FALSE;
}

typedef struct {
    const LhCompare *compare;
    gboolean any, failed;
} Comparing;

static gboolean compare_visit(FakeEvent *event, gpointer data)
{
    Comparing *comparing = data;
    comparing->any = TRUE;
    comparing->failed = !kv_satisfies(&event->event.kv, comparing->compare);
    return comparing->failed;
}

static gboolean compare_holds(FakeEtcd *server, const LhCompare *compare)
{
    static const LhKv nothing;
    Comparing comparing = {compare, FALSE, FALSE};
    fake_store_visit(server, compare->key, compare->range_end, 0, compare_visit, &comparing);
    if (comparing.any) {
        return !comparing.failed;
    }
    return compare->target != LH_CMP_VALUE && kv_satisfies(&nothing, compare);
}

/* ---- checks before anything is done; lh_etcd_txn_check has counted the ops already ---- */

static gboolean within(const char *key, const LhTxnOp *range)
{
    if (range->range_end == NULL || range->range_end[0] == '\0') {
        return strcmp(key, range->key) == 0;
    }
    return strcmp(key, range->key) >= 0 && strcmp(key, range->range_end) < 0;
}

static const char *check_branch(const LhTxnOp *ops, gsize n)
{
    g_autoptr(GHashTable) puts = g_hash_table_new(g_str_hash, g_str_equal);
    for (gsize i = 0; i < n; i++) {
        if (ops[i].key == NULL || ops[i].key[0] == '\0') {
            return "etcdserver: key is not provided";
        }
        if (ops[i].type == LH_TXN_PUT && !g_hash_table_add(puts, (gpointer)ops[i].key)) {
            return "etcdserver: duplicate key given in txn request";
        }
    }
    for (gsize i = 0; i < n; i++) {
        if (ops[i].type != LH_TXN_DELETE) {
            continue;
        }
        for (gsize j = 0; j < n; j++) {
            if (ops[j].type == LH_TXN_PUT && within(ops[j].key, &ops[i])) {
                return "etcdserver: duplicate key given in txn request";
            }
        }
    }
    return NULL;
}

static const char *check_txn(const LhTxnRequest *txn)
{
    for (gsize i = 0; i < txn->n_compares; i++) {
        if (txn->compares[i].key == NULL || txn->compares[i].key[0] == '\0') {
            return "etcdserver: key is not provided";
        }
    }
    const char *wrong = check_branch(txn->success, txn->n_success);
    return wrong != NULL ? wrong : check_branch(txn->failure, txn->n_failure);
}

static gboolean has_op(const LhTxnOp *ops, gsize n, LhTxnOpType type)
{
    for (gsize i = 0; i < n; i++) {
        if (ops[i].type == type) {
            return TRUE;
        }
    }
    return FALSE;
}

static gboolean txn_has(const LhTxnRequest *txn, LhTxnOpType type)
{
    return has_op(txn->success, txn->n_success, type) || has_op(txn->failure, txn->n_failure, type);
}

gboolean fake_request_writes(const FakeRequest *request)
{
    switch (request->kind) {
    case FAKE_CALL_TXN:
    case FAKE_CALL_GRANT:
    case FAKE_CALL_REVOKE:
        return TRUE;
    case FAKE_CALL_RANGE:
    case FAKE_CALL_KEEPALIVE:
    case FAKE_CALL_STATUS:
        return FALSE;
    }
    return FALSE;
}

gboolean fake_request_puts(const FakeRequest *request)
{
    const LhTxnRequest *txn = &request->txn;
    if (request->kind != FAKE_CALL_TXN) {
        return fake_request_writes(request);
    }
    return txn_has(txn, LH_TXN_PUT) || txn_has(txn, LH_TXN_DELETE);
}

static gsize text_size(const char *text)
{
    return text != NULL ? strlen(text) + 4 : 0;
}

static gsize ops_size(const LhTxnOp *ops, gsize n)
{
    gsize size = 0;
    for (gsize i = 0; i < n; i++) {
        size += text_size(ops[i].key) + text_size(ops[i].range_end) + ops[i].value_len + 16;
    }
    return size;
}

gsize fake_request_size(const FakeRequest *request)
{
    const LhTxnRequest *txn = &request->txn;
    if (request->kind != FAKE_CALL_TXN) {
        return 64;
    }
    gsize size = ops_size(txn->success, txn->n_success) + ops_size(txn->failure, txn->n_failure);
    for (gsize i = 0; i < txn->n_compares; i++) {
        const LhCompare *compare = &txn->compares[i];
        size += text_size(compare->key) + text_size(compare->range_end) + compare->value_len + 16;
    }
    return size;
}

/* ---- doing it ---- */

static void do_op(FakeEtcd *server, const LhTxnOp *op, LhTxnOpReply *out, FakeReply *reply)
{
    out->type = op->type;
    switch (op->type) {
    case LH_TXN_PUT:
        fake_store_put(server, op->key, op->value, op->value_len, op->lease);
        break;
    case LH_TXN_DELETE:
        out->deleted = fake_store_delete(server, op->key, op->range_end);
        break;
    case LH_TXN_RANGE: {
        LhRangeRequest range = {.key = op->key, .range_end = op->range_end};
        gboolean changed = server->open->events->len > 0;
        fake_do_range(server, &range, &out->range, reply);
        out->range.header = (LhEtcdHeader){.revision = server->revision + (changed ? 1 : 0)};
        break;
    }
    }
}

/* The commit keeps what was compared: for the history. */
static void keep_compares(FakeCommitFull *commit, const LhTxnRequest *txn)
{
    gsize bytes = 0;
    for (gsize i = 0; i < txn->n_compares; i++) {
        const LhCompare *from = &txn->compares[i];
        bytes += text_size(from->key) + text_size(from->range_end) + from->value_len + 1;
    }
    char *at = commit->compares_text = g_malloc0(bytes + 1);
    commit->compares = g_new0(LhCompare, txn->n_compares + 1);
    for (gsize i = 0; i < txn->n_compares; i++) {
        LhCompare *to = &commit->compares[i];
        *to = txn->compares[i];
        to->key = strcpy(at, to->key);
        at += strlen(at) + 1;
        if (to->range_end != NULL) {
            to->range_end = strcpy(at, to->range_end);
            at += strlen(at) + 1;
        }
        if (to->value_len > 0) {
            to->value = memcpy(at, to->value, to->value_len);
            at += to->value_len + 1;
        }
    }
    commit->pub.compares = commit->compares;
    commit->pub.n_compares = txn->n_compares;
}

static gboolean leases_exist(FakeEtcd *server, const LhTxnOp *ops, gsize n)
{
    for (gsize i = 0; i < n; i++) {
        if (ops[i].type == LH_TXN_PUT && ops[i].lease != 0 &&
            fake_lease_get(server, ops[i].lease) == NULL) {
            return FALSE;
        }
    }
    return TRUE;
}

void fake_do_txn(FakeEtcd *server, const FakeCall *call, gboolean late, FakeReply *reply)
{
    const LhTxnRequest *txn = &call->request.txn;
    const char *wrong = check_txn(txn);
    gboolean full = server->nospace && txn_has(txn, LH_TXN_PUT);
    gboolean succeeded = TRUE;
    if (wrong != NULL) {
        fake_reply_fail(reply, LH_ERR_INVALID, wrong);
        return;
    }
    if (full && server->nospace_commits == 0) {
        fake_reply_fail(reply, LH_ERR_NO_SPACE, "etcdserver: mvcc: database space exceeded");
        return;
    }
    for (gsize i = 0; i < txn->n_compares && succeeded; i++) {
        succeeded = compare_holds(server, &txn->compares[i]);
    }
    const LhTxnOp *ops = succeeded ? txn->success : txn->failure;
    gsize n = succeeded ? txn->n_success : txn->n_failure;
    if (!leases_exist(server, ops, n)) {
        fake_reply_fail(reply, LH_ERR_LEASE_LOST, "etcdserver: requested lease not found");
        return;
    }
    LhTxnOpReply *outs = g_new0(LhTxnOpReply, n + 1);
    g_ptr_array_add(reply->memory, outs);
    fake_store_begin(server, FAKE_BY_TXN, call->client_name);
    for (gsize i = 0; i < n; i++) {
        do_op(server, &ops[i], &outs[i], reply);
    }
    if (server->open->events->len > 0) {
        keep_compares(server->open, txn);
        server->open->pub.succeeded = succeeded;
        server->open->pub.late = late;
        server->open->pub.sent_ms = call->sent_ms;
    }
    fake_store_end(server);
    server->stats.txns++;
    server->stats.txns_failed_compare += succeeded ? 0 : 1;
    reply->txn = (LhTxnReply){fake_header(server), succeeded, outs, n};
    if (full) {
        server->nospace_commits--;
        fake_reply_fail(reply, LH_ERR_NO_SPACE, "etcdserver: mvcc: database space exceeded");
    }
}
