/*
 * leaders: for each controller, who leads and who stands by; leaders move CONTROLLER INSTANCE: hands it
 * over without a restart.
 *
 * The candidate with the lowest create revision leads (CONTRACT.md section 1). A server that does
 * not give create revisions says in /v1/leaders who leads ("leads").
 */
#include "base/errors.h"
#include "cli/action.h"
#include "cli/internal.h"
#include "cli/output.h"

#include <string.h>

typedef struct {
    char *controller;
    const cJSON *leader;
    gint64 rank;
    guint standbys;
} Row;

/* The smaller, the nearer to leading. */
static gint64 rank_of(const cJSON *candidate)
{
    const cJSON *metadata = lh_value_at(candidate, "metadata");
    if (lh_json_get_bool(candidate, "leads", FALSE)) {
        return 0;
    }
    gint64 created = lh_json_get_int(metadata, "createRevision", -1);
    return created >= 0 ? created : lh_json_get_int(metadata, "revision", G_MAXINT64);
}

static int compare(gconstpointer a, gconstpointer b)
{
    return strcmp(((const Row *)a)->controller, ((const Row *)b)->controller);
}

static void row_clear(gpointer data)
{
    g_free(((Row *)data)->controller);
}

static GArray *rows_of(const cJSON *candidates)
{
    GArray *rows = g_array_new(FALSE, TRUE, sizeof(Row));
    g_array_set_clear_func(rows, row_clear);
    const cJSON *candidate;
    cJSON_ArrayForEach(candidate, candidates) {
        const char *name = lh_object_name(candidate);
        if (lh_value_at(candidate, "error") != NULL) {
            continue; /* no candidate wrote it */
        }
        g_autofree char *controller = g_strndup(name, strcspn(name, "/"));
        Row *row = NULL;
        for (guint i = 0; i < rows->len && row == NULL; i++) {
            Row *other = &g_array_index(rows, Row, i);
            row = strcmp(other->controller, controller) == 0 ? other : NULL;
        }
        if (row == NULL) {
            Row fresh = {g_steal_pointer(&controller), candidate, rank_of(candidate), 0};
            g_array_append_val(rows, fresh);
            continue;
        }
        row->standbys++;
        if (rank_of(candidate) < row->rank) {
            row->leader = candidate;
            row->rank = rank_of(candidate);
        }
    }
    g_array_sort(rows, compare);
    return rows;
}

static int move(LhCli *cli, char **args, GError **error)
{
    g_autoptr(GString) body = g_string_new("{\"instance\":");
    if (args[0] == NULL || args[1] == NULL) {
        g_set_error(error, LH_ERROR, LH_ERR_INVALID,
                    "leaders: move: needs a CONTROLLER and an INSTANCE");
        return LH_EXIT_USAGE;
    }
    lh_json_append_string(body, args[1]);
    g_string_append_c(body, '}');
    return lh_action(cli, "leaders", args[0], FALSE, "move", body->str, "moved", error);
}

int lh_cmd_leaders(LhCli *cli, char **args, GError **error)
{
    if (args[0] != NULL && strcmp(args[0], "move") == 0) {
        return move(cli, args + 1, error);
    }
    if (args[0] != NULL) {
        g_set_error(error, LH_ERROR, LH_ERR_INVALID, "leaders: \"%.64s\": the only verb is move",
                    args[0]);
        return LH_EXIT_USAGE;
    }
    static const char *const titles[] = {"CONTROLLER", "LEADER", "HOST", "UP", "STANDBYS", NULL};
    static const LhColumn up = {"UP", LH_COLUMN_AGE, "startedAt", FALSE};
    g_autoptr(cJSON) list = lh_client_list(cli->client, "leaders", NULL, error);
    if (list == NULL) {
        return LH_EXIT_FAILED;
    }
    const cJSON *items = cJSON_GetObjectItemCaseSensitive(list, "items");
    if (cli->format != LH_OUTPUT_TABLE || items->child == NULL) {
        lh_output_objects(cli, lh_kind_view("leaders"), list, FALSE);
        return LH_EXIT_DONE;
    }
    g_autoptr(GArray) rows = rows_of(items);
    g_autoptr(LhTable) table = lh_table_new(titles);
    for (guint i = 0; i < rows->len; i++) {
        const Row *row = &g_array_index(rows, Row, i);
        char **cells = g_new0(char *, 6);
        cells[0] = g_strdup(row->controller);
        cells[1] = g_strdup(lh_json_get_string(row->leader, "instance", "-"));
        cells[2] = g_strdup(lh_json_get_string(row->leader, "host", "-"));
        cells[3] = lh_column_text(&up, row->leader, cli->now_ms);
        cells[4] = g_strdup_printf("%u", row->standbys);
        lh_table_add(table, cells);
    }
    lh_table_print(table, cli->out);
    return LH_EXIT_DONE;
}
