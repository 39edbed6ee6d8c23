/*
 * What must always hold in etcd, judged commit by commit. Two use it: the simulation, which sees every
 * commit with all that led to it (tests/sim/sim_check.c), and the checker of histories that were recorded
 * from a real etcd (recorded.h), which sees what changed and when it heard of it.
 *
 * Inv is a typed model of etcd, built from commits alone, with what the contract says about it. It is
 * written from CONTRACT.md, not from the controllers' code, and knows no mirror and no index.
 * For each commit: inv_before() shows it to the groups before it is in the model, inv_apply() puts it
 * there, inv_after() shows it again.
 *
 * To add a controller: a row in rights.c (what it may write); a file here, invariants_<area>.c, with its
 * InvGroup; a row in INV_GROUPS; the file in meson.build. A check says inv_did() where it begins to judge.
 * What only a simulation knows is in commit->facts: ask inv_facts(), which counts what had to be left out.
 */
#pragma once

#include "api/actual.h"
#include "api/decided.h"
#include "api/desired.h"
#include "api/published.h"
#include "etcd/etcd.h"

#define INV_POOL "cache"

/* X(id, variable, name). */
#define INV_GROUPS(X)                       \
    X(FENCE, fence, "fence")                \
    X(PLACEMENT, placement, "placement")    \
    X(RETENTION, retention, "retention")    \
    X(PROTOCOL, protocol, "protocol")       \
    X(ADMISSION, admission, "admission")    \
    X(HEALTH, health, "health")             \
    X(EXCLUSIVE, exclusive, "exclusive")    \
    X(RESTORE, restores, "restore")         \
    X(CLEANER, cleaner, "cleaner")          \
    X(MONITOR, monitor, "monitor")          \
    X(PARTITIONS, partitions, "partitions") \
    X(DRAIN, drain, "drain")                \
    X(SEEDS, seeds, "seeds")

typedef enum {
#define X(id, variable, name) INV_##id,
    INV_GROUPS(X)
#undef X
        INV_MODEL, /* the model's own */
    INV_N_GROUPS,
} InvGroupId;

const char *inv_group_name(InvGroupId group);

/* ---- a commit ---- */

typedef struct {
    const LhEtcdEvent *event;
    const LhKv *prev; /* NULL: it did not exist */
    const char *key;  /* under the prefix */
    LhKind kind;      /* LH_N_KINDS: none */
    const char *name;
    const LhObject *before, *after; /* NULL: does not exist; both NULL for a key of no kind */
} InvChange;

typedef enum {
    INV_BY_NOBODY, /* people, or etcd itself */
    INV_BY_MANAGER,
    INV_BY_AGENT,
} InvBy;

/* What is not seen in etcd. */
typedef struct {
    const LhCompare *compares; /* of the transaction */
    gsize n_compares;
    const char *client; /* which process sent it: "manager-1#3" */
    const char *host;   /* the machine that it runs on */
    gboolean unaware;   /* it has not heard yet that etcd was restored */
} InvFacts;

typedef struct {
    gint64 revision;
    gint64 now_ms;      /* committed by then, by the clock that times the history */
    gint64 earliest_ms; /* … and not before then */
    gint64 wall_ms;     /* now_ms since the epoch */
    InvBy by;
    gboolean by_lease; /* keys went with a lease that ended or was revoked */
    gboolean by_hand;  /* somebody wrote to etcd directly */
    gboolean late;     /* sent long before it was committed; not known without facts */
    const InvChange *changes;
    guint n;               /* at least 1 */
    const InvFacts *facts; /* NULL: recorded */
} InvCommit;

/* ---- the model ---- */

typedef struct {
    const char *prefix; /* of all keys; borrowed */
    gint64 clock_ms;    /* a machine's wall clock is off by at most this */
    gint64 late_ms;     /* what is not late was decided at most so long before */
    gint64 grace_ms;    /* cache-assigner's failureGrace; -1: the least that was accepted */
    gint64 reserve;     /* … and its restoreReservePercent; -1: the least that was accepted */
    void (*fail)(InvGroupId group, const char *text, gpointer data);
    /* What lh_object_parse() makes, perhaps shared with others; NULL: that. */
    LhObject *(*parse)(LhKind kind, const char *name, const LhKv *kv, gpointer data);
    gpointer data; /* of both */
} InvOptions;

#define INV_COUNTERS(X)                                  \
    X(fenced_commits, "commits under a fence")           \
    X(epochs, "epochs that wrote")                       \
    X(loads, "loads ordered")                            \
    X(moved_back, "items back on a returned node")       \
    X(evictions, "evictions ordered")                    \
    X(evicted, "assignments ended by an answer")         \
    X(taken_back, "loads taken back")                    \
    X(moved_away, "copies ended by a drain")             \
    X(moved_failing, "copies ended by a node's failure") \
    X(lost, "assignments ended by a lost node")          \
    X(restored, "restored replicas created")             \
    X(restore_expiries, "expiries of restored ones set") \
    X(restore_extended, "restored replicas extended")    \
    X(restores_refused, "restores refused")              \
    X(restores_completed, "restores completed")          \
    X(tasks_begun, "recovery tasks assigned")            \
    X(tasks_done, "recovery tasks retired")              \
    X(tasks_lost, "exclusive items of failed nodes")     \
    X(plans_written, "plans of partitions written")      \
    X(partitions_taken, "partitions newly taken")        \
    X(partitions_loaded, "partitions to indexers")

typedef struct {
#define X(name, text) guint64 name;
    INV_COUNTERS(X)
#undef X
} InvCounters;

typedef struct {
    gint64 ms;
    guint n;
} InvCount;

typedef struct {
    gint64 ms;
    char node[384]; /* "<pool>/<node>" */
} InvMark;

/* What is assigned to a node name, regular and restored apart. */
typedef struct {
    gint64 bytes, items, restored_bytes, restored_items;
} InvUse;

/* "cache/node-0-1234abcd/item" → its parts. */
typedef struct {
    char *node, *item, *host; /* host: the node name */
} InvPlace;

typedef struct {
    InvOptions options;
    gint64 now_ms, wall_ms;        /* of the last commit */
    GHashTable *kinds[LH_N_KINDS]; /* name → LhObject */
    /* Of the cache pool's assignments, kept from change to change; now and then they are counted anew. */
    GHashTable *hosts; /* node name → InvUse */
    GHashTable *items; /* "<pool>/<item>", of any pool → GPtrArray of char*: its assignments */
    GHashTable *pairs; /* "<node name>/<snapshot>" → how many assignments */
    guint verify_in;   /* so many changes of assignments */
    GHashTable *bytes; /* assignment → gint64, of its last known value */
    GHashTable *uris;  /* snapshot that parses → text */
    GHashTable *sizes; /* the same → LhNode: its last registration, also one that is gone */
    GHashTable
        *gone_ms; /* "<pool>/<node>" → gint64, since when its registration may have been gone */
    GHashTable *cordoned_ms; /* node name → gint64, by when it was */
    GHashTable *edited_ms;   /* Accepted of a service → gint64, its last edit of throughput */
    GHashTable *ids;         /* … of every node that was ever registered */
    GHashTable *epochs;      /* "controller/epoch" that wrote */
    GHashTable *first_live;  /* restored replica → gint64, epoch ms: when a node first said so */
    GHashTable *created;     /* "snapshot.set restore revision": what was created for it */
    GHashTable *left;        /* snapshot → gint64, revision at which a replica of it went last */
    GArray *ordered_ms;      /* gint64: evictions outside a confirmed Brake */
    GArray *deleted_ms;      /* gint64: Deletions decided outside a confirmed Brake */
    GArray *assigned;        /* InvCount of assignments, lately */
    GArray *marks;           /* InvMark: nodes condemned by probes, lately */
    GHashTable *said_ms; /* "<pool>/<node>" → gint64, since when its NodeHealth says what it says */
    GHashTable
        *moved_ms; /* pool → gint64, when its nodes, or what there is to hold, changed last */
    GHashTable *large_ms; /* pool → gint64, since when it has four nodes and more */
    gint64 condoned_ms;   /* when a confirmed Brake of failure-detector was last there */
    gint64 least_grace_ms, least_reserve, most_reserve, least_stuck_ms;
    InvCounters counters;
    guint64 did[INV_N_GROUPS];     /* judged */
    guint64 skipped[INV_N_GROUPS]; /* not judged: a fact is missing */
} Inv;

void inv_init(Inv *inv, const InvOptions *options);
void inv_clear(Inv *inv);

/* @prev: the key as it was (NULL: it was not there). Both stay the caller's. */
InvChange inv_change(const Inv *inv, const LhEtcdEvent *event, const LhKv *prev);
void inv_change_clear(InvChange *change);
void inv_before(Inv *inv, const InvCommit *commit);
void inv_apply(Inv *inv, const InvCommit *commit);
void inv_after(Inv *inv, const InvCommit *commit);

/* etcd was restored: forgets what is there; inv_restored_key() tells each key that is there now. */
void inv_restored(Inv *inv, gint64 now_ms, gint64 wall_ms);
/* The change that made the key, with what it is now; inv_change_clear() it. */
InvChange inv_restored_key(Inv *inv, const LhKv *kv);

/* ---- questions ---- */

/* Of an assignment, an item, a retry: whether it is of the cache pool, where an item may be on a node that
 * is gone and on another; else the pool is exclusive. */
static inline gboolean inv_is_cache(const char *name)
{
    return g_str_has_prefix(name, INV_POOL "/");
}

const LhObject *inv_get(const Inv *inv, LhKind kind, const char *name);
const LhObject *inv_node(const Inv *inv, const char *node); /* its registration */
gboolean inv_place(const char *assignment, InvPlace *out);  /* FALSE: there is no such place */
void inv_place_clear(InvPlace *place);
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC(InvPlace, inv_place_clear)
InvUse inv_use(const Inv *inv, const char *host);
/* The assignments of the item, or NULL. */
const GPtrArray *inv_assignments_of(const Inv *inv, const char *pool, const char *item);
/* How many assignments of the snapshot are on the node name. */
guint inv_pair(const Inv *inv, const char *host, const char *snapshot);
/* The accepted Settings of cache-assigner etc., or the defaults. */
const LhSettings *inv_settings(const Inv *inv, const char *controller);
/* Bytes that the assignment stands for, even while its value does not parse. */
gint64 inv_assignment_bytes(const Inv *inv, const char *name);

/* What CONTRACT.md says of a replica at @now_ms (epoch). */
typedef enum {
    INV_WANTED,
    INV_EXPIRED,
    INV_UNWANTED,  /* surplus, or what it stands for is gone */
    INV_UNDECIDED, /* paused, or something does not parse: hands off */
} InvWant;
/* @replica: the Replica, unknown, or NULL when only an assignment of that name exists. */
InvWant inv_want(const Inv *inv, const char *name, const LhObject *replica, gint64 now_ms,
                 const char **why);
/* No older snapshot's uri is in its way, nor a Deletion's or a decided Orphan's. */
gboolean inv_snapshot_valid(const Inv *inv, const LhSnapshot *snapshot);
char *inv_snapshot_of(const char *replica);    /* g_free; NULL: not a replica's name */
gboolean inv_is_restored(const char *replica); /* its name says so */
/* The Restore's progress, and what is accepted of it: known, else NULL. */
const LhRestoreProgress *inv_progress(const Inv *inv, const char *restore);
const LhAccepted *inv_restore(const Inv *inv, const char *restore);
/* Whether the Restore asks for @snapshot, as far as service, time and names say. */
gboolean inv_restore_asks(const LhAccepted *restore, const LhSnapshot *snapshot);

/* It orders away one of several copies of a cache replica, for a drain or a node's failure that is done or undone. */
gboolean inv_is_move(const InvChange *change);

/* ---- for groups ---- */

typedef struct {
    /* Before the commit is in the model; after it. Either may be NULL. */
    void (*commit)(Inv *inv, const InvCommit *commit);
    void (*after)(Inv *inv, const InvCommit *commit);
} InvGroup;

#define X(id, variable, name) extern const InvGroup inv_##variable;
INV_GROUPS(X)
#undef X

void inv_fail(Inv *inv, InvGroupId group, const char *format, ...) G_GNUC_PRINTF(3, 4);
static inline void inv_did(Inv *inv, InvGroupId group)
{
    inv->did[group]++;
}
/* NULL, and counted, when there are none. */
static inline const InvFacts *inv_facts(Inv *inv, InvGroupId group, const InvCommit *commit)
{
    inv->skipped[group] += commit->facts == NULL;
    return commit->facts;
}
const char *inv_who(const InvCommit *commit); /* the client, or what it must have been */
/* Whether the transaction compared that @target of @key (whole) equals something: *number. */
gboolean inv_compares(const LhCompare *compares, gsize n, const char *key, LhCompareTarget target,
                      gint64 *number);
/* … that the mod revision of the object equals @mod_rev (0: that it does not exist). TRUE, and
 * counted, when that is not known. */
gboolean inv_relied_on(Inv *inv, InvGroupId group, const InvCommit *commit, LhKind kind,
                       const char *name, gint64 mod_rev);

/* Under which leadership something was written. */
typedef struct {
    char controller[64];
    const char *key; /* of the leader, whole; points into the compares. NULL: not known */
    gint64 epoch;    /* 0: no fence */
    gint64 mod;      /* of the leader key */
} InvFence;
/* The leader key whose create and mod revision are compared. */
InvFence inv_fence_compared(const Inv *inv, const LhCompare *compares, gsize n);

/* ---- rights.c ---- */

/* The controllers of which @change may be a write, as bits; inv_rights_name() names a bit's. */
guint inv_rights(const InvChange *change);
const char *inv_rights_name(guint bit); /* NULL: there is no further */
gboolean inv_people_may(const InvChange *change);
