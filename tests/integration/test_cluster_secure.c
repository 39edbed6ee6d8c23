/*
 * A fleet on three etcd members with TLS and users: tokens that live for 2 s, and certificates of which
 * even the authority is replaced, member by member, while everything runs.
 */
#include "fleet.h"

#include <glib/gstdio.h>

static int setup(void **state)
{
    static const char *const args[] = {"--auth-token-ttl=2", NULL};
    *state = world_new_with(
        &(WorldOptions){.members = 3, .args = args, .tls = TRUE, .users = TRUE});
    return 0;
}

/* The load pauses for longer than a token lives, so that tokens do run out. */
static void tokens_run_out(void **state)
{
    World *world = *state;
    Fleet *fleet = fleet_start_as_users(world);
    for (guint round = 0; round < 3; round++) {
        fleet_publish(fleet, 20);
        fleet_rest(fleet, 3500);
    }
    fleet_publish(fleet, 20);
    fleet_check(fleet);
    fleet_free(fleet);
}

static void restart(World *world, guint member)
{
    g_autoptr(GError) error = NULL;
    if (!etcd_process_restart(etcd_cluster_member(world->cluster, member), &error)) {
        world_fail(world, "%s", error->message);
    }
}

/* First everybody trusts both authorities, then the members get certificates of the new one and are
 * restarted one by one, then the old one is trusted no more. */
static void authority_replaced(void **state)
{
    World *world = *state;
    Fleet *fleet = fleet_start_as_users(world);
    g_autofree char *old = NULL, *new = NULL;
    g_auto(CertFiles) next = certs_authority(world->certs, "next-ca");
    assert_true(g_file_get_contents(world->ca.cert, &old, NULL, NULL));
    assert_true(g_file_get_contents(next.cert, &new, NULL, NULL));
    g_autofree char *both = g_strconcat(old, new, NULL);
    fleet_publish(fleet, 10);
    assert_true(g_file_set_contents(world->ca.cert, both, -1, NULL));
    CertFiles server = certs_issue(world->certs, "server", &next,
                                   &(CertSpec){.cn = "etcd", .names = "IP:127.0.0.1"});
    certs_clear(&server);
    fleet_publish(fleet, 10);
    for (guint i = 0; i < 3; i++) {
        restart(world, i);
        fleet_publish(fleet, 20);
    }
    assert_true(g_file_set_contents(world->ca.cert, new, -1, NULL));
    restart(world, fleet_member_of(fleet, 0));
    fleet_publish(fleet, 40);
    fleet_check(fleet);
    fleet_free(fleet);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, world_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(tokens_run_out),
        TEST(authority_replaced),
    };
    cmocka_set_test_filter(g_getenv("LEASEHOLD_TEST_ONLY"));
    return cmocka_run_group_tests_name("integration-cluster-secure", tests, NULL, NULL);
}
