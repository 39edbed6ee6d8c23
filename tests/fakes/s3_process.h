/*
 * A real S3 server for tests: a one-disk OpenStack Swift with s3api, tempauth and memcached, on
 * free ports of loopback, in a directory of its own.
 *
 * It verifies signatures, dates, permissions and ranges. Data gets in by Swift's own interface, so
 * that nothing here signs. Its processes die with this process (and with the thread that started
 * them: start it from the main thread). All calls block; starting takes about two seconds, so one
 * is enough for a program.
 */
#pragma once

#include <glib.h>

typedef struct S3Process S3Process;

#define S3_PROCESS_REGION "us-east-1"

/* NULL with LH_ERR_NOT_FOUND: Swift or memcached is not installed. */
S3Process *s3_process_new(GError **error);
void s3_process_free(S3Process *s3); /* stops it, removes its data; accepts NULL */

const char *s3_process_endpoint(const S3Process *s3); /* "http://127.0.0.1:PORT" */
const char *s3_process_by_name(const S3Process *s3); /* "http://localhost:PORT": bucket.localhost */
const char *s3_process_access_key(const S3Process *s3); /* of the owner; it holds a ':' */
const char *s3_process_secret_key(const S3Process *s3);
/* Somebody who is known there, and may do nothing. */
const char *s3_process_stranger(const S3Process *s3);
const char *s3_process_stranger_secret(const S3Process *s3);

/* What cannot work fails an assertion. @key is plain. */
void s3_process_make_bucket(S3Process *s3, const char *bucket);
void s3_process_put(S3Process *s3, const char *bucket, const char *key, const void *data, gsize n);
