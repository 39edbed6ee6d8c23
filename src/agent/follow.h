/*
 * What lies under one key or prefix, as a sequence of puts and deletions that is never wrong: a
 * watch, and after compaction a list that is compared with what was heard before.
 *
 * Each revision of a key is reported at most once, and revisions of one key in their order. For
 * small ranges (an agent's own keys); the mirror is for large ones. Loop thread.
 */
#pragma once

#include "base/env.h"
#include "etcd/etcd.h"

typedef struct LhFollow LhFollow;

typedef struct {
    /* The watch is open for the first time: everything written from now on will be heard. */
    void (*opened)(gpointer data);
    /* The watch is open again after a gap, perhaps to another history that agrees with all that was
     * heard here. May be NULL. */
    void (*again)(gpointer data);
    /* None of these may free the follow. */
    void (*put)(const LhKv *kv, gpointer data);
    void (*gone)(const char *key, gint64 rev, gpointer data); /* rev: of the deletion, or later */
    /* etcd is not what it was: its revision went back, its cluster id changed, or it has
     * something else at a revision that was heard already (restored from a backup). Nothing heard before means anything. The follow is dead; free it, but not in
     * here. */
    void (*void_)(gpointer data);
} LhFollowFuncs;

/* @range_end NULL: the single key. Nothing is listed at the start: what exists then must come in by
 * lh_follow_seed. */
LhFollow *lh_follow_start(LhEnv *env, LhEtcd *etcd, const char *key, const char *range_end,
                          const LhFollowFuncs *funcs, gpointer data);
/* What is heard from now on waits … */
void lh_follow_hold(LhFollow *follow);
/* … until here, where it is reported in its order. */
void lh_follow_flow(LhFollow *follow);
/* What a read found: reported at once unless it is old. */
void lh_follow_seed(LhFollow *follow, const LhKv *kv);
void lh_follow_free(LhFollow *follow); /* accepts NULL */
