/*
 * The kinds and their columns: what an operator wants to see of each at a glance. Pure.
 *
 * The names repeat CONTRACT.md section 1, because this layer may not use the vocabulary's code.
 */
#include "cli/kinds.h"

#include "base/errors.h"
#include "base/json.h"
#include "base/units.h"

#include <string.h>

/* clang-format off */
#define NAME     {"NAME", LH_COLUMN_TEXT, "metadata.name", FALSE}
#define VALID    {"VALID", LH_COLUMN_CONDITION, "Valid", FALSE}
#define REVISION {"REVISION", LH_COLUMN_TEXT, "metadata.revision", TRUE}
#define PLACE    {"POOL", LH_COLUMN_PART, "0", FALSE}, {"NODE", LH_COLUMN_PART, "1", FALSE}, \
                 {"ITEM", LH_COLUMN_REST, "2", FALSE}
#define DAY_MS   G_GINT64_CONSTANT(86400000)
#define END      {NULL, LH_COLUMN_TEXT, NULL, FALSE}

static const LhColumn services[] = {
    NAME,
    {"OWNER", LH_COLUMN_TEXT, "spec.owner", FALSE},
    {"WINDOW", LH_COLUMN_TEXT, "spec.cache.window", FALSE},
    {"REPLICAS", LH_COLUMN_TEXT, "spec.cache.replicas", FALSE},
    {"LIVE", LH_COLUMN_RATIO, "status.replicasLive/status.replicasDesired", FALSE},
    {"SNAPSHOTS", LH_COLUMN_TEXT, "status.snapshots", FALSE},
    {"RETENTION", LH_COLUMN_TEXT, "spec.retention", FALSE},
    {"PAUSED", LH_COLUMN_TEXT, "spec.paused", FALSE},
    VALID,
    {"SETS", LH_COLUMN_TEXT, "spec.cache.sets", TRUE},
    {"PATTERN", LH_COLUMN_TEXT, "spec.pattern", TRUE},
    {"THROUGHPUT/S", LH_COLUMN_SIZE, "spec.throughputBytesPerSecond", TRUE},
    {"ALLOCATED", LH_COLUMN_CONDITION, "Allocated", TRUE},
    REVISION, END};
static const LhColumn seeds[] = {
    NAME,
    {"STATE", LH_COLUMN_TEXT, "status.state", FALSE},
    {"OWNER", LH_COLUMN_TEXT, "status.owner", FALSE},
    {"THROTTLE", LH_COLUMN_TEXT, "spec.throttle", FALSE},
    {"SINCE", LH_COLUMN_AGE, "status.since", FALSE},
    VALID,
    {"WANTED", LH_COLUMN_TEXT, "spec.state", TRUE},
    {"URL", LH_COLUMN_TEXT, "spec.url", TRUE},
    {"CONNECTOR", LH_COLUMN_TEXT, "spec.connector", TRUE},
    {"PRIORITY", LH_COLUMN_TEXT, "spec.priority", TRUE},
    {"REASON", LH_COLUMN_TEXT, "status.reason", TRUE},
    REVISION, END};
static const LhColumn throttles[] = {
    NAME,
    {"REQUESTS", LH_COLUMN_TEXT, "spec.requests", FALSE},
    {"PERIOD", LH_COLUMN_TEXT, "spec.period", FALSE},
    {"MAX", LH_COLUMN_TEXT, "spec.maxConcurrent", FALSE},
    {"SEEDS", LH_COLUMN_TEXT, "status.seeds", FALSE},
    {"HOLDER", LH_COLUMN_TEXT, "status.holder", FALSE},
    VALID, REVISION, END};
static const LhColumn partitions[] = {
    NAME,
    {"CAPACITY/S", LH_COLUMN_SIZE, "spec.capacityBytesPerSecond", FALSE},
    {"TOPIC", LH_COLUMN_TEXT, "spec.topic", FALSE},
    {"KAFKA", LH_COLUMN_TEXT, "spec.kafkaPartition", FALSE},
    VALID, REVISION, END};
static const LhColumn restores[] = {
    NAME,
    {"SERVICE", LH_COLUMN_TEXT, "spec.service", FALSE},
    {"FROM", LH_COLUMN_TEXT, "spec.startTime", FALSE},
    {"TO", LH_COLUMN_TEXT, "spec.endTime", FALSE},
    {"TTL", LH_COLUMN_TEXT, "spec.ttl", FALSE},
    {"PHASE", LH_COLUMN_TEXT, "status.phase", FALSE},
    {"LIVE", LH_COLUMN_RATIO, "status.live/status.replicas", FALSE},
    {"UNTIL", LH_COLUMN_UNTIL, "status.until", FALSE},
    VALID,
    {"MESSAGE", LH_COLUMN_TEXT, "status.message", TRUE},
    {"SNAPSHOTS", LH_COLUMN_TEXT, "spec.snapshots", TRUE},
    REVISION, END};
static const LhColumn nodepolicies[] = {
    {"POOL", LH_COLUMN_PART, "0", FALSE},
    {"NODE NAME", LH_COLUMN_REST, "1", FALSE},
    {"CORDON", LH_COLUMN_TEXT, "spec.cordon", FALSE},
    {"DRAIN", LH_COLUMN_TEXT, "spec.drain", FALSE},
    {"DRAINED", LH_COLUMN_CONDITION, "Drained", FALSE},
    VALID, REVISION, END};
static const LhColumn settings[] = {
    NAME,
    {"PAUSED", LH_COLUMN_TEXT, "spec.paused", FALSE},
    {"BRAKE%", LH_COLUMN_TEXT, "spec.brakePercent", FALSE},
    {"CONDITIONS", LH_COLUMN_CONDITIONS, NULL, FALSE},
    REVISION, END};
static const LhColumn confirmations[] = {
    NAME, {"PLAN", LH_COLUMN_TEXT, "spec.planHash", FALSE}, VALID, REVISION, END};
static const LhColumn snapshots[] = {
    NAME,
    {"SERVICE", LH_COLUMN_TEXT, "service", FALSE},
    {"PARTITION", LH_COLUMN_TEXT, "partition", FALSE},
    {"START", LH_COLUMN_TEXT, "startTime", FALSE},
    {"END", LH_COLUMN_TEXT, "endTime", FALSE},
    {"SIZE", LH_COLUMN_SIZE, "sizeBytes", FALSE},
    {"WRITING", LH_COLUMN_TEXT, "live", FALSE},
    {"LIVE", LH_COLUMN_RATIO, "status.replicasLive/status.replicas", FALSE},
    {"CONDITIONS", LH_COLUMN_CONDITIONS, NULL, FALSE},
    {"URI", LH_COLUMN_TEXT, "uri", TRUE},
    {"MAXOFFSET", LH_COLUMN_TEXT, "maxOffset", TRUE},
    REVISION, END};
static const LhColumn recoverytasks[] = {
    NAME,
    {"PARTITION", LH_COLUMN_TEXT, "partition", FALSE},
    {"START", LH_COLUMN_TEXT, "startOffset", FALSE},
    {"END", LH_COLUMN_TEXT, "endOffset", FALSE},
    {"STATE", LH_COLUMN_TEXT, "status.state", FALSE},
    {"OWNER", LH_COLUMN_TEXT, "status.owner", FALSE},
    VALID,
    {"AGE", LH_COLUMN_AGE, "createdAt", FALSE},
    REVISION, END};
static const LhColumn accepted[] = {
    NAME,
    {"OF REVISION", LH_COLUMN_TEXT, "revision", FALSE},
    {"AGE", LH_COLUMN_AGE, "acceptedAt", FALSE},
    REVISION, END};
static const LhColumn replicas[] = {
    NAME,
    {"SERVICE", LH_COLUMN_TEXT, "service", FALSE},
    {"SET", LH_COLUMN_TEXT, "set", FALSE},
    {"RESTORED", LH_COLUMN_TEXT, "restored", FALSE},
    {"EXPIRES", LH_COLUMN_UNTIL, "expiresAt", FALSE},
    {"AGE", LH_COLUMN_AGE, "createdAt", FALSE},
    {"SNAPSHOT", LH_COLUMN_TEXT, "snapshot", TRUE},
    REVISION, END};
static const LhColumn assignments[] = {
    PLACE,
    {"ACTION", LH_COLUMN_TEXT, "action", FALSE},
    {"RULE", LH_COLUMN_TEXT, "rule", FALSE},
    {"AGE", LH_COLUMN_AGE, "since", FALSE},
    {"CONTROLLER", LH_COLUMN_TEXT, "controller", TRUE},
    {"EPOCH", LH_COLUMN_TEXT, "epoch", TRUE},
    {"REASON", LH_COLUMN_TEXT, "reason", TRUE},
    REVISION, END};
static const LhColumn retries[] = {
    {"POOL", LH_COLUMN_PART, "0", FALSE},
    {"ITEM", LH_COLUMN_REST, "1", FALSE},
    {"ATTEMPT", LH_COLUMN_TEXT, "attempt", FALSE},
    {"PARKED", LH_COLUMN_TEXT, "parked", FALSE},
    {"NEXT", LH_COLUMN_UNTIL, "notBefore", FALSE},
    {"MESSAGE", LH_COLUMN_TEXT, "message", FALSE},
    REVISION, END};
static const LhColumn partitionplans[] = {
    NAME,
    {"PARTITIONS", LH_COLUMN_COUNT, "history.last.partitions", FALSE},
    {"FROM", LH_COLUMN_UNTIL, "history.last.start", FALSE},
    {"INTERVALS", LH_COLUMN_COUNT, "history", FALSE},
    {"NAMES", LH_COLUMN_TEXT, "history.last.partitions", TRUE},
    REVISION, END};
static const LhColumn restoreprogress[] = {
    NAME,
    {"PHASE", LH_COLUMN_TEXT, "phase", FALSE},
    {"LIVE", LH_COLUMN_RATIO, "live/replicas", FALSE},
    {"UNTIL", LH_COLUMN_UNTIL, "until", FALSE},
    {"MESSAGE", LH_COLUMN_TEXT, "message", FALSE},
    REVISION, END};
static const LhColumn health[] = {
    {"POOL", LH_COLUMN_PART, "0", FALSE},
    {"NODE", LH_COLUMN_REST, "1", FALSE},
    {"STATE", LH_COLUMN_TEXT, "state", FALSE},
    {"AGE", LH_COLUMN_AGE, "since", FALSE},
    {"REASON", LH_COLUMN_TEXT, "reason", FALSE},
    {"MISSING", LH_COLUMN_AGE, "missingSince", TRUE},
    {"REVOKING", LH_COLUMN_TEXT, "revoking", TRUE},
    REVISION, END};
static const LhColumn deletions[] = {
    NAME,
    {"URI", LH_COLUMN_TEXT, "uri", FALSE},
    {"DECIDED", LH_COLUMN_AGE, "decidedAt", FALSE},
    {"DELETED", LH_COLUMN_AGE, "dataDeletedAt", FALSE},
    REVISION, END};
static const LhColumn orphans[] = {
    {"URI", LH_COLUMN_TEXT, "uri", FALSE},
    {"OBJECTS", LH_COLUMN_TEXT, "objects", FALSE},
    {"SIZE", LH_COLUMN_SIZE, "bytes", FALSE},
    {"FIRST SEEN", LH_COLUMN_AGE, "firstSeen", FALSE},
    {"DECIDED", LH_COLUMN_AGE, "decidedAt", FALSE},
    {"NAME", LH_COLUMN_TEXT, "metadata.name", TRUE},
    REVISION, END};
static const LhColumn brakes[] = {
    NAME,
    {"WOULD REMOVE", LH_COLUMN_RATIO, "eligible/of", FALSE},
    {"SINCE", LH_COLUMN_AGE, "since", FALSE},
    {"CONFIRMED", LH_COLUMN_AGE, "confirmedAt", FALSE},
    {"PLAN", LH_COLUMN_TEXT, "planHash", FALSE},
    {"MESSAGE", LH_COLUMN_TEXT, "message", TRUE},
    REVISION, END};
static const LhColumn status[] = {
    NAME, {"CONDITIONS", LH_COLUMN_CONDITIONS, NULL, FALSE}, REVISION, END};
static const LhColumn nodes[] = {
    {"NAME", LH_COLUMN_REST, "1", FALSE},
    {"POOL", LH_COLUMN_PART, "0", FALSE},
    {"SET", LH_COLUMN_TEXT, "set", FALSE},
    {"ZONE", LH_COLUMN_TEXT, "zone", FALSE},
    {"STATE", LH_COLUMN_TEXT, "state", FALSE},
    {"HEALTH", LH_COLUMN_TEXT, "status.health", FALSE},
    {"POLICY", LH_COLUMN_TEXT, "status.policy", FALSE},
    {"CAPACITY", LH_COLUMN_SIZE, "capacityBytes", FALSE},
    {"WARM", LH_COLUMN_COUNT, "warm", FALSE},
    {"AGE", LH_COLUMN_AGE, "startedAt", FALSE},
    {"HOST", LH_COLUMN_TEXT, "host", TRUE},
    {"URL", LH_COLUMN_TEXT, "url", TRUE},
    {"VERSION", LH_COLUMN_TEXT, "version", TRUE},
    {"LEASE", LH_COLUMN_TEXT, "lease", TRUE},
    REVISION, END};
static const LhColumn items[] = {
    PLACE,
    {"STATE", LH_COLUMN_TEXT, "state", FALSE},
    {"DONE", LH_COLUMN_PERCENT, "bytesDone/bytesTotal", FALSE},
    {"SINCE", LH_COLUMN_AGE, "since", FALSE},
    {"SIZE", LH_COLUMN_SIZE, "bytesTotal", TRUE},
    {"URL", LH_COLUMN_TEXT, "url", TRUE},
    {"MESSAGE", LH_COLUMN_TEXT, "message", TRUE},
    REVISION, END};
static const LhColumn search[] = {
    {"SNAPSHOT", LH_COLUMN_TEXT, "snapshot", FALSE},
    {"REPLICA", LH_COLUMN_TEXT, "replica", FALSE},
    {"NODE", LH_COLUMN_TEXT, "node", FALSE},
    {"URL", LH_COLUMN_TEXT, "url", FALSE},
    REVISION, END};
static const LhColumn leaders[] = {
    {"CONTROLLER", LH_COLUMN_PART, "0", FALSE},
    {"INSTANCE", LH_COLUMN_TEXT, "instance", FALSE},
    {"HOST", LH_COLUMN_TEXT, "host", FALSE},
    {"AGE", LH_COLUMN_AGE, "startedAt", FALSE},
    {"VERSION", LH_COLUMN_TEXT, "version", TRUE},
    {"URL", LH_COLUMN_TEXT, "url", TRUE},
    {"LEASE", LH_COLUMN_REST, "1", TRUE},
    REVISION, END};
static const LhColumn events[] = {
    {"LAST", LH_COLUMN_AGE, "time", FALSE},
    {"TYPE", LH_COLUMN_TEXT, "type", FALSE},
    {"REASON", LH_COLUMN_TEXT, "reason", FALSE},
    {"OBJECT", LH_COLUMN_TEXT, "object", FALSE},
    {"COUNT", LH_COLUMN_TEXT, "count", FALSE},
    {"CONTROLLER", LH_COLUMN_TEXT, "controller", TRUE},
    {"MESSAGE", LH_COLUMN_TEXT, "message", FALSE},
    END};

static const LhKindView views[] = {
    {"Service", "services", TRUE, services},
    {"Seed", "seeds", TRUE, seeds},
    {"ThrottlePolicy", "throttles", TRUE, throttles},
    {"Partition", "partitions", TRUE, partitions},
    {"Restore", "restores", TRUE, restores},
    {"NodePolicy", "nodepolicies", TRUE, nodepolicies},
    {"Settings", "settings", TRUE, settings},
    {"Confirmation", "confirmations", TRUE, confirmations},
    {"Snapshot", "snapshots", FALSE, snapshots},
    {"RecoveryTask", "recoverytasks", FALSE, recoverytasks},
    {"Accepted", "accepted", FALSE, accepted},
    {"Replica", "replicas", FALSE, replicas},
    {"Assignment", "assignments", FALSE, assignments},
    {"Retry", "retries", FALSE, retries},
    {"PartitionPlan", "partitionplans", FALSE, partitionplans},
    {"RestoreProgress", "restoreprogress", FALSE, restoreprogress},
    {"NodeHealth", "health", FALSE, health},
    {"Deletion", "deletions", FALSE, deletions},
    {"Orphan", "orphans", FALSE, orphans},
    {"Brake", "brakes", FALSE, brakes},
    {"Status", "status", FALSE, status},
    {"Node", "nodes", FALSE, nodes},
    {"Item", "items", FALSE, items},
    {"Search", "search", FALSE, search},
    {"Leader", "leaders", FALSE, leaders},
    {"Event", "events", FALSE, events},
};
/* clang-format on */

const LhKindView *lh_kind_views(guint *n)
{
    *n = G_N_ELEMENTS(views);
    return views;
}

const LhKindView *lh_kind_view(const char *name)
{
    for (guint i = 0; i < G_N_ELEMENTS(views); i++) {
        if (g_ascii_strcasecmp(name, views[i].kind) == 0 ||
            g_ascii_strcasecmp(name, views[i].plural) == 0) {
            return &views[i];
        }
    }
    return NULL;
}

const LhKindView *lh_kind_view_or(const char *name, GError **error)
{
    const LhKindView *view = lh_kind_view(name);
    if (view == NULL) {
        g_autoptr(GString) all = g_string_new(NULL);
        for (guint i = 0; i < G_N_ELEMENTS(views); i++) {
            g_string_append_printf(all, "%s%s", i > 0 ? ", " : "", views[i].plural);
        }
        g_set_error(error, LH_ERROR, LH_ERR_INVALID, "kind %s: unknown; there are %s", name,
                    all->str);
    }
    return view;
}

const cJSON *lh_value_at(const cJSON *object, const char *path)
{
    while (object != NULL) {
        gsize len = strcspn(path, ".");
        g_autofree char *name = g_strndup(path, len);
        if (cJSON_IsArray(object))
            object = strcmp(name, "last") == 0 && object->child != NULL ? object->child->prev
                                                                        : NULL;
        else
            object = cJSON_GetObjectItemCaseSensitive(object, name);
        if (path[len] == '\0') {
            return object;
        }
        path += len + 1;
    }
    return NULL;
}

const char *lh_object_name(const cJSON *object)
{
    return lh_json_get_string(lh_value_at(object, "metadata"), "name", "");
}

const cJSON *lh_object_condition(const cJSON *object, const char *type)
{
    const cJSON *conditions = lh_value_at(object, "status.conditions"), *condition;
    if (conditions == NULL) {
        conditions = lh_value_at(object, "conditions");
    }
    cJSON_ArrayForEach(condition, conditions) {
        if (strcmp(lh_json_get_string(condition, "type", ""), type) == 0) {
            return condition;
        }
    }
    return NULL;
}

char *lh_age_text(gint64 ms)
{
    static const struct {
        gint64 unit_s, below_s, rest_s;
        const char *name, *rest_name;
    } steps[] = {
        {1, 120, 0, "s", NULL},
        {60, 600, 1, "m", "s"},
        {60, 3 * 3600, 0, "m", NULL},
        {3600, 8 * 3600, 60, "h", "m"},
        {3600, 48 * 3600, 0, "h", NULL},
        {86400, 8 * 86400, 3600, "d", "h"},
        {86400, G_MAXINT64, 0, "d", NULL},
    };
    gint64 s = MAX(ms, 0) / 1000;
    guint i = 0;
    while (s >= steps[i].below_s) {
        i++;
    }
    gint64 rest = steps[i].rest_s > 0 ? s % steps[i].unit_s / steps[i].rest_s : 0;
    GString *out = g_string_new(NULL);
    g_string_append_printf(out, "%" G_GINT64_FORMAT "%s", s / steps[i].unit_s, steps[i].name);
    if (rest > 0) {
        g_string_append_printf(out, "%" G_GINT64_FORMAT "%s", rest, steps[i].rest_name);
    }
    return g_string_free(out, FALSE);
}

char *lh_clock_text(gint64 at_ms, gint64 now_ms)
{
    g_autoptr(GDateTime) at = g_date_time_new_from_unix_utc(at_ms / 1000);
    gboolean near = ABS(now_ms - at_ms) < DAY_MS;

    return at == NULL ? NULL : g_date_time_format(at, near ? "%H:%M:%SZ" : "%Y-%m-%dT%H:%M:%SZ");
}

static gboolean time_of(const cJSON *value, gint64 *ms)
{
    return cJSON_IsString(value) ? lh_time_parse(value->valuestring, ms, NULL)
                                 : lh_json_int(value, ms);
}

static char *value_text(const cJSON *value)
{
    if (value == NULL || cJSON_IsNull(value)) {
        return NULL;
    }
    if (cJSON_IsString(value)) {
        return g_strdup(value->valuestring);
    }
    if (!cJSON_IsArray(value)) {
        return lh_json_print(value);
    }
    GString *out = g_string_new(NULL);
    const cJSON *element;
    cJSON_ArrayForEach(element, value) {
        g_autofree char *text = value_text(element);
        g_string_append_printf(out, "%s%s", out->len > 0 ? "," : "", text != NULL ? text : "null");
    }
    return g_string_free(out, FALSE);
}

static char *part_text(const LhColumn *column, const cJSON *object)
{
    const char *name = lh_object_name(object);
    for (int i = column->path[0] - '0'; i > 0; i--) {
        const char *slash = strchr(name, '/');
        if (slash == NULL) {
            return NULL;
        }
        name = slash + 1;
    }
    return column->type == LH_COLUMN_REST ? g_strdup(name) : g_strndup(name, strcspn(name, "/"));
}

static char *pair_text(const LhColumn *column, const cJSON *object)
{
    g_auto(GStrv) paths = g_strsplit(column->path, "/", 2);
    gint64 a, b;
    if (!lh_json_int(lh_value_at(object, paths[0]), &a) ||
        !lh_json_int(lh_value_at(object, paths[1]), &b)) {
        return NULL;
    }
    if (column->type == LH_COLUMN_RATIO) {
        return g_strdup_printf("%" G_GINT64_FORMAT "/%" G_GINT64_FORMAT, a, b);
    }
    return b > 0 ? g_strdup_printf("%d%%", (int)(100.0 * (double)a / (double)b)) : NULL;
}

static char *time_text(const LhColumn *column, const cJSON *object, gint64 now_ms)
{
    gint64 at;
    if (!time_of(lh_value_at(object, column->path), &at)) {
        return NULL;
    }
    if (column->type == LH_COLUMN_AGE) {
        return lh_age_text(now_ms - at);
    }
    if (column->type == LH_COLUMN_TIME) {
        return lh_clock_text(at, now_ms);
    }
    g_autofree char *age = lh_age_text(ABS(now_ms - at));
    return at >= now_ms ? g_strdup_printf("in %s", age) : g_strdup_printf("%s ago", age);
}

static char *conditions_text(const cJSON *object)
{
    GString *out = g_string_new(NULL);
    const cJSON *conditions = lh_value_at(object, "status.conditions"), *condition;
    if (conditions == NULL) {
        conditions = lh_value_at(object, "conditions");
    }
    cJSON_ArrayForEach(condition, conditions) {
        g_string_append_printf(out, "%s%s=%s", out->len > 0 ? "," : "",
                               lh_json_get_string(condition, "type", "?"),
                               lh_json_get_string(condition, "status", "?"));
    }
    return g_string_free(out, FALSE);
}

static char *column_value(const LhColumn *column, const cJSON *object, gint64 now_ms)
{
    switch (column->type) {
    case LH_COLUMN_TEXT:
        return value_text(lh_value_at(object, column->path));
    case LH_COLUMN_PART:
    case LH_COLUMN_REST:
        return part_text(column, object);
    case LH_COLUMN_AGE:
    case LH_COLUMN_TIME:
    case LH_COLUMN_UNTIL:
        return time_text(column, object, now_ms);
    case LH_COLUMN_SIZE: {
        gint64 bytes;
        const cJSON *value = lh_value_at(object, column->path);
        return lh_json_int(value, &bytes) ? lh_size_format(bytes) : value_text(value);
    }
    case LH_COLUMN_COUNT: {
        const cJSON *value = lh_value_at(object, column->path);
        return cJSON_IsArray(value) ? g_strdup_printf("%d", cJSON_GetArraySize(value)) : NULL;
    }
    case LH_COLUMN_RATIO:
    case LH_COLUMN_PERCENT:
        return pair_text(column, object);
    case LH_COLUMN_CONDITION: {
        const cJSON *condition = lh_object_condition(object, column->path);
        return g_strdup(lh_json_get_string(condition, "status", NULL));
    }
    case LH_COLUMN_CONDITIONS:
        return conditions_text(object);
    }
    return NULL;
}

char *lh_column_text(const LhColumn *column, const cJSON *object, gint64 now_ms)
{
    char *text = column_value(column, object, now_ms);
    if (text == NULL || text[0] == '\0') {
        g_free(text);
        return g_strdup("-");
    }
    return text;
}
