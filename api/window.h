/*
 * What a throttle policy's holder has granted lately, as its next holder is told: `window` of a seed's
 * Assignment and of its evicted Item. Pure; any thread.
 *
 *   {"granted":[[61000,3],[250,40]],"held":[[250,12]]}
 *
 * Each pair is an age in milliseconds and how many permits: `granted` those that the sliding window still
 * counts, `held` those that have not been returned and still occupy a concurrency slot. Oldest first, no age
 * twice. Ages, not times: they speak of the moment of the hand-off, and a holder that counts them from the
 * moment at which it hears of them forgets nothing too early, without comparing clocks. An absent list is an
 * empty one; {} says that nothing counts any more.
 *
 * A list can be incomplete: `grantedKnown` and `heldKnown` then say of how long it tells all. A limiter forgets
 * what its period is done with, which a longer period would still count; and one that does not know what its
 * predecessor granted does not learn it by handing on.
 */
#pragma once

#include <glib.h>

#define LH_WINDOW_PAIRS     64          /* in each list */
#define LH_WINDOW_MAX_BYTES (16 * 1024) /* as JSON */

/* A permit that is not returned gives its concurrency slot back after so long. */
#define LH_PERMIT_LIFE_MS 60000

typedef struct {
    gint64 age_ms; /* 0 or more */
    gint64 n;      /* 1 or more */
} LhWindowPair;

typedef struct {
    guint n_granted, n_held;
    LhWindowPair granted[LH_WINDOW_PAIRS]; /* oldest first */
    LhWindowPair held[LH_WINDOW_PAIRS];
    gboolean granted_partial, held_partial; /* of what is older than this nothing is known: */
    gint64 granted_known_ms, held_known_ms; /* 0 or more; 0 unless partial */
} LhWindow;

/* Strict: what is not understood is not known, and then a holder must wait. *@out is untouched on failure.
 * Errors: LH_ERR_INVALID, with the field. */
gboolean lh_window_parse(const char *json, LhWindow *out, GError **error);
/* Compact JSON, g_free. */
char *lh_window_print(const LhWindow *window);

/* Puts @n pairs, oldest first, into at most LH_WINDOW_PAIRS; returns how many. Those that are put together
 * all get the age of the youngest of them, so that none is forgotten too early; none is made younger by more
 * than a LH_WINDOW_PAIRS-th of the time between the oldest and the youngest. Pairs of one age become one. */
guint lh_window_fit(const LhWindowPair *pairs, gsize n, LhWindowPair out[LH_WINDOW_PAIRS]);

/* How long one who does not know what was granted grants nothing: one period of a policy with requests, and
 * a permit's life when it has maxConcurrent. 0: of what is not limited. */
gint64 lh_window_quiet_ms(gint64 requests, gint64 period_ms, gint64 max_concurrent);
