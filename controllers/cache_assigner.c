/*
 * cache-assigner: every replica on a node that has room for it, freshest first; nothing live moves without
 * a reason.
 *
 * Alone creates and deletes assignments of the cache pool. Takes away what a node answered (evicted,
 * failed) or what its loss left behind, keeps retries, and deletes unassigned replicas that are expired or
 * not wanted: whoever creates assignments also deletes replicas, so the two cannot race.
 */
#include "base/planted.h"
#include "controllers/attempts.h"
#include "controllers/cache_drain.h"
#include "controllers/cache_rules.h"
#include "controllers/capacity.h"
#include "controllers/registry.h"

#include <math.h>
#include <string.h>

typedef struct {
    const LhFleet *fleet;
    const LhPlanContext *context;
    const LhSettings *settings;
    LhPlan *plan;
    LhPlacement *placement; /* made when first needed */
    GHashTable *placed;     /* LhFleetSnapshot -> GPtrArray of LhFleetNode placed by this plan */
    GHashTable *scattered;  /* set -> Scattered */
    GPtrArray *hosts, *zones, *warm; /* of the item that is being placed */
    LhDrainTally *drains;
    gint64 evict_grace_ms;
    gboolean left; /* something that may be placed was not */
} Round;

/* What no single node has room for. */
typedef struct {
    gint64 items, bytes;
} Scattered;

static gboolean full(Round *round)
{
    if (lh_plan_groups(round->plan) < round->context->max_groups)
        return FALSE;
    round->plan->more = TRUE;
    return TRUE;
}

static LhPlacement *placement(Round *round)
{
    if (round->placement == NULL)
        round->placement = lh_capacity_placement(round->fleet);
    return round->placement;
}

/* To who watches its service; of a replica that is gone too there may be none. */
static void tell(Round *round, const LhFleetReplica *replica, const char *what, const char *node)
{
    const LhReplica *object = (const LhReplica *)replica->object;
    const LhFleetSnapshot *snapshot = replica->snapshot;
    const char *service = object != NULL && lh_object_known(&object->o)   ? object->service
                          : snapshot != NULL && snapshot->service != NULL ? snapshot->service->name
                                                                          : NULL;

    if (service != NULL)
        lh_plan_event(round->plan, LH_EVENT_NORMAL, what, LH_KIND_SERVICE, service,
                      "replica %s, node %s", replica->name, node);
}

static void load(Round *round, const LhFleetReplica *replica, const LhFleetNode *node,
                 const char *rule, const char *reason)
{
    const LhSnapshot *snapshot = lh_fleet_snapshot_object(replica->snapshot);
    g_autofree char *name = g_strconcat(LH_POOL_CACHE "/", node->id, "/", replica->name, NULL);
    g_autofree char *registration = g_strconcat(LH_POOL_CACHE "/", node->id, NULL);
    g_autofree char *uri = lh_uri_text(&snapshot->uri);
    LhAssignment assignment = {
        .action = LH_ACTION_LOAD,
        .since = round->context->now_ms,
        .controller = "cache-assigner",
        .epoch = round->context->epoch,
        .rule = rule,
        .reason = reason,
        .snapshot = snapshot->o.name,
        .uri = uri,
        .size_bytes = snapshot->size_bytes,
        .set = replica->set,
        .evict_grace_ms = round->evict_grace_ms,
    };

    lh_plan_put(round->plan, LH_KIND_ASSIGNMENT, name, &assignment, 0, rule, "%s", reason);
    lh_plan_rely(round->plan, LH_KIND_REPLICA, replica->name, replica->object->mod_rev);
    lh_plan_rely(round->plan, LH_KIND_SNAPSHOT, snapshot->o.name, snapshot->o.mod_rev);
    lh_plan_rely(round->plan, LH_KIND_NODE, registration, node->object->mod_rev);
    tell(round, replica, "Assigned", node->id);
}

/* ---- what is due, answered or lost ---- */

static void delete_retry(Round *round, const LhFleetReplica *replica, const char *why)
{
    g_autofree char *name = g_strconcat(LH_POOL_CACHE "/", replica->name, NULL);

    if (replica->retry != NULL && lh_object_known(replica->retry))
        lh_plan_delete(round->plan, LH_KIND_RETRY, name, replica->retry->mod_rev, "retry-over",
                       "%s", why);
}

static void delete_replica(Round *round, const LhFleetReplica *replica)
{
    const LhObject *parked = lh_fleet_status(round->fleet, "replicas", replica->name,
                                             "cache-assigner");

    lh_plan_delete(round->plan, LH_KIND_REPLICA, replica->name, replica->object->mod_rev,
                   replica->fate.rule, "%s, and no node holds it",
                   lh_cache_fate_text(&replica->fate));
    delete_retry(round, replica, "its replica goes");
    if (parked != NULL)
        lh_plan_delete(round->plan, LH_KIND_STATUS, parked->name, parked->mod_rev, "status",
                       "its replica goes");
    lh_cache_rely_on_fate(round->plan, round->fleet, replica);
}

static gboolean is_due(const Round *round, const LhFleetReplica *replica)
{
    return (replica->fate.type == LH_FATE_KEEP || replica->fate.type == LH_FATE_GO) &&
           replica->fate.due_ms <= round->context->now_ms;
}

static const char *assignment_name(const LhFleetAssignment *assignment)
{
    return assignment->object->name;
}

static void delete_assignment(Round *round, const LhFleetAssignment *assignment, const char *rule,
                              const char *reason)
{
    lh_plan_delete(round->plan, LH_KIND_ASSIGNMENT, assignment_name(assignment),
                   assignment->object->mod_rev, rule, "%s", reason);
}

/* In the group that takes its last assignment away, a replica that is due anyway goes too. */
static void delete_with_last(Round *round, const LhFleetReplica *replica)
{
    if (replica->object != NULL && is_due(round, replica) && replica->assignments->len == 1)
        delete_replica(round, replica);
}

/* An answer that ends the assignment. */
static void take_evicted(Round *round, const LhFleetAssignment *assignment)
{
    const LhFleetReplica *replica = assignment->replica;

    lh_plan_begin(round->plan);
    delete_assignment(round, assignment, "evicted", "its node holds nothing of it any more");
    lh_plan_rely(round->plan, LH_KIND_ITEM, assignment->item->name, assignment->item->mod_rev);
    delete_with_last(round, replica);
    tell(round, replica, "Evicted", assignment->node->id);
    lh_plan_end(round->plan);
}

/* Its node did not get it loaded, and cluster-monitor ended that. */
static gboolean taken_back(const LhFleetAssignment *assignment)
{
    return strcmp(((const LhAssignment *)assignment->object)->rule, LH_RULE_STUCK_LOADING) == 0;
}

static void take_failed(Round *round, const LhFleetAssignment *assignment)
{
    const LhFleetReplica *replica = assignment->replica;
    const LhItem *item = (const LhItem *)assignment->item;
    gboolean stuck = lh_fleet_load(assignment) == NULL;
    const LhRetry *before = (const LhRetry *)replica->retry;
    g_autofree char *name = g_strconcat(LH_POOL_CACHE "/", replica->name, NULL);
    gboolean counts = before != NULL && lh_object_known(&before->o) &&
                      !lh_fleet_retry_void(replica);
    const char *message = stuck ? "it was loading for longer than stuckLoading"
                                : lh_attempts_words(item->message);
    LhRetry retry = {.attempt = (counts ? before->attempt : 0) + 1, .message = message};

    retry.node = assignment->node->host->name;
    lh_attempts_failed(&retry, round->context->now_ms);
    lh_plan_begin(round->plan);
    delete_assignment(round, assignment, "failed", message);
    lh_plan_rely(round->plan, LH_KIND_ITEM, item->o.name, item->o.mod_rev);
    if (before == NULL || lh_object_known(&before->o)) {
        lh_plan_put(round->plan, LH_KIND_RETRY, name, &retry,
                    before == NULL ? 0 : before->o.mod_rev, retry.parked ? "parked" : "retry",
                    "attempt %" G_GINT64_FORMAT " on %s: %s", retry.attempt, retry.node, message);
        lh_plan_event(round->plan, LH_EVENT_WARNING, retry.parked ? "Parked" : "LoadFailed",
                      LH_KIND_REPLICA, replica->name, "attempt %" G_GINT64_FORMAT " on %s: %s",
                      retry.attempt, retry.node, message);
    }
    lh_plan_end(round->plan);
}

/* A registration never comes again, but with a backup. */
static void rely_on_loss(Round *round, const LhFleetAssignment *assignment)
{
    g_autofree char *registration = g_strconcat(LH_POOL_CACHE "/", assignment->node->id, NULL);

    if (!LH_BUG(LOST_NODE_UNCHECKED))
        lh_plan_rely(round->plan, LH_KIND_NODE, registration, 0);
}

static void drop_lost(Round *round, const LhFleetAssignment *assignment, const char *rule,
                      const char *reason)
{
    const LhFleetReplica *replica = assignment->replica;

    lh_plan_begin(round->plan);
    delete_assignment(round, assignment, rule, reason);
    rely_on_loss(round, assignment);
    /* Wanted again meanwhile, it would have had to wait for its node. */
    if (is_due(round, replica)) {
        lh_plan_rely(round->plan, LH_KIND_REPLICA, replica->name,
                     replica->object == NULL ? 0 : replica->object->mod_rev);
        lh_cache_rely_on_fate(round->plan, round->fleet, replica);
    }
    delete_with_last(round, replica);
    lh_plan_end(round->plan);
}

/* It is assigned to a node that is there, and may stay there. */
static gboolean is_elsewhere(const LhFleetReplica *replica)
{
    for (guint i = 0; i < replica->assignments->len; i++) {
        const LhFleetAssignment *other = g_ptr_array_index(replica->assignments, i);
        if (lh_fleet_load(other) != NULL && !lh_fleet_node_gone(other->node) &&
            !lh_fleet_leaving(other->node))
            return TRUE;
    }
    return FALSE;
}

/* Back to the node of the same name: its disk still has the data. */
static gboolean move_back(Round *round, const LhFleetAssignment *assignment)
{
    const LhFleetHost *host = assignment->node->host;
    const LhNode *taker = lh_fleet_host_takes(host, NULL);
    const LhFleetReplica *replica = assignment->replica;
    g_autofree char *reason = NULL;
    const LhFleetNode *node;
    const char *set;

    if (taker == NULL || replica->object == NULL || !lh_object_known(replica->object) ||
        lh_fleet_snapshot_object(replica->snapshot) == NULL ||
        lh_fleet_replica_bytes(replica) != assignment->bytes || /* published anew since */
        is_elsewhere(replica))
        return FALSE;
    set = taker->set == NULL ? "default" : taker->set;
    if (g_strcmp0(set, replica->set) != 0)
        return FALSE;
    node = lh_fleet_host_newest(host);
    if (lh_placement_give_up(placement(round), set, node->id, assignment->bytes,
                             assignment->restored)) {
        round->left = TRUE; /* what is given up here makes room that is not counted as free */
        drop_lost(round, assignment, "node-lost", "its node came back with less room");
        return TRUE;
    }
    if (!lh_placement_take_slot(placement(round), set, node->id)) {
        lh_plan_note(round->plan, LH_KIND_REPLICA, replica->name, "wait-slot",
                     "goes back to %s, which loads as many as it may", node->id);
        return TRUE;
    }
    reason = g_strdup_printf("%s came back as %s", host->name, node->id);
    lh_plan_begin(round->plan);
    delete_assignment(round, assignment, "node-returned", reason);
    rely_on_loss(round, assignment);
    load(round, replica, node, "placed-returned", reason);
    lh_plan_end(round->plan);
    return TRUE;
}

static void take_lost(Round *round, const LhFleetAssignment *assignment)
{
    const LhHealth *health = (const LhHealth *)assignment->node->health;
    const LhFleetReplica *replica = assignment->replica;
    gint64 grace = round->settings->failure_grace_ms, until;

    if (lh_fleet_load(assignment) == NULL) {
        drop_lost(round, assignment, "node-gone",
                  "its node is gone, and so is what it had to evict");
        return;
    }
    if (replica->fate.type == LH_FATE_UNKNOWN)
        return;
    if (is_due(round, replica)) {
        drop_lost(round, assignment, "node-gone",
                  "its node is gone, and it is not wanted any more");
        return;
    }
    if (move_back(round, assignment))
        return;
    if (grace > 0 && !LH_BUG(NO_FAILURE_GRACE)) {
        if (health == NULL || !lh_object_known(&health->o) || health->missing_since < 0)
            return; /* failure-detector will say since when */
        until = health->missing_since + grace;
        if (round->context->now_ms < until) {
            lh_plan_wake(round->plan, until);
            lh_plan_note(round->plan, LH_KIND_REPLICA, replica->name, "wait-grace",
                         "node %s is gone; waits failureGrace for one of the same name",
                         assignment->node->id);
            return;
        }
    }
    drop_lost(round, assignment, "node-lost", "its node is gone");
}

static void plan_parked(Round *round, const LhFleetReplica *replica)
{
    const LhRetry *retry = (const LhRetry *)replica->retry;
    const LhObject *present = lh_fleet_status(round->fleet, "replicas", replica->name,
                                              "cache-assigner");
    g_autofree char *name = g_strconcat("replicas/", replica->name, "/cache-assigner", NULL);
    gboolean parked = retry != NULL && lh_object_known(&retry->o) && retry->parked &&
                      !lh_fleet_retry_void(replica);
    g_autofree char *message =
        parked ? g_strdup_printf("%" G_GINT64_FORMAT " attempts failed, the last on %s: %s",
                                 retry->attempt, retry->node == NULL ? "a node" : retry->node,
                                 retry->message == NULL ? "no reason given" : retry->message)
               : NULL;
    LhCondition condition = {.type = "Parked",
                             .status = LH_CONDITION_TRUE,
                             .reason = "TooManyAttempts",
                             .message = message};

    lh_plan_status(round->plan, present, name,
                   replica->object == NULL ? 0 : replica->object->mod_rev, &condition,
                   parked ? 1 : 0, round->context->now_ms);
}

static void plan_todo(Round *round, const LhFleetReplica *replica)
{
    for (guint i = 0; replica->assignments != NULL && i < replica->assignments->len; i++) {
        const LhFleetAssignment *assignment = g_ptr_array_index(replica->assignments, i);
        int answer = lh_fleet_answer(assignment);
        if (assignment->object == NULL || !lh_object_known(assignment->object))
            continue;
        if (lh_fleet_node_gone(assignment->node))
            take_lost(round, assignment);
        else if (answer != LH_ITEM_FAILED && answer != LH_ITEM_EVICTED && answer != LH_ITEM_DONE)
            continue;
        else if (lh_fleet_load(assignment) != NULL || taken_back(assignment))
            take_failed(round, assignment);
        else
            take_evicted(round, assignment);
    }
    if (replica->retry != NULL && (lh_fleet_replica_settled(replica) ||
                                   (replica->object == NULL && replica->assignments == NULL))) {
        lh_plan_begin(round->plan);
        delete_retry(round, replica,
                     replica->object == NULL ? "its replica is gone" : "it is live");
        lh_plan_end(round->plan);
    }
    plan_parked(round, replica);
}

static void plan_due(Round *round)
{
    const LhFleet *fleet = round->fleet;

    for (GTreeNode *n = g_tree_node_first(fleet->due_free); n != NULL; n = g_tree_node_next(n)) {
        const LhFleetReplica *replica = lh_tree_record(n);
        if (!is_due(round, replica)) {
            lh_plan_wake(round->plan, replica->fate.due_ms);
            return;
        }
        if (full(round))
            return;
        lh_plan_begin(round->plan);
        delete_replica(round, replica);
        lh_plan_end(round->plan);
    }
}

/* ---- placing what waits ---- */

static void add_holder(const LhFleetNode *node, const char *set, GPtrArray *hosts, GPtrArray *zones)
{
    const LhNode *object = (const LhNode *)node->object;

    g_ptr_array_add(hosts, node->host->name);
    if (lh_fleet_leaving(node))
        return; /* soon its zone has none of it */
    if (object != NULL && lh_object_known(&object->o) && object->zone != NULL &&
        g_strcmp0(object->set == NULL ? "default" : object->set, set) == 0)
        g_ptr_array_add(zones, (gpointer)object->zone);
}

/* Hosts and zones that hold a replica of the same snapshot, this plan's own placements included. */
static void find_holders(Round *round, const LhFleetReplica *replica)
{
    const LhFleetSnapshot *snapshot = replica->snapshot;
    const GPtrArray *placed = snapshot->replicas->len < 2
                                  ? NULL
                                  : g_hash_table_lookup(round->placed, snapshot);

    g_ptr_array_set_size(round->hosts, 0);
    g_ptr_array_set_size(round->zones, 0);
    for (guint i = 0; i < snapshot->replicas->len; i++) {
        const LhFleetReplica *other = g_ptr_array_index(snapshot->replicas, i);
        for (guint a = 0; other->assignments != NULL && a < other->assignments->len; a++) {
            const LhFleetAssignment *assignment = g_ptr_array_index(other->assignments, a);
            if (assignment->object != NULL)
                add_holder(assignment->node, replica->set, round->hosts, round->zones);
        }
    }
    for (guint i = 0; placed != NULL && i < placed->len; i++)
        add_holder(g_ptr_array_index(placed, i), replica->set, round->hosts, round->zones);
    g_ptr_array_add(round->hosts, NULL);
    g_ptr_array_add(round->zones, NULL);
}

static void remember_placed(Round *round, const LhFleetReplica *replica, const LhFleetNode *node)
{
    GPtrArray *placed;

    if (replica->snapshot->replicas->len < 2)
        return;
    placed = g_hash_table_lookup(round->placed, replica->snapshot);
    if (placed == NULL) {
        placed = g_ptr_array_new();
        g_hash_table_insert(round->placed, replica->snapshot, placed);
    }
    g_ptr_array_add(placed, (gpointer)node);
}

static void find_warm(Round *round, const LhFleetReplica *replica)
{
    const GPtrArray *nodes = g_hash_table_size(round->fleet->warm) == 0
                                 ? NULL
                                 : g_hash_table_lookup(round->fleet->warm, replica->snapshot->name);

    g_ptr_array_set_size(round->warm, 0);
    for (guint i = 0; nodes != NULL && i < nodes->len; i++)
        g_ptr_array_add(round->warm, ((LhFleetNode *)g_ptr_array_index(nodes, i))->id);
    g_ptr_array_add(round->warm, NULL);
}

static const char *const wait_texts[] = {
    [LH_WAIT_SLOT] = "every node with room loads as many as it may",
    [LH_WAIT_BYTES] = "no node has so many bytes free",
    [LH_WAIT_ITEMS] = "no node may hold an item more",
    [LH_WAIT_DISTINCT] = "only nodes that hold this snapshot already have room",
    [LH_WAIT_PROBATION] = "only nodes on probation have room, and those have their half of a share",
    [LH_WAIT_NODES] = "its set has no node that takes work",
};

/* It waits for time, not for room. */
static gboolean has_room(LhPlaceRule rule)
{
    return rule == LH_WAIT_SLOT || rule == LH_WAIT_PROBATION;
}

static void note_waiting(Round *round, const LhFleetReplica *replica, LhPlaceRule rule)
{
    lh_plan_note(round->plan, LH_KIND_REPLICA, replica->name, lh_place_rule_id(rule),
                 "set %s, %" G_GINT64_FORMAT " bytes: %s", replica->set,
                 lh_fleet_replica_bytes(replica), wait_texts[rule]);
    if (!has_room(rule)) {
        Scattered *sum = g_hash_table_lookup(round->scattered, replica->set);
        if (sum == NULL) {
            sum = g_new0(Scattered, 1);
            g_hash_table_insert(round->scattered, (gpointer)replica->set, sum);
        }
        sum->items++;
        sum->bytes = lh_capacity_add(sum->bytes, lh_fleet_replica_bytes(replica));
    }
}

static LhPlaceAnswer find_place(Round *round, const LhFleetReplica *replica)
{
    const LhRetry *retry = (const LhRetry *)replica->retry;
    LhPlaceItem item = {
        .set = replica->set,
        .size_bytes = lh_fleet_replica_bytes(replica),
        .restored = ((const LhReplica *)replica->object)->restored && !LH_BUG(RESTORE_IN_REGULAR),
        .avoid_host = retry == NULL ? NULL : retry->node,
    };

    find_holders(round, replica);
    find_warm(round, replica);
    item.holder_hosts = (const char *const *)round->hosts->pdata;
    item.holder_zones = (const char *const *)round->zones->pdata;
    item.warm_ids = (const char *const *)round->warm->pdata;
    return lh_placement_place(placement(round), &item);
}

static void place(Round *round, const LhFleetReplica *replica)
{
    LhPlaceAnswer answer = find_place(round, replica);
    const LhFleetNode *node;

    if (answer.node_id == NULL) {
        note_waiting(round, replica, answer.rule);
        round->left = TRUE;
        return;
    }
    node = g_hash_table_lookup(round->fleet->nodes, answer.node_id);
    lh_plan_begin(round->plan);
    load(round, replica, node, lh_place_rule_id(answer.rule),
         answer.rule == LH_PLACED_WARM                   ? "its data is on that node's disk"
         : round->settings->strategy == LH_STRATEGY_PACK ? "pack: the fullest node with room"
                                                         : "spread: the emptiest node with room");
    lh_plan_end(round->plan);
    remember_placed(round, replica, node);
}

/* In backoff or parked: not to be placed. */
static gboolean held_back(Round *round, const LhFleetReplica *replica)
{
    const LhRetry *retry = (const LhRetry *)replica->retry;

    if (retry == NULL || lh_fleet_retry_void(replica))
        return FALSE;
    if (retry->parked) {
        lh_plan_note(round->plan, LH_KIND_REPLICA, replica->name, "parked",
                     "%" G_GINT64_FORMAT " attempts failed: %s; leasehold retry cache/%s",
                     retry->attempt, retry->message == NULL ? "" : retry->message, replica->name);
        return TRUE;
    }
    if (retry->not_before > round->context->now_ms && !LH_BUG(RETRY_AT_ONCE)) {
        lh_plan_wake(round->plan, retry->not_before);
        lh_plan_note(round->plan, LH_KIND_REPLICA, replica->name, "wait-backoff",
                     "attempt %" G_GINT64_FORMAT " failed: %s", retry->attempt,
                     retry->message == NULL ? "" : retry->message);
        return TRUE;
    }
    return FALSE;
}

static void place_waiting(Round *round)
{
    for (GTreeNode *n = g_tree_node_first(round->fleet->waiting); n != NULL;
         n = g_tree_node_next(n)) {
        const LhFleetReplica *replica = lh_tree_record(n);
        if (replica->fate.due_ms <= round->context->now_ms)
            continue; /* plan_due deletes it */
        if (full(round))
            return;
        if (held_back(round, replica))
            round->left = TRUE;
        else
            place(round, replica);
    }
}

/* ---- moving what is on nodes that are drained, or in failure ---- */

static void move(Round *round, const LhFleetReplica *replica, const LhFleetAssignment *source)
{
    const LhFleetNode *left = source->node;
    const char *from = left->host->draining ? left->host->name : left->id;
    const char *words = lh_drain_words(left);
    LhPlaceAnswer answer = find_place(round, replica);
    g_autofree char *reason = NULL;
    const LhFleetNode *node;

    if (answer.node_id == NULL) {
        lh_plan_note(round->plan, LH_KIND_REPLICA, replica->name, lh_place_rule_id(answer.rule),
                     "node %s %s, it stays there meanwhile: %s", from, words,
                     wait_texts[answer.rule]);
        if (!has_room(answer.rule))
            lh_drain_tally_add(round->drains, replica, LH_DRAIN_NO_ROOM, wait_texts[answer.rule]);
        return;
    }
    node = g_hash_table_lookup(round->fleet->nodes, answer.node_id);
    reason = g_strdup_printf("node %s %s; evicted there once it is live here", from, words);
    lh_plan_begin(round->plan);
    load(round, replica, node, lh_drain_rule(left), reason);
    lh_drain_rely_on_source(round->plan, round->fleet, source);
    lh_plan_end(round->plan);
    remember_placed(round, replica, node);
}

/* What waits for a first node comes first. */
static void plan_moves(Round *round)
{
    for (GTreeNode *n = g_tree_node_first(round->fleet->moving); n != NULL;
         n = g_tree_node_next(n)) {
        const LhFleetReplica *replica = lh_tree_record(n);
        const char *why;
        const LhFleetAssignment *source = lh_drain_source(round->fleet, replica,
                                                          round->context->now_ms, &why);
        if (full(round))
            return;
        if (source == NULL && why != NULL) {
            lh_plan_note(round->plan, LH_KIND_REPLICA, replica->name, "left-alone",
                         "its node shall be left, it stays there meanwhile: %s", why);
            lh_drain_tally_add(round->drains, replica, LH_DRAIN_LEFT, why);
        } else if (source != NULL && held_back(round, replica)) {
            const LhRetry *retry = (const LhRetry *)replica->retry;
            lh_drain_tally_add(round->drains, replica, LH_DRAIN_FAILING,
                               retry->message == NULL ? "no reason given" : retry->message);
        } else if (source != NULL) {
            move(round, replica, source);
        }
    }
}

/* ---- capacity ---- */

static void plan_capacity(Round *round)
{
    /* Nothing is missing where all found room. */
    g_autoptr(GArray) rows = round->left ? lh_capacity_rows(round->fleet, round->context->now_ms)
                                         : g_array_new(FALSE, FALSE, sizeof(LhSetCapacity));
    g_autoptr(GString) message = g_string_new(NULL);
    const LhObject *present = lh_fleet_status(round->fleet, "settings", "cache-assigner",
                                              "cache-assigner");
    const LhObject *accepted = g_hash_table_lookup(round->fleet->settings, "cache-assigner");
    LhCondition condition = {
        .type = "Capacity", .status = LH_CONDITION_TRUE, .reason = "Sufficient", .message = NULL};
    gboolean written;

    for (guint i = 0; i < rows->len; i++) {
        const LhSetCapacity *row = &g_array_index(rows, LhSetCapacity, i);
        const Scattered *scattered = g_hash_table_lookup(round->scattered, row->set);
        gint64 bytes = MAX(row->missing_bytes, scattered == NULL ? 0 : scattered->bytes);
        gint64 items = MAX(row->missing_items, scattered == NULL ? 0 : scattered->items);
        if (items == 0)
            continue;
        /* Not how many wait: that changes with every load, this with the room. */
        g_string_append_printf(message,
                               "%sset %s: room for %" G_GINT64_FORMAT
                               " bytes is missing, %" G_GINT64_FORMAT " replicas do not fit",
                               message->len == 0 ? "" : "; ", row->set, bytes, items);
    }
    if (message->len != 0) {
        condition.status = LH_CONDITION_FALSE;
        condition.reason = "InsufficientCapacity";
        condition.message = message->str;
    } else if (present == NULL) {
        return;
    }
    written = lh_plan_status(round->plan, present, "settings/cache-assigner/cache-assigner",
                             accepted == NULL ? 0 : accepted->mod_rev, &condition, 1,
                             round->context->now_ms);
    if (written && message->len != 0)
        lh_plan_event(round->plan, LH_EVENT_WARNING, "InsufficientCapacity", LH_KIND_SETTINGS,
                      "cache-assigner", "%s", message->str);
}

static void cache_assigner_plan(gconstpointer index, const LhPlanContext *context, LhPlan *plan)
{
    Round round = {
        .fleet = index,
        .context = context,
        .settings = lh_fleet_settings(index, "cache-assigner"),
        .plan = plan,
        .placed = g_hash_table_new_full(NULL, NULL, NULL, (GDestroyNotify)g_ptr_array_unref),
        .scattered = g_hash_table_new_full(g_str_hash, g_str_equal, NULL, g_free),
        .hosts = g_ptr_array_new(),
        .zones = g_ptr_array_new(),
        .warm = g_ptr_array_new(),
        .drains = lh_drain_tally_new(),
        .evict_grace_ms = lh_fleet_settings(index, "cache-evictor")->evict_grace_ms,
    };

    for (GTreeNode *n = g_tree_node_first(round.fleet->todo); n != NULL && !full(&round);
         n = g_tree_node_next(n))
        plan_todo(&round, lh_tree_record(n));
    plan_due(&round);
    place_waiting(&round);
    plan_moves(&round);
    if (!plan->more) { /* else not all that waits was looked at */
        plan_capacity(&round);
        lh_drain_say(round.fleet, round.drains, context->now_ms, plan);
    }
    lh_drain_tally_free(round.drains);
    lh_placement_free(round.placement);
    g_hash_table_unref(round.placed);
    g_hash_table_unref(round.scattered);
    g_ptr_array_unref(round.hosts);
    g_ptr_array_unref(round.zones);
    g_ptr_array_unref(round.warm);
}

static double demand_ratio(const LhSetCapacity *row)
{
    if (row->wanted_bytes == 0)
        return 1;
    return row->capacity_bytes == 0 ? INFINITY
                                    : (double)row->wanted_bytes / (double)row->capacity_bytes;
}

static void capacity_gauges(const LhFleet *fleet, gint64 now_ms, LhGaugeFunc gauge, gpointer data)
{
    g_autoptr(GArray) rows = lh_capacity_rows(fleet, now_ms);

    for (guint i = 0; i < rows->len; i++) {
        const LhSetCapacity *row = &g_array_index(rows, LhSetCapacity, i);
        g_autofree char *labels = g_strdup_printf("pool=\"cache\",set=\"%s\"", row->set);
        g_autofree char *set_label = g_strdup_printf("set=\"%s\"", row->set);
        gauge("pool_capacity_bytes", labels, (double)row->capacity_bytes, data);
        gauge("pool_used_bytes", labels, (double)row->used_bytes, data);
        gauge("unassigned_items", labels, (double)row->waiting_items, data);
        gauge("unassigned_bytes", labels, (double)row->waiting_bytes, data);
        gauge("missing_bytes", labels, (double)row->missing_bytes, data);
        gauge("cache_wanted_bytes", set_label, (double)row->wanted_bytes, data);
        gauge("cache_demand_ratio", set_label, demand_ratio(row), data);
    }
}

static void cache_assigner_gauges(gconstpointer index, gint64 now_ms, LhGaugeFunc gauge,
                                  gpointer data)
{
    const LhFleet *fleet = index;
    gint64 items[LH_ITEM_DONE + 1] = {0}, assigned = 0, parked = 0;
    GHashTableIter iter;
    gpointer record;

    capacity_gauges(fleet, now_ms, gauge, data);
    g_hash_table_iter_init(&iter, fleet->assignments);
    while (g_hash_table_iter_next(&iter, NULL, &record)) {
        const LhFleetAssignment *assignment = record;
        const LhItem *item = (const LhItem *)assignment->item;
        if (item != NULL && lh_object_known(&item->o))
            items[item->state]++;
        else if (assignment->object != NULL)
            assigned++;
    }
    g_hash_table_iter_init(&iter, fleet->replicas);
    while (g_hash_table_iter_next(&iter, NULL, &record)) {
        const LhRetry *retry = (const LhRetry *)((LhFleetReplica *)record)->retry;
        parked += retry != NULL && lh_object_known(&retry->o) && retry->parked;
    }
    for (int state = 0; state <= LH_ITEM_DONE; state++) {
        g_autofree char *labels = g_strdup_printf("pool=\"cache\",state=\"%s\"",
                                                  lh_item_state_name(state));
        gauge("items", labels, (double)items[state], data);
    }
    gauge("items", "pool=\"cache\",state=\"assigned\"", (double)assigned, data);
    gauge("parked_items", "pool=\"cache\"", (double)parked, data);
}

static const char *const gauge_names[] = {
    "items",
    "pool_capacity_bytes",
    "pool_used_bytes",
    "unassigned_items",
    "unassigned_bytes",
    "missing_bytes",
    "cache_wanted_bytes",
    "cache_demand_ratio",
    "parked_items",
    NULL,
};

const LhController lh_cache_assigner = {
    .name = "cache-assigner",
    .index = &lh_fleet_index,
    .kinds = LH_KIND_BIT(LH_KIND_REPLICA) | LH_KIND_BIT(LH_KIND_ASSIGNMENT) |
             LH_KIND_BIT(LH_KIND_ITEM) | LH_KIND_BIT(LH_KIND_NODE) | LH_KIND_BIT(LH_KIND_HEALTH) |
             LH_KIND_BIT(LH_KIND_RETRY) | LH_KIND_BIT(LH_KIND_ACCEPTED) |
             LH_KIND_BIT(LH_KIND_SNAPSHOT) | LH_KIND_BIT(LH_KIND_DELETION) |
             LH_KIND_BIT(LH_KIND_STATUS) | LH_KIND_BIT(LH_KIND_RESTOREPROGRESS),
    .plan = cache_assigner_plan,
    .gauges = cache_assigner_gauges,
    .gauge_names = gauge_names,
    .settings = lh_fleet_settings_of,
};
