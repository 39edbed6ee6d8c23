/*
 * A real etcd cluster for tests: several members on loopback, each of which can be killed, frozen and
 * started again, or cut off from the others. All die with this process. Calls block.
 */
#pragma once

#include "tests/fakes/etcd_process.h"

typedef struct EtcdCluster EtcdCluster;

/* Returns when all members answer reads and writes. NULL with LH_ERR_NOT_FOUND: no binary. */
EtcdCluster *etcd_cluster_new(guint members, const char *const *args, GError **error);
typedef struct {
    guint members;
    EtcdProcessOptions each;
    gboolean relayed; /* members reach each other through relays: etcd_cluster_isolate */
} EtcdClusterOptions;

EtcdCluster *etcd_cluster_new_with(const EtcdClusterOptions *options, GError **error);
void etcd_cluster_free(EtcdCluster *cluster); /* accepts NULL */

guint etcd_cluster_size(const EtcdCluster *cluster);
const char *const *etcd_cluster_endpoints(const EtcdCluster *cluster); /* NULL-ended, of all */
/* For etcd_process_kill, _freeze, _thaw, _stop. etcd_process_restart waits for a quorum. */
EtcdProcess *etcd_cluster_member(EtcdCluster *cluster, guint i);
guint etcd_cluster_find(const EtcdCluster *cluster, const char *url); /* "http://127.0.0.1:PORT" */

/* The number of the member that leads; waits up to 10 s until one does. @except: a member that is not
 * asked, and is not meant (one that is frozen); -1: none. */
guint etcd_cluster_leader(EtcdCluster *cluster, gint except);
/* Whether this member knows of a leader. */
gboolean etcd_cluster_has_leader(EtcdCluster *cluster, guint i);
gboolean etcd_cluster_move_leader(EtcdCluster *cluster, guint to, GError **error);

/* Cuts a member off from the others, not from its clients; and ends that. */
void etcd_cluster_isolate(EtcdCluster *cluster, guint i);
void etcd_cluster_join(EtcdCluster *cluster);

/* A member is replaced in three steps. Kills it, and takes it out of the cluster; its data stay where they
 * are. */
gboolean etcd_cluster_remove(EtcdCluster *cluster, guint i, GError **error);
/* The cluster expects a new one at the same address, which etcd_process_rejoin() starts. */
gboolean etcd_cluster_add(EtcdCluster *cluster, guint i, GError **error);
/* Both may be called again after a failure: for some seconds after a trouble the cluster refuses them. Both may
 * be called by another thread than the one that started the members. */
