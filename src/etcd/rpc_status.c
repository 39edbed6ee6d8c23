/*
 * gRPC status → LH_ERR.
 *
 * Decided by the status code. Where etcd (or gRPC itself) gives one code for several meanings, the row
 * names etcd's error constant (api/v3rpc/rpctypes/error.go, or the auth store's), compared exactly; it stands before the
 * row for the code alone. First match wins.
 *
 * A write's row says UNAVAILABLE only where etcd refuses before it proposes the write to raft.
 */
#include "etcd/rpc_status.h"

#include <string.h>

enum {
    RPC_UNKNOWN = 2,
    RPC_INVALID_ARGUMENT = 3,
    RPC_NOT_FOUND = 5,
    RPC_PERMISSION_DENIED = 7,
    RPC_RESOURCE_EXHAUSTED = 8,
    RPC_FAILED_PRECONDITION = 9,
    RPC_OUT_OF_RANGE = 11,
    RPC_UNIMPLEMENTED = 12,
    RPC_UNAUTHENTICATED = 16,
};

#define LONGEST_MESSAGE 200

typedef struct {
    int status;
    const char *message; /* NULL: any */
    LhErrorCode read, write;
} StatusRow;

static const StatusRow rows[] = {
    /* As the store says it: 3.4 does not translate the errors of Alarm. */
    {RPC_UNKNOWN, "auth: invalid auth token", LH_ERR_AUTH, LH_ERR_AUTH},
    {RPC_INVALID_ARGUMENT, "etcdserver: user name is empty", LH_ERR_AUTH, LH_ERR_AUTH},
    {RPC_INVALID_ARGUMENT, "etcdserver: authentication failed, invalid user ID or password",
     LH_ERR_AUTH, LH_ERR_AUTH},
    {RPC_INVALID_ARGUMENT, "etcdserver: revision of auth store is old", LH_ERR_AUTH, LH_ERR_AUTH},
    {RPC_INVALID_ARGUMENT, NULL, LH_ERR_INVALID, LH_ERR_INVALID},
    /* Of what we call, only leases are ever not found. */
    {RPC_NOT_FOUND, NULL, LH_ERR_LEASE_LOST, LH_ERR_LEASE_LOST},
    {RPC_PERMISSION_DENIED, NULL, LH_ERR_FORBIDDEN, LH_ERR_FORBIDDEN},
    {RPC_RESOURCE_EXHAUSTED, "etcdserver: mvcc: database space exceeded", LH_ERR_NO_SPACE,
     LH_ERR_NO_SPACE},
    {RPC_RESOURCE_EXHAUSTED, "etcdserver: too many requests", LH_ERR_OVERLOADED, LH_ERR_OVERLOADED},
    /* gRPC says the same when a peer resets a stream (ENHANCE_YOUR_CALM), which proves nothing. */
    {RPC_RESOURCE_EXHAUSTED, NULL, LH_ERR_OVERLOADED, LH_ERR_UNKNOWN_OUTCOME},
    /* To Authenticate only. */
    {RPC_FAILED_PRECONDITION, "etcdserver: authentication is not enabled", LH_ERR_NOT_FOUND,
     LH_ERR_NOT_FOUND},
    {RPC_FAILED_PRECONDITION, NULL, LH_ERR_UNAVAILABLE, LH_ERR_UNAVAILABLE},
    {RPC_OUT_OF_RANGE, "etcdserver: mvcc: required revision is a future revision", LH_ERR_INVALID,
     LH_ERR_INVALID},
    {RPC_OUT_OF_RANGE, "etcdserver: too large lease TTL", LH_ERR_INVALID, LH_ERR_INVALID},
    {RPC_OUT_OF_RANGE, NULL, LH_ERR_COMPACTED, LH_ERR_COMPACTED},
    /* Not an etcd, or a proxy without its upstream: may heal, and did nothing. */
    {RPC_UNIMPLEMENTED, NULL, LH_ERR_UNAVAILABLE, LH_ERR_UNAVAILABLE},
    {RPC_UNAUTHENTICATED, NULL, LH_ERR_AUTH, LH_ERR_AUTH},
};

static gboolean row_matches(const StatusRow *row, int status, const char *message, gsize len)
{
    if (row->status != status)
        return FALSE;
    return row->message == NULL ||
           (strlen(row->message) == len && memcmp(row->message, message, len) == 0);
}

GError *lh_rpc_error(const char *method, LhRpcKind kind, int status, const char *message,
                     gsize message_len)
{
    /* Everything else (deadline, connection lost, no leader, internal, …) may have happened. */
    LhErrorCode code = kind == LH_RPC_READ ? LH_ERR_UNAVAILABLE : LH_ERR_UNKNOWN_OUTCOME;
    for (gsize i = 0; i < G_N_ELEMENTS(rows); i++) {
        if (row_matches(&rows[i], status, message, message_len)) {
            code = kind == LH_RPC_READ ? rows[i].read : rows[i].write;
            break;
        }
    }
    g_autofree char *some = message_len == 0
                                ? g_strdup("closed")
                                : g_utf8_make_valid(message,
                                                    (gssize)MIN(message_len, LONGEST_MESSAGE));
    return g_error_new(LH_ERROR, (gint)code, "etcd %s: %s (gRPC status %d)", method, some, status);
}
