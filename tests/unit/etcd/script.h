/*
 * An etcd that does nothing by itself: it records what is asked of it, and the test answers when and as
 * it likes. For the unit tests of what is written above the vtable (list, watcher, lease).
 *
 * Answers are given from the test, never inside the call that asked, as etcd.h demands.
 */
#pragma once

#include "base/errors.h"
#include "etcd/etcd.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define CLUSTER 7

typedef enum { S_RANGE, S_TXN, S_GRANT, S_KEEPALIVE, S_REVOKE, S_STATUS } ScriptKind;

typedef struct {
    ScriptKind kind;
    LhCallId id;
    char *key, *range_end;
    gint64 revision, limit;
    gboolean serializable, keys_only;
    gint64 lease, ttl_s;
    gint64 deadline_ms;
    LhRangeFunc on_range;
    LhLeaseFunc on_lease;
    LhStatusFunc on_status;
    gpointer data;
} ScriptCall;

struct LhEtcdStream {
    char *key, *range_end;
    gint64 start_revision;
    LhWatchReplyFunc on_reply;
    LhWatchClosedFunc on_closed;
    gpointer data;
    guint progress_asked;
};

typedef struct {
    LhEtcd base;
    GQueue calls; /* of ScriptCall: under way */
    LhCallId last_id;
    LhEtcdStream *stream; /* the open one; a second is refused */
    guint opened, closed; /* streams */
    guint cancelled;      /* calls */
} Script;

static inline void script_call_free(gpointer data)
{
    ScriptCall *call = data;
    g_free(call->key);
    g_free(call->range_end);
    g_free(call);
}

static inline LhCallId script_push(LhEtcd *etcd, const ScriptCall *call)
{
    Script *script = (Script *)etcd;
    ScriptCall *copy = g_memdup2(call, sizeof *call);
    copy->id = ++script->last_id;
    g_queue_push_tail(&script->calls, copy);
    return copy->id;
}

static inline LhCallId script_range(LhEtcd *etcd, const LhRangeRequest *request, gint64 deadline_ms,
                                    LhRangeFunc func, gpointer data)
{
    ScriptCall call = {.kind = S_RANGE,
                       .key = g_strdup(request->key),
                       .range_end = g_strdup(request->range_end),
                       .revision = request->revision,
                       .limit = request->limit,
                       .serializable = request->serializable,
                       .keys_only = request->keys_only,
                       .deadline_ms = deadline_ms,
                       .on_range = func,
                       .data = data};
    return script_push(etcd, &call);
}

static inline LhCallId script_grant(LhEtcd *etcd, gint64 ttl_s, gint64 deadline_ms,
                                    LhLeaseFunc func, gpointer data)
{
    ScriptCall call = {.kind = S_GRANT,
                       .ttl_s = ttl_s,
                       .deadline_ms = deadline_ms,
                       .on_lease = func,
                       .data = data};
    return script_push(etcd, &call);
}

static inline LhCallId script_keepalive(LhEtcd *etcd, gint64 lease, gint64 deadline_ms,
                                        LhLeaseFunc func, gpointer data)
{
    ScriptCall call = {.kind = S_KEEPALIVE,
                       .lease = lease,
                       .deadline_ms = deadline_ms,
                       .on_lease = func,
                       .data = data};
    return script_push(etcd, &call);
}

static inline LhCallId script_revoke(LhEtcd *etcd, gint64 lease, gint64 deadline_ms,
                                     LhLeaseFunc func, gpointer data)
{
    ScriptCall call = {.kind = S_REVOKE,
                       .lease = lease,
                       .deadline_ms = deadline_ms,
                       .on_lease = func,
                       .data = data};
    return script_push(etcd, &call);
}

static inline LhCallId script_status(LhEtcd *etcd, gint64 deadline_ms, LhStatusFunc func,
                                     gpointer data)
{
    ScriptCall call = {
        .kind = S_STATUS, .deadline_ms = deadline_ms, .on_status = func, .data = data};
    return script_push(etcd, &call);
}

static inline void script_cancel(LhEtcd *etcd, LhCallId id)
{
    Script *script = (Script *)etcd;
    for (GList *link = script->calls.head; link != NULL; link = link->next) {
        if (((ScriptCall *)link->data)->id == id) {
            script_call_free(link->data);
            g_queue_delete_link(&script->calls, link);
            script->cancelled++;
            return;
        }
    }
}

static inline void script_stream_free(Script *script)
{
    g_free(script->stream->key);
    g_free(script->stream->range_end);
    g_free(script->stream);
    script->stream = NULL;
}

static inline LhEtcdStream *script_watch(LhEtcd *etcd, const LhWatchRequest *request,
                                         LhWatchReplyFunc on_reply, LhWatchClosedFunc on_closed,
                                         gpointer data)
{
    Script *script = (Script *)etcd;
    assert_null(script->stream);
    LhEtcdStream *stream = g_new0(LhEtcdStream, 1);
    stream->key = g_strdup(request->key);
    stream->range_end = g_strdup(request->range_end);
    stream->start_revision = request->start_revision;
    stream->on_reply = on_reply;
    stream->on_closed = on_closed;
    stream->data = data;
    script->stream = stream;
    script->opened++;
    return stream;
}

static inline void script_watch_progress(G_GNUC_UNUSED LhEtcd *etcd, LhEtcdStream *stream)
{
    stream->progress_asked++;
}

static inline void script_watch_close(LhEtcd *etcd, LhEtcdStream *stream)
{
    Script *script = (Script *)etcd;
    assert_ptr_equal(stream, script->stream);
    script_stream_free(script);
    script->closed++;
}

static inline Script *script_new(void)
{
    static const LhEtcdVtable vtable = {
        .range = script_range,
        .lease_grant = script_grant,
        .lease_keepalive = script_keepalive,
        .lease_revoke = script_revoke,
        .status = script_status,
        .cancel = script_cancel,
        .watch = script_watch,
        .watch_progress = script_watch_progress,
        .watch_close = script_watch_close,
    };
    Script *script = g_new0(Script, 1);
    script->base.v = &vtable;
    g_queue_init(&script->calls);
    return script;
}

/* Nothing may be left under way: its owner would have leaked it. */
static inline void script_free(Script *script)
{
    assert_int_equal(script->calls.length, 0);
    assert_null(script->stream);
    g_free(script);
}

/* The oldest call under way, which must be of this kind. */
static inline const ScriptCall *script_peek(const Script *script, ScriptKind kind)
{
    const ScriptCall *call = g_queue_peek_head((GQueue *)(guintptr)&script->calls);
    if (call == NULL)
        fail_msg("no call is under way");
    assert_int_equal(call->kind, kind);
    return call;
}

static inline void script_answer_lease(Script *script, ScriptKind kind, gint64 lease, gint64 ttl_s)
{
    script_peek(script, kind);
    ScriptCall *call = g_queue_pop_head(&script->calls);
    call->on_lease(lease, ttl_s, NULL, call->data);
    script_call_free(call);
}

static inline void script_answer_range(Script *script, const LhRangeReply *reply)
{
    script_peek(script, S_RANGE);
    ScriptCall *call = g_queue_pop_head(&script->calls);
    call->on_range(reply, NULL, call->data);
    script_call_free(call);
}

static inline void script_answer_status(Script *script, const LhStatusReply *reply)
{
    script_peek(script, S_STATUS);
    ScriptCall *call = g_queue_pop_head(&script->calls);
    call->on_status(reply, NULL, call->data);
    script_call_free(call);
}

static inline void script_fail(Script *script, ScriptKind kind, LhErrorCode code)
{
    script_peek(script, kind);
    ScriptCall *call = g_queue_pop_head(&script->calls);
    g_autoptr(GError) error = g_error_new(LH_ERROR, (gint)code, "scripted");
    if (kind == S_RANGE)
        call->on_range(NULL, error, call->data);
    else if (kind == S_STATUS)
        call->on_status(NULL, error, call->data);
    else
        call->on_lease(0, 0, error, call->data);
    script_call_free(call);
}

static inline void script_reply(Script *script, LhWatchReply reply)
{
    assert_non_null(script->stream);
    if (reply.header.cluster_id == 0)
        reply.header.cluster_id = CLUSTER;
    script->stream->on_reply(&reply, script->stream->data);
}

static inline void script_created(Script *script, gint64 revision)
{
    script_reply(script, (LhWatchReply){.header.revision = revision, .created = TRUE});
}

static inline void script_close(Script *script)
{
    assert_non_null(script->stream);
    LhWatchClosedFunc on_closed = script->stream->on_closed;
    gpointer data = script->stream->data;
    script_stream_free(script);
    g_autoptr(GError) error = g_error_new(LH_ERROR, LH_ERR_UNAVAILABLE, "scripted");
    on_closed(error, data);
}
