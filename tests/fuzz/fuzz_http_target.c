/*
 * Request targets of any text: what is accepted is a path that no two readers understand differently, and
 * reads the same when every byte of it is escaped.
 */
#include "http/internal.h"
#include "tests/fuzz/fuzz.h"

#include <string.h>

static void append_escaped(GString *out, const char *text, gboolean path)
{
    for (; *text != '\0'; text++)
        if (path && *text == '/')
            g_string_append_c(out, '/');
        else
            g_string_append_printf(out, "%%%02x", (guint8)*text);
}

static void check_path(const char *path)
{
    g_auto(GStrv) parts = g_strsplit(path, "/", -1);
    guint n = g_strv_length(parts);

    FUZZ_CHECK(path[0] == '/' && g_utf8_validate(path, -1, NULL), "%s", path);
    for (const char *p = path; *p != '\0'; p++)
        FUZZ_CHECK(!g_ascii_iscntrl(*p), "control character in %s", path);
    for (guint i = 1; i < n; i++)
        FUZZ_CHECK((*parts[i] != '\0' || i == n - 1) && strcmp(parts[i], ".") != 0 &&
                       strcmp(parts[i], "..") != 0,
                   "%s", path);
}

/* A proxy that does not decode sees as many parts. */
static void check_parts(const char *target, const char *path)
{
    g_autofree char *raw = g_strndup(target, strcspn(target, "?"));
    g_auto(GStrv) before = g_strsplit(raw, "/", -1), after = g_strsplit(path, "/", -1);

    FUZZ_CHECK(g_strv_length(before) == g_strv_length(after), "%s, %s", raw, path);
}

static void check_escaped(const char *path, const GPtrArray *query)
{
    g_autoptr(GString) target = g_string_new(NULL);
    g_autofree char *again = NULL;
    g_autoptr(GPtrArray) params = NULL;
    const char *why = NULL;

    append_escaped(target, path, TRUE);
    for (guint i = 0; i < query->len; i += 2) {
        g_string_append_c(target, i == 0 ? '?' : '&');
        append_escaped(target, query->pdata[i], FALSE);
        g_string_append_c(target, '=');
        append_escaped(target, query->pdata[i + 1], FALSE);
    }
    FUZZ_CHECK(lh_http_target_parse(target->str, &again, &params, &why), "%s: %s", target->str,
               why);
    FUZZ_CHECK(strcmp(path, again) == 0, "%s, %s", path, again);
    FUZZ_CHECK(params->len == query->len, "%u, %u", params->len, query->len);
    for (guint i = 0; i < query->len; i++)
        FUZZ_CHECK(strcmp(params->pdata[i], query->pdata[i]) == 0, "%s", target->str);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    FuzzBytes bytes = {data, size};
    gsize len = 0;
    g_autofree char *target = fuzz_rest(&bytes, &len), *path = NULL;
    g_autoptr(GPtrArray) query = NULL;
    const char *why = NULL;

    if (!lh_http_target_parse(target, &path, &query, &why)) {
        FUZZ_CHECK(path == NULL && query == NULL, "outputs although refused");
        fuzz_check_message(why);
        return 0;
    }
    check_path(path);
    check_parts(target, path);
    FUZZ_CHECK(query->len % 2 == 0 && query->len <= 2 * HTTP_MAX_QUERY, "%u", query->len);
    for (guint i = 0; i < query->len; i++)
        FUZZ_CHECK(g_utf8_validate(query->pdata[i], -1, NULL), "query");
    check_escaped(path, query);
    return 0;
}
