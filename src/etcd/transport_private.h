/*
 * What the parts of the gRPC transport share: an LhRpc, its calls and streams, and how they are built
 * from gRPC's operations.
 *
 * transport_grpc.c   threads, unary calls, the whole
 * transport_streams.c   streams
 * transport_ops.c    bytes, operations, and when a lane leaves its endpoint
 * transport_channels.c   connections and credentials
 */
#pragma once

#include "etcd/transport_channels.h"

/* An item on the way to the loop. */
typedef struct LhPosted LhPosted;
struct LhPosted {
    LhPosted *next;
    void (*deliver)(LhRpc *rpc, LhPosted *posted); /* loop */
};

/* What gRPC is asked to do; its address is the tag. */
typedef struct {
    gint begun; /* atomic: hands the owner's memory from the loop to the lane's thread */
    void (*ended)(gpointer owner, gboolean ok); /* lane's thread */
    gpointer owner;
} LhOp;

/* Each lane has a thread of its own. Leases have one for themselves: their answers must not wait until
 * a page of 100 MB has been received and decoded. */
struct LhRpc {
    const LhRpcMethod *methods;
    LhChannels *channels;
    GThread *threads[2]; /* leases: 1 */
    GSource *source;     /* delivers what was posted */

    GMutex lock;
    GCond not_empty;
    LhPosted *posted, **posted_tail; /* under the lock, as is */
    gboolean waiting;                /* the loop, for not_empty */

    /* The loop's. */
    LhPosted *ready, **ready_tail; /* taken from posted, not delivered yet */
    GQueue calls, streams;         /* by their links: what a lane's thread may still speak of */
    GSource *silence;              /* when the next stream has been silent for too long */
    char *token;                   /* NULL: none */
    gboolean closing;
};

struct LhRpcCall {
    LhPosted posted; /* first */
    LhOp op;
    LhRpc *rpc;
    guint method;
    guint endpoint, moves; /* where it went, and of the lane when it did */
    gint64 sent_us;
    guint refused; /* endpoints without a connection that it has seen */
    gpr_timespec deadline;
    LhBytes unsent;  /* until it is handed to gRPC */
    grpc_call *call; /* NULL: not handed to gRPC */
    grpc_byte_buffer *request, *received;
    grpc_metadata_array initial, trailing;
    grpc_status_code code;
    grpc_slice details, token;
    LhArena arena;
    gpointer reply; /* in the arena; or */
    GError *error;
    /* The loop's. */
    GList link;
    gboolean cancelled;
    LhRpcFunc func;
    gpointer data;
};

struct LhRpcStream {
    LhPosted closed; /* first */
    LhPosted sent;
    LhOp send, receive, end;
    LhRpc *rpc;
    guint method;
    guint endpoint, moves;
    gboolean pinned; /* to its endpoint */
    grpc_call *call;
    grpc_byte_buffer *request, *received;
    grpc_metadata_array initial, trailing;
    gboolean asked_initial; /* belongs to whoever starts the next receive */
    grpc_status_code code;
    grpc_slice details, token;
    gint pending; /* atomic: batches begun and not ended, and a reply that holds back the next */
    gint queued_bytes; /* atomic */
    /* The loop's. */
    GList link;
    gboolean opened; /* its beginning is written, or never will be */
    gboolean sending, dropped;
    gint64 asked_us; /* since when something is unanswered; 0: nothing is */
    GQueue unsent;   /* of LhBytes */
    LhRpcReplyFunc on_reply;
    LhRpcClosedFunc on_closed;
    gpointer data;
};

typedef struct {
    GSource base;
    LhRpc *rpc;
} LhRpcSource;

/* Any thread. */
void lh_grpc_post(LhRpc *rpc, LhPosted *posted, void (*deliver)(LhRpc *rpc, LhPosted *posted));
void lh_grpc_start_batch(grpc_call *call, const grpc_op *ops, gsize n, LhOp *op);
grpc_byte_buffer *lh_grpc_buffer(LhBytes bytes); /* takes them over */
gpointer lh_grpc_decode(const LhRpcMethod *method, LhArena *arena, grpc_byte_buffer *buffer);
grpc_op lh_grpc_send_metadata(grpc_metadata *metadata, gsize n);
grpc_op lh_grpc_send_message(grpc_byte_buffer *message);
grpc_op lh_grpc_receive_metadata(grpc_metadata_array *metadata);
grpc_op lh_grpc_receive_message(grpc_byte_buffer **message);
grpc_op lh_grpc_receive_status(grpc_metadata_array *metadata, grpc_status_code *code,
                               grpc_slice *details);
GError *lh_grpc_error(const LhRpcMethod *method, grpc_status_code code, grpc_slice details);
LhLane *lh_grpc_lane(const LhRpc *rpc, guint method);
grpc_call *lh_grpc_call(LhRpc *rpc, guint method, guint endpoint, gpr_timespec deadline);
/* Static slices need no unref; the token's belongs to the caller until the call has ended. */
grpc_metadata lh_grpc_token_metadata(grpc_slice token);
grpc_slice lh_grpc_token(const LhRpc *rpc, guint method);
/* transport_ops.c says more. */
void lh_grpc_move(LhRpc *rpc, LhLane *lane, const char *why);
void lh_grpc_heard(LhRpc *rpc, guint method, guint endpoint);
void lh_grpc_judge(LhRpc *rpc, guint method, guint endpoint, guint moves, grpc_status_code code,
                   gint64 sent_us);
grpc_connectivity_state lh_grpc_connectivity(LhRpc *rpc, LhLane *lane);
/* Of the source that watches over silent streams. */
gboolean lh_grpc_dispatch_silence(GSource *source, GSourceFunc func, gpointer data);
