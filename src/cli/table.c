/*
 * A text table: columns as wide as what they hold, three spaces between, nothing after the last.
 */
#include "cli/output.h"

#include <string.h>

#define GAP 3

struct LhTable {
    char **titles;
    guint n;
    gsize *widths;   /* in characters */
    GPtrArray *rows; /* char **, not printed yet */
    gboolean started;
};

static char *clean(const char *text)
{
    g_autofree char *valid = g_utf8_make_valid(text, -1);
    GString *out = g_string_new(NULL);
    for (const char *p = valid; *p != '\0'; p = g_utf8_next_char(p)) {
        gunichar c = g_utf8_get_char(p);
        /* Cf holds the marks that change the direction of the text after them. */
        if (g_unichar_iscntrl(c) || g_unichar_type(c) == G_UNICODE_FORMAT) {
            g_string_append_c(out, '?');
        } else {
            g_string_append_unichar(out, c);
        }
    }
    return g_string_free(out, FALSE);
}

void lh_output_text(FILE *out, const char *text)
{
    g_auto(GStrv) lines = g_strsplit(text, "\n", -1);
    for (guint i = 0; lines[i] != NULL; i++) {
        g_autofree char *line = clean(lines[i]);
        fprintf(out, "%s%s", i > 0 ? "\n" : "", line);
    }
}

static void widen(LhTable *table, char **cells)
{
    guint n = g_strv_length(cells);
    for (guint i = 0; i < n; i++) {
        gsize width = (gsize)g_utf8_strlen(cells[i], -1);
        /* The last cell of a short row does not count. */
        if ((i + 1 < n || n == table->n) && width > table->widths[i]) {
            table->widths[i] = width;
        }
    }
}

LhTable *lh_table_new(const char *const *titles)
{
    LhTable *table = g_new0(LhTable, 1);
    table->titles = g_strdupv((char **)titles);
    table->n = g_strv_length(table->titles);
    table->widths = g_new0(gsize, table->n);
    table->rows = g_ptr_array_new_with_free_func((GDestroyNotify)g_strfreev);
    widen(table, table->titles);
    return table;
}

void lh_table_add(LhTable *table, char **cells)
{
    g_assert(g_strv_length(cells) <= table->n);
    for (guint i = 0; cells[i] != NULL; i++) {
        char *text = clean(cells[i]);
        g_free(cells[i]);
        cells[i] = text;
    }
    widen(table, cells);
    g_ptr_array_add(table->rows, cells);
}

void lh_table_reserve(LhTable *table, const char *title, gsize width)
{
    for (guint i = 0; i < table->n; i++) {
        if (strcmp(table->titles[i], title) == 0) {
            table->widths[i] = MAX(table->widths[i], width);
        }
    }
}

static void print_row(const LhTable *table, char **cells, FILE *out)
{
    for (guint i = 0; cells[i] != NULL; i++) {
        gsize width = (gsize)g_utf8_strlen(cells[i], -1);
        fputs(cells[i], out);
        if (cells[i + 1] != NULL && (cells[i + 1][0] != '\0' || cells[i + 2] != NULL)) {
            fprintf(out, "%*s", (int)(MAX(table->widths[i], width) - width + GAP), "");
        }
    }
    fputc('\n', out);
}

void lh_table_print(LhTable *table, FILE *out)
{
    if (!table->started && table->rows->len > 0) {
        print_row(table, table->titles, out);
        table->started = TRUE;
    }
    for (guint i = 0; i < table->rows->len; i++) {
        print_row(table, table->rows->pdata[i], out);
    }
    g_ptr_array_set_size(table->rows, 0);
}

gboolean lh_table_started(const LhTable *table)
{
    return table->started;
}

void lh_table_free(LhTable *table)
{
    if (table != NULL) {
        g_strfreev(table->titles);
        g_free(table->widths);
        g_ptr_array_unref(table->rows);
        g_free(table);
    }
}
