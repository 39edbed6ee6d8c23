/* See nodes.h. */
#include "nodes.h"

#include "answers.h"
#include "api/decided.h"

#include <string.h>

#define ANSWER_MS (2 * 60 * 1000) /* longest without any */

struct Nodes {
    const Cluster *cluster;
    Watch *watch;
    Answers *answers;
    guint live, wanted;
};

/* ---- what is answered ---- */

static const LhAssignment *order_of(const LhObject *object)
{
    if (object->kind != LH_KIND_ASSIGNMENT || !lh_object_known(object))
        bench_fail("%s is no assignment that a node can answer", object->name);
    return (const LhAssignment *)object;
}

/* "cache/<node>/<item>": the node, g_free. */
static char *node_of(const LhObject *object, const char **item)
{
    g_autofree char *rest = g_strdup(strchr(object->name, '/') + 1);

    *strchr(rest, '/') = '\0';
    if (item != NULL)
        *item = strrchr(object->name, '/') + 1;
    return g_steal_pointer(&rest);
}

static char *url_of(const char *node, const char *item)
{
    return g_strdup_printf("http://%.10s.cache.example.org:8081/v1/items/%s/", node, item);
}

void nodes_item(const LhObject *object, LhItemState state, char **key, char **value)
{
    const LhAssignment *order = order_of(object);
    const char *name;
    g_autofree char *node = node_of(object, &name), *url = url_of(node, name);
    gboolean live = state == LH_ITEM_LIVE;
    LhItem item = {
        .state = (int)state,
        .since = order->since,
        .assignment = object->mod_rev,
        .bytes_done = live ? order->size_bytes : 0,
        .bytes_total = order->size_bytes,
        .url = live ? url : NULL,
    };

    *key = g_strconcat("actual/items/", object->name, NULL);
    *value = lh_object_print(LH_KIND_ITEM, &item);
}

void nodes_search(const LhObject *object, char **key, char **value)
{
    const LhAssignment *order = order_of(object);
    const char *name;
    g_autofree char *node = node_of(object, &name), *url = url_of(node, name);
    LhSearch search = {.snapshot = order->snapshot, .replica = name, .node = node, .url = url};

    *key = g_strdup_printf("actual/search/cache/%s/%s", node, order->snapshot);
    *value = lh_object_print(LH_KIND_SEARCH, &search);
}

/* ---- writing ---- */

/* Takes both. */
static void write_later(Nodes *nodes, char *below, char *value)
{
    answers_add(nodes->answers, g_strconcat(nodes->cluster->prefix, below, NULL), value, 0);
    g_free(below);
}

static void answer(Nodes *nodes, const LhObject *object)
{
    gboolean load = order_of(object)->action == LH_ACTION_LOAD;
    char *key, *value;

    nodes_search(object, &key, &value);
    if (!load)
        g_clear_pointer(&value, g_free);
    write_later(nodes, key, value);
    nodes_item(object, load ? LH_ITEM_LIVE : LH_ITEM_EVICTED, &key, &value);
    write_later(nodes, key, value);
    nodes->live += load;
}

static void on_order(const LhEtcdEvent *event, gint64 at_us, gpointer data)
{
    Nodes *nodes = data;
    const LhKv *kv = &event->kv;
    LhKind kind = LH_N_KINDS;
    const char *name = NULL;

    (void)at_us;
    if (!lh_key_split(kv->key + strlen(nodes->cluster->prefix), &kind, &name))
        bench_fail("%s is no key of any kind", kv->key);
    if (event->is_delete) {
        write_later(nodes, g_strconcat("actual/items/", name, NULL), NULL);
        return;
    }
    g_autoptr(LhObject) object = lh_object_parse(kind, name, kv->value, kv->value_len,
                                                 kv->create_rev, kv->mod_rev, kv->lease);
    answer(nodes, object);
}

/* ---- life ---- */

Nodes *nodes_new(const Cluster *cluster)
{
    Nodes *nodes = g_new0(Nodes, 1);
    g_autofree char *prefix = cluster_key(cluster, "decided/assignments/cache/");

    nodes->cluster = cluster;
    nodes->answers = answers_new();
    nodes->watch = watch_new(prefix, on_order, nodes);
    return nodes;
}

static gboolean all_answered(gpointer data)
{
    const Nodes *nodes = data;

    return nodes->live >= nodes->wanted && answers_taken(nodes->answers);
}

static guint64 progress(gpointer data)
{
    const Nodes *nodes = data;

    return nodes->live + answers_count(nodes->answers);
}

void nodes_wait_live(Nodes *nodes, guint n)
{
    nodes->wanted = n;
    bench_wait_going(all_answered, progress, nodes, ANSWER_MS, "nodes have answered %u loads", n);
}

void nodes_free(Nodes *nodes)
{
    watch_free(nodes->watch);
    answers_free(nodes->answers);
    g_free(nodes);
}
