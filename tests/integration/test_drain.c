/*
 * Draining a cache node with real processes: at every revision of etcd each snapshot is searchable
 * somewhere; without room it stays and says so; a drain that is undone; and a node that is gone.
 */
#include "harness.h"

#include <string.h>

#define SNAPSHOTS 30
#define BYTES     20000
#define DRAINED   "nodepolicies/cache/agent-1/cache-assigner"

static World *begin(void **state, Proc **manager)
{
    World *world = *state;
    *manager = manager_start(world, "manager", NULL);
    world_put(world, "desired/settings/cache-evictor", "{\"spec\":{\"evictGrace\":\"0s\"}}");
    world_put(world, "desired/services/x", "{\"spec\":{\"owner\":\"a\"}}");
    for (guint i = 0; i < SNAPSHOTS; i++) {
        g_autofree char *name = g_strdup_printf("s-%03u", i);
        snapshot_publish(world, name, "x", world->now_ms - (gint64)(i + 1) * 60000, 2, BYTES);
    }
    return world;
}

/* How many assignments nodes of that name have. */
static guint held_by(World *world, const char *host)
{
    g_autoptr(GPtrArray) keys = world_range(world, "decided/assignments/cache/");
    guint n = 0;
    for (guint i = 0; i < keys->len; i++) {
        const Kv *kv = g_ptr_array_index(keys, i);
        g_autofree char *id = lh_name_part(kv->key + strlen("decided/assignments/"), 1);
        g_autofree char *name = lh_node_name_of(id);
        n += g_strcmp0(name, host) == 0;
    }
    return n;
}

/* A client that sees every revision: what has become searchable never ceases to be, at none. Returns how many
 * snapshots it has seen. */
static guint check_always_searchable(World *world)
{
    g_autoptr(GPtrArray) history = world_history(world, 0);
    g_autoptr(GHashTable) copies = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
    const char *prefix = "actual/search/cache/";
    for (guint i = 0; i < history->len; i++) {
        const Kv *kv = g_ptr_array_index(history, i);
        const Kv *next = i + 1 < history->len ? g_ptr_array_index(history, i + 1) : NULL;
        if (g_str_has_prefix(kv->key, prefix) && (kv->is_delete || kv->create_rev == kv->mod_rev)) {
            char *snapshot = lh_name_part(kv->key + strlen(prefix), 1);
            gint n = GPOINTER_TO_INT(g_hash_table_lookup(copies, snapshot));
            g_hash_table_replace(copies, snapshot, GINT_TO_POINTER(n + (kv->is_delete ? -1 : 1)));
        }
        if (next != NULL && next->mod_rev == kv->mod_rev)
            continue; /* of the same commit */
        GHashTableIter iter;
        gpointer name, n;
        g_hash_table_iter_init(&iter, copies);
        while (g_hash_table_iter_next(&iter, &name, &n))
            if (GPOINTER_TO_INT(n) < 1)
                world_fail(world, "%s is not searchable at revision %" G_GINT64_FORMAT,
                           (char *)name, kv->mod_rev);
    }
    return g_hash_table_size(copies);
}

static gboolean is_said(World *world, gpointer data)
{
    const LhCondition *condition = world_condition(world, DRAINED, "Drained");
    return condition != NULL && strcmp(condition->reason, data) == 0;
}

static gboolean nothing_is_said(World *world, gpointer data)
{
    (void)data;
    return world_condition(world, DRAINED, "Drained") == NULL;
}

static void each_snapshot_is_searchable_all_the_time(void **state)
{
    Proc *manager;
    World *world = begin(state, &manager);
    agent_start(world, &(AgentOptions){.name = "agent-1"});
    agent_start(world, &(AgentOptions){.name = "agent-2"});
    world_wait_live(world, NULL, SNAPSHOTS);
    guint before = held_by(world, "agent-1");
    assert_true(before > 0 && before < SNAPSHOTS);

    g_autoptr(Run) drain = cli(manager, "drain", "cache/agent-1", "--wait", "--timeout", "60s",
                               NULL);
    if (drain->code != 0)
        world_fail(world, "drain: %d: %s%s", drain->code, drain->out, drain->err);
    assert_non_null(strstr(drain->out, "nodepolicies/cache/agent-1 is empty"));
    assert_non_null(strstr(drain->out, "cache/agent-1: nothing is assigned to it"));
    assert_int_equal(held_by(world, "agent-1"), 0);
    assert_int_equal(world_live(world, NULL), SNAPSHOTS);
    g_autoptr(Run) nodes = cli(manager, "get", "nodes", NULL);
    assert_non_null(strstr(nodes->out, "drain"));

    /* what comes now does not come here, and nothing comes back by itself */
    snapshot_publish(world, "s-new", "x", world->now_ms, 1, BYTES);
    world_wait_live(world, NULL, SNAPSHOTS + 1);
    g_autoptr(Run) undo = cli(manager, "uncordon", "cache/agent-1", NULL);
    assert_int_equal(undo->code, 0);
    world_wait(world, nothing_is_said, NULL, "Drained is no longer said");
    assert_int_equal(held_by(world, "agent-1"), 0);
    assert_int_equal(check_always_searchable(world), SNAPSHOTS + 1);
}

static void without_room_it_stays_and_says_so(void **state)
{
    Proc *manager;
    World *world = begin(state, &manager);
    guint fit = 5;
    world_put(world, "desired/settings/cache-assigner", "{\"spec\":{\"restoreReservePercent\":0}}");
    agent_start(world, &(AgentOptions){.name = "agent-1"});
    world_wait_live(world, NULL, SNAPSHOTS);
    agent_start(world, &(AgentOptions){.name = "agent-2", .items = G_STRINGIFY(5)});
    g_autoptr(Run) drain = cli(manager, "drain", "cache/agent-1", NULL);
    assert_int_equal(drain->code, 0);
    world_wait(world, is_said, (gpointer) "NoRoom", "Drained=False, NoRoom");
    world_wait_live(world, NULL, SNAPSHOTS);
    g_autoptr(Run) wait = cli(manager, "drain", "cache/agent-1", "--wait", "--timeout", "5s", NULL);
    assert_int_equal(wait->code, 1);
    if (strstr(wait->err, "have no room elsewhere (no node may hold an item more)") == NULL)
        world_fail(world, "\"%s\" does not say why", wait->err);
    assert_int_equal(held_by(world, "agent-1"), SNAPSHOTS - fit);
    assert_int_equal(held_by(world, "agent-2"), fit);

    agent_start(world, &(AgentOptions){.name = "agent-3"});
    world_wait(world, is_said, (gpointer) "Empty", "Drained=True once there is room");
    assert_int_equal(held_by(world, "agent-1"), 0);
    assert_int_equal(check_always_searchable(world), SNAPSHOTS);
}

typedef struct {
    const char *host;
    guint least;
} Holds;

static gboolean holds(World *world, gpointer data)
{
    const Holds *wanted = data;
    return held_by(world, wanted->host) >= wanted->least;
}

static gboolean each_is_once(World *world, gpointer data)
{
    (void)data;
    return lh_mirror_count(world->mirror, LH_KIND_ASSIGNMENT) == SNAPSHOTS;
}

static void undone_half_way_each_is_once_again(void **state)
{
    Proc *manager;
    World *world = begin(state, &manager);
    Holds some = {"agent-2", 3};
    agent_start(world, &(AgentOptions){.name = "agent-1"});
    world_wait_live(world, NULL, SNAPSHOTS);
    world_put(world, "desired/settings/cache-assigner", "{\"spec\":{\"maxConcurrentLoads\":1}}");
    agent_start(world, &(AgentOptions){.name = "agent-2"});
    g_autoptr(Run) drain = cli(manager, "drain", "cache/agent-1", NULL);
    assert_int_equal(drain->code, 0);
    world_wait(world, holds, &some, "agent-2 has some of it");
    g_autoptr(Run) undo = cli(manager, "uncordon", "cache/agent-1", NULL);
    assert_int_equal(undo->code, 0);
    world_wait(world, nothing_is_said, NULL, "Drained is no longer said");
    world_wait(world, each_is_once, NULL, "each replica is assigned once");
    world_wait_live(world, NULL, SNAPSHOTS);
    assert_int_equal(check_always_searchable(world), SNAPSHOTS);
}

static void a_node_that_is_gone_is_drained(void **state)
{
    Proc *manager;
    World *world = begin(state, &manager);
    Proc *agent = agent_start(world, &(AgentOptions){.name = "agent-1"});
    world_put(world, "desired/settings/cache-assigner", "{\"spec\":{\"failureGrace\":\"1s\"}}");
    world_wait_live(world, NULL, SNAPSHOTS);
    g_autoptr(Run) drain = cli(manager, "drain", "cache/agent-1", NULL);
    assert_int_equal(drain->code, 0);
    world_wait(world, is_said, (gpointer) "NoRoom", "nowhere to go");
    assert_int_equal(proc_stop(agent), 0);
    g_autoptr(Run) wait = cli(manager, "drain", "cache/agent-1", "--wait", "--timeout", "60s",
                              NULL);
    if (wait->code != 0)
        world_fail(world, "drain: %d: %s%s", wait->code, wait->out, wait->err);
    assert_int_equal(held_by(world, "agent-1"), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(each_snapshot_is_searchable_all_the_time, world_setup,
                                        world_teardown),
        cmocka_unit_test_setup_teardown(without_room_it_stays_and_says_so, world_setup,
                                        world_teardown),
        cmocka_unit_test_setup_teardown(undone_half_way_each_is_once_again, world_setup,
                                        world_teardown),
        cmocka_unit_test_setup_teardown(a_node_that_is_gone_is_drained, world_setup,
                                        world_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
