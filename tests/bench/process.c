/* Starting, asking and ending managers. Must not signal a process that it did not start. */
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

#define READY_EVERY_MS  5
#define READY_MS        (10 * 60 * 1000)
#define END_MS          30000
#define SETTLE_EVERY_MS 250
#define SETTLE_TIMES    4
#define SETTLE_NS       (5 * 1000 * 1000)
#define SETTLE_MS       (5 * 60 * 1000)

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

static char **argv_of(const Cluster *cluster, const Manager *manager, const char *const *extra)
{
    GPtrArray *argv = g_ptr_array_new();

    g_ptr_array_add(argv, binary());
    g_ptr_array_add(argv, g_strdup("manager"));
    g_ptr_array_add(argv, g_strdup("--etcd-endpoints"));
    g_ptr_array_add(argv, g_strdup(etcd_process_endpoint(bench.etcd)));
    g_ptr_array_add(argv, g_strdup("--etcd-prefix"));
    g_ptr_array_add(argv, g_strdup(cluster->prefix));
    g_ptr_array_add(argv, g_strdup("--instance"));
    g_ptr_array_add(argv, g_strdup(manager->name));
    g_ptr_array_add(argv, g_strdup("--listen"));
    g_ptr_array_add(argv, g_strdup_printf("127.0.0.1:%u", manager->port));
    if (bench.log_level != NULL) {
        g_ptr_array_add(argv, g_strdup("--log-level"));
        g_ptr_array_add(argv, g_strdup(bench.log_level));
    }
    for (; extra != NULL && *extra != NULL; extra++)
        g_ptr_array_add(argv, g_strdup(*extra));
    g_ptr_array_add(argv, NULL);
    return (char **)g_ptr_array_free(argv, FALSE);
}

Manager *manager_start(const Cluster *cluster, const char *name, const char *const *extra)
{
    static guint number;
    g_autoptr(GError) error = NULL;
    g_autofree char *log = g_strdup_printf("%s/%s-%u.log", bench.dir, name, ++number);
    g_auto(GStrv) argv = NULL;
    Manager *manager = g_new0(Manager, 1);
    int fd = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);

    if (fd < 0)
        bench_fail("%s: %s", log, g_strerror(errno));
    manager->name = g_strdup(name);
    manager->log = g_steal_pointer(&log);
    manager->port = etcd_free_port();
    argv = argv_of(cluster, manager, extra);
    manager->started_us = now_us();
    g_spawn_async_with_fds(NULL, argv, NULL, G_SPAWN_DO_NOT_REAP_CHILD, die_with_parent,
                           GINT_TO_POINTER((int)getpid()), &manager->pid, -1, fd, fd, &error);
    close(fd);
    bench_must(error, argv[0]);
    bench_remember_child(manager->pid);
    return manager;
}

static gboolean has_ended(Manager *manager)
{
    if (manager->pid != 0 && waitpid(manager->pid, NULL, WNOHANG) == manager->pid) {
        bench_forget_child(manager->pid);
        manager->pid = 0;
    }
    return manager->pid == 0;
}

static gboolean check_ended(gpointer data)
{
    return has_ended(data);
}

static gboolean is_ready(gpointer data)
{
    Manager *manager = data;

    if (has_ended(manager)) {
        g_autofree char *text = NULL;
        g_file_get_contents(manager->log, &text, NULL, NULL);
        bench_fail("%s ended at once: %s", manager->name, text != NULL ? text : "");
    }
    return http_get(manager->port, "/readyz") == 200;
}

gint64 manager_wait_ready(Manager *manager)
{
    bench_poll(is_ready, manager, READY_EVERY_MS, READY_MS, "%s is ready", manager->name);
    return now_us();
}

typedef struct {
    const Manager *manager;
    gint64 at_us, cpu_ns;
    guint quiet;
} Settling;

static gboolean has_settled(gpointer data)
{
    Settling *settling = data;
    gint64 now = now_us(), cpu;

    if (now < settling->at_us + SETTLE_EVERY_MS * 1000)
        return FALSE;
    cpu = manager_cpu_ns(settling->manager);
    settling->quiet = cpu - settling->cpu_ns < SETTLE_NS ? settling->quiet + 1 : 0;
    settling->at_us = now;
    settling->cpu_ns = cpu;
    return settling->quiet == SETTLE_TIMES;
}

void manager_settle(Manager *manager)
{
    Settling settling = {manager, now_us(), manager_cpu_ns(manager), 0};

    bench_poll(has_settled, &settling, SETTLE_EVERY_MS, SETTLE_MS, "%s comes to rest",
               manager->name);
}

Manager *manager_ready(const Cluster *cluster, const char *name, const char *const *extra)
{
    Manager *manager = manager_start(cluster, name, extra);

    manager_wait_ready(manager);
    manager_settle(manager);
    return manager;
}

void manager_signal(Manager *manager, int number)
{
    if (!has_ended(manager))
        kill(manager->pid, number);
}

static void end_with(Manager *manager, int number)
{
    if (manager == NULL)
        return;
    manager_signal(manager, number);
    bench_poll(check_ended, manager, READY_EVERY_MS, END_MS, "%s ends", manager->name);
    g_free(manager->name);
    g_free(manager->log);
    g_free(manager);
}

void manager_stop(Manager *manager)
{
    end_with(manager, SIGTERM);
}

void manager_kill(Manager *manager)
{
    end_with(manager, SIGKILL);
}

gint64 manager_cpu_ns(const Manager *manager)
{
    struct timespec used;
    clockid_t clock;

    if (clock_getcpuclockid(manager->pid, &clock) != 0 || clock_gettime(clock, &used) != 0)
        bench_fail("%s has no CPU clock: it has ended", manager->name);
    return used.tv_sec * G_GINT64_CONSTANT(1000000000) + used.tv_nsec;
}

gint64 manager_rss_bytes(const Manager *manager)
{
    g_autofree char *path = g_strdup_printf("/proc/%d/status", (int)manager->pid);
    g_autofree char *text = NULL;
    const char *line = g_file_get_contents(path, &text, NULL, NULL) ? strstr(text, "VmRSS:") : NULL;

    if (line == NULL)
        bench_fail("%s has no VmRSS: it has ended", manager->name);
    return g_ascii_strtoll(line + strlen("VmRSS:"), NULL, 10) * 1024;
}
