/*
 * S3's XML, read with GLib's markup parser: which has no entities of its own and no DTDs.
 *
 * A listing decides what a snapshot consists of, so it is read strictly; an error document only says
 * why something failed already, so it is read leniently.
 */
#include "objectstore/s3_xml.h"

#include "base/errors.h"
#include "objectstore/s3_url.h"

#include <string.h>

#define MAX_DEPTH         16
#define MAX_CODE_BYTES    64
#define MAX_MESSAGE_BYTES 200

typedef struct {
    LhS3Page *page;
    GString *text;
    /* Of the object that is being read. */
    gboolean in_object;
    char *key;
    gint64 size; /* -1: not seen */
    /* Of the page. */
    gboolean is_encoded;
    int truncated; /* -1: not seen */
    char *token;
} PageReader;

static void object_free(gpointer data)
{
    LhS3Object *object = data;
    g_free(object->key);
    g_free(object);
}

void lh_s3_page_clear(LhS3Page *page)
{
    g_clear_pointer(&page->objects, g_ptr_array_unref);
    g_clear_pointer(&page->next_token, g_free);
}

static void invalid(GError **error, const char *why)
{
    g_set_error(error, G_MARKUP_ERROR, G_MARKUP_ERROR_INVALID_CONTENT, "%s", why);
}

static gboolean parse_size(const char *text, gint64 *out)
{
    guint64 value;
    if (!g_ascii_string_to_unsigned(text, 10, 0, G_GINT64_CONSTANT(1) << 53, &value, NULL))
        return FALSE;
    *out = (gint64)value;
    return TRUE;
}

static void on_start(GMarkupParseContext *context, const char *name, const char **attributes,
                     const char **values, gpointer data, GError **error)
{
    (void)attributes;
    (void)values;
    PageReader *r = data;
    guint depth = g_slist_length((GSList *)g_markup_parse_context_get_element_stack(context));
    if (depth == 1 && strcmp(name, "ListBucketResult") != 0)
        invalid(error, "its root is not ListBucketResult");
    else if (depth > MAX_DEPTH)
        invalid(error, "it is nested too deeply");
    else if (depth == 2 && strcmp(name, "Contents") == 0) {
        r->in_object = TRUE;
        r->size = -1;
    }
    g_string_truncate(r->text, 0);
}

static void end_of_object(PageReader *r, GError **error)
{
    r->in_object = FALSE;
    if (r->key == NULL || r->size < 0) {
        invalid(error, "an object has no Key or no Size");
        return;
    }
    LhS3Object *object = g_new(LhS3Object, 1);
    *object = (LhS3Object){.key = g_steal_pointer(&r->key), .size = r->size};
    g_ptr_array_add(r->page->objects, object);
}

static void end_in_object(PageReader *r, const char *name, GError **error)
{
    if (strcmp(name, "Key") == 0) {
        if (r->key != NULL)
            invalid(error, "an object has two keys");
        else
            r->key = g_strdup(r->text->str);
    } else if (strcmp(name, "Size") == 0) {
        if (r->size >= 0)
            invalid(error, "an object has two sizes");
        else if (!parse_size(r->text->str, &r->size))
            invalid(error, "a Size is not a number");
    }
}

static void end_in_page(PageReader *r, const char *name, GError **error)
{
    const char *text = r->text->str;
    if (strcmp(name, "IsTruncated") == 0) {
        if (r->truncated >= 0)
            invalid(error, "IsTruncated is there twice");
        else if (strcmp(text, "true") == 0 || strcmp(text, "false") == 0)
            r->truncated = text[0] == 't';
        else
            invalid(error, "IsTruncated is neither true nor false");
    } else if (strcmp(name, "EncodingType") == 0) {
        if (strcmp(text, "url") == 0)
            r->is_encoded = TRUE;
        else
            invalid(error, "its EncodingType is not url");
    } else if (strcmp(name, "NextContinuationToken") == 0) {
        if (r->token != NULL)
            invalid(error, "NextContinuationToken is there twice");
        else
            r->token = g_strdup(text);
    }
}

static void on_end(GMarkupParseContext *context, const char *name, gpointer data, GError **error)
{
    PageReader *r = data;
    guint depth = g_slist_length((GSList *)g_markup_parse_context_get_element_stack(context));
    if (depth == 2 && r->in_object)
        end_of_object(r, error);
    else if (depth == 3 && r->in_object)
        end_in_object(r, name, error);
    else if (depth == 2)
        end_in_page(r, name, error);
    g_string_truncate(r->text, 0);
}

static void on_text(GMarkupParseContext *context, const char *text, gsize len, gpointer data,
                    GError **error)
{
    (void)context;
    (void)error;
    g_string_append_len(((PageReader *)data)->text, text, (gssize)len);
}

/* After the last element: what only the whole page shows. */
static const char *finish_page(PageReader *r)
{
    if (r->truncated < 0)
        return "it has no IsTruncated";
    if (r->truncated && (r->token == NULL || *r->token == '\0'))
        return "it is truncated, but has no NextContinuationToken";
    for (guint i = 0; r->is_encoded && i < r->page->objects->len; i++) {
        LhS3Object *object = g_ptr_array_index(r->page->objects, i);
        char *key = lh_s3_decode(object->key);
        if (key == NULL)
            return "a Key is not encoded as its EncodingType says";
        g_free(object->key);
        object->key = key;
    }
    if (r->truncated)
        r->page->next_token = g_steal_pointer(&r->token);
    return NULL;
}

gboolean lh_s3_page_parse(const char *xml, gsize len, LhS3Page *out, GError **error)
{
    static const GMarkupParser parser = {
        .start_element = on_start, .end_element = on_end, .text = on_text};
    g_auto(LhS3Page) page = {.objects = g_ptr_array_new_with_free_func(object_free)};
    PageReader reader = {.page = &page, .text = g_string_new(NULL), .truncated = -1};
    g_autoptr(GMarkupParseContext) context = g_markup_parse_context_new(
        &parser, G_MARKUP_TREAT_CDATA_AS_TEXT, &reader, NULL);
    g_autoptr(GError) local = NULL;
    const char *problem = NULL;
    if (!g_markup_parse_context_parse(context, xml, (gssize)len, &local) ||
        !g_markup_parse_context_end_parse(context, &local))
        problem = local->code == G_MARKUP_ERROR_INVALID_CONTENT ? local->message
                                                                : "it is not well-formed XML";
    else
        problem = finish_page(&reader);
    g_string_free(reader.text, TRUE);
    g_free(reader.key);
    g_free(reader.token);
    if (problem != NULL) {
        g_set_error(error, LH_ERROR, LH_ERR_INVALID, "the listing cannot be used: %s", problem);
        return FALSE;
    }
    *out = page;
    page = (LhS3Page){0};
    return TRUE;
}

/* ---- errors ---- */

typedef struct {
    LhS3Error *error;
    GString *text;
} ErrorReader;

static void on_error_start(GMarkupParseContext *context, const char *name, const char **attributes,
                           const char **values, gpointer data, GError **error)
{
    (void)context;
    (void)name;
    (void)attributes;
    (void)values;
    (void)error;
    g_string_truncate(((ErrorReader *)data)->text, 0);
}

static void on_error_text(GMarkupParseContext *context, const char *text, gsize len, gpointer data,
                          GError **error)
{
    (void)context;
    (void)error;
    g_string_append_len(((ErrorReader *)data)->text, text, (gssize)len);
}

static gboolean is_word(const char *text)
{
    for (const char *at = text; *at != '\0'; at++) {
        if (!g_ascii_isalnum(*at) && strchr(".-_", *at) == NULL)
            return FALSE;
    }
    return *text != '\0' && strlen(text) <= MAX_CODE_BYTES;
}

static char *one_line(const char *text)
{
    char *line = lh_error_text(text, MAX_MESSAGE_BYTES);
    for (char *at = line; *at != '\0'; at++) {
        if (g_ascii_iscntrl(*at))
            *at = ' ';
    }
    return g_strstrip(line);
}

static void on_error_end(GMarkupParseContext *context, const char *name, gpointer data,
                         GError **error)
{
    (void)context;
    (void)error;
    ErrorReader *r = data;
    const char *text = r->text->str;
    if (strcmp(name, "Code") == 0 && r->error->code == NULL && is_word(text))
        r->error->code = g_strdup(text);
    else if (strcmp(name, "Region") == 0 && r->error->region == NULL && is_word(text))
        r->error->region = g_strdup(text);
    else if (strcmp(name, "Message") == 0 && r->error->message == NULL && *text != '\0')
        r->error->message = one_line(text);
    g_string_truncate(r->text, 0);
}

void lh_s3_error_parse(const char *xml, gsize len, LhS3Error *out)
{
    static const GMarkupParser parser = {
        .start_element = on_error_start, .end_element = on_error_end, .text = on_error_text};
    ErrorReader reader = {.error = out, .text = g_string_new(NULL)};
    *out = (LhS3Error){0};
    g_autoptr(GMarkupParseContext) context = g_markup_parse_context_new(
        &parser, G_MARKUP_TREAT_CDATA_AS_TEXT, &reader, NULL);
    g_markup_parse_context_parse(context, xml, (gssize)len, NULL);
    g_string_free(reader.text, TRUE);
}

void lh_s3_error_clear(LhS3Error *error)
{
    g_clear_pointer(&error->code, g_free);
    g_clear_pointer(&error->message, g_free);
    g_clear_pointer(&error->region, g_free);
}
