/*
 * What follows from a table of LhField without any JSON being read or written: blank structs, defaults,
 * names of enums, who holds atoms.
 */
#include "api/codec.h"

#include <string.h>

const LhStrMap lh_empty_map = {0, NULL};
const LhArray lh_empty_array = {0, 0, NULL};
const char *const lh_empty_strv[] = {NULL};

const char *lh_enum_name(const char *const *names, int value)
{
    for (int i = 0; names[i] != NULL; i++) {
        if (i == value)
            return names[i];
    }
    return "unknown";
}

char *lh_uri_text(const LhUri *uri)
{
    return uri->last == NULL ? g_strdup(uri->dir) : g_strconcat(uri->dir, uri->last, "/", NULL);
}

gboolean lh_uri_is(const LhUri *uri, const char *text)
{
    gsize dir = uri->dir == NULL ? 0 : strlen(uri->dir);
    if (dir == 0 || strncmp(text, uri->dir, dir) != 0)
        return FALSE;
    gsize last = uri->last == NULL ? 0 : strlen(uri->last);
    if (last == 0)
        return text[dir] == '\0';
    return strncmp(text + dir, uri->last, last) == 0 && strcmp(text + dir + last, "/") == 0;
}

static void blank_field(const LhField *field, char *data)
{
    const void *empty = NULL;
    const gint64 never = -1;
    if (field->type == LH_F_TIME)
        memcpy(data + field->offset, &never, sizeof never);
    else if (field->type == LH_F_STRV)
        empty = lh_empty_strv;
    else if (field->type == LH_F_MAP)
        empty = &lh_empty_map;
    else if (field->type == LH_F_DIGESTS)
        empty = lh_empty_digests;
    else if (field->type == LH_F_ARRAY)
        empty = &lh_empty_array;
    if (empty != NULL)
        memcpy(data + field->offset, &empty, sizeof empty);
}

void lh_codec_blank(const LhField *fields, gpointer data)
{
    for (const LhField *field = fields; field->name != NULL; field++) {
        if (field->type == LH_F_STRUCT)
            lh_codec_blank(((const LhStructInfo *)field->sub)->fields,
                           (char *)data + field->offset);
        else
            blank_field(field, data);
    }
}

const cJSON *lh_codec_fallback(const LhField *field)
{
    static GMutex mutex;
    static GHashTable *parsed; /* const LhField * → cJSON, never freed */
    if (field->fallback == NULL)
        return NULL;
    g_mutex_lock(&mutex);
    if (parsed == NULL)
        parsed = g_hash_table_new(NULL, NULL);
    cJSON *json = g_hash_table_lookup(parsed, field);
    if (json == NULL) {
        json = cJSON_Parse(field->fallback);
        g_assert(json != NULL); /* a table of ours */
        g_hash_table_insert(parsed, (gpointer)field, json);
    }
    g_mutex_unlock(&mutex);
    return json;
}

void lh_codec_release(const LhField *fields, gpointer data)
{
    for (const LhField *field = fields; field->name != NULL; field++) {
        char *at = (char *)data + field->offset;
        if (field->type == LH_F_ATOM) {
            char *atom;
            memcpy(&atom, at, sizeof atom);
            if (atom != NULL)
                g_ref_string_release(atom);
        } else if (field->type == LH_F_URI) {
            LhUri uri;
            memcpy(&uri, at, sizeof uri);
            if (uri.last != NULL)
                g_ref_string_release((char *)uri.dir);
        } else if (field->type == LH_F_STRUCT) {
            lh_codec_release(((const LhStructInfo *)field->sub)->fields, at);
        } else if (field->type == LH_F_ARRAY) {
            const LhArray *array;
            memcpy(&array, at, sizeof array);
            for (guint i = 0; array != NULL && i < array->n; i++)
                lh_codec_release(((const LhStructInfo *)field->sub)->fields,
                                 (char *)array->items + i * array->size);
        }
    }
}
