/*
 * A sorted set of records, in 8 to 16 bytes for each: blocks of pointers, in order, and a list of the blocks.
 *
 * Neighbours, ranges and "the first that does not come before" are what it is for; a name alone is found
 * faster in an LhNameSet. Records put in in order fill their blocks, and cost two comparisons each. What a
 * record is sorted by must not change while it is in the set. Pure; one thread at a time.
 */
#pragma once

#include "base/slab.h"

#include <glib.h>

/* The sign of @record's order against @key, which is of the caller's own type. */
typedef int (*LhSortedCompare)(gconstpointer record, gconstpointer key);

typedef struct LhSortedBlock LhSortedBlock;

/* Between two records, or at an end; valid until the set changes. */
typedef struct {
    guint block, at;
} LhSortedPlace;

typedef struct {
    LhSortedBlock **blocks;
    guint n_blocks, room;
    gsize n;
    LhSortedCompare compare;
    LhSlab slab;          /* of the blocks */
    LhSortedPlace latest; /* where a record was put last: the next one is tried behind it */
} LhSortedSet;

/* No memory is used before the first record. */
void lh_sorted_set_init(LhSortedSet *set, LhSortedCompare compare);
void lh_sorted_set_clear(LhSortedSet *set); /* the set becomes empty; records are not touched */

/* Before the first record that does not come before @key. */
LhSortedPlace lh_sorted_set_find(const LhSortedSet *set, gconstpointer key);
/* The record behind @place, NULL at the end; lh_sorted_set_next also moves @place behind it. */
gpointer lh_sorted_set_at(const LhSortedSet *set, LhSortedPlace place);
gpointer lh_sorted_set_next(const LhSortedSet *set, LhSortedPlace *place);
/* The record before @place, NULL at the beginning; moves @place before it. */
gpointer lh_sorted_set_back(const LhSortedSet *set, LhSortedPlace *place);

/* Puts @record at @place, which must be where its order wants it. Returns the place before it. */
LhSortedPlace lh_sorted_set_put(LhSortedSet *set, LhSortedPlace place, gpointer record);
/* Takes out the record behind @place, which must not be the end. */
void lh_sorted_set_take(LhSortedSet *set, LhSortedPlace place);
