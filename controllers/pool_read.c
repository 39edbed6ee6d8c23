/*
 * What may be concluded from the records of the exclusive pools: which answer counts, which assignment may
 * end, which retry holds back, which node takes new work. Pure.
 */
#include "base/planted.h"
#include "controllers/pool.h"
#include "placement/placement.h"

#include <string.h>

/* ---- objects ---- */

const LhSettings *lh_pools_settings(const LhPools *pools, const char *controller)
{
    const LhSettings *accepted = lh_accepted_spec(g_hash_table_lookup(pools->settings, controller),
                                                  LH_KIND_SETTINGS);

    if (accepted == NULL)
        accepted = g_hash_table_lookup(pools->held, controller);
    return accepted != NULL ? accepted : lh_settings_default(controller);
}

const LhObject *lh_pools_settings_object(const LhPools *pools, const char *controller)
{
    return g_hash_table_lookup(pools->settings, controller);
}

const LhSettings *lh_pools_settings_of(gconstpointer index, const char *controller)
{
    return lh_pools_settings(index, controller);
}

const LhObject *lh_pools_get(const LhPools *pools, LhKind kind, const char *name)
{
    return g_hash_table_lookup(pools->objects[kind], name);
}

const LhObject *lh_pools_accepted(const LhPools *pools, const char *plural, const char *name)
{
    g_autofree char *key = g_strconcat(plural, "/", name, NULL);

    return lh_pools_get(pools, LH_KIND_ACCEPTED, key);
}

const LhObject *lh_pools_status(const LhPools *pools, const char *plural, const char *name,
                                const char *controller)
{
    g_autofree char *key = g_strconcat(plural, "/", name, "/", controller, NULL);

    return lh_pools_get(pools, LH_KIND_STATUS, key);
}

/* ---- items ---- */

LhPoolView *lh_pools_view(const LhPools *pools, const char *pool)
{
    return g_hash_table_lookup(pools->views, pool);
}

const LhPoolItem *lh_pool_item(const LhPoolView *view, const char *item)
{
    return g_hash_table_lookup(view->items, item);
}

gboolean lh_pool_item_assigned(const LhPoolItem *item)
{
    for (guint i = 0; item->assignments != NULL && i < item->assignments->len; i++)
        if (((const LhPoolAssignment *)g_ptr_array_index(item->assignments, i))->object != NULL)
            return TRUE;
    return FALSE;
}

gboolean lh_pool_retry_void(const LhPoolItem *item)
{
    return item->retry != NULL && item->subject != NULL &&
           item->subject->mod_rev > item->retry->mod_rev;
}

const LhRetry *lh_pool_retry(const LhPoolItem *item, gboolean *unknown)
{
    gboolean parses = item->retry == NULL || lh_object_known(item->retry);

    if (unknown != NULL)
        *unknown = !parses;
    return !parses || lh_pool_retry_void(item) ? NULL : (const LhRetry *)item->retry;
}

/* ---- assignments ---- */

const LhAssignment *lh_pool_order(const LhPoolAssignment *assignment)
{
    return assignment->object != NULL && lh_object_known(assignment->object)
               ? (const LhAssignment *)assignment->object
               : NULL;
}

int lh_pool_answer(const LhPoolAssignment *assignment)
{
    const LhItem *item = (const LhItem *)assignment->item;

    if (item == NULL || assignment->object == NULL || !lh_object_known(&item->o) ||
        item->assignment != assignment->object->mod_rev)
        return -1;
    return item->state;
}

LhPoolEnd lh_pool_end(const LhPoolAssignment *assignment)
{
    const LhHealth *health = (const LhHealth *)assignment->node->health;
    int answer = lh_pool_answer(assignment);

    if (lh_pool_order(assignment) == NULL)
        return LH_POOL_HELD;
    if (answer == LH_ITEM_EVICTED || answer == LH_ITEM_FAILED || answer == LH_ITEM_DONE)
        return LH_POOL_ANSWERED;
    if (assignment->node->object != NULL)
        return LH_POOL_HELD;
    if (LH_BUG(LOST_NODE_NOT_FAILED))
        return LH_POOL_LOST;
    return health != NULL && lh_object_known(&health->o) && health->state == LH_HEALTH_FAILED
               ? LH_POOL_LOST
               : LH_POOL_HELD;
}

void lh_pool_rely_on_end(LhPlan *plan, const LhPoolAssignment *assignment)
{
    const LhPoolNode *node = assignment->node;
    const char *pool = node->host->pool->name;
    g_autofree char *item = g_strconcat(pool, "/", assignment->key, NULL);
    g_autofree char *id = g_strconcat(pool, "/", node->id, NULL);

    lh_plan_rely(plan, LH_KIND_ITEM, item,
                 assignment->item == NULL ? 0 : assignment->item->mod_rev);
    if (lh_pool_end(assignment) != LH_POOL_LOST)
        return;
    lh_plan_rely(plan, LH_KIND_NODE, id, 0);
    lh_plan_rely(plan, LH_KIND_HEALTH, id, node->health == NULL ? 0 : node->health->mod_rev);
}

gboolean lh_pool_doubled(const LhPoolAssignment *assignment)
{
    const GPtrArray *all = assignment->of->assignments;
    gboolean passed = FALSE;

    for (guint i = 0; i < all->len; i++) {
        const LhPoolAssignment *other = g_ptr_array_index(all, i);
        passed = passed || other == assignment;
        if (other == assignment || lh_pool_order(other) == NULL)
            continue;
        if (other->object->create_rev < assignment->object->create_rev ||
            (other->object->create_rev == assignment->object->create_rev && !passed))
            return TRUE;
    }
    return FALSE;
}

void lh_pool_evict(LhPlan *plan, const LhPoolAssignment *assignment, const LhPlanContext *context,
                   const char *controller, const char *rule, const char *reason)
{
    LhAssignment order = *lh_pool_order(assignment);

    order.action = LH_ACTION_EVICT;
    order.since = context->now_ms;
    order.controller = controller;
    order.epoch = context->epoch;
    order.rule = rule;
    order.reason = reason;
    lh_plan_put(plan, LH_KIND_ASSIGNMENT, order.o.name, &order, order.o.mod_rev, rule, "%s",
                reason);
    lh_pool_rely_on_end(plan, assignment);
}

void lh_pool_take(LhPlan *plan, const LhPoolAssignment *assignment, const char *rule,
                  const char *reason)
{
    lh_plan_delete(plan, LH_KIND_ASSIGNMENT, assignment->object->name, assignment->object->mod_rev,
                   rule, "%s", reason);
    lh_pool_rely_on_end(plan, assignment);
}

gboolean lh_pool_sweep(LhPlan *plan, const LhPoolAssignment *assignment)
{
    const LhObject *item = assignment->item;

    if (assignment->object != NULL || item == NULL || !lh_object_known(item) ||
        lh_object_lease(item) != 0)
        return FALSE;
    lh_plan_begin(plan);
    lh_plan_delete(plan, LH_KIND_ITEM, item->name, item->mod_rev, "item-left",
                   "its assignment is gone, and no lease ends it");
    lh_plan_rely(plan, LH_KIND_ASSIGNMENT, item->name, 0);
    lh_plan_end(plan);
    return TRUE;
}

/* ---- nodes ---- */

static gboolean is_newer(const LhPoolNode *a, const LhPoolNode *b)
{
    if (a->object->create_rev != b->object->create_rev)
        return a->object->create_rev > b->object->create_rev;
    return strcmp(a->id, b->id) > 0;
}

static const LhPoolNode *newest(const LhPoolHost *host)
{
    const LhPoolNode *found = NULL;

    for (guint i = 0; i < host->nodes->len; i++) {
        const LhPoolNode *node = g_ptr_array_index(host->nodes, i);
        if (node->object != NULL && (found == NULL || is_newer(node, found)))
            found = node;
    }
    return found;
}

static const char *why_not(const LhPoolHost *host, const LhPoolNode *node)
{
    const LhNodePolicy *policy = lh_accepted_spec(host->policy, LH_KIND_NODEPOLICY);
    const LhHealth *health;
    int state;

    if (node == NULL)
        return "not registered";
    health = (const LhHealth *)node->health;
    if (!lh_object_known(node->object))
        return "its registration does not parse";
    if (health != NULL && !lh_object_known(&health->o))
        return "its health does not parse";
    if (health != NULL && !LH_BUG(FAILURE_TAKES) &&
        (health->state == LH_HEALTH_FAILURE || health->state == LH_HEALTH_FAILED))
        return "it is in failure";
    if (host->policy != NULL && policy == NULL)
        return "its policy does not parse";
    if (policy != NULL && (policy->cordon || policy->drain))
        return policy->drain ? "it is being drained" : "it is cordoned";
    state = ((const LhNode *)node->object)->state;
    if (state != LH_NODE_ONLINE && state != LH_NODE_WAITING)
        return state == LH_NODE_PAUSED ? "it says it is paused" : "it reports an error";
    return NULL;
}

const LhPoolNode *lh_pool_host_takes(const LhPoolHost *host, const char **why)
{
    const LhPoolNode *node = newest(host);
    const char *reason = why_not(host, node);

    if (why != NULL)
        *why = reason;
    return reason == NULL ? node : NULL;
}

gboolean lh_pool_on_probation(const LhPoolNode *node)
{
    const LhHealth *health = (const LhHealth *)node->health;

    return health != NULL && lh_object_known(&health->o) && health->state == LH_HEALTH_PROBATION;
}

GArray *lh_pool_takers(const LhPoolView *view)
{
    GArray *takers = g_array_new(FALSE, FALSE, sizeof(LhPoolTaker));
    gint64 demand = g_tree_nnodes(view->waiting);
    GHashTableIter iter;
    gpointer record;

    g_hash_table_iter_init(&iter, view->nodes);
    while (g_hash_table_iter_next(&iter, NULL, &record))
        demand += ((const LhPoolNode *)record)->held;
    for (GTreeNode *n = g_tree_node_first(view->hosts); n != NULL; n = g_tree_node_next(n)) {
        const LhPoolNode *node = lh_pool_host_takes(lh_pool_record(n), NULL);
        LhPoolTaker taker = {.node = node};
        if (node == NULL)
            continue;
        taker.object = (const LhNode *)node->object;
        taker.held = node->held;
        taker.limit = taker.object->capacity_items > 0 ? taker.object->capacity_items : G_MAXINT64;
        g_array_append_val(takers, taker);
    }
    for (guint i = 0; i < takers->len; i++) {
        LhPoolTaker *taker = &g_array_index(takers, LhPoolTaker, i);
        if (lh_pool_on_probation(taker->node))
            taker->limit = MIN(taker->limit, lh_place_half_share(demand, takers->len));
    }
    return takers;
}

/* ---- drains ---- */

gboolean lh_pool_host_drained(const LhPoolHost *host)
{
    const LhNodePolicy *policy = lh_accepted_spec(host->policy, LH_KIND_NODEPOLICY);

    return policy != NULL && policy->drain;
}

void lh_pool_say_drained(const LhPoolView *view, const char *controller, const char *reason,
                         const char *why, gint64 now_ms, LhPlan *plan)
{
    if (view == NULL)
        return;
    for (GTreeNode *n = g_tree_node_first(view->hosts); n != NULL; n = g_tree_node_next(n)) {
        const LhPoolHost *host = lh_pool_record(n);
        gboolean drained = lh_pool_host_drained(host);
        gint64 held = 0;
        if (!drained && host->drain_said == NULL)
            continue;
        for (guint i = 0; i < host->nodes->len; i++)
            held += ((const LhPoolNode *)g_ptr_array_index(host->nodes, i))->held;
        g_autofree char *name = g_strdup_printf("nodepolicies/%s/%s/%s", view->name, host->name,
                                                controller);
        g_autofree char *message = held == 0 ? g_strdup("nothing is assigned to it")
                                             : g_strdup_printf("%" G_GINT64_FORMAT " left: %s",
                                                               held, why);
        LhCondition condition = {
            .type = "Drained",
            .status = held == 0 ? LH_CONDITION_TRUE : LH_CONDITION_FALSE,
            .reason = held == 0 ? "Empty" : reason,
            .message = message,
        };
        lh_plan_status(plan, host->drain_said, name,
                       drained ? ((const LhAccepted *)host->policy)->revision : 0, &condition,
                       drained ? 1 : 0, now_ms);
    }
}

/* ---- gauges ---- */

static void count_items(const LhPoolView *view, gint64 *states, gint64 *assigned, gint64 *parked)
{
    GHashTableIter iter;
    gpointer record;

    g_hash_table_iter_init(&iter, view->assignments);
    while (g_hash_table_iter_next(&iter, NULL, &record)) {
        const LhPoolAssignment *assignment = record;
        const LhItem *item = (const LhItem *)assignment->item;
        if (item != NULL && lh_object_known(&item->o))
            states[item->state]++;
        else if (assignment->object != NULL)
            (*assigned)++;
    }
    for (GTreeNode *n = g_tree_node_first(view->busy); n != NULL; n = g_tree_node_next(n)) {
        const LhPoolItem *item = lh_pool_record(n);
        const LhRetry *retry = lh_pool_retry(item, NULL);
        *parked += retry != NULL && retry->parked;
    }
}

void lh_pool_gauges(const LhPoolView *view, const char *pool, LhGaugeFunc gauge, gpointer data)
{
    gint64 states[LH_ITEM_DONE + 1] = {0}, assigned = 0, parked = 0;
    g_autofree char *of = g_strdup_printf("pool=\"%s\"", pool);
    g_autofree char *waits = g_strdup_printf("pool=\"%s\",state=\"assigned\"", pool);

    if (view != NULL)
        count_items(view, states, &assigned, &parked);
    for (int state = 0; state <= LH_ITEM_DONE; state++) {
        g_autofree char *labels = g_strdup_printf("pool=\"%s\",state=\"%s\"", pool,
                                                  lh_item_state_name(state));
        gauge("items", labels, (double)states[state], data);
    }
    gauge("items", waits, (double)assigned, data);
    gauge("parked_items", of, (double)parked, data);
}
