/*
 * get KIND [NAME…] [-l] [-w]: objects, once or as they change.
 *
 * A watch begins with what there is. When the server has forgotten the revision it starts over, and
 * says so.
 */
#include "base/errors.h"
#include "cli/internal.h"
#include "cli/output.h"

#include <string.h>

typedef struct {
    LhCli *cli;
    const LhKindView *view;
    char **names; /* only these; empty: all */
    LhTable *table;
    GHashTable *
        rows; /* hash of a name -> hash of its row as it was written last; a collision shows one more */
} Watcher;

/* {"kind":"ServiceList","items":[…]} of the objects named; NULL: one of them could not be had. */
static cJSON *get_named(LhCli *cli, const LhKindView *view, char **names, GError **error)
{
    g_autoptr(cJSON) list = cJSON_CreateObject();
    g_autofree char *kind = g_strconcat(view->kind, "List", NULL);
    cJSON_AddStringToObject(list, "kind", kind);
    cJSON *items = cJSON_AddArrayToObject(list, "items");
    for (guint i = 0; names[i] != NULL; i++) {
        g_autofree char *path = lh_client_path(view->plural, names[i]);
        cJSON *object = lh_client_get(cli->client, path, error);
        if (object == NULL) {
            return NULL;
        }
        cJSON_AddItemToArray(items, object);
    }
    return g_steal_pointer(&list);
}

/* FALSE: its row looks as it did, as what has changed is in no column. */
static gboolean looks_new(const Watcher *watcher, const char *event, const cJSON *object)
{
    gpointer name = GUINT_TO_POINTER(g_str_hash(lh_object_name(object))), before = NULL;
    guint row = lh_kind_row_hash(watcher->cli, watcher->view, object);
    if (strcmp(event, "DELETE") == 0) {
        g_hash_table_remove(watcher->rows, name);
        return TRUE;
    }
    if (strcmp(event, "PUT") == 0 &&
        g_hash_table_lookup_extended(watcher->rows, name, NULL, &before) &&
        GPOINTER_TO_UINT(before) == row) {
        return FALSE;
    }
    g_hash_table_insert(watcher->rows, name, GUINT_TO_POINTER(row));
    return TRUE;
}

static void show_event(const Watcher *watcher, const char *event, gint64 revision,
                       const cJSON *object)
{
    LhCli *cli = watcher->cli;
    g_autofree char *name = g_strdup_printf("%s/%s%s\n", watcher->view->plural,
                                            lh_object_name(object),
                                            strcmp(event, "DELETE") == 0 ? " deleted" : "");
    switch (cli->format) {
    case LH_OUTPUT_TABLE:
    case LH_OUTPUT_WIDE:
        cli->now_ms = lh_wall_ms(cli->env);
        if (looks_new(watcher, event, object)) {
            lh_kind_table_add(cli, watcher->table, watcher->view, object, event);
        }
        break;
    case LH_OUTPUT_NAME:
        lh_output_text(cli->out, name);
        break;
    case LH_OUTPUT_JSONPATH:
        lh_output_value(cli, object);
        fputc('\n', cli->out);
        break;
    case LH_OUTPUT_JSON:
    case LH_OUTPUT_YAML: {
        g_autoptr(cJSON) line = cJSON_CreateObject();
        cJSON_AddStringToObject(line, "event", event);
        cJSON_AddNumberToObject(line, "revision", (double)revision);
        cJSON_AddItemToObject(line, "object", cJSON_Duplicate(object, TRUE));
        g_autofree char *text = cli->format == LH_OUTPUT_JSON ? lh_json_print(line)
                                                              : lh_yaml_print(line);
        fprintf(cli->out, cli->format == LH_OUTPUT_JSON ? "%s\n" : "---\n%s", text);
        break;
    }
    }
}

static void show_done(const Watcher *watcher)
{
    if (watcher->table != NULL) {
        lh_table_print(watcher->table, watcher->cli->out);
    }
    fflush(watcher->cli->out);
}

static gboolean is_wanted(const Watcher *watcher, const cJSON *object)
{
    return watcher->names[0] == NULL ||
           g_strv_contains((const char *const *)watcher->names, lh_object_name(object));
}

static gboolean on_event(const char *event, gint64 revision, const cJSON *object, gpointer data)
{
    Watcher *watcher = data;
    if (is_wanted(watcher, object)) {
        show_event(watcher, event, revision, object);
        show_done(watcher);
    }
    return ferror(watcher->cli->out) != 0;
}

static int watch(Watcher *watcher, GError **error)
{
    LhCli *cli = watcher->cli;
    const LhKindView *view = watcher->view;
    for (;;) {
        g_autoptr(cJSON) list = lh_client_list(cli->client, view->plural, cli->o.selector, error);
        if (list == NULL) {
            return LH_EXIT_FAILED;
        }
        LhWatch one = {.plural = view->plural,
                       .selector = cli->o.selector,
                       .revision = lh_json_get_int(list, "revision", 0),
                       .func = on_event,
                       .data = watcher};
        const cJSON *object;
        cJSON_ArrayForEach(object, cJSON_GetObjectItemCaseSensitive(list, "items")) {
            if (is_wanted(watcher, object)) {
                gint64 revision = lh_json_get_int(lh_value_at(object, "metadata"), "revision", 0);
                show_event(watcher, "LIST", revision, object);
            }
        }
        show_done(watcher);
        if (watcher->table != NULL && !lh_table_started(watcher->table)) {
            fprintf(cli->err, "no %s yet\n", view->plural);
        }
        switch (lh_client_watch(cli->client, &one, 1, -1, error)) {
        case LH_WATCH_EXPIRED:
            fprintf(cli->err,
                    "the server has forgotten revision %" G_GINT64_FORMAT "; listing again\n",
                    one.revision);
            continue;
        case LH_WATCH_ENDED:
        case LH_WATCH_TIMEOUT:
            return LH_EXIT_DONE;
        case LH_WATCH_ERROR:
            return LH_EXIT_FAILED;
        }
    }
}

int lh_cmd_get(LhCli *cli, char **args, GError **error)
{
    const LhKindView *view = lh_kind_view_or(args[0], error);
    char **names = args + 1;
    if (view == NULL) {
        return LH_EXIT_USAGE;
    }
    if (names[0] != NULL && cli->o.selector != NULL) {
        g_set_error(error, LH_ERROR, LH_ERR_INVALID, "get: -l and names exclude each other");
        return LH_EXIT_USAGE;
    }
    if (cli->o.watch) {
        gboolean grid = cli->format == LH_OUTPUT_TABLE || cli->format == LH_OUTPUT_WIDE;
        g_autoptr(LhTable) table = grid ? lh_kind_table(cli, view, LH_ROWS_EVENTS) : NULL;
        g_autoptr(GHashTable) rows = g_hash_table_new(NULL, NULL);
        Watcher watcher = {cli, view, names, table, rows};
        return watch(&watcher, error);
    }
    g_autoptr(cJSON) list = names[0] != NULL
                                ? get_named(cli, view, names, error)
                                : lh_client_list(cli->client, view->plural, cli->o.selector, error);
    if (list == NULL) {
        return LH_EXIT_FAILED;
    }
    lh_output_objects(cli, view, list, names[0] != NULL && names[1] == NULL);
    return LH_EXIT_DONE;
}
