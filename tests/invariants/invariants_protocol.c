/*
 * The node's side of the pool protocol, seen in etcd: what a node says hangs on its own registration's
 * lease, answers an assignment that is there and never goes back to an older one; it is searchable only
 * for what is live; its id is registered once. What it says of its disk is checked by the simulation
 * (sim_invariants_protocol.c).
 */
#include "invariants.h"

#include <string.h>

static void check_lease(Inv *inv, const InvCommit *commit, const InvChange *change)
{
    g_autofree char *pool = lh_name_part(change->name, 0);
    g_autofree char *node = lh_name_part(change->name, 1);
    g_autofree char *name = g_strdup_printf("%s/%s", pool, node);
    g_autofree char *host = node == NULL ? NULL : lh_node_name_of(node);
    const LhObject *registration = inv_get(inv, LH_KIND_NODE, name);
    /* What an exclusive node has done outlives it. */
    gboolean free = change->kind == LH_KIND_ITEM && change->after != NULL &&
                    !inv_is_cache(change->name) && lh_object_known(change->after) &&
                    ((const LhItem *)change->after)->state == LH_ITEM_DONE;
    gint64 lease = registration == NULL || free ? 0 : lh_object_lease(registration);
    const InvFacts *facts = inv_facts(inv, INV_PROTOCOL, commit);
    inv_did(inv, INV_PROTOCOL);
    if (facts != NULL && g_strcmp0(host, facts->host) != 0)
        inv_fail(inv, INV_PROTOCOL, "%s was written by %s", change->key, facts->client);
    else if (change->after != NULL &&
             (registration == NULL || lease != lh_object_lease(change->after)))
        inv_fail(inv, INV_PROTOCOL, "%s does not hang on its node's registration", change->key);
}

static void check_answer(Inv *inv, const InvChange *change)
{
    const LhItem *item = (const LhItem *)change->after, *before = (const LhItem *)change->before;
    const LhObject *assignment = inv_get(inv, LH_KIND_ASSIGNMENT, change->name);
    if (assignment != NULL && item->assignment != assignment->mod_rev)
        inv_fail(inv, INV_PROTOCOL,
                 "%s answers revision %" G_GINT64_FORMAT
                 " of its assignment, which is at %" G_GINT64_FORMAT,
                 change->key, item->assignment, assignment->mod_rev);
    if (before != NULL && lh_object_known(&before->o) && before->assignment > item->assignment)
        inv_fail(inv, INV_PROTOCOL, "%s answers an older assignment than before", change->key);
}

/* A search key speaks of a live item of this node, and says where it is served; both are written at once. */
static void check_search(Inv *inv, const InvChange *change)
{
    const LhSearch *search = (const LhSearch *)change->after;
    g_autofree char *node = lh_name_part(change->name, 1);
    g_autofree char *name = g_strdup_printf(INV_POOL "/%s/%s", node,
                                            search->replica == NULL ? "" : search->replica);
    const LhItem *item = (const LhItem *)inv_get(inv, LH_KIND_ITEM, name);
    if (item == NULL || (lh_object_known(&item->o) && item->state != LH_ITEM_LIVE))
        inv_fail(inv, INV_PROTOCOL, "%s: %s is not live", change->key, name);
    if (search->url == NULL)
        inv_fail(inv, INV_PROTOCOL, "%s does not say where %s is served", change->key, name);
}

/* What begins to be live begins to be searchable: a node that says it before it holds the data could not. */
static void check_shown(Inv *inv, const InvChange *change)
{
    const LhItem *item = (const LhItem *)change->after, *before = (const LhItem *)change->before;
    g_autofree char *node = lh_name_part(change->name, 1);
    g_autofree char *name = lh_name_part(change->name, 2);
    g_autofree char *snapshot = name == NULL ? NULL : inv_snapshot_of(name);
    g_autofree char *key = g_strdup_printf(INV_POOL "/%s/%s", node, snapshot);
    if (item->state == LH_ITEM_LIVE && snapshot != NULL &&
        (before == NULL || (lh_object_known(&before->o) && before->state != LH_ITEM_LIVE)) &&
        inv_get(inv, LH_KIND_SEARCH, key) == NULL)
        inv_fail(inv, INV_PROTOCOL, "%s is live, and not searchable", change->key);
}

/* An item that stopped being live has no search key any more. */
static void check_hidden(Inv *inv, const InvChange *change)
{
    const LhItem *item = (const LhItem *)change->after;
    g_autofree char *node = lh_name_part(change->name, 1);
    g_autofree char *name = lh_name_part(change->name, 2);
    g_autofree char *snapshot = name == NULL ? NULL : inv_snapshot_of(name);
    g_autofree char *key = g_strdup_printf(INV_POOL "/%s/%s", node, snapshot);
    const LhSearch *search = (const LhSearch *)inv_get(inv, LH_KIND_SEARCH, key);
    if ((item != NULL && item->state == LH_ITEM_LIVE) || search == NULL ||
        !lh_object_known(&search->o) || change->before == NULL || !lh_object_known(change->before))
        return;
    if (g_strcmp0(search->replica, name) == 0)
        inv_fail(inv, INV_PROTOCOL, "%s is %s, and still searchable", change->key,
                 item == NULL ? "gone" : lh_item_state_name(item->state));
}

/* It is created where there is none, and written over only by who holds its lease. */
static void check_registration(Inv *inv, const InvCommit *commit, const InvChange *change)
{
    const char *key = change->event->kv.key;
    const InvFacts *facts = inv_facts(inv, INV_PROTOCOL, commit);
    LhCompareTarget target = change->prev == NULL ? LH_CMP_CREATE : LH_CMP_LEASE;
    gint64 number = -1, lease = change->prev == NULL ? 0 : change->event->kv.lease;
    if (facts != NULL && (!inv_compares(facts->compares, facts->n_compares, key, target, &number) ||
                          number != lease))
        inv_fail(inv, INV_PROTOCOL, "%s is put without comparing it", change->key);
    if (change->prev != NULL && change->prev->lease != change->event->kv.lease)
        inv_fail(inv, INV_PROTOCOL, "%s is put by who does not hold its lease", change->key);
    if (change->before == NULL && g_hash_table_contains(inv->ids, change->name))
        inv_fail(inv, INV_PROTOCOL, "%s is registered a second time", change->key);
}

static void on_commit(Inv *inv, const InvCommit *commit)
{
    for (guint i = 0; i < commit->n && commit->by == INV_BY_AGENT; i++) {
        const InvChange *change = &commit->changes[i];
        if (change->kind == LH_KIND_NODE && change->after != NULL)
            check_registration(inv, commit, change);
    }
}

static void after(Inv *inv, const InvCommit *commit)
{
    if (commit->by != INV_BY_AGENT || commit->by_lease || commit->by_hand)
        return;
    for (guint i = 0; i < commit->n; i++) {
        const InvChange *change = &commit->changes[i];
        gboolean known = change->after != NULL && lh_object_known(change->after);
        if (change->kind == LH_KIND_ITEM || change->kind == LH_KIND_SEARCH ||
            change->kind == LH_KIND_NODE)
            check_lease(inv, commit, change);
        if (change->kind == LH_KIND_ITEM && known) {
            check_answer(inv, change);
            check_shown(inv, change);
        }
        if (change->kind == LH_KIND_ITEM && (known || change->after == NULL))
            check_hidden(inv, change);
        if (change->kind == LH_KIND_SEARCH && known)
            check_search(inv, change);
    }
}

const InvGroup inv_protocol = {on_commit, after};
