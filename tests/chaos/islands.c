/*
 * Network namespaces by `ip` and `nsenter`. The process that begins moves into one first: what it makes in
 * there goes with it, and nothing of it is seen outside. An island lives as long as a child that sits in it.
 */
#include "chaos.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

struct Island {
    pid_t pid;
    char *name; /* of our end of its link */
    char *outside, *inside;
    char *enter[3];
};

static Island islands[CHAOS_ISLANDS];
static guint n_islands;

G_GNUC_PRINTF(2, 3)
static gboolean run_words(char **why, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    g_autofree char *line = g_strdup_vprintf(format, args);
    va_end(args);
    g_auto(GStrv) argv = g_strsplit(line, " ", -1);
    g_autofree char *said = NULL;
    g_autoptr(GError) error = NULL;
    int status = 0;
    if (!g_spawn_sync(NULL, argv, NULL, G_SPAWN_SEARCH_PATH | G_SPAWN_STDOUT_TO_DEV_NULL, NULL,
                      NULL, NULL, &said, &status, &error)) {
        *why = g_strdup(error->message);
        return FALSE;
    }
    if (status != 0) {
        *why = g_strdup_printf("%s: %s", line, g_strchomp(said));
    }
    return status == 0;
}

/* The child of an island; says by the pipe that it is there. */
static void sit(int ready)
{
    char byte = 0;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    /* A terminal's Ctrl-C is for its parent. */
    signal(SIGINT, SIG_IGN);
    signal(SIGTERM, SIG_IGN);
    if (unshare(CLONE_NEWNET) != 0 || write(ready, &byte, 1) != 1) {
        _exit(1);
    }
    close(ready);
    for (;;) {
        pause();
    }
}

static pid_t settle(char **why)
{
    int ready[2];
    char byte;
    g_assert(pipe(ready) == 0);
    pid_t pid = fork();
    if (pid == 0) {
        close(ready[0]);
        sit(ready[1]);
    }
    close(ready[1]);
    gboolean there = pid > 0 && read(ready[0], &byte, 1) == 1;
    close(ready[0]);
    if (!there) {
        *why = g_strdup("a child cannot have a network namespace");
    }
    return there ? pid : 0;
}

static gboolean make(Island *island, guint i, char **why)
{
    island->pid = settle(why);
    if (island->pid == 0) {
        return FALSE;
    }
    int pid = (int)island->pid;
    island->name = g_strdup_printf("island%u", i);
    island->outside = g_strdup_printf("10.77.%u.1", i);
    island->inside = g_strdup_printf("10.77.%u.2", i);
    island->enter[0] = g_strdup("nsenter");
    island->enter[1] = g_strdup_printf("--net=/proc/%d/ns/net", pid);
    const char *in = island->enter[1];
    return run_words(why, "ip link add %s type veth peer name eth0 netns %d", island->name, pid) &&
           run_words(why, "ip addr add %s/24 dev %s", island->outside, island->name) &&
           run_words(why, "ip link set %s up", island->name) &&
           run_words(why, "nsenter %s ip link set lo up", in) &&
           run_words(why, "nsenter %s ip addr add %s/24 dev eth0", in, island->inside) &&
           run_words(why, "nsenter %s ip link set eth0 up", in);
}

/* In a child first: what is half permitted must not leave us without a loopback. */
static gboolean is_permitted(guint n, char **why)
{
    int said[2];
    char text[256] = "";
    g_assert(pipe(said) == 0);
    pid_t pid = fork();
    if (pid == 0) {
        char *refused = NULL;
        gboolean ok = unshare(CLONE_NEWNET) == 0;
        if (!ok) {
            refused = g_strdup_printf("unshare: %s", g_strerror(errno));
        }
        ok = ok && run_words(&refused, "ip link set lo up");
        for (guint i = 0; ok && i < n; i++) {
            ok = make(&islands[i], i, &refused);
        }
        if (!ok && write(said[1], refused, strlen(refused)) < 0) {
            _exit(2);
        }
        _exit(ok ? 0 : 1);
    }
    close(said[1]);
    int status = 0;
    ssize_t len = read(said[0], text, sizeof(text) - 1);
    close(said[0]);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    if (status != 0) {
        *why = len > 0 ? g_strdup(text) : g_strdup("no namespaces");
    }
    return status == 0;
}

gboolean islands_begin(guint n, char **why)
{
    g_assert(n <= CHAOS_ISLANDS);
    if (!is_permitted(n, why)) {
        return FALSE;
    }
    g_assert(unshare(CLONE_NEWNET) == 0);
    gboolean ok = run_words(why, "ip link set lo up");
    for (n_islands = 0; ok && n_islands < n; n_islands++) {
        ok = make(&islands[n_islands], n_islands, why);
    }
    g_assert(ok); /* a moment ago it could be done */
    return TRUE;
}

void islands_end(void)
{
    for (guint i = 0; i < n_islands; i++) {
        kill(islands[i].pid, SIGKILL);
        waitpid(islands[i].pid, NULL, 0);
        g_free(islands[i].name);
        g_free(islands[i].outside);
        g_free(islands[i].inside);
        g_free(islands[i].enter[0]);
        g_free(islands[i].enter[1]);
    }
    n_islands = 0;
}

Island *island_nth(guint i)
{
    return i < n_islands ? &islands[i] : NULL;
}

const char *island_outside(const Island *island)
{
    return island->outside;
}

const char *island_inside(const Island *island)
{
    return island->inside;
}

const char *const *island_enter(const Island *island)
{
    return (const char *const *)island->enter;
}

static void must(gboolean ok, char *why)
{
    if (!ok) {
        fail_msg("%s", why != NULL ? why : "ip failed");
    }
    g_free(why);
}

void island_cut(Island *island)
{
    char *why = NULL;
    gboolean ok = run_words(&why, "ip link set %s down", island->name);
    must(ok, why);
}

void island_cut_inwards(Island *island)
{
    char *why = NULL;
    gboolean ok = run_words(&why, "ip route add blackhole %s/32", island->inside);
    must(ok, why);
}

void island_join(Island *island)
{
    char *why = NULL, *none = NULL;
    gboolean ok = run_words(&why, "ip link set %s up", island->name);
    must(ok, why);
    /* There is one only after island_cut_inwards. */
    run_words(&none, "ip route del blackhole %s/32", island->inside);
    g_free(none);
}
