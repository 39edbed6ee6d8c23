/* The HTTP API of a manager, as CONTRACT.md section 4 promises it, over the wire. */
#include "harness.h"

#include <math.h>
#include <string.h>

#define SERVICES 25
#define PAGE     10

static const char valid[] = "{\"spec\":{\"owner\":\"a\"}}";

typedef struct {
    const char *method, *path, *body, *header;
    int status;
    const char *field; /* of the problem; NULL: any */
} Row;

static void check_row(Proc *manager, const Row *row)
{
    g_autoptr(Reply) reply = http_with(manager, row->method, row->path, row->body, row->header);
    gboolean problem = reply->status < 400 || strcmp(row->method, "HEAD") == 0 ||
                       (reply->type != NULL &&
                        g_str_has_prefix(reply->type, "application/problem+json"));
    if (reply->status != row->status || !problem) {
        fail_msg("%s %s %s: %d (%s) instead of %d: %.300s", row->method, row->path,
                 row->header != NULL ? row->header : "", reply->status,
                 reply->type != NULL ? reply->type : "no type", row->status, reply->body->str);
    }
    if (row->field != NULL) {
        assert_string_equal(json_text(reply->json, "field"), row->field);
    }
}

static void check_rows(Proc *manager, const Row *rows, gsize n)
{
    for (gsize i = 0; i < n; i++) {
        check_row(manager, &rows[i]);
    }
}

/* ---- health ---- */

static gboolean readyz_says(World *world, gpointer data)
{
    const Row *row = data;
    g_autoptr(Reply) reply = http((Proc *)row->path, "GET", "/readyz", NULL);
    return reply->status == row->status;
}

static void it_is_ready_only_with_etcd(void **state)
{
    World *world = *state;
    g_autoptr(GError) error = NULL;
    etcd_process_stop(world->etcd);
    Proc *manager = manager_start(world, "manager", NULL);
    check_row(manager, &(Row){"GET", "/readyz", NULL, NULL, 503, NULL});
    check_row(manager, &(Row){"GET", "/healthz", NULL, NULL, 200, NULL});
    check_row(manager, &(Row){"GET", "/v1/services", NULL, NULL, 503, NULL});
    assert_true(etcd_process_restart(world->etcd, &error));
    Row ready = {.path = (char *)manager, .status = 200};
    world_poll(world, readyz_says, &ready, "it is ready when etcd is there");
    g_autofree char *log = proc_log(manager);
    assert_non_null(strstr(log, "etcd"));
    etcd_process_freeze(world->etcd);
    ready.status = 503;
    world_poll(world, readyz_says, &ready, "it is not ready when etcd does not answer");
    check_row(manager, &(Row){"GET", "/healthz", NULL, NULL, 200, NULL});
    etcd_process_thaw(world->etcd);
    ready.status = 200;
    world_poll(world, readyz_says, &ready, "it is ready again");
}

/* ---- objects ---- */

static gboolean api_has_it(World *world, gpointer data)
{
    g_autoptr(Reply) reply = http(data, "GET", "/v1/services/x", NULL);
    return reply->status == 200;
}

static gboolean api_has_it_not(World *world, gpointer data)
{
    g_autoptr(Reply) reply = http(data, "GET", "/v1/services/x", NULL);
    return reply->status == 404;
}

static void check_etags(World *world, Proc *manager)
{
    const char *path = "/v1/services/x";
    const char *edited = "{\"spec\":{\"owner\":\"b\"},\"status\":{\"conditions\":[7]}}";
    g_autoptr(Reply) created = http_with(manager, "PUT", path, valid, "If-None-Match: *");
    assert_in_range(created->status, 200, 201);
    assert_non_null(created->etag);
    g_autofree char *old = g_strdup_printf("If-Match: %s", created->etag);
    check_row(manager, &(Row){"PUT", path, valid, "If-None-Match: *", 412, NULL});
    g_autoptr(Reply) changed = http_with(manager, "PUT", path, edited, old);
    reply_must(changed, 200);
    assert_string_not_equal(changed->etag, created->etag);
    assert_string_equal(json_text(changed->json, "spec.owner"), "b");
    check_row(manager, &(Row){"PUT", path, valid, old, 412, NULL});
    check_row(manager, &(Row){"DELETE", path, NULL, old, 412, NULL});
    check_row(manager, &(Row){"PUT", "/v1/services/absent", valid, "If-Match: *", 412, NULL});
    world_poll(world, api_has_it, manager, "the API has what was put");
    g_autoptr(Reply) got = http(manager, "GET", path, NULL);
    assert_string_equal(got->etag, changed->etag);
    g_autofree char *revision = g_strdup_printf(
        "\"%" G_GINT64_FORMAT "\"", lh_json_get_int(json_at(got->json, "metadata"), "revision", 0));
    assert_string_equal(got->etag, revision);
    assert_string_equal(json_text(got->json, "kind"), "Service");
    assert_string_equal(json_text(got->json, "apiVersion"), "leasehold/v1");
    g_autofree char *present = g_strdup_printf("If-Match: %s", got->etag);
    check_row(manager, &(Row){"DELETE", path, NULL, present, 200, NULL});
    world_poll(world, api_has_it_not, manager, "the API has it no more");
    check_row(manager, &(Row){"DELETE", path, NULL, NULL, 404, NULL});
}

static void check_dry_run(World *world, Proc *manager)
{
    gint64 revision = world_revision(world);
    g_autoptr(Reply) dry = http(manager, "PUT", "/v1/services/dry?dryRun=true", valid);
    assert_in_range(dry->status, 200, 201);
    assert_true(json_text(dry->json, "spec.cache.window")[0] != '\0'); /* the defaults */
    check_row(manager, &(Row){"PUT", "/v1/services/dry?dryRun=true", "{\"spec\":{}}", NULL, 422,
                              "spec.owner"});
    assert_int_equal(world_revision(world), revision);
    check_row(manager, &(Row){"GET", "/v1/services/dry", NULL, NULL, 404, NULL});
}

static void objects_are_written_with_compares(void **state)
{
    static const Row rows[] = {
        {"PUT", "/v1/services/bad", "{\"spec\":{}}", NULL, 422, "spec.owner"},
        {"PUT", "/v1/services/bad", "{\"spec\":{\"owner\":\"a\",\"cache\":{\"replicas\":-1}}}",
         NULL, 422, "spec.cache.replicas"},
        {"PUT", "/v1/services/bad", "{\"spec\":{\"owner\":\"a\",\"retention\":\"1h\"}}", NULL, 422,
         "spec.cache.window"},
        {"PUT", "/v1/services/bad", "{\"metadata\":{\"name\":\"b\"},\"spec\":{\"owner\":\"a\"}}",
         NULL, 422, "metadata.name"},
        {"PUT", "/v1/services/bad", "{\"kind\":\"Seed\",\"spec\":{\"owner\":\"a\"}}", NULL, 422,
         "kind"},
        {"PUT", "/v1/services/-bad-", valid, NULL, 422, "metadata.name"},
        {"PUT", "/v1/services/bad", valid, "If-Match: yesterday", 400, NULL},
        {"PUT", "/v1/services/bad", valid, "Content-Type: text/plain", 415, NULL},
        {"PUT", "/v1/services", valid, NULL, 405, NULL},
        {"PUT", "/v1/snapshots/s", "{}", NULL, 405, NULL},
        {"DELETE", "/v1/snapshots/s", NULL, NULL, 405, NULL},
        {"PUT", "/v1/replicas/s.default.0", "{}", NULL, 405, NULL},
        {"PATCH", "/v1/services/bad", valid, NULL, 405, NULL},
        {"GET", "/v1/widgets", NULL, NULL, 404, NULL},
        {"GET", "/v1/services/absent", NULL, NULL, 404, NULL},
        {"GET", "/nowhere", NULL, NULL, 404, NULL},
        {"GET", "/v1/services?limit=0", NULL, NULL, 400, "limit"},
        {"GET", "/v1/services?limit=many", NULL, NULL, 400, "limit"},
        {"GET", "/v1/services?continue=xyz", NULL, NULL, 400, "continue"},
        {"GET", "/v1/services?watch=true&revision=x", NULL, NULL, 400, "revision"},
        {"HEAD", "/v1/services", NULL, NULL, 200, NULL},
        {"GET", "/healthz", NULL, "Host: evil.example", 403, NULL},
        {"PUT", "/v1/services/bad", valid, "Origin: http://evil.example", 403, NULL},
    };
    World *world = *state;
    Proc *manager = manager_ready(world, "manager");
    check_etags(world, manager);
    check_dry_run(world, manager);
    gint64 revision = world_revision(world);
    check_rows(manager, rows, G_N_ELEMENTS(rows));
    g_autoptr(GPtrArray) written = world_range(world, "desired/");
    assert_int_equal(written->len, 0);
    assert_int_equal(world_revision(world), revision);
}

/* Not JSON at all: 400 or 422, and never 500. */
static void bodies_that_are_none_are_refused(void **state)
{
    static const char *const bodies[] = {"",  "{",    "[]",
                                         "7", "null", "{\"spec\":{\"owner\":\"\xff\"}}"};
    World *world = *state;
    Proc *manager = manager_ready(world, "manager");
    for (guint i = 0; i < G_N_ELEMENTS(bodies); i++) {
        g_autoptr(Reply) reply = http(manager, "PUT", "/v1/services/x", bodies[i]);
        if (reply->status != 400 && reply->status != 422) {
            fail_msg("body \"%s\": %d", bodies[i], reply->status);
        }
    }
    g_autofree char *large = g_strnfill(70 * 1024, 'a');
    g_autofree char *body = g_strdup_printf("{\"spec\":{\"owner\":\"%s\"}}", large);
    g_autoptr(Reply) reply = http(manager, "PUT", "/v1/services/x", body);
    assert_true(reply->status == 400 || reply->status == 413 || reply->status == 422);
    g_autoptr(GPtrArray) written = world_range(world, "desired/");
    assert_int_equal(written->len, 0);
}

/* ---- lists ---- */

static gboolean has_all(World *world, gpointer data)
{
    g_autoptr(Reply) list = http(data, "GET", "/v1/services", NULL);
    return cJSON_GetArraySize(json_at(list->json, "items")) == SERVICES;
}

static void note_names(const Reply *list, GPtrArray *names)
{
    const cJSON *item;
    cJSON_ArrayForEach(item, json_at(list->json, "items")) {
        g_ptr_array_add(names, g_strdup(json_text(item, "metadata.name")));
    }
}

static Reply *next_page(Proc *manager, const Reply *page)
{
    g_autofree char *token = g_uri_escape_string(json_text(page->json, "continue"), NULL, FALSE);
    g_autofree char *path = g_strdup_printf("/v1/services?limit=%d&continue=%s", PAGE, token);
    return http(manager, "GET", path, NULL);
}

static void put_services(World *world)
{
    for (guint i = 0; i < SERVICES; i++) {
        g_autofree char *key = g_strdup_printf("desired/services/s-%02u", i);
        world_putf(world, key,
                   "{\"metadata\":{\"labels\":{\"tier\":\"%s\",\"n\":\"%u\"}},\"spec\":"
                   "{\"owner\":\"a\"}}",
                   i % 5 == 0 ? "gold" : "tin", i);
    }
}

static void pages_show_one_revision(void **state)
{
    World *world = *state;
    g_autoptr(GPtrArray) names = g_ptr_array_new_with_free_func(g_free);
    g_autoptr(GError) error = NULL;
    Proc *manager = manager_ready(world, "manager");
    put_services(world);
    world_poll(world, has_all, manager, "the API lists all services");
    g_autoptr(Reply) first = http(manager, "GET", "/v1/services?limit=10", NULL);
    reply_must(first, 200);
    assert_string_equal(json_text(first->json, "kind"), "ServiceList");
    /* What happens in between is not to be seen. */
    world_delete(world, "desired/services/s-20");
    world_put(world, "desired/services/s-15-new", valid);
    g_autoptr(Reply) second = next_page(manager, first);
    g_autoptr(Reply) third = next_page(manager, second);
    reply_must(third, 200);
    assert_null(json_at(third->json, "continue"));
    assert_int_equal(lh_json_get_int(first->json, "revision", 0),
                     lh_json_get_int(third->json, "revision", 1));
    note_names(first, names);
    note_names(second, names);
    note_names(third, names);
    assert_int_equal(names->len, SERVICES);
    for (guint i = 0; i < SERVICES; i++) {
        g_autofree char *name = g_strdup_printf("s-%02u", i);
        assert_string_equal(g_ptr_array_index(names, i), name);
    }
    assert_true(etcd_process_compact(world->etcd, world_revision(world), &error));
    g_autoptr(Reply) gone = next_page(manager, first);
    reply_must(gone, 410);
}

static void check_selected(Proc *manager, const char *plural, const char *selector, int n)
{
    g_autofree char *escaped = g_uri_escape_string(selector, NULL, FALSE);
    g_autofree char *path = g_strdup_printf("/v1/%s?labelSelector=%s", plural, escaped);
    g_autoptr(Reply) list = http(manager, "GET", path, NULL);
    reply_must(list, 200);
    if (cJSON_GetArraySize(json_at(list->json, "items")) != n) {
        fail_msg("%s selects %d of %s instead of %d", selector,
                 cJSON_GetArraySize(json_at(list->json, "items")), plural, n);
    }
}

static void selectors_select(void **state)
{
    World *world = *state;
    Proc *manager = manager_ready(world, "manager");
    put_services(world);
    agents_start(world, 1);
    snapshot_publish(world, "a", "s-01", world->now_ms - 60000, 1, 100);
    snapshot_publish(world, "b", "s-02", world->now_ms - 60000, 1, 100);
    world_wait_live(world, NULL, 2);
    world_poll(world, has_all, manager, "the API lists all services");
    check_selected(manager, "services", "tier=gold", 5);
    check_selected(manager, "services", "tier!=gold", SERVICES - 5);
    check_selected(manager, "services", "tier=gold,n=5", 1);
    check_selected(manager, "services", "tier", SERVICES);
    check_selected(manager, "services", "!tier", 0);
    check_selected(manager, "snapshots", "service=s-01", 1);
    check_selected(manager, "items", "state=live", 2);
    check_selected(manager, "items", "state=failed", 0);
}

/* ---- watch ---- */

static gboolean watch_says(World *world, gpointer data)
{
    const char *const *words = data;
    Proc *curl = (Proc *)words[0];
    g_autofree char *text = proc_log(curl);
    const char *at = text;
    for (guint i = 1; words[i] != NULL && at != NULL; i++) {
        at = strstr(at, words[i]);
    }
    return at != NULL;
}

static Proc *watch(World *world, Proc *manager, const char *query, const char *header)
{
    g_autofree char *url = g_strdup_printf("%s/v1/services?watch=true%s", manager->url, query);
    const char *const argv[] = {"curl",      "-sN",
                                "--noproxy", "*",
                                "-H",        header != NULL ? header : "Accept: text/event-stream",
                                url,         NULL};
    Proc *curl = proc_start(world, "curl", argv);
    curl->excused = TRUE; /* ends when we tell it to */
    return curl;
}

static void watches_resume(void **state)
{
    World *world = *state;
    Proc *manager = manager_ready(world, "manager");
    gint64 first = world_put(world, "desired/services/one", valid);
    gint64 second = world_put(world, "desired/services/two", valid);
    g_autofree char *since_first = g_strdup_printf("&revision=%" G_GINT64_FORMAT, first);
    g_autofree char *since_second = g_strdup_printf("Last-Event-ID: %" G_GINT64_FORMAT, second);
    g_autofree char *id = g_strdup_printf("id: %" G_GINT64_FORMAT, second);
    world_poll(world, api_has_it_not, manager, "the API answers");
    Proc *early = watch(world, manager, since_first, NULL);
    Proc *late = watch(world, manager, "", since_second);
    const char *words[] = {(char *)early, "event: PUT", id, "\"two\"", NULL};
    world_poll(world, watch_says, words, "the watch begins after its revision");
    world_put(world, "desired/services/three", valid);
    world_delete(world, "desired/services/one");
    const char *all[] = {(char *)late, "event: PUT", "\"three\"", "event: DELETE", "\"one\"", NULL};
    world_poll(world, watch_says, all, "the watch shows what comes");
    all[0] = (char *)early;
    world_poll(world, watch_says, all, "the other watch shows it too");
    /* What is said of it later may come, under a later id. */
    g_autofree char *seen = proc_log(late);
    g_autofree char *whole_id = g_strconcat(id, "\n", NULL);
    assert_null(strstr(seen, whole_id));
    proc_kill(early);
    proc_kill(late);
    /* One that began to listen later does not know what was before. */
    Proc *other = manager_ready(world, "other");
    check_row(other, &(Row){"GET", "/v1/services?watch=true&revision=1", NULL, NULL, 410, NULL});
}

/* ---- cluster and metrics ---- */

static gboolean leads_all(World *world, gpointer data)
{
    g_autoptr(Reply) cluster = http(data, "GET", "/v1/cluster", NULL);
    return cJSON_GetArraySize(json_at(cluster->json, "instances.0.leads")) >= 5;
}

static gboolean has_two_nodes(World *world, gpointer data)
{
    return lh_mirror_count(world->mirror, LH_KIND_NODE) == 2;
}

static gboolean shows_two_nodes(World *world, gpointer data)
{
    g_autoptr(Reply) cluster = http(data, "GET", "/v1/cluster", NULL);
    return json_at(cluster->json, "counts.nodes")->valueint == 2;
}

static void the_cluster_is_shown(void **state)
{
    World *world = *state;
    Proc *manager = manager_ready(world, "manager");
    agents_start(world, 2);
    world_poll(world, leads_all, manager, "the only instance leads every controller");
    world_wait(world, has_two_nodes, NULL, "both nodes are registered");
    world_poll(world, shows_two_nodes, manager, "the manager has heard of both");
    g_autoptr(Reply) cluster = http(manager, "GET", "/v1/cluster", NULL);
    reply_must(cluster, 200);
    assert_int_equal(cJSON_GetArraySize(json_at(cluster->json, "instances")), 1);
    assert_true(json_text(cluster->json, "instances.0.host")[0] != '\0');
    assert_true(json_text(cluster->json, "instances.0.version")[0] != '\0');
    assert_int_equal(json_at(cluster->json, "instances.0.port")->valueint,
                     atoi(strrchr(manager->url, ':') + 1));
    assert_int_equal(json_at(cluster->json, "counts.nodes")->valueint, 2);
    assert_int_equal(json_at(cluster->json, "pools.0.nodes")->valueint, 2);
    assert_true(lh_json_get_int(json_at(cluster->json, "mirror"), "revision", 0) > 0);
}

static void metrics_have_the_promised_names(void **state)
{
    static const char *const names[] = {
        "build_info",
        "reconcile_total",
        "reconcile_duration_seconds_bucket",
        "last_successful_reconcile_timestamp_seconds",
        "queue_depth",
        "leader",
        "etcd_txn_total",
        "etcd_txn_duration_seconds_bucket",
        "etcd_watch_lag_revisions",
        "mirror_objects",
        "mirror_revision",
        "invalid_objects",
        "event_to_commit_duration_seconds_bucket",
        "fenced_writes_rejected_total",
        "brake",
        "items",
        "nodes",
        "pool_capacity_bytes",
        "pool_used_bytes",
        "cache_wanted_bytes",
        "cache_demand_ratio",
        "unassigned_items",
        "unassigned_bytes",
        "parked_items",
    };
    World *world = *state;
    guint missing = 0;
    Proc *manager = manager_ready(world, "manager");
    agents_start(world, 1);
    world_put(world, "desired/services/x", valid);
    snapshot_publish(world, "s", "x", world->now_ms - 60000, 1, 100);
    world_wait_live(world, NULL, 1);
    g_autoptr(Reply) reply = http(manager, "GET", "/metrics", NULL);
    reply_must(reply, 200);
    for (guint i = 0; i < G_N_ELEMENTS(names); i++) {
        g_autofree char *labelled = g_strdup_printf("\nleasehold_%s{", names[i]);
        g_autofree char *plain = g_strdup_printf("\nleasehold_%s ", names[i]);
        if (strstr(reply->body->str, labelled) == NULL && strstr(reply->body->str, plain) == NULL) {
            print_error("there is no leasehold_%s\n", names[i]);
            missing++;
        }
    }
    if (strstr(reply->body->str, "process_resident_memory_bytes") == NULL) {
        print_error("there is no process_resident_memory_bytes\n");
        missing++;
    }
    assert_int_equal(missing, 0);
}

#define SCENARIO(name_) cmocka_unit_test_setup_teardown(name_, world_setup, world_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        SCENARIO(it_is_ready_only_with_etcd),
        SCENARIO(objects_are_written_with_compares),
        SCENARIO(bodies_that_are_none_are_refused),
        SCENARIO(pages_show_one_revision),
        SCENARIO(selectors_select),
        SCENARIO(watches_resume),
        SCENARIO(the_cluster_is_shown),
        SCENARIO(metrics_have_the_promised_names),
    };
    return cmocka_run_group_tests_name("integration-api", tests, NULL, NULL);
}
