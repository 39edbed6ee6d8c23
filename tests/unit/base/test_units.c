/*
 * base/units: exact values at every edge, and refusals that leave the output untouched. The day
 * arithmetic is checked against GLib's for every day of the range.
 */
#include "base/errors.h"
#include "base/units.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#define UNTOUCHED (-77)

typedef gboolean (*Parser)(const char *text, gint64 *out, GError **error);

static void assert_parsed(Parser parser, const char *text, gint64 expected)
{
    g_autoptr(GError) error = NULL;
    gint64 value = UNTOUCHED;
    if (!parser(text, &value, &error))
        fail_msg("%s", error->message);
    assert_null(error);
    if (value != expected)
        fail_msg("%s: %" G_GINT64_FORMAT ", expected %" G_GINT64_FORMAT, text, value, expected);
}

static void assert_refused(Parser parser, const char *text)
{
    g_autoptr(GError) error = NULL;
    gint64 value = UNTOUCHED;
    if (parser(text, &value, &error))
        fail_msg("accepted \"%s\" as %" G_GINT64_FORMAT, text, value);
    assert_true(g_error_matches(error, LH_ERROR, LH_ERR_INVALID));
    assert_true(g_utf8_validate(error->message, -1, NULL));
    assert_true(strlen(error->message) < 400);
    assert_int_equal(value, UNTOUCHED);
    assert_false(parser(text, &value, NULL));
}

static void assert_refused_all(Parser parser, const char *const *texts)
{
    for (; *texts != NULL; texts++)
        assert_refused(parser, *texts);
    assert_refused(parser, NULL);
    g_autofree char *long_text = g_strnfill(100000, '9');
    assert_refused(parser, long_text);
    g_autofree char *bad = g_strnfill(1000, '\xc3');
    assert_refused(parser, bad);
}

static void durations_are_read(void **state)
{
    (void)state;
    assert_parsed(lh_duration_parse, "0s", 0);
    assert_parsed(lh_duration_parse, "0ms", 0);
    assert_parsed(lh_duration_parse, "500ms", 500);
    assert_parsed(lh_duration_parse, "90s", 90000);
    assert_parsed(lh_duration_parse, "15m", 900000);
    assert_parsed(lh_duration_parse, "24h", 86400000);
    assert_parsed(lh_duration_parse, "7d", 604800000);
    assert_parsed(lh_duration_parse, "2w", 1209600000);
    assert_parsed(lh_duration_parse, "1d12h", 129600000);
    assert_parsed(lh_duration_parse, "1w2d3h4m5s6ms", 788645006);
    assert_parsed(lh_duration_parse, "1m1ms", 60001);
    assert_parsed(lh_duration_parse, "0007s", 7000);
    assert_parsed(lh_duration_parse, "9007199254740991ms", G_GINT64_CONSTANT(9007199254740991));
    assert_parsed(lh_duration_parse, "9007199254740s991ms", G_GINT64_CONSTANT(9007199254740991));
}

static void bad_durations_are_refused(void **state)
{
    (void)state;
    assert_refused_all(lh_duration_parse, (const char *const[]){"",
                                                                "5",
                                                                "s",
                                                                " 5s",
                                                                "5s ",
                                                                "5 s",
                                                                "-5s",
                                                                "+5s",
                                                                "1.5h",
                                                                "5S",
                                                                "5min",
                                                                "5us",
                                                                "5M",
                                                                "12h1d",
                                                                "1s1s",
                                                                "1ms1s",
                                                                "1s1m",
                                                                "1d12",
                                                                "0x5s",
                                                                "5s\n",
                                                                "9007199254740992ms",
                                                                "9007199254740s992ms",
                                                                "9007199254741s",
                                                                "14892858w",
                                                                "8981228020318433w",
                                                                "9007199254740991w",
                                                                "9223372036854775808s",
                                                                "18446744073709551617s",
                                                                "99999999999999999999999999ms",
                                                                NULL});
}

static void durations_are_written_and_read_back(void **state)
{
    (void)state;
    static const struct {
        gint64 ms;
        const char *text;
    } rows[] = {
        {0, "0s"},          {1, "1ms"},         {1000, "1s"},         {1001, "1s1ms"},
        {90000, "1m30s"},   {86400000, "1d"},   {129600000, "1d12h"}, {604800000, "7d"},
        {691200000, "8d"},  {1209600000, "2w"}, {1296000000, "15d"},  {1209600001, "14d1ms"},
        {-90000, "-1m30s"},
    };
    for (guint i = 0; i < G_N_ELEMENTS(rows); i++) {
        g_autofree char *text = lh_duration_format(rows[i].ms);
        assert_string_equal(text, rows[i].text);
    }
    g_autofree char *least = lh_duration_format(G_MININT64);
    assert_string_equal(least, "-106751991167d7h12m55s808ms");
    g_autoptr(GRand) rand = g_rand_new_with_seed(7);
    for (guint i = 0; i < 20000; i++) {
        guint64 bits = (guint64)g_rand_int(rand) << 32 | g_rand_int(rand);
        gint64 ms = (gint64)(bits >> g_rand_int_range(rand, 11, 64));
        g_autofree char *text = lh_duration_format(ms);
        assert_parsed(lh_duration_parse, text, ms);
    }
}

static void sizes_are_read(void **state)
{
    (void)state;
    assert_parsed(lh_size_parse, "0", 0);
    assert_parsed(lh_size_parse, "1000", 1000);
    assert_parsed(lh_size_parse, "1K", 1000);
    assert_parsed(lh_size_parse, "1Ki", 1024);
    assert_parsed(lh_size_parse, "500M", 500000000);
    assert_parsed(lh_size_parse, "3Mi", 3145728);
    assert_parsed(lh_size_parse, "2G", 2000000000);
    assert_parsed(lh_size_parse, "15Gi", G_GINT64_CONSTANT(16106127360));
    assert_parsed(lh_size_parse, "1T", G_GINT64_CONSTANT(1000000000000));
    assert_parsed(lh_size_parse, "1Ti", G_GINT64_CONSTANT(1099511627776));
    assert_parsed(lh_size_parse, "9P", G_GINT64_CONSTANT(9000000000000000));
    assert_parsed(lh_size_parse, "7Pi", G_GINT64_CONSTANT(7881299347898368));
    assert_parsed(lh_size_parse, "0Pi", 0);
    assert_parsed(lh_size_parse, "9007199254740991", G_GINT64_CONSTANT(9007199254740991));
    assert_parsed(lh_size_parse, "9007199254740K", G_GINT64_CONSTANT(9007199254740000));
}

static void bad_sizes_are_refused(void **state)
{
    (void)state;
    assert_refused_all(lh_size_parse, (const char *const[]){"",
                                                            "M",
                                                            "-1",
                                                            "+1",
                                                            " 1",
                                                            "1 ",
                                                            "1 M",
                                                            "1.5Gi",
                                                            "1k",
                                                            "1GB",
                                                            "1GiB",
                                                            "1gi",
                                                            "1Gii",
                                                            "1B",
                                                            "1e3",
                                                            "0x10",
                                                            "1E",
                                                            "1Ei",
                                                            "8Pi",
                                                            "16384Pi",
                                                            "10P",
                                                            "9007199254740992",
                                                            "9007199254741K",
                                                            "9223372036854775808",
                                                            "18446744073709551616",
                                                            "18014398509481984Ki",
                                                            NULL});
}

static void sizes_are_written_for_people(void **state)
{
    (void)state;
    static const struct {
        gint64 bytes;
        const char *text;
    } rows[] = {
        {0, "0 B"},
        {1023, "1023 B"},
        {1024, "1 KiB"},
        {1075, "1 KiB"},
        {1076, "1.1 KiB"},
        {1536, "1.5 KiB"},
        {1048524, "1023.9 KiB"},
        {1048525, "1 MiB"}, /* never "1024.0 KiB" */
        {1048575, "1 MiB"},
        {1048576, "1 MiB"},
        {G_GINT64_CONSTANT(15569256448), "14.5 GiB"},
        {G_GINT64_CONSTANT(16106127360), "15 GiB"},
        {G_GINT64_CONSTANT(9007199254740991), "8 PiB"},
        {-1536, "-1.5 KiB"},
        {G_MAXINT64, "8 EiB"},
        {G_MININT64, "-8 EiB"},
    };
    for (guint i = 0; i < G_N_ELEMENTS(rows); i++) {
        g_autofree char *text = lh_size_format(rows[i].bytes);
        assert_string_equal(text, rows[i].text);
    }
}

static void times_are_read(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        gint64 ms;
    } rows[] = {
        {"1970-01-01T00:00:00Z", 0},
        {"1970-01-01T00:00:00.001Z", 1},
        {"2026-05-01T12:00:00.000Z", G_GINT64_CONSTANT(1777636800000)},
        {"2026-05-01T14:00:00+02:00", G_GINT64_CONSTANT(1777636800000)},
        {"2026-05-01T06:30:00-05:30", G_GINT64_CONSTANT(1777636800000)},
        {"2026-05-02T11:59:00+23:59", G_GINT64_CONSTANT(1777636800000)},
        {"2026-04-30T12:01:00-23:59", G_GINT64_CONSTANT(1777636800000)},
        {"2026-05-01t12:00:00z", G_GINT64_CONSTANT(1777636800000)},
        {"2026-05-01T12:00:00-00:00", G_GINT64_CONSTANT(1777636800000)},
        {"2026-05-01T12:00:00.1Z", G_GINT64_CONSTANT(1777636800100)},
        {"2026-05-01T12:00:00.01Z", G_GINT64_CONSTANT(1777636800010)},
        {"2026-05-01T12:00:00.123456789Z", G_GINT64_CONSTANT(1777636800123)},
        {"2026-05-01T12:00:00.999999999Z", G_GINT64_CONSTANT(1777636800999)}, /* never up */
        {"2000-02-29T00:00:00Z", G_GINT64_CONSTANT(951782400000)},
        {"2024-02-29T23:59:59.999Z", G_GINT64_CONSTANT(1709251199999)},
        {"2016-12-31T23:59:60Z", G_GINT64_CONSTANT(1483228800000)}, /* leap second */
        {"2017-01-01T00:59:60+01:00", G_GINT64_CONSTANT(1483228800000)},
        {"2038-01-19T03:14:08Z", G_GINT64_CONSTANT(2147483648000)},
        {"9998-12-31T23:59:59.999Z", G_GINT64_CONSTANT(253370764799999)},
        {"9999-01-01T00:59:59+01:00", G_GINT64_CONSTANT(253370764799000)},
        {"1969-12-31T23:00:00-01:00", 0},
    };
    for (guint i = 0; i < G_N_ELEMENTS(rows); i++)
        assert_parsed(lh_time_parse, rows[i].text, rows[i].ms);
}

static void bad_times_are_refused(void **state)
{
    (void)state;
    assert_refused_all(lh_time_parse, (const char *const[]){"",
                                                            "2026",
                                                            "2026-05-01",
                                                            "2026-05-01T12:00Z",
                                                            "2026-05-01T12:00:00",
                                                            "2026-05-01 12:00:00Z",
                                                            " 2026-05-01T12:00:00Z",
                                                            "2026-05-01T12:00:00Z ",
                                                            "2026-05-01T12:00:00ZZ",
                                                            "2026-05-01T12:00:00.Z",
                                                            "2026-05-01T12:00:00.1234567890Z",
                                                            "2026-05-01T12:00:00,5Z",
                                                            "2026-05-01T12:00:00+0200",
                                                            "2026-05-01T12:00:00+02",
                                                            "2026-05-01T12:00:00+24:00",
                                                            "2026-05-01T12:00:00+02:60",
                                                            "2026-05-01T12:00:00+-2:00",
                                                            "2026-00-01T12:00:00Z",
                                                            "2026-13-01T12:00:00Z",
                                                            "2026-05-00T12:00:00Z",
                                                            "2026-05-32T12:00:00Z",
                                                            "2026-04-31T12:00:00Z",
                                                            "2026-02-29T12:00:00Z",
                                                            "2100-02-29T12:00:00Z",
                                                            "2024-02-30T12:00:00Z",
                                                            "2026-05-01T24:00:00Z",
                                                            "2026-05-01T12:60:00Z",
                                                            "2026-05-01T12:00:61Z",
                                                            "2026-05-01T12:00:60Z",
                                                            "2016-12-31T23:59:60+01:00",
                                                            "0000-01-01T00:00:00Z",
                                                            "1969-12-31T23:59:59Z",
                                                            "1970-01-01T00:00:00+00:01",
                                                            "9999-01-01T00:00:00Z",
                                                            "9998-12-31T23:59:59-01:00",
                                                            "9998-12-31T23:59:60Z",
                                                            "+026-05-01T12:00:00Z",
                                                            "20260501T120000Z",
                                                            "1777636800000",
                                                            "now",
                                                            NULL});
}

static void times_are_written_and_read_back(void **state)
{
    (void)state;
    g_autofree char *t = lh_time_format(G_GINT64_CONSTANT(1777636800000));
    assert_string_equal(t, "2026-05-01T12:00:00.000Z");
    g_autofree char *low = lh_time_format(-1);
    assert_string_equal(low, "1970-01-01T00:00:00.000Z");
    g_autofree char *lowest = lh_time_format(G_MININT64);
    assert_string_equal(lowest, "1970-01-01T00:00:00.000Z");
    g_autofree char *highest = lh_time_format(G_MAXINT64);
    assert_string_equal(highest, "9998-12-31T23:59:59.999Z");
}

static void every_day_agrees_with_glibs_calendar(void **state)
{
    (void)state;
    GDate date;
    g_date_set_dmy(&date, 1, G_DATE_JANUARY, 1970);
    guint32 first = g_date_get_julian(&date);
    for (; g_date_get_year(&date) < 9999; g_date_add_days(&date, 1)) {
        gint64 day = g_date_get_julian(&date) - first;
        gint64 ms = day * 86400000 + day % 86400000;
        g_autofree char *text = lh_time_format(ms);
        char expected[16];
        g_snprintf(expected, sizeof expected, "%04d-%02d-%02dT", g_date_get_year(&date),
                   g_date_get_month(&date), g_date_get_day(&date));
        if (strncmp(text, expected, 11) != 0)
            fail_msg("%s, expected %s", text, expected);
        gint64 back = UNTOUCHED;
        assert_true(lh_time_parse(text, &back, NULL));
        assert_int_equal(back, ms);
        if (g_date_get_year(&date) > 2105) /* all centuries' ends, not all days after 2105 */
            g_date_add_days(&date, 16);
    }
}

static void local_time_zone_does_not_matter(void **state)
{
    (void)state;
    g_setenv("TZ", "America/New_York", TRUE);
    tzset();
    assert_parsed(lh_time_parse, "2026-05-01T12:00:00Z", G_GINT64_CONSTANT(1777636800000));
    g_autofree char *t = lh_time_format(G_GINT64_CONSTANT(1777636800000));
    assert_string_equal(t, "2026-05-01T12:00:00.000Z");
    g_unsetenv("TZ");
    tzset();
}

static void names(void **state)
{
    (void)state;
    assert_true(lh_name_valid("a", 1));
    assert_true(lh_name_valid("Api-logs_0042.v1", 253));
    assert_true(lh_name_valid("0", 10));
    assert_true(lh_name_valid("a..b--c__d", 10));
    static const char *const bad[] = {"",   ".",  "-",    "_",   ".a",  "a.",   "-a",  "a-",
                                      "_a", "a_", "a b",  "a/b", "ä",   "a\n",  "a:b", "a\177b",
                                      "..", "*",  "a\\b", "a%b", "a,b", "\xff", "a\tb"};
    for (guint i = 0; i < G_N_ELEMENTS(bad); i++) {
        if (lh_name_valid(bad[i], 253))
            fail_msg("\"%s\"", bad[i]);
    }
    assert_false(lh_name_valid(NULL, 10));
    assert_false(lh_name_valid("a", 0));
    g_autofree char *long_name = g_strnfill(254, 'x');
    assert_false(lh_name_valid(long_name, 253));
    assert_true(lh_name_valid(long_name + 1, 253));
}

static void pool_names(void **state)
{
    (void)state;
    assert_true(lh_pool_name_valid("cache"));
    assert_true(lh_pool_name_valid("a-1"));
    assert_true(lh_pool_name_valid("-"));
    static const char *const bad[] = {"", "Cache", "a.b", "a_b", "a b", "a/b", "é", "a\n"};
    for (guint i = 0; i < G_N_ELEMENTS(bad); i++)
        assert_false(lh_pool_name_valid(bad[i]));
    assert_false(lh_pool_name_valid(NULL));
    g_autofree char *long_name = g_strnfill(64, 'x');
    assert_false(lh_pool_name_valid(long_name));
    assert_true(lh_pool_name_valid(long_name + 1));
}

static void messages_say_what_was_wrong(void **state)
{
    (void)state;
    g_autoptr(GError) error = NULL;
    gint64 value;
    assert_false(lh_duration_parse("5\nmin", &value, &error));
    assert_string_equal(error->message, "duration \"5\\nmin\": units are w, d, h, m, s and ms");
    g_clear_error(&error);
    assert_false(lh_size_parse("8Pi", &value, &error));
    assert_string_equal(error->message, "size \"8Pi\": is too large");
    g_clear_error(&error);
    assert_false(lh_time_parse("2026-02-29T00:00:00Z", &value, &error));
    assert_string_equal(error->message, "time \"2026-02-29T00:00:00Z\": there is no such day");
}

static void texts_are_padded_by_characters(void **state)
{
    static const struct {
        const char *text;
        glong width;
        const char *padded;
    } rows[] = {
        {"", 3, "   "},    {"ab", 4, "ab  "},   {"ab", 2, "ab "},       {"abc", 2, "abc "},
        {"N…", 4, "N…  "}, {"äöü", 5, "äöü  "}, {"URI,…", 6, "URI,… "}, {"--a B", 5, "--a B "},
    };
    for (guint i = 0; i < G_N_ELEMENTS(rows); i++) {
        g_autofree char *padded = lh_text_pad(rows[i].text, rows[i].width);
        assert_string_equal(padded, rows[i].padded);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(durations_are_read),
        cmocka_unit_test(bad_durations_are_refused),
        cmocka_unit_test(durations_are_written_and_read_back),
        cmocka_unit_test(sizes_are_read),
        cmocka_unit_test(bad_sizes_are_refused),
        cmocka_unit_test(sizes_are_written_for_people),
        cmocka_unit_test(times_are_read),
        cmocka_unit_test(bad_times_are_refused),
        cmocka_unit_test(times_are_written_and_read_back),
        cmocka_unit_test(every_day_agrees_with_glibs_calendar),
        cmocka_unit_test(local_time_zone_does_not_matter),
        cmocka_unit_test(names),
        cmocka_unit_test(pool_names),
        cmocka_unit_test(messages_say_what_was_wrong),
        cmocka_unit_test(texts_are_padded_by_characters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
