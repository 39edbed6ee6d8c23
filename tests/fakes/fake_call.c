/*
 * A unary call's life: on its way to the server, applied there, and back, with delays of its own.
 *
 *   caller ──delay──▶ fake_call_arrived ──▶ apply ──delay──▶ on_deliver ──▶ callback
 *             cut: held_requests   frozen, no leader: server->held   cut: held_replies
 *
 * A call is answered once: what arrives after its deadline, its cancellation or its failure is
 * dropped.
 */
#include "fake_internal.h"

#include <string.h>

#define MAX_TTL_S G_GINT64_CONSTANT(9000000000)

/* ---- requests ---- */

static char *keep_bytes(FakeRequest *request, const char *bytes, gsize len)
{
    if (bytes == NULL) {
        return NULL;
    }
    char *copy = g_malloc(len + 1);
    if (len > 0) {
        memcpy(copy, bytes, len);
    }
    copy[len] = '\0';
    g_ptr_array_add(request->memory, copy);
    return copy;
}

static char *keep_text(FakeRequest *request, const char *text)
{
    return text != NULL ? keep_bytes(request, text, strlen(text)) : NULL;
}

static const LhTxnOp *keep_ops(FakeRequest *request, const LhTxnOp *ops, gsize n)
{
    LhTxnOp *copy = g_new0(LhTxnOp, n + 1);
    g_ptr_array_add(request->memory, copy);
    for (gsize i = 0; i < n; i++) {
        copy[i] = ops[i];
        copy[i].key = keep_text(request, ops[i].key);
        copy[i].range_end = keep_text(request, ops[i].range_end);
        copy[i].value = keep_bytes(request, ops[i].value, ops[i].value_len);
    }
    return copy;
}

void fake_call_set_txn(FakeCall *call, const LhTxnRequest *txn)
{
    FakeRequest *request = &call->request;
    LhCompare *compares = g_new0(LhCompare, txn->n_compares + 1);
    g_ptr_array_add(request->memory, compares);
    for (gsize i = 0; i < txn->n_compares; i++) {
        compares[i] = txn->compares[i];
        compares[i].key = keep_text(request, compares[i].key);
        compares[i].range_end = keep_text(request, compares[i].range_end);
        compares[i].value = keep_bytes(request, compares[i].value, compares[i].value_len);
    }
    request->txn = *txn;
    request->txn.compares = compares;
    request->txn.success = keep_ops(request, txn->success, txn->n_success);
    request->txn.failure = keep_ops(request, txn->failure, txn->n_failure);
}

FakeCall *fake_call_new(FakeClient *client, FakeCallKind kind, gpointer data)
{
    FakeCall *call = g_new0(FakeCall, 1);
    call->refs = 1;
    call->server = client->server;
    call->client = client;
    call->client_name = g_ref_string_acquire(client->name);
    call->id = client->next_id++;
    call->sent_ms = lh_mono_ms(client->server->env);
    call->request.kind = kind;
    call->request.memory = g_ptr_array_new_with_free_func(g_free);
    call->data = data;
    g_hash_table_insert(client->calls, &call->id, call);
    return call;
}

void fake_call_set_range(FakeCall *call, const LhRangeRequest *range)
{
    FakeRequest *request = &call->request;
    request->range = *range;
    request->range.key = keep_text(request, range->key);
    request->range.range_end = keep_text(request, range->range_end);
}

/* ---- a call's life ---- */

void fake_call_unref(FakeCall *call)
{
    if (--call->refs == 0) {
        fake_reply_free(call->reply);
        g_ptr_array_free(call->request.memory, TRUE);
        g_ref_string_release(call->client_name);
        g_free(call);
    }
}

static void off_the_way(FakeCall *call)
{
    call->arrive_timer = NULL;
    g_queue_unlink(&call->server->on_the_way, &call->on_the_way);
    fake_call_unref(call);
}

void fake_call_forget(FakeCall *call)
{
    if (call->arrive_timer != NULL) {
        lh_timer_clear(call->server->env, &call->arrive_timer);
        off_the_way(call);
    }
}

static void on_arrive(gpointer data)
{
    FakeCall *call = data;
    call->refs++;
    off_the_way(call);
    fake_call_arrived(call);
    fake_call_unref(call);
}

void fake_call_send(FakeCall *call, gint64 delay_ms)
{
    call->refs++;
    call->on_the_way.data = call;
    g_queue_push_tail_link(&call->server->on_the_way, &call->on_the_way);
    call->arrive_timer = lh_timer_in(call->server->env, delay_ms, on_arrive, call);
}

void fake_call_abandon(FakeCall *call)
{
    FakeClient *client = call->client;
    if (client != NULL) {
        if ((client->cut & FAKE_CUT_REQUESTS) != 0 && call->fault != FAKE_FAULT_LATE_COMMIT) {
            fake_call_forget(call); /* it would run into the cut */
        }
        lh_timer_clear(client->env, &call->deadline_timer);
        lh_timer_clear(client->env, &call->deliver_timer);
        if (g_ptr_array_remove(client->held_replies, call)) {
            fake_call_unref(call);
        }
        g_hash_table_remove(client->calls, &call->id);
        call->client = NULL;
        fake_call_unref(call);
    }
}

static void tell_unknown(const FakeCall *call, const GError *error)
{
    const FakeEtcd *server = call->server;
    if (server->on_unknown != NULL && g_error_matches(error, LH_ERROR, LH_ERR_UNKNOWN_OUTCOME))
        server->on_unknown(call->client_name, &call->request.txn, server->on_unknown_data);
}

/* Takes @reply; calls back. The call's own reference is given up. */
static void answer(FakeCall *call, const FakeReply *reply)
{
    const GError *error = reply->error;
    call->told = TRUE;
    call->refs++;
    fake_call_abandon(call);
    switch (call->request.kind) {
    case FAKE_CALL_RANGE:
        call->func.range(error == NULL ? &reply->range : NULL, error, call->data);
        break;
    case FAKE_CALL_TXN:
        tell_unknown(call, error);
        call->func.txn(error == NULL ? &reply->txn : NULL, error, call->data);
        break;
    case FAKE_CALL_GRANT:
    case FAKE_CALL_KEEPALIVE:
    case FAKE_CALL_REVOKE:
        call->func.lease(reply->lease, reply->ttl_s, error, call->data);
        break;
    case FAKE_CALL_STATUS:
        call->func.status(error == NULL ? &reply->status : NULL, error, call->data);
        break;
    }
    fake_call_unref(call);
}

static FakeReply *lost_reply(const FakeCall *call, const char *why)
{
    gboolean write = fake_request_writes(&call->request);
    FakeReply *reply = fake_reply_new();
    fake_reply_fail(reply, write ? LH_ERR_UNKNOWN_OUTCOME : LH_ERR_UNAVAILABLE, why);
    return reply;
}

static void pass_deadline(FakeCall *call)
{
    FakeReply *reply = lost_reply(call, "deadline exceeded");
    answer(call, reply);
    fake_reply_free(reply);
}

static void on_deadline(gpointer data)
{
    FakeCall *call = data;
    call->deadline_timer = NULL;
    pass_deadline(call);
}

static void on_deliver(gpointer data)
{
    FakeCall *call = data;
    FakeClient *client = call->client;
    call->deliver_timer = NULL;
    if (!call->told && (client->cut & FAKE_CUT_REPLIES) != 0) {
        call->refs++;
        g_ptr_array_add(client->held_replies, call);
        return;
    }
    /* After a pause the machine finds a reply and a deadline that passed: either may come first. */
    gboolean overdue = lh_mono_ms(client->env) > call->deadline_at_ms;
    if (!call->told && overdue && fake_chance(call->server, 5000)) {
        pass_deadline(call);
        return;
    }
    FakeReply *reply = g_steal_pointer(&call->reply);
    answer(call, reply);
    fake_reply_free(reply);
}

/* The caller hears @reply (taken) after @delay_ms, and nothing else. */
static void tell_in(FakeCall *call, FakeReply *reply, gint64 delay_ms)
{
    lh_timer_clear(call->client->env, &call->deliver_timer);
    fake_reply_free(call->reply);
    call->reply = reply;
    call->deliver_timer = lh_timer_in(call->client->env, delay_ms, on_deliver, call);
}

void fake_call_set_deadline(FakeCall *call, gint64 deadline_ms)
{
    call->deadline_at_ms = lh_mono_ms(call->client->env) + deadline_ms;
    call->deadline_timer = lh_timer_in(call->client->env, deadline_ms, on_deadline, call);
}

void fake_call_refuse(FakeCall *call, LhErrorCode code, const char *why)
{
    FakeReply *reply = fake_reply_new();
    fake_reply_fail(reply, code, why);
    call->told = TRUE;
    tell_in(call, reply, fake_delay(call->server));
}

void fake_call_lose(FakeCall *call, gint64 delay_ms)
{
    if (!call->told) {
        call->told = TRUE;
        tell_in(call, lost_reply(call, "connection lost"), delay_ms);
    }
}

void fake_call_deliver_again(FakeCall *call)
{
    if (call->client != NULL && call->deliver_timer == NULL) {
        call->deliver_timer = lh_timer_in(call->client->env, 0, on_deliver, call);
    }
}

/* ---- at the server ---- */

static void do_range(FakeEtcd *server, const LhRangeRequest *range, FakeReply *reply)
{
    server->stats.ranges++;
    if (range->key == NULL || range->key[0] == '\0') {
        fake_reply_fail(reply, LH_ERR_INVALID, "etcdserver: key is not provided");
    } else if (range->revision > server->revision) {
        fake_reply_fail(reply, LH_ERR_INVALID,
                        "etcdserver: mvcc: required revision is a future revision");
    } else if (range->revision > 0 && range->revision < server->compacted) {
        fake_reply_fail(reply, LH_ERR_COMPACTED,
                        "etcdserver: mvcc: required revision has been compacted");
    } else {
        fake_do_range(server, range, &reply->range, reply);
    }
}

static void do_grant(FakeEtcd *server, gint64 ttl_s, FakeReply *reply)
{
    server->stats.grants++;
    if (ttl_s > MAX_TTL_S) {
        fake_reply_fail(reply, LH_ERR_INVALID, "etcdserver: too large lease TTL");
        return;
    }
    if (!server->nospace || server->nospace_commits > 0) {
        const FakeLease *lease = fake_lease_grant(server, 0, ttl_s);
        reply->lease = lease->id;
        reply->ttl_s = lease->ttl_s;
    }
    if (server->nospace) {
        server->nospace_commits -= server->nospace_commits > 0 ? 1 : 0;
        fake_reply_fail(reply, LH_ERR_NO_SPACE, "etcdserver: mvcc: database space exceeded");
    }
}

static void do_status(FakeEtcd *server, LhStatusReply *status)
{
    status->header = fake_header(server);
    g_strlcpy(status->version, server->version, sizeof(status->version));
    status->db_size_bytes = 20480 + server->db_bytes;
    status->leader = server->leaderless ? 0 : server->member_id;
    status->alarm_nospace = server->nospace;
}

static void apply(FakeCall *call, FakeReply *reply)
{
    FakeEtcd *server = call->server;
    const FakeRequest *request = &call->request;
    gboolean late = call->told || call->client == NULL;
    switch (request->kind) {
    case FAKE_CALL_RANGE:
        do_range(server, &request->range, reply);
        break;
    case FAKE_CALL_TXN:
        fake_do_txn(server, call, late, reply);
        break;
    case FAKE_CALL_GRANT:
        do_grant(server, request->ttl_s, reply);
        break;
    case FAKE_CALL_KEEPALIVE:
        server->stats.keepalives++;
        reply->lease = request->lease;
        reply->ttl_s = fake_lease_keepalive(server, request->lease);
        break;
    case FAKE_CALL_REVOKE:
        server->stats.revokes++;
        reply->lease = request->lease;
        if (!fake_lease_revoke(server, request->lease, FAKE_BY_REVOKE, call->client_name)) {
            fake_reply_fail(reply, LH_ERR_LEASE_LOST, "etcdserver: requested lease not found");
        }
        break;
    case FAKE_CALL_STATUS:
        do_status(server, &reply->status);
        break;
    }
    if (reply->error != NULL) {
        reply->lease = reply->ttl_s = 0;
    }
}

static gboolean needs_leader(const FakeRequest *request)
{
    return request->kind != FAKE_CALL_STATUS &&
           !(request->kind == FAKE_CALL_RANGE && request->range.serializable);
}

/* etcd answers the keepalive of a lease that has run out when it has been revoked. */
static gboolean waits_for_expiry(FakeCall *call)
{
    FakeEtcd *server = call->server;
    const FakeLease *lease = call->request.kind == FAKE_CALL_KEEPALIVE
                                 ? fake_lease_get(server, call->request.lease)
                                 : NULL;
    return lease != NULL && fake_lease_is_overdue(server, lease);
}

void fake_call_arrived(FakeCall *call)
{
    FakeEtcd *server = call->server;
    FakeClient *client = call->client;
    if (client != NULL && (client->cut & FAKE_CUT_REQUESTS) != 0 &&
        call->fault != FAKE_FAULT_LATE_COMMIT) {
        if (!client->dead) {
            call->refs++;
            g_ptr_array_add(client->held_requests, call);
        }
        return;
    }
    if (server->stopped) {
        return;
    }
    if (server->frozen || (server->leaderless && needs_leader(&call->request))) {
        call->refs++;
        call->held.data = call;
        g_queue_push_tail_link(&server->held, &call->held);
        return;
    }
    if (waits_for_expiry(call)) {
        fake_call_send(call, fake_lease_next_tick(server) + 1 - lh_mono_ms(server->env));
        return;
    }
    FakeReply *reply = fake_reply_new();
    apply(call, reply);
    if (call->told || call->client == NULL) {
        server->stats.late_commits += fake_request_writes(&call->request) ? 1 : 0;
        fake_reply_free(reply);
    } else if (call->fault == FAKE_FAULT_REPLY_LOST) {
        server->stats.replies_lost++;
        fake_reply_free(reply);
        if (fake_chance(server, 5000)) {
            fake_call_lose(call, fake_delay(server)); /* else it hears of it at its deadline */
        }
    } else {
        tell_in(call, reply, fake_call_delay(call->client));
    }
}
