/*
 * An etcd in memory, behind the vtable of etcd/etcd.h: for the simulation (virtual time) and for
 * unit tests (any LhEnv). tests/conformance/ holds it to what a real etcd does.
 *
 * One FakeEtcd is the whole cluster. It lives on an LhEnv of its own (in a simulation: a machine
 * that nobody pauses or crashes); each client lives on the machine of the process that uses it.
 * Requests and replies travel with delays that the server's env.random() chooses; unary calls may
 * overtake each other, a watch stream keeps its order. Callbacks come from timers of the client's
 * machine, so pausing or crashing the machine holds or drops them. After sim_machine_crash(), free
 * the client with lh_etcd_free(): what it sent is still on its way, as with kill -9.
 *
 * Order of freeing: clients, then the server, then the envs. Loop thread only.
 */
#pragma once

#include "base/env.h"
#include "etcd/etcd.h"

typedef struct FakeEtcd FakeEtcd;
typedef struct FakeEtcdBackup FakeEtcdBackup;

typedef struct {
    gint64 delay_min_ms, delay_max_ms; /* each way; default 0 and 2 */
    gint64 late_max_ms;    /* a late commit lands up to this long after; default 20,000 */
    guint fragment_events; /* a watch reply of more events comes in fragments; 0: never */
    guint lag_permille;    /* chance that a watch falls behind at a commit (comes batched) */
    gint64 auto_compact_revisions; /* keep so many behind the newest; 0: never compact by itself */
    gint64 lease_floor_s;          /* default 2 */
    gint64 election_ms;            /* default 1,000: what a new leader adds to each lease */
    guint64 cluster_id;            /* default: random */
    const char *version;           /* default "3.5.99" */
} FakeEtcdOptions;

/* @options NULL: all defaults; a field that is 0: its default. Copied. */
FakeEtcd *fake_etcd_new(LhEnv *env, const FakeEtcdOptions *options);
void fake_etcd_free(FakeEtcd *server); /* accepts NULL */

/* A client on @env; @name shows up in the history. Free with lh_etcd_free. */
LhEtcd *fake_etcd_connect(FakeEtcd *server, LhEnv *env, const char *name);

/* ---- faults of one client's network ---- */

typedef enum {
    FAKE_FAULT_NONE,
    FAKE_FAULT_REFUSED,      /* not sent: LH_ERR_UNAVAILABLE */
    FAKE_FAULT_OVERLOADED,   /* not applied: LH_ERR_OVERLOADED */
    FAKE_FAULT_REQUEST_LOST, /* never applied; the caller hears what REPLY_LOST says */
    FAKE_FAULT_REPLY_LOST, /* applied now; the caller hears UNKNOWN_OUTCOME (a read: UNAVAILABLE) */
    FAKE_FAULT_LATE_COMMIT, /* the caller hears UNKNOWN_OUTCOME, and it is applied after that */
} FakeFault;

/* The next @n unary calls of this client. */
void fake_etcd_client_fault_next(LhEtcd *client, FakeFault fault, guint n);

/* The next @n reads of ranges of this client are refused; what else it asks for is not. */
void fake_etcd_client_refuse_lists(LhEtcd *client, guint n);

/* Chances in 10,000 calls (stream_closed: in 10,000 watch replies). */
typedef struct {
    guint refused, overloaded, request_lost, reply_lost, late_commit, stream_closed;
} FakeFaultRates;
void fake_etcd_client_fault_rates(LhEtcd *client, const FakeFaultRates *rates); /* NULL: none */

/* A slow connection: each way of a call takes up to @calls_ms longer, each reply of a watch up to
 * @streams_ms. What was sent later on another way may arrive earlier; a stream keeps its order. */
void fake_etcd_client_slow(LhEtcd *client, gint64 calls_ms, gint64 streams_ms); /* 0: no longer */

/* Packets vanish. Requests fail by their deadline. After 10 to 15 s the client notices (HTTP/2
 * pings): streams close, calls in flight fail, new ones are refused. Healed before that, streams
 * go on where they were, and each request held meanwhile arrives late or never, as the seed says.
 * Cutting only one direction: the server applies what the client sends, and no answer comes back;
 * or the reverse. */
typedef enum {
    FAKE_CUT_NONE = 0,
    FAKE_CUT_REQUESTS = 1,
    FAKE_CUT_REPLIES = 2,
    FAKE_CUT_BOTH = 3
} FakeCut;
void fake_etcd_client_cut(LhEtcd *client, FakeCut cut); /* FAKE_CUT_NONE heals */
FakeCut fake_etcd_client_cut_state(LhEtcd *client);

/* The connection breaks: calls in flight fail (applied or not), streams close; new calls work. */
void fake_etcd_client_reset(LhEtcd *client);
/* Only the streams close, each with UNAVAILABLE. */
void fake_etcd_client_close_streams(LhEtcd *client);

/* ---- faults and operation of the server ---- */

/* SIGSTOP and SIGCONT: what arrives waits, and is done at the thaw; leases that ran out meanwhile
 * expire then. To the clients it is like a cut. */
void fake_etcd_freeze(FakeEtcd *server);
void fake_etcd_thaw(FakeEtcd *server);
/* kill -9 and start again: connections break, what was not applied never will be (late commits
 * too), calls are refused meanwhile; the new leader extends all leases to TTL + election_ms. */
void fake_etcd_stop(FakeEtcd *server);
void fake_etcd_start(FakeEtcd *server);
/* No leader for @outage_ms, then another one: requests wait that long; watches close (UNAVAILABLE)
 * if it lasts more than 4 s; the new leader extends all leases to TTL + election_ms. */
void fake_etcd_elect(FakeEtcd *server, gint64 outage_ms);
/* Moves the compaction revision; FALSE when @revision is in the future or was compacted before. */
gboolean fake_etcd_compact(FakeEtcd *server, gint64 revision);
/* The NOSPACE alarm. While it is on, puts and grants fail with LH_ERR_NO_SPACE; the next
 * @commit_anyway of them are applied all the same (etcd does that at the edge of its quota). */
void fake_etcd_set_nospace(FakeEtcd *server, gboolean on, guint commit_anyway);
/* etcdctl snapshot save; ... restore: the revision goes back, the cluster id stays, older history
 * is compacted, leases are re-armed, connections break. A backup can be restored more than once. */
FakeEtcdBackup *fake_etcd_backup(FakeEtcd *server);
void fake_etcd_restore(FakeEtcd *server, const FakeEtcdBackup *backup);
void fake_etcd_backup_free(FakeEtcdBackup *backup); /* accepts NULL */
void fake_etcd_set_cluster_id(FakeEtcd *server, guint64 cluster_id);

/* ---- an operator at the server itself: no delay, no fault, never refused ---- */

gint64 fake_etcd_put(FakeEtcd *server, const char *key, const char *value,
                     gint64 lease); /* revision */
gint64 fake_etcd_delete(FakeEtcd *server, const char *key,
                        const char *range_end); /* number deleted */
gboolean fake_etcd_revoke(FakeEtcd *server, gint64 lease);
gboolean fake_etcd_lease_exists(FakeEtcd *server, gint64 lease);

gint64 fake_etcd_revision(const FakeEtcd *server);
gint64 fake_etcd_compacted(const FakeEtcd *server);
guint fake_etcd_timeline(const FakeEtcd *server); /* 0, and one more with each restore */
guint64 fake_etcd_cluster_id(const FakeEtcd *server);

/* State at @revision (0: newest; not below the compaction), valid until the next change of it. */
const LhKv *fake_etcd_get(FakeEtcd *server, const char *key, gint64 revision); /* NULL: none */
typedef void (*FakeKvFunc)(const LhKv *kv, gpointer data);
void fake_etcd_foreach(FakeEtcd *server, const char *key, const char *range_end, gint64 revision,
                       FakeKvFunc func, gpointer data);

/* ---- history: every commit since the start, over compactions and restores ---- */

typedef enum { FAKE_BY_TXN, FAKE_BY_REVOKE, FAKE_BY_EXPIRY, FAKE_BY_OPERATOR } FakeCause;

typedef struct {
    gint64 revision;
    guint timeline; /* fake_etcd_timeline() then */
    FakeCause cause;
    gint64 time_ms;     /* mono_ms of the server's env */
    const char *client; /* who asked; "" for an expiry, "operator" for an operator */
    gint64 sent_ms;     /* TXN: … when its client sent it */
    gboolean late;      /* the client had been told UNKNOWN_OUTCOME (or was dead) by then */
    gint64 lease;       /* REVOKE and EXPIRY */
    /* TXN: what it compared, and which branch was taken. */
    const LhCompare *compares;
    gsize n_compares;
    gboolean succeeded;
    gsize n_events; /* at least 1: a transaction without effect makes no revision and no commit */
} FakeCommit;

gsize fake_etcd_history_len(const FakeEtcd *server);
const FakeCommit *fake_etcd_history_at(const FakeEtcd *server, gsize i);
/* @i below commit->n_events, in the order of the transaction. All fields of a deletion's kv but
 * key and mod_rev are 0. */
const LhEtcdEvent *fake_commit_event(const FakeCommit *commit, gsize i);
/* The key as it was before @i; NULL: it did not exist. */
const LhKv *fake_commit_prev(const FakeCommit *commit, gsize i);
/* Forgets all but the last @keep commits (memory); indexes shift. */
void fake_etcd_history_trim(FakeEtcd *server, gsize keep);

/* Called inside each commit, right after it. It must not change the server. */
typedef void (*FakeCommitFunc)(const FakeCommit *commit, gpointer data);
void fake_etcd_on_commit(FakeEtcd *server, FakeCommitFunc func, gpointer data);

/* Called for each write that a client sends (transactions that write, grants, revocations), before
 * anything becomes of it. What it returns happens to the write; NONE: what would happen anyway. */
typedef FakeFault (*FakeWriteFunc)(const char *client, gpointer data);
void fake_etcd_on_write(FakeEtcd *server, FakeWriteFunc func, gpointer data);

/* Called when a client is told that the outcome of its transaction is unknown. */
typedef void (*FakeUnknownFunc)(const char *client, const LhTxnRequest *txn, gpointer data);
void fake_etcd_on_unknown(FakeEtcd *server, FakeUnknownFunc func, gpointer data);

/* What the server has been through; "a run that did too little work fails". */
typedef struct {
    guint64 ranges, txns, txns_failed_compare, grants, keepalives, revokes, expiries;
    guint64 watches, watch_replies, watch_events, fragments;
    guint64 refused, overloaded, requests_lost, replies_lost, late_commits, streams_closed,
        compactions;
} FakeEtcdStats;
const FakeEtcdStats *fake_etcd_stats(const FakeEtcd *server);
