/*
 * The HTTP API of a manager instance (CONTRACT.md section 4), on its mirror, its runtime and etcd.
 *
 * Reads come from the mirror, so any instance answers; writes go to desired/ with a compare, or are one
 * of the actions. Loop thread. Must not decide anything that a controller decides.
 */
#pragma once

#include "base/metrics.h"
#include "etcd/contact.h"
#include "http/server.h"
#include "mirror/mirror.h"
#include "runtime/runtime.h"

typedef struct LhApi LhApi;

typedef struct {
    LhEnv *env;
    LhEtcd *etcd;
    const LhContact *contact; /* NULL: nothing of etcd itself is shown */
    LhMirror *mirror;
    LhRuntime *runtime;
    LhMetrics *metrics;
    const char *version;
} LhApiOptions;

/* Adds the routes to @server. Everything is borrowed and must outlive the LhApi. */
LhApi *lh_api_new(LhHttpServer *server, const LhApiOptions *options);
/* Free the server first. Accepts NULL. */
void lh_api_free(LhApi *api);
