/*
 * Urls of S3 requests, in the one spelling that a signature covers. Pure; any thread.
 *
 * libcurl signs path and query as they are given, so they are made canonical here: unreserved
 * characters as they are, everything else as %XX in upper case, parameters sorted.
 */
#pragma once

#include <glib.h>

/* Appends @text; '/' stays as it is when @keep_slash. */
void lh_s3_encode(GString *out, const char *text, gboolean keep_slash);
/* What encoding-type=url did to a key: %XX, and '+' for a space. NULL: not such a text, or not
 * UTF-8, or with a NUL in it. g_free. */
char *lh_s3_decode(const char *text);

typedef struct {
    const char *name, *value; /* plain */
} LhS3Param;

/* "a=1&b=%2F": sorted by the encoded names, an empty value as "name="; "" for none. g_free. */
char *lh_s3_query(const LhS3Param *params, gsize n);

typedef struct {
    char *scheme;        /* "https" */
    char *host;          /* with the port if one is given; "[::1]:80" */
    gboolean is_amazon;  /* below amazonaws.com or amazonaws.com.cn */
    gboolean is_address; /* an IP address: no names below it */
} LhS3Endpoint;

typedef enum { LH_S3_AUTO, LH_S3_VIRTUAL, LH_S3_PATH } LhS3Addressing;

/* "http://host:port": no user, path, query or fragment. The error says why not; it does not repeat
 * the text, which may hold a password. */
gboolean lh_s3_endpoint_parse(const char *text, LhS3Endpoint *out, GError **error);
void lh_s3_endpoint_clear(LhS3Endpoint *endpoint);
/* NULL is "auto". */
gboolean lh_s3_addressing_parse(const char *text, LhS3Addressing *out);

/* 1 to 255 of A-Z a-z 0-9 . _ -, the first a letter or digit. */
gboolean lh_s3_bucket_valid(const char *bucket);

/* @key: NULL: the bucket's own url. @query: of lh_s3_query. g_free. A bucket whose name is none of
 * a host, or has a dot below https, is put into the path unless LH_S3_VIRTUAL. */
char *lh_s3_url(const LhS3Endpoint *endpoint, LhS3Addressing addressing, const char *bucket,
                const char *key, const char *query);

G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC(LhS3Endpoint, lh_s3_endpoint_clear)
