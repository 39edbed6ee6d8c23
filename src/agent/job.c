/* Blocking work on threads. While it runs the thread has the input, and the loop the rest. */
#include "agent/job.h"

struct LhJob {
    LhWorkers *workers;
    LhJobWork work;
    gpointer input;
    GDestroyNotify free_input;
    GError *error;
    LhJobDone done; /* NULL: abandoned; loop only, as is data */
    gpointer data;
};

static void job_free(gpointer data)
{
    LhJob *job = data;
    if (job->free_input != NULL)
        job->free_input(job->input);
    g_clear_error(&job->error);
    g_free(job);
}

static void ended(gpointer data)
{
    LhJob *job = data;
    if (job->done != NULL)
        job->done(job->input, job->error, job->data);
    job_free(job);
}

static void run(gpointer data)
{
    LhJob *job = data;
    job->work(job->input, &job->error);
    lh_workers_post(job->workers, ended, job, job_free);
}

LhJob *lh_job_start(LhWorkers *workers, LhJobWork work, gpointer input, GDestroyNotify free_input,
                    LhJobDone done, gpointer data)
{
    LhJob *job = g_new0(LhJob, 1);
    job->workers = workers;
    job->work = work;
    job->input = input;
    job->free_input = free_input;
    job->done = done;
    job->data = data;
    lh_workers_run(workers, run, job);
    return job;
}

void lh_job_abandon(LhJob **job)
{
    if (*job != NULL)
        (*job)->done = NULL;
    *job = NULL;
}
