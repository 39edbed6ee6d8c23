/*
 * top: pools and sets with their capacity and use, and what waits for room.
 */
#include "base/units.h"
#include "cli/internal.h"
#include "cli/output.h"

static char *size_of(const cJSON *pool, const char *member)
{
    gint64 bytes;
    return lh_json_int(cJSON_GetObjectItemCaseSensitive(pool, member), &bytes)
               ? lh_size_format(bytes)
               : g_strdup("-");
}

static char *number_of(const cJSON *pool, const char *member)
{
    gint64 number;
    return lh_json_int(cJSON_GetObjectItemCaseSensitive(pool, member), &number)
               ? g_strdup_printf("%" G_GINT64_FORMAT, number)
               : g_strdup("-");
}

/* Of a cache its bytes, of other pools their items; "-" where there is no limit. */
static char *percent_of(const cJSON *pool)
{
    gboolean bytes = cJSON_HasObjectItem(pool, "capacityBytes");
    gint64 capacity = lh_json_get_int(pool, bytes ? "capacityBytes" : "capacityItems", 0);
    double used = (double)lh_json_get_int(pool, bytes ? "usedBytes" : "items", 0);
    return capacity <= 0 ? g_strdup("-") : g_strdup_printf("%.0f%%", 100 * used / (double)capacity);
}

static void add_pool(LhTable *table, const cJSON *pool)
{
    char **cells = g_new0(char *, 10);
    cells[0] = g_strdup(lh_json_get_string(pool, "pool", "-"));
    cells[1] = g_strdup(lh_json_get_string(pool, "set", "-"));
    cells[2] = number_of(pool, "nodes");
    cells[3] = number_of(pool, "items");
    cells[4] = size_of(pool, "capacityBytes");
    cells[5] = size_of(pool, "usedBytes");
    cells[6] = percent_of(pool);
    cells[7] = number_of(pool, "waitingItems");
    cells[8] = size_of(pool, "missingBytes");
    lh_table_add(table, cells);
}

int lh_cmd_top(LhCli *cli, char **args, GError **error)
{
    static const char *const titles[] = {"POOL", "SET", "NODES",   "ITEMS",   "CAPACITY",
                                         "USED", "USE", "WAITING", "MISSING", NULL};
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
        fputs("no pools with nodes or items\n", cli->err);
        return LH_EXIT_DONE;
    }
    g_autoptr(LhTable) table = lh_table_new(titles);
    cJSON_ArrayForEach(pool, pools) {
        add_pool(table, pool);
    }
    lh_table_print(table, cli->out);
    return LH_EXIT_DONE;
}
