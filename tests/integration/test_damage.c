/*
 * Damaged sources: each is `failed` with its reason, tried again later and parked in the end, and
 * nothing that is not whole is ever called live.
 */
#include "harness.h"

#include <glib/gstdio.h>
#include <string.h>
#include <unistd.h>

#define FILES 2
#define BYTES 3000

typedef void (*Damage)(World *world, const char *path);

static void change_a_byte(World *world, const char *path)
{
    g_autofree char *data = NULL;
    gsize len = 0;
    assert_true(g_file_get_contents(path, &data, &len, NULL));
    data[len / 2] ^= 1;
    assert_true(g_file_set_contents(path, data, (gssize)len, NULL));
}

static void remove_it(World *world, const char *path)
{
    assert_int_equal(g_unlink(path), 0);
}

static void cut_it(World *world, const char *path)
{
    assert_int_equal(truncate(path, BYTES / 2), 0);
}

/* What it points to is right, but lies outside of the root. */
static void make_it_a_link(World *world, const char *path)
{
    g_autofree char *outside = g_strdup_printf("%s/outside", world->dir);
    assert_int_equal(g_rename(path, outside), 0);
    assert_int_equal(symlink(outside, path), 0);
}

static const struct {
    const char *name;
    Damage damage;
} damages[] = {
    {"changed", change_a_byte},
    {"missing", remove_it},
    {"cut", cut_it},
    {"link", make_it_a_link},
};

static void publish_damaged(World *world, const char *name, Damage damage)
{
    g_autofree char *path = snapshot_path(world, name, "part-1");
    g_autofree char *key = g_strconcat("published/snapshots/", name, NULL);
    snapshot_files(world, name, FILES, BYTES);
    g_autofree char *value = snapshot_value(world, name, "x", world->now_ms - 60000);
    damage(world, path);
    world_put(world, key, value);
}

static void mend(World *world, const char *name)
{
    g_autofree char *path = snapshot_path(world, name, "part-1");
    g_unlink(path);
    snapshot_files(world, name, FILES, BYTES);
}

static const LhRetry *retry_of(World *world, const char *name)
{
    return world_get(world, LH_KIND_RETRY, "cache/%s.default.0", name);
}

static gboolean all_have_failed(World *world, gpointer data)
{
    for (guint i = 0; i < G_N_ELEMENTS(damages); i++) {
        if (retry_of(world, damages[i].name) == NULL) {
            return FALSE;
        }
    }
    return TRUE;
}

/* 10 s, or a little less by jitter, after the failure. */
static void check_retry(World *world, const char *name)
{
    const LhRetry *retry = retry_of(world, name);
    gint64 now_ms = g_get_real_time() / 1000;
    assert_true(lh_object_known(&retry->o));
    assert_int_equal(retry->attempt, 1);
    assert_false(retry->parked);
    assert_true(retry->message != NULL && retry->message[0] != '\0');
    assert_true(retry->not_before > now_ms - WAIT_MS && retry->not_before <= now_ms + 10000);
}

/* What the node said of @name until now: failed with a reason, and never live. */
static void check_said(World *world, const char *name)
{
    g_autoptr(GPtrArray) history = world_history(world, 0);
    g_autofree char *item = g_strdup_printf("/%s.default.0", name);
    g_autofree char *search = g_strdup_printf("/%s", name);
    guint failed = 0;
    for (guint i = 0; i < history->len; i++) {
        const Kv *kv = g_ptr_array_index(history, i);
        if (g_str_has_prefix(kv->key, "actual/search/") && g_str_has_suffix(kv->key, search)) {
            world_fail(world, "%s has a search key", name);
        }
        if (kv->is_delete || !g_str_has_prefix(kv->key, "actual/items/") ||
            !g_str_has_suffix(kv->key, item)) {
            continue;
        }
        g_autoptr(cJSON) said = cJSON_Parse(kv->value);
        assert_string_not_equal(json_text(said, "state"), "live");
        if (strcmp(json_text(said, "state"), "failed") == 0) {
            assert_true(json_text(said, "message")[0] != '\0');
            failed++;
        }
    }
    assert_int_equal(failed, 1);
}

static void set_up(World *world)
{
    world_put(world, "desired/settings/replica-creator", "{\"spec\":{\"debounce\":\"50ms\"}}");
    world_put(world, "desired/services/x", "{\"spec\":{\"owner\":\"a\"}}");
    agents_start(world, 1);
}

static void a_damaged_source_is_never_live(void **state)
{
    World *world = *state;
    Proc *manager = manager_ready(world, "manager");
    set_up(world);
    for (guint i = 0; i < G_N_ELEMENTS(damages); i++) {
        publish_damaged(world, damages[i].name, damages[i].damage);
    }
    snapshot_publish(world, "whole", "x", world->now_ms - 60000, FILES, BYTES);
    world_wait_live(world, "whole", 1);
    world_wait(world, all_have_failed, NULL, "each damaged snapshot has failed once");
    for (guint i = 0; i < G_N_ELEMENTS(damages); i++) {
        check_retry(world, damages[i].name);
        check_said(world, damages[i].name);
    }
    world_wait_event(world, "LoadFailed", NULL);
    for (guint i = 0; i < G_N_ELEMENTS(damages); i++) {
        g_autofree char *item = g_strdup_printf("cache/%s.default.0", damages[i].name);
        mend(world, damages[i].name);
        g_autoptr(Run) retried = cli(manager, "retry", item, NULL);
        assert_string_equal(retried->err, "");
        assert_int_equal(retried->code, 0);
    }
    world_wait_live(world, NULL, G_N_ELEMENTS(damages) + 1);
    assert_false(all_have_failed(world, NULL));
}

static gboolean has_failed(World *world, gpointer data)
{
    return retry_of(world, data) != NULL;
}

static gboolean is_parked(World *world, gpointer data)
{
    g_autofree char *status = g_strdup_printf("replicas/%s.default.0/cache-assigner",
                                              (const char *)data);
    const LhCondition *parked = world_condition(world, status, "Parked");
    const LhRetry *retry = retry_of(world, data);
    return parked != NULL && parked->status == LH_CONDITION_TRUE && retry != NULL && retry->parked;
}

static gboolean is_not_parked(World *world, gpointer data)
{
    return !is_parked(world, data) && retry_of(world, data) == NULL;
}

/* Four attempts would take two minutes: their count is put where it is kept. A new leader goes on
 * from there. */
static void the_fifth_attempt_parks_it_until_a_retry(void **state)
{
    World *world = *state;
    char name[] = "changed";
    Proc *manager = manager_ready(world, "manager");
    set_up(world);
    publish_damaged(world, name, change_a_byte);
    world_wait(world, has_failed, name, "the first attempt fails");
    assert_int_equal(proc_stop(manager), 0);
    world_put(world, "decided/retries/cache/changed.default.0",
              "{\"attempt\":4,\"notBefore\":1,\"parked\":false,\"message\":\"no\"}");
    manager = manager_ready(world, "successor");
    world_wait(world, is_parked, name, "the fifth attempt parks it");
    assert_int_equal(retry_of(world, name)->attempt, 5);
    world_wait_event(world, "Parked", "replicas/changed.default.0");
    assert_true(metric(manager, "parked_items{pool=\"cache\"}") == 1);
    g_autoptr(Run) why = cli(manager, "explain", "cache/changed.default.0", NULL);
    assert_int_equal(why->code, 0);
    assert_non_null(strstr(why->out, "attempts"));

    mend(world, name);
    g_autoptr(Reply) retried = http(manager, "POST", "/v1/retries/cache/changed.default.0:retry",
                                    "{}");
    reply_must(retried, 200);
    world_wait_live(world, NULL, 1);
    world_wait(world, is_not_parked, name, "it is not parked any more");
    assert_true(metric(manager, "parked_items{pool=\"cache\"}") == 0);
    g_autoptr(Run) none = cli(manager, "retry", "cache/changed.default.0", NULL);
    assert_int_equal(none->code, 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_damaged_source_is_never_live, world_setup,
                                        world_teardown),
        cmocka_unit_test_setup_teardown(the_fifth_attempt_parks_it_until_a_retry, world_setup,
                                        world_teardown),
    };
    return cmocka_run_group_tests_name("integration-damage", tests, NULL, NULL);
}
