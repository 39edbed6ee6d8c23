/*
 * Members are started together, because none answers before a quorum is there. Who leads is asked of the
 * members themselves.
 */
#include "etcd_cluster.h"

#include "base/errors.h"
#include "tests/fakes/relay.h"

#include <poll.h>
#include <string.h>

#define LEADER_MS 10000
#define ATTEMPTS  3

struct EtcdCluster {
    GPtrArray *members;   /* of EtcdProcess */
    GPtrArray *endpoints; /* NULL-ended; the members' */
    GPtrArray *relays;    /* one in front of each member's peer port, or none */
    guint64 leaving;      /* the member that is being replaced */
};

static gboolean prepare(EtcdCluster *cluster, const EtcdClusterOptions *options, GPtrArray *peers,
                        GError **error)
{
    for (guint i = 0; i < options->members; i++) {
        g_autofree char *name = g_strdup_printf("m%u", i);
        EtcdProcess *member = etcd_process_prepare(&options->each, name, error);
        if (member == NULL) {
            return FALSE;
        }
        if (options->relayed) {
            Relay *relay = relay_new(etcd_process_peer_port(member));
            etcd_process_set_peer_port(member, relay_port(relay));
            g_ptr_array_add(cluster->relays, relay);
        }
        g_ptr_array_add(cluster->members, member);
        g_ptr_array_add(cluster->endpoints, (gpointer)etcd_process_endpoint(member));
        g_ptr_array_add(peers, etcd_process_peer(member));
    }
    return TRUE;
}

static gboolean enable_auth(EtcdCluster *cluster, GError **error)
{
    gboolean ok = etcd_process_enable_auth(cluster->members->pdata[0], error);
    for (guint i = 1; ok && i < cluster->members->len; i++) {
        ok = etcd_process_wait_auth(cluster->members->pdata[i], error);
    }
    return ok;
}

static gboolean launch(EtcdCluster *cluster, const EtcdClusterOptions *options, GError **error)
{
    g_autoptr(GPtrArray) peers = g_ptr_array_new_with_free_func(g_free);
    guint n = options->members;
    if (!prepare(cluster, options, peers, error)) {
        return FALSE;
    }
    g_ptr_array_add(cluster->endpoints, NULL);
    g_ptr_array_add(peers, NULL);
    g_autofree char *initial = g_strjoinv(",", (char **)peers->pdata);
    for (guint i = 0; i < n; i++) {
        etcd_process_set_cluster(cluster->members->pdata[i], initial);
        if (!etcd_process_spawn(cluster->members->pdata[i], error)) {
            return FALSE;
        }
    }
    for (guint i = 0; i < n; i++) {
        if (!etcd_process_wait(cluster->members->pdata[i], error)) {
            return FALSE;
        }
    }
    return options->each.root_password == NULL || enable_auth(cluster, error);
}

static void member_free(gpointer member)
{
    etcd_process_free(member);
}

static void relay_destroy(gpointer relay)
{
    relay_free(relay);
}

EtcdCluster *etcd_cluster_new(guint members, const char *const *args, GError **error)
{
    const EtcdClusterOptions options = {.members = members, .each = {.args = args}};
    return etcd_cluster_new_with(&options, error);
}

EtcdCluster *etcd_cluster_new_with(const EtcdClusterOptions *options, GError **error)
{
    for (int attempt = 1;; attempt++) {
        g_autoptr(GError) local = NULL;
        EtcdCluster *cluster = g_new0(EtcdCluster, 1);
        cluster->members = g_ptr_array_new_with_free_func(member_free);
        cluster->endpoints = g_ptr_array_new();
        cluster->relays = g_ptr_array_new_with_free_func(relay_destroy);
        if (launch(cluster, options, &local)) {
            return cluster;
        }
        etcd_cluster_free(cluster);
        /* Somebody may have taken a port in between. */
        if (attempt == ATTEMPTS || local->code != LH_ERR_IO) {
            g_propagate_error(error, g_steal_pointer(&local));
            return NULL;
        }
    }
}

void etcd_cluster_free(EtcdCluster *cluster)
{
    if (cluster == NULL) {
        return;
    }
    g_ptr_array_unref(cluster->members);
    g_ptr_array_unref(cluster->endpoints);
    g_ptr_array_unref(cluster->relays);
    g_free(cluster);
}

guint etcd_cluster_size(const EtcdCluster *cluster)
{
    return cluster->members->len;
}

const char *const *etcd_cluster_endpoints(const EtcdCluster *cluster)
{
    return (const char *const *)cluster->endpoints->pdata;
}

EtcdProcess *etcd_cluster_member(EtcdCluster *cluster, guint i)
{
    return cluster->members->pdata[i];
}

guint etcd_cluster_find(const EtcdCluster *cluster, const char *url)
{
    for (guint i = 0; i < cluster->members->len; i++) {
        if (g_str_has_suffix(url, cluster->endpoints->pdata[i])) {
            return i;
        }
    }
    g_assert_not_reached();
}

/* The number that follows "NAME":" in @json; 0: none. */
static guint64 number_in(const char *json, const char *name)
{
    g_autofree char *start = g_strdup_printf("\"%s\":\"", name);
    const char *at = json != NULL ? strstr(json, start) : NULL;
    return at != NULL ? g_ascii_strtoull(at + strlen(start), NULL, 10) : 0;
}

static guint64 ask(const EtcdCluster *cluster, guint i, const char *what)
{
    g_autofree char *status = etcd_process_post(cluster->members->pdata[i],
                                                "/v3/maintenance/status", "{}", NULL);
    return number_in(status, what);
}

guint etcd_cluster_leader(EtcdCluster *cluster, gint except)
{
    gint64 deadline = g_get_monotonic_time() + LEADER_MS * 1000;
    while (g_get_monotonic_time() < deadline) {
        for (guint i = 0; i < cluster->members->len; i++) {
            if ((gint)i == except || etcd_process_pid(cluster->members->pdata[i]) == 0) {
                continue;
            }
            guint64 leader = ask(cluster, i, "leader");
            if (leader != 0 && leader == ask(cluster, i, "member_id")) {
                return i;
            }
        }
        poll(NULL, 0, 20);
    }
    g_error("the cluster has no leader after %d ms", LEADER_MS);
}

gboolean etcd_cluster_has_leader(EtcdCluster *cluster, guint i)
{
    return ask(cluster, i, "leader") != 0;
}

gboolean etcd_cluster_move_leader(EtcdCluster *cluster, guint to, GError **error)
{
    guint from = etcd_cluster_leader(cluster, -1);
    if (from == to) {
        return TRUE;
    }
    g_autofree char *body = g_strdup_printf("{\"targetID\":\"%" G_GUINT64_FORMAT "\"}",
                                            ask(cluster, to, "member_id"));
    g_autofree char *reply = etcd_process_post(cluster->members->pdata[from],
                                               "/v3/maintenance/transfer-leadership", body, error);
    return reply != NULL;
}

/* A member says who it is in the first lines of each connection that it makes to another. */
void etcd_cluster_isolate(EtcdCluster *cluster, guint i)
{
    g_autofree char *its = g_strdup_printf("X-Server-From: %" G_GINT64_MODIFIER "x\r\n",
                                           ask(cluster, i, "member_id"));
    for (guint j = 0; j < cluster->relays->len; j++) {
        relay_refuse(cluster->relays->pdata[j], j == i ? "" : its);
    }
}

void etcd_cluster_join(EtcdCluster *cluster)
{
    for (guint j = 0; j < cluster->relays->len; j++) {
        relay_refuse(cluster->relays->pdata[j], NULL);
    }
}

/* A request to any member but @i. A cluster that says @done has done it: an earlier answer was lost. */
static gboolean post_to_another(const EtcdCluster *cluster, guint i, const char *path,
                                const char *body, const char *done, GError **error)
{
    g_autoptr(GError) last = NULL;
    for (guint j = 0; j < cluster->members->len; j++) {
        if (j == i) {
            continue;
        }
        g_clear_error(&last);
        g_autofree char *reply = etcd_process_post(cluster->members->pdata[j], path, body, &last);
        if (reply != NULL || strstr(last->message, done) != NULL) {
            return TRUE;
        }
    }
    g_propagate_error(error, g_steal_pointer(&last));
    return FALSE;
}

gboolean etcd_cluster_remove(EtcdCluster *cluster, guint i, GError **error)
{
    if (etcd_process_pid(cluster->members->pdata[i]) != 0) {
        cluster->leaving = ask(cluster, i, "member_id");
    }
    if (cluster->leaving == 0) {
        g_set_error(error, LH_ERROR, LH_ERR_UNAVAILABLE, "member %u does not say who it is", i);
        return FALSE;
    }
    g_autofree char *body = g_strdup_printf("{\"ID\":\"%" G_GUINT64_FORMAT "\"}", cluster->leaving);
    etcd_process_kill(cluster->members->pdata[i]);
    return post_to_another(cluster, i, "/v3/cluster/member/remove", body, "member not found",
                           error);
}

gboolean etcd_cluster_add(EtcdCluster *cluster, guint i, GError **error)
{
    g_autofree char *peer = etcd_process_peer(cluster->members->pdata[i]);
    g_autofree char *body = g_strdup_printf("{\"peerURLs\":[\"%s\"]}", strchr(peer, '=') + 1);
    return post_to_another(cluster, i, "/v3/cluster/member/add", body, "Peer URLs already exists",
                           error);
}
