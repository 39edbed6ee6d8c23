/*
 * A watch that survives: it resumes after every closed stream at the revision after the last one that
 * was delivered whole, joins fragments, delivers each revision at once, and checks progress itself: with
 * nothing heard for progress_ms it asks, and with no answer for as long again it opens a new stream.
 * Loop thread. Backoff with jitter, 100 ms to 5 s. A revision before the cursor is checked with a
 * linearizable read before it is called "went back": a member that lags shows one too. And a watch that
 * resumes first reads the last events' keys at their revisions: in another history they are not there, or
 * hold something else.
 */
#pragma once

#include "base/env.h"
#include "etcd/etcd.h"

typedef struct LhWatcher LhWatcher;

typedef struct {
    /* The stream is open (each time it has been opened anew): what is written from now on is heard. */
    void (*opened)(gpointer data);
    /* All events of one or several whole revisions, in order. @revision: the last revision that is now
     * complete: everything up to it has been delivered. @n is 0 for progress, which is reported only
     * with trust_progress. */
    void (*events)(const LhEtcdEvent *events, gsize n, gint64 revision, gpointer data);
    /* The stream was lost, @error says how; it is being opened again. May be NULL. */
    void (*interrupted)(const GError *error, gpointer data);
    /* The next revision was compacted (@compact_revision), the cluster id changed, or the revision went
     * back or belongs to another history (@compact_revision 0): the owner must list again. A revision too large to be joined (256 MiB
     * of events) counts as compacted. The watcher has stopped; free it. */
    void (*lost)(gint64 compact_revision, gpointer data);
} LhWatcherFuncs;

typedef struct {
    const char *key;
    const char *range_end;
    gint64 start_revision; /* 0: from now on */
    guint64 cluster_id;    /* 0: not checked */
    /* A list showed what is up to start_revision - 1. A watch that is interrupted before its first event is
     * lost then, unless the witness was put at that very revision: a list tells nothing of deletions. */
    gboolean listed;
    /* What the list showed: a key, its mod revision, the highest, and lh_watcher_content() of it. The watch
     * must be of that history too. NULL: not checked before the first event. */
    const char *witness;
    gint64 witness_rev;
    guint64 witness_content;
    gint64 progress_ms; /* 0: 5,000 */
    /* Progress replies move the cursor and are reported. Set it to lh_etcd_progress_trusted(version):
     * before 3.4.25/3.5.8 a progress reply can overtake events. Without it they only prove that the
     * stream lives, and nothing is said of revisions without events. */
    gboolean trust_progress;
} LhWatcherOptions;

/* Tells one put of a key from another at the same revision, in another history. */
guint64 lh_watcher_content(const LhKv *kv);
LhWatcher *lh_watcher_start(LhEnv *env, LhEtcd *etcd, const LhWatcherOptions *options,
                            const LhWatcherFuncs *funcs, gpointer data);
/* Monotonic milliseconds of the last reply of any kind; what staleness is computed from. */
gint64 lh_watcher_last_heard_ms(const LhWatcher *watcher);
void lh_watcher_free(LhWatcher *watcher); /* accepts NULL; may be called inside a callback */
