/*
 * A transaction held back on an old connection and delivered after its leader has reconnected and planned
 * again: etcd must refuse it. Everything it compares but the fence holds again when it arrives, so only the
 * rewritten leader key is in its way.
 */
#include "harness.h"
#include "proxy.h"

#include <string.h>

#define ACCEPTED "decided/accepted/services/held"
#define STATUS   "decided/status/services/held/admission"

static gboolean is_holding(World *world, gpointer data)
{
    return proxy_is_holding(data);
}

static gboolean is_accepted(World *world, gpointer data)
{
    return world_get(world, LH_KIND_ACCEPTED, "services/%s", (const char *)data) != NULL;
}

static gboolean has_status(World *world, gpointer data)
{
    return world_get(world, LH_KIND_STATUS, "services/held/admission") != NULL;
}

static gboolean is_paused(World *world, gpointer data)
{
    g_autoptr(Reply) plan = http(data, "GET", "/v1/plan/admission", NULL);

    return plan->status == 200 && strstr(plan->body->str, "\"paused\":true") != NULL;
}

static gboolean has_answered(World *world, gpointer data)
{
    return proxy_answered(data) > 0;
}

static guint puts_of(World *world, const char *key)
{
    g_autoptr(GPtrArray) history = world_history(world, 0);
    guint n = 0;

    for (guint i = 0; i < history->len; i++) {
        const Kv *kv = g_ptr_array_index(history, i);
        n += !kv->is_delete && strcmp(kv->key, key) == 0;
    }
    return n;
}

static gboolean leader_key_was_rewritten(World *world)
{
    g_autoptr(GPtrArray) leaders = lh_mirror_list(world->mirror, LH_KIND_LEADER);

    for (guint i = 0; i < leaders->len; i++) {
        const LhObject *leader = g_ptr_array_index(leaders, i);
        if (g_str_has_prefix(leader->name, "admission/"))
            return leader->mod_rev > leader->create_rev;
    }
    return FALSE;
}

static void a_transaction_that_comes_late_is_refused(void **state)
{
    World *world = *state;
    Proxy *proxy = proxy_new(etcd_process_endpoint(world->etcd));
    static const char *const long_lease[] = {"--lease-ttl", "30s", NULL};
    Proc *manager;

    world->access.endpoints = proxy_endpoint(proxy);
    manager = manager_start(world, "m-1", long_lease);

    world_put(world, "desired/services/first", "{\"spec\":{\"owner\":\"a\"}}");
    world_wait(world, is_accepted, (gpointer) "first", "the first service is accepted");
    proxy_hold(proxy, ACCEPTED);
    world_put(world, "desired/services/held", "{\"spec\":{\"owner\":\"a\"}}");
    world_wait(world, is_holding, proxy, "the transaction is held back");
    assert_int_equal(puts_of(world, ACCEPTED), 0);
    proxy_cut(proxy);

    /* Over a new connection: the outcome is unknown, so the leader key is rewritten, then planned again. */
    world_wait(world, is_accepted, (gpointer) "held", "it is decided again");
    world_wait(world, has_status, NULL, "and said");
    assert_int_equal(puts_of(world, ACCEPTED), 1);
    assert_true(leader_key_was_rewritten(world));

    /* Nothing that the late one compares is in its way any more, but the fence. */
    world_put(world, "desired/settings/admission", "{\"spec\":{\"paused\":true}}");
    world_poll(world, is_paused, manager, "admission is paused");
    world_delete(world, STATUS);
    world_catch_up(world, world_delete(world, ACCEPTED));
    proxy_release(proxy);
    world_poll(world, has_answered, proxy, "etcd answers on the old connection");
    world_catch_up(world,
                   world_put(world, "desired/services/last", "{\"spec\":{\"owner\":\"a\"}}"));
    assert_int_equal(puts_of(world, ACCEPTED), 1);
    proxy_free(proxy);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_transaction_that_comes_late_is_refused, world_setup,
                                        world_teardown),
    };

    return cmocka_run_group_tests_name("integration-proxy", tests, NULL, NULL);
}
