/*
 * etcd/codec: requests have exactly etcd's bytes, replies are read from etcd's bytes, and no bytes at all
 * do harm. The bytes are written here by hand: what protobuf-c writes, it would also read back wrong.
 */
#include "etcd/codec.h"
#include "etcd/etcd.pb-c.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

/* The enums go over the wire as they are. */
G_STATIC_ASSERT((int)LH_CMP_VERSION == (int)ETCDSERVERPB__COMPARE__COMPARE_TARGET__VERSION);
G_STATIC_ASSERT((int)LH_CMP_CREATE == (int)ETCDSERVERPB__COMPARE__COMPARE_TARGET__CREATE);
G_STATIC_ASSERT((int)LH_CMP_MOD == (int)ETCDSERVERPB__COMPARE__COMPARE_TARGET__MOD);
G_STATIC_ASSERT((int)LH_CMP_VALUE == (int)ETCDSERVERPB__COMPARE__COMPARE_TARGET__VALUE);
G_STATIC_ASSERT((int)LH_CMP_LEASE == (int)ETCDSERVERPB__COMPARE__COMPARE_TARGET__LEASE);
G_STATIC_ASSERT((int)LH_CMP_EQUAL == (int)ETCDSERVERPB__COMPARE__COMPARE_RESULT__EQUAL);
G_STATIC_ASSERT((int)LH_CMP_GREATER == (int)ETCDSERVERPB__COMPARE__COMPARE_RESULT__GREATER);
G_STATIC_ASSERT((int)LH_CMP_LESS == (int)ETCDSERVERPB__COMPARE__COMPARE_RESULT__LESS);
G_STATIC_ASSERT((int)LH_CMP_NOT_EQUAL == (int)ETCDSERVERPB__COMPARE__COMPARE_RESULT__NOT_EQUAL);

/* Hex digits and spaces; 'text' in quotes stands for its bytes. */
static GByteArray *bytes_of(const char *text)
{
    GByteArray *bytes = g_byte_array_new();
    for (const char *p = text; *p != '\0';) {
        if (*p == ' ') {
            p++;
        } else if (*p == '\'') {
            const char *end = strchr(p + 1, '\'');
            g_byte_array_append(bytes, (const guint8 *)p + 1, (guint)(end - p - 1));
            p = end + 1;
        } else {
            guint8 byte = (guint8)(g_ascii_xdigit_value(p[0]) << 4 | g_ascii_xdigit_value(p[1]));
            g_byte_array_append(bytes, &byte, 1);
            p += 2;
        }
    }
    return bytes;
}

static void assert_bytes(LhBytes packed, const char *expected)
{
    g_autoptr(GByteArray) bytes = bytes_of(expected);
    assert_non_null(packed.data);
    assert_int_equal(packed.len, bytes->len);
    assert_memory_equal(packed.data, bytes->data, bytes->len);
    g_free(packed.data);
}

static void range_requests(void **state)
{
    (void)state;
    assert_bytes(lh_codec_range(&(LhRangeRequest){.key = "/a"}), "0a02'/a'");
    assert_bytes(lh_codec_range(&(LhRangeRequest){.key = "/a/",
                                                  .range_end = "/a0",
                                                  .revision = 300,
                                                  .limit = 5,
                                                  .serializable = TRUE,
                                                  .keys_only = TRUE,
                                                  .count_only = TRUE}),
                 "0a03'/a/' 1203'/a0' 1805 20ac02 3801 4001 4801");
}

static void txn_requests(void **state)
{
    (void)state;
    const LhCompare compares[] = {
        {.key = "v", .target = LH_CMP_VERSION, .result = LH_CMP_GREATER, .number = 1},
        lh_compare_create("c", 0),
        lh_compare_mod("m", 9),
        {.key = "x",
         .target = LH_CMP_VALUE,
         .result = LH_CMP_NOT_EQUAL,
         .value = "a\0b",
         .value_len = 3},
        {.key = "l", .range_end = "m", .target = LH_CMP_LEASE, .result = LH_CMP_LESS, .number = 2},
    };
    const LhTxnOp success[] = {lh_txn_put("k", "val", 7)};
    const LhTxnOp failure[] = {lh_txn_range("k"),
                               {.type = LH_TXN_DELETE, .key = "d", .range_end = "e"}};
    LhTxnRequest request = {.compares = compares,
                            .n_compares = G_N_ELEMENTS(compares),
                            .success = success,
                            .n_success = G_N_ELEMENTS(success),
                            .failure = failure,
                            .n_failure = G_N_ELEMENTS(failure)};
    assert_bytes(lh_codec_txn(&request), "0a07 0801 1a01'v' 2001"
                                         /* a oneof's zero is written, unlike a field's */
                                         "0a07 1001 1a01'c' 2800"
                                         "0a07 1002 1a01'm' 3009"
                                         "0a0c 0803 1003 1a01'x' 3a03 610062"
                                         "0a0d 0802 1004 1a01'l' 4002 820401'm'"
                                         "120c 120a 0a01'k' 1203'val' 1807"
                                         "1a05 0a03 0a01'k'"
                                         "1a08 1a06 0a01'd' 1201'e'");
    assert_bytes(lh_codec_txn(&(LhTxnRequest){0}), "");
}

static void other_requests(void **state)
{
    (void)state;
    assert_bytes(lh_codec_watch_create(
                     &(LhWatchRequest){.key = "/a/", .range_end = "/a0", .start_revision = 7}),
                 "0a10 0a03'/a/' 1203'/a0' 1807 2001 4001");
    assert_bytes(lh_codec_watch_progress(), "1a00");
    assert_bytes(lh_codec_lease_grant(5), "0805");
    assert_bytes(lh_codec_lease_revoke(5), "0805");
    assert_bytes(lh_codec_lease_keepalive(-1), "08ffffffffffffffffff01");
    assert_bytes(lh_codec_status(), "");
    assert_bytes(lh_codec_alarms(), "");
}

#define HEADER "0a09 0807 1003 18b960 2002" /* cluster 7, member 3, revision 12345, term 2 */

static void assert_header(const LhEtcdHeader *header)
{
    assert_int_equal(header->cluster_id, 7);
    assert_int_equal(header->member_id, 3);
    assert_int_equal(header->revision, 12345);
    assert_int_equal(header->raft_term, 2);
}

/* Decodes from memory that is freed at once: the reply must not point into it. */
static gpointer decode(gpointer (*function)(LhArena *, const guint8 *, gsize), LhArena *arena,
                       const char *text)
{
    g_autoptr(GByteArray) bytes = bytes_of(text);
    g_autofree guint8 *exact = g_memdup2(bytes->data, bytes->len);
    return function(arena, exact, bytes->len);
}

#define KV "0a02'/a' 1005 1806 2002 2a03 610062 3009" /* value "a\0b" */

static void assert_kv(const LhKv *kv)
{
    assert_string_equal(kv->key, "/a");
    assert_int_equal(kv->key_len, 2);
    assert_memory_equal(kv->value, "a\0b", 4);
    assert_int_equal(kv->value_len, 3);
    assert_int_equal(kv->create_rev, 5);
    assert_int_equal(kv->mod_rev, 6);
    assert_int_equal(kv->version, 2);
    assert_int_equal(kv->lease, 9);
}

static void range_replies(void **state)
{
    (void)state;
    LhArena arena = {0};
    const LhRangeReply *reply = decode(lh_codec_range_reply, &arena,
                                       HEADER "1211" KV "1205 0a01'k' 1801 1801 2063");
    assert_non_null(reply);
    assert_header(&reply->header);
    assert_int_equal(reply->n_kvs, 2);
    assert_kv(&reply->kvs[0]);
    assert_string_equal(reply->kvs[1].key, "k");
    assert_string_equal(reply->kvs[1].value, "");
    assert_int_equal(reply->kvs[1].value_len, 0);
    assert_true(reply->more);
    assert_int_equal(reply->count, 99);
    lh_arena_clear(&arena);
    /* Fields that we do not know are skipped. */
    reply = decode(lh_codec_range_reply, &arena, HEADER "2063 f80701 fa0703 010203");
    assert_int_equal(reply->count, 99);
    assert_int_equal(reply->n_kvs, 0);
    lh_arena_clear(&arena);
}

static void txn_replies(void **state)
{
    (void)state;
    LhArena arena = {0};
    const LhTxnReply *reply = decode(lh_codec_txn_reply, &arena,
                                     HEADER "1001 1a02 1200 1a04 1a02 1003 1a15 0a13 1211" KV);
    assert_non_null(reply);
    assert_header(&reply->header);
    assert_true(reply->succeeded);
    assert_int_equal(reply->n_ops, 3);
    assert_int_equal(reply->ops[0].type, LH_TXN_PUT);
    assert_int_equal(reply->ops[1].type, LH_TXN_DELETE);
    assert_int_equal(reply->ops[1].deleted, 3);
    assert_int_equal(reply->ops[2].type, LH_TXN_RANGE);
    assert_int_equal(reply->ops[2].range.n_kvs, 1);
    assert_kv(&reply->ops[2].range.kvs[0]);
    lh_arena_clear(&arena);
    assert_null(decode(lh_codec_txn_reply, &arena, HEADER "1a00")); /* an answer to nothing */
    lh_arena_clear(&arena);
}

static void watch_replies(void **state)
{
    (void)state;
    LhArena arena = {0};
    const LhWatchReply *reply = decode(lh_codec_watch_reply, &arena,
                                       HEADER "3801 5a13 1211" KV "5a09 0801 1205 0a01'k' 1807");
    assert_non_null(reply);
    assert_header(&reply->header);
    assert_true(reply->fragment);
    assert_false(reply->created || reply->canceled || reply->progress);
    assert_int_equal(reply->n_events, 2);
    assert_false(reply->events[0].is_delete);
    assert_kv(&reply->events[0].kv);
    assert_true(reply->events[1].is_delete);
    assert_int_equal(reply->events[1].kv.mod_rev, 7);
    lh_arena_clear(&arena);

    reply = decode(lh_codec_watch_reply, &arena, HEADER "1801");
    assert_true(reply->created && !reply->progress && !reply->canceled);
    lh_arena_clear(&arena);
    reply = decode(lh_codec_watch_reply, &arena, "0a02 0807 2001 285a 3203'why'");
    assert_true(reply->canceled && !reply->progress);
    assert_int_equal(reply->compact_revision, 90);
    assert_int_equal(reply->header.revision, 0);
    assert_string_equal(reply->reason, "why");
    lh_arena_clear(&arena);
    /* The answer to a progress request has watch id -1. */
    reply = decode(lh_codec_watch_reply, &arena, HEADER "10ffffffffffffffffff01");
    assert_true(reply->progress);
    lh_arena_clear(&arena);
    assert_null(decode(lh_codec_watch_reply, &arena, HEADER "5a02 0801")); /* of which key? */
    lh_arena_clear(&arena);
}

static void lease_replies(void **state)
{
    (void)state;
    LhArena arena = {0};
    const LhLeaseReply *reply = decode(lh_codec_grant_reply, &arena, HEADER "1009 1805");
    assert_header(&reply->header);
    assert_int_equal(reply->lease, 9);
    assert_int_equal(reply->ttl_s, 5);
    reply = decode(lh_codec_keepalive_reply, &arena, HEADER "1009");
    assert_int_equal(reply->ttl_s, 0); /* unknown lease */
    assert_null(decode(lh_codec_grant_reply, &arena, HEADER "1009"));
    assert_null(decode(lh_codec_grant_reply, &arena, HEADER "1805"));
    assert_null(decode(lh_codec_keepalive_reply, &arena, HEADER "1805"));
    assert_null(decode(lh_codec_keepalive_reply, &arena, HEADER "1009 18ffffffffffffffffff01"));
    assert_header(decode(lh_codec_revoke_reply, &arena, HEADER));
    lh_arena_clear(&arena);
}

static void status_replies(void **state)
{
    (void)state;
    LhArena arena = {0};
    const LhStatusReply *reply = decode(lh_codec_status_reply, &arena,
                                        HEADER "1206'3.4.23' 1864 2003 2805");
    assert_header(&reply->header);
    assert_string_equal(reply->version, "3.4.23");
    assert_int_equal(reply->db_size_bytes, 100);
    assert_int_equal(reply->leader, 3);
    /* A version of any length is cut. */
    reply = decode(lh_codec_status_reply, &arena,
                   HEADER "1228 '3.4.23-a-rather-long-name-of-a-version-x'");
    assert_int_equal(strlen(reply->version), sizeof reply->version - 1);
    reply = decode(lh_codec_alarms_reply, &arena, HEADER);
    assert_false(reply->alarm_nospace || reply->alarm_corrupt);
    reply = decode(lh_codec_alarms_reply, &arena, HEADER "1204 0803 1001");
    assert_true(reply->alarm_nospace && !reply->alarm_corrupt);
    reply = decode(lh_codec_alarms_reply, &arena, HEADER "1204 0803 1001 1204 0804 1002");
    assert_true(reply->alarm_nospace && reply->alarm_corrupt);
    lh_arena_clear(&arena);
}

static void decode_with_all(const guint8 *data, gsize len)
{
    LhArena arena = {0};
    lh_codec_range_reply(&arena, data, len);
    lh_codec_txn_reply(&arena, data, len);
    lh_codec_watch_reply(&arena, data, len);
    lh_codec_grant_reply(&arena, data, len);
    lh_codec_keepalive_reply(&arena, data, len);
    lh_codec_revoke_reply(&arena, data, len);
    lh_codec_status_reply(&arena, data, len);
    lh_codec_alarms_reply(&arena, data, len);
    lh_arena_clear(&arena);
}

/* Cut anywhere, and with any byte wrong: no crash, no read outside (the sanitizers watch). */
static void damaged_replies(void **state)
{
    (void)state;
    static const char *const samples[] = {
        HEADER "1211" KV "1205 0a01'k' 1801 1801 2063",
        HEADER "1001 1a02 1200 1a04 1a02 1003 1a15 0a13 1211" KV,
        HEADER "3801 5a13 1211" KV "5a09 0801 1205 0a01'k' 1807",
        HEADER "1206'3.4.23' 1864 2003 2805",
        HEADER "1204 0803 1001 1204 0804 1002",
    };
    for (guint s = 0; s < G_N_ELEMENTS(samples); s++) {
        g_autoptr(GByteArray) bytes = bytes_of(samples[s]);
        for (guint len = 0; len <= bytes->len; len++) {
            g_autofree guint8 *exact = g_memdup2(bytes->data, len);
            decode_with_all(exact, len);
        }
        for (guint at = 0; at < bytes->len; at++) {
            guint8 good = bytes->data[at];
            for (guint bad = 0; bad < 256; bad++) {
                bytes->data[at] = (guint8)bad;
                decode_with_all(bytes->data, bytes->len);
            }
            bytes->data[at] = good;
        }
    }
}

static void arenas(void **state)
{
    (void)state;
    LhArena arena = {0};
    char *last = NULL;
    for (gsize size = 0; size < 5000; size += 7) {
        char *block = lh_arena_alloc(&arena, size);
        assert_int_equal((guintptr)block % 8, 0);
        memset(block, 'x', size);
        assert_int_equal(block[size], 0);
        assert_true(block != last);
        last = block;
    }
    const char *big = lh_arena_alloc0(&arena, 20 * 1024 * 1024);
    assert_int_equal(big[20 * 1024 * 1024 - 1], 0);
    assert_string_equal(lh_arena_copy(&arena, "abc", 2), "ab");
    assert_string_equal(lh_arena_copy(&arena, NULL, 0), "");
    lh_arena_clear(&arena);
    lh_arena_clear(&arena);
    assert_string_equal(lh_arena_copy(&arena, "again", 5), "again");
    lh_arena_clear(&arena);
}

static void authenticate(void **state)
{
    (void)state;
    LhBytes request = lh_codec_authenticate("me", "pass");
    assert_int_equal(request.len, 10);
    assert_memory_equal(request.data, "\x0a\x02me\x12\x04pass", 10);
    g_free(request.data);
    LhArena arena = {0};
    const char *token = lh_codec_authenticate_reply(
        &arena, (const guint8 *)"\x0a\x02\x18\x07\x12\x03to.", 9);
    assert_string_equal(token, "to.");
    assert_null(lh_codec_authenticate_reply(&arena, (const guint8 *)"\x0a\x02\x18\x07", 4));
    assert_null(lh_codec_authenticate_reply(&arena, (const guint8 *)"\x12\x09to.", 5));
    lh_arena_clear(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(range_requests),  cmocka_unit_test(txn_requests),
        cmocka_unit_test(other_requests),  cmocka_unit_test(range_replies),
        cmocka_unit_test(txn_replies),     cmocka_unit_test(watch_replies),
        cmocka_unit_test(lease_replies),   cmocka_unit_test(status_replies),
        cmocka_unit_test(damaged_replies), cmocka_unit_test(arenas),
        cmocka_unit_test(authenticate),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
