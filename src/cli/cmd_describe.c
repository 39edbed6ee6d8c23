/*
 * describe KIND NAME: one object for people: fields, conditions, and what happened to it.
 */
#include "cli/events.h"
#include "cli/internal.h"
#include "cli/output.h"

#include <string.h>

static void print_indented(LhCli *cli, const char *title, const cJSON *value)
{
    if (value == NULL || value->child == NULL) {
        return;
    }
    g_autofree char *yaml = lh_yaml_print(value);
    g_auto(GStrv) lines = g_strsplit(yaml, "\n", -1);
    fprintf(cli->out, "%s:\n", title);
    for (guint i = 0; lines[i] != NULL; i++) {
        if (lines[i][0] != '\0') {
            fprintf(cli->out, "  %s\n", lines[i]);
        }
    }
}

static void print_conditions(LhCli *cli, const cJSON *conditions)
{
    static const char *const titles[] = {"  CONDITION", "STATUS", "FOR", "REASON", "MESSAGE", NULL};
    static const LhColumn since = {"FOR", LH_COLUMN_AGE, "since", FALSE};
    if (conditions == NULL || conditions->child == NULL) {
        return;
    }
    g_autoptr(LhTable) table = lh_table_new(titles);
    const cJSON *condition;
    cJSON_ArrayForEach(condition, conditions) {
        char **cells = g_new0(char *, 6);
        cells[0] = g_strdup_printf("  %s", lh_json_get_string(condition, "type", "-"));
        cells[1] = g_strdup(lh_json_get_string(condition, "status", "-"));
        cells[2] = lh_column_text(&since, condition, cli->now_ms);
        cells[3] = g_strdup(lh_json_get_string(condition, "reason", "-"));
        cells[4] = g_strdup(lh_json_get_string(condition, "message", ""));
        lh_table_add(table, cells);
    }
    fputs("Conditions:\n", cli->out);
    lh_table_print(table, cli->out);
}

static void print_object(LhCli *cli, const LhKindView *view, cJSON *object)
{
    cJSON *metadata = cJSON_DetachItemFromObjectCaseSensitive(object, "metadata");
    cJSON *status = cJSON_DetachItemFromObjectCaseSensitive(object, "status");
    cJSON *conditions = cJSON_DetachItemFromObjectCaseSensitive(status != NULL ? status : object,
                                                                "conditions");
    const cJSON *spec = cJSON_GetObjectItemCaseSensitive(object, "spec");
    g_autofree char *head = g_strdup_printf(
        "Name:      %s\nKind:      %s\nRevision:  %" G_GINT64_FORMAT "\n",
        lh_json_get_string(metadata, "name", "-"), view->kind,
        lh_json_get_int(metadata, "revision", 0));
    lh_output_text(cli->out, head);
    print_indented(cli, "Labels", cJSON_GetObjectItemCaseSensitive(metadata, "labels"));
    if (spec != NULL) {
        print_indented(cli, "Spec", spec);
    } else {
        cJSON_DeleteItemFromObjectCaseSensitive(object, "kind");
        print_indented(cli, "Fields", object);
    }
    print_indented(cli, "Status", status);
    print_conditions(cli, conditions);
    cJSON_Delete(metadata);
    cJSON_Delete(status);
    cJSON_Delete(conditions);
}

int lh_cmd_describe(LhCli *cli, char **args, GError **error)
{
    const LhKindView *view = lh_kind_view_or(args[0], error);
    if (view == NULL) {
        return LH_EXIT_USAGE;
    }
    g_autofree char *path = lh_client_path(view->plural, args[1]);
    g_autoptr(cJSON) object = lh_client_get(cli->client, path, error);
    if (object == NULL) {
        return LH_EXIT_FAILED;
    }
    if (cli->format != LH_OUTPUT_TABLE && cli->format != LH_OUTPUT_WIDE) {
        g_autoptr(cJSON) list = cJSON_CreateObject();
        cJSON_AddItemToArray(cJSON_AddArrayToObject(list, "items"), g_steal_pointer(&object));
        lh_output_objects(cli, view, list, TRUE);
        return LH_EXIT_DONE;
    }
    g_autofree char *subject = g_strdup_printf("%s/%s", view->plural, args[1]);
    g_autoptr(cJSON) events = lh_events_list(cli, subject, error);
    if (events == NULL) {
        return LH_EXIT_FAILED;
    }
    print_object(cli, view, object);
    if (cJSON_GetObjectItemCaseSensitive(events, "items")->child != NULL) {
        fputs("Events:\n", cli->out);
        lh_output_objects(cli, lh_kind_view("events"), events, FALSE);
    }
    return LH_EXIT_DONE;
}
