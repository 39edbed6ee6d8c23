/*
 * What manifests mean for a server: each object with its kind's view and its name, known and named once; and
 * what the server would make of it.
 */
#pragma once

#include "cli/internal.h"
#include "cli/manifest.h"

typedef struct {
    const LhManifest *manifest;
    const LhKindView *view;
    const char *name;
    char *object; /* "services/api-logs" */
} LhTarget;

/* All objects of all files that the options name, in order. @manifests (lh_manifests_new) must outlive the
 * array, which is of LhTarget; g_array_unref. NULL: an error. */
GArray *lh_targets_load(LhCli *cli, GPtrArray *manifests, GError **error);

/* Whether they differ in what people write: spec and labels. */
gboolean lh_objects_differ(const cJSON *before, const cJSON *after);
gint64 lh_object_revision(const cJSON *object);
