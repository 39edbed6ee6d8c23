/*
 * version: this program's, and the instances' of the server if it can be reached.
 */
#include "cli/internal.h"
#include "cli/output.h"

#include <string.h>

int lh_cmd_version(LhCli *cli, char **args, GError **error)
{
    /* An absent server is no error here: scripts ask for the version of the program. */
    g_autoptr(cJSON) cluster = lh_client_get(cli->client, "/v1/cluster", NULL);
    g_autoptr(cJSON) version = cJSON_CreateObject();
    cJSON_AddStringToObject(version, "client", LEASEHOLD_VERSION);
    cJSON *servers = cJSON_AddArrayToObject(version, "servers"), *entry;
    const cJSON *instance;
    cJSON_ArrayForEach(instance, cJSON_GetObjectItemCaseSensitive(cluster, "instances")) {
        entry = cJSON_CreateObject();
        cJSON_AddStringToObject(entry, "instance", lh_json_get_string(instance, "instance", "-"));
        cJSON_AddStringToObject(entry, "version", lh_json_get_string(instance, "version", "-"));
        cJSON_AddItemToArray(servers, entry);
    }
    if (cli->format != LH_OUTPUT_TABLE && cli->format != LH_OUTPUT_WIDE) {
        lh_output_value(cli, version);
        return LH_EXIT_DONE;
    }
    fprintf(cli->out, "leasehold %s\n", LEASEHOLD_VERSION);
    cJSON_ArrayForEach(entry, servers) {
        g_autofree char *line = g_strdup_printf("server %s: %s\n",
                                                lh_json_get_string(entry, "instance", "-"),
                                                lh_json_get_string(entry, "version", "-"));
        lh_output_text(cli->out, line);
    }
    return LH_EXIT_DONE;
}
