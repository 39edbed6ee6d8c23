/*
 * The ledger of permits: what the crawlers of the whole fleet were really granted, by the world's time, apart
 * from what any limiter believes. Each permit is judged as it is given: with those that were given before
 * it, by whomever, no window of the policy's period holds more than its requests, and no more are out at once
 * than its maxConcurrent.
 *
 * Which policy is in force is what its holder knows; what was granted under another version of it counts all
 * the same. Grants of a node that nobody can know to be still there are not counted (sim_node_excused).
 */
#include "api/window.h"
#include "sim.h"

#define GROUP   "permits"
#define KEPT_MS (120 * 1000) /* no period is longer, nor does a permit live as long */

typedef struct {
    guint64 number;
    gint64 at_ms;
    gboolean out;
    guint timeline;
    char *node;
} Given;

struct SimGrants {
    GHashTable *policies; /* policy → GArray of Given, oldest first */
    guint64 next;
};

static void given_clear(gpointer data)
{
    g_free(((Given *)data)->node);
}

static void policy_free(gpointer data)
{
    g_array_unref(data);
}

SimGrants *sim_grants_new(void)
{
    SimGrants *grants = g_new0(SimGrants, 1);
    grants->policies = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, policy_free);
    return grants;
}

void sim_grants_free(SimGrants *grants)
{
    g_hash_table_unref(grants->policies);
    g_free(grants);
}

static GArray *policy_of(SimGrants *grants, const char *policy)
{
    GArray *all = g_hash_table_lookup(grants->policies, policy);
    if (all != NULL)
        return all;
    all = g_array_new(FALSE, FALSE, sizeof(Given));
    g_array_set_clear_func(all, given_clear);
    g_hash_table_insert(grants->policies, g_strdup(policy), all);
    return all;
}

static void forget(GArray *all, gint64 now)
{
    guint old = 0;
    while (old < all->len && g_array_index(all, Given, old).at_ms <= now - KEPT_MS)
        old++;
    if (old > 0 && old * 2 >= all->len) /* not one by one */
        g_array_remove_range(all, 0, old);
}

static gboolean counts(const Sim *sim, const SimGrant *grant, const Given *given)
{
    return (g_str_equal(given->node, grant->node) && given->timeline == grant->timeline) ||
           !sim_node_excused(sim, given->node, given->timeline);
}

static void judge(Sim *sim, const SimGrant *grant, const GArray *all)
{
    gint64 now = sim_now(sim), recent = 0, out = 0;
    const char *other = NULL;
    for (guint i = all->len; i > 0; i--) {
        const Given *given = &g_array_index(all, Given, i - 1);
        gint64 age = now - given->at_ms;
        gboolean in_window = age < grant->period_ms;
        gboolean is_out = given->out && age < LH_PERMIT_LIFE_MS;
        if (age >= KEPT_MS)
            break;
        if ((!in_window && !is_out) || !counts(sim, grant, given))
            continue;
        recent += in_window;
        out += is_out;
        if (!g_str_equal(given->node, grant->node))
            other = given->node;
    }
    if (grant->requests > 0 && recent > grant->requests)
        sim_fail(sim, GROUP,
                 "%s grants the %" G_GINT64_FORMAT ". permit of %s within %" G_GINT64_FORMAT
                 " ms; it may be %" G_GINT64_FORMAT "%s%s",
                 grant->node, recent, grant->policy, grant->period_ms, grant->requests,
                 other == NULL ? "" : "; some are of ", other == NULL ? "" : other);
    else if (grant->max_concurrent > 0 && out > grant->max_concurrent)
        sim_fail(sim, GROUP,
                 "%s grants the %" G_GINT64_FORMAT
                 ". permit of %s that is out at once; it may be %" G_GINT64_FORMAT "%s%s",
                 grant->node, out, grant->policy, grant->max_concurrent,
                 other == NULL ? "" : "; some are of ", other == NULL ? "" : other);
}

guint64 sim_grants_given(Sim *sim, const SimGrant *grant)
{
    GArray *all = policy_of(sim->grants, grant->policy);
    const Given given = {
        .number = sim->grants->next++,
        .at_ms = sim_now(sim),
        .out = TRUE,
        .timeline = grant->timeline,
        .node = g_strdup(grant->node),
    };
    forget(all, sim_now(sim));
    g_array_append_val(all, given);
    sim->counters.permits++;
    judge(sim, grant, all);
    return given.number;
}

void sim_grants_returned(Sim *sim, const char *policy, guint64 number)
{
    GArray *all = policy_of(sim->grants, policy);
    for (guint i = all->len; i > 0; i--) {
        Given *given = &g_array_index(all, Given, i - 1);
        if (given->number == number) {
            given->out = FALSE;
            return;
        }
    }
}
