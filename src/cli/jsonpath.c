/*
 * JSONPath templates: compiled to a list of parts, evaluated against a tree. Pure.
 *
 * template = { text | "{" expression "}" };  expression = PATH | "text" | range PATH | end.
 * A range is a part whose body reaches up to its `end`.
 */
#include "cli/jsonpath.h"

#include "base/errors.h"
#include "base/json.h"

#include <string.h>

typedef enum { STEP_FIELD, STEP_INDEX, STEP_ALL, STEP_FILTER } StepType;

typedef struct {
    StepType type;
    char *name; /* FIELD */
    int index;
    GPtrArray *path; /* FILTER: of Step */
    gboolean unequal;
    cJSON *value; /* FILTER; NULL: the path exists */
} Step;

typedef enum { PART_TEXT, PART_PATH, PART_RANGE, PART_END } PartType;

typedef struct {
    PartType type;
    char *text;
    GPtrArray *path;
    guint end; /* RANGE: index of its END */
} Part;

struct LhJsonPath {
    GPtrArray *parts;
};

static void step_free(gpointer data)
{
    Step *step = data;
    g_free(step->name);
    if (step->path != NULL) {
        g_ptr_array_unref(step->path);
    }
    cJSON_Delete(step->value);
    g_free(step);
}

static void part_free(gpointer data)
{
    Part *part = data;
    g_free(part->text);
    if (part->path != NULL) {
        g_ptr_array_unref(part->path);
    }
    g_free(part);
}

/* ---- compiling ---- */

typedef struct {
    const char *p;
    const char *template;
    GError **error;
    guint filters; /* how many are open: each is parsed, and evaluated, by a call within the last */
} Parser;

#define MOST_NESTED 16

static gboolean refuse(Parser *parser, const char *why)
{
    if (parser->error != NULL && *parser->error == NULL) {
        g_set_error(parser->error, LH_ERROR, LH_ERR_INVALID, "jsonpath %s: %s at \"%s\"",
                    parser->template, why, parser->p);
    }
    return FALSE;
}

/* Without the template, which is long then. */
static gboolean refuse_depth(Parser *parser, const char *what)
{
    if (parser->error != NULL && *parser->error == NULL) {
        g_set_error(parser->error, LH_ERROR, LH_ERR_INVALID,
                    "jsonpath: %s are nested deeper than %d", what, MOST_NESTED);
    }
    return FALSE;
}

static void skip_space(Parser *parser)
{
    while (*parser->p == ' ' || *parser->p == '\t') {
        parser->p++;
    }
}

static gboolean is_name(char c)
{
    return g_ascii_isalnum(c) || c == '_' || c == '-' || (guchar)c >= 0x80;
}

/* 'text' or "text" with \n \t \r \\ \" \'. */
static char *parse_quoted(Parser *parser)
{
    char quote = *parser->p++;
    GString *out = g_string_new(NULL);
    for (; *parser->p != quote; parser->p++) {
        char c = *parser->p;
        if (c == '\0') {
            g_string_free(out, TRUE);
            refuse(parser, "unfinished text");
            return NULL;
        }
        if (c == '\\' && parser->p[1] != '\0') {
            c = *++parser->p;
            c = c == 'n' ? '\n' : c == 't' ? '\t' : c == 'r' ? '\r' : c;
        }
        g_string_append_c(out, c);
    }
    parser->p++;
    return g_string_free(out, FALSE);
}

static gboolean parse_steps(Parser *parser, GPtrArray *steps);

static Step *step_add(GPtrArray *steps, StepType type)
{
    Step *step = g_new0(Step, 1);
    step->type = type;
    g_ptr_array_add(steps, step);
    return step;
}

/* After "[?(" */
static gboolean parse_filter(Parser *parser, Step *step)
{
    step->path = g_ptr_array_new_with_free_func(step_free);
    skip_space(parser);
    if (*parser->p != '@' || !parse_steps(parser, step->path)) {
        return refuse(parser, "a filter begins with @.name");
    }
    skip_space(parser);
    if (*parser->p != ')') {
        step->unequal = *parser->p == '!';
        if ((parser->p[0] != '=' && parser->p[0] != '!') || parser->p[1] != '=') {
            return refuse(parser, "a filter compares with == or !=");
        }
        parser->p += 2;
        skip_space(parser);
        if (*parser->p == '"' || *parser->p == '\'') {
            g_autofree char *text = parse_quoted(parser);
            if (text == NULL) {
                return FALSE;
            }
            step->value = cJSON_CreateString(text);
        } else {
            gsize len = strcspn(parser->p, ") \t");
            step->value = lh_json_parse(parser->p, len, LH_JSON_MAX_BYTES, NULL);
            if (step->value == NULL) {
                return refuse(parser, "not a value to compare with");
            }
            parser->p += len;
        }
        skip_space(parser);
    }
    if (*parser->p != ')') {
        return refuse(parser, "missing )");
    }
    parser->p++;
    return TRUE;
}

/* After "[" */
static gboolean parse_bracket(Parser *parser, GPtrArray *steps)
{
    skip_space(parser);
    if (parser->p[0] == '*') {
        parser->p++;
        step_add(steps, STEP_ALL);
    } else if (parser->p[0] == '?' && parser->p[1] == '(') {
        parser->p += 2;
        if (parser->filters == MOST_NESTED) {
            return refuse_depth(parser, "filters");
        }
        parser->filters++;
        if (!parse_filter(parser, step_add(steps, STEP_FILTER))) {
            return FALSE;
        }
        parser->filters--;
    } else if (parser->p[0] == '\'' || parser->p[0] == '"') {
        char *name = parse_quoted(parser);
        if (name == NULL) {
            return FALSE;
        }
        step_add(steps, STEP_FIELD)->name = name;
    } else {
        gsize len = strspn(parser->p, "-0123456789");
        g_autofree char *number = g_strndup(parser->p, len);
        gint64 index = 0;
        if (!g_ascii_string_to_signed(number, 10, G_MININT + 1, G_MAXINT, &index, NULL)) {
            return refuse(parser, "expected a number, *, a quoted name or a filter");
        }
        parser->p += len;
        step_add(steps, STEP_INDEX)->index = (int)index;
    }
    skip_space(parser);
    if (*parser->p != ']') {
        return refuse(parser, "missing ]");
    }
    parser->p++;
    return TRUE;
}

static gboolean parse_steps(Parser *parser, GPtrArray *steps)
{
    if (*parser->p == '$' || *parser->p == '@') {
        parser->p++;
    }
    for (;;) {
        if (*parser->p == '[') {
            parser->p++;
            if (!parse_bracket(parser, steps)) {
                return FALSE;
            }
        } else if (*parser->p == '.' || (steps->len == 0 && is_name(*parser->p))) {
            parser->p += *parser->p == '.';
            if (*parser->p == '*') {
                parser->p++;
                step_add(steps, STEP_ALL);
                continue;
            }
            const char *start = parser->p;
            for (; is_name(*parser->p) || (*parser->p == '\\' && parser->p[1] != '\0');) {
                parser->p += *parser->p == '\\' ? 2 : 1;
            }
            if (parser->p == start) {
                /* "{.}" is the whole object. */
                return steps->len == 0 ? TRUE : refuse(parser, "expected a name");
            }
            g_autofree char *raw = g_strndup(start, (gsize)(parser->p - start));
            step_add(steps, STEP_FIELD)->name = g_strcompress(raw);
        } else {
            return TRUE;
        }
    }
}

static Part *part_add(GPtrArray *parts, PartType type)
{
    Part *part = g_new0(Part, 1);
    part->type = type;
    g_ptr_array_add(parts, part);
    return part;
}

static gboolean keyword(Parser *parser, const char *word)
{
    gsize len = strlen(word);
    if (strncmp(parser->p, word, len) != 0 || is_name(parser->p[len])) {
        return FALSE;
    }
    parser->p += len;
    skip_space(parser);
    return TRUE;
}

/* After "{", up to and with "}". */
static gboolean parse_expression(Parser *parser, GPtrArray *parts, GArray *ranges)
{
    skip_space(parser);
    if (*parser->p == '"' || *parser->p == '\'') {
        char *text = parse_quoted(parser);
        if (text == NULL) {
            return FALSE;
        }
        part_add(parts, PART_TEXT)->text = text;
    } else if (keyword(parser, "end")) {
        if (ranges->len == 0) {
            return refuse(parser, "end without range");
        }
        guint open = g_array_index(ranges, guint, ranges->len - 1);
        ((Part *)parts->pdata[open])->end = parts->len;
        part_add(parts, PART_END);
        g_array_set_size(ranges, ranges->len - 1);
    } else {
        gboolean range = keyword(parser, "range");
        Part *part = part_add(parts, range ? PART_RANGE : PART_PATH);
        part->path = g_ptr_array_new_with_free_func(step_free);
        if (range) {
            guint open = parts->len - 1;
            if (ranges->len == MOST_NESTED) {
                return refuse_depth(parser, "ranges");
            }
            g_array_append_val(ranges, open);
        }
        if (*parser->p == '}' || !parse_steps(parser, part->path)) {
            return refuse(parser, "expected a path");
        }
    }
    skip_space(parser);
    if (*parser->p != '}') {
        return refuse(parser, "expected }");
    }
    parser->p++;
    return TRUE;
}

static gboolean parse_template(Parser *parser, GPtrArray *parts)
{
    g_autoptr(GArray) ranges = g_array_new(FALSE, FALSE, sizeof(guint));
    if (strchr(parser->p, '{') == NULL) {
        Part *part = part_add(parts, PART_PATH);
        part->path = g_ptr_array_new_with_free_func(step_free);
        return parse_steps(parser, part->path) &&
               (*parser->p == '\0' || refuse(parser, "unexpected text"));
    }
    while (*parser->p != '\0') {
        gsize len = strcspn(parser->p, "{");
        if (len > 0) {
            part_add(parts, PART_TEXT)->text = g_strndup(parser->p, len);
            parser->p += len;
        } else {
            parser->p++;
            if (!parse_expression(parser, parts, ranges)) {
                return FALSE;
            }
        }
    }
    return ranges->len == 0 || refuse(parser, "range without end");
}

LhJsonPath *lh_jsonpath_new(const char *template, GError **error)
{
    GError *local = NULL;
    Parser parser = {.p = template, .template = template, .error = &local};
    LhJsonPath *path = g_new0(LhJsonPath, 1);
    path->parts = g_ptr_array_new_with_free_func(part_free);
    if (template[0] == '\0' ? !refuse(&parser, "empty") : !parse_template(&parser, path->parts)) {
        g_propagate_error(error, local);
        lh_jsonpath_free(path);
        return NULL;
    }
    return path;
}

void lh_jsonpath_free(LhJsonPath *path)
{
    if (path != NULL) {
        g_ptr_array_unref(path->parts);
        g_free(path);
    }
}

/* ---- evaluating ---- */

static void collect(const GPtrArray *steps, guint from, const cJSON *value, GPtrArray *found);

static gboolean filter_holds(const Step *step, const cJSON *element)
{
    g_autoptr(GPtrArray) found = g_ptr_array_new();
    collect(step->path, 0, element, found);
    if (step->value == NULL) {
        return found->len > 0;
    }
    gboolean equal = found->len > 0 && cJSON_Compare(found->pdata[0], step->value, TRUE);
    return equal != step->unequal;
}

/* All values that the steps from @from on lead to. */
static void collect(const GPtrArray *steps, guint from, const cJSON *value, GPtrArray *found)
{
    if (value == NULL) {
        return;
    }
    if (from == steps->len) {
        g_ptr_array_add(found, (gpointer)value);
        return;
    }
    const Step *step = steps->pdata[from];
    const cJSON *element;
    switch (step->type) {
    case STEP_FIELD:
        if (cJSON_IsObject(value)) {
            collect(steps, from + 1, cJSON_GetObjectItemCaseSensitive(value, step->name), found);
        }
        break;
    case STEP_INDEX:
        if (cJSON_IsArray(value)) {
            int index = step->index < 0 ? cJSON_GetArraySize(value) + step->index : step->index;
            collect(steps, from + 1, index < 0 ? NULL : cJSON_GetArrayItem(value, index), found);
        }
        break;
    case STEP_ALL:
        cJSON_ArrayForEach(element, value) {
            collect(steps, from + 1, element, found);
        }
        break;
    case STEP_FILTER:
        if (cJSON_IsArray(value)) {
            cJSON_ArrayForEach(element, value) {
                if (filter_holds(step, element)) {
                    collect(steps, from + 1, element, found);
                }
            }
        }
        break;
    }
}

static void write_value(const cJSON *value, GString *out)
{
    if (cJSON_IsString(value)) {
        g_string_append(out, value->valuestring);
    } else if (!cJSON_IsNull(value)) {
        g_autofree char *text = lh_json_print(value);
        g_string_append(out, text);
    }
}

static void eval(const GPtrArray *parts, guint from, guint to, const cJSON *root, GString *out)
{
    for (guint i = from; i < to; i++) {
        const Part *part = parts->pdata[i];
        if (part->type == PART_TEXT) {
            g_string_append(out, part->text);
        } else if (part->type != PART_END) {
            g_autoptr(GPtrArray) found = g_ptr_array_new();
            collect(part->path, 0, root, found);
            for (guint j = 0; j < found->len; j++) {
                if (part->type == PART_RANGE) {
                    eval(parts, i + 1, part->end, found->pdata[j], out);
                } else {
                    if (j > 0) {
                        g_string_append_c(out, ' ');
                    }
                    write_value(found->pdata[j], out);
                }
            }
            if (part->type == PART_RANGE) {
                i = part->end;
            }
        }
    }
}

void lh_jsonpath_eval(const LhJsonPath *path, const cJSON *root, GString *out)
{
    eval(path->parts, 0, path->parts->len, root, out);
}
