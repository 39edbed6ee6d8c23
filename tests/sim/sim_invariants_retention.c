/*
 * What may go and what may come: nothing is ordered away or deleted that the accepted service and the
 * snapshot still want, by the leader's clock, which is off by SIM_CLOCK_MS at most; nothing is touched
 * while what it depends on does not parse; a replica goes only when no node has it, and comes only for
 * a final, valid, unexpired snapshot. And nothing outside a Brake that was confirmed goes in masses.
 */
#include "sim.h"

#include <string.h>

#define GROUP       "retention"
#define WINDOW_MS   (9 * 60 * 1000) /* the brake's own is longer */
#define LATELY_MS   20000
#define BRAKE_SLACK 2 /* a reservation that was used may count again while its end is not said */
#define LEDGER      "decided/status/settings/cache-evictor/cache-evictor"

/* TRUE when it may go now. */
static gboolean may_go(Sim *sim, const char *item, const char **why)
{
    const LhObject *replica = sim_get(sim, LH_KIND_REPLICA, item);
    SimWant want = sim_want(sim, item, replica, sim_wall(sim) + SIM_CLOCK_MS, why);
    return want == SIM_EXPIRED || want == SIM_UNWANTED;
}

/* What it stands for was compared as it is. */
static void check_fate_relied(Sim *sim, const SimCommit *commit, const SimChange *change,
                              const char *item)
{
    g_autofree char *name = item == NULL ? NULL : sim_snapshot_of(item);
    const LhObject *snapshot = name == NULL ? NULL : sim_get(sim, LH_KIND_SNAPSHOT, name);
    if (name != NULL && !sim_relied_on(commit->commit, LH_KIND_SNAPSHOT, name,
                                       snapshot == NULL ? 0 : snapshot->mod_rev))
        sim_fail(sim, GROUP, "%s: snapshot %s was not compared", change->key, name);
}

/* ---- the brake ---- */

/* The most that was assigned lately: what was counted may have shrunk since. */
static guint assigned_lately(Sim *sim)
{
    guint most = g_hash_table_size(sim->model.kinds[LH_KIND_ASSIGNMENT]);
    SimCount now = {sim_now(sim), most};
    guint old = 0;
    g_array_append_val(sim->model.assigned, now);
    for (guint i = 0; i < sim->model.assigned->len; i++) {
        const SimCount *count = &g_array_index(sim->model.assigned, SimCount, i);
        if (count->ms + LATELY_MS < sim_now(sim))
            old = i + 1;
        else
            most = MAX(most, count->n);
    }
    g_array_remove_range(sim->model.assigned, 0, old);
    return most;
}

/* Without a confirmed Brake never more than ten, and more than brakePercent, within the window. */
static void check_brake(Sim *sim, const SimChange *change)
{
    const LhBrake *brake = (const LhBrake *)sim_get(sim, LH_KIND_BRAKE, "cache-evictor");
    gint64 percent = sim_settings(sim, "cache-evictor")->brake_percent;
    gint64 now = sim_now(sim);
    guint old = 0, n;
    if (brake != NULL && lh_object_known(&brake->o) && brake->confirmed_at >= 0)
        return;
    g_array_append_val(sim->model.ordered_ms, now);
    while (g_array_index(sim->model.ordered_ms, gint64, old) + WINDOW_MS < now)
        old++;
    g_array_remove_range(sim->model.ordered_ms, 0, old);
    n = sim->model.ordered_ms->len;
    if (n > 10 + BRAKE_SLACK && n * 100 > percent * (assigned_lately(sim) + n + BRAKE_SLACK))
        sim_fail(sim, GROUP, "%s is the %u. of %u that are ordered away within the window",
                 change->key, n, assigned_lately(sim));
}

/* Who saw etcd go back orders nothing away until somebody has confirmed it. */
static void check_regressed(Sim *sim, const SimCommit *commit, const SimChange *change)
{
    const LhBrake *brake = (const LhBrake *)sim_get(sim, LH_KIND_BRAKE, "cache-evictor");
    gboolean confirmed = brake != NULL && lh_object_known(&brake->o) && brake->confirmed_at >= 0;
    if (commit->alive && commit->by->regressed && !confirmed)
        sim_fail(sim, GROUP, "%s is ordered away by %s, which saw etcd go back", change->key,
                 commit->by->client);
}

static void check_evict(Sim *sim, const SimCommit *commit, const SimChange *change)
{
    g_autofree char *item = lh_name_part(change->name, 2);
    const char *why = "";
    sim->counters.evictions++;
    if (item == NULL || !may_go(sim, item, &why))
        sim_fail(sim, GROUP, "%s is ordered away, but %s", change->key, why);
    check_fate_relied(sim, commit, change, item);
    check_regressed(sim, commit, change);
    check_brake(sim, change);
}

static void check_replica_gone(Sim *sim, const SimCommit *commit, const SimChange *change)
{
    const char *why = "";
    if (!may_go(sim, change->name, &why))
        sim_fail(sim, GROUP, "%s is deleted, but %s", change->key, why);
    check_fate_relied(sim, commit, change, change->name);
}

static void check_replica_came(Sim *sim, const SimCommit *commit, const SimChange *change)
{
    const LhReplica *replica = (const LhReplica *)change->after;
    const LhSnapshot *snapshot = (const LhSnapshot *)sim_get(sim, LH_KIND_SNAPSHOT,
                                                             replica->snapshot);
    g_autofree char *service = g_strconcat("services/", replica->service, NULL);
    const LhService *spec = lh_accepted_spec(sim_get(sim, LH_KIND_ACCEPTED, service),
                                             LH_KIND_SERVICE);
    gint64 late = SIM_CLOCK_MS + SIM_LATE_MS;
    if (snapshot == NULL || !lh_object_known(&snapshot->o) || snapshot->live)
        sim_fail(sim, GROUP, "%s: its snapshot is not there, or still being written", change->key);
    else if (sim_get(sim, LH_KIND_DELETION, replica->snapshot) != NULL)
        sim_fail(sim, GROUP, "%s: its snapshot is being deleted", change->key);
    else if (spec == NULL || strcmp(snapshot->service, replica->service) != 0)
        sim_fail(sim, GROUP, "%s: its service is not accepted", change->key);
    else if (spec->paused)
        sim_fail(sim, GROUP, "%s: its service is paused", change->key);
    else if (!g_strv_contains(spec->cache_sets, replica->set) ||
             replica->ordinal >= spec->cache_replicas)
        sim_fail(sim, GROUP, "%s: its service wants no such replica", change->key);
    else if (replica->expires_at != snapshot->end_time + spec->cache_window_ms)
        sim_fail(sim, GROUP, "%s: its expiry is not endTime + window", change->key);
    else if (!commit->commit->late && replica->expires_at < sim_wall(sim) - late)
        sim_fail(sim, GROUP, "%s: it has been expired for %" G_GINT64_FORMAT " ms", change->key,
                 sim_wall(sim) - replica->expires_at);
    else if (!sim_relied_on(commit->commit, LH_KIND_SNAPSHOT, replica->snapshot,
                            snapshot->o.mod_rev) ||
             !sim_relied_on(commit->commit, LH_KIND_DELETION, replica->snapshot, 0))
        sim_fail(sim, GROUP, "%s: its snapshot or a Deletion was not compared", change->key);
}

/* Somebody wrote over what the brake remembers. */
static void check_ledger(Sim *sim, const SimCommit *commit)
{
    if (commit->by == NULL && strcmp(commit->changes[0].key, LEDGER) == 0)
        g_array_set_size(sim->model.ordered_ms, 0);
}

static void on_commit(Sim *sim, const SimCommit *commit)
{
    check_ledger(sim, commit);
    for (guint i = 0; i < commit->n && commit->manager; i++) {
        const SimChange *change = &commit->changes[i];
        if (change->kind == LH_KIND_REPLICA && change->event->is_delete)
            check_replica_gone(sim, commit, change);
        else if (change->kind == LH_KIND_ASSIGNMENT && change->after != NULL &&
                 lh_object_known(change->after) &&
                 ((const LhAssignment *)change->after)->action == LH_ACTION_EVICT)
            check_evict(sim, commit, change);
    }
}

/* A Confirmation that somebody gave after etcd was restored. */
static void note_confirmed(Sim *sim, const SimChange *change)
{
    const LhBrake *brake = (const LhBrake *)change->after;
    if (change->kind != LH_KIND_BRAKE || brake == NULL || !lh_object_known(&brake->o) ||
        brake->confirmed_at < 0)
        return;
    for (guint i = 0; i < sim->options.managers; i++)
        sim->processes[i].regressed = FALSE;
}

static void after(Sim *sim, const SimCommit *commit)
{
    assigned_lately(sim);
    for (guint i = 0; i < commit->n && commit->manager; i++) {
        const SimChange *change = &commit->changes[i];
        note_confirmed(sim, change);
        if (change->kind != LH_KIND_REPLICA)
            continue;
        if (change->after == NULL && sim_assignments_of(sim, change->name) != NULL)
            sim_fail(sim, GROUP, "%s is deleted while a node has it", change->key);
        else if (change->after != NULL && change->before == NULL && lh_object_known(change->after))
            check_replica_came(sim, commit, change);
    }
}

const SimInvariants sim_invariants_retention = {GROUP, on_commit, after};
