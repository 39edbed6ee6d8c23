/*
 * Who we are to S3: from files, the environment, or the shared file of Amazon's tools.
 *
 * What is in files is read again at most every 10 s. Any thread, except for making and freeing.
 * Errors name files and settings, never what is in them.
 */
#pragma once

#include <glib.h>

typedef struct LhS3Credentials LhS3Credentials;

typedef struct {
    char *access_key, *secret_key; /* NULL both: requests are not signed */
    char *session_token;           /* NULL: none */
} LhS3Identity;

/* Both files, or NULL both: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN; else the
 * profile AWS_PROFILE of AWS_SHARED_CREDENTIALS_FILE (~/.aws/credentials); else nobody. Errors:
 * LH_ERR_INVALID, one half only. Files are not read yet. */
LhS3Credentials *lh_s3_credentials_new(const char *access_key_file, const char *secret_key_file,
                                       GError **error);
void lh_s3_credentials_free(LhS3Credentials *credentials); /* accepts NULL */

/* @now_us: of a clock that never jumps. Errors: LH_ERR_INVALID, LH_ERR_IO. Nobody is not an
 * error, unless a file or profile was asked for. */
gboolean lh_s3_credentials_get(LhS3Credentials *credentials, gint64 now_us, LhS3Identity *out,
                               GError **error);
void lh_s3_identity_clear(LhS3Identity *identity);

G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC(LhS3Identity, lh_s3_identity_clear)
