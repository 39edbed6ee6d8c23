/*
 * Conformance of a transaction's compares: every target with every result, on present and missing
 * keys, on ranges, on empty ranges.
 */
#include "suite.h"

static gboolean holds(LhCompare compare)
{
    const LhTxnRequest request = {.compares = &compare, .n_compares = 1};
    Answer *a = txn(&request);
    assert_true(a->ok);
    return a->succeeded;
}

static gboolean expected(LhCompareResult result, int order)
{
    switch (result) {
    case LH_CMP_EQUAL:
        return order == 0;
    case LH_CMP_GREATER:
        return order > 0;
    case LH_CMP_LESS:
        return order < 0;
    case LH_CMP_NOT_EQUAL:
        return order != 0;
    }
    return FALSE;
}

static void check_numbers(const char *key, LhCompareTarget target, gint64 real)
{
    for (int result = LH_CMP_EQUAL; result <= LH_CMP_NOT_EQUAL; result++) {
        for (gint64 with = real - 1; with <= real + 1; with++) {
            const LhCompare compare = {
                .key = key, .target = target, .result = (LhCompareResult)result, .number = with};
            int order = (real > with) - (real < with);
            if (holds(compare) != expected((LhCompareResult)result, order)) {
                fail_msg("target %d result %d: %" G_GINT64_FORMAT " with %" G_GINT64_FORMAT, target,
                         result, real, with);
            }
        }
    }
}

static void compare_numbers_of_a_key(void **state)
{
    gint64 lease = grant(60);
    gint64 created = put(k("a"), "one");
    put(k("a"), "two");
    gint64 modified = put_leased(k("a"), "three", lease);
    check_numbers(k("a"), LH_CMP_VERSION, 3);
    check_numbers(k("a"), LH_CMP_CREATE, created);
    check_numbers(k("a"), LH_CMP_MOD, modified);
    check_numbers(k("a"), LH_CMP_LEASE, lease);
}

static void compare_numbers_of_a_missing_key(void **state)
{
    check_numbers(k("none"), LH_CMP_VERSION, 0);
    check_numbers(k("none"), LH_CMP_CREATE, 0);
    check_numbers(k("none"), LH_CMP_MOD, 0);
    check_numbers(k("none"), LH_CMP_LEASE, 0);
}

static void compare_numbers_of_a_deleted_key(void **state)
{
    put(k("a"), "one");
    del(k("a"), NULL);
    check_numbers(k("a"), LH_CMP_VERSION, 0);
    check_numbers(k("a"), LH_CMP_CREATE, 0);
    check_numbers(k("a"), LH_CMP_MOD, 0);
    check_numbers(k("a"), LH_CMP_LEASE, 0);
}

static LhCompare value_compare(const char *key, LhCompareResult result, const char *value)
{
    return (LhCompare){.key = key,
                       .target = LH_CMP_VALUE,
                       .result = result,
                       .value = value,
                       .value_len = strlen(value)};
}

static void compare_values_of_a_key(void **state)
{
    static const struct {
        const char *with;
        int order; /* of "mm" to it */
    } rows[] = {{"mm", 0},  {"m", 1}, {"mmm", -1}, {"", 1},   {"ml", 1},
                {"mn", -1}, {"l", 1}, {"n", -1},   {"lz", 1}, {"\xff", -1}};
    put(k("a"), "mm");
    for (gsize i = 0; i < G_N_ELEMENTS(rows); i++) {
        for (int result = LH_CMP_EQUAL; result <= LH_CMP_NOT_EQUAL; result++) {
            if (holds(value_compare(k("a"), (LhCompareResult)result, rows[i].with)) !=
                expected((LhCompareResult)result, rows[i].order)) {
                fail_msg("mm with '%s', result %d", rows[i].with, result);
            }
        }
    }
}

static void compare_value_of_a_missing_key_never_holds(void **state)
{
    for (int result = LH_CMP_EQUAL; result <= LH_CMP_NOT_EQUAL; result++) {
        assert_false(holds(value_compare(k("none"), (LhCompareResult)result, "")));
        assert_false(holds(value_compare(k("none"), (LhCompareResult)result, "x")));
    }
}

static void compare_empty_values(void **state)
{
    put(k("a"), "");
    assert_true(holds(value_compare(k("a"), LH_CMP_EQUAL, "")));
    assert_false(holds(value_compare(k("a"), LH_CMP_NOT_EQUAL, "")));
    assert_true(holds(value_compare(k("a"), LH_CMP_LESS, "x")));
    assert_false(holds(value_compare(k("a"), LH_CMP_GREATER, "")));
}

static LhCompare range_compare(const char *prefix, LhCompareTarget target, LhCompareResult result,
                               gint64 number)
{
    return (LhCompare){.key = k(prefix),
                       .range_end = kend(prefix),
                       .target = target,
                       .result = result,
                       .number = number};
}

static void compare_a_range_holds_if_all_keys_do(void **state)
{
    gint64 first = put(k("r/a"), "v");
    put(k("r/b"), "v");
    gint64 last = put(k("r/c"), "v");
    put(k("s/a"), "other");
    assert_true(holds(range_compare("r/", LH_CMP_VERSION, LH_CMP_EQUAL, 1)));
    assert_true(holds(range_compare("r/", LH_CMP_MOD, LH_CMP_LESS, last + 1)));
    assert_false(holds(range_compare("r/", LH_CMP_MOD, LH_CMP_LESS, last)));
    assert_true(holds(range_compare("r/", LH_CMP_MOD, LH_CMP_GREATER, first - 1)));
    assert_false(holds(range_compare("r/", LH_CMP_MOD, LH_CMP_GREATER, first)));
    assert_false(holds(range_compare("r/", LH_CMP_CREATE, LH_CMP_EQUAL, 0)));
    LhCompare value = value_compare(k("r/"), LH_CMP_EQUAL, "v");
    value.range_end = kend("r/");
    assert_true(holds(value));
    put(k("r/b"), "w");
    assert_false(holds(value));
    assert_false(holds(range_compare("r/", LH_CMP_VERSION, LH_CMP_EQUAL, 1)));
}

/* "No key under P exists", and everything else about an empty range: as one key of zeros. */
static void compare_an_empty_range(void **state)
{
    put(k("e.x"), "beside it");
    put(k("e/gone"), "");
    del(k("e/gone"), NULL);
    assert_true(holds(range_compare("e/", LH_CMP_CREATE, LH_CMP_EQUAL, 0)));
    assert_true(holds(range_compare("e/", LH_CMP_MOD, LH_CMP_EQUAL, 0)));
    assert_true(holds(range_compare("e/", LH_CMP_VERSION, LH_CMP_LESS, 1)));
    assert_true(holds(range_compare("e/", LH_CMP_LEASE, LH_CMP_EQUAL, 0)));
    assert_false(holds(range_compare("e/", LH_CMP_CREATE, LH_CMP_GREATER, 0)));
    assert_false(holds(range_compare("e/", LH_CMP_MOD, LH_CMP_EQUAL, 7)));
    for (int result = LH_CMP_EQUAL; result <= LH_CMP_NOT_EQUAL; result++) {
        LhCompare value = value_compare(k("e/"), (LhCompareResult)result, "x");
        value.range_end = kend("e/");
        assert_false(holds(value));
    }
    put(k("e/a"), "");
    assert_false(holds(range_compare("e/", LH_CMP_CREATE, LH_CMP_EQUAL, 0)));
}

static void compare_a_range_is_bounded_by_its_separator(void **state)
{
    put(k("replicas/snap10.a"), "");
    assert_true(holds(range_compare("replicas/snap1.", LH_CMP_CREATE, LH_CMP_EQUAL, 0)));
    put(k("replicas/snap1.a"), "");
    assert_false(holds(range_compare("replicas/snap1.", LH_CMP_CREATE, LH_CMP_EQUAL, 0)));
}

static void compares_must_all_hold(void **state)
{
    gint64 a = put(k("a"), "");
    gint64 b = put(k("b"), "");
    LhCompare both[] = {lh_compare_mod(k("a"), a), lh_compare_mod(k("b"), b)};
    LhTxnRequest request = {.compares = both, .n_compares = 2};
    assert_true(txn(&request)->succeeded);
    both[0].number++;
    assert_false(txn(&request)->succeeded);
    both[0].number--;
    both[1].number++;
    assert_false(txn(&request)->succeeded);
    request.n_compares = 0;
    assert_true(txn(&request)->succeeded);
}

static void compare_without_a_key_is_refused(void **state)
{
    const LhCompare compare = {.key = "", .target = LH_CMP_MOD};
    const LhTxnRequest request = {.compares = &compare, .n_compares = 1};
    assert_fails(txn(&request), LH_ERR_INVALID);
}

const struct CMUnitTest compare_tests[] = {
    TEST(compare_numbers_of_a_key),
    TEST(compare_numbers_of_a_missing_key),
    TEST(compare_numbers_of_a_deleted_key),
    TEST(compare_values_of_a_key),
    TEST(compare_value_of_a_missing_key_never_holds),
    TEST(compare_empty_values),
    TEST(compare_a_range_holds_if_all_keys_do),
    TEST(compare_an_empty_range),
    TEST(compare_a_range_is_bounded_by_its_separator),
    TEST(compares_must_all_hold),
    TEST(compare_without_a_key_is_refused),
    NO_MORE_TESTS,
};
