/*
 * What the cache controllers share: how a fate reads, and what a decision about it relied on. Pure.
 */
#pragma once

#include "controllers/fleet.h"

/* cluster-monitor's rule for what it takes back from a node that does not get it loaded: such an evict
 * ends like a load that failed. */
#define LH_RULE_STUCK_LOADING "stuck-loading"

/* "its window is over", "its service was deleted" …; static storage. */
const char *lh_cache_fate_text(const LhFate *fate);

/* Compares for the open group: what @replica's fate was read from is unchanged. */
void lh_cache_rely_on_fate(LhPlan *plan, const LhFleet *fleet, const LhFleetReplica *replica);
