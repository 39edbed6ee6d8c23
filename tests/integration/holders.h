/*
 * Who held what of an exclusive pool, at every revision of etcd.
 *
 * A node holds an item from the commit of its order to that of its answer to the newest order (evicted, failed or
 * done), or while it says loading, live or evicting; not once it is said to have failed and its registration is
 * gone. The order of what is exclusive together (seeds of one throttle policy) names it in seed.throttle.
 */
#pragma once

#include "harness.h"

/* An item that an order has brought to a node that had no order for it. */
typedef struct {
    char *item, *policy, *node; /* policy: "" if it has none; node: its id */
    char *before;               /* id of who was ordered to load it last; "": nobody */
    gint64 revision;
} Load;

/* The loads of the pool in @history (world_history from 0), in order; g_ptr_array_unref. *@wrong (g_free): an
 * item, or a policy, that two nodes held at one revision; NULL: there was none. */
GPtrArray *holders_read(GPtrArray *history, const char *pool, char **wrong);
