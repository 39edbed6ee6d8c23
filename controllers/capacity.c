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

/* All that is assigned or waits in a set. */
typedef struct {
    gint64 bytes, items;
} Demand;

typedef struct {
    LhPlacement *placement;
    gint64 max_loads;
    GHashTable *demands; /* set with nodes on probation -> Demand */
} Placing;

static void add_nodes(const char *set, const LhPlaceNode *nodes, guint n, gpointer data)
{
    const Placing *placing = data;

    lh_placement_add_all(placing->placement, set, nodes, n, placing->max_loads);
    for (guint i = 0; i < n; i++)
        if (nodes[i].probation) {
            g_hash_table_insert(placing->demands, (gpointer)nodes[i].set, g_new0(Demand, 1));
            return;
        }
}

static void demand(const Placing *placing, const char *set, gint64 bytes, gint64 items)
{
    Demand *sum = set == NULL ? NULL : g_hash_table_lookup(placing->demands, set);

    if (sum == NULL)
        return;
    sum->bytes = lh_capacity_add(sum->bytes, bytes);
    sum->items += items;
}

/* Of what a host holds; one that is registered no more is in the set of its orders. */
static const char *set_of(const LhFleetHost *host)
{
    const LhFleetNode *newest = lh_fleet_host_newest(host);

    if (newest != NULL && lh_object_known(newest->object)) {
        const LhNode *node = (const LhNode *)newest->object;
        return node->set == NULL ? "default" : node->set;
    }
    for (guint i = 0; i < host->nodes->len; i++) {
        const LhFleetNode *node = g_ptr_array_index(host->nodes, i);
        for (guint a = 0; a < node->assignments->len; a++) {
            const LhFleetAssignment *assignment = g_ptr_array_index(node->assignments, a);
            if (assignment->object != NULL && lh_object_known(assignment->object))
                return ((const LhAssignment *)assignment->object)->set;
        }
    }
    return NULL;
}

static void limit_probation(const LhFleet *fleet, const Placing *placing)
{
    GHashTableIter iter;
    gpointer set, record;

    g_hash_table_iter_init(&iter, fleet->hosts);
    while (g_hash_table_iter_next(&iter, NULL, &record)) {
        const LhFleetHost *host = record;
        demand(placing, set_of(host), host->used_bytes + host->restored_bytes,
               host->used_items + host->restored_items);
    }
    for (GTreeNode *n = g_tree_node_first(fleet->waiting); n != NULL; n = g_tree_node_next(n)) {
        const LhFleetReplica *replica = lh_tree_record(n);
        demand(placing, replica->set, lh_fleet_replica_bytes(replica), 1);
    }
    g_hash_table_iter_init(&iter, placing->demands);
    while (g_hash_table_iter_next(&iter, &set, &record)) {
        const Demand *sum = record;
        lh_placement_limit(placing->placement, set, sum->bytes, sum->items);
    }
}

LhPlacement *lh_capacity_placement(const LhFleet *fleet)
{
    const LhSettings *settings = lh_fleet_settings(fleet, "cache-assigner");
    LhPlaceStrategy strategy = settings->strategy == LH_STRATEGY_PACK ? LH_PLACE_PACK
                                                                      : LH_PLACE_SPREAD;
    g_autoptr(GHashTable) demands = g_hash_table_new_full(g_str_hash, g_str_equal, NULL, g_free);
    Placing placing = {lh_placement_new(strategy, settings->restore_reserve_percent),
                       settings->max_concurrent_loads, demands};

    lh_places_foreach(fleet->places, add_nodes, &placing);
    if (g_hash_table_size(demands) > 0)
        limit_probation(fleet, &placing);
    return placing.placement;
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

typedef struct {
    GHashTable *rows;
    gint64 reserve_percent;
} Summing;

static void sum_nodes(const char *set, const LhPlaceNode *nodes, guint n, gpointer data)
{
    const Summing *summing = data;
    gint64 reserve = summing->reserve_percent;
    Row *row = row_of(summing->rows, nodes[0].set);

    (void)set;
    for (guint i = 0; i < n; i++) {
        const LhPlaceNode *node = &nodes[i];
        row->row.nodes++;
        row->row.capacity_bytes = lh_capacity_add(row->row.capacity_bytes, node->capacity_bytes);
        row->row.used_bytes = lh_capacity_add(row->row.used_bytes,
                                              node->used_bytes + node->restored_bytes);
        row->row.wanted_bytes = row->row.used_bytes;
        for (int restored = 0; restored < 2; restored++) {
            row->free_bytes[restored] = lh_capacity_add(
                row->free_bytes[restored], lh_place_free_bytes(node, reserve, restored));
            row->free_items[restored] = lh_capacity_add(
                row->free_items[restored], lh_place_free_items(node, reserve, restored));
        }
    }
}

static void add_hosts(const LhFleet *fleet, GHashTable *rows)
{
    const LhSettings *settings = lh_fleet_settings(fleet, "cache-assigner");
    Summing summing = {rows, settings->restore_reserve_percent};

    lh_places_foreach(fleet->places, sum_nodes, &summing);
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
