/*
 * A real etcd behind the vtable of etcd.h: etcd's methods over rpc.h (transport_grpc.h is the header).
 *
 * It gives calls their ids, shares one stream between all keepalives, and makes one status of two calls.
 * It must not retry anything: what is above the vtable decides that.
 */
#include "base/errors.h"
#include "etcd/keepalive.h"
#include "etcd/rpc.h"
#include "etcd/transport_grpc.h"

#include <string.h>

/* Keepalives without an answer that make a stream useless. */
#define GIVEN_UP_AT_MOST 3

typedef enum {
    M_RANGE,
    M_TXN,
    M_GRANT,
    M_REVOKE,
    M_STATUS,
    M_ALARMS,
    M_WATCH,
    M_KEEPALIVE,
    N_METHODS
} Method;

static const LhRpcMethod methods[N_METHODS] = {
    [M_RANGE] = {"Range", "/etcdserverpb.KV/Range", LH_RPC_READ, FALSE, lh_codec_range_reply},
    [M_TXN] = {"Txn", "/etcdserverpb.KV/Txn", LH_RPC_WRITE, FALSE, lh_codec_txn_reply},
    [M_GRANT] = {"LeaseGrant", "/etcdserverpb.Lease/LeaseGrant", LH_RPC_WRITE, TRUE,
                 lh_codec_grant_reply},
    [M_REVOKE] = {"LeaseRevoke", "/etcdserverpb.Lease/LeaseRevoke", LH_RPC_WRITE, TRUE,
                  lh_codec_revoke_reply},
    [M_STATUS] = {"Status", "/etcdserverpb.Maintenance/Status", LH_RPC_READ, FALSE,
                  lh_codec_status_reply},
    [M_ALARMS] = {"Alarm", "/etcdserverpb.Maintenance/Alarm", LH_RPC_READ, FALSE,
                  lh_codec_alarms_reply},
    [M_WATCH] = {"Watch", "/etcdserverpb.Watch/Watch", LH_RPC_READ, FALSE, lh_codec_watch_reply},
    [M_KEEPALIVE] = {"LeaseKeepAlive", "/etcdserverpb.Lease/LeaseKeepAlive", LH_RPC_READ, TRUE,
                     lh_codec_keepalive_reply},
};

typedef struct {
    LhEtcd base; /* first */
    LhRpc *rpc;
    GHashTable *calls;   /* &Call.id → Call, owned; unary calls that may still call back */
    GHashTable *watches; /* set of LhEtcdStream, owned */
    LhCallId last_id;
    GSource *timer; /* the next deadline of a keepalive */
    LhRpcStream *lease_stream;
    LhKeepalives keepalives;
    gboolean freed;
} Remote;

typedef struct {
    LhCallId id; /* first */
    Remote *remote;
    LhRpcCall *rpc;
    union {
        LhRangeFunc range;
        LhTxnFunc txn;
        LhLeaseFunc lease;
        LhStatusFunc status;
    } func;
    gpointer data;
    gint64 deadline_us;   /* of Status, for Alarm */
    LhStatusReply status; /* what Status answered, while Alarm is under way */
} Call;

struct LhEtcdStream {
    Remote *remote;
    LhRpcStream *rpc;
    LhWatchReplyFunc on_reply;
    LhWatchClosedFunc on_closed;
    gpointer data;
};

/* --- unary calls --- */

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

/* The call has ended. Its callback runs with the copy, and may free the transport. */
static Call take(Call *call)
{
    Call copy = *call;
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
    call->rpc = lh_rpc_call(call->remote->rpc, M_ALARMS, lh_codec_alarms(), remaining_ms, on_alarms,
                            call);
}

static LhCallId etcd_range(LhEtcd *etcd, const LhRangeRequest *request, gint64 deadline_ms,
                           LhRangeFunc func, gpointer data)
{
    Call *call = call_new(etcd, data);
    call->func.range = func;
    call->rpc = lh_rpc_call(call->remote->rpc, M_RANGE, lh_codec_range(request), deadline_ms,
                            on_range, call);
    return call->id;
}

static LhCallId etcd_txn(LhEtcd *etcd, const LhTxnRequest *request, gint64 deadline_ms,
                         LhTxnFunc func, gpointer data)
{
    GError *error = NULL;
    Call *call = call_new(etcd, data);
    call->func.txn = func;
    if (lh_etcd_txn_check(request, &error))
        call->rpc = lh_rpc_call(call->remote->rpc, M_TXN, lh_codec_txn(request), deadline_ms,
                                on_txn, call);
    else
        call->rpc = lh_rpc_refuse(call->remote->rpc, error, on_txn, call);
    return call->id;
}

static LhCallId etcd_lease_grant(LhEtcd *etcd, gint64 ttl_s, gint64 deadline_ms, LhLeaseFunc func,
                                 gpointer data)
{
    Call *call = call_new(etcd, data);
    call->func.lease = func;
    call->rpc = lh_rpc_call(call->remote->rpc, M_GRANT, lh_codec_lease_grant(ttl_s), deadline_ms,
                            on_grant, call);
    return call->id;
}

static LhCallId etcd_lease_revoke(LhEtcd *etcd, gint64 lease, gint64 deadline_ms, LhLeaseFunc func,
                                  gpointer data)
{
    Call *call = call_new(etcd, data);
    call->func.lease = func;
    call->rpc = lh_rpc_call(call->remote->rpc, M_REVOKE, lh_codec_lease_revoke(lease), deadline_ms,
                            on_revoke, call);
    return call->id;
}

static LhCallId etcd_status(LhEtcd *etcd, gint64 deadline_ms, LhStatusFunc func, gpointer data)
{
    Call *call = call_new(etcd, data);
    call->func.status = func;
    call->deadline_us = g_get_monotonic_time() + deadline_ms * 1000;
    call->rpc = lh_rpc_call(call->remote->rpc, M_STATUS, lh_codec_status(), deadline_ms, on_status,
                            call);
    return call->id;
}

static void etcd_cancel(LhEtcd *etcd, LhCallId id)
{
    Remote *remote = (Remote *)etcd;
    const Call *call = g_hash_table_lookup(remote->calls, &id);
    if (call == NULL) {
        lh_keepalives_cancel(&remote->keepalives, id);
        return;
    }
    lh_rpc_cancel(call->rpc);
    g_hash_table_remove(remote->calls, &id);
}

/* --- keepalives --- */

static void set_timer(Remote *remote)
{
    gint64 deadline_us = lh_keepalives_next_deadline(&remote->keepalives);
    g_source_set_ready_time(remote->timer, deadline_us == G_MAXINT64 ? -1 : deadline_us);
}

/* The caller holds a reference: the callbacks may free the transport. */
static void abandon_stream(Remote *remote, const char *why)
{
    g_autoptr(GError) error = g_error_new(LH_ERROR, LH_ERR_UNAVAILABLE, "etcd LeaseKeepAlive: %s",
                                          why);
    lh_rpc_drop(remote->lease_stream);
    remote->lease_stream = NULL;
    lh_keepalives_fail(&remote->keepalives, error);
}

typedef struct {
    GSource base;
    Remote *remote;
} Timer;

static gboolean dispatch_timer(GSource *source, G_GNUC_UNUSED GSourceFunc func,
                               G_GNUC_UNUSED gpointer data)
{
    Remote *remote = g_rc_box_acquire(((Timer *)source)->remote);
    lh_keepalives_expire(&remote->keepalives, g_get_monotonic_time());
    if (remote->lease_stream != NULL && remote->keepalives.given_up >= GIVEN_UP_AT_MOST)
        abandon_stream(remote, "the stream answers nothing");
    if (!remote->freed)
        set_timer(remote);
    g_rc_box_release(remote);
    return G_SOURCE_CONTINUE;
}

static void on_keepalive(gpointer reply, gpointer data)
{
    Remote *remote = g_rc_box_acquire(data);
    const LhLeaseReply *lease = reply;
    if (!lh_keepalives_answer(&remote->keepalives, lease->lease, lease->ttl_s))
        abandon_stream(remote, "an answer that nobody asked for");
    g_rc_box_release(remote);
}

static void on_lease_stream_closed(const GError *error, gpointer data)
{
    Remote *remote = g_rc_box_acquire(data);
    remote->lease_stream = NULL;
    lh_keepalives_fail(&remote->keepalives, error);
    g_rc_box_release(remote);
}

static LhCallId etcd_lease_keepalive(LhEtcd *etcd, gint64 lease, gint64 deadline_ms,
                                     LhLeaseFunc func, gpointer data)
{
    Remote *remote = (Remote *)etcd;
    LhCallId id = ++remote->last_id;
    gint64 deadline_us = g_get_monotonic_time() + MAX(deadline_ms, 1) * 1000;
    LhBytes request = lh_codec_lease_keepalive(lease);
    if (remote->lease_stream == NULL)
        remote->lease_stream = lh_rpc_open(remote->rpc, M_KEEPALIVE, request, on_keepalive,
                                           on_lease_stream_closed, remote);
    else
        lh_rpc_send(remote->lease_stream, request);
    lh_keepalives_add(&remote->keepalives, id, lease, deadline_us, func, data);
    set_timer(remote);
    return id;
}

/* --- watches --- */

static void on_watch_reply(gpointer reply, gpointer data)
{
    const LhEtcdStream *stream = data;
    stream->on_reply(reply, stream->data);
}

static void on_watch_closed(const GError *error, gpointer data)
{
    LhEtcdStream stream = *(LhEtcdStream *)data;
    g_hash_table_remove(stream.remote->watches, data);
    stream.on_closed(error, stream.data);
}

static LhEtcdStream *etcd_watch(LhEtcd *etcd, const LhWatchRequest *request,
                                LhWatchReplyFunc on_reply, LhWatchClosedFunc on_closed,
                                gpointer data)
{
    Remote *remote = (Remote *)etcd;
    LhEtcdStream *stream = g_new0(LhEtcdStream, 1);
    g_hash_table_add(remote->watches, stream);
    stream->remote = remote;
    stream->on_reply = on_reply;
    stream->on_closed = on_closed;
    stream->data = data;
    stream->rpc = lh_rpc_open(remote->rpc, M_WATCH, lh_codec_watch_create(request), on_watch_reply,
                              on_watch_closed, stream);
    return stream;
}

static void etcd_watch_progress(G_GNUC_UNUSED LhEtcd *etcd, LhEtcdStream *stream)
{
    lh_rpc_send(stream->rpc, lh_codec_watch_progress());
}

static void etcd_watch_close(G_GNUC_UNUSED LhEtcd *etcd, LhEtcdStream *stream)
{
    lh_rpc_drop(stream->rpc);
    g_hash_table_remove(stream->remote->watches, stream);
}

/* --- the whole --- */

static void etcd_free(LhEtcd *etcd)
{
    Remote *remote = (Remote *)etcd;
    remote->freed = TRUE;
    remote->lease_stream = NULL;
    lh_rpc_free(remote->rpc);
    g_source_destroy(remote->timer);
    g_source_unref(remote->timer);
    lh_keepalives_clear(&remote->keepalives);
    g_hash_table_unref(remote->calls);
    g_hash_table_unref(remote->watches);
    g_rc_box_release(remote);
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

/* A name or an address; g_uri_parse lets more pass. */
static gboolean is_host(const char *host)
{
    return host != NULL && *host != '\0' &&
           host[strspn(host, G_CSET_A_2_Z G_CSET_a_2_z G_CSET_DIGITS "._-:")] == '\0';
}

/* "dns:///host:port" of an endpoint; addresses are names too, for gRPC. */
static char *make_target(const char *endpoint, GError **error)
{
    g_autoptr(GError) cause = NULL;
    g_autofree char *uri = strstr(endpoint, "://") != NULL ? g_strdup(endpoint)
                                                           : g_strconcat("http://", endpoint, NULL);
    g_autoptr(GUri) parsed = g_uri_parse(uri, G_URI_FLAGS_NONE, &cause);
    const char *wrong = NULL;
    if (parsed == NULL)
        wrong = cause->message;
    else if (strcmp(g_uri_get_scheme(parsed), "http") != 0)
        wrong = "only http:// is supported (no TLS yet)";
    else if (!is_host(g_uri_get_host(parsed)) || g_uri_get_port(parsed) <= 0)
        wrong = "must be host:port";
    else if (strlen(g_uri_get_path(parsed)) > 1 || g_uri_get_query(parsed) != NULL ||
             g_uri_get_fragment(parsed) != NULL || g_uri_get_userinfo(parsed) != NULL)
        wrong = "must be host:port and nothing else";
    if (wrong != NULL) {
        g_set_error(error, LH_ERROR, LH_ERR_INVALID, "etcd endpoint %s: %s", endpoint, wrong);
        return NULL;
    }
    const char *host = g_uri_get_host(parsed);
    gboolean v6 = strchr(host, ':') != NULL;
    return g_strdup_printf("dns:///%s%s%s:%d", v6 ? "[" : "", host, v6 ? "]" : "",
                           g_uri_get_port(parsed));
}

static char *check_options(const LhEtcdOptions *options, GError **error)
{
    const char *wrong = NULL;
    if (options->cacert != NULL || options->cert != NULL || options->key != NULL ||
        options->user != NULL || options->password_file != NULL)
        wrong = "TLS and authentication are not supported yet";
    else if (options->endpoints == NULL || options->endpoints[0] == NULL)
        wrong = "no endpoint";
    else if (options->endpoints[1] != NULL)
        wrong = "several endpoints are not supported yet";
    if (wrong == NULL)
        return make_target(options->endpoints[0], error);
    g_set_error(error, LH_ERROR, LH_ERR_INVALID, "etcd: %s", wrong);
    return NULL;
}

LhEtcd *lh_etcd_grpc_new(const LhEtcdOptions *options, GMainContext *context, GError **error)
{
    static GSourceFuncs timer_funcs = {.dispatch = dispatch_timer};
    g_autofree char *target = check_options(options, error);
    if (target == NULL)
        return NULL;
    Remote *remote = g_rc_box_new0(Remote);
    remote->base.v = &vtable;
    remote->rpc = lh_rpc_new(target, methods, N_METHODS, context);
    remote->calls = g_hash_table_new_full(g_int64_hash, g_int64_equal, NULL, g_free);
    remote->watches = g_hash_table_new_full(NULL, NULL, g_free, NULL);
    lh_keepalives_init(&remote->keepalives);
    remote->timer = g_source_new(&timer_funcs, sizeof(Timer));
    ((Timer *)remote->timer)->remote = remote;
    g_source_set_static_name(remote->timer, "etcd keepalives");
    g_source_attach(remote->timer, context);
    return &remote->base;
}
