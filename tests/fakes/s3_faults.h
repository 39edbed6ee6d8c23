/*
 * An S3 server for tests that does what no real one does on demand: it fails, stalls, cuts, lies.
 *
 * In this process, on loopback, with threads of its own. It checks no signature. Objects are served
 * by path ("/bucket/key"), with ranges and If-Match; listings show what was put. Faults wait in a
 * queue; each is used by the next requests that it matches. Any thread.
 */
#pragma once

#include <glib.h>

typedef struct S3Faults S3Faults;

typedef enum {
    S3_FAULT_REPLY,   /* status, code, header, body: this answer, whatever was asked */
    S3_FAULT_STALL,   /* the right answer up to @after bytes of the body; then nothing, for ever */
    S3_FAULT_CUT,     /* the same, and then the connection is closed */
    S3_FAULT_LENGTH,  /* Content-Length is @after more (or less) than what comes */
    S3_FAULT_CHUNKED, /* no Content-Length, and @after bytes more (or less) than there should be */
    S3_FAULT_RANGE,   /* Content-Range is @after further on than what was asked for */
    S3_FAULT_TOTAL,   /* the whole size in Content-Range is @after more */
    S3_FAULT_WHOLE,   /* 200 and all of it where a part was asked for */
    S3_FAULT_ETAG,    /* another ETag; If-Match is ignored */
    S3_FAULT_NO_ETAG, /* none */
    S3_FAULT_CHANGE,  /* from now on the object is another one */
    S3_FAULT_DEEP,    /* a listing that heeds no delimiter */
    S3_FAULT_KEEP,    /* a DELETE that is said to be done, and is not */
} S3FaultKind;

typedef struct {
    const char *path;  /* of the request; NULL: any. A request of a transfer that was given up may
                          come late: then only the path tells it from the next transfer's. */
    const char *match; /* part of the request's head; NULL: any */
    guint times;       /* how many requests */
    S3FaultKind kind;
    gint64 after;
    int status;
    const char *code;   /* of an XML error; NULL: none */
    const char *header; /* "Retry-After: 1"; NULL: none */
    const char *body;   /* instead of an XML error; NULL: none */
} S3Fault;

S3Faults *s3_faults_new(void);
void s3_faults_free(S3Faults *server);                  /* closes all connections */
const char *s3_faults_endpoint(const S3Faults *server); /* "http://127.0.0.1:PORT" */
guint16 s3_faults_port(const S3Faults *server);

/* @path: "/bucket/key", as it is in requests (encoded). */
void s3_faults_put(S3Faults *server, const char *path, const void *data, gsize n);
void s3_faults_add(S3Faults *server, const S3Fault *fault); /* copied */
/* How many requests have had @match in their head. */
guint s3_faults_count(S3Faults *server, const char *match);
/* The heads of all requests, one after the other; g_free. */
char *s3_faults_heads(S3Faults *server);
