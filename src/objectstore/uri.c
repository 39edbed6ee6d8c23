/*
 * Which uris may be touched at all: file:// and s3://, below the roots that were given.
 *
 * It must not open anything: that a uri lies below a root as text says nothing about symbolic
 * links, which are the backend's to refuse.
 */
#include "base/errors.h"
#include "objectstore/backend.h"
#include "objectstore/beneath.h"

#include <string.h>

char *lh_store_uri_path(const char *uri)
{
    const char *rest;
    if (g_str_has_prefix(uri, LH_FILE_SCHEME "/"))
        rest = uri + strlen(LH_FILE_SCHEME "/");
    else if (g_str_has_prefix(uri, LH_S3_SCHEME))
        rest = uri + strlen(LH_S3_SCHEME);
    else
        return NULL;
    gsize n = strlen(rest);
    if (n == 0)
        return g_str_has_prefix(uri, LH_FILE_SCHEME) ? g_strdup("") : NULL;
    if (rest[n - 1] != '/')
        return NULL;
    g_autofree char *path = g_strndup(rest, n - 1);
    return lh_relative_path_valid(path) ? g_steal_pointer(&path) : NULL;
}

const char *lh_store_root_of(const char *uri, const char *const *roots)
{
    g_autofree char *path = lh_store_uri_path(uri);
    if (path == NULL)
        return NULL;
    for (gsize i = 0; roots != NULL && roots[i] != NULL; i++) {
        gsize n = strlen(roots[i]);
        if (strncmp(uri, roots[i], n) != 0)
            continue;
        if (roots[i][n - 1] == '/' && uri[n] != '\0')
            return roots[i];
        if (roots[i][n - 1] != '/' && uri[n] == '/' && uri[n + 1] != '\0')
            return roots[i];
    }
    return NULL;
}

gboolean lh_store_uri_below(const char *uri, const char *const *roots)
{
    return lh_store_root_of(uri, roots) != NULL;
}

gboolean lh_store_roots_deletable(const char *const *roots, GError **error)
{
    for (gsize i = 0; roots[i] != NULL; i++) {
        if (strcmp(roots[i], LH_FILE_SCHEME "/") == 0) {
            g_set_error(
                error, LH_ERROR, LH_ERR_INVALID,
                "%s: is the whole file system; name the directory that holds snapshots only",
                roots[i]);
            return FALSE;
        }
        for (gsize k = 0; roots[k] != NULL; k++) {
            if (i == k || !g_str_has_prefix(roots[i], roots[k]))
                continue;
            g_set_error(error, LH_ERROR, LH_ERR_INVALID,
                        "%s: %s %s, another root: data would be deleted as nobody's", roots[i],
                        strcmp(roots[i], roots[k]) == 0 ? "equals" : "lies in", roots[k]);
            return FALSE;
        }
    }
    return TRUE;
}

gboolean lh_store_work_permitted(LhStoreWork work, const char *uri, const char *const *roots,
                                 GError **error)
{
    gboolean erases = work == LH_STORE_ERASE || work == LH_STORE_ERASE_FLAT;
    g_autofree char *path = lh_store_uri_path(uri);

    if (erases && path != NULL && lh_store_root_of(uri, roots) == NULL) {
        g_set_error(error, LH_ERROR, LH_ERR_FORBIDDEN,
                    "%s: not strictly below any of objectStore.roots: never deleted", uri);
        return FALSE;
    }
    for (gsize i = 0; erases && path != NULL && roots != NULL && roots[i] != NULL; i++)
        if (g_str_has_prefix(roots[i], uri)) {
            g_set_error(error, LH_ERROR, LH_ERR_FORBIDDEN, "%s: holds a root: never deleted", uri);
            return FALSE;
        }
    if (erases)
        return lh_store_uri_permitted(uri, roots, error);
    if (roots != NULL && g_strv_contains(roots, uri))
        return TRUE;
    g_set_error(error, LH_ERROR, LH_ERR_FORBIDDEN, "%s: is none of objectStore.roots", uri);
    return FALSE;
}

gboolean lh_store_uri_permitted(const char *uri, const char *const *roots, GError **error)
{
    gboolean is_s3 = g_str_has_prefix(uri, LH_S3_SCHEME);
    g_autofree char *path = lh_store_uri_path(uri);
    if (path == NULL || (is_s3 && strchr(path, '/') == NULL)) {
        g_set_error(error, LH_ERROR, LH_ERR_INVALID,
                    "%s: must be file:///dir/ or s3://bucket/key/ with a '/' at its end and no "
                    "empty, \".\" or \"..\" part",
                    uri);
        return FALSE;
    }
    if (is_s3 && (roots == NULL || roots[0] == NULL))
        return TRUE;
    if (lh_store_root_of(uri, roots) == NULL) {
        g_set_error(error, LH_ERROR, LH_ERR_FORBIDDEN, "%s: not below any of objectStore.roots",
                    uri);
        return FALSE;
    }
    return TRUE;
}
