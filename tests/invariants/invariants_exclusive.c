/*
 * The exclusive pools: an item has one assignment at most; that ends only with an answer to it or with a
 * node that is said to have failed and is not registered; what failed is not begun again before its time.
 * A recovery task leaves in the commit that takes its done answer away, or because its range holds nothing.
 */
#include "invariants.h"

#include <string.h>

static const LhRecoveryTask *known_task(const LhObject *object)
{
    return object != NULL && lh_object_known(object) ? (const LhRecoveryTask *)object : NULL;
}

/* The state that the node said of the order as it was; -1: none that counts. */
static int answer(const Inv *inv, const InvChange *change)
{
    const LhItem *item = (const LhItem *)inv_get(inv, LH_KIND_ITEM, change->name);
    if (item == NULL || !lh_object_known(&item->o) || item->assignment != change->before->mod_rev)
        return -1;
    return item->state;
}

static void check_end(Inv *inv, const InvCommit *commit, const InvChange *change)
{
    g_autofree char *pool = lh_name_part(change->name, 0);
    g_autofree char *id = lh_name_part(change->name, 1);
    g_autofree char *node = g_strdup_printf("%s/%s", pool, id);
    const LhHealth *health = (const LhHealth *)inv_get(inv, LH_KIND_HEALTH, node);
    int said = answer(inv, change);
    const LhObject *item = inv_get(inv, LH_KIND_ITEM, change->name);
    inv_did(inv, INV_EXCLUSIVE);
    if (!lh_object_known(change->before)) {
        inv_fail(inv, INV_EXCLUSIVE, "%s was deleted; it did not parse", change->key);
        return;
    }
    if (said == LH_ITEM_EVICTED || said == LH_ITEM_FAILED || said == LH_ITEM_DONE) {
        if (!inv_relied_on(inv, INV_EXCLUSIVE, commit, LH_KIND_ITEM, change->name, item->mod_rev))
            inv_fail(inv, INV_EXCLUSIVE, "%s was deleted without comparing its node's answer",
                     change->key);
        return;
    }
    inv->counters.tasks_lost++;
    if (health == NULL || !lh_object_known(&health->o) || health->state != LH_HEALTH_FAILED)
        inv_fail(inv, INV_EXCLUSIVE,
                 "%s was deleted without an answer of its node, which has not failed", change->key);
    else if (inv_get(inv, LH_KIND_NODE, node) != NULL)
        inv_fail(inv, INV_EXCLUSIVE, "%s was deleted while its node is registered", change->key);
    else if (!inv_relied_on(inv, INV_EXCLUSIVE, commit, LH_KIND_NODE, node, 0) ||
             !inv_relied_on(inv, INV_EXCLUSIVE, commit, LH_KIND_HEALTH, node, health->o.mod_rev))
        inv_fail(inv, INV_EXCLUSIVE, "%s was deleted without comparing that its node has failed",
                 change->key);
}

/* ---- recovery tasks ---- */

static const InvChange *find_end(const InvCommit *commit, const char *task)
{
    for (guint i = 0; i < commit->n; i++) {
        const InvChange *change = &commit->changes[i];
        g_auto(InvPlace) place = {0};
        if (change->kind == LH_KIND_ASSIGNMENT && change->event->is_delete &&
            g_str_has_prefix(change->name, "recovery/") && inv_place(change->name, &place) &&
            strcmp(place.item, task) == 0)
            return change;
    }
    return NULL;
}

static void check_retired(Inv *inv, const InvCommit *commit, const InvChange *change)
{
    const LhRecoveryTask *task = known_task(change->before);
    const InvChange *end = find_end(commit, change->name);
    const LhAssignment *order = end == NULL ? NULL : (const LhAssignment *)end->before;
    inv_did(inv, INV_EXCLUSIVE);
    if (task == NULL)
        inv_fail(inv, INV_EXCLUSIVE, "%s was retired; it does not parse", change->key);
    else if (end == NULL && task->end_offset >= task->start_offset)
        inv_fail(inv, INV_EXCLUSIVE, "%s was retired; nobody has done it", change->key);
    else if (end != NULL && (!lh_object_known(&order->o) || answer(inv, end) != LH_ITEM_DONE))
        inv_fail(inv, INV_EXCLUSIVE, "%s was retired; its node did not say that it is done",
                 change->key);
    else if (end != NULL &&
             (g_strcmp0(order->partition, task->partition) != 0 ||
              order->start_offset != task->start_offset || order->end_offset != task->end_offset))
        inv_fail(inv, INV_EXCLUSIVE, "%s was retired; what was done is another range", change->key);
    inv->counters.tasks_done++;
}

/* An answer that no lease ends goes with its assignment, or after it. */
static void check_swept(Inv *inv, const InvCommit *commit, const InvChange *change)
{
    inv_did(inv, INV_EXCLUSIVE);
    if (lh_object_lease(change->before) != 0)
        inv_fail(inv, INV_EXCLUSIVE, "%s is its node's to delete", change->key);
    for (guint i = 0; i < commit->n; i++)
        if (commit->changes[i].kind == LH_KIND_ASSIGNMENT &&
            strcmp(commit->changes[i].name, change->name) == 0)
            return;
    if (inv_get(inv, LH_KIND_ASSIGNMENT, change->name) != NULL)
        inv_fail(inv, INV_EXCLUSIVE, "%s was deleted; its assignment is there", change->key);
}

/* ---- new orders ---- */

static void check_backoff(Inv *inv, const InvChange *change, const InvPlace *place,
                          const char *pool, const LhObject *task)
{
    g_autofree char *name = g_strdup_printf("%s/%s", pool, place->item);
    const LhRetry *retry = (const LhRetry *)inv_get(inv, LH_KIND_RETRY, name);
    if (retry == NULL || (task != NULL && task->mod_rev > retry->o.mod_rev))
        return;
    if (!lh_object_known(&retry->o))
        inv_fail(inv, INV_EXCLUSIVE, "%s: its retry does not parse", change->key);
    else if (retry->parked || retry->not_before > inv->wall_ms + inv->options.clock_ms)
        inv_fail(inv, INV_EXCLUSIVE, "%s: it failed %" G_GINT64_FORMAT " times and waits%s",
                 change->key, retry->attempt, retry->parked ? ", parked" : "");
}

static void check_begun(Inv *inv, const InvCommit *commit, const InvChange *change)
{
    const LhAssignment *order = (const LhAssignment *)change->after;
    g_autofree char *pool = lh_name_part(change->name, 0);
    g_auto(InvPlace) place = {0};
    if (!inv_place(change->name, &place)) {
        inv_fail(inv, INV_EXCLUSIVE, "%s: there can be no such place", change->key);
        return;
    }
    g_autofree char *node_name = g_strdup_printf("%s/%s", pool, place.node);
    const LhObject *node = inv_get(inv, LH_KIND_NODE, node_name);
    const LhRecoveryTask *task = known_task(inv_get(inv, LH_KIND_RECOVERYTASK, place.item));
    inv_did(inv, INV_EXCLUSIVE);
    if (node == NULL || !lh_object_known(node))
        inv_fail(inv, INV_EXCLUSIVE, "%s: its node is not registered", change->key);
    else if (!inv_relied_on(inv, INV_EXCLUSIVE, commit, LH_KIND_NODE, node_name, node->mod_rev))
        inv_fail(inv, INV_EXCLUSIVE, "%s: its node's registration was not compared", change->key);
    if (strcmp(pool, "recovery") != 0) {
        gboolean indexer = strcmp(pool, "indexer") == 0, manager = strcmp(pool, "manager") == 0;
        g_autofree char *accepted = g_strconcat(indexer ? "partitions/" : "seeds/", place.item,
                                                NULL);
        check_backoff(inv, change, &place, pool,
                      indexer || manager ? inv_get(inv, LH_KIND_ACCEPTED, accepted) : NULL);
        return;
    }
    inv->counters.tasks_begun++;
    check_backoff(inv, change, &place, pool, (const LhObject *)task);
    if (task == NULL)
        inv_fail(inv, INV_EXCLUSIVE, "%s: there is no such task", change->key);
    else if (g_strcmp0(order->partition, task->partition) != 0 ||
             order->start_offset != task->start_offset || order->end_offset != task->end_offset)
        inv_fail(inv, INV_EXCLUSIVE, "%s is not what its task says", change->key);
    else if (!inv_relied_on(inv, INV_EXCLUSIVE, commit, LH_KIND_RECOVERYTASK, place.item,
                            task->o.mod_rev))
        inv_fail(inv, INV_EXCLUSIVE, "%s: its task was not compared", change->key);
}

/* ---- the group ---- */

static void on_commit(Inv *inv, const InvCommit *commit)
{
    for (guint i = 0; i < commit->n && commit->by == INV_BY_MANAGER; i++) {
        const InvChange *change = &commit->changes[i];
        if (!change->event->is_delete || change->before == NULL || commit->by_lease)
            continue; /* a lease that failure-detector revoked takes the node's own keys with it */
        if (change->kind == LH_KIND_ASSIGNMENT && !inv_is_cache(change->name))
            check_end(inv, commit, change);
        else if (change->kind == LH_KIND_RECOVERYTASK)
            check_retired(inv, commit, change);
        else if (change->kind == LH_KIND_ITEM && !inv_is_cache(change->name))
            check_swept(inv, commit, change);
    }
}

static void after(Inv *inv, const InvCommit *commit)
{
    if (commit->facts != NULL && commit->facts->unaware)
        return; /* it knows of what is not there any more; its first answer tells it */
    for (guint i = 0; i < commit->n && commit->by == INV_BY_MANAGER; i++) {
        const InvChange *change = &commit->changes[i];
        if (change->kind == LH_KIND_ASSIGNMENT && !inv_is_cache(change->name) &&
            change->before == NULL && change->after != NULL && lh_object_known(change->after))
            check_begun(inv, commit, change);
    }
}

const InvGroup inv_exclusive = {on_commit, after};
