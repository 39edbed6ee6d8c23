/*
 * The data of a simulated cluster below a prefix of its own: services, snapshots of 64 partitions each,
 * their replicas, and registered cache nodes whose lease this process holds. Whether a node answers an
 * order: see nodes.h.
 *
 * What was accepted is written as desired objects and as their accepted copies, so that a manager finds
 * nothing to do there. Everything follows from its number, so a prefix can be filled in pieces.
 */
#pragma once

#include "client.h"

typedef struct {
    const char *label; /* "leasehold": the prefix is "/leasehold/" */
    guint snapshots, nodes;
    guint services;     /* 0: 20 */
    guint expiring;     /* of the services, the first: all of theirs is past window and retention */
    const char *root;   /* uris lie below it; NULL: s3 */
    gboolean staggered; /* no two snapshots end at the same time; the higher its number the older */
    gboolean evictor_paused; /* from the beginning */
    gboolean expired;        /* all older than the cache window: no replica is wanted */
    gboolean assigned;       /* every replica is assigned; else none is */
    gboolean live;           /* … and nodes have answered it; needs assigned */
    gboolean replicated;     /* there are replicas */
    gboolean paused;         /* the cache-assigner is paused from the beginning */
} ClusterOptions;

typedef struct {
    ClusterOptions o;
    char *prefix;
    gint64 newest_ms; /* end of the newest snapshots */
    guint published;  /* more, by cluster_publish */
    Keeper *keeper;
} Cluster;

/* Writes it all. The nodes are registered until cluster_free. */
Cluster *cluster_new(const ClusterOptions *options);
/* Writes nothing, and needs no etcd: for the keys and values alone. */
Cluster *cluster_imagine(const ClusterOptions *options);
void cluster_free(Cluster *cluster); /* leaves first; the keys stay; accepts NULL */

/* A desired object ("settings/x") and its accepted copy. */
void cluster_put_accepted(const Cluster *cluster, const char *subject, const char *spec);
/* Settings of replica-creator and cache-assigner: no debounce; room for any number of loads. */
void cluster_pause(Cluster *cluster, gboolean paused); /* the cache-assigner */
/* Deletes all assignments, node by node. */
void cluster_unassign(Cluster *cluster);

char *cluster_key(const Cluster *cluster, const char *key_format, ...) G_GNUC_PRINTF(2, 3);
/* Keys without the prefix and values, by number. g_free. */
void cluster_service(const Cluster *cluster, guint i, char **accepted_key, char **accepted);
char *cluster_service_spec(const Cluster *cluster, guint i);
char *cluster_settings_spec(const Cluster *cluster, gboolean paused);
guint cluster_services(const Cluster *cluster);
char *cluster_settings(const Cluster *cluster, gboolean paused); /* accepted, of cache-assigner */
void cluster_node(const Cluster *cluster, guint i, char **key, char **value);
/* Numbers from snapshots on are newer ones, as they are published. */
void cluster_snapshot(const Cluster *cluster, guint i, char **key, char **value);
void cluster_replica(const Cluster *cluster, guint i, char **key, char **value);
void cluster_assignment(const Cluster *cluster, guint i, char **key, char **value);
/* The files of its snapshot: one small one; for a root of files. */
void cluster_write_files(const Cluster *cluster);
gint64 cluster_window_ms(const Cluster *cluster, guint service);
gint64 cluster_end_ms(const Cluster *cluster, guint i);
/* The name of the next snapshot to publish, and its key and value; counts it as published. */
char *cluster_next(Cluster *cluster, char **key, char **value);
