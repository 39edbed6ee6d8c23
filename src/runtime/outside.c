/*
 * What becomes of errands as leadership comes and goes: the outside hears the whole list after each plan
 * that may have changed it, and an empty one when acting must end; then what it had observed is forgotten,
 * so that a new leader observes anew. Must not decide anything.
 */
#include "base/planted.h"
#include "runtime/internal.h"

static gboolean same_as_told(const Runner *runner, const LhPlanContext *context, guint64 digest)
{
    return runner->controller->errands_digest != NULL && runner->has_errands &&
           digest == runner->errands_digest &&
           (runner->errands_wake_ms == 0 || context->now_ms < runner->errands_wake_ms);
}

void lh_runner_errands(Runner *runner, const LhPlanContext *context)
{
    const LhRuntime *runtime = runner->runtime;
    const LhController *controller = runner->controller;
    guint64 digest;

    if (runtime->outside == NULL || controller->errands == NULL)
        return;
    runner->errands_ms = lh_mono_ms(runtime->env);
    digest = controller->errands_digest == NULL ? 0 : controller->errands_digest(runner->index);
    if (!same_as_told(runner, context, digest)) {
        g_autoptr(LhErrands) errands = lh_errands_new();
        controller->errands(runner->index, context, errands);
        runner->has_errands = TRUE;
        runner->errands_digest = digest;
        runner->errands_wake_ms = errands->wake_ms;
        runtime->outside->set(controller->name, (const LhErrand *)(gpointer)errands->errands->data,
                              errands->errands->len, runtime->outside_data);
    }
    if (runner->errands_wake_ms != 0 &&
        (runner->wake_wall_ms == 0 || runner->errands_wake_ms < runner->wake_wall_ms))
        runner->wake_wall_ms = runner->errands_wake_ms;
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
