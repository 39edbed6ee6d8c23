/*
 * The end of a run. What is wanted follows from etcd alone, by the words of CONTRACT.md: each accepted
 * service's published snapshots inside their window, in each of its sets, so many times.
 */
#include "chaos.h"

#include <math.h>
#include <string.h>

#define REST_MS   120000 /* until all is as it should be; a busy machine is slow */
#define LOOK_MS   250
#define ATTEND_MS 3000
#define SAMPLE    24

typedef struct {
    Chaos *chaos;
    char *why;          /* it is not as it should be yet */
    gint64 attended_ms; /* when operators last looked */
} Rest;

/* ---- replicas ---- */

static void add_wanted(GHashTable *wanted, const LhSnapshot *snapshot, const LhService *service)
{
    gint64 now_ms = g_get_real_time() / 1000;
    if (snapshot->end_time + service->cache_window_ms <= now_ms) {
        return;
    }
    for (const char *const *set = service->cache_sets; *set != NULL; set++) {
        for (gint64 i = 0; i < service->cache_replicas; i++) {
            g_hash_table_add(wanted, lh_replica_name(snapshot->o.name, *set, i, FALSE));
        }
    }
}

/* Names of replicas; NULL: something is not known (g_free *why). */
static GHashTable *wanted_replicas(World *world, char **why)
{
    g_autoptr(GPtrArray) snapshots = lh_mirror_list(world->mirror, LH_KIND_SNAPSHOT);
    GHashTable *wanted = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
    for (guint i = 0; i < snapshots->len; i++) {
        const LhSnapshot *snapshot = snapshots->pdata[i];
        const LhObject *accepted = lh_object_known(&snapshot->o)
                                       ? world_get(world, LH_KIND_ACCEPTED, "services/%s",
                                                   snapshot->service)
                                       : NULL;
        const LhService *service = accepted != NULL ? lh_accepted_spec(accepted, LH_KIND_SERVICE)
                                                    : NULL;
        if (service == NULL) {
            *why = g_strdup_printf("snapshot %s or its service is not accepted", snapshot->o.name);
            g_hash_table_unref(wanted);
            return NULL;
        }
        add_wanted(wanted, snapshot, service);
    }
    return wanted;
}

/* Those whose name begins with @prefix. */
static char *check_kind(World *world, LhKind kind, const char *prefix, guint part,
                        GHashTable *wanted)
{
    g_autoptr(GPtrArray) all = lh_mirror_list(world->mirror, kind);
    guint n = 0;
    for (guint i = 0; i < all->len; i++) {
        const LhObject *object = all->pdata[i];
        g_autofree char *name = lh_name_part(object->name, part);
        if (!g_str_has_prefix(object->name, prefix)) {
            continue;
        }
        n++;
        if (!g_hash_table_contains(wanted, name)) {
            return g_strdup_printf("%s %s is still there", lh_kind_info(kind)->name, object->name);
        }
    }
    if (n != g_hash_table_size(wanted)) {
        return g_strdup_printf("there are %u of kind %s, and %u are wanted", n,
                               lh_kind_info(kind)->name, g_hash_table_size(wanted));
    }
    return NULL;
}

static char *check_replicas(Chaos *chaos)
{
    World *world = chaos->world;
    char *why = NULL;
    g_autoptr(GHashTable) wanted = wanted_replicas(world, &why);
    if (wanted == NULL || (why = check_kind(world, LH_KIND_REPLICA, "", 0, wanted)) != NULL ||
        (why = check_kind(world, LH_KIND_ASSIGNMENT, "cache/", 2, wanted)) != NULL) {
        return why;
    }
    guint live = world_live(world, NULL);
    if (live != g_hash_table_size(wanted)) {
        return g_strdup_printf("%u are live and searchable, and %u are wanted", live,
                               g_hash_table_size(wanted));
    }
    return NULL;
}

/* ---- managers ---- */

static char *check_up(Chaos *chaos)
{
    for (guint i = 0; i < CHAOS_MACHINES; i++) {
        Machine *machine = &chaos->machines[i];
        if (machine_url(machine) == NULL) {
            return g_strdup_printf("%s does not serve", machine->name);
        }
        if (machine->manager) {
            g_autoptr(Reply) ready = http(machine->proc, "GET", "/readyz", NULL);
            if (ready->status != 200) {
                return g_strdup_printf("%s says %d on /readyz", machine->name, ready->status);
            }
        }
    }
    guint nodes = lh_mirror_count(chaos->world->mirror, LH_KIND_NODE);
    return nodes == CHAOS_AGENTS + CHAOS_CRAWLERS
               ? NULL
               : g_strdup_printf("%u nodes are registered", nodes);
}

/* Exactly one instance says that it leads @controller, and no plan has an op. Those that nothing but the fence stops
 * (@unguarded) learn that they lead no more when they write, and may have nothing to write. */
static char *check_plan(const cJSON *plans[CHAOS_MANAGERS], const char *controller, int at,
                        gboolean unguarded)
{
    guint leaders = 0;
    for (guint i = 0; i < CHAOS_MANAGERS; i++) {
        const cJSON *plan = cJSON_GetArrayItem(json_at(plans[i], "controllers"), at);
        const cJSON *op = json_at(plan, "ops.0");
        leaders += cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(plan, "leader"));
        if (op != NULL) {
            return g_strdup_printf("m-%u: %s would still write %s", i + 1, controller,
                                   json_text(op, "key"));
        }
    }
    return leaders == 1 || (unguarded && leaders > 0)
               ? NULL
               : g_strdup_printf("%s has %u leaders", controller, leaders);
}

static char *check_plans(Chaos *chaos)
{
    Reply *replies[CHAOS_MANAGERS];
    const cJSON *plans[CHAOS_MANAGERS];
    char *why = NULL;
    for (guint i = 0; i < CHAOS_MANAGERS; i++) {
        replies[i] = http(chaos->machines[i].proc, "GET", "/v1/plan", NULL);
        plans[i] = replies[i]->json;
        if (why == NULL && (replies[i]->status != 200 || plans[i] == NULL)) {
            why = g_strdup_printf("m-%u says %d on /v1/plan", i + 1, replies[i]->status);
        }
    }
    const cJSON *first = why == NULL ? json_at(plans[0], "controllers") : NULL;
    if (why == NULL && cJSON_GetArraySize(first) == 0) {
        why = g_strdup("there are no controllers");
    }
    for (int at = 0; why == NULL && at < cJSON_GetArraySize(first); at++) {
        why = check_plan(plans, json_text(cJSON_GetArrayItem(first, at), "controller"), at,
                         chaos->options.unguarded);
    }
    for (guint i = 0; i < CHAOS_MANAGERS; i++) {
        reply_free(replies[i]);
    }
    return why;
}

/* ---- coming to rest ---- */

/* Failed loads wait for their time, and brakes for a person: both are told to go on. */
static void attend(Rest *rest)
{
    Chaos *chaos = rest->chaos;
    g_autoptr(GPtrArray) retries = lh_mirror_list(chaos->world->mirror, LH_KIND_RETRY);
    if (chaos_ms(chaos) - rest->attended_ms < ATTEND_MS) {
        return;
    }
    rest->attended_ms = chaos_ms(chaos);
    load_confirm(chaos->load);
    for (guint i = 0; i < retries->len && machine_url(&chaos->machines[0]) != NULL; i++) {
        const LhObject *retry = retries->pdata[i];
        g_autofree char *path = g_strdup_printf("/v1/retries/%s:retry", retry->name);
        /* One that is gone meanwhile is as good. */
        reply_free(http(chaos->machines[0].proc, "POST", path, "{}"));
    }
}

static gboolean is_at_rest(World *world, gpointer data)
{
    Rest *rest = data;
    Chaos *chaos = rest->chaos;
    machines_look(chaos);
    g_clear_pointer(&rest->why, g_free);
    if (!lh_mirror_synced(world->mirror)) {
        rest->why = g_strdup("the test's own mirror does not follow etcd");
        return FALSE;
    }
    attend(rest);
    rest->why = check_replicas(chaos);
    if (rest->why == NULL) {
        rest->why = crawl_unrest(world);
    }
    if (rest->why == NULL) {
        rest->why = check_up(chaos);
    }
    if (rest->why == NULL) {
        rest->why = check_plans(chaos);
    }
    return rest->why == NULL;
}

static gboolean look_again(gpointer data)
{
    return G_SOURCE_CONTINUE;
}

static void check_bytes(Chaos *chaos)
{
    static const Identity nobody;
    World *world = chaos->world;
    g_autoptr(GPtrArray) snapshots = lh_mirror_list(world->mirror, LH_KIND_SNAPSHOT);
    for (guint i = 0; i < snapshots->len && i < SAMPLE; i++) {
        const LhSnapshot *snapshot =
            snapshots->pdata[i * snapshots->len / MIN(snapshots->len, SAMPLE)];
        guint n;
        const S3File *files = load_files(snapshot->o.name, &n);
        g_autofree char *uri = lh_uri_text(&snapshot->uri);
        s3_check_served(world, &nobody, snapshot->o.name, uri, files, n, 0);
    }
}

void judge_rest(Chaos *chaos)
{
    Rest rest = {.chaos = chaos};
    gint64 began_ms = chaos_ms(chaos);
    guint tick = g_timeout_add(LOOK_MS, look_again, NULL);
    gboolean rested = world_until(chaos->world, is_at_rest, &rest, REST_MS);
    g_source_remove(tick);
    if (!rested) {
        chaos_wrong(chaos, "not at rest %d s after the faults: %s", REST_MS / 1000, rest.why);
        g_free(rest.why);
        return;
    }
    g_print("# at rest %" G_GINT64_FORMAT " ms after the last fault: %u replicas\n",
            chaos_ms(chaos) - began_ms, world_live(chaos->world, NULL));
    check_bytes(chaos);
}

/* ---- history ---- */

static gboolean is_recorded(World *world, gpointer data)
{
    Chaos *chaos = data;
    return recorder_error(chaos->recorder) != NULL ||
           recorder_revision(chaos->recorder) >= chaos->last_revision;
}

void judge_history(Chaos *chaos)
{
    const RecordedTolerance tolerance = RECORDED_TOLERANCE;
    RecordedResult result;
    chaos->last_revision = world_put(chaos->world, "desired/services/marker",
                                     "{\"spec\":{\"owner\":\"the end\"}}");
    world_poll(chaos->world, is_recorded, chaos, "all of history is recorded");
    if (recorder_error(chaos->recorder) != NULL) {
        chaos_wrong(chaos, "the history is not whole: %s", recorder_error(chaos->recorder));
        return;
    }
    recorded_check(recorder_history(chaos->recorder), &tolerance, &result);
    recorded_result_print(&result, "# ", stdout);
    chaos->counters.revisions = result.commits;
    for (guint i = 0; i < INV_N_GROUPS; i++) {
        chaos->counters.checks += result.did[i];
    }
    if (result.did[INV_SEEDS] == 0) {
        chaos_wrong(chaos, "the check of history has seen no seed loaded");
    }
    if (chaos->counters.deletions > 0 && result.did[INV_CLEANER] == 0) {
        chaos_wrong(chaos, "the check of history has seen no deletion");
    }
    for (guint i = 0; i < result.said->len && i < 3; i++) {
        chaos_wrong(chaos, "history: %s", (const char *)result.said->pdata[i]);
    }
    recorded_result_clear(&result);
}
