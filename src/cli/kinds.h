/*
 * The kinds as the command line needs them: names, and the columns of their tables. Pure.
 *
 * A column is a place in the object and a way to show it; there is no code for a single kind.
 */
#pragma once

#include <cjson/cJSON.h>
#include <glib.h>

typedef enum {
    LH_COLUMN_TEXT,       /* any value; arrays joined by "," */
    LH_COLUMN_PART,       /* part `path`[0]-'0' of metadata.name, split at "/" */
    LH_COLUMN_REST,       /* metadata.name from that part on */
    LH_COLUMN_AGE,        /* of a time: "5m" */
    LH_COLUMN_TIME,       /* a time: "12:34:56Z", with its date when that is another day */
    LH_COLUMN_UNTIL,      /* a time: "in 5m", "5m ago" */
    LH_COLUMN_SIZE,       /* bytes */
    LH_COLUMN_COUNT,      /* elements of an array */
    LH_COLUMN_RATIO,      /* "path/path": "3/4" */
    LH_COLUMN_PERCENT,    /* "path/path": "75%" */
    LH_COLUMN_CONDITION,  /* status of the condition `path` */
    LH_COLUMN_CONDITIONS, /* all: "Valid=True,Covered=False" */
} LhColumnType;

typedef struct {
    const char *title;
    LhColumnType type;
    const char *path; /* "spec.cache.window" */
    gboolean wide;    /* only with -o wide */
} LhColumn;

typedef struct {
    const char *kind, *plural;
    gboolean desired;
    const LhColumn *columns; /* ended by a NULL title */
} LhKindView;

/* Kind or plural in any case; NULL if there is none. */
const LhKindView *lh_kind_view(const char *name);
/* The same, or LH_ERR_INVALID with the nearest one. */
const LhKindView *lh_kind_view_or(const char *name, GError **error);
const LhKindView *lh_kind_views(guint *n);

/* The value at "a.b.c", or NULL. Of an array "last" is the last element. */
const cJSON *lh_value_at(const cJSON *object, const char *path);
const char *lh_object_name(const cJSON *object); /* metadata.name, or "" */
const cJSON *lh_object_condition(const cJSON *object, const char *type);

/* The text of a cell; "-" when there is nothing. g_free. */
char *lh_column_text(const LhColumn *column, const cJSON *object, gint64 now_ms);
/* "12:34:56Z" or, when it is a day or more from @now_ms, "2026-05-01T12:34:56Z". g_free. */
char *lh_clock_text(gint64 at_ms, gint64 now_ms);
/* "5m", "3d4h". g_free. */
char *lh_age_text(gint64 ms);
