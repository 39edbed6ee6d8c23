/*
 * What the tests of the fake's faults share: one server, one client, virtual time, and recorders of
 * answers and streams. Included by one test program each.
 */
#pragma once

#include "base/errors.h"
#include "tests/fakes/env_sim.h"
#include "tests/fakes/fake_etcd.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

typedef struct {
    SimWorld *world;
    FakeEtcd *server;
    LhEnv *env;
    LhEtcd *etcd;
} World;

G_GNUC_UNUSED static World world_new(guint64 seed, const FakeEtcdOptions *options)
{
    World w = {.world = sim_world_new(seed)};
    w.server = fake_etcd_new(sim_machine_new(w.world, "etcd"), options);
    w.env = sim_machine_new(w.world, "client");
    w.etcd = fake_etcd_connect(w.server, w.env, "client");
    return w;
}

G_GNUC_UNUSED static void world_free(World *w)
{
    lh_etcd_free(w->etcd);
    fake_etcd_free(w->server);
    sim_world_free(w->world);
}

G_GNUC_UNUSED static void pass(World *w, gint64 ms)
{
    sim_world_run_until(w->world, sim_world_now_ms(w->world) + ms);
}

typedef struct {
    guint times;
    int error;
    gint64 ttl_s, lease;
    gint64 at_ms;
    World *world;
} Heard;

G_GNUC_UNUSED static void hear(Heard *heard, const GError *error)
{
    heard->times++;
    heard->error = error != NULL ? error->code : -1;
    heard->at_ms = sim_world_now_ms(heard->world->world);
}

G_GNUC_UNUSED static void on_txn(const LhTxnReply *reply, const GError *error, gpointer data)
{
    hear(data, error);
    assert_true((reply != NULL) == (error == NULL));
}

G_GNUC_UNUSED static void on_range(const LhRangeReply *reply, const GError *error, gpointer data)
{
    hear(data, error);
    assert_true((reply != NULL) == (error == NULL));
}

G_GNUC_UNUSED static void on_lease(gint64 lease, gint64 ttl_s, const GError *error, gpointer data)
{
    hear(data, error);
    ((Heard *)data)->lease = lease;
    ((Heard *)data)->ttl_s = ttl_s;
}

G_GNUC_UNUSED static void start_put(World *w, Heard *heard, const char *key)
{
    const LhTxnOp op = lh_txn_put(key, "v", 0);
    const LhCompare compare = lh_compare_mod("/none", 0);
    const LhTxnRequest request = {
        .compares = &compare, .n_compares = 1, .success = &op, .n_success = 1};
    *heard = (Heard){.world = w};
    lh_etcd_txn(w->etcd, &request, on_txn, heard);
}

G_GNUC_UNUSED static void start_get(World *w, Heard *heard)
{
    const LhRangeRequest request = {.key = "/a"};
    *heard = (Heard){.world = w};
    lh_etcd_range(w->etcd, &request, on_range, heard);
}

G_GNUC_UNUSED static const FakeCommit *last_commit(World *w)
{
    gsize n = fake_etcd_history_len(w->server);
    assert_true(n > 0);
    return fake_etcd_history_at(w->server, n - 1);
}

typedef struct {
    World *world;
    LhEtcdStream *stream;
    guint created, events, closed, progress;
    int error;
    gint64 closed_at_ms;
} Stream;

G_GNUC_UNUSED static void on_reply(const LhWatchReply *reply, gpointer data)
{
    Stream *stream = data;
    stream->created += reply->created;
    stream->progress += reply->progress;
    stream->events += (guint)reply->n_events;
}

G_GNUC_UNUSED static void on_closed(const GError *error, gpointer data)
{
    Stream *stream = data;
    stream->closed++;
    stream->error = error->code;
    stream->closed_at_ms = sim_world_now_ms(stream->world->world);
}

G_GNUC_UNUSED static void start_watch(World *w, Stream *stream)
{
    const LhWatchRequest request = {.key = "/", .range_end = "0"};
    *stream = (Stream){.world = w};
    stream->stream = w->etcd->v->watch(w->etcd, &request, on_reply, on_closed, stream);
}
