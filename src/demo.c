/* Real files with real checksums, and a table that follows them; see demo.h. */
#include "demo.h"

#include "base/errors.h"
#include "base/json.h"
#include "base/units.h"

#include <errno.h>
#include <glib/gstdio.h>
#include <string.h>

#define FILES   3
#define HOUR_MS 3600000

static gboolean write_file(const char *dir, const char *name, gsize size, GString *digests,
                           GError **error)
{
    g_autofree char *path = g_build_filename(dir, name, NULL);
    g_autofree guint32 *words = g_new(guint32, size / 4);
    g_autofree char *digest = NULL;
    g_autoptr(GError) why = NULL;

    for (gsize i = 0; i < size / 4; i++)
        words[i] = g_random_int();
    digest = g_compute_checksum_for_data(G_CHECKSUM_SHA256, (const guchar *)words, size / 4 * 4);
    if (!g_file_set_contents(path, (const char *)words, (gssize)(size / 4 * 4), &why)) {
        g_set_error(error, LH_ERROR, LH_ERR_IO, "%s", why->message);
        return FALSE;
    }
    lh_json_append_key(digests, name);
    lh_json_append_string(digests, digest);
    return TRUE;
}

static char *make_snapshot(const char *root, const char *name, guint number, gint64 now_ms,
                           GError **error)
{
    g_autofree char *dir = g_build_filename(root, name, NULL);
    g_autoptr(GString) digests = g_string_new("{");
    g_autofree char *start = lh_time_format(now_ms - (gint64)(number + 1) * HOUR_MS);
    g_autofree char *end = lh_time_format(now_ms - (gint64)number * HOUR_MS);
    gsize size = 0;

    if (g_mkdir_with_parents(dir, 0755) != 0) {
        g_set_error(error, LH_ERROR, LH_ERR_IO, "%s: %s", dir, g_strerror(errno));
        return NULL;
    }
    for (guint i = 0; i < FILES; i++) {
        g_autofree char *file = g_strdup_printf("segment-%u.bin", i);
        gsize bytes = (gsize)(64 + number * 16 + i * 32) * 1024;
        if (!write_file(dir, file, bytes, digests, error))
            return NULL;
        size += bytes;
    }
    return g_strdup_printf(
        "{\"service\":\"demo\",\"partition\":\"p%u\",\"startTime\":\"%s\",\"endTime\":"
        "\"%s\",\"maxOffset\":%u,\"sizeBytes\":%" G_GSIZE_FORMAT
        ",\"uri\":\"file://%s/\",\"sha256\":%s}}",
        number % 3, start, end, (number + 1) * 1000, size, dir, digests->str);
}

GHashTable *lh_demo_make(const char *dir, gint64 now_ms, GError **error)
{
    g_autoptr(GHashTable) values = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, g_free);

    for (guint i = 0; i < LH_DEMO_SNAPSHOTS; i++) {
        /* A name of its own at each start: names and uris are never used twice. */
        char *name = g_strdup_printf("demo-%" G_GINT64_MODIFIER "x-%02u", (guint64)now_ms / 1000,
                                     i);
        char *value = make_snapshot(dir, name, i, now_ms, error);
        if (value == NULL) {
            g_free(name);
            return NULL;
        }
        g_hash_table_insert(values, name, value);
    }
    return g_steal_pointer(&values);
}

const char *lh_demo_service(void)
{
    return "{\"apiVersion\":\"leasehold/v1\",\"kind\":\"Service\",\"metadata\":{\"name\":\"demo\","
           "\"labels\":{\"team\":\"demo\"}},\"spec\":{\"owner\":\"you\",\"cache\":{\"replicas\":1}}}";
}

/* ---- the table ---- */

typedef struct {
    const LhMirror *mirror;
    GHashTable *assignments; /* snapshot -> LhAssignment, the liveliest */
} Holders;

static void gather(const LhObject *object, gpointer data)
{
    const LhAssignment *assignment = (const LhAssignment *)object;

    if (lh_object_known(object) && assignment->snapshot != NULL)
        g_hash_table_insert(data, (gpointer)assignment->snapshot, (gpointer)assignment);
}

static const char *state_of(const LhMirror *mirror, const LhAssignment *assignment, char *buffer,
                            gsize size)
{
    const LhItem *item = assignment == NULL ? NULL
                                            : (const LhItem *)lh_mirror_get(mirror, LH_KIND_ITEM,
                                                                            assignment->o.name);

    if (assignment == NULL)
        return "Published";
    if (item == NULL || !lh_object_known(&item->o) || item->assignment != assignment->o.mod_rev)
        return assignment->action == LH_ACTION_LOAD ? "Assigned" : "Evict";
    if (item->state == LH_ITEM_LOADING) {
        g_snprintf(buffer, size, "Loading %3d%%",
                   item->bytes_total > 0 ? (int)(item->bytes_done * 100 / item->bytes_total) : 0);
        return buffer;
    }
    return item->state == LH_ITEM_LIVE ? "Live" : lh_item_state_name(item->state);
}

char *lh_demo_table(const LhMirror *mirror, guint *live, guint *all)
{
    g_autoptr(GPtrArray) snapshots = lh_mirror_list(mirror, LH_KIND_SNAPSHOT);
    g_autoptr(GHashTable) holders = g_hash_table_new(g_str_hash, g_str_equal);
    GString *out = g_string_new(NULL);

    *live = 0;
    *all = snapshots->len;
    lh_mirror_foreach(mirror, LH_KIND_ASSIGNMENT, gather, holders);
    g_string_append_printf(out, "%-24s %10s  %-13s %-18s %s\n", "SNAPSHOT", "SIZE", "STATE", "NODE",
                           "URL");
    for (guint i = 0; i < snapshots->len; i++) {
        const LhSnapshot *snapshot = g_ptr_array_index(snapshots, i);
        const LhAssignment *assignment = g_hash_table_lookup(holders, snapshot->o.name);
        g_autofree char *node = assignment == NULL ? NULL : lh_name_part(assignment->o.name, 1);
        g_autofree char *search_name = node == NULL ? NULL
                                                    : g_strconcat("cache/", node, "/",
                                                                  snapshot->o.name, NULL);
        const LhSearch *search = search_name == NULL ? NULL
                                                     : (const LhSearch *)lh_mirror_get(
                                                           mirror, LH_KIND_SEARCH, search_name);
        g_autofree char *size = NULL;
        char buffer[32];
        const char *state;
        if (!lh_object_known(&snapshot->o))
            continue;
        size = lh_size_format(snapshot->size_bytes);
        state = state_of(mirror, assignment, buffer, sizeof buffer);
        *live += search != NULL && strcmp(state, "Live") == 0;
        g_string_append_printf(out, "%-24s %10s  %-13s %-18s %s\n", snapshot->o.name, size, state,
                               node == NULL ? "-" : node,
                               search == NULL || search->url == NULL ? "-" : search->url);
    }
    return g_string_free(out, FALSE);
}
