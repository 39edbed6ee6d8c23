/*
 * The allocator's knobs, where it has any (glibc); elsewhere nothing.
 */
#include "base/memory.h"

#include <stdlib.h>
#ifdef __GLIBC__
#include <malloc.h>
/* What is larger is mapped alone, and goes back to the system as a whole: pages of a list, tables that have
 * grown. Left to itself glibc raises this to 32 MiB, and what lives long comes to lie between such blocks. */
#define MAP_BYTES  (512 * 1024)
#define TRIM_BYTES (8 * 1024 * 1024) /* kept at the end of the heap */
#endif

void lh_memory_init(void)
{
#ifdef __GLIBC__
    mallopt(M_ARENA_MAX, 1);
    mallopt(M_MMAP_THRESHOLD, MAP_BYTES);
    mallopt(M_TRIM_THRESHOLD, TRIM_BYTES);
#endif
}

void lh_memory_trim(void)
{
#ifdef __GLIBC__
    malloc_trim(0);
#endif
}
