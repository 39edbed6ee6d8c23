/* See targets.h. */
#include "cli/targets.h"

#include "base/errors.h"

static void target_clear(gpointer data)
{
    g_free(((LhTarget *)data)->object);
}

static gboolean target_of(const LhManifest *manifest, LhTarget *target, GError **error)
{
    const char *kind = lh_json_get_string(manifest->object, "kind", NULL);
    const cJSON *metadata = cJSON_GetObjectItemCaseSensitive(manifest->object, "metadata");
    const char *name = lh_json_get_string(metadata, "name", NULL);
    const LhKindView *view = kind != NULL ? lh_kind_view(kind) : NULL;
    if (view == NULL || !view->desired) {
        g_set_error(error, LH_ERROR, LH_ERR_INVALID, "%s: kind: %s%s", manifest->source,
                    kind != NULL ? kind : "is missing",
                    kind == NULL   ? ""
                    : view == NULL ? " is unknown"
                                   : " is not written by people");
        return FALSE;
    }
    if (name == NULL || name[0] == '\0') {
        g_set_error(error, LH_ERROR, LH_ERR_INVALID, "%s: metadata.name is missing",
                    manifest->source);
        return FALSE;
    }
    *target = (LhTarget){manifest, view, name, g_strdup_printf("%s/%s", view->plural, name)};
    return TRUE;
}

static GArray *targets_of(const GPtrArray *manifests, GError **error)
{
    g_autoptr(GArray) targets = g_array_new(FALSE, TRUE, sizeof(LhTarget));
    g_autoptr(GHashTable) seen = g_hash_table_new(g_str_hash, g_str_equal);
    g_array_set_clear_func(targets, target_clear);
    for (guint i = 0; i < manifests->len; i++) {
        LhTarget target;
        if (!target_of(manifests->pdata[i], &target, error)) {
            return NULL;
        }
        g_array_append_val(targets, target);
        if (!g_hash_table_add(seen, target.object)) {
            g_set_error(error, LH_ERROR, LH_ERR_INVALID, "%s: %s is there twice",
                        target.manifest->source, target.object);
            return NULL;
        }
    }
    return g_steal_pointer(&targets);
}

GArray *lh_targets_load(LhCli *cli, GPtrArray *manifests, GError **error)
{
    if (cli->o.files == NULL) {
        g_set_error(error, LH_ERROR, LH_ERR_INVALID, "%s: -f FILE is missing", cli->command->name);
        return NULL;
    }
    for (guint i = 0; cli->o.files[i] != NULL; i++) {
        if (!lh_manifest_load(cli->o.files[i], manifests, error)) {
            return NULL;
        }
    }
    if (manifests->len == 0) {
        g_set_error(error, LH_ERROR, LH_ERR_INVALID, "%s: no objects in it", cli->o.files[0]);
        return NULL;
    }
    return targets_of(manifests, error);
}

static gboolean same_member(const cJSON *a, const cJSON *b, const char *path)
{
    const cJSON *x = lh_value_at(a, path), *y = lh_value_at(b, path);
    gboolean x_empty = x == NULL || (cJSON_IsObject(x) && x->child == NULL);
    gboolean y_empty = y == NULL || (cJSON_IsObject(y) && y->child == NULL);
    return x_empty || y_empty ? x_empty == y_empty : cJSON_Compare(x, y, TRUE);
}

gboolean lh_objects_differ(const cJSON *before, const cJSON *after)
{
    return lh_value_at(before, "error") != NULL || !same_member(before, after, "spec") ||
           !same_member(before, after, "metadata.labels");
}

gint64 lh_object_revision(const cJSON *object)
{
    return lh_json_get_int(lh_value_at(object, "metadata"), "revision", 0);
}
