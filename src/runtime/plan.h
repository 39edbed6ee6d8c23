/*
 * What a controller decided: groups of ops, each group unsplittable, each op with its rule and reason.
 *
 * Pure: no I/O, clock, random or log; controllers fill a plan, the executor carries it out, the API shows
 * it. A plan is safe in any order and any subset of its groups: every op compares its target's mod
 * revision, and every group what its decision relied on. Loop thread.
 *
 *   lh_plan_begin(plan);
 *   lh_plan_put(plan, LH_KIND_REPLICA, name, &replica, 0, "missing", "set %s has no copy %d", …);
 *   lh_plan_rely(plan, LH_KIND_SNAPSHOT, snapshot->o.name, snapshot->o.mod_rev);
 *   lh_plan_end(plan);
 *
 * Memory: strings live in the plan's own chunk until lh_plan_free.
 */
#pragma once

#include "api/decided.h"
#include "api/object.h"

typedef enum { LH_OP_PUT, LH_OP_DELETE } LhOpType;

typedef struct {
    LhOpType type;
    LhKind kind;
    const char *name;
    const char *key;    /* under the prefix */
    const char *value;  /* PUT: JSON */
    gint64 expect_rev;  /* mod revision of the target, 0: must not exist */
    const char *rule;   /* static storage */
    const char *reason; /* for people */
} LhOp;

typedef struct {
    const char *key;     /* under the prefix */
    gboolean none_below; /* no key that begins with @key may exist; @key ends with '/' or '.' */
    gint64 mod_rev;      /* 0: must not exist */
} LhReliance;

/* Something to tell people once the group has been committed. */
typedef struct {
    int type; /* LhEventType */
    const char *reason;
    const char *object; /* "<plural>/<name>" */
    const char *message;
} LhPlanEvent;

typedef struct {
    guint first_op, n_ops;
    guint first_reliance, n_reliances;
    guint first_event, n_events;
    /* Not NULL: at most one commit a second for this key (Status, progress). */
    const char *throttle;
} LhGroup;

/* "Did nothing" has a reason too. Only recorded when the plan explains. */
typedef struct {
    const char *object; /* "<plural>/<name>" */
    const char *rule;
    const char *reason;
} LhPlanNote;

typedef struct {
    GArray *ops;       /* LhOp */
    GArray *reliances; /* LhReliance */
    GArray *events;    /* LhPlanEvent */
    GArray *groups;    /* LhGroup */
    GArray *notes;     /* LhPlanNote */
    GStringChunk *strings;
    GString *scratch; /* what is being made, before its length is known */
    gint64 wake_ms; /* epoch ms at which it would next decide something else; 0: only on a change */
    gboolean more;  /* the budget ended before the work did: plan again after this one */
    gboolean explain; /* record notes */
    gboolean open;    /* between begin and end */
    /* Of the runtime: called after each group that was ended, so that etcd need not wait for the last. */
    void (*ended)(gpointer data);
    gpointer ended_data;
} LhPlan;

LhPlan *lh_plan_new(gboolean explain);
void lh_plan_free(LhPlan *plan); /* accepts NULL */
guint lh_plan_groups(const LhPlan *plan);
const LhGroup *lh_plan_group(const LhPlan *plan, guint i);
const LhOp *lh_plan_op(const LhPlan *plan, const LhGroup *group, guint i);

void lh_plan_begin(LhPlan *plan);
void lh_plan_put(LhPlan *plan, LhKind kind, const char *name, const void *object, gint64 expect_rev,
                 const char *rule, const char *reason_format, ...) G_GNUC_PRINTF(7, 8);
void lh_plan_delete(LhPlan *plan, LhKind kind, const char *name, gint64 expect_rev,
                    const char *rule, const char *reason_format, ...) G_GNUC_PRINTF(6, 7);
/* What many groups rely on is best relied on last: groups of which that is the same are sent together,
 * and a transaction compares it once. */
void lh_plan_rely(LhPlan *plan, LhKind kind, const char *name, gint64 mod_rev);
/* No key of @kind whose name begins with @name_prefix (ends with '.' or '/') exists. */
void lh_plan_rely_none(LhPlan *plan, LhKind kind, const char *name_prefix);
/* For the open group, or, after lh_plan_end, for the one that was ended last. */
void lh_plan_event(LhPlan *plan, LhEventType type, const char *reason, LhKind kind,
                   const char *name, const char *message_format, ...) G_GNUC_PRINTF(6, 7);
/* The open group is committed at most once a second for the key of its last op. */
void lh_plan_throttle(LhPlan *plan);
/* Ends the group; a group without ops is dropped. */
void lh_plan_end(LhPlan *plan);

/* The earliest of all calls counts. */
void lh_plan_wake(LhPlan *plan, gint64 at_ms);
void lh_plan_note(LhPlan *plan, LhKind kind, const char *name, const char *rule, const char *format,
                  ...) G_GNUC_PRINTF(5, 6);

/* One group that brings a Status to @conditions (any order, messages borrowed), or nothing when @present
 * says so already; conditions keep their `since` while their status stays. @n 0: the Status is deleted.
 * @present: the Status object of this subject and controller in the mirror, or NULL; nothing is written
 * over an unknown one. TRUE when a group was added. @name: "<plural>/<name>/<controller>". */
gboolean lh_plan_status(LhPlan *plan, const LhObject *present, const char *name,
                        gint64 observed_revision, const LhCondition *conditions, guint n,
                        gint64 now_ms);
/* True when lh_plan_status would write. */
gboolean lh_status_differs(const LhObject *present, gint64 observed_revision,
                           const LhCondition *conditions, guint n);

/* SHA-256 (16 hex digits of it) over the sorted op lines "type key rule": equal plans, equal hashes. */
char *lh_plan_hash(const LhPlan *plan);

G_DEFINE_AUTOPTR_CLEANUP_FUNC(LhPlan, lh_plan_free)
