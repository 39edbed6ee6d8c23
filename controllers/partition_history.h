/*
 * The history of a PartitionPlan: intervals without gap or overlap, and how a change goes into it. Pure.
 *
 * A change begins ahead of time (cutover), so that all who write and read switch at the same moment; the
 * interval before it ends exactly there. What has not begun yet is replaced, so there is at most one coming
 * interval; all before it, and the start of the running one, are never touched.
 */
#pragma once

#include "api/decided.h"

typedef struct {
    gint64 now_ms;
    gint64 cutover_ms;
    gint64 keep_ms; /* an interval that ended so long ago goes with the next change */
} LhPartitionTimes;

/* A clock that is this much ahead of ours sees an interval begun that we do not: such a one is not replaced.
 * Half the cutover, at most a minute. */
gint64 lh_partition_margin_ms(gint64 cutover_ms);

/* Of a history that is not empty: the running interval, as far as changes are concerned; the last one or the
 * one before it. */
guint lh_partition_running(const LhArray *history, gint64 now_ms, gint64 cutover_ms);

/* The same partitions, in any order. */
gboolean lh_partition_same(const char *const *a, const char *const *b);
/* What an interval of them takes in a PartitionPlan, in bytes. */
gsize lh_partition_interval_bytes(const char *const *partitions);
/* Two intervals of this size always fit into a value (64 KiB). */
#define LH_PARTITION_INTERVAL_MAX (28 * 1024)

/* The history with @partitions (sorted; empty: none) in force as soon as may be. @present: NULL or empty: the
 * first interval begins at once, as there is nothing to cut over from. Of what is past, the oldest goes as far
 * as the value would be too large. GArray of LhPartitionInterval that point to what was given. */
GArray *lh_partition_history(const LhArray *present, const char *const *partitions,
                             const LhPartitionTimes *times);
