/*
 * Commands that are one POST.
 */
#include "cli/action.h"

#include "base/errors.h"
#include "cli/output.h"

#include <string.h>

int lh_action(LhCli *cli, const char *plural, const char *name, gboolean pair, const char *verb,
              const char *body, const char *done, GError **error)
{
    const char *slash = strchr(name, '/');
    gboolean fits = pair ? slash != NULL && slash != name && slash[1] != '\0' &&
                               strchr(slash + 1, '/') == NULL
                         : slash == NULL && name[0] != '\0';
    if (!fits) {
        g_set_error(error, LH_ERROR, LH_ERR_INVALID, "%s: %s: usage: leasehold %s %s",
                    cli->command->name, name, cli->command->name, cli->command->arguments);
        return LH_EXIT_USAGE;
    }
    g_autofree char *object_path = lh_client_path(plural, name);
    g_autofree char *path = g_strdup_printf("%s:%s", object_path, verb);
    g_autofree char *object = g_strdup_printf("%s/%s", plural, name);
    g_autoptr(cJSON) reply = lh_client_call(cli->client, "POST", path, body, NULL, NULL, error);
    if (reply == NULL) {
        return LH_EXIT_FAILED;
    }
    lh_result_add(cli, object, done, 0);
    return LH_EXIT_DONE;
}
