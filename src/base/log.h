/*
 * Key=value or JSON logging to standard error. Any thread; one write(2) a line.
 *
 *   lh_log(LH_LOG_INFO, "lease lost", "lease", lease_hex, "next", "campaign again", NULL);
 *
 * prints: time=2026-… level=info msg="lease lost" lease=… next="campaign again"
 * Values are strings, cut at LH_LOG_MAX_VALUE bytes; a NULL key or value ends the list. A value
 * that is not plain is quoted with JSON's escapes: a line is always one line. Never a secret. Pure
 * code (controllers, placement) never logs.
 */
#pragma once

#include <glib.h>

#define LH_LOG_MAX_VALUE 2048

typedef enum { LH_LOG_DEBUG, LH_LOG_INFO, LH_LOG_WARNING, LH_LOG_ERROR } LhLogLevel;
typedef enum { LH_LOG_TEXT, LH_LOG_JSON } LhLogFormat;

/* Before the first call: info, text. */
void lh_log_setup(LhLogLevel lowest, LhLogFormat format);
/* "debug", "info", "warning" (or "warn"), "error"; *@out is untouched otherwise. */
gboolean lh_log_level_parse(const char *text, LhLogLevel *out);
gboolean lh_log_enabled(LhLogLevel level);

void lh_log(LhLogLevel level, const char *message, ...) G_GNUC_NULL_TERMINATED;

/* Between the two the lines of this thread are gathered and written many at once, in pieces of whole lines
 * that a pipe takes undivided. For a burst within one turn; a crash loses what is held. They nest not. */
void lh_log_hold(void);
void lh_log_release(void);

/* A value for lh_log made with printf rules; from a ring of 16 buffers per thread, 256 bytes each:
 * valid until the 16th call after it. */
const char *lh_fmt(const char *format, ...) G_GNUC_PRINTF(1, 2);

/* Takes the lines, without line feed, instead of standard error (tests, simulation); NULL restores
 * it. Called on the thread that logs, one call at a time; it must not log. */
typedef void (*LhLogSink)(const char *line, gpointer data);
void lh_log_set_sink(LhLogSink sink, gpointer data);
