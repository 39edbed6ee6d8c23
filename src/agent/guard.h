/*
 * A program of the operator's that works on an exclusive item, under a watchdog process (watchdog.h): the
 * agent's side of it.
 *
 * An argument vector, never a shell. Loop thread. Callbacks never run inside lh_guard_start; ended comes at
 * most once, over exactly once and last, after which the guard is gone; neither after lh_guard_abandon.
 */
#pragma once

#include "base/env.h"

typedef struct LhGuard LhGuard;

typedef struct {
    const char *const *argv;        /* NULL-ended */
    const char *const *environment; /* NULL-ended: name, value …; added to the agent's own */
    const char *input;              /* for its standard input */
    const char *directory;          /* to run in; NULL: the agent's */
    gint64
        deadline_ms; /* lh_mono_ms() of a real env: all of it is killed then (lh_guard_deadline) */
    gint64 timeout_ms; /* killed after it; 0: none */
    gboolean hold;     /* what it leaves running when it exits lives on until stopped or killed */
    gboolean capture;  /* collects standard output (LH_HOOK_MAX_OUTPUT); else that is the agent's */
} LhGuardCall;

typedef struct {
    void (*started)(gpointer data); /* it runs; may be NULL */
    /* The program itself has come to its end. @output: with capture. @error: it was not started, was
     * killed, or did not exit with 0; its message ends in the last line of standard error. Unless it is
     * held, nothing of it is left. */
    void (*ended)(const char *output, const GError *error, gpointer data);
    void (*over)(gpointer data); /* nothing of it is left */
} LhGuardFuncs;

LhGuard *lh_guard_start(LhEnv *env, const LhGuardCall *call, const LhGuardFuncs *funcs,
                        gpointer data);
void lh_guard_deadline(LhGuard *guard, gint64 deadline_ms);
/* SIGTERM to its group now, SIGKILL to all of it after @grace_ms. */
void lh_guard_stop(LhGuard *guard, gint64 grace_ms);
/* SIGKILL to all of it now. Still answers. */
void lh_guard_kill(LhGuard *guard);
/* The same, without any answer. Accepts NULL. */
void lh_guard_abandon(LhGuard *guard);
