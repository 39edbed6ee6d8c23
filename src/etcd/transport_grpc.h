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
 * Several endpoints: each lane (leases; all else) uses one of them at a time, and moves to the next when
 * the one in use refuses, answers nothing within a deadline, or has lost its leader; then the calls and
 * streams of that lane on the old one fail, so that what is above resumes elsewhere. A lane that is in
 * doubt about its endpoint asks another one before a lease of 5 s can end. Each endpoint has channels
 * of its own, so with TLS each is verified by its own name.
 *
 * TLS: files are read anew when they change, for the next connection. Authentication: a token is
 * fetched with the password (its file is read each time), renewed before streams are opened and when
 * etcd says that it is no longer valid; a call that was refused for its token alone is sent once more.
 *
 * A write is handed to gRPC only when the connection is established; until its deadline it waits for
 * that. So LH_ERR_UNAVAILABLE is certain, and whatever fails later has an unknown outcome.
 */
#pragma once

#include "base/config.h"
#include "etcd/etcd.h"

/* All strings are copied by who takes the options. */
typedef struct {
    /* NULL-ended: "127.0.0.1:2379", "http://…", "https://name:2379"; all of one scheme. Without a
     * scheme: https when cacert or cert is set, else http. */
    const char *const *endpoints;
    const char *cacert;        /* PEM file; NULL: the system's authorities */
    const char *cert, *key;    /* PEM files of the client certificate; both or none */
    const char *user;          /* with password_file; NULL: no password */
    const char *password_file; /* a trailing newline is not part of the password */
} LhEtcdOptions;

/* The options in @config (etcd.*; borrowed from it). Errors: LH_ERR_INVALID with the setting's source:
 * one half of a pair, TLS files for http://, a file that cannot be read or is no certificate or key,
 * a key that does not belong to its certificate. */
gboolean lh_etcd_options_read(const LhConfig *config, LhEtcdOptions *out, GError **error);

/* Does not connect yet. Errors: LH_ERR_INVALID for endpoints that make no sense, or files as above. */
LhEtcd *lh_etcd_grpc_new(const LhEtcdOptions *options, GMainContext *context, GError **error);
/* "https://b:2379": the endpoint that all but leases use at present. */
const char *lh_etcd_grpc_endpoint(const LhEtcd *etcd);
