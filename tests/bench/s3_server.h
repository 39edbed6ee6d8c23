/*
 * The S3 server of row h: the one named by LEASEHOLD_BENCH_S3 (its URL; keys in AWS_ACCESS_KEY_ID and
 * AWS_SECRET_ACCESS_KEY), else a Swift of our own where the tests' fakes can start one.
 */
#pragma once

#include <glib.h>

typedef struct S3Server S3Server;

/* NULL: there is none; *why says why, g_free. */
S3Server *s3_server_new(char **why);
void s3_server_free(S3Server *server);

const char *s3_server_endpoint(const S3Server *server); /* "http://127.0.0.1:9000" */
const char *s3_server_access_key(const S3Server *server);
const char *s3_server_secret_key(const S3Server *server);
