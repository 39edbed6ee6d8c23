/*
 * Open addressing, place after place, at most five sixths full. What is taken out leaves no mark: what
 * follows moves up, as far as its own first place allows.
 */
#include "base/name_set.h"

#include <string.h>

#define FIRST_PLACES 16
#define AHEAD        16 /* places, for memory to arrive in time */

typedef struct {
    gsize first;
    guint8 tag;
} Place;

static const char *name_of(const LhNameSet *set, gconstpointer record)
{
    const char *name;
    memcpy(&name, (const char *)record + set->name_at, sizeof name);
    return name;
}

static guint64 hash_name(const char *name, gsize len)
{
    const guint64 odd = G_GUINT64_CONSTANT(0x9e3779b97f4a7c15);
    guint64 hash = len * odd, word = 0;
    for (; len >= sizeof word; len -= sizeof word, name += sizeof word) {
        memcpy(&word, name, sizeof word);
        hash = (hash ^ word) * odd;
        hash ^= hash >> 32;
    }
    word = 0;
    memcpy(&word, name, len);
    hash = (hash ^ word) * odd;
    hash = (hash ^ hash >> 32) * odd;
    return hash ^ hash >> 29;
}

static Place place_of(const LhNameSet *set, const char *name, gsize len)
{
    guint64 hash = hash_name(name, len);
    return (Place){.first = (gsize)(((hash >> 32) * set->places) >> 32),
                   .tag = (guint8)(1 + (hash & 0xffff) % 255)};
}

static gsize next_place(const LhNameSet *set, gsize place)
{
    return place + 1 < set->places ? place + 1 : 0;
}

void lh_name_set_init(LhNameSet *set, gsize name_at)
{
    *set = (LhNameSet){.name_at = name_at};
}

void lh_name_set_clear(LhNameSet *set)
{
    g_free(set->records);
    g_free(set->tags);
    lh_name_set_init(set, set->name_at);
}

/* Where @name is, or where it would be put. */
static gsize find(const LhNameSet *set, Place where, const char *name, gsize len)
{
    gsize place = where.first;
    for (; set->tags[place] != 0; place = next_place(set, place)) {
        if (set->tags[place] != where.tag)
            continue;
        const char *other = name_of(set, set->records[place]);
        if (strncmp(other, name, len) == 0 && other[len] == '\0')
            return place;
    }
    return place;
}

gpointer lh_name_set_get_n(const LhNameSet *set, const char *name, gsize len)
{
    if (set->n == 0)
        return NULL;
    gsize place = find(set, place_of(set, name, len), name, len);
    return set->tags[place] != 0 ? set->records[place] : NULL;
}

gpointer lh_name_set_get(const LhNameSet *set, const char *name)
{
    return lh_name_set_get_n(set, name, strlen(name));
}

/* Records and names lie anywhere: without this each costs two waits for memory. */
static void fetch_ahead(const LhNameSet *set, gsize at)
{
    if (at + 2 * AHEAD < set->places && set->tags[at + 2 * AHEAD] != 0)
        __builtin_prefetch((const char *)set->records[at + 2 * AHEAD] + set->name_at);
    if (at + AHEAD < set->places && set->tags[at + AHEAD] != 0)
        __builtin_prefetch(name_of(set, set->records[at + AHEAD]));
}

static void resize(LhNameSet *set, gsize places)
{
    LhNameSet old = *set;
    set->places = places;
    set->records = g_new(gpointer, places);
    set->tags = g_new0(guint8, places);
    for (gsize i = 0; i < old.places; i++) {
        fetch_ahead(&old, i);
        if (old.tags[i] == 0)
            continue;
        const char *name = name_of(&old, old.records[i]);
        gsize len = strlen(name);
        Place where = place_of(set, name, len);
        gsize place = where.first;
        while (set->tags[place] != 0)
            place = next_place(set, place);
        set->tags[place] = where.tag;
        set->records[place] = old.records[i];
    }
    g_free(old.records);
    g_free(old.tags);
}

gpointer lh_name_set_put(LhNameSet *set, gpointer record)
{
    const char *name = name_of(set, record);
    gsize len = strlen(name);
    if ((set->n + 1) * 6 > set->places * 5)
        resize(set, MAX(FIRST_PLACES, set->places + set->places / 2));
    Place where = place_of(set, name, len);
    gsize place = find(set, where, name, len);
    gpointer before = set->tags[place] != 0 ? set->records[place] : NULL;
    if (before == NULL)
        set->n++;
    set->tags[place] = where.tag;
    set->records[place] = record;
    return before;
}

/* Whether @place lies on the way from @first to @end, a free place behind both. */
static gboolean is_between(gsize first, gsize place, gsize end)
{
    return first <= end ? first <= place && place < end : first <= place || place < end;
}

gpointer lh_name_set_take(LhNameSet *set, const char *name)
{
    gsize len = strlen(name);
    if (set->n == 0)
        return NULL;
    gsize hole = find(set, place_of(set, name, len), name, len);
    if (set->tags[hole] == 0)
        return NULL;
    gpointer taken = set->records[hole];
    for (gsize place = next_place(set, hole); set->tags[place] != 0;
         place = next_place(set, place)) {
        const char *other = name_of(set, set->records[place]);
        if (!is_between(place_of(set, other, strlen(other)).first, hole, place))
            continue;
        set->tags[hole] = set->tags[place];
        set->records[hole] = set->records[place];
        hole = place;
    }
    set->tags[hole] = 0;
    set->n--;
    /* Half of what it may grow to again: a set that shrinks gives its memory back, without a record that
     * comes and goes making it grow and shrink in turns. */
    if (set->places > FIRST_PLACES && set->n * 4 < set->places)
        resize(set, MAX(FIRST_PLACES, set->places / 2));
    return taken;
}

gpointer lh_name_set_next(const LhNameSet *set, gsize *at)
{
    while (*at < set->places) {
        gsize place = (*at)++;
        if (set->tags[place] != 0)
            return set->records[place];
    }
    return NULL;
}
