/*
 * The cache pool's work on real files, a real clock and a fake etcd, for tests. Every wait has a
 * deadline.
 */
#pragma once

#include "agent/cache_work.h"
#include "base/errors.h"
#include "base/log.h"
#include "tests/fakes/fake_etcd.h"

#include <glib/gstdio.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define CAPACITY 10000

typedef struct {
    char *dir; /* source/, data/ */
    char *root;
    LhEnv *env;
    FakeEtcd *server;
    LhEtcd *etcd;
    LhObjectStore *objects;
    LhHooks *hooks;
    LhMetrics *metrics;
    LhCacheWork *work;
    LhCacheWorkOptions options;
    GPtrArray *answers; /* "ready a http://…", "failed a why", "released a" */
    gint64 progress;
} Fixture;

static inline void on_progress(const char *item, gint64 bytes, gpointer data)
{
    (void)item;
    ((Fixture *)data)->progress = bytes;
}

static inline void on_ready(const char *item, const char *url, gpointer data)
{
    g_ptr_array_add(((Fixture *)data)->answers, g_strdup_printf("ready %s %s", item, url));
}

static inline void on_finished(const char *item, gpointer data)
{
    g_ptr_array_add(((Fixture *)data)->answers, g_strdup_printf("finished %s", item));
}

static inline void on_failed(const char *item, const GError *error, gpointer data)
{
    g_ptr_array_add(((Fixture *)data)->answers,
                    g_strdup_printf("failed %s %s", item, error->message));
}

static inline void on_released(const char *item, const GError *error, gpointer data)
{
    g_ptr_array_add(((Fixture *)data)->answers,
                    g_strdup_printf("released %s%s%s", item, error != NULL ? " " : "",
                                    error != NULL ? error->message : ""));
}

static inline void quiet(const char *line, gpointer data)
{
    (void)data;
    if (g_getenv("LEASEHOLD_TEST_LOG") != NULL)
        print_message("%s\n", line);
}

static inline LhAgentWork *base(Fixture *f)
{
    return lh_cache_work_base(f->work);
}

static inline void open_work(Fixture *f)
{
    static const LhWorkFuncs funcs = {
        .progress = on_progress,
        .ready = on_ready,
        .finished = on_finished,
        .failed = on_failed,
        .released = on_released,
    };
    g_autoptr(GError) error = NULL;
    f->metrics = lh_metrics_new();
    f->options.metrics = f->metrics;
    f->work = lh_cache_work_new(f->env, f->etcd, f->objects, f->hooks, &f->options, &error);
    if (f->work == NULL)
        fail_msg("%s", error->message);
    base(f)->v->attach(base(f), &funcs, f);
}

static inline void close_work(Fixture *f)
{
    lh_cache_work_free(f->work);
    lh_metrics_free(f->metrics);
    f->work = NULL;
}

static inline int setup(void **state)
{
    Fixture *f = g_new0(Fixture, 1);
    lh_log_set_sink(quiet, NULL);
    f->dir = g_dir_make_tmp("lh-cache-XXXXXX", NULL);
    f->root = g_strdup_printf("file://%s/source/", f->dir);
    f->env = lh_env_glib_new(NULL);
    f->server = fake_etcd_new(f->env, NULL);
    f->etcd = fake_etcd_connect(f->server, f->env, "agent");
    const char *const roots[] = {f->root, NULL};
    f->objects = lh_objectstore_new(f->env, &(LhObjectStoreOptions){.roots = roots}, NULL);
    f->hooks = lh_hooks_new(f->env);
    f->answers = g_ptr_array_new_with_free_func(g_free);
    g_autofree char *data = g_build_filename(f->dir, "data", NULL);
    f->options = (LhCacheWorkOptions){
        .prefix = "/leasehold/",
        .data_dir = g_strdup(data),
        .url = "http://n",
        .capacity_bytes = CAPACITY,
        .hook_timeout_ms = 10000,
    };
    open_work(f);
    *state = f;
    return 0;
}

static inline int teardown(void **state)
{
    Fixture *f = *state;
    if (f->work != NULL)
        close_work(f);
    lh_hooks_free(f->hooks);
    lh_store_free(f->objects);
    lh_etcd_free(f->etcd);
    fake_etcd_free(f->server);
    while (g_main_context_iteration(NULL, FALSE))
        ;
    lh_env_free(f->env);
    g_autofree char *command = g_strdup_printf("rm -rf '%s'", f->dir);
    assert_int_equal(system(command), 0);
    g_ptr_array_unref(f->answers);
    g_free((char *)f->options.data_dir);
    g_free(f->root);
    g_free(f->dir);
    g_free(f);
    lh_log_set_sink(NULL, NULL);
    return 0;
}

/* ---- helpers ---- */

static inline char *path_of(const Fixture *f, const char *rest)
{
    return g_build_filename(f->dir, rest, NULL);
}

static inline void write_file(const Fixture *f, const char *name, gsize bytes)
{
    g_autofree char *path = path_of(f, name);
    g_autofree char *parent = g_path_get_dirname(path);
    g_autofree char *data = g_strnfill(bytes, 'x');
    assert_int_equal(g_mkdir_with_parents(parent, 0755), 0);
    assert_true(g_file_set_contents(path, data, (gssize)bytes, NULL));
}

static inline gboolean exists(const Fixture *f, const char *name)
{
    g_autofree char *path = path_of(f, name);
    return g_file_test(path, G_FILE_TEST_EXISTS);
}

static inline guint entries_in(const Fixture *f, const char *name)
{
    g_autofree char *path = path_of(f, name);
    g_autoptr(GDir) dir = g_dir_open(path, 0, NULL);
    guint n = 0;
    while (dir != NULL && g_dir_read_name(dir) != NULL)
        n++;
    return n;
}

static inline void publish_as(Fixture *f, const char *snapshot, gint64 size, const char *uri,
                              const char *more)
{
    g_autofree char *key = g_strdup_printf("/leasehold/published/snapshots/%s", snapshot);
    g_autofree char *value = g_strdup_printf(
        "{\"service\":\"s\",\"startTime\":1,\"endTime\":2,\"maxOffset\":1,\"sizeBytes\":%" G_GINT64_FORMAT
        ",\"uri\":\"%s\"%s}",
        size, uri, more);
    fake_etcd_put(f->server, key, value, 0);
}

static inline char *uri_of(const Fixture *f, const char *snapshot)
{
    return g_strdup_printf("%s%s/", f->root, snapshot);
}

/* A snapshot of one file x of so many bytes, and one in a directory of 1 byte. */
static inline void publish(Fixture *f, const char *snapshot, gsize bytes)
{
    g_autofree char *x = g_strdup_printf("source/%s/x", snapshot);
    g_autofree char *y = g_strdup_printf("source/%s/d/y", snapshot);
    g_autofree char *uri = uri_of(f, snapshot);
    write_file(f, x, bytes - 1);
    write_file(f, y, 1);
    publish_as(f, snapshot, (gint64)bytes, uri, "");
}

static inline void load_from(Fixture *f, const char *item, const char *snapshot, gint64 size,
                             const char *uri)
{
    g_autofree char *name = g_strdup_printf("cache/node-00000000/%s", item);
    g_autofree char *value = g_strdup_printf(
        "{\"action\":\"load\",\"since\":1,\"controller\":\"c\",\"epoch\":1,"
        "\"rule\":\"r\",\"reason\":\"x\",\"set\":\"default\",\"snapshot\":\"%s\","
        "\"uri\":\"%s\",\"sizeBytes\":%" G_GINT64_FORMAT "}",
        snapshot, uri, size);
    g_autoptr(LhObject) object = lh_object_parse(LH_KIND_ASSIGNMENT, name, value, strlen(value), 1,
                                                 1, 0);
    if (!lh_object_known(object))
        fail_msg("%s", lh_object_error(object));
    guint before = f->answers->len;
    base(f)->v->load(base(f), item, (const LhAssignment *)object);
    assert_int_equal(f->answers->len, before); /* never inside the call */
}

static inline void load(Fixture *f, const char *item, const char *snapshot, gint64 size)
{
    g_autofree char *uri = uri_of(f, snapshot);
    load_from(f, item, snapshot, size, uri);
}

static inline void release(Fixture *f, const char *item)
{
    guint before = f->answers->len;
    base(f)->v->release(base(f), item);
    assert_int_equal(f->answers->len, before);
}

/* The n-th answer from now on begins with @expected. */
static inline void expect_answer(Fixture *f, const char *expected)
{
    gint64 deadline = g_get_monotonic_time() + 20 * G_USEC_PER_SEC;
    while (f->answers->len == 0 && g_get_monotonic_time() < deadline)
        g_main_context_iteration(NULL, FALSE);
    if (f->answers->len == 0)
        fail_msg("no answer; expected \"%s\"", expected);
    const char *answer = g_ptr_array_index(f->answers, 0);
    if (!g_str_has_prefix(answer, expected))
        fail_msg("\"%s\", expected \"%s\"", answer, expected);
    g_ptr_array_remove_index(f->answers, 0);
}

static inline void expect_failed(Fixture *f, const char *item, const char *why)
{
    g_autofree char *prefix = g_strdup_printf("failed %s ", item);
    gint64 deadline = g_get_monotonic_time() + 20 * G_USEC_PER_SEC;
    while (f->answers->len == 0 && g_get_monotonic_time() < deadline)
        g_main_context_iteration(NULL, FALSE);
    assert_int_equal(f->answers->len, 1);
    const char *answer = g_ptr_array_index(f->answers, 0);
    if (!g_str_has_prefix(answer, prefix) || strstr(answer, why) == NULL)
        fail_msg("\"%s\", expected \"%s…%s\"", answer, prefix, why);
    g_ptr_array_remove_index(f->answers, 0);
    assert_int_equal(entries_in(f, "data/loading"), 0); /* nothing half-loaded stays */
}

static inline gint64 copied(Fixture *f)
{
    g_free(lh_metrics_text(f->metrics)); /* collects */
    return (gint64)lh_metrics_get(f->metrics, "agent_copied_bytes_total", NULL);
}

static inline void loaded(Fixture *f, const char *item, const char *snapshot, gint64 size)
{
    load(f, item, snapshot, size);
    g_autofree char *expected = g_strdup_printf("ready %s http://n/v1/files/%s/", item, snapshot);
    expect_answer(f, expected);
}

static inline void assert_warm(Fixture *f, const char *expected)
{
    g_auto(GStrv) names = base(f)->v->warm(base(f));
    g_autofree char *joined = g_strjoinv(" ", names);
    assert_string_equal(joined, expected);
}

static inline void restart(Fixture *f)
{
    close_work(f);
    open_work(f);
}

static inline void await(gboolean (*done)(const Fixture *f), const Fixture *f)
{
    gint64 deadline = g_get_monotonic_time() + 20 * G_USEC_PER_SEC;
    while (!done(f) && g_get_monotonic_time() < deadline)
        g_main_context_iteration(NULL, FALSE);
    assert_true(done(f));
}

static inline gboolean trash_is_empty(const Fixture *f)
{
    return entries_in(f, "data/trash") == 0;
}
