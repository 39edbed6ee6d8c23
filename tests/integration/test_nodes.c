/*
 * Nodes that die: while they load, while they serve, while they evict; and nodes that only restart.
 */
#include "history.h"

#include <math.h>
#include <string.h>

#define SNAPSHOTS 9

static void no_grace(World *world)
{
    world_put(world, "desired/settings/cache-assigner", "{\"spec\":{\"failureGrace\":\"0s\"}}");
}

static void publish(World *world, guint n)
{
    world_put(world, "desired/services/x", "{\"spec\":{\"owner\":\"a\"}}");
    for (guint i = 0; i < n; i++) {
        g_autofree char *name = g_strdup_printf("s-%03u", i);
        snapshot_publish(world, name, "x", world->now_ms - (gint64)(i + 1) * 60000, 2, 4000);
    }
}

static void check_history(World *world)
{
    g_autofree char *wrong = history_single_assignment(world);

    if (wrong != NULL)
        world_fail(world, "%s", wrong);
}

typedef struct {
    World *world;
    const char *host; /* node name */
    int state;        /* of items, -1: any assignment */
    guint n;
} Held;

static void count_held(const LhObject *object, gpointer data)
{
    Held *held = data;
    g_autofree char *node = lh_name_part(object->name, 1);
    g_autofree char *host = lh_node_name_of(node);

    if (g_strcmp0(host, held->host) == 0 &&
        (held->state < 0 || ((const LhItem *)object)->state == held->state))
        held->n++;
}

static guint held_by(World *world, const char *host, int state)
{
    Held held = {world, host, state, 0};

    lh_mirror_foreach(world->mirror, state < 0 ? LH_KIND_ASSIGNMENT : LH_KIND_ITEM, count_held,
                      &held);
    return held.n;
}

typedef struct {
    const char *host;
    int state;
    guint n;
} Wanted;

static gboolean holds(World *world, gpointer data)
{
    const Wanted *wanted = data;

    return held_by(world, wanted->host, wanted->state) == wanted->n;
}

static gboolean holds_some(World *world, gpointer data)
{
    const Wanted *wanted = data;

    return held_by(world, wanted->host, wanted->state) >= wanted->n;
}

static void a_node_that_dies_live_is_replaced(void **state)
{
    World *world = *state;
    Proc *first;

    manager_start(world, "manager", NULL);
    no_grace(world);
    first = agent_start(world, &(AgentOptions){.name = "agent-1"});
    agent_start(world, &(AgentOptions){.name = "agent-2"});
    agent_start(world, &(AgentOptions){.name = "agent-3"});
    publish(world, SNAPSHOTS);
    world_wait_live(world, NULL, SNAPSHOTS);
    assert_true(held_by(world, "agent-1", LH_ITEM_LIVE) > 0);
    proc_kill(first);
    world_wait(world, holds, &(Wanted){"agent-1", -1, 0}, "nothing is assigned to the dead node");
    world_wait_live(world, NULL, SNAPSHOTS);
    world_wait_event(world, "NodeLost", NULL);
    check_history(world);
}

static void a_node_that_dies_loading_is_replaced(void **state)
{
    static const char *const slow[] = {"--on-load", "sleep 600", "--hook-timeout", "1h", NULL};
    World *world = *state;
    Proc *first;

    manager_start(world, "manager", NULL);
    no_grace(world);
    first = agent_start(world, &(AgentOptions){.name = "agent-1", .extra = slow});
    publish(world, SNAPSHOTS);
    world_wait(world, holds_some, &(Wanted){"agent-1", LH_ITEM_LOADING, 1}, "the node loads");
    proc_kill(first);
    agent_start(world, &(AgentOptions){.name = "agent-2"});
    world_wait_live(world, NULL, SNAPSHOTS);
    assert_int_equal(held_by(world, "agent-1", -1), 0);
    check_history(world);
}

static gboolean nothing_is_left(World *world, gpointer data)
{
    return lh_mirror_count(world->mirror, LH_KIND_ASSIGNMENT) == 0 &&
           lh_mirror_count(world->mirror, LH_KIND_REPLICA) == 0;
}

/* Its eviction ends with it, and what it had to evict goes nowhere else. */
static void a_node_that_dies_evicting_leaves_nothing(void **state)
{
    World *world = *state;
    gint64 revision;
    Proc *first;

    manager_start(world, "manager", NULL);
    no_grace(world);
    world_put(world, "desired/settings/cache-evictor", "{\"spec\":{\"evictGrace\":\"1h\"}}");
    first = agent_start(world, &(AgentOptions){.name = "agent-1"});
    publish(world, 3);
    world_wait_live(world, NULL, 3);
    agent_start(world, &(AgentOptions){.name = "agent-2"});
    world_put(world, "desired/services/x",
              "{\"spec\":{\"owner\":\"a\",\"cache\":{\"window\":\"1s\"}}}");
    world_wait(world, holds, &(Wanted){"agent-1", LH_ITEM_EVICTING, 3}, "the node evicts");
    revision = world_revision(world);
    proc_kill(first);
    world_wait(world, nothing_is_left, NULL, "no assignment and no replica is left");
    g_autoptr(GPtrArray) after = world_history(world, revision);
    for (guint i = 0; i < after->len; i++) {
        const Kv *kv = g_ptr_array_index(after, i);
        if (!kv->is_delete && g_str_has_prefix(kv->key, "decided/assignments/"))
            world_fail(world, "%s was written after the node died", kv->key);
    }
    check_history(world);
}

/* One after the other, each within the grace: everything goes back, and no byte is copied again. */
static void restarts_within_the_grace_copy_nothing(void **state)
{
    World *world = *state;
    Proc *agents[6];

    manager_start(world, "manager", NULL);
    for (guint i = 0; i < G_N_ELEMENTS(agents); i++) {
        g_autofree char *name = g_strdup_printf("agent-%u", i + 1);
        agents[i] = agent_start(world, &(AgentOptions){.name = name});
    }
    publish(world, 2 * G_N_ELEMENTS(agents));
    world_wait_live(world, NULL, 2 * G_N_ELEMENTS(agents));
    for (guint i = 0; i < G_N_ELEMENTS(agents); i++) {
        g_autofree char *name = g_strdup_printf("agent-%u", i + 1);
        guint n = held_by(world, name, LH_ITEM_LIVE);
        double copied;
        assert_true(n > 0);
        if (i % 2 == 0)
            assert_int_equal(proc_stop(agents[i]), 0);
        else
            proc_kill(agents[i]);
        agents[i] = agent_start(world, &(AgentOptions){.name = name});
        world_wait_live(world, NULL, 2 * G_N_ELEMENTS(agents));
        assert_int_equal(held_by(world, name, LH_ITEM_LIVE), n);
        copied = metric(agents[i], "agent_copied_bytes_total");
        assert_true(isnan(copied) || copied < 1);
    }
    check_history(world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_node_that_dies_live_is_replaced, world_setup,
                                        world_teardown),
        cmocka_unit_test_setup_teardown(a_node_that_dies_loading_is_replaced, world_setup,
                                        world_teardown),
        cmocka_unit_test_setup_teardown(a_node_that_dies_evicting_leaves_nothing, world_setup,
                                        world_teardown),
        cmocka_unit_test_setup_teardown(restarts_within_the_grace_copy_nothing, world_setup,
                                        world_teardown),
    };

    return cmocka_run_group_tests_name("integration-nodes", tests, NULL, NULL);
}
