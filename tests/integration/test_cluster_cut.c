/*
 * A fleet on three etcd members, one of which is there and does not answer, or is cut off from the other
 * two while its clients still reach it. Leases of 5 s are kept through it.
 */
#include "fleet.h"

#define FROZEN_MS 20000 /* the scenario: four leases long */
#define CUT_MS    12000

static int setup(void **state)
{
    *state = world_new_with(&(WorldOptions){.members = 3, .relayed = TRUE});
    return 0;
}

static void a_member_in_use_is_frozen(void **state)
{
    World *world = *state;
    Fleet *fleet = fleet_start(world);
    guint member = fleet_member_of(fleet, 0);
    assert_true(etcd_cluster_move_leader(world->cluster, (member + 1) % 3, NULL));
    fleet_publish(fleet, 10);
    member = fleet_member_of(fleet, 0);
    etcd_process_freeze(etcd_cluster_member(world->cluster, member));
    fleet_pass(fleet, FROZEN_MS);
    assert_int_not_equal(fleet_member_of(fleet, 0), member);
    etcd_process_thaw(etcd_cluster_member(world->cluster, member));
    fleet_publish(fleet, 20);
    fleet_check(fleet);
    fleet_free(fleet);
}

/* It goes on to answer what needs no quorum. */
static void cut_off(World *world, gboolean leads)
{
    Fleet *fleet = fleet_start(world);
    guint member = fleet_member_of(fleet, 0);
    guint leader = leads ? member : (member + 1) % 3;
    assert_true(etcd_cluster_move_leader(world->cluster, leader, NULL));
    fleet_publish(fleet, 10);
    member = leads ? etcd_cluster_leader(world->cluster, -1) : fleet_member_of(fleet, 0);
    etcd_cluster_isolate(world->cluster, member);
    assert_int_not_equal(etcd_cluster_leader(world->cluster, (gint)member), member);
    fleet_pass(fleet, CUT_MS);
    for (guint i = 0; i < FLEET_MANAGERS; i++) {
        assert_int_not_equal(fleet_member_of(fleet, i), member);
    }
    etcd_cluster_join(world->cluster);
    fleet_publish(fleet, 20);
    fleet_check(fleet);
    fleet_free(fleet);
}

static void a_follower_is_cut_off(void **state)
{
    cut_off(*state, FALSE);
}

static void the_leader_is_cut_off(void **state)
{
    cut_off(*state, TRUE);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, world_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_member_in_use_is_frozen),
        TEST(a_follower_is_cut_off),
        TEST(the_leader_is_cut_off),
    };
    cmocka_set_test_filter(g_getenv("LEASEHOLD_TEST_ONLY"));
    return cmocka_run_group_tests_name("integration-cluster-cut", tests, NULL, NULL);
}
