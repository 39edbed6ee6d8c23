/* The errands of snapshot-cleaner, one job for each; see sweeper.h. */
#include "outside/sweeper.h"

#include "base/errors.h"
#include "base/json.h"
#include "base/log.h"
#include "base/planted.h"
#include "controllers/cleaner.h"

#include <string.h>

#define MAX_ROUNDS 3
#define MAX_TOLD   10000 /* directories and snapshots that are told one by one, of each root */

typedef struct {
    gint64 objects, bytes, newest;
} Unit;

/* What a walk has found so far. Grows with snapshots and directories of nobody's, not with objects. */
typedef struct {
    /* Set of hashes of snapshots' names; a collision only hides a missing one. */
    GHashTable *seen;
    GHashTable *units; /* uri -> Unit */
    gint64 objects, bytes, orphans;
    /* The directory of the last object; of one page, as the index may change between pages. */
    char *directory;
    LhClaim claim;
    Unit *unit; /* NULL: none is counted */
} Listing;

typedef struct {
    LhSweeper *sweeper;
    char *id, *uri;
    const char *what;
    gint64 token, attempt, number;
    gint64 revision; /* of the mirror when it began */
    gint64 at, clock;
    LhStoreOp op;
    LhTimer *timer;
    gboolean asks_etcd;
    char *state;
    gint64 state_revision;
    char *over;     /* version of the marker that was read; "": there was none */
    guint rounds;   /* how often somebody else was faster to write it */
    gboolean found; /* something lies in the root that has none */
    Listing listing;
} Job;

struct LhSweeper {
    LhSweeperOptions options;
    char **roots;
    GHashTable *jobs; /* id -> Job */
};

/* ---- jobs ---- */

static void job_free(gpointer data)
{
    Job *job = data;
    LhSweeper *sweeper = job->sweeper;

    lh_store_cancel(sweeper->options.store, &job->op);
    lh_timer_clear(sweeper->options.env, &job->timer);
    if (job->asks_etcd)
        sweeper->options.etcd_clock.cancel(sweeper->options.etcd_clock.data);
    g_clear_pointer(&job->listing.seen, g_hash_table_unref);
    g_clear_pointer(&job->listing.units, g_hash_table_unref);
    g_free(job->listing.directory);
    g_free(job->state);
    g_free(job->over);
    g_free(job->id);
    g_free(job->uri);
    g_free(job);
}

static LhObservation answer_of(const Job *job, const GError *error)
{
    return (LhObservation){
        .at = job->at != 0 ? job->at : lh_wall_ms(job->sweeper->options.env),
        .token = job->token,
        .attempt = job->attempt,
        .error = error == NULL ? NULL : error->message,
        .uri = job->uri,
        .clock = job->clock,
        .objects = -1,
        .bytes = -1,
        .revision = -1,
        .newest = -1,
        .missing = -1,
        .orphans = -1,
        .state = job->state,
    };
}

/* The job is over; it is freed. */
static void end(Job *job, const LhObservation *seen)
{
    LhMirror *mirror = job->sweeper->options.mirror;
    g_autofree char *name = g_strconcat(LH_CLEANER "/", job->id, NULL);

    if (seen->error != NULL)
        lh_log(LH_LOG_WARNING, "errand failed", "controller", LH_CLEANER, "errand", job->id, "uri",
               job->uri == NULL ? "" : job->uri, "why", seen->error, "next", "again, later", NULL);
    else if (strcmp(job->what, LH_CLEANER_DELETE) == 0 || strcmp(job->what, LH_CLEANER_ERASE) == 0)
        lh_log(LH_LOG_INFO, "errand done", "controller", LH_CLEANER, "errand", job->id, "uri",
               job->uri == NULL ? "" : job->uri, "objects",
               lh_fmt("%" G_GINT64_FORMAT, seen->objects), NULL);
    /* What is told may need it until it has been told. */
    g_hash_table_steal(job->sweeper->jobs, job->id);
    lh_mirror_observe(mirror, name, seen);
    job_free(job);
}

static void fail(Job *job, const GError *error)
{
    LhObservation seen = answer_of(job, error);

    end(job, &seen);
}

/* ---- roots, etcd's clock ---- */

static void tell_roots(const LhSweeper *sweeper)
{
    const LhObservation seen = {
        .at = lh_wall_ms(sweeper->options.env),
        .uris = (const char *const *)sweeper->roots,
        .clock = -1,
        .objects = -1,
        .bytes = -1,
        .revision = -1,
        .newest = -1,
        .missing = -1,
        .orphans = -1,
    };

    lh_mirror_observe(sweeper->options.mirror, LH_CLEANER_ROOTS, &seen);
}

static void on_etcd(gint64 clock_ms, const GError *error, gpointer data)
{
    Job *job = data;
    LhObservation seen;

    job->asks_etcd = FALSE;
    job->clock = clock_ms;
    seen = answer_of(job, error);
    end(job, &seen);
}

/* ---- looking at a root ---- */

static void tell_look(Job *job, const char *state, gint64 revision)
{
    LhObservation seen;

    job->state = g_strdup(state);
    seen = answer_of(job, NULL);
    seen.revision = revision;
    end(job, &seen);
}

static void on_marker(const LhStoreAnswer *answer, const GError *error, gpointer data);

static void on_written(const LhStoreAnswer *answer, const GError *error, gpointer data)
{
    Job *job = data;
    const LhSweeperOptions *options = &job->sweeper->options;

    (void)answer;
    job->op = 0;
    if (g_error_matches(error, LH_ERROR, LH_ERR_CONFLICT) && ++job->rounds < MAX_ROUNDS)
        job->op = lh_store_read(options->store, job->uri, LH_CLEANER_MARKER, on_marker, job);
    else if (error != NULL)
        fail(job, error);
    else
        tell_look(job, job->state_revision < 0 ? "new" : "ours", job->number);
}

static char *cluster_text(const LhMirror *mirror)
{
    return g_strdup_printf("%016" G_GINT64_MODIFIER "x", lh_mirror_cluster_id(mirror));
}

static void write_marker(Job *job)
{
    const LhSweeperOptions *options = &job->sweeper->options;
    g_autofree char *cluster = cluster_text(options->mirror);
    g_autoptr(GString) text = g_string_new("{");

    lh_json_append_key(text, "prefix");
    lh_json_append_string(text, lh_mirror_prefix(options->mirror));
    lh_json_append_key(text, "clusterId");
    lh_json_append_string(text, cluster);
    lh_json_append_key(text, "root");
    lh_json_append_string(text, job->uri);
    lh_json_append_key(text, "revision");
    lh_json_append_int(text, job->number);
    g_string_append(text, "}\n");
    job->op = lh_store_write(options->store, job->uri, LH_CLEANER_MARKER, text->str, job->over,
                             on_written, job);
}

/* What cannot be read is not ours. Nor is what another root's uri leads to as well: there other things are
 * nobody's. */
static gboolean is_ours(const Job *job, const char *root, const char *text, gint64 *revision)
{
    const LhMirror *mirror = job->sweeper->options.mirror;
    g_autoptr(cJSON) json = lh_json_parse(text, strlen(text), LH_JSON_MAX_BYTES, NULL);
    g_autofree char *cluster = cluster_text(mirror);

    if (!cJSON_IsObject(json))
        return FALSE;
    *revision = lh_json_get_int(json, "revision", -1);
    return *revision >= 0 &&
           g_strcmp0(lh_json_get_string(json, "prefix", NULL), lh_mirror_prefix(mirror)) == 0 &&
           g_strcmp0(lh_json_get_string(json, "clusterId", NULL), cluster) == 0 &&
           g_strcmp0(lh_json_get_string(json, "root", NULL), root) == 0;
}

/* ---- a root without a marker ---- */

static const LhFleet *fleet_of(const Job *job)
{
    const LhController *const *all = lh_runtime_controllers(job->sweeper->options.runtime);
    LhPlanContext context;

    while (strcmp((*all)->name, LH_CLEANER) != 0)
        all++;
    return lh_runtime_index(job->sweeper->options.runtime, *all, &context);
}

/* Something is known to lie there, or may be. */
static gboolean is_used(const Job *job)
{
    const LhFleet *fleet = fleet_of(job);

    if (g_hash_table_size(fleet->unknown) > 0 || fleet->unknown_uris > 0 ||
        lh_fleet_uri_overlap(fleet, job->uri, NULL) != NULL)
        return TRUE;
    for (GTreeNode *n = g_tree_node_first(fleet->undeleted); n != NULL; n = g_tree_node_next(n))
        if (g_str_has_prefix(((const LhDeletion *)g_tree_node_key(n))->uri, job->uri))
            return TRUE;
    return FALSE;
}

static gboolean is_marker(const LhStoreObject *object)
{
    return g_str_has_prefix(object->name, LH_CLEANER_MARKER) && strchr(object->name, '/') == NULL;
}

/* Revision 0: any that is written is later. */
static void tell_unmarked(gpointer data)
{
    Job *job = data;

    job->timer = NULL;
    tell_look(job, "unmarked", 0);
}

static void on_found(const LhStoreObject *objects, gsize n, gpointer data)
{
    Job *job = data;

    for (gsize i = 0; i < n && !job->found; i++)
        job->found = !is_marker(&objects[i]);
    if (job->found && job->timer == NULL) /* the rest need not be listed */
        job->timer = lh_timer_in(job->sweeper->options.env, 0, tell_unmarked, job);
}

static void on_searched(const LhStoreAnswer *answer, const GError *error, gpointer data)
{
    Job *job = data;

    (void)answer;
    job->op = 0;
    lh_timer_clear(job->sweeper->options.env, &job->timer);
    if (job->found)
        tell_unmarked(job);
    else if (error != NULL)
        fail(job, error);
    else
        write_marker(job);
}

/* Only an empty root that nothing is known of is taken without asking. */
static void take_root(Job *job)
{
    if (is_used(job))
        tell_unmarked(job);
    else
        job->op = lh_store_walk(job->sweeper->options.store, job->uri, on_found, on_searched, job);
}

static void on_marker(const LhStoreAnswer *answer, const GError *error, gpointer data)
{
    Job *job = data;
    gint64 revision = -1;
    gboolean claims = strcmp(job->what, LH_CLEANER_CLAIM) == 0;

    job->op = 0;
    if (error != NULL && !g_error_matches(error, LH_ERROR, LH_ERR_NOT_FOUND)) {
        fail(job, error);
    } else if (error == NULL && !is_ours(job, job->uri, answer->text, &revision)) {
        tell_look(job, "foreign", -1);
    } else if (error == NULL && job->number >= 0 && revision > job->number && !claims) {
        tell_look(job, "newer", revision);
    } else if (job->number < 0 || revision == job->number) {
        tell_look(job, error != NULL ? "none" : "ours", revision);
    } else {
        job->state_revision = revision;
        g_free(job->over); /* whoever writes it meanwhile may know of a later revision */
        job->over = g_strdup(error != NULL ? "" : answer->version);
        if (error != NULL && !claims)
            take_root(job);
        else
            write_marker(job);
    }
}

static void on_clock(const LhStoreAnswer *answer, const GError *error, gpointer data)
{
    Job *job = data;

    job->op = 0;
    if (error != NULL) {
        fail(job, error);
        return;
    }
    job->clock = answer->clock_ms;
    job->at = lh_wall_ms(job->sweeper->options.env);
    job->op = lh_store_read(job->sweeper->options.store, job->uri, LH_CLEANER_MARKER, on_marker,
                            job);
}

/* ---- listing a root ---- */

static gpointer name_hash(const char *name)
{
    guint64 hash = G_GUINT64_CONSTANT(14695981039346656037);

    for (; *name != '\0'; name++)
        hash = (hash ^ (guint8)*name) * G_GUINT64_CONSTANT(1099511628211);
    return GSIZE_TO_POINTER((gsize)hash | 1);
}

/* Of several whose uris overlap, the data is all of theirs. */
static void mark_seen(const LhFleetSnapshot *owner, gpointer data)
{
    g_hash_table_add(data, name_hash(owner->name));
}

/* Whose the directory is; a Unit for it if it is nobody's. */
static void enter(Job *job, const char *directory, gsize len)
{
    Listing *listing = &job->listing;
    g_autofree char *uri = NULL;

    if (listing->directory != NULL && strlen(listing->directory) == len &&
        memcmp(listing->directory, directory, len) == 0)
        return;
    g_free(listing->directory);
    listing->directory = g_strndup(directory, len);
    listing->unit = NULL;
    uri = g_strconcat(job->uri, listing->directory, NULL);
    /* What lies in the root itself is no directory's that may go. */
    listing->claim = len == 0 ? LH_CLAIM_STRAY : lh_fleet_claim(fleet_of(job), uri);
    if (listing->claim == LH_CLAIM_SNAPSHOT)
        lh_fleet_uri_holders(fleet_of(job), uri, mark_seen, listing->seen);
    if (listing->claim != LH_CLAIM_NOBODY)
        return;
    listing->unit = g_hash_table_lookup(listing->units, uri);
    if (listing->unit == NULL && g_hash_table_size(listing->units) < MAX_TOLD) {
        listing->unit = g_new0(Unit, 1);
        listing->unit->newest = -1;
        g_hash_table_insert(listing->units, g_steal_pointer(&uri), listing->unit);
    }
}

static void add_object(Job *job, const LhStoreObject *object)
{
    Listing *listing = &job->listing;
    const char *slash = strrchr(object->name, '/');

    if (is_marker(object))
        return; /* and what it is made from */
    enter(job, object->name, slash == NULL ? 0 : (gsize)(slash + 1 - object->name));
    listing->objects++;
    listing->bytes += object->size;
    if (listing->claim != LH_CLAIM_SNAPSHOT && listing->claim != LH_CLAIM_HELD)
        listing->orphans++;
    if (listing->unit != NULL) {
        listing->unit->objects++;
        listing->unit->bytes += object->size;
        /* Of an unknown age is as young as can be. */
        listing->unit->newest = MAX(listing->unit->newest,
                                    object->modified_ms < 0 ? job->clock : object->modified_ms);
    }
}

static void on_page(const LhStoreObject *objects, gsize n, gpointer data)
{
    Job *job = data;

    g_clear_pointer(&job->listing.directory, g_free);
    for (gsize i = 0; i < n; i++)
        add_object(job, &objects[i]);
}

/* What a listing tells one by one says of which listing it is. */
static void tell(Job *job, const char *kind, const char *rest, LhObservation *seen)
{
    g_autofree char *name = g_strconcat(LH_CLEANER "/", kind, rest, NULL);

    seen->state = job->id;
    lh_mirror_observe(job->sweeper->options.mirror, name, seen);
}

static void tell_units(Job *job)
{
    GHashTableIter iter;
    gpointer uri, value;

    g_hash_table_iter_init(&iter, job->listing.units);
    while (g_hash_table_iter_next(&iter, &uri, &value)) {
        const Unit *unit = value;
        g_autofree char *sum = g_compute_checksum_for_string(G_CHECKSUM_SHA256, uri, -1);
        LhObservation seen = answer_of(job, NULL);
        seen.uri = uri;
        seen.objects = unit->objects;
        seen.bytes = unit->bytes;
        seen.newest = unit->newest;
        tell(job, LH_CLEANER_ORPHAN, sum, &seen);
    }
}

/* Those that were there when it began, final, and unchanged since. Returns how many. */
static gint64 tell_missing(Job *job)
{
    const LhFleet *fleet = fleet_of(job);
    LhSortedPlace place = {0, 0};
    const LhFleetSnapshot *snapshot;
    gint64 missing = 0;

    while ((snapshot = lh_sorted_set_next(&fleet->by_uri, &place)) != NULL) {
        const LhSnapshot *object = lh_fleet_snapshot_object(snapshot);
        const char *root = lh_fleet_root_of(fleet, &object->uri);
        LhObservation seen = answer_of(job, NULL);
        if (object->live || snapshot->has_deletion || object->o.mod_rev > job->revision ||
            g_strcmp0(root, job->uri) != 0 ||
            g_hash_table_contains(job->listing.seen, name_hash(snapshot->name)))
            continue;
        seen.uri = NULL;
        seen.revision = object->o.mod_rev;
        if (missing++ < MAX_TOLD)
            tell(job, LH_CLEANER_MISSING, snapshot->name, &seen);
    }
    return missing;
}

/* What an earlier listing of this root told, and this one does not. */
static void take_back(Job *job, const char *kind)
{
    g_autofree char *prefix = g_strconcat(LH_CLEANER "/", kind, NULL);
    g_autoptr(GPtrArray) old = g_ptr_array_new_with_free_func(g_free);

    for (GTreeNode *n = lh_fleet_observed_from(fleet_of(job), prefix); n != NULL;
         n = g_tree_node_next(n)) {
        const LhObservation *seen = g_tree_node_key(n);
        if (!g_str_has_prefix(seen->o.name, prefix))
            break;
        if (lh_object_known(&seen->o) && g_strcmp0(seen->state, job->id) == 0 &&
            seen->token != job->token)
            g_ptr_array_add(old, g_strdup(seen->o.name));
    }
    for (guint i = 0; i < old->len; i++)
        lh_mirror_observe(job->sweeper->options.mirror, old->pdata[i], NULL);
}

static void on_walked(const LhStoreAnswer *answer, const GError *error, gpointer data)
{
    Job *job = data;
    LhMirror *mirror = job->sweeper->options.mirror;
    LhObservation seen;

    (void)answer;
    job->op = 0;
    if (LH_BUG(LISTING_ERROR_EMPTY))
        error = NULL;
    if (error != NULL) {
        fail(job, error);
        return;
    }
    lh_mirror_observe_begin(mirror);
    tell_units(job);
    seen = answer_of(job, NULL);
    seen.missing = tell_missing(job);
    take_back(job, LH_CLEANER_ORPHAN);
    take_back(job, LH_CLEANER_MISSING);
    seen.objects = job->listing.objects;
    seen.bytes = job->listing.bytes;
    seen.orphans = job->listing.orphans;
    end(job, &seen);
    lh_mirror_observe_end(mirror);
}

static void on_list_clock(const LhStoreAnswer *answer, const GError *error, gpointer data)
{
    Job *job = data;

    job->op = 0;
    if (error != NULL) {
        fail(job, error);
        return;
    }
    job->clock = answer->clock_ms;
    job->at = lh_wall_ms(job->sweeper->options.env);
    job->revision = lh_mirror_revision(job->sweeper->options.mirror);
    job->listing.seen = g_hash_table_new(NULL, NULL);
    job->listing.units = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, g_free);
    job->op = lh_store_walk(job->sweeper->options.store, job->uri, on_page, on_walked, job);
}

/* ---- deleting ---- */

static void on_erased(const LhStoreAnswer *answer, const GError *error, gpointer data)
{
    Job *job = data;
    LhObservation seen;

    job->op = 0;
    if (g_error_matches(error, LH_ERROR, LH_ERR_CONFLICT))
        job->state = g_strdup(LH_CLEANER_CHANGED);
    seen = answer_of(job, error);
    if (answer != NULL)
        seen.objects = answer->objects;
    end(job, &seen);
}

static void refuse(Job *job, const char *why)
{
    g_autoptr(GError) error = g_error_new(LH_ERROR, LH_ERR_CONFLICT, "%s: %s: nothing is deleted",
                                          job->uri, why);

    fail(job, error);
}

/* Exactly what was decided, as it was seen. */
static void erase_orphan(Job *job)
{
    const LhSweeperOptions *options = &job->sweeper->options;
    const LhObject key = {.name = job->id + strlen(LH_CLEANER_ERASE)};
    const LhOrphan *orphan = g_tree_lookup(fleet_of(job)->orphans, &key);

    if (orphan == NULL || !lh_object_known(&orphan->o) || orphan->decided_at < 0 ||
        orphan->o.create_rev != job->token || strcmp(orphan->uri, job->uri) != 0) {
        refuse(job, "it is not decided any more");
        return;
    }
    const LhStoreKnown known = {orphan->objects, orphan->bytes, job->number};
    job->op = lh_store_erase_flat(options->store, job->uri, &known, on_erased, job);
}

static const char *root_of(const Job *job)
{
    for (char *const *root = job->sweeper->roots; *root != NULL; root++)
        if (g_str_has_prefix(job->uri, *root) && strlen(job->uri) > strlen(*root))
            return *root;
    return NULL;
}

/* What the last look saw may be another place by now: a volume that is not mounted says that nothing is there,
 * and so that everything is deleted. */
static void on_guard(const LhStoreAnswer *answer, const GError *error, gpointer data)
{
    Job *job = data;
    gint64 revision;

    job->op = 0;
    if (error != NULL && !g_error_matches(error, LH_ERROR, LH_ERR_NOT_FOUND))
        fail(job, error);
    else if (error != NULL || !is_ours(job, root_of(job), answer->text, &revision))
        refuse(job, "its root has no marker of ours");
    else if (strcmp(job->what, LH_CLEANER_DELETE) == 0)
        job->op = lh_store_erase(job->sweeper->options.store, job->uri, on_erased, job);
    else
        erase_orphan(job);
}

static void outside_roots(gpointer data)
{
    Job *job = data;

    job->timer = NULL;
    refuse(job, "it does not lie below a root");
}

static void begin_deleting(Job *job)
{
    const LhSweeperOptions *options = &job->sweeper->options;
    const char *root = root_of(job);

    if (root == NULL)
        job->timer = lh_timer_in(options->env, 0, outside_roots, job);
    else
        job->op = lh_store_read(options->store, root, LH_CLEANER_MARKER, on_guard, job);
}

/* ---- the list ---- */

static void start(Job *job)
{
    const LhSweeperOptions *options = &job->sweeper->options;

    if (strcmp(job->what, LH_CLEANER_ETCD) == 0) {
        job->asks_etcd = TRUE;
        options->etcd_clock.ask(options->etcd_clock.data, on_etcd, job);
    } else if (strcmp(job->what, LH_CLEANER_LIST) == 0) {
        job->op = lh_store_clock(options->store, job->uri, on_list_clock, job);
    } else if (strcmp(job->what, LH_CLEANER_DELETE) == 0 ||
               strcmp(job->what, LH_CLEANER_ERASE) == 0) {
        begin_deleting(job);
    } else {
        job->op = lh_store_clock(options->store, job->uri, on_clock, job);
    }
}

static gboolean is_wanted(const Job *job, const LhErrand *errands, guint n)
{
    for (guint i = 0; i < n; i++)
        if (strcmp(errands[i].id, job->id) == 0)
            return errands[i].token == job->token && errands[i].attempt == job->attempt &&
                   g_strcmp0(errands[i].uri, job->uri) == 0;
    return FALSE;
}

static void sweeper_set(const char *controller, const LhErrand *errands, guint n, gpointer data)
{
    LhSweeper *sweeper = data;
    GHashTableIter iter;
    gpointer job;

    if (strcmp(controller, LH_CLEANER) != 0)
        return;
    g_hash_table_iter_init(&iter, sweeper->jobs);
    while (g_hash_table_iter_next(&iter, NULL, &job))
        if (!is_wanted(job, errands, n))
            g_hash_table_iter_remove(&iter);
    for (guint i = 0; i < n; i++) {
        Job *fresh;
        if (g_hash_table_contains(sweeper->jobs, errands[i].id))
            continue;
        fresh = g_new0(Job, 1);
        *fresh = (Job){
            .sweeper = sweeper,
            .id = g_strdup(errands[i].id),
            .uri = g_strdup(errands[i].uri),
            .what = errands[i].what,
            .token = errands[i].token,
            .attempt = errands[i].attempt,
            .number = errands[i].number,
            .clock = -1,
        };
        g_hash_table_insert(sweeper->jobs, fresh->id, fresh);
        start(fresh);
    }
}

const LhOutside lh_sweeper_outside = {.set = sweeper_set};

LhSweeper *lh_sweeper_new(const LhSweeperOptions *options)
{
    LhSweeper *sweeper = g_new0(LhSweeper, 1);

    sweeper->options = *options;
    sweeper->roots = g_strdupv((char **)options->roots);
    if (sweeper->roots == NULL)
        sweeper->roots = g_new0(char *, 1);
    sweeper->jobs = g_hash_table_new_full(g_str_hash, g_str_equal, NULL, job_free);
    tell_roots(sweeper);
    return sweeper;
}

void lh_sweeper_free(LhSweeper *sweeper)
{
    if (sweeper == NULL)
        return;
    g_hash_table_unref(sweeper->jobs);
    g_strfreev(sweeper->roots);
    g_free(sweeper);
}
