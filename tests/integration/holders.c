/* See holders.h. What a revision changes is looked at when all of the revision is known. */
#include "holders.h"

#include <string.h>

typedef struct {
    char *item, *node, *policy; /* policy: of the newest order that names one; "": none */
    gint64 order;               /* mod revision of its order; 0: there is none */
    char *state;                /* of its item; NULL: there is none */
    gint64 answered;            /* the order that it answers */
} Place;

typedef struct {
    const char *pool;
    GHashTable *places;     /* "node/item" → Place */
    GHashTable *by_item;    /* item → GPtrArray of Place */
    GHashTable *by_policy;  /* policy → the same */
    GHashTable *registered; /* set of node ids */
    GHashTable *failed;     /* set of node ids */
    GHashTable *last;       /* item → node id of its newest load */
    GHashTable *touched;    /* set of Place */
    GPtrArray *loads;
    gint64 revision;
} Holders;

static void place_free(gpointer data)
{
    Place *place = data;

    g_free(place->item);
    g_free(place->node);
    g_free(place->policy);
    g_free(place->state);
    g_free(place);
}

static void load_free(gpointer data)
{
    Load *load = data;

    g_free(load->item);
    g_free(load->policy);
    g_free(load->node);
    g_free(load->before);
    g_free(load);
}

static void file(GHashTable *table, const char *key, Place *place)
{
    GPtrArray *all = g_hash_table_lookup(table, key);

    if (all == NULL) {
        all = g_ptr_array_new();
        g_hash_table_insert(table, g_strdup(key), all);
    }
    if (!g_ptr_array_find(all, place, NULL))
        g_ptr_array_add(all, place);
}

static Place *place_at(Holders *h, const char *name)
{
    Place *place = g_hash_table_lookup(h->places, name);
    const char *slash = strchr(name, '/');

    if (place != NULL)
        return place;
    place = g_new0(Place, 1);
    place->node = g_strndup(name, (gsize)(slash - name));
    place->item = g_strdup(slash + 1);
    place->policy = g_strdup("");
    g_hash_table_insert(h->places, g_strdup(name), place);
    file(h->by_item, place->item, place);
    return place;
}

/* ---- one change ---- */

static void note_load(Holders *h, const Place *place)
{
    Load *load = g_new0(Load, 1);
    const char *before = g_hash_table_lookup(h->last, place->item);

    load->item = g_strdup(place->item);
    load->policy = g_strdup(place->policy);
    load->node = g_strdup(place->node);
    load->before = g_strdup(before != NULL ? before : "");
    load->revision = h->revision;
    g_ptr_array_add(h->loads, load);
    g_hash_table_replace(h->last, g_strdup(place->item), g_strdup(place->node));
}

static void on_order(Holders *h, const Kv *kv, const char *name)
{
    Place *place = place_at(h, name);
    g_autoptr(cJSON) json = kv->is_delete ? NULL : cJSON_ParseWithLength(kv->value, kv->len);
    const char *policy = json_text(json, "seed.throttle.name");
    gboolean begun = place->order == 0 && !kv->is_delete;

    g_hash_table_add(h->touched, place);
    place->order = kv->is_delete ? 0 : kv->mod_rev;
    if (*policy != '\0' && strcmp(policy, place->policy) != 0) {
        g_free(place->policy);
        place->policy = g_strdup(policy);
        file(h->by_policy, policy, place);
    }
    if (begun)
        note_load(h, place);
}

static void on_item(Holders *h, const Kv *kv, const char *name)
{
    Place *place = place_at(h, name);
    g_autoptr(cJSON) json = kv->is_delete ? NULL : cJSON_ParseWithLength(kv->value, kv->len);

    g_hash_table_add(h->touched, place);
    g_free(place->state);
    place->state = kv->is_delete ? NULL : g_strdup(json_text(json, "state"));
    place->answered = lh_json_get_int(json, "assignment", 0);
}

static void on_node(Holders *h, const Kv *kv, const char *node)
{
    if (kv->is_delete)
        g_hash_table_remove(h->registered, node);
    else
        g_hash_table_add(h->registered, g_strdup(node));
}

static void on_health(Holders *h, const Kv *kv, const char *node)
{
    g_autoptr(cJSON) json = kv->is_delete ? NULL : cJSON_ParseWithLength(kv->value, kv->len);

    if (strcmp(json_text(json, "state"), "failed") == 0)
        g_hash_table_add(h->failed, g_strdup(node));
}

static void on_change(Holders *h, const Kv *kv)
{
    static const struct {
        const char *prefix;
        void (*change)(Holders *h, const Kv *kv, const char *name);
    } all[] = {
        {"decided/assignments/", on_order},
        {"actual/items/", on_item},
        {"actual/nodes/", on_node},
        {"decided/health/", on_health},
    };

    for (guint i = 0; i < G_N_ELEMENTS(all); i++) {
        g_autofree char *prefix = g_strconcat(all[i].prefix, h->pool, "/", NULL);
        if (g_str_has_prefix(kv->key, prefix))
            all[i].change(h, kv, kv->key + strlen(prefix));
    }
}

/* ---- at one revision ---- */

static gboolean is_one_of(const char *state, const char *const *states)
{
    return state != NULL && g_strv_contains(states, state);
}

static gboolean holds(const Holders *h, const Place *place)
{
    static const char *const ends[] = {"evicted", "failed", "done", NULL};
    static const char *const working[] = {"loading", "live", "evicting", NULL};
    gboolean ended = place->answered == place->order && is_one_of(place->state, ends);

    if (g_hash_table_contains(h->failed, place->node) &&
        !g_hash_table_contains(h->registered, place->node))
        return FALSE;
    return (place->order != 0 && !ended) || is_one_of(place->state, working);
}

/* Two of them, on different nodes. */
static char *two_of(const Holders *h, const char *what, const char *name, const GPtrArray *places)
{
    const Place *one = NULL;

    for (guint i = 0; places != NULL && i < places->len; i++) {
        const Place *place = places->pdata[i];
        if (!holds(h, place))
            continue;
        if (one != NULL && strcmp(one->node, place->node) != 0)
            return g_strdup_printf(
                "%s %s at revision %" G_GINT64_FORMAT ": %s has %s, and %s has %s", what, name,
                h->revision, one->node, one->item, place->node, place->item);
        one = place;
    }
    return NULL;
}

static char *check_touched(Holders *h)
{
    g_autoptr(GHashTable) done = g_hash_table_new(g_str_hash, g_str_equal);
    GHashTableIter iter;
    gpointer key;
    char *wrong = NULL;

    g_hash_table_iter_init(&iter, h->touched);
    while (wrong == NULL && g_hash_table_iter_next(&iter, &key, NULL)) {
        const Place *place = key;
        wrong = two_of(h, "item", place->item, g_hash_table_lookup(h->by_item, place->item));
        if (wrong == NULL && *place->policy != '\0' && g_hash_table_add(done, place->policy))
            wrong = two_of(h, "policy", place->policy,
                           g_hash_table_lookup(h->by_policy, place->policy));
    }
    g_hash_table_remove_all(h->touched);
    return wrong;
}

static void free_array(gpointer data)
{
    g_ptr_array_unref(data);
}

GPtrArray *holders_read(GPtrArray *history, const char *pool, char **wrong)
{
    Holders h = {
        .pool = pool,
        .places = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, place_free),
        .by_item = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, free_array),
        .by_policy = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, free_array),
        .registered = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL),
        .failed = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL),
        .last = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, g_free),
        .touched = g_hash_table_new(NULL, NULL),
        .loads = g_ptr_array_new_with_free_func(load_free),
    };

    *wrong = NULL;
    for (guint i = 0; i < history->len && *wrong == NULL; i++) {
        const Kv *kv = history->pdata[i];
        const Kv *next = i + 1 < history->len ? history->pdata[i + 1] : NULL;
        h.revision = kv->mod_rev;
        on_change(&h, kv);
        if (next == NULL || next->mod_rev != kv->mod_rev)
            *wrong = check_touched(&h);
    }
    g_hash_table_unref(h.touched);
    g_hash_table_unref(h.places);
    g_hash_table_unref(h.by_item);
    g_hash_table_unref(h.by_policy);
    g_hash_table_unref(h.registered);
    g_hash_table_unref(h.failed);
    g_hash_table_unref(h.last);
    return h.loads;
}
