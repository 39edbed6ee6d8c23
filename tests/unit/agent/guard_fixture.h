/*
 * For tests with real programs under real watchdogs: the test program is its own watchdog
 * (guard_fixture_main), has a directory, waits for conditions, and reads the times that programs write.
 */
#pragma once

#include "agent/guard.h"
#include "agent/watchdog.h"

#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define WAIT_MS 20000

/* A program that appends the time since the boot, in seconds, to its first argument, again and again. */
#define TICKS "while :; do cut -d\" \" -f1 /proc/uptime >> \"$0\"; sleep 0.01; done"

typedef gboolean (*GuardCondition)(gpointer data);

/* FALSE: not within WAIT_MS. */
static G_GNUC_UNUSED gboolean guard_wait(GuardCondition condition, gpointer data)
{
    gint64 until = g_get_monotonic_time() + WAIT_MS * G_GINT64_CONSTANT(1000);
    while (!condition(data)) {
        if (g_get_monotonic_time() > until)
            return FALSE;
        if (!g_main_context_iteration(NULL, FALSE))
            g_usleep(500);
    }
    return TRUE;
}

/* The last whole line of @path as milliseconds since the boot; 0: there is none. */
static G_GNUC_UNUSED gint64 last_tick_ms(const char *path)
{
    g_autofree char *text = NULL;
    if (!g_file_get_contents(path, &text, NULL, NULL))
        return 0;
    char *end = strrchr(text, '\n');
    if (end == NULL)
        return 0;
    *end = '\0';
    const char *line = strrchr(text, '\n');
    return (gint64)(g_ascii_strtod(line != NULL ? line + 1 : text, NULL) * 1000);
}

typedef struct {
    const char *path;
    gint64 last_ms;
    gint64 since_us;
} GuardQuiet;

static gboolean is_quiet(gpointer data)
{
    GuardQuiet *quiet = data;
    gint64 now = g_get_monotonic_time();
    gint64 last = last_tick_ms(quiet->path);
    if (last != quiet->last_ms || quiet->since_us == 0) {
        quiet->last_ms = last;
        quiet->since_us = now;
    }
    return now - quiet->since_us > 400 * 1000;
}

/* When the program that writes @path wrote for the last time: nothing for 400 ms. */
static G_GNUC_UNUSED gint64 end_of_ticks(const char *path)
{
    GuardQuiet quiet = {.path = path};
    assert_true(guard_wait(is_quiet, &quiet));
    return quiet.last_ms;
}

static gboolean ticks(gpointer path)
{
    return last_tick_ms(path) != 0;
}
