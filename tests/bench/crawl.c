/* See crawl.h. Must not look at what the product decides, but for what it is asked to count. */
#include "crawl.h"

#include "api/actual.h"
#include "api/decided.h"

#include <string.h>

#define SIZES 19
#define MEAN  10 /* units of a policy */

Crawl *crawl_new(guint seeds, guint policies, guint managers)
{
    Crawl *crawl = g_new0(Crawl, 1);
    guint unit = MAX(1, seeds / 10 * 9 / policies / MEAN), at = 0;

    *crawl = (Crawl){.seeds = seeds, .policies = policies, .managers = managers};
    crawl->policy_of = g_new(guint, seeds);
    for (guint p = 0; p < policies; p++)
        for (guint i = 0; i < (p % SIZES + 1) * unit && at < seeds; i++)
            crawl->policy_of[at++] = p;
    while (at < seeds)
        crawl->policy_of[at++] = policies;
    return crawl;
}

void crawl_free(Crawl *crawl)
{
    g_free(crawl->policy_of);
    g_free(crawl);
}

/* Names do not come in the order of policies. */
void crawl_seed(const Crawl *crawl, guint i, char **subject, char **spec)
{
    guint number = i * 2654435761u;
    g_autofree char *throttle = crawl->policy_of[i] == crawl->policies
                                    ? g_strdup("")
                                    : g_strdup_printf(",\"throttle\":\"policy-%04u\"",
                                                      crawl->policy_of[i]);

    *subject = g_strdup_printf("seeds/site-%08x", number);
    *spec = g_strdup_printf("{\"url\":\"https://www.site-%08x.example.org/\"%s}", number, throttle);
}

void crawl_policy(const Crawl *crawl, guint i, char **subject, char **spec)
{
    (void)crawl;
    *subject = g_strdup_printf("throttles/policy-%04u", i);
    *spec = g_strdup_printf("{\"requests\":%u,\"period\":\"1m\"}", 100 + i % 7);
}

char *crawl_manager_id(guint i, guint start)
{
    return g_strdup_printf("crawl-%04u-%08x", i, i * 2654435761u + start);
}

void crawl_manager(guint i, guint start, const char *lease, gint64 ttl_ms, char **key, char **value)
{
    g_autofree char *id = crawl_manager_id(i, start), *name = lh_node_name_of(id);
    g_autofree char *host = g_strconcat(name, ".crawl.example.org", NULL);
    LhNode node = {
        .node_name = name,
        .host = host,
        .set = "default",
        .state = LH_NODE_ONLINE,
        .started_at = 1,
        .version = LEASEHOLD_VERSION,
        .lease = lease,
        .lease_ttl_ms = ttl_ms,
    };

    *key = g_strconcat("actual/nodes/manager/", id, NULL);
    *value = lh_object_print(LH_KIND_NODE, &node);
}

void crawl_item(const LhObject *object, char **key, char **value)
{
    const LhAssignment *order = (const LhAssignment *)object;
    gboolean load = order->action == LH_ACTION_LOAD;
    gboolean limited = order->seed != NULL && strstr(order->seed, "\"throttle\":{") != NULL;
    LhItem item = {
        .state = load ? LH_ITEM_LIVE : LH_ITEM_EVICTED,
        .since = order->since,
        .assignment = object->mod_rev,
        .window = load || !limited ? NULL : "{\"granted\":[[1000,5]]}",
    };

    *key = g_strconcat("actual/items/", object->name, NULL);
    *value = lh_object_print(LH_KIND_ITEM, &item);
}

/* ---- what has to move ---- */

CrawlHeld *crawl_held_new(guint managers)
{
    CrawlHeld *held = g_new0(CrawlHeld, 1);

    held->managers = managers;
    held->free = g_new0(guint, managers);
    held->grouped = g_new0(guint, managers);
    held->groups = g_array_new(FALSE, FALSE, sizeof(CrawlGroup));
    return held;
}

void crawl_held_free(CrawlHeld *held)
{
    g_free(held->free);
    g_free(held->grouped);
    g_array_unref(held->groups);
    g_free(held);
}

guint crawl_total(const CrawlHeld *held, guint manager)
{
    return held->free[manager] + held->grouped[manager];
}

guint crawl_most(const CrawlHeld *held)
{
    guint most = 0;

    for (guint i = 0; i < held->managers; i++)
        most = MAX(most, crawl_total(held, i));
    return most;
}

guint crawl_fewest(const CrawlHeld *held)
{
    guint fewest = G_MAXUINT;

    for (guint i = 0; i < held->managers; i++)
        fewest = MIN(fewest, crawl_total(held, i));
    return fewest;
}

/* Seeds without a policy that nobody can keep; *most: how many one has then. */
static guint least_free(const CrawlHeld *before, guint *most)
{
    guint total = 0, kept = 0, above = 0, all = before->managers + 1;

    for (guint i = 0; i < before->managers; i++)
        total += before->free[i];
    for (guint i = 0; i < before->managers; i++) {
        kept += MIN(before->free[i], total / all);
        above += before->free[i] > total / all;
    }
    *most = total / all + (total % all > 0);
    return total - kept - MIN(above, total % all);
}

/* The least sum of seeds of @manager, policies whole, that is @enough or more. */
static guint least_sum(const CrawlHeld *held, guint manager, guint enough)
{
    guint all = held->grouped[manager], least = G_MAXUINT;
    g_autofree gboolean *reached = g_new0(gboolean, all + 1);

    reached[0] = TRUE;
    for (guint g = 0; g < held->groups->len; g++) {
        const CrawlGroup *group = &g_array_index(held->groups, CrawlGroup, g);
        if (group->manager != manager)
            continue;
        for (guint s = all; s >= group->seeds; s--)
            reached[s] = reached[s] || reached[s - group->seeds];
    }
    for (guint s = 0; s <= all; s++)
        if (reached[s] && s + held->free[manager] >= enough)
            least = MIN(least, MAX(s, enough));
    return least;
}

guint crawl_least(const CrawlHeld *before, const CrawlHeld *after)
{
    guint most = crawl_most(after), fewest = crawl_fewest(after), leave = 0, most_free;
    guint get = least_free(before, &most_free);

    get += fewest - MIN(fewest, most_free);
    for (guint i = 0; i < before->managers; i++)
        if (crawl_total(before, i) > most)
            leave += least_sum(before, i, crawl_total(before, i) - most);
    return MAX(get, leave);
}
