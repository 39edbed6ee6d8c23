/*
 * JSON with limits: a strict look at the text before cJSON sees it, one at the tree afterwards.
 *
 * cJSON checks the grammar. The scan before it checks what cJSON does not (RFC 8259): size, depth,
 * UTF-8, control characters, NUL in any spelling, hex digits of escapes, leading zeros, a byte
 * order mark. The look afterwards refuses duplicate keys and numbers that no double holds. Nothing
 * here may assume anything about the text: it comes from etcd, from HTTP and from files.
 */
#include "base/json.h"

#include "base/errors.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_NUMBER_CHARS  63 /* cJSON copies a number into 64 bytes and cuts the rest off */
#define FEW_MEMBERS       16 /* up to here comparing each with each beats sorting */
#define PRINTED_KEY_CHARS 64 /* of a duplicate key, in the message */

typedef struct {
    const char *data;
    gsize len;
    gsize pos;
    guint depth;
    GError **error;
} Scanner;

static gboolean refuse(Scanner *s, const char *why)
{
    g_set_error(s->error, LH_ERROR, LH_ERR_INVALID, "JSON at byte %" G_GSIZE_FORMAT ": %s", s->pos,
                why);
    return FALSE;
}

/* The byte at @offset from here, or 0 at the end; NUL bytes were refused before. */
static char peek(const Scanner *s, gsize offset)
{
    return s->pos + offset < s->len ? s->data[s->pos + offset] : '\0';
}

static gboolean scan_escape(Scanner *s)
{
    char kind = peek(s, 1);
    if (kind == 'u') {
        guint value = 0;
        for (gsize i = 2; i < 6; i++) {
            int digit = g_ascii_xdigit_value(peek(s, i));
            if (digit < 0)
                return refuse(s, "\\u needs four hexadecimal digits");
            value = value * 16 + (guint)digit;
        }
        if (value == 0)
            return refuse(s, "a string may not contain NUL");
        s->pos += 6;
        return TRUE;
    }
    if (kind == '\0' || strchr("\"\\/bfnrt", kind) == NULL)
        return refuse(s, "unknown escape");
    s->pos += 2;
    return TRUE;
}

static gboolean scan_string(Scanner *s)
{
    s->pos++;
    while (s->pos < s->len) {
        char c = peek(s, 0);
        if (c == '"') {
            s->pos++;
            return TRUE;
        }
        if ((guchar)c < 0x20)
            return refuse(s, "control character in a string");
        if (c != '\\')
            s->pos++;
        else if (!scan_escape(s))
            return FALSE;
    }
    return refuse(s, "string without end");
}

static gsize skip_digits(Scanner *s)
{
    gsize start = s->pos;
    while (g_ascii_isdigit(peek(s, 0)))
        s->pos++;
    return s->pos - start;
}

static gboolean scan_number(Scanner *s)
{
    gsize start = s->pos;
    if (peek(s, 0) == '-')
        s->pos++;
    gboolean zero = peek(s, 0) == '0';
    gsize digits = skip_digits(s);
    if (digits == 0 || (zero && digits > 1))
        return refuse(s, digits == 0 ? "number without digits" : "number with a leading zero");
    if (peek(s, 0) == '.') {
        s->pos++;
        if (skip_digits(s) == 0)
            return refuse(s, "number without digits after its point");
    }
    if (peek(s, 0) == 'e' || peek(s, 0) == 'E') {
        s->pos++;
        if (peek(s, 0) == '+' || peek(s, 0) == '-')
            s->pos++;
        if (skip_digits(s) == 0)
            return refuse(s, "number without digits in its exponent");
    }
    return s->pos - start <= MAX_NUMBER_CHARS || refuse(s, "number of more than 63 characters");
}

static gboolean scan_literal(Scanner *s)
{
    static const char *const literals[] = {"true", "false", "null"};
    for (guint i = 0; i < G_N_ELEMENTS(literals); i++) {
        gsize n = strlen(literals[i]);
        if (s->len - s->pos >= n && memcmp(s->data + s->pos, literals[i], n) == 0 &&
            !g_ascii_isalnum(peek(s, n))) {
            s->pos += n;
            return TRUE;
        }
    }
    return refuse(s, "unexpected character");
}

static gboolean scan_token(Scanner *s)
{
    char c = peek(s, 0);
    switch (c) {
    case ' ':
    case '\t':
    case '\r':
    case '\n':
    case ',':
    case ':':
        break;
    case '[':
    case '{':
        if (++s->depth > LH_JSON_MAX_DEPTH)
            return refuse(s, "more than " G_STRINGIFY(LH_JSON_MAX_DEPTH) " levels");
        break;
    case ']':
    case '}':
        if (s->depth-- == 0)
            return refuse(s, "closes what was never opened");
        break;
    case '"':
        return scan_string(s);
    default:
        return c == '-' || g_ascii_isdigit(c) ? scan_number(s) : scan_literal(s);
    }
    s->pos++;
    return TRUE;
}

static gboolean scan_text(const char *data, gsize len, gsize max_bytes, GError **error)
{
    if (len > max_bytes) {
        g_set_error(error, LH_ERROR, LH_ERR_INVALID,
                    "JSON of %" G_GSIZE_FORMAT " bytes, at most %" G_GSIZE_FORMAT " are allowed",
                    len, max_bytes);
        return FALSE;
    }
    Scanner s = {.data = data, .len = len, .error = error};
    const char *bad;
    if (len > 0 && !g_utf8_validate_len(data, len, &bad)) {
        s.pos = (gsize)(bad - data);
        return refuse(&s, *bad == '\0' ? "NUL byte" : "not valid UTF-8");
    }
    while (s.pos < s.len) {
        if (!scan_token(&s))
            return FALSE;
    }
    return TRUE;
}

static int compare_keys(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* The first key found twice, or NULL. Sorted rather than hashed when there are many: nobody can
 * choose keys that make it slow. */
static const char *find_duplicate(const cJSON *object)
{
    gsize n = 0;
    const cJSON *member;
    cJSON_ArrayForEach(member, object)
        n++;
    if (n <= FEW_MEMBERS) {
        cJSON_ArrayForEach(member, object) {
            for (const cJSON *other = member->next; other != NULL; other = other->next) {
                if (strcmp(member->string, other->string) == 0)
                    return member->string;
            }
        }
        return NULL;
    }
    g_autofree const char **keys = g_new(const char *, n);
    n = 0;
    cJSON_ArrayForEach(member, object)
        keys[n++] = member->string;
    qsort(keys, n, sizeof *keys, compare_keys);
    for (gsize i = 1; i < n; i++) {
        if (strcmp(keys[i - 1], keys[i]) == 0)
            return keys[i];
    }
    return NULL;
}

/* Recursion is bounded: the text was at most LH_JSON_MAX_DEPTH deep. */
static gboolean check_tree(const cJSON *item, GError **error)
{
    if (cJSON_IsNumber(item) && !isfinite(item->valuedouble)) {
        g_set_error(error, LH_ERROR, LH_ERR_INVALID, "JSON: a number is too large");
        return FALSE;
    }
    const char *twice = cJSON_IsObject(item) ? find_duplicate(item) : NULL;
    if (twice != NULL) {
        g_autoptr(GString) quoted = g_string_new(NULL);
        g_autofree char *head = g_utf8_substring(twice, 0,
                                                 MIN(g_utf8_strlen(twice, -1), PRINTED_KEY_CHARS));
        lh_json_append_string(quoted, head);
        g_set_error(error, LH_ERROR, LH_ERR_INVALID, "JSON: key %s is there twice", quoted->str);
        return FALSE;
    }
    const cJSON *child;
    cJSON_ArrayForEach(child, item) {
        if (!check_tree(child, error))
            return FALSE;
    }
    return TRUE;
}

cJSON *lh_json_parse(const char *data, gsize len, gsize max_bytes, GError **error)
{
    if (!scan_text(data, len, max_bytes, error))
        return NULL;
    /* A terminated copy: some cJSON versions look one byte past the end of what they are given. */
    g_autofree char *text = g_malloc(len + 1);
    if (len > 0)
        memcpy(text, data, len);
    text[len] = '\0';
    const char *end = text;
    g_autoptr(cJSON) root = cJSON_ParseWithLengthOpts(text, len + 1, &end, TRUE);
    if (root == NULL) {
        gsize at = end != NULL ? MIN((gsize)(end - text), len) : 0;
        g_set_error(error, LH_ERROR, LH_ERR_INVALID, "JSON at byte %" G_GSIZE_FORMAT ": %s", at,
                    at == len ? "ends too early" : "not valid");
        return NULL;
    }
    if (!check_tree(root, error))
        return NULL;
    return g_steal_pointer(&root);
}

gboolean lh_json_int(const cJSON *item, gint64 *out)
{
    if (!cJSON_IsNumber(item))
        return FALSE;
    double value = item->valuedouble;
    /* Compared as doubles before the cast: NaN fails, and the cast is always defined. */
    if (!(fabs(value) <= (double)LH_JSON_MAX_INT) || value != trunc(value))
        return FALSE;
    *out = (gint64)value;
    return TRUE;
}

const char *lh_json_get_string(const cJSON *object, const char *name, const char *fallback)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, name);
    return cJSON_IsString(item) ? item->valuestring : fallback;
}

gint64 lh_json_get_int(const cJSON *object, const char *name, gint64 fallback)
{
    gint64 value = fallback;
    lh_json_int(cJSON_GetObjectItemCaseSensitive(object, name), &value);
    return value;
}

gboolean lh_json_get_bool(const cJSON *object, const char *name, gboolean fallback)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, name);
    return cJSON_IsBool(item) ? cJSON_IsTrue(item) != 0 : fallback;
}

static void append_escaped(GString *out, gunichar c)
{
    switch (c) {
    case '"':
        g_string_append(out, "\\\"");
        return;
    case '\\':
        g_string_append(out, "\\\\");
        return;
    case '\n':
        g_string_append(out, "\\n");
        return;
    case '\r':
        g_string_append(out, "\\r");
        return;
    case '\t':
        g_string_append(out, "\\t");
        return;
    default:
        g_string_append_printf(out, "\\u%04x", c);
    }
}

/* Length of @text when it may stand between quotes as it is: ASCII without controls and escapes, as nearly
 * all is; else -1. */
static gssize plain_length(const char *text)
{
    const guchar *p = (const guchar *)text;
    while (*p >= 0x20 && *p < 0x7f && *p != '"' && *p != '\\')
        p++;
    return *p == '\0' ? (const char *)p - text : -1;
}

void lh_json_append_string(GString *out, const char *text)
{
    if (text == NULL) {
        g_string_append(out, "null");
        return;
    }
    gssize plain_len = plain_length(text);
    if (plain_len >= 0) {
        g_string_append_c(out, '"');
        g_string_append_len(out, text, plain_len);
        g_string_append_c(out, '"');
        return;
    }
    g_autofree char *mended = NULL;
    if (!g_utf8_validate(text, -1, NULL))
        text = mended = g_utf8_make_valid(text, -1);
    g_string_append_c(out, '"');
    const char *plain = text;
    for (const char *p = text; *p != '\0';) {
        gunichar c = g_utf8_get_char(p);
        const char *next = g_utf8_next_char(p);
        /* DEL and C1 too: a terminal may obey them. */
        if (c < 0x20 || c == '"' || c == '\\' || (c >= 0x7f && c < 0xa0)) {
            g_string_append_len(out, plain, p - plain);
            append_escaped(out, c);
            plain = next;
        }
        p = next;
    }
    g_string_append(out, plain);
    g_string_append_c(out, '"');
}

void lh_json_append_key(GString *out, const char *name)
{
    if (out->len > 0 && out->str[out->len - 1] != '{' && out->str[out->len - 1] != '[')
        g_string_append_c(out, ',');
    if (name != NULL) {
        lh_json_append_string(out, name);
        g_string_append_c(out, ':');
    }
}

void lh_json_append_int(GString *out, gint64 value)
{
    char digits[24], *first = digits + sizeof digits;
    guint64 rest = value < 0 ? -(guint64)value : (guint64)value;
    do {
        *--first = (char)('0' + rest % 10);
        rest /= 10;
    } while (rest > 0);
    if (value < 0)
        *--first = '-';
    g_string_append_len(out, first, digits + sizeof digits - first);
}

void lh_json_append_double(GString *out, double value)
{
    if (!isfinite(value)) {
        g_string_append(out, "null");
        return;
    }
    if (value == trunc(value) && fabs(value) <= (double)LH_JSON_MAX_INT) {
        lh_json_append_int(out, (gint64)value);
        return;
    }
    char buf[G_ASCII_DTOSTR_BUF_SIZE];
    static const char *const formats[] = {"%.15g", "%.16g", "%.17g"};
    for (guint i = 0; i < G_N_ELEMENTS(formats); i++) {
        g_ascii_formatd(buf, sizeof buf, formats[i], value);
        if (g_ascii_strtod(buf, NULL) == value)
            break;
    }
    g_string_append(out, buf);
}

static void print_item(GString *out, const cJSON *item)
{
    if (cJSON_IsObject(item) || cJSON_IsArray(item)) {
        gboolean object = cJSON_IsObject(item) != 0;
        g_string_append_c(out, object ? '{' : '[');
        const cJSON *child;
        cJSON_ArrayForEach(child, item) {
            lh_json_append_key(out, object ? child->string : NULL);
            print_item(out, child);
        }
        g_string_append_c(out, object ? '}' : ']');
    } else if (cJSON_IsString(item)) {
        lh_json_append_string(out, item->valuestring);
    } else if (cJSON_IsNumber(item)) {
        lh_json_append_double(out, item->valuedouble);
    } else if (cJSON_IsBool(item)) {
        g_string_append(out, cJSON_IsTrue(item) ? "true" : "false");
    } else if (cJSON_IsRaw(item) && item->valuestring != NULL) {
        g_string_append(out, item->valuestring);
    } else {
        g_string_append(out, "null");
    }
}

char *lh_json_print(const cJSON *item)
{
    GString *out = g_string_new(NULL);
    print_item(out, item);
    return g_string_free(out, FALSE);
}
