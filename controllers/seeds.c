/* See seeds.h. */
#include "controllers/seeds.h"

#include "base/json.h"
#include "base/units.h"

#include <string.h>

#define THROTTLE_HELD "Held"

static gint by_group_name(gconstpointer a, gconstpointer b, gpointer data)
{
    (void)data;
    return strcmp(((const LhSeedGroup *)a)->name, ((const LhSeedGroup *)b)->name);
}

static gint by_item_name(gconstpointer a, gconstpointer b, gpointer data)
{
    (void)data;
    return strcmp(((const LhPoolItem *)a)->name, ((const LhPoolItem *)b)->name);
}

static gint by_key(gconstpointer a, gconstpointer b, gpointer data)
{
    (void)data;
    return strcmp(((const LhPoolAssignment *)a)->key, ((const LhPoolAssignment *)b)->key);
}

LhSeeds *lh_seeds_new(LhPools *pools)
{
    LhSeeds *seeds = g_new0(LhSeeds, 1);

    seeds->pools = pools;
    seeds->groups = g_tree_new_full(by_group_name, NULL, NULL, NULL);
    seeds->todo = g_tree_new_full(by_item_name, NULL, NULL, NULL);
    return seeds;
}

static void free_group(LhSeedGroup *group)
{
    lh_object_unref(group->throttle);
    lh_object_unref(group->status);
    g_tree_unref(group->members);
    g_tree_unref(group->orders);
    g_free(group->name);
    g_free(group);
}

static gboolean free_one(gpointer key, gpointer value, gpointer data)
{
    (void)value;
    (void)data;
    free_group(key);
    return FALSE;
}

void lh_seeds_free(LhSeeds *seeds)
{
    g_tree_foreach(seeds->groups, free_one, NULL);
    g_tree_unref(seeds->groups);
    g_tree_unref(seeds->todo);
    g_free(seeds);
}

static LhSeedGroup *group_of(LhSeeds *seeds, const char *name)
{
    const LhSeedGroup wanted = {.name = (char *)name};
    LhSeedGroup *group = g_tree_lookup(seeds->groups, &wanted);

    if (group == NULL) {
        group = g_new0(LhSeedGroup, 1);
        group->name = g_strdup(name);
        group->members = g_tree_new_full(by_item_name, NULL, NULL, NULL);
        group->orders = g_tree_new_full(by_key, NULL, NULL, NULL);
        g_tree_insert(seeds->groups, group, group);
    }
    return group;
}

static void drop_group(LhSeeds *seeds, LhSeedGroup *group)
{
    if (group == NULL || group->throttle != NULL || group->status != NULL ||
        g_tree_nnodes(group->members) > 0 || g_tree_nnodes(group->orders) > 0)
        return;
    g_tree_remove(seeds->groups, group);
    free_group(group);
}

/* ---- what a seed asks for ---- */

const LhSeed *lh_seed_spec(const LhPoolItem *item)
{
    return lh_accepted_spec(item->subject, LH_KIND_SEED);
}

gboolean lh_seed_done(const LhPoolItem *item)
{
    const LhStatus *status = (const LhStatus *)item->status;

    return status != NULL && lh_seed_spec(item) != NULL && lh_object_known(&status->o) &&
           g_strcmp0(status->state, "Done") == 0 &&
           status->observed_revision == ((const LhAccepted *)item->subject)->revision;
}

gboolean lh_seed_wanted(const LhPoolItem *item)
{
    const LhSeed *seed = lh_seed_spec(item);

    if (seed == NULL || seed->state == LH_SEED_STOPPED || lh_seed_done(item))
        return FALSE;
    return seed->state == LH_SEED_STARTED || lh_pool_item_assigned(item);
}

static void append_throttle(GString *text, const LhThrottle *throttle, const char *name)
{
    g_string_append(text, "{\"name\":");
    lh_json_append_string(text, name);
    g_string_append_printf(text, ",\"requests\":%" G_GINT64_FORMAT, throttle->requests);
    if (throttle->period_ms > 0) {
        g_autofree char *period = lh_duration_format(throttle->period_ms);
        lh_json_append_key(text, "period");
        lh_json_append_string(text, period);
    }
    if (throttle->max_concurrent > 0) {
        lh_json_append_key(text, "maxConcurrent");
        lh_json_append_int(text, throttle->max_concurrent);
    }
    g_string_append_c(text, '}');
}

char *lh_seed_json(const LhPoolItem *item)
{
    const LhSeed *seed = lh_seed_spec(item);
    const char *raw;
    g_autoptr(cJSON) spec = NULL;

    if (seed == NULL)
        return NULL;
    raw = ((const LhAccepted *)item->subject)->spec;
    spec = lh_json_parse(raw, strlen(raw), LH_JSON_MAX_BYTES, NULL);
    if (!cJSON_IsObject(spec))
        return NULL;
    if (item->group != NULL) {
        const LhThrottle *throttle = lh_seed_group_throttle(item->group);
        g_autoptr(GString) text = g_string_new(NULL);
        if (throttle == NULL)
            return NULL;
        append_throttle(text, throttle, item->group->name);
        cJSON_ReplaceItemInObjectCaseSensitive(spec, "throttle", cJSON_CreateRaw(text->str));
    }
    return lh_json_print(spec);
}

const LhThrottle *lh_seed_group_throttle(const LhSeedGroup *group)
{
    return lh_accepted_spec(group->throttle, LH_KIND_THROTTLE);
}

const char *lh_seed_group_owner(const LhSeedGroup *group, gint64 *since)
{
    const LhStatus *status = (const LhStatus *)group->status;

    *since = G_MAXINT64;
    if (status == NULL || !lh_object_known(&status->o))
        return NULL;
    for (guint i = 0; i < status->conditions->n; i++) {
        const LhCondition *condition = lh_array_at(status->conditions, i);
        if (g_strcmp0(condition->type, THROTTLE_HELD) != 0)
            continue;
        *since = condition->since;
        return condition->status == LH_CONDITION_FALSE ? NULL : status->owner;
    }
    return status->owner;
}

/* ---- state ---- */

static const char *order_state(const LhPoolAssignment *assignment, const LhSeed *seed)
{
    const LhAssignment *order = lh_pool_order(assignment);

    if (order == NULL)
        return "Unknown";
    if (order->action != LH_ACTION_LOAD)
        return "Evicting";
    switch (lh_pool_answer(assignment)) {
    case LH_ITEM_LOADING:
        return "Loading";
    case LH_ITEM_LIVE:
        return seed != NULL && seed->state == LH_SEED_PAUSED ? "Paused" : "Live";
    case LH_ITEM_EVICTING:
    case LH_ITEM_EVICTED:
    case LH_ITEM_FAILED:
    case LH_ITEM_DONE:
        return "Evicting";
    default:
        return "Assigned";
    }
}

const char *lh_seed_state(const LhPoolItem *item, const char **owner)
{
    const LhSeed *seed = lh_seed_spec(item);
    const LhRetry *retry = lh_pool_retry(item, NULL);

    *owner = NULL;
    for (guint i = 0; item->assignments != NULL && i < item->assignments->len; i++) {
        const LhPoolAssignment *assignment = g_ptr_array_index(item->assignments, i);
        if (assignment->object == NULL)
            continue;
        *owner = assignment->node->id;
        return order_state(assignment, seed);
    }
    if (lh_seed_done(item))
        return "Done";
    if (seed != NULL && seed->state == LH_SEED_STOPPED)
        return "Stopped";
    if (seed != NULL && seed->state == LH_SEED_PAUSED)
        return "Paused";
    return retry != NULL && retry->parked ? "Parked" : "Waiting";
}

static gboolean status_says(const LhPoolItem *item)
{
    const LhStatus *status = (const LhStatus *)item->status;
    const char *owner, *state = lh_seed_state(item, &owner);

    if (status == NULL || !lh_object_known(&status->o))
        return status != NULL;
    return status->observed_revision == ((const LhAccepted *)item->subject)->revision &&
           g_strcmp0(status->owner, owner) == 0 && g_strcmp0(status->state, state) == 0;
}

static gboolean runs_well(const LhPoolItem *item)
{
    const LhPoolAssignment *only = item->assignments->pdata[0];
    const LhAssignment *order = lh_pool_order(only);
    g_autofree char *json = NULL;

    if (item->assignments->len != 1 || order == NULL || order->action != LH_ACTION_LOAD ||
        lh_pool_answer(only) != LH_ITEM_LIVE || only->node->object == NULL ||
        only->group != item->group || !lh_seed_wanted(item))
        return FALSE;
    json = lh_seed_json(item);
    return json == NULL || g_strcmp0(json, order->seed) == 0;
}

/* Nothing is to be done with it, whatever becomes of others. */
static gboolean is_settled(const LhPoolItem *item)
{
    if (item->subject != NULL && !lh_object_known(item->subject))
        return TRUE;
    if (item->subject == NULL)
        return item->assignments == NULL && item->retry == NULL && item->status == NULL;
    if (item->retry != NULL || !status_says(item))
        return FALSE;
    return item->assignments == NULL ? !lh_seed_wanted(item) : runs_well(item);
}

void lh_seeds_touch(LhSeeds *seeds, LhPoolItem *item)
{
    gboolean todo = !is_settled(item);

    if (item->is_todo && !todo)
        g_tree_remove(seeds->todo, item);
    else if (!item->is_todo && todo)
        g_tree_insert(seeds->todo, item, item);
    item->is_todo = todo;
}

/* ---- the fold ---- */

void lh_seeds_subject(LhSeeds *seeds, LhPoolItem *item)
{
    const LhSeed *seed = lh_seed_spec(item);
    LhSeedGroup *before = item->group;
    LhSeedGroup *after = seed == NULL || seed->throttle == NULL ? NULL
                                                                : group_of(seeds, seed->throttle);

    if (before == after)
        return;
    item->group = after;
    if (after != NULL)
        g_tree_insert(after->members, item, item);
    if (before != NULL) {
        g_tree_remove(before->members, item);
        drop_group(seeds, before);
    }
}

/* The name of the policy that an order's seed says; NULL: none. */
static char *policy_in(const char *json)
{
    g_autoptr(cJSON) seed = json == NULL
                                ? NULL
                                : lh_json_parse(json, strlen(json), LH_JSON_MAX_BYTES, NULL);
    const cJSON *throttle = cJSON_GetObjectItemCaseSensitive(seed, "throttle");

    return g_strdup(lh_json_get_string(throttle, "name", NULL));
}

void lh_seeds_order(LhSeeds *seeds, LhPoolAssignment *assignment)
{
    const LhAssignment *order = lh_pool_order(assignment);
    LhSeedGroup *before = assignment->group;
    g_autofree char *policy = order == NULL ? NULL : policy_in(order->seed);
    LhSeedGroup *after = policy == NULL ? NULL : group_of(seeds, policy);
    gboolean unknown = assignment->object != NULL && order == NULL;
    gboolean load = order != NULL && order->action == LH_ACTION_LOAD;

    assignment->node->free_seeds += (load && after == NULL) - assignment->is_free_load;
    assignment->node->group_seeds += (load && after != NULL) - assignment->is_group_load;
    seeds->unknown_orders += unknown - assignment->is_unknown;
    assignment->is_free_load = load && after == NULL;
    assignment->is_group_load = load && after != NULL;
    assignment->is_unknown = unknown;
    if (before == after)
        return;
    assignment->group = after;
    if (after != NULL)
        g_tree_insert(after->orders, assignment, assignment);
    if (before != NULL) {
        g_tree_remove(before->orders, assignment);
        drop_group(seeds, before);
    }
}

void lh_seeds_throttle(LhSeeds *seeds, const char *name, LhKind kind, const LhObject *after)
{
    LhSeedGroup *group = group_of(seeds, name);
    const LhObject **slot = kind == LH_KIND_STATUS ? &group->status : &group->throttle;
    const LhObject *before = *slot;

    *slot = after == NULL ? NULL : lh_object_ref(after);
    lh_object_unref(before);
    if (kind == LH_KIND_ACCEPTED)
        for (GTreeNode *n = g_tree_node_first(group->members); n != NULL; n = g_tree_node_next(n))
            lh_seeds_touch(seeds, g_tree_node_key(n));
    drop_group(seeds, group);
}
