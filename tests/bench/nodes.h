/*
 * Simulated cache nodes: each order of the cluster's assignments is answered as an agent would answer it,
 * at once and without work. A load: item live, search. An eviction: search gone, item evicted. An
 * assignment that is gone: item gone.
 */
#pragma once

#include "api/actual.h"
#include "cluster.h"

typedef struct Nodes Nodes;

/* Orders that come from now on are answered, while the loop runs. */
Nodes *nodes_new(const Cluster *cluster);
/* Until so many loads are answered, and etcd has taken all answers. */
void nodes_wait_live(Nodes *nodes, guint n);
void nodes_free(Nodes *nodes);

/* What it answers @object, an Assignment, with: keys below the prefix; g_free. */
void nodes_item(const LhObject *object, LhItemState state, char **key, char **value);
void nodes_search(const LhObject *object, char **key, char **value);
