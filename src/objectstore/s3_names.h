/*
 * The keys that a listing of S3 has below a prefix, as paths of files below a directory: each is checked before
 * it may become one. What S3 can hold and a directory cannot (an object "a" beside one "a/b", a part "..")
 * is LH_ERR_INVALID; objects of size 0 that only mark a directory are left out. Pure; any thread.
 */
#pragma once

#include "objectstore/s3_xml.h"

typedef struct LhS3Names LhS3Names;

/* @uri is what errors are about; @prefix is empty or ends with '/'. Both are copied. */
LhS3Names *lh_s3_names_new(const char *uri, const char *prefix);
void lh_s3_names_free(LhS3Names *names); /* accepts NULL */

/* A file: @name is relative, borrowed. FALSE with an error ends the listing. */
typedef gboolean (*LhS3NameFunc)(const char *name, gint64 size, gpointer data, GError **error);
/* Calls @func for each file of the page, up to the first error. */
gboolean lh_s3_names_add(LhS3Names *names, const LhS3Page *page, LhS3NameFunc func, gpointer data,
                         GError **error);
/* After the last page: what only the whole listing shows. LH_ERR_NOT_FOUND: there was no object. */
gboolean lh_s3_names_end(const LhS3Names *names, GError **error);
