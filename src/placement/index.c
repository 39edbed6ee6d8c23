/*
 * Placement for many items: the answers of asking each node, in about the logarithm of their number.
 *
 * Nodes of equal capacity and zone make a group, and each group a tree of sums over its nodes by id: the
 * most room below, and the least and most that is held below. What a node's share can be at best follows
 * from these, so a search leaves out all below which nothing can fit or beat what it has. The few nodes
 * that an item speaks of by name (holders, warm ones, the avoided host), and those on probation that are
 * limited, are asked one by one. It must not
 * have rules of its own: whatever it proposes is compared by lh_place_prefer.
 */
#include "placement/internal.h"

#include <string.h>

/* Over the nodes below; [0] for regular items, [1] for restored ones; -1: there is none. */
typedef struct {
    gint64 bytes[2]; /* most free bytes */
    gint64 room[2];  /* of those with an item free */
    gint64 open[2];  /* of those with a load slot too */
    /* Of those with a load slot. */
    gint64 least_bytes, most_bytes;
    gint64 least_items, most_items;
    gint64 tied_items; /* fewest of those that hold least_bytes */
} Sum;

typedef struct {
    gint64 capacity_bytes, capacity_items;
    const char *zone;
    guint first, n; /* in LhPlaceIndex.order */
    guint leaves;   /* a power of two */
    Sum *sums;      /* [1]: all, [i]: over [2i] and [2i + 1], [leaves + i]: node i */
    gboolean exact; /* among its nodes more bytes are always a greater share */
} Group;

struct LhPlaceIndex {
    LhPlaceStrategy strategy;
    gint64 reserve_percent;
    LhPlaceNode *nodes;
    LhPlaceNode **order; /* by group, then id */
    guint *place;        /* of each node in order */
    guint *group_of;     /* of each node */
    guint64 *marked;     /* of each node: the search that has asked it by name */
    guint64 search;
    GArray *groups;      /* Group */
    GHashTable *by_id;   /* id -> LhPlaceNode */
    GHashTable *by_host; /* host -> GPtrArray of LhPlaceNode */
    GPtrArray *limited;  /* LhPlaceNode: in no sum */
};

/* ---- sums ---- */

static const Sum none = {
    .bytes = {-1, -1},
    .room = {-1, -1},
    .open = {-1, -1},
    .least_bytes = G_MAXINT64,
    .most_bytes = -1,
    .least_items = G_MAXINT64,
    .most_items = -1,
    .tied_items = G_MAXINT64,
};

static Sum sum_of(const LhPlaceIndex *index, const LhPlaceNode *node)
{
    Sum sum = none;

    if (node->limited)
        return sum;
    for (int restored = 0; restored < 2; restored++) {
        sum.bytes[restored] = lh_place_free_bytes(node, index->reserve_percent, restored);
        if (lh_place_free_items(node, index->reserve_percent, restored) < 1)
            continue;
        sum.room[restored] = sum.bytes[restored];
        if (node->load_slots > 0)
            sum.open[restored] = sum.bytes[restored];
    }
    if (node->load_slots > 0) {
        sum.least_bytes = sum.most_bytes = node->used_bytes + node->restored_bytes;
        sum.least_items = sum.most_items = sum.tied_items = node->used_items + node->restored_items;
    }
    return sum;
}

static void add_up(Sum *out, const Sum *a, const Sum *b)
{
    for (int restored = 0; restored < 2; restored++) {
        out->bytes[restored] = MAX(a->bytes[restored], b->bytes[restored]);
        out->room[restored] = MAX(a->room[restored], b->room[restored]);
        out->open[restored] = MAX(a->open[restored], b->open[restored]);
    }
    out->least_bytes = MIN(a->least_bytes, b->least_bytes);
    out->most_bytes = MAX(a->most_bytes, b->most_bytes);
    out->least_items = MIN(a->least_items, b->least_items);
    out->most_items = MAX(a->most_items, b->most_items);
    out->tied_items = a->least_bytes < b->least_bytes   ? a->tied_items
                      : a->least_bytes > b->least_bytes ? b->tied_items
                                                        : MIN(a->tied_items, b->tied_items);
}

/* ---- making it ---- */

static gint by_group(gconstpointer a, gconstpointer b)
{
    const LhPlaceNode *left = *(LhPlaceNode *const *)a, *right = *(LhPlaceNode *const *)b;
    int zone = g_strcmp0(left->zone, right->zone);

    if (left->capacity_bytes != right->capacity_bytes)
        return left->capacity_bytes < right->capacity_bytes ? -1 : 1;
    if (left->capacity_items != right->capacity_items)
        return left->capacity_items < right->capacity_items ? -1 : 1;
    return zone != 0 ? zone : strcmp(left->id, right->id);
}

static gboolean same_group(const Group *group, const LhPlaceNode *node)
{
    return group->capacity_bytes == node->capacity_bytes &&
           group->capacity_items == node->capacity_items && g_strcmp0(group->zone, node->zone) == 0;
}

static void fill_group(LhPlaceIndex *index, guint number)
{
    Group *group = &g_array_index(index->groups, Group, number);

    for (group->leaves = 1; group->leaves < group->n;)
        group->leaves *= 2;
    /* As doubles too: capacities are less than 2^53, so a byte is more than half a unit in the last place. */
    group->exact = group->capacity_items == 0 && group->capacity_bytes > 0;
    group->sums = g_new(Sum, 2 * group->leaves);
    for (guint i = 0; i < group->leaves; i++) {
        LhPlaceNode *node = i < group->n ? index->order[group->first + i] : NULL;
        group->sums[group->leaves + i] = node == NULL ? none : sum_of(index, node);
        if (node == NULL)
            continue;
        index->place[node - index->nodes] = group->first + i;
        index->group_of[node - index->nodes] = number;
    }
    for (guint i = group->leaves - 1; i >= 1; i--)
        add_up(&group->sums[i], &group->sums[2 * i], &group->sums[2 * i + 1]);
}

static void name_nodes(LhPlaceIndex *index, guint n)
{
    index->by_id = g_hash_table_new(g_str_hash, g_str_equal);
    index->by_host = g_hash_table_new_full(g_str_hash, g_str_equal, NULL,
                                           (GDestroyNotify)g_ptr_array_unref);
    for (guint i = 0; i < n; i++) {
        LhPlaceNode *node = &index->nodes[i];
        GPtrArray *of_host = g_hash_table_lookup(index->by_host, node->host);
        g_hash_table_insert(index->by_id, (gpointer)node->id, node);
        if (of_host == NULL) {
            of_host = g_ptr_array_sized_new(1);
            g_hash_table_insert(index->by_host, (gpointer)node->host, of_host);
        }
        g_ptr_array_add(of_host, node);
    }
}

LhPlaceIndex *lh_place_index_new(LhPlaceStrategy strategy, gint64 reserve_percent,
                                 LhPlaceNode *nodes, guint n)
{
    LhPlaceIndex *index = g_new0(LhPlaceIndex, 1);

    index->strategy = strategy;
    index->reserve_percent = reserve_percent;
    index->nodes = nodes;
    index->order = g_new(LhPlaceNode *, n);
    index->place = g_new(guint, n);
    index->group_of = g_new(guint, n);
    index->marked = g_new0(guint64, n);
    index->groups = g_array_new(FALSE, FALSE, sizeof(Group));
    name_nodes(index, n);
    index->limited = g_ptr_array_new();
    for (guint i = 0; i < n; i++) {
        index->order[i] = &nodes[i];
        if (nodes[i].limited)
            g_ptr_array_add(index->limited, &nodes[i]);
    }
    qsort(index->order, n, sizeof *index->order, by_group);
    for (guint i = 0; i < n; i++) {
        const LhPlaceNode *node = index->order[i];
        Group group = {node->capacity_bytes, node->capacity_items, node->zone, .first = i};
        if (i == 0 ||
            !same_group(&g_array_index(index->groups, Group, index->groups->len - 1), node))
            g_array_append_val(index->groups, group);
        g_array_index(index->groups, Group, index->groups->len - 1).n++;
    }
    for (guint i = 0; i < index->groups->len; i++)
        fill_group(index, i);
    return index;
}

void lh_place_index_free(LhPlaceIndex *index)
{
    if (index == NULL)
        return;
    for (guint i = 0; i < index->groups->len; i++)
        g_free(g_array_index(index->groups, Group, i).sums);
    g_array_unref(index->groups);
    g_hash_table_unref(index->by_id);
    g_hash_table_unref(index->by_host);
    g_ptr_array_unref(index->limited);
    g_free(index->order);
    g_free(index->place);
    g_free(index->group_of);
    g_free(index->marked);
    g_free(index);
}

LhPlaceNode *lh_place_index_find(const LhPlaceIndex *index, const char *node_id)
{
    return g_hash_table_lookup(index->by_id, node_id);
}

void lh_place_index_changed(LhPlaceIndex *index, const LhPlaceNode *node)
{
    gsize number = (gsize)(node - index->nodes);
    Group *group = &g_array_index(index->groups, Group, index->group_of[number]);
    guint i = group->leaves + index->place[number] - group->first;

    group->sums[i] = sum_of(index, node);
    for (i /= 2; i >= 1; i /= 2)
        add_up(&group->sums[i], &group->sums[2 * i], &group->sums[2 * i + 1]);
}

/* ---- searching ---- */

typedef struct {
    LhPlaceIndex *index;
    const Group *group;
    const LhPlaceItem *item;
    LhPlaceSearch *search;
} Walk;

static LhPlaceNode *node_at(const Walk *walk, guint i)
{
    return walk->index->order[walk->group->first + i - walk->group->leaves];
}

static gboolean is_marked(const Walk *walk, const LhPlaceNode *node)
{
    return walk->index->marked[node - walk->index->nodes] == walk->index->search;
}

static int class_of(const LhPlaceItem *item)
{
    return item->restored ? 1 : 0;
}

/* No node below @i is better placed than this: the least share (spread) or the greatest (pack) that one
 * with room can have. */
static double bound_of(const Walk *walk, guint i)
{
    const Group *group = walk->group;
    const Sum *sum = &group->sums[i];
    gint64 size = walk->item->size_bytes, bytes = sum->least_bytes, items = sum->least_items;

    if (walk->index->strategy == LH_PLACE_PACK) {
        bytes = MIN(sum->most_bytes, MAX(0, group->capacity_bytes - size));
        items = group->capacity_items == 0 ? sum->most_items
                                           : MIN(sum->most_items, group->capacity_items - 1);
        if (size == 0)
            bytes = sum->most_bytes; /* what has no bytes fits on what is more than full */
    }
    return lh_place_share(group->capacity_bytes, group->capacity_items, bytes, items, size);
}

/* The nodes below @i lie next to each other in the order of ids: the smallest of theirs. */
static const char *least_id(const Walk *walk, guint i)
{
    while (i < walk->group->leaves)
        i *= 2;
    return node_at(walk, i)->id;
}

static gboolean may_win(const Walk *walk, guint i, double bound)
{
    const LhPlaceSearch *search = walk->search;
    const LhPlaceNode *best = search->best;
    const Sum *sum = &walk->group->sums[i];
    gboolean spread = walk->index->strategy == LH_PLACE_SPREAD;
    gint64 items, best_items;

    if (best == NULL)
        return TRUE;
    if (bound < search->best_share || bound > search->best_share)
        return spread ? bound < search->best_share : bound > search->best_share;
    items = spread && walk->group->exact ? sum->tied_items : sum->least_items;
    best_items = best->used_items + best->restored_items;
    return items != best_items ? items < best_items : strcmp(least_id(walk, i), best->id) < 0;
}

static gboolean is_open(const Walk *walk, guint i)
{
    return walk->group->sums[i].open[class_of(walk->item)] >= walk->item->size_bytes;
}

/* The best of those with a slot, of which there are some below @i. */
static void find_best(Walk *walk, guint i, double bound)
{
    gboolean spread = walk->index->strategy == LH_PLACE_SPREAD;
    guint first = 2 * i, second = 2 * i + 1;
    double of_first, of_second;

    if (!may_win(walk, i, bound))
        return;
    if (i >= walk->group->leaves) {
        if (!is_marked(walk, node_at(walk, i)))
            lh_place_prefer(walk->index->strategy, node_at(walk, i), walk->item, walk->search);
        return;
    }
    if (!is_open(walk, first) || !is_open(walk, second)) {
        first = is_open(walk, first) ? first : second;
        find_best(walk, first, bound_of(walk, first));
        return;
    }
    of_first = bound_of(walk, first);
    of_second = bound_of(walk, second);
    if (spread ? of_second < of_first : of_second > of_first) {
        find_best(walk, second, of_second);
        find_best(walk, first, of_first);
    } else {
        find_best(walk, first, of_first);
        find_best(walk, second, of_second);
    }
}

/* Whether one that was not asked by name has room, slot or not. */
static gboolean any_room(const Walk *walk, guint i)
{
    if (walk->group->sums[i].room[class_of(walk->item)] < walk->item->size_bytes)
        return FALSE;
    if (i >= walk->group->leaves)
        return !is_marked(walk, node_at(walk, i));
    return any_room(walk, 2 * i) || any_room(walk, 2 * i + 1);
}

static void search_group(Walk *walk)
{
    const LhPlaceItem *item = walk->item;
    LhPlaceSearch *search = walk->search;
    const Sum *all = &walk->group->sums[1];
    guint rank = 0;

    if (all->bytes[class_of(item)] >= item->size_bytes)
        search->bytes = TRUE;
    if (all->room[class_of(item)] < item->size_bytes)
        return;
    search->items = TRUE;
    if (lh_place_listed(item->holder_zones, walk->group->zone))
        rank |= LH_RANK_ZONE;
    if (item->warm_ids != NULL && item->warm_ids[0] != NULL)
        rank |= LH_RANK_COLD;
    if (rank > search->best_rank)
        return; /* then some node is distinct, and may have it, already */
    if (rank < search->best_rank) {
        if (!any_room(walk, 1))
            return;
        search->distinct = search->allowed = TRUE;
        search->best_rank = rank;
        search->best = NULL;
    }
    if (is_open(walk, 1))
        find_best(walk, 1, bound_of(walk, 1));
}

static void ask(LhPlaceIndex *index, LhPlaceNode *node, const LhPlaceItem *item,
                LhPlaceSearch *search)
{
    guint64 *marked = node == NULL ? NULL : &index->marked[node - index->nodes];

    if (node == NULL || *marked == index->search)
        return;
    *marked = index->search;
    lh_place_consider(index->strategy, index->reserve_percent, node, item, search);
}

static void ask_host(LhPlaceIndex *index, const char *host, const LhPlaceItem *item,
                     LhPlaceSearch *search)
{
    const GPtrArray *nodes = host == NULL ? NULL : g_hash_table_lookup(index->by_host, host);

    for (guint i = 0; nodes != NULL && i < nodes->len; i++)
        ask(index, g_ptr_array_index(nodes, i), item, search);
}

void lh_place_index_search(LhPlaceIndex *index, const LhPlaceItem *item, LhPlaceSearch *search)
{
    index->search++;
    for (guint i = 0; item->holder_hosts != NULL && item->holder_hosts[i] != NULL; i++)
        ask_host(index, item->holder_hosts[i], item, search);
    for (guint i = 0; item->warm_ids != NULL && item->warm_ids[i] != NULL; i++)
        ask(index, g_hash_table_lookup(index->by_id, item->warm_ids[i]), item, search);
    ask_host(index, item->avoid_host, item, search);
    for (guint i = 0; i < index->limited->len; i++)
        ask(index, g_ptr_array_index(index->limited, i), item, search);
    for (guint i = 0; i < index->groups->len; i++) {
        Walk walk = {index, &g_array_index(index->groups, Group, i), item, search};
        search_group(&walk);
    }
}
