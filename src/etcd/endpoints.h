/*
 * LhEtcdOptions checked: endpoints parsed, files read once. Any thread; no I/O but those files.
 */
#pragma once

#include "etcd/transport_grpc.h"

typedef struct {
    gboolean tls;
    char **urls;    /* "https://b:2379" */
    char **targets; /* "dns:///b:2379": addresses are names too, for gRPC */
} LhEndpoints;

/* Says of what a message is, given a setting's path: "etcd.cert". */
typedef const char *(*LhEtcdSource)(gconstpointer data, const char *path);

/* FALSE with LH_ERR_INVALID, "<source>: <why>". @source NULL: the path itself. */
gboolean lh_endpoints_check(const LhEtcdOptions *options, LhEtcdSource source, gconstpointer data,
                            LhEndpoints *out, GError **error);
/* Of options that were accepted before; reads no files, and empty if they would not be accepted. */
void lh_endpoints_parse(const LhEtcdOptions *options, LhEndpoints *out);
void lh_endpoints_clear(LhEndpoints *endpoints);

G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC(LhEndpoints, lh_endpoints_clear)
