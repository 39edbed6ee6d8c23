/*
 * Etcd's whole history read back and checked against what must never have been so. Each returns NULL, or
 * what was wrong (g_free).
 */
#pragma once

#include "harness.h"

/* No item of the cache pool was ever assigned to two nodes. */
char *history_single_assignment(World *world);
/* After the leader key of @controller held by @instance was deleted, nothing decided under its epoch was
 * written. *takeover (may be NULL): the revision of that deletion; it is wrong if there was none. */
char *history_no_writes_of(World *world, const char *controller, const char *instance,
                           gint64 *takeover);
/* How many assignments of the cache pool were created under @epoch. */
guint history_assignments_of_epoch(World *world, gint64 epoch);
/* Epoch (create revision) of the first leader key of @controller that @instance wrote; 0: none. */
gint64 history_epoch_of(World *world, const char *controller, const char *instance);
/* No key below @prefix was ever written while it was there; and there were some. */
char *history_written_once(World *world, const char *prefix);
/* For worlds in which nothing is evicted: every write of an item answers the order that etcd had then, says
 * something new, and comes before it is live or makes it so. */
char *history_item_states(World *world);
