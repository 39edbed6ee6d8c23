/*
 * What becomes of errands as leadership comes and goes: the outside hears the whole list after each plan,
 * and an empty one when acting must end; then what it had observed is forgotten, so that a new leader
 * observes anew. Must not decide anything.
 */
#include "base/planted.h"
#include "runtime/internal.h"

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
    runner->errands_ms = lh_mono_ms(runtime->env);
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
    if (!LH_BUG(OLD_MISSES))
        lh_mirror_forget(runtime->mirror, runner->controller->name);
}
