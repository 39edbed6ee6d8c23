/*
 * The simulation: managers and agents with their real code, one fake etcd, people and faults, all in
 * one thread under virtual time. A seed decides everything; the same seed gives the same run.
 *
 *   sim_run() = build the world → chaos (sim_people.c, sim_faults.c) → calm → settle (sim_settle.c)
 *
 * Every commit of the fake passes through sim_check.c: what it changes is typed, shown to each group
 * of invariants (sim_invariants_*.c, one row each in sim_check.c), and added to the model, which is
 * the simulation's own view of etcd. The first violation ends the run.
 */
#pragma once

#include "agent/agent.h"
#include "controllers/registry.h"
#include "mirror/mirror.h"
#include "runtime/runtime.h"
#include "tests/fakes/env_sim.h"
#include "tests/fakes/fake_etcd.h"

#define SIM_PREFIX        "/leasehold/"
#define SIM_LEASE_TTL_S   5
#define SIM_CLOCK_MS      3000  /* wall clocks of machines are off by at most this */
#define SIM_GRACE_MS      15000 /* cache-assigner's failureGrace in all runs */
#define SIM_RESERVE       10    /* … and restoreReservePercent */
#define SIM_MIB           (G_GINT64_CONSTANT(1) << 20)
#define SIM_LATE_MS       8000 /* an order that is not late was decided at most so long ago */
#define LH_SIM_POOL       "cache"
#define SIM_MAX_PROCESSES 64

typedef struct Sim Sim;
typedef struct SimWork SimWork;

typedef struct {
    guint64 seed;
    guint managers, agents;
    gint64 chaos_ms;
    gboolean trace; /* print everything as it happens */
} SimOptions;

/* What a run has been through: a run that did too little proves nothing. */
#define SIM_COUNTERS(X)                               \
    X(crashes, "crashes")                             \
    X(crashes_at_commit, "crashes at a commit")       \
    X(graceful_stops, "graceful stops")               \
    X(pauses, "pauses")                               \
    X(pauses_beyond_lease, "pauses beyond the lease") \
    X(cuts, "network cuts")                           \
    X(resets, "connections reset")                    \
    X(streams_closed, "watch streams cut")            \
    X(compactions, "compactions")                     \
    X(lists_spoiled, "lists spoiled")                 \
    X(elections, "etcd leader changes")               \
    X(freezes, "etcd frozen")                         \
    X(etcd_restarts, "etcd restarts")                 \
    X(nospace, "etcd out of space")                   \
    X(clock_jumps, "clock jumps")                     \
    X(revocations, "leases revoked by hand")          \
    X(unregistered, "nodes unregistered by hand")     \
    X(leader_moves, "leaders moved")                  \
    X(expiries, "lease expiries")                     \
    X(requests_lost, "requests lost")                 \
    X(replies_lost, "replies lost")                   \
    X(late_commits, "late commits")                   \
    X(bad_values, "bad values")                       \
    X(mended, "bad values mended")                    \
    X(invalid_edits, "invalid edits")                 \
    X(edits, "edits of services")                     \
    X(services_deleted, "services deleted")           \
    X(published, "snapshots published")               \
    X(retired, "snapshots retired")                   \
    X(cordons, "cordons")                             \
    X(confirmations, "brakes confirmed")              \
    X(brakes, "brakes")                               \
    X(commits, "commits")                             \
    X(fenced_commits, "commits under a fence")        \
    X(epochs, "epochs that wrote")                    \
    X(replicas, "replicas created")                   \
    X(loads, "loads ordered")                         \
    X(live, "items made live")                        \
    X(load_failures, "loads failed")                  \
    X(moved_back, "items back on a returned node")    \
    X(evictions, "evictions ordered")                 \
    X(evicted, "assignments ended by an answer")      \
    X(lost, "assignments ended by a lost node")       \
    X(registrations, "registrations")                 \
    X(mirror_checks, "mirrors compared")              \
    X(fold_checks, "indexes folded anew")             \
    X(settled_live, "items live in the end")          \
    X(steps, "steps")                                 \
    X(simulated_s, "simulated seconds")

typedef struct {
#define X(name, text) guint64 name;
    SIM_COUNTERS(X)
#undef X
} SimCounters;

typedef struct {
    gboolean failed;
    char *violation; /* g_free */
    char *tail;      /* the last lines of the trace; g_free */
    guint64 hash;    /* of everything that was traced */
    SimCounters counters;
} SimResult;

void sim_run(const SimOptions *options, SimResult *out);

/* ---- processes (sim_process.c) ---- */

typedef enum { SIM_DOWN, SIM_UP, SIM_STOPPING } SimState;

typedef struct SimProcess {
    Sim *sim;
    gboolean is_manager;
    char *name;   /* "manager-0", "node-3": the machine; what follows lives on it */
    guint starts; /* … and this is which process on it */
    char *client; /* "node-3#2" */
    SimState state;
    gint64 wall_offset_ms;  /* of the machine's clock */
    gint64 clock_jumped_ms; /* world time, when it last jumped */
    LhEnv *env;
    LhEtcd *etcd;
    /* managers */
    LhMirror *mirror;
    LhMetrics *metrics;
    LhRuntime *runtime;
    gint64 mirror_rev;
    guint64 applied;
    guint mirrored; /* objects in the mirror at mirror_rev */
    /* agents */
    const char *set, *zone;
    gint64 capacity_bytes, capacity_items;
    GHashTable *disk; /* snapshot → SimData; outlives processes */
    SimWork *work;
    LhAgent *agent;
} SimProcess;

void sim_process_start(SimProcess *process);
void sim_process_crash(SimProcess *process); /* kill -9; not from its own callbacks */
void sim_process_stop(SimProcess *process);  /* SIGTERM */
void sim_process_clear(SimProcess *process); /* at the end of the run */
/* The process that is called so now, or NULL; @alive: of this very start. */
SimProcess *sim_process_of_client(Sim *sim, const char *client, gboolean *alive);
SimProcess *sim_process_of_node(Sim *sim, const char *node_name);
SimProcess *sim_any_process(Sim *sim, gboolean managers, gboolean agents);

/* ---- an agent's work (sim_work.c) ---- */

typedef struct {
    char *uri;
    gint64 bytes, used_ms;
    gboolean complete;
} SimData;

GHashTable *sim_disk_new(void);
SimWork *sim_work_new(SimProcess *process);
void sim_work_free(SimWork *work);
LhAgentWork *sim_work_base(SimWork *work);
gboolean sim_work_holds(SimWork *work, const char *item);

/* ---- the model (sim_model.c) ---- */

typedef struct {
    const LhEtcdEvent *event;
    const LhKv *prev; /* NULL: it did not exist */
    const char *key;  /* under the prefix */
    LhKind kind;      /* LH_N_KINDS: none */
    const char *name;
    const LhObject *before, *after; /* NULL: does not exist; both NULL for a key of no kind */
} SimChange;

typedef struct {
    const FakeCommit *commit;
    SimProcess *by; /* NULL: an operator or etcd itself */
    gboolean alive; /* @by is still the process that sent it */
    gboolean manager, agent;
    const SimChange *changes;
    guint n;
} SimCommit;

typedef struct {
    gint64 ms;
    guint n;
} SimCount;

typedef struct {
    GHashTable *kinds[LH_N_KINDS]; /* name → LhObject */
    GHashTable *bytes;             /* assignment → gint64, of its last known value */
    GHashTable *gone_ms;           /* node → gint64 world time of its registration's end */
    GHashTable *cordoned_ms;       /* node name → gint64 world time */
    GHashTable *ids;               /* every node that was ever registered */
    GHashTable *epochs;            /* "controller/epoch" that wrote */
    GArray *ordered_ms;            /* gint64, world time: evictions outside a confirmed Brake */
    GArray *assigned;              /* SimCount of assignments, lately */
} SimModel;

void sim_model_init(SimModel *model);
void sim_model_clear(SimModel *model);
const LhObject *sim_get(const Sim *sim, LhKind kind, const char *name);
void sim_model_apply(Sim *sim, const SimCommit *commit);
/* The accepted Settings of cache-assigner etc., or the defaults. */
const LhSettings *sim_settings(const Sim *sim, const char *controller);
/* Bytes that the assignment stands for, even while its value does not parse. */
gint64 sim_assignment_bytes(const Sim *sim, const char *name);

/* What CONTRACT.md says of a replica at @now_ms (epoch). */
typedef enum {
    SIM_WANTED,
    SIM_EXPIRED,
    SIM_UNWANTED,  /* surplus, or what it stands for is gone */
    SIM_UNDECIDED, /* paused, or something does not parse: hands off */
} SimWant;
/* @replica: the Replica, unknown, or NULL when only an assignment of that name exists. */
SimWant sim_want(const Sim *sim, const char *name, const LhObject *replica, gint64 now_ms,
                 const char **why);
/* No older snapshot's uri is in its way. */
gboolean sim_snapshot_valid(const Sim *sim, const LhSnapshot *snapshot);
char *sim_snapshot_of(const char *replica); /* g_free; NULL: not a replica's name */

/* ---- invariants (sim_check.c, sim_invariants_*.c) ---- */

typedef struct {
    const char *name;
    /* Before the commit is in the model; after it. Either may be NULL. */
    void (*commit)(Sim *sim, const SimCommit *commit);
    void (*after)(Sim *sim, const SimCommit *commit);
} SimInvariants;

extern const SimInvariants sim_invariants_fence;
extern const SimInvariants sim_invariants_placement;
extern const SimInvariants sim_invariants_retention;
extern const SimInvariants sim_invariants_protocol;
extern const SimInvariants sim_invariants_admission;
extern const SimInvariants sim_invariants_health;

void sim_check_commit(const FakeCommit *commit, gpointer sim);
/* sim_invariants_mirror.c: called by the process's mirror listener, and from time to time. */
void sim_check_mirror_applied(SimProcess *process, gint64 revision);
void sim_check_mirror_still(SimProcess *process); /* it has not changed but by going on */
void sim_check_mirror_regressed(SimProcess *process, gint64 from, gint64 to);
void sim_check_fold(SimProcess *process);

/* ---- people and faults ---- */

/* One kind of thing that happens now and then. */
typedef struct {
    const char *name;
    gint64 mean_ms;
    guint always; /* not 0: in every run; else a seed chooses three of four */
    void (*func)(Sim *sim);
} SimActivity;

extern const SimActivity sim_people[]; /* ended by a NULL name */
extern const SimActivity sim_faults[];

void sim_people_begin(Sim *sim);
/* What operators do about what waits for them: confirm brakes, unpark. */
void sim_people_attend(Sim *sim, gboolean always);
void sim_people_free(Sim *sim);
void sim_faults_rates(SimProcess *process);
void sim_faults_end(Sim *sim); /* heals what heals by itself only in time */
/* A process may crash just after a commit of its own. */
void sim_faults_commit(Sim *sim, const SimCommit *commit);

/* Runs @func after @delay_ms, or at once when the faults end. @text is copied. */
typedef void (*SimLaterFunc)(Sim *sim, SimProcess *process, const char *text, gint64 number);
void sim_later(Sim *sim, gint64 delay_ms, SimLaterFunc func, SimProcess *process, const char *text,
               gint64 number);

/* ---- settling (sim_settle.c) ---- */

void sim_settle(Sim *sim);

/* ---- the world ---- */

typedef struct SimPeople SimPeople;

struct Sim {
    SimOptions options;
    SimWorld *world;
    LhEnv *server_env, *director;
    FakeEtcd *server;
    SimProcess processes[SIM_MAX_PROCESSES]; /* managers, then agents */
    guint n_processes;
    SimModel model;
    SimPeople *people;
    GPtrArray *activities; /* running ones; sim_run.c */
    GPtrArray *laters;
    guint intensity; /* of faults, percent */
    gboolean calm;   /* no more faults */
    gboolean failed;
    char *violation;
    GPtrArray *trace; /* the last lines, a ring */
    guint trace_next;
    guint64 hash;
    SimCounters counters;
};

gint64 sim_now(const Sim *sim);  /* world time, ms */
gint64 sim_wall(const Sim *sim); /* the right time, epoch ms */
guint64 sim_below(Sim *sim, guint64 n);
gint64 sim_between(Sim *sim, gint64 low, gint64 high); /* both included */
gboolean sim_chance(Sim *sim, guint percent);
void sim_run_ms(Sim *sim, gint64 ms);
gint64 sim_agent_capacity(Sim *sim);

/* sim_trace.c */
void sim_trace(Sim *sim, const char *format, ...) G_GNUC_PRINTF(2, 3);
void sim_trace_commit(Sim *sim, const SimCommit *commit);
void sim_fail(Sim *sim, const char *group, const char *format, ...) G_GNUC_PRINTF(3, 4);
char *sim_trace_tail(const Sim *sim);
void sim_trace_setup(Sim *sim);
void sim_trace_clear(Sim *sim);

/* An operator's write; the key is under the prefix. */
void sim_put(Sim *sim, const char *key, const char *value, gint64 lease);
void sim_delete(Sim *sim, const char *key);
const LhKv *sim_kv(const Sim *sim, const char *key);
