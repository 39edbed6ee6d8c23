/*
 * (l) What a crawl manager needs for a permit: an agent of the pool manager with one seed is asked over one kept
 * connection, again and again, and its CPU clock is read before and after. Once with as many permits in a
 * request as there can be, once with one. The policy is large enough never to refuse.
 */
#include "http_load.h"
#include "rows.h"

#include <stdio.h>
#include <string.h>

#define NODE "permits"
#define SEED                                                                                         \
    "{\"action\":\"load\",\"since\":1,\"controller\":\"seed-allocator\",\"epoch\":1,\"rule\":\"r\"," \
    "\"reason\":\"the benchmark\",\"window\":{},\"seed\":{\"url\":\"https://example.org/\","         \
    "\"throttle\":{\"name\":\"large\",\"requests\":1000000000,\"period\":\"1m\"}}}"
#define READY_MS 30000

typedef struct {
    char *node; /* its id; NULL: not registered yet */
    gboolean live;
} Heard;

static void on_event(const LhEtcdEvent *event, gint64 at_us G_GNUC_UNUSED, gpointer data)
{
    Heard *heard = data;

    if (event->is_delete)
        return;
    if (strstr(event->kv.key, "/nodes/") != NULL) {
        g_free(heard->node);
        heard->node = g_strdup(strrchr(event->kv.key, '/') + 1);
    } else if (strstr(event->kv.value, "\"live\"") != NULL) {
        heard->live = TRUE;
    }
}

static gboolean has_registered(gpointer data)
{
    return ((Heard *)data)->node != NULL;
}

static gboolean is_live(gpointer data)
{
    return ((Heard *)data)->live;
}

static void measure(const Process *agent, HttpPost *post, guint permits)
{
    g_autofree char *body = g_strdup_printf("{\"n\":%u}", permits);
    g_autofree char *want = g_strdup_printf("{\"granted\":%u,", permits);
    guint n = bench.sizes.permit_requests;
    gint64 cpu_ns = process_cpu_ns(agent), from_us = now_us();

    for (guint i = 0; i < n; i++)
        if (!http_post(post, "/v1/permits/seed", body, want))
            bench_fail("request %u for %u permits was answered otherwise", i, permits);
    gint64 took_us = now_us() - from_us;
    cpu_ns = process_cpu_ns(agent) - cpu_ns;
    table_add(
        bench.table, "l", (double)n * permits * 1e9 / (double)cpu_ns, "/s",
        permits > 1 ? AT_LEAST(50000) : NO_AIM, NULL,
        "permits for a second of a crawl manager's CPU, %u in a request (%.1f us each request; "
        "%.0f requests/s over one connection)",
        permits, (double)cpu_ns / 1e3 / n, n * 1e6 / (double)took_us);
}

void row_permits(void)
{
    static const char *const words[] = {"--pool", "manager", "--name", NODE, NULL};
    ClusterOptions o = {.label = "permits"};
    Cluster *cluster = cluster_imagine(&o);
    g_autofree char *actual = cluster_key(cluster, "actual/");
    Heard heard = {0};
    Watch *watch = watch_new(actual, on_event, &heard);
    Process *agent = agent_start(cluster, "crawl-manager", words);

    bench_wait(has_registered, &heard, READY_MS, "the crawl manager registers");
    g_autofree char *key = cluster_key(cluster, "decided/assignments/manager/%s/seed", heard.node);
    client_put(key, SEED, 0);
    bench_wait(is_live, &heard, READY_MS, "its seed is live");
    HttpPost *post = http_post_open(agent->port);
    if (post == NULL)
        bench_fail("the crawl manager takes no connection");
    measure(agent, post, 100);
    measure(agent, post, 1);
    http_post_close(post);
    process_stop(agent);
    watch_free(watch);
    g_free(heard.node);
    cluster_free(cluster);
}
