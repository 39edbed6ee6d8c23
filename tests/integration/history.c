/*
 * See history.h. The history is read through a watch from revision 1, so what was written and deleted again
 * is seen too.
 */
#include "history.h"

#include <string.h>

#define ASSIGNMENTS "decided/assignments/cache/"
#define ITEMS       "actual/items/cache/"

/* "node/item" → the item, and the node into *node (g_free). */
static const char *split_assignment(const char *key, char **node)
{
    const char *rest = key + strlen(ASSIGNMENTS), *slash = strchr(rest, '/');

    *node = g_strndup(rest, (gsize)(slash - rest));
    return slash + 1;
}

/* The changes of one revision, deletions first: a transaction may move an item. */
static char *apply_revision(GPtrArray *history, guint from, guint to, GHashTable *holders)
{
    for (int deletes = 1; deletes >= 0; deletes--) {
        for (guint i = from; i < to; i++) {
            const Kv *kv = g_ptr_array_index(history, i);
            g_autofree char *node = NULL;
            const char *item, *held;
            if (kv->is_delete != (deletes == 1) || !g_str_has_prefix(kv->key, ASSIGNMENTS))
                continue;
            item = split_assignment(kv->key, &node);
            held = g_hash_table_lookup(holders, item);
            if (kv->is_delete) {
                if (g_strcmp0(held, node) == 0)
                    g_hash_table_remove(holders, item);
            } else if (held != NULL && strcmp(held, node) != 0) {
                return g_strdup_printf(
                    "%s is assigned to %s and to %s at revision %" G_GINT64_FORMAT, item, held,
                    node, kv->mod_rev);
            } else {
                g_hash_table_replace(holders, g_strdup(item), g_strdup(node));
            }
        }
    }
    return NULL;
}

char *history_single_assignment(World *world)
{
    g_autoptr(GPtrArray) history = world_history(world, 0);
    g_autoptr(GHashTable) holders = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, g_free);

    for (guint from = 0, to; from < history->len; from = to) {
        gint64 revision = ((Kv *)g_ptr_array_index(history, from))->mod_rev;
        char *wrong;
        for (to = from; to < history->len; to++)
            if (((Kv *)g_ptr_array_index(history, to))->mod_rev != revision)
                break;
        wrong = apply_revision(history, from, to, holders);
        if (wrong != NULL)
            return wrong;
    }
    return NULL;
}

static char *text_member(const Kv *kv, const char *name)
{
    g_autoptr(cJSON) json = kv->is_delete ? NULL : cJSON_ParseWithLength(kv->value, kv->len);

    return g_strdup(lh_json_get_string(json, name, ""));
}

/* The first leader key of @controller that @instance wrote; NULL: none. */
static const Kv *leader_key(GPtrArray *history, const char *controller, const char *instance)
{
    g_autofree char *prefix = g_strdup_printf("leaders/%s/", controller);

    for (guint i = 0; i < history->len; i++) {
        const Kv *kv = g_ptr_array_index(history, i);
        if (!kv->is_delete && g_str_has_prefix(kv->key, prefix)) {
            g_autofree char *who = text_member(kv, "instance");
            if (strcmp(who, instance) == 0)
                return kv;
        }
    }
    return NULL;
}

gint64 history_epoch_of(World *world, const char *controller, const char *instance)
{
    g_autoptr(GPtrArray) history = world_history(world, 0);
    const Kv *leader = leader_key(history, controller, instance);

    return leader == NULL ? 0 : leader->create_rev;
}

static gint64 epoch_of(const Kv *kv)
{
    g_autoptr(cJSON) json = kv->is_delete ? NULL : cJSON_ParseWithLength(kv->value, kv->len);

    return lh_json_get_int(json, "epoch", 0);
}

char *history_no_writes_of(World *world, const char *controller, const char *instance,
                           gint64 *takeover)
{
    g_autoptr(GPtrArray) history = world_history(world, 0);
    const Kv *leader = leader_key(history, controller, instance);
    gint64 gone = 0;

    if (leader == NULL)
        return g_strdup_printf("%s never led %s", instance, controller);
    for (guint i = 0; i < history->len; i++) {
        const Kv *kv = g_ptr_array_index(history, i);
        if (kv->is_delete && gone == 0 && strcmp(kv->key, leader->key) == 0)
            gone = kv->mod_rev;
        if (gone != 0 && g_str_has_prefix(kv->key, ASSIGNMENTS) &&
            epoch_of(kv) == leader->create_rev && kv->mod_rev > gone)
            return g_strdup_printf("%s was written at revision %" G_GINT64_FORMAT
                                   " under the epoch that ended at %" G_GINT64_FORMAT,
                                   kv->key, kv->mod_rev, gone);
    }
    if (gone == 0)
        return g_strdup_printf("the leader key of %s was never deleted", instance);
    if (takeover != NULL)
        *takeover = gone;
    return NULL;
}

guint history_assignments_of_epoch(World *world, gint64 epoch)
{
    g_autoptr(GPtrArray) history = world_history(world, 0);
    guint n = 0;

    for (guint i = 0; i < history->len; i++) {
        const Kv *kv = g_ptr_array_index(history, i);
        n += !kv->is_delete && g_str_has_prefix(kv->key, ASSIGNMENTS) &&
             kv->create_rev == kv->mod_rev && epoch_of(kv) == epoch;
    }
    return n;
}

static char *answered_order(const Kv *kv)
{
    g_autoptr(cJSON) json = cJSON_ParseWithLength(kv->value, kv->len);

    return g_strdup_printf("%" G_GINT64_FORMAT, lh_json_get_int(json, "assignment", 0));
}

char *history_written_once(World *world, const char *prefix)
{
    g_autoptr(GPtrArray) history = world_history(world, 0);
    g_autoptr(GHashTable) present = g_hash_table_new(g_str_hash, g_str_equal);
    guint n = 0;

    for (guint i = 0; i < history->len; i++) {
        const Kv *kv = g_ptr_array_index(history, i);
        if (!g_str_has_prefix(kv->key, prefix))
            continue;
        if (kv->is_delete)
            g_hash_table_remove(present, kv->key);
        else if (!g_hash_table_add(present, kv->key))
            return g_strdup_printf("%s was written again at revision %" G_GINT64_FORMAT ": %s",
                                   kv->key, kv->mod_rev, kv->value);
        n += !kv->is_delete;
    }
    return n > 0 ? NULL : g_strdup_printf("nothing below %s was ever written", prefix);
}

/* An item that a node loaded once: loading, perhaps some progress, live; each said once, and for an order that
 * etcd had at that time. */
char *history_item_states(World *world)
{
    g_autoptr(GPtrArray) history = world_history(world, 0);
    g_autoptr(GHashTable) live = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
    g_autoptr(GHashTable) orders = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, g_free);
    g_autoptr(GHashTable) values = g_hash_table_new(g_str_hash, g_str_equal);

    for (guint i = 0; i < history->len; i++) {
        const Kv *kv = g_ptr_array_index(history, i);
        if (kv->is_delete)
            continue;
        if (g_str_has_prefix(kv->key, ASSIGNMENTS)) {
            g_hash_table_replace(orders, g_strdup(kv->key + strlen(ASSIGNMENTS)),
                                 g_strdup_printf("%" G_GINT64_FORMAT, kv->mod_rev));
        } else if (g_str_has_prefix(kv->key, ITEMS)) {
            const char *name = kv->key + strlen(ITEMS);
            g_autofree char *state = text_member(kv, "state");
            g_autofree char *order = answered_order(kv);
            if (g_strcmp0(g_hash_table_lookup(orders, name), order) != 0)
                return g_strdup_printf("%s answers %s, which is not its order", kv->key, order);
            if (g_strcmp0(g_hash_table_lookup(values, name), kv->value) == 0)
                return g_strdup_printf("%s was written again: %s", kv->key, kv->value);
            g_hash_table_replace(values, (gpointer)name, kv->value);
            if (g_hash_table_contains(live, name))
                return g_strdup_printf("%s was live, and then %s", kv->key, state);
            if (strcmp(state, "live") == 0)
                g_hash_table_add(live, g_strdup(name));
        }
    }
    return g_hash_table_size(live) > 0 ? NULL : g_strdup("no item ever was live");
}
