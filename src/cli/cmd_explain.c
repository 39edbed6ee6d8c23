/*
 * explain POOL/ITEM: why an item is where it is, or why it is nowhere. The server knows; this
 * prints.
 */
#include "base/errors.h"
#include "cli/internal.h"
#include "cli/output.h"

#include <string.h>

int lh_cmd_explain(LhCli *cli, char **args, GError **error)
{
    const char *slash = strchr(args[0], '/');
    if (slash == NULL || slash == args[0] || slash[1] == '\0') {
        g_set_error(error, LH_ERROR, LH_ERR_INVALID, "explain: %s: must be POOL/ITEM", args[0]);
        return LH_EXIT_USAGE;
    }
    g_autofree char *path = lh_client_path("explain", args[0]);
    g_autoptr(cJSON) reply = lh_client_get(cli->client, path, error);
    if (reply == NULL) {
        return LH_EXIT_FAILED;
    }
    if (cli->format != LH_OUTPUT_TABLE && cli->format != LH_OUTPUT_WIDE) {
        lh_output_value(cli, reply);
        return LH_EXIT_DONE;
    }
    const cJSON *lines = cJSON_GetObjectItemCaseSensitive(reply, "lines"), *line;
    if (lines == NULL || lines->child == NULL) {
        g_autofree char *text = g_strdup_printf("%s: %s: %s\n", args[0],
                                                lh_json_get_string(reply, "state", "?"),
                                                lh_json_get_string(reply, "reason", ""));
        lh_output_text(cli->out, text);
    }
    cJSON_ArrayForEach(line, lines) {
        lh_output_text(cli->out, cJSON_IsString(line) ? line->valuestring : "");
        fputc('\n', cli->out);
    }
    return LH_EXIT_DONE;
}
