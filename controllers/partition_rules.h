/*
 * Which partitions a service gets, from what it needs and what the others use. Pure.
 *
 * A room is all partitions with what is used of them. A service that is decided about is lifted out of it
 * first, and put back with what it got, so that the next one sees it:
 *
 *   shared     the smallest n of at least `min` partitions that each have throughput/n free: first those of
 *              the last interval of its plan, then others that it holds, then those of others; of equals the
 *              fullest, then by id
 *   dedicated  in the same order those that it has for itself, then empty ones, by id, until their
 *              capacities together reach the throughput and there are `min`
 *
 * Two sums are kept for each partition. `used` is what the last interval of every plan puts on it: what it
 * holds is judged by that. `leaving` is what is on it only until a coming cut-over: nothing new is put where
 * that would be too much, because a cut-over that has not happened may still be put off.
 */
#pragma once

#include <glib.h>

typedef struct LhPartitionRoom LhPartitionRoom;

/* Bytes per second: throughputs and capacities beyond it count as this, so that sums stay numbers. */
#define LH_PARTITION_MOST (G_GINT64_CONSTANT(1) << 45)

/* How one service uses one partition. */
typedef struct {
    guint seat;
    gboolean last;        /* in the last interval of its plan */
    gint64 used, leaving; /* bytes per second; leaving: beyond used, until the cut-over */
    gboolean dedicated;   /* the service wants its partitions for itself */
    gboolean unsized;     /* the service's throughput is not known */
} LhPartitionUse;

typedef struct {
    gint64 throughput;
    gint64 min;
    gboolean dedicated;
    const LhPartitionUse *held; /* what it was lifted out of: each seat once, sorted by id */
    guint n_held;
} LhPartitionAsk;

typedef struct {
    gboolean enough;
    gint64 needed, found; /* not enough: partitions */
    gint64 share; /* bytes per second on each: of what it got, or that each of `needed` must have */
} LhPartitionAnswer;

LhPartitionRoom *lh_partition_room_new(void);
void lh_partition_room_free(LhPartitionRoom *room); /* accepts NULL */
/* The same seats; ids stay borrowed. */
LhPartitionRoom *lh_partition_room_copy(const LhPartitionRoom *room);

/* A partition of this id, which is borrowed; its seat number stays until it is removed. Nothing is on it, and
 * its capacity is not known. */
guint lh_partition_room_add(LhPartitionRoom *room, const char *id);
void lh_partition_room_remove(LhPartitionRoom *room, guint seat); /* nobody uses it any more */
/* Bytes per second; -1: there is no such partition, or it is not known. */
void lh_partition_room_set_capacity(LhPartitionRoom *room, guint seat, gint64 capacity);

const char *lh_partition_room_id(const LhPartitionRoom *room, guint seat);
/* -1: not known. */
gint64 lh_partition_room_capacity(const LhPartitionRoom *room, guint seat);
/* All that is on it, what is leaving included. */
gint64 lh_partition_room_load(const LhPartitionRoom *room, guint seat);
/* More is used of it than it has; FALSE when its capacity is not known. */
gboolean lh_partition_room_over(const LhPartitionRoom *room, guint seat);
/* How many services have it in the last interval of their plan. */
guint lh_partition_room_users(const LhPartitionRoom *room, guint seat);

void lh_partition_room_put(LhPartitionRoom *room, const LhPartitionUse *uses, guint n);
void lh_partition_room_lift(LhPartitionRoom *room, const LhPartitionUse *uses, guint n);

/* Of a service that is in the room: whether what the last interval of its plan gives it is all it needs. */
gboolean lh_partition_room_keeps(const LhPartitionRoom *room, const LhPartitionAsk *ask);
/* Of a service that was lifted out: what it should have. @seats (of guint) becomes the answer, sorted by id;
 * it stays as it is when there is not enough. */
LhPartitionAnswer lh_partition_room_decide(LhPartitionRoom *room, const LhPartitionAsk *ask,
                                           GArray *seats);

/* @throughput over @n partitions, rounded up. */
gint64 lh_partition_share(gint64 throughput, gint64 n);

G_DEFINE_AUTOPTR_CLEANUP_FUNC(LhPartitionRoom, lh_partition_room_free)
