/*
 * The request target: strict percent-decoding of path and query. Pure.
 *
 * A path that two readers could understand differently is refused, not repaired: handlers may use
 * what they get as a key or below a directory without looking at it again.
 */
#include "http/internal.h"

#include <string.h>

/* Decodes [text, end) into a new string; NULL and *why when it must be refused. */
static char *decode(const char *text, const char *end, gboolean query, const char **why)
{
    g_autoptr(GString) out = g_string_sized_new((gsize)(end - text));
    for (const char *p = text; p < end; p++) {
        char c = *p;
        if (c == '%') {
            if (end - p < 3 || !g_ascii_isxdigit(p[1]) || !g_ascii_isxdigit(p[2])) {
                *why = "bad percent-escape";
                return NULL;
            }
            c = (char)(g_ascii_xdigit_value(p[1]) * 16 + g_ascii_xdigit_value(p[2]));
            p += 2;
            if (c == '\0' || (!query && c == '/')) {
                *why = c == '\0' ? "%00 is not allowed" : "%2F is not allowed in a path";
                return NULL;
            }
        } else if (c == '+' && query) {
            c = ' ';
        }
        if (!query && (g_ascii_iscntrl(c) || c == 0x7f)) {
            *why = "control character in the path";
            return NULL;
        }
        g_string_append_c(out, c);
    }
    if (!g_utf8_validate(out->str, (gssize)out->len, NULL)) {
        *why = "not valid UTF-8";
        return NULL;
    }
    return g_string_free(g_steal_pointer(&out), FALSE);
}

static gboolean segments_fit(const char *path, const char **why)
{
    for (const char *segment = path + 1;;) {
        const char *end = strchrnul(segment, '/');
        gsize len = (gsize)(end - segment);
        if ((len == 1 && segment[0] == '.') || (len == 2 && memcmp(segment, "..", 2) == 0)) {
            *why = "\".\" and \"..\" are not allowed in a path";
            return FALSE;
        }
        if (*end == '\0') {
            return TRUE;
        }
        if (len == 0) {
            *why = "empty segment in the path";
            return FALSE;
        }
        segment = end + 1;
    }
}

static gboolean query_parse(const char *text, GPtrArray *query, const char **why)
{
    while (*text != '\0') {
        const char *end = strchrnul(text, '&');
        const char *equals = memchr(text, '=', (gsize)(end - text));
        if (end > text) {
            g_autofree char *name = decode(text, equals != NULL ? equals : end, TRUE, why);
            g_autofree char *value = name == NULL     ? NULL
                                     : equals == NULL ? g_strdup("")
                                                      : decode(equals + 1, end, TRUE, why);
            if (value == NULL) {
                return FALSE;
            }
            if (query->len >= 2 * HTTP_MAX_QUERY) {
                *why = "too many query parameters";
                return FALSE;
            }
            g_ptr_array_add(query, g_steal_pointer(&name));
            g_ptr_array_add(query, g_steal_pointer(&value));
        }
        text = *end == '&' ? end + 1 : end;
    }
    return TRUE;
}

gboolean lh_http_target_parse(const char *target, char **path, GPtrArray **query, const char **why)
{
    if (target[0] != '/') {
        *why = "the request target must be a path";
        return FALSE;
    }
    const char *end = strchrnul(target, '?');
    g_autofree char *decoded = decode(target, end, FALSE, why);
    g_autoptr(GPtrArray) params = g_ptr_array_new_with_free_func(g_free);
    if (decoded == NULL || !segments_fit(decoded, why) ||
        !query_parse(*end == '?' ? end + 1 : end, params, why)) {
        return FALSE;
    }
    *path = g_steal_pointer(&decoded);
    *query = g_steal_pointer(&params);
    return TRUE;
}
