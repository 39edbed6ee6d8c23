/*
 * An agent that is killed in the middle of a load from S3: started again under its name, on its
 * directory, it asks the server only for what is missing.
 */
#include "s3_snapshots.h"
#include "tests/fakes/s3_faults.h"

#include <string.h>

#define FILES      30
#define WHOLE      18 /* so many are there when the agent is killed */
#define FILE_BYTES 100000
#define URI        "s3://b/s/"

static char *names[FILES];
static S3File files[FILES];

static int make_files(void **state)
{
    for (guint i = 0; i < FILES; i++) {
        names[i] = g_strdup_printf("part-%02u", i);
        files[i] = (S3File){names[i], FILE_BYTES};
    }
    return 0;
}

static int free_files(void **state)
{
    for (guint i = 0; i < FILES; i++) {
        g_free(names[i]);
    }
    return 0;
}

/* @stalls: the files after the first WHOLE ones stall in their middle. */
static S3Faults *server_new(gboolean stalls)
{
    S3Faults *server = s3_faults_new();
    for (guint i = 0; i < FILES; i++) {
        g_autofree char *path = g_strdup_printf("/b/s/%s", names[i]);
        g_autofree char *match = g_strconcat(path, " ", NULL);
        g_autofree guint8 *data = s3_bytes(URI, &files[i]);
        s3_faults_put(server, path, data, FILE_BYTES);
        if (stalls && i >= WHOLE) {
            s3_faults_add(server, &(S3Fault){.match = match,
                                             .times = 1000,
                                             .kind = S3_FAULT_STALL,
                                             .after = FILE_BYTES / 2});
        }
    }
    return server;
}

static guint count(S3Faults *server, guint i)
{
    g_autofree char *match = g_strdup_printf("/b/s/%s ", names[i]);
    return s3_faults_count(server, match);
}

static gboolean has_copied(World *world, gpointer agent)
{
    return metric(agent, "agent_copied_bytes_total") == (double)WHOLE * FILE_BYTES;
}

static void only_what_is_missing_is_copied(void **state)
{
    World *world = *state;
    S3Faults *stalling = server_new(TRUE), *good = server_new(FALSE);
    manager_ready(world, "manager");
    g_autofree char *access = s3_secret_file(world, "access", "somebody");
    g_autofree char *secret = s3_secret_file(world, "secret", "something");
    Proc *first = s3_agent(world, "agent", "default", s3_faults_endpoint(stalling), "s3://b/",
                           access, secret);
    world_put(world, "desired/services/x", "{\"spec\":{\"owner\":\"a\"}}");
    s3_publish(world, "s", s3_snapshot(world, URI, files, FILES));
    world_poll(world, has_copied, first, "all that does not stall is copied");
    assert_int_equal(world_live(world, NULL), 0);
    proc_kill(first);
    Proc *second = s3_agent(world, "agent", "default", s3_faults_endpoint(good), "s3://b/", access,
                            secret);
    world_wait_live(world, NULL, 1);
    s3_check_served(world, &(Identity){0}, "s", URI, files, FILES, 1);
    for (guint i = 0; i < FILES; i++) {
        assert_int_equal(count(good, i), i < WHOLE ? 0 : 1);
    }
    assert_true(metric(second, "agent_copied_bytes_total") == (double)(FILES - WHOLE) * FILE_BYTES);
    s3_faults_free(stalling);
    s3_faults_free(good);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(only_what_is_missing_is_copied, world_setup,
                                        world_teardown),
    };
    return cmocka_run_group_tests_name("integration-s3-restart", tests, make_files, free_files);
}
