/* What the mirror shows, counted as the scenarios ask; and the files of snapshots. */
#include "base/units.h"
#include "harness_internal.h"

#include <glib/gstdio.h>
#include <string.h>

const void *world_get(World *world, LhKind kind, const char *name_format, ...)
{
    va_list args;
    va_start(args, name_format);
    g_autofree char *name = g_strdup_vprintf(name_format, args);
    va_end(args);
    return lh_mirror_get(world->mirror, kind, name);
}

/* ---- live ---- */

typedef struct {
    World *world;
    const char *snapshots;
    guint n;
} Count;

static void count_live(const LhObject *object, gpointer data)
{
    Count *count = data;
    const LhSearch *search = (const LhSearch *)object;
    if (!lh_object_known(object) || search->url == NULL || search->replica == NULL ||
        (count->snapshots != NULL && !g_str_has_prefix(search->snapshot, count->snapshots))) {
        return;
    }
    g_autofree char *node = lh_name_part(object->name, 1);
    const LhAssignment *order = world_get(count->world, LH_KIND_ASSIGNMENT, "cache/%s/%s", node,
                                          search->replica);
    const LhItem *item = world_get(count->world, LH_KIND_ITEM, "cache/%s/%s", node,
                                   search->replica);
    count->n += order != NULL && lh_object_known(&order->o) && order->action == LH_ACTION_LOAD &&
                item != NULL && lh_object_known(&item->o) && item->state == LH_ITEM_LIVE &&
                item->assignment == order->o.mod_rev;
}

guint world_live(World *world, const char *snapshots)
{
    Count count = {.world = world, .snapshots = snapshots};
    lh_mirror_foreach(world->mirror, LH_KIND_SEARCH, count_live, &count);
    return count.n;
}

static gboolean are_live(World *world, gpointer data)
{
    const Count *wanted = data;
    return world_live(world, wanted->snapshots) == wanted->n;
}

void world_wait_live(World *world, const char *snapshots, guint n)
{
    Count wanted = {.snapshots = snapshots, .n = n};
    if (!world_until(world, are_live, &wanted, WAIT_MS)) {
        world_fail(world, "not within %d s: %u live %s, there are %u", WAIT_MS / 1000, n,
                   snapshots != NULL ? snapshots : "items", world_live(world, snapshots));
    }
}

/* ---- conditions, events, replicas ---- */

const LhCondition *world_condition(World *world, const char *status, const char *type)
{
    const LhStatus *object = world_get(world, LH_KIND_STATUS, "%s", status);
    for (guint i = 0; object != NULL && lh_object_known(&object->o) && i < object->conditions->n;
         i++) {
        const LhCondition *condition = lh_array_at(object->conditions, i);
        if (strcmp(condition->type, type) == 0) {
            return condition;
        }
    }
    return NULL;
}

const LhEvent *world_event(World *world, const char *reason, const char *object)
{
    g_autoptr(GPtrArray) events = lh_mirror_list(world->mirror, LH_KIND_EVENT);
    for (guint i = events->len; i > 0; i--) {
        const LhEvent *event = g_ptr_array_index(events, i - 1);
        if (lh_object_known(&event->o) && g_strcmp0(event->reason, reason) == 0 &&
            (object == NULL || g_strcmp0(event->object, object) == 0)) {
            return event;
        }
    }
    return NULL;
}

static gboolean has_event(World *world, gpointer data)
{
    const char *const *words = data;
    return world_event(world, words[0], words[1]) != NULL;
}

const LhEvent *world_wait_event(World *world, const char *reason, const char *object)
{
    const char *words[] = {reason, object};
    world_wait(world, has_event, words, "the event %s of %s", reason,
               object != NULL ? object : "anything");
    return world_event(world, reason, object);
}

static void note_assigned(const LhObject *object, gpointer data)
{
    g_hash_table_add(data, lh_name_part(object->name, 2));
}

GPtrArray *world_replicas(World *world, gboolean assigned)
{
    g_autoptr(GHashTable) names = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
    g_autoptr(GPtrArray) replicas = lh_mirror_list(world->mirror, LH_KIND_REPLICA);
    GPtrArray *found = g_ptr_array_new_with_free_func(g_free);
    lh_mirror_foreach(world->mirror, LH_KIND_ASSIGNMENT, note_assigned, names);
    for (guint i = 0; i < replicas->len; i++) {
        const LhObject *replica = g_ptr_array_index(replicas, i);
        if (g_hash_table_contains(names, replica->name) == assigned) {
            g_ptr_array_add(found, g_strdup(replica->name));
        }
    }
    return found;
}

static void text_of(const LhObject *object, gpointer data)
{
    const LhAssignment *order = (const LhAssignment *)object;
    Count *count = data;
    const LhItem *item = world_get(count->world, LH_KIND_ITEM, "%s", object->name);
    if (lh_object_known(object) && count->n++ < 12) {
        g_printerr("# %s: %s, item %s\n", object->name, lh_action_name(order->action),
                   item == NULL                ? "absent"
                   : lh_object_known(&item->o) ? lh_item_state_name(item->state)
                                               : "unknown");
    }
}

char *mirror_text(World *world)
{
    Count count = {.world = world};
    if (world->mirror == NULL) {
        return g_strdup("");
    }
    lh_mirror_foreach(world->mirror, LH_KIND_ASSIGNMENT, text_of, &count);
    return g_strdup_printf("# revision %" G_GINT64_FORMAT
                           ": %u replicas, %u assignments, %u items, %u search keys, %u live\n",
                           lh_mirror_revision(world->mirror),
                           lh_mirror_count(world->mirror, LH_KIND_REPLICA),
                           lh_mirror_count(world->mirror, LH_KIND_ASSIGNMENT),
                           lh_mirror_count(world->mirror, LH_KIND_ITEM),
                           lh_mirror_count(world->mirror, LH_KIND_SEARCH), world_live(world, NULL));
}

/* ---- snapshots ---- */

char *snapshot_path(World *world, const char *name, const char *file)
{
    return g_build_filename(world->objects, name, file, NULL);
}

void snapshot_files(World *world, const char *name, guint files, gsize bytes)
{
    g_autofree char *dir = snapshot_path(world, name, NULL);
    g_assert(g_mkdir_with_parents(dir, 0755) == 0);
    for (guint i = 0; i < files; i++) {
        g_autoptr(GError) error = NULL;
        g_autoptr(GRand) random = g_rand_new_with_seed(g_str_hash(name) + i);
        g_autofree char *file = g_strdup_printf("%s/part-%u", dir, i);
        g_autofree char *data = g_malloc(bytes);
        for (gsize j = 0; j < bytes; j++) {
            data[j] = (char)g_rand_int(random);
        }
        if (!g_file_set_contents(file, data, (gssize)bytes, &error)) {
            fail_msg("%s", error->message);
        }
    }
}

char *snapshot_value(World *world, const char *name, const char *service, gint64 end_ms)
{
    g_autofree char *dir_path = snapshot_path(world, name, NULL);
    g_autofree char *start = lh_time_format(end_ms - 60000);
    g_autofree char *end = lh_time_format(end_ms);
    g_autoptr(GDir) dir = g_dir_open(dir_path, 0, NULL);
    g_autoptr(GString) sums = g_string_new("{");
    gsize total = 0;
    const char *file;
    while ((file = g_dir_read_name(dir)) != NULL) {
        g_autofree char *path = snapshot_path(world, name, file);
        g_autofree char *data = NULL;
        gsize len = 0;
        g_assert(g_file_get_contents(path, &data, &len, NULL));
        g_autofree char *sum = g_compute_checksum_for_data(G_CHECKSUM_SHA256, (guchar *)data, len);
        g_string_append_printf(sums, "%s\"%s\":\"%s\"", sums->len > 1 ? "," : "", file, sum);
        total += len;
    }
    return g_strdup_printf("{\"service\":\"%s\",\"partition\":\"p0\",\"startTime\":\"%s\","
                           "\"endTime\":\"%s\",\"maxOffset\":9,\"sizeBytes\":%" G_GSIZE_FORMAT
                           ",\"uri\":\"file://%s/\",\"sha256\":%s}}",
                           service, start, end, total, dir_path, sums->str);
}

void snapshot_publish(World *world, const char *name, const char *service, gint64 end_ms,
                      guint files, gsize bytes)
{
    snapshot_files(world, name, files, bytes);
    g_autofree char *key = g_strconcat("published/snapshots/", name, NULL);
    g_autofree char *value = snapshot_value(world, name, service, end_ms);
    world_put(world, key, value);
}
