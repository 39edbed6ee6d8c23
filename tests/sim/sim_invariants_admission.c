/*
 * What is in force is what people wrote: an Accepted holds the valid spec of the very revision that it
 * names, and goes only when the desired object is gone. So an invalid edit leaves the last good one.
 */
#include "sim.h"

#include <string.h>

#define GROUP "admission"

static void check_accepted(Sim *sim, const SimCommit *commit, const SimChange *change)
{
    const LhAccepted *after = (const LhAccepted *)change->after;
    const char *name;
    LhKind kind;
    if (!lh_subject_split(change->name, &kind, &name)) {
        sim_fail(sim, GROUP, "%s is about nothing", change->key);
        return;
    }
    const LhObject *desired = sim_get(sim, kind, name);
    if (after == NULL) {
        if (desired != NULL)
            sim_fail(sim, GROUP, "%s is withdrawn, but somebody still asks for it", change->key);
    } else if (desired == NULL || !lh_object_known(desired)) {
        sim_fail(sim, GROUP, "%s: what people wrote is gone or not valid", change->key);
    } else if (after->revision != desired->mod_rev ||
               !lh_object_same(kind, after->parsed, desired)) {
        sim_fail(sim, GROUP,
                 "%s speaks of revision %" G_GINT64_FORMAT "; people wrote %" G_GINT64_FORMAT,
                 change->key, after->revision, desired->mod_rev);
    }
    if (!sim_relied_on(commit->commit, kind, name, desired == NULL ? 0 : desired->mod_rev))
        sim_fail(sim, GROUP, "%s: what people wrote was not compared", change->key);
}

static void on_commit(Sim *sim, const SimCommit *commit)
{
    for (guint i = 0; i < commit->n && commit->manager; i++) {
        const SimChange *change = &commit->changes[i];
        if (change->kind == LH_KIND_ACCEPTED &&
            (change->after == NULL || lh_object_known(change->after)))
            check_accepted(sim, commit, change);
    }
}

const SimInvariants sim_invariants_admission = {GROUP, on_commit, NULL};
