/*
 * restore-manager: old snapshots back on the nodes for a while, because somebody asked.
 *
 * A request is Pending while its replicas are created, one for each snapshot in each set of its service
 * that has no live or coming one; then Active until the last of them is gone, then Completed; Refused when
 * it asks for too much. It sets each replica's expiry once, ttl after it was first live, and gives up what
 * is not live in time. All that it knows of a request is a key, so another leader goes on with it. Never
 * deletes a replica: what has expired is the evictor's and the assigner's.
 */
#include "base/planted.h"
#include "controllers/fleet.h"
#include "controllers/registry.h"
#include "controllers/restore_scan.h"

#include <string.h>

#define GIVE_UP_MS        (24 * G_GINT64_CONSTANT(3600000))
#define GIVE_UP_KEYS      60 /* in one transaction: replicas, and what their nodes say of them */
#define TTL_WHEN_NOT_SAID G_GINT64_CONSTANT(3600000)

typedef struct {
    const LhFleet *fleet;
    const LhPlanContext *context;
    const LhSettings *settings;
    LhPlan *plan;
} Round;

/* True when the budget is used up. */
static gboolean full(Round *round)
{
    if (lh_plan_groups(round->plan) < round->context->max_groups)
        return FALSE;
    round->plan->more = TRUE;
    return TRUE;
}

static void rely_on_request(Round *round, const LhFleetRestore *restore)
{
    g_autofree char *name = g_strconcat("restores/", restore->name, NULL);

    lh_plan_rely(round->plan, LH_KIND_ACCEPTED, name,
                 restore->accepted == NULL ? 0 : restore->accepted->mod_rev);
}

/* ---- progress ---- */

static LhRestoreProgress progress_of(const LhFleetRestore *restore)
{
    return *(const LhRestoreProgress *)restore->progress;
}

/* Into the open group. */
static void put_progress(Round *round, const LhFleetRestore *restore,
                         const LhRestoreProgress *progress, const char *rule, const char *reason)
{
    lh_plan_put(round->plan, LH_KIND_RESTOREPROGRESS, restore->name, progress,
                restore->progress == NULL ? 0 : restore->progress->mod_rev, rule, "%s", reason);
}

static void announce(Round *round, const LhFleetRestore *restore, const LhRestoreProgress *progress)
{
    static const struct {
        LhEventType type;
        const char *reason;
    } events[] = {
        [LH_RESTORE_PENDING] = {LH_EVENT_NORMAL, "RestoreAccepted"},
        [LH_RESTORE_ACTIVE] = {LH_EVENT_NORMAL, "RestoreActive"},
        [LH_RESTORE_COMPLETED] = {LH_EVENT_NORMAL, "RestoreCompleted"},
        [LH_RESTORE_REFUSED] = {LH_EVENT_WARNING, "RestoreRefused"},
    };

    lh_plan_event(round->plan, events[progress->phase].type, events[progress->phase].reason,
                  LH_KIND_RESTORE, restore->name, "%" G_GINT64_FORMAT " replicas%s%s",
                  progress->replicas, progress->message == NULL ? "" : ": ",
                  progress->message == NULL ? "" : progress->message);
}

static void enter(Round *round, const LhFleetRestore *restore, LhRestorePhase phase,
                  gint64 replicas, const char *message, const char *rule, const char *reason)
{
    LhRestoreProgress progress = {
        .phase = phase,
        .observed_revision = ((const LhAccepted *)restore->accepted)->revision,
        .replicas = replicas,
        .live = restore->live,
        .until = lh_fleet_restore_until(restore),
        .message = message,
    };

    if (restore->progress != NULL && progress_of(restore).phase == LH_RESTORE_PENDING &&
        progress_of(restore).observed_revision == progress.observed_revision)
        progress.given_up = progress_of(restore).given_up;
    lh_plan_begin(round->plan);
    put_progress(round, restore, &progress, rule, reason);
    rely_on_request(round, restore);
    announce(round, restore, &progress);
    lh_plan_end(round->plan);
}

/* "2 were there already; 1 cannot be restored", or NULL; g_free. */
static char *remarks(const LhRestoreScan *scan, gint64 left_out, gint64 limit)
{
    g_autoptr(GString) text = g_string_new(NULL);

    if (scan->own == 0 && scan->missing->len == 0 && scan->covered == 0 && scan->skipped == 0)
        return g_strdup("there is no such snapshot");
    if (scan->covered > 0)
        g_string_append_printf(text, "%" G_GINT64_FORMAT " are there without it", scan->covered);
    if (scan->skipped > 0)
        g_string_append_printf(text,
                               "%s%" G_GINT64_FORMAT
                               " snapshots are live, not valid, being deleted or not there",
                               text->len == 0 ? "" : "; ", scan->skipped);
    if (left_out > 0)
        g_string_append_printf(text,
                               "%s%" G_GINT64_FORMAT
                               " that came later are left out: maxReplicasPerRestore is "
                               "%" G_GINT64_FORMAT,
                               text->len == 0 ? "" : "; ", left_out, limit);
    return text->len == 0 ? NULL : g_strdup(text->str);
}

/* ---- a request that is new, or was changed ---- */

static void decide(Round *round, const LhFleetRestore *restore)
{
    g_auto(LhRestoreScan) scan = {.missing = NULL};
    gint64 limit = round->settings->max_replicas_per_restore, total;
    g_autofree char *message = NULL;

    lh_restore_scan(round->fleet, restore, round->context->now_ms, &scan);
    total = scan.own + scan.missing->len + scan.held;
    if (total > limit) {
        message = g_strdup_printf("it needs %" G_GINT64_FORMAT
                                  " replicas, maxReplicasPerRestore is %" G_GINT64_FORMAT,
                                  total, limit);
        enter(round, restore, LH_RESTORE_REFUSED, total, message, "refused", message);
        return;
    }
    message = remarks(&scan, 0, limit);
    if (scan.missing->len == 0 && scan.extend->len == 0 && scan.held == 0)
        enter(round, restore, lh_fleet_restore_phase(restore), scan.own, message, "nothing-missing",
              "all that it asks for is there");
    else
        enter(round, restore, LH_RESTORE_PENDING, total, message, "requested",
              "somebody asks for it");
}

/* ---- Pending ---- */

/* No regular replica has come, and none that is there was given a longer life. */
static void rely_on_absence(Round *round, const LhRestoreMissing *missing)
{
    const LhFleetSnapshot *snapshot = missing->snapshot;
    const LhService *spec = lh_fleet_service_spec(snapshot->service);

    for (gint64 ordinal = 0; spec != NULL && ordinal < spec->cache_replicas; ordinal++) {
        g_autofree char *name = lh_replica_name(snapshot->name, missing->set, ordinal, FALSE);
        const LhFleetReplica *replica = g_hash_table_lookup(round->fleet->replicas, name);
        lh_plan_rely(round->plan, LH_KIND_REPLICA, name,
                     replica == NULL || replica->object == NULL ? 0 : replica->object->mod_rev);
    }
}

static void create(Round *round, const LhFleetRestore *restore, const LhRestoreMissing *missing)
{
    const LhAccepted *accepted = (const LhAccepted *)restore->accepted;
    const LhFleetSnapshot *snapshot = missing->snapshot;
    const LhFleetService *service = snapshot->service;
    const LhRestore *spec = lh_accepted_spec(restore->accepted, LH_KIND_RESTORE);
    g_autofree char *name = lh_replica_name(snapshot->name, missing->set, missing->ordinal, TRUE);
    g_autofree char *service_key = g_strconcat("services/", service->name, NULL);
    LhReplica replica = {
        .snapshot = snapshot->name,
        .service = service->name,
        .set = missing->set,
        .ordinal = missing->ordinal,
        .restored = TRUE,
        .created_at = round->context->now_ms,
        .expires_at = -1,
        .restore = restore->name,
        .restore_revision = accepted->revision,
        .ttl_ms = spec->ttl_ms,
    };

    lh_plan_begin(round->plan);
    lh_plan_put(round->plan, LH_KIND_REPLICA, name, &replica, 0, "restored",
                "restore %s asks for it, and set %s has none", restore->name, missing->set);
    lh_plan_rely(round->plan, LH_KIND_SNAPSHOT, snapshot->name, snapshot->object->mod_rev);
    lh_plan_rely(round->plan, LH_KIND_DELETION, snapshot->name, 0);
    rely_on_absence(round, missing);
    lh_plan_rely(round->plan, LH_KIND_ACCEPTED, service_key,
                 service->accepted == NULL ? 0 : service->accepted->mod_rev);
    rely_on_request(round, restore);
    lh_plan_rely(round->plan, LH_KIND_RESTOREPROGRESS, restore->name, restore->progress->mod_rev);
    lh_plan_end(round->plan);
}

static void extend(Round *round, const LhFleetRestore *restore, const LhFleetReplica *record)
{
    const LhRestore *spec = lh_accepted_spec(restore->accepted, LH_KIND_RESTORE);
    LhReplica replica = *(const LhReplica *)record->object;

    replica.expires_at = lh_restore_extended(&replica, spec->ttl_ms);
    replica.ttl_ms = MAX(replica.ttl_ms, spec->ttl_ms);
    replica.restore_revision = ((const LhAccepted *)restore->accepted)->revision;
    lh_plan_begin(round->plan);
    lh_plan_put(round->plan, LH_KIND_REPLICA, record->name, &replica, record->object->mod_rev,
                "extended", "restore %s was changed and asks for it again", restore->name);
    rely_on_request(round, restore);
    lh_plan_rely(round->plan, LH_KIND_RESTOREPROGRESS, restore->name, restore->progress->mod_rev);
    lh_plan_end(round->plan);
}

/* Nothing can be created for now. */
static void say_blocked(Round *round, const LhFleetRestore *restore, const LhRestoreScan *scan)
{
    LhRestoreProgress progress = progress_of(restore);

    lh_plan_note(round->plan, LH_KIND_RESTORE, restore->name, "wait-blocked",
                 "%" G_GINT64_FORMAT " replicas wait: %s", scan->held, scan->blocked);
    if (g_strcmp0(progress.message, scan->blocked) == 0)
        return;
    progress.message = scan->blocked;
    lh_plan_begin(round->plan);
    put_progress(round, restore, &progress, "wait-blocked", scan->blocked);
    lh_plan_throttle(round->plan);
    rely_on_request(round, restore);
    lh_plan_end(round->plan);
}

static gboolean count_own(gpointer key, gpointer value, gpointer data)
{
    const LhFleetRestored *restored = key;
    gint64 *count = data; /* the revision, then how many are of it */

    (void)value;
    count[1] += ((const LhReplica *)restored->replica->object)->restore_revision == count[0];
    return FALSE;
}

/* How many more it may have. What it has counts, even what it would not get any more. */
static gint64 room_left(const Round *round, const LhFleetRestore *restore,
                        const LhRestoreScan *scan)
{
    gint64 count[2] = {((const LhAccepted *)restore->accepted)->revision, scan->extend->len};

    g_tree_foreach(restore->replicas, count_own, count);
    return MAX(0, round->settings->max_replicas_per_restore - count[1]);
}

static void plan_pending(Round *round, const LhFleetRestore *restore)
{
    g_auto(LhRestoreScan) scan = {.missing = NULL};
    gint64 limit = round->settings->max_replicas_per_restore, room, left_out;

    lh_restore_scan(round->fleet, restore, round->context->now_ms, &scan);
    room = room_left(round, restore, &scan);
    left_out = MAX(0, scan.missing->len - room);
    for (guint i = 0; i < scan.extend->len; i++) {
        if (full(round))
            return;
        extend(round, restore, g_ptr_array_index(scan.extend, i));
    }
    for (guint i = 0; i < scan.missing->len - (guint)left_out; i++) {
        if (full(round))
            return;
        create(round, restore, &g_array_index(scan.missing, LhRestoreMissing, i));
    }
    if (scan.extend->len > 0 || scan.missing->len > left_out)
        return;
    if (scan.held > 0 && room > 0) {
        say_blocked(round, restore, &scan);
    } else {
        g_autofree char *message = remarks(&scan, left_out + scan.held, limit);
        enter(round, restore, lh_fleet_restore_phase(restore), scan.own, message, "all-exist",
              "all its replicas exist");
    }
}

/* ---- Active, Completed ---- */

static void report(Round *round, const LhFleetRestore *restore)
{
    LhRestoreProgress progress = progress_of(restore);
    gint64 until = lh_fleet_restore_until(restore);
    LhRestorePhase phase = lh_fleet_restore_phase(restore);
    gboolean same_phase = progress.phase == (int)phase;
    g_autofree char *reason = NULL;

    if (until >= 0)
        progress.until = until;
    if (same_phase && progress.live == restore->live &&
        progress.until == progress_of(restore).until)
        return; /* only its Status was to be written */
    progress.live = restore->live;
    progress.phase = phase;
    reason = g_strdup_printf("%" G_GINT64_FORMAT " of %" G_GINT64_FORMAT " replicas are live",
                             progress.live, progress.replicas);
    lh_plan_begin(round->plan);
    put_progress(round, restore, &progress, same_phase ? "progress" : "over",
                 same_phase                      ? reason
                 : phase == LH_RESTORE_COMPLETED ? "none of its replicas is left"
                                                 : "replicas of it are there");
    if (same_phase)
        lh_plan_throttle(round->plan);
    rely_on_request(round, restore);
    if (!same_phase)
        announce(round, restore, &progress);
    lh_plan_end(round->plan);
}

static void forget(Round *round, const LhFleetRestore *restore)
{
    if (restore->progress == NULL)
        return;
    lh_plan_begin(round->plan);
    lh_plan_delete(round->plan, LH_KIND_RESTOREPROGRESS, restore->name, restore->progress->mod_rev,
                   "withdrawn",
                   "its Restore was deleted; what it created lives on until it expires");
    rely_on_request(round, restore);
    lh_plan_end(round->plan);
}

static void plan_restore(Round *round, const LhFleetRestore *restore)
{
    const LhObject *status = lh_fleet_status(round->fleet, "restores", restore->name,
                                             "restore-manager");
    g_autofree char *status_name = g_strconcat("restores/", restore->name, "/restore-manager",
                                               NULL);
    LhCondition condition;
    guint n = lh_fleet_restore_condition(restore, &condition) ? 1 : 0;

    lh_plan_status(round->plan, status, status_name,
                   n == 0 ? 0 : ((const LhAccepted *)restore->accepted)->revision, &condition, n,
                   round->context->now_ms);
    if (restore->accepted == NULL) {
        forget(round, restore);
    } else if (restore->progress == NULL || progress_of(restore).observed_revision !=
                                                ((const LhAccepted *)restore->accepted)->revision) {
        decide(round, restore);
    } else {
        switch ((LhRestorePhase)progress_of(restore).phase) {
        case LH_RESTORE_PENDING:
            plan_pending(round, restore);
            break;
        case LH_RESTORE_ACTIVE:
        case LH_RESTORE_COMPLETED:
            report(round, restore);
            break;
        case LH_RESTORE_REFUSED:
            break;
        }
    }
}

/* ---- the expiry of what was created ---- */

static void set_expiry(Round *round, const LhFleetReplica *record)
{
    LhReplica replica = *(const LhReplica *)record->object;
    gint64 since = MIN(lh_fleet_replica_live(record)->since, round->context->now_ms);

    if (replica.ttl_ms == 0)
        replica.ttl_ms = TTL_WHEN_NOT_SAID;
    if (LH_BUG(RESTORE_TTL_AT_ONCE))
        since = replica.created_at;
    replica.expires_at = MAX(since, replica.created_at) + replica.ttl_ms;
    lh_plan_begin(round->plan);
    lh_plan_put(round->plan, LH_KIND_REPLICA, record->name, &replica, record->object->mod_rev,
                "first-live", "it is live, and expires %" G_GINT64_FORMAT " s after that",
                replica.ttl_ms / 1000);
    lh_plan_end(round->plan);
}

static void plan_live(Round *round)
{
    for (GTreeNode *n = g_tree_node_first(round->fleet->live_todo); n != NULL && !full(round);
         n = g_tree_node_next(n))
        set_expiry(round, ((const LhFleetRestored *)lh_tree_record(n))->replica);
}

static gint by_key(gconstpointer a, gconstpointer b)
{
    return strcmp((*(LhFleetAssignment *const *)a)->key, (*(LhFleetAssignment *const *)b)->key);
}

/* What the nodes say of it is unchanged. */
static void rely_on_answers(Round *round, const LhFleetReplica *record)
{
    g_autoptr(GPtrArray) assignments = g_ptr_array_new();

    for (guint i = 0; record->assignments != NULL && i < record->assignments->len; i++)
        g_ptr_array_add(assignments, g_ptr_array_index(record->assignments, i));
    g_ptr_array_sort(assignments, by_key);
    for (guint i = 0; i < assignments->len; i++) {
        const LhFleetAssignment *assignment = g_ptr_array_index(assignments, i);
        g_autofree char *item = g_strconcat(LH_POOL_CACHE "/", assignment->key, NULL);
        lh_plan_rely(round->plan, LH_KIND_ITEM, item,
                     assignment->item == NULL ? 0 : assignment->item->mod_rev);
    }
}

/* Into the open group: its time is over, and nothing has become live meanwhile. */
static void give_up(Round *round, const LhFleetReplica *record)
{
    LhReplica replica = *(const LhReplica *)record->object;

    replica.expires_at = replica.created_at + GIVE_UP_MS;
    replica.ttl_ms = 0;
    lh_plan_put(round->plan, LH_KIND_REPLICA, record->name, &replica, record->object->mod_rev,
                "given-up", "it was not live within 24 h");
    rely_on_answers(round, record);
}

/* Those of one request in one group, with how many they are, so that each is counted once. */
static void give_up_together(Round *round, const LhFleetRestore *restore, const GPtrArray *replicas)
{
    guint n = 0, keys = 0;
    LhRestoreProgress progress;
    g_autofree char *message = NULL;

    lh_plan_begin(round->plan);
    for (; n < replicas->len; n++) {
        const LhFleetReplica *replica = g_ptr_array_index(replicas, n);
        keys += 1 + (replica->assignments == NULL ? 0 : replica->assignments->len);
        if (n > 0 && keys > GIVE_UP_KEYS) {
            round->plan->more = TRUE;
            break;
        }
        give_up(round, replica);
    }
    if (restore->accepted != NULL && restore->progress != NULL) {
        progress = progress_of(restore);
        progress.given_up += n;
        message = g_strdup_printf("%" G_GINT64_FORMAT " of %" G_GINT64_FORMAT
                                  " replicas were not live within 24 h and are given up",
                                  progress.given_up, progress.replicas);
        progress.message = message;
        put_progress(round, restore, &progress, "given-up", message);
        lh_plan_event(round->plan, LH_EVENT_WARNING, "GivenUp", LH_KIND_RESTORE, restore->name,
                      "%s", message);
    }
    rely_on_request(round, restore);
    lh_plan_end(round->plan);
}

static void give_up_alone(Round *round, const LhFleetReplica *replica)
{
    lh_plan_begin(round->plan);
    give_up(round, replica);
    lh_plan_end(round->plan);
}

/* The index keeps no order among requests: that of their oldest replicas does. */
static void plan_not_live(Round *round)
{
    g_autoptr(GHashTable) by_restore = g_hash_table_new_full(NULL, NULL, NULL,
                                                             (GDestroyNotify)g_ptr_array_unref);
    g_autoptr(GPtrArray) order = g_ptr_array_new();

    for (GTreeNode *n = g_tree_node_first(round->fleet->not_live); n != NULL;
         n = g_tree_node_next(n)) {
        const LhFleetRestored *restored = lh_tree_record(n);
        GPtrArray *replicas = NULL;
        if (restored->created_at + GIVE_UP_MS > round->context->now_ms) {
            lh_plan_wake(round->plan, restored->created_at + GIVE_UP_MS);
            break;
        }
        if (restored->restore == NULL) {
            if (full(round))
                return;
            give_up_alone(round, restored->replica);
            continue;
        }
        if (restored->restore->progress != NULL && !lh_object_known(restored->restore->progress))
            continue;
        replicas = g_hash_table_lookup(by_restore, restored->restore);
        if (replicas == NULL) {
            replicas = g_ptr_array_new();
            g_hash_table_insert(by_restore, restored->restore, replicas);
            g_ptr_array_add(order, restored->restore);
        }
        g_ptr_array_add(replicas, restored->replica);
    }
    for (guint i = 0; i < order->len && !full(round); i++)
        give_up_together(round, g_ptr_array_index(order, i),
                         g_hash_table_lookup(by_restore, g_ptr_array_index(order, i)));
}

static void restore_manager_plan(gconstpointer index, const LhPlanContext *context, LhPlan *plan)
{
    Round round = {
        .fleet = index,
        .context = context,
        .settings = lh_fleet_settings(index, "restore-manager"),
        .plan = plan,
    };

    plan_live(&round);
    plan_not_live(&round);
    for (GTreeNode *n = g_tree_node_first(round.fleet->restore_todo); n != NULL && !full(&round);
         n = g_tree_node_next(n))
        plan_restore(&round, lh_tree_record(n));
}

const LhController lh_restore_manager = {
    .name = "restore-manager",
    .index = &lh_fleet_index,
    .kinds = LH_KIND_BIT(LH_KIND_ACCEPTED) | LH_KIND_BIT(LH_KIND_RESTOREPROGRESS) |
             LH_KIND_BIT(LH_KIND_REPLICA) | LH_KIND_BIT(LH_KIND_SNAPSHOT) |
             LH_KIND_BIT(LH_KIND_DELETION) | LH_KIND_BIT(LH_KIND_ASSIGNMENT) |
             LH_KIND_BIT(LH_KIND_ITEM) | LH_KIND_BIT(LH_KIND_SERVICE) | LH_KIND_BIT(LH_KIND_STATUS),
    .plan = restore_manager_plan,
    .settings = lh_fleet_settings_of,
};
