/*
 * The metrics registry and its text form (Prometheus exposition format 0.0.4).
 *
 * Families and series live in sorted trees, so equal contents give equal text. Wrong names, types
 * or values are bugs of ours and end in g_assert; only the number of series, which peers can drive
 * through label values, has a limit. It must not know what any metric means, process_* apart.
 */
#include "base/metrics.h"

#include "base/json.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define PREFIX  "leasehold_"
#define REFUSED "metrics_series_refused_total"

/* Counter, gauge: @value. Histogram: @value is the sum, @buckets[i] counts observations in bucket i
 * alone, the last one those beyond all bounds. */
typedef struct {
    double value;
    guint64 *buckets;
} Series;

typedef struct {
    LhMetricType type;
    char *name; /* without the prefix */
    char *help;
    double *bounds;
    guint n_bounds;
    GTree *series; /* labels, "" for none → Series */
} Family;

typedef struct {
    LhMetricsCollect func;
    gpointer data;
} Collector;

struct LhMetrics {
    GTree *families; /* name → Family */
    GArray *collectors;
    gboolean collecting;
    double start_seconds; /* NaN if /proc does not say */
};

const double lh_duration_buckets[] = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25,
                                      0.5,   1,      2.5,   5,    10,    30,   60,  0};

static gint compare_text(gconstpointer a, gconstpointer b, G_GNUC_UNUSED gpointer data)
{
    return strcmp(a, b);
}

static void series_free(gpointer data)
{
    Series *series = data;
    g_free(series->buckets);
    g_free(series);
}

static GTree *series_tree_new(void)
{
    return g_tree_new_full(compare_text, NULL, g_free, series_free);
}

static void family_free(gpointer data)
{
    Family *family = data;
    g_tree_unref(family->series);
    g_free(family->name);
    g_free(family->help);
    g_free(family->bounds);
    g_free(family);
}

static gboolean metric_name_valid(const char *name)
{
    return name != NULL && name[strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_")] == '\0' &&
           g_ascii_isalpha(name[0]);
}

/* --- /proc/self --------------------------------------------------------------------------------
 */

typedef struct {
    double cpu_ticks;
    double start_ticks;
    double virtual_bytes;
    double resident_pages;
} ProcStat;

/* Field 3 of /proc/self/stat is the first after the command's closing parenthesis; the command may
 * contain anything, parentheses included. */
static gboolean read_proc_stat(ProcStat *out)
{
    g_autofree char *text = NULL;
    if (!g_file_get_contents("/proc/self/stat", &text, NULL, NULL))
        return FALSE;
    const char *rest = strrchr(text, ')');
    if (rest == NULL)
        return FALSE;
    g_auto(GStrv) fields = g_strsplit(g_strstrip(strrchr(text, ')') + 1), " ", -1);
    if (g_strv_length(fields) < 22)
        return FALSE;
    out->cpu_ticks = g_ascii_strtod(fields[14 - 3], NULL) + g_ascii_strtod(fields[15 - 3], NULL);
    out->start_ticks = g_ascii_strtod(fields[22 - 3], NULL);
    out->virtual_bytes = g_ascii_strtod(fields[23 - 3], NULL);
    out->resident_pages = g_ascii_strtod(fields[24 - 3], NULL);
    return TRUE;
}

static double read_start_seconds(void)
{
    ProcStat stat;
    g_autofree char *text = NULL;
    if (!read_proc_stat(&stat) || !g_file_get_contents("/proc/stat", &text, NULL, NULL))
        return NAN;
    const char *line = strstr(text, "\nbtime ");
    if (line == NULL)
        return NAN;
    return g_ascii_strtod(line + strlen("\nbtime "), NULL) +
           stat.start_ticks / (double)sysconf(_SC_CLK_TCK);
}

static double count_open_fds(void)
{
    g_autoptr(GDir) dir = g_dir_open("/proc/self/fd", 0, NULL);
    if (dir == NULL)
        return NAN;
    double n = 0;
    while (g_dir_read_name(dir) != NULL)
        n++;
    return n - 1; /* the directory's own */
}

static double max_fds(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return NAN;
    return limit.rlim_cur == RLIM_INFINITY ? (double)INFINITY : (double)limit.rlim_cur;
}

/* --- text --------------------------------------------------------------------------------------
 */

static void append_number(GString *out, double value)
{
    if (isnan(value))
        g_string_append(out, "NaN");
    else if (isinf(value))
        g_string_append(out, value > 0 ? "+Inf" : "-Inf");
    else
        lh_json_append_double(out, value);
}

/* Backslash and line feed, and the quote where the text stands in quotes. */
static void append_escaped(GString *out, const char *text, gboolean in_quotes)
{
    for (const char *p = text; *p != '\0'; p++) {
        if (*p == '\n')
            g_string_append(out, "\\n");
        else if (*p == '\\' || (in_quotes && *p == '"'))
            g_string_append_printf(out, "\\%c", *p);
        else
            g_string_append_c(out, *p);
    }
}

static void append_header(GString *out, const char *prefix, const char *name, const char *help,
                          LhMetricType type)
{
    static const char *const types[] = {
        [LH_COUNTER] = "counter", [LH_GAUGE] = "gauge", [LH_HISTOGRAM] = "histogram"};
    g_string_append_printf(out, "# HELP %s%s ", prefix, name);
    append_escaped(out, help, FALSE);
    g_string_append_printf(out, "\n# TYPE %s%s %s\n", prefix, name, types[type]);
}

/* @le: upper bound of a bucket, NaN for none. */
static void append_sample(GString *out, const Family *family, const char *suffix,
                          const char *labels, double le, double value)
{
    g_string_append_printf(out, PREFIX "%s%s", family->name, suffix);
    if (*labels != '\0' || !isnan(le)) {
        g_string_append_printf(out, "{%s", labels);
        if (!isnan(le)) {
            g_string_append(out, *labels != '\0' ? ",le=\"" : "le=\"");
            append_number(out, le);
            g_string_append_c(out, '"');
        }
        g_string_append_c(out, '}');
    }
    g_string_append_c(out, ' ');
    append_number(out, value);
    g_string_append_c(out, '\n');
}

static void append_series(GString *out, const Family *family, const char *labels,
                          const Series *series)
{
    if (family->type != LH_HISTOGRAM) {
        append_sample(out, family, "", labels, NAN, series->value);
        return;
    }
    guint64 count = 0;
    for (guint i = 0; i <= family->n_bounds; i++) {
        count += series->buckets[i];
        double bound = i < family->n_bounds ? family->bounds[i] : (double)INFINITY;
        append_sample(out, family, "_bucket", labels, bound, (double)count);
    }
    append_sample(out, family, "_sum", labels, NAN, series->value);
    append_sample(out, family, "_count", labels, NAN, (double)count);
}

static void append_family(GString *out, const Family *family)
{
    if (g_tree_nnodes(family->series) == 0)
        return;
    append_header(out, PREFIX, family->name, family->help, family->type);
    for (GTreeNode *node = g_tree_node_first(family->series); node != NULL;
         node = g_tree_node_next(node))
        append_series(out, family, g_tree_node_key(node), g_tree_node_value(node));
}

/* Every Prometheus client gives these names, so they carry no prefix of ours. */
static void append_process(GString *out, const LhMetrics *metrics)
{
    ProcStat stat = {NAN, NAN, NAN, NAN};
    read_proc_stat(&stat);
    const struct {
        LhMetricType type;
        const char *name;
        const char *help;
        double value;
    } rows[] = {
        {LH_COUNTER, "process_cpu_seconds_total", "User and system CPU time.",
         stat.cpu_ticks / (double)sysconf(_SC_CLK_TCK)},
        {LH_GAUGE, "process_max_fds", "Limit of open file descriptors.", max_fds()},
        {LH_GAUGE, "process_open_fds", "Open file descriptors.", count_open_fds()},
        {LH_GAUGE, "process_resident_memory_bytes", "Resident memory.",
         stat.resident_pages * (double)sysconf(_SC_PAGESIZE)},
        {LH_GAUGE, "process_start_time_seconds", "Start of the process, Unix time.",
         metrics->start_seconds},
        {LH_GAUGE, "process_virtual_memory_bytes", "Virtual memory.", stat.virtual_bytes},
    };
    for (guint i = 0; i < G_N_ELEMENTS(rows); i++) {
        if (isnan(rows[i].value))
            continue;
        append_header(out, "", rows[i].name, rows[i].help, rows[i].type);
        g_string_append_printf(out, "%s ", rows[i].name);
        append_number(out, rows[i].value);
        g_string_append_c(out, '\n');
    }
}

char *lh_metrics_text(LhMetrics *metrics)
{
    g_assert(!metrics->collecting);
    metrics->collecting = TRUE;
    for (guint i = 0; i < metrics->collectors->len; i++) {
        const Collector *c = &g_array_index(metrics->collectors, Collector, i);
        c->func(metrics, c->data);
    }
    metrics->collecting = FALSE;

    GString *out = g_string_sized_new(8192);
    for (GTreeNode *node = g_tree_node_first(metrics->families); node != NULL;
         node = g_tree_node_next(node))
        append_family(out, g_tree_node_value(node));
    append_process(out, metrics);
    return g_string_free(out, FALSE);
}

/* --- registry ----------------------------------------------------------------------------------
 */

LhMetrics *lh_metrics_new(void)
{
    LhMetrics *metrics = g_new0(LhMetrics, 1);
    metrics->families = g_tree_new_full(compare_text, NULL, NULL, family_free);
    metrics->collectors = g_array_new(FALSE, FALSE, sizeof(Collector));
    metrics->start_seconds = read_start_seconds();
    lh_metrics_declare(metrics, LH_COUNTER, REFUSED,
                       "Samples dropped because their family has too many series.", NULL);
    return metrics;
}

void lh_metrics_free(LhMetrics *metrics)
{
    if (metrics == NULL)
        return;
    g_tree_unref(metrics->families);
    g_array_unref(metrics->collectors);
    g_free(metrics);
}

void lh_metrics_declare(LhMetrics *metrics, LhMetricType type, const char *name, const char *help,
                        const double *buckets)
{
    g_assert(metric_name_valid(name) && help != NULL);
    g_assert((type == LH_HISTOGRAM) == (buckets != NULL));
    const Family *known = g_tree_lookup(metrics->families, name);
    if (known != NULL) {
        g_assert(known->type == type);
        return;
    }
    Family *family = g_new0(Family, 1);
    family->type = type;
    family->name = g_strdup(name);
    family->help = g_strdup(help);
    family->series = series_tree_new();
    if (buckets != NULL) {
        while (buckets[family->n_bounds] != 0) {
            guint i = family->n_bounds++;
            g_assert(isfinite(buckets[i]) && (i == 0 || buckets[i] > buckets[i - 1]));
        }
        family->bounds = g_memdup2(buckets, family->n_bounds * sizeof *buckets);
    }
    g_tree_insert(metrics->families, family->name, family);
}

/* NULL when the family is full. */
static Series *get_series(LhMetrics *metrics, LhMetricType type, const char *name,
                          const char *labels, Family **out_family)
{
    Family *family = g_tree_lookup(metrics->families, name);
    g_assert(family != NULL && family->type == type);
    *out_family = family;
    if (labels == NULL)
        labels = "";
    Series *series = g_tree_lookup(family->series, labels);
    if (series != NULL)
        return series;
    if (g_tree_nnodes(family->series) >= LH_METRICS_MAX_SERIES) {
        lh_counter_add(metrics, REFUSED, NULL, 1);
        return NULL;
    }
    series = g_new0(Series, 1);
    if (type == LH_HISTOGRAM)
        series->buckets = g_new0(guint64, family->n_bounds + 1);
    g_tree_insert(family->series, g_strdup(labels), series);
    return series;
}

void lh_counter_add(LhMetrics *metrics, const char *name, const char *labels, double by)
{
    g_assert(by >= 0 && isfinite(by));
    Family *family;
    Series *series = get_series(metrics, LH_COUNTER, name, labels, &family);
    if (series != NULL)
        series->value += by;
}

void lh_gauge_set(LhMetrics *metrics, const char *name, const char *labels, double value)
{
    Family *family;
    Series *series = get_series(metrics, LH_GAUGE, name, labels, &family);
    if (series != NULL)
        series->value = value;
}

void lh_histogram_observe(LhMetrics *metrics, const char *name, const char *labels, double value)
{
    g_assert(isfinite(value));
    Family *family;
    Series *series = get_series(metrics, LH_HISTOGRAM, name, labels, &family);
    if (series == NULL)
        return;
    guint i = 0;
    while (i < family->n_bounds && value > family->bounds[i])
        i++;
    series->buckets[i]++;
    series->value += value;
}

void lh_metrics_drop(LhMetrics *metrics, const char *name)
{
    Family *family = g_tree_lookup(metrics->families, name);
    g_assert(family != NULL);
    g_tree_unref(family->series);
    family->series = series_tree_new();
}

void lh_metrics_drop_series(LhMetrics *metrics, const char *name, const char *labels)
{
    Family *family = g_tree_lookup(metrics->families, name);
    g_assert(family != NULL);
    g_tree_remove(family->series, labels != NULL ? labels : "");
}

double lh_metrics_get(LhMetrics *metrics, const char *name, const char *labels)
{
    const Family *family = g_tree_lookup(metrics->families, name);
    if (family == NULL)
        return 0;
    g_assert(family->type != LH_HISTOGRAM);
    const Series *series = g_tree_lookup(family->series, labels != NULL ? labels : "");
    return series != NULL ? series->value : 0;
}

char *lh_labels(const char *key, ...)
{
    GString *out = g_string_new(NULL);
    va_list args;
    va_start(args, key);
    for (; key != NULL; key = va_arg(args, const char *)) {
        const char *value = va_arg(args, const char *);
        g_autofree char *valid = value != NULL ? g_utf8_make_valid(value, -1) : NULL;
        g_string_append_printf(out, "%s%s=\"", out->len > 0 ? "," : "", key);
        append_escaped(out, valid != NULL ? valid : "", TRUE);
        g_string_append_c(out, '"');
        if (value == NULL)
            break; /* it cannot be told from the end of the list */
    }
    va_end(args);
    return g_string_free(out, FALSE);
}

void lh_metrics_add_collector(LhMetrics *metrics, LhMetricsCollect func, gpointer data)
{
    g_assert(!metrics->collecting);
    Collector c = {func, data};
    g_array_append_val(metrics->collectors, c);
}

void lh_metrics_remove_collector(LhMetrics *metrics, LhMetricsCollect func, gpointer data)
{
    g_assert(!metrics->collecting);
    for (guint i = 0; i < metrics->collectors->len; i++) {
        const Collector *c = &g_array_index(metrics->collectors, Collector, i);
        if (c->func == func && c->data == data) {
            g_array_remove_index(metrics->collectors, i);
            return;
        }
    }
}
