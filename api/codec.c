/*
 * Reads JSON into structs, driven by tables of LhField.
 *
 * One function for each shape a value can have; the table says which, with which bounds and
 * defaults. Everything here is input from outside: it ends in a value within its bounds or in an
 * error that names the field, never in an assertion. Nothing in this file may know a kind or a
 * field by name.
 */
#include "api/codec.h"

#include "api/published.h"
#include "base/errors.h"
#include "base/units.h"

#include <string.h>

#define MAX_FIELDS    64 /* of one struct; bits of a guint64 */
#define MAX_NAME      253
#define MAX_SEGMENTS  64   /* of a uri that is cut in parts */
#define MAX_CUT_BYTES 1024 /* the same */
#define FEW_ELEMENTS  16   /* up to here comparing each with each beats hashing */

typedef struct {
    LhBuilder *b;
    LhUnknown *unknown;
    GError **error;
    gboolean trusted; /* a fallback: bounds do not apply */
} Reader;

static gboolean read_struct(Reader *r, const LhField *fields, guint32 base, const cJSON *json,
                            const LhPath *path);

/* What @json is, for "is …, must be …". g_free. */
static char *describe(const cJSON *json)
{
    if (cJSON_IsString(json))
        return lh_quote(json->valuestring);
    if (cJSON_IsObject(json))
        return g_strdup("an object");
    if (cJSON_IsArray(json))
        return g_strdup("a list");
    return lh_json_print(json);
}

static const char *const expectations[] = {
    [LH_F_STR] = "a string",
    [LH_F_ATOM] = "a string",
    [LH_F_INT] = "an integer within ±(2^53-1)",
    [LH_F_BOOL] = "true or false",
    [LH_F_TIME] = "a time like 2026-05-01T12:00:00.000Z",
    [LH_F_DURATION] = "a duration like 15m",
    [LH_F_SIZE] = "an integer or a size like 15Gi",
    [LH_F_ENUM] = "a string",
    [LH_F_STRV] = "a list of strings",
    [LH_F_MAP] = "an object of strings",
    [LH_F_DIGESTS] = "an object of SHA-256 digests",
    [LH_F_URI] = "a string",
    [LH_F_RAW] = "an object",
    [LH_F_STRUCT] = "an object",
    [LH_F_ARRAY] = "a list of objects",
};

static gboolean refuse_type(GError **error, const LhPath *path, const cJSON *json, LhFieldType type)
{
    g_autofree char *what = describe(json);
    return lh_refuse(error, path, "is %s, must be %s", what, expectations[type]);
}

/* --- scalars --- */

static gboolean scalar_enum(const LhField *field, const cJSON *json, gint64 *out,
                            const LhPath *path, GError **error)
{
    const char *const *names = field->sub;
    if (cJSON_IsString(json)) {
        for (int i = 0; names[i] != NULL; i++) {
            if (strcmp(names[i], json->valuestring) == 0) {
                *out = i;
                return TRUE;
            }
        }
    }
    g_autofree char *what = describe(json);
    g_autofree char *all = g_strjoinv(", ", (char **)names);
    return lh_refuse(error, path, "is %s, must be one of %s", what, all);
}

/* A text that @parse reads. */
static gboolean scalar_text(gboolean (*parse)(const char *, gint64 *, GError **), const cJSON *json,
                            gint64 *out, const LhPath *path, GError **error)
{
    g_autoptr(GError) why = NULL;
    if (parse(json->valuestring, out, &why))
        return TRUE;
    return lh_refuse(error, path, "%s", why->message);
}

gboolean lh_codec_scalar(const LhField *field, const cJSON *json, gint64 *out, const LhPath *path,
                         GError **error)
{
    switch (field->type) {
    case LH_F_INT:
        return lh_json_int(json, out) || refuse_type(error, path, json, field->type);
    case LH_F_BOOL:
        if (!cJSON_IsBool(json))
            return refuse_type(error, path, json, field->type);
        *out = cJSON_IsTrue(json) ? 1 : 0;
        return TRUE;
    case LH_F_ENUM:
        return scalar_enum(field, json, out, path, error);
    case LH_F_DURATION:
        if (cJSON_IsString(json))
            return scalar_text(lh_duration_parse, json, out, path, error);
        return refuse_type(error, path, json, field->type);
    case LH_F_TIME:
        if (cJSON_IsString(json))
            return scalar_text(lh_time_parse, json, out, path, error);
        return lh_json_int(json, out) || refuse_type(error, path, json, field->type);
    case LH_F_SIZE:
        if (cJSON_IsString(json))
            return scalar_text(lh_size_parse, json, out, path, error);
        return lh_json_int(json, out) || refuse_type(error, path, json, field->type);
    case LH_F_STR:
    case LH_F_ATOM:
    case LH_F_STRV:
    case LH_F_MAP:
    case LH_F_DIGESTS:
    case LH_F_URI:
    case LH_F_RAW:
    case LH_F_STRUCT:
    case LH_F_ARRAY:
        break;
    }
    g_assert_not_reached();
}

static char *format_scalar(const LhField *field, gint64 value)
{
    if (field->type == LH_F_DURATION)
        return lh_duration_format(value);
    if (field->type == LH_F_TIME)
        return lh_time_format(value);
    return g_strdup_printf("%" G_GINT64_FORMAT, value);
}

static gboolean check_bounds(const Reader *r, const LhField *field, gint64 value,
                             const LhPath *path)
{
    gboolean given = field->min != 0 || field->max != 0;
    gint64 min = field->min;
    gint64 max = given ? field->max : LH_JSON_MAX_INT;
    if (field->type == LH_F_TIME && !given)
        max = LH_TIME_MAX_MS;
    if (r->trusted || (value >= min && value <= max))
        return TRUE;
    /* An integer as a time may lie where no RFC 3339 text can say it. */
    g_autofree char *is = field->type == LH_F_TIME && (value < 0 || value > LH_TIME_MAX_MS)
                              ? g_strdup_printf("%" G_GINT64_FORMAT, value)
                              : format_scalar(field, value);
    g_autofree char *low = format_scalar(field, min);
    g_autofree char *high = format_scalar(field, max);
    if (max == LH_JSON_MAX_INT)
        return lh_refuse(r->error, path, "is %s, must be %s or more", is, low);
    return lh_refuse(r->error, path, "is %s, must be %s to %s", is, low, high);
}

static gboolean read_scalar(Reader *r, const LhField *field, guint32 place, const cJSON *json,
                            const LhPath *path)
{
    gint64 value = 0;
    if (!lh_codec_scalar(field, json, &value, path, r->error))
        return FALSE;
    if (field->type == LH_F_BOOL || field->type == LH_F_ENUM) {
        int narrow = (int)value;
        memcpy(lh_builder_at(r->b, place), &narrow, sizeof narrow);
        return TRUE;
    }
    if (!check_bounds(r, field, value, path))
        return FALSE;
    memcpy(lh_builder_at(r->b, place), &value, sizeof value);
    return TRUE;
}

/* --- strings --- */

static gboolean check_string(const Reader *r, const LhField *field, const char *text, gsize len,
                             const LhPath *path)
{
    gboolean list = field->type == LH_F_STRV;
    gsize max = list || field->max == 0 ? G_MAXSIZE : (gsize)field->max;
    gsize min = list ? 0 : (gsize)field->min;
    if (r->trusted)
        return TRUE;
    if (len == 0 && min > 0)
        return lh_refuse(r->error, path, "is empty");
    if (len < min || len > max)
        return lh_refuse(r->error, path,
                         "is %" G_GSIZE_FORMAT " bytes long, must be %" G_GSIZE_FORMAT
                         " to %" G_GSIZE_FORMAT,
                         len, min, max);
    max = MIN(max, MAX_NAME);
    gboolean name_ok = (field->flags & LH_NAME) == 0 || lh_name_valid(text, max);
    gboolean pool_ok = (field->flags & LH_POOL_NAME) == 0 || lh_pool_name_valid(text);
    if (name_ok && pool_ok)
        return TRUE;
    g_autofree char *quoted = lh_quote(text);
    if (!pool_ok)
        return lh_refuse(r->error, path, "is %s, must be 1 to 63 of a-z, 0-9 and '-'", quoted);
    return lh_refuse(
        r->error, path,
        "is %s, must be a name of letters, digits, '.', '_' and '-', at most %" G_GSIZE_FORMAT
        " long, first and last a letter or digit",
        quoted, max);
}

static gboolean read_string(Reader *r, const LhField *field, guint32 place, const cJSON *json,
                            const LhPath *path)
{
    if (!cJSON_IsString(json))
        return refuse_type(r->error, path, json, LH_F_STR);
    gsize len = strlen(json->valuestring);
    if (!check_string(r, field, json->valuestring, len, path))
        return FALSE;
    if (field->type == LH_F_ATOM)
        lh_builder_set_atom(r->b, place, json->valuestring, len);
    else
        lh_builder_set_string(r->b, place, json->valuestring, len);
    return TRUE;
}

/* Whether a text of that hash was met lately in another uri than that of hash @uri. One that only a single
 * uri has, however often it is read, would cost more as an atom than it saves. */
static gboolean met_lately(guint64 hash, guint64 uri)
{
    static struct {
        guint32 text, uri;
    } lately[1 << 14], *slot;
    slot = &lately[hash >> (64 - 14)];
    gboolean met = slot->text == (guint32)hash && slot->uri != (guint32)uri;
    slot->text = (guint32)hash;
    slot->uri = (guint32)uri;
    return met;
}

static guint64 mix(guint64 hash, const char *text, gsize len)
{
    const guint64 odd = G_GUINT64_CONSTANT(0x9e3779b97f4a7c15);
    for (guint64 word = 0; len > 0; word = 0) {
        gsize n = MIN(len, sizeof word);
        memcpy(&word, text, n);
        hash = (hash ^ word ^ (guint64)n << 56) * odd;
        hash ^= hash >> 32;
        text += n;
        len -= n;
    }
    return hash * odd;
}

/* The segments of the uri that was read last: most begin as the one before, and need no hashing there. */
typedef struct {
    guint n;
    gsize ends[MAX_SEGMENTS];
    guint64 hashes[MAX_SEGMENTS]; /* of all up to there */
    char text[MAX_CUT_BYTES];
} Segments;

/* FALSE: too long or too deep to be cut. */
static gboolean find_segments(Segments *s, const char *uri, gsize len)
{
    gsize begin = 0;
    guint n = 0;
    if (len > sizeof s->text)
        return FALSE;
    while (n < s->n && s->ends[n] <= len &&
           memcmp(s->text + begin, uri + begin, s->ends[n] - begin) == 0)
        begin = s->ends[n++];
    memcpy(s->text + begin, uri + begin, len - begin);
    for (; begin < len && n < MAX_SEGMENTS; n++) {
        const char *slash = memchr(uri + begin, '/', len - begin);
        gsize end = (gsize)(slash - uri) + 1; /* there is one: a uri ends in '/' */
        s->hashes[n] = mix(n > 0 ? s->hashes[n - 1] : 0, uri + begin, end - begin);
        s->ends[n] = begin = end;
    }
    s->n = n;
    return begin == len;
}

/* Where the longest directory above @uri that was met lately ends, where its last segment begins, and whether
 * what is between was met lately, too. *dir is 0 when there is none. */
static gboolean cut_uri(const char *uri, gsize len, gsize *dir, gsize *last)
{
    static Segments segments;
    const Segments *s = &segments;
    *dir = *last = 0;
    if (!find_segments(&segments, uri, len))
        return FALSE;
    for (guint i = 0; i + 1 < s->n; i++) {
        *last = s->ends[i];
        if (met_lately(s->hashes[i], s->hashes[s->n - 1]))
            *dir = *last;
    }
    return *dir != 0 && *last > *dir &&
           met_lately(mix(1, uri + *dir, *last - *dir), s->hashes[s->n - 1]);
}

static gboolean read_uri(Reader *r, const LhField *field, guint32 place, const cJSON *json,
                         const LhPath *path)
{
    g_autoptr(GError) why = NULL;
    if (!cJSON_IsString(json))
        return refuse_type(r->error, path, json, LH_F_STR);
    const char *text = json->valuestring;
    gsize len = strlen(text);
    if (!check_string(r, field, text, len, path))
        return FALSE;
    if (!lh_uri_check(text, &why))
        return lh_refuse(r->error, path, "%s", why->message);
    gsize dir, last;
    gboolean shared_middle = cut_uri(text, len, &dir, &last);
    if (dir == 0) {
        lh_builder_set_string(r->b, place + (guint32)offsetof(LhUri, dir), text, len);
        return TRUE;
    }
    guint32 middle = place + (guint32)offsetof(LhUri, middle);
    lh_builder_set_atom(r->b, place + (guint32)offsetof(LhUri, dir), text, dir);
    if (shared_middle)
        lh_builder_set_atom(r->b, middle, text + dir, last - dir);
    else if (last > dir)
        lh_builder_set_string(r->b, middle, text + dir - 1, last - dir + 1);
    lh_builder_set_shared(r->b, place + (guint32)offsetof(LhUri, last), text + last,
                          len - 1 - last);
    return TRUE;
}

/* Beyond LH_JSON_MAX_INT a double is not the integer that was written, and printing would change it. */
static gboolean check_exact(const Reader *r, const cJSON *json, const LhPath *path)
{
    guint index = 0;
    if (cJSON_IsNumber(json) && (json->valuedouble > (double)LH_JSON_MAX_INT ||
                                 json->valuedouble < -(double)LH_JSON_MAX_INT))
        return lh_refuse(r->error, path, "integers must be within 2^53-1");
    for (const cJSON *child = json->child; child != NULL; child = child->next) {
        const LhPath at = {.up = path, .name = child->string, .index = index++};
        if (!check_exact(r, child, &at))
            return FALSE;
    }
    return TRUE;
}

static gboolean read_raw(Reader *r, const LhField *field, guint32 place, const cJSON *json,
                         const LhPath *path)
{
    if ((field->flags & LH_OBJECT) != 0 && !cJSON_IsObject(json))
        return refuse_type(r->error, path, json, LH_F_RAW);
    if (!check_exact(r, json, path))
        return FALSE;
    g_autofree char *text = lh_json_print(json);
    lh_builder_set_string(r->b, place, text, strlen(text));
    return TRUE;
}

/* --- lists and maps --- */

static gboolean check_count(const Reader *r, const LhField *field, guint n, const LhPath *path)
{
    if (r->trusted || (n >= field->min && (field->max == 0 || n <= field->max)))
        return TRUE;
    return lh_refuse(r->error, path,
                     "has %u elements, must have %" G_GINT64_FORMAT " to %" G_GINT64_FORMAT, n,
                     field->min, field->max);
}

/* The position of an element that is in the list twice, or -1. */
static int find_twice(const cJSON *list, guint n)
{
    if (n <= FEW_ELEMENTS) {
        int at = 0;
        for (const cJSON *a = list->child; a != NULL; a = a->next, at++) {
            for (const cJSON *b = list->child; b != a; b = b->next) {
                if (strcmp(a->valuestring, b->valuestring) == 0)
                    return at;
            }
        }
        return -1;
    }
    g_autoptr(GHashTable) seen = g_hash_table_new(g_str_hash, g_str_equal);
    int at = 0;
    for (const cJSON *a = list->child; a != NULL; a = a->next, at++) {
        if (!g_hash_table_add(seen, a->valuestring))
            return at;
    }
    return -1;
}

static gboolean read_strv(Reader *r, const LhField *field, guint32 place, const cJSON *json,
                          const LhPath *path)
{
    if (!cJSON_IsArray(json))
        return refuse_type(r->error, path, json, field->type);
    guint n = (guint)cJSON_GetArraySize(json);
    if (!check_count(r, field, n, path))
        return FALSE;
    if (n == 0)
        return TRUE;
    LhPath at = {.up = path};
    const cJSON *element;
    cJSON_ArrayForEach(element, json) {
        if (!cJSON_IsString(element))
            return refuse_type(r->error, &at, element, LH_F_STR);
        if (!check_string(r, field, element->valuestring, strlen(element->valuestring), &at))
            return FALSE;
        at.index++;
    }
    int twice = (field->flags & LH_UNIQUE) != 0 ? find_twice(json, n) : -1;
    if (twice >= 0) {
        at.index = (guint)twice;
        return lh_refuse(r->error, &at, "is there twice");
    }
    guint32 list = lh_builder_words(r->b, (n + 1) * sizeof(char *));
    lh_builder_set_words(r->b, place, list);
    cJSON_ArrayForEach(element, json) {
        lh_builder_set_string(r->b, list, element->valuestring, strlen(element->valuestring));
        list += (guint32)sizeof(char *);
    }
    return TRUE;
}

static int compare_members(const void *a, const void *b)
{
    return strcmp((*(const cJSON *const *)a)->string, (*(const cJSON *const *)b)->string);
}

/* The members of an object of strings that are not null, sorted by name; NULL with an error.
 * g_free. */
static const cJSON **sorted_members(const Reader *r, const LhField *field, const cJSON *json,
                                    guint *n, const LhPath *path)
{
    if (!cJSON_IsObject(json)) {
        refuse_type(r->error, path, json, field->type);
        return NULL;
    }
    g_autofree const cJSON **members = g_new(const cJSON *, (gsize)cJSON_GetArraySize(json) + 1);
    const cJSON *member;
    *n = 0;
    cJSON_ArrayForEach(member, json) {
        LhPath at = {.up = path, .name = member->string};
        if (cJSON_IsNull(member))
            continue;
        if (!cJSON_IsString(member)) {
            refuse_type(r->error, &at, member, LH_F_STR);
            return NULL;
        }
        members[(*n)++] = member;
    }
    qsort(members, *n, sizeof *members, compare_members);
    return g_steal_pointer(&members);
}

static gboolean read_map(Reader *r, const LhField *field, guint32 place, const cJSON *json,
                         const LhPath *path)
{
    guint n;
    g_autofree const cJSON **members = sorted_members(r, field, json, &n, path);
    if (members == NULL)
        return FALSE;
    if (n == 0)
        return TRUE;
    guint32 map = lh_builder_words(r->b, sizeof(LhStrMap) + (gsize)n * 2 * sizeof(char *));
    guint32 pair = map + (guint32)sizeof(LhStrMap);
    ((LhStrMap *)lh_builder_at(r->b, map))->n = n;
    lh_builder_set_words(r->b, place, map);
    lh_builder_set_words(r->b, map + (guint32)offsetof(LhStrMap, pairs), pair);
    for (guint i = 0; i < n; i++) {
        const char *both[] = {members[i]->string, members[i]->valuestring};
        for (guint k = 0; k < 2; k++) {
            lh_builder_set_string(r->b, pair, both[k], strlen(both[k]));
            pair += (guint32)sizeof(char *);
        }
    }
    return TRUE;
}

/* See digests.c for the packed form. */
static gboolean read_digests(Reader *r, const LhField *field, guint32 place, const cJSON *json,
                             const LhPath *path)
{
    guint n;
    g_autofree const cJSON **members = sorted_members(r, field, json, &n, path);
    g_autoptr(GString) packed = g_string_new(NULL);
    if (members == NULL)
        return FALSE;
    for (guint i = 0; i < n; i++) {
        LhPath at = {.up = path, .name = members[i]->string};
        guint8 digest[LH_DIGEST_BYTES];
        if (members[i]->string[0] == '\0')
            return lh_refuse(r->error, path, "has an empty file name");
        if (!lh_digest_pack(members[i]->valuestring, digest)) {
            g_autofree char *what = lh_quote(members[i]->valuestring);
            return lh_refuse(r->error, &at, "is %s, must be 64 hexadecimal digits", what);
        }
        g_string_append_len(packed, members[i]->string, (gssize)strlen(members[i]->string) + 1);
        g_string_append_len(packed, (const char *)digest, LH_DIGEST_BYTES);
    }
    if (n > 0)
        lh_builder_set_string(r->b, place, packed->str, packed->len);
    return TRUE;
}

/* What an element of a LH_SORTED array is sorted by: its first field, "" when it is no string. */
static const char *sort_key(const cJSON *element, const char *name)
{
    const cJSON *member = cJSON_GetObjectItemCaseSensitive(element, name);
    return cJSON_IsString(member) ? member->valuestring : "";
}

static int compare_elements(const void *a, const void *b, void *name)
{
    return strcmp(sort_key(*(const cJSON *const *)a, name),
                  sort_key(*(const cJSON *const *)b, name));
}

static gboolean read_array(Reader *r, const LhField *field, guint32 place, const cJSON *json,
                           const LhPath *path)
{
    const LhStructInfo *info = field->sub;
    const char *first = info->fields[0].name;
    if (!cJSON_IsArray(json))
        return refuse_type(r->error, path, json, field->type);
    g_autofree const cJSON **elements = g_new(const cJSON *, (gsize)cJSON_GetArraySize(json) + 1);
    guint n = 0;
    const cJSON *element;
    cJSON_ArrayForEach(element, json)
        elements[n++] = element;
    if (!check_count(r, field, n, path))
        return FALSE;
    if (n == 0)
        return TRUE;
    gboolean sorted = (field->flags & LH_SORTED) != 0;
    if (sorted)
        g_qsort_with_data(elements, (gint)n, sizeof *elements, compare_elements, (void *)first);
    guint32 head = lh_builder_words(r->b, sizeof(LhArray));
    guint32 items = lh_builder_words(r->b, n * info->size);
    LhArray *array = lh_builder_at(r->b, head);
    array->n = n;
    array->size = info->size;
    lh_builder_set_words(r->b, place, head);
    lh_builder_set_words(r->b, head + (guint32)offsetof(LhArray, items), items);
    for (guint i = 0; i < n; i++) {
        LhPath at = {.up = path, .index = i};
        if (!cJSON_IsObject(elements[i]))
            return refuse_type(r->error, &at, elements[i], LH_F_STRUCT);
        lh_codec_blank(info->fields, lh_builder_at(r->b, items + i * (guint32)info->size));
        if (!read_struct(r, info->fields, items + i * (guint32)info->size, elements[i], &at))
            return FALSE;
        if (sorted && i > 0 &&
            compare_elements(&elements[i - 1], &elements[i], (void *)first) == 0) {
            g_autofree char *key = lh_quote(sort_key(elements[i], first));
            return lh_refuse(r->error, path, "has the %s %s twice", first, key);
        }
    }
    return TRUE;
}

/* --- fields and structs --- */

static gboolean read_field(Reader *r, const LhField *field, guint32 base, const cJSON *json,
                           const LhPath *path)
{
    guint32 place = base + field->offset;
    switch (field->type) {
    case LH_F_STR:
    case LH_F_ATOM:
        return read_string(r, field, place, json, path);
    case LH_F_INT:
    case LH_F_BOOL:
    case LH_F_TIME:
    case LH_F_DURATION:
    case LH_F_SIZE:
    case LH_F_ENUM:
        return read_scalar(r, field, place, json, path);
    case LH_F_STRV:
        return read_strv(r, field, place, json, path);
    case LH_F_MAP:
        return read_map(r, field, place, json, path);
    case LH_F_DIGESTS:
        return read_digests(r, field, place, json, path);
    case LH_F_URI:
        return read_uri(r, field, place, json, path);
    case LH_F_RAW:
        return read_raw(r, field, place, json, path);
    case LH_F_STRUCT:
        if (!cJSON_IsObject(json))
            return refuse_type(r->error, path, json, field->type);
        return read_struct(r, ((const LhStructInfo *)field->sub)->fields, place, json, path);
    case LH_F_ARRAY:
        return read_array(r, field, place, json, path);
    }
    g_assert_not_reached();
}

static gboolean read_absent(Reader *r, const LhField *field, guint32 base, const LhPath *path)
{
    if ((field->flags & LH_REQUIRED) != 0)
        return lh_refuse(r->error, path, "is required");
    if (field->type == LH_F_STRUCT)
        return read_struct(r, ((const LhStructInfo *)field->sub)->fields, base + field->offset,
                           NULL, path);
    const cJSON *fallback = lh_codec_fallback(field);
    if (fallback == NULL)
        return TRUE;
    Reader trusted = *r;
    trusted.trusted = TRUE;
    return read_field(&trusted, field, base, fallback, path);
}

/* Index of the field called @name, G_MAXUINT if there is none. Writers mostly keep the table's
 * order: the search begins at @hint. */
static guint find_field(const LhField *fields, const char *name, guint hint)
{
    for (guint i = hint; fields[i].name != NULL; i++) {
        if (strcmp(fields[i].name, name) == 0)
            return i;
    }
    for (guint i = 0; i < hint; i++) {
        if (strcmp(fields[i].name, name) == 0)
            return i;
    }
    return G_MAXUINT;
}

static gboolean read_struct(Reader *r, const LhField *fields, guint32 base, const cJSON *json,
                            const LhPath *path)
{
    guint64 seen = 0;
    guint hint = 0;
    const cJSON *member;
    cJSON_ArrayForEach(member, json) {
        LhPath at = {.up = path, .name = member->string};
        guint i = find_field(fields, member->string, hint);
        if (i == G_MAXUINT) {
            lh_unknown_add(r->unknown, &at);
            continue;
        }
        hint = i + 1;
        if (cJSON_IsNull(member))
            continue;
        if (!read_field(r, &fields[i], base, member, &at))
            return FALSE;
        seen |= G_GUINT64_CONSTANT(1) << i;
    }
    for (guint i = 0; fields[i].name != NULL; i++) {
        LhPath at = {.up = path, .name = fields[i].name};
        g_assert(i < MAX_FIELDS);
        if ((seen >> i & 1) == 0 && !read_absent(r, &fields[i], base, &at))
            return FALSE;
    }
    return TRUE;
}

gboolean lh_codec_struct(LhBuilder *b, const LhField *fields, guint32 base, const cJSON *json,
                         const LhPath *path, LhUnknown *unknown, GError **error)
{
    Reader r = {.b = b, .unknown = unknown, .error = error};
    return read_struct(&r, fields, base, json, path);
}

gboolean lh_codec_field(LhBuilder *b, const LhField *field, guint32 base, const cJSON *json,
                        const LhPath *path, LhUnknown *unknown, GError **error)
{
    Reader r = {.b = b, .unknown = unknown, .error = error};
    return read_field(&r, field, base, json, path);
}
