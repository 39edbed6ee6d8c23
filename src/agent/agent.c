/*
 * A node's life, again and again: lease, id, watches, registration, orders, end of that
 * registration.
 *
 * What happens to one item is items.c's business. Leaving is never done inside a callback of
 * something that leaving frees: it is noted, and done by a timer at the next turn of the loop.
 */
#include "agent/agent.h"

#include "agent/follow.h"
#include "agent/items.h"
#include "agent/node_record.h"
#include "base/errors.h"
#include "base/log.h"
#include "base/planted.h"
#include "etcd/lease.h"

#include <string.h>

#define RETRY_FIRST_MS       100
#define RETRY_CAP_MS         5000
#define REJOIN_CAP_MS        30000
#define SETTLED_MS           60000 /* a registration that lasted so long was no failure */
#define REVOKE_WAIT_MS       2000  /* before starting anew without the answer */
#define SEARCH_AWAY_MS       3000  /* at the stop */
#define SAY_WAITING_FIRST_MS 2000
#define SAY_WAITING_MS       30000
#define DEADLINE_MARGIN_MS \
    500                      /* exclusive pools stop so long before the lease's deadline, at most */
#define WARM_REFRESH_MS 2000 /* after a release: what left together is told together */

typedef enum {
    ST_LEASE,    /* waiting for a lease */
    ST_WATCHES,  /* waiting for the watches to open */
    ST_REGISTER, /* registration being put */
    ST_REGISTERED,
    ST_REVOKING, /* over; the old lease is being revoked, or a pause is kept */
    ST_STOPPING,
    ST_STOPPED,
} State;

enum { FOLLOW_REGISTRATION, FOLLOW_HEALTH, FOLLOW_ASSIGNMENTS, N_FOLLOWS };

struct LhAgent {
    LhEnv *env;
    LhEtcd *etcd;
    LhAgentWork *work;
    LhAgentFuncs funcs;
    gpointer data;
    LhAgentOptions o; /* strings owned, in `strings` */
    GPtrArray *strings;
    const LhPool *pool;
    gint64 started_at;

    State state;
    LhLease *lease;
    gint64 lease_id;    /* of this registration */
    gint64 lease_ttl_s; /* as granted */
    /* One registration. */
    char *id, *registration_key, *health_key, *assignments_prefix, *assignments_end;
    LhFollow *follows[N_FOLLOWS];
    guint opened;
    LhItems *items;
    gint64 registered_ms; /* monotonic */
    gint64 registered_rev;
    LhCallId call;
    LhTimer *retry; /* the registration again; rejoining; phases of the stop */
    guint attempt;
    guint rejoins;
    LhTimer *leave;
    LhAgentLeft left;
    LhTimer *deadline; /* exclusive pools */
    char **warm;       /* what the registration names */
    LhTimer *refresh;
    LhCallId refresh_call;
    LhTimer *say_waiting;
    LhCallId status_call;
    LhTimer *stop_deadline;
};

static const LhPool pools[] = {
    {.name = "cache", .search = TRUE, .supported = TRUE},
    {.name = "recovery", .exclusive = TRUE, .supported = TRUE, .ends = TRUE},
    {.name = "indexer", .exclusive = TRUE, .supported = TRUE},
    {.name = "manager", .exclusive = TRUE, .supported = TRUE, .permits = TRUE},
    {.name = "worker", .exclusive = TRUE, .supported = TRUE, .ends = TRUE},
};

const LhPool *lh_pool_find(const char *name)
{
    for (gsize i = 0; i < G_N_ELEMENTS(pools); i++) {
        if (strcmp(pools[i].name, name) == 0)
            return &pools[i];
    }
    return NULL;
}

const char *lh_agent_left_name(LhAgentLeft why)
{
    static const char *const names[] = {
        "lease lost",       "registration gone",     "health failed",
        "etcd has changed", "lease is about to end", "stopped",
    };
    return names[why];
}

static void start_lease(LhAgent *agent);
static void register_node(gpointer data);

/* ---- leaving ---- */

static void clear_registration(LhAgent *agent)
{
    lh_timer_clear(agent->env, &agent->retry);
    lh_timer_clear(agent->env, &agent->leave);
    lh_timer_clear(agent->env, &agent->deadline);
    lh_timer_clear(agent->env, &agent->refresh);
    lh_etcd_cancel(agent->etcd, &agent->refresh_call);
    lh_etcd_cancel(agent->etcd, &agent->call);
    g_clear_pointer(&agent->warm, g_strfreev);
    for (guint i = 0; i < N_FOLLOWS; i++)
        g_clear_pointer(&agent->follows[i], lh_follow_free);
    g_clear_pointer(&agent->items, lh_items_free);
    g_clear_pointer(&agent->id, g_free);
    g_clear_pointer(&agent->registration_key, g_free);
    g_clear_pointer(&agent->health_key, g_free);
    g_clear_pointer(&agent->assignments_prefix, g_free);
    g_clear_pointer(&agent->assignments_end, g_free);
    agent->opened = 0;
    agent->attempt = 0;
}

static void start_anew(gpointer data)
{
    LhAgent *agent = data;
    agent->retry = NULL;
    g_clear_pointer(&agent->lease, lh_lease_free);
    start_lease(agent);
}

static void on_revoked(gpointer data)
{
    LhAgent *agent = data;
    if (agent->state != ST_REVOKING)
        return;
    gint64 pause = agent->rejoins == 0
                       ? 0
                       : lh_backoff_ms(agent->env, agent->rejoins, RETRY_FIRST_MS, REJOIN_CAP_MS);
    agent->rejoins++;
    lh_timer_clear(agent->env, &agent->retry);
    agent->retry = lh_timer_in(agent->env, pause, start_anew, agent);
}

static void revoke_took_too_long(gpointer data)
{
    LhAgent *agent = data;
    agent->retry = NULL;
    on_revoked(agent);
}

static void do_leave(gpointer data)
{
    LhAgent *agent = data;
    agent->leave = NULL;
    g_autofree char *id = g_steal_pointer(&agent->id);
    gboolean was_registered = agent->state == ST_REGISTERED;
    if (was_registered && lh_mono_ms(agent->env) - agent->registered_ms >= SETTLED_MS)
        agent->rejoins = 0;
    lh_log(LH_LOG_WARNING, "no longer this node; starting anew under another id", "node", id, "why",
           lh_agent_left_name(agent->left), NULL);
    agent->work->v->drop(agent->work);
    clear_registration(agent);
    agent->state = ST_REVOKING;
    if (agent->o.metrics != NULL)
        lh_gauge_set(agent->o.metrics, "agent_registered", NULL, 0);
    if (was_registered && agent->funcs.left != NULL)
        agent->funcs.left(id, agent->left, agent->data);
    if (agent->left == LH_LEFT_LEASE_LOST) {
        on_revoked(agent);
    } else {
        /* The lease may live on, and with it what this id wrote. */
        agent->retry = lh_timer_in(agent->env, REVOKE_WAIT_MS, revoke_took_too_long, agent);
        lh_lease_revoke(agent->lease, on_revoked, agent);
    }
}

static void leave(LhAgent *agent, LhAgentLeft why)
{
    if (agent->leave != NULL || agent->id == NULL || agent->state == ST_STOPPING ||
        agent->state == ST_STOPPED)
        return;
    agent->left = why;
    agent->leave = lh_timer_in(agent->env, 0, do_leave, agent);
}

/* ---- the three watches ---- */

static void on_opened(gpointer data)
{
    LhAgent *agent = data;
    if (++agent->opened == N_FOLLOWS && agent->state == ST_WATCHES)
        register_node(agent);
}

static void registration_put(const LhKv *kv, gpointer data)
{
    LhAgent *agent = data;
    if (kv->lease != agent->lease_id && agent->state == ST_REGISTERED)
        leave(agent, LH_LEFT_REGISTRATION_GONE);
}

static void registration_gone(const char *key G_GNUC_UNUSED, gint64 rev, gpointer data)
{
    LhAgent *agent = data;
    /* While registering, an earlier attempt of ours may have been put and deleted again. */
    if (agent->state == ST_REGISTERED && rev > agent->registered_rev)
        leave(agent, LH_LEFT_REGISTRATION_GONE);
}

static void health_put(const LhKv *kv, gpointer data)
{
    LhAgent *agent = data;
    g_autofree char *name = g_strdup_printf("%s/%s", agent->o.pool, agent->id);
    g_autoptr(LhObject) object = lh_object_parse(LH_KIND_HEALTH, name, kv->value, kv->value_len,
                                                 kv->create_rev, kv->mod_rev, kv->lease);
    if (lh_object_known(object) && ((const LhHealth *)object)->state == LH_HEALTH_FAILED)
        leave(agent, LH_LEFT_HEALTH_FAILED);
}

static void health_gone(const char *key G_GNUC_UNUSED, gint64 rev G_GNUC_UNUSED,
                        gpointer data G_GNUC_UNUSED)
{
}

static gboolean takes_orders(const LhAgent *agent)
{
    return agent->items != NULL && agent->leave == NULL && agent->state == ST_REGISTERED;
}

/* The item's name in an assignment's key; NULL if it is none. */
static const char *item_of(const LhAgent *agent, const char *key, gsize key_len)
{
    gsize n = strlen(agent->assignments_prefix);
    if (strlen(key) != key_len || !g_str_has_prefix(key, agent->assignments_prefix))
        return NULL;
    const char *item = key + n;
    g_autofree char *name = g_strdup_printf("%s/%s/%s", agent->o.pool, agent->id, item);
    return lh_kind_name_valid(LH_KIND_ASSIGNMENT, name) ? item : NULL;
}

static void assignment_put(const LhKv *kv, gpointer data)
{
    LhAgent *agent = data;
    const char *item = item_of(agent, kv->key, kv->key_len);
    if (item == NULL)
        lh_log(LH_LOG_WARNING, "an assignment's name is not valid; it is ignored", NULL);
    else if (takes_orders(agent))
        lh_items_put(agent->items, item, kv);
}

static void assignment_gone(const char *key, gint64 rev, gpointer data)
{
    LhAgent *agent = data;
    const char *item = item_of(agent, key, strlen(key));
    if (item != NULL && takes_orders(agent))
        lh_items_gone(agent->items, item, rev);
}

static void on_void(gpointer data)
{
    leave(data, LH_LEFT_ETCD_CHANGED);
}

/* What was heard is still true. What was written may be lost all the same: a backup can be younger than
 * the last order and older than its answer. */
static void on_again(gpointer data)
{
    LhAgent *agent = data;
    if (takes_orders(agent))
        lh_items_verify(agent->items);
}

static void start_follows(LhAgent *agent)
{
    static const LhFollowFuncs funcs[N_FOLLOWS] = {
        [FOLLOW_REGISTRATION] = {.opened = on_opened,
                                 .put = registration_put,
                                 .gone = registration_gone,
                                 .void_ = on_void},
        [FOLLOW_HEALTH] = {.opened = on_opened,
                           .put = health_put,
                           .gone = health_gone,
                           .void_ = on_void},
        [FOLLOW_ASSIGNMENTS] = {.opened = on_opened,
                                .again = on_again,
                                .put = assignment_put,
                                .gone = assignment_gone,
                                .void_ = on_void},
    };
    const char *keys[N_FOLLOWS] = {agent->registration_key, agent->health_key,
                                   agent->assignments_prefix};
    const char *ends[N_FOLLOWS] = {NULL, NULL, agent->assignments_end};
    for (guint i = 0; i < N_FOLLOWS; i++)
        agent->follows[i] = lh_follow_start(agent->env, agent->etcd, keys[i], ends[i], &funcs[i],
                                            agent);
    /* A quick controller's order may be heard before the answer to our registration. */
    lh_follow_hold(agent->follows[FOLLOW_ASSIGNMENTS]);
}

/* ---- registering ---- */

static char *node_value(LhAgent *agent)
{
    g_clear_pointer(&agent->warm, g_strfreev);
    return lh_node_record(&agent->o, agent->work, agent->started_at, agent->lease_id,
                          agent->lease_ttl_s, &agent->warm);
}

static void on_refreshed(const LhTxnReply *reply G_GNUC_UNUSED, const GError *error, gpointer data)
{
    LhAgent *agent = data;
    agent->refresh_call = 0;
    if (error != NULL) /* the next release tries again; a stale name costs a copy, no more */
        lh_log(LH_LOG_INFO, "the list of warm snapshots is not updated", "error", error->message,
               NULL);
}

/* What the registration names as warm must still be there: placement prefers nodes because of
 * it. */
static void refresh_warm(gpointer data)
{
    LhAgent *agent = data;
    agent->refresh = NULL;
    if (agent->leave != NULL || agent->refresh_call != 0 ||
        !lh_node_record_stale((const char *const *)agent->warm, agent->work))
        return;
    g_autofree char *value = node_value(agent);
    const LhCompare compare = {.key = agent->registration_key,
                               .target = LH_CMP_LEASE,
                               .result = LH_CMP_EQUAL,
                               .number = agent->lease_id};
    const LhTxnOp put = lh_txn_put(agent->registration_key, value, agent->lease_id);
    const LhTxnRequest request = {.compares = &compare,
                                  .n_compares = LH_BUG(WARM_UNCOMPARED) ? 0 : 1,
                                  .success = &put,
                                  .n_success = 1};
    agent->refresh_call = lh_etcd_txn(agent->etcd, &request, on_refreshed, agent);
}

static void unregistered_by_write(gpointer data)
{
    leave(data, LH_LEFT_REGISTRATION_GONE);
}

/* A short lease needs most of its time for being renewed. */
static gint64 deadline_margin_ms(const LhAgent *agent)
{
    return MIN(DEADLINE_MARGIN_MS, agent->lease_ttl_s * 1000 / 4);
}

/* The work must not need this process in order to end in time. */
static void tell_deadline(LhAgent *agent)
{
    if (agent->pool->exclusive && agent->work->v->deadline != NULL && !LH_BUG(WORKS_PAST_DEADLINE))
        agent->work->v->deadline(agent->work, lh_lease_deadline_ms(agent->lease) -
                                                  deadline_margin_ms(agent) / 2);
}

static void deadline_near(gpointer data)
{
    LhAgent *agent = data;
    agent->deadline = NULL;
    gint64 stop_at = lh_lease_deadline_ms(agent->lease) - deadline_margin_ms(agent);
    if (LH_BUG(WORKS_PAST_DEADLINE))
        return;
    if (lh_mono_ms(agent->env) >= stop_at) {
        agent->work->v->drop(agent->work); /* at once, not at the next turn */
        leave(agent, LH_LEFT_DEADLINE);
    } else {
        agent->deadline = lh_timer_at(agent->env, stop_at, deadline_near, agent);
    }
}

static void set_registered(LhAgent *agent, gint64 revision)
{
    agent->state = ST_REGISTERED;
    agent->registered_rev = revision;
    agent->registered_ms = lh_mono_ms(agent->env);
    lh_timer_clear(agent->env, &agent->say_waiting);
    const LhItemsOptions options = {
        .env = agent->env,
        .etcd = agent->etcd,
        .work = agent->work,
        .metrics = agent->o.metrics,
        .prefix = agent->o.prefix,
        .pool = agent->o.pool,
        .id = agent->id,
        .lease = agent->lease_id,
        .registration_key = agent->registration_key,
        .search = agent->pool->search,
        .exclusive = agent->pool->exclusive,
        .unregistered = unregistered_by_write,
        .lost = on_void,
        .data = agent,
    };
    agent->items = lh_items_new(&options);
    tell_deadline(agent);
    if (agent->pool->exclusive)
        deadline_near(agent);
    if (agent->o.metrics != NULL) {
        lh_counter_add(agent->o.metrics, "agent_registrations_total", NULL, 1);
        lh_gauge_set(agent->o.metrics, "agent_registered", NULL, 1);
    }
    lh_log(LH_LOG_INFO, "registered", "node", agent->id, "pool", agent->o.pool, "revision",
           lh_fmt("%" G_GINT64_FORMAT, revision), NULL);
    if (agent->funcs.registered != NULL)
        agent->funcs.registered(agent->id, agent->data);
}

/* The register transaction's reads: what was there before the watches could hear of it. */
static void seed(LhAgent *agent, const LhTxnOpReply *op, guint follow)
{
    for (gsize i = 0; i < op->range.n_kvs; i++)
        lh_follow_seed(agent->follows[follow], &op->range.kvs[i]);
}

static void register_again(LhAgent *agent)
{
    gint64 pause = lh_backoff_ms(agent->env, agent->attempt++, RETRY_FIRST_MS, RETRY_CAP_MS);
    agent->retry = lh_timer_in(agent->env, pause, register_node, agent);
}

static void on_register(const LhTxnReply *reply, const GError *error, gpointer data)
{
    LhAgent *agent = data;
    agent->call = 0;
    if (error != NULL) {
        lh_log(LH_LOG_WARNING, "cannot register; trying again", "node", agent->id, "error",
               error->message, NULL);
        if (g_error_matches(error, LH_ERROR, LH_ERR_LEASE_LOST))
            leave(agent, LH_LEFT_LEASE_LOST);
        else
            register_again(agent); /* create-only: asking again finds out whether it was done */
        return;
    }
    /* Registration, health, assignments: after the put, or as they are without it. */
    const LhTxnOpReply *found = reply->succeeded ? reply->ops + 1 : reply->ops;
    const LhKv *own = found[0].range.n_kvs > 0 ? &found[0].range.kvs[0] : NULL;
    if (own == NULL || own->lease != agent->lease_id) {
        leave(agent, LH_LEFT_REGISTRATION_GONE); /* the id is somebody else's */
        return;
    }
    set_registered(agent, own->mod_rev); /* perhaps of an attempt whose answer was lost */
    lh_follow_seed(agent->follows[FOLLOW_REGISTRATION], own);
    seed(agent, &found[1], FOLLOW_HEALTH);
    seed(agent, &found[2], FOLLOW_ASSIGNMENTS);
    lh_follow_flow(agent->follows[FOLLOW_ASSIGNMENTS]);
}

static void register_node(gpointer data)
{
    LhAgent *agent = data;
    agent->retry = NULL;
    agent->state = ST_REGISTER;
    g_autofree char *value = node_value(agent);
    const LhCompare compares[] = {lh_compare_create(agent->registration_key, 0)};
    LhTxnOp assignments = lh_txn_range(agent->assignments_prefix);
    assignments.range_end = agent->assignments_end;
    const LhTxnOp ops[] = {
        lh_txn_put(agent->registration_key, value, agent->lease_id),
        lh_txn_range(agent->registration_key),
        lh_txn_range(agent->health_key),
        assignments,
    };
    const LhTxnRequest request = {
        .compares = compares,
        .n_compares = G_N_ELEMENTS(compares),
        .success = ops,
        .n_success = G_N_ELEMENTS(ops),
        .failure = ops + 1,
        .n_failure = G_N_ELEMENTS(ops) - 1,
    };
    agent->call = lh_etcd_txn(agent->etcd, &request, on_register, agent);
}

static void join(LhAgent *agent)
{
    agent->state = ST_WATCHES;
    agent->id = g_strdup_printf("%s-%08x", agent->o.name, (guint32)lh_random(agent->env));
    const char *prefix = agent->o.prefix, *pool = agent->o.pool;
    agent->registration_key = g_strdup_printf("%sactual/nodes/%s/%s", prefix, pool, agent->id);
    agent->health_key = g_strdup_printf("%sdecided/health/%s/%s", prefix, pool, agent->id);
    agent->assignments_prefix = g_strdup_printf("%sdecided/assignments/%s/%s/", prefix, pool,
                                                agent->id);
    agent->assignments_end = lh_etcd_prefix_end(agent->assignments_prefix);
    start_follows(agent);
}

/* ---- the lease ---- */

static void on_granted(gint64 lease, gint64 ttl_s, gpointer data)
{
    LhAgent *agent = data;
    if (agent->state != ST_LEASE)
        return;
    agent->lease_id = lease;
    agent->lease_ttl_s = ttl_s;
    join(agent);
}

static void on_doubt(gpointer data G_GNUC_UNUSED)
{
    lh_log(LH_LOG_WARNING,
           "the lease is in doubt: etcd does not answer; going on with what is held", NULL);
}

static void on_extended(gpointer data)
{
    LhAgent *agent = data;
    if (agent->state == ST_REGISTERED && agent->leave == NULL)
        tell_deadline(agent);
}

static void on_renewed(gpointer data G_GNUC_UNUSED)
{
    lh_log(LH_LOG_INFO, "the lease lives after all", NULL);
}

static void on_lost(gpointer data)
{
    LhAgent *agent = data;
    if (agent->id == NULL && agent->state == ST_LEASE)
        lh_lease_restart(agent->lease);
    else
        leave(agent, LH_LEFT_LEASE_LOST);
}

static void on_status(const LhStatusReply *reply G_GNUC_UNUSED, const GError *error, gpointer data)
{
    LhAgent *agent = data;
    agent->status_call = 0;
    lh_log(LH_LOG_WARNING, "not registered yet; still trying", "why",
           error != NULL ? error->message
                         : "etcd answers, but has not granted a lease or opened the watches",
           NULL);
}

static void say_waiting(gpointer data)
{
    LhAgent *agent = data;
    agent->say_waiting = lh_timer_in(agent->env, SAY_WAITING_MS, say_waiting, agent);
    if (agent->status_call == 0)
        agent->status_call = lh_etcd_status(agent->etcd, on_status, agent);
}

static void start_lease(LhAgent *agent)
{
    static const LhLeaseFuncs funcs = {
        .granted = on_granted,
        .doubt = on_doubt,
        .extended = on_extended,
        .renewed = on_renewed,
        .lost = on_lost,
    };
    agent->state = ST_LEASE;
    lh_timer_clear(agent->env, &agent->say_waiting);
    agent->say_waiting = lh_timer_in(agent->env, SAY_WAITING_FIRST_MS, say_waiting, agent);
    agent->lease = lh_lease_start(agent->env, agent->etcd, agent->o.lease_ttl_s, &funcs, agent);
}

/* ---- the work's answers ---- */

static void work_progress(const char *item, gint64 bytes_done, gpointer data)
{
    LhAgent *agent = data;
    if (agent->items != NULL)
        lh_items_work_progress(agent->items, item, bytes_done);
}

static void work_ready(const char *item, const char *url, gpointer data)
{
    LhAgent *agent = data;
    if (agent->items != NULL)
        lh_items_work_ready(agent->items, item, url);
}

static void work_finished(const char *item, gpointer data)
{
    LhAgent *agent = data;
    if (agent->items != NULL)
        lh_items_work_finished(agent->items, item);
}

static void work_failed(const char *item, const GError *error, gpointer data)
{
    LhAgent *agent = data;
    if (agent->items != NULL)
        lh_items_work_failed(agent->items, item, error);
}

static void work_released(const char *item, const GError *error, gpointer data)
{
    LhAgent *agent = data;
    if (agent->items != NULL)
        lh_items_work_released(agent->items, item, error);
    if (error == NULL && agent->state == ST_REGISTERED && agent->refresh == NULL)
        agent->refresh = lh_timer_in(agent->env, WARM_REFRESH_MS, refresh_warm, agent);
}

/* ---- stopping ---- */

static void stopped(gpointer data)
{
    LhAgent *agent = data;
    agent->retry = NULL;
    agent->state = ST_STOPPED;
    lh_timer_clear(agent->env, &agent->stop_deadline);
    if (agent->funcs.stopped != NULL)
        agent->funcs.stopped(agent->data);
}

static void stop_took_too_long(gpointer data)
{
    LhAgent *agent = data;
    agent->stop_deadline = NULL;
    lh_timer_clear(agent->env, &agent->retry);
    lh_etcd_cancel(agent->etcd, &agent->call);
    lh_log(LH_LOG_WARNING, "etcd did not answer; the lease will run out by itself", NULL);
    stopped(agent);
}

static void on_stop_revoked(gpointer data)
{
    LhAgent *agent = data;
    lh_timer_clear(agent->env, &agent->retry);
    agent->retry = lh_timer_in(agent->env, 0, stopped, agent);
}

static void end_work_and_revoke(gpointer data)
{
    LhAgent *agent = data;
    agent->retry = NULL;
    lh_etcd_cancel(agent->etcd, &agent->call);
    agent->work->v->drop(agent->work);
    if (agent->lease != NULL && lh_lease_id(agent->lease) != 0)
        lh_lease_revoke(agent->lease, on_stop_revoked, agent);
    else
        on_stop_revoked(agent);
}

static void on_search_gone(const LhTxnReply *reply G_GNUC_UNUSED, const GError *error,
                           gpointer data)
{
    LhAgent *agent = data;
    agent->call = 0;
    if (error != NULL)
        lh_log(LH_LOG_WARNING, "search keys may still be there; they vanish with the lease",
               "error", error->message, NULL);
    lh_timer_clear(agent->env, &agent->retry);
    agent->retry = lh_timer_in(agent->env, 0, end_work_and_revoke, agent);
}

void lh_agent_stop(LhAgent *agent)
{
    if (agent->state == ST_STOPPING || agent->state == ST_STOPPED)
        return;
    gboolean was_registered = agent->state == ST_REGISTERED;
    g_autofree char *id = g_strdup(agent->id);
    lh_log(LH_LOG_INFO, "stopping", "node", id != NULL ? id : "(not registered)", NULL);
    clear_registration(agent);
    if (agent->state == ST_REVOKING)
        g_clear_pointer(&agent->lease, lh_lease_free); /* its revocation has been sent */
    lh_timer_clear(agent->env, &agent->say_waiting);
    agent->state = ST_STOPPING;
    agent->stop_deadline = lh_timer_in(agent->env, LH_AGENT_STOP_MS, stop_took_too_long, agent);
    if (was_registered && agent->funcs.left != NULL)
        agent->funcs.left(id, LH_LEFT_STOPPED, agent->data);
    if (!was_registered || !agent->pool->search) {
        agent->retry = lh_timer_in(agent->env, 0, end_work_and_revoke, agent);
        return;
    }
    g_autofree char *search = g_strdup_printf("%sactual/search/cache/%s/", agent->o.prefix, id);
    g_autofree char *end = lh_etcd_prefix_end(search);
    LhTxnOp op = lh_txn_delete(search);
    op.range_end = end;
    const LhTxnRequest request = {.success = &op, .n_success = 1};
    agent->retry = lh_timer_in(agent->env, SEARCH_AWAY_MS, end_work_and_revoke, agent);
    agent->call = lh_etcd_txn(agent->etcd, &request, on_search_gone, agent);
}

/* ---- making and freeing ---- */

static const char *keep(LhAgent *agent, const char *text)
{
    char *copy = g_strdup(text);
    g_ptr_array_add(agent->strings, copy);
    return copy;
}

static void collect(LhMetrics *metrics, gpointer data)
{
    LhAgent *agent = data;
    for (int state = LH_ITEM_LOADING; state <= LH_ITEM_DONE; state++) {
        g_autofree char *labels = lh_labels("state", lh_item_state_name(state), NULL);
        guint n = agent->items != NULL ? lh_items_count(agent->items, (LhItemState)state) : 0;
        lh_gauge_set(metrics, "agent_items", labels, n);
    }
}

static void declare_metrics(LhAgent *agent)
{
    LhMetrics *m = agent->o.metrics;
    if (m == NULL)
        return;
    lh_metrics_declare(m, LH_GAUGE, "agent_registered", "1 while this node is registered.", NULL);
    lh_metrics_declare(m, LH_COUNTER, "agent_registrations_total",
                       "Registrations, each under a new id.", NULL);
    lh_metrics_declare(m, LH_GAUGE, "agent_items", "Items on this node by state.", NULL);
    lh_metrics_declare(m, LH_COUNTER, "agent_loads_total", "Ended loads by result.", NULL);
    lh_gauge_set(m, "agent_registered", NULL, 0);
    lh_metrics_add_collector(m, collect, agent);
}

LhAgent *lh_agent_new(LhEnv *env, LhEtcd *etcd, const LhAgentOptions *options, LhAgentWork *work,
                      const LhAgentFuncs *funcs, gpointer data)
{
    static const LhWorkFuncs work_funcs = {
        .progress = work_progress,
        .ready = work_ready,
        .finished = work_finished,
        .failed = work_failed,
        .released = work_released,
    };
    LhAgent *agent = g_new0(LhAgent, 1);
    agent->env = env;
    agent->etcd = etcd;
    agent->work = work;
    agent->funcs = *funcs;
    agent->data = data;
    agent->strings = g_ptr_array_new_with_free_func(g_free);
    agent->o = *options;
    agent->o.prefix = keep(agent, options->prefix);
    agent->o.pool = keep(agent, options->pool);
    agent->o.name = keep(agent, options->name);
    agent->o.host = keep(agent, options->host);
    agent->o.url = keep(agent, options->url);
    agent->o.set = keep(agent, options->set);
    agent->o.zone = keep(agent, options->zone);
    agent->o.version = keep(agent, options->version);
    agent->pool = lh_pool_find(options->pool);
    g_assert(agent->pool != NULL);
    agent->started_at = lh_wall_ms(env);
    declare_metrics(agent);
    work->v->attach(work, &work_funcs, agent);
    start_lease(agent);
    return agent;
}

void lh_agent_free(LhAgent *agent)
{
    if (agent == NULL)
        return;
    agent->work->v->drop(agent->work);
    clear_registration(agent);
    lh_timer_clear(agent->env, &agent->say_waiting);
    lh_timer_clear(agent->env, &agent->stop_deadline);
    lh_etcd_cancel(agent->etcd, &agent->status_call);
    lh_lease_free(agent->lease);
    if (agent->o.metrics != NULL)
        lh_metrics_remove_collector(agent->o.metrics, collect, agent);
    g_ptr_array_unref(agent->strings);
    g_free(agent);
}

const char *lh_agent_id(const LhAgent *agent)
{
    return agent->state == ST_REGISTERED ? agent->id : NULL;
}
