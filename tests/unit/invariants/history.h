/*
 * For the tests of tests/invariants: histories written by hand, as etcd would have made them. begin() is a
 * small cluster at work: five leaders, a service, two nodes, a snapshot that is live on the first.
 */
#pragma once

#include "base/units.h"
#include "tests/invariants/recorded.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define PREFIX   "/leasehold/"
#define T0       G_GINT64_CONSTANT(1767225600000)
#define LEADERS  0xa1
#define NODE_A   "node-a-0000000a"
#define NODE_B   "node-b-0000000b"
#define ITEM     "s1.default.0"
#define ON(node) "decided/assignments/cache/" node "/"

typedef struct {
    gint64 create, version, lease;
} HistoryKey;

typedef struct {
    Recorded *recorded;
    GHashTable *keys; /* key under the prefix → HistoryKey */
    GArray *events;   /* LhEtcdEvent: of the transaction that is being made */
    gint64 revision, now_ms;
    gint64 epoch;   /* of cache-assigner's leader */
    gint64 evictor; /* of cache-evictor's */
    gint64 order;   /* revision of the assignment of ITEM */
} History;

static inline History *history_new(void)
{
    History *h = g_new0(History, 1);
    h->recorded = recorded_new(PREFIX);
    h->keys = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, g_free);
    h->events = g_array_new(FALSE, TRUE, sizeof(LhEtcdEvent));
    h->revision = 1;
    h->now_ms = T0;
    return h;
}

static inline void history_free(History *h)
{
    g_assert(h->events->len == 0);
    recorded_free(h->recorded);
    g_hash_table_unref(h->keys);
    g_array_unref(h->events);
    g_free(h);
}
G_DEFINE_AUTOPTR_CLEANUP_FUNC(History, history_free)

static inline void history_wait(History *h, gint64 ms)
{
    h->now_ms += ms;
}

static inline void put_bytes(History *h, gint64 lease, const char *key, const char *value,
                             gsize len)
{
    HistoryKey *known = g_hash_table_lookup(h->keys, key);
    if (known == NULL) {
        known = g_new0(HistoryKey, 1);
        known->create = h->revision + 1;
        g_hash_table_insert(h->keys, g_strdup(key), known);
    }
    known->version++;
    known->lease = lease;
    char *whole = g_strconcat(PREFIX, key, NULL);
    const LhEtcdEvent event = {.kv = {.key = whole,
                                      .key_len = strlen(whole),
                                      .value = g_memdup2(value, len + 1),
                                      .value_len = len,
                                      .create_rev = known->create,
                                      .mod_rev = h->revision + 1,
                                      .version = known->version,
                                      .lease = lease}};
    g_array_append_val(h->events, event);
}

/* Adds to the transaction; @lease 0: none. */
G_GNUC_PRINTF(4, 5)
static inline void put(History *h, gint64 lease, const char *key, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    g_autofree char *value = g_strdup_vprintf(format, args);
    va_end(args);
    put_bytes(h, lease, key, value, strlen(value));
}

static inline void del(History *h, const char *key)
{
    assert_true(g_hash_table_remove(h->keys, key));
    char *whole = g_strconcat(PREFIX, key, NULL);
    const LhEtcdEvent event = {
        .is_delete = TRUE,
        .kv = {.key = whole, .key_len = strlen(whole), .mod_rev = h->revision + 1}};
    g_array_append_val(h->events, event);
}

/* One revision, some time after the last one; returns it. */
static inline gint64 commit(History *h)
{
    history_wait(h, 10);
    h->revision++;
    recorded_add(h->recorded, (LhEtcdEvent *)h->events->data, h->events->len, h->now_ms - 1,
                 h->now_ms);
    for (guint i = 0; i < h->events->len; i++) {
        LhKv *kv = &g_array_index(h->events, LhEtcdEvent, i).kv;
        g_free((char *)kv->key);
        g_free((char *)kv->value);
    }
    g_array_set_size(h->events, 0);
    return h->revision;
}

/* As when nobody renews it any more. */
static inline gint64 end_lease(History *h, gint64 lease)
{
    g_autoptr(GPtrArray) gone = g_ptr_array_new_with_free_func(g_free);
    GHashTableIter iter;
    gpointer key, value;
    g_hash_table_iter_init(&iter, h->keys);
    while (g_hash_table_iter_next(&iter, &key, &value))
        if (((HistoryKey *)value)->lease == lease)
            g_ptr_array_add(gone, g_strdup(key));
    for (guint i = 0; i < gone->len; i++)
        del(h, gone->pdata[i]);
    return commit(h);
}

static inline gint64 lead(History *h, const char *controller, gint64 lease)
{
    g_autofree char *key = g_strdup_printf("leaders/%s/%016" G_GINT64_MODIFIER "x", controller,
                                           (guint64)lease);
    put(h, lease, key, "{\"instance\":\"manager-%" G_GINT64_FORMAT "\"}", lease);
    return commit(h);
}

static inline void lead_all(History *h, gint64 lease)
{
    lead(h, "admission", lease);
    lead(h, "replica-creator", lease);
    lead(h, "failure-detector", lease);
    h->epoch = lead(h, "cache-assigner", lease);
    h->evictor = lead(h, "cache-evictor", lease);
}

/* Somebody writes it, and admission accepts it. */
static void accept_spec(History *h, const char *subject, const char *spec)
{
    g_autofree char *desired = g_strconcat("desired/", subject, NULL);
    g_autofree char *accepted = g_strconcat("decided/accepted/", subject, NULL);
    g_autofree char *status = g_strdup_printf("decided/status/%s/admission", subject);
    put(h, 0, desired, "{\"spec\":%s}", spec);
    gint64 revision = commit(h);
    put(h, 0, accepted, "{\"revision\":%" G_GINT64_FORMAT ",\"spec\":%s}", revision, spec);
    put(h, 0, status, "{\"observedRevision\":%" G_GINT64_FORMAT "}", revision);
    commit(h);
}

static void register_node(History *h, const char *id, const char *name, gint64 lease,
                          const char *set)
{
    g_autofree char *key = g_strconcat("actual/nodes/cache/", id, NULL);
    put(h, lease, key,
        "{\"name\":\"%s\",\"set\":\"%s\",\"capacityBytes\":1000,\"capacityItems\":100,"
        "\"lease\":\"%016" G_GINT64_MODIFIER "x\",\"leaseTtl\":\"10s\"}",
        name, set, (guint64)lease);
    commit(h);
}

static void publish(History *h, const char *snapshot, gint64 bytes)
{
    g_autofree char *key = g_strconcat("published/snapshots/", snapshot, NULL);
    put(h, 0, key,
        "{\"service\":\"svc\",\"startTime\":%" G_GINT64_FORMAT ",\"endTime\":%" G_GINT64_FORMAT
        ",\"sizeBytes\":%" G_GINT64_FORMAT ",\"uri\":\"s3://bucket/%s/\"}",
        T0 - 60000, T0, bytes, snapshot);
    commit(h);
}

static void create_replica(History *h, const char *snapshot, guint ordinal)
{
    g_autofree char *key = g_strdup_printf("decided/replicas/%s.default.%u", snapshot, ordinal);
    put(h, 0, key,
        "{\"snapshot\":\"%s\",\"service\":\"svc\",\"set\":\"default\",\"ordinal\":%u,"
        "\"createdAt\":%" G_GINT64_FORMAT ",\"expiresAt\":%" G_GINT64_FORMAT "}",
        snapshot, ordinal, h->now_ms, T0 + 3600 * 1000);
    commit(h);
}

/* Adds to the transaction. */
static void put_order(History *h, const char *node, const char *snapshot, guint ordinal,
                      gint64 bytes, const char *action)
{
    g_autofree char *key = g_strdup_printf(ON("%s") "%s.default.%u", node, snapshot, ordinal);
    gboolean evict = strcmp(action, "evict") == 0;
    put(h, 0, key,
        "{\"action\":\"%s\",\"controller\":\"%s\",\"epoch\":%" G_GINT64_FORMAT
        ",\"snapshot\":\"%s\",\"uri\":\"s3://bucket/%s/\",\"sizeBytes\":%" G_GINT64_FORMAT
        ",\"set\":\"default\"}",
        action, evict ? "cache-evictor" : "cache-assigner", evict ? h->evictor : h->epoch, snapshot,
        snapshot, bytes);
}

/* Adds to the transaction. */
static void put_item(History *h, gint64 lease, const char *node, const char *item,
                     const char *state, gint64 order)
{
    g_autofree char *key = g_strdup_printf("actual/items/cache/%s/%s", node, item);
    put(h, lease, key, "{\"state\":\"%s\",\"assignment\":%" G_GINT64_FORMAT "}", state, order);
}

static void put_search(History *h, gint64 lease, const char *node, const char *snapshot)
{
    g_autofree char *key = g_strdup_printf("actual/search/cache/%s/%s", node, snapshot);
    put(h, lease, key,
        "{\"snapshot\":\"%s\",\"replica\":\"%s.default.0\",\"node\":\"%s\",\"url\":\"http://x/\"}",
        snapshot, snapshot, node);
}

#define SERVICE \
    "{\"owner\":\"t\",\"cache\":{\"window\":\"1h\",\"replicas\":2,\"sets\":[\"default\"]}}"
#define LEASE_A 0x0a
#define LEASE_B 0x0b

static History *begin(void)
{
    History *h = history_new();
    lead_all(h, LEADERS);
    accept_spec(h, "settings/cache-assigner",
                "{\"failureGrace\":\"30s\",\"restoreReservePercent\":10}");
    accept_spec(h, "services/svc", SERVICE);
    register_node(h, NODE_A, "node-a", LEASE_A, "default");
    register_node(h, NODE_B, "node-b", LEASE_B, "default");
    put(h, 0, "decided/health/cache/" NODE_A, "{\"state\":\"healthy\",\"leaseTtl\":\"10s\"}");
    commit(h);
    publish(h, "s1", 400);
    create_replica(h, "s1", 0);
    put_order(h, NODE_A, "s1", 0, 400, "load");
    h->order = commit(h);
    put_item(h, LEASE_A, NODE_A, ITEM, "loading", h->order);
    commit(h);
    put_item(h, LEASE_A, NODE_A, ITEM, "live", h->order);
    put_search(h, LEASE_A, NODE_A, "s1");
    commit(h);
    return h;
}

static void judge(const History *h, RecordedResult *out)
{
    const RecordedTolerance tolerance = {.clock_ms = 1000, .late_ms = 5000};
    recorded_check(h->recorded, &tolerance, out);
}
