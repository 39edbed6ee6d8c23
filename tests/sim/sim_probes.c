/*
 * Probes: each manager's real prober, with simulated nodes to ask. A node answers, misses, answers with what is
 * no health, or answers now and then; it may be cut off from one manager only, and a manager from all nodes.
 * What each manager was really answered is counted here, apart from the prober: no node is condemned by its
 * probes but by who was refused often enough in a row, under the leadership that condemns it.
 */
#include "controllers/detector.h"
#include "outside/prober.h"
#include "sim.h"

#include <string.h>

#define GROUP    "probes"
#define HEALTHY  "{\"status\":\"healthy\"}"
#define BY_PROBE "probe: "
/* What a plan goes by was observed at most so long before it is committed. */
#define OLD_MS        15000
#define LEAST_DEFAULT 3

/* What was answered about one errand, since who asks leads. */
typedef struct {
    gint64 misses; /* in a row */
    gint64 missed_ms,
        bad_ms; /* when the last one was missed; when the last of enough in a row was */
} Seen;

struct SimProbes {
    SimProcess *process;
    LhProber *prober;
    GHashTable *seen; /* errand's id → Seen */
};

typedef struct {
    SimProbes *probes;
    SimProcess *node; /* NULL: there is no such machine */
    char *id;
    LhTimer *timer;
    gint64 timeout_ms;
    LhProbeDone done;
    gpointer data;
} Question;

/* ---- answers ---- */

static void question_free(Question *question)
{
    lh_timer_clear(question->probes->process->env, &question->timer);
    g_free(question->id);
    g_free(question);
}

static void note(SimProbes *probes, const char *id, gboolean missed)
{
    Sim *sim = probes->process->sim;
    Seen *seen = g_hash_table_lookup(probes->seen, id);
    sim->counters.probes++;
    sim->counters.probes_missed += missed;
    if (seen == NULL) {
        seen = g_new(Seen, 1);
        *seen = (Seen){0, -OLD_MS, -OLD_MS};
        g_hash_table_insert(probes->seen, g_strdup(id), seen);
    }
    seen->misses = missed ? seen->misses + 1 : 0;
    if (missed)
        seen->missed_ms = sim_now(sim);
    if (seen->misses >= sim->least_misses)
        seen->bad_ms = sim_now(sim);
}

static void answer(Question *question, LhProbeAnswer told)
{
    LhProbeDone done = question->done;
    gpointer data = question->data;
    note(question->probes, question->id,
         told.error != NULL || told.status != 200 || g_strcmp0(told.body, HEALTHY) != 0);
    told.len = told.body == NULL ? 0 : strlen(told.body);
    question_free(question);
    done(&told, data);
}

static void run_out(gpointer data)
{
    Question *question = data;
    question->timer = NULL;
    answer(question, (LhProbeAnswer){.error = "no time left", .timed_out = TRUE});
}

static void arrive(gpointer data)
{
    Question *question = data;
    SimProcess *asks = question->probes->process, *node = question->node;
    SimIll ill = node == NULL ? SIM_REFUSES : node->ill;
    question->timer = NULL;
    if (ill == SIM_FLAPS)
        ill = lh_random_below(asks->env, 2) == 0 ? SIM_WELL : SIM_ERROR;
    if (asks->probes_cut || (node != NULL && node->unreached_by == asks) ||
        (node != NULL && node->state != SIM_DOWN && sim_machine_paused(node->env)))
        ill = SIM_HANGS;
    else if (node != NULL && node->state == SIM_DOWN)
        ill = SIM_REFUSES;
    switch (ill) {
    case SIM_WELL:
        answer(question, (LhProbeAnswer){.status = 200, .body = HEALTHY});
        return;
    case SIM_ERROR:
        answer(question, (LhProbeAnswer){.status = 500, .body = HEALTHY});
        return;
    case SIM_GARBAGE:
        answer(question, (LhProbeAnswer){.status = 200, .body = "{\"status\":\"heal"});
        return;
    case SIM_REFUSES:
        answer(question, (LhProbeAnswer){.error = "connection refused"});
        return;
    case SIM_HANGS:
    case SIM_FLAPS:
    case SIM_N_ILLS:
        break;
    }
    question->timer = lh_timer_in(asks->env, question->timeout_ms, run_out, question);
}

static SimProcess *node_of(Sim *sim, const char *uri)
{
    const char *host = g_str_has_prefix(uri, "http://") ? uri + strlen("http://") : "";
    g_autofree char *name = g_strndup(host, strcspn(host, ":/"));
    return sim_process_of_node(sim, name);
}

static gpointer ask(gpointer data, const char *id, const char *uri, gint64 timeout_ms,
                    gboolean keep, LhProbeDone done, gpointer done_data)
{
    (void)keep;
    SimProbes *probes = data;
    Question *question = g_new(Question, 1);
    *question = (Question){
        .probes = probes,
        .node = node_of(probes->process->sim, uri),
        .id = g_strdup(id),
        .timeout_ms = timeout_ms,
        .done = done,
        .data = done_data,
    };
    question->timer = lh_timer_in(probes->process->env,
                                  1 + (gint64)lh_random_below(probes->process->env, 30), arrive,
                                  question);
    return question;
}

static void cancel(gpointer data G_GNUC_UNUSED, gpointer question)
{
    question_free(question);
}

/* ---- a manager's prober ---- */

SimProbes *sim_probes_new(SimProcess *process)
{
    SimProbes *probes = g_new0(SimProbes, 1);
    const LhProberOptions options = {
        .env = process->env,
        .mirror = process->mirror,
        .etcd = process->etcd,
        .metrics = process->metrics,
        .asker = {ask, cancel, probes},
    };
    probes->process = process;
    probes->seen = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, g_free);
    probes->prober = lh_prober_new(&options);
    return probes;
}

void sim_probes_free(SimProbes *probes)
{
    if (probes == NULL)
        return;
    lh_prober_free(probes->prober);
    g_hash_table_unref(probes->seen);
    g_free(probes);
}

void sim_probes_set(SimProbes *probes, const char *controller, const LhErrand *errands, guint n)
{
    if (n == 0 && strcmp(controller, LH_DETECTOR) == 0)
        g_hash_table_remove_all(probes->seen); /* it leads no more */
    lh_prober_outside.set(controller, errands, n, probes->prober);
}

/* ---- what happens to nodes ---- */

/* Other numbers than the defaults in most runs, so that something happens in the time that there is. */
void sim_probes_begin(Sim *sim)
{
    sim->least_misses = LEAST_DEFAULT;
    if (!sim_chance(sim, 85))
        return;
    gint64 misses = sim_between(sim, 2, 4);
    g_autofree char *value = g_strdup_printf(
        "{\"spec\":{\"probePeriod\":\"%" G_GINT64_FORMAT "ms\",\"probeTimeout\":\"%" G_GINT64_FORMAT
        "ms\",\"probeMisses\":%" G_GINT64_FORMAT ",\"probation\":\"%" G_GINT64_FORMAT
        "s\",\"onFailure\":\"%s\"}}",
        sim_between(sim, 1000, 3000), sim_between(sim, 300, 1500), misses, sim_between(sim, 15, 60),
        sim_chance(sim, 80) ? "evict" : "keep");
    sim->least_misses = MIN(sim->least_misses, misses);
    sim_put(sim, "desired/settings/" LH_DETECTOR, value, 0);
}

static void recover(Sim *sim, SimProcess *process, const char *text, gint64 number)
{
    (void)text;
    (void)number;
    sim_trace(sim, "%s is well again", process->name);
    process->ill = SIM_WELL;
}

static void sicken(SimProcess *process, SimIll ill, gint64 ms)
{
    static const char *const words[] = {
        "is well", "hangs", "answers 500", "answers garbage", "refuses connections", "flaps"};
    Sim *sim = process->sim;
    sim->counters.ills++;
    sim_trace(sim, "%s %s for %" G_GINT64_FORMAT " ms", process->name, words[ill], ms);
    process->ill = ill;
    sim_later(sim, ms, recover, process, NULL, 0);
}

static SimIll any_illness(Sim *sim)
{
    return (SimIll)(1 + sim_below(sim, SIM_N_ILLS - 1));
}

void sim_probes_sicken(Sim *sim)
{
    SimProcess *process = sim_any_process(sim, FALSE, TRUE);
    if (process->ill == SIM_WELL)
        sicken(process, any_illness(sim), sim_between(sim, 2000, 90000));
}

/* A mistake in what nodes run, or in what is between them: one after the other, or all at once. */
void sim_probes_sicken_all(Sim *sim)
{
    const char *pool = sim_any_process(sim, FALSE, TRUE)->pool;
    SimIll ill = any_illness(sim);
    gint64 ms = sim_between(sim, 10000, 60000);
    for (guint i = sim->options.managers; i < sim->n_processes; i++)
        if (strcmp(sim->processes[i].pool, pool) == 0 && sim->processes[i].ill == SIM_WELL)
            sicken(&sim->processes[i], ill, ms + sim_between(sim, 0, 5000));
}

static void reach_again(Sim *sim, SimProcess *process, const char *text, gint64 number)
{
    (void)number;
    if (process->is_manager)
        process->probes_cut = FALSE;
    else
        process->unreached_by = NULL;
    sim_trace(sim, "%s reaches %s again", text, process->is_manager ? "nodes" : process->name);
}

static SimProcess *who_probes(Sim *sim)
{
    gint64 oldest = G_MAXINT64;
    const LhLeader *leader = NULL;
    GHashTableIter iter;
    gpointer key, value;
    gboolean alive;
    g_hash_table_iter_init(&iter, sim->model.kinds[LH_KIND_LEADER]);
    while (g_hash_table_iter_next(&iter, &key, &value)) {
        const LhObject *object = value;
        if (g_str_has_prefix(key, LH_DETECTOR "/") && lh_object_known(object) &&
            object->create_rev < oldest) {
            oldest = object->create_rev;
            leader = value;
        }
    }
    return leader == NULL ? NULL : sim_process_of_client(sim, leader->instance, &alive);
}

/* Mostly who leads: it is the detector that is cut off then. */
void sim_probes_cut(Sim *sim)
{
    SimProcess *leader = who_probes(sim), *other = sim_any_process(sim, TRUE, FALSE);
    SimProcess *manager = leader != NULL && sim_chance(sim, 70) ? leader : other;
    SimProcess *node = sim_any_process(sim, FALSE, TRUE);
    gint64 ms = sim_between(sim, 1000, 60000);
    gboolean all = sim_chance(sim, 50);
    sim->counters.probes_cut++;
    sim_trace(sim, "%s cannot reach %s for %" G_GINT64_FORMAT " ms", manager->name,
              all ? "any node" : node->name, ms);
    if (all)
        manager->probes_cut = TRUE;
    else
        node->unreached_by = manager;
    sim_later(sim, ms, reach_again, all ? manager : node, manager->name, 0);
}

/* ---- what must be so ---- */

static void check_mark(Sim *sim, const SimCommit *commit, const SimChange *change)
{
    const LhHealth *before = (const LhHealth *)change->before;
    g_autofree char *id = g_strconcat(LH_DETECTOR_PROBE ".", change->name, NULL);
    gint64 last;
    if (!commit->alive || commit->commit->late || commit->by->probes == NULL)
        return;
    id[strcspn(id, "/")] = '.';
    const Seen *seen = g_hash_table_lookup(commit->by->probes->seen, id);
    last = seen == NULL                           ? -OLD_MS
           : before->state == LH_HEALTH_PROBATION ? seen->missed_ms
                                                  : seen->bad_ms;
    sim->counters.marked++;
    if (sim_now(sim) - last >= OLD_MS)
        sim_fail(sim, GROUP,
                 "%s is condemned by its probes; %s missed %" G_GINT64_FORMAT
                 " of %" G_GINT64_FORMAT " in a row since it leads",
                 change->key, commit->by->client, seen == NULL ? 0 : seen->misses,
                 sim->least_misses);
}

/* A lease that a manager revokes is its own, or that of a node of which this is decided. */
static void check_revoked(Sim *sim, const SimCommit *commit, const SimChange *change)
{
    const LhHealth *health = (const LhHealth *)sim_get(sim, LH_KIND_HEALTH, change->name);
    if (commit->by->timeline == fake_etcd_timeline(sim->server) &&
        (health == NULL || (lh_object_known(&health->o) && !health->revoking)))
        sim_fail(sim, GROUP, "%s: %s revoked its lease, which was not decided", change->key,
                 commit->by->client);
}

/* A registration that did not parse is mended: nobody was asked meanwhile, and what was missed before still counts. */
static void note_mended(const Sim *sim, const SimChange *change)
{
    g_autofree char *id = g_strconcat(LH_DETECTOR_PROBE ".", change->name, NULL);
    id[strcspn(id, "/")] = '.';
    for (guint i = 0; i < sim->n_processes; i++) {
        const SimProbes *probes = sim->processes[i].probes;
        Seen *seen = probes == NULL ? NULL : g_hash_table_lookup(probes->seen, id);
        if (seen != NULL && seen->misses > 0)
            seen->missed_ms = sim_now(sim);
        if (seen != NULL && seen->misses >= sim->least_misses)
            seen->bad_ms = sim_now(sim);
    }
}

static void on_commit(Sim *sim, const SimCommit *commit)
{
    for (guint i = 0; i < commit->n; i++) {
        const SimChange *change = &commit->changes[i];
        if (change->kind == LH_KIND_NODE && change->before != NULL && change->after != NULL &&
            !lh_object_known(change->before) && lh_object_known(change->after))
            note_mended(sim, change);
        if (!commit->manager)
            continue;
        if (change->kind == LH_KIND_NODE && commit->commit->cause == FAKE_BY_REVOKE)
            check_revoked(sim, commit, change);
        const LhHealth *before = (const LhHealth *)change->before;
        const LhHealth *after = (const LhHealth *)change->after;
        if (change->kind != LH_KIND_HEALTH || before == NULL || after == NULL ||
            !lh_object_known(&before->o) || !lh_object_known(&after->o))
            continue;
        if (after->state == LH_HEALTH_FAILURE && before->state != LH_HEALTH_FAILURE &&
            after->reason != NULL && g_str_has_prefix(after->reason, BY_PROBE) &&
            after->missing_since < 0)
            check_mark(sim, commit, change);
        sim->counters.revoked += after->revoking && !before->revoking;
        sim->counters.on_probation += after->state == LH_HEALTH_PROBATION;
        sim->counters.off_probation += before->state == LH_HEALTH_PROBATION &&
                                       after->state == LH_HEALTH_HEALTHY;
    }
}

const SimInvariants sim_invariants_probes = {GROUP, on_commit, NULL};

char *sim_probes_check(Sim *sim)
{
    GHashTableIter iter;
    gpointer key, value;
    g_hash_table_iter_init(&iter, sim->model.kinds[LH_KIND_NODE]);
    while (g_hash_table_iter_next(&iter, &key, &value)) {
        const LhHealth *health = (const LhHealth *)sim_get(sim, LH_KIND_HEALTH, key);
        if (health == NULL || !lh_object_known(&health->o) || health->state != LH_HEALTH_HEALTHY)
            return g_strdup_printf("node %s is well, and is not called healthy", (char *)key);
    }
    return NULL;
}
