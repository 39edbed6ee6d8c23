/*
 * The controller runtime of one manager instance: its lease, one election for each controller, the folds,
 * and for each controller that it leads the round of dirty → debounce → plan → execute.
 *
 * Loop thread only. The runtime owns no clock and no transport: env and etcd come from outside, so the
 * simulation runs this very code. Invariants it keeps (ARCHITECTURE.md, "How a change flows"):
 *
 *   - it plans only while it leads, its lease's local deadline has not passed, no transaction of the
 *     controller is in flight, and the mirror has reached all that the controller wrote;
 *   - every transaction compares the leader key's create and mod revision;
 *   - an outcome that is not known voids itself: the leader key is rewritten first, then it plans again.
 */
#pragma once

#include "base/metrics.h"
#include "mirror/mirror.h"
#include "runtime/controller.h"

typedef struct LhRuntime LhRuntime;

typedef struct {
    const char *instance; /* this manager's name, unique for each start */
    const char *host, *url, *version;
    gint64 pid;
    gint64 lease_ttl_s;
    guint max_groups;    /* budget of one plan; 0: 50,000 */
    guint max_in_flight; /* transactions of one controller; 0: 32 */
    /* Test faults, all off in what ships (CONTRACT: the fence must be proved without the other guards). */
    gboolean fault_no_deadline;     /* acts past the local deadline */
    gboolean fault_no_leader_watch; /* does not react to losing its leader key */
} LhRuntimeOptions;

/* @controllers: NULL-ended, static. Borrows env, etcd, mirror, metrics; @mirror must not be started yet. */
LhRuntime *lh_runtime_new(LhEnv *env, LhEtcd *etcd, LhMirror *mirror, LhMetrics *metrics,
                          const LhController *const *controllers, const LhRuntimeOptions *options);
/* Who does the controllers' errands; before the start. NULL, as it is without this call: nobody. */
void lh_runtime_set_outside(LhRuntime *runtime, const LhOutside *outside, gpointer data);
void lh_runtime_start(LhRuntime *runtime);
/* SIGTERM: plans nothing more, lets what is in flight end, revokes the lease; @done once. */
void lh_runtime_stop(LhRuntime *runtime, void (*done)(gpointer data), gpointer data);
/* A crash: nothing is sent. Accepts NULL. */
void lh_runtime_free(LhRuntime *runtime);

gboolean lh_runtime_leads(const LhRuntime *runtime, const char *controller);
gint64 lh_runtime_epoch(const LhRuntime *runtime, const char *controller); /* 0: does not lead */
gint64 lh_runtime_lease(const LhRuntime *runtime);
/* Nothing dirty, nothing in flight, for all controllers that it leads. */
gboolean lh_runtime_idle(const LhRuntime *runtime);

/* The plan that @controller would make now on this instance's mirror. Free with lh_plan_free. */
LhPlan *lh_runtime_plan(const LhRuntime *runtime, const LhController *controller, gboolean explain);
/* The index that @controller reads, and a context as for lh_runtime_plan. */
gconstpointer lh_runtime_index(const LhRuntime *runtime, const LhController *controller,
                               LhPlanContext *context);
const LhController *const *lh_runtime_controllers(const LhRuntime *runtime);

/* Everything in time order that has been decided and committed, as log lines; for tests. */
typedef void (*LhRuntimeObserver)(const char *controller, const LhOp *op, gint64 revision,
                                  gpointer data);
void lh_runtime_observe(LhRuntime *runtime, LhRuntimeObserver observer, gpointer data);

/* Declares the metrics of this layer. */
void lh_runtime_declare_metrics(LhMetrics *metrics);
