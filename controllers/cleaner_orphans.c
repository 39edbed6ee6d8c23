/*
 * snapshot-cleaner: objects that nobody knows. The unit is a directory and the objects that lie in it
 * directly: what lies deeper is another one, with an age of its own.
 *
 *   seen ─▶ Orphan firstSeen ─ seen again, a grace later, unchanged ─▶ secondSeen, decidedAt (the intent)
 *    ▲          │ changed: anew; not seen: removed                         │ erased: objects 0, a tombstone
 *    └──────────┘                                        claimed first, or not as it was seen: removed
 */
#include "controllers/cleaner_internal.h"

#include <string.h>

#define SEEN LH_CLEANER "/" LH_CLEANER_ORPHAN

static void put(const LhCleaner *cleaner, const char *name, const LhOrphan *present,
                const LhOrphan *object, const char *rule, const char *reason, LhPlan *plan)
{
    (void)cleaner;
    lh_plan_begin(plan);
    lh_plan_put(plan, LH_KIND_ORPHAN, name, object, present == NULL ? 0 : present->o.mod_rev, rule,
                "%s: %s", object->uri, reason);
    lh_plan_end(plan);
}

static const LhOrphan *find(const LhCleaner *cleaner, const char *name)
{
    const LhObject key = {.name = name};

    return g_tree_lookup(cleaner->fleet->orphans, &key);
}

static void sight(const LhCleaner *cleaner, const LhObservation *seen, LhPlan *plan)
{
    const char *name = seen->o.name + strlen(SEEN);
    const LhOrphan *present = find(cleaner, name);
    const LhOrphan object = {
        .uri = seen->uri,
        .objects = seen->objects,
        .bytes = seen->bytes,
        .first_seen = seen->clock,
        .second_seen = -1,
        .decided_at = -1,
    };

    if (!lh_cleaner_sightable(cleaner, seen))
        return;
    if (present == NULL)
        put(cleaner, name, NULL, &object, "seen", "objects that no snapshot knows", plan);
    else
        put(cleaner, name, present, &object, "changed", "it has changed since it was first seen",
            plan);
}

/* The last whole listing of its root did not find it. */
static gboolean vanished(const LhCleaner *cleaner, const LhOrphan *orphan)
{
    g_autofree char *name = g_strconcat(LH_CLEANER_ORPHAN, orphan->o.name, NULL);
    const LhCleanerRoot *root = lh_cleaner_root(cleaner, orphan->uri);

    return root != NULL && root->list != NULL && root->list->error == NULL && root->hold == NULL &&
           lh_fleet_observed(cleaner->fleet, LH_CLEANER, name) == NULL;
}

static void drop(const LhOrphan *orphan, const char *rule, const char *reason, LhPlan *plan)
{
    lh_plan_begin(plan);
    lh_plan_delete(plan, LH_KIND_ORPHAN, orphan->o.name, orphan->o.mod_rev, rule, "%s: %s",
                   orphan->uri, reason);
    lh_plan_end(plan);
}

static void follow(const LhCleaner *cleaner, const LhOrphan *orphan, LhPlan *plan)
{
    const LhObservation *erased = lh_cleaner_erased(cleaner, orphan);
    LhOrphan object = *orphan;

    if (orphan->decided_at < 0) {
        if (vanished(cleaner, orphan))
            drop(orphan, "vanished", "nothing is there any more", plan);
        return;
    }
    if (orphan->objects == 0)
        return;
    if (erased != NULL && erased->error == NULL) {
        object.erased = orphan->objects; /* the brake counts them for a while */
        object.objects = object.bytes = 0;
        put(cleaner, orphan->o.name, orphan, &object, "erased", "its objects are deleted", plan);
        lh_plan_event(plan, LH_EVENT_NORMAL, "OrphanDeleted", LH_KIND_ORPHAN, orphan->o.name,
                      "%s: %" G_GINT64_FORMAT " objects that no snapshot knew are deleted",
                      orphan->uri, erased->objects);
    } else if (erased != NULL && g_strcmp0(erased->state, LH_CLEANER_CHANGED) == 0) {
        drop(orphan, "changed", "it is not as it was seen; what is there is left", plan);
    } else if (erased == NULL && lh_cleaner_claimed_before(cleaner, orphan)) {
        drop(orphan, "claimed", "a snapshot was published there before it was decided", plan);
    }
}

void lh_cleaner_plan_orphans(const LhCleaner *cleaner, LhPlan *plan)
{
    /* A first sighting counts by the store's clock: that and ours must be right. */
    for (GTreeNode *n = lh_fleet_observed_from(cleaner->fleet, SEEN);
         n != NULL && !cleaner->settings->dry_run && cleaner->etcd_ready; n = g_tree_node_next(n)) {
        const LhObservation *seen = g_tree_node_key(n);
        if (!g_str_has_prefix(seen->o.name, SEEN))
            break;
        if (lh_plan_groups(plan) >= cleaner->context->max_groups)
            plan->more = TRUE;
        else
            sight(cleaner, seen, plan);
    }
    for (GTreeNode *n = g_tree_node_first(cleaner->fleet->orphans);
         n != NULL && !cleaner->settings->dry_run; n = g_tree_node_next(n)) {
        const LhOrphan *orphan = g_tree_node_key(n);
        if (lh_plan_groups(plan) >= cleaner->context->max_groups)
            plan->more = TRUE;
        else if (lh_object_known(&orphan->o))
            follow(cleaner, orphan, plan);
    }
}

void lh_cleaner_rely_settings(const LhCleaner *cleaner, LhPlan *plan)
{
    static const char *const names[] = {LH_CLEANER, LH_SETTINGS_ALL};

    for (gsize i = 0; i < G_N_ELEMENTS(names); i++) {
        const LhObject *accepted = g_hash_table_lookup(cleaner->fleet->settings, names[i]);
        g_autofree char *name = g_strconcat("settings/", names[i], NULL);
        lh_plan_rely(plan, LH_KIND_ACCEPTED, name, accepted == NULL ? 0 : accepted->mod_rev);
    }
    lh_plan_rely(plan, LH_KIND_BRAKE, LH_CLEANER,
                 cleaner->brake == NULL ? 0 : cleaner->brake->o.mod_rev);
}

void lh_cleaner_decide_orphan(const LhCleaner *cleaner, const LhOrphan *orphan,
                              const char *plan_hash, LhPlan *plan)
{
    g_autofree char *name = g_strconcat(LH_CLEANER_ORPHAN, orphan->o.name, NULL);
    const LhObservation *seen = lh_fleet_observed(cleaner->fleet, LH_CLEANER, name);
    LhOrphan object = *orphan;

    object.second_seen = seen->clock;
    object.decided_at = cleaner->context->now_ms;
    object.plan_hash = plan_hash;
    lh_plan_begin(plan);
    lh_plan_put(plan, LH_KIND_ORPHAN, orphan->o.name, &object, orphan->o.mod_rev, "orphan",
                "%s: seen twice, a grace apart, and no snapshot knows it", orphan->uri);
    lh_cleaner_rely_settings(cleaner, plan);
    lh_plan_end(plan);
}
