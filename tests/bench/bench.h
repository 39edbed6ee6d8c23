/*
 * What every row of the benchmark stands on: one etcd with its data on disk, one client of our own, one
 * main loop, and an end that leaves nothing behind.
 *
 * There is one Bench in a process. What goes wrong ends the program with one line (bench_fail), after its
 * children were stopped by their pids and its directories removed; so does Ctrl-C, at the next wait.
 * Calls block and run the main loop meanwhile. Times are microseconds of the monotonic clock.
 */
#pragma once

#include "base/env.h"
#include "etcd/etcd.h"
#include "table.h"
#include "tests/fakes/etcd_process.h"

#define N_FLEETS   3
#define N_EXPIRIES 3

typedef struct {
    guint replicas, nodes;  /* the cluster of most rows */
    guint few, many;        /* replicas of the other two clusters of row d */
    guint snapshots;        /* of rows e, f, j and m */
    guint fleets[N_FLEETS]; /* snapshots of row x, and how many expire */
    guint expiries[N_EXPIRIES];
    guint at_once;                         /* expiries of row y, of ten times as many snapshots */
    guint services, partitions;            /* of row p */
    guint seeds, policies, crawlers;       /* of rows s and t */
    guint probed;                          /* nodes of row n */
    gint64 probe_period_ms, probe_periods; /* how many of them are looked at */
    guint limit_keys;                      /* of one round of row a */
    guint limit_rounds, converge_rounds, start_rounds, handover_rounds;
    guint samples; /* of rows c, d and i */
    guint watchers, requests_per_s;
    guint objects;         /* of row h */
    gint64 object_bytes;   /* of all of them */
    guint permit_requests; /* of row l, for each line */
    gint64 idle_ms;        /* how long idleness is looked at */
    gint64 settle_ms;      /* a manager that is quiet for so long is at rest */
} Sizes;

typedef struct {
    Sizes sizes;
    const char *log_level; /* of the managers; NULL: as shipped */
    EtcdProcess *etcd;
    LhEnv *env;
    LhEtcd *client;
    char *dir; /* logs and files; removed at the end */
    Table *table;
} Bench;

extern Bench bench;

/* Registers what ends the program in an orderly way. Rows that need no etcd can run then. */
void bench_begin(const Sizes *sizes);
/* Starts etcd and connects. */
void bench_connect(void);
/* Ends all that was started, prints the table, and ends the program with code 0. */
G_NORETURN void bench_finish(void);
/* The same with one line on standard error, and code 1. */
G_NORETURN void bench_fail(const char *format, ...) G_GNUC_PRINTF(1, 2);
/* Ends like bench_fail when @error is set. */
void bench_must(const GError *error, const char *what);
/* A file, or a directory and all that is in it; links are not followed. */
void bench_remove(const char *path);
/* One line on standard error. */
void bench_say(const char *format, ...) G_GNUC_PRINTF(1, 2);

/* Children that are killed (SIGKILL) and waited for at the end, unless they were forgotten before. */
void bench_remember_child(GPid pid);
void bench_forget_child(GPid pid);

/* Called once at the end, however the run ends; NULL: nothing any more. There is room for one. */
void bench_at_end(GDestroyNotify func, gpointer data);

typedef gboolean (*Check)(gpointer data);
/* Until @check is true; it is asked after each turn of the loop. Fails after @within_ms: the words say
 * what was waited for. */
void bench_wait(Check check, gpointer data, gint64 within_ms, const char *format, ...)
    G_GNUC_PRINTF(4, 5);
/* However long it takes, as long as it goes on: fails when @progress has said the same for @within_ms. */
void bench_wait_going(Check check, guint64 (*progress)(gpointer data), gpointer data,
                      gint64 within_ms, const char *format, ...) G_GNUC_PRINTF(5, 6);
/* The same as bench_wait for what the loop does not see: asked every @every_ms. */
void bench_poll(Check check, gpointer data, guint every_ms, gint64 within_ms, const char *format,
                ...) G_GNUC_PRINTF(5, 6);
/* Lets the loop run for so long. */
void bench_pause(gint64 ms);

static inline gint64 now_us(void)
{
    return g_get_monotonic_time();
}
