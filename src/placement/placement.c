/*
 * A rank of a few bits says how good a node is by the ordered rules; among equal ranks the strategy's share
 * decides. The first items of a set ask each node in turn; for many, an index is worth making. Pure.
 */
#include "placement/internal.h"

#include <string.h>

/* Questions before an index is made: one question costs a pass over the nodes, the index some tens. */
#define ASKED_PLAINLY 24

typedef struct {
    GArray *nodes; /* LhPlaceNode */
    guint asked;
    LhPlaceIndex *index; /* NULL: not worth it yet */
} Set;

struct LhPlacement {
    LhPlaceStrategy strategy;
    gint64 reserve_percent;
    GHashTable *sets; /* name -> Set */
};

static void set_free(gpointer data)
{
    Set *set = data;

    lh_place_index_free(set->index);
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

void lh_placement_add_all(LhPlacement *placement, const char *set_name, const LhPlaceNode *nodes,
                          guint n, gint64 slots)
{
    Set *set = g_hash_table_lookup(placement->sets, set_name);

    if (set == NULL) {
        set = g_new0(Set, 1);
        set->nodes = g_array_sized_new(FALSE, FALSE, sizeof(LhPlaceNode), n);
        g_hash_table_insert(placement->sets, g_strdup(set_name), set);
    }
    g_clear_pointer(&set->index, lh_place_index_free);
    g_array_append_vals(set->nodes, nodes, n);
    for (guint i = set->nodes->len - n; i < set->nodes->len; i++) {
        LhPlaceNode *node = &g_array_index(set->nodes, LhPlaceNode, i);
        node->load_slots += slots;
    }
}

void lh_placement_add(LhPlacement *placement, const LhPlaceNode *node)
{
    lh_placement_add_all(placement, node->set, node, 1, 0);
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

gboolean lh_place_listed(const char *const *list, const char *text)
{
    return list != NULL && text != NULL && g_strv_contains(list, text);
}

/* Rules 2 to 4 as a number: smaller is better. */
static guint rank_of(const LhPlaceNode *node, const LhPlaceItem *item)
{
    guint rank = 0;

    if (lh_place_listed(item->holder_zones, node->zone))
        rank |= LH_RANK_ZONE;
    if (item->warm_ids != NULL && item->warm_ids[0] != NULL &&
        !lh_place_listed(item->warm_ids, node->id))
        rank |= LH_RANK_COLD;
    if (item->avoid_host != NULL && strcmp(node->host, item->avoid_host) == 0)
        rank |= LH_RANK_AVOIDED;
    return rank;
}

double lh_place_share(gint64 capacity_bytes, gint64 capacity_items, gint64 bytes, gint64 items,
                      gint64 size_bytes)
{
    double by_bytes = capacity_bytes > 0 ? (double)(bytes + size_bytes) / (double)capacity_bytes
                                         : 0;
    double by_items = capacity_items > 0 ? (double)(items + 1) / (double)capacity_items : 0;

    return MAX(by_bytes, by_items);
}

static double share_after(const LhPlaceNode *node, gint64 size_bytes)
{
    return lh_place_share(node->capacity_bytes, node->capacity_items,
                          node->used_bytes + node->restored_bytes,
                          node->used_items + node->restored_items, size_bytes);
}

/* Rules 5 and 6 among nodes of one rank. */
void lh_place_prefer(LhPlaceStrategy strategy, LhPlaceNode *node, const LhPlaceItem *item,
                     LhPlaceSearch *search)
{
    const LhPlaceNode *best = search->best;
    double share = share_after(node, item->size_bytes);
    gboolean better = best == NULL;

    if (best != NULL && (share < search->best_share || share > search->best_share)) {
        better = strategy == LH_PLACE_SPREAD ? share < search->best_share
                                             : share > search->best_share;
    } else if (best != NULL) {
        gint64 items = node->used_items + node->restored_items;
        gint64 best_items = best->used_items + best->restored_items;
        better = items != best_items ? items < best_items : strcmp(node->id, best->id) < 0;
    }
    if (better) {
        search->best = node;
        search->best_share = share;
    }
}

gint64 lh_place_half_share(gint64 demand, gint64 nodes)
{
    return demand / (2 * nodes);
}

void lh_placement_limit(LhPlacement *placement, const char *set_name, gint64 bytes, gint64 items)
{
    Set *set = g_hash_table_lookup(placement->sets, set_name);
    guint others = 0;

    for (guint i = 0; set != NULL && i < set->nodes->len; i++)
        others += !g_array_index(set->nodes, LhPlaceNode, i).probation;
    for (guint i = 0; others > 0 && i < set->nodes->len; i++) {
        LhPlaceNode *node = &g_array_index(set->nodes, LhPlaceNode, i);
        node->limited = node->probation;
        node->limit_bytes = lh_place_half_share(bytes, set->nodes->len);
        node->limit_items = lh_place_half_share(items, set->nodes->len);
    }
}

static gboolean within_limit(const LhPlaceNode *node, const LhPlaceItem *item)
{
    return !node->limited ||
           (node->used_bytes + node->restored_bytes + item->size_bytes <= node->limit_bytes &&
            node->used_items + node->restored_items + 1 <= node->limit_items);
}

void lh_place_consider(LhPlaceStrategy strategy, gint64 reserve_percent, LhPlaceNode *node,
                       const LhPlaceItem *item, LhPlaceSearch *search)
{
    guint rank;

    if (lh_place_free_bytes(node, reserve_percent, item->restored) < item->size_bytes)
        return;
    search->bytes = TRUE;
    if (lh_place_free_items(node, reserve_percent, item->restored) < 1)
        return;
    search->items = TRUE;
    if (lh_place_listed(item->holder_hosts, node->host))
        return;
    search->distinct = TRUE;
    if (!within_limit(node, item))
        return;
    search->allowed = TRUE;
    rank = rank_of(node, item);
    if (rank > search->best_rank)
        return;
    if (rank < search->best_rank) {
        search->best_rank = rank;
        search->best = NULL;
    }
    if (node->load_slots > 0)
        lh_place_prefer(strategy, node, item, search);
}

/* Counts a question; the index, once there were enough of them. */
static LhPlaceIndex *index_of(const LhPlacement *placement, Set *set)
{
    if (set->index == NULL && set->asked++ >= ASKED_PLAINLY)
        set->index = lh_place_index_new(placement->strategy, placement->reserve_percent,
                                        (LhPlaceNode *)set->nodes->data, set->nodes->len);
    return set->index;
}

static void changed(Set *set, const LhPlaceNode *node)
{
    if (set->index != NULL)
        lh_place_index_changed(set->index, node);
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
    changed(set, node);
}

LhPlaceAnswer lh_placement_place(LhPlacement *placement, const LhPlaceItem *item)
{
    Set *set = g_hash_table_lookup(placement->sets, item->set);
    LhPlaceSearch search = {.best_rank = G_MAXUINT};
    LhPlaceRule rule = LH_PLACED_STRATEGY;

    if (set == NULL || set->nodes->len == 0)
        return (LhPlaceAnswer){.rule = LH_WAIT_NODES};
    if (index_of(placement, set) != NULL)
        lh_place_index_search(set->index, item, &search);
    for (guint i = 0; set->index == NULL && i < set->nodes->len; i++)
        lh_place_consider(placement->strategy, placement->reserve_percent,
                          &g_array_index(set->nodes, LhPlaceNode, i), item, &search);
    if (search.best == NULL)
        return (LhPlaceAnswer){.rule = !search.bytes      ? LH_WAIT_BYTES
                                       : !search.items    ? LH_WAIT_ITEMS
                                       : !search.distinct ? LH_WAIT_DISTINCT
                                       : !search.allowed  ? LH_WAIT_PROBATION
                                                          : LH_WAIT_SLOT};
    if (lh_place_listed(item->warm_ids, search.best->id))
        rule = LH_PLACED_WARM;
    book(set, search.best, item);
    return (LhPlaceAnswer){.rule = rule, .node_id = search.best->id};
}

static LhPlaceNode *find_node(const LhPlacement *placement, Set *set, const char *node_id)
{
    if (set == NULL)
        return NULL;
    if (index_of(placement, set) != NULL)
        return lh_place_index_find(set->index, node_id);
    for (guint i = 0; i < set->nodes->len; i++) {
        LhPlaceNode *node = &g_array_index(set->nodes, LhPlaceNode, i);
        if (strcmp(node->id, node_id) == 0)
            return node;
    }
    return NULL;
}

gboolean lh_placement_take_slot(LhPlacement *placement, const char *set_name, const char *node_id)
{
    Set *set = g_hash_table_lookup(placement->sets, set_name);
    LhPlaceNode *node = find_node(placement, set, node_id);

    if (node == NULL || node->load_slots <= 0)
        return FALSE;
    node->load_slots--;
    changed(set, node);
    return TRUE;
}

/* Whether all that is counted on @node is within it, and this class within its share. */
static gboolean fits(const LhPlacement *placement, const LhPlaceNode *node, gboolean restored)
{
    gint64 reserve = placement->reserve_percent;
    gint64 bytes = restored ? node->restored_bytes : node->used_bytes;
    gint64 items = restored ? node->restored_items : node->used_items;

    if (node->used_bytes + node->restored_bytes > node->capacity_bytes ||
        bytes > share(node->capacity_bytes, reserve, restored))
        return FALSE;
    return node->capacity_items == 0 ||
           (node->used_items + node->restored_items <= node->capacity_items &&
            items <= share(node->capacity_items, reserve, restored));
}

gboolean lh_placement_give_up(LhPlacement *placement, const char *set_name, const char *node_id,
                              gint64 size_bytes, gboolean restored)
{
    Set *set = g_hash_table_lookup(placement->sets, set_name);
    LhPlaceNode *node = find_node(placement, set, node_id);

    if (node == NULL || fits(placement, node, restored))
        return FALSE;
    *(restored ? &node->restored_bytes : &node->used_bytes) -= size_bytes;
    *(restored ? &node->restored_items : &node->used_items) -= 1;
    changed(set, node);
    return TRUE;
}

const char *lh_place_rule_id(LhPlaceRule rule)
{
    static const char *const ids[] = {
        [LH_PLACED_WARM] = "placed-warm", [LH_PLACED_STRATEGY] = "placed-by-strategy",
        [LH_WAIT_SLOT] = "wait-slot",     [LH_WAIT_BYTES] = "wait-bytes",
        [LH_WAIT_ITEMS] = "wait-items",   [LH_WAIT_DISTINCT] = "wait-distinct",
        [LH_WAIT_NODES] = "wait-nodes",   [LH_WAIT_PROBATION] = "wait-probation",
    };

    return ids[rule];
}
