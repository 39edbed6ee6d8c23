/*
 * Does failure-detector's errands (controllers/detector.h): probes of nodes, and leases to revoke.
 *
 * Loop thread; probes are spread over their period and bounded in number. It decides nothing: it tells of
 * misses in a row, and of the first success. How a node is asked is the asker's: HTTP (outside/probe_http.h),
 * or a simulation's. A question whose time ran out while the loop itself stood still says nothing: the answer
 * may have been there.
 */
#pragma once

#include "base/metrics.h"
#include "runtime/runtime.h"

typedef struct LhProber LhProber;

/* What came of one question. */
typedef struct {
    const char *error; /* NULL: there was an answer */
    gboolean timed_out;
    long status; /* HTTP */
    const char *body;
    gsize len;
} LhProbeAnswer;

typedef void (*LhProbeDone)(const LhProbeAnswer *answer, gpointer data);

/* GET @uri on behalf of the errand @id; @keep: the connection, for the next time. @done is called once, not
 * inside ask(), unless it was cancelled before; @answer is borrowed. Returns the question, which is good for
 * cancel() until then. */
typedef struct {
    gpointer (*ask)(gpointer data, const char *id, const char *uri, gint64 timeout_ms,
                    gboolean keep, LhProbeDone done, gpointer done_data);
    void (*cancel)(gpointer data, gpointer question);
    gpointer data;
} LhProbeAsker;

typedef struct {
    LhEnv *env;
    LhMirror *mirror;
    LhEtcd *etcd;
    LhMetrics *metrics;
    const char *cacert; /* whose certificates nodes have; copied. NULL: the system's */
    guint most;         /* at once; 0: 256 */
    guint kept;         /* connections, if there are no more nodes; else none is. 0: 1024 */
    LhProbeAsker asker; /* all NULL: HTTP */
} LhProberOptions;

LhProber *lh_prober_new(const LhProberOptions *options);
void lh_prober_free(LhProber *prober); /* cancels everything, says nothing; accepts NULL */

/* For lh_runtime_set_outside, with the prober as data. */
extern const LhOutside lh_prober_outside;
