/*
 * The evictor's brake: an edit that would evict too much at once evicts nothing until somebody
 * confirms exactly that plan.
 */
#include "harness.h"

#include <string.h>

#define BRAKED 15
#define OTHERS 12
#define HOUR   3600000

static void publish_hours_ago(World *world, const char *service, guint n)
{
    for (guint i = 0; i < n; i++) {
        g_autofree char *name = g_strdup_printf("%s-%02u", service, i);
        snapshot_publish(world, name, service, world->now_ms - 2 * HOUR, 1, 500);
    }
}

static void put_service(World *world, const char *name, const char *window)
{
    g_autofree char *key = g_strconcat("desired/services/", name, NULL);
    world_putf(world, key, "{\"spec\":{\"owner\":\"a\",\"cache\":{\"window\":\"%s\"}}}", window);
}

static gboolean has_brake(World *world, gpointer data)
{
    const LhBrake *brake = world_get(world, LH_KIND_BRAKE, "cache-evictor");
    return brake != NULL && lh_object_known(&brake->o) &&
           g_strcmp0(brake->plan_hash, data) != 0; /* another than @data */
}

static gboolean is_braked(World *world, gpointer data)
{
    const LhCondition *braked = world_condition(world, "settings/cache-evictor/cache-evictor",
                                                "Braked");
    return braked != NULL && braked->status == LH_CONDITION_TRUE;
}

static double rounds(Proc *manager)
{
    g_autoptr(Reply) reply = http(manager, "GET", "/metrics", NULL);
    g_auto(GStrv) lines = g_strsplit(reply->body->str, "\n", -1);
    double sum = 0;
    for (guint i = 0; lines[i] != NULL; i++) {
        if (g_str_has_prefix(lines[i], "leasehold_reconcile_total{controller=\"cache-evictor\"")) {
            sum += g_ascii_strtod(strrchr(lines[i], ' '), NULL);
        }
    }
    return sum;
}

typedef struct {
    Proc *manager;
    double before;
} Rounds;

static gboolean has_planned_again(World *world, gpointer data)
{
    const Rounds *wanted = data;
    return rounds(wanted->manager) > wanted->before;
}

/* The evictor has planned once more after an unrelated write: it has seen all that was before. */
static void round_trip(World *world, Proc *manager, const char *snapshot)
{
    Rounds wanted = {manager, rounds(manager)};
    snapshot_publish(world, snapshot, "other", world->now_ms - 60000, 1, 500);
    world_wait_live(world, snapshot, 1);
    world_poll(world, has_planned_again, &wanted, "the evictor plans again");
}

/* Items that were ordered to be evicted after @revision; sorted names in a hash table. */
static GHashTable *evicted(World *world, gint64 revision)
{
    GHashTable *items = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
    g_autoptr(GPtrArray) history = world_history(world, revision);
    for (guint i = 0; i < history->len; i++) {
        const Kv *kv = g_ptr_array_index(history, i);
        if (g_str_has_prefix(kv->key, "decided/assignments/") && !kv->is_delete &&
            strstr(kv->value, "\"evict\"") != NULL) {
            g_hash_table_add(items, g_strdup(strrchr(kv->key, '/') + 1));
        }
    }
    return items;
}

static void check_says_so(World *world, Proc *manager, const char *hash)
{
    world_wait(world, is_braked, NULL, "the condition Braked is True");
    world_wait_event(world, "Braked", "settings/cache-evictor");
    assert_true(metric(manager, "brake{controller=\"cache-evictor\"}") == 1);
    g_autoptr(Reply) plan = http(manager, "GET", "/v1/plan/cache-evictor", NULL);
    reply_must(plan, 200);
    assert_non_null(strstr(plan->body->str, hash));
    g_autoptr(Reply) brakes = http(manager, "GET", "/v1/brakes/cache-evictor", NULL);
    reply_must(brakes, 200);
    assert_string_equal(json_text(brakes->json, "planHash"), hash);
    assert_int_equal(json_at(brakes->json, "eligible")->valueint, BRAKED);
}

static void check_wrong_hash(World *world, Proc *manager)
{
    g_autoptr(Run) refused = cli(manager, "confirm", "cache-evictor", "--plan", "0123456789abcdef",
                                 NULL);
    assert_int_equal(refused->code, 4);
    assert_true(g_str_has_prefix(refused->err, "leasehold: "));
    assert_null(world_get(world, LH_KIND_CONFIRMATION, "cache-evictor"));
    g_autoptr(Reply) posted = http(manager, "POST", "/v1/controllers/cache-evictor:confirm",
                                   "{\"planHash\":\"0123456789abcdef\"}");
    reply_must(posted, 409);
    /* Past the API, straight into etcd. */
    world_put(world, "desired/confirmations/cache-evictor",
              "{\"spec\":{\"planHash\":\"0123456789abcdef\"}}");
    round_trip(world, manager, "other-wrong-hash");
}

static gboolean are_gone(World *world, gpointer data)
{
    return world_live(world, "big-") == 0 &&
           lh_mirror_count(world->mirror, LH_KIND_REPLICA) == *(guint *)data;
}

static void the_brake_holds_until_its_plan_is_confirmed(void **state)
{
    World *world = *state;
    Proc *manager = manager_ready(world, "manager");
    world_put(world, "desired/settings/cache-evictor", "{\"spec\":{\"evictGrace\":\"0s\"}}");
    world_put(world, "desired/settings/replica-creator", "{\"spec\":{\"debounce\":\"50ms\"}}");
    world_put(world, "desired/settings/cache-assigner", "{\"spec\":{\"maxConcurrentLoads\":20}}");
    agents_start(world, 2);
    put_service(world, "big", "24h");
    put_service(world, "small", "24h");
    put_service(world, "other", "24h");
    publish_hours_ago(world, "big", BRAKED);
    publish_hours_ago(world, "small", OTHERS);
    world_wait_live(world, NULL, BRAKED + OTHERS);

    gint64 before = world_revision(world);
    put_service(world, "big", "1h");
    world_wait(world, has_brake, NULL, "the evictor writes its Brake");
    const LhBrake *brake = world_get(world, LH_KIND_BRAKE, "cache-evictor");
    g_autofree char *hash = g_strdup(brake->plan_hash);
    check_says_so(world, manager, hash);
    round_trip(world, manager, "other-0");
    check_wrong_hash(world, manager);
    /* More that would go now is not part of what is confirmed. */
    put_service(world, "small", "1h");
    round_trip(world, manager, "other-1");
    g_autoptr(GHashTable) none = evicted(world, before);
    assert_int_equal(g_hash_table_size(none), 0);
    assert_int_equal(world_live(world, "big-"), BRAKED);

    g_autoptr(Run) confirmed = cli(manager, "confirm", "cache-evictor", "--plan", hash, NULL);
    assert_string_equal(confirmed->err, "");
    assert_int_equal(confirmed->code, 0);
    guint left = OTHERS + 3;
    world_wait(world, are_gone, &left, "the %d of the plan are evicted, %u replicas are left",
               BRAKED, left);
    world_wait(world, has_brake, hash, "the rest has a Brake of its own");
    round_trip(world, manager, "other-2");
    g_autoptr(GHashTable) gone = evicted(world, before);
    assert_int_equal(g_hash_table_size(gone), BRAKED);
    GHashTableIter iter;
    gpointer item;
    g_hash_table_iter_init(&iter, gone);
    while (g_hash_table_iter_next(&iter, &item, NULL)) {
        assert_true(g_str_has_prefix(item, "big-"));
    }
    assert_int_equal(world_live(world, "small-"), OTHERS);
}

static gboolean has_no_brake(World *world, gpointer data)
{
    return world_get(world, LH_KIND_BRAKE, "cache-evictor") == NULL;
}

/* Who takes the edit back needs no confirmation; and the brake holds over a failover. */
static void an_edit_taken_back_releases_the_brake(void **state)
{
    World *world = *state;
    Proc *manager = manager_ready(world, "manager");
    world_put(world, "desired/settings/cache-assigner", "{\"spec\":{\"maxConcurrentLoads\":20}}");
    agents_start(world, 2);
    put_service(world, "big", "24h");
    put_service(world, "other", "24h");
    publish_hours_ago(world, "big", BRAKED);
    world_wait_live(world, NULL, BRAKED);
    gint64 before = world_revision(world);
    put_service(world, "big", "1h");
    world_wait(world, has_brake, NULL, "the evictor writes its Brake");
    assert_int_equal(proc_stop(manager), 0);
    manager = manager_ready(world, "successor");
    round_trip(world, manager, "other-0");
    assert_false(has_no_brake(world, NULL));
    put_service(world, "big", "24h");
    world_wait(world, has_no_brake, NULL, "the Brake goes");
    round_trip(world, manager, "other-1");
    assert_true(metric(manager, "brake{controller=\"cache-evictor\"}") == 0);
    assert_false(is_braked(world, NULL));
    g_autoptr(GHashTable) none = evicted(world, before);
    assert_int_equal(g_hash_table_size(none), 0);
    assert_int_equal(world_live(world, "big-"), BRAKED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_brake_holds_until_its_plan_is_confirmed, world_setup,
                                        world_teardown),
        cmocka_unit_test_setup_teardown(an_edit_taken_back_releases_the_brake, world_setup,
                                        world_teardown),
    };
    return cmocka_run_group_tests_name("integration-brake", tests, NULL, NULL);
}
