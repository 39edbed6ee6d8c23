/*
 * snapshot-cleaner: deletes the data of snapshots past endTime + retention + buffer, and objects that no
 * snapshot knows. The most dangerous controller: everything else may be wrong once and be mended.
 *
 *   replicas gone ─▶ Deletion (fenced, irrevocable) ─▶ errand erases ─▶ observed ─▶ dataDeletedAt and the
 *                                                                      snapshot retired, in one transaction
 *
 * Each step is read from keys, so any leader goes on where the last one stopped. Its brake counts all that is
 * due before any rate. It deletes nothing of a Service that was deleted, is paused, or has an edit that is
 * not in force.
 */
#include "controllers/cleaner_internal.h"
#include "controllers/registry.h"

#include <string.h>

#define OUTSTANDING 10 /* seconds' worth of Deletions that may wait for their data to go */

typedef struct {
    LhCleaner cleaner;
    LhBraking braking;
    LhPlan *plan;
} Round;

/* Why not to go on; the first that holds. Only of a Confirmation's kinds can people let it go. */
typedef enum { CAUSE_NONE, CAUSE_HOLD, CAUSE_REGRESSED, CAUSE_NEWER, CAUSE_MUCH } Cause;

/* ---- what has been done ---- */

static void retire(Round *round, const LhDeletion *deletion, const LhObservation *seen)
{
    const LhFleetSnapshot *snapshot = lh_name_set_get(&round->cleaner.fleet->snapshots,
                                                      deletion->o.name);
    const LhObject *object = snapshot == NULL ? NULL : snapshot->object;
    LhDeletion done = *deletion;

    done.data_deleted_at = round->cleaner.context->now_ms;
    lh_plan_begin(round->plan);
    lh_plan_put(round->plan, LH_KIND_DELETION, deletion->o.name, &done, deletion->o.mod_rev,
                "deleted", "its data is deleted, %" G_GINT64_FORMAT " objects", seen->objects);
    if (object != NULL && object->mod_rev == deletion->snapshot_revision)
        lh_plan_delete(round->plan, LH_KIND_SNAPSHOT, deletion->o.name, object->mod_rev, "deleted",
                       "its data is deleted");
    else
        lh_plan_rely(round->plan, LH_KIND_SNAPSHOT, deletion->o.name,
                     object == NULL ? 0 : object->mod_rev);
    lh_plan_event(round->plan, LH_EVENT_NORMAL, "SnapshotDeleted", LH_KIND_SNAPSHOT,
                  deletion->o.name, "%s is deleted", deletion->uri);
    lh_plan_end(round->plan);
}

static void plan_deleted(Round *round)
{
    for (GTreeNode *n = g_tree_node_first(round->cleaner.fleet->undeleted); n != NULL;
         n = g_tree_node_next(n)) {
        const LhDeletion *deletion = g_tree_node_key(n);
        g_autofree char *id = g_strconcat(LH_CLEANER_DELETE, deletion->o.name, NULL);
        const LhObservation *seen = lh_fleet_observed(round->cleaner.fleet, LH_CLEANER, id);
        if (seen == NULL || seen->token != deletion->o.create_rev)
            continue;
        if (seen->error == NULL)
            retire(round, deletion, seen);
        else
            lh_plan_note(round->plan, LH_KIND_DELETION, deletion->o.name, "failed", "%s",
                         seen->error);
    }
}

/* ---- conditions ---- */

static gboolean says_missing(const LhObject *status)
{
    const LhStatus *said = (const LhStatus *)status;

    for (guint i = 0; status != NULL && lh_object_known(status) && i < said->conditions->n; i++)
        if (strcmp(((const LhCondition *)lh_array_at(said->conditions, i))->type, "DataMissing") ==
            0)
            return TRUE;
    return FALSE;
}

static void plan_conditions(Round *round)
{
    const LhFleet *fleet = round->cleaner.fleet;

    for (GTreeNode *n = g_tree_node_first(fleet->clean_todo); n != NULL; n = g_tree_node_next(n)) {
        const LhFleetSnapshot *snapshot = lh_tree_record(n);
        g_autofree char *name = g_strconcat("snapshots/", snapshot->name, "/" LH_CLEANER, NULL);
        const LhObject *status = lh_fleet_status(fleet, "snapshots", snapshot->name, LH_CLEANER);
        LhCondition conditions[2];
        guint count;
        if (lh_plan_groups(round->plan) >= round->cleaner.context->max_groups) {
            round->plan->more = TRUE;
            return;
        }
        count = lh_fleet_clean_conditions(fleet, snapshot, conditions);
        if (lh_plan_status(round->plan, status, name, count == 0 ? 0 : snapshot->object->mod_rev,
                           conditions, count, round->cleaner.context->now_ms) &&
            count > 0 && strcmp(conditions[0].type, "DataMissing") == 0 && !says_missing(status))
            lh_plan_event(round->plan, LH_EVENT_WARNING, "DataMissing", LH_KIND_SNAPSHOT,
                          snapshot->name, "%s", conditions[0].message);
        for (guint i = 0; i < count; i++)
            g_free((char *)conditions[i].message);
    }
}

/* Braked as the Brake says, once there has been one; DryRun as long as it is one. */
static void plan_status(Round *round)
{
    const LhCleaner *cleaner = &round->cleaner;
    const LhObject *present = lh_fleet_status(cleaner->fleet, "settings", LH_CLEANER, LH_CLEANER);
    const LhObject *accepted = g_hash_table_lookup(cleaner->fleet->settings, LH_CLEANER);
    g_autofree char *dry = g_strdup_printf("would delete the data of %u snapshots and %u orphans; "
                                           "see the plan",
                                           cleaner->due->len, cleaner->orphans->len);
    LhCondition conditions[2];
    guint n = 0;

    if (cleaner->brake != NULL || present != NULL)
        conditions[n++] = (LhCondition){
            .type = "Braked",
            .status = cleaner->brake != NULL ? LH_CONDITION_TRUE : LH_CONDITION_FALSE,
            .reason = cleaner->brake != NULL ? "Held" : "WithinLimit",
            .message = cleaner->brake != NULL ? cleaner->brake->message : NULL,
        };
    if (cleaner->settings->dry_run)
        conditions[n++] = (LhCondition){.type = "DryRun",
                                        .status = LH_CONDITION_TRUE,
                                        .reason = "NothingIsDeleted",
                                        .message = dry};
    if (n > 0)
        lh_plan_status(round->plan, present, "settings/" LH_CLEANER "/" LH_CLEANER,
                       accepted == NULL ? 0 : accepted->mod_rev, conditions, n,
                       cleaner->context->now_ms);
}

/* ---- decisions ---- */

static void decide(Round *round, const LhFleetSnapshot *snapshot, const char *uri)
{
    const LhCleaner *cleaner = &round->cleaner;
    const LhSnapshot *object = lh_fleet_snapshot_object(snapshot);
    const LhFleetService *service = snapshot->service;
    g_autofree char *replicas = g_strconcat(snapshot->name, ".", NULL);
    LhDeletion deletion = {
        .uri = uri,
        .snapshot_revision = object->o.mod_rev,
        .decided_at = cleaner->context->now_ms,
        .data_deleted_at = -1,
    };

    lh_plan_begin(round->plan);
    lh_plan_put(round->plan, LH_KIND_DELETION, snapshot->name, &deletion, 0, "expired",
                "past its end, the retention of service %s and the buffer", service->name);
    lh_plan_rely(round->plan, LH_KIND_SNAPSHOT, snapshot->name, object->o.mod_rev);
    lh_plan_rely_none(round->plan, LH_KIND_REPLICA, replicas);
    lh_cleaner_rely_settings(cleaner, round->plan);
    lh_plan_rely(round->plan, LH_KIND_SERVICE, service->name, service->desired->mod_rev);
    lh_plan_rely(round->plan, LH_KIND_ACCEPTED, service->accepted->name,
                 service->accepted->mod_rev);
    lh_plan_end(round->plan);
}

/* How many may be decided now. */
static gint64 allowance(Round *round)
{
    const LhCleaner *cleaner = &round->cleaner;
    gint64 rate = cleaner->settings->deletes_per_second, now = cleaner->context->now_ms, lately = 0;
    gint64 waiting = g_tree_nnodes(cleaner->fleet->undeleted);

    for (GTreeNode *n = g_tree_node_last(cleaner->fleet->decided); n != NULL;
         n = g_tree_node_previous(n)) {
        const LhDeletion *deletion = g_tree_node_key(n);
        if (deletion->decided_at <= now - 1000)
            break;
        lately++;
    }
    return MAX(0, MIN(rate - lately, rate * OUTSTANDING - waiting));
}

static void delete_all(Round *round, const GPtrArray *due)
{
    const LhCleaner *cleaner = &round->cleaner;
    gint64 left = due->len == 0 ? 0 : allowance(round);

    for (guint i = 0; i < due->len; i++) {
        const LhFleetSnapshot *snapshot = g_ptr_array_index(due, i);
        g_autofree char *uri = lh_uri_text(&lh_fleet_snapshot_object(snapshot)->uri);
        const LhCleanerRoot *root = lh_cleaner_root(cleaner, uri);
        const char *why = NULL;
        if (lh_fleet_replicas_below(cleaner->fleet, snapshot))
            why = "it still has replicas";
        else if (root == NULL || !root->ready || !cleaner->etcd_ready)
            why = "its root and the clocks are still to be looked at";
        else if (left == 0)
            why = "deletesPerSecond";
        if (why != NULL && left == 0)
            lh_plan_wake(round->plan, cleaner->context->now_ms + 1000);
        if (why != NULL) {
            lh_plan_note(round->plan, LH_KIND_SNAPSHOT, snapshot->name, "expired-waits", "%s", why);
            continue;
        }
        left--;
        decide(round, snapshot, uri);
    }
}

static void decide_orphans(Round *round, const GPtrArray *orphans)
{
    gint64 left = round->cleaner.settings->deletes_per_second;

    for (guint i = 0; i < orphans->len && left > 0; i++) {
        const LhOrphan *orphan = g_ptr_array_index(orphans, i);
        const LhCleanerRoot *root = lh_cleaner_root(&round->cleaner, orphan->uri);
        if (root == NULL || !root->ready || !round->cleaner.etcd_ready)
            continue;
        left--;
        lh_cleaner_decide_orphan(&round->cleaner, orphan, round->plan);
    }
}

/* ---- the brake ---- */

static gint by_text(gconstpointer a, gconstpointer b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static char *hash_of(const GPtrArray *due, const GPtrArray *orphans)
{
    g_autoptr(GPtrArray) names = g_ptr_array_new_with_free_func(g_free);

    for (guint i = 0; i < due->len; i++)
        g_ptr_array_add(names,
                        g_strconcat("snapshots/", ((LhFleetSnapshot *)due->pdata[i])->name, NULL));
    for (guint i = 0; i < orphans->len; i++)
        g_ptr_array_add(names,
                        g_strconcat("orphans/", ((LhOrphan *)orphans->pdata[i])->o.name, NULL));
    g_ptr_array_sort(names, by_text);
    return lh_brake_hash((const char *const *)names->pdata, names->len);
}

static Cause cause_of(const Round *round, char **words)
{
    const LhCleaner *cleaner = &round->cleaner;
    gint64 percent = cleaner->settings->brake_percent;
    gint64 all = (gint64)cleaner->fleet->by_uri.n;

    *words = NULL;
    if (!cleaner->work)
        return CAUSE_NONE;
    for (guint i = 0; i < cleaner->roots->len; i++) {
        const LhCleanerRoot *root = &g_array_index(cleaner->roots, LhCleanerRoot, i);
        if (root->hold != NULL) {
            *words = g_strdup_printf("%s: %s", root->root, root->hold);
            return CAUSE_HOLD;
        }
    }
    if (cleaner->fleet->unreadable > 0) {
        *words = g_strdup("a Snapshot does not parse, and nobody can say where its data lies: mend "
                          "or remove it");
        return CAUSE_HOLD;
    }
    if (cleaner->etcd_hold != NULL) {
        *words = g_strdup(cleaner->etcd_hold);
        return CAUSE_HOLD;
    }
    if (cleaner->context->regressed) {
        *words = g_strdup("etcd went back in time");
        return CAUSE_REGRESSED;
    }
    for (guint i = 0; i < cleaner->roots->len; i++)
        if (g_array_index(cleaner->roots, LhCleanerRoot, i).unmarked) {
            *words = g_strdup_printf("%s: " LH_CLEANER_UNMARKED,
                                     g_array_index(cleaner->roots, LhCleanerRoot, i).root);
            return CAUSE_NEWER;
        } else if (g_array_index(cleaner->roots, LhCleanerRoot, i).newer) {
            *words = g_strdup_printf("%s: " LH_CLEANER_NEWER ": etcd went back in time",
                                     g_array_index(cleaner->roots, LhCleanerRoot, i).root);
            return CAUSE_NEWER;
        }
    if (cleaner->exceeding != NULL)
        *words = g_strdup_printf("more of service %s than brakePercent allows", cleaner->exceeding);
    else if (lh_brake_exceeds(cleaner->due->len, all, percent))
        *words = g_strdup("more of all snapshots than brakePercent allows");
    else if (lh_brake_exceeds(cleaner->orphaned, cleaner->listed, percent))
        *words = g_strdup_printf("%" G_GINT64_FORMAT " of %" G_GINT64_FORMAT
                                 " listed objects are nobody's: more than brakePercent allows",
                                 cleaner->orphaned, cleaner->listed);
    return *words != NULL ? CAUSE_MUCH : CAUSE_NONE;
}

static char *message_of(const Round *round, Cause cause, const char *words, const char *hash)
{
    const LhCleaner *cleaner = &round->cleaner;
    g_autofree char *what = g_strdup_printf(
        "the data of %u of %" G_GSIZE_FORMAT " snapshots and %u orphans would go now: %s",
        cleaner->due->len, cleaner->fleet->by_uri.n, cleaner->orphans->len, words);

    /* No Confirmation mends these. */
    if (cause == CAUSE_HOLD)
        return g_strdup_printf("%s; nothing is deleted until that is mended", words);
    return g_strdup_printf("%s; leasehold confirm " LH_CLEANER " --plan %s", what, hash);
}

static void brake(Round *round, Cause cause, const char *words)
{
    const LhCleaner *cleaner = &round->cleaner;
    g_autofree char *hash = hash_of(cleaner->due, cleaner->orphans);
    g_autofree char *message = message_of(round, cause, words, hash);

    lh_plan_begin(round->plan);
    lh_brake_put(&round->braking, hash, cleaner->due->len + cleaner->orphans->len,
                 (gint64)cleaner->fleet->by_uri.n, message);
    lh_plan_end(round->plan);
}

static void release(Round *round, const char *rule, const char *reason)
{
    lh_plan_begin(round->plan);
    lh_brake_remove(&round->braking, rule, reason);
    lh_plan_end(round->plan);
}

static GPtrArray *frozen_orphans(const LhCleaner *cleaner)
{
    GPtrArray *frozen = g_ptr_array_new();

    for (guint i = 0; i < cleaner->orphans->len; i++)
        if (((LhOrphan *)cleaner->orphans->pdata[i])->o.mod_rev <= cleaner->brake->revision)
            g_ptr_array_add(frozen, cleaner->orphans->pdata[i]);
    return frozen;
}

/* Confirmed: that set and no other; what stands in the way of each one still does. */
static void carry_out(Round *round, const GPtrArray *due, const GPtrArray *orphans, Cause cause,
                      const char *words)
{
    const LhCleaner *cleaner = &round->cleaner;

    if (due->len + orphans->len > (guint)cleaner->brake->eligible) {
        brake(round, cause == CAUSE_NONE ? CAUSE_MUCH : cause,
              words != NULL ? words : "more than was confirmed");
    } else if (due->len + orphans->len == 0 && cause != CAUSE_NEWER && cause != CAUSE_HOLD) {
        release(round, "carried-out", "the confirmed plan is carried out");
    } else if (cause != CAUSE_HOLD) {
        delete_all(round, due);
        decide_orphans(round, orphans);
    }
}

static void note_all(Round *round, const GPtrArray *due, const GPtrArray *orphans, const char *rule)
{
    for (guint i = 0; round->plan->explain && i < due->len; i++)
        lh_plan_note(round->plan, LH_KIND_SNAPSHOT, ((LhFleetSnapshot *)due->pdata[i])->name, rule,
                     "its data would be deleted");
    for (guint i = 0; round->plan->explain && i < orphans->len; i++)
        lh_plan_note(round->plan, LH_KIND_ORPHAN, ((LhOrphan *)orphans->pdata[i])->o.name, rule,
                     "%s would be deleted", ((LhOrphan *)orphans->pdata[i])->uri);
}

static void plan_braked(Round *round, Cause cause, const char *words)
{
    const LhCleaner *cleaner = &round->cleaner;
    g_autoptr(GPtrArray) due = lh_cleaner_due(cleaner, cleaner->brake->since,
                                              cleaner->brake->revision, NULL, NULL);
    g_autoptr(GPtrArray) orphans = frozen_orphans(cleaner);
    g_autofree char *hash = hash_of(due, orphans);
    g_autofree char *message = words == NULL ? NULL : message_of(round, cause, words, hash);

    if (cleaner->old || (cleaner->confirmed && cause == CAUSE_NEWER && !cleaner->takes_over)) {
        /* It is about something else than what is in the way now. */
        if (cause == CAUSE_NONE)
            release(round, "released", "it came back with a backup, and nothing would go now");
        else
            brake(round, cause, words);
    } else if (cleaner->confirmed) {
        carry_out(round, due, orphans, cause, words);
    } else if (cause == CAUSE_NONE) {
        release(round, "released", "nothing stands in the way any more");
    } else if (g_strcmp0(hash, cleaner->brake->plan_hash) != 0 ||
               (cause == CAUSE_HOLD && g_strcmp0(message, cleaner->brake->message) != 0) ||
               (cause != CAUSE_HOLD && strstr(cleaner->brake->message, words) == NULL)) {
        brake(round, cause, words);
    } else if (cause != CAUSE_HOLD && lh_brake_is_confirmed(&round->braking)) {
        lh_brake_confirm(&round->braking);
    } else {
        lh_plan_note(round->plan, LH_KIND_BRAKE, LH_CLEANER, "braked", "%s",
                     cleaner->brake->message == NULL ? "" : cleaner->brake->message);
        note_all(round, due, orphans, "braked");
    }
}

/* ---- the plan ---- */

static gboolean unreadable(Round *round)
{
    const LhObject *brake_object = g_hash_table_lookup(round->cleaner.fleet->brakes, LH_CLEANER);

    if (brake_object == NULL || lh_object_known(brake_object))
        return FALSE;
    lh_plan_note(round->plan, LH_KIND_BRAKE, LH_CLEANER, "unknown",
                 "its Brake does not parse: mend or remove it");
    return TRUE;
}

static void plan_all(Round *round)
{
    const LhCleaner *cleaner = &round->cleaner;
    g_autofree char *words = NULL;
    Cause cause;

    plan_deleted(round);
    plan_conditions(round);
    if (cleaner->next_due_ms != 0)
        lh_plan_wake(round->plan, cleaner->next_due_ms);
    if (cleaner->roots->len == 0 || unreadable(round))
        return; /* a manager without roots deletes nothing */
    lh_cleaner_plan_orphans(cleaner, round->plan);
    plan_status(round);
    if (cleaner->settings->dry_run) {
        note_all(round, cleaner->due, cleaner->orphans, "dry-run");
        return;
    }
    cause = cause_of(round, &words);
    if (cleaner->brake != NULL) {
        plan_braked(round, cause, words);
    } else if (cause != CAUSE_NONE) {
        brake(round, cause, words);
    } else {
        delete_all(round, cleaner->due);
        decide_orphans(round, cleaner->orphans);
    }
}

static void snapshot_cleaner_plan(gconstpointer index, const LhPlanContext *context, LhPlan *plan)
{
    Round round = {.plan = plan};

    lh_cleaner_read(&round.cleaner, index, context);
    round.braking = (LhBraking){LH_CLEANER, index, context, round.cleaner.brake, plan};
    plan_all(&round);
    lh_cleaner_clear(&round.cleaner);
}

static void snapshot_cleaner_gauges(gconstpointer index, gint64 now_ms, LhGaugeFunc gauge,
                                    gpointer data)
{
    const LhFleet *fleet = index;
    const LhPlanContext context = {.now_ms = now_ms};
    gint64 missing = 0, orphaned = 0;
    LhCleaner cleaner;

    lh_cleaner_read(&cleaner, index, &context);
    for (guint i = 0; i < cleaner.roots->len; i++) {
        const LhObservation *list = g_array_index(cleaner.roots, LhCleanerRoot, i).list;
        if (list == NULL || list->error != NULL)
            continue;
        missing += MAX(0, list->missing);
        orphaned += MAX(0, list->orphans);
    }
    gauge("brake", "controller=\"" LH_CLEANER "\"",
          g_hash_table_contains(fleet->brakes, LH_CLEANER) ? 1 : 0, data);
    gauge("snapshots_missing_data", NULL, (double)missing, data);
    gauge("objectstore_orphaned_objects", NULL, (double)orphaned, data);
    gauge("snapshots_expired", NULL, cleaner.due->len, data);
    gauge("deletions_pending", NULL, g_tree_nnodes(fleet->undeleted), data);
    lh_cleaner_clear(&cleaner);
}

static const char *const gauge_names[] = {
    "brake",
    "snapshots_missing_data",
    "objectstore_orphaned_objects",
    "snapshots_expired",
    "deletions_pending",
    NULL,
};

const LhController lh_snapshot_cleaner = {
    .name = LH_CLEANER,
    .index = &lh_fleet_index,
    .kinds = LH_KIND_BIT(LH_KIND_ACCEPTED) | LH_KIND_BIT(LH_KIND_SNAPSHOT) |
             LH_KIND_BIT(LH_KIND_REPLICA) | LH_KIND_BIT(LH_KIND_DELETION) |
             LH_KIND_BIT(LH_KIND_ORPHAN) | LH_KIND_BIT(LH_KIND_BRAKE) |
             LH_KIND_BIT(LH_KIND_STATUS) | LH_KIND_BIT(LH_KIND_SERVICE) |
             LH_KIND_BIT(LH_KIND_OBSERVATION),
    .plan = snapshot_cleaner_plan,
    .errands = lh_cleaner_errands,
    .gauges = snapshot_cleaner_gauges,
    .gauge_names = gauge_names,
    .settings = lh_fleet_settings_of,
};
