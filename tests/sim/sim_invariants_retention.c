/*
 * Who saw etcd go back, or a marker that is newer than it, lets nothing go until somebody has confirmed it: by a
 * Confirmation that was written in this history, after the revision at which it was seen, for a Brake that
 * says so. What came back with a backup is none. Once there is such a Brake it binds everybody, also who was
 * started since, and is neither removed nor called something else without that.
 */
#include "sim.h"

#include <string.h>

#define GROUP "retention"

static const char *const names[SIM_BRAKES] = {"cache-evictor", "snapshot-cleaner"};

static int brake_of(const SimChange *change)
{
    for (int i = 0; i < SIM_BRAKES; i++)
        if (change->kind == LH_KIND_BRAKE && strcmp(change->name, names[i]) == 0)
            return i;
    return -1;
}

/* Whose brake holds it back; -1: nobody's. */
static int lets_go(const SimChange *change)
{
    const LhObject *after = change->after, *before = change->before;
    if (after == NULL || !lh_object_known(after))
        return -1;
    if (change->kind == LH_KIND_DELETION)
        return before == NULL ? 1 : -1;
    if (change->kind == LH_KIND_ORPHAN)
        return ((const LhOrphan *)after)->decided_at >= 0 &&
                       (before == NULL || !lh_object_known(before) ||
                        ((const LhOrphan *)before)->decided_at < 0)
                   ? 1
                   : -1;
    return change->kind == LH_KIND_ASSIGNMENT &&
                   ((const LhAssignment *)after)->action == LH_ACTION_EVICT &&
                   g_strcmp0(((const LhAssignment *)after)->controller, names[0]) == 0
               ? 0
               : -1;
}

void sim_note_confirmation(Sim *sim, const LhObject *object, gint64 revision)
{
    const LhConfirmation *said = (const LhConfirmation *)object;
    if (said != NULL && lh_object_known(object))
        g_hash_table_replace(sim->confirmed, g_strdup(said->plan_hash),
                             g_memdup2(&revision, sizeof revision));
}

/* Of a restoration, and written in this history. */
static const LhBrake *restored(const Sim *sim, const LhObject *object)
{
    const LhBrake *brake = (const LhBrake *)object;
    return brake != NULL && lh_object_known(object) && brake->cause == LH_BRAKE_RESTORED &&
                   object->mod_rev > sim->digest_base
               ? brake
               : NULL;
}

/* Somebody has confirmed it since @revision. */
static gboolean is_confirmed(const Sim *sim, const LhObject *object, gint64 revision)
{
    const LhBrake *brake = restored(sim, object);
    const gint64 *at = brake == NULL || brake->confirmed_at < 0
                           ? NULL
                           : g_hash_table_lookup(sim->confirmed, brake->plan_hash);
    return at != NULL && *at > revision;
}

/* Of a standing Brake, also of one that came back with a backup: the highest of the markers that it is about. */
static gint64 marker_in(const LhObject *object)
{
    const LhBrake *brake = (const LhBrake *)object;
    gint64 highest = 0;
    if (brake == NULL || !lh_object_known(object) || brake->cause != LH_BRAKE_RESTORED)
        return 0;
    for (guint i = 0; brake->markers != NULL && brake->markers[i] != NULL; i++)
        highest = MAX(highest, g_ascii_strtoll(strrchr(brake->markers[i], '@') + 1, NULL, 10));
    return highest;
}

void sim_check_newer_marker(SimProcess *process, gint64 revision)
{
    Sim *sim = process->sim;
    const LhObject *object = sim_get(sim, LH_KIND_BRAKE, names[1]);
    /* When that is confirmed, it is read once more before it is written over; and it stays confirmed, whatever
     * becomes of the Brake. */
    if (revision <= fake_etcd_revision(sim->server) ||
        process->timeline != fake_etcd_timeline(sim->server) || revision == sim->confirmed_marker ||
        is_confirmed(sim, object, 0))
        return;
    sim->counters.newer_markers++;
    if (process->regressed[1])
        return; /* since then */
    process->regressed[1] = TRUE;
    process->regressed_rev[1] = marker_in(object) == revision
                                    ? MAX(((const LhBrake *)object)->revision, sim->digest_base)
                                    : fake_etcd_revision(sim->server);
}

static void check_brake(Sim *sim, const SimChange *change)
{
    const LhBrake *before = restored(sim, change->before);
    const LhBrake *after = (const LhBrake *)change->after;
    if (after != NULL && lh_object_known(&after->o) && after->confirmed_at >= 0 &&
        (change->before == NULL || !lh_object_known(change->before) ||
         ((const LhBrake *)change->before)->confirmed_at < 0)) {
        const gint64 *at = g_hash_table_lookup(sim->confirmed, after->plan_hash);
        if (at == NULL || *at <= after->revision)
            sim_fail(sim, GROUP, "%s is called confirmed, and nobody has confirmed it since",
                     change->key);
    }
    if (before == NULL || is_confirmed(sim, change->before, before->revision) ||
        (after != NULL && lh_object_known(&after->o) && after->cause == LH_BRAKE_RESTORED))
        return;
    sim_fail(sim, GROUP, "%s ends, and nobody has confirmed that etcd was restored", change->key);
}

static void check_goes(Sim *sim, const SimCommit *commit, const SimChange *change, int brake)
{
    const LhObject *object = sim_get(sim, LH_KIND_BRAKE, names[brake]);
    const LhBrake *standing = restored(sim, object);
    if (commit->alive && commit->by->regressed[brake])
        sim_fail(sim, GROUP, "%s is let go by %s, which saw that etcd was restored", change->key,
                 commit->by->client);
    else if (standing != NULL && !is_confirmed(sim, object, standing->revision))
        sim_fail(sim, GROUP, "%s is let go, and nobody has confirmed that etcd was restored",
                 change->key);
}

static void on_commit(Sim *sim, const SimCommit *commit)
{
    for (guint i = 0; i < commit->n && commit->manager; i++) {
        const SimChange *change = &commit->changes[i];
        int brake = lets_go(change);
        if (brake_of(change) >= 0)
            check_brake(sim, change);
        else if (brake >= 0)
            check_goes(sim, commit, change, brake);
    }
}

static void after(Sim *sim, const SimCommit *commit)
{
    for (guint i = 0; i < commit->n; i++) {
        const SimChange *change = &commit->changes[i];
        int brake = brake_of(change);
        if (change->kind == LH_KIND_CONFIRMATION)
            sim_note_confirmation(sim, change->after, commit->commit->revision);
        if (brake >= 0 && commit->manager && restored(sim, change->after) != NULL)
            sim->counters.restored_brakes++;
        if (brake == 1 && is_confirmed(sim, change->after, sim->digest_base))
            sim->confirmed_marker = marker_in(change->after);
        for (guint p = 0; p < sim->options.managers && brake >= 0; p++)
            if (is_confirmed(sim, change->after, sim->processes[p].regressed_rev[brake]))
                sim->processes[p].regressed[brake] = FALSE;
    }
}

const SimInvariants sim_invariants_retention = {GROUP, on_commit, after};
