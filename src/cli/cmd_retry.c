/*
 * retry POOL/ITEM: unparks an item that has failed too often.
 */
#include "cli/action.h"

int lh_cmd_retry(LhCli *cli, char **args, GError **error)
{
    return lh_action(cli, "retries", args[0], TRUE, "retry", "{}", "will be tried again", error);
}
