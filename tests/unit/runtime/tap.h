/*
 * Between an instance and its client of the fake etcd: chooses the fault of single transactions, and
 * counts them. All other calls go straight through.
 */
#pragma once

#include "tests/fakes/fake_etcd.h"

#include <string.h>

#define P "/leasehold/"

typedef struct Tap Tap;
struct Tap {
    LhEtcd etcd; /* first; all but txn goes straight through */
    LhEtcdVtable vtable;
    LhEtcd *inner;
    /* The fault of the next txn; NULL: none */
    FakeFault (*fault)(Tap *tap, const LhTxnRequest *request);
    guint faults_left; /* for the fault functions */
    guint sent, decisions, rewrites, most_in_flight;
    GHashTable *in_flight; /* LhCallId -> TapCall, decisions only */
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
static LhCallId tap_grant(LhEtcd *e, gint64 ttl_s, gint64 ms, LhLeaseFunc f, gpointer d)
{
    return inner(e)->v->lease_grant(inner(e), ttl_s, ms, f, d);
}
static LhCallId tap_keepalive(LhEtcd *e, gint64 lease, gint64 ms, LhLeaseFunc f, gpointer d)
{
    return inner(e)->v->lease_keepalive(inner(e), lease, ms, f, d);
}
static LhCallId tap_revoke(LhEtcd *e, gint64 lease, gint64 ms, LhLeaseFunc f, gpointer d)
{
    return inner(e)->v->lease_revoke(inner(e), lease, ms, f, d);
}
static void tap_cancel(LhEtcd *e, LhCallId call)
{
    g_hash_table_remove(((Tap *)e)->in_flight, &call);
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
    return tap;
}

static void tap_free(Tap *tap)
{
    lh_etcd_free(tap->inner);
    g_hash_table_unref(tap->in_flight);
    g_free(tap);
}
