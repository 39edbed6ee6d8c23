/*
 * top: pools and sets with their capacity and use, and what waits for room.
 */
#include "base/units.h"
#include "cli/internal.h"
#include "cli/output.h"

static char *size_of(const cJSON *pool, const char *member)
{
    return lh_size_format(lh_json_get_int(pool, member, 0));
}

static char *percent_of(const cJSON *pool)
{
    gint64 capacity = lh_json_get_int(pool, "capacityBytes", 0);
    double used = (double)lh_json_get_int(pool, "usedBytes", 0);
    return capacity <= 0 ? g_strdup("-") : g_strdup_printf("%.0f%%", 100 * used / (double)capacity);
}

static void add_pool(LhTable *table, const cJSON *pool)
{
    char **cells = g_new0(char *, 9);
    cells[0] = g_strdup(lh_json_get_string(pool, "pool", "-"));
    cells[1] = g_strdup(lh_json_get_string(pool, "set", "-"));
    cells[2] = g_strdup_printf("%" G_GINT64_FORMAT, lh_json_get_int(pool, "nodes", 0));
    cells[3] = size_of(pool, "capacityBytes");
    cells[4] = size_of(pool, "usedBytes");
    cells[5] = percent_of(pool);
    cells[6] = g_strdup_printf("%" G_GINT64_FORMAT, lh_json_get_int(pool, "waitingItems", 0));
    cells[7] = size_of(pool, "missingBytes");
    lh_table_add(table, cells);
}

int lh_cmd_top(LhCli *cli, char **args, GError **error)
{
    static const char *const titles[] = {"POOL", "SET",     "NODES",   "CAPACITY", "USED",
                                         "USE",  "WAITING", "MISSING", NULL};
    g_autoptr(cJSON) cluster = lh_client_get(cli->client, "/v1/cluster", error);
    const cJSON *pools = cJSON_GetObjectItemCaseSensitive(cluster, "pools"), *pool;
    (void)args;
    if (cluster == NULL) {
        return LH_EXIT_FAILED;
    }
    if (cli->format != LH_OUTPUT_TABLE && cli->format != LH_OUTPUT_WIDE) {
        lh_output_value(cli, pools);
        return LH_EXIT_DONE;
    }
    if (pools == NULL || pools->child == NULL) {
        fputs("no pools with nodes or replicas\n", cli->err);
        return LH_EXIT_DONE;
    }
    g_autoptr(LhTable) table = lh_table_new(titles);
    cJSON_ArrayForEach(pool, pools) {
        add_pool(table, pool);
    }
    lh_table_print(table, cli->out);
    return LH_EXIT_DONE;
}
