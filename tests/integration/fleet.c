/*
 * See fleet.h. The load is the test's own client; a write of it whose outcome is not known is sent again
 * as what it was, "create this key", so that it cannot be what writes a thing twice.
 */
#include "fleet.h"

#include "history.h"

#include <string.h>

#define TICK_MS  50 /* between two snapshots */
#define AT_ONCE  40 /* not answered yet */
#define AGAIN_MS 200
#define FIRST    5

struct Fleet {
    World *world;
    Proc *managers[FLEET_MANAGERS], *agents[FLEET_AGENTS];
    guint tick;
    guint made, published, in_flight;
    char *leases; /* who holds what, at the beginning */
};

/* ---- load ---- */

typedef struct {
    Fleet *fleet;
    char *key, *value;
} Publication;

static void publication_free(Publication *p)
{
    g_free(p->key);
    g_free(p->value);
    g_free(p);
}

static void publish(Publication *p);

static gboolean on_again(gpointer data)
{
    publish(data);
    return G_SOURCE_REMOVE;
}

static void on_published(const LhTxnReply *reply, const GError *error, gpointer data)
{
    Publication *p = data;
    (void)reply;
    if (error != NULL) {
        g_timeout_add(AGAIN_MS, on_again, p);
        return;
    }
    p->fleet->in_flight--;
    p->fleet->published++;
    publication_free(p);
}

static void publish(Publication *p)
{
    const LhCompare absent = lh_compare_create(p->key, 0);
    const LhTxnOp put = lh_txn_put(p->key, p->value, 0);
    lh_etcd_txn(
        p->fleet->world->client,
        &(LhTxnRequest){.compares = &absent, .n_compares = 1, .success = &put, .n_success = 1},
        on_published, p);
}

static gboolean on_tick(gpointer data)
{
    Fleet *fleet = data;
    World *world = fleet->world;
    if (fleet->in_flight >= AT_ONCE) {
        return G_SOURCE_CONTINUE;
    }
    g_autofree char *name = g_strdup_printf("s-%05u", fleet->made++);
    Publication *p = g_new0(Publication, 1);
    snapshot_files(world, name, 1, 200);
    p->fleet = fleet;
    p->key = g_strconcat(PREFIX "published/snapshots/", name, NULL);
    p->value = snapshot_value(world, name, "x", world->now_ms);
    fleet->in_flight++;
    publish(p);
    return G_SOURCE_CONTINUE;
}

static void load_start(Fleet *fleet)
{
    if (fleet->tick == 0) {
        fleet->tick = g_timeout_add(TICK_MS, on_tick, fleet);
    }
}

static void load_stop(Fleet *fleet)
{
    if (fleet->tick != 0) {
        g_source_remove(fleet->tick);
    }
    fleet->tick = 0;
}

typedef struct {
    Fleet *fleet;
    guint published;
} Wanted;

static gboolean has_published(World *world, gpointer data)
{
    const Wanted *wanted = data;
    (void)world;
    return wanted->fleet->published >= wanted->published;
}

static gboolean is_idle(World *world, gpointer data)
{
    (void)world;
    return ((Fleet *)data)->in_flight == 0;
}

static gboolean never(World *world, gpointer data)
{
    (void)world, (void)data;
    return FALSE;
}

void fleet_publish(Fleet *fleet, guint n)
{
    Wanted wanted = {fleet, fleet->published + n};
    load_start(fleet);
    world_poll(fleet->world, has_published, &wanted, "%u more snapshots are published", n);
}

void fleet_pass(Fleet *fleet, gint64 ms)
{
    load_start(fleet);
    world_until(fleet->world, never, NULL, ms);
}

void fleet_rest(Fleet *fleet, gint64 ms)
{
    load_stop(fleet);
    world_until(fleet->world, never, NULL, ms);
}

/* ---- beginning ---- */

static char *holders(World *world)
{
    static const char *const below[] = {"leaders/", "actual/nodes/"};
    GString *text = g_string_new(NULL);
    for (guint i = 0; i < G_N_ELEMENTS(below); i++) {
        g_autoptr(GPtrArray) keys = world_range(world, below[i]);
        for (guint j = 0; j < keys->len; j++) {
            const Kv *kv = keys->pdata[j];
            g_string_append_printf(text, "%s created at %" G_GINT64_FORMAT "\n", kv->key,
                                   kv->create_rev);
        }
    }
    return g_string_free(text, FALSE);
}

static gboolean is_ready(World *world, gpointer data)
{
    (void)world;
    g_autoptr(Reply) reply = http(data, "GET", "/readyz", NULL);
    return reply->status == 200;
}

/* Each manager is a candidate for each controller: as many keys of each. */
static gboolean all_stand(World *world, gpointer data)
{
    g_autoptr(GPtrArray) all = lh_mirror_list(world->mirror, LH_KIND_LEADER);
    g_autoptr(GHashTable) instances = g_hash_table_new(g_str_hash, g_str_equal);
    g_autoptr(GHashTable) controllers = g_hash_table_new_full(g_str_hash, g_str_equal, g_free,
                                                              NULL);
    (void)data;
    for (guint i = 0; i < all->len; i++) {
        const LhLeader *leader = all->pdata[i];
        if (!lh_object_known(&leader->o)) {
            return FALSE;
        }
        g_hash_table_add(instances, (gpointer)leader->instance);
        g_hash_table_add(controllers, lh_name_part(leader->o.name, 0));
    }
    return g_hash_table_size(instances) == FLEET_MANAGERS &&
           all->len == FLEET_MANAGERS * g_hash_table_size(controllers);
}

static gboolean all_registered(World *world, gpointer data)
{
    (void)data;
    return lh_mirror_count(world->mirror, LH_KIND_NODE) == FLEET_AGENTS;
}

static Fleet *start(World *world, const char *manager_user, const char *agent_user)
{
    Fleet *fleet = g_new0(Fleet, 1);
    fleet->world = world;
    world_put(world, "desired/settings/replica-creator", "{\"spec\":{\"debounce\":\"100ms\"}}");
    world_put(world, "desired/settings/cache-assigner", "{\"spec\":{\"maxConcurrentLoads\":50}}");
    world_put(world, "desired/services/x", "{\"spec\":{\"owner\":\"a\"}}");
    world_as(world, manager_user);
    for (guint i = 0; i < FLEET_MANAGERS; i++) {
        g_autofree char *name = g_strdup_printf("m-%u", i + 1);
        fleet->managers[i] = manager_start(world, name, NULL);
    }
    world_as(world, agent_user);
    for (guint i = 0; i < FLEET_AGENTS; i++) {
        g_autofree char *name = g_strdup_printf("agent-%u", i + 1);
        fleet->agents[i] = agent_start(world, &(AgentOptions){.name = name});
    }
    for (guint i = 0; i < FLEET_MANAGERS; i++) {
        world_poll(world, is_ready, fleet->managers[i], "manager %u is ready", i + 1);
    }
    world_wait(world, all_stand, NULL, "every manager is a candidate for everything");
    world_wait(world, all_registered, NULL, "every agent is registered");
    fleet_publish(fleet, FIRST);
    load_stop(fleet);
    world_poll(world, is_idle, fleet, "the load is answered");
    world_wait_live(world, NULL, fleet->published);
    fleet->leases = holders(world);
    return fleet;
}

Fleet *fleet_start(World *world)
{
    return start(world, NULL, NULL);
}

Fleet *fleet_start_as_users(World *world)
{
    g_autoptr(Run) roles = etcd_roles(world, "roles", NULL);
    if (roles->code != 0) {
        world_fail(world, "etcd-roles: %s", roles->err);
    }
    world_user(world, "m", "manager");
    world_user(world, "node", "node-cache");
    return start(world, "m", "node");
}

void fleet_free(Fleet *fleet)
{
    load_stop(fleet);
    world_until(fleet->world, is_idle, fleet, WAIT_MS);
    g_free(fleet->leases);
    g_free(fleet);
}

Proc *fleet_manager(Fleet *fleet, guint i)
{
    return fleet->managers[i];
}

/* ---- the end ---- */

static void must_run(World *world, Proc *const *procs, guint n)
{
    for (guint i = 0; i < n; i++) {
        if (procs[i]->ended) {
            world_fail(world, "%s has ended", procs[i]->name);
        }
    }
}

static void must_be_right(World *world, char *wrong)
{
    g_autofree char *text = wrong;
    if (text != NULL) {
        world_fail(world, "%s", text);
    }
}

void fleet_check(Fleet *fleet)
{
    static const char *const once[] = {"decided/assignments/cache/", "decided/replicas/",
                                       "published/snapshots/", "actual/search/"};
    World *world = fleet->world;
    load_stop(fleet);
    world_poll(world, is_idle, fleet, "the load is answered");
    world_wait_live(world, NULL, fleet->published);
    must_run(world, fleet->managers, FLEET_MANAGERS);
    must_run(world, fleet->agents, FLEET_AGENTS);
    g_autofree char *leases = holders(world);
    if (strcmp(leases, fleet->leases) != 0) {
        world_fail(world, "leases were lost; at first\n%sand now\n%s", fleet->leases, leases);
    }
    must_be_right(world, history_single_assignment(world));
    for (guint i = 0; i < G_N_ELEMENTS(once); i++) {
        must_be_right(world, history_written_once(world, once[i]));
    }
    must_be_right(world, history_item_states(world));
    g_printerr("# %u snapshots\n", fleet->published);
}

guint fleet_member_of(Fleet *fleet, guint manager)
{
    g_autoptr(Reply) cluster = http(fleet->managers[manager], "GET", "/v1/cluster", NULL);
    reply_must(cluster, 200);
    return etcd_cluster_find(fleet->world->cluster, json_text(cluster->json, "etcd.endpoint"));
}
