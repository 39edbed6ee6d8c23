/*
 * What a cluster's keys and values look like. The values are those that the product itself would write
 * (lh_object_print), but for snapshots: those are written by others, and are 343 bytes long.
 */
#include "cluster.h"

#include "api/actual.h"
#include "api/decided.h"
#include "api/desired.h"
#include "base/units.h"
#include "etcd/lease.h"
#include "nodes.h"

#include <stdio.h>
#include <string.h>

#define SERVICES       20
#define PARTITIONS     64
#define SNAPSHOT_BYTES 343
#define MINUTE_MS      (60 * 1000)
#define HOUR_MS        (60 * MINUTE_MS)
#define DAY_MS         (24 * G_GINT64_CONSTANT(1) * HOUR_MS)
#define NODE_TTL_S     60
#define ROOM           (G_GINT64_CONSTANT(1) << 50)
#define MOST_LOADS     1000 /* what Settings permit at most */

/* ---- snapshots ---- */

typedef struct {
    guint service, partition;
    gint64 end_ms;
    guint64 number; /* tells the bytes of two snapshots apart */
    char name[64];
} Identity;

guint cluster_services(const Cluster *cluster)
{
    return cluster->o.services > 0 ? cluster->o.services : SERVICES;
}

static Identity identity_of(const Cluster *cluster, guint i)
{
    guint services = cluster_services(cluster);
    guint n = services * PARTITIONS; /* one snapshot of each ends every minute */
    guint old = cluster->o.snapshots, series = i % n;
    gint64 minutes = i < old ? -(gint64)(i / n) : 1 + (i - old) / n;
    Identity id = {
        .end_ms = cluster->newest_ms + minutes * MINUTE_MS,
        .number = i * G_GUINT64_CONSTANT(0x9e3779b97f4a7c15),
    };
    if (cluster->o.staggered)
        id.end_ms -= series * (MINUTE_MS / n) + 1;
    g_autoptr(GDateTime) end = g_date_time_new_from_unix_utc(id.end_ms / 1000);

    series = i < old ? series : (i - old) % n;
    id.service = series % services;
    id.partition = series / services;
    g_snprintf(id.name, sizeof id.name, "svc-%02u-%04d%02d%02d-%02d%02d-%04u", id.service,
               g_date_time_get_year(end), g_date_time_get_month(end),
               g_date_time_get_day_of_month(end), g_date_time_get_hour(end),
               g_date_time_get_minute(end), id.partition);
    return id;
}

static char *uri_of(const Cluster *cluster, const Identity *id)
{
    const char *day = id->name + strlen("svc-00-"), *hour = day + strlen("20260131-");

    if (cluster->o.root != NULL)
        return g_strdup_printf("%s%s/", cluster->o.root, id->name);
    return g_strdup_printf("s3://leasehold-snapshots-production-eu-central-1/"
                           "search-platform.lucene-9.full-index.sealed-segments/"
                           "svc-%02u/%.4s/%.2s/%.2s/%.4s/partition-%04u/%s/",
                           id->service, day, day + 4, day + 6, hour, id->partition, id->name);
}

static gint64 size_of(const Identity *id)
{
    return 500000000 + (gint64)(id->number % 400000000);
}

void cluster_snapshot(const Cluster *cluster, guint i, char **key, char **value)
{
    Identity id = identity_of(cluster, i);
    g_autofree char *start = lh_time_format(id.end_ms - MINUTE_MS);
    g_autofree char *end = lh_time_format(id.end_ms);
    g_autofree char *uri = uri_of(cluster, &id);

    *key = g_strconcat("published/snapshots/", id.name, NULL);
    *value = g_strdup_printf(
        "{\"service\":\"svc-%02u\",\"partition\":\"partition-%04u\",\"startTime\":\"%s\","
        "\"endTime\":\"%s\",\"maxOffset\":%u,\"sizeBytes\":%" G_GINT64_FORMAT ",\"uri\":\"%s\"}",
        id.service, id.partition, start, end, 100000000 + (guint)(id.number % 800000000),
        size_of(&id), uri);
    if (cluster->o.root == NULL && strlen(*value) != SNAPSHOT_BYTES)
        bench_fail("a snapshot's value has %zu bytes, not %d: %s", strlen(*value), SNAPSHOT_BYTES,
                   *value);
}

/* ---- what was decided about them ---- */

gint64 cluster_window_ms(const Cluster *cluster, guint service)
{
    if (service < cluster->o.expiring)
        return HOUR_MS / 4; /* the newest ended an hour ago */
    return cluster->o.expired ? HOUR_MS : 7 * DAY_MS;
}

static gint64 retention_ms(const Cluster *cluster, guint service)
{
    if (cluster->o.staggered) /* what leaves the cache can be deleted nearly at once */
        return cluster_window_ms(cluster, service) + 1;
    return service < cluster->o.expiring ? HOUR_MS / 2 : 365 * DAY_MS;
}

gint64 cluster_end_ms(const Cluster *cluster, guint i)
{
    return identity_of(cluster, i).end_ms;
}

void cluster_write_files(const Cluster *cluster)
{
    for (guint i = 0; i < cluster->o.snapshots; i++) {
        Identity id = identity_of(cluster, i);
        g_autofree char *uri = uri_of(cluster, &id);
        const char *dir = uri + strlen("file://");
        g_autofree char *file = g_strconcat(dir, "part-0", NULL);
        FILE *out = g_mkdir_with_parents(dir, 0700) == 0 ? fopen(file, "we") : NULL;
        if (out == NULL || fputs("data", out) < 0 || fclose(out) != 0)
            bench_fail("%s cannot be written", file);
    }
}

void cluster_replica(const Cluster *cluster, guint i, char **key, char **value)
{
    Identity id = identity_of(cluster, i);
    g_autofree char *service = g_strdup_printf("svc-%02u", id.service);
    LhReplica replica = {
        .snapshot = id.name,
        .service = service,
        .set = "default",
        .created_at = id.end_ms,
        .expires_at = id.end_ms + cluster_window_ms(cluster, id.service),
    };

    *key = g_strdup_printf("decided/replicas/%s.default.0", id.name);
    *value = lh_object_print(LH_KIND_REPLICA, &replica);
}

static char *node_id(guint i)
{
    return g_strdup_printf("cache-%04u-%08x", i, i * 2654435761u);
}

void cluster_assignment(const Cluster *cluster, guint i, char **key, char **value)
{
    Identity id = identity_of(cluster, i);
    g_autofree char *node = node_id(i % cluster->o.nodes);
    g_autofree char *uri = uri_of(cluster, &id);
    LhAssignment object = {
        .action = LH_ACTION_LOAD,
        .since = id.end_ms,
        .controller = "cache-assigner",
        .epoch = 1,
        .rule = "placed-by-strategy",
        .reason = "spread: the emptiest node with room",
        .snapshot = id.name,
        .uri = uri,
        .size_bytes = size_of(&id),
        .set = "default",
        .evict_grace_ms = 5000,
    };

    *key = g_strdup_printf("decided/assignments/cache/%s/%s.default.0", node, id.name);
    *value = lh_object_print(LH_KIND_ASSIGNMENT, &object);
}

/* ---- nodes, services, settings ---- */

void cluster_node(const Cluster *cluster, guint i, char **key, char **value)
{
    g_autofree char *id = node_id(i), *name = lh_node_name_of(id);
    g_autofree char *host = g_strconcat(name, ".cache.example.org", NULL);
    g_autofree char *zone = g_strdup_printf("zone-%u", i % 3);
    g_autofree char *lease = cluster->keeper == NULL ? NULL
                                                     : lh_lease_hex(keeper_lease(cluster->keeper));
    LhNode node = {
        .node_name = name,
        .host = host,
        .set = "default",
        .zone = zone,
        .capacity_bytes = ROOM,
        .state = LH_NODE_ONLINE,
        .started_at = cluster->newest_ms,
        .version = LEASEHOLD_VERSION,
        .lease = lease,
        .lease_ttl_ms = NODE_TTL_S * 1000,
    };

    *key = g_strconcat("actual/nodes/cache/", id, NULL);
    *value = lh_object_print(LH_KIND_NODE, &node);
}

char *cluster_service_spec(const Cluster *cluster, guint i)
{
    g_autofree char *window = lh_duration_format(cluster_window_ms(cluster, i));
    g_autofree char *retention = lh_duration_format(retention_ms(cluster, i));

    return g_strdup_printf(
        "{\"owner\":\"bench\",\"retention\":\"%s\",\"cache\":{\"window\":\"%s\"}}", retention,
        window);
}

static char *accepted_of(const char *spec, gint64 revision)
{
    LhAccepted accepted = {.revision = revision, .accepted_at = 1, .spec = spec};

    return lh_object_print(LH_KIND_ACCEPTED, &accepted);
}

void cluster_service(const Cluster *cluster, guint i, char **accepted_key, char **accepted)
{
    g_autofree char *spec = cluster_service_spec(cluster, i);

    *accepted_key = g_strdup_printf("decided/accepted/services/svc-%02u", i);
    *accepted = accepted_of(spec, 1);
}

char *cluster_settings_spec(const Cluster *cluster, gboolean paused)
{
    return g_strdup_printf("{\"debounce\":\"0s\",\"maxConcurrentLoads\":%d,\"paused\":%s}",
                           MOST_LOADS, paused ? "true" : "false");
}

char *cluster_settings(const Cluster *cluster, gboolean paused)
{
    g_autofree char *spec = cluster_settings_spec(cluster, paused);

    return accepted_of(spec, 1);
}

/* ---- writing ---- */

char *cluster_key(const Cluster *cluster, const char *key_format, ...)
{
    g_autofree char *key = NULL;
    va_list args;

    va_start(args, key_format);
    key = g_strdup_vprintf(key_format, args);
    va_end(args);
    return g_strconcat(cluster->prefix, key, NULL);
}

/* A desired object, and what admission would make of it. */
void cluster_put_accepted(const Cluster *cluster, const char *subject, const char *spec)
{
    g_autofree char *key = cluster_key(cluster, "desired/%s", subject);
    g_autofree char *value = g_strdup_printf("{\"spec\":%s}", spec);
    g_autofree char *copy_key = cluster_key(cluster, "decided/accepted/%s", subject);
    g_autofree char *copy = accepted_of(spec, client_put(key, value, 0));

    client_put(copy_key, copy, 0);
}

typedef struct {
    const Cluster *cluster;
    void (*item)(const Cluster *cluster, guint i, char **key, char **value);
} Filler;

static void whole_item(guint i, char **key, char **value, gpointer data)
{
    const Filler *filler = data;
    g_autofree char *below = NULL;

    filler->item(filler->cluster, i, &below, value);
    *key = g_strconcat(filler->cluster->prefix, below, NULL);
}

static void fill(const Cluster *cluster, guint n,
                 void (*item)(const Cluster *cluster, guint i, char **key, char **value),
                 gint64 lease)
{
    Filler filler = {cluster, item};

    client_load(n, whole_item, &filler, lease);
}

static void put_services(const Cluster *cluster)
{
    for (guint i = 0; i < cluster_services(cluster); i++) {
        g_autofree char *subject = g_strdup_printf("services/svc-%02u", i);
        g_autofree char *spec = cluster_service_spec(cluster, i);
        cluster_put_accepted(cluster, subject, spec);
    }
    cluster_put_accepted(cluster, "settings/replica-creator", "{\"debounce\":\"0s\"}");
}

Cluster *cluster_imagine(const ClusterOptions *options)
{
    Cluster *cluster = g_new0(Cluster, 1);
    gint64 now_ms = g_get_real_time() / 1000;

    cluster->o = *options;
    cluster->prefix = g_strdup_printf("/%s/", options->label);
    /* Not yet expired is also what will be published during the run. */
    cluster->newest_ms = now_ms - now_ms % MINUTE_MS - (options->expired ? 30 * DAY_MS : HOUR_MS);
    return cluster;
}

/* Simulated nodes answer each as it comes, and stop then. */
static void fill_assignments(Cluster *cluster)
{
    Nodes *nodes = cluster->o.live ? nodes_new(cluster) : NULL;

    fill(cluster, cluster->o.snapshots, cluster_assignment, 0);
    if (nodes == NULL)
        return;
    nodes_wait_live(nodes, cluster->o.snapshots);
    nodes_free(nodes);
}

static const char *what_of(const ClusterOptions *options)
{
    return !options->replicated ? ""
           : !options->assigned ? " with replicas"
           : options->live      ? " with replicas and assignments, live"
                                : " with replicas and assignments";
}

Cluster *cluster_new(const ClusterOptions *options)
{
    Cluster *cluster = cluster_imagine(options);
    g_autofree char *spec = cluster_settings_spec(cluster, options->paused);

    bench_say("writing %s: %u snapshots%s, %u nodes", cluster->prefix, options->snapshots,
              what_of(options), options->nodes);
    put_services(cluster);
    cluster_put_accepted(cluster, "settings/cache-assigner", spec);
    if (options->evictor_paused)
        cluster_put_accepted(cluster, "settings/cache-evictor", "{\"paused\":true}");
    fill(cluster, options->snapshots, cluster_snapshot, 0);
    if (options->replicated)
        fill(cluster, options->snapshots, cluster_replica, 0);
    if (options->nodes > 0) {
        cluster->keeper = keeper_new(NODE_TTL_S);
        fill(cluster, options->nodes, cluster_node, keeper_lease(cluster->keeper));
    }
    if (options->assigned)
        fill_assignments(cluster);
    return cluster;
}

void cluster_free(Cluster *cluster)
{
    if (cluster == NULL)
        return;
    if (cluster->keeper != NULL)
        keeper_free(cluster->keeper);
    g_free(cluster->prefix);
    g_free(cluster);
}

/* Not accepted here: this is the change that a running manager shall see. */
void cluster_pause(Cluster *cluster, gboolean paused)
{
    g_autofree char *key = cluster_key(cluster, "desired/settings/cache-assigner");
    g_autofree char *spec = cluster_settings_spec(cluster, paused);
    g_autofree char *value = g_strdup_printf("{\"spec\":%s}", spec);

    client_put(key, value, 0);
}

void cluster_unassign(Cluster *cluster)
{
    for (guint i = 0; i < cluster->o.nodes; i++) {
        g_autofree char *node = node_id(i);
        g_autofree char *prefix = cluster_key(cluster, "decided/assignments/cache/%s/", node);
        client_delete_prefix(prefix);
    }
}

char *cluster_next(Cluster *cluster, char **key, char **value)
{
    guint i = cluster->o.snapshots + cluster->published++;
    g_autofree char *below = NULL;
    Identity id = identity_of(cluster, i);

    cluster_snapshot(cluster, i, &below, value);
    *key = g_strconcat(cluster->prefix, below, NULL);
    return g_strdup(id.name);
}
