/*
 * Between the files of the runtime only: runtime.c (life, folds), rounds.c (when to plan, and what
 * follows), election.c (who leads), executor.c (plans to transactions), events.c (what people are told).
 */
#pragma once

#include "base/env.h"
#include "etcd/lease.h"
#include "runtime/runtime.h"

typedef struct Runner Runner;
typedef struct LhExecution LhExecution;
typedef struct LhBatch LhBatch;
typedef struct LhEventRecorder LhEventRecorder;

/* Where a controller's round stands. */
typedef enum {
    LH_ROUND_IDLE,      /* may plan when dirty */
    LH_ROUND_EXECUTING, /* transactions in flight or queued */
    LH_ROUND_VOIDING,   /* rewriting the leader key after an unknown outcome */
    LH_ROUND_CATCHING,  /* waiting for the mirror to reach wait_rev */
    LH_ROUND_BACKOFF,   /* waiting after an error */
} LhRoundState;

#define LH_TRIGGERS_KEPT 4

struct Runner {
    LhRuntime *runtime;
    const LhController *controller;
    gpointer index, also;             /* also: NULL when the controller reads one only */
    char *labels;                     /* controller="…" */
    char *ok_labels, *nothing_labels; /* controller="…",result="…" */

    /* election.c */
    char *leader_key;           /* whole key under the present lease; NULL without one */
    gint64 key_create, key_mod; /* of our leader key as far as we know; 0: none */
    gint64 dead_create;         /* etcd said that the key of this create revision is gone */
    LhCallId campaign;
    LhTimer *campaign_retry;
    guint campaign_attempts;
    gboolean leads;
    gint64 led_ms,
        led_mono_ms; /* wall and monotonic: since it leads, or since the wall clock jumped */

    /* rounds */
    LhRoundState state;
    gboolean dirty;
    gint64 dirty_first_ms, dirty_last_ms; /* monotonic */
    gint64 event_ms; /* monotonic, of the first change since the last plan; 0: none */
    guint n_triggers;
    char *triggers[LH_TRIGGERS_KEPT];
    gint64 wake_wall_ms;
    LhTimer *timer;  /* debounce, wake, backoff, catching: one at a time */
    gint64 wait_rev; /* never plans before the mirror is there: own writes */
    gint64 hope_rev; /* where it should be for a plan that conflicts no more; waited for a while */
    gboolean again;  /* plan again at once when caught up */
    guint attempts;  /* failed rounds in a row */
    guint pack;      /* groups for each transaction at most */
    LhExecution *execution;
    LhCallId void_call;
    guint void_attempts;
    gint64 planned_ms; /* monotonic, when the round's plan was made */
    gint64 round_event_ms;
    gboolean regressed;
    gint64 regressed_rev; /* of the first list after it */
    gboolean
        tainted; /* transactions under the present key were abandoned: void them before planning */

    GPtrArray *events;    /* PendingEvent, see events.c */
    gboolean has_errands; /* the outside has been told of some, or of none, since it leads */
    gint64 errands_ms;    /* monotonic, when */
    guint64 errands_digest;
    gint64 errands_wake_ms; /* wall, when they may be others by themselves; 0: never */
};

typedef struct {
    const LhIndexType *type;
    gpointer index;
} LhIndexSlot;

struct LhRuntime {
    LhEnv *env;
    LhEtcd *etcd;
    LhMirror *mirror;
    LhMetrics *metrics;
    const LhController *const *controllers;
    LhRuntimeOptions options;
    char *instance, *host, *url, *version;
    gint64 started_ms; /* wall */

    LhLease *lease;
    GArray *indexes; /* LhIndexSlot */
    Runner *runners;
    guint n_runners;
    gboolean leaders_changed;
    LhEventRecorder *recorder;
    LhBatch *batch;        /* executor.c */
    GHashTable *throttled; /* key -> gint64* monotonic ms of the last commit */

    LhRuntimeObserver observer;
    gpointer observer_data;

    const LhOutside *outside; /* NULL: nothing is done there */
    gpointer outside_data;

    gboolean stopping, revoking;
    LhTimer *stop_timer;
    void (*stop_done)(gpointer data);
    gpointer stop_data;
};

/* rounds.c */
LhPlanContext lh_runner_context(Runner *runner);
/* It leads from this moment on, by both clocks. */
void lh_runner_leads_since(Runner *runner);
void lh_runner_dirty(Runner *runner, const LhObject *cause);
void lh_runner_schedule(Runner *runner);
/* All transactions of the round have ended. */
typedef struct {
    gint64 conflict_rev; /* of those refused by a compare */
    guint committed, conflicts, unknown, failed;
    gboolean fenced;
    gboolean unsent; /* not all was sent: the lease's deadline was near */
    GError *error;   /* the last one that failed; terminal only when all were */
} LhRoundResult;
void lh_runner_executed(Runner *runner, const LhRoundResult *result);
void lh_runner_reset_round(Runner *runner);

/* runtime.c */
/* etcd says that the lease does not exist, whatever its keepalives answer. */
void lh_runtime_lease_is_gone(LhRuntime *runtime);
void lh_runtime_maybe_stopped(LhRuntime *runtime);

/* election.c */
void lh_election_lease_granted(LhRuntime *runtime);
void lh_election_lease_lost(LhRuntime *runtime);
void lh_election_update(Runner *runner);
void lh_election_step_down(Runner *runner, const char *why);
/* Steps down because etcd refused a write under our leader key: the key is gone, whatever the mirror
 * still shows. */
void lh_election_superseded(Runner *runner, const char *why);
void lh_election_clear(Runner *runner);
/* etcd went back in time: what is known of the leader key is of another history. */
void lh_election_regressed(Runner *runner);
/* May act: leads, and before the local deadline. */
gboolean lh_election_may_act(const Runner *runner);
/* The two fence compares of @runner into @out[2]. */
void lh_election_fence(const Runner *runner, LhCompare *out);
/* Rewrites the leader key until answered; then the round goes on (catching) or the runner steps down. */
void lh_election_void(Runner *runner);
/* What a failure branch read of the leader key: TRUE when it is still ours (mod revision adopted). */
gboolean lh_election_still_ours(Runner *runner, const LhRangeReply *leader);

/* executor.c */
LhBatch *lh_batch_new(const char *prefix);
void lh_batch_free(LhBatch *batch);
/* Before @plan (which it takes) is made: of a large plan the first groups are sent while the rest is still
 * being decided. A plan is safe in any subset of its groups, and no answer comes before the plan is made. */
LhExecution *lh_execution_new(Runner *runner, LhPlan *plan);
/* Once it is made, if it has groups. */
void lh_execution_start(LhExecution *execution);
void lh_execution_free(LhExecution *execution); /* cancels; accepts NULL */
gboolean lh_execution_in_flight(const LhExecution *execution);
/* Something of it may still be committed: in flight, or its outcome is unknown and not yet reported. */
gboolean lh_execution_in_doubt(const LhExecution *execution);

/* outside.c */
/* After a plan: tells the outside what is wanted now. */
void lh_runner_errands(Runner *runner, const LhPlanContext *context);
/* Nothing any more. */
void lh_runner_errands_end(Runner *runner);

/* events.c */
LhEventRecorder *lh_recorder_new(LhRuntime *runtime);
void lh_recorder_free(LhEventRecorder *recorder);
void lh_recorder_add(LhEventRecorder *recorder, Runner *runner, const LhPlanEvent *event);
void lh_recorder_drop(Runner *runner); /* stepped down: what is pending is not told */
