/*
 * Starting, asking and ending the processes of a world. Signals go to pids of our own children, or
 * to processes that carry the world's mark.
 */
#include "harness_internal.h"

#include <glib/gstdio.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define TAIL_LINES 30
#define TAIL_WIDTH 220

static void die_with_parent(gpointer parent)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != (pid_t)GPOINTER_TO_INT(parent)) {
        _exit(127);
    }
}

static char *binary(const char *program)
{
    const char *root = g_getenv("LEASEHOLD_BUILD_ROOT");
    if (strcmp(program, "leasehold-faults") == 0) {
        return g_build_filename(root != NULL ? root : "build", "tests", "integration", program,
                                NULL);
    }
    if (strcmp(program, "leasehold") != 0) {
        return g_strdup(program);
    }
    return g_build_filename(root != NULL ? root : "build", "leasehold", NULL);
}

static void on_ended(GObject *source, GAsyncResult *result, gpointer data)
{
    Proc *proc = data;
    g_subprocess_wait_finish(G_SUBPROCESS(source), result, NULL);
    proc->status = g_subprocess_get_status(proc->process);
    proc->ended = TRUE;
}

Proc *proc_start(World *world, const char *name, const char *const *argv)
{
    g_autoptr(GError) error = NULL;
    g_autofree char *program = binary(argv[0]);
    g_autoptr(GPtrArray) args = g_ptr_array_new();
    g_autoptr(GSubprocessLauncher) launcher = g_subprocess_launcher_new(G_SUBPROCESS_FLAGS_NONE);
    Proc *proc = g_new0(Proc, 1);
    g_ptr_array_add(args, program);
    for (guint i = 1; argv[i] != NULL; i++) {
        g_ptr_array_add(args, (gpointer)argv[i]);
    }
    g_ptr_array_add(args, NULL);
    proc->world = world;
    proc->name = g_strdup(name);
    proc->log = g_strdup_printf("%s/%s-%u.log", world->dir, name, world->procs->len);
    g_subprocess_launcher_set_child_setup(launcher, die_with_parent, GINT_TO_POINTER((int)getpid()),
                                          NULL);
    g_subprocess_launcher_set_stdout_file_path(launcher, proc->log);
    g_subprocess_launcher_set_stderr_file_path(launcher, proc->log);
    proc->process = g_subprocess_launcher_spawnv(launcher, (const char *const *)args->pdata,
                                                 &error);
    if (proc->process == NULL) {
        world_fail(world, "%s: %s", name, error->message);
    }
    proc->pid_text = g_strdup(g_subprocess_get_identifier(proc->process));
    g_subprocess_wait_async(proc->process, NULL, on_ended, proc);
    g_ptr_array_add(world->procs, proc);
    return proc;
}

void proc_free(gpointer data)
{
    Proc *proc = data;
    g_clear_object(&proc->process);
    g_free(proc->name);
    g_free(proc->log);
    g_free(proc->url);
    g_free(proc->pid_text);
    g_free(proc);
}

pid_t proc_pid(const Proc *proc)
{
    return (pid_t)g_ascii_strtoll(proc->pid_text, NULL, 10);
}

char *proc_log(const Proc *proc)
{
    char *text = NULL;
    return g_file_get_contents(proc->log, &text, NULL, NULL) ? text : g_strdup("");
}

guint count_words(const char *text, const char *words)
{
    guint n = 0;
    for (const char *at = text; (at = strstr(at, words)) != NULL; at += strlen(words)) {
        n++;
    }
    return n;
}

guint proc_logged(const Proc *proc, const char *words)
{
    g_autofree char *log = proc_log(proc);
    return count_words(log, words);
}

gboolean proc_has_said(World *world, gpointer data)
{
    const Said *said = data;
    (void)world;
    return proc_logged(said->proc, said->words) > 0;
}

/* ---- the programs ---- */

/* "… serving address=127.0.0.1:41234 …" */
gboolean proc_serves(World *world, gpointer data)
{
    Proc *proc = data;
    g_autofree char *log = proc_log(proc);
    const char *line = strstr(log, "serving");
    const char *at = line != NULL ? strstr(line, "address=") : NULL;
    if (at == NULL || strchr(at, '\n') == NULL) {
        return proc->ended;
    }
    at += strlen("address=");
    g_autofree char *address = g_strndup(at, strcspn(at, " \n"));
    const char *scheme = strstr(at, " url=https://") != NULL ? "https" : "http";
    gboolean anywhere = g_str_has_prefix(address, "0.0.0.0:");
    proc->url = g_strdup_printf("%s://%s%s", scheme, anywhere ? "127.0.0.1" : "",
                                anywhere ? strchr(address, ':') : address);
    return TRUE;
}

static Proc *server_start(World *world, const char *name, GPtrArray *argv, const char *const *extra)
{
    for (; extra != NULL && *extra != NULL; extra++) {
        g_ptr_array_add(argv, (gpointer)*extra);
    }
    g_ptr_array_add(argv, NULL);
    Proc *proc = proc_start(world, name, (const char *const *)argv->pdata);
    world_poll(world, proc_serves, proc, "%s serves", name);
    if (proc->url == NULL) {
        world_fail(world, "%s ended at once", name);
    }
    return proc;
}

static void add_all(GPtrArray *argv, const char *const *words)
{
    for (; *words != NULL; words++) {
        g_ptr_array_add(argv, (gpointer)*words);
    }
}

/* The one place that says how a program is told of etcd. */
static void add_access(GPtrArray *argv, const EtcdAccess *access)
{
    const char *const all[][2] = {
        {"--etcd-endpoints", access->endpoints}, {"--etcd-cacert", access->cacert},
        {"--etcd-cert", access->cert},           {"--etcd-key", access->key},
        {"--etcd-user", access->user},           {"--etcd-password-file", access->password_file},
    };
    for (guint i = 0; i < G_N_ELEMENTS(all); i++) {
        if (all[i][1] != NULL) {
            g_ptr_array_add(argv, (gpointer)all[i][0]);
            g_ptr_array_add(argv, (gpointer)all[i][1]);
        }
    }
}

Proc *manager_start_program(World *world, const char *program, const char *name,
                            const char *const *extra)
{
    const char *const words[] = {program,      "manager", "--listen", "127.0.0.1:0",
                                 "--instance", name,      NULL};
    g_autoptr(GPtrArray) argv = g_ptr_array_new();
    add_all(argv, words);
    add_access(argv, &world->access);
    return server_start(world, name, argv, extra);
}

Proc *manager_start(World *world, const char *name, const char *const *extra)
{
    return manager_start_program(world, "leasehold", name, extra);
}

static gboolean is_ready(World *world, gpointer data)
{
    g_autoptr(Reply) reply = http(data, "GET", "/readyz", NULL);
    return reply->status == 200;
}

Proc *manager_ready(World *world, const char *name)
{
    Proc *manager = manager_start(world, name, NULL);
    world_poll(world, is_ready, manager, "%s is ready", name);
    return manager;
}

Proc *agent_start(World *world, const AgentOptions *o)
{
    g_autofree char *data_dir = g_strdup_printf("%s/%s", world->dir, o->name);
    g_autofree char *root = g_strdup_printf("file://%s/", world->objects);
    const char *const words[] = {"leasehold",
                                 "agent",
                                 "--pool",
                                 o->pool != NULL ? o->pool : "cache",
                                 "--name",
                                 o->name,
                                 "--data-dir",
                                 data_dir,
                                 "--capacity",
                                 o->capacity != NULL ? o->capacity : "1Gi",
                                 "--capacity-items",
                                 o->items != NULL ? o->items : "0",
                                 "--set",
                                 o->set != NULL ? o->set : "default",
                                 "--listen",
                                 "127.0.0.1:0",
                                 "--object-store-roots",
                                 root,
                                 o->zone != NULL ? "--zone" : NULL,
                                 o->zone,
                                 NULL};
    g_autoptr(GPtrArray) argv = g_ptr_array_new();
    add_all(argv, words);
    add_access(argv, &world->access);
    return server_start(world, o->name, argv, o->extra);
}

void agents_start(World *world, guint n)
{
    for (guint i = 1; i <= n; i++) {
        g_autofree char *name = g_strdup_printf("agent-%u", i);
        agent_start(world, &(AgentOptions){.name = name});
    }
}

/* ---- ending ---- */

static gboolean has_ended(World *world, gpointer data)
{
    return ((Proc *)data)->ended;
}

static int code_of(int status)
{
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

int proc_wait(Proc *proc)
{
    proc->excused = TRUE;
    world_wait(proc->world, has_ended, proc, "%s ends", proc->name);
    return code_of(proc->status);
}

int proc_stop(Proc *proc)
{
    g_subprocess_send_signal(proc->process, SIGTERM);
    return proc_wait(proc);
}

void proc_kill(Proc *proc)
{
    g_subprocess_force_exit(proc->process);
    proc_wait(proc);
}

static void check_log(const Proc *proc, GString *wrong)
{
    static const char *const words[] = {"Sanitizer", "runtime error:", "GLib-CRITICAL"};
    g_autofree char *log = proc_log(proc);
    for (guint i = 0; i < G_N_ELEMENTS(words); i++) {
        if (strstr(log, words[i]) != NULL) {
            g_string_append_printf(wrong, "%s: its log has \"%s\"; ", proc->name, words[i]);
        }
    }
}

void procs_end(World *world, GString *wrong)
{
    for (guint i = 0; i < world->procs->len; i++) {
        Proc *proc = g_ptr_array_index(world->procs, i);
        if (!proc->ended) {
            g_subprocess_send_signal(proc->process, SIGCONT);
            g_subprocess_send_signal(proc->process, SIGTERM);
        }
    }
    for (guint i = 0; i < world->procs->len; i++) {
        Proc *proc = g_ptr_array_index(world->procs, i);
        if (!world_until(world, has_ended, proc, WAIT_MS / 2)) {
            g_string_append_printf(wrong, "%s does not end; ", proc->name);
            g_subprocess_force_exit(proc->process);
            world_until(world, has_ended, proc, WAIT_MS);
        } else if (!proc->excused && code_of(proc->status) != 0) {
            g_string_append_printf(wrong, "%s ended with %d; ", proc->name, code_of(proc->status));
        }
        check_log(proc, wrong);
    }
}

char *procs_tails(World *world)
{
    GString *out = g_string_new(NULL);
    for (guint i = 0; i < world->procs->len; i++) {
        Proc *proc = g_ptr_array_index(world->procs, i);
        g_autofree char *log = proc_log(proc);
        g_auto(GStrv) lines = g_strsplit(g_strchomp(log), "\n", -1);
        guint n = g_strv_length(lines);
        for (guint j = n > TAIL_LINES ? n - TAIL_LINES : 0; j < n; j++) {
            g_string_append_printf(out, "# %s: %.*s\n", proc->name, TAIL_WIDTH, lines[j]);
        }
    }
    return g_string_free(out, FALSE);
}

/* A process whose environment cannot be read (another user's, or ended) is not ours. */
static gboolean has_mark(const char *pid, const char *mark)
{
    g_autofree char *path = g_strdup_printf("/proc/%s/environ", pid);
    g_autofree char *wanted = g_strdup_printf(MARK "=%s", mark);
    g_autofree char *text = NULL;
    gsize len = 0;
    if (!g_file_get_contents(path, &text, &len, NULL)) {
        return FALSE;
    }
    for (const char *at = text; at < text + len; at += strlen(at) + 1) {
        if (strcmp(at, wanted) == 0) {
            return TRUE;
        }
    }
    return FALSE;
}

static gboolean is_etcd(World *world, pid_t pid)
{
    for (guint i = 0; world->cluster != NULL && i < etcd_cluster_size(world->cluster); i++) {
        if (etcd_process_pid(etcd_cluster_member(world->cluster, i)) == pid) {
            return TRUE;
        }
    }
    return etcd_process_pid(world->etcd) == pid;
}

GArray *world_pids(World *world)
{
    GArray *pids = g_array_new(FALSE, FALSE, sizeof(pid_t));
    g_autoptr(GDir) dir = g_dir_open("/proc", 0, NULL);
    const char *name;
    while ((name = g_dir_read_name(dir)) != NULL) {
        pid_t pid = (pid_t)g_ascii_strtoll(name, NULL, 10);
        if (pid > 0 && pid != getpid() && has_mark(name, world->mark) && !is_etcd(world, pid)) {
            g_array_append_val(pids, pid);
        }
    }
    return pids;
}

/* ---- programs that run to their end ---- */

typedef struct {
    Run *run;
    gboolean ended;
} Running;

static void on_run(GObject *source, GAsyncResult *result, gpointer data)
{
    Running *running = data;
    g_subprocess_communicate_utf8_finish(G_SUBPROCESS(source), result, &running->run->out,
                                         &running->run->err, NULL);
    running->ended = TRUE;
}

static gboolean is_over(World *world, gpointer data)
{
    return ((const Running *)data)->ended;
}

Run *run_argv(World *world, const char *const *argv)
{
    g_autoptr(GError) error = NULL;
    g_autoptr(GSubprocessLauncher) launcher = g_subprocess_launcher_new(
        G_SUBPROCESS_FLAGS_STDOUT_PIPE | G_SUBPROCESS_FLAGS_STDERR_PIPE);
    g_autoptr(GPtrArray) args = g_ptr_array_new();
    g_autofree char *program = binary(argv[0]);
    Run *run = g_new0(Run, 1);
    g_ptr_array_add(args, program);
    for (guint i = 1; argv[i] != NULL; i++) {
        g_ptr_array_add(args, (gpointer)argv[i]);
    }
    g_ptr_array_add(args, NULL);
    g_subprocess_launcher_set_child_setup(launcher, die_with_parent, GINT_TO_POINTER((int)getpid()),
                                          NULL);
    g_autoptr(GSubprocess) process = g_subprocess_launcher_spawnv(
        launcher, (const char *const *)args->pdata, &error);
    if (process == NULL) {
        world_fail(world, "%s: %s", argv[0], error->message);
    }
    Running running = {.run = run};
    g_subprocess_communicate_utf8_async(process, NULL, NULL, on_run, &running);
    world_wait(world, is_over, &running, "%s %s ends", argv[0], argv[1] != NULL ? argv[1] : "");
    if (run->out == NULL || run->err == NULL) {
        world_fail(world, "%s: what it prints is not UTF-8", argv[0]);
    }
    run->code = code_of(g_subprocess_get_status(process));
    return run;
}

GPtrArray *argv_of(const char *first, va_list args)
{
    GPtrArray *argv = g_ptr_array_new();
    g_ptr_array_add(argv, (gpointer)first);
    for (const char *word; (word = va_arg(args, const char *)) != NULL;) {
        g_ptr_array_add(argv, (gpointer)word);
    }
    return argv;
}

Run *run(World *world, const char *program, ...)
{
    va_list args;
    va_start(args, program);
    g_autoptr(GPtrArray) argv = argv_of(program, args);
    va_end(args);
    g_ptr_array_add(argv, NULL);
    return run_argv(world, (const char *const *)argv->pdata);
}

static Run *run_cli(Proc *server, const Identity *who, GPtrArray *argv)
{
    const char *const words[] = {
        "--server",     server->url, who->cacert != NULL ? "--cacert" : NULL,
        who->cacert,    NULL,        who->cert != NULL ? "--cert" : NULL,
        who->cert,      NULL,        who->key != NULL ? "--key" : NULL,
        who->key,       NULL,        who->token_file != NULL ? "--token-file" : NULL,
        who->token_file};
    for (guint i = 0; i < G_N_ELEMENTS(words); i++) {
        if (words[i] != NULL) {
            g_ptr_array_add(argv, (gpointer)words[i]);
        }
    }
    g_ptr_array_add(argv, NULL);
    return run_argv(server->world, (const char *const *)argv->pdata);
}

Run *cli(Proc *server, ...)
{
    va_list args;
    va_start(args, server);
    g_autoptr(GPtrArray) argv = argv_of("leasehold", args);
    va_end(args);
    return run_cli(server, &(Identity){0}, argv);
}

Run *cli_as(Proc *server, const Identity *who, ...)
{
    va_list args;
    va_start(args, who);
    g_autoptr(GPtrArray) argv = argv_of("leasehold", args);
    va_end(args);
    return run_cli(server, who, argv);
}

void run_free(Run *run)
{
    g_free(run->out);
    g_free(run->err);
    g_free(run);
}
