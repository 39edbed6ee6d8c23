/*
 * The two documents of S3 that are read: a page of ListObjectsV2, and an error. Pure; any thread.
 */
#pragma once

#include <glib.h>

typedef struct {
    char *key; /* plain */
    gint64 size;
    gint64 modified_ms; /* epoch; -1: not said, or not readable */
} LhS3Object;

typedef struct {
    GPtrArray *objects; /* of LhS3Object */
    char *next_token;   /* NULL: this was the last page */
} LhS3Page;

/* Strict: whatever is missing, twice there, or no number makes the page LH_ERR_INVALID; the error
 * says which part. */
gboolean lh_s3_page_parse(const char *xml, gsize len, LhS3Page *out, GError **error);
void lh_s3_page_clear(LhS3Page *page);

typedef struct {
    char *code;    /* "NoSuchKey"; letters, digits and '.' only; NULL: none */
    char *message; /* on one line, at most 200 bytes; NULL: none */
    char *region;  /* that the bucket is in; NULL: not said */
} LhS3Error;

/* Whatever can be found in it; anything may be passed. */
void lh_s3_error_parse(const char *xml, gsize len, LhS3Error *out);
void lh_s3_error_clear(LhS3Error *error);

G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC(LhS3Page, lh_s3_page_clear)
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC(LhS3Error, lh_s3_error_clear)
