/*
 * All items of one registration: orders come in, the work is told what to do, item and search keys
 * follow.
 *
 * Made when the node has registered, freed when that registration is over. Joins orders.c (what to
 * do), item_writer.c and written.c (what is known of it) and the pool's work. Loop thread.
 */
#pragma once

#include "agent/work.h"
#include "api/actual.h"
#include "base/env.h"
#include "base/metrics.h"
#include "etcd/etcd.h"

typedef struct LhItems LhItems;

typedef struct {
    LhEnv *env;
    LhEtcd *etcd;
    LhAgentWork *work;
    LhMetrics *metrics; /* NULL: none; families are agent.c's to declare */
    const char *prefix; /* "/leasehold/" */
    const char *pool;
    const char *id; /* "<node name>-<8 hex>" */
    gint64 lease;
    const char *registration_key;
    gboolean search;    /* live items have search keys (the cache pool) */
    gboolean exclusive; /* a done is put without the lease: it outlives this node */
    void (*unregistered)(gpointer data);
    /* etcd has not got what was written there: it was restored from a backup. */
    void (*lost)(gpointer data);
    gpointer data;
} LhItemsOptions;

/* Strings of @options are copied. */
LhItems *lh_items_new(const LhItemsOptions *options);
/* Nothing more is written; the work is not told (the owner drops it). Accepts NULL. */
void lh_items_free(LhItems *items);

/* The assignment of @item was put; @value as read. One that does not parse, or holds an action that
 * this build does not know, changes nothing: unknown is not absent. */
void lh_items_put(LhItems *items, const char *item, const LhKv *kv);
/* … was deleted, at @rev. */
void lh_items_gone(LhItems *items, const char *item, gint64 rev);

/* etcd may have been restored from a backup: finds out whether all that was written is there (else:
 * lost). Asks until it is answered; what somebody else has written over is written again. */
void lh_items_verify(LhItems *items);

guint lh_items_count(const LhItems *items, LhItemState state);

/* The answers of the work, to be passed on by whoever attached to it. */
void lh_items_work_progress(LhItems *items, const char *item, gint64 bytes_done);
void lh_items_work_ready(LhItems *items, const char *item, const char *url);
void lh_items_work_finished(LhItems *items, const char *item);
void lh_items_work_failed(LhItems *items, const char *item, const GError *error);
void lh_items_work_released(LhItems *items, const char *item, const GError *error);
