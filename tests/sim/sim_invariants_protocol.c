/*
 * What a node says, against its disk: "live" and searchable only for data that is whole, "evicted" or
 * "failed" only when it holds nothing.
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

static void check_item(Sim *sim, const SimCommit *commit, const SimChange *change)
{
    const LhItem *item = (const LhItem *)change->after;
    g_autofree char *node = lh_name_part(change->name, 1);
    g_autofree char *name = lh_name_part(change->name, 2);
    g_autofree char *snapshot = name == NULL ? NULL : inv_snapshot_of(name);
    const LhObject *assignment = sim_get(sim, LH_KIND_ASSIGNMENT, change->name);
    const char *id = commit->alive && commit->by->agent != NULL ? lh_agent_id(commit->by->agent)
                                                                : NULL;
    if (snapshot == NULL)
        return;
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

static void check_search(Sim *sim, const SimChange *change)
{
    const LhSearch *search = (const LhSearch *)change->after;
    g_autofree char *node = lh_name_part(change->name, 1);
    if (!whole_on_disk(sim, node, search->snapshot, NULL))
        sim_fail(sim, GROUP, "%s is searchable; its data is not whole", change->key);
}

static void on_commit(Sim *sim, const SimCommit *commit)
{
    for (guint i = 0; i < commit->n && commit->agent && commit->alive; i++) {
        const SimChange *change = &commit->changes[i];
        if (change->kind == LH_KIND_NODE && change->before == NULL)
            commit->by->timeline = fake_etcd_timeline(sim->server);
    }
}

static void after(Sim *sim, const SimCommit *commit)
{
    if (!commit->agent || commit->commit->cause != FAKE_BY_TXN)
        return;
    for (guint i = 0; i < commit->n; i++) {
        const SimChange *change = &commit->changes[i];
        gboolean known = change->after != NULL && lh_object_known(change->after);
        if (change->kind == LH_KIND_ITEM && known)
            check_item(sim, commit, change);
        if (change->kind == LH_KIND_SEARCH && known)
            check_search(sim, change);
    }
}

const SimInvariants sim_invariants_protocol = {GROUP, on_commit, after};
