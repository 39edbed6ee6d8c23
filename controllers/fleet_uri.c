/*
 * Which snapshots' uris collide: equal, inside one another, or held by a Deletion or an Orphan. Pure.
 *
 * The records of all known snapshots are sorted by uri: what is equal to a uri or lies in it follows right
 * behind. Uris that others share or lie in are few, mostly none: only those have an entry (LhFleetContest),
 * which also tells without a search what lies in a uri. What holds a directory above a uri, and has no entry
 * because nothing else lies in it, is the neighbour before.
 */
#include "controllers/fleet_internal.h"

#include <string.h>

/* ---- texts ---- */

/* The length of the directory above the first @len bytes of @uri, which end in '/': 5 + "b/" of
 * "s3://b/x/". 0: there is none. */
static gsize parent_length(const char *uri, gsize len)
{
    const char *authority = strstr(uri, "://");

    if (authority == NULL)
        return 0;
    for (gsize i = len - 1, start = (gsize)(authority - uri) + 3; i > start; i--)
        if (uri[i - 1] == '/')
            return i;
    return 0;
}

/* ---- the order of the records ---- */

typedef struct {
    LhUri uri;
    const char *name; /* of the snapshot; "" comes before all that have this uri */
} Key;

static const LhUri *uri_of(const LhFleetSnapshot *snapshot)
{
    return &lh_fleet_snapshot_object(snapshot)->uri;
}

int lh_fleet_uri_order(gconstpointer record, gconstpointer key)
{
    const Key *wanted = key;
    int order = lh_uri_compare(uri_of(record), &wanted->uri);

    return order != 0 ? order : strcmp(((const LhFleetSnapshot *)record)->name, wanted->name);
}

static LhSortedPlace find(const LhFleet *fleet, const char *uri)
{
    const Key key = {.uri = {.dir = uri}, .name = ""};

    return lh_sorted_set_find(&fleet->by_uri, &key);
}

/* The next one, as long as it has that uri (or, with @below, lies in it). */
static LhFleetSnapshot *next_within(const LhFleet *fleet, const char *uri, gboolean below,
                                    LhSortedPlace *place)
{
    const LhUri wanted = {.dir = uri};
    LhFleetSnapshot *snapshot = lh_sorted_set_next(&fleet->by_uri, place);
    int order = snapshot == NULL ? LH_URI_APART : lh_uri_compare(uri_of(snapshot), &wanted);

    return order == 0 || (below && order == LH_URI_INSIDE) ? snapshot : NULL;
}

/* The last one before @uri; of its holders, only where it is a directory above @uri. */
static LhFleetSnapshot *holder_before(const LhFleet *fleet, const char *uri)
{
    const LhUri wanted = {.dir = uri};
    LhSortedPlace place = find(fleet, uri);
    LhFleetSnapshot *before = lh_sorted_set_back(&fleet->by_uri, &place);

    return before != NULL && lh_uri_compare(uri_of(before), &wanted) == -LH_URI_INSIDE ? before
                                                                                       : NULL;
}

/* Put in one transaction they share a create revision: then the name decides. */
static gboolean is_older(const LhFleetSnapshot *a, const LhFleetSnapshot *b)
{
    if (a->object->create_rev != b->object->create_rev)
        return a->object->create_rev < b->object->create_rev;
    return strcmp(a->name, b->name) < 0;
}

/* ---- contests ---- */

static LhFleetContest *get_contest(const LhFleet *fleet, const char *uri, gsize len)
{
    return lh_name_set_get_n(&fleet->contests, uri, len);
}

/* A contest whenever there is something to contest, with what the records say. */
static void make_contest(LhFleet *fleet, const char *uri)
{
    LhFleetContest found = {.oldest = NULL}, *contest;
    LhSortedPlace place = find(fleet, uri), begin = place;
    gsize len = strlen(uri);

    while (next_within(fleet, uri, FALSE, &place) != NULL) {
        found.holders++;
        begin = place;
    }
    for (LhFleetSnapshot *below; (below = next_within(fleet, uri, TRUE, &begin)) != NULL;) {
        found.below++;
        if (found.oldest == NULL || is_older(below, found.oldest))
            found.oldest = below;
    }
    if (found.holders == 0 || found.holders + found.below < 2)
        return;
    contest = g_malloc(sizeof *contest + len + 1);
    *contest = found;
    contest->name = memcpy(contest->text, uri, len + 1);
    lh_name_set_put(&fleet->contests, contest);
}

static void drop_contest(LhFleet *fleet, LhFleetContest *contest)
{
    if (contest->holders > 0 && contest->holders + contest->below > 1)
        return;
    lh_name_set_take(&fleet->contests, contest->name);
    g_free(contest);
}

/* Searched for only after the oldest one below it has gone. */
static LhFleetSnapshot *oldest_below(const LhFleet *fleet, LhFleetContest *contest)
{
    LhSortedPlace place = find(fleet, contest->name);

    if (contest->oldest != NULL || contest->below == 0)
        return contest->oldest;
    for (LhFleetSnapshot *next; (next = next_within(fleet, contest->name, TRUE, &place)) != NULL;)
        if (lh_uri_compare(uri_of(next), &(LhUri){.dir = contest->name}) != 0 &&
            (contest->oldest == NULL || is_older(next, contest->oldest)))
            contest->oldest = next;
    return contest->oldest;
}

static void contest_added(LhFleet *fleet, LhFleetSnapshot *snapshot)
{
    g_autofree char *uri = lh_uri_text(uri_of(snapshot));
    gsize len = strlen(uri);
    LhFleetContest *contest = get_contest(fleet, uri, len);
    const LhFleetSnapshot *above = holder_before(fleet, uri);

    if (contest != NULL)
        contest->holders++;
    else
        make_contest(fleet, uri);
    for (gsize up = parent_length(uri, len); up != 0; up = parent_length(uri, up)) {
        contest = get_contest(fleet, uri, up);
        if (contest == NULL)
            continue;
        if (contest->below++ == 0 ||
            (contest->oldest != NULL && is_older(snapshot, contest->oldest)))
            contest->oldest = snapshot;
    }
    if (above != NULL) {
        g_autofree char *directory = lh_uri_text(uri_of(above));
        if (get_contest(fleet, directory, strlen(directory)) == NULL)
            make_contest(fleet, directory);
    }
}

static void contest_removed(LhFleet *fleet, const LhFleetSnapshot *snapshot)
{
    g_autofree char *uri = lh_uri_text(uri_of(snapshot));
    gsize len = strlen(uri);
    LhFleetContest *contest = get_contest(fleet, uri, len);

    if (contest != NULL) {
        contest->holders--;
        drop_contest(fleet, contest);
    }
    for (gsize up = parent_length(uri, len); up != 0; up = parent_length(uri, up)) {
        contest = get_contest(fleet, uri, up);
        if (contest == NULL)
            continue;
        contest->below--;
        if (contest->oldest == snapshot)
            contest->oldest = NULL;
        drop_contest(fleet, contest);
    }
}

/* Whether the record behind @place collides with one beside it. */
static gboolean meets_neighbour(const LhFleet *fleet, LhSortedPlace place)
{
    LhSortedPlace before = place;
    const LhUri *uri = uri_of(lh_sorted_set_next(&fleet->by_uri, &place));
    const LhFleetSnapshot *left = lh_sorted_set_back(&fleet->by_uri, &before);
    const LhFleetSnapshot *right = lh_sorted_set_at(&fleet->by_uri, place);

    return (left != NULL && lh_uri_compare(uri_of(left), uri) >= -LH_URI_INSIDE) ||
           (right != NULL && lh_uri_compare(uri_of(right), uri) <= LH_URI_INSIDE);
}

gboolean lh_fleet_uri_add(LhFleet *fleet, LhFleetSnapshot *snapshot)
{
    const Key key = {.uri = *uri_of(snapshot), .name = snapshot->name};
    LhSortedPlace place = lh_sorted_set_put(&fleet->by_uri,
                                            lh_sorted_set_find(&fleet->by_uri, &key), snapshot);

    if (fleet->contests.n == 0 && !meets_neighbour(fleet, place))
        return FALSE;
    contest_added(fleet, snapshot);
    return TRUE;
}

gboolean lh_fleet_uri_remove(LhFleet *fleet, const LhFleetSnapshot *snapshot)
{
    const Key key = {.uri = *uri_of(snapshot), .name = snapshot->name};
    LhSortedPlace place = lh_sorted_set_find(&fleet->by_uri, &key);

    g_assert(lh_sorted_set_at(&fleet->by_uri, place) == snapshot);
    lh_sorted_set_take(&fleet->by_uri, place);
    if (fleet->contests.n == 0)
        return FALSE;
    contest_removed(fleet, snapshot);
    return TRUE;
}

void lh_fleet_uris_clear(LhFleet *fleet)
{
    LhFleetContest *contest;

    for (gsize at = 0; (contest = lh_name_set_next(&fleet->contests, &at)) != NULL;)
        g_free(contest);
    lh_name_set_clear(&fleet->contests);
    lh_sorted_set_clear(&fleet->by_uri);
}

/* ---- what Deletions and Orphans hold ---- */

static void count(GHashTable *table, const char *uri, gsize len, int delta)
{
    g_autofree char *text = g_strndup(uri, len);
    gint sum = GPOINTER_TO_INT(g_hash_table_lookup(table, text)) + delta;

    if (sum == 0)
        g_hash_table_remove(table, text);
    else
        g_hash_table_insert(table, g_steal_pointer(&text), GINT_TO_POINTER(sum));
}

void lh_fleet_uri_take(LhFleet *fleet, GHashTable *table, const char *uri, gint delta)
{
    gsize len = strlen(uri);

    count(table, uri, len, delta);
    while ((len = parent_length(uri, len)) != 0)
        count(fleet->taken_parents, uri, len, delta);
}

gboolean lh_fleet_uri_taken(const LhFleet *fleet, const char *uri, gboolean *inside)
{
    g_autofree char *path = NULL;
    gboolean taken = FALSE;

    if (g_hash_table_size(fleet->taken_parents) == 0)
        return FALSE;
    path = g_strdup(uri);
    taken = g_hash_table_contains(fleet->taken_flat, path);
    for (gsize len = strlen(path); len != 0 && !taken; len = parent_length(path, len)) {
        path[len] = '\0';
        taken = g_hash_table_contains(fleet->taken_uris, path);
    }
    if (inside != NULL)
        *inside = taken;
    return taken || g_hash_table_contains(fleet->taken_parents, uri);
}

/* ---- collisions ---- */

/* The older one of *oldest (which may be NULL) and @other, unless that is not older than @self. */
static void collide(const LhFleetSnapshot *self, const LhFleetSnapshot *other,
                    const LhFleetSnapshot **oldest)
{
    if (is_older(other, self) && (*oldest == NULL || is_older(other, *oldest)))
        *oldest = other;
}

static void collide_holders(const LhFleet *fleet, const char *uri, const LhFleetSnapshot *self,
                            const LhFleetSnapshot **oldest)
{
    LhSortedPlace place = find(fleet, uri);

    for (LhFleetSnapshot *next; (next = next_within(fleet, uri, FALSE, &place)) != NULL;)
        collide(self, next, oldest);
}

/* The oldest one that is older and collides. */
static const LhFleetSnapshot *find_collision(const LhFleet *fleet, const LhFleetSnapshot *self,
                                             const char *uri)
{
    const LhFleetSnapshot *oldest = NULL;

    for (gsize all = strlen(uri), len = all; len != 0; len = parent_length(uri, len)) {
        LhFleetContest *contest = get_contest(fleet, uri, len);
        if (contest == NULL)
            continue;
        collide_holders(fleet, contest->name, self, &oldest);
        if (len == all && contest->below > 0)
            collide(self, oldest_below(fleet, contest), &oldest);
    }
    return oldest;
}

char *lh_fleet_snapshot_invalid(const LhFleet *fleet, const LhFleetSnapshot *snapshot)
{
    const LhSnapshot *object = lh_fleet_snapshot_object(snapshot);
    const LhFleetSnapshot *older;
    g_autofree char *uri = NULL;

    if (snapshot->object == NULL)
        return g_strdup("it is not published");
    if (object == NULL)
        return g_strdup(lh_object_error(snapshot->object));
    if (snapshot->has_deletion) {
        const LhDeletion *deletion = g_hash_table_lookup(fleet->deletions, snapshot->name);
        if (!lh_object_known(&deletion->o))
            return g_strdup("metadata.name: its Deletion does not parse");
        if (deletion->snapshot_revision != object->o.mod_rev)
            return g_strdup("metadata.name: a deletion holds this name, use another one");
        return NULL; /* its own deletion is under way */
    }
    if (fleet->contests.n == 0 && g_hash_table_size(fleet->taken_parents) == 0)
        return NULL;
    uri = lh_uri_text(&object->uri);
    if (lh_fleet_uri_taken(fleet, uri, NULL))
        return g_strdup("uri: a deletion holds it, use another one");
    older = find_collision(fleet, snapshot, uri);
    if (older != NULL)
        return g_strdup_printf("uri: overlaps that of snapshot %s, which is older", older->name);
    return NULL;
}

gboolean lh_fleet_uri_contested(const LhFleet *fleet, const LhFleetSnapshot *snapshot)
{
    g_autofree char *uri = fleet->contests.n == 0 ? NULL : lh_uri_text(uri_of(snapshot));

    return uri != NULL && lh_fleet_uri_overlap(fleet, uri, snapshot) != NULL;
}

const LhFleetSnapshot *lh_fleet_uri_overlap(const LhFleet *fleet, const char *uri,
                                            const LhFleetSnapshot *but)
{
    LhSortedPlace place = find(fleet, uri);
    const LhFleetSnapshot *oldest = NULL, *next;
    gsize len = strlen(uri);

    while ((next = next_within(fleet, uri, TRUE, &place)) != NULL)
        if (next != but && (oldest == NULL || is_older(next, oldest)))
            oldest = next;
    while ((len = parent_length(uri, len)) != 0) {
        g_autofree char *up = g_strndup(uri, len);
        place = find(fleet, up);
        while ((next = next_within(fleet, up, FALSE, &place)) != NULL)
            if (next != but && (oldest == NULL || is_older(next, oldest)))
                oldest = next;
    }
    return oldest;
}

void lh_fleet_uri_holders(const LhFleet *fleet, const char *directory,
                          void (*func)(const LhFleetSnapshot *snapshot, gpointer data),
                          gpointer data)
{
    for (gsize len = strlen(directory); len != 0; len = parent_length(directory, len)) {
        g_autofree char *up = g_strndup(directory, len);
        LhSortedPlace place = find(fleet, up);
        const LhFleetSnapshot *next;
        while ((next = next_within(fleet, up, FALSE, &place)) != NULL)
            func(next, data);
    }
}

static void note_one(const LhFleetSnapshot *snapshot, gpointer data)
{
    (void)snapshot;
    *(gboolean *)data = TRUE;
}

LhClaim lh_fleet_claim(const LhFleet *fleet, const char *directory)
{
    LhSortedPlace place = find(fleet, directory);
    gboolean owned = FALSE, inside = FALSE, taken;

    lh_fleet_uri_holders(fleet, directory, note_one, &owned);
    if (owned)
        return LH_CLAIM_SNAPSHOT;
    taken = lh_fleet_uri_taken(fleet, directory, &inside);
    if (inside)
        return LH_CLAIM_HELD;
    if (taken || next_within(fleet, directory, TRUE, &place) != NULL ||
        !lh_uri_check(directory, NULL))
        return LH_CLAIM_STRAY;
    return LH_CLAIM_NOBODY;
}

void lh_fleet_uri_touch(LhFleet *fleet, const char *uri, const LhFleetSnapshot *but)
{
    g_autoptr(GPtrArray) found = g_ptr_array_new();
    LhSortedPlace place = find(fleet, uri);
    LhFleetSnapshot *next, *above = holder_before(fleet, uri);
    gsize len = strlen(uri);

    while ((next = next_within(fleet, uri, TRUE, &place)) != NULL)
        g_ptr_array_add(found, next);
    while (fleet->contests.n > 0 && (len = parent_length(uri, len)) != 0) {
        const LhFleetContest *contest = get_contest(fleet, uri, len);
        if (contest == NULL)
            continue;
        place = find(fleet, contest->name);
        while ((next = next_within(fleet, contest->name, FALSE, &place)) != NULL)
            g_ptr_array_add(found, next);
    }
    if (above != NULL)
        g_ptr_array_add(found, above);
    for (guint i = 0; i < found->len; i++)
        if (g_ptr_array_index(found, i) != but)
            lh_fleet_touch_snapshot(fleet, g_ptr_array_index(found, i));
}
