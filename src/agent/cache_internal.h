/*
 * What cache_work.c, cache_load.c, cache_holding.c and cache_hooks.c share. Not for use outside these.
 */
#pragma once

#include "agent/cache_store.h"
#include "agent/cache_work.h"
#include "api/published.h"
#include "base/errors.h"

#define LH_CACHE_FETCHES 8 /* files of one snapshot that are fetched at the same time */

struct LhCacheWork {
    LhAgentWork base;
    LhEnv *env;
    LhEtcd *etcd;
    LhObjectStore *objects;
    LhHooks *hooks;
    LhCacheStore *store;
    LhMetrics *metrics;
    const LhWorkFuncs *funcs;
    gpointer data;
    char *prefix, *url, *node;
    char **on_load, **on_evict;
    gint64 hook_timeout_ms;
    gint64 capacity_bytes;
    gint64 copied_bytes, counted_bytes; /* since the start; of these, already in the metric */
    GHashTable *holdings;               /* item → Holding */
    GHashTable *unknown;                /* item → Unknown */
    LhTimer *leftovers;                 /* until what is parked is given up */
    gboolean closing;                   /* it is being freed */
};

/* A release of what is not held, to be answered at the next turn. */
typedef struct {
    LhCacheWork *work;
    char *item;
    LhTimer *timer;
} Unknown;

typedef void (*HookEnd)(const char *url, const GError *error, gpointer holding);

typedef struct Holding Holding;

/* A file that is being fetched. */
typedef struct {
    Holding *holding;
    LhStoreOp op; /* 0: none */
    guint file;   /* its place among the draft's */
    gint64 bytes; /* that are there */
    char *part;   /* where they are */
} Fetch;

/* One item: being loaded, ready, being released, or about to be answered. */
struct Holding {
    LhCacheWork *work;
    char *item;
    const LhAssignment *assignment; /* referenced */
    const LhSnapshot *snapshot;     /* as published, referenced; NULL until read */
    GHashTable *sha256;             /* as published: file name → hex */
    /* At most one of these is under way, or some of @fetches. */
    LhTimer *timer;
    LhCallId range;
    LhStoreOp op;
    LhJob *job;
    LhHookRun hook;
    gboolean waits_for_room;
    guint attempt;
    /* Copying. */
    gint64 reserved; /* bytes of the capacity, until it is an entry */
    char *dir;       /* in loading/ */
    LhCacheEntry *draft;
    Fetch fetches[LH_CACHE_FETCHES];
    guint next_file;   /* the first that no fetch has looked at */
    gint64 done_bytes; /* of files that are whole in @dir */
    /* Held. */
    LhCacheEntry *entry; /* the store's */
    gboolean served;
    gboolean hooked; /* it came to --on-load (if there is one), so --on-evict is due */
    HookEnd hook_end;
    GError *error; /* to be answered */
};

/* ---- cache_holding.c ---- */

/* Ends what is under way. */
void lh_holding_stop(Holding *holding);
void lh_holding_hold(Holding *holding, LhCacheEntry *entry);
void lh_holding_unhold(Holding *holding);
/* What has been copied so far, away. @done: when it is gone. FALSE: there was nothing. */
gboolean lh_holding_discard(Holding *holding, LhCacheRemoved done, gpointer data);
/* Of what it is to load; lh_cache_entry_free. */
LhCacheEntry *lh_holding_origin(const Holding *holding);
/* Parks what has been copied so far, for the next load of the same. */
void lh_holding_free(gpointer holding);
/* Its load is over; answered at a later turn, after which it is gone. */
void lh_holding_fail(Holding *holding, const GError *error);
void lh_holding_fail_with(Holding *holding, LhErrorCode code, const char *format, ...)
    G_GNUC_PRINTF(3, 4);

/* ---- cache_load.c ---- */

/* @holding: the first step of its load, as a timer's callback. */
void lh_cache_load(gpointer holding);
/* @work: something has left the disk, and who waits for room looks again. For the store. */
void lh_cache_load_room(gpointer work);

/* ---- cache_hooks.c ---- */

/* Runs --on-load, if there is one, and calls @end with the url to announce; never inside the
 * call. */
void lh_cache_hook_load(Holding *holding, HookEnd end);
/* Runs --on-evict, if there is one and --on-load was started; then @end, maybe inside the call. */
void lh_cache_hook_evict(Holding *holding, HookEnd end);
