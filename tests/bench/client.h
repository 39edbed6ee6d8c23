/*
 * etcd through the product's own client, as one who may do anything: single writes, loads of many keys,
 * raw reads, and watches that call back. Each call blocks (running the loop) unless it says otherwise, and
 * ends the program when etcd refuses. Keys are whole keys.
 */
#pragma once

#include "bench.h"

/* Each returns the revision that it made. */
gint64 client_put(const char *key, const char *value, gint64 lease);
gint64 client_delete_prefix(const char *prefix); /* in one transaction */
gint64 client_txn(const LhTxnRequest *request);  /* must succeed */

/* The key and the value of number @i; both are g_free'd. */
typedef void (*ItemFunc)(guint i, char **key, char **value, gpointer data);
/* Puts items 0 … @n-1 in full transactions, many in flight. Returns the last revision. */
gint64 client_load(guint n, ItemFunc item, gpointer data, gint64 lease);

/* Transactions 0 … @n-1, @in_flight of them at a time; every one must succeed. Returns how long it took
 * from the first sent to the last answered. @request is asked for each just before it is sent. */
typedef const LhTxnRequest *(*RequestFunc)(guint i, gpointer data);
gint64 client_pump(guint n, guint in_flight, RequestFunc request, gpointer data);

/* Reads all keys of all kinds below @prefix at one revision in pages of @page_keys and forgets them. Kind
 * after kind: for each page etcd 3.4 walks all keys up to the end of what was asked for. */
typedef struct {
    gint64 took_us;
    guint64 keys, bytes; /* of keys and values */
} RawRange;
RawRange client_range(const char *prefix, gint64 page_keys);

typedef struct Watch Watch;
/* @at_us: when its reply arrived. */
typedef void (*EventFunc)(const LhEtcdEvent *event, gint64 at_us, gpointer data);
/* Returns when etcd has confirmed it. */
Watch *watch_new(const char *prefix, EventFunc func, gpointer data);
void watch_free(Watch *watch);

/* A lease that is kept alive until it is revoked. */
typedef struct Keeper Keeper;
Keeper *keeper_new(gint64 ttl_s);
gint64 keeper_lease(const Keeper *keeper);
void keeper_free(Keeper *keeper); /* revokes it */
