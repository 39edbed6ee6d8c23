/*
 * Structs of etcd.h to and from protobuf-c messages.
 *
 * Decoding copies each key and value once: protobuf-c allocates from the reply's arena, whose blocks
 * end in a zero byte, so its bytes fields are the NUL-terminated strings of LhKv as they are. Encoding
 * points into the caller's request and packs into the buffer that is sent.
 */
#include "etcd/codec.h"

#include "etcd/etcd.pb-c.h"

#include <string.h>

typedef ProtobufCMessage Message;

static LhBytes pack(const Message *message)
{
    gsize len = protobuf_c_message_get_packed_size(message);
    guint8 *data = g_malloc(MAX(len, 1));
    protobuf_c_message_pack(message, data);
    return (LhBytes){.data = data, .len = len};
}

/* Packing does not write to the text. */
static ProtobufCBinaryData bytes_n(const char *text, gsize len)
{
    return (ProtobufCBinaryData){.data = (uint8_t *)(guintptr)text, .len = len};
}

static ProtobufCBinaryData bytes(const char *text)
{
    return bytes_n(text, text != NULL ? strlen(text) : 0);
}

LhBytes lh_codec_range(const LhRangeRequest *request)
{
    Etcdserverpb__RangeRequest m = ETCDSERVERPB__RANGE_REQUEST__INIT;
    m.key = bytes(request->key);
    m.range_end = bytes(request->range_end);
    m.revision = request->revision;
    m.limit = request->limit;
    m.serializable = request->serializable;
    m.keys_only = request->keys_only;
    m.count_only = request->count_only;
    return pack(&m.base);
}

static void fill_compare(Etcdserverpb__Compare *m, const LhCompare *compare)
{
    etcdserverpb__compare__init(m);
    m->key = bytes(compare->key);
    m->range_end = bytes(compare->range_end);
    /* The enums of etcd.h have etcd's numbers; test_codec.c holds them to it. */
    m->result = (Etcdserverpb__Compare__CompareResult)compare->result;
    m->target = (Etcdserverpb__Compare__CompareTarget)compare->target;
    switch (compare->target) {
    case LH_CMP_VERSION:
        m->target_union_case = ETCDSERVERPB__COMPARE__TARGET_UNION_VERSION;
        m->version = compare->number;
        break;
    case LH_CMP_CREATE:
        m->target_union_case = ETCDSERVERPB__COMPARE__TARGET_UNION_CREATE_REVISION;
        m->create_revision = compare->number;
        break;
    case LH_CMP_MOD:
        m->target_union_case = ETCDSERVERPB__COMPARE__TARGET_UNION_MOD_REVISION;
        m->mod_revision = compare->number;
        break;
    case LH_CMP_VALUE:
        m->target_union_case = ETCDSERVERPB__COMPARE__TARGET_UNION_VALUE;
        m->value = bytes_n(compare->value, compare->value_len);
        break;
    case LH_CMP_LEASE:
        m->target_union_case = ETCDSERVERPB__COMPARE__TARGET_UNION_LEASE;
        m->lease = compare->number;
        break;
    }
}

static Etcdserverpb__Compare **make_compares(LhArena *arena, const LhCompare *compares, gsize n)
{
    Etcdserverpb__Compare **list = lh_arena_alloc(arena, n * sizeof *list);
    Etcdserverpb__Compare *m = lh_arena_alloc(arena, n * sizeof *m);
    for (gsize i = 0; i < n; i++) {
        fill_compare(&m[i], &compares[i]);
        list[i] = &m[i];
    }
    return list;
}

static void fill_op(LhArena *arena, Etcdserverpb__RequestOp *m, const LhTxnOp *op)
{
    etcdserverpb__request_op__init(m);
    switch (op->type) {
    case LH_TXN_PUT: {
        Etcdserverpb__PutRequest *put = lh_arena_alloc(arena, sizeof *put);
        etcdserverpb__put_request__init(put);
        put->key = bytes(op->key);
        put->value = bytes_n(op->value, op->value_len);
        put->lease = op->lease;
        m->request_case = ETCDSERVERPB__REQUEST_OP__REQUEST_REQUEST_PUT;
        m->request_put = put;
        break;
    }
    case LH_TXN_DELETE: {
        Etcdserverpb__DeleteRangeRequest *del = lh_arena_alloc(arena, sizeof *del);
        etcdserverpb__delete_range_request__init(del);
        del->key = bytes(op->key);
        del->range_end = bytes(op->range_end);
        m->request_case = ETCDSERVERPB__REQUEST_OP__REQUEST_REQUEST_DELETE_RANGE;
        m->request_delete_range = del;
        break;
    }
    case LH_TXN_RANGE: {
        Etcdserverpb__RangeRequest *range = lh_arena_alloc(arena, sizeof *range);
        etcdserverpb__range_request__init(range);
        range->key = bytes(op->key);
        range->range_end = bytes(op->range_end);
        m->request_case = ETCDSERVERPB__REQUEST_OP__REQUEST_REQUEST_RANGE;
        m->request_range = range;
        break;
    }
    }
}

static Etcdserverpb__RequestOp **make_ops(LhArena *arena, const LhTxnOp *ops, gsize n)
{
    Etcdserverpb__RequestOp **list = lh_arena_alloc(arena, n * sizeof *list);
    Etcdserverpb__RequestOp *m = lh_arena_alloc(arena, n * sizeof *m);
    for (gsize i = 0; i < n; i++) {
        fill_op(arena, &m[i], &ops[i]);
        list[i] = &m[i];
    }
    return list;
}

LhBytes lh_codec_txn(const LhTxnRequest *request)
{
    LhArena arena = {.next_bytes = 8192};
    Etcdserverpb__TxnRequest m = ETCDSERVERPB__TXN_REQUEST__INIT;
    m.n_compare = request->n_compares;
    m.compare = make_compares(&arena, request->compares, request->n_compares);
    m.n_success = request->n_success;
    m.success = make_ops(&arena, request->success, request->n_success);
    m.n_failure = request->n_failure;
    m.failure = make_ops(&arena, request->failure, request->n_failure);
    LhBytes packed = pack(&m.base);
    lh_arena_clear(&arena);
    return packed;
}

LhBytes lh_codec_watch_create(const LhWatchRequest *request)
{
    Etcdserverpb__WatchCreateRequest create = ETCDSERVERPB__WATCH_CREATE_REQUEST__INIT;
    create.key = bytes(request->key);
    create.range_end = bytes(request->range_end);
    create.start_revision = request->start_revision;
    create.progress_notify = TRUE;
    create.fragment = TRUE;
    Etcdserverpb__WatchRequest m = ETCDSERVERPB__WATCH_REQUEST__INIT;
    m.request_union_case = ETCDSERVERPB__WATCH_REQUEST__REQUEST_UNION_CREATE_REQUEST;
    m.create_request = &create;
    return pack(&m.base);
}

LhBytes lh_codec_watch_progress(void)
{
    Etcdserverpb__WatchProgressRequest progress = ETCDSERVERPB__WATCH_PROGRESS_REQUEST__INIT;
    Etcdserverpb__WatchRequest m = ETCDSERVERPB__WATCH_REQUEST__INIT;
    m.request_union_case = ETCDSERVERPB__WATCH_REQUEST__REQUEST_UNION_PROGRESS_REQUEST;
    m.progress_request = &progress;
    return pack(&m.base);
}

LhBytes lh_codec_lease_grant(gint64 ttl_s)
{
    Etcdserverpb__LeaseGrantRequest m = ETCDSERVERPB__LEASE_GRANT_REQUEST__INIT;
    m.ttl = ttl_s;
    return pack(&m.base);
}

LhBytes lh_codec_lease_revoke(gint64 lease)
{
    Etcdserverpb__LeaseRevokeRequest m = ETCDSERVERPB__LEASE_REVOKE_REQUEST__INIT;
    m.id = lease;
    return pack(&m.base);
}

LhBytes lh_codec_lease_keepalive(gint64 lease)
{
    Etcdserverpb__LeaseKeepAliveRequest m = ETCDSERVERPB__LEASE_KEEP_ALIVE_REQUEST__INIT;
    m.id = lease;
    return pack(&m.base);
}

LhBytes lh_codec_status(void)
{
    Etcdserverpb__StatusRequest m = ETCDSERVERPB__STATUS_REQUEST__INIT;
    return pack(&m.base);
}

LhBytes lh_codec_alarms(void)
{
    Etcdserverpb__AlarmRequest m = ETCDSERVERPB__ALARM_REQUEST__INIT;
    return pack(&m.base);
}

static void *arena_alloc(void *arena, size_t size)
{
    return lh_arena_alloc(arena, size);
}

static void arena_free(G_GNUC_UNUSED void *arena, G_GNUC_UNUSED void *block)
{
}

static gpointer unpack(LhArena *arena, const ProtobufCMessageDescriptor *descriptor,
                       const guint8 *data, gsize len)
{
    ProtobufCAllocator allocator = {
        .alloc = arena_alloc, .free = arena_free, .allocator_data = arena};
    if (arena->chunks == NULL)
        arena->next_bytes = len * 2 + 512;
    return protobuf_c_message_unpack(descriptor, &allocator, len, data);
}

static LhEtcdHeader make_header(const Etcdserverpb__ResponseHeader *m)
{
    if (m == NULL)
        return (LhEtcdHeader){0};
    return (LhEtcdHeader){.cluster_id = m->cluster_id,
                          .member_id = m->member_id,
                          .revision = m->revision,
                          .raft_term = m->raft_term};
}

static const char *text(ProtobufCBinaryData data)
{
    return data.len > 0 ? (const char *)data.data : "";
}

static LhKv make_kv(const Etcdserverpb__KeyValue *m)
{
    return (LhKv){.key = text(m->key),
                  .key_len = m->key.len,
                  .value = text(m->value),
                  .value_len = m->value.len,
                  .create_rev = m->create_revision,
                  .mod_rev = m->mod_revision,
                  .version = m->version,
                  .lease = m->lease};
}

static void fill_range_reply(LhArena *arena, LhRangeReply *reply,
                             const Etcdserverpb__RangeResponse *m)
{
    LhKv *kvs = lh_arena_alloc(arena, m->n_kvs * sizeof *kvs);
    for (gsize i = 0; i < m->n_kvs; i++)
        kvs[i] = make_kv(m->kvs[i]);
    *reply = (LhRangeReply){.header = make_header(m->header),
                            .kvs = kvs,
                            .n_kvs = m->n_kvs,
                            .count = m->count,
                            .more = m->more};
}

gpointer lh_codec_range_reply(LhArena *arena, const guint8 *data, gsize len)
{
    Etcdserverpb__RangeResponse *m = unpack(arena, &etcdserverpb__range_response__descriptor, data,
                                            len);
    if (m == NULL || m->header == NULL)
        return NULL;
    LhRangeReply *reply = lh_arena_alloc(arena, sizeof *reply);
    fill_range_reply(arena, reply, m);
    return reply;
}

static gboolean fill_op_reply(LhArena *arena, LhTxnOpReply *op, const Etcdserverpb__ResponseOp *m)
{
    switch (m->response_case) {
    case ETCDSERVERPB__RESPONSE_OP__RESPONSE_RESPONSE_RANGE:
        op->type = LH_TXN_RANGE;
        fill_range_reply(arena, &op->range, m->response_range);
        return TRUE;
    case ETCDSERVERPB__RESPONSE_OP__RESPONSE_RESPONSE_PUT:
        op->type = LH_TXN_PUT;
        return TRUE;
    case ETCDSERVERPB__RESPONSE_OP__RESPONSE_RESPONSE_DELETE_RANGE:
        op->type = LH_TXN_DELETE;
        op->deleted = m->response_delete_range->deleted;
        return TRUE;
    case ETCDSERVERPB__RESPONSE_OP__RESPONSE__NOT_SET:
    case _ETCDSERVERPB__RESPONSE_OP__RESPONSE__CASE_IS_INT_SIZE:
        return FALSE;
    }
    return FALSE;
}

gpointer lh_codec_txn_reply(LhArena *arena, const guint8 *data, gsize len)
{
    Etcdserverpb__TxnResponse *m = unpack(arena, &etcdserverpb__txn_response__descriptor, data,
                                          len);
    if (m == NULL || m->header == NULL)
        return NULL;
    LhTxnOpReply *ops = lh_arena_alloc0(arena, m->n_responses * sizeof *ops);
    for (gsize i = 0; i < m->n_responses; i++) {
        if (!fill_op_reply(arena, &ops[i], m->responses[i]))
            return NULL;
    }
    LhTxnReply *reply = lh_arena_alloc(arena, sizeof *reply);
    *reply = (LhTxnReply){.header = make_header(m->header),
                          .succeeded = m->succeeded,
                          .ops = ops,
                          .n_ops = m->n_responses};
    return reply;
}

gpointer lh_codec_watch_reply(LhArena *arena, const guint8 *data, gsize len)
{
    Etcdserverpb__WatchResponse *m = unpack(arena, &etcdserverpb__watch_response__descriptor, data,
                                            len);
    if (m == NULL || m->header == NULL)
        return NULL;
    LhEtcdEvent *events = lh_arena_alloc(arena, m->n_events * sizeof *events);
    for (gsize i = 0; i < m->n_events; i++) {
        if (m->events[i]->kv == NULL)
            return NULL;
        events[i] = (LhEtcdEvent){.is_delete = m->events[i]->type ==
                                               ETCDSERVERPB__EVENT__EVENT_TYPE__DELETE,
                                  .kv = make_kv(m->events[i]->kv)};
    }
    LhWatchReply *reply = lh_arena_alloc(arena, sizeof *reply);
    *reply = (LhWatchReply){.header = make_header(m->header),
                            .created = m->created,
                            .canceled = m->canceled,
                            .fragment = m->fragment,
                            .compact_revision = m->compact_revision,
                            .reason = m->cancel_reason,
                            .events = events,
                            .n_events = m->n_events};
    reply->progress = m->n_events == 0 && !m->created && !m->canceled && !m->fragment;
    return reply;
}

gpointer lh_codec_grant_reply(LhArena *arena, const guint8 *data, gsize len)
{
    Etcdserverpb__LeaseGrantResponse *m = unpack(
        arena, &etcdserverpb__lease_grant_response__descriptor, data, len);
    if (m == NULL || m->id == 0 || m->ttl <= 0)
        return NULL;
    LhLeaseReply *reply = lh_arena_alloc(arena, sizeof *reply);
    *reply = (LhLeaseReply){.header = make_header(m->header), .lease = m->id, .ttl_s = m->ttl};
    return reply;
}

gpointer lh_codec_keepalive_reply(LhArena *arena, const guint8 *data, gsize len)
{
    Etcdserverpb__LeaseKeepAliveResponse *m = unpack(
        arena, &etcdserverpb__lease_keep_alive_response__descriptor, data, len);
    if (m == NULL || m->id == 0 || m->ttl < 0)
        return NULL;
    LhLeaseReply *reply = lh_arena_alloc(arena, sizeof *reply);
    *reply = (LhLeaseReply){.header = make_header(m->header), .lease = m->id, .ttl_s = m->ttl};
    return reply;
}

gpointer lh_codec_revoke_reply(LhArena *arena, const guint8 *data, gsize len)
{
    Etcdserverpb__LeaseRevokeResponse *m = unpack(
        arena, &etcdserverpb__lease_revoke_response__descriptor, data, len);
    if (m == NULL)
        return NULL;
    LhEtcdHeader *header = lh_arena_alloc(arena, sizeof *header);
    *header = make_header(m->header);
    return header;
}

gpointer lh_codec_status_reply(LhArena *arena, const guint8 *data, gsize len)
{
    Etcdserverpb__StatusResponse *m = unpack(arena, &etcdserverpb__status_response__descriptor,
                                             data, len);
    if (m == NULL || m->header == NULL)
        return NULL;
    LhStatusReply *reply = lh_arena_alloc0(arena, sizeof *reply);
    reply->header = make_header(m->header);
    g_strlcpy(reply->version, m->version, sizeof reply->version);
    reply->db_size_bytes = m->dbsize;
    reply->leader = m->leader;
    return reply;
}

gpointer lh_codec_alarms_reply(LhArena *arena, const guint8 *data, gsize len)
{
    Etcdserverpb__AlarmResponse *m = unpack(arena, &etcdserverpb__alarm_response__descriptor, data,
                                            len);
    if (m == NULL)
        return NULL;
    LhStatusReply *reply = lh_arena_alloc0(arena, sizeof *reply);
    for (gsize i = 0; i < m->n_alarms; i++) {
        reply->alarm_nospace |= m->alarms[i]->alarm == ETCDSERVERPB__ALARM_TYPE__NOSPACE;
        reply->alarm_corrupt |= m->alarms[i]->alarm == ETCDSERVERPB__ALARM_TYPE__CORRUPT;
    }
    return reply;
}
