/*
 * JSON objects that are the value of one member of an object, and have a parser of their own: what such parsers
 * share. Strict: what is not understood is refused, with the field. Pure; any thread.
 */
#pragma once

#include <cjson/cJSON.h>
#include <glib.h>

/* The object, at most @max_bytes long; cJSON_Delete. NULL: LH_ERR_INVALID, and the message begins with @what. */
cJSON *lh_nested_parse(const char *json, gsize max_bytes, const char *what, GError **error);
/* FALSE, and LH_ERR_INVALID: @what, then the format (".field: must be …", ": must be …"). */
gboolean lh_nested_refuse(GError **error, const char *what, const char *format, ...)
    G_GNUC_PRINTF(3, 4);
