/*
 * Snapshots in an S3 server, for scenarios: what is in them, what is published of them, and whether
 * a node serves exactly that. Nothing here knows which server it is.
 */
#pragma once

#include "harness.h"

typedef struct {
    const char *name; /* below the snapshot's uri */
    gsize bytes;
} S3File;

/* The bytes of a file: they follow from its whole address. g_free. */
guint8 *s3_bytes(const char *uri, const S3File *file);
/* What is to be published, with sizes and digests. cJSON_Delete, or s3_publish. */
cJSON *s3_snapshot(World *world, const char *uri, const S3File *files, gsize n);
/* Publishes it for the service "x" (takes it). */
void s3_publish(World *world, const char *name, cJSON *snapshot);
/* Every node with a search key of @name serves these bytes; at least @nodes of them do. */
void s3_check_served(World *world, const Identity *who, const char *name, const char *uri,
                     const S3File *files, gsize n, guint nodes);

/* The retry of the snapshot's only replica in @set; NULL: none. */
const LhRetry *s3_retry(World *world, const char *name, const char *set);
/* Waits for attempt @attempt at least. */
const LhRetry *s3_wait_retry(World *world, const char *name, const char *set, gint64 attempt);

/* Makes a file below the world's directory, mode 0600; its path. g_free. */
char *s3_secret_file(World *world, const char *name, const char *text);

/* An agent of the set @set that loads from below @roots of the server at @endpoint. */
Proc *s3_agent(World *world, const char *name, const char *set, const char *endpoint,
               const char *roots, const char *access_file, const char *secret_file);

/* Fails the test if @secret is in a log, an argument list, etcd, or /v1/cluster of @manager. */
void s3_check_secret(World *world, Proc *manager, const char *secret);
