/*
 * What cache_load.c and cache_work.c do to a Holding: its steps end, its copy goes or is parked, it fails.
 *
 * lh_holding_stop ends whatever is under way. Must not start a step.
 */
#include "agent/cache_internal.h"
#include "base/errors.h"

void lh_holding_stop(Holding *h)
{
    LhCacheWork *work = h->work;
    lh_timer_clear(work->env, &h->timer);
    lh_etcd_cancel(work->etcd, &h->range);
    lh_store_cancel(work->objects, &h->op);
    for (guint i = 0; i < LH_CACHE_FETCHES; i++) {
        lh_store_cancel(work->objects, &h->fetches[i].op);
        g_clear_pointer(&h->fetches[i].part, g_free);
        h->fetches[i].bytes = 0;
    }
    lh_job_abandon(&h->job);
    lh_hooks_cancel(work->hooks, &h->hook);
    lh_cache_store_forget(work->store, h);
    h->waits_for_room = FALSE;
}

void lh_holding_unhold(Holding *h)
{
    if (h->entry == NULL)
        return;
    if (h->served)
        h->entry->served--;
    h->entry->held--;
    h->served = FALSE;
    h->entry = NULL;
}

void lh_holding_hold(Holding *h, LhCacheEntry *entry)
{
    h->entry = entry;
    entry->held++;
    h->reserved = 0;
}

/* What has been copied so far, away. @done: when it is gone. FALSE: there was nothing. */
gboolean lh_holding_discard(Holding *h, LhCacheRemoved done, gpointer data)
{
    h->reserved = 0;
    g_clear_pointer(&h->draft, lh_cache_entry_free);
    if (h->dir == NULL)
        return FALSE;
    lh_cache_store_discard(h->work->store, h->dir, h->done_bytes, done, data);
    g_clear_pointer(&h->dir, g_free);
    h->done_bytes = 0;
    return TRUE;
}

LhCacheEntry *lh_holding_origin(const Holding *h)
{
    return lh_cache_entry_new(h->assignment->snapshot, h->assignment->uri, h->snapshot->size_bytes,
                              h->snapshot->o.create_rev, 0);
}

/* What has been copied so far, for the next load of the same. Not while a job is at work there,
 * which would go on beside that load; unless there will be none in this process. */
static void park_copy(Holding *h)
{
    if (h->dir == NULL || (h->job != NULL && !h->work->closing))
        return;
    g_autoptr(LhCacheEntry) origin = lh_holding_origin(h);
    lh_cache_store_park(h->work->store, h->dir, origin, h->done_bytes);
    g_clear_pointer(&h->dir, g_free);
}

void lh_holding_free(gpointer data)
{
    Holding *h = data;
    park_copy(h);
    lh_holding_stop(h);
    lh_holding_discard(h, NULL, NULL);
    lh_holding_unhold(h);
    g_clear_error(&h->error);
    lh_object_unref(&h->assignment->o);
    if (h->snapshot != NULL)
        lh_object_unref(&h->snapshot->o);
    g_hash_table_unref(h->sha256);
    g_free(h->item);
    g_free(h);
}

/* Answers, and forgets the holding. @h->error says how it went. */
static void report_failed(gpointer data)
{
    Holding *h = data;
    LhCacheWork *work = h->work;
    h->timer = NULL;
    g_autofree char *item = g_strdup(h->item);
    g_autoptr(GError) error = g_steal_pointer(&h->error);
    g_hash_table_remove(work->holdings, item);
    work->funcs->failed(item, error, work->data);
}

void lh_holding_fail(Holding *h, const GError *error)
{
    lh_holding_stop(h);
    g_clear_error(&h->error);
    h->error = g_error_copy(error);
    lh_holding_unhold(h);
    if (!lh_holding_discard(h, report_failed, h))
        h->timer = lh_timer_in(h->work->env, 0, report_failed, h);
}

void lh_holding_fail_with(Holding *h, LhErrorCode code, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    g_autofree char *message = g_strdup_vprintf(format, args);
    va_end(args);
    g_autoptr(GError) error = g_error_new_literal(LH_ERROR, (gint)code, message);
    lh_holding_fail(h, error);
}
