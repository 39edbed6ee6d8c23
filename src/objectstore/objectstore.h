/*
 * Where snapshots' data lies: one interface; backends file:// (objectstore_file.c) and s3://
 * (objectstore_s3.c).
 *
 * Loop thread: calls and callbacks; a callback never runs inside the call, exactly once, and never
 * after lh_store_cancel. Blocking work is done on worker threads behind it. A store serves only
 * what lies below its roots; anything else is LH_ERR_FORBIDDEN. Symbolic links are not followed:
 * one below a uri is LH_ERR_FORBIDDEN too. Uris are taken literally: "%20" in a file:// uri is
 * three characters.
 */
#pragma once

#include "base/config.h"
#include "base/env.h"

#include <glib.h>

#define LH_STORE_MAX_FILES 100000
#define LH_STORE_MAX_DEPTH 32

typedef struct LhObjectStore LhObjectStore;
typedef guint64 LhStoreOp; /* 0 is never used */

typedef struct {
    const char *name; /* relative to the uri listed, '/'-separated */
    gint64 size;
} LhStoreEntry;

typedef void (*LhStoreListFunc)(const LhStoreEntry *entries, gsize n, const GError *error,
                                gpointer data);
typedef void (*LhStoreProgressFunc)(gint64 bytes_done,
                                    gpointer data); /* total so far; loop thread */
/* @sha256: 64 hex digits of what was written. */
typedef void (*LhStoreFetchFunc)(gint64 bytes, const char *sha256, const GError *error,
                                 gpointer data);

typedef struct {
    LhStoreOp (*list)(LhObjectStore *store, const char *uri, LhStoreListFunc func, gpointer data);
    LhStoreOp (*fetch)(LhObjectStore *store, const char *uri, const char *name, const char *to_path,
                       LhStoreProgressFunc progress, LhStoreFetchFunc func, gpointer data);
    void (*cancel)(LhObjectStore *store, LhStoreOp op);
    void (*free)(LhObjectStore *store);
} LhObjectStoreVtable;

struct LhObjectStore {
    const LhObjectStoreVtable *v;
};

/* All files below @uri (ends with '/'), sorted by name; at most LH_STORE_MAX_FILES and
 * LH_STORE_MAX_DEPTH directories deep, else LH_ERR_INVALID; so is what is neither file nor
 * directory, and an object whose key is no relative path. A missing directory is LH_ERR_NOT_FOUND,
 * never an empty list; below s3:// that is a prefix without any object, an empty marker "prefix/"
 * counted. */
LhStoreOp lh_store_list(LhObjectStore *store, const char *uri, LhStoreListFunc func, gpointer data);
/* Copies the file @name below @uri to the new file @to_path (its directory exists, the file does
 * not), synced to disk; its directory is not. @progress may be NULL; it comes at most every 100 ms.
 * After an error nothing is left at @to_path. Full disk: LH_ERR_NO_SPACE. What may pass (a broken
 * connection, 5xx, SlowDown) is tried again here, from the byte that was reached, before it becomes
 * LH_ERR_UNAVAILABLE or LH_ERR_OVERLOADED; an object that changes meanwhile is LH_ERR_CONFLICT. */
LhStoreOp lh_store_fetch(LhObjectStore *store, const char *uri, const char *name,
                         const char *to_path, LhStoreProgressFunc progress, LhStoreFetchFunc func,
                         gpointer data);
/* Cancels *@op if it is not 0 and sets it to 0; what was half written is removed, a moment
 * later. */
void lh_store_cancel(LhObjectStore *store, LhStoreOp *op);
void lh_store_free(LhObjectStore *store); /* cancels everything; accepts NULL */

/* All strings are copied by who takes the options. */
typedef struct {
    /* NULL-ended uris; "file:///srv/data/" and "s3://bucket/key/" give access to what lies strictly
     * below (the root's own path on disk may lead through links). NULL or empty: file:// nothing,
     * s3:// everything that the credentials permit. */
    const char *const *roots;
    const char *endpoint; /* "https://s3.example:9000"; NULL: AWS_ENDPOINT_URL, else Amazon's */
    const char *region;   /* NULL: AWS_REGION, AWS_DEFAULT_REGION, else us-east-1 */
    /* "auto": https://bucket.host/key where the host is Amazon's, else https://host/bucket/key;
     * "virtual", "path": always. NULL: auto. */
    const char *addressing;
    /* Files, read anew before they are used (at most once in 10 s). NULL: AWS_ACCESS_KEY_ID,
     * AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN; else the profile AWS_PROFILE of
     * AWS_SHARED_CREDENTIALS_FILE (~/.aws/credentials); else requests are not signed. */
    const char *access_key_file, *secret_key_file;
    const char *cacert; /* PEM file; NULL: AWS_CA_BUNDLE, else the system's */
} LhObjectStoreOptions;

/* The options in @config (objectStore.*; borrowed from it). Errors: LH_ERR_INVALID with the setting's
 * source. */
gboolean lh_objectstore_options_read(const LhConfig *config, LhObjectStoreOptions *out,
                                     GError **error);
/* The callbacks come on the thread's default main context. Errors: LH_ERR_INVALID for a root or an
 * endpoint that is not one, or one half of the credentials. */
LhObjectStore *lh_objectstore_new(LhEnv *env, const LhObjectStoreOptions *options, GError **error);
/* True when @uri lies strictly below one of @roots. */
gboolean lh_store_uri_below(const char *uri, const char *const *roots);
