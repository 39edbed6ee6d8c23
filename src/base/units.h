/*
 * Durations, sizes, times and names as people write them. Pure; any thread.
 *
 * Durations are milliseconds: "90s", "15m", "24h", "7d", "2w", "1d12h", "500ms", "0s"; units must
 * descend. Sizes are bytes: 1000, "500M" (10^6), "15Gi" (2^30); K M G T P and Ki Mi Gi Ti Pi.
 * Times are epoch milliseconds; text is RFC 3339 (any offset and 0 to 9 digits of fraction read,
 * the digits after the third cut off; UTC with three digits written). All results are within
 * 0..2^53-1 (times: years 1970 to 9998).
 */
#pragma once

#include <glib.h>

gboolean lh_duration_parse(const char *text, gint64 *out_ms, GError **error);
/* Exact: "1d12h", "1m30s"; 0 is "0s"; weeks only when there is nothing else, and from "2w" on; "-"
 * first when negative. Free with g_free. */
char *lh_duration_format(gint64 ms);

gboolean lh_size_parse(const char *text, gint64 *out_bytes, GError **error);
/* For people: "14.5 GiB", "15 GiB", "512 B". Free with g_free. */
char *lh_size_format(gint64 bytes);

gboolean lh_time_parse(const char *text, gint64 *out_ms, GError **error);
/* "2026-05-01T12:00:00.000Z"; what lies outside the range is clamped to it. Free with g_free. */
char *lh_time_format(gint64 epoch_ms);

/* @text with spaces after it, at least one, so that it fills @width characters (not bytes). Free with
 * g_free. */
char *lh_text_pad(const char *text, glong width);

/* CONTRACT.md, section 1: letters, digits, '.', '_', '-'; first and last a letter or digit. */
gboolean lh_name_valid(const char *name, gsize max_len);
/* Pools and replica sets: [a-z0-9-]{1,63}. */
gboolean lh_pool_name_valid(const char *name);
