/* See seed_places.h. */
#include "controllers/seed_places.h"

#include <string.h>

/* Of what a manager has: totals may differ by one part. HDFS has the same: its balancer bears 10 % by default. */
#define BORNE_PART 10

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

void lh_seed_places_add(LhSeedPlace *place, gboolean group, gint64 size)
{
    place->held += size;
    if (group)
        place->groups += size;
    else
        place->free += size;
}

LhSeedBorne lh_seed_places_borne(const LhSeedPlaces *places, gint64 threshold)
{
    gint64 sum = 0;

    for (guint i = 0; i < places->places->len; i++) {
        const LhSeedPlace *place = &g_array_index(places->places, LhSeedPlace, i);
        sum += place->free + place->groups;
    }
    return (LhSeedBorne){
        .free = threshold,
        .totals = MAX(threshold, sum / (BORNE_PART * MAX(places->places->len, 1))),
    };
}

/* Of seeds without throttle; what it has stays, if people lower the limit. */
static gint64 room_of(const LhSeedPlace *place)
{
    gint64 room = place->limit == G_MAXINT64 ? G_MAXINT64
                                             : place->limit - (place->held - place->free);

    return MAX(room, place->free);
}

/* ---- where the next ones go ---- */

/* Without the one more that some have: who has it, the groups decide, not it the groups. */
static gint64 lasting(const LhSeedPlace *place)
{
    return place->groups + MIN(place->base, room_of(place));
}

static gboolean is_better(const LhSeedPlace *a, const LhSeedPlace *b, gboolean group)
{
    gint64 mine = group ? lasting(a) : a->free, best = group ? lasting(b) : b->free;

    return mine != best ? mine < best : a->free + a->groups < b->free + b->groups;
}

LhSeedPlace *lh_seed_places_best(LhSeedPlaces *places, const LhSeedWish *wish)
{
    LhSeedPlace *best = NULL;
    gboolean best_avoided = FALSE;

    for (guint i = 0; i < places->places->len; i++) {
        LhSeedPlace *place = lh_seed_places_at(places, i);
        gboolean avoided = wish->avoid != NULL && strcmp(place->node->host->name, wish->avoid) == 0;
        gint64 needs = wish->size - (place == wish->home ? wish->home_held : 0);
        if (place->limit - place->held < needs)
            continue;
        if (best == NULL || avoided < best_avoided ||
            (avoided == best_avoided && is_better(place, best, wish->group))) {
            best = place;
            best_avoided = avoided;
        }
    }
    return best;
}

/* ---- levels ---- */

/* How many there are when everybody has @level, or what it has (@keep: and has more), or what it has room for. */
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

/* The most that one has, less the fewest that one with room for more would have, is over @threshold. */
static gboolean differ(const LhSeedPlaces *places, gint64 level, gint64 threshold)
{
    gint64 least = G_MAXINT64, most = 0;

    for (guint i = 0; i < places->places->len; i++) {
        const LhSeedPlace *place = &g_array_index(places->places, LhSeedPlace, i);
        gint64 has = MAX(place->free, level);
        most = MAX(most, place->free);
        if (has < room_of(place))
            least = MIN(least, has);
    }
    return least < G_MAXINT64 && most - least > threshold;
}

gint64 lh_seed_place_total(const LhSeedPlace *place)
{
    return place->groups + place->target;
}

/* Who is to have one more: first those that have it, then those with the fewest seeds in all. */
static LhSeedPlace *next_of_rest(LhSeedPlaces *places, gint64 level)
{
    LhSeedPlace *best = NULL;
    gboolean best_has = FALSE;

    for (guint i = 0; i < places->places->len; i++) {
        LhSeedPlace *place = lh_seed_places_at(places, i);
        gboolean has = place->free > place->even;
        if (place->even != level || room_of(place) <= level)
            continue;
        if (best == NULL || has > best_has || (has == best_has && place->groups < best->groups)) {
            best = place;
            best_has = has;
        }
    }
    return best;
}

static gint by_target(gconstpointer a, gconstpointer b)
{
    const LhSeedPlace *x = *(LhSeedPlace *const *)a, *y = *(LhSeedPlace *const *)b;

    return (x->target > y->target) - (x->target < y->target);
}

/* From one that has more without throttle to one that has fewer: those stay as even as they are. Of all such
 * pairs the one whose totals differ most. @order: the places, in any order. */
static gboolean swap_one(GPtrArray *order, gint64 threshold)
{
    LhSeedPlace *from = NULL, *to = NULL, *low = NULL, *next = NULL; /* next: of this target */
    gint64 most = threshold;

    g_ptr_array_sort(order, by_target);
    for (guint i = 0; i < order->len; i++) {
        LhSeedPlace *place = order->pdata[i];
        if (i > 0 && place->target > ((LhSeedPlace *)order->pdata[i - 1])->target)
            low = next;
        if (low != NULL && lh_seed_place_total(place) - lh_seed_place_total(low) > most) {
            from = place;
            to = low;
            most = lh_seed_place_total(from) - lh_seed_place_total(to);
        }
        if (room_of(place) > place->target &&
            (next == NULL || lh_seed_place_total(place) < lh_seed_place_total(next)))
            next = place;
    }
    if (from == NULL)
        return FALSE;
    from->target--;
    to->target++;
    return TRUE;
}

static void swap_all(LhSeedPlaces *places, gint64 threshold)
{
    g_autoptr(GPtrArray) order = g_ptr_array_new();

    for (guint i = 0; i < places->places->len; i++)
        g_ptr_array_add(order, lh_seed_places_at(places, i));
    while (swap_one(order, threshold))
        continue;
}

gboolean lh_seed_places_level(LhSeedPlaces *places, gint64 coming, const LhSeedBorne *borne,
                              gboolean move)
{
    gint64 total = coming, level, keep, left;
    gboolean uneven, any = FALSE;

    for (guint i = 0; i < places->places->len; i++)
        total += lh_seed_places_at(places, i)->free;
    keep = level_of(places, total, TRUE);
    uneven = move && differ(places, keep, borne->free);
    level = level_of(places, total, FALSE);
    left = total - filled(places, uneven ? level : keep, !uneven);
    for (guint i = 0; i < places->places->len; i++) {
        LhSeedPlace *place = lh_seed_places_at(places, i);
        gint64 to = MIN(uneven ? level : keep, room_of(place));
        place->even = uneven ? to : MAX(place->free, to);
    }
    for (; left > 0; left--) {
        LhSeedPlace *place = next_of_rest(places, uneven ? level : keep);
        if (place == NULL)
            break;
        place->even++;
    }
    for (guint i = 0; i < places->places->len; i++) {
        LhSeedPlace *place = lh_seed_places_at(places, i);
        place->target = place->even;
        any = any || place->free > place->even;
    }
    if (move)
        swap_all(places, borne->totals);
    for (guint i = 0; i < places->places->len; i++) {
        LhSeedPlace *place = lh_seed_places_at(places, i);
        place->base = move ? MIN(place->target, level) : place->target;
    }
    return any;
}

/* ---- groups that move ---- */

gint64 lh_seed_places_gain(const LhSeedPlace *from, const LhSeedPlace *to, gint64 size)
{
    gint64 gap = MIN(lh_seed_place_total(from) - lh_seed_place_total(to),
                     lasting(from) - lasting(to));

    return MIN(size, gap - size);
}

LhSeedPlace *lh_seed_places_relief(LhSeedPlaces *places, const LhSeedPlace *from, gint64 size,
                                   const LhSeedBorne *borne)
{
    LhSeedPlace *best = NULL;

    for (guint i = 0; !from->takes && i < places->places->len; i++) {
        LhSeedPlace *place = lh_seed_places_at(places, i);
        gint64 taken = place->held + MAX(0, place->target - place->free);
        if (place == from || place->gives || place->limit - taken < size)
            continue;
        if (best == NULL || lasting(place) < lasting(best) ||
            (lasting(place) == lasting(best) &&
             lh_seed_place_total(place) < lh_seed_place_total(best)))
            best = place;
    }
    if (best == NULL || lh_seed_place_total(from) - lh_seed_place_total(best) <= borne->totals ||
        lh_seed_places_gain(from, best, size) <= 0)
        return NULL;
    return best;
}

void lh_seed_places_move(LhSeedPlace *from, LhSeedPlace *to, gint64 size)
{
    from->groups -= size;
    from->gives = TRUE;
    lh_seed_places_add(to, TRUE, size);
    to->takes = TRUE;
}
