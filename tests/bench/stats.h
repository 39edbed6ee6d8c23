/* Samples of one quantity, and what can be said of them. Plain numbers; the unit is the caller's. */
#pragma once

#include <glib.h>

typedef GArray Samples; /* of double, in the order in which they were taken */

Samples *samples_new(void);
void samples_add(Samples *samples, double value);
/* @share 0.5: the median, 0.99: the value that 99 of 100 do not exceed (nearest rank). NAN: none. */
double samples_quantile(const Samples *samples, double share);
double samples_median(const Samples *samples);
double samples_max(const Samples *samples);
double samples_mean(const Samples *samples);

G_DEFINE_AUTOPTR_CLEANUP_FUNC(Samples, g_array_unref)
