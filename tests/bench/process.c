/* Starting, asking and ending our own programs. Must not signal a process that it did not start. */
#include "process.h"

#include "http_load.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define READY_EVERY_MS 5
#define READY_MS       (10 * 60 * 1000)
#define END_MS         120000
#define SETTLE_TIMES   4                 /* in a row */
#define SETTLE_NS      (5 * 1000 * 1000) /* in each of them, at most */
#define SETTLE_MS      (5 * 60 * 1000)

static char *binary(void)
{
    const char *root = g_getenv("LEASEHOLD_BUILD_ROOT");

    return g_build_filename(root != NULL ? root : "build", "leasehold", NULL);
}

gboolean manager_knows(const char *flag)
{
    g_autofree char *program = binary();
    g_autofree char *out = NULL;
    char *argv[] = {program, (char *)"manager", (char *)"--help", NULL};

    return g_spawn_sync(NULL, argv, NULL, G_SPAWN_DEFAULT, NULL, NULL, &out, NULL, NULL, NULL) &&
           strstr(out, flag) != NULL;
}

static void die_with_parent(gpointer parent)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != (pid_t)GPOINTER_TO_INT(parent))
        _exit(127);
}

static char **argv_of(const char *command, const Cluster *cluster, const Process *process,
                      const char *const *extra)
{
    GPtrArray *argv = g_ptr_array_new();

    g_ptr_array_add(argv, binary());
    g_ptr_array_add(argv, g_strdup(command));
    g_ptr_array_add(argv, g_strdup("--etcd-endpoints"));
    g_ptr_array_add(argv, g_strdup(etcd_process_endpoint(bench.etcd)));
    g_ptr_array_add(argv, g_strdup("--etcd-prefix"));
    g_ptr_array_add(argv, g_strdup(cluster->prefix));
    g_ptr_array_add(argv, g_strdup("--listen"));
    g_ptr_array_add(argv, g_strdup_printf("127.0.0.1:%u", process->port));
    if (bench.log_level != NULL) {
        g_ptr_array_add(argv, g_strdup("--log-level"));
        g_ptr_array_add(argv, g_strdup(bench.log_level));
    }
    for (; extra != NULL && *extra != NULL; extra++)
        g_ptr_array_add(argv, g_strdup(*extra));
    g_ptr_array_add(argv, NULL);
    return (char **)g_ptr_array_free(argv, FALSE);
}

static Process *start(const char *command, const Cluster *cluster, const char *name,
                      const char *const *extra)
{
    static guint number;
    g_autoptr(GError) error = NULL;
    g_auto(GStrv) argv = NULL;
    Process *process = g_new0(Process, 1);
    int fd;

    process->name = g_strdup(name);
    process->log = g_strdup_printf("%s/%s-%u.log", bench.dir, name, ++number);
    process->port = etcd_free_port();
    fd = open(process->log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (fd < 0)
        bench_fail("%s: %s", process->log, g_strerror(errno));
    argv = argv_of(command, cluster, process, extra);
    process->started_us = now_us();
    g_spawn_async_with_fds(NULL, argv, NULL, G_SPAWN_DO_NOT_REAP_CHILD, die_with_parent,
                           GINT_TO_POINTER((int)getpid()), &process->pid, -1, fd, fd, &error);
    close(fd);
    bench_must(error, argv[0]);
    bench_remember_child(process->pid);
    return process;
}

Process *manager_start(const Cluster *cluster, const char *name, const char *const *extra)
{
    g_autoptr(GPtrArray) words = g_ptr_array_new();

    g_ptr_array_add(words, (gpointer) "--instance");
    g_ptr_array_add(words, (gpointer)name);
    for (; extra != NULL && *extra != NULL; extra++)
        g_ptr_array_add(words, (gpointer)*extra);
    g_ptr_array_add(words, NULL);
    return start("manager", cluster, name, (const char *const *)words->pdata);
}

Process *agent_start(const Cluster *cluster, const char *name, const char *const *extra)
{
    return start("agent", cluster, name, extra);
}

static gboolean has_ended(Process *process)
{
    if (process->pid != 0 && waitpid(process->pid, NULL, WNOHANG) == process->pid) {
        bench_forget_child(process->pid);
        process->pid = 0;
    }
    return process->pid == 0;
}

static gboolean check_ended(gpointer data)
{
    return has_ended(data);
}

static gboolean is_ready(gpointer data)
{
    Process *process = data;

    if (has_ended(process)) {
        g_autofree char *text = NULL;
        g_file_get_contents(process->log, &text, NULL, NULL);
        bench_fail("%s ended at once: %s", process->name, text != NULL ? text : "");
    }
    return http_get(process->port, "/readyz") == 200;
}

gint64 manager_wait_ready(Process *process)
{
    bench_poll(is_ready, process, READY_EVERY_MS, READY_MS, "%s is ready", process->name);
    return now_us();
}

typedef struct {
    const Process *process;
    gint64 at_us, cpu_ns;
    guint quiet;
} Settling;

static gboolean has_settled(gpointer data)
{
    Settling *settling = data;
    gint64 now = now_us(), cpu;

    if (now < settling->at_us + bench.sizes.settle_ms * 1000 / SETTLE_TIMES)
        return FALSE;
    cpu = process_cpu_ns(settling->process);
    settling->quiet = cpu - settling->cpu_ns < SETTLE_NS ? settling->quiet + 1 : 0;
    settling->at_us = now;
    settling->cpu_ns = cpu;
    return settling->quiet == SETTLE_TIMES;
}

void manager_settle(Process *process)
{
    Settling settling = {process, now_us(), process_cpu_ns(process), 0};

    bench_poll(has_settled, &settling, (guint)bench.sizes.settle_ms / SETTLE_TIMES, SETTLE_MS,
               "%s comes to rest", process->name);
}

Process *manager_ready(const Cluster *cluster, const char *name, const char *const *extra)
{
    Process *process = manager_start(cluster, name, extra);

    manager_wait_ready(process);
    manager_settle(process);
    return process;
}

void process_signal(Process *process, int number)
{
    if (!has_ended(process))
        kill(process->pid, number);
}

static void end_with(Process *process, int number)
{
    if (process == NULL)
        return;
    process_signal(process, number);
    bench_poll(check_ended, process, READY_EVERY_MS, END_MS, "%s ends", process->name);
    g_free(process->name);
    g_free(process->log);
    g_free(process);
}

void process_stop(Process *process)
{
    end_with(process, SIGTERM);
}

void process_kill(Process *process)
{
    end_with(process, SIGKILL);
}

gint64 process_cpu_ns(const Process *process)
{
    struct timespec used;
    clockid_t clock;

    if (clock_getcpuclockid(process->pid, &clock) != 0 || clock_gettime(clock, &used) != 0)
        bench_fail("%s has no CPU clock: it has ended", process->name);
    return used.tv_sec * G_GINT64_CONSTANT(1000000000) + used.tv_nsec;
}

gint64 process_rss_bytes(const Process *process)
{
    g_autofree char *path = g_strdup_printf("/proc/%d/status", (int)process->pid);
    g_autofree char *text = NULL;
    const char *line = g_file_get_contents(path, &text, NULL, NULL) ? strstr(text, "VmRSS:") : NULL;

    if (line == NULL)
        bench_fail("%s has no VmRSS: it has ended", process->name);
    return g_ascii_strtoll(line + strlen("VmRSS:"), NULL, 10) * 1024;
}
