/*
 * The bump allocator under decoded replies: a list of chunks, each twice the size of the one before
 * it up to 4 MiB.
 *
 * It frees nothing by itself and knows nothing of what is stored in it.
 */
#include "etcd/arena.h"

#include <string.h>

#define FIRST_CHUNK_BYTES   1024
#define LARGEST_CHUNK_BYTES (4 * 1024 * 1024)

struct LhArenaChunk {
    LhArenaChunk *next;
    guint64 data[]; /* 8-byte alignment */
};

static void add_chunk(LhArena *arena, gsize need)
{
    gsize size = CLAMP(arena->next_bytes, FIRST_CHUNK_BYTES, LARGEST_CHUNK_BYTES);
    arena->next_bytes = size * 2;
    size = MAX(size, need);
    LhArenaChunk *chunk = g_malloc(sizeof *chunk + size);
    chunk->next = arena->chunks;
    arena->chunks = chunk;
    arena->at = (guint8 *)chunk->data;
    arena->end = arena->at + size;
}

gpointer lh_arena_alloc(LhArena *arena, gsize size)
{
    gsize need = (size + 1 + 7) & ~(gsize)7;
    g_assert(need > size);
    if ((gsize)(arena->end - arena->at) < need)
        add_chunk(arena, need);
    guint8 *block = arena->at;
    arena->at += need;
    block[size] = 0;
    return block;
}

gpointer lh_arena_alloc0(LhArena *arena, gsize size)
{
    return memset(lh_arena_alloc(arena, size), 0, size);
}

char *lh_arena_copy(LhArena *arena, const void *data, gsize len)
{
    char *copy = lh_arena_alloc(arena, len);
    if (len > 0)
        memcpy(copy, data, len);
    return copy;
}

void lh_arena_clear(LhArena *arena)
{
    LhArenaChunk *next = NULL;
    for (LhArenaChunk *chunk = arena->chunks; chunk != NULL; chunk = next) {
        next = chunk->next;
        g_free(chunk);
    }
    *arena = (LhArena){0};
}
