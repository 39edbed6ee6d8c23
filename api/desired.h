/* The kinds under desired/: what people write. Structs are the parsed spec, defaults filled in. */
#pragma once

#include "api/object.h"

typedef struct {
    LhObject o;
    const char *owner;   /* required */
    const char *pattern; /* NULL: none */
    gint64 throughput_bytes_per_second;
    gint64 partitions_min; /* 2 */
    gboolean partitions_dedicated;
    gint64 cache_window_ms;        /* 24h */
    gint64 cache_replicas;         /* 1; 0..16 */
    const char *const *cache_sets; /* ["default"]; 1..16, unique */
    gint64 retention_ms;           /* 7d; must exceed cache_window_ms */
    gboolean paused;
} LhService;

typedef enum { LH_SEED_STARTED, LH_SEED_PAUSED, LH_SEED_STOPPED } LhSeedState;

typedef struct {
    LhObject o;
    const char *url, *connector; /* one of them */
    const char *config;          /* raw JSON object or NULL */
    const char *throttle;
    int state;
    gint64 priority;
} LhSeed;

typedef struct {
    LhObject o;
    gint64 requests; /* in any period_ms; 0: no limit */
    gint64 period_ms;
    gint64 max_concurrent; /* 0: no limit */
} LhThrottle;

typedef struct {
    LhObject o;
    gint64 capacity_bytes_per_second;
    const char *topic;
    gint64 kafka_partition;
} LhPartition;

typedef struct {
    LhObject o;
    const char *service; /* or "*"; NULL when snapshots are named */
    gint64 start_time, end_time;
    const char *const *snapshots;
    gint64 ttl_ms;
} LhRestore;

typedef struct {
    LhObject o; /* name: "<pool>/<node name>" */
    gboolean cordon, drain;
} LhNodePolicy;

typedef struct {
    LhObject o; /* name: the controller */
    const char *plan_hash;
} LhConfirmation;

typedef enum { LH_STRATEGY_SPREAD, LH_STRATEGY_PACK } LhStrategy;
typedef enum { LH_ON_FAILURE_KEEP, LH_ON_FAILURE_EVICT } LhOnFailure;

/* Settings of every controller in one struct. Which fields a controller's Settings may hold, and
 * their defaults, is a table by the controller's name (settings.c); others are unknown fields.
 * Durations ms. */
typedef struct {
    LhObject o; /* name: the controller */
    gboolean paused;
    gint64 brake_percent; /* 20; 1..100 */
    gint64 debounce_ms;
    gint64 max_concurrent_loads, restore_reserve_percent, failure_grace_ms; /* cache-assigner */
    int strategy;
    gint64 evict_grace_ms; /* cache-evictor */
    gint64 buffer_ms, reconcile_interval_ms, orphan_grace_ms,
        deletes_per_second; /* snapshot-cleaner */
    gboolean dry_run;
    gint64 max_replicas_per_restore; /* restore-manager */
    gint64 recovery_timeout_ms;      /* recovery-assigner */
    gint64 cutover_ms;               /* partition-allocator */
    gint64 period_ms, stuck_assigned_ms, stuck_loading_ms, stuck_evicting_ms; /* cluster-monitor */
    gboolean auto_rebalance;    /* seed-allocator, and: */
    gint64 rebalance_threshold; /* seeds between the fullest and the emptiest that are left alone */
    gint64 rebalance_at;        /* a person asked for a rebalance then; -1: never */
    gint64 probe_period_ms, probe_timeout_ms, probe_misses, probation_ms; /* failure-detector */
    const char *probe_path;
    int on_failure;
} LhSettings;

/* True when a controller of this name has Settings (the table of CONTRACT.md, plus admission). */
/* The Settings that are for all controllers: only `paused`. */
#define LH_SETTINGS_ALL "all"
gboolean lh_settings_known(const char *controller);
/* The fields that @controller's Settings may hold; NULL: no such controller. */
const LhField *lh_settings_fields(const char *controller);
/* The defaults of @controller as an immutable object; static storage, never freed. NULL when
 * lh_settings_known is false. */
const LhSettings *lh_settings_default(const char *controller);
