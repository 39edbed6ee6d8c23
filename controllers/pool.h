/*
 * The index of the exclusive pools (recovery, indexer, manager, worker …: every pool but cache): nodes,
 * what is assigned to them, what they answer, retries, and the objects that become items there.
 *
 * It is a fold (pool.c): what a record says and which sets it is in follow from the present objects alone,
 * so folding one change at a time and folding everything again give the same index. No time: what depends
 * on the clock is sorted by a moment that an object names. Pure; plans read it, only the fold changes it.
 *
 *   LhPoolView ─┬─ LhPoolItem ─── LhPoolAssignment ─┬─ LhPoolNode ─── LhPoolHost
 *               └─ …
 *
 * The rule of these pools: an item is never worked on by two nodes. So an assignment ends only after an
 * answer that counts, or when NodeHealth says that its node has failed; a registration that is gone proves
 * nothing. Whether it may end is lh_pool_end(), and nothing else.
 */
#pragma once

#include "api/actual.h"
#include "api/decided.h"
#include "api/desired.h"
#include "api/published.h"
#include "runtime/controller.h"

#define LH_POOL_RECOVERY "recovery"
#define LH_POOL_INDEXER  "indexer"
#define LH_POOL_MANAGER  "manager"

typedef struct LhPools LhPools;
struct LhPartitions;
typedef struct LhSeeds LhSeeds;
typedef struct LhSeedGroup LhSeedGroup;
typedef struct LhPoolView LhPoolView;
typedef struct LhPoolItem LhPoolItem;
typedef struct LhPoolAssignment LhPoolAssignment;
typedef struct LhPoolNode LhPoolNode;
typedef struct LhPoolHost LhPoolHost;

/* What may be, or is, assigned: a recovery task, a partition, a seed. */
struct LhPoolItem {
    char *name;
    LhPoolView *pool;
    /* What it stands for: the RecoveryTask, or the Accepted of the Partition or Seed. May be unknown. NULL:
     * there is none (any more), or it is a pool whose items are no objects. */
    const LhObject *subject;
    const LhObject *retry;  /* Retry, unknown or NULL */
    GPtrArray *assignments; /* LhPoolAssignment, sorted by node id; NULL when there are none */
    gint64 sort_time;       /* of waiting: see there */
    gboolean is_busy, is_waiting;
    /* Of a seed (seeds.h): its Status by seed-allocator, unknown or NULL; the policy that it asks for. */
    const LhObject *status;
    LhSeedGroup *group;
    gboolean is_todo;
};

struct LhPoolAssignment {
    const LhObject *object; /* Assignment, unknown or NULL (an item alone) */
    const LhObject *item;   /* Item, unknown or NULL */
    LhPoolItem *of;
    LhPoolNode *node;
    char *key; /* "<node>/<item>" */
    gint64 since;
    gboolean is_running;
    /* Of a seed (seeds.h): the policy that the order says, and what it counts as. */
    LhSeedGroup *group;
    gboolean is_free_load, is_group_load, is_unknown;
};

struct LhPoolNode {
    char *id;
    const LhObject *object; /* Node, unknown or NULL (gone) */
    const LhObject *health; /* NodeHealth, unknown or NULL */
    LhPoolHost *host;
    GPtrArray *assignments;         /* LhPoolAssignment, in no order */
    gint64 held;                    /* of them: those with an Assignment, whatever it says */
    gint64 free_seeds, group_seeds; /* of them: known loads of seeds without and with a throttle */
};

/* A node name: its restarts share a policy. */
struct LhPoolHost {
    char *name;
    LhPoolView *pool;
    const LhObject *policy;     /* Accepted of the NodePolicy, unknown or NULL */
    const LhObject *drain_said; /* what the pool's controller says of it: Status, unknown or NULL */
    GPtrArray *nodes;           /* LhPoolNode, in no order */
};

struct LhPoolView {
    char *name;
    gboolean is_manager; /* seeds.h has more of it */
    LhPools *pools;
    GHashTable *items;       /* name -> LhPoolItem */
    GHashTable *assignments; /* "<node>/<item>" -> LhPoolAssignment */
    GHashTable *nodes;       /* id -> LhPoolNode */
    GTree *hosts;            /* LhPoolHost by name */
    /* LhPoolItem by name: those with an assignment, an item that a node says, or a retry. What a plan has to
     * decide about items that are not simply waiting is decided by walking these. */
    GTree *busy;
    /* LhPoolItem whose subject is known and that has no assignment, by sort_time and name: of a recovery
     * task createdAt (an empty range first of all: G_MININT64), else 0. Retries do not matter here. Of seeds
     * those that shall be on a manager. */
    GTree *waiting;
    GTree *
        running; /* LhPoolAssignment: known loads without an answer that ends them, by since and key */
};

struct LhPools {
    GHashTable *views;    /* pool -> LhPoolView; one that nothing refers to may stay */
    GHashTable *settings; /* controller -> Accepted (reference) */
    GHashTable *held;     /* controller -> LhSettings, paused: its Accepted does not parse */
    /* name -> object (reference), for: SERVICE, PARTITION, SEED, THROTTLE (as desired), ACCEPTED of these
     * ("services/x"), RECOVERYTASK, PARTITIONPLAN, BRAKE, STATUS of these and of SETTINGS (but not of
     * services, which are many: partitions.h has those). NULL: a kind
     * that is not held. */
    GHashTable *objects[LH_N_KINDS];
    GTree *task_statuses; /* name -> Status (reference): what recovery-assigner says of tasks */
    struct LhPartitions *partitions; /* partitions.h */
    LhSeeds *seeds;                  /* seeds.h */
};

extern const LhIndexType lh_pools_index;

/* ---- objects ---- */
const LhSettings *lh_pools_settings(const LhPools *pools, const char *controller);
/* Their Accepted, known or not; NULL: there is none. */
const LhObject *lh_pools_settings_object(const LhPools *pools, const char *controller);
/* The same as lh_pools_settings for LhController.settings. */
const LhSettings *lh_pools_settings_of(gconstpointer index, const char *controller);
/* NULL: there is none. May be unknown. */
const LhObject *lh_pools_get(const LhPools *pools, LhKind kind, const char *name);
/* The Accepted of @plural/@name, or NULL. */
const LhObject *lh_pools_accepted(const LhPools *pools, const char *plural, const char *name);
const LhObject *lh_pools_status(const LhPools *pools, const char *plural, const char *name,
                                const char *controller);

/* ---- one pool ---- */
/* NULL: nothing is known of it. */
LhPoolView *lh_pools_view(const LhPools *pools, const char *pool);
const LhPoolItem *lh_pool_item(const LhPoolView *view, const char *item);
/* An Assignment of it exists, whatever it says. */
gboolean lh_pool_item_assigned(const LhPoolItem *item);
/* Something of the item changed after its last failure was written: the retry does not count. */
gboolean lh_pool_retry_void(const LhPoolItem *item);
/* The retry that counts, or NULL: there is none, it is void, or it does not parse (*unknown: then nothing
 * may be begun with the item). @unknown may be NULL. */
const LhRetry *lh_pool_retry(const LhPoolItem *item, gboolean *unknown);

/* ---- one assignment ---- */
/* A known Assignment, else NULL. */
const LhAssignment *lh_pool_order(const LhPoolAssignment *assignment);
/* The state of the item as far as it answers this very order: -1 when there is no answer that counts. */
int lh_pool_answer(const LhPoolAssignment *assignment);

typedef enum {
    LH_POOL_HELD,     /* it stays: its node may be working on it */
    LH_POOL_ANSWERED, /* evicted, failed or done (lh_pool_answer): nothing is held */
    LH_POOL_LOST,     /* its node has failed: nothing is held */
} LhPoolEnd;

/* Whether the Assignment may be deleted. HELD as well when it does not parse. */
LhPoolEnd lh_pool_end(const LhPoolAssignment *assignment);
/* Compares for the open group of @plan: all that lh_pool_end() read, but the Assignment itself, which the
 * op that deletes or changes it compares. Also for an op that takes away what is still HELD: an answer that
 * comes first then wins. */
void lh_pool_rely_on_end(LhPlan *plan, const LhPoolAssignment *assignment);
/* Of two orders for one item the one that was there first stays: TRUE of the others. */
gboolean lh_pool_doubled(const LhPoolAssignment *assignment);
/* Puts the op that orders @assignment to be evicted, and what it relies on, in the open group. */
void lh_pool_evict(LhPlan *plan, const LhPoolAssignment *assignment, const LhPlanContext *context,
                   const char *controller, const char *rule, const char *reason);
/* Puts the op that deletes the Assignment, which may end, and what that relies on, in the open group. */
void lh_pool_take(LhPlan *plan, const LhPoolAssignment *assignment, const char *rule,
                  const char *reason);
/* A group that deletes an item key which outlived its assignment (a `done` is put without a lease), if
 * @assignment is one. TRUE when there was. */
gboolean lh_pool_sweep(LhPlan *plan, const LhPoolAssignment *assignment);

/* ---- nodes ---- */
/* Of the host's registered nodes the newest, if it takes new work: online or waiting, not in failure, not
 * cordoned. @why (may be NULL): why not, static storage. */
const LhPoolNode *lh_pool_host_takes(const LhPoolHost *host, const char **why);
gboolean lh_pool_on_probation(const LhPoolNode *node);

typedef struct {
    const LhPoolNode *node;
    const LhNode *object;
    gint64 held; /* assignments; a plan counts its own on top */
    /* Of held: capacityItems; on probation half of an equal share of all that is assigned or waiting, if
     * that is less. G_MAXINT64: no limit. */
    gint64 limit;
} LhPoolTaker;

/* The nodes that take new work, sorted by host name; free with g_array_unref. Borrows from @view. */
GArray *lh_pool_takers(const LhPoolView *view);

/* Its policy, which parses, says drain. */
gboolean lh_pool_host_drained(const LhPoolHost *host);
/* The condition Drained of each drained host of @view (may be NULL), as groups of @plan: True when nothing is
 * assigned to any node of that name; else False, with how many are left, @reason, and @why in words. */
void lh_pool_say_drained(const LhPoolView *view, const char *controller, const char *reason,
                         const char *why, gint64 now_ms, LhPlan *plan);

/* items{pool,state} and parked_items{pool}; @view may be NULL. */
void lh_pool_gauges(const LhPoolView *view, const char *pool, LhGaugeFunc gauge, gpointer data);

/* A sorted walk: for (n = g_tree_node_first(t); n; n = g_tree_node_next(n)) lh_pool_record(n). */
#define lh_pool_record(node) g_tree_node_key(node)
