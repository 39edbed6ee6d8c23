/*
 * One consistent list of a key range: pages of one revision, linearizable; restarted from the beginning
 * when that revision is compacted in between. Loop thread.
 */
#pragma once

#include "base/env.h"
#include "etcd/etcd.h"

typedef struct LhList LhList;

typedef struct {
    /* The pages so far are void: forget them (compacted in between). May be NULL if begin suffices. */
    void (*restart)(gpointer data);
    void (*page)(const LhKv *kvs, gsize n, gpointer data);
    /* Exactly once. @header is that of the first page: header->revision is the list's revision.
     * After it the LhList is freed. */
    void (*done)(const LhEtcdHeader *header, const GError *error, gpointer data);
} LhListFuncs;

/* @prefix ends with '/'. @page_keys 0: 10,000, then as many as make 32 MiB, 250,000 at most (the gRPC
 * receive limit is off); a large page is handed over in parts.
 * @revision 0: newest; then a list whose revision is compacted begins again, 5 times at most.
 * A page that fails with an error of class retry is asked for again, 5 times with backoff. */
LhList *lh_list_start(LhEnv *env, LhEtcd *etcd, const char *prefix, gint64 revision,
                      gint64 page_keys, const LhListFuncs *funcs, gpointer data);
/* No callback runs after it. Accepts NULL. */
void lh_list_cancel(LhList *list);
