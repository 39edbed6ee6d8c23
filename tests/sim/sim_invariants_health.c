/*
 * A node is said to be failed only when its registration has been gone for a full lease TTL, and that
 * is final. A leader measures by its own wall clock: one whose clock has jumped meanwhile may be
 * early, and is not held to it here.
 */
#include "sim.h"

#include <string.h>

#define GROUP "health"

static void check_failed(Sim *sim, const SimCommit *commit, const SimChange *change)
{
    const LhHealth *health = (const LhHealth *)change->after;
    const char *id = strchr(change->name, '/');
    const gint64 *gone = id == NULL ? NULL : g_hash_table_lookup(sim->model.gone_ms, id + 1);
    if (sim_get(sim, LH_KIND_NODE, change->name) != NULL)
        sim_fail(sim, GROUP, "%s is called failed; it is registered", change->key);
    else if (gone != NULL && commit->by->clock_jumped_ms < *gone &&
             sim_now(sim) - *gone < health->lease_ttl_ms)
        sim_fail(sim, GROUP, "%s is called failed %" G_GINT64_FORMAT " ms after it went",
                 change->key, sim_now(sim) - *gone);
}

static void check_health(Sim *sim, const SimCommit *commit, const SimChange *change)
{
    const LhObject *node = sim_get(sim, LH_KIND_NODE, change->name);
    const LhHealth *before = (const LhHealth *)change->before;
    const LhHealth *after = (const LhHealth *)change->after;
    gboolean was_failed = before != NULL && lh_object_known(&before->o) &&
                          before->state == LH_HEALTH_FAILED;
    if (was_failed && after != NULL && after->state != LH_HEALTH_FAILED)
        sim_fail(sim, GROUP, "%s was failed, which is final; it is called %s", change->key,
                 lh_health_state_name(after->state));
    if (after == NULL && !was_failed)
        sim_fail(sim, GROUP, "%s is forgotten before it failed", change->key);
    if (after != NULL && after->state == LH_HEALTH_FAILED && !was_failed)
        check_failed(sim, commit, change);
    if (!sim_relied_on(commit->commit, LH_KIND_NODE, change->name,
                       node == NULL ? 0 : node->mod_rev))
        sim_fail(sim, GROUP, "%s: the registration was not compared", change->key);
}

static void on_commit(Sim *sim, const SimCommit *commit)
{
    for (guint i = 0; i < commit->n && commit->manager; i++) {
        const SimChange *change = &commit->changes[i];
        if (change->kind == LH_KIND_HEALTH &&
            (change->after == NULL || lh_object_known(change->after)))
            check_health(sim, commit, change);
    }
}

const SimInvariants sim_invariants_health = {GROUP, on_commit, NULL};
