/*
 * What an agent serves: GET /get_health_status, /metrics, and the files of live snapshots,
 * read-only: /v1/files/<snapshot>/ (its manifest) and /v1/files/<snapshot>/<file>. 404 for all that
 * is not live here. For whoever starts and stops it, without authentication: /healthz (its loop
 * runs) and /readyz (it is registered).
 */
#pragma once

#include "agent/cache_work.h"
#include "base/metrics.h"
#include "http/server.h"

typedef struct {
    LhMetrics *metrics;
    LhCacheWork *cache; /* NULL until it is there: everything below /v1/files/ is 404 */
    gboolean registered;
} LhAgentHttp;

/* @http outlives the server. */
void lh_agent_http_routes(LhHttpServer *server, LhAgentHttp *http);
