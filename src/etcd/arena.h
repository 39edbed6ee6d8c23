/*
 * Memory that is freed as a whole: what one decoded reply is made of.
 *
 * Not thread-safe, but an arena may be handed from one thread to another. A byte after each block is
 * zero, so bytes copied into a block of their own length are NUL-terminated.
 */
#pragma once

#include <glib.h>

typedef struct LhArenaChunk LhArenaChunk;

/* All zero is an empty arena. */
typedef struct {
    LhArenaChunk *chunks;
    guint8 *at, *end;
    gsize next_bytes; /* of the next chunk; a hint may be set before the first block */
} LhArena;

/* Aligned to 8, not cleared (but for the byte after it). @size 0 gives a valid pointer. */
gpointer lh_arena_alloc(LhArena *arena, gsize size);
gpointer lh_arena_alloc0(LhArena *arena, gsize size);
/* A NUL-terminated copy. */
char *lh_arena_copy(LhArena *arena, const void *data, gsize len);
/* Frees everything; the arena is empty and usable again. */
void lh_arena_clear(LhArena *arena);
