/*
 * Following a small range: the watcher does the watching; here is what to do when it has lost its
 * place.
 *
 * The table remembers each key that exists, so that a list can be told apart from what was heard, and
 * so that nothing is reported twice. Up to the last revision that was heard a list must agree with it:
 * what a restored etcd says of revisions that were heard otherwise is not news but another history.
 */
#include "agent/follow.h"

#include "base/log.h"
#include "etcd/watcher.h"

#define PAUSE_FIRST_MS 100
#define PAUSE_CAP_MS   5000

struct LhFollow {
    LhEnv *env;
    LhEtcd *etcd;
    char *key, *range_end;
    const LhFollowFuncs *funcs;
    gpointer data;
    GHashTable *known; /* key → Known */
    LhWatcher *watcher;
    gboolean opened;
    GPtrArray *held; /* of Held: heard, not reported; NULL: reported at once */
    gint64 revision; /* everything up to it has been reported */
    LhCallId call;
    LhTimer *pause;
    guint attempt;
};

typedef struct {
    gboolean gone;
    LhKv kv; /* strings owned */
} Held;

typedef struct {
    gint64 mod_rev;
    guint value; /* hash */
} Known;

static void start_watcher(LhFollow *f, gint64 start_revision);

static void held_free(gpointer data)
{
    Held *held = data;
    g_free((char *)held->kv.key);
    g_free((char *)held->kv.value);
    g_free(held);
}

static Known known_of(const LhKv *kv)
{
    g_autoptr(GBytes) value = g_bytes_new_static(kv->value, kv->value_len);
    return (Known){.mod_rev = kv->mod_rev, .value = g_bytes_hash(value)};
}

static void report_put(LhFollow *f, const LhKv *kv)
{
    const Known *known = g_hash_table_lookup(f->known, kv->key);
    if (known != NULL && kv->mod_rev <= known->mod_rev)
        return;
    const Known now = known_of(kv);
    g_hash_table_insert(f->known, g_strdup(kv->key), g_memdup2(&now, sizeof now));
    f->funcs->put(kv, f->data);
}

static void report_gone(LhFollow *f, const char *key, gint64 rev)
{
    const Known *known = g_hash_table_lookup(f->known, key);
    if (known == NULL || rev <= known->mod_rev)
        return;
    g_autofree char *copy = g_strdup(key);
    g_hash_table_remove(f->known, copy);
    f->funcs->gone(copy, rev, f->data);
}

static void hear(LhFollow *f, const LhKv *kv, gboolean gone)
{
    if (f->held != NULL) {
        Held *held = g_new0(Held, 1);
        held->gone = gone;
        held->kv = *kv;
        held->kv.key = g_strdup(kv->key);
        held->kv.value = gone ? NULL : g_memdup2(kv->value, kv->value_len + 1);
        g_ptr_array_add(f->held, held);
    } else if (gone) {
        report_gone(f, kv->key, kv->mod_rev);
    } else {
        report_put(f, kv);
    }
}

static void on_opened(gpointer data)
{
    LhFollow *f = data;
    gboolean again = f->opened;
    f->opened = TRUE;
    if (!again)
        f->funcs->opened(f->data);
    else if (f->funcs->again != NULL)
        f->funcs->again(f->data);
}

static void on_events(const LhEtcdEvent *events, gsize n, gint64 revision, gpointer data)
{
    LhFollow *f = data;
    for (gsize i = 0; i < n; i++)
        hear(f, &events[i].kv, events[i].is_delete);
    f->revision = MAX(f->revision, revision);
}

static gint compare_mod_rev(gconstpointer a, gconstpointer b)
{
    const LhKv *x = *(const LhKv *const *)a, *y = *(const LhKv *const *)b;
    return (x->mod_rev > y->mod_rev) - (x->mod_rev < y->mod_rev);
}

/* Whether the list can be of the history that was heard. While what was heard is held back nothing
 * has been made of it, and the list replaces it. */
static gboolean agrees(const LhFollow *f, const LhRangeReply *reply)
{
    if (reply->header.revision < f->revision)
        return FALSE;
    for (gsize i = 0; f->held == NULL && i < reply->n_kvs; i++) {
        const LhKv *kv = &reply->kvs[i];
        const Known *known = g_hash_table_lookup(f->known, kv->key), now = known_of(kv);
        gboolean same = known != NULL && known->mod_rev == now.mod_rev && known->value == now.value;
        if (!same && kv->mod_rev <= MAX(f->revision, known != NULL ? known->mod_rev : 0))
            return FALSE;
    }
    return TRUE;
}

static void list(gpointer data);

static void on_list(const LhRangeReply *reply, const GError *error, gpointer data)
{
    LhFollow *f = data;
    f->call = 0;
    if (error != NULL) {
        gint64 pause = lh_backoff_ms(f->env, f->attempt++, PAUSE_FIRST_MS, PAUSE_CAP_MS);
        lh_log(LH_LOG_WARNING, "cannot list; trying again", "key", f->key, "error", error->message,
               NULL);
        f->pause = lh_timer_in(f->env, pause, list, f);
        return;
    }
    f->attempt = 0;
    if (!agrees(f, reply)) {
        f->funcs->void_(f->data);
        return;
    }
    g_autoptr(GHashTable) present = g_hash_table_new(g_str_hash, g_str_equal);
    g_autoptr(GPtrArray) kvs = g_ptr_array_new();
    for (gsize i = 0; i < reply->n_kvs; i++) {
        g_hash_table_add(present, (gpointer)reply->kvs[i].key);
        g_ptr_array_add(kvs, (gpointer)&reply->kvs[i]);
    }
    g_ptr_array_sort(kvs, compare_mod_rev);

    g_autofree const char **keys = (const char **)g_hash_table_get_keys_as_array(f->known, NULL);
    g_autoptr(GPtrArray) missing = g_ptr_array_new_with_free_func(g_free);
    for (gsize i = 0; keys[i] != NULL; i++) {
        if (!g_hash_table_contains(present, keys[i]))
            g_ptr_array_add(missing, g_strdup(keys[i]));
    }
    if (f->held != NULL)
        g_ptr_array_set_size(f->held, 0); /* the list says it all, and better */
    for (guint i = 0; i < missing->len; i++)
        report_gone(f, g_ptr_array_index(missing, i), reply->header.revision);
    for (guint i = 0; i < kvs->len; i++)
        hear(f, g_ptr_array_index(kvs, i), FALSE);
    f->revision = reply->header.revision;
    start_watcher(f, f->revision + 1);
}

static void list(gpointer data)
{
    LhFollow *f = data;
    f->pause = NULL;
    LhRangeRequest request = {.key = f->key, .range_end = f->range_end};
    f->call = lh_etcd_range(f->etcd, &request, on_list, f);
}

static void on_lost(gint64 compact_revision, gpointer data)
{
    LhFollow *f = data;
    g_clear_pointer(&f->watcher, lh_watcher_free);
    if (compact_revision == 0) {
        f->funcs->void_(f->data);
        return;
    }
    lh_log(LH_LOG_INFO, "watch has lost its place; listing again", "key", f->key, "compacted",
           lh_fmt("%" G_GINT64_FORMAT, compact_revision), NULL);
    list(f);
}

static void start_watcher(LhFollow *f, gint64 start_revision)
{
    static const LhWatcherFuncs funcs = {.opened = on_opened, .events = on_events, .lost = on_lost};
    LhWatcherOptions options = {
        .key = f->key,
        .range_end = f->range_end,
        .start_revision = start_revision,
        .listed = start_revision > 0,
    };
    f->watcher = lh_watcher_start(f->env, f->etcd, &options, &funcs, f);
}

LhFollow *lh_follow_start(LhEnv *env, LhEtcd *etcd, const char *key, const char *range_end,
                          const LhFollowFuncs *funcs, gpointer data)
{
    LhFollow *f = g_new0(LhFollow, 1);
    f->env = env;
    f->etcd = etcd;
    f->key = g_strdup(key);
    f->range_end = g_strdup(range_end);
    f->funcs = funcs;
    f->data = data;
    f->known = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, g_free);
    start_watcher(f, 0);
    return f;
}

void lh_follow_hold(LhFollow *f)
{
    if (f->held == NULL)
        f->held = g_ptr_array_new_with_free_func(held_free);
}

void lh_follow_flow(LhFollow *f)
{
    g_autoptr(GPtrArray) held = g_steal_pointer(&f->held);
    for (guint i = 0; held != NULL && i < held->len; i++) {
        const Held *event = g_ptr_array_index(held, i);
        hear(f, &event->kv, event->gone);
    }
}

void lh_follow_seed(LhFollow *f, const LhKv *kv)
{
    report_put(f, kv);
}

void lh_follow_free(LhFollow *f)
{
    if (f == NULL)
        return;
    lh_watcher_free(f->watcher);
    lh_etcd_cancel(f->etcd, &f->call);
    lh_timer_clear(f->env, &f->pause);
    g_hash_table_unref(f->known);
    g_clear_pointer(&f->held, g_ptr_array_unref);
    g_free(f->key);
    g_free(f->range_end);
    g_free(f);
}
