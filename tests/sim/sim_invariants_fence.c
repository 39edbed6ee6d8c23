/*
 * Who may write what. A manager writes under decided/ and events/ only, each transaction under the
 * fence of one controller: it compares create and mod revision of a leader key, and at that moment no
 * older key of this controller exists. Each write compares its target, is well-formed, belongs to
 * that controller, and never goes over a value that does not parse; and its leader's mirror shows that
 * it leads. Nobody but people writes desired/
 * and published/.
 */
#include "sim.h"

#include <string.h>

#define GROUP "fence"

typedef struct {
    char controller[64];
    const char *key; /* of the leader, whole */
    gint64 epoch;    /* 0: no fence */
    gint64 mod;
} Fence;

/* The leader key whose create and mod revision @commit compares. */
static Fence fence_of(const FakeCommit *commit)
{
    const char *prefix = SIM_PREFIX "leaders/";
    Fence fence = {.epoch = 0};
    gint64 mod;
    for (gsize i = 0; i < commit->n_compares; i++) {
        const LhCompare *compare = &commit->compares[i];
        if (compare->target != LH_CMP_CREATE || compare->result != LH_CMP_EQUAL ||
            compare->number <= 0 || !g_str_has_prefix(compare->key, prefix) ||
            !sim_compares(commit, compare->key, LH_CMP_MOD, &mod) || mod <= 0)
            continue;
        const char *controller = compare->key + strlen(prefix);
        const char *slash = strchr(controller, '/');
        if (slash == NULL)
            continue;
        g_strlcpy(fence.controller, controller,
                  MIN(sizeof fence.controller, (gsize)(slash - controller) + 1));
        fence.key = compare->key;
        fence.epoch = compare->number;
        fence.mod = mod;
        break;
    }
    return fence;
}

/* The lowest create revision among the controller's leader keys that are bound to a lease. */
static gint64 oldest_leader(const Sim *sim, const char *controller)
{
    GHashTableIter iter;
    gpointer key, value;
    gsize len = strlen(controller);
    gint64 oldest = 0;
    g_hash_table_iter_init(&iter, sim->model.kinds[LH_KIND_LEADER]);
    while (g_hash_table_iter_next(&iter, &key, &value)) {
        gint64 create = ((const LhObject *)value)->create_rev;
        if (lh_object_lease(value) == 0)
            continue;
        if (strncmp(key, controller, len) == 0 && ((const char *)key)[len] == '/' &&
            (oldest == 0 || create < oldest))
            oldest = create;
    }
    return oldest;
}

/* ---- whose kind it is ---- */

#define BIT(kind) LH_KIND_BIT(LH_KIND_##kind)

static const struct {
    const char *controller;
    guint64 puts, deletes;
} rights[] = {
    {"admission", BIT(ACCEPTED) | BIT(STATUS), BIT(ACCEPTED) | BIT(STATUS)},
    {"replica-creator", BIT(REPLICA) | BIT(STATUS), BIT(STATUS)},
    {"cache-assigner", BIT(ASSIGNMENT) | BIT(RETRY) | BIT(STATUS),
     BIT(ASSIGNMENT) | BIT(RETRY) | BIT(REPLICA) | BIT(STATUS)},
    {"cache-evictor", BIT(ASSIGNMENT) | BIT(BRAKE) | BIT(STATUS), BIT(BRAKE) | BIT(STATUS)},
    {"failure-detector", BIT(HEALTH), BIT(HEALTH)},
};

static gboolean may_write(const char *controller, const SimChange *change)
{
    if (change->kind == LH_KIND_EVENT)
        return !change->event->is_delete;
    for (guint i = 0; i < G_N_ELEMENTS(rights); i++)
        if (strcmp(rights[i].controller, controller) == 0)
            return (change->event->is_delete ? rights[i].deletes : rights[i].puts) >> change->kind &
                   1;
    return FALSE;
}

static void check_assignment(Sim *sim, const Fence *fence, const SimChange *change)
{
    const LhAssignment *after = (const LhAssignment *)change->after;
    if (after == NULL)
        return;
    gboolean evicts = strcmp(fence->controller, "cache-evictor") == 0;
    if (after->epoch != fence->epoch || strcmp(after->controller, fence->controller) != 0)
        sim_fail(sim, GROUP,
                 "%s says %s, epoch %" G_GINT64_FORMAT
                 "; it was written by %s under epoch %" G_GINT64_FORMAT,
                 change->key, after->controller, after->epoch, fence->controller, fence->epoch);
    if (evicts ? after->action != LH_ACTION_EVICT || change->before == NULL
               : after->action != LH_ACTION_LOAD || change->before != NULL)
        sim_fail(sim, GROUP, "%s: %s orders %s over %s", change->key, fence->controller,
                 lh_action_name(after->action), change->before == NULL ? "nothing" : "another");
}

static void check_fenced(Sim *sim, const SimCommit *commit, const Fence *fence,
                         const SimChange *change)
{
    gint64 target, prev = change->prev == NULL ? 0 : change->prev->mod_rev;
    if (change->kind == LH_N_KINDS || !may_write(fence->controller, change)) {
        sim_fail(sim, GROUP, "%s is not %s's to write", change->key, fence->controller);
        return;
    }
    if (change->kind == LH_KIND_EVENT)
        return; /* for people: counted in place, whatever is there */
    if (change->before != NULL && !lh_object_known(change->before))
        sim_fail(sim, GROUP, "%s wrote over %s, which does not parse", fence->controller,
                 change->key);
    if (!sim_compares(commit->commit, change->event->kv.key, LH_CMP_MOD, &target) || target != prev)
        sim_fail(sim, GROUP, "%s wrote %s without comparing its revision", fence->controller,
                 change->key);
    if (change->kind == LH_KIND_STATUS) {
        g_autofree char *end = g_strconcat("/", fence->controller, NULL);
        if (!g_str_has_suffix(change->name, end))
            sim_fail(sim, GROUP, "%s is not %s's Status", change->key, fence->controller);
    }
    if (change->kind == LH_KIND_ASSIGNMENT)
        check_assignment(sim, fence, change);
}

static void check_well_formed(Sim *sim, const SimChange *change)
{
    if (change->after == NULL)
        return;
    const char *error = lh_object_known(change->after) ? lh_object_warning(change->after)
                                                       : lh_object_error(change->after);
    if (error != NULL && !lh_kind_is_desired((LhKind)change->after->kind))
        sim_fail(sim, GROUP, "%s is not well-formed: %s", change->key, error);
}

/* ---- each area ---- */

static gboolean is_of_key(gpointer text, gpointer value, gpointer key)
{
    (void)value;
    return g_str_has_prefix(text, key) && ((const char *)text)[strlen(key)] == ' ';
}

static void check_leader_key(Sim *sim, const SimCommit *commit, const SimChange *change)
{
    if (commit->alive) /* rewritten: what was unknown is void */
        g_hash_table_foreach_remove(commit->by->unknown, is_of_key,
                                    (gpointer)change->event->kv.key);
    g_autofree char *end = g_strdup_printf("/%016" G_GINT64_MODIFIER "x",
                                           (guint64)change->event->kv.lease);
    if (!commit->manager || change->event->is_delete || !g_str_has_suffix(change->name, end) ||
        change->event->kv.lease == 0)
        sim_fail(sim, GROUP, "%s was written by %s", change->key, commit->by->client);
}

static void check_fence(Sim *sim, const SimCommit *commit, const SimChange *change)
{
    Fence fence = fence_of(commit->commit);
    if (fence.epoch == 0) {
        sim_fail(sim, GROUP, "%s was written by %s without a fence", change->key,
                 commit->by->client);
        return;
    }
    gint64 oldest = oldest_leader(sim, fence.controller);
    /* A backup may hold the key of a predecessor: until its successor has noticed the restoration,
     * which ends its leadership, the key that it compares is there as well. */
    gboolean unaware = commit->by->timeline != fake_etcd_timeline(sim->server);
    if (oldest != fence.epoch && !unaware)
        sim_fail(sim, GROUP,
                 "%s was written by %s under epoch %" G_GINT64_FORMAT
                 " of %s, whose oldest is %" G_GINT64_FORMAT,
                 change->key, commit->by->client, fence.epoch, fence.controller, oldest);
    if (commit->alive && commit->by->mirror_rev < fence.epoch)
        sim_fail(sim, GROUP,
                 "%s was written by %s under epoch %" G_GINT64_FORMAT
                 "; its mirror is at %" G_GINT64_FORMAT " and cannot show that it leads",
                 change->key, commit->by->client, fence.epoch, commit->by->mirror_rev);
    char *epoch = g_strdup_printf("%s/%" G_GINT64_FORMAT, fence.controller, fence.epoch);
    if (g_hash_table_add(sim->model.epochs, epoch))
        sim->counters.epochs++;
    check_fenced(sim, commit, &fence, change);
}

/* ---- unknown outcomes ---- */

static char *fence_text(const Fence *fence)
{
    return g_strdup_printf("%s %" G_GINT64_FORMAT, fence->key, fence->mod);
}

void sim_check_unknown(const char *client, const LhTxnRequest *txn, gpointer data)
{
    Sim *sim = data;
    const FakeCommit asked = {.compares = txn->compares, .n_compares = txn->n_compares};
    Fence fence = fence_of(&asked);
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

/* Who does not know what became of a write of its own voids it before it writes anything more. */
static void check_voided(Sim *sim, const SimCommit *commit)
{
    Fence fence = fence_of(commit->commit);
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

static void check_change(Sim *sim, const SimCommit *commit, const SimChange *change)
{
    const char *key = change->key;
    if (g_str_has_prefix(key, "desired/") || g_str_has_prefix(key, "published/"))
        sim_fail(sim, GROUP, "%s wrote %s", commit->by->client, key);
    else if (g_str_has_prefix(key, "leaders/"))
        check_leader_key(sim, commit, change);
    else if (g_str_has_prefix(key, "actual/") != commit->agent)
        sim_fail(sim, GROUP, "%s wrote %s", commit->by->client, key);
    else if (commit->manager)
        check_fence(sim, commit, change);
    check_well_formed(sim, change);
}

static void on_commit(Sim *sim, const SimCommit *commit)
{
    if (commit->by == NULL || commit->commit->cause != FAKE_BY_TXN)
        return;
    if (commit->manager && !g_str_has_prefix(commit->changes[0].key, "leaders/"))
        sim->counters.fenced_commits++;
    if (commit->manager && !g_str_has_prefix(commit->changes[0].key, "events/"))
        check_voided(sim, commit);
    for (guint i = 0; i < commit->n; i++)
        check_change(sim, commit, &commit->changes[i]);
}

const SimInvariants sim_invariants_fence = {GROUP, on_commit, NULL};
