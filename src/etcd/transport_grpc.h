/*
 * The gRPC transport: a real etcd, behind the vtable of etcd.h.
 *
 * One thread is always blocked in gRPC's completion queue (that is what drives I/O and reconnects) and
 * only posts to @context. Deadlines on every call, keepalive pings every 10 s with a timeout of 5 s,
 * reconnect backoff 100 ms to 2 s, unlimited receive size, metadata hasleader on watch and lease streams.
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
