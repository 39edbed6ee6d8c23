/*
 * What errors and warnings about a value say: where it is, and a safe piece of what it is.
 *
 * Values and names come from outside and may be long or hostile: they are printed cut, escaped,
 * without control characters.
 */
#include "api/codec.h"
#include "base/errors.h"

#include <string.h>

#define QUOTED_BYTES 64

/* Length of the first @max bytes of valid UTF-8, without half a character. */
static gsize cut_length(const char *text, gsize max)
{
    gsize len = strnlen(text, max + 1);
    if (len <= max)
        return len;
    len = max;
    while (len > 0 && ((guchar)text[len] & 0xc0) == 0x80)
        len--;
    return len;
}

char *lh_quote(const char *text)
{
    gsize len = cut_length(text, QUOTED_BYTES);
    g_autofree char *head = g_strndup(text, len);
    GString *out = g_string_new(NULL);
    lh_json_append_string(out, head);
    if (text[len] != '\0')
        g_string_append(out, "…");
    return g_string_free(out, FALSE);
}

static void append_path_name(GString *out, const char *name)
{
    gsize len = cut_length(name, QUOTED_BYTES);
    for (gsize i = 0; i < len; i++)
        g_string_append_c(out, g_ascii_iscntrl(name[i]) ? '?' : name[i]);
    if (name[len] != '\0')
        g_string_append(out, "…");
}

static void append_path(GString *out, const LhPath *path)
{
    if (path->up != NULL)
        append_path(out, path->up);
    if (path->name == NULL) {
        g_string_append_printf(out, "[%u]", path->index);
        return;
    }
    if (out->len > 0)
        g_string_append_c(out, '.');
    append_path_name(out, path->name);
}

char *lh_path_text(const LhPath *path)
{
    GString *out = g_string_new(NULL);
    if (path != NULL)
        append_path(out, path);
    return g_string_free(out, FALSE);
}

void lh_unknown_add(LhUnknown *unknown, const LhPath *path)
{
    if (unknown->n++ == 0)
        unknown->first = lh_path_text(path);
}

char *lh_unknown_text(const LhUnknown *unknown)
{
    if (unknown->n == 0)
        return NULL;
    if (unknown->n == 1)
        return g_strdup_printf("unknown field %s", unknown->first);
    return g_strdup_printf("unknown field %s and %u more", unknown->first, unknown->n - 1);
}

gboolean lh_refuse(GError **error, const LhPath *path, const char *format, ...)
{
    if (error == NULL)
        return FALSE;
    va_list args;
    va_start(args, format);
    g_autofree char *why = g_strdup_vprintf(format, args);
    va_end(args);
    g_autofree char *where = lh_path_text(path);
    g_set_error(error, LH_ERROR, LH_ERR_INVALID, "%s%s%s", where, *where != '\0' ? ": " : "", why);
    return FALSE;
}
