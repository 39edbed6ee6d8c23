/*
 * etcd/etcd.h: what is refused before it is sent, prefix ends, and which versions can be believed.
 */
#include "base/errors.h"
#include "etcd/etcd.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void prefix_ends(void **state)
{
    (void)state;
    g_autofree char *slash = lh_etcd_prefix_end("/leasehold/decided/replicas/");
    assert_string_equal(slash, "/leasehold/decided/replicas0");
    /* What makes X_1 and X_10 different. */
    g_autofree char *dot = lh_etcd_prefix_end("/r/api.");
    assert_string_equal(dot, "/r/api/");
}

static void helpers(void **state)
{
    (void)state;
    LhCompare mod = lh_compare_mod("k", 7);
    assert_int_equal(mod.target, LH_CMP_MOD);
    assert_int_equal(mod.result, LH_CMP_EQUAL);
    assert_int_equal(mod.number, 7);
    assert_null(mod.range_end);
    LhCompare create = lh_compare_create("k", 0);
    assert_int_equal(create.target, LH_CMP_CREATE);
    LhTxnOp put = lh_txn_put("k", "value", 3);
    assert_int_equal(put.type, LH_TXN_PUT);
    assert_int_equal(put.value_len, 5);
    assert_int_equal(put.lease, 3);
    assert_int_equal(lh_txn_delete("k").type, LH_TXN_DELETE);
    assert_int_equal(lh_txn_range("k").type, LH_TXN_RANGE);
}

static void assert_refused(const LhTxnRequest *request, const char *part)
{
    g_autoptr(GError) error = NULL;
    assert_false(lh_etcd_txn_check(request, &error));
    assert_true(g_error_matches(error, LH_ERROR, LH_ERR_INVALID));
    if (strstr(error->message, part) == NULL)
        fail_msg("%s", error->message);
    assert_false(lh_etcd_txn_check(request, NULL));
}

static void transactions_that_etcd_would_refuse(void **state)
{
    (void)state;
    LhCompare compares[129];
    LhTxnOp ops[129];
    for (guint i = 0; i < 129; i++) {
        compares[i] = lh_compare_mod("k", 0);
        ops[i] = lh_txn_delete("k");
    }
    LhTxnRequest request = {.compares = compares,
                            .success = ops,
                            .failure = ops,
                            .n_compares = 128,
                            .n_success = 128,
                            .n_failure = 128};
    assert_true(lh_etcd_txn_check(&request, NULL));
    request.n_compares = 129;
    assert_refused(&request, "129 compares");
    request.n_compares = 0;
    request.n_success = 129;
    assert_refused(&request, "129 and 128 ops");
    request.n_success = 0;
    request.n_failure = 129;
    assert_refused(&request, "0 and 129 ops");
}

static void requests_that_are_too_large(void **state)
{
    (void)state;
    g_autofree char *value = g_strnfill(LH_ETCD_MAX_REQUEST, 'x');
    LhTxnOp op = {.type = LH_TXN_PUT, .key = "k", .value = value};
    LhTxnRequest request = {.success = &op, .n_success = 1};
    op.value_len = LH_ETCD_MAX_REQUEST - 1024;
    assert_true(lh_etcd_txn_check(&request, NULL));
    op.value_len = LH_ETCD_MAX_REQUEST;
    assert_refused(&request, "bytes");
    LhCompare compare = {
        .key = "k", .target = LH_CMP_VALUE, .value = value, .value_len = LH_ETCD_MAX_REQUEST};
    request = (LhTxnRequest){.compares = &compare, .n_compares = 1};
    assert_refused(&request, "bytes");
    request = (LhTxnRequest){.failure = &op, .n_failure = 1};
    assert_refused(&request, "bytes");
}

static void trusted_versions(void **state)
{
    (void)state;
    const char *const trusted[] = {"3.4.25", "3.4.38",     "3.5.8", "3.5.22",
                                   "3.6.0",  "3.6.0-rc.1", "4.0.0", "3.5.21+dfsg"};
    const char *const not [] = {"3.4.23", "3.4.24", "3.5.0", "3.5.7", "3.5.8-rc.1", "3.3.27",
                                "2.3.8",  "",       "x",     "3",     "3.x"};
    for (guint i = 0; i < G_N_ELEMENTS(trusted); i++)
        if (!lh_etcd_progress_trusted(trusted[i]))
            fail_msg("%s", trusted[i]);
    for (guint i = 0; i < G_N_ELEMENTS(not ); i++)
        if (lh_etcd_progress_trusted(not [i]))
            fail_msg("%s", not [i]);
}

static void nothing_is_fine(void **state)
{
    (void)state;
    lh_etcd_free(NULL);
    LhCallId none = 0;
    lh_etcd_cancel(NULL, &none);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prefix_ends),
        cmocka_unit_test(helpers),
        cmocka_unit_test(transactions_that_etcd_would_refuse),
        cmocka_unit_test(requests_that_are_too_large),
        cmocka_unit_test(trusted_versions),
        cmocka_unit_test(nothing_is_fine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
