/*
 * Builds an object in one block of memory: the struct, then arrays, then strings. Private to api/.
 *
 * While it is built nothing has an address yet: a place is an offset into the words (the struct and
 * all arrays, 8-byte aligned), strings are packed into a second area, and every pointer is noted as
 * a place to mend. lh_builder_finish() copies both areas into one block and mends the pointers.
 * Nothing that a half-built object holds needs to be released: atoms are interned only at the end.
 */
#pragma once

#include "api/object.h"
#include "base/slab.h"

#define LH_BUILDER_INLINE 1024

typedef struct {
    guint8 *data;
    gsize len, cap;
    guint64 room[LH_BUILDER_INLINE / sizeof(guint64)]; /* until it grows beyond */
} LhBuilderArea;

typedef struct {
    LhBuilderArea words, chars;
    gsize spare_end, spare; /* see lh_builder_spare */
    LhBuilderArea mends;    /* of guint32: places of pointers in words */
    LhBuilderArea
        atoms; /* of guint32: places in words of strings to intern, each with its length */
} LhBuilder;

void lh_builder_init(LhBuilder *b);
void lh_builder_clear(LhBuilder *b); /* also after lh_builder_finish */

/* Room for @size bytes (a multiple of 8), zeroed; returns its place. The first call is the struct.
 */
guint32 lh_builder_words(LhBuilder *b, gsize size);
/* The last @n bytes of the words are padding: strings may lie there, if no more words follow. */
void lh_builder_spare(LhBuilder *b, gsize n);
/* The words at a place; valid until the next lh_builder_words. */
gpointer lh_builder_at(LhBuilder *b, guint32 place);

/* Sets the pointer at @place: to a copy of a string; to words; to memory that outlives the object.
 */
void lh_builder_set_string(LhBuilder *b, guint32 place, const char *text, gsize len);
void lh_builder_set_words(LhBuilder *b, guint32 place, guint32 target);
void lh_builder_set_static(LhBuilder *b, guint32 place, const void *target);
/* The same as lh_builder_set_string; stored once when it equals the very first string that was set. */
void lh_builder_set_shared(LhBuilder *b, guint32 place, const char *text, gsize len);
/* To an atom. @text need not be terminated, and must stay valid until lh_builder_finish. */
void lh_builder_set_atom(LhBuilder *b, guint32 place, const char *text, gsize len);

/* The block, of @slab when it is small enough (*in_slab), else of g_malloc; free it there after its atoms
 * were released (lh_codec_release). */
gpointer lh_builder_finish(LhBuilder *b, LhSlab *slab, gboolean *in_slab);
