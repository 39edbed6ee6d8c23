/*
 * The streams that keepalives go over. One is enough while it answers; when an answer is overdue, the
 * next keepalive goes over a further stream, to the next endpoint, and the first one that answers is the
 * one used from then on.
 *
 * In addition, not instead: when etcd changes its leader, answers come late on all members, and those
 * that are asked already count. A member whose leader is frozen holds a stream for 7 s, and answers
 * another stream at once. So a stream is kept while anybody waits for an answer on it.
 *
 * With one endpoint there is one stream; it is given up after three keepalives without an answer. Loop
 * thread.
 */
#pragma once

#include "etcd/keepalive.h"
#include "etcd/rpc.h"

typedef struct LhKeepaliveStreams LhKeepaliveStreams;

/* @method is LeaseKeepAlive. */
LhKeepaliveStreams *lh_keepalive_streams_new(LhRpc *rpc, guint method, GMainContext *context);
/* After lh_rpc_free. No callback runs. */
void lh_keepalive_streams_free(LhKeepaliveStreams *streams);

void lh_keepalive_streams_ask(LhKeepaliveStreams *streams, LhCallId id, gint64 lease,
                              gint64 deadline_ms, LhLeaseFunc func, gpointer data);
void lh_keepalive_streams_cancel(LhKeepaliveStreams *streams, LhCallId id);
