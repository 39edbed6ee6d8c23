/*
 * (h) An agent's load from S3 against `curl --parallel` of the same objects to the same disk, in turns.
 *
 * The agent gets its order as it would from a manager (an assignment below its registration), and the row
 * ends when its item is live: everything is on the disk, and synced. curl makes the same signed requests, as
 * many at a time as it does by default, and its files are synced before its clock stops.
 */
#include "api/actual.h"
#include "api/decided.h"
#include "base/json.h"
#include "rows.h"
#include "tests/fakes/s3_process.h"

#include <errno.h>
#include <fcntl.h>
#include <glib/gstdio.h>
#include <string.h>
#include <unistd.h>

#define BUCKET   "bench"
#define SNAPSHOT "svc-00-20260101-0000-0000"
#define KEYS     "v1/" SNAPSHOT "/"
#define URI      "s3://" BUCKET "/" KEYS
#define LOAD_MS  (20 * 60 * 1000)
#define AT_ONCE  "50" /* curl's own default */
/* Of no bytes: curl signs it, but does not send it by itself. */
#define NO_BODY "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

typedef struct {
    S3Process *server;
    char *netrc; /* file with the keys for curl, whose --user cannot tell a ':' in the access key */
    char *access_file, *secret_file;
} S3;

static void write_private(const char *path, const char *text)
{
    g_autoptr(GError) error = NULL;

    g_file_set_contents_full(path, text, -1, G_FILE_SET_CONTENTS_NONE, 0600, &error);
    bench_must(error, path);
}

/* ---- curl ---- */

static void run(const char *const *argv)
{
    g_autoptr(GError) error = NULL;
    g_autofree char *complaint = NULL;
    int status = 0;

    g_spawn_sync(NULL, (char **)argv, NULL, G_SPAWN_SEARCH_PATH | G_SPAWN_STDOUT_TO_DEV_NULL, NULL,
                 NULL, NULL, &complaint, &status, &error);
    bench_must(error, argv[0]);
    if (!g_spawn_check_wait_status(status, NULL))
        bench_fail("%s: %s", argv[0], complaint != NULL ? complaint : "failed");
}

static void run_curl(const S3 *s3, const GString *transfers)
{
    g_autofree char *path = g_build_filename(bench.dir, "curl.config", NULL);
    const char *const argv[] = {"curl",
                                "--silent",
                                "--show-error",
                                "--fail",
                                "--parallel",
                                "--parallel-max",
                                AT_ONCE,
                                "--aws-sigv4",
                                "aws:amz:" S3_PROCESS_REGION ":s3",
                                "--netrc-file",
                                s3->netrc,
                                "--header",
                                "x-amz-content-sha256: " NO_BODY,
                                "--config",
                                path,
                                NULL};

    write_private(path, transfers->str);
    run(argv);
    g_unlink(path);
}

static void add_transfer(const S3 *s3, GString *transfers, const char *name, const char *file)
{
    g_string_append_printf(transfers, "url = \"%s/" BUCKET "/" KEYS "%s\"\noutput = \"%s\"\n",
                           s3_process_endpoint(s3->server), name, file);
}

static void name_object(guint i, char *out, gsize size)
{
    g_snprintf(out, size, "segment-%05u", i);
}

/* The same bytes under every name, and not compressible. */
static void put_objects(const S3 *s3)
{
    gsize bytes = (gsize)(bench.sizes.object_bytes / bench.sizes.objects);
    gsize words = bytes / sizeof(guint32) + 1;
    g_autofree guint32 *data = g_new(guint32, words);

    for (gsize i = 0; i < words; i++)
        data[i] = g_random_int();
    s3_process_make_bucket(s3->server, BUCKET);
    for (guint i = 0; i < bench.sizes.objects; i++) {
        char name[32];
        name_object(i, name, sizeof name);
        g_autofree char *key = g_strconcat(KEYS, name, NULL);
        s3_process_put(s3->server, BUCKET, key, data, bytes);
    }
}

/* What the agent does too before it calls an item live. */
static void sync_file(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);

    if (fd < 0 || fsync(fd) != 0)
        bench_fail("%s: %s", path, g_strerror(errno));
    close(fd);
}

static double curl_once(const S3 *s3)
{
    g_autofree char *dir = g_build_filename(bench.dir, "curl", NULL);
    g_autoptr(GPtrArray) files = g_ptr_array_new_with_free_func(g_free);
    g_autoptr(GString) transfers = g_string_new(NULL);
    gint64 start;

    g_mkdir(dir, 0700);
    for (guint i = 0; i < bench.sizes.objects; i++) {
        char name[32];
        name_object(i, name, sizeof name);
        g_ptr_array_add(files, g_build_filename(dir, name, NULL));
        add_transfer(s3, transfers, name, files->pdata[i]);
    }
    start = now_us();
    run_curl(s3, transfers);
    for (guint i = 0; i < files->len; i++)
        sync_file(files->pdata[i]);
    double took = (double)(now_us() - start) / G_USEC_PER_SEC;
    for (guint i = 0; i < files->len; i++)
        g_unlink(files->pdata[i]);
    g_rmdir(dir);
    return took;
}

/* ---- the agent ---- */

typedef struct {
    char *node; /* its id, when it has registered */
    gint64 live_us;
    char *failed; /* its message, when it could not load */
} Loading;

static void on_actual(const LhEtcdEvent *event, gint64 at_us, gpointer data)
{
    Loading *loading = data;
    const char *nodes = strstr(event->kv.key, "actual/nodes/cache/");
    const char *items = strstr(event->kv.key, "actual/items/cache/");

    if (event->is_delete)
        return;
    if (nodes != NULL && loading->node == NULL)
        loading->node = g_strdup(nodes + strlen("actual/nodes/cache/"));
    if (items == NULL)
        return;
    g_autoptr(cJSON) json = lh_json_parse(event->kv.value, event->kv.value_len, LH_JSON_MAX_BYTES,
                                          NULL);
    const char *state = lh_json_get_string(json, "state", "");
    if (strcmp(state, lh_item_state_name(LH_ITEM_LIVE)) == 0)
        loading->live_us = at_us;
    else if (strcmp(state, lh_item_state_name(LH_ITEM_FAILED)) == 0 && loading->failed == NULL)
        loading->failed = g_strdup(lh_json_get_string(json, "message", "no reason given"));
}

static gboolean has_registered(gpointer data)
{
    return ((Loading *)data)->node != NULL;
}

static gboolean has_ended(gpointer data)
{
    const Loading *loading = data;

    return loading->live_us != 0 || loading->failed != NULL;
}

static gint64 all_bytes(void)
{
    return bench.sizes.object_bytes / bench.sizes.objects * bench.sizes.objects;
}

static void publish(const Cluster *cluster)
{
    g_autofree char *key = cluster_key(cluster, "published/snapshots/%s", SNAPSHOT);
    g_autofree char *value = g_strdup_printf(
        "{\"service\":\"svc-00\",\"partition\":\"0000\",\"startTime\":\"2026-01-01T00:00:00Z\","
        "\"endTime\":\"2026-01-01T00:01:00Z\",\"maxOffset\":1,\"sizeBytes\":%" G_GINT64_FORMAT
        ",\"uri\":\"%s\"}",
        all_bytes(), URI);

    client_put(key, value, 0);
}

static void order_load(const Cluster *cluster, const char *node)
{
    LhAssignment order = {
        .action = LH_ACTION_LOAD,
        .since = g_get_real_time() / 1000,
        .controller = "cache-assigner",
        .epoch = 1,
        .rule = "placed-by-strategy",
        .reason = "spread: the emptiest node with room",
        .snapshot = SNAPSHOT,
        .uri = URI,
        .size_bytes = all_bytes(),
        .set = "default",
    };
    g_autofree char *value = lh_object_print(LH_KIND_ASSIGNMENT, &order);
    g_autofree char *key = cluster_key(cluster, "decided/assignments/cache/%s/%s.default.0", node,
                                       SNAPSHOT);

    client_put(key, value, 0);
}

/* Seconds. */
static double load_once(const Cluster *cluster, const S3 *s3, guint round)
{
    g_autofree char *name = g_strdup_printf("agent-%u", round);
    g_autofree char *dir = g_build_filename(bench.dir, name, NULL);
    g_autofree char *actual = cluster_key(cluster, "actual/");
    const char *const words[] = {"--name",
                                 name,
                                 "--pool",
                                 "cache",
                                 "--data-dir",
                                 dir,
                                 "--capacity",
                                 "100Gi",
                                 "--object-store-roots",
                                 "s3://" BUCKET "/",
                                 "--object-store-endpoint",
                                 s3_process_endpoint(s3->server),
                                 "--object-store-access-key-file",
                                 s3->access_file,
                                 "--object-store-secret-key-file",
                                 s3->secret_file,
                                 NULL};
    Loading loading = {0};
    Watch *watch = watch_new(actual, on_actual, &loading);
    Process *agent = agent_start(cluster, name, words);
    gint64 start;

    bench_wait(has_registered, &loading, LOAD_MS, "the agent registers");
    start = now_us();
    order_load(cluster, loading.node);
    bench_wait(has_ended, &loading, LOAD_MS, "the agent loads %s", URI);
    if (loading.failed != NULL)
        bench_fail("the agent cannot load %s: %s", URI, loading.failed);
    process_stop(agent);
    watch_free(watch);
    bench_remove(dir);
    g_free(loading.node);
    return (double)(loading.live_us - start) / G_USEC_PER_SEC;
}

/* ---- the row ---- */

static void s3_begin(S3 *s3)
{
    const char *access = s3_process_access_key(s3->server);
    const char *secret = s3_process_secret_key(s3->server);
    g_autofree char *login = g_strdup_printf("machine 127.0.0.1 login %s password %s\n", access,
                                             secret);

    s3->access_file = g_build_filename(bench.dir, "access-key", NULL);
    s3->secret_file = g_build_filename(bench.dir, "secret-key", NULL);
    write_private(s3->access_file, access);
    write_private(s3->secret_file, secret);
    s3->netrc = g_build_filename(bench.dir, "netrc", NULL);
    write_private(s3->netrc, login);
}

static void s3_end(S3 *s3)
{
    bench_at_end(NULL, NULL);
    s3_process_free(s3->server);
    g_free(s3->netrc);
    g_free(s3->access_file);
    g_free(s3->secret_file);
}

static void measure(const Cluster *cluster, const S3 *s3)
{
    g_autoptr(GArray) curls = samples_new(), loads = samples_new();

    put_objects(s3);
    publish(cluster);
    for (guint round = 0; round < bench.sizes.start_rounds; round++) {
        samples_add(curls, curl_once(s3));
        samples_add(loads, load_once(cluster, s3, round));
        bench_say("  curl %.2f s, agent %.2f s", g_array_index(curls, double, round),
                  g_array_index(loads, double, round));
    }
    table_add(bench.table, "h", samples_median(loads), "s", NO_AIM, NULL,
              "an agent loads %" G_GINT64_FORMAT " MB in %u files from S3",
              bench.sizes.object_bytes / 1000000, bench.sizes.objects);
    table_add(bench.table, "h", samples_median(loads) / samples_median(curls), "x", NO_AIM, NULL,
              "the same as a multiple of curl --parallel (%.2f s)", samples_median(curls));
}

static void free_server(gpointer data)
{
    s3_process_free(data);
}

void row_s3(void)
{
    ClusterOptions nothing = {.label = "s3"};
    g_autoptr(GError) error = NULL;
    S3 s3 = {.server = s3_process_new(&error)};
    Cluster *cluster;

    if (s3.server == NULL) {
        table_skip(bench.table, "h", "%s", error->message);
        return;
    }
    bench_at_end(free_server, s3.server);
    cluster = cluster_new(&nothing);
    s3_begin(&s3);
    measure(cluster, &s3);
    s3_end(&s3);
    cluster_free(cluster);
}
