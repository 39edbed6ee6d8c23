/*
 * The fake server as a whole: its life, what an operator does to it, faults of the server itself,
 * and the history that invariants are checked against.
 *
 * What arrives while the server is frozen or has no leader waits in `held` and is done afterwards
 * in the order of arrival, if its caller has given up by then or not.
 */
#include "fake_internal.h"

#include <string.h>

#define NO_LEADER_MS 4000 /* until `hasleader` closes the streams */

guint64 fake_below(FakeEtcd *server, guint64 n)
{
    return lh_random_below(server->env, n);
}

gboolean fake_chance(FakeEtcd *server, guint of_10000)
{
    return of_10000 > 0 && fake_below(server, 10000) < of_10000;
}

gint64 fake_delay(FakeEtcd *server)
{
    const FakeEtcdOptions *options = &server->options;
    gint64 span = options->delay_max_ms - options->delay_min_ms + 1;
    return options->delay_min_ms + (gint64)fake_below(server, (guint64)MAX(span, 1));
}

static gint64 longer(const FakeClient *client, gint64 by_ms)
{
    FakeEtcd *server = client->server;
    gint64 delay = fake_delay(server);
    return by_ms == 0 ? delay : delay + (gint64)fake_below(server, (guint64)by_ms);
}

gint64 fake_call_delay(const FakeClient *client)
{
    return longer(client, client->slow_calls_ms);
}

gint64 fake_stream_delay(const FakeClient *client)
{
    return longer(client, client->slow_streams_ms);
}

FakeEtcd *fake_etcd_new(LhEnv *env, const FakeEtcdOptions *options)
{
    FakeEtcd *server = g_new0(FakeEtcd, 1);
    FakeEtcdOptions *o = &server->options;
    if (options != NULL) {
        *o = *options;
    }
    server->env = env;
    o->delay_max_ms = o->delay_max_ms > 0 ? o->delay_max_ms : MAX(o->delay_min_ms, 2);
    o->late_max_ms = o->late_max_ms > 0 ? o->late_max_ms : 20000;
    o->lease_floor_s = o->lease_floor_s > 0 ? o->lease_floor_s : 2;
    o->election_ms = o->election_ms > 0 ? o->election_ms : 1000;
    server->version = g_strdup(o->version != NULL ? o->version : "3.5.99");
    server->cluster_id = o->cluster_id != 0 ? o->cluster_id : (lh_random(env) | 1);
    server->member_id = lh_random(env) | 1;
    server->raft_term = 2;
    server->clients = g_ptr_array_new();
    g_queue_init(&server->on_the_way);
    g_queue_init(&server->held);
    fake_store_init(server);
    fake_leases_init(server);
    fake_watches_init(server);
    return server;
}

/* Whatever has not been applied yet never will be. */
static void drop_requests(FakeEtcd *server)
{
    while (server->on_the_way.head != NULL) {
        fake_call_forget(server->on_the_way.head->data);
    }
    while (server->held.head != NULL) {
        FakeCall *call = server->held.head->data;
        g_queue_unlink(&server->held, &call->held);
        fake_call_unref(call);
    }
}

void fake_etcd_free(FakeEtcd *server)
{
    if (server == NULL) {
        return;
    }
    g_assert(server->clients->len == 0);
    drop_requests(server);
    lh_timer_clear(server->env, &server->leader_timer);
    lh_timer_clear(server->env, &server->no_leader_timer);
    g_ptr_array_free(server->clients, TRUE);
    fake_watches_clear(server);
    fake_leases_clear(server);
    fake_store_clear(server);
    g_free(server->version);
    g_free(server);
}

/* ---- faults of the server ---- */

/* What waited is applied; a call whose caller gave up may have been withdrawn in time. */
static void release_held(FakeEtcd *server)
{
    GQueue held = server->held;
    g_queue_init(&server->held);
    while (held.head != NULL) {
        FakeCall *call = held.head->data;
        g_queue_unlink(&held, &call->held);
        gboolean given_up = call->told || call->client == NULL;
        if (!given_up || fake_chance(server, 5000)) {
            fake_call_arrived(call);
        }
        fake_call_unref(call);
    }
}

static void update_clients(FakeEtcd *server)
{
    for (guint i = 0; i < server->clients->len; i++) {
        fake_client_update(server->clients->pdata[i]);
    }
}

void fake_etcd_freeze(FakeEtcd *server)
{
    server->frozen = TRUE;
    update_clients(server);
}

void fake_etcd_thaw(FakeEtcd *server)
{
    if (server->frozen) {
        server->frozen = FALSE;
        release_held(server);
        fake_leases_arm(server);
        update_clients(server);
    }
}

static void end_election(FakeEtcd *server)
{
    lh_timer_clear(server->env, &server->leader_timer);
    lh_timer_clear(server->env, &server->no_leader_timer);
    server->leaderless = FALSE;
}

void fake_etcd_stop(FakeEtcd *server)
{
    end_election(server);
    server->stopped = TRUE;
    server->frozen = FALSE;
    drop_requests(server);
    lh_timer_clear(server->env, &server->expiry_timer);
    for (guint i = 0; i < server->clients->len; i++) {
        FakeClient *client = server->clients->pdata[i];
        fake_etcd_client_reset(&client->etcd);
    }
    update_clients(server);
}

void fake_etcd_start(FakeEtcd *server)
{
    if (server->stopped) {
        server->stopped = FALSE;
        server->raft_term++;
        fake_leases_extend(server);
        update_clients(server);
    }
}

static void on_leader(gpointer data)
{
    FakeEtcd *server = data;
    server->leader_timer = NULL;
    end_election(server);
    server->raft_term++;
    fake_leases_extend(server);
    if (!server->frozen) {
        release_held(server);
    }
    update_clients(server);
}

static void on_no_leader(gpointer data)
{
    FakeEtcd *server = data;
    server->no_leader_timer = NULL;
    for (guint i = 0; i < server->clients->len; i++) {
        FakeClient *client = server->clients->pdata[i];
        fake_etcd_client_close_streams(&client->etcd);
    }
}

void fake_etcd_elect(FakeEtcd *server, gint64 outage_ms)
{
    if (server->stopped) {
        return;
    }
    end_election(server);
    server->leaderless = TRUE;
    server->leader_timer = lh_timer_in(server->env, outage_ms, on_leader, server);
    if (outage_ms > NO_LEADER_MS) {
        server->no_leader_timer = lh_timer_in(server->env, NO_LEADER_MS, on_no_leader, server);
    }
}

void fake_etcd_set_nospace(FakeEtcd *server, gboolean on, guint commit_anyway)
{
    server->nospace = on;
    server->nospace_commits = on ? commit_anyway : 0;
}

void fake_etcd_set_cluster_id(FakeEtcd *server, guint64 cluster_id)
{
    server->cluster_id = cluster_id;
}

/* ---- an operator ---- */

gint64 fake_etcd_put(FakeEtcd *server, const char *key, const char *value, gint64 lease)
{
    g_assert(lease == 0 || fake_lease_get(server, lease) != NULL);
    fake_store_begin(server, FAKE_BY_OPERATOR, "operator");
    fake_store_put(server, key, value, strlen(value), lease);
    fake_store_end(server);
    return server->revision;
}

gint64 fake_etcd_delete(FakeEtcd *server, const char *key, const char *range_end)
{
    fake_store_begin(server, FAKE_BY_OPERATOR, "operator");
    gint64 deleted = fake_store_delete(server, key, range_end);
    fake_store_end(server);
    return deleted;
}

gboolean fake_etcd_revoke(FakeEtcd *server, gint64 lease)
{
    return fake_lease_revoke(server, lease, FAKE_BY_OPERATOR, "operator");
}

gboolean fake_etcd_lease_exists(FakeEtcd *server, gint64 lease)
{
    return fake_lease_get(server, lease) != NULL;
}

gint64 fake_etcd_revision(const FakeEtcd *server)
{
    return server->revision;
}

gint64 fake_etcd_compacted(const FakeEtcd *server)
{
    return server->compacted;
}

guint fake_etcd_timeline(const FakeEtcd *server)
{
    return server->timeline;
}

guint64 fake_etcd_cluster_id(const FakeEtcd *server)
{
    return server->cluster_id;
}

const LhKv *fake_etcd_get(FakeEtcd *server, const char *key, gint64 revision)
{
    const FakeEvent *event = fake_store_get(server, key, revision);
    return event != NULL ? &event->event.kv : NULL;
}

typedef struct {
    FakeKvFunc func;
    gpointer data;
} Foreach;

static gboolean foreach_visit(FakeEvent *event, gpointer data)
{
    const Foreach *each = data;
    each->func(&event->event.kv, each->data);
    return FALSE;
}

void fake_etcd_foreach(FakeEtcd *server, const char *key, const char *range_end, gint64 revision,
                       FakeKvFunc func, gpointer data)
{
    Foreach each = {func, data};
    fake_store_visit(server, key, range_end, revision, foreach_visit, &each);
}

/* ---- history ---- */

gsize fake_etcd_history_len(const FakeEtcd *server)
{
    return server->history->len;
}

const FakeCommit *fake_etcd_history_at(const FakeEtcd *server, gsize i)
{
    g_assert(i < server->history->len);
    return server->history->pdata[i];
}

const LhEtcdEvent *fake_commit_event(const FakeCommit *commit, gsize i)
{
    const FakeCommitFull *full = (const FakeCommitFull *)commit;
    g_assert(i < full->events->len);
    return &((FakeEvent *)full->events->pdata[i])->event;
}

const LhKv *fake_commit_prev(const FakeCommit *commit, gsize i)
{
    const FakeCommitFull *full = (const FakeCommitFull *)commit;
    g_assert(i < full->prevs->len);
    const FakeEvent *prev = full->prevs->pdata[i];
    return prev != NULL && !prev->event.is_delete ? &prev->event.kv : NULL;
}

void fake_etcd_history_trim(FakeEtcd *server, gsize keep)
{
    if (server->history->len > keep) {
        g_ptr_array_remove_range(server->history, 0, server->history->len - (guint)keep);
    }
}

void fake_etcd_on_commit(FakeEtcd *server, FakeCommitFunc func, gpointer data)
{
    server->on_commit = func;
    server->on_commit_data = data;
}

void fake_etcd_on_write(FakeEtcd *server, FakeWriteFunc func, gpointer data)
{
    server->on_write = func;
    server->on_write_data = data;
}

void fake_etcd_on_unknown(FakeEtcd *server, FakeUnknownFunc func, gpointer data)
{
    server->on_unknown = func;
    server->on_unknown_data = data;
}

const FakeEtcdStats *fake_etcd_stats(const FakeEtcd *server)
{
    return &server->stats;
}
