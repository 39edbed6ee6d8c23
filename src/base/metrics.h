/*
 * A registry of counters, gauges and histograms, written as Prometheus text. Loop thread only.
 *
 * Names are given without the prefix: "reconcile_total" is exposed as leasehold_reconcile_total.
 * Labels are one string in Prometheus form without braces:
 * `controller="cache-assigner",result="ok"` (build it with lh_labels), NULL for none. A series
 * exists from its first use on (add 0 to show a counter early); a family without series is not
 * exposed. A family holds at most LH_METRICS_MAX_SERIES series: what would be one more is dropped
 * and counted in metrics_series_refused_total. Values we compute are never NaN (g_assert), except a
 * gauge's.
 */
#pragma once

#include <glib.h>

#define LH_METRICS_MAX_SERIES 10000

typedef struct LhMetrics LhMetrics;

LhMetrics *lh_metrics_new(void);
void lh_metrics_free(LhMetrics *metrics);

/* Declares a family: needed before use (g_assert otherwise), again is harmless. Copies all it is
 * given. @buckets: upper bounds in the metric's unit, ascending, ended by 0; NULL unless it is a
 * histogram. */
typedef enum { LH_COUNTER, LH_GAUGE, LH_HISTOGRAM } LhMetricType;
void lh_metrics_declare(LhMetrics *metrics, LhMetricType type, const char *name, const char *help,
                        const double *buckets);

void lh_counter_add(LhMetrics *metrics, const char *name, const char *labels, double by);
void lh_gauge_set(LhMetrics *metrics, const char *name, const char *labels, double value);
void lh_histogram_observe(LhMetrics *metrics, const char *name, const char *labels, double value);
/* Removes all series of a family (a fleet gauge when its leader steps down). */
void lh_metrics_drop(LhMetrics *metrics, const char *name);
/* Removes one series. */
void lh_metrics_drop_series(LhMetrics *metrics, const char *name, const char *labels);
/* Present value of a counter or gauge, 0 if it does not exist. */
double lh_metrics_get(LhMetrics *metrics, const char *name, const char *labels);

/* `k="v",…` with escapes; a NULL key or value ends the list. Free with g_free. */
char *lh_labels(const char *key, ...) G_GNUC_NULL_TERMINATED;

/* Called before each exposition, to set gauges that are cheaper to compute when asked. Must not add
 * or remove collectors. */
typedef void (*LhMetricsCollect)(LhMetrics *metrics, gpointer data);
void lh_metrics_add_collector(LhMetrics *metrics, LhMetricsCollect func, gpointer data);
void lh_metrics_remove_collector(LhMetrics *metrics, LhMetricsCollect func, gpointer data);

/* The whole exposition (text format 0.0.4), families and series sorted; includes process_*
 * (cpu seconds, resident and virtual bytes, open and max fds, start time) under the names that
 * every Prometheus client uses, without our prefix. Free with g_free. */
char *lh_metrics_text(LhMetrics *metrics);

/* Seconds; for the duration histograms of CONTRACT.md section 5. Ended by 0. */
extern const double lh_duration_buckets[];
