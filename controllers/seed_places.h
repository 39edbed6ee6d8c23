/*
 * How many seeds every manager that takes new ones has, as one plan goes on; where the next ones go, and how
 * many have to go elsewhere. Pure arithmetic over counts.
 */
#pragma once

#include "controllers/seeds.h"

typedef struct LhSeedPlaces LhSeedPlaces;

typedef struct {
    const LhPoolNode *node;
    gint64 held, limit; /* of assignments, whatever they say */
    gint64 free;        /* seeds without throttle */
    gint64 groups;      /* seeds with one */
} LhSeedPlace;

LhSeedPlaces *lh_seed_places_new(const LhPoolView *view); /* @view may be NULL */
void lh_seed_places_free(LhSeedPlaces *places);
guint lh_seed_places_n(const LhSeedPlaces *places);
LhSeedPlace *lh_seed_places_at(LhSeedPlaces *places, guint i);
/* NULL: the node takes nothing new. @node may be NULL. */
LhSeedPlace *lh_seed_places_find(LhSeedPlaces *places, const LhPoolNode *node);
/* Where @size seeds of a group, or one without throttle, go: the fewest of the same sort, then the fewest of
 * all, then by name; not to host @avoid, if there is another. NULL: nowhere is room. */
LhSeedPlace *lh_seed_places_best(LhSeedPlaces *places, gboolean group, gint64 size,
                                 const char *avoid);
/* The most seeds of groups. */
LhSeedPlace *lh_seed_places_fullest(LhSeedPlaces *places);
void lh_seed_places_add(LhSeedPlace *place, gboolean group, gint64 size);
/* How many seeds without throttle each has to give, so that, with @coming placed too, they are within 1 of
 * each other as far as there is room, with the fewest moves. NULL: their difference is within @threshold
 * without that. g_free. */
gint64 *lh_seed_places_surplus(const LhSeedPlaces *places, gint64 coming, gint64 threshold);
