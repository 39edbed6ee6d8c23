/*
 * Manifests: files and directories → documents → objects, with the line that each came from.
 *
 * YAML is read event by event (libyaml) into cJSON, so that nothing can grow beyond its text:
 * there are no aliases. JSON files go through the JSON parser, which is stricter.
 */
#include "cli/manifest.h"

#include "base/errors.h"
#include "base/json.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

#define MAX_FILE_BYTES (16 * 1024 * 1024)
#define NOT_EXACT      "integers must be within 2^53-1"
#define MAX_DOCUMENTS  100000

typedef struct {
    yaml_parser_t parser;
    const char *source;
    guint depth;
    GError **error;
} Reader;

static void manifest_free(gpointer data)
{
    LhManifest *manifest = data;
    cJSON_Delete(manifest->object);
    g_free(manifest->source);
    g_free(manifest);
}

GPtrArray *lh_manifests_new(void)
{
    return g_ptr_array_new_with_free_func(manifest_free);
}

/* ---- scalars ---- */

static gboolean is_one_of(const char *text, const char *const *words)
{
    return g_strv_contains(words, text);
}

static gboolean is_int(const char *text)
{
    if (text[0] == '0' && (text[1] == 'o' || text[1] == 'x') && text[2] != '\0') {
        const char *digits = text[1] == 'o' ? "01234567" : "0123456789abcdefABCDEF";
        return text[2 + strspn(text + 2, digits)] == '\0';
    }
    text += text[0] == '-' || text[0] == '+';
    return text[0] != '\0' && text[strspn(text, "0123456789")] == '\0';
}

/* [-+]? ( \. [0-9]+ | [0-9]+ ( \. [0-9]* )? ) ( [eE] [-+]? [0-9]+ )? */
static gboolean is_float(const char *text)
{
    static const char *const named[] = {".nan",  ".NaN",  ".NAN",  ".inf",  ".Inf",
                                        ".INF",  "-.inf", "-.Inf", "-.INF", "+.inf",
                                        "+.Inf", "+.INF", NULL};
    if (is_one_of(text, named)) {
        return TRUE;
    }
    text += text[0] == '-' || text[0] == '+';
    gsize whole = strspn(text, "0123456789");
    text += whole;
    if (*text == '.') {
        gsize fraction = strspn(text + 1, "0123456789");
        if (whole + fraction == 0) {
            return FALSE;
        }
        text += 1 + fraction;
    } else if (whole == 0) {
        return FALSE;
    }
    if (*text == 'e' || *text == 'E') {
        text++;
        text += *text == '-' || *text == '+';
        gsize exponent = strspn(text, "0123456789");
        if (exponent == 0) {
            return FALSE;
        }
        text += exponent;
    }
    return *text == '\0';
}

LhScalar lh_yaml_scalar(const char *text)
{
    static const char *const nulls[] = {"", "~", "null", "Null", "NULL", NULL};
    static const char *const bools[] = {"true", "True", "TRUE", "false", "False", "FALSE", NULL};
    if (is_one_of(text, nulls)) {
        return LH_SCALAR_NULL;
    }
    if (is_one_of(text, bools)) {
        return LH_SCALAR_BOOL;
    }
    return is_int(text) ? LH_SCALAR_INT : is_float(text) ? LH_SCALAR_FLOAT : LH_SCALAR_STRING;
}

/* ---- YAML ---- */

static cJSON *refuse(Reader *reader, const yaml_mark_t *mark, const char *format, ...)
    G_GNUC_PRINTF(3, 4);
static cJSON *refuse(Reader *reader, const yaml_mark_t *mark, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    g_autofree char *why = g_strdup_vprintf(format, args);
    va_end(args);
    g_set_error(reader->error, LH_ERROR, LH_ERR_INVALID, "%s:%zu: %s", reader->source,
                mark->line + 1, why);
    return NULL;
}

static gboolean next_event(Reader *reader, yaml_event_t *event)
{
    if (yaml_parser_parse(&reader->parser, event)) {
        return TRUE;
    }
    const yaml_mark_t *mark = &reader->parser.problem_mark;
    const char *problem = reader->parser.problem;
    if (reader->parser.error == YAML_READER_ERROR) {
        mark = &reader->parser.mark; /* the problem's place is known in bytes only */
    }
    refuse(reader, mark, "%s", problem != NULL ? problem : "not valid YAML");
    return FALSE;
}

/* Beyond that, a double is not the integer that was written. */
static gboolean is_exact(double value)
{
    return value <= (double)LH_JSON_MAX_INT && value >= -(double)LH_JSON_MAX_INT;
}

static cJSON *read_int(Reader *reader, const yaml_event_t *event, const char *text)
{
    gboolean negative = text[0] == '-';
    const char *digits = text + (text[0] == '-' || text[0] == '+');
    int base = 10;
    if (digits == text && text[0] == '0' && (text[1] == 'o' || text[1] == 'x')) {
        base = text[1] == 'o' ? 8 : 16;
        digits += 2;
    }
    errno = 0;
    guint64 value = g_ascii_strtoull(digits, NULL, (guint)base);
    if (errno != 0 || value > (guint64)LH_JSON_MAX_INT) {
        return refuse(reader, &event->start_mark, "%s: " NOT_EXACT, text);
    }
    return cJSON_CreateNumber(negative ? -(double)value : (double)value);
}

static cJSON *read_scalar(Reader *reader, const yaml_event_t *event)
{
    const char *text = (const char *)event->data.scalar.value;
    const char *tag = (const char *)event->data.scalar.tag;
    if (event->data.scalar.anchor != NULL) {
        return refuse(reader, &event->start_mark, "anchors are not supported");
    }
    if (strlen(text) != event->data.scalar.length) {
        return refuse(reader, &event->start_mark, "NUL in a string");
    }
    gboolean string = event->data.scalar.style != YAML_PLAIN_SCALAR_STYLE;
    if (tag != NULL && strcmp(tag, "!") != 0) {
        if (strcmp(tag, YAML_STR_TAG) != 0) {
            return refuse(reader, &event->start_mark, "tag %s is not supported", tag);
        }
        string = TRUE;
    }
    switch (string ? LH_SCALAR_STRING : lh_yaml_scalar(text)) {
    case LH_SCALAR_STRING:
        return cJSON_CreateString(text);
    case LH_SCALAR_NULL:
        return cJSON_CreateNull();
    case LH_SCALAR_BOOL:
        return cJSON_CreateBool(g_ascii_tolower(text[0]) == 't');
    case LH_SCALAR_INT:
        return read_int(reader, event, text);
    case LH_SCALAR_FLOAT:
        break;
    }
    double value = g_ascii_strtod(text, NULL);
    if (strpbrk(text, "nN") != NULL || value > G_MAXDOUBLE || value < -G_MAXDOUBLE) {
        return refuse(reader, &event->start_mark, "%s: not a number that JSON has", text);
    }
    if (!is_exact(value)) {
        return refuse(reader, &event->start_mark, "%s: " NOT_EXACT, text);
    }
    return cJSON_CreateNumber(value);
}

static cJSON *read_node(Reader *reader, yaml_event_t *event);

static cJSON *read_sequence(Reader *reader)
{
    g_autoptr(cJSON) array = cJSON_CreateArray();
    for (;;) {
        yaml_event_t event;
        if (!next_event(reader, &event)) {
            return NULL;
        }
        if (event.type == YAML_SEQUENCE_END_EVENT) {
            yaml_event_delete(&event);
            return g_steal_pointer(&array);
        }
        cJSON *element = read_node(reader, &event);
        if (element == NULL) {
            return NULL;
        }
        cJSON_AddItemToArray(array, element);
    }
}

/* A key of a mapping, g_free; NULL: refused. */
static char *read_key(Reader *reader, const yaml_event_t *event, GHashTable *seen)
{
    if (event->type != YAML_SCALAR_EVENT) {
        refuse(reader, &event->start_mark, "keys must be plain text");
        return NULL;
    }
    const char *key = (const char *)event->data.scalar.value;
    if (event->data.scalar.anchor != NULL || strlen(key) != event->data.scalar.length) {
        refuse(reader, &event->start_mark, "anchors and NUL are not supported in keys");
    } else if (strcmp(key, "<<") == 0 && event->data.scalar.style == YAML_PLAIN_SCALAR_STYLE) {
        refuse(reader, &event->start_mark, "merge keys are not supported");
    } else if (g_hash_table_contains(seen, key)) {
        refuse(reader, &event->start_mark, "key \"%s\" is there twice", key);
    } else {
        g_hash_table_add(seen, g_strdup(key));
        return g_strdup(key);
    }
    return NULL;
}

static cJSON *read_mapping(Reader *reader)
{
    g_autoptr(cJSON) object = cJSON_CreateObject();
    g_autoptr(GHashTable) seen = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
    for (;;) {
        yaml_event_t event;
        if (!next_event(reader, &event)) {
            return NULL;
        }
        if (event.type == YAML_MAPPING_END_EVENT) {
            yaml_event_delete(&event);
            return g_steal_pointer(&object);
        }
        g_autofree char *key = read_key(reader, &event, seen);
        yaml_event_delete(&event);
        if (key == NULL || !next_event(reader, &event)) {
            return NULL;
        }
        cJSON *value = read_node(reader, &event);
        if (value == NULL) {
            return NULL;
        }
        cJSON_AddItemToObject(object, key, value);
    }
}

/* Takes @event; NULL and the error set when it is refused. */
static cJSON *read_node(Reader *reader, yaml_event_t *event)
{
    cJSON *value = NULL;
    gboolean mapping = event->type == YAML_MAPPING_START_EVENT;
    const yaml_char_t *anchor = mapping ? event->data.mapping_start.anchor
                                        : event->data.sequence_start.anchor;
    const yaml_char_t *tag = mapping ? event->data.mapping_start.tag
                                     : event->data.sequence_start.tag;
    if (event->type == YAML_ALIAS_EVENT) {
        refuse(reader, &event->start_mark, "aliases are not supported");
    } else if (event->type == YAML_SCALAR_EVENT) {
        value = read_scalar(reader, event);
    } else if (anchor != NULL) {
        refuse(reader, &event->start_mark, "anchors are not supported");
    } else if (tag != NULL && strcmp((const char *)tag, "!") != 0) {
        refuse(reader, &event->start_mark, "tag %s is not supported", tag);
    } else if (reader->depth >= LH_JSON_MAX_DEPTH) {
        refuse(reader, &event->start_mark, "more than %d levels", LH_JSON_MAX_DEPTH);
    } else {
        reader->depth++;
        value = mapping ? read_mapping(reader) : read_sequence(reader);
        reader->depth--;
    }
    yaml_event_delete(event);
    return value;
}

/* ---- documents ---- */

/* Takes @object. A List becomes its items; a document that is empty is none. */
static gboolean add_document(const char *source, gsize line, cJSON *object, GPtrArray *out,
                             GError **error)
{
    g_autoptr(cJSON) owned = object;
    g_autofree char *place = g_strdup_printf("%s:%zu", source, line);
    if (cJSON_IsNull(object)) {
        return TRUE;
    }
    if (!cJSON_IsObject(object)) {
        g_set_error(error, LH_ERROR, LH_ERR_INVALID, "%s: must be an object", place);
        return FALSE;
    }
    cJSON *items = cJSON_GetObjectItemCaseSensitive(object, "items");
    if (g_str_has_suffix(lh_json_get_string(object, "kind", ""), "List") && cJSON_IsArray(items)) {
        cJSON *item;
        while ((item = cJSON_DetachItemFromArray(items, 0)) != NULL) {
            if (!add_document(source, line, item, out, error)) {
                return FALSE;
            }
        }
        return TRUE;
    }
    if (out->len >= MAX_DOCUMENTS) {
        g_set_error(error, LH_ERROR, LH_ERR_INVALID, "%s: more than %d objects", place,
                    MAX_DOCUMENTS);
        return FALSE;
    }
    LhManifest *manifest = g_new0(LhManifest, 1);
    manifest->object = g_steal_pointer(&owned);
    manifest->source = g_steal_pointer(&place);
    g_ptr_array_add(out, manifest);
    return TRUE;
}

/* Handles the event after STREAM-START or a document; *end: there are no more. */
static gboolean read_document(Reader *reader, GPtrArray *out, gboolean *end)
{
    yaml_event_t event;
    if (!next_event(reader, &event)) {
        return FALSE;
    }
    yaml_event_type_t type = event.type;
    yaml_event_delete(&event);
    *end = type == YAML_STREAM_END_EVENT;
    if (type != YAML_DOCUMENT_START_EVENT) {
        return TRUE; /* the stream's start and end, a document's end */
    }
    if (!next_event(reader, &event)) {
        return FALSE;
    }
    gsize line = event.start_mark.line + 1;
    cJSON *object = read_node(reader, &event);
    return object != NULL && add_document(reader->source, line, object, out, reader->error);
}

static gboolean parse_yaml(const char *source, const char *text, gsize len, GPtrArray *out,
                           GError **error)
{
    Reader reader = {.source = source, .error = error};
    gboolean end = FALSE, ok = TRUE;
    yaml_parser_initialize(&reader.parser);
    yaml_parser_set_input_string(&reader.parser, (const unsigned char *)text, len);
    while (ok && !end) {
        ok = read_document(&reader, out, &end);
    }
    yaml_parser_delete(&reader.parser);
    return ok;
}

/* The first number that JSON's text may have held exactly and @value does not; NULL: none. */
static const cJSON *find_inexact(const cJSON *value)
{
    const cJSON *child, *found = NULL;
    if (cJSON_IsNumber(value)) {
        return is_exact(value->valuedouble) ? NULL : value;
    }
    for (child = value->child; child != NULL && found == NULL; child = child->next) {
        found = find_inexact(child);
    }
    return found;
}

static gboolean parse_json(const char *source, const char *text, gsize len, GPtrArray *out,
                           GError **error)
{
    g_autoptr(GError) local = NULL;
    cJSON *object = lh_json_parse(text, len, MAX_FILE_BYTES, &local);
    if (object == NULL) {
        /* Where a less strict parser stops gives the line. */
        const char *end = NULL;
        cJSON *loose = cJSON_ParseWithLengthOpts(text, len, &end, FALSE);
        gsize line = 1;
        for (const char *p = text; loose == NULL && p < end; p++) {
            line += *p == '\n';
        }
        cJSON_Delete(loose);
        g_set_error(error, LH_ERROR, LH_ERR_INVALID, "%s:%zu: %s", source, line, local->message);
        return FALSE;
    }
    const cJSON *inexact = find_inexact(object);
    if (inexact != NULL) {
        g_autofree char *number = lh_json_print(inexact);
        g_set_error(error, LH_ERROR, LH_ERR_INVALID, "%s:1: %s%s%s: " NOT_EXACT, source,
                    inexact->string != NULL ? inexact->string : "",
                    inexact->string != NULL ? ": " : "", number);
        cJSON_Delete(object);
        return FALSE;
    }
    return add_document(source, 1, object, out, error);
}

gboolean lh_manifest_parse(const char *source, const char *text, gsize len, gboolean json,
                           GPtrArray *out, GError **error)
{
    if (len > MAX_FILE_BYTES) {
        g_set_error(error, LH_ERROR, LH_ERR_INVALID, "%s: more than %d bytes", source,
                    MAX_FILE_BYTES);
        return FALSE;
    }
    return json ? parse_json(source, text, len, out, error)
                : parse_yaml(source, text, len, out, error);
}

/* ---- files ---- */

static gboolean load_stream(const char *source, FILE *file, gboolean json, GPtrArray *out,
                            GError **error)
{
    g_autoptr(GString) text = g_string_new(NULL);
    char buffer[65536];
    size_t n;
    while (text->len <= MAX_FILE_BYTES && (n = fread(buffer, 1, sizeof buffer, file)) > 0) {
        g_string_append_len(text, buffer, (gssize)n);
    }
    if (ferror(file)) {
        g_set_error(error, LH_ERROR, LH_ERR_IO, "%s: cannot be read", source);
        return FALSE;
    }
    return lh_manifest_parse(source, text->str, text->len, json, out, error);
}

static gboolean load_file(const char *path, GPtrArray *out, GError **error)
{
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        g_set_error(error, LH_ERROR, LH_ERR_IO, "%s: %s", path, g_strerror(errno));
        return FALSE;
    }
    gboolean ok = load_stream(path, file, g_str_has_suffix(path, ".json"), out, error);
    fclose(file);
    return ok;
}

static int compare_names(gconstpointer a, gconstpointer b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static gboolean load_directory(const char *path, GPtrArray *out, GError **error)
{
    g_autoptr(GDir) dir = g_dir_open(path, 0, NULL);
    if (dir == NULL) {
        g_set_error(error, LH_ERROR, LH_ERR_IO, "%s: cannot be read", path);
        return FALSE;
    }
    g_autoptr(GPtrArray) names = g_ptr_array_new_with_free_func(g_free);
    const char *name;
    while ((name = g_dir_read_name(dir)) != NULL) {
        if (name[0] != '.' && (g_str_has_suffix(name, ".yaml") || g_str_has_suffix(name, ".yml") ||
                               g_str_has_suffix(name, ".json"))) {
            g_ptr_array_add(names, g_build_filename(path, name, NULL));
        }
    }
    g_ptr_array_sort(names, compare_names);
    for (guint i = 0; i < names->len; i++) {
        if (!load_file(names->pdata[i], out, error)) {
            return FALSE;
        }
    }
    return TRUE;
}

gboolean lh_manifest_load(const char *path, GPtrArray *out, GError **error)
{
    if (strcmp(path, "-") == 0) {
        return load_stream("standard input", stdin, FALSE, out, error);
    }
    return g_file_test(path, G_FILE_TEST_IS_DIR) ? load_directory(path, out, error)
                                                 : load_file(path, out, error);
}
