/*
 * The work of a crawl manager: seeds and the permits for their requests. Wraps the pool's programs.
 *
 * All seeds of a throttle policy share one limiter (permits.h). It begins with the first of them that is
 * loaded, from `window` of that order, and what it has granted goes out with each of them that ends (`window`
 * of the item). From the moment at which the order to let a seed go is heard, nothing is granted for it. Items
 * that end at the same time are told in such an order that the last one written tells all: one that was
 * written while others of its policy were still granted permits comes before.
 *
 * A worker that has failed gets no permits, and those it has not returned are taken back, once. Loop thread.
 */
#pragma once

#include "agent/hooks.h"
#include "agent/permits.h"
#include "agent/work.h"
#include "base/env.h"
#include "base/metrics.h"

typedef struct LhManagerWork LhManagerWork;

typedef struct {
    const char *permits_url;             /* items' url without the seed; NULL: none */
    LhHooks *hooks;                      /* may be NULL without the next */
    const char *const *on_worker_failed; /* NULL-ended; NULL: none */
    gint64 hook_timeout_ms;
    LhMetrics *metrics; /* may be NULL; families are declared here */
} LhManagerWorkOptions;

/* Strings of @options, and @programs, outlive the work. */
LhManagerWork *lh_manager_work_new(LhEnv *env, LhAgentWork *programs,
                                   const LhManagerWorkOptions *options);
void lh_manager_work_set_node(LhManagerWork *work, const char *node);
LhAgentWork *lh_manager_work_base(LhManagerWork *work);
void lh_manager_work_free(LhManagerWork *work); /* accepts NULL */

typedef enum {
    LH_PERMITS_ANSWERED,
    LH_PERMITS_UNKNOWN,       /* no such seed here, or no such permit */
    LH_PERMITS_NOT_LIVE,      /* the seed is being loaded, or is on its way out */
    LH_PERMITS_PAUSED,        /* the seed is */
    LH_PERMITS_WORKER_FAILED, /* the worker is */
    LH_PERMITS_IN_DOUBT,      /* the lease: this node may not be the holder any more */
    LH_N_PERMITS_ANSWERS
} LhPermitsAnswer;

/* lh_permits_take() for a seed. *@n: in, wanted; out, granted. Outputs are set with ANSWERED only. */
LhPermitsAnswer lh_manager_work_take(LhManagerWork *work, const char *seed, const char *worker,
                                     guint *n, guint64 *ids, gint64 *retry_ms);
/* ANSWERED or UNKNOWN. */
LhPermitsAnswer lh_manager_work_return(LhManagerWork *work, const char *seed, guint64 id);

/* What is heard of a worker, by its node's id. */
void lh_manager_work_worker_failed(LhManagerWork *work, const char *worker);
void lh_manager_work_worker_forgotten(LhManagerWork *work, const char *worker); /* NULL: all */
