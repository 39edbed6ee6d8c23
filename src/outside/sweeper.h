/*
 * Does snapshot-cleaner's errands (controllers/cleaner.h) on an object store, and says what it saw.
 *
 * Loop thread. It decides nothing: it deletes exactly the uri that an errand names, as long as that errand is
 * wanted. What is listed it compares with the index as it stands at that moment; the plan looks again.
 */
#pragma once

#include "objectstore/objectstore.h"
#include "runtime/runtime.h"

typedef struct LhSweeper LhSweeper;

/* What etcd's own clock says. One question at a time. */
typedef struct {
    /* @done once, later, unless it was cancelled. */
    void (*ask)(gpointer data,
                void (*done)(gint64 clock_ms, const GError *error, gpointer done_data),
                gpointer done_data);
    void (*cancel)(gpointer data);
    gpointer data;
} LhClockSource;

typedef struct {
    LhEnv *env;
    LhMirror *mirror;
    LhRuntime *runtime; /* whose index of snapshot-cleaner is read */
    LhObjectStore *store;
    const char *const *roots; /* each ends in '/'; copied. None: nothing is ever deleted */
    LhClockSource etcd_clock; /* copied */
} LhSweeperOptions;

/* Tells of the roots at once: before the mirror starts, and to listeners that are there. */
LhSweeper *lh_sweeper_new(const LhSweeperOptions *options);
void lh_sweeper_free(LhSweeper *sweeper); /* cancels everything, says nothing; accepts NULL */

/* For lh_runtime_set_outside, with the sweeper as data. */
extern const LhOutside lh_sweeper_outside;
