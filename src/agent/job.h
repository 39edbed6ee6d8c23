/*
 * One piece of blocking work on a thread, answered on the loop.
 *
 * Loop thread. `work` runs on a thread and sees nothing but its input; `done` runs on the loop, never
 * inside lh_job_start, exactly once, unless the job was abandoned or the workers freed: then the work
 * still ends, unheard.
 */
#pragma once

#include "base/workers.h"

typedef struct LhJob LhJob;
typedef void (*LhJobWork)(gpointer input, GError **error);
typedef void (*LhJobDone)(gpointer input, const GError *error, gpointer data);

/* Takes @input. The job is freed after @done. */
LhJob *lh_job_start(LhWorkers *workers, LhJobWork work, gpointer input, GDestroyNotify free_input,
                    LhJobDone done, gpointer data);
/* Abandons *@job if it is not NULL, and sets it to NULL. */
void lh_job_abandon(LhJob **job);
