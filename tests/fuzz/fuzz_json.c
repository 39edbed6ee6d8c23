/*
 * base/json on any bytes: what is read is strict, within its limits, and survives being printed; a text
 * that is only cut or followed by something is refused.
 */
#include "base/json.h"
#include "tests/fuzz/fuzz.h"

#include <math.h>
#include <string.h>

/* Depth, unique keys, UTF-8: as the header promises, by a plain walk over the tree. */
static void check_tree(const cJSON *value, guint depth)
{
    FUZZ_CHECK(depth <= LH_JSON_MAX_DEPTH, "%u levels", depth);
    if (cJSON_IsString(value))
        FUZZ_CHECK(g_utf8_validate(value->valuestring, -1, NULL), "string");
    if (cJSON_IsNumber(value))
        FUZZ_CHECK(isfinite(value->valuedouble), "%g", value->valuedouble);
    for (const cJSON *child = value->child; child != NULL; child = child->next) {
        if (cJSON_IsObject(value)) {
            FUZZ_CHECK(g_utf8_validate(child->string, -1, NULL), "key");
            for (const cJSON *other = child->next; other != NULL; other = other->next)
                FUZZ_CHECK(strcmp(child->string, other->string) != 0, "%s twice", child->string);
        }
        check_tree(child, depth + (cJSON_IsObject(child) || cJSON_IsArray(child)));
    }
}

/* An integer that the accessor gives is the number that is there, and is printed as itself. */
static void check_int(const cJSON *value)
{
    gint64 number = 0;

    if (lh_json_int(value, &number)) {
        g_autoptr(GString) text = g_string_new(NULL);
        FUZZ_CHECK(cJSON_IsNumber(value) && (double)number == value->valuedouble,
                   "%" G_GINT64_FORMAT " for %.17g", number, value->valuedouble);
        FUZZ_CHECK(ABS(number) <= LH_JSON_MAX_INT, "%" G_GINT64_FORMAT, number);
        lh_json_append_int(text, number);
        FUZZ_CHECK(g_ascii_strtoll(text->str, NULL, 10) == number, "%s", text->str);
    }
    for (const cJSON *child = value->child; child != NULL; child = child->next)
        check_int(child);
}

static void check_printed(const cJSON *value)
{
    g_autofree char *printed = lh_json_print(value);
    g_autoptr(GError) error = NULL;
    g_autoptr(cJSON) again = lh_json_parse(printed, strlen(printed), G_MAXSIZE, &error);
    g_autofree char *twice = NULL;

    FUZZ_CHECK(again != NULL, "%s: %s", printed, error->message);
    FUZZ_CHECK(cJSON_Compare(value, again, TRUE), "%s", printed);
    twice = lh_json_print(again);
    FUZZ_CHECK(strcmp(printed, twice) == 0, "%s became %s", printed, twice);
}

/* "[" TEXT "]" must be readable exactly when TEXT is (but for depth), TEXT + "]" never. */
static void check_context(const char *text, gsize len)
{
    g_autofree char *more = g_malloc(len + 2);
    g_autoptr(cJSON) value = NULL;

    memcpy(more, text, len);
    memcpy(more + len, "]", 2);
    value = lh_json_parse(more, len + 1, G_MAXSIZE, NULL);
    FUZZ_CHECK(value == NULL, "read although something follows it");
    value = lh_json_parse(text, len, len - 1, NULL);
    FUZZ_CHECK(value == NULL, "read although it is longer than permitted");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    GError *error = NULL;
    g_autoptr(cJSON) value = lh_json_parse((const char *)data, size, G_MAXSIZE, &error);
    g_autoptr(GString) quoted = g_string_new(NULL);
    g_autofree char *text = g_strndup((const char *)data, size);
    g_autoptr(cJSON) back = NULL;

    if (value == NULL) {
        fuzz_check_error(error);
    } else {
        check_tree(value, cJSON_IsObject(value) || cJSON_IsArray(value));
        check_int(value);
        check_printed(value);
        check_context((const char *)data, size);
    }

    /* Any text at all can be quoted, and reads back as itself where it was UTF-8. */
    lh_json_append_string(quoted, text);
    back = lh_json_parse(quoted->str, quoted->len, G_MAXSIZE, NULL);
    FUZZ_CHECK(cJSON_IsString(back), "%s", quoted->str);
    if (g_utf8_validate(text, -1, NULL))
        FUZZ_CHECK(strcmp(back->valuestring, text) == 0, "%s", quoted->str);
    return 0;
}
