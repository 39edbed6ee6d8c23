/*
 * Edits of a Service converge: what is surplus goes, what stays is not touched, and no data at the
 * source ever is.
 */
#include "harness.h"

#include <string.h>

#define SNAPSHOTS 4
#define HOUR      3600000

static void set_up(World *world, const char *service)
{
    manager_ready(world, "manager");
    world_put(world, "desired/settings/cache-evictor", "{\"spec\":{\"evictGrace\":\"0s\"}}");
    world_put(world, "desired/settings/replica-creator", "{\"spec\":{\"debounce\":\"50ms\"}}");
    world_put(world, "desired/services/x", service);
    for (guint i = 0; i < SNAPSHOTS; i++) {
        g_autofree char *name = g_strdup_printf("x-%u", i);
        snapshot_publish(world, name, "x", world->now_ms - HOUR, 2, 1000);
    }
}

static void agents_of(World *world, const char *set, guint n)
{
    for (guint i = 0; i < n; i++) {
        g_autofree char *name = g_strdup_printf("%s-%u", set, i);
        agent_start(world, &(AgentOptions){.name = name, .set = set});
    }
}

static gboolean is_settled(World *world, gpointer data)
{
    guint n = *(guint *)data;
    return world_live(world, NULL) == n && lh_mirror_count(world->mirror, LH_KIND_ITEM) == n &&
           lh_mirror_count(world->mirror, LH_KIND_ASSIGNMENT) == n &&
           lh_mirror_count(world->mirror, LH_KIND_SEARCH) == n &&
           lh_mirror_count(world->mirror, LH_KIND_REPLICA) == n;
}

static void wait_settled(World *world, guint n)
{
    world_wait(world, is_settled, &n, "%u replicas, each live, and nothing else", n);
}

/* The source is as it was published. */
static void check_source(World *world)
{
    for (guint i = 0; i < SNAPSHOTS; i++) {
        g_autofree char *name = g_strdup_printf("x-%u", i);
        g_autofree char *now = snapshot_value(world, name, "x", world->now_ms - HOUR);
        g_autofree char *key = g_strconcat("published/snapshots/", name, NULL);
        g_autoptr(GPtrArray) there = world_range(world, "published/snapshots/");
        gboolean same = FALSE;
        for (guint j = 0; j < there->len; j++) {
            const Kv *kv = g_ptr_array_index(there, j);
            same |= strcmp(kv->key, key) == 0 && strcmp(kv->value, now) == 0;
        }
        assert_true(same);
    }
}

/* Of the items whose name ends in @suffix, none was ordered away. */
static void check_never_evicted(World *world, gint64 after, const char *suffix)
{
    g_autoptr(GPtrArray) history = world_history(world, after);
    for (guint i = 0; i < history->len; i++) {
        const Kv *kv = g_ptr_array_index(history, i);
        if (g_str_has_prefix(kv->key, "decided/assignments/") &&
            g_str_has_suffix(kv->key, suffix)) {
            world_fail(world, "%s was changed at revision %" G_GINT64_FORMAT, kv->key, kv->mod_rev);
        }
    }
}

static void fewer_replicas_evict_the_surplus(void **state)
{
    World *world = *state;
    set_up(world, "{\"spec\":{\"owner\":\"a\",\"cache\":{\"replicas\":2}}}");
    agents_of(world, "default", 3);
    wait_settled(world, 2 * SNAPSHOTS);
    gint64 before = world_put(world, "desired/services/x",
                              "{\"spec\":{\"owner\":\"a\",\"cache\":{\"replicas\":1}}}");
    wait_settled(world, SNAPSHOTS);
    check_never_evicted(world, before, ".default.0");
    check_source(world);
    world_put(world, "desired/services/x",
              "{\"spec\":{\"owner\":\"a\",\"cache\":{\"replicas\":3}}}");
    wait_settled(world, 3 * SNAPSHOTS);
}

static void a_removed_set_is_evicted(void **state)
{
    World *world = *state;
    set_up(world, "{\"spec\":{\"owner\":\"a\",\"cache\":{\"sets\":[\"default\",\"extra\"]}}}");
    agents_of(world, "default", 1);
    agents_of(world, "extra", 1);
    wait_settled(world, 2 * SNAPSHOTS);
    gint64 before = world_put(world, "desired/services/x",
                              "{\"spec\":{\"owner\":\"a\",\"cache\":{\"sets\":[\"default\"]}}}");
    wait_settled(world, SNAPSHOTS);
    check_never_evicted(world, before, ".default.0");
    check_source(world);
}

static gboolean miss_their_service(World *world, gpointer data)
{
    for (guint i = 0; i < SNAPSHOTS; i++) {
        g_autofree char *status = g_strdup_printf("snapshots/x-%u/replica-creator", i);
        const LhCondition *missing = world_condition(world, status, "ServiceMissing");
        if ((missing != NULL && missing->status == LH_CONDITION_TRUE) != *(gboolean *)data) {
            return FALSE;
        }
    }
    return TRUE;
}

static void a_deleted_service_leaves_the_data(void **state)
{
    World *world = *state;
    gboolean missing = TRUE;
    set_up(world, "{\"spec\":{\"owner\":\"a\"}}");
    agents_of(world, "default", 2);
    wait_settled(world, SNAPSHOTS);
    world_delete(world, "desired/services/x");
    wait_settled(world, 0);
    world_wait(world, miss_their_service, &missing, "every snapshot says ServiceMissing=True");
    check_source(world);
    missing = FALSE;
    world_put(world, "desired/services/x", "{\"spec\":{\"owner\":\"a\"}}");
    wait_settled(world, SNAPSHOTS);
    world_wait(world, miss_their_service, &missing, "no snapshot says ServiceMissing any more");
}

/* Their files go from the nodes' disks, too. */
static gboolean disks_are_empty(World *world, gpointer data)
{
    g_autofree char *dir = g_strdup_printf("%s/default-0", world->dir);
    g_autoptr(Run) found = run(world, "find", dir, "-name", "part-*", NULL);
    return found->code == 0 && found->out[0] == '\0';
}

static void evicted_data_leaves_the_disk(void **state)
{
    World *world = *state;
    set_up(world, "{\"spec\":{\"owner\":\"a\"}}");
    agents_of(world, "default", 1);
    wait_settled(world, SNAPSHOTS);
    assert_false(disks_are_empty(world, NULL));
    world_delete(world, "desired/services/x");
    wait_settled(world, 0);
    world_poll(world, disks_are_empty, NULL, "the files are gone from the node's disk");
    check_source(world);
}

static gboolean expire_after(World *world, gpointer data)
{
    gint64 window_ms = *(gint64 *)data;
    g_autoptr(GPtrArray) replicas = lh_mirror_list(world->mirror, LH_KIND_REPLICA);
    for (guint i = 0; i < replicas->len; i++) {
        const LhReplica *replica = g_ptr_array_index(replicas, i);
        if (replica->expires_at != world->now_ms - HOUR + window_ms) {
            return FALSE;
        }
    }
    return replicas->len == SNAPSHOTS;
}

static void the_window_decides_when_replicas_expire(void **state)
{
    static const struct {
        const char *window;
        gint64 ms;
    } rows[] = {{"12h", 12 * HOUR}, {"2d", 48 * HOUR}, {"90m", HOUR * 3 / 2}};
    World *world = *state;
    gint64 day_ms = 24 * HOUR;
    set_up(world, "{\"spec\":{\"owner\":\"a\"}}");
    agents_of(world, "default", 1);
    wait_settled(world, SNAPSHOTS);
    assert_true(expire_after(world, &day_ms));
    gint64 before = world_revision(world);
    for (guint i = 0; i < G_N_ELEMENTS(rows); i++) {
        gint64 ms = rows[i].ms;
        world_putf(world, "desired/services/x",
                   "{\"spec\":{\"owner\":\"a\",\"cache\":{\"window\":\"%s\"}}}", rows[i].window);
        world_wait(world, expire_after, &ms, "expiresAt is endTime + %s", rows[i].window);
    }
    check_never_evicted(world, before, ".default.0");
    world_put(world, "desired/services/x",
              "{\"spec\":{\"owner\":\"a\",\"cache\":{\"window\":\"30m\"}}}");
    wait_settled(world, 0);
    check_source(world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(fewer_replicas_evict_the_surplus, world_setup,
                                        world_teardown),
        cmocka_unit_test_setup_teardown(a_removed_set_is_evicted, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(a_deleted_service_leaves_the_data, world_setup,
                                        world_teardown),
        cmocka_unit_test_setup_teardown(evicted_data_leaves_the_disk, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(the_window_decides_when_replicas_expire, world_setup,
                                        world_teardown),
    };
    return cmocka_run_group_tests_name("integration-edits", tests, NULL, NULL);
}
