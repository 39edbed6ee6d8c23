/*
 * Lists of errands: what a controller wants done outside etcd. And what becomes of them as leadership comes
 * and goes: the outside hears the whole list after each plan, and an empty one when acting must end; then
 * what it had observed is forgotten, so that a new leader observes anew. Does nothing itself.
 */
#include "runtime/internal.h"

LhErrands *lh_errands_new(void)
{
    LhErrands *errands = g_new0(LhErrands, 1);

    errands->errands = g_array_new(FALSE, FALSE, sizeof(LhErrand));
    errands->strings = g_string_chunk_new(256);
    return errands;
}

void lh_errands_free(LhErrands *errands)
{
    if (errands == NULL)
        return;
    g_array_unref(errands->errands);
    g_string_chunk_free(errands->strings);
    g_free(errands);
}

void lh_errands_add(LhErrands *errands, LhErrand errand)
{
    errand.id = g_string_chunk_insert(errands->strings, errand.id);
    if (errand.uri != NULL)
        errand.uri = g_string_chunk_insert(errands->strings, errand.uri);
    g_array_append_val(errands->errands, errand);
}

void lh_errands_wake(LhErrands *errands, gint64 at_ms)
{
    if (errands->wake_ms == 0 || at_ms < errands->wake_ms)
        errands->wake_ms = at_ms;
}

void lh_runner_errands(Runner *runner, const LhPlanContext *context)
{
    const LhRuntime *runtime = runner->runtime;
    const LhController *controller = runner->controller;
    g_autoptr(LhErrands) errands = NULL;

    if (runtime->outside == NULL || controller->errands == NULL)
        return;
    errands = lh_errands_new();
    controller->errands(runner->index, context, errands);
    runner->has_errands = TRUE;
    runtime->outside->set(controller->name, (const LhErrand *)(gpointer)errands->errands->data,
                          errands->errands->len, runtime->outside_data);
    if (errands->wake_ms != 0 &&
        (runner->wake_wall_ms == 0 || errands->wake_ms < runner->wake_wall_ms))
        runner->wake_wall_ms = errands->wake_ms;
}

void lh_runner_errands_end(Runner *runner)
{
    const LhRuntime *runtime = runner->runtime;

    if (!runner->has_errands)
        return;
    runner->has_errands = FALSE;
    runtime->outside->set(runner->controller->name, NULL, 0, runtime->outside_data);
    lh_mirror_forget(runtime->mirror, runner->controller->name);
}
