/*
 * The work of an exclusive pool: programs of the operator's, each under a watchdog (guard.h).
 *
 * In pools whose items end by themselves (recovery, worker) --exec runs once for an item: exit 0 is done,
 * anything else failed, with the last line of its standard error. In the others (indexer, manager)
 * --on-load prepares, --exec runs as long as the item is held and must not end before (but in the pool
 * manager exit 0 is done), and --on-evict releases; each is optional. What --on-load leaves running is killed
 * with the item. A seed whose policy, state or priority alone is changed is updated in place, and its programs
 * run on. The environment has LEASEHOLD_POOL, _NODE, _ITEM, _ACTION, with a partition _PARTITION,
 * _START_OFFSET, _END_OFFSET, with a seed _SEED, _PERMITS_URL; standard input the assignment as JSON. Loop
 * thread.
 */
#pragma once

#include "agent/work.h"
#include "base/env.h"

typedef struct LhProgramWork LhProgramWork;

typedef struct {
    const char *pool;
    gboolean ends;               /* an item ends by itself */
    gboolean may_end;            /* it is held, and done when exec exits with 0 */
    const char *permits_url;     /* a seed's name is to be added; NULL: none */
    const char *const *exec;     /* NULL-ended; NULL: none */
    const char *const *on_load;  /* the same */
    const char *const *on_evict; /* the same */
    const char *directory;       /* to run programs in; NULL: the agent's */
    gint64 hook_timeout_ms;      /* of on-load and on-evict */
    gint64 exec_timeout_ms;      /* of exec in a pool whose items end; 0: none */
    gint64 stop_ms;              /* from SIGTERM to SIGKILL when an item is released */
} LhProgramWorkOptions;

/* Strings and vectors of @options outlive the work. @env must be a real one: deadlines go to other
 * processes. */
LhProgramWork *lh_program_work_new(LhEnv *env, const LhProgramWorkOptions *options);
void lh_program_work_set_node(LhProgramWork *work, const char *node); /* "<node name>-<8 hex>" */
LhAgentWork *lh_program_work_base(LhProgramWork *work);
/* Kills all that runs, and waits (2 s at most, on the default main context) for its end; accepts NULL. */
void lh_program_work_free(LhProgramWork *work);
