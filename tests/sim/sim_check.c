/*
 * Every commit comes through here: its changes are typed, shown to the groups of invariants before and
 * after they are in the model, counted and traced.
 */
#include "sim.h"

#include <string.h>

static const SimInvariants *const groups[] = {
    &sim_invariants_fence,   &sim_invariants_protocol, &sim_invariants_retention,
    &sim_invariants_cleaner, &sim_invariants_probes,
};

static void count_seed(Sim *sim, const SimChange *change)
{
    const LhAssignment *before = (const LhAssignment *)change->before;
    const LhAssignment *after = (const LhAssignment *)change->after;
    if (after == NULL || !lh_object_known(change->after))
        return;
    if (before == NULL) {
        sim->counters.seeds_begun++;
        sim->counters.windows_told += after->window != NULL && strcmp(after->window, "{}") != 0;
    } else if (lh_object_known(change->before) && before->action == LH_ACTION_LOAD &&
               after->action == LH_ACTION_EVICT) {
        sim->counters.seed_moves++;
    }
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
    else if (change->kind == LH_KIND_ASSIGNMENT &&
             g_str_has_prefix(change->name, SIM_POOL_CRAWL "/"))
        count_seed(sim, change);
}

static void count_judged(Sim *sim)
{
#define X(name, text) sim->counters.name = sim->model.counters.name;
    INV_COUNTERS(X)
#undef X
}

static InvFacts facts_of(Sim *sim, const SimCommit *commit)
{
    const FakeCommit *fake = commit->commit;
    InvFacts facts = {
        .compares = fake->compares,
        .n_compares = fake->n_compares,
        .client = fake->client,
    };
    if (commit->by != NULL) {
        facts.host = commit->by->name;
        facts.unaware = commit->by->timeline != fake_etcd_timeline(sim->server);
    }
    return facts;
}

static void judge(Sim *sim, SimCommit *commit)
{
    const FakeCommit *fake = commit->commit;
    InvFacts facts = facts_of(sim, commit);
    commit->judged = (InvCommit){
        .revision = fake->revision,
        .now_ms = sim_now(sim),
        .earliest_ms = sim_now(sim),
        .wall_ms = sim_wall(sim),
        .by = commit->manager ? INV_BY_MANAGER
              : commit->agent ? INV_BY_AGENT
                              : INV_BY_NOBODY,
        .by_lease = fake->cause == FAKE_BY_REVOKE || fake->cause == FAKE_BY_EXPIRY,
        .by_hand = fake->cause == FAKE_BY_OPERATOR,
        .late = fake->late,
        .changes = commit->changes,
        .n = commit->n,
        .facts = &facts,
    };
    inv_before(&sim->model, &commit->judged);
    for (guint i = 0; i < G_N_ELEMENTS(groups); i++)
        if (groups[i]->commit != NULL)
            groups[i]->commit(sim, commit);
    sim_model_apply(sim, commit);
    inv_after(&sim->model, &commit->judged);
    for (guint i = 0; i < G_N_ELEMENTS(groups); i++)
        if (groups[i]->after != NULL)
            groups[i]->after(sim, commit);
    commit->judged.facts = NULL;
    count_judged(sim);
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
        changes[i] = inv_change(&sim->model, fake_commit_event(fake, i), fake_commit_prev(fake, i));
    sim->counters.commits++;
    sim_trace_commit(sim, &commit);
    sim_recorded_commit(sim, &commit);
    judge(sim, &commit);
    sim_faults_commit(sim, &commit);
    for (guint i = 0; i < commit.n; i++) {
        if (commit.by != NULL)
            count_change(sim, &changes[i]);
        inv_change_clear(&changes[i]);
    }
}
