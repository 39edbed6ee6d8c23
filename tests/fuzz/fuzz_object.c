/*
 * Values of every kind: the first line is a key under the prefix, the rest its value. What does not parse
 * is an unknown object that keeps the value; what parses is printed as something that reads back equal,
 * and a desired object that is good can always become an Accepted.
 */
#include "api/decided.h"
#include "api/object.h"
#include "base/json.h"
#include "tests/fuzz/fuzz.h"

#include <string.h>

static LhObject *parse(LhKind kind, const char *name, const char *value, gsize len)
{
    return lh_object_parse(kind, name, value, len, 3, 4, 5);
}

static void check_unknown(const LhObject *object, const char *value, gsize len)
{
    gsize kept = 0;
    const char *raw = lh_object_raw(object, &kept);

    fuzz_check_message(lh_object_error(object));
    FUZZ_CHECK(raw != NULL && kept == MIN(len, LH_JSON_MAX_BYTES) && memcmp(raw, value, kept) == 0,
               "the value is not kept");
    FUZZ_CHECK(lh_object_labels(object)->n == 0, "an unknown object with labels");
}

/* As the envelope of a desired kind, or flat. */
static char *value_of(LhKind kind, const LhObject *object)
{
    g_autofree char *printed = lh_object_print(kind, object);

    if (!lh_kind_is_desired(kind))
        return g_steal_pointer(&printed);
    return g_strconcat("{\"spec\":", printed, "}", NULL);
}

static void check_round(LhKind kind, const LhObject *object)
{
    g_autofree char *value = value_of(kind, object), *twice = NULL;
    g_autoptr(LhObject) again = parse(kind, object->name, value, strlen(value));

    /* Escapes and defaults may make a flat object longer than a value may be. */
    if (strlen(value) > LH_JSON_MAX_BYTES && !lh_kind_is_desired(kind))
        return;
    FUZZ_CHECK(lh_object_known(again), "%s: %s", value, lh_object_error(again));
    FUZZ_CHECK(lh_object_warning(again) == NULL, "%s: %s", value, lh_object_warning(again));
    FUZZ_CHECK(lh_object_same(kind, object, again), "%s", value);
    twice = value_of(kind, again);
    FUZZ_CHECK(strcmp(value, twice) == 0, "%s became %s", value, twice);
}

/* Integers beyond 2^53-1 are refused wherever they are: a double would be another number. */
static void check_exact(const cJSON *json)
{
    FUZZ_CHECK(!cJSON_IsNumber(json) || ABS(json->valuedouble) <= (double)LH_JSON_MAX_INT, "%.17g",
               json->valuedouble);
    for (const cJSON *child = json->child; child != NULL; child = child->next)
        check_exact(child);
}

static void check_numbers(LhKind kind, const LhObject *object)
{
    g_autofree char *printed = lh_object_print(kind, object);
    g_autoptr(cJSON) json = lh_json_parse(printed, strlen(printed), G_MAXSIZE, NULL);

    FUZZ_CHECK(json != NULL, "%s", printed);
    check_exact(json);
}

/* What admission does with it. */
static void check_accepted(LhKind kind, const LhObject *object)
{
    g_autofree char *spec = lh_object_print(kind, object);
    g_autofree char *name = g_strconcat(lh_kind_info(kind)->plural, "/", object->name, NULL);
    const LhAccepted accepted = {
        .revision = object->mod_rev, .labels = lh_object_labels(object), .spec = spec};
    g_autofree char *value = lh_object_print(LH_KIND_ACCEPTED, &accepted);
    g_autoptr(LhObject) copy = parse(LH_KIND_ACCEPTED, name, value, strlen(value));

    FUZZ_CHECK(lh_object_known(copy), "accepted/%s: %s", name, lh_object_error(copy));
    FUZZ_CHECK(lh_object_same(kind, object, ((const LhAccepted *)copy)->parsed), "%s", value);
    FUZZ_CHECK(lh_object_labels(copy)->n == lh_object_labels(object)->n, "labels of %s", value);
}

/* The spec alone is as good, or as bad, as the whole. */
static void check_spec(LhKind kind, const char *name, const LhObject *object, const char *value,
                       gsize len)
{
    g_autoptr(cJSON) json = lh_json_parse(value, len, LH_JSON_MAX_BYTES, NULL);
    g_autoptr(GError) error = NULL;
    g_autofree char *warning = NULL;
    g_autoptr(LhObject) alone = NULL;

    if (!cJSON_IsObject(json))
        return;
    alone = lh_object_parse_spec(kind, name, cJSON_GetObjectItemCaseSensitive(json, "spec"),
                                 &warning, &error);
    if (lh_object_known(object)) {
        FUZZ_CHECK(alone != NULL, "the spec alone is refused: %s", error->message);
        FUZZ_CHECK(lh_object_same(kind, object, alone), "the spec alone is another");
    } else if (alone == NULL) {
        fuzz_check_error(g_steal_pointer(&error));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    FuzzBytes bytes = {data, size};
    g_autofree char *key = fuzz_line(&bytes);
    gsize len = 0;
    g_autofree char *value = fuzz_rest(&bytes, &len);
    const char *name = key;
    LhKind kind = LH_N_KINDS;
    gboolean split = lh_key_split(key, &kind, &name);
    g_autoptr(LhObject) object = parse(kind, name, value, len);
    g_autoptr(LhObject) again = parse(kind, name, value, len);

    FUZZ_CHECK(split == (kind < LH_N_KINDS), "%s", key);
    FUZZ_CHECK(object->kind == kind && strcmp(object->name, name) == 0, "%s: %s", key,
               object->name);
    FUZZ_CHECK(object->create_rev == 3 && object->mod_rev == 4 && lh_object_lease(object) == 5,
               "header");
    FUZZ_CHECK(g_strcmp0(lh_object_error(object), lh_object_error(again)) == 0, "parsed twice: %s",
               lh_object_error(object));
    FUZZ_CHECK(!lh_object_known(object) || lh_kind_name_valid(kind, name), "%s", key);
    if (lh_object_warning(object) != NULL)
        fuzz_check_message(lh_object_warning(object));
    if (lh_kind_is_desired(kind))
        check_spec(kind, name, object, value, len);
    if (!lh_object_known(object)) {
        check_unknown(object, value, len);
        return 0;
    }
    FUZZ_CHECK(lh_object_same(kind, object, again), "parsed twice");
    check_round(kind, object);
    check_numbers(kind, object);
    if (lh_kind_is_desired(kind))
        check_accepted(kind, object);
    return 0;
}
