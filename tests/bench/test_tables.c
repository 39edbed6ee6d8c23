/* The benchmark's own arithmetic: quantiles, and whether a figure meets its aim. */
#include "base/json.h"
#include "stats.h"
#include "table.h"

#include <glib/gstdio.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static Samples *numbers(guint n)
{
    Samples *samples = samples_new();

    for (guint i = 0; i < n; i++) /* 1 … n, not in order */
        samples_add(samples, 1 + (i * 7) % n);
    return samples;
}

static void quantiles_are_nearest_rank(void **state)
{
    g_autoptr(GArray) hundred = numbers(100), one = numbers(1);

    assert_true(samples_quantile(hundred, 0.5) == 50);
    assert_true(samples_quantile(hundred, 0.99) == 99);
    assert_true(samples_quantile(hundred, 0.001) == 1);
    assert_true(samples_max(hundred) == 100);
    assert_true(samples_quantile(one, 0.99) == 1);
    assert_true(samples_mean(hundred) == 50.5);
}

static void median_of_an_even_number_is_between(void **state)
{
    g_autoptr(GArray) four = numbers(4), five = numbers(5), none = samples_new();

    assert_true(samples_median(four) == 2.5);
    assert_true(samples_median(five) == 3);
    assert_true(isnan(samples_median(none)));
}

static cJSON *written(const Table *table)
{
    g_autofree char *path = g_strdup_printf("%s/leasehold-table-%d", g_get_tmp_dir(),
                                            (int)g_random_int_range(0, G_MAXINT));
    g_autofree char *text = NULL;
    gsize len;
    cJSON *json;

    assert_true(table_write_json(table, path, NULL));
    assert_true(g_file_get_contents(path, &text, &len, NULL));
    g_unlink(path);
    json = lh_json_parse(text, len, LH_JSON_MAX_BYTES, NULL);
    assert_non_null(json);
    return json;
}

static void aims_are_met_on_their_side(void **state)
{
    static const struct {
        double value;
        Aim aim;
        gboolean met;
    } cases[] = {
        {0.9, {AIM_AT_LEAST, 0.9}, TRUE}, {0.89, {AIM_AT_LEAST, 0.9}, FALSE},
        {1.2, {AIM_AT_MOST, 1.2}, TRUE},  {1.21, {AIM_AT_MOST, 1.2}, FALSE},
        {NAN, {AIM_AT_MOST, 1.2}, FALSE}, {NAN, {AIM_AT_LEAST, 1.2}, FALSE},
    };
    Table *table = table_new();

    for (guint i = 0; i < G_N_ELEMENTS(cases); i++)
        table_add(table, "x", cases[i].value, "ms", cases[i].aim, NULL, "case %u", i);
    table_add(table, "x", 1, "ms", NO_AIM, NULL, "no aim");
    g_autoptr(cJSON) json = written(table);
    assert_int_equal(cJSON_GetArraySize(json), G_N_ELEMENTS(cases) + 1);
    for (guint i = 0; i < G_N_ELEMENTS(cases); i++)
        assert_int_equal(lh_json_get_bool(cJSON_GetArrayItem(json, (int)i), "met", -1),
                         cases[i].met);
    assert_false(cJSON_HasObjectItem(cJSON_GetArrayItem(json, G_N_ELEMENTS(cases)), "met"));
    table_free(table);
}

static void rows_are_sorted_and_lines_stay(void **state)
{
    Table *table = table_new();

    table_add(table, "d", 1, "", NO_AIM, NULL, "first");
    table_skip(table, "h", "because");
    table_add(table, "c", 2, "", NO_AIM, NULL, "second");
    table_add(table, "d", 3, "", NO_AIM, NULL, "third");
    table_sort(table);
    g_autoptr(cJSON) json = written(table);
    assert_string_equal(lh_json_get_string(cJSON_GetArrayItem(json, 0), "what", ""), "second");
    assert_string_equal(lh_json_get_string(cJSON_GetArrayItem(json, 1), "what", ""), "first");
    assert_string_equal(lh_json_get_string(cJSON_GetArrayItem(json, 2), "what", ""), "third");
    assert_string_equal(lh_json_get_string(cJSON_GetArrayItem(json, 3), "skipped", ""), "because");
    table_free(table);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(quantiles_are_nearest_rank),
        cmocka_unit_test(median_of_an_even_number_is_between),
        cmocka_unit_test(aims_are_met_on_their_side),
        cmocka_unit_test(rows_are_sorted_and_lines_stay),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
