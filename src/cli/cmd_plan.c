/*
 * plan [CONTROLLER] [--from FILE] [--record FILE]: what would be written now, with rule and
 * reason.
 *
 * --from does not ask a server: it has recorded inputs planned by a function that this layer is
 * given.
 */
#include "base/errors.h"
#include "base/units.h"
#include "cli/internal.h"
#include "cli/output.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static cJSON *plan_offline(LhCli *cli, const char *controller, GError **error)
{
    char *text = NULL;
    size_t len = 0;
    if (cli->plan_from_file == NULL) {
        g_set_error(error, LH_ERROR, LH_ERR_INTERNAL, "plan: --from: not part of this program");
        return NULL;
    }
    FILE *out = open_memstream(&text, &len);
    int code = cli->plan_from_file(cli->o.from, controller, out, error);
    fclose(out);
    cJSON *plan = code == 0 ? cJSON_ParseWithLength(text, len) : NULL;
    free(text);
    if (code == 0 && plan == NULL) {
        g_set_error(error, LH_ERROR, LH_ERR_INTERNAL, "plan: --from %s: no plan came out",
                    cli->o.from);
    }
    return plan;
}

static int record(LhCli *cli, GError **error)
{
    FILE *out = fopen(cli->o.record, "we");
    if (out == NULL) {
        g_set_error(error, LH_ERROR, LH_ERR_IO, "plan: --record %s: %s", cli->o.record,
                    g_strerror(errno));
        return LH_EXIT_USAGE;
    }
    gboolean ok = lh_client_download(cli->client, "/v1/plan/input", out, error);
    if (fclose(out) != 0 && ok) {
        ok = FALSE;
        g_set_error(error, LH_ERROR, LH_ERR_IO, "plan: --record %s: %s", cli->o.record,
                    g_strerror(errno));
    }
    if (ok) {
        lh_result_add(cli, cli->o.record, "recorded", 0);
    }
    return ok ? LH_EXIT_DONE : LH_EXIT_FAILED;
}

static void print_ops(LhCli *cli, const cJSON *ops)
{
    static const char *const titles[] = {"  OP", "OBJECT", "RULE", "REASON", NULL};
    if (ops == NULL || ops->child == NULL) {
        return;
    }
    g_autoptr(LhTable) table = lh_table_new(titles);
    const cJSON *op;
    cJSON_ArrayForEach(op, ops) {
        const LhKindView *view = lh_kind_view(lh_json_get_string(op, "kind", ""));
        const char *name = lh_json_get_string(op, "name", NULL);
        char **cells = g_new0(char *, 5);
        cells[0] = g_strdup_printf("  %s", lh_json_get_string(op, "op", "-"));
        cells[1] = view != NULL && name != NULL ? g_strdup_printf("%s/%s", view->plural, name)
                                                : g_strdup(lh_json_get_string(op, "key", "-"));
        cells[2] = g_strdup(lh_json_get_string(op, "rule", "-"));
        cells[3] = g_strdup(lh_json_get_string(op, "reason", ""));
        lh_table_add(table, cells);
    }
    lh_table_print(table, cli->out);
}

static void print_notes(LhCli *cli, const cJSON *notes)
{
    static const char *const titles[] = {"  NOTHING FOR", "RULE", "REASON", NULL};
    if (notes == NULL || notes->child == NULL) {
        return;
    }
    g_autoptr(LhTable) table = lh_table_new(titles);
    const cJSON *note;
    cJSON_ArrayForEach(note, notes) {
        char **cells = g_new0(char *, 4);
        cells[0] = g_strdup_printf("  %s", lh_json_get_string(note, "object", "-"));
        cells[1] = g_strdup(lh_json_get_string(note, "rule", "-"));
        cells[2] = g_strdup(lh_json_get_string(note, "reason", ""));
        lh_table_add(table, cells);
    }
    lh_table_print(table, cli->out);
}

/* How many ops it has. */
static int print_controller(LhCli *cli, const cJSON *plan)
{
    static const LhColumn next = {"NEXT", LH_COLUMN_UNTIL, "nextAt", FALSE};
    const cJSON *ops = cJSON_GetObjectItemCaseSensitive(plan, "ops");
    int n = cJSON_GetArraySize(ops);
    g_autofree char *when = lh_column_text(&next, plan, cli->now_ms);
    GString *line = g_string_new(lh_json_get_string(plan, "controller", "?"));
    g_string_append_printf(line, ": %d op%s", n, n == 1 ? "" : "s");
    if (cli->o.from == NULL && !lh_json_get_bool(plan, "leader", TRUE)) {
        g_string_append(line, ", led by another instance");
    }
    if (lh_json_get_bool(plan, "paused", FALSE)) {
        g_string_append(line, ", paused");
    }
    if (lh_json_get_bool(plan, "braked", FALSE)) {
        g_string_append_printf(line, ", braked (leasehold confirm %s --plan %s)",
                               lh_json_get_string(plan, "controller", "?"),
                               lh_json_get_string(plan, "planHash", "?"));
    }
    if (strcmp(when, "-") != 0) {
        g_string_append_printf(line, ", next %s", when);
    }
    if (n > 0) {
        g_string_append_printf(line, ", hash %s", lh_json_get_string(plan, "hash", "-"));
    }
    g_string_append_c(line, '\n');
    lh_output_text(cli->out, line->str);
    g_string_free(line, TRUE);
    print_ops(cli, ops);
    print_notes(cli, cJSON_GetObjectItemCaseSensitive(plan, "notes"));
    return n;
}

int lh_cmd_plan(LhCli *cli, char **args, GError **error)
{
    if (cli->o.record != NULL) {
        if (cli->o.from != NULL || args[0] != NULL) {
            g_set_error(error, LH_ERROR, LH_ERR_INVALID,
                        "plan: --record takes the inputs of all controllers, and no --from");
            return LH_EXIT_USAGE;
        }
        return record(cli, error);
    }
    g_autofree char *path = args[0] != NULL ? lh_client_path("plan", args[0])
                                            : g_strdup("/v1/plan");
    g_autoptr(cJSON) plan = cli->o.from != NULL ? plan_offline(cli, args[0], error)
                                                : lh_client_get(cli->client, path, error);
    if (plan == NULL) {
        return LH_EXIT_FAILED;
    }
    if (cli->format != LH_OUTPUT_TABLE && cli->format != LH_OUTPUT_WIDE) {
        lh_output_value(cli, plan);
        return LH_EXIT_DONE;
    }
    const char *hash = lh_json_get_string(plan, "hash", NULL); /* recorded inputs have none */
    g_autofree char *head = g_strdup_printf(
        "revision %" G_GINT64_FORMAT "%s%s\n", lh_json_get_int(plan, "revision", 0),
        hash != NULL ? ", hash " : "", hash != NULL ? hash : "");
    lh_output_text(cli->out, head);
    const cJSON *controller;
    int ops = 0;
    cJSON_ArrayForEach(controller, cJSON_GetObjectItemCaseSensitive(plan, "controllers")) {
        ops += print_controller(cli, controller);
    }
    if (ops == 0) {
        lh_output_text(cli->out, "nothing to do\n");
    }
    return LH_EXIT_DONE;
}
