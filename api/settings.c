/*
 * Settings: one struct for all controllers, and for each controller a table of the fields it has,
 * with its own defaults.
 *
 * The same field may have another default elsewhere (debounce, failureGrace). A field of another
 * controller is an unknown field here. Nothing in this file may depend on a controller's code.
 */
#include "api/tables.h"
#include "base/errors.h"

#include <string.h>

static const char *const strategies[] = {"spread", "pack", NULL};
static const char *const on_failures[] = {"keep", "evict", NULL};

#define BOOLEAN(member_, json_, fallback_) \
    LH_FIELD(BOOL, LhSettings, member_, json_, 0, 0, 0, fallback_)
#define NUMBER(member_, json_, min_, max_, fallback_) \
    LH_FIELD(INT, LhSettings, member_, json_, 0, min_, max_, fallback_)
#define DURATION_FROM(min_, member_, json_, fallback_) \
    LH_FIELD(DURATION, LhSettings, member_, json_, 0, min_, LH_DURATION_MAX_MS, fallback_)
#define DURATION(member_, json_, fallback_) DURATION_FROM(0, member_, json_, fallback_)
/* A period that work repeats in: never so short that it becomes a busy loop. */
#define PERIOD(member_, json_, fallback_) DURATION_FROM(100, member_, json_, fallback_)

#define COMMON BOOLEAN(paused, "paused", NULL), NUMBER(brake_percent, "brakePercent", 1, 100, "20")

/* Fields that two controllers have with different defaults. */
#define DEBOUNCE(fallback_)      DURATION(debounce_ms, "debounce", fallback_)
#define FAILURE_GRACE(fallback_) DURATION(failure_grace_ms, "failureGrace", fallback_)

#define CACHE_ASSIGNER                                                                   \
    NUMBER(max_concurrent_loads, "maxConcurrentLoads", 1, 1000, "2"),                    \
        LH_FIELD_SUB(ENUM, LhSettings, strategy, "strategy", 0, 0, 0, NULL, strategies), \
        NUMBER(restore_reserve_percent, "restoreReservePercent", 0, 100, "10")
#define CACHE_EVICTOR DURATION(evict_grace_ms, "evictGrace", "\"5s\"")
#define SNAPSHOT_CLEANER                                                \
    DURATION(buffer_ms, "buffer", "\"6h\""),                            \
        PERIOD(reconcile_interval_ms, "reconcileInterval", "\"6h\""),   \
        DURATION(orphan_grace_ms, "orphanGrace", "\"24h\""),            \
        NUMBER(deletes_per_second, "deletesPerSecond", 1, 10000, "10"), \
        BOOLEAN(dry_run, "dryRun", NULL)
#define RESTORE_MANAGER     NUMBER(max_replicas_per_restore, "maxReplicasPerRestore", 1, 100000, "200")
#define RECOVERY_ASSIGNER   PERIOD(recovery_timeout_ms, "recoveryTimeout", "\"1h\"")
#define PARTITION_ALLOCATOR DURATION(cutover_ms, "cutover", "\"15m\"")
#define CLUSTER_MONITOR                                                                           \
    PERIOD(period_ms, "period", "\"30s\""), PERIOD(stuck_assigned_ms, "stuckAssigned", "\"1m\""), \
        PERIOD(stuck_loading_ms, "stuckLoading", "\"30m\""),                                      \
        PERIOD(stuck_evicting_ms, "stuckEvicting", "\"10m\"")
#define SEED_ALLOCATOR                                                         \
    BOOLEAN(auto_rebalance, "autoRebalance", "true"),                          \
        NUMBER(rebalance_threshold, "rebalanceThreshold", 1, 1000000000, "1"), \
        LH_FIELD(TIME, LhSettings, rebalance_at, "rebalanceAt", 0, 0, 0, NULL)
#define FAILURE_DETECTOR                                                                          \
    PERIOD(probe_period_ms, "probePeriod", "\"5s\""),                                             \
        DURATION_FROM(10, probe_timeout_ms, "probeTimeout", "\"2s\""),                            \
        NUMBER(probe_misses, "probeMisses", 1, 1000, "3"),                                        \
        DURATION(probation_ms, "probation", "\"60s\""),                                           \
        LH_FIELD(STR, LhSettings, probe_path, "probePath", 0, 1, 1024, "\"/get_health_status\""), \
        LH_FIELD_SUB(ENUM, LhSettings, on_failure, "onFailure", 0, 0, 0, "\"evict\"", on_failures)

static const LhField all[] = {BOOLEAN(paused, "paused", NULL), LH_FIELDS_END};
static const LhField common[] = {COMMON, LH_FIELDS_END};
static const LhField replica_creator[] = {COMMON, DEBOUNCE("\"2s\""), LH_FIELDS_END};
static const LhField cache_assigner[] = {
    COMMON, DEBOUNCE("\"50ms\""), CACHE_ASSIGNER, FAILURE_GRACE("\"60s\""), LH_FIELDS_END,
};
static const LhField cache_evictor[] = {COMMON, CACHE_EVICTOR, LH_FIELDS_END};
static const LhField snapshot_cleaner[] = {COMMON, SNAPSHOT_CLEANER, LH_FIELDS_END};
static const LhField restore_manager[] = {COMMON, RESTORE_MANAGER, LH_FIELDS_END};
static const LhField recovery_assigner[] = {COMMON, RECOVERY_ASSIGNER, LH_FIELDS_END};
static const LhField partition_allocator[] = {COMMON, PARTITION_ALLOCATOR, LH_FIELDS_END};
static const LhField cluster_monitor[] = {COMMON, CLUSTER_MONITOR, LH_FIELDS_END};
static const LhField seed_allocator[] = {
    COMMON,
    SEED_ALLOCATOR,
    FAILURE_GRACE("\"0s\""),
    LH_FIELDS_END,
};
static const LhField failure_detector[] = {COMMON, FAILURE_DETECTOR, LH_FIELDS_END};

const LhField lh_settings_all_fields[] = {
    COMMON,           DEBOUNCE(NULL),   CACHE_ASSIGNER,    FAILURE_GRACE(NULL), CACHE_EVICTOR,
    SNAPSHOT_CLEANER, RESTORE_MANAGER,  RECOVERY_ASSIGNER, PARTITION_ALLOCATOR, CLUSTER_MONITOR,
    SEED_ALLOCATOR,   FAILURE_DETECTOR, LH_FIELDS_END,
};

static const struct {
    const char *name;
    const LhField *fields;
} controllers[] = {
    {LH_SETTINGS_ALL, all},
    {"admission", common},
    {"replica-creator", replica_creator},
    {"cache-assigner", cache_assigner},
    {"cache-evictor", cache_evictor},
    {"snapshot-cleaner", snapshot_cleaner},
    {"restore-manager", restore_manager},
    {"recovery-assigner", recovery_assigner},
    {"partition-allocator", partition_allocator},
    {"cluster-monitor", cluster_monitor},
    {"seed-allocator", seed_allocator},
    {"failure-detector", failure_detector},
};

static guint find_controller(const char *name)
{
    guint i = 0;
    while (i < G_N_ELEMENTS(controllers) && g_strcmp0(controllers[i].name, name) != 0)
        i++;
    return i;
}

const LhField *lh_settings_fields(const char *controller)
{
    guint i = find_controller(controller);
    return i < G_N_ELEMENTS(controllers) ? controllers[i].fields : NULL;
}

gboolean lh_settings_known(const char *controller)
{
    return find_controller(controller) < G_N_ELEMENTS(controllers);
}

gboolean lh_settings_check(const LhObject *object, GError **error)
{
    const LhSettings *settings = (const LhSettings *)object;
    if (settings->probe_path == NULL || settings->probe_path[0] == '/')
        return TRUE;
    g_autofree char *quoted = lh_quote(settings->probe_path);
    return lh_refuse(error, NULL, "spec.probePath: is %s, must begin with /", quoted);
}

const LhSettings *lh_settings_default(const char *controller)
{
    static GMutex mutex;
    static const LhSettings *defaults[G_N_ELEMENTS(controllers)];
    static const char spec[] = "{\"spec\":{}}";
    guint i = find_controller(controller);
    if (i == G_N_ELEMENTS(controllers))
        return NULL;
    g_mutex_lock(&mutex);
    if (defaults[i] == NULL)
        defaults[i] = (const LhSettings *)lh_object_parse(LH_KIND_SETTINGS, controllers[i].name,
                                                          spec, sizeof spec - 1, 0, 0, 0);
    const LhSettings *found = defaults[i];
    g_mutex_unlock(&mutex);
    return found;
}
