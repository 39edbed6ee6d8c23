/*
 * Conformance of transactions: branches, revisions, the order of ops, and what is refused as a
 * whole.
 */
#include "suite.h"

static LhTxnOp delete_range(const char *key, const char *range_end)
{
    return (LhTxnOp){.type = LH_TXN_DELETE, .key = key, .range_end = range_end};
}

static LhTxnOp read_range(const char *key, const char *range_end)
{
    return (LhTxnOp){.type = LH_TXN_RANGE, .key = key, .range_end = range_end};
}

static void txn_takes_one_branch(void **state)
{
    const LhCompare absent = lh_compare_create(k("lock"), 0);
    const LhTxnOp mine[] = {lh_txn_put(k("lock"), "me", 0), lh_txn_put(k("won"), "", 0)};
    const LhTxnOp failed[] = {lh_txn_range(k("lock"))};
    const LhTxnRequest request = {&absent, 1, mine, 2, failed, 1};
    Answer *a = txn(&request);
    assert_true(a->ok && a->succeeded);
    assert_int_equal(a->n_ops, 2);
    assert_int_equal(a->ops[0].type, LH_TXN_PUT);
    gint64 won = a->header.revision;

    a = txn(&request);
    assert_true(a->ok);
    assert_false(a->succeeded);
    assert_int_equal(a->n_ops, 1);
    assert_int_equal(a->ops[0].type, LH_TXN_RANGE);
    assert_int_equal(a->ops[0].n, 1);
    assert_string_equal(a->ops[0].kvs[0].value, "me");
    assert_int_equal(a->ops[0].kvs[0].create_rev, won);
    assert_int_equal(a->header.revision, won);
}

static void txn_with_an_empty_failure_branch(void **state)
{
    const LhCompare never = lh_compare_mod(k("a"), 12345678901);
    const LhTxnOp op = lh_txn_put(k("a"), "", 0);
    const LhTxnRequest request = {
        .compares = &never, .n_compares = 1, .success = &op, .n_success = 1};
    gint64 before = revision();
    Answer *a = txn(&request);
    assert_true(a->ok);
    assert_false(a->succeeded);
    assert_int_equal(a->n_ops, 0);
    assert_int_equal(a->header.revision, before);
    assert_int_equal(get(k("a"), 0)->n, 0);
}

static void txn_is_one_revision(void **state)
{
    gint64 before = put(k("t/old"), "");
    const LhTxnOp list[] = {lh_txn_put(k("t/b"), "1", 0), lh_txn_put(k("t/a"), "2", 0),
                            lh_txn_delete(k("t/old"))};
    Answer *a = ops(list, 3);
    assert_true(a->succeeded);
    assert_int_equal(a->header.revision, before + 1);
    const LhRangeRequest all = {.key = k("t/"), .range_end = kend("t/")};
    Answer *r = range(&all);
    assert_keys(r->kvs, r->n, "t/a t/b");
    assert_int_equal(r->kvs[0].mod_rev, before + 1);
    assert_int_equal(r->kvs[1].mod_rev, before + 1);
    assert_int_equal(r->kvs[1].create_rev, before + 1);
}

static void txn_without_effect_makes_no_revision(void **state)
{
    gint64 before = put(k("a"), "same");
    const LhTxnOp nothing = lh_txn_delete(k("none"));
    Answer *a = ops(&nothing, 1);
    assert_int_equal(a->header.revision, before);
    assert_int_equal(a->ops[0].type, LH_TXN_DELETE);
    assert_int_equal(a->ops[0].deleted, 0);
    const LhTxnOp look = lh_txn_range(k("a"));
    assert_int_equal(ops(&look, 1)->header.revision, before);
    assert_int_equal(ops(NULL, 0)->header.revision, before);
    assert_int_equal(put(k("a"), "same"), before + 1); /* writing the same value is an effect */
}

static void txn_ops_run_in_order(void **state)
{
    gint64 before = put(k("o/a"), "old");
    const LhTxnOp list[] = {lh_txn_range(k("o/a")),           lh_txn_put(k("o/a"), "new", 0),
                            lh_txn_range(k("o/a")),           lh_txn_put(k("o/b"), "b", 0),
                            read_range(k("o/"), kend("o/")),  lh_txn_delete(k("o/c")),
                            delete_range(k("x/"), kend("x/"))};
    Answer *a = ops(list, G_N_ELEMENTS(list));
    assert_int_equal(a->n_ops, G_N_ELEMENTS(list));
    assert_string_equal(a->ops[0].kvs[0].value, "old");
    assert_int_equal(a->ops[0].revision, before);
    assert_string_equal(a->ops[2].kvs[0].value, "new");
    assert_int_equal(a->ops[2].kvs[0].mod_rev, before + 1);
    assert_int_equal(a->ops[2].kvs[0].version, 2);
    assert_int_equal(a->ops[2].revision, before + 1);
    assert_keys(a->ops[4].kvs, a->ops[4].n, "o/a o/b");
    assert_int_equal(a->ops[4].count, 2);
    assert_int_equal(a->ops[6].deleted, 0);
}

static void txn_deletes_ranges(void **state)
{
    put(k("d_1/a"), "");
    put(k("d_1/b"), "");
    put(k("d_10/a"), "");
    const LhTxnOp list[] = {delete_range(k("d_1/"), kend("d_1/")),
                            read_range(k("d_1/"), kend("d_1/")),
                            delete_range(k("d_1/"), kend("d_1/"))};
    Answer *a = ops(list, 3);
    assert_true(a->ok); /* deletions may overlap */
    assert_int_equal(a->ops[0].deleted, 2);
    assert_int_equal(a->ops[1].n, 0);
    assert_int_equal(a->ops[2].deleted, 0);
    assert_int_equal(get(k("d_10/a"), 0)->n, 1);
}

static void txn_refuses_a_key_twice(void **state)
{
    const char *a = k("w/a");
    const LhTxnOp twice[] = {lh_txn_put(a, "1", 0), lh_txn_put(k("w/b"), "", 0),
                             lh_txn_put(a, "2", 0)};
    const LhTxnOp put_delete[] = {lh_txn_put(a, "1", 0), lh_txn_delete(a)};
    const LhTxnOp delete_put[] = {lh_txn_delete(a), lh_txn_put(a, "1", 0)};
    const LhTxnOp in_range[] = {lh_txn_put(a, "1", 0), delete_range(k("w/"), kend("w/"))};
    gint64 before = revision();
    assert_fails(ops(twice, 3), LH_ERR_INVALID);
    assert_fails(ops(put_delete, 2), LH_ERR_INVALID);
    assert_fails(ops(delete_put, 2), LH_ERR_INVALID);
    assert_fails(ops(in_range, 2), LH_ERR_INVALID);
    const LhTxnRequest other_branch = {.failure = twice, .n_failure = 3};
    assert_fails(txn(&other_branch), LH_ERR_INVALID);
    assert_int_equal(revision(), before);

    const LhTxnRequest both = {.success = twice, .n_success = 2, .failure = twice, .n_failure = 2};
    assert_true(txn(&both)->ok); /* once in each branch */
    const LhTxnOp outside[] = {lh_txn_put(k("w0"), "1", 0), delete_range(k("w/"), kend("w/"))};
    assert_int_equal(ops(outside, 2)->ops[1].deleted, 2);
}

static void txn_of_at_most_128_ops(void **state)
{
    LhTxnOp puts[LH_ETCD_MAX_TXN_OPS + 1];
    LhCompare compares[LH_ETCD_MAX_TXN_OPS + 1];
    for (gsize i = 0; i < G_N_ELEMENTS(puts); i++) {
        g_autofree char *name = g_strdup_printf("m/%zu", i);
        puts[i] = lh_txn_put(k(name), "", 0);
        compares[i] = lh_compare_mod(k(name), 0);
    }
    LhTxnRequest request = {compares, 128, puts, 128, puts, 128};
    Answer *a = txn(&request);
    assert_true(a->ok && a->succeeded);
    assert_int_equal(a->n_ops, 128);
    request.n_success = 129;
    assert_fails(txn(&request), LH_ERR_INVALID);
    request.n_success = 128;
    request.n_failure = 129;
    assert_fails(txn(&request), LH_ERR_INVALID);
    request.n_failure = 128;
    request.n_compares = 129;
    assert_fails(txn(&request), LH_ERR_INVALID);
}

static void txn_of_at_most_a_megabyte_and_a_half(void **state)
{
    gsize len = LH_ETCD_MAX_REQUEST - 4096;
    char *value = g_malloc(LH_ETCD_MAX_REQUEST + 1);
    keep(value);
    memset(value, 'x', LH_ETCD_MAX_REQUEST + 1);
    LhTxnOp op = {.type = LH_TXN_PUT, .key = k("big"), .value = value, .value_len = len};
    assert_true(ops(&op, 1)->ok);
    Answer *a = get(k("big"), 0);
    assert_int_equal(a->kvs[0].value_len, len);
    op.value_len = LH_ETCD_MAX_REQUEST + 1;
    assert_fails(ops(&op, 1), LH_ERR_INVALID);
    del(k("big"), NULL);
}

static void txn_without_a_key_is_refused(void **state)
{
    const LhTxnOp wrong[] = {lh_txn_put("", "", 0), lh_txn_delete(""), lh_txn_range("")};
    for (gsize i = 0; i < G_N_ELEMENTS(wrong); i++) {
        assert_fails(ops(&wrong[i], 1), LH_ERR_INVALID);
    }
}

static void txn_with_an_unknown_lease_does_nothing(void **state)
{
    const LhTxnOp list[] = {lh_txn_put(k("l/a"), "", 0), lh_txn_put(k("l/b"), "", 987654321)};
    gint64 before = revision();
    assert_fails(ops(list, 2), LH_ERR_LEASE_LOST);
    assert_int_equal(revision(), before);
    assert_int_equal(get(k("l/a"), 0)->n, 0);
    /* Only the branch that is taken matters. */
    const LhTxnRequest other = {.success = list, .n_success = 1, .failure = list, .n_failure = 2};
    assert_true(txn(&other)->ok);
}

static void txn_compares_see_the_state_before_it(void **state)
{
    const LhCompare absent = lh_compare_mod(k("s"), 0);
    const LhTxnOp op = lh_txn_put(k("s"), "", 0);
    const LhTxnRequest request = {
        .compares = &absent, .n_compares = 1, .success = &op, .n_success = 1};
    Answer *first = start_txn(&request, LH_ETCD_DEADLINE_MS);
    Answer *second = start_txn(&request, LH_ETCD_DEADLINE_MS);
    wait_for(answered, first);
    wait_for(answered, second);
    assert_int_equal(first->succeeded + second->succeeded, 1); /* one of them */
    assert_int_equal(get(k("s"), 0)->kvs[0].version, 1);
}

const struct CMUnitTest txn_tests[] = {
    TEST(txn_takes_one_branch),
    TEST(txn_with_an_empty_failure_branch),
    TEST(txn_is_one_revision),
    TEST(txn_without_effect_makes_no_revision),
    TEST(txn_ops_run_in_order),
    TEST(txn_deletes_ranges),
    TEST(txn_refuses_a_key_twice),
    TEST(txn_of_at_most_128_ops),
    TEST(txn_of_at_most_a_megabyte_and_a_half),
    TEST(txn_without_a_key_is_refused),
    TEST(txn_with_an_unknown_lease_does_nothing),
    TEST(txn_compares_see_the_state_before_it),
    NO_MORE_TESTS,
};
