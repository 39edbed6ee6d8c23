/*
 * What cluster-monitor takes back is a load that its node has begun, has not finished, and was ordered at
 * least stuckLoading ago. It evicts nothing else.
 */
#include "invariants.h"

#include <string.h>

static void check_taken_back(Inv *inv, const InvCommit *commit, const InvChange *change)
{
    const LhAssignment *before = (const LhAssignment *)change->before;
    const LhItem *item = (const LhItem *)inv_get(inv, LH_KIND_ITEM, change->name);
    gint64 limit = inv->least_stuck_ms;
    inv->counters.taken_back++;
    inv_did(inv, INV_MONITOR);
    if (before == NULL || !lh_object_known(&before->o) || before->action != LH_ACTION_LOAD)
        inv_fail(inv, INV_MONITOR, "%s is taken back; it was no load", change->key);
    else if (item == NULL || !lh_object_known(&item->o) || item->state != LH_ITEM_LOADING ||
             item->assignment != before->o.mod_rev)
        inv_fail(inv, INV_MONITOR, "%s is taken back; it is not loading", change->key);
    else if (commit->wall_ms - before->since < limit - 2 * inv->options.clock_ms)
        inv_fail(inv, INV_MONITOR, "%s is taken back %" G_GINT64_FORMAT " ms after it was ordered",
                 change->key, commit->wall_ms - before->since);
    if (item != NULL &&
        !inv_relied_on(inv, INV_MONITOR, commit, LH_KIND_ITEM, change->name, item->o.mod_rev))
        inv_fail(inv, INV_MONITOR, "%s: its item was not compared", change->key);
}

static void on_commit(Inv *inv, const InvCommit *commit)
{
    for (guint i = 0; i < commit->n && commit->by == INV_BY_MANAGER; i++) {
        const InvChange *change = &commit->changes[i];
        const LhAssignment *after = (const LhAssignment *)change->after;
        if (change->kind == LH_KIND_ASSIGNMENT && after != NULL && lh_object_known(&after->o) &&
            g_strcmp0(after->controller, "cluster-monitor") == 0)
            check_taken_back(inv, commit, change);
    }
}

const InvGroup inv_monitor = {on_commit, NULL};
