/*
 * Opening what lies strictly below a directory, without following symbolic links.
 *
 * Any thread. openat2(RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS) where the kernel has it, else one
 * openat(O_NOFOLLOW) for each component. Paths are taken literally: nothing is decoded.
 */
#pragma once

#include <glib.h>

/* True for "a", "a/b/c": no empty, "." or ".." component, no NUL (by type), at most 4,095 bytes. */
gboolean lh_relative_path_valid(const char *path);

/* Opens @path below @dirfd (an open directory) with @flags of open(2); O_CLOEXEC and O_NOFOLLOW are
 * added. Returns a descriptor, or -1 with errno: EINVAL for a path that is not valid, ELOOP or
 * EXDEV for one that leads through a symbolic link or out of the directory. */
int lh_open_beneath(int dirfd, const char *path, int flags);
