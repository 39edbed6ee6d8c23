/*
 * confirm CONTROLLER --plan HASH: permits exactly the plan that a controller stopped before.
 */
#include "base/errors.h"
#include "cli/action.h"

int lh_cmd_confirm(LhCli *cli, char **args, GError **error)
{
    if (cli->o.plan == NULL || cli->o.plan[0] == '\0') {
        g_set_error(error, LH_ERROR, LH_ERR_INVALID,
                    "confirm: --plan HASH is missing; \"leasehold get brakes\" shows it");
        return LH_EXIT_USAGE;
    }
    g_autoptr(GString) body = g_string_new("{");
    lh_json_append_key(body, "planHash");
    lh_json_append_string(body, cli->o.plan);
    g_string_append_c(body, '}');
    return lh_action(cli, "controllers", args[0], FALSE, "confirm", body->str, "confirmed", error);
}
