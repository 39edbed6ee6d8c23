/*
 * etcd away for twenty seconds, and compacted under the watch: cache items stay live and searchable, and
 * the mirror agrees with a fresh list afterwards.
 */
#include "harness.h"

#include <signal.h>
#include <string.h>

#define SNAPSHOTS 4
#define OUTAGE_MS 20000

static void publish(World *world)
{
    world_put(world, "desired/services/x", "{\"spec\":{\"owner\":\"a\"}}");
    for (guint i = 0; i < SNAPSHOTS; i++) {
        g_autofree char *name = g_strdup_printf("s-%03u", i);
        snapshot_publish(world, name, "x", world->now_ms - (gint64)(i + 1) * 60000, 1, 4000);
    }
}

/* The urls under actual/search/ as etcd has them; g_ptr_array_unref. */
static GPtrArray *search_urls(World *world)
{
    g_autoptr(GPtrArray) keys = world_range(world, "actual/search/");
    GPtrArray *urls = g_ptr_array_new_with_free_func(g_free);

    for (guint i = 0; i < keys->len; i++) {
        const Kv *kv = g_ptr_array_index(keys, i);
        g_autoptr(cJSON) search = cJSON_ParseWithLength(kv->value, kv->len);
        g_ptr_array_add(urls, g_strdup(json_text(search, "url")));
    }
    return urls;
}

static void must_serve(GPtrArray *urls)
{
    for (guint i = 0; i < urls->len; i++) {
        g_autofree char *file = g_strconcat(g_ptr_array_index(urls, i), "part-0", NULL);
        g_autoptr(Reply) reply = http_send("GET", file, NULL, NULL);
        reply_must(reply, 200);
    }
}

static gboolean agrees(World *world, gpointer data)
{
    Proc *manager = data;
    g_autoptr(GPtrArray) keys = world_range(world, "");
    g_autoptr(GHashTable) fresh = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
    guint listed = 0;

    for (guint i = 0; i < keys->len; i++) {
        const Kv *kv = g_ptr_array_index(keys, i);
        g_hash_table_add(fresh, g_strdup_printf("%s %" G_GINT64_FORMAT, kv->key, kv->mod_rev));
    }
    for (guint kind = 0; kind < LH_N_KINDS; kind++) {
        const LhKindInfo *info = lh_kind_info((LhKind)kind);
        g_autofree char *path = g_strconcat("/v1/", info->plural, NULL);
        g_autoptr(Reply) reply = http(manager, "GET", path, NULL);
        const cJSON *items = reply->json == NULL ? NULL : json_at(reply->json, "items"), *item;
        if (items == NULL)
            return FALSE;
        cJSON_ArrayForEach(item, items) {
            g_autofree char *line = g_strdup_printf(
                "%s%s %.0f", info->prefix, json_text(item, "metadata.name"),
                json_at(item, "metadata.revision")->valuedouble);
            if (!g_hash_table_contains(fresh, line))
                return FALSE;
            listed++;
        }
    }
    return listed == keys->len;
}

/* This test's own watch is open again, so its writes get through too, and what its mirror shows is new. */
static gboolean hears_again(World *world, gpointer data)
{
    return lh_mirror_synced(world->mirror) && lh_mirror_staleness_ms(world->mirror) < 1000;
}

static gboolean time_is_up(World *world, gpointer data)
{
    return lh_mono_ms(world->env) >= *(gint64 *)data;
}

static void items_stay_live_through_an_outage(void **state)
{
    World *world = *state;
    Proc *manager = manager_start(world, "manager", NULL);
    g_autoptr(GError) error = NULL;
    gint64 end;

    agents_start(world, 2);
    publish(world);
    world_wait_live(world, NULL, SNAPSHOTS);
    g_autoptr(GPtrArray) urls = search_urls(world);
    assert_int_equal(urls->len, SNAPSHOTS);

    etcd_process_stop(world->etcd);
    end = lh_mono_ms(world->env) + OUTAGE_MS;
    /* The one wait for time in these tests: the outage is the scenario. */
    world_poll(world, time_is_up, &end, "twenty seconds pass");
    must_serve(urls);
    g_autoptr(Reply) health = http(manager, "GET", "/healthz", NULL);
    reply_must(health, 200);
    g_autoptr(Reply) ready = http(manager, "GET", "/readyz", NULL);
    reply_must(ready, 503);

    assert_true(etcd_process_restart(world->etcd, &error));
    world_poll(world, hears_again, NULL, "etcd is heard again");
    world_wait_live(world, NULL, SNAPSHOTS);
    must_serve(urls);
    snapshot_publish(world, "later", "x", world->now_ms, 1, 4000);
    world_wait_live(world, NULL, SNAPSHOTS + 1);
    world_poll(world, agrees, manager, "the mirror agrees with a fresh list");
}

static gboolean relisted(World *world, gpointer data)
{
    g_autofree char *log = proc_log(data);

    return strstr(log, "watch lost") != NULL;
}

static void a_compaction_under_the_watch_is_survived(void **state)
{
    static const char *const long_lease[] = {"--lease-ttl", "60s", NULL};
    World *world = *state;
    Proc *manager = manager_start(world, "manager", long_lease);
    g_autoptr(GError) error = NULL;

    agents_start(world, 2);
    publish(world);
    world_wait_live(world, NULL, SNAPSHOTS);
    kill(proc_pid(manager), SIGSTOP);
    /* What it must find out by comparing: one changed, one deleted, one new. */
    world_put(world, "desired/services/x", "{\"spec\":{\"owner\":\"b\"}}");
    world_put(world, "desired/services/new", "{\"spec\":{\"owner\":\"a\"}}");
    world_delete(world, "published/snapshots/s-003");
    for (guint i = 0; i < 50; i++)
        world_put(world, "desired/services/y", "{\"spec\":{\"owner\":\"a\"}}");
    world_delete(world, "desired/services/y");
    /* Its stream ends with etcd; when it resumes, what comes next is gone. */
    assert_true(etcd_process_compact(world->etcd, world_revision(world), &error));
    etcd_process_stop(world->etcd);
    assert_true(etcd_process_restart(world->etcd, &error));
    world_poll(world, hears_again, NULL, "etcd is heard again");
    kill(proc_pid(manager), SIGCONT);
    world_poll(world, relisted, manager, "it lists again");
    world_wait_live(world, NULL, SNAPSHOTS - 1);
    world_poll(world, agrees, manager, "the mirror agrees with a fresh list");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(items_stay_live_through_an_outage, world_setup,
                                        world_teardown),
        cmocka_unit_test_setup_teardown(a_compaction_under_the_watch_is_survived, world_setup,
                                        world_teardown),
    };

    return cmocka_run_group_tests_name("integration-outage", tests, NULL, NULL);
}
