/*
 * Who saw etcd go back orders nothing away until somebody has confirmed it: by a Confirmation that was
 * written in this history, after the revision at which it was seen. What came back with a backup is none.
 */
#include "sim.h"

#include <string.h>

#define GROUP "retention"

static void note_confirmation(Sim *sim, const SimCommit *commit, const SimChange *change)
{
    const LhConfirmation *said = (const LhConfirmation *)change->after;
    if (change->kind == LH_KIND_CONFIRMATION && said != NULL && lh_object_known(change->after))
        g_hash_table_replace(sim->confirmed, g_strdup(said->plan_hash),
                             g_memdup2(&commit->commit->revision, sizeof(gint64)));
}

static gboolean is_confirmed(const Sim *sim, const LhObject *object, const SimProcess *process)
{
    const LhBrake *brake = (const LhBrake *)object;
    if (brake == NULL || !lh_object_known(object) || brake->confirmed_at < 0)
        return FALSE;
    const gint64 *revision = g_hash_table_lookup(sim->confirmed, brake->plan_hash);
    return revision != NULL && *revision > process->regressed_rev;
}

static void on_commit(Sim *sim, const SimCommit *commit)
{
    for (guint i = 0; i < commit->n && commit->manager; i++) {
        const SimChange *change = &commit->changes[i];
        gboolean evicts = change->kind == LH_KIND_ASSIGNMENT && change->after != NULL &&
                          inv_is_cache(change->name) && lh_object_known(change->after) &&
                          ((const LhAssignment *)change->after)->action == LH_ACTION_EVICT;
        if (evicts && commit->alive && commit->by->regressed &&
            !is_confirmed(sim, sim_get(sim, LH_KIND_BRAKE, "cache-evictor"), commit->by))
            sim_fail(sim, GROUP, "%s is ordered away by %s, which saw etcd go back", change->key,
                     commit->by->client);
    }
}

static void after(Sim *sim, const SimCommit *commit)
{
    for (guint i = 0; i < commit->n; i++) {
        const SimChange *change = &commit->changes[i];
        note_confirmation(sim, commit, change);
        for (guint p = 0; p < sim->options.managers && change->kind == LH_KIND_BRAKE; p++)
            if (strcmp(change->name, "cache-evictor") == 0 &&
                is_confirmed(sim, change->after, &sim->processes[p]))
                sim->processes[p].regressed = FALSE;
    }
}

const SimInvariants sim_invariants_retention = {GROUP, on_commit, after};
