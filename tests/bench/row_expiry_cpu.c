/*
 * (x) What an expiry costs the controllers, in fleets of three sizes: in this process, with plan functions
 * called directly on a folded index, and the clock moved so that exactly so many expire. Each controller is
 * asked until it has nothing more to say; what it decided is folded each time, and is part of the cost.
 *
 *   cache-evictor   reserves, orders away       then nodes answer, cache-assigner takes away; not measured
 *   snapshot-cleaner   Deletions, errands, their answers, snapshots retired
 *
 * That the cost follows what expires, and not what exists, is the quotient of the sizes.
 */
#include "controllers/cleaner.h"
#include "controllers/registry.h"
#include "folded.h"
#include "nodes.h"
#include "rows.h"

#include <string.h>

#define ROOT               "s3://leasehold-snapshots-production-eu-central-1/"
#define DELETES_PER_SECOND 10000 /* as folded_fill_rest has it: of more, the rest waits */
#define MOST_PLANS         1000
#define ASSIGNMENTS        "decided/assignments/"
#define MOST_RATIO         1.5
#define MOST_TURN_MS       50
#define IDLE_PLANS         200

enum { EVICTOR, CLEANER, N_CONTROLLERS };
enum { NOTHING, N_COUNTS = N_EXPIRIES + 1 }; /* nothing due, and each of sizes.expiries */

static const char *const names[N_CONTROLLERS] = {"cache-evictor", "snapshot-cleaner"};
/* The median of so many; the last is large enough alone. */
static const guint rounds[N_EXPIRIES] = {21, 5, 1};

typedef struct {
    Cluster *cluster;
    Folded *folded;
    guint taken; /* of the oldest: have expired */
    gint64 now_ms;
    guint decided; /* by the controller that is measured */
} Fleet;

/* us for each expiry; of NOTHING for each plan */
static double costs[N_CONTROLLERS][N_COUNTS][N_FLEETS];
static double leader_ms[N_FLEETS], lately_us[N_FLEETS];

/* ---- asking ---- */

static LhPlan *ask(const Fleet *fleet, const LhController *controller)
{
    LhPlanContext context = folded_context(fleet->folded, controller, fleet->now_ms);
    LhPlan *plan = lh_plan_new(FALSE);

    controller->plan(folded_index(fleet->folded, controller->index), &context, plan);
    return plan;
}

static LhErrands *ask_errands(const Fleet *fleet, const LhController *controller)
{
    LhPlanContext context = folded_context(fleet->folded, controller, fleet->now_ms);
    LhErrands *errands = lh_errands_new();

    controller->errands(folded_index(fleet->folded, controller->index), &context, errands);
    return errands;
}

/* ---- the cleaner's outside ---- */

static void look_around(Fleet *fleet)
{
    g_autofree char *look = lh_cleaner_errand(LH_CLEANER_LOOK, ROOT);

    folded_observe(fleet->folded, look,
                   "{\"at\":%" G_GINT64_FORMAT ",\"token\":1,\"clock\":%" G_GINT64_FORMAT
                   ",\"state\":\"ours\"}",
                   fleet->now_ms, fleet->now_ms);
    folded_observe(fleet->folded, LH_CLEANER_ETCD,
                   "{\"at\":%" G_GINT64_FORMAT ",\"token\":1,\"clock\":%" G_GINT64_FORMAT "}",
                   fleet->now_ms, fleet->now_ms);
}

/* As a manager does it: before there is anything else. */
static void tell_roots(const Fleet *fleet)
{
    folded_observe(fleet->folded, LH_CLEANER_ROOTS,
                   "{\"at\":%" G_GINT64_FORMAT ",\"uris\":[\"" ROOT "\"]}", fleet->now_ms);
}

static void begin_outside(Fleet *fleet)
{
    g_autofree char *list = lh_cleaner_errand(LH_CLEANER_LIST, ROOT);

    folded_observe(fleet->folded, list,
                   "{\"at\":%" G_GINT64_FORMAT ",\"token\":1,\"clock\":%" G_GINT64_FORMAT
                   ",\"uri\":\"" ROOT "\",\"objects\":1}",
                   fleet->now_ms, fleet->now_ms);
    look_around(fleet);
}

/* One turn of a manager's loop each: leadership goes, and with it what was seen; a new leader has looked. Neither
 * may look at each snapshot again. */
static double new_leader_ms(Fleet *fleet)
{
    gint64 cpu = folded_cpu_ns();

    lh_mirror_forget(fleet->folded->mirror, LH_CLEANER);
    begin_outside(fleet);
    return (double)(folded_cpu_ns() - cpu) / 1e6;
}

/* TRUE when some data was erased. */
static gboolean erase(Fleet *fleet, const LhErrands *errands)
{
    guint erased = 0;

    for (guint i = 0; i < errands->errands->len; i++) {
        const LhErrand *errand = &g_array_index(errands->errands, LhErrand, i);
        if (strcmp(errand->what, LH_CLEANER_DELETE) != 0)
            continue;
        folded_observe(fleet->folded, errand->id,
                       "{\"at\":%" G_GINT64_FORMAT ",\"token\":%" G_GINT64_FORMAT
                       ",\"attempt\":%" G_GINT64_FORMAT ",\"objects\":1}",
                       fleet->now_ms, errand->token, errand->attempt);
        erased++;
    }
    return erased > 0;
}

/* ---- until nothing is left ---- */

static void count(Fleet *fleet, const LhPlan *plan, LhKind kind)
{
    for (guint i = 0; i < plan->ops->len; i++) {
        const LhOp *op = &g_array_index(plan->ops, LhOp, i);
        fleet->decided += op->kind == kind && op->type == LH_OP_PUT &&
                          (kind != LH_KIND_DELETION || op->expect_rev == 0);
    }
}

static void rest(Fleet *fleet, const LhController *controller, LhKind kind)
{
    gboolean more = TRUE;

    fleet->decided = 0;
    for (guint i = 0; more; i++) {
        LhPlan *plan = ask(fleet, controller);
        if (i == MOST_PLANS)
            bench_fail("%s does not come to rest", controller->name);
        count(fleet, plan, kind);
        more = folded_commit(fleet->folded, plan) > 0;
        if (controller->errands != NULL) {
            LhErrands *errands = ask_errands(fleet, controller);
            more |= erase(fleet, errands);
            lh_errands_free(errands);
        }
        lh_plan_free(plan);
    }
}

static double cost_of(Fleet *fleet, const LhController *controller, LhKind kind, guint wanted)
{
    gint64 cpu = folded_cpu_ns();

    rest(fleet, controller, kind);
    cpu = folded_cpu_ns() - cpu;
    if (fleet->decided == 0 || fleet->decided > wanted)
        bench_fail("%s decides %u times, and %u have expired", controller->name, fleet->decided,
                   wanted);
    return (double)cpu / 1000 / fleet->decided;
}

/* ---- one expiry ---- */

/* Answers for the numbers from @first to @end. */
static void nodes_answer(Fleet *fleet, guint first, guint end, gboolean gone)
{
    for (guint i = first; i < end; i++) {
        g_autofree char *order = NULL, *value = NULL, *key = NULL, *answer = NULL;
        g_autofree char *item = NULL;
        cluster_assignment(fleet->cluster, i, &order, &value);
        item = g_strconcat("actual/items/", order + strlen(ASSIGNMENTS), NULL);
        if (gone) {
            folded_put(fleet->folded, item, NULL);
            continue;
        }
        nodes_item(
            lh_mirror_get(fleet->folded->mirror, LH_KIND_ASSIGNMENT, order + strlen(ASSIGNMENTS)),
            LH_ITEM_EVICTED, &key, &answer);
        folded_put(fleet->folded, key, answer);
    }
}

/* The next @n oldest expire, and go all the way. */
static void expire(Fleet *fleet, guint n, Samples *const *samples)
{
    guint end = fleet->cluster->o.snapshots - fleet->taken, first = end - n;
    guint left = lh_mirror_count(fleet->folded->mirror, LH_KIND_SNAPSHOT);

    fleet->taken += n;
    fleet->now_ms = cluster_end_ms(fleet->cluster, first) + cluster_window_ms(fleet->cluster, 0);
    samples_add(samples[EVICTOR], cost_of(fleet, &lh_cache_evictor, LH_KIND_ASSIGNMENT, n));
    if (fleet->decided != n)
        bench_fail("cache-evictor orders %u away, and %u have expired", fleet->decided, n);
    nodes_answer(fleet, first, end, FALSE);
    rest(fleet, &lh_cache_assigner, LH_KIND_ASSIGNMENT);
    nodes_answer(fleet, first, end, TRUE);
    fleet->now_ms++; /* retention is so much longer than the window */
    look_around(fleet);
    samples_add(samples[CLEANER], cost_of(fleet, &lh_snapshot_cleaner, LH_KIND_DELETION, n));
    left -= lh_mirror_count(fleet->folded->mirror, LH_KIND_SNAPSHOT);
    if (left != fleet->decided)
        bench_fail("%u Deletions are decided, but %u snapshots retired", fleet->decided, left);
}

/* One plan while nothing is to be done: what every change in the fleet costs. */
static double idle_us(const Fleet *fleet, const LhController *controller)
{
    gint64 cpu = folded_cpu_ns();

    for (guint i = 0; i < IDLE_PLANS; i++) {
        g_autoptr(LhPlan) plan = ask(fleet, controller);
        if (lh_plan_groups(plan) > 0)
            bench_fail("%s has something to do, and nothing has expired", controller->name);
        if (controller->errands != NULL)
            lh_errands_free(ask_errands(fleet, controller));
    }
    return (double)(folded_cpu_ns() - cpu) / 1000 / IDLE_PLANS;
}

/* ---- fleets ---- */

static guint all_expiries(void)
{
    guint n = 0;

    for (guint e = 0; e < N_EXPIRIES; e++)
        n += rounds[e] * bench.sizes.expiries[e];
    return n;
}

static void measure(Fleet *fleet, guint size)
{
    costs[EVICTOR][NOTHING][size] = idle_us(fleet, &lh_cache_evictor);
    costs[CLEANER][NOTHING][size] = idle_us(fleet, &lh_snapshot_cleaner);
    for (guint e = 0; e < N_EXPIRIES; e++) {
        Samples *samples[N_CONTROLLERS] = {samples_new(), samples_new()};
        for (guint r = 0; r < rounds[e]; r++)
            expire(fleet, bench.sizes.expiries[e], samples);
        for (guint c = 0; c < N_CONTROLLERS; c++) {
            costs[c][e + 1][size] = samples_median(samples[c]);
            g_array_unref(samples[c]);
        }
    }
    lately_us[size] = idle_us(fleet, &lh_snapshot_cleaner);
}

static void in_fleet(guint size)
{
    ClusterOptions o = {
        .label = "expiry",
        .snapshots = bench.sizes.fleets[size] + all_expiries(),
        .nodes = MAX(bench.sizes.nodes, bench.sizes.fleets[size] / 800),
        .services = FLEET_SERVICES,
        .staggered = TRUE,
    };
    Fleet fleet = {.cluster = cluster_imagine(&o), .folded = folded_new()};

    bench_say("folding %u snapshots that stay and %u that expire", bench.sizes.fleets[size],
              all_expiries());
    fleet.now_ms = cluster_end_ms(fleet.cluster, o.snapshots - 1) +
                   cluster_window_ms(fleet.cluster, 0) - 1;
    tell_roots(&fleet);
    folded_fill_rest(fleet.folded, fleet.cluster);
    folded_fill(fleet.folded, fleet.cluster, o.snapshots, cluster_snapshot);
    folded_fill(fleet.folded, fleet.cluster, o.snapshots, cluster_replica);
    folded_fill(fleet.folded, fleet.cluster, o.snapshots, cluster_assignment);
    folded_fill_items(fleet.folded, fleet.cluster);
    begin_outside(&fleet);
    leader_ms[size] = new_leader_ms(&fleet);
    rest(&fleet, &lh_cache_assigner, LH_KIND_ASSIGNMENT);
    measure(&fleet, size);
    folded_free(fleet.folded);
    cluster_free(fleet.cluster);
}

static void report(guint controller, guint count_of)
{
    const double *cost = costs[controller][count_of];
    const guint *fleets = bench.sizes.fleets;
    double least = MIN(cost[0], MIN(cost[1], cost[2])), most = MAX(cost[0], MAX(cost[1], cost[2]));
    g_autofree char *what = count_of == NOTHING
                                ? g_strdup("a plan while nothing is due")
                                : g_strdup_printf("for each when %u expire",
                                                  bench.sizes.expiries[count_of - 1]);

    table_add(bench.table, "x", cost[N_FLEETS - 1], "us", NO_AIM, NULL,
              "CPU of %s, %s, of %u snapshots (of %u: %.1f; of %u: %.1f)", names[controller], what,
              fleets[2], fleets[0], cost[0], fleets[1], cost[1]);
    table_add(bench.table, "x", most / least, "x", AT_MOST(MOST_RATIO), NULL,
              "the same: largest over smallest of the three fleets");
}

void row_expiry_cpu(void)
{
    for (guint size = 0; size < N_FLEETS; size++)
        in_fleet(size);
    for (guint c = 0; c < N_CONTROLLERS; c++)
        for (guint n = 0; n < N_COUNTS; n++)
            report(c, n);
    table_add(
        bench.table, "x", lately_us[N_FLEETS - 1], "us", NO_AIM, NULL,
        "CPU of snapshot-cleaner, a plan with nothing to do, after %u Deletions in ten minutes",
        MIN(all_expiries(), DELETES_PER_SECOND));
    table_add(bench.table, "x", leader_ms[N_FLEETS - 1], "ms", AT_MOST(MOST_TURN_MS), NULL,
              "CPU of what a new leader's cleaner forgets and hears in one turn of the loop, of %u "
              "snapshots that may all be deleted one day",
              bench.sizes.fleets[N_FLEETS - 1] + all_expiries());
}
