/*
 * A fleet on three etcd members, one of which is killed, leads no more, or comes back: nothing is lost,
 * nothing is done twice, and everybody keeps the lease of 5 s.
 */
#include "fleet.h"

static int setup(void **state)
{
    *state = world_new_with(&(WorldOptions){.members = 3});
    return 0;
}

static void restart(World *world, guint member)
{
    g_autoptr(GError) error = NULL;
    if (!etcd_process_restart(etcd_cluster_member(world->cluster, member), &error)) {
        world_fail(world, "%s", error->message);
    }
}

static void a_follower_is_killed(void **state)
{
    World *world = *state;
    Fleet *fleet = fleet_start(world);
    guint leader = etcd_cluster_leader(world->cluster, -1);
    guint used = fleet_member_of(fleet, 0);
    guint victim = used != leader ? used : (leader + 1) % 3;
    fleet_publish(fleet, 20);
    etcd_process_kill(etcd_cluster_member(world->cluster, victim));
    fleet_publish(fleet, 60);
    fleet_pass(fleet, 6000); /* more than a lease */
    restart(world, victim);
    fleet_publish(fleet, 20);
    fleet_check(fleet);
    fleet_free(fleet);
}

static void the_leader_is_killed_and_comes_back(void **state)
{
    World *world = *state;
    Fleet *fleet = fleet_start(world);
    /* A manager uses the one that dies. */
    guint victim = fleet_member_of(fleet, 0);
    assert_true(etcd_cluster_move_leader(world->cluster, victim, NULL));
    fleet_publish(fleet, 20);
    victim = etcd_cluster_leader(world->cluster, -1);
    etcd_process_kill(etcd_cluster_member(world->cluster, victim));
    fleet_publish(fleet, 60);
    fleet_pass(fleet, 6000);
    restart(world, victim);
    fleet_publish(fleet, 20);
    fleet_check(fleet);
    fleet_free(fleet);
}

static void leadership_moves_under_load(void **state)
{
    World *world = *state;
    Fleet *fleet = fleet_start(world);
    for (guint round = 0; round < 3; round++) {
        guint from = etcd_cluster_leader(world->cluster, -1);
        assert_true(etcd_cluster_move_leader(world->cluster, (from + 1) % 3, NULL));
        fleet_publish(fleet, 30);
    }
    fleet_check(fleet);
    fleet_free(fleet);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, world_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_follower_is_killed),
        TEST(the_leader_is_killed_and_comes_back),
        TEST(leadership_moves_under_load),
    };
    cmocka_set_test_filter(g_getenv("LEASEHOLD_TEST_ONLY"));
    return cmocka_run_group_tests_name("integration-cluster", tests, NULL, NULL);
}
