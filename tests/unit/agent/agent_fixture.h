/*
 * One agent with virtual work on a fake etcd in virtual time, and what holds at every commit:
 * an item is written with its last revision compared, "live" and the search key come and go together,
 * and everything under actual/ hangs on the node's lease.
 */
#pragma once

#include "agent/agent.h"
#include "base/json.h"
#include "base/log.h"
#include "spy_etcd.h"
#include "tests/fakes/env_sim.h"
#include "tests/fakes/fake_etcd.h"
#include "virtual_work.h"

#include <stdio.h>

#define PREFIX "/leasehold/"

typedef struct {
    SimWorld *world;
    LhEnv *server_env, *env;
    FakeEtcd *server;
    LhEtcd *client; /* the fake's, inside the spy */
    SpyEtcd *spy;
    VirtualWork *work;
    LhAgent *agent;
    GPtrArray *ids; /* every id it was registered under */
    GArray *left;   /* of LhAgentLeft */
    guint stopped;
    gint64 stopped_ms;
    GPtrArray *states; /* "item=state" at each commit */
    gboolean strict;   /* check search against items at each commit */
    guint loading_writes;
} Fixture;

static inline void quiet(const char *line, gpointer data)
{
    (void)data;
    if (g_getenv("LEASEHOLD_TEST_LOG") != NULL)
        fprintf(stderr, "%s\n", line);
}

static inline void on_registered(const char *id, gpointer data)
{
    g_ptr_array_add(((Fixture *)data)->ids, g_strdup(id));
}

static inline void on_left(const char *id, LhAgentLeft why, gpointer data)
{
    Fixture *f = data;
    assert_string_equal(id, g_ptr_array_index(f->ids, f->ids->len - 1));
    g_array_append_val(f->left, why);
}

static inline void on_stopped(gpointer data)
{
    Fixture *f = data;
    f->stopped++;
    f->stopped_ms = sim_world_now_ms(f->world);
}

static inline char *field(const LhKv *kv, const char *name)
{
    if (kv == NULL)
        return NULL;
    g_autoptr(cJSON) json = lh_json_parse(kv->value, kv->value_len, LH_JSON_MAX_BYTES, NULL);
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(json, name);
    if (item == NULL)
        return NULL;
    return cJSON_IsString(item) ? g_strdup(item->valuestring) : lh_json_print(item);
}

/* The last part of a key. */
static inline const char *leaf(const char *key)
{
    return strrchr(key, '/') + 1;
}

static inline gboolean compares_mod(const FakeCommit *commit, const char *key, gint64 rev)
{
    for (gsize i = 0; i < commit->n_compares; i++) {
        const LhCompare *c = &commit->compares[i];
        if (strcmp(c->key, key) == 0 && c->target == LH_CMP_MOD && c->number == rev)
            return TRUE;
    }
    return FALSE;
}

static inline void check_item_event(Fixture *f, const FakeCommit *commit, gsize i)
{
    const LhEtcdEvent *e = fake_commit_event(commit, i);
    const LhKv *prev = fake_commit_prev(commit, i);
    if (commit->cause == FAKE_BY_OPERATOR && !e->is_delete)
        return;
    if (commit->cause == FAKE_BY_TXN)
        assert_true(compares_mod(commit, e->kv.key, prev != NULL ? prev->mod_rev : 0));
    g_autofree char *state = e->is_delete ? g_strdup("-") : field(&e->kv, "state");
    g_ptr_array_add(f->states, g_strdup_printf("%s=%s", leaf(e->kv.key), state));
    f->loading_writes += strcmp(state, "loading") == 0;
    /* What an exclusive node has done outlives it; all else vanishes with it. */
    gboolean outlives = strstr(e->kv.key, "/items/cache/") == NULL && strcmp(state, "done") == 0;
    if (!e->is_delete)
        assert_true((e->kv.lease == 0) == outlives);
    if (f->strict && commit->cause == FAKE_BY_TXN) {
        g_autofree char *node = g_path_get_dirname(e->kv.key);
        g_autofree char *search = g_strdup_printf(PREFIX "actual/search/cache/%s/snap-%s",
                                                  leaf(node), leaf(e->kv.key));
        gboolean there = fake_etcd_get(f->server, search, 0) != NULL;
        assert_int_equal(there, strcmp(state, "live") == 0);
    }
}

static inline void on_commit(const FakeCommit *commit, gpointer data)
{
    for (gsize i = 0; i < commit->n_events; i++) {
        if (strstr(fake_commit_event(commit, i)->kv.key, "/actual/items/") != NULL)
            check_item_event(data, commit, i);
    }
}

static inline void start_agent(Fixture *f, const char *pool)
{
    static const LhAgentFuncs funcs = {
        .registered = on_registered, .left = on_left, .stopped = on_stopped};
    const LhAgentOptions options = {
        .prefix = PREFIX,
        .pool = pool,
        .name = "node",
        .host = "host",
        .url = "http://node",
        .set = "default",
        .version = "1",
        .capacity_bytes = 1000000,
        .lease_ttl_s = 5,
    };
    f->agent = lh_agent_new(f->env, &f->spy->base, &options, &f->work->base, &funcs, f);
}

static inline Fixture *fixture_new(guint64 seed, const FakeEtcdOptions *options)
{
    Fixture *f = g_new0(Fixture, 1);
    lh_log_set_sink(quiet, NULL);
    f->world = sim_world_new(seed);
    f->server_env = sim_machine_new(f->world, "etcd");
    f->env = sim_machine_new(f->world, "agent");
    f->server = fake_etcd_new(f->server_env, options);
    fake_etcd_on_commit(f->server, on_commit, f);
    f->client = fake_etcd_connect(f->server, f->env, "agent");
    f->spy = spy_etcd_new(f->client);
    f->work = virtual_work_new(f->env);
    f->ids = g_ptr_array_new_with_free_func(g_free);
    f->states = g_ptr_array_new_with_free_func(g_free);
    f->left = g_array_new(FALSE, FALSE, sizeof(LhAgentLeft));
    f->strict = TRUE;
    return f;
}

static inline void fixture_free(Fixture *f)
{
    lh_agent_free(f->agent);
    virtual_work_free(f->work);
    lh_etcd_free(&f->spy->base);
    fake_etcd_free(f->server);
    sim_world_free(f->world);
    g_ptr_array_unref(f->ids);
    g_ptr_array_unref(f->states);
    g_array_unref(f->left);
    g_free(f);
    lh_log_set_sink(NULL, NULL);
}

static inline void run_ms(Fixture *f, gint64 ms)
{
    sim_world_run_until(f->world, sim_world_now_ms(f->world) + ms);
}

/* Steps until @done, at most @ms. */
static inline gboolean run_until(Fixture *f, gboolean (*done)(Fixture *f), gint64 ms)
{
    gint64 end = sim_world_now_ms(f->world) + ms;
    while (!done(f)) {
        if (sim_world_next_ms(f->world) > end)
            return FALSE;
        sim_world_step(f->world);
    }
    return TRUE;
}

static inline const char *node_id(const Fixture *f)
{
    assert_true(f->ids->len > 0);
    return g_ptr_array_index(f->ids, f->ids->len - 1);
}

static inline gboolean is_registered(Fixture *f)
{
    return lh_agent_id(f->agent) != NULL;
}

static inline void registered(Fixture *f)
{
    start_agent(f, "cache");
    assert_true(run_until(f, is_registered, 5000));
}

static inline char *key_of(const Fixture *f, const char *what, const char *item)
{
    return g_strdup_printf(PREFIX "%s/cache/%s/%s", what, node_id(f), item);
}

static inline gint64 order_uri(Fixture *f, const char *item, const char *action, const char *uri)
{
    g_autofree char *key = key_of(f, "decided/assignments", item);
    g_autofree char *value = g_strdup_printf(
        "{\"action\":\"%s\",\"since\":1,\"controller\":\"c\",\"epoch\":1,\"rule\":\"r\","
        "\"reason\":\"x\",\"snapshot\":\"snap-%s\",\"uri\":\"%s\",\"sizeBytes\":1000,"
        "\"set\":\"default\",\"evictGrace\":\"2s\"}",
        action, item, uri);
    return fake_etcd_put(f->server, key, value, 0);
}

static inline gint64 order(Fixture *f, const char *item, const char *action)
{
    return order_uri(f, item, action, "file:///data/s/");
}

static inline void unassign(Fixture *f, const char *item)
{
    g_autofree char *key = key_of(f, "decided/assignments", item);
    assert_int_equal(fake_etcd_delete(f->server, key, NULL), 1);
}

static inline char *item_field(const Fixture *f, const char *item, const char *name)
{
    g_autofree char *key = key_of(f, "actual/items", item);
    return field(fake_etcd_get(f->server, key, 0), name);
}

static inline gboolean has_search(const Fixture *f, const char *item)
{
    g_autofree char *leaf_name = g_strconcat("snap-", item, NULL);
    g_autofree char *key = key_of(f, "actual/search", leaf_name);
    return fake_etcd_get(f->server, key, 0) != NULL;
}

static inline void assert_item(const Fixture *f, const char *item, const char *state,
                               gint64 assignment)
{
    g_autofree char *is = item_field(f, item, "state");
    g_autofree char *answers = item_field(f, item, "assignment");
    g_autofree char *expected = g_strdup_printf("%" G_GINT64_FORMAT, assignment);
    if (g_strcmp0(is, state) != 0)
        fail_msg("%s is %s, expected %s", item, is != NULL ? is : "absent",
                 state != NULL ? state : "absent");
    if (state != NULL && g_strcmp0(answers, expected) != 0)
        fail_msg("%s answers %s, expected %s", item, answers, expected);
}

/* The states that an item went through, "loading live -". */
static inline void assert_states(const Fixture *f, const char *item, const char *expected)
{
    g_autoptr(GString) all = g_string_new(NULL);
    g_autofree char *prefix = g_strconcat(item, "=", NULL);
    const char *last = "";
    for (guint i = 0; i < f->states->len; i++) {
        const char *s = g_ptr_array_index(f->states, i);
        if (!g_str_has_prefix(s, prefix) || strcmp(s, last) == 0)
            continue;
        last = s;
        g_string_append_printf(all, "%s%s", all->len > 0 ? " " : "", s + strlen(prefix));
    }
    assert_string_equal(all->str, expected);
}

static void count_kv(const LhKv *kv, gpointer data)
{
    (void)kv;
    ++*(guint *)data;
}

/* Keys below a prefix. */
static inline guint count_keys(const Fixture *f, const char *prefix)
{
    guint n = 0;
    g_autofree char *end = lh_etcd_prefix_end(prefix);
    fake_etcd_foreach(f->server, prefix, end, 0, count_kv, &n);
    return n;
}
