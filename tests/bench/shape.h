/*
 * The transactions that the product would send to assign a cluster's replicas: a fleet index is folded
 * from the cluster's own values, the real cache-assigner plans, and its groups are packed by the same rule
 * as the executor's. So the load that measures etcd's limit has the product's compares, ops and values,
 * and follows the product when they change.
 */
#pragma once

#include "cluster.h"

typedef struct Shape Shape;

/* Of the first @replicas replicas. The cluster's keys must exist in etcd. */
Shape *shape_new(const Cluster *cluster, guint replicas);
void shape_free(Shape *shape);

guint shape_txns(const Shape *shape);
guint shape_puts(const Shape *shape); /* of all transactions */
guint shape_compares(const Shape *shape);
double shape_value_bytes(const Shape *shape); /* mean */
/* Transaction @i with every put below @prefix instead of the cluster's: compared with its own absence;
 * what it relies on is compared with being there. Valid until the next call with the same @i. */
const LhTxnRequest *shape_request(Shape *shape, guint i, const char *prefix);
