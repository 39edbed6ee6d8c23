/*
 * diff -f FILE: what apply would change, line by line, as YAML with the server's defaults in it. Exits 1 when
 * something differs. Writes nothing: the server is asked what it would make of each manifest.
 */
#include "base/errors.h"
#include "cli/internal.h"
#include "cli/output.h"
#include "cli/targets.h"

#include <string.h>

#define CONTEXT   3
#define MAX_LINES 4000 /* of one object: its value is 64 KiB at most */

/* What people write of it. */
static char *text_of(const cJSON *object)
{
    g_autoptr(cJSON) shown = cJSON_CreateObject();
    const cJSON *labels = lh_value_at(object, "metadata.labels");
    const cJSON *spec = lh_value_at(object, "spec");
    if (labels != NULL && labels->child != NULL) {
        cJSON_AddItemToObject(shown, "labels", cJSON_Duplicate(labels, TRUE));
    }
    if (spec != NULL) {
        cJSON_AddItemToObject(shown, "spec", cJSON_Duplicate(spec, TRUE));
    }
    return shown->child == NULL ? g_strdup("") : lh_yaml_print(shown);
}

typedef struct {
    char sign; /* ' ', '-' or '+' */
    const char *text;
} Line;

/* The longest common lines stay; by the usual table of lengths. */
static GArray *lines_of(char **a, char **b)
{
    guint n = MIN(g_strv_length(a), MAX_LINES), m = MIN(g_strv_length(b), MAX_LINES);
    GArray *lines = g_array_new(FALSE, FALSE, sizeof(Line));
    g_autofree guint16 *table = g_new0(guint16, (gsize)(n + 1) * (m + 1));
    guint i = 0, j = 0;
#define LONGEST(x, y) table[(gsize)(x) * (m + 1) + (y)]
    for (guint x = n; x-- > 0;) {
        for (guint y = m; y-- > 0;) {
            LONGEST(x, y) = strcmp(a[x], b[y]) == 0 ? (guint16)(LONGEST(x + 1, y + 1) + 1)
                                                    : MAX(LONGEST(x + 1, y), LONGEST(x, y + 1));
        }
    }
    while (i < n || j < m) {
        gboolean same = i < n && j < m && strcmp(a[i], b[j]) == 0;
        gboolean less = i < n && (j == m || LONGEST(i + 1, j) >= LONGEST(i, j + 1));
        Line line = same ? (Line){' ', a[i]} : less ? (Line){'-', a[i]} : (Line){'+', b[j]};
        i += same || less;
        j += same || !less;
        g_array_append_val(lines, line);
    }
#undef LONGEST
    return lines;
}

static gboolean is_near_change(const GArray *lines, guint at)
{
    for (guint i = at > CONTEXT ? at - CONTEXT : 0; i <= at + CONTEXT && i < lines->len; i++) {
        if (g_array_index(lines, Line, i).sign != ' ') {
            return TRUE;
        }
    }
    return FALSE;
}

static void show(LhCli *cli, const LhTarget *target, const cJSON *before, const cJSON *after)
{
    g_autofree char *old = text_of(before), *new = text_of(after);
    g_auto(GStrv) a = g_strsplit(g_strchomp(old), "\n", -1);
    g_auto(GStrv) b = g_strsplit(g_strchomp(new), "\n", -1);
    g_autoptr(GArray) lines = lines_of(a, b);
    g_autofree char *head = g_strdup_printf("--- %s%s\n+++ %s\n", target->object,
                                            before == NULL ? " (does not exist)" : "",
                                            target->manifest->source);
    gboolean skipped = FALSE;
    lh_output_text(cli->out, head);
    for (guint i = 0; i < lines->len; i++) {
        const Line *line = &g_array_index(lines, Line, i);
        if (!is_near_change(lines, i)) {
            skipped = TRUE;
            continue;
        }
        g_autofree char *text = g_strdup_printf("%s%c%s\n", skipped ? "@@\n" : "", line->sign,
                                                line->text);
        skipped = FALSE;
        lh_output_text(cli->out, text);
    }
}

/* -1: an error; else whether it differs. */
static int diff_one(LhCli *cli, const LhTarget *target, GError **error)
{
    g_autofree char *path = lh_client_path(target->view->plural, target->name);
    g_autofree char *dry_path = g_strconcat(path, "?dryRun=true", NULL);
    g_autofree char *body = lh_json_print(target->manifest->object);
    g_autoptr(GError) local = NULL;
    g_autoptr(cJSON) before = lh_client_get(cli->client, path, &local);
    if (before == NULL && !g_error_matches(local, LH_ERROR, LH_ERR_NOT_FOUND)) {
        g_propagate_error(error, g_steal_pointer(&local));
        return -1;
    }
    g_autoptr(cJSON) after = lh_client_call(cli->client, "PUT", dry_path, body, NULL, NULL, error);
    if (after == NULL) {
        g_prefix_error(error, "%s: ", target->manifest->source);
        return -1;
    }
    if (before != NULL && !lh_objects_differ(before, after)) {
        return 0;
    }
    if (cli->format == LH_OUTPUT_TABLE || cli->format == LH_OUTPUT_WIDE) {
        show(cli, target, before, after);
    } else {
        lh_result_add(cli, target->object, before == NULL ? "missing" : "differs",
                      lh_object_revision(before));
    }
    return 1;
}

int lh_cmd_diff(LhCli *cli, char **args, GError **error)
{
    g_autoptr(GPtrArray) manifests = lh_manifests_new();
    g_autoptr(GArray) targets = lh_targets_load(cli, manifests, error);
    int code = LH_EXIT_DONE;
    (void)args;
    if (targets == NULL) {
        return LH_EXIT_USAGE;
    }
    for (guint i = 0; i < targets->len; i++) {
        int differs = diff_one(cli, &g_array_index(targets, LhTarget, i), error);
        if (differs < 0) {
            return LH_EXIT_FAILED;
        }
        code = differs > 0 ? LH_EXIT_FAILED : code;
    }
    return code;
}
