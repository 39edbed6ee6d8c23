/* The manifest of a snapshot on disk: JSON out, JSON in, and whether the files are as it says. */
#include "agent/cache_manifest.h"

#include "base/errors.h"
#include "base/json.h"
#include "base/units.h"
#include "objectstore/beneath.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_MANIFEST_BYTES (64 * 1024 * 1024)

static void file_free(gpointer data)
{
    LhCacheFile *file = data;
    g_free(file->name);
    g_free(file->sha256);
    g_free(file);
}

LhCacheEntry *lh_cache_entry_new(const char *snapshot, const char *uri, gint64 size_bytes,
                                 gint64 snapshot_rev, gint64 loaded_at)
{
    LhCacheEntry *entry = g_new0(LhCacheEntry, 1);
    entry->snapshot = g_strdup(snapshot);
    entry->uri = g_strdup(uri);
    entry->size_bytes = size_bytes;
    entry->snapshot_rev = snapshot_rev;
    entry->loaded_at = loaded_at;
    entry->files = g_ptr_array_new_with_free_func(file_free);
    return entry;
}

LhCacheEntry *lh_cache_entry_copy(const LhCacheEntry *entry)
{
    LhCacheEntry *copy = lh_cache_entry_new(entry->snapshot, entry->uri, entry->size_bytes,
                                            entry->snapshot_rev, entry->loaded_at);
    for (guint i = 0; i < entry->files->len; i++) {
        const LhCacheFile *file = g_ptr_array_index(entry->files, i);
        lh_cache_entry_add(copy, file->name, file->size, file->sha256);
    }
    return copy;
}

void lh_cache_entry_add(LhCacheEntry *entry, const char *name, gint64 size, const char *sha256)
{
    LhCacheFile *file = g_new0(LhCacheFile, 1);
    file->name = g_strdup(name);
    file->size = size;
    file->sha256 = g_strdup(sha256);
    g_ptr_array_add(entry->files, file);
}

void lh_cache_entry_free(LhCacheEntry *entry)
{
    if (entry == NULL)
        return;
    g_free(entry->snapshot);
    g_free(entry->uri);
    g_ptr_array_unref(entry->files);
    g_free(entry);
}

static void append_string(GString *out, const char *name, const char *text)
{
    lh_json_append_key(out, name);
    lh_json_append_string(out, text);
}

static void append_int(GString *out, const char *name, gint64 value)
{
    lh_json_append_key(out, name);
    lh_json_append_int(out, value);
}

static GString *begin_json(const LhCacheEntry *entry)
{
    GString *out = g_string_new("{");
    append_string(out, "snapshot", entry->snapshot);
    append_string(out, "uri", entry->uri);
    append_int(out, "sizeBytes", entry->size_bytes);
    append_int(out, "snapshotRevision", entry->snapshot_rev);
    return out;
}

char *lh_cache_entry_origin_json(const LhCacheEntry *entry)
{
    GString *out = begin_json(entry);
    g_string_append_c(out, '}');
    return g_string_free(out, FALSE);
}

char *lh_cache_entry_json(const LhCacheEntry *entry)
{
    GString *out = begin_json(entry);
    append_int(out, "loadedAt", entry->loaded_at);
    lh_json_append_key(out, "files");
    g_string_append_c(out, '[');
    for (guint i = 0; i < entry->files->len; i++) {
        const LhCacheFile *file = g_ptr_array_index(entry->files, i);
        g_string_append(out, i > 0 ? ",{" : "{");
        append_string(out, "name", file->name);
        append_int(out, "size", file->size);
        append_string(out, "sha256", file->sha256);
        g_string_append_c(out, '}');
    }
    g_string_append(out, "]}");
    return g_string_free(out, FALSE);
}

static LhCacheEntry *origin_from_json(const cJSON *json)
{
    const char *snapshot = lh_json_get_string(json, "snapshot", NULL);
    const char *uri = lh_json_get_string(json, "uri", NULL);
    gint64 size = lh_json_get_int(json, "sizeBytes", -1);
    if (snapshot == NULL || !lh_name_valid(snapshot, 253) || uri == NULL || size < 0)
        return NULL;
    return lh_cache_entry_new(snapshot, uri, size, lh_json_get_int(json, "snapshotRevision", 0),
                              lh_json_get_int(json, "loadedAt", 0));
}

static LhCacheEntry *from_json(const cJSON *json)
{
    const cJSON *files = cJSON_GetObjectItemCaseSensitive(json, "files");
    g_autoptr(LhCacheEntry) entry = cJSON_IsArray(files) ? origin_from_json(json) : NULL;
    if (entry == NULL)
        return NULL;
    gint64 size = entry->size_bytes;
    gint64 sum = 0;
    const cJSON *item;
    cJSON_ArrayForEach(item, files) {
        const char *name = lh_json_get_string(item, "name", NULL);
        gint64 bytes = lh_json_get_int(item, "size", -1);
        if (name == NULL || !lh_relative_path_valid(name) || bytes < 0 || bytes > size - sum)
            return NULL;
        sum += bytes;
        lh_cache_entry_add(entry, name, bytes, lh_json_get_string(item, "sha256", ""));
    }
    return sum == size ? g_steal_pointer(&entry) : NULL;
}

static LhCacheEntry *read_json(const char *path, LhCacheEntry *(*parse)(const cJSON *json),
                               GError **error)
{
    g_autofree char *text = NULL;
    gsize len = 0;
    g_autoptr(GError) local = NULL;
    if (!g_file_get_contents(path, &text, &len, &local)) {
        g_set_error(error, LH_ERROR, LH_ERR_IO, "%s", local->message);
        return NULL;
    }
    g_autoptr(cJSON) json = lh_json_parse(text, len, MAX_MANIFEST_BYTES, error);
    LhCacheEntry *entry = json != NULL ? parse(json) : NULL;
    if (json != NULL && entry == NULL)
        g_set_error(error, LH_ERROR, LH_ERR_INVALID, "%s: is not a manifest", path);
    return entry;
}

LhCacheEntry *lh_cache_entry_read(const char *path, GError **error)
{
    return read_json(path, from_json, error);
}

LhCacheEntry *lh_cache_entry_read_origin(const char *path, GError **error)
{
    return read_json(path, origin_from_json, error);
}

gboolean lh_cache_entry_same_origin(const LhCacheEntry *a, const LhCacheEntry *b)
{
    return strcmp(a->snapshot, b->snapshot) == 0 && strcmp(a->uri, b->uri) == 0 &&
           a->size_bytes == b->size_bytes && a->snapshot_rev == b->snapshot_rev;
}

gboolean lh_cache_entry_check(const LhCacheEntry *entry, const char *data_dir, GError **error)
{
    int dir = open(data_dir, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (dir < 0) {
        g_set_error(error, LH_ERROR, LH_ERR_CHECKSUM, "%s: %s", data_dir, g_strerror(errno));
        return FALSE;
    }
    gboolean ok = TRUE;
    for (guint i = 0; ok && i < entry->files->len; i++) {
        const LhCacheFile *file = g_ptr_array_index(entry->files, i);
        struct stat st;
        int fd = lh_open_beneath(dir, file->name, O_PATH);
        if (fd < 0) {
            g_set_error(error, LH_ERROR, LH_ERR_CHECKSUM, "%s: %s", file->name, g_strerror(errno));
            ok = FALSE;
            break;
        }
        ok = fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size == file->size;
        close(fd);
        if (!ok)
            g_set_error(error, LH_ERROR, LH_ERR_CHECKSUM,
                        "%s: is not a file of %" G_GINT64_FORMAT " bytes", file->name, file->size);
    }
    close(dir);
    return ok;
}
