/*
 * List, then watch from the list's revision + 1; when the watch is lost, list again and report the
 * differences. While a list is running the mirror keeps showing the last whole state: pages are collected
 * and applied at once, so it never mixes revisions. Only of the very first list the pages are applied and told
 * as they come, because a million changes told at once would take the loop for seconds; until it is whole,
 * the mirror shows nothing.
 */
#include "mirror/mirror.h"

#include "base/errors.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/planted.h"
#include "etcd/list.h"
#include "etcd/watcher.h"
#include "mirror/store.h"

#include <string.h>

#define RELIST_FIRST_MS 100
#define RELIST_CAP_MS   5000
#define TRIM_AFTER_MS   500 /* when the last page has been freed */

typedef struct {
    const LhMirrorFuncs *funcs;
    gpointer data;
} Listener;

struct LhMirror {
    LhEnv *env;
    LhEtcd *etcd;
    char *prefix, *prefix_end;
    gsize prefix_len;
    LhStore store;
    LhMirrorParse parse; /* NULL: lh_object_parse() */
    gpointer parse_data;
    GArray *listeners;

    gint64 revision;
    guint64 cluster_id;
    gboolean open, in_doubt;
    gboolean trust_progress; /* of the next watch */
    gint64 heard_ms;         /* monotonic, while no watcher exists */

    LhList *list;
    gboolean begun;           /* the store holds pages of a first list */
    GPtrArray *listed;        /* LhObject, references; NULL while a first list is running */
    GHashTable *foreign_seen; /* set of GBytes: keys of no known kind in the running list */
    char *newest;             /* key of the running list with the highest mod revision */
    gint64 newest_rev;
    guint64 newest_content;
    LhWatcher *watcher;
    LhTimer *retry, *trim;
    guint attempts;

    guint busy; /* telling: lh_mirror_free waits until the listeners' callbacks have returned */
    gboolean freed;
};

static void start_list(LhMirror *mirror);

LhMirror *lh_mirror_new(LhEnv *env, LhEtcd *etcd, const char *prefix)
{
    LhMirror *mirror = g_new0(LhMirror, 1);

    mirror->env = env;
    mirror->etcd = etcd;
    mirror->prefix = g_strdup(prefix);
    mirror->prefix_len = strlen(prefix);
    mirror->prefix_end = lh_etcd_prefix_end(prefix);
    mirror->listeners = g_array_new(FALSE, FALSE, sizeof(Listener));
    lh_mirror_store_init(&mirror->store);
    return mirror;
}

static void forget_newest(LhMirror *mirror)
{
    g_clear_pointer(&mirror->newest, g_free);
    mirror->newest_rev = 0;
}

static void drop_listed(LhMirror *mirror)
{
    g_clear_pointer(&mirror->listed, g_ptr_array_unref);
    g_clear_pointer(&mirror->foreign_seen, g_hash_table_unref);
}

/* Nothing comes any more. */
static void quiet(LhMirror *mirror)
{
    g_clear_pointer(&mirror->list, lh_list_cancel);
    g_clear_pointer(&mirror->watcher, lh_watcher_free);
    lh_timer_clear(mirror->env, &mirror->retry);
    lh_timer_clear(mirror->env, &mirror->trim);
}

void lh_mirror_free(LhMirror *mirror)
{
    if (mirror == NULL)
        return;
    quiet(mirror);
    mirror->freed = TRUE;
    if (mirror->busy > 0)
        return;
    drop_listed(mirror);
    lh_mirror_store_clear(&mirror->store);
    g_array_unref(mirror->listeners);
    forget_newest(mirror);
    g_free(mirror->prefix);
    g_free(mirror->prefix_end);
    g_free(mirror);
}

/* Around all that tells listeners, which may free the mirror. */
static void begin_telling(LhMirror *mirror)
{
    mirror->busy++;
}

static void end_telling(LhMirror *mirror)
{
    mirror->busy--;
    if (mirror->freed)
        lh_mirror_free(mirror);
}

void lh_mirror_listen(LhMirror *mirror, const LhMirrorFuncs *funcs, gpointer data)
{
    Listener listener = {funcs, data};

    g_array_append_val(mirror->listeners, listener);
}

void lh_mirror_unlisten(LhMirror *mirror, const LhMirrorFuncs *funcs, gpointer data)
{
    for (guint i = 0; i < mirror->listeners->len; i++) {
        Listener *listener = &g_array_index(mirror->listeners, Listener, i);
        if (listener->funcs == funcs && listener->data == data) {
            g_array_remove_index(mirror->listeners, i);
            return;
        }
    }
}

static void tell_change(LhMirror *mirror, const LhObject *before, const LhObject *after)
{
    for (guint i = 0; i < mirror->listeners->len && !mirror->freed; i++) {
        Listener *listener = &g_array_index(mirror->listeners, Listener, i);
        if (listener->funcs->change != NULL)
            listener->funcs->change(before, after, listener->data);
    }
}

static void tell_applied(LhMirror *mirror)
{
    for (guint i = 0; i < mirror->listeners->len && !mirror->freed; i++) {
        Listener *listener = &g_array_index(mirror->listeners, Listener, i);
        if (listener->funcs->applied != NULL)
            listener->funcs->applied(mirror->revision, listener->data);
    }
}

static void tell_regressed(LhMirror *mirror, gint64 to_revision)
{
    lh_log(
        LH_LOG_ERROR, "etcd went back in time or is another cluster: it was restored from a backup",
        "from_revision", lh_fmt("%" G_GINT64_FORMAT, mirror->revision), "to_revision",
        lh_fmt("%" G_GINT64_FORMAT, to_revision), "next", "list again and brake deletions", NULL);
    for (guint i = 0; i < mirror->listeners->len && !mirror->freed; i++) {
        Listener *listener = &g_array_index(mirror->listeners, Listener, i);
        if (listener->funcs->regressed != NULL)
            listener->funcs->regressed(mirror->revision, to_revision, listener->data);
    }
}

/* What a key under the prefix is: an object's, or a foreign one (no known kind). */
typedef struct {
    LhKind kind;      /* LH_N_KINDS: foreign */
    const char *name; /* of the object */
} Key;

/* False when the key is not under the prefix. A key that holds a NUL is never an object's. */
static gboolean key_of(const LhMirror *mirror, const LhKv *kv, Key *out)
{
    gsize prefix = mirror->prefix_len;

    if (kv->key_len < prefix || memcmp(kv->key, mirror->prefix, prefix) != 0)
        return FALSE;
    if (memchr(kv->key, 0, kv->key_len) != NULL ||
        !lh_key_split(kv->key + prefix, &out->kind, &out->name))
        out->kind = LH_N_KINDS;
    return TRUE;
}

static void add_foreign(GHashTable *foreign, const LhKv *kv)
{
    g_hash_table_add(foreign, g_bytes_new(kv->key, kv->key_len));
}

static void remove_foreign(GHashTable *foreign, const LhKv *kv)
{
    g_autoptr(GBytes) key = g_bytes_new_static(kv->key, kv->key_len);

    g_hash_table_remove(foreign, key);
}

static void put_object(LhMirror *mirror, LhObject *object)
{
    LhObject *before = lh_mirror_store_put(&mirror->store, object);

    tell_change(mirror, before, object);
    lh_object_unref(before);
}

static void remove_object(LhMirror *mirror, LhKind kind, const char *name)
{
    LhObject *before = lh_mirror_store_remove(&mirror->store, kind, name);

    if (before == NULL)
        return;
    tell_change(mirror, before, NULL);
    lh_object_unref(before);
}

static LhObject *parse(const LhMirror *mirror, const Key *key, const LhKv *kv)
{
    if (mirror->parse != NULL)
        return mirror->parse(key->kind, key->name, kv, mirror->parse_data);
    return lh_object_parse(key->kind, key->name, kv->value, kv->value_len, kv->create_rev,
                           kv->mod_rev, kv->lease);
}

static void apply_event(LhMirror *mirror, const LhEtcdEvent *event)
{
    const LhKv *kv = &event->kv;
    Key key;

    if (!key_of(mirror, kv, &key))
        return;
    if (key.kind == LH_N_KINDS && event->is_delete)
        remove_foreign(mirror->store.foreign, kv);
    else if (key.kind == LH_N_KINDS)
        add_foreign(mirror->store.foreign, kv);
    else if (event->is_delete)
        remove_object(mirror, key.kind, key.name);
    else
        put_object(mirror, parse(mirror, &key, kv));
}

/* ---- list ---- */

static void collect_pages(LhMirror *mirror)
{
    drop_listed(mirror);
    mirror->listed = g_ptr_array_new_with_free_func((GDestroyNotify)lh_object_unref);
    mirror->foreign_seen = lh_mirror_foreign_new();
}

/* Of a first list too: what its pages left in the store may have changed. */
static void on_list_restart(gpointer data)
{
    forget_newest(data);
    collect_pages(data);
}

/* Equal revisions alone prove nothing: after a restore from a backup etcd gives them out again. */
static gboolean unchanged(const LhObject *known, const LhObject *listed)
{
    gsize known_len = 0, listed_len = 0;
    const char *known_raw, *listed_raw;

    if (known == NULL || known->mod_rev != listed->mod_rev ||
        known->create_rev != listed->create_rev ||
        lh_object_lease(known) != lh_object_lease(listed) ||
        lh_object_known(known) != lh_object_known(listed))
        return FALSE;
    known_raw = lh_object_raw(known, &known_len);
    listed_raw = lh_object_raw(listed, &listed_len);
    if (known_raw != NULL && listed_raw != NULL)
        return known_len == listed_len && memcmp(known_raw, listed_raw, known_len) == 0;
    return lh_object_same(known->kind, known, listed);
}

/* Once for a page: its newest key. */
static void remember_newest(LhMirror *mirror, const LhKv *kvs, gsize n)
{
    const LhKv *newest = NULL;

    for (gsize i = 0; i < n; i++)
        if (kvs[i].mod_rev > (newest == NULL ? mirror->newest_rev : newest->mod_rev) &&
            memchr(kvs[i].key, 0, kvs[i].key_len) == NULL)
            newest = &kvs[i];
    if (newest == NULL)
        return;
    g_free(mirror->newest);
    mirror->newest = g_strndup(newest->key, newest->key_len);
    mirror->newest_rev = newest->mod_rev;
    mirror->newest_content = lh_watcher_content(newest);
}

static void apply_page(LhMirror *mirror, const LhKv *kvs, gsize n)
{
    begin_telling(mirror);
    for (gsize i = 0; i < n && !mirror->freed; i++) {
        const LhEtcdEvent event = {.kv = kvs[i]};
        apply_event(mirror, &event);
    }
    end_telling(mirror);
}

static void on_list_page(const LhKv *kvs, gsize n, gpointer data)
{
    LhMirror *mirror = data;

    remember_newest(mirror, kvs, n);
    if (mirror->listed == NULL) {
        apply_page(mirror, kvs, n);
        return;
    }
    for (gsize i = 0; i < n; i++) {
        Key key;
        if (!key_of(mirror, &kvs[i], &key))
            continue;
        if (key.kind == LH_N_KINDS) {
            add_foreign(mirror->foreign_seen, &kvs[i]);
            continue;
        }
        LhObject *listed = parse(mirror, &key, &kvs[i]);
        const LhObject *known = lh_mirror_store_get(&mirror->store, key.kind, key.name);
        if (unchanged(known, listed)) {
            lh_object_unref(listed);
            listed = lh_object_ref(known);
        }
        g_ptr_array_add(mirror->listed, listed);
    }
}

static void on_opened(gpointer data)
{
    ((LhMirror *)data)->open = TRUE;
}

static void on_events(const LhEtcdEvent *events, gsize n, gint64 revision, gpointer data)
{
    LhMirror *mirror = data;

    begin_telling(mirror);
    for (gsize i = 0; i < n && !mirror->freed; i++)
        apply_event(mirror, &events[i]);
    mirror->revision = revision;
    tell_applied(mirror);
    end_telling(mirror);
}

static void on_interrupted(const GError *error, gpointer data)
{
    LhMirror *mirror = data;

    mirror->open = FALSE;
    lh_log(LH_LOG_INFO, "watch interrupted", "why", error->message, "next", "resume", NULL);
}

static void watch_again(LhMirror *mirror)
{
    mirror->open = FALSE;
    mirror->heard_ms = lh_watcher_last_heard_ms(mirror->watcher);
    g_clear_pointer(&mirror->watcher, lh_watcher_free);
    start_list(mirror);
}

static void be_in_doubt(LhMirror *mirror)
{
    mirror->in_doubt = TRUE;
    for (guint i = 0; i < mirror->listeners->len; i++) {
        Listener *listener = &g_array_index(mirror->listeners, Listener, i);
        if (listener->funcs->doubt != NULL)
            listener->funcs->doubt(listener->data);
    }
}

static void on_lost(gint64 compact_revision, gpointer data)
{
    LhMirror *mirror = data;

    lh_log(LH_LOG_WARNING, "watch lost", "revision", lh_fmt("%" G_GINT64_FORMAT, mirror->revision),
           "compacted", lh_fmt("%" G_GINT64_FORMAT, compact_revision), "next", "list again", NULL);
    if (compact_revision == 0 && !mirror->in_doubt)
        be_in_doubt(mirror);
    watch_again(mirror);
}

void lh_mirror_doubt(LhMirror *mirror)
{
    if (mirror->in_doubt)
        return;
    lh_log(LH_LOG_WARNING, "etcd answered from before the mirror's revision", "revision",
           lh_fmt("%" G_GINT64_FORMAT, mirror->revision), "next", "list again", NULL);
    be_in_doubt(mirror);
    /* Without a watcher it lists already. */
    if (mirror->watcher != NULL)
        watch_again(mirror);
}

gboolean lh_mirror_in_doubt(const LhMirror *mirror)
{
    return mirror->in_doubt;
}

static const LhWatcherFuncs watcher_funcs = {
    .opened = on_opened,
    .events = on_events,
    .interrupted = on_interrupted,
    .lost = on_lost,
};

static void start_watch(LhMirror *mirror)
{
    LhWatcherOptions options = {
        .key = mirror->prefix,
        .range_end = mirror->prefix_end,
        .start_revision = mirror->revision + 1,
        .cluster_id = mirror->cluster_id,
        .trust_progress = mirror->trust_progress,
        .listed = TRUE,
        .witness = mirror->newest,
        .witness_rev = mirror->newest_rev,
        .witness_content = mirror->newest_content,
    };

    mirror->watcher = lh_watcher_start(mirror->env, mirror->etcd, &options, &watcher_funcs, mirror);
}

static void remove_absent(LhMirror *mirror)
{
    g_autoptr(GHashTable) listed = g_hash_table_new(NULL, NULL);
    g_autoptr(GPtrArray) absent = g_ptr_array_new_with_free_func((GDestroyNotify)lh_object_unref);

    for (guint i = 0; i < mirror->listed->len; i++)
        g_hash_table_add(listed, g_ptr_array_index(mirror->listed, i));
    for (guint kind = 0; kind < LH_N_KINDS; kind++) {
        LhObject *object;
        for (gsize at = 0; (object = lh_name_set_next(&mirror->store.kinds[kind], &at)) != NULL;)
            if (!g_hash_table_contains(listed, object))
                g_ptr_array_add(absent, lh_object_ref(object));
    }
    for (guint i = 0; i < absent->len; i++) {
        LhObject *object = g_ptr_array_index(absent, i);
        remove_object(mirror, object->kind, object->name);
    }
}

/* Brings the store from its old state to the listed one, telling each difference. A key that was replaced
 * counts as one change; an unchanged one is the same object and is not told. */
static void apply_list(LhMirror *mirror)
{
    for (guint i = 0; i < mirror->listed->len; i++) {
        LhObject *object = g_ptr_array_index(mirror->listed, i);
        if (lh_mirror_store_get(&mirror->store, object->kind, object->name) != object)
            put_object(mirror, lh_object_ref(object));
    }
    if (!LH_BUG(LOST_DELETION))
        remove_absent(mirror);
    g_hash_table_unref(mirror->store.foreign);
    mirror->store.foreign = g_steal_pointer(&mirror->foreign_seen);
}

/* Up to the mirror's revision the list says something else than the mirror: it is of another history, though
 * its revision has passed ours. What only is not there any more may have been deleted since. */
static gboolean disagrees(const LhMirror *mirror)
{
    for (guint i = 0; mirror->listed != NULL && i < mirror->listed->len; i++) {
        const LhObject *object = g_ptr_array_index(mirror->listed, i);
        if (object->mod_rev <= mirror->revision &&
            lh_mirror_store_get(&mirror->store, object->kind, object->name) != object)
            return TRUE;
    }
    return FALSE;
}

static void on_retry(gpointer data)
{
    LhMirror *mirror = data;

    mirror->retry = NULL;
    start_list(mirror);
}

/* The pages were large: their memory goes back to the system. */
static void on_trim(gpointer data)
{
    ((LhMirror *)data)->trim = NULL;
    lh_memory_trim();
}

static void on_list_done(const LhEtcdHeader *header, const GError *error, gpointer data)
{
    LhMirror *mirror = data;

    LhEtcdHeader empty = {.revision = mirror->revision, .cluster_id = mirror->cluster_id};

    mirror->list = NULL;
    if (LH_BUG(LIST_ERROR_EMPTY) && error != NULL && mirror->revision != 0) {
        header = &empty;
        error = NULL;
    }
    if (error != NULL) {
        gint64 wait = lh_backoff_ms(mirror->env, mirror->attempts++, RELIST_FIRST_MS,
                                    RELIST_CAP_MS);
        /* Said once, then at every eighth attempt: an outage must not fill the log. */
        if (mirror->attempts % 8 == 1)
            lh_log(LH_LOG_WARNING, "list failed", "prefix", mirror->prefix, "why", error->message,
                   "attempt", lh_fmt("%u", mirror->attempts), "next", "list again", NULL);
        drop_listed(mirror);
        mirror->retry = lh_timer_in(mirror->env, wait, on_retry, mirror);
        return;
    }
    begin_telling(mirror);
    mirror->attempts = 0;
    mirror->heard_ms = lh_mono_ms(mirror->env);
    if (mirror->revision != 0 &&
        (header->revision < mirror->revision || header->cluster_id != mirror->cluster_id ||
         mirror->in_doubt || disagrees(mirror)))
        tell_regressed(mirror, header->revision);
    if (mirror->listed != NULL)
        apply_list(mirror);
    drop_listed(mirror);
    mirror->revision = header->revision;
    mirror->cluster_id = header->cluster_id;
    mirror->in_doubt = FALSE;
    if (!mirror->freed) {
        start_watch(mirror);
        lh_timer_clear(mirror->env, &mirror->trim);
        mirror->trim = lh_timer_in(mirror->env, TRIM_AFTER_MS, on_trim, mirror);
    }
    tell_applied(mirror);
    end_telling(mirror);
}

static const LhListFuncs list_funcs = {
    .restart = on_list_restart,
    .page = on_list_page,
    .done = on_list_done,
};

static void start_list(LhMirror *mirror)
{
    if (mirror->begun)
        collect_pages(mirror);
    mirror->begun = TRUE;
    forget_newest(mirror);
    mirror->list = lh_list_start(mirror->env, mirror->etcd, mirror->prefix, 0, 0, &list_funcs,
                                 mirror);
}

void lh_mirror_set_version(LhMirror *mirror, const char *version)
{
    mirror->trust_progress = lh_etcd_progress_trusted(version);
}

void lh_mirror_set_parser(LhMirror *mirror, LhMirrorParse func, gpointer data)
{
    mirror->parse = func;
    mirror->parse_data = data;
}

void lh_mirror_start(LhMirror *mirror)
{
    g_assert(mirror->list == NULL && mirror->watcher == NULL);
    start_list(mirror);
}

/* ---- observations ---- */

/* While others are being told of a revision, that is told of itself when it is whole. */
static void end_observing(LhMirror *mirror)
{
    if (mirror->busy == 1 && mirror->revision != 0)
        tell_applied(mirror);
    end_telling(mirror);
}

void lh_mirror_observe(LhMirror *mirror, const char *name, const LhObservation *seen)
{
    g_assert(lh_kind_name_valid(LH_KIND_OBSERVATION, name));
    begin_telling(mirror);
    if (seen == NULL) {
        remove_object(mirror, LH_KIND_OBSERVATION, name);
    } else {
        /* As it would be read from a recorded input. */
        g_autofree char *value = lh_object_print(LH_KIND_OBSERVATION, seen);
        put_object(mirror,
                   lh_object_parse(LH_KIND_OBSERVATION, name, value, strlen(value), 0, 0, 0));
    }
    end_observing(mirror);
}

void lh_mirror_observe_begin(LhMirror *mirror)
{
    begin_telling(mirror);
}

void lh_mirror_observe_end(LhMirror *mirror)
{
    end_observing(mirror);
}

void lh_mirror_forget(LhMirror *mirror, const char *controller)
{
    LhNameSet *set = &mirror->store.kinds[LH_KIND_OBSERVATION];
    g_autoptr(GPtrArray) names = g_ptr_array_new_with_free_func(g_free);
    gsize len = strlen(controller);
    const LhObject *object;

    for (gsize at = 0; (object = lh_name_set_next(set, &at)) != NULL;)
        if (strncmp(object->name, controller, len) == 0 && object->name[len] == '/')
            g_ptr_array_add(names, g_strdup(object->name));
    if (names->len == 0)
        return;
    begin_telling(mirror);
    for (guint i = 0; i < names->len && !mirror->freed; i++)
        remove_object(mirror, LH_KIND_OBSERVATION, names->pdata[i]);
    end_observing(mirror);
}

/* ---- replay ---- */

static void load_observation(LhMirror *mirror, const char *name, const char *value, gsize len)
{
    if (value == NULL)
        remove_object(mirror, LH_KIND_OBSERVATION, name);
    else
        put_object(mirror, lh_object_parse(LH_KIND_OBSERVATION, name, value, len, 0, 0, 0));
}

void lh_mirror_load(LhMirror *mirror, const char *key, const char *value, gsize len,
                    gint64 create_rev, gint64 mod_rev, gint64 lease)
{
    const char *observed = lh_kind_info(LH_KIND_OBSERVATION)->prefix;
    g_autofree char *whole = g_strconcat(mirror->prefix, key, NULL);
    LhEtcdEvent event = {
        .is_delete = value == NULL,
        .kv = {.key = whole,
               .key_len = strlen(whole),
               .value = value,
               .value_len = len,
               .create_rev = create_rev,
               .mod_rev = mod_rev,
               .lease = lease},
    };

    if (g_str_has_prefix(key, observed))
        load_observation(mirror, key + strlen(observed), value, len);
    else
        apply_event(mirror, &event);
}

void lh_mirror_loaded(LhMirror *mirror, gint64 revision)
{
    mirror->revision = revision;
    tell_applied(mirror);
}

/* ---- reading ---- */

const char *lh_mirror_prefix(const LhMirror *mirror)
{
    return mirror->prefix;
}

gint64 lh_mirror_revision(const LhMirror *mirror)
{
    return mirror->revision;
}

guint64 lh_mirror_cluster_id(const LhMirror *mirror)
{
    return mirror->cluster_id;
}

gboolean lh_mirror_synced(const LhMirror *mirror)
{
    return mirror->revision != 0 && mirror->open;
}

gint64 lh_mirror_staleness_ms(const LhMirror *mirror)
{
    gint64 heard = mirror->heard_ms;

    if (mirror->watcher != NULL)
        heard = MAX(heard, lh_watcher_last_heard_ms(mirror->watcher));
    if (heard == 0)
        return 0;
    return MAX(0, lh_mono_ms(mirror->env) - heard);
}

/* A part of the first list only to those who are just being told of it. */
static gboolean shows(const LhMirror *mirror)
{
    return mirror->revision != 0 || !mirror->begun || mirror->busy > 0;
}

const LhObject *lh_mirror_get(const LhMirror *mirror, LhKind kind, const char *name)
{
    return shows(mirror) ? lh_mirror_store_get(&mirror->store, kind, name) : NULL;
}

guint lh_mirror_count(const LhMirror *mirror, LhKind kind)
{
    return shows(mirror) ? (guint)mirror->store.kinds[kind].n : 0;
}

guint lh_mirror_invalid(const LhMirror *mirror, LhKind kind)
{
    if (!shows(mirror))
        return 0;
    return kind == LH_N_KINDS ? g_hash_table_size(mirror->store.foreign)
                              : mirror->store.invalid[kind];
}

void lh_mirror_foreach(const LhMirror *mirror, LhKind kind,
                       void (*func)(const LhObject *object, gpointer data), gpointer data)
{
    const LhObject *object;

    if (!shows(mirror))
        return;
    for (gsize at = 0; (object = lh_name_set_next(&mirror->store.kinds[kind], &at)) != NULL;)
        func(object, data);
}

static gint by_name(gconstpointer a, gconstpointer b)
{
    return strcmp((*(LhObject *const *)a)->name, (*(LhObject *const *)b)->name);
}

GPtrArray *lh_mirror_list(const LhMirror *mirror, LhKind kind)
{
    GPtrArray *all = g_ptr_array_new_full(lh_mirror_count(mirror, kind),
                                          (GDestroyNotify)lh_object_unref);
    const LhObject *object;

    for (gsize at = 0;
         shows(mirror) && (object = lh_name_set_next(&mirror->store.kinds[kind], &at)) != NULL;)
        g_ptr_array_add(all, lh_object_ref(object));
    g_ptr_array_sort(all, by_name);
    return all;
}
