/*
 * What was written, compared with a list of it: only items whose revision is known when the list is asked
 * for, and the same when it comes; the writers see to all others. An item that is written for the first
 * time and erased again in between is taken for lost: the node starts anew without need, no more.
 */
#include "agent/written.h"

#include "base/log.h"

#include <string.h>

#define PAUSE_FIRST_MS 100
#define PAUSE_CAP_MS   5000

struct LhWritten {
    LhEnv *env;
    LhEtcd *etcd;
    char *prefix, *prefix_end;
    gint64 lease;
    LhWrittenFuncs funcs;
    gpointer data;
    GHashTable *asked; /* name → gint64 revision, when the list was asked for */
    LhCallId call;
    LhTimer *pause;
    guint attempt;
};

static void note(const char *name, gpointer data)
{
    LhWritten *written = data;
    gint64 revision = written->funcs.revision(name, written->data);
    g_hash_table_insert(written->asked, g_strdup(name), g_memdup2(&revision, sizeof revision));
}

/* TRUE: @name is now as it was when the list was asked for, and known. */
static gboolean is_settled(const LhWritten *written, const char *name, gint64 *revision)
{
    const gint64 *asked = g_hash_table_lookup(written->asked, name);
    *revision = written->funcs.revision(name, written->data);
    return *revision >= 0 && (asked != NULL ? *asked : 0) == *revision;
}

/* FALSE: it is of another history. */
static gboolean check_listed(LhWritten *written, const LhKv *kv)
{
    const char *name = kv->key + strlen(written->prefix);
    gint64 revision;
    gboolean settled = is_settled(written, name, &revision);
    g_hash_table_remove(written->asked, name);
    if (!settled || kv->mod_rev == revision)
        return TRUE;
    if (revision == 0) /* never written, or erased */
        return kv->lease != written->lease;
    if (kv->mod_rev < revision)
        return FALSE;
    written->funcs.over(name, written->data);
    return TRUE;
}

static gboolean check_list(LhWritten *written, const LhRangeReply *reply)
{
    for (gsize i = 0; i < reply->n_kvs; i++)
        if (!check_listed(written, &reply->kvs[i]))
            return FALSE;
    GHashTableIter iter;
    gpointer name;
    g_hash_table_iter_init(&iter, written->asked);
    while (g_hash_table_iter_next(&iter, &name, NULL)) {
        gint64 revision;
        if (!is_settled(written, name, &revision) || revision == 0)
            continue;
        if (!written->funcs.given_away(name, written->data))
            return FALSE;
        written->funcs.over(name, written->data);
    }
    return TRUE;
}

static void ask(gpointer data);

static void on_list(const LhRangeReply *reply, const GError *error, gpointer data)
{
    LhWritten *written = data;
    written->call = 0;
    if (error != NULL) {
        gint64 pause = lh_backoff_ms(written->env, written->attempt++, PAUSE_FIRST_MS,
                                     PAUSE_CAP_MS);
        lh_log(LH_LOG_INFO, "cannot verify what was written; trying again", "error", error->message,
               NULL);
        written->pause = lh_timer_in(written->env, pause, ask, written);
        return;
    }
    written->attempt = 0;
    if (!check_list(written, reply))
        written->funcs.lost(written->data);
    g_hash_table_remove_all(written->asked);
}

static void ask(gpointer data)
{
    LhWritten *written = data;
    written->pause = NULL;
    g_hash_table_remove_all(written->asked);
    written->funcs.foreach(note, written, written->data);
    LhRangeRequest request = {
        .key = written->prefix, .range_end = written->prefix_end, .keys_only = TRUE};
    written->call = lh_etcd_range(written->etcd, &request, on_list, written);
}

LhWritten *lh_written_new(LhEnv *env, LhEtcd *etcd, const char *prefix, gint64 lease,
                          const LhWrittenFuncs *funcs, gpointer data)
{
    LhWritten *written = g_new0(LhWritten, 1);
    written->env = env;
    written->etcd = etcd;
    written->prefix = g_strdup(prefix);
    written->prefix_end = lh_etcd_prefix_end(prefix);
    written->lease = lease;
    written->funcs = *funcs;
    written->data = data;
    written->asked = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, g_free);
    return written;
}

void lh_written_verify(LhWritten *written)
{
    lh_etcd_cancel(written->etcd, &written->call);
    lh_timer_clear(written->env, &written->pause);
    ask(written);
}

void lh_written_free(LhWritten *written)
{
    if (written == NULL)
        return;
    lh_etcd_cancel(written->etcd, &written->call);
    lh_timer_clear(written->env, &written->pause);
    g_hash_table_unref(written->asked);
    g_free(written->prefix);
    g_free(written->prefix_end);
    g_free(written);
}
