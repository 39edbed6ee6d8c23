/*
 * Seeds of one throttle policy are on one crawl manager, and a seed has one holder: whatever a commit newly
 * loads finds nothing of the policy, or of the seed, that another node may hold. Nothing is begun by an order
 * that takes back an eviction, nor without the claim of its policy (its Status) for that node.
 *
 * An assignment may be held until its node has answered this very order evicted, failed or done, or is said to
 * have failed and is not registered. Judged when something is loaded: what was released stays so.
 */
#include "base/json.h"
#include "invariants.h"

#include <string.h>

#define POOL     "manager/"
#define SAY(...) inv_fail(inv, INV_SEEDS, __VA_ARGS__)

static const LhAssignment *known_order(const LhObject *object)
{
    return object != NULL && lh_object_known(object) ? (const LhAssignment *)object : NULL;
}

/* g_free; NULL: none. */
static char *policy_of(const LhAssignment *order)
{
    const char *text = order == NULL ? NULL : order->seed;
    g_autoptr(cJSON) seed = text == NULL
                                ? NULL
                                : lh_json_parse(text, strlen(text), LH_JSON_MAX_BYTES, NULL);
    return g_strdup(
        lh_json_get_string(cJSON_GetObjectItemCaseSensitive(seed, "throttle"), "name", NULL));
}

static gboolean may_be_held(const Inv *inv, const LhObject *order)
{
    const LhItem *item = (const LhItem *)inv_get(inv, LH_KIND_ITEM, order->name);
    g_autofree char *node = g_strndup(order->name,
                                      (gsize)(strrchr(order->name, '/') - order->name));
    const LhHealth *health = (const LhHealth *)inv_get(inv, LH_KIND_HEALTH, node);
    gboolean failed = health != NULL && lh_object_known(&health->o) &&
                      health->state == LH_HEALTH_FAILED;
    if (item != NULL && lh_object_known(&item->o) && item->assignment == order->mod_rev &&
        (item->state == LH_ITEM_EVICTED || item->state == LH_ITEM_FAILED ||
         item->state == LH_ITEM_DONE))
        return FALSE;
    return !failed || inv_get(inv, LH_KIND_NODE, node) != NULL;
}

/* It was ordered away so that all of its policy goes elsewhere, has not answered, and people have not changed
 * their minds since. */
static gboolean is_moving(const Inv *inv, const LhObject *other, const char *item,
                          const char *policy)
{
    static const char *const rules[] = {"rebalance", "drained", "moved-with-policy", NULL};
    const LhAssignment *order = known_order(other);
    g_autofree char *name = g_strconcat("seeds/", item, NULL);
    const LhObject *accepted = inv_get(inv, LH_KIND_ACCEPTED, name);
    const LhSeed *seed = lh_accepted_spec(accepted, LH_KIND_SEED);
    return order != NULL && order->action == LH_ACTION_EVICT && order->rule != NULL &&
           g_strv_contains(rules, order->rule) && seed != NULL && seed->state != LH_SEED_STOPPED &&
           g_strcmp0(seed->throttle, policy) == 0 && accepted->mod_rev < other->mod_rev &&
           may_be_held(inv, other);
}

static void check_other(Inv *inv, const InvChange *change, const InvPlace *place,
                        const char *policy, const LhObject *other)
{
    g_auto(InvPlace) at = {0};
    g_autofree char *held = policy_of(known_order(other));
    if (!inv_place(other->name, &at))
        return;
    if (strcmp(at.node, place->node) == 0) {
        if (policy != NULL && g_strcmp0(policy, held) == 0 &&
            is_moving(inv, other, at.item, policy))
            SAY("%s: policy %s is being moved away from there", change->key, policy);
        return;
    }
    if (strcmp(at.item, place->item) == 0)
        SAY("%s: the seed is on %s too", change->key, at.node);
    else if (policy != NULL && g_strcmp0(policy, held) == 0 && may_be_held(inv, other))
        SAY("%s: policy %s is on %s too", change->key, policy, at.node);
}

static void check_claim(Inv *inv, const InvCommit *commit, const InvChange *change,
                        const InvPlace *place, const char *policy)
{
    g_autofree char *name = g_strconcat("throttles/", policy, "/seed-allocator", NULL);
    const LhStatus *claim = (const LhStatus *)inv_get(inv, LH_KIND_STATUS, name);
    if (claim == NULL || !lh_object_known(&claim->o) || g_strcmp0(claim->owner, place->node) != 0) {
        SAY("%s: its policy %s is not claimed for that node", change->key, policy);
        return;
    }
    for (guint i = 0; i < commit->n; i++)
        if (commit->changes[i].kind == LH_KIND_STATUS && strcmp(commit->changes[i].name, name) == 0)
            return;
    if (!inv_relied_on(inv, INV_SEEDS, commit, LH_KIND_STATUS, name, claim->o.mod_rev))
        SAY("%s: the claim of its policy was not compared", change->key);
}

static void check_load(Inv *inv, const InvCommit *commit, const InvChange *change)
{
    const LhAssignment *order = known_order(change->after), *was = known_order(change->before);
    g_autofree char *policy = policy_of(order), *before = policy_of(was);
    g_auto(InvPlace) place = {0};
    GHashTableIter iter;
    gpointer other;
    if (order == NULL || order->action != LH_ACTION_LOAD || !inv_place(change->name, &place))
        return;
    inv_did(inv, INV_SEEDS);
    if (was != NULL && was->action != LH_ACTION_LOAD)
        SAY("%s: it was ordered to be evicted, and is loaded again", change->key);
    if (was != NULL && g_strcmp0(policy, before) == 0)
        return;
    g_hash_table_iter_init(&iter, inv->kinds[LH_KIND_ASSIGNMENT]);
    while (g_hash_table_iter_next(&iter, NULL, &other))
        if (g_str_has_prefix(((const LhObject *)other)->name, POOL))
            check_other(inv, change, &place, policy, other);
    if (policy != NULL)
        check_claim(inv, commit, change, &place, policy);
}

static void after(Inv *inv, const InvCommit *commit)
{
    if (commit->facts != NULL && commit->facts->unaware)
        return; /* it knows of what is not there any more; its first answer tells it */
    for (guint i = 0; i < commit->n && commit->by == INV_BY_MANAGER; i++) {
        const InvChange *change = &commit->changes[i];
        if (change->kind == LH_KIND_ASSIGNMENT && g_str_has_prefix(change->name, POOL))
            check_load(inv, commit, change);
    }
}

const InvGroup inv_seeds = {NULL, after};
