/*
 * A published snapshot becomes live, with nothing but etcdctl and curl: two copies on two nodes,
 * two search keys, and files that equal the originals.
 */
#include "harness.h"

#include <string.h>

#define SNAPSHOTS 3
#define FILES     3

static void publish_by_etcdctl(World *world, const char *name)
{
    g_autofree char *key = g_strconcat("/leasehold/published/snapshots/", name, NULL);
    snapshot_files(world, name, FILES, 20000);
    g_autofree char *value = snapshot_value(world, name, "x", world->now_ms - 60000);
    etcdctl(world, "put", key, value, NULL);
}

/* What `etcdctl get --prefix KEY` prints, one line for each key and each value. */
static char **etcdctl_get(World *world, const char *key)
{
    g_autoptr(Run) got = run(world, "etcdctl", "--endpoints", etcd_process_endpoint(world->etcd),
                             "get", "--prefix", key, NULL);
    assert_int_equal(got->code, 0);
    return g_strsplit(g_strchomp(got->out), "\n", -1);
}

static void check_file(World *world, const char *url, const char *snapshot, guint i)
{
    g_autofree char *file = g_strdup_printf("part-%u", i);
    g_autofree char *path = snapshot_path(world, snapshot, file);
    g_autofree char *copy = g_strdup_printf("%s/fetched", world->dir);
    g_autofree char *from = g_strconcat(url, g_str_has_suffix(url, "/") ? "" : "/", file, NULL);
    g_autoptr(Run) curl = run(world, "curl", "-sS", "--fail", "--noproxy", "*", "-o", copy, from,
                              NULL);
    if (curl->code != 0) {
        fail_msg("curl %s: %s", from, curl->err);
    }
    g_autoptr(Run) compared = run(world, "cmp", copy, path, NULL);
    assert_int_equal(compared->code, 0);
}

/* Follows the url of every search key; the names of the nodes must differ. */
static void check_snapshot(World *world, const char *snapshot)
{
    g_auto(GStrv) lines = etcdctl_get(world, "/leasehold/actual/search/cache/");
    g_autoptr(GHashTable) nodes = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
    g_autofree char *tail = g_strconcat("/", snapshot, NULL);
    for (guint i = 0; lines[i] != NULL && lines[i + 1] != NULL; i += 2) {
        if (!g_str_has_suffix(lines[i], tail)) {
            continue;
        }
        g_autoptr(cJSON) search = cJSON_Parse(lines[i + 1]);
        assert_string_equal(json_text(search, "snapshot"), snapshot);
        g_hash_table_add(nodes, lh_node_name_of(json_text(search, "node")));
        for (guint file = 0; file < FILES; file++) {
            check_file(world, json_text(search, "url"), snapshot, file);
        }
    }
    assert_int_equal(g_hash_table_size(nodes), 2);
}

static void check_items(World *world)
{
    g_auto(GStrv) lines = etcdctl_get(world, "/leasehold/actual/items/cache/");
    guint live = 0;
    for (guint i = 0; lines[i] != NULL && lines[i + 1] != NULL; i += 2) {
        g_autoptr(cJSON) item = cJSON_Parse(lines[i + 1]);
        live += strcmp(json_text(item, "state"), "live") == 0;
    }
    assert_int_equal(live, 2 * SNAPSHOTS);
}

static void published_snapshots_become_live_on_two_nodes(void **state)
{
    World *world = *state;
    manager_start(world, "manager", NULL);
    agents_start(world, 3);
    etcdctl(world, "put", "/leasehold/desired/services/x",
            "{\"spec\":{\"owner\":\"a\",\"cache\":{\"replicas\":2}}}", NULL);
    for (guint i = 0; i < SNAPSHOTS; i++) {
        g_autofree char *name = g_strdup_printf("x-%u", i);
        publish_by_etcdctl(world, name);
    }
    world_wait_live(world, NULL, 2 * SNAPSHOTS);
    check_items(world);
    for (guint i = 0; i < SNAPSHOTS; i++) {
        g_autofree char *name = g_strdup_printf("x-%u", i);
        check_snapshot(world, name);
    }
}

/* Zones a, a, b: the copies of a snapshot lie in both. */
static void copies_lie_in_different_zones(void **state)
{
    static const char *const zones[] = {"a", "a", "b"};
    World *world = *state;
    manager_start(world, "manager", NULL);
    for (guint i = 0; i < G_N_ELEMENTS(zones); i++) {
        g_autofree char *name = g_strdup_printf("%s-%u", zones[i], i);
        agent_start(world, &(AgentOptions){.name = name, .zone = zones[i]});
    }
    world_put(world, "desired/services/x",
              "{\"spec\":{\"owner\":\"a\",\"cache\":{\"replicas\":2}}}");
    for (guint i = 0; i < SNAPSHOTS; i++) {
        g_autofree char *name = g_strdup_printf("x-%u", i);
        snapshot_publish(world, name, "x", world->now_ms - 1000, 1, 1000);
    }
    world_wait_live(world, NULL, 2 * SNAPSHOTS);
    g_autoptr(GPtrArray) orders = lh_mirror_list(world->mirror, LH_KIND_ASSIGNMENT);
    guint in_b = 0;
    for (guint i = 0; i < orders->len; i++) {
        const LhObject *order = g_ptr_array_index(orders, i);
        in_b += strstr(order->name, "/b-2-") != NULL;
    }
    assert_int_equal(in_b, SNAPSHOTS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(published_snapshots_become_live_on_two_nodes, world_setup,
                                        world_teardown),
        cmocka_unit_test_setup_teardown(copies_lie_in_different_zones, world_setup, world_teardown),
    };
    return cmocka_run_group_tests_name("integration-publish", tests, NULL, NULL);
}
