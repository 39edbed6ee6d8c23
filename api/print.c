/*
 * Prints and compares structs by their tables of LhField.
 *
 * The output is compact JSON in table order, so that equal structs give equal bytes. The structs
 * may be a controller's own on the stack: NULL lists and maps are empty ones, any string is printed
 * (invalid UTF-8 mended). What is printed here, codec.c reads back as the same struct.
 */
#include "api/codec.h"
#include "base/units.h"

#include <string.h>

static const char *get_string(const LhField *field, const char *data)
{
    const char *text;
    memcpy(&text, data + field->offset, sizeof text);
    return text;
}

static const void *get_pointer(guint32 offset, const char *data)
{
    const void *pointer;
    memcpy(&pointer, data + offset, sizeof pointer);
    return pointer;
}

static LhUri get_uri(const LhField *field, const char *data)
{
    LhUri uri;
    memcpy(&uri, data + field->offset, sizeof uri);
    return uri;
}

static gint64 get_scalar(const LhField *field, const char *data)
{
    if (field->type == LH_F_BOOL || field->type == LH_F_ENUM) {
        int narrow;
        memcpy(&narrow, data + field->offset, sizeof narrow);
        return field->type == LH_F_BOOL ? narrow != 0 : narrow;
    }
    gint64 value;
    memcpy(&value, data + field->offset, sizeof value);
    return value;
}

static const char *const *get_strv(const LhField *field, const char *data)
{
    const char *const *strv = get_pointer(field->offset, data);
    return strv != NULL ? strv : lh_empty_strv;
}

static const LhStrMap *get_map(const LhField *field, const char *data)
{
    const LhStrMap *map = get_pointer(field->offset, data);
    return map != NULL ? map : &lh_empty_map;
}

static const guint8 *get_digests(const LhField *field, const char *data)
{
    const guint8 *digests = get_pointer(field->offset, data);
    return digests != NULL ? digests : lh_empty_digests;
}

static const LhArray *get_array(const LhField *field, const char *data)
{
    const LhArray *array = get_pointer(field->offset, data);
    return array != NULL ? array : &lh_empty_array;
}

/* --- print --- */

static void append_struct(const LhField *fields, const char *data, GString *out);

static gboolean strv_is(const char *const *strv, const cJSON *fallback)
{
    const cJSON *element = fallback != NULL ? fallback->child : NULL;
    for (; *strv != NULL && element != NULL; strv++, element = element->next) {
        if (strcmp(*strv, element->valuestring) != 0)
            return FALSE;
    }
    return *strv == NULL && element == NULL;
}

/* Only types for which a table says LH_SPARSE need to be exact here; FALSE is always right. */
static gboolean is_default(const LhField *field, const char *data)
{
    const cJSON *fallback = lh_codec_fallback(field);
    switch (field->type) {
    case LH_F_INT:
    case LH_F_BOOL:
    case LH_F_TIME:
    case LH_F_DURATION:
    case LH_F_SIZE:
    case LH_F_ENUM: {
        gint64 value = 0;
        if (fallback != NULL)
            lh_codec_scalar(field, fallback, &value, NULL, NULL);
        return get_scalar(field, data) == value;
    }
    case LH_F_STR:
    case LH_F_ATOM:
        return fallback != NULL && g_strcmp0(get_string(field, data), fallback->valuestring) == 0;
    case LH_F_STRV:
        return strv_is(get_strv(field, data), fallback);
    case LH_F_MAP:
        return get_map(field, data)->n == 0;
    case LH_F_DIGESTS:
        return *get_digests(field, data) == 0;
    case LH_F_ARRAY:
        return get_array(field, data)->n == 0;
    case LH_F_URI:
    case LH_F_RAW:
    case LH_F_STRUCT:
        return FALSE;
    }
    g_assert_not_reached();
}

static gboolean is_absent(const LhField *field, const char *data)
{
    switch (field->type) {
    case LH_F_STR:
    case LH_F_ATOM:
    case LH_F_RAW:
    case LH_F_URI: /* its directory comes first */
        return get_string(field, data) == NULL;
    case LH_F_TIME:
        return get_scalar(field, data) < 0;
    case LH_F_INT:
    case LH_F_BOOL:
    case LH_F_DURATION:
    case LH_F_SIZE:
    case LH_F_ENUM:
    case LH_F_STRV:
    case LH_F_MAP:
    case LH_F_DIGESTS:
    case LH_F_STRUCT:
    case LH_F_ARRAY:
        return FALSE;
    }
    g_assert_not_reached();
}

static gboolean is_left_out(const LhField *field, const char *data)
{
    if (is_absent(field, data))
        return (field->flags & LH_PRINT_NULL) == 0;
    if ((field->flags & LH_SPARSE) == 0 || !is_default(field, data))
        return FALSE;
    return field->with == 0 || get_pointer(field->with, data) == NULL;
}

static void append_scalar(const LhField *field, gint64 value, GString *out)
{
    g_autofree char *text = NULL;
    if (field->type == LH_F_BOOL) {
        g_string_append(out, value != 0 ? "true" : "false");
        return;
    }
    if (field->type == LH_F_INT || field->type == LH_F_SIZE) {
        lh_json_append_int(out, value);
        return;
    }
    if (field->type == LH_F_ENUM) {
        lh_json_append_string(out, lh_enum_name(field->sub, (int)value));
        return;
    }
    text = field->type == LH_F_TIME ? lh_time_format(value) : lh_duration_format(value);
    lh_json_append_string(out, text);
}

static void append_uri(LhUri uri, GString *out)
{
    g_autofree char *text = lh_uri_text(&uri);
    lh_json_append_string(out, text);
}

static void append_strv(const char *const *strv, GString *out)
{
    g_string_append_c(out, '[');
    for (; *strv != NULL; strv++) {
        lh_json_append_key(out, NULL);
        lh_json_append_string(out, *strv);
    }
    g_string_append_c(out, ']');
}

static void append_map(const LhStrMap *map, GString *out)
{
    g_string_append_c(out, '{');
    for (guint i = 0; i < map->n; i++) {
        lh_json_append_key(out, map->pairs[2 * i]);
        lh_json_append_string(out, map->pairs[2 * i + 1]);
    }
    g_string_append_c(out, '}');
}

static void append_digests(const guint8 *digests, GString *out)
{
    const char *file;
    char hex[2 * LH_DIGEST_BYTES + 1];
    g_string_append_c(out, '{');
    while (lh_digests_next(&digests, &file, hex)) {
        lh_json_append_key(out, file);
        lh_json_append_string(out, hex);
    }
    g_string_append_c(out, '}');
}

static void append_array(const LhField *field, const LhArray *array, GString *out)
{
    g_string_append_c(out, '[');
    for (guint i = 0; i < array->n; i++) {
        lh_json_append_key(out, NULL);
        append_struct(((const LhStructInfo *)field->sub)->fields, lh_array_at(array, i), out);
    }
    g_string_append_c(out, ']');
}

static void append_value(const LhField *field, const char *data, GString *out)
{
    if (is_absent(field, data)) {
        g_string_append(out, "null");
        return;
    }
    switch (field->type) {
    case LH_F_STR:
    case LH_F_ATOM:
        lh_json_append_string(out, get_string(field, data));
        return;
    case LH_F_RAW:
        g_string_append(out, get_string(field, data));
        return;
    case LH_F_URI:
        append_uri(get_uri(field, data), out);
        return;
    case LH_F_INT:
    case LH_F_BOOL:
    case LH_F_TIME:
    case LH_F_DURATION:
    case LH_F_SIZE:
    case LH_F_ENUM:
        append_scalar(field, get_scalar(field, data), out);
        return;
    case LH_F_STRV:
        append_strv(get_strv(field, data), out);
        return;
    case LH_F_MAP:
        append_map(get_map(field, data), out);
        return;
    case LH_F_DIGESTS:
        append_digests(get_digests(field, data), out);
        return;
    case LH_F_STRUCT:
        append_struct(((const LhStructInfo *)field->sub)->fields, data + field->offset, out);
        return;
    case LH_F_ARRAY:
        append_array(field, get_array(field, data), out);
        return;
    }
}

static void append_struct(const LhField *fields, const char *data, GString *out)
{
    g_string_append_c(out, '{');
    for (const LhField *field = fields; field->name != NULL; field++) {
        if (is_left_out(field, data))
            continue;
        lh_json_append_key(out, field->name);
        append_value(field, data, out);
    }
    g_string_append_c(out, '}');
}

void lh_object_append(LhKind kind, const void *object, GString *out)
{
    const LhKindInfo *info = lh_kind_info(kind);
    const LhField *fields = info->fields;
    const char *name = ((const LhObject *)object)->name;
    if (info->fields_of != NULL && name != NULL && info->fields_of(name) != NULL)
        fields = info->fields_of(name);
    append_struct(fields, object, out);
}

char *lh_object_print(LhKind kind, const void *object)
{
    GString *out = g_string_new(NULL);
    lh_object_append(kind, object, out);
    return g_string_free(out, FALSE);
}

/* --- compare --- */

static gboolean same_struct(const LhField *fields, const char *a, const char *b);

static gboolean same_uri(LhUri a, LhUri b)
{
    g_autofree char *text = lh_uri_text(&b);
    return text == NULL ? a.dir == NULL : lh_uri_is(&a, text);
}

static gboolean same_strv(const char *const *a, const char *const *b)
{
    for (; *a != NULL && *b != NULL; a++, b++) {
        if (strcmp(*a, *b) != 0)
            return FALSE;
    }
    return *a == NULL && *b == NULL;
}

static gboolean same_map(const LhStrMap *a, const LhStrMap *b)
{
    if (a->n != b->n)
        return FALSE;
    for (guint i = 0; i < 2 * a->n; i++) {
        if (strcmp(a->pairs[i], b->pairs[i]) != 0)
            return FALSE;
    }
    return TRUE;
}

static gboolean same_digests(const guint8 *a, const guint8 *b)
{
    gsize len = lh_digests_length(a);
    return lh_digests_length(b) == len && memcmp(a, b, len) == 0;
}

static gboolean same_array(const LhField *field, const LhArray *a, const LhArray *b)
{
    if (a->n != b->n)
        return FALSE;
    for (guint i = 0; i < a->n; i++) {
        if (!same_struct(((const LhStructInfo *)field->sub)->fields, lh_array_at(a, i),
                         lh_array_at(b, i)))
            return FALSE;
    }
    return TRUE;
}

static gboolean same_field(const LhField *field, const char *a, const char *b)
{
    switch (field->type) {
    case LH_F_STR:
    case LH_F_ATOM: /* a struct on the stack may hold a string that is not interned */
    case LH_F_RAW:
        return g_strcmp0(get_string(field, a), get_string(field, b)) == 0;
    case LH_F_URI:
        return same_uri(get_uri(field, a), get_uri(field, b));
    case LH_F_INT:
    case LH_F_BOOL:
    case LH_F_TIME:
    case LH_F_DURATION:
    case LH_F_SIZE:
    case LH_F_ENUM:
        return get_scalar(field, a) == get_scalar(field, b);
    case LH_F_STRV:
        return same_strv(get_strv(field, a), get_strv(field, b));
    case LH_F_MAP:
        return same_map(get_map(field, a), get_map(field, b));
    case LH_F_DIGESTS:
        return same_digests(get_digests(field, a), get_digests(field, b));
    case LH_F_STRUCT:
        return same_struct(((const LhStructInfo *)field->sub)->fields, a + field->offset,
                           b + field->offset);
    case LH_F_ARRAY:
        return same_array(field, get_array(field, a), get_array(field, b));
    }
    g_assert_not_reached();
}

static gboolean same_struct(const LhField *fields, const char *a, const char *b)
{
    for (const LhField *field = fields; field->name != NULL; field++) {
        if (!same_field(field, a, b))
            return FALSE;
    }
    return TRUE;
}

gboolean lh_object_same(LhKind kind, const void *a, const void *b)
{
    return a == b || same_struct(lh_kind_info(kind)->fields, a, b);
}
