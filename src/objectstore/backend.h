/*
 * What the front of the object store and its backends share. Not for use outside src/objectstore/.
 *
 * A backend is a pair of blocking functions that run on worker threads, one call for each task. The
 * front makes the tasks, hands them out and answers on the loop; a task is shared by the loop and
 * one worker, and counted.
 */
#pragma once

#include "objectstore/objectstore.h"

#define LH_FILE_SCHEME "file://"
#define LH_S3_SCHEME   "s3://"

/* ---- uris ---- */

/* The path in "file:///dir/sub/" or "s3://bucket/key/": what follows the scheme (and file's '/'),
 * without the trailing '/'. NULL: not such a uri. "" is the whole file system. g_free. */
char *lh_store_uri_path(const char *uri);

/* True when a store with @roots may touch what lies at @uri; else the error to answer with. */
gboolean lh_store_uri_permitted(const char *uri, const char *const *roots, GError **error);

/* True when a store with @roots may do @work there; else the error to answer with. */
gboolean lh_store_work_permitted(LhStoreWork work, const char *uri, const char *const *roots,
                                 GError **error);

/* The root of @roots that @uri lies strictly below (the first one), NULL if none. */
const char *lh_store_root_of(const char *uri, const char *const *roots);

/* ---- tasks ---- */

typedef struct LhStoreTask LhStoreTask;

/* What a task is about: constant while a worker has it. */
typedef struct {
    const char *uri, *root;     /* @root: the one that @uri lies below; NULL: there are none */
    const char *name, *to_path; /* of a fetch; name: of READ and WRITE too */
    LhStoreWork work;           /* of work on a root; then @root may be @uri itself */
    const char *text, *over;    /* to write */
    LhStoreKnown known;         /* of ERASE_FLAT */
    guint32 seed;               /* for a generator of the worker's own */
} LhStoreJob;

const LhStoreJob *lh_task_job(const LhStoreTask *task);

/* The worker's, while it has the task. */
gboolean lh_task_cancelled(LhStoreTask *task);
/* Asked just before each change: FALSE, and lh_task_refuse_change says why, when it must not be made. */
gboolean lh_task_may_change(LhStoreTask *task);
gboolean lh_task_refuse_change(LhStoreTask *task, const char *name, GError **error); /* FALSE */
/* So many bytes are there; posted at most every 100 ms. Never less than before. */
void lh_task_progress(LhStoreTask *task, gint64 bytes);
/* FALSE, with the error, when there are too many already. Sorted by the front. */
gboolean lh_task_add_entry(LhStoreTask *task, const char *name, gint64 size, GError **error);

#define LH_STORE_PAGE      1000
#define LH_STORE_MAX_SMALL (64 * 1024)

/* Of a walk: FALSE when it was cancelled (@error is set). Waits while the loop has a page. */
gboolean lh_task_add_object(LhStoreTask *task, const char *name, gint64 size, gint64 modified_ms,
                            GError **error);
/* Of ERASE_FLAT: adds an object to what has been @found; FALSE, with LH_ERR_CONFLICT, when that is not what
 * was known. */
gboolean lh_task_expects(const LhStoreTask *task, LhStoreKnown *found, const char *name,
                         gint64 size, gint64 modified_ms, GError **error);
/* What work comes to. @text: taken. */
void lh_task_answer(LhStoreTask *task, gint64 objects, gint64 clock_ms, char *text);
/* After it. @version: taken. */
void lh_task_answer_version(LhStoreTask *task, char *version);

/* ---- backends ---- */

typedef struct LhStoreBackend LhStoreBackend;

/* On a worker thread; several at a time. A list adds entries, a fetch gives the digest (g_free).
 * FALSE, NULL: @error is set. */
typedef struct {
    gboolean (*list)(LhStoreBackend *backend, LhStoreTask *task, GError **error);
    char *(*fetch)(LhStoreBackend *backend, LhStoreTask *task, GError **error);
    /* lh_task_job()->work; ends with lh_task_answer. */
    gboolean (*work)(LhStoreBackend *backend, LhStoreTask *task, GError **error);
    /* Loop thread: @task has just been cancelled. NULL: it looks often enough by itself. */
    void (*wake)(LhStoreBackend *backend, LhStoreTask *task);
    void (*free)(LhStoreBackend *backend);
} LhStoreBackendVtable;

struct LhStoreBackend {
    const LhStoreBackendVtable *v;
};

LhStoreBackend *lh_store_file_new(void);
/* objectstore_file_work.c */
gboolean lh_file_work(LhStoreBackend *backend, LhStoreTask *task, GError **error);
