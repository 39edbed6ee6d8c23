/*
 * Snapshots in a real S3 server (OpenStack Swift): agents load them with credentials from every
 * source and serve exactly what was put; what cannot be loaded says why, and does not hinder others.
 */
#include "s3_snapshots.h"
#include "tests/fakes/s3_process.h"

#include <string.h>

#define BUCKET "snapshots"

static S3Process *swift;

static int start_swift(void **state)
{
    g_autoptr(GError) error = NULL;
    swift = s3_process_new(&error);
    if (swift == NULL) {
        fail_msg("%s", error->message);
    }
    s3_process_make_bucket(swift, BUCKET);
    s3_process_make_bucket(swift, "others");
    return 0;
}

static int stop_swift(void **state)
{
    s3_process_free(swift);
    return 0;
}

/* Puts all of it into the bucket that @uri names. */
static void put_files(const char *uri, const S3File *files, gsize n)
{
    g_auto(GStrv) parts = g_strsplit(uri + strlen("s3://"), "/", 2);
    for (gsize i = 0; i < n; i++) {
        g_autofree char *key = g_strconcat(parts[1], files[i].name, NULL);
        g_autofree guint8 *data = s3_bytes(uri, &files[i]);
        s3_process_put(swift, parts[0], key, data, files[i].bytes);
    }
}

static void publish(World *world, const char *name, const char *uri, const S3File *files, gsize n)
{
    put_files(uri, files, n);
    s3_publish(world, name, s3_snapshot(world, uri, files, n));
}

static const S3File two_files[] = {{"part-0", 5000}, {"part-1", 70000}};

/* ---- loading ---- */

static const S3File odd_files[] = {{"a b", 3000},        {"a+b", 3001},        {"a=b&c", 3002},
                                   {"a:b", 3003},        {"100%", 3004},       {"a%20b", 3005},
                                   {"größe/日本", 3006}, {"~-._*(1)!@$,", 17}, {"empty", 0},
                                   {"dir e/f+g", 1},     {"é=1/ö:2", 3007},    {"#x;y?z", 3008},
                                   {"[x]{}|^", 3009},    {"big", 3000000}};

/* One agent in each set, each with credentials from another source. */
static void start_three_agents(World *world)
{
    g_autofree char *access = s3_secret_file(world, "access", s3_process_access_key(swift));
    g_autofree char *secret = s3_secret_file(world, "secret", s3_process_secret_key(swift));
    g_autofree char *text = g_strdup_printf("[default]\naws_access_key_id = nobody\n"
                                            "aws_secret_access_key = nothing\n"
                                            "[fleet]\naws_access_key_id = %s\n"
                                            "aws_secret_access_key = %s\n",
                                            s3_process_access_key(swift),
                                            s3_process_secret_key(swift));
    g_autofree char *shared = s3_secret_file(world, "credentials", text);
    const char *roots = "s3://" BUCKET "/";
    const char *endpoint = s3_process_endpoint(swift);
    s3_agent(world, "by-files", "files", endpoint, roots, access, secret);
    g_setenv("AWS_ACCESS_KEY_ID", s3_process_access_key(swift), TRUE);
    g_setenv("AWS_SECRET_ACCESS_KEY", s3_process_secret_key(swift), TRUE);
    s3_agent(world, "by-environment", "environment", endpoint, roots, NULL, NULL);
    g_unsetenv("AWS_ACCESS_KEY_ID");
    g_unsetenv("AWS_SECRET_ACCESS_KEY");
    g_setenv("AWS_SHARED_CREDENTIALS_FILE", shared, TRUE);
    g_setenv("AWS_PROFILE", "fleet", TRUE);
    s3_agent(world, "by-profile", "profile", endpoint, roots, NULL, NULL);
    g_unsetenv("AWS_SHARED_CREDENTIALS_FILE");
    g_unsetenv("AWS_PROFILE");
}

static void odd_keys_are_served_by_everybody(void **state)
{
    World *world = *state;
    const char *odd = "s3://" BUCKET "/ö dir+=:/snap 1/", *plain = "s3://" BUCKET "/plain/";
    Proc *manager = manager_ready(world, "manager");
    start_three_agents(world);
    world_put(world, "desired/services/x",
              "{\"spec\":{\"owner\":\"a\",\"cache\":{\"sets\":[\"files\",\"environment\","
              "\"profile\"]}}}");
    publish(world, "odd", odd, odd_files, G_N_ELEMENTS(odd_files));
    publish(world, "plain", plain, two_files, G_N_ELEMENTS(two_files));
    world_wait_live(world, "odd", 3);
    world_wait_live(world, "plain", 3);
    s3_check_served(world, &(Identity){0}, "odd", odd, odd_files, G_N_ELEMENTS(odd_files), 3);
    s3_check_served(world, &(Identity){0}, "plain", plain, two_files, G_N_ELEMENTS(two_files), 3);
    s3_check_secret(world, manager, s3_process_secret_key(swift));
}

/* ---- what cannot be loaded ---- */

typedef struct {
    const char *name, *uri;
    const char *says; /* part of the message */
} Refused;

static const Refused refused[] = {
    {"no-bucket", "s3://no-such-bucket/a/", "s3://no-such-bucket/a/: there is no such bucket"},
    {"no-object", "s3://" BUCKET "/nothing/",
     "s3://" BUCKET "/nothing/: there is no object below it"},
    {"no-file", "s3://" BUCKET "/no-file/",
     "s3://" BUCKET "/no-file/part-2: is missing, but has a published sha256"},
    {"wrong-sum", "s3://" BUCKET "/wrong-sum/", "s3://" BUCKET "/wrong-sum/part-1: its sha256 is "},
    {"wrong-size", "s3://" BUCKET "/wrong-size/",
     "s3://" BUCKET "/wrong-size/: its files have 75000 bytes, must be 75001"},
    {"outside", "s3://others/outside/", "s3://others/outside/: not below any of objectStore.roots"},
};

static void publish_refused(World *world, const Refused *row)
{
    const S3File three[] = {two_files[0], two_files[1], {"part-2", 10}};
    if (strcmp(row->name, "no-bucket") == 0 || strcmp(row->name, "no-object") == 0) {
        s3_publish(world, row->name, s3_snapshot(world, row->uri, two_files, 2));
        return;
    }
    put_files(row->uri, two_files, 2);
    gboolean misses = strcmp(row->name, "no-file") == 0;
    cJSON *snapshot = s3_snapshot(world, row->uri, three, misses ? 3 : 2);
    cJSON *sums = cJSON_GetObjectItemCaseSensitive(snapshot, "sha256");
    if (strcmp(row->name, "wrong-sum") == 0) {
        const char *other = json_text(sums, "part-0");
        cJSON_ReplaceItemInObjectCaseSensitive(sums, "part-1", cJSON_CreateString(other));
    } else if (strcmp(row->name, "wrong-size") == 0) {
        cJSON_SetNumberValue(cJSON_GetObjectItemCaseSensitive(snapshot, "sizeBytes"), 75001);
    }
    s3_publish(world, row->name, snapshot);
}

/* Retry, event, explain and describe all say the same, on one line. */
static void check_refused(World *world, Proc *manager, const Refused *row)
{
    const LhRetry *retry = s3_wait_retry(world, row->name, "default", 1);
    g_autofree char *replica = g_strconcat(row->name, ".default.0", NULL);
    g_autofree char *item = g_strconcat("cache/", replica, NULL);
    g_autofree char *object = g_strconcat("replicas/", replica, NULL);
    if (strstr(retry->message, row->says) == NULL || strchr(retry->message, '\n') != NULL) {
        fail_msg("%s: its retry says \"%s\", not \"%s\"", row->name, retry->message, row->says);
    }
    assert_false(retry->parked);
    assert_string_equal(retry->node, "agent");
    g_autoptr(Run) explained = cli(manager, "explain", item, NULL);
    assert_int_equal(explained->code, 0);
    assert_non_null(strstr(explained->out, row->says));
    world_wait_event(world, "LoadFailed", object);
    g_autoptr(Run) described = cli(manager, "describe", "replica", replica, NULL);
    assert_int_equal(described->code, 0);
    if (strstr(described->out, row->says) == NULL) {
        fail_msg("describe does not say \"%s\":\n%s", row->says, described->out);
    }
}

static void the_others_go_on(void **state)
{
    World *world = *state;
    const char *good = "s3://" BUCKET "/good/";
    Proc *manager = manager_ready(world, "manager");
    g_autofree char *access = s3_secret_file(world, "access", s3_process_access_key(swift));
    g_autofree char *secret = s3_secret_file(world, "secret", s3_process_secret_key(swift));
    s3_agent(world, "agent", "default", s3_process_endpoint(swift),
             "s3://" BUCKET "/,s3://no-such-bucket/", access, secret);
    world_put(world, "desired/services/x", "{\"spec\":{\"owner\":\"a\"}}");
    for (gsize i = 0; i < G_N_ELEMENTS(refused); i++) {
        publish_refused(world, &refused[i]);
    }
    publish(world, "good", good, two_files, 2);
    world_wait_live(world, "good", 1);
    s3_check_served(world, &(Identity){0}, "good", good, two_files, 2, 1);
    gint64 first[G_N_ELEMENTS(refused)];
    for (gsize i = 0; i < G_N_ELEMENTS(refused); i++) {
        check_refused(world, manager, &refused[i]);
        first[i] = s3_retry(world, refused[i].name, "default")->not_before;
    }
    /* Again, not before it was due, and then later still. */
    for (gsize i = 0; i < G_N_ELEMENTS(refused); i++) {
        const LhRetry *retry = s3_wait_retry(world, refused[i].name, "default", 2);
        if (retry->attempt == 2) {
            assert_true(retry->not_before >= first[i] + 20000);
        }
    }
    /* Nothing of them was ever there to be found. */
    g_autoptr(GPtrArray) kvs = world_history(world, 0);
    for (guint i = 0; i < kvs->len; i++) {
        const Kv *kv = g_ptr_array_index(kvs, i);
        if (g_str_has_prefix(kv->key, "actual/search/")) {
            assert_true(g_str_has_suffix(kv->key, "/good"));
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(odd_keys_are_served_by_everybody, world_setup,
                                        world_teardown),
        cmocka_unit_test_setup_teardown(the_others_go_on, world_setup, world_teardown),
    };
    return cmocka_run_group_tests_name("integration-s3", tests, start_swift, stop_swift);
}
