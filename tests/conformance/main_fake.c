/*
 * The conformance suite against the fake etcd, under virtual time.
 *
 * Argument: the seed, 1 by default. Even seeds let watches fall behind now and then.
 */
#include "base/log.h"
#include "suite.h"
#include "tests/fakes/env_sim.h"
#include "tests/fakes/fake_etcd.h"

#include <stdlib.h>

typedef struct {
    Driver driver;
    SimWorld *world;
    FakeEtcd *server;
    FakeEtcdBackup *backup;
} FakeDriver;

static gboolean fake_run_until(Driver *base, Condition condition, gpointer data, gint64 within_ms)
{
    SimWorld *world = ((FakeDriver *)base)->world;
    gint64 deadline = sim_world_now_ms(world) + within_ms;
    while (!condition(data)) {
        if (sim_world_next_ms(world) > deadline) {
            sim_world_run_until(world, deadline);
            return condition(data);
        }
        sim_world_step(world);
    }
    return TRUE;
}

static LhEtcd *fake_connect(Driver *base)
{
    FakeDriver *fake = (FakeDriver *)base;
    return fake_etcd_connect(fake->server, fake->driver.env, "another");
}

static void fake_compact(Driver *base, gint64 at_revision)
{
    fake_etcd_compact(((FakeDriver *)base)->server, at_revision);
}

static void fake_freeze(Driver *base)
{
    fake_etcd_freeze(((FakeDriver *)base)->server);
}

static void fake_thaw(Driver *base)
{
    fake_etcd_thaw(((FakeDriver *)base)->server);
}

static void fake_restart(Driver *base)
{
    FakeDriver *fake = (FakeDriver *)base;
    fake_etcd_stop(fake->server);
    sim_world_run_until(fake->world, sim_world_now_ms(fake->world) + 1500);
    fake_etcd_start(fake->server);
}

static void fake_back_up(Driver *base)
{
    FakeDriver *fake = (FakeDriver *)base;
    fake_etcd_backup_free(fake->backup);
    fake->backup = fake_etcd_backup(fake->server);
}

static void fake_restore(Driver *base)
{
    fake_etcd_restore(((FakeDriver *)base)->server, ((FakeDriver *)base)->backup);
}

static void fake_set_nospace(Driver *base, gboolean on)
{
    fake_etcd_set_nospace(((FakeDriver *)base)->server, on, 0);
}

int main(int argc, char **argv)
{
    guint64 seed = argc > 1 ? g_ascii_strtoull(argv[1], NULL, 10) : 1;
    SimWorld *world = sim_world_new(seed);
    LhEnv *server_env = sim_machine_new(world, "etcd");
    const FakeEtcdOptions options = {.fragment_events = 16,
                                     .lag_permille = seed % 2 == 0 ? 300 : 0};
    FakeEtcd *server = fake_etcd_new(server_env, &options);
    LhEnv *env = sim_machine_new(world, "client");
    FakeDriver fake = {.world = world,
                       .server = server,
                       .driver = {.version = "3.5.99",
                                  .env = env,
                                  .etcd = fake_etcd_connect(server, env, "client"),
                                  .connect = fake_connect,
                                  .run_until = fake_run_until,
                                  .compact = fake_compact,
                                  .freeze = fake_freeze,
                                  .thaw = fake_thaw,
                                  .restart = fake_restart,
                                  .back_up = fake_back_up,
                                  .restore = fake_restore,
                                  .set_nospace = fake_set_nospace}};
    lh_log_setup(LH_LOG_ERROR, LH_LOG_TEXT); /* lost leases are wanted here */
    int failed = suite_run(&fake.driver, "conformance-fake", NULL);
    lh_etcd_free(fake.driver.etcd);
    fake_etcd_backup_free(fake.backup);
    fake_etcd_free(server);
    sim_world_free(world);
    return failed;
}
