/*
 * Between the two files of placement only: placement.c (the rules, and asking node after node) and index.c
 * (the same answers from sorted sums, for many items).
 */
#pragma once

#include "placement/placement.h"

typedef struct LhPlaceIndex LhPlaceIndex;

/* What a search has found so far. */
typedef struct {
    LhPlaceNode *best;                        /* of best_rank, with a slot */
    double best_share;                        /* of its capacity, after placing */
    guint best_rank;                          /* over all nodes with room, slot or not */
    gboolean bytes, items, distinct, allowed; /* some node passed up to this test */
} LhPlaceSearch;

/* The larger of the shares of both capacities that are in use with an item of @size_bytes more. */
double lh_place_share(gint64 capacity_bytes, gint64 capacity_items, gint64 bytes, gint64 items,
                      gint64 size_bytes);
/* Bits of the rules 2 to 4: smaller is better. */
enum { LH_RANK_AVOIDED = 1 << 0, LH_RANK_COLD = 1 << 1, LH_RANK_ZONE = 1 << 2 };
gboolean lh_place_listed(const char *const *list, const char *text);
/* Asks one node. */
void lh_place_consider(LhPlaceStrategy strategy, gint64 reserve_percent, LhPlaceNode *node,
                       const LhPlaceItem *item, LhPlaceSearch *search);
/* Takes @node, which has room, a slot and the best rank, if it is better by rules 5 and 6. */
void lh_place_prefer(LhPlaceStrategy strategy, LhPlaceNode *node, const LhPlaceItem *item,
                     LhPlaceSearch *search);

/* Over the nodes of one set; @nodes must neither move nor grow while it lives. */
LhPlaceIndex *lh_place_index_new(LhPlaceStrategy strategy, gint64 reserve_percent,
                                 LhPlaceNode *nodes, guint n);
void lh_place_index_free(LhPlaceIndex *index); /* accepts NULL */
/* The same as considering each of its nodes. */
void lh_place_index_search(LhPlaceIndex *index, const LhPlaceItem *item, LhPlaceSearch *search);
LhPlaceNode *lh_place_index_find(const LhPlaceIndex *index, const char *node_id);
/* What is counted on @node, or its slots, have changed. */
void lh_place_index_changed(LhPlaceIndex *index, const LhPlaceNode *node);
