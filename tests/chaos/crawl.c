/*
 * Seeds and their policies, on crawl managers whose --exec is this very program (integration/lines.h): it appends the
 * time to a file. No node may write of a seed, or of another of its policy, while a process on another node still
 * does, whatever has been killed, stopped or cut off: its watchdog ends what its lease does not cover.
 */
#include "chaos.h"
#include "tests/integration/lines.h"

#include <string.h>

#define SEED(name) "desired/seeds/" name, "{\"spec\":{\"url\":\"https://example.org/" name "\"}}"
#define SEED_OF(name, policy)         \
    "desired/seeds/" policy "-" name, \
        "{\"spec\":{\"url\":\"https://example.org/" name "\",\"throttle\":\"" policy "\"}}"
#define POLICY(name) "desired/throttles/" name, "{\"spec\":{\"requests\":10,\"period\":\"2s\"}}"

static const char *const keys[] = {
    POLICY("slow"),
    POLICY("polite"),

    SEED_OF("1", "slow"),
    SEED_OF("2", "slow"),
    SEED_OF("3", "slow"),
    SEED_OF("1", "polite"),
    SEED_OF("2", "polite"),

    SEED("free1"),
    SEED("free2"),
    SEED("free3"),
    SEED("free4"),

    NULL,
};

const char *const *crawl_keys(void)
{
    return keys;
}

/* "slow-1" is of slow; what has no policy is by itself. g_free. */
static char *group_of(const char *seed)
{
    return g_strndup(seed, strcspn(seed, "-"));
}

/* ---- at rest ---- */

typedef struct {
    World *world;
    GHashTable *homes; /* group → node id */
    guint live;
    char *why;
} Unrest;

static void look_at(const LhObject *object, gpointer data)
{
    Unrest *unrest = data;
    g_autofree char *pool = lh_name_part(object->name, 0), *node = lh_name_part(object->name, 1);
    g_autofree char *seed = lh_name_part(object->name, 2), *group = group_of(seed);
    const LhItem *item = world_get(unrest->world, LH_KIND_ITEM, "%s", object->name);
    const char *home = g_hash_table_lookup(unrest->homes, group);

    if (strcmp(pool, "manager") != 0 || unrest->why != NULL) {
        return;
    }
    if (home != NULL && strcmp(home, node) != 0) {
        unrest->why = g_strdup_printf("%s is on %s, and others of it on %s", seed, node, home);
    } else if (item == NULL || item->state != LH_ITEM_LIVE || item->assignment != object->mod_rev) {
        unrest->why = g_strdup_printf("%s is not live on %s", seed, node);
    }
    g_hash_table_replace(unrest->homes, g_steal_pointer(&group), g_steal_pointer(&node));
    unrest->live++;
}

static guint n_seeds(void)
{
    guint n = 0;

    for (guint i = 0; keys[i] != NULL; i += 2) {
        n += g_str_has_prefix(keys[i], "desired/seeds/");
    }
    return n;
}

char *crawl_unrest(World *world)
{
    Unrest unrest = {.world = world,
                     .homes = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, g_free)};

    lh_mirror_foreach(world->mirror, LH_KIND_ASSIGNMENT, look_at, &unrest);
    if (unrest.why == NULL && unrest.live != n_seeds()) {
        unrest.why = g_strdup_printf("%u seeds are live, and %u are wanted", unrest.live,
                                     n_seeds());
    }
    g_hash_table_unref(unrest.homes);
    return unrest.why;
}

/* ---- what they have written ---- */

/* Neither had ended when the other had begun. */
static gboolean overlap(const LinesRun *a, const LinesRun *b)
{
    return a->first_us <= b->last_us && b->first_us <= a->last_us;
}

/* Whether @b came after @a, and elsewhere. */
static gboolean check_pair(Chaos *chaos, const LinesRun *a, const LinesRun *b)
{
    g_autofree char *group = group_of(a->item), *other = group_of(b->item);

    if (strcmp(a->node, b->node) == 0 || strcmp(group, other) != 0) {
        return FALSE;
    }
    if (overlap(a, b)) {
        chaos_wrong(chaos,
                    "%s is worked on by %s from %" G_GINT64_FORMAT " to %" G_GINT64_FORMAT
                    ", and %s by %s from %" G_GINT64_FORMAT " to %" G_GINT64_FORMAT " us",
                    a->item, a->node, a->first_us, a->last_us, b->item, b->node, b->first_us,
                    b->last_us);
    }
    return strcmp(a->item, b->item) == 0 && a->last_us < b->first_us;
}

void crawl_judge(Chaos *chaos)
{
    g_autoptr(GArray) runs = lines_runs(chaos->world->dir);

    chaos->counters.seeds = runs->len;
    for (guint i = 0; i < runs->len; i++) {
        gboolean handed = FALSE;
        for (guint j = 0; j < runs->len; j++) {
            if (i != j) {
                handed |= check_pair(chaos, &g_array_index(runs, LinesRun, j),
                                     &g_array_index(runs, LinesRun, i));
            }
        }
        chaos->counters.handed += handed;
    }
}
