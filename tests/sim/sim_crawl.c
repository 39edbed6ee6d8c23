/*
 * A crawl manager's crawlers. What the node does with its seeds and their permits is the real code
 * (agent/manager_work.h) around programs that are not (sim_recovery.c). Crawlers ask it all the time, for more than
 * there is, return what they used after a while, and some never do. What they were given goes into the ledger
 * (sim_grants.c), with the limits that the node was told last.
 *
 * They ask the agent's process: while that is paused nobody answers.
 */
#include "agent/manager_work.h"
#include "api/seed_order.h"
#include "sim.h"

#include <string.h>

#define GROUP       "permits"
#define AT_ONCE     5
#define LOSE_CHANCE 8 /* percent of the permits are never returned */

typedef struct {
    guint64 id, number; /* the limiter's, the ledger's */
    gint64 until_ms;
    char *seed, *policy;
} Out;

/* As the node was told last, with whichever seed of it. */
typedef struct {
    char *name;
    LhPermitLimits limits;
    guint timeline;
    guint seeds; /* that are held */
} Policy;

typedef struct {
    char *name;
    Policy *policy; /* NULL: none */
    gboolean paused;
} Seed;

struct SimCrawl {
    SimProcess *process;
    LhManagerWork *work;
    GPtrArray *policies; /* Policy, in the order in which they came; the same in each run */
    GPtrArray *seeds;    /* Seed */
    GArray *out;         /* of Out */
    LhTimer *asks;
};

static void out_clear(gpointer data)
{
    Out *out = data;
    g_free(out->seed);
    g_free(out->policy);
}

static void policy_free(gpointer data)
{
    Policy *policy = data;
    g_free(policy->name);
    g_free(policy);
}

static void seed_free(gpointer data)
{
    Seed *seed = data;
    g_free(seed->name);
    g_free(seed);
}

static Seed *find_seed(const SimCrawl *crawl, const char *name)
{
    for (guint i = 0; i < crawl->seeds->len; i++) {
        Seed *seed = crawl->seeds->pdata[i];
        if (strcmp(seed->name, name) == 0)
            return seed;
    }
    return NULL;
}

/* ---- crawlers ---- */

static void give_back(SimCrawl *crawl)
{
    Sim *sim = crawl->process->sim;
    for (guint i = crawl->out->len; i > 0; i--) {
        const Out *out = &g_array_index(crawl->out, Out, i - 1);
        if (out->until_ms > sim_now(sim))
            continue;
        sim_grants_returned(sim, out->policy, out->number);
        lh_manager_work_return(crawl->work, out->seed, out->id);
        g_array_remove_index_fast(crawl->out, i - 1);
    }
}

static void given(SimCrawl *crawl, const Seed *seed, guint64 id)
{
    Sim *sim = crawl->process->sim;
    const SimGrant grant = {
        .policy = seed->policy->name,
        .node = lh_agent_id(crawl->process->agent),
        .timeline = seed->policy->timeline,
        .requests = seed->policy->limits.requests,
        .period_ms = seed->policy->limits.period_ms,
        .max_concurrent = seed->policy->limits.max_concurrent,
    };
    gint64 use_ms = sim_chance(sim, 80) ? sim_between(sim, 100, 3000)
                                        : sim_between(sim, 3000, 40000);
    const Out out = {
        .id = id,
        .number = sim_grants_given(sim, &grant),
        .until_ms = sim_chance(sim, LOSE_CHANCE) ? G_MAXINT64 : sim_now(sim) + use_ms,
        .seed = g_strdup(seed->name),
        .policy = g_strdup(seed->policy->name),
    };
    g_array_append_val(crawl->out, out);
}

static void ask_for(SimCrawl *crawl, const Seed *seed)
{
    Sim *sim = crawl->process->sim;
    guint64 ids[AT_ONCE];
    gint64 retry_ms;
    guint wanted = 1 + (guint)sim_below(sim, AT_ONCE), n = wanted;
    LhPermitsAnswer answer = lh_manager_work_take(crawl->work, seed->name, NULL, &n, ids,
                                                  &retry_ms);
    if (answer != LH_PERMITS_ANSWERED)
        n = 0;
    if (n > 0 && (seed->paused || lh_agent_id(crawl->process->agent) == NULL))
        sim_fail(sim, GROUP, "%s grants permits of %s, which is %s", crawl->process->client,
                 seed->name, seed->paused ? "paused" : "not its any more");
    sim->counters.permits_refused += wanted - n;
    for (guint i = 0; i < n && !sim->failed; i++)
        given(crawl, seed, ids[i]);
}

static void ask(gpointer data)
{
    SimCrawl *crawl = data;
    crawl->asks = NULL;
    give_back(crawl);
    for (guint i = 0; i < crawl->seeds->len; i++) {
        const Seed *seed = crawl->seeds->pdata[i];
        if (seed->policy != NULL)
            ask_for(crawl, seed);
    }
    if (crawl->seeds->len > 0)
        crawl->asks = lh_timer_in(crawl->process->env, sim_between(crawl->process->sim, 200, 3000),
                                  ask, crawl);
}

/* ---- what the node was told ---- */

static Policy *policy_of(SimCrawl *crawl, const LhSeedOrder *order)
{
    Policy *policy = NULL;
    if (order->throttle == NULL)
        return NULL;
    for (guint i = 0; i < crawl->policies->len && policy == NULL; i++)
        if (strcmp(((Policy *)crawl->policies->pdata[i])->name, order->throttle) == 0)
            policy = crawl->policies->pdata[i];
    if (policy == NULL) {
        policy = g_new0(Policy, 1);
        policy->name = g_strdup(order->throttle);
        policy->timeline = fake_etcd_timeline(crawl->process->sim->server);
        g_ptr_array_add(crawl->policies, policy);
    }
    policy->limits = (LhPermitLimits){order->requests, order->period_ms, order->max_concurrent};
    policy->seeds++;
    return policy;
}

static void leave_policy(SimCrawl *crawl, Policy *policy)
{
    if (policy != NULL && --policy->seeds == 0)
        g_ptr_array_remove(crawl->policies, policy);
}

const char *sim_crawl_told(SimCrawl *crawl, const char *name, const LhAssignment *assignment)
{
    g_autoptr(GError) error = NULL;
    LhSeedOrder order = {0};
    Seed *seed = find_seed(crawl, name);
    if (assignment->seed == NULL || !lh_seed_order_parse(assignment->seed, &order, &error)) {
        sim_fail(crawl->process->sim, GROUP, "%s: its seed is not understood: %s",
                 assignment->o.name, error == NULL ? "none" : error->message);
        return NULL;
    }
    if (seed == NULL) {
        seed = g_new0(Seed, 1);
        seed->name = g_strdup(name);
        g_ptr_array_add(crawl->seeds, seed);
    }
    Policy *before = seed->policy;
    seed->policy = policy_of(crawl, &order);
    seed->paused = order.paused;
    leave_policy(crawl, before);
    lh_seed_order_clear(&order);
    if (crawl->asks == NULL)
        crawl->asks = lh_timer_in(crawl->process->env, sim_between(crawl->process->sim, 50, 1000),
                                  ask, crawl);
    return seed->policy == NULL ? NULL : seed->policy->name;
}

void sim_crawl_forget(SimCrawl *crawl, const char *name)
{
    Seed *seed = find_seed(crawl, name);
    if (seed == NULL)
        return;
    leave_policy(crawl, seed->policy);
    g_ptr_array_remove(crawl->seeds, seed);
}

SimCrawl *sim_crawl_new(SimProcess *process, LhAgentWork *programs)
{
    const LhManagerWorkOptions options = {.permits_url = "http://sim/"};
    SimCrawl *crawl = g_new0(SimCrawl, 1);
    crawl->process = process;
    crawl->work = lh_manager_work_new(process->env, programs, &options);
    crawl->policies = g_ptr_array_new_with_free_func(policy_free);
    crawl->seeds = g_ptr_array_new_with_free_func(seed_free);
    crawl->out = g_array_new(FALSE, FALSE, sizeof(Out));
    g_array_set_clear_func(crawl->out, out_clear);
    return crawl;
}

void sim_crawl_free(SimCrawl *crawl)
{
    if (crawl == NULL)
        return;
    lh_timer_clear(crawl->process->env, &crawl->asks);
    lh_manager_work_free(crawl->work);
    g_ptr_array_unref(crawl->seeds);
    g_ptr_array_unref(crawl->policies);
    g_array_unref(crawl->out);
    g_free(crawl);
}

LhAgentWork *sim_crawl_base(SimCrawl *crawl)
{
    return lh_manager_work_base(crawl->work);
}
