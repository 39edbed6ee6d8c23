/*
 * The world: its beginning and its end, waiting, and etcd as one who may do anything. Processes are
 * in harness_process.c, HTTP in harness_http.c, what the mirror shows in harness_view.c.
 */
#include "harness.h"

#include "base/log.h"
#include "etcd/list.h"
#include "etcd/watcher.h"
#include "harness_internal.h"

#include <errno.h>
#include <glib/gstdio.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#define TICK_MS 50

/* ---- beginning ---- */

static void world_mark(World *world)
{
    /* Settings of whoever runs the tests. */
    static const char *const not_ours[] = {"LEASEHOLD_SERVER",   "LEASEHOLD_TOKEN",
                                           "LEASEHOLD_CACERT",   "LEASEHOLD_CERT",
                                           "LEASEHOLD_KEY",      "AWS_PROFILE",
                                           "AWS_CA_BUNDLE",      "AWS_ENDPOINT_URL",
                                           "AWS_ACCESS_KEY_ID",  "AWS_REGION",
                                           "AWS_DEFAULT_REGION", "AWS_SECRET_ACCESS_KEY",
                                           "AWS_SESSION_TOKEN",  "AWS_SHARED_CREDENTIALS_FILE"};
    static guint number;
    world->mark = g_strdup_printf("%d-%u", (int)getpid(), ++number);
    g_setenv(MARK, world->mark, TRUE);
    g_setenv("ETCDCTL_API", "3", TRUE);
    for (guint i = 0; i < G_N_ELEMENTS(not_ours); i++) {
        g_unsetenv(not_ours[i]);
    }
    /* Orphans of our children become our children: they can be found, and waited for. */
    prctl(PR_SET_CHILD_SUBREAPER, 1);
}

static gboolean is_synced(World *world, gpointer data)
{
    return lh_mirror_synced(world->mirror);
}

World *world_new(void)
{
    return world_new_with(&(WorldOptions){0});
}

World *world_new_with(const WorldOptions *options)
{
    g_autoptr(GError) error = NULL;
    World *world = g_new0(World, 1);
    lh_log_setup(LH_LOG_ERROR, LH_LOG_TEXT);
    world_mark(world);
    world->procs = g_ptr_array_new_with_free_func(proc_free);
    world->dir = g_dir_make_tmp("leasehold-test-XXXXXX", &error);
    g_assert_no_error(error);
    etcd_start(world, options);
    world->objects = g_build_filename(world->dir, "objects", NULL);
    g_assert(g_mkdir(world->objects, 0755) == 0);
    world->env = lh_env_glib_new(NULL);
    world->now_ms = lh_wall_ms(world->env);
    world->client = etcd_client_as(world, options->users ? "root" : NULL);
    world->mirror = lh_mirror_new(world->env, world->client, PREFIX);
    lh_mirror_start(world->mirror);
    world_wait(world, is_synced, NULL, "the test's own mirror follows etcd");
    return world;
}

/* ---- end ---- */

static void remove_tree(const char *path)
{
    gboolean link = g_file_test(path, G_FILE_TEST_IS_SYMLINK);
    g_autoptr(GDir) dir = link ? NULL : g_dir_open(path, 0, NULL);
    const char *name;
    while (dir != NULL && (name = g_dir_read_name(dir)) != NULL) {
        g_autofree char *child = g_build_filename(path, name, NULL);
        remove_tree(child);
    }
    g_remove(path);
}

/* Nothing may outlive its world; what does is killed by its pid, and told. */
static void end_leftovers(World *world, GString *wrong)
{
    g_autoptr(GArray) pids = world_pids(world);
    for (guint i = 0; i < pids->len; i++) {
        pid_t pid = g_array_index(pids, pid_t, i);
        g_string_append_printf(wrong, "process %d was left behind; ", (int)pid);
        kill(pid, SIGKILL);
    }
}

char *world_free(World *world)
{
    GString *wrong = g_string_new(NULL);
    if (world == NULL) {
        return g_string_free(wrong, TRUE);
    }
    procs_end(world, wrong);
    lh_mirror_free(world->mirror);
    lh_etcd_free(world->client);
    /* Afterwards: it knows the members. */
    end_leftovers(world, wrong);
    etcd_end(world);
    if (wrong->len > 0) {
        g_autofree char *tails = procs_tails(world);
        g_printerr("%s", tails);
    }
    g_ptr_array_unref(world->procs);
    lh_env_free(world->env);
    remove_tree(world->dir);
    g_free(world->dir);
    g_free(world->objects);
    g_free(world->mark);
    g_free(world);
    return g_string_free(wrong, wrong->len == 0);
}

int world_setup(void **state)
{
    *state = world_new();
    return 0;
}

int world_teardown(void **state)
{
    g_autofree char *wrong = world_free(*state);
    *state = NULL;
    if (wrong != NULL) {
        g_printerr("# at the end: %s\n", wrong);
    }
    return wrong == NULL ? 0 : -1;
}

void world_fail(World *world, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    g_autofree char *text = g_strdup_vprintf(format, args);
    va_end(args);
    g_autofree char *tails = procs_tails(world);
    g_autofree char *shown = mirror_text(world);
    g_printerr("%s%s", tails, shown);
    print_error("%s\n", text);
    _fail(__FILE__, __LINE__);
    abort();
}

/* ---- waiting ---- */

static gboolean on_deadline(gpointer data)
{
    *(gboolean *)data = TRUE;
    return G_SOURCE_REMOVE;
}

static gboolean on_tick(gpointer data)
{
    return G_SOURCE_CONTINUE;
}

static gboolean until(World *world, Check check, gpointer data, gint64 within_ms, guint tick_ms)
{
    gboolean over = FALSE, met;
    guint deadline = g_timeout_add((guint)within_ms, on_deadline, &over);
    guint tick = tick_ms > 0 ? g_timeout_add(tick_ms, on_tick, NULL) : 0;
    while (!(met = check(world, data)) && !over) {
        g_main_context_iteration(NULL, TRUE);
    }
    if (!over) {
        g_source_remove(deadline);
    }
    if (tick > 0) {
        g_source_remove(tick);
    }
    return met;
}

gboolean world_until(World *world, Check check, gpointer data, gint64 within_ms)
{
    return until(world, check, data, within_ms, 0);
}

void world_wait(World *world, Check check, gpointer data, const char *format, ...)
{
    if (until(world, check, data, WAIT_MS, 0)) {
        return;
    }
    va_list args;
    va_start(args, format);
    g_autofree char *text = g_strdup_vprintf(format, args);
    va_end(args);
    world_fail(world, "not within %d s: %s", WAIT_MS / 1000, text);
}

void world_poll(World *world, Check check, gpointer data, const char *format, ...)
{
    if (until(world, check, data, WAIT_MS, TICK_MS)) {
        return;
    }
    va_list args;
    va_start(args, format);
    g_autofree char *text = g_strdup_vprintf(format, args);
    va_end(args);
    world_fail(world, "not within %d s: %s", WAIT_MS / 1000, text);
}

static gboolean has_reached(World *world, gpointer data)
{
    return lh_mirror_revision(world->mirror) >= *(gint64 *)data;
}

void world_catch_up(World *world, gint64 revision)
{
    world_wait(world, has_reached, &revision, "the mirror is at revision %" G_GINT64_FORMAT,
               revision);
}

/* ---- writing ---- */

typedef struct {
    gboolean done;
    gint64 revision;
    char *error;
} Answer;

static void on_txn(const LhTxnReply *reply, const GError *error, gpointer data)
{
    Answer *answer = data;
    answer->done = TRUE;
    answer->revision = reply != NULL ? reply->header.revision : 0;
    answer->error = error != NULL ? g_strdup(error->message) : NULL;
}

static gboolean is_done(World *world, gpointer data)
{
    return *(gboolean *)data;
}

static gint64 write_op(World *world, const LhTxnOp *op)
{
    const LhTxnRequest txn = {.success = op, .n_success = 1};
    Answer answer = {0};
    lh_etcd_txn(world->client, &txn, on_txn, &answer);
    world_wait(world, is_done, &answer.done, "etcd answers a write");
    if (answer.error != NULL) {
        world_fail(world, "%s: %s", op->key, answer.error);
    }
    return answer.revision;
}

gint64 world_put_bytes(World *world, const char *key, const void *value, gsize len)
{
    g_autofree char *whole = g_strconcat(PREFIX, key, NULL);
    const LhTxnOp op = {.type = LH_TXN_PUT, .key = whole, .value = value, .value_len = len};
    return write_op(world, &op);
}

gint64 world_put(World *world, const char *key, const char *value)
{
    return world_put_bytes(world, key, value, strlen(value));
}

gint64 world_putf(World *world, const char *key, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    g_autofree char *value = g_strdup_vprintf(format, args);
    va_end(args);
    return world_put(world, key, value);
}

gint64 world_delete(World *world, const char *key)
{
    g_autofree char *whole = g_strconcat(PREFIX, key, NULL);
    const LhTxnOp op = lh_txn_delete(whole);
    return write_op(world, &op);
}

/* ---- reading ---- */

static void kv_free(gpointer data)
{
    Kv *kv = data;
    g_free(kv->key);
    g_free(kv->value);
    g_free(kv);
}

static Kv *kv_copy(const LhKv *from, gboolean is_delete)
{
    Kv *kv = g_new0(Kv, 1);
    *kv = (Kv){
        .key = g_strdup(from->key + strlen(PREFIX)),
        .is_delete = is_delete,
        .value = is_delete ? NULL : g_malloc(from->value_len + 1),
        .len = is_delete ? 0 : from->value_len,
        .create_rev = from->create_rev,
        .mod_rev = from->mod_rev,
        .lease = from->lease,
    };
    if (!is_delete) {
        memcpy(kv->value, from->value, kv->len);
        kv->value[kv->len] = '\0';
    }
    return kv;
}

typedef struct {
    gboolean done;
    GPtrArray *kvs;
    gint64 revision, until; /* what is known; what is wanted */
    char *error;
} Reading;

static void on_page(const LhKv *kvs, gsize n, gpointer data)
{
    for (gsize i = 0; i < n; i++) {
        g_ptr_array_add(((Reading *)data)->kvs, kv_copy(&kvs[i], FALSE));
    }
}

static void on_listed(const LhEtcdHeader *header, const GError *error, gpointer data)
{
    Reading *reading = data;
    reading->done = TRUE;
    reading->revision = header != NULL ? header->revision : 0;
    reading->error = error != NULL ? g_strdup(error->message) : NULL;
}

static void on_restart(gpointer data)
{
    g_ptr_array_set_size(((Reading *)data)->kvs, 0);
}

static GPtrArray *list(World *world, const char *prefix, gint64 *revision)
{
    static const LhListFuncs funcs = {on_restart, on_page, on_listed};
    g_autofree char *whole = g_strconcat(PREFIX, prefix, NULL);
    Reading reading = {.kvs = g_ptr_array_new_with_free_func(kv_free)};
    lh_list_start(world->env, world->client, whole, 0, 0, &funcs, &reading);
    world_wait(world, is_done, &reading.done, "etcd answers a list");
    if (reading.error != NULL) {
        world_fail(world, "list of %s: %s", whole, reading.error);
    }
    if (revision != NULL) {
        *revision = reading.revision;
    }
    return reading.kvs;
}

GPtrArray *world_range(World *world, const char *prefix)
{
    return list(world, prefix, NULL);
}

gint64 world_revision(World *world)
{
    gint64 revision = 0;
    g_ptr_array_unref(list(world, "leaders/", &revision));
    return revision;
}

static void on_opened(gpointer data)
{
}

static void on_events(const LhEtcdEvent *events, gsize n, gint64 revision, gpointer data)
{
    Reading *reading = data;
    for (gsize i = 0; i < n; i++) {
        g_ptr_array_add(reading->kvs, kv_copy(&events[i].kv, events[i].is_delete));
    }
    reading->revision = revision;
}

static void on_lost(gint64 compact_revision, gpointer data)
{
    ((Reading *)data)->error = g_strdup("the history is not whole any more");
}

static gboolean has_history(World *world, gpointer data)
{
    const Reading *reading = data;
    return reading->revision >= reading->until || reading->error != NULL;
}

/* The end is marked by a key of our own: a watch says nothing of revisions without events. */
GPtrArray *world_history(World *world, gint64 after_revision)
{
    static const LhWatcherFuncs funcs = {on_opened, on_events, NULL, on_lost};
    g_autofree char *end = lh_etcd_prefix_end(PREFIX);
    const LhWatcherOptions options = {
        .key = PREFIX, .range_end = end, .start_revision = after_revision + 1};
    Reading reading = {.kvs = g_ptr_array_new_with_free_func(kv_free)};
    reading.until = world_put(world, "events/test", "{}");
    LhWatcher *watcher = lh_watcher_start(world->env, world->client, &options, &funcs, &reading);
    world_wait(world, has_history, &reading, "etcd tells its history");
    lh_watcher_free(watcher);
    if (reading.error != NULL) {
        world_fail(world, "%s", reading.error);
    }
    world_delete(world, "events/test");
    return reading.kvs;
}
