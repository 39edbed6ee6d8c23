/*
 * Manifests of any text: the first byte says JSON ('j') or YAML. What is read is objects, and is the same
 * when printed as JSON or as YAML and read again; plain scalars mean the same to the reader of documents
 * and to lh_yaml_scalar.
 */
#include "base/json.h"
#include "cli/manifest.h"
#include "cli/output.h"
#include "tests/fuzz/fuzz.h"

#include <string.h>

static const cJSON *only(const GPtrArray *manifests, const char *text)
{
    FUZZ_CHECK(manifests->len == 1, "%u documents in %s", manifests->len, text);
    return ((const LhManifest *)manifests->pdata[0])->object;
}

/* A List would come apart again. */
static gboolean is_list(const cJSON *object)
{
    return g_str_has_suffix(lh_json_get_string(object, "kind", ""), "List");
}

/* Takes @text. */
static void check_reads_back(const cJSON *object, char *text, gboolean json)
{
    g_autoptr(GPtrArray) again = lh_manifests_new();
    g_autoptr(GError) error = NULL;
    gboolean good = lh_manifest_parse("again", text, strlen(text), json, again, &error);

    FUZZ_CHECK(good, "%s\n%s", error->message, text);
    FUZZ_CHECK(cJSON_Compare(object, only(again, text), TRUE), "%s", text);
    g_free(text);
}

static void check_manifest(const LhManifest *manifest)
{
    FUZZ_CHECK(g_str_has_prefix(manifest->source, "in:"), "%s", manifest->source);
    FUZZ_CHECK(g_ascii_strtoull(manifest->source + 3, NULL, 10) > 0, "%s", manifest->source);
    FUZZ_CHECK(cJSON_IsObject(manifest->object), "%s is no object", manifest->source);
    if (is_list(manifest->object))
        return;
    check_reads_back(manifest->object, lh_json_print(manifest->object), TRUE);
    check_reads_back(manifest->object, lh_json_pretty(manifest->object), TRUE);
    check_reads_back(manifest->object, lh_yaml_print(manifest->object), FALSE);
    /* JSON is YAML, but for what libyaml takes as a line break (U+2028) and keys of over 1,024. */
    g_autofree char *json = lh_json_print(manifest->object);
    if (g_str_is_ascii(json) && strlen(json) < 1000)
        check_reads_back(manifest->object, g_strdup(json), FALSE);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    FuzzBytes bytes = {data, size};
    gboolean json = fuzz_byte(&bytes) == 'j';
    gsize len = 0;
    g_autofree char *text = fuzz_rest(&bytes, &len);
    g_autoptr(GPtrArray) out = lh_manifests_new();
    g_autoptr(GError) error = NULL;
    gboolean good = lh_manifest_parse("in", text, len, json, out, &error);

    if (!good) {
        FUZZ_CHECK(error != NULL && g_str_has_prefix(error->message, "in:"), "%s",
                   error == NULL ? "no error" : error->message);
        return 0;
    }
    FUZZ_CHECK(error == NULL, "%s", error->message);
    g_ptr_array_foreach(out, (GFunc)(void (*)(void))check_manifest, NULL);
    return 0;
}
