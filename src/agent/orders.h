/*
 * One item on a node as a state machine: orders and results in, actions out. Pure.
 *
 *                 load               ready             said              evict, deleted
 *   NONE, TOLD ─────────▶ LOADING ─────────▶ READY ─────────▶ LIVE ─────────▶ HIDING
 *     ▲                      │ evict                           ▲ load          │ said
 *     │ released             ▼                                 │ (via READY)   ▼
 *     └───────────────── RELEASING ◀───────────────────────── GRACE ◀──────────┘
 *
 * "said" means: etcd has committed what the phase wants to be known. CONTRACT.md, section 2.
 */
#pragma once

#include "api/actual.h"

typedef enum {
    LH_PHASE_NONE,      /* nothing held, nothing known; the item key goes away or is not there */
    LH_PHASE_LOADING,   /* the work loads */
    LH_PHASE_READY,     /* loaded; "live" and the search key are being written */
    LH_PHASE_LIVE,      /* that is committed */
    LH_PHASE_HIDING,    /* the search key's deletion and "evicting" are being written */
    LH_PHASE_GRACE,     /* that is committed; readers get time to go */
    LH_PHASE_RELEASING, /* the work releases */
    LH_PHASE_TOLD,      /* nothing held; the item says evicted, failed or done */
    LH_N_PHASES,
} LhPhase;

/* The newest order. */
typedef enum {
    LH_WANT_HELD,    /* load, of what is or was being held */
    LH_WANT_OTHER,   /* load, of something else than what is held */
    LH_WANT_EVICTED, /* evict */
    LH_WANT_GONE,    /* the assignment was deleted */
    LH_N_WANTS,
} LhWant;

typedef enum {
    LH_IN_ORDER, /* a new want */
    LH_IN_READY,
    LH_IN_FINISHED,
    LH_IN_FAILED,
    LH_IN_SAID, /* what this phase wanted to be known is committed */
    LH_IN_GRACE_OVER,
    LH_IN_RELEASED,
    LH_N_INPUTS,
} LhInput;

enum {
    LH_ACT_LOAD = 1 << 0,
    LH_ACT_SAY = 1 << 1,   /* write the item (and the search key) as the phase says */
    LH_ACT_GRACE = 1 << 2, /* start the grace timer */
    LH_ACT_STAY = 1 << 3,  /* stop the grace timer */
    LH_ACT_RELEASE = 1 << 4,
    LH_ACT_ERASE = 1 << 5, /* delete the item key, then forget the item */
};

typedef struct {
    LhPhase phase;
    LhWant want;
    LhItemState told;  /* in TOLD */
    gint64 order_rev;  /* mod revision of the newest order (of a deletion: its revision) */
    gint64 assignment; /* mod revision of the newest assignment; stays when it is deleted */
} LhOrder;

typedef struct {
    guint phases; /* masks of 1 << phase … */
    guint inputs;
    guint wants;
    LhPhase next; /* LH_N_PHASES: stays */
    guint acts;
    int told; /* -1: unchanged */
    const char *id;
} LhOrderRule;

extern const LhOrderRule lh_order_rules[]; /* ended by a NULL id; the first that fits is taken */

/* A new order of revision @rev. Orders come in the order of their revisions, each at most once: one
 * that is not newer is ignored. Returns what to do (LH_ACT_…). */
guint lh_order_want(LhOrder *order, LhWant want, gint64 rev);
/* Any other input. */
guint lh_order_input(LhOrder *order, LhInput input);

/* What the item's state field says in this phase. Not for NONE. */
LhItemState lh_order_state(const LhOrder *order);
/* True while others may use it: from being announced until the grace is over. */
gboolean lh_order_served(const LhOrder *order);
const char *lh_phase_name(LhPhase phase);
