/*
 * Manifests: YAML (1.2 core scalars) and JSON files → objects to apply. Single-threaded.
 *
 * yes, no and on are strings; 0o17 is 15; integers beyond 2^53-1, .inf and .nan are refused.
 * Anchors, aliases, merge keys, tags but !!str, duplicate keys, NUL, more than 32 levels, 16 MiB
 * or 100,000 documents are refused, each with file and line.
 */
#pragma once

#include <cjson/cJSON.h>
#include <glib.h>

typedef struct {
    cJSON *object;
    char *source; /* "dir/a.yaml:12", for messages */
} LhManifest;

/* @path: a file, a directory (its *.yaml, *.yml and *.json, sorted, not below), or "-". A List's
 * items become objects of their own. Appends to @out (of LhManifest); free it with
 * lh_manifests_new's func. Errors: LH_ERR_INVALID (content), LH_ERR_IO (file). */
gboolean lh_manifest_load(const char *path, GPtrArray *out, GError **error);
gboolean lh_manifest_parse(const char *source, const char *text, gsize len, gboolean json,
                           GPtrArray *out, GError **error);
GPtrArray *lh_manifests_new(void);

typedef enum {
    LH_SCALAR_STRING,
    LH_SCALAR_NULL,
    LH_SCALAR_BOOL,
    LH_SCALAR_INT,
    LH_SCALAR_FLOAT,
} LhScalar;

/* What a plain scalar means in YAML 1.2's core schema. */
LhScalar lh_yaml_scalar(const char *text);
