/*
 * Which snapshots' uris collide: equal, inside one another, or held by a Deletion. A count of uris below
 * each directory tells without a scan that nothing lies inside; only a real collision looks further. Pure.
 */
#include "controllers/fleet_internal.h"

#include <string.h>

/* Calls @func for each directory above @uri ("s3://b/x/" of "s3://b/x/y/"), the nearest first. */
static void each_parent(const char *uri, void (*func)(const char *parent, gpointer data),
                        gpointer data)
{
    g_autofree char *path = g_strdup(uri);
    char *authority = strstr(path, "://");
    gsize len = strlen(path);

    if (authority == NULL || len == 0)
        return;
    authority += 3;
    path[len - 1] = '\0';
    for (char *slash = strrchr(authority, '/'); slash != NULL; slash = strrchr(authority, '/')) {
        slash[1] = '\0';
        func(path, data);
        slash[0] = '\0';
    }
}

typedef struct {
    GHashTable *parents;
    int delta;
} Count;

static void count_parent(const char *parent, gpointer data)
{
    const Count *count = data;
    gint now = GPOINTER_TO_INT(g_hash_table_lookup(count->parents, parent)) + count->delta;

    if (now == 0)
        g_hash_table_remove(count->parents, parent);
    else
        g_hash_table_insert(count->parents, g_strdup(parent), GINT_TO_POINTER(now));
}

void lh_fleet_uri_add(LhFleet *fleet, LhFleetSnapshot *snapshot, const char *uri)
{
    GPtrArray *holders = g_hash_table_lookup(fleet->uris, uri);
    Count count = {fleet->uri_parents, 1};

    if (holders == NULL) {
        holders = g_ptr_array_sized_new(1);
        g_hash_table_insert(fleet->uris, g_strdup(uri), holders);
    }
    g_ptr_array_add(holders, snapshot);
    each_parent(uri, count_parent, &count);
}

void lh_fleet_uri_remove(LhFleet *fleet, LhFleetSnapshot *snapshot, const char *uri)
{
    GPtrArray *holders = g_hash_table_lookup(fleet->uris, uri);
    Count count = {fleet->uri_parents, -1};

    g_ptr_array_remove_fast(holders, snapshot);
    if (holders->len == 0)
        g_hash_table_remove(fleet->uris, uri);
    each_parent(uri, count_parent, &count);
}

void lh_fleet_uri_take(LhFleet *fleet, const char *uri, gint delta)
{
    Count count = {fleet->taken_uris, delta}, parents = {fleet->taken_parents, delta};

    count_parent(uri, &count);
    each_parent(uri, count_parent, &parents);
}

typedef struct {
    GHashTable *table;
    gboolean found;
} Seek;

static void seek(const char *uri, gpointer data)
{
    Seek *search = data;

    search->found = search->found || g_hash_table_contains(search->table, uri);
}

/* Equals, lies in or contains what a Deletion deletes, now or again. */
static gboolean is_taken(const LhFleet *fleet, const char *uri)
{
    Seek search = {fleet->taken_uris, g_hash_table_contains(fleet->taken_parents, uri)};

    seek(uri, &search);
    each_parent(uri, seek, &search);
    return search.found;
}

typedef struct {
    const LhFleet *fleet;
    const LhFleetSnapshot *self;
    const LhFleetSnapshot *older; /* the oldest other one that collides */
} Collision;

/* Put in one transaction they share a create revision: then the name decides. */
static gboolean is_older(const LhFleetSnapshot *a, const LhFleetSnapshot *b)
{
    if (a->object->create_rev != b->object->create_rev)
        return a->object->create_rev < b->object->create_rev;
    return strcmp(a->name, b->name) < 0;
}

static void collide(Collision *collision, const char *uri)
{
    const GPtrArray *holders = g_hash_table_lookup(collision->fleet->uris, uri);

    for (guint i = 0; holders != NULL && i < holders->len; i++) {
        const LhFleetSnapshot *other = g_ptr_array_index(holders, i);
        if (other != collision->self && is_older(other, collision->self) &&
            (collision->older == NULL || is_older(other, collision->older)))
            collision->older = other;
    }
}

static void collide_parent(const char *parent, gpointer data)
{
    collide(data, parent);
}

static void collide_below(Collision *collision, const char *uri)
{
    GHashTableIter iter;
    gpointer other;

    if (!g_hash_table_contains(collision->fleet->uri_parents, uri))
        return;
    g_hash_table_iter_init(&iter, collision->fleet->uris);
    while (g_hash_table_iter_next(&iter, &other, NULL))
        if (g_str_has_prefix(other, uri))
            collide(collision, other);
}

char *lh_fleet_snapshot_invalid(const LhFleet *fleet, const LhFleetSnapshot *snapshot)
{
    const LhSnapshot *object = lh_fleet_snapshot_object(snapshot);
    Collision collision = {.fleet = fleet, .self = snapshot};

    if (snapshot->object == NULL)
        return g_strdup("it is not published");
    if (object == NULL)
        return g_strdup(snapshot->object->error);
    if (snapshot->deletion != NULL) {
        const LhDeletion *deletion = (const LhDeletion *)snapshot->deletion;
        if (!lh_object_known(snapshot->deletion))
            return g_strdup("metadata.name: its Deletion does not parse");
        if (deletion->snapshot_revision != object->o.mod_rev)
            return g_strdup("metadata.name: a deletion holds this name, use another one");
        return NULL; /* its own deletion is under way */
    }
    if (is_taken(fleet, object->uri))
        return g_strdup("uri: a deletion holds it, use another one");
    collide(&collision, object->uri);
    each_parent(object->uri, collide_parent, &collision);
    collide_below(&collision, object->uri);
    if (collision.older != NULL)
        return g_strdup_printf("uri: overlaps that of snapshot %s, which is older",
                               collision.older->name);
    return NULL;
}

typedef struct {
    LhFleet *fleet;
    GPtrArray *found;
} Gather;

static void gather(const char *uri, gpointer data)
{
    Gather *all = data;
    GPtrArray *holders = g_hash_table_lookup(all->fleet->uris, uri);

    for (guint i = 0; holders != NULL && i < holders->len; i++)
        g_ptr_array_add(all->found, g_ptr_array_index(holders, i));
}

void lh_fleet_uri_touch(LhFleet *fleet, const char *uri)
{
    g_autoptr(GPtrArray) found = g_ptr_array_new();
    Gather all = {fleet, found};
    GHashTableIter iter;
    gpointer other;

    gather(uri, &all);
    each_parent(uri, gather, &all);
    if (g_hash_table_contains(fleet->uri_parents, uri)) {
        g_hash_table_iter_init(&iter, fleet->uris);
        while (g_hash_table_iter_next(&iter, &other, NULL))
            if (g_str_has_prefix(other, uri))
                gather(other, &all);
    }
    for (guint i = 0; i < found->len; i++)
        lh_fleet_touch_snapshot(fleet, g_ptr_array_index(found, i));
}
