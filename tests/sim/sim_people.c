/*
 * People and the data plane: services and their edits, good and bad; snapshots published, finished,
 * retired; junk under every prefix and its mending; cordons and drains; operators who confirm brakes and unpark.
 * They write straight into the fake's store, as etcdctl would, and never see a controller's code.
 */
#include "base/units.h"
#include "sim.h"

#include <string.h>

#define SERVICES      5
#define PARTITIONS    12
#define MAX_SNAPSHOTS 70
#define RETAINED_S    60    /* longer than they are cached */
#define PUBLISH_MS    20000 /* within which what is there from the start is published */

typedef struct {
    gint64 window_s, replicas;
    guint sets;
    gboolean paused, exists;
    gint64 throughput, partitions;
    gboolean dedicated;
} Service;

typedef struct {
    char *value; /* what was there; NULL: nothing */
    gint64 lease, junk_rev;
} Mend;

struct SimPeople {
    Service services[SERVICES];
    guint published;
    GHashTable *mends;  /* key → Mend */
    GHashTable *junked; /* set of all keys that ever held junk */
};

static const char *const set_names[] = {
    "\"default\"",
    "\"default\",\"extra\"",
    "\"extra\"",
};
static const gint64 windows_s[] = {60, 180, 300, 600, 3600, 86400};

static char *service_name(guint i)
{
    return g_strdup_printf("svc-%u", i);
}

static void put_service(Sim *sim, guint i)
{
    const Service *service = &sim->people->services[i];
    g_autofree char *name = service_name(i);
    g_autofree char *key = lh_key(LH_KIND_SERVICE, name);
    g_autofree char *value = g_strdup_printf(
        "{\"spec\":{\"owner\":\"sim\",\"retention\":\"%" G_GINT64_FORMAT
        "s\",\"paused\":%s,\"cache\":{\"window\":\"%" G_GINT64_FORMAT
        "s\",\"replicas\":%" G_GINT64_FORMAT
        ",\"sets\":[%s]},\"throughputBytesPerSecond\":%" G_GINT64_FORMAT
        ",\"partitions\":{\"min\":%" G_GINT64_FORMAT ",\"dedicated\":%s}}}",
        service->window_s + RETAINED_S, service->paused ? "true" : "false", service->window_s,
        service->replicas, set_names[service->sets], service->throughput, service->partitions,
        service->dedicated ? "true" : "false");
    sim_put(sim, key, value, 0);
}

static void publish_one(Sim *sim, SimProcess *process, const char *text, gint64 number);

static void put_partition(Sim *sim, guint i)
{
    g_autofree char *key = g_strdup_printf("desired/partitions/p_%u", i);
    g_autofree char *value = g_strdup_printf(
        "{\"spec\":{\"capacityBytesPerSecond\":%" G_GINT64_FORMAT "}}", sim_between(sim, 5, 40));
    sim_put(sim, key, value, 0);
}

void sim_people_begin(Sim *sim)
{
    static const Service first[SERVICES] = {
        {86400, 2, 0, FALSE, TRUE, 30, 2, FALSE}, {300, 1, 0, FALSE, TRUE, 15, 1, FALSE},
        {600, 1, 1, FALSE, TRUE, 0, 2, FALSE},    {180, 2, 0, FALSE, TRUE, 40, 2, FALSE},
        {3600, 1, 2, FALSE, TRUE, 10, 1, TRUE},
    };
    sim->people = g_new0(SimPeople, 1);
    memcpy(sim->people->services, first, sizeof first);
    sim->people->mends = g_hash_table_new(g_str_hash, g_str_equal);
    sim->people->junked = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
    sim_put(sim, "desired/settings/cache-assigner",
            "{\"spec\":{\"failureGrace\":\"15s\",\"restoreReservePercent\":10}}", 0);
    sim_put(sim, "desired/settings/cache-evictor", "{\"spec\":{\"evictGrace\":\"1s\"}}", 0);
    sim_restores_begin(sim);
    sim_put(sim, "desired/settings/snapshot-cleaner",
            "{\"spec\":{\"buffer\":\"10s\",\"reconcileInterval\":\"20s\",\"orphanGrace\":\"40s\","
            "\"deletesPerSecond\":3}}",
            0);
    sim_put(
        sim, "desired/settings/cluster-monitor",
        "{\"spec\":{\"stuckAssigned\":\"15s\",\"stuckLoading\":\"25s\",\"stuckEvicting\":\"30s\"}}",
        0);
    sim_put(sim, "desired/settings/partition-allocator", "{\"spec\":{\"cutover\":\"20s\"}}", 0);
    for (guint i = 0; i < PARTITIONS; i++)
        put_partition(sim, i);
    for (guint i = 0; i < SERVICES; i++)
        put_service(sim, i);
    for (guint i = 0; i < sim->options.snapshots; i++)
        sim_later(sim, (gint64)i * PUBLISH_MS / sim->options.snapshots, publish_one, NULL, NULL, 0);
}

static void mend_free(Mend *mend)
{
    g_free(mend->value);
    g_free(mend);
}

void sim_people_free(Sim *sim)
{
    GHashTableIter iter;
    gpointer key, value;
    g_hash_table_iter_init(&iter, sim->people->mends);
    while (g_hash_table_iter_next(&iter, &key, &value)) {
        g_free(key);
        mend_free(value);
    }
    g_hash_table_unref(sim->people->mends);
    g_hash_table_unref(sim->people->junked);
    g_clear_pointer(&sim->people, g_free);
}

/* ---- services ---- */

static void edit(Sim *sim)
{
    guint i = (guint)sim_below(sim, SERVICES);
    Service *service = &sim->people->services[i];
    if (!service->exists)
        return;
    switch (sim_below(sim, 4)) {
    case 0:
        service->window_s = windows_s[sim_below(sim, G_N_ELEMENTS(windows_s))];
        break;
    case 1:
        service->replicas = sim_between(sim, 0, 3);
        break;
    case 2:
        service->sets = (guint)sim_below(sim, G_N_ELEMENTS(set_names));
        break;
    default:
        service->paused = !service->paused;
        break;
    }
    sim->counters.edits++;
    put_service(sim, i);
}

static void change_mind(Sim *sim, SimProcess *process, const char *text, gint64 number)
{
    (void)process;
    (void)text;
    Service *service = &sim->people->services[number % SERVICES];
    service->replicas = number / SERVICES;
    if (service->exists)
        put_service(sim, (guint)(number % SERVICES));
}

/* Fewer copies, and after a moment as many as before: on the same nodes, under the same names. */
static void waver(Sim *sim)
{
    guint i = (guint)sim_below(sim, SERVICES);
    Service *service = &sim->people->services[i];
    gint64 before = service->replicas;
    if (!service->exists || before == 0)
        return;
    service->replicas = sim_between(sim, 0, before - 1);
    sim->counters.edits++;
    put_service(sim, i);
    sim_later(sim, sim_between(sim, 500, 15000), change_mind, NULL, NULL, before * SERVICES + i);
}

/* Things that change how much is done at once, and nothing that is promised. */
static void edit_settings(Sim *sim)
{
    g_autofree char *value = g_strdup_printf(
        "{\"spec\":{\"failureGrace\":\"15s\",\"restoreReservePercent\":10,\"strategy\":\"%s\","
        "\"maxConcurrentLoads\":%" G_GINT64_FORMAT ",\"debounce\":\"%" G_GINT64_FORMAT "ms\"}}",
        sim_chance(sim, 50) ? "spread" : "pack", sim_between(sim, 1, 6), sim_between(sim, 0, 400));
    sim->counters.settings_edits++;
    sim_put(sim, "desired/settings/cache-assigner", value, 0);
}

static void edit_partitions(Sim *sim)
{
    guint i = (guint)sim_below(sim, SERVICES), partition = (guint)sim_below(sim, PARTITIONS);
    g_autofree char *key = g_strdup_printf("desired/partitions/p_%u", partition);
    Service *service = &sim->people->services[i];
    sim->counters.partition_edits++;
    switch (sim_below(sim, 4)) {
    case 0:
        put_partition(sim, partition);
        return;
    case 1:
        if (sim_chance(sim, 50))
            sim_delete(sim, key);
        else
            put_partition(sim, partition);
        return;
    case 2:
        service->partitions = sim_between(sim, 1, 3);
        service->dedicated = sim_chance(sim, 25);
        break;
    default:
        service->throughput = sim_between(sim, 0, 80);
        break;
    }
    if (service->exists)
        put_service(sim, i);
}

/* The last good one stays in force until the next edit. */
static void edit_badly(Sim *sim)
{
    static const char *const values[] = {
        "{\"spec\":{}}",
        "{\"spec\":{\"owner\":\"x\",\"cache\":{\"window\":\"-3s\"}}}",
        "{\"spec\":{\"owner\":\"x\",\"cache\":{\"window\":\"60d\"}}}",
        "{\"spec\":{\"owner\":\"x\",\"cache\":{\"replicas\":99}}}",
        "{\"spec\":{\"owner\":\"x\",\"cache\":{\"sets\":[\"A B\"]}}}",
        "not json at all",
    };
    guint i = (guint)sim_below(sim, SERVICES);
    g_autofree char *name = service_name(i);
    g_autofree char *key = lh_key(LH_KIND_SERVICE, name);
    sim->counters.invalid_edits++;
    sim_put(sim, key, values[sim_below(sim, G_N_ELEMENTS(values))], 0);
}

static void ask_again(Sim *sim, SimProcess *process, const char *text, gint64 number)
{
    (void)process;
    (void)text;
    sim->people->services[number].exists = TRUE;
    put_service(sim, (guint)number);
}

static void delete_service(Sim *sim)
{
    guint i = (guint)sim_below(sim, SERVICES);
    g_autofree char *name = service_name(i);
    g_autofree char *key = lh_key(LH_KIND_SERVICE, name);
    if (!sim->people->services[i].exists)
        return;
    sim->people->services[i].exists = FALSE;
    sim->counters.services_deleted++;
    sim_delete(sim, key);
    sim_later(sim, sim_between(sim, 500, 60000), ask_again, NULL, NULL, i);
}

/* ---- snapshots ---- */

static void put_snapshot(Sim *sim, const char *name, const char *uri, gboolean live)
{
    g_autofree char *key = lh_key(LH_KIND_SNAPSHOT, name);
    gint64 end = sim_wall(sim) - sim_between(sim, 0, 20000);
    g_autofree char *end_text = lh_time_format(end);
    g_autofree char *start_text = lh_time_format(end - 3600000);
    g_autoptr(GString) rest = g_string_new(live ? "\"live\":true" : NULL);
    if (!live || sim_chance(sim, 50)) /* a live one need not say */
        g_string_append_printf(rest, "%s\"endTime\":\"%s\",\"sizeBytes\":%" G_GINT64_FORMAT,
                               live ? "," : "", end_text, sim_between(sim, 5, 120) * SIM_MIB);
    g_autofree char *service = service_name((guint)(name[1] - '0'));
    g_autofree char *value = g_strdup_printf(
        "{\"service\":\"%s\",\"partition\":\"p\",\"startTime\":\"%s\",\"maxOffset\""
        ":7,\"uri\":\"%s\",%s}",
        service, start_text, uri, rest->str);
    sim_put(sim, key, value, 0);
}

static void finish_snapshot(Sim *sim, SimProcess *process, const char *name, gint64 number)
{
    g_autofree char *key = lh_key(LH_KIND_SNAPSHOT, name);
    g_autofree char *uri = g_strdup_printf("s3://bucket/%s/", name);
    (void)process;
    (void)number;
    if (sim_kv(sim, key) == NULL)
        return;
    sim_bucket_put(sim, uri);
    put_snapshot(sim, name, uri, FALSE);
}

static void publish_uploaded(Sim *sim, SimProcess *process, const char *name, gint64 number)
{
    g_autofree char *key = lh_key(LH_KIND_SNAPSHOT, name);
    g_autofree char *uri = g_strdup_printf("s3://bucket/%s/", name);
    (void)process;
    (void)number;
    if (sim_kv(sim, key) == NULL)
        put_snapshot(sim, name, uri, FALSE);
}

/* Part by part, for up to a minute, and then it is published. Some die in the middle, and the next one begins
 * anew in the same place, which may be an orphan by then. @number: tries * 10 + part. */
static void upload(Sim *sim, SimProcess *process, const char *name, gint64 number)
{
    g_autofree char *uri = g_strdup_printf("s3://bucket/%s/", name);
    gint64 tries = number / 10, part = number % 10;
    sim_bucket_put_part(sim, uri, (guint)part);
    if (part == 3) {
        sim_later(sim, sim_between(sim, 0, 15000), publish_uploaded, NULL, name, 0);
    } else if (tries < 3 && sim_chance(sim, 25)) {
        sim->counters.uploads_again++;
        sim_later(sim, sim_between(sim, 1000, 150000), upload, NULL, name, (tries + 1) * 10);
    } else {
        sim_later(sim, sim_between(sim, 0, 15000), upload, process, name, number + 1);
    }
}

/* "s<service>-<number>" */
static void publish(Sim *sim)
{
    g_autofree char *name = NULL, *uri = NULL;
    if (g_hash_table_size(sim->model.kinds[LH_KIND_SNAPSHOT]) >=
        MAX(MAX_SNAPSHOTS, sim->options.snapshots))
        return;
    name = g_strdup_printf("s%u-%03u", (guint)sim_below(sim, SERVICES), sim->people->published++);
    uri = g_strdup_printf("s3://bucket/%s/", name);
    sim->counters.published++;
    if (sim_chance(sim, 12)) {
        put_snapshot(sim, name, uri, TRUE);
        sim_later(sim, sim_between(sim, 500, 30000), finish_snapshot, NULL, name, 0);
        return;
    }
    if (sim_chance(sim, 30)) {
        sim->counters.uploads++;
        upload(sim, NULL, name, 0);
        return;
    }
    if (sim_chance(sim, 4) && sim->people->published > 1) {
        g_free(uri); /* inside another one's data */
        uri = g_strdup_printf("s3://bucket/s0-%03u/part/",
                              (guint)sim_below(sim, sim->people->published));
    }
    sim_bucket_put(sim, uri);
    put_snapshot(sim, name, uri, FALSE);
}

static void publish_one(Sim *sim, SimProcess *process, const char *text, gint64 number)
{
    (void)process;
    (void)text;
    (void)number;
    publish(sim);
}

/* The name of a key of @kind that exists, or NULL; g_free. */
static char *any_name(Sim *sim, LhKind kind)
{
    GHashTable *table = sim->model.kinds[kind];
    guint n = g_hash_table_size(table);
    if (n == 0)
        return NULL;
    g_autoptr(GList) names = g_list_sort(g_hash_table_get_keys(table), (GCompareFunc)strcmp);
    return g_strdup(g_list_nth_data(names, (guint)sim_below(sim, n)));
}

static void retire(Sim *sim)
{
    g_autofree char *name = any_name(sim, LH_KIND_SNAPSHOT);
    if (name == NULL)
        return;
    g_autofree char *key = lh_key(LH_KIND_SNAPSHOT, name);
    sim->counters.retired++;
    sim_delete(sim, key);
}

/* ---- junk ---- */

static const char *const junk_values[] = {
    "",
    "not json",
    "[]",
    "{",
    "{\"sizeBytes\":-5,\"state\":17}",
    "{\"spec\":[],\"state\":\"sideways\",\"endTime\":\"9999-12-31T23:59:59Z\"}",
    "\xff\xfe\x80",
    "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]",
};

static char *junk_value(Sim *sim)
{
    guint i = (guint)sim_below(sim, G_N_ELEMENTS(junk_values) + 1);
    return i < G_N_ELEMENTS(junk_values) ? g_strdup(junk_values[i]) : g_strnfill(60000, 'x');
}

static gboolean is_junk(const LhKv *kv)
{
    gboolean found = kv->value_len > 0 && kv->value[0] == 'x';
    for (guint i = 0; i < G_N_ELEMENTS(junk_values); i++)
        found = found || strcmp(kv->value, junk_values[i]) == 0;
    return found;
}

static void mend(Sim *sim, SimProcess *process, const char *key, gint64 number)
{
    gpointer stolen = NULL, value = NULL;
    const LhKv *kv = sim_kv(sim, key);
    (void)process;
    (void)number;
    if (!g_hash_table_steal_extended(sim->people->mends, key, &stolen, &value))
        return;
    Mend *was = value;
    gboolean untouched = kv != NULL && kv->mod_rev == was->junk_rev;
    gboolean lease_lives = was->lease == 0 || fake_etcd_lease_exists(sim->server, was->lease);
    if (untouched) {
        sim->counters.mended++;
        /* A leader key that lost its lease has lost its place: to bind it again would be a lie. */
        if (g_str_has_prefix(key, "leaders/") && kv->lease != was->lease)
            sim_delete(sim, key);
        else if (was->value != NULL && lease_lives)
            sim_put(sim, key, was->value, was->lease);
        else
            sim_delete(sim, key);
    }
    g_free(stolen);
    mend_free(was);
}

/* Over what exists; on leased keys with or without the lease (etcdctl put takes it away). */
static void put_junk(Sim *sim, const char *key)
{
    const LhKv *kv = sim_kv(sim, key);
    if (g_hash_table_contains(sim->people->mends, key))
        return;
    Mend *was = g_new0(Mend, 1);
    was->value = kv == NULL ? NULL : g_strndup(kv->value, kv->value_len);
    was->lease = kv == NULL ? 0 : kv->lease;
    gint64 lease = sim_chance(sim, 60) ? was->lease : 0;
    g_autofree char *junk = junk_value(sim);
    sim->counters.bad_values++;
    sim_put(sim, key, junk, lease);
    was->junk_rev = fake_etcd_revision(sim->server);
    g_hash_table_insert(sim->people->mends, g_strdup(key), was);
    g_hash_table_add(sim->people->junked, g_strdup(key));
    sim_later(sim, sim_between(sim, 1000, 45000), mend, NULL, key, 0);
}

static void scatter_junk(Sim *sim)
{
    static const char *const strange[] = {
        "decided/unknown-kind/x",
        "published/snapshots/bad name",
        "desired/services/",
        "nowhere/at/all",
        "decided/replicas/no-such-one",
        "decided/assignments/cache/node-0-00000000/x.default.0",
        "actual/items/cache/q/w/e",
        "desired/settings/nobody",
        "leaders/cache-assigner/zz",
        "published/snapshots/s0-junk",
        "events/x",
    };
    static const LhKind kinds[] = {
        LH_KIND_SERVICE,         LH_KIND_SETTINGS,     LH_KIND_SNAPSHOT,      LH_KIND_ACCEPTED,
        LH_KIND_REPLICA,         LH_KIND_RETRY,        LH_KIND_ASSIGNMENT,    LH_KIND_HEALTH,
        LH_KIND_BRAKE,           LH_KIND_STATUS,       LH_KIND_NODE,          LH_KIND_ITEM,
        LH_KIND_SEARCH,          LH_KIND_LEADER,       LH_KIND_EVENT,         LH_KIND_RESTORE,
        LH_KIND_RESTOREPROGRESS, LH_KIND_RECOVERYTASK, LH_KIND_PARTITIONPLAN, LH_KIND_SEED,
        LH_KIND_THROTTLE,
    };
    if (sim_chance(sim, 20)) {
        put_junk(sim, strange[sim_below(sim, G_N_ELEMENTS(strange))]);
        return;
    }
    LhKind kind = kinds[sim_below(sim, G_N_ELEMENTS(kinds))];
    g_autofree char *name = any_name(sim, kind);
    if (name == NULL)
        return;
    g_autofree char *key = lh_key(kind, name);
    put_junk(sim, key);
}

/* ---- what a cache node says of itself ---- */

#define ONLINE "\"state\":\"online\""
#define ERROR  "\"state\":\"error\""

/* FALSE: it does not say @was at present. */
static gboolean change_word(Sim *sim, const char *key, const char *was, const char *is)
{
    const LhKv *kv = sim_kv(sim, key);
    if (kv == NULL || kv->lease == 0 || strstr(kv->value, was) == NULL)
        return FALSE;
    gint64 lease = kv->lease;
    g_autoptr(GString) value = g_string_new(kv->value);
    g_string_replace(value, was, is, 1);
    sim_put(sim, key, value->str, lease);
    return TRUE;
}

/* What people do with a node that stays ill: it is started anew, under another id. */
static void restart_ill(Sim *sim, SimProcess *process, const char *key, gint64 number)
{
    const char *name = key + strlen("actual/nodes/");
    const LhHealth *health = (const LhHealth *)sim_get(sim, LH_KIND_HEALTH, name);
    (void)process;
    (void)number;
    if (sim_kv(sim, key) == NULL)
        return;
    if (health == NULL || !lh_object_known(&health->o)) {
        sim_later(sim, 5000, restart_ill, NULL, key, 0);
        return;
    }
    if (health->state != LH_HEALTH_FAILURE)
        return;
    g_hash_table_add(sim->by_hand, g_strdup(strchr(name, '/') + 1));
    sim_delete(sim, key);
}

static void end_error(Sim *sim, SimProcess *process, const char *key, gint64 number)
{
    (void)process;
    (void)number;
    if (!change_word(sim, key, ERROR, ONLINE) && g_hash_table_contains(sim->people->mends, key))
        sim_later(sim, 5000, end_error, NULL, key, 0); /* that would bring the error back */
    else
        sim_later(sim, 20000, restart_ill, NULL, key, 0);
}

static void end_error_of(Sim *sim, SimProcess *process, const char *node, gint64 number)
{
    g_autofree char *key = lh_key(LH_KIND_NODE, node);
    end_error(sim, process, key, number);
}

/* Its disk fails, or so: for longer than moving what it has takes, or not. */
static void say_error(Sim *sim)
{
    g_autofree char *name = any_name(sim, LH_KIND_NODE);
    if (name == NULL || !inv_is_cache(name))
        return;
    g_autofree char *key = lh_key(LH_KIND_NODE, name);
    if (!change_word(sim, key, ONLINE, ERROR))
        return;
    sim->counters.errors++;
    sim_later(sim, sim_between(sim, 500, sim_chance(sim, 50) ? 10000 : 60000), end_error, NULL, key,
              0);
}

/* ---- etcd was restored ---- */

/* A search key is written again by nobody: its node must register anew. */
static void remove_spoilt(Sim *sim, const char *key)
{
    const char *search = "actual/search/" LH_SIM_POOL "/";
    sim_delete(sim, key);
    if (!g_str_has_prefix(key, search))
        return;
    g_auto(GStrv) parts = g_strsplit(key + strlen(search), "/", 2);
    g_autofree char *registration = g_strconcat("actual/nodes/" LH_SIM_POOL "/", parts[0], NULL);
    sim_delete(sim, registration);
}

/* What did not parse in the backup does not come right by itself; nor do orders of people that they
 * have taken back since. */
static void sweep(Sim *sim, LhKind kind)
{
    g_autoptr(GList) names = g_list_sort(g_hash_table_get_keys(sim->model.kinds[kind]),
                                         (GCompareFunc)strcmp);
    g_autoptr(GPtrArray) keys = g_ptr_array_new_with_free_func(g_free);
    for (GList *l = names; l != NULL; l = l->next) {
        const LhObject *object = sim_get(sim, kind, l->data);
        if (!lh_object_known(object) || kind == LH_KIND_NODEPOLICY ||
            (kind == LH_KIND_LEADER && lh_object_lease(object) == 0))
            g_ptr_array_add(keys, lh_key(kind, l->data));
        else if (kind == LH_KIND_NODE && ((const LhNode *)object)->state == LH_NODE_ERROR)
            sim_later(sim, sim_between(sim, 500, 30000), end_error_of, NULL, object->name, 0);
        else if (kind == LH_KIND_SNAPSHOT && ((const LhSnapshot *)object)->live)
            sim_later(sim, sim_between(sim, 500, 30000), finish_snapshot, NULL, object->name, 0);
    }
    for (guint i = 0; i < keys->len; i++)
        remove_spoilt(sim, keys->pdata[i]);
}

/* Some of it parses. */
static void sweep_junk(Sim *sim)
{
    g_autoptr(GList) keys = g_list_sort(g_hash_table_get_keys(sim->people->junked),
                                        (GCompareFunc)strcmp);
    for (GList *l = keys; l != NULL; l = l->next) {
        const LhKv *kv = sim_kv(sim, l->data);
        if (kv != NULL && is_junk(kv))
            remove_spoilt(sim, l->data);
    }
}

void sim_people_restored(Sim *sim)
{
    sweep_junk(sim);
    for (guint kind = 0; kind < LH_N_KINDS; kind++)
        sweep(sim, (LhKind)kind);
    for (guint i = 0; i < SERVICES; i++) {
        g_autofree char *name = service_name(i);
        Service *service = &sim->people->services[i];
        service->exists = sim_get(sim, LH_KIND_SERVICE, name) != NULL;
        if (!service->exists)
            sim_later(sim, sim_between(sim, 500, 60000), ask_again, NULL, NULL, i);
    }
    sim_seeds_restored(sim);
}

/* ---- operators ---- */

/* @lasting: not because all comes to an end. */
static void uncordon(Sim *sim, SimProcess *process, const char *key, gint64 lasting)
{
    (void)process;
    if (!sim->calm || !lasting)
        sim_delete(sim, key);
}

/* One node of a pool at a time, so that the others can take what it has. */
static gboolean drains_in(const Sim *sim, const char *pool)
{
    g_autofree char *prefix = g_strconcat(pool, "/", NULL);
    GHashTableIter iter;
    gpointer key, value;
    g_hash_table_iter_init(&iter, sim->model.kinds[LH_KIND_NODEPOLICY]);
    while (g_hash_table_iter_next(&iter, &key, &value))
        if (g_str_has_prefix(key, prefix) &&
            (!lh_object_known(value) || ((const LhNodePolicy *)value)->drain))
            return TRUE;
    return FALSE;
}

/* Often undone half-way; some last beyond the end. */
static void drain(Sim *sim)
{
    const SimProcess *process = sim_any_process(sim, FALSE, TRUE);
    g_autofree char *key = g_strdup_printf("desired/nodepolicies/%s/%s", process->pool,
                                           process->name);
    gboolean lasting = sim_chance(sim, 50);
    if (sim_kv(sim, key) != NULL || drains_in(sim, process->pool))
        return;
    sim->counters.drains++;
    sim_put(sim, key, "{\"spec\":{\"cordon\":true,\"drain\":true}}", 0);
    sim_later(sim, sim_between(sim, 1000, lasting ? 300000 : 20000), uncordon, NULL, key, lasting);
}

static void cordon(Sim *sim)
{
    const SimProcess *process = sim_any_process(sim, FALSE, TRUE);
    g_autofree char *key = g_strdup_printf("desired/nodepolicies/%s/%s", process->pool,
                                           process->name);
    if (sim_kv(sim, key) != NULL)
        return;
    sim->counters.cordons++;
    sim_put(sim, key, "{\"spec\":{\"cordon\":true}}", 0);
    sim_later(sim, sim_between(sim, 5000, 150000), uncordon, NULL, key, 0);
}

static void confirm_one(Sim *sim, const char *controller)
{
    g_autofree char *subject = g_strconcat("confirmations/", controller, NULL);
    g_autofree char *key = g_strconcat("desired/", subject, NULL);
    const LhBrake *brake = (const LhBrake *)sim_get(sim, LH_KIND_BRAKE, controller);
    const LhAccepted *accepted = (const LhAccepted *)sim_get(sim, LH_KIND_ACCEPTED, subject);
    if (brake == NULL || !lh_object_known(&brake->o) || brake->confirmed_at >= 0)
        return;
    const LhConfirmation *said = lh_accepted_spec((const LhObject *)accepted, LH_KIND_CONFIRMATION);
    if (said != NULL && g_strcmp0(said->plan_hash, brake->plan_hash) == 0 &&
        accepted->accepted_at >= brake->since && accepted->accepted_at > sim_wall(sim) - 60000)
        return;
    g_autofree char *value = g_strdup_printf("{\"spec\":{\"planHash\":\"%s\"}}", brake->plan_hash);
    sim->counters.confirmations++;
    sim_put(sim, key, value, 0);
}

static void confirm(Sim *sim)
{
    confirm_one(sim, "cache-evictor");
    confirm_one(sim, "snapshot-cleaner");
    confirm_one(sim, "failure-detector");
}

/* What `leasehold retry` does. */
static void unpark(Sim *sim)
{
    g_autoptr(GPtrArray) keys = g_ptr_array_new_with_free_func(g_free);
    g_autoptr(GList) names = g_list_sort(g_hash_table_get_keys(sim->model.kinds[LH_KIND_RETRY]),
                                         (GCompareFunc)strcmp);
    for (GList *l = names; l != NULL; l = l->next) {
        const LhRetry *retry = (const LhRetry *)sim_get(sim, LH_KIND_RETRY, l->data);
        if (lh_object_known(&retry->o) && retry->parked)
            g_ptr_array_add(keys, lh_key(LH_KIND_RETRY, l->data));
    }
    for (guint i = 0; i < keys->len; i++)
        sim_delete(sim, keys->pdata[i]);
}

void sim_people_attend(Sim *sim, gboolean always)
{
    if (always || sim_chance(sim, 50))
        confirm(sim);
    if (always || sim_chance(sim, 30))
        unpark(sim);
}

static void attend(Sim *sim)
{
    sim_people_attend(sim, FALSE);
}

const SimActivity sim_people[] = {
    {"publish", 7000, 1, publish},
    {"edit", 22000, 1, edit},
    {"waver", 25000, 0, waver},
    {"edit badly", 50000, 0, edit_badly},
    {"edit settings", 60000, 0, edit_settings},
    {"edit partitions", 20000, 1, edit_partitions},
    {"delete a service", 150000, 0, delete_service},
    {"retire", 60000, 0, retire},
    {"junk", 9000, 0, scatter_junk},
    {"cordon", 90000, 0, cordon},
    {"drain", 50000, 0, drain},
    {"say error", 25000, 0, say_error},
    {"recover", 12000, 1, sim_people_recover},
    {"edit seeds", 14000, 1, sim_seeds_edit},
    {"edit throttles", 40000, 1, sim_seeds_edit_throttle},
    {"ask for a rebalance", 60000, 1, sim_seeds_ask_rebalance},
    {"ask for a restore", 25000, 1, sim_restores_ask},
    {"withdraw a restore", 90000, 0, sim_restores_withdraw},
    {"attend", 15000, 1, attend},
    {NULL, 0, 0, NULL},
};
