/*
 * A crawl manager's permits: the node's limiters are the real ones (agent/permits.h), one for each policy that it
 * holds a seed of; the crawlers are not. They ask all the time, for more than there is, return what they used
 * after a while, and some never do. What they were given goes into the ledger (sim_grants.c).
 *
 * They ask the agent's process: while it is paused nobody answers. Nor does it once the deadline is past.
 */
#include "agent/permits.h"
#include "base/json.h"
#include "base/units.h"
#include "sim.h"

#include <string.h>

#define GROUP       "permits"
#define AT_ONCE     8
#define LOSE_CHANCE 8 /* percent of the permits are never returned */

typedef struct {
    guint64 id, number; /* the limiter's, the ledger's */
    gint64 until_ms;
    char *seed;
} Out;

typedef struct {
    char *name;
    LhPermits *permits;
    LhPermitLimits limits;
    char *node;
    guint timeline;
    GArray *out; /* of Out */
    guint seeds; /* that are held */
} Policy;

typedef struct {
    char *name;
    Policy *policy;
    gboolean works;
} Seed;

struct SimCrawl {
    SimProcess *process;
    GPtrArray *policies; /* Policy, in the order in which they came; the same in each run */
    GPtrArray *seeds;    /* Seed, those with a policy */
    LhTimer *asks;
    guint64 ids;
};

static void out_clear(gpointer data)
{
    g_free(((Out *)data)->seed);
}

static void policy_free(gpointer data)
{
    Policy *policy = data;
    lh_permits_free(policy->permits);
    g_array_unref(policy->out);
    g_free(policy->name);
    g_free(policy->node);
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

static Policy *find_policy(const SimCrawl *crawl, const char *name)
{
    for (guint i = 0; i < crawl->policies->len; i++) {
        Policy *policy = crawl->policies->pdata[i];
        if (strcmp(policy->name, name) == 0)
            return policy;
    }
    return NULL;
}

/* ---- crawlers ---- */

static void give_back(SimCrawl *crawl, Policy *policy)
{
    Sim *sim = crawl->process->sim;
    for (guint i = policy->out->len; i > 0; i--) {
        const Out *out = &g_array_index(policy->out, Out, i - 1);
        if (out->until_ms > sim_now(sim))
            continue;
        sim_grants_returned(sim, policy->name, out->number);
        lh_permits_return(policy->permits, out->seed, out->id, lh_mono_ms(crawl->process->env));
        g_array_remove_index_fast(policy->out, i - 1);
    }
}

static void give(SimCrawl *crawl, Policy *policy, const Seed *seed, guint64 id)
{
    Sim *sim = crawl->process->sim;
    const SimGrant grant = {
        .policy = policy->name,
        .node = policy->node,
        .timeline = policy->timeline,
        .requests = policy->limits.requests,
        .period_ms = policy->limits.period_ms,
        .max_concurrent = policy->limits.max_concurrent,
    };
    const Out out = {
        .id = id,
        .number = sim_grants_given(sim, &grant),
        .until_ms = sim_now(sim) + (sim_chance(sim, 80) ? sim_between(sim, 100, 3000)
                                                        : sim_between(sim, 3000, 40000)),
        .seed = g_strdup(seed->name),
    };
    if (sim_chance(sim, LOSE_CHANCE))
        g_free(out.seed);
    else
        g_array_append_val(policy->out, out);
}

static const Seed *worked_on(const SimCrawl *crawl, const Policy *policy)
{
    for (guint i = 0; i < crawl->seeds->len; i++) {
        const Seed *seed = crawl->seeds->pdata[i];
        if (seed->policy == policy && seed->works)
            return seed;
    }
    return NULL;
}

static void ask_for(SimCrawl *crawl, Policy *policy)
{
    Sim *sim = crawl->process->sim;
    const Seed *seed = worked_on(crawl, policy);
    guint64 ids[AT_ONCE];
    gint64 retry_ms;
    if (seed == NULL)
        return;
    guint n = 1 + (guint)sim_below(sim, AT_ONCE);
    guint given = lh_permits_take(policy->permits, seed->name, NULL, n,
                                  lh_mono_ms(crawl->process->env), ids, &retry_ms);
    sim->counters.permits_refused += n - given;
    for (guint i = 0; i < given && !sim->failed; i++)
        give(crawl, policy, seed, ids[i]);
}

static void ask(gpointer data)
{
    SimCrawl *crawl = data;
    crawl->asks = NULL;
    for (guint i = 0; i < crawl->policies->len; i++) {
        give_back(crawl, crawl->policies->pdata[i]);
        ask_for(crawl, crawl->policies->pdata[i]);
    }
    if (crawl->policies->len > 0)
        crawl->asks = lh_timer_in(crawl->process->env, sim_between(crawl->process->sim, 200, 3000),
                                  ask, crawl);
}

/* ---- what is held ---- */

static guint64 next_id(gpointer data)
{
    return ++((SimCrawl *)data)->ids;
}

/* The name of the seed's policy and what it limits; FALSE: it has none. @name: g_free. */
static gboolean policy_of(const LhAssignment *assignment, char **name, LhPermitLimits *limits)
{
    g_autoptr(cJSON) seed = assignment->seed == NULL
                                ? NULL
                                : lh_json_parse(assignment->seed, strlen(assignment->seed),
                                                LH_JSON_MAX_BYTES, NULL);
    const cJSON *throttle = cJSON_GetObjectItemCaseSensitive(seed, "throttle");
    const char *said = lh_json_get_string(throttle, "name", NULL);
    const char *period = lh_json_get_string(throttle, "period", NULL);
    if (said == NULL)
        return FALSE;
    *name = g_strdup(said);
    *limits = (LhPermitLimits){
        .requests = lh_json_get_int(throttle, "requests", 0),
        .period_ms = lh_json_get_int(throttle, "period", 0),
        .max_concurrent = lh_json_get_int(throttle, "maxConcurrent", 0),
    };
    return period == NULL || lh_duration_parse(period, &limits->period_ms, NULL);
}

char *sim_crawl_policy(const LhAssignment *assignment)
{
    LhPermitLimits limits;
    char *name = NULL;
    return policy_of(assignment, &name, &limits) ? name : NULL;
}

/* The first seed of it says what the holders before granted. */
static Policy *begin(SimCrawl *crawl, const char *name, const LhPermitLimits *limits,
                     const LhAssignment *assignment)
{
    SimProcess *process = crawl->process;
    LhWindow window;
    gboolean known = assignment->window != NULL &&
                     lh_window_parse(assignment->window, &window, NULL);
    Policy *policy = g_new0(Policy, 1);
    if (assignment->window != NULL && !known)
        sim_fail(process->sim, GROUP, "%s: its window is not understood: %s", assignment->o.name,
                 assignment->window);
    policy->name = g_strdup(name);
    policy->limits = *limits;
    policy->permits = lh_permits_new(limits, known ? &window : NULL, lh_mono_ms(process->env),
                                     next_id, crawl);
    policy->node = g_strdup(lh_agent_id(process->agent));
    policy->timeline = fake_etcd_timeline(process->sim->server);
    policy->out = g_array_new(FALSE, FALSE, sizeof(Out));
    g_array_set_clear_func(policy->out, out_clear);
    g_ptr_array_add(crawl->policies, policy);
    if (crawl->asks == NULL)
        crawl->asks = lh_timer_in(process->env, sim_between(process->sim, 50, 1000), ask, crawl);
    return policy;
}

static void set_limits(SimCrawl *crawl, Policy *policy, const LhPermitLimits *limits)
{
    policy->limits = *limits;
    lh_permits_limit(policy->permits, limits, lh_mono_ms(crawl->process->env));
}

void sim_crawl_load(SimCrawl *crawl, const char *name, const LhAssignment *assignment)
{
    g_autofree char *policy_name = NULL;
    LhPermitLimits limits;
    if (!policy_of(assignment, &policy_name, &limits))
        return;
    Policy *policy = find_policy(crawl, policy_name);
    if (policy == NULL)
        policy = begin(crawl, policy_name, &limits, assignment);
    else
        set_limits(crawl, policy, &limits);
    Seed *seed = g_new0(Seed, 1);
    seed->name = g_strdup(name);
    seed->policy = policy;
    policy->seeds++;
    g_ptr_array_add(crawl->seeds, seed);
}

gboolean sim_crawl_update(SimCrawl *crawl, const char *name, const LhAssignment *assignment)
{
    const Seed *seed = find_seed(crawl, name);
    g_autofree char *policy = NULL;
    LhPermitLimits limits;
    if (!policy_of(assignment, &policy, &limits))
        return seed == NULL;
    if (seed == NULL || strcmp(seed->policy->name, policy) != 0)
        return FALSE;
    set_limits(crawl, seed->policy, &limits);
    return TRUE;
}

void sim_crawl_works(SimCrawl *crawl, const char *name, gboolean works)
{
    Seed *seed = find_seed(crawl, name);
    if (seed != NULL)
        seed->works = works;
}

char *sim_crawl_window(SimCrawl *crawl, const char *name)
{
    const Seed *seed = find_seed(crawl, name);
    LhWindow window;
    if (seed == NULL)
        return NULL;
    lh_permits_window(seed->policy->permits, lh_mono_ms(crawl->process->env), &window);
    return lh_window_print(&window);
}

void sim_crawl_forget(SimCrawl *crawl, const char *name)
{
    Seed *seed = find_seed(crawl, name);
    if (seed == NULL)
        return;
    if (--seed->policy->seeds == 0)
        g_ptr_array_remove(crawl->policies, seed->policy);
    g_ptr_array_remove(crawl->seeds, seed);
}

SimCrawl *sim_crawl_new(SimProcess *process)
{
    SimCrawl *crawl = g_new0(SimCrawl, 1);
    crawl->process = process;
    crawl->policies = g_ptr_array_new_with_free_func(policy_free);
    crawl->seeds = g_ptr_array_new_with_free_func(seed_free);
    return crawl;
}

void sim_crawl_free(SimCrawl *crawl)
{
    if (crawl == NULL)
        return;
    lh_timer_clear(crawl->process->env, &crawl->asks);
    g_ptr_array_unref(crawl->seeds);
    g_ptr_array_unref(crawl->policies);
    g_free(crawl);
}
