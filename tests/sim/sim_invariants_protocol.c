/*
 * The node's side of the pool protocol, seen in etcd: what a node says hangs on its own registration's
 * lease, answers an assignment that is there, never goes back to an older one, says "live" and is
 * searchable only for data that is whole on its disk, and "evicted" or "failed" only when it holds
 * nothing. A node's id is registered once.
 */
#include "sim.h"

#include <string.h>

#define GROUP "protocol"

static gboolean whole_on_disk(Sim *sim, const char *node, const char *snapshot, const char *uri)
{
    g_autofree char *host = lh_node_name_of(node);
    SimProcess *process = host == NULL ? NULL : sim_process_of_node(sim, host);
    const SimData *data = process == NULL ? NULL : g_hash_table_lookup(process->disk, snapshot);
    return data != NULL && data->complete && (uri == NULL || strcmp(data->uri, uri) == 0);
}

static void check_lease(Sim *sim, const SimCommit *commit, const SimChange *change)
{
    g_autofree char *pool = lh_name_part(change->name, 0);
    g_autofree char *node = lh_name_part(change->name, 1);
    g_autofree char *name = g_strdup_printf("%s/%s", pool, node);
    g_autofree char *host = node == NULL ? NULL : lh_node_name_of(node);
    const LhObject *registration = sim_get(sim, LH_KIND_NODE, name);
    if (g_strcmp0(host, commit->by->name) != 0)
        sim_fail(sim, GROUP, "%s was written by %s", change->key, commit->by->client);
    else if (change->after != NULL && (registration == NULL || lh_object_lease(registration) !=
                                                                   lh_object_lease(change->after)))
        sim_fail(sim, GROUP, "%s does not hang on its node's registration", change->key);
}

static void check_answer(Sim *sim, const SimChange *change)
{
    const LhItem *item = (const LhItem *)change->after, *before = (const LhItem *)change->before;
    const LhObject *assignment = sim_get(sim, LH_KIND_ASSIGNMENT, change->name);
    if (assignment != NULL && item->assignment != assignment->mod_rev)
        sim_fail(sim, GROUP,
                 "%s answers revision %" G_GINT64_FORMAT
                 " of its assignment, which is at %" G_GINT64_FORMAT,
                 change->key, item->assignment, assignment->mod_rev);
    if (before != NULL && lh_object_known(&before->o) && before->assignment > item->assignment)
        sim_fail(sim, GROUP, "%s answers an older assignment than before", change->key);
}

static void check_item(Sim *sim, const SimCommit *commit, const SimChange *change)
{
    const LhItem *item = (const LhItem *)change->after;
    g_autofree char *node = lh_name_part(change->name, 1);
    g_autofree char *name = lh_name_part(change->name, 2);
    g_autofree char *snapshot = name == NULL ? NULL : sim_snapshot_of(name);
    const LhObject *assignment = sim_get(sim, LH_KIND_ASSIGNMENT, change->name);
    const char *id = commit->alive && commit->by->agent != NULL ? lh_agent_id(commit->by->agent)
                                                                : NULL;
    if (snapshot == NULL)
        return;
    check_answer(sim, change);
    if (item->state == LH_ITEM_LIVE) {
        const char *uri = assignment != NULL && lh_object_known(assignment)
                              ? ((const LhAssignment *)assignment)->uri
                              : NULL;
        if (!whole_on_disk(sim, node, snapshot, uri))
            sim_fail(sim, GROUP, "%s is called live; its data is not whole", change->key);
    } else if ((item->state == LH_ITEM_EVICTED || item->state == LH_ITEM_FAILED) &&
               g_strcmp0(id, node) == 0 && sim_work_holds(commit->by->work, name)) {
        sim_fail(sim, GROUP, "%s says %s; it is still held", change->key,
                 lh_item_state_name(item->state));
    }
}

/* A search key speaks of a live item of this node; both are written at once. */
static void check_search(Sim *sim, const SimChange *change)
{
    const LhSearch *search = (const LhSearch *)change->after;
    g_autofree char *node = lh_name_part(change->name, 1);
    g_autofree char *name = g_strdup_printf(LH_SIM_POOL "/%s/%s", node, search->replica);
    const LhItem *item = (const LhItem *)sim_get(sim, LH_KIND_ITEM, name);
    if (item == NULL || (lh_object_known(&item->o) && item->state != LH_ITEM_LIVE))
        sim_fail(sim, GROUP, "%s: %s is not live", change->key, name);
    if (!whole_on_disk(sim, node, search->snapshot, NULL))
        sim_fail(sim, GROUP, "%s is searchable; its data is not whole", change->key);
}

/* An item that stopped being live has no search key any more. */
static void check_hidden(Sim *sim, const SimChange *change)
{
    const LhItem *item = (const LhItem *)change->after;
    g_autofree char *node = lh_name_part(change->name, 1);
    g_autofree char *name = lh_name_part(change->name, 2);
    g_autofree char *snapshot = name == NULL ? NULL : sim_snapshot_of(name);
    g_autofree char *key = g_strdup_printf(LH_SIM_POOL "/%s/%s", node, snapshot);
    const LhSearch *search = (const LhSearch *)sim_get(sim, LH_KIND_SEARCH, key);
    if ((item != NULL && item->state == LH_ITEM_LIVE) || search == NULL ||
        !lh_object_known(&search->o) || change->before == NULL || !lh_object_known(change->before))
        return;
    if (strcmp(search->replica, name) == 0)
        sim_fail(sim, GROUP, "%s is %s, and still searchable", change->key,
                 item == NULL ? "gone" : lh_item_state_name(item->state));
}

/* It is created where there is none, and written over only by who holds its lease. */
static void check_registration(Sim *sim, const SimCommit *commit, const SimChange *change)
{
    const char *id = strchr(change->name, '/'), *key = change->event->kv.key;
    gint64 number = -1;
    gboolean compared = sim_compares(commit->commit, key,
                                     change->prev == NULL ? LH_CMP_CREATE : LH_CMP_LEASE, &number);
    if (!compared || number != (change->prev == NULL ? 0 : change->event->kv.lease))
        sim_fail(sim, GROUP, "%s is put without comparing it", change->key);
    if (change->before == NULL && id != NULL && g_hash_table_contains(sim->model.ids, id + 1))
        sim_fail(sim, GROUP, "%s is registered a second time", change->key);
}

static void on_commit(Sim *sim, const SimCommit *commit)
{
    for (guint i = 0; i < commit->n && commit->agent; i++) {
        const SimChange *change = &commit->changes[i];
        if (change->kind == LH_KIND_NODE && change->before == NULL && commit->alive)
            commit->by->timeline = fake_etcd_timeline(sim->server);
        if (change->kind == LH_KIND_NODE && change->after != NULL)
            check_registration(sim, commit, change);
    }
}

static void after(Sim *sim, const SimCommit *commit)
{
    if (!commit->agent || commit->commit->cause != FAKE_BY_TXN)
        return;
    for (guint i = 0; i < commit->n; i++) {
        const SimChange *change = &commit->changes[i];
        gboolean known = change->after != NULL && lh_object_known(change->after);
        if (change->kind == LH_KIND_ITEM || change->kind == LH_KIND_SEARCH ||
            change->kind == LH_KIND_NODE)
            check_lease(sim, commit, change);
        if (change->kind == LH_KIND_ITEM && known)
            check_item(sim, commit, change);
        if (change->kind == LH_KIND_ITEM && (known || change->after == NULL))
            check_hidden(sim, change);
        if (change->kind == LH_KIND_SEARCH && known)
            check_search(sim, change);
    }
}

const SimInvariants sim_invariants_protocol = {GROUP, on_commit, after};
