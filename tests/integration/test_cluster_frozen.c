/*
 * A fleet on three etcd members, one of which is there and does not answer: who uses it goes to another in
 * time for leases of 5 s.
 */
#include "fleet.h"

#define FROZEN_MS 20000 /* the scenario: four leases long */

static int setup(void **state)
{
    *state = world_new_with(&(WorldOptions){.members = 3});
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

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, world_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_member_in_use_is_frozen),
    };
    return cmocka_run_group_tests_name("integration-cluster-frozen", tests, NULL, NULL);
}
