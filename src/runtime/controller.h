/*
 * What a controller is to the runtime: a row of a table. Pure; no state of its own.
 *
 * An index is a fold over the mirror's changes; controllers that look at the same things share one index
 * type, of which the runtime keeps one instance. plan() reads the index and its context and nothing else.
 * Folding one change at a time and folding everything again give the same index: an index holds no
 * history and no dirty marks, only what the present objects say, arranged so that what needs work is
 * found without looking at the rest.
 */
#pragma once

#include "api/decided.h"
#include "runtime/plan.h"

typedef struct {
    const char *name;
    gpointer (*new)(void);
    void (*free)(gpointer index);
    /* @before or @after may be NULL, not both; either may be an unknown object. The index takes its own
     * references. Returns FALSE when no controller needs to look (progress in an item). */
    gboolean (*fold)(gpointer index, const LhObject *before, const LhObject *after);
} LhIndexType;

typedef struct {
    gint64 now_ms;   /* epoch */
    gint64 revision; /* of the mirror that the index was folded from */
    gint64
        epoch; /* create revision of the leader key; 0 when nobody leads here (plan shown only) */
    /* Epoch ms since when this instance leads, and its wall clock has not jumped: waits that must be its own
     * begin here. */
    gint64 led_ms;
    gint64
        ahead_ms; /* the wall clock has gained on the monotonic one since led_ms; no jump, so little */
    gboolean
        regressed; /* etcd went back in time, and nobody has confirmed since: brake deletions */
    gint64 regressed_rev; /* … and this is the revision of the first list after it */
    guint max_groups;     /* budget; a controller that stops there sets plan->more */
    gconstpointer also;   /* the index of LhController.also */
} LhPlanContext;

/* Now, for waits that no clock may shorten: as led_ms, and from there on by the monotonic clock. */
static inline gint64 lh_steady_ms(const LhPlanContext *context)
{
    return context->now_ms - context->ahead_ms;
}

/* A Brake of a plan that was made before etcd went back came with the backup: it stands for nothing, even
 * if it is confirmed. Revisions tell, not times: clocks of different machines wrote those. One that others
 * made in between, before this instance heard of it, counts as old too, and is asked for once more. */
static inline gboolean lh_brake_is_old(const LhBrake *brake, gint64 regressed_rev)
{
    return brake->revision < regressed_rev;
}

/* Something to be done outside etcd, as long as it is in the list. Its answer is the Observation
 * "<controller>/<id>" with the same token and attempt; one that failed comes again, when the controller
 * asks for it with another attempt. */
typedef struct {
    const char *id;        /* a valid name; unique in the list */
    const char *what;      /* static storage: a word that who does it knows */
    const char *uri;       /* NULL: none */
    gint64 token, attempt; /* another token or attempt is another errand */
    gint64 number;         /* what else it needs; not compared */
    /* Of one that is done again and again: how often, how long it may take, after how many failures in a
     * row nothing more is told. Not compared. */
    gint64 period_ms, timeout_ms, most;
} LhErrand;

typedef struct {
    GArray *errands; /* LhErrand, in the order of their urgency */
    GStringChunk *strings;
    gint64 wake_ms; /* when it would next say something else; 0: only on a change */
} LhErrands;

LhErrands *lh_errands_new(void);
void lh_errands_free(LhErrands *errands);
/* Copies id and uri. */
void lh_errands_add(LhErrands *errands, LhErrand errand);
void lh_errands_wake(LhErrands *errands, gint64 at_ms); /* the earliest of all calls counts */

/* Who does errands: the manager's outside, or the simulation's. */
typedef struct {
    /* All that @controller wants done now. Starts what is new, goes on with what was there (same id, token
     * and attempt), cancels what is not wanted any more; what was cancelled is not observed. @n 0: nothing;
     * said at the latest when leadership ends or the lease's deadline passes. Must not observe inside this
     * call. Strings are the caller's. */
    void (*set)(const char *controller, const LhErrand *errands, guint n, gpointer data);
    /* The lease's local deadline is @mono_ms now: what works on threads of its own begins nothing outside after
     * it, as the loop that would cancel it may stand still. May be NULL. */
    void (*until)(gint64 mono_ms, gpointer data);
} LhOutside;

typedef void (*LhGaugeFunc)(const char *name, const char *labels, double value, gpointer data);

typedef struct {
    const char *name;
    const LhIndexType *index;
    const LhIndexType *also; /* a second one that it reads; NULL: none */
    guint64 kinds;           /* bits (1 << LhKind) whose changes make it plan again */
    gint64 quiet_ms;         /* a debounce that no setting shortens */
    void (*plan)(gconstpointer index, const LhPlanContext *context, LhPlan *plan);
    /* What should be done outside now: pure and level-triggered, like plan(). Asked after each plan. May be
     * NULL. */
    void (*errands)(gconstpointer index, const LhPlanContext *context, LhErrands *errands);
    /* Of all that errands() reads of the index, in few steps: as long as it is the same, and the time that
     * errands() named has not come, it is not asked again. May be NULL: asked each time. */
    guint64 (*errands_digest)(gconstpointer index);
    /* Fleet gauges, given by the leading instance only. May be NULL. @names: NULL-ended, the families. */
    void (*gauges)(gconstpointer index, gint64 now_ms, LhGaugeFunc gauge, gpointer data);
    const char *const *gauge_names;
    /* Settings in force (accepted or default). */
    const LhSettings *(*settings)(gconstpointer index, const char *controller);
    gboolean
        plans_paused; /* it is asked while it is paused too, and decides itself what is left to do */
} LhController;

/* By its own Settings, or by those that are called "all". */
static inline gboolean lh_controller_paused(const LhController *controller, gconstpointer index)
{
    return controller->settings(index, controller->name)->paused ||
           controller->settings(index, LH_SETTINGS_ALL)->paused;
}

G_DEFINE_AUTOPTR_CLEANUP_FUNC(LhErrands, lh_errands_free)

#define LH_KIND_BIT(kind) (G_GUINT64_CONSTANT(1) << (kind))
