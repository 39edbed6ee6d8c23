/*
 * What commands with --wait share: the time-out, and the loop that looks at what there is and then watches from
 * there, again from the beginning when the server has forgotten the revision. Blocking.
 */
#pragma once

#include "cli/internal.h"

typedef struct {
    LhWatch *watches;
    guint n;
    /* The functions of watches from this one on are told of everything that the list has (PUT) before they are
     * told of changes; those before it begin at a present revision, and `look` and `opened` read what there is. */
    guint first_listed;
    /* Not 0: the first time, watches that are not listed begin here: after the command's own request. */
    gint64 from;
    gboolean (*look)(gpointer data, GError **error); /* may be NULL; FALSE: it failed */
    gboolean (*is_over)(gconstpointer data);
    gpointer data;
} LhWaiting;

/* Until is_over() or @deadline_ms (lh_mono_ms; -1: none), which is no error: is_over() tells. FALSE: the server
 * refuses, or is away for long. */
gboolean lh_wait_for(LhCli *cli, const LhWaiting *waiting, gint64 deadline_ms, GError **error);

/* --timeout, or @standard (NULL: none) if it is not given, as a deadline; -1: none. Errors: INVALID. */
gboolean lh_wait_deadline(const LhCli *cli, const char *standard, gint64 *deadline_ms,
                          GError **error);
