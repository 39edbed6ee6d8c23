/*
 * The agent's side of a watchdog: one socket (orders out, reports in), standard error line by line, the
 * watchdog's own end. To kill is to close the socket.
 */
#include "agent/guard.h"

#include "agent/hooks.h"
#include "agent/watchdog.h"
#include "base/errors.h"

#include <errno.h>
#include <fcntl.h>
#include <gio/gio.h>
#include <glib-unix.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define SELF      "/proc/self/exe"
#define LINE_MAX_ 1000

typedef struct {
    int fd;
    guint source;
} Channel;

struct LhGuard {
    LhEnv *env;
    LhGuardFuncs funcs;
    gpointer data;
    gboolean abandoned;
    gboolean hold;
    char *program;
    GSubprocess *process; /* NULL: the watchdog could not be started */
    Channel control, out, err;
    GString *output;
    GString *line;   /* of standard error, not ended yet */
    char *last_line; /* the last that is not empty */
    gint64 deadline_ms, timeout_ms;
    LhTimer *timer; /* the timeout; 0 ms: to answer for what could not be started */
    GError *error;  /* why it was killed, or not started */
    gboolean told;  /* ended has been called */
    gboolean has_status;
    int status;
};

static void channel_close(Channel *channel)
{
    if (channel->source != 0)
        g_source_remove(channel->source);
    if (channel->fd >= 0)
        close(channel->fd);
    *channel = (Channel){.fd = -1};
}

static void guard_free(LhGuard *guard)
{
    lh_timer_clear(guard->env, &guard->timer);
    channel_close(&guard->control);
    channel_close(&guard->out);
    channel_close(&guard->err);
    g_clear_object(&guard->process);
    g_clear_error(&guard->error);
    g_string_free(guard->output, TRUE);
    g_string_free(guard->line, TRUE);
    g_free(guard->last_line);
    g_free(guard->program);
    g_free(guard);
}

/* ---- what it prints ---- */

static void end_line(LhGuard *guard)
{
    g_strstrip(guard->line->str);
    if (*guard->line->str != '\0') {
        g_free(guard->last_line);
        guard->last_line = g_utf8_make_valid(guard->line->str, -1);
    }
    g_string_truncate(guard->line, 0);
}

static void take_errors(LhGuard *guard, const char *text, gsize n)
{
    for (gsize at = 0; at < n;) { /* passed on: it is the agent's too */
        gssize written = write(STDERR_FILENO, text + at, n - at);
        if (written < 0 && errno != EINTR)
            break;
        at += written > 0 ? (gsize)written : 0;
    }
    for (gsize i = 0; i < n; i++) {
        if (text[i] == '\n')
            end_line(guard);
        else if (guard->line->len < LINE_MAX_ && text[i] != '\0')
            g_string_append_c(guard->line, text[i]);
    }
}

static void take_output(LhGuard *guard, const char *text, gsize n)
{
    if (guard->output->len + n <= LH_HOOK_MAX_OUTPUT) {
        g_string_append_len(guard->output, text, (gssize)n);
        return;
    }
    if (guard->error == NULL)
        g_set_error(&guard->error, LH_ERROR, LH_ERR_INVALID,
                    "%s: printed more than %d bytes; killed", guard->program, LH_HOOK_MAX_OUTPUT);
    lh_guard_kill(guard);
}

/* Reads what is there. FALSE: nothing more will come. */
static gboolean drain(LhGuard *guard, const Channel *channel)
{
    for (;;) {
        char buffer[4096];
        gssize n = channel->fd < 0 ? 0 : read(channel->fd, buffer, sizeof buffer);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 && errno == EAGAIN;
        if (channel == &guard->err)
            take_errors(guard, buffer, (gsize)n);
        else
            take_output(guard, buffer, (gsize)n);
    }
}

static gboolean on_text(LhGuard *guard, Channel *channel)
{
    if (drain(guard, channel))
        return G_SOURCE_CONTINUE;
    channel->source = 0;
    channel_close(channel);
    return G_SOURCE_REMOVE;
}

static gboolean on_out(int fd G_GNUC_UNUSED, GIOCondition condition G_GNUC_UNUSED, gpointer data)
{
    LhGuard *guard = data;
    return on_text(guard, &guard->out);
}

static gboolean on_err(int fd G_GNUC_UNUSED, GIOCondition condition G_GNUC_UNUSED, gpointer data)
{
    LhGuard *guard = data;
    return on_text(guard, &guard->err);
}

/* ---- its end ---- */

/* How it ended, unless that is known already. */
static void judge(LhGuard *guard)
{
    const char *line = guard->last_line != NULL ? guard->last_line : "";
    const char *colon = *line != '\0' ? ": " : "";
    if (guard->error != NULL || (guard->has_status && guard->status == 0))
        return;
    if (!guard->has_status)
        g_set_error(&guard->error, LH_ERROR, LH_ERR_IO, "%s: killed", guard->program);
    else if (WIFSIGNALED(guard->status))
        g_set_error(&guard->error, LH_ERROR, LH_ERR_IO, "%s: killed by signal %d%s%s",
                    guard->program, WTERMSIG(guard->status), colon, line);
    else
        g_set_error(&guard->error, LH_ERROR, LH_ERR_IO, "%s: exited with status %d%s%s",
                    guard->program, WEXITSTATUS(guard->status), colon, line);
}

static void tell_ended(LhGuard *guard)
{
    if (guard->told)
        return;
    guard->told = TRUE;
    lh_timer_clear(guard->env, &guard->timer);
    drain(guard, &guard->out);
    drain(guard, &guard->err);
    end_line(guard);
    judge(guard);
    guard->funcs.ended(guard->error == NULL ? guard->output->str : NULL, guard->error, guard->data);
}

static void on_report(LhGuard *guard, const LhWatchdogReport *report)
{
    switch ((LhWatchdogWhat)report->what) {
    case LH_WATCHDOG_STARTED:
        if (guard->funcs.started != NULL)
            guard->funcs.started(guard->data);
        return;
    case LH_WATCHDOG_NOT_STARTED:
        if (guard->error == NULL)
            g_set_error(&guard->error, LH_ERROR, LH_ERR_IO, "%s: cannot be started: %s",
                        guard->program, g_strerror(report->value));
        return;
    case LH_WATCHDOG_ENDED:
        guard->has_status = TRUE;
        guard->status = report->value;
        if (guard->hold)
            tell_ended(guard);
        return;
    }
}

/* What it has reported so far. FALSE: nothing more will come. */
static gboolean hear(LhGuard *guard)
{
    for (;;) {
        LhWatchdogReport report;
        gssize n = guard->control.fd < 0 ? 0 : read(guard->control.fd, &report, sizeof report);
        if (n < 0 && errno == EINTR)
            continue;
        if (n == (gssize)sizeof report)
            on_report(guard, &report);
        else
            return n < 0 && errno == EAGAIN;
        if (guard->abandoned)
            return FALSE;
    }
}

static gboolean on_control(int fd G_GNUC_UNUSED, GIOCondition condition G_GNUC_UNUSED,
                           gpointer data)
{
    LhGuard *guard = data;
    if (hear(guard))
        return G_SOURCE_CONTINUE;
    guard->control.source = 0;
    return G_SOURCE_REMOVE;
}

static void be_over(LhGuard *guard)
{
    if (!guard->abandoned)
        tell_ended(guard);
    if (!guard->abandoned)
        guard->funcs.over(guard->data);
    guard_free(guard);
}

static void watchdog_ended(GObject *object, GAsyncResult *result, gpointer data)
{
    LhGuard *guard = data;
    g_subprocess_wait_finish(G_SUBPROCESS(object), result, NULL);
    if (!guard->abandoned)
        hear(guard);
    be_over(guard);
}

static void on_timer(gpointer data)
{
    LhGuard *guard = data;
    guard->timer = NULL;
    if (guard->process == NULL) {
        be_over(guard);
        return;
    }
    if (guard->error == NULL)
        g_set_error(&guard->error, LH_ERROR, LH_ERR_IO,
                    "%s: did not end within %" G_GINT64_FORMAT " ms; killed", guard->program,
                    guard->timeout_ms);
    lh_guard_kill(guard);
}

/* ---- orders ---- */

static void order(LhGuard *guard, gint64 stop_ms)
{
    const LhWatchdogOrder message = {.deadline_ms = guard->deadline_ms, .stop_ms = stop_ms};
    if (guard->control.fd >= 0)
        send(guard->control.fd, &message, sizeof message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

void lh_guard_deadline(LhGuard *guard, gint64 deadline_ms)
{
    guard->deadline_ms = deadline_ms;
    order(guard, 0);
}

void lh_guard_stop(LhGuard *guard, gint64 grace_ms)
{
    order(guard, MAX(1, grace_ms));
}

void lh_guard_kill(LhGuard *guard)
{
    if (guard->control.fd >= 0)
        shutdown(guard->control.fd, SHUT_WR); /* reports may still come */
}

void lh_guard_abandon(LhGuard *guard)
{
    if (guard == NULL)
        return;
    guard->abandoned = TRUE;
    lh_guard_kill(guard);
    lh_timer_clear(guard->env, &guard->timer);
    channel_close(&guard->control);
    channel_close(&guard->out);
    channel_close(&guard->err);
    if (guard->process == NULL) /* it may be one of its callbacks that abandons it */
        guard->timer = lh_timer_in(guard->env, 0, on_timer, guard);
}

/* ---- starting ---- */

static char **watchdog_argv(const LhGuardCall *call)
{
    GPtrArray *argv = g_ptr_array_new();
    g_ptr_array_add(argv, g_strdup(SELF));
    g_ptr_array_add(argv, g_strdup(LH_WATCHDOG_ARG));
    g_ptr_array_add(argv, g_strdup(call->hold ? LH_WATCHDOG_HOLD : LH_WATCHDOG_ONCE));
    for (gsize i = 0; call->argv[i] != NULL; i++)
        g_ptr_array_add(argv, g_strdup(call->argv[i]));
    g_ptr_array_add(argv, NULL);
    return (char **)g_ptr_array_free(argv, FALSE);
}

static gboolean io_error(GError **error, const char *what)
{
    g_set_error(error, LH_ERROR, LH_ERR_IO, "%s: %s", what, g_strerror(errno));
    return FALSE;
}

/* A pipe whose reading end is @channel's; the launcher takes the other. */
static gboolean open_pipe(Channel *channel, int *other, GError **error)
{
    int fds[2];
    if (pipe2(fds, O_CLOEXEC) < 0)
        return io_error(error, "pipe");
    g_unix_set_fd_nonblocking(fds[0], TRUE, NULL);
    channel->fd = fds[0];
    *other = fds[1];
    return TRUE;
}

static gboolean spawn(LhGuard *guard, const LhGuardCall *call, GError **error)
{
    g_autoptr(GSubprocessLauncher) launcher = g_subprocess_launcher_new(G_SUBPROCESS_FLAGS_NONE);
    g_auto(GStrv) argv = watchdog_argv(call);
    int control[2], other;
    int in = lh_hook_input_fd(call->input);
    if (in < 0)
        return io_error(error, "memory file");
    g_subprocess_launcher_take_stdin_fd(launcher, in);
    if (!open_pipe(&guard->err, &other, error))
        return FALSE;
    g_subprocess_launcher_take_stderr_fd(launcher, other);
    if (call->capture) {
        if (!open_pipe(&guard->out, &other, error))
            return FALSE;
        g_subprocess_launcher_take_stdout_fd(launcher, other);
    }
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, control) < 0)
        return io_error(error, "socket");
    guard->control.fd = control[0];
    g_unix_set_fd_nonblocking(control[0], TRUE, NULL);
    g_subprocess_launcher_take_fd(launcher, control[1], LH_WATCHDOG_CONTROL);
    if (call->directory != NULL)
        g_subprocess_launcher_set_cwd(launcher, call->directory);
    for (gsize i = 0; call->environment != NULL && call->environment[i] != NULL; i += 2)
        g_subprocess_launcher_setenv(launcher, call->environment[i], call->environment[i + 1],
                                     TRUE);
    guard->process = g_subprocess_launcher_spawnv(launcher, (const char *const *)argv, error);
    return guard->process != NULL;
}

LhGuard *lh_guard_start(LhEnv *env, const LhGuardCall *call, const LhGuardFuncs *funcs,
                        gpointer data)
{
    LhGuard *guard = g_new0(LhGuard, 1);
    g_autoptr(GError) error = NULL;
    guard->env = env;
    guard->funcs = *funcs;
    guard->data = data;
    guard->hold = call->hold;
    guard->program = g_strdup(call->argv[0]);
    guard->control.fd = guard->out.fd = guard->err.fd = -1;
    guard->output = g_string_new(NULL);
    guard->line = g_string_new(NULL);
    guard->deadline_ms = call->deadline_ms;
    guard->timeout_ms = call->timeout_ms;
    if (!spawn(guard, call, &error)) {
        g_set_error(&guard->error, LH_ERROR, LH_ERR_IO, "%s: cannot be started: %s", guard->program,
                    error->message);
        guard->timer = lh_timer_in(env, 0, on_timer, guard);
        return guard;
    }
    guard->control.source = g_unix_fd_add(guard->control.fd, G_IO_IN | G_IO_HUP | G_IO_ERR,
                                          on_control, guard);
    guard->err.source = g_unix_fd_add(guard->err.fd, G_IO_IN | G_IO_HUP | G_IO_ERR, on_err, guard);
    if (call->capture)
        guard->out.source = g_unix_fd_add(guard->out.fd, G_IO_IN | G_IO_HUP | G_IO_ERR, on_out,
                                          guard);
    if (call->timeout_ms > 0)
        guard->timer = lh_timer_in(env, call->timeout_ms, on_timer, guard);
    g_subprocess_wait_async(guard->process, NULL, watchdog_ended, guard);
    order(guard, 0);
    return guard;
}
