/*
 * What a Restore asks for, against what there is: which restored replicas are missing, which of its own are
 * to live longer, what is there already, and what stands in the way. Pure.
 */
#pragma once

#include "controllers/fleet.h"

typedef struct {
    const LhFleetSnapshot *snapshot;
    const char *set; /* borrowed from the Service in force, or static */
    gint64 ordinal;
} LhRestoreMissing;

typedef struct {
    GArray *missing;   /* LhRestoreMissing, freshest first */
    GPtrArray *extend; /* LhFleetReplica: its own, of an earlier revision of it */
    gint64 own;        /* its own that are there, those to extend included */
    gint64 covered;    /* snapshot and set that have another live or coming replica */
    gint64 held;       /* missing, and something is in the way for now: see blocked */
    gint64
        skipped; /* snapshots that cannot be restored: live, not valid, being deleted, or not there */
    char *blocked; /* what is in the way; NULL: nothing */
} LhRestoreScan;

/* @restore's accepted spec is known. */
void lh_restore_scan(const LhFleet *fleet, const LhFleetRestore *restore, gint64 now_ms,
                     LhRestoreScan *out);
void lh_restore_scan_clear(LhRestoreScan *scan);

/* When @replica, of an earlier revision of its Restore, expires with @ttl_ms; -1: @ttl_ms after it is live.
 * Never earlier than before. */
gint64 lh_restore_extended(const LhReplica *replica, gint64 ttl_ms);

G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC(LhRestoreScan, lh_restore_scan_clear)
