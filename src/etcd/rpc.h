/*
 * Unary calls and streams to one server, in bytes; what is below the gRPC transport's etcd part.
 *
 * Loop thread, except that replies are decoded on the thread that receives them. Callbacks run on the
 * loop, never inside the call that started something, and may call anything here, lh_rpc_free too.
 * Requests are taken over (LhBytes.data is freed here). Implemented in transport_grpc.c.
 */
#pragma once

#include "etcd/codec.h"
#include "etcd/rpc_status.h"

typedef struct LhRpc LhRpc;
typedef struct LhRpcCall LhRpcCall;
typedef struct LhRpcStream LhRpcStream;

typedef struct {
    const char *name; /* for messages */
    const char *path; /* "/package.Service/Method" */
    LhRpcKind kind;
    gboolean lease; /* goes over the connection that is kept for leases */
    /* Any thread. NULL: the bytes are no reply of this method. */
    gpointer (*decode)(LhArena *arena, const guint8 *data, gsize len);
} LhRpcMethod;

/* @reply is what decode() returned, valid during the callback; NULL and @error if it failed. */
typedef void (*LhRpcFunc)(gpointer reply, const GError *error, gpointer data);
typedef void (*LhRpcReplyFunc)(gpointer reply, gpointer data);
typedef void (*LhRpcClosedFunc)(const GError *error, gpointer data);

/* @target in gRPC's syntax. @methods must stay; they are named by their index. */
LhRpc *lh_rpc_new(const char *target, const LhRpcMethod *methods, guint n_methods,
                  GMainContext *context);
/* Cancels everything and waits for it; no callback runs after it has begun. */
void lh_rpc_free(LhRpc *rpc);

/* @func runs exactly once, unless cancelled; the handle is gone then. A write waits for the connection,
 * and is not sent without (LH_ERR_UNAVAILABLE). */
LhRpcCall *lh_rpc_call(LhRpc *rpc, guint method, LhBytes request, gint64 deadline_ms,
                       LhRpcFunc func, gpointer data);
/* A call that fails with @error (taken over) without being sent. */
LhRpcCall *lh_rpc_refuse(LhRpc *rpc, GError *error, LhRpcFunc func, gpointer data);
void lh_rpc_cancel(LhRpcCall *call);

/* A stream in both directions with the metadata hasleader, no deadline, and @first as its first message.
 * @on_closed runs exactly once, unless it is dropped; the handle is gone then. */
LhRpcStream *lh_rpc_open(LhRpc *rpc, guint method, LhBytes first, LhRpcReplyFunc on_reply,
                         LhRpcClosedFunc on_closed, gpointer data);
/* In order; on a stream that has ended already it is forgotten. */
void lh_rpc_send(LhRpcStream *stream, LhBytes message);
/* Ends it; no callback runs after it. */
void lh_rpc_drop(LhRpcStream *stream);
