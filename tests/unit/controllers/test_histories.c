/* suite: slow */
/*
 * The controllers under random histories: people, publishers, nodes and etcd's refusals, garbage
 * included. After every few steps the incremental index must plan byte for byte what an index built from
 * the present objects plans; no replica is assigned twice; nothing is placed beyond capacity or next to
 * its twin; and once the noise ends, everything converges and stays.
 *
 * LEASEHOLD_SEED=N runs that seed alone.
 */
#include <stdlib.h>

#include "tests/unit/controllers/harness.h"

#define SEEDS 150
#define STEPS 400

typedef struct {
    World *world;
    GRand *rand;
    guint seed, step;
    guint next_node;
    guint work; /* groups committed */
} History;

static gint32 pick(History *h, gint32 n)
{
    return g_rand_int_range(h->rand, 0, n);
}

static gboolean chance(History *h, gint32 percent)
{
    return pick(h, 100) < percent;
}

/* A key below @prefix, or NULL; borrowed until it changes: g_free. */
static char *any_key(History *h, const char *prefix)
{
    g_autoptr(GPtrArray) keys = keys_below(h->world, prefix);

    return keys->len == 0 ? NULL : g_strdup(keys->pdata[pick(h, (gint32)keys->len)]);
}

static const char *const garbage[] = {
    "not json", "[]", "{}", "{\"spec\":7}", "", "{\"spec\":{\"cache\":{\"replicas\":-1}}}",
};

/* ---- what people and publishers do ---- */

static void do_service(History *h)
{
    static const char *const windows[] = {"1h", "6h", "24h"};
    static const char *const sets[] = {"[\"default\"]", "[\"blue\"]", "[\"default\",\"blue\"]"};
    g_autofree char *key = g_strdup_printf("desired/services/s%d", pick(h, 3));

    if (chance(h, 12))
        del(h->world, key);
    else if (chance(h, 15))
        put(h->world, key, garbage[pick(h, G_N_ELEMENTS(garbage))]);
    else
        putf(h->world, key,
             "{\"metadata\":{\"labels\":{\"x\":\"%d\"}},\"spec\":{\"owner\":\"o\",\"paused\":%s,"
             "\"cache\":{\"window\":\"%s\",\"replicas\":%d,\"sets\":%s}}}",
             pick(h, 5), chance(h, 15) ? "true" : "false", windows[pick(h, 3)], pick(h, 3),
             sets[pick(h, 3)]);
}

static void do_snapshot(History *h)
{
    int name = pick(h, 20);
    gint64 end = h->world->now_ms - pick(h, 30) * HOUR + pick(h, 4) * SECOND;
    g_autofree char *key = g_strdup_printf("published/snapshots/p%d", name);

    if (chance(h, 15))
        del(h->world, key);
    else if (chance(h, 10))
        put(h->world, key, garbage[pick(h, G_N_ELEMENTS(garbage))]);
    else if (chance(h, 10))
        putf(h->world, key,
             "{\"service\":\"s%d\",\"startTime\":1,\"uri\":\"s3://bucket/p%d/\",\"live\":true}", pick(h, 4),
             name);
    else
        putf(h->world, key,
             "{\"service\":\"s%d\",\"startTime\":1,\"endTime\":%" PRId64 ",\"sizeBytes\":%d,"
             "\"uri\":\"s3://bucket/%s%d/\"}",
             pick(h, 4), end, pick(h, 30), chance(h, 15) ? "p1/" : "p", chance(h, 15) ? pick(h, 20) : name);
}

/* Several keys at one revision. */
static void do_twins(History *h)
{
    h->world->revision++;
    for (int i = 0; i < 3; i++) {
        g_autofree char *key = g_strdup_printf("published/snapshots/twin-%d", i);
        g_autofree char *value = g_strdup_printf(
            "{\"service\":\"s0\",\"startTime\":1,\"endTime\":%" PRId64
            ",\"sizeBytes\":%d,\"uri\":\"s3://bucket/twin/%s\"}",
            h->world->now_ms - HOUR, i, chance(h, 50) ? "" : "below/");
        change(h->world, key, chance(h, 30) ? NULL : value);
    }
}

static void do_settings(History *h)
{
    static const char *const specs[] = {
        "\"maxConcurrentLoads\":1", "\"maxConcurrentLoads\":5,\"strategy\":\"pack\"",
        "\"failureGrace\":\"0s\"",  "\"failureGrace\":\"30s\",\"restoreReservePercent\":50",
        "\"restoreReservePercent\":0",
    };
    int what = pick(h, 8);

    if (what == 0)
        del(h->world, "desired/settings/cache-assigner");
    else if (what == 1)
        put(h->world, "desired/settings/cache-evictor", garbage[pick(h, G_N_ELEMENTS(garbage))]);
    else if (what == 2)
        putf(h->world, "desired/settings/cache-evictor", "{\"spec\":{\"brakePercent\":%d}}",
             10 + pick(h, 90));
    else
        putf(h->world, "desired/settings/cache-assigner", "{\"spec\":{%s}}",
             specs[pick(h, G_N_ELEMENTS(specs))]);
}

static void do_other_desired(History *h)
{
    const LhBrake *brake = look(h->world, "decided/brakes/cache-evictor");

    switch (pick(h, 6)) {
    case 0:
        put(h->world, "desired/throttles/t", chance(h, 60) ? "{\"spec\":{\"requests\":1}}" : "nonsense");
        break;
    case 1:
        del(h->world, "desired/throttles/t");
        break;
    case 2:
        putf(h->world, "desired/seeds/x", "{\"spec\":{\"url\":\"https://e.org/\",\"throttle\":\"%s\"}}",
             chance(h, 70) ? "t" : "none");
        break;
    case 3:
        do_policy(h);
             chance(h, 40) ? "true" : "false");
        break;
    default:
        if (brake != NULL && lh_object_known(&brake->o))
            putf(h->world, "desired/confirmations/cache-evictor", "{\"spec\":{\"planHash\":\"%s\"}}",
                 chance(h, 80) ? brake->plan_hash : "stale");
    }
}
