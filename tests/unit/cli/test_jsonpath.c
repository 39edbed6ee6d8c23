/*
 * JSONPath templates: kubectl's subset.
 */
#include "base/errors.h"
#include "base/json.h"
#include "cli/jsonpath.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static const char document[] =
    "{\"kind\":\"List\",\"n\":3,\"big\":9007199254740991,\"t\":true,\"nil\":null,\"a.b\":\"dotted\","
    "\"empty\":[],\"o\":{\"x\":1,\"y\":[2]},"
    "\"items\":[{\"metadata\":{\"name\":\"one\"},\"v\":1,\"c\":[{\"type\":\"Valid\",\"status\":"
    "\"True\"},{\"type\":\"Paused\",\"status\":\"False\"}]},"
    "{\"metadata\":{\"name\":\"two\"},\"v\":2,\"c\":[]},"
    "{\"metadata\":{\"name\":\"three\"},\"v\":2}]}";

static void test_values(void **state)
{
    (void)state;
    static const struct {
        const char *template, *text;
    } cases[] = {
        {"{.kind}", "List"},
        {".kind", "List"},
        {"kind", "List"},
        {"{$.kind}", "List"},
        {"{ .kind }", "List"},
        {"{.n} {.big} {.t}", "3 9007199254740991 true"},
        {"{.nil}{.none}{.kind.x}{.items.x}{.kind[0]}{.kind[*]}", ""},
        {"{.items[0].metadata.name}", "one"},
        {"{.items[-1].metadata.name}", "three"},
        {"{.items[3].v}{.items[-4].v}", ""},
        {"{.items[*].metadata.name}", "one two three"},
        {"{.items[*]['metadata'].name}", "one two three"},
        {"{['a.b']} {.a\\.b}", "dotted dotted"},
        {"{.o.*}", "1 [2]"},
        {"{.o}", "{\"x\":1,\"y\":[2]}"},
        {"{.o.y[*]}", "2"},
        {"{.empty}{.empty[*]}", "[]"},
        {"{.items[0].c[?(@.type==\"Valid\")].status}", "True"},
        {"{.items[0].c[?(@.type=='Valid')].status}", "True"},
        {"{.items[?(@.v==2)].metadata.name}", "two three"},
        {"{.items[?(@.v!=2)].metadata.name}", "one"},
        {"{.items[?(@.c)].metadata.name}", "one two"},
        {"{.items[?( @.metadata.name == \"two\" )].v}", "2"},
        {"names:{range .items[*]} {.metadata.name}={.v}{\"\\n\"}{end}.",
         "names: one=1\n two=2\n three=2\n."},
        {"{range .items[*]}{.metadata.name}[{range .c[*]}{.type},{end}]{end}",
         "one[Valid,Paused,]two[]three[]"},
        {"{range .none[*]}x{end}y", "y"},
        {"{\"tab\\t\"}|", "tab\t|"},
    };
    g_autoptr(cJSON) root = cJSON_Parse(document);
    assert_non_null(root);
    for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
        g_autoptr(GError) error = NULL;
        g_autoptr(LhJsonPath) path = lh_jsonpath_new(cases[i].template, &error);
        if (path == NULL) {
            fail_msg("%s: %s", cases[i].template, error->message);
        }
        g_autoptr(GString) text = g_string_new(NULL);
        lh_jsonpath_eval(path, root, text);
        if (strcmp(text->str, cases[i].text) != 0) {
            fail_msg("%s: \"%s\", expected \"%s\"", cases[i].template, text->str, cases[i].text);
        }
    }
}

static void test_whole(void **state)
{
    (void)state;
    g_autoptr(cJSON) root = cJSON_Parse("{\"a\":[1,\"x\"]}");
    static const char *const all[] = {"{.}", "{$}", "{@}"};
    for (guint i = 0; i < G_N_ELEMENTS(all); i++) {
        g_autoptr(LhJsonPath) path = lh_jsonpath_new(all[i], NULL);
        g_autoptr(GString) text = g_string_new(NULL);
        assert_non_null(path);
        lh_jsonpath_eval(path, root, text);
        assert_string_equal(text->str, "{\"a\":[1,\"x\"]}");
    }
}

static void test_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "",
        "{",
        "{}",
        "{.a",
        "{.a[}",
        "{.a[x]}",
        "{.a[1}",
        "{.a[]}",
        "{.a['x]}",
        "{..a}",
        "{.a..b}",
        "{.a b}",
        "{end}",
        "{range .a}",
        "{range}x{end}",
        "{.a[?(x)]}",
        "{.a[?(@.b=1)]}",
        "{.a[?(@.b==)]}",
        "{.a[?(@.b==\"x\"]}",
        "{\"x}",
        "{.a[1:2]}",
        "{.a[99999999999]}",
        "a b",
        "{.a}{end}",
        "{range .a[*]}{range .b}{end}",
    };
    for (guint i = 0; i < G_N_ELEMENTS(bad); i++) {
        g_autoptr(GError) error = NULL;
        g_autoptr(LhJsonPath) path = lh_jsonpath_new(bad[i], &error);
        if (path != NULL) {
            fail_msg("accepted: %s", bad[i]);
        }
        assert_true(g_error_matches(error, LH_ERROR, LH_ERR_INVALID));
        assert_true(g_str_has_prefix(error->message, "jsonpath "));
    }
}

/* @n filters, each in the one before; or ranges. */
static LhJsonPath *nested(const char *begin, const char *inner, const char *outer, const char *end,
                          guint n, GError **error)
{
    g_autoptr(GString) text = g_string_new(begin);
    for (guint i = 0; i < n; i++)
        g_string_append(text, inner);
    for (guint i = 0; i < n; i++)
        g_string_append(text, outer);
    g_string_append(text, end);
    return lh_jsonpath_new(text->str, error);
}

static void test_nested_too_deep(void **state)
{
    (void)state;
    static const guint depths[] = {17, 200000};
    g_autoptr(LhJsonPath) filters = nested("{.a", "[?(@.b", ")]", "}", 16, NULL);
    g_autoptr(LhJsonPath) ranges = nested("", "{range .a[*]}", "{end}", "", 16, NULL);
    assert_non_null(filters);
    assert_non_null(ranges);
    for (guint i = 0; i < G_N_ELEMENTS(depths); i++) {
        g_autoptr(GError) error = NULL;
        g_autoptr(GError) other = NULL;
        assert_null(nested("{.a", "[?(@.b", ")]", "}", depths[i], &error));
        assert_string_equal(error->message, "jsonpath: filters are nested deeper than 16");
        assert_true(g_error_matches(error, LH_ERROR, LH_ERR_INVALID));
        assert_null(nested("", "{range .a[*]}", "{end}", "", depths[i], &other));
        assert_string_equal(other->message, "jsonpath: ranges are nested deeper than 16");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_whole),
        cmocka_unit_test(test_nested_too_deep),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests_name("cli/jsonpath", tests, NULL, NULL);
}
