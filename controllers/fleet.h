/*
 * The index of the snapshot fleet: services, snapshots, replicas, assignments, nodes, as records that
 * point at the mirror's objects and at each other, with sorted sets of what needs work.
 *
 * It is a fold (fleet.c): which sets a record is in follows from the present objects alone, so folding one
 * change at a time and folding everything again give the same index. Sets are either exact or, where time
 * matters, sorted by the moment at which the record becomes due. Pure; the plans read it, only the fold
 * changes it.
 *
 *   LhFleetService ─┬─ LhFleetSnapshot ─┬─ LhFleetReplica ─── LhFleetAssignment ─── LhFleetNode ─── LhFleetHost
 *                                       LhFleetRestore ─┘
 */
#pragma once

#include "api/actual.h"
#include "api/decided.h"
#include "api/desired.h"
#include "api/observed.h"
#include "api/published.h"
#include "base/name_set.h"
#include "base/slab.h"
#include "base/sorted_set.h"
#include "controllers/places.h"
#include "runtime/controller.h"

#define LH_POOL_CACHE "cache"

typedef struct LhFleetService LhFleetService;
typedef struct LhFleetSnapshot LhFleetSnapshot;
typedef struct LhFleetReplica LhFleetReplica;
typedef struct LhFleetAssignment LhFleetAssignment;
typedef struct LhFleetNode LhFleetNode;
typedef struct LhFleetHost LhFleetHost;
typedef struct LhFleetSubject LhFleetSubject;
typedef struct LhFleetRestore LhFleetRestore;
typedef struct LhFleetRestored LhFleetRestored;

struct LhFleetService {
    char *name;
    const LhObject *desired;  /* Service or unknown, NULL: none */
    const LhObject *accepted; /* Accepted or unknown, NULL: none */
    GPtrArray *snapshots;     /* LhFleetSnapshot, in no order */
    LhSortedSet by_time;      /* LhFleetSnapshot: those that are not live; see lh_fleet_between */
    LhSortedSet by_end;       /* LhFleetSnapshot by endTime: those that may be deleted one day */
    GHashTable *orphans;      /* set of LhFleetReplica that name it and whose snapshot is gone */
    guint replicas, live;     /* of all that stand for its data, and of them those that are live */
    const LhObject *counted;  /* cluster-monitor's Status of it, with these counts; NULL: none */
    gboolean count_todo;      /* in LhFleet.count_todo */
};

/* There may be a million that nothing is to be done about: 48 bytes. */
struct LhFleetSnapshot {
    const char *name;         /* the object's; while there is none, a copy of its own */
    const LhObject *object;   /* Snapshot, unknown or NULL */
    LhFleetService *service;  /* NULL while the snapshot is not known */
    GPtrArray *replicas;      /* LhFleetReplica; NULL when there are none */
    gint64 sort_time;         /* when its replicas expire, as create_todo is sorted */
    guint32 service_slot;     /* its place in service->snapshots */
    guint32 heap_slot : 26;   /* its place in LhFleet.create_todo, plus 1; 0: not in it */
    guint32 has_deletion : 1; /* in LhFleet.deletions: known or unknown */
    guint32 correct_todo : 1; /* in LhFleet.correct_todo */
    guint32 missing_todo : 1; /* in LhFleet.missing_todo */
    guint32 valid_todo : 1;   /* in LhFleet.valid_todo */
    guint32 in_by_end : 1;    /* in service->by_end */
    guint32 clean_todo : 1;   /* in LhFleet.clean_todo */
};

#define LH_HEAP_SLOT_MAX ((1U << 26) - 1)

/* What shall become of a replica (and of its assignment). */
typedef enum {
    LH_FATE_UNKNOWN, /* something that it depends on does not parse or is not valid: touch nothing */
    LH_FATE_PAUSED,  /* its service is paused: place it, never evict or delete it */
    LH_FATE_KEEP,    /* wanted until due_ms */
    LH_FATE_GO,      /* not wanted: rule says why */
} LhFateType;

typedef struct {
    LhFateType type;
    gint64 due_ms; /* KEEP: when it expires (G_MAXINT64: never); GO: G_MININT64 */
    const char
        *rule; /* KEEP: "expired", the rule when due_ms comes; GO: why; else what is in the way */
} LhFate;

struct LhFleetReplica {
    char *name;
    const LhObject *object;    /* Replica, unknown or NULL (an assignment or a retry alone) */
    const LhObject *retry;     /* Retry, unknown or NULL */
    LhFleetSnapshot *snapshot; /* never NULL */
    LhFleetService *service; /* of an orphan: the one it names; else NULL, see snapshot->service */
    GPtrArray *assignments;  /* LhFleetAssignment; NULL when there are none */
    const char *set;         /* atom or NULL */
    LhFleetRestored *restored; /* NULL unless it is a known restored one */
    LhFate fate;
    guint8 in;          /* LH_IN_… bits: the sets that it is in */
    guint8 is_restored; /* its name says so, whether or not the object parses */
    gboolean counted_live;
    LhFleetService *counted_in; /* whose counts it is in; NULL: none */
    gint64 sort_time;           /* of waiting: the snapshot's endTime */
};

/* What only a restored replica has. */
struct LhFleetRestored {
    LhFleetReplica *replica;
    LhFleetRestore *restore; /* that it names; NULL: none */
    gint64 created_at, expires_at;
    gint64 until; /* expires_at; -1 when it was given up */
    gboolean live;
    guint8 in; /* bits: LhFleet.live_todo 1, LhFleet.not_live 2 */
};

/* A Restore with what is decided of it and for it. */
struct LhFleetRestore {
    char *name;
    const LhObject *accepted; /* Accepted or unknown, NULL: none */
    const LhObject *progress; /* RestoreProgress or unknown, NULL: none */
    GTree *replicas;          /* LhFleetRestored by expiry: those that name it */
    gint64 live;              /* how many of them are */
    gboolean todo;            /* in LhFleet.restore_todo */
};

enum {
    LH_IN_WAITING = 1 << 0,
    LH_IN_DUE_ASSIGNED = 1 << 1,
    LH_IN_DUE_FREE = 1 << 2,
    LH_IN_TODO = 1 << 3,
    LH_IN_MOVING = 1 << 4,
};

/* What it should not be for long, for cluster-monitor. */
typedef enum {
    LH_WATCH_NONE,
    LH_WATCH_ASSIGNED, /* no answer to its load */
    LH_WATCH_LOADING,
    LH_WATCH_EVICTING, /* no end of its eviction */
    LH_WATCH_ZOMBIE,   /* an item without an assignment */
} LhFleetWatch;

struct LhFleetAssignment {
    const LhObject *object; /* Assignment, unknown or NULL (an item alone) */
    const LhObject *item;   /* Item, unknown or NULL */
    LhFleetReplica *replica;
    LhFleetNode *node;
    char *key; /* "<node>/<item>" */
    /* What it counts for on its host and node at present. */
    gint64 bytes;
    gint64 items;
    gboolean restored, loading, evicting;
    gint64 evicting_rev; /* mod revision of the order, while it is evicting */
    gboolean unsized;    /* neither it nor its snapshot says how many bytes: bytes is 0 */
    LhFleetWatch watch;
    gint64 watch_ms; /* since when: its order, or of a zombie what its node says */
};

struct LhFleetNode {
    char *id;
    const LhObject *object; /* Node, unknown or NULL (gone) */
    const LhObject *health; /* NodeHealth, unknown or NULL */
    LhFleetHost *host;
    GPtrArray *assignments; /* LhFleetAssignment */
    gint64 loading;         /* loads that are not answered live */
    const LhObject *said;   /* cache-assigner's Status of it; NULL: none */
    gboolean failing;     /* registered, in failure, and what it has shall go (onFailure: evict) */
    gboolean in_failures; /* in LhFleet.failures */
};

/* A node name: its restarts share capacity, policy and what they hold. */
struct LhFleetHost {
    char *name;
    const LhObject *policy; /* Accepted of the NodePolicy, unknown or NULL */
    GPtrArray *nodes;       /* LhFleetNode */
    gint64 used_bytes, used_items, restored_bytes, restored_items;
    gint64 unsized; /* assignments of unknown size: while there are any, its room is not known */
    const LhObject *drain_said; /* cache-assigner's Status of its policy; NULL: none */
    gboolean draining;          /* its policy, which parses, says drain */
    gboolean in_drains;         /* in LhFleet.drains */
};

/* A desired object (or a recovery task) and what admission made of it. */
struct LhFleetSubject {
    LhKind kind;
    char *key; /* "<plural>/<name>" */
    const LhObject *desired, *accepted;
    gboolean todo;
};

typedef struct {
    GHashTable *services;    /* name -> LhFleetService */
    LhNameSet snapshots;     /* LhFleetSnapshot */
    GHashTable *replicas;    /* name -> LhFleetReplica */
    GHashTable *assignments; /* "<node>/<item>" -> LhFleetAssignment */
    GHashTable *nodes;       /* id -> LhFleetNode */
    GHashTable *hosts;       /* node name -> LhFleetHost */
    GHashTable *subjects;    /* "<plural>/<name>" -> LhFleetSubject */
    GHashTable *askers;      /* ThrottlePolicy -> set of LhFleetSubject: known seeds that name it */
    GHashTable *settings;    /* controller -> Accepted (reference) */
    GHashTable *held;        /* controller -> LhSettings, paused: its Accepted does not parse */
    GHashTable *confirmations; /* controller -> Accepted (reference) */
    GHashTable *brakes;        /* controller -> Brake (reference) */
    GHashTable *statuses;      /* name -> Status (reference) */
    GHashTable *described;     /* "<plural>/<name>" -> how many statuses it has */
    guint described_snapshots; /* statuses of snapshots: mostly none */
    GHashTable *health;        /* "<pool>/<node>" -> LhFleetPresence */
    GHashTable *warm;          /* snapshot -> GPtrArray of LhFleetNode */
    GHashTable *deletions;     /* snapshot -> Deletion (reference) */
    GHashTable *restores;      /* name -> LhFleetRestore */
    GTree *decided;            /* Deletion by decidedAt and name: the known ones */
    GTree *lately;    /* counts of those that no confirmed plan asked for: see lh_fleet_lately */
    GTree *undeleted; /* Deletion by name: known, and its data is not deleted yet */
    GTree *orphans;   /* Orphan by name (reference): unknown ones too */
    GTree *observed;  /* Observation by name (reference) */
    const char *const *roots; /* of snapshot-cleaner's object store, as observed; NULL: not known */
    GHashTable *unknown; /* Snapshot that does not parse -> its uri, "" where none can be read */
    guint unreadable;    /* … how many have "" */
    guint unknown_uris;  /* Snapshots, Deletions and Orphans that do not parse: who knows of what */
    GHashTable *dotted;  /* "a" and "a.b" of each snapshot "a.b.c" with replicas -> count */
    LhSortedSet by_uri;  /* LhFleetSnapshot: the known ones */
    LhNameSet contests;  /* LhFleetContest: uris that overlap others */
    GHashTable *taken_uris;    /* uri -> count of Deletions that hold it */
    GHashTable *taken_flat;    /* uri -> count of decided Orphans: what lies in it directly */
    GHashTable *taken_parents; /* directory above a uri of either -> count */

    GPtrArray
        *create_todo; /* LhFleetSnapshot, last to expire first: has replicas to create. A heap: see
                             * LhFleetWalk */
    GTree *correct_todo; /* LhFleetSnapshot by name: has replicas with another expiry than due */
    GTree *missing_todo; /* LhFleetSnapshot by name: ServiceMissing to write or remove */
    GTree *valid_todo;   /* LhFleetSnapshot by name: Valid=False to write or remove */
    GTree *clean_todo;   /* LhFleetSnapshot by name: Deletable or DataMissing to write or remove */
    GTree *waiting;      /* LhFleetReplica, freshest first: known, unassigned */
    GTree *due_assigned; /* LhFleetReplica by due time: a load that ends then */
    GTree *due_free;     /* LhFleetReplica by due time: unassigned, its object goes then */
    GTree *todo;         /* LhFleetReplica by name: answers, lost nodes, retries to look at */
    GTree *moving;       /* LhFleetReplica, freshest first: a load of it is on a node that it shall
                          * leave, or any order on one that is failing, or it has several loads; those
                          * on lost nodes do not count */
    GTree *drains;       /* LhFleetHost by name: drained, or its Status says so */
    GTree *failures;     /* LhFleetNode by id: failing, or its Status says so */
    GTree *admit_todo;   /* LhFleetSubject by key */
    GTree *health_todo;  /* LhFleetPresence by key */
    /* A sum over all that failure-detector's errands depend on, but its Settings. */
    guint64 errands_digest;
    GTree *restore_todo; /* LhFleetRestore by name: to plan, or its progress is to be written */
    GTree *live_todo;    /* LhFleetRestored by replica: live, and its expiry is not set */
    GTree *not_live;     /* LhFleetRestored by creation: not live yet, and its expiry is not set */
    GTree *unsettled;    /* LhFleetAssignment with a watch, the longest first */
    GTree *count_todo;   /* LhFleetService by name: its Status says other counts */
    GTree *stuck_said;   /* "<plural>/<name>" of an item -> cluster-monitor's Status (reference) */

    LhPlaces *places; /* the hosts that take work */

    gint64 assigned_items; /* cache assignments, evictions under way included */
    GTree *evicting;       /* LhFleetAssignment of them by evicting_rev: evictions */

    LhSlab slab; /* of the LhFleetSnapshot */
} LhFleet;

/* Walks LhFleet.create_todo in order; the index must not change meanwhile. */
typedef struct {
    const GPtrArray *heap;
    GPtrArray *fringe;
} LhFleetWalk;

void lh_fleet_walk_begin(LhFleetWalk *walk, const GPtrArray *heap);
const LhFleetSnapshot *lh_fleet_walk_next(LhFleetWalk *walk); /* NULL at the end */
void lh_fleet_walk_end(LhFleetWalk *walk);

/* Observations "<this><pool>.<node>": `missing` misses in a row, `token` its create revision. */
#define LH_PROBE_OBSERVED "failure-detector/probe."
/* Observations "<this><pool>.<node>" of a lease to be revoked. */
#define LH_REVOKE_OBSERVED "failure-detector/revoke."

/* A node of any pool, for failure-detector. */
typedef struct {
    char *key;              /* "<pool>/<node>" */
    const LhObject *node;   /* registration, unknown or NULL */
    const LhObject *health; /* NodeHealth, unknown or NULL */
    const LhObject *probe;  /* Observation of its probes, or NULL */
    char *probe_id; /* of the errand "probe.<pool>.<node>"; NULL: no errand can be called so */
    guint64 errand_digest; /* its part of LhFleet.errands_digest */
    guint assignments;     /* how many it has */
    gboolean todo;
} LhFleetPresence;

extern const LhIndexType lh_fleet_index;

const LhSettings *lh_fleet_settings(const LhFleet *fleet, const char *controller);
/* The same for LhController.settings. */
const LhSettings *lh_fleet_settings_of(gconstpointer index, const char *controller);
const LhObject *lh_fleet_status(const LhFleet *fleet, const char *plural, const char *name,
                                const char *controller);

/* The accepted, known spec of @service, or NULL. */
const LhService *lh_fleet_service_spec(const LhFleetService *service);
/* The known snapshot, or NULL. */
const LhSnapshot *lh_fleet_snapshot_object(const LhFleetSnapshot *snapshot);
/* Whether it may be cached: known, not live, no uri or name that another holds. NULL when it may; else
 * why not, with the name of the one in the way where there is one; g_free. */
char *lh_fleet_snapshot_invalid(const LhFleet *fleet, const LhFleetSnapshot *snapshot);

/* The state of an item as far as it answers this very assignment: -1 when there is no counted answer. */
int lh_fleet_answer(const LhFleetAssignment *assignment);
/* The registration is gone (an unknown one is not). */
gboolean lh_fleet_node_gone(const LhFleetNode *node);
/* What it has shall be elsewhere: it is drained, or failing. */
gboolean lh_fleet_leaving(const LhFleetNode *node);
/* Its health, which parses, says so. */
gboolean lh_fleet_in_failure(const LhFleetNode *node);
gboolean lh_fleet_on_probation(const LhFleetNode *node);
/* Of the host's registered nodes the newest, if it takes new work: online, not in failure, not cordoned.
 * @why (may be NULL): why not, static storage. */
const LhNode *lh_fleet_host_takes(const LhFleetHost *host, const char **why);
const LhFleetNode *lh_fleet_host_newest(const LhFleetHost *host);
/* A known load assignment, else NULL. */
const LhAssignment *lh_fleet_load(const LhFleetAssignment *assignment);

/* The counted answer that the replica is live, or NULL. */
const LhItem *lh_fleet_replica_live(const LhFleetReplica *replica);
/* It is live where it may stay. */
gboolean lh_fleet_replica_settled(const LhFleetReplica *replica);
/* Nothing but its fate and the room is in the way of loading it somewhere. */
gboolean lh_fleet_replica_placeable(const LhFleet *fleet, const LhFleetReplica *replica);

/* Calls @func for each final snapshot of @service that overlaps [@start, @end], both included, in no order
 * that means anything. Looks at those, and at a few that begin soon after. */
typedef void (*LhFleetSnapshotFunc)(LhFleetSnapshot *snapshot, gpointer data);
void lh_fleet_between(const LhFleetService *service, gint64 start, gint64 end,
                      LhFleetSnapshotFunc func, gpointer data);
/* The condition Restored that follows from @restore's progress. FALSE: it has none. The message is
 * borrowed. */
gboolean lh_fleet_restore_condition(const LhFleetRestore *restore, LhCondition *out);
/* When the last of its replicas expires; -1: of none is that known. */
gint64 lh_fleet_restore_until(const LhFleetRestore *restore);
/* What should be said of it once it is not Pending any more. */
LhRestorePhase lh_fleet_restore_phase(const LhFleetRestore *restore);

/* How close to its expiry a regular replica is not created any more. */
gint64 lh_fleet_creation_margin_ms(const LhService *spec);

/* Size of what the replica stands for; 0 when unknown. */
gint64 lh_fleet_replica_bytes(const LhFleetReplica *replica);
/* True when something of it changed after its last failure was written: the retry does not count. */
gboolean lh_fleet_retry_void(const LhFleetReplica *replica);

/* The condition ServiceMissing of @snapshot, for replica-creator. FALSE: it has none; else g_free what
 * out->message points to. */
gboolean lh_fleet_service_missing(const LhFleetSnapshot *snapshot, LhCondition *out);

/* What admission would say of @subject: NULL when its desired object is valid, else why not; g_free. */
char *lh_fleet_subject_invalid(const LhFleet *fleet, const LhFleetSubject *subject);
/* The condition Valid that follows for @object; @invalid and what it says are borrowed. Returns how many
 * conditions are to be said: of published kinds none, as long as there is nothing to complain of. */
guint lh_fleet_valid_condition(const LhObject *object, const char *invalid, LhCondition *out);

/* ---- for snapshot-cleaner (fleet_clean.c) ---- */

/* Of the observation "<controller>/<name>"; NULL: there is none, or it does not parse. */
const LhObservation *lh_fleet_observed(const LhFleet *fleet, const char *controller,
                                       const char *name);
/* The first of fleet->observed whose name is @name or comes after it. */
GTreeNode *lh_fleet_observed_from(const LhFleet *fleet, const char *name);
/* The root that @uri lies strictly below, NULL: none, or roots are not known. */
const char *lh_fleet_root_of(const LhFleet *fleet, const LhUri *uri);
/* Whether a replica's name begins with "<name>." */
gboolean lh_fleet_replicas_below(const LhFleet *fleet, const LhFleetSnapshot *snapshot);
/* What snapshot-cleaner has to say of @snapshot; room for two. g_free the messages. */
guint lh_fleet_clean_conditions(const LhFleet *fleet, const LhFleetSnapshot *snapshot,
                                LhCondition *out);

/* Whether its uri overlaps that of another known snapshot, older or younger. */
gboolean lh_fleet_uri_contested(const LhFleet *fleet, const LhFleetSnapshot *snapshot);
/* Whether @uri equals, contains or lies in what a Snapshot that does not parse still says of its uri. */
gboolean lh_fleet_uri_unknown(const LhFleet *fleet, const char *uri);
/* The oldest known snapshot but @but whose uri equals, contains or lies in @uri; NULL: none. */
const LhFleetSnapshot *lh_fleet_uri_overlap(const LhFleet *fleet, const char *uri,
                                            const LhFleetSnapshot *but);

/* Whose the objects are that lie directly in a directory. */
typedef enum {
    LH_CLAIM_SNAPSHOT, /* the directory is a snapshot's, or lies in it */
    LH_CLAIM_HELD,     /* a Deletion's or a decided Orphan's */
    LH_CLAIM_STRAY, /* nobody's, but a snapshot's or a held one lies in it, or it is no uri: left alone */
    LH_CLAIM_NOBODY, /* nor does anything that is known lie in it */
} LhClaim;
/* @directory: a uri that ends in '/'. */
LhClaim lh_fleet_claim(const LhFleet *fleet, const char *directory);
/* Each known snapshot whose uri is @directory or contains it: mostly one. */
void lh_fleet_uri_holders(const LhFleet *fleet, const char *directory,
                          void (*func)(const LhFleetSnapshot *snapshot, gpointer data),
                          gpointer data);

/* Deletions outside a confirmed plan that were decided after @from_ms, or a few seconds before. */
typedef struct {
    gint64 n, gone; /* gone: … and the snapshot is gone too */
} LhFleetLately;
/* Of @service; NULL: of all. Looks at a count for each few seconds since. */
LhFleetLately lh_fleet_lately(const LhFleet *fleet, const char *service, gint64 from_ms);

/* A sorted walk: for (n = g_tree_node_first(t); n; n = g_tree_node_next(n)) lh_tree_record(n). */
#define lh_tree_record(node) g_tree_node_key(node)

G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC(LhFleetWalk, lh_fleet_walk_end)
