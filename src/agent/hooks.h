/*
 * Programs of the operator's that the agent runs: --on-load, --on-evict.
 *
 * An argument vector, never a shell. What it needs is in the environment (LEASEHOLD_POOL, _NODE,
 * _ITEM, _ACTION, _SNAPSHOT, _DIR …) and, as JSON, on standard input. Standard error is the
 * agent's. Behind a vtable, so that tests run none. Loop thread; done never inside run, exactly
 * once, never after cancel.
 */
#pragma once

#include "base/env.h"

#include <glib.h>

typedef struct LhHooks LhHooks;
typedef guint64 LhHookRun; /* 0 is never used */

#define LH_HOOK_MAX_OUTPUT (64 * 1024)

typedef struct {
    const char *const *argv; /* NULL-ended */
    const char *const
        *environment;  /* NULL-ended: name, value, name, value …; added to the agent's own */
    const char *input; /* for its standard input */
    gint64 timeout_ms;
} LhHookCall;

/* @output: what it printed, when it exited with 0. Otherwise an error that says how it ended. */
typedef void (*LhHookDone)(const char *output, const GError *error, gpointer data);

typedef struct {
    LhHookRun (*run)(LhHooks *hooks, const LhHookCall *call, LhHookDone done, gpointer data);
    void (*cancel)(LhHooks *hooks, LhHookRun run);
    void (*free)(LhHooks *hooks);
} LhHooksVtable;

struct LhHooks {
    const LhHooksVtable *v;
};

/* The real ones. Each runs in a process group of its own; at the timeout, when cancelled, and when
 * it prints more than LH_HOOK_MAX_OUTPUT the whole group is killed. What it leaves running in the
 * background when it exits by itself is not. Callbacks come on the thread's default main
 * context. */
LhHooks *lh_hooks_new(LhEnv *env);

LhHookRun lh_hooks_run(LhHooks *hooks, const LhHookCall *call, LhHookDone done, gpointer data);
/* Kills *@run if it is not 0, and sets it to 0. */
void lh_hooks_cancel(LhHooks *hooks, LhHookRun *run);
void lh_hooks_free(LhHooks *hooks); /* kills all that run; accepts NULL */

/* A descriptor (close-on-exec) that reads @text from its beginning; -1 with errno. */
int lh_hook_input_fd(const char *text);

/* Splits a command as a shell would split words, once, at the start. Errors: LH_ERR_INVALID. */
char **lh_hook_split(const char *command, GError **error);
