/*
 * A few threads for blocking work, and the way back to the loop.
 *
 * Made, freed and given work on the loop thread; lh_workers_post may be called on any. What was posted
 * runs on the loop, in its order, never inside lh_workers_post.
 */
#pragma once

#include <glib.h>

typedef struct LhWorkers LhWorkers;

/* @threads: the most that run at a time. The loop is the thread's default main context. */
LhWorkers *lh_workers_new(guint threads);
/* Waits until all that was given has run, then drops what was posted and has not been delivered. May be
 * called by what is being delivered. Accepts NULL. */
void lh_workers_free(LhWorkers *workers);

/* @func runs on a thread, as soon as one is free. */
void lh_workers_run(LhWorkers *workers, void (*func)(gpointer data), gpointer data);
/* @func runs on the loop; or, if the workers are freed before, @drop (which may be NULL). */
void lh_workers_post(LhWorkers *workers, void (*func)(gpointer data), gpointer data,
                     GDestroyNotify drop);
