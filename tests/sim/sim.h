/*
 * The simulation: managers and agents with their real code, one fake etcd, people and faults, all in
 * one thread under virtual time. A seed decides everything; the same seed gives the same run.
 *
 *   sim_run() = build the world → chaos (sim_people.c, sim_faults.c) → calm → settle (sim_settle.c)
 *
 * What people and faults do comes in *occurrences* ("cut/3": the fourth cut). When each happens and
 * what it chooses depends on the seed, its name and its number alone, so that one can be left out
 * without moving the others: that is how sim_shrink.c makes a failing run short.
 *
 * Every commit of the fake passes through sim_check.c: what it changes is typed, shown to each group
 * of invariants (tests/invariants, and sim_invariants_*.c for what only a simulation can see), and added
 * to the model, which is the simulation's own view of etcd. The first violation ends the run.
 */
#pragma once

#include "agent/agent.h"
#include "controllers/registry.h"
#include "mirror/mirror.h"
#include "outside/sweeper.h"
#include "runtime/runtime.h"
#include "tests/fakes/env_sim.h"
#include "tests/fakes/fake_etcd.h"
#include "tests/invariants/recorded.h"

#define SIM_PREFIX        "/leasehold/"
#define SIM_LEASE_TTL_S   5
#define SIM_CLOCK_MS      3000  /* wall clocks of machines are off by at most this */
#define SIM_GRACE_MS      15000 /* cache-assigner's failureGrace in all runs */
#define SIM_RESERVE       10    /* … and restoreReservePercent */
#define SIM_MIB           (G_GINT64_CONSTANT(1) << 20)
#define SIM_LATE_MS       8000 /* an order that is not late was decided at most so long ago */
#define LH_SIM_POOL       INV_POOL
#define SIM_POOL_RECOVERY "recovery"
#define SIM_POOL_INDEXER  "indexer"
#define SIM_POOL_CRAWL    "manager"
#define SIM_MAX_PROCESSES 64
#define SIM_ROOT          "s3://bucket/" /* of the managers' object store */
#define SIM_BACKUPS       3              /* the last of them is of the last change of a Brake */

typedef struct Sim Sim;
typedef struct SimWork SimWork;
typedef struct SimRecovery SimRecovery;
typedef struct SimCrawl SimCrawl;
typedef struct SimGrants SimGrants;
typedef struct SimProbes SimProbes;
typedef struct SimSeeds SimSeeds;

/* What can be switched off in a run, besides single occurrences. */
#define SIM_PARTS(X)                    \
    X(FAULTS, "faults")                 \
    X(CALL_FAULTS, "call-faults")       \
    X(COMMIT_CRASHES, "commit-crashes") \
    X(SERVER_MODES, "server-modes")     \
    X(WORK_FAULTS, "work-faults")       \
    X(CLOCKS, "clocks")

typedef enum {
#define X(name, text) SIM_PART_##name,
    SIM_PARTS(X)
#undef X
        SIM_N_PARTS,
} SimPart;

/* What happens to one write. */
#define SIM_INJECTIONS(X)           \
    X(NONE, "none")                 \
    X(CRASH_BEFORE, "crash-before") \
    X(CRASH_AFTER, "crash-after")   \
    X(REPLY_LOST, "reply-lost")     \
    X(REPLY_LATE, "reply-late")

typedef enum {
#define X(name, text) SIM_INJECT_##name,
    SIM_INJECTIONS(X)
#undef X
        SIM_N_INJECTIONS,
} SimInjection;

typedef struct {
    guint64 seed;
    guint managers, agents;
    guint snapshots; /* 0: people begin with none and go up to 70; else begin with so many */
    gint64 chaos_ms;
    guint off;        /* bits (1 << SimPart) */
    GHashTable *only; /* set of the occurrences that happen; NULL: all. Borrowed */
    SimInjection inject;
    guint64 inject_write; /* which, in the order of all writes; from 1 */
    gboolean trace;       /* print everything as it happens */
    gboolean recorded;    /* judge it as a recorded history, too: sim_recorded.c */
    gboolean record;      /* fill SimResult.happened */
} SimOptions;

#define SIM_AGENTS   5
#define SIM_RECOVERY 2 /* recovery nodes, after the agents of the cache pool */
#define SIM_INDEXERS 3 /* after them */
#define SIM_CRAWLERS 3 /* crawl managers, after them */
#define SIM_MANAGERS 3
#define SIM_CHAOS_MS (8 * 60 * 1000)

/* X(field, text, at least so many in 100 runs of the normal size): a run that did too little proves
 * nothing. */
#define SIM_COUNTERS(X)                                          \
    X(crashes, "crashes", 550)                                   \
    X(crashes_at_commit, "crashes at a commit", 80)              \
    X(graceful_stops, "graceful stops", 150)                     \
    X(pauses, "pauses", 480)                                     \
    X(pauses_beyond_lease, "pauses beyond the lease", 230)       \
    X(long_pauses, "pauses of minutes", 9)                       \
    X(cuts, "network cuts", 480)                                 \
    X(resets, "connections reset", 270)                          \
    X(streams_closed, "watch streams cut", 300)                  \
    X(slow_networks, "slow connections", 260)                    \
    X(compactions, "compactions", 680)                           \
    X(lists_spoiled, "lists spoiled", 210)                       \
    X(elections, "etcd leader changes", 210)                     \
    X(freezes, "etcd frozen", 47)                                \
    X(etcd_restarts, "etcd restarts", 35)                        \
    X(backups, "backups of etcd", 220)                           \
    X(restores, "etcd restored from a backup", 12)               \
    X(nospace, "etcd out of space", 34)                          \
    X(clock_jumps, "clock jumps", 350)                           \
    X(revocations, "leases revoked by hand", 110)                \
    X(unregistered, "nodes unregistered by hand", 34)            \
    X(leader_moves, "leaders moved", 41)                         \
    X(expiries, "lease expiries", 1300)                          \
    X(requests_lost, "requests lost", 800)                       \
    X(replies_lost, "replies lost", 890)                         \
    X(late_commits, "late commits", 730)                         \
    X(slow_disks, "slow disks", 190)                             \
    X(full_disks, "full disks", 42)                              \
    X(bad_values, "bad values", 890)                             \
    X(mended, "bad values mended", 770)                          \
    X(invalid_edits, "invalid edits", 170)                       \
    X(edits, "edits of services", 820)                           \
    X(settings_edits, "edits of settings", 140)                  \
    X(services_deleted, "services deleted", 52)                  \
    X(published, "snapshots published", 1600)                    \
    X(retired, "snapshots retired", 130)                         \
    X(cordons, "cordons", 88)                                    \
    X(drains, "drains", 150)                                     \
    X(moved_away, "copies ended by a drain", 50)                 \
    X(errors, "nodes that said they are in error", 100)          \
    X(moved_failing, "copies ended by a node's failure", 20)     \
    X(settled_drained, "nodes drained in the end", 5)            \
    X(confirmations, "brakes confirmed", 130)                    \
    X(restored_brakes, "brakes for a restored etcd", 1)          \
    X(newer_markers, "markers newer than etcd", 0)               \
    X(brakes, "brakes", 190)                                     \
    X(bucket_troubles, "troubles of the bucket", 220)            \
    X(deletions, "deletions decided", 450)                       \
    X(erased, "objects deleted", 1400)                           \
    X(orphans, "orphans decided", 1000)                          \
    X(missing, "missing data said", 1)                           \
    X(uploads, "uploads that took their time", 1000)             \
    X(uploads_again, "uploads begun anew", 1000)                 \
    X(left_young, "orphans that were left", 10)                  \
    X(commits, "commits", 43000)                                 \
    X(fenced_commits, "commits under a fence", 12000)            \
    X(epochs, "epochs that wrote", 1100)                         \
    X(replicas, "replicas created", 4000)                        \
    X(loads, "loads ordered", 6100)                              \
    X(live, "items made live", 5000)                             \
    X(load_failures, "loads failed", 510)                        \
    X(moved_back, "items back on a returned node", 2600)         \
    X(evictions, "evictions ordered", 790)                       \
    X(evicted, "assignments ended by an answer", 1200)           \
    X(lost, "assignments ended by a lost node", 3800)            \
    X(taken_back, "loads taken back", 1)                         \
    X(tasks_published, "recovery tasks published", 2300)         \
    X(tasks_worked, "times a recovery task was worked on", 2600) \
    X(tasks_begun, "recovery tasks assigned", 2600)              \
    X(tasks_done, "recovery tasks retired", 2200)                \
    X(tasks_lost, "exclusive items of failed nodes", 300)        \
    X(partition_edits, "edits of partitions", 1000)              \
    X(plans_written, "plans of partitions written", 750)         \
    X(partitions_taken, "partitions newly taken", 600)           \
    X(partitions_loaded, "partitions to indexers", 3000)         \
    X(seed_edits, "edits of seeds", 1500)                        \
    X(throttle_edits, "edits of throttles", 500)                 \
    X(rebalances, "rebalances asked for", 450)                   \
    X(seeds_begun, "seeds to crawl managers", 4500)              \
    X(seed_moves, "seeds evicted", 1000)                         \
    X(windows_told, "windows handed on", 150)                    \
    X(permits, "permits granted", 60000)                         \
    X(permits_refused, "permits refused", 300000)                \
    X(registrations, "registrations", 1000)                      \
    X(mirror_checks, "mirrors compared", 95000)                  \
    X(fold_checks, "indexes folded anew", 610)                   \
    X(settled_live, "items live in the end", 680)                \
    X(restores_asked, "restores asked for", 900)                 \
    X(restores_withdrawn, "restores withdrawn", 120)             \
    X(restored, "restored replicas created", 700)                \
    X(restore_expiries, "expiries of restored ones", 300)        \
    X(restore_extended, "restored replicas extended", 25)        \
    X(restores_refused, "restores refused", 55)                  \
    X(restores_completed, "restores completed", 450)             \
    X(probes, "probes", 100000)                                  \
    X(probes_missed, "probes missed", 1000)                      \
    X(ills, "nodes that fell ill", 100)                          \
    X(probes_cut, "managers cut off from nodes", 100)            \
    X(marked, "nodes condemned by probes", 50)                   \
    X(on_probation, "nodes on probation", 50)                    \
    X(off_probation, "nodes clean through probation", 20)        \
    X(revoked, "leases to be revoked", 20)                       \
    X(steps, "steps", 730000)                                    \
    X(simulated_s, "simulated seconds", 13000)

typedef struct {
#define X(name, text, least) guint64 name;
    SIM_COUNTERS(X)
#undef X
} SimCounters;

typedef struct {
    gboolean failed;
    char *violation; /* g_free */
    char *tail;      /* the last lines of the trace; g_free */
    guint64 hash;    /* of everything that was traced */
    SimCounters counters;
    gint64 ended_ms;     /* world time of the failure, or of the end */
    GPtrArray *happened; /* char*: the occurrences, in order; with SimOptions.record */
    guint64 writes;      /* by managers and agents */
    guint64 by_process[SIM_MAX_PROCESSES];
} SimResult;

void sim_run(const SimOptions *options, SimResult *out);
void sim_result_clear(SimResult *result);

/* ---- scenarios: options on paper (sim_scenario.c) ---- */

SimOptions sim_options_normal(guint64 seed);
/* Lines "seed 17", "off clocks", "happens cut/3" …; each with its reason on the line above it. */
char *sim_scenario_print(const SimOptions *options, const char *bug);
/* @bug: g_free; NULL: none. options->only is the caller's to unref. */
gboolean sim_scenario_load(const char *path, SimOptions *options, char **bug, GError **error);
/* One line of a scenario; FALSE: not understood. */
gboolean sim_scenario_set(SimOptions *options, char **bug, const char *word, const char *value);
/* The command line that runs @options; only for those that need no scenario file. */
char *sim_command(const SimOptions *options, const char *bug);

/* ---- many runs ---- */

/* sim_batch.c */
typedef struct {
    guint64 first, last;
    guint jobs;
    gint64 until_us;    /* monotonic; no run begins after it. 0: none */
    const char *mark;   /* begins each line */
    const char *bug;    /* NULL: none */
    SimOptions options; /* the seed is filled in */
} SimBatch;

typedef struct {
    SimCounters sum;
    guint64 runs, failed, first_failed;
} SimBatchResult;

void sim_batch_run(const SimBatch *batch, SimBatchResult *out);
/* Runs one and prints what is to be said about its failure. */
gboolean sim_batch_one(const SimBatch *batch, guint64 seed, SimCounters *sum, guint64 *hash);
void sim_counters_print(const SimCounters *counters, const char *mark);
/* What @runs runs of the normal size must at least have been through; NULL: they have. g_free. */
char *sim_counters_lack(const SimCounters *counters, guint64 runs);

/* sim_shrink.c: prints the shortest scenario that it finds, and writes it to @path. */
int sim_shrink(const SimOptions *options, const char *bug, const char *path);
/* sim_inject.c: each @every-th write of a quiet run, with each SimInjection. */
int sim_inject(guint64 seed, guint64 every, guint jobs, gboolean tap);
/* sim_bugs.c: only in sim-bugs; else @name is never found. */
gboolean sim_bug_choose(const char *name);
int sim_bugs_run(const char *only, gboolean tap);
/* A child process that runs @func(@n) for each n below @count that is its, @jobs of them at a time.
 * Returns how many returned FALSE or died; those that died are named. */
guint64 sim_fork_each(guint64 count, guint jobs, gint64 until_us,
                      gboolean (*func)(guint64 n, gpointer data), gpointer data);

/* ---- processes (sim_process.c) ---- */

typedef enum { SIM_DOWN, SIM_UP, SIM_STOPPING } SimState;

#define SIM_BRAKES 2

/* How a node answers its probes. */
typedef enum {
    SIM_WELL,
    SIM_HANGS,
    SIM_ERROR,
    SIM_GARBAGE,
    SIM_REFUSES,
    SIM_FLAPS,
    SIM_N_ILLS,
} SimIll;

typedef struct SimProcess {
    Sim *sim;
    gboolean is_manager;
    char *name;   /* "manager-0", "node-3": the machine; what follows lives on it */
    guint starts; /* … and this is which process on it */
    char *client; /* "node-3#2" */
    SimState state;
    gint64 wall_offset_ms; /* of the machine's clock */
    guint64 writes;
    gboolean doomed;     /* it crashes at once: nothing that it still sends arrives */
    GHashTable *unknown; /* "leader key mod revision" under which the outcome of a decision's
                            transaction is unknown → gint64, world time since when it knows */
    LhEnv *env;
    LhEtcd *etcd;
    /* managers */
    LhMirror *mirror;
    LhMetrics *metrics;
    LhRuntime *runtime;
    LhObjectStore *store;
    LhSweeper *sweeper;
    SimProbes *probes;
    gboolean probes_cut; /* it reaches no node */
    LhTimer *etcd_clock; /* a question to etcd's clock is open */
    void (*clock_done)(gint64 clock_ms, const GError *error, gpointer data);
    gpointer clock_data;
    gint64 mirror_rev;
    guint64 applied;
    guint mirrored;    /* objects in the mirror at mirror_rev */
    guint64 digest;    /* of what its mirror has told */
    guint timeline;    /* of etcd, when the mirror last heard of it */
    gboolean observed; /* its mirror was told something that etcd does not have */
    /* Of cache-evictor and of snapshot-cleaner: it saw that etcd was restored, and nobody has confirmed it. */
    gboolean regressed[SIM_BRAKES];
    gint64 regressed_rev[SIM_BRAKES]; /* … and was at this revision then */
    /* agents */
    const char *pool;
    const char *set, *zone;
    gint64 capacity_bytes, capacity_items;
    GHashTable *disk; /* snapshot → SimData; outlives processes */
    guint disk_slow;  /* loads take so many times as long */
    gboolean disk_full;
    SimWork *work;         /* cache */
    SimRecovery *recovery; /* the others */
    LhAgent *agent;
    SimIll ill;
    const struct SimProcess *unreached_by; /* NULL: all managers reach it */
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

/* ---- a recovery node's work (sim_recovery.c) ---- */

/* Who works on a task. */
typedef struct {
    gpointer owner;
    char *node;   /* id */
    char *policy; /* of a seed with a throttle; else NULL */
    gint64 since_ms;
    guint timeline;
} SimHand;

void sim_hands_init(Sim *sim);
void sim_hands_clear(Sim *sim);
SimRecovery *sim_recovery_new(SimProcess *process);
void sim_recovery_free(SimRecovery *work);
LhAgentWork *sim_recovery_base(SimRecovery *work);
void sim_people_recover(Sim *sim);
/* What nobody can know of the node: it may work on although its work is given away. */
gboolean sim_node_excused(const Sim *sim, const char *node, guint timeline);

/* ---- a crawl manager's permits (sim_crawl.c) ---- */

SimCrawl *sim_crawl_new(SimProcess *process, LhAgentWork *programs);
void sim_crawl_free(SimCrawl *crawl);
LhAgentWork *sim_crawl_base(SimCrawl *crawl);
/* The programs were told to begin the seed, or that it has changed: its policy, or NULL. Borrowed. */
const char *sim_crawl_told(SimCrawl *crawl, const char *seed, const LhAssignment *assignment);
void sim_crawl_forget(SimCrawl *crawl, const char *seed);

/* ---- what crawlers were really granted, over the whole fleet (sim_grants.c) ---- */

typedef struct {
    const char *policy, *node;                  /* @node: id of the holder */
    guint timeline;                             /* of etcd, when it began to hold */
    gint64 requests, period_ms, max_concurrent; /* as the holder knows them */
} SimGrant;

SimGrants *sim_grants_new(void);
void sim_grants_free(SimGrants *grants);
/* A permit is given at this moment; returns its number. Fails the run when it is one too many. */
guint64 sim_grants_given(Sim *sim, const SimGrant *grant);
void sim_grants_returned(Sim *sim, const char *policy, guint64 number);

/* ---- probes (sim_probes.c) ---- */

void sim_probes_begin(Sim *sim);
SimProbes *sim_probes_new(SimProcess *process);
void sim_probes_free(SimProbes *probes);
void sim_probes_set(SimProbes *probes, const char *controller, const LhErrand *errands, guint n);
void sim_probes_sicken(Sim *sim);
void sim_probes_sicken_all(Sim *sim);
void sim_probes_cut(Sim *sim);
/* What is not as it should be yet; NULL: all is. g_free. */
char *sim_probes_check(Sim *sim);

/* ---- seeds and throttles (sim_seeds.c) ---- */

void sim_seeds_begin(Sim *sim);
void sim_seeds_free(Sim *sim);
void sim_seeds_edit(Sim *sim);
void sim_seeds_edit_throttle(Sim *sim);
void sim_seeds_ask_rebalance(Sim *sim);
/* etcd was restored: people know what it has. */
void sim_seeds_restored(Sim *sim);
/* What is not as it should be yet; NULL: all is. g_free. */
char *sim_seeds_check(Sim *sim);
/* After a rebalance that a person asked for, too. */
char *sim_seeds_uneven(Sim *sim);

/* ---- the model (sim_model.c): that of tests/invariants, and what mirrors are compared with ---- */

typedef InvChange SimChange;

typedef struct {
    const FakeCommit *commit;
    SimProcess *by; /* NULL: an operator or etcd itself */
    gboolean alive; /* @by is still the process that sent it */
    gboolean manager, agent;
    const SimChange *changes;
    guint n;
    InvCommit judged; /* the same, for the invariants */
} SimCommit;

void sim_model_init(Sim *sim);
void sim_model_clear(Sim *sim);
const LhObject *sim_get(const Sim *sim, LhKind kind, const char *name);
guint64 sim_digest(LhKind kind, const char *name, gint64 create_rev, gint64 mod_rev, gint64 lease);
/* Of all objects at @revision of this timeline; FALSE: before its beginning. */
gboolean sim_digest_at(const Sim *sim, gint64 revision, guint64 *out);
void sim_model_apply(Sim *sim, const SimCommit *commit);
/* etcd was restored: everything is read again, and what was only remembered is forgotten. */
void sim_model_restored(Sim *sim);

/* sim_recorded.c */
void sim_recorded_begin(Sim *sim);
void sim_recorded_commit(Sim *sim, const SimCommit *commit);
void sim_recorded_end(Sim *sim);

/* ---- invariants ---- */

/* Those that look into processes and at disks; all others are in tests/invariants. */
typedef struct {
    const char *name;
    /* Before the commit is in the model; after it. Either may be NULL. */
    void (*commit)(Sim *sim, const SimCommit *commit);
    void (*after)(Sim *sim, const SimCommit *commit);
} SimInvariants;

extern const SimInvariants sim_invariants_fence;
extern const SimInvariants sim_invariants_protocol;
extern const SimInvariants sim_invariants_retention;
extern const SimInvariants sim_invariants_cleaner; /* sim_store.c */
extern const SimInvariants sim_invariants_probes;  /* sim_probes.c */

void sim_check_commit(const FakeCommit *commit, gpointer sim);
void sim_check_unknown(const char *client, const LhTxnRequest *txn, gpointer sim);
/* sim_invariants_mirror.c: called by the process's mirror listener, and from time to time. */
void sim_check_mirror_applied(SimProcess *process, gint64 revision);
void sim_check_mirror_still(SimProcess *process); /* it has not changed but by going on */
void sim_check_mirror_regressed(SimProcess *process, gint64 from, gint64 to);
/* Somebody has confirmed at @revision; unknown or NULL objects say nothing. */
void sim_note_confirmation(Sim *sim, const LhObject *object, gint64 revision);
/* It has read a marker of the revision. */
void sim_check_newer_marker(SimProcess *process, gint64 revision);
void sim_check_fold(SimProcess *process);

/* ---- sim_parse.c ---- */

GHashTable *sim_parsed_new(void);
/* What lh_object_parse() makes of it; @sim as for LhMirrorParse and InvOptions.parse. */
LhObject *sim_parse(LhKind kind, const char *name, const LhKv *kv, gpointer sim);

/* ---- people and faults ---- */

/* One kind of thing that happens now and then. */
typedef struct {
    const char *name;
    gint64 mean_ms;
    guint always; /* 1: in every run; 2: it only looks, and is no occurrence; else a seed chooses
                     three of four */
    void (*func)(Sim *sim);
} SimActivity;

extern const SimActivity sim_people[]; /* ended by a NULL name */
extern const SimActivity sim_faults[];

void sim_people_begin(Sim *sim);
/* sim_restores.c */
void sim_restores_begin(Sim *sim);
void sim_restores_ask(Sim *sim);
void sim_restores_withdraw(Sim *sim);
/* What is not as it should be yet; NULL: all is. g_free. */
char *sim_restores_check(Sim *sim);
/* What operators do about what waits for them: confirm brakes, unpark. */
void sim_people_attend(Sim *sim, gboolean always);
void sim_people_free(Sim *sim);
/* etcd was restored: they look at what is there now, and mend it. */
void sim_people_restored(Sim *sim);
void sim_faults_rates(SimProcess *process);
void sim_faults_end(Sim *sim); /* heals what heals by itself only in time */
void sim_faults_free(Sim *sim);
FakeFault sim_faults_write(const char *client, gpointer sim); /* a FakeWriteFunc: injection */
/* A process may crash just after a commit of its own. */
void sim_faults_commit(Sim *sim, const SimCommit *commit);

/* Runs @func after @delay_ms, or at once when the faults end. @text is copied. */
typedef void (*SimLaterFunc)(Sim *sim, SimProcess *process, const char *text, gint64 number);
void sim_later(Sim *sim, gint64 delay_ms, SimLaterFunc func, SimProcess *process, const char *text,
               gint64 number);

/* ---- the bucket (sim_store.c) ---- */

typedef struct SimBucket SimBucket;
SimBucket *sim_bucket_new(void);
void sim_bucket_free(SimBucket *bucket);
/* A snapshot's objects; the data plane's. */
void sim_bucket_put(Sim *sim, const char *uri);
/* One object of an upload that takes its time: even parts lie in @uri directly. */
void sim_bucket_put_part(Sim *sim, const char *uri, guint part);
/* What etcd's clock says. */
gint64 sim_etcd_wall(const Sim *sim);
/* The process's way to it; ends with lh_store_free. */
LhObjectStore *sim_store_new(SimProcess *process);
void sim_store_trouble(Sim *sim);

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
    Inv model;
    Recorded *recorded; /* NULL: not asked for */
    /* A sum over all objects (sim_digest), by revision from digest_base on. */
    GArray *digests; /* guint64 */
    gint64 digest_base;
    SimPeople *people;
    guint tasks;         /* recovery tasks that were ever published */
    GHashTable *hands;   /* task → SimHand, of those that are worked on */
    GHashTable *by_hand; /* set of node ids whose registration somebody deleted by hand */
    SimSeeds *seeds;
    SimGrants *grants;
    gint64 least_misses; /* probeMisses, the least that was ever in force */
    SimBucket *bucket;
    guint64 random;        /* state of the main stream of choices */
    guint64 check_random;  /* … of what the checks choose, which must change nothing */
    guint64 *stream;       /* the one in use */
    GPtrArray *activities; /* running ones; sim_run.c */
    GPtrArray *laters;
    guint intensity;       /* of faults, percent */
    gboolean calm;         /* no more faults */
    GHashTable *parsed;    /* what was parsed lately; sim_parse.c */
    GHashTable *confirmed; /* plan hash → gint64, revision of its Confirmation in this history */
    gint64 confirmed_marker; /* newer than etcd, and confirmed in this history; 0: none */
    FakeEtcdBackup *backups[SIM_BACKUPS];
    gint64 backup_ms[SIM_BACKUPS];
    guint64 writes;
    GPtrArray *happened;
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
guint64 sim_check_below(Sim *sim, guint64 n); /* for checks */
gboolean sim_off(const Sim *sim, SimPart part);
guint sim_scale(const Sim *sim); /* how many times the normal size a node has */
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
