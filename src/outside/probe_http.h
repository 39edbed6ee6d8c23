/*
 * Asks nodes over HTTP for the prober (outside/prober.h): one curl multi for all, on the main loop.
 *
 * No redirects, no proxies, http and https only; no credentials are sent, as a node's
 * health may be asked for by anybody. Of an answer it keeps 4 KiB at most; a longer one is an error.
 */
#pragma once

#include "outside/prober.h"

typedef struct LhProbeHttp LhProbeHttp;

/* @cacert: whose certificates nodes have; copied. NULL: the system's. @kept: idle connections at most. */
LhProbeHttp *lh_probe_http_new(LhEnv *env, const char *cacert, guint kept);
void lh_probe_http_free(LhProbeHttp *http); /* accepts NULL; nothing is under way any more */
LhProbeAsker lh_probe_http_asker(LhProbeHttp *http);
