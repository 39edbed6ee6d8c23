/*
 * A fleet on three etcd members, one of which is cut off from the other two while its clients still
 * reach it. Leases of 5 s are kept through it.
 */
#include "fleet.h"

#define CUT_MS 12000 /* the scenario: more than two leases */

static int setup(void **state)
{
    *state = world_new_with(&(WorldOptions){.members = 3, .relayed = TRUE});
    return 0;
}

static gboolean is_alone(World *world, gpointer data)
{
    return !etcd_cluster_has_leader(world->cluster, *(guint *)data);
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
    world_poll(world, is_alone, &member, "member %u has no leader", member);
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
        TEST(a_follower_is_cut_off),
        TEST(the_leader_is_cut_off),
    };
    cmocka_set_test_filter(g_getenv("LEASEHOLD_TEST_ONLY"));
    return cmocka_run_group_tests_name("integration-cluster-cut", tests, NULL, NULL);
}
