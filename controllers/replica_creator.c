/*
 * replica-creator: one replica for each copy that a service wants of a snapshot in each set.
 *
 * Names are deterministic, so none is created twice. Keeps expiresAt = endTime + cache.window as services
 * are edited. Says ServiceMissing on snapshots whose service nobody asks for. Never deletes and never
 * reduces: surplus is the evictor's and the assigner's.
 */
#include "controllers/fleet.h"
#include "controllers/registry.h"

typedef struct {
    const LhFleetSnapshot *snapshot;
    const LhSnapshot *object;
    const LhService *spec;
    const LhObject *accepted;
    gint64 expires_at;
    gint64 now_ms;
} Want;

static void create(const Want *want, const char *name, const char *set, gint64 ordinal,
                   LhPlan *plan)
{
    LhReplica replica = {
        .snapshot = want->snapshot->name,
        .service = want->object->service,
        .set = set,
        .ordinal = ordinal,
        .created_at = want->now_ms,
        .expires_at = want->expires_at,
    };

    lh_plan_begin(plan);
    lh_plan_put(plan, LH_KIND_REPLICA, name, &replica, 0, "missing",
                "service %s wants %" G_GINT64_FORMAT " in set %s", want->object->service,
                want->spec->cache_replicas, set);
    lh_plan_rely(plan, LH_KIND_SNAPSHOT, want->snapshot->name, want->object->o.mod_rev);
    lh_plan_rely(plan, LH_KIND_DELETION, want->snapshot->name, 0);
    lh_plan_rely(plan, LH_KIND_ACCEPTED, want->accepted->name, want->accepted->mod_rev);
    lh_plan_event(plan, LH_EVENT_NORMAL, "ReplicaCreated", LH_KIND_SERVICE, want->object->service,
                  "replica %s", name);
    lh_plan_end(plan);
}

static void correct(const Want *want, const LhReplica *present, LhPlan *plan)
{
    LhReplica replica = *present;

    replica.expires_at = want->expires_at;
    lh_plan_begin(plan);
    lh_plan_put(plan, LH_KIND_REPLICA, present->o.name, &replica, present->o.mod_rev,
                "expiry-changed", "service %s has a window of %" G_GINT64_FORMAT " s",
                want->object->service, want->spec->cache_window_ms / 1000);
    lh_plan_rely(plan, LH_KIND_SNAPSHOT, want->snapshot->name, want->object->o.mod_rev);
    lh_plan_rely(plan, LH_KIND_ACCEPTED, want->accepted->name, want->accepted->mod_rev);
    lh_plan_end(plan);
}

static void plan_snapshot(const LhFleet *fleet, const Want *want, LhPlan *plan)
{
    gboolean fresh = want->expires_at - lh_fleet_creation_margin_ms(want->spec) > want->now_ms;

    for (guint s = 0; want->spec->cache_sets[s] != NULL; s++) {
        for (gint64 ordinal = 0; ordinal < want->spec->cache_replicas; ordinal++) {
            const char *set = want->spec->cache_sets[s];
            g_autofree char *name = lh_replica_name(want->snapshot->name, set, ordinal, FALSE);
            const LhFleetReplica *record = g_hash_table_lookup(fleet->replicas, name);
            const LhReplica *present = record == NULL ? NULL : (const LhReplica *)record->object;

            if (present == NULL && fresh)
                create(want, name, set, ordinal, plan);
            else if (present != NULL && !lh_object_known(&present->o))
                lh_plan_note(plan, LH_KIND_REPLICA, name, "replica-unknown",
                             "%s: mend or remove it", lh_object_error(&present->o));
            else if (present != NULL && present->expires_at != want->expires_at)
                correct(want, present, plan);
        }
    }
}

static Want want_of(const LhFleetSnapshot *snapshot, gint64 now_ms)
{
    return (Want){
        .snapshot = snapshot,
        .object = lh_fleet_snapshot_object(snapshot),
        .spec = lh_fleet_service_spec(snapshot->service),
        .accepted = snapshot->service->accepted,
        .expires_at = snapshot->sort_time,
        .now_ms = now_ms,
    };
}

static void plan_missing(const LhFleet *fleet, const LhFleetSnapshot *snapshot,
                         const LhPlanContext *context, LhPlan *plan)
{
    g_autofree char *name = g_strconcat("snapshots/", snapshot->name, "/replica-creator", NULL);
    const LhObject *present = lh_fleet_status(fleet, "snapshots", snapshot->name,
                                              "replica-creator");
    LhCondition condition = {.message = NULL};
    gboolean missing = lh_fleet_service_missing(snapshot, &condition);

    lh_plan_status(plan, present, name, missing ? snapshot->object->mod_rev : 0, &condition,
                   missing ? 1 : 0, context->now_ms);
    g_free((char *)condition.message);
}

/* True when the budget is used up. */
static gboolean full(const LhPlanContext *context, LhPlan *plan)
{
    if (lh_plan_groups(plan) < context->max_groups)
        return FALSE;
    plan->more = TRUE;
    return TRUE;
}

static void replica_creator_plan(gconstpointer index, const LhPlanContext *context, LhPlan *plan)
{
    const LhFleet *fleet = index;
    const LhFleetSnapshot *snapshot;
    g_auto(LhFleetWalk) walk = {.heap = NULL};
    GTreeNode *node;

    for (node = g_tree_node_first(fleet->correct_todo); node != NULL;
         node = g_tree_node_next(node)) {
        Want want = want_of(lh_tree_record(node), context->now_ms);
        if (full(context, plan))
            return;
        plan_snapshot(fleet, &want, plan);
    }
    lh_fleet_walk_begin(&walk, fleet->create_todo);
    while ((snapshot = lh_fleet_walk_next(&walk)) != NULL) {
        Want want = want_of(snapshot, context->now_ms);
        /* Last to expire first: this one and all that follow are past their expiry. */
        if (snapshot->sort_time <= context->now_ms)
            break;
        if (full(context, plan))
            return;
        if (!snapshot->correct_todo)
            plan_snapshot(fleet, &want, plan);
    }
    for (node = g_tree_node_first(fleet->missing_todo); node != NULL;
         node = g_tree_node_next(node)) {
        if (full(context, plan))
            return;
        plan_missing(fleet, lh_tree_record(node), context, plan);
    }
}

const LhController lh_replica_creator = {
    .name = "replica-creator",
    .index = &lh_fleet_index,
    .kinds = LH_KIND_BIT(LH_KIND_ACCEPTED) | LH_KIND_BIT(LH_KIND_SNAPSHOT) |
             LH_KIND_BIT(LH_KIND_REPLICA) | LH_KIND_BIT(LH_KIND_DELETION) |
             LH_KIND_BIT(LH_KIND_SERVICE) | LH_KIND_BIT(LH_KIND_STATUS),
    .plan = replica_creator_plan,
    .settings = lh_fleet_settings_of,
};
