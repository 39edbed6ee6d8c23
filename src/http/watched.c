/*
 * Reading a small file that may change; see watched.h. Nothing here understands what is in it.
 */
#include "http/watched.h"

#include "base/errors.h"
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/crypto.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void lh_watched_init(LhWatched *file, const char *setting, const char *path)
{
    *file = (LhWatched){.setting = setting, .path = g_strdup(path)};
}

void lh_watched_clear(LhWatched *file)
{
    g_clear_pointer(&file->path, g_free);
    g_clear_pointer(&file->seen, g_free);
}

void lh_watched_free_text(char *text)
{
    if (text != NULL) {
        OPENSSL_cleanse(text, strlen(text));
        g_free(text);
    }
}

static char *refused(const LhWatched *file, const char *why, GError **error)
{
    g_set_error(error, LH_ERROR, LH_ERR_INVALID, "%s %s: %s", file->setting, file->path, why);
    return NULL;
}

/* A pipe or a device would hold up the loop. */
static char *read_all(const LhWatched *file, int fd, gsize *len, GError **error)
{
    struct stat info;
    gsize n = 0;
    if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
        return refused(file, "not a regular file", error);
    }
    if (info.st_size > LH_WATCHED_MAX_BYTES) {
        return refused(file, "longer than 1 MiB", error);
    }
    char *text = g_malloc((gsize)info.st_size + 1);
    while (n < (gsize)info.st_size) {
        ssize_t got = read(fd, text + n, (gsize)info.st_size - n);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got < 0) {
            int code = errno;
            g_free(text);
            return refused(file, g_strerror(code), error);
        }
        if (got == 0) {
            break;
        }
        n += (gsize)got;
    }
    text[n] = '\0';
    *len = n;
    return text;
}

char *lh_watched_read(LhWatched *file, gsize *len, gboolean *changed, GError **error)
{
    g_autoptr(GError) local = NULL;
    char *text = NULL;
    int fd = open(file->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0) {
        refused(file, g_strerror(errno), &local);
    } else {
        text = read_all(file, fd, len, &local);
        close(fd);
    }
    g_autofree char *now = text != NULL ? g_compute_checksum_for_data(G_CHECKSUM_SHA256,
                                                                      (const guchar *)text, *len)
                                        : g_strdup(local->message);
    if (g_strcmp0(now, file->seen) != 0) {
        *changed = TRUE;
        g_free(file->seen);
        file->seen = g_steal_pointer(&now);
    }
    if (local != NULL) {
        g_propagate_error(error, g_steal_pointer(&local));
    }
    return text;
}

void lh_watched_log(const LhWatched *file, const GError *error)
{
    if (error != NULL) {
        lh_log(LH_LOG_WARNING, "a replaced file is not taken", "setting", file->setting, "error",
               error->message, "next", "the last good one stays in force", NULL);
    } else {
        lh_log(LH_LOG_INFO, "a replaced file is in force", "setting", file->setting, "file",
               file->path, NULL);
    }
}
