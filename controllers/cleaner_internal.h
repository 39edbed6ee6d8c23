/*
 * Between the files of snapshot-cleaner only: what is due and what stands in the way (cleaner_read.c), what
 * is written (snapshot_cleaner.c, cleaner_orphans.c), what is done outside (cleaner_errands.c).
 */
#pragma once

#include "controllers/brake.h"
#include "controllers/cleaner.h"

#define LH_CLEANER_CLOCKS_MS 60000 /* more than this apart, and no clock is trusted */
#define LH_CLEANER_FRESH_MS  60000 /* a look counts for so long */
#define LH_CLEANER_RENEW_MS  30000 /* and is renewed after this */

typedef struct {
    const char *root;
    const LhObservation *look, *list; /* NULL: not yet */
    const char *hold; /* why nothing there may be deleted; NULL: nothing known against it */
    gint64 newer; /* its marker knows of this later revision than etcd's: only a Confirmation helps;
                       -1: it does not. 0: it has no marker, and should */
    gint64 braked;        /* … and the Brake of a restoration names this one; -1: none */
    gboolean claim;       /* somebody has confirmed exactly that: the marker may be written over */
    gint64 orphaned;      /* objects of orphans there that may be decided */
    LhFleetLately lately; /* objects of those that were, within the brake's window */
    gboolean ready;       /* all that deleting there needs is known, and good */
} LhCleanerRoot;

typedef struct {
    guint going;           /* of what is due, how much no replica keeps */
    const char *exceeding; /* a service of which that is too much; NULL: none */
} LhCleanerMuch;

typedef struct {
    const LhFleet *fleet;
    const LhPlanContext *context;
    const LhSettings *settings;
    const LhBrake *brake; /* the known one; NULL: none */
    gboolean old;         /* it came back with a backup of etcd: it stands for nothing */
    gboolean answered;    /* it is about a restoration, and confirmed */
    gboolean restored;    /* etcd was, and nobody has confirmed it: nothing at all goes */
    LhFleetLately lately; /* Deletions of all services, within the brake's window */
    GArray *roots;        /* LhCleanerRoot */
    GPtrArray *due;       /* LhFleetSnapshot, by name */
    GPtrArray *orphans;   /* LhOrphan that may be decided, by name */
    gint64 next_due_ms;   /* of what is not due yet; 0: nothing */
    /* Of the first root where those orphans are more than brakePercent of what was listed: their objects,
     * and all of them, with what was decided lately. 0: of none. */
    gint64 orphaned, listed;
    LhCleanerMuch much;
    const char *etcd_hold; /* about etcd's clock */
    gboolean etcd_ready;
    gboolean work; /* something is due, decided and not done, or to be written down as an orphan */
} LhCleaner;

/* Everything that follows from the index at context->now_ms. */
void lh_cleaner_read(LhCleaner *cleaner, gconstpointer index, const LhPlanContext *context);
void lh_cleaner_clear(LhCleaner *cleaner);
const LhCleanerRoot *lh_cleaner_root(const LhCleaner *cleaner, const char *uri);
/* What was due at @at_ms, and has not changed after @revision (0: whenever); next_ms may be NULL. */
GPtrArray *lh_cleaner_due(const LhCleaner *cleaner, gint64 at_ms, gint64 revision, gint64 *next_ms,
                          LhCleanerMuch *much);
/* "<the root's hash>@<revision>" for each root whose marker is newer than etcd; g_strfreev. */
char **lh_cleaner_markers(const LhCleaner *cleaner);
/* Of an observation that renews itself: whether it still counts, and whether to ask anew. */
gboolean lh_cleaner_fresh(const LhCleaner *cleaner, const LhObservation *seen);
/* Whether nobody can claim what lies in @uri directly. */
gboolean lh_cleaner_unclaimed(const LhCleaner *cleaner, const char *uri);
/* Whether what a listing told of a directory makes an Orphan, or another one than there is. */
gboolean lh_cleaner_sightable(const LhCleaner *cleaner, const LhObservation *seen);
/* The answer to erasing what @orphan decided; NULL: none yet. */
const LhObservation *lh_cleaner_erased(const LhCleaner *cleaner, const LhOrphan *orphan);
/* A snapshot that was there when @orphan was decided: nothing of it may be deleted. */
gboolean lh_cleaner_claimed_before(const LhCleaner *cleaner, const LhOrphan *orphan);

/* What does not parse may be a snapshot's that lies there. */
gboolean lh_cleaner_unknown_there(const LhCleaner *cleaner, const char *uri);

/* cleaner_orphans.c: sightings, withdrawals, ends. */
void lh_cleaner_plan_orphans(const LhCleaner *cleaner, LhPlan *plan);
/* The open group rests on the grace, the buffer, and that nobody has paused it, all controllers, dry-runs it or
 * brakes it. */
void lh_cleaner_rely_settings(const LhCleaner *cleaner, LhPlan *plan);
/* Decides @orphan; @plan_hash: of the confirmed plan that it is part of, or NULL. */
void lh_cleaner_decide_orphan(const LhCleaner *cleaner, const LhOrphan *orphan,
                              const char *plan_hash, LhPlan *plan);
/* cleaner_errands.c */
void lh_cleaner_errands(gconstpointer index, const LhPlanContext *context, LhErrands *errands);
