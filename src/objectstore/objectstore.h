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

/* An object below a root; what is no directory is one. */
typedef struct {
    const char *name; /* relative to the root, as the store says it: not checked */
    gint64 size;
    gint64 modified_ms; /* epoch, by the store's clock; -1: not said */
} LhStoreObject;

typedef void (*LhStorePageFunc)(const LhStoreObject *objects, gsize n, gpointer data);

/* What work on a root comes to; -1 and NULL: nothing of the kind. */
typedef struct {
    gint64 objects, bytes;
    gint64 clock_ms;     /* epoch, by the store's own clock */
    const char *text;    /* NUL-terminated */
    const char *version; /* READ: of what was read; another one for another text. NULL: not said */
} LhStoreAnswer;

/* @answer is NULL when @error is not. */
typedef void (*LhStoreDoneFunc)(const LhStoreAnswer *answer, const GError *error, gpointer data);

/* What was seen to lie in a directory directly. */
typedef struct {
    gint64 objects, bytes;
    gint64 until_ms; /* epoch, by the store's clock: none of them is younger */
} LhStoreKnown;

/* Any thread: whether something may be changed in the store at this moment. */
typedef gboolean (*LhStoreGuardFunc)(gpointer data);

/* Which work. */
typedef enum {
    LH_STORE_WALK,
    LH_STORE_ERASE,
    LH_STORE_ERASE_FLAT,
    LH_STORE_READ,
    LH_STORE_WRITE,
    LH_STORE_CLOCK,
} LhStoreWork;

typedef struct {
    LhStoreWork work;
    const char *uri;  /* ERASE…: what goes; else a root of the store */
    const char *name; /* READ, WRITE: of an object that lies in the root directly */
    const char *text; /* WRITE */
    /* WRITE: only over this version; "": only if there is none; NULL: over whatever is there. */
    const char *over;
    LhStoreKnown known; /* ERASE_FLAT */
} LhStoreRequest;

typedef struct {
    LhStoreOp (*list)(LhObjectStore *store, const char *uri, LhStoreListFunc func, gpointer data);
    LhStoreOp (*fetch)(LhObjectStore *store, const char *uri, const char *name, const char *to_path,
                       LhStoreProgressFunc progress, LhStoreFetchFunc func, gpointer data);
    LhStoreOp (*work)(LhObjectStore *store, const LhStoreRequest *request, LhStorePageFunc page,
                      LhStoreDoneFunc done, gpointer data);
    void (*cancel)(LhObjectStore *store, LhStoreOp op);
    void (*guard)(LhObjectStore *store, LhStoreGuardFunc may, gpointer data);
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
/* ---- work on roots, for who keeps them clean ---- */

/* All objects below @root (one of the store's), page by page: each page is told before the next one is
 * fetched, so that memory does not grow with the root. A directory's own objects follow each other. @done
 * comes last: with objects and bytes when the listing is whole, else with why it is not, and then no page
 * may be relied on. An empty root is no error; a root that is not there is LH_ERR_NOT_FOUND. */
LhStoreOp lh_store_walk(LhObjectStore *store, const char *root, LhStorePageFunc page,
                        LhStoreDoneFunc done, gpointer data);
/* Deletes all that lies below @uri, which lies strictly below a root and holds none; directories too. What
 * is not there is deleted already. Links are deleted, not followed. An error may leave any part of it. Answers
 * objects: how many were deleted. */
LhStoreOp lh_store_erase(LhObjectStore *store, const char *uri, LhStoreDoneFunc done,
                         gpointer data);
/* The same, of the objects directly in @uri only, and only of what was @known: it lists first, and where there
 * is more than that, or anything younger (or of an age that the store does not say), nothing is deleted and the
 * error is LH_ERR_CONFLICT. Less is what an earlier one has left. What comes while it deletes is left too. */
LhStoreOp lh_store_erase_flat(LhObjectStore *store, const char *uri, const LhStoreKnown *known,
                              LhStoreDoneFunc done, gpointer data);
/* The small object @name in @root: at most 64 KiB. LH_ERR_NOT_FOUND: there is none. */
LhStoreOp lh_store_read(LhObjectStore *store, const char *root, const char *name,
                        LhStoreDoneFunc done, gpointer data);
/* Puts it there, whole or not at all; with @over (see LhStoreRequest) LH_ERR_CONFLICT when that is not what is
 * there. An s3:// server that knows no conditions writes over it. */
LhStoreOp lh_store_write(LhObjectStore *store, const char *root, const char *name, const char *text,
                         const char *over, LhStoreDoneFunc done, gpointer data);
/* What time it is there: s3:// the Date of an answer, in whole seconds; file:// what a new file gets. */
LhStoreOp lh_store_clock(LhObjectStore *store, const char *root, LhStoreDoneFunc done,
                         gpointer data);

/* Before any work, once: @may is asked just before each object is deleted or written (s3://: when the connection
 * is there, before the request is sent), and where it says no, the work ends with LH_ERR_CANCELLED. Cancelling
 * needs the loop; a process that stood still and wakes has worker threads that may be faster. */
void lh_store_set_guard(LhObjectStore *store, LhStoreGuardFunc may, gpointer data);

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
/* @roots, each with a '/' at its end; NULL: LH_ERR_INVALID. g_strfreev. */
char **lh_store_roots(const char *const *roots, GError **error);
/* Whether data may be deleted below @roots (of lh_store_roots): none is the whole file system, or equals or
 * holds another; else LH_ERR_INVALID. */
gboolean lh_store_roots_deletable(const char *const *roots, GError **error);
/* True when @uri lies strictly below one of @roots. */
gboolean lh_store_uri_below(const char *uri, const char *const *roots);
