/*
 * Replies of an etcd that may say anything: each method's decoder on any bytes. The first byte picks the
 * method. A reply that is accepted needs not a byte of the input any more, is the same when decoded
 * again, and holds what a slow reader of the wire format finds.
 */
#include "etcd/codec.h"
#include "tests/fuzz/fuzz.h"

#include <string.h>

/* ---- the wire format, read slowly ---- */

typedef struct {
    guint32 field, type;
    guint64 number;     /* type 0; of a longer one the lower 64 bits */
    gboolean any;       /* type 0: some bit is set */
    const guint8 *data; /* type 2 */
    gsize len;
} Field;

static gboolean read_varint(const guint8 **at, const guint8 *end, guint64 *out, gboolean *any)
{
    *out = 0;
    *any = FALSE;
    for (guint shift = 0; shift < 70 && *at < end; shift += 7) {
        guint8 byte = *(*at)++;
        *any |= (byte & 0x7f) != 0;
        if (shift < 64)
            *out |= (guint64)(byte & 0x7f) << shift;
        if ((byte & 0x80) == 0)
            return TRUE;
    }
    return FALSE;
}

/* Only called on what the decoder accepted: FALSE is the end. */
static gboolean next_field(const guint8 **at, const guint8 *end, Field *out)
{
    guint64 tag, len = 0;
    gboolean any;

    *out = (Field){0};
    if (*at >= end || !read_varint(at, end, &tag, &any))
        return FALSE;
    out->field = (guint32)tag >> 3;
    out->type = tag & 7;
    if (out->type == 0)
        return read_varint(at, end, &out->number, &out->any);
    if (out->type == 2 && !read_varint(at, end, &len, &any))
        return FALSE;
    len = out->type == 1 ? 8 : out->type == 5 ? 4 : len;
    if ((out->type != 1 && out->type != 2 && out->type != 5) || len > (guint64)(end - *at))
        return FALSE;
    out->data = *at;
    out->len = (gsize)len;
    *at += len;
    return TRUE;
}

static const guint8 *past(const guint8 *data, gsize len)
{
    return len == 0 ? data : data + len;
}

static guint count_fields(const guint8 *data, gsize len, guint32 number, guint32 type)
{
    const guint8 *at = data;
    guint n = 0;

    for (Field f; next_field(&at, past(data, len), &f);)
        n += f.field == number && f.type == type;
    return n;
}

/* The last one counts; zeros when there is none. */
static Field last_field(const guint8 *data, gsize len, guint32 number, guint32 type)
{
    const guint8 *at = data;
    Field found = {0};

    for (Field f; next_field(&at, past(data, len), &f);)
        if (f.field == number && f.type == type)
            found = f;
    return found;
}

/* protobuf-c takes any wire type for a bool; only varints are worth doing here again. */
static void check_bool(gboolean value, const guint8 *data, gsize len, guint32 number)
{
    const guint8 *at = data;
    Field last = {0};

    for (Field f; next_field(&at, past(data, len), &f);)
        if (f.field == number)
            last = f;
    FUZZ_CHECK(last.type != 0 || !value == !last.any, "field %u is %d", number, value);
}

static Field nth_field(const guint8 *data, gsize len, guint32 number, guint n)
{
    const guint8 *at = data;

    for (Field f; next_field(&at, past(data, len), &f);)
        if (f.field == number && f.type == 2 && n-- == 0)
            return f;
    return (Field){0};
}

static void check_text(const char *text, gsize len, const Field *wire)
{
    FUZZ_CHECK(text != NULL && text[len] == '\0', "not terminated");
    FUZZ_CHECK(len == wire->len && (len == 0 || memcmp(text, wire->data, len) == 0),
               "%" G_GSIZE_FORMAT " bytes, %" G_GSIZE_FORMAT " sent", len, wire->len);
}

static void check_kv(const LhKv *kv, const Field *wire)
{
    Field key = last_field(wire->data, wire->len, 1, 2);
    Field value = last_field(wire->data, wire->len, 5, 2);

    check_text(kv->key, kv->key_len, &key);
    check_text(kv->value, kv->value_len, &value);
    FUZZ_CHECK(kv->create_rev == (gint64)last_field(wire->data, wire->len, 2, 0).number, "create");
    FUZZ_CHECK(kv->mod_rev == (gint64)last_field(wire->data, wire->len, 3, 0).number, "mod");
    FUZZ_CHECK(kv->version == (gint64)last_field(wire->data, wire->len, 4, 0).number, "version");
    FUZZ_CHECK(kv->lease == (gint64)last_field(wire->data, wire->len, 6, 0).number, "lease");
}

/* Several headers are merged, which is not worth doing here again. */
static void check_header(const LhEtcdHeader *header, const guint8 *data, gsize len)
{
    Field wire = last_field(data, len, 1, 2);

    if (count_fields(data, len, 1, 2) > 1)
        return;
    FUZZ_CHECK(header->cluster_id == last_field(wire.data, wire.len, 1, 0).number, "cluster");
    FUZZ_CHECK(header->revision == (gint64)last_field(wire.data, wire.len, 3, 0).number,
               "revision");
}

static void check_range(const LhRangeReply *reply, const guint8 *data, gsize len)
{
    FUZZ_CHECK(reply->n_kvs == count_fields(data, len, 2, 2), "%" G_GSIZE_FORMAT " kvs",
               reply->n_kvs);
    for (gsize i = 0; i < reply->n_kvs; i++) {
        Field wire = nth_field(data, len, 2, (guint)i);
        check_kv(&reply->kvs[i], &wire);
    }
    FUZZ_CHECK(reply->count == (gint64)last_field(data, len, 4, 0).number, "count");
    check_bool(reply->more, data, len, 3);
    check_header(&reply->header, data, len);
}

static void check_txn(const LhTxnReply *reply, const guint8 *data, gsize len)
{
    FUZZ_CHECK(reply->n_ops == count_fields(data, len, 3, 2), "ops");
    check_bool(reply->succeeded, data, len, 2);
    check_header(&reply->header, data, len);
    for (gsize i = 0; i < reply->n_ops; i++) {
        const LhTxnOpReply *op = &reply->ops[i];
        Field wire = nth_field(data, len, 3, (guint)i);
        guint answers = 0;
        for (guint32 n = 1; n <= 4; n++)
            answers += count_fields(wire.data, wire.len, n, 2);
        if (answers != 1)
            continue; /* the last one counts, merged with earlier ones of its type */
        Field range = last_field(wire.data, wire.len, 1, 2);
        Field delete = last_field(wire.data, wire.len, 3, 2);
        FUZZ_CHECK((op->type == LH_TXN_RANGE) == (range.type == 2), "type");
        FUZZ_CHECK((op->type == LH_TXN_DELETE) == (delete.type == 2), "type");
        if (op->type == LH_TXN_RANGE)
            check_range(&op->range, range.data, range.len);
        if (op->type == LH_TXN_DELETE)
            FUZZ_CHECK(op->deleted == (gint64)last_field(delete.data, delete.len, 2, 0).number,
                       "deleted");
    }
}

static void check_watch(const LhWatchReply *reply, const guint8 *data, gsize len)
{
    FUZZ_CHECK(reply->n_events == count_fields(data, len, 11, 2), "events");
    FUZZ_CHECK(!reply->progress || (reply->n_events == 0 && !reply->created && !reply->canceled),
               "progress");
    check_bool(reply->created, data, len, 3);
    check_bool(reply->canceled, data, len, 4);
    check_bool(reply->fragment, data, len, 7);
    FUZZ_CHECK(reply->compact_revision == (gint64)last_field(data, len, 5, 0).number, "compact");
    check_header(&reply->header, data, len);
    for (gsize i = 0; i < reply->n_events; i++) {
        const LhEtcdEvent *event = &reply->events[i];
        Field wire = nth_field(data, len, 11, (guint)i);
        Field kv = last_field(wire.data, wire.len, 2, 2);
        FUZZ_CHECK(!event->is_delete ==
                       ((guint32)last_field(wire.data, wire.len, 1, 0).number != 1),
                   "delete");
        if (count_fields(wire.data, wire.len, 2, 2) == 1)
            check_kv(&event->kv, &kv);
    }
}

static void check_lease(const LhLeaseReply *reply, const guint8 *data, gsize len)
{
    FUZZ_CHECK(reply->lease == (gint64)last_field(data, len, 2, 0).number && reply->lease != 0,
               "id");
    FUZZ_CHECK(reply->ttl_s == (gint64)last_field(data, len, 3, 0).number && reply->ttl_s >= 0,
               "ttl");
}

static void check_status(const LhStatusReply *reply, const guint8 *data, gsize len)
{
    FUZZ_CHECK(memchr(reply->version, '\0', sizeof reply->version) != NULL, "version");
    FUZZ_CHECK(!reply->alarm_nospace && !reply->alarm_corrupt, "alarms");
    FUZZ_CHECK(reply->db_size_bytes == (gint64)last_field(data, len, 3, 0).number, "size");
    (void)lh_etcd_progress_trusted(reply->version);
}

/* Only NOSPACE (1) and CORRUPT (2) are alarms that we know. */
static void check_alarms(const LhStatusReply *reply, const guint8 *data, gsize len)
{
    const guint8 *at = data;
    gboolean nospace = FALSE, corrupt = FALSE;

    for (Field f; next_field(&at, past(data, len), &f);)
        if (f.field == 2 && f.type == 2) {
            guint32 alarm = (guint32)last_field(f.data, f.len, 2, 0).number;
            nospace |= alarm == 1;
            corrupt |= alarm == 2;
        }
    FUZZ_CHECK(!nospace == !reply->alarm_nospace && !corrupt == !reply->alarm_corrupt, "alarms");
}

typedef gpointer (*Decoder)(LhArena *arena, const guint8 *data, gsize len);

static const struct {
    Decoder decode;
    void (*check)(gconstpointer reply, const guint8 *data, gsize len);
} methods[] = {
    {lh_codec_range_reply, (void (*)(gconstpointer, const guint8 *, gsize))check_range},
    {lh_codec_txn_reply, (void (*)(gconstpointer, const guint8 *, gsize))check_txn},
    {lh_codec_watch_reply, (void (*)(gconstpointer, const guint8 *, gsize))check_watch},
    {lh_codec_grant_reply, (void (*)(gconstpointer, const guint8 *, gsize))check_lease},
    {lh_codec_keepalive_reply, (void (*)(gconstpointer, const guint8 *, gsize))check_lease},
    {lh_codec_revoke_reply, (void (*)(gconstpointer, const guint8 *, gsize))check_header},
    {lh_codec_status_reply, (void (*)(gconstpointer, const guint8 *, gsize))check_status},
    {lh_codec_alarms_reply, (void (*)(gconstpointer, const guint8 *, gsize))check_alarms},
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    FuzzBytes bytes = {data, size};
    guint method = fuzz_below(&bytes, G_N_ELEMENTS(methods));
    LhArena arena = {0}, second = {0};
    gpointer reply, again;
    guint8 *copy = g_memdup2(bytes.data, bytes.size);

    reply = methods[method].decode(&arena, copy, bytes.size);
    g_free(copy); /* what still points into it is found by the sanitizer */
    again = methods[method].decode(&second, bytes.data, bytes.size);
    FUZZ_CHECK((reply == NULL) == (again == NULL), "method %u", method);
    if (reply != NULL) {
        methods[method].check(reply, bytes.data, bytes.size);
        methods[method].check(again, bytes.data, bytes.size);
    }
    lh_arena_clear(&arena);
    lh_arena_clear(&second);
    return 0;
}
