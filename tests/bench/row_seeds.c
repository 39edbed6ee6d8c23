/*
 * (s) What the allocation of seeds costs seed-allocator alone: in this process, with plans called directly on a
 * folded index and committed as etcd would, in a fleet and in one of a tenth of the size. Simulated crawl
 * managers answer each order at once. All seeds are placed from nothing; one manager dies; one joins.
 *
 * The CPU of plans, and that of folding what they decided and what managers answered, into all indexes that a
 * manager has, are counted apart. The first answers whether a plan scans what it has nothing to do with.
 * Moves are counted against the least that there can be (crawl.h); of a death that is what the manager held.
 */
#include "controllers/pool.h"
#include "controllers/registry.h"
#include "crawl.h"
#include "folded.h"
#include "rows.h"

#include <string.h>

#define SETTLED_PLANS 1000 /* more, and it does not come to rest */
#define PLAN_MS       100  /* of simulated time between two */
#define IDLE_PLANS    50
#define TTL_MS        60000
#define DEAD          1 /* the manager that dies */

enum { WHOLE, TENTH, N_SIZES };
enum { PLACED, DIED, JOINED, N_STEPS };

typedef struct {
    Crawl *crawl;
    Folded *folded;
    gint64 now_ms;
} Fleet;

typedef struct {
    guint loads, evicts, least, plans, groups, transactions;
    gint64 plan_ns, longest_ns, fold_ns;
} Step;

static const char *const words[N_STEPS] = {"all are placed from nothing", "one manager dies",
                                           "one manager joins"};
static Step steps[N_SIZES][N_STEPS];
static double idle_us[N_SIZES];

/* ---- one plan ---- */

static LhPlan *ask(const Fleet *fleet)
{
    LhPlanContext context = folded_context(fleet->folded, &lh_seed_allocator, fleet->now_ms);
    LhPlan *plan = lh_plan_new(FALSE);

    lh_seed_allocator.plan(folded_index(fleet->folded, lh_seed_allocator.index), &context, plan);
    return plan;
}

/* What managers say to the orders of @plan, which has been committed. */
static void answer(const Fleet *fleet, const LhPlan *plan)
{
    for (guint i = 0; i < plan->ops->len; i++) {
        const LhOp *op = &g_array_index(plan->ops, LhOp, i);
        const LhObject *order = lh_mirror_get(fleet->folded->mirror, op->kind, op->name);
        g_autofree char *key = NULL, *value = NULL;
        if (op->kind != LH_KIND_ASSIGNMENT)
            continue;
        if (order != NULL)
            crawl_item(order, &key, &value);
        else
            key = g_strconcat("actual/items/", op->name, NULL);
        if (order != NULL || lh_mirror_get(fleet->folded->mirror, LH_KIND_ITEM, op->name) != NULL)
            folded_put(fleet->folded, key, value);
    }
}

static void count(Step *step, const LhPlan *plan)
{
    for (guint i = 0; i < plan->ops->len; i++) {
        const LhOp *op = &g_array_index(plan->ops, LhOp, i);
        if (op->kind != LH_KIND_ASSIGNMENT || op->type != LH_OP_PUT)
            continue;
        step->loads += op->expect_rev == 0;
        step->evicts += op->expect_rev != 0;
    }
    step->plans++;
    step->groups += lh_plan_groups(plan);
    step->transactions += folded_transactions(plan);
}

static void come_to_rest(Fleet *fleet, Step *step)
{
    gboolean more = TRUE;

    while (more) {
        gint64 begin = folded_cpu_ns(), planned;
        LhPlan *plan = ask(fleet);
        planned = folded_cpu_ns();
        more = folded_commit(fleet->folded, plan) > 0 || plan->more;
        answer(fleet, plan);
        step->fold_ns += folded_cpu_ns() - planned;
        step->plan_ns += planned - begin;
        step->longest_ns = MAX(step->longest_ns, planned - begin);
        count(step, plan);
        lh_plan_free(plan);
        fleet->now_ms += PLAN_MS;
        if (step->plans > SETTLED_PLANS)
            bench_fail("seed-allocator does not come to rest");
    }
}

/* ---- the fleet ---- */

static const LhPoolView *view_of(const Fleet *fleet)
{
    return lh_pools_view(folded_index(fleet->folded, &lh_pools_index), LH_POOL_MANAGER);
}

static guint number_of(const LhPoolNode *node)
{
    return (guint)g_ascii_strtoull(node->id + strlen("crawl-"), NULL, 10);
}

/* Policies by the seeds that a manager has of them, and totals. */
static CrawlHeld *held_now(const Fleet *fleet)
{
    CrawlHeld *held = crawl_held_new(fleet->crawl->managers);
    g_autoptr(GHashTable) at = g_hash_table_new(NULL, NULL); /* LhSeedGroup -> index + 1 */
    GHashTableIter iter;
    gpointer record;

    g_hash_table_iter_init(&iter, view_of(fleet)->assignments);
    while (g_hash_table_iter_next(&iter, NULL, &record)) {
        const LhPoolAssignment *assignment = record;
        guint manager = number_of(assignment->node), index;
        CrawlGroup fresh = {.manager = manager};
        if (assignment->object == NULL || manager >= held->managers)
            bench_fail("%s is held, and nobody ordered it", assignment->key);
        if (assignment->group == NULL) {
            held->free[manager]++;
            continue;
        }
        held->grouped[manager]++;
        index = GPOINTER_TO_UINT(g_hash_table_lookup(at, assignment->group));
        if (index == 0) {
            g_array_append_val(held->groups, fresh);
            index = held->groups->len;
            g_hash_table_insert(at, assignment->group, GUINT_TO_POINTER(index));
        }
        g_array_index(held->groups, CrawlGroup, index - 1).seeds++;
    }
    return held;
}

static void accept_all(const Fleet *fleet, guint n,
                       void (*item)(const Crawl *crawl, guint i, char **subject, char **spec))
{
    for (guint i = 0; i < n; i++) {
        g_autofree char *subject = NULL, *spec = NULL;
        item(fleet->crawl, i, &subject, &spec);
        folded_accept(fleet->folded, subject, spec);
    }
}

static void join(const Fleet *fleet, guint i, guint start)
{
    g_autofree char *key = NULL, *value = NULL;

    crawl_manager(i, start, NULL, TTL_MS, &key, &value);
    folded_put(fleet->folded, key, value);
}

/* Its lease ends, and with it all that it said; failure-detector has waited for a TTL. How many it held. */
static guint die(const Fleet *fleet, guint i)
{
    g_autofree char *id = crawl_manager_id(i, 0);
    g_autofree char *key = g_strconcat("actual/nodes/manager/", id, NULL);
    g_autofree char *health = g_strconcat("decided/health/manager/", id, NULL);
    const LhPoolNode *node = g_hash_table_lookup(view_of(fleet)->nodes, id);
    guint held = (guint)node->held;

    folded_put(fleet->folded, key, NULL);
    for (guint a = 0; a < node->assignments->len; a++) {
        const LhPoolAssignment *assignment = node->assignments->pdata[a];
        g_autofree char *item = g_strconcat("actual/items/manager/", assignment->key, NULL);
        folded_put(fleet->folded, item, NULL);
    }
    folded_put(
        fleet->folded, health,
        "{\"state\":\"failed\",\"since\":1,\"missingSince\":1,\"reason\":\"the benchmark\"}");
    return held;
}

/* ---- the steps ---- */

static void say_even(const CrawlHeld *held, const char *when)
{
    bench_say("  %s: %u to %u seeds on a manager", when, crawl_fewest(held), crawl_most(held));
}

static void look_even(const Fleet *fleet, const char *when)
{
    CrawlHeld *held = held_now(fleet);

    say_even(held, when);
    crawl_held_free(held);
}

static void run_join(Fleet *fleet, Step *step)
{
    CrawlHeld *before = held_now(fleet), *after;

    /* Of the dead one nothing is left: it is not among those that could keep something. */
    before->free[DEAD] = before->free[--before->managers];
    before->grouped[DEAD] = before->grouped[before->managers];
    for (guint g = 0; g < before->groups->len; g++) {
        CrawlGroup *group = &g_array_index(before->groups, CrawlGroup, g);
        group->manager = group->manager == before->managers ? DEAD : group->manager;
    }
    say_even(before, "before one joins");
    join(fleet, DEAD, 1);
    come_to_rest(fleet, step);
    after = held_now(fleet);
    say_even(after, "after that");
    step->least = crawl_least(before, after);
    crawl_held_free(before);
    crawl_held_free(after);
}

static double rest_us(Fleet *fleet)
{
    gint64 cpu = folded_cpu_ns();

    for (guint i = 0; i < IDLE_PLANS; i++) {
        g_autoptr(LhPlan) plan = ask(fleet);
        if (lh_plan_groups(plan) > 0)
            bench_fail("seed-allocator has something to do, and it was at rest");
    }
    return (double)(folded_cpu_ns() - cpu) / 1000 / IDLE_PLANS;
}

static void in_fleet(guint size)
{
    guint part = size == WHOLE ? 1 : 10;
    const Sizes *sizes = &bench.sizes;
    Crawl *crawl = crawl_new(sizes->seeds / part, MAX(sizes->policies / part, 1),
                             MAX(sizes->crawlers / part, 2));
    Fleet fleet = {.crawl = crawl, .folded = folded_new(), .now_ms = G_GINT64_CONSTANT(1) << 40};
    Step *step = steps[size];

    bench_say("folding %u seeds, %u policies, %u crawl managers", crawl->seeds, crawl->policies,
              crawl->managers);
    for (guint i = 0; i < crawl->managers; i++)
        join(&fleet, i, 0);
    accept_all(&fleet, crawl->policies, crawl_policy);
    accept_all(&fleet, crawl->seeds, crawl_seed);
    step[PLACED].least = crawl->seeds;
    come_to_rest(&fleet, &step[PLACED]);
    look_even(&fleet, "placed");
    idle_us[size] = rest_us(&fleet);
    step[DIED].least = die(&fleet, DEAD);
    come_to_rest(&fleet, &step[DIED]);
    run_join(&fleet, &step[JOINED]);
    folded_free(fleet.folded);
    crawl_free(crawl);
}

/* ---- lines ---- */

static double us_each(gint64 ns, const Step *step)
{
    return (double)ns / 1000 / MAX(step->loads, 1);
}

static void report(guint s)
{
    const Step *step = &steps[WHOLE][s], *tenth = &steps[TENTH][s];

    table_add(bench.table, "s", (double)step->plan_ns / 1e6, "ms", NO_AIM, NULL,
              "%u seeds, %s: CPU of %u plans (the longest: %.1f ms; %u groups, %u transactions)",
              bench.sizes.seeds, words[s], step->plans, (double)step->longest_ns / 1e6,
              step->groups, step->transactions);
    table_add(bench.table, "s", us_each(step->plan_ns, step), "us", NO_AIM, NULL,
              "the same: CPU of plans for each move (in a fleet of a tenth: %.1f)",
              us_each(tenth->plan_ns, tenth));
    table_add(bench.table, "s", us_each(step->fold_ns, step), "us", NO_AIM, NULL,
              "the same: of folding what was decided and answered, into all indexes (%.1f)",
              us_each(tenth->fold_ns, tenth));
    table_add(bench.table, "s", (double)step->loads / MAX(step->least, 1), "x", NO_AIM, NULL,
              "the same: %u moves as a multiple of the least there can be%s, %u", step->loads,
              s == JOINED ? " for ending as even" : "", step->least);
}

void row_seeds(void)
{
    in_fleet(TENTH);
    in_fleet(WHOLE);
    for (guint s = 0; s < N_STEPS; s++)
        report(s);
    table_add(bench.table, "s", idle_us[WHOLE], "us", NO_AIM, NULL,
              "CPU of a plan while nothing is to be done (in a fleet of a tenth: %.1f)",
              idle_us[TENTH]);
}
