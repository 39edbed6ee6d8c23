/*
 * A server for probes, in a thread of its own: every address 127.x.y.z is a node, all of them one listening
 * socket on the loopback device. It answers 200 {"status":"healthy"}, or, for nodes that hang, nothing; and
 * keeps a book of when each was asked. Connections are kept open until their peer closes them.
 */
#pragma once

#include <glib.h>

typedef struct ProbeServer ProbeServer;

#define PROBE_SLICE_MS 100

typedef struct {
    guint64 requests, answered;
    guint64 accepted; /* connections */
    guint open, most_open;
    guint most;            /* requests in any PROBE_SLICE_MS since probe_server_forget */
    gint64 longest_gap_us; /* between two requests to one node since then */
    guint asked;           /* nodes, since then */
} ProbeCounts;

/* NULL: there is no such socket; *why says so (static or strerror's). */
ProbeServer *probe_server_new(guint nodes, const char **why);
char *probe_server_url(const ProbeServer *server, guint node); /* g_free */
/* Every @one_of-th node hangs from now on; 0: none. */
void probe_server_hang(ProbeServer *server, guint one_of);
/* Counting begins again; connections stay. */
void probe_server_forget(ProbeServer *server);
ProbeCounts probe_server_counts(ProbeServer *server);
void probe_server_free(ProbeServer *server);
