/*
 * Manifests: YAML 1.2's scalars, lines in errors, what is refused, directories.
 */
#include "base/errors.h"
#include "base/json.h"
#include "cli/manifest.h"

#include <glib/gstdio.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

/* The only object of @yaml as compact JSON. */
static char *parsed(const char *yaml)
{
    g_autoptr(GPtrArray) out = lh_manifests_new();
    g_autoptr(GError) error = NULL;
    if (!lh_manifest_parse("f", yaml, strlen(yaml), FALSE, out, &error)) {
        return g_strdup(error->message);
    }
    assert_int_equal(out->len, 1);
    return lh_json_print(((LhManifest *)out->pdata[0])->object);
}

static void assert_parsed(const char *yaml, const char *json)
{
    g_autofree char *text = parsed(yaml);
    assert_string_equal(text, json);
}

static void test_scalars(void **state)
{
    (void)state;
    static const struct {
        const char *yaml, *json;
    } cases[] = {
        {"yes", "\"yes\""},
        {"no", "\"no\""},
        {"on", "\"on\""},
        {"Off", "\"Off\""},
        {"y", "\"y\""},
        {"true", "true"},
        {"True", "true"},
        {"FALSE", "false"},
        {"tRUE", "\"tRUE\""},
        {"null", "null"},
        {"~", "null"},
        {"", "null"},
        {"nULL", "\"nULL\""},
        {"0", "0"},
        {"-7", "-7"},
        {"+12", "12"},
        {"017", "17"},
        {"0o17", "15"},
        {"0xfF", "255"},
        {"0o8", "\"0o8\""},
        {"-0x1", "\"-0x1\""},
        {"0b1", "\"0b1\""},
        {"1_000", "\"1_000\""},
        {"1:30", "\"1:30\""},
        {"9007199254740991", "9007199254740991"},
        {"-9007199254740991", "-9007199254740991"},
        {"1.5", "1.5"},
        {".5", "0.5"},
        {"1.", "1"},
        {"1e3", "1000"},
        {"1e", "\"1e\""},
        {".", "\".\""},
        {"+", "\"+\""},
        {"\"1\"", "\"1\""},
        {"'true'", "\"true\""},
        {"!!str 5", "\"5\""},
        {"! \"5\"", "\"5\""},
        {"24h", "\"24h\""},
        {"15Gi", "\"15Gi\""},
        {"2026-05-01", "\"2026-05-01\""},
        {"a b", "\"a b\""},
        {"\"\\u00e9\\n\"", "\"\xc3\xa9\\n\""},
    };
    for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
        g_autofree char *yaml = g_strdup_printf("a: %s\n", cases[i].yaml);
        g_autofree char *json = g_strdup_printf("{\"a\":%s}", cases[i].json);
        assert_parsed(yaml, json);
    }
    assert_parsed("a: |\n  one\n  two\n", "{\"a\":\"one\\ntwo\\n\"}");
    assert_parsed("{a: [1, {b: []}], c: {}}", "{\"a\":[1,{\"b\":[]}],\"c\":{}}");
    assert_parsed("%YAML 1.2\n---\na: 1\n...\n", "{\"a\":1}");
    assert_parsed("{\"a\": \"b\\/c\"}", "{\"a\":\"b/c\"}");
    assert_parsed("1: x\ntrue: y\n", "{\"1\":\"x\",\"true\":\"y\"}");
}

static void test_refused(void **state)
{
    (void)state;
    static const struct {
        const char *yaml, *line, *why;
    } cases[] = {
        {"a: 1\nb: &x 2\nc: *x\n", "f:2: ", "anchor"},
        {"a: 1\nb: *x\n", "f:2: ", "alias"},
        {"a: &x {b: 1}\n", "f:1: ", "anchor"},
        {"a: &x [1]\n", "f:1: ", "anchor"},
        {"a: 1\n\n<<: {b: 1}\n", "f:3: ", "merge"},
        {"a: 1\nb: 2\na: 3\n", "f:3: ", "twice"},
        {"[a]: 1\n", "f:1: ", "keys"},
        {"? {a: 1}\n: 2\n", "f:1: ", "keys"},
        {"a: 9007199254740992\n", "f:1: ", "2^53-1"},
        {"a: -9007199254740992\n", "f:1: ", "2^53-1"},
        {"a: 99999999999999999999999\n", "f:1: ", "2^53-1"},
        {"a: 0xffffffffffffffff\n", "f:1: ", "2^53-1"},
        {"a: 1e17\n", "f:1: ", "2^53-1"},
        {"a: .inf\n", "f:1: ", "JSON"},
        {"a: .nan\n", "f:1: ", "JSON"},
        {"a: 1e999\n", "f:1: ", "JSON"},
        {"a: !!binary aGk=\n", "f:1: ", "tag"},
        {"a: !mine x\n", "f:1: ", "tag"},
        {"a: !mine {b: 1}\n", "f:1: ", "tag"},
        {"a: \"x\\0y\"\n", "f:1: ", "NUL"},
        {"a: 1\nb: [1, 2\nc: 3\n", "f:3: ", ""},
        {"a: b: c\n", "f:1: ", ""},
        {"a: 1\n\tb: 2\n", "f:2: ", ""},
        {"a: \xff\xfe\n", "f:", ""},
        {"- a\n", "f:1: ", "must be an object"},
        {"just text\n", "f:1: ", "must be an object"},
        {"a: 1\n---\n- b\n", "f:3: ", "must be an object"},
    };
    for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
        g_autoptr(GPtrArray) out = lh_manifests_new();
        g_autoptr(GError) error = NULL;
        if (lh_manifest_parse("f", cases[i].yaml, strlen(cases[i].yaml), FALSE, out, &error)) {
            fail_msg("accepted: %s", cases[i].yaml);
        }
        assert_true(g_error_matches(error, LH_ERROR, LH_ERR_INVALID));
        if (!g_str_has_prefix(error->message, cases[i].line) ||
            strstr(error->message, cases[i].why) == NULL) {
            fail_msg("%s: %s", cases[i].yaml, error->message);
        }
    }
}

static void test_bombs(void **state)
{
    (void)state;
    /* A billion laughs: nothing is expanded. */
    GString *laughs = g_string_new("a: &a [x,x,x,x,x,x,x,x,x]\n");
    for (char c = 'b'; c < 'k'; c++) {
        g_string_append_printf(laughs, "%c: &%c [*%c,*%c,*%c,*%c,*%c,*%c,*%c,*%c,*%c]\n", c, c,
                               c - 1, c - 1, c - 1, c - 1, c - 1, c - 1, c - 1, c - 1, c - 1);
    }
    g_autofree char *text = parsed(laughs->str);
    assert_true(g_str_has_prefix(text, "f:1: anchors"));
    g_string_free(laughs, TRUE);

    g_autofree char *open = g_strnfill(100000, '[');
    g_autofree char *deep = g_strconcat("a: ", open, NULL);
    g_autofree char *why = parsed(deep);
    assert_true(g_str_has_prefix(why, "f:1: "));
    assert_non_null(strstr(why, "levels"));

    GString *fits = g_string_new(NULL), *over = g_string_new(NULL);
    for (int i = 0; i < LH_JSON_MAX_DEPTH - 1; i++) {
        g_string_append_c(fits, '[');
    }
    g_string_append_printf(over, "a: [%s1", fits->str);
    g_string_prepend(fits, "a: ");
    for (int i = 0; i < LH_JSON_MAX_DEPTH - 1; i++) {
        g_string_append_c(fits, ']');
        g_string_append_c(over, ']');
    }
    g_string_append_c(over, ']');
    g_autofree char *good = parsed(fits->str), *bad = parsed(over->str);
    assert_true(g_str_has_prefix(good, "{\"a\":[[["));
    assert_non_null(strstr(bad, "more than 32 levels"));
    g_string_free(fits, TRUE);
    g_string_free(over, TRUE);

    g_autoptr(GPtrArray) out = lh_manifests_new();
    g_autoptr(GError) error = NULL;
    g_autofree char *large = g_strnfill(17 * 1024 * 1024, ' ');
    assert_false(lh_manifest_parse("f", large, strlen(large), FALSE, out, &error));
    assert_non_null(strstr(error->message, "bytes"));
}

static void test_documents(void **state)
{
    (void)state;
    static const char yaml[] = "# nothing here\n---\n---\nkind: A\n---\n# none\n---\nkind: BList\n"
                               "items:\n- kind: B\n  n: 1\n- kind: B\n  n: 2\n---\nnull\n---\n"
                               "\nkind: C\n";
    g_autoptr(GPtrArray) out = lh_manifests_new();
    g_autoptr(GError) error = NULL;
    assert_true(lh_manifest_parse("f", yaml, strlen(yaml), FALSE, out, &error));
    assert_int_equal(out->len, 4);
    static const char *const kinds[] = {"A", "B", "B", "C"};
    static const char *const places[] = {"f:4", "f:8", "f:8", "f:18"};
    for (guint i = 0; i < 4; i++) {
        const LhManifest *manifest = out->pdata[i];
        assert_string_equal(lh_json_get_string(manifest->object, "kind", ""), kinds[i]);
        assert_string_equal(manifest->source, places[i]);
    }
    assert_int_equal(lh_json_get_int(((LhManifest *)out->pdata[2])->object, "n", 0), 2);
}

static void test_json_integers(void **state)
{
    (void)state;
    static const char good[] = "{\"a\":[9007199254740991,-9007199254740991,0.5]}";
    static const char bad[] = "{\"a\":[{\"n\":9007199254740993}]}";
    g_autoptr(GPtrArray) out = lh_manifests_new();
    g_autoptr(GError) error = NULL;
    assert_true(lh_manifest_parse("f", good, strlen(good), TRUE, out, NULL));
    assert_false(lh_manifest_parse("f", bad, strlen(bad), TRUE, out, &error));
    assert_string_equal(error->message, "f:1: n: 9007199254740992: integers must be within 2^53-1");
    assert_int_equal(out->len, 1);
}

static void test_json(void **state)
{
    (void)state;
    static const char *const bad[] = {"{\n\"a\": 1,\n\"b\": yes\n}", "{\n\n\"a\" 1}",
                                      "{\"a\":1,\"a\":2}", "[1]", "{} {}"};
    static const char *const line[] = {"f:3: ", "f:3: ", "f:1: ", "f:1: ", "f:1: "};
    for (guint i = 0; i < G_N_ELEMENTS(bad); i++) {
        g_autoptr(GPtrArray) out = lh_manifests_new();
        g_autoptr(GError) error = NULL;
        assert_false(lh_manifest_parse("f", bad[i], strlen(bad[i]), TRUE, out, &error));
        if (!g_str_has_prefix(error->message, line[i])) {
            fail_msg("%s: %s", bad[i], error->message);
        }
    }
    g_autoptr(GPtrArray) out = lh_manifests_new();
    assert_true(lh_manifest_parse("f", "{\t\"a\": 9007199254740991}", 24, TRUE, out, NULL));
    assert_int_equal(out->len, 1);
}

static void test_files(void **state)
{
    (void)state;
    g_autofree char *dir = g_dir_make_tmp("lh-cli-XXXXXX", NULL);
    static const char *const names[] = {"b.yaml", "a.yml", "c.json", "d.txt", ".e.yaml"};
    static const char *const contents[] = {"kind: B", "kind: A", "{\"kind\":\"C\"}", "kind: D",
                                           "kind: E"};
    g_autoptr(GPtrArray) paths = g_ptr_array_new_with_free_func(g_free);
    for (guint i = 0; i < G_N_ELEMENTS(names); i++) {
        g_ptr_array_add(paths, g_build_filename(dir, names[i], NULL));
        assert_true(g_file_set_contents(paths->pdata[i], contents[i], -1, NULL));
    }
    g_autoptr(GPtrArray) out = lh_manifests_new();
    g_autoptr(GError) error = NULL;
    assert_true(lh_manifest_load(dir, out, &error));
    assert_int_equal(out->len, 3);
    for (guint i = 0; i < 3; i++) {
        const char *kind = lh_json_get_string(((LhManifest *)out->pdata[i])->object, "kind", "");
        assert_int_equal(kind[0], "ABC"[i]);
    }
    g_autofree char *missing = g_build_filename(dir, "missing.yaml", NULL);
    assert_false(lh_manifest_load(missing, out, &error));
    assert_true(g_error_matches(error, LH_ERROR, LH_ERR_IO));
    for (guint i = 0; i < paths->len; i++) {
        g_unlink(paths->pdata[i]);
    }
    g_rmdir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_scalars), cmocka_unit_test(test_refused),
        cmocka_unit_test(test_bombs),   cmocka_unit_test(test_documents),
        cmocka_unit_test(test_json),    cmocka_unit_test(test_json_integers),
        cmocka_unit_test(test_files),
    };
    return cmocka_run_group_tests_name("cli/manifest", tests, NULL, NULL);
}
