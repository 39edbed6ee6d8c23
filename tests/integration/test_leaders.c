/*
 * Leaders that die, are stopped past their lease, or leave: another goes on, and nothing of the old epoch is
 * written after it. With every other guard switched off, etcd's refusal alone must still hold.
 */
#include "base/units.h"
#include "history.h"

#include <signal.h>
#include <string.h>

#define HALF  500
#define BYTES 1000

static const char *const short_lease[] = {"--lease-ttl", "2s", NULL};
static const char *const unguarded[] = {"--lease-ttl", "2s", "--fault-no-deadline",
                                        "--fault-no-leader-watch", NULL};

/* The instance that leads @controller; NULL: nobody. Owned by the mirror. */
static const LhLeader *leader_of(World *world, const char *controller)
{
    g_autoptr(GPtrArray) all = lh_mirror_list(world->mirror, LH_KIND_LEADER);
    g_autofree char *prefix = g_strconcat(controller, "/", NULL);
    const LhLeader *oldest = NULL;

    for (guint i = 0; i < all->len; i++) {
        const LhObject *object = g_ptr_array_index(all, i);
        if (g_str_has_prefix(object->name, prefix) &&
            (oldest == NULL || object->create_rev < oldest->o.create_rev))
            oldest = (const LhLeader *)object;
    }
    return oldest;
}

typedef struct {
    const char *controller;
    const char *instance;
    gboolean not ; /* anybody but it */
} Leads;

static gboolean leads(World *world, gpointer data)
{
    const Leads *wanted = data;
    const LhLeader *leader = leader_of(world, wanted->controller);

    return leader != NULL && (strcmp(leader->instance, wanted->instance) == 0) != wanted->not ;
}

/* A node that only has room: no agent is behind it, so what is assigned stays assigned. */
static void register_node(World *world, const char *id)
{
    g_autofree char *key = g_strconcat("actual/nodes/cache/", id, NULL);
    g_autofree char *name = lh_node_name_of(id);

    world_putf(
        world, key,
        "{\"name\":\"%s\",\"host\":\"h\",\"url\":\"http://127.0.0.1:1\",\"set\":\"default\","
        "\"capacityBytes\":1000000000,\"state\":\"online\",\"startedAt\":\"2026-01-01T00:00:00Z\","
        "\"version\":\"test\",\"lease\":\"0000000000000001\",\"leaseTtl\":\"5s\"}",
        name);
}

static void publish_range(World *world, guint from, guint to)
{
    for (guint i = from; i < to; i++) {
        g_autofree char *key = g_strdup_printf("published/snapshots/s-%04u", i);
        g_autofree char *start = lh_time_format(world->now_ms - 120000);
        g_autofree char *end = lh_time_format(world->now_ms - 60000);
        world_putf(world, key,
                   "{\"service\":\"x\",\"startTime\":\"%s\",\"endTime\":\"%s\",\"sizeBytes\":%d,"
                   "\"uri\":\"file:///nowhere/s-%04u/\"}",
                   start, end, BYTES, i);
    }
}

static void prepare(World *world)
{
    world_put(world, "desired/settings/replica-creator", "{\"spec\":{\"debounce\":\"0s\"}}");
    world_put(world, "desired/settings/cache-assigner",
              "{\"spec\":{\"debounce\":\"0s\",\"maxConcurrentLoads\":1000}}");
    world_put(world, "desired/services/x", "{\"spec\":{\"owner\":\"a\"}}");
    register_node(world, "node-1-00000001");
    register_node(world, "node-2-00000002");
}

static gboolean assigned(World *world, gpointer data)
{
    return lh_mirror_count(world->mirror, LH_KIND_ASSIGNMENT) >= *(guint *)data;
}

static void wait_assigned(World *world, guint n)
{
    world_wait(world, assigned, &n, "%u items are assigned", n);
}

static void check(World *world, char *wrong)
{
    g_autofree char *text = wrong;

    if (text != NULL)
        world_fail(world, "%s", text);
}

static void a_killed_leader_is_replaced_in_the_middle(void **state)
{
    World *world = *state;
    Proc *first = manager_start(world, "m-1", short_lease);
    gint64 epoch;

    world_wait(world, leads, &(Leads){"cache-assigner", "m-1", FALSE}, "m-1 leads");
    manager_start(world, "m-2", short_lease);
    manager_start(world, "m-3", short_lease);
    prepare(world);
    publish_range(world, 0, HALF);
    wait_assigned(world, 1);
    proc_kill(first);
    publish_range(world, HALF, 2 * HALF);
    world_wait(world, leads, &(Leads){"cache-assigner", "m-1", TRUE}, "another leads");
    wait_assigned(world, 2 * HALF);
    check(world, history_single_assignment(world));
    check(world, history_no_writes_of(world, "cache-assigner", "m-1", NULL));
    epoch = history_epoch_of(world, "cache-assigner", "m-1");
    assert_true(history_assignments_of_epoch(world, epoch) > 0);
    assert_true(history_assignments_of_epoch(world, epoch) < 2 * HALF);
}

/* Stops the leader past its lease while it has something to decide, lets another take over, and goes on.
 * The old one has a plan due at once when it wakes: its debounce ended while it slept. */
static Proc *stop_past_the_lease(World *world)
{
    Proc *first = manager_start(world, "m-1", short_lease);

    world_wait(world, leads, &(Leads){"cache-assigner", "m-1", FALSE}, "m-1 leads");
    world_wait(world, leads, &(Leads){"replica-creator", "m-1", FALSE}, "m-1 creates");
    manager_start(world, "m-2", short_lease);
    prepare(world);
    publish_range(world, 0, 20);
    wait_assigned(world, 20);
    world_put(world, "desired/settings/replica-creator", "{\"spec\":{\"debounce\":\"1s\"}}");
    world_catch_up(world, world_revision(world));
    publish_range(world, 20, 40);
    kill(proc_pid(first), SIGSTOP);
    world_wait(world, leads, &(Leads){"cache-assigner", "m-2", FALSE}, "m-2 leads");
    publish_range(world, 40, 60);
    wait_assigned(world, 60);
    kill(proc_pid(first), SIGCONT);
    return first;
}

static gboolean heard_of(World *world, gpointer data)
{
    Proc *manager = data;
    g_autoptr(Reply) cluster = http(manager, "GET", "/v1/cluster", NULL);
    const cJSON *revision = cluster->json == NULL ? NULL
                                                  : json_at(cluster->json, "mirror.revision");

    return revision != NULL && revision->valuedouble >= (double)world_revision(world);
}

static void a_stopped_leader_writes_nothing_when_it_wakes(void **state)
{
    World *world = *state;
    Proc *first = stop_past_the_lease(world);

    world_poll(world, heard_of, first, "m-1 has caught up");
    publish_range(world, 60, 80);
    wait_assigned(world, 80);
    check(world, history_no_writes_of(world, "cache-assigner", "m-1", NULL));
    check(world, history_single_assignment(world));
    assert_true(metric(first, "leader{controller=\"cache-assigner\"}") < 1);
}

static gboolean was_refused(World *world, gpointer data)
{
    return metric(data, "fenced_writes_rejected_total") > 0;
}

/* Without the local deadline and without looking at its own leader key, and with the new leader stopped
 * too: what the old one then writes, nothing but the fence refuses. */
static void the_fence_alone_holds(void **state)
{
    World *world = *state;
    Proc *first = manager_start_program(world, "leasehold-faults", "m-1", unguarded), *second;

    world_wait(world, leads, &(Leads){"cache-assigner", "m-1", FALSE}, "m-1 leads");
    world_wait(world, leads, &(Leads){"replica-creator", "m-1", FALSE}, "m-1 creates");
    second = manager_start(world, "m-2", short_lease);
    prepare(world);
    publish_range(world, 0, 20);
    wait_assigned(world, 20);
    kill(proc_pid(first), SIGSTOP);
    world_wait(world, leads, &(Leads){"replica-creator", "m-2", FALSE}, "m-2 creates");
    world_wait(world, leads, &(Leads){"cache-assigner", "m-2", FALSE}, "m-2 leads");
    kill(proc_pid(second), SIGSTOP);
    publish_range(world, 20, 40);
    kill(proc_pid(first), SIGCONT);
    world_poll(world, was_refused, first, "etcd refuses a write of m-1");
    world_catch_up(world, world_revision(world));
    assert_int_equal(lh_mirror_count(world->mirror, LH_KIND_REPLICA), 20);
    kill(proc_pid(second), SIGCONT);
    wait_assigned(world, 40);
    check(world, history_no_writes_of(world, "cache-assigner", "m-1", NULL));
    check(world, history_single_assignment(world));
}

/* A lease of a minute: only its revocation can have let the next one lead. */
static void a_leader_that_leaves_hands_over_at_once(void **state)
{
    static const char *const long_lease[] = {"--lease-ttl", "60s", NULL};
    World *world = *state;
    Proc *first = manager_start(world, "m-1", long_lease);
    gint64 began, took;

    world_wait(world, leads, &(Leads){"cache-assigner", "m-1", FALSE}, "m-1 leads");
    manager_start(world, "m-2", long_lease);
    world_wait(world, leads, &(Leads){"cache-evictor", "m-1", FALSE}, "m-1 leads");
    began = lh_mono_ms(world->env);
    assert_int_equal(proc_stop(first), 0);
    world_wait(world, leads, &(Leads){"cache-assigner", "m-2", FALSE}, "m-2 leads");
    took = lh_mono_ms(world->env) - began;
    assert_true(took < 30000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_killed_leader_is_replaced_in_the_middle, world_setup,
                                        world_teardown),
        cmocka_unit_test_setup_teardown(a_stopped_leader_writes_nothing_when_it_wakes, world_setup,
                                        world_teardown),
        cmocka_unit_test_setup_teardown(the_fence_alone_holds, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(a_leader_that_leaves_hands_over_at_once, world_setup,
                                        world_teardown),
    };

    return cmocka_run_group_tests_name("integration-leaders", tests, NULL, NULL);
}
