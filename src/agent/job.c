/* Blocking work on GLib's threads. The job belongs to the loop; the thread has the task alone. */
#include "agent/job.h"

#include <gio/gio.h>

struct LhJob {
    LhJobWork work;
    gpointer input;
    GDestroyNotify free_input;
    LhJobDone done; /* NULL: abandoned; loop only, as is data */
    gpointer data;
    gint handed; /* atomic: 1 over to the thread, 2 back; each side sees what the other wrote */
};

static void job_free(gpointer data)
{
    LhJob *job = data;
    if (job->free_input != NULL)
        job->free_input(job->input);
    g_free(job);
}

static void run(GTask *task, gpointer source G_GNUC_UNUSED, gpointer task_data,
                GCancellable *cancellable G_GNUC_UNUSED)
{
    LhJob *job = task_data;
    GError *error = NULL;
    if (g_atomic_int_get(&job->handed) == 1)
        job->work(job->input, &error);
    g_atomic_int_set(&job->handed, 2);
    if (error != NULL)
        g_task_return_error(task, error);
    else
        g_task_return_boolean(task, TRUE);
}

static void ended(GObject *source G_GNUC_UNUSED, GAsyncResult *result, gpointer data)
{
    LhJob *job = data;
    g_autoptr(GError) error = NULL;
    g_task_propagate_boolean(G_TASK(result), &error);
    if (g_atomic_int_get(&job->handed) == 2 && job->done != NULL)
        job->done(job->input, error, job->data);
}

LhJob *lh_job_start(LhJobWork work, gpointer input, GDestroyNotify free_input, LhJobDone done,
                    gpointer data)
{
    LhJob *job = g_new0(LhJob, 1);
    job->work = work;
    job->input = input;
    job->free_input = free_input;
    job->done = done;
    job->data = data;
    GTask *task = g_task_new(NULL, NULL, ended, job);
    g_task_set_task_data(task, job, job_free);
    g_atomic_int_set(&job->handed, 1);
    g_task_run_in_thread(task, run);
    g_object_unref(task);
    return job;
}

void lh_job_abandon(LhJob **job)
{
    if (*job != NULL)
        (*job)->done = NULL;
    *job = NULL;
}
