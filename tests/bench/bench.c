/*
 * The beginning and the end of a run, and waiting. Must not leave a process or a directory behind,
 * whatever way the run ends.
 */
#include "bench.h"

#include "base/log.h"
#include "etcd/transport_grpc.h"

#include <glib-unix.h>
#include <glib/gstdio.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

Bench bench;

static GArray *children; /* GPid */
static gboolean interrupted;
static GDestroyNotify at_end;
static gpointer at_end_data;

static gboolean on_interrupt(gpointer data)
{
    interrupted = TRUE;
    return G_SOURCE_CONTINUE;
}

/* ---- beginning and end ---- */

void bench_begin(const Sizes *sizes)
{
    g_autoptr(GError) error = NULL;

    bench.sizes = *sizes;
    bench.table = table_new();
    children = g_array_new(FALSE, FALSE, sizeof(GPid));
    g_unix_signal_add(SIGINT, on_interrupt, NULL);
    g_unix_signal_add(SIGTERM, on_interrupt, NULL);
    lh_log_setup(LH_LOG_ERROR, LH_LOG_TEXT);
    bench.dir = g_dir_make_tmp("leasehold-bench-XXXXXX", &error);
    bench_must(error, "a directory of its own");
}

void bench_connect(void)
{
    static const char *const args[] = {"--quota-backend-bytes=8589934592", NULL};
    const char *endpoints[] = {NULL, NULL};
    const LhEtcdOptions options = {.endpoints = endpoints};
    g_autoptr(GError) error = NULL;

    bench.etcd = etcd_process_new(args, &error);
    bench_must(error, "etcd");
    bench.env = lh_env_glib_new(NULL);
    endpoints[0] = etcd_process_endpoint(bench.etcd);
    bench.client = lh_etcd_grpc_new(&options, NULL, &error);
    bench_must(error, "the client");
    bench_say("etcd %s on %s, data in %s", etcd_process_version(bench.etcd), endpoints[0],
              etcd_process_dir(bench.etcd));
}

void bench_remove(const char *path)
{
    gboolean link = g_file_test(path, G_FILE_TEST_IS_SYMLINK);
    g_autoptr(GDir) dir = link ? NULL : g_dir_open(path, 0, NULL);
    const char *name;

    while (dir != NULL && (name = g_dir_read_name(dir)) != NULL) {
        g_autofree char *child = g_build_filename(path, name, NULL);
        bench_remove(child);
    }
    g_remove(path);
}

static void end_all(void)
{
    for (guint i = 0; children != NULL && i < children->len; i++) {
        GPid pid = g_array_index(children, GPid, i);
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
    }
    g_clear_pointer(&children, g_array_unref);
    if (at_end != NULL)
        g_steal_pointer (&at_end)(at_end_data);
    g_clear_pointer(&bench.etcd, etcd_process_free);
    if (bench.dir != NULL)
        bench_remove(bench.dir);
    g_clear_pointer(&bench.dir, g_free);
}

/* With what has been measured so far. Without exit's handlers: the client's threads still run, and may be
 * in the midst of anything. */
G_NORETURN static void end_now(int code)
{
    end_all();
    table_sort(bench.table);
    table_print(bench.table);
    fflush(NULL);
    _exit(code);
}

void bench_fail(const char *format, ...)
{
    g_autofree char *text = NULL;
    va_list args;

    va_start(args, format);
    text = g_strdup_vprintf(format, args);
    va_end(args);
    g_printerr("tools/bench: %s\n", text);
    end_now(1);
}

void bench_finish(void)
{
    end_now(0);
}

void bench_must(const GError *error, const char *what)
{
    if (error != NULL)
        bench_fail("%s: %s", what, error->message);
}

void bench_say(const char *format, ...)
{
    g_autofree char *text = NULL;
    va_list args;

    va_start(args, format);
    text = g_strdup_vprintf(format, args);
    va_end(args);
    g_printerr("%s\n", text);
}

void bench_at_end(GDestroyNotify func, gpointer data)
{
    at_end = func;
    at_end_data = data;
}

void bench_remember_child(GPid pid)
{
    g_array_append_val(children, pid);
}

void bench_forget_child(GPid pid)
{
    for (guint i = 0; i < children->len; i++)
        if (g_array_index(children, GPid, i) == pid) {
            g_array_remove_index_fast(children, i);
            return;
        }
}

/* ---- waiting ---- */

static gboolean on_deadline(gpointer data)
{
    *(gboolean *)data = TRUE;
    return G_SOURCE_CONTINUE;
}

static gboolean on_tick(gpointer data)
{
    return G_SOURCE_CONTINUE;
}

static gboolean until(Check check, gpointer data, guint every_ms, gint64 within_ms)
{
    gboolean over = FALSE, met;
    guint deadline = g_timeout_add((guint)within_ms, on_deadline, &over);
    guint tick = every_ms > 0 ? g_timeout_add(every_ms, on_tick, NULL) : 0;

    while (!(met = check(data)) && !over) {
        g_main_context_iteration(NULL, TRUE);
        if (interrupted) {
            g_printerr("tools/bench: interrupted\n");
            end_now(130);
        }
    }
    g_source_remove(deadline);
    if (tick > 0)
        g_source_remove(tick);
    return met;
}

void bench_wait(Check check, gpointer data, gint64 within_ms, const char *format, ...)
{
    va_list args;

    if (until(check, data, 0, within_ms))
        return;
    va_start(args, format);
    g_autofree char *text = g_strdup_vprintf(format, args);
    va_end(args);
    bench_fail("not within %" G_GINT64_FORMAT " s: %s", within_ms / 1000, text);
}

typedef struct {
    Check check;
    guint64 (*progress)(gpointer data);
    gpointer data;
    guint64 at;
} Going;

static gboolean is_over_or_went_on(gpointer data)
{
    const Going *going = data;

    return going->check(going->data) || going->progress(going->data) != going->at;
}

void bench_wait_going(Check check, guint64 (*progress)(gpointer data), gpointer data,
                      gint64 within_ms, const char *format, ...)
{
    Going going = {check, progress, data, 0};
    va_list args;

    while (!check(data)) {
        going.at = progress(data);
        if (until(is_over_or_went_on, &going, 0, within_ms))
            continue;
        va_start(args, format);
        g_autofree char *text = g_strdup_vprintf(format, args);
        va_end(args);
        bench_fail("stuck for %" G_GINT64_FORMAT " s at %" G_GUINT64_FORMAT ": %s",
                   within_ms / 1000, going.at, text);
    }
}

void bench_poll(Check check, gpointer data, guint every_ms, gint64 within_ms, const char *format,
                ...)
{
    va_list args;

    if (until(check, data, every_ms, within_ms))
        return;
    va_start(args, format);
    g_autofree char *text = g_strdup_vprintf(format, args);
    va_end(args);
    bench_fail("not within %" G_GINT64_FORMAT " s: %s", within_ms / 1000, text);
}

static gboolean never(gpointer data)
{
    return FALSE;
}

void bench_pause(gint64 ms)
{
    until(never, NULL, 0, ms);
}
