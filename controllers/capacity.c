/*
 * Sums over hosts and over what waits. What is missing is counted freshest first against the free room of
 * all nodes together, regular and restored apart; room that is scattered in pieces too small counts as
 * free here, and is reported by the placement of the single item. Pure.
 */
#include "controllers/capacity.h"

#include <string.h>

typedef struct {
    LhSetCapacity row;                   /* first: the array that is returned holds these */
    gint64 free_bytes[2], free_items[2]; /* regular, restored */
} Row;

gint64 lh_capacity_add(gint64 a, gint64 b)
{
    return b > G_MAXINT64 - a ? G_MAXINT64 : a + b;
}

gboolean lh_capacity_node(const LhFleet *fleet, const LhFleetHost *host, const LhSettings *settings,
                          LhPlaceNode *out)
{
    const LhNode *node = lh_fleet_host_takes(host, NULL);
    const LhFleetNode *record;

    (void)fleet;
    if (node == NULL)
        return FALSE;
    record = lh_fleet_host_newest(host);
    *out = (LhPlaceNode){
        .id = record->id,
        .host = host->name,
        .set = node->set == NULL ? "default" : node->set,
        .zone = node->zone,
        .capacity_bytes = node->capacity_bytes,
        .capacity_items = node->capacity_items,
        .used_bytes = host->used_bytes,
        .used_items = host->used_items,
        .restored_bytes = host->restored_bytes,
        .restored_items = host->restored_items,
        .load_slots = settings->max_concurrent_loads - record->loading,
    };
    return TRUE;
}

LhPlacement *lh_capacity_placement(const LhFleet *fleet)
{
    const LhSettings *settings = lh_fleet_settings(fleet, "cache-assigner");
    LhPlacement *placement = lh_placement_new(
        settings->strategy == LH_STRATEGY_PACK ? LH_PLACE_PACK : LH_PLACE_SPREAD,
        settings->restore_reserve_percent);
    GHashTableIter iter;
    gpointer host;
    LhPlaceNode node;

    /* In any order: between nodes that are equal in all else their ids decide. */
    g_hash_table_iter_init(&iter, fleet->hosts);
    while (g_hash_table_iter_next(&iter, NULL, &host))
        if (lh_capacity_node(fleet, host, settings, &node))
            lh_placement_add(placement, &node);
    return placement;
}

static Row *row_of(GHashTable *rows, const char *set)
{
    Row *row = g_hash_table_lookup(rows, set);

    if (row == NULL) {
        row = g_new0(Row, 1);
        row->row.set = set;
        g_hash_table_insert(rows, (gpointer)set, row);
    }
    return row;
}

static void add_hosts(const LhFleet *fleet, GHashTable *rows)
{
    const LhSettings *settings = lh_fleet_settings(fleet, "cache-assigner");
    GHashTableIter iter;
    gpointer host;
    LhPlaceNode node;

    g_hash_table_iter_init(&iter, fleet->hosts);
    while (g_hash_table_iter_next(&iter, NULL, &host)) {
        Row *row;
        if (!lh_capacity_node(fleet, host, settings, &node))
            continue;
        row = row_of(rows, node.set);
        row->row.nodes++;
        row->row.capacity_bytes = lh_capacity_add(row->row.capacity_bytes, node.capacity_bytes);
        row->row.used_bytes = lh_capacity_add(row->row.used_bytes,
                                              node.used_bytes + node.restored_bytes);
        row->row.wanted_bytes = row->row.used_bytes;
        for (int restored = 0; restored < 2; restored++) {
            gint64 reserve = settings->restore_reserve_percent;
            row->free_bytes[restored] = lh_capacity_add(
                row->free_bytes[restored], lh_place_free_bytes(&node, reserve, restored));
            row->free_items[restored] = lh_capacity_add(
                row->free_items[restored], lh_place_free_items(&node, reserve, restored));
        }
    }
}

static void add_waiting(const LhFleet *fleet, GHashTable *rows, gint64 now_ms)
{
    for (GTreeNode *n = g_tree_node_first(fleet->waiting); n != NULL; n = g_tree_node_next(n)) {
        const LhFleetReplica *replica = lh_tree_record(n);
        int restored = ((const LhReplica *)replica->object)->restored ? 1 : 0;
        gint64 bytes = lh_fleet_replica_bytes(replica);
        Row *row;
        if (replica->fate.due_ms <= now_ms)
            continue;
        row = row_of(rows, replica->set);
        row->row.waiting_items++;
        row->row.waiting_bytes = lh_capacity_add(row->row.waiting_bytes, bytes);
        row->row.wanted_bytes = lh_capacity_add(row->row.wanted_bytes, bytes);
        if (row->free_items[restored] < 1 || row->free_bytes[restored] < bytes) {
            row->row.missing_items++;
            row->row.missing_bytes = lh_capacity_add(row->row.missing_bytes, bytes);
        } else {
            row->free_items[restored]--;
            row->free_bytes[restored] -= bytes;
        }
    }
}

static gint by_set(gconstpointer a, gconstpointer b)
{
    return strcmp(((const LhSetCapacity *)a)->set, ((const LhSetCapacity *)b)->set);
}

GArray *lh_capacity_rows(const LhFleet *fleet, gint64 now_ms)
{
    g_autoptr(GHashTable) rows = g_hash_table_new_full(g_str_hash, g_str_equal, NULL, g_free);
    GArray *result = g_array_new(FALSE, FALSE, sizeof(LhSetCapacity));
    GHashTableIter iter;
    gpointer row;

    add_hosts(fleet, rows);
    add_waiting(fleet, rows, now_ms);
    g_hash_table_iter_init(&iter, rows);
    while (g_hash_table_iter_next(&iter, NULL, &row))
        g_array_append_vals(result, &((Row *)row)->row, 1);
    g_array_sort(result, by_set);
    return result;
}
