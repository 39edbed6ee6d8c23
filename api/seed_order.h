/*
 * `seed` of an Assignment of the pool manager: the Seed's spec, in which `throttle`, if there is one, is the
 * ThrottlePolicy's spec with its name. Pure; any thread.
 *
 *   {"url":"https://…","throttle":{"name":"polite","requests":100,"period":"1m"},"state":"started"}
 */
#pragma once

#include <glib.h>

typedef struct {
    char *throttle; /* NULL: none; g_free */
    /* As of LhThrottle; 0: no limit. */
    gint64 requests, period_ms, max_concurrent;
    gboolean paused;
} LhSeedOrder;

/* Reads only what a crawl manager needs. Untouched on failure. Errors: LH_ERR_INVALID, with the field. */
gboolean lh_seed_order_parse(const char *json, LhSeedOrder *out, GError **error);
void lh_seed_order_clear(LhSeedOrder *order);
