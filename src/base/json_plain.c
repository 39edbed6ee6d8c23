/*
 * A quick reader of plain JSON: what programs write for small objects. It builds the tree that cJSON would,
 * in memory lent by the caller, in one pass and without an allocation.
 *
 * Whatever is not surely valid and plain is not refused, only left to lh_json_parse, which says what is
 * wrong with it: so this file has no messages, and may give up at anything.
 */
#include "base/json.h"

#include <string.h>

#define MAX_DEPTH  8
#define MAX_DIGITS 15 /* exact in a double, and below LH_JSON_MAX_INT */

typedef struct {
    char *at; /* in the room's copy, which ends in NUL */
    cJSON *free, *end;
} Reader;

static void skip_space(Reader *r)
{
    while (*r->at == ' ' || *r->at == '\n' || *r->at == '\t' || *r->at == '\r')
        r->at++;
}

/* Takes the string that begins here; its end quote becomes its NUL. */
static char *take_string(Reader *r)
{
    char *text = ++r->at;
    for (; *r->at != '"'; r->at++) {
        if ((guchar)*r->at < 0x20 || (guchar)*r->at >= 0x7f || *r->at == '\\')
            return NULL;
    }
    *r->at++ = '\0';
    return text;
}

static gboolean take_number(Reader *r, cJSON *item)
{
    gboolean negative = *r->at == '-';
    gint64 value = 0;
    if (negative)
        r->at++;
    const char *first = r->at;
    for (; g_ascii_isdigit(*r->at); r->at++) {
        if (r->at - first == MAX_DIGITS)
            return FALSE;
        value = value * 10 + (*r->at - '0');
    }
    if (r->at == first || (*first == '0' && (r->at - first > 1 || negative)) || *r->at == '.' ||
        *r->at == 'e' || *r->at == 'E')
        return FALSE;
    item->type = cJSON_Number;
    item->valuedouble = (double)(negative ? -value : value);
    item->valueint = (int)CLAMP(negative ? -value : value, G_MININT, G_MAXINT);
    return TRUE;
}

static gboolean take_literal(Reader *r, cJSON *item)
{
    static const struct {
        const char *text;
        int type;
    } literals[] = {{"true", cJSON_True}, {"false", cJSON_False}, {"null", cJSON_NULL}};
    for (guint i = 0; i < G_N_ELEMENTS(literals); i++) {
        gsize len = strlen(literals[i].text);
        if (strncmp(r->at, literals[i].text, len) != 0)
            continue;
        r->at += len;
        item->type = literals[i].type;
        item->valueint = literals[i].type == cJSON_True;
        return TRUE; /* what follows must be a comma, an end or white space: the caller sees to that */
    }
    return FALSE;
}

static cJSON *take_item(Reader *r, guint depth);

/* Among the few members of one object: which may be equal to one of those before tells a set of bits. */
static gboolean is_there_twice(const cJSON *object, const cJSON *member, guint64 *seen)
{
    gsize len = strlen(member->string);
    guint64 bit = G_GUINT64_CONSTANT(1) << ((len * 7 + (guchar)member->string[0] * 31 +
                                             (len > 0 ? (guchar)member->string[len - 1] : 0)) %
                                            64);
    gboolean maybe = (*seen & bit) != 0;
    *seen |= bit;
    for (const cJSON *other = object->child; maybe && other != member; other = other->next) {
        if (strcmp(other->string, member->string) == 0)
            return TRUE;
    }
    return FALSE;
}

/* The members or elements, after the opening bracket and up to @close. */
static gboolean take_children(Reader *r, cJSON *parent, char close, guint depth)
{
    guint64 seen = 0;
    cJSON **link = &parent->child, *last = NULL;
    r->at++;
    skip_space(r);
    if (*r->at == close) {
        r->at++;
        return TRUE;
    }
    for (;;) {
        char *name = NULL;
        if (close == '}') {
            name = *r->at == '"' ? take_string(r) : NULL;
            skip_space(r);
            if (name == NULL || *r->at++ != ':')
                return FALSE;
            skip_space(r);
        }
        cJSON *item = take_item(r, depth);
        if (item == NULL)
            return FALSE;
        item->string = name;
        item->prev = last;
        last = *link = item;
        link = &item->next;
        if (name != NULL && is_there_twice(parent, item, &seen))
            return FALSE;
        skip_space(r);
        char c = *r->at++;
        if (c == close)
            break;
        if (c != ',')
            return FALSE;
        skip_space(r);
    }
    parent->child->prev = last; /* as cJSON has it */
    return TRUE;
}

static cJSON *take_item(Reader *r, guint depth)
{
    if (r->free == r->end || depth == MAX_DEPTH)
        return NULL;
    cJSON *item = r->free++;
    memset(item, 0, sizeof *item);
    gboolean ok;
    switch (*r->at) {
    case '{':
    case '[':
        item->type = *r->at == '{' ? cJSON_Object : cJSON_Array;
        ok = take_children(r, item, *r->at == '{' ? '}' : ']', depth + 1);
        break;
    case '"':
        item->type = cJSON_String;
        item->valuestring = take_string(r);
        ok = item->valuestring != NULL;
        break;
    case 't':
    case 'f':
    case 'n':
        ok = take_literal(r, item);
        break;
    default:
        ok = take_number(r, item);
    }
    return ok ? item : NULL;
}

const cJSON *lh_json_parse_plain(LhJsonRoom *room, const char *data, gsize len)
{
    if (len == 0 || len >= sizeof room->text)
        return NULL;
    memcpy(room->text, data, len);
    room->text[len] = '\0';
    Reader r = {
        .at = room->text, .free = room->items, .end = room->items + G_N_ELEMENTS(room->items)};
    skip_space(&r);
    cJSON *root = take_item(&r, 0);
    if (root == NULL)
        return NULL;
    skip_space(&r);
    return r.at == room->text + len ? root : NULL;
}
