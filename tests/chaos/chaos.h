/*
 * A chaos run: three etcd members, three managers, six cache agents and three crawl managers as real processes, a real
 * S3 server, people and publishers at work all the time, and faults that a seed chooses. Afterwards everything must
 * come to rest, and etcd's complete history must be right.
 *
 *   main.c      arguments, the phases of a run, the table
 *   machines.c  the processes, and who starts them again
 *   islands.c   network namespaces
 *   net.c       links: what lies between a process and its servers
 *   faults*.c   the table of faults, and what each does
 *   schedule.c  which fault comes when
 *   load.c      snapshots and edits
 *   reader.c    reads from the agents what etcd says can be read there
 *   counts.c    how much happened
 *   bugs.c      planted bugs, which a run must find; planted.c is what has them
 *   crawl.c     seeds, whose work leaves traces, and what those must say
 *   judge.c     what must be so at the end; the history itself is judged by tests/invariants
 *
 * All of it runs on the main loop of one thread; what blocks it blocks for a second or two at most.
 */
#pragma once

#include "net.h"
#include "tests/fakes/s3_process.h"
#include "tests/integration/harness.h"
#include "tests/integration/s3_snapshots.h"
#include "tests/invariants/recorder.h"

#define CHAOS_MEMBERS  3
#define CHAOS_MANAGERS 3
#define CHAOS_AGENTS   6 /* of the cache */
#define CHAOS_CRAWLERS 3
#define CHAOS_MACHINES (CHAOS_MANAGERS + CHAOS_AGENTS + CHAOS_CRAWLERS)
#define CHAOS_ISLANDS  3
#define CHAOS_BUCKET   "snapshots"
#define CHAOS_LEASE_MS 5000

typedef struct Chaos Chaos;
typedef struct Load Load;
typedef struct Reader Reader;
typedef struct Schedule Schedule;

/* X(field, text, at least so many in a run of CI's size) */
#define CHAOS_COUNTERS(X)                                  \
    X(published, "snapshots published", 50)                \
    X(retired, "snapshots retired", 5)                     \
    X(edits, "edits of services", 6)                       \
    X(invalid_edits, "invalid edits", 2)                   \
    X(bad_values, "snapshots overwritten with rubbish", 2) \
    X(settings_edits, "edits of settings", 2)              \
    X(confirmations, "brakes confirmed", 0)                \
    X(reads, "files read from agents under faults", 40)    \
    X(restarts, "processes started again", 4)              \
    X(loads, "loads", 80)                                  \
    X(loaded_bytes, "bytes loaded", 4000000)               \
    X(evictions, "evictions", 5)                           \
    X(deletions, "snapshots whose data was deleted", 1)    \
    X(seeds, "seeds that were begun", 10)                  \
    X(handed, "seeds that went to another node", 1)        \
    X(registrations, "registrations of agents", 8)         \
    X(failovers, "changes of a controller's leader", 5)    \
    X(revisions, "revisions", 600)                         \
    X(checks, "checks of history", 1500)

typedef struct {
#define X(field, text, least) guint64 field;
    CHAOS_COUNTERS(X)
#undef X
} ChaosCounters;

/* ---- options ---- */

typedef struct {
    guint64 seed;
    gint64 chaos_ms; /* how long faults come */
    char **only;     /* names of faults; NULL: all */
    gboolean keep;   /* logs and history, after a success too */
    gboolean verbose;
    const char *bug; /* a planted one; NULL: none */
    gboolean
        unguarded; /* managers do not notice that their lease is over: only the fence is left */
} ChaosOptions;

/* ---- islands (islands.c) ---- */

typedef struct Island Island;

/* Puts this process, which must have one thread yet, into a network of its own, and makes so many islands in
 * it: namespaces that reach this one over a link of their own. FALSE: not permitted, and *why says what
 * was refused (g_free). */
gboolean islands_begin(guint n, char **why);
void islands_end(void);
Island *island_nth(guint i);                      /* NULL: there are none */
const char *island_outside(const Island *island); /* address by which those on it reach us */
const char *island_inside(const Island *island);  /* its own */
/* "nsenter" and so on: what comes before the words of a program that runs on it; NULL-ended. */
const char *const *island_enter(const Island *island);
/* Cuts the link; or only its way to the island. */
void island_cut(Island *island);
void island_cut_inwards(Island *island);
void island_join(Island *island);

/* ---- machines (machines.c) ---- */

/* Where a manager or an agent lives: its name, data and links outlive its processes. */
typedef struct {
    Chaos *chaos;
    gboolean manager;
    char *name;
    const char *pool; /* NULL: a manager */
    const char *set, *zone;
    Island *island; /* NULL: on the loopback of all others */
    Link *etcd[CHAOS_MEMBERS], *s3;
    Proc *proc; /* the present one, or the last */
    gboolean frozen;
    gboolean taken;  /* by a fault; nobody else touches it */
    gboolean down;   /* on purpose: not to be started yet */
    gboolean judged; /* that it ended has been looked at */
    gint64 ended_us;
} Machine;

void machines_start(Chaos *chaos); /* returns when all serve */
void machines_free(Chaos *chaos);
void machine_kill(Machine *machine);
void machine_freeze(Machine *machine);
void machine_thaw(Machine *machine);
/* Starts again what has ended; from time to time. FALSE: something ended as nothing may (chaos_wrong). */
void machines_look(Chaos *chaos);
/* NULL: it does not serve yet. */
const char *machine_url(Machine *machine);
/* A free one, chosen by the seed, often the manager that leads; NULL: none. */
Machine *machine_choose(Chaos *chaos, gboolean manager, gboolean agent);

/* ---- faults (faults.c, faults_etcd.c) ---- */

typedef struct Fault Fault;

/* One time that a fault happens. */
typedef struct {
    const Fault *fault;
    Machine *machine;
    guint member;
    guint choice; /* free for the fault */
    gint64 began_ms, until_ms;
    guint step;
    gint64 number;
    gpointer job;    /* what is asked on a thread */
    guint64 touched; /* what it has met; 0: nothing, it does not count */
} Occurrence;

typedef enum {
    FAULT_ANY,
    FAULT_ETCD,   /* one at a time: each takes one member's share of the quorum, or all */
    FAULT_S3,     /* one at a time */
    FAULT_ISLAND, /* needs namespaces */
} FaultNeeds;

struct Fault {
    const char *name, *what;
    FaultNeeds needs;
    gint64 min_ms, max_ms; /* how long it lasts */
    guint least;           /* in a run of CI's size */
    /* FALSE: not now. */
    gboolean (*begin)(Chaos *chaos, Occurrence *occurrence);
    /* Called when its time is over, and until it returns TRUE: everything is as before. */
    gboolean (*end)(Chaos *chaos, Occurrence *occurrence);
};

extern const Fault faults_of_processes[], faults_of_etcd[]; /* ended by a NULL name */

Schedule *schedule_new(Chaos *chaos);
void schedule_free(Schedule *schedule);
/* NULL, or the name in @only that is no fault. */
const char *schedule_unknown(char *const *only);
void schedule_start(Schedule *schedule);
/* Each kind has happened as often as a run of CI's size wants. */
gboolean schedule_is_enough(const Schedule *schedule);
/* No new faults; those that last end at once. */
void schedule_stop(Schedule *schedule);
gboolean schedule_is_calm(World *world, gpointer schedule);
const char *schedule_going(const Schedule *schedule); /* one that still lasts, or "none" */
/* Each fault with its count, as comments; what was too seldom is added to @lack. */
void schedule_print(Schedule *schedule, GString *lack);
void schedule_list(void);

/* ---- load (load.c), reader (reader.c) ---- */

Load *load_new(Chaos *chaos);
/* When no callback of its writes can come any more. */
void load_free(Load *load);
void load_begin(Load *load); /* settings and services, once; returns when they are written */
void load_start(Load *load);
void load_halt(Load *load);    /* begins nothing more */
void load_stop(Load *load);    /* returns when all that was begun has been answered */
void load_confirm(Load *load); /* releases every brake */
const S3File *load_files(const char *name, guint *n); /* of the snapshot */

Reader *reader_new(Chaos *chaos);
void reader_free(Reader *reader);
void reader_start(Reader *reader);
void reader_halt(Reader *reader);
void reader_stop(Reader *reader);

/* ---- counts (counts.c) ---- */

/* What the mirror shows from now on is counted; of what comes and goes between two lists nothing. */
void counts_begin(Chaos *chaos);
void counts_end(Chaos *chaos);

/* ---- seeds (crawl.c) ---- */

/* The keys below desired/, and their values, of policies and seeds; NULL-ended pairs, static. */
const char *const *crawl_keys(void);
/* NULL: each seed is live on one node, those of a policy on the same one; else why not. g_free. */
char *crawl_unrest(World *world);
/* By the lines of their work: nobody had begun a seed, or one of its policy, before the last one on another node had
 * ended. Counts; what is wrong is added to chaos->wrong. */
void crawl_judge(Chaos *chaos);

/* ---- the end (judge.c) ---- */

/* Everything comes to rest: all is up, one leads each controller, every replica that
 * is wanted is live and searchable and nothing else is there, no plan has an op, and what agents serve is
 * what was put. What is not so is added to chaos->wrong. */
void judge_rest(Chaos *chaos);
/* All that etcd has recorded, against the invariants. What is wrong is added to chaos->wrong. */
void judge_history(Chaos *chaos);

/* ---- planted bugs (bugs.c) ---- */

/* Runs this program with each of the first @most planted bugs of a table: each must be found. TAP; the exit code. */
int bugs_run(const char *self, guint most);

/* ---- all of it ---- */

struct Chaos {
    ChaosOptions options;
    World *world;
    S3Process *s3;
    Net *net;
    Machine machines[CHAOS_MACHINES];
    char *access_file, *secret_file;
    const char *no_islands; /* why there are none; NULL: there are */
    GRand *rand;            /* the schedule's */
    GString *log;           /* what was done when */
    GString *wrong;         /* what must not have happened */
    gint64 began_us;
    gboolean calm;      /* no more faults */
    gint frozen_member; /* of etcd; -1: none */
    gint64 compacted;   /* up to this revision, or tried */
    gboolean full;      /* etcd has refused what it has no space for */
    guint junk;
    gint64 last_revision; /* of the history */
    ChaosCounters counters;
    Load *load;
    Reader *reader;
    Schedule *schedule;
    Recorder *recorder;
    GHashTable *leaders; /* of counts.c */
};

gint64 chaos_ms(const Chaos *chaos); /* since the beginning */
void chaos_say(Chaos *chaos, const char *format, ...) G_GNUC_PRINTF(2, 3);
void chaos_wrong(Chaos *chaos, const char *format, ...) G_GNUC_PRINTF(2, 3);
