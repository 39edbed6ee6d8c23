/*
 * What a pool's node really does with an item: loads it, serves it, releases it.
 *
 * Implemented by cache_work.c (files on a disk), program_work.c (programs that work on exclusive items),
 * and by the simulation (virtual work). Loop thread.
 * The agent calls, the work answers through LhWorkFuncs, never inside a call. At most one thing is
 * under way for an item: load is answered by exactly one of ready, finished, failed, unless release
 * comes first, which is answered by exactly one released (after it the load is never answered).
 * release may be called again after a released with an error. drop ends everything without an
 * answer.
 */
#pragma once

#include "api/decided.h"

typedef struct LhAgentWork LhAgentWork;

typedef struct {
    /* So many bytes of assignment->size_bytes are there. As often as convenient. */
    void (*progress)(const char *item, gint64 bytes_done, gpointer data);
    /* All of it is there and checked: it may be announced. @url: where it is served; NULL:
     * nowhere. */
    void (*ready)(const char *item, const char *url, gpointer data);
    /* The work has come to its end by itself (pools whose items end by "done"); nothing is held. */
    void (*finished)(const char *item, gpointer data);
    /* It cannot be held; nothing is held, nothing half-loaded is left. Also for what was ready
     * before. */
    void (*failed)(const char *item, const GError *error, gpointer data);
    /* Nothing is held any more; with an error: something still is, and the agent asks again
     * later. */
    void (*released)(const char *item, const GError *error, gpointer data);
} LhWorkFuncs;

typedef struct {
    /* Once, before anything else. @funcs lives as long as the work is used. */
    void (*attach)(LhAgentWork *work, const LhWorkFuncs *funcs, gpointer data);
    /* @assignment is valid during the call; take a reference to keep it. */
    void (*load)(LhAgentWork *work, const char *item, const LhAssignment *assignment);
    /* A newer load of what is being loaded or held. TRUE: it is the same thing, updated in place.
     * FALSE: it is another thing; the agent will release this one and load that one. */
    gboolean (*update)(LhAgentWork *work, const char *item, const LhAssignment *assignment);
    /* From (TRUE) and until (FALSE) when others may use a ready item. May be NULL. */
    void (*serve)(LhAgentWork *work, const char *item, gboolean on);
    void (*release)(LhAgentWork *work, const char *item);
    /* Exclusive pools: all work must have ended by @mono_ms, unless this is called again. Comes with
     * each renewal of the lease, first of all after the registration. May be NULL. */
    void (*deadline)(LhAgentWork *work, gint64 mono_ms);
    /* Forgets all items at once: loads end, nothing is served, whole data stays. */
    void (*drop)(LhAgentWork *work);
    /* The newest order is to hold the item (TRUE), or to let it go (FALSE): with each order, before anything
     * follows from it. A load that comes later without an order says TRUE too. May be NULL. */
    void (*ordered)(LhAgentWork *work, const char *item, gboolean hold);
    /* `window` of an item of which nothing is held any more, as of now; NULL: it has none. g_free. Asked for
     * each time the item is written. May be NULL. */
    char *(*window)(LhAgentWork *work, const char *item);
    /* That (evicted, failed or done) is committed. May be NULL. */
    void (*told)(LhAgentWork *work, const char *item);
    /* The item, of which nothing is held, has been erased. May be NULL. */
    void (*forget)(LhAgentWork *work, const char *item);
    /* Snapshots whose data is whole on the disk, most recent first. NULL: none. g_strfreev. */
    char **(*warm)(LhAgentWork *work);
} LhAgentWorkVtable;

struct LhAgentWork {
    const LhAgentWorkVtable *v;
};
