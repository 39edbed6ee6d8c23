/*
 * Requests to protobuf bytes and replies from them, without any transport. Any thread.
 *
 * Encoders return g_malloc'd bytes (api/etcd.proto says which message). Decoders put everything that
 * the reply points to into @arena and return NULL when the bytes are no such message: then the peer is
 * no etcd, or this file is wrong. A decoded reply lives as long as its arena; not a byte of @data is
 * needed after the call.
 */
#pragma once

#include "etcd/arena.h"
#include "etcd/etcd.h"

typedef struct {
    guint8 *data; /* g_free; not NULL, even when len is 0 */
    gsize len;
} LhBytes;

LhBytes lh_codec_range(const LhRangeRequest *request);
LhBytes lh_codec_txn(const LhTxnRequest *request);
/* With fragments and periodic progress notifications. */
LhBytes lh_codec_watch_create(const LhWatchRequest *request);
LhBytes lh_codec_watch_progress(void);
LhBytes lh_codec_lease_grant(gint64 ttl_s);
LhBytes lh_codec_lease_revoke(gint64 lease);
LhBytes lh_codec_lease_keepalive(gint64 lease);
LhBytes lh_codec_status(void);
LhBytes lh_codec_alarms(void); /* lists them */

/* codec_auth.c */
LhBytes lh_codec_authenticate(const char *user, const char *password);

/* A grant's or a keepalive's answer. */
typedef struct {
    LhEtcdHeader header;
    gint64 lease, ttl_s;
} LhLeaseReply;

/* All of one type, because a table of methods names them; what each gives is beside it. */
gpointer lh_codec_range_reply(LhArena *arena, const guint8 *data, gsize len);     /* LhRangeReply */
gpointer lh_codec_txn_reply(LhArena *arena, const guint8 *data, gsize len);       /* LhTxnReply */
gpointer lh_codec_watch_reply(LhArena *arena, const guint8 *data, gsize len);     /* LhWatchReply */
gpointer lh_codec_grant_reply(LhArena *arena, const guint8 *data, gsize len);     /* LhLeaseReply */
gpointer lh_codec_keepalive_reply(LhArena *arena, const guint8 *data, gsize len); /* LhLeaseReply */
gpointer lh_codec_revoke_reply(LhArena *arena, const guint8 *data, gsize len);    /* LhEtcdHeader */
/* LhStatusReply without the alarms, which are another call's: alarm_* are FALSE. */
gpointer lh_codec_status_reply(LhArena *arena, const guint8 *data, gsize len);
/* LhStatusReply of which only alarm_* are set. */
gpointer lh_codec_alarms_reply(LhArena *arena, const guint8 *data, gsize len);
gpointer lh_codec_authenticate_reply(LhArena *arena, const guint8 *data,
                                     gsize len); /* char: token */
