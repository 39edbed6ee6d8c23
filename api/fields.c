/*
 * What follows from a table of LhField without any JSON being read or written: blank structs, defaults,
 * names of enums, who holds atoms.
 */
#include "api/atom.h"
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

/* --- uris --- */

static const char *middle_of(const LhUri *uri)
{
    if (uri->middle == NULL)
        return "";
    return uri->middle[0] == '/' ? uri->middle + 1 : uri->middle;
}

char *lh_uri_text(const LhUri *uri)
{
    return uri->last == NULL ? g_strdup(uri->dir)
                             : g_strconcat(uri->dir, middle_of(uri), uri->last, "/", NULL);
}

gboolean lh_uri_is(const LhUri *uri, const char *text)
{
    const LhUri other = {.dir = text};
    return uri->dir != NULL && lh_uri_compare(uri, &other) == 0;
}

typedef struct {
    const char *parts[4]; /* what is to be read, from @next on */
    guint next, n;
    const char *at; /* the rest of the part that is being read */
    gsize len;
} UriReader;

/* @from: the first part to read. */
static UriReader uri_reader(const LhUri *uri, guint from)
{
    return (UriReader){
        .parts = {uri->dir, middle_of(uri), uri->last, "/"},
        .next = from,
        .n = uri->last == NULL ? 1 : 4,
    };
}

/* False at the end. */
static gboolean uri_more(UriReader *reader)
{
    while (reader->len == 0 && reader->next < reader->n) {
        reader->at = reader->parts[reader->next++];
        reader->len = strlen(reader->at);
    }
    return reader->len > 0;
}

int lh_uri_compare(const LhUri *a, const LhUri *b)
{
    guint same = a->dir == b->dir && a->last != NULL && b->last != NULL ? 1 : 0;
    UriReader left = uri_reader(a, same), right = uri_reader(b, same);
    for (;;) {
        gboolean more_left = uri_more(&left), more_right = uri_more(&right);
        if (!more_left || !more_right)
            return (more_left - more_right) * LH_URI_INSIDE;
        gsize n = MIN(left.len, right.len);
        int order = memcmp(left.at, right.at, n);
        if (order != 0)
            return order < 0 ? -LH_URI_APART : LH_URI_APART;
        left.at += n;
        left.len -= n;
        right.at += n;
        right.len -= n;
    }
}

/* --- what a table says --- */

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
            const char *atom;
            memcpy(&atom, at, sizeof atom);
            lh_atom_unref(atom);
        } else if (field->type == LH_F_URI) {
            LhUri uri;
            memcpy(&uri, at, sizeof uri);
            if (uri.last != NULL)
                lh_atom_unref(uri.dir);
            if (uri.middle != NULL && uri.middle[0] != '/')
                lh_atom_unref(uri.middle);
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
