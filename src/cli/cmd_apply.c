/*
 * apply -f FILE: makes the server's desired objects what the manifests say.
 *
 * Each object is read, compared with what the server would make of the manifest, and written only
 * where that differs, under the revision that was read. One that fails does not stop the others,
 * but nothing is pruned then.
 */
#include "base/errors.h"
#include "cli/internal.h"
#include "cli/output.h"
#include "cli/targets.h"

#include <string.h>

#define MAX_ATTEMPTS 5

/* Would writing @body change @before? The server says what it would be, defaults filled in. */
static gboolean would_change(LhCli *cli, const char *path, const char *body, const cJSON *before,
                             gboolean *changes, GError **error)
{
    g_autofree char *dry_path = g_strconcat(path, "?dryRun=true", NULL);
    g_autoptr(cJSON) after = lh_client_call(cli->client, "PUT", dry_path, body, NULL, NULL, error);
    *changes = after != NULL && lh_objects_differ(before, after);
    return after != NULL;
}

/* One attempt. NULL and an error, or static text that says what was done. */
static const char *apply_once(LhCli *cli, const LhTarget *target, const char *body,
                              gint64 *revision, GError **error)
{
    g_autofree char *path = lh_client_path(target->view->plural, target->name);
    g_autofree char *put_path = g_strconcat(path, cli->o.dry_run ? "?dryRun=true" : "", NULL);
    g_autofree char *condition = g_strdup("If-None-Match: *");
    g_autoptr(GError) local = NULL;
    g_autoptr(cJSON) before = lh_client_get(cli->client, path, &local);
    if (before == NULL && !g_error_matches(local, LH_ERROR, LH_ERR_NOT_FOUND)) {
        g_propagate_error(error, g_steal_pointer(&local));
        return NULL;
    }
    if (before != NULL) {
        gboolean changes;
        *revision = lh_object_revision(before);
        if (!would_change(cli, path, body, before, &changes, error)) {
            return NULL;
        }
        if (!changes || cli->o.dry_run) {
            return changes ? "configured" : "unchanged";
        }
        g_free(condition);
        condition = g_strdup_printf("If-Match: \"%" G_GINT64_FORMAT "\"", *revision);
    }
    g_autoptr(cJSON) after = lh_client_call(cli->client, "PUT", put_path, body, condition, NULL,
                                            error);
    if (after == NULL) {
        return NULL;
    }
    *revision = lh_object_revision(after);
    return before == NULL ? "created" : "configured";
}

static gboolean apply_one(LhCli *cli, const LhTarget *target, GError **error)
{
    g_autofree char *body = lh_json_print(target->manifest->object);
    for (guint attempt = 1;; attempt++) {
        gint64 revision = 0;
        g_autoptr(GError) local = NULL;
        const char *result = apply_once(cli, target, body, &revision, &local);
        if (result != NULL) {
            lh_result_add(cli, target->object, result, revision);
            return TRUE;
        }
        /* Somebody else was faster: look again. */
        if (attempt < MAX_ATTEMPTS && g_error_matches(local, LH_ERROR, LH_ERR_CONFLICT)) {
            continue;
        }
        if (g_error_matches(local, LH_ERROR, LH_ERR_INVALID)) {
            g_prefix_error(&local, "%s: ", target->manifest->source);
        }
        g_propagate_error(error, g_steal_pointer(&local));
        return FALSE;
    }
}

static gboolean prune_kind(LhCli *cli, const LhKindView *view, GHashTable *kept, GError **error)
{
    g_autoptr(cJSON) list = lh_client_list(cli->client, view->plural, cli->o.selector, error);
    if (list == NULL) {
        return FALSE;
    }
    const cJSON *object;
    cJSON_ArrayForEach(object, cJSON_GetObjectItemCaseSensitive(list, "items")) {
        g_autofree char *name = g_strdup_printf("%s/%s", view->plural, lh_object_name(object));
        if (g_hash_table_contains(kept, name)) {
            continue;
        }
        g_autofree char *path = lh_client_path(view->plural, lh_object_name(object));
        g_autofree char *full = g_strconcat(path, cli->o.dry_run ? "?dryRun=true" : "", NULL);
        g_autofree char *condition = g_strdup_printf("If-Match: \"%" G_GINT64_FORMAT "\"",
                                                     lh_object_revision(object));
        g_autoptr(cJSON) reply = lh_client_call(cli->client, "DELETE", full, NULL, condition, NULL,
                                                error);
        if (reply == NULL) {
            return FALSE;
        }
        lh_result_add(cli, name, "pruned", 0);
    }
    return TRUE;
}

static gboolean prune(LhCli *cli, const GArray *targets, GError **error)
{
    g_autoptr(GHashTable) kept = g_hash_table_new(g_str_hash, g_str_equal);
    guint n;
    const LhKindView *views = lh_kind_views(&n);
    for (guint i = 0; i < targets->len; i++) {
        g_hash_table_add(kept, g_array_index(targets, LhTarget, i).object);
    }
    for (guint i = 0; i < n; i++) {
        if (views[i].desired && !prune_kind(cli, &views[i], kept, error)) {
            return FALSE;
        }
    }
    return TRUE;
}

int lh_cmd_apply(LhCli *cli, char **args, GError **error)
{
    g_autoptr(GPtrArray) manifests = lh_manifests_new();
    if (cli->o.prune != (cli->o.selector != NULL && cli->o.selector[0] != '\0')) {
        g_set_error(error, LH_ERROR, LH_ERR_INVALID, "apply: --prune and -l SELECTOR go together");
        return LH_EXIT_USAGE;
    }
    g_autoptr(GArray) targets = lh_targets_load(cli, manifests, error);
    if (targets == NULL) {
        return LH_EXIT_USAGE;
    }
    int code = LH_EXIT_DONE;
    for (guint i = 0; i < targets->len; i++) {
        g_autoptr(GError) local = NULL;
        if (apply_one(cli, &g_array_index(targets, LhTarget, i), &local)) {
            continue;
        }
        int this_code = lh_cli_report(cli, local);
        code = code == LH_EXIT_DONE ? this_code : code;
        if (this_code == LH_EXIT_UNREACHABLE) {
            return code; /* the others would wait for the same */
        }
    }
    if (cli->o.prune && code != LH_EXIT_DONE) {
        fputs("leasehold: apply: nothing was pruned, because of the errors above\n", cli->err);
    } else if (cli->o.prune && !prune(cli, targets, error)) {
        return LH_EXIT_FAILED;
    }
    return code;
}
