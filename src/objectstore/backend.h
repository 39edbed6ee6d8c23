/*
 * What the backends of the object store share among themselves. Not for use outside
 * src/objectstore/.
 */
#pragma once

#include "objectstore/objectstore.h"

#define LH_FILE_SCHEME "file://"
#define LH_S3_SCHEME   "s3://"

/* True when a store with @roots may touch what lies at @uri; else the error to answer with. */
gboolean lh_store_uri_permitted(const char *uri, const char *const *roots, GError **error);

/* The root of @roots that @uri lies strictly below (the first one), NULL if none. */
const char *lh_store_root_of(const char *uri, const char *const *roots);

/* Takes @roots: each a uri that ends with '/'. */
LhObjectStore *lh_store_file_new(char **roots);
