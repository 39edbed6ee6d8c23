/*
 * Where items are: never on two nodes at once; taken from a node only when it answered or is gone,
 * and not before failureGrace; not again right after a failure; two replicas of a snapshot never on one node name; nothing placed
 * beyond a node's bytes and items, on a cordoned node, or for something that does not exist.
 */
#include "sim.h"

#include <string.h>

#define GROUP     "placement"
#define CORDON_MS 60000 /* by then every leader that may act has seen it */

static const LhNode *newest_node(const Sim *sim, const char *host)
{
    const LhNode *newest = NULL;
    GHashTableIter iter;
    gpointer value;
    g_hash_table_iter_init(&iter, sim->model.kinds[LH_KIND_NODE]);
    while (g_hash_table_iter_next(&iter, NULL, &value)) {
        const LhNode *node = value;
        if (lh_object_known(&node->o) && strcmp(node->node_name, host) == 0 &&
            (newest == NULL || node->o.create_rev > newest->o.create_rev))
            newest = node;
    }
    return newest;
}

static const LhObject *node_of(const Sim *sim, const char *node)
{
    g_autofree char *name = g_strconcat(LH_SIM_POOL "/", node, NULL);
    return sim_get(sim, LH_KIND_NODE, name);
}

/* ---- one place for an item, one item of a snapshot for a node name ---- */

static void check_alone(Sim *sim, const char *name)
{
    g_auto(SimPlace) place = {0};
    if (!sim_place(name, &place))
        return;
    const GPtrArray *names = sim_assignments_of(sim, place.item);
    g_autofree char *snapshot = sim_snapshot_of(place.item);
    if (names != NULL && names->len > 1)
        sim_fail(sim, GROUP, "%s is assigned twice: %s and %s", place.item, (char *)names->pdata[0],
                 (char *)names->pdata[1]);
    if (snapshot != NULL && sim_pair(sim, place.host, snapshot) > 1)
        sim_fail(sim, GROUP, "two replicas of %s are on %s, one as %s", snapshot, place.host, name);
}

/* ---- a new load ---- */

static gboolean beyond(const LhNode *node, SimUse used)
{
    gint64 room = node->capacity_bytes - node->capacity_bytes / 100 * SIM_RESERVE;
    gint64 slots = node->capacity_items - node->capacity_items * SIM_RESERVE / 100;
    return used.bytes > room || (node->capacity_items > 0 && used.items > slots);
}

static void check_room(Sim *sim, const char *name, const SimPlace *place, gint64 bytes)
{
    const LhNode *node = newest_node(sim, place->host);
    const LhNode *chosen = (const LhNode *)node_of(sim, place->node);
    SimUse used = sim_use(sim, place->host);
    /* A node that has just come back smaller is not known yet; the one that it was placed on is. */
    gboolean fitted = chosen != NULL && lh_object_known(&chosen->o) && !beyond(chosen, used);
    if (node != NULL && beyond(node, used) && !fitted)
        sim_fail(sim, GROUP,
                 "%s of %" G_GINT64_FORMAT " bytes: then %s holds %" G_GINT64_FORMAT
                 " of %" G_GINT64_FORMAT " bytes, %" G_GINT64_FORMAT " of %" G_GINT64_FORMAT
                 " items",
                 name, bytes, place->host, used.bytes, node->capacity_bytes, used.items,
                 node->capacity_items);
}

static void check_what(Sim *sim, const SimCommit *commit, const SimChange *change,
                       const SimPlace *place)
{
    const LhAssignment *load = (const LhAssignment *)change->after;
    const LhReplica *replica = (const LhReplica *)sim_get(sim, LH_KIND_REPLICA, place->item);
    const LhSnapshot *snapshot = load->snapshot == NULL
                                     ? NULL
                                     : (const LhSnapshot *)sim_get(sim, LH_KIND_SNAPSHOT,
                                                                   load->snapshot);
    const LhObject *node = node_of(sim, place->node);
    if (replica == NULL || !lh_object_known(&replica->o))
        sim_fail(sim, GROUP, "%s: there is no such replica", change->key);
    else if (snapshot == NULL || !lh_object_known(&snapshot->o) || snapshot->live)
        sim_fail(sim, GROUP, "%s: there is no such snapshot to load", change->key);
    else if (strcmp(replica->snapshot, load->snapshot) != 0 ||
             !lh_uri_is(&snapshot->uri, load->uri) || snapshot->size_bytes != load->size_bytes)
        sim_fail(sim, GROUP, "%s is not what its replica and snapshot say", change->key);
    else if (node == NULL || !lh_object_known(node))
        sim_fail(sim, GROUP, "%s: its node is not registered", change->key);
    else if (strcmp(((const LhNode *)node)->set, replica->set) != 0)
        sim_fail(sim, GROUP, "%s: its node is in set %s, not %s", change->key,
                 ((const LhNode *)node)->set, replica->set);
    else if (!sim_relied_on(commit->commit, LH_KIND_REPLICA, place->item, replica->o.mod_rev) ||
             !sim_relied_on(commit->commit, LH_KIND_SNAPSHOT, snapshot->o.name,
                            snapshot->o.mod_rev) ||
             !sim_relied_on(commit->commit, LH_KIND_NODE, node->name, node->mod_rev))
        sim_fail(sim, GROUP, "%s: replica, snapshot or registration was not compared", change->key);
}

/* After a failure the next attempt waits; a changed replica or snapshot ends the wait. */
static void check_backoff(Sim *sim, const SimChange *change, const SimPlace *place)
{
    const LhAssignment *load = (const LhAssignment *)change->after;
    g_autofree char *name = g_strconcat(LH_SIM_POOL "/", place->item, NULL);
    const LhRetry *retry = (const LhRetry *)sim_get(sim, LH_KIND_RETRY, name);
    const LhObject *replica = sim_get(sim, LH_KIND_REPLICA, place->item);
    const LhObject *snapshot = sim_get(sim, LH_KIND_SNAPSHOT, load->snapshot);
    if (retry == NULL || !lh_object_known(&retry->o) || replica == NULL || snapshot == NULL ||
        replica->mod_rev > retry->o.mod_rev || snapshot->mod_rev > retry->o.mod_rev)
        return;
    if (retry->parked || retry->not_before > sim_wall(sim) + SIM_CLOCK_MS)
        sim_fail(sim, GROUP,
                 "%s: it failed %" G_GINT64_FORMAT " times and waits for another %" G_GINT64_FORMAT
                 " ms%s",
                 change->key, retry->attempt, retry->not_before - sim_wall(sim),
                 retry->parked ? ", parked" : "");
}

/* The commit's other half of a move between two ids of one node name. */
static gboolean moves(const SimCommit *commit, const SimPlace *place, gboolean away)
{
    for (guint i = 0; i < commit->n; i++) {
        const SimChange *change = &commit->changes[i];
        g_auto(SimPlace) other = {0};
        if (change->kind == LH_KIND_ASSIGNMENT && change->event->is_delete == away &&
            sim_place(change->name, &other) && strcmp(other.item, place->item) == 0 &&
            strcmp(other.host, place->host) == 0)
            return TRUE;
    }
    return FALSE;
}

static void check_load(Sim *sim, const SimCommit *commit, const SimChange *change)
{
    const LhAssignment *load = (const LhAssignment *)change->after;
    g_auto(SimPlace) place = {0};
    if (!sim_place(change->name, &place)) {
        sim_fail(sim, GROUP, "%s: there can be no such place", change->key);
        return;
    }
    sim->counters.loads++;
    check_what(sim, commit, change, &place);
    if (moves(commit, &place, TRUE)) {
        sim->counters
            .moved_back++; /* it was counted there before, even if the node is smaller now */
    } else {
        check_room(sim, change->name, &place, load->size_bytes);
        check_backoff(sim, change, &place);
    }
    const gint64 *since = g_hash_table_lookup(sim->model.cordoned_ms, place.host);
    if (since != NULL && sim_now(sim) - *since > CORDON_MS && !commit->commit->late)
        sim_fail(sim, GROUP, "%s: its node has been cordoned for %" G_GINT64_FORMAT " ms",
                 change->key, sim_now(sim) - *since);
}

/* ---- the end of an assignment; the model is as it was before ---- */

static gboolean answered(const Sim *sim, const SimChange *change)
{
    const LhItem *item = (const LhItem *)sim_get(sim, LH_KIND_ITEM, change->name);
    return item != NULL && lh_object_known(&item->o) &&
           item->assignment == change->before->mod_rev &&
           (item->state == LH_ITEM_EVICTED || item->state == LH_ITEM_FAILED ||
            item->state == LH_ITEM_DONE);
}

/* Its registration may be gone again by now, but not its size. */
static gboolean came_back_smaller(Sim *sim, const char *host)
{
    const LhNode *back = newest_node(sim, host);
    const SimProcess *process = sim_process_of_node(sim, host);
    SimUse used = sim_use(sim, host);
    return (back != NULL && beyond(back, used)) ||
           (process != NULL && used.bytes > process->capacity_bytes / 100 * (100 - SIM_RESERVE));
}

/* A wanted item waits failureGrace for its node's return, unless it came back with less room. */
static void check_grace(Sim *sim, const SimCommit *commit, const SimChange *change,
                        const SimPlace *place)
{
    const gint64 *gone = g_hash_table_lookup(sim->model.gone_ms, place->node);
    const LhObject *replica = sim_get(sim, LH_KIND_REPLICA, place->item);
    SimWant want = sim_want(sim, place->item, replica, sim_wall(sim) + SIM_CLOCK_MS, NULL);
    if (came_back_smaller(sim, place->host))
        return;
    /* Who has not noticed yet that etcd was restored counts from when the node went the first time. */
    if (commit->by->timeline != fake_etcd_timeline(sim->server))
        return;
    if (gone == NULL || want != SIM_WANTED || moves(commit, place, FALSE) ||
        ((const LhAssignment *)change->before)->action != LH_ACTION_LOAD)
        return;
    if (sim_now(sim) - *gone < SIM_GRACE_MS - 2 * SIM_CLOCK_MS)
        sim_fail(sim, GROUP,
                 "%s was taken from its lost node after %" G_GINT64_FORMAT
                 " ms, within failureGrace",
                 change->key, sim_now(sim) - *gone);
}

static void check_end(Sim *sim, const SimCommit *commit, const SimChange *change)
{
    g_auto(SimPlace) place = {0};
    if (!sim_place(change->name, &place) || !lh_object_known(change->before))
        return;
    g_autofree char *registration = g_strconcat(LH_SIM_POOL "/", place.node, NULL);
    gboolean gone = sim_relied_on(commit->commit, LH_KIND_NODE, registration, 0);
    if (answered(sim, change)) {
        sim->counters.evicted++;
        /* An answer may outlive its node, when somebody deleted the registration alone. */
        if (!gone && !moves(commit, &place, FALSE) &&
            !sim_relied_on(commit->commit, LH_KIND_ITEM, change->name,
                           sim_get(sim, LH_KIND_ITEM, change->name)->mod_rev))
            sim_fail(sim, GROUP, "%s was deleted without comparing its node's answer", change->key);
        return;
    }
    if (node_of(sim, place.node) != NULL) {
        sim_fail(sim, GROUP, "%s was deleted without an answer of its node, which is registered",
                 change->key);
        return;
    }
    sim->counters.lost++;
    if (!gone && !moves(commit, &place, FALSE))
        sim_fail(sim, GROUP, "%s was deleted without comparing that its node is gone", change->key);
    check_grace(sim, commit, change, &place);
}

static void on_commit(Sim *sim, const SimCommit *commit)
{
    for (guint i = 0; i < commit->n && commit->manager; i++) {
        const SimChange *change = &commit->changes[i];
        if (change->kind == LH_KIND_ASSIGNMENT && change->event->is_delete)
            check_end(sim, commit, change);
    }
}

static void after(Sim *sim, const SimCommit *commit)
{
    /* Who has not noticed yet that etcd was restored knows of assignments that are not there any more,
     * and not of those that are there again. Its first answer tells it. */
    if (commit->manager && commit->by->timeline != fake_etcd_timeline(sim->server))
        return;
    for (guint i = 0; i < commit->n && commit->manager && !sim->failed; i++) {
        const SimChange *change = &commit->changes[i];
        if (change->kind != LH_KIND_ASSIGNMENT || change->after == NULL)
            continue;
        if (change->before == NULL && lh_object_known(change->after))
            check_load(sim, commit, change);
        check_alone(sim, change->name);
    }
}

const SimInvariants sim_invariants_placement = {GROUP, on_commit, after};
