/*
 * Records etcd's history while it happens: a watch of the whole prefix from revision 1 through a client
 * that the caller gives, in the caller's loop. It goes on over lost connections. Now and then it asks etcd
 * for its revision, so that it is known how old what it hears can be at most. Started when the cluster begins, it is not hurt by later compactions; one that takes
 * away what it has not heard yet is an error, and so is an etcd that goes back.
 *
 * Loop thread. The client and the env must live longer.
 */
#pragma once

#include "base/env.h"
#include "tests/invariants/recorded.h"

typedef struct Recorder Recorder;

/* @path (may be NULL): a file that is written as it goes, so that it is there when this process dies. */
Recorder *recorder_start(LhEnv *env, LhEtcd *etcd, const char *prefix, const char *path,
                         GError **error);
void recorder_free(Recorder *recorder); /* stops; accepts NULL */
/* The last revision that it has heard of. A watch is silent about revisions without events under the
 * prefix: wait for one that was made by a write there. */
gint64 recorder_revision(const Recorder *recorder);
/* Why it cannot go on, or could not write its file; NULL: nothing. */
const char *recorder_error(const Recorder *recorder);
/* See recorded_by_hand(). */
void recorder_by_hand(Recorder *recorder, gint64 revision);
const Recorded *recorder_history(const Recorder *recorder); /* lives as long as the recorder */
