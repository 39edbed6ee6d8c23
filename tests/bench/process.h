/*
 * Managers as processes of their own: build/leasehold manager on a cluster's prefix, with its log in the
 * run's directory. Signalled by pid only; ended with the run if nobody did before.
 */
#pragma once

#include "cluster.h"

typedef struct {
    char *name, *log;
    GPid pid;
    guint16 port;
    gint64 started_us;
} Manager;

/* Whether `leasehold manager --help` knows the flag. */
gboolean manager_knows(const char *flag);
/* @extra: more arguments, NULL-ended or NULL. Returns at once; started_us is taken just before. */
Manager *manager_start(const Cluster *cluster, const char *name, const char *const *extra);
/* Until /readyz says 200; returns when that was. */
gint64 manager_wait_ready(Manager *manager);
/* Until it has used next to no CPU for a second. */
void manager_settle(Manager *manager);
/* Started, ready, settled. */
Manager *manager_ready(const Cluster *cluster, const char *name, const char *const *extra);
void manager_signal(Manager *manager, int number);
/* SIGTERM, and waits; frees it. Accepts NULL. */
void manager_stop(Manager *manager);
/* SIGKILL, and waits; frees it. */
void manager_kill(Manager *manager);

/* User and system time of all its threads, in nanoseconds, present slices included. */
gint64 manager_cpu_ns(const Manager *manager);
gint64 manager_rss_bytes(const Manager *manager);
