/*
 * Taking cache nodes out of use: what is on a drained host, or on a node in failure (onFailure: evict), is
 * loaded elsewhere first, and only when it is live there is the old copy evicted. Until then the node that
 * it leaves goes on serving it, as far as it can.
 *
 * For so long one replica has two assignments, on different hosts. cache-assigner makes the second,
 * cache-evictor takes the one that does not stay; both compare what they saw of the other, so a replica
 * that was live is never without a live copy. A drain that is undone half-way, or a node that is well
 * again, leaves two as well: the older one that is live stays. Pure.
 */
#pragma once

#include "controllers/fleet.h"

/* Rules of the orders that end a copy too many. They are no losses: the brake does not count them. */
#define LH_RULE_DRAINED "drained"
#define LH_RULE_FAILING "node-in-failure"
#define LH_RULE_DOUBLED "doubled"

gboolean lh_drain_is_move(const LhAssignment *order);

/* Why @node is left, one of the rules above and the same in words: "is drained". NULL: it is not. */
const char *lh_drain_rule(const LhFleetNode *node);
const char *lh_drain_words(const LhFleetNode *node);

/* The load on a node that is left, or any order on one in failure, that is to be done elsewhere now. NULL: there is none; *why (static or of the
 * index) says what is in the way, NULL: it is on its way, or goes anyway. */
const LhFleetAssignment *lh_drain_source(const LhFleet *fleet, const LhFleetReplica *replica,
                                         gint64 now_ms, const char **why);
/* For the open group that loads @source's replica elsewhere. */
void lh_drain_rely_on_source(LhPlan *plan, const LhFleet *fleet, const LhFleetAssignment *source);

/* Of the copies that nodes say are live the one that stays; NULL: none is, or it is no node's to say. */
const LhFleetAssignment *lh_drain_stayer(const LhFleetReplica *replica);
/* Whether @assignment, a copy of the same replica, may go because @stayer stays. */
gboolean lh_drain_ends(const LhFleetAssignment *assignment, const LhFleetAssignment *stayer);
/* For the open group that evicts @target: @stayer is live, and stays. */
void lh_drain_rely_on_stayer(LhPlan *plan, const LhFleet *fleet, const LhFleetAssignment *target,
                             const LhFleetAssignment *stayer);

/* ---- what is said of a drained host, and of a node in failure ---- */

/* Why items are still there, by host and node. */
typedef struct LhDrainTally LhDrainTally;

LhDrainTally *lh_drain_tally_new(void);
void lh_drain_tally_free(LhDrainTally *tally); /* accepts NULL */
typedef enum {
    LH_DRAIN_NO_ROOM, /* nowhere else is room */
    LH_DRAIN_FAILING, /* it could not be loaded elsewhere */
    LH_DRAIN_LEFT,    /* it is left alone */
} LhDrainWait;
/* Each load of @replica on a node that is left waits; @why is static or of the index. */
void lh_drain_tally_add(LhDrainTally *tally, const LhFleetReplica *replica, LhDrainWait wait,
                        const char *why);
/* The conditions Drained of each of fleet->drains and Evacuated of each of fleet->failures, as groups of
 * @plan. */
void lh_drain_say(const LhFleet *fleet, const LhDrainTally *tally, gint64 now_ms, LhPlan *plan);

G_DEFINE_AUTOPTR_CLEANUP_FUNC(LhDrainTally, lh_drain_tally_free)
