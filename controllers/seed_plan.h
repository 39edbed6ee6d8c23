/*
 * One plan of seed-allocator, in seven files; nobody else includes this.
 *
 *   seed_allocator.c   the order of it all, and what people are told
 *   seed_todo.c        each seed that is not as it should be: what must be done where it is; which ones wait
 *   seed_policies.c    each policy: what its assignments say, and whether those that wait may go to its holder
 *   seed_placing.c     where single seeds and whole policies go that wait
 *   seed_moves.c       what is moved for a drain or for balance
 *   seed_orders.c      what the others write: every op on a seed's assignment and on a policy's claim
 *   seed_places.[ch]   the arithmetic: how many seeds are where
 */
#pragma once

#include "controllers/seed_places.h"

#define SEED_ALLOCATOR "seed-allocator"

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
    gboolean split, moving, claimed, lost;
    gboolean joined; /* by a seed, in this plan */
    gboolean waits;  /* seeds of it for its manager, which takes nothing new */
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
    const char *nowhere; /* why no manager takes any seed; NULL: some do. Static storage */
    LhSeedBorne borne;
    gboolean balances; /* seeds may be moved to make managers even: always, or a person has asked */
    gboolean stopped, asked, moves;
} LhSeedRound;

/* ---- of all ---- */

/* The budget is used up; then nothing more may be begun. */
gboolean lh_seed_plan_full(LhSeedRound *round);
/* It is there and does not parse. */
gboolean lh_seed_plan_unknown(const LhObject *object);
/* Why nothing is done with it. */
void lh_seed_plan_note(LhSeedRound *round, const LhPoolItem *item, const char *rule,
                       const char *reason);
/* A manager of that name may come back; *until: how long it is waited for. */
gboolean lh_seed_plan_grace(const LhSeedRound *round, const LhPoolAssignment *ended, gint64 *until);

/* ---- the parts of a plan, in this order ---- */

/* Each seed that is not settled; fills units, and pending of the groups. */
void lh_seed_plan_todo(LhSeedRound *round);
/* Each policy that this plan has to do with. */
void lh_seed_plan_policies(LhSeedRound *round);
/* What waits and may go anywhere. */
void lh_seed_plan_units(LhSeedRound *round);
/* Of policies that nobody holds any more: since when is what decides about their window. */
void lh_seed_plan_releases(LhSeedRound *round);
/* After all that must be done: one group off each drained manager, then what makes the others even. */
void lh_seed_plan_moves(LhSeedRound *round);

/* ---- policies ---- */

/* Read once in a plan. */
LhSeedDecision *lh_seed_plan_group(LhSeedRound *round, const LhSeedGroup *group);
void lh_seed_decision_free(gpointer decision);
/* Its throttle has to do with something that does not parse. @group may be NULL. */
gboolean lh_seed_plan_frozen(const LhSeedGroup *group);
void lh_seed_plan_note_all(LhSeedRound *round, const LhSeedDecision *at, const char *rule,
                           const char *reason);
/* Seeds of some policy are on their way, or will soon be. */
gboolean lh_seed_plan_moving(LhSeedRound *round);

/* ---- ops; each is a group of its own, but for those that say otherwise ---- */

/* The name of the claim, the Status of the policy; g_free. */
char *lh_seed_claim_name(const LhSeedGroup *group);
/* In the open group: @node (NULL: nobody) holds the policy. */
void lh_seed_claim_put(LhSeedRound *round, LhSeedDecision *at, const char *node);
/* In the open group: the seed's Accepted, or its absence. */
void lh_seed_rely(LhSeedRound *round, const LhPoolItem *item);
/* In the open group. @owner and @message may be NULL. */
void lh_seed_put_status(LhSeedRound *round, const LhPoolItem *item, const char *owner,
                        const char *state, const char *message);
/* @claim: with the claim of its policy for this node; else that stands, or it has none (@at NULL). */
void lh_seed_load(LhSeedRound *round, LhSeedDecision *at, const LhSeedPending *pending,
                  const LhPoolNode *node, gboolean claim);
/* The order as the seed and its policy are now; @claim: with the claim of the policy for this node. */
void lh_seed_update(LhSeedRound *round, const LhPoolAssignment *assignment, LhSeedDecision *at,
                    gboolean claim, const char *json);
/* Orders a known load to be evicted. */
void lh_seed_plan_evict(LhSeedRound *round, const LhPoolAssignment *assignment, const char *rule,
                        const char *reason);
/* The order ends: nothing is held; its node has done it; its node could not. */
void lh_seed_take(LhSeedRound *round, const LhPoolAssignment *assignment, const char *rule,
                  const char *reason);
void lh_seed_take_done(LhSeedRound *round, const LhPoolAssignment *assignment);
void lh_seed_take_failed(LhSeedRound *round, const LhPoolAssignment *assignment);
