/*
 * The data directory: scan at the start, appear and go by renames, empty the trash in the
 * background.
 *
 * It must not decide what to keep; cache_work.c does. Every path below the directory is made of
 * names that were checked (snapshot names, relative paths), so nothing here can leave it.
 */
#include "agent/cache_store.h"

#include "base/errors.h"
#include "base/log.h"
#include "base/units.h"
#include "objectstore/beneath.h"
#include "objectstore/local_file.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define REMOVE_TRIES 3
#define WORKERS      4

struct LhCacheStore {
    char *dir;
    int lock;
    LhWorkers *workers;
    gint stopping;       /* atomic: the trash need not be emptied any more */
    GHashTable *entries; /* snapshot → LhCacheEntry */
    GHashTable *trash;   /* set of Trash */
    GPtrArray *parked;   /* of Parked */
    guint32 start;       /* random: names of earlier runs may still be there */
    guint next;
    LhCacheRemoved on_removed;
    gpointer on_removed_data;
};

typedef struct {
    LhCacheStore *store;
    gint64 bytes;
    LhCacheRemoved done;
    gpointer data;
} Trash;

/* A load that has ended before its snapshot was whole. */
typedef struct {
    char *dir;
    LhCacheEntry *origin;
    gint64 bytes;
} Parked;

static void parked_free(gpointer data)
{
    Parked *parked = data;
    g_free(parked->dir);
    lh_cache_entry_free(parked->origin);
    g_free(parked);
}

static void set_errno(GError **error, const char *path, const char *doing)
{
    int saved = errno;
    LhErrorCode code = saved == ENOSPC || saved == EDQUOT ? LH_ERR_NO_SPACE : LH_ERR_IO;
    g_set_error(error, LH_ERROR, code, "%s: %s: %s", path, doing, g_strerror(saved));
}

static gboolean sync_path(const char *path, GError **error)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    gboolean ok = fd >= 0 && fsync(fd) == 0;
    if (!ok)
        set_errno(error, path, "syncing");
    if (fd >= 0)
        close(fd);
    return ok;
}

/* ---- the trash ---- */

/* nftw has no room for data of ours. */
static _Thread_local const gint *stop_removing;

static int remove_one(const char *path, const struct stat *st G_GNUC_UNUSED, int type G_GNUC_UNUSED,
                      struct FTW *ftw G_GNUC_UNUSED)
{
    if (g_atomic_int_get(stop_removing) != 0)
        return 1;
    if (remove(path) != 0 && errno != ENOENT)
        lh_log(LH_LOG_DEBUG, "cannot remove", "path", path, "error", g_strerror(errno), NULL);
    return 0;
}

typedef struct {
    char *path;
    const gint *stopping;
} Removal;

static void removal_free(gpointer data)
{
    Removal *removal = data;
    g_free(removal->path);
    g_free(removal);
}

static void remove_tree(gpointer input, GError **error)
{
    const Removal *removal = input;
    const char *path = removal->path;
    stop_removing = removal->stopping;
    /* More than once: a copy that was cancelled may still be about to create its file. */
    for (guint i = 0; i < REMOVE_TRIES; i++) {
        nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
        if (access(path, F_OK) != 0)
            return;
    }
    g_set_error(error, LH_ERROR, LH_ERR_IO, "%s: cannot be removed", path);
}

static void removed(gpointer input G_GNUC_UNUSED, const GError *error, gpointer data)
{
    Trash *trash = data;
    LhCacheStore *store = trash->store;
    if (error != NULL)
        lh_log(LH_LOG_WARNING, "trash stays until the next start", "error", error->message, NULL);
    LhCacheRemoved done = trash->done;
    gpointer done_data = trash->data;
    g_hash_table_remove(store->trash, trash);
    if (done != NULL)
        done(done_data);
    if (store->on_removed != NULL)
        store->on_removed(store->on_removed_data);
}

void lh_cache_store_discard(LhCacheStore *store, const char *dir, gint64 bytes, LhCacheRemoved done,
                            gpointer data)
{
    char *path = g_strdup_printf("%s/trash/%08x-%u", store->dir, store->start, store->next++);
    if (rename(dir, path) != 0) {
        lh_log(LH_LOG_WARNING, "cannot move to the trash; removing it where it is", "path", dir,
               "error", g_strerror(errno), NULL);
        g_free(path);
        path = g_strdup(dir);
    }
    Trash *trash = g_new0(Trash, 1);
    trash->store = store;
    trash->bytes = bytes;
    trash->done = done;
    trash->data = data;
    g_hash_table_add(store->trash, trash);
    Removal *removal = g_new0(Removal, 1);
    removal->path = path;
    removal->stopping = &store->stopping;
    lh_job_start(store->workers, remove_tree, removal, removal_free, removed, trash);
}

void lh_cache_store_remove(LhCacheStore *store, LhCacheEntry *entry, LhCacheRemoved done,
                           gpointer data)
{
    g_autofree char *dir = g_strdup_printf("%s/snapshots/%s", store->dir, entry->snapshot);
    gint64 bytes = entry->size_bytes;
    g_autofree char *snapshot = g_strdup(entry->snapshot);
    g_hash_table_remove(store->entries, snapshot);
    lh_cache_store_discard(store, dir, bytes, done, data);
}

void lh_cache_store_forget(LhCacheStore *store, gpointer data)
{
    GHashTableIter iter;
    gpointer key;
    g_hash_table_iter_init(&iter, store->trash);
    while (g_hash_table_iter_next(&iter, &key, NULL)) {
        Trash *trash = key;
        if (trash->data == data)
            trash->done = NULL;
    }
}

void lh_cache_store_on_removed(LhCacheStore *store, LhCacheRemoved func, gpointer data)
{
    store->on_removed = func;
    store->on_removed_data = data;
}

/* ---- opening ---- */

static gboolean make_dirs(const LhCacheStore *store, GError **error)
{
    static const char *const names[] = {"loading", "parts", "snapshots", "trash"};
    for (gsize i = 0; i < G_N_ELEMENTS(names); i++) {
        g_autofree char *path = g_strdup_printf("%s/%s", store->dir, names[i]);
        if (g_mkdir_with_parents(path, 0755) != 0) {
            set_errno(error, path, "creating");
            return FALSE;
        }
    }
    return TRUE;
}

static gboolean take_lock(LhCacheStore *store, GError **error)
{
    g_autofree char *path = g_strdup_printf("%s/lock", store->dir);
    store->lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (store->lock < 0) {
        set_errno(error, path, "opening");
        return FALSE;
    }
    if (flock(store->lock, LOCK_EX | LOCK_NB) != 0) {
        if (errno == EWOULDBLOCK)
            g_set_error(error, LH_ERROR, LH_ERR_CONFLICT,
                        "%s: another agent uses this data directory", store->dir);
        else
            set_errno(error, path, "locking");
        return FALSE;
    }
    return TRUE;
}

/* Calls @func for each entry of the subdirectory. */
static void each_in(LhCacheStore *store, const char *sub,
                    void (*func)(LhCacheStore *, const char *))
{
    g_autofree char *path = g_strdup_printf("%s/%s", store->dir, sub);
    g_autoptr(GDir) dir = g_dir_open(path, 0, NULL);
    g_autoptr(GPtrArray) names = g_ptr_array_new_with_free_func(g_free);
    for (const char *name; dir != NULL && (name = g_dir_read_name(dir)) != NULL;)
        g_ptr_array_add(names, g_strdup_printf("%s/%s", path, name));
    for (guint i = 0; i < names->len; i++)
        func(store, g_ptr_array_index(names, i));
}

static void discard_leftover(LhCacheStore *store, const char *path)
{
    lh_cache_store_discard(store, path, 0, NULL, NULL);
}

static void scan_snapshot(LhCacheStore *store, const char *path)
{
    g_autofree char *manifest = g_strdup_printf("%s/manifest.json", path);
    g_autofree char *data = g_strdup_printf("%s/data", path);
    g_autofree char *name = g_path_get_basename(path);
    g_autoptr(GError) error = NULL;
    g_autoptr(LhCacheEntry) entry = lh_cache_entry_read(manifest, &error);
    if (entry != NULL && strcmp(entry->snapshot, name) != 0)
        g_set_error(&error, LH_ERROR, LH_ERR_INVALID, "its manifest is of %s", entry->snapshot);
    else if (entry != NULL && lh_cache_entry_check(entry, data, &error)) {
        const char *key = entry->snapshot;
        g_hash_table_insert(store->entries, (gpointer)key, g_steal_pointer(&entry));
        return;
    }
    lh_log(LH_LOG_WARNING, "snapshot on disk is not whole; removing it", "snapshot", name, "why",
           error->message, NULL);
    lh_cache_store_discard(store, path, 0, NULL, NULL);
}

/* Bytes of the files below @path. */
static gint64 bytes_below(const char *path)
{
    g_autoptr(GDir) dir = g_dir_open(path, 0, NULL);
    gint64 bytes = 0;
    for (const char *name; dir != NULL && (name = g_dir_read_name(dir)) != NULL;) {
        g_autofree char *child = g_build_filename(path, name, NULL);
        struct stat st;
        if (lstat(child, &st) != 0)
            continue;
        bytes += S_ISDIR(st.st_mode) ? bytes_below(child) : st.st_size;
    }
    return bytes;
}

static void scan_loading(LhCacheStore *store, const char *path)
{
    g_autofree char *file = g_strdup_printf("%s/origin.json", path);
    g_autofree char *data = g_strdup_printf("%s/data", path);
    g_autoptr(LhCacheEntry) origin = lh_cache_entry_read_origin(file, NULL);
    if (origin != NULL)
        lh_cache_store_park(store, path, origin, bytes_below(data));
    else
        discard_leftover(store, path);
}

LhCacheStore *lh_cache_store_open(const char *data_dir, GError **error)
{
    LhCacheStore *store = g_new0(LhCacheStore, 1);
    store->dir = g_canonicalize_filename(data_dir, NULL);
    store->lock = -1;
    store->entries = g_hash_table_new_full(g_str_hash, g_str_equal, NULL,
                                           (GDestroyNotify)lh_cache_entry_free);
    store->trash = g_hash_table_new_full(NULL, NULL, g_free, NULL);
    store->parked = g_ptr_array_new_with_free_func(parked_free);
    store->workers = lh_workers_new(WORKERS);
    store->start = g_random_int();
    if (!make_dirs(store, error) || !take_lock(store, error)) {
        lh_cache_store_free(store);
        return NULL;
    }
    each_in(store, "trash", discard_leftover);
    each_in(store, "parts", discard_leftover);
    each_in(store, "loading", scan_loading);
    each_in(store, "snapshots", scan_snapshot);
    return store;
}

void lh_cache_store_free(LhCacheStore *store)
{
    if (store == NULL)
        return;
    g_atomic_int_set(&store->stopping, 1);
    lh_workers_free(store->workers);
    g_hash_table_unref(store->trash);
    g_hash_table_unref(store->entries);
    g_ptr_array_unref(store->parked);
    if (store->lock >= 0)
        close(store->lock);
    g_free(store->dir);
    g_free(store);
}

/* ---- what is there ---- */

LhCacheEntry *lh_cache_store_find(LhCacheStore *store, const char *snapshot)
{
    return g_hash_table_lookup(store->entries, snapshot);
}

static gint newest_first(gconstpointer a, gconstpointer b)
{
    const LhCacheEntry *x = *(const LhCacheEntry *const *)a, *y = *(const LhCacheEntry *const *)b;
    if (x->loaded_at != y->loaded_at)
        return x->loaded_at < y->loaded_at ? 1 : -1;
    return strcmp(x->snapshot, y->snapshot);
}

char **lh_cache_store_names(LhCacheStore *store)
{
    g_autoptr(GPtrArray) entries = g_ptr_array_new();
    GHashTableIter iter;
    gpointer value;
    g_hash_table_iter_init(&iter, store->entries);
    while (g_hash_table_iter_next(&iter, NULL, &value))
        g_ptr_array_add(entries, value);
    g_ptr_array_sort(entries, newest_first);
    char **names = g_new0(char *, entries->len + 1);
    for (guint i = 0; i < entries->len; i++)
        names[i] = g_strdup(((LhCacheEntry *)g_ptr_array_index(entries, i))->snapshot);
    return names;
}

LhCacheEntry *lh_cache_store_oldest_unheld(LhCacheStore *store)
{
    LhCacheEntry *oldest = NULL;
    GHashTableIter iter;
    gpointer value;
    g_hash_table_iter_init(&iter, store->entries);
    while (g_hash_table_iter_next(&iter, NULL, &value)) {
        LhCacheEntry *entry = value;
        if (entry->held == 0 && (oldest == NULL || newest_first(&oldest, &entry) < 0))
            oldest = entry;
    }
    return oldest;
}

gint64 lh_cache_store_bytes(const LhCacheStore *store)
{
    gint64 bytes = 0;
    GHashTableIter iter;
    gpointer key, value;
    g_hash_table_iter_init(&iter, store->entries);
    while (g_hash_table_iter_next(&iter, NULL, &value))
        bytes += ((LhCacheEntry *)value)->size_bytes;
    g_hash_table_iter_init(&iter, store->trash);
    while (g_hash_table_iter_next(&iter, &key, NULL))
        bytes += ((Trash *)key)->bytes;
    for (guint i = 0; i < store->parked->len; i++)
        bytes += ((Parked *)g_ptr_array_index(store->parked, i))->bytes;
    return bytes;
}

gboolean lh_cache_store_removing(const LhCacheStore *store)
{
    return g_hash_table_size(store->trash) > 0;
}

gint64 lh_cache_store_disk_free(const LhCacheStore *store)
{
    struct statvfs vfs;
    if (statvfs(store->dir, &vfs) != 0)
        return G_MAXINT64; /* unknown is not "full"; writing will tell */
    return (gint64)vfs.f_bavail * (gint64)vfs.f_frsize;
}

char *lh_cache_store_data_path(const LhCacheStore *store, const char *snapshot)
{
    return g_strdup_printf("%s/snapshots/%s/data", store->dir, snapshot);
}

int lh_cache_store_open_file(LhCacheStore *store, const char *snapshot, const char *name)
{
    if (lh_cache_store_find(store, snapshot) == NULL)
        return -1;
    g_autofree char *path = lh_cache_store_data_path(store, snapshot);
    int dir = open(path, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (dir < 0)
        return -1;
    int fd = lh_open_beneath(dir, name, O_RDONLY | O_NONBLOCK);
    close(dir);
    struct stat st;
    if (fd >= 0 && (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode))) {
        close(fd);
        return -1;
    }
    return fd;
}

/* ---- what comes ---- */

char *lh_cache_store_begin(LhCacheStore *store, const LhCacheEntry *entry, GError **error)
{
    g_autofree char *dir = g_strdup_printf("%s/loading/%08x-%u", store->dir, store->start,
                                           store->next++);
    g_autofree char *data = g_strdup_printf("%s/data", dir);
    g_autofree char *origin = g_strdup_printf("%s/origin.json", dir);
    g_autofree char *json = lh_cache_entry_origin_json(entry);
    if (mkdir(dir, 0755) != 0 || mkdir(data, 0755) != 0) {
        set_errno(error, dir, "creating");
        return NULL;
    }
    /* Not synced: if it is lost or cut, the files beside it are only copied again. */
    FILE *file = fopen(origin, "wxe");
    gboolean ok = file != NULL && fputs(json, file) >= 0;
    if (file != NULL && fclose(file) != 0)
        ok = FALSE;
    if (!ok) {
        set_errno(error, origin, "writing");
        discard_leftover(store, dir);
        return NULL;
    }
    return g_steal_pointer(&dir);
}

char *lh_cache_store_part_path(LhCacheStore *store)
{
    return g_strdup_printf("%s/parts/%08x-%u", store->dir, store->start, store->next++);
}

gboolean lh_cache_store_place(const char *dir, const char *name, const char *part, GError **error)
{
    if (!lh_relative_path_valid(name)) {
        g_set_error(error, LH_ERROR, LH_ERR_INVALID, "\"%s\" is not the name of a file", name);
        return FALSE;
    }
    g_autofree char *path = g_strdup_printf("%s/data/%s", dir, name);
    if (strchr(name, '/') != NULL) {
        g_autofree char *parent = g_path_get_dirname(path);
        if (g_mkdir_with_parents(parent, 0755) != 0) {
            set_errno(error, parent, "creating");
            return FALSE;
        }
    }
    if (rename(part, path) != 0) {
        set_errno(error, path, "renaming into place");
        return FALSE;
    }
    return TRUE;
}

/* ---- what is parked ---- */

void lh_cache_store_park(LhCacheStore *store, const char *dir, const LhCacheEntry *origin,
                         gint64 bytes)
{
    Parked *parked = g_new(Parked, 1);
    *parked = (Parked){g_strdup(dir), lh_cache_entry_copy(origin), bytes};
    g_ptr_array_add(store->parked, parked);
}

char *lh_cache_store_resume(LhCacheStore *store, const LhCacheEntry *origin, gint64 *bytes)
{
    const Parked *best = NULL;
    for (guint i = store->parked->len; i > 0; i--) {
        const Parked *parked = g_ptr_array_index(store->parked, i - 1);
        if (strcmp(parked->origin->snapshot, origin->snapshot) != 0)
            continue;
        if (!lh_cache_entry_same_origin(parked->origin, origin)) {
            lh_cache_store_discard(store, parked->dir, parked->bytes, NULL, NULL);
            g_ptr_array_remove_index(store->parked, i - 1);
        } else if (best == NULL || parked->bytes > best->bytes) {
            best = parked;
        }
    }
    if (best == NULL)
        return NULL;
    char *dir = g_strdup(best->dir);
    *bytes = best->bytes;
    g_ptr_array_remove(store->parked, (gpointer)best);
    return dir;
}

gboolean lh_cache_store_discard_parked(LhCacheStore *store)
{
    gboolean any = store->parked->len > 0;
    for (guint i = 0; i < store->parked->len; i++) {
        const Parked *parked = g_ptr_array_index(store->parked, i);
        lh_log(LH_LOG_INFO, "removing the beginning of a load that nothing goes on with",
               "snapshot", parked->origin->snapshot, NULL);
        lh_cache_store_discard(store, parked->dir, parked->bytes, NULL, NULL);
    }
    g_ptr_array_set_size(store->parked, 0);
    return any;
}

/* ---- jobs ---- */

typedef enum { TO_SEAL, TO_VERIFY, TO_RECHECK } TaskKind;

typedef struct {
    char *dir;
    LhCacheEntry *entry;
    TaskKind kind;
    const gint *stopping;
} Task;

static void task_free(gpointer data)
{
    Task *task = data;
    g_free(task->dir);
    lh_cache_entry_free(task->entry);
    g_free(task);
}

static gboolean write_manifest(const char *dir, const LhCacheEntry *entry, GError **error)
{
    g_autofree char *path = g_strdup_printf("%s/manifest.json", dir);
    g_autofree char *draft = g_strdup_printf("%s/manifest.draft", dir);
    g_autofree char *json = lh_cache_entry_json(entry);
    FILE *file = fopen(draft, "we");
    gboolean ok = file != NULL && fputs(json, file) >= 0 && fflush(file) == 0 &&
                  fsync(fileno(file)) == 0;
    if (!ok)
        set_errno(error, draft, "writing");
    if (file != NULL && fclose(file) != 0 && ok) {
        set_errno(error, draft, "closing");
        ok = FALSE;
    }
    /* An earlier run may have come so far, and no further. */
    if (ok && rename(draft, path) != 0) {
        set_errno(error, path, "renaming into place");
        ok = FALSE;
    }
    return ok;
}

/* Every directory between data/ and a file, data/ and @dir itself: after this the names are on the
 * disk. */
static gboolean sync_dirs(const char *dir, const LhCacheEntry *entry, GError **error)
{
    g_autoptr(GHashTable) dirs = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
    g_hash_table_add(dirs, g_strdup(dir));
    g_hash_table_add(dirs, g_strdup_printf("%s/data", dir));
    for (guint i = 0; i < entry->files->len; i++) {
        const char *name = ((const LhCacheFile *)g_ptr_array_index(entry->files, i))->name;
        for (const char *slash = strchr(name, '/'); slash != NULL; slash = strchr(slash + 1, '/'))
            g_hash_table_add(dirs, g_strdup_printf("%s/data/%.*s", dir, (int)(slash - name), name));
    }
    GHashTableIter iter;
    gpointer path;
    g_hash_table_iter_init(&iter, dirs);
    while (g_hash_table_iter_next(&iter, &path, NULL)) {
        if (!sync_path(path, error))
            return FALSE;
    }
    return TRUE;
}

/* Removes what lies below @path (relative: @prefix) and is none of @names. */
static void remove_strangers(const char *path, const char *prefix, GHashTable *names)
{
    g_autoptr(GDir) dir = g_dir_open(path, 0, NULL);
    for (const char *leaf; dir != NULL && (leaf = g_dir_read_name(dir)) != NULL;) {
        g_autofree char *child = g_build_filename(path, leaf, NULL);
        g_autofree char *name = g_strconcat(prefix, leaf, NULL);
        g_autofree char *below = g_strconcat(name, "/", NULL);
        struct stat st;
        if (lstat(child, &st) == 0 && S_ISDIR(st.st_mode)) {
            remove_strangers(child, below, names);
            rmdir(child); /* if it is empty */
        } else if (!g_hash_table_contains(names, name)) {
            unlink(child);
        }
    }
}

/* The digest of a file that is as big as it should be. NULL: it is not, or not there. */
static char *digest_of_kept(int data, const LhCacheFile *file, const gint *stopping)
{
    int fd = lh_open_beneath(data, file->name, O_RDONLY | O_NONBLOCK);
    if (fd < 0)
        return NULL;
    struct stat st;
    char *sha256 = NULL;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size == file->size)
        sha256 = lh_local_file_digest_of(fd, file->name, stopping, NULL);
    close(fd);
    return sha256;
}

static void recheck(Task *task, GError **error)
{
    g_autofree char *path = g_strdup_printf("%s/data", task->dir);
    int data = open(path, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (data < 0) {
        set_errno(error, path, "opening");
        return;
    }
    g_autoptr(GHashTable) names = g_hash_table_new(g_str_hash, g_str_equal);
    for (guint i = 0; i < task->entry->files->len; i++) {
        LhCacheFile *file = g_ptr_array_index(task->entry->files, i);
        g_free(file->sha256);
        file->sha256 = digest_of_kept(data, file, task->stopping);
        if (file->sha256 != NULL)
            g_hash_table_add(names, file->name);
    }
    close(data);
    if (g_atomic_int_get(task->stopping) != 0) { /* what was not looked at is no stranger */
        g_set_error(error, LH_ERROR, LH_ERR_CANCELLED, "%s: cancelled", path);
        return;
    }
    remove_strangers(path, "", names);
}

static void seal(const Task *task, GError **error)
{
    g_autofree char *data = g_strdup_printf("%s/data", task->dir);
    if (lh_cache_entry_check(task->entry, data, error) &&
        write_manifest(task->dir, task->entry, error))
        sync_dirs(task->dir, task->entry, error);
}

static void do_task(gpointer input, GError **error)
{
    Task *task = input;
    switch (task->kind) {
    case TO_SEAL:
        seal(task, error);
        break;
    case TO_VERIFY:
        lh_cache_entry_check(task->entry, task->dir, error);
        break;
    case TO_RECHECK:
        recheck(task, error);
        break;
    }
}

/* Takes @dir. */
static LhJob *start_task(LhCacheStore *store, TaskKind kind, char *dir, const LhCacheEntry *entry,
                         LhJobDone done, gpointer data)
{
    Task *task = g_new0(Task, 1);
    task->kind = kind;
    task->dir = dir;
    task->entry = lh_cache_entry_copy(entry);
    task->stopping = &store->stopping;
    return lh_job_start(store->workers, do_task, task, task_free, done, data);
}

LhJob *lh_cache_store_seal(LhCacheStore *store, const char *dir, const LhCacheEntry *entry,
                           LhJobDone done, gpointer data)
{
    return start_task(store, TO_SEAL, g_strdup(dir), entry, done, data);
}

LhJob *lh_cache_store_verify(LhCacheStore *store, const LhCacheEntry *entry, LhJobDone done,
                             gpointer data)
{
    return start_task(store, TO_VERIFY, lh_cache_store_data_path(store, entry->snapshot), entry,
                      done, data);
}

LhJob *lh_cache_store_recheck(LhCacheStore *store, const char *dir, const LhCacheEntry *entry,
                              LhJobDone done, gpointer data)
{
    return start_task(store, TO_RECHECK, g_strdup(dir), entry, done, data);
}

const LhCacheEntry *lh_cache_store_kept(gpointer input)
{
    return ((const Task *)input)->entry;
}

gboolean lh_cache_store_adopt(LhCacheStore *store, const char *dir, LhCacheEntry *entry,
                              GError **error)
{
    g_autofree char *parent = g_strdup_printf("%s/snapshots", store->dir);
    g_autofree char *path = g_strdup_printf("%s/%s", parent, entry->snapshot);
    if (g_hash_table_contains(store->entries, entry->snapshot)) {
        g_set_error(error, LH_ERROR, LH_ERR_CONFLICT, "snapshot %s is there already",
                    entry->snapshot);
        return FALSE;
    }
    if (access(path, F_OK) == 0) /* not in the table: not whole, or not ours */
        lh_cache_store_discard(store, path, 0, NULL, NULL);
    if (rename(dir, path) != 0) {
        set_errno(error, path, "renaming into place");
        return FALSE;
    }
    g_hash_table_insert(store->entries, entry->snapshot, entry);
    g_autofree char *origin = g_strdup_printf("%s/origin.json", path);
    unlink(origin); /* the manifest says it */
    g_autoptr(GError) unsynced = NULL;
    if (!sync_path(parent, &unsynced))
        lh_log(LH_LOG_WARNING,
               "a power failure now would lose a snapshot, which is then copied again", "error",
               unsynced->message, NULL);
    return TRUE;
}
