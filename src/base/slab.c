/*
 * Blocks of one size in aligned chunks: the chunk of a block is found by its address. A chunk with room
 * is in the list of its size; one that is full is in no list, and comes back with its first free block; an
 * empty one is spare, for any size. Chunks come and go in regions.
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

#define CHUNK_ALIGN   16384
#define REGION_CHUNKS 64
/* Less than the alignment by what malloc puts before a block: so the next region fits right behind. */
#define CHUNK_BYTES   (CHUNK_ALIGN - 16)

typedef struct Free Free;
struct Free {
    Free *next;
};

/* Chunks are asked for in large numbers: each alone, among other blocks, would leave a hole. */
struct LhSlabRegion {
    guint8 *memory;
    guint used;    /* chunks with blocks in use, or kept open */
    guint touched; /* chunks that were ever used: those behind are in no list */
};

struct LhSlabChunk {
    LhSlabChunk *next,
        **link; /* the list of those with room, or of spare ones; link NULL: in none */
    LhSlab *slab;
    LhSlabRegion *region;
    Free *free;
    guint16 size;     /* of a block */
    guint16 capacity; /* blocks */
    guint16 used;     /* blocks in use */
    guint16 touched;  /* blocks that were ever used: those behind are in no list */
    guint64 blocks[];
};

static void put_into(LhSlabChunk **list, LhSlabChunk *chunk)
{
    chunk->next = *list;
    chunk->link = list;
    if (chunk->next != NULL)
        chunk->next->link = &chunk->next;
    *list = chunk;
}

static void take_out(LhSlabChunk *chunk)
{
    *chunk->link = chunk->next;
    if (chunk->next != NULL)
        chunk->next->link = chunk->link;
    chunk->link = NULL;
}

static LhSlabChunk *chunk_of(LhSlabRegion *region, guint i)
{
    return (LhSlabChunk *)(region->memory + (gsize)i * CHUNK_ALIGN);
}

static LhSlabChunk *untouched_chunk(LhSlab *slab)
{
    if (slab->region == NULL || slab->region->touched == REGION_CHUNKS) {
        slab->region = g_new0(LhSlabRegion, 1);
        void *memory = NULL;
        int failed = posix_memalign(&memory, CHUNK_ALIGN, REGION_CHUNKS * CHUNK_ALIGN - 16);
        g_assert(failed == 0); /* as g_malloc: without memory there is no going on */
        slab->region->memory = memory;
    }
    LhSlabChunk *chunk = chunk_of(slab->region, slab->region->touched++);
    chunk->region = slab->region;
    return chunk;
}

static LhSlabChunk *new_chunk(LhSlab *slab, gsize size)
{
    LhSlabChunk *chunk = slab->spare;
    if (chunk != NULL)
        take_out(chunk);
    else
        chunk = untouched_chunk(slab);
    *chunk = (LhSlabChunk){.slab = slab,
                           .region = chunk->region,
                           .size = (guint16)size,
                           .capacity = (guint16)((CHUNK_BYTES - sizeof *chunk) / size)};
    chunk->region->used++;
    put_into(&slab->open[size / 8 - 1], chunk);
    return chunk;
}

static void free_region(LhSlabRegion *region)
{
    for (guint i = 0; i < region->touched; i++)
        take_out(chunk_of(region, i)); /* all are spare */
    free(region->memory);
    g_free(region);
}

/* It is empty. */
static void drop_chunk(LhSlabChunk *chunk)
{
    LhSlabRegion *region = chunk->region;
    LhSlab *slab = chunk->slab;
    take_out(chunk);
    put_into(&slab->spare, chunk);
    if (--region->used == 0 && region != slab->region)
        free_region(region);
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
        take_out(chunk);
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
        put_into(&chunk->slab->open[chunk->size / 8 - 1], chunk);
    /* The only chunk with room stays: else one block that comes and goes would cost a chunk each time. */
    if (--chunk->used == 0 &&
        (chunk->next != NULL || chunk->slab->open[chunk->size / 8 - 1] != chunk))
        drop_chunk(chunk);
}

void lh_slab_clear(LhSlab *slab)
{
    for (guint i = 0; i < G_N_ELEMENTS(slab->open); i++) {
        LhSlabChunk *next = NULL;
        for (LhSlabChunk *chunk = slab->open[i]; chunk != NULL; chunk = next) {
            next = chunk->next;
            if (chunk->used == 0)
                drop_chunk(chunk);
        }
    }
    if (slab->region != NULL && slab->region->used == 0)
        g_clear_pointer(&slab->region, free_region);
}

#endif
