/*
 * One array of LhPlaceNode for each set, and for each host its seat in one of them. A seat that is given up
 * is taken by the last of its array.
 */
#include "controllers/places.h"

#include "controllers/fleet.h"

typedef struct {
    char *name;
    GArray *nodes;    /* LhPlaceNode */
    GPtrArray *hosts; /* whose they are */
} Row;

typedef struct {
    Row *row;
    guint at;
} Seat;

struct LhPlaces {
    GHashTable *rows;  /* set -> Row */
    GHashTable *seats; /* LhFleetHost -> Seat */
    GHashTable *stale; /* set of LhFleetHost */
};

static void row_free(gpointer data)
{
    Row *row = data;

    g_free(row->name);
    g_array_unref(row->nodes);
    g_ptr_array_unref(row->hosts);
    g_free(row);
}

LhPlaces *lh_places_new(void)
{
    LhPlaces *places = g_new0(LhPlaces, 1);

    places->rows = g_hash_table_new_full(g_str_hash, g_str_equal, NULL, row_free);
    places->seats = g_hash_table_new_full(NULL, NULL, NULL, g_free);
    places->stale = g_hash_table_new(NULL, NULL);
    return places;
}

void lh_places_free(LhPlaces *places)
{
    g_hash_table_unref(places->rows);
    g_hash_table_unref(places->seats);
    g_hash_table_unref(places->stale);
    g_free(places);
}

void lh_places_touch(LhPlaces *places, const LhFleetHost *host)
{
    g_hash_table_add(places->stale, (gpointer)host);
}

static void stand_up(LhPlaces *places, const LhFleetHost *host)
{
    Seat *seat = g_hash_table_lookup(places->seats, host), *last;
    Row *row;

    if (seat == NULL)
        return;
    row = seat->row;
    last = g_hash_table_lookup(places->seats, g_ptr_array_index(row->hosts, row->hosts->len - 1));
    last->at = seat->at;
    g_array_remove_index_fast(row->nodes, seat->at);
    g_ptr_array_remove_index_fast(row->hosts, seat->at);
    if (row->hosts->len == 0)
        g_hash_table_remove(places->rows, row->name);
    g_hash_table_remove(places->seats, host);
}

void lh_places_forget(LhPlaces *places, const LhFleetHost *host)
{
    stand_up(places, host);
    g_hash_table_remove(places->stale, host);
}

/* FALSE: it takes no work. */
static gboolean node_of(const LhFleetHost *host, LhPlaceNode *out)
{
    const LhNode *node = lh_fleet_host_takes(host, NULL);
    const LhFleetNode *record;

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
        .load_slots = -record->loading,
        .probation = lh_fleet_on_probation(record),
    };
    return TRUE;
}

static void sit_down(LhPlaces *places, const LhFleetHost *host, const LhPlaceNode *node)
{
    Row *row = g_hash_table_lookup(places->rows, node->set);
    Seat *seat = g_hash_table_lookup(places->seats, host);

    if (seat != NULL && seat->row == row) {
        g_array_index(row->nodes, LhPlaceNode, seat->at) = *node;
        return;
    }
    stand_up(places, host);
    if (row == NULL) {
        row = g_new0(Row, 1);
        row->name = g_strdup(node->set);
        row->nodes = g_array_new(FALSE, FALSE, sizeof(LhPlaceNode));
        row->hosts = g_ptr_array_new();
        g_hash_table_insert(places->rows, row->name, row);
    }
    seat = g_new0(Seat, 1);
    seat->row = row;
    seat->at = row->hosts->len;
    g_array_append_vals(row->nodes, node, 1);
    g_ptr_array_add(row->hosts, (gpointer)host);
    g_hash_table_insert(places->seats, (gpointer)host, seat);
}

void lh_places_foreach(LhPlaces *places, LhPlacesFunc func, gpointer data)
{
    GHashTableIter iter;
    gpointer item;
    LhPlaceNode node;

    g_hash_table_iter_init(&iter, places->stale);
    while (g_hash_table_iter_next(&iter, &item, NULL)) {
        if (node_of(item, &node))
            sit_down(places, item, &node);
        else
            stand_up(places, item);
    }
    g_hash_table_remove_all(places->stale);
    g_hash_table_iter_init(&iter, places->rows);
    while (g_hash_table_iter_next(&iter, NULL, &item)) {
        const Row *row = item;
        func(row->name, (const LhPlaceNode *)row->nodes->data, row->nodes->len, data);
    }
}
