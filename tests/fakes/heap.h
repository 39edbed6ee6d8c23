/*
 * How much of the heap is in use, for tests that count memory. Sanitizers and valgrind have heaps of
 * their own, which nobody counts: such a test asks first.
 */
#pragma once

#include <glib.h>
#include <malloc.h>

static inline gsize heap_bytes(void)
{
    struct mallinfo2 info = mallinfo2();
    return info.uordblks + info.hblkhd;
}

static inline gboolean heap_is_counted(void)
{
    gsize before = heap_bytes();
    g_autofree volatile char *block = g_malloc(1 << 20);
    block[0] = 1;
    return heap_bytes() > before;
}
