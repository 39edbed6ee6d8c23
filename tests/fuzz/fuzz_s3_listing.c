/*
 * A listing of S3. First line a prefix, then `x` and pages of XML with NULs between them, or another byte and
 * a recipe from which well-formed pages are written, with or without one thing that makes them unusable.
 *
 * Of what was written by a recipe exactly that is read, and nothing at all when a part is missing, twice
 * there or no number; of other pages, what is read and written anew reads the same. What becomes of the
 * keys is what rules over their parts say: files below the prefix, each once, with its size, or no listing.
 */
#include "base/errors.h"
#include "objectstore/objectstore.h"
#include "objectstore/s3_names.h"
#include "objectstore/s3_url.h"
#include "tests/fuzz/fuzz.h"

#include <string.h>

#define MAX_PAGES   4
#define MAX_OBJECTS 12
#define MAX_SIZE    (G_GINT64_CONSTANT(1) << 53)

typedef enum {
    WHOLE,
    NO_END,
    TWO_ENDS,
    ODD_END,
    NO_TOKEN,
    TWO_TOKENS,
    NO_KEY,
    TWO_KEYS,
    NO_SIZE,
    TWO_SIZES,
    ODD_SIZE,
    OTHER_ROOT,
    OTHER_ENCODING,
    CUT,
    N_FAULTS
} Fault;

static void object_free(gpointer data)
{
    g_free(((LhS3Object *)data)->key);
    g_free(data);
}

/* ---- writing ---- */

static void write_text(GString *out, const char *text, guint way)
{
    g_autofree char *escaped = g_markup_escape_text(text, -1);
    gboolean plain = strstr(text, "]]>") == NULL && strchr(text, '\r') == NULL;

    if (way == 1 && plain)
        g_string_append_printf(out, "<![CDATA[%s]]>", text);
    else if (way == 2)
        for (const char *at = text; *at != '\0'; at = g_utf8_next_char(at))
            g_string_append_printf(out, "&#x%X;", g_utf8_get_char(at));
    else
        for (const char *at = escaped; *at != '\0'; at++)
            g_string_append_printf(out, *at == '\r' ? "&#xD;" : "%c", *at); /* else a line feed */
}

static void write_element(GString *out, const char *name, const char *text, guint way)
{
    g_string_append_printf(out, way == 3 ? "<%s a='1'>" : "<%s>", name);
    write_text(out, text, way);
    g_string_append_printf(out, way == 3 ? "</%s >\n" : "</%s>", name);
}

/* As encoding-type=url does. */
static char *encoded(const char *key, guint way)
{
    GString *out = g_string_new(NULL);

    for (const guint8 *at = (const guint8 *)key; *at != '\0'; at++)
        if (g_ascii_isalnum(*at) || strchr("-_.~/", *at) != NULL)
            g_string_append_c(out, (char)*at);
        else if (*at == ' ' && way % 2 == 0)
            g_string_append_c(out, '+');
        else
            g_string_append_printf(out, way < 2 ? "%%%02X" : "%%%02x", *at);
    return g_string_free(out, FALSE);
}

static void write_object(GString *out, const LhS3Object *object, gboolean url, Fault fault,
                         guint way)
{
    g_autofree char *key = url ? encoded(object->key, way) : g_strdup(object->key);
    g_autofree char *size = g_strdup_printf("%" G_GINT64_FORMAT "%s", object->size,
                                            fault != ODD_SIZE ? ""
                                            : way % 2         ? "x"
                                                              : "99999999999999999");

    g_string_append(out, "<Contents>");
    if (way % 2 == 0 && fault != NO_SIZE)
        write_element(out, "Size", size, way);
    g_string_append(out, "<Owner><ID>id</ID><Key>none</Key><Size>none</Size></Owner>");
    for (guint i = fault == NO_KEY ? 1 : 0; i < (fault == TWO_KEYS ? 2 : 1); i++)
        write_element(out, "Key", key, way);
    if (way % 2 == 1 && fault != NO_SIZE)
        write_element(out, "Size", size, way);
    if (fault == TWO_SIZES)
        write_element(out, "Size", size, way);
    g_string_append(out, "<ETag>&quot;e&quot;</ETag></Contents>");
}

static char *written(const LhS3Page *page, gboolean url, Fault fault, guint way)
{
    GString *out = g_string_new("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<!-- a page -->");
    const char *root = fault == OTHER_ROOT ? "ListAllMyBucketsResult" : "ListBucketResult";
    gboolean truncated = page->next_token != NULL || fault == NO_TOKEN;

    g_string_append_printf(out, "<%s xmlns='s3'><Name>b</Name>", root);
    if (url || fault == OTHER_ENCODING)
        write_element(out, "EncodingType", fault == OTHER_ENCODING ? "none" : "url", way);
    for (guint i = 0; i < page->objects->len; i++)
        write_object(out, g_ptr_array_index(page->objects, i), url, i == 0 ? fault : WHOLE, way);
    for (guint i = fault == NO_END ? 1 : 0; i < (fault == TWO_ENDS ? 2 : 1); i++)
        write_element(out, "IsTruncated",
                      fault == ODD_END ? "1"
                      : truncated      ? "true"
                                       : "false",
                      way);
    for (guint i = 0; i < (fault == TWO_TOKENS ? 2 : 1) && fault != NO_TOKEN; i++)
        if (page->next_token != NULL || fault == TWO_TOKENS)
            write_element(out, "NextContinuationToken",
                          page->next_token != NULL ? page->next_token : "t", way);
    if (fault != CUT)
        g_string_append_printf(out, "</%s>", root);
    return g_string_free(out, FALSE);
}

/* ---- reading ---- */

static void check_same(const LhS3Page *a, const LhS3Page *b)
{
    FUZZ_CHECK(a->objects->len == b->objects->len, "%u objects, not %u", b->objects->len,
               a->objects->len);
    for (guint i = 0; i < a->objects->len; i++) {
        const LhS3Object *x = g_ptr_array_index(a->objects, i),
                         *y = g_ptr_array_index(b->objects, i);
        FUZZ_CHECK(strcmp(x->key, y->key) == 0 && x->size == y->size, "\"%s\" read as \"%s\"",
                   x->key, y->key);
    }
    FUZZ_CHECK(g_strcmp0(a->next_token, b->next_token) == 0, "token %s, not %s", b->next_token,
               a->next_token);
}

/* A fault in an object needs an object. */
static gboolean fault_counts(const LhS3Page *page, Fault fault)
{
    gboolean of_object = fault >= NO_KEY && fault <= ODD_SIZE;

    return fault != WHOLE && !(of_object && page->objects->len == 0);
}

static void read_back(const LhS3Page *page, gboolean url, Fault fault, guint way)
{
    g_autofree char *xml = written(page, url, fault, way);
    g_auto(LhS3Page) read = {0};
    GError *error = NULL;
    gboolean ok = lh_s3_page_parse(xml, strlen(xml), &read, &error);

    FUZZ_CHECK(ok == !fault_counts(page, fault), "%s: %s", error != NULL ? error->message : "read",
               xml);
    if (!ok)
        fuzz_check_error(error);
    else
        check_same(page, &read);
}

/* ---- the keys, slowly ---- */

typedef struct {
    GPtrArray *names;
    GArray *sizes;
} Files;

static gboolean take_file(const char *name, gint64 size, gpointer data, GError **error)
{
    Files *files = data;

    g_ptr_array_add(files->names, g_strdup(name));
    g_array_append_val(files->sizes, size);
    return TRUE;
}

static gboolean good_name(const char *name)
{
    g_auto(GStrv) parts = g_strsplit(name, "/", -1);

    for (guint i = 0; parts[i] != NULL; i++)
        if (*parts[i] == '\0' || strcmp(parts[i], ".") == 0 || strcmp(parts[i], "..") == 0 ||
            strlen(parts[i]) > 255)
            return FALSE;
    for (; *name != '\0'; name++)
        if ((guchar)*name < ' ' || *name == 0x7f)
            return FALSE;
    return g_strv_length(parts) <= LH_STORE_MAX_DEPTH + 1;
}

/* TRUE: the listing is one of files, which are in @files as they must come. */
static gboolean expected_files(GPtrArray *objects, const char *prefix, Files *files)
{
    for (guint i = 0; i < objects->len; i++) {
        const LhS3Object *object = g_ptr_array_index(objects, i);
        if (!g_str_has_prefix(object->key, prefix))
            return FALSE;
        const char *name = object->key + strlen(prefix);
        if (*name == '\0' || g_str_has_suffix(name, "/")) {
            if (object->size != 0)
                return FALSE;
            continue;
        }
        if (!good_name(name) || strlen(name) > 4095)
            return FALSE;
        take_file(name, object->size, files, NULL);
    }
    for (guint i = 0; i < files->names->len; i++)
        for (guint k = 0; k < files->names->len; k++) {
            const char *a = files->names->pdata[i], *b = files->names->pdata[k];
            if (i != k && g_str_has_prefix(b, a) && strchr("/", b[strlen(a)]) != NULL)
                return FALSE; /* the same, or below it */
        }
    return objects->len > 0;
}

static void files_init(Files *files)
{
    files->names = g_ptr_array_new_with_free_func(g_free);
    files->sizes = g_array_new(FALSE, FALSE, sizeof(gint64));
}

static void files_clear(Files *files)
{
    g_ptr_array_unref(files->names);
    g_array_unref(files->sizes);
}

static void check_files(const Files *want, const Files *got)
{
    FUZZ_CHECK(want->names->len == got->names->len, "%u files, not %u", got->names->len,
               want->names->len);
    for (guint i = 0; i < want->names->len; i++)
        FUZZ_CHECK(strcmp(want->names->pdata[i], got->names->pdata[i]) == 0 &&
                       g_array_index(want->sizes, gint64, i) ==
                           g_array_index(got->sizes, gint64, i),
                   "%s", (const char *)got->names->pdata[i]);
}

static void check_names(const LhS3Page *pages, guint n, const char *prefix)
{
    g_autoptr(GPtrArray) all = g_ptr_array_new();
    LhS3Names *names = lh_s3_names_new("s3://bucket/p/", prefix);
    GError *error = NULL;
    Files want, got;
    gboolean ok = TRUE;

    files_init(&want);
    files_init(&got);
    for (guint i = 0; i < n; i++)
        g_ptr_array_extend(all, pages[i].objects, NULL, NULL);
    for (guint i = 0; i < n && ok; i++)
        ok = lh_s3_names_add(names, &pages[i], take_file, &got, &error);
    ok = ok && lh_s3_names_end(names, &error);
    FUZZ_CHECK(ok == expected_files(all, prefix, &want), "%s",
               error != NULL ? error->message : "a listing");
    if (ok) {
        check_files(&want, &got);
    } else {
        FUZZ_CHECK((error->code == LH_ERR_NOT_FOUND) == (all->len == 0), "%s", error->message);
        fuzz_check_error(error);
    }
    lh_s3_names_free(names);
    files_clear(&want);
    files_clear(&got);
}

/* ---- recipes ---- */

static char *recipe_key(FuzzBytes *bytes, const char *prefix)
{
    static const char *const pieces[] = {"a",  "b",  "c/",   "/",    "..",  ".",       " ",  "+",
                                         "%2", "é",  "&lt",  "<k>",  "]]>", "\t",      "\"", "file",
                                         "d/", "e/", "日本", "\x7f", "~",   "\xc2\x85"};
    GString *key = g_string_new(fuzz_below(bytes, 12) == 0 ? "x" : prefix);

    for (guint n = 1 + fuzz_below(bytes, 4); n > 0; n--)
        g_string_append(key, pieces[fuzz_below(bytes, G_N_ELEMENTS(pieces))]);
    if (fuzz_below(bytes, 16) == 0) /* long */
        for (guint n = fuzz_byte(bytes); n > 0; n--)
            g_string_append(key, pieces[n % 2]);
    return g_string_free(key, FALSE);
}

static void recipe_page(FuzzBytes *bytes, const char *prefix, LhS3Page *page, gboolean last)
{
    page->objects = g_ptr_array_new_with_free_func(object_free);
    for (guint n = fuzz_below(bytes, MAX_OBJECTS); n > 0; n--) {
        LhS3Object *object = g_new0(LhS3Object, 1);
        object->key = recipe_key(bytes, prefix);
        object->size = fuzz_below(bytes, 3) == 0 ? 0 : (gint64)(fuzz_u64(bytes) % (MAX_SIZE + 1));
        g_ptr_array_add(page->objects, object);
    }
    page->next_token = last ? NULL : g_strdup_printf("t<%u", fuzz_byte(bytes));
}

static guint from_recipe(FuzzBytes *bytes, const char *prefix, LhS3Page *pages)
{
    guint n = 1 + fuzz_below(bytes, MAX_PAGES);

    for (guint i = 0; i < n; i++) {
        gboolean url = fuzz_below(bytes, 3) > 0;
        Fault fault = fuzz_below(bytes, 2) ? (Fault)fuzz_below(bytes, N_FAULTS) : WHOLE;
        guint way = fuzz_below(bytes, 4);
        recipe_page(bytes, prefix, &pages[i], i + 1 == n);
        read_back(&pages[i], url, fault, way);
    }
    return n;
}

/* ---- pages as they are ---- */

static guint from_text(FuzzBytes *bytes, LhS3Page *pages)
{
    guint n = 0;

    while (bytes->size > 0 && n < MAX_PAGES) {
        const uint8_t *nul = memchr(bytes->data, '\0', bytes->size);
        gsize len = nul == NULL ? bytes->size : (gsize)(nul - bytes->data);
        g_autofree char *xml = g_memdup2(bytes->data, len);
        GError *error = NULL;
        if (lh_s3_page_parse(xml != NULL ? xml : "", len, &pages[n], &error)) {
            for (guint i = 0; i < pages[n].objects->len; i++) {
                const LhS3Object *object = g_ptr_array_index(pages[n].objects, i);
                FUZZ_CHECK(g_utf8_validate(object->key, -1, NULL), "a key is not UTF-8");
                FUZZ_CHECK(object->size >= 0 && object->size <= MAX_SIZE, "%s", object->key);
            }
            FUZZ_CHECK(pages[n].next_token == NULL || *pages[n].next_token != '\0', "no token");
            read_back(&pages[n], TRUE, WHOLE, 2);
            n++;
        } else {
            fuzz_check_error(error);
        }
        bytes->data += len + (nul != NULL);
        bytes->size -= len + (nul != NULL);
    }
    return n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    FuzzBytes bytes = {data, size};
    g_autofree char *line = fuzz_line(&bytes), *valid = g_utf8_make_valid(line, -1);
    g_autofree char *prefix = g_strconcat(valid, "/", NULL);
    LhS3Page pages[MAX_PAGES] = {0};
    guint n = fuzz_byte(&bytes) == 'x' ? from_text(&bytes, pages)
                                       : from_recipe(&bytes, prefix, pages);

    check_names(pages, n, prefix);
    for (guint i = 0; i < n; i++)
        lh_s3_page_clear(&pages[i]);
    return 0;
}
