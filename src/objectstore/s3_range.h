/*
 * The two headers of an answer that say which bytes of how many it holds. Pure; any thread.
 */
#pragma once

#include <glib.h>

/* -1: not said. */
typedef struct {
    gint64 first, last, total;
} LhS3Range;

#define LH_S3_RANGE_NONE ((LhS3Range){-1, -1, -1})

/* "bytes 0-99/1000", or without bytes "bytes * / 1000" (no blanks around the slash); decimal digits, below
 * 2^53. FALSE, and @out untouched, for anything else. Whether the bytes are those that were asked for is
 * not looked at. */
gboolean lh_s3_range_parse(const char *text, LhS3Range *out);
/* A Content-Length; -1 when it is not one number below 2^53. */
gint64 lh_s3_length_parse(const char *text);
