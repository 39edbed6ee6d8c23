/*
 * For the tests of controllers/: a model of etcd's keys under the prefix, folded into the indexes as they
 * change; plans that are carried out as etcd would (compares, one revision for each group); and
 * simple nodes that answer their orders. Time is world->now_ms and moves only when a test moves it.
 */
#pragma once

#include "controllers/capacity.h"
#include "controllers/fleet.h"
#include "controllers/pool.h"
#include "controllers/registry.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define T0     G_GINT64_CONSTANT(1700000000000)
#define SECOND G_GINT64_CONSTANT(1000)
#define MINUTE (60 * SECOND)
#define HOUR   (60 * MINUTE)
#define DAY    (24 * HOUR)

typedef struct {
    GHashTable *objects; /* key under the prefix -> LhObject */
    GHashTable *values;  /* key -> value, as it was put */
    gint64 revision;
    gpointer index; /* LhFleet */
    gpointer pools; /* LhPools */
    gint64 lease;   /* of keys under actual/ */
    gint64 now_ms, led_ms, ahead_ms;
    gboolean regressed;
    gint64 regressed_rev;
    guint max_groups;
    guint conflicts; /* groups that etcd refused */
    guint loads;     /* assignments put with action load */
} World;

static World *world_new(void)
{
    World *world = g_new0(World, 1);

    world->objects = g_hash_table_new_full(g_str_hash, g_str_equal, g_free,
                                           (GDestroyNotify)lh_object_unref);
    world->values = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, g_free);
    world->revision = 100;
    world->index = lh_fleet_index.new();
    world->pools = lh_pools_index.new();
    world->lease = 77;
    world->now_ms = world->led_ms = T0;
    world->max_groups = G_MAXUINT;
    return world;
}

static void world_free(World *world)
{
    lh_fleet_index.free(world->index);
    lh_pools_index.free(world->pools);
    g_hash_table_unref(world->objects);
    g_hash_table_unref(world->values);
    g_free(world);
}

G_DEFINE_AUTOPTR_CLEANUP_FUNC(World, world_free)

static G_GNUC_UNUSED const LhFleet *fleet(const World *world)
{
    return world->index;
}

/* ---- keys ---- */

static const void *look(const World *world, const char *key)
{
    return g_hash_table_lookup(world->objects, key);
}

static G_GNUC_UNUSED G_GNUC_PRINTF(2, 3) const
    void *lookf(const World *world, const char *format, ...)
{
    g_autofree char *key = NULL;
    va_list args;

    va_start(args, format);
    key = g_strdup_vprintf(format, args);
    va_end(args);
    return look(world, key);
}

static gint64 mod_rev(const World *world, const char *key)
{
    const LhObject *object = look(world, key);

    return object == NULL ? 0 : object->mod_rev;
}

/* What etcd would do at world->revision. @value NULL: delete. */
static void change(World *world, const char *key, const char *value)
{
    const LhObject *before = look(world, key);
    g_autoptr(LhObject) held = lh_object_ref(before);
    const char *name = key;
    LhKind kind = LH_N_KINDS;
    LhObject *after = NULL;

    if (g_str_has_prefix(key, "observed/"))
        kind = LH_KIND_OBSERVATION, name = key + strlen("observed/");
    else if (!lh_key_split(key, &kind, &name))
        kind = LH_N_KINDS, name = key;
    if (value != NULL && kind == LH_KIND_OBSERVATION) /* no key: it has no revisions */
        after = lh_object_parse(kind, name, value, strlen(value), 0, 0, 0);
    else if (value != NULL)
        after = lh_object_parse(kind, name, value, strlen(value),
                                held == NULL ? world->revision : held->create_rev, world->revision,
                                g_str_has_prefix(key, "actual/") ? world->lease : 0);
    if (held == NULL && after == NULL)
        return;
    if (after != NULL) {
        g_hash_table_replace(world->objects, g_strdup(key), after);
        g_hash_table_replace(world->values, g_strdup(key), g_strdup(value));
    } else {
        g_hash_table_remove(world->values, key);
        g_hash_table_remove(world->objects, key); /* last: @key may be its own */
    }
    lh_fleet_index.fold(world->index, held, after);
    lh_pools_index.fold(world->pools, held, after);
}

static G_GNUC_UNUSED void put(World *world, const char *key, const char *value)
{
    world->revision++;
    change(world, key, value);
}

static G_GNUC_UNUSED G_GNUC_PRINTF(3, 4) void putf(World *world, const char *key,
                                                   const char *format, ...)
{
    g_autofree char *value = NULL;
    va_list args;

    va_start(args, format);
    value = g_strdup_vprintf(format, args);
    va_end(args);
    put(world, key, value);
}

static G_GNUC_UNUSED void del(World *world, const char *key)
{
    world->revision++;
    change(world, key, NULL);
}

static gint compare_texts(gconstpointer a, gconstpointer b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Keys that begin with @prefix, sorted; borrowed. */
static GPtrArray *keys_below(const World *world, const char *prefix)
{
    GPtrArray *keys = g_ptr_array_new();
    GHashTableIter iter;
    gpointer key;

    g_hash_table_iter_init(&iter, world->objects);
    while (g_hash_table_iter_next(&iter, &key, NULL))
        if (g_str_has_prefix(key, prefix))
            g_ptr_array_add(keys, key);
    g_ptr_array_sort(keys, compare_texts);
    return keys;
}

static G_GNUC_UNUSED guint count_below(const World *world, const char *prefix)
{
    g_autoptr(GPtrArray) keys = keys_below(world, prefix);

    return keys->len;
}

/* An index of the present objects, folded in the order that @rand gives (NULL: sorted by key). */
static G_GNUC_UNUSED gpointer rebuilt_of(const World *world, const LhIndexType *type, GRand *rand)
{
    g_autoptr(GPtrArray) keys = keys_below(world, "");
    gpointer index = type->new ();

    for (guint i = 0; rand != NULL && i + 1 < keys->len; i++) {
        guint j = (guint)g_rand_int_range(rand, (gint32)i, (gint32)keys->len);
        gpointer key = keys->pdata[i];
        keys->pdata[i] = keys->pdata[j];
        keys->pdata[j] = key;
    }
    for (guint i = 0; i < keys->len; i++)
        type->fold(index, NULL, look(world, keys->pdata[i]));
    return index;
}

static G_GNUC_UNUSED gpointer rebuilt_index(const World *world, GRand *rand)
{
    return rebuilt_of(world, &lh_fleet_index, rand);
}

/* Another instance takes over: a new index, and its own waits begin now. */
static G_GNUC_UNUSED void fail_over(World *world)
{
    lh_fleet_index.free(world->index);
    lh_pools_index.free(world->pools);
    world->index = rebuilt_index(world, NULL);
    world->pools = rebuilt_of(world, &lh_pools_index, NULL);
    world->led_ms = world->now_ms;
}

/* ---- plans ---- */

static LhPlan *plan_on(const World *world, gconstpointer index, const char *controller)
{
    LhPlanContext context = {
        .now_ms = world->now_ms,
        .revision = world->revision,
        .epoch = 7,
        .led_ms = world->led_ms,
        .ahead_ms = world->ahead_ms,
        .regressed = world->regressed,
        .regressed_rev = world->regressed_rev,
        .max_groups = world->max_groups,
        .also = lh_controller_find(controller)->also == NULL ? NULL : world->pools,
    };
    LhPlan *plan = lh_plan_new(TRUE);

    lh_controller_find(controller)->plan(index, &context, plan);
    assert_false(plan->open);
    return plan;
}

static LhPlan *plan_of(const World *world, const char *controller)
{
    const LhIndexType *type = lh_controller_find(controller)->index;

    return plan_on(world, type == &lh_pools_index ? world->pools : world->index, controller);
}

static gboolean none_below(const World *world, const char *prefix)
{
    g_autoptr(GPtrArray) keys = keys_below(world, prefix);

    return keys->len == 0;
}

static gboolean compares_hold(const World *world, const LhPlan *plan, const LhGroup *group)
{
    for (guint i = 0; i < group->n_ops; i++) {
        const LhOp *op = lh_plan_op(plan, group, i);
        if (mod_rev(world, op->key) != op->expect_rev)
            return FALSE;
    }
    for (guint i = 0; i < group->n_reliances; i++) {
        const LhReliance *r = &g_array_index(plan->reliances, LhReliance,
                                             group->first_reliance + i);
        if (r->none_below ? !none_below(world, r->key) : mod_rev(world, r->key) != r->mod_rev)
            return FALSE;
    }
    return TRUE;
}

/* What a controller writes must be readable, and its group no larger than a transaction. */
static void check_group(const LhPlan *plan, const LhGroup *group)
{
    assert_true(group->n_ops > 0);
    assert_true(group->n_ops + group->n_reliances < 120);
    for (guint i = 0; i < group->n_ops; i++) {
        const LhOp *op = lh_plan_op(plan, group, i);
        g_autoptr(LhObject) parsed = NULL;
        assert_non_null(op->rule);
        assert_true(*op->reason != '\0');
        if (op->type == LH_OP_DELETE) {
            assert_true(op->expect_rev != 0);
            continue;
        }
        parsed = lh_object_parse(op->kind, op->name, op->value, strlen(op->value), 1, 1, 0);
        if (!lh_object_known(parsed))
            fail_msg("%s: %s: %s", op->key, op->value, lh_object_error(parsed));
    }
}

/* TRUE: committed; FALSE: conflict. */
static gboolean apply_group(World *world, const LhPlan *plan, guint i)
{
    const LhGroup *group = lh_plan_group(plan, i);

    check_group(plan, group);
    if (!compares_hold(world, plan, group)) {
        world->conflicts++;
        return FALSE;
    }
    world->revision++;
    for (guint o = 0; o < group->n_ops; o++) {
        const LhOp *op = lh_plan_op(plan, group, o);
        if (op->type == LH_OP_PUT && op->kind == LH_KIND_ASSIGNMENT &&
            strstr(op->value, "\"action\":\"load\"") != NULL)
            world->loads++;
        change(world, op->key, op->type == LH_OP_PUT ? op->value : NULL);
    }
    return TRUE;
}

/* Plans once and commits all of it; the number of groups committed. */
static guint step(World *world, const char *controller)
{
    g_autoptr(LhPlan) plan = plan_of(world, controller);
    guint committed = 0;

    for (guint i = 0; i < lh_plan_groups(plan); i++)
        committed += apply_group(world, plan, i);
    return committed;
}

/* Until it has nothing more to write. */
static G_GNUC_UNUSED void run(World *world, const char *controller)
{
    for (int i = 0; i < 200; i++)
        if (step(world, controller) == 0)
            return;
    fail_msg("%s does not converge", controller);
}

/* One controller after the other, until none has anything to write; nodes answer nothing meanwhile. */
static G_GNUC_UNUSED void run_all(World *world)
{
    for (int round = 0; round < 200; round++) {
        guint written = 0;
        for (const LhController *const *c = lh_controllers(); *c != NULL; c++)
            written += step(world, (*c)->name);
        if (written == 0)
            return;
    }
    fail_msg("the controllers do not converge");
}

/* Everything of a plan as text: equal decisions, equal bytes. */
static char *plan_text(const LhPlan *plan)
{
    GString *text = g_string_new(NULL);

    for (guint i = 0; i < lh_plan_groups(plan); i++) {
        const LhGroup *group = lh_plan_group(plan, i);
        g_string_append_printf(text, "group %s\n", group->throttle == NULL ? "" : group->throttle);
        for (guint o = 0; o < group->n_ops; o++) {
            const LhOp *op = lh_plan_op(plan, group, o);
            g_string_append_printf(text, " %s %s @%" PRId64 " %s: %s\n  %s\n",
                                   op->type == LH_OP_PUT ? "put" : "delete", op->key,
                                   op->expect_rev, op->rule, op->reason,
                                   op->value == NULL ? "" : op->value);
        }
        for (guint r = 0; r < group->n_reliances; r++) {
            const LhReliance *reliance = &g_array_index(plan->reliances, LhReliance,
                                                        group->first_reliance + r);
            g_string_append_printf(text, " rely %s %d @%" PRId64 "\n", reliance->key,
                                   reliance->none_below, reliance->mod_rev);
        }
        for (guint e = 0; e < group->n_events; e++) {
            const LhPlanEvent *event = &g_array_index(plan->events, LhPlanEvent,
                                                      group->first_event + e);
            g_string_append_printf(text, " event %s %s %s\n", event->reason, event->object,
                                   event->message);
        }
    }
    for (guint i = 0; i < plan->notes->len; i++) {
        const LhPlanNote *note = &g_array_index(plan->notes, LhPlanNote, i);
        g_string_append_printf(text, "note %s %s: %s\n", note->object, note->rule, note->reason);
    }
    g_string_append_printf(text, "wake %" PRId64 " more %d\n", plan->wake_ms, plan->more);
    return g_string_free(text, FALSE);
}

/* The first op on @key, or NULL. */
static G_GNUC_UNUSED const LhOp *find_op(const LhPlan *plan, const char *key)
{
    for (guint i = 0; i < plan->ops->len; i++) {
        const LhOp *op = &g_array_index(plan->ops, LhOp, i);
        if (strcmp(op->key, key) == 0)
            return op;
    }
    return NULL;
}

static G_GNUC_UNUSED const char *note_rule(const LhPlan *plan, const char *object)
{
    for (guint i = 0; i < plan->notes->len; i++) {
        const LhPlanNote *note = &g_array_index(plan->notes, LhPlanNote, i);
        if (strcmp(note->object, object) == 0)
            return note->rule;
    }
    return NULL;
}

static G_GNUC_UNUSED gboolean has_event(const LhPlan *plan, const char *reason)
{
    for (guint i = 0; i < plan->events->len; i++)
        if (strcmp(g_array_index(plan->events, LhPlanEvent, i).reason, reason) == 0)
            return TRUE;
    return FALSE;
}

static G_GNUC_UNUSED void assert_nothing_to_do(const World *world, const char *controller)
{
    g_autoptr(LhPlan) plan = plan_of(world, controller);
    g_autofree char *text = plan_text(plan);

    if (lh_plan_groups(plan) != 0)
        fail_msg("%s has something to do:\n%s", controller, text);
}

/* ---- objects ---- */

static G_GNUC_UNUSED G_GNUC_PRINTF(3, 4) void put_service(World *world, const char *name,
                                                          const char *format, ...)
{
    g_autofree char *key = g_strconcat("desired/services/", name, NULL), *spec = NULL;
    va_list args;

    va_start(args, format);
    spec = g_strdup_vprintf(format, args);
    va_end(args);
    putf(world, key, "{\"spec\":{\"owner\":\"me\"%s%s}}", *spec == '\0' ? "" : ",", spec);
    step(world, "admission");
}

static G_GNUC_UNUSED void put_settings(World *world, const char *controller, const char *spec)
{
    g_autofree char *key = g_strconcat("desired/settings/", controller, NULL);

    putf(world, key, "{\"spec\":{%s}}", spec);
    step(world, "admission");
}

static G_GNUC_UNUSED void put_snapshot(World *world, const char *name, const char *service,
                                       gint64 end_ms, gint64 bytes)
{
    g_autofree char *key = g_strconcat("published/snapshots/", name, NULL);

    putf(world, key,
         "{\"service\":\"%s\",\"startTime\":%" PRId64 ",\"endTime\":%" PRId64
         ",\"sizeBytes\":%" PRId64 ",\"uri\":\"s3://bucket/%s/\"}",
         service, end_ms - HOUR, end_ms, bytes, name);
}

/* @id: "a-00000001"; @more: further members, begins with a comma. */
static G_GNUC_UNUSED void put_node(World *world, const char *id, gint64 bytes, gint64 items,
                                   const char *more)
{
    g_autofree char *key = g_strconcat("actual/nodes/cache/", id, NULL);
    g_autofree char *name = lh_node_name_of(id);

    putf(world, key,
         "{\"name\":\"%s\",\"capacityBytes\":%" PRId64 ",\"capacityItems\":%" PRId64
         ",\"state\":\"online\",\"leaseTtl\":\"5s\"%s}",
         name, bytes, items, more);
}

/* Its lease ends: all that it said vanishes at one revision. */
static G_GNUC_UNUSED void lose_node(World *world, const char *id)
{
    g_autofree char *node = g_strconcat("actual/nodes/cache/", id, NULL);
    g_autofree char *below = g_strconcat("actual/items/cache/", id, "/", NULL);
    g_autoptr(GPtrArray) keys = keys_below(world, below);

    world->revision++;
    for (guint i = 0; i < keys->len; i++) {
        g_autofree char *key = g_strdup(keys->pdata[i]);
        change(world, key, NULL);
    }
    change(world, node, NULL);
}

/* @name: "<node>/<item>". Answers the assignment as it stands. */
static void answer(World *world, const char *name, const char *state)
{
    g_autofree char *assignment = g_strconcat("decided/assignments/cache/", name, NULL);
    g_autofree char *key = g_strconcat("actual/items/cache/", name, NULL);

    putf(world, key, "{\"state\":\"%s\",\"since\":%" PRId64 ",\"assignment\":%" PRId64 "}", state,
         world->now_ms, mod_rev(world, assignment));
}

/* Every registered node does what it was told: TRUE when one of them said something new. */
static G_GNUC_UNUSED gboolean nodes_answer(World *world)
{
    g_autoptr(GPtrArray) orders = keys_below(world, "decided/assignments/cache/");
    g_autoptr(GPtrArray) items = keys_below(world, "actual/items/cache/");
    gsize skip = strlen("decided/assignments/cache/");
    gboolean any = FALSE;

    for (guint i = 0; i < items->len; i++) {
        g_autofree char *key = g_strdup(items->pdata[i]);
        if (lookf(world, "decided/assignments/cache/%s", key + strlen("actual/items/cache/")) ==
            NULL) {
            del(world, key);
            any = TRUE;
        }
    }
    for (guint i = 0; i < orders->len; i++) {
        const char *name = (const char *)orders->pdata[i] + skip;
        const LhAssignment *order = look(world, orders->pdata[i]);
        const LhItem *item = lookf(world, "actual/items/cache/%s", name);
        g_autofree char *id = g_strndup(name, strcspn(name, "/"));
        if (lookf(world, "actual/nodes/cache/%s", id) == NULL || !lh_object_known(&order->o) ||
            (item != NULL && item->assignment == order->o.mod_rev &&
             item->state != LH_ITEM_LOADING && item->state != LH_ITEM_EVICTING))
            continue;
        answer(world, name, order->action == LH_ACTION_LOAD ? "live" : "evicted");
        any = TRUE;
    }
    return any;
}

/* Controllers and nodes until nothing moves any more. */
static G_GNUC_UNUSED void settle(World *world)
{
    for (int round = 0; round < 1000; round++) {
        run_all(world);
        if (!nodes_answer(world))
            return;
    }
    fail_msg("nodes and controllers do not settle");
}

static G_GNUC_UNUSED guint items_in(const World *world, LhItemState state)
{
    g_autoptr(GPtrArray) keys = keys_below(world, "actual/items/cache/");
    guint n = 0;

    for (guint i = 0; i < keys->len; i++) {
        const LhItem *item = look(world, keys->pdata[i]);
        n += lh_object_known(&item->o) && item->state == (int)state;
    }
    return n;
}

/* The first node id that @replica is assigned to, or NULL; g_free. */
static G_GNUC_UNUSED char *node_of(const World *world, const char *replica)
{
    g_autoptr(GPtrArray) keys = keys_below(world, "decided/assignments/cache/");
    g_autofree char *tail = g_strconcat("/", replica, NULL);

    for (guint i = 0; i < keys->len; i++)
        if (g_str_has_suffix(keys->pdata[i], tail)) {
            const char *rest = (const char *)keys->pdata[i] + strlen("decided/assignments/cache/");
            return g_strndup(rest, strcspn(rest, "/"));
        }
    return NULL;
}

/* The condition @type in the Status @name ("settings/x/x"), or NULL. */
static G_GNUC_UNUSED const LhCondition *condition_of(const World *world, const char *name,
                                                     const char *type)
{
    const LhStatus *status = lookf(world, "decided/status/%s", name);

    for (guint i = 0; status != NULL && lh_object_known(&status->o) && i < status->conditions->n;
         i++) {
        const LhCondition *condition = lh_array_at(status->conditions, i);
        if (strcmp(condition->type, type) == 0)
            return condition;
    }
    return NULL;
}

static G_GNUC_UNUSED void assert_capacity(const World *world, int status, const char *part)
{
    const LhCondition *condition = condition_of(world, "settings/cache-assigner/cache-assigner",
                                                "Capacity");

    assert_non_null(condition);
    assert_int_equal(condition->status, status);
    if (part != NULL && strstr(condition->message, part) == NULL)
        fail_msg("\"%s\" does not say %s", condition->message, part);
}
