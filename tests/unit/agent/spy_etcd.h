/*
 * An etcd client in front of another one that watches what the agent does with it: when watches are asked
 * for and when the first transaction comes, and that no item is written twice at the same time.
 */
#pragma once

#include "etcd/etcd.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

typedef struct {
    LhEtcd base;
    LhEtcd *inner;
    guint watches, created;    /* asked for; confirmed by the server */
    gint watches_at_first_txn; /* created by then; -1: no transaction yet */
    char *first_watch_key;
    void (*on_watch)(const char *key, gpointer data);
    gpointer on_watch_data;
    GHashTable *writing; /* item keys being written */
    GPtrArray *streams;  /* of SpyStream */
    guint item_writes;
    GHashTable *pending; /* call id → SpyCall */
} SpyEtcd;

typedef struct {
    SpyEtcd *spy;
    LhTxnFunc func;
    gpointer data;
    char *item;
    LhCallId id;
} SpyCall;

typedef struct {
    SpyEtcd *spy;
    LhEtcdStream *inner;
    LhWatchReplyFunc on_reply;
    LhWatchClosedFunc on_closed;
    gpointer data;
} SpyStream;

static inline void spy_call_free(gpointer data)
{
    SpyCall *call = data;
    if (call->item != NULL)
        g_hash_table_remove(call->spy->writing, call->item);
    g_free(call->item);
    g_free(call);
}

static inline LhCallId spy_range(LhEtcd *base, const LhRangeRequest *request, gint64 deadline_ms,
                                 LhRangeFunc func, gpointer data)
{
    SpyEtcd *spy = (SpyEtcd *)base;
    return spy->inner->v->range(spy->inner, request, deadline_ms, func, data);
}

static inline void spy_txn_done(const LhTxnReply *reply, const GError *error, gpointer data)
{
    SpyCall *call = data;
    LhTxnFunc func = call->func;
    gpointer func_data = call->data;
    g_hash_table_remove(call->spy->pending, &call->id);
    func(reply, error, func_data);
}

static inline LhCallId spy_txn(LhEtcd *base, const LhTxnRequest *request, gint64 deadline_ms,
                               LhTxnFunc func, gpointer data)
{
    SpyEtcd *spy = (SpyEtcd *)base;
    SpyCall *call = g_new0(SpyCall, 1);
    if (spy->watches_at_first_txn < 0)
        spy->watches_at_first_txn = (gint)spy->created;
    call->spy = spy;
    call->func = func;
    call->data = data;
    for (gsize i = 0; i < request->n_success; i++) {
        const LhTxnOp *op = &request->success[i];
        if (op->type == LH_TXN_RANGE || strstr(op->key, "/actual/items/") == NULL)
            continue;
        assert_null(call->item);
        assert_true(g_hash_table_add(spy->writing, g_strdup(op->key))); /* at most one in flight */
        call->item = g_strdup(op->key);
        spy->item_writes++;
    }
    call->id = spy->inner->v->txn(spy->inner, request, deadline_ms, spy_txn_done, call);
    g_hash_table_insert(spy->pending, &call->id, call);
    return call->id;
}

static inline LhCallId spy_grant(LhEtcd *base, gint64 ttl_s, gint64 deadline_ms, LhLeaseFunc func,
                                 gpointer data)
{
    SpyEtcd *spy = (SpyEtcd *)base;
    return spy->inner->v->lease_grant(spy->inner, ttl_s, deadline_ms, func, data);
}

static inline LhCallId spy_keepalive(LhEtcd *base, gint64 lease, gint64 deadline_ms,
                                     LhLeaseFunc func, gpointer data)
{
    SpyEtcd *spy = (SpyEtcd *)base;
    return spy->inner->v->lease_keepalive(spy->inner, lease, deadline_ms, func, data);
}

static inline LhCallId spy_revoke(LhEtcd *base, gint64 lease, gint64 deadline_ms, LhLeaseFunc func,
                                  gpointer data)
{
    SpyEtcd *spy = (SpyEtcd *)base;
    return spy->inner->v->lease_revoke(spy->inner, lease, deadline_ms, func, data);
}

static inline LhCallId spy_status(LhEtcd *base, gint64 deadline_ms, LhStatusFunc func,
                                  gpointer data)
{
    SpyEtcd *spy = (SpyEtcd *)base;
    return spy->inner->v->status(spy->inner, deadline_ms, func, data);
}

static inline void spy_cancel(LhEtcd *base, LhCallId id)
{
    SpyEtcd *spy = (SpyEtcd *)base;
    spy->inner->v->cancel(spy->inner, id);
    g_hash_table_remove(spy->pending, &id);
}

static inline void spy_reply(const LhWatchReply *reply, gpointer data)
{
    SpyStream *s = data;
    s->spy->created += reply->created;
    s->on_reply(reply, s->data);
}

static inline void spy_closed(const GError *error, gpointer data)
{
    SpyStream *s = data;
    LhWatchClosedFunc func = s->on_closed;
    gpointer func_data = s->data;
    g_ptr_array_remove_fast(s->spy->streams, s);
    func(error, func_data);
}

static inline LhEtcdStream *spy_watch(LhEtcd *base, const LhWatchRequest *request,
                                      LhWatchReplyFunc on_reply, LhWatchClosedFunc on_closed,
                                      gpointer data)
{
    SpyEtcd *spy = (SpyEtcd *)base;
    if (spy->first_watch_key == NULL)
        spy->first_watch_key = g_strdup(request->key);
    if (spy->on_watch != NULL)
        spy->on_watch(request->key, spy->on_watch_data);
    spy->watches++;
    SpyStream *s = g_new0(SpyStream, 1);
    s->spy = spy;
    s->on_reply = on_reply;
    s->on_closed = on_closed;
    s->data = data;
    g_ptr_array_add(spy->streams, s);
    s->inner = spy->inner->v->watch(spy->inner, request, spy_reply, spy_closed, s);
    return (LhEtcdStream *)s;
}

static inline void spy_progress(LhEtcd *base, LhEtcdStream *stream)
{
    SpyEtcd *spy = (SpyEtcd *)base;
    spy->inner->v->watch_progress(spy->inner, ((SpyStream *)stream)->inner);
}

static inline void spy_close(LhEtcd *base, LhEtcdStream *stream)
{
    SpyEtcd *spy = (SpyEtcd *)base;
    spy->inner->v->watch_close(spy->inner, ((SpyStream *)stream)->inner);
    g_ptr_array_remove_fast(spy->streams, stream);
}

static inline void spy_free(LhEtcd *base)
{
    SpyEtcd *spy = (SpyEtcd *)base;
    lh_etcd_free(spy->inner);
    g_hash_table_unref(spy->pending);
    g_hash_table_unref(spy->writing);
    g_ptr_array_unref(spy->streams);
    g_free(spy->first_watch_key);
    g_free(spy);
}

/* Takes @inner. Free with lh_etcd_free(&spy->base). */
static inline SpyEtcd *spy_etcd_new(LhEtcd *inner)
{
    static const LhEtcdVtable vtable = {
        .range = spy_range,
        .txn = spy_txn,
        .lease_grant = spy_grant,
        .lease_keepalive = spy_keepalive,
        .lease_revoke = spy_revoke,
        .status = spy_status,
        .cancel = spy_cancel,
        .watch = spy_watch,
        .watch_progress = spy_progress,
        .watch_close = spy_close,
        .free = spy_free,
    };
    SpyEtcd *spy = g_new0(SpyEtcd, 1);
    spy->base.v = &vtable;
    spy->inner = inner;
    spy->watches_at_first_txn = -1;
    spy->writing = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
    spy->pending = g_hash_table_new_full(g_int64_hash, g_int64_equal, NULL, spy_call_free);
    spy->streams = g_ptr_array_new_with_free_func(g_free);
    return spy;
}
