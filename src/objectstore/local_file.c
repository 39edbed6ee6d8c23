/*
 * A new file, its digest, and its removal unless it was finished.
 *
 * The digest needs its bytes in order; what came out of order is read back from the file, which the
 * page cache still holds.
 */
#include "objectstore/local_file.h"

#include "base/errors.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <unistd.h>

#define READ_BYTES (256 * 1024)

struct LhLocalFile {
    char *path;
    int fd;
    gboolean finished;
    EVP_MD_CTX *digest;
    gint64 digested;
    guint8 *buffer; /* for reading back; NULL until needed */
};

void lh_store_set_errno(GError **error, int saved, const char *uri, const char *name,
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

LhLocalFile *lh_local_file_new(const char *path, GError **error)
{
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (fd < 0) {
        lh_store_set_errno(error, errno, path, "", "creating");
        return NULL;
    }
    LhLocalFile *file = g_new0(LhLocalFile, 1);
    file->path = g_strdup(path);
    file->fd = fd;
    file->digest = EVP_MD_CTX_new();
    EVP_DigestInit_ex(file->digest, EVP_sha256(), NULL);
    return file;
}

gboolean lh_local_file_write(LhLocalFile *file, gint64 offset, const guint8 *data, gsize n,
                             GError **error)
{
    while (n > 0) {
        gssize w = pwrite(file->fd, data, n, offset);
        if (w < 0 && errno == EINTR)
            continue;
        if (w < 0) {
            lh_store_set_errno(error, errno, file->path, "", "writing");
            return FALSE;
        }
        data += w;
        offset += w;
        n -= (gsize)w;
    }
    return TRUE;
}

gint64 lh_local_file_digested(const LhLocalFile *file)
{
    return file->digested;
}

void lh_local_file_digest(LhLocalFile *file, const guint8 *data, gsize n)
{
    EVP_DigestUpdate(file->digest, data, n);
    file->digested += (gint64)n;
}

gboolean lh_local_file_digest_to(LhLocalFile *file, gint64 end, GError **error)
{
    if (file->buffer == NULL)
        file->buffer = g_malloc(READ_BYTES);
    while (file->digested < end) {
        gsize want = (gsize)MIN(end - file->digested, (gint64)READ_BYTES);
        gssize n = pread(file->fd, file->buffer, want, file->digested);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            lh_store_set_errno(error, errno, file->path, "", "reading back");
            return FALSE;
        }
        if (n == 0) {
            g_set_error(error, LH_ERROR, LH_ERR_IO, "%s: somebody has cut it short", file->path);
            return FALSE;
        }
        lh_local_file_digest(file, file->buffer, (gsize)n);
    }
    return TRUE;
}

static char *hex_of(EVP_MD_CTX *md)
{
    guint8 digest[EVP_MAX_MD_SIZE];
    guint n = 0;
    EVP_DigestFinal_ex(md, digest, &n);
    GString *hex = g_string_sized_new(2 * (gsize)n);
    for (guint i = 0; i < n; i++)
        g_string_append_printf(hex, "%02x", digest[i]);
    return g_string_free(hex, FALSE);
}

char *lh_local_file_finish(LhLocalFile *file, GError **error)
{
    if (fsync(file->fd) != 0) {
        lh_store_set_errno(error, errno, file->path, "", "syncing");
        return NULL;
    }
    int fd = file->fd;
    file->fd = -1;
    if (close(fd) != 0) {
        lh_store_set_errno(error, errno, file->path, "", "closing");
        return NULL;
    }
    file->finished = TRUE;
    return hex_of(file->digest);
}

void lh_local_file_free(LhLocalFile *file)
{
    if (file == NULL)
        return;
    if (file->fd >= 0)
        close(file->fd);
    if (!file->finished)
        unlink(file->path);
    EVP_MD_CTX_free(file->digest);
    g_free(file->buffer);
    g_free(file->path);
    g_free(file);
}

char *lh_local_file_digest_of(int fd, const char *path, const gint *stop, GError **error)
{
    g_autofree guint8 *buffer = g_malloc(READ_BYTES);
    EVP_MD_CTX *md = EVP_MD_CTX_new();
    EVP_DigestInit_ex(md, EVP_sha256(), NULL);
    gssize n = 1;
    while (n > 0 && g_atomic_int_get(stop) == 0) {
        n = read(fd, buffer, READ_BYTES);
        if (n < 0 && errno == EINTR)
            n = 1;
        else if (n > 0)
            EVP_DigestUpdate(md, buffer, (gsize)n);
    }
    char *hex = n == 0 ? hex_of(md) : NULL;
    if (n < 0)
        lh_store_set_errno(error, errno, path, "", "reading");
    else if (n > 0)
        g_set_error(error, LH_ERROR, LH_ERR_CANCELLED, "%s: cancelled", path);
    EVP_MD_CTX_free(md);
    return hex;
}
