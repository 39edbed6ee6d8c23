/*
 * base/metrics: the text that Prometheus reads, byte for byte; histogram arithmetic; escapes;
 * limits.
 */
#include "base/metrics.h"

#include <fcntl.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static int setup(void **state)
{
    *state = lh_metrics_new();
    return 0;
}

static int teardown(void **state)
{
    lh_metrics_free(*state);
    return 0;
}

/* The exposition without process_*, whose values nobody can predict. */
static char *own_text(LhMetrics *m)
{
    g_autofree char *text = lh_metrics_text(m);
    char *process = strstr(text, "# HELP process_");
    assert_non_null(process);
    return g_strndup(text, (gsize)(process - text));
}

static void assert_text(LhMetrics *m, const char *expected)
{
    g_autofree char *text = own_text(m);
    assert_string_equal(text, expected);
}

static void families_and_series_are_sorted(void **state)
{
    LhMetrics *m = *state;
    lh_metrics_declare(m, LH_GAUGE, "zeta", "Z.", NULL);
    lh_metrics_declare(m, LH_COUNTER, "alpha_total", "A.", NULL);
    lh_metrics_declare(m, LH_GAUGE, "unused", "Never set.", NULL);
    lh_gauge_set(m, "zeta", NULL, -2.5);
    lh_counter_add(m, "alpha_total", "k=\"b\"", 1);
    lh_counter_add(m, "alpha_total", "k=\"a\"", 0);
    lh_counter_add(m, "alpha_total", "k=\"b\"", 2);
    lh_counter_add(m, "alpha_total", NULL, 7);
    assert_text(m, "# HELP leasehold_alpha_total A.\n"
                   "# TYPE leasehold_alpha_total counter\n"
                   "leasehold_alpha_total 7\n"
                   "leasehold_alpha_total{k=\"a\"} 0\n"
                   "leasehold_alpha_total{k=\"b\"} 3\n"
                   "# HELP leasehold_zeta Z.\n"
                   "# TYPE leasehold_zeta gauge\n"
                   "leasehold_zeta -2.5\n");
}

static void numbers_are_exact(void **state)
{
    LhMetrics *m = *state;
    lh_metrics_declare(m, LH_GAUGE, "g", "G.", NULL);
    lh_gauge_set(m, "g", "a=\"1\"", 9007199254740991.0);
    lh_gauge_set(m, "g", "a=\"2\"", 0.1);
    lh_gauge_set(m, "g", "a=\"3\"", INFINITY);
    lh_gauge_set(m, "g", "a=\"4\"", -INFINITY);
    lh_gauge_set(m, "g", "a=\"5\"", NAN);
    lh_gauge_set(m, "g", "a=\"6\"", 1e300);
    lh_gauge_set(m, "g", "a=\"7\"", 1714564800.123);
    assert_text(m, "# HELP leasehold_g G.\n# TYPE leasehold_g gauge\n"
                   "leasehold_g{a=\"1\"} 9007199254740991\n"
                   "leasehold_g{a=\"2\"} 0.1\n"
                   "leasehold_g{a=\"3\"} +Inf\n"
                   "leasehold_g{a=\"4\"} -Inf\n"
                   "leasehold_g{a=\"5\"} NaN\n"
                   "leasehold_g{a=\"6\"} 1e+300\n"
                   "leasehold_g{a=\"7\"} 1714564800.123\n");
}

static void histograms_are_cumulative(void **state)
{
    LhMetrics *m = *state;
    double bounds[] = {0.1, 1, 10, 0};
    lh_metrics_declare(m, LH_HISTOGRAM, "h_seconds", "H.", bounds);
    bounds[0] = 5; /* the registry has a copy */
    static const double values[] = {0.05, 0.1, 0.100001, 1, 1.5, 10, 10.5, 1000, -3, 0};
    for (guint i = 0; i < G_N_ELEMENTS(values); i++)
        lh_histogram_observe(m, "h_seconds", "c=\"x\"", values[i]);
    lh_histogram_observe(m, "h_seconds", NULL, 0.5);
    assert_text(m, "# HELP leasehold_h_seconds H.\n"
                   "# TYPE leasehold_h_seconds histogram\n"
                   "leasehold_h_seconds_bucket{le=\"0.1\"} 0\n"
                   "leasehold_h_seconds_bucket{le=\"1\"} 1\n"
                   "leasehold_h_seconds_bucket{le=\"10\"} 1\n"
                   "leasehold_h_seconds_bucket{le=\"+Inf\"} 1\n"
                   "leasehold_h_seconds_sum 0.5\n"
                   "leasehold_h_seconds_count 1\n"
                   "leasehold_h_seconds_bucket{c=\"x\",le=\"0.1\"} 4\n"
                   "leasehold_h_seconds_bucket{c=\"x\",le=\"1\"} 6\n"
                   "leasehold_h_seconds_bucket{c=\"x\",le=\"10\"} 8\n"
                   "leasehold_h_seconds_bucket{c=\"x\",le=\"+Inf\"} 10\n"
                   "leasehold_h_seconds_sum{c=\"x\"} 1020.250001\n"
                   "leasehold_h_seconds_count{c=\"x\"} 10\n");
}

static void duration_buckets_ascend_and_end(void **state)
{
    LhMetrics *m = *state;
    guint n = 0;
    for (; lh_duration_buckets[n] != 0; n++)
        assert_true(lh_duration_buckets[n] > (n == 0 ? 0 : lh_duration_buckets[n - 1]));
    assert_int_equal(n, 15);
    lh_metrics_declare(m, LH_HISTOGRAM, "d_seconds", "D.", lh_duration_buckets);
    lh_histogram_observe(m, "d_seconds", NULL, 0.0025);
    g_autofree char *text = own_text(m);
    assert_non_null(strstr(text, "_bucket{le=\"0.001\"} 0\n"));
    assert_non_null(strstr(text, "_bucket{le=\"0.0025\"} 1\n"));
    assert_non_null(strstr(text, "_bucket{le=\"60\"} 1\n"));
}

static void values_can_be_read_back_and_dropped(void **state)
{
    LhMetrics *m = *state;
    lh_metrics_declare(m, LH_GAUGE, "g", "G.", NULL);
    lh_metrics_declare(m, LH_COUNTER, "c_total", "C.", NULL);
    assert_true(lh_metrics_get(m, "nobody", NULL) == 0);
    assert_true(lh_metrics_get(m, "g", NULL) == 0);
    lh_gauge_set(m, "g", "a=\"1\"", 4);
    lh_gauge_set(m, "g", "a=\"1\"", 5);
    lh_gauge_set(m, "g", "a=\"2\"", 6);
    lh_gauge_set(m, "g", NULL, 7);
    lh_counter_add(m, "c_total", NULL, 0.5);
    lh_counter_add(m, "c_total", "", 0.25); /* "" is the same as none */
    assert_true(lh_metrics_get(m, "g", "a=\"1\"") == 5);
    assert_true(lh_metrics_get(m, "c_total", NULL) == 0.75);
    lh_metrics_drop_series(m, "g", "a=\"1\"");
    lh_metrics_drop_series(m, "g", "a=\"9\"");
    assert_true(lh_metrics_get(m, "g", "a=\"1\"") == 0);
    assert_true(lh_metrics_get(m, "g", "a=\"2\"") == 6);
    lh_metrics_drop_series(m, "g", NULL);
    assert_true(lh_metrics_get(m, "g", NULL) == 0);
    lh_metrics_drop(m, "g");
    assert_text(m, "# HELP leasehold_c_total C.\n# TYPE leasehold_c_total counter\n"
                   "leasehold_c_total 0.75\n");
    lh_gauge_set(m, "g", NULL, 1); /* a family outlives its series */
    assert_true(lh_metrics_get(m, "g", NULL) == 1);
}

static void declaring_again_keeps_the_values(void **state)
{
    LhMetrics *m = *state;
    lh_metrics_declare(m, LH_COUNTER, "c_total", "C.", NULL);
    lh_counter_add(m, "c_total", NULL, 3);
    lh_metrics_declare(m, LH_COUNTER, "c_total", "C.", NULL);
    assert_true(lh_metrics_get(m, "c_total", NULL) == 3);
}

static void label_values_are_escaped(void **state)
{
    LhMetrics *m = *state;
    g_autofree char *none = lh_labels(NULL, NULL);
    assert_string_equal(none, "");
    g_autofree char *two = lh_labels("pool", "cache", "state", "live", NULL);
    assert_string_equal(two, "pool=\"cache\",state=\"live\"");
    g_autofree char *nasty = lh_labels("a", "x\"} 1\nfake 2\\", "b", "", "c", "ü", "d", "\xff",
                                       NULL);
    assert_string_equal(nasty, "a=\"x\\\"} 1\\nfake 2\\\\\",b=\"\",c=\"ü\",d=\"\xef\xbf\xbd\"");
    const char *nothing = NULL;
    g_autofree char *cut = lh_labels("a", "1", "b", nothing, "c", "3", NULL);
    assert_string_equal(cut, "a=\"1\",b=\"\"");
    lh_metrics_declare(m, LH_GAUGE, "g", "back\\slash and\nnew \"line\"", NULL);
    lh_gauge_set(m, "g", two, 1);
    assert_text(m, "# HELP leasehold_g back\\\\slash and\\nnew \"line\"\n"
                   "# TYPE leasehold_g gauge\n"
                   "leasehold_g{pool=\"cache\",state=\"live\"} 1\n");
}

static void a_family_has_a_limit(void **state)
{
    LhMetrics *m = *state;
    lh_metrics_declare(m, LH_GAUGE, "g", "G.", NULL);
    lh_metrics_declare(m, LH_HISTOGRAM, "h", "H.", lh_duration_buckets);
    for (guint i = 0; i < LH_METRICS_MAX_SERIES; i++) {
        g_autofree char *value = g_strdup_printf("%u", i);
        g_autofree char *labels = lh_labels("i", value, NULL);
        lh_gauge_set(m, "g", labels, 1);
        lh_histogram_observe(m, "h", labels, 1);
    }
    assert_true(lh_metrics_get(m, "metrics_series_refused_total", NULL) == 0);
    lh_gauge_set(m, "g", "i=\"more\"", 1);
    lh_histogram_observe(m, "h", "i=\"more\"", 1);
    lh_gauge_set(m, "g", "i=\"5\"", 9); /* known ones still work */
    assert_true(lh_metrics_get(m, "g", "i=\"more\"") == 0);
    assert_true(lh_metrics_get(m, "g", "i=\"5\"") == 9);
    assert_true(lh_metrics_get(m, "metrics_series_refused_total", NULL) == 2);
}

static void count_call(LhMetrics *m, gpointer data)
{
    lh_gauge_set(m, "g", data, lh_metrics_get(m, "g", data) + 1);
}

static void collectors_run_before_each_text(void **state)
{
    LhMetrics *m = *state;
    static char a[] = "a=\"a\"";
    static char b[] = "a=\"b\"";
    lh_metrics_declare(m, LH_GAUGE, "g", "G.", NULL);
    lh_metrics_add_collector(m, count_call, a);
    lh_metrics_add_collector(m, count_call, b);
    g_autofree char *first = own_text(m);
    assert_non_null(strstr(first, "leasehold_g{a=\"a\"} 1\nleasehold_g{a=\"b\"} 1\n"));
    lh_metrics_remove_collector(m, count_call, a);
    lh_metrics_remove_collector(m, count_call, a); /* no longer there */
    g_autofree char *second = own_text(m);
    assert_non_null(strstr(second, "leasehold_g{a=\"a\"} 1\nleasehold_g{a=\"b\"} 2\n"));
}

static double process_value(LhMetrics *m, const char *name)
{
    g_autofree char *text = lh_metrics_text(m);
    g_autofree char *start = g_strdup_printf("\n%s ", name);
    const char *line = strstr(text, start);
    if (line == NULL)
        fail_msg("%s is missing", name);
    g_autofree char *type = g_strdup_printf("# TYPE %s ", name);
    assert_non_null(strstr(text, type));
    return g_ascii_strtod(line + strlen(start), NULL);
}

static void process_metrics_are_plausible(void **state)
{
    LhMetrics *m = *state;
    double now = (double)g_get_real_time() / 1e6;
    double start = process_value(m, "process_start_time_seconds");
    assert_true(start > now - 120 && start < now + 5);
    double cpu = process_value(m, "process_cpu_seconds_total");
    assert_true(cpu >= 0 && cpu < 600);
    double resident = process_value(m, "process_resident_memory_bytes");
    assert_true(resident > 100 * 1024 && resident < 64e9);
    assert_true(process_value(m, "process_virtual_memory_bytes") > resident);
    double open_fds = process_value(m, "process_open_fds");
    assert_true(open_fds >= 1 && open_fds <= process_value(m, "process_max_fds"));
    double expected = 0;
    for (int i = 0; i < 4096; i++)
        expected += fcntl(i, F_GETFD) >= 0;
    assert_true(open_fds >= expected); /* valgrind holds some that a program cannot see */
    int fd = dup(STDERR_FILENO);
    assert_true(fd >= 0);
    assert_true(process_value(m, "process_open_fds") == open_fds + 1);
    close(fd);
}

static void equal_contents_give_equal_text(void **state)
{
    LhMetrics *m = *state;
    LhMetrics *other = lh_metrics_new();
    for (guint i = 0; i < 50; i++) {
        g_autofree char *name = g_strdup_printf("m%u", i * 7 % 50);
        lh_metrics_declare(m, LH_GAUGE, name, "M.", NULL);
        lh_gauge_set(m, name, NULL, i * 7 % 50);
        g_autofree char *same = g_strdup_printf("m%u", i);
        lh_metrics_declare(other, LH_GAUGE, same, "M.", NULL);
        lh_gauge_set(other, same, NULL, i);
    }
    g_autofree char *text = own_text(other);
    assert_text(m, text);
    lh_metrics_free(other);
    lh_metrics_free(NULL);
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(families_and_series_are_sorted),
        T(numbers_are_exact),
        T(histograms_are_cumulative),
        T(duration_buckets_ascend_and_end),
        T(values_can_be_read_back_and_dropped),
        T(declaring_again_keeps_the_values),
        T(label_values_are_escaped),
        T(a_family_has_a_limit),
        T(collectors_run_before_each_text),
        T(process_metrics_are_plausible),
        T(equal_contents_give_equal_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
