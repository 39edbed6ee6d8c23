/*
 * With --recorded: what a watch would have told of the run is judged once more at its end, as the history of a
 * real etcd would be (tests/invariants/recorded.h). It must find nothing in runs that are good. After a
 * restoration etcd's history is another one: there the recording ends.
 */
#include "sim.h"

#define GROUP "recorded"

void sim_recorded_begin(Sim *sim)
{
    if (sim->options.recorded)
        sim->recorded = recorded_new(SIM_PREFIX);
}

/* What operators do past the API: all but what people write. */
static gboolean is_by_hand(const SimCommit *commit)
{
    const char *key = commit->changes[0].key;
    return commit->commit->cause == FAKE_BY_OPERATOR && !g_str_has_prefix(key, "desired/") &&
           !g_str_has_prefix(key, "published/");
}

void sim_recorded_commit(Sim *sim, const SimCommit *commit)
{
    if (sim->recorded == NULL || commit->commit->timeline != 0)
        return;
    g_autofree LhEtcdEvent *events = g_new(LhEtcdEvent, commit->n);
    for (guint i = 0; i < commit->n; i++)
        events[i] = *commit->changes[i].event;
    recorded_add(sim->recorded, events, commit->n, sim_wall(sim), sim_wall(sim));
    if (is_by_hand(commit))
        recorded_by_hand(sim->recorded, commit->commit->revision);
}

void sim_recorded_end(Sim *sim)
{
    const RecordedTolerance tolerance = {.clock_ms = SIM_CLOCK_MS, .late_ms = 30000};
    RecordedResult result;
    if (sim->recorded == NULL)
        return;
    recorded_check(sim->recorded, &tolerance, &result);
    if (sim->failed)
        sim_trace(sim, "recorded: %" G_GUINT64_FORMAT " violations", result.violations);
    for (guint i = 0; i < result.said->len; i++) {
        if (sim->failed)
            sim_trace(sim, "recorded: %s", (char *)g_ptr_array_index(result.said, i));
        else
            sim_fail(sim, GROUP, "%s", (char *)g_ptr_array_index(result.said, i));
    }
    recorded_result_clear(&result);
    recorded_free(sim->recorded);
}
