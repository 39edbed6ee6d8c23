/*
 * What is in force is what people wrote: an Accepted holds the valid spec of the very revision that it
 * names, and goes only when the desired object is gone. So an invalid edit leaves the last good one.
 */
#include "invariants.h"

#include <string.h>

static void check_accepted(Inv *inv, const InvCommit *commit, const InvChange *change)
{
    const LhAccepted *after = (const LhAccepted *)change->after;
    const char *name;
    LhKind kind;
    inv_did(inv, INV_ADMISSION);
    if (!lh_subject_split(change->name, &kind, &name)) {
        inv_fail(inv, INV_ADMISSION, "%s is about nothing", change->key);
        return;
    }
    const LhObject *desired = inv_get(inv, kind, name);
    if (after == NULL) {
        if (desired != NULL)
            inv_fail(inv, INV_ADMISSION, "%s is withdrawn, but somebody still asks for it",
                     change->key);
    } else if (desired == NULL || !lh_object_known(desired)) {
        inv_fail(inv, INV_ADMISSION, "%s: what people wrote is gone or not valid", change->key);
    } else if (after->revision != desired->mod_rev ||
               !lh_object_same(kind, after->parsed, desired)) {
        inv_fail(inv, INV_ADMISSION,
                 "%s speaks of revision %" G_GINT64_FORMAT "; people wrote %" G_GINT64_FORMAT,
                 change->key, after->revision, desired->mod_rev);
    }
    if (!inv_relied_on(inv, INV_ADMISSION, commit, kind, name,
                       desired == NULL ? 0 : desired->mod_rev))
        inv_fail(inv, INV_ADMISSION, "%s: what people wrote was not compared", change->key);
}

static void on_commit(Inv *inv, const InvCommit *commit)
{
    for (guint i = 0; i < commit->n && commit->by == INV_BY_MANAGER; i++) {
        const InvChange *change = &commit->changes[i];
        if (change->kind == LH_KIND_ACCEPTED &&
            (change->after == NULL || lh_object_known(change->after)))
            check_accepted(inv, commit, change);
    }
}

const InvGroup inv_admission = {on_commit, NULL};
