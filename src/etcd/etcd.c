/*
 * What every etcd transport shares: the wrappers with the default deadline, the check that refuses a
 * transaction etcd would refuse, and the helpers that fill requests.
 *
 * It knows no wire format and keeps no state.
 */
#include "etcd/etcd.h"

#include "base/errors.h"

#include <string.h>

/* More than the protobuf tags, lengths and numbers of one compare or op can take, and of the raft
 * request that etcd wraps around the transaction before it compares with its limit. */
#define OP_OVERHEAD_BYTES  64
#define TXN_OVERHEAD_BYTES 512

static gsize text_bytes(const char *text)
{
    return text != NULL ? strlen(text) : 0;
}

static gsize ops_bytes(const LhTxnOp *ops, gsize n)
{
    gsize sum = 0;
    for (gsize i = 0; i < n; i++)
        sum += text_bytes(ops[i].key) + text_bytes(ops[i].range_end) + ops[i].value_len +
               OP_OVERHEAD_BYTES;
    return sum;
}

gboolean lh_etcd_txn_check(const LhTxnRequest *request, GError **error)
{
    gsize most = MAX(request->n_compares, MAX(request->n_success, request->n_failure));
    if (most > LH_ETCD_MAX_TXN_OPS) {
        g_set_error(error, LH_ERROR, LH_ERR_INVALID,
                    "transaction of %zu compares, %zu and %zu ops: at most %d of each",
                    request->n_compares, request->n_success, request->n_failure,
                    LH_ETCD_MAX_TXN_OPS);
        return FALSE;
    }
    gsize sum = TXN_OVERHEAD_BYTES + ops_bytes(request->success, request->n_success) +
                ops_bytes(request->failure, request->n_failure);
    for (gsize i = 0; i < request->n_compares; i++) {
        const LhCompare *compare = &request->compares[i];
        sum += text_bytes(compare->key) + text_bytes(compare->range_end) + compare->value_len +
               OP_OVERHEAD_BYTES;
    }
    if (sum > LH_ETCD_MAX_REQUEST) {
        g_set_error(error, LH_ERROR, LH_ERR_INVALID, "transaction of about %zu bytes: at most %d",
                    sum, LH_ETCD_MAX_REQUEST);
        return FALSE;
    }
    return TRUE;
}

LhCallId lh_etcd_range(LhEtcd *etcd, const LhRangeRequest *request, LhRangeFunc func, gpointer data)
{
    return etcd->v->range(etcd, request, LH_ETCD_DEADLINE_MS, func, data);
}

LhCallId lh_etcd_txn(LhEtcd *etcd, const LhTxnRequest *request, LhTxnFunc func, gpointer data)
{
    return etcd->v->txn(etcd, request, LH_ETCD_DEADLINE_MS, func, data);
}

LhCallId lh_etcd_status(LhEtcd *etcd, LhStatusFunc func, gpointer data)
{
    return etcd->v->status(etcd, LH_ETCD_DEADLINE_MS, func, data);
}

void lh_etcd_cancel(LhEtcd *etcd, LhCallId *call)
{
    if (*call == 0)
        return;
    etcd->v->cancel(etcd, *call);
    *call = 0;
}

void lh_etcd_free(LhEtcd *etcd)
{
    if (etcd != NULL)
        etcd->v->free(etcd);
}

gboolean lh_etcd_progress_trusted(const char *version)
{
    char *end = NULL;
    guint64 major = g_ascii_strtoull(version, &end, 10);
    if (end == version || *end != '.')
        return FALSE;
    guint64 minor = g_ascii_strtoull(end + 1, &end, 10);
    guint64 patch = *end == '.' ? g_ascii_strtoull(end + 1, &end, 10) : 0;
    /* A release candidate ("3.5.8-rc.1") is older than its release. */
    if (*end != '\0' && *end != '+')
        patch = patch > 0 ? patch - 1 : 0;
    if (major != 3)
        return major > 3;
    if (minor == 4)
        return patch >= 25;
    if (minor == 5)
        return patch >= 8;
    return minor > 5;
}

char *lh_etcd_prefix_end(const char *prefix)
{
    gsize len = strlen(prefix);
    g_assert(len > 0 && (prefix[len - 1] == '/' || prefix[len - 1] == '.'));
    char *end = g_strdup(prefix);
    end[len - 1]++;
    return end;
}

LhCompare lh_compare_mod(const char *key, gint64 mod_rev)
{
    return (LhCompare){.key = key, .target = LH_CMP_MOD, .result = LH_CMP_EQUAL, .number = mod_rev};
}

LhCompare lh_compare_create(const char *key, gint64 create_rev)
{
    return (LhCompare){
        .key = key, .target = LH_CMP_CREATE, .result = LH_CMP_EQUAL, .number = create_rev};
}

LhTxnOp lh_txn_put(const char *key, const char *value, gint64 lease)
{
    return (LhTxnOp){
        .type = LH_TXN_PUT, .key = key, .value = value, .value_len = strlen(value), .lease = lease};
}

LhTxnOp lh_txn_delete(const char *key)
{
    return (LhTxnOp){.type = LH_TXN_DELETE, .key = key};
}

LhTxnOp lh_txn_range(const char *key)
{
    return (LhTxnOp){.type = LH_TXN_RANGE, .key = key};
}
