/* Quantiles of a handful of samples: sorted each time, nearest rank, nothing estimated. */
#include "stats.h"

#include <math.h>

Samples *samples_new(void)
{
    return g_array_new(FALSE, FALSE, sizeof(double));
}

void samples_add(Samples *samples, double value)
{
    g_array_append_val(samples, value);
}

static gint by_value(gconstpointer a, gconstpointer b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

double samples_quantile(const Samples *samples, double share)
{
    g_autoptr(GArray) sorted = g_array_copy((GArray *)samples);
    guint rank;

    if (sorted->len == 0)
        return NAN;
    g_array_sort(sorted, by_value);
    rank = (guint)ceil(share * sorted->len);
    return g_array_index(sorted, double, CLAMP(rank, 1, sorted->len) - 1);
}

/* Of an even number: between the two in the middle. */
double samples_median(const Samples *samples)
{
    double low = samples_quantile(samples, 0.5);
    g_autoptr(GArray) sorted = g_array_copy((GArray *)samples);

    if (sorted->len == 0 || sorted->len % 2 != 0)
        return low;
    g_array_sort(sorted, by_value);
    return (low + g_array_index(sorted, double, sorted->len / 2)) / 2;
}

double samples_max(const Samples *samples)
{
    return samples_quantile(samples, 1);
}

double samples_mean(const Samples *samples)
{
    double sum = 0;

    for (guint i = 0; i < samples->len; i++)
        sum += g_array_index(samples, double, i);
    return samples->len == 0 ? NAN : sum / samples->len;
}
