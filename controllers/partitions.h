/*
 * Services and partitions as partition-allocator sees them, beside the index of the exclusive pools.
 *
 * Part of that index's fold (pool.c): what a record says follows from the present objects alone. No time: a
 * partition's room holds what the last interval of every plan puts on it, and services are sorted by when
 * that interval begins, so that those with a cut-over ahead are found from the end. Pure.
 */
#pragma once

#include "api/decided.h"
#include "controllers/partition_rules.h"

typedef struct LhPartitions LhPartitions;

typedef struct {
    char *name;
    const LhObject *desired;  /* Service or unknown, NULL: none */
    const LhObject *accepted; /* Accepted or unknown, NULL: none */
    const LhObject *plan;     /* PartitionPlan, unknown or NULL */
    const LhObject *status;   /* of partition-allocator; unknown or NULL */
    guint snapshots;          /* known ones that name it */
    GArray *uses;             /* LhPartitionUse: of the last interval of its plan, sorted by id */
    gint64 last_start;        /* of by_start; -1: not in it */
    gboolean is_todo;
} LhPartitionService;

typedef struct {
    char *name;
    guint seat;
    const LhObject *accepted; /* Accepted or unknown, NULL: none */
    const LhObject *status;   /* of partition-allocator; unknown or NULL */
    GPtrArray *users; /* LhPartitionService that have it in the last interval of their plan */
} LhPartitionRecord;

struct LhPartitions {
    GHashTable *services;   /* name -> LhPartitionService */
    GHashTable *partitions; /* name -> LhPartitionRecord */
    LhPartitionRoom *room;  /* all services put, by the last interval of their plan */
    GTree *todo;            /* LhPartitionService by name: not settled */
    GTree *by_start;        /* LhPartitionService by last_start and name: whose plan has changed */
    guint unknown_plans;    /* PartitionPlans that do not parse: anything may be used by them */
    guint unknown_snapshots;
};

LhPartitions *lh_partitions_new(void);
void lh_partitions_free(LhPartitions *partitions);
/* FALSE: partition-allocator need not look. */
gboolean lh_partitions_fold(LhPartitions *partitions, const LhObject *before,
                            const LhObject *after);

/* NULL: nothing names it. */
const LhPartitionRecord *lh_partitions_record(const LhPartitions *partitions, const char *name);
/* The accepted, known spec, or NULL. */
const LhService *lh_partition_service_spec(const LhPartitionService *service);
/* The history of a plan that is known and not empty, or NULL. */
const LhArray *lh_partition_service_history(const LhPartitionService *service);
const LhPartitionInterval *lh_partition_last(const LhArray *history);
/* It has partitions to get or to keep: it says a throughput, or it has some. */
gboolean lh_partition_service_wants(const LhPartitionService *service);
/* It was edited since partition-allocator last said anything about it. */
gboolean lh_partition_service_edited(const LhPartitionService *service);
/* What it asks for; @held as LhPartitionAsk wants it. Only of one with a spec. */
LhPartitionAsk lh_partition_service_ask(const LhPartitionService *service,
                                        const LhPartitionUse *held, guint n_held);

/* How @service uses partitions from @now_ms on, had its plan @history (may be NULL): of the last interval, and
 * of what comes before it and has not ended. GArray of LhPartitionUse, sorted by id. */
GArray *lh_partition_uses(const LhPartitions *partitions, const LhPartitionService *service,
                          const LhArray *history, gint64 now_ms);

/* The condition of a service with all it needs. What it says is g_free'd by the caller. */
LhCondition lh_partition_allocated(const LhPartitionService *service);
