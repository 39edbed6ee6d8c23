/*
 * The API's wiring: health, metrics and the view of the whole cluster. The other routes are in
 * api_objects.c, api_watch.c, api_actions.c, api_pools.c and api_docs.c.
 */
#include "http/api.h"

#include "base/errors.h"
#include "base/json.h"
#include "controllers/capacity.h"
#include "controllers/pool.h"
#include "http/api_internal.h"
#include "runtime/record.h"

#include <string.h>

#define READY_STALENESS_MS 15000
#define READY_DEADLINE_MS  2000

/* Answering at all proves that the main loop is not stuck. */
static void handle_healthz(LhHttpRequest *request, gpointer data)
{
    (void)data;
    lh_http_reply(request, 200, "text/plain", "ok\n", -1);
}

static void on_ready(const LhRangeReply *reply, const GError *error, gpointer data)
{
    (void)reply;
    if (error != NULL)
        lh_http_reply_problem(data, 503, NULL, "etcd does not answer: %s", error->message);
    else
        lh_http_reply(data, 200, "text/plain", "ok\n", -1);
}

static void handle_readyz(LhHttpRequest *request, gpointer data)
{
    LhApi *api = data;
    LhMirror *mirror = api->options.mirror;
    LhRangeRequest range = {.key = lh_mirror_prefix(mirror), .count_only = TRUE};

    if (!lh_mirror_synced(mirror) || lh_mirror_staleness_ms(mirror) > READY_STALENESS_MS) {
        lh_http_reply_problem(request, 503, NULL, "the mirror has not caught up with etcd");
        return;
    }
    api->options.etcd->v->range(api->options.etcd, &range, READY_DEADLINE_MS, on_ready, request);
}

static void declare_etcd_metrics(LhMetrics *metrics)
{
    lh_metrics_declare(metrics, LH_GAUGE, "etcd_reachable", "1 when etcd answered the last time.",
                       NULL);
    lh_metrics_declare(metrics, LH_GAUGE, "etcd_alarm", "1 while etcd raises the alarm.", NULL);
    lh_metrics_declare(metrics, LH_GAUGE, "etcd_db_size_bytes", "Size of etcd's database.", NULL);
}

static void set_etcd_metrics(const LhApi *api)
{
    LhMetrics *metrics = api->options.metrics;
    g_autofree char *nospace = lh_labels("alarm", "NOSPACE", NULL);
    g_autofree char *corrupt = lh_labels("alarm", "CORRUPT", NULL);

    if (api->options.contact == NULL)
        return;
    const LhStatusReply *status = lh_contact_status(api->options.contact);
    lh_gauge_set(metrics, "etcd_reachable", NULL,
                 status != NULL && lh_contact_trouble(api->options.contact) == NULL);
    if (status == NULL)
        return;
    lh_gauge_set(metrics, "etcd_alarm", nospace, status->alarm_nospace);
    lh_gauge_set(metrics, "etcd_alarm", corrupt, status->alarm_corrupt);
    lh_gauge_set(metrics, "etcd_db_size_bytes", NULL, (double)status->db_size_bytes);
}

static void handle_metrics(LhHttpRequest *request, gpointer data)
{
    LhApi *api = data;

    set_etcd_metrics(api);
    g_autofree char *text = lh_metrics_text(api->options.metrics);

    lh_http_reply(request, 200, "text/plain; version=0.0.4; charset=utf-8", text, -1);
}

/* ---- /v1/cluster ---- */

typedef struct {
    const LhLeader *leader; /* any of its keys */
    GPtrArray *leads;       /* controllers */
} Instance;

typedef struct {
    GHashTable *instances; /* instance -> Instance */
    GHashTable *oldest;    /* controller -> LhLeader */
} Leaders;

static void instance_free(gpointer data)
{
    g_ptr_array_unref(((Instance *)data)->leads);
    g_free(data);
}

static void gather_leader(const LhObject *object, gpointer data)
{
    Leaders *leaders = data;
    const LhLeader *leader = (const LhLeader *)object, *oldest;
    const char *slash = strchr(object->name, '/');
    g_autofree char *controller = NULL;

    if (!lh_object_known(object) || lh_object_lease(object) == 0 || slash == NULL ||
        leader->instance == NULL)
        return;
    if (!g_hash_table_contains(leaders->instances, leader->instance)) {
        Instance *instance = g_new0(Instance, 1);
        instance->leader = leader;
        instance->leads = g_ptr_array_new_with_free_func(g_free);
        g_hash_table_insert(leaders->instances, g_strdup(leader->instance), instance);
    }
    controller = g_strndup(object->name, (gsize)(slash - object->name));
    oldest = g_hash_table_lookup(leaders->oldest, controller);
    if (oldest == NULL || object->create_rev < oldest->o.create_rev)
        g_hash_table_insert(leaders->oldest, g_steal_pointer(&controller), (gpointer)leader);
}

static gint by_text(gconstpointer a, gconstpointer b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void append_instance(LhApi *api, GString *out, const Instance *instance)
{
    gint64 uptime = MAX(0, lh_wall_ms(api->options.env) - instance->leader->started_at) / 1000;
    const char *url = instance->leader->url == NULL ? "" : instance->leader->url;
    const char *colon = strrchr(url, ':');

    g_string_append(out, g_str_has_suffix(out->str, "[") ? "{" : ",{");
    lh_json_append_key(out, "instance");
    lh_json_append_string(out, instance->leader->instance);
    lh_json_append_key(out, "host");
    lh_json_append_string(out, instance->leader->host);
    lh_json_append_key(out, "port");
    lh_json_append_int(out, colon == NULL ? 0 : g_ascii_strtoll(colon + 1, NULL, 10));
    lh_json_append_key(out, "url");
    lh_json_append_string(out, url);
    lh_json_append_key(out, "uptimeSeconds");
    lh_json_append_int(out, uptime);
    lh_json_append_key(out, "version");
    lh_json_append_string(out, instance->leader->version);
    lh_json_append_key(out, "leads");
    g_string_append_c(out, '[');
    for (guint i = 0; i < instance->leads->len; i++) {
        if (i > 0)
            g_string_append_c(out, ',');
        lh_json_append_string(out, g_ptr_array_index(instance->leads, i));
    }
    g_string_append(out, "]}");
}

static void append_instances(LhApi *api, GString *out)
{
    Leaders leaders = {
        g_hash_table_new_full(g_str_hash, g_str_equal, g_free, instance_free),
        g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL),
    };
    g_autoptr(GPtrArray) names = g_ptr_array_new();
    GHashTableIter iter;
    gpointer key, value;

    lh_mirror_foreach(api->options.mirror, LH_KIND_LEADER, gather_leader, &leaders);
    g_hash_table_iter_init(&iter, leaders.oldest);
    while (g_hash_table_iter_next(&iter, &key, &value)) {
        Instance *instance = g_hash_table_lookup(leaders.instances,
                                                 ((const LhLeader *)value)->instance);
        g_ptr_array_add(instance->leads, g_strdup(key));
    }
    g_hash_table_iter_init(&iter, leaders.instances);
    while (g_hash_table_iter_next(&iter, &key, &value)) {
        g_ptr_array_sort(((Instance *)value)->leads, by_text);
        g_ptr_array_add(names, key);
    }
    g_ptr_array_sort(names, by_text);
    lh_json_append_key(out, "instances");
    g_string_append_c(out, '[');
    for (guint i = 0; i < names->len; i++)
        append_instance(api, out,
                        g_hash_table_lookup(leaders.instances, g_ptr_array_index(names, i)));
    g_string_append_c(out, ']');
    g_hash_table_unref(leaders.instances);
    g_hash_table_unref(leaders.oldest);
}

static void append_number(GString *out, const char *name, gint64 value)
{
    lh_json_append_key(out, name);
    lh_json_append_int(out, value);
}

static void append_cache(LhApi *api, GString *out)
{
    LhPlanContext context;
    const LhFleet *fleet = lh_runtime_index(
        api->options.runtime, lh_runtime_controllers(api->options.runtime)[0], &context);
    g_autoptr(GArray) rows = lh_capacity_rows(fleet, context.now_ms);

    for (guint i = 0; i < rows->len; i++) {
        const LhSetCapacity *row = &g_array_index(rows, LhSetCapacity, i);
        g_string_append(out, i == 0 ? "{" : ",{");
        lh_json_append_key(out, "pool");
        lh_json_append_string(out, LH_POOL_CACHE);
        lh_json_append_key(out, "set");
        lh_json_append_string(out, row->set);
        append_number(out, "nodes", row->nodes);
        append_number(out, "capacityBytes", row->capacity_bytes);
        append_number(out, "usedBytes", row->used_bytes);
        append_number(out, "waitingItems", row->waiting_items);
        append_number(out, "waitingBytes", row->waiting_bytes);
        append_number(out, "missingBytes", row->missing_bytes);
        g_string_append_c(out, '}');
    }
}

/* An exclusive pool: its capacity is in items, and 0 where a node has no limit. */
static void append_exclusive(const LhPoolView *view, GString *out)
{
    GHashTableIter iter;
    gpointer value;
    gint64 nodes = 0, held = 0, capacity = 0;
    gboolean limited = TRUE;

    g_hash_table_iter_init(&iter, view->nodes);
    while (g_hash_table_iter_next(&iter, NULL, &value)) {
        const LhPoolNode *node = value;
        held += node->held;
        if (node->object == NULL || !lh_object_known(node->object))
            continue;
        nodes++;
        capacity += ((const LhNode *)node->object)->capacity_items;
        limited = limited && ((const LhNode *)node->object)->capacity_items > 0;
    }
    if (nodes == 0 && held == 0)
        return;
    g_string_append(out, g_str_has_suffix(out->str, "[") ? "{" : ",{");
    lh_json_append_key(out, "pool");
    lh_json_append_string(out, view->name);
    append_number(out, "nodes", nodes);
    append_number(out, "items", held);
    append_number(out, "capacityItems", limited ? capacity : 0);
    append_number(out, "waitingItems", g_tree_nnodes(view->waiting));
    g_string_append_c(out, '}');
}

static void append_pools(LhApi *api, GString *out)
{
    static const char *const names[] = {LH_POOL_INDEXER, LH_POOL_MANAGER, LH_POOL_RECOVERY,
                                        "worker"};
    LhPlanContext context;
    gconstpointer pools = lh_api_pools(api, &context);

    lh_json_append_key(out, "pools");
    g_string_append_c(out, '[');
    append_cache(api, out);
    for (guint i = 0; pools != NULL && i < G_N_ELEMENTS(names); i++) {
        const LhPoolView *view = lh_pools_view(pools, names[i]);
        if (view != NULL)
            append_exclusive(view, out);
    }
    g_string_append_c(out, ']');
}

static void append_counts(LhApi *api, GString *out)
{
    lh_json_append_key(out, "counts");
    g_string_append_c(out, '{');
    for (guint kind = 0; kind < LH_N_KINDS; kind++)
        append_number(out, lh_kind_info((LhKind)kind)->plural,
                      lh_mirror_count(api->options.mirror, (LhKind)kind));
    g_string_append_c(out, '}');
}

static void append_etcd(LhApi *api, GString *out)
{
    if (api->options.contact == NULL)
        return;
    const LhStatusReply *status = lh_contact_status(api->options.contact);
    const char *trouble = lh_contact_trouble(api->options.contact);

    lh_json_append_key(out, "etcd");
    g_string_append_c(out, '{');
    lh_json_append_key(out, "endpoint");
    lh_json_append_string(out, lh_etcd_grpc_endpoint(api->options.etcd));
    if (status != NULL) {
        lh_json_append_key(out, "version");
        lh_json_append_string(out, status->version);
        append_number(out, "dbSizeBytes", status->db_size_bytes);
        lh_json_append_key(out, "alarms");
        g_string_append_printf(out, "[%s%s%s]", status->alarm_nospace ? "\"NOSPACE\"" : "",
                               status->alarm_nospace && status->alarm_corrupt ? "," : "",
                               status->alarm_corrupt ? "\"CORRUPT\"" : "");
    }
    if (trouble != NULL) {
        lh_json_append_key(out, "trouble");
        lh_json_append_string(out, trouble);
    }
    g_string_append_c(out, '}');
}

static void handle_cluster(LhHttpRequest *request, gpointer data)
{
    LhApi *api = data;
    GString *out = g_string_new("{");

    append_instances(api, out);
    append_pools(api, out);
    append_counts(api, out);
    append_etcd(api, out);
    lh_json_append_key(out, "mirror");
    g_string_append_c(out, '{');
    append_number(out, "revision", lh_mirror_revision(api->options.mirror));
    append_number(out, "stalenessMs", lh_mirror_staleness_ms(api->options.mirror));
    lh_json_append_key(out, "synced");
    g_string_append(out, lh_mirror_synced(api->options.mirror) ? "true" : "false");
    g_string_append(out, "},\"version\":");
    lh_json_append_string(out, api->options.version);
    g_string_append_c(out, '}');
    lh_http_reply_json(request, 200, g_string_free(out, FALSE), NULL);
}

LhApi *lh_api_new(LhHttpServer *server, const LhApiOptions *options)
{
    LhApi *api = g_new0(LhApi, 1);

    api->options = *options;
    api->server = server;
    api->hub = lh_hub_new(api);
    declare_etcd_metrics(options->metrics);
    lh_http_server_route(server, "GET", "/healthz", LH_ROLE_ANYONE, handle_healthz, api);
    lh_http_server_route(server, "GET", "/readyz", LH_ROLE_ANYONE, handle_readyz, api);
    lh_http_server_route(server, "GET", "/metrics", LH_ROLE_VIEWER, handle_metrics, api);
    lh_http_server_route(server, "GET", "/v1/cluster", LH_ROLE_VIEWER, handle_cluster, api);
    lh_api_docs_routes(api);
    lh_api_actions_routes(api);
    lh_api_pools_routes(api);
    lh_api_objects_routes(api);
    return api;
}

void lh_api_free(LhApi *api)
{
    if (api == NULL)
        return;
    lh_hub_free(api->hub);
    g_free(api->docs_page);
    g_clear_pointer(&api->holdings, g_hash_table_unref);
    g_free(api);
}
