/*
 * Too little room: the freshest are live, the rest waits and is counted; room that comes is used,
 * and nothing that was live moves for it.
 */
#include "harness.h"

#include <math.h>
#include <string.h>

#define SNAPSHOTS 200
#define BYTES     1000
#define AGENTS    6
#define EACH      25
#define FIT       (AGENTS * EACH)
#define MISSING   (SNAPSHOTS - FIT)

/* s-000 is the freshest. */
static void publish_all(World *world)
{
    for (guint i = 0; i < SNAPSHOTS; i++) {
        g_autofree char *name = g_strdup_printf("s-%03u", i);
        snapshot_publish(world, name, "x", world->now_ms - (gint64)(i + 1) * 60000, 1, BYTES);
    }
}

static gboolean has_replicas(World *world, gpointer data)
{
    return lh_mirror_count(world->mirror, LH_KIND_REPLICA) == *(guint *)data;
}

static gboolean lacks_capacity(World *world, gpointer data)
{
    const LhCondition *condition = world_condition(world, "settings/cache-assigner/cache-assigner",
                                                   "Capacity");
    const char *bytes = data;
    return condition != NULL && condition->status == LH_CONDITION_FALSE &&
           strstr(condition->message, bytes) != NULL;
}

static gboolean has_capacity(World *world, gpointer data)
{
    const LhCondition *condition = world_condition(world, "settings/cache-assigner/cache-assigner",
                                                   "Capacity");
    return condition == NULL || condition->status == LH_CONDITION_TRUE;
}

static void check_metrics(Proc *manager, guint waiting)
{
    assert_true(metric(manager, "unassigned_items{pool=\"cache\",set=\"default\"}") == waiting);
    assert_true(metric(manager, "unassigned_bytes{pool=\"cache\",set=\"default\"}") ==
                (double)waiting * BYTES);
}

static void check_freshest(World *world)
{
    g_autoptr(GPtrArray) waiting = world_replicas(world, FALSE);
    assert_int_equal(waiting->len, MISSING);
    for (guint i = 0; i < waiting->len; i++) {
        g_autofree char *expected = g_strdup_printf("s-%03u.default.0", FIT + i);
        assert_string_equal(g_ptr_array_index(waiting, i), expected);
    }
}

/* No node ever had more assignments than it has room for, and none that was there before was
 * touched after @revision. */
static void check_history(World *world, gint64 revision)
{
    g_autoptr(GPtrArray) history = world_history(world, 0);
    g_autoptr(GHashTable) held = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
    const char *prefix = "decided/assignments/cache/";
    guint changes = 0;
    for (guint i = 0; i < history->len; i++) {
        const Kv *kv = g_ptr_array_index(history, i);
        if (!g_str_has_prefix(kv->key, prefix)) {
            continue;
        }
        changes++;
        if (kv->is_delete || kv->create_rev != kv->mod_rev) {
            world_fail(world, "%s was changed at revision %" G_GINT64_FORMAT, kv->key, kv->mod_rev);
        }
        g_autofree char *node = lh_name_part(kv->key + strlen("decided/assignments/"), 1);
        guint n = GPOINTER_TO_UINT(g_hash_table_lookup(held, node)) + 1;
        assert_true(n <= (kv->mod_rev <= revision ? EACH : MISSING));
        g_hash_table_insert(held, g_steal_pointer(&node), GUINT_TO_POINTER(n));
    }
    assert_int_equal(changes, SNAPSHOTS);
    assert_int_equal(g_hash_table_size(held), AGENTS + 1);
}

static void the_freshest_are_live_and_the_rest_waits(void **state)
{
    World *world = *state;
    Proc *manager = manager_start(world, "manager", NULL);
    guint replicas = SNAPSHOTS;
    world_put(world, "desired/settings/cache-assigner",
              "{\"spec\":{\"restoreReservePercent\":0,\"maxConcurrentLoads\":25}}");
    world_put(world, "desired/services/x", "{\"spec\":{\"owner\":\"a\"}}");
    publish_all(world);
    world_wait(world, has_replicas, &replicas, "%u replicas are created", replicas);
    for (guint i = 1; i <= AGENTS; i++) {
        g_autofree char *name = g_strdup_printf("agent-%u", i);
        agent_start(world, &(AgentOptions){.name = name, .items = G_STRINGIFY(EACH)});
    }
    world_wait_live(world, NULL, FIT);
    check_freshest(world);
    g_autofree char *bytes = g_strdup_printf("%d", MISSING * BYTES);
    world_wait(world, lacks_capacity, bytes, "Capacity=False says that %s bytes are missing",
               bytes);
    world_wait_event(world, "InsufficientCapacity", NULL);
    check_metrics(manager, MISSING);
    g_autoptr(Reply) shown = http(manager, "GET", "/v1/settings/cache-assigner", NULL);
    reply_must(shown, 200);
    assert_non_null(strstr(shown->body->str, "\"Capacity\""));

    gint64 revision = world_revision(world);
    g_autofree char *room = g_strdup_printf("%d", MISSING);
    agent_start(world, &(AgentOptions){.name = "agent-7", .items = room});
    world_wait_live(world, NULL, SNAPSHOTS);
    world_wait(world, has_capacity, NULL, "Capacity is no longer False");
    check_metrics(manager, 0);
    check_history(world, revision);
}

/* 10,500 bytes, of which 10 % are kept for restored data: nine times 1,000 fit. */
static void bytes_are_counted_and_the_reserve_is_kept(void **state)
{
    World *world = *state;
    guint replicas = 12;
    Proc *manager = manager_start(world, "manager", NULL);
    world_put(world, "desired/services/x", "{\"spec\":{\"owner\":\"a\"}}");
    for (guint i = 0; i < replicas; i++) {
        g_autofree char *name = g_strdup_printf("s-%03u", i);
        snapshot_publish(world, name, "x", world->now_ms - (gint64)(i + 1) * 60000, 1, BYTES);
    }
    world_wait(world, has_replicas, &replicas, "%u replicas are created", replicas);
    agent_start(world, &(AgentOptions){.name = "agent-1", .capacity = "10500"});
    world_wait_live(world, NULL, 9);
    world_wait(world, lacks_capacity, (gpointer) "3000",
               "Capacity=False says that 3000 bytes are missing");
    check_metrics(manager, 3);
    g_autoptr(GPtrArray) waiting = world_replicas(world, FALSE);
    assert_int_equal(waiting->len, 3);
    assert_string_equal(g_ptr_array_index(waiting, 0), "s-009.default.0");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_freshest_are_live_and_the_rest_waits, world_setup,
                                        world_teardown),
        cmocka_unit_test_setup_teardown(bytes_are_counted_and_the_reserve_is_kept, world_setup,
                                        world_teardown),
    };
    return cmocka_run_group_tests_name("integration-capacity", tests, NULL, NULL);
}
