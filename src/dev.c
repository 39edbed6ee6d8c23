/*
 * `leasehold dev`: the embedded default. Starts a private single-node etcd, a manager and N cache agents
 * as children of their own process groups, shows with --demo how a dozen snapshots become live, and stops
 * all of them, the last started first, at Ctrl-C. A child never outlives this process.
 */
#include "base/errors.h"
#include "base/log.h"
#include "base/units.h"
#include "demo.h"
#include "etcd/transport_grpc.h"
#include "mirror/mirror.h"
#include "programs.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <gio/gio.h>
#include <glib-unix.h>
#include <glib/gstdio.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#define EXIT_FAILED   1
#define EXIT_USAGE    2
#define PREFIX        "/leasehold/"
#define API_PORT      8083
#define STOP_MS       12000 /* an agent gives itself 10 s */
#define ETCD_RETRY_MS 100
#define ETCD_START_MS 20000
#define MARKER_MS \
    10000 /* then without it: the cleaner may be paused in a directory that is used again */
#define MAX_AGENTS 100

typedef struct {
    struct Dev *dev;
    char *name;
    GSubprocess *process;
    gboolean ended;
} Child;

typedef struct Dev {
    char *data_dir;
    gboolean temporary, demo;
    int n_agents;
    int etcd_port, peer_port, api_port;
    GMainLoop *loop;
    LhEnv *env;
    LhEtcd *etcd;
    LhMirror *mirror;
    GPtrArray *children; /* in the order of their start */
    LhTimer *timer;
    gint64 started_ms, published_ms;
    GHashTable *to_publish;
    gboolean stopping, all_live, terminal;
    guint lines; /* of the table on the terminal */
    guint last_live;
    int code;
} Dev;

static void stop(Dev *dev, int code);

G_GNUC_PRINTF(2, 3)
static void fail(Dev *dev, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    g_autofree char *text = g_strdup_vprintf(format, args);
    va_end(args);
    fprintf(stderr, "leasehold: %s\n", text);
    stop(dev, EXIT_FAILED);
}

/* A port that nobody has at this moment. @wanted is taken if it is free. 0: none. */
static int free_port(int wanted)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((guint16)wanted)};
    socklen_t len = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), port = 0, yes = 1;

    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (fd >= 0 && bind(fd, (struct sockaddr *)&address, sizeof address) == 0 &&
        getsockname(fd, (struct sockaddr *)&address, &len) == 0)
        port = ntohs(address.sin_port);
    if (fd >= 0)
        close(fd);
    return port == 0 && wanted != 0 ? free_port(0) : port;
}

/* ---- children ---- */

/* Its own group, so that Ctrl-C reaches only this process, which stops the children in order. */
static void child_setup(gpointer parent)
{
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != GPOINTER_TO_INT(parent))
        _exit(127);
}

static void child_free(gpointer data)
{
    Child *child = data;

    g_clear_object(&child->process);
    g_free(child->name);
    g_free(child);
}

static void stop_next(Dev *dev);

static void on_ended(GObject *source, GAsyncResult *result, gpointer data)
{
    Child *child = data;
    Dev *dev = child->dev;

    g_subprocess_wait_finish(G_SUBPROCESS(source), result, NULL);
    child->ended = TRUE;
    if (dev->stopping) {
        stop_next(dev);
    } else if (g_str_has_prefix(child->name, "agent-")) {
        fprintf(stderr, "leasehold: %s ended; its log is in %s/log\n", child->name, dev->data_dir);
    } else {
        fail(dev, "%s ended unexpectedly: its log is %s/log/%s.log", child->name, dev->data_dir,
             child->name);
    }
}

static gboolean spawn(Dev *dev, const char *name, const char *const *argv)
{
    g_autoptr(GSubprocessLauncher) launcher = g_subprocess_launcher_new(G_SUBPROCESS_FLAGS_NONE);
    g_autofree char *log = g_strdup_printf("%s/log/%s.log", dev->data_dir, name);
    g_autoptr(GError) error = NULL;
    Child *child = g_new0(Child, 1);

    g_subprocess_launcher_set_child_setup(launcher, child_setup, GINT_TO_POINTER(getpid()), NULL);
    g_subprocess_launcher_set_stdout_file_path(launcher, log);
    g_subprocess_launcher_set_stderr_file_path(launcher, log);
    child->dev = dev;
    child->name = g_strdup(name);
    child->process = g_subprocess_launcher_spawnv(launcher, argv, &error);
    if (child->process == NULL) {
        fail(dev, "%s: %s", name, error->message);
        child_free(child);
        return FALSE;
    }
    g_ptr_array_add(dev->children, child);
    g_subprocess_wait_async(child->process, NULL, on_ended, child);
    return TRUE;
}

static gboolean spawn_etcd(Dev *dev)
{
    g_autofree char *data = g_build_filename(dev->data_dir, "etcd", NULL);
    g_autofree char *client = g_strdup_printf("http://127.0.0.1:%d", dev->etcd_port);
    g_autofree char *peer = g_strdup_printf("http://127.0.0.1:%d", dev->peer_port);
    g_autofree char *cluster = g_strdup_printf("dev=%s", peer);
    const char *argv[] = {
        "etcd",       "--name",
        "dev",        "--data-dir",
        data,         "--listen-client-urls",
        client,       "--advertise-client-urls",
        client,       "--listen-peer-urls",
        peer,         "--initial-advertise-peer-urls",
        peer,         "--initial-cluster",
        cluster,      "--auto-compaction-mode",
        "periodic",   "--auto-compaction-retention",
        "1h",         "--quota-backend-bytes",
        "2147483648", "--logger",
        "zap",        "--log-level",
        "warn",       NULL,
    };
    g_autofree char *program = g_find_program_in_path("etcd");

    if (program == NULL) {
        fail(dev, "etcd: it is not installed (Debian: apt-get install etcd-server)");
        return FALSE;
    }
    return spawn(dev, "etcd", argv);
}

static gboolean spawn_manager(Dev *dev)
{
    g_autofree char *endpoint = g_strdup_printf("127.0.0.1:%d", dev->etcd_port);
    g_autofree char *listen = g_strdup_printf("127.0.0.1:%d", dev->api_port);
    g_autofree char *root = g_strdup_printf("file://%s/objects/", dev->data_dir);
    const char *argv[] = {
        "/proc/self/exe", "manager",     "--etcd-endpoints",     endpoint, "--listen", listen,
        "--instance",     "dev-manager", "--object-store-roots", root,     NULL,
    };

    return spawn(dev, "manager", argv);
}

static gboolean spawn_agent(Dev *dev, int number)
{
    g_autofree char *endpoint = g_strdup_printf("127.0.0.1:%d", dev->etcd_port);
    g_autofree char *name = g_strdup_printf("agent-%d", number);
    g_autofree char *zone = g_strdup_printf("zone-%c", 'a' + (number - 1) % 3);
    g_autofree char *data = g_build_filename(dev->data_dir, name, NULL);
    g_autofree char *root = g_strdup_printf("file://%s/objects/", dev->data_dir);
    const char *argv[] = {"/proc/self/exe",
                          "agent",
                          "--pool",
                          "cache",
                          "--name",
                          name,
                          "--zone",
                          zone,
                          "--data-dir",
                          data,
                          "--capacity",
                          "1Gi",
                          "--listen",
                          "127.0.0.1:0",
                          "--etcd-endpoints",
                          endpoint,
                          "--object-store-roots",
                          root,
                          NULL};

    return spawn(dev, name, argv);
}

/* ---- stopping ---- */

static void finish(Dev *dev)
{
    lh_timer_clear(dev->env, &dev->timer);
    g_main_loop_quit(dev->loop);
}

static void on_too_slow(gpointer data)
{
    Dev *dev = data;

    dev->timer = NULL;
    for (guint i = 0; i < dev->children->len; i++) {
        Child *child = g_ptr_array_index(dev->children, i);
        if (!child->ended)
            g_subprocess_force_exit(child->process);
    }
}

/* Agents and the manager together first, etcd when they are gone: they still have something to say. */
static void stop_next(Dev *dev)
{
    guint left = 0;

    for (guint i = 1; i < dev->children->len; i++)
        left += !((Child *)g_ptr_array_index(dev->children, i))->ended;
    if (left > 0)
        return;
    if (dev->children->len > 0 && !((Child *)g_ptr_array_index(dev->children, 0))->ended) {
        g_subprocess_send_signal(((Child *)g_ptr_array_index(dev->children, 0))->process, SIGTERM);
        return;
    }
    finish(dev);
}

static void stop(Dev *dev, int code)
{
    if (dev->stopping)
        return;
    dev->stopping = TRUE;
    dev->code = code;
    lh_timer_clear(dev->env, &dev->timer);
    dev->timer = lh_timer_in(dev->env, STOP_MS, on_too_slow, dev);
    for (guint i = 1; i < dev->children->len; i++) {
        Child *child = g_ptr_array_index(dev->children, i);
        if (!child->ended)
            g_subprocess_send_signal(child->process, SIGTERM);
    }
    stop_next(dev);
}

static gboolean on_signal(gpointer data)
{
    Dev *dev = data;

    if (dev->terminal)
        printf("\n");
    if (dev->stopping)
        on_too_slow(dev);
    else
        printf("stopping\n");
    fflush(stdout);
    stop(dev, 0);
    return G_SOURCE_CONTINUE;
}

/* ---- the demonstration ---- */

/* Each line cut to the terminal's width: one that wraps would spoil the count of lines to go back. */
static void print_cut(const char *table)
{
    g_auto(GStrv) lines = g_strsplit(table, "\n", -1);
    struct winsize size = {.ws_col = 0};
    int width;

    ioctl(STDOUT_FILENO, TIOCGWINSZ, &size);
    width = size.ws_col > 1 ? size.ws_col - 1 : 200;
    for (guint i = 0; lines[i] != NULL && lines[i + 1] != NULL; i++)
        printf("%.*s\n", width, lines[i]);
}

static void show(Dev *dev)
{
    guint live, all;
    g_autofree char *table = lh_demo_table(dev->mirror, &live, &all);

    if (!dev->demo || all == 0 || dev->all_live)
        return;
    if (dev->terminal) {
        if (dev->lines > 0)
            printf("\033[%uA\033[J", dev->lines);
        dev->lines = all + 1;
        print_cut(table);
    } else if (live != dev->last_live) {
        printf("%u of %u snapshots live\n", live, all);
    }
    dev->last_live = live;
    if (live == all && dev->published_ms != 0 && all >= LH_DEMO_SNAPSHOTS) {
        if (!dev->terminal)
            fputs(table, stdout);
        printf(
            "\nall %u snapshots are copied, verified, live and searchable, %.1f s after they were "
            "published\n"
            "try: build/leasehold get items --server http://127.0.0.1:%d\n"
            "Ctrl-C stops everything\n",
            all, (double)(lh_mono_ms(dev->env) - dev->published_ms) / 1000, dev->api_port);
        dev->all_live = TRUE;
    }
    fflush(stdout);
}

static void on_applied(gint64 revision, gpointer data)
{
    (void)revision;
    show(data);
}

static const LhMirrorFuncs mirror_funcs = {.applied = on_applied};

static void on_published(const LhTxnReply *reply, const GError *error, gpointer data)
{
    (void)reply;
    if (error != NULL)
        fail(data, "publish: %s", error->message);
}

static void put(Dev *dev, LhKind kind, const char *name, const char *value)
{
    g_autofree char *key = lh_key(kind, name);
    g_autofree char *whole = g_strconcat(PREFIX, key, NULL);
    LhTxnOp op = lh_txn_put(whole, value, 0);
    LhTxnRequest txn = {.success = &op, .n_success = 1};

    lh_etcd_txn(dev->etcd, &txn, on_published, dev);
}

static void publish(Dev *dev)
{
    g_autofree char *objects = g_build_filename(dev->data_dir, "objects", NULL);
    g_autoptr(GError) error = NULL;
    GHashTableIter iter;
    gpointer name, value;

    dev->to_publish = lh_demo_make(objects, lh_wall_ms(dev->env), &error);
    if (dev->to_publish == NULL) {
        fail(dev, "%s", error->message);
        return;
    }
    put(dev, LH_KIND_SERVICE, "demo", lh_demo_service());
    g_hash_table_iter_init(&iter, dev->to_publish);
    while (g_hash_table_iter_next(&iter, &name, &value))
        put(dev, LH_KIND_SNAPSHOT, name, value);
    dev->published_ms = lh_mono_ms(dev->env);
}

/* Into a root that the manager has taken while it was empty: of one that is not, it asks whether it is the right
 * one before it would ever delete anything there. */
static void publish_when_taken(gpointer data)
{
    Dev *dev = data;
    g_autofree char *marker = g_build_filename(dev->data_dir, "objects", ".leasehold", NULL);

    dev->timer = NULL;
    if (g_file_test(marker, G_FILE_TEST_EXISTS) ||
        lh_mono_ms(dev->env) > dev->started_ms + MARKER_MS)
        publish(dev);
    else
        dev->timer = lh_timer_in(dev->env, ETCD_RETRY_MS, publish_when_taken, dev);
}

/* ---- starting ---- */

static void start_rest(Dev *dev)
{
    if (!spawn_manager(dev))
        return;
    for (int i = 1; i <= dev->n_agents; i++)
        if (!spawn_agent(dev, i))
            return;
    printf("etcd     127.0.0.1:%d   (etcdctl --endpoints=127.0.0.1:%d get --prefix %s)\n"
           "API      http://127.0.0.1:%d\n"
           "agents   %d\n"
           "data     %s%s\n\n",
           dev->etcd_port, dev->etcd_port, PREFIX, dev->api_port, dev->n_agents, dev->data_dir,
           dev->temporary ? "   (removed at the end)" : "");
    fflush(stdout);
    lh_mirror_listen(dev->mirror, &mirror_funcs, dev);
    lh_mirror_start(dev->mirror);
    if (dev->demo)
        publish_when_taken(dev);
}

static void ask_etcd(gpointer data);

static void on_status(const LhStatusReply *reply, const GError *error, gpointer data)
{
    Dev *dev = data;

    if (dev->stopping)
        return;
    if (error == NULL && reply->leader != 0)
        start_rest(dev);
    else if (lh_mono_ms(dev->env) > dev->started_ms + ETCD_START_MS)
        fail(dev, "etcd: it does not answer; its log is %s/log/etcd.log", dev->data_dir);
    else
        dev->timer = lh_timer_in(dev->env, ETCD_RETRY_MS, ask_etcd, dev);
}

static void ask_etcd(gpointer data)
{
    Dev *dev = data;

    dev->timer = NULL;
    lh_etcd_status(dev->etcd, on_status, dev);
}

static gboolean make_dirs(Dev *dev, GError **error)
{
    static const char *const names[] = {"log", "objects"};

    if (dev->data_dir == NULL) {
        dev->data_dir = g_dir_make_tmp("leasehold-dev-XXXXXX", error);
        dev->temporary = dev->data_dir != NULL;
        if (dev->data_dir == NULL)
            return FALSE;
    }
    for (gsize i = 0; i < G_N_ELEMENTS(names); i++) {
        g_autofree char *dir = g_build_filename(dev->data_dir, names[i], NULL);
        if (g_mkdir_with_parents(dir, 0700) != 0) {
            g_set_error(error, LH_ERROR, LH_ERR_IO, "--data-dir: %s: %s", dir, g_strerror(errno));
            return FALSE;
        }
    }
    return TRUE;
}

static gboolean start(Dev *dev, GError **error)
{
    g_autofree char *endpoint = NULL;
    const char *endpoints[] = {NULL, NULL};
    LhEtcdOptions options = {.endpoints = endpoints};

    if (!make_dirs(dev, error))
        return FALSE;
    dev->etcd_port = free_port(0);
    dev->peer_port = free_port(0);
    dev->api_port = free_port(API_PORT);
    endpoints[0] = endpoint = g_strdup_printf("127.0.0.1:%d", dev->etcd_port);
    dev->etcd = lh_etcd_grpc_new(&options, NULL, error);
    if (dev->etcd == NULL)
        return FALSE;
    dev->mirror = lh_mirror_new(dev->env, dev->etcd, PREFIX);
    if (spawn_etcd(dev))
        ask_etcd(dev);
    return TRUE;
}

/* ---- the command ---- */

static gboolean parse(Dev *dev, int argc, char **argv, GError **error)
{
    GOptionEntry entries[] = {
        {"data-dir", 0, 0, G_OPTION_ARG_FILENAME, &dev->data_dir, "Keep everything in D", "D"},
        {"agents", 0, 0, G_OPTION_ARG_INT, &dev->n_agents, "How many cache agents (3)", "N"},
        {"demo", 0, 0, G_OPTION_ARG_NONE, &dev->demo, "Publish a dozen snapshots and show them",
         NULL},
        G_OPTION_ENTRY_NULL,
    };
    g_autoptr(GOptionContext) context = g_option_context_new(
        "- etcd, a manager and agents in one terminal");

    g_option_context_add_main_entries(context, entries, NULL);
    if (!g_option_context_parse(context, &argc, &argv, error))
        return FALSE;
    if (argc > 1) {
        g_set_error(error, LH_ERROR, LH_ERR_INVALID, "dev: unexpected argument \"%s\"", argv[1]);
        return FALSE;
    }
    if (dev->n_agents < 0 || dev->n_agents > MAX_AGENTS) {
        g_set_error(error, LH_ERROR, LH_ERR_INVALID, "--agents: must be 0 to %d", MAX_AGENTS);
        return FALSE;
    }
    if (dev->data_dir != NULL) {
        char *absolute = g_canonicalize_filename(dev->data_dir, NULL);
        g_free(dev->data_dir);
        dev->data_dir = absolute;
    }
    return TRUE;
}

static void remove_tree(const char *path)
{
    g_autoptr(GDir) dir = g_file_test(path, G_FILE_TEST_IS_SYMLINK) ? NULL
                                                                    : g_dir_open(path, 0, NULL);
    const char *name;

    while (dir != NULL && (name = g_dir_read_name(dir)) != NULL) {
        g_autofree char *child = g_build_filename(path, name, NULL);
        remove_tree(child);
    }
    g_remove(path);
}

static void clear(Dev *dev)
{
    lh_mirror_free(dev->mirror);
    lh_etcd_free(dev->etcd);
    g_ptr_array_unref(dev->children);
    g_clear_pointer(&dev->to_publish, g_hash_table_unref);
    lh_env_free(dev->env);
    g_main_loop_unref(dev->loop);
    if (dev->temporary && dev->code == 0)
        remove_tree(dev->data_dir);
    g_free(dev->data_dir);
}

int lh_dev_main(int argc, char **argv)
{
    g_autoptr(GError) error = NULL;
    Dev dev = {.n_agents = 3, .terminal = isatty(STDOUT_FILENO)};

    if (!parse(&dev, argc, argv, &error)) {
        fprintf(stderr, "leasehold: %s\n", error->message);
        g_free(dev.data_dir);
        return EXIT_USAGE;
    }
    lh_log_setup(LH_LOG_ERROR, LH_LOG_TEXT);
    dev.env = lh_env_glib_new(NULL);
    dev.loop = g_main_loop_new(NULL, FALSE);
    dev.children = g_ptr_array_new_with_free_func(child_free);
    dev.started_ms = lh_mono_ms(dev.env);
    if (start(&dev, &error)) {
        guint interrupt = g_unix_signal_add(SIGINT, on_signal, &dev);
        guint term = g_unix_signal_add(SIGTERM, on_signal, &dev);
        guint hangup = g_unix_signal_add(SIGHUP, on_signal, &dev);
        if (!dev.stopping || dev.children->len > 0)
            g_main_loop_run(dev.loop);
        g_source_remove(interrupt);
        g_source_remove(term);
        g_source_remove(hangup);
    } else {
        fprintf(stderr, "leasehold: %s\n", error->message);
        dev.code = g_error_matches(error, LH_ERROR, LH_ERR_INVALID) ? EXIT_USAGE : EXIT_FAILED;
    }
    clear(&dev);
    return dev.code;
}
