/*
 * api/published: what a snapshot may say of its times, its place and its files; and what a million of
 * them cost.
 */
#include "samples.h"
#include "tests/fakes/heap.h"

#define FIELDS "\"service\":\"a\",\"startTime\":1000,\"endTime\":2000,\"sizeBytes\":7"
#define URI    "\"uri\":\"s3://b/k/\""

static void snapshots_are_printed_whole(void **state)
{
    (void)state;
    assert_printed(LH_KIND_SNAPSHOT, "{" FIELDS "," URI "}",
                   "{\"service\":\"a\",\"startTime\":\"1970-01-01T00:00:01.000Z\","
                   "\"endTime\":\"1970-01-01T00:00:02.000Z\",\"maxOffset\":0,\"sizeBytes\":7,"
                   "\"uri\":\"s3://b/k/\"}");
    assert_printed(LH_KIND_SNAPSHOT,
                   "{\"partition\":\"p\",\"live\":false,\"maxOffset\":5," FIELDS "," URI
                   ",\"sha256\":{\"d/b\":\"" HEX64 "\",\"a\":\"" HEX64 "\",\"n\":null}}",
                   "{\"service\":\"a\",\"partition\":\"p\","
                   "\"startTime\":\"1970-01-01T00:00:01.000Z\","
                   "\"endTime\":\"1970-01-01T00:00:02.000Z\",\"maxOffset\":5,\"sizeBytes\":7,"
                   "\"uri\":\"s3://b/k/\",\"sha256\":{\"a\":\"" HEX64 "\",\"d/b\":\"" HEX64 "\"}}");
}

static void a_live_snapshot_need_not_know_its_end(void **state)
{
    (void)state;
    g_autoptr(LhObject) object = parse_known(
        LH_KIND_SNAPSHOT, "{\"service\":\"a\",\"startTime\":5,\"live\":true," URI "}");
    const LhSnapshot *snapshot = (const LhSnapshot *)object;
    assert_true(snapshot->live);
    assert_int_equal(snapshot->end_time, -1);
    assert_int_equal(snapshot->size_bytes, -1);
    assert_null(snapshot->partition);
    assert_refused(LH_KIND_SNAPSHOT, "{\"service\":\"a\",\"startTime\":5,\"sizeBytes\":1," URI "}",
                   "endTime: is required, unless live");
    assert_refused(LH_KIND_SNAPSHOT, "{\"service\":\"a\",\"startTime\":5,\"endTime\":6," URI "}",
                   "sizeBytes: is required, unless live");
}

static void snapshot_times_are_in_order_and_in_range(void **state)
{
    (void)state;
    static const struct {
        const char *start, *end, *error;
    } cases[] = {
        {"2", "1", "endTime: must not be before startTime"},
        {"1", "1", NULL},
        {"1", "\"8999-12-31T23:59:59.999Z\"", NULL},
        {"1", "\"9000-01-01T00:00:00Z\"",
         "endTime: is 9000-01-01T00:00:00.000Z, must be 1970-01-01T00:00:00.000Z to "
         "8999-12-31T23:59:59.999Z"},
        {"1", "253402300799999",
         "endTime: is 253402300799999, must be 1970-01-01T00:00:00.000Z to "
         "8999-12-31T23:59:59.999Z"},
        {"-5", "1",
         "startTime: is -5, must be 1970-01-01T00:00:00.000Z to 8999-12-31T23:59:59.999Z"},
        {"-1", "1",
         "startTime: is -1, must be 1970-01-01T00:00:00.000Z to 8999-12-31T23:59:59.999Z"},
        {"1.5", "2", "startTime: is 1.5, must be a time like 2026-05-01T12:00:00.000Z"},
        {"true", "2", "startTime: is true, must be a time like 2026-05-01T12:00:00.000Z"},
    };
    for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
        g_autofree char *json = g_strdup_printf(
            "{\"service\":\"a\",\"startTime\":%s,\"endTime\":%s,\"sizeBytes\":1," URI "}",
            cases[i].start, cases[i].end);
        g_autoptr(LhObject) object = parse_fields(LH_KIND_SNAPSHOT, json);
        if (cases[i].error == NULL)
            assert_known(object);
        else
            assert_error_is(object, cases[i].error);
    }
    g_autoptr(LhObject) far = parse_fields(
        LH_KIND_SNAPSHOT, "{\"service\":\"a\",\"startTime\":\"9999-01-01T00:00:00Z\","
                          "\"endTime\":1,\"sizeBytes\":1," URI "}");
    assert_false(lh_object_known(far));
    assert_true(g_str_has_prefix(lh_object_error(far), "startTime: "));
}

static void sizes_are_exact_or_refused(void **state)
{
    (void)state;
    assert_refused(LH_KIND_SNAPSHOT,
                   "{\"service\":\"a\",\"startTime\":1,\"endTime\":2,\"sizeBytes\":-1," URI "}",
                   "sizeBytes: is -1, must be 0 or more");
    assert_refused(LH_KIND_SNAPSHOT,
                   "{\"service\":\"a\",\"startTime\":1,\"endTime\":2,\"sizeBytes\":1e300," URI "}",
                   "sizeBytes: is 1e+300, must be an integer or a size like 15Gi");
    g_autoptr(LhObject) most = parse_known(LH_KIND_SNAPSHOT,
                                           "{\"service\":\"a\",\"startTime\":1,\"endTime\":2,"
                                           "\"sizeBytes\":9007199254740991," URI "}");
    assert_int_equal(((const LhSnapshot *)most)->size_bytes, G_GINT64_CONSTANT(9007199254740991));
}

static void uris_lie_strictly_below_a_root(void **state)
{
    (void)state;
    static const char *const good[] = {
        "s3://b/k/", "s3://b/a/b.c/d/", "file:///d/", "file:///a/b/", "s3://b/a b/", "s3://b/ü/",
    };
    static const struct {
        const char *uri, *why;
    } bad[] = {
        {"", "must begin with"},
        {"s3:", "must begin with"},
        {"http://h/d/", "must begin with"},
        {"file://d/", "must begin with"},
        {"S3://b/k/", "must begin with"},
        {"/d/", "must begin with"},
        {"s3://", "has no bucket"},
        {"s3:///k/", "has no bucket"},
        {"s3://b", "must end in /"},
        {"s3://b/k", "must end in /"},
        {"file:///d", "must end in /"},
        {"s3://b/", "must lie below the bucket"},
        {"file:///", "must lie below /"},
        {"s3://b/../k/", "must not contain .."},
        {"s3://b/a..b/", "must not contain .."},
        {"file:///../", "must not contain .."},
        {"s3://../k/", "must not contain .."},
        {"s3://b//", "empty segment"},
        {"s3://b/a//b/", "empty segment"},
        {"file:////d/", "empty segment"},
        {"s3://b/./k/", "empty segment or ."},
        {"s3://./k/", "empty segment or ."},
        {"s3://b/k\n/", "control characters"},
        {"s3://b/k\x7f/", "control characters"},
    };
    for (guint i = 0; i < G_N_ELEMENTS(good); i++)
        assert_true(lh_uri_check(good[i], NULL));
    for (guint i = 0; i < G_N_ELEMENTS(bad); i++) {
        g_autoptr(GError) error = NULL;
        if (lh_uri_check(bad[i].uri, &error))
            fail_msg("taken: %s", bad[i].uri);
        assert_true(g_error_matches(error, LH_ERROR, LH_ERR_INVALID));
        if (strstr(error->message, bad[i].why) == NULL)
            fail_msg("%s: %s", bad[i].uri, error->message);
    }
    assert_refused(LH_KIND_SNAPSHOT, "{" FIELDS ",\"uri\":\"s3://b/k\"}",
                   "uri: \"s3://b/k\" must end in /");
}

static LhObject *snapshot_at(const char *name, const char *uri)
{
    g_autofree char *json = g_strdup_printf("{" FIELDS ",\"uri\":\"%s\"}", uri);
    return lh_object_parse(LH_KIND_SNAPSHOT, name, json, strlen(json), 1, 1, 0);
}

/* The same snapshots in directories that many share, in one of its own for each, and at random depths: the
 * text is what was written, and what it shares with others is not in its own memory. */
static void uris_share_their_directories(void **state)
{
    (void)state;
    static const struct {
        const char *before, *behind; /* the number of a partition */
    } layouts[] = {{"", ""}, {"p-", "/"}, {"x/", "/y/"}};
    g_autoptr(GPtrArray) all = g_ptr_array_new_with_free_func((GDestroyNotify)lh_object_unref);
    g_autoptr(GPtrArray) uris = g_ptr_array_new_with_free_func(g_free);
    guint n[G_N_ELEMENTS(layouts)] = {0}, in_parts[G_N_ELEMENTS(layouts)] = {0};
    for (guint i = 0; i < 3000; i++) {
        guint layout = i % G_N_ELEMENTS(layouts);
        g_autofree char *name = g_strdup_printf("s%u", i);
        char *uri = g_strdup_printf("s3://bucket/%u/%s%03u%s%s/", i / 300, layouts[layout].before,
                                    i % 30, layouts[layout].behind, name);
        g_ptr_array_add(uris, uri);
        g_ptr_array_add(all, snapshot_at(name, uri));
    }
    for (guint i = 0; i < all->len; i++) {
        const LhSnapshot *snapshot = g_ptr_array_index(all, i);
        g_autofree char *text = lh_uri_text(&snapshot->uri);
        assert_true(lh_object_known(&snapshot->o));
        assert_string_equal(text, g_ptr_array_index(uris, i));
        assert_true(lh_uri_is(&snapshot->uri, text));
        n[i % G_N_ELEMENTS(layouts)]++;
        in_parts[i % G_N_ELEMENTS(layouts)] += snapshot->uri.last != NULL;
    }
    for (guint k = 0; k < G_N_ELEMENTS(layouts); k++)
        if (in_parts[k] * 10 < n[k] * 9)
            fail_msg("layout %u: %u of %u are in parts", k, in_parts[k], n[k]);
}

/* What is read twice is no reason for an atom: a snapshot that is published live, then final. */
static void a_directory_of_one_is_not_shared(void **state)
{
    (void)state;
    for (guint i = 0; i < 4; i++) {
        g_autoptr(LhObject) object = snapshot_at("n", "s3://own/directory/of/n/");
        const LhUri *uri = &((const LhSnapshot *)object)->uri;
        assert_true(uri->last == NULL || !g_str_has_prefix(uri->dir, "s3://own/"));
    }
    g_autoptr(LhObject) other = snapshot_at("m", "s3://own/directory/of/m/");
    assert_string_equal(((const LhSnapshot *)other)->uri.dir, "s3://own/directory/of/");
    assert_string_equal(((const LhSnapshot *)other)->uri.last, "m");
}

static void uris_are_compared_whatever_their_parts(void **state)
{
    (void)state;
    static const LhUri uris[] = {
        {.dir = "s3://b/a/"},
        {.dir = "s3://b/", .last = "a"},
        {.dir = "s3://b/a/b/"},
        {.dir = "s3://b/", .middle = "a/", .last = "b"},
        {.dir = "s3://b/", .middle = "/a/", .last = "b"},
        {.dir = "s3://b/", .middle = "/a/b/", .last = "c"},
        {.dir = "s3://b/a/", .middle = "b/", .last = "c"},
        {.dir = "s3://b/a/", .last = "bc"},
        {.dir = "s3://b/a/b-/"},
        {.dir = "s3://b/", .last = "a-"},
        {.dir = "s3://b/\xff/"},
    };
    for (guint i = 0; i < G_N_ELEMENTS(uris); i++) {
        for (guint k = 0; k < G_N_ELEMENTS(uris); k++) {
            g_autofree char *a = lh_uri_text(&uris[i]), *b = lh_uri_text(&uris[k]);
            gboolean inside = g_str_has_prefix(a, b) || g_str_has_prefix(b, a);
            int order = strcmp(a, b), sign = (order > 0) - (order < 0);
            assert_int_equal(lh_uri_compare(&uris[i], &uris[k]),
                             sign * (inside ? LH_URI_INSIDE : LH_URI_APART));
            assert_int_equal(lh_uri_is(&uris[i], b), order == 0);
        }
    }
}

static void files_stay_below_the_uri(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "/etc/passwd", "..", "../x", "a/../b", "a/..", "a//b", "./a", "a/.", "a/", "a\\nb",
    };
    static const char *const good[] = {"a", "a/b", "..a", "a..b", "...", ".hidden", "ü"};
    for (guint i = 0; i < G_N_ELEMENTS(bad); i++) {
        g_autofree char *json = g_strdup_printf(
            "{" FIELDS "," URI ",\"sha256\":{\"%s\":\"" HEX64 "\"}}", bad[i]);
        g_autoptr(LhObject) object = parse_fields(LH_KIND_SNAPSHOT, json);
        if (lh_object_known(object))
            fail_msg("taken: %s", bad[i]);
        assert_true(g_str_has_prefix(lh_object_error(object), "sha256: "));
    }
    for (guint i = 0; i < G_N_ELEMENTS(good); i++) {
        g_autofree char *json = g_strdup_printf(
            "{" FIELDS "," URI ",\"sha256\":{\"%s\":\"" HEX64 "\"}}", good[i]);
        lh_object_unref(parse_known(LH_KIND_SNAPSHOT, json));
    }
}

static void digests_are_stepped_through(void **state)
{
    (void)state;
    g_autofree char *upper = g_ascii_strup(HEX64, -1);
    g_autofree char *json = g_strdup_printf(
        "{" FIELDS "," URI ",\"sha256\":{\"z\":\"%s\",\"a\":\"%064d\"}}", upper, 0);
    g_autoptr(LhObject) object = parse_known(LH_KIND_SNAPSHOT, json);
    const guint8 *at = ((const LhSnapshot *)object)->sha256;
    const char *file;
    char hex[65];
    assert_true(lh_digests_next(&at, &file, hex));
    assert_string_equal(file, "a");
    assert_int_equal(strspn(hex, "0"), 64);
    assert_true(lh_digests_next(&at, &file, hex));
    assert_string_equal(file, "z");
    assert_string_equal(hex, HEX64);
    assert_false(lh_digests_next(&at, &file, hex));
    at = NULL;
    assert_false(lh_digests_next(&at, &file, hex));
}

static void bad_digests_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *sha256, *error;
    } cases[] = {
        {"{\"f\":\"0123\"}", "sha256.f: is \"0123\", must be 64 hexadecimal digits"},
        {"{\"f\":\"" HEX64 "0\"}", "sha256.f: is \"" HEX64 "\"…, must be 64 hexadecimal digits"},
        {"{\"f\":7}", "sha256.f: is 7, must be a string"},
        {"{\"\":\"" HEX64 "\"}", "sha256: has an empty file name"},
        {"[]", "sha256: is a list, must be an object of SHA-256 digests"},
    };
    for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
        g_autofree char *json = g_strdup_printf("{" FIELDS "," URI ",\"sha256\":%s}",
                                                cases[i].sha256);
        assert_refused(LH_KIND_SNAPSHOT, json, cases[i].error);
    }
}

static void recovery_tasks_have_an_inclusive_range(void **state)
{
    (void)state;
    assert_printed(LH_KIND_RECOVERYTASK,
                   "{\"partition\":\"p\",\"startOffset\":5,\"endOffset\":5,\"createdAt\":0}",
                   "{\"partition\":\"p\",\"startOffset\":5,\"endOffset\":5,"
                   "\"createdAt\":\"1970-01-01T00:00:00.000Z\"}");
    /* empty */
    assert_printed(LH_KIND_RECOVERYTASK, "{\"partition\":\"p\",\"startOffset\":0,\"endOffset\":-1}",
                   "{\"partition\":\"p\",\"startOffset\":0,\"endOffset\":-1}");
    assert_refused(LH_KIND_RECOVERYTASK, "{\"partition\":\"p\",\"startOffset\":7,\"endOffset\":5}",
                   "endOffset: must not be less than startOffset - 1 (an empty range)");
    assert_refused(LH_KIND_RECOVERYTASK, "{\"partition\":\"p\",\"startOffset\":0,\"endOffset\":-2}",
                   "endOffset: is -2, must be -1 or more");
}

/* --- memory --- */

#define N_MANY 200000

#define BIG_FIELDS                                                                         \
    "\"service\":\"api-logs\",\"partition\":\"api-logs-p07\","                             \
    "\"startTime\":\"2026-05-01T12:00:00.000Z\",\"endTime\":\"2026-05-01T12:15:00.000Z\"," \
    "\"maxOffset\":123456789,\"sizeBytes\":15000000000,"                                   \
    "\"uri\":\"s3://leasehold-data/api-logs/p07/%s/\""

/* Bytes that each of many snapshots costs, the allocator's included: each with a name of its own, at a
 * uri that ends in it. */
static double cost(const char *more)
{
    static LhObject *objects[N_MANY];
    gsize before = heap_bytes();
    for (guint i = 0; i < N_MANY; i++) {
        char name[64], json[1024];
        g_snprintf(name, sizeof name, "api-logs-p07-202605%06u", i);
        g_snprintf(json, sizeof json, "{" BIG_FIELDS "%s}", name, more);
        objects[i] = parse_value(LH_KIND_SNAPSHOT, name, json);
        assert_known(objects[i]);
    }
    gsize bytes = heap_bytes() - before;
    assert_ptr_equal(((const LhSnapshot *)objects[0])->service,
                     ((const LhSnapshot *)objects[N_MANY - 1])->service);
    for (guint i = 0; i < N_MANY; i++)
        lh_object_unref(objects[i]);
    return (double)bytes / N_MANY;
}

static void a_million_snapshots_fit(void **state)
{
    (void)state;
    if (!heap_is_counted())
        return;
    double plain = cost("");
    double digest = cost(",\"sha256\":{\"index.tar\":\"" HEX64 "\"}");
    print_message("# %.0f bytes, with a digest %.0f\n", plain, digest);
    /* 8 of them for the lease that samples have; up to 5 for a region that is not used up */
    assert_in_range((int)plain, 100, 165);
    assert_in_range((int)digest, 130, 205);
}

static void unused_atoms_go_away(void **state)
{
    (void)state;
    gsize heap = 0;
    for (guint i = 0; i < 20000; i++) {
        g_autofree char *json = g_strdup_printf(
            "{\"service\":\"a-service-nobody-else-has-%u\",\"startTime\":1,\"endTime\":2,"
            "\"sizeBytes\":%d," URI "}",
            i, i % 2 == 0 ? 7 : -7); /* every other one is refused */
        g_autoptr(LhObject) object = parse_fields(LH_KIND_SNAPSHOT, json);
        assert_int_equal(lh_object_known(object), i % 2 == 0);
        if (i == 1000) /* tables and caches have their size by now */
            heap = heap_bytes();
    }
    if (heap_is_counted())
        assert_true(heap_bytes() < heap + 100000);
}

static void equal_atoms_are_one(void **state)
{
    (void)state;
    g_autoptr(LhObject) one = parse_known(LH_KIND_SNAPSHOT, "{" FIELDS "," URI "}");
    g_autoptr(LhObject) other = parse_known(LH_KIND_SNAPSHOT, "{" FIELDS "," URI "}");
    assert_ptr_equal(((const LhSnapshot *)one)->service, ((const LhSnapshot *)other)->service);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(snapshots_are_printed_whole),
        cmocka_unit_test(a_live_snapshot_need_not_know_its_end),
        cmocka_unit_test(snapshot_times_are_in_order_and_in_range),
        cmocka_unit_test(sizes_are_exact_or_refused),
        cmocka_unit_test(uris_lie_strictly_below_a_root),
        cmocka_unit_test(uris_share_their_directories),
        cmocka_unit_test(a_directory_of_one_is_not_shared),
        cmocka_unit_test(uris_are_compared_whatever_their_parts),
        cmocka_unit_test(files_stay_below_the_uri),
        cmocka_unit_test(digests_are_stepped_through),
        cmocka_unit_test(bad_digests_are_refused),
        cmocka_unit_test(recovery_tasks_have_an_inclusive_range),
        cmocka_unit_test(a_million_snapshots_fit),
        cmocka_unit_test(unused_atoms_go_away),
        cmocka_unit_test(equal_atoms_are_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
