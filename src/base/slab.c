/*
 * Blocks of one size in aligned chunks: the chunk of a block is found by its address. A chunk with room
 * is in the list of its size; one that is full is in no list, and comes back with its first free block.
 */
#include "base/slab.h"

#include <stdlib.h>

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(memory_sanitizer)
#define PLAIN_MALLOC 1
#endif
#endif
#ifdef __SANITIZE_ADDRESS__
#define PLAIN_MALLOC 1
#endif

#ifdef PLAIN_MALLOC

gpointer lh_slab_alloc(G_GNUC_UNUSED LhSlab *slab, gsize size)
{
    g_assert(size > 0 && size <= LH_SLAB_MAX_BYTES);
    return g_malloc(size);
}

void lh_slab_free(gpointer block)
{
    g_free(block);
}

void lh_slab_clear(G_GNUC_UNUSED LhSlab *slab)
{
}

#else

#define CHUNK_ALIGN 16384
/* Less than the alignment by what malloc puts before a block: so the next chunk fits right behind. */
#define CHUNK_BYTES (CHUNK_ALIGN - 16)

typedef struct Free Free;
struct Free {
    Free *next;
};

struct LhSlabChunk {
    LhSlabChunk *next, **link; /* the list of chunks with room; link NULL: in no list */
    LhSlab *slab;
    Free *free;
    guint16 size;     /* of a block */
    guint16 capacity; /* blocks */
    guint16 used;     /* blocks in use */
    guint16 touched;  /* blocks that were ever used: those behind are in no list */
    guint64 blocks[];
};

static void open_chunk(LhSlabChunk *chunk)
{
    LhSlabChunk **list = &chunk->slab->open[chunk->size / 8 - 1];

    chunk->next = *list;
    chunk->link = list;
    if (chunk->next != NULL)
        chunk->next->link = &chunk->next;
    *list = chunk;
}

static void close_chunk(LhSlabChunk *chunk)
{
    *chunk->link = chunk->next;
    if (chunk->next != NULL)
        chunk->next->link = chunk->link;
    chunk->link = NULL;
}

static LhSlabChunk *new_chunk(LhSlab *slab, gsize size)
{
    LhSlabChunk *chunk = aligned_alloc(CHUNK_ALIGN, CHUNK_BYTES);

    g_assert(chunk != NULL); /* as g_malloc: without memory there is no going on */
    *chunk = (LhSlabChunk){.slab = slab,
                           .size = (guint16)size,
                           .capacity = (guint16)((CHUNK_BYTES - sizeof *chunk) / size)};
    open_chunk(chunk);
    return chunk;
}

gpointer lh_slab_alloc(LhSlab *slab, gsize size)
{
    g_assert(size > 0 && size <= LH_SLAB_MAX_BYTES);
    gsize rounded = (size + 7) & ~(gsize)7;
    LhSlabChunk *chunk = slab->open[rounded / 8 - 1];
    if (chunk == NULL)
        chunk = new_chunk(slab, rounded);
    gpointer block = chunk->free;
    if (block != NULL)
        chunk->free = chunk->free->next;
    else
        block = (guint8 *)chunk->blocks + rounded * chunk->touched++;
    if (++chunk->used == chunk->capacity)
        close_chunk(chunk);
    return block;
}

void lh_slab_free(gpointer block)
{
    if (block == NULL)
        return;
    LhSlabChunk *chunk = (LhSlabChunk *)((guintptr)block & ~(guintptr)(CHUNK_ALIGN - 1));
    Free *head = block;
    head->next = chunk->free;
    chunk->free = head;
    if (chunk->link == NULL)
        open_chunk(chunk);
    /* The only chunk with room stays: else one block that comes and goes would cost a chunk each time. */
    if (--chunk->used == 0 &&
        (chunk->next != NULL || chunk->slab->open[chunk->size / 8 - 1] != chunk)) {
        close_chunk(chunk);
        free(chunk);
    }
}

void lh_slab_clear(LhSlab *slab)
{
    for (guint i = 0; i < G_N_ELEMENTS(slab->open); i++) {
        LhSlabChunk *next = NULL;
        for (LhSlabChunk *chunk = slab->open[i]; chunk != NULL; chunk = next) {
            next = chunk->next;
            if (chunk->used == 0) {
                close_chunk(chunk);
                free(chunk);
            }
        }
    }
}

#endif
