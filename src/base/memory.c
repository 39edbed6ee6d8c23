/*
 * The allocator's knobs, where it has any (glibc); elsewhere nothing.
 */
#include "base/memory.h"

#include <stdlib.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif

void lh_memory_init(void)
{
#ifdef __GLIBC__
    mallopt(M_ARENA_MAX, 1);
#endif
}

void lh_memory_trim(void)
{
#ifdef __GLIBC__
    malloc_trim(0);
#endif
}
