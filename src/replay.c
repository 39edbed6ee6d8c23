/*
 * `leasehold plan --from FILE`: the plans that the controllers of this binary make of recorded inputs.
 * Offline: no etcd, no clock.
 */
#include "base/errors.h"
#include "controllers/registry.h"
#include "programs.h"
#include "runtime/record.h"

int lh_replay_plan(const char *path, const char *controller, FILE *out, GError **error)
{
    g_autoptr(GError) why = NULL;
    g_autofree char *text = NULL;
    g_autoptr(GString) json = g_string_new(NULL);
    gsize len;

    if (!g_file_get_contents(path, &text, &len, &why)) {
        g_set_error(error, LH_ERROR, LH_ERR_INVALID, "%s", why->message);
        return -1;
    }
    if (!lh_record_plan(text, len, lh_controllers(), controller, json, error))
        return -1;
    fputs(json->str, out);
    return 0;
}
