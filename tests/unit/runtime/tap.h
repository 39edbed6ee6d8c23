/*
 * Between an instance and its client of the fake etcd: chooses the fault of single transactions, counts
 * them, and notes until when the instance may rely on its lease. All other calls go straight through.
 */
#pragma once

#include "base/errors.h"
#include "tests/fakes/fake_etcd.h"

#include <string.h>

#define P "/leasehold/"

typedef struct Tap Tap;
struct Tap {
    LhEtcd etcd; /* first */
    LhEtcdVtable vtable;
    LhEtcd *inner;
    /* The fault of the next txn; NULL: none */
    FakeFault (*fault)(Tap *tap, const LhTxnRequest *request);
    guint faults_left; /* for the fault functions */
    guint sent, decisions, rewrites, most_in_flight;
    GHashTable *in_flight; /* LhCallId -> TapCall, decisions only */
    GHashTable *asks;      /* LhCallId -> TapAsk: grants and keepalives */
    LhEnv *env;            /* of the instance; NULL: held_until_ms stays 0 */
    /* Monotonic: when the last answered grant or keepalive was sent, and the TTL of its answer. 0 while
     * no lease is held. */
    gint64 held_until_ms;
};

typedef struct {
    Tap *tap;
    LhCallId id;
    LhTxnFunc func;
    gpointer data;
} TapCall;

static gboolean is_decision(const LhTxnRequest *request)
{
    return strstr(request->success[0].key, "/decided/") != NULL;
}

/* The rewriting of a leader key (a campaign compares that there is none). */
static gboolean is_rewrite(const LhTxnRequest *request)
{
    return g_str_has_prefix(request->success[0].key, P "leaders/") &&
           request->compares[0].number != 0;
}

static void tap_on_txn(const LhTxnReply *reply, const GError *error, gpointer data)
{
    TapCall *call = data;
    TapCall copy = *call;

    g_hash_table_remove(copy.tap->in_flight, &call->id);
    copy.func(reply, error, copy.data);
}

static LhCallId tap_txn(LhEtcd *etcd, const LhTxnRequest *request, gint64 deadline_ms,
                        LhTxnFunc func, gpointer data)
{
    Tap *tap = (Tap *)etcd;
    FakeFault fault = tap->fault == NULL ? FAKE_FAULT_NONE : tap->fault(tap, request);

    tap->sent++;
    tap->rewrites += is_rewrite(request) ? 1 : 0;
    if (fault != FAKE_FAULT_NONE)
        fake_etcd_client_fault_next(tap->inner, fault, 1);
    if (!is_decision(request))
        return tap->inner->v->txn(tap->inner, request, deadline_ms, func, data);
    TapCall *call = g_new0(TapCall, 1);
    *call = (TapCall){.tap = tap, .func = func, .data = data};
    call->id = tap->inner->v->txn(tap->inner, request, deadline_ms, tap_on_txn, call);
    g_hash_table_insert(tap->in_flight, &call->id, call);
    tap->decisions++;
    tap->most_in_flight = MAX(tap->most_in_flight, g_hash_table_size(tap->in_flight));
    return call->id;
}

static LhEtcd *inner(LhEtcd *etcd)
{
    return ((Tap *)etcd)->inner;
}

static LhCallId tap_range(LhEtcd *e, const LhRangeRequest *r, gint64 ms, LhRangeFunc f, gpointer d)
{
    return inner(e)->v->range(inner(e), r, ms, f, d);
}
typedef struct {
    Tap *tap;
    LhCallId id;
    gint64 sent_ms;
    LhLeaseFunc func;
    gpointer data;
} TapAsk;

static void tap_on_lease(gint64 lease, gint64 ttl_s, const GError *error, gpointer data)
{
    TapAsk *ask = data;
    TapAsk copy = *ask;

    g_hash_table_remove(copy.tap->asks, &ask->id);
    if (error == NULL && ttl_s > 0)
        copy.tap->held_until_ms = MAX(copy.tap->held_until_ms, copy.sent_ms + ttl_s * 1000);
    else if (error == NULL || g_error_matches(error, LH_ERROR, LH_ERR_LEASE_LOST))
        copy.tap->held_until_ms = 0;
    copy.func(lease, ttl_s, error, copy.data);
}

static TapAsk *tap_ask(LhEtcd *e, LhLeaseFunc func, gpointer data)
{
    Tap *tap = (Tap *)e;
    TapAsk *ask = g_new0(TapAsk, 1);

    *ask = (TapAsk){.tap = tap, .func = func, .data = data};
    ask->sent_ms = tap->env == NULL ? G_MININT64 / 2 : lh_mono_ms(tap->env);
    return ask;
}

static LhCallId tap_asked(TapAsk *ask, LhCallId id)
{
    ask->id = id;
    g_hash_table_insert(ask->tap->asks, &ask->id, ask);
    return id;
}

static LhCallId tap_grant(LhEtcd *e, gint64 ttl_s, gint64 ms, LhLeaseFunc f, gpointer d)
{
    TapAsk *ask = tap_ask(e, f, d);

    ask->tap->held_until_ms = 0; /* whoever asks for a lease has none */
    return tap_asked(ask, inner(e)->v->lease_grant(inner(e), ttl_s, ms, tap_on_lease, ask));
}
static LhCallId tap_keepalive(LhEtcd *e, gint64 lease, gint64 ms, LhLeaseFunc f, gpointer d)
{
    TapAsk *ask = tap_ask(e, f, d);

    return tap_asked(ask, inner(e)->v->lease_keepalive(inner(e), lease, ms, tap_on_lease, ask));
}
static LhCallId tap_revoke(LhEtcd *e, gint64 lease, gint64 ms, LhLeaseFunc f, gpointer d)
{
    return inner(e)->v->lease_revoke(inner(e), lease, ms, f, d);
}
static void tap_cancel(LhEtcd *e, LhCallId call)
{
    g_hash_table_remove(((Tap *)e)->in_flight, &call);
    g_hash_table_remove(((Tap *)e)->asks, &call);
    inner(e)->v->cancel(inner(e), call);
}
static LhEtcdStream *tap_watch(LhEtcd *e, const LhWatchRequest *r, LhWatchReplyFunc f,
                               LhWatchClosedFunc c, gpointer d)
{
    return inner(e)->v->watch(inner(e), r, f, c, d);
}
static void tap_progress(LhEtcd *e, LhEtcdStream *stream)
{
    inner(e)->v->watch_progress(inner(e), stream);
}
static void tap_close(LhEtcd *e, LhEtcdStream *stream)
{
    inner(e)->v->watch_close(inner(e), stream);
}

static Tap *tap_new(LhEtcd *inner_etcd)
{
    Tap *tap = g_new0(Tap, 1);

    tap->inner = inner_etcd;
    tap->vtable = (LhEtcdVtable){.range = tap_range,
                                 .txn = tap_txn,
                                 .lease_grant = tap_grant,
                                 .lease_keepalive = tap_keepalive,
                                 .lease_revoke = tap_revoke,
                                 .cancel = tap_cancel,
                                 .watch = tap_watch,
                                 .watch_progress = tap_progress,
                                 .watch_close = tap_close};
    tap->etcd.v = &tap->vtable;
    tap->in_flight = g_hash_table_new_full(g_int64_hash, g_int64_equal, NULL, g_free);
    tap->asks = g_hash_table_new_full(g_int64_hash, g_int64_equal, NULL, g_free);
    return tap;
}

static void tap_free(Tap *tap)
{
    lh_etcd_free(tap->inner);
    g_hash_table_unref(tap->in_flight);
    g_hash_table_unref(tap->asks);
    g_free(tap);
}
