/*
 * Lanes and channels of the gRPC transport: a lane has one completion queue and, to each endpoint that
 * was needed so far, one channel of its own.
 *
 * Private to transport_*.c, the files that include <grpc/…>. Loop thread. Which endpoint a lane uses is
 * kept here; when it moves on is transport_grpc.c's to decide.
 */
#pragma once

#include "etcd/rpc.h"

#include <grpc/grpc.h>

typedef struct {
    grpc_channel *channel; /* NULL: not needed yet */
    void **registered;     /* by method */
    gint64 heard_us;       /* any answer at all */
    gint64 agreed_us;      /* an answer that takes a leader */
} LhChannel;

typedef struct {
    grpc_completion_queue *queue;
    LhChannel *channels; /* by endpoint */
    guint current;       /* the endpoint in use */
    guint moves;         /* tells what was begun before the last move */
    gint64 said_us;      /* the last move that was logged */
} LhLane;

typedef struct LhChannels LhChannels;

/* @servers is copied. */
LhChannels *lh_channels_new(const LhRpcServers *servers, const LhRpcMethod *methods,
                            guint n_methods);
/* Destroys the channels of all lanes, which ends what waits for a connection. */
void lh_channels_close(LhChannels *channels);
/* After lh_channels_close, with the queues empty and no thread on them. */
void lh_channels_free(LhChannels *channels);

guint lh_channels_n(const LhChannels *channels); /* endpoints */
const char *lh_channels_url(const LhChannels *channels, guint endpoint);
LhLane *lh_channels_lane(LhChannels *channels, gboolean lease);
/* Creates the channel if need be. */
LhChannel *lh_channels_get(LhChannels *channels, LhLane *lane, guint endpoint);
/* The lane uses the next endpoint from then on; says so, with @why. */
void lh_channels_move(LhChannels *channels, LhLane *lane, const char *why);
