/*
 * Permits as crawlers see them: threads that ask every crawl manager for permits of every seed, whoever holds
 * it, and a ledger of all that was granted, by whomever.
 *
 * What it says is exact. A permit was granted at some moment between the beginning of its request and the end of
 * the answer (CLOCK_MONOTONIC, one machine): a window is exceeded when so many permits lie within it wherever
 * in their intervals they were granted, and so many are out at once when so many had been granted before and
 * none of them was asked to be taken back. What nobody answered counts as not granted.
 */
#pragma once

#include <glib.h>

typedef struct Ledger Ledger;

typedef struct {
    const char *name;
    gint64 requests, period_ms; /* 0: no limit */
    gint64 max_concurrent;      /* 0: no limit */
} LedgerPolicy;

/* An answer to a request for permits. */
typedef struct {
    guint client, seed; /* numbers */
    gint64 from_us, to_us;
    int status; /* of HTTP; 0: none */
    guint granted;
} LedgerAnswer;

/* @policies lives as long as the ledger. */
Ledger *ledger_new(const LedgerPolicy *policies, guint n);
void ledger_free(Ledger *ledger); /* stops */
/* Before the first client. @policy: its number; returns the seed's. */
guint ledger_seed(Ledger *ledger, const char *name, guint policy);
/* Asks the server at @url from now on; returns its number. */
guint ledger_client(Ledger *ledger, const char *url);
/* Returns when nothing of it is on its way, and nothing will be … */
void ledger_pause(Ledger *ledger, guint client);
/* … until here. */
void ledger_resume(Ledger *ledger, guint client);
gint64 ledger_now_us(void);
/* The last that this client has heard: how many answers so far. */
guint ledger_answered(Ledger *ledger, guint client);
/* Of this seed, in requests that began at this moment or later, by whomever; so far. */
guint ledger_granted(Ledger *ledger, guint seed, gint64 since_us);

/* No more requests; all that is below is for afterwards. */
void ledger_stop(Ledger *ledger);
/* LedgerAnswer of all clients, in no order. */
const GArray *ledger_answers(const Ledger *ledger);
/* What exceeded a policy (g_free); NULL: nothing. */
char *ledger_exceeded(const Ledger *ledger);
/* The most that were granted within one window; the most that were out at once; all. */
typedef struct {
    gint64 within, at_once, granted;
} LedgerMost;
LedgerMost ledger_most(const Ledger *ledger, guint policy);
