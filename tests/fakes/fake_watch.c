/*
 * The server's side of watches: who hears of a commit, and how a watch from the past catches up.
 *
 * A watch is *synced* (hears each commit at once, one reply for each revision) or catches up in
 * rounds of 100 ms, up to 1,000 revisions in a reply whose header says the newest revision, as
 * etcd does it. Watches are found by key, or by prefix when the range is one that ends in '/' or
 * '.'; other ranges are few and walked.
 */
#include "fake_internal.h"

#include <string.h>

#define ROUND_MS        100
#define ROUND_REVISIONS 1000

struct FakeWatch {
    FakeEtcd *server;
    LhEtcdStream *stream;
    char *key, *range_end;
    GHashTable *table; /* where it is filed; NULL: watch_ranges */
    gint64 next_rev;   /* the first revision that it has not heard */
    gboolean synced;
    LhTimer *round_timer;
    GPtrArray *pending; /* events of the open commit */
};

static void watches_free(gpointer list)
{
    g_ptr_array_free(list, TRUE);
}

void fake_watches_init(FakeEtcd *server)
{
    server->watch_keys = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, watches_free);
    server->watch_prefixes = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, watches_free);
    server->watch_ranges = g_ptr_array_new();
    server->touched = g_ptr_array_new();
}

void fake_watches_clear(FakeEtcd *server)
{
    g_hash_table_destroy(server->watch_keys);
    g_hash_table_destroy(server->watch_prefixes);
    g_ptr_array_free(server->watch_ranges, TRUE);
    g_ptr_array_free(server->touched, TRUE);
}

/* ---- messages ---- */

static FakeMessage *message_new(FakeEtcd *server)
{
    FakeMessage *message = g_new0(FakeMessage, 1);
    message->reply.header = fake_header(server);
    return message;
}

/* One reply, in fragments if it is large. */
static void push_events(FakeWatch *watch, GPtrArray *events)
{
    FakeEtcd *server = watch->server;
    guint most = server->options.fragment_events;
    guint done = 0;
    while (done < events->len) {
        guint n = most > 0 ? MIN(most, events->len - done) : events->len;
        FakeMessage *message = message_new(server);
        message->events = g_ptr_array_new_full(n, fake_event_unref);
        for (guint i = 0; i < n; i++) {
            g_ptr_array_add(message->events, fake_event_ref(events->pdata[done + i]));
        }
        done += n;
        message->reply.fragment = done < events->len;
        server->stats.fragments += message->reply.fragment ? 1 : 0;
        server->stats.watch_replies++;
        server->stats.watch_events += n;
        fake_stream_push(watch->stream, message);
    }
}

/* ---- catching up ---- */

static gboolean in_range(const FakeWatch *watch, const char *key)
{
    if (watch->range_end == NULL) {
        return strcmp(key, watch->key) == 0;
    }
    return strcmp(key, watch->key) >= 0 && strcmp(key, watch->range_end) < 0;
}

static void cancel_compacted(FakeWatch *watch)
{
    FakeEtcd *server = watch->server;
    FakeMessage *message = message_new(server);
    message->reply.header = (LhEtcdHeader){
        .cluster_id = server->cluster_id,
        .member_id = server->member_id,
        .raft_term = server->raft_term,
    };
    message->reply.canceled = TRUE;
    message->reply.compact_revision = server->compacted;
    fake_stream_push(watch->stream, message);
}

static void on_round(gpointer data);

static void next_round(FakeWatch *watch)
{
    FakeEtcd *server = watch->server;
    gint64 delay = 1 + (gint64)fake_below(server, ROUND_MS);
    watch->round_timer = lh_timer_in(server->env, delay, on_round, watch);
}

static void on_round(gpointer data)
{
    FakeWatch *watch = data;
    FakeEtcd *server = watch->server;
    watch->round_timer = NULL;
    if (server->frozen) {
        next_round(watch);
        return;
    }
    /* What a restored backup held at its own revision is not known as events any more. */
    gboolean unknown = watch->next_rev <= server->compacted && watch->next_rev < server->log_first;
    if (watch->next_rev < server->compacted || unknown) {
        cancel_compacted(watch);
        return;
    }
    g_autoptr(GPtrArray) events = g_ptr_array_new();
    gint64 last = MIN(server->revision, watch->next_rev + ROUND_REVISIONS - 1);
    for (gint64 r = MAX(watch->next_rev, server->log_first); r <= last; r++) {
        const FakeCommitFull *commit = fake_store_commit_at(server, r);
        for (guint i = 0; i < commit->events->len; i++) {
            FakeEvent *event = commit->events->pdata[i];
            if (in_range(watch, event->key)) {
                g_ptr_array_add(events, event);
            }
        }
    }
    watch->next_rev = last + 1;
    watch->synced = last == server->revision;
    if (!watch->synced) {
        next_round(watch);
    }
    push_events(watch, events);
}

/* ---- filing ---- */

/* Whether the range is exactly that of a prefix that ends in '/' or '.'. */
static gboolean is_prefix_range(const char *key, const char *range_end)
{
    gsize len = strlen(key);
    if (len == 0 || strlen(range_end) != len || (key[len - 1] != '/' && key[len - 1] != '.')) {
        return FALSE;
    }
    return strncmp(key, range_end, len - 1) == 0 && range_end[len - 1] == key[len - 1] + 1;
}

static GPtrArray *file_of(const FakeWatch *watch)
{
    if (watch->table == NULL) {
        return watch->server->watch_ranges;
    }
    GPtrArray *file = g_hash_table_lookup(watch->table, watch->key);
    if (file == NULL) {
        file = g_ptr_array_new();
        g_hash_table_insert(watch->table, g_strdup(watch->key), file);
    }
    return file;
}

FakeWatch *fake_watch_add(FakeEtcd *server, const LhWatchRequest *request, LhEtcdStream *stream)
{
    FakeWatch *watch = g_new0(FakeWatch, 1);
    gboolean single = request->range_end == NULL || request->range_end[0] == '\0';
    watch->server = server;
    watch->stream = stream;
    watch->key = g_strdup(request->key);
    watch->range_end = single ? NULL : g_strdup(request->range_end);
    watch->pending = g_ptr_array_new();
    if (single) {
        watch->table = server->watch_keys;
    } else if (is_prefix_range(watch->key, watch->range_end)) {
        watch->table = server->watch_prefixes;
    }
    g_ptr_array_add(file_of(watch), watch);
    server->stats.watches++;

    FakeMessage *message = message_new(server);
    message->reply.created = TRUE;
    fake_stream_push(stream, message);

    gint64 start = request->start_revision;
    watch->synced = start == 0 || start > server->revision;
    watch->next_rev = start == 0 ? server->revision + 1 : start;
    if (!watch->synced) {
        next_round(watch);
    }
    return watch;
}

void fake_watch_remove(FakeWatch *watch)
{
    GPtrArray *file = file_of(watch);
    g_ptr_array_remove(file, watch);
    if (watch->table != NULL && file->len == 0) {
        g_hash_table_remove(watch->table, watch->key);
    }
    g_ptr_array_remove(watch->server->touched, watch);
    lh_timer_clear(watch->server->env, &watch->round_timer);
    g_ptr_array_free(watch->pending, TRUE);
    g_free(watch->key);
    g_free(watch->range_end);
    g_free(watch);
}

/* Unsynced watches do not answer, as etcd from 3.4.25 and 3.5.8 on; the asker asks again. */
void fake_watch_progress(FakeWatch *watch)
{
    if (watch->synced) {
        FakeMessage *message = message_new(watch->server);
        message->reply.progress = TRUE;
        fake_stream_push(watch->stream, message);
    }
}

/* ---- a commit ---- */

static void note_one(FakeEtcd *server, FakeWatch *watch, FakeEvent *event)
{
    if (!watch->synced || event->event.kv.mod_rev < watch->next_rev) {
        return;
    }
    if (watch->pending->len == 0) {
        g_ptr_array_add(server->touched, watch);
    }
    g_ptr_array_add(watch->pending, event);
}

static void note_file(FakeEtcd *server, GHashTable *table, const char *name, FakeEvent *event)
{
    GPtrArray *file = g_hash_table_lookup(table, name);
    for (guint i = 0; file != NULL && i < file->len; i++) {
        note_one(server, file->pdata[i], event);
    }
}

void fake_watches_note(FakeEtcd *server, FakeEvent *event)
{
    note_file(server, server->watch_keys, event->key, event);
    if (g_hash_table_size(server->watch_prefixes) > 0) {
        g_autofree char *prefix = g_strdup(event->key);
        for (char *at = strpbrk(prefix, "/."); at != NULL; at = strpbrk(at + 1, "/.")) {
            char after = at[1];
            at[1] = '\0';
            note_file(server, server->watch_prefixes, prefix, event);
            at[1] = after;
        }
    }
    for (guint i = 0; i < server->watch_ranges->len; i++) {
        FakeWatch *watch = server->watch_ranges->pdata[i];
        if (in_range(watch, event->key)) {
            note_one(server, watch, event);
        }
    }
}

void fake_watches_flush(FakeEtcd *server, gint64 revision)
{
    for (guint i = 0; i < server->touched->len; i++) {
        FakeWatch *watch = server->touched->pdata[i];
        if (fake_chance(server, server->options.lag_permille * 10)) {
            watch->synced = FALSE; /* it catches up from this revision on */
            watch->next_rev = revision;
            next_round(watch);
        } else {
            push_events(watch, watch->pending);
        }
        g_ptr_array_set_size(watch->pending, 0);
    }
    g_ptr_array_set_size(server->touched, 0);
}
