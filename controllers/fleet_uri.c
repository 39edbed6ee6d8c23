/*
 * Which snapshots' uris collide: equal, inside one another, or held by a Deletion. Pure.
 *
 * A uri whose last segment is its snapshot's name, as nearly all are, is found by that name; only the odd
 * ones have a table. The directories above all uris form a tree: what it counts tells without a search that
 * nothing lies below a uri, and that nothing holds a directory above it.
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

static const char *last_segment(const char *uri, gsize *len)
{
    gsize end = strlen(uri) - 1, begin = end;

    while (begin > 0 && uri[begin - 1] != '/')
        begin--;
    *len = end - begin;
    return uri + begin;
}

/* Its last segment is @name. */
static gboolean is_regular(const char *uri, const char *name)
{
    gsize len;
    const char *last = last_segment(uri, &len);

    return strncmp(last, name, len) == 0 && name[len] == '\0';
}

static gboolean lies_below(const LhUri *uri, const char *dir, gsize len)
{
    if (strncmp(uri->dir, dir, len) != 0)
        return FALSE;
    return uri->last != NULL || uri->dir[len] != '\0';
}

/* ---- who holds a uri ---- */

typedef void (*HolderFunc)(LhFleetSnapshot *holder, gpointer data);

/* @but (may be NULL) is left out. */
static void each_holder(const LhFleet *fleet, const char *uri, const LhFleetSnapshot *but,
                        HolderFunc func, gpointer data)
{
    gsize len;
    const char *last = last_segment(uri, &len);
    LhFleetSnapshot *named = but != NULL && is_regular(uri, but->name)
                                 ? NULL
                                 : lh_name_set_get_n(&fleet->snapshots, last, len);
    const LhSnapshot *object = named == NULL ? NULL : lh_fleet_snapshot_object(named);
    const GPtrArray *odd = g_hash_table_size(fleet->odd_uris) == 0
                               ? NULL
                               : g_hash_table_lookup(fleet->odd_uris, uri);

    if (object != NULL && lh_uri_is(&object->uri, uri))
        func(named, data);
    for (guint i = 0; odd != NULL && i < odd->len; i++)
        if (g_ptr_array_index(odd, i) != but)
            func(g_ptr_array_index(odd, i), data);
}

static void each_below(const LhFleet *fleet, const char *uri, HolderFunc func, gpointer data)
{
    gsize len = strlen(uri);
    LhFleetSnapshot *snapshot;

    for (gsize at = 0; (snapshot = lh_name_set_next(&fleet->snapshots, &at)) != NULL;) {
        const LhSnapshot *object = lh_fleet_snapshot_object(snapshot);
        if (object != NULL && lies_below(&object->uri, uri, len))
            func(snapshot, data);
    }
}

static void count_holder(LhFleetSnapshot *holder, gpointer data)
{
    (void)holder;
    ++*(guint *)data;
}

/* Put in one transaction they share a create revision: then the name decides. */
static gboolean is_older(const LhFleetSnapshot *a, const LhFleetSnapshot *b)
{
    if (a->object->create_rev != b->object->create_rev)
        return a->object->create_rev < b->object->create_rev;
    return strcmp(a->name, b->name) < 0;
}

/* ---- directories ---- */

static LhFleetDir *get_dir(const LhFleet *fleet, const char *uri, gsize len)
{
    return len == 0 ? NULL : lh_name_set_get_n(&fleet->dirs, uri, len);
}

static LhFleetDir *make_dir(LhFleet *fleet, const char *uri, gsize len)
{
    LhFleetDir *dir = get_dir(fleet, uri, len);

    if (dir != NULL || len == 0)
        return dir;
    dir = g_malloc0(sizeof *dir + len + 1);
    dir->name = memcpy(dir->text, uri, len);
    dir->up = make_dir(fleet, uri, parent_length(uri, len));
    each_holder(fleet, dir->name, NULL, count_holder, &dir->holders);
    lh_name_set_put(&fleet->dirs, dir);
    return dir;
}

static void add_below(LhFleetDir *dir, LhFleetSnapshot *snapshot)
{
    for (; dir != NULL; dir = dir->up) {
        if (dir->below == 0 || (dir->oldest != NULL && is_older(snapshot, dir->oldest)))
            dir->oldest = snapshot;
        dir->below++;
    }
}

static void remove_below(LhFleet *fleet, LhFleetDir *dir, const LhFleetSnapshot *snapshot)
{
    for (LhFleetDir *up = NULL; dir != NULL; dir = up) {
        up = dir->up;
        if (dir->oldest == snapshot)
            dir->oldest = NULL;
        if (--dir->below != 0)
            continue;
        lh_name_set_take(&fleet->dirs, dir->name);
        g_free(dir);
    }
}

static void find_older(LhFleetSnapshot *other, gpointer data)
{
    LhFleetSnapshot **oldest = data;

    if (*oldest == NULL || is_older(other, *oldest))
        *oldest = other;
}

/* Searched for only where a snapshot holds the directory, after the oldest one below it has gone. */
static LhFleetSnapshot *oldest_below(const LhFleet *fleet, LhFleetDir *dir)
{
    if (dir->oldest == NULL)
        each_below(fleet, dir->name, find_older, &dir->oldest);
    return dir->oldest;
}

void lh_fleet_uri_add(LhFleet *fleet, LhFleetSnapshot *snapshot, const char *uri)
{
    gsize len = strlen(uri);
    LhFleetDir *self = get_dir(fleet, uri, len);

    if (!is_regular(uri, snapshot->name)) {
        GPtrArray *holders = g_hash_table_lookup(fleet->odd_uris, uri);
        if (holders == NULL) {
            holders = g_ptr_array_new();
            g_hash_table_insert(fleet->odd_uris, g_strdup(uri), holders);
        }
        g_ptr_array_add(holders, snapshot);
    }
    if (self != NULL)
        self->holders++;
    add_below(make_dir(fleet, uri, parent_length(uri, len)), snapshot);
}

void lh_fleet_uri_remove(LhFleet *fleet, LhFleetSnapshot *snapshot, const char *uri)
{
    gsize len = strlen(uri);
    LhFleetDir *self = get_dir(fleet, uri, len);

    if (!is_regular(uri, snapshot->name)) {
        GPtrArray *holders = g_hash_table_lookup(fleet->odd_uris, uri);
        g_ptr_array_remove_fast(holders, snapshot);
        if (holders->len == 0)
            g_hash_table_remove(fleet->odd_uris, uri);
    }
    if (self != NULL)
        self->holders--;
    remove_below(fleet, get_dir(fleet, uri, parent_length(uri, len)), snapshot);
}

void lh_fleet_uris_clear(LhFleet *fleet)
{
    LhFleetDir *dir;

    for (gsize at = 0; (dir = lh_name_set_next(&fleet->dirs, &at)) != NULL;)
        g_free(dir);
    lh_name_set_clear(&fleet->dirs);
}

/* ---- what Deletions hold ---- */

static void count(GHashTable *table, const char *uri, gsize len, int delta)
{
    g_autofree char *text = g_strndup(uri, len);
    gint sum = GPOINTER_TO_INT(g_hash_table_lookup(table, text)) + delta;

    if (sum == 0)
        g_hash_table_remove(table, text);
    else
        g_hash_table_insert(table, g_steal_pointer(&text), GINT_TO_POINTER(sum));
}

void lh_fleet_uri_take(LhFleet *fleet, const char *uri, gint delta)
{
    gsize len = strlen(uri);

    count(fleet->taken_uris, uri, len, delta);
    while ((len = parent_length(uri, len)) != 0)
        count(fleet->taken_parents, uri, len, delta);
}

/* Equals, lies in or contains what a Deletion deletes, now or again. */
static gboolean is_taken(const LhFleet *fleet, const char *uri)
{
    g_autofree char *path = NULL;

    if (g_hash_table_size(fleet->taken_uris) == 0)
        return FALSE;
    if (g_hash_table_contains(fleet->taken_parents, uri))
        return TRUE;
    path = g_strdup(uri);
    for (gsize len = strlen(path); len != 0; len = parent_length(path, len)) {
        path[len] = '\0';
        if (g_hash_table_contains(fleet->taken_uris, path))
            return TRUE;
    }
    return FALSE;
}

/* ---- collisions ---- */

typedef struct {
    const LhFleetSnapshot *self;
    const LhFleetSnapshot *older; /* the oldest other one that collides */
} Collision;

static void collide(LhFleetSnapshot *other, gpointer data)
{
    Collision *collision = data;

    if (is_older(other, collision->self) &&
        (collision->older == NULL || is_older(other, collision->older)))
        collision->older = other;
}

static const LhFleetSnapshot *find_collision(const LhFleet *fleet, const LhFleetSnapshot *self,
                                             const char *uri)
{
    Collision collision = {.self = self};
    gsize len = strlen(uri);
    LhFleetDir *below = get_dir(fleet, uri, len);

    each_holder(fleet, uri, self, collide, &collision);
    for (const LhFleetDir *dir = get_dir(fleet, uri, parent_length(uri, len)); dir != NULL;
         dir = dir->up)
        if (dir->holders != 0)
            each_holder(fleet, dir->name, self, collide, &collision);
    if (below != NULL)
        collide(oldest_below(fleet, below), &collision);
    return collision.older;
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
    if (snapshot->deletion != NULL) {
        const LhDeletion *deletion = (const LhDeletion *)snapshot->deletion;
        if (!lh_object_known(snapshot->deletion))
            return g_strdup("metadata.name: its Deletion does not parse");
        if (deletion->snapshot_revision != object->o.mod_rev)
            return g_strdup("metadata.name: a deletion holds this name, use another one");
        return NULL; /* its own deletion is under way */
    }
    uri = lh_uri_text(&object->uri);
    if (is_taken(fleet, uri))
        return g_strdup("uri: a deletion holds it, use another one");
    older = find_collision(fleet, snapshot, uri);
    if (older != NULL)
        return g_strdup_printf("uri: overlaps that of snapshot %s, which is older", older->name);
    return NULL;
}

static void gather(LhFleetSnapshot *holder, gpointer data)
{
    g_ptr_array_add(data, holder);
}

void lh_fleet_uri_touch(LhFleet *fleet, const char *uri, const LhFleetSnapshot *but)
{
    g_autoptr(GPtrArray) found = g_ptr_array_new();
    const LhFleetDir *dir = NULL;

    each_holder(fleet, uri, but, gather, found);
    for (gsize len = parent_length(uri, strlen(uri)); len != 0 && dir == NULL;
         len = parent_length(uri, len)) {
        dir = get_dir(fleet, uri, len);
        if (dir == NULL) { /* what has just gone was the last one below it */
            g_autofree char *parent = g_strndup(uri, len);
            each_holder(fleet, parent, but, gather, found);
        }
    }
    for (; dir != NULL; dir = dir->up)
        if (dir->holders != 0)
            each_holder(fleet, dir->name, but, gather, found);
    if (get_dir(fleet, uri, strlen(uri)) != NULL)
        each_below(fleet, uri, gather, found);
    for (guint i = 0; i < found->len; i++)
        if (g_ptr_array_index(found, i) != but)
            lh_fleet_touch_snapshot(fleet, g_ptr_array_index(found, i));
}
