/*
 * One plan of seed-allocator, in two files: what must be done, and where seeds go (seed_allocator.c); what is
 * moved for balance or for a drain (seed_moves.c). Nobody else includes this.
 */
#pragma once

#include "controllers/seed_places.h"

/* Orders of these rules take the whole group along. */
#define RULE_REBALANCE "rebalance"
#define RULE_DRAINED   "drained"
#define RULE_MOVED     "moved-with-policy"

/* A seed that waits for a node. */
typedef struct {
    const LhPoolItem *item;
    const LhPoolAssignment *ended; /* what it leaves; NULL: nothing */
} LhSeedPending;

/* A policy in this plan. */
typedef struct {
    const LhSeedGroup *group;
    const char *owner; /* node id of the claim, NULL: none */
    gint64 owner_since;
    const LhPoolNode *node; /* of what is held; NULL: nothing is */
    guint loads, evicts;    /* held */
    gint64 going;           /* orders to evict for a move at the owner, answered or not */
    gboolean split, moving, claimed, lost;
    gboolean joined; /* by a seed, in this plan */
    gboolean
        unknown; /* its Accepted, its claim or the Accepted of one of its seeds does not parse */
    const LhPoolAssignment *last; /* of those that may end, the one that was answered last */
    GArray *pending;              /* LhSeedPending */
} LhSeedDecision;

/* A group without a holder, or a seed without throttle. */
typedef struct {
    LhSeedDecision *group; /* NULL: one seed */
    LhSeedPending one;     /* of a group the first */
    gint64 size, priority;
} LhSeedUnit;

typedef struct {
    const LhPools *pools;
    const LhPoolView *view;
    const LhPlanContext *context;
    const LhSettings *settings;
    LhPlan *plan;
    LhSeedPlaces *places;
    GHashTable *groups; /* name -> LhSeedDecision */
    GHashTable *told;   /* items for which something was written, and need no Status now */
    GArray *units;      /* LhSeedUnit */
    gint64 leaving;     /* seeds without throttle on their way from a node */
    gint64 missing;
    gint64 threshold;  /* managers may differ by so many */
    gboolean balances; /* seeds may be moved to make managers even: always, or a person has asked */
    gboolean stopped, asked, moves;
} LhSeedRound;

/* The budget is used up; then nothing more may be begun. */
gboolean lh_seed_plan_full(LhSeedRound *round);
/* A group that orders a known load to be evicted. */
void lh_seed_plan_evict(LhSeedRound *round, const LhPoolAssignment *assignment, const char *rule,
                        const char *reason);
/* Seeds of some policy are on their way, or wait. */
gboolean lh_seed_plan_moving(LhSeedRound *round);
/* After all that must be done: one group off each drained manager, then what makes the others even. */
void lh_seed_plan_moves(LhSeedRound *round);
