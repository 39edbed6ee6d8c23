/*
 * JSONPath templates on JSON: the first line is the template, the rest what it is applied to. Evaluating
 * changes nothing and gives the same twice; names, indexes and stars give what a slow walk finds; a path is
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

/* ---- the plain part of the language, once more ---- */

/* One step at *@p: ".name", ".*", "[*]", "[7]", "[-7]". False: another, or none. */
static gboolean slow_step(const char **p, char **name, gint64 *index, gboolean *all)
{
    const char *start = *p + 1;
    gsize len;

    *name = NULL;
    *all = start[0] == '*';
    if (**p == '.') {
        len = *all ? 1
                   : strspn(start,
                            "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_");
        *name = *all ? NULL : g_strndup(start, len);
    } else if (**p == '[') {
        gsize digits = strspn(start + (*start == '-'), "0123456789");
        len = *all ? 1 : digits + (*start == '-');
        if ((!*all && (digits == 0 || digits > 9)) || start[len] != ']')
            return FALSE;
        *index = g_ascii_strtoll(start, NULL, 10);
        len++;
    } else {
        return FALSE;
    }
    *p = start + len;
    return len > 0;
}

static void slow_walk(const char *path, const cJSON *value, GString *out, guint *found)
{
    g_autofree char *name = NULL;
    gint64 index = 0, n = 0;
    gboolean all = FALSE;

    if (*path == '\0') {
        g_string_append(out, (*found)++ == 0 ? "" : " ");
        if (cJSON_IsString(value)) {
            g_string_append(out, value->valuestring);
        } else if (!cJSON_IsNull(value)) {
            g_autofree char *text = lh_json_print(value);
            g_string_append(out, text);
        }
        return;
    }
    (void)slow_step(&path, &name, &index, &all);
    if ((name != NULL && !cJSON_IsObject(value)) || (name == NULL && !all && !cJSON_IsArray(value)))
        return;
    if (index < 0)
        index += cJSON_GetArraySize(value);
    for (const cJSON *child = value->child; child != NULL; child = child->next, n++)
        if (all || (name == NULL ? n == index : strcmp(child->string, name) == 0))
            slow_walk(path, child, out, found);
}

static gboolean is_plain(const char *template)
{
    const char *p = template;
    gint64 index;
    gboolean all, good = *p == '.';

    while (good && *p != '\0') {
        g_autofree char *name = NULL;
        good = slow_step(&p, &name, &index, &all);
    }
    return good;
}

static void check_plain(const char *template, const cJSON *root, const char *found)
{
    g_autoptr(GString) expected = g_string_new(NULL);
    guint n = 0;

    slow_walk(template, root, expected, &n);
    FUZZ_CHECK(strcmp(expected->str, found) == 0, "%s: \"%s\", not \"%s\"", template, found,
               expected->str);
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
    g_autofree char *before = lh_json_print(root), *after = NULL, *first = NULL, *second = NULL,
                    *bare = NULL;
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
    bare = *template == '{' && g_str_has_suffix(template, "}")
               ? g_strndup(template + 1, strlen(template) - 2)
               : g_strdup(template);
    if (is_plain(bare))
        check_plain(bare, root, first);
    if (strchr(template, '{') == NULL && *template == '.')
        check_spellings(template, root, first);
    return 0;
}
