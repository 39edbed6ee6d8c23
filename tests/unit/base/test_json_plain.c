/*
 * base/json_plain against lh_json_parse: what it reads is the same tree, and it reads nothing that is refused.
 */
#include "base/json.h"
#include "tests/unit/every.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

/* Returns whether it was plain. */
static gboolean compare(const char *text, gsize len)
{
    LhJsonRoom room;
    memset(&room, 0xa5, sizeof room);
    const cJSON *plain = lh_json_parse_plain(&room, text, len);
    g_autoptr(cJSON) tree = lh_json_parse(text, len, LH_JSON_MAX_BYTES, NULL);
    if (plain == NULL)
        return FALSE;
    if (tree == NULL)
        fail_msg("read, but it is refused: %.*s", (int)len, text);
    if (!cJSON_Compare(plain, tree, TRUE))
        fail_msg("another tree: %.*s", (int)len, text);
    g_autofree char *a = lh_json_print(plain), *b = lh_json_print(tree);
    assert_string_equal(a, b);
    if (plain->child != NULL && tree->child != NULL)
        assert_int_equal(plain->child->prev->type, tree->child->prev->type);
    return TRUE;
}

static void plain_values_are_read(void **state)
{
    (void)state;
    static const char *const plain[] = {
        "{}",
        " [ ] ",
        "{\"a\":1,\"b\":-25,\"c\":0,\"d\":\"text\",\"e\":true,\"f\":false,\"g\":null}",
        "{\"a\":{\"b\":[1,[2],{\"c\":\"\"}]},\"\":\"\"}",
        "\t{ \"a\" : [ 1 , 2 ] , \"b\" : \"x y\" }\r\n",
        "999999999999999",
        "\"s3://bucket/a/b/\"",
    };
    for (guint i = 0; i < G_N_ELEMENTS(plain); i++) {
        if (!compare(plain[i], strlen(plain[i])))
            fail_msg("not read: %s", plain[i]);
    }
}

static void everything_else_is_left(void **state)
{
    (void)state;
    static const char *const left[] = {
        "",
        "{",
        "{\"a\"}",
        "{\"a\":}",
        "{\"a\":1,}",
        "{\"a\":1,\"a\":2}",
        "[1,]",
        "[1 2]",
        "01",
        "-",
        "-0",
        "1.5",
        "1e3",
        "truex",
        "nul",
        "{} {}",
        "\"\\n\"",
        "\"\xc3\xbc\"",
        "\"a\tb\"",
        "\"open",
        "{a:1}",
        "{\"a\":1]",
        "[1}",
        "1234567890123456",
        "[[[[[[[[[[]]]]]]]]]]",
    };
    for (guint i = 0; i < G_N_ELEMENTS(left); i++) {
        if (compare(left[i], strlen(left[i])))
            fail_msg("read: %s", left[i]);
    }
    assert_false(compare("{}\0", 3));
    assert_false(compare("[1]", 2));
    g_autofree char *many = g_strnfill(150, '1');
    for (guint i = 1; i < 150; i += 2)
        many[i] = ',';
    g_autofree char *list = g_strconcat("[", many, "1]", NULL);
    assert_false(compare(list, strlen(list)));
    g_autofree char *blank = g_strnfill(4000, ' ');
    memcpy(blank, "{}", 2);
    assert_false(compare(blank, 4000));
}

/* Small damage to good values: whatever is still read must be what lh_json_parse says. */
static void damaged_values_are_read_alike(void **state)
{
    (void)state;
    static const char good[] =
        "{\"service\":\"svc-07\",\"n\":[1,-2,30],\"m\":{\"a\":\"b\",\"c\":true},"
        "\"startTime\":\"2026-05-01T12:00:00.000Z\",\"x\":null}";
    static const char letters[] = "{}[]\",:0123456789-+.eEtrufalsn \\\t\n\x7f\xc3\xbc/a";
    GRand *rand = g_rand_new_with_seed(3);
    guint read = 0;
    const guint values = 200000 / every();
    for (guint i = 0; i < values; i++) {
        char text[sizeof good + 4];
        gsize len = sizeof good - 1;
        memcpy(text, good, sizeof good);
        for (gint n = g_rand_int_range(rand, 0, 4); n > 0; n--) {
            gsize at = (gsize)g_rand_int_range(rand, 0, (gint)len);
            char letter = letters[g_rand_int_range(rand, 0, sizeof letters)];
            if (g_rand_boolean(rand)) {
                text[at] = letter;
            } else {
                memmove(text + at, text + at + 1, len - at);
                len--;
            }
        }
        read += compare(text, len);
    }
    assert_in_range(read, values / 4, values - 1);
    g_rand_free(rand);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain_values_are_read),
        cmocka_unit_test(everything_else_is_left),
        cmocka_unit_test(damaged_values_are_read_alike),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
