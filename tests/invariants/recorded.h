/*
 * A history that was recorded from a real etcd, and the check of it against the invariants.
 *
 * It is whole: every change below the prefix since the cluster began, revision by revision, each with two
 * times between which it was committed. Who wrote is not recorded: it follows from the keys. What the invariants
 * cannot judge without more facts (compares, which process, disks) they count as skipped.
 *
 * The file is JSON, one object a line:
 *
 *   {"prefix":"/leasehold/"}                            the first line
 *   {"revision":12,"since":1767225600100,"time":1767225600123,"events":[…]}
 *                                                       epoch ms: committed after since (etcd was asked
 *                                                       and had not got there), received at time
 *   {"hand":12}                                         revision 12 was written to etcd directly
 *
 * An event is
 *
 *   {"key":"/leasehold/leaders/x/0000000000000abc","value":"…","create":5,"mod":12,"version":3,
 *    "lease":"0000000000000abc"}                        lease: hex, left out when there is none
 *   {"key":"…","mod":12,"delete":true}
 *
 * key64 and value64 (base64) stand for a key or a value that is no text.
 */
#pragma once

#include "tests/invariants/invariants.h"

#include <stdio.h>

typedef struct Recorded Recorded;

Recorded *recorded_new(const char *prefix);
void recorded_free(Recorded *recorded); /* accepts NULL */
G_DEFINE_AUTOPTR_CLEANUP_FUNC(Recorded, recorded_free)

/* All events of one revision, in order; copied. Revisions must rise. */
void recorded_add(Recorded *recorded, const LhEtcdEvent *events, gsize n, gint64 since_ms,
                  gint64 time_ms);
/* Somebody wrote this revision to etcd directly, past the API: the invariants do not bind people. May be
 * said before the revision is added. */
void recorded_by_hand(Recorded *recorded, gint64 revision);
const char *recorded_prefix(const Recorded *recorded);
gsize recorded_len(const Recorded *recorded);       /* revisions */
gint64 recorded_revision(const Recorded *recorded); /* the last one; 0: none */

/* The lines of the file. */
char *recorded_head_line(const Recorded *recorded);
char *recorded_line(const Recorded *recorded, gsize i); /* of the @i-th revision */
char *recorded_hand_line(gint64 revision);
gboolean recorded_save(const Recorded *recorded, const char *path, GError **error);
Recorded *recorded_load(const char *path, GError **error);

/* ---- the check ---- */

typedef struct {
    /* By how much wall clocks of the machines, the recorder's included, may differ. */
    gint64 clock_ms;
    /* How long before its commit something may have been decided: what a proxy holds back. */
    gint64 late_ms;
} RecordedTolerance;

#define RECORDED_TOLERANCE ((RecordedTolerance){.clock_ms = 1000, .late_ms = 30000})
#define RECORDED_SAYS      50 /* so many violations are kept; all are counted */

typedef struct {
    guint64 commits, changes, kinds[LH_N_KINDS + 1];
    InvCounters counters;
    guint64 did[INV_N_GROUPS], skipped[INV_N_GROUPS], failed[INV_N_GROUPS];
    guint64 violations;
    GPtrArray *said; /* char* */
} RecordedResult;

/* A history that is not whole, and one in which nothing could be checked, is a violation of the group
 * "model". */
void recorded_check(const Recorded *recorded, const RecordedTolerance *tolerance,
                    RecordedResult *out);
void recorded_result_clear(RecordedResult *result);
/* Lines for people, each begun with @mark. */
void recorded_result_print(const RecordedResult *result, const char *mark, FILE *out);
