/*
 * JSONPath templates as kubectl has them: `{.items[*].metadata.name}`. Pure; any thread.
 *
 * Text outside braces is copied. Inside: an optional `$` or `@`, then `.name`, `['name']`, `[0]`,
 * `[-1]`, `[*]`, `.*` or `[?(@.a.b=="c")]` (== and != with a string or a number); a literal
 * "text\n"; `range PATH` and `end`. Several results are joined by a space; strings are written
 * raw, objects as JSON; what is missing is nothing.
 */
#pragma once

#include <cjson/cJSON.h>
#include <glib.h>

typedef struct LhJsonPath LhJsonPath;

/* A template without braces (".a.b", "a.b") is one path. Errors: LH_ERR_INVALID. */
LhJsonPath *lh_jsonpath_new(const char *template, GError **error);
void lh_jsonpath_free(LhJsonPath *path); /* accepts NULL */
void lh_jsonpath_eval(const LhJsonPath *path, const cJSON *root, GString *out);

G_DEFINE_AUTOPTR_CLEANUP_FUNC(LhJsonPath, lh_jsonpath_free)
