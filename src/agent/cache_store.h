/*
 * The data directory of a cache node: which snapshots are whole on the disk, and how they come and
 * go.
 *
 *   lock                           held (flock) by the one agent that uses the directory
 *   parts/<n>                      one file that is being copied; removed at the start
 *   loading/<n>/data/…             files that are whole, of a snapshot that is not yet
 *   loading/<n>/origin.json        of which: a load of the very same one goes on with them
 *   snapshots/<snapshot>/data/…    whole and verified
 *   snapshots/<snapshot>/manifest.json
 *   trash/<n>/                     on its way out; removed at the start
 *
 * A snapshot appears by one rename, after everything in it and its manifest are on the disk, and
 * goes by one rename; so what lies in snapshots/ is whole, whenever the power fails. A file appears
 * in loading/<n>/data/ by one rename too, after its bytes are on the disk: what a power failure has
 * undone is missing there, never half there. A load that has ended too early is parked: found again
 * at the start, or put there by lh_cache_store_park. Loop thread; what takes time is done by jobs.
 */
#pragma once

#include "agent/cache_manifest.h"
#include "agent/job.h"

typedef struct LhCacheStore LhCacheStore;

/* Locks the directory (creating it), clears leftovers away, and finds what is whole: each file
 * there with its size; contents are not read again. Blocks; for the start of the program. Errors:
 * LH_ERR_CONFLICT another agent uses it; LH_ERR_IO. */
LhCacheStore *lh_cache_store_open(const char *data_dir, GError **error);
/* What is in the trash still is removed at the next start. Accepts NULL. */
void lh_cache_store_free(LhCacheStore *store);

/* NULL: not there, or not whole. */
LhCacheEntry *lh_cache_store_find(LhCacheStore *store, const char *snapshot);
/* All, most recently loaded first, as snapshot names. g_strfreev. */
char **lh_cache_store_names(LhCacheStore *store);
/* The entry that nobody holds and that was loaded first; NULL: none. */
LhCacheEntry *lh_cache_store_oldest_unheld(LhCacheStore *store);
/* Bytes of all entries, of what is parked, and of what is in the trash still. */
gint64 lh_cache_store_bytes(const LhCacheStore *store);
gboolean lh_cache_store_removing(const LhCacheStore *store); /* the trash is not empty */
/* Bytes free for us on its file system. */
gint64 lh_cache_store_disk_free(const LhCacheStore *store);

/* A new directory below loading/ for what @entry says (its files do not matter), with an empty
 * data/ in it. g_free; NULL with LH_ERR_IO, LH_ERR_NO_SPACE. */
char *lh_cache_store_begin(LhCacheStore *store, const LhCacheEntry *entry, GError **error);
/* A path below parts/ that nothing has had yet. g_free. */
char *lh_cache_store_part_path(LhCacheStore *store);
/* Renames @part, which is whole and on the disk, to @dir/data/@name, making directories. */
gboolean lh_cache_store_place(const char *dir, const char *name, const char *part, GError **error);

/* Keeps @dir, which holds @bytes, for a later load of the same origin. No job may be at work in
 * it. */
void lh_cache_store_park(LhCacheStore *store, const char *dir, const LhCacheEntry *origin,
                         gint64 bytes);
/* What was parked for the very same snapshot; the caller's again, as after begin. g_free; NULL:
 * nothing. What was parked under its name for another one goes to the trash. */
char *lh_cache_store_resume(LhCacheStore *store, const LhCacheEntry *origin, gint64 *bytes);
/* All that is parked, to the trash. FALSE: there was nothing. */
gboolean lh_cache_store_discard_parked(LhCacheStore *store);
/* Finds which files of @entry lie in @dir with their size, digests them, and removes all others.
 * In @done: lh_cache_store_kept. */
LhJob *lh_cache_store_recheck(LhCacheStore *store, const char *dir, const LhCacheEntry *entry,
                              LhJobDone done, gpointer data);
/* @input of that @done: the entry, its files in the same order; sha256 NULL: not there. */
const LhCacheEntry *lh_cache_store_kept(gpointer input);

/* Checks that all is in @dir, writes its manifest, and syncs its directories. */
LhJob *lh_cache_store_seal(LhCacheStore *store, const char *dir, const LhCacheEntry *entry,
                           LhJobDone done, gpointer data);
/* After that: renames @dir into its place and takes @entry into the table. On failure neither is
 * touched. */
gboolean lh_cache_store_adopt(LhCacheStore *store, const char *dir, LhCacheEntry *entry,
                              GError **error);

/* Is every file there with its size? Cheap; LH_ERR_CHECKSUM says what is wrong. */
LhJob *lh_cache_store_verify(LhCacheStore *store, const LhCacheEntry *entry, LhJobDone done,
                             gpointer data);

/* Into the trash at once: a snapshot (@entry is freed), or a directory of lh_cache_store_begin that
 * holds @bytes. A job empties the trash; then @done runs, if it is not NULL. */
typedef void (*LhCacheRemoved)(gpointer data);
void lh_cache_store_remove(LhCacheStore *store, LhCacheEntry *entry, LhCacheRemoved done,
                           gpointer data);
void lh_cache_store_discard(LhCacheStore *store, const char *dir, gint64 bytes, LhCacheRemoved done,
                            gpointer data);
/* The @done of removals that were given @data will not run. */
void lh_cache_store_forget(LhCacheStore *store, gpointer data);
/* Called whenever something has left the trash, after its own @done. */
void lh_cache_store_on_removed(LhCacheStore *store, LhCacheRemoved func, gpointer data);

/* "<data dir>/snapshots/<snapshot>/data"; g_free. */
char *lh_cache_store_data_path(const LhCacheStore *store, const char *snapshot);
/* Opens a file of a snapshot for reading: a regular file, no symbolic link on the way. -1: no such
 * file. */
int lh_cache_store_open_file(LhCacheStore *store, const char *snapshot, const char *name);
