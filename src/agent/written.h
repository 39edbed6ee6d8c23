/*
 * Whether etcd still has what this registration wrote.
 *
 * An etcd that was restored from a backup may have all orders that a node has heard, and not the answers
 * that the node gave to them; and its revisions may have passed those of the answers, so that nothing
 * else tells. So the items' keys are listed, and their mod revisions compared. Loop thread.
 */
#pragma once

#include "base/env.h"
#include "etcd/etcd.h"

typedef struct LhWritten LhWritten;

typedef struct {
    /* Calls @func with the name of each item there is. */
    void (*foreach)(void (*func)(const char *name, gpointer data), gpointer func_data,
                    gpointer data);
    /* Of the item's key as last written; 0: it is not in etcd; -1: it is not known at present. */
    gint64 (*revision)(const char *name, gpointer data);
    /* Others may take this item's key away. */
    gboolean (*given_away)(const char *name, gpointer data);
    /* Somebody else has written over this item, or taken it away: it is to be written again, if it still
     * answers anything. */
    void (*over)(const char *name, gpointer data);
    /* Something that was written is not there, or older than it was written: another history. Must not
     * free the LhWritten. */
    void (*lost)(gpointer data);
} LhWrittenFuncs;

/* @prefix: of the items' keys, ended by '/'; copied. Keys with another lease than @lease are not ours. */
LhWritten *lh_written_new(LhEnv *env, LhEtcd *etcd, const char *prefix, gint64 lease,
                          const LhWrittenFuncs *funcs, gpointer data);
/* Asks, and again until it is answered. */
void lh_written_verify(LhWritten *written);
void lh_written_free(LhWritten *written); /* accepts NULL */
