/*
 * The fake's MVCC store: a balanced tree of keys, each with the chain of its past values; a log of
 * commits by revision for watches; and the history, which compaction and restores leave alone.
 *
 * Compaction walks only the commits that it passes. A key whose newest value is a deletion stays
 * in the tree until its deletion is compacted.
 */
#include "fake_internal.h"

#include <string.h>

FakeEvent *fake_event_ref(FakeEvent *event)
{
    event->refs++;
    return event;
}

void fake_event_unref(gpointer data)
{
    FakeEvent *event = data;
    while (event != NULL && --event->refs == 0) {
        FakeEvent *prev = event->prev;
        g_ref_string_release(event->key);
        g_free(event);
        event = prev;
    }
}

FakeCommitFull *fake_commit_ref(FakeCommitFull *commit)
{
    commit->refs++;
    return commit;
}

void fake_commit_unref(gpointer data)
{
    FakeCommitFull *commit = data;
    if (--commit->refs > 0) {
        return;
    }
    g_ptr_array_free(commit->events, TRUE);
    g_ptr_array_free(commit->prevs, TRUE);
    g_free(commit->compares);
    g_free(commit->compares_text);
    g_free(commit->client);
    g_free(commit);
}

static void key_free(gpointer data)
{
    FakeKey *key = data;
    fake_event_unref(key->newest);
    g_ref_string_release(key->key);
    g_free(key);
}

static int compare_keys(gconstpointer a, gconstpointer b, gpointer unused)
{
    (void)unused;
    return strcmp(a, b);
}

static GTree *tree_new(void)
{
    return g_tree_new_full(compare_keys, NULL, NULL, key_free);
}

void fake_store_init(FakeEtcd *server)
{
    server->keys = tree_new();
    server->log = g_ptr_array_new();
    server->history = g_ptr_array_new_with_free_func(fake_commit_unref);
    server->revision = 1;
    server->log_first = 2;
}

static void log_clear(FakeEtcd *server)
{
    for (gsize i = server->log_skip; i < server->log->len; i++) {
        fake_commit_unref(server->log->pdata[i]);
    }
    g_ptr_array_set_size(server->log, 0);
    server->log_skip = 0;
}

void fake_store_clear(FakeEtcd *server)
{
    log_clear(server);
    g_ptr_array_free(server->log, TRUE);
    g_ptr_array_free(server->history, TRUE);
    g_tree_destroy(server->keys);
}

/* ---- one commit ---- */

void fake_store_begin(FakeEtcd *server, FakeCause cause, const char *client)
{
    FakeCommitFull *commit = g_new0(FakeCommitFull, 1);
    g_assert(server->open == NULL);
    commit->refs = 1;
    commit->events = g_ptr_array_new_with_free_func(fake_event_unref);
    commit->prevs = g_ptr_array_new_with_free_func(fake_event_unref);
    commit->client = g_strdup(client);
    commit->pub.client = commit->client;
    commit->pub.cause = cause;
    commit->pub.revision = server->revision + 1;
    commit->pub.timeline = server->timeline;
    commit->pub.time_ms = lh_mono_ms(server->env);
    server->open = commit;
}

/* Takes over the reference of the caller. */
static void add_event(FakeEtcd *server, FakeKey *key, FakeEvent *event)
{
    FakeCommitFull *commit = server->open;
    g_ptr_array_add(commit->prevs, key->newest != NULL ? fake_event_ref(key->newest) : NULL);
    g_ptr_array_add(commit->events, fake_event_ref(event));
    event->prev = key->newest;
    key->newest = event;
    server->db_bytes += (gint64)(event->event.kv.key_len + event->event.kv.value_len) + 64;
    fake_watches_note(server, event);
}

static FakeEvent *event_new(FakeEtcd *server, FakeKey *key, const char *value, gsize value_len)
{
    FakeEvent *event = g_malloc0(sizeof(FakeEvent) + value_len + 1);
    LhKv *kv = &event->event.kv;
    event->refs = 1;
    event->key = g_ref_string_acquire(key->key);
    if (value_len > 0) {
        memcpy(event->value, value, value_len);
    }
    kv->key = event->key;
    kv->key_len = g_ref_string_length(event->key);
    kv->value = event->value;
    kv->value_len = value_len;
    kv->mod_rev = server->open->pub.revision;
    return event;
}

static gboolean is_live(const FakeEvent *event)
{
    return event != NULL && !event->event.is_delete;
}

void fake_store_put(FakeEtcd *server, const char *name, const char *value, gsize value_len,
                    gint64 lease)
{
    FakeKey *key = g_tree_lookup(server->keys, name);
    if (key == NULL) {
        key = g_new0(FakeKey, 1);
        key->key = g_ref_string_new(name);
        g_tree_insert(server->keys, key->key, key);
    }
    FakeEvent *event = event_new(server, key, value, value_len);
    LhKv *kv = &event->event.kv;
    kv->lease = lease;
    if (is_live(key->newest)) {
        const LhKv *old = &key->newest->event.kv;
        kv->create_rev = old->create_rev;
        kv->version = old->version + 1;
        if (old->lease != lease) {
            fake_lease_detach(server, old->lease, name);
        }
    } else {
        kv->create_rev = kv->mod_rev;
        kv->version = 1;
    }
    add_event(server, key, event);
    fake_lease_attach(server, lease, key->key);
}

static gboolean collect(FakeEvent *event, gpointer data)
{
    g_ptr_array_add(data, event);
    return FALSE;
}

gint64 fake_store_delete(FakeEtcd *server, const char *name, const char *range_end)
{
    g_autoptr(GPtrArray) victims = g_ptr_array_new();
    fake_store_visit(server, name, range_end, 0, collect, victims);
    for (guint i = 0; i < victims->len; i++) {
        FakeEvent *old = victims->pdata[i];
        FakeKey *key = g_tree_lookup(server->keys, old->key);
        FakeEvent *event = event_new(server, key, NULL, 0);
        event->event.is_delete = TRUE;
        fake_lease_detach(server, old->event.kv.lease, old->key);
        add_event(server, key, event);
    }
    return victims->len;
}

gboolean fake_store_end(FakeEtcd *server)
{
    FakeCommitFull *commit = g_steal_pointer(&server->open);
    commit->pub.n_events = commit->events->len;
    if (commit->events->len == 0) {
        fake_commit_unref(commit);
        return FALSE;
    }
    server->revision = commit->pub.revision;
    g_ptr_array_add(server->log, commit);
    g_ptr_array_add(server->history, fake_commit_ref(commit));
    if (server->on_commit != NULL) {
        server->on_commit(&commit->pub, server->on_commit_data);
    }
    fake_watches_flush(server, commit->pub.revision);
    gint64 keep = server->options.auto_compact_revisions;
    if (keep > 0 && server->revision - server->compacted > 2 * keep) {
        fake_etcd_compact(server, server->revision - keep);
    }
    return TRUE;
}

/* ---- reading ---- */

static FakeEvent *value_at(const FakeKey *key, gint64 revision)
{
    FakeEvent *event = key->newest;
    while (event != NULL && revision > 0 && event->event.kv.mod_rev > revision) {
        event = event->prev;
    }
    return is_live(event) ? event : NULL;
}

FakeEvent *fake_store_get(FakeEtcd *server, const char *name, gint64 revision)
{
    FakeKey *key = g_tree_lookup(server->keys, name);
    return key != NULL ? value_at(key, revision) : NULL;
}

void fake_store_visit(FakeEtcd *server, const char *name, const char *range_end, gint64 revision,
                      FakeVisit func, gpointer data)
{
    if (range_end == NULL || range_end[0] == '\0') {
        FakeEvent *event = fake_store_get(server, name, revision);
        if (event != NULL) {
            func(event, data);
        }
        return;
    }
    GTreeNode *node = g_tree_lower_bound(server->keys, name);
    for (; node != NULL; node = g_tree_node_next(node)) {
        const FakeKey *key = g_tree_node_value(node);
        if (strcmp(key->key, range_end) >= 0) {
            return;
        }
        FakeEvent *event = value_at(key, revision);
        if (event != NULL && func(event, data)) {
            return;
        }
    }
}

FakeCommitFull *fake_store_commit_at(FakeEtcd *server, gint64 revision)
{
    gsize i = server->log_skip + (gsize)(revision - server->log_first);
    g_assert(revision >= server->log_first && i < server->log->len);
    return server->log->pdata[i];
}

/* ---- compaction ---- */

static void pass_commit(FakeEtcd *server, const FakeCommitFull *commit)
{
    for (guint i = 0; i < commit->events->len; i++) {
        FakeEvent *event = commit->events->pdata[i];
        FakeKey *key;
        if (event->prev != NULL) {
            const LhKv *prev = &event->prev->event.kv;
            server->db_bytes -= (gint64)(prev->key_len + prev->value_len) + 64;
            fake_event_unref(g_steal_pointer(&event->prev));
        }
        if (event->event.is_delete && (key = g_tree_lookup(server->keys, event->key)) != NULL &&
            key->newest == event) {
            g_tree_remove(server->keys, key->key);
        }
    }
}

gboolean fake_etcd_compact(FakeEtcd *server, gint64 revision)
{
    if (revision <= server->compacted || revision > server->revision) {
        return FALSE;
    }
    for (gint64 r = MAX(server->compacted + 1, server->log_first); r <= revision; r++) {
        pass_commit(server, fake_store_commit_at(server, r));
    }
    /* A watch from the compaction revision itself may start: that commit stays. */
    while (server->log_first < revision) {
        fake_commit_unref(server->log->pdata[server->log_skip]);
        server->log->pdata[server->log_skip++] = NULL;
        server->log_first++;
    }
    if (server->log_skip > 1024 && server->log_skip > server->log->len / 2) {
        g_ptr_array_remove_range(server->log, 0, (guint)server->log_skip);
        server->log_skip = 0;
    }
    server->compacted = revision;
    server->stats.compactions++;
    return TRUE;
}

/* ---- backup and restore ---- */

typedef struct {
    gint64 id, ttl_s;
} SavedLease;

struct FakeEtcdBackup {
    gint64 revision;
    GPtrArray *events; /* the live ones */
    GArray *leases;    /* SavedLease */
};

static int compare_saved(gconstpointer a, gconstpointer b)
{
    gint64 x = ((const SavedLease *)a)->id;
    gint64 y = ((const SavedLease *)b)->id;
    return (x > y) - (x < y);
}

static gboolean collect_ref(FakeEvent *event, gpointer data)
{
    g_ptr_array_add(data, fake_event_ref(event));
    return FALSE;
}

FakeEtcdBackup *fake_etcd_backup(FakeEtcd *server)
{
    FakeEtcdBackup *backup = g_new0(FakeEtcdBackup, 1);
    GHashTableIter iter;
    gpointer lease;
    backup->revision = server->revision;
    backup->events = g_ptr_array_new_with_free_func(fake_event_unref);
    backup->leases = g_array_new(FALSE, FALSE, sizeof(SavedLease));
    fake_store_visit(server, "", "\xff", 0, collect_ref, backup->events);
    g_hash_table_iter_init(&iter, server->leases);
    while (g_hash_table_iter_next(&iter, NULL, &lease)) {
        SavedLease saved = {((FakeLease *)lease)->id, ((FakeLease *)lease)->ttl_s};
        g_array_append_val(backup->leases, saved);
    }
    g_array_sort(backup->leases, compare_saved);
    return backup;
}

void fake_etcd_backup_free(FakeEtcdBackup *backup)
{
    if (backup != NULL) {
        g_ptr_array_free(backup->events, TRUE);
        g_array_free(backup->leases, TRUE);
        g_free(backup);
    }
}

void fake_etcd_restore(FakeEtcd *server, const FakeEtcdBackup *backup)
{
    fake_etcd_stop(server);
    g_tree_destroy(server->keys);
    server->keys = tree_new();
    log_clear(server);
    fake_leases_clear(server);
    fake_leases_init(server);
    server->timeline++;
    server->revision = server->compacted = backup->revision;
    server->log_first = backup->revision + 1;
    for (guint i = 0; i < backup->leases->len; i++) {
        SavedLease *saved = &g_array_index(backup->leases, SavedLease, i);
        fake_lease_grant(server, saved->id, saved->ttl_s);
    }
    for (guint i = 0; i < backup->events->len; i++) {
        FakeKey *key = g_new0(FakeKey, 1);
        key->newest = fake_event_ref(backup->events->pdata[i]);
        key->key = g_ref_string_acquire(key->newest->key);
        g_tree_insert(server->keys, key->key, key);
        fake_lease_attach(server, key->newest->event.kv.lease, key->key);
    }
    server->raft_term = 1; /* start() elects */
    fake_etcd_start(server);
}
