/*
 * (g) Handover between three managers, seen by one watch of the whole prefix: from the DELETE of the
 * leader's key to the first replica that is written after it. Only the next leader can have written that
 * one: every write is fenced.
 *
 * Work is kept waiting: snapshots are published all the time while a leader is told to stop (so that some
 * fall into the gap), and a few after one was killed.
 */
#include "base/json.h"
#include "rows.h"

#include <signal.h>
#include <string.h>

#define MANAGERS    3
#define HANDOVER_MS 60000
#define EVERY_MS    2
#define KILLED_MOST 20 /* published after a kill */
#define CONTROLLER  "replica-creator"

typedef struct {
    Cluster *cluster;
    Process *managers[MANAGERS];
    guint started;            /* for names */
    char *leaders, *replicas; /* prefixes */
    /* What the watch saw. */
    char *gone_key; /* of the leader that shall go */
    gint64 gone_rev, gone_us, written_us;
    /* Publishing. */
    guint publishing, left, in_flight;
} Handover;

static void on_event(const LhEtcdEvent *event, gint64 at_us, gpointer data)
{
    Handover *handover = data;

    if (event->is_delete && g_strcmp0(event->kv.key, handover->gone_key) == 0) {
        handover->gone_rev = event->kv.mod_rev;
        handover->gone_us = at_us;
    } else if (!event->is_delete && handover->gone_rev != 0 && handover->written_us == 0 &&
               event->kv.mod_rev > handover->gone_rev &&
               g_str_has_prefix(event->kv.key, handover->replicas)) {
        handover->written_us = at_us;
    }
}

static gboolean is_written(gpointer data)
{
    return ((Handover *)data)->written_us != 0;
}

/* ---- who leads ---- */

typedef struct {
    gboolean answered;
    guint candidates;
    char *key, *instance;
} Leader;

static void on_leaders(const LhRangeReply *reply, const GError *error, gpointer data)
{
    Leader *leader = data;
    const LhKv *oldest = NULL;

    bench_must(error, "the leader keys");
    for (gsize i = 0; i < reply->n_kvs; i++)
        if (oldest == NULL || reply->kvs[i].create_rev < oldest->create_rev)
            oldest = &reply->kvs[i];
    leader->answered = TRUE;
    leader->candidates = (guint)reply->n_kvs;
    if (oldest != NULL) {
        g_autoptr(cJSON) json = lh_json_parse(oldest->value, oldest->value_len, LH_JSON_MAX_BYTES,
                                              NULL);
        leader->key = g_strdup(oldest->key);
        leader->instance = g_strdup(lh_json_get_string(json, "instance", ""));
    }
}

static gboolean is_answered(gpointer data)
{
    return ((Leader *)data)->answered;
}

static void leader_clear(Leader *leader)
{
    g_free(leader->key);
    g_free(leader->instance);
    *leader = (Leader){0};
}

static void look_up(const Handover *handover, Leader *leader)
{
    g_autofree char *end = lh_etcd_prefix_end(handover->leaders);
    LhRangeRequest request = {.key = handover->leaders, .range_end = end};

    lh_etcd_range(bench.client, &request, on_leaders, leader);
    bench_wait(is_answered, leader, HANDOVER_MS, "etcd tells the leader keys");
}

static gboolean all_campaign(gpointer data)
{
    Leader leader = {0};
    gboolean all;

    look_up(data, &leader);
    all = leader.candidates == MANAGERS;
    leader_clear(&leader);
    return all;
}

static void start_missing(Handover *handover)
{
    for (guint i = 0; i < MANAGERS; i++) {
        if (handover->managers[i] == NULL) {
            g_autofree char *name = g_strdup_printf("manager-%u", ++handover->started);
            handover->managers[i] = manager_start(handover->cluster, name, NULL);
        }
    }
    for (guint i = 0; i < MANAGERS; i++)
        manager_wait_ready(handover->managers[i]);
    bench_poll(all_campaign, handover, 50, HANDOVER_MS, "three managers campaign");
    for (guint i = 0; i < MANAGERS; i++)
        manager_settle(handover->managers[i]);
}

/* ---- work that waits ---- */

static void on_published(const LhTxnReply *reply, const GError *error, gpointer data)
{
    bench_must(error, "a publication");
    ((Handover *)data)->in_flight--;
}

static gboolean publish_one(gpointer data)
{
    Handover *handover = data;
    g_autofree char *key = NULL;
    g_autofree char *value = NULL;
    G_GNUC_UNUSED g_autofree char *name = cluster_next(handover->cluster, &key, &value);
    LhTxnOp op = lh_txn_put(key, value, 0);

    handover->in_flight++;
    lh_etcd_txn(bench.client, &(LhTxnRequest){.success = &op, .n_success = 1}, on_published,
                handover);
    if (--handover->left > 0)
        return G_SOURCE_CONTINUE;
    handover->publishing = 0;
    return G_SOURCE_REMOVE;
}

static void publish(Handover *handover, guint most)
{
    handover->left = most;
    handover->publishing = g_timeout_add(EVERY_MS, publish_one, handover);
}

static gboolean none_in_flight(gpointer data)
{
    return ((Handover *)data)->in_flight == 0;
}

static void stop_publishing(Handover *handover)
{
    if (handover->publishing != 0)
        g_source_remove(handover->publishing);
    handover->publishing = 0;
    bench_wait(none_in_flight, handover, HANDOVER_MS, "what was published is answered");
}

/* ---- rounds ---- */

/* Milliseconds between the end of the leader's key and the next leader's first write. */
static double hand_over(Handover *handover, int number)
{
    Leader leader = {0};
    Process *old = NULL;

    start_missing(handover);
    look_up(handover, &leader);
    for (guint i = 0; i < MANAGERS; i++)
        if (strcmp(handover->managers[i]->name, leader.instance) == 0)
            old = g_steal_pointer(&handover->managers[i]);
    if (old == NULL)
        bench_fail("%s leads %s, and is none of ours", leader.instance, CONTROLLER);
    handover->gone_key = leader.key;
    handover->gone_rev = handover->gone_us = handover->written_us = 0;
    if (number == SIGTERM)
        publish(handover, G_MAXUINT);
    process_signal(old, number);
    if (number == SIGKILL)
        publish(handover, KILLED_MOST);
    bench_wait(is_written, handover, HANDOVER_MS, "the next leader writes");
    stop_publishing(handover);
    if (number == SIGKILL)
        process_kill(old);
    else
        process_stop(old);
    handover->gone_key = NULL;
    leader_clear(&leader);
    return (double)(handover->written_us - handover->gone_us) / 1000;
}

static void report(Handover *handover, int number, const char *how, double aim)
{
    g_autoptr(GArray) times = samples_new();

    for (guint i = 0; i < bench.sizes.handover_rounds; i++) {
        samples_add(times, hand_over(handover, number));
        bench_say("  handover after %s: %.1f ms", how, g_array_index(times, double, i));
    }
    table_add(bench.table, "g", samples_median(times), "ms", AT_MOST(aim), NULL,
              "%s: leader key gone -> first write of the next, median of %u", how, times->len);
    table_add(bench.table, "g", samples_max(times), "ms", NO_AIM, NULL, "the same: the longest");
}

void row_handover(Cluster *cluster)
{
    Handover handover = {.cluster = cluster};
    Watch *watch = watch_new(cluster->prefix, on_event, &handover);

    handover.leaders = cluster_key(cluster, "leaders/" CONTROLLER "/");
    handover.replicas = cluster_key(cluster, "decided/replicas/");
    report(&handover, SIGTERM, "SIGTERM", 20);
    report(&handover, SIGKILL, "kill -9, lease expired", 50);
    for (guint i = 0; i < MANAGERS; i++)
        process_stop(handover.managers[i]);
    watch_free(watch);
    g_free(handover.leaders);
    g_free(handover.replicas);
}
