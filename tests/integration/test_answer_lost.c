/*
 * etcd does what manager or agent ask for, and its answer is lost with the connection: they find out what
 * was done, and do nothing twice.
 */
#include "history.h"
#include "tests/fakes/relay.h"

#include <string.h>

#define ORDERS "decided/assignments/cache/"
#define ITEMS  "actual/items/cache/"

static Relay *relay_to_etcd(World *world, char **endpoint)
{
    const char *etcd = etcd_process_endpoint(world->etcd);
    Relay *relay = relay_new((guint16)g_ascii_strtoull(strrchr(etcd, ':') + 1, NULL, 10));
    *endpoint = g_strdup_printf("127.0.0.1:%u", relay_port(relay));
    return relay;
}

static gboolean is_withheld(World *world, gpointer data)
{
    (void)world;
    return relay_withheld(data) > 0;
}

static void check(World *world, char *wrong)
{
    g_autofree char *text = wrong;
    if (text != NULL) {
        world_fail(world, "%s", text);
    }
}

/* @victim's connection loses the answer to its first write of a key that holds @marker. */
static void lose_answer(World *world, Relay *victim, const char *marker)
{
    relay_mute(victim, marker);
    snapshot_publish(world, "s-2", "x", world->now_ms, 1, 1000);
    world_poll(world, is_withheld, victim, "etcd answers a write of %s", marker);
    relay_mute(victim, NULL);
    relay_cut_muted(victim);
    world_wait_live(world, NULL, 2);
    snapshot_publish(world, "s-3", "x", world->now_ms, 1, 1000);
    world_wait_live(world, NULL, 3);
    check(world, history_single_assignment(world));
    check(world, history_written_once(world, ORDERS));
    check(world, history_written_once(world, "decided/replicas/"));
    check(world, history_written_once(world, "actual/search/"));
    check(world, history_item_states(world));
}

typedef struct {
    Relay *manager, *agent;
    char *manager_endpoint, *agent_endpoint;
} Relays;

static Relays start_all(World *world)
{
    static const char *const long_lease[] = {"--lease-ttl", "30s", NULL};
    Relays relays;
    relays.manager = relay_to_etcd(world, &relays.manager_endpoint);
    relays.agent = relay_to_etcd(world, &relays.agent_endpoint);
    world_put(world, "desired/settings/replica-creator", "{\"spec\":{\"debounce\":\"0s\"}}");
    world_put(world, "desired/services/x", "{\"spec\":{\"owner\":\"a\"}}");
    world->access.endpoints = relays.manager_endpoint;
    manager_start(world, "manager", long_lease);
    world->access.endpoints = relays.agent_endpoint;
    agent_start(world, &(AgentOptions){.name = "agent", .extra = long_lease});
    snapshot_publish(world, "s-1", "x", world->now_ms, 1, 1000);
    world_wait_live(world, NULL, 1);
    return relays;
}

/* The programs end first: they still talk through the relays. */
static void end_all(World *world, Relays *relays)
{
    for (guint i = 0; i < world->procs->len; i++) {
        assert_int_equal(proc_stop(world->procs->pdata[i]), 0);
    }
    relay_free(relays->manager);
    relay_free(relays->agent);
    g_free(relays->manager_endpoint);
    g_free(relays->agent_endpoint);
}

static void of_an_order(void **state)
{
    World *world = *state;
    Relays relays = start_all(world);
    lose_answer(world, relays.manager, ORDERS "agent-");
    end_all(world, &relays);
}

static void of_a_replica(void **state)
{
    World *world = *state;
    Relays relays = start_all(world);
    lose_answer(world, relays.manager, "decided/replicas/s-2");
    end_all(world, &relays);
}

static void of_an_item(void **state)
{
    World *world = *state;
    Relays relays = start_all(world);
    lose_answer(world, relays.agent, ITEMS "agent-");
    end_all(world, &relays);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, world_setup, world_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(of_an_order),
        TEST(of_a_replica),
        TEST(of_an_item),
    };
    cmocka_set_test_filter(g_getenv("LEASEHOLD_TEST_ONLY"));
    return cmocka_run_group_tests_name("integration-answer-lost", tests, NULL, NULL);
}
