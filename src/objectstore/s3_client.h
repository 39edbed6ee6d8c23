/*
 * Signed requests to one S3 service, and what their answers mean.
 *
 * A client belongs to the store and may be used by any thread. A session is a thread's own while it
 * has it: a few connections, kept open for the next user. An exchange is one request and its
 * answer; up to LH_S3_MAX_PARTS run side by side in a session.
 */
#pragma once

#include "objectstore/backend.h"
#include "objectstore/s3_range.h"
#include "objectstore/s3_tuning.h"

#include <curl/curl.h>

typedef struct LhS3Client LhS3Client;
typedef struct LhS3Session LhS3Session;
typedef struct LhS3Exchange LhS3Exchange;

/* Errors: LH_ERR_INVALID, one half of the credentials. The rest of @options has been checked
 * (lh_store_s3_options_check). */
LhS3Client *lh_s3_client_new(const LhObjectStoreOptions *options, const LhS3Tuning *tuning,
                             GError **error);
void lh_s3_client_free(LhS3Client *client); /* no session may be out */
const LhS3Tuning *lh_s3_client_tuning(const LhS3Client *client);

/* @task: whose cancelling ends the session's waiting. */
LhS3Session *lh_s3_session_take(LhS3Client *client, LhStoreTask *task);
/* No exchange may be running. */
void lh_s3_session_give(LhS3Session *session);
/* Any thread: the session that works for @task looks at once whether it was cancelled. */
void lh_s3_client_wake(LhS3Client *client, const LhStoreTask *task);

struct LhS3Exchange {
    /* The caller's. What it points to must stay until the exchange has ended. */
    const char *bucket, *key;  /* @key: NULL: the bucket itself */
    const char *query;         /* of lh_s3_query; NULL: none */
    const char *if_match;      /* NULL: none */
    const char *if_none_match; /* NULL: none */
    const char *method;        /* "DELETE", "PUT"; NULL: GET */
    const char *send;          /* the body of a PUT, text; else NULL */
    gint64 first, last;        /* bytes wanted; first < 0: all */
    gsize body_limit;          /* of a 2xx answer without on_data */
    /* Takes a piece of a 2xx answer's body; FALSE breaks the exchange off. NULL: into @body. */
    gboolean (*on_data)(LhS3Exchange *exchange, const guint8 *data, gsize n);
    gpointer data;

    /* The answer, as far as it has come. */
    glong status;          /* 0: none yet */
    char *etag;            /* NULL: none */
    gint64 content_length; /* -1: not said */
    LhS3Range range;       /* of Content-Range */
    gint64 date_s;         /* the server's clock; 0: not said */
    char *bucket_region;   /* NULL: not said */
    GString *body;         /* of an error too, cut at a limit */
    gboolean too_big;

    /* The session's. */
    LhS3Session *session;
    CURL *curl; /* NULL: not running */
    struct curl_slist *headers;
    CURLcode result;
    curl_off_t retry_after_s; /* 0: not said */
    gint64 signed_s;          /* our clock, when it was signed; 0: unsigned */
    char *access_key;
    char message[CURL_ERROR_SIZE];
};

/* Signs and starts; what an earlier run has left is forgotten. Errors: of the credentials. */
gboolean lh_s3_exchange_start(LhS3Session *session, LhS3Exchange *exchange, GError **error);
/* Breaks it off if it is running, and frees what the answer holds. */
void lh_s3_exchange_clear(LhS3Exchange *exchange);

/* Runs all exchanges of the session, until one has ended, @until_us (monotonic) has come, or the
 * task was cancelled. NULL: none has ended. */
LhS3Exchange *lh_s3_session_run(LhS3Session *session, gint64 until_us);

typedef enum { LH_S3_OK, LH_S3_AGAIN, LH_S3_FAILED } LhS3Verdict;

/* What an exchange that has ended comes to. OK: a 2xx answer that is complete as HTTP goes. AGAIN:
 * @error says why, and *@after_ms how long the server asks us to wait (0: not said). @uri and @name
 * are what the error is about. */
LhS3Verdict lh_s3_exchange_verdict(const LhS3Exchange *exchange, const char *uri, const char *name,
                                   gint64 *after_ms, GError **error);
