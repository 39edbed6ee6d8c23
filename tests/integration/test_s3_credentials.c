/*
 * Credentials that a real S3 server refuses: what the refusal says, that no secret is ever told,
 * and that corrected files are enough to go on.
 */
#include "s3_snapshots.h"
#include "tests/fakes/s3_process.h"

#include <string.h>

#define BUCKET       "snapshots"
#define WRONG_SECRET "quite-another-secret-0815"

static S3Process *swift;

static int start_swift(void **state)
{
    g_autoptr(GError) error = NULL;
    swift = s3_process_new(&error);
    if (swift == NULL) {
        fail_msg("%s", error->message);
    }
    s3_process_make_bucket(swift, BUCKET);
    return 0;
}

static int stop_swift(void **state)
{
    s3_process_free(swift);
    return 0;
}

static const S3File files[] = {{"part-0", 5000}, {"part-1", 70000}};
static const char uri[] = "s3://" BUCKET "/s/";

/* One agent in each set; the files of each are "<name>.access" and "<name>.secret". */
typedef struct {
    const char *name;
    const char *says; /* what its failure says */
} Agent;

static const Agent agents[] = {
    {"wrong-secret", "the secret key does not fit the access key (HTTP 403 SignatureDoesNotMatch)"},
    {"unknown-key", "(HTTP 403"},
    {"stranger", "access is denied (HTTP 403 AccessDenied)"},
    {"missing-file", "objectStore.secretKeyFile: "},
    {"empty-file", "is empty"},
    {"two-lines", "must be one line"},
};

static char *write_file(World *world, const Agent *agent, const char *what, const char *text)
{
    g_autofree char *name = g_strdup_printf("%s.%s", agent->name, what);
    return text != NULL ? s3_secret_file(world, name, text)
                        : g_build_filename(world->dir, name, NULL);
}

static void start_agent(World *world, const Agent *agent)
{
    const char *access = s3_process_access_key(swift), *secret = s3_process_secret_key(swift);
    if (strcmp(agent->name, "wrong-secret") == 0) {
        secret = WRONG_SECRET;
    } else if (strcmp(agent->name, "unknown-key") == 0) {
        access = "nobody:known";
    } else if (strcmp(agent->name, "stranger") == 0) {
        access = s3_process_stranger(swift);
        secret = s3_process_stranger_secret(swift);
    } else if (strcmp(agent->name, "missing-file") == 0) {
        secret = NULL;
    } else if (strcmp(agent->name, "empty-file") == 0) {
        secret = "\n";
    } else if (strcmp(agent->name, "two-lines") == 0) {
        secret = WRONG_SECRET "\n" WRONG_SECRET "\n";
    }
    g_autofree char *access_file = write_file(world, agent, "access", access);
    g_autofree char *secret_file = write_file(world, agent, "secret", secret);
    s3_agent(world, agent->name, agent->name, s3_process_endpoint(swift), "s3://" BUCKET "/",
             access_file, secret_file);
}

static void corrected_files_are_enough(void **state)
{
    World *world = *state;
    Proc *manager = manager_ready(world, "manager");
    g_autoptr(GString) sets = g_string_new(NULL);
    for (gsize i = 0; i < G_N_ELEMENTS(agents); i++) {
        start_agent(world, &agents[i]);
        g_string_append_printf(sets, "%s\"%s\"", i > 0 ? "," : "", agents[i].name);
    }
    for (gsize i = 0; i < G_N_ELEMENTS(files); i++) {
        g_autofree char *key = g_strconcat("s/", files[i].name, NULL);
        g_autofree guint8 *data = s3_bytes(uri, &files[i]);
        s3_process_put(swift, BUCKET, key, data, files[i].bytes);
    }
    world_putf(world, "desired/services/x",
               "{\"spec\":{\"owner\":\"a\",\"cache\":{\"sets\":[%s]}}}", sets->str);
    s3_publish(world, "s", s3_snapshot(world, uri, files, G_N_ELEMENTS(files)));
    for (gsize i = 0; i < G_N_ELEMENTS(agents); i++) {
        const LhRetry *retry = s3_wait_retry(world, "s", agents[i].name, 1);
        if (strstr(retry->message, agents[i].says) == NULL ||
            strchr(retry->message, '\n') != NULL) {
            fail_msg("%s says \"%s\", not \"%s\"", agents[i].name, retry->message, agents[i].says);
        }
    }
    assert_int_equal(world_live(world, NULL), 0);
    for (gsize i = 0; i < G_N_ELEMENTS(agents); i++) {
        g_free(write_file(world, &agents[i], "access", s3_process_access_key(swift)));
        g_free(write_file(world, &agents[i], "secret", s3_process_secret_key(swift)));
    }
    world_wait_live(world, NULL, G_N_ELEMENTS(agents));
    s3_check_served(world, &(Identity){0}, "s", uri, files, G_N_ELEMENTS(files),
                    G_N_ELEMENTS(agents));
    s3_check_secret(world, manager, WRONG_SECRET);
    s3_check_secret(world, manager, s3_process_secret_key(swift));
    s3_check_secret(world, manager, s3_process_stranger_secret(swift));
}

/* Half of the credentials, or an endpoint that is none, ends the agent at once. */
static void what_cannot_be_right_is_refused_at_the_start(void **state)
{
    World *world = *state;
    g_autofree char *data_dir = g_build_filename(world->dir, "data", NULL);
    g_autofree char *secret = s3_secret_file(world, "secret", WRONG_SECRET);
    const struct {
        const char *option, *value, *says;
    } rows[] = {
        {"--object-store-secret-key-file", secret, "objectStore.accessKeyFile must be given too"},
        {"--object-store-endpoint", "ftp://127.0.0.1", "--object-store-endpoint: "},
        {"--object-store-endpoint", "http://a:" WRONG_SECRET "@b", "--object-store-endpoint: "},
        {"--object-store-region", "eu west", "--object-store-region: must be letters"},
        {"--object-store-addressing", "best", "--object-store-addressing: "},
        {"--object-store-roots", "s3://b@d/", "--object-store-roots: "},
    };
    for (gsize i = 0; i < G_N_ELEMENTS(rows); i++) {
        g_autoptr(Run) agent = run(world, "leasehold", "agent", "--pool", "cache", "--name", "a",
                                   "--data-dir", data_dir, "--listen", "127.0.0.1:0",
                                   "--etcd-endpoints", etcd_process_endpoint(world->etcd),
                                   rows[i].option, rows[i].value, NULL);
        const char *newline = strchr(agent->err, '\n');
        if (agent->code != 2 || newline == NULL || newline[1] != '\0' ||
            strstr(agent->err, rows[i].says) == NULL || strstr(agent->err, WRONG_SECRET) != NULL) {
            fail_msg("%s %s: exit code %d, \"%s\"", rows[i].option, rows[i].value, agent->code,
                     agent->err);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(corrected_files_are_enough, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(what_cannot_be_right_is_refused_at_the_start, world_setup,
                                        world_teardown),
    };
    return cmocka_run_group_tests_name("integration-s3-credentials", tests, start_swift,
                                       stop_swift);
}
