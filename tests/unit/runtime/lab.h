/*
 * For the tests of the runtime: manager instances with a test controller on one fake etcd in virtual
 * time, a tap between each instance and its client, and the invariants that every commit must keep.
 *
 * The controller "cache-assigner" puts decided/replicas/<snapshot>.default.0 for each snapshot, and
 * deletes replicas without one. What else a test wants of it is in `script`.
 */
#pragma once

#include "base/errors.h"
#include "base/json.h"
#include "base/log.h"
#include "etcd/lease.h"
#include "runtime/runtime.h"
#include "tests/fakes/env_sim.h"
#include "tests/fakes/fake_etcd.h"
#include "tests/unit/every.h"
#include "tests/unit/runtime/tap.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define NAME    "cache-assigner"
#define TTL_S   5
#define MAX_LAB 3

/* ---- the controller ---- */

typedef struct {
    GTree *objects[LH_N_ALL_KINDS]; /* name -> LhObject, of the kinds below */
} Index;

typedef void (*PlanFunc)(const Index *index, const LhPlanContext *context, LhPlan *plan);

/* What the test controller does, and what it saw. */
static struct {
    PlanFunc plan;             /* instead of the usual one */
    gboolean events, warnings; /* of which the creations are warnings */
    gint64 wake_at_ms;
    guint plans;
    LhPlanContext last; /* context of the last plan */
    gint64 planned_at_ms[64];
    SimWorld *world;
} script;

static gint by_name(gconstpointer a, gconstpointer b, G_GNUC_UNUSED gpointer data)
{
    return strcmp(a, b);
}

static gpointer index_new(void)
{
    Index *index = g_new0(Index, 1);

    for (guint i = 0; i < LH_N_ALL_KINDS; i++)
        index->objects[i] = g_tree_new_full(by_name, NULL, NULL,
                                            (GDestroyNotify)(void (*)(void))lh_object_unref);
    return index;
}

static void index_free(gpointer data)
{
    Index *index = data;

    for (guint i = 0; i < LH_N_ALL_KINDS; i++)
        g_tree_unref(index->objects[i]);
    g_free(index);
}

static gboolean index_fold(gpointer data, const LhObject *before, const LhObject *after)
{
    Index *index = data;
    const LhObject *object = after != NULL ? after : before;

    if (before != NULL)
        g_tree_remove(index->objects[before->kind], before->name);
    if (after != NULL)
        g_tree_insert(index->objects[after->kind], (gpointer)after->name, lh_object_ref(after));
    return object->kind != LH_KIND_ITEM;
}

static const LhObject *find(const Index *index, LhKind kind, const char *name)
{
    return g_tree_lookup(index->objects[kind], name);
}

static const LhIndexType index_type = {"test", index_new, index_free, index_fold};

static const LhSettings *settings_of(gconstpointer index, const char *controller)
{
    const LhObject *object = find(index, LH_KIND_SETTINGS, controller);

    return object != NULL && lh_object_known(object) ? (const LhSettings *)object
                                                     : lh_settings_default(controller);
}

static void plan_replica(LhPlan *plan, const LhObject *snapshot, const char *name)
{
    LhReplica replica = {
        .snapshot = snapshot->name, .service = "s", .set = "default", .expires_at = 1};

    lh_plan_begin(plan);
    lh_plan_put(plan, LH_KIND_REPLICA, name, &replica, 0, "missing", "snapshot %s", snapshot->name);
    lh_plan_rely(plan, LH_KIND_SNAPSHOT, snapshot->name, snapshot->mod_rev);
    if (script.events)
        lh_plan_event(plan, script.warnings ? LH_EVENT_WARNING : LH_EVENT_NORMAL, "ReplicaCreated",
                      LH_KIND_REPLICA, name, "for %s", snapshot->name);
    lh_plan_end(plan);
}

typedef struct {
    const Index *index;
    LhPlan *plan;
    guint most;
} Walk;

static gboolean walk_snapshot(gpointer key, gpointer value, gpointer data)
{
    Walk *walk = data;
    g_autofree char *name = g_strconcat(key, ".default.0", NULL);

    if (find(walk->index, LH_KIND_REPLICA, name) != NULL)
        return FALSE;
    if (lh_plan_groups(walk->plan) >= walk->most) {
        walk->plan->more = TRUE;
        return TRUE;
    }
    plan_replica(walk->plan, value, name);
    return FALSE;
}

static gboolean walk_replica(gpointer key, gpointer value, gpointer data)
{
    Walk *walk = data;
    g_autofree char *snapshot = g_strndup(key, strlen(key) - strlen(".default.0"));

    if (find(walk->index, LH_KIND_SNAPSHOT, snapshot) != NULL)
        return FALSE;
    lh_plan_begin(walk->plan);
    lh_plan_delete(walk->plan, LH_KIND_REPLICA, key, ((const LhObject *)value)->mod_rev, "surplus",
                   "no snapshot");
    lh_plan_rely(walk->plan, LH_KIND_SNAPSHOT, snapshot, 0);
    if (script.events)
        lh_plan_event(walk->plan, LH_EVENT_NORMAL, "ReplicaDeleted", LH_KIND_REPLICA, "any",
                      "gone");
    lh_plan_end(walk->plan);
    return FALSE;
}

static void plan_replicas(const Index *index, const LhPlanContext *context, LhPlan *plan)
{
    Walk walk = {index, plan, context->max_groups};

    g_tree_foreach(index->objects[LH_KIND_SNAPSHOT], walk_snapshot, &walk);
    g_tree_foreach(index->objects[LH_KIND_REPLICA], walk_replica, &walk);
    if (script.wake_at_ms > context->now_ms)
        lh_plan_wake(plan, script.wake_at_ms);
}

static void test_plan(gconstpointer index, const LhPlanContext *context, LhPlan *out)
{
    if (script.plans < G_N_ELEMENTS(script.planned_at_ms))
        script.planned_at_ms[script.plans] = sim_world_now_ms(script.world);
    script.plans++;
    script.last = *context;
    (script.plan != NULL ? script.plan : plan_replicas)(index, context, out);
}

static void gauges(gconstpointer index, G_GNUC_UNUSED gint64 now_ms, LhGaugeFunc gauge,
                   gpointer data)
{
    gauge("unassigned_items", "pool=\"cache\"",
          g_tree_nnodes(((const Index *)index)->objects[LH_KIND_REPLICA]), data);
}

static const char *const gauge_names[] = {"unassigned_items", NULL};

static const LhController controller = {
    .name = NAME,
    .index = &index_type,
    .kinds = LH_KIND_BIT(LH_KIND_SNAPSHOT) | LH_KIND_BIT(LH_KIND_REPLICA) |
             LH_KIND_BIT(LH_KIND_SETTINGS) | LH_KIND_BIT(LH_KIND_STATUS) |
             LH_KIND_BIT(LH_KIND_ITEM),
    .plan = test_plan,
    .gauges = gauges,
    .gauge_names = gauge_names,
    .settings = settings_of,
};
static const LhController *const controllers[] = {&controller, NULL};

/* ---- instances ---- */

typedef struct {
    char *name;
    LhEnv *env;
    Tap *tap;
    LhMirror *mirror;
    LhMetrics *metrics;
    LhRuntime *runtime;
    guint stopped;
    gint64 stopped_at_ms;
} Manager;

typedef struct {
    SimWorld *world;
    FakeEtcd *server;
    Manager managers[MAX_LAB];
    guint n;
    GHashTable *created; /* replicas' keys that exist or existed */
    gboolean may_repeat; /* a replica may be created again */
    guint decisions;     /* committed groups' puts and deletes */
    guint events;
} Lab;

static void note_oldest(const LhKv *kv, gpointer data)
{
    gint64 *oldest = data;

    if (kv->lease != 0 && (*oldest == 0 || kv->create_rev < *oldest))
        *oldest = kv->create_rev;
}

/* No write under a superseded epoch, and the fence on every one. */
static void check_fence(Lab *lab, const FakeCommit *commit)
{
    const LhCompare *fence = commit->compares;
    gint64 oldest = 0;

    assert_true(commit->n_compares >= 2);
    assert_true(g_str_has_prefix(fence[0].key, P "leaders/" NAME "/"));
    assert_string_equal(fence[0].key, fence[1].key);
    assert_int_equal(fence[0].target, LH_CMP_CREATE);
    assert_int_equal(fence[1].target, LH_CMP_MOD);
    assert_int_equal(fence[0].result, LH_CMP_EQUAL);
    assert_int_equal(fence[1].result, LH_CMP_EQUAL);
    fake_etcd_foreach(lab->server, P "leaders/" NAME "/", P "leaders/" NAME "0", 0, note_oldest,
                      &oldest);
    assert_int_equal(fence[0].number, oldest);
    assert_true(commit->n_compares <= LH_ETCD_MAX_TXN_OPS);
    assert_true(commit->n_events <= LH_ETCD_MAX_TXN_OPS);
}

static void check_commit(const FakeCommit *commit, gpointer data)
{
    Lab *lab = data;
    g_autoptr(GHashTable) keys = g_hash_table_new(g_str_hash, g_str_equal);

    if (commit->cause != FAKE_BY_TXN)
        return;
    for (gsize i = 0; i < commit->n_events; i++) {
        const LhEtcdEvent *event = fake_commit_event(commit, i);
        if (g_str_has_prefix(event->kv.key, P "leaders/"))
            continue;
        check_fence(lab, commit);
        assert_true(g_hash_table_add(keys, (gpointer)event->kv.key)); /* once in a txn */
        if (g_str_has_prefix(event->kv.key, P "events/")) {
            lab->events++;
            continue;
        }
        lab->decisions++;
        if (!event->is_delete && fake_commit_prev(commit, i) == NULL && !lab->may_repeat)
            assert_true(g_hash_table_add(lab->created, g_strdup(event->kv.key)));
    }
}

static void quiet_log(G_GNUC_UNUSED const char *line, G_GNUC_UNUSED gpointer data)
{
}

static Lab *lab_new(guint64 seed)
{
    Lab *lab = g_new0(Lab, 1);

    memset(&script, 0, sizeof script);
    lh_log_set_sink(g_getenv("LAB_LOG") != NULL ? NULL : quiet_log, NULL);
    lab->world = script.world = sim_world_new(seed);
    lab->server = fake_etcd_new(sim_machine_new(lab->world, "etcd"), NULL);
    lab->created = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
    fake_etcd_on_commit(lab->server, check_commit, lab);
    return lab;
}

static LhRuntimeOptions lab_options(const char *name)
{
    return (LhRuntimeOptions){.instance = name,
                              .host = "host",
                              .url = "http://127.0.0.1:1/",
                              .version = "1",
                              .pid = 1,
                              .lease_ttl_s = TTL_S};
}

static Manager *lab_manager_with(Lab *lab, const LhController *const *table,
                                 const LhRuntimeOptions *options)
{
    Manager *manager = &lab->managers[lab->n++];

    g_assert(lab->n <= MAX_LAB);
    manager->name = g_strdup(options->instance);
    manager->env = sim_machine_new(lab->world, manager->name);
    manager->tap = tap_new(fake_etcd_connect(lab->server, manager->env, manager->name));
    manager->tap->env = manager->env;
    manager->mirror = lh_mirror_new(manager->env, &manager->tap->etcd, P);
    manager->metrics = lh_metrics_new();
    lh_runtime_declare_metrics(manager->metrics);
    manager->runtime = lh_runtime_new(manager->env, &manager->tap->etcd, manager->mirror,
                                      manager->metrics, table, options);
    lh_mirror_start(manager->mirror);
    lh_runtime_start(manager->runtime);
    return manager;
}

static inline Manager *lab_manager(Lab *lab, const char *name)
{
    LhRuntimeOptions options = lab_options(name);

    return lab_manager_with(lab, controllers, &options);
}

static inline void manager_drop(Manager *manager)
{
    g_clear_pointer(&manager->runtime, lh_runtime_free);
    g_clear_pointer(&manager->mirror, lh_mirror_free);
    g_clear_pointer(&manager->tap, tap_free);
    g_clear_pointer(&manager->metrics, lh_metrics_free);
    g_clear_pointer(&manager->name, g_free);
}

/* kill -9 */
static inline void manager_crash(Manager *manager)
{
    sim_machine_crash(manager->env);
    manager_drop(manager);
}

static void lab_free(Lab *lab)
{
    for (guint i = 0; i < lab->n; i++)
        manager_drop(&lab->managers[i]);
    fake_etcd_free(lab->server);
    sim_world_free(lab->world);
    g_hash_table_unref(lab->created);
    g_free(lab);
}

static inline void on_stopped(gpointer data)
{
    Manager *manager = data;

    manager->stopped++;
    manager->stopped_at_ms = sim_world_now_ms(script.world);
}

static inline void pass(Lab *lab, gint64 ms)
{
    sim_world_run_until(lab->world, sim_world_now_ms(lab->world) + ms);
}

typedef gboolean (*Condition)(Lab *lab);

/* Runs until @condition holds; fails when it does not within @ms. Returns how long it took. */
static inline gint64 wait_for(Lab *lab, Condition condition, gint64 ms)
{
    gint64 start = sim_world_now_ms(lab->world);

    while (!condition(lab)) {
        if (sim_world_next_ms(lab->world) > start + ms)
            fail_msg("still not so after %" G_GINT64_FORMAT " ms", ms);
        sim_world_step(lab->world);
    }
    return sim_world_now_ms(lab->world) - start;
}

static inline gboolean leads(const Manager *manager)
{
    return manager->runtime != NULL && lh_runtime_leads(manager->runtime, NAME);
}

static inline guint n_leaders(Lab *lab)
{
    guint n = 0;

    for (guint i = 0; i < lab->n; i++)
        n += leads(&lab->managers[i]);
    return n;
}

static inline gboolean one_leads(Lab *lab)
{
    return n_leaders(lab) == 1;
}

static inline gboolean none_leads(Lab *lab)
{
    return n_leaders(lab) == 0;
}

static inline Manager *leader(Lab *lab)
{
    for (guint i = 0; i < lab->n; i++)
        if (leads(&lab->managers[i]))
            return &lab->managers[i];
    return NULL;
}

static inline char *leader_key(const Manager *manager)
{
    return g_strdup_printf(P "leaders/" NAME "/%016" G_GINT64_MODIFIER "x",
                           (guint64)lh_runtime_lease(manager->runtime));
}

static inline double metric(const Manager *manager, const char *name, const char *labels)
{
    return lh_metrics_get(manager->metrics, name, labels);
}

static inline gint64 put(Lab *lab, const char *key, const char *value)
{
    g_autofree char *whole = g_strconcat(P, key, NULL);

    return fake_etcd_put(lab->server, whole, value, 0);
}

static inline void publish(Lab *lab, guint from, guint n)
{
    for (guint i = from; i < from + n; i++) {
        g_autofree char *key = g_strdup_printf("published/snapshots/snap-%05u", i);
        g_autofree char *value = g_strdup_printf(
            "{\"service\":\"s\",\"startTime\":1000,\"endTime\":2000,"
            "\"sizeBytes\":7,\"uri\":\"s3://bucket/%05u/\"}",
            i);
        put(lab, key, value);
    }
}

static inline void unpublish(Lab *lab, guint from, guint n)
{
    for (guint i = from; i < from + n; i++) {
        g_autofree char *key = g_strdup_printf(P "published/snapshots/snap-%05u", i);
        assert_int_equal(fake_etcd_delete(lab->server, key, NULL), 1);
    }
}

static inline void count_kv(G_GNUC_UNUSED const LhKv *kv, gpointer data)
{
    (*(guint *)data)++;
}

static inline guint n_keys(Lab *lab, const char *under)
{
    g_autofree char *from = g_strconcat(P, under, NULL), *end = lh_etcd_prefix_end(from);
    guint n = 0;

    fake_etcd_foreach(lab->server, from, end, 0, count_kv, &n);
    return n;
}

/* Every snapshot has its replica, every replica its snapshot. */
static inline gboolean converged(Lab *lab)
{
    return n_keys(lab, "decided/replicas/") == n_keys(lab, "published/snapshots/");
}

/* Nothing goes on any more on the instance that leads. */
static inline gboolean all_idle(Lab *lab)
{
    const Manager *manager = leader(lab);

    return manager != NULL && lh_runtime_idle(manager->runtime) &&
           g_hash_table_size(manager->tap->in_flight) == 0;
}

static inline gboolean quiet(Lab *lab)
{
    return all_idle(lab) && converged(lab); /* the cheaper question first */
}
