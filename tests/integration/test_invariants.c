/*
 * A real etcd, managers and agents that are killed, and people who evict: its recorded history keeps the
 * invariants of the simulation. And what breaks one is found.
 */
#include "harness.h"
#include "tests/invariants/recorder.h"

#include <string.h>

#define SNAPSHOTS 6

static Recorder *record(World *world)
{
    g_autofree char *path = g_build_filename(world->dir, "history", NULL);
    g_autoptr(GError) error = NULL;
    Recorder *recorder = recorder_start(world->env, world->client, PREFIX, path, &error);
    if (recorder == NULL)
        world_fail(world, "%s", error->message);
    return recorder;
}

typedef struct {
    const Recorder *recorder;
    gint64 revision;
} Heard;

static gboolean has_heard(World *world, gpointer data)
{
    const Heard *heard = data;
    return recorder_error(heard->recorder) != NULL ||
           recorder_revision(heard->recorder) >= heard->revision;
}

/* Up to now; prints what was seen. */
static void check(World *world, Recorder *recorder, RecordedResult *result)
{
    const RecordedTolerance tolerance = RECORDED_TOLERANCE;
    Heard heard = {recorder,
                   world_put(world, "desired/services/end", "{\"spec\":{\"owner\":\"a\"}}")};
    world_poll(world, has_heard, &heard, "the recorder has heard of all");
    if (recorder_error(recorder) != NULL)
        world_fail(world, "%s", recorder_error(recorder));
    recorded_check(recorder_history(recorder), &tolerance, result);
    recorded_result_print(result, "# ", stdout);
}

static void publish(World *world)
{
    world_put(world, "desired/settings/cache-assigner", "{\"spec\":{\"failureGrace\":\"1s\"}}");
    world_put(world, "desired/services/x", "{\"spec\":{\"owner\":\"a\"}}");
    for (guint i = 0; i < SNAPSHOTS; i++) {
        g_autofree char *name = g_strdup_printf("s-%03u", i);
        snapshot_publish(world, name, "x", world->now_ms - (gint64)(i + 1) * 60000, 2, 4000);
    }
}

static gboolean nothing_is_left(World *world, gpointer data)
{
    return lh_mirror_count(world->mirror, LH_KIND_ASSIGNMENT) == 0 &&
           lh_mirror_count(world->mirror, LH_KIND_REPLICA) == 0;
}

static gboolean is_over(World *world, gpointer data)
{
    const LhRestoreProgress *progress = world_get(world, LH_KIND_RESTOREPROGRESS, "r");
    return progress != NULL && progress->phase == LH_RESTORE_COMPLETED;
}

static gboolean is_restored(World *world, gpointer data)
{
    const LhRestoreProgress *progress = world_get(world, LH_KIND_RESTOREPROGRESS, "r");
    return progress != NULL && progress->phase != LH_RESTORE_PENDING;
}

static void restore_old_data(World *world)
{
    world_put(world, "desired/services/old",
              "{\"spec\":{\"owner\":\"a\",\"retention\":\"90d\",\"cache\":{\"window\":\"1h\"}}}");
    snapshot_publish(world, "old-000", "old", world->now_ms - 30 * G_GINT64_CONSTANT(86400000), 1,
                     500);
    world_put(world, "desired/restores/r",
              "{\"spec\":{\"snapshots\":[\"old-000\"],\"ttl\":\"5s\"}}");
    world_wait(world, is_restored, NULL, "old data is restored");
}

static void deaths_and_evictions_keep_them(void **state)
{
    World *world = *state;
    Recorder *recorder = record(world);
    RecordedResult result;
    Proc *manager = manager_start(world, "manager-1", NULL);
    manager_start(world, "manager-2", NULL);
    Proc *agent = agent_start(world, &(AgentOptions){.name = "agent-1"});
    agent_start(world, &(AgentOptions){.name = "agent-2"});
    publish(world);
    world_wait_live(world, NULL, SNAPSHOTS);
    restore_old_data(world);
    proc_kill(manager);
    proc_kill(agent);
    world_wait_live(world, "s-", SNAPSHOTS);
    world_put(world, "desired/settings/cache-evictor", "{\"spec\":{\"evictGrace\":\"0s\"}}");
    world_put(world, "desired/services/x",
              "{\"spec\":{\"owner\":\"a\",\"cache\":{\"window\":\"1s\"}}}");
    world_wait(world, nothing_is_left, NULL, "no assignment and no replica is left");
    world_wait(world, is_over, NULL, "the restore is completed");
    check(world, recorder, &result);
    if (result.violations > 0)
        world_fail(world, "%s", (char *)result.said->pdata[0]);
    for (guint group = 0; group <= INV_HEALTH; group++) /* nothing is stuck or deleted here */
        assert_true(result.did[group] > 0);
    assert_true(result.did[INV_RESTORE] > 0);
    assert_true(result.counters.loads >= SNAPSHOTS);
    assert_true(result.counters.evictions > 0);
    assert_true(result.counters.lost > 0);
    assert_int_equal(result.counters.restored, 1);
    assert_int_equal(result.counters.restore_expiries, 1);
    assert_int_equal(result.counters.restores_completed, 1);
    recorded_result_clear(&result);
    recorder_free(recorder);
}

/* Nobody's leader key, and an assignment for a replica that does not exist. */
static void what_breaks_them_is_found(void **state)
{
    World *world = *state;
    Recorder *recorder = record(world);
    RecordedResult result;
    manager_start(world, "manager", NULL);
    agents_start(world, 1);
    publish(world);
    world_wait_live(world, NULL, SNAPSHOTS);
    gint64 revision = world_put(
        world, "decided/assignments/cache/agent-1-00000000/s-000.default.0",
        "{\"action\":\"load\",\"controller\":\"cache-assigner\",\"epoch\":1}");
    check(world, recorder, &result);
    assert_true(result.failed[INV_FENCE] > 0);
    assert_true(result.failed[INV_PLACEMENT] > 0);
    recorded_result_clear(&result);
    recorder_by_hand(recorder, revision);
    check(world, recorder, &result);
    assert_int_equal(result.failed[INV_FENCE], 0);
    recorded_result_clear(&result);
    recorder_free(recorder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(deaths_and_evictions_keep_them, world_setup,
                                        world_teardown),
        cmocka_unit_test_setup_teardown(what_breaks_them_is_found, world_setup, world_teardown),
    };
    return cmocka_run_group_tests_name("integration-invariants", tests, NULL, NULL);
}
