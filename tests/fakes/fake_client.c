/*
 * The client's vtable, its connection (cut, silent, dead, back again) and the faults of its calls.
 *
 *   up ──cut, or the server frozen──▶ silent ──10 to 15 s──▶ dead: calls are refused
 *   ▲              healed before that: goes on │                │ healed: up to 2 s later
 *   └──────────────────────────────────────────┴────────────────┘
 */
#include "fake_internal.h"

#define SILENCE_MIN_MS   10000 /* HTTP/2 pings every 10 s, with a timeout of 5 s */
#define SILENCE_SPAN_MS  5000
#define RECONNECT_MAX_MS 2000

static FakeClient *client_of(LhEtcd *etcd);

/* ---- starting a call ---- */

static FakeFault choose_fault(FakeClient *client)
{
    const FakeFaultRates *rates = &client->rates;
    const struct {
        guint rate;
        FakeFault fault;
    } table[] = {{rates->refused, FAKE_FAULT_REFUSED},
                 {rates->overloaded, FAKE_FAULT_OVERLOADED},
                 {rates->request_lost, FAKE_FAULT_REQUEST_LOST},
                 {rates->reply_lost, FAKE_FAULT_REPLY_LOST},
                 {rates->late_commit, FAKE_FAULT_LATE_COMMIT}};
    if (client->next_faults > 0) {
        client->next_faults--;
        return client->next_fault;
    }
    guint sum = 0;
    for (gsize i = 0; i < G_N_ELEMENTS(table); i++) {
        sum += table[i].rate;
    }
    if (sum == 0) {
        return FAKE_FAULT_NONE;
    }
    guint draw = (guint)fake_below(client->server, 10000);
    for (gsize i = 0; i < G_N_ELEMENTS(table); i++) {
        if (draw < table[i].rate) {
            return table[i].fault;
        }
        draw -= table[i].rate;
    }
    return FAKE_FAULT_NONE;
}

static gboolean refuses_list(FakeClient *client, const FakeRequest *request)
{
    gboolean refused = request->kind == FAKE_CALL_RANGE && request->range.range_end != NULL &&
                       client->refused_lists > 0;
    client->refused_lists -= refused;
    return refused;
}

/* What became of the call is unknown: it is told at once or finds out at its deadline. */
static gint64 telling_delay(FakeCall *call, gint64 deadline_ms)
{
    return fake_chance(call->server, 5000) ? deadline_ms : fake_delay(call->server);
}

static LhCallId start(FakeCall *call, gint64 deadline_ms)
{
    FakeClient *client = call->client;
    FakeEtcd *server = call->server;
    gint64 deadline = MAX(deadline_ms, 1);
    FakeFault given = server->on_write != NULL && fake_request_puts(&call->request)
                          ? server->on_write(client->name, server->on_write_data)
                          : FAKE_FAULT_NONE;
    if (fake_client_refuses(client)) {
        fake_call_refuse(call, LH_ERR_UNAVAILABLE, "connection refused");
        return call->id;
    }
    fake_call_set_deadline(call, deadline);
    call->fault = given != FAKE_FAULT_NONE               ? given
                  : refuses_list(client, &call->request) ? FAKE_FAULT_REFUSED
                                                         : choose_fault(client);
    switch (call->fault) {
    case FAKE_FAULT_NONE:
    case FAKE_FAULT_REPLY_LOST:
        fake_call_send(call, fake_call_delay(client));
        break;
    case FAKE_FAULT_REFUSED:
        server->stats.refused++;
        fake_call_refuse(call, LH_ERR_UNAVAILABLE, "connection refused");
        break;
    case FAKE_FAULT_OVERLOADED:
        server->stats.overloaded++;
        fake_call_refuse(call, LH_ERR_OVERLOADED, "etcdserver: too many requests");
        break;
    case FAKE_FAULT_REQUEST_LOST:
        server->stats.requests_lost++;
        fake_call_lose(call, telling_delay(call, deadline));
        break;
    case FAKE_FAULT_LATE_COMMIT: {
        gint64 told = telling_delay(call, deadline);
        fake_call_lose(call, told);
        fake_call_send(call,
                       told + 1 + (gint64)fake_below(server, (guint64)server->options.late_max_ms));
        break;
    }
    }
    return call->id;
}

/* ---- the vtable ---- */

static LhCallId fake_range(LhEtcd *etcd, const LhRangeRequest *request, gint64 deadline_ms,
                           LhRangeFunc func, gpointer data)
{
    FakeCall *call = fake_call_new(client_of(etcd), FAKE_CALL_RANGE, data);
    call->func.range = func;
    fake_call_set_range(call, request);
    return start(call, deadline_ms);
}

static LhCallId fake_txn(LhEtcd *etcd, const LhTxnRequest *request, gint64 deadline_ms,
                         LhTxnFunc func, gpointer data)
{
    FakeCall *call = fake_call_new(client_of(etcd), FAKE_CALL_TXN, data);
    g_autoptr(GError) error = NULL;
    call->func.txn = func;
    if (!lh_etcd_txn_check(request, &error)) {
        fake_call_refuse(call, LH_ERR_INVALID, error->message);
        return call->id;
    }
    fake_call_set_txn(call, request);
    return start(call, deadline_ms);
}

static LhCallId lease_call(LhEtcd *etcd, FakeCallKind kind, gint64 lease, gint64 ttl_s,
                           gint64 deadline_ms, LhLeaseFunc func, gpointer data)
{
    FakeCall *call = fake_call_new(client_of(etcd), kind, data);
    call->func.lease = func;
    call->request.lease = lease;
    call->request.ttl_s = ttl_s;
    return start(call, deadline_ms);
}

static LhCallId fake_lease_grant_call(LhEtcd *etcd, gint64 ttl_s, gint64 deadline_ms,
                                      LhLeaseFunc func, gpointer data)
{
    return lease_call(etcd, FAKE_CALL_GRANT, 0, ttl_s, deadline_ms, func, data);
}

static LhCallId fake_lease_keepalive_call(LhEtcd *etcd, gint64 lease, gint64 deadline_ms,
                                          LhLeaseFunc func, gpointer data)
{
    return lease_call(etcd, FAKE_CALL_KEEPALIVE, lease, 0, deadline_ms, func, data);
}

static LhCallId fake_lease_revoke_call(LhEtcd *etcd, gint64 lease, gint64 deadline_ms,
                                       LhLeaseFunc func, gpointer data)
{
    return lease_call(etcd, FAKE_CALL_REVOKE, lease, 0, deadline_ms, func, data);
}

static LhCallId fake_status(LhEtcd *etcd, gint64 deadline_ms, LhStatusFunc func, gpointer data)
{
    FakeCall *call = fake_call_new(client_of(etcd), FAKE_CALL_STATUS, data);
    call->func.status = func;
    return start(call, deadline_ms);
}

/* What has not arrived yet may be withdrawn in time, or not. */
static void maybe_withdraw(FakeCall *call)
{
    if (!call->told && fake_chance(call->server, 5000)) {
        fake_call_forget(call);
    }
}

static void fake_cancel(LhEtcd *etcd, LhCallId id)
{
    FakeCall *call = g_hash_table_lookup(client_of(etcd)->calls, &id);
    if (call != NULL) {
        maybe_withdraw(call);
        fake_call_abandon(call);
    }
}

static LhEtcdStream *fake_watch(LhEtcd *etcd, const LhWatchRequest *request,
                                LhWatchReplyFunc on_reply, LhWatchClosedFunc on_closed,
                                gpointer data)
{
    return fake_stream_new(client_of(etcd), request, on_reply, on_closed, data);
}

static void fake_progress(LhEtcd *etcd, LhEtcdStream *stream)
{
    (void)etcd;
    fake_stream_progress(stream);
}

static void fake_watch_close(LhEtcd *etcd, LhEtcdStream *stream)
{
    (void)etcd;
    fake_stream_close(stream);
}

static void drop_all(GPtrArray *calls)
{
    while (calls->len > 0) {
        fake_call_unref(g_ptr_array_steal_index(calls, 0));
    }
}

/* What was sent stays on its way. */
static void fake_free(LhEtcd *etcd)
{
    FakeClient *client = client_of(etcd);
    g_autoptr(GList) calls = g_hash_table_get_values(client->calls);
    for (GList *l = calls; l != NULL; l = l->next) {
        fake_call_abandon(l->data);
    }
    while (client->streams->len > 0) {
        fake_stream_close(client->streams->pdata[client->streams->len - 1]);
    }
    drop_all(client->held_requests);
    g_ptr_array_remove(client->server->clients, client);
    lh_timer_clear(client->env, &client->dead_timer);
    lh_timer_clear(client->env, &client->reconnect_timer);
    g_ptr_array_free(client->streams, TRUE);
    g_ptr_array_free(client->held_requests, TRUE);
    g_ptr_array_free(client->held_replies, TRUE);
    g_hash_table_destroy(client->calls);
    g_ref_string_release(client->name);
    g_free(client);
}

static const LhEtcdVtable fake_vtable = {
    .range = fake_range,
    .txn = fake_txn,
    .lease_grant = fake_lease_grant_call,
    .lease_keepalive = fake_lease_keepalive_call,
    .lease_revoke = fake_lease_revoke_call,
    .status = fake_status,
    .cancel = fake_cancel,
    .watch = fake_watch,
    .watch_progress = fake_progress,
    .watch_close = fake_watch_close,
    .free = fake_free,
};

static FakeClient *client_of(LhEtcd *etcd)
{
    g_assert(etcd->v == &fake_vtable);
    return (FakeClient *)etcd;
}

LhEtcd *fake_etcd_connect(FakeEtcd *server, LhEnv *env, const char *name)
{
    FakeClient *client = g_new0(FakeClient, 1);
    client->etcd.v = &fake_vtable;
    client->server = server;
    client->env = env;
    client->name = g_ref_string_new(name);
    client->next_id = 1;
    client->calls = g_hash_table_new(g_int64_hash, g_int64_equal);
    client->streams = g_ptr_array_new();
    client->held_requests = g_ptr_array_new();
    client->held_replies = g_ptr_array_new();
    g_ptr_array_add(server->clients, client);
    fake_client_update(client);
    return &client->etcd;
}

/* ---- the connection ---- */

gboolean fake_client_refuses(const FakeClient *client)
{
    return client->dead || client->server->stopped;
}

/* Calls in flight fail, streams close. */
static void break_connection(FakeClient *client)
{
    GHashTableIter iter;
    gpointer call;
    g_hash_table_iter_init(&iter, client->calls);
    while (g_hash_table_iter_next(&iter, NULL, &call)) {
        maybe_withdraw(call);
        fake_call_lose(call, fake_delay(client->server));
    }
    fake_etcd_client_close_streams(&client->etcd);
    drop_all(client->held_requests);
    drop_all(client->held_replies);
}

static void on_dead(gpointer data)
{
    FakeClient *client = data;
    client->dead_timer = NULL;
    client->dead = TRUE;
    break_connection(client);
}

static void on_reconnected(gpointer data)
{
    FakeClient *client = data;
    client->reconnect_timer = NULL;
    client->dead = FALSE;
}

/* What a cut held up: each arrives late or never. */
static void release_requests(FakeClient *client)
{
    g_autoptr(GPtrArray) held = g_steal_pointer(&client->held_requests);
    client->held_requests = g_ptr_array_new();
    for (guint i = 0; i < held->len; i++) {
        FakeCall *call = held->pdata[i];
        if (fake_chance(client->server, 5000)) {
            fake_call_arrived(call);
        }
        fake_call_unref(call);
    }
}

static void release_replies(FakeClient *client)
{
    for (guint i = 0; i < client->held_replies->len; i++) {
        fake_call_deliver_again(client->held_replies->pdata[i]);
    }
    drop_all(client->held_replies);
}

void fake_client_update(FakeClient *client)
{
    FakeEtcd *server = client->server;
    gboolean silent = client->cut != FAKE_CUT_NONE || server->frozen;
    if (server->stopped) {
        client->dead = TRUE;
    }
    if (!silent) {
        lh_timer_clear(client->env, &client->dead_timer);
    } else if (!client->dead && client->dead_timer == NULL) {
        gint64 delay = SILENCE_MIN_MS + (gint64)fake_below(server, SILENCE_SPAN_MS);
        client->dead_timer = lh_timer_in(client->env, delay, on_dead, client);
    }
    if (silent || server->stopped) {
        lh_timer_clear(client->env, &client->reconnect_timer);
    } else if (client->dead && client->reconnect_timer == NULL) {
        gint64 delay = 1 + (gint64)fake_below(server, RECONNECT_MAX_MS);
        client->reconnect_timer = lh_timer_in(client->env, delay, on_reconnected, client);
    }
    if ((client->cut & FAKE_CUT_REQUESTS) == 0) {
        release_requests(client);
    }
    if ((client->cut & FAKE_CUT_REPLIES) == 0) {
        release_replies(client);
    }
    for (guint i = 0; i < client->streams->len; i++) {
        fake_stream_wake(client->streams->pdata[i]);
    }
}

/* ---- what tests do to it ---- */

void fake_etcd_client_fault_next(LhEtcd *etcd, FakeFault fault, guint n)
{
    FakeClient *client = client_of(etcd);
    client->next_fault = fault;
    client->next_faults = n;
}

void fake_etcd_client_refuse_lists(LhEtcd *etcd, guint n)
{
    client_of(etcd)->refused_lists = n;
}

void fake_etcd_client_fault_rates(LhEtcd *etcd, const FakeFaultRates *rates)
{
    client_of(etcd)->rates = rates != NULL ? *rates : (FakeFaultRates){0};
}

void fake_etcd_client_slow(LhEtcd *etcd, gint64 calls_ms, gint64 streams_ms)
{
    FakeClient *client = client_of(etcd);
    client->slow_calls_ms = calls_ms;
    client->slow_streams_ms = streams_ms;
}

void fake_etcd_client_cut(LhEtcd *etcd, FakeCut cut)
{
    FakeClient *client = client_of(etcd);
    client->cut = cut;
    fake_client_update(client);
}

FakeCut fake_etcd_client_cut_state(LhEtcd *etcd)
{
    return client_of(etcd)->cut;
}

void fake_etcd_client_reset(LhEtcd *etcd)
{
    break_connection(client_of(etcd));
}

void fake_etcd_client_close_streams(LhEtcd *etcd)
{
    FakeClient *client = client_of(etcd);
    for (guint i = 0; i < client->streams->len; i++) {
        fake_stream_abort(client->streams->pdata[i], "connection lost");
    }
}
