/* suite: slow */
/*
 * tests/fakes/fake_etcd under random work and random faults: the history obeys etcd's rules, the
 * store is what the history says, mirrors that follow with list.h and watcher.h end up equal to
 * it, and the same seed gives the same history to the last byte. LEASEHOLD_SEED=N runs one seed.
 */
#include "base/errors.h"
#include "base/log.h"
#include "etcd/list.h"
#include "etcd/watcher.h"
#include "tests/fakes/env_sim.h"
#include "tests/fakes/fake_etcd.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define CLIENTS  4
#define KEYS     30
#define CHAOS_MS 120000
#define CALM_MS  60000

typedef struct World World;

/* A process: writes at random, and mirrors the prefix. */
typedef struct {
    World *world;
    guint id;
    LhEnv *env;
    LhEtcd *etcd;
    LhTimer *timer;
    gint64 lease;
    guint told, sent;
    LhList *list;
    LhWatcher *watcher;
    GHashTable *mirror; /* key -> mod_rev (gint64*) */
    gint64 revision;
    guint relists, interruptions;
} Client;

struct World {
    SimWorld *sim;
    FakeEtcd *server;
    LhEnv *server_env;
    LhTimer *chaos;
    FakeEtcdBackup *backup;
    gboolean calm;
    Client clients[CLIENTS];
};

static void relist(Client *client);

static gint64 *box(gint64 number)
{
    gint64 *boxed = g_new(gint64, 1);
    *boxed = number;
    return boxed;
}

/* ---- mirrors ---- */

static void on_restart(gpointer data)
{
    g_hash_table_remove_all(((Client *)data)->mirror);
}

static void on_page(const LhKv *kvs, gsize n, gpointer data)
{
    Client *client = data;
    for (gsize i = 0; i < n; i++) {
        g_hash_table_insert(client->mirror, g_strdup(kvs[i].key), box(kvs[i].mod_rev));
    }
}

static void on_events(const LhEtcdEvent *events, gsize n, gint64 revision, gpointer data)
{
    Client *client = data;
    for (gsize i = 0; i < n; i++) {
        const LhKv *kv = &events[i].kv;
        assert_true(kv->mod_rev > client->revision && kv->mod_rev <= revision);
        if (events[i].is_delete) {
            assert_true(g_hash_table_remove(client->mirror, kv->key));
        } else {
            g_hash_table_insert(client->mirror, g_strdup(kv->key), box(kv->mod_rev));
        }
    }
    assert_true(revision >= client->revision);
    client->revision = revision;
}

static void on_opened(gpointer data)
{
}

static void on_interrupted(const GError *error, gpointer data)
{
    ((Client *)data)->interruptions++;
}

static void on_lost(gint64 compact_revision, gpointer data)
{
    Client *client = data;
    lh_watcher_free(g_steal_pointer(&client->watcher));
    relist(client);
}

static void on_listed(const LhEtcdHeader *header, const GError *error, gpointer data)
{
    static const LhWatcherFuncs funcs = {on_opened, on_events, on_interrupted, on_lost};
    Client *client = data;
    client->list = NULL;
    if (error != NULL) {
        relist(client);
        return;
    }
    const LhWatcherOptions options = {.key = "/",
                                      .range_end = "0",
                                      .start_revision = header->revision + 1,
                                      .cluster_id = header->cluster_id,
                                      .trust_progress = TRUE};
    client->revision = header->revision;
    client->watcher = lh_watcher_start(client->env, client->etcd, &options, &funcs, client);
}

static void relist(Client *client)
{
    static const LhListFuncs funcs = {on_restart, on_page, on_listed};
    client->relists++;
    g_hash_table_remove_all(client->mirror);
    client->list = lh_list_start(client->env, client->etcd, "/", 0, 7, &funcs, client);
}

static void compare_kv(const LhKv *kv, gpointer data)
{
    Client *client = data;
    const gint64 *mirrored = g_hash_table_lookup(client->mirror, kv->key);
    assert_non_null(mirrored);
    assert_int_equal(*mirrored, kv->mod_rev);
    client->told++; /* counts */
}

static void assert_mirror(Client *client)
{
    client->told = 0;
    fake_etcd_foreach(client->world->server, "/", "0", 0, compare_kv, client);
    assert_int_equal(client->told, g_hash_table_size(client->mirror));
    assert_int_equal(client->revision, fake_etcd_revision(client->world->server));
}

/* ---- work ---- */

static void on_txn(const LhTxnReply *reply, const GError *error, gpointer data)
{
    ((Client *)data)->told++;
}

static void on_grant(gint64 lease, gint64 ttl_s, const GError *error, gpointer data)
{
    Client *client = data;
    client->told++;
    client->lease = error == NULL ? lease : client->lease;
}

static void on_keepalive(gint64 lease, gint64 ttl_s, const GError *error, gpointer data)
{
    Client *client = data;
    client->told++;
    if (error == NULL && ttl_s == 0) {
        client->lease = 0;
    }
}

static void send_txn(Client *client)
{
    SimWorld *sim = client->world->sim;
    char keys[3][16];
    LhTxnOp ops[3];
    guint first = (guint)sim_world_below(sim, KEYS);
    guint n = 1 + (guint)sim_world_below(sim, 3);
    for (guint i = 0; i < n; i++) {
        g_snprintf(keys[i], sizeof(keys[i]), "/%02u", (first + i) % KEYS);
        if (sim_world_below(sim, 4) == 0) {
            ops[i] = lh_txn_delete(keys[i]);
        } else {
            gboolean leased = sim_world_below(sim, 4) == 0;
            ops[i] = lh_txn_put(keys[i], keys[i], leased ? client->lease : 0);
        }
    }
    LhCompare compare = lh_compare_mod(keys[0], 0);
    compare.result = sim_world_below(sim, 2) == 0 ? LH_CMP_EQUAL : LH_CMP_GREATER;
    const LhTxnRequest request = {.compares = &compare,
                                  .n_compares = (gsize)sim_world_below(sim, 2),
                                  .success = ops,
                                  .n_success = n,
                                  .failure = ops,
                                  .n_failure = n - 1};
    lh_etcd_txn(client->etcd, &request, on_txn, client);
}

static void on_work(gpointer data)
{
    Client *client = data;
    SimWorld *sim = client->world->sim;
    client->timer = NULL;
    if (client->world->calm) {
        return;
    }
    client->sent++;
    if (client->lease == 0) {
        client->etcd->v->lease_grant(client->etcd, 2, 3000, on_grant, client);
    } else if (sim_world_below(sim, 10) == 0) {
        client->etcd->v->lease_keepalive(client->etcd, client->lease, 3000, on_keepalive, client);
    } else {
        send_txn(client);
    }
    client->timer = lh_timer_in(client->env, 1 + (gint64)sim_world_below(sim, 60), on_work, client);
}

/* ---- processes ---- */

static void start_client(World *world, guint i)
{
    Client *client = &world->clients[i];
    g_autofree char *name = g_strdup_printf("client-%u", i);
    const FakeFaultRates rates = {.refused = 100,
                                  .overloaded = 100,
                                  .request_lost = 100,
                                  .reply_lost = 100,
                                  .late_commit = 100,
                                  .stream_closed = 20};
    *client = (Client){.world = world, .id = i};
    client->env = sim_machine_new(world->sim, name);
    client->etcd = fake_etcd_connect(world->server, client->env, name);
    client->mirror = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, g_free);
    fake_etcd_client_fault_rates(client->etcd, &rates);
    relist(client);
    client->timer = lh_timer_in(client->env, 10, on_work, client);
}

static void stop_client(Client *client)
{
    lh_list_cancel(client->list);
    lh_watcher_free(client->watcher);
    lh_timer_clear(client->env, &client->timer);
    lh_etcd_free(client->etcd);
    g_hash_table_destroy(client->mirror);
}

/* kill -9, and another process in its place. */
static void replace_client(World *world, guint i)
{
    LhEnv *old = world->clients[i].env;
    sim_machine_crash(old);
    stop_client(&world->clients[i]);
    lh_env_free(old);
    start_client(world, i);
}

/* ---- faults ---- */

/* All processes start anew: one whose cursor the restored store overtakes before it reconnects
 * cannot notice, because the cluster id stays the same. */
static void restore(World *world)
{
    fake_etcd_restore(world->server, world->backup);
    fake_etcd_backup_free(g_steal_pointer(&world->backup));
    for (guint i = 0; i < CLIENTS; i++) {
        replace_client(world, i);
    }
}

static void one_fault(World *world)
{
    SimWorld *sim = world->sim;
    Client *client = &world->clients[sim_world_below(sim, CLIENTS)];
    gboolean cut = fake_etcd_client_cut_state(client->etcd) != FAKE_CUT_NONE;
    switch (sim_world_below(sim, 13)) {
    case 0:
    case 1:
        fake_etcd_client_cut(client->etcd,
                             cut ? FAKE_CUT_NONE : (FakeCut)(1 + sim_world_below(sim, 3)));
        break;
    case 2:
        fake_etcd_client_reset(client->etcd);
        break;
    case 3:
        fake_etcd_client_close_streams(client->etcd);
        break;
    case 4:
        fake_etcd_compact(world->server,
                          fake_etcd_revision(world->server) - (gint64)sim_world_below(sim, 40));
        break;
    case 5:
        fake_etcd_freeze(world->server);
        break;
    case 6:
        fake_etcd_thaw(world->server);
        break;
    case 7:
        fake_etcd_elect(world->server, (gint64)sim_world_below(sim, 8000));
        break;
    case 8:
        if (sim_machine_paused(client->env)) {
            sim_machine_resume(client->env);
        } else {
            sim_machine_pause(client->env);
        }
        break;
    case 9:
        fake_etcd_stop(world->server);
        break;
    case 10:
        fake_etcd_start(world->server);
        break;
    case 11:
        if (sim_world_below(sim, 6) == 0) {
            if (world->backup != NULL) {
                restore(world);
            } else {
                world->backup = fake_etcd_backup(world->server);
            }
        }
        break;
    case 12:
        replace_client(world, client->id);
        break;
    }
}

static void on_chaos(gpointer data)
{
    World *world = data;
    if (sim_world_below(world->sim, 2) == 0) { /* else the server would be away most of the time */
        fake_etcd_start(world->server);
        fake_etcd_thaw(world->server);
    }
    one_fault(world);
    world->chaos = lh_timer_in(world->server_env, 1 + (gint64)sim_world_below(world->sim, 2000),
                               on_chaos, world);
}

static void calm_down(World *world)
{
    lh_timer_clear(world->server_env, &world->chaos);
    world->calm = TRUE;
    fake_etcd_start(world->server);
    fake_etcd_thaw(world->server);
    for (guint i = 0; i < CLIENTS; i++) {
        Client *client = &world->clients[i];
        fake_etcd_client_fault_rates(client->etcd, NULL);
        fake_etcd_client_cut(client->etcd, FAKE_CUT_NONE);
        sim_machine_resume(client->env);
    }
}

/* ---- the history, by a second implementation of the rules ---- */

typedef struct {
    gint64 create, mod, version, lease;
} Known;

static guint64 mix(guint64 hash, const void *bytes, gsize len)
{
    for (gsize i = 0; i < len; i++) {
        hash = (hash ^ ((const guint8 *)bytes)[i]) * G_GUINT64_CONSTANT(1099511628211);
    }
    return hash;
}

static void check_event(GHashTable *known, const FakeCommit *commit, gsize i)
{
    const LhEtcdEvent *event = fake_commit_event(commit, i);
    const LhKv *prev = fake_commit_prev(commit, i);
    const LhKv *kv = &event->kv;
    Known *was = g_hash_table_lookup(known, kv->key);
    assert_int_equal(kv->mod_rev, commit->revision);
    assert_true((was != NULL) == (prev != NULL));
    if (was != NULL) {
        assert_int_equal(prev->mod_rev, was->mod);
    }
    if (event->is_delete) {
        assert_non_null(was);
        if (commit->cause == FAKE_BY_EXPIRY || commit->cause == FAKE_BY_REVOKE) {
            assert_int_equal(was->lease, commit->lease);
        }
        g_hash_table_remove(known, kv->key);
        return;
    }
    assert_int_equal(kv->create_rev, was != NULL ? was->create : commit->revision);
    assert_int_equal(kv->version, was != NULL ? was->version + 1 : 1);
    Known *now = g_new0(Known, 1);
    *now = (Known){kv->create_rev, kv->mod_rev, kv->version, kv->lease};
    g_hash_table_insert(known, g_strdup(kv->key), now);
}

static void count_kv(const LhKv *kv, gpointer data)
{
    const Known *known = g_hash_table_lookup(data, kv->key);
    assert_non_null(known);
    assert_int_equal(known->mod, kv->mod_rev);
    assert_int_equal(known->lease, kv->lease);
    g_hash_table_remove(data, kv->key);
}

/* Values are checked on the first timeline: after a restore the history does not tell the state. */
static guint64 check_history(World *world)
{
    g_autoptr(GHashTable) known = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, g_free);
    guint64 hash = G_GUINT64_CONSTANT(14695981039346656037);
    gint64 expected = 2;
    gint64 time_ms = 0;
    gsize n = fake_etcd_history_len(world->server);
    for (gsize c = 0; c < n; c++) {
        const FakeCommit *commit = fake_etcd_history_at(world->server, c);
        assert_true(commit->time_ms >= time_ms);
        time_ms = commit->time_ms;
        hash = mix(hash, &commit->time_ms, sizeof(commit->time_ms));
        hash = mix(hash, &commit->revision, sizeof(commit->revision));
        for (gsize i = 0; i < commit->n_events; i++) {
            const LhKv *kv = &fake_commit_event(commit, i)->kv;
            hash = mix(hash, kv->key, kv->key_len);
            hash = mix(hash, &kv->lease, sizeof(kv->lease));
            if (commit->timeline == 0) {
                check_event(known, commit, i);
            }
        }
        if (commit->timeline == 0) {
            assert_int_equal(commit->revision, expected);
            expected++;
        }
    }
    if (fake_etcd_timeline(world->server) == 0) {
        fake_etcd_foreach(world->server, "/", "0", 0, count_kv, known);
        assert_int_equal(g_hash_table_size(known), 0);
    }
    return hash;
}

/* ---- a run ---- */

static guint64 run(guint64 seed, FakeEtcdStats *stats)
{
    World world = {.sim = sim_world_new(seed)};
    const FakeEtcdOptions options = {.fragment_events = 2,
                                     .lag_permille = 50,
                                     .auto_compact_revisions = seed % 2 == 0 ? 200 : 0};
    world.server_env = sim_machine_new(world.sim, "etcd");
    world.server = fake_etcd_new(world.server_env, &options);
    for (guint i = 0; i < CLIENTS; i++) {
        start_client(&world, i);
    }
    world.chaos = lh_timer_in(world.server_env, 1000, on_chaos, &world);
    sim_world_run_until(world.sim, CHAOS_MS);
    calm_down(&world);
    sim_world_run_until(world.sim, CHAOS_MS + CALM_MS);
    guint64 hash = check_history(&world);
    for (guint i = 0; i < CLIENTS; i++) {
        assert_mirror(&world.clients[i]);
    }
    *stats = *fake_etcd_stats(world.server);
    for (guint i = 0; i < CLIENTS; i++) {
        stop_client(&world.clients[i]);
    }
    fake_etcd_backup_free(world.backup);
    fake_etcd_free(world.server);
    sim_world_free(world.sim);
    return hash;
}

static void soak_keeps_the_rules(void **state)
{
    const char *one = g_getenv("LEASEHOLD_SEED");
    guint64 first = one != NULL ? g_ascii_strtoull(one, NULL, 10) : 1;
    guint64 last = one != NULL ? first : 20;
    guint64 txns = 0;
    guint64 fragments = 0;
    guint64 late = 0;
    for (guint64 seed = first; seed <= last; seed++) {
        FakeEtcdStats stats;
        print_message("# seed %" G_GUINT64_FORMAT ": LEASEHOLD_SEED=%" G_GUINT64_FORMAT
                      " replays it\n",
                      seed, seed);
        run(seed, &stats);
        txns += stats.txns;
        fragments += stats.fragments;
        late += stats.late_commits;
    }
    /* A run that did too little work to prove anything fails; one seed alone is only a replay. */
    if (one == NULL) {
        assert_true(txns > 1000 * (last - first + 1));
        assert_true(fragments > last - first);
        assert_true(late > last - first);
    }
    print_message("# %" G_GUINT64_FORMAT " txns, %" G_GUINT64_FORMAT " late\n", txns, late);
}

static void soak_is_a_function_of_its_seed(void **state)
{
    FakeEtcdStats one;
    FakeEtcdStats two;
    guint64 first = run(7, &one);
    assert_true(first == run(7, &two));
    assert_memory_equal(&one, &two, sizeof(one));
    assert_true(first != run(8, &two));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(soak_keeps_the_rules),
        cmocka_unit_test(soak_is_a_function_of_its_seed),
    };
    lh_log_setup(LH_LOG_ERROR, LH_LOG_TEXT);
    return cmocka_run_group_tests_name("fake-soak", tests, NULL, NULL);
}
