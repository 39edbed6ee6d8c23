/* Lists of errands: what a controller wants done outside etcd. Pure; does nothing itself. */
#include "runtime/controller.h"

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
