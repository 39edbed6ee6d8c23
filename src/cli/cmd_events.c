/*
 * events [-w] [--for KIND/NAME]: what controllers did and why, oldest first.
 *
 * Events of one object are picked out here; the server selects by field only.
 */
#include "base/errors.h"
#include "base/units.h"
#include "cli/events.h"
#include "cli/internal.h"
#include "cli/output.h"

#include <stdlib.h>
#include <string.h>

/* "Service/a" or "services/a" → "services/a"; NULL and an error. */
static char *object_of(const char *text, GError **error)
{
    const char *slash = strchr(text, '/');
    if (slash == NULL || slash[1] == '\0') {
        g_set_error(error, LH_ERROR, LH_ERR_INVALID, "events: --for %s: must be KIND/NAME", text);
        return NULL;
    }
    g_autofree char *kind = g_strndup(text, (gsize)(slash - text));
    const LhKindView *view = lh_kind_view_or(kind, error);
    return view != NULL ? g_strdup_printf("%s/%s", view->plural, slash + 1) : NULL;
}

static gint64 time_of(const cJSON *event)
{
    gint64 ms = 0;
    const cJSON *value = cJSON_GetObjectItemCaseSensitive(event, "time");
    if (!cJSON_IsString(value) || !lh_time_parse(value->valuestring, &ms, NULL)) {
        lh_json_int(value, &ms);
    }
    return ms;
}

static int compare(gconstpointer a, gconstpointer b)
{
    const cJSON *x = *(cJSON *const *)a, *y = *(cJSON *const *)b;
    gint64 s = time_of(x), t = time_of(y);
    return s != t ? (s > t) - (s < t) : strcmp(lh_object_name(x), lh_object_name(y));
}

cJSON *lh_events_list(LhCli *cli, const char *object, GError **error)
{
    cJSON *list = lh_client_list(cli->client, "events", NULL, error);
    if (list == NULL) {
        return NULL;
    }
    g_autoptr(GPtrArray) kept = g_ptr_array_new();
    cJSON *items = cJSON_GetObjectItemCaseSensitive(list, "items"), *item;
    while ((item = cJSON_DetachItemFromArray(items, 0)) != NULL) {
        if (object == NULL || strcmp(lh_json_get_string(item, "object", ""), object) == 0) {
            g_ptr_array_add(kept, item);
        } else {
            cJSON_Delete(item);
        }
    }
    g_ptr_array_sort(kept, compare);
    for (guint i = 0; i < kept->len; i++) {
        cJSON_AddItemToArray(items, kept->pdata[i]);
    }
    return list;
}

typedef struct {
    LhCli *cli;
    const LhKindView *view;
    const char *object;
    LhTable *table;
} Watcher;

static gboolean on_event(const char *event, gint64 revision, const cJSON *object, gpointer data)
{
    Watcher *watcher = data;
    LhCli *cli = watcher->cli;
    if (strcmp(event, "PUT") != 0 ||
        (watcher->object != NULL &&
         strcmp(lh_json_get_string(object, "object", ""), watcher->object) != 0)) {
        return FALSE;
    }
    if (watcher->table != NULL) {
        cli->now_ms = lh_wall_ms(cli->env);
        lh_kind_table_add(cli, watcher->table, watcher->view, object, NULL);
        lh_table_print(watcher->table, cli->out);
    } else if (cli->format == LH_OUTPUT_JSON) {
        g_autofree char *text = lh_json_print(object);
        fprintf(cli->out, "%s\n", text);
    } else {
        if (cli->format == LH_OUTPUT_YAML) {
            fputs("---\n", cli->out);
        }
        lh_output_value(cli, object);
    }
    fflush(cli->out);
    return ferror(cli->out) != 0;
}

/* The same columns, but with the time of each: an age would be that of the moment when it was written. */
static const LhKindView *with_times(const LhKindView *view)
{
    static LhColumn columns[16];
    static LhKindView timed;
    guint n = 0;
    for (; view->columns[n].title != NULL; n++) {
        g_assert(n + 1 < G_N_ELEMENTS(columns));
        columns[n] = view->columns[n];
        if (columns[n].type == LH_COLUMN_AGE) {
            columns[n] = (LhColumn){"TIME", LH_COLUMN_TIME, columns[n].path, FALSE};
        }
    }
    timed = *view;
    timed.columns = columns;
    return &timed;
}

static int watch(LhCli *cli, const LhKindView *listed, const char *object, GError **error)
{
    gboolean grid = cli->format == LH_OUTPUT_TABLE || cli->format == LH_OUTPUT_WIDE;
    const LhKindView *view = with_times(listed);
    g_autoptr(LhTable) table = grid ? lh_kind_table(cli, view, LH_ROWS_WATCHED) : NULL;
    Watcher watcher = {cli, view, object, table};
    gint64 shown = -1; /* revision up to which events were shown */
    for (;;) {
        g_autoptr(cJSON) list = lh_events_list(cli, object, error);
        if (list == NULL) {
            return LH_EXIT_FAILED;
        }
        const cJSON *item;
        cJSON_ArrayForEach(item, cJSON_GetObjectItemCaseSensitive(list, "items")) {
            gint64 revision = lh_json_get_int(lh_value_at(item, "metadata"), "revision", 0);
            if (revision > shown) {
                on_event("PUT", revision, item, &watcher);
            }
        }
        LhWatch one = {.plural = "events",
                       .revision = lh_json_get_int(list, "revision", 0),
                       .func = on_event,
                       .data = &watcher};
        LhWatchEnd end = lh_client_watch(cli->client, &one, 1, -1, error);
        shown = one.revision;
        if (end != LH_WATCH_EXPIRED) {
            return end == LH_WATCH_ERROR ? LH_EXIT_FAILED : LH_EXIT_DONE;
        }
    }
}

int lh_cmd_events(LhCli *cli, char **args, GError **error)
{
    const LhKindView *view = lh_kind_view("events");
    g_autofree char *object = NULL;
    if (cli->o.condition != NULL) {
        object = object_of(cli->o.condition, error);
        if (object == NULL) {
            return LH_EXIT_USAGE;
        }
    }
    if (cli->o.watch) {
        return watch(cli, view, object, error);
    }
    g_autoptr(cJSON) list = lh_events_list(cli, object, error);
    if (list == NULL) {
        return LH_EXIT_FAILED;
    }
    lh_output_objects(cli, view, list, FALSE);
    return LH_EXIT_DONE;
}
