/*
 * What waits for room in the cache pool, set by set, and how much room is missing. Pure.
 */
#pragma once

#include "controllers/fleet.h"
#include "placement/placement.h"

typedef struct {
    const char *set;       /* atom */
    gint64 capacity_bytes; /* of nodes that take work */
    gint64 used_bytes;
    gint64 nodes;
    gint64 waiting_items, waiting_bytes;
    /* Of those that wait, freshest first, what all free room together cannot hold. */
    gint64 missing_items, missing_bytes;
    gint64 wanted_bytes; /* assigned or waiting */
} LhSetCapacity;

/* Sums of sizes that people publish: they stop at G_MAXINT64. */
gint64 lh_capacity_add(gint64 a, gint64 b);

/* One row for each set that has nodes or replicas, sorted by name; free with g_array_unref. */
GArray *lh_capacity_rows(const LhFleet *fleet, gint64 now_ms);

/* A placement of all hosts as they stand; where some are on probation, limited by all that is assigned or waits in
 * their set. Borrows from @fleet. */
LhPlacement *lh_capacity_placement(const LhFleet *fleet);
