/*
 * The processes of a chaos world, each on a machine that outlives it. What has ended is started again after
 * a moment, as systemd would do it; but an end that no fault explains is looked at: a signal, a sanitizer's
 * report, or an exit code is a failure of the run.
 */
#include "chaos.h"
#include "tests/integration/lines.h"

#include <signal.h>
#include <string.h>
#include <sys/wait.h>

#define AGAIN_US (500 * 1000)

/* ---- starting ---- */

static char *program(const Chaos *chaos)
{
    const char *root = g_getenv("LEASEHOLD_BUILD_ROOT");
    return chaos->options.bug != NULL || chaos->options.unguarded
               ? g_build_filename(root != NULL ? root : "build", "tests", "chaos", "leasehold-bugs",
                                  NULL)
               : g_build_filename(root != NULL ? root : "build", "leasehold", NULL);
}

static const char *near_address(const Machine *machine)
{
    return machine->island != NULL ? island_outside(machine->island) : "127.0.0.1";
}

static void add_words(GPtrArray *argv, const char *first, ...)
{
    va_list args;
    va_start(args, first);
    for (const char *word = first; word != NULL; word = va_arg(args, const char *)) {
        g_ptr_array_add(argv, g_strdup(word));
    }
    va_end(args);
}

static void add_shared(GPtrArray *argv, const Machine *machine)
{
    const Chaos *chaos = machine->chaos;
    const char *address = near_address(machine);
    g_autofree char *listen = g_strdup_printf(
        "%s:0", machine->island != NULL ? island_inside(machine->island) : address);
    g_autofree char *store = g_strdup_printf("http://%s:%u", address, link_port(machine->s3));
    g_autoptr(GString) endpoints = g_string_new(NULL);
    for (guint i = 0; i < CHAOS_MEMBERS; i++) {
        g_string_append_printf(endpoints, "%s%s:%u", i > 0 ? "," : "", address,
                               link_port(machine->etcd[i]));
    }
    add_words(argv, "--etcd-endpoints", endpoints->str, "--listen", listen, "--lease-ttl", "5s",
              "--object-store-endpoint", store, "--object-store-access-key-file",
              chaos->access_file, "--object-store-secret-key-file", chaos->secret_file,
              "--object-store-roots", "s3://" CHAOS_BUCKET "/", NULL);
    if (machine->island != NULL) {
        add_words(argv, "--insecure", NULL);
    }
}

static void start(Machine *machine)
{
    Chaos *chaos = machine->chaos;
    g_autoptr(GPtrArray) argv = g_ptr_array_new_with_free_func(g_free);
    g_autofree char *binary = program(chaos);
    if (machine->island != NULL) {
        const char *const *enter = island_enter(machine->island);
        add_words(argv, enter[0], enter[1], NULL);
    }
    if (machine->manager) {
        add_words(argv, binary, "manager", "--instance", machine->name,
                  chaos->options.unguarded ? "--fault-no-deadline" : NULL,
                  "--fault-no-leader-watch", NULL);
    } else {
        g_autofree char *data = g_build_filename(chaos->world->dir, machine->name, NULL);
        add_words(argv, binary, "agent", "--pool", machine->pool, "--name", machine->name,
                  "--data-dir", data, "--capacity", "1Gi", "--set", machine->set, "--zone",
                  machine->zone, NULL);
    }
    if (machine->pool != NULL && strcmp(machine->pool, "manager") == 0) {
        g_autofree char *exec = lines_exec(chaos->world->dir);
        add_words(argv, "--exec", exec, NULL);
    }
    add_shared(argv, machine);
    g_ptr_array_add(argv, NULL);
    machine->proc = proc_start(chaos->world, machine->name, (const char *const *)argv->pdata);
    machine->frozen = machine->judged = FALSE;
    machine->ended_us = 0;
}

static void place(Chaos *chaos, Machine *machine, guint i)
{
    static const struct {
        const char *letter, *pool;
        guint n;
    } sorts[] = {{"m", NULL, CHAOS_MANAGERS},
                 {"a", "cache", CHAOS_AGENTS},
                 {"c", "manager", CHAOS_CRAWLERS}};
    /* The last one of each sort. */
    static const guint on_islands[CHAOS_ISLANDS] = {
        CHAOS_MANAGERS - 1, CHAOS_MANAGERS + CHAOS_AGENTS - 1, CHAOS_MACHINES - 1};
    guint number = i, sort = 0;
    while (number >= sorts[sort].n) {
        number -= sorts[sort++].n;
    }
    machine->chaos = chaos;
    machine->manager = sort == 0;
    machine->pool = sorts[sort].pool;
    machine->name = g_strdup_printf("%s-%u", sorts[sort].letter, number + 1);
    machine->set = number < 4 ? "default" : "second";
    machine->zone = number % 2 == 0 ? "z0" : "z1";
    for (guint j = 0; j < CHAOS_ISLANDS; j++) {
        if (on_islands[j] == i) {
            machine->island = island_nth(j);
        }
    }
    const char *address = near_address(machine);
    for (guint j = 0; j < CHAOS_MEMBERS; j++) {
        const char *endpoint = etcd_cluster_endpoints(chaos->world->cluster)[j];
        guint64 port = g_ascii_strtoull(strrchr(endpoint, ':') + 1, NULL, 10);
        machine->etcd[j] = net_link(chaos->net, address, (guint16)port);
    }
    guint64 port = g_ascii_strtoull(strrchr(s3_process_endpoint(chaos->s3), ':') + 1, NULL, 10);
    machine->s3 = net_link(chaos->net, address, (guint16)port);
    start(machine);
}

static gboolean all_serve(World *world, gpointer data)
{
    Chaos *chaos = data;
    for (guint i = 0; i < CHAOS_MACHINES; i++) {
        if (machine_url(&chaos->machines[i]) == NULL) {
            return FALSE;
        }
    }
    return TRUE;
}

void machines_start(Chaos *chaos)
{
    for (guint i = 0; i < CHAOS_MACHINES; i++) {
        place(chaos, &chaos->machines[i], i);
    }
    world_poll(chaos->world, all_serve, chaos, "all managers and agents serve");
}

void machines_free(Chaos *chaos)
{
    for (guint i = 0; i < CHAOS_MACHINES; i++) {
        g_clear_pointer(&chaos->machines[i].name, g_free);
    }
}

const char *machine_url(Machine *machine)
{
    Proc *proc = machine->proc;
    if (proc->ended || (proc->url == NULL && !proc_serves(proc->world, proc))) {
        return NULL;
    }
    return proc->url;
}

/* ---- ending ---- */

void machine_kill(Machine *machine)
{
    if (!machine->proc->ended) {
        machine->proc->excused = TRUE;
        g_subprocess_force_exit(machine->proc->process);
    }
}

void machine_freeze(Machine *machine)
{
    g_subprocess_send_signal(machine->proc->process, SIGSTOP);
    machine->frozen = TRUE;
}

void machine_thaw(Machine *machine)
{
    g_subprocess_send_signal(machine->proc->process, SIGCONT);
    machine->frozen = FALSE;
}

static void judge_end(Machine *machine)
{
    const Proc *proc = machine->proc;
    machine->judged = TRUE;
    machine->ended_us = g_get_monotonic_time();
    if (proc->excused) {
        return;
    }
    if (WIFSIGNALED(proc->status)) {
        chaos_wrong(machine->chaos, "%s was ended by signal %d; see %s", machine->name,
                    WTERMSIG(proc->status), proc->log);
    } else if (WEXITSTATUS(proc->status) != 0) {
        chaos_wrong(machine->chaos, "%s ended with exit code %d; see %s", machine->name,
                    WEXITSTATUS(proc->status), proc->log);
    } else {
        chaos_say(machine->chaos, "%s has ended by itself", machine->name);
    }
}

void machines_look(Chaos *chaos)
{
    for (guint i = 0; i < CHAOS_MACHINES; i++) {
        Machine *machine = &chaos->machines[i];
        if (!machine->proc->ended) {
            continue;
        }
        if (!machine->judged) {
            judge_end(machine);
        }
        if (!machine->down && g_get_monotonic_time() - machine->ended_us > AGAIN_US) {
            chaos->counters.restarts++;
            start(machine);
        }
    }
}

static gboolean is_free(Machine *machine)
{
    return !machine->taken && machine_url(machine) != NULL;
}

/* Most of what can go wrong goes wrong with who leads. */
static Machine *leading(Chaos *chaos)
{
    GHashTableIter iter;
    gpointer key;
    g_hash_table_iter_init(&iter, chaos->leaders);
    while (g_hash_table_iter_next(&iter, NULL, &key)) {
        const LhLeader *leader = world_get(chaos->world, LH_KIND_LEADER, "%s", (char *)key);
        for (guint i = 0; i < CHAOS_MANAGERS; i++) {
            if (leader != NULL && lh_object_known(&leader->o) &&
                strcmp(leader->instance, chaos->machines[i].name) == 0 &&
                is_free(&chaos->machines[i])) {
                return &chaos->machines[i];
            }
        }
    }
    return NULL;
}

Machine *machine_choose(Chaos *chaos, gboolean manager, gboolean agent)
{
    Machine *free_ones[CHAOS_MACHINES];
    guint n = 0;
    gboolean rather_leader = manager && g_rand_int_range(chaos->rand, 0, agent ? 3 : 6) > 0;
    Machine *leader = rather_leader ? leading(chaos) : NULL;
    if (leader != NULL) {
        return leader;
    }
    for (guint i = 0; i < CHAOS_MACHINES; i++) {
        Machine *machine = &chaos->machines[i];
        if (is_free(machine) && (machine->manager ? manager : agent)) {
            free_ones[n++] = machine;
        }
    }
    return n > 0 ? free_ones[g_rand_int_range(chaos->rand, 0, (gint32)n)] : NULL;
}
