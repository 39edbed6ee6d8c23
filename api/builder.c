/*
 * Builds an object in one block of memory; see the header.
 *
 * A pointer that is to be mended holds, until then, where it will point: an offset into its area,
 * times two, plus one for the strings. Areas start in the builder itself, so that objects of
 * ordinary size cost one allocation. It knows nothing of kinds and fields.
 */
#include "api/builder.h"

#include "api/atom.h"

#include <string.h>

static void area_init(LhBuilderArea *area)
{
    area->data = (guint8 *)area->room;
    area->len = 0;
    area->cap = sizeof area->room;
}

static void area_clear(LhBuilderArea *area)
{
    if (area->data != (guint8 *)area->room)
        g_free(area->data);
    area_init(area);
}

static guint8 *area_add(LhBuilderArea *area, gsize size)
{
    if (size > area->cap - area->len) {
        gsize cap = MAX(area->cap * 2, area->len + size);
        if (area->data == (guint8 *)area->room) {
            area->data = g_malloc(cap);
            memcpy(area->data, area->room, area->len);
        } else {
            area->data = g_realloc(area->data, cap);
        }
        area->cap = cap;
    }
    guint8 *added = area->data + area->len;
    area->len += size;
    return added;
}

static void note_place(LhBuilderArea *area, guint32 place)
{
    memcpy(area_add(area, sizeof place), &place, sizeof place);
}

void lh_builder_init(LhBuilder *b)
{
    area_init(&b->words);
    area_init(&b->chars);
    area_init(&b->mends);
    area_init(&b->atoms);
    b->spare_end = b->spare = 0;
}

void lh_builder_clear(LhBuilder *b)
{
    area_clear(&b->words);
    area_clear(&b->chars);
    area_clear(&b->mends);
    area_clear(&b->atoms);
}

guint32 lh_builder_words(LhBuilder *b, gsize size)
{
    g_assert(size % sizeof(gpointer) == 0 && b->words.len + size <= G_MAXUINT32 / 2);
    guint32 place = (guint32)b->words.len;
    memset(area_add(&b->words, size), 0, size);
    return place;
}

void lh_builder_spare(LhBuilder *b, gsize n)
{
    b->spare_end = b->words.len;
    b->spare = n;
}

gpointer lh_builder_at(LhBuilder *b, guint32 place)
{
    return b->words.data + place;
}

static void set_mended(LhBuilder *b, guint32 place, gsize offset, gsize in_chars)
{
    gsize value = offset * 2 + in_chars;
    memcpy(b->words.data + place, &value, sizeof value);
    note_place(&b->mends, place);
}

void lh_builder_set_string(LhBuilder *b, guint32 place, const char *text, gsize len)
{
    set_mended(b, place, b->chars.len, 1);
    char *copy = (char *)area_add(&b->chars, len + 1);
    memcpy(copy, text, len);
    copy[len] = '\0';
}

void lh_builder_set_shared(LhBuilder *b, guint32 place, const char *text, gsize len)
{
    const char *first = (const char *)b->chars.data;
    if (b->chars.len > len && memcmp(first, text, len) == 0 && first[len] == '\0')
        set_mended(b, place, 0, 1);
    else
        lh_builder_set_string(b, place, text, len);
}

void lh_builder_set_words(LhBuilder *b, guint32 place, guint32 target)
{
    set_mended(b, place, target, 0);
}

void lh_builder_set_static(LhBuilder *b, guint32 place, const void *target)
{
    memcpy(b->words.data + place, &target, sizeof target);
}

void lh_builder_set_atom(LhBuilder *b, guint32 place, const char *text, gsize len)
{
    lh_builder_set_static(b, place, text);
    note_place(&b->atoms, place);
    note_place(&b->atoms, (guint32)len);
}

static guint32 noted_place(const LhBuilderArea *area, gsize offset)
{
    guint32 place;
    memcpy(&place, area->data + offset, sizeof place);
    return place;
}

gpointer lh_builder_finish(LhBuilder *b, LhSlab *slab, gboolean *in_slab)
{
    gsize texts = b->words.len - (b->spare_end == b->words.len ? b->spare : 0);
    gsize size = MAX(b->words.len, texts + b->chars.len);
    *in_slab = size <= LH_SLAB_MAX_BYTES;
    char *block = *in_slab ? lh_slab_alloc(slab, size) : g_malloc(size);
    memcpy(block, b->words.data, b->words.len);
    memcpy(block + texts, b->chars.data, b->chars.len);
    for (gsize i = 0; i < b->mends.len; i += sizeof(guint32)) {
        char *at = block + noted_place(&b->mends, i);
        gsize value;
        memcpy(&value, at, sizeof value);
        const char *target = block + (value & 1) * texts + value / 2;
        memcpy(at, &target, sizeof target);
    }
    for (gsize i = 0; i < b->atoms.len; i += 2 * sizeof(guint32)) {
        char *at = block + noted_place(&b->atoms, i);
        const char *text;
        memcpy(&text, at, sizeof text);
        const char *atom = lh_atom_ref(text, noted_place(&b->atoms, i + sizeof(guint32)));
        memcpy(at, &atom, sizeof atom);
    }
    return block;
}
