/* See partition_history.h. */
#include "controllers/partition_history.h"

#include "base/planted.h"

#include <string.h>

#define MARGIN_MAX_MS  60000
#define VALUE_MAX      (60 * 1024) /* of 64 KiB: the rest is for escapes and braces */
#define INTERVAL_BYTES 96          /* an interval without partitions, with its times */

gint64 lh_partition_margin_ms(gint64 cutover_ms)
{
    return MIN(MARGIN_MAX_MS, cutover_ms / 2);
}

guint lh_partition_running(const LhArray *history, gint64 now_ms, gint64 cutover_ms)
{
    const LhPartitionInterval *last = lh_array_at(history, history->n - 1);

    if (history->n > 1 &&
        (last->start > now_ms + lh_partition_margin_ms(cutover_ms) || LH_BUG(PARTITION_PAST)))
        return history->n - 2;
    return history->n - 1;
}

static gint compare_names(gconstpointer a, gconstpointer b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

gboolean lh_partition_same(const char *const *a, const char *const *b)
{
    guint n = g_strv_length((GStrv)a);
    g_autofree const char **x = NULL, **y = NULL;

    if (n != g_strv_length((GStrv)b))
        return FALSE;
    x = g_memdup2(a, (n + 1) * sizeof *a);
    y = g_memdup2(b, (n + 1) * sizeof *b);
    qsort(x, n, sizeof *x, compare_names);
    qsort(y, n, sizeof *y, compare_names);
    for (guint i = 0; i < n; i++)
        if (strcmp(x[i], y[i]) != 0)
            return FALSE;
    return TRUE;
}

gsize lh_partition_interval_bytes(const char *const *partitions)
{
    gsize bytes = INTERVAL_BYTES;

    for (guint i = 0; partitions[i] != NULL; i++)
        bytes += strlen(partitions[i]) + 3; /* quotes and comma */
    return bytes;
}

/* Without what nobody needs any more, or has room for; never the running one or what comes after it. */
static void forget_old(GArray *history, guint running, const LhPartitionTimes *times)
{
    gsize bytes = 0;
    guint first = 0;

    for (guint i = 0; i < history->len; i++)
        bytes += lh_partition_interval_bytes(
            g_array_index(history, LhPartitionInterval, i).partitions);
    while (first < running) {
        const LhPartitionInterval *oldest = &g_array_index(history, LhPartitionInterval, first);
        if (oldest->end >= times->now_ms - times->keep_ms && bytes <= VALUE_MAX)
            break;
        bytes -= lh_partition_interval_bytes(oldest->partitions);
        first++;
    }
    if (first > 0)
        g_array_remove_range(history, 0, first);
}

GArray *lh_partition_history(const LhArray *present, const char *const *partitions,
                             const LhPartitionTimes *times)
{
    GArray *history = g_array_new(FALSE, FALSE, sizeof(LhPartitionInterval));
    LhPartitionInterval next = {.start = times->now_ms, .end = -1, .partitions = partitions};
    LhPartitionInterval *last;
    guint running;

    if (present == NULL || present->n == 0) {
        g_array_append_val(history, next);
        return history;
    }
    running = lh_partition_running(present, times->now_ms, times->cutover_ms);
    g_array_append_vals(history, present->items, running + 1);
    last = &g_array_index(history, LhPartitionInterval, running);
    if (lh_partition_same(last->partitions, partitions)) {
        last->end = -1;
    } else {
        next.start = MAX(times->now_ms + times->cutover_ms, last->start + 1);
        last->end = next.start;
        g_array_append_val(history, next);
    }
    forget_old(history, running, times);
    return history;
}
