/*
 * failure-detector: the lease signal. A registration that is gone is noted (missingSince), and once a full
 * lease TTL has passed under this leader's own eyes, the node is said to be failed; that is final.
 *
 * Every registered node gets a NodeHealth, so that its disappearance shows in what exists, not in what was
 * watched: a new leader sees it as well. Probes are not part of this file.
 */
#include "base/planted.h"
#include "base/units.h"
#include "controllers/fleet.h"
#include "controllers/registry.h"

#include <string.h>

/* For a node whose registration nobody recorded: longer than any lease. */
#define UNKNOWN_TTL_MS 60000
/* Health goes this long after its subject (ARCHITECTURE.md, Housekeeping). */
#define KEEP_FAILED_MS (24 * 3600 * 1000)

static void say(const LhFleetPresence *presence, const LhHealth *health, const char *rule,
                LhPlan *plan)
{
    lh_plan_begin(plan);
    lh_plan_put(plan, LH_KIND_HEALTH, presence->key, health,
                presence->health == NULL ? 0 : presence->health->mod_rev, rule, "%s",
                health->reason);
    lh_plan_rely(plan, LH_KIND_NODE, presence->key,
                 presence->node == NULL ? 0 : presence->node->mod_rev);
    if (health->state == LH_HEALTH_FAILURE)
        lh_plan_event(plan, LH_EVENT_WARNING, "NodeLost", LH_KIND_NODE, presence->key,
                      "its registration is gone");
    lh_plan_end(plan);
}

static void plan_present(const LhFleetPresence *presence, const LhPlanContext *context,
                         LhPlan *plan)
{
    const LhNode *node = (const LhNode *)presence->node;
    gboolean back = presence->health != NULL;
    LhHealth health = {
        .state = LH_HEALTH_HEALTHY,
        .since = context->now_ms,
        .missing_since = -1,
        .reason = back ? "registered again" : "registered",
        .lease_ttl_ms = lh_object_known(presence->node) ? node->lease_ttl_ms : 0,
    };

    say(presence, &health, back ? "back" : "registered", plan);
}

static void plan_missing(const LhFleetPresence *presence, const LhPlanContext *context,
                         LhPlan *plan)
{
    const LhHealth *present = (const LhHealth *)presence->health;
    LhHealth health = {
        .state = LH_HEALTH_FAILURE,
        .since = context->now_ms,
        .missing_since = context->now_ms,
        .reason = "its registration is gone",
        .lease_ttl_ms = present == NULL ? 0 : present->lease_ttl_ms,
    };
    gint64 failed_at;

    if (present == NULL || present->missing_since < 0) {
        say(presence, &health, "missing", plan);
        return;
    }
    failed_at = MAX(present->missing_since, context->led_ms) +
                (present->lease_ttl_ms > 0 ? present->lease_ttl_ms : UNKNOWN_TTL_MS);
    if (context->now_ms < failed_at && !LH_BUG(FAILED_TOO_SOON)) {
        lh_plan_wake(plan, failed_at);
        lh_plan_note(plan, LH_KIND_HEALTH, presence->key, "wait-ttl",
                     "gone is not yet stopped: failed after its lease's TTL");
        return;
    }
    health.state = LH_HEALTH_FAILED;
    health.missing_since = present->missing_since;
    health.reason = "its registration has been gone for longer than its lease lives";
    say(presence, &health, "failed", plan);
}

static void plan_failed(const LhFleetPresence *presence, const LhPlanContext *context, LhPlan *plan)
{
    const LhHealth *health = (const LhHealth *)presence->health;
    gint64 due = health->since + KEEP_FAILED_MS;

    if (presence->assignments != 0)
        return; /* what says that it failed stays as long as something is assigned to it */
    if (context->now_ms < due) {
        lh_plan_wake(plan, due);
        return;
    }
    lh_plan_begin(plan);
    lh_plan_delete(plan, LH_KIND_HEALTH, presence->key, health->o.mod_rev, "forgotten",
                   "the node has been gone for a day");
    lh_plan_rely(plan, LH_KIND_NODE, presence->key, 0);
    lh_plan_end(plan);
}

static void failure_detector_plan(gconstpointer index, const LhPlanContext *context, LhPlan *plan)
{
    const LhFleet *fleet = index;
    GTreeNode *node;

    for (node = g_tree_node_first(fleet->health_todo); node != NULL;
         node = g_tree_node_next(node)) {
        const LhFleetPresence *presence = lh_tree_record(node);
        const LhHealth *health = (const LhHealth *)presence->health;
        if (lh_plan_groups(plan) >= context->max_groups) {
            plan->more = TRUE;
            return;
        }
        if (!lh_kind_name_valid(LH_KIND_HEALTH, presence->key))
            continue;
        if (presence->node != NULL)
            plan_present(presence, context, plan);
        else if (health != NULL && health->state == LH_HEALTH_FAILED)
            plan_failed(presence, context, plan);
        else
            plan_missing(presence, context, plan);
    }
}

/* Registered nodes by what they say of themselves, the others by what is known of their end. */
static const char *state_name(const LhFleetPresence *presence)
{
    const LhHealth *health = (const LhHealth *)presence->health;

    if (presence->node != NULL)
        return lh_object_known(presence->node)
                   ? lh_node_state_name(((const LhNode *)presence->node)->state)
                   : "unknown";
    return health != NULL && lh_object_known(&health->o) && health->state == LH_HEALTH_FAILED
               ? "failed"
               : "missing";
}

static void failure_detector_gauges(gconstpointer index, gint64 now_ms, LhGaugeFunc gauge,
                                    gpointer data)
{
    const LhFleet *fleet = index;
    g_autoptr(GHashTable) counts = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
    GHashTableIter iter;
    gpointer key, value;

    g_hash_table_iter_init(&iter, fleet->health);
    while (g_hash_table_iter_next(&iter, &key, &value)) {
        const char *slash = strchr(key, '/');
        g_autofree char *pool = g_strndup(key,
                                          slash == NULL ? 0 : (gsize)(slash - (const char *)key));
        char *labels = g_strdup_printf("pool=\"%s\",state=\"%s\"", pool, state_name(value));
        guint count = GPOINTER_TO_UINT(g_hash_table_lookup(counts, labels));
        if (lh_pool_name_valid(pool))
            g_hash_table_replace(counts, labels, GUINT_TO_POINTER(count + 1));
        else
            g_free(labels);
    }
    g_hash_table_iter_init(&iter, counts);
    while (g_hash_table_iter_next(&iter, &key, &value))
        gauge("nodes", key, (double)GPOINTER_TO_UINT(value), data);
}

static const char *const gauge_names[] = {"nodes", NULL};

const LhController lh_failure_detector = {
    .name = "failure-detector",
    .index = &lh_fleet_index,
    .kinds = LH_KIND_BIT(LH_KIND_NODE) | LH_KIND_BIT(LH_KIND_HEALTH) |
             LH_KIND_BIT(LH_KIND_ASSIGNMENT),
    .plan = failure_detector_plan,
    .gauges = failure_detector_gauges,
    .gauge_names = gauge_names,
    .settings = lh_fleet_settings_of,
};
