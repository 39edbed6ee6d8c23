/*
 * Where items are: taken from a node only when it answered or is gone,
 * and not before failureGrace; not again right after a failure; two replicas of a snapshot never on one node name; nothing placed
 * beyond a node's bytes and items, nor regular ones in the reserve or restored ones outside it, on a cordoned node, or for something that does not exist.
 */
#include "invariants.h"

#include <string.h>

#define CORDON_MS 60000 /* by then every leader that may act has seen it */

static gboolean unaware(const InvCommit *commit)
{
    return commit->facts != NULL && commit->facts->unaware;
}

static const LhNode *newest_node(const Inv *inv, const char *host)
{
    const LhNode *newest = NULL;
    GHashTableIter iter;
    gpointer value;
    g_hash_table_iter_init(&iter, inv->kinds[LH_KIND_NODE]);
    while (g_hash_table_iter_next(&iter, NULL, &value)) {
        const LhNode *node = value;
        if (lh_object_known(&node->o) && strcmp(node->node_name, host) == 0 &&
            (newest == NULL || node->o.create_rev > newest->o.create_rev))
            newest = node;
    }
    return newest;
}

/* ---- one item of a snapshot for a node name ---- */

static void check_alone(Inv *inv, const char *name)
{
    g_auto(InvPlace) place = {0};
    if (!inv_place(name, &place))
        return;
    g_autofree char *snapshot = inv_is_cache(name) ? inv_snapshot_of(place.item) : NULL;
    if (snapshot != NULL && inv_pair(inv, place.host, snapshot) > 1)
        inv_fail(inv, INV_PLACEMENT, "two replicas of %s are on %s, one as %s", snapshot,
                 place.host, name);
}

/* ---- a new load ---- */

/* One class has more than its share, or both together more than there is. A node that came back smaller may
 * have too much of one, until that is given up, and take the other. */
static gboolean class_beyond(const Inv *inv, const LhNode *node, InvUse used, gboolean restored)
{
    gint64 room = node->capacity_bytes - node->capacity_bytes / 100 * inv->least_reserve;
    gint64 slots = node->capacity_items - node->capacity_items * inv->least_reserve / 100;
    gint64 bytes = restored ? used.restored_bytes : used.bytes;
    gint64 items = restored ? used.restored_items : used.items;
    if (restored) {
        room = (gint64)((double)node->capacity_bytes * (double)inv->most_reserve / 100);
        slots = node->capacity_items * inv->most_reserve / 100;
    }
    return bytes > room || used.bytes + used.restored_bytes > node->capacity_bytes ||
           (node->capacity_items > 0 &&
            (items > slots || used.items + used.restored_items > node->capacity_items));
}

static gboolean beyond(const Inv *inv, const LhNode *node, InvUse used)
{
    return class_beyond(inv, node, used, FALSE) || class_beyond(inv, node, used, TRUE);
}

static void check_room(Inv *inv, const char *name, const InvPlace *place, gint64 bytes)
{
    const LhNode *node = newest_node(inv, place->host);
    const LhNode *chosen = (const LhNode *)inv_node(inv, place->node);
    InvUse used = inv_use(inv, place->host);
    gboolean restored = inv_is_restored(place->item);
    /* A node that has just come back smaller is not known yet; the one that it was placed on is. */
    gboolean fitted = chosen != NULL && lh_object_known(&chosen->o) &&
                      !class_beyond(inv, chosen, used, restored);
    if (node != NULL && class_beyond(inv, node, used, restored) && !fitted)
        inv_fail(inv, INV_PLACEMENT,
                 "%s of %" G_GINT64_FORMAT " bytes: then %s holds %" G_GINT64_FORMAT
                 "+%" G_GINT64_FORMAT " of %" G_GINT64_FORMAT " bytes, %" G_GINT64_FORMAT
                 "+%" G_GINT64_FORMAT " of %" G_GINT64_FORMAT " items (regular and restored)",
                 name, bytes, place->host, used.bytes, used.restored_bytes, node->capacity_bytes,
                 used.items, used.restored_items, node->capacity_items);
}

static void check_what(Inv *inv, const InvCommit *commit, const InvChange *change,
                       const InvPlace *place)
{
    const LhAssignment *load = (const LhAssignment *)change->after;
    const LhReplica *replica = (const LhReplica *)inv_get(inv, LH_KIND_REPLICA, place->item);
    const LhSnapshot *snapshot = load->snapshot == NULL
                                     ? NULL
                                     : (const LhSnapshot *)inv_get(inv, LH_KIND_SNAPSHOT,
                                                                   load->snapshot);
    const LhObject *node = inv_node(inv, place->node);
    if (replica == NULL || !lh_object_known(&replica->o))
        inv_fail(inv, INV_PLACEMENT, "%s: there is no such replica", change->key);
    else if (snapshot == NULL || !lh_object_known(&snapshot->o) || snapshot->live)
        inv_fail(inv, INV_PLACEMENT, "%s: there is no such snapshot to load", change->key);
    else if (strcmp(replica->snapshot, load->snapshot) != 0 ||
             !lh_uri_is(&snapshot->uri, load->uri) || snapshot->size_bytes != load->size_bytes)
        inv_fail(inv, INV_PLACEMENT, "%s is not what its replica and snapshot say", change->key);
    else if (node == NULL || !lh_object_known(node))
        inv_fail(inv, INV_PLACEMENT, "%s: its node is not registered", change->key);
    else if (strcmp(((const LhNode *)node)->set, replica->set) != 0)
        inv_fail(inv, INV_PLACEMENT, "%s: its node is in set %s, not %s", change->key,
                 ((const LhNode *)node)->set, replica->set);
    else if (!inv_relied_on(inv, INV_PLACEMENT, commit, LH_KIND_REPLICA, place->item,
                            replica->o.mod_rev) ||
             !inv_relied_on(inv, INV_PLACEMENT, commit, LH_KIND_SNAPSHOT, snapshot->o.name,
                            snapshot->o.mod_rev) ||
             !inv_relied_on(inv, INV_PLACEMENT, commit, LH_KIND_NODE, node->name, node->mod_rev))
        inv_fail(inv, INV_PLACEMENT, "%s: replica, snapshot or registration was not compared",
                 change->key);
}

/* After a failure the next attempt waits; a changed replica or snapshot ends the wait. */
static void check_backoff(Inv *inv, const InvChange *change, const InvPlace *place)
{
    const LhAssignment *load = (const LhAssignment *)change->after;
    g_autofree char *name = g_strconcat(INV_POOL "/", place->item, NULL);
    const LhRetry *retry = (const LhRetry *)inv_get(inv, LH_KIND_RETRY, name);
    const LhObject *replica = inv_get(inv, LH_KIND_REPLICA, place->item);
    const LhObject *snapshot = load->snapshot == NULL
                                   ? NULL
                                   : inv_get(inv, LH_KIND_SNAPSHOT, load->snapshot);
    if (retry == NULL || !lh_object_known(&retry->o) || replica == NULL || snapshot == NULL ||
        replica->mod_rev > retry->o.mod_rev || snapshot->mod_rev > retry->o.mod_rev)
        return;
    if (retry->parked || retry->not_before > inv->wall_ms + inv->options.clock_ms)
        inv_fail(inv, INV_PLACEMENT,
                 "%s: it failed %" G_GINT64_FORMAT " times and waits for another %" G_GINT64_FORMAT
                 " ms%s",
                 change->key, retry->attempt, retry->not_before - inv->wall_ms,
                 retry->parked ? ", parked" : "");
}

/* The commit's other half of a move between two ids of one node name. */
static gboolean moves(const InvCommit *commit, const InvPlace *place, gboolean away)
{
    for (guint i = 0; i < commit->n; i++) {
        const InvChange *change = &commit->changes[i];
        g_auto(InvPlace) other = {0};
        if (change->kind == LH_KIND_ASSIGNMENT && change->event->is_delete == away &&
            inv_place(change->name, &other) && strcmp(other.item, place->item) == 0 &&
            strcmp(other.host, place->host) == 0)
            return TRUE;
    }
    return FALSE;
}

static void check_load(Inv *inv, const InvCommit *commit, const InvChange *change)
{
    const LhAssignment *load = (const LhAssignment *)change->after;
    g_auto(InvPlace) place = {0};
    if (!inv_place(change->name, &place)) {
        inv_fail(inv, INV_PLACEMENT, "%s: there can be no such place", change->key);
        return;
    }
    inv->counters.loads++;
    inv_did(inv, INV_PLACEMENT);
    check_what(inv, commit, change, &place);
    if (moves(commit, &place, TRUE)) {
        /* It was counted there before, even if the node is smaller now. */
        inv->counters.moved_back++;
    } else {
        check_room(inv, change->name, &place, load->size_bytes);
        check_backoff(inv, change, &place);
    }
    const gint64 *since = g_hash_table_lookup(inv->cordoned_ms, place.host);
    gint64 late = commit->facts == NULL ? inv->options.late_ms : 0;
    if (since != NULL && !commit->late && commit->earliest_ms - *since > CORDON_MS + late)
        inv_fail(inv, INV_PLACEMENT, "%s: its node has been cordoned for %" G_GINT64_FORMAT " ms",
                 change->key, commit->earliest_ms - *since);
}

/* ---- the end of an assignment; the model is as it was before ---- */

static gboolean answered(const Inv *inv, const InvChange *change)
{
    const LhItem *item = (const LhItem *)inv_get(inv, LH_KIND_ITEM, change->name);
    return item != NULL && lh_object_known(&item->o) &&
           item->assignment == change->before->mod_rev &&
           (item->state == LH_ITEM_EVICTED || item->state == LH_ITEM_FAILED ||
            item->state == LH_ITEM_DONE);
}

/* Its registration may be gone again by now, but not its size. */
static gboolean came_back_smaller(const Inv *inv, const char *host)
{
    const LhNode *back = newest_node(inv, host);
    const LhNode *last = g_hash_table_lookup(inv->sizes, host);
    InvUse used = inv_use(inv, host);
    return (back != NULL && beyond(inv, back, used)) || (last != NULL && beyond(inv, last, used));
}

/* A wanted item waits failureGrace for its node's return, unless it came back with less room. */
static void check_grace(Inv *inv, const InvCommit *commit, const InvChange *change,
                        const InvPlace *place)
{
    g_autofree char *node = g_strconcat(INV_POOL "/", place->node, NULL);
    const gint64 *gone = g_hash_table_lookup(inv->gone_ms, node);
    const LhObject *replica = inv_get(inv, LH_KIND_REPLICA, place->item);
    InvWant want = inv_want(inv, place->item, replica, inv->wall_ms + inv->options.clock_ms, NULL);
    if (came_back_smaller(inv, place->host))
        return;
    /* Who has not noticed yet that etcd was restored counts from when the node went the first time. */
    if (unaware(commit))
        return;
    if (gone == NULL || want != INV_WANTED || moves(commit, place, FALSE) ||
        ((const LhAssignment *)change->before)->action != LH_ACTION_LOAD)
        return;
    if (inv->now_ms - *gone < inv->least_grace_ms - 2 * inv->options.clock_ms)
        inv_fail(inv, INV_PLACEMENT,
                 "%s was taken from its lost node after %" G_GINT64_FORMAT
                 " ms, within failureGrace",
                 change->key, inv->now_ms - *gone);
}

static void check_end(Inv *inv, const InvCommit *commit, const InvChange *change)
{
    g_auto(InvPlace) place = {0};
    if (!inv_place(change->name, &place) || !lh_object_known(change->before))
        return;
    inv_did(inv, INV_PLACEMENT);
    g_autofree char *registration = g_strconcat(INV_POOL "/", place.node, NULL);
    gboolean gone = inv_relied_on(inv, INV_PLACEMENT, commit, LH_KIND_NODE, registration, 0);
    if (answered(inv, change)) {
        inv->counters.evicted++;
        /* An answer may outlive its node, when somebody deleted the registration alone. */
        if (!gone && !moves(commit, &place, FALSE) &&
            !inv_relied_on(inv, INV_PLACEMENT, commit, LH_KIND_ITEM, change->name,
                           inv_get(inv, LH_KIND_ITEM, change->name)->mod_rev))
            inv_fail(inv, INV_PLACEMENT, "%s was deleted without comparing its node's answer",
                     change->key);
        return;
    }
    if (inv_node(inv, place.node) != NULL) {
        inv_fail(inv, INV_PLACEMENT,
                 "%s was deleted without an answer of its node, which is registered", change->key);
        return;
    }
    inv->counters.lost++;
    if (!gone && !moves(commit, &place, FALSE))
        inv_fail(inv, INV_PLACEMENT, "%s was deleted without comparing that its node is gone",
                 change->key);
    check_grace(inv, commit, change, &place);
}

static void on_commit(Inv *inv, const InvCommit *commit)
{
    for (guint i = 0; i < commit->n && commit->by == INV_BY_MANAGER; i++) {
        const InvChange *change = &commit->changes[i];
        if (change->kind == LH_KIND_ASSIGNMENT && change->event->is_delete &&
            inv_is_cache(change->name))
            check_end(inv, commit, change);
    }
}

static void after(Inv *inv, const InvCommit *commit)
{
    /* Who has not noticed yet that etcd was restored knows of assignments that are not there any more,
     * and not of those that are there again. Its first answer tells it. */
    if (unaware(commit))
        return;
    for (guint i = 0; i < commit->n && commit->by == INV_BY_MANAGER; i++) {
        const InvChange *change = &commit->changes[i];
        if (change->kind != LH_KIND_ASSIGNMENT || change->after == NULL)
            continue;
        if (change->before == NULL && lh_object_known(change->after) && inv_is_cache(change->name))
            check_load(inv, commit, change);
        check_alone(inv, change->name);
    }
}

const InvGroup inv_placement = {on_commit, after};
