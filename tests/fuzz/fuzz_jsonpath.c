/*
 * JSONPath templates on JSON: the first line is the template, the rest what it is applied to. Evaluating
 * changes nothing and gives the same twice; paths of names alone give what a plain walk finds; a path is
 * the same with and without braces, `$` and `@`.
 */
#include "base/json.h"
#include "cli/jsonpath.h"
#include "tests/fuzz/fuzz.h"

#include <string.h>

#define MAX_RANGES 3 /* each may go over the whole once more: what they write grows as a power */

static char *eval(const LhJsonPath *path, const cJSON *root)
{
    GString *out = g_string_new(NULL);

    lh_jsonpath_eval(path, root, out);
    return g_string_free(out, FALSE);
}

static char *eval_text(const char *template, const cJSON *root)
{
    g_autoptr(GError) error = NULL;
    g_autoptr(LhJsonPath) path = lh_jsonpath_new(template, &error);

    FUZZ_CHECK(path != NULL, "%s: %s", template, error->message);
    return eval(path, root);
}

/* ".a.b" and nothing else. */
static gboolean is_plain(const char *template)
{
    if (*template != '.' || strstr(template, "..") != NULL || g_str_has_suffix(template, "."))
        return FALSE;
    for (const char *p = template; *p != '\0'; p++)
        if (!g_ascii_isalnum(*p) && *p != '.' && *p != '_')
            return FALSE;
    return TRUE;
}

static void check_plain(const char *template, const cJSON *root, const char *found)
{
    g_auto(GStrv) names = g_strsplit(template + 1, ".", -1);
    g_autofree char *expected = NULL;
    const cJSON *value = root;

    for (guint i = 0; names[i] != NULL; i++)
        value = cJSON_IsObject(value) ? cJSON_GetObjectItemCaseSensitive(value, names[i]) : NULL;
    if (value == NULL || cJSON_IsNull(value))
        expected = g_strdup("");
    else
        expected = cJSON_IsString(value) ? g_strdup(value->valuestring) : lh_json_print(value);
    FUZZ_CHECK(strcmp(expected, found) == 0, "%s: \"%s\", not \"%s\"", template, found, expected);
}

/* One path without braces. */
static void check_spellings(const char *template, const cJSON *root, const char *found)
{
    static const char *const formats[] = {"{%s}", "{ %s }", "x{%s}"};

    for (guint i = 0; i < G_N_ELEMENTS(formats); i++) {
        g_auto(GStrv) around = g_strsplit(formats[i], "%s", 2);
        g_autofree char *spelled = g_strconcat(around[0], template, around[1], NULL);
        g_autofree char *out = eval_text(spelled, root);
        FUZZ_CHECK(strcmp(out + (*around[0] == 'x'), found) == 0, "%s: %s", spelled, out);
    }
    if (*template == '.') {
        g_autofree char *dollar = g_strconcat("{$", template, "}", NULL);
        g_autofree char *out = eval_text(dollar, root);
        FUZZ_CHECK(strcmp(out, found) == 0, "%s: %s", dollar, out);
    }
}

static guint count(const char *text, const char *word)
{
    guint n = 0;

    for (; (text = strstr(text, word)) != NULL; text++)
        n++;
    return n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    FuzzBytes bytes = {data, size};
    g_autofree char *template = fuzz_line(&bytes);
    gsize len = 0;
    g_autofree char *text = fuzz_rest(&bytes, &len);
    g_autoptr(cJSON) root = lh_json_parse(text, len, LH_JSON_MAX_BYTES, NULL);
    g_autofree char *before = lh_json_print(root), *after = NULL, *first = NULL, *second = NULL;
    g_autoptr(GError) error = NULL;
    g_autoptr(LhJsonPath) path = NULL;

    if (count(template, "range") > MAX_RANGES)
        return 0;
    path = lh_jsonpath_new(template, &error);
    FUZZ_CHECK((path == NULL) == (error != NULL), "%s", template);
    if (path == NULL || root == NULL)
        return 0;
    first = eval(path, root);
    second = eval(path, root);
    after = lh_json_print(root);
    FUZZ_CHECK(strcmp(first, second) == 0, "%s, then %s", first, second);
    FUZZ_CHECK(strcmp(before, after) == 0, "changed to %s", after);
    if (is_plain(template))
        check_plain(template, root, first);
    if (strchr(template, '{') == NULL && *template == '.')
        check_spellings(template, root, first);
    return 0;
}
