/* The kinds under published/: what data exists, as the data plane says. */
#pragma once

#include "api/object.h"

typedef struct {
    LhObject o;
    const char *service;         /* required; atom */
    const char *partition;       /* atom; NULL: none */
    gint64 start_time, end_time; /* before the year 9000; end_time -1 only while live */
    gint64 max_offset;
    gint64 size_bytes; /* -1: a live one that does not say */
    LhUri uri;
    const guint8 *sha256; /* file name → digest, packed: see lh_digests_next */
    gboolean live;
} LhSnapshot;

typedef struct {
    LhObject o;
    const char *partition;
    gint64 start_offset, end_offset; /* inclusive */
    gint64 created_at;
} LhRecoveryTask;

/* "s3://bucket/key/prefix/" or "file:///dir/": scheme, trailing '/', no "..", no empty segment, at
 * least one segment below the bucket or the root. The error does not name the field. */
gboolean lh_uri_check(const char *uri, GError **error);
