/*
 * Unary calls and streams to one of several servers, in bytes; what is below the gRPC transport's etcd
 * part.
 *
 * Two lanes (leases; all else), each of which uses one endpoint at a time. A lane moves to the next
 * when the one in use refuses, says that it is unavailable, or lets a deadline pass without an answer
 * to anything; then what it had under way there fails. With one endpoint nothing ever moves.
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
    gboolean lease;     /* goes over the connection that is kept for leases */
    gboolean alone;     /* a member answers by itself, leader or none: proves little */
    gboolean anonymous; /* goes without a token */
    /* Any thread. NULL: the bytes are no reply of this method. */
    gpointer (*decode)(LhArena *arena, const guint8 *data, gsize len);
} LhRpcMethod;

/* @reply is what decode() returned, valid during the callback; NULL and @error if it failed. */
typedef void (*LhRpcFunc)(gpointer reply, const GError *error, gpointer data);
typedef void (*LhRpcReplyFunc)(gpointer reply, gpointer data);
typedef void (*LhRpcClosedFunc)(const GError *error, gpointer data);

typedef struct {
    const char *const *urls;    /* "https://b:2379", for messages; NULL-ended, at least one */
    const char *const *targets; /* the same in gRPC's syntax */
    gboolean tls;
    const char *cacert, *cert, *key; /* files; NULL: the system's authorities, no certificate */
} LhRpcServers;

/* @servers is copied. @methods must stay; they are named by their index. */
LhRpc *lh_rpc_new(const LhRpcServers *servers, const LhRpcMethod *methods, guint n_methods,
                  GMainContext *context);
/* Cancels everything and waits for it; no callback runs after it has begun. */
void lh_rpc_free(LhRpc *rpc);

guint lh_rpc_n_endpoints(const LhRpc *rpc);
const char *lh_rpc_url(const LhRpc *rpc, guint endpoint);
guint lh_rpc_endpoint(LhRpc *rpc, guint method); /* the one that the method's lane uses */
/* That lane uses @endpoint from now on; what is under way stays. */
void lh_rpc_prefer(LhRpc *rpc, guint method, guint endpoint);
/* For the metadata `token` of what is sent from now on; NULL: none. */
void lh_rpc_set_token(LhRpc *rpc, const char *token);

/* @func runs exactly once, unless cancelled; the handle is gone then. A write waits for the connection,
 * and is not sent without (LH_ERR_UNAVAILABLE). */
LhRpcCall *lh_rpc_call(LhRpc *rpc, guint method, LhBytes request, gint64 deadline_ms,
                       LhRpcFunc func, gpointer data);
/* A call that fails with @error (taken over) without being sent. */
LhRpcCall *lh_rpc_refuse(LhRpc *rpc, GError *error, LhRpcFunc func, gpointer data);
/* Forgets it: it goes on, unheard, until its answer or its deadline. To reset what gRPC has not yet written
 * would end the whole connection: etcd's HTTP/2 server under TLS (Go's own) takes the reset of a stream that
 * it has not seen begin for a violation of the protocol (RFC 9113, section 6.4). */
void lh_rpc_cancel(LhRpcCall *call);

/* A stream in both directions with the metadata hasleader, no deadline, and @first as its first message.
 * @on_closed runs exactly once, unless it is dropped; the handle is gone then. */
LhRpcStream *lh_rpc_open(LhRpc *rpc, guint method, LhBytes first, LhRpcReplyFunc on_reply,
                         LhRpcClosedFunc on_closed, gpointer data);
/* To this endpoint; it does not end when the lane moves, and its silence is the caller's to judge. */
LhRpcStream *lh_rpc_open_at(LhRpc *rpc, guint method, guint endpoint, LhBytes first,
                            LhRpcReplyFunc on_reply, LhRpcClosedFunc on_closed, gpointer data);
/* In order; on a stream that has ended already it is forgotten. */
void lh_rpc_send(LhRpcStream *stream, LhBytes message);
/* Ends it; no callback runs after it. */
void lh_rpc_drop(LhRpcStream *stream);
