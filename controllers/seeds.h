/*
 * Seeds and throttle policies as seed-allocator sees them, beside the index of the exclusive pools.
 *
 * Part of that index's fold (pool.c): which policy a seed asks for, which one each assignment says, how many
 * of both kinds every manager has, and which seeds are not as they should be. All of it follows from the
 * present objects alone. No time. Pure.
 */
#pragma once

#include "controllers/pool.h"

/* The seeds of one throttle policy: they are on one manager, always. */
struct LhSeedGroup {
    char *name;               /* of the ThrottlePolicy */
    const LhObject *throttle; /* its Accepted or unknown, NULL: none */
    const LhObject *status;   /* of seed-allocator: who holds it; unknown or NULL */
    GTree *members;           /* LhPoolItem by name: known accepted seeds that ask for it */
    GTree *orders; /* LhPoolAssignment by key: known ones that say it, of whatever action */
};

struct LhSeeds {
    LhPools *pools;
    GTree *groups;         /* LhSeedGroup by name */
    GTree *todo;           /* LhPoolItem by name: not settled */
    gint64 unknown_orders; /* Assignments that do not parse: any policy may be held by them */
};

LhSeeds *lh_seeds_new(LhPools *pools);
void lh_seeds_free(LhSeeds *seeds);
/* An Accepted ThrottlePolicy, or its Status by seed-allocator. */
void lh_seeds_throttle(LhSeeds *seeds, const char *name, LhKind kind, const LhObject *after);
/* After the subject of a seed changed; after an assignment's object changed. */
void lh_seeds_subject(LhSeeds *seeds, LhPoolItem *item);
void lh_seeds_order(LhSeeds *seeds, LhPoolAssignment *assignment);
/* After anything of the item changed. */
void lh_seeds_touch(LhSeeds *seeds, LhPoolItem *item);

/* The spec if it is accepted and known, else NULL. */
const LhSeed *lh_seed_spec(const LhPoolItem *item);
/* A node said that it is done, and the seed was not edited since. */
gboolean lh_seed_done(const LhPoolItem *item);
/* It shall be on a manager: started, or paused and on one. */
gboolean lh_seed_wanted(const LhPoolItem *item);
/* What its assignment should say: the spec, with the ThrottlePolicy resolved; g_free. NULL: unknown, or it
 * names a policy that is not in force. */
char *lh_seed_json(const LhPoolItem *item);
/* State and holder for its Status; static and borrowed. @owner: NULL when it is nowhere. */
const char *lh_seed_state(const LhPoolItem *item, const char **owner);
/* NULL when it is not known or not there. */
const LhThrottle *lh_seed_group_throttle(const LhSeedGroup *group);
/* The holder's node id as its Status says, and since when; NULL: nobody (since: the last one ended). */
const char *lh_seed_group_owner(const LhSeedGroup *group, gint64 *since);
