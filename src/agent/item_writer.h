/*
 * Writes one item's key (and its search key with it): at most one write in flight, compared with
 * the item's last revision, the node's registration and the assignment it answers; always the
 * newest content.
 *
 * The content is asked for at the moment of sending. After an unknown outcome the keys are read
 * back before anything is written again. A create that lands long after we gave up on it cannot
 * raise the dead: it compares the mod revision of an assignment that is not the present one any
 * more. Loop thread.
 */
#pragma once

#include "api/actual.h"
#include "base/env.h"
#include "etcd/etcd.h"

typedef struct LhItemWriter LhItemWriter;

typedef enum { LH_SEARCH_KEEP, LH_SEARCH_PUT, LH_SEARCH_DELETE } LhSearchOp;

/* One write. Strings are owned (g_free), NULL where unused. */
typedef struct {
    gboolean erase;        /* delete the item key */
    gboolean leaseless;    /* the item key is put without the lease */
    LhItemState state;     /* what value says */
    char *value;           /* of the item */
    gint64 assignment_rev; /* must be the assignment's mod revision; 0: it must not exist */
    LhSearchOp search;
    char *search_key; /* whole keys */
    char *search_value;
} LhItemWrite;

typedef struct {
    /* Fills @write (zeroed) with what is to be known now. */
    void (*compose)(LhItemWrite *write, gpointer data);
    /* The item key is not at the revision last written; what is there is about to be written over. */
    void (*moved)(gpointer data);
    /* @write is committed. FALSE: the writer has been freed. */
    gboolean (*committed)(const LhItemWrite *write, gpointer data);
} LhItemWriterFuncs;

/* What all items of one registration share. Outlives the writers. */
typedef struct {
    LhEnv *env;
    LhEtcd *etcd;
    gint64 lease;
    const char *registration_key;
    /* The registration is not there any more, or not ours, or the lease is gone: told by a
     * write. */
    void (*unregistered)(gpointer data);
    gpointer data;
} LhItemScope;

LhItemWriter *lh_item_writer_new(const LhItemScope *scope, const char *item_key,
                                 const char *assignment_key, const LhItemWriterFuncs *funcs,
                                 gpointer data);
/* There is something new to say. */
void lh_item_writer_touch(LhItemWriter *writer);
/* A newer assignment has been heard of: a write that waits for it need not wait any longer. */
void lh_item_writer_hurry(LhItemWriter *writer);
/* Of the item key as last written, 0: it does not exist; -1: that is just being changed or found out. */
gint64 lh_item_writer_revision(const LhItemWriter *writer);
/* It was put without the lease: a controller may have taken it away. */
gboolean lh_item_writer_given_away(const LhItemWriter *writer);
/* What is in flight may land or not. Accepts NULL; also inside committed. */
void lh_item_writer_free(LhItemWriter *writer);
