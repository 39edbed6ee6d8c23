/*
 * The pure engine that puts items on the nodes of a pool. No I/O, clock, random, log or global.
 *
 * The caller lists the nodes with what they hold, then asks for one item after the other, the most
 * important first; each answer is booked, so the next item sees it. Rules, in this order:
 *
 *   1. Never two items of one group on one host; never beyond a host's capacity in bytes or items.
 *      reserve_percent of both is for restored items alone; they never use more than that share. A node on
 *      probation, as long as there are others, never beyond half of an equal share of bytes and items.
 *   2. A zone in which the group has no item yet, while there is one with room.
 *   3. A node that has the data on its disk.
 *   4. Not the host where the last attempt failed.
 *   5. strategy: spread takes the emptiest (share of its capacity after placing), pack the fullest.
 *   6. Fewer items, then the smaller id: equal inputs give equal answers.
 *
 * Load slots come last: if the best node by rules 2 to 4 has no slot, the item waits for one rather than
 * going to a worse place.
 */
#pragma once

#include <glib.h>

typedef struct LhPlacement LhPlacement;

typedef struct {
    const char *id;   /* borrowed until lh_placement_free */
    const char *host; /* node name; restarts share it */
    const char *set;
    const char *zone;                      /* NULL: none; nodes without a zone share no zone */
    gint64 capacity_bytes;                 /* 0: holds nothing that has bytes */
    gint64 capacity_items;                 /* 0: no limit */
    gint64 used_bytes, used_items;         /* regular items of the host */
    gint64 restored_bytes, restored_items; /* restored items of the host */
    gint64 load_slots;                     /* loads that it may still begin */
    gboolean probation;
    gboolean limited; /* the three by lh_placement_limit: holds at most so much of both classes */
    gint64 limit_bytes, limit_items;
} LhPlaceNode;

typedef enum { LH_PLACE_SPREAD, LH_PLACE_PACK } LhPlaceStrategy;

typedef struct {
    const char *set;
    gint64 size_bytes;
    gboolean restored;
    const char *const
        *holder_hosts; /* hosts that hold another item of the group; NULL-ended or NULL */
    const char *const *holder_zones; /* their zones; NULL-ended or NULL */
    const char *const *warm_ids;     /* nodes with the data on disk; NULL-ended or NULL */
    const char *avoid_host;          /* where it failed last, or NULL */
} LhPlaceItem;

typedef enum {
    LH_PLACED_WARM,     /* the data is there already */
    LH_PLACED_STRATEGY, /* spread or pack chose */
    LH_WAIT_SLOT,       /* there is room, all its nodes load as many as they may */
    LH_WAIT_BYTES,      /* nowhere enough bytes */
    LH_WAIT_ITEMS,      /* nowhere an item more */
    LH_WAIT_DISTINCT,   /* room only on hosts that hold the group already */
    LH_WAIT_PROBATION,  /* room only on nodes on probation, beyond what they may have */
    LH_WAIT_NODES,      /* the set has no node that takes work */
} LhPlaceRule;

typedef struct {
    LhPlaceRule rule;
    const char *node_id; /* NULL when it waits */
} LhPlaceAnswer;

LhPlacement *lh_placement_new(LhPlaceStrategy strategy, gint64 reserve_percent);
void lh_placement_free(LhPlacement *placement); /* accepts NULL */
void lh_placement_add(LhPlacement *placement, const LhPlaceNode *node);
/* The same for many nodes of @set, with @slots load slots more than each says. */
void lh_placement_add_all(LhPlacement *placement, const char *set, const LhPlaceNode *nodes,
                          guint n, gint64 slots);
/* What a node on probation holds at most of @demand, all that is assigned or waits for @nodes nodes: half of
 * an equal share. */
gint64 lh_place_half_share(gint64 demand, gint64 nodes);
/* Limits those of @set's nodes so that are on probation; none, when all are: who waited for better ones would wait
 * for nobody. After the nodes are added, and before the first question. */
void lh_placement_limit(LhPlacement *placement, const char *set, gint64 bytes, gint64 items);
LhPlaceAnswer lh_placement_place(LhPlacement *placement, const LhPlaceItem *item);

/* Takes a load slot of @node_id for an item that is counted there already (its node came back under a new
 * id). False: there is none, or no such node. */
gboolean lh_placement_take_slot(LhPlacement *placement, const char *set, const char *node_id);

/* When more is counted on @node_id than it has room for (it came back smaller), or more of the item's class
 * than its share of the reserve, takes an item of this size off it. False: all that is counted there fits,
 * or no such node. */
gboolean lh_placement_give_up(LhPlacement *placement, const char *set, const char *node_id,
                              gint64 size_bytes, gboolean restored);

/* "placed-by-strategy", "wait-slot" …: the rule ids of ops and notes. */
const char *lh_place_rule_id(LhPlaceRule rule);

/* Room for regular (or restored) items on @node under @reserve_percent. Never below 0; items G_MAXINT64
 * when there is no limit. */
gint64 lh_place_free_bytes(const LhPlaceNode *node, gint64 reserve_percent, gboolean restored);
gint64 lh_place_free_items(const LhPlaceNode *node, gint64 reserve_percent, gboolean restored);

G_DEFINE_AUTOPTR_CLEANUP_FUNC(LhPlacement, lh_placement_free)
