/*
 * Plans from arbitrary histories: the bytes decide what people, publishers, nodes and controllers write
 * and remove, one key after the other, odd values included; the mirror and every controller's index take
 * it in, and plans are carried out in part. At checks, and at the end: folding one change after the other
 * equals folding the present objects in another order; a plan made twice is the same to the byte; its
 * groups fit into a transaction, compare only what is so at present, and every op has target, rule and
 * reason and a value that can be read.
 */
#include "controllers/registry.h"
#include "mirror/mirror.h"
#include "tests/fuzz/fuzz.h"

#include <inttypes.h>
#include <string.h>

#define T0     G_GINT64_CONSTANT(1700000000000)
#define HOUR   G_GINT64_CONSTANT(3600000)
#define STEPS  120
#define CHECKS 4 /* in one input: they cost most */
/* Two compares are the fence's; etcd takes 128 of each. */
#define GROUP_MAX (LH_ETCD_MAX_TXN_OPS - 2)

typedef struct {
    FuzzBytes bytes;
    LhMirror *mirror;
    GPtrArray *types;   /* LhIndexType */
    GPtrArray *indexes; /* the index of each, folded one change at a time */
    gint64 revision, now_ms;
    guint checks;
} History;

/* ---- indexes ---- */

static void on_change(const LhObject *before, const LhObject *after, gpointer data)
{
    History *h = data;

    for (guint i = 0; i < h->types->len; i++)
        ((const LhIndexType *)h->types->pdata[i])->fold(h->indexes->pdata[i], before, after);
}

static const LhMirrorFuncs mirror_funcs = {.change = on_change};

static guint type_of(const History *h, const LhController *controller)
{
    for (guint i = 0; i < h->types->len; i++)
        if (h->types->pdata[i] == controller->index)
            return i;
    return h->types->len;
}

static void open_history(History *h)
{
    h->mirror = lh_mirror_new(NULL, NULL, "/leasehold/");
    h->types = g_ptr_array_new();
    h->indexes = g_ptr_array_new();
    h->revision = 100;
    h->now_ms = T0;
    for (const LhController *const *c = lh_controllers(); *c != NULL; c++)
        if (type_of(h, *c) == h->types->len) {
            g_ptr_array_add(h->types, (gpointer)(*c)->index);
            g_ptr_array_add(h->indexes, (*c)->index->new ());
        }
    lh_mirror_listen(h->mirror, &mirror_funcs, h);
}

static void close_history(History *h)
{
    lh_mirror_free(h->mirror);
    for (guint i = 0; i < h->types->len; i++)
        ((const LhIndexType *)h->types->pdata[i])->free(h->indexes->pdata[i]);
    g_ptr_array_unref(h->types);
    g_ptr_array_unref(h->indexes);
}

/* The present objects, folded backwards when the input says so. */
static gpointer rebuilt(History *h, const LhIndexType *type, gboolean backwards)
{
    gpointer index = type->new ();

    for (guint i = 0; i < LH_N_KINDS; i++) {
        guint kind = backwards ? LH_N_KINDS - 1 - i : i;
        g_autoptr(GPtrArray) objects = lh_mirror_list(h->mirror, (LhKind)kind);
        for (guint j = 0; j < objects->len; j++)
            type->fold(index, NULL, objects->pdata[backwards ? objects->len - 1 - j : j]);
    }
    return index;
}

/* ---- writing ---- */

/* As etcd would; @value NULL: delete. */
static void change(History *h, const char *key, const char *value, gsize len)
{
    LhKind kind = LH_N_KINDS;
    const char *name = key;
    const LhObject *before = lh_key_split(key, &kind, &name) ? lh_mirror_get(h->mirror, kind, name)
                                                             : NULL;
    gint64 created = before == NULL ? h->revision : before->create_rev;

    if (value == NULL && before == NULL)
        return;
    lh_mirror_load(h->mirror, key, value, len, created, h->revision, 0);
}

static void put(History *h, const char *key, const char *value)
{
    h->revision += fuzz_below(&h->bytes, 8) != 0; /* else several keys at one revision */
    change(h, key, value, value == NULL ? 0 : strlen(value));
}

static gint64 mod_rev(const History *h, LhKind kind, const char *name)
{
    const LhObject *object = lh_mirror_get(h->mirror, kind, name);

    return object == NULL ? 0 : object->mod_rev;
}

static guint pick(History *h, guint n)
{
    return fuzz_below(&h->bytes, n);
}

/* Now, or some hours before or after. */
static gint64 moment(History *h)
{
    return h->now_ms + ((gint64)pick(h, 80) - 60) * HOUR / 2;
}

static const char *word(History *h, const char *const *words, guint n)
{
    return words[pick(h, n)];
}

#define WORD(h, ...) \
    word(h, (const char *const[]){__VA_ARGS__}, G_N_ELEMENTS(((const char *const[]){__VA_ARGS__})))

/* One pick in each statement: the order in which arguments are evaluated is the compiler's. */
static void put_service(History *h)
{
    g_autofree char *key = g_strdup_printf("desired/services/s%u", pick(h, 4));
    const char *paused = pick(h, 8) == 0 ? "true" : "false";
    const char *window = WORD(h, "1h", "6h", "24h", "0s", "7d");
    guint replicas = pick(h, 4);
    const char *sets = WORD(h, "[\"default\"]", "[\"blue\"]", "[\"default\",\"blue\"]", "[]",
                            "[\"x\",\"x\"]");
    const char *retention = WORD(h, "7d", "8d", "1h", "2w");
    g_autofree char *value = g_strdup_printf(
        "{\"metadata\":{\"labels\":{\"a\":\"b\"}},\"spec\":{\"owner\":\"o\",\"paused\":%s,"
        "\"cache\":{\"window\":\"%s\",\"replicas\":%u,\"sets\":%s},\"retention\":\"%s\"}}",
        paused, window, replicas, sets, retention);

    put(h, key, value);
}

static void put_snapshot(History *h)
{
    guint name = pick(h, 12);
    g_autofree char *key = g_strdup_printf("published/snapshots/p%u", name);
    gint64 end = moment(h);
    guint service = pick(h, 5), size = pick(h, 60);
    const char *below = WORD(h, "p", "p", "p", "p1/", "", "q/../");
    guint at = pick(h, 6) == 0 ? pick(h, 12) : name;
    const char *live = WORD(h, "", "", "", ",\"live\":true");
    g_autofree char *value = g_strdup_printf("{\"service\":\"s%u\",\"startTime\":%" PRId64
                                             ",\"endTime\":%" PRId64
                                             ",\"sizeBytes\":%u,\"uri\":\"s3://b/%s%u/\"%s}",
                                             service, end - HOUR, end, size, below, at, live);

    put(h, key, value);
}

static const LhController *pick_controller(History *h)
{
    const LhController *const *all = lh_controllers();
    guint n = 0;

    while (all[n] != NULL)
        n++;
    return all[pick(h, n)];
}

static void put_settings(History *h)
{
    g_autofree char *key = g_strconcat("desired/settings/", pick_controller(h)->name, NULL);
    g_autofree char *value = g_strdup_printf(
        "{\"spec\":{%s}}",
        WORD(h, "", "\"paused\":true", "\"maxConcurrentLoads\":1", "\"strategy\":\"pack\"",
             "\"restoreReservePercent\":60", "\"failureGrace\":\"0s\"", "\"brakePercent\":100",
             "\"brakePercent\":1", "\"evictGrace\":\"1h\"", "\"probePeriod\":\"1s\""));

    put(h, key, value);
}

/* Which one follows from the revision: the corpus has no byte for it. */
static void put_restore(History *h)
{
    static const char *const specs[] = {
        "\"service\":\"s1\",\"startTime\":\"2023-11-01T00:00:00Z\","
        "\"endTime\":\"2023-11-20T00:00:00Z\"",
        "\"service\":\"*\",\"startTime\":\"2023-11-13T00:00:00Z\","
        "\"endTime\":\"2023-11-14T12:00:00Z\",\"ttl\":\"5m\"",
        "\"snapshots\":[\"p1\",\"p2\",\"p3\"],\"ttl\":\"10h\"",
        "\"service\":\"s1\",\"startTime\":9,\"endTime\":1",
    };
    g_autofree char *value = g_strdup_printf("{\"spec\":{%s}}", specs[h->revision % 4]);

    put(h, h->revision % 3 == 0 ? "desired/restores/q" : "desired/restores/r", value);
}

static void put_other_desired(History *h)
{
    const LhBrake *brake = (const LhBrake *)lh_mirror_get(h->mirror, LH_KIND_BRAKE,
                                                          "cache-evictor");
    const char *hash = brake != NULL && lh_object_known(&brake->o) ? brake->plan_hash : "0123";
    g_autofree char *confirmation = g_strdup_printf("{\"spec\":{\"planHash\":\"%s\"}}", hash);

    switch (pick(h, 6)) {
    case 0:
        put(h, "desired/confirmations/cache-evictor", confirmation);
        break;
    case 1:
        put(h, "desired/nodepolicies/cache/n1",
            WORD(h, "{\"spec\":{\"cordon\":true}}", "{\"spec\":{\"drain\":true}}",
                 "{\"spec\":{}}"));
        break;
    case 2:
        put(h, "desired/throttles/t",
            WORD(h, "{\"spec\":{\"requests\":1,\"period\":\"1m\"}}", "{\"spec\":{}}"));
        break;
    case 3:
        put(h, "desired/seeds/x",
            WORD(h, "{\"spec\":{\"url\":\"https://e.org/\",\"throttle\":\"t\"}}",
                 "{\"spec\":{\"url\":\"https://e.org/\"}}", "{\"spec\":{\"state\":\"stopped\"}}"));
        break;
    case 4:
        put(h, "desired/partitions/k", "{\"spec\":{\"topic\":\"t\",\"kafkaPartition\":1}}");
        break;
    default:
        put_restore(h);
    }
}

static void put_node(History *h)
{
    guint number = pick(h, 4);
    const char *pool = WORD(h, "cache", "cache", "cache", "recovery", "manager");
    g_autofree char *key = g_strdup_printf("actual/nodes/%s/n%u-0000000%u", pool, number,
                                           pick(h, 3));
    const char *set = WORD(h, "default", "blue"), *zone = WORD(h, "c", "a", "b"), *state, *warm;
    guint bytes = pick(h, 256), items = pick(h, 8);
    g_autofree char *value = NULL;

    state = WORD(h, "online", "online", "online", "waiting", "paused", "error");
    warm = WORD(h, "[]", "[\"p1\",\"p2\"]", "[\"p1\",\"p1\"]");
    value = g_strdup_printf(
        "{\"name\":\"n%u\",\"set\":\"%s\",\"zone\":\"%s\",\"capacityBytes\":%u,"
        "\"capacityItems\":%u,\"state\":\"%s\",\"leaseTtl\":\"5s\",\"warm\":%s,\"lease\":\"%016x\"}",
        number, set, zone, bytes, items, state, warm, number + 1);
    put(h, key, pick(h, 5) == 0 ? NULL : value);
}

/* What a node says of an order that is there. */
static void put_item(History *h)
{
    g_autoptr(GPtrArray) orders = lh_mirror_list(h->mirror, LH_KIND_ASSIGNMENT);
    const LhObject *order = orders->len == 0 ? NULL : orders->pdata[pick(h, orders->len)];
    g_autofree char *key = order == NULL ? g_strdup("actual/items/cache/n1-00000001/p1.default.0")
                                         : g_strconcat("actual/items/", order->name, NULL);
    const char *state = WORD(h, "loading", "live", "evicting", "evicted", "failed", "done", "odd");
    gint64 since = moment(h), answers = order == NULL || pick(h, 6) == 0 ? 1 : order->mod_rev;
    g_autofree char *value = g_strdup_printf("{\"state\":\"%s\",\"since\":%" PRId64
                                             ",\"assignment\":%" PRId64
                                             ",\"bytesDone\":%u,\"message\":\"m\"}",
                                             state, since, answers, pick(h, 4));

    put(h, key, pick(h, 6) == 0 ? NULL : value);
}

/* ---- what controllers write, by another hand ---- */

static void put_replica(History *h, const char *replica, guint snapshot)
{
    g_autofree char *key = g_strconcat("decided/replicas/", replica, NULL), *value = NULL;
    guint service = pick(h, 4), ordinal = pick(h, 3);
    const char *restored = WORD(h, "false", "true");

    value = g_strdup_printf("{\"snapshot\":\"p%u\",\"service\":\"s%u\",\"set\":\"default\","
                            "\"ordinal\":%u,\"restored\":%s,\"createdAt\":%" PRId64
                            ",\"expiresAt\":%" PRId64 "}",
                            snapshot, service, ordinal, restored, T0, moment(h));
    put(h, key, pick(h, 5) == 0 ? NULL : value);
}

static void put_assignment(History *h, const char *replica, guint snapshot, guint node)
{
    g_autofree char *key = g_strdup_printf("decided/assignments/cache/n%u-0000000%u/%s", node,
                                           pick(h, 3), replica);
    const char *action = WORD(h, "load", "load", "evict", "prepare");
    gint64 since = moment(h);
    guint epoch = pick(h, 9), size = pick(h, 60);
    g_autofree char *value = g_strdup_printf(
        "{\"action\":\"%s\",\"since\":%" PRId64 ",\"controller\":\"x\",\"epoch\":%u,\"rule\":\"r\","
        "\"reason\":\"y\",\"snapshot\":\"p%u\",\"uri\":\"s3://b/p%u/\",\"sizeBytes\":%u,"
        "\"set\":\"default\"}",
        action, since, epoch, snapshot, snapshot, size);

    put(h, key, pick(h, 5) == 0 ? NULL : value);
}

static void put_retry(History *h, const char *replica, guint node)
{
    g_autofree char *key = g_strconcat("decided/retries/cache/", replica, NULL);
    guint attempt = pick(h, 9);
    gint64 not_before = moment(h);
    const char *parked = WORD(h, "false", "true");
    g_autofree char *value = g_strdup_printf("{\"attempt\":%u,\"notBefore\":%" PRId64
                                             ",\"parked\":%s,\"message\":\"n%u-00000001: x\"}",
                                             attempt, not_before, parked, node);

    put(h, key, pick(h, 5) == 0 ? NULL : value);
}

static void put_health(History *h, guint node)
{
    g_autofree char *key = g_strdup_printf("decided/health/cache/n%u-0000000%u", node, pick(h, 3));
    const char *state = WORD(h, "healthy", "probation", "failure", "failed");
    gint64 since = moment(h), missing = moment(h);
    g_autofree char *value = g_strdup_printf("{\"state\":\"%s\",\"since\":%" PRId64
                                             ",\"reason\":\"x\",\"missingSince\":%" PRId64
                                             ",\"revoking\":%s}",
                                             state, since, missing, WORD(h, "false", "true"));

    put(h, key, pick(h, 5) == 0 ? NULL : value);
}

static void put_deletion(History *h, guint snapshot)
{
    g_autofree char *key = g_strdup_printf("decided/deletions/p%u", snapshot);
    g_autofree char *value = g_strdup_printf(
        "{\"uri\":\"s3://b/p%u/\",\"snapshotRevision\":%u,\"decidedAt\":1}", snapshot, pick(h, 99));

    put(h, key, pick(h, 5) == 0 ? NULL : value);
}

static void put_brake(History *h)
{
    gint64 since = moment(h);
    g_autofree char *value = g_strdup_printf("{\"revision\":%" PRId64 ",\"since\":%" PRId64
                                             ",\"planHash\":\"0123\",\"eligible\":20,\"of\":30%s}",
                                             h->revision, since,
                                             WORD(h, "", ",\"confirmedAt\":1700000000001"));

    put(h, "decided/brakes/cache-evictor", pick(h, 5) == 0 ? NULL : value);
}

static void put_decided(History *h)
{
    guint p = pick(h, 12), n = pick(h, 4);
    const char *set = WORD(h, "default", "blue"), *restored = WORD(h, "", "", "r");
    g_autofree char *replica = g_strdup_printf("p%u.%s.%s%u", p, set, restored, pick(h, 3));

    switch (pick(h, 6)) {
    case 0:
        put_replica(h, replica, p);
        break;
    case 1:
        put_assignment(h, replica, p, n);
        break;
    case 2:
        put_retry(h, replica, n);
        break;
    case 3:
        put_health(h, n);
        break;
    case 4:
        put_deletion(h, p);
        break;
    default:
        put_brake(h);
    }
}

/* A key that is there gets another value of the input's own, or goes. */
static void spoil(History *h)
{
    LhKind kind = (LhKind)pick(h, LH_N_KINDS);
    g_autoptr(GPtrArray) objects = lh_mirror_list(h->mirror, kind);
    const LhObject *object = objects->len == 0 ? NULL : objects->pdata[pick(h, objects->len)];
    g_autofree char *key = object == NULL ? NULL : lh_key(kind, object->name);

    if (key != NULL)
        put(h, key,
            WORD(h, NULL, NULL, "{}", "not json", "[]", "{\"spec\":7}", "", "{\"spec\":{}}"));
}

/* Key and value both from the input. */
static void put_raw(History *h)
{
    g_autofree char *key = fuzz_line(&h->bytes);
    g_autofree char *value = fuzz_line(&h->bytes);

    put(h, key, *value == '\0' ? NULL : value);
}

/* ---- plans ---- */

static LhPlan *plan_on(const History *h, const LhController *controller, gconstpointer index,
                       guint max_groups, gboolean regressed)
{
    LhPlanContext context = {.now_ms = h->now_ms,
                             .revision = h->revision,
                             .epoch = 7,
                             .led_ms = T0,
                             .regressed = regressed,
                             .max_groups = max_groups};
    LhPlan *plan = lh_plan_new(TRUE);

    controller->plan(index, &context, plan);
    FUZZ_CHECK(!plan->open, "%s leaves a group open", controller->name);
    return plan;
}

/* Everything of a plan as text. */
static char *plan_text(const LhPlan *plan)
{
    GString *text = g_string_new(NULL);

    for (guint i = 0; i < lh_plan_groups(plan); i++) {
        const LhGroup *group = lh_plan_group(plan, i);
        g_string_append_printf(text, "group %s %u %u\n", group->throttle ? group->throttle : "",
                               group->n_reliances, group->n_events);
        for (guint o = 0; o < group->n_ops; o++) {
            const LhOp *op = lh_plan_op(plan, group, o);
            g_string_append_printf(text, " %d %s @%" PRId64 " %s: %s\n  %s\n", op->type, op->key,
                                   op->expect_rev, op->rule, op->reason,
                                   op->value ? op->value : "");
        }
    }
    for (guint i = 0; i < plan->reliances->len; i++) {
        const LhReliance *r = &g_array_index(plan->reliances, LhReliance, i);
        g_string_append_printf(text, "rely %s %d @%" PRId64 "\n", r->key, r->none_below,
                               r->mod_rev);
    }
    for (guint i = 0; i < plan->events->len; i++) {
        const LhPlanEvent *e = &g_array_index(plan->events, LhPlanEvent, i);
        g_string_append_printf(text, "event %d %s %s %s\n", e->type, e->reason, e->object,
                               e->message);
    }
    for (guint i = 0; i < plan->notes->len; i++) {
        const LhPlanNote *n = &g_array_index(plan->notes, LhPlanNote, i);
        g_string_append_printf(text, "note %s %s: %s\n", n->object, n->rule, n->reason);
    }
    g_string_append_printf(text, "wake %" PRId64 " more %d\n", plan->wake_ms, plan->more);
    return g_string_free(text, FALSE);
}

static gboolean exists_below(const History *h, const char *prefix)
{
    LhKind kind;
    const char *name;

    if (!lh_key_split(prefix, &kind, &name))
        return FALSE;
    g_autoptr(GPtrArray) objects = lh_mirror_list(h->mirror, kind);
    for (guint i = 0; i < objects->len; i++)
        if (g_str_has_prefix(((const LhObject *)objects->pdata[i])->name, name))
            return TRUE;
    return FALSE;
}

/* On the mirror that the plan was made of, every compare holds. */
static void check_reliance(const History *h, const LhReliance *reliance)
{
    LhKind kind;
    const char *name;

    FUZZ_CHECK(lh_key_split(reliance->key, &kind, &name), "relies on %s", reliance->key);
    if (reliance->none_below)
        FUZZ_CHECK(!exists_below(h, reliance->key), "there is something below %s", reliance->key);
    else
        FUZZ_CHECK(mod_rev(h, kind, name) == reliance->mod_rev, "relies on %s @%" PRId64,
                   reliance->key, reliance->mod_rev);
}

static void check_op(const History *h, const LhOp *op)
{
    g_autofree char *key = lh_key(op->kind, op->name);

    FUZZ_CHECK(strcmp(key, op->key) == 0, "%s, %s", key, op->key);
    FUZZ_CHECK(op->rule != NULL && *op->rule != '\0', "%s without a rule", op->key);
    fuzz_check_message(op->reason);
    FUZZ_CHECK(mod_rev(h, op->kind, op->name) == op->expect_rev, "%s @%" PRId64, op->key,
               op->expect_rev);
    if (op->type == LH_OP_DELETE) {
        FUZZ_CHECK(op->expect_rev != 0, "%s: deletes what is not there", op->key);
        return;
    }
    g_autoptr(LhObject) object = lh_object_parse(op->kind, op->name, op->value, strlen(op->value),
                                                 1, 1, 0);
    FUZZ_CHECK(lh_object_known(object), "%s: %s: %s", op->key, lh_object_error(object), op->value);
    FUZZ_CHECK(lh_object_warning(object) == NULL, "%s: %s", op->key, lh_object_warning(object));
}

static void check_plan(const History *h, const LhController *controller, const LhPlan *plan)
{
    g_autoptr(GHashTable) targets = g_hash_table_new(g_str_hash, g_str_equal);

    for (guint i = 0; i < lh_plan_groups(plan); i++) {
        const LhGroup *group = lh_plan_group(plan, i);
        FUZZ_CHECK(group->n_ops > 0 && group->n_ops <= GROUP_MAX &&
                       group->n_ops + group->n_reliances <= GROUP_MAX,
                   "%s: %u ops, %u compares", controller->name, group->n_ops, group->n_reliances);
        for (guint o = 0; o < group->n_ops; o++) {
            const LhOp *op = lh_plan_op(plan, group, o);
            check_op(h, op);
            FUZZ_CHECK(g_hash_table_add(targets, (gpointer)op->key), "%s: %s twice",
                       controller->name, op->key);
        }
    }
    for (guint i = 0; i < plan->reliances->len; i++)
        check_reliance(h, &g_array_index(plan->reliances, LhReliance, i));
    for (guint i = 0; i < plan->notes->len; i++) {
        const LhPlanNote *note = &g_array_index(plan->notes, LhPlanNote, i);
        FUZZ_CHECK(note->rule != NULL && *note->rule != '\0', "%s", note->object);
        fuzz_check_message(note->reason);
    }
}

static void on_gauge(const char *name, const char *labels, double value, gpointer data)
{
    const LhController *controller = data;

    FUZZ_CHECK(g_strv_contains(controller->gauge_names, name), "%s of %s", name, controller->name);
    FUZZ_CHECK(value >= 0, "%s{%s} is %g", name, labels, value);
}

static void check_controller(History *h, const LhController *controller, gconstpointer index,
                             gconstpointer other, guint max_groups, gboolean regressed)
{
    LhPlan *folded = plan_on(h, controller, index, max_groups, regressed);
    LhPlan *twice = plan_on(h, controller, index, max_groups, regressed);
    LhPlan *fresh = plan_on(h, controller, other, max_groups, regressed);
    g_autofree char *a = plan_text(folded), *b = plan_text(twice), *c = plan_text(fresh);

    FUZZ_CHECK(strcmp(a, b) == 0, "%s twice:\n%s\n%s", controller->name, a, b);
    FUZZ_CHECK(strcmp(a, c) == 0, "%s, folded:\n%s\nrebuilt:\n%s", controller->name, a, c);
    check_plan(h, controller, folded);
    if (controller->gauges != NULL)
        controller->gauges(index, h->now_ms, on_gauge, (gpointer)controller);
    lh_plan_free(folded);
    lh_plan_free(twice);
    lh_plan_free(fresh);
}

static void check_all(History *h)
{
    gboolean backwards = pick(h, 2) == 1;
    guint max_groups = pick(h, 4) == 0 ? 1 : G_MAXUINT;

    if (h->checks++ >= CHECKS)
        return;
    for (guint i = 0; i < h->types->len; i++) {
        const LhIndexType *type = h->types->pdata[i];
        gpointer other = rebuilt(h, type, backwards);
        for (const LhController *const *c = lh_controllers(); *c != NULL; c++)
            if ((*c)->index == type)
                check_controller(h, *c, h->indexes->pdata[i], other, max_groups,
                                 backwards && max_groups == 1);
        type->free(other);
    }
}

/* Carries out the groups that the input picks; others are as if refused. */
static void carry_out(History *h)
{
    const LhController *controller = pick_controller(h);
    guint refused = fuzz_byte(&h->bytes);
    LhPlan *plan = plan_on(h, controller, h->indexes->pdata[type_of(h, controller)], 64, FALSE);

    check_plan(h, controller, plan);
    for (guint i = 0; i < lh_plan_groups(plan); i++) {
        const LhGroup *group = lh_plan_group(plan, i);
        if (refused & (1u << (i % 7)))
            continue;
        h->revision++;
        for (guint o = 0; o < group->n_ops; o++) {
            const LhOp *op = lh_plan_op(plan, group, o);
            change(h, op->key, op->type == LH_OP_PUT ? op->value : NULL,
                   op->type == LH_OP_PUT ? strlen(op->value) : 0);
        }
    }
    lh_plan_free(plan);
}

static void pass_time(History *h)
{
    static const gint64 steps[] = {1, 50, 1000, 5000, 60000, 600000, HOUR, 24 * HOUR};

    h->now_ms += steps[pick(h, G_N_ELEMENTS(steps))];
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static void (*const steps[])(History *) = {
        carry_out,    put_service,       put_snapshot, put_node,
        put_item,     put_decided,       carry_out,    spoil,
        put_raw,      pass_time,         check_all,    put_node,
        put_settings, put_other_desired, put_snapshot, carry_out,
    };
    History h = {.bytes = {data, size}};

    open_history(&h);
    for (guint i = 0; i < STEPS && h.bytes.size > 0; i++)
        steps[pick(&h, G_N_ELEMENTS(steps))](&h);
    h.checks = 0;
    check_all(&h);
    close_history(&h);
    return 0;
}
