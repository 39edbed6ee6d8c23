/*
 * etcd/rpc_status: every gRPC status code, for reads and writes; a write's failure is of unknown outcome
 * unless etcd refused it before raft.
 */
#include "etcd/rpc_status.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define U LH_ERR_UNAVAILABLE
#define O LH_ERR_UNKNOWN_OUTCOME

static LhErrorCode code_of(LhRpcKind kind, int status, const char *message)
{
    g_autoptr(GError) error = lh_rpc_error("Txn", kind, status, message, strlen(message));
    assert_true(error->domain == LH_ERROR);
    assert_true(g_str_has_prefix(error->message, "etcd Txn: "));
    return (LhErrorCode)error->code;
}

static void every_code(void **state)
{
    (void)state;
    static const struct {
        LhErrorCode read, write;
    } expected[] = {
        [0] = {U, O}, /* OK, but closed too early */
        [1] = {U, O}, /* CANCELLED, by the peer */
        [2] = {U, O}, /* UNKNOWN */
        [3] = {LH_ERR_INVALID, LH_ERR_INVALID},
        [4] = {U, O}, /* DEADLINE_EXCEEDED */
        [5] = {LH_ERR_LEASE_LOST, LH_ERR_LEASE_LOST},
        [6] = {U, O}, /* ALREADY_EXISTS */
        [7] = {LH_ERR_FORBIDDEN, LH_ERR_FORBIDDEN},
        [8] = {LH_ERR_OVERLOADED, O}, /* RESOURCE_EXHAUSTED in unknown words */
        [9] = {U, U},                 /* FAILED_PRECONDITION */
        [10] = {U, O},                /* ABORTED */
        [11] = {LH_ERR_COMPACTED, LH_ERR_COMPACTED},
        [12] = {U, U}, /* UNIMPLEMENTED */
        [13] = {U, O}, /* INTERNAL */
        [14] = {U, O}, /* UNAVAILABLE */
        [15] = {U, O}, /* DATA_LOSS */
        [16] = {LH_ERR_AUTH, LH_ERR_AUTH},
        [17] = {U, O}, /* no gRPC code */
    };
    for (int status = 0; status < (int)G_N_ELEMENTS(expected); status++) {
        assert_int_equal(code_of(LH_RPC_READ, status, "words"), expected[status].read);
        assert_int_equal(code_of(LH_RPC_WRITE, status, "words"), expected[status].write);
    }
}

static void one_code_for_two_meanings(void **state)
{
    (void)state;
    static const struct {
        int status;
        const char *message;
        LhErrorCode code;
    } rows[] = {
        {8, "etcdserver: mvcc: database space exceeded", LH_ERR_NO_SPACE},
        {8, "etcdserver: too many requests", LH_ERR_OVERLOADED},
        {11, "etcdserver: mvcc: required revision has been compacted", LH_ERR_COMPACTED},
        {11, "etcdserver: mvcc: required revision is a future revision", LH_ERR_INVALID},
        {11, "etcdserver: too large lease TTL", LH_ERR_INVALID},
        {2, "auth: invalid auth token", LH_ERR_AUTH},
        {3, "etcdserver: user name is empty", LH_ERR_AUTH},
        {3, "etcdserver: authentication failed, invalid user ID or password", LH_ERR_AUTH},
        {3, "etcdserver: revision of auth store is old", LH_ERR_AUTH},
        {9, "etcdserver: authentication is not enabled", LH_ERR_NOT_FOUND},
        {3, "etcdserver: duplicate key given in txn request", LH_ERR_INVALID},
        {5, "etcdserver: requested lease not found", LH_ERR_LEASE_LOST},
    };
    for (guint i = 0; i < G_N_ELEMENTS(rows); i++) {
        assert_int_equal(code_of(LH_RPC_READ, rows[i].status, rows[i].message), rows[i].code);
        assert_int_equal(code_of(LH_RPC_WRITE, rows[i].status, rows[i].message), rows[i].code);
    }
    /* Exactly: neither a prefix nor other words around it. */
    assert_int_equal(code_of(LH_RPC_WRITE, 8, "etcdserver: too many requests."), O);
    assert_int_equal(code_of(LH_RPC_WRITE, 8, "etcdserver: too many"), O);
    /* The words alone mean nothing. */
    assert_int_equal(code_of(LH_RPC_WRITE, 14, "etcdserver: mvcc: database space exceeded"), O);
}

static void messages_are_bounded_and_valid(void **state)
{
    (void)state;
    g_autofree char *text = g_strnfill(100000, '\xc3');
    g_autoptr(GError) error = lh_rpc_error("Range", LH_RPC_READ, 14, text, 100000);
    assert_true(g_utf8_validate(error->message, -1, NULL));
    assert_true(strlen(error->message) < 1000);
    g_autoptr(GError) none = lh_rpc_error("Watch", LH_RPC_READ, 0, NULL, 0);
    assert_string_equal(none->message, "etcd Watch: closed (gRPC status 0)");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_code),
        cmocka_unit_test(one_code_for_two_meanings),
        cmocka_unit_test(messages_are_bounded_and_valid),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
