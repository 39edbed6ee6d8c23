/* See seed_places.h. */
#include "controllers/seed_places.h"

#include <string.h>

struct LhSeedPlaces {
    GArray *places; /* LhSeedPlace, by host name */
    GHashTable *by_node;
};

LhSeedPlaces *lh_seed_places_new(const LhPoolView *view)
{
    LhSeedPlaces *all = g_new0(LhSeedPlaces, 1);
    g_autoptr(GArray) takers = view == NULL ? g_array_new(FALSE, FALSE, sizeof(LhPoolTaker))
                                            : lh_pool_takers(view);

    all->places = g_array_new(FALSE, FALSE, sizeof(LhSeedPlace));
    all->by_node = g_hash_table_new(NULL, NULL);
    for (guint i = 0; i < takers->len; i++) {
        const LhPoolTaker *taker = &g_array_index(takers, LhPoolTaker, i);
        LhSeedPlace place = {
            .node = taker->node,
            .held = taker->held,
            .limit = taker->limit,
            .free = taker->node->free_seeds,
            .groups = taker->node->group_seeds,
        };
        g_array_append_val(all->places, place);
        g_hash_table_insert(all->by_node, (gpointer)taker->node, GUINT_TO_POINTER(i + 1));
    }
    return all;
}

void lh_seed_places_free(LhSeedPlaces *places)
{
    if (places == NULL)
        return;
    g_array_unref(places->places);
    g_hash_table_unref(places->by_node);
    g_free(places);
}

guint lh_seed_places_n(const LhSeedPlaces *places)
{
    return places->places->len;
}

LhSeedPlace *lh_seed_places_at(LhSeedPlaces *places, guint i)
{
    return &g_array_index(places->places, LhSeedPlace, i);
}

LhSeedPlace *lh_seed_places_find(LhSeedPlaces *places, const LhPoolNode *node)
{
    guint at = GPOINTER_TO_UINT(g_hash_table_lookup(places->by_node, node));

    return at == 0 ? NULL : lh_seed_places_at(places, at - 1);
}

static gboolean is_better(const LhSeedPlace *a, const LhSeedPlace *b, gboolean group)
{
    gint64 mine = group ? a->groups : a->free, best = group ? b->groups : b->free;

    return mine != best ? mine < best : a->free + a->groups < b->free + b->groups;
}

LhSeedPlace *lh_seed_places_best(LhSeedPlaces *places, gboolean group, gint64 size,
                                 const char *avoid)
{
    LhSeedPlace *best = NULL;
    gboolean best_avoided = FALSE;

    for (guint i = 0; i < places->places->len; i++) {
        LhSeedPlace *place = lh_seed_places_at(places, i);
        gboolean avoided = avoid != NULL && strcmp(place->node->host->name, avoid) == 0;
        if (place->limit - place->held < size)
            continue;
        if (best == NULL || avoided < best_avoided ||
            (avoided == best_avoided && is_better(place, best, group))) {
            best = place;
            best_avoided = avoided;
        }
    }
    return best;
}

LhSeedPlace *lh_seed_places_fullest(LhSeedPlaces *places)
{
    LhSeedPlace *most = NULL;

    for (guint i = 0; i < places->places->len; i++) {
        LhSeedPlace *place = lh_seed_places_at(places, i);
        if (most == NULL || place->groups > most->groups)
            most = place;
    }
    return most;
}

void lh_seed_places_add(LhSeedPlace *place, gboolean group, gint64 size)
{
    place->held += size;
    if (group)
        place->groups += size;
    else
        place->free += size;
}

/* ---- levels ---- */

/* Of seeds without throttle; what it has stays, if people lower the limit. */
static gint64 room_of(const LhSeedPlace *place)
{
    gint64 room = place->limit == G_MAXINT64 ? G_MAXINT64
                                             : place->limit - (place->held - place->free);

    return MAX(room, place->free);
}

/* How many there are when everybody has at least @floor (of his own, or so) and no more than @level. */
static gint64 filled(const LhSeedPlaces *places, gint64 level, gboolean keep)
{
    gint64 sum = 0;

    for (guint i = 0; i < places->places->len; i++) {
        const LhSeedPlace *place = &g_array_index(places->places, LhSeedPlace, i);
        gint64 to = MIN(level, room_of(place));
        sum += keep ? MAX(place->free, to) : to;
    }
    return sum;
}

/* The highest level that @total fills. */
static gint64 level_of(const LhSeedPlaces *places, gint64 total, gboolean keep)
{
    gint64 low = 0, high = total;

    while (low < high) {
        gint64 middle = low + (high - low + 1) / 2;
        if (filled(places, middle, keep) <= total)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

static gint64 most_of(const LhSeedPlaces *places)
{
    gint64 most = 0;

    for (guint i = 0; i < places->places->len; i++)
        most = MAX(most, g_array_index(places->places, LhSeedPlace, i).free);
    return most;
}

/* The fewest that one with room for more would have. */
static gint64 least_of(const LhSeedPlaces *places, gint64 level)
{
    gint64 least = G_MAXINT64;

    for (guint i = 0; i < places->places->len; i++) {
        const LhSeedPlace *place = &g_array_index(places->places, LhSeedPlace, i);
        if (MAX(place->free, level) < room_of(place))
            least = MIN(least, MAX(place->free, level));
    }
    return least;
}

gint64 *lh_seed_places_surplus(const LhSeedPlaces *places, gint64 coming, gint64 threshold)
{
    gint64 total = coming, level, left, least;
    gint64 *surplus;

    for (guint i = 0; i < places->places->len; i++)
        total += g_array_index(places->places, LhSeedPlace, i).free;
    least = least_of(places, level_of(places, total, TRUE));
    if (least == G_MAXINT64 || most_of(places) - least <= threshold)
        return NULL;
    level = level_of(places, total, FALSE);
    left = total - filled(places, level, FALSE);
    surplus = g_new0(gint64, places->places->len);
    /* The ones that are left over stay with those that have more. */
    for (guint i = 0; i < places->places->len; i++) {
        const LhSeedPlace *place = &g_array_index(places->places, LhSeedPlace, i);
        gint64 most = MIN(level, room_of(place));
        if (place->free > most && left > 0 && room_of(place) > level) {
            most++;
            left--;
        }
        surplus[i] = MAX(0, place->free - most);
    }
    return surplus;
}
