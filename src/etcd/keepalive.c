/*
 * The queue of keepalive calls: waiting for an answer, or given up but still to be answered.
 *
 * A call leaves its queue, or loses its callback, before that callback runs: callbacks may change the
 * queues.
 */
#include "etcd/keepalive.h"

#include "base/errors.h"

typedef struct {
    LhCallId id;
    gint64 lease, sent_us, deadline_us;
    LhLeaseFunc func; /* NULL: given up */
    gpointer data;
} Keepalive;

void lh_keepalives_init(LhKeepalives *keepalives)
{
    g_queue_init(&keepalives->waiting);
    g_queue_init(&keepalives->ended);
    keepalives->given_up = 0;
}

void lh_keepalives_clear(LhKeepalives *keepalives)
{
    g_queue_clear_full(&keepalives->waiting, g_free);
    g_queue_clear_full(&keepalives->ended, g_free);
    keepalives->given_up = 0;
}

void lh_keepalives_add(LhKeepalives *keepalives, LhCallId id, gint64 lease, gint64 now_us,
                       gint64 deadline_us, LhLeaseFunc func, gpointer data)
{
    Keepalive *call = g_new(Keepalive, 1);
    *call = (Keepalive){.id = id,
                        .lease = lease,
                        .sent_us = now_us,
                        .deadline_us = deadline_us,
                        .func = func,
                        .data = data};
    g_queue_push_tail(&keepalives->waiting, call);
}

static Keepalive *find(const GQueue *queue, LhCallId id)
{
    for (GList *link = queue->head; link != NULL; link = link->next) {
        Keepalive *call = link->data;
        if (call->func != NULL && call->id == id)
            return call;
    }
    return NULL;
}

gboolean lh_keepalives_cancel(LhKeepalives *keepalives, LhCallId id)
{
    Keepalive *call = find(&keepalives->waiting, id);
    if (call != NULL)
        keepalives->given_up++;
    else
        call = find(&keepalives->ended, id);
    if (call == NULL)
        return FALSE;
    call->func = NULL;
    return TRUE;
}

gboolean lh_keepalives_answer(LhKeepalives *keepalives, gint64 lease, gint64 ttl_s)
{
    const Keepalive *oldest = g_queue_peek_head(&keepalives->waiting);
    if (oldest == NULL || oldest->lease != lease)
        return FALSE;
    g_autofree Keepalive *call = g_queue_pop_head(&keepalives->waiting);
    if (call->func != NULL)
        call->func(lease, ttl_s, NULL, call->data);
    else
        keepalives->given_up--;
    return TRUE;
}

static Keepalive *find_overdue(const GQueue *queue, gint64 now_us)
{
    for (GList *link = queue->head; link != NULL; link = link->next) {
        Keepalive *call = link->data;
        if (call->func != NULL && call->deadline_us <= now_us)
            return call;
    }
    return NULL;
}

void lh_keepalives_expire(LhKeepalives *keepalives, gint64 now_us)
{
    g_autoptr(GError) error = g_error_new(LH_ERROR, LH_ERR_UNAVAILABLE,
                                          "etcd LeaseKeepAlive: no answer before the deadline");
    Keepalive *call = NULL;
    while ((call = find_overdue(&keepalives->waiting, now_us)) != NULL) {
        LhLeaseFunc func = call->func;
        call->func = NULL;
        keepalives->given_up++;
        func(0, 0, error, call->data);
    }
}

void lh_keepalives_fail(LhKeepalives *keepalives, const GError *error)
{
    Keepalive *call = NULL;
    /* Apart from those waiting, because calls that the callbacks make belong to the next stream. */
    while ((call = g_queue_pop_head(&keepalives->waiting)) != NULL)
        g_queue_push_tail(&keepalives->ended, call);
    keepalives->given_up = 0;
    while ((call = g_queue_pop_head(&keepalives->ended)) != NULL) {
        if (call->func != NULL)
            call->func(0, 0, error, call->data);
        g_free(call);
    }
}

gint64 lh_keepalives_next_deadline(const LhKeepalives *keepalives)
{
    gint64 deadline_us = G_MAXINT64;
    for (const GList *link = keepalives->waiting.head; link != NULL; link = link->next) {
        const Keepalive *call = link->data;
        if (call->func != NULL)
            deadline_us = MIN(deadline_us, call->deadline_us);
    }
    return deadline_us;
}

gint64 lh_keepalives_oldest_us(const LhKeepalives *keepalives)
{
    const Keepalive *oldest = g_queue_peek_head((GQueue *)(guintptr)&keepalives->waiting);
    return oldest != NULL ? oldest->sent_us : G_MAXINT64;
}
