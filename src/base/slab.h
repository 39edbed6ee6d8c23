/*
 * Memory for many small blocks that live long: no header for each, sizes rounded to 8 bytes only.
 *
 * Blocks of one size lie together in chunks of 16 KiB; a chunk whose blocks are all freed serves any size,
 * and 1 MiB of such chunks goes back to malloc. Not thread-safe: a slab belongs to one thread, and so do its blocks. Built for a sanitizer it
 * is plain malloc, so that errors are found as ever.
 */
#pragma once

#include <glib.h>

#define LH_SLAB_MAX_BYTES 512 /* the largest block */

typedef struct LhSlabChunk LhSlabChunk;
typedef struct LhSlabRegion LhSlabRegion;

/* All zero is an empty slab. The last chunk of a size stays for the next block, and the last region for the
 * next chunk, until lh_slab_clear. */
typedef struct {
    LhSlabChunk *open[LH_SLAB_MAX_BYTES / 8]; /* by size: chunks with room, a list */
    LhSlabChunk *spare;                       /* without blocks */
    LhSlabRegion *region;                     /* the last one: has untouched chunks */
} LhSlab;

/* Aligned to 8, not cleared. @size: 1 to LH_SLAB_MAX_BYTES. */
gpointer lh_slab_alloc(LhSlab *slab, gsize size);
/* To the slab that it came from. Accepts NULL. */
void lh_slab_free(gpointer block);
/* Frees what was kept; blocks in use are not touched. */
void lh_slab_clear(LhSlab *slab);
