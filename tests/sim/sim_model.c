/*
 * The simulation's own view of etcd: the model of tests/invariants, and for each revision one number for
 * all that was there, with which mirrors are compared.
 */
#include "sim.h"

#include <string.h>

static void on_violation(InvGroupId group, const char *text, gpointer data)
{
    sim_fail(data, inv_group_name(group), "%s", text);
}

void sim_model_init(Sim *sim)
{
    const InvOptions options = {
        .prefix = SIM_PREFIX,
        .clock_ms = SIM_CLOCK_MS,
        .late_ms = SIM_LATE_MS,
        .grace_ms = SIM_GRACE_MS,
        .reserve = SIM_RESERVE,
        .fail = on_violation,
        .parse = sim_parse,
        .data = sim,
    };
    inv_init(&sim->model, &options);
    sim->digests = g_array_new(FALSE, FALSE, sizeof(guint64));
}

void sim_model_clear(Sim *sim)
{
    inv_clear(&sim->model);
    g_array_unref(sim->digests);
}

const LhObject *sim_get(const Sim *sim, LhKind kind, const char *name)
{
    return inv_get(&sim->model, kind, name);
}

/* ---- one number for all that exists ---- */

static guint64 stir(guint64 sum, guint64 more)
{
    sum = (sum ^ more) * G_GUINT64_CONSTANT(0x9e3779b97f4a7c15);
    return sum ^ sum >> 29;
}

guint64 sim_digest(LhKind kind, const char *name, gint64 create_rev, gint64 mod_rev, gint64 lease)
{
    guint64 sum = stir(g_str_hash(name), kind);
    sum = stir(sum, (guint64)create_rev);
    sum = stir(sum, (guint64)mod_rev);
    return stir(sum, (guint64)lease);
}

gboolean sim_digest_at(const Sim *sim, gint64 revision, guint64 *out)
{
    gint64 i = revision - sim->digest_base;
    if (i < 0 || i >= sim->digests->len)
        return FALSE;
    *out = g_array_index(sim->digests, guint64, i);
    return TRUE;
}

static guint64 digest_of(const SimChange *change, const LhKv *kv)
{
    return sim_digest(change->kind, change->name, kv->create_rev, kv->mod_rev, kv->lease);
}

static void note_digest(Sim *sim, const SimCommit *commit)
{
    GArray *digests = sim->digests;
    guint64 sum = digests->len == 0 ? 0 : g_array_index(digests, guint64, digests->len - 1);
    if (digests->len == 0)
        sim->digest_base = commit->commit->revision;
    for (guint i = 0; i < commit->n; i++) {
        const SimChange *change = &commit->changes[i];
        if (change->kind == LH_N_KINDS)
            continue;
        if (change->prev != NULL)
            sum -= digest_of(change, change->prev);
        if (!change->event->is_delete)
            sum += digest_of(change, &change->event->kv);
    }
    g_array_append_val(digests, sum);
}

void sim_model_apply(Sim *sim, const SimCommit *commit)
{
    note_digest(sim, commit);
    inv_apply(&sim->model, &commit->judged);
}

static void read_again(const LhKv *kv, gpointer data)
{
    Sim *sim = data;
    InvChange change = inv_restored_key(&sim->model, kv);
    if (change.kind != LH_N_KINDS)
        g_array_index(sim->digests, guint64, 0) += digest_of(&change, kv);
    if (change.kind == LH_KIND_CONFIRMATION)
        sim_note_confirmation(sim, change.after, kv->mod_rev);
    inv_change_clear(&change);
}

/* A Confirmation that the backup does not have; an earlier one of the same plan that it has is read again. */
static gboolean is_lost(gpointer hash, gpointer revision, gpointer data)
{
    (void)hash;
    return *(const gint64 *)revision > fake_etcd_revision(((Sim *)data)->server);
}

void sim_model_restored(Sim *sim)
{
    g_hash_table_foreach_remove(sim->confirmed, is_lost, sim);
    sim->confirmed_marker = 0;
    g_autofree char *end = lh_etcd_prefix_end(SIM_PREFIX);
    inv_restored(&sim->model, sim_now(sim), sim_wall(sim));
    g_array_set_size(sim->digests, 0);
    g_array_set_size(sim->digests, 1);
    g_array_index(sim->digests, guint64, 0) = 0;
    sim->digest_base = fake_etcd_revision(sim->server);
    fake_etcd_foreach(sim->server, SIM_PREFIX, end, 0, read_again, sim);
}
