/* How much happened, from the changes that the world's own mirror shows. */
#include "chaos.h"

#include <string.h>

static gboolean is_live(const LhObject *object)
{
    return object != NULL && lh_object_known(object) &&
           ((const LhItem *)object)->state == LH_ITEM_LIVE;
}

static void count_item(Chaos *chaos, const LhObject *before, const LhObject *after)
{
    if (!is_live(before) && is_live(after) && g_str_has_prefix(after->name, "cache/")) {
        chaos->counters.loads++;
        chaos->counters.loaded_bytes += (guint64)MAX(((const LhItem *)after)->bytes_done, 0);
    }
}

static gboolean is_deleted(const LhObject *object)
{
    return object != NULL && lh_object_known(object) &&
           ((const LhDeletion *)object)->data_deleted_at >= 0;
}

static gboolean is_eviction(const LhObject *object)
{
    return object != NULL && lh_object_known(object) &&
           ((const LhAssignment *)object)->action == LH_ACTION_EVICT;
}

/* A controller's oldest leader key. */
typedef struct {
    const char *controller;
    const LhObject *oldest;
} Oldest;

static void look_at_leader(const LhObject *object, gpointer data)
{
    Oldest *oldest = data;
    g_autofree char *controller = lh_name_part(object->name, 0);
    if (strcmp(controller, oldest->controller) == 0 &&
        (oldest->oldest == NULL || object->create_rev < oldest->oldest->create_rev)) {
        oldest->oldest = object;
    }
}

static void count_leader(Chaos *chaos, const LhObject *changed)
{
    g_autofree char *controller = lh_name_part(changed->name, 0);
    Oldest oldest = {.controller = controller};
    lh_mirror_foreach(chaos->world->mirror, LH_KIND_LEADER, look_at_leader, &oldest);
    if (oldest.oldest == NULL) {
        return;
    }
    const char *before = g_hash_table_lookup(chaos->leaders, controller);
    if (g_strcmp0(before, oldest.oldest->name) != 0) {
        chaos->counters.failovers += before != NULL;
        g_hash_table_replace(chaos->leaders, g_strdup(controller), g_strdup(oldest.oldest->name));
    }
}

static void on_change(const LhObject *before, const LhObject *after, gpointer data)
{
    Chaos *chaos = data;
    const LhObject *object = after != NULL ? after : before;
    if (object->kind == LH_KIND_ITEM) {
        count_item(chaos, before, after);
    } else if (object->kind == LH_KIND_NODE) {
        chaos->counters.registrations += before == NULL;
    } else if (object->kind == LH_KIND_ASSIGNMENT) {
        chaos->counters.evictions += g_str_has_prefix(object->name, "cache/") &&
                                     !is_eviction(before) && is_eviction(after);
    } else if (object->kind == LH_KIND_DELETION) {
        chaos->counters.deletions += !is_deleted(before) && is_deleted(after);
    } else if (object->kind == LH_KIND_LEADER) {
        count_leader(chaos, object);
    }
}

static void on_applied(gint64 revision, gpointer data)
{
    (void)revision, (void)data;
}

static const LhMirrorFuncs funcs = {.change = on_change, .applied = on_applied};

void counts_begin(Chaos *chaos)
{
    chaos->leaders = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, g_free);
    lh_mirror_listen(chaos->world->mirror, &funcs, chaos);
}

void counts_end(Chaos *chaos)
{
    lh_mirror_unlisten(chaos->world->mirror, &funcs, chaos);
    g_clear_pointer(&chaos->leaders, g_hash_table_unref);
}
