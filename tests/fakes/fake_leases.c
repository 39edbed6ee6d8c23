/*
 * The fake's leases: they run out on the server's clock, at a tick of 500 ms: up to that late,
 * never early. A lease's keys are deleted in one revision, sorted.
 */
#include "fake_internal.h"

#include <string.h>

#define TICK_MS 500

static int compare_expiry(gconstpointer a, gconstpointer b)
{
    const FakeLease *x = a;
    const FakeLease *y = b;
    if (x->expires_ms != y->expires_ms) {
        return x->expires_ms < y->expires_ms ? -1 : 1;
    }
    return (x->id > y->id) - (x->id < y->id);
}

static void lease_free(gpointer data)
{
    FakeLease *lease = data;
    g_hash_table_destroy(lease->keys);
    g_free(lease);
}

void fake_leases_init(FakeEtcd *server)
{
    server->leases = g_hash_table_new_full(g_int64_hash, g_int64_equal, NULL, lease_free);
    server->by_expiry = g_tree_new(compare_expiry);
    server->tick_phase_ms = lh_mono_ms(server->env) + (gint64)fake_below(server, TICK_MS);
}

void fake_leases_clear(FakeEtcd *server)
{
    lh_timer_clear(server->env, &server->expiry_timer);
    g_tree_destroy(server->by_expiry);
    g_hash_table_destroy(server->leases);
}

FakeLease *fake_lease_get(FakeEtcd *server, gint64 id)
{
    return g_hash_table_lookup(server->leases, &id);
}

/* ---- expiry ---- */

/* The first tick at or after @at_ms. */
static gint64 tick_at(const FakeEtcd *server, gint64 at_ms)
{
    gint64 since = at_ms - server->tick_phase_ms;
    gint64 ticks = since > 0 ? (since + TICK_MS - 1) / TICK_MS : 0;
    return server->tick_phase_ms + ticks * TICK_MS;
}

gint64 fake_lease_next_tick(FakeEtcd *server)
{
    return tick_at(server, lh_mono_ms(server->env));
}

static FakeLease *first_to_expire(FakeEtcd *server)
{
    GTreeNode *node = g_tree_node_first(server->by_expiry);
    return node != NULL ? g_tree_node_key(node) : NULL;
}

static void on_tick(gpointer data)
{
    FakeEtcd *server = data;
    gint64 now = lh_mono_ms(server->env);
    FakeLease *lease;
    server->expiry_timer = NULL;
    if (server->stopped || server->frozen || server->leaderless) {
        return; /* armed again by what ends that */
    }
    while ((lease = first_to_expire(server)) != NULL && lease->expires_ms <= now) {
        server->stats.expiries++;
        fake_lease_revoke(server, lease->id, FAKE_BY_EXPIRY, "");
    }
    fake_leases_arm(server);
}

void fake_leases_arm(FakeEtcd *server)
{
    FakeLease *first = first_to_expire(server);
    if (server->expiry_timer == NULL && first != NULL) {
        gint64 at = MAX(first->expires_ms, lh_mono_ms(server->env));
        server->expiry_timer = lh_timer_at(server->env, tick_at(server, at), on_tick, server);
    }
}

/* An armed timer may then be too early, never too late: a keepalive only moves a lease away. */
static void set_expiry(FakeEtcd *server, FakeLease *lease, gint64 expires_ms)
{
    g_tree_remove(server->by_expiry, lease);
    lease->expires_ms = expires_ms;
    g_tree_insert(server->by_expiry, lease, lease);
    fake_leases_arm(server);
}

gboolean fake_lease_is_overdue(FakeEtcd *server, const FakeLease *lease)
{
    return lease->expires_ms <= lh_mono_ms(server->env);
}

void fake_leases_extend(FakeEtcd *server)
{
    GHashTableIter iter;
    gpointer value;
    gint64 now = lh_mono_ms(server->env);
    g_tree_destroy(server->by_expiry);
    server->by_expiry = g_tree_new(compare_expiry);
    g_hash_table_iter_init(&iter, server->leases);
    while (g_hash_table_iter_next(&iter, NULL, &value)) {
        FakeLease *lease = value;
        lease->expires_ms = now + server->options.election_ms + lease->ttl_s * 1000;
        g_tree_insert(server->by_expiry, lease, lease);
    }
    lh_timer_clear(server->env, &server->expiry_timer);
    fake_leases_arm(server);
}

/* ---- what clients ask ---- */

FakeLease *fake_lease_grant(FakeEtcd *server, gint64 id, gint64 ttl_s)
{
    FakeLease *lease = g_new0(FakeLease, 1);
    while (id == 0 || fake_lease_get(server, id) != NULL) {
        id = (gint64)(lh_random(server->env) >> 1);
    }
    lease->id = id;
    lease->ttl_s = MAX(ttl_s, server->options.lease_floor_s);
    lease->keys = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
    g_hash_table_insert(server->leases, &lease->id, lease);
    lh_timer_clear(server->env, &server->expiry_timer);
    lease->expires_ms = lh_mono_ms(server->env) + lease->ttl_s * 1000;
    g_tree_insert(server->by_expiry, lease, lease);
    fake_leases_arm(server);
    return lease;
}

gint64 fake_lease_keepalive(FakeEtcd *server, gint64 id)
{
    FakeLease *lease = fake_lease_get(server, id);
    if (lease == NULL) {
        return 0;
    }
    set_expiry(server, lease, lh_mono_ms(server->env) + lease->ttl_s * 1000);
    return lease->ttl_s;
}

void fake_lease_attach(FakeEtcd *server, gint64 id, const char *key)
{
    FakeLease *lease = id != 0 ? fake_lease_get(server, id) : NULL;
    if (lease != NULL && !g_hash_table_contains(lease->keys, key)) {
        g_hash_table_add(lease->keys, g_strdup(key));
    }
}

void fake_lease_detach(FakeEtcd *server, gint64 id, const char *key)
{
    FakeLease *lease = id != 0 ? fake_lease_get(server, id) : NULL;
    if (lease != NULL) {
        g_hash_table_remove(lease->keys, key);
    }
}

static int compare_strings(gconstpointer a, gconstpointer b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

gboolean fake_lease_revoke(FakeEtcd *server, gint64 id, FakeCause cause, const char *client)
{
    FakeLease *lease = fake_lease_get(server, id);
    GHashTableIter iter;
    gpointer key;
    if (lease == NULL) {
        return FALSE;
    }
    g_tree_remove(server->by_expiry, lease);
    g_hash_table_steal(server->leases, &lease->id);
    g_autoptr(GPtrArray) keys = g_ptr_array_new();
    g_hash_table_iter_init(&iter, lease->keys);
    while (g_hash_table_iter_next(&iter, &key, NULL)) {
        g_ptr_array_add(keys, key);
    }
    g_ptr_array_sort(keys, compare_strings);
    fake_store_begin(server, cause, client);
    server->open->pub.lease = id;
    for (guint i = 0; i < keys->len; i++) {
        fake_store_delete(server, keys->pdata[i], NULL);
    }
    fake_store_end(server);
    lease_free(lease);
    return TRUE;
}
