/*
 * The limiter of one throttle policy: permits to make requests, for all seeds of the policy together.
 *
 * Never more than `requests` are granted in any window of `period` (a sliding window over the times of the
 * grants, no token bucket), and never more than `maxConcurrent` are out at once. A permit is returned, or its
 * slot is free LH_PERMIT_LIFE_MS after the grant; the sliding window counts it all the same. What is not known,
 * or not remembered exactly, is counted as if it had been granted, and as late as it can have been.
 *
 * Pure but for the random numbers that it is given. Times are monotonic milliseconds of the caller's; one that
 * is less than the last is read as the last. Memory is bounded, whatever the policy says.
 */
#pragma once

#include "api/window.h"

typedef struct LhPermits LhPermits;

typedef struct {
    gint64 requests, period_ms; /* 0: as many as are wanted */
    gint64 max_concurrent;      /* 0: the same */
} LhPermitLimits;

#define LH_PERMITS_AT_ONCE 100    /* that one request can ask for */
#define LH_PERMITS_EXACT   10000  /* up to so many requests times are exact to the millisecond */
#define LH_PERMITS_LOOSE   100000 /* remembered when no maxConcurrent needs them; the newest */

typedef guint64 (*LhPermitsRandom)(gpointer data);

/* @window: what the holders before granted; NULL: nobody knows, and nothing is granted for one period, nor,
 * with maxConcurrent, for LH_PERMIT_LIFE_MS. */
LhPermits *lh_permits_new(const LhPermitLimits *limits, const LhWindow *window, gint64 now_ms,
                          LhPermitsRandom random, gpointer data);
void lh_permits_free(LhPermits *permits); /* accepts NULL */

/* In place: what was granted goes on to count. A longer period that reaches further back than what is
 * remembered is waited for. */
void lh_permits_limit(LhPermits *permits, const LhPermitLimits *limits, gint64 now_ms);
/* What may have been granted elsewhere besides; NULL: nobody knows. */
void lh_permits_add(LhPermits *permits, const LhWindow *window, gint64 now_ms);

/* Grants up to @n (at most LH_PERMITS_AT_ONCE) permits, and puts their ids into @ids; how many. @worker may be
 * NULL. *@retry_ms: when the next one can be granted, if nothing is returned and nobody else is quicker; 0:
 * at once. */
guint lh_permits_take(LhPermits *permits, const char *seed, const char *worker, guint n,
                      gint64 now_ms, guint64 *ids, gint64 *retry_ms);
/* FALSE: unknown, returned already, ended, or not of @seed. */
gboolean lh_permits_return(LhPermits *permits, const char *seed, guint64 id, gint64 now_ms);

/* Takes back every permit of @worker that is out: @func is told of each, oldest first. How many. */
typedef void (*LhPermitsFunc)(const char *seed, guint64 id, gpointer data);
guint lh_permits_take_back(LhPermits *permits, const char *worker, gint64 now_ms,
                           LhPermitsFunc func, gpointer data);

/* Permits that are out, those that were handed over included. */
gint64 lh_permits_in_use(LhPermits *permits, gint64 now_ms);
/* For the next holder. */
void lh_permits_window(LhPermits *permits, gint64 now_ms, LhWindow *out);
