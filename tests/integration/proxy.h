/*
 * A TCP proxy in front of etcd, on the test's own main loop, that can hold back what one client sends and
 * deliver it later, when that client has long gone on over another connection.
 */
#pragma once

#include <glib.h>

typedef struct Proxy Proxy;

Proxy *proxy_new(const char *endpoint); /* "127.0.0.1:PORT" of etcd */
void proxy_free(Proxy *proxy);
const char *proxy_endpoint(const Proxy *proxy);

/* From the first piece on that holds @marker, nothing of that connection is passed on to etcd. */
void proxy_hold(Proxy *proxy, const char *marker);
gboolean proxy_is_holding(const Proxy *proxy);
/* Closes the client's side of that connection; etcd's side stays open. */
void proxy_cut(Proxy *proxy);
/* Delivers what was held. */
void proxy_release(Proxy *proxy);
/* What etcd has sent on that connection since the release. */
gsize proxy_answered(const Proxy *proxy);
