/*
 * The cache pool's work: snapshots copied from the object store, verified, kept on a disk, served.
 *
 * load: read published/snapshots/<snapshot> → on the disk already? check sizes, copy nothing
 *       → else make room, list, keep what an interrupted load of the same has left whole, copy and
 *         compare every other file, several at a time, seal, rename into place
 *       → --on-load → ready
 * release: --on-evict → data removed → released. What was failed by --on-load alone stays as warm
 * data. drop: copies end, data stays, and is offered as warm to the next registration;
 * so do the whole files of a load that it has ended.
 *
 * Space: what is held, being loaded and in the trash never exceeds the capacity; warm data that
 * nobody holds makes way, oldest first, as soon as a load needs its room. Loop thread.
 */
#pragma once

#include "agent/hooks.h"
#include "agent/work.h"
#include "base/env.h"
#include "base/metrics.h"
#include "etcd/etcd.h"
#include "objectstore/objectstore.h"

typedef struct {
    const char *prefix; /* "/leasehold/" */
    const char *data_dir;
    const char *url;       /* "http://host:port": items are served below it, at LH_FILES_PATH */
    gint64 capacity_bytes; /* 0: what the file system has free, and what is used by us */
    const char *const *on_load, *const *on_evict; /* argument vectors; NULL: none */
    gint64 hook_timeout_ms;
    LhMetrics *metrics; /* may be NULL */
} LhCacheWorkOptions;

#define LH_FILES_PATH "/v1/files/"

typedef struct LhCacheWork LhCacheWork;

/* @options is copied. The others outlive the work. Errors as lh_cache_store_open. */
LhCacheWork *lh_cache_work_new(LhEnv *env, LhEtcd *etcd, LhObjectStore *objects, LhHooks *hooks,
                               const LhCacheWorkOptions *options, GError **error);
void lh_cache_work_free(LhCacheWork *work); /* after the agent; accepts NULL */

LhAgentWork *lh_cache_work_base(LhCacheWork *work);
gint64 lh_cache_work_capacity(const LhCacheWork *work);
/* For LEASEHOLD_NODE. */
void lh_cache_work_set_node(LhCacheWork *work, const char *id);

/* A file of a snapshot that is live here: a descriptor; -1: there is no such file, or it is not
 * live. */
int lh_cache_work_open_file(LhCacheWork *work, const char *snapshot, const char *name);
/* The manifest of a snapshot that is live here; g_free; NULL: it is not. */
char *lh_cache_work_manifest(LhCacheWork *work, const char *snapshot);
