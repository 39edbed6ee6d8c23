/*
 * Every commit comes through here: its changes are typed, shown to the groups of invariants before and
 * after they are in the model, counted and traced. A controller that comes later adds its row.
 */
#include "sim.h"

#include <string.h>

static const SimInvariants *const groups[] = {
    &sim_invariants_fence,    &sim_invariants_placement, &sim_invariants_retention,
    &sim_invariants_protocol, &sim_invariants_admission, &sim_invariants_health,
};

static SimChange type_change(Sim *sim, const FakeCommit *commit, gsize i)
{
    const LhEtcdEvent *event = fake_commit_event(commit, i);
    const LhKv *kv = &event->kv;
    SimChange change = {
        .event = event,
        .prev = fake_commit_prev(commit, i),
        .key = g_str_has_prefix(kv->key, SIM_PREFIX) ? kv->key + strlen(SIM_PREFIX) : kv->key,
    };
    if (!lh_key_split(change.key, &change.kind, &change.name)) {
        change.kind = LH_N_KINDS;
        change.name = change.key;
        return change;
    }
    change.before = lh_object_ref(sim_get(sim, change.kind, change.name));
    if (!event->is_delete)
        change.after = lh_object_parse(change.kind, change.name, kv->value, kv->value_len,
                                       kv->create_rev, kv->mod_rev, kv->lease);
    return change;
}

static void count_change(Sim *sim, const SimChange *change)
{
    SimCounters *counters = &sim->counters;
    const LhItem *item = (const LhItem *)change->after;
    gboolean known = change->after != NULL && lh_object_known(change->after);
    if (change->kind == LH_KIND_ITEM && known && item->state == LH_ITEM_LIVE &&
        (change->before == NULL || !lh_object_known(change->before) ||
         ((const LhItem *)change->before)->state != LH_ITEM_LIVE))
        counters->live++;
    else if (change->kind == LH_KIND_NODE && change->before == NULL)
        counters->registrations++;
    else if (change->kind == LH_KIND_REPLICA && change->before == NULL)
        counters->replicas++;
    else if (change->kind == LH_KIND_BRAKE && change->before == NULL)
        counters->brakes++;
}

gboolean sim_compares(const FakeCommit *commit, const char *key, LhCompareTarget target,
                      gint64 *number)
{
    for (gsize i = 0; i < commit->n_compares; i++) {
        const LhCompare *compare = &commit->compares[i];
        if (compare->target == target && compare->result == LH_CMP_EQUAL &&
            compare->range_end == NULL && strcmp(compare->key, key) == 0) {
            *number = compare->number;
            return TRUE;
        }
    }
    return FALSE;
}

gboolean sim_relied_on(const FakeCommit *commit, LhKind kind, const char *name, gint64 mod_rev)
{
    g_autofree char *key = lh_key(kind, name);
    g_autofree char *whole = g_strconcat(SIM_PREFIX, key, NULL);
    gint64 number;
    return sim_compares(commit, whole, LH_CMP_MOD, &number) && number == mod_rev;
}

void sim_check_commit(const FakeCommit *fake, gpointer data)
{
    Sim *sim = data;
    g_autofree SimChange *changes = g_new0(SimChange, fake->n_events);
    SimCommit commit = {.commit = fake, .changes = changes, .n = (guint)fake->n_events};
    commit.by = sim_process_of_client(sim, fake->client, &commit.alive);
    commit.manager = commit.by != NULL && commit.by->is_manager;
    commit.agent = commit.by != NULL && !commit.by->is_manager;
    for (guint i = 0; i < commit.n; i++)
        changes[i] = type_change(sim, fake, i);
    sim->counters.commits++;
    sim_trace_commit(sim, &commit);
    for (guint i = 0; i < G_N_ELEMENTS(groups); i++)
        if (groups[i]->commit != NULL)
            groups[i]->commit(sim, &commit);
    sim_model_apply(sim, &commit);
    for (guint i = 0; i < G_N_ELEMENTS(groups); i++)
        if (groups[i]->after != NULL)
            groups[i]->after(sim, &commit);
    sim_faults_commit(sim, &commit);
    for (guint i = 0; i < commit.n; i++) {
        if (commit.by != NULL)
            count_change(sim, &changes[i]);
        lh_object_unref(changes[i].before);
        lh_object_unref(changes[i].after);
    }
}
