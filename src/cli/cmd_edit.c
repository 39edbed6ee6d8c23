/*
 * edit KIND NAME: the object in $VISUAL, $EDITOR or vi; what comes back is put under the revision that was
 * read. When it is refused, or somebody else was faster, the edited text is kept and its file is named.
 */
#include "base/errors.h"
#include "cli/internal.h"
#include "cli/output.h"
#include "cli/targets.h"

#include <errno.h>
#include <glib/gstdio.h>
#include <string.h>
#include <unistd.h>

/* As a manifest: without what a server adds. */
static char *manifest_of(const LhKindView *view, const char *name, const cJSON *object)
{
    g_autoptr(cJSON) shown = cJSON_CreateObject();
    const cJSON *labels = lh_value_at(object, "metadata.labels");
    const cJSON *spec = lh_value_at(object, "spec");
    cJSON_AddStringToObject(shown, "apiVersion", "leasehold/v1");
    cJSON_AddStringToObject(shown, "kind", view->kind);
    cJSON *metadata = cJSON_AddObjectToObject(shown, "metadata");
    cJSON_AddStringToObject(metadata, "name", name);
    if (labels != NULL && labels->child != NULL) {
        cJSON_AddItemToObject(metadata, "labels", cJSON_Duplicate(labels, TRUE));
    }
    cJSON_AddItemToObject(shown, "spec",
                          spec != NULL ? cJSON_Duplicate(spec, TRUE) : cJSON_CreateObject());
    return lh_yaml_print(shown);
}

static gboolean run_editor(const char *path, GError **error)
{
    const char *editor = g_getenv("VISUAL");
    g_auto(GStrv) words = NULL;
    g_autoptr(GError) local = NULL;
    int n = 0, status = 0;
    if (editor == NULL || editor[0] == '\0') {
        editor = g_getenv("EDITOR");
    }
    if (editor == NULL || editor[0] == '\0') {
        editor = "vi";
    }
    if (!g_shell_parse_argv(editor, &n, &words, &local)) {
        g_set_error(error, LH_ERROR, LH_ERR_INVALID, "edit: EDITOR=%s: %s", editor, local->message);
        return FALSE;
    }
    words = g_renew(char *, words, (gsize)n + 2);
    words[n] = g_strdup(path);
    words[n + 1] = NULL;
    if (!g_spawn_sync(NULL, words, NULL, G_SPAWN_SEARCH_PATH | G_SPAWN_CHILD_INHERITS_STDIN, NULL,
                      NULL, NULL, NULL, &status, &local) ||
        !g_spawn_check_wait_status(status, &local)) {
        g_set_error(error, LH_CLI_ERROR, LH_EXIT_FAILED, "edit: %s: %s", editor, local->message);
        return FALSE;
    }
    return TRUE;
}

/* The one object in the file, as a body to put; it must be the same one still. */
static char *body_of(const char *path, const LhKindView *view, const char *name, GError **error)
{
    g_autoptr(GPtrArray) manifests = lh_manifests_new();
    if (!lh_manifest_load(path, manifests, error)) {
        return NULL;
    }
    const cJSON *object = manifests->len == 1 ? ((LhManifest *)manifests->pdata[0])->object : NULL;
    const LhKindView *kind = lh_kind_view(lh_json_get_string(object, "kind", ""));
    if (kind != view || strcmp(lh_object_name(object), name) != 0) {
        g_set_error(error, LH_ERROR, LH_ERR_INVALID, "%s: must be one %s that is called %s", path,
                    view->kind, name);
        return NULL;
    }
    return lh_json_print(object);
}

static int put_edited(LhCli *cli, const LhKindView *view, const char *name, const char *path,
                      gint64 revision, GError **error)
{
    g_autofree char *url = lh_client_path(view->plural, name);
    g_autofree char *object = g_strdup_printf("%s/%s", view->plural, name);
    g_autofree char *condition = g_strdup_printf("If-Match: \"%" G_GINT64_FORMAT "\"", revision);
    g_autofree char *body = body_of(path, view, name, error);
    g_autoptr(GError) local = NULL;
    if (body == NULL) {
        return LH_EXIT_USAGE;
    }
    g_autoptr(cJSON) after = lh_client_call(cli->client, "PUT", url, body, condition, NULL, &local);
    if (after == NULL && g_error_matches(local, LH_ERROR, LH_ERR_CONFLICT)) {
        g_set_error(error, LH_ERROR, LH_ERR_CONFLICT,
                    "%s: somebody changed it meanwhile; nothing was written", object);
        return LH_EXIT_REFUSED;
    }
    if (after == NULL) {
        g_propagate_error(error, g_steal_pointer(&local));
        return LH_EXIT_FAILED;
    }
    lh_result_add(cli, object, "edited", lh_object_revision(after));
    return LH_EXIT_DONE;
}

static int edit(LhCli *cli, const LhKindView *view, const char *name, const cJSON *before,
                const char *path, GError **error)
{
    g_autofree char *text = manifest_of(view, name, before);
    g_autofree char *edited = NULL;
    g_autoptr(GError) local = NULL;
    if (!g_file_set_contents_full(path, text, -1, G_FILE_SET_CONTENTS_NONE, 0600, &local)) {
        g_set_error(error, LH_ERROR, LH_ERR_IO, "edit: %s", local->message);
        return LH_EXIT_FAILED;
    }
    if (!run_editor(path, error)) {
        return LH_EXIT_FAILED;
    }
    if (!g_file_get_contents(path, &edited, NULL, &local)) {
        g_set_error(error, LH_ERROR, LH_ERR_IO, "edit: %s", local->message);
        return LH_EXIT_FAILED;
    }
    if (strcmp(text, edited) == 0) {
        g_autofree char *object = g_strdup_printf("%s/%s", view->plural, name);
        lh_result_add(cli, object, "unchanged", lh_object_revision(before));
        return LH_EXIT_DONE;
    }
    return put_edited(cli, view, name, path, lh_object_revision(before), error);
}

int lh_cmd_edit(LhCli *cli, char **args, GError **error)
{
    const LhKindView *view = lh_kind_view_or(args[0], error);
    g_autofree char *dir = NULL, *path = NULL;
    if (view == NULL) {
        return LH_EXIT_USAGE;
    }
    if (!view->desired) {
        g_set_error(error, LH_ERROR, LH_ERR_INVALID, "edit: a %s is not written by people",
                    view->kind);
        return LH_EXIT_USAGE;
    }
    g_autofree char *url = lh_client_path(view->plural, args[1]);
    g_autoptr(cJSON) before = lh_client_get(cli->client, url, error);
    if (before == NULL) {
        return LH_EXIT_FAILED;
    }
    dir = g_dir_make_tmp("leasehold-edit-XXXXXX", NULL);
    if (dir == NULL) {
        g_set_error(error, LH_ERROR, LH_ERR_IO, "edit: no temporary directory: %s",
                    g_strerror(errno));
        return LH_EXIT_FAILED;
    }
    path = g_build_filename(dir, "object.yaml", NULL);
    int code = edit(cli, view, args[1], before, path, error);
    if (code == LH_EXIT_DONE || !g_file_test(path, G_FILE_TEST_EXISTS)) {
        g_unlink(path);
        g_rmdir(dir);
    } else if (error != NULL && *error != NULL) {
        g_autofree char *message = g_strdup_printf("%s; the edit is kept in %s", (*error)->message,
                                                   path);
        g_free((*error)->message);
        (*error)->message = g_steal_pointer(&message);
    }
    return code;
}
