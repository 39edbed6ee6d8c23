/* The kinds under decided/: what controllers concluded. Times are epoch ms, -1 when absent. */
#pragma once

#include "api/desired.h"

typedef struct {
    LhObject o;      /* name: "<plural>/<name>" */
    gint64 revision; /* of the desired object that it speaks of */
    gint64 accepted_at;
    const LhStrMap *labels;
    const char *spec; /* raw JSON */
    /* The typed spec (LhService …), owned; never NULL in a known object. Its name is the subject's,
     * its revisions are the Accepted's. Not printed, not compared. */
    const LhObject *parsed;
} LhAccepted;

/* The typed spec if @object is a known Accepted of @kind, else NULL. */
const void *lh_accepted_spec(const LhObject *object, LhKind kind);

typedef struct {
    LhObject o; /* name: "<snapshot>.<set>.<ordinal>" or "….r<ordinal>" */
    const char *snapshot;
    const char *service; /* atom */
    const char *set;     /* atom */
    gint64 ordinal;
    gboolean restored;
    gint64 created_at;
    gint64 expires_at; /* restored: -1 until it was live, or was given up */
    /* restored: the Restore that it was created for, the revision of it under which it is wanted, and
     * how long it lives from when it is live; 0: it was given up */
    const char *restore; /* atom */
    gint64 restore_revision, ttl_ms;
} LhReplica;

/* "<snapshot>.<set>.<ordinal>", or with r before the ordinal; g_free. A Replica whose name and
 * fields disagree is unknown. */
char *lh_replica_name(const char *snapshot, const char *set, gint64 ordinal, gboolean restored);
/* Splits a replica's name from the right, for objects that do not parse too. False: not such a
 * name. *snapshot is g_free'd by the caller, *set too. Any out may be NULL. */
gboolean lh_replica_name_split(const char *name, char **snapshot, char **set, gint64 *ordinal,
                               gboolean *restored);

typedef enum { LH_ACTION_LOAD, LH_ACTION_EVICT, LH_ACTION_PREPARE } LhAction;
const char *lh_action_name(int action);

typedef struct {
    LhObject o; /* name: "<pool>/<node>/<item>" */
    int action;
    gint64 since;
    const char *controller; /* atom */
    gint64 epoch;
    const char *rule; /* atom */
    const char *reason;
    /* cache; sizeBytes is printed only with a snapshot, evictGrace unless it is 0s */
    const char *snapshot;
    const char *uri;
    gint64 size_bytes;
    const char *set; /* atom */
    gint64 evict_grace_ms;
    /* recovery; the offsets are printed only with a partition */
    const char *partition;
    gint64 start_offset, end_offset;
    /* manager: the seed's spec with its ThrottlePolicy resolved, raw JSON */
    const char *seed;
    /* manager, with a throttle: what its holders before granted (window.h), raw JSON. {}: nothing that still
     * counts. NULL: nobody knows, and the node grants nothing for one period. */
    const char *window;
} LhAssignment;

typedef struct {
    LhObject o; /* name: "<pool>/<item>" */
    gint64 attempt;
    gint64 not_before;
    gboolean parked;
    const char *message;
    const char *node; /* node name of the last failure: elsewhere first */
} LhRetry;

typedef struct {
    gint64 start, end; /* end -1: the present one */
    const char *const *partitions;
} LhPartitionInterval;

typedef struct {
    LhObject o;
    const LhArray *history; /* of LhPartitionInterval, gap-free; only the last may have end -1 */
} LhPartitionPlan;

typedef enum {
    LH_RESTORE_PENDING,
    LH_RESTORE_ACTIVE,
    LH_RESTORE_COMPLETED,
    LH_RESTORE_REFUSED,
} LhRestorePhase;
const char *lh_restore_phase_name(int phase);

typedef struct {
    LhObject o;
    int phase;
    gint64 observed_revision;
    gint64 replicas; /* that it is for; Refused: that it would have been for */
    gint64 live;     /* of them: at present */
    gint64 given_up; /* of them: not live in time */
    gint64 until;    /* when the last of those that were live expires; -1: none was */
    const char *message;
} LhRestoreProgress;

typedef enum {
    LH_HEALTH_HEALTHY,
    LH_HEALTH_PROBATION,
    LH_HEALTH_FAILURE,
    LH_HEALTH_FAILED,
} LhHealthState;
const char *lh_health_state_name(int state);

typedef struct {
    LhObject o; /* name: "<pool>/<node>" */
    int state;
    gint64 since;
    const char *reason;
    gint64 missing_since; /* -1: the registration exists */
    gboolean revoking;
    /* JSON leaseTtl: of the registration, which is gone when it is needed; 0: unknown */
    gint64 lease_ttl_ms;
} LhHealth;

typedef struct {
    LhObject o;
    const char *uri;
    gint64 snapshot_revision;
    gint64 decided_at, data_deleted_at;
    const char *service;   /* NULL: not said */
    const char *plan_hash; /* of the confirmed plan that it is part of; NULL: of none */
} LhDeletion;

typedef struct {
    LhObject o;
    const char *uri;
    gint64 objects, bytes;
    gint64 first_seen, second_seen, decided_at;
    gint64 erased;         /* how many objects were deleted; 0: none yet */
    const char *plan_hash; /* as a Deletion's */
} LhOrphan;

/* What a Brake waits for. */
typedef enum {
    LH_BRAKE_MUCH,     /* a Confirmation of exactly that plan, or that it is undone */
    LH_BRAKE_RESTORED, /* a Confirmation that etcd was restored; never released without */
    LH_BRAKE_HOLD,     /* something that only mending helps; nobody can confirm it */
} LhBrakeCause;
const char *lh_brake_cause_name(int cause);

typedef struct {
    LhObject o; /* name: the controller */
    gint64 revision;
    gint64 since;
    const char *plan_hash;
    gint64 eligible, of;
    gint64 confirmed_at;
    const char *message;
    int cause;
    const char *basis; /* what else the plan rests on, as a hash; another one, and it is void */
    const char *const *markers; /* RESTORED: "<root's hash>@<revision>", markers newer than etcd */
} LhBrake;

typedef enum { LH_CONDITION_TRUE, LH_CONDITION_FALSE, LH_CONDITION_UNKNOWN } LhConditionStatus;
const char *lh_condition_status_name(int status);

typedef struct {
    const char *type;
    int status;
    const char *reason; /* CamelCase */
    const char *message;
    gint64 since;
} LhCondition;

typedef struct {
    gint64 at; /* epoch ms, of the first of them */
    gint64 count;
} LhOrdered;

typedef struct {
    LhObject o; /* name: "<plural>/<name>/<controller>" where <name> may be composite */
    gint64 observed_revision;
    const LhArray *conditions;                         /* of LhCondition, sorted by type */
    gint64 snapshots, replicas_desired, replicas_live; /* Service; -1: absent */
    const char *owner, *state;                         /* Seed */
    /* Settings of a controller with a brake: what it ordered lately, and what it is about to. */
    const LhArray *recent; /* of LhOrdered, oldest first */
    gint64 reserved;
} LhStatus;

typedef enum { LH_EVENT_NORMAL, LH_EVENT_WARNING } LhEventType;

typedef struct {
    LhObject o; /* name: "<time-ordered id>"; under events/ */
    gint64 time;
    const char *controller; /* atom */
    int type;
    const char *reason;
    const char *object; /* "<plural>/<name>" */
    const char *message;
    gint64 count;
} LhEvent;
