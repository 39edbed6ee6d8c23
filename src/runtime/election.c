/*
 * One election for each controller: a key under leaders/<controller>/ bound to the instance's lease; the
 * lowest create revision leads. Who leads is read from the mirror alone, so a new leader's mirror has
 * reached the revision that made it the oldest by construction. Must not plan.
 */
#include "base/errors.h"
#include "base/log.h"
#include "base/planted.h"
#include "runtime/internal.h"

#define RETRY_FIRST_MS 50
#define RETRY_CAP_MS   2000

static char *leader_value(const LhRuntime *runtime)
{
    LhLeader leader = {
        .instance = runtime->instance,
        .host = runtime->host,
        .url = runtime->url,
        .pid = runtime->options.pid,
        .version = runtime->version,
        .started_at = runtime->started_ms,
    };

    return lh_object_print(LH_KIND_LEADER, &leader);
}

static char *leader_name(const Runner *runner)
{
    g_autofree char *hex = lh_lease_hex(lh_lease_id(runner->runtime->lease));

    return g_strconcat(runner->controller->name, "/", hex, NULL);
}

static void name_key(Runner *runner)
{
    g_autofree char *name = leader_name(runner);
    g_autofree char *key = lh_key(LH_KIND_LEADER, name);

    g_free(runner->leader_key);
    runner->leader_key = g_strconcat(lh_mirror_prefix(runner->runtime->mirror), key, NULL);
}

gboolean lh_election_may_act(const Runner *runner)
{
    const LhRuntime *runtime = runner->runtime;

    if (!runner->leads || runtime->stopping)
        return FALSE;
    return runtime->options.fault_no_deadline || lh_lease_alive(runtime->lease);
}

void lh_election_fence(const Runner *runner, LhCompare *out)
{
    out[0] = lh_compare_create(runner->leader_key, runner->key_create);
    out[1] = lh_compare_mod(runner->leader_key, runner->key_mod);
    if (LH_BUG(FENCE_CREATE_ONLY))
        out[1] = out[0];
}

gboolean lh_election_still_ours(Runner *runner, const LhRangeReply *leader)
{
    /* A key that lost its lease leads nothing: another instance may lead already. */
    if (leader->n_kvs != 1 || leader->kvs[0].create_rev != runner->key_create ||
        leader->kvs[0].lease != lh_lease_id(runner->runtime->lease))
        return FALSE;
    runner->key_mod = leader->kvs[0].mod_rev;
    return TRUE;
}

/* ---- campaign ---- */

static void campaign(Runner *runner);

static void on_campaign_retry(gpointer data)
{
    Runner *runner = data;

    runner->campaign_retry = NULL;
    lh_election_update(runner);
}

static void on_campaign(const LhTxnReply *reply, const GError *error, gpointer data)
{
    Runner *runner = data;
    LhRuntime *runtime = runner->runtime;

    runner->campaign = 0;
    if (error != NULL && g_error_matches(error, LH_ERROR, LH_ERR_LEASE_LOST)) {
        lh_runtime_lease_is_gone(runtime);
        return;
    }
    if (error != NULL) {
        /* Repeating is safe: the key is created only once, and one that exists is adopted. */
        gint64 wait = lh_backoff_ms(runtime->env, runner->campaign_attempts++, RETRY_FIRST_MS,
                                    RETRY_CAP_MS);
        runner->campaign_retry = lh_timer_in(runtime->env, wait, on_campaign_retry, runner);
        return;
    }
    runner->campaign_attempts = 0;
    if (reply->succeeded) {
        runner->key_create = reply->header.revision;
        runner->key_mod = MAX(runner->key_mod, runner->key_create); /* rewritten before we heard */
    } else if (reply->ops[0].range.n_kvs == 1) {
        runner->key_create = reply->ops[0].range.kvs[0].create_rev;
        runner->key_mod = reply->ops[0].range.kvs[0].mod_rev;
    }
    lh_election_update(runner);
}

static void campaign(Runner *runner)
{
    LhRuntime *runtime = runner->runtime;
    g_autofree char *value = leader_value(runtime);
    LhCompare compare = lh_compare_create(runner->leader_key, 0);
    LhTxnOp put = lh_txn_put(runner->leader_key, value, lh_lease_id(runtime->lease));
    LhTxnOp get = lh_txn_range(runner->leader_key);
    LhTxnRequest request = {&compare, 1, &put, 1, &get, 1};

    runner->campaign = lh_etcd_txn(runtime->etcd, &request, on_campaign, runner);
}

/* ---- who leads ---- */

typedef struct {
    const char *controller;
    gsize len;
    gint64 oldest; /* create revision; 0: nobody */
} Oldest;

static void find_oldest(const LhObject *object, gpointer data)
{
    Oldest *oldest = data;

    if (strncmp(object->name, oldest->controller, oldest->len) != 0 ||
        object->name[oldest->len] != '/')
        return;
    if (lh_object_lease(object) == 0)
        return; /* nobody's: it would never go away, and no election made it */
    if (oldest->oldest == 0 || object->create_rev < oldest->oldest)
        oldest->oldest = object->create_rev;
}

static void lead(Runner *runner)
{
    LhRuntime *runtime = runner->runtime;

    runner->leads = TRUE;
    lh_runner_leads_since(runner);
    lh_gauge_set(runtime->metrics, "leader", runner->labels, 1);
    lh_log(LH_LOG_INFO, "leads", "controller", runner->controller->name, "epoch",
           lh_fmt("%" G_GINT64_FORMAT, runner->key_create), "revision",
           lh_fmt("%" G_GINT64_FORMAT, lh_mirror_revision(runtime->mirror)), NULL);
    runner->again = TRUE;
    if (runner->tainted)
        lh_election_void(runner);
}

void lh_election_step_down(Runner *runner, const char *why)
{
    LhRuntime *runtime = runner->runtime;

    if (!runner->leads)
        return;
    runner->leads = FALSE;
    lh_gauge_set(runtime->metrics, "leader", runner->labels, 0);
    for (guint i = 0;
         runner->controller->gauge_names != NULL && runner->controller->gauge_names[i] != NULL; i++)
        lh_metrics_drop(runtime->metrics, runner->controller->gauge_names[i]);
    lh_log(runtime->stopping ? LH_LOG_INFO : LH_LOG_WARNING, "leads no more", "controller",
           runner->controller->name, "epoch", lh_fmt("%" G_GINT64_FORMAT, runner->key_create),
           "why", why, NULL);
    lh_recorder_drop(runner);
    lh_runner_reset_round(runner);
    lh_runner_errands_end(runner);
}

void lh_election_superseded(Runner *runner, const char *why)
{
    runner->dead_create = runner->key_create;
    lh_election_step_down(runner, why);
    lh_election_update(runner);
}

void lh_election_regressed(Runner *runner)
{
    LhRuntime *runtime = runner->runtime;

    lh_election_step_down(runner, "etcd went back in time");
    lh_etcd_cancel(runtime->etcd, &runner->campaign);
    lh_timer_clear(runtime->env, &runner->campaign_retry);
    runner->key_create = runner->key_mod = runner->dead_create = runner->wait_rev = 0;
}

static void forget_key(Runner *runner)
{
    lh_election_step_down(runner, "its leader key is gone");
    runner->key_create = runner->key_mod = 0;
    runner->tainted = FALSE; /* what was sent compares a create revision that never comes again */
}

static void key_is_gone(Runner *runner)
{
    LhRuntime *runtime = runner->runtime;

    if (runner->leads && runtime->options.fault_no_leader_watch)
        return;
    forget_key(runner);
    if (runner->campaign == 0 && runner->campaign_retry == NULL && !runtime->stopping) {
        name_key(runner);
        campaign(runner);
    }
}

/* Only ever called by a planted bug. */
static void lead_early(Runner *runner, Oldest *oldest)
{
    LhRuntime *runtime = runner->runtime;

    lh_mirror_foreach(runtime->mirror, LH_KIND_LEADER, find_oldest, oldest);
    if (oldest->oldest != 0 || runner->leads || runtime->stopping ||
        !lh_lease_alive(runtime->lease))
        return;
    lead(runner);
    lh_runner_schedule(runner);
}

void lh_election_update(Runner *runner)
{
    LhRuntime *runtime = runner->runtime;
    gint64 revision = lh_mirror_revision(runtime->mirror);
    g_autofree char *name = NULL;
    const LhObject *mine;
    Oldest oldest = {.controller = runner->controller->name,
                     .len = strlen(runner->controller->name)};

    if (runner->leader_key == NULL || revision == 0 || lh_lease_id(runtime->lease) == 0)
        return;
    name = leader_name(runner);
    mine = lh_mirror_get(runtime->mirror, LH_KIND_LEADER, name);
    if (mine == NULL) {
        /* Written, but the mirror is not there yet. */
        if (runner->key_create > revision) {
            if (LH_BUG(EARLY_FIRST_PLAN))
                lead_early(runner, &oldest);
            return;
        }
        key_is_gone(runner);
        return;
    }
    if (lh_object_lease(mine) != lh_lease_id(runtime->lease) &&
        !runtime->options.fault_no_leader_watch) {
        /* Somebody wrote over it, and it never goes away by itself: only another name helps. */
        lh_log(LH_LOG_ERROR, "its leader key was written over and has lost its lease", "controller",
               runner->controller->name, "next", "campaign under a new lease", NULL);
        lh_runtime_lease_is_gone(runtime);
        return;
    }
    if (mine->create_rev == runner->dead_create)
        return; /* deleted or written over, but the mirror is not there yet */
    if (runner->leads && runner->key_create != mine->create_rev) {
        /* Gone and created again, by a campaign that came late: another epoch. */
        if (runtime->options.fault_no_leader_watch)
            return;
        forget_key(runner);
    }
    runner->key_create = mine->create_rev;
    /* Not adopted from a key that lost its lease, so that the fence itself refuses what follows. */
    if (lh_object_lease(mine) == lh_lease_id(runtime->lease))
        runner->key_mod = MAX(runner->key_mod, mine->mod_rev);
    lh_mirror_foreach(runtime->mirror, LH_KIND_LEADER, find_oldest, &oldest);
    if (oldest.oldest != mine->create_rev) {
        if (!(runner->leads && runtime->options.fault_no_leader_watch))
            lh_election_step_down(runner, "another key is older");
    } else if (!runner->leads && !runtime->stopping && lh_lease_alive(runtime->lease)) {
        lead(runner);
    }
}

void lh_election_clear(Runner *runner)
{
    LhRuntime *runtime = runner->runtime;

    lh_etcd_cancel(runtime->etcd, &runner->campaign);
    lh_etcd_cancel(runtime->etcd, &runner->void_call);
    lh_timer_clear(runtime->env, &runner->campaign_retry);
    g_clear_pointer(&runner->leader_key, g_free);
    runner->key_create = runner->key_mod = 0;
    runner->tainted = FALSE;
}

void lh_election_lease_granted(LhRuntime *runtime)
{
    for (guint i = 0; i < runtime->n_runners; i++) {
        Runner *runner = &runtime->runners[i];
        if (runner->leads && runtime->options.fault_no_leader_watch)
            continue;
        lh_election_clear(runner);
        name_key(runner);
        lh_election_update(runner);
    }
}

void lh_election_lease_lost(LhRuntime *runtime)
{
    for (guint i = 0; i < runtime->n_runners; i++) {
        Runner *runner = &runtime->runners[i];
        if (runner->leads && runtime->options.fault_no_leader_watch)
            continue;
        lh_election_step_down(runner, "its lease is lost");
        lh_election_clear(runner);
    }
}

/* ---- voiding ---- */

static void send_void(Runner *runner);

static void on_void_retry(gpointer data)
{
    Runner *runner = data;

    runner->timer = NULL;
    send_void(runner);
}

static void on_void(const LhTxnReply *reply, const GError *error, gpointer data)
{
    Runner *runner = data;
    LhRuntime *runtime = runner->runtime;

    runner->void_call = 0;
    if (error != NULL && g_error_matches(error, LH_ERROR, LH_ERR_LEASE_LOST)) {
        lh_runtime_lease_is_gone(runtime);
        return;
    }
    if (error != NULL) {
        gint64 wait = lh_backoff_ms(runtime->env, runner->void_attempts++, RETRY_FIRST_MS,
                                    RETRY_CAP_MS);
        runner->timer = lh_timer_in(runtime->env, wait, on_void_retry, runner);
        return;
    }
    if (!reply->succeeded) {
        lh_counter_add(runtime->metrics, "fenced_writes_rejected_total", NULL, 1);
        lh_election_superseded(runner, "superseded while an outcome was unknown");
        return;
    }
    runner->tainted = FALSE;
    runner->key_mod = MAX(runner->key_mod, reply->header.revision);
    runner->wait_rev = MAX(runner->wait_rev, reply->header.revision);
    runner->again = TRUE;
    runner->state = LH_ROUND_CATCHING;
    lh_runner_schedule(runner);
}

static void send_void(Runner *runner)
{
    LhRuntime *runtime = runner->runtime;
    g_autofree char *value = leader_value(runtime);
    gint64 lease = lh_lease_id(runtime->lease);
    /* The lease too: to bind the key again would make an old epoch lead beside a new one. */
    LhCompare compares[] = {
        lh_compare_create(runner->leader_key, runner->key_create),
        {.key = runner->leader_key,
         .target = LH_CMP_LEASE,
         .result = LH_CMP_EQUAL,
         .number = lease},
    };
    LhTxnOp put = lh_txn_put(runner->leader_key, value, lease);
    LhTxnRequest request = {.compares = compares,
                            .n_compares = G_N_ELEMENTS(compares),
                            .success = &put,
                            .n_success = 1};

    runner->void_call = lh_etcd_txn(runtime->etcd, &request, on_void, runner);
}

void lh_election_void(Runner *runner)
{
    runner->state = LH_ROUND_VOIDING;
    runner->void_attempts = 0;
    lh_log(LH_LOG_WARNING, "a transaction's outcome is unknown", "controller",
           runner->controller->name, "epoch", lh_fmt("%" G_GINT64_FORMAT, runner->key_create),
           "next", "rewrite the leader key, which voids it, and plan again", NULL);
    send_void(runner);
}
