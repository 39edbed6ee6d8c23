/*
 * delete KIND NAME…, delete -f FILE: removes desired objects, in the order given.
 */
#include "base/errors.h"
#include "cli/internal.h"
#include "cli/manifest.h"
#include "cli/output.h"

/* The exit code; what goes wrong is reported here, so that the others are still deleted. */
static int delete_one(LhCli *cli, const LhKindView *view, const char *name)
{
    g_autoptr(GError) error = NULL;
    g_autofree char *path = lh_client_path(view->plural, name);
    g_autofree char *full = g_strconcat(path, cli->o.dry_run ? "?dryRun=true" : "", NULL);
    g_autofree char *object = g_strdup_printf("%s/%s", view->plural, name);
    g_autoptr(cJSON) reply = lh_client_call(cli->client, "DELETE", full, NULL, NULL, NULL, &error);
    if (reply == NULL) {
        return lh_cli_report(cli, error);
    }
    lh_result_add(cli, object, "deleted", 0);
    return LH_EXIT_DONE;
}

static int delete_files(LhCli *cli, GError **error)
{
    g_autoptr(GPtrArray) manifests = lh_manifests_new();
    int code = LH_EXIT_DONE;
    for (guint i = 0; cli->o.files[i] != NULL; i++) {
        if (!lh_manifest_load(cli->o.files[i], manifests, error)) {
            return LH_EXIT_USAGE;
        }
    }
    /* All are looked at before the first one goes. */
    for (guint i = 0; i < manifests->len; i++) {
        const LhManifest *manifest = manifests->pdata[i];
        const char *kind = lh_json_get_string(manifest->object, "kind", "");
        if (lh_kind_view(kind) == NULL || lh_object_name(manifest->object)[0] == '\0') {
            g_set_error(error, LH_ERROR, LH_ERR_INVALID, "%s: needs a known kind and metadata.name",
                        manifest->source);
            return LH_EXIT_USAGE;
        }
    }
    for (guint i = 0; i < manifests->len && code != LH_EXIT_UNREACHABLE; i++) {
        const cJSON *object = ((LhManifest *)manifests->pdata[i])->object;
        int this_code = delete_one(cli, lh_kind_view(lh_json_get_string(object, "kind", "")),
                                   lh_object_name(object));
        code = this_code != LH_EXIT_DONE ? this_code : code;
    }
    return code;
}

int lh_cmd_delete(LhCli *cli, char **args, GError **error)
{
    gboolean named = args[0] != NULL && args[1] != NULL;
    if (named == (cli->o.files != NULL) || (args[0] != NULL && !named)) {
        g_set_error(error, LH_ERROR, LH_ERR_INVALID,
                    "delete: give either KIND and NAME, or -f FILE");
        return LH_EXIT_USAGE;
    }
    if (!named) {
        return delete_files(cli, error);
    }
    const LhKindView *view = lh_kind_view_or(args[0], error);
    if (view == NULL) {
        return LH_EXIT_USAGE;
    }
    int code = LH_EXIT_DONE;
    for (guint i = 1; args[i] != NULL && code != LH_EXIT_UNREACHABLE; i++) {
        int this_code = delete_one(cli, view, args[i]);
        code = this_code != LH_EXIT_DONE ? this_code : code;
    }
    return code;
}
