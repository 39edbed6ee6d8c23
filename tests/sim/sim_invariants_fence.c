/*
 * Fences, as far as they concern the processes: a leader writes only when its mirror shows that it leads;
 * and who does not know what became of a write of its own voids it before it writes anything more.
 */
#include "sim.h"

#include <string.h>

#define GROUP "fence"

static InvFence fence_of(const Sim *sim, const SimCommit *commit)
{
    return inv_fence_compared(&sim->model, commit->commit->compares, commit->commit->n_compares);
}

/* ---- unknown outcomes ---- */

static gboolean is_of_key(gpointer text, gpointer value, gpointer key)
{
    (void)value;
    return g_str_has_prefix(text, key) && ((const char *)text)[strlen(key)] == ' ';
}

/* Rewritten: what was unknown is void. */
static void note_leader_key(const SimCommit *commit, const SimChange *change)
{
    if (commit->alive)
        g_hash_table_foreach_remove(commit->by->unknown, is_of_key,
                                    (gpointer)change->event->kv.key);
}

static char *fence_text(const InvFence *fence)
{
    return g_strdup_printf("%s %" G_GINT64_FORMAT, fence->key, fence->mod);
}

void sim_check_unknown(const char *client, const LhTxnRequest *txn, gpointer data)
{
    Sim *sim = data;
    InvFence fence = inv_fence_compared(&sim->model, txn->compares, txn->n_compares);
    gboolean alive;
    SimProcess *process = sim_process_of_client(sim, client, &alive);
    gint64 now = sim_now(sim);
    /* Events are for people: they are dropped when in doubt. */
    if (fence.epoch == 0 || !alive || txn->n_success == 0 ||
        g_str_has_prefix(txn->success[0].key, SIM_PREFIX "events/"))
        return;
    char *text = fence_text(&fence);
    if (g_hash_table_contains(process->unknown, text))
        g_free(text);
    else
        g_hash_table_insert(process->unknown, text, g_memdup2(&now, sizeof now));
}

static void check_voided(Sim *sim, const SimCommit *commit)
{
    InvFence fence = fence_of(sim, commit);
    gint64 sent = commit->commit->sent_ms - sim_machine_mono_offset(sim->server_env);
    if (fence.epoch == 0 || !commit->alive)
        return;
    g_autofree char *text = fence_text(&fence);
    const gint64 *since = g_hash_table_lookup(commit->by->unknown, text);
    if (since != NULL && sent > *since)
        sim_fail(sim, GROUP,
                 "%s wrote %s %" G_GINT64_FORMAT
                 " ms after an outcome under the same fence was unknown",
                 commit->by->client, commit->changes[0].key, sent - *since);
}

/* ---- what it knows ---- */

static void check_shown(Sim *sim, const SimCommit *commit)
{
    InvFence fence = fence_of(sim, commit);
    if (fence.epoch != 0 && commit->alive && commit->by->mirror_rev < fence.epoch)
        sim_fail(sim, GROUP,
                 "%s was written by %s under epoch %" G_GINT64_FORMAT
                 "; its mirror is at %" G_GINT64_FORMAT " and cannot show that it leads",
                 commit->changes[0].key, commit->by->client, fence.epoch, commit->by->mirror_rev);
}

static void on_commit(Sim *sim, const SimCommit *commit)
{
    if (!commit->manager || commit->commit->cause != FAKE_BY_TXN)
        return;
    if (!g_str_has_prefix(commit->changes[0].key, "events/"))
        check_voided(sim, commit);
    if (!g_str_has_prefix(commit->changes[0].key, "leaders/"))
        check_shown(sim, commit);
    for (guint i = 0; i < commit->n; i++)
        if (g_str_has_prefix(commit->changes[i].key, "leaders/"))
            note_leader_key(commit, &commit->changes[i]);
}

const SimInvariants sim_invariants_fence = {GROUP, on_commit, NULL};
