/*
 * objectstore, s3:// against a real server that verifies what is signed: OpenStack Swift.
 */
#include "s3_fixture.h"
#include "tests/fakes/s3_process.h"

/* links: fakes */
/* suite: threads */

static S3Process *swift;

static int setup(void **state)
{
    S3Fixture *f = s3_fixture_new(s3_process_endpoint(swift));
    set_keys(f, s3_process_access_key(swift), s3_process_secret_key(swift));
    open_store(f);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    s3_fixture_free(*state);
    return 0;
}

static void put(const char *key, const char *text)
{
    s3_process_put(swift, "data", key, text, strlen(text));
}

/* ---- listing ---- */

static void lists_all_pages_sorted(void **state)
{
    S3Fixture *f = *state;
    g_autoptr(GString) expected = g_string_new(NULL);
    for (guint i = 0; i < 11; i++) {
        g_autofree char *key = g_strdup_printf("pages/s/d%02u/f%u", i, i);
        put(key, "12345");
        g_string_append_printf(expected, "%sd%02u/f%u:5", i > 0 ? " " : "", i, i);
    }
    put("pages/s", "beside");
    put("pages/s2/x", "beside");
    for (guint max = 1; max <= 12; max += max < 4 ? 1 : 4) { /* one page, or up to eleven */
        f->tuning.max_keys = max;
        open_store(f);
        list(f, "s3://data/pages/s/");
        assert_ok(f);
        assert_string_equal(f->names->str, expected->str);
    }
}

static void nothing_there_is_an_error(void **state)
{
    S3Fixture *f = *state;
    list(f, "s3://data/nothing/");
    assert_error(f, LH_ERR_NOT_FOUND, "s3://data/nothing/: there is no object below it");
    fetch(f, "s3://data/nothing/", "x", "x");
    assert_error(f, LH_ERR_NOT_FOUND, "s3://data/nothing/x: there is no such object");
    assert_false(out_exists(f, "x"));
}

static void a_marked_directory_is_empty(void **state)
{
    S3Fixture *f = *state;
    put("marked/", "");
    list(f, "s3://data/marked/");
    assert_ok(f);
    assert_string_equal(f->names->str, "");
    put("marked/d/", "");
    put("marked/x", "1");
    list(f, "s3://data/marked/");
    assert_string_equal(f->names->str, "x:1");
    put("marked/e/", "data");
    list(f, "s3://data/marked/");
    assert_error(f, LH_ERR_INVALID, "\"e/\" ends with '/', but has data");
}

static void odd_keys_survive(void **state)
{
    S3Fixture *f = *state;
    static const char *const keys[] = {
        "a b",  "a+b",   "a=b",       "a:b",     "a%20b", "100%",   "a&b;c", "<>\"'",    "ü",
        "日本", "~-._*", "(1)!@#$,?", "dir e/f", "[x]{}", "\\back", "%",     "..hidden", "é/日 本"};
    for (gsize i = 0; i < G_N_ELEMENTS(keys); i++) {
        g_autofree char *key = g_strdup_printf("odd dir+ü/%s", keys[i]);
        put(key, keys[i]);
    }
    f->tuning.max_keys = 3; /* tokens are odd too */
    open_store(f);
    list(f, "s3://data/odd dir+ü/");
    assert_ok(f);
    for (gsize i = 0; i < G_N_ELEMENTS(keys); i++) {
        g_autofree char *entry = g_strdup_printf("%s:%zu", keys[i], strlen(keys[i]));
        g_autofree char *out = g_strdup_printf("odd%zu", i);
        if (strstr(f->names->str, entry) == NULL)
            fail_msg("%s is not in \"%s\"", entry, f->names->str);
        g_autofree char *names = g_strdup(f->names->str);
        fetch(f, "s3://data/odd dir+ü/", keys[i], out);
        assert_fetched(f, out, keys[i], strlen(keys[i]));
        g_string_assign(f->names, names);
    }
}

static void keys_that_are_no_paths_are_refused(void **state)
{
    S3Fixture *f = *state;
    static const char *const keys[] = {"bad1/a//b", "bad2/../x", "bad3/a/./b", "bad4//x",
                                       "bad5/tab\tx"};
    for (gsize i = 0; i < G_N_ELEMENTS(keys); i++) {
        g_autofree char *uri = g_strdup_printf("s3://data/bad%zu/", i + 1);
        g_autofree char *good = g_strdup_printf("bad%zu/good", i + 1);
        put(good, "1");
        put(keys[i], "1");
        list(f, uri);
        assert_error(f, LH_ERR_INVALID, "the key below it");
        assert_string_equal(f->names->str, "");
    }
    put("both/a.b", "1");
    put("both/a", "1");
    put("both/a/b", "1");
    list(f, "s3://data/both/");
    assert_error(f, LH_ERR_INVALID, "\"a\" is an object, and has objects below it");
}

static void deeper_than_the_limit_is_refused(void **state)
{
    S3Fixture *f = *state;
    GString *key = g_string_new("deep/");
    for (guint i = 0; i < LH_STORE_MAX_DEPTH; i++)
        g_string_append(key, "d/");
    g_string_append(key, "x");
    put(key->str, "1");
    list(f, "s3://data/deep/");
    assert_ok(f);
    g_string_insert(key, 5, "d/");
    put(key->str, "1");
    list(f, "s3://data/deep/");
    assert_error(f, LH_ERR_INVALID, "32 directories deep");
    g_string_free(key, TRUE);
}

/* ---- fetching ---- */

static void fetches_in_parts(void **state)
{
    S3Fixture *f = *state;
    const gsize n = 10 * 1000 * 1000 + 7;
    g_autofree char *data = noise(n);
    s3_process_put(swift, "data", "big/x", data, n);
    const gint64 parts[] = {1024 * 1024, 3000001,       (gint64)n - 1,
                            (gint64)n,   (gint64)n + 1, 64 * 1024 * 1024};
    for (gsize i = 0; i < G_N_ELEMENTS(parts); i++) {
        g_autofree char *out = g_strdup_printf("big%zu", i);
        f->tuning.part_bytes = parts[i];
        open_store(f);
        fetch(f, "s3://data/big/", "x", out);
        assert_fetched(f, out, data, n);
    }
}

static void small_ones_too(void **state)
{
    S3Fixture *f = *state;
    put("small/empty", "");
    put("small/one", "1");
    put("small/four", "1234");
    f->tuning.part_bytes = 2;
    open_store(f);
    fetch(f, "s3://data/small/", "empty", "empty");
    assert_fetched(f, "empty", "", 0);
    fetch(f, "s3://data/small/", "one", "one");
    assert_fetched(f, "one", "1", 1);
    fetch(f, "s3://data/small/", "four", "four");
    assert_fetched(f, "four", "1234", 4);
}

static void many_at_once(void **state)
{
    S3Fixture *f = *state;
    const gsize n = 300000;
    g_autofree char *data = noise(n);
    s3_process_put(swift, "data", "many/x", data, n);
    f->tuning.part_bytes = 100000;
    open_store(f);
    forget(f);
    for (guint i = 0; i < 20; i++) {
        g_autofree char *name = g_strdup_printf("many%u", i);
        g_autofree char *to = out_path(f, name);
        lh_store_fetch(f->store, "s3://data/many/", "x", to, NULL, on_fetch, f);
    }
    await_answers(f, 20);
    assert_ok(f);
    for (guint i = 0; i < 20; i++) {
        g_autofree char *name = g_strdup_printf("many%u", i);
        assert_fetched(f, name, data, n);
    }
}

/* ---- who we are ---- */

static void expect_refused(S3Fixture *f, LhErrorCode code, const char *text)
{
    open_store(f);
    list(f, "s3://data/who/");
    assert_error(f, code, text);
    fetch(f, "s3://data/who/", "x", "who");
    assert_error(f, code, text);
    assert_false(out_exists(f, "who"));
}

static void a_wrong_secret(void **state)
{
    S3Fixture *f = *state;
    put("who/x", "1");
    set_keys(f, s3_process_access_key(swift), "not the secret");
    expect_refused(f, LH_ERR_AUTH, "the secret key does not fit the access key (HTTP 403 Sig");
}

static void an_unknown_access_key(void **state)
{
    S3Fixture *f = *state;
    put("who/x", "1");
    set_keys(f, "test:nobody", s3_process_secret_key(swift));
    expect_refused(f, LH_ERR_AUTH, "(HTTP 403 ");
}

static void somebody_without_permission(void **state)
{
    S3Fixture *f = *state;
    put("who/x", "1");
    set_keys(f, s3_process_stranger(swift), s3_process_stranger_secret(swift));
    expect_refused(f, LH_ERR_FORBIDDEN, "access is denied (HTTP 403 AccessDenied)");
}

static void a_wrong_bucket(void **state)
{
    S3Fixture *f = *state;
    list(f, "s3://nodata/who/");
    assert_error(f, LH_ERR_NOT_FOUND, "there is no such bucket");
    fetch(f, "s3://nodata/who/", "x", "x");
    assert_error(f, LH_ERR_NOT_FOUND, "s3://nodata/who/x: there is no such bucket");
}

/* ---- addressing ---- */

static void by_path_and_by_name(void **state)
{
    S3Fixture *f = *state;
    put("where/a b", "12");
    f->options.endpoint = s3_process_by_name(swift);
    const char *const modes[] = {"path", "virtual", "auto", NULL};
    for (gsize i = 0; i < G_N_ELEMENTS(modes); i++) {
        g_autofree char *out = g_strdup_printf("where%zu", i);
        f->options.addressing = modes[i];
        open_store(f);
        list(f, "s3://data/where/");
        assert_ok(f);
        assert_string_equal(f->names->str, "a b:2");
        fetch(f, "s3://data/where/", "a b", out);
        assert_fetched(f, out, "12", 2);
    }
}

static void only_below_the_roots(void **state)
{
    S3Fixture *f = *state;
    const char *const roots[] = {"file:///srv/", "s3://data/mine", NULL};
    put("mine/s/x", "1");
    put("other/s/x", "1");
    f->options.roots = roots;
    open_store(f);
    f->options.roots = NULL;
    list(f, "s3://data/mine/s/");
    assert_ok(f);
    const char *const forbidden[] = {"s3://data/other/s/", "s3://data/mine/", "s3://other/mine/s/",
                                     "s3://data/mine2/s/"};
    for (gsize i = 0; i < G_N_ELEMENTS(forbidden); i++) {
        list(f, forbidden[i]);
        assert_error(f, LH_ERR_FORBIDDEN, "not below any of objectStore.roots");
        fetch(f, forbidden[i], "x", "x");
        assert_error(f, LH_ERR_FORBIDDEN, "not below any of objectStore.roots");
    }
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(lists_all_pages_sorted),
        TEST(nothing_there_is_an_error),
        TEST(a_marked_directory_is_empty),
        TEST(odd_keys_survive),
        TEST(keys_that_are_no_paths_are_refused),
        TEST(deeper_than_the_limit_is_refused),
        TEST(fetches_in_parts),
        TEST(small_ones_too),
        TEST(many_at_once),
        TEST(a_wrong_secret),
        TEST(an_unknown_access_key),
        TEST(somebody_without_permission),
        TEST(a_wrong_bucket),
        TEST(by_path_and_by_name),
        TEST(only_below_the_roots),
    };
    g_autoptr(GError) error = NULL;
    clean_environment();
    swift = s3_process_new(&error);
    if (swift == NULL) {
        g_printerr("%s\n", error->message);
        return 1;
    }
    s3_process_make_bucket(swift, "data");
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    s3_process_free(swift);
    return failed;
}
