/*
 * Who saw etcd go back orders nothing away until somebody has confirmed it.
 */
#include "sim.h"

#define GROUP "retention"

static gboolean is_confirmed(const LhObject *object)
{
    const LhBrake *brake = (const LhBrake *)object;
    return brake != NULL && lh_object_known(object) && brake->confirmed_at >= 0;
}

static void on_commit(Sim *sim, const SimCommit *commit)
{
    for (guint i = 0; i < commit->n && commit->manager; i++) {
        const SimChange *change = &commit->changes[i];
        gboolean evicts = change->kind == LH_KIND_ASSIGNMENT && change->after != NULL &&
                          inv_is_cache(change->name) && lh_object_known(change->after) &&
                          ((const LhAssignment *)change->after)->action == LH_ACTION_EVICT;
        if (evicts && commit->alive && commit->by->regressed &&
            !is_confirmed(sim_get(sim, LH_KIND_BRAKE, "cache-evictor")))
            sim_fail(sim, GROUP, "%s is ordered away by %s, which saw etcd go back", change->key,
                     commit->by->client);
    }
}

/* A Confirmation that somebody gave after etcd was restored. */
static void after(Sim *sim, const SimCommit *commit)
{
    gboolean confirmed = FALSE;
    for (guint i = 0; i < commit->n && commit->manager; i++) {
        const SimChange *change = &commit->changes[i];
        confirmed = confirmed || (change->kind == LH_KIND_BRAKE && is_confirmed(change->after));
    }
    for (guint i = 0; i < sim->options.managers && confirmed; i++)
        sim->processes[i].regressed = FALSE;
}

const SimInvariants sim_invariants_retention = {GROUP, on_commit, after};
