/*
 * What may go and what may come: nothing is ordered away or deleted that the accepted service and the
 * snapshot still want, by the leader's clock, which is off by options.clock_ms at most; nothing is touched
 * while what it depends on does not parse; a replica goes only when no node has it, and comes only for
 * a final, valid, unexpired snapshot. And nothing outside a Brake that was confirmed goes in masses.
 */
#include "invariants.h"

#include <string.h>

#define WINDOW_MS   (9 * 60 * 1000) /* the brake's own is longer */
#define LATELY_MS   20000
#define BRAKE_SLACK 2 /* a reservation that was used may count again while its end is not said */
#define LEDGER      "decided/status/settings/cache-evictor/cache-evictor"

/* TRUE when it may go now. */
static gboolean may_go(Inv *inv, const char *item, const char **why)
{
    const LhObject *replica = inv_get(inv, LH_KIND_REPLICA, item);
    InvWant want = inv_want(inv, item, replica, inv->wall_ms + inv->options.clock_ms, why);
    return want == INV_EXPIRED || want == INV_UNWANTED;
}

/* What it stands for was compared as it is. */
static void check_fate_relied(Inv *inv, const InvCommit *commit, const InvChange *change,
                              const char *item)
{
    g_autofree char *name = item == NULL ? NULL : inv_snapshot_of(item);
    const LhObject *snapshot = name == NULL ? NULL : inv_get(inv, LH_KIND_SNAPSHOT, name);
    if (name != NULL && !inv_relied_on(inv, INV_RETENTION, commit, LH_KIND_SNAPSHOT, name,
                                       snapshot == NULL ? 0 : snapshot->mod_rev))
        inv_fail(inv, INV_RETENTION, "%s: snapshot %s was not compared", change->key, name);
}

/* ---- the brake ---- */

/* The most that was assigned lately: what was counted may have shrunk since. */
static guint assigned_lately(Inv *inv)
{
    GArray *assigned = inv->assigned; /* without what a later one exceeds: the first is the most */
    InvCount now = {inv->now_ms, g_hash_table_size(inv->kinds[LH_KIND_ASSIGNMENT])};
    while (assigned->len > 0 && g_array_index(assigned, InvCount, assigned->len - 1).n <= now.n)
        g_array_set_size(assigned, assigned->len - 1);
    g_array_append_val(assigned, now);
    while (g_array_index(assigned, InvCount, 0).ms + LATELY_MS < inv->now_ms)
        g_array_remove_index(assigned, 0);
    return g_array_index(assigned, InvCount, 0).n;
}

/* Without a confirmed Brake never more than ten, and more than brakePercent, within the window. */
static void check_brake(Inv *inv, const InvChange *change)
{
    const LhBrake *brake = (const LhBrake *)inv_get(inv, LH_KIND_BRAKE, "cache-evictor");
    gint64 percent = inv_settings(inv, "cache-evictor")->brake_percent;
    gint64 now = inv->now_ms;
    guint old = 0, n;
    if (brake != NULL && lh_object_known(&brake->o) && brake->confirmed_at >= 0)
        return;
    g_array_append_val(inv->ordered_ms, now);
    while (g_array_index(inv->ordered_ms, gint64, old) + WINDOW_MS < now)
        old++;
    g_array_remove_range(inv->ordered_ms, 0, old);
    n = inv->ordered_ms->len;
    if (n > 10 + BRAKE_SLACK && n * 100 > percent * (assigned_lately(inv) + n + BRAKE_SLACK))
        inv_fail(inv, INV_RETENTION, "%s is the %u. of %u that are ordered away within the window",
                 change->key, n, assigned_lately(inv));
}

static void check_evict(Inv *inv, const InvCommit *commit, const InvChange *change)
{
    g_autofree char *item = lh_name_part(change->name, 2);
    const char *why = "";
    inv->counters.evictions++;
    inv_did(inv, INV_RETENTION);
    check_fate_relied(inv, commit, change, item);
    if (inv_is_move(change))
        return; /* another copy stays: invariants_drain.c */
    if (item == NULL || !may_go(inv, item, &why))
        inv_fail(inv, INV_RETENTION, "%s is ordered away, but %s", change->key, why);
    check_brake(inv, change);
}

static void check_replica_gone(Inv *inv, const InvCommit *commit, const InvChange *change)
{
    const char *why = "";
    inv_did(inv, INV_RETENTION);
    if (!may_go(inv, change->name, &why))
        inv_fail(inv, INV_RETENTION, "%s is deleted, but %s", change->key, why);
    check_fate_relied(inv, commit, change, change->name);
}

static void check_replica_came(Inv *inv, const InvCommit *commit, const InvChange *change)
{
    const LhReplica *replica = (const LhReplica *)change->after;
    const LhSnapshot *snapshot = (const LhSnapshot *)inv_get(inv, LH_KIND_SNAPSHOT,
                                                             replica->snapshot);
    g_autofree char *service = g_strconcat("services/", replica->service, NULL);
    const LhService *spec = lh_accepted_spec(inv_get(inv, LH_KIND_ACCEPTED, service),
                                             LH_KIND_SERVICE);
    gint64 earliest = commit->wall_ms - (commit->now_ms - commit->earliest_ms);
    gint64 late = inv->options.clock_ms + inv->options.late_ms;
    inv_did(inv, INV_RETENTION);
    if (snapshot == NULL || !lh_object_known(&snapshot->o) || snapshot->live)
        inv_fail(inv, INV_RETENTION, "%s: its snapshot is not there, or still being written",
                 change->key);
    else if (inv_get(inv, LH_KIND_DELETION, replica->snapshot) != NULL)
        inv_fail(inv, INV_RETENTION, "%s: its snapshot is being deleted", change->key);
    else if (spec == NULL || strcmp(snapshot->service, replica->service) != 0)
        inv_fail(inv, INV_RETENTION, "%s: its service is not accepted", change->key);
    else if (spec->paused)
        inv_fail(inv, INV_RETENTION, "%s: its service is paused", change->key);
    else if (!g_strv_contains(spec->cache_sets, replica->set) ||
             replica->ordinal >= spec->cache_replicas)
        inv_fail(inv, INV_RETENTION, "%s: its service wants no such replica", change->key);
    else if (replica->expires_at != snapshot->end_time + spec->cache_window_ms)
        inv_fail(inv, INV_RETENTION, "%s: its expiry is not endTime + window", change->key);
    else if (!commit->late && replica->expires_at < earliest - late)
        inv_fail(inv, INV_RETENTION, "%s: it has been expired for %" G_GINT64_FORMAT " ms",
                 change->key, earliest - replica->expires_at);
    else if (!inv_relied_on(inv, INV_RETENTION, commit, LH_KIND_SNAPSHOT, replica->snapshot,
                            snapshot->o.mod_rev) ||
             !inv_relied_on(inv, INV_RETENTION, commit, LH_KIND_DELETION, replica->snapshot, 0))
        inv_fail(inv, INV_RETENTION, "%s: its snapshot or a Deletion was not compared",
                 change->key);
}

/* Somebody wrote over what the brake remembers. */
static void check_ledger(Inv *inv, const InvCommit *commit)
{
    if (commit->by == INV_BY_NOBODY && strcmp(commit->changes[0].key, LEDGER) == 0)
        g_array_set_size(inv->ordered_ms, 0);
}

static void on_commit(Inv *inv, const InvCommit *commit)
{
    check_ledger(inv, commit);
    for (guint i = 0; i < commit->n && commit->by == INV_BY_MANAGER; i++) {
        const InvChange *change = &commit->changes[i];
        if (change->kind == LH_KIND_REPLICA && change->event->is_delete)
            check_replica_gone(inv, commit, change);
        else if (change->kind == LH_KIND_ASSIGNMENT && change->after != NULL &&
                 inv_is_cache(change->name) && lh_object_known(change->after) &&
                 ((const LhAssignment *)change->after)->action == LH_ACTION_EVICT &&
                 g_strcmp0(((const LhAssignment *)change->after)->controller, "cluster-monitor") !=
                     0)
            check_evict(inv, commit, change);
    }
}

static void after(Inv *inv, const InvCommit *commit)
{
    assigned_lately(inv);
    for (guint i = 0; i < commit->n && commit->by == INV_BY_MANAGER; i++) {
        const InvChange *change = &commit->changes[i];
        if (change->kind != LH_KIND_REPLICA)
            continue;
        if (change->after == NULL && inv_assignments_of(inv, INV_POOL, change->name) != NULL)
            inv_fail(inv, INV_RETENTION, "%s is deleted while a node has it", change->key);
        else if (change->after != NULL && change->before == NULL &&
                 lh_object_known(change->after) && !inv_is_restored(change->name))
            check_replica_came(inv, commit, change);
    }
}

const InvGroup inv_retention = {on_commit, after};
