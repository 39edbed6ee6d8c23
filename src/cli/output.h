/*
 * Output: tables, JSON, YAML, names and JSONPath, of objects and of what was done.
 *
 * What comes from a server is shown without control characters, so that no object can drive the
 * terminal (JSON and YAML escape them).
 */
#pragma once

#include "cli/internal.h"

/* ---- text ---- */

char *lh_json_pretty(const cJSON *value);             /* two spaces, a newline at the end */
char *lh_yaml_print(const cJSON *value);              /* one document, without "---" */
void lh_output_text(FILE *out, const char *text);     /* control characters become '?' */
void lh_output_value(LhCli *cli, const cJSON *value); /* in -o's format; tables: as YAML */

/* ---- tables ---- */

typedef struct LhTable LhTable;

LhTable *lh_table_new(const char *const *titles); /* NULL-ended */
/* Takes @cells (NULL-ended); fewer cells than titles: the last one may be as long as it likes. */
void lh_table_add(LhTable *table, char **cells);
/* The column of this title is at least so wide, for rows that come one by one. */
void lh_table_reserve(LhTable *table, const char *title, gsize width);
/* Writes what was added since the last time. The header comes once, before the first row, and widths
 * never shrink. */
void lh_table_print(LhTable *table, FILE *out);
gboolean lh_table_started(const LhTable *table); /* something was written */
void lh_table_free(LhTable *table);              /* accepts NULL */

/* What a table of objects is for. */
typedef enum {
    LH_ROWS_LISTED,  /* all at once */
    LH_ROWS_WATCHED, /* one by one: titles as wide as what usually comes */
    LH_ROWS_EVENTS, /* the same, with two columns more: when the row was written, and what happened */
} LhRows;

/* The table of a kind, and an object's row; @event: with LH_ROWS_EVENTS, else NULL. */
LhTable *lh_kind_table(const LhCli *cli, const LhKindView *view, LhRows rows);
void lh_kind_table_add(const LhCli *cli, LhTable *table, const LhKindView *view,
                       const cJSON *object, const char *event);
/* A hash of the cells of @object's row: the same for rows that look the same but for their time and event. */
guint lh_kind_row_hash(const LhCli *cli, const LhKindView *view, const cJSON *object);

/* ---- objects ---- */

/* A list (kind, revision, items) or, when @single, its one object. */
void lh_output_objects(LhCli *cli, const LhKindView *view, const cJSON *list, gboolean single);

/* "services/a created": said at once, or collected and written by lh_results_flush. */
void lh_result_add(LhCli *cli, const char *object, const char *result, gint64 revision);
void lh_results_flush(LhCli *cli);

G_DEFINE_AUTOPTR_CLEANUP_FUNC(LhTable, lh_table_free)
