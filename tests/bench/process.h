/*
 * Managers and agents as processes of their own: build/leasehold on a cluster's prefix, with a log in the
 * run's directory. Signalled by pid only; ended with the run if nobody did before.
 */
#pragma once

#include "cluster.h"

typedef struct {
    char *name, *log;
    GPid pid;
    guint16 port;
    gint64 started_us;
} Process;

/* Whether `leasehold manager --help` knows the flag. */
gboolean manager_knows(const char *flag);
/* @extra: more arguments, NULL-ended or NULL. Returns at once; started_us is taken just before. */
Process *manager_start(const Cluster *cluster, const char *name, const char *const *extra);
/* @extra: name, pool and what else it needs. */
Process *agent_start(const Cluster *cluster, const char *name, const char *const *extra);
/* Until /readyz says 200; returns when that was. */
gint64 manager_wait_ready(Process *manager);
/* Until it has used next to no CPU for sizes.settle_ms. */
void manager_settle(Process *manager);
/* Started, ready, settled. */
Process *manager_ready(const Cluster *cluster, const char *name, const char *const *extra);
void process_signal(Process *process, int number);
/* SIGTERM, and waits; frees it. Accepts NULL. */
void process_stop(Process *process);
/* SIGKILL, and waits; frees it. */
void process_kill(Process *process);

/* User and system time of all its threads, in nanoseconds, present slices included. */
gint64 process_cpu_ns(const Process *process);
gint64 process_rss_bytes(const Process *process);
