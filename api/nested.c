/* See nested.h. */
#include "api/nested.h"

#include "base/errors.h"
#include "base/json.h"

#include <string.h>

gboolean lh_nested_refuse(GError **error, const char *what, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    g_autofree char *why = g_strdup_vprintf(format, args);
    va_end(args);
    g_set_error(error, LH_ERROR, LH_ERR_INVALID, "%s%s", what, why);
    return FALSE;
}

cJSON *lh_nested_parse(const char *json, gsize max_bytes, const char *what, GError **error)
{
    GError *why = NULL;
    g_autoptr(cJSON) object = lh_json_parse(json, strlen(json), max_bytes, &why);
    if (object == NULL) {
        g_propagate_prefixed_error(error, why, "%s: ", what);
        return NULL;
    }
    if (!cJSON_IsObject(object)) {
        lh_nested_refuse(error, what, ": must be an object");
        return NULL;
    }
    return g_steal_pointer(&object);
}
