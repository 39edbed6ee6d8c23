/* What a node says of itself when it registers. */
#include "agent/node_record.h"

#include "etcd/lease.h"

#include <string.h>

/* The first snapshots of the work's list, as many as a Node may name. */
static char **warm_list(LhAgentWork *work)
{
    char **all = work->v->warm(work);
    if (all == NULL)
        return g_new0(char *, 1);
    gsize bytes = 2;
    gsize n = 0;
    for (; all[n] != NULL && n < LH_WARM_MAX; n++) {
        bytes += strlen(all[n]) + 3; /* quotes and comma */
        if (bytes > LH_WARM_MAX_BYTES)
            break;
    }
    for (gsize i = n; all[i] != NULL; i++)
        g_clear_pointer(&all[i], g_free);
    return all;
}

char *lh_node_record(const LhAgentOptions *options, LhAgentWork *work, gint64 started_at,
                     gint64 lease, gint64 lease_ttl_s, char ***warm)
{
    g_autofree char *lease_hex = lh_lease_hex(lease);
    *warm = warm_list(work);
    const LhNode node = {
        .node_name = options->name,
        .host = options->host,
        .url = options->url,
        .set = options->set,
        .zone = options->zone,
        .capacity_bytes = options->capacity_bytes,
        .capacity_items = options->capacity_items,
        .labels = options->labels,
        .state = LH_NODE_ONLINE,
        .started_at = started_at,
        .version = options->version,
        .lease = lease_hex,
        .lease_ttl_ms = lease_ttl_s * 1000,
        .warm = (const char *const *)*warm,
    };
    return lh_object_print(LH_KIND_NODE, &node);
}

gboolean lh_node_record_stale(const char *const *said, LhAgentWork *work)
{
    g_auto(GStrv) now = work->v->warm(work);
    g_autoptr(GHashTable) present = g_hash_table_new(g_str_hash, g_str_equal);
    for (gsize i = 0; now != NULL && now[i] != NULL; i++)
        g_hash_table_add(present, now[i]);
    for (gsize i = 0; said != NULL && said[i] != NULL; i++) {
        if (!g_hash_table_contains(present, said[i]))
            return TRUE;
    }
    return FALSE;
}
