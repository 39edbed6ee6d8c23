/*
 * Open addressing, place after place, at most seven eighths full. The first place of a name follows from the
 * order of the hashes, so a set grows by reading from one end to the other, without looking at a record. What
 * is taken out leaves no mark: what follows moves up, as far as its own first place allows.
 */
#include "base/name_set.h"

#include <string.h>

#define FIRST_PLACES 16

static const char *name_of(const LhNameSet *set, gconstpointer record)
{
    const char *name;
    memcpy(&name, (const char *)record + set->name_at, sizeof name);
    return name;
}

/* Never 0, which marks a free place. */
static guint32 hash_name(const char *name, gsize len)
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
    return MAX((guint32)(hash >> 32), 1);
}

static gsize first_place(const LhNameSet *set, guint32 hash)
{
    return (gsize)(((guint64)hash * set->places) >> 32);
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
    g_free(set->hashes);
    lh_name_set_init(set, set->name_at);
}

/* Where @name is, or where it would be put. */
static gsize find(const LhNameSet *set, guint32 hash, const char *name, gsize len)
{
    gsize place = first_place(set, hash);
    for (; set->hashes[place] != 0; place = next_place(set, place)) {
        if (set->hashes[place] != hash)
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
    gsize place = find(set, hash_name(name, len), name, len);
    return set->hashes[place] != 0 ? set->records[place] : NULL;
}

gpointer lh_name_set_get(const LhNameSet *set, const char *name)
{
    return lh_name_set_get_n(set, name, strlen(name));
}

static void resize(LhNameSet *set, gsize places)
{
    LhNameSet old = *set;
    set->places = places;
    set->records = g_new(gpointer, places);
    set->hashes = g_new0(guint32, places);
    for (gsize i = 0; i < old.places; i++) {
        if (old.hashes[i] == 0)
            continue;
        gsize place = first_place(set, old.hashes[i]);
        while (set->hashes[place] != 0)
            place = next_place(set, place);
        set->hashes[place] = old.hashes[i];
        set->records[place] = old.records[i];
    }
    g_free(old.records);
    g_free(old.hashes);
}

gpointer lh_name_set_find(const LhNameSet *set, const char *name, LhNamePlace *place)
{
    gsize len = strlen(name);
    *place = (LhNamePlace){.hash = hash_name(name, len)};
    if (set->places == 0)
        return NULL;
    place->at = find(set, place->hash, name, len);
    return set->hashes[place->at] != 0 ? set->records[place->at] : NULL;
}

void lh_name_set_put_at(LhNameSet *set, LhNamePlace place, gpointer record)
{
    if ((set->n + 1) * 8 > set->places * 7) {
        resize(set, MAX(FIRST_PLACES, set->places + set->places / 4));
        for (place.at = first_place(set, place.hash); set->hashes[place.at] != 0;)
            place.at = next_place(set, place.at);
    }
    set->n++;
    set->hashes[place.at] = place.hash;
    set->records[place.at] = record;
}

gpointer lh_name_set_put(LhNameSet *set, gpointer record)
{
    LhNamePlace place;
    gpointer before = lh_name_set_find(set, name_of(set, record), &place);
    if (before == NULL)
        lh_name_set_put_at(set, place, record);
    else
        set->records[place.at] = record;
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
    gsize hole = find(set, hash_name(name, len), name, len);
    if (set->hashes[hole] == 0)
        return NULL;
    gpointer taken = set->records[hole];
    for (gsize place = next_place(set, hole); set->hashes[place] != 0;
         place = next_place(set, place)) {
        if (!is_between(first_place(set, set->hashes[place]), hole, place))
            continue;
        set->hashes[hole] = set->hashes[place];
        set->records[hole] = set->records[place];
        hole = place;
    }
    set->hashes[hole] = 0;
    set->n--;
    /* Still less than full: a record that comes and goes must not make it grow and shrink in turns. */
    if (set->places > FIRST_PLACES && set->n * 4 < set->places)
        resize(set, MAX(FIRST_PLACES, set->places / 2));
    return taken;
}

gpointer lh_name_set_next(const LhNameSet *set, gsize *at)
{
    while (*at < set->places) {
        gsize place = (*at)++;
        if (set->hashes[place] != 0)
            return set->records[place];
    }
    return NULL;
}
