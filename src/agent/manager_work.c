/*
 * Seeds and limiters. A seed:
 *
 *   LOADING ─ready─▶ LIVE ─release─▶ RELEASING ─released─▶ HELD BACK ─▶ ANSWERED ─committed─▶ TOLD ─▶ forgotten
 *
 * What finished or failed is held back and answered likewise. A policy is *open* while one of its seeds may be
 * granted permits; an answer that is given then tells less than a later one. Those are counted (`early`), and
 * once the policy is closed, further answers wait until etcd has the early ones: the window with the greatest
 * revision is then a complete one, in whatever order writes are carried out.
 */
#include "agent/manager_work.h"

#include "api/seed_order.h"
#include "base/errors.h"
#include "base/json.h"
#include "base/log.h"

#include <string.h>

typedef enum {
    SEED_LOADING,
    SEED_LIVE,
    SEED_RELEASING,
    SEED_HELD_BACK, /* its answer is known and not given */
    SEED_ANSWERED,
    SEED_TOLD,
} SeedState;

typedef enum { ANSWER_RELEASED, ANSWER_FINISHED, ANSWER_FAILED } Answer;

/* A limiter and its users. The policy of a seed without throttle is its own and has no name. */
typedef struct {
    LhManagerWork *work;
    char *name;
    guint refs;
    LhPermits *permits;
    guint early;    /* answers given while it was open, not yet committed */
    gint64 granted; /* since the counter was read last */
} Policy;

typedef struct {
    LhManagerWork *work;
    char *name;
    Policy *policy; /* NULL: its order was not understood */
    SeedState state;
    gboolean leaving; /* the newest order is to let it go */
    gboolean paused;
    gboolean early;
    gboolean answering; /* inside the call */
    Answer answer;
    GError *error;  /* ANSWER_FAILED */
    LhTimer *timer; /* to answer at the next turn */
} Seed;

typedef struct {
    LhManagerWork *work;
    char *worker;
    LhHookRun run;
} HookRun;

struct LhManagerWork {
    LhAgentWork base;
    LhEnv *env;
    LhAgentWork *programs;
    LhManagerWorkOptions o;
    const LhWorkFuncs *funcs;
    gpointer data;
    char *node;
    gint64 deadline_ms;
    GHashTable *seeds;    /* name → Seed */
    GHashTable *policies; /* name → Policy, the newest of that name */
    GHashTable *failed;   /* set of workers */
    GPtrArray *runs;      /* HookRun */
    gint64
        refused[LH_N_PERMITS_ANSWERS]; /* requests; ANSWERED: those that the limiter gave nothing */
};

/* ---- policies ---- */

static guint64 random_id(gpointer data)
{
    return lh_random(data);
}

static char *policy_labels(const Policy *policy)
{
    return lh_labels("policy", policy->name != NULL ? policy->name : "", NULL);
}

static void count_granted(Policy *policy)
{
    if (policy->work->o.metrics == NULL || policy->granted == 0)
        return;
    g_autofree char *labels = policy_labels(policy);
    lh_counter_add(policy->work->o.metrics, "permits_granted_total", labels,
                   (double)policy->granted);
    policy->granted = 0;
}

static void policy_unref(Policy *policy)
{
    if (policy == NULL || --policy->refs > 0)
        return;
    LhManagerWork *work = policy->work;
    count_granted(policy);
    if (policy->name != NULL && g_hash_table_lookup(work->policies, policy->name) == policy)
        g_hash_table_remove(work->policies, policy->name);
    lh_permits_free(policy->permits);
    g_free(policy->name);
    g_free(policy);
}

static Policy *policy_new(LhManagerWork *work, const LhSeedOrder *order, const LhWindow *window)
{
    const LhPermitLimits limits = {order->requests, order->period_ms, order->max_concurrent};
    Policy *policy = g_new0(Policy, 1);
    policy->work = work;
    policy->refs = 1;
    policy->permits = lh_permits_new(&limits, window, lh_mono_ms(work->env), random_id, work->env);
    if (order->throttle != NULL) {
        policy->name = g_strdup(order->throttle);
        g_hash_table_replace(work->policies, policy->name, policy);
    }
    return policy;
}

static gboolean is_held(const Seed *seed)
{
    return seed->state <= SEED_HELD_BACK;
}

typedef gboolean (*SeedTest)(const Seed *seed);

static gboolean any_of(const Policy *policy, SeedTest test)
{
    GHashTableIter iter;
    gpointer value;
    g_hash_table_iter_init(&iter, policy->work->seeds);
    while (g_hash_table_iter_next(&iter, NULL, &value)) {
        const Seed *seed = value;
        if (seed->policy == policy && test(seed))
            return TRUE;
    }
    return FALSE;
}

static gboolean may_be_granted(const Seed *seed)
{
    return seed->state <= SEED_LIVE && !seed->leaving;
}

static gboolean is_untold(const Seed *seed)
{
    return seed->state == SEED_ANSWERED;
}

/* ---- answers ---- */

static void try_answer(Seed *seed);

static void answer_now(gpointer data)
{
    Seed *seed = data;
    seed->timer = NULL;
    try_answer(seed);
}

static void answer_soon(Seed *seed)
{
    if (seed->timer == NULL)
        seed->timer = lh_timer_in(seed->work->env, 0, answer_now, seed);
}

static void wake_others(const Policy *policy)
{
    GHashTableIter iter;
    gpointer value;
    g_hash_table_iter_init(&iter, policy->work->seeds);
    while (g_hash_table_iter_next(&iter, NULL, &value)) {
        Seed *seed = value;
        if (seed->policy == policy && seed->state == SEED_HELD_BACK)
            answer_soon(seed);
    }
}

static void no_longer_early(Seed *seed)
{
    if (!seed->early)
        return;
    seed->early = FALSE;
    if (--seed->policy->early == 0)
        wake_others(seed->policy);
}

static void try_answer(Seed *seed)
{
    LhManagerWork *work = seed->work;
    Policy *policy = seed->policy;
    gboolean open = policy != NULL && any_of(policy, may_be_granted);
    if (policy != NULL && !open && policy->early > 0)
        return;
    seed->early = open;
    if (open)
        policy->early++;
    seed->state = SEED_ANSWERED;
    g_autofree char *name = g_strdup(seed->name);
    g_autoptr(GError) error = g_steal_pointer(&seed->error);
    seed->answering = TRUE; /* a load that comes in the call finds that nothing has been told */
    switch (seed->answer) {
    case ANSWER_RELEASED:
        work->funcs->released(name, NULL, work->data);
        break;
    case ANSWER_FINISHED:
        work->funcs->finished(name, work->data);
        break;
    case ANSWER_FAILED:
        work->funcs->failed(name, error, work->data);
        break;
    }
    seed = g_hash_table_lookup(work->seeds, name);
    if (seed != NULL)
        seed->answering = FALSE;
}

/* The seed is not held any more. */
static void end_seed(Seed *seed, Answer answer, const GError *error)
{
    seed->state = SEED_HELD_BACK;
    seed->answer = answer;
    g_clear_error(&seed->error);
    if (error != NULL)
        seed->error = g_error_copy(error);
    answer_soon(seed);
}

static void seed_free(gpointer data)
{
    Seed *seed = data;
    lh_timer_clear(seed->work->env, &seed->timer);
    no_longer_early(seed);
    policy_unref(seed->policy);
    g_clear_error(&seed->error);
    g_free(seed->name);
    g_free(seed);
}

/* ---- what the programs answer ---- */

static void on_progress(const char *item, gint64 bytes_done, gpointer data)
{
    LhManagerWork *work = data;
    work->funcs->progress(item, bytes_done, work->data);
}

static void on_ready(const char *item, const char *url, gpointer data)
{
    LhManagerWork *work = data;
    Seed *seed = g_hash_table_lookup(work->seeds, item);
    g_autofree char *permits = work->o.permits_url != NULL
                                   ? g_strconcat(work->o.permits_url, item, NULL)
                                   : NULL;
    if (seed != NULL && seed->state == SEED_LOADING)
        seed->state = SEED_LIVE;
    work->funcs->ready(item, url != NULL ? url : permits, work->data);
}

static void on_finished(const char *item, gpointer data)
{
    LhManagerWork *work = data;
    Seed *seed = g_hash_table_lookup(work->seeds, item);
    if (seed != NULL)
        end_seed(seed, ANSWER_FINISHED, NULL);
}

static void on_failed(const char *item, const GError *error, gpointer data)
{
    LhManagerWork *work = data;
    Seed *seed = g_hash_table_lookup(work->seeds, item);
    if (seed != NULL)
        end_seed(seed, ANSWER_FAILED, error);
}

static void on_released(const char *item, const GError *error, gpointer data)
{
    LhManagerWork *work = data;
    Seed *seed = g_hash_table_lookup(work->seeds, item);
    if (error != NULL)
        work->funcs->released(item, error, work->data);
    else if (seed != NULL)
        end_seed(seed, ANSWER_RELEASED, NULL);
}

/* ---- orders ---- */

/* TRUE: *@out is what the order says; else nobody knows. */
static gboolean read_window(const char *item, const LhAssignment *assignment, LhWindow *out)
{
    g_autoptr(GError) error = NULL;
    if (assignment->window == NULL)
        return FALSE;
    if (lh_window_parse(assignment->window, out, &error))
        return TRUE;
    lh_log(LH_LOG_WARNING, "what was granted before is not known; the policy waits for one period",
           "item", item, "error", error->message, NULL);
    return FALSE;
}

static gboolean read_order(const LhAssignment *assignment, LhSeedOrder *order, GError **error)
{
    if (assignment->seed == NULL) {
        g_set_error_literal(error, LH_ERROR, LH_ERR_INVALID, "seed: is required");
        return FALSE;
    }
    return lh_seed_order_parse(assignment->seed, order, error);
}

static gboolean same_name(const Policy *policy, const LhSeedOrder *order)
{
    return policy != NULL && g_strcmp0(policy->name, order->throttle) == 0;
}

/* The policy that is in force here, if its limiter knows what was granted; a reference. @window is of an order
 * that somebody else's end has gone into; NULL: nobody knows. */
static Policy *policy_for(LhManagerWork *work, const LhSeedOrder *order, const LhWindow *window)
{
    Policy *policy = order->throttle != NULL ? g_hash_table_lookup(work->policies, order->throttle)
                                             : NULL;
    if (policy == NULL)
        return policy_new(work, order, window);
    if (!any_of(policy, is_held)) {
        if (!any_of(policy, is_untold)) /* all is told: the order speaks of what came after, too */
            return policy_new(work, order, window);
        lh_permits_add(policy->permits, window, lh_mono_ms(work->env));
    }
    policy->refs++;
    return policy;
}

static void set_order(Seed *seed, const LhSeedOrder *order)
{
    const LhPermitLimits limits = {order->requests, order->period_ms, order->max_concurrent};
    seed->paused = order->paused;
    lh_permits_limit(seed->policy->permits, &limits, lh_mono_ms(seed->work->env));
}

static Seed *seed_new(LhManagerWork *work, const char *item)
{
    Seed *seed = g_new0(Seed, 1);
    seed->work = work;
    seed->name = g_strdup(item);
    return seed;
}

static void work_load(LhAgentWork *base, const char *item, const LhAssignment *assignment)
{
    LhManagerWork *work = (LhManagerWork *)base;
    Seed *before = g_hash_table_lookup(work->seeds, item);
    Seed *seed = seed_new(work, item);
    g_autoptr(GError) error = NULL;
    LhSeedOrder order = {0};
    LhWindow known = {0};
    if (!read_order(assignment, &order, &error)) {
        g_hash_table_replace(work->seeds, seed->name, seed);
        end_seed(seed, ANSWER_FAILED, error);
        return;
    }
    const LhWindow *window = read_window(item, assignment, &known) ? &known : NULL;
    if (order.throttle == NULL) {
        const LhWindow nothing = {0};
        seed->policy = policy_new(work, &order, &nothing);
    } else if (before != NULL && before->answering && same_name(before->policy, &order)) {
        seed->policy = before->policy; /* let go and loaded again, and nobody was told */
        seed->policy->refs++;
    } else {
        gboolean stale = before != NULL && before->answering; /* of the policy that it had */
        seed->policy = policy_for(work, &order, stale ? NULL : window);
    }
    set_order(seed, &order);
    lh_seed_order_clear(&order);
    g_hash_table_replace(work->seeds, seed->name, seed);
    work->programs->v->load(work->programs, item, assignment);
}

/* Another policy in an order that updates the seed: what its holders before granted is not said. */
static void change_policy(Seed *seed, const LhSeedOrder *order)
{
    Policy *policy;
    const LhWindow nothing = {0};
    if (order->throttle == NULL)
        policy = policy_new(seed->work, order, &nothing);
    else
        policy = policy_for(seed->work, order, NULL);
    policy_unref(seed->policy);
    seed->policy = policy;
}

static gboolean work_update(LhAgentWork *base, const char *item, const LhAssignment *assignment)
{
    LhManagerWork *work = (LhManagerWork *)base;
    Seed *seed = g_hash_table_lookup(work->seeds, item);
    g_autoptr(GError) error = NULL;
    LhSeedOrder order = {0};
    if (seed == NULL || seed->policy == NULL || !read_order(assignment, &order, &error) ||
        !work->programs->v->update(work->programs, item, assignment)) {
        lh_seed_order_clear(&order);
        return FALSE;
    }
    if (!same_name(seed->policy, &order))
        change_policy(seed, &order);
    set_order(seed, &order);
    lh_seed_order_clear(&order);
    return TRUE;
}

static void work_ordered(LhAgentWork *base, const char *item, gboolean hold)
{
    LhManagerWork *work = (LhManagerWork *)base;
    Seed *seed = g_hash_table_lookup(work->seeds, item);
    if (seed != NULL)
        seed->leaving = !hold;
}

static void work_release(LhAgentWork *base, const char *item)
{
    LhManagerWork *work = (LhManagerWork *)base;
    Seed *seed = g_hash_table_lookup(work->seeds, item);
    if (seed != NULL && seed->state <= SEED_RELEASING) {
        seed->state = SEED_RELEASING;
        work->programs->v->release(work->programs, item);
    } else if (seed != NULL) { /* it has ended by itself */
        no_longer_early(seed);
        end_seed(seed, ANSWER_RELEASED, NULL);
    }
}

static char *work_window(LhAgentWork *base, const char *item)
{
    LhManagerWork *work = (LhManagerWork *)base;
    const Seed *seed = g_hash_table_lookup(work->seeds, item);
    if (seed == NULL || seed->policy == NULL || seed->policy->name == NULL)
        return NULL;
    LhWindow window;
    lh_permits_window(seed->policy->permits, lh_mono_ms(work->env), &window);
    return lh_window_print(&window);
}

static void work_told(LhAgentWork *base, const char *item)
{
    LhManagerWork *work = (LhManagerWork *)base;
    Seed *seed = g_hash_table_lookup(work->seeds, item);
    if (seed == NULL || seed->state != SEED_ANSWERED)
        return;
    seed->state = SEED_TOLD;
    no_longer_early(seed);
}

static void work_forget(LhAgentWork *base, const char *item)
{
    LhManagerWork *work = (LhManagerWork *)base;
    const Seed *seed = g_hash_table_lookup(work->seeds, item);
    if (seed != NULL && !is_held(seed))
        g_hash_table_remove(work->seeds, item);
}

static void work_deadline(LhAgentWork *base, gint64 mono_ms)
{
    LhManagerWork *work = (LhManagerWork *)base;
    work->deadline_ms = mono_ms;
    work->programs->v->deadline(work->programs, mono_ms);
}

static void work_drop(LhAgentWork *base)
{
    LhManagerWork *work = (LhManagerWork *)base;
    work->deadline_ms = 0;
    g_hash_table_remove_all(work->seeds);
    work->programs->v->drop(work->programs);
}

static char **work_warm(LhAgentWork *base G_GNUC_UNUSED)
{
    return NULL;
}

static void work_attach(LhAgentWork *base, const LhWorkFuncs *funcs, gpointer data)
{
    static const LhWorkFuncs own = {
        .progress = on_progress,
        .ready = on_ready,
        .finished = on_finished,
        .failed = on_failed,
        .released = on_released,
    };
    LhManagerWork *work = (LhManagerWork *)base;
    work->funcs = funcs;
    work->data = data;
    work->programs->v->attach(work->programs, &own, work);
}

/* ---- permits ---- */

static LhPermitsAnswer may_take(const LhManagerWork *work, const Seed *seed, const char *worker,
                                gint64 now_ms)
{
    if (now_ms >= work->deadline_ms)
        return LH_PERMITS_IN_DOUBT;
    if (seed == NULL || !is_held(seed))
        return LH_PERMITS_UNKNOWN;
    if (seed->state != SEED_LIVE || seed->leaving)
        return LH_PERMITS_NOT_LIVE;
    if (worker != NULL && g_hash_table_contains(work->failed, worker))
        return LH_PERMITS_WORKER_FAILED;
    return seed->paused ? LH_PERMITS_PAUSED : LH_PERMITS_ANSWERED;
}

LhPermitsAnswer lh_manager_work_take(LhManagerWork *work, const char *name, const char *worker,
                                     guint *n, guint64 *ids, gint64 *retry_ms)
{
    gint64 now_ms = lh_mono_ms(work->env);
    Seed *seed = g_hash_table_lookup(work->seeds, name);
    LhPermitsAnswer answer = may_take(work, seed, worker, now_ms);
    if (answer == LH_PERMITS_ANSWERED) {
        *n = lh_permits_take(seed->policy->permits, seed->name, worker, *n, now_ms, ids, retry_ms);
        seed->policy->granted += *n;
    }
    if (answer != LH_PERMITS_ANSWERED || *n == 0)
        work->refused[answer]++;
    return answer;
}

LhPermitsAnswer lh_manager_work_return(LhManagerWork *work, const char *name, guint64 id)
{
    const Seed *seed = g_hash_table_lookup(work->seeds, name);
    return seed != NULL && seed->policy != NULL &&
                   lh_permits_return(seed->policy->permits, name, id, lh_mono_ms(work->env))
               ? LH_PERMITS_ANSWERED
               : LH_PERMITS_UNKNOWN;
}

/* ---- workers ---- */

static void hook_done(const char *output G_GNUC_UNUSED, const GError *error, gpointer data)
{
    HookRun *run = data;
    if (error != NULL)
        lh_log(LH_LOG_WARNING, "on-worker-failed: not run again", "worker", run->worker, "error",
               error->message, NULL);
    g_ptr_array_remove_fast(run->work->runs, run);
    g_free(run->worker);
    g_free(run);
}

static void run_hook(LhManagerWork *work, const char *worker, const char *input)
{
    if (work->o.on_worker_failed == NULL)
        return;
    const char *const environment[] = {"LEASEHOLD_POOL",
                                       "manager",
                                       "LEASEHOLD_NODE",
                                       work->node != NULL ? work->node : "",
                                       "LEASEHOLD_WORKER",
                                       worker,
                                       NULL};
    const LhHookCall call = {
        .argv = work->o.on_worker_failed,
        .environment = environment,
        .input = input,
        .timeout_ms = work->o.hook_timeout_ms,
    };
    HookRun *run = g_new0(HookRun, 1);
    run->work = work;
    run->worker = g_strdup(worker);
    g_ptr_array_add(work->runs, run);
    run->run = lh_hooks_run(work->o.hooks, &call, hook_done, run);
}

static void collect_permit(const char *seed, guint64 id, gpointer data)
{
    GHashTable *by_seed = data; /* seed → JSON array so far */
    GString *ids = g_hash_table_lookup(by_seed, seed);
    if (ids == NULL) {
        ids = g_string_new("[");
        g_hash_table_insert(by_seed, g_strdup(seed), ids);
    }
    g_string_append_printf(ids, "%s\"%016" G_GINT64_MODIFIER "x\"", ids->len > 1 ? "," : "", id);
}

static void string_free(gpointer data)
{
    g_string_free(data, TRUE);
}

static gint compare_names(gconstpointer a, gconstpointer b)
{
    return strcmp(a, b);
}

/* {"worker":…,"seeds":[{"seed":…,"permits":[…]}]} */
static char *what_was_held(const char *worker, GHashTable *by_seed)
{
    GString *text = g_string_new("{");
    g_autoptr(GList) names = g_list_sort(g_hash_table_get_keys(by_seed), compare_names);
    lh_json_append_key(text, "worker");
    lh_json_append_string(text, worker);
    lh_json_append_key(text, "seeds");
    g_string_append_c(text, '[');
    for (const GList *link = names; link != NULL; link = link->next) {
        const GString *ids = g_hash_table_lookup(by_seed, link->data);
        lh_json_append_key(text, NULL);
        g_string_append_c(text, '{');
        lh_json_append_key(text, "seed");
        lh_json_append_string(text, link->data);
        lh_json_append_key(text, "permits");
        g_string_append(text, ids->str);
        g_string_append(text, "]}");
    }
    g_string_append(text, "]}");
    return g_string_free(text, FALSE);
}

static guint take_back(LhManagerWork *work, const char *worker, GHashTable *by_seed)
{
    g_autoptr(GHashTable) done = g_hash_table_new(NULL, NULL);
    GHashTableIter iter;
    gpointer value;
    guint n = 0;
    g_hash_table_iter_init(&iter, work->seeds);
    while (g_hash_table_iter_next(&iter, NULL, &value)) {
        Policy *policy = ((Seed *)value)->policy;
        if (policy != NULL && g_hash_table_add(done, policy))
            n += lh_permits_take_back(policy->permits, worker, lh_mono_ms(work->env),
                                      collect_permit, by_seed);
    }
    return n;
}

void lh_manager_work_worker_failed(LhManagerWork *work, const char *worker)
{
    if (!g_hash_table_add(work->failed, g_strdup(worker)))
        return;
    g_autoptr(GHashTable) by_seed = g_hash_table_new_full(g_str_hash, g_str_equal, g_free,
                                                          string_free);
    guint n = take_back(work, worker, by_seed);
    if (n == 0)
        return;
    lh_log(LH_LOG_WARNING, "a worker has failed; what it held is given back", "worker", worker,
           "permits", lh_fmt("%u", n), "seeds", lh_fmt("%u", g_hash_table_size(by_seed)), NULL);
    if (work->o.metrics != NULL) {
        lh_counter_add(work->o.metrics, "permits_taken_back_total", NULL, n);
        lh_counter_add(work->o.metrics, "failed_workers_total", NULL, 1);
    }
    g_autofree char *input = what_was_held(worker, by_seed);
    run_hook(work, worker, input);
}

void lh_manager_work_worker_forgotten(LhManagerWork *work, const char *worker)
{
    if (worker != NULL)
        g_hash_table_remove(work->failed, worker);
    else
        g_hash_table_remove_all(work->failed);
}

/* ---- metrics ---- */

static void collect(LhMetrics *metrics, gpointer data)
{
    static const char *const reasons[LH_N_PERMITS_ANSWERS] = {
        "limit", "unknown", "not-live", "paused", "worker-failed", "lease-in-doubt",
    };
    LhManagerWork *work = data;
    g_autoptr(GHashTable) done = g_hash_table_new(NULL, NULL);
    GHashTableIter iter;
    gpointer value;
    gint64 in_use = 0;
    g_hash_table_iter_init(&iter, work->seeds);
    while (g_hash_table_iter_next(&iter, NULL, &value)) {
        Policy *policy = ((Seed *)value)->policy;
        if (policy == NULL || !g_hash_table_add(done, policy))
            continue;
        count_granted(policy);
        in_use += lh_permits_in_use(policy->permits, lh_mono_ms(work->env));
    }
    lh_gauge_set(metrics, "permits_in_use", NULL, (double)in_use);
    lh_gauge_set(metrics, "permit_policies", NULL, g_hash_table_size(work->policies));
    for (guint i = 0; i < G_N_ELEMENTS(reasons); i++) {
        g_autofree char *labels = lh_labels("reason", reasons[i], NULL);
        lh_counter_add(metrics, "permits_refused_total", labels, (double)work->refused[i]);
        work->refused[i] = 0;
    }
}

static void declare_metrics(LhManagerWork *work)
{
    LhMetrics *m = work->o.metrics;
    if (m == NULL)
        return;
    lh_metrics_declare(m, LH_COUNTER, "permits_granted_total",
                       "Permits granted by throttle policy; seeds without one have none.", NULL);
    lh_metrics_declare(m, LH_COUNTER, "permits_refused_total",
                       "Requests for permits that got none, by reason.", NULL);
    lh_metrics_declare(m, LH_GAUGE, "permits_in_use",
                       "Permits that are out, those of holders before included.", NULL);
    lh_metrics_declare(m, LH_GAUGE, "permit_policies", "Throttle policies held here.", NULL);
    lh_metrics_declare(m, LH_COUNTER, "permits_taken_back_total",
                       "Permits that failed workers had not returned.", NULL);
    lh_metrics_declare(m, LH_COUNTER, "failed_workers_total",
                       "Workers that failed while they held permits.", NULL);
    lh_metrics_add_collector(m, collect, work);
}

/* ---- making and freeing ---- */

LhManagerWork *lh_manager_work_new(LhEnv *env, LhAgentWork *programs,
                                   const LhManagerWorkOptions *options)
{
    static const LhAgentWorkVtable vtable = {
        .attach = work_attach,
        .load = work_load,
        .update = work_update,
        .release = work_release,
        .deadline = work_deadline,
        .drop = work_drop,
        .warm = work_warm,
        .ordered = work_ordered,
        .window = work_window,
        .told = work_told,
        .forget = work_forget,
    };
    LhManagerWork *work = g_new0(LhManagerWork, 1);
    work->base.v = &vtable;
    work->env = env;
    work->programs = programs;
    work->o = *options;
    work->seeds = g_hash_table_new_full(g_str_hash, g_str_equal, NULL, seed_free);
    work->policies = g_hash_table_new(g_str_hash, g_str_equal);
    work->failed = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
    work->runs = g_ptr_array_new();
    declare_metrics(work);
    return work;
}

void lh_manager_work_set_node(LhManagerWork *work, const char *node)
{
    g_free(work->node);
    work->node = g_strdup(node);
}

LhAgentWork *lh_manager_work_base(LhManagerWork *work)
{
    return &work->base;
}

void lh_manager_work_free(LhManagerWork *work)
{
    if (work == NULL)
        return;
    if (work->o.metrics != NULL)
        lh_metrics_remove_collector(work->o.metrics, collect, work);
    for (guint i = 0; i < work->runs->len; i++) {
        HookRun *run = work->runs->pdata[i];
        lh_hooks_cancel(work->o.hooks, &run->run);
        g_free(run->worker);
        g_free(run);
    }
    g_ptr_array_unref(work->runs);
    g_hash_table_unref(work->seeds);
    g_hash_table_unref(work->policies);
    g_hash_table_unref(work->failed);
    g_free(work->node);
    g_free(work);
}
