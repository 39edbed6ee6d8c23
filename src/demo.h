/*
 * The demonstration of `leasehold dev --demo`: a service and a dozen snapshots of real files, published in
 * etcd as a data plane would, and a table of what becomes of them. Loop thread. Only for dev.
 */
#pragma once

#include "mirror/mirror.h"

#define LH_DEMO_SNAPSHOTS 12

/* Makes the snapshots' directories below @dir (files of random bytes, with their SHA-256) and returns the
 * values to publish: name → JSON text. Errors: LH_ERR_IO. */
GHashTable *lh_demo_make(const char *dir, gint64 now_ms, GError **error);
/* The value of desired/services/demo. */
const char *lh_demo_service(void);

/* One row for each published snapshot, sorted: name, size, state as people know it, node, url. *live, *all:
 * how many are live of how many. Free with g_free. */
char *lh_demo_table(const LhMirror *mirror, guint *live, guint *all);
