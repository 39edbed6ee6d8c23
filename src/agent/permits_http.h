/*
 * What a crawl manager serves besides: POST /v1/permits/<seed> (some permits) and DELETE
 * /v1/permits/<seed>/<id> (one is returned). For operators; api/README.md describes them. Requests that reach
 * a handler leave no line of audit: they are the crawl's traffic, and counted as metrics.
 */
#pragma once

#include "agent/manager_work.h"
#include "http/server.h"

#define LH_PERMITS_PATH "/v1/permits/"

/* @work outlives the server. */
void lh_permits_routes(LhHttpServer *server, LhManagerWork *work);
