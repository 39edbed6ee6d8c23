/*
 * A real etcd behind the vtable of etcd.h: etcd's methods over rpc.h (transport_grpc.h is the header).
 *
 * It gives calls their ids, sees to it that they carry a token, and makes one status of two calls. It
 * must not retry anything, what is above the vtable decides that; but for a call that etcd refused only
 * for its token (etcd looks at that before it proposes a write, and again before it applies one), which
 * is sent once more with a new one.
 */
#include "base/errors.h"
#include "etcd/auth.h"
#include "etcd/endpoints.h"
#include "etcd/keepalive_streams.h"
#include "etcd/rpc.h"
#include "etcd/transport_grpc.h"

#define TOKEN_DEADLINE_MS 5000 /* of a watch that waits for one */

typedef enum {
    M_RANGE,
    M_TXN,
    M_GRANT,
    M_REVOKE,
    M_STATUS,
    M_ALARMS,
    M_WATCH,
    M_KEEPALIVE,
    M_AUTHENTICATE,
    N_METHODS
} Method;

#define LEASE     .lease = TRUE
#define ALONE     .alone = TRUE
#define ANONYMOUS .anonymous = TRUE

static const LhRpcMethod methods[N_METHODS] = {
    [M_RANGE] = {"Range", "/etcdserverpb.KV/Range", LH_RPC_READ, .decode = lh_codec_range_reply},
    [M_TXN] = {"Txn", "/etcdserverpb.KV/Txn", LH_RPC_WRITE, .decode = lh_codec_txn_reply},
    [M_GRANT] = {"LeaseGrant", "/etcdserverpb.Lease/LeaseGrant", LH_RPC_WRITE, LEASE,
                 .decode = lh_codec_grant_reply},
    [M_REVOKE] = {"LeaseRevoke", "/etcdserverpb.Lease/LeaseRevoke", LH_RPC_WRITE, LEASE,
                  .decode = lh_codec_revoke_reply},
    [M_STATUS] = {"Status", "/etcdserverpb.Maintenance/Status", LH_RPC_READ, ALONE,
                  .decode = lh_codec_status_reply},
    [M_ALARMS] = {"Alarm", "/etcdserverpb.Maintenance/Alarm", LH_RPC_READ,
                  .decode = lh_codec_alarms_reply},
    [M_WATCH] = {"Watch", "/etcdserverpb.Watch/Watch", LH_RPC_READ, ALONE,
                 .decode = lh_codec_watch_reply},
    [M_KEEPALIVE] = {"LeaseKeepAlive", "/etcdserverpb.Lease/LeaseKeepAlive", LH_RPC_READ, LEASE,
                     .decode = lh_codec_keepalive_reply},
    [M_AUTHENTICATE] = {"Authenticate", "/etcdserverpb.Auth/Authenticate", LH_RPC_READ, ANONYMOUS,
                        .decode = lh_codec_authenticate_reply},
};

typedef struct {
    LhEtcd base; /* first */
    LhRpc *rpc;
    LhAuth *auth;        /* NULL: no password */
    GHashTable *calls;   /* &Call.id → Call, owned; unary calls that may still call back */
    GHashTable *watches; /* set of LhEtcdStream, owned */
    LhCallId last_id;
    LhKeepaliveStreams *keepalives;
} Remote;

typedef struct {
    LhCallId id; /* first */
    Remote *remote;
    LhRpcCall *rpc;    /* under way, or */
    LhAuthWait *token; /* waited for */
    union {
        LhRangeFunc range;
        LhTxnFunc txn;
        LhLeaseFunc lease;
        LhStatusFunc status;
    } func;
    gpointer data;
    gint64 deadline_us;
    LhStatusReply status; /* what Status answered, while Alarm is under way */

    /* To send it once more; only with a password. */
    Method method;
    LhRpcFunc ended;
    LhBytes request; /* data NULL: it has been sent for the last time */
    guint token_number;
} Call;

struct LhEtcdStream {
    Remote *remote;
    LhRpcStream *rpc;  /* open, or */
    LhAuthWait *token; /* waited for */
    LhBytes request;   /* data NULL: it has been sent for the last time */
    guint token_number;
    LhWatchReplyFunc on_reply;
    LhWatchClosedFunc on_closed;
    gpointer data;
};

static LhBytes copy_bytes(LhBytes bytes)
{
    return (LhBytes){.data = g_memdup2(bytes.data, MAX(bytes.len, 1)), .len = bytes.len};
}

/* --- unary calls --- */

static void call_free(gpointer data)
{
    Call *call = data;
    g_free(call->request.data);
    g_free(call);
}

static Call *call_new(LhEtcd *etcd, gpointer data)
{
    Remote *remote = (Remote *)etcd;
    Call *call = g_new0(Call, 1);
    call->id = ++remote->last_id;
    call->remote = remote;
    call->data = data;
    g_hash_table_insert(remote->calls, &call->id, call);
    return call;
}

static void wait_for_token(Call *call);

/* Between the reply and the method's own function. */
static void on_reply_with_token(gpointer reply, const GError *error, gpointer data)
{
    Call *call = data;
    call->rpc = NULL;
    if (!g_error_matches(error, LH_ERROR, LH_ERR_AUTH)) {
        call->ended(reply, error, call);
        return;
    }
    lh_auth_refused(call->remote->auth, call->token_number);
    if (call->request.data == NULL)
        call->ended(NULL, error, call);
    else
        wait_for_token(call);
}

/* @last: not once more. */
static void send_with_token(Call *call, gboolean last)
{
    gint64 remaining_ms = (call->deadline_us - g_get_monotonic_time()) / 1000;
    LhBytes request = last ? call->request : copy_bytes(call->request);
    if (last)
        call->request = (LhBytes){0};
    call->token_number = lh_auth_number(call->remote->auth);
    call->rpc = lh_rpc_call(call->remote->rpc, call->method, request, remaining_ms,
                            on_reply_with_token, call);
}

static void on_token(const GError *error, gpointer data)
{
    Call *call = data;
    call->token = NULL;
    if (error != NULL)
        call->ended(NULL, error, call);
    else
        send_with_token(call, call->token_number != 0);
}

static void wait_for_token(Call *call)
{
    if (lh_auth_ready(call->remote->auth))
        send_with_token(call, TRUE);
    else
        call->token = lh_auth_wait(call->remote->auth, call->deadline_us, on_token, call);
}

/* @request is taken over. */
static void send(Call *call, Method method, LhBytes request, gint64 deadline_ms, LhRpcFunc ended)
{
    Remote *remote = call->remote;
    if (remote->auth == NULL) {
        call->rpc = lh_rpc_call(remote->rpc, method, request, deadline_ms, ended, call);
        return;
    }
    call->method = method;
    call->ended = ended;
    g_free(call->request.data);
    call->request = request;
    call->token_number = 0;
    call->deadline_us = g_get_monotonic_time() + MAX(deadline_ms, 1) * 1000;
    if (lh_auth_ready(remote->auth))
        send_with_token(call, FALSE);
    else
        call->token = lh_auth_wait(remote->auth, call->deadline_us, on_token, call);
}

/* The call has ended. Its callback runs with the copy, and may free the transport. */
static Call take(Call *call)
{
    Call copy = *call;
    copy.request = (LhBytes){0};
    g_hash_table_remove(call->remote->calls, &call->id);
    return copy;
}

static void on_range(gpointer reply, const GError *error, gpointer data)
{
    Call call = take(data);
    call.func.range(reply, error, call.data);
}

static void on_txn(gpointer reply, const GError *error, gpointer data)
{
    Call call = take(data);
    call.func.txn(reply, error, call.data);
}

static void on_grant(gpointer reply, const GError *error, gpointer data)
{
    Call call = take(data);
    const LhLeaseReply *lease = reply;
    call.func.lease(lease != NULL ? lease->lease : 0, lease != NULL ? lease->ttl_s : 0, error,
                    call.data);
}

static void on_revoke(G_GNUC_UNUSED gpointer reply, const GError *error, gpointer data)
{
    Call call = take(data);
    call.func.lease(0, 0, error, call.data);
}

static void on_alarms(gpointer reply, const GError *error, gpointer data)
{
    Call call = take(data);
    const LhStatusReply *alarms = reply;
    if (alarms != NULL) {
        call.status.alarm_nospace = alarms->alarm_nospace;
        call.status.alarm_corrupt = alarms->alarm_corrupt;
    }
    call.func.status(alarms != NULL ? &call.status : NULL, error, call.data);
}

/* Only Alarm tells the alarms, and it needs a quorum. */
static void on_status(gpointer reply, const GError *error, gpointer data)
{
    Call *call = data;
    const LhStatusReply *status = reply;
    if (status == NULL || status->leader == 0) {
        Call ended = take(call);
        ended.func.status(status, error, ended.data);
        return;
    }
    call->status = *status;
    gint64 remaining_ms = (call->deadline_us - g_get_monotonic_time()) / 1000;
    send(call, M_ALARMS, lh_codec_alarms(), remaining_ms, on_alarms);
}

static LhCallId etcd_range(LhEtcd *etcd, const LhRangeRequest *request, gint64 deadline_ms,
                           LhRangeFunc func, gpointer data)
{
    Call *call = call_new(etcd, data);
    call->func.range = func;
    send(call, M_RANGE, lh_codec_range(request), deadline_ms, on_range);
    return call->id;
}

static LhCallId etcd_txn(LhEtcd *etcd, const LhTxnRequest *request, gint64 deadline_ms,
                         LhTxnFunc func, gpointer data)
{
    GError *error = NULL;
    Call *call = call_new(etcd, data);
    call->func.txn = func;
    if (lh_etcd_txn_check(request, &error))
        send(call, M_TXN, lh_codec_txn(request), deadline_ms, on_txn);
    else
        call->rpc = lh_rpc_refuse(call->remote->rpc, error, on_txn, call);
    return call->id;
}

static LhCallId etcd_lease_grant(LhEtcd *etcd, gint64 ttl_s, gint64 deadline_ms, LhLeaseFunc func,
                                 gpointer data)
{
    Call *call = call_new(etcd, data);
    call->func.lease = func;
    send(call, M_GRANT, lh_codec_lease_grant(ttl_s), deadline_ms, on_grant);
    return call->id;
}

static LhCallId etcd_lease_revoke(LhEtcd *etcd, gint64 lease, gint64 deadline_ms, LhLeaseFunc func,
                                  gpointer data)
{
    Call *call = call_new(etcd, data);
    call->func.lease = func;
    send(call, M_REVOKE, lh_codec_lease_revoke(lease), deadline_ms, on_revoke);
    return call->id;
}

static LhCallId etcd_status(LhEtcd *etcd, gint64 deadline_ms, LhStatusFunc func, gpointer data)
{
    Call *call = call_new(etcd, data);
    call->func.status = func;
    call->deadline_us = g_get_monotonic_time() + deadline_ms * 1000;
    send(call, M_STATUS, lh_codec_status(), deadline_ms, on_status);
    return call->id;
}

static void etcd_cancel(LhEtcd *etcd, LhCallId id)
{
    Remote *remote = (Remote *)etcd;
    const Call *call = g_hash_table_lookup(remote->calls, &id);
    if (call == NULL) {
        lh_keepalive_streams_cancel(remote->keepalives, id);
        return;
    }
    if (call->rpc != NULL)
        lh_rpc_cancel(call->rpc);
    else
        lh_auth_cancel(remote->auth, call->token);
    g_hash_table_remove(remote->calls, &id);
}

static LhCallId etcd_lease_keepalive(LhEtcd *etcd, gint64 lease, gint64 deadline_ms,
                                     LhLeaseFunc func, gpointer data)
{
    Remote *remote = (Remote *)etcd;
    LhCallId id = ++remote->last_id;
    lh_keepalive_streams_ask(remote->keepalives, id, lease, deadline_ms, func, data);
    return id;
}

/* --- watches --- */

static void stream_free(gpointer data)
{
    LhEtcdStream *stream = data;
    g_free(stream->request.data);
    g_free(stream);
}

static void end_watch(LhEtcdStream *stream, const GError *error)
{
    LhWatchClosedFunc on_closed = stream->on_closed;
    gpointer data = stream->data;
    g_hash_table_remove(stream->remote->watches, stream);
    on_closed(error, data);
}

static void wait_and_open(LhEtcdStream *stream);

/* etcd refuses a watch whose token it does not know like one that is not permitted: a new token tells
 * which it was. Only the first reply is such a refusal. */
static void on_watch_reply(gpointer reply, gpointer data)
{
    LhEtcdStream *stream = data;
    const LhWatchReply *watch = reply;
    gboolean again = stream->request.data != NULL && watch->created && watch->canceled &&
                     watch->compact_revision == 0;
    if (again) {
        lh_rpc_drop(stream->rpc);
        stream->rpc = NULL;
        lh_auth_refused(stream->remote->auth, stream->token_number);
        wait_and_open(stream);
        return;
    }
    g_clear_pointer(&stream->request.data, g_free);
    stream->on_reply(watch, stream->data);
}

static void on_watch_closed(const GError *error, gpointer data)
{
    LhEtcdStream *stream = data;
    if (stream->remote->auth != NULL && g_error_matches(error, LH_ERROR, LH_ERR_AUTH))
        lh_auth_refused(stream->remote->auth, stream->token_number);
    end_watch(stream, error);
}

static void open_watch(LhEtcdStream *stream, LhBytes request)
{
    Remote *remote = stream->remote;
    stream->token_number = remote->auth != NULL ? lh_auth_number(remote->auth) : 0;
    stream->rpc = lh_rpc_open(remote->rpc, M_WATCH, request, on_watch_reply, on_watch_closed,
                              stream);
}

static void on_watch_token(const GError *error, gpointer data)
{
    LhEtcdStream *stream = data;
    stream->token = NULL;
    if (error != NULL) {
        end_watch(stream, error);
        return;
    }
    gboolean last = stream->token_number != 0;
    open_watch(stream, last ? stream->request : copy_bytes(stream->request));
    if (last)
        stream->request = (LhBytes){0};
}

static void wait_and_open(LhEtcdStream *stream)
{
    gint64 deadline_us = g_get_monotonic_time() + TOKEN_DEADLINE_MS * 1000;
    stream->token = lh_auth_wait(stream->remote->auth, deadline_us, on_watch_token, stream);
}

static LhEtcdStream *etcd_watch(LhEtcd *etcd, const LhWatchRequest *request,
                                LhWatchReplyFunc on_reply, LhWatchClosedFunc on_closed,
                                gpointer data)
{
    Remote *remote = (Remote *)etcd;
    LhEtcdStream *stream = g_new0(LhEtcdStream, 1);
    LhBytes bytes = lh_codec_watch_create(request);
    g_hash_table_add(remote->watches, stream);
    stream->remote = remote;
    stream->on_reply = on_reply;
    stream->on_closed = on_closed;
    stream->data = data;
    if (remote->auth == NULL) {
        open_watch(stream, bytes);
        return stream;
    }
    stream->request = bytes;
    if (lh_auth_fresh(remote->auth))
        open_watch(stream, copy_bytes(bytes));
    else
        wait_and_open(stream);
    return stream;
}

static void etcd_watch_progress(G_GNUC_UNUSED LhEtcd *etcd, LhEtcdStream *stream)
{
    if (stream->rpc != NULL)
        lh_rpc_send(stream->rpc, lh_codec_watch_progress());
}

static void etcd_watch_close(G_GNUC_UNUSED LhEtcd *etcd, LhEtcdStream *stream)
{
    if (stream->rpc != NULL)
        lh_rpc_drop(stream->rpc);
    if (stream->token != NULL)
        lh_auth_cancel(stream->remote->auth, stream->token);
    g_hash_table_remove(stream->remote->watches, stream);
}

/* --- the whole --- */

static void etcd_free(LhEtcd *etcd)
{
    Remote *remote = (Remote *)etcd;
    lh_rpc_free(remote->rpc);
    lh_keepalive_streams_free(remote->keepalives);
    lh_auth_free(remote->auth);
    g_hash_table_unref(remote->calls);
    g_hash_table_unref(remote->watches);
    g_free(remote);
}

static const LhEtcdVtable vtable = {
    .range = etcd_range,
    .txn = etcd_txn,
    .lease_grant = etcd_lease_grant,
    .lease_keepalive = etcd_lease_keepalive,
    .lease_revoke = etcd_lease_revoke,
    .status = etcd_status,
    .cancel = etcd_cancel,
    .watch = etcd_watch,
    .watch_progress = etcd_watch_progress,
    .watch_close = etcd_watch_close,
    .free = etcd_free,
};

LhEtcd *lh_etcd_grpc_new(const LhEtcdOptions *options, GMainContext *context, GError **error)
{
    g_auto(LhEndpoints) endpoints = {0};
    if (!lh_endpoints_check(options, NULL, NULL, &endpoints, error))
        return NULL;
    const LhRpcServers servers = {.urls = (const char *const *)endpoints.urls,
                                  .targets = (const char *const *)endpoints.targets,
                                  .tls = endpoints.tls,
                                  .cacert = options->cacert,
                                  .cert = options->cert,
                                  .key = options->key};
    Remote *remote = g_new0(Remote, 1);
    remote->base.v = &vtable;
    remote->rpc = lh_rpc_new(&servers, methods, N_METHODS, context);
    if (options->user != NULL)
        remote->auth = lh_auth_new(remote->rpc, M_AUTHENTICATE, options->user,
                                   options->password_file, context);
    remote->calls = g_hash_table_new_full(g_int64_hash, g_int64_equal, NULL, call_free);
    remote->watches = g_hash_table_new_full(NULL, NULL, stream_free, NULL);
    remote->keepalives = lh_keepalive_streams_new(remote->rpc, M_KEEPALIVE, context);
    return &remote->base;
}

const char *lh_etcd_grpc_endpoint(const LhEtcd *etcd)
{
    const Remote *remote = (const Remote *)etcd;
    return lh_rpc_url(remote->rpc, lh_rpc_endpoint(remote->rpc, M_RANGE));
}
