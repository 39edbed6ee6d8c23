/*
 * A node is said to be failed only when its registration has been gone for a full lease TTL, whatever the
 * leader's wall clock did meanwhile, and that is final.
 */
#include "invariants.h"

#include <string.h>

static void check_failed(Inv *inv, const InvChange *change)
{
    const LhHealth *health = (const LhHealth *)change->after;
    const gint64 *gone = g_hash_table_lookup(inv->gone_ms, change->name);
    if (inv_get(inv, LH_KIND_NODE, change->name) != NULL)
        inv_fail(inv, INV_HEALTH, "%s is called failed; it is registered", change->key);
    else if (gone != NULL && inv->now_ms - *gone < health->lease_ttl_ms)
        inv_fail(inv, INV_HEALTH, "%s is called failed %" G_GINT64_FORMAT " ms after it went",
                 change->key, inv->now_ms - *gone);
}

static void check_health(Inv *inv, const InvCommit *commit, const InvChange *change)
{
    const LhObject *node = inv_get(inv, LH_KIND_NODE, change->name);
    const LhHealth *before = (const LhHealth *)change->before;
    const LhHealth *after = (const LhHealth *)change->after;
    gboolean was_failed = before != NULL && lh_object_known(&before->o) &&
                          before->state == LH_HEALTH_FAILED;
    inv_did(inv, INV_HEALTH);
    if (was_failed && after != NULL && after->state != LH_HEALTH_FAILED)
        inv_fail(inv, INV_HEALTH, "%s was failed, which is final; it is called %s", change->key,
                 lh_health_state_name(after->state));
    if (after == NULL && !was_failed)
        inv_fail(inv, INV_HEALTH, "%s is forgotten before it failed", change->key);
    if (after != NULL && after->state == LH_HEALTH_FAILED && !was_failed)
        check_failed(inv, change);
    if (!inv_relied_on(inv, INV_HEALTH, commit, LH_KIND_NODE, change->name,
                       node == NULL ? 0 : node->mod_rev))
        inv_fail(inv, INV_HEALTH, "%s: the registration was not compared", change->key);
}

static void on_commit(Inv *inv, const InvCommit *commit)
{
    for (guint i = 0; i < commit->n && commit->by == INV_BY_MANAGER; i++) {
        const InvChange *change = &commit->changes[i];
        if (change->kind == LH_KIND_HEALTH &&
            (change->after == NULL || lh_object_known(change->after)))
            check_health(inv, commit, change);
    }
}

const InvGroup inv_health = {on_commit, NULL};
