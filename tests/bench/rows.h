/*
 * The rows of the benchmark. Each adds its lines to bench.table; what a line means is said in
 * tests/README.md and, where it is measured, here in the row's file. main.c says which cluster and which
 * managers a row finds.
 */
#pragma once

#include "process.h"
#include "stats.h"

#define FLEET_SERVICES 50 /* of the snapshot fleet in rows j, m, x and y */

/* ---- row_converge.c ---- */

/* (a) etcd's own limit with the product's transactions; (b) how near to it a manager comes. @cluster has
 * replicas, none of them assigned, and its cache-assigner is paused. After (b) all are assigned, and the
 * manager that did it is returned, still running; NULL when only (a) was asked for. */
Process *row_converge(Cluster *cluster, gboolean with_manager);

/* ---- row_reaction.c ---- */

typedef struct {
    Samples *reaction_ms;          /* publish sent -> assignment seen by a watch */
    Samples *delivery_ms, *txn_ms; /* put sent -> seen by a watch; a transaction sent -> answered */
    double floor_ms;               /* of the medians: one delivery and two transactions */
    double idle_cpu_share;         /* of one core, with nothing to do */
    double cpu_ms;                 /* of the manager for one change, idleness subtracted */
} Reaction;

typedef enum {
    REACTION_PARTS = 1 << 0, /* after each change, its parts are measured alone */
    REACTION_CPU = 1 << 1,   /* first the manager comes to rest, and its idleness is measured */
} ReactionFlags;

/* @n changes one after the other in a converged cluster. */
void reaction_run(Cluster *cluster, Process *manager, guint n, ReactionFlags flags, Reaction *out);
void reaction_clear(Reaction *reaction);
/* (c) and the line of (d) for this cluster; either may be left out. */
void row_reaction(Cluster *cluster, Process *manager, gboolean latency, gboolean cpu);
/* Whether the lines of (d) so far are flat; once, after the last. */
void row_reaction_flat(void);

/* ---- row_watchers.c ---- */

/* (i) */
void row_watchers(Cluster *cluster);

/* ---- row_handover.c ---- */

/* (g) */
void row_handover(Cluster *cluster);

/* ---- row_start.c ---- */

/* (e), (f): @cluster has snapshots alone. */
void row_memory(Cluster *cluster);
void row_start(Cluster *cluster);
/* (j): a whole fleet. */
void row_fleet_start(Cluster *cluster);
/* (e) where each snapshot has a replica and an assignment; @manager is at rest. */
void row_memory_placed(const Cluster *cluster, const Process *manager);

/* ---- row_permits.c ---- */

/* (l) */
void row_permits(void);

/* ---- row_partitions.c ---- */

/* (p) */
void row_partitions(void);

/* ---- row_seeds.c ---- */

/* (s), without etcd */
void row_seeds(void);

/* ---- row_seeds_etcd.c ---- */

/* (t) */
void row_seeds_etcd(void);

/* ---- row_probes.c ---- */

/* (n) */
void row_probes(void);

/* ---- row_kinds.c ---- */

/* (m), without etcd; first of all, since this process's memory is measured. */
void row_kinds(void);

/* ---- row_expiry_cpu.c ---- */

/* (x), without etcd */
void row_expiry_cpu(void);

/* ---- row_expiry.c ---- */

/* (y) */
void row_expiry(void);

/* ---- row_s3.c ---- */

/* (h) */
void row_s3(void);
