/*
 * cordon and uncordon POOL/NODE-NAME: whether anything more is placed on a node.
 */
#include "cli/action.h"

#include <string.h>

int lh_cmd_cordon(LhCli *cli, char **args, GError **error)
{
    g_autofree char *done = g_strconcat(cli->command->name, "ed", NULL);
    return lh_action(cli, "nodepolicies", args[0], TRUE, cli->command->name, "{}", done, error);
}
