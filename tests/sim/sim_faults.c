/*
 * What goes wrong: processes, networks, etcd, clocks. Which kinds of faults happen at all, and how
 * often, is chosen by the seed. Each fault that lasts ends by a SimLater, so that when the faults end
 * everything heals at once.
 */
#include "sim.h"

#include <string.h>

#define CRASH_AT_COMMIT 700 /* one in so many commits of managers and agents */
#define FAR_OFF_MS      (3 * 3600 * 1000)
#define AFTER_COMMIT_MS 5 /* a write that was sent has been committed by then */

/* ---- processes ---- */

static SimProcess *any_up(Sim *sim, gboolean managers, gboolean agents)
{
    SimProcess *process = sim_any_process(sim, managers, agents);
    return process->state == SIM_UP ? process : NULL;
}

static void crash_manager(Sim *sim)
{
    SimProcess *process = any_up(sim, TRUE, FALSE);
    if (process == NULL)
        return;
    sim->counters.crashes++;
    sim_process_crash(process);
}

static void crash_agent(Sim *sim)
{
    SimProcess *process = any_up(sim, FALSE, TRUE);
    if (process == NULL)
        return;
    sim->counters.crashes++;
    sim_process_crash(process);
}

static void crash_doomed(Sim *sim, SimProcess *process, const char *client, gint64 number)
{
    (void)number;
    if (sim->calm || process->state == SIM_DOWN || strcmp(process->client, client) != 0)
        return;
    sim->counters.crashes_at_commit++;
    sim_process_crash(process);
}

static void back_up_to(Sim *sim, guint i)
{
    fake_etcd_backup_free(sim->backups[i]);
    sim->backups[i] = fake_etcd_backup(sim->server);
    sim->backup_ms[i] = sim_now(sim);
    sim->counters.backups++;
    sim_trace(sim, "backup of etcd at revision %" G_GINT64_FORMAT, fake_etcd_revision(sim->server));
}

void sim_faults_commit(Sim *sim, const SimCommit *commit)
{
    if (sim->calm || !commit->alive || commit->commit->cause != FAKE_BY_TXN ||
        sim_off(sim, SIM_PART_COMMIT_CRASHES))
        return;
    for (guint i = 0; i < commit->n; i++)
        if (commit->changes[i].kind == LH_KIND_BRAKE && commit->changes[i].after != NULL)
            back_up_to(sim, SIM_BACKUPS - 1);
    if (sim_below(sim, CRASH_AT_COMMIT * 100) < sim->intensity)
        sim_later(sim, 0, crash_doomed, commit->by, commit->by->client, 0);
}

static void stop_process(Sim *sim)
{
    SimProcess *process = any_up(sim, TRUE, TRUE);
    if (process == NULL)
        return;
    sim->counters.graceful_stops++;
    sim_process_stop(process);
}

static void end_pause(Sim *sim, SimProcess *process, const char *client, gint64 number)
{
    (void)number;
    if (process->state == SIM_DOWN || strcmp(process->client, client) != 0 ||
        !sim_machine_paused(process->env))
        return;
    sim_trace(sim, "continue %s", client);
    sim_machine_resume(process->env);
}

static void pause_process(Sim *sim)
{
    SimProcess *process = any_up(sim, TRUE, TRUE);
    if (process == NULL || sim_machine_paused(process->env))
        return;
    gint64 ms = sim_chance(sim, 50)   ? sim_between(sim, 50, 4000)
                : sim_chance(sim, 70) ? sim_between(sim, 4000, 15000)
                : sim_chance(sim, 75) ? sim_between(sim, 15000, 90000)
                                      : sim_between(sim, 120000, 400000);
    sim->counters.pauses++;
    sim->counters.long_pauses += ms >= 120000;
    sim->counters.pauses_beyond_lease += ms > SIM_LEASE_TTL_S * 1000;
    sim_trace(sim, "pause %s for %" G_GINT64_FORMAT " ms", process->client, ms);
    sim_machine_pause(process->env);
    sim_later(sim, ms, end_pause, process, process->client, 0);
}

/* ---- networks ---- */

void sim_faults_rates(SimProcess *process)
{
    guint percent = process->sim->intensity;
    const FakeFaultRates rates = {
        .refused = 40 * percent / 100,
        .overloaded = 20 * percent / 100,
        .request_lost = 50 * percent / 100,
        .reply_lost = 60 * percent / 100,
        .late_commit = 60 * percent / 100,
        .stream_closed = 25 * percent / 100,
    };
    gboolean none = process->sim->calm || sim_off(process->sim, SIM_PART_CALL_FAULTS);
    fake_etcd_client_fault_rates(process->etcd, none ? NULL : &rates);
}

static void end_cut(Sim *sim, SimProcess *process, const char *client, gint64 number)
{
    (void)number;
    if (process->state == SIM_DOWN || strcmp(process->client, client) != 0)
        return;
    sim_trace(sim, "heal %s", client);
    fake_etcd_client_cut(process->etcd, FAKE_CUT_NONE);
}

static void cut(Sim *sim)
{
    SimProcess *process = sim_any_process(sim, TRUE, TRUE);
    if (process->state == SIM_DOWN || fake_etcd_client_cut_state(process->etcd) != FAKE_CUT_NONE)
        return;
    FakeCut how = (FakeCut)(1 + sim_below(sim, 3));
    gint64 ms = sim_chance(sim, 60) ? sim_between(sim, 100, 6000) : sim_between(sim, 6000, 40000);
    sim->counters.cuts++;
    sim_trace(sim, "cut %s %s for %" G_GINT64_FORMAT " ms", process->client,
              how == FAKE_CUT_BOTH       ? "off"
              : how == FAKE_CUT_REQUESTS ? "requests"
                                         : "replies",
              ms);
    fake_etcd_client_cut(process->etcd, how);
    sim_later(sim, ms, end_cut, process, process->client, 0);
}

static void reset(Sim *sim)
{
    SimProcess *process = sim_any_process(sim, TRUE, TRUE);
    if (process->state == SIM_DOWN)
        return;
    sim->counters.resets++;
    sim_trace(sim, "reset %s", process->client);
    fake_etcd_client_reset(process->etcd);
}

static void close_streams(Sim *sim)
{
    SimProcess *process = sim_any_process(sim, TRUE, TRUE);
    if (process->state == SIM_DOWN)
        return;
    sim->counters.streams_closed++;
    sim_trace(sim, "close streams of %s", process->client);
    fake_etcd_client_close_streams(process->etcd);
}

static void end_slow(Sim *sim, SimProcess *process, const char *client, gint64 number)
{
    (void)number;
    if (process->state == SIM_DOWN || strcmp(process->client, client) != 0)
        return;
    sim_trace(sim, "%s is connected well again", client);
    fake_etcd_client_slow(process->etcd, 0, 0);
}

/* Calls overtake each other, and the watch is behind what calls say, or the other way round. */
static void slow_down(Sim *sim)
{
    SimProcess *process = sim_any_process(sim, TRUE, TRUE);
    if (process->state == SIM_DOWN)
        return;
    gint64 calls = sim_chance(sim, 60) ? sim_between(sim, 10, 2500) : 0;
    gint64 streams = sim_chance(sim, 60) ? sim_between(sim, 10, 5000) : 0;
    sim->counters.slow_networks++;
    sim_trace(sim, "%s is slow: calls %" G_GINT64_FORMAT " ms, streams %" G_GINT64_FORMAT " ms",
              process->client, calls, streams);
    fake_etcd_client_slow(process->etcd, calls, streams);
    sim_later(sim, sim_between(sim, 2000, 40000), end_slow, process, process->client, 0);
}

/* ---- disks ---- */

static void end_disk(Sim *sim, SimProcess *process, const char *text, gint64 number)
{
    (void)text;
    (void)number;
    sim_trace(sim, "the disk of %s is well again", process->name);
    process->disk_full = FALSE;
    process->disk_slow = 1;
}

static void slow_disk(Sim *sim)
{
    SimProcess *process = sim_any_process(sim, FALSE, TRUE);
    sim->counters.slow_disks++;
    process->disk_slow = (guint)sim_between(sim, 2, 60);
    sim_trace(sim, "the disk of %s is %u times slower", process->name, process->disk_slow);
    sim_later(sim, sim_between(sim, 2000, 60000), end_disk, process, NULL, 0);
}

static void fill_disk(Sim *sim)
{
    SimProcess *process = sim_any_process(sim, FALSE, TRUE);
    sim->counters.full_disks++;
    process->disk_full = TRUE;
    sim_trace(sim, "the disk of %s is full", process->name);
    sim_later(sim, sim_between(sim, 2000, 60000), end_disk, process, NULL, 0);
}

/* ---- etcd ---- */

static void compact(Sim *sim)
{
    gint64 back = sim_chance(sim, 40) ? 0 : sim_between(sim, 0, 60);
    gint64 revision = fake_etcd_revision(sim->server) - back;
    sim_trace(sim, "compact %" G_GINT64_FORMAT, revision);
    if (fake_etcd_compact(sim->server, revision))
        sim->counters.compactions++;
}

static void cut_off(Sim *sim, SimProcess *process, const char *client, gint64 number)
{
    (void)number;
    if (sim->calm || process->state == SIM_DOWN || strcmp(process->client, client) != 0)
        return;
    sim_trace(sim, "cut %s off while it lists", client);
    fake_etcd_client_cut(process->etcd, FAKE_CUT_BOTH);
    sim_later(sim, sim_between(sim, 1000, 50000), end_cut, process, client, 0);
}

/* A manager must list again, and then cannot. */
static void spoil_list(Sim *sim)
{
    SimProcess *process = any_up(sim, TRUE, FALSE);
    if (process == NULL)
        return;
    sim->counters.lists_spoiled++;
    fake_etcd_client_close_streams(process->etcd);
    sim_put(sim, "nowhere/compacted", "x", 0);
    sim_put(sim, "nowhere/compacted", "y",
            0); /* a watch may begin at the compacted revision itself */
    fake_etcd_compact(sim->server, fake_etcd_revision(sim->server));
    if (sim_chance(sim, 50)) /* a page is asked for six times before the list has failed */
        fake_etcd_client_refuse_lists(process->etcd, (guint)sim_between(sim, 3, 20));
    else
        sim_later(sim, sim_between(sim, 50, 200), cut_off, process, process->client, 0);
}

static void elect(Sim *sim)
{
    gint64 ms = sim_between(sim, 50, 7000);
    sim->counters.elections++;
    sim_trace(sim, "etcd has no leader for %" G_GINT64_FORMAT " ms", ms);
    fake_etcd_elect(sim->server, ms);
}

static void thaw(Sim *sim, SimProcess *process, const char *text, gint64 number)
{
    (void)process;
    (void)text;
    (void)number;
    sim_trace(sim, "etcd goes on");
    fake_etcd_thaw(sim->server);
}

static void freeze(Sim *sim)
{
    gint64 ms = sim_between(sim, 200, 16000);
    sim->counters.freezes++;
    sim_trace(sim, "etcd is frozen for %" G_GINT64_FORMAT " ms", ms);
    fake_etcd_freeze(sim->server);
    sim_later(sim, ms, thaw, NULL, NULL, 0);
}

static void start_etcd(Sim *sim, SimProcess *process, const char *text, gint64 number)
{
    (void)process;
    (void)text;
    (void)number;
    sim_trace(sim, "etcd starts");
    fake_etcd_start(sim->server);
}

static void stop_etcd(Sim *sim)
{
    gint64 ms = sim_between(sim, 100, 12000);
    sim->counters.etcd_restarts++;
    sim_trace(sim, "etcd is stopped for %" G_GINT64_FORMAT " ms", ms);
    fake_etcd_stop(sim->server);
    sim_later(sim, ms, start_etcd, NULL, NULL, 0);
}

static void find_space(Sim *sim, SimProcess *process, const char *text, gint64 number)
{
    (void)process;
    (void)text;
    (void)number;
    sim_trace(sim, "etcd has space again");
    fake_etcd_set_nospace(sim->server, FALSE, 0);
}

static void fill(Sim *sim)
{
    gint64 ms = sim_between(sim, 200, 8000);
    sim->counters.nospace++;
    sim_trace(sim, "etcd has no space for %" G_GINT64_FORMAT " ms", ms);
    fake_etcd_set_nospace(sim->server, TRUE, (guint)sim_below(sim, 4));
    sim_later(sim, ms, find_space, NULL, NULL, 0);
}

/* The newer of two backups replaces the older one. */
static void back_up(Sim *sim)
{
    back_up_to(sim, sim->backup_ms[0] > sim->backup_ms[1]);
}

static void restore(Sim *sim)
{
    guint i = (guint)sim_below(sim, SIM_BACKUPS);
    if (sim->backups[i] == NULL)
        return;
    sim->counters.restores++;
    sim_trace(sim, "etcd is restored from the backup of %" G_GINT64_FORMAT " ms",
              sim->backup_ms[i]);
    fake_etcd_restore(sim->server, sim->backups[i]);
    for (guint p = 0; p < sim->n_processes; p++) /* what was on its way never arrives */
        if (sim->processes[p].unknown != NULL)
            g_hash_table_remove_all(sim->processes[p].unknown);
    sim_model_restored(sim);
    sim_people_restored(sim);
}

/* ---- clocks, leases, leaders ---- */

static void jump_clock(Sim *sim)
{
    SimProcess *process = sim_any_process(sim, TRUE, TRUE);
    process->wall_offset_ms = sim_between(sim, -SIM_CLOCK_MS, SIM_CLOCK_MS);
    if (!process->is_manager && sim_chance(sim, 30)) /* no decision reads a node's clock */
        process->wall_offset_ms = sim_between(sim, -FAR_OFF_MS, FAR_OFF_MS);
    sim->counters.clock_jumps++;
    sim_trace(sim, "clock of %s is off by %" G_GINT64_FORMAT " ms", process->name,
              process->wall_offset_ms);
    if (process->state != SIM_DOWN)
        sim_machine_set_wall_offset(process->env, process->wall_offset_ms);
}

static const LhObject *any_object(Sim *sim, LhKind kind, const char *prefix)
{
    const LhObject *found = NULL;
    guint n = 0;
    g_autoptr(GList) names = g_list_sort(g_hash_table_get_keys(sim->model.kinds[kind]),
                                         (GCompareFunc)strcmp);
    for (GList *l = names; l != NULL; l = l->next)
        if (g_str_has_prefix(l->data, prefix) && sim_below(sim, ++n) == 0)
            found = sim_get(sim, kind, l->data);
    return found;
}

static void revoke_lease(Sim *sim)
{
    gboolean node = sim_chance(sim, 60);
    const LhObject *object = any_object(sim, node ? LH_KIND_NODE : LH_KIND_LEADER, "");
    if (object == NULL || lh_object_lease(object) == 0 ||
        !fake_etcd_lease_exists(sim->server, lh_object_lease(object)))
        return;
    sim->counters.revocations++;
    sim_trace(sim, "revoke the lease of %s", object->name);
    fake_etcd_revoke(sim->server, lh_object_lease(object));
}

/* The node must notice, and come back under another id. */
static void unregister(Sim *sim)
{
    const LhObject *node = any_object(sim, LH_KIND_NODE, "");
    if (node == NULL)
        return;
    g_autofree char *key = lh_key(LH_KIND_NODE, node->name);
    sim->counters.unregistered++;
    g_hash_table_add(sim->by_hand, g_strdup(strchr(node->name, '/') + 1));
    sim_delete(sim, key);
}

/* `leasehold leaders move`: all keys that are older than the chosen one go. */
static void move_leader(Sim *sim)
{
    const LhController *const *all = lh_controllers();
    guint n = 0;
    while (all[n] != NULL)
        n++;
    g_autofree char *prefix = g_strconcat(all[sim_below(sim, n)]->name, "/", NULL);
    const LhObject *chosen = any_object(sim, LH_KIND_LEADER, prefix);
    g_autoptr(GList) names = g_list_sort(g_hash_table_get_keys(sim->model.kinds[LH_KIND_LEADER]),
                                         (GCompareFunc)strcmp);
    g_autoptr(GPtrArray) older = g_ptr_array_new_with_free_func(g_free);
    for (GList *l = names; l != NULL && chosen != NULL; l = l->next)
        if (g_str_has_prefix(l->data, prefix) &&
            sim_get(sim, LH_KIND_LEADER, l->data)->create_rev < chosen->create_rev)
            g_ptr_array_add(older, lh_key(LH_KIND_LEADER, l->data));
    sim->counters.leader_moves += older->len > 0;
    for (guint i = 0; i < older->len; i++)
        sim_delete(sim, older->pdata[i]);
}

static void look(Sim *sim)
{
    for (guint i = 0; i < sim->options.managers; i++)
        if (sim->processes[i].state != SIM_DOWN)
            sim_check_mirror_still(&sim->processes[i]);
}

static void examine(Sim *sim)
{
    SimProcess *process = sim_any_process(sim, TRUE, FALSE);
    if (process->state == SIM_UP && sim_check_below(sim, sim_scale(sim)) == 0)
        sim_check_fold(process);
}

const SimActivity sim_faults[] = {
    {"crash a manager", 60000, 0, crash_manager},
    {"crash an agent", 40000, 0, crash_agent},
    {"stop a process", 80000, 0, stop_process},
    {"pause a process", 25000, 0, pause_process},
    {"cut", 25000, 0, cut},
    {"slow network", 50000, 0, slow_down},
    {"slow disk", 70000, 0, slow_disk},
    {"full disk", 150000, 0, fill_disk},
    {"reset", 50000, 0, reset},
    {"close streams", 30000, 0, close_streams},
    {"compact", 15000, 0, compact},
    {"spoil a list", 60000, 0, spoil_list},
    {"etcd election", 70000, 0, elect},
    {"etcd frozen", 150000, 0, freeze},
    {"etcd restart", 180000, 0, stop_etcd},
    {"etcd full", 200000, 0, fill},
    {"back up", 70000, 0, back_up},
    {"restore", 400000, 0, restore},
    {"clock jump", 40000, 0, jump_clock},
    {"revoke", 120000, 0, revoke_lease},
    {"unregister", 200000, 0, unregister},
    {"move a leader", 90000, 0, move_leader},
    {"sicken a node", 40000, 0, sim_probes_sicken},
    {"sicken a pool", 120000, 0, sim_probes_sicken_all},
    {"cut probes", 60000, 0, sim_probes_cut},
    {"bucket", 60000, 0, sim_store_trouble},
    {"look", 700, 2, look},
    {"examine", 20000, 2, examine},
    {NULL, 0, 0, NULL},
};

void sim_faults_end(Sim *sim)
{
    for (guint i = 0; i < sim->n_processes; i++)
        if (sim->processes[i].state != SIM_DOWN)
            sim_faults_rates(&sim->processes[i]);
}

void sim_faults_free(Sim *sim)
{
    for (guint i = 0; i < G_N_ELEMENTS(sim->backups); i++)
        g_clear_pointer(&sim->backups[i], fake_etcd_backup_free);
}

/* ---- injection ---- */

static void crash_injected(Sim *sim, SimProcess *process, const char *client, gint64 number)
{
    (void)number;
    if (process->state == SIM_DOWN || strcmp(process->client, client) != 0)
        return;
    sim->counters.crashes_at_commit++;
    sim_process_crash(process);
}

/* It does nothing more from here on, but is in the middle of sending. */
static void doom(SimProcess *process, gint64 in_ms)
{
    process->doomed = TRUE;
    sim_machine_pause(process->env);
    sim_later(process->sim, in_ms, crash_injected, process, process->client, 0);
}

FakeFault sim_faults_write(const char *client, gpointer data)
{
    Sim *sim = data;
    gboolean alive;
    SimProcess *process = sim_process_of_client(sim, client, &alive);
    if (process == NULL)
        return FAKE_FAULT_NONE;
    if (process->doomed)
        return FAKE_FAULT_REQUEST_LOST;
    process->writes++;
    if (++sim->writes != sim->options.inject_write)
        return FAKE_FAULT_NONE;
    sim_trace(sim, "injection into write %" G_GUINT64_FORMAT ", by %s", sim->writes, client);
    switch (sim->options.inject) {
    case SIM_INJECT_CRASH_BEFORE:
        doom(process, 0);
        return FAKE_FAULT_REQUEST_LOST;
    case SIM_INJECT_CRASH_AFTER:
        doom(process, AFTER_COMMIT_MS);
        return FAKE_FAULT_NONE;
    case SIM_INJECT_REPLY_LOST:
        return FAKE_FAULT_REPLY_LOST;
    case SIM_INJECT_REPLY_LATE:
        return FAKE_FAULT_LATE_COMMIT;
    case SIM_INJECT_NONE:
    case SIM_N_INJECTIONS:
        break;
    }
    return FAKE_FAULT_NONE;
}
