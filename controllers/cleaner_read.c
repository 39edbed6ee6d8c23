/*
 * snapshot-cleaner: what is due, and what stands in the way of deleting it. Pure; writes nothing.
 */
#include "base/planted.h"
#include "controllers/cleaner_internal.h"

#include <string.h>

char *lh_cleaner_errand(const char *kind, const char *uri)
{
    g_autofree char *sum = g_compute_checksum_for_string(G_CHECKSUM_SHA256, uri, -1);

    return g_strdup_printf("%s%.16s", kind, sum);
}

/* ---- what is due ---- */

/* What is in force of it is what people want: a pending or invalid edit, and nothing is deleted. */
static const LhService *settled(const LhFleetService *service)
{
    const LhService *spec = lh_fleet_service_spec(service);

    if (spec == NULL || spec->paused || service->desired == NULL ||
        !lh_object_known(service->desired) ||
        ((const LhAccepted *)service->accepted)->revision != service->desired->mod_rev)
        return NULL;
    return spec;
}

static gint by_name(gconstpointer a, gconstpointer b)
{
    return strcmp((*(LhFleetSnapshot *const *)a)->name, (*(LhFleetSnapshot *const *)b)->name);
}

/* How many of the service were added that no replica keeps: a restored one may do so for days. */
static guint add_due(const LhCleaner *cleaner, const LhFleetService *service, const LhService *spec,
                     gint64 at_ms, gint64 revision, GPtrArray *out, gint64 *next_ms)
{
    gint64 keep_ms = spec->retention_ms + cleaner->settings->buffer_ms;
    LhSortedPlace place = {0, 0};
    LhFleetSnapshot *snapshot;
    guint going = 0;

    while ((snapshot = lh_sorted_set_next(&service->by_end, &place)) != NULL) {
        gint64 due_ms = lh_fleet_snapshot_object(snapshot)->end_time + keep_ms;
        if (due_ms > at_ms) {
            if (next_ms != NULL && (*next_ms == 0 || due_ms < *next_ms))
                *next_ms = due_ms;
            break;
        }
        if (revision != 0 && snapshot->object->mod_rev > revision)
            continue;
        g_ptr_array_add(out, snapshot);
        going += !lh_fleet_replicas_below(cleaner->fleet, snapshot);
    }
    return going;
}

/* The whole that a share of the service is of, or @enough, if it is more and has to be counted. What is braked
 * does not become less because others come. */
static gint64 whole_of(const LhCleaner *cleaner, const LhFleetService *service, gint64 enough)
{
    const LhBrake *brake = cleaner->brake;
    gint64 n = 0;

    if (brake == NULL || brake->cause != LH_BRAKE_MUCH || brake->confirmed_at >= 0)
        return service->snapshots->len;
    for (guint i = 0; i < service->snapshots->len && n < enough; i++) {
        const LhFleetSnapshot *snapshot = g_ptr_array_index(service->snapshots, i);
        n += snapshot->object != NULL && snapshot->object->create_rev <= brake->revision;
    }
    return n;
}

/* What was decided after this counts as decided now. */
static gint64 lately_from(const LhCleaner *cleaner)
{
    return cleaner->context->now_ms - LH_BRAKE_WINDOW_MS;
}

static gboolean exceeds(const LhCleaner *cleaner, const LhFleetService *service, gint64 going)
{
    gint64 percent = cleaner->settings->brake_percent, n;
    LhFleetLately lately;

    if (going == 0)
        return FALSE;
    lately = lh_fleet_lately(cleaner->fleet, service->name, lately_from(cleaner));
    n = going + lately.n;
    /* The first is cheap, and mostly all; of the whole no more is counted than decides. */
    return lh_brake_exceeds(n, 0, percent) &&
           lh_brake_exceeds(n, whole_of(cleaner, service, n * 100 / percent + 1) + lately.gone,
                            percent);
}

GPtrArray *lh_cleaner_due(const LhCleaner *cleaner, gint64 at_ms, gint64 revision, gint64 *next_ms,
                          LhCleanerMuch *much)
{
    GPtrArray *due = g_ptr_array_new();
    GHashTableIter iter;
    gpointer record;

    g_hash_table_iter_init(&iter, cleaner->fleet->services);
    while (g_hash_table_iter_next(&iter, NULL, &record)) {
        const LhFleetService *service = record;
        const LhService *spec = settled(service);
        guint n;
        if (spec == NULL || (revision != 0 && service->accepted->mod_rev > revision))
            continue;
        n = add_due(cleaner, service, spec, at_ms, revision, due, next_ms);
        if (much == NULL)
            continue;
        much->going += n;
        if (exceeds(cleaner, service, n) &&
            (much->exceeding == NULL || strcmp(service->name, much->exceeding) < 0))
            much->exceeding = service->name;
    }
    g_ptr_array_sort(due, by_name);
    return due;
}

/* ---- roots and clocks ---- */

gboolean lh_cleaner_fresh(const LhCleaner *cleaner, const LhObservation *seen)
{
    /* Not of the future either: our clock has jumped since. */
    return seen != NULL && ABS(cleaner->context->now_ms - seen->at) <= LH_CLEANER_FRESH_MS;
}

/* Ours and the other side's clock. */
static gboolean apart(const LhObservation *seen)
{
    return seen->clock < 0 || ABS(seen->clock - seen->at) > LH_CLEANER_CLOCKS_MS;
}

static void read_etcd(LhCleaner *cleaner)
{
    const LhObservation *seen = lh_fleet_observed(cleaner->fleet, LH_CLEANER, LH_CLEANER_ETCD);

    if (seen != NULL && seen->error != NULL)
        cleaner->etcd_hold = "etcd's clock cannot be read";
    else if (seen != NULL && apart(seen))
        cleaner->etcd_hold = "etcd's clock is more than 60 s off ours";
    cleaner->etcd_ready = cleaner->etcd_hold == NULL && lh_cleaner_fresh(cleaner, seen);
}

/* First match counts; FALSE: nothing is known against it. */
static const char *hold_of(const LhCleanerRoot *root)
{
    const LhObservation *look = root->look, *list = root->list;

    if (look != NULL && look->error != NULL)
        return "its clock and its marker cannot be read";
    if (look != NULL && apart(look))
        return "its clock is more than 60 s off ours";
    if (look != NULL && g_strcmp0(look->state, "foreign") == 0)
        return "its marker .leasehold is of another cluster or prefix, or of another root's uri";
    if (list != NULL && list->error != NULL)
        return "its listing failed";
    if (list != NULL && list->objects == 0 && list->missing > 0)
        return "its listing is empty, but snapshots are known there";
    return NULL;
}

static char *root_mark(const char *uri)
{
    return lh_cleaner_errand("", uri);
}

/* The revision that the Brake of a restoration says the root's marker has. */
static gint64 braked_marker(const LhCleaner *cleaner, const char *uri)
{
    g_autofree char *mark = root_mark(uri), *prefix = g_strconcat(mark, "@", NULL);
    const LhBrake *brake = cleaner->brake;

    for (guint i = 0; brake != NULL && !cleaner->old && brake->cause == LH_BRAKE_RESTORED &&
                      brake->markers != NULL && brake->markers[i] != NULL;
         i++)
        if (g_str_has_prefix(brake->markers[i], prefix))
            return g_ascii_strtoll(brake->markers[i] + strlen(prefix), NULL, 10);
    return -1;
}

static void read_root(LhCleaner *cleaner, const char *uri)
{
    g_autofree char *look = lh_cleaner_errand(LH_CLEANER_LOOK, uri);
    g_autofree char *list = lh_cleaner_errand(LH_CLEANER_LIST, uri);
    LhCleanerRoot root = {
        .root = uri,
        .look = lh_fleet_observed(cleaner->fleet, LH_CLEANER, look),
        .list = lh_fleet_observed(cleaner->fleet, LH_CLEANER, list),
        .newer = -1,
        .braked = braked_marker(cleaner, uri),
    };

    root.hold = hold_of(&root);
    if (root.look != NULL && g_strcmp0(root.look->state, "newer") == 0)
        root.newer = MAX(1, root.look->revision);
    if (root.look != NULL && g_strcmp0(root.look->state, "unmarked") == 0)
        root.newer = 0;
    root.claim = root.newer >= 0 && root.newer == root.braked && cleaner->answered;
    cleaner->restored |= root.newer >= 0 && !root.claim;
    root.ready = root.hold == NULL && root.list != NULL && lh_cleaner_fresh(cleaner, root.look) &&
                 g_strcmp0(root.look->state, "ours") == 0;
    g_array_append_val(cleaner->roots, root);
}

char **lh_cleaner_markers(const LhCleaner *cleaner)
{
    GPtrArray *markers = g_ptr_array_new();

    for (guint i = 0; i < cleaner->roots->len; i++) {
        const LhCleanerRoot *root = &g_array_index(cleaner->roots, LhCleanerRoot, i);
        g_autofree char *mark = root_mark(root->root);
        if (root->newer >= 0)
            g_ptr_array_add(markers, g_strdup_printf("%s@%" G_GINT64_FORMAT, mark, root->newer));
    }
    g_ptr_array_add(markers, NULL);
    return (char **)g_ptr_array_free(markers, FALSE);
}

const LhCleanerRoot *lh_cleaner_root(const LhCleaner *cleaner, const char *uri)
{
    const char *root = lh_fleet_root_of(cleaner->fleet, &(LhUri){.dir = uri});

    for (guint i = 0; root != NULL && i < cleaner->roots->len; i++)
        if (g_array_index(cleaner->roots, LhCleanerRoot, i).root == root)
            return &g_array_index(cleaner->roots, LhCleanerRoot, i);
    return NULL;
}

/* ---- orphans ---- */

gboolean lh_cleaner_unclaimed(const LhCleaner *cleaner, const char *uri)
{
    /* What does not parse may claim anything. */
    return cleaner->fleet->unknown_uris == 0 &&
           lh_fleet_claim(cleaner->fleet, uri) == LH_CLAIM_NOBODY &&
           lh_cleaner_root(cleaner, uri) != NULL;
}

const LhObservation *lh_cleaner_erased(const LhCleaner *cleaner, const LhOrphan *orphan)
{
    g_autofree char *name = g_strconcat(LH_CLEANER_ERASE, orphan->o.name, NULL);
    const LhObservation *seen = lh_fleet_observed(cleaner->fleet, LH_CLEANER, name);

    return seen != NULL && seen->token == orphan->o.create_rev ? seen : NULL;
}

gboolean lh_cleaner_claimed_before(const LhCleaner *cleaner, const LhOrphan *orphan)
{
    const LhFleetSnapshot *other = lh_fleet_uri_overlap(cleaner->fleet, orphan->uri, NULL);

    return other != NULL && other->object->create_rev < orphan->o.mod_rev;
}

gboolean lh_cleaner_sightable(const LhCleaner *cleaner, const LhObservation *seen)
{
    const char *name = seen->o.name + strlen(LH_CLEANER "/" LH_CLEANER_ORPHAN);
    const LhObject key = {.name = name};
    const LhOrphan *present = g_tree_lookup(cleaner->fleet->orphans, &key);

    if (present != NULL && (!lh_object_known(&present->o) || present->decided_at >= 0 ||
                            (present->objects == seen->objects && present->bytes == seen->bytes)))
        return FALSE;
    return lh_object_known(&seen->o) && seen->uri != NULL && !apart(seen) &&
           lh_kind_name_valid(LH_KIND_ORPHAN, name) && lh_cleaner_unclaimed(cleaner, seen->uri);
}

/* Whether there is one to be written down. */
static gboolean any_sightable(const LhCleaner *cleaner)
{
    static const char prefix[] = LH_CLEANER "/" LH_CLEANER_ORPHAN;

    for (GTreeNode *n = lh_fleet_observed_from(cleaner->fleet, prefix); n != NULL;
         n = g_tree_node_next(n)) {
        const LhObservation *seen = g_tree_node_key(n);
        if (!g_str_has_prefix(seen->o.name, prefix))
            return FALSE;
        if (lh_cleaner_sightable(cleaner, seen))
            return TRUE;
    }
    return FALSE;
}

/* The next listing is asked for after one interval; two without it, and the last says nothing any more. */
static gboolean listed_lately(const LhCleaner *cleaner, const LhCleanerRoot *root)
{
    return root->list != NULL && root->list->error == NULL &&
           ABS(cleaner->context->now_ms - root->list->at) <=
               2 * cleaner->settings->reconcile_interval_ms;
}

gboolean lh_cleaner_unknown_there(const LhCleaner *cleaner, const char *uri)
{
    return cleaner->fleet->unreadable > 0 || lh_fleet_uri_unknown(cleaner->fleet, uri);
}

/* Seen again, unchanged and untouched, at least a grace later by the store's own clock. */
static gboolean ripe(const LhCleaner *cleaner, const LhOrphan *orphan)
{
    g_autofree char *name = g_strconcat(LH_CLEANER_ORPHAN, orphan->o.name, NULL);
    const LhObservation *seen = lh_fleet_observed(cleaner->fleet, LH_CLEANER, name);
    const LhCleanerRoot *root = lh_cleaner_root(cleaner, orphan->uri);
    gint64 grace_ms = cleaner->settings->orphan_grace_ms;

    return seen != NULL && root != NULL && listed_lately(cleaner, root) &&
           root->list->token == seen->token && g_strcmp0(seen->uri, orphan->uri) == 0 &&
           seen->objects == orphan->objects && seen->bytes == orphan->bytes && !apart(seen) &&
           seen->clock >= orphan->first_seen + grace_ms &&
           (seen->newest < 0 || seen->clock >= seen->newest + grace_ms) &&
           lh_cleaner_unclaimed(cleaner, orphan->uri);
}

/* Small steps do not slip under the brake; what was decided under a confirmed plan was asked for. */
static void count_orphan(LhCleaner *cleaner, const LhOrphan *orphan)
{
    LhCleanerRoot *root = (LhCleanerRoot *)lh_cleaner_root(cleaner, orphan->uri);
    g_autofree char *name = NULL;
    gint64 objects = orphan->objects + orphan->erased;

    if (root == NULL || orphan->plan_hash != NULL || orphan->decided_at <= lately_from(cleaner))
        return;
    name = g_strconcat(LH_CLEANER_ORPHAN, orphan->o.name, NULL);
    root->lately.n += objects;
    /* Those that the last listing did not find are not among what it counted. */
    if (lh_fleet_observed(cleaner->fleet, LH_CLEANER, name) == NULL)
        root->lately.gone += objects;
}

static void read_orphans(LhCleaner *cleaner)
{
    for (GTreeNode *n = g_tree_node_first(cleaner->fleet->orphans); n != NULL;
         n = g_tree_node_next(n)) {
        const LhOrphan *orphan = g_tree_node_key(n);
        if (!lh_object_known(&orphan->o))
            continue;
        if (orphan->decided_at >= 0) {
            const LhObservation *erased = lh_cleaner_erased(cleaner, orphan);
            count_orphan(cleaner, orphan);
            cleaner->work |= orphan->objects > 0 && (erased == NULL || erased->error != NULL);
        } else if (ripe(cleaner, orphan)) {
            g_ptr_array_add(cleaner->orphans, (gpointer)orphan);
            ((LhCleanerRoot *)lh_cleaner_root(cleaner, orphan->uri))->orphaned += orphan->objects;
        }
    }
}

/* A small root does not hide behind a large one. */
static void read_excess(LhCleaner *cleaner)
{
    for (guint i = 0; i < cleaner->roots->len; i++) {
        const LhCleanerRoot *root = &g_array_index(cleaner->roots, LhCleanerRoot, i);
        gint64 objects = root->orphaned + root->lately.n;
        gint64 all = root->orphaned == 0 ? 0 : root->list->objects + root->lately.gone;
        if (root->orphaned == 0 ||
            !lh_brake_exceeds(objects, all, cleaner->settings->brake_percent))
            continue;
        cleaner->orphaned = objects;
        cleaner->listed = all;
        return;
    }
}

/* ---- all of it ---- */

static void read_brake(LhCleaner *cleaner, const LhObject *object)
{
    const LhBraking braking = {LH_CLEANER, cleaner->fleet, cleaner->context, cleaner->brake, NULL};

    cleaner->old = lh_brake_came_back(&braking);
    cleaner->answered = lh_brake_stands(&braking, LH_BRAKE_RESTORED, 0);
    /* Of one that does not parse nobody knows what it is about. */
    cleaner->restored = !cleaner->answered &&
                        (cleaner->context->regressed ||
                         (object != NULL && cleaner->brake == NULL) ||
                         (cleaner->brake != NULL && cleaner->brake->cause == LH_BRAKE_RESTORED &&
                          !LH_BUG(RESTORATION_FORGOTTEN)));
}

void lh_cleaner_read(LhCleaner *cleaner, gconstpointer index, const LhPlanContext *context)
{
    const LhFleet *fleet = index;
    const LhObject *brake = g_hash_table_lookup(fleet->brakes, LH_CLEANER);

    *cleaner = (LhCleaner){
        .fleet = fleet,
        .context = context,
        .settings = lh_fleet_settings(fleet, LH_CLEANER),
        .brake = brake != NULL && lh_object_known(brake) ? (const LhBrake *)brake : NULL,
        .roots = g_array_new(FALSE, FALSE, sizeof(LhCleanerRoot)),
        .orphans = g_ptr_array_new(),
    };
    read_brake(cleaner, brake);
    cleaner->lately = lh_fleet_lately(fleet, NULL, lately_from(cleaner));
    for (guint i = 0; fleet->roots != NULL && fleet->roots[i] != NULL; i++)
        read_root(cleaner, fleet->roots[i]);
    read_etcd(cleaner);
    cleaner->due = lh_cleaner_due(cleaner, context->now_ms, 0, &cleaner->next_due_ms,
                                  &cleaner->much);
    read_orphans(cleaner);
    read_excess(cleaner);
    cleaner->work |= !cleaner->settings->dry_run && any_sightable(cleaner);
    cleaner->work = cleaner->roots->len > 0 &&
                    (cleaner->work || cleaner->due->len > 0 || cleaner->orphans->len > 0 ||
                     g_tree_nnodes(fleet->undeleted) > 0);
}

void lh_cleaner_clear(LhCleaner *cleaner)
{
    g_array_unref(cleaner->roots);
    g_ptr_array_unref(cleaner->due);
    g_ptr_array_unref(cleaner->orphans);
}
