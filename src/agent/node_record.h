/*
 * The value of a node's registration, and which warm snapshots it names. Pure but for the work's
 * list.
 */
#pragma once

#include "agent/agent.h"

#define LH_WARM_MAX       500
#define LH_WARM_MAX_BYTES (32 * 1024)

/* The Node as JSON; *@warm: the snapshots it names (g_strfreev). */
char *lh_node_record(const LhAgentOptions *options, LhAgentWork *work, gint64 started_at,
                     gint64 lease, gint64 lease_ttl_s, char ***warm);

/* True when @said names a snapshot that the work no longer has. Others may come first now; that is
 * no reason to write. */
gboolean lh_node_record_stale(const char *const *said, LhAgentWork *work);
