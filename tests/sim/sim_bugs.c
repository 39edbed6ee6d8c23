/*
 * The planted bugs (base/planted.h): each is switched on, and seeds 1, 2, … are run until an invariant or
 * liveness finds it. One that is not found within its number of seeds fails. In `sim`, which is built
 * without them, there are none to choose.
 */
#include "base/planted.h"
#include "sim.h"

#include <stdio.h>
#include <string.h>

static const struct {
    const char *name;
    guint seeds;
    const char *what;
} bugs[] = {
#define X(name, text, seeds, what) {text, seeds, what},
    LH_PLANTED_BUG_TABLE(X)
#undef X
};

#ifdef LH_PLANTED_BUGS
LhPlantedBug lh_planted_bug = LH_N_BUGS;

gboolean sim_bug_choose(const char *name)
{
    for (guint i = 0; i < LH_N_BUGS; i++) {
        if (strcmp(bugs[i].name, name) == 0) {
            lh_planted_bug = (LhPlantedBug)i;
            return TRUE;
        }
    }
    return FALSE;
}
#else
gboolean sim_bug_choose(const char *name)
{
    (void)name;
    return FALSE;
}
#endif

typedef struct {
    guint bug;
    const char *mark;
} Find;

/* Runs the bug's seeds; in a process of its own. */
static gboolean find(guint64 n, gpointer data)
{
    const Find *find = data;
    guint seeds = bugs[find->bug].seeds;
    gboolean found = FALSE;
    (void)n;
    if (!sim_bug_choose(bugs[find->bug].name))
        return FALSE;
    for (guint seed = 1; seed <= seeds && !found; seed++) {
        SimOptions options = sim_options_normal(seed);
        SimResult result;
        sim_run(&options, &result);
        found = result.failed;
        if (found)
            printf("%s%s, seed %u of %u: %s\n", find->mark, bugs[find->bug].name, seed, seeds,
                   result.violation);
        sim_result_clear(&result);
    }
    return found;
}

int sim_bugs_run(const char *only, gboolean tap)
{
    gboolean ok = TRUE;
    guint known = 0;
    if (tap)
        printf("1..%u\n", only == NULL ? (guint)G_N_ELEMENTS(bugs) : 1);
    for (guint i = 0; i < G_N_ELEMENTS(bugs); i++) {
        Find one = {i, tap ? "# " : ""};
        if (only != NULL && strcmp(only, bugs[i].name) != 0)
            continue;
        known++;
        /* An assertion of the product's own is not ours to count: a child that dies has found nothing. */
        gboolean found = sim_fork_each(1, 1, 0, find, &one) == 0;
        printf("%sok %u - %s within %u seeds: %s\n", found ? "" : "not ", known, bugs[i].name,
               bugs[i].seeds, bugs[i].what);
        fflush(stdout);
        ok = ok && found;
    }
    return !ok || known == 0;
}
