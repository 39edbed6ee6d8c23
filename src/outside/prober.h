/*
 * Does failure-detector's errands (controllers/detector.h): probes of nodes over HTTP, and leases to revoke.
 *
 * Loop thread, one curl multi for all nodes; probes are spread over their period and bounded in number. It
 * decides nothing: it tells of misses in a row, and of the first success. No redirects, no proxies, http and
 * https only; no credentials are sent, as a node's health may be asked for by anybody.
 */
#pragma once

#include "base/metrics.h"
#include "runtime/runtime.h"

typedef struct LhProber LhProber;

typedef struct {
    LhEnv *env;
    LhMirror *mirror;
    LhEtcd *etcd;
    LhMetrics *metrics;
    const char *cacert; /* whose certificates nodes have; copied. NULL: the system's */
    guint most;         /* at once; 0: 256 */
    guint kept;         /* connections, if there are no more nodes; else none is. 0: 1024 */
} LhProberOptions;

LhProber *lh_prober_new(const LhProberOptions *options);
void lh_prober_free(LhProber *prober); /* cancels everything, says nothing; accepts NULL */

/* For lh_runtime_set_outside, with the prober as data. */
extern const LhOutside lh_prober_outside;
