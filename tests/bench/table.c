/* Lines of results to text and to JSON; looks at no figure but to compare it with its aim. */
#include "table.h"

#include "base/json.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct {
    char *row, *what, *unit, *reference;
    double value;
    Aim aim;
    gboolean skipped; /* then @what says why */
} Line;

struct Table {
    GPtrArray *lines;
};

enum { ROW, WHAT, VALUE, UNIT, AIM, MET, REFERENCE, N_COLUMNS };

static const char *const headings[N_COLUMNS] = {"row", "what", "value",    "unit",
                                                "aim", "met",  "reference"};

static void line_free(gpointer data)
{
    Line *line = data;

    g_free(line->row);
    g_free(line->what);
    g_free(line->unit);
    g_free(line->reference);
    g_free(line);
}

Table *table_new(void)
{
    Table *table = g_new0(Table, 1);

    table->lines = g_ptr_array_new_with_free_func(line_free);
    return table;
}

void table_free(Table *table)
{
    g_ptr_array_unref(table->lines);
    g_free(table);
}

/* Four digits, and no exponent: figures are compared by eye. */
static char *number_text(double value)
{
    double size = fabs(value);

    if (!isfinite(value))
        return g_strdup("-");
    if (size != 0 && size < 0.001)
        return g_strdup_printf("%.6f", value);
    return g_strdup_printf("%.*f", size >= 1000 ? 0 : size >= 100 ? 1 : size >= 1 ? 2 : 4, value);
}

static gboolean is_met(const Line *line)
{
    return line->aim.type == AIM_AT_LEAST ? line->value >= line->aim.value
                                          : line->value <= line->aim.value;
}

static char *cell(const Line *line, guint column)
{
    g_autofree char *goal = line->aim.type == AIM_NONE ? NULL : number_text(line->aim.value);

    switch (column) {
    case ROW:
        return g_strdup(line->row);
    case WHAT:
        return line->skipped ? g_strdup_printf("skipped: %s", line->what) : g_strdup(line->what);
    case VALUE:
        return line->skipped ? g_strdup("") : number_text(line->value);
    case UNIT:
        return g_strdup(line->skipped ? "" : line->unit);
    case AIM:
        return goal == NULL
                   ? g_strdup("")
                   : g_strdup_printf("%s %s", line->aim.type == AIM_AT_LEAST ? ">=" : "<=", goal);
    case MET:
        return g_strdup(goal == NULL || line->skipped ? "" : is_met(line) ? "yes" : "no");
    default:
        return g_strdup(line->reference == NULL ? "" : line->reference);
    }
}

void table_add(Table *table, const char *row, double value, const char *unit, Aim aim,
               const char *reference, const char *what, ...)
{
    Line *line = g_new0(Line, 1);
    g_autofree char *text = NULL;
    va_list args;

    va_start(args, what);
    line->what = g_strdup_vprintf(what, args);
    va_end(args);
    line->row = g_strdup(row);
    line->value = value;
    line->unit = g_strdup(unit);
    line->aim = aim;
    line->reference = g_strdup(reference);
    g_ptr_array_add(table->lines, line);
    text = number_text(value);
    g_printerr("  (%s) %s: %s %s\n", row, line->what, text, unit);
}

void table_skip(Table *table, const char *row, const char *why, ...)
{
    Line *line = g_new0(Line, 1);
    va_list args;

    va_start(args, why);
    line->what = g_strdup_vprintf(why, args);
    va_end(args);
    line->row = g_strdup(row);
    line->skipped = TRUE;
    g_ptr_array_add(table->lines, line);
    g_printerr("  (%s) skipped: %s\n", row, line->what);
}

static void print_cells(char *const *cells, const gsize *widths)
{
    g_autoptr(GString) text = g_string_new(NULL);

    for (guint i = 0; i < N_COLUMNS; i++) {
        gsize pad = widths[i] - (gsize)g_utf8_strlen(cells[i], -1);
        gboolean right = i == VALUE || i == AIM;
        g_string_append_printf(text, "%*s%s%*s  ", right ? (int)pad : 0, "", cells[i],
                               right ? 0 : (int)pad, "");
    }
    g_strchomp(text->str);
    puts(text->str);
}

static gint by_row(gconstpointer a, gconstpointer b)
{
    return strcmp((*(Line *const *)a)->row, (*(Line *const *)b)->row);
}

void table_sort(Table *table)
{
    g_ptr_array_sort(table->lines, by_row); /* stable */
}

void table_print(const Table *table)
{
    gsize widths[N_COLUMNS];
    g_autoptr(GPtrArray) rows = g_ptr_array_new_with_free_func((GDestroyNotify)g_strfreev);

    if (table->lines->len == 0)
        return;
    g_ptr_array_add(rows, g_new0(char *, N_COLUMNS + 1));
    for (guint i = 0; i < N_COLUMNS; i++)
        ((char **)rows->pdata[0])[i] = g_strdup(headings[i]);
    for (guint l = 0; l < table->lines->len; l++) {
        char **cells = g_new0(char *, N_COLUMNS + 1);
        for (guint i = 0; i < N_COLUMNS; i++)
            cells[i] = cell(g_ptr_array_index(table->lines, l), i);
        g_ptr_array_add(rows, cells);
    }
    for (guint i = 0; i < N_COLUMNS; i++) {
        widths[i] = 0;
        for (guint r = 0; r < rows->len; r++)
            widths[i] = MAX(widths[i], (gsize)g_utf8_strlen(((char **)rows->pdata[r])[i], -1));
    }
    for (guint r = 0; r < rows->len; r++)
        print_cells(rows->pdata[r], widths);
}

static void append_line(GString *out, const Line *line)
{
    g_string_append(out, "{");
    lh_json_append_key(out, "row");
    lh_json_append_string(out, line->row);
    lh_json_append_key(out, line->skipped ? "skipped" : "what");
    lh_json_append_string(out, line->what);
    if (!line->skipped) {
        lh_json_append_key(out, "value");
        lh_json_append_double(out, line->value);
        lh_json_append_key(out, "unit");
        lh_json_append_string(out, line->unit);
        lh_json_append_key(out, "reference");
        lh_json_append_string(out, line->reference);
    }
    if (!line->skipped && line->aim.type != AIM_NONE) {
        lh_json_append_key(out, line->aim.type == AIM_AT_LEAST ? "atLeast" : "atMost");
        lh_json_append_double(out, line->aim.value);
        lh_json_append_key(out, "met");
        g_string_append(out, is_met(line) ? "true" : "false");
    }
    g_string_append(out, "}");
}

gboolean table_write_json(const Table *table, const char *path, GError **error)
{
    g_autoptr(GString) out = g_string_new("[");

    for (guint i = 0; i < table->lines->len; i++) {
        lh_json_append_key(out, NULL);
        g_string_append(out, "\n");
        append_line(out, g_ptr_array_index(table->lines, i));
    }
    g_string_append(out, "\n]\n");
    return g_file_set_contents(path, out->str, (gssize)out->len, error);
}
