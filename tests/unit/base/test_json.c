/*
 * base/json: what is refused and why, exact integers, escapes, and that nothing crashes on damaged
 * text. Run under ASan: every text is parsed from a heap block of exactly its length.
 */
#include "base/errors.h"
#include "base/json.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static cJSON *parse_bytes(const char *data, gsize len, GError **error)
{
    g_autofree char *exact = g_memdup2(data, len); /* NULL when empty */
    return lh_json_parse(exact, len, LH_JSON_MAX_BYTES, error);
}

static cJSON *parse(const char *text)
{
    g_autoptr(GError) error = NULL;
    cJSON *item = parse_bytes(text, strlen(text), &error);
    if (item == NULL)
        fail_msg("%s: %s", text, error->message);
    assert_null(error);
    return item;
}

static void assert_refused_bytes(const char *data, gsize len, const char *why)
{
    g_autoptr(GError) error = NULL;
    g_autoptr(cJSON) item = parse_bytes(data, len, &error);
    if (item != NULL)
        fail_msg("accepted: %.*s", (int)len, data);
    assert_true(g_error_matches(error, LH_ERROR, LH_ERR_INVALID));
    assert_true(g_utf8_validate(error->message, -1, NULL));
    if (strstr(error->message, why) == NULL)
        fail_msg("%.*s: message is \"%s\", should speak of \"%s\"", (int)MIN(len, 60), data,
                 error->message, why);
}

static void assert_refused(const char *text, const char *why)
{
    assert_refused_bytes(text, strlen(text), why);
}

static void assert_same(const char *text)
{
    g_autoptr(cJSON) item = parse(text);
    g_autofree char *printed = lh_json_print(item);
    assert_string_equal(printed, text);
}

static void valid_texts_survive_a_round_trip(void **state)
{
    (void)state;
    assert_same("null");
    assert_same("true");
    assert_same("false");
    assert_same("0");
    assert_same("-1.5");
    assert_same("\"\"");
    assert_same("[]");
    assert_same("{}");
    assert_same("{\"a\":[1,2.5,{\"b\":null}],\"c\":\"ü€😀\",\"\":true}");
    g_autoptr(cJSON) spaced = parse(" \t\r\n{ \"a\" : [ 1 , 2 ] } \n");
    g_autofree char *compact = lh_json_print(spaced);
    assert_string_equal(compact, "{\"a\":[1,2]}");
}

static void broken_grammar_is_refused(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "",        " ",        "{",         "[",        "]",        "}",         "[1",
        "[1,]",    "[,1]",     "[1 2]",     "{,}",      "{\"a\"}",  "{\"a\":}",  "{\"a\":1,}",
        "{1:2}",   "{a:1}",    "[}",        "{]",       "[1}",      "{\"a\":1]", "'a'",
        "tru",     "truex",    "True",      "nul",      "nullnull", "undefined", "NaN",
        "nan",     "Infinity", "-Infinity", "inf",      "[1]x",     "1 1",       "{}{}",
        "[] []",   "\"a",      "\"a\\",     "\"\\",     "//c\n1",   "/*c*/1",    "[1,,2]",
        "\"a\" 1", "[1:2]",    "{\"a\",1}", "#",        "\x0b[]",   "\x0c[]",    "[]\x01",
        ":",       ",",        "[\"a\"1]",  "\"\"\"\"", "{\"a\"1}",
    };
    for (guint i = 0; i < G_N_ELEMENTS(texts); i++)
        assert_refused(texts[i], "JSON at byte ");
}

static void broken_numbers_are_refused(void **state)
{
    (void)state;
    static const char *const texts[] = {"01",  "-",    "+1", ".5",  "1.",   "-.5",  "1e",   "1e+",
                                        "1E-", "0x10", "00", "-01", "1..2", "1e5.", "1-2",  "--1",
                                        "1_0", "1.e3", "0e", "1f",  "[01]", "[-]",  "1e1e1"};
    for (guint i = 0; i < G_N_ELEMENTS(texts); i++)
        assert_refused(texts[i], "JSON at byte ");
    assert_refused("1e400", "too large");
    assert_refused("-1e400", "too large");
    assert_refused("{\"a\":[1,1e999]}", "too large");
    char digits[80];
    memset(digits, '1', sizeof digits);
    assert_refused_bytes(digits, 64, "more than 63 characters");
    g_autoptr(cJSON) longest = parse_bytes(digits, 63, NULL);
    assert_non_null(longest);
    g_autoptr(cJSON) tiny = parse("1e-400");
    assert_true(tiny->valuedouble == 0);
}

static void broken_strings_are_refused(void **state)
{
    (void)state;
    assert_refused("\"\\x\"", "escape");
    assert_refused("\"\\u12\"", "hexadecimal");
    assert_refused("\"\\u12g4\"", "hexadecimal");
    assert_refused("\"\\u\"", "hexadecimal");
    assert_refused("\"\\uD800\"", "JSON at byte");        /* half a pair */
    assert_refused("\"\\uDC00\"", "JSON at byte");        /* the other half */
    assert_refused("\"\\uD800\\u0041\"", "JSON at byte"); /* half a pair, then something else */
    assert_refused("\"\\uD800x\"", "JSON at byte");
    assert_refused("\"a\nb\"", "control");
    assert_refused("\"a\tb\"", "control");
    assert_refused("\"\x1f\"", "control");
    assert_refused("{\"a\n\":1}", "control");
    g_autoptr(cJSON) pair = parse("\"\\uD83D\\uDE00\\u00fc\\n\\/\"");
    assert_string_equal(cJSON_GetStringValue(pair), "😀ü\n/");
}

/* Each of these would end a C string early, and hide what follows. */
static void nul_is_refused_in_any_spelling(void **state)
{
    (void)state;
    assert_refused("\"a\\u0000b\"", "NUL");
    assert_refused("{\"a\\u0000b\":1}", "NUL");
    assert_refused_bytes("\"a\0b\"", 5, "NUL");
    assert_refused_bytes("1\0", 2, "NUL");
    assert_refused_bytes("\0", 1, "NUL");
    assert_refused_bytes("[1]\0[2]", 7, "NUL");
}

static void bad_utf8_is_refused(void **state)
{
    (void)state;
    assert_refused("\"\xff\"", "byte 1: not valid UTF-8");
    assert_refused("\"\xc3\"", "UTF-8");
    assert_refused("\"\xc0\xaf\"", "UTF-8");            /* overlong */
    assert_refused("\"\xed\xa0\x80\"", "UTF-8");        /* a surrogate */
    assert_refused("\"\xf4\x90\x80\x80\"", "UTF-8");    /* beyond U+10FFFF */
    assert_refused("\"ab\xe2\x82", "UTF-8");            /* cut in two by the end */
    assert_refused("\xef\xbb\xbf{}", "JSON at byte 0"); /* byte order mark */
    assert_refused("\xc2\xa0[]", "JSON at byte 0");     /* not JSON's white space */
}

static void size_has_a_limit(void **state)
{
    (void)state;
    g_autoptr(GError) error = NULL;
    assert_null(lh_json_parse("[1]", 3, 2, &error));
    assert_true(g_error_matches(error, LH_ERROR, LH_ERR_INVALID));
    assert_non_null(strstr(error->message, "3 bytes, at most 2"));
    g_autoptr(cJSON) fits = lh_json_parse("[1]", 3, 3, NULL);
    assert_non_null(fits);
    assert_null(lh_json_parse(NULL, 0, 0, NULL));
}

static char *nested(gsize levels, const char *open, const char *close)
{
    GString *s = g_string_new(NULL);
    for (gsize i = 0; i < levels; i++)
        g_string_append(s, open);
    g_string_append_c(s, '1');
    for (gsize i = 0; i < levels; i++)
        g_string_append(s, close);
    return g_string_free(s, FALSE);
}

static void depth_has_a_limit(void **state)
{
    (void)state;
    g_autofree char *deepest = nested(LH_JSON_MAX_DEPTH, "[", "]");
    assert_same(deepest);
    g_autofree char *objects = nested(LH_JSON_MAX_DEPTH, "{\"a\":", "}");
    assert_same(objects);
    g_autofree char *deeper = nested(LH_JSON_MAX_DEPTH + 1, "[", "]");
    assert_refused(deeper, "more than 32 levels");
    g_autofree char *mixed = nested(LH_JSON_MAX_DEPTH / 2 + 1, "[{\"a\":", "}]");
    assert_refused(mixed, "more than 32 levels");
    g_autofree char *bomb = g_strnfill(LH_JSON_MAX_BYTES, '[');
    assert_refused(bomb, "more than 32 levels");
    /* Breadth is not depth, and brackets in strings are not brackets. */
    assert_same("[[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],"
                "[],[],[],[],[],[],[],[],[],[],[]]");
    assert_same("[\"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[\"]");
    assert_same("[\"\\\"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[\\\\\"]");
}

/* An object with @n members k0, k1, … and, if @extra is not NULL, one more. */
static char *wide(guint n, const char *extra)
{
    GString *s = g_string_new("{");
    for (guint i = 0; i < n; i++) {
        g_autofree char *key = g_strdup_printf("k%u", i);
        lh_json_append_key(s, key);
        lh_json_append_int(s, i);
    }
    if (extra != NULL) {
        lh_json_append_key(s, extra);
        lh_json_append_int(s, -1);
    }
    g_string_append_c(s, '}');
    return g_string_free(s, FALSE);
}

static void duplicate_keys_are_refused(void **state)
{
    (void)state;
    assert_refused("{\"a\":1,\"a\":1}", "key \"a\" is there twice");
    assert_refused("{\"\":1,\"\":1}", "key \"\" is there twice");
    assert_refused("{\"a\":1,\"\\u0061\":2}", "twice"); /* spelled differently */
    assert_refused("[{\"x\":{\"b\":1,\"c\":2,\"b\":3}}]", "key \"b\"");
    assert_same("{\"a\":1,\"A\":2}");
    assert_same("[{\"a\":1},{\"a\":2}]");
    assert_same("{\"a\":{\"a\":{\"a\":1}}}");
    for (guint n = 1; n < 40; n++) {
        g_autofree char *unique = wide(n, NULL);
        assert_same(unique);
        g_autofree char *first = wide(n, "k0");
        assert_refused(first, "key \"k0\"");
        g_autofree char *last_key = g_strdup_printf("k%u", n - 1);
        g_autofree char *last = wide(n, last_key);
        assert_refused(last, last_key);
    }
    g_autofree char *many = wide(5000, "k2500");
    assert_refused(many, "key \"k2500\"");
}

static void a_long_key_is_cut_in_the_message(void **state)
{
    (void)state;
    g_autofree char *key = g_strnfill(5000, 'x');
    g_autofree char *text = g_strdup_printf("{\"%s\":1,\"%s\":2}", key, key);
    g_autoptr(GError) error = NULL;
    assert_null(parse_bytes(text, strlen(text), &error));
    assert_true(strlen(error->message) < 200);
}

static void integers_are_exact_or_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        gboolean ok;
        gint64 value;
    } rows[] = {
        {"0", TRUE, 0},
        {"-0", TRUE, 0},
        {"2147483648", TRUE, G_GINT64_CONSTANT(2147483648)},
        {"-2147483649", TRUE, G_GINT64_CONSTANT(-2147483649)},
        {"9007199254740991", TRUE, G_GINT64_CONSTANT(9007199254740991)},
        {"-9007199254740991", TRUE, G_GINT64_CONSTANT(-9007199254740991)},
        {"9007199254740992", FALSE, 0},
        {"-9007199254740992", FALSE, 0},
        {"9007199254740993", FALSE, 0}, /* as a double it is 2^53 */
        {"9223372036854775807", FALSE, 0},
        {"18446744073709551616", FALSE, 0},
        {"1e300", FALSE, 0},
        {"1e3", TRUE, 1000},
        {"1.0", TRUE, 1},
        {"1.5", FALSE, 0},
        {"-0.5", FALSE, 0},
        {"1e-3", FALSE, 0},
        {"2251799813685248.5", FALSE, 0},
        {"\"1\"", FALSE, 0},
        {"true", FALSE, 0},
        {"null", FALSE, 0},
        {"[1]", FALSE, 0},
    };
    for (guint i = 0; i < G_N_ELEMENTS(rows); i++) {
        g_autoptr(cJSON) item = parse(rows[i].text);
        gint64 value = 77;
        if (lh_json_int(item, &value) != rows[i].ok)
            fail_msg("%s", rows[i].text);
        assert_int_equal(value, rows[i].ok ? rows[i].value : 77);
    }
    gint64 value = 77;
    assert_false(lh_json_int(NULL, &value));
    g_autoptr(cJSON) nan_item = cJSON_CreateNumber(NAN);
    g_autoptr(cJSON) inf_item = cJSON_CreateNumber(-INFINITY);
    assert_false(lh_json_int(nan_item, &value));
    assert_false(lh_json_int(inf_item, &value));
    assert_int_equal(value, 77);
}

static void members_fall_back_when_absent_or_of_another_type(void **state)
{
    (void)state;
    g_autoptr(cJSON) o = parse("{\"s\":\"x\",\"i\":5,\"t\":true,\"f\":false,\"n\":null,\"d\":1.5,"
                               "\"big\":9007199254740992}");
    assert_string_equal(lh_json_get_string(o, "s", "fb"), "x");
    assert_string_equal(lh_json_get_string(o, "S", "fb"), "fb");
    assert_string_equal(lh_json_get_string(o, "i", "fb"), "fb");
    assert_null(lh_json_get_string(o, "n", NULL));
    assert_int_equal(lh_json_get_int(o, "i", 9), 5);
    assert_int_equal(lh_json_get_int(o, "I", 9), 9);
    assert_int_equal(lh_json_get_int(o, "s", 9), 9);
    assert_int_equal(lh_json_get_int(o, "d", 9), 9);
    assert_int_equal(lh_json_get_int(o, "big", 9), 9);
    assert_true(lh_json_get_bool(o, "t", FALSE));
    assert_false(lh_json_get_bool(o, "f", TRUE));
    assert_true(lh_json_get_bool(o, "n", TRUE));
    assert_true(lh_json_get_bool(o, "i", TRUE));
    assert_string_equal(lh_json_get_string(NULL, "s", "fb"), "fb");
    assert_int_equal(lh_json_get_int(NULL, "i", 9), 9);
    assert_true(lh_json_get_bool(NULL, "t", TRUE));
    g_autoptr(cJSON) array = parse("[1,2]");
    assert_int_equal(lh_json_get_int(array, "i", 9), 9);
}

static void assert_string_written(const char *text, const char *expected)
{
    g_autoptr(GString) out = g_string_new(NULL);
    lh_json_append_string(out, text);
    assert_string_equal(out->str, expected);
    if (text != NULL && g_utf8_validate(text, -1, NULL)) {
        g_autoptr(cJSON) back = parse(out->str);
        assert_string_equal(cJSON_GetStringValue(back), text);
    }
}

static void strings_are_escaped(void **state)
{
    (void)state;
    assert_string_written(NULL, "null");
    assert_string_written("", "\"\"");
    assert_string_written("plain ü€😀 /", "\"plain ü€😀 /\"");
    assert_string_written("a\"b\\c", "\"a\\\"b\\\\c\"");
    assert_string_written("\n\r\t\b\f\x01\x1f", "\"\\n\\r\\t\\u0008\\u000c\\u0001\\u001f\"");
    assert_string_written("\x7f\xc2\x9b\xc2\xa0",
                          "\"\\u007f\\u009b\xc2\xa0\""); /* DEL, CSI, nbsp */
    assert_string_written("a\xff\xfe!", "\"a\xef\xbf\xbd\xef\xbf\xbd!\"");
    assert_string_written("\xe2\x82", "\"\xef\xbf\xbd\xef\xbf\xbd\"");
    for (int c = 1; c < 128; c++) {
        char text[] = {'x', (char)c, 'y', '\0'};
        g_autoptr(GString) out = g_string_new(NULL);
        lh_json_append_string(out, text);
        g_autoptr(cJSON) back = parse(out->str);
        assert_string_equal(cJSON_GetStringValue(back), text);
    }
}

static void keys_bring_their_commas(void **state)
{
    (void)state;
    g_autoptr(GString) out = g_string_new("{");
    lh_json_append_key(out, "a");
    lh_json_append_int(out, 1);
    lh_json_append_key(out, "b\"{");
    lh_json_append_string(out, "{"); /* ends in a quote, not in a brace */
    lh_json_append_key(out, "c");
    g_string_append_c(out, '[');
    lh_json_append_key(out, NULL);
    lh_json_append_int(out, 2);
    lh_json_append_key(out, NULL);
    lh_json_append_int(out, 3);
    g_string_append(out, "]}");
    assert_string_equal(out->str, "{\"a\":1,\"b\\\"{\":\"{\",\"c\":[2,3]}");
    g_autoptr(GString) empty = g_string_new(NULL);
    lh_json_append_key(empty, "a");
    assert_string_equal(empty->str, "\"a\":");
}

static void assert_double_written(double value, const char *expected)
{
    g_autoptr(GString) out = g_string_new(NULL);
    lh_json_append_double(out, value);
    assert_string_equal(out->str, expected);
}

static void numbers_are_written_exactly(void **state)
{
    (void)state;
    g_autoptr(GString) out = g_string_new(NULL);
    lh_json_append_int(out, G_MININT64);
    g_string_append_c(out, ' ');
    lh_json_append_int(out, G_MAXINT64);
    assert_string_equal(out->str, "-9223372036854775808 9223372036854775807");
    assert_double_written(0.1, "0.1");
    assert_double_written(0.1 + 0.2, "0.30000000000000004");
    assert_double_written(1e15, "1000000000000000");
    assert_double_written(1e21, "1e+21");
    assert_double_written(9007199254740991.0, "9007199254740991");
    assert_double_written(-2147483649.0, "-2147483649");
    assert_double_written(NAN, "null");
    assert_double_written(INFINITY, "null");
    assert_same("[9007199254740991,-9007199254740991,2147483648,4294967296,1714564800000]");
    g_autoptr(cJSON) tree = cJSON_CreateArray();
    cJSON_AddItemToArray(tree, cJSON_CreateRaw("18446744073709551615"));
    cJSON_AddItemToArray(tree, cJSON_CreateNumber(NAN));
    cJSON_AddItemToArray(tree, cJSON_CreateString("a\nb"));
    g_autofree char *printed = lh_json_print(tree);
    assert_string_equal(printed, "[18446744073709551615,null,\"a\\nb\"]");
    g_autofree char *nothing = lh_json_print(NULL);
    assert_string_equal(nothing, "null");
}

/* Whatever is done to a valid text: it is refused, or what was understood can be printed, parsed
 * and printed again to the same bytes. */
static void damaged_texts_never_crash(void **state)
{
    (void)state;
    static const char seed[] =
        "{\"metadata\":{\"name\":\"api-\\u00e9\",\"labels\":{\"a\":\"\\n\"}},"
        "\"n\":[1,-2.5e3,9007199254740991,true,null],\"s\":\"ü😀\\\"\"}";
    static const char bytes[] = "{}[]\",:\\u0e-+.19tfn \n\x01\xc3\xff\x00";
    g_autoptr(GRand) rand = g_rand_new_with_seed(42);
    guint accepted = 0;
    for (guint round = 0; round < 20000; round++) {
        g_autofree char *text = g_memdup2(seed, sizeof seed - 1);
        gsize len = sizeof seed - 1;
        if (round % 4 == 0)
            len = (gsize)g_rand_int_range(rand, 0, (gint32)sizeof seed);
        for (gint n = g_rand_int_range(rand, 0, 4); n > 0 && len > 0; n--)
            text[g_rand_int_range(rand, 0, (gint32)len)] =
                bytes[g_rand_int_range(rand, 0, (gint32)sizeof bytes - 1)];
        g_autoptr(GError) error = NULL;
        g_autoptr(cJSON) item = parse_bytes(text, len, &error);
        assert_true((item == NULL) == (error != NULL));
        if (item == NULL)
            continue;
        accepted++;
        g_autofree char *once = lh_json_print(item);
        g_autoptr(cJSON) again = parse(once);
        g_autofree char *twice = lh_json_print(again);
        assert_string_equal(once, twice);
    }
    assert_true(accepted > 1000 && accepted < 19000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(valid_texts_survive_a_round_trip),
        cmocka_unit_test(broken_grammar_is_refused),
        cmocka_unit_test(broken_numbers_are_refused),
        cmocka_unit_test(broken_strings_are_refused),
        cmocka_unit_test(nul_is_refused_in_any_spelling),
        cmocka_unit_test(bad_utf8_is_refused),
        cmocka_unit_test(size_has_a_limit),
        cmocka_unit_test(depth_has_a_limit),
        cmocka_unit_test(duplicate_keys_are_refused),
        cmocka_unit_test(a_long_key_is_cut_in_the_message),
        cmocka_unit_test(integers_are_exact_or_refused),
        cmocka_unit_test(members_fall_back_when_absent_or_of_another_type),
        cmocka_unit_test(strings_are_escaped),
        cmocka_unit_test(keys_bring_their_commas),
        cmocka_unit_test(numbers_are_written_exactly),
        cmocka_unit_test(damaged_texts_never_crash),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
