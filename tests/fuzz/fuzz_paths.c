/*
 * Uris, paths and keys: first line a root, second a uri, key or path. What is permitted is what plain
 * rules over the parts permit, and nothing that is said to lie below a root leaves it when the path is
 * resolved.
 */
#include "api/kind.h"
#include "api/published.h"
#include "objectstore/beneath.h"
#include "objectstore/objectstore.h"
#include "tests/fuzz/fuzz.h"

#include <string.h>

/* Not empty, and no part empty, "." or "..". */
static gboolean parts_good(const char *path)
{
    g_auto(GStrv) parts = g_strsplit(path, "/", -1);

    for (guint i = 0; parts[i] != NULL; i++)
        if (*parts[i] == '\0' || strcmp(parts[i], ".") == 0 || strcmp(parts[i], "..") == 0)
            return FALSE;
    return *path != '\0';
}

static void check_relative(const char *path)
{
    FUZZ_CHECK(lh_relative_path_valid(path) == (strlen(path) <= 4095 && parts_good(path)), "%s",
               path);
}

static gboolean has_control(const char *text)
{
    for (; *text != '\0'; text++)
        if (g_ascii_iscntrl(*text))
            return TRUE;
    return FALSE;
}

static void check_uri(const char *uri)
{
    GError *error = NULL;
    gboolean good = lh_uri_check(uri, &error);
    gboolean s3 = g_str_has_prefix(uri, "s3://");
    const char *rest = s3 ? uri + 5 : g_str_has_prefix(uri, "file:///") ? uri + 8 : NULL;
    gboolean expected = rest != NULL && g_str_has_suffix(rest, "/") && strstr(uri, "..") == NULL &&
                        !has_control(uri);

    if (expected) {
        g_autofree char *path = g_strndup(rest, strlen(rest) - 1);
        expected = parts_good(path) && (!s3 || strchr(path, '/') != NULL);
        FUZZ_CHECK(good == expected, "uri %s", uri);
        FUZZ_CHECK(!good || strlen(path) > 4095 || lh_relative_path_valid(path),
                   "the object store refuses %s", uri);
    } else {
        FUZZ_CHECK(!good, "uri %s", uri);
    }
    if (!good)
        fuzz_check_error(error);
}

/* What a kernel, or anybody who resolves "..", would make of it. */
static char *resolved(const char *uri)
{
    const char *path = g_str_has_prefix(uri, "file://") ? uri + 7
                       : g_str_has_prefix(uri, "s3://") ? uri + 4
                                                        : "/";
    g_autofree char *plain = g_canonicalize_filename(path, "/");

    return g_str_has_suffix(plain, "/") ? g_steal_pointer(&plain) : g_strconcat(plain, "/", NULL);
}

static void check_below(const char *root, const char *uri)
{
    const char *const roots[] = {root, NULL};
    const char *const none[] = {NULL};

    FUZZ_CHECK(!lh_store_uri_below(uri, none) && !lh_store_uri_below(uri, NULL), "%s", uri);
    if (!g_str_has_prefix(root, "file:///") && !g_str_has_prefix(root, "s3://"))
        return; /* no root at all: refused at the start */
    g_autofree char *above = resolved(root), *below = resolved(uri);
    gboolean said = lh_store_uri_below(uri, roots);
    FUZZ_CHECK(!said || (g_str_has_prefix(below, above) && strlen(below) > strlen(above)),
               "%s is said to lie below %s", uri, root);
    if (lh_uri_check(root, NULL) && lh_uri_check(uri, NULL))
        FUZZ_CHECK(said == (g_str_has_prefix(uri, root) && strlen(uri) > strlen(root)),
                   "%s below %s", uri, root);
}

static void check_key(const char *key)
{
    LhKind kind = LH_N_KINDS;
    const char *name = NULL;

    if (!lh_key_split(key, &kind, &name)) {
        FUZZ_CHECK(kind == LH_N_KINDS && name == NULL, "%s", key);
        return;
    }
    g_autofree char *again = lh_key(kind, name);
    FUZZ_CHECK(strcmp(key, again) == 0, "%s, %s", key, again);
    /* Names are part of paths, too: of a cache's directories. */
    FUZZ_CHECK(!lh_kind_name_valid(kind, name) || parts_good(name), "name %s", name);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    FuzzBytes bytes = {data, size};
    g_autofree char *root = fuzz_line(&bytes);
    g_autofree char *text = fuzz_line(&bytes);

    check_uri(root);
    check_uri(text);
    check_below(root, text);
    check_relative(root);
    check_relative(text);
    check_key(text);
    return 0;
}
