/*
 * A fleet in this process: the product's own mirror and all its indexes, fed with a cluster's keys and
 * values, without etcd and without a clock; and plans that are committed as etcd would, one revision for
 * each group. What a controller costs alone is measured here.
 */
#pragma once

#include "cluster.h"
#include "mirror/mirror.h"
#include "runtime/controller.h"

typedef struct {
    LhMirror *mirror;
    GArray *indexes; /* LhIndexSlot's like: one of each type that a controller reads */
    gint64 revision;
} Folded;

Folded *folded_new(void);
void folded_free(Folded *folded);

/* At a new revision; @value NULL: deletes it. */
void folded_put(Folded *folded, const char *key, const char *value);
/* Of number 0 … @n-1. */
void folded_fill(Folded *folded, const Cluster *cluster, guint n,
                 void (*item)(const Cluster *cluster, guint i, char **key, char **value));
/* Live answers to all assignments, and what search knows of them. */
void folded_fill_items(Folded *folded, const Cluster *cluster);
void folded_fill_searches(Folded *folded, const Cluster *cluster);
/* An accepted object and the desired one that it is of. */
void folded_accept(Folded *folded, const char *subject, const char *spec);
/* Services, nodes, and the settings of the cache's controllers. */
void folded_fill_rest(Folded *folded, const Cluster *cluster);
/* The observation "snapshot-cleaner/<name>". */
void folded_observe(Folded *folded, const char *name, const char *format, ...) G_GNUC_PRINTF(3, 4);

gconstpointer folded_index(const Folded *folded, const LhIndexType *type);
LhPlanContext folded_context(const Folded *folded, const LhController *controller, gint64 now_ms);
/* Every compare of every group must hold. Returns how many groups there were. */
guint folded_commit(Folded *folded, const LhPlan *plan);
/* How many transactions the executor would send: groups that share their last reliance next to each other, and as
 * many in each as its ops and compares permit. */
guint folded_transactions(const LhPlan *plan);
/* User and system time of this process, in nanoseconds. */
gint64 folded_cpu_ns(void);
