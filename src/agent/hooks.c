/*
 * Running hooks: a child in its own process group, its input from a memory file, its output read
 * with a limit, its end awaited, its time limited.
 *
 * A run ends when the child has exited; output that is there by then counts. Killing goes to the
 * group and only while the child has not been reaped, so that it cannot hit a stranger.
 */
#include "agent/hooks.h"

#include "base/errors.h"
#include "base/json.h"

#include <errno.h>
#include <gio/gio.h>
#include <gio/gunixinputstream.h>
#include <glib-unix.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

typedef struct {
    LhHooks base;
    LhEnv *env;
    GHashTable *runs; /* LhHookRun → Run */
    LhHookRun next_id;
} RealHooks;

typedef struct {
    RealHooks *hooks; /* NULL: cancelled */
    LhHookRun id;
    char *program;
    GSubprocess *process; /* NULL: could not be started */
    pid_t group;          /* 0: there is none to kill */
    int out;
    guint out_source;
    GString *output;
    LhTimer *timeout; /* also the 0 ms to answer for what could not be started */
    GError *error;    /* why it was killed, or not started */
    gint64 timeout_ms;
    LhHookDone done;
    gpointer data;
} Run;

static void run_free(Run *run)
{
    if (run->out_source != 0)
        g_source_remove(run->out_source);
    if (run->out >= 0)
        close(run->out);
    if (run->hooks != NULL)
        lh_timer_clear(run->hooks->env, &run->timeout);
    g_clear_object(&run->process);
    g_string_free(run->output, TRUE);
    g_clear_error(&run->error);
    g_free(run->program);
    g_free(run);
}

static void kill_group(Run *run)
{
    if (run->group > 0 && g_subprocess_get_identifier(run->process) != NULL)
        kill(-run->group, SIGKILL);
}

static void finish(Run *run)
{
    const char *output = run->error == NULL ? run->output->str : NULL;
    g_hash_table_remove(run->hooks->runs, &run->id);
    run->done(output, run->error, run->data);
    run_free(run);
}

/* Reads what is there. FALSE: nothing more will come. */
static gboolean drain(Run *run)
{
    for (;;) {
        char buffer[4096];
        gssize n = read(run->out, buffer, sizeof buffer);
        if (n > 0 && run->output->len + (gsize)n <= LH_HOOK_MAX_OUTPUT) {
            g_string_append_len(run->output, buffer, n);
            continue;
        }
        if (n > 0) {
            if (run->error == NULL)
                g_set_error(&run->error, LH_ERROR, LH_ERR_INVALID,
                            "%s: printed more than %d bytes; killed", run->program,
                            LH_HOOK_MAX_OUTPUT);
            kill_group(run);
            return FALSE;
        }
        if (n < 0 && errno == EINTR)
            continue;
        return n < 0 && errno == EAGAIN;
    }
}

static gboolean on_output(int fd G_GNUC_UNUSED, GIOCondition condition G_GNUC_UNUSED, gpointer data)
{
    Run *run = data;
    if (drain(run))
        return G_SOURCE_CONTINUE;
    run->out_source = 0;
    return G_SOURCE_REMOVE;
}

static void child_ended(GObject *object, GAsyncResult *result, gpointer data)
{
    Run *run = data;
    GSubprocess *process = G_SUBPROCESS(object);
    g_subprocess_wait_finish(process, result, NULL);
    if (run->hooks == NULL) {
        run_free(run);
        return;
    }
    drain(run);
    if (run->error != NULL) {
        /* killed by us; the error says why */
    } else if (g_subprocess_get_if_signaled(process)) {
        g_set_error(&run->error, LH_ERROR, LH_ERR_IO, "%s: killed by signal %d", run->program,
                    g_subprocess_get_term_sig(process));
    } else if (g_subprocess_get_exit_status(process) != 0) {
        g_set_error(&run->error, LH_ERROR, LH_ERR_IO, "%s: exited with status %d", run->program,
                    g_subprocess_get_exit_status(process));
    }
    finish(run);
}

static void on_timeout(gpointer data)
{
    Run *run = data;
    run->timeout = NULL;
    if (run->process == NULL) {
        finish(run);
        return;
    }
    if (run->error == NULL)
        g_set_error(&run->error, LH_ERROR, LH_ERR_IO,
                    "%s: did not end within %" G_GINT64_FORMAT " ms; killed", run->program,
                    run->timeout_ms);
    kill_group(run);
}

static void own_group(gpointer data G_GNUC_UNUSED)
{
    setpgid(0, 0);
}

int lh_hook_input_fd(const char *text)
{
    int fd = memfd_create("leasehold-hook-input", MFD_CLOEXEC);
    gsize n = strlen(text);
    for (gsize at = 0; fd >= 0 && at < n;) {
        gssize w = write(fd, text + at, n - at);
        if (w < 0 && errno != EINTR) {
            close(fd);
            return -1;
        }
        at += w > 0 ? (gsize)w : 0;
    }
    if (fd >= 0)
        lseek(fd, 0, SEEK_SET);
    return fd;
}

static gboolean spawn(Run *run, const LhHookCall *call, GError **error)
{
    int out[2];
    if (!g_unix_open_pipe(out, FD_CLOEXEC, error))
        return FALSE;
    int in = lh_hook_input_fd(call->input);
    if (in < 0) {
        g_set_error(error, LH_ERROR, LH_ERR_IO, "memory file: %s", g_strerror(errno));
        close(out[0]);
        close(out[1]);
        return FALSE;
    }
    g_autoptr(GSubprocessLauncher) launcher = g_subprocess_launcher_new(G_SUBPROCESS_FLAGS_NONE);
    g_subprocess_launcher_take_stdin_fd(launcher, in);
    g_subprocess_launcher_take_stdout_fd(launcher, out[1]);
    g_subprocess_launcher_set_child_setup(launcher, own_group, NULL, NULL);
    for (gsize i = 0; call->environment != NULL && call->environment[i] != NULL; i += 2)
        g_subprocess_launcher_setenv(launcher, call->environment[i], call->environment[i + 1],
                                     TRUE);
    run->process = g_subprocess_launcher_spawnv(launcher, call->argv, error);
    if (run->process == NULL) {
        close(out[0]);
        return FALSE;
    }
    /* NULL when it has ended already: GLib reaps it on a thread of its own. */
    const char *pid = g_subprocess_get_identifier(run->process);
    run->group = pid != NULL ? (pid_t)g_ascii_strtoll(pid, NULL, 10) : 0;
    run->out = out[0];
    g_unix_set_fd_nonblocking(run->out, TRUE, NULL);
    run->out_source = g_unix_fd_add(run->out, G_IO_IN | G_IO_HUP | G_IO_ERR, on_output, run);
    return TRUE;
}

static LhHookRun real_run(LhHooks *base, const LhHookCall *call, LhHookDone done, gpointer data)
{
    RealHooks *hooks = (RealHooks *)base;
    Run *run = g_new0(Run, 1);
    run->hooks = hooks;
    run->id = hooks->next_id++;
    run->program = g_strdup(call->argv[0]);
    run->out = -1;
    run->output = g_string_new(NULL);
    run->timeout_ms = call->timeout_ms;
    run->done = done;
    run->data = data;
    g_hash_table_insert(hooks->runs, &run->id, run);
    g_autoptr(GError) error = NULL;
    if (!spawn(run, call, &error)) {
        g_set_error(&run->error, LH_ERROR, LH_ERR_IO, "%s: cannot be started: %s", run->program,
                    error->message);
        run->timeout = lh_timer_in(hooks->env, 0, on_timeout, run);
        return run->id;
    }
    run->timeout = lh_timer_in(hooks->env, call->timeout_ms, on_timeout, run);
    g_subprocess_wait_async(run->process, NULL, child_ended, run);
    return run->id;
}

/* Out of the table already. Freed here, or when the child has been reaped. */
static void abandon(Run *run)
{
    kill_group(run);
    lh_timer_clear(run->hooks->env, &run->timeout);
    if (run->out_source != 0)
        g_source_remove(run->out_source);
    run->out_source = 0;
    run->hooks = NULL;
    if (run->process == NULL)
        run_free(run);
}

static void real_cancel(LhHooks *base, LhHookRun id)
{
    RealHooks *hooks = (RealHooks *)base;
    Run *run = g_hash_table_lookup(hooks->runs, &id);
    if (run == NULL)
        return;
    g_hash_table_remove(hooks->runs, &id);
    abandon(run);
}

static void real_free(LhHooks *base)
{
    RealHooks *hooks = (RealHooks *)base;
    GHashTableIter iter;
    gpointer run;
    g_hash_table_iter_init(&iter, hooks->runs);
    while (g_hash_table_iter_next(&iter, NULL, &run)) {
        g_hash_table_iter_remove(&iter);
        abandon(run);
    }
    g_hash_table_unref(hooks->runs);
    g_free(hooks);
}

LhHooks *lh_hooks_new(LhEnv *env)
{
    static const LhHooksVtable vtable = {.run = real_run, .cancel = real_cancel, .free = real_free};
    RealHooks *hooks = g_new0(RealHooks, 1);
    hooks->base.v = &vtable;
    hooks->env = env;
    hooks->runs = g_hash_table_new(g_int64_hash, g_int64_equal);
    hooks->next_id = 1;
    return &hooks->base;
}

LhHookRun lh_hooks_run(LhHooks *hooks, const LhHookCall *call, LhHookDone done, gpointer data)
{
    return hooks->v->run(hooks, call, done, data);
}

void lh_hooks_cancel(LhHooks *hooks, LhHookRun *run)
{
    if (*run != 0)
        hooks->v->cancel(hooks, *run);
    *run = 0;
}

void lh_hooks_free(LhHooks *hooks)
{
    if (hooks != NULL)
        hooks->v->free(hooks);
}

char **lh_hook_split(const char *command, GError **error)
{
    g_auto(GStrv) argv = NULL;
    g_autoptr(GError) local = NULL;
    if (!g_shell_parse_argv(command, NULL, &argv, &local)) {
        /* GLib's message holds the whole text, of several lines perhaps. */
        g_autofree char *head = g_strndup(command, 200);
        g_autoptr(GString) quoted = g_string_new(NULL);
        lh_json_append_string(quoted, head);
        g_set_error(error, LH_ERROR, LH_ERR_INVALID, "%s: %s", quoted->str,
                    g_error_matches(local, G_SHELL_ERROR, G_SHELL_ERROR_EMPTY_STRING)
                        ? "names no program"
                        : "a quote or a backslash at its end is left open");
        return NULL;
    }
    return g_steal_pointer(&argv);
}
