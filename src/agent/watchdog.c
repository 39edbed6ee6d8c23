/*
 * One loop over a signalfd, two timerfds and the control socket. What ends the program is SIGKILL to its
 * group and to every child of this process, again and again, until there is no child: an orphaned
 * descendant becomes one. Must not call anything that may block, but for the wait for what has been killed.
 */
#include "agent/watchdog.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define EXIT_NOT_STARTED 127

typedef struct {
    char **argv;
    gboolean hold;
    int signals, lease, stop; /* signalfd, two timerfds */
    pid_t program;            /* 0: not started; its group has the same number */
    gboolean ended;           /* the program itself has */
    gboolean stopping;        /* SIGTERM has been sent */
} Watchdog;

static gint64 boottime_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    return (gint64)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void set_timer(int timer, gint64 at_ms)
{
    /* A zero would disarm it. */
    const struct itimerspec when = {
        .it_value = {.tv_sec = at_ms / 1000, .tv_nsec = at_ms % 1000 * 1000000 + 1}};
    timerfd_settime(timer, TFD_TIMER_ABSTIME, &when, NULL);
}

static void report(LhWatchdogWhat what, int value)
{
    const LhWatchdogReport message = {.what = (gint32)what, .value = value};
    while (send(LH_WATCHDOG_CONTROL, &message, sizeof message, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 &&
           errno == EINTR)
        continue;
}

/* ---- killing ---- */

/* The parent of process @name ("1234") as /proc tells it; 0: it is gone. */
static pid_t parent_of(const char *name)
{
    char path[64], text[512];
    g_snprintf(path, sizeof path, "/proc/%s/stat", name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    gssize n = read(fd, text, sizeof text - 1);
    close(fd);
    if (n <= 0)
        return 0;
    text[n] = '\0';
    const char *after = strrchr(text, ')'); /* the name of the program may hold anything */
    return after != NULL && strlen(after) > 4 ? (pid_t)strtol(after + 4, NULL, 10) : 0;
}

/* To every process whose parent is this one. */
static void signal_children(int signo)
{
    struct {
        guint64 inode;
        gint64 offset;
        unsigned short length;
        unsigned char type;
        char name[];
    } * entry;
    _Alignas(8) char buffer[8192];
    pid_t self = getpid();
    int dir = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    long n;
    while (dir >= 0 && (n = syscall(SYS_getdents64, dir, buffer, sizeof buffer)) > 0) {
        for (long at = 0; at < n; at += entry->length) {
            entry = (gpointer)(buffer + at);
            if (g_ascii_isdigit(entry->name[0]) && parent_of(entry->name) == self)
                kill((pid_t)strtol(entry->name, NULL, 10), signo);
        }
    }
    if (dir >= 0)
        close(dir);
}

/* The program's own end, when it is that which has been reaped. */
static void reaped(Watchdog *w, pid_t pid, int status)
{
    if (pid != w->program || w->ended)
        return;
    w->ended = TRUE;
    if (!w->hold)
        return; /* told when nothing of it is left */
    report(LH_WATCHDOG_ENDED, status);
}

/* Returns the program's own status if it is reaped here, else @status. */
static int kill_all(Watchdog *w, int status)
{
    /* Until it is reaped no other group can have its number. */
    if (w->program != 0 && !w->ended)
        kill(-w->program, SIGKILL);
    for (;;) {
        int one;
        signal_children(SIGKILL);
        pid_t pid = waitpid(-1, &one, 0);
        if (pid < 0 && errno == ECHILD)
            return status;
        if (pid == w->program && !w->ended)
            status = one;
        if (pid > 0)
            reaped(w, pid, one);
    }
}

/* ---- starting ---- */

static void become_program(const Watchdog *w, int failed, pid_t parent)
{
    sigset_t none;
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(EXIT_NOT_STARTED);
    signal(SIGPIPE, SIG_DFL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    execvp(w->argv[0], w->argv);
    int error = errno;
    while (write(failed, &error, sizeof error) < 0 && errno == EINTR)
        continue;
    _exit(EXIT_NOT_STARTED);
}

/* FALSE: it could not be started, and that has been told. */
static gboolean start(Watchdog *w)
{
    int failed[2], error = 0;
    pid_t self = getpid();
    if (pipe2(failed, O_CLOEXEC) < 0) {
        report(LH_WATCHDOG_NOT_STARTED, errno);
        return FALSE;
    }
    pid_t child = fork();
    if (child == 0)
        become_program(w, failed[1], self);
    if (child < 0)
        error = errno;
    close(failed[1]);
    if (child > 0) {
        setpgid(child, child); /* whoever is first */
        w->program = child;
        gssize n;
        while ((n = read(failed[0], &error, sizeof error)) < 0 && errno == EINTR)
            continue;
    }
    close(failed[0]);
    report(error == 0 ? LH_WATCHDOG_STARTED : LH_WATCHDOG_NOT_STARTED, error);
    return error == 0;
}

/* ---- the loop ---- */

typedef enum { GO_ON, KILL, OVER } Next;

static Next on_control(Watchdog *w)
{
    LhWatchdogOrder order;
    gssize n = read(LH_WATCHDOG_CONTROL, &order, sizeof order);
    if (n < 0 && (errno == EINTR || errno == EAGAIN))
        return GO_ON;
    if (n != sizeof order)
        return KILL; /* the agent has gone */
    set_timer(w->lease, order.deadline_ms);
    if (order.deadline_ms <= boottime_ms())
        return KILL;
    if (w->program == 0 && order.stop_ms == 0)
        return start(w) ? GO_ON : OVER;
    if (order.stop_ms == 0 || w->stopping)
        return GO_ON;
    w->stopping = TRUE;
    set_timer(w->stop, boottime_ms() + order.stop_ms);
    if (w->program == 0)
        return KILL;
    if (!w->ended)
        kill(-w->program, SIGTERM);
    else
        signal_children(SIGTERM);
    return w->ended && waitpid(-1, NULL, WNOHANG) < 0 ? KILL : GO_ON;
}

static Next on_signal(Watchdog *w, int *status)
{
    struct signalfd_siginfo info;
    if (read(w->signals, &info, sizeof info) != sizeof info)
        return GO_ON;
    if (info.ssi_signo != SIGCHLD)
        return KILL; /* told to end: so does the program */
    pid_t pid;
    for (int one; (pid = waitpid(-1, &one, WNOHANG)) > 0;) {
        if (pid == w->program && !w->ended)
            *status = one;
        reaped(w, pid, one);
    }
    return w->ended && (!w->hold || (w->stopping && pid < 0)) ? KILL : GO_ON;
}

static int watch(Watchdog *w)
{
    struct pollfd fds[] = {
        {.fd = w->lease, .events = POLLIN},
        {.fd = w->stop, .events = POLLIN},
        {.fd = LH_WATCHDOG_CONTROL, .events = POLLIN},
        {.fd = w->signals, .events = POLLIN},
    };
    Next next = GO_ON;
    int status = 0;
    while (next == GO_ON) {
        if (poll(fds, G_N_ELEMENTS(fds), -1) < 0)
            continue;
        if (fds[0].revents != 0 || fds[1].revents != 0)
            next = KILL;
        else if (fds[2].revents != 0)
            next = on_control(w);
        else if (fds[3].revents != 0)
            next = on_signal(w, &status);
    }
    status = kill_all(w, status);
    if (next == KILL && w->program != 0 && !w->hold)
        report(LH_WATCHDOG_ENDED, status);
    return 0;
}

int lh_watchdog_main(int argc, char **argv)
{
    Watchdog w = {.argv = argv + 2, .hold = argc > 1 && strcmp(argv[1], LH_WATCHDOG_HOLD) == 0};
    sigset_t mask;
    if (argc < 3 || fcntl(LH_WATCHDOG_CONTROL, F_SETFD, FD_CLOEXEC) < 0) {
        fputs("leasehold: watchdog: is started by the agent only\n", stderr);
        return 2;
    }
    prctl(PR_SET_NAME, "lh-watchdog");
    setsid(); /* away from the agent's terminal and group */
    sigemptyset(&mask);
    for (guint i = 0; i < 4; i++)
        sigaddset(&mask, ((const int[]){SIGCHLD, SIGTERM, SIGINT, SIGHUP})[i]);
    w.signals = sigprocmask(SIG_BLOCK, &mask, NULL) == 0 ? signalfd(-1, &mask, SFD_CLOEXEC) : -1;
    w.lease = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC);
    w.stop = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC);
    if (w.signals < 0 || w.lease < 0 || w.stop < 0 || prctl(PR_SET_CHILD_SUBREAPER, 1) < 0) {
        report(LH_WATCHDOG_NOT_STARTED, errno);
        return 1;
    }
    return watch(&w);
}
