/*
 * Keys to paths; see s3_names.h. Must not ask any server.
 */
#include "objectstore/s3_names.h"

#include "base/errors.h"
#include "objectstore/backend.h"
#include "objectstore/beneath.h"

#include <string.h>

#define MAX_COMPONENT_BYTES 255
#define MAX_SHOWN_BYTES     300

struct LhS3Names {
    char *uri, *prefix;
    GHashTable *names; /* of all entries, owned */
    GHashTable *dirs;  /* of all directories above them, owned */
    gboolean exists;   /* there was an object of its own for the prefix or one below it */
};

LhS3Names *lh_s3_names_new(const char *uri, const char *prefix)
{
    LhS3Names *l = g_new0(LhS3Names, 1);
    l->uri = g_strdup(uri);
    l->prefix = g_strdup(prefix);
    l->names = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
    l->dirs = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
    return l;
}

void lh_s3_names_free(LhS3Names *l)
{
    if (l == NULL)
        return;
    g_hash_table_unref(l->names);
    g_hash_table_unref(l->dirs);
    g_free(l->uri);
    g_free(l->prefix);
    g_free(l);
}

/* NULL: @name may be a file's. */
static const char *name_problem(const char *name)
{
    if (!lh_relative_path_valid(name))
        return "has an empty, \".\" or \"..\" part";
    guint depth = 0;
    gsize component = 0;
    for (const char *at = name; *at != '\0'; at++) {
        component = *at == '/' ? 0 : component + 1;
        depth += *at == '/';
        if (g_ascii_iscntrl(*at))
            return "has a control character";
        if (component > MAX_COMPONENT_BYTES)
            return "has a part of more than 255 bytes";
    }
    return depth > LH_STORE_MAX_DEPTH ? "is more than 32 directories deep" : NULL;
}

static gboolean refuse(const LhS3Names *l, const char *name, const char *why, GError **error)
{
    g_autofree char *shown = lh_error_text(name, MAX_SHOWN_BYTES);
    for (char *at = shown; *at != '\0'; at++)
        *at = g_ascii_iscntrl(*at) ? '?' : *at;
    g_set_error(error, LH_ERROR, LH_ERR_INVALID, "%s: the key below it \"%s\" %s", l->uri, shown,
                why);
    return FALSE;
}

/* An object below the prefix; @name is what follows it. */
static gboolean add_object(LhS3Names *l, const char *name, gint64 size, LhS3NameFunc func,
                           gpointer data, GError **error)
{
    gsize n = strlen(name);
    l->exists = TRUE;
    if (n == 0 || name[n - 1] == '/') { /* a directory that some tool has marked */
        if (size == 0)
            return TRUE;
        return refuse(l, name, "ends with '/', but has data", error);
    }
    const char *problem = name_problem(name);
    if (problem != NULL)
        return refuse(l, name, problem, error);
    if (!g_hash_table_add(l->names, g_strdup(name)))
        return refuse(l, name, "is listed twice", error);
    for (const char *slash = strchr(name, '/'); slash != NULL; slash = strchr(slash + 1, '/'))
        g_hash_table_add(l->dirs, g_strndup(name, (gsize)(slash - name)));
    return func(name, size, data, error);
}

gboolean lh_s3_names_add(LhS3Names *l, const LhS3Page *page, LhS3NameFunc func, gpointer data,
                         GError **error)
{
    gsize skip = strlen(l->prefix);
    for (guint i = 0; i < page->objects->len; i++) {
        const LhS3Object *object = g_ptr_array_index(page->objects, i);
        if (!g_str_has_prefix(object->key, l->prefix)) {
            g_set_error(error, LH_ERROR, LH_ERR_INVALID,
                        "%s: the listing cannot be used: it has a key that is not below it",
                        l->uri);
            return FALSE;
        }
        if (!add_object(l, object->key + skip, object->size, func, data, error))
            return FALSE;
    }
    return TRUE;
}

gboolean lh_s3_names_end(const LhS3Names *l, GError **error)
{
    if (!l->exists) {
        g_set_error(error, LH_ERROR, LH_ERR_NOT_FOUND, "%s: there is no object below it", l->uri);
        return FALSE;
    }
    GHashTableIter iter;
    gpointer dir;
    g_hash_table_iter_init(&iter, l->dirs);
    while (g_hash_table_iter_next(&iter, &dir, NULL)) {
        if (g_hash_table_contains(l->names, dir))
            return refuse(l, dir, "is an object, and has objects below it", error);
    }
    return TRUE;
}
