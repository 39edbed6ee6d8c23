/*
 * How far something has come: one line that is drawn over on a terminal, plain lines elsewhere.
 */
#pragma once

#include <glib.h>
#include <stdio.h>

typedef struct {
    FILE *out;
    gboolean terminal; /* the line is drawn over */
    char *last;        /* what stands there */
} LhProgress;

/* Whether @out is a terminal is looked up. */
void lh_progress_init(LhProgress *progress, FILE *out);
/* "[=====>    ]  5/10 @text"; nothing when it says what the last one said. */
void lh_progress_show(LhProgress *progress, gint64 done, gint64 of, const char *text);
/* Leaves the line as it is and ends it. */
void lh_progress_end(LhProgress *progress);

/* The bar alone, @width characters and two brackets; g_free. */
char *lh_progress_bar(gint64 done, gint64 of, guint width);
