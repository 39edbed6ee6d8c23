/* Blocking calls over the asynchronous client. What etcd refuses ends the program: a benchmark that went
 * on would measure something else. */
#include "client.h"

#include "api/kind.h"
#include "etcd/lease.h"

#include <string.h>

#define DEADLINE_MS 120000
#define LOAD_OPS    LH_ETCD_MAX_TXN_OPS
#define LOAD_FLIGHT 16

/* ---- single transactions ---- */

typedef struct {
    gboolean done;
    gint64 revision;
} Answer;

static gboolean is_done(gpointer data)
{
    return *(gboolean *)data;
}

static void on_txn(const LhTxnReply *reply, const GError *error, gpointer data)
{
    Answer *answer = data;

    bench_must(error, "a transaction");
    if (!reply->succeeded)
        bench_fail("etcd refused a transaction: a compare does not hold");
    answer->revision = reply->header.revision;
    answer->done = TRUE;
}

gint64 client_txn(const LhTxnRequest *request)
{
    Answer answer = {FALSE, 0};

    bench.client->v->txn(bench.client, request, DEADLINE_MS, on_txn, &answer);
    bench_wait(is_done, &answer.done, DEADLINE_MS * 2, "etcd answers a transaction");
    return answer.revision;
}

gint64 client_put(const char *key, const char *value, gint64 lease)
{
    LhTxnOp op = lh_txn_put(key, value, lease);

    return client_txn(&(LhTxnRequest){.success = &op, .n_success = 1});
}

gint64 client_delete_prefix(const char *prefix)
{
    g_autofree char *end = lh_etcd_prefix_end(prefix);
    LhTxnOp op = lh_txn_delete(prefix);

    op.range_end = end;
    return client_txn(&(LhTxnRequest){.success = &op, .n_success = 1});
}

/* ---- many transactions ---- */

typedef struct {
    guint n, sent, answered;
    gint64 last_us, revision;
    RequestFunc request;
    gpointer data;
} Pump;

static void on_pumped(const LhTxnReply *reply, const GError *error, gpointer data);

static void pump_one(Pump *pump)
{
    const LhTxnRequest *request;

    if (pump->sent == pump->n)
        return;
    request = pump->request(pump->sent++, pump->data);
    bench.client->v->txn(bench.client, request, DEADLINE_MS, on_pumped, pump);
}

static void on_pumped(const LhTxnReply *reply, const GError *error, gpointer data)
{
    Pump *pump = data;

    bench_must(error, "a transaction");
    if (!reply->succeeded)
        bench_fail("etcd refused a transaction: a compare does not hold");
    pump->answered++;
    pump->last_us = now_us();
    pump->revision = MAX(pump->revision, reply->header.revision);
    pump_one(pump);
}

static gboolean is_pumped(gpointer data)
{
    const Pump *pump = data;

    return pump->answered == pump->n;
}

static guint64 pumped(gpointer data)
{
    return ((const Pump *)data)->answered;
}

static Pump pump_all(guint n, guint in_flight, RequestFunc request, gpointer data)
{
    Pump pump = {.n = n, .request = request, .data = data};

    for (guint i = 0; i < in_flight; i++)
        pump_one(&pump);
    bench_wait_going(is_pumped, pumped, &pump, DEADLINE_MS, "etcd takes %u transactions", n);
    return pump;
}

gint64 client_pump(guint n, guint in_flight, RequestFunc request, gpointer data)
{
    gint64 start = now_us();

    return pump_all(n, in_flight, request, data).last_us - start;
}

/* ---- loads ---- */

typedef struct {
    guint n;
    ItemFunc item;
    gpointer data;
    gint64 lease;
    LhTxnRequest request;
    LhTxnOp ops[LOAD_OPS];
} Load;

static const LhTxnRequest *load_request(guint i, gpointer data)
{
    Load *load = data;
    guint first = i * LOAD_OPS, n = MIN(LOAD_OPS, load->n - first);

    for (guint k = 0; k < load->request.n_success; k++) {
        g_free((char *)load->ops[k].key);
        g_free((char *)load->ops[k].value);
    }
    for (guint k = 0; k < n; k++) {
        char *key = NULL, *value = NULL;
        load->item(first + k, &key, &value, load->data);
        load->ops[k] = lh_txn_put(key, value, load->lease);
    }
    load->request = (LhTxnRequest){.success = load->ops, .n_success = n};
    return &load->request;
}

gint64 client_load(guint n, ItemFunc item, gpointer data, gint64 lease)
{
    Load load = {.n = n, .item = item, .data = data, .lease = lease};
    gint64 revision;

    if (n == 0)
        return 0;
    revision = pump_all((n + LOAD_OPS - 1) / LOAD_OPS, LOAD_FLIGHT, load_request, &load).revision;
    for (guint k = 0; k < load.request.n_success; k++) {
        g_free((char *)load.ops[k].key);
        g_free((char *)load.ops[k].value);
    }
    return revision;
}

/* ---- raw reads ---- */

typedef struct {
    RawRange raw;
    const char *prefix;
    guint kind; /* that is read now */
    gint64 page_keys, revision;
    char *from, *end;
    guint64 pages;
} Reading;

static void ask_page(Reading *reading);

static void next_kind(Reading *reading)
{
    g_clear_pointer(&reading->from, g_free);
    g_clear_pointer(&reading->end, g_free);
    if (++reading->kind >= LH_N_KINDS)
        return;
    reading->from = g_strconcat(reading->prefix, lh_kind_info(reading->kind)->prefix, NULL);
    reading->end = lh_etcd_prefix_end(reading->from);
    ask_page(reading);
}

static void on_page(const LhRangeReply *reply, const GError *error, gpointer data)
{
    Reading *reading = data;

    bench_must(error, "a page of a range");
    for (gsize i = 0; i < reply->n_kvs; i++)
        reading->raw.bytes += reply->kvs[i].key_len + reply->kvs[i].value_len;
    reading->raw.keys += reply->n_kvs;
    reading->pages++;
    reading->revision = reading->revision != 0 ? reading->revision : reply->header.revision;
    if (!reply->more) {
        next_kind(reading);
        return;
    }
    g_free(reading->from); /* the key after the last one */
    reading->from = g_strconcat(reply->kvs[reply->n_kvs - 1].key, "\x01", NULL);
    ask_page(reading);
}

static void ask_page(Reading *reading)
{
    LhRangeRequest request = {
        .key = reading->from,
        .range_end = reading->end,
        .revision = reading->revision,
        .limit = reading->page_keys,
    };

    bench.client->v->range(bench.client, &request, DEADLINE_MS, on_page, reading);
}

static gboolean is_read(gpointer data)
{
    return ((const Reading *)data)->kind >= LH_N_KINDS;
}

static guint64 pages_read(gpointer data)
{
    return ((const Reading *)data)->pages;
}

RawRange client_range(const char *prefix, gint64 page_keys)
{
    Reading reading = {.prefix = prefix, .page_keys = page_keys, .kind = G_MAXUINT};
    gint64 start = now_us();

    next_kind(&reading); /* 0 */
    bench_wait_going(is_read, pages_read, &reading, DEADLINE_MS, "etcd answers pages of a range");
    reading.raw.took_us = now_us() - start;
    return reading.raw;
}

/* ---- watches ---- */

struct Watch {
    LhEtcdStream *stream;
    gboolean created;
    EventFunc func;
    gpointer data;
};

static void on_watched(const LhWatchReply *reply, gpointer data)
{
    Watch *watch = data;
    gint64 at = now_us();

    if (reply->canceled)
        bench_fail("etcd cancelled a watch: %s", reply->reason != NULL ? reply->reason : "");
    watch->created = watch->created || reply->created;
    for (gsize i = 0; i < reply->n_events; i++)
        watch->func(&reply->events[i], at, watch->data);
}

static void on_closed(const GError *error, gpointer data)
{
    bench_fail("a watch ended: %s", error != NULL ? error->message : "closed by etcd");
}

static gboolean is_created(gpointer data)
{
    return ((Watch *)data)->created;
}

Watch *watch_new(const char *prefix, EventFunc func, gpointer data)
{
    g_autofree char *end = lh_etcd_prefix_end(prefix);
    LhWatchRequest request = {.key = prefix, .range_end = end};
    Watch *watch = g_new0(Watch, 1);

    watch->func = func;
    watch->data = data;
    watch->stream = bench.client->v->watch(bench.client, &request, on_watched, on_closed, watch);
    bench_wait(is_created, watch, DEADLINE_MS, "etcd opens a watch");
    return watch;
}

void watch_free(Watch *watch)
{
    bench.client->v->watch_close(bench.client, watch->stream);
    g_free(watch);
}

/* ---- leases ---- */

struct Keeper {
    LhLease *lease;
    gboolean revoked;
};

static void on_granted(gint64 lease, gint64 ttl_s, gpointer data)
{
}

static void on_lost(gpointer data)
{
    bench_fail("the lease of the simulated nodes is lost: this process was kept from renewing it");
}

static gboolean is_granted(gpointer data)
{
    return lh_lease_id(((Keeper *)data)->lease) != 0;
}

Keeper *keeper_new(gint64 ttl_s)
{
    static const LhLeaseFuncs funcs = {.granted = on_granted, .lost = on_lost};
    Keeper *keeper = g_new0(Keeper, 1);

    keeper->lease = lh_lease_start(bench.env, bench.client, ttl_s, &funcs, keeper);
    bench_wait(is_granted, keeper, DEADLINE_MS, "etcd grants a lease");
    return keeper;
}

gint64 keeper_lease(const Keeper *keeper)
{
    return lh_lease_id(keeper->lease);
}

static void on_revoked(gpointer data)
{
    ((Keeper *)data)->revoked = TRUE;
}

static gboolean is_revoked(gpointer data)
{
    return ((Keeper *)data)->revoked;
}

void keeper_free(Keeper *keeper)
{
    lh_lease_revoke(keeper->lease, on_revoked, keeper);
    bench_wait(is_revoked, keeper, DEADLINE_MS, "etcd revokes a lease");
    lh_lease_free(keeper->lease);
    g_free(keeper);
}
