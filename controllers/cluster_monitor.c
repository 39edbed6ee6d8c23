/*
 * cluster-monitor: what is longer in one state than it should be, how even the fleet is, and each service's
 * counts.
 *
 * Corrects only where that is safe: a load of the cache pool that takes longer than stuckLoading is taken
 * back, and cache-assigner counts it as failed and places it elsewhere. All else it says: a condition, an
 * event and a gauge each. What is assigned to nothing that exists is the evictor's and the assigner's; an
 * item without an assignment is its node's to remove. Tombstones of what was deleted go after 30 days.
 *
 * It looks when changes have paused for a second, once in each `period` while they do not pause, and when
 * something will have been too long.
 */
#include "base/units.h"
#include "controllers/cache_rules.h"
#include "controllers/pool.h"
#include "controllers/registry.h"

#include <string.h>

#define NAME "cluster-monitor"
/* A set is called unbalanced when its fullest node is fuller than its emptiest by this share of capacity
 * and holds so many items that some of them could go. */
#define UNBALANCED_SHARE 0.25
#define UNBALANCED_ITEMS 10
/* So long a Deletion and an erased Orphan keep their name and uri from being used again. */
#define TOMBSTONE_MS (30 * G_GINT64_CONSTANT(86400000))

typedef struct {
    const LhFleet *fleet;
    const LhPools *pools;
    const LhPlanContext *context;
    const LhSettings *settings;
    LhPlan *plan;
    GHashTable *stuck; /* "<plural>/<name>": set of what is stuck now */
} Round;

static gboolean full(const Round *round)
{
    if (lh_plan_groups(round->plan) < round->context->max_groups)
        return FALSE;
    round->plan->more = TRUE;
    return TRUE;
}

/* ---- stuck ---- */

static const struct {
    const char *reason, *state, *text;
} watches[] = {
    [LH_WATCH_ASSIGNED] = {"StuckAssigned", "assigned", "its node has not answered"},
    [LH_WATCH_LOADING] = {"StuckLoading", "loading", "it has been loading"},
    [LH_WATCH_EVICTING] = {"StuckEvicting", "evicting", "it has been evicting"},
    [LH_WATCH_ZOMBIE] = {"Zombie", "zombie", "a node has it that it is not assigned to"},
};

static const struct {
    const char *pool, *plural;
} items[] = {
    {LH_POOL_CACHE, "replicas"},
    {LH_POOL_RECOVERY, "recoverytasks"},
    {LH_POOL_INDEXER, "partitions"},
    {LH_POOL_MANAGER, "seeds"},
};

static gint64 limit_ms(const LhSettings *settings, LhFleetWatch watch)
{
    switch (watch) {
    case LH_WATCH_ASSIGNED:
        return settings->stuck_assigned_ms;
    case LH_WATCH_LOADING:
        return settings->stuck_loading_ms;
    case LH_WATCH_EVICTING:
    case LH_WATCH_ZOMBIE:
        return settings->stuck_evicting_ms;
    case LH_WATCH_NONE:
        break;
    }
    return G_MAXINT64;
}

/* TRUE when it has been so for longer than it should; else wakes when it will have been. */
static gboolean is_over(const Round *round, LhFleetWatch watch, gint64 since_ms)
{
    gint64 due;

    if (watch == LH_WATCH_NONE)
        return FALSE;
    due = since_ms + limit_ms(round->settings, watch);
    if (due <= round->context->now_ms)
        return TRUE;
    lh_plan_wake(round->plan, due);
    return FALSE;
}

/* Says it once: TRUE when it was not said before. */
static gboolean say_stuck(Round *round, const char *plural, const char *name, gint64 revision,
                          const char *node, LhFleetWatch watch)
{
    char *subject = g_strconcat(plural, "/", name, NULL);
    g_autofree char *status = g_strconcat(subject, "/" NAME, NULL);
    g_autofree char *limit = lh_duration_format(limit_ms(round->settings, watch));
    g_autofree char *message = g_strdup_printf("on %s %s for longer than %s", node,
                                               watches[watch].text, limit);
    const LhObject *present = g_tree_lookup(round->fleet->stuck_said, subject);
    LhCondition condition = {.type = "Stuck",
                             .status = LH_CONDITION_TRUE,
                             .reason = watches[watch].reason,
                             .message = message};
    LhKind kind;
    const char *rest;

    if (g_hash_table_contains(round->stuck, subject)) {
        g_free(subject);
        return FALSE; /* one of its places was told already */
    }
    if (!lh_subject_split(subject, &kind, &rest)) {
        g_free(subject);
        return FALSE;
    }
    g_hash_table_add(round->stuck, subject);
    if (!lh_plan_status(round->plan, present, status, revision, &condition, 1,
                        round->context->now_ms))
        return FALSE;
    lh_plan_event(round->plan, LH_EVENT_WARNING, watches[watch].reason, kind, name, "%s", message);
    return present == NULL;
}

/* Back from the node, to be placed elsewhere. Nothing serves from it: no brake. */
static void take_back(Round *round, const LhFleetAssignment *assignment)
{
    LhAssignment order = *(const LhAssignment *)assignment->object;

    order.action = LH_ACTION_EVICT;
    order.since = round->context->now_ms;
    order.controller = NAME;
    order.epoch = round->context->epoch;
    order.rule = LH_RULE_STUCK_LOADING;
    order.reason = "it has been loading for longer than stuckLoading";
    order.evict_grace_ms = 0;
    lh_plan_begin(round->plan);
    lh_plan_put(round->plan, LH_KIND_ASSIGNMENT, assignment->object->name, &order,
                assignment->object->mod_rev, order.rule, "%s", order.reason);
    lh_plan_rely(round->plan, LH_KIND_ITEM, assignment->item->name, assignment->item->mod_rev);
    lh_plan_end(round->plan);
}

static void plan_cache(Round *round)
{
    gint64 shortest = MIN(
        round->settings->stuck_assigned_ms,
        MIN(round->settings->stuck_loading_ms, round->settings->stuck_evicting_ms));

    for (GTreeNode *n = g_tree_node_first(round->fleet->unsettled); n != NULL && !full(round);
         n = g_tree_node_next(n)) {
        const LhFleetAssignment *assignment = lh_tree_record(n);
        const LhFleetReplica *replica = assignment->replica;
        if (assignment->watch_ms + shortest > round->context->now_ms) {
            lh_plan_wake(round->plan, assignment->watch_ms + shortest);
            return; /* all that follow are younger */
        }
        if (!is_over(round, assignment->watch, assignment->watch_ms))
            continue;
        say_stuck(round, "replicas", replica->name,
                  replica->object == NULL ? 0 : replica->object->mod_rev, assignment->node->id,
                  assignment->watch);
        /* After a restoration of etcd only people know what is right. */
        if (assignment->watch == LH_WATCH_LOADING && replica->fate.type != LH_FATE_UNKNOWN &&
            !round->context->regressed)
            take_back(round, assignment);
    }
}

/* In exclusive pools a load that lasts may be the work itself: those that assign them bound it. */
static LhFleetWatch pool_watch(const LhPoolAssignment *assignment, gint64 *since)
{
    const LhAssignment *order = lh_pool_order(assignment);
    const LhItem *item = (const LhItem *)assignment->item;

    if (order == NULL && assignment->object == NULL && item != NULL && lh_object_known(&item->o)) {
        *since = item->since;
        return LH_WATCH_ZOMBIE;
    }
    if (order == NULL || lh_pool_end(assignment) != LH_POOL_HELD)
        return LH_WATCH_NONE;
    *since = order->since;
    if (order->action == LH_ACTION_EVICT)
        return LH_WATCH_EVICTING;
    return lh_pool_answer(assignment) < 0 ? LH_WATCH_ASSIGNED : LH_WATCH_NONE;
}

static void plan_pool(Round *round, const char *pool, const char *plural)
{
    const LhPoolView *view = round->pools == NULL ? NULL : lh_pools_view(round->pools, pool);

    for (GTreeNode *n = view == NULL ? NULL : g_tree_node_first(view->busy);
         n != NULL && !full(round); n = g_tree_node_next(n)) {
        const LhPoolItem *item = lh_pool_record(n);
        for (guint i = 0; item->assignments != NULL && i < item->assignments->len; i++) {
            const LhPoolAssignment *assignment = g_ptr_array_index(item->assignments, i);
            gint64 since = 0;
            LhFleetWatch watch = pool_watch(assignment, &since);
            if (is_over(round, watch, since))
                say_stuck(round, plural, item->name,
                          item->subject == NULL ? 0 : item->subject->mod_rev, assignment->node->id,
                          watch);
        }
    }
}

/* Taken back, and its node has not let go of it yet. */
static gboolean is_taken_back(const Round *round, const char *subject)
{
    const char *name = strchr(subject, '/') + 1;
    const LhFleetReplica *replica = g_str_has_prefix(subject, "replicas/")
                                        ? g_hash_table_lookup(round->fleet->replicas, name)
                                        : NULL;

    for (guint i = 0;
         replica != NULL && replica->assignments != NULL && i < replica->assignments->len; i++) {
        const LhFleetAssignment *assignment = g_ptr_array_index(replica->assignments, i);
        const LhAssignment *order = (const LhAssignment *)assignment->object;
        if (order != NULL && lh_object_known(&order->o) && !lh_fleet_node_gone(assignment->node) &&
            strcmp(order->rule, LH_RULE_STUCK_LOADING) == 0)
            return TRUE;
    }
    return FALSE;
}

/* Takes back what was said of what is not stuck any more. */
static void plan_over(Round *round)
{
    if (round->plan->more) /* not all that is stuck was looked at */
        return;
    for (GTreeNode *n = g_tree_node_first(round->fleet->stuck_said); n != NULL && !full(round);
         n = g_tree_node_next(n)) {
        const char *subject = g_tree_node_key(n);
        const LhObject *present = g_tree_node_value(n);
        if (!g_hash_table_contains(round->stuck, subject) && !is_taken_back(round, subject))
            lh_plan_status(round->plan, present, present->name, 0, NULL, 0, round->context->now_ms);
    }
}

/* ---- tombstones ---- */

/* TRUE when it goes; else wakes when it will. */
static gboolean has_served(const Round *round, gint64 ended_ms)
{
    if (ended_ms + TOMBSTONE_MS <= round->context->now_ms)
        return TRUE;
    lh_plan_wake(round->plan, ended_ms + TOMBSTONE_MS);
    return FALSE;
}

static void bury(Round *round, LhKind kind, const LhObject *object)
{
    lh_plan_begin(round->plan);
    lh_plan_delete(round->plan, kind, object->name, object->mod_rev, "served",
                   "its data has been gone for 30 days");
    lh_plan_end(round->plan);
}

static void plan_tombstones(Round *round)
{
    const LhFleet *fleet = round->fleet;

    for (GTreeNode *n = g_tree_node_first(fleet->decided); n != NULL && !full(round);
         n = g_tree_node_next(n)) {
        const LhDeletion *deletion = g_tree_node_key(n);
        if (!has_served(round, deletion->decided_at))
            break; /* all that follow were decided later */
        if (deletion->data_deleted_at >= 0 && has_served(round, deletion->data_deleted_at))
            bury(round, LH_KIND_DELETION, &deletion->o);
    }
    for (GTreeNode *n = g_tree_node_first(fleet->orphans); n != NULL && !full(round);
         n = g_tree_node_next(n)) {
        const LhOrphan *orphan = g_tree_node_key(n);
        if (lh_object_known(&orphan->o) && orphan->decided_at >= 0 && orphan->objects == 0 &&
            has_served(round, orphan->decided_at))
            bury(round, LH_KIND_ORPHAN, &orphan->o);
    }
}

/* ---- services ---- */

/* More of them than were said to be. */
static void tell_live(Round *round, const LhFleetService *service)
{
    const LhStatus *said = service->counted != NULL && lh_object_known(service->counted)
                               ? (const LhStatus *)service->counted
                               : NULL;

    if (service->desired != NULL && service->live > (said == NULL ? 0 : said->replicas_live))
        lh_plan_event(round->plan, LH_EVENT_NORMAL, "Live", LH_KIND_SERVICE, service->name,
                      "%u of %u replicas are live", service->live, service->replicas);
}

static void put_counts(Round *round, const LhFleetService *service)
{
    g_autofree char *name = g_strconcat("services/", service->name, "/" NAME, NULL);
    gint64 present = service->counted == NULL ? 0 : service->counted->mod_rev;
    LhArray none = {.size = sizeof(LhCondition)};

    lh_plan_begin(round->plan);
    if (service->desired == NULL) {
        lh_plan_delete(round->plan, LH_KIND_STATUS, name, present, "counts", "the service is gone");
    } else {
        LhStatus status = {
            .observed_revision = service->desired->mod_rev,
            .conditions = &none,
            .snapshots = service->snapshots->len,
            .replicas_desired = service->replicas,
            .replicas_live = service->live,
        };
        lh_plan_put(round->plan, LH_KIND_STATUS, name, &status, present, "counts",
                    "%u snapshots, %u replicas, %u of them live", service->snapshots->len,
                    service->replicas, service->live);
    }
    lh_plan_throttle(round->plan);
    tell_live(round, service);
    lh_plan_end(round->plan);
}

static void plan_counts(Round *round)
{
    for (GTreeNode *n = g_tree_node_first(round->fleet->count_todo); n != NULL && !full(round);
         n = g_tree_node_next(n)) {
        const LhFleetService *service = lh_tree_record(n);
        if (lh_kind_name_valid(LH_KIND_SERVICE, service->name))
            put_counts(round, service);
    }
}

/* ---- balance ---- */

typedef struct {
    const char *set;
    double least, most; /* shares of capacity in use */
    const char *emptiest, *fullest;
    gint64 items; /* on the fullest */
} Balance;

static void measure(const char *set, const LhPlaceNode *nodes, guint n, gpointer data)
{
    GArray *rows = data;
    Balance row = {.set = set, .least = G_MAXDOUBLE, .most = -1, .emptiest = "", .fullest = ""};

    for (guint i = 0; i < n; i++) {
        const LhPlaceNode *node = &nodes[i];
        double share;
        if (node->capacity_bytes <= 0)
            continue;
        share = (double)(node->used_bytes + node->restored_bytes) / (double)node->capacity_bytes;
        if (share < row.least || (share == row.least && strcmp(node->id, row.emptiest) < 0)) {
            row.least = share;
            row.emptiest = node->id;
        }
        if (share > row.most || (share == row.most && strcmp(node->id, row.fullest) < 0)) {
            row.most = share;
            row.fullest = node->id;
            row.items = node->used_items + node->restored_items;
        }
    }
    if (row.most >= 0)
        g_array_append_val(rows, row);
}

static gint by_set(gconstpointer a, gconstpointer b)
{
    return strcmp(((const Balance *)a)->set, ((const Balance *)b)->set);
}

static GArray *balance_rows(const LhFleet *fleet)
{
    GArray *rows = g_array_new(FALSE, FALSE, sizeof(Balance));

    lh_places_foreach(fleet->places, measure, rows);
    g_array_sort(rows, by_set);
    return rows;
}

static void plan_balance(Round *round)
{
    const LhFleet *fleet = round->fleet;
    const LhObject *present = lh_fleet_status(fleet, "settings", "cache-assigner", NAME);
    const LhObject *accepted = g_hash_table_lookup(fleet->settings, "cache-assigner");
    g_autoptr(GArray) rows = balance_rows(fleet);
    g_autoptr(GString) message = g_string_new(NULL);
    LhCondition condition = {
        .type = "Balanced", .status = LH_CONDITION_FALSE, .reason = "Unbalanced"};

    if (lh_fleet_settings(fleet, "cache-assigner")->strategy != LH_STRATEGY_PACK) {
        for (guint i = 0; i < rows->len; i++) {
            const Balance *row = &g_array_index(rows, Balance, i);
            if (row->most - row->least > UNBALANCED_SHARE && row->items >= UNBALANCED_ITEMS)
                g_string_append_printf(message, "%sset %s: %s is much fuller than %s",
                                       message->len == 0 ? "" : "; ", row->set, row->fullest,
                                       row->emptiest);
        }
    }
    condition.message = message->str;
    if (lh_plan_status(round->plan, present, "settings/cache-assigner/" NAME,
                       accepted == NULL ? 0 : accepted->mod_rev, &condition,
                       message->len != 0 ? 1 : 0, round->context->now_ms) &&
        message->len != 0)
        lh_plan_event(round->plan, LH_EVENT_WARNING, "Unbalanced", LH_KIND_SETTINGS,
                      "cache-assigner", "%s", message->str);
}

static void cluster_monitor_plan(gconstpointer index, const LhPlanContext *context, LhPlan *plan)
{
    Round round = {
        .fleet = index,
        .pools = context->also,
        .context = context,
        .settings = lh_fleet_settings(index, NAME),
        .plan = plan,
        .stuck = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL),
    };

    plan_cache(&round);
    for (guint i = 1; i < G_N_ELEMENTS(items); i++)
        plan_pool(&round, items[i].pool, items[i].plural);
    plan_over(&round);
    plan_tombstones(&round);
    plan_counts(&round);
    plan_balance(&round);
    g_hash_table_unref(round.stuck);
}

/* ---- gauges ---- */

static gboolean has_reason(const LhObject *status, const char *reason)
{
    const LhArray *conditions = lh_object_known(status) ? ((const LhStatus *)status)->conditions
                                                        : NULL;

    for (guint i = 0; conditions != NULL && i < conditions->n; i++)
        if (strcmp(((const LhCondition *)lh_array_at(conditions, i))->reason, reason) == 0)
            return TRUE;
    return FALSE;
}

static guint count_said(const LhFleet *fleet, const char *plural, const char *reason)
{
    guint n = 0;

    for (GTreeNode *node = g_tree_node_first(fleet->stuck_said); node != NULL;
         node = g_tree_node_next(node)) {
        const char *subject = g_tree_node_key(node);
        gsize len = strlen(plural);
        if (strncmp(subject, plural, len) == 0 && subject[len] == '/')
            n += has_reason(g_tree_node_value(node), reason);
    }
    return n;
}

static void cluster_monitor_gauges(gconstpointer index, gint64 now_ms, LhGaugeFunc gauge,
                                   gpointer data)
{
    const LhFleet *fleet = index;
    g_autoptr(GArray) rows = balance_rows(fleet);

    (void)now_ms;
    for (guint i = 0; i < G_N_ELEMENTS(items); i++) {
        for (guint w = LH_WATCH_ASSIGNED; w <= LH_WATCH_ZOMBIE; w++) {
            g_autofree char *labels = g_strdup_printf("pool=\"%s\",state=\"%s\"", items[i].pool,
                                                      watches[w].state);
            gauge("stuck_items", labels, count_said(fleet, items[i].plural, watches[w].reason),
                  data);
        }
    }
    for (guint i = 0; i < rows->len; i++) {
        const Balance *row = &g_array_index(rows, Balance, i);
        g_autofree char *labels = g_strdup_printf("pool=\"cache\",set=\"%s\"", row->set);
        gauge("pool_imbalance_ratio", labels, row->most - row->least, data);
    }
}

static const char *const gauge_names[] = {"stuck_items", "pool_imbalance_ratio", NULL};

const LhController lh_cluster_monitor = {
    .name = NAME,
    .index = &lh_fleet_index,
    .also = &lh_pools_index,
    .kinds = LH_KIND_BIT(LH_KIND_ASSIGNMENT) | LH_KIND_BIT(LH_KIND_ITEM) |
             LH_KIND_BIT(LH_KIND_NODE) | LH_KIND_BIT(LH_KIND_HEALTH) |
             LH_KIND_BIT(LH_KIND_REPLICA) | LH_KIND_BIT(LH_KIND_SNAPSHOT) |
             LH_KIND_BIT(LH_KIND_SERVICE) | LH_KIND_BIT(LH_KIND_ACCEPTED) |
             LH_KIND_BIT(LH_KIND_STATUS) | LH_KIND_BIT(LH_KIND_RECOVERYTASK) |
             LH_KIND_BIT(LH_KIND_DELETION) | LH_KIND_BIT(LH_KIND_ORPHAN),
    .quiet_ms = 1000,
    .plan = cluster_monitor_plan,
    .gauges = cluster_monitor_gauges,
    .gauge_names = gauge_names,
    .settings = lh_fleet_settings_of,
};
