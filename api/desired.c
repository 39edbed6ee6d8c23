/*
 * The kinds under desired/, what people write: their fields, defaults and bounds, and what only
 * several fields together can say. Settings are in settings.c.
 *
 * Whether other objects agree (a throttle that exists) is admission's to say, not this file's.
 */
#include "api/tables.h"
#include "base/errors.h"
#include "base/units.h"

#include <string.h>

/* --- Service --- */

static const LhField service_partitions_fields[] = {
    LH_FIELD(INT, LhService, partitions_min, "min", 0, 1, 10000, "2"),
    LH_FIELD(BOOL, LhService, partitions_dedicated, "dedicated", 0, 0, 0, NULL),
    LH_FIELDS_END,
};
static const LhStructInfo service_partitions = {service_partitions_fields, sizeof(LhService)};

static const LhField service_cache_fields[] = {
    LH_FIELD(DURATION, LhService, cache_window_ms, "window", 0, 0, LH_DATA_DURATION_MAX_MS,
             "\"24h\""),
    LH_FIELD(INT, LhService, cache_replicas, "replicas", 0, 0, 16, "1"),
    LH_FIELD(STRV, LhService, cache_sets, "sets", LH_POOL_NAME | LH_UNIQUE, 1, 16, "[\"default\"]"),
    LH_FIELDS_END,
};
static const LhStructInfo service_cache = {service_cache_fields, sizeof(LhService)};

const LhField lh_service_fields[] = {
    LH_FIELD(STR, LhService, owner, "owner", LH_REQUIRED, 1, 1024, NULL),
    LH_FIELD(STR, LhService, pattern, "pattern", 0, 0, 4096, NULL),
    LH_FIELD(SIZE, LhService, throughput_bytes_per_second, "throughputBytesPerSecond", 0, 0, 0,
             NULL),
    LH_FIELD_INLINE("partitions", &service_partitions),
    LH_FIELD_INLINE("cache", &service_cache),
    LH_FIELD(DURATION, LhService, retention_ms, "retention", 0, 1, LH_DATA_DURATION_MAX_MS,
             "\"7d\""),
    LH_FIELD(BOOL, LhService, paused, "paused", 0, 0, 0, NULL),
    LH_FIELDS_END,
};

gboolean lh_service_check(const LhObject *object, GError **error)
{
    const LhService *service = (const LhService *)object;
    if (service->cache_window_ms < service->retention_ms)
        return TRUE;
    g_autofree char *window = lh_duration_format(service->cache_window_ms);
    g_autofree char *retention = lh_duration_format(service->retention_ms);
    return lh_refuse(error, NULL, "spec.cache.window: %s must be less than retention (%s)", window,
                     retention);
}

/* --- Seed, ThrottlePolicy, Partition --- */

static const char *const seed_states[] = {"started", "paused", "stopped", NULL};

const LhField lh_seed_fields[] = {
    LH_FIELD(STR, LhSeed, url, "url", 0, 1, 8192, NULL),
    LH_FIELD(STR, LhSeed, connector, "connector", 0, 1, 1024, NULL),
    LH_FIELD(RAW, LhSeed, config, "config", LH_OBJECT, 0, 0, NULL),
    LH_FIELD(STR, LhSeed, throttle, "throttle", LH_NAME, 0, 0, NULL),
    LH_FIELD_SUB(ENUM, LhSeed, state, "state", 0, 0, 0, NULL, seed_states),
    LH_FIELD(INT, LhSeed, priority, "priority", 0, -1000000, 1000000, NULL),
    LH_FIELDS_END,
};

gboolean lh_seed_check(const LhObject *object, GError **error)
{
    const LhSeed *seed = (const LhSeed *)object;
    if (seed->url == NULL && seed->connector == NULL)
        return lh_refuse(error, NULL, "spec.url: is required, unless there is a connector");
    if (seed->url != NULL && seed->connector != NULL)
        return lh_refuse(error, NULL, "spec.connector: must not be given together with url");
    return TRUE;
}

const LhField lh_throttle_fields[] = {
    LH_FIELD(INT, LhThrottle, requests, "requests", LH_SPARSE, 1, 1000000000, NULL),
    LH_FIELD(DURATION, LhThrottle, period_ms, "period", LH_SPARSE, 1, LH_DURATION_MAX_MS, NULL),
    LH_FIELD(INT, LhThrottle, max_concurrent, "maxConcurrent", LH_SPARSE, 1, 1000000, NULL),
    LH_FIELDS_END,
};

gboolean lh_throttle_check(const LhObject *object, GError **error)
{
    const LhThrottle *throttle = (const LhThrottle *)object;
    if (throttle->requests > 0 && throttle->period_ms == 0)
        return lh_refuse(error, NULL, "spec.period: is required with requests");
    if (throttle->requests == 0 && throttle->period_ms > 0)
        return lh_refuse(error, NULL, "spec.requests: is required with period");
    if (throttle->requests == 0 && throttle->max_concurrent == 0)
        return lh_refuse(error, NULL, "spec.requests: is required, unless there is maxConcurrent");
    return TRUE;
}

const LhField lh_partition_fields[] = {
    LH_FIELD(SIZE, LhPartition, capacity_bytes_per_second, "capacityBytesPerSecond", 0, 0, 0, NULL),
    LH_FIELD(STR, LhPartition, topic, "topic", 0, 1, 1024, NULL),
    LH_FIELD(INT, LhPartition, kafka_partition, "kafkaPartition", 0, 0, G_MAXINT32, NULL),
    LH_FIELDS_END,
};

/* --- Restore --- */

const LhField lh_restore_fields[] = {
    LH_FIELD(STR, LhRestore, service, "service", 0, 1, 253, NULL),
    LH_FIELD(TIME, LhRestore, start_time, "startTime", 0, 0, 0, NULL),
    LH_FIELD(TIME, LhRestore, end_time, "endTime", 0, 0, 0, NULL),
    LH_FIELD(STRV, LhRestore, snapshots, "snapshots", LH_NAME | LH_UNIQUE | LH_SPARSE, 0, 0, NULL),
    LH_FIELD(DURATION, LhRestore, ttl_ms, "ttl", 0, 1, LH_DURATION_MAX_MS, "\"1h\""),
    LH_FIELDS_END,
};

gboolean lh_restore_check(const LhObject *object, GError **error)
{
    const LhRestore *restore = (const LhRestore *)object;
    if (restore->snapshots[0] != NULL) {
        if (restore->service != NULL || restore->start_time >= 0 || restore->end_time >= 0)
            return lh_refuse(error, NULL,
                             "spec.snapshots: must not be given together with service, startTime "
                             "or endTime");
        for (guint i = 0; restore->snapshots[i] != NULL; i++) {
            if (strlen(restore->snapshots[i]) > LH_SNAPSHOT_NAME_MAX)
                return lh_refuse(error, NULL, "spec.snapshots[%u]: must be at most %d bytes long",
                                 i, LH_SNAPSHOT_NAME_MAX);
        }
        return TRUE;
    }
    if (restore->service == NULL)
        return lh_refuse(error, NULL, "spec.service: is required, unless snapshots are named");
    if (strcmp(restore->service, "*") != 0 && !lh_name_valid(restore->service, 253)) {
        g_autofree char *quoted = lh_quote(restore->service);
        return lh_refuse(error, NULL, "spec.service: is %s, must be a service's name or \"*\"",
                         quoted);
    }
    if (restore->start_time < 0)
        return lh_refuse(error, NULL, "spec.startTime: is required with service");
    if (restore->end_time < 0)
        return lh_refuse(error, NULL, "spec.endTime: is required with service");
    if (restore->start_time > restore->end_time)
        return lh_refuse(error, NULL, "spec.endTime: must not be before startTime");
    return TRUE;
}

/* --- NodePolicy, Confirmation --- */

const LhField lh_nodepolicy_fields[] = {
    LH_FIELD(BOOL, LhNodePolicy, cordon, "cordon", 0, 0, 0, NULL),
    LH_FIELD(BOOL, LhNodePolicy, drain, "drain", 0, 0, 0, NULL),
    LH_FIELDS_END,
};

const LhField lh_confirmation_fields[] = {
    LH_FIELD(STR, LhConfirmation, plan_hash, "planHash", LH_REQUIRED, 1, 256, NULL),
    LH_FIELDS_END,
};

gboolean lh_confirmation_check(const LhObject *object, GError **error)
{
    if (lh_settings_known(object->name))
        return TRUE;
    g_autofree char *quoted = lh_quote(object->name);
    return lh_refuse(error, NULL, "metadata.name: no controller is called %s", quoted);
}
