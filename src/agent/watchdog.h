/*
 * The watchdog process: between the agent and a program that works on an exclusive item.
 *
 * It is this binary again (`/proc/self/exe watchdog …`), so that it lives on when the agent hangs, is
 * stopped or dies. It starts the program in a process group of its own and kills it, and whatever
 * it has left behind, at the deadline that the agent named last, and when the agent's end of the control
 * socket closes. Descendants that have left the group are found because they become its own children
 * (PR_SET_CHILD_SUBREAPER); should the watchdog be killed, the program dies with it
 * (PR_SET_PDEATHSIG).
 *
 * Between its start and its end it takes no lock and allocates nothing. guard.c is the agent's side.
 */
#pragma once

#include <glib.h>

#define LH_WATCHDOG_ARG "watchdog"
/* After the program's end: "once" kills what it left behind and ends, "hold" lets that run until the
 * agent or the deadline ends it. */
#define LH_WATCHDOG_ONCE "once"
#define LH_WATCHDOG_HOLD "hold"

/* The descriptor that it is started with: one end of a socket pair (SOCK_SEQPACKET). */
#define LH_WATCHDOG_CONTROL 3

/* What the agent sends. */
typedef struct {
    /* CLOCK_BOOTTIME, milliseconds: all must have ended by then. The program is started when the first has
     * come, unless it is past. */
    gint64 deadline_ms;
    /* Not 0: the program's group gets SIGTERM now, and everything SIGKILL after so many milliseconds. */
    gint64 stop_ms;
} LhWatchdogOrder;

typedef enum {
    LH_WATCHDOG_STARTED,
    LH_WATCHDOG_NOT_STARTED, /* value: errno */
    LH_WATCHDOG_ENDED,       /* value: as wait() says; of an "once" nothing of it is left */
} LhWatchdogWhat;

/* What it answers. */
typedef struct {
    gint32 what, value;
} LhWatchdogReport;

/* @argv: "watchdog", "once" or "hold", the program, its arguments. Returns the exit code. */
int lh_watchdog_main(int argc, char **argv);
