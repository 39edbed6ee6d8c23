/*
 * The file:// backend: lists directories and copies files, without following a link.
 *
 * It must not open anything but below the root that the front has found for the uri.
 */
#include "base/errors.h"
#include "objectstore/backend.h"
#include "objectstore/beneath.h"
#include "objectstore/local_file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define CHUNK_BYTES (1024 * 1024)

static int open_source(const LhStoreJob *job, const char *name, int flags, GError **error)
{
    int root = open(job->root + strlen(LH_FILE_SCHEME), O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (root < 0) {
        lh_store_set_errno(error, errno, job->uri, "", "opening its root");
        return -1;
    }
    const char *below = job->uri + strlen(job->root);
    g_autofree char *path = *name != '\0' ? g_strconcat(below, name, NULL)
                                          : g_strndup(below, strlen(below) - 1);
    int fd = lh_open_beneath(root, path, flags);
    int saved = errno;
    close(root);
    if (fd < 0)
        lh_store_set_errno(error, saved, job->uri, name, "opening");
    return fd;
}

static gboolean list_directory(LhStoreTask *task, int fd, const char *prefix, guint depth,
                               GError **error);

/* One directory entry. @at: its directory; @name: relative to the uri. */
static gboolean list_entry(LhStoreTask *task, int at, const char *leaf, const char *name,
                           guint depth, GError **error)
{
    const char *uri = lh_task_job(task)->uri;
    struct stat st;
    if (fstatat(at, leaf, &st, AT_SYMLINK_NOFOLLOW) != 0) {
        lh_store_set_errno(error, errno, uri, name, "looking at it");
        return FALSE;
    }
    if (S_ISDIR(st.st_mode)) {
        int fd = openat(at, leaf, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0) {
            lh_store_set_errno(error, errno, uri, name, "opening");
            return FALSE;
        }
        g_autofree char *prefix = g_strconcat(name, "/", NULL);
        return list_directory(task, fd, prefix, depth + 1, error);
    }
    if (S_ISLNK(st.st_mode)) {
        g_set_error(error, LH_ERROR, LH_ERR_FORBIDDEN,
                    "%s%s: is a symbolic link, and links are not followed", uri, name);
        return FALSE;
    }
    if (!S_ISREG(st.st_mode)) {
        g_set_error(error, LH_ERROR, LH_ERR_INVALID, "%s%s: is neither a file nor a directory", uri,
                    name);
        return FALSE;
    }
    return lh_task_add_entry(task, name, st.st_size, error);
}

/* Takes @fd. */
static gboolean list_directory(LhStoreTask *task, int fd, const char *prefix, guint depth,
                               GError **error)
{
    const char *uri = lh_task_job(task)->uri;
    if (depth > LH_STORE_MAX_DEPTH) {
        close(fd);
        g_set_error(error, LH_ERROR, LH_ERR_INVALID, "%s%s: more than %d directories deep", uri,
                    prefix, LH_STORE_MAX_DEPTH);
        return FALSE;
    }
    DIR *dir = fdopendir(fd);
    if (dir == NULL) {
        int saved = errno;
        close(fd);
        lh_store_set_errno(error, saved, uri, prefix, "listing");
        return FALSE;
    }
    gboolean ok = TRUE;
    while (ok && !lh_task_cancelled(task)) {
        errno = 0;
        const struct dirent *d = readdir(dir);
        if (d == NULL) {
            if (errno != 0) {
                lh_store_set_errno(error, errno, uri, prefix, "listing");
                ok = FALSE;
            }
            break;
        }
        if (strcmp(d->d_name, ".") == 0 || strcmp(d->d_name, "..") == 0)
            continue;
        g_autofree char *name = g_strconcat(prefix, d->d_name, NULL);
        ok = list_entry(task, fd, d->d_name, name, depth, error);
    }
    closedir(dir);
    return ok;
}

static gboolean file_list(LhStoreBackend *backend G_GNUC_UNUSED, LhStoreTask *task, GError **error)
{
    int fd = open_source(lh_task_job(task), "", O_RDONLY | O_DIRECTORY, error);
    return fd >= 0 && list_directory(task, fd, "", 0, error);
}

static gboolean copy(LhStoreTask *task, int from, LhLocalFile *to, GError **error)
{
    const LhStoreJob *job = lh_task_job(task);
    g_autofree guint8 *buffer = g_malloc(CHUNK_BYTES);
    for (;;) {
        if (lh_task_cancelled(task)) {
            g_set_error(error, LH_ERROR, LH_ERR_CANCELLED, "%s%s: cancelled", job->uri, job->name);
            return FALSE;
        }
        gssize n = read(from, buffer, CHUNK_BYTES);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            lh_store_set_errno(error, errno, job->uri, job->name, "reading");
            return FALSE;
        }
        if (n == 0)
            return TRUE;
        if (!lh_local_file_write(to, lh_local_file_digested(to), buffer, (gsize)n, error))
            return FALSE;
        lh_local_file_digest(to, buffer, (gsize)n);
        lh_task_progress(task, lh_local_file_digested(to));
    }
}

static char *file_fetch(LhStoreBackend *backend G_GNUC_UNUSED, LhStoreTask *task, GError **error)
{
    const LhStoreJob *job = lh_task_job(task);
    /* O_NONBLOCK: opening a pipe must not hang; it means nothing for a regular file. */
    int from = open_source(job, job->name, O_RDONLY | O_NONBLOCK, error);
    if (from < 0)
        return NULL;
    struct stat st;
    if (fstat(from, &st) != 0 || !S_ISREG(st.st_mode)) {
        g_set_error(error, LH_ERROR, LH_ERR_INVALID, "%s%s: is not a regular file", job->uri,
                    job->name);
        close(from);
        return NULL;
    }
    g_autoptr(LhLocalFile) to = lh_local_file_new(job->to_path, error);
    char *sha256 = to != NULL && copy(task, from, to, error) ? lh_local_file_finish(to, error)
                                                             : NULL;
    close(from);
    return sha256;
}

static void file_free(LhStoreBackend *backend)
{
    g_free(backend);
}

LhStoreBackend *lh_store_file_new(void)
{
    static const LhStoreBackendVtable vtable = {
        .list = file_list,
        .fetch = file_fetch,
        .work = lh_file_work,
        .free = file_free,
    };
    LhStoreBackend *backend = g_new0(LhStoreBackend, 1);
    backend->v = &vtable;
    return backend;
}
