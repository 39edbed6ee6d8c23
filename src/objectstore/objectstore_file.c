/*
 * The file:// backend: lists and copies on worker threads, answers on the loop.
 *
 * An Op is shared by the loop and one worker, and counted. The loop alone looks at `store`, `func`
 * and `data`, and only while the op is in the store's table; a cancelled op is out of it, so
 * whatever the worker still posts is dropped. The worker looks at what is constant, and at the
 * atomics.
 */
#include "base/errors.h"
#include "base/workers.h"
#include "objectstore/backend.h"
#include "objectstore/beneath.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define WORKERS     4
#define CHUNK_BYTES (1024 * 1024)
#define PROGRESS_US (100 * 1000)

typedef struct {
    LhObjectStore base;
    char **roots;
    LhWorkers *workers;
    GHashTable *ops; /* LhStoreOp → Op, referenced */
    LhStoreOp next_id;
} FileStore;

typedef struct {
    gint refs;        /* atomic */
    FileStore *store; /* outlives the workers */
    LhStoreOp id;
    /* What to do; constant. */
    gboolean is_fetch;
    char *uri, *root_path, *below; /* "/srv/data", "a/b" */
    char *name, *to_path;
    GError *refused;
    /* Between the threads. */
    gint cancelled;
    gint progress_posted;
    gint64 bytes; /* with __atomic */
    /* Loop only. */
    LhStoreListFunc list_func;
    LhStoreFetchFunc fetch_func;
    LhStoreProgressFunc progress_func;
    gpointer data;
    /* Written by the worker before it posts the end. */
    GArray *entries; /* of LhStoreEntry, names owned */
    char *sha256;
    GError *error;
} Op;

static void clear_entry(gpointer entry)
{
    g_free((char *)((LhStoreEntry *)entry)->name);
}

static void op_unref(gpointer data)
{
    Op *op = data;
    if (!g_atomic_int_dec_and_test(&op->refs))
        return;
    g_free(op->uri);
    g_free(op->root_path);
    g_free(op->below);
    g_free(op->name);
    g_free(op->to_path);
    g_clear_error(&op->refused);
    g_clear_pointer(&op->entries, g_array_unref);
    g_free(op->sha256);
    g_clear_error(&op->error);
    g_free(op);
}

static Op *op_ref(Op *op)
{
    g_atomic_int_inc(&op->refs);
    return op;
}

static gboolean is_cancelled(Op *op)
{
    return g_atomic_int_get(&op->cancelled) != 0;
}

/* ---- worker side ---- */

static void set_errno(GError **error, int saved, const char *uri, const char *name,
                      const char *doing)
{
    LhErrorCode code = LH_ERR_IO;
    if (saved == ENOENT || saved == ENOTDIR)
        code = LH_ERR_NOT_FOUND;
    else if (saved == ELOOP || saved == EXDEV || saved == EACCES || saved == EPERM)
        code = LH_ERR_FORBIDDEN;
    else if (saved == ENOSPC || saved == EDQUOT)
        code = LH_ERR_NO_SPACE;
    const char *why = saved == ELOOP ? "leads through a symbolic link" : g_strerror(saved);
    g_set_error(error, LH_ERROR, code, "%s%s: %s: %s", uri, name, doing, why);
}

static int open_source(Op *op, const char *name, int flags, GError **error)
{
    int root = open(op->root_path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (root < 0) {
        set_errno(error, errno, op->uri, "", "opening its root");
        return -1;
    }
    g_autofree char *path = *name != '\0' ? g_strconcat(op->below, "/", name, NULL)
                                          : g_strdup(op->below);
    int fd = lh_open_beneath(root, path, flags);
    int saved = errno;
    close(root);
    if (fd < 0)
        set_errno(error, saved, op->uri, name, "opening");
    return fd;
}

static gboolean list_directory(Op *op, int fd, const char *prefix, guint depth);

/* One directory entry. @at: its directory; @name: relative to the uri. */
static gboolean list_entry(Op *op, int at, const char *leaf, const char *name, guint depth)
{
    struct stat st;
    if (fstatat(at, leaf, &st, AT_SYMLINK_NOFOLLOW) != 0) {
        set_errno(&op->error, errno, op->uri, name, "looking at it");
        return FALSE;
    }
    if (S_ISDIR(st.st_mode)) {
        int fd = openat(at, leaf, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0) {
            set_errno(&op->error, errno, op->uri, name, "opening");
            return FALSE;
        }
        g_autofree char *prefix = g_strconcat(name, "/", NULL);
        return list_directory(op, fd, prefix, depth + 1);
    }
    if (S_ISLNK(st.st_mode)) {
        g_set_error(&op->error, LH_ERROR, LH_ERR_FORBIDDEN,
                    "%s%s: is a symbolic link, and links are not followed", op->uri, name);
        return FALSE;
    }
    if (!S_ISREG(st.st_mode)) {
        g_set_error(&op->error, LH_ERROR, LH_ERR_INVALID, "%s%s: is neither a file nor a directory",
                    op->uri, name);
        return FALSE;
    }
    if (op->entries->len >= LH_STORE_MAX_FILES) {
        g_set_error(&op->error, LH_ERROR, LH_ERR_INVALID, "%s: has more than %d files", op->uri,
                    LH_STORE_MAX_FILES);
        return FALSE;
    }
    LhStoreEntry entry = {.name = g_strdup(name), .size = st.st_size};
    g_array_append_val(op->entries, entry);
    return TRUE;
}

/* Takes @fd. */
static gboolean list_directory(Op *op, int fd, const char *prefix, guint depth)
{
    if (depth > LH_STORE_MAX_DEPTH) {
        close(fd);
        g_set_error(&op->error, LH_ERROR, LH_ERR_INVALID, "%s%s: more than %d directories deep",
                    op->uri, prefix, LH_STORE_MAX_DEPTH);
        return FALSE;
    }
    DIR *dir = fdopendir(fd);
    if (dir == NULL) {
        int saved = errno;
        close(fd);
        set_errno(&op->error, saved, op->uri, prefix, "listing");
        return FALSE;
    }
    gboolean ok = TRUE;
    while (ok && !is_cancelled(op)) {
        errno = 0;
        const struct dirent *d = readdir(dir);
        if (d == NULL) {
            if (errno != 0) {
                set_errno(&op->error, errno, op->uri, prefix, "listing");
                ok = FALSE;
            }
            break;
        }
        if (strcmp(d->d_name, ".") == 0 || strcmp(d->d_name, "..") == 0)
            continue;
        g_autofree char *name = g_strconcat(prefix, d->d_name, NULL);
        ok = list_entry(op, fd, d->d_name, name, depth);
    }
    closedir(dir);
    return ok;
}

static gint compare_entries(gconstpointer a, gconstpointer b)
{
    return strcmp(((const LhStoreEntry *)a)->name, ((const LhStoreEntry *)b)->name);
}

static void do_list(Op *op)
{
    op->entries = g_array_new(FALSE, FALSE, sizeof(LhStoreEntry));
    g_array_set_clear_func(op->entries, clear_entry);
    int fd = open_source(op, "", O_RDONLY | O_DIRECTORY, &op->error);
    if (fd >= 0 && list_directory(op, fd, "", 0))
        g_array_sort(op->entries, compare_entries);
}

static void report_progress(gpointer data)
{
    Op *op = data;
    g_atomic_int_set(&op->progress_posted, 0);
    if (!is_cancelled(op) && op->progress_func != NULL)
        op->progress_func(__atomic_load_n(&op->bytes, __ATOMIC_RELAXED), op->data);
    op_unref(op);
}

static void post(Op *op, void (*func)(gpointer data))
{
    lh_workers_post(op->store->workers, func, op_ref(op), op_unref);
}

static gboolean write_all(int fd, const guint8 *data, gsize n)
{
    while (n > 0) {
        gssize w = write(fd, data, n);
        if (w < 0 && errno == EINTR)
            continue;
        if (w < 0)
            return FALSE;
        data += w;
        n -= (gsize)w;
    }
    return TRUE;
}

static gboolean copy(Op *op, int from, int to, EVP_MD_CTX *md)
{
    g_autofree guint8 *buffer = g_malloc(CHUNK_BYTES);
    gint64 next_progress = g_get_monotonic_time() + PROGRESS_US;
    gint64 total = 0;
    for (;;) {
        if (is_cancelled(op)) {
            g_set_error(&op->error, LH_ERROR, LH_ERR_CANCELLED, "%s%s: cancelled", op->uri,
                        op->name);
            return FALSE;
        }
        gssize n = read(from, buffer, CHUNK_BYTES);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            set_errno(&op->error, errno, op->uri, op->name, "reading");
            return FALSE;
        }
        if (n == 0)
            break;
        EVP_DigestUpdate(md, buffer, (gsize)n);
        if (!write_all(to, buffer, (gsize)n)) {
            set_errno(&op->error, errno, op->to_path, "", "writing");
            return FALSE;
        }
        total += n;
        __atomic_store_n(&op->bytes, total, __ATOMIC_RELAXED);
        if (op->progress_func != NULL && g_get_monotonic_time() >= next_progress) {
            next_progress = g_get_monotonic_time() + PROGRESS_US;
            if (g_atomic_int_compare_and_exchange(&op->progress_posted, 0, 1))
                post(op, report_progress);
        }
    }
    if (fsync(to) != 0) {
        set_errno(&op->error, errno, op->to_path, "", "syncing");
        return FALSE;
    }
    return TRUE;
}

static char *digest_hex(EVP_MD_CTX *md)
{
    guint8 digest[EVP_MAX_MD_SIZE];
    guint n = 0;
    EVP_DigestFinal_ex(md, digest, &n);
    GString *hex = g_string_sized_new(2 * n);
    for (guint i = 0; i < n; i++)
        g_string_append_printf(hex, "%02x", digest[i]);
    return g_string_free(hex, FALSE);
}

static void do_fetch(Op *op)
{
    /* O_NONBLOCK: opening a pipe must not hang; it means nothing for a regular file. */
    int from = open_source(op, op->name, O_RDONLY | O_NONBLOCK, &op->error);
    if (from < 0)
        return;
    struct stat st;
    if (fstat(from, &st) != 0 || !S_ISREG(st.st_mode)) {
        g_set_error(&op->error, LH_ERROR, LH_ERR_INVALID, "%s%s: is not a regular file", op->uri,
                    op->name);
        close(from);
        return;
    }
    int to = open(op->to_path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (to < 0) {
        set_errno(&op->error, errno, op->to_path, "", "creating");
        close(from);
        return;
    }
    EVP_MD_CTX *md = EVP_MD_CTX_new();
    EVP_DigestInit_ex(md, EVP_sha256(), NULL);
    gboolean ok = copy(op, from, to, md);
    if (close(to) != 0 && ok) {
        set_errno(&op->error, errno, op->to_path, "", "closing");
        ok = FALSE;
    }
    close(from);
    if (ok)
        op->sha256 = digest_hex(md);
    else
        unlink(op->to_path);
    EVP_MD_CTX_free(md);
}

/* Cancelled after its last byte: nobody will hear that the file is there. */
static void remove_unwanted(Op *op)
{
    if (op->is_fetch && op->sha256 != NULL)
        unlink(op->to_path);
}

/* ---- loop side ---- */

static void finish(gpointer data)
{
    Op *op = data;
    if (is_cancelled(op)) {
        remove_unwanted(op);
        op_unref(op);
        return;
    }
    g_hash_table_remove(op->store->ops, &op->id);
    gboolean ok = op->error == NULL;
    if (op->is_fetch)
        op->fetch_func(ok ? op->bytes : 0, ok ? op->sha256 : NULL, op->error, op->data);
    else
        op->list_func(ok ? (const LhStoreEntry *)(gpointer)op->entries->data : NULL,
                      ok ? op->entries->len : 0, op->error, op->data);
    op_unref(op);
}

/* Never delivered: the store is being freed, which has cancelled it. */
static void drop_finish(gpointer data)
{
    remove_unwanted(data);
    op_unref(data);
}

static void work(gpointer data)
{
    Op *op = data;
    if (op->refused != NULL)
        op->error = g_error_copy(op->refused);
    else if (!is_cancelled(op))
        op->is_fetch ? do_fetch(op) : do_list(op);
    lh_workers_post(op->store->workers, finish, op, drop_finish);
}

static Op *op_new(FileStore *store, const char *uri, gpointer data)
{
    Op *op = g_new0(Op, 1);
    op->refs = 1;
    op->store = store;
    op->id = store->next_id++;
    op->uri = g_strdup(uri);
    op->data = data;
    const char *const *roots = (const char *const *)store->roots;
    if (lh_store_uri_permitted(uri, roots, &op->refused)) {
        const char *root = lh_store_root_of(uri, roots);
        gsize n = strlen(root);
        op->root_path = g_strdup(root + strlen(LH_FILE_SCHEME));
        op->below = g_strndup(uri + n, strlen(uri) - n - 1);
    }
    return op;
}

static LhStoreOp op_start(Op *op)
{
    LhStoreOp id = op->id;
    g_hash_table_insert(op->store->ops, &op->id, op);
    lh_workers_run(op->store->workers, work, op_ref(op));
    return id;
}

static LhStoreOp file_list(LhObjectStore *base, const char *uri, LhStoreListFunc func,
                           gpointer data)
{
    Op *op = op_new((FileStore *)base, uri, data);
    op->list_func = func;
    return op_start(op);
}

static LhStoreOp file_fetch(LhObjectStore *base, const char *uri, const char *name,
                            const char *to_path, LhStoreProgressFunc progress,
                            LhStoreFetchFunc func, gpointer data)
{
    Op *op = op_new((FileStore *)base, uri, data);
    op->is_fetch = TRUE;
    op->name = g_strdup(name);
    op->to_path = g_strdup(to_path);
    op->progress_func = progress;
    op->fetch_func = func;
    if (op->refused == NULL && !lh_relative_path_valid(name))
        g_set_error(&op->refused, LH_ERROR, LH_ERR_INVALID,
                    "%s: \"%s\" is not a name of a file below it", uri, name);
    return op_start(op);
}

static void file_cancel(LhObjectStore *base, LhStoreOp id)
{
    FileStore *store = (FileStore *)base;
    Op *op = g_hash_table_lookup(store->ops, &id);
    if (op == NULL)
        return;
    g_atomic_int_set(&op->cancelled, 1);
    g_hash_table_remove(store->ops, &id);
}

static void file_free(LhObjectStore *base)
{
    FileStore *store = (FileStore *)base;
    GHashTableIter iter;
    gpointer op;
    g_hash_table_iter_init(&iter, store->ops);
    while (g_hash_table_iter_next(&iter, NULL, &op))
        g_atomic_int_set(&((Op *)op)->cancelled, 1);
    lh_workers_free(store->workers);
    g_hash_table_unref(store->ops);
    g_strfreev(store->roots);
    g_free(store);
}

LhObjectStore *lh_store_file_new(char **roots)
{
    static const LhObjectStoreVtable vtable = {
        .list = file_list,
        .fetch = file_fetch,
        .cancel = file_cancel,
        .free = file_free,
    };
    FileStore *store = g_new0(FileStore, 1);
    store->base.v = &vtable;
    store->roots = roots;
    store->workers = lh_workers_new(WORKERS);
    store->ops = g_hash_table_new_full(g_int64_hash, g_int64_equal, NULL, op_unref);
    store->next_id = 1;
    return &store->base;
}
