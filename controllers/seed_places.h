/*
 * How many seeds every manager that takes new ones has, as one plan goes on; where the next ones go, and how
 * many have to go elsewhere. Pure arithmetic over counts.
 *
 * What is even, the first before the second:
 *  1. Seeds without throttle are within 1 of each other (q or q + 1 on each), as far as there is room.
 *  2. Totals are as even as whole policies allow: the managers with one more are those with the fewest seeds in
 *     all; and a policy is moved when that makes two totals differ less.
 * Nothing is moved unless two managers differ by more than is borne, and less afterwards. So what one rebalance
 * has made even, a second leaves as it is. Of totals more is borne than of seeds without throttle, for who moves
 * a policy interrupts all its crawls: else the death of one manager of a hundred would move twice what it had.
 *
 * A policy goes where its total is to be the smallest: the seeds of policies there, and the seeds without throttle
 * that the manager will have when those are even (q of them; who has the one more is settled after the policies, for
 * one seed is moved more cheaply than a policy). By the seeds of policies alone a manager that is full, or whose
 * seeds nobody is to move (autoRebalance: false), would get too much; by the present totals, one that has just
 * come would get policies in place of the seeds that it is about to be given, and they would have to move back.
 * In one plan a manager gives policies or gets some: so no move of the plan undoes another, and what is judged is
 * what is there.
 *
 * Why this ends: a move of seeds without throttle makes them more even, or leaves them so and makes totals more
 * even; a policy's move takes no room from seeds without throttle, and makes totals more even.
 */
#pragma once

#include "controllers/seeds.h"

typedef struct LhSeedPlaces LhSeedPlaces;

typedef struct {
    const LhPoolNode *node;
    gint64 held, limit; /* of assignments, whatever they say */
    gint64 free;        /* seeds without throttle */
    gint64 groups;      /* seeds with one */
    /* By lh_seed_places_level(), of seeds without throttle: what it will have when they are even; what then
     * changes for the sake of totals; and of these what is no question of who has one more. */
    gint64 even, target, base;
    gboolean gives, takes; /* policies, in this plan: never both */
} LhSeedPlace;

/* By how much managers may differ. */
typedef struct {
    gint64 free;   /* in seeds without throttle */
    gint64 totals; /* in all */
} LhSeedBorne;

LhSeedPlaces *lh_seed_places_new(const LhPoolView *view); /* @view may be NULL */
void lh_seed_places_free(LhSeedPlaces *places);
guint lh_seed_places_n(const LhSeedPlaces *places);
LhSeedPlace *lh_seed_places_at(LhSeedPlaces *places, guint i);
/* NULL: the node takes nothing new. @node may be NULL. */
LhSeedPlace *lh_seed_places_find(LhSeedPlaces *places, const LhPoolNode *node);
void lh_seed_places_add(LhSeedPlace *place, gboolean group, gint64 size);
/* With @threshold for seeds without throttle, and a tenth of what a manager has if that is more in all. */
LhSeedBorne lh_seed_places_borne(const LhSeedPlaces *places, gint64 threshold);

typedef struct {
    gboolean group;
    gint64 size;             /* of one without throttle: 1 */
    const char *avoid;       /* not to this host, if there is another; NULL: any */
    const LhSeedPlace *home; /* may be NULL: where orders of just these seeds still take room, */
    gint64 home_held;        /* so many */
} LhSeedWish;

/* Where they go. One without throttle: the fewest without, then the fewest of all; a group: see above; then by
 * name. NULL: nowhere is room. */
LhSeedPlace *lh_seed_places_best(LhSeedPlaces *places, const LhSeedWish *wish);

/* Sets even, target and base, with @coming seeds without throttle that have no place yet. @move: seeds may be
 * moved for balance; else each keeps what it has. TRUE: seeds have to be moved to be even (free > even). */
gboolean lh_seed_places_level(LhSeedPlaces *places, gint64 coming, const LhSeedBorne *borne,
                              gboolean move);

/* After lh_seed_places_level(). The manager to which @size seeds of a group at @from go so that the two
 * differ less; NULL: there is none, or the difference is borne. Takes no room of what is coming. */
LhSeedPlace *lh_seed_places_relief(LhSeedPlaces *places, const LhSeedPlace *from, gint64 size,
                                   const LhSeedBorne *borne);
/* They are moved there; the room at @from is free when they have gone. */
void lh_seed_places_move(LhSeedPlace *from, LhSeedPlace *to, gint64 size);
/* By how much the move evens the two: of several groups the one with the most is moved. */
gint64 lh_seed_places_gain(const LhSeedPlace *from, const LhSeedPlace *to, gint64 size);
/* As lh_seed_places_level() left them: all seeds that it will have. */
gint64 lh_seed_place_total(const LhSeedPlace *place);
