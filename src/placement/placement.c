/*
 * One pass over the nodes of the item's set for each item. A rank of a few bits says how good a node is by
 * the ordered rules; among equal ranks the strategy's share decides. Pure.
 */
#include "placement/placement.h"

#include <string.h>

typedef struct {
    GArray *nodes; /* LhPlaceNode */
    gint64 slots;  /* sum of load_slots */
} Set;

struct LhPlacement {
    LhPlaceStrategy strategy;
    gint64 reserve_percent;
    GHashTable *sets; /* name -> Set */
};

static void set_free(gpointer data)
{
    Set *set = data;

    g_array_unref(set->nodes);
    g_free(set);
}

LhPlacement *lh_placement_new(LhPlaceStrategy strategy, gint64 reserve_percent)
{
    LhPlacement *placement = g_new0(LhPlacement, 1);

    placement->strategy = strategy;
    placement->reserve_percent = reserve_percent;
    placement->sets = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, set_free);
    return placement;
}

void lh_placement_free(LhPlacement *placement)
{
    if (placement == NULL)
        return;
    g_hash_table_unref(placement->sets);
    g_free(placement);
}

void lh_placement_add(LhPlacement *placement, const LhPlaceNode *node)
{
    Set *set = g_hash_table_lookup(placement->sets, node->set);

    if (set == NULL) {
        set = g_new0(Set, 1);
        set->nodes = g_array_new(FALSE, FALSE, sizeof(LhPlaceNode));
        g_hash_table_insert(placement->sets, g_strdup(node->set), set);
    }
    g_array_append_vals(set->nodes, node, 1);
    set->slots += MAX(0, node->load_slots);
}

gboolean lh_placement_slots(const LhPlacement *placement, const char *set_name)
{
    const Set *set = g_hash_table_lookup(placement->sets, set_name);

    return set != NULL && set->slots > 0;
}

/* The part of @capacity for one class of items; the reserve is rounded down, the rest is regular. */
static gint64 share(gint64 capacity, gint64 reserve_percent, gboolean restored)
{
    gint64 reserve = capacity / 100 * reserve_percent + capacity % 100 * reserve_percent / 100;

    return restored ? reserve : capacity - reserve;
}

/* The other class may use more than its share, of an earlier reserve: the whole is a limit too. */
static gint64 room(gint64 capacity, gint64 reserve_percent, gint64 regular, gint64 restored,
                   gboolean for_restored)
{
    gint64 of_class = share(capacity, reserve_percent, for_restored) -
                      (for_restored ? restored : regular);

    return MAX(0, MIN(of_class, capacity - regular - restored));
}

gint64 lh_place_free_bytes(const LhPlaceNode *node, gint64 reserve_percent, gboolean restored)
{
    return room(node->capacity_bytes, reserve_percent, node->used_bytes, node->restored_bytes,
                restored);
}

gint64 lh_place_free_items(const LhPlaceNode *node, gint64 reserve_percent, gboolean restored)
{
    if (node->capacity_items == 0)
        return G_MAXINT64;
    return room(node->capacity_items, reserve_percent, node->used_items, node->restored_items,
                restored);
}

static gboolean listed(const char *const *list, const char *text)
{
    return list != NULL && text != NULL && g_strv_contains(list, text);
}

/* Rules 2 to 4 as a number: smaller is better. */
static guint rank_of(const LhPlaceNode *node, const LhPlaceItem *item)
{
    guint rank = 0;

    if (listed(item->holder_zones, node->zone))
        rank |= 4;
    if (item->warm_ids != NULL && item->warm_ids[0] != NULL && !listed(item->warm_ids, node->id))
        rank |= 2;
    if (item->avoid_host != NULL && strcmp(node->host, item->avoid_host) == 0)
        rank |= 1;
    return rank;
}

static double share_after(const LhPlaceNode *node, gint64 size_bytes)
{
    double bytes = (double)(node->used_bytes + node->restored_bytes + size_bytes);
    double items = (double)(node->used_items + node->restored_items + 1);
    double by_bytes = node->capacity_bytes > 0 ? bytes / (double)node->capacity_bytes : 0;
    double by_items = node->capacity_items > 0 ? items / (double)node->capacity_items : 0;

    return MAX(by_bytes, by_items);
}

/* Rules 5 and 6 among nodes of one rank. */
static gboolean better(LhPlaceStrategy strategy, const LhPlaceNode *a, const LhPlaceNode *b,
                       gint64 size)
{
    double share_a = share_after(a, size), share_b = share_after(b, size);
    gint64 items_a = a->used_items + a->restored_items, items_b = b->used_items + b->restored_items;

    if (share_a < share_b || share_a > share_b)
        return strategy == LH_PLACE_SPREAD ? share_a < share_b : share_a > share_b;
    if (items_a != items_b)
        return items_a < items_b;
    return strcmp(a->id, b->id) < 0;
}

typedef struct {
    LhPlaceNode *best;               /* of best_rank, with a slot */
    guint best_rank;                 /* over all nodes with room, slot or not */
    gboolean bytes, items, distinct; /* some node passed up to this test */
} Search;

static void consider(const LhPlacement *placement, LhPlaceNode *node, const LhPlaceItem *item,
                     Search *search)
{
    guint rank;

    if (lh_place_free_bytes(node, placement->reserve_percent, item->restored) < item->size_bytes)
        return;
    search->bytes = TRUE;
    if (lh_place_free_items(node, placement->reserve_percent, item->restored) < 1)
        return;
    search->items = TRUE;
    if (listed(item->holder_hosts, node->host))
        return;
    search->distinct = TRUE;
    rank = rank_of(node, item);
    if (rank > search->best_rank)
        return;
    if (rank < search->best_rank) {
        search->best_rank = rank;
        search->best = NULL;
    }
    if (node->load_slots > 0 &&
        (search->best == NULL || better(placement->strategy, node, search->best, item->size_bytes)))
        search->best = node;
}

static void book(Set *set, LhPlaceNode *node, const LhPlaceItem *item)
{
    if (item->restored) {
        node->restored_bytes += item->size_bytes;
        node->restored_items++;
    } else {
        node->used_bytes += item->size_bytes;
        node->used_items++;
    }
    node->load_slots--;
    set->slots--;
}

LhPlaceAnswer lh_placement_place(LhPlacement *placement, const LhPlaceItem *item)
{
    Set *set = g_hash_table_lookup(placement->sets, item->set);
    Search search = {.best_rank = G_MAXUINT};
    LhPlaceRule rule = LH_PLACED_STRATEGY;

    if (set == NULL || set->nodes->len == 0)
        return (LhPlaceAnswer){.rule = LH_WAIT_NODES};
    for (guint i = 0; i < set->nodes->len; i++)
        consider(placement, &g_array_index(set->nodes, LhPlaceNode, i), item, &search);
    if (search.best == NULL)
        return (LhPlaceAnswer){.rule = !search.bytes      ? LH_WAIT_BYTES
                                       : !search.items    ? LH_WAIT_ITEMS
                                       : !search.distinct ? LH_WAIT_DISTINCT
                                                          : LH_WAIT_SLOT};
    if (listed(item->warm_ids, search.best->id))
        rule = LH_PLACED_WARM;
    book(set, search.best, item);
    return (LhPlaceAnswer){.rule = rule, .node_id = search.best->id};
}

static LhPlaceNode *find_node(Set *set, const char *node_id)
{
    for (guint i = 0; set != NULL && i < set->nodes->len; i++) {
        LhPlaceNode *node = &g_array_index(set->nodes, LhPlaceNode, i);
        if (strcmp(node->id, node_id) == 0)
            return node;
    }
    return NULL;
}

gboolean lh_placement_take_slot(LhPlacement *placement, const char *set_name, const char *node_id)
{
    Set *set = g_hash_table_lookup(placement->sets, set_name);
    LhPlaceNode *node = find_node(set, node_id);

    if (node == NULL || node->load_slots <= 0)
        return FALSE;
    node->load_slots--;
    set->slots--;
    return TRUE;
}

gboolean lh_placement_give_up(LhPlacement *placement, const char *set_name, const char *node_id,
                              gint64 size_bytes, gboolean restored)
{
    LhPlaceNode *node = find_node(g_hash_table_lookup(placement->sets, set_name), node_id);

    if (node == NULL || (node->used_bytes + node->restored_bytes <= node->capacity_bytes &&
                         (node->capacity_items == 0 ||
                          node->used_items + node->restored_items <= node->capacity_items)))
        return FALSE;
    *(restored ? &node->restored_bytes : &node->used_bytes) -= size_bytes;
    *(restored ? &node->restored_items : &node->used_items) -= 1;
    return TRUE;
}

const char *lh_place_rule_id(LhPlaceRule rule)
{
    static const char *const ids[] = {
        [LH_PLACED_WARM] = "placed-warm", [LH_PLACED_STRATEGY] = "placed-by-strategy",
        [LH_WAIT_SLOT] = "wait-slot",     [LH_WAIT_BYTES] = "wait-bytes",
        [LH_WAIT_ITEMS] = "wait-items",   [LH_WAIT_DISTINCT] = "wait-distinct",
        [LH_WAIT_NODES] = "wait-nodes",
    };

    return ids[rule];
}
