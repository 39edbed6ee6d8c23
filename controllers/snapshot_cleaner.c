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
#include "base/planted.h"
#include "controllers/cleaner_internal.h"
#include "controllers/registry.h"

#include <string.h>

#define OUTSTANDING   10   /* seconds' worth of Deletions that may wait for their data to go */
#define NO_CAUSE      (-1) /* else an LhBrakeCause */
#define LOOK_AGAIN_MS 60000

typedef struct {
    LhCleaner cleaner;
    LhBraking braking;
    LhPlan *plan;
} Round;

/* What a Brake for too much stands for. */
typedef struct {
    GPtrArray *due;     /* LhFleetSnapshot, by name: still to be decided */
    GPtrArray *orphans; /* LhOrphan, by name: the same */
    char *hash;         /* of those, and of what was decided as part of the Brake's plan */
} Members;

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
    if (deletion->service != NULL)
        lh_plan_event(round->plan, LH_EVENT_NORMAL, "DataDeleted", LH_KIND_SERVICE,
                      deletion->service, "snapshot %s: %s, objects: %" G_GINT64_FORMAT,
                      deletion->o.name, deletion->uri, seen->objects);
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
    g_autofree char *words = cleaner->brake == NULL ? NULL : lh_brake_words(&round->braking);
    LhCondition conditions[2];
    guint n = 0;

    if (cleaner->brake != NULL || present != NULL)
        conditions[n++] = (LhCondition){
            .type = "Braked",
            .status = cleaner->brake != NULL ? LH_CONDITION_TRUE : LH_CONDITION_FALSE,
            .reason = cleaner->brake != NULL ? "Held" : "WithinLimit",
            .message = words,
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
        .service = service->name,
        .plan_hash = cleaner->brake == NULL ? NULL : cleaner->brake->plan_hash,
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
    lh_plan_event(round->plan, LH_EVENT_NORMAL, "DeletionDecided", LH_KIND_SERVICE, service->name,
                  "snapshot %s: past its end, the retention and the buffer", snapshot->name);
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
        lh_cleaner_decide_orphan(
            &round->cleaner, orphan,
            round->cleaner.brake == NULL ? NULL : round->cleaner.brake->plan_hash, round->plan);
    }
}

/* ---- the brake ---- */

static gint by_text(gconstpointer a, gconstpointer b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static void add_name(GPtrArray *names, const char *kind, const char *name)
{
    g_ptr_array_add(names, g_strconcat(kind, name, NULL));
}

/* Decided as part of the present Brake's plan; no older than it, whoever's clock said so. */
static void add_decided(const LhCleaner *cleaner, GPtrArray *names)
{
    const LhBrake *brake = cleaner->brake;

    for (GTreeNode *n = g_tree_node_last(cleaner->fleet->decided); n != NULL;
         n = g_tree_node_previous(n)) {
        const LhDeletion *deletion = g_tree_node_key(n);
        if (deletion->decided_at < brake->since - LH_BRAKE_WINDOW_MS)
            break;
        if (g_strcmp0(deletion->plan_hash, brake->plan_hash) == 0)
            add_name(names, "snapshots/", deletion->o.name);
    }
    for (GTreeNode *n = g_tree_node_first(cleaner->fleet->orphans); n != NULL;
         n = g_tree_node_next(n)) {
        const LhOrphan *orphan = g_tree_node_key(n);
        if (lh_object_known(&orphan->o) && orphan->decided_at >= 0 &&
            g_strcmp0(orphan->plan_hash, brake->plan_hash) == 0)
            add_name(names, "orphans/", orphan->o.name);
    }
}

/* What is due, and which orphans are old enough, at @since, on objects that are unchanged since @revision.
 * Whether each orphan may be decided now, lh_cleaner_read() says: listings come and go. */
static void members_init(Members *members, const LhCleaner *cleaner, gint64 since, gint64 revision,
                         gboolean decided)
{
    g_autoptr(GPtrArray) names = g_ptr_array_new_with_free_func(g_free);

    members->due = lh_cleaner_due(cleaner, since, revision, NULL, NULL);
    members->orphans = g_ptr_array_new();
    for (guint i = 0; i < members->due->len; i++)
        add_name(names, "snapshots/", ((LhFleetSnapshot *)members->due->pdata[i])->name);
    for (GTreeNode *n = g_tree_node_first(cleaner->fleet->orphans); n != NULL;
         n = g_tree_node_next(n)) {
        LhOrphan *orphan = g_tree_node_key(n);
        /* Seen by the store's clock, which is trusted to be as near. */
        if (!lh_object_known(&orphan->o) || orphan->decided_at >= 0 ||
            orphan->o.mod_rev > revision || !lh_cleaner_unclaimed(cleaner, orphan->uri) ||
            orphan->first_seen + cleaner->settings->orphan_grace_ms > since + LH_CLEANER_CLOCKS_MS)
            continue;
        g_ptr_array_add(members->orphans, orphan);
        add_name(names, "orphans/", orphan->o.name);
    }
    if (decided)
        add_decided(cleaner, names);
    g_ptr_array_sort(names, by_text);
    members->hash = lh_brake_hash((const char *const *)names->pdata, names->len);
}

static void members_clear(Members *members)
{
    g_ptr_array_unref(members->due);
    g_ptr_array_unref(members->orphans);
    g_free(members->hash);
}

/* Of what a plan rests on besides its members: buffer, graces and percent, and which roots there are. */
static char *basis_of(const LhCleaner *cleaner)
{
    const LhObject *settings = g_hash_table_lookup(cleaner->fleet->settings, LH_CLEANER);
    g_autofree char *revision = g_strdup_printf("%" G_GINT64_FORMAT,
                                                settings == NULL ? 0 : settings->mod_rev);
    g_autoptr(GPtrArray) names = g_ptr_array_new();

    g_ptr_array_add(names, revision);
    for (guint i = 0; i < cleaner->roots->len; i++)
        g_ptr_array_add(names, (gpointer)g_array_index(cleaner->roots, LhCleanerRoot, i).root);
    return lh_brake_hash((const char *const *)names->pdata, names->len);
}

/* What stands in the way that only mending helps; NULL: nothing known; g_free. */
static char *hold_of(const LhCleaner *cleaner)
{
    for (guint i = 0; i < cleaner->roots->len; i++) {
        const LhCleanerRoot *root = &g_array_index(cleaner->roots, LhCleanerRoot, i);
        if (root->hold != NULL)
            return g_strdup_printf("%s: %s", root->root, root->hold);
    }
    if (cleaner->fleet->unreadable > 0)
        return g_strdup("a Snapshot does not parse, and nobody can say where its data lies: mend "
                        "or remove it");
    return g_strdup(cleaner->etcd_hold);
}

/* Why it is too much at once, with what was decided lately; NULL: it is not; g_free. */
static char *much_of(const LhCleaner *cleaner)
{
    gint64 percent = cleaner->settings->brake_percent, due = cleaner->much.going;
    gint64 all = (gint64)cleaner->fleet->by_uri.n;

    if (cleaner->brake != NULL && cleaner->brake->cause == LH_BRAKE_MUCH &&
        cleaner->brake->confirmed_at < 0)
        all = MIN(all, cleaner->brake->of);
    if (LH_BUG(MASSES_UNBRAKED))
        return NULL;
    if (cleaner->much.exceeding != NULL)
        return g_strdup_printf("more of service %s than brakePercent allows",
                               cleaner->much.exceeding);
    if (due > 0 && lh_brake_exceeds(due + cleaner->lately.n, all + cleaner->lately.gone, percent))
        return g_strdup("more of all snapshots than brakePercent allows");
    if (lh_brake_exceeds(cleaner->orphaned, cleaner->listed, percent))
        return g_strdup_printf("%" G_GINT64_FORMAT " of %" G_GINT64_FORMAT
                               " listed objects are nobody's: more than brakePercent allows",
                               cleaner->orphaned, cleaner->listed);
    return NULL;
}

static int cause_of(const LhCleaner *cleaner, char **words)
{
    *words = NULL;
    if (!cleaner->work)
        return NO_CAUSE;
    *words = hold_of(cleaner);
    if (*words != NULL)
        return LH_BRAKE_HOLD;
    *words = much_of(cleaner);
    return *words != NULL ? LH_BRAKE_MUCH : NO_CAUSE;
}

static void put_brake(Round *round, const LhBrake *made)
{
    lh_plan_begin(round->plan);
    lh_brake_put(&round->braking, *made);
    lh_plan_end(round->plan);
}

/* No Confirmation mends these. */
static char *hold_text(const char *words)
{
    return g_strdup_printf("%s; nothing is deleted until that is mended", words);
}

static void brake(Round *round, int cause, const char *words)
{
    const LhCleaner *cleaner = &round->cleaner;
    g_autofree char *basis = basis_of(cleaner), *message = NULL;
    LhBrake made = {.cause = cause, .of = (gint64)cleaner->fleet->by_uri.n, .basis = basis};
    Members members;

    members_init(&members, cleaner, cleaner->context->now_ms, cleaner->context->revision, FALSE);
    message = cause == LH_BRAKE_HOLD
                  ? hold_text(words)
                  : g_strdup_printf("the data of %u of %" G_GSIZE_FORMAT
                                    " snapshots and %u orphans would go now (%" G_GINT64_FORMAT
                                    " more in the last 10 min): %s; leasehold confirm " LH_CLEANER
                                    " --plan %s",
                                    members.due->len, cleaner->fleet->by_uri.n,
                                    members.orphans->len, cleaner->lately.n, words, members.hash);
    made.plan_hash = members.hash;
    made.eligible = members.due->len + members.orphans->len;
    made.message = message;
    put_brake(round, &made);
    members_clear(&members);
}

static void release(Round *round, const char *rule, const char *reason)
{
    lh_plan_begin(round->plan);
    lh_brake_remove(&round->braking, rule, reason);
    lh_plan_end(round->plan);
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

static void note_braked(Round *round, const GPtrArray *due, const GPtrArray *orphans)
{
    const LhBrake *brake = round->cleaner.brake;

    lh_plan_note(round->plan, LH_KIND_BRAKE, LH_CLEANER, "braked", "%s",
                 brake->message == NULL ? "" : brake->message);
    note_all(round, due, orphans, "braked");
}

/* ---- a restored etcd ---- */

#define WENT_BACK "etcd went back in time"

/* Not only that a root's marker is missing. */
static gboolean went_back(const LhCleaner *cleaner)
{
    gboolean later = cleaner->context->regressed, missing = FALSE;

    for (guint i = 0; i < cleaner->roots->len; i++) {
        later |= g_array_index(cleaner->roots, LhCleanerRoot, i).newer > 0;
        missing |= g_array_index(cleaner->roots, LhCleanerRoot, i).newer == 0;
    }
    return later || !missing ||
           (cleaner->brake != NULL && cleaner->brake->cause == LH_BRAKE_RESTORED &&
            cleaner->brake->message != NULL &&
            g_str_has_prefix(cleaner->brake->message, WENT_BACK));
}

static void brake_restored(Round *round)
{
    const LhCleaner *cleaner = &round->cleaner;
    g_auto(GStrv) markers = lh_cleaner_markers(cleaner);
    g_autofree char *hash = lh_brake_restored_hash(&round->braking, (const char *const *)markers);
    g_autoptr(GString) message = g_string_new(went_back(cleaner) ? WENT_BACK : "first contact");
    LhBrake made = {
        .cause = LH_BRAKE_RESTORED,
        .plan_hash = hash,
        .eligible = cleaner->due->len + cleaner->orphans->len,
        .of = (gint64)cleaner->fleet->by_uri.n,
        .markers = (const char *const *)markers,
    };

    for (guint i = 0; i < cleaner->roots->len; i++) {
        const LhCleanerRoot *root = &g_array_index(cleaner->roots, LhCleanerRoot, i);
        if (root->newer == 0)
            g_string_append_printf(message,
                                   "; %s: it has no marker " LH_CLEANER_MARKER
                                   ", and is not empty, or not known to be",
                                   root->root);
        else if (root->newer > 0)
            g_string_append_printf(message,
                                   "; %s: its marker was written at revision %" G_GINT64_FORMAT
                                   ", later than etcd's",
                                   root->root, root->newer);
    }
    g_string_append_printf(message,
                           "; nothing is deleted (due: %u snapshots, %u orphans; decided: %d "
                           "deletions) until somebody has looked whether that is as it should be, "
                           "and says leasehold confirm " LH_CLEANER " --plan %s",
                           cleaner->due->len, cleaner->orphans->len,
                           g_tree_nnodes(cleaner->fleet->undeleted), hash);
    made.message = message->str;
    put_brake(round, &made);
}

/* A marker that the Brake does not name: its Confirmation is not about it. */
static gboolean unnamed(const LhCleaner *cleaner)
{
    for (guint i = 0; i < cleaner->roots->len; i++) {
        const LhCleanerRoot *root = &g_array_index(cleaner->roots, LhCleanerRoot, i);
        if (root->newer >= 0 && root->newer != root->braked)
            return TRUE;
    }
    return FALSE;
}

static gboolean claims(const LhCleaner *cleaner)
{
    gboolean any = FALSE;

    for (guint i = 0; i < cleaner->roots->len; i++)
        any |= g_array_index(cleaner->roots, LhCleanerRoot, i).claim;
    return any;
}

/* Nothing goes before a Confirmation that was given for it; that itself lets nothing go but the Brake, and
 * markers be written over. FALSE: etcd was not restored. */
static gboolean plan_restored(Round *round)
{
    const LhCleaner *cleaner = &round->cleaner;
    gboolean braked = cleaner->brake != NULL && !cleaner->old &&
                      cleaner->brake->cause == LH_BRAKE_RESTORED;

    if (!cleaner->restored && !cleaner->answered)
        return FALSE;
    if (!braked || unnamed(cleaner) || (cleaner->brake->confirmed_at >= 0 && !cleaner->answered))
        brake_restored(round);
    else if (!cleaner->answered && lh_brake_is_confirmed(&round->braking))
        lh_brake_confirm(&round->braking);
    else if (cleaner->answered && claims(cleaner) && cleaner->settings->dry_run)
        return FALSE; /* no marker is written, so it stays confirmed until one may be */
    else if (!cleaner->answered || claims(cleaner))
        note_braked(round, cleaner->due, cleaner->orphans);
    else
        release(round, "confirmed", "it is confirmed");
    return TRUE;
}

/* ---- too much, or held ---- */

/* Those of @members that may be decided now. */
static GPtrArray *ripe_of(const LhCleaner *cleaner, const Members *members)
{
    GPtrArray *ripe = g_ptr_array_new();

    for (guint i = 0; i < members->orphans->len; i++)
        if (g_ptr_array_find(cleaner->orphans, members->orphans->pdata[i], NULL))
            g_ptr_array_add(ripe, members->orphans->pdata[i]);
    return ripe;
}

/* So long as its rate needs, and half an hour. */
static gint64 extra_ms(const LhCleaner *cleaner)
{
    return cleaner->brake->eligible * 1000 / MAX(1, cleaner->settings->deletes_per_second);
}

/* How many of @due no replica keeps; a restored one may do so for days, and the Brake does not wait for it. */
static guint without_replicas(const Round *round, const GPtrArray *due)
{
    guint n = 0;

    for (guint i = 0; i < due->len; i++)
        n += !lh_fleet_replicas_below(round->cleaner.fleet, g_ptr_array_index(due, i));
    return n;
}

/* That set and no other; what stands in the way of each one still does. */
static void carry_out(Round *round, const Members *members, int cause, const char *words)
{
    const LhCleaner *cleaner = &round->cleaner;
    g_autofree char *basis = basis_of(cleaner);
    g_autoptr(GPtrArray) ripe = ripe_of(cleaner, members);

    if (!lh_brake_stands(&round->braking, LH_BRAKE_MUCH, extra_ms(cleaner)) ||
        g_strcmp0(basis, cleaner->brake->basis) != 0 ||
        g_strcmp0(members->hash, cleaner->brake->plan_hash) != 0) {
        if (cause == NO_CAUSE)
            release(round, "void", "it is not what was confirmed any more, and within the limit");
        else
            brake(round, cause, words);
    } else if (cause != LH_BRAKE_HOLD &&
               without_replicas(round, members->due) + members->orphans->len == 0) {
        release(round, "carried-out", "the confirmed plan is carried out");
    } else if (cause != LH_BRAKE_HOLD) {
        delete_all(round, members->due);
        decide_orphans(round, ripe);
    }
    lh_plan_wake(round->plan, cleaner->context->now_ms + LOOK_AGAIN_MS); /* it is void one day */
}

static void wait_for_people(Round *round, const Members *members, int cause, const char *words)
{
    const LhBrake *present = round->cleaner.brake;
    g_autofree char *basis = basis_of(&round->cleaner);
    g_autofree char *held = cause == LH_BRAKE_HOLD ? hold_text(words) : NULL;
    gboolean same = cause == LH_BRAKE_HOLD ? g_strcmp0(held, present->message) == 0
                                           : g_strcmp0(members->hash, present->plan_hash) == 0 &&
                                                 g_strcmp0(basis, present->basis) == 0;

    if (present->cause == LH_BRAKE_HOLD && cause == NO_CAUSE)
        release(round, "released", "nothing stands in the way any more");
    else if (cause != NO_CAUSE && (present->cause != cause || !same))
        brake(round, cause, words);
    else if (cause == NO_CAUSE && (!same || members->orphans->len == 0))
        /* Of the objects that are listed nobody knows which came since: there it must have changed. */
        release(round, "released", "what would go now is within the limit again");
    else if (present->cause == LH_BRAKE_MUCH && lh_brake_is_confirmed(&round->braking))
        lh_brake_confirm(&round->braking);
    else
        note_braked(round, members->due, members->orphans);
}

static void plan_braked(Round *round, int cause, const char *words)
{
    const LhBrake *present = round->cleaner.brake;
    gboolean confirmed = present->cause == LH_BRAKE_MUCH && present->confirmed_at >= 0;
    Members members;

    members_init(&members, &round->cleaner, present->since, present->revision, confirmed);
    if (confirmed)
        carry_out(round, &members, cause, words);
    else
        wait_for_people(round, &members, cause, words);
    members_clear(&members);
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
    int cause;

    plan_deleted(round);
    plan_conditions(round);
    if (cleaner->next_due_ms != 0)
        lh_plan_wake(round->plan, cleaner->next_due_ms);
    if (cleaner->roots->len == 0 || unreadable(round))
        return; /* a manager without roots deletes nothing */
    lh_cleaner_plan_orphans(cleaner, round->plan);
    plan_status(round);
    if (plan_restored(round))
        return;
    if (cleaner->settings->dry_run) {
        note_all(round, cleaner->due, cleaner->orphans, "dry-run");
        return;
    }
    cause = cause_of(cleaner, &words);
    if (cleaner->brake != NULL) {
        plan_braked(round, cause, words);
    } else if (cause != NO_CAUSE) {
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
