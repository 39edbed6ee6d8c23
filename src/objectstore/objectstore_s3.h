/*
 * The s3:// backend. Not for use outside src/objectstore/.
 */
#pragma once

#include "objectstore/backend.h"
#include "objectstore/s3_client.h"

/* Errors: LH_ERR_INVALID, one half of the credentials, or what lh_store_s3_options_check says. */
LhStoreBackend *lh_store_s3_new(const LhObjectStoreOptions *options, const LhS3Tuning *tuning,
                                GError **error);

/* What can be seen to be wrong at the start: the name of the setting, with the reason as @error.
 * NULL: nothing. Files are not read. */
const char *lh_store_s3_options_check(const LhObjectStoreOptions *options, GError **error);

/* What a task is about, taken apart. */
typedef struct {
    char *bucket;
    char *prefix; /* ends with '/' */
} LhS3Place;

gboolean lh_s3_place_of(const char *uri, LhS3Place *out, GError **error);
void lh_s3_place_clear(LhS3Place *place);
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC(LhS3Place, lh_s3_place_clear)

/* A count of failures since something last went forward, and the pauses between attempts. */
typedef struct {
    const LhS3Tuning *tuning;
    GRand *rand;
    guint failures;
} LhS3Patience;

/* After a failure that may pass: when to try again (monotonic); 0: enough, @error is extended. */
gint64 lh_s3_patience_next(LhS3Patience *patience, gint64 server_asks_ms, GError **error);

/* objectstore_s3_list.c, objectstore_s3_fetch.c: as the functions of the backend. */
gboolean lh_s3_list(LhS3Client *client, LhStoreTask *task, GError **error);
char *lh_s3_fetch(LhS3Client *client, LhStoreTask *task, GError **error);
gboolean lh_s3_work(LhS3Client *client, LhStoreTask *task, GError **error);

/* Asks until there is a complete 2xx answer, as long as asking again may help: what is asked must be
 * idempotent. @name: what the error is about, below the task's uri. */
gboolean lh_s3_ask(LhS3Session *session, LhS3Exchange *exchange, LhS3Patience *patience,
                   LhStoreTask *task, const char *name, GError **error);
