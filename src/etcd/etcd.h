/*
 * The etcd client interface: one vtable, two transports (gRPC's C core; the in-memory fake of
 * tests/fakes/). What is above the vtable - lists in pages, watches that resume, leases that renew
 * themselves (list.h, watcher.h, lease.h) - is written once and is the same for both.
 *
 * Thread: all calls and all callbacks on the loop thread. A callback never runs inside the call that
 * started the operation; it runs exactly once (streams: on_closed exactly once), unless the operation
 * is cancelled, after which it never runs. Requests are copied or sent before the call returns;
 * replies belong to the client and are valid during the callback only.
 *
 * Errors (LH_ERROR): reads fail with LH_ERR_UNAVAILABLE. A write that was surely not applied fails with
 * LH_ERR_UNAVAILABLE, LH_ERR_OVERLOADED, LH_ERR_INVALID or LH_ERR_NO_SPACE (see errors.h); one whose
 * answer was lost (deadline, connection lost after sending) fails with LH_ERR_UNKNOWN_OUTCOME. Nothing is
 * retried below this interface. Only before anything was sent is UNAVAILABLE said of a write.
 *
 * Keys here are whole keys (with the prefix). range_end NULL means the single key.
 */
#pragma once

#include <glib.h>

typedef struct LhEtcd LhEtcd;
typedef struct LhEtcdStream LhEtcdStream; /* an open watch */
typedef guint64 LhCallId;                 /* 0 is never used */

#define LH_ETCD_MAX_TXN_OPS 128 /* compares, success and failure ops each (etcd default) */
#define LH_ETCD_MAX_REQUEST (1536 * 1024) /* bytes (etcd default 1.5 MiB) */
#define LH_ETCD_DEADLINE_MS 5000          /* default deadline of a unary call */

typedef struct {
    guint64 cluster_id;
    guint64 member_id;
    gint64 revision; /* 0 when the server sent none (watch cancellation by compaction) */
    guint64 raft_term;
} LhEtcdHeader;

typedef struct {
    const char *key; /* NUL-terminated copy; key_len without it (a key may hold any bytes) */
    gsize key_len;
    const char *value; /* NUL-terminated copy */
    gsize value_len;
    gint64 create_rev, mod_rev, version, lease;
} LhKv;

typedef struct {
    const char *key;
    const char *range_end;
    gint64 revision; /* 0: newest */
    gint64 limit;    /* 0: all */
    gboolean serializable;
    gboolean keys_only;
    gboolean count_only;
} LhRangeRequest;

typedef struct {
    LhEtcdHeader header;
    const LhKv *kvs;
    gsize n_kvs;
    gint64 count; /* of the whole range, whatever the limit */
    gboolean more;
} LhRangeReply;

typedef enum {
    LH_CMP_VERSION,
    LH_CMP_CREATE,
    LH_CMP_MOD,
    LH_CMP_VALUE,
    LH_CMP_LEASE
} LhCompareTarget;
typedef enum { LH_CMP_EQUAL, LH_CMP_GREATER, LH_CMP_LESS, LH_CMP_NOT_EQUAL } LhCompareResult;

/* With a range_end every key in the range must satisfy the compare; an empty range is compared as one
 * key whose numbers are 0 and whose VALUE equals nothing.
 * "no key under P exists": key P, range_end, target CREATE, EQUAL, 0. */
typedef struct {
    const char *key;
    const char *range_end;
    LhCompareTarget target;
    LhCompareResult result;
    gint64 number;     /* for all targets but VALUE */
    const char *value; /* for VALUE */
    gsize value_len;
} LhCompare;

typedef enum { LH_TXN_PUT, LH_TXN_DELETE, LH_TXN_RANGE } LhTxnOpType;

typedef struct {
    LhTxnOpType type;
    const char *key;
    const char *range_end; /* DELETE and RANGE */
    const char *value;     /* PUT */
    gsize value_len;
    gint64 lease; /* PUT: 0 for none */
} LhTxnOp;

typedef struct {
    const LhCompare *compares;
    gsize n_compares;
    const LhTxnOp *success;
    gsize n_success;
    const LhTxnOp *failure;
    gsize n_failure;
} LhTxnRequest;

typedef struct {
    LhTxnOpType type;
    gint64 deleted;     /* DELETE */
    LhRangeReply range; /* RANGE */
} LhTxnOpReply;

typedef struct {
    LhEtcdHeader header;
    gboolean succeeded;
    const LhTxnOpReply *ops; /* one for each op of the branch taken */
    gsize n_ops;
} LhTxnReply;

typedef struct {
    gboolean is_delete;
    LhKv kv; /* DELETE: key and mod_rev only */
} LhEtcdEvent;

typedef struct {
    LhEtcdHeader header;
    gboolean created;
    gboolean canceled;
    gboolean fragment; /* more of the same revision follows */
    gboolean
        progress; /* no events: everything up to header.revision has been delivered, if the version
                        * of etcd is one that can be trusted (lh_etcd_progress_trusted) */
    gint64 compact_revision; /* not 0: the start was compacted */
    const char *reason;      /* canceled: etcd's words, for people; may be NULL or empty */
    const LhEtcdEvent *events;
    gsize n_events;
} LhWatchReply;

typedef struct {
    const char *key;
    const char *range_end;
    gint64 start_revision; /* 0: from now on */
} LhWatchRequest;

typedef struct {
    LhEtcdHeader header;
    char version[32];
    gint64 db_size_bytes;
    guint64
        leader; /* member id, 0: none; then the alarms are not known (a quorum lists them): FALSE */
    gboolean alarm_nospace;
    gboolean alarm_corrupt;
} LhStatusReply;

typedef void (*LhRangeFunc)(const LhRangeReply *reply, const GError *error, gpointer data);
typedef void (*LhTxnFunc)(const LhTxnReply *reply, const GError *error, gpointer data);
/* Lease calls: @lease and @ttl_s are 0 on error. A keepalive of an unknown lease answers ttl 0. */
typedef void (*LhLeaseFunc)(gint64 lease, gint64 ttl_s, const GError *error, gpointer data);
typedef void (*LhStatusFunc)(const LhStatusReply *reply, const GError *error, gpointer data);
typedef void (*LhWatchReplyFunc)(const LhWatchReply *reply, gpointer data);
typedef void (*LhWatchClosedFunc)(const GError *error, gpointer data);

typedef struct {
    LhCallId (*range)(LhEtcd *etcd, const LhRangeRequest *request, gint64 deadline_ms,
                      LhRangeFunc func, gpointer data);
    LhCallId (*txn)(LhEtcd *etcd, const LhTxnRequest *request, gint64 deadline_ms, LhTxnFunc func,
                    gpointer data);
    LhCallId (*lease_grant)(LhEtcd *etcd, gint64 ttl_s, gint64 deadline_ms, LhLeaseFunc func,
                            gpointer data);
    LhCallId (*lease_keepalive)(LhEtcd *etcd, gint64 lease, gint64 deadline_ms, LhLeaseFunc func,
                                gpointer data);
    LhCallId (*lease_revoke)(LhEtcd *etcd, gint64 lease, gint64 deadline_ms, LhLeaseFunc func,
                             gpointer data);
    LhCallId (*status)(LhEtcd *etcd, gint64 deadline_ms, LhStatusFunc func, gpointer data);
    void (*cancel)(LhEtcd *etcd, LhCallId call); /* an id that has ended is ignored */

    /* After a reply with canceled nothing more comes but perhaps on_closed: close it. The handle is gone
     * when on_closed is called. watch_close may be called inside on_reply. */
    LhEtcdStream *(*watch)(LhEtcd *etcd, const LhWatchRequest *request, LhWatchReplyFunc on_reply,
                           LhWatchClosedFunc on_closed, gpointer data);
    void (*watch_progress)(LhEtcd *etcd, LhEtcdStream *stream); /* asks for a progress reply */
    void (*watch_close)(LhEtcd *etcd, LhEtcdStream *stream);    /* no callback runs after it */

    void (*free)(LhEtcd *etcd); /* cancels everything; no callback runs after it */
} LhEtcdVtable;

struct LhEtcd {
    const LhEtcdVtable *v;
};

/* Refuses (LH_ERR_INVALID) transactions of more than LH_ETCD_MAX_TXN_OPS compares or ops in a branch, and
 * requests that could exceed LH_ETCD_MAX_REQUEST: an upper bound is computed, 64 bytes for each compare
 * and op on top of its keys and value. Every transport's txn() asks it first and reports its error through
 * the callback: a wrapper could not, because only a transport can post to the loop. */
gboolean lh_etcd_txn_check(const LhTxnRequest *request, GError **error);

/* Whether a progress reply of an etcd of this version ("3.4.23") proves that all events up to its
 * revision have been delivered: 3.4.25, 3.5.8 and later. Before, it could overtake events. */
gboolean lh_etcd_progress_trusted(const char *version);

/* Thin wrappers with the default deadline. */
LhCallId lh_etcd_range(LhEtcd *etcd, const LhRangeRequest *request, LhRangeFunc func,
                       gpointer data);
LhCallId lh_etcd_txn(LhEtcd *etcd, const LhTxnRequest *request, LhTxnFunc func, gpointer data);
LhCallId lh_etcd_status(LhEtcd *etcd, LhStatusFunc func, gpointer data);
/* Cancels *@call if it is not 0, and sets it to 0. For a write the outcome is then unknown. */
void lh_etcd_cancel(LhEtcd *etcd, LhCallId *call);
void lh_etcd_free(LhEtcd *etcd); /* accepts NULL */

/* The end of the range of all keys that begin with @prefix; @prefix must end with '/' or '.'.
 * Free with g_free. */
char *lh_etcd_prefix_end(const char *prefix);

/* Helpers that fill the structs above. */
LhCompare lh_compare_mod(const char *key, gint64 mod_rev);       /* 0: must not exist */
LhCompare lh_compare_create(const char *key, gint64 create_rev); /* 0: must not exist */
LhTxnOp lh_txn_put(const char *key, const char *value, gint64 lease);
LhTxnOp lh_txn_delete(const char *key);
LhTxnOp lh_txn_range(const char *key);
