/*
 * The node side of the pool protocol, for any pool: registers, hears orders, keeps its
 * registration, and starts anew under a new id when that is lost. CONTRACT.md, section 2.
 *
 *   lease granted → new id → three watches open (own registration, own NodeHealth, own assignments)
 *     → registration put, create-only → REGISTERED: orders are carried out (items.h)
 *     → lease lost, or registration gone, or health failed → that id's work is dropped, data stays
 *     → (the lease revoked, if it may still live) → a new lease, a new id, its data offered as warm
 *
 * "Exits when its registration is gone" is read as: that *node* ends - its id, items, watches and
 * lease - and the process goes on as a new node. A plain process that is run by hand has no
 * supervisor, and a cache node that came back without its data in use would help nobody.
 *
 * While the lease is in doubt a cache node changes nothing: it serves until it knows. A node of an
 * exclusive pool drops its work before the local deadline (LhPool.exclusive).
 *
 * Loop thread. Everything that is not etcd, time or LhAgentWork stays out, so that the simulation
 * runs it.
 */
#pragma once

#include "agent/work.h"
#include "api/actual.h"
#include "base/env.h"
#include "base/metrics.h"
#include "etcd/etcd.h"

typedef struct {
    const char *name;
    gboolean
        exclusive;   /* an item is never worked on by two nodes: work ends before the lease may */
    gboolean search; /* live items have search keys */
    gboolean supported; /* `leasehold agent` can run it in this build */
    gboolean ends;      /* an item ends by itself: done */
    gboolean
        permits; /* its nodes grant permits for items, which are held and can end by themselves */
} LhPool;

const LhPool *lh_pool_find(const char *name); /* NULL: there is no such pool */

typedef struct LhAgent LhAgent;

typedef struct {
    const char *prefix;                            /* "/leasehold/" */
    const char *pool;                              /* one of lh_pool_find */
    const char *name;                              /* node name: at most 244 characters */
    const char *host, *url, *set, *zone, *version; /* zone may be NULL */
    const LhStrMap *labels;                        /* may be NULL; must outlive the agent */
    gint64 capacity_bytes, capacity_items;
    gint64 lease_ttl_s;
    LhMetrics *metrics; /* may be NULL; the agent declares its families in it */
} LhAgentOptions;

typedef enum {
    LH_LEFT_LEASE_LOST,
    LH_LEFT_REGISTRATION_GONE, /* deleted, or taken over by somebody else */
    LH_LEFT_HEALTH_FAILED,
    LH_LEFT_ETCD_CHANGED, /* another cluster, or an older state of this one */
    LH_LEFT_DEADLINE,     /* exclusive pools: the lease was about to be in doubt */
    LH_LEFT_STOPPED,
} LhAgentLeft;

const char *lh_agent_left_name(LhAgentLeft why);

/* All may be NULL. They must not free the agent, except stopped. */
typedef struct {
    void (*registered)(const char *id, gpointer data);
    void (*left)(const char *id, LhAgentLeft why, gpointer data);
    /* After lh_agent_stop, exactly once. */
    void (*stopped)(gpointer data);
} LhAgentFuncs;

/* Strings of @options are copied; @work and @etcd outlive the agent. It starts at once. */
LhAgent *lh_agent_new(LhEnv *env, LhEtcd *etcd, const LhAgentOptions *options, LhAgentWork *work,
                      const LhAgentFuncs *funcs, gpointer data);
/* SIGTERM: search keys go first, then work ends, data stays, and the lease is revoked, with which
 * everything else of this node vanishes. Bounded by LH_AGENT_STOP_MS, whatever etcd does. */
#define LH_AGENT_STOP_MS 10000
void lh_agent_stop(LhAgent *agent);
/* kill -9: nothing is sent. Accepts NULL. */
void lh_agent_free(LhAgent *agent);

const char *lh_agent_id(const LhAgent *agent); /* NULL: not registered */
