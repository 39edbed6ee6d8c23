/*
 * Work on roots of the file:// backend: walking, erasing, small objects, the clock.
 *
 * Everything goes through descriptors of directories, opened one in the other without following links.
 * What vanishes meanwhile is no error: somebody else was faster. A root itself is never removed, and what is
 * mounted below it is neither listed nor erased: that is an error, as it is a place of its own.
 */
#include "base/errors.h"
#include "objectstore/backend.h"
#include "objectstore/beneath.h"
#include "objectstore/local_file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define DIRECTORY (O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)

static gboolean fail(const LhStoreTask *task, int saved, const char *name, const char *doing,
                     GError **error)
{
    lh_store_set_errno(error, saved, lh_task_job(task)->uri, name, doing);
    return FALSE;
}

static gboolean cancelled(LhStoreTask *task, GError **error)
{
    if (!lh_task_cancelled(task))
        return FALSE;
    g_set_error(error, LH_ERROR, LH_ERR_CANCELLED, "%s: cancelled", lh_task_job(task)->uri);
    return TRUE;
}

/* The path of a root may lead through links; -1 and @error. */
static int open_root(const LhStoreTask *task, const char *root, GError **error)
{
    int fd = open(root + strlen(LH_FILE_SCHEME), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        fail(task, errno, "", "opening the root", error);
    return fd;
}

/* Which mount a directory is of; a bind mount differs in the mount alone. */
typedef struct {
    guint64 device, mount;
} Place;

static gboolean place_of(const LhStoreTask *task, int fd, const char *name, Place *place,
                         GError **error)
{
    struct statx st;
    if (statx(fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS | STATX_MNT_ID, &st) != 0)
        return fail(task, errno, name, "looking at it", error);
    place->device = makedev(st.stx_dev_major, st.stx_dev_minor);
    place->mount = (st.stx_mask & STATX_MNT_ID) != 0 ? st.stx_mnt_id : 0;
    return TRUE;
}

static gboolean same_place(const LhStoreTask *task, int fd, const char *name, const Place *root,
                           GError **error)
{
    Place place;
    if (!place_of(task, fd, name, &place, error))
        return FALSE;
    if (place.device == root->device && place.mount == root->mount)
        return TRUE;
    g_set_error(error, LH_ERROR, LH_ERR_FORBIDDEN,
                "%s%s: something else is mounted there; give it a root of its own",
                lh_task_job(task)->uri, name);
    return FALSE;
}

static gboolean is_dot(const char *leaf)
{
    return strcmp(leaf, ".") == 0 || strcmp(leaf, "..") == 0;
}

/* ---- reading a directory ---- */

typedef gboolean (*EntryFunc)(LhStoreTask *task, int at, const char *leaf, const char *prefix,
                              const struct stat *st, gpointer data, GError **error);

/* Takes @fd. Calls @file for each entry that is no directory; the names of the others go to @dirs. */
static gboolean read_directory(LhStoreTask *task, int fd, const char *prefix, EntryFunc file,
                               GPtrArray *dirs, gpointer data, GError **error)
{
    DIR *dir = fdopendir(fd);
    const struct dirent *d;
    gboolean ok = TRUE;
    if (dir == NULL) {
        int saved = errno;
        close(fd);
        return fail(task, saved, prefix, "listing", error);
    }
    while (ok && (errno = 0, d = readdir(dir)) != NULL) {
        struct stat st;
        if (is_dot(d->d_name))
            continue;
        if (cancelled(task, error))
            ok = FALSE;
        else if (fstatat(fd, d->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0)
            ok = errno == ENOENT || fail(task, errno, prefix, "looking into it", error);
        else if (S_ISDIR(st.st_mode))
            g_ptr_array_add(dirs, g_strdup(d->d_name));
        else
            ok = file(task, fd, d->d_name, prefix, &st, data, error);
    }
    if (ok && errno != 0)
        ok = fail(task, errno, prefix, "listing", error);
    closedir(dir);
    return ok;
}

static gboolean too_deep(const LhStoreTask *task, const char *prefix, guint depth, GError **error)
{
    if (depth <= LH_STORE_MAX_DEPTH)
        return FALSE;
    g_set_error(error, LH_ERROR, LH_ERR_INVALID, "%s%s: more than %d directories deep",
                lh_task_job(task)->uri, prefix, LH_STORE_MAX_DEPTH);
    return TRUE;
}

/* ---- walk ---- */

static gint64 modified_ms(const struct stat *st)
{
    return (gint64)st->st_mtim.tv_sec * 1000 + st->st_mtim.tv_nsec / 1000000;
}

static gboolean tell(LhStoreTask *task, int at G_GNUC_UNUSED, const char *leaf, const char *prefix,
                     const struct stat *st, gpointer data G_GNUC_UNUSED, GError **error)
{
    g_autofree char *name = g_strconcat(prefix, leaf, NULL);
    return lh_task_add_object(task, name, st->st_size, modified_ms(st), error);
}

/* @at stays the caller's. Its own objects first, then what lies deeper. */
static gboolean walk(LhStoreTask *task, int at, const char *prefix, const Place *root, guint depth,
                     GError **error)
{
    g_autoptr(GPtrArray) dirs = g_ptr_array_new_with_free_func(g_free);
    int again = openat(at, ".", DIRECTORY);
    if (too_deep(task, prefix, depth, error)) {
        if (again >= 0)
            close(again);
        return FALSE;
    }
    if (again < 0)
        return fail(task, errno, prefix, "listing", error);
    if (!read_directory(task, again, prefix, tell, dirs, NULL, error))
        return FALSE;
    for (guint i = 0; i < dirs->len; i++) {
        g_autofree char *below = g_strconcat(prefix, dirs->pdata[i], "/", NULL);
        int fd = openat(at, dirs->pdata[i], DIRECTORY);
        if (fd < 0 && errno == ENOENT)
            continue;
        if (fd < 0)
            return fail(task, errno, below, "opening", error);
        gboolean ok = same_place(task, fd, below, root, error) &&
                      walk(task, fd, below, root, depth + 1, error);
        close(fd);
        if (!ok)
            return FALSE;
    }
    return TRUE;
}

static gboolean walk_root(LhStoreTask *task, GError **error)
{
    int fd = open_root(task, lh_task_job(task)->uri, error);
    Place root;
    if (fd < 0)
        return FALSE;
    gboolean ok = place_of(task, fd, "", &root, error) && walk(task, fd, "", &root, 0, error);
    close(fd);
    return ok;
}

/* ---- erase ---- */

typedef struct {
    Place root;
    gint64 count;
    LhStoreKnown found; /* flat: of this pass */
} Erased;

static gboolean expect_file(LhStoreTask *task, int at G_GNUC_UNUSED, const char *leaf,
                            const char *prefix G_GNUC_UNUSED, const struct stat *st, gpointer data,
                            GError **error)
{
    return lh_task_expects(task, &((Erased *)data)->found, leaf, st->st_size, modified_ms(st),
                           error);
}

static gboolean remove_file(LhStoreTask *task, int at, const char *leaf, const char *prefix,
                            const struct stat *st, gpointer data, GError **error)
{
    g_autofree char *name = NULL;
    Erased *erased = data;
    if (lh_task_job(task)->work == LH_STORE_ERASE_FLAT &&
        !expect_file(task, at, leaf, prefix, st, data, error))
        return FALSE;
    if (!lh_task_may_change(task))
        return lh_task_refuse_change(task, prefix, error);
    if (unlinkat(at, leaf, 0) == 0) {
        erased->count++;
        return TRUE;
    }
    if (errno == ENOENT)
        return TRUE;
    int saved = errno;
    name = g_strconcat(prefix, leaf, NULL);
    return fail(task, saved, name, "deleting", error);
}

/* Flat: looks at all of it before anything goes. */
static gboolean erase_flat(LhStoreTask *task, int fd, Erased *erased, GError **error)
{
    static const EntryFunc passes[] = {expect_file, remove_file};
    for (gsize i = 0; i < G_N_ELEMENTS(passes); i++) {
        g_autoptr(GPtrArray) dirs = g_ptr_array_new_with_free_func(g_free);
        int again = openat(fd, ".", DIRECTORY);
        if (again < 0)
            return fail(task, errno, "", "listing", error);
        if (!same_place(task, again, "", &erased->root, error)) {
            close(again);
            return FALSE;
        }
        erased->found = (LhStoreKnown){0};
        if (!read_directory(task, again, "", passes[i], dirs, erased, error))
            return FALSE;
    }
    return TRUE;
}

/* Takes @fd. */
static gboolean erase(LhStoreTask *task, int fd, const char *prefix, guint depth, Erased *erased,
                      GError **error)
{
    g_autoptr(GPtrArray) dirs = g_ptr_array_new_with_free_func(g_free);
    int again = openat(fd, ".", DIRECTORY);
    gboolean ok = again >= 0 || fail(task, errno, prefix, "listing", error);
    if (ok && !same_place(task, again, prefix, &erased->root, error)) {
        close(again);
        ok = FALSE;
    }
    if (ok && too_deep(task, prefix, depth, error)) {
        close(again);
        ok = FALSE;
    }
    ok = ok && read_directory(task, again, prefix, remove_file, dirs, erased, error);
    for (guint i = 0; ok && i < dirs->len; i++) {
        g_autofree char *below = g_strconcat(prefix, dirs->pdata[i], "/", NULL);
        int inner = openat(fd, dirs->pdata[i], DIRECTORY);
        if (inner < 0) {
            ok = errno == ENOENT || fail(task, errno, below, "opening", error);
            continue;
        }
        ok = erase(task, inner, below, depth + 1, erased, error);
        if (ok && unlinkat(fd, dirs->pdata[i], AT_REMOVEDIR) != 0 && errno != ENOENT)
            ok = fail(task, errno, below, "deleting", error);
    }
    close(fd);
    return ok;
}

/* "a/b/c": the directory a/b is opened, and c named. */
static gboolean erase_below(LhStoreTask *task, int root, GError **error)
{
    const LhStoreJob *job = lh_task_job(task);
    const char *below = job->uri + strlen(job->root);
    g_autofree char *path = g_strndup(below, strlen(below) - 1);
    g_autofree char *above = g_path_get_dirname(path), *leaf = g_path_get_basename(path);
    gboolean deep = job->work == LH_STORE_ERASE;
    Erased erased = {0};
    if (!place_of(task, root, "", &erased.root, error))
        return FALSE;
    int parent = strcmp(above, ".") == 0 ? openat(root, ".", DIRECTORY)
                                         : lh_open_beneath(root, above, O_RDONLY | O_DIRECTORY);
    int fd = parent < 0 ? -1 : lh_open_beneath(parent, leaf, O_RDONLY | O_DIRECTORY);
    int saved = errno;
    gboolean ok = TRUE;
    if (fd >= 0 && deep) {
        ok = erase(task, fd, "", 0, &erased, error);
    } else if (fd >= 0) {
        ok = erase_flat(task, fd, &erased, error);
        close(fd);
    } else if (saved != ENOENT) {
        ok = fail(task, saved, "", "opening", error);
    }
    if (ok && fd >= 0 && unlinkat(parent, leaf, AT_REMOVEDIR) != 0 && errno != ENOENT &&
        (deep || (errno != ENOTEMPTY && errno != EEXIST)))
        ok = fail(task, errno, "", "deleting", error);
    if (ok && parent >= 0 && fsync(parent) != 0)
        ok = fail(task, errno, "", "syncing the directory above", error);
    if (parent >= 0)
        close(parent);
    if (ok)
        lh_task_answer(task, erased.count, -1, NULL);
    return ok;
}

/* ---- small objects, the clock ---- */

/* NULL and @error, LH_ERR_NOT_FOUND included. */
static char *small_text(LhStoreTask *task, int root, const char *name, GError **error)
{
    g_autofree char *text = g_malloc(LH_STORE_MAX_SMALL + 2);
    gsize len = 0;
    struct stat st;
    int fd = lh_open_beneath(root, name, O_RDONLY | O_NONBLOCK);
    gssize n = 1;
    if (fd < 0) {
        fail(task, errno, name, "opening", error);
        return NULL;
    }
    gboolean ok = fstat(fd, &st) == 0 && S_ISREG(st.st_mode);
    while (ok && n > 0 && len <= LH_STORE_MAX_SMALL) {
        n = read(fd, text + len, LH_STORE_MAX_SMALL + 1 - len);
        if (n < 0 && errno == EINTR)
            n = 1;
        else if (n > 0)
            len += (gsize)n;
    }
    int saved = errno;
    close(fd);
    if (n < 0) {
        fail(task, saved, name, "reading", error);
        return NULL;
    }
    if (!ok || len > LH_STORE_MAX_SMALL) {
        g_set_error(error, LH_ERROR, LH_ERR_INVALID, "%s%s: is no file of at most 64 KiB",
                    lh_task_job(task)->uri, name);
        return NULL;
    }
    text[len] = '\0';
    return g_steal_pointer(&text);
}

static char *version_of(const char *text)
{
    return g_compute_checksum_for_string(G_CHECKSUM_SHA256, text, -1);
}

static gboolean read_small(LhStoreTask *task, int root, GError **error)
{
    char *text = small_text(task, root, lh_task_job(task)->name, error);
    if (text == NULL)
        return FALSE;
    lh_task_answer(task, 1, -1, text);
    lh_task_answer_version(task, version_of(text));
    return TRUE;
}

/* The root is locked: whoever else of us writes there waits. */
static gboolean may_write(LhStoreTask *task, int root, GError **error)
{
    const LhStoreJob *job = lh_task_job(task);
    g_autoptr(GError) local = NULL;
    g_autofree char *text = NULL, *version = NULL;
    if (job->over == NULL)
        return TRUE;
    text = small_text(task, root, job->name, &local);
    if (text == NULL && !g_error_matches(local, LH_ERROR, LH_ERR_NOT_FOUND)) {
        g_propagate_error(error, g_steal_pointer(&local));
        return FALSE;
    }
    version = text == NULL ? g_strdup("") : version_of(text);
    if (strcmp(version, job->over) == 0)
        return TRUE;
    g_set_error(error, LH_ERROR, LH_ERR_CONFLICT, "%s%s: somebody else has written it", job->uri,
                job->name);
    return FALSE;
}

/* A file of its own in the root, open for writing. */
static int open_temporary(LhStoreTask *task, int root, char *name, gsize size, GError **error)
{
    g_snprintf(name, size, ".leasehold-%08x.tmp", lh_task_job(task)->seed);
    unlinkat(root, name, 0);
    int fd = openat(root, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (fd < 0)
        fail(task, errno, name, "creating", error);
    return fd;
}

static gboolean write_small(LhStoreTask *task, int root, GError **error)
{
    const LhStoreJob *job = lh_task_job(task);
    gsize len = strlen(job->text), done = 0;
    char temporary[40];
    int fd = open_temporary(task, root, temporary, sizeof temporary, error);
    if (fd < 0)
        return FALSE;
    gboolean ok = TRUE;
    while (ok && done < len) {
        gssize n = write(fd, job->text + done, len - done);
        if (n < 0 && errno != EINTR)
            ok = fail(task, errno, job->name, "writing", error);
        else if (n > 0)
            done += (gsize)n;
    }
    if (ok && fsync(fd) != 0)
        ok = fail(task, errno, job->name, "syncing", error);
    close(fd);
    while (ok && flock(root, LOCK_EX) != 0) /* until it is closed */
        ok = errno == EINTR || fail(task, errno, job->name, "locking the root", error);
    ok = ok && may_write(task, root, error);
    if (ok && !lh_task_may_change(task))
        ok = lh_task_refuse_change(task, job->name, error);
    if (ok && renameat(root, temporary, root, job->name) != 0)
        ok = fail(task, errno, job->name, "renaming", error);
    if (!ok)
        unlinkat(root, temporary, 0);
    else if (fsync(root) != 0)
        ok = fail(task, errno, job->name, "syncing the root", error);
    if (ok)
        lh_task_answer(task, 1, -1, NULL);
    return ok;
}

static gboolean read_clock(LhStoreTask *task, int root, GError **error)
{
    char temporary[40];
    struct stat st;
    int fd = open_temporary(task, root, temporary, sizeof temporary, error);
    if (fd < 0)
        return FALSE;
    gboolean ok = fstat(fd, &st) == 0 || fail(task, errno, temporary, "looking at it", error);
    close(fd);
    unlinkat(root, temporary, 0);
    if (ok)
        lh_task_answer(task, -1, modified_ms(&st), NULL);
    return ok;
}

gboolean lh_file_work(LhStoreBackend *backend G_GNUC_UNUSED, LhStoreTask *task, GError **error)
{
    const LhStoreJob *job = lh_task_job(task);
    gboolean erases = job->work == LH_STORE_ERASE || job->work == LH_STORE_ERASE_FLAT;
    gboolean ok = FALSE;
    if (job->work == LH_STORE_WALK)
        return walk_root(task, error);
    int root = open_root(task, erases ? job->root : job->uri, error);
    if (root < 0)
        return FALSE;
    switch (job->work) {
    case LH_STORE_ERASE:
    case LH_STORE_ERASE_FLAT:
        ok = erase_below(task, root, error);
        break;
    case LH_STORE_READ:
        ok = read_small(task, root, error);
        break;
    case LH_STORE_WRITE:
        ok = write_small(task, root, error);
        break;
    case LH_STORE_CLOCK:
        ok = read_clock(task, root, error);
        break;
    case LH_STORE_WALK:
        break;
    }
    close(root);
    return ok;
}
