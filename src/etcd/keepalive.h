/*
 * Who waits for which answer on the one stream that all keepalives share. No I/O; loop thread.
 *
 * etcd answers the requests of a stream one by one and in order, so the n-th answer belongs to the n-th
 * request. A request whose caller gave up keeps its place: its late answer must not pass for the answer
 * to a younger request, because a lease's local deadline counts from the sending of the answered one.
 *
 * Callbacks may call anything, also lh_keepalives_* of the same object.
 */
#pragma once

#include "etcd/etcd.h"

typedef struct {
    GQueue waiting; /* in the order of sending on the present stream */
    GQueue ended;   /* their stream has ended, they are being failed */
    guint given_up; /* of those waiting */
} LhKeepalives;

void lh_keepalives_init(LhKeepalives *keepalives);
void lh_keepalives_clear(LhKeepalives *keepalives); /* no callback runs */

/* A request for @lease is being sent, @now_us. */
void lh_keepalives_add(LhKeepalives *keepalives, LhCallId id, gint64 lease, gint64 now_us,
                       gint64 deadline_us, LhLeaseFunc func, gpointer data);
/* The call's callback will not run. FALSE: no such call. */
gboolean lh_keepalives_cancel(LhKeepalives *keepalives, LhCallId id);
/* The next answer of the stream. FALSE: it is not the answer to what was asked; the stream is useless. */
gboolean lh_keepalives_answer(LhKeepalives *keepalives, gint64 lease, gint64 ttl_s);
/* Fails the calls whose deadline is @now_us or before, with LH_ERR_UNAVAILABLE. */
void lh_keepalives_expire(LhKeepalives *keepalives, gint64 now_us);
/* The stream has ended: fails all calls and forgets what was given up. */
void lh_keepalives_fail(LhKeepalives *keepalives, const GError *error);
/* G_MAXINT64: none. */
gint64 lh_keepalives_next_deadline(const LhKeepalives *keepalives);
/* When the oldest request was sent that has no answer, whatever became of its caller; G_MAXINT64: all
 * have. */
gint64 lh_keepalives_oldest_us(const LhKeepalives *keepalives);
