/*
 * Managers and agents as processes on machines: started, stopped, killed, started again under the
 * same name. What lives on is the machine's clock and an agent's disk. Each process has an etcd
 * client of its own, named after the process, so that a commit tells who sent it.
 */
#include "sim.h"

#include <string.h>

static void on_change(const LhObject *before, const LhObject *after, gpointer data)
{
    SimProcess *process = data;
    if ((after != NULL ? after : before)->kind == LH_KIND_OBSERVATION) {
        process->observed = TRUE;
        return; /* etcd does not have it */
    }
    if (before != NULL)
        process->digest -= sim_digest((LhKind)before->kind, before->name, before->create_rev,
                                      before->mod_rev, lh_object_lease(before));
    if (after != NULL)
        process->digest += sim_digest((LhKind)after->kind, after->name, after->create_rev,
                                      after->mod_rev, lh_object_lease(after));
}

static void on_applied(gint64 revision, gpointer data)
{
    SimProcess *process = data;
    gboolean observed = process->observed;
    process->observed = FALSE;
    if (!observed || revision != process->mirror_rev) /* else it has nothing new of etcd */
        sim_check_mirror_applied(process, revision);
}

static void on_regressed(gint64 from, gint64 to, gpointer data)
{
    ((SimProcess *)data)->observed = FALSE; /* what it takes back then is told with the new list */
    sim_check_mirror_regressed(data, from, to);
}

static const LhMirrorFuncs mirror_funcs = {
    .change = on_change,
    .applied = on_applied,
    .regressed = on_regressed,
};

static void tell_clock(gpointer data)
{
    SimProcess *process = data;
    process->etcd_clock = NULL;
    process->clock_done(sim_etcd_wall(process->sim), NULL, process->clock_data);
}

static void ask_clock(gpointer data, void (*done)(gint64, const GError *, gpointer),
                      gpointer done_data)
{
    SimProcess *process = data;
    process->clock_done = done;
    process->clock_data = done_data;
    process->etcd_clock = lh_timer_in(process->env, 5, tell_clock, process);
}

static void cancel_clock(gpointer data)
{
    SimProcess *process = data;
    lh_timer_clear(process->env, &process->etcd_clock);
}

static void make_sweeper(SimProcess *process)
{
    static const char *const roots[] = {SIM_ROOT, NULL};
    process->store = sim_store_new(process);
    const LhSweeperOptions options = {
        .env = process->env,
        .mirror = process->mirror,
        .runtime = process->runtime,
        .store = process->store,
        .roots = roots,
        .etcd_clock = {ask_clock, cancel_clock, process},
    };
    process->sweeper = lh_sweeper_new(&options);
}

/* Each looks at what is its own. */
static void set_errands(const char *controller, const LhErrand *errands, guint n, gpointer data)
{
    SimProcess *process = data;
    lh_sweeper_outside.set(controller, errands, n, process->sweeper);
    sim_probes_set(process->probes, controller, errands, n);
}

static const LhOutside outside = {.set = set_errands};

static void start_manager(SimProcess *process)
{
    g_autofree char *url = g_strdup_printf("http://%s:8083", process->name);
    const LhRuntimeOptions options = {
        .instance = process->client,
        .host = process->name,
        .url = url,
        .version = "sim",
        .pid = process->starts,
        .lease_ttl_s = SIM_LEASE_TTL_S,
    };
    process->metrics = lh_metrics_new();
    lh_runtime_declare_metrics(process->metrics);
    process->mirror = lh_mirror_new(process->env, process->etcd, SIM_PREFIX);
    process->runtime = lh_runtime_new(process->env, process->etcd, process->mirror,
                                      process->metrics, lh_controllers(), &options);
    make_sweeper(process);
    process->probes = sim_probes_new(process);
    lh_runtime_set_outside(process->runtime, &outside, process);
    process->mirror_rev = 0;
    process->applied = process->digest = 0;
    lh_mirror_set_parser(process->mirror, sim_parse, process->sim);
    lh_mirror_listen(process->mirror, &mirror_funcs, process);
    lh_mirror_start(process->mirror);
    lh_runtime_start(process->runtime);
}

static void destroy(Sim *sim, SimProcess *process, const char *client, gint64 number);

static void on_stopped(gpointer data)
{
    SimProcess *process = data;
    sim_later(process->sim, 0, destroy, process, process->client, 0);
}

static void start_agent(SimProcess *process)
{
    static const LhAgentFuncs funcs = {.stopped = on_stopped};
    g_autofree char *url = g_strdup_printf("http://%s:8084", process->name);
    const LhAgentOptions options = {
        .prefix = SIM_PREFIX,
        .pool = process->pool,
        .name = process->name,
        .host = process->name,
        .url = url,
        .set = process->set,
        .zone = process->zone,
        .version = "sim",
        .capacity_bytes = process->capacity_bytes,
        .capacity_items = process->capacity_items,
        .lease_ttl_s = SIM_LEASE_TTL_S,
    };
    gboolean cache = strcmp(process->pool, LH_SIM_POOL) == 0;
    if (cache)
        process->work = sim_work_new(process);
    else
        process->recovery = sim_recovery_new(process);
    process->agent = lh_agent_new(process->env, process->etcd, &options,
                                  cache ? sim_work_base(process->work)
                                        : sim_recovery_base(process->recovery),
                                  &funcs, process);
}

void sim_process_start(SimProcess *process)
{
    Sim *sim = process->sim;
    if (process->state != SIM_DOWN)
        return;
    process->starts++;
    process->doomed = FALSE;
    memset(process->regressed, 0, sizeof process->regressed);
    if (process->unknown == NULL)
        process->unknown = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, g_free);
    g_hash_table_remove_all(process->unknown);
    process->timeline = fake_etcd_timeline(sim->server);
    g_free(process->client);
    process->client = g_strdup_printf("%s#%u", process->name, process->starts);
    sim_trace(sim, "start %s", process->client);
    process->env = sim_machine_new(sim->world, process->client);
    sim_machine_set_wall_offset(process->env, process->wall_offset_ms);
    process->etcd = fake_etcd_connect(sim->server, process->env, process->client);
    process->state = SIM_UP;
    sim_faults_rates(process);
    if (process->is_manager)
        start_manager(process);
    else
        start_agent(process);
}

static void free_parts(SimProcess *process)
{
    g_clear_pointer(&process->sweeper, lh_sweeper_free);
    g_clear_pointer(&process->probes, sim_probes_free);
    g_clear_pointer(&process->store, lh_store_free);
    g_clear_pointer(&process->runtime, lh_runtime_free);
    g_clear_pointer(&process->mirror, lh_mirror_free);
    g_clear_pointer(&process->metrics, lh_metrics_free);
    g_clear_pointer(&process->agent, lh_agent_free);
    g_clear_pointer(&process->work, sim_work_free);
    g_clear_pointer(&process->recovery, sim_recovery_free);
    g_clear_pointer(&process->etcd, lh_etcd_free);
    g_clear_pointer(&process->env, lh_env_free);
    process->state = SIM_DOWN;
}

/* A node may come back larger, smaller, or in another set. */
static void change_agent(SimProcess *process)
{
    Sim *sim = process->sim;
    if (sim->calm || process->is_manager || strcmp(process->pool, LH_SIM_POOL) != 0)
        return;
    if (sim_chance(sim, 8))
        process->capacity_bytes = sim_agent_capacity(sim);
    if (sim_chance(sim, 4))
        process->set = sim_chance(sim, 60) ? "default" : "extra";
}

static void start_again(Sim *sim, SimProcess *process, const char *text, gint64 number)
{
    (void)sim;
    (void)text;
    (void)number;
    if (process->state == SIM_DOWN)
        change_agent(process);
    sim_process_start(process);
}

/* Mostly soon; now and then an agent stays away longer than failureGrace. */
static void come_back(SimProcess *process)
{
    Sim *sim = process->sim;
    gint64 away = sim_chance(sim, 70)   ? sim_between(sim, 50, 4000)
                  : sim_chance(sim, 60) ? sim_between(sim, 4000, 15000)
                                        : sim_between(sim, 15000, 60000);
    sim_later(sim, away, start_again, process, NULL, 0);
}

void sim_process_crash(SimProcess *process)
{
    if (process->state == SIM_DOWN)
        return;
    sim_trace(process->sim, "kill %s", process->client);
    sim_machine_crash(process->env);
    free_parts(process);
    come_back(process);
}

/* @client: the process that has stopped; another one may run by now. */
static void destroy(Sim *sim, SimProcess *process, const char *client, gint64 number)
{
    (void)number;
    if (process->state != SIM_STOPPING || strcmp(process->client, client) != 0)
        return;
    sim_trace(sim, "ended %s", client);
    free_parts(process);
    come_back(process);
}

void sim_process_stop(SimProcess *process)
{
    if (process->state != SIM_UP)
        return;
    sim_trace(process->sim, "stop %s", process->client);
    process->state = SIM_STOPPING;
    if (process->is_manager)
        lh_runtime_stop(process->runtime, on_stopped, process);
    else
        lh_agent_stop(process->agent);
}

void sim_process_clear(SimProcess *process)
{
    free_parts(process);
    g_clear_pointer(&process->disk, g_hash_table_unref);
    g_clear_pointer(&process->unknown, g_hash_table_unref);
    g_free(process->client);
    g_free(process->name);
}

/* "manager-3…" or "node-3…", ended by @end. */
static SimProcess *of_name(Sim *sim, const char *name, char end)
{
    gboolean manager = g_str_has_prefix(name, "manager-");
    const char *digits = manager                           ? name + strlen("manager-")
                         : g_str_has_prefix(name, "node-") ? name + strlen("node-")
                                                           : NULL;
    char *stop;
    if (digits == NULL || !g_ascii_isdigit(*digits))
        return NULL;
    guint64 i = g_ascii_strtoull(digits, &stop, 10) + (manager ? 0 : sim->options.managers);
    gboolean is_one = *stop == end && i < sim->n_processes &&
                      sim->processes[i].is_manager == manager;
    return is_one ? &sim->processes[i] : NULL;
}

SimProcess *sim_process_of_client(Sim *sim, const char *client, gboolean *alive)
{
    SimProcess *process = of_name(sim, client, '#');
    *alive = process != NULL && process->state != SIM_DOWN && strcmp(process->client, client) == 0;
    return process;
}

SimProcess *sim_process_of_node(Sim *sim, const char *node_name)
{
    return of_name(sim, node_name, '\0');
}

SimProcess *sim_any_process(Sim *sim, gboolean managers, gboolean agents)
{
    guint first = managers ? 0 : sim->options.managers;
    guint end = agents ? sim->n_processes : sim->options.managers;
    return &sim->processes[first + (guint)sim_below(sim, end - first)];
}
