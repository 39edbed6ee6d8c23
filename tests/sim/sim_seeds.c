/*
 * People who run crawls: seeds and throttle policies that are made, edited, paused, stopped, deleted and
 * started again, a throttle that changes during a crawl, and rebalances that somebody asks for. And what must
 * have become of every seed once the noise is over.
 */
#include "base/units.h"
#include "sim.h"

#include <string.h>

#define SEEDS     12
#define THROTTLES 4
#define FREE      THROTTLES /* a seed without one */
#define LATER_MS  40000     /* what is deleted is asked for again within this */

typedef struct {
    gboolean exists;
    guint throttle;
    guint state;
} Seed;

struct SimSeeds {
    Seed seeds[SEEDS];
    gboolean throttles[THROTTLES]; /* exists */
};

static const char *const states[] = {"started", "paused", "stopped"};

static void put_seed(Sim *sim, guint i)
{
    const Seed *seed = &sim->seeds->seeds[i];
    g_autofree char *key = g_strdup_printf("desired/seeds/seed-%u", i);
    g_autofree char *throttle = seed->throttle == FREE
                                    ? g_strdup("")
                                    : g_strdup_printf("\"throttle\":\"t-%u\",", seed->throttle);
    g_autofree char *value = g_strdup_printf(
        "{\"spec\":{\"url\":\"http://site-%u.example/\",%s\"state\":\"%s\",\"priority\":%u}}", i,
        throttle, states[seed->state], (guint)sim_below(sim, 3));
    sim_put(sim, key, value, 0);
}

/* Short periods, and one that is as long as what a holder that does not know must wait. */
static void put_throttle(Sim *sim, guint i)
{
    static const gint64 periods_s[THROTTLES] = {10, 4, 0, 60};
    static const gint64 most[THROTTLES] = {20, 6, 0, 50};
    g_autofree char *key = g_strdup_printf("desired/throttles/t-%u", i);
    GString *spec = g_string_new(NULL);
    if (most[i] > 0)
        g_string_append_printf(spec, "\"requests\":%" G_GINT64_FORMAT ",\"period\":\"%ds\"",
                               sim_between(sim, most[i] / 2, most[i] * 3 / 2),
                               (int)periods_s[i] * (sim_chance(sim, 15) ? 2 : 1));
    if (i == 1 || i == 2)
        g_string_append_printf(spec, "%s\"maxConcurrent\":%" G_GINT64_FORMAT, i == 2 ? "" : ",",
                               sim_between(sim, 2, 6));
    g_autofree char *value = g_strdup_printf("{\"spec\":{%s}}", spec->str);
    g_string_free(spec, TRUE);
    sim->seeds->throttles[i] = TRUE;
    sim_put(sim, key, value, 0);
}

void sim_seeds_begin(Sim *sim)
{
    sim->seeds = g_new0(SimSeeds, 1);
    for (guint i = 0; i < THROTTLES; i++)
        put_throttle(sim, i);
    for (guint i = 0; i < SEEDS; i++) {
        sim->seeds->seeds[i] = (Seed){TRUE, i % (THROTTLES + 1), 0};
        if (i >= 8) /* some more that are free */
            sim->seeds->seeds[i].throttle = FREE;
        put_seed(sim, i);
    }
}

void sim_seeds_free(Sim *sim)
{
    g_clear_pointer(&sim->seeds, g_free);
}

/* ---- edits ---- */

static void make_again(Sim *sim, SimProcess *process, const char *text, gint64 number)
{
    (void)process;
    (void)text;
    sim->seeds->seeds[number].exists = TRUE;
    put_seed(sim, (guint)number);
}

static void start_again(Sim *sim, SimProcess *process, const char *text, gint64 number)
{
    (void)process;
    (void)text;
    Seed *seed = &sim->seeds->seeds[number];
    seed->state = 0;
    if (seed->exists)
        put_seed(sim, (guint)number);
}

static void delete_seed(Sim *sim, guint i)
{
    g_autofree char *key = g_strdup_printf("desired/seeds/seed-%u", i);
    sim->seeds->seeds[i].exists = FALSE;
    sim_delete(sim, key);
    sim_later(sim, sim_between(sim, 200, LATER_MS), make_again, NULL, NULL, i);
}

static void edit_badly(Sim *sim, guint i)
{
    static const char *const values[] = {
        "{\"spec\":{}}",
        "{\"spec\":{\"url\":\"http://x/\",\"throttle\":\"nowhere\"}}",
        "{\"spec\":{\"url\":\"http://x/\",\"state\":\"running\"}}",
        "{\"spec\":{\"url\":\"http://x/\",\"connector\":\"files\"}}",
    };
    g_autofree char *key = g_strdup_printf("desired/seeds/seed-%u", i);
    sim->counters.invalid_edits++;
    sim_put(sim, key, values[sim_below(sim, G_N_ELEMENTS(values))], 0);
}

void sim_seeds_edit(Sim *sim)
{
    guint i = (guint)sim_below(sim, SEEDS);
    Seed *seed = &sim->seeds->seeds[i];
    if (!seed->exists)
        return;
    sim->counters.seed_edits++;
    switch (sim_below(sim, 6)) {
    case 0:
        delete_seed(sim, i);
        return;
    case 1:
        edit_badly(sim, i);
        return;
    case 2:
        seed->throttle = (guint)sim_below(sim, THROTTLES + 1);
        break;
    case 3:
        seed->state = (guint)sim_below(sim, G_N_ELEMENTS(states));
        break;
    case 4: /* stopped or paused, and soon started again */
        seed->state = 1 + (guint)sim_below(sim, 2);
        sim_later(sim, sim_between(sim, 200, LATER_MS), start_again, NULL, NULL, i);
        break;
    default:
        break; /* its priority */
    }
    put_seed(sim, i);
}

static void make_throttle_again(Sim *sim, SimProcess *process, const char *text, gint64 number)
{
    (void)process;
    (void)text;
    put_throttle(sim, (guint)number);
}

static void delete_throttle(Sim *sim, guint i)
{
    g_autofree char *key = g_strdup_printf("desired/throttles/t-%u", i);
    sim->seeds->throttles[i] = FALSE;
    sim_delete(sim, key);
    sim_later(sim, sim_between(sim, 200, LATER_MS), make_throttle_again, NULL, NULL, i);
}

void sim_seeds_edit_throttle(Sim *sim)
{
    guint i = (guint)sim_below(sim, THROTTLES);
    if (!sim->seeds->throttles[i])
        return;
    sim->counters.throttle_edits++;
    if (sim_chance(sim, 15))
        delete_throttle(sim, i);
    else
        put_throttle(sim, i);
}

/* What the API's rebalance does. */
void sim_seeds_ask_rebalance(Sim *sim)
{
    g_autofree char *at = lh_time_format(sim_wall(sim));
    g_autofree char *value = g_strdup_printf(
        "{\"spec\":{\"rebalanceAt\":\"%s\"%s}}", at,
        !sim->calm && sim_chance(sim, 30) ? ",\"autoRebalance\":false" : "");
    sim->counters.rebalances++;
    sim_put(sim, "desired/settings/seed-allocator", value, 0);
}

void sim_seeds_restored(Sim *sim)
{
    for (guint i = 0; i < THROTTLES; i++) {
        g_autofree char *name = g_strdup_printf("t-%u", i);
        sim->seeds->throttles[i] = sim_get(sim, LH_KIND_THROTTLE, name) != NULL;
        if (!sim->seeds->throttles[i])
            sim_later(sim, sim_between(sim, 200, LATER_MS), make_throttle_again, NULL, NULL, i);
    }
    for (guint i = 0; i < SEEDS; i++) {
        g_autofree char *name = g_strdup_printf("seed-%u", i);
        sim->seeds->seeds[i].exists = sim_get(sim, LH_KIND_SEED, name) != NULL;
        if (!sim->seeds->seeds[i].exists)
            sim_later(sim, sim_between(sim, 200, LATER_MS), make_again, NULL, NULL, i);
    }
}

/* ---- what must have become of them ---- */

static const LhSeed *accepted_seed(const Sim *sim, const char *name)
{
    g_autofree char *key = g_strconcat("seeds/", name, NULL);
    return lh_accepted_spec(sim_get(sim, LH_KIND_ACCEPTED, key), LH_KIND_SEED);
}

/* The live item of the seed; its node's id is g_free'd. */
static char *live_on(Sim *sim, const char *name)
{
    GHashTableIter iter;
    gpointer key, value;
    g_hash_table_iter_init(&iter, sim->model.kinds[LH_KIND_ITEM]);
    while (g_hash_table_iter_next(&iter, &key, &value)) {
        g_autofree char *item = NULL;
        if (!g_str_has_prefix(key, SIM_POOL_CRAWL "/") || !lh_object_known(value) ||
            ((const LhItem *)value)->state != LH_ITEM_LIVE)
            continue;
        item = lh_name_part(key, 2);
        if (g_strcmp0(item, name) == 0)
            return lh_name_part(key, 1);
    }
    return NULL;
}

static char *check_started(Sim *sim, const char *name)
{
    const SimHand *hand = g_hash_table_lookup(sim->hands, name);
    g_autofree char *node = live_on(sim, name);
    if (hand == NULL)
        return g_strdup_printf("%s is started, and nobody crawls it", name);
    if (g_strcmp0(node, hand->node) != 0)
        return g_strdup_printf("%s is crawled by %s; live is it on %s", name, hand->node,
                               node == NULL ? "none" : node);
    return NULL;
}

static char *check_held(Sim *sim)
{
    GHashTableIter iter;
    gpointer key, value;
    g_hash_table_iter_init(&iter, sim->hands);
    while (g_hash_table_iter_next(&iter, &key, &value)) {
        const LhSeed *seed = g_str_has_prefix(key, "seed-") ? accepted_seed(sim, key) : NULL;
        if (g_str_has_prefix(key, "seed-") && (seed == NULL || seed->state == LH_SEED_STOPPED))
            return g_strdup_printf("%s is %s; %s still crawls it", (char *)key,
                                   seed == NULL ? "gone" : "stopped",
                                   ((const SimHand *)value)->node);
    }
    return NULL;
}

/* Its present spec reached the node, and its policy's. */
static char *check_spec(Sim *sim, const char *name, const LhSeed *seed)
{
    const SimHand *hand = g_hash_table_lookup(sim->hands, name);
    if (hand != NULL && g_strcmp0(hand->policy, seed->throttle) != 0)
        return g_strdup_printf("%s is crawled under %s; its policy is %s", name,
                               hand->policy == NULL ? "none" : hand->policy,
                               seed->throttle == NULL ? "none" : seed->throttle);
    return NULL;
}

char *sim_seeds_check(Sim *sim)
{
    char *why = check_held(sim);
    for (guint i = 0; i < SEEDS && why == NULL; i++) {
        g_autofree char *name = g_strdup_printf("seed-%u", i);
        const LhSeed *seed = accepted_seed(sim, name);
        if (seed != NULL && seed->state == LH_SEED_STARTED)
            why = check_started(sim, name);
        if (seed != NULL && why == NULL)
            why = check_spec(sim, name, seed);
    }
    return why;
}

static gboolean is_closed(const Sim *sim, const SimProcess *process)
{
    g_autofree char *name = g_strdup_printf("nodepolicies/%s/%s", process->pool, process->name);
    const LhNodePolicy *policy = lh_accepted_spec(sim_get(sim, LH_KIND_ACCEPTED, name),
                                                  LH_KIND_NODEPOLICY);
    return policy != NULL && (policy->cordon || policy->drain);
}

char *sim_seeds_uneven(Sim *sim)
{
    guint fewest = G_MAXUINT, most = 0;
    for (guint i = 0; i < sim->n_processes; i++) {
        const SimProcess *process = &sim->processes[i];
        guint n = 0;
        if (process->is_manager || strcmp(process->pool, SIM_POOL_CRAWL) != 0 ||
            is_closed(sim, process))
            continue;
        for (guint s = 0; s < SEEDS; s++) {
            g_autofree char *name = g_strdup_printf("seed-%u", s);
            const SimHand *hand = g_hash_table_lookup(sim->hands, name);
            n += hand != NULL && hand->policy == NULL &&
                 g_strcmp0(hand->node, lh_agent_id(process->agent)) == 0;
        }
        fewest = MIN(fewest, n);
        most = MAX(most, n);
    }
    if (most > fewest + 1)
        return g_strdup_printf("free seeds: %u on one crawl manager, %u on another", most, fewest);
    return NULL;
}
