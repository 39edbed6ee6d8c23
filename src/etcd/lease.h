/*
 * A lease that is renewed every TTL/3, and the local deadline past which nobody may act on it.
 *
 * The deadline is the monotonic time of *sending* the last answered keepalive (or grant) + TTL. A
 * keepalive's answer is no proof that the lease lives (etcd before 3.4.38/3.5.23): the presence of the
 * owner's key, seen through a watch, is. Loop thread.
 */
#pragma once

#include "base/env.h"
#include "etcd/etcd.h"

typedef struct LhLease LhLease;

typedef struct {
    void (*granted)(gint64 lease, gint64 ttl_s, gpointer data);
    /* The local deadline has passed without an answer: in doubt. Renewing goes on. May be NULL. */
    void (*doubt)(gpointer data);
    /* The local deadline has moved (lh_lease_deadline_ms). Must not free or restart the lease. May be
     * NULL. */
    void (*extended)(gpointer data);
    /* An answer came after the deadline, with or without a doubt before it (a process that stood still hears
     * of both at once): the lease lives after all. May be NULL. */
    void (*renewed)(gpointer data);
    /* etcd said that the lease does not exist. The LhLease is idle; lh_lease_restart asks for a new one. */
    void (*lost)(gpointer data);
} LhLeaseFuncs;

/* Asks for a lease of @ttl_s, with backoff until one is granted. */
LhLease *lh_lease_start(LhEnv *env, LhEtcd *etcd, gint64 ttl_s, const LhLeaseFuncs *funcs,
                        gpointer data);
void lh_lease_restart(LhLease *lease);

gint64 lh_lease_id(const LhLease *lease);          /* 0: none yet */
gint64 lh_lease_deadline_ms(const LhLease *lease); /* monotonic; 0: none yet */
gboolean lh_lease_alive(const LhLease *lease);     /* granted, and mono_ms() < deadline */

/* Revokes and reports; @done may be NULL. The lease is not renewed any more. */
void lh_lease_revoke(LhLease *lease, void (*done)(gpointer data), gpointer data);
void lh_lease_free(LhLease *lease); /* without revoking; accepts NULL */

/* "%016x", as in leaders/<controller>/<lease>. Free with g_free. */
char *lh_lease_hex(gint64 lease);
