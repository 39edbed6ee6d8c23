/*
 * (t) The allocation of seeds as a fleet sees it: a manager at rest sees that its seed-allocator is no longer
 * paused, and finds seeds that nobody has; then one crawl manager's lease ends; then one joins. Simulated crawl
 * managers answer each order at once. A watch counts orders, answers, and the transactions that carried orders:
 * the revisions at which some came.
 *
 * What a manager held when it died is begun elsewhere when its NodeHealth says failed: time counts from then.
 */
#include "answers.h"
#include "api/decided.h"
#include "cluster.h"
#include "crawl.h"
#include "etcd/lease.h"
#include "rows.h"

#include <string.h>

#define WITHIN_MS   (2 * 60 * 1000) /* longest without any progress */
#define TTL_S       60              /* of the leases */
#define DEAD_TTL_MS 2000            /* as the one that dies says of its own */
#define DEAD        1
#define ORDERS      "decided/assignments/manager/"
#define ITEMS       "actual/items/manager/"

typedef struct {
    Cluster *cluster;
    Crawl *crawl;
    Answers *answers;
    Keeper *doomed; /* the lease of DEAD; NULL: it is dead */
    char *dead_id, *health;
    GHashTable *live; /* items */
    gint64 failed_us, last_us;
    gint64 revision; /* of the last order */
    guint64 events;
    guint loads, transactions;
} Fleet;

/* ---- simulated managers ---- */

static gboolean is_of_dead(const Fleet *fleet, const char *name)
{
    gsize len = strlen(fleet->dead_id);

    return strncmp(name, fleet->dead_id, len) == 0 && name[len] == '/';
}

/* @name: "<node>/<seed>". */
static void say(Fleet *fleet, const char *name, const LhObject *order)
{
    gboolean dead = is_of_dead(fleet, name);
    char *key = cluster_key(fleet->cluster, ITEMS "%s", name), *value = NULL;
    g_autofree char *below = NULL;

    if (dead && fleet->doomed == NULL) {
        g_free(key); /* it says nothing any more, and nothing that it said is left */
        return;
    }
    if (order != NULL)
        crawl_item(order, &below, &value);
    answers_add(fleet->answers, key, value,
                value == NULL ? 0 : keeper_lease(dead ? fleet->doomed : fleet->cluster->keeper));
}

static void on_order(Fleet *fleet, const LhEtcdEvent *event, const char *name, gint64 at_us)
{
    const LhKv *kv = &event->kv;

    fleet->transactions += kv->mod_rev != fleet->revision;
    fleet->revision = kv->mod_rev;
    if (event->is_delete) {
        say(fleet, name, NULL);
        return;
    }
    g_autofree char *whole = g_strconcat("manager/", name, NULL);
    g_autoptr(LhObject) order = lh_object_parse(LH_KIND_ASSIGNMENT, whole, kv->value, kv->value_len,
                                                kv->create_rev, kv->mod_rev, 0);
    if (!lh_object_known(order))
        bench_fail("%s: %s", kv->key, lh_object_error(order));
    if (kv->create_rev == kv->mod_rev) {
        fleet->loads++;
        fleet->last_us = at_us;
    }
    say(fleet, name, order);
}

static void on_item(Fleet *fleet, const LhEtcdEvent *event, const char *name)
{
    if (!event->is_delete && strstr(event->kv.value, "\"state\":\"live\"") != NULL)
        g_hash_table_add(fleet->live, g_strdup(name));
    else
        g_hash_table_remove(fleet->live, name);
}

static void on_event(const LhEtcdEvent *event, gint64 at_us, gpointer data)
{
    Fleet *fleet = data;
    const char *below = event->kv.key + strlen(fleet->cluster->prefix);

    fleet->events++;
    if (g_str_has_prefix(below, ORDERS))
        on_order(fleet, event, below + strlen(ORDERS), at_us);
    else if (g_str_has_prefix(below, ITEMS))
        on_item(fleet, event, below + strlen(ITEMS));
    else if (strcmp(below, fleet->health) == 0 && !event->is_delete &&
             strstr(event->kv.value, "\"state\":\"failed\"") != NULL)
        fleet->failed_us = at_us;
}

static void put_manager(const Fleet *fleet, guint i, guint start, const Keeper *keeper,
                        gint64 ttl_ms)
{
    g_autofree char *lease = lh_lease_hex(keeper_lease(keeper)), *below = NULL, *value = NULL;

    crawl_manager(i, start, lease, ttl_ms, &below, &value);
    g_autofree char *key = cluster_key(fleet->cluster, "%s", below);
    client_put(key, value, keeper_lease(keeper));
}

/* ---- what is desired ---- */

static void desired(const Fleet *fleet, char *subject, char *spec, char **key, char **value)
{
    *key = cluster_key(fleet->cluster, "desired/%s", subject);
    *value = g_strdup_printf("{\"spec\":%s}", spec);
    g_free(subject);
    g_free(spec);
}

static void seed_item(guint i, char **key, char **value, gpointer data)
{
    const Fleet *fleet = data;
    char *subject, *spec;

    crawl_seed(fleet->crawl, i, &subject, &spec);
    desired(fleet, subject, spec, key, value);
}

static void policy_item(guint i, char **key, char **value, gpointer data)
{
    const Fleet *fleet = data;
    char *subject, *spec;

    crawl_policy(fleet->crawl, i, &subject, &spec);
    desired(fleet, subject, spec, key, value);
}

/* ---- waiting ---- */

static guint64 events_seen(gpointer data)
{
    return ((const Fleet *)data)->events;
}

static gboolean all_live(gpointer data)
{
    const Fleet *fleet = data;

    return fleet->loads > 0 && g_hash_table_size(fleet->live) == fleet->crawl->seeds &&
           answers_taken(fleet->answers);
}

static gboolean has_failed(gpointer data)
{
    return ((const Fleet *)data)->failed_us != 0;
}

static void measure(Fleet *fleet, Process *manager, gint64 start, gint64 cpu, guint least,
                    const char *words)
{
    do {
        bench_wait_going(all_live, events_seen, fleet, WITHIN_MS, "all seeds are live (%s)", words);
        manager_settle(manager);
    } while (!all_live(fleet));
    cpu = process_cpu_ns(manager) - cpu;
    table_add(bench.table, "t", (double)(fleet->last_us - start) / G_USEC_PER_SEC, "s", NO_AIM,
              NULL, "%u seeds, %s: until the last of %u moves is ordered", fleet->crawl->seeds,
              words, fleet->loads);
    table_add(bench.table, "t", fleet->transactions, "", NO_AIM, NULL,
              "the same: transactions that carried orders%s",
              least == 0 ? "" : ", those that take away included");
    table_add(bench.table, "t", (double)cpu / 1e6 / fleet->loads, "ms", NO_AIM, NULL,
              "the same: the manager's CPU for each move, all controllers, until it is at rest");
    if (least > 0)
        table_add(bench.table, "t", (double)fleet->loads / least, "x", NO_AIM, NULL,
                  "the same: moves as a multiple of what it held, %u", least);
}

static void forget(Fleet *fleet)
{
    fleet->loads = fleet->transactions = 0;
}

/* ---- the steps ---- */

static void place_all(Fleet *fleet, Process *manager)
{
    g_autofree char *key = cluster_key(fleet->cluster, "desired/settings/seed-allocator");
    gint64 cpu = process_cpu_ns(manager), start = now_us();

    client_put(key, "{\"spec\":{\"paused\":false}}", 0);
    measure(fleet, manager, start, cpu, 0, "all are placed from nothing");
}

static void die(Fleet *fleet, Process *manager)
{
    gint64 cpu = process_cpu_ns(manager);
    Keeper *keeper = g_steal_pointer(&fleet->doomed);
    guint held = 0;
    GHashTableIter iter;
    gpointer name;

    g_hash_table_iter_init(&iter, fleet->live);
    while (g_hash_table_iter_next(&iter, &name, NULL))
        held += is_of_dead(fleet, name);
    forget(fleet);
    keeper_free(keeper);
    bench_wait(has_failed, fleet, WITHIN_MS, "the dead manager is called failed");
    measure(fleet, manager, fleet->failed_us, cpu, held, "one manager dies");
}

static void join(Fleet *fleet, Process *manager)
{
    gint64 cpu = process_cpu_ns(manager), start = now_us();

    forget(fleet);
    put_manager(fleet, DEAD, 1, fleet->cluster->keeper, TTL_S * 1000);
    measure(fleet, manager, start, cpu, 0, "one manager joins");
}

static void begin(Fleet *fleet)
{
    cluster_put_accepted(fleet->cluster, "settings/seed-allocator", "{\"paused\":true}");
    fleet->cluster->keeper = keeper_new(TTL_S);
    fleet->doomed = keeper_new(TTL_S);
    for (guint i = 0; i < fleet->crawl->managers; i++)
        put_manager(fleet, i, 0, i == DEAD ? fleet->doomed : fleet->cluster->keeper,
                    i == DEAD ? DEAD_TTL_MS : TTL_S * 1000);
    client_load(fleet->crawl->policies, policy_item, fleet, 0);
    client_load(fleet->crawl->seeds, seed_item, fleet, 0);
}

void row_seeds_etcd(void)
{
    ClusterOptions o = {.label = "seeds"};
    Fleet fleet = {
        .cluster = cluster_new(&o),
        .crawl = crawl_new(bench.sizes.seeds, bench.sizes.policies, bench.sizes.crawlers),
        .answers = answers_new(),
        .dead_id = crawl_manager_id(DEAD, 0),
        .live = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL),
    };
    Process *manager;
    Watch *watch;

    fleet.health = g_strconcat("decided/health/manager/", fleet.dead_id, NULL);
    begin(&fleet);
    manager = manager_ready(fleet.cluster, "manager-seeds", NULL);
    watch = watch_new(fleet.cluster->prefix, on_event, &fleet);
    place_all(&fleet, manager);
    die(&fleet, manager);
    join(&fleet, manager);
    process_stop(manager);
    watch_free(watch);
    answers_free(fleet.answers);
    cluster_free(fleet.cluster);
    crawl_free(fleet.crawl);
    g_hash_table_unref(fleet.live);
    g_free(fleet.dead_id);
    g_free(fleet.health);
}
