/*
 * An S3 server that fails, stalls, cuts and lies while an agent loads from it: each snapshot ends live
 * with the bytes that were put, or failed with a reason and another attempt to come.
 */
#include "s3_snapshots.h"
#include "tests/fakes/s3_faults.h"

#include <string.h>

#define FILE_BYTES 150000

static const S3File file[] = {{"data", FILE_BYTES}};

/* Faults are taken in this order by requests for the snapshot's file. */
typedef struct {
    const char *name;
    S3Fault faults[2];  /* times 0: none */
    const char *fails;  /* what its failure says; NULL: it becomes live at once */
    gboolean then_live; /* the next attempt succeeds */
} Row;

#define REPLY(n, http_status, error_code, http_header)                                       \
    {                                                                                        \
        .times = (n), .kind = S3_FAULT_REPLY, .status = (http_status), .code = (error_code), \
        .header = (http_header)                                                              \
    }
#define FAULT(n, fault_kind, fault_after)                          \
    {                                                              \
        .times = (n), .kind = (fault_kind), .after = (fault_after) \
    }

/* clang-format off */
static const Row rows[] = {
    {"nothing", {{0}}, NULL, FALSE},
    {"error-500", {REPLY(2, 500, "InternalError", NULL)}, NULL, FALSE},
    {"error-502", {REPLY(2, 502, NULL, NULL)}, NULL, FALSE},
    {"slow-down", {REPLY(1, 503, "SlowDown", "Retry-After: 1")}, NULL, FALSE},
    {"cut-before", {FAULT(2, S3_FAULT_CUT, 0)}, NULL, FALSE},
    {"cut-within", {FAULT(3, S3_FAULT_CUT, 1000)}, NULL, FALSE},
    {"stall", {FAULT(1, S3_FAULT_STALL, 70000)}, NULL, FALSE},
    {"length-more", {FAULT(1, S3_FAULT_LENGTH, 100)},
     "the server sends another range than was asked for", TRUE},
    {"length-less", {FAULT(1, S3_FAULT_LENGTH, -100)},
     "the server sends another range than was asked for", TRUE},
    {"chunked-same", {FAULT(1, S3_FAULT_CHUNKED, 0)}, NULL, FALSE},
    {"chunked-less", {FAULT(1, S3_FAULT_CHUNKED, -100)}, NULL, FALSE},
    {"then-500", {FAULT(1, S3_FAULT_CUT, 9000), REPLY(1, 500, "InternalError", NULL)}, NULL, FALSE},
    {"then-range", {FAULT(1, S3_FAULT_CUT, 9000), FAULT(1, S3_FAULT_RANGE, 7)},
     "the server sends another range than was asked for", TRUE},
    {"then-whole", {FAULT(1, S3_FAULT_CUT, 9000), FAULT(1, S3_FAULT_WHOLE, 0)},
     "the server sends all of it where a part was asked for", TRUE},
    {"then-change", {FAULT(1, S3_FAULT_CUT, 9000), FAULT(1, S3_FAULT_CHANGE, 0)},
     "it has changed while it was copied", TRUE},
    {"always-500", {REPLY(1000, 500, "InternalError", NULL)},
     "it has failed (HTTP 500 InternalError); given up after 6 attempts", FALSE},
    {"skewed", {REPLY(1000, 403, "RequestTimeTooSkewed", NULL)},
     "the clocks differ too much; this machine's clock is ", FALSE},
    {"redirect", {REPLY(1000, 301, "PermanentRedirect", "x-amz-bucket-region: eu-north-1")},
     "see objectStore.endpoint and objectStore.region (the bucket's region is eu-north-1)", FALSE},
    {"html", {{.times = 1000, .kind = S3_FAULT_REPLY, .status = 200, .body = "<html>login</html>"}},
     "s3://b/html/data: ", FALSE},
    {"other-bytes", {{0}}, "s3://b/other-bytes/data: its sha256 is ", FALSE},
};
/* clang-format on */

static gboolean ends_live(const Row *row)
{
    return row->fails == NULL || row->then_live;
}

/* Without published digests: the bytes are right because the transfer is, but for one. */
static void publish_row(World *world, S3Faults *server, const Row *row)
{
    g_autofree char *uri = g_strdup_printf("s3://b/%s/", row->name);
    g_autofree char *path = g_strdup_printf("/b/%s/data", row->name);
    g_autofree char *match = g_strconcat(path, " ", NULL);
    g_autoptr(GDateTime) now = g_date_time_new_now_utc();
    g_autoptr(GDateTime) later = g_date_time_add_hours(now, 1);
    g_autofree char *date = g_date_time_format(later, "Date: %a, %d %b %Y %H:%M:%S GMT");
    g_autofree guint8 *data = s3_bytes(uri, file);
    cJSON *snapshot = s3_snapshot(world, uri, file, 1);
    if (strcmp(row->name, "other-bytes") == 0) {
        data[FILE_BYTES / 2] ^= 1;
    } else {
        cJSON_DeleteItemFromObjectCaseSensitive(snapshot, "sha256");
    }
    s3_faults_put(server, path, data, FILE_BYTES);
    for (guint i = 0; i < G_N_ELEMENTS(row->faults) && row->faults[i].times > 0; i++) {
        S3Fault fault = row->faults[i];
        fault.match = match;
        if (strcmp(row->name, "skewed") == 0) {
            fault.header = date;
        }
        s3_faults_add(server, &fault);
    }
    s3_publish(world, row->name, snapshot);
}

static void check_failure(World *world, const Row *row)
{
    const LhRetry *retry = s3_wait_retry(world, row->name, "default", 1);
    if (strstr(retry->message, row->fails) == NULL || strchr(retry->message, '\n') != NULL) {
        fail_msg("%s says \"%s\", not \"%s\"", row->name, retry->message, row->fails);
    }
    if (strcmp(row->name, "skewed") == 0) {
        const char *number = strstr(retry->message, "clock is ") + strlen("clock is ");
        assert_in_range(g_ascii_strtoll(number, NULL, 10), 3590, 3610);
        assert_non_null(strstr(number, " s behind the server's"));
    }
}

/* What fails has no search key, and what becomes live at once was never to be tried again. */
static void check_history(World *world)
{
    g_autoptr(GPtrArray) kvs = world_history(world, 0);
    for (guint i = 0; i < kvs->len; i++) {
        const Kv *kv = g_ptr_array_index(kvs, i);
        for (gsize j = 0; j < G_N_ELEMENTS(rows); j++) {
            g_autofree char *search = g_strconcat("/", rows[j].name, NULL);
            g_autofree char *retry = g_strdup_printf("decided/retries/cache/%s.default.0",
                                                     rows[j].name);
            gboolean served = g_str_has_prefix(kv->key, "actual/search/") &&
                              g_str_has_suffix(kv->key, search);
            gboolean failed = strcmp(kv->key, retry) == 0;
            if ((served && !ends_live(&rows[j])) || (failed && rows[j].fails == NULL)) {
                fail_msg("%s was there: %s", kv->key, kv->is_delete ? "deleted" : kv->value);
            }
        }
    }
}

static void right_bytes_or_none(void **state)
{
    World *world = *state;
    S3Faults *server = s3_faults_new();
    manager_ready(world, "manager");
    g_autofree char *access = s3_secret_file(world, "access", "somebody");
    g_autofree char *secret = s3_secret_file(world, "secret", "something");
    s3_agent(world, "agent", "default", s3_faults_endpoint(server), "s3://b/", access, secret);
    world_put(world, "desired/settings/cache-assigner", "{\"spec\":{\"maxConcurrentLoads\":50}}");
    world_put(world, "desired/services/x", "{\"spec\":{\"owner\":\"a\"}}");
    for (gsize i = 0; i < G_N_ELEMENTS(rows); i++) {
        publish_row(world, server, &rows[i]);
    }
    for (gsize i = 0; i < G_N_ELEMENTS(rows); i++) {
        if (rows[i].fails != NULL) {
            check_failure(world, &rows[i]);
        }
    }
    for (gsize i = 0; i < G_N_ELEMENTS(rows); i++) {
        g_autofree char *uri = g_strdup_printf("s3://b/%s/", rows[i].name);
        if (ends_live(&rows[i])) {
            world_wait_live(world, rows[i].name, 1);
            s3_check_served(world, &(Identity){0}, rows[i].name, uri, file, 1, 1);
        }
    }
    check_history(world);
    s3_faults_free(server);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(right_bytes_or_none, world_setup, world_teardown),
    };
    return cmocka_run_group_tests_name("integration-s3-faults", tests, NULL, NULL);
}
