/*
 * Output of objects: JSON, YAML and JSONPath, and the kinds' tables. The grid itself is table.c.
 */
#include "cli/output.h"

#include "cli/manifest.h"

#include <string.h>
#include <yaml.h>

/* ---- JSON ---- */

static void pretty(const cJSON *value, guint depth, GString *out)
{
    gboolean object = cJSON_IsObject(value);
    if ((!object && !cJSON_IsArray(value)) || value->child == NULL) {
        g_autofree char *text = lh_json_print(value);
        g_string_append(out, text);
        return;
    }
    g_string_append_c(out, object ? '{' : '[');
    const cJSON *child;
    cJSON_ArrayForEach(child, value) {
        g_string_append_printf(out, "%s\n%*s", child == value->child ? "" : ",",
                               (int)(2 * depth + 2), "");
        if (object) {
            lh_json_append_string(out, child->string);
            g_string_append(out, ": ");
        }
        pretty(child, depth + 1, out);
    }
    g_string_append_printf(out, "\n%*s%c", (int)(2 * depth), "", object ? '}' : ']');
}

char *lh_json_pretty(const cJSON *value)
{
    GString *out = g_string_new(NULL);
    pretty(value, 0, out);
    g_string_append_c(out, '\n');
    return g_string_free(out, FALSE);
}

/* ---- YAML ---- */

/* Would some reader of YAML, 1.1 or 1.2, take this plain text for something else than a string? */
static gboolean looks_special(const char *text)
{
    static const char *const words[] = {"y",  "n",    "yes",   "no", "on",   "off",
                                        "<<", "true", "false", "=",  "null", NULL};
    g_autofree char *lower = g_ascii_strdown(text, -1);
    if (lh_yaml_scalar(text) != LH_SCALAR_STRING || g_strv_contains(words, lower)) {
        return TRUE;
    }
    /* Numbers with underscores, times, dates, base 60, binary. */
    return strchr("+-.0123456789", text[0]) != NULL &&
           (text[strspn(text, "+-._:0123456789eETtZz ")] == '\0' || g_str_has_prefix(lower, "0x") ||
            g_str_has_prefix(lower, "0b"));
}

static gboolean emit(yaml_emitter_t *emitter, yaml_event_t *event)
{
    return yaml_emitter_emit(emitter, event) != 0;
}

static gboolean emit_scalar(yaml_emitter_t *emitter, const char *text, gboolean string)
{
    yaml_event_t event;
    yaml_scalar_style_t style = YAML_PLAIN_SCALAR_STYLE;
    g_autofree char *valid = g_utf8_make_valid(text, -1);
    if (string && looks_special(valid)) {
        style = YAML_SINGLE_QUOTED_SCALAR_STYLE;
    } else if (string && strchr(valid, '\n') != NULL) {
        style = YAML_LITERAL_SCALAR_STYLE;
    }
    return yaml_scalar_event_initialize(&event, NULL, NULL, (const yaml_char_t *)valid,
                                        (int)strlen(valid), 1, 1, style) &&
           emit(emitter, &event);
}

static gboolean emit_value(yaml_emitter_t *emitter, const cJSON *value)
{
    yaml_event_t event;
    gboolean object = cJSON_IsObject(value);
    if (cJSON_IsString(value)) {
        return emit_scalar(emitter, value->valuestring, TRUE);
    }
    if (!object && !cJSON_IsArray(value)) {
        g_autofree char *text = lh_json_print(value);
        return emit_scalar(emitter, text, FALSE);
    }
    gboolean ok = object ? yaml_mapping_start_event_initialize(&event, NULL, NULL, 1,
                                                               YAML_BLOCK_MAPPING_STYLE)
                         : yaml_sequence_start_event_initialize(&event, NULL, NULL, 1,
                                                                YAML_BLOCK_SEQUENCE_STYLE);
    ok = ok && emit(emitter, &event);
    const cJSON *child;
    cJSON_ArrayForEach(child, value) {
        ok = ok && (!object || emit_scalar(emitter, child->string, TRUE)) &&
             emit_value(emitter, child);
    }
    ok = ok && (object ? yaml_mapping_end_event_initialize(&event)
                       : yaml_sequence_end_event_initialize(&event));
    return ok && emit(emitter, &event);
}

static int append_bytes(void *data, unsigned char *bytes, size_t len)
{
    g_string_append_len(data, (const char *)bytes, (gssize)len);
    return 1;
}

char *lh_yaml_print(const cJSON *value)
{
    GString *out = g_string_new(NULL);
    yaml_emitter_t emitter;
    yaml_event_t event;
    yaml_emitter_initialize(&emitter);
    yaml_emitter_set_output(&emitter, append_bytes, out);
    yaml_emitter_set_unicode(&emitter, 1);
    yaml_emitter_set_width(&emitter, -1);
    gboolean ok = yaml_stream_start_event_initialize(&event, YAML_UTF8_ENCODING) &&
                  emit(&emitter, &event) &&
                  yaml_document_start_event_initialize(&event, NULL, NULL, NULL, 1) &&
                  emit(&emitter, &event) && emit_value(&emitter, value) &&
                  yaml_document_end_event_initialize(&event, 1) && emit(&emitter, &event) &&
                  yaml_stream_end_event_initialize(&event) && emit(&emitter, &event);
    g_assert(ok); /* the events are ours, and the text valid UTF-8 */
    yaml_emitter_delete(&emitter);
    return g_string_free(out, FALSE);
}

/* ---- values and objects ---- */

static void write_and_free(FILE *out, char *text)
{
    fputs(text, out);
    g_free(text);
}

void lh_output_value(LhCli *cli, const cJSON *value)
{
    switch (cli->format) {
    case LH_OUTPUT_JSON:
        write_and_free(cli->out, lh_json_pretty(value));
        break;
    case LH_OUTPUT_JSONPATH: {
        g_autoptr(GString) text = g_string_new(NULL);
        lh_jsonpath_eval(cli->jsonpath, value, text);
        fputs(text->str, cli->out);
        break;
    }
    case LH_OUTPUT_TABLE:
    case LH_OUTPUT_WIDE:
    case LH_OUTPUT_YAML:
    case LH_OUTPUT_NAME:
        write_and_free(cli->out, lh_yaml_print(value));
        break;
    }
}

LhTable *lh_kind_table(const LhCli *cli, const LhKindView *view, LhRows rows)
{
    static const struct {
        const char *title;
        gsize width;
    } usual[] = {{"TIME", 9},  {"EVENT", 6}, {"TYPE", 7},   {"REASON", 17}, {"OBJECT", 26},
                 {"STATE", 8}, {"DONE", 4},  {"ACTION", 5}, {"PHASE", 9},   {"HEALTH", 9},
                 {"VALID", 5}, {"SINCE", 5}, {"AGE", 5},    {"EXPIRES", 8}, {"RULE", 18}};
    g_autoptr(GPtrArray) titles = g_ptr_array_new();
    if (rows == LH_ROWS_EVENTS) {
        g_ptr_array_add(titles, (gpointer) "TIME");
        g_ptr_array_add(titles, (gpointer) "EVENT");
    }
    for (const LhColumn *column = view->columns; column->title != NULL; column++) {
        if (!column->wide || cli->format == LH_OUTPUT_WIDE) {
            g_ptr_array_add(titles, (gpointer)column->title);
        }
    }
    g_ptr_array_add(titles, NULL);
    LhTable *table = lh_table_new((const char *const *)titles->pdata);
    for (guint i = 0; rows != LH_ROWS_LISTED && i < G_N_ELEMENTS(usual); i++) {
        lh_table_reserve(table, usual[i].title, usual[i].width);
    }
    return table;
}

void lh_kind_table_add(const LhCli *cli, LhTable *table, const LhKindView *view,
                       const cJSON *object, const char *event)
{
    g_autoptr(GPtrArray) cells = g_ptr_array_new();
    const char *unknown = lh_json_get_string(object, "error", NULL);
    if (event != NULL) {
        g_ptr_array_add(cells, lh_clock_text(cli->now_ms, cli->now_ms));
        g_ptr_array_add(cells, g_strdup(event));
    }
    if (unknown != NULL) {
        g_ptr_array_add(cells, g_strdup(lh_object_name(object)));
        g_ptr_array_add(cells, g_strdup_printf("unknown: %s", unknown));
    } else {
        for (const LhColumn *column = view->columns; column->title != NULL; column++) {
            if (!column->wide || cli->format == LH_OUTPUT_WIDE) {
                g_ptr_array_add(cells, lh_column_text(column, object, cli->now_ms));
            }
        }
    }
    g_ptr_array_add(cells, NULL);
    lh_table_add(table, (char **)g_ptr_array_free(g_steal_pointer(&cells), FALSE));
}

guint lh_kind_row_hash(const LhCli *cli, const LhKindView *view, const cJSON *object)
{
    guint hash = g_str_hash(lh_json_get_string(object, "error", ""));
    for (const LhColumn *column = view->columns; column->title != NULL; column++) {
        if (!column->wide || cli->format == LH_OUTPUT_WIDE) {
            g_autofree char *text = lh_column_text(column, object, cli->now_ms);
            hash = hash * 31 + g_str_hash(text);
        }
    }
    return hash;
}

static void output_table(LhCli *cli, const LhKindView *view, const cJSON *items)
{
    if (items == NULL || items->child == NULL) {
        fprintf(cli->err, "no %s found\n", view->plural);
        return;
    }
    g_autoptr(LhTable) table = lh_kind_table(cli, view, LH_ROWS_LISTED);
    const cJSON *item;
    cJSON_ArrayForEach(item, items) {
        lh_kind_table_add(cli, table, view, item, NULL);
    }
    lh_table_print(table, cli->out);
}

void lh_output_objects(LhCli *cli, const LhKindView *view, const cJSON *list, gboolean single)
{
    const cJSON *items = cJSON_GetObjectItemCaseSensitive(list, "items"), *item;
    switch (cli->format) {
    case LH_OUTPUT_TABLE:
    case LH_OUTPUT_WIDE:
        output_table(cli, view, items);
        break;
    case LH_OUTPUT_NAME:
        cJSON_ArrayForEach(item, items) {
            g_autofree char *name = g_strdup_printf("%s/%s\n", view->plural, lh_object_name(item));
            lh_output_text(cli->out, name);
        }
        break;
    case LH_OUTPUT_JSON:
    case LH_OUTPUT_YAML:
    case LH_OUTPUT_JSONPATH:
        lh_output_value(cli, single ? items->child : list);
        break;
    }
}

/* ---- what was done ---- */

void lh_result_add(LhCli *cli, const char *object, const char *result, gint64 revision)
{
    g_autofree char *line = NULL;
    switch (cli->format) {
    case LH_OUTPUT_TABLE:
    case LH_OUTPUT_WIDE:
        line = g_strdup_printf("%s %s%s\n", object, result, cli->o.dry_run ? " (dry run)" : "");
        lh_output_text(cli->out, line);
        break;
    case LH_OUTPUT_NAME:
        line = g_strdup_printf("%s\n", object);
        lh_output_text(cli->out, line);
        break;
    case LH_OUTPUT_JSON:
    case LH_OUTPUT_YAML:
    case LH_OUTPUT_JSONPATH: {
        if (cli->results == NULL) {
            cli->results = cJSON_CreateArray();
        }
        cJSON *entry = cJSON_CreateObject();
        cJSON_AddStringToObject(entry, "object", object);
        cJSON_AddStringToObject(entry, "result", result);
        if (revision > 0) {
            cJSON_AddNumberToObject(entry, "revision", (double)revision);
        }
        if (cli->o.dry_run) {
            cJSON_AddTrueToObject(entry, "dryRun");
        }
        cJSON_AddItemToArray(cli->results, entry);
        break;
    }
    }
}

void lh_results_flush(LhCli *cli)
{
    if (cli->results != NULL) {
        cJSON *results = cJSON_CreateObject();
        cJSON_AddItemToObject(results, "results", cli->results);
        cli->results = NULL;
        lh_output_value(cli, results);
        cJSON_Delete(results);
    }
}
