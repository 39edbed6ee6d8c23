/*
 * Opening below a directory without following symbolic links: openat2, or component by component.
 *
 * Nothing here may follow a link or leave the directory, whatever an attacker who can write below
 * it does while a call runs.
 */
#include "objectstore/beneath.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MAX_PATH_BYTES 4095

gboolean lh_relative_path_valid(const char *path)
{
    if (strlen(path) > MAX_PATH_BYTES)
        return FALSE;
    for (;;) {
        gsize n = strcspn(path, "/");
        if (n == 0 || (n == 1 && path[0] == '.') || (n == 2 && path[0] == '.' && path[1] == '.'))
            return FALSE;
        if (path[n] == '\0')
            return TRUE;
        path += n + 1;
    }
}

/* A symbolic link where a directory must be says ENOTDIR here and ELOOP to openat2: the same word for both. */
static int link_errno(int dirfd, const char *component, int error)
{
    struct stat status;

    if (error == ENOTDIR && fstatat(dirfd, component, &status, AT_SYMLINK_NOFOLLOW) == 0 &&
        S_ISLNK(status.st_mode))
        return ELOOP;
    return error;
}

static int open_by_component(int dirfd, const char *path, int flags)
{
    int at = dirfd;
    for (;;) {
        gsize n = strcspn(path, "/");
        gboolean last = path[n] == '\0';
        g_autofree char *component = g_strndup(path, n);
        int fd = openat(at, component,
                        last ? flags : O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        int saved = fd < 0 ? link_errno(at, component, errno) : 0;
        if (at != dirfd)
            close(at);
        errno = saved;
        if (fd < 0 || last)
            return fd;
        at = fd;
        path += n + 1;
    }
}

int lh_open_beneath(int dirfd, const char *path, int flags)
{
    if (!lh_relative_path_valid(path)) {
        errno = EINVAL;
        return -1;
    }
    flags |= O_CLOEXEC | O_NOFOLLOW;
    struct open_how how = {
        .flags = (guint64)(guint)flags,
        .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS,
    };
    long fd = syscall(SYS_openat2, dirfd, path, &how, sizeof how);
    /* EPERM: a container's seccomp filter that does not know the call. EAGAIN: a rename raced. */
    if (fd < 0 && (errno == ENOSYS || errno == EPERM || errno == EAGAIN))
        return open_by_component(dirfd, path, flags);
    return (int)fd;
}
