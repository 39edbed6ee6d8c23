/*
 * Label selectors: first line a selector, second a key, the rest its value. A selector selects what each
 * of its terms selects, a term and its opposite never agree, and what is not known is never selected.
 */
#include "http/api_internal.h"
#include "tests/fuzz/fuzz.h"

#include <string.h>

/* -1: refused. */
static int select_one(const char *text, const LhObject *object)
{
    g_autoptr(GError) error = NULL;
    LhSelector *selector = lh_selector_parse(text, &error);
    gboolean matches;

    FUZZ_CHECK((selector == NULL) == (error != NULL), "%s", text);
    if (selector == NULL) {
        fuzz_check_error(g_steal_pointer(&error));
        return -1;
    }
    matches = lh_selector_match(selector, object);
    FUZZ_CHECK(!lh_selector_match(selector, NULL), "%s selects nothing at all", text);
    lh_selector_free(selector);
    return matches != FALSE;
}

/* The same key with the opposite relation; NULL when @term does not say it in one way only. */
static char *opposite(const char *term)
{
    const char *equal = strchr(term, '=');

    if (equal == NULL)
        return *term == '!' ? g_strdup(term + 1) : g_strconcat("!", term, NULL);
    if (strchr(equal + 1, '=') != NULL || strchr(term, '!') != NULL)
        return NULL;
    return g_strdup_printf("%.*s!=%s", (int)(equal - term), term, equal + 1);
}

static void check_terms(const char *text, const LhObject *object, int whole)
{
    g_auto(GStrv) terms = g_strsplit(text, ",", -1);
    int all = 1;

    for (guint i = 0; terms[i] != NULL; i++) {
        g_autofree char *term = g_strdup(g_strstrip(terms[i]));
        g_autofree char *other = opposite(term);
        int one = *term == '\0' && g_strv_length(terms) > 1 ? -1 : select_one(term, object);
        all = all < 0 || one < 0 ? -1 : all && one;
        if (*term != '\0' && one >= 0 && other != NULL && *other != '\0' && *other != '!' &&
            lh_object_known(object)) {
            int turned = select_one(other, object);
            FUZZ_CHECK(turned < 0 || turned != one, "\"%s\" and \"%s\" agree", term, other);
        }
    }
    FUZZ_CHECK(all == whole, "\"%s\": %d, its terms %d", text, whole, all);
}

/* Each label, asked for by itself. */
static void check_labels(const LhObject *object)
{
    const LhStrMap *labels = lh_object_labels(object);

    for (guint i = 0; i < labels->n; i++) {
        const char *key = labels->pairs[2 * i], *value = labels->pairs[2 * i + 1];
        g_autofree char *term = g_strconcat(key, "=", value, NULL);
        if (*key == '\0' || strpbrk(key, "=!,") != NULL || strpbrk(value, "=!,") != NULL ||
            g_ascii_isspace(*key) || g_ascii_isspace(key[strlen(key) - 1]) ||
            g_ascii_isspace(*value) ||
            (*value != '\0' && g_ascii_isspace(value[strlen(value) - 1])))
            continue;
        FUZZ_CHECK(select_one(term, object) == 1, "\"%s\" does not select its object", term);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    FuzzBytes bytes = {data, size};
    g_autofree char *text = fuzz_line(&bytes), *key = fuzz_line(&bytes), *value = NULL;
    gsize len = 0;
    LhKind kind = LH_N_KINDS;
    const char *name = key;
    g_autoptr(LhObject) object = NULL;
    int whole;

    value = fuzz_rest(&bytes, &len);
    if (!g_utf8_validate(text, -1, NULL)) /* a query parameter always is */
        return 0;
    lh_key_split(key, &kind, &name);
    object = lh_object_parse(kind, name, value, len, 1, 1, 0);
    whole = select_one(text, object);
    check_terms(text, object, whole);
    if (lh_object_known(object) && lh_kind_is_desired(kind))
        check_labels(object);
    if (!lh_object_known(object))
        FUZZ_CHECK(whole != 1 || *g_strstrip(text) == '\0', "\"%s\" selects the unknown", text);
    return 0;
}
