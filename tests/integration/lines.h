/*
 * Work that leaves traces: an agent's --exec that appends the time to a file every 20 ms, and what it has written.
 * The program that calls lines_work() is a test itself, called with "--lines DIR".
 */
#pragma once

#include <glib.h>

/* The words of --exec: this very program. g_free. */
char *lines_exec(const char *dir);
/* main() of that. Ends when @dir has a file "finish", or when it is told to. */
int lines_work(const char *dir);

typedef struct {
    gint64 first_us, last_us; /* CLOCK_BOOTTIME; 0: none */
    guint n;
} Lines;

/* @node: its id. Of all its runs together. */
Lines lines_of(const char *dir, const char *item, const char *node);
gint64 lines_now_us(void);

/* One run of the work: all that one process has written. */
typedef struct {
    char *item, *node;
    gint64 first_us, last_us;
} LinesRun;

/* LinesRun, of all items and nodes, in no order. g_array_unref. */
GArray *lines_runs(const char *dir);
