/*
 * Of many cases alike, every so many-th: memcheck, 40 times slower, needs each path once. Its setup in
 * tests/meson.build sets LEASEHOLD_EVERY.
 */
#pragma once

#include <glib.h>

static inline guint every(void)
{
    const char *text = g_getenv("LEASEHOLD_EVERY");

    return text == NULL ? 1 : (guint)MAX(g_ascii_strtoull(text, NULL, 10), 1);
}
