/*
 * Which workers have failed, for a crawl manager: follows the NodeHealths of the pool worker. Loop thread.
 */
#pragma once

#include "base/env.h"
#include "etcd/etcd.h"

typedef struct LhWorkerWatch LhWorkerWatch;

typedef struct {
    /* By node id; may be told more than once. */
    void (*failed)(const char *worker, gpointer data);
    /* Its NodeHealth is gone; NULL: etcd is not what it was, and all that was told is void. */
    void (*forgotten)(const char *worker, gpointer data);
} LhWorkerWatchFuncs;

/* @prefix: "/leasehold/". Goes on until it is freed; what etcd does not answer is asked again. */
LhWorkerWatch *lh_worker_watch_new(LhEnv *env, LhEtcd *etcd, const char *prefix,
                                   const LhWorkerWatchFuncs *funcs, gpointer data);
void lh_worker_watch_free(LhWorkerWatch *watch); /* accepts NULL */
