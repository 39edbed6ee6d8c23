/*
 * snapshot-cleaner's errands: looking at each root again and again, as its marker must tell how far etcd has
 * got; at etcd's clock while there is work; listing each root from time to time; and deleting what has been
 * decided: nothing without its committed intent, and only where all that is known of the root is fresh and
 * good. Pure.
 */
#include "base/planted.h"
#include "controllers/cleaner_internal.h"

#define NEW_MS         1000  /* to the look after the one that wrote the marker */
#define HELD_MS        10000 /* while something is wrong that may be mended */
#define RETRY_FIRST_MS 5000
#define RETRY_CAP_MS   (10 * 60 * 1000)

/* When a failed one is asked for again; no jitter: it is pure. */
static gint64 retry_at(const LhObservation *failed)
{
    gint64 wait_ms = RETRY_FIRST_MS << MIN(failed->attempt, 10);

    return failed->at + MIN(wait_ms, RETRY_CAP_MS);
}

/* What renews itself: asked for when there is none, or when it gets old. */
static void renew(const LhCleaner *cleaner, LhErrand errand, const LhObservation *seen,
                  gint64 after_ms, LhErrands *errands)
{
    gint64 now = cleaner->context->now_ms;
    gint64 due = seen == NULL ? 0 : seen->at + after_ms;

    /* One that hangs ends what rests on the last one. */
    if (seen != NULL && seen->at + LH_CLEANER_FRESH_MS >= now)
        lh_errands_wake(errands, seen->at + LH_CLEANER_FRESH_MS + 1);
    if (seen != NULL && seen->at > now + LH_CLEANER_CLOCKS_MS)
        due = 0; /* our clock went back */
    if (due > now) {
        lh_errands_wake(errands, due);
        return;
    }
    errand.token = seen == NULL ? 1 : seen->token + 1;
    lh_errands_add(errands, errand);
}

static void look(const LhCleaner *cleaner, const LhCleanerRoot *root, LhErrands *errands)
{
    gboolean dry = cleaner->settings->dry_run;
    g_autofree char *id = lh_cleaner_errand(LH_CLEANER_LOOK, root->root);
    LhErrand errand = {
        .id = id,
        .what = !dry && root->claim ? LH_CLEANER_CLAIM : LH_CLEANER_LOOK,
        .uri = root->root,
        .number = dry ? -1 : cleaner->context->revision,
    };
    gint64 known = MAX(root->newer, root->braked), after_ms = LH_CLEANER_RENEW_MS;

    /* A marker that was newer stays so, however far etcd gets, until somebody confirms it. */
    if (!dry && !root->claim && known >= 1 && !cleaner->answered)
        errand.number = MIN(errand.number, known - 1);
    if (root->hold != NULL || root->newer >= 0)
        after_ms = HELD_MS;
    else if (root->look != NULL && g_strcmp0(root->look->state, "new") == 0)
        after_ms = NEW_MS;
    renew(cleaner, errand, root->look, after_ms, errands);
}

static void list(const LhCleaner *cleaner, const LhCleanerRoot *root, LhErrands *errands)
{
    const LhObservation *last = root->list;
    g_autofree char *id = lh_cleaner_errand(LH_CLEANER_LIST, root->root);
    gint64 now = cleaner->context->now_ms, due = 0;
    LhErrand errand = {.id = id, .what = LH_CLEANER_LIST, .uri = root->root, .token = 1};

    if (last != NULL) {
        errand.token = last->token + 1;
        errand.attempt = last->error != NULL ? last->attempt + 1 : 0;
        due = last->at + cleaner->settings->reconcile_interval_ms;
        if (last->error != NULL)
            due = MIN(due, retry_at(last));
    }
    if (due <= now || (last != NULL && last->at > now + LH_CLEANER_CLOCKS_MS))
        lh_errands_add(errands, errand);
    else
        lh_errands_wake(errands, due);
}

/* TRUE: it is to be asked for now, with this attempt. */
static gboolean may_try(const LhCleaner *cleaner, const LhObservation *last, gint64 *attempt,
                        LhErrands *errands)
{
    *attempt = 1;
    if (last == NULL)
        return TRUE;
    if (last->error == NULL)
        return FALSE; /* done: the plan says so */
    *attempt = last->attempt + 1;
    if (retry_at(last) <= cleaner->context->now_ms)
        return TRUE;
    lh_errands_wake(errands, retry_at(last));
    return FALSE;
}

/* A younger snapshot there is not valid, and its data goes too; an older one keeps everything, and so does one
 * that does not parse. */
static gboolean others_first(const LhCleaner *cleaner, const LhDeletion *deletion)
{
    const LhFleetSnapshot *own = lh_name_set_get(&cleaner->fleet->snapshots, deletion->o.name);
    const LhFleetSnapshot *other = lh_fleet_uri_overlap(cleaner->fleet, deletion->uri, own);

    return (other != NULL && other->object->create_rev < deletion->o.create_rev) ||
           lh_cleaner_unknown_there(cleaner, deletion->uri);
}

static gboolean ready(const LhCleaner *cleaner, const char *uri)
{
    const LhCleanerRoot *root = lh_cleaner_root(cleaner, uri);

    return root != NULL && root->ready && cleaner->etcd_ready;
}

static void erase_snapshot(const LhCleaner *cleaner, const char *snapshot, const char *uri,
                           gint64 token, LhErrands *errands)
{
    g_autofree char *id = g_strconcat(LH_CLEANER_DELETE, snapshot, NULL);
    const LhObservation *last = lh_fleet_observed(cleaner->fleet, LH_CLEANER, id);
    gint64 attempt;

    if (last != NULL && last->token != token)
        last = NULL;
    if (may_try(cleaner, last, &attempt, errands))
        lh_errands_add(errands, (LhErrand){.id = id,
                                           .what = LH_CLEANER_DELETE,
                                           .uri = uri,
                                           .token = token,
                                           .attempt = attempt});
}

static void delete_decided(const LhCleaner *cleaner, LhErrands *errands)
{
    guint most = errands->errands->len + (guint)cleaner->settings->deletes_per_second;

    for (GTreeNode *n = g_tree_node_first(cleaner->fleet->undeleted);
         n != NULL && errands->errands->len < most; n = g_tree_node_next(n)) {
        const LhDeletion *deletion = g_tree_node_key(n);
        if (ready(cleaner, deletion->uri) && !others_first(cleaner, deletion))
            erase_snapshot(cleaner, deletion->o.name, deletion->uri, deletion->o.create_rev,
                           errands);
    }
    for (guint i = 0; LH_BUG(DELETED_UNDECIDED) && i < cleaner->due->len; i++) {
        const LhFleetSnapshot *snapshot = g_ptr_array_index(cleaner->due, i);
        g_autofree char *uri = lh_uri_text(&lh_fleet_snapshot_object(snapshot)->uri);
        if (snapshot->replicas == NULL && ready(cleaner, uri))
            erase_snapshot(cleaner, snapshot->name, uri, 1, errands);
    }
}

static void erase_orphans(const LhCleaner *cleaner, LhErrands *errands)
{
    guint most = errands->errands->len + (guint)cleaner->settings->deletes_per_second;

    for (GTreeNode *n = g_tree_node_first(cleaner->fleet->orphans);
         n != NULL && errands->errands->len < most; n = g_tree_node_next(n)) {
        const LhOrphan *orphan = g_tree_node_key(n);
        g_autofree char *id = g_strconcat(LH_CLEANER_ERASE, orphan->o.name, NULL);
        gint64 attempt;
        if (!lh_object_known(&orphan->o) || orphan->decided_at < 0 || orphan->objects == 0 ||
            !ready(cleaner, orphan->uri) || lh_cleaner_claimed_before(cleaner, orphan) ||
            lh_cleaner_unknown_there(cleaner, orphan->uri) ||
            !may_try(cleaner, lh_cleaner_erased(cleaner, orphan), &attempt, errands))
            continue;
        lh_errands_add(errands, (LhErrand){.id = id,
                                           .what = LH_CLEANER_ERASE,
                                           .uri = orphan->uri,
                                           .token = orphan->o.create_rev,
                                           .attempt = attempt,
                                           .number = orphan->second_seen -
                                                     cleaner->settings->orphan_grace_ms});
    }
}

void lh_cleaner_errands(gconstpointer index, const LhPlanContext *context, LhErrands *errands)
{
    LhCleaner cleaner;

    lh_cleaner_read(&cleaner, index, context);
    for (guint i = 0; i < cleaner.roots->len; i++) {
        const LhCleanerRoot *root = &g_array_index(cleaner.roots, LhCleanerRoot, i);
        look(&cleaner, root, errands);
        list(&cleaner, root, errands);
    }
    if (cleaner.work) {
        const LhErrand etcd = {.id = LH_CLEANER_ETCD, .what = LH_CLEANER_ETCD};
        renew(&cleaner, etcd, lh_fleet_observed(cleaner.fleet, LH_CLEANER, LH_CLEANER_ETCD),
              cleaner.etcd_hold != NULL ? HELD_MS : LH_CLEANER_RENEW_MS, errands);
    }
    /* After a restore of etcd nothing goes until somebody has confirmed it. */
    if (!cleaner.settings->dry_run && !cleaner.restored) {
        delete_decided(&cleaner, errands);
        erase_orphans(&cleaner, errands);
    }
    lh_cleaner_clear(&cleaner);
}
