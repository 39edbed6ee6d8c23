/*
 * Numbers of the S3 backend that tests and benchmarks change; everybody else takes the defaults.
 */
#pragma once

#include "objectstore/objectstore.h"

typedef struct {
    gint64 part_bytes;     /* objects bigger than this are fetched in parts of this size */
    guint parts_at_once;   /* of one object; 1..LH_S3_MAX_PARTS */
    guint max_keys;        /* on one page of a listing; 1..1000 */
    guint attempts;        /* of one thing without progress, before it is given up */
    gint64 backoff_ms;     /* the first pause, doubled each time, jittered */
    gint64 backoff_cap_ms; /* the longest */
    gint64 retry_after_ms; /* the longest Retry-After that is honoured */
    guint connect_s;       /* to connect, TLS included */
    guint stall_s;         /* a body that does not move for so long is broken off */
    const char *resolve;   /* "host:port:address" for names that no server knows; NULL: none */
} LhS3Tuning;

#define LH_S3_MAX_PARTS 4

extern const LhS3Tuning lh_s3_tuning_default;

/* lh_objectstore_new with other numbers; @tuning is copied. */
LhObjectStore *lh_objectstore_new_tuned(LhEnv *env, const LhObjectStoreOptions *options,
                                        const LhS3Tuning *tuning, GError **error);
