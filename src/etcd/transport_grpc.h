/*
 * The gRPC transport: a real etcd, behind the vtable of etcd.h.
 *
 * Threads are always blocked in gRPC's completion queues (that is what drives I/O and reconnects) and
 * only decode replies and post to @context: one for the connection of leases, one for that of all else.
 * Deadlines on every call, keepalive pings every 10 s with a timeout of 5 s, reconnect backoff 100 ms to
 * 2 s, unlimited receive size, metadata hasleader on watch and lease streams.
 *
 * Leases have a connection and a thread of their own because a page of 100,000 keys of 3 kB kept
 * keepalives waiting for 330 to 550 ms with one for all, and as long with a second connection alone; so
 * it is 10 to 60 ms.
 *
 * A write is handed to gRPC only when the connection is established; until its deadline it waits for
 * that. So LH_ERR_UNAVAILABLE is certain, and whatever fails later has an unknown outcome.
 */
#pragma once

#include "etcd/etcd.h"

typedef struct {
    const char *const *endpoints; /* NULL-ended: "127.0.0.1:2379", "http://…"; one for now */
    /* Room for TLS and authentication, unused: NULL. */
    const char *cacert, *cert, *key, *user, *password_file;
} LhEtcdOptions;

/* Does not connect yet. Errors: LH_ERR_INVALID for an endpoint that makes no sense. */
LhEtcd *lh_etcd_grpc_new(const LhEtcdOptions *options, GMainContext *context, GError **error);
