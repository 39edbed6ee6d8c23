/*
 * What the files of the fake etcd share: store, leases, watches (the server), client and streams
 * (its end of the wire). Private to tests/fakes/.
 *
 * Memory: an event (one key at one revision) is immutable and counted; the history, the log, the
 * key's newest pointer and replies on their way refer to it, so values are never copied after the
 * put.
 */
#pragma once

#include "base/errors.h"
#include "fake_etcd.h"

typedef struct FakeEvent FakeEvent;
struct FakeEvent {
    guint refs;
    LhEtcdEvent event; /* first what the vtable speaks of */
    FakeEvent *prev;   /* of the same key; NULL: none, or compacted */
    char *key;         /* GRefString */
    char value[];      /* NUL-terminated */
};

typedef struct {
    char *key; /* GRefString */
    FakeEvent *newest;
} FakeKey;

typedef struct {
    FakeCommit pub; /* first */
    guint refs;
    GPtrArray *events; /* FakeEvent* */
    GPtrArray *prevs;  /* FakeEvent* or NULL; for fake_commit_prev */
    LhCompare *compares;
    char *compares_text;
    char *client;
} FakeCommitFull;

typedef struct FakeClient FakeClient;
typedef struct FakeCall FakeCall;
typedef struct FakeWatch FakeWatch;

typedef struct {
    gint64 id, ttl_s;
    gint64 expires_ms; /* mono_ms of the server's env */
    GHashTable *keys;  /* char* set; the leases' own copies */
} FakeLease;

struct FakeEtcd {
    LhEnv *env;
    FakeEtcdOptions options;
    char *version;
    guint64 cluster_id, member_id, raft_term;
    gboolean frozen, stopped, leaderless, nospace;
    guint nospace_commits;
    FakeEtcdStats stats;

    /* store */
    GTree *keys; /* char* -> FakeKey */
    gint64 revision, compacted;
    gint64 db_bytes;
    GPtrArray *log; /* FakeCommitFull*, of this timeline, revisions without gaps */
    gsize log_skip; /* so many at its front are gone */
    gint64 log_first;
    GPtrArray *history;
    guint timeline;
    FakeCommitFull *open; /* the commit being made */
    FakeCommitFunc on_commit;
    gpointer on_commit_data;
    FakeWriteFunc on_write;
    gpointer on_write_data;
    FakeUnknownFunc on_unknown;
    gpointer on_unknown_data;

    /* leases */
    GHashTable *leases; /* gint64* -> FakeLease */
    GTree *by_expiry;   /* FakeLease* in the order of (expires_ms, id) */
    LhTimer *expiry_timer;
    gint64 tick_phase_ms;

    /* watches */
    GHashTable *watch_keys, *watch_prefixes; /* char* -> GPtrArray of FakeWatch* */
    GPtrArray *watch_ranges;
    GPtrArray *touched; /* watches with events of the open commit */

    /* wire */
    GPtrArray *clients;
    GQueue on_the_way; /* calls with a timer on env, or waiting in held */
    GQueue held;       /* calls that wait for a thaw or a leader, in order of arrival */
    LhTimer *leader_timer, *no_leader_timer;
};

/* ---- requests and replies ---- */

typedef enum {
    FAKE_CALL_RANGE,
    FAKE_CALL_TXN,
    FAKE_CALL_GRANT,
    FAKE_CALL_KEEPALIVE,
    FAKE_CALL_REVOKE,
    FAKE_CALL_STATUS
} FakeCallKind;

typedef struct {
    FakeCallKind kind;
    LhRangeRequest range;
    LhTxnRequest txn;
    gint64 lease, ttl_s;
    GPtrArray *memory; /* what the pointers above point to */
} FakeRequest;

typedef struct {
    GError *error;
    LhRangeReply range;
    LhTxnReply txn;
    LhStatusReply status;
    gint64 lease, ttl_s;
    GPtrArray *events; /* FakeEvent*, held while the reply lives */
    GPtrArray *memory;
} FakeReply;

FakeReply *fake_reply_new(void);
void fake_reply_free(FakeReply *reply);
void fake_reply_fail(FakeReply *reply, LhErrorCode code, const char *message);

/* ---- store (fake_store.c) ---- */

FakeEvent *fake_event_ref(FakeEvent *event);
void fake_event_unref(gpointer event); /* accepts NULL */
FakeCommitFull *fake_commit_ref(FakeCommitFull *commit);
void fake_commit_unref(gpointer commit);

void fake_store_init(FakeEtcd *server);
void fake_store_clear(FakeEtcd *server);
/* One commit: begin, puts and deletes, end. Nothing is committed when there were none. A watcher
 * and on_commit hear of it in end. The revision that the changes carry is server->revision + 1. */
void fake_store_begin(FakeEtcd *server, FakeCause cause, const char *client);
void fake_store_put(FakeEtcd *server, const char *key, const char *value, gsize value_len,
                    gint64 lease);
gint64 fake_store_delete(FakeEtcd *server, const char *key, const char *range_end);
gboolean fake_store_end(FakeEtcd *server);
/* The event that holds @key's value at @revision (0: newest, the open commit included), or NULL. */
FakeEvent *fake_store_get(FakeEtcd *server, const char *key, gint64 revision);
typedef gboolean (*FakeVisit)(FakeEvent *event, gpointer data); /* TRUE: stop */
void fake_store_visit(FakeEtcd *server, const char *key, const char *range_end, gint64 revision,
                      FakeVisit func, gpointer data);
/* The commit of @revision, above the compaction. */
FakeCommitFull *fake_store_commit_at(FakeEtcd *server, gint64 revision);

/* ---- requests on the store (fake_txn.c) ---- */

LhEtcdHeader fake_header(const FakeEtcd *server);
void fake_do_range(FakeEtcd *server, const LhRangeRequest *request, LhRangeReply *out,
                   FakeReply *memory);
void fake_do_txn(FakeEtcd *server, const FakeCall *call, gboolean late, FakeReply *reply);
gsize fake_request_size(const FakeRequest *request);
gboolean fake_request_writes(const FakeRequest *request); /* whether its outcome matters */
gboolean fake_request_puts(const FakeRequest *request);   /* it may change something */

/* ---- leases (fake_leases.c) ---- */

void fake_leases_init(FakeEtcd *server);
void fake_leases_clear(FakeEtcd *server);
FakeLease *fake_lease_get(FakeEtcd *server, gint64 id);
FakeLease *fake_lease_grant(FakeEtcd *server, gint64 id, gint64 ttl_s); /* @id 0: a new one */
void fake_lease_attach(FakeEtcd *server, gint64 id, const char *key);
void fake_lease_detach(FakeEtcd *server, gint64 id, const char *key);
/* Seconds, 0 when there is no such lease. */
gint64 fake_lease_keepalive(FakeEtcd *server, gint64 id);
gboolean fake_lease_is_overdue(FakeEtcd *server, const FakeLease *lease);
gint64 fake_lease_next_tick(FakeEtcd *server);
gboolean fake_lease_revoke(FakeEtcd *server, gint64 id, FakeCause cause, const char *client);
void fake_leases_extend(FakeEtcd *server); /* a new leader */
void fake_leases_arm(FakeEtcd *server);    /* (re)starts the expiry timer */

/* ---- watches (fake_watch.c) ---- */

void fake_watches_init(FakeEtcd *server);
void fake_watches_clear(FakeEtcd *server);
FakeWatch *fake_watch_add(FakeEtcd *server, const LhWatchRequest *request, LhEtcdStream *stream);
void fake_watch_remove(FakeWatch *watch);
void fake_watch_progress(FakeWatch *watch);
void fake_watches_note(FakeEtcd *server, FakeEvent *event); /* of the open commit */
void fake_watches_flush(FakeEtcd *server, gint64 revision);

typedef struct {
    LhWatchReply reply;
    GPtrArray *events; /* FakeEvent*, NULL if none */
    GError *error;     /* not a reply but the end of the stream */
    gint64 due_ms;     /* mono_ms of the client's env */
} FakeMessage;

/* ---- calls (fake_call.c), clients (fake_client.c) and streams (fake_stream.c) ---- */

struct FakeCall {
    guint refs;
    FakeEtcd *server;
    FakeClient *client; /* NULL: nobody waits any more */
    char *client_name;  /* GRefString */
    LhCallId id;
    FakeRequest request;
    union {
        LhRangeFunc range;
        LhTxnFunc txn;
        LhLeaseFunc lease;
        LhStatusFunc status;
    } func;
    gpointer data;
    FakeFault fault;
    gint64 deadline_at_ms; /* mono_ms of the client's env */
    gint64 sent_ms;        /* … of the server's */
    gboolean told;         /* a reply or an error is on its way to the caller's callback */
    LhTimer *deadline_timer, *deliver_timer; /* on the client's env */
    LhTimer *arrive_timer;                   /* on the server's env */
    FakeReply *reply;
    GList on_the_way, held; /* links in the server's queues */
};

struct FakeClient {
    LhEtcd etcd; /* first */
    FakeEtcd *server;
    LhEnv *env;
    char *name; /* GRefString */
    LhCallId next_id;
    GHashTable *calls; /* LhCallId* -> FakeCall */
    GPtrArray *streams;
    GPtrArray *held_requests, *held_replies; /* FakeCall*, caught in a cut */
    FakeCut cut;
    gboolean dead; /* the connection is known to be lost; calls are refused */
    LhTimer *dead_timer, *reconnect_timer;
    FakeFault next_fault;
    guint next_faults, refused_lists;
    FakeFaultRates rates;
    gint64 slow_calls_ms, slow_streams_ms;
};

gint64 fake_delay(FakeEtcd *server);
gint64 fake_call_delay(const FakeClient *client); /* one way */
gint64 fake_stream_delay(const FakeClient *client);
guint64 fake_below(FakeEtcd *server, guint64 n);
gboolean fake_chance(FakeEtcd *server, guint of_10000);

FakeCall *fake_call_new(FakeClient *client, FakeCallKind kind, gpointer data);
void fake_call_set_range(FakeCall *call, const LhRangeRequest *range);
void fake_call_set_txn(FakeCall *call, const LhTxnRequest *txn);
void fake_call_set_deadline(FakeCall *call, gint64 deadline_ms);
void fake_call_send(FakeCall *call, gint64 delay_ms);
void fake_call_arrived(FakeCall *call); /* at the server: applies it, or holds it */
void fake_call_forget(FakeCall *call);  /* it never arrives */
/* Nobody waits for it any more; what is on its way goes on. */
void fake_call_abandon(FakeCall *call);
/* The caller hears that it was not applied. */
void fake_call_refuse(FakeCall *call, LhErrorCode code, const char *why);
/* The connection broke. Unless the answer is on its way to the callback already, nobody knows. */
void fake_call_lose(FakeCall *call, gint64 delay_ms);
void fake_call_deliver_again(FakeCall *call); /* after a cut of the way back */
void fake_call_unref(FakeCall *call);

/* The cut or the server's state has changed. */
void fake_client_update(FakeClient *client);
/* New calls and watches are refused without being sent. */
gboolean fake_client_refuses(const FakeClient *client);

/* Server to client, in order. Takes the message. */
void fake_stream_push(LhEtcdStream *stream, FakeMessage *message);
/* The stream is lost; what is on its way to the client is dropped. */
void fake_stream_abort(LhEtcdStream *stream, const char *why);
/* Goes on with what a cut or a frozen server held up. */
void fake_stream_wake(LhEtcdStream *stream);
LhEtcdStream *fake_stream_new(FakeClient *client, const LhWatchRequest *request,
                              LhWatchReplyFunc on_reply, LhWatchClosedFunc on_closed,
                              gpointer data);
void fake_stream_progress(LhEtcdStream *stream);
void fake_stream_close(LhEtcdStream *stream); /* no callback after it */
