/* suite: slow */
/*
 * The controllers under random histories: people, publishers, nodes and etcd's refusals, garbage
 * included. After every few steps the incremental index must plan byte for byte what an index built from
 * the present objects plans; no replica is assigned twice but while a node is drained or in failure, and no
 * live copy goes for that but when there is another; nothing is placed beyond capacity or next to its twin; and once the noise ends, everything converges and stays.
 *
 * LEASEHOLD_SEED=N runs that seed alone.
 */
#include "tests/unit/controllers/harness.h"

#include <stdlib.h>

#define SEEDS 150
#define STEPS 400

typedef struct {
    World *world;
    GRand *rand;
    guint seed, step;
    guint next_node;
    guint work;   /* groups committed */
    guint moved;  /* of them: a copy that a drain or a failure made one too many goes */
    guint failed; /* of these: by a failure */
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
             "{\"service\":\"s%d\",\"startTime\":1,\"uri\":\"s3://bucket/p%d/\",\"live\":true}",
             pick(h, 4), name);
    else
        putf(h->world, key,
             "{\"service\":\"s%d\",\"startTime\":1,\"endTime\":%" PRId64 ",\"sizeBytes\":%d,"
             "\"uri\":\"s3://bucket/%s%d/\"}",
             pick(h, 4), end, pick(h, 30), chance(h, 15) ? "p1/" : "p",
             chance(h, 15) ? pick(h, 20) : name);
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
        "\"maxConcurrentLoads\":1",    "\"maxConcurrentLoads\":5,\"strategy\":\"pack\"",
        "\"failureGrace\":\"0s\"",     "\"failureGrace\":\"30s\",\"restoreReservePercent\":50",
        "\"restoreReservePercent\":0",
    };
    int what = pick(h, 9);

    if (what == 8)
        putf(h->world, "desired/settings/failure-detector", "{\"spec\":{\"onFailure\":\"%s\"}}",
             chance(h, 30) ? "keep" : "evict");
    else if (what == 0)
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

static void do_policy(History *h)
{
    g_autofree char *key = g_strdup_printf("desired/nodepolicies/cache/n%d", pick(h, 5));

    if (chance(h, 25))
        del(h->world, key);
    else
        putf(h->world, key, "{\"spec\":{\"%s\":%s}}", chance(h, 30) ? "cordon" : "drain",
             chance(h, 60) ? "true" : "false");
}

static void do_other_desired(History *h)
{
    const LhBrake *brake = look(h->world, "decided/brakes/cache-evictor");

    switch (pick(h, 6)) {
    case 0:
        put(h->world, "desired/throttles/t",
            chance(h, 60) ? "{\"spec\":{\"requests\":1,\"period\":\"1m\"}}" : "nonsense");
        break;
    case 1:
        del(h->world, "desired/throttles/t");
        break;
    case 2:
        putf(h->world, "desired/seeds/x",
             "{\"spec\":{\"url\":\"https://e.org/\",\"throttle\":\"%s\"}}",
             chance(h, 70) ? "t" : "none");
        break;
    case 3:
        do_policy(h);
        break;
    default:
        if (brake != NULL && lh_object_known(&brake->o))
            putf(h->world, "desired/confirmations/cache-evictor",
                 "{\"spec\":{\"planHash\":\"%s\"}}", chance(h, 80) ? brake->plan_hash : "stale");
    }
}

static void do_restore(History *h)
{
    static const char *const ttls[] = {"1m", "1h", "9h"};
    g_autofree char *key = g_strdup_printf("desired/restores/r%d", pick(h, 4));
    gint64 start = h->world->now_ms - pick(h, 40) * HOUR;

    if (chance(h, 20))
        del(h->world, key);
    else if (chance(h, 10))
        put(h->world, key, garbage[pick(h, G_N_ELEMENTS(garbage))]);
    else if (chance(h, 30))
        putf(h->world, key,
             "{\"spec\":{\"snapshots\":[\"p%d\",\"p%d\",\"twin-0\"],\"ttl\":\"%s\"}}", pick(h, 10),
             10 + pick(h, 10), ttls[pick(h, 3)]);
    else
        putf(h->world, key,
             "{\"spec\":{\"service\":\"%s%d\",\"startTime\":%" PRId64 ",\"endTime\":%" PRId64
             ",\"ttl\":\"%s\"}}",
             "s", pick(h, 4), start, start + pick(h, 20) * HOUR, ttls[pick(h, 3)]);
}

static void do_deletion(History *h)
{
    int name = pick(h, 20);
    g_autofree char *key = g_strdup_printf("decided/deletions/p%d", name);
    g_autofree char *snapshot = g_strdup_printf("published/snapshots/p%d", name);
    g_autofree char *replicas = g_strdup_printf("decided/replicas/p%d.", name);

    if (chance(h, 40))
        del(h->world, key);
    else if (none_below(h->world, replicas))
        putf(h->world, key,
             "{\"uri\":\"s3://bucket/p%d/\",\"snapshotRevision\":%" PRId64 ",\"decidedAt\":1}",
             name, mod_rev(h->world, snapshot));
}

/* Something that controllers or nodes wrote is spoilt, or removed by hand. */
static void do_spoil(History *h)
{
    static const char *const areas[] = {
        "decided/accepted/", "decided/replicas/",    "decided/assignments/",     "decided/retries/",
        "decided/status/",   "decided/health/",      "decided/brakes/",          "actual/items/",
        "actual/nodes/",     "published/snapshots/", "decided/restoreprogress/",
    };
    g_autofree char *key = any_key(h, areas[pick(h, G_N_ELEMENTS(areas))]);

    if (key == NULL)
        return;
    if (chance(h, 50))
        put(h->world, key, garbage[pick(h, 5)]);
    else if (!g_str_has_prefix(key, "actual/nodes/") &&
             !g_str_has_prefix(key, "decided/assignments/"))
        del(h->world, key);
}

static void do_odd_key(History *h)
{
    static const char *const keys[] = {
        "decided/replicas/no-ordinal",
        "decided/assignments/cache/n1-00000001/",
        "decided/assignments/cache",
        "decided/retries/cache/p1",
        "decided/retries/worker/x",
        "decided/assignments/worker/w-00000001/task",
        "actual/nodes/cache/",
        "actual/nodes/cache/no-hex",
        "nowhere/at/all",
        "decided/status/replicas/p1.default.0/cache-assigner",
        "decided/status/snapshots/p3/admission",
        "decided/status/snapshots/p4/replica-creator",
        "decided/status/services/s0/admission",
        "decided/accepted/services/",
        "actual/items/cache/n1-00000001/p1.default.0",
        "published/snapshots/bad name",
        "desired/settings/no-such-controller",
        "published/recoverytasks/t",
        "desired/nodepolicies/cache/x/y",
    };
    const char *key = keys[pick(h, G_N_ELEMENTS(keys))];

    if (chance(h, 40))
        del(h->world, key);
    else
        put(h->world, key, chance(h, 50) ? "{}" : garbage[pick(h, G_N_ELEMENTS(garbage))]);
}

/* ---- nodes ---- */

static void do_join(History *h)
{
    static const char *const more[] = {
        "",
        ",\"zone\":\"z1\"",
        ",\"zone\":\"z2\"",
        ",\"set\":\"blue\"",
        ",\"set\":\"blue\",\"zone\":\"z1\"",
        ",\"warm\":[\"p1\",\"p2\",\"p3\"]",
    };
    int host = pick(h, 5);
    g_autofree char *id = g_strdup_printf("n%d-%08x", host, h->next_node++);
    g_autofree char *present = g_strdup_printf("actual/nodes/cache/n%d-", host);

    if (count_below(h->world, present) < 2)
        put_node(h->world, id, chance(h, 80) ? 100 : 30, chance(h, 50) ? 0 : 6,
                 more[pick(h, G_N_ELEMENTS(more))]);
}

static void do_leave(History *h)
{
    g_autofree char *key = any_key(h, "actual/nodes/cache/");

    if (key != NULL)
        lose_node(h->world, key + strlen("actual/nodes/cache/"));
}

/* What the node at @key says of itself. */
static void say_word(World *world, const char *key, gboolean error)
{
    const char *words[] = {"\"state\":\"online\"", "\"state\":\"error\""};
    const char *value = g_hash_table_lookup(world->values, key);
    g_autoptr(GString) text = g_string_new(value);

    g_string_replace(text, words[!error], words[!!error], 1);
    if (value != NULL && strcmp(text->str, value) != 0)
        put(world, key, text->str);
}

static void do_word(History *h)
{
    g_autofree char *key = any_key(h, "actual/nodes/cache/");

    if (key != NULL)
        say_word(h->world, key, chance(h, 50));
}

static void do_answer(History *h)
{
    static const char *const states[] = {"live",   "live",    "live",     "evicted", "failed",
                                         "failed", "loading", "evicting", "done"};
    g_autofree char *key = any_key(h, "decided/assignments/cache/");
    const char *name = key == NULL ? NULL : key + strlen("decided/assignments/cache/");
    g_autofree char *node = name == NULL ? NULL : g_strndup(name, strcspn(name, "/"));

    if (node != NULL && lookf(h->world, "actual/nodes/cache/%s", node) != NULL)
        answer(h->world, name, states[pick(h, G_N_ELEMENTS(states))]);
}

/* ---- controllers ---- */

static void check_assigned_once(const History *h)
{
    g_autoptr(GPtrArray) keys = keys_below(h->world, "decided/assignments/cache/");
    g_autoptr(GHashTable) seen = g_hash_table_new(g_str_hash, g_str_equal);

    for (guint i = 0; i < keys->len; i++) {
        const char *item = strrchr(keys->pdata[i], '/') + 1;
        if (*item != '\0' && !g_hash_table_add(seen, (gpointer)item))
            fail_msg("seed %u step %u: %s is assigned twice", h->seed, h->step, item);
    }
}

/* All that registered nodes of the host are told to hold, after @size bytes were placed on @node. */
static void check_host(const History *h, const char *node, gint64 size)
{
    const LhNode *object = lookf(h->world, "actual/nodes/cache/%s", node);
    g_autoptr(GPtrArray) keys = keys_below(h->world, "decided/assignments/cache/");
    g_autoptr(GHashTable) snapshots = g_hash_table_new(g_str_hash, g_str_equal);
    gint64 bytes = 0, items = 0;

    for (guint i = 0; i < keys->len; i++) {
        const LhAssignment *assignment = look(h->world, keys->pdata[i]);
        g_autofree char *id = lh_name_part(assignment->o.name, 1);
        g_autofree char *name = id == NULL ? NULL : lh_node_name_of(id);
        if (g_strcmp0(name, object->node_name) != 0 ||
            lookf(h->world, "actual/nodes/cache/%s", id) == NULL)
            continue;
        items++;
        bytes += assignment->size_bytes;
        if (assignment->snapshot != NULL &&
            !g_hash_table_add(snapshots, (gpointer)assignment->snapshot))
            fail_msg("seed %u step %u: %s twice on %s", h->seed, h->step, assignment->snapshot,
                     name);
    }
    if ((size > 0 && bytes > object->capacity_bytes) ||
        (object->capacity_items > 0 && items > object->capacity_items))
        fail_msg("seed %u step %u: %s holds %" PRId64 " bytes and %" PRId64 " items", h->seed,
                 h->step, object->node_name, bytes, items);
}

/* What one class of replicas has of the host, after @size bytes of it were placed there. */
static void check_share(const History *h, const char *node, const char *item, gint64 size)
{
    const LhNode *object = lookf(h->world, "actual/nodes/cache/%s", node);
    gint64 percent = lh_fleet_settings(fleet(h->world), "cache-assigner")->restore_reserve_percent;
    g_autoptr(GPtrArray) keys = keys_below(h->world, "decided/assignments/cache/");
    gint64 reserve = object->capacity_bytes * percent / 100, bytes = 0;
    gboolean restored = FALSE;

    lh_replica_name_split(item, NULL, NULL, NULL, &restored);
    for (guint i = 0; i < keys->len; i++) {
        const LhAssignment *assignment = look(h->world, keys->pdata[i]);
        g_autofree char *id = lh_name_part(assignment->o.name, 1);
        g_autofree char *other = lh_name_part(assignment->o.name, 2);
        g_autofree char *name = id == NULL ? NULL : lh_node_name_of(id);
        gboolean other_restored = FALSE;
        if (other != NULL)
            lh_replica_name_split(other, NULL, NULL, NULL, &other_restored);
        if (g_strcmp0(name, object->node_name) == 0 && other_restored == restored &&
            lookf(h->world, "actual/nodes/cache/%s", id) != NULL)
            bytes += assignment->size_bytes;
    }
    if (size > 0 && bytes > (restored ? reserve : object->capacity_bytes - reserve))
        fail_msg("seed %u step %u: %s replicas have %" PRId64 " of %" PRId64 " bytes on %s",
                 h->seed, h->step, restored ? "restored" : "regular", bytes, object->capacity_bytes,
                 node);
}

static gboolean is_pending(const History *h, const LhReplica *replica)
{
    const LhRestoreProgress *progress = lookf(h->world, "decided/restoreprogress/%s",
                                              replica->restore);

    return progress != NULL && lh_object_known(&progress->o) &&
           progress->phase == LH_RESTORE_PENDING &&
           lookf(h->world, "decided/accepted/restores/%s", replica->restore) != NULL;
}

/* Before its group is committed: created only while Pending; expiresAt set once, or extended; none deleted
 * while Pending but with its snapshot. */
static void check_restored(const History *h, const LhOp *op)
{
    const LhReplica *present = look(h->world, op->key), *after;
    g_autoptr(LhObject) parsed = NULL;
    gboolean restored = FALSE;

    if (op->kind != LH_KIND_REPLICA || mod_rev(h->world, op->key) != op->expect_rev ||
        !lh_replica_name_split(op->name, NULL, NULL, NULL, &restored) || !restored)
        return;
    if (op->type == LH_OP_DELETE) {
        if (is_pending(h, present) &&
            lookf(h->world, "published/snapshots/%s", present->snapshot) != NULL)
            fail_msg("seed %u step %u: %s is deleted while its Restore is Pending", h->seed,
                     h->step, op->name);
        return;
    }
    parsed = lh_object_parse(op->kind, op->name, op->value, strlen(op->value), 1, 1, 0);
    after = (const LhReplica *)parsed;
    if ((present == NULL || strcmp(op->rule, "extended") == 0) && !is_pending(h, after))
        fail_msg("seed %u step %u: %s comes while its Restore is not Pending", h->seed, h->step,
                 op->name);
    if (present != NULL && present->expires_at >= 0 && after->expires_at != present->expires_at &&
        (strcmp(op->rule, "extended") != 0 || after->expires_at < present->expires_at))
        fail_msg("seed %u step %u: %s: its expiry is changed, rule %s", h->seed, h->step, op->name,
                 op->rule);
}

static gboolean is_drained(const History *h, const char *id)
{
    g_autofree char *host = lh_node_name_of(id);
    const LhNodePolicy *policy = host == NULL
                                     ? NULL
                                     : lh_accepted_spec(lookf(h->world,
                                                              "decided/accepted/nodepolicies/"
                                                              "cache/%s",
                                                              host),
                                                        LH_KIND_NODEPOLICY);

    return policy != NULL && policy->drain;
}

static gboolean is_in_failure(const History *h, const char *id)
{
    const LhHealth *health = lookf(h->world, "decided/health/cache/%s", id);

    return health != NULL && lh_object_known(&health->o) && health->state == LH_HEALTH_FAILURE &&
           lh_fleet_settings(fleet(h->world), "failure-detector")->on_failure ==
               LH_ON_FAILURE_EVICT;
}

/* How many loads the item has but on @node; @left: on nodes that are left; @live: live, on nodes that are not in
 * failure. */
static guint other_copies(const History *h, const char *item, const char *node, gboolean left,
                          gboolean live)
{
    g_autoptr(GPtrArray) keys = keys_below(h->world, "decided/assignments/cache/");
    g_autofree char *tail = g_strconcat("/", item, NULL);
    guint n = 0;

    for (guint i = 0; i < keys->len; i++) {
        const LhAssignment *order = look(h->world, keys->pdata[i]);
        g_autofree char *id = lh_name_part(order->o.name, 1);
        const LhItem *said = lookf(h->world, "actual/items/%s", order->o.name);
        if (!g_str_has_suffix(keys->pdata[i], tail) || g_strcmp0(id, node) == 0 ||
            (lh_object_known(&order->o) && order->action != LH_ACTION_LOAD) ||
            (left && !is_drained(h, id) && !is_in_failure(h, id)) || (live && is_in_failure(h, id)))
            continue;
        n += !live || (lh_object_known(&order->o) && said != NULL && lh_object_known(&said->o) &&
                       said->state == LH_ITEM_LIVE && said->assignment == order->o.mod_rev &&
                       lookf(h->world, "actual/nodes/cache/%s", id) != NULL);
    }
    return n;
}

/* Before its group is committed. */
static void check_moves(History *h, const LhPlan *plan, const LhGroup *range)
{
    for (guint i = 0; i < range->n_ops; i++) {
        const LhOp *op = lh_plan_op(plan, range, i);
        g_autofree char *node = lh_name_part(op->name, 1);
        g_autofree char *item = lh_name_part(op->name, 2);
        if (op->kind != LH_KIND_ASSIGNMENT || op->type != LH_OP_PUT)
            continue;
        if (op->expect_rev == 0 && range->n_ops == 1 &&
            other_copies(h, item, node, FALSE, FALSE) > 0 &&
            other_copies(h, item, node, TRUE, FALSE) == 0)
            fail_msg("seed %u step %u: %s is assigned twice", h->seed, h->step, op->name);
        if ((strcmp(op->rule, "drained") == 0 || strcmp(op->rule, "doubled") == 0 ||
             strcmp(op->rule, "node-in-failure") == 0) &&
            op->expect_rev != 0) {
            h->moved++;
            h->failed += strcmp(op->rule, "node-in-failure") == 0;
            if (other_copies(h, item, node, FALSE, TRUE) == 0)
                fail_msg("seed %u step %u: %s goes, and is live nowhere else", h->seed, h->step,
                         op->name);
        }
    }
}

static void commit(History *h, const LhPlan *plan, guint group)
{
    const LhGroup *range = lh_plan_group(plan, group);

    if (compares_hold(h->world, plan, range))
        check_moves(h, plan, range);
    for (guint i = 0; i < range->n_ops && compares_hold(h->world, plan, range); i++)
        check_restored(h, lh_plan_op(plan, range, i));
    if (!apply_group(h->world, plan, group))
        return;
    h->work++;
    for (guint i = 0; i < range->n_ops; i++) {
        const LhOp *op = lh_plan_op(plan, range, i);
        if (op->kind == LH_KIND_ASSIGNMENT && op->type == LH_OP_PUT && op->expect_rev == 0) {
            g_autofree char *node = lh_name_part(op->name, 1);
            g_autofree char *item = lh_name_part(op->name, 2);
            gint64 size = ((const LhAssignment *)look(h->world, op->key))->size_bytes;
            check_host(h, node, size);
            check_share(h, node, item, size);
        }
    }
}

/* Some of a plan's groups, in any order; sometimes the world moves on between two of them. */
static void do_controller(History *h)
{
    static const char *const names[] = {"admission",        "admission",       "replica-creator",
                                        "cache-assigner",   "cache-assigner",  "cache-evictor",
                                        "failure-detector", "restore-manager", "restore-manager"};
    const char *name = names[pick(h, G_N_ELEMENTS(names))];
    g_autoptr(LhPlan) plan = NULL;
    guint n, skip = chance(h, 25) ? (guint)pick(h, 100) : 0;

    h->world->max_groups = chance(h, 20) ? 1 + (guint)pick(h, 3) : G_MAXUINT;
    plan = plan_of(h->world, name);
    n = lh_plan_groups(plan);
    h->world->max_groups = G_MAXUINT;
    g_autofree guint *order = g_new(guint, n + 1);
    for (guint i = 0; i < n; i++) {
        guint j = (guint)pick(h, (gint32)i + 1);
        order[i] = order[j];
        order[j] = i;
    }
    for (guint i = 0; i < n; i++) {
        if (skip > 0 && chance(h, (gint32)skip))
            continue;
        commit(h, plan, order[i]);
        if (chance(h, 3))
            do_answer(h);
    }
}

static void do_time(History *h)
{
    static const gint64 steps[] = {SECOND, 10 * SECOND, MINUTE, 5 * MINUTE, HOUR, 7 * HOUR};

    h->world->now_ms += steps[pick(h, G_N_ELEMENTS(steps))] + pick(h, 1000);
    if (chance(h, 5))
        fail_over(h->world);
}

static void random_step(History *h)
{
    static const struct {
        guint weight;
        void (*act)(History *h);
    } acts[] = {
        {4, do_service}, {12, do_snapshot},     {1, do_twins},    {2, do_settings},
        {4, do_restore}, {3, do_other_desired}, {2, do_deletion}, {4, do_spoil},
        {8, do_policy},  {2, do_odd_key},       {4, do_join},     {2, do_leave},
        {20, do_answer}, {40, do_controller},   {4, do_time},     {3, do_word},
    };
    guint sum = 0, at;

    for (guint i = 0; i < G_N_ELEMENTS(acts); i++)
        sum += acts[i].weight;
    at = (guint)pick(h, (gint32)sum);
    for (guint i = 0; i < G_N_ELEMENTS(acts); i++) {
        if (at < acts[i].weight) {
            acts[i].act(h);
            return;
        }
        at -= acts[i].weight;
    }
}

/* ---- what must hold ---- */

static void fail_at_difference(const History *h, const char *controller, const char *left,
                               const char *right)
{
    g_auto(GStrv) a = g_strsplit(left, "\n", -1), b = g_strsplit(right, "\n", -1);
    guint i = 0;

    while (a[i] != NULL && g_strcmp0(a[i], b[i]) == 0)
        i++;
    fail_msg("seed %u step %u: %s plans \"%s\", rebuilt \"%s\"", h->seed, h->step, controller, a[i],
             b[i]);
}

static void check_rebuilt(History *h)
{
    gpointer fleet = rebuilt_index(h->world, h->rand);
    gpointer pools = rebuilt_of(h->world, &lh_pools_index, h->rand);

    for (const LhController *const *c = lh_controllers(); *c != NULL; c++) {
        g_autoptr(LhPlan) a = plan_of(h->world, (*c)->name);
        g_autoptr(LhPlan) b = plan_on(h->world, (*c)->index == &lh_pools_index ? pools : fleet,
                                      (*c)->name);
        g_autofree char *left = plan_text(a), *right = plan_text(b);
        if (strcmp(left, right) != 0)
            fail_at_difference(h, (*c)->name, left, right);
    }
    lh_fleet_index.free(fleet);
    lh_pools_index.free(pools);
}

/* People mend what is broken, confirm what is braked, unpark what is parked, and add room. */
static void mend(History *h)
{
    g_autoptr(GPtrArray) keys = keys_below(h->world, "");

    for (guint i = 0; i < keys->len; i++) {
        g_autofree char *key = g_strdup(keys->pdata[i]);
        const LhObject *object = look(h->world, key);
        if (object != NULL &&
            (!lh_object_known(object) || g_str_has_prefix(key, "decided/retries/")) &&
            !g_str_has_prefix(key, "actual/nodes/"))
            del(h->world, key);
        else if (object != NULL && !lh_object_known(object))
            lose_node(h->world, key + strlen("actual/nodes/cache/"));
    }
    for (int i = 0; i < 5; i++) {
        g_autofree char *key = g_strdup_printf("desired/nodepolicies/cache/n%d", i);
        g_autofree char *below = g_strdup_printf("actual/nodes/cache/n%d-", i);
        g_autoptr(GPtrArray) nodes = keys_below(h->world, below);
        del(h->world, key);
        for (guint n = 0; n < nodes->len; n++) {
            g_autofree char *node = g_strdup(nodes->pdata[n]);
            say_word(h->world, node, FALSE);
        }
    }
    for (int i = 0; i < 6; i++) {
        g_autofree char *id = g_strdup_printf("big%d-%08x", i, i);
        put_node(h->world, id, 100000, 0, i % 2 == 0 ? "" : ",\"set\":\"blue\"");
    }
}

static void mend_retries(History *h)
{
    g_autoptr(GPtrArray) keys = keys_below(h->world, "decided/retries/");

    for (guint i = 0; i < keys->len; i++) {
        g_autofree char *key = g_strdup(keys->pdata[i]);
        del(h->world, key);
    }
}

static void confirm(History *h)
{
    const LhBrake *brake = look(h->world, "decided/brakes/cache-evictor");

    if (brake != NULL && brake->confirmed_at < 0)
        putf(h->world, "desired/confirmations/cache-evictor", "{\"spec\":{\"planHash\":\"%s\"}}",
             brake->plan_hash);
}

static gint64 next_wake(const World *world)
{
    gint64 wake = 0;

    for (const LhController *const *c = lh_controllers(); *c != NULL; c++) {
        g_autoptr(LhPlan) plan = plan_of(world, (*c)->name);
        if (plan->wake_ms > world->now_ms && (wake == 0 || plan->wake_ms < wake))
            wake = plan->wake_ms;
    }
    return wake;
}

/* The wanted copies of @name are live. */
static void check_snapshot(const History *h, const LhSnapshot *snapshot, const LhService *service)
{
    for (guint s = 0; service->cache_sets[s] != NULL; s++) {
        for (gint64 ordinal = 0; ordinal < service->cache_replicas; ordinal++) {
            g_autofree char *replica = lh_replica_name(snapshot->o.name, service->cache_sets[s],
                                                       ordinal, FALSE);
            g_autofree char *node = node_of(h->world, replica);
            const LhItem *item = node == NULL
                                     ? NULL
                                     : lookf(h->world, "actual/items/cache/%s/%s", node, replica);
            if (item == NULL || item->state != LH_ITEM_LIVE)
                fail_msg("seed %u: %s is not live on %s: %s", h->seed, replica, node,
                         item == NULL ? "no item" : lh_item_state_name(item->state));
        }
    }
}

static void check_wanted(const History *h)
{
    g_autoptr(GPtrArray) keys = keys_below(h->world, "published/snapshots/");

    for (guint i = 0; i < keys->len; i++) {
        const LhSnapshot *snapshot = look(h->world, keys->pdata[i]);
        const LhObject *accepted = snapshot->service == NULL
                                       ? NULL
                                       : lookf(h->world, "decided/accepted/services/%s",
                                               snapshot->service);
        const LhService *service = lh_accepted_spec(accepted, LH_KIND_SERVICE);
        if (!lh_object_known(&snapshot->o) || snapshot->live || service == NULL ||
            service->paused || condition_of(h->world, "snapshots", "Valid") != NULL ||
            lookf(h->world, "decided/status/snapshots/%s/admission", snapshot->o.name) != NULL ||
            lookf(h->world, "decided/deletions/%s", snapshot->o.name) != NULL ||
            snapshot->end_time + service->cache_window_ms - 20 * SECOND <= h->world->now_ms)
            continue;
        check_snapshot(h, snapshot, service);
    }
}

/* Every Restore is decided, and what it waits for, if anything, is a service that is held. */
static void check_restores(const History *h)
{
    g_autoptr(GPtrArray) keys = keys_below(h->world, "decided/accepted/restores/");

    for (guint i = 0; i < keys->len; i++) {
        const LhAccepted *accepted = look(h->world, keys->pdata[i]);
        const char *name = (const char *)keys->pdata[i] + strlen("decided/accepted/restores/");
        const LhRestoreProgress *progress = lookf(h->world, "decided/restoreprogress/%s", name);
        if (progress == NULL || progress->observed_revision != accepted->revision)
            fail_msg("seed %u: restore %s is not decided", h->seed, name);
        else if (progress->phase == LH_RESTORE_PENDING &&
                 (progress->message == NULL || strstr(progress->message, "service ") == NULL))
            fail_msg("seed %u: restore %s is Pending: %s", h->seed, name, progress->message);
    }
}

/* Drained, or in failure, as the seed says; or not. */
static void leave_node(History *h, const char *name, gboolean left)
{
    g_autofree char *policy = g_strdup_printf("desired/nodepolicies/cache/%s", name);
    g_autofree char *below = g_strdup_printf("actual/nodes/cache/%s-", name);
    g_autoptr(GPtrArray) nodes = keys_below(h->world, below);
    g_autofree char *node = g_strdup(nodes->pdata[0]);

    if (h->seed % 2 == 0)
        say_word(h->world, node, left);
    else
        putf(h->world, policy, "{\"spec\":{\"drain\":%s}}", left ? "true" : "false");
}

/* The fullest of the roomy nodes, left by steps in any order, ends empty but for what is left alone. */
static void check_leaving(History *h)
{
    g_autofree char *prefix = NULL, *name = NULL;
    guint most = 0;

    for (int i = 0; i < 6; i++) {
        g_autofree char *below = g_strdup_printf("decided/assignments/cache/big%d-%08x/", i, i);
        if (prefix != NULL && count_below(h->world, below) <= most)
            continue;
        most = count_below(h->world, below);
        g_free(prefix);
        g_free(name);
        prefix = g_steal_pointer(&below);
        name = g_strdup_printf("big%d", i);
    }
    del(h->world, "desired/settings/failure-detector");
    leave_node(h, name, TRUE);
    for (int i = 0; i < 150; i++) {
        do_controller(h);
        if (chance(h, 80))
            do_answer(h);
        else
            nodes_answer(h->world);
        if (chance(h, 3))
            leave_node(h, name, chance(h, 50));
    }
    leave_node(h, name, TRUE);
    for (int round = 0; round < 60; round++) {
        settle(h->world);
        h->world->now_ms += 30 * SECOND;
        mend_retries(h);
    }
    g_autoptr(GPtrArray) left = keys_below(h->world, prefix);
    for (guint i = 0; i < left->len; i++) {
        const LhFleetReplica *replica = g_hash_table_lookup(fleet(h->world)->replicas,
                                                            strrchr(left->pdata[i], '/') + 1);
        if (replica->fate.type == LH_FATE_KEEP && replica->fate.due_ms > h->world->now_ms &&
            lh_fleet_replica_placeable(fleet(h->world), replica))
            fail_msg("seed %u: %s is still there", h->seed, (char *)left->pdata[i]);
    }
    leave_node(h, name, FALSE);
    settle(h->world);
}

static void check_converges(History *h)
{
    gint64 wake;

    mend(h);
    for (int round = 0; round < 120; round++) {
        settle(h->world);
        confirm(h);
        h->world->now_ms += SECOND;
    }
    check_wanted(h);
    check_restores(h);
    check_assigned_once(h);
    check_leaving(h);
    check_rebuilt(h);
    for (int round = 0; (wake = next_wake(h->world)) != 0; round++) {
        if (round > 2000)
            fail_msg("seed %u: timers without end", h->seed);
        h->world->now_ms = wake;
        settle(h->world);
        confirm(h);
    }
    check_rebuilt(h);
    fail_over(h->world);
    for (const LhController *const *c = lh_controllers(); *c != NULL; c++)
        assert_nothing_to_do(h->world, (*c)->name);
}

static guint run_seed(guint seed, guint *moved, guint *failed)
{
    History h = {
        .world = world_new(), .rand = g_rand_new_with_seed(seed), .seed = seed, .next_node = 1};

    print_message("# seed %u\n", seed);
    for (h.step = 0; h.step < STEPS; h.step++) {
        random_step(&h);
        if (h.step % 4 == 0)
            check_rebuilt(&h);
    }
    check_converges(&h);
    world_free(h.world);
    g_rand_free(h.rand);
    *moved += h.moved;
    *failed += h.failed;
    return h.work;
}

static void random_histories(void **state)
{
    const char *one = g_getenv("LEASEHOLD_SEED");
    guint work = 0, moved = 0, failed = 0;

    (void)state;
    if (one != NULL) {
        run_seed((guint)atoi(one), &moved, &failed);
        return;
    }
    for (guint seed = 1; seed <= SEEDS; seed++)
        work += run_seed(seed, &moved, &failed);
    /* Too little work would prove nothing. */
    assert_true(work > SEEDS * 100);
    print_message("# %u groups, %u copies moved away, %u from nodes in failure\n", work, moved,
                  failed);
    assert_true(moved >= 10);
    assert_true(failed >= 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(random_histories)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
