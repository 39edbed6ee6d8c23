/*
 * The object store's front: which uris may be touched at all, and which backend serves them.
 *
 * It must not open anything: that a uri lies below a root as text says nothing about symbolic
 * links, which are the backend's to refuse.
 */
#include "objectstore/objectstore.h"

#include "base/errors.h"
#include "objectstore/backend.h"
#include "objectstore/beneath.h"

#include <string.h>

LhStoreOp lh_store_list(LhObjectStore *store, const char *uri, LhStoreListFunc func, gpointer data)
{
    return store->v->list(store, uri, func, data);
}

LhStoreOp lh_store_fetch(LhObjectStore *store, const char *uri, const char *name,
                         const char *to_path, LhStoreProgressFunc progress, LhStoreFetchFunc func,
                         gpointer data)
{
    return store->v->fetch(store, uri, name, to_path, progress, func, data);
}

void lh_store_cancel(LhObjectStore *store, LhStoreOp *op)
{
    if (*op != 0)
        store->v->cancel(store, *op);
    *op = 0;
}

void lh_store_free(LhObjectStore *store)
{
    if (store != NULL)
        store->v->free(store);
}

/* The path in "file:///dir/sub/" or "s3://bucket/key/": what follows the scheme (and file's '/'),
 * without the trailing '/'. NULL: not such a uri. "" is the whole file system. */
static char *uri_path(const char *uri)
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
    g_autofree char *path = uri_path(uri);
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

gboolean lh_store_uri_permitted(const char *uri, const char *const *roots, GError **error)
{
    if (g_str_has_prefix(uri, LH_S3_SCHEME)) {
        g_set_error(error, LH_ERROR, LH_ERR_INVALID, "%s: s3:// is not supported by this build",
                    uri);
        return FALSE;
    }
    g_autofree char *path = uri_path(uri);
    if (path == NULL) {
        g_set_error(
            error, LH_ERROR, LH_ERR_INVALID,
            "%s: must be file:///dir/ with a '/' at its end and no empty, \".\" or \"..\" part",
            uri);
        return FALSE;
    }
    if (lh_store_root_of(uri, roots) == NULL) {
        g_set_error(error, LH_ERROR, LH_ERR_FORBIDDEN, "%s: not below any of objectStore.roots",
                    uri);
        return FALSE;
    }
    return TRUE;
}

LhObjectStore *lh_objectstore_new(LhEnv *env G_GNUC_UNUSED, const LhObjectStoreOptions *options,
                                  GError **error)
{
    const char *const *roots = options->roots;
    g_autoptr(GPtrArray) normal = g_ptr_array_new_with_free_func(g_free);
    for (gsize i = 0; roots != NULL && roots[i] != NULL; i++) {
        char *root = g_str_has_suffix(roots[i], "/") ? g_strdup(roots[i])
                                                     : g_strconcat(roots[i], "/", NULL);
        g_ptr_array_add(normal, root);
        g_autofree char *path = uri_path(root);
        if (path == NULL) {
            g_set_error(error, LH_ERROR, LH_ERR_INVALID,
                        "objectStore.roots: %s: must be file:///dir/ or s3://bucket/key/",
                        roots[i]);
            return NULL;
        }
    }
    g_ptr_array_add(normal, NULL);
    return lh_store_file_new((char **)g_ptr_array_free(g_steal_pointer(&normal), FALSE));
}
