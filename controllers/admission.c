/*
 * admission: what people wrote, checked and copied to what is in force.
 *
 * A valid desired object is copied to decided/accepted/ with the revision that it speaks of; an invalid
 * one leaves the last good copy in force. Says Valid=True or False in the Status of every desired object,
 * and Valid=False in that of a snapshot that may not be used. Never writes what a person wrote. While it
 * is paused it still takes Settings, or nobody could end the pause.
 */
#include "base/planted.h"
#include "controllers/fleet.h"
#include "controllers/registry.h"

#include <string.h>

/* What made it valid besides itself. */
static void rely_on_others(const LhFleet *fleet, const LhFleetSubject *subject, LhPlan *plan)
{
    const char *throttle = subject->kind == LH_KIND_SEED
                               ? ((const LhSeed *)subject->desired)->throttle
                               : NULL;
    g_autofree char *key = throttle == NULL ? NULL : g_strconcat("throttles/", throttle, NULL);
    const LhFleetSubject *other = key == NULL ? NULL : g_hash_table_lookup(fleet->subjects, key);

    if (other != NULL && other->accepted != NULL)
        lh_plan_rely(plan, LH_KIND_ACCEPTED, key, other->accepted->mod_rev);
}

static void accept(const LhFleet *fleet, const LhFleetSubject *subject,
                   const LhPlanContext *context, LhPlan *plan)
{
    const LhObject *desired = subject->desired;
    const LhAccepted *present = (const LhAccepted *)subject->accepted;
    const char *name = desired->name;
    g_autofree char *spec = lh_object_print(subject->kind, desired);
    LhAccepted accepted = {
        .revision = desired->mod_rev,
        .accepted_at = context->now_ms,
        .labels = lh_object_labels(desired),
        .spec = spec,
    };

    lh_plan_begin(plan);
    lh_plan_put(plan, LH_KIND_ACCEPTED, subject->key, &accepted,
                present == NULL ? 0 : present->o.mod_rev, "valid",
                "revision %" G_GINT64_FORMAT " is valid", desired->mod_rev);
    lh_plan_rely(plan, subject->kind, name, desired->mod_rev);
    rely_on_others(fleet, subject, plan);
    lh_plan_end(plan);
}

static void forget(const LhFleet *fleet, const LhFleetSubject *subject, const char *name,
                   LhPlan *plan)
{
    const LhKindInfo *info = lh_kind_info(subject->kind);
    const LhObject *status = lh_fleet_status(fleet, info->plural, name, "admission");

    if (subject->accepted != NULL && !lh_object_known(subject->accepted))
        lh_plan_note(plan, subject->kind, name, "accepted-unknown",
                     "decided/accepted/%s does not parse (%s): mend or remove it", subject->key,
                     lh_object_error(subject->accepted));
    lh_plan_begin(plan);
    if (subject->accepted != NULL && lh_object_known(subject->accepted))
        lh_plan_delete(plan, LH_KIND_ACCEPTED, subject->key, subject->accepted->mod_rev,
                       "withdrawn", "its %s was deleted", info->name);
    if (status != NULL && lh_object_known(status))
        lh_plan_delete(plan, LH_KIND_STATUS, status->name, status->mod_rev, "withdrawn",
                       "its %s was deleted", info->name);
    lh_plan_rely(plan, subject->kind, name, 0);
    lh_plan_end(plan);
}

static void plan_subject(const LhFleet *fleet, const LhFleetSubject *subject,
                         const LhPlanContext *context, LhPlan *plan)
{
    const LhKindInfo *info = lh_kind_info(subject->kind);
    const char *name = subject->key + strlen(info->plural) + 1;
    const LhAccepted *accepted = (const LhAccepted *)subject->accepted;
    g_autofree char *invalid = NULL;
    g_autofree char *status_name = NULL;
    LhCondition condition;
    guint n;

    if (subject->desired == NULL) {
        forget(fleet, subject, name, plan);
        return;
    }
    invalid = lh_fleet_subject_invalid(fleet, subject);
    if (invalid != NULL)
        lh_plan_note(plan, subject->kind, name, "invalid", "%s%s", invalid,
                     accepted == NULL || !lh_object_known(&accepted->o)
                         ? ""
                         : "; the last good one stays in force");
    else if (lh_kind_is_desired(subject->kind) &&
             (accepted == NULL || accepted->revision != subject->desired->mod_rev))
        accept(fleet, subject, context, plan);
    if (LH_BUG(LAST_GOOD_FORGOTTEN) && invalid != NULL && accepted != NULL &&
        accepted->o.mod_rev < context->epoch) {
        lh_plan_begin(plan);
        lh_plan_delete(plan, LH_KIND_ACCEPTED, subject->key, accepted->o.mod_rev, "withdrawn", "%s",
                       invalid);
        lh_plan_end(plan);
    }
    n = lh_fleet_valid_condition(subject->desired, invalid, &condition);
    status_name = g_strconcat(subject->key, "/admission", NULL);
    lh_plan_status(plan, lh_fleet_status(fleet, info->plural, name, "admission"), status_name,
                   subject->desired->mod_rev, &condition, n, context->now_ms);
}

static void plan_snapshot(const LhFleet *fleet, const LhFleetSnapshot *snapshot,
                          const LhPlanContext *context, LhPlan *plan)
{
    const LhObject *present = lh_fleet_status(fleet, "snapshots", snapshot->name, "admission");
    g_autofree char *name = g_strconcat("snapshots/", snapshot->name, "/admission", NULL);
    g_autofree char *invalid = NULL;
    LhCondition condition;
    guint n = 0;

    if (snapshot->object != NULL && lh_kind_name_valid(LH_KIND_SNAPSHOT, snapshot->name)) {
        invalid = lh_fleet_snapshot_invalid(fleet, snapshot);
        n = lh_fleet_valid_condition(snapshot->object, invalid, &condition);
    }
    lh_plan_status(plan, present, name, snapshot->object == NULL ? 0 : snapshot->object->mod_rev,
                   &condition, n, context->now_ms);
}

static void admission_plan(gconstpointer index, const LhPlanContext *context, LhPlan *plan)
{
    const LhFleet *fleet = index;
    gboolean paused = lh_controller_paused(&lh_admission, index);
    GTreeNode *node;

    for (node = g_tree_node_first(fleet->admit_todo); node != NULL; node = g_tree_node_next(node)) {
        const LhFleetSubject *subject = lh_tree_record(node);
        if (paused && subject->kind != LH_KIND_SETTINGS)
            continue;
        if (lh_plan_groups(plan) >= context->max_groups) {
            plan->more = TRUE;
            return;
        }
        plan_subject(fleet, subject, context, plan);
    }
    for (node = paused ? NULL : g_tree_node_first(fleet->valid_todo); node != NULL;
         node = g_tree_node_next(node)) {
        if (lh_plan_groups(plan) >= context->max_groups) {
            plan->more = TRUE;
            return;
        }
        plan_snapshot(fleet, lh_tree_record(node), context, plan);
    }
}

const LhController lh_admission = {
    .name = "admission",
    .index = &lh_fleet_index,
    .kinds = LH_KIND_BIT(LH_KIND_SERVICE) | LH_KIND_BIT(LH_KIND_SEED) |
             LH_KIND_BIT(LH_KIND_THROTTLE) | LH_KIND_BIT(LH_KIND_PARTITION) |
             LH_KIND_BIT(LH_KIND_RESTORE) | LH_KIND_BIT(LH_KIND_NODEPOLICY) |
             LH_KIND_BIT(LH_KIND_SETTINGS) | LH_KIND_BIT(LH_KIND_CONFIRMATION) |
             LH_KIND_BIT(LH_KIND_SNAPSHOT) | LH_KIND_BIT(LH_KIND_ACCEPTED) |
             LH_KIND_BIT(LH_KIND_DELETION) | LH_KIND_BIT(LH_KIND_STATUS) |
             LH_KIND_BIT(LH_KIND_RECOVERYTASK),
    .plan = admission_plan,
    .settings = lh_fleet_settings_of,
    .plans_paused = TRUE,
};
