/*
 * The object store's front: it checks uris, hands tasks to worker threads, and answers on the loop.
 *
 * The loop alone looks at a task's functions and data, and only while the task is in the store's
 * table; a cancelled task is out of it, so whatever its worker still posts is dropped. The worker
 * looks at what is constant, at the atomics, and at the result, which it leaves before it posts the
 * end.
 */
#include "objectstore/objectstore.h"

#include "base/errors.h"
#include "base/workers.h"
#include "objectstore/backend.h"
#include "objectstore/beneath.h"
#include "objectstore/objectstore_s3.h"
#include "objectstore/s3_tuning.h"

#include <string.h>
#include <unistd.h>

#define WORKERS     16
#define PROGRESS_US (100 * 1000)

typedef struct {
    LhObjectStore base;
    LhEnv *env;
    char **roots;
    LhWorkers *workers;
    LhStoreBackend *file, *s3;
    LhStoreGuardFunc may; /* constant once there is work; NULL: always */
    gpointer may_data;
    GHashTable *tasks; /* LhStoreOp → LhStoreTask, referenced */
    LhStoreOp next_id;
} Store;

struct LhStoreTask {
    gint refs;    /* atomic */
    Store *store; /* outlives the workers */
    LhStoreOp id;
    /* Constant. */
    gboolean is_fetch, is_work;
    LhStoreBackend *backend;
    LhStoreJob job;
    char *uri, *name, *to_path, *to_write, *over;
    GError *refused;
    /* Between the threads. */
    gint cancelled;
    gint progress_posted;
    gint64 bytes; /* with __atomic */
    /* Loop only. */
    LhStoreListFunc list_func;
    LhStoreFetchFunc fetch_func;
    LhStoreProgressFunc progress_func;
    LhStorePageFunc page_func;
    LhStoreDoneFunc done_func;
    gpointer data;
    /* The worker's, until it posts the end. */
    gint64 next_progress_us;
    GArray *entries; /* of LhStoreEntry, names owned */
    char *sha256;
    GError *error;
    GArray *page; /* of LhStoreObject, names owned; the loop's while page_out */
    gint64 sum_objects, sum_bytes;
    LhStoreAnswer answer; /* text and version owned */
    /* Between the threads. */
    GMutex mutex;
    GCond taken;
    gboolean page_out;
};

static void clear_object(gpointer object)
{
    g_free((char *)((LhStoreObject *)object)->name);
}

static void clear_entry(gpointer entry)
{
    g_free((char *)((LhStoreEntry *)entry)->name);
}

static void task_unref(gpointer data)
{
    LhStoreTask *task = data;
    if (!g_atomic_int_dec_and_test(&task->refs))
        return;
    g_free(task->uri);
    g_free(task->name);
    g_free(task->to_path);
    g_free(task->to_write);
    g_free(task->over);
    g_free((char *)task->answer.text);
    g_free((char *)task->answer.version);
    g_clear_pointer(&task->page, g_array_unref);
    g_mutex_clear(&task->mutex);
    g_cond_clear(&task->taken);
    g_clear_error(&task->refused);
    g_clear_pointer(&task->entries, g_array_unref);
    g_free(task->sha256);
    g_clear_error(&task->error);
    g_free(task);
}

static LhStoreTask *task_ref(LhStoreTask *task)
{
    g_atomic_int_inc(&task->refs);
    return task;
}

/* ---- worker side ---- */

const LhStoreJob *lh_task_job(const LhStoreTask *task)
{
    return &task->job;
}

gboolean lh_task_cancelled(LhStoreTask *task)
{
    return g_atomic_int_get(&task->cancelled) != 0;
}

gboolean lh_task_may_change(LhStoreTask *task)
{
    const Store *store = task->store;
    return !lh_task_cancelled(task) && (store->may == NULL || store->may(store->may_data));
}

gboolean lh_task_refuse_change(LhStoreTask *task, const char *name, GError **error)
{
    g_set_error(error, LH_ERROR, LH_ERR_CANCELLED, "%s%s: %s", task->uri, name,
                lh_task_cancelled(task) ? "cancelled" : "left: this process may not act any more");
    return FALSE;
}

static void report_progress(gpointer data)
{
    LhStoreTask *task = data;
    g_atomic_int_set(&task->progress_posted, 0);
    if (!lh_task_cancelled(task) && task->progress_func != NULL)
        task->progress_func(__atomic_load_n(&task->bytes, __ATOMIC_RELAXED), task->data);
    task_unref(task);
}

void lh_task_progress(LhStoreTask *task, gint64 bytes)
{
    __atomic_store_n(&task->bytes, bytes, __ATOMIC_RELAXED);
    if (task->progress_func == NULL)
        return;
    gint64 now = g_get_monotonic_time();
    if (now < task->next_progress_us)
        return;
    task->next_progress_us = now + PROGRESS_US;
    if (g_atomic_int_compare_and_exchange(&task->progress_posted, 0, 1))
        lh_workers_post(task->store->workers, report_progress, task_ref(task), task_unref);
}

gboolean lh_task_add_entry(LhStoreTask *task, const char *name, gint64 size, GError **error)
{
    if (task->entries->len >= LH_STORE_MAX_FILES) {
        g_set_error(error, LH_ERROR, LH_ERR_INVALID, "%s: has more than %d files", task->uri,
                    LH_STORE_MAX_FILES);
        return FALSE;
    }
    LhStoreEntry entry = {.name = g_strdup(name), .size = size};
    g_array_append_val(task->entries, entry);
    return TRUE;
}

/* Loop: the worker waits meanwhile. */
static void tell_page(gpointer data)
{
    LhStoreTask *task = data;
    if (!lh_task_cancelled(task))
        task->page_func((const LhStoreObject *)(gpointer)task->page->data, task->page->len,
                        task->data);
    g_mutex_lock(&task->mutex);
    task->page_out = FALSE;
    g_cond_signal(&task->taken);
    g_mutex_unlock(&task->mutex);
    task_unref(task);
}

/* Returns when the loop has had it, or nobody wants it any more. */
static gboolean send_page(LhStoreTask *task, GError **error)
{
    if (task->page->len > 0) {
        g_mutex_lock(&task->mutex);
        task->page_out = TRUE;
        lh_workers_post(task->store->workers, tell_page, task_ref(task), task_unref);
        while (task->page_out && !lh_task_cancelled(task))
            g_cond_wait(&task->taken, &task->mutex);
        gboolean left = task->page_out;
        g_mutex_unlock(&task->mutex);
        if (!left) /* else it is the loop's for good */
            g_array_set_size(task->page, 0);
    }
    if (!lh_task_cancelled(task))
        return TRUE;
    g_set_error(error, LH_ERROR, LH_ERR_CANCELLED, "%s: cancelled", task->uri);
    return FALSE;
}

gboolean lh_task_add_object(LhStoreTask *task, const char *name, gint64 size, gint64 modified_ms,
                            GError **error)
{
    const LhStoreObject object = {.name = g_strdup(name), .size = size, .modified_ms = modified_ms};
    g_array_append_val(task->page, object);
    task->sum_objects++;
    task->sum_bytes += size;
    return task->page->len < LH_STORE_PAGE || send_page(task, error);
}

gboolean lh_task_expects(const LhStoreTask *task, LhStoreKnown *found, const char *name,
                         gint64 size, gint64 modified_ms, GError **error)
{
    const LhStoreKnown *known = &task->job.known;
    const char *why = NULL;
    found->objects++;
    found->bytes += size;
    if (modified_ms < 0 || modified_ms > known->until_ms)
        why = "it is younger than what was seen there";
    else if (found->objects > known->objects || found->bytes > known->bytes)
        why = "there is more than what was seen there";
    if (why == NULL)
        return TRUE;
    g_set_error(error, LH_ERROR, LH_ERR_CONFLICT, "%s%s: %s; it is left", task->uri, name, why);
    return FALSE;
}

void lh_task_answer(LhStoreTask *task, gint64 objects, gint64 clock_ms, char *text)
{
    g_free((char *)task->answer.text);
    g_free((char *)task->answer.version);
    task->answer = (LhStoreAnswer){
        .objects = objects, .bytes = -1, .clock_ms = clock_ms, .text = text};
}

void lh_task_answer_version(LhStoreTask *task, char *version)
{
    g_free((char *)task->answer.version);
    task->answer.version = version;
}

static void do_work(LhStoreTask *task)
{
    lh_task_answer(task, -1, -1, NULL);
    if (task->job.work == LH_STORE_WALK) {
        task->page = g_array_new(FALSE, FALSE, sizeof(LhStoreObject));
        g_array_set_clear_func(task->page, clear_object);
    }
    if (!task->backend->v->work(task->backend, task, &task->error))
        return;
    if (task->job.work == LH_STORE_WALK && send_page(task, &task->error)) {
        task->answer.objects = task->sum_objects;
        task->answer.bytes = task->sum_bytes;
    }
}

static gint compare_entries(gconstpointer a, gconstpointer b)
{
    return strcmp(((const LhStoreEntry *)a)->name, ((const LhStoreEntry *)b)->name);
}

static void do_list(LhStoreTask *task)
{
    task->entries = g_array_new(FALSE, FALSE, sizeof(LhStoreEntry));
    g_array_set_clear_func(task->entries, clear_entry);
    if (task->backend->v->list(task->backend, task, &task->error))
        g_array_sort(task->entries, compare_entries);
}

static void do_fetch(LhStoreTask *task)
{
    task->next_progress_us = g_get_monotonic_time() + PROGRESS_US;
    task->sha256 = task->backend->v->fetch(task->backend, task, &task->error);
}

/* ---- loop side ---- */

/* Cancelled after its last byte: nobody will hear that the file is there. */
static void remove_unwanted(LhStoreTask *task)
{
    if (task->is_fetch && task->sha256 != NULL)
        unlink(task->to_path);
}

static void finish(gpointer data)
{
    LhStoreTask *task = data;
    if (lh_task_cancelled(task)) {
        remove_unwanted(task);
        task_unref(task);
        return;
    }
    g_hash_table_remove(task->store->tasks, &task->id);
    gboolean ok = task->error == NULL;
    if (task->is_work)
        task->done_func(ok ? &task->answer : NULL, task->error, task->data);
    else if (task->is_fetch)
        task->fetch_func(ok ? task->bytes : 0, ok ? task->sha256 : NULL, task->error, task->data);
    else
        task->list_func(ok ? (const LhStoreEntry *)(gpointer)task->entries->data : NULL,
                        ok ? task->entries->len : 0, task->error, task->data);
    task_unref(task);
}

/* Never delivered: the store is being freed, which has cancelled it. */
static void drop_finish(gpointer data)
{
    remove_unwanted(data);
    task_unref(data);
}

static void work(gpointer data)
{
    LhStoreTask *task = data;
    if (task->refused != NULL)
        task->error = g_error_copy(task->refused);
    else if (!lh_task_cancelled(task))
        task->is_work ? do_work(task) : task->is_fetch ? do_fetch(task) : do_list(task);
    lh_workers_post(task->store->workers, finish, task, drop_finish);
}

/* @request: NULL: it is no work on a root. */
static LhStoreTask *task_new(Store *store, const char *uri, const LhStoreRequest *request,
                             gpointer data)
{
    LhStoreTask *task = g_new0(LhStoreTask, 1);
    const char *const *roots = (const char *const *)store->roots;
    task->refs = 1;
    g_mutex_init(&task->mutex);
    g_cond_init(&task->taken);
    task->store = store;
    task->id = store->next_id++;
    task->uri = g_strdup(uri);
    task->data = data;
    task->backend = g_str_has_prefix(uri, LH_S3_SCHEME) ? store->s3 : store->file;
    if (request != NULL)
        lh_store_work_permitted(request->work, uri, roots, &task->refused);
    else
        lh_store_uri_permitted(uri, roots, &task->refused);
    return task;
}

static LhStoreOp task_start(LhStoreTask *task)
{
    Store *store = task->store;
    LhStoreOp id = task->id;
    task->job = (LhStoreJob){
        .uri = task->uri,
        .root = lh_store_root_of(task->uri, (const char *const *)store->roots),
        .work = task->job.work,
        .text = task->to_write,
        .over = task->over,
        .known = task->job.known,
        .name = task->name,
        .to_path = task->to_path,
        .seed = (guint32)lh_random(store->env),
    };
    g_hash_table_insert(store->tasks, &task->id, task);
    lh_workers_run(store->workers, work, task_ref(task));
    return id;
}

static LhStoreOp store_list(LhObjectStore *base, const char *uri, LhStoreListFunc func,
                            gpointer data)
{
    LhStoreTask *task = task_new((Store *)base, uri, NULL, data);
    task->list_func = func;
    return task_start(task);
}

static LhStoreOp store_fetch(LhObjectStore *base, const char *uri, const char *name,
                             const char *to_path, LhStoreProgressFunc progress,
                             LhStoreFetchFunc func, gpointer data)
{
    LhStoreTask *task = task_new((Store *)base, uri, NULL, data);
    task->is_fetch = TRUE;
    task->name = g_strdup(name);
    task->to_path = g_strdup(to_path);
    task->progress_func = progress;
    task->fetch_func = func;
    if (task->refused == NULL && !lh_relative_path_valid(name))
        g_set_error(&task->refused, LH_ERROR, LH_ERR_INVALID,
                    "%s: \"%s\" is not a name of a file below it", uri, name);
    return task_start(task);
}

static LhStoreOp store_work(LhObjectStore *base, const LhStoreRequest *request,
                            LhStorePageFunc page, LhStoreDoneFunc done, gpointer data)
{
    LhStoreTask *task = task_new((Store *)base, request->uri, request, data);
    task->is_work = TRUE;
    task->job.work = request->work;
    task->job.known = request->known;
    task->name = g_strdup(request->name);
    task->to_write = g_strdup(request->text);
    task->over = g_strdup(request->over);
    task->page_func = page;
    task->done_func = done;
    return task_start(task);
}

static void cancel(LhStoreTask *task)
{
    g_mutex_lock(&task->mutex);
    g_atomic_int_set(&task->cancelled, 1);
    g_cond_signal(&task->taken);
    g_mutex_unlock(&task->mutex);
    if (task->backend->v->wake != NULL)
        task->backend->v->wake(task->backend, task);
}

static void store_cancel(LhObjectStore *base, LhStoreOp id)
{
    Store *store = (Store *)base;
    LhStoreTask *task = g_hash_table_lookup(store->tasks, &id);
    if (task == NULL)
        return;
    cancel(task);
    g_hash_table_remove(store->tasks, &id);
}

static void store_guard(LhObjectStore *base, LhStoreGuardFunc may, gpointer data)
{
    Store *store = (Store *)base;
    store->may = may;
    store->may_data = data;
}

static void store_free(LhObjectStore *base)
{
    Store *store = (Store *)base;
    GHashTableIter iter;
    gpointer task;
    g_hash_table_iter_init(&iter, store->tasks);
    while (g_hash_table_iter_next(&iter, NULL, &task))
        cancel(task);
    lh_workers_free(store->workers);
    g_hash_table_unref(store->tasks);
    store->file->v->free(store->file);
    store->s3->v->free(store->s3);
    g_strfreev(store->roots);
    g_free(store);
}

/* ---- the interface ---- */

LhStoreOp lh_store_list(LhObjectStore *store, const char *uri, LhStoreListFunc func, gpointer data)
{
    return store->v->list(store, uri, func, data);
}

LhStoreOp lh_store_fetch(LhObjectStore *store, const char *uri, const char *name,
                         const char *to_path, LhStoreProgressFunc progress, LhStoreFetchFunc func,
                         gpointer data)
{
    return store->v->fetch(store, uri, name, to_path, progress, func, data);
}

LhStoreOp lh_store_walk(LhObjectStore *store, const char *root, LhStorePageFunc page,
                        LhStoreDoneFunc done, gpointer data)
{
    const LhStoreRequest request = {.work = LH_STORE_WALK, .uri = root};
    return store->v->work(store, &request, page, done, data);
}

LhStoreOp lh_store_erase(LhObjectStore *store, const char *uri, LhStoreDoneFunc done, gpointer data)
{
    const LhStoreRequest request = {.work = LH_STORE_ERASE, .uri = uri};
    return store->v->work(store, &request, NULL, done, data);
}

LhStoreOp lh_store_erase_flat(LhObjectStore *store, const char *uri, const LhStoreKnown *known,
                              LhStoreDoneFunc done, gpointer data)
{
    const LhStoreRequest request = {.work = LH_STORE_ERASE_FLAT, .uri = uri, .known = *known};
    return store->v->work(store, &request, NULL, done, data);
}

LhStoreOp lh_store_read(LhObjectStore *store, const char *root, const char *name,
                        LhStoreDoneFunc done, gpointer data)
{
    const LhStoreRequest request = {.work = LH_STORE_READ, .uri = root, .name = name};
    return store->v->work(store, &request, NULL, done, data);
}

LhStoreOp lh_store_write(LhObjectStore *store, const char *root, const char *name, const char *text,
                         const char *over, LhStoreDoneFunc done, gpointer data)
{
    const LhStoreRequest request = {
        .work = LH_STORE_WRITE, .uri = root, .name = name, .text = text, .over = over};
    return store->v->work(store, &request, NULL, done, data);
}

LhStoreOp lh_store_clock(LhObjectStore *store, const char *root, LhStoreDoneFunc done,
                         gpointer data)
{
    const LhStoreRequest request = {.work = LH_STORE_CLOCK, .uri = root};
    return store->v->work(store, &request, NULL, done, data);
}

void lh_store_set_guard(LhObjectStore *store, LhStoreGuardFunc may, gpointer data)
{
    if (store->v->guard != NULL)
        store->v->guard(store, may, data);
}

void lh_store_cancel(LhObjectStore *store, LhStoreOp *op)
{
    if (*op != 0)
        store->v->cancel(store, *op);
    *op = 0;
}

void lh_store_free(LhObjectStore *store)
{
    if (store != NULL)
        store->v->free(store);
}

char **lh_store_roots(const char *const *roots, GError **error)
{
    g_autoptr(GPtrArray) normal = g_ptr_array_new_with_free_func(g_free);
    for (gsize i = 0; roots != NULL && roots[i] != NULL; i++) {
        char *root = g_str_has_suffix(roots[i], "/") ? g_strdup(roots[i])
                                                     : g_strconcat(roots[i], "/", NULL);
        g_ptr_array_add(normal, root);
        g_autofree char *path = lh_store_uri_path(root);
        if (path == NULL) {
            g_set_error(error, LH_ERROR, LH_ERR_INVALID,
                        "%s: must be file:///dir/ or s3://bucket/key/", roots[i]);
            return NULL;
        }
        g_auto(LhS3Place) place = {0};
        if (g_str_has_prefix(root, LH_S3_SCHEME) && !lh_s3_place_of(root, &place, error))
            return NULL;
    }
    g_ptr_array_add(normal, NULL);
    return (char **)g_ptr_array_free(g_steal_pointer(&normal), FALSE);
}

LhObjectStore *lh_objectstore_new_tuned(LhEnv *env, const LhObjectStoreOptions *options,
                                        const LhS3Tuning *tuning, GError **error)
{
    static const LhObjectStoreVtable vtable = {
        .list = store_list,
        .fetch = store_fetch,
        .work = store_work,
        .cancel = store_cancel,
        .guard = store_guard,
        .free = store_free,
    };
    g_auto(GStrv) roots = lh_store_roots(options->roots, error);
    if (roots == NULL) {
        g_prefix_error(error, "objectStore.roots: ");
        return NULL;
    }
    LhStoreBackend *s3 = lh_store_s3_new(options, tuning, error);
    if (s3 == NULL)
        return NULL;
    (void)lh_error_quark(); /* before there are threads: GLib makes a quark without a lock */
    Store *store = g_new0(Store, 1);
    store->base.v = &vtable;
    store->env = env;
    store->roots = g_steal_pointer(&roots);
    store->workers = lh_workers_new(WORKERS);
    store->file = lh_store_file_new();
    store->s3 = s3;
    store->tasks = g_hash_table_new_full(g_int64_hash, g_int64_equal, NULL, task_unref);
    store->next_id = 1;
    return &store->base;
}

LhObjectStore *lh_objectstore_new(LhEnv *env, const LhObjectStoreOptions *options, GError **error)
{
    return lh_objectstore_new_tuned(env, options, &lh_s3_tuning_default, error);
}

/* ---- settings ---- */

static const char *setting(const LhConfig *config, const char *path)
{
    const char *value = lh_config_string(config, path);
    return value != NULL && *value != '\0' ? value : NULL;
}

gboolean lh_objectstore_options_read(const LhConfig *config, LhObjectStoreOptions *out,
                                     GError **error)
{
    const LhObjectStoreOptions read = {
        .roots = lh_config_list(config, "objectStore.roots"),
        .endpoint = setting(config, "objectStore.endpoint"),
        .region = setting(config, "objectStore.region"),
        .addressing = setting(config, "objectStore.addressing"),
        .access_key_file = setting(config, "objectStore.accessKeyFile"),
        .secret_key_file = setting(config, "objectStore.secretKeyFile"),
        .cacert = setting(config, "objectStore.cacert"),
    };
    g_autoptr(GError) local = NULL;
    g_auto(GStrv) roots = lh_store_roots(read.roots, &local);
    const char *path = "objectStore.roots";
    if (roots != NULL)
        path = lh_store_s3_options_check(&read, &local);
    if (local != NULL) {
        g_set_error(error, LH_ERROR, LH_ERR_INVALID, "%s: %s", lh_config_source(config, path),
                    local->message);
        return FALSE;
    }
    *out = read;
    return TRUE;
}
