/*
 * The watch that survives: opens streams one after the other, each at the revision after the last one
 * that was delivered whole.
 *
 * The cursor moves only when a revision is complete: with the last event of a reply that is no
 * fragment, with the first event of the next revision, or (only if trust_progress) with a progress
 * reply. A reply's header revision is never taken for it: while a watch catches up, etcd sends the
 * store's present revision with events that are far behind.
 *
 * A resumed watch must be one of the same history. An etcd that was restored from a backup keeps its
 * cluster id, and its revision may have passed the cursor by the time of the resumption. So the witnesses,
 * the last event of each of the last revisions that were delivered, are looked up at their own revisions
 * before anything more is delivered. One is not enough, and its mod revision neither: what is written again
 * and again is easily written at the same revision in two histories. And a watch resumes after the last
 * event, not after a progress that moved the cursor further: there the other history may have events.
 */
#include "etcd/watcher.h"

#include "base/errors.h"
#include "base/log.h"
#include "base/planted.h"
#include "etcd/arena.h"

#include <string.h>

#define DEFAULT_PROGRESS_MS 5000
#define BACKOFF_FIRST_MS    100
#define BACKOFF_CAP_MS      5000
#define VERIFY_DEADLINE_MS  5000
/* Of one revision in fragments; etcd writes at most 1.5 MiB in a revision, but can delete any number
 * of keys in one. */
#define MAX_JOINED_BYTES (256 * 1024 * 1024)

#define N_WITNESSES 3

typedef enum { W_OPENING, W_OPEN, W_BACKOFF, W_STOPPED, N_W_STATES } State;

static const struct {
    const char *name;
    guint next; /* bit set of State */
} states[N_W_STATES] = {
    [W_OPENING] = {"opening", 1 << W_OPEN | 1 << W_BACKOFF | 1 << W_STOPPED},
    [W_OPEN] = {"open", 1 << W_BACKOFF | 1 << W_STOPPED},
    [W_BACKOFF] = {"backoff", 1 << W_OPENING | 1 << W_STOPPED},
    [W_STOPPED] = {"stopped", 0},
};

/* An event that was delivered. */
typedef struct {
    char *key;
    gint64 rev;
    gboolean gone; /* it was a deletion */
    guint64 content;
} Witness;

struct LhWatcher {
    LhEnv *env;
    LhEtcd *etcd;
    char *key, *range_end;
    guint64 cluster_id;
    gint64 progress_ms;
    gboolean trust_progress;
    LhWatcherFuncs funcs;
    gpointer data;

    State state;
    gint64 cursor; /* the next revision to come; 0: not known yet */
    gint64 resume; /* … after the last event: where a stream begins */
    gint64 last_heard_ms;
    guint attempt;
    gboolean asked; /* for progress, and nothing heard since */
    LhEtcdStream *stream;
    LhTimer *check; /* progress */
    LhTimer *retry;
    LhCallId verify; /* the read that tells a lagging member from a store that went back */

    Witness witnesses[N_WITNESSES]; /* the newest first */
    guint n_witnesses;
    gboolean listed;  /* nothing delivered since the list; its witness may be of any age */
    guint streams;    /* that etcd has confirmed */
    gboolean proving; /* open, but nothing is delivered before the proof */
    LhCallId proof;   /* the read of witness `proved` at `proof_rev` */
    guint proved;
    gint64 proof_rev;
    GPtrArray *behind; /* Reply: they came before the proof was complete */
    gsize behind_bytes;

    /* Fragments of one revision that is not complete. */
    GArray *pending; /* of LhEtcdEvent, their bytes in the arena */
    LhArena arena;
    gsize pending_bytes;

    guint busy; /* callbacks on the stack */
    gboolean freed;
};

/* A reply that is kept. */
typedef struct {
    LhWatchReply reply;
    GArray *events; /* LhEtcdEvent, their bytes in the arena */
    LhArena arena;
} Reply;

static void open_stream(LhWatcher *watcher);
static void prove(LhWatcher *watcher);

static void reply_free(gpointer data)
{
    Reply *reply = data;
    g_array_unref(reply->events);
    lh_arena_clear(&reply->arena);
    g_free(reply);
}

static void set_state(LhWatcher *watcher, State state)
{
    g_assert(states[watcher->state].next & 1u << state);
    watcher->state = state;
}

static void forget_pending(LhWatcher *watcher)
{
    g_array_set_size(watcher->pending, 0);
    lh_arena_clear(&watcher->arena);
    watcher->pending_bytes = 0;
}

static void close_stream(LhWatcher *watcher)
{
    if (watcher->stream != NULL)
        watcher->etcd->v->watch_close(watcher->etcd, watcher->stream);
    watcher->stream = NULL;
    lh_timer_clear(watcher->env, &watcher->check);
    lh_etcd_cancel(watcher->etcd, &watcher->verify);
    lh_etcd_cancel(watcher->etcd, &watcher->proof);
    g_ptr_array_set_size(watcher->behind, 0);
    watcher->behind_bytes = 0;
    watcher->proving = FALSE;
    forget_pending(watcher);
}

static void destroy(LhWatcher *watcher)
{
    close_stream(watcher);
    lh_timer_clear(watcher->env, &watcher->retry);
    g_array_unref(watcher->pending);
    g_ptr_array_unref(watcher->behind);
    for (guint i = 0; i < watcher->n_witnesses; i++)
        g_free(watcher->witnesses[i].key);
    g_free(watcher->key);
    g_free(watcher->range_end);
    g_free(watcher);
}

/* Around each callback, which may free the watcher. FALSE: it has, or it has stopped; return. */
static void enter(LhWatcher *watcher)
{
    watcher->busy++;
}

static gboolean leave(LhWatcher *watcher)
{
    watcher->busy--;
    if (watcher->freed) {
        if (watcher->busy == 0)
            destroy(watcher);
        return FALSE;
    }
    return watcher->state != W_STOPPED;
}

/* The last thing that its caller does. */
static void stop(LhWatcher *watcher, gint64 compact_revision)
{
    set_state(watcher, W_STOPPED);
    close_stream(watcher);
    enter(watcher);
    watcher->funcs.lost(compact_revision, watcher->data);
    leave(watcher);
}

static void on_retry(gpointer data)
{
    LhWatcher *watcher = data;
    watcher->retry = NULL;
    set_state(watcher, W_OPENING);
    open_stream(watcher);
}

/* The last thing that its caller does. */
static void interrupt(LhWatcher *watcher, const GError *error)
{
    set_state(watcher, W_BACKOFF);
    close_stream(watcher);
    gint64 delay_ms = lh_backoff_ms(watcher->env, watcher->attempt, BACKOFF_FIRST_MS,
                                    BACKOFF_CAP_MS);
    watcher->attempt++;
    watcher->retry = lh_timer_in(watcher->env, delay_ms, on_retry, watcher);
    enter(watcher);
    if (watcher->funcs.interrupted != NULL)
        watcher->funcs.interrupted(error, watcher->data);
    leave(watcher);
}

static void interrupt_new(LhWatcher *watcher, const char *what, const char *detail)
{
    g_autoptr(GError) error = g_error_new(LH_ERROR, LH_ERR_UNAVAILABLE,
                                          "watch of %s: %s%s; next revision %" G_GINT64_FORMAT,
                                          watcher->key, what, detail, watcher->cursor);
    interrupt(watcher, error);
}

static void on_check(gpointer data)
{
    LhWatcher *watcher = data;
    watcher->check = NULL;
    gint64 now_ms = lh_mono_ms(watcher->env);
    gint64 due_ms = watcher->last_heard_ms + watcher->progress_ms;
    if (!watcher->asked && now_ms < due_ms) {
        watcher->check = lh_timer_at(watcher->env, due_ms, on_check, watcher);
        return;
    }
    if (watcher->asked) {
        interrupt_new(watcher, "no answer to a progress request", "");
        return;
    }
    watcher->asked = TRUE;
    watcher->etcd->v->watch_progress(watcher->etcd, watcher->stream);
    watcher->check = lh_timer_in(watcher->env, watcher->progress_ms, on_check, watcher);
}

guint64 lh_watcher_content(const LhKv *kv)
{
    static const guint64 prime = G_GUINT64_CONSTANT(0x100000001b3); /* FNV-1a */
    guint64 hash = G_GUINT64_CONSTANT(0xcbf29ce484222325);
    const gint64 numbers[] = {kv->create_rev, kv->version, kv->lease};
    for (gsize i = 0; i < G_N_ELEMENTS(numbers); i++)
        hash = (hash ^ (guint64)numbers[i]) * prime;
    for (gsize i = 0; i < kv->value_len; i++)
        hash = (hash ^ (guint8)kv->value[i]) * prime;
    return hash;
}

static void push_witness(LhWatcher *watcher, const LhEtcdEvent *event)
{
    if (watcher->n_witnesses == N_WITNESSES)
        g_free(watcher->witnesses[--watcher->n_witnesses].key);
    memmove(&watcher->witnesses[1], &watcher->witnesses[0],
            watcher->n_witnesses++ * sizeof(Witness));
    watcher->witnesses[0] = (Witness){
        .key = g_strndup(event->kv.key, event->kv.key_len),
        .rev = event->kv.mod_rev,
        .gone = event->is_delete,
        .content = event->is_delete ? 0 : lh_watcher_content(&event->kv),
    };
}

/* Of whole revisions: the last event of each of the last ones. A key that holds a NUL cannot be asked for;
 * then an older one stays a witness. */
static void remember_witnesses(LhWatcher *watcher, const LhEtcdEvent *events, gsize n)
{
    gsize last[N_WITNESSES];
    guint found = 0;
    for (gsize i = n; i-- > 0 && found < N_WITNESSES;)
        if ((found == 0 || events[last[found - 1]].kv.mod_rev != events[i].kv.mod_rev) &&
            memchr(events[i].kv.key, 0, events[i].kv.key_len) == NULL)
            last[found++] = i;
    if (watcher->listed && watcher->n_witnesses > 0)
        g_free(watcher->witnesses[--watcher->n_witnesses].key);
    watcher->listed = FALSE;
    while (found-- > 0)
        push_witness(watcher, &events[last[found]]);
}

/* TRUE: goes on. */
static gboolean deliver(LhWatcher *watcher, const LhEtcdEvent *events, gsize n, gint64 revision)
{
    watcher->cursor = revision + 1;
    if (n > 0) {
        watcher->resume = watcher->cursor;
        remember_witnesses(watcher, events, n);
    }
    enter(watcher);
    watcher->funcs.events(events, n, revision, watcher->data);
    return leave(watcher);
}

/* TRUE: within the limit. */
static gboolean keep(LhWatcher *watcher, const LhEtcdEvent *events, gsize n)
{
    for (gsize i = 0; i < n; i++) {
        LhEtcdEvent event = events[i];
        event.kv.key = lh_arena_copy(&watcher->arena, event.kv.key, event.kv.key_len);
        event.kv.value = lh_arena_copy(&watcher->arena, event.kv.value, event.kv.value_len);
        watcher->pending_bytes += sizeof event + event.kv.key_len + event.kv.value_len;
        g_array_append_val(watcher->pending, event);
    }
    return watcher->pending_bytes <= MAX_JOINED_BYTES;
}

/* The pending revision is complete. Its memory moves out of the way: the callback may free us. */
static gboolean deliver_pending(LhWatcher *watcher)
{
    g_autoptr(GArray) pending = g_steal_pointer(&watcher->pending);
    LhArena arena = watcher->arena;
    watcher->pending = g_array_new(FALSE, FALSE, sizeof(LhEtcdEvent));
    watcher->arena = (LhArena){0};
    watcher->pending_bytes = 0;
    const LhEtcdEvent *events = &g_array_index(pending, LhEtcdEvent, 0);
    gboolean goes_on = deliver(watcher, events, pending->len, events[0].kv.mod_rev);
    lh_arena_clear(&arena);
    return goes_on;
}

/* Whole revisions go out at once, what may be incomplete is kept. Everything within etcd's reply is in
 * order of revision, over the fragments too. */
static void take_events(LhWatcher *watcher, const LhEtcdEvent *events, gsize n, gboolean fragment)
{
    /* etcd before 3.4.38/3.5.22 sends events that are older than the start asked for. */
    while (n > 0 && events[0].kv.mod_rev < watcher->resume) {
        events++;
        n--;
    }
    if (n > 0 && events[0].kv.mod_rev < watcher->cursor) {
        stop(watcher,
             watcher->cursor); /* where progress said that there is none: a list is right */
        return;
    }
    if (watcher->pending->len > 0 && n > 0) {
        gint64 revision = g_array_index(watcher->pending, LhEtcdEvent, 0).kv.mod_rev;
        gsize same = 0;
        while (same < n && events[same].kv.mod_rev == revision)
            same++;
        if (!keep(watcher, events, same)) {
            stop(watcher, revision);
            return;
        }
        if ((same < n || !fragment) && !deliver_pending(watcher))
            return;
        events += same;
        n -= same;
    }
    gsize whole = n;
    fragment = fragment && !LH_BUG(TORN_REVISION);
    while (fragment && whole > 0 && events[whole - 1].kv.mod_rev == events[n - 1].kv.mod_rev)
        whole--;
    if (whole > 0 && !deliver(watcher, events, whole, events[whole - 1].kv.mod_rev))
        return;
    if (whole < n && !keep(watcher, events + whole, n - whole))
        stop(watcher, events[whole].kv.mod_rev);
}

static void on_verified(const LhRangeReply *reply, const GError *error, gpointer data)
{
    LhWatcher *watcher = data;
    watcher->verify = 0;
    if (error != NULL) {
        interrupt(watcher, error);
        return;
    }
    gboolean other = watcher->cluster_id != 0 && reply->header.cluster_id != watcher->cluster_id;
    if (other || reply->header.revision + 1 < watcher->cursor)
        stop(watcher, 0);
    else if (watcher
                 ->proving) /* a member that lagged, or one that has caught up in another history */
        prove(watcher);
}

/* A watch is served from the member's own store: a revision before the cursor is either a member that
 * lags, which passes, or a cluster that was restored. A linearizable read tells which. */
static void verify_revision(LhWatcher *watcher)
{
    LhRangeRequest request = {.key = watcher->key, .limit = 1, .keys_only = TRUE};
    watcher->verify = watcher->etcd->v->range(watcher->etcd, &request, VERIFY_DEADLINE_MS,
                                              on_verified, watcher);
}

static void on_progress(LhWatcher *watcher, gint64 revision)
{
    if (!watcher->trust_progress || watcher->pending->len > 0 || revision < watcher->cursor)
        return;
    deliver(watcher, NULL, 0, revision);
}

/* ---- the proof that the history is the same ---- */

static void take_reply(LhWatcher *watcher, const LhWatchReply *reply)
{
    watcher->attempt = 0;
    if (reply->n_events > 0)
        take_events(watcher, reply->events, reply->n_events, reply->fragment);
    else if (reply->progress)
        on_progress(watcher, reply->header.revision);
}

/* Until the proof is there. */
static void keep_reply(LhWatcher *watcher, const LhWatchReply *reply)
{
    Reply *kept = g_new0(Reply, 1);
    kept->reply = *reply;
    kept->events = g_array_new(FALSE, FALSE, sizeof(LhEtcdEvent));
    g_ptr_array_add(watcher->behind, kept);
    for (gsize i = 0; i < reply->n_events; i++) {
        LhEtcdEvent event = reply->events[i];
        event.kv.key = lh_arena_copy(&kept->arena, event.kv.key, event.kv.key_len);
        event.kv.value = lh_arena_copy(&kept->arena, event.kv.value, event.kv.value_len);
        watcher->behind_bytes += sizeof event + event.kv.key_len + event.kv.value_len;
        g_array_append_val(kept->events, event);
    }
    kept->reply.events = (gpointer)kept->events->data;
    kept->reply.reason = NULL;
    if (watcher->behind_bytes > MAX_JOINED_BYTES)
        stop(watcher, watcher->cursor);
}

/* The callbacks may stop or free the watcher, and with it what is behind. */
static void go_on(LhWatcher *watcher)
{
    g_autoptr(GPtrArray) behind = g_steal_pointer(&watcher->behind);
    watcher->behind = g_ptr_array_new_with_free_func(reply_free);
    watcher->behind_bytes = 0;
    watcher->proving = FALSE;
    enter(watcher);
    watcher->funcs.opened(watcher->data);
    for (guint i = 0; i < behind->len && !watcher->freed && watcher->state == W_OPEN; i++)
        take_reply(watcher, &((Reply *)g_ptr_array_index(behind, i))->reply);
    leave(watcher);
}

static void read_witness(LhWatcher *watcher, gint64 revision);

/* The one that was just read was as it was delivered. */
static void next_witness(LhWatcher *watcher)
{
    if (++watcher->proved < watcher->n_witnesses)
        read_witness(watcher, watcher->witnesses[watcher->proved].rev);
    else
        go_on(watcher);
}

static gboolean is_witness(const Witness *witness, const LhKv *kv, gboolean at_end)
{
    if (witness->gone)
        return (kv != NULL) != at_end; /* deleted then, and not before */
    return kv != NULL && kv->mod_rev == witness->rev && lh_watcher_content(kv) == witness->content;
}

/* Of the witnesses that were read, all as they were delivered. */
static gboolean has_proved_a_put(const LhWatcher *watcher)
{
    for (guint i = 0; i < watcher->proved; i++)
        if (!watcher->witnesses[i].gone)
            return TRUE;
    return FALSE;
}

static void on_witness(const LhRangeReply *reply, const GError *error, gpointer data)
{
    LhWatcher *watcher = data;
    const Witness *witness = &watcher->witnesses[watcher->proved];
    watcher->proof = 0;
    if (error != NULL && g_error_matches(error, LH_ERROR, LH_ERR_COMPACTED)) {
        if ((watcher->listed && watcher->streams == 1) || has_proved_a_put(watcher))
            go_on(
                watcher); /* another list would show the same; or the newer ones are what is left */
        else
            stop(watcher, witness->rev); /* it cannot be told: a list is right in any case */
        return;
    }
    if (error != NULL) {
        interrupt(watcher, error);
        return;
    }
    gboolean at_end = watcher->proof_rev == witness->rev;
    if (!is_witness(witness, reply->n_kvs == 1 ? &reply->kvs[0] : NULL, at_end))
        stop(watcher, 0);
    else if (witness->gone && at_end)
        read_witness(watcher, witness->rev - 1);
    else
        next_witness(watcher);
}

static void read_witness(LhWatcher *watcher, gint64 revision)
{
    const Witness *witness = &watcher->witnesses[watcher->proved];
    LhRangeRequest request = {
        .key = witness->key, .revision = revision, .limit = 1, .keys_only = witness->gone};
    watcher->proof_rev = revision;
    watcher->proof = watcher->etcd->v->range(watcher->etcd, &request, VERIFY_DEADLINE_MS,
                                             on_witness, watcher);
}

static void prove(LhWatcher *watcher)
{
    watcher->proved = 0;
    read_witness(watcher, watcher->witnesses[0].rev);
}

/* A list tells nothing of what was deleted last: its witness is older than its revision. While the stream
 * was away, another history may have come that has the witness and not those deletions. And deletions alone
 * are no proof: nothing is known of what they deleted. */
static gboolean may_be_another(const LhWatcher *watcher)
{
    guint puts = 0;
    for (guint i = 0; i < watcher->n_witnesses; i++)
        puts += !watcher->witnesses[i].gone;
    if (watcher->listed)
        return puts == 0 || watcher->witnesses[0].rev + 1 < watcher->cursor;
    return puts == 0 && watcher->n_witnesses > 0;
}

static void on_created(LhWatcher *watcher, const LhWatchReply *reply)
{
    set_state(watcher, W_OPEN);
    watcher->streams++;
    if (watcher->streams > 1 && may_be_another(watcher)) {
        stop(watcher, watcher->cursor); /* it cannot be told: a list is right in any case */
        return;
    }
    if (watcher->cursor == 0)
        watcher->cursor = watcher->resume = reply->header.revision + 1;
    gboolean behind = reply->header.revision + 1 < watcher->cursor;
    watcher->proving = watcher->n_witnesses > 0 && watcher->witnesses[0].rev < watcher->cursor;
    if (behind)
        verify_revision(watcher);
    else if (watcher->proving)
        prove(watcher);
    if (watcher->proving)
        return;
    enter(watcher);
    watcher->funcs.opened(watcher->data);
    leave(watcher);
}

static void on_canceled(LhWatcher *watcher, const LhWatchReply *reply)
{
    if (reply->compact_revision != 0)
        stop(watcher, reply->compact_revision);
    else
        interrupt_new(watcher, "canceled by etcd: ", reply->reason != NULL ? reply->reason : "");
}

static void on_reply(const LhWatchReply *reply, gpointer data)
{
    LhWatcher *watcher = data;
    watcher->last_heard_ms = lh_mono_ms(watcher->env);
    watcher->asked = FALSE;
    if (watcher->cluster_id != 0 && reply->header.cluster_id != watcher->cluster_id) {
        stop(watcher, 0);
        return;
    }
    if (reply->canceled) {
        on_canceled(watcher, reply);
    } else if (reply->created) {
        if (watcher->state == W_OPENING)
            on_created(watcher, reply);
    } else if (watcher->proving) {
        keep_reply(watcher, reply);
    } else {
        take_reply(watcher, reply);
    }
}

static void on_closed(const GError *error, gpointer data)
{
    LhWatcher *watcher = data;
    watcher->stream = NULL;
    interrupt(watcher, error);
}

static void open_stream(LhWatcher *watcher)
{
    LhWatchRequest request = {
        .key = watcher->key, .range_end = watcher->range_end, .start_revision = watcher->resume};
    if (LH_BUG(WATCH_SKIPS_ONE) && watcher->attempt > 0 && watcher->resume > 0)
        request.start_revision++;
    watcher->asked = FALSE;
    watcher->stream = watcher->etcd->v->watch(watcher->etcd, &request, on_reply, on_closed,
                                              watcher);
    watcher->check = lh_timer_in(watcher->env, watcher->progress_ms, on_check, watcher);
}

LhWatcher *lh_watcher_start(LhEnv *env, LhEtcd *etcd, const LhWatcherOptions *options,
                            const LhWatcherFuncs *funcs, gpointer data)
{
    LhWatcher *watcher = g_new0(LhWatcher, 1);
    watcher->env = env;
    watcher->etcd = etcd;
    watcher->key = g_strdup(options->key);
    watcher->range_end = g_strdup(options->range_end);
    watcher->cursor = watcher->resume = options->start_revision;
    watcher->cluster_id = options->cluster_id;
    watcher->listed = options->listed;
    if (options->witness != NULL)
        watcher->witnesses[watcher->n_witnesses++] = (Witness){
            .key = g_strdup(options->witness),
            .rev = options->witness_rev,
            .content = options->witness_content,
        };
    watcher->progress_ms = options->progress_ms > 0 ? options->progress_ms : DEFAULT_PROGRESS_MS;
    watcher->trust_progress = options->trust_progress;
    watcher->funcs = *funcs;
    watcher->data = data;
    watcher->state = W_OPENING;
    watcher->last_heard_ms = lh_mono_ms(env);
    watcher->pending = g_array_new(FALSE, FALSE, sizeof(LhEtcdEvent));
    watcher->behind = g_ptr_array_new_with_free_func(reply_free);
    open_stream(watcher);
    return watcher;
}

gint64 lh_watcher_last_heard_ms(const LhWatcher *watcher)
{
    return watcher->last_heard_ms;
}

void lh_watcher_free(LhWatcher *watcher)
{
    if (watcher == NULL)
        return;
    if (watcher->busy == 0) {
        destroy(watcher);
        return;
    }
    watcher->freed = TRUE;
    if (watcher->state != W_STOPPED)
        set_state(watcher, W_STOPPED);
    close_stream(watcher);
    lh_timer_clear(watcher->env, &watcher->retry);
}
