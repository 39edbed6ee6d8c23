/*
 * The second half of partition-allocator: partitions to indexers. Pure.
 *
 * An item of the pool indexer is a partition that some plan uses now, will use, or used until less than one
 * cutover ago (what was written to it is still to be read). Each lies on one indexer: where it is, it stays,
 * unless its indexer is drained or much busier than another; then one at a time is evicted, acknowledged, and
 * loaded elsewhere. What is without an indexer goes, the busiest first, to the one with the least to do.
 */
#pragma once

#include "controllers/pool.h"

void lh_indexers_plan(const LhPools *pools, const LhPlanContext *context, LhPlan *plan);
/* For LhController.gauges. */
void lh_indexers_gauges(gconstpointer index, gint64 now_ms, LhGaugeFunc gauge, gpointer data);
