/*
 * Recorded plan inputs of any text: refused with the line's number, or loaded; then what is dumped loads
 * into a mirror that dumps the same bytes, and the plans made of it are JSON and the same twice.
 */
#include "base/json.h"
#include "controllers/registry.h"
#include "runtime/record.h"
#include "tests/fuzz/fuzz.h"

#include <string.h>

static void listen_to_nothing(LhMirror *mirror, gpointer data)
{
}

static void check_object(const LhObject *object, gpointer data)
{
    const LhObject *other = lh_mirror_get(data, object->kind, object->name);

    FUZZ_CHECK(other != NULL, "%s is lost", object->name);
    FUZZ_CHECK(lh_object_known(object) == lh_object_known(other), "%s: %s, %s", object->name,
               lh_object_error(object), lh_object_error(other));
    FUZZ_CHECK(object->create_rev == other->create_rev && object->mod_rev == other->mod_rev &&
                   lh_object_lease(object) == lh_object_lease(other),
               "%s: revisions or lease", object->name);
    FUZZ_CHECK(!lh_object_known(object) || lh_object_same(object->kind, object, other), "%s",
               object->name);
}

static void check_same(const LhMirror *a, LhMirror *b)
{
    for (guint kind = 0; kind < LH_N_KINDS; kind++) {
        FUZZ_CHECK(lh_mirror_count(a, kind) == lh_mirror_count(b, kind), "kind %u", kind);
        lh_mirror_foreach(a, kind, check_object, b);
    }
}

/* NULL: refused. */
static LhMirror *load(const char *text, gsize len, char **dump, gsize *dumped, GError **error)
{
    LhRecord record = {0};

    if (!lh_record_load(text, len, listen_to_nothing, NULL, &record, error)) {
        FUZZ_CHECK(record.mirror == NULL, "a mirror although refused");
        return NULL;
    }
    FUZZ_CHECK(lh_mirror_revision(record.mirror) == record.revision, "revision");
    *dump = lh_record_dump(record.mirror, record.now_ms, dumped);
    return record.mirror;
}

static char *plan(const char *text, gsize len)
{
    GString *out = g_string_new(NULL);
    g_autoptr(GError) error = NULL;

    FUZZ_CHECK(lh_record_plan(text, len, lh_controllers(), NULL, out, &error), "%s",
               error->message);
    return g_string_free(out, FALSE);
}

static void check_plans(const char *text, gsize len, const char *dump, gsize dumped)
{
    g_autofree char *first = plan(text, len), *second = plan(text, len);
    g_autofree char *of_dump = plan(dump, dumped);
    g_autoptr(GError) error = NULL;
    g_autoptr(cJSON) json = lh_json_parse(first, strlen(first), G_MAXSIZE, &error);

    FUZZ_CHECK(json != NULL, "%s\n%s", error->message, first);
    FUZZ_CHECK(strcmp(first, second) == 0, "%s\n%s", first, second);
    FUZZ_CHECK(strcmp(first, of_dump) == 0, "the dump gives another plan\n%s\n%s", first, of_dump);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    FuzzBytes bytes = {data, size};
    gsize len = 0, dumped = 0, again_len = 0;
    g_autofree char *text = fuzz_rest(&bytes, &len), *dump = NULL, *again = NULL;
    GError *error = NULL;
    LhMirror *first = load(text, len, &dump, &dumped, &error), *second;

    if (first == NULL) {
        FUZZ_CHECK(error != NULL && g_str_has_prefix(error->message, "line "), "no line");
        fuzz_check_error(error);
        return 0;
    }
    second = load(dump, dumped, &again, &again_len, &error);
    FUZZ_CHECK(second != NULL, "%s\n%s", error->message, dump);
    FUZZ_CHECK(dumped == again_len && memcmp(dump, again, dumped) == 0, "%s\n%s", dump, again);
    check_same(first, second);
    lh_mirror_free(first);
    lh_mirror_free(second);
    check_plans(text, len, dump, dumped);
    return 0;
}
