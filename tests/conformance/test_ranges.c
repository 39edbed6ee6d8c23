/*
 * Conformance of ranges: what a read answers, at which revision, and what it refuses.
 */
#include "suite.h"

static void range_of_one_key(void **state)
{
    Answer *none = get(k("a"), 0);
    assert_true(none->ok);
    assert_int_equal(none->n, 0);
    assert_int_equal(none->count, 0);
    assert_false(none->more);
    assert_int_not_equal(none->header.cluster_id, 0);
    assert_int_not_equal(none->header.member_id, 0);
    assert_int_not_equal(none->header.raft_term, 0);

    gint64 first = put(k("a"), "one");
    Answer *a = get(k("a"), 0);
    assert_int_equal(a->n, 1);
    assert_int_equal(a->count, 1);
    assert_string_equal(a->kvs[0].key, k("a"));
    assert_string_equal(a->kvs[0].value, "one");
    assert_int_equal(a->kvs[0].create_rev, first);
    assert_int_equal(a->kvs[0].mod_rev, first);
    assert_int_equal(a->kvs[0].version, 1);
    assert_int_equal(a->kvs[0].lease, 0);
    assert_int_equal(a->header.revision, first);

    gint64 second = put(k("a"), "two");
    a = get(k("a"), 0);
    assert_int_equal(second, first + 1);
    assert_string_equal(a->kvs[0].value, "two");
    assert_int_equal(a->kvs[0].create_rev, first);
    assert_int_equal(a->kvs[0].mod_rev, second);
    assert_int_equal(a->kvs[0].version, 2);
}

static void range_after_deletion_starts_anew(void **state)
{
    put(k("a"), "one");
    put(k("a"), "two");
    del(k("a"), NULL);
    assert_int_equal(get(k("a"), 0)->n, 0);
    gint64 again = put(k("a"), "three");
    Answer *a = get(k("a"), 0);
    assert_int_equal(a->kvs[0].create_rev, again);
    assert_int_equal(a->kvs[0].version, 1);
}

static void range_of_a_prefix_is_sorted(void **state)
{
    const char *names[] = {"p/b",  "p/a", "p/\xc3\xa9", "p/B", "p/a/x",
                           "p/10", "p/9", "q/a",        "o/z", "p"};
    for (gsize i = 0; i < G_N_ELEMENTS(names); i++) {
        put(k(names[i]), names[i]);
    }
    const LhRangeRequest request = {.key = k("p/"), .range_end = kend("p/")};
    Answer *a = range(&request);
    assert_keys(a->kvs, a->n, "p/10 p/9 p/B p/a p/a/x p/b p/\xc3\xa9");
    assert_int_equal(a->count, 7);
    assert_string_equal(a->kvs[6].value, "p/\xc3\xa9");
}

static void range_of_a_prefix_without_slash_takes_its_neighbour(void **state)
{
    put(k("job_1/x"), "");
    put(k("job_10/x"), "");
    const LhRangeRequest right = {.key = k("job_1/"), .range_end = kend("job_1/")};
    Answer *a = range(&right);
    assert_keys(a->kvs, a->n, "job_1/x");
    const LhRangeRequest wrong = {.key = k("job_1"), .range_end = k("job_2")};
    a = range(&wrong);
    assert_keys(a->kvs, a->n, "job_1/x job_10/x");
}

static void range_end_is_exclusive(void **state)
{
    put(k("a"), "");
    put(k("b"), "");
    put(k("c"), "");
    const LhRangeRequest request = {.key = k("a"), .range_end = k("c")};
    Answer *a = range(&request);
    assert_keys(a->kvs, a->n, "a b");
    const LhRangeRequest backwards = {.key = k("c"), .range_end = k("a")};
    a = range(&backwards);
    assert_true(a->ok);
    assert_int_equal(a->n, 0);
    assert_int_equal(a->count, 0);
    const LhRangeRequest empty = {.key = k("a"), .range_end = k("a")};
    a = range(&empty);
    assert_true(a->ok);
    assert_int_equal(a->n, 0);
}

static void put_numbered(guint n)
{
    for (guint i = 0; i < n; i++) {
        g_autofree char *name = g_strdup_printf("n/%03u", i);
        put(k(name), name);
    }
}

static void range_limit_more_and_count(void **state)
{
    put_numbered(5);
    LhRangeRequest request = {.key = k("n/"), .range_end = kend("n/"), .limit = 2};
    Answer *a = range(&request);
    assert_keys(a->kvs, a->n, "n/000 n/001");
    assert_int_equal(a->count, 5);
    assert_true(a->more);
    request.limit = 5;
    a = range(&request);
    assert_int_equal(a->n, 5);
    assert_int_equal(a->count, 5);
    assert_false(a->more);
    request.limit = 6;
    a = range(&request);
    assert_int_equal(a->n, 5);
    assert_false(a->more);
    request.limit = 2;
    request.key = k("n/003");
    a = range(&request);
    assert_keys(a->kvs, a->n, "n/003 n/004");
    assert_int_equal(a->count, 2);
    assert_false(a->more);
}

static void range_keys_only_and_count_only(void **state)
{
    put_numbered(3);
    LhRangeRequest request = {.key = k("n/"), .range_end = kend("n/"), .keys_only = TRUE};
    Answer *a = range(&request);
    assert_int_equal(a->n, 3);
    assert_int_equal(a->kvs[1].value_len, 0);
    assert_int_not_equal(a->kvs[1].mod_rev, 0);
    assert_int_equal(a->kvs[1].version, 1);
    request = (LhRangeRequest){.key = k("n/"), .range_end = kend("n/"), .count_only = TRUE};
    a = range(&request);
    assert_int_equal(a->n, 0);
    assert_int_equal(a->count, 3);
    assert_false(a->more);
    request.limit = 1;
    a = range(&request);
    assert_int_equal(a->n, 0);
    assert_int_equal(a->count, 3);
    assert_false(a->more);
}

static void range_at_an_old_revision(void **state)
{
    gint64 first = put(k("h/a"), "a1");
    gint64 second = put(k("h/b"), "b1");
    gint64 third = put(k("h/a"), "a2");
    gint64 fourth = del(k("h/b"), NULL);
    gint64 fifth = put(k("h/b"), "b2");
    LhRangeRequest request = {.key = k("h/"), .range_end = kend("h/")};

    request.revision = first;
    Answer *a = range(&request);
    assert_keys(a->kvs, a->n, "h/a");
    assert_int_equal(a->count, 1);
    assert_int_equal(a->header.revision, fifth); /* the newest, not the one asked for */

    request.revision = second;
    a = range(&request);
    assert_keys(a->kvs, a->n, "h/a h/b");
    assert_string_equal(a->kvs[0].value, "a1");

    request.revision = third;
    a = range(&request);
    assert_string_equal(a->kvs[0].value, "a2");
    assert_int_equal(a->kvs[0].version, 2);
    assert_string_equal(a->kvs[1].value, "b1");

    request.revision = fourth;
    a = range(&request);
    assert_keys(a->kvs, a->n, "h/a");

    request.revision = fifth;
    a = range(&request);
    assert_string_equal(a->kvs[1].value, "b2");
    assert_int_equal(a->kvs[1].create_rev, fifth);
    assert_int_equal(get(k("h/a"), first - 1)->n, 0);
}

static void range_in_pages_at_an_old_revision(void **state)
{
    put_numbered(5);
    gint64 at = revision();
    del(k("n/001"), NULL);
    put(k("n/0021"), "later");
    LhRangeRequest request = {.key = k("n/"), .range_end = kend("n/"), .limit = 2, .revision = at};
    Answer *a = range(&request);
    assert_keys(a->kvs, a->n, "n/000 n/001");
    assert_int_equal(a->count, 5);
    assert_true(a->more);
    request.key = k("n/002");
    a = range(&request);
    assert_keys(a->kvs, a->n, "n/002 n/003");
    assert_int_equal(a->count, 3);
}

static void range_at_a_future_revision_is_refused(void **state)
{
    gint64 newest = put(k("a"), "");
    assert_true(get(k("a"), newest)->ok);
    assert_fails(get(k("a"), newest + 1), LH_ERR_INVALID);
}

static void range_at_a_compacted_revision_is_refused(void **state)
{
    gint64 first = put(k("a"), "one");
    gint64 second = put(k("a"), "two");
    gint64 third = put(k("a"), "three");
    driver->compact(driver, second);
    assert_fails(get(k("a"), first), LH_ERR_COMPACTED);
    Answer *a = get(k("a"), second);
    assert_true(a->ok);
    assert_string_equal(a->kvs[0].value, "two");
    a = get(k("a"), third);
    assert_string_equal(a->kvs[0].value, "three");
    a = get(k("a"), 0);
    assert_int_equal(a->kvs[0].create_rev, first);
    assert_int_equal(a->kvs[0].version, 3);
}

static void range_after_compacting_a_deletion(void **state)
{
    put(k("a"), "one");
    gint64 deleted = del(k("a"), NULL);
    gint64 other = put(k("b"), "");
    driver->compact(driver, other);
    assert_fails(get(k("a"), deleted), LH_ERR_COMPACTED);
    assert_int_equal(get(k("a"), other)->n, 0);
    gint64 again = put(k("a"), "two");
    Answer *a = get(k("a"), 0);
    assert_int_equal(a->kvs[0].create_rev, again);
    assert_int_equal(a->kvs[0].version, 1);
    assert_int_equal(get(k("a"), other)->n, 0);
}

static void range_serializable(void **state)
{
    put(k("a"), "one");
    const LhRangeRequest request = {.key = k("a"), .serializable = TRUE};
    Answer *a = range(&request);
    assert_string_equal(a->kvs[0].value, "one"); /* one member: it cannot be behind */
}

static void range_of_any_bytes_in_values(void **state)
{
    const LhTxnOp put_bytes[] = {
        {.type = LH_TXN_PUT, .key = k("zeros"), .value = "a\0b\0", .value_len = 4},
        {.type = LH_TXN_PUT, .key = k("empty"), .value = "", .value_len = 0},
    };
    assert_true(ops(put_bytes, 2)->ok);
    Answer *a = get(k("zeros"), 0);
    assert_int_equal(a->kvs[0].value_len, 4);
    assert_memory_equal(a->kvs[0].value, "a\0b\0", 5);
    a = get(k("empty"), 0);
    assert_int_equal(a->n, 1);
    assert_int_equal(a->kvs[0].value_len, 0);
}

static void range_without_a_key_is_refused(void **state)
{
    assert_fails(get("", 0), LH_ERR_INVALID);
}

const struct CMUnitTest range_tests[] = {
    TEST(range_of_one_key),
    TEST(range_after_deletion_starts_anew),
    TEST(range_of_a_prefix_is_sorted),
    TEST(range_of_a_prefix_without_slash_takes_its_neighbour),
    TEST(range_end_is_exclusive),
    TEST(range_limit_more_and_count),
    TEST(range_keys_only_and_count_only),
    TEST(range_at_an_old_revision),
    TEST(range_in_pages_at_an_old_revision),
    TEST(range_at_a_future_revision_is_refused),
    TEST(range_at_a_compacted_revision_is_refused),
    TEST(range_after_compacting_a_deletion),
    TEST(range_serializable),
    TEST(range_of_any_bytes_in_values),
    TEST(range_without_a_key_is_refused),
    NO_MORE_TESTS,
};
