/*
 * A replica that leaves a node which is drained, or in failure (onFailure: evict): a second load of it is
 * ordered only while a node that holds it, or one in failure that should evict it, is left so; and what ends one of two copies that is wanted finds
 * the other live, on a registered node that is not in failure, and compares that it still is. So neither
 * makes what is live less.
 */
#include "invariants.h"

#include <string.h>

static gboolean is_load(const LhObject *object)
{
    return object != NULL && lh_object_known(object) &&
           ((const LhAssignment *)object)->action == LH_ACTION_LOAD;
}

static const LhObject *policy_of(const Inv *inv, const char *host, char **name)
{
    *name = g_strconcat("nodepolicies/" INV_POOL "/", host, NULL);
    return inv_get(inv, LH_KIND_ACCEPTED, *name);
}

static gboolean is_drained(const Inv *inv, const char *host)
{
    g_autofree char *name = NULL;
    const LhNodePolicy *policy = lh_accepted_spec(policy_of(inv, host, &name), LH_KIND_NODEPOLICY);
    return policy != NULL && policy->drain;
}

static const LhObject *health_of(const Inv *inv, const char *node, char **name)
{
    *name = g_strconcat(INV_POOL "/", node, NULL);
    return inv_get(inv, LH_KIND_HEALTH, *name);
}

static gboolean is_in_failure(const Inv *inv, const char *node)
{
    g_autofree char *name = NULL;
    const LhHealth *health = (const LhHealth *)health_of(inv, node, &name);
    return health != NULL && lh_object_known(&health->o) && health->state == LH_HEALTH_FAILURE;
}

/* What it has shall go. */
static gboolean is_failing(const Inv *inv, const char *node)
{
    const LhObject *accepted = inv_get(inv, LH_KIND_ACCEPTED, "settings/failure-detector");
    const LhSettings *settings = accepted == NULL ? lh_settings_default("failure-detector")
                                                  : lh_accepted_spec(accepted, LH_KIND_SETTINGS);
    return is_in_failure(inv, node) && settings != NULL && !settings->paused &&
           settings->on_failure == LH_ON_FAILURE_EVICT;
}

static gboolean is_left(const Inv *inv, const InvPlace *place)
{
    return is_drained(inv, place->host) || is_failing(inv, place->node);
}

/* ---- one copy ends; the model is as it was before ---- */

/* It is a live copy, by what its node says of this very order. */
static gboolean is_live(const Inv *inv, const char *name)
{
    const LhObject *order = inv_get(inv, LH_KIND_ASSIGNMENT, name);
    const LhItem *item = (const LhItem *)inv_get(inv, LH_KIND_ITEM, name);
    return is_load(order) && item != NULL && lh_object_known(&item->o) &&
           item->state == LH_ITEM_LIVE && item->assignment == order->mod_rev;
}

static gboolean stays(Inv *inv, const InvCommit *commit, const InvPlace *target, const char *name)
{
    g_auto(InvPlace) place = {0};
    g_autofree char *health_name = NULL;
    if (!inv_place(name, &place) || strcmp(place.host, target->host) == 0 || !is_live(inv, name) ||
        inv_node(inv, place.node) == NULL || is_in_failure(inv, place.node))
        return FALSE;
    if (is_left(inv, &place) && !is_left(inv, target))
        return FALSE;
    const LhObject *health = health_of(inv, place.node, &health_name);
    const LhObject *node = inv_node(inv, place.node);
    return inv_relied_on(inv, INV_DRAIN, commit, LH_KIND_ASSIGNMENT, name,
                         inv_get(inv, LH_KIND_ASSIGNMENT, name)->mod_rev) &&
           inv_relied_on(inv, INV_DRAIN, commit, LH_KIND_ITEM, name,
                         inv_get(inv, LH_KIND_ITEM, name)->mod_rev) &&
           inv_relied_on(inv, INV_DRAIN, commit, LH_KIND_HEALTH, health_name,
                         health == NULL ? 0 : health->mod_rev) &&
           inv_relied_on(inv, INV_DRAIN, commit, LH_KIND_NODE, node->name, node->mod_rev);
}

static void check_end(Inv *inv, const InvCommit *commit, const InvChange *change)
{
    g_auto(InvPlace) place = {0};
    const char *why = "";
    const char *rule = ((const LhAssignment *)change->after)->rule;
    gboolean any = FALSE, failing = g_strcmp0(rule, "node-in-failure") == 0;
    *(failing ? &inv->counters.moved_failing : &inv->counters.moved_away) += 1;
    inv_did(inv, INV_DRAIN);
    if (!inv_place(change->name, &place))
        return;
    g_autofree char *pool = lh_name_part(change->name, 0);
    const GPtrArray *names = inv_assignments_of(inv, pool, place.item);
    for (guint i = 0; names != NULL && i < names->len; i++)
        any = any || stays(inv, commit, &place, names->pdata[i]);
    if (!any)
        inv_fail(inv, INV_DRAIN,
                 "%s is ordered away as %s, but no other live copy was seen and compared",
                 change->key, rule);
    if (failing && !is_failing(inv, place.node))
        inv_fail(inv, INV_DRAIN, "%s is ordered away as %s, which its node is not", change->key,
                 rule);
    if (inv_want(inv, place.item, inv_get(inv, LH_KIND_REPLICA, place.item), inv->wall_ms, &why) ==
        INV_UNDECIDED)
        inv_fail(inv, INV_DRAIN, "%s is ordered away, but %s", change->key, why);
}

static void on_commit(Inv *inv, const InvCommit *commit)
{
    for (guint i = 0; i < commit->n && commit->by == INV_BY_MANAGER; i++)
        if (inv_is_move(&commit->changes[i]))
            check_end(inv, commit, &commit->changes[i]);
}

/* ---- a second one comes ---- */

/* It was there already, under another id of the same node name. */
static gboolean comes_back(const InvCommit *commit, const InvPlace *place)
{
    for (guint i = 0; i < commit->n; i++) {
        const InvChange *change = &commit->changes[i];
        g_auto(InvPlace) other = {0};
        if (change->kind == LH_KIND_ASSIGNMENT && change->event->is_delete &&
            inv_place(change->name, &other) && strcmp(other.item, place->item) == 0 &&
            strcmp(other.host, place->host) == 0)
            return TRUE;
    }
    return FALSE;
}

static void check_second(Inv *inv, const InvCommit *commit, const InvChange *change)
{
    g_auto(InvPlace) place = {0};
    if (!inv_place(change->name, &place) || comes_back(commit, &place))
        return;
    g_autofree char *pool = lh_name_part(change->name, 0);
    const GPtrArray *names = inv_assignments_of(inv, pool, place.item);
    const char *other_name = NULL;
    inv_did(inv, INV_DRAIN);
    for (guint i = 0; names != NULL && i < names->len; i++) {
        g_auto(InvPlace) other = {0};
        g_autofree char *policy_name = NULL, *health_name = NULL;
        if (strcmp(names->pdata[i], change->name) == 0 || !inv_place(names->pdata[i], &other))
            continue;
        other_name = names->pdata[i];
        gboolean load = is_load(inv_get(inv, LH_KIND_ASSIGNMENT, other_name));
        const LhObject *policy = policy_of(inv, other.host, &policy_name);
        const LhObject *health = health_of(inv, other.node, &health_name);
        if (load && is_drained(inv, other.host) &&
            inv_relied_on(inv, INV_DRAIN, commit, LH_KIND_ACCEPTED, policy_name, policy->mod_rev))
            return;
        if (is_failing(inv, other.node) &&
            inv_relied_on(inv, INV_DRAIN, commit, LH_KIND_HEALTH, health_name, health->mod_rev))
            return;
    }
    if (other_name != NULL)
        inv_fail(inv, INV_DRAIN,
                 "%s is assigned twice: %s and %s, which neither drain nor failure moves",
                 place.item, change->name, other_name);
}

static void after(Inv *inv, const InvCommit *commit)
{
    if (commit->facts != NULL && commit->facts->unaware)
        return;
    for (guint i = 0; i < commit->n && commit->by == INV_BY_MANAGER; i++) {
        const InvChange *change = &commit->changes[i];
        if (change->kind == LH_KIND_ASSIGNMENT && change->before == NULL &&
            is_load(change->after) && inv_is_cache(change->name))
            check_second(inv, commit, change);
    }
}

const InvGroup inv_drain = {on_commit, after};
