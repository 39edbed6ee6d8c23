/*
 * What a whole snapshot on a cache node's disk consists of, and its manifest file. Any thread.
 */
#pragma once

#include <glib.h>

typedef struct {
    char *name; /* relative, '/'-separated */
    gint64 size;
    char *sha256; /* 64 hex digits */
} LhCacheFile;

typedef struct {
    char *snapshot, *uri;
    gint64 size_bytes;
    gint64 snapshot_rev; /* create revision of the published snapshot */
    gint64 loaded_at;    /* epoch ms */
    GPtrArray *files;    /* of LhCacheFile */
    /* The store's and the work's own; not in the file. Loop thread. */
    guint held;   /* by so many items */
    guint served; /* to readers, for so many items */
} LhCacheEntry;

LhCacheEntry *lh_cache_entry_new(const char *snapshot, const char *uri, gint64 size_bytes,
                                 gint64 snapshot_rev, gint64 loaded_at);
LhCacheEntry *lh_cache_entry_copy(const LhCacheEntry *entry); /* neither held nor served */
void lh_cache_entry_add(LhCacheEntry *entry, const char *name, gint64 size, const char *sha256);
void lh_cache_entry_free(LhCacheEntry *entry); /* accepts NULL */

/* The manifest, and what GET on the snapshot's url answers; g_free:
 * {"snapshot":…,"uri":…,"sizeBytes":…,"snapshotRevision":…,"loadedAt":…,
 *  "files":[{"name":…,"size":…,"sha256":…}]} */
char *lh_cache_entry_json(const LhCacheEntry *entry);
/* Reads a manifest back. Errors: LH_ERR_IO, LH_ERR_INVALID. */
LhCacheEntry *lh_cache_entry_read(const char *path, GError **error);

/* The beginning of a manifest, without its files: what a load that is not whole yet is of. */
char *lh_cache_entry_origin_json(const LhCacheEntry *entry);
LhCacheEntry *lh_cache_entry_read_origin(const char *path, GError **error);
/* Are both of the very same published snapshot? */
gboolean lh_cache_entry_same_origin(const LhCacheEntry *a, const LhCacheEntry *b);

/* Is every file below @data_dir, regular and of its size? LH_ERR_CHECKSUM says what is wrong. */
gboolean lh_cache_entry_check(const LhCacheEntry *entry, const char *data_dir, GError **error);

G_DEFINE_AUTOPTR_CLEANUP_FUNC(LhCacheEntry, lh_cache_entry_free)
