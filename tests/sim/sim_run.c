/*
 * One run: the world is built from the seed, things happen for a while, then they stop, and what is
 * left must settle. Activities (people, faults) are timers of a machine of their own, the director's,
 * which nothing happens to.
 */
#include "sim.h"

#include <string.h>

#define MIB_PER_AGENT 1000
#define ITEMS         18
#define SETTLED_LEAST 1

typedef struct {
    Sim *sim;
    const SimActivity *activity;
    LhTimer *timer;
    gint64 mean_ms;
    guint n; /* its next occurrence */
} Activity;

typedef struct {
    Sim *sim;
    SimLaterFunc func;
    SimProcess *process;
    char *text;
    gint64 number;
    LhTimer *timer;
} Later;

/* ---- small things ---- */

gint64 sim_now(const Sim *sim)
{
    return sim_world_now_ms(sim->world);
}

gint64 sim_wall(const Sim *sim)
{
    return SIM_WALL_START_MS + sim_now(sim);
}

static guint64 draw(guint64 *state) /* splitmix64 */
{
    guint64 x = *state += G_GUINT64_CONSTANT(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 30)) * G_GUINT64_CONSTANT(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * G_GUINT64_CONSTANT(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

/* A stream of choices that depends on the seed, @name and @n alone. */
static guint64 stream_of(const Sim *sim, const char *name, guint64 n)
{
    guint64 state = sim->options.seed ^ n << 40;
    for (const char *p = name; *p != '\0'; p++) {
        state ^= (guint8)*p;
        draw(&state);
        state = state * G_GUINT64_CONSTANT(1099511628211);
    }
    return draw(&state);
}

guint64 sim_below(Sim *sim, guint64 n)
{
    return draw(sim->stream) % n;
}

guint64 sim_check_below(Sim *sim, guint64 n)
{
    return draw(&sim->check_random) % n;
}

gboolean sim_off(const Sim *sim, SimPart part)
{
    return sim->options.off >> part & 1;
}

guint sim_scale(const Sim *sim)
{
    return MAX(1, sim->options.snapshots / (sim->options.agents * 8));
}

gint64 sim_between(Sim *sim, gint64 low, gint64 high)
{
    return low + (gint64)sim_below(sim, (guint64)(high - low + 1));
}

gboolean sim_chance(Sim *sim, guint percent)
{
    return sim_below(sim, 100) < percent;
}

void sim_run_ms(Sim *sim, gint64 ms)
{
    gint64 end = sim_now(sim) + ms;
    while (!sim->failed && sim_world_next_ms(sim->world) <= end)
        sim_world_step(sim->world);
    if (!sim->failed)
        sim_world_run_until(sim->world, end);
}

void sim_put(Sim *sim, const char *key, const char *value, gint64 lease)
{
    g_autofree char *whole = g_strconcat(SIM_PREFIX, key, NULL);
    fake_etcd_put(sim->server, whole, value, lease);
}

void sim_delete(Sim *sim, const char *key)
{
    g_autofree char *whole = g_strconcat(SIM_PREFIX, key, NULL);
    fake_etcd_delete(sim->server, whole, NULL);
}

const LhKv *sim_kv(const Sim *sim, const char *key)
{
    g_autofree char *whole = g_strconcat(SIM_PREFIX, key, NULL);
    return fake_etcd_get(sim->server, whole, 0);
}

/* ---- later ---- */

static void later_free(gpointer data)
{
    Later *later = data;
    lh_timer_clear(later->sim->director, &later->timer);
    g_free(later->text);
    g_free(later);
}

static void run_later(gpointer data)
{
    Later *later = data;
    Sim *sim = later->sim;
    later->timer = NULL;
    guint at;
    gboolean found = g_ptr_array_find(sim->laters, later, &at);
    g_assert(found);
    g_ptr_array_steal_index(sim->laters, at);
    later->func(sim, later->process, later->text, later->number);
    later_free(later);
}

void sim_later(Sim *sim, gint64 delay_ms, SimLaterFunc func, SimProcess *process, const char *text,
               gint64 number)
{
    Later *later = g_new0(Later, 1);
    *later = (Later){sim, func, process, g_strdup(text), number, NULL};
    if (sim->calm)
        delay_ms = MIN(delay_ms, 100);
    later->timer = lh_timer_in(sim->director, delay_ms, run_later, later);
    g_ptr_array_add(sim->laters, later);
}

/* ---- activities ---- */

static void run_activity(gpointer data);

static void schedule(Activity *activity)
{
    Sim *sim = activity->sim;
    guint64 own = stream_of(sim, activity->activity->name, 2 * activity->n);
    sim->stream = &own;
    gint64 delay = sim_between(sim, activity->mean_ms / 8, activity->mean_ms * 15 / 8);
    sim->stream = &sim->random;
    activity->timer = lh_timer_in(sim->director, delay, run_activity, activity);
}

static void happen(Sim *sim, const Activity *activity)
{
    char *name = g_strdup_printf("%s/%u", activity->activity->name, activity->n);
    guint64 own = stream_of(sim, activity->activity->name, 2 * activity->n + 1);
    gboolean looks = activity->activity->always == 2;
    gboolean left_out = sim->options.only != NULL &&
                        !g_hash_table_contains(sim->options.only, name);
    if (looks || !left_out) {
        sim->stream = &own;
        activity->activity->func(sim);
        sim->stream = &sim->random;
    }
    if (sim->happened != NULL && !looks && !left_out)
        g_ptr_array_add(sim->happened, g_steal_pointer(&name));
    g_free(name);
}

static void run_activity(gpointer data)
{
    Activity *activity = data;
    activity->timer = NULL;
    happen(activity->sim, activity);
    activity->n++;
    schedule(activity);
}

static void activity_free(gpointer data)
{
    Activity *activity = data;
    lh_timer_clear(activity->sim->director, &activity->timer);
    g_free(activity);
}

static gint64 mean_of(const Sim *sim, const SimActivity *row, gboolean faults)
{
    if (faults && row->always == 0)
        return row->mean_ms * 100 / MAX(sim->intensity, 25);
    return row->always == 2 ? row->mean_ms : row->mean_ms / sim_scale(sim);
}

static void start_activities(Sim *sim, const SimActivity *table, gboolean faults)
{
    for (; table->name != NULL; table++) {
        guint64 own = stream_of(sim, table->name, G_MAXUINT32);
        sim->stream = &own;
        gboolean chosen = table->always != 0 ||
                          (sim_chance(sim, 75) && !(faults && sim_off(sim, SIM_PART_FAULTS)));
        sim->stream = &sim->random;
        if (!chosen)
            continue;
        Activity *activity = g_new0(Activity, 1);
        *activity = (Activity){sim, table, NULL, mean_of(sim, table, faults), 0};
        g_ptr_array_add(sim->activities, activity);
        schedule(activity);
    }
}

/* ---- the world ---- */

gint64 sim_agent_capacity(Sim *sim)
{
    return sim_between(sim, MIB_PER_AGENT / 2, MIB_PER_AGENT) * SIM_MIB * sim_scale(sim);
}

static void add_process(Sim *sim, gboolean is_manager, guint slot)
{
    SimProcess *process = &sim->processes[sim->n_processes++];
    process->sim = sim;
    process->is_manager = is_manager;
    process->name = g_strdup_printf("%s-%u", is_manager ? "manager" : "node", slot);
    process->wall_offset_ms = sim_between(sim, -500, 500);
    process->disk_slow = 1;
    if (sim_off(sim, SIM_PART_CLOCKS))
        process->wall_offset_ms = 0;
    if (is_manager)
        return;
    process->pool = slot < sim->options.agents                                 ? LH_SIM_POOL
                    : slot < sim->options.agents + SIM_RECOVERY                ? SIM_POOL_RECOVERY
                    : slot < sim->options.agents + SIM_RECOVERY + SIM_INDEXERS ? SIM_POOL_INDEXER
                                                                               : SIM_POOL_CRAWL;
    process->set = slot % 5 == 4 ? "extra" : "default";
    process->zone = slot % 2 == 0 ? "zone-a" : "zone-b";
    process->capacity_bytes = sim_agent_capacity(sim);
    process->capacity_items = slot < sim->options.agents                  ? ITEMS * sim_scale(sim)
                              : slot < sim->options.agents + SIM_RECOVERY ? 1
                                                                          : 0;
    process->disk = sim_disk_new();
}

static void start_world(Sim *sim)
{
    FakeEtcdOptions options = {
        .fragment_events = sim_chance(sim, 30) ? 3 : 0,
        .lag_permille = sim_chance(sim, 40) ? 60 : 0,
        .auto_compact_revisions = sim_chance(sim, 40) ? sim_between(sim, 20, 400) : 0,
    };
    if (sim_off(sim, SIM_PART_SERVER_MODES))
        options = (FakeEtcdOptions){.fragment_events = 0};
    static const guint intensities[] = {0, 40, 100, 100, 150, 300, 500};
    sim->intensity = intensities[sim_below(sim, G_N_ELEMENTS(intensities))];
    sim->director = sim_machine_new(sim->world, "director");
    sim->server_env = sim_machine_new(sim->world, "etcd");
    sim->server = fake_etcd_new(sim->server_env, &options);
    fake_etcd_on_write(sim->server, sim_faults_write, sim);
    fake_etcd_on_commit(sim->server, sim_check_commit, sim);
    fake_etcd_on_unknown(sim->server, sim_check_unknown, sim);
    sim_trace(sim, "seed %" G_GUINT64_FORMAT ", faults at %u %%", sim->options.seed,
              sim->intensity);
    for (guint i = 0; i < sim->options.managers; i++)
        add_process(sim, TRUE, i);
    for (guint i = 0; i < sim->options.agents + SIM_RECOVERY + SIM_INDEXERS + SIM_CRAWLERS; i++)
        add_process(sim, FALSE, i);
    sim_hands_init(sim);
    sim->grants = sim_grants_new();
    sim_people_begin(sim);
    sim_probes_begin(sim);
    sim_seeds_begin(sim);
    for (guint i = 0; i < sim->n_processes; i++)
        sim_process_start(&sim->processes[i]);
    start_activities(sim, sim_people, FALSE);
    start_activities(sim, sim_faults, TRUE);
}

/* No more faults: what is broken is mended at once. What is to be tried again after that has its time. */
static void calm_down(Sim *sim)
{
    sim_trace(sim, "calm");
    sim->calm = TRUE;
    g_ptr_array_set_size(sim->activities, 0);
    sim_faults_end(sim);
    for (guint n = sim->laters->len; n > 0 && sim->laters->len > 0 && !sim->failed; n--) {
        Later *later = g_ptr_array_steal_index(sim->laters, 0);
        later->func(sim, later->process, later->text, later->number);
        later_free(later);
    }
}

static void count_server(Sim *sim)
{
    const FakeEtcdStats *stats = fake_etcd_stats(sim->server);
    SimCounters *counters = &sim->counters;
    counters->expiries = stats->expiries;
    counters->requests_lost = stats->requests_lost;
    counters->replies_lost = stats->replies_lost;
    counters->late_commits = stats->late_commits;
    counters->steps = sim_world_steps(sim->world);
    counters->simulated_s = (guint64)sim_now(sim) / 1000;
}

static void end_world(Sim *sim)
{
    g_ptr_array_unref(sim->activities);
    g_ptr_array_unref(sim->laters);
    g_hash_table_unref(sim->confirmed);
    g_hash_table_unref(sim->parsed);
    fake_etcd_on_commit(sim->server, NULL, NULL);
    fake_etcd_on_unknown(sim->server, NULL, NULL);
    for (guint i = 0; i < sim->n_processes; i++)
        sim_process_clear(&sim->processes[i]);
    sim_hands_clear(sim);
    fake_etcd_free(sim->server);
    sim_faults_free(sim);
    sim_people_free(sim);
    sim_seeds_free(sim);
    sim_grants_free(sim->grants);
    sim_bucket_free(sim->bucket);
    sim_model_clear(sim);
    sim_trace_clear(sim);
    sim_world_free(sim->world);
}

void sim_run(const SimOptions *options, SimResult *out)
{
    g_autofree Sim *sim = g_new0(Sim, 1);
    sim->options = *options;
    sim->world = sim_world_new(options->seed);
    sim->random = stream_of(sim, "main", 0);
    sim->check_random = stream_of(sim, "checks", 0);
    sim->stream = &sim->random;
    sim->bucket = sim_bucket_new();
    sim->happened = options->record ? g_ptr_array_new_with_free_func(g_free) : NULL;
    sim->activities = g_ptr_array_new_with_free_func(activity_free);
    sim->laters = g_ptr_array_new_with_free_func(later_free);
    sim->parsed = sim_parsed_new();
    sim->confirmed = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, g_free);
    sim_model_init(sim);
    sim_recorded_begin(sim);
    sim_trace_setup(sim);
    start_world(sim);
    while (sim_now(sim) < options->chaos_ms && !sim->failed) {
        sim_run_ms(sim, MIN(60000, options->chaos_ms - sim_now(sim)));
        fake_etcd_history_trim(sim->server, 10);
    }
    calm_down(sim);
    sim_settle(sim);
    sim_recorded_end(sim);
    count_server(sim);
    *out = (SimResult){
        .failed = sim->failed,
        .violation = g_steal_pointer(&sim->violation),
        .tail = sim->failed ? sim_trace_tail(sim) : NULL,
        .hash = sim->hash,
        .counters = sim->counters,
        .ended_ms = sim_now(sim),
        .happened = sim->happened,
        .writes = sim->writes,
    };
    for (guint i = 0; i < sim->n_processes; i++)
        out->by_process[i] = sim->processes[i].writes;
    end_world(sim);
}

void sim_result_clear(SimResult *result)
{
    g_free(result->violation);
    g_free(result->tail);
    if (result->happened != NULL)
        g_ptr_array_unref(result->happened);
    *result = (SimResult){.failed = FALSE};
}
